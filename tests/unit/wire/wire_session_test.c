/* SPDX-License-Identifier: BSD-3-Clause */
// HELLO, HEARTBEAT, ANNOUNCE and their answers.
#include "wire_samples.h"

static void hello_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_HELLO, body);
	struct wire_hello m;

	assert_int_equal(len, WIRE_HELLO_BYTES);
	assert_int_equal(wire_get_hello((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.role, WIRE_ROLE_GATEWAY);
	assert_int_equal(m.version_min, 1);
	assert_int_equal(m.version_max, 3);
	assert_int_equal(m.mtu, 1500);
	assert_int_equal(m.cookie, 0x1122334455667788u);
	(void)state;
}

static void bad_hello_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"role 0", 0, 1, 0, CTR_DROP_FIELD},
		{"role publisher", 0, 1, 1, 0},
		{"role node", 0, 1, 3, 0},
		{"role 4", 0, 1, 4, CTR_DROP_FIELD},
		{"version 0", 1, 1, 0, CTR_DROP_FIELD},
		{"versions upside down", 1, 1, 4, CTR_DROP_FIELD},
		{"one version", 1, 1, 3, 0},
		{"reserved 3", 3, 1, 1, CTR_DROP_FIELD},
		{"mtu 575", 4, 2, 575, CTR_DROP_FIELD},
		{"mtu 576", 4, 2, 576, 0},
		{"mtu 9000", 4, 2, 9000, 0},
		{"mtu 9001", 4, 2, 9001, CTR_DROP_FIELD},
		{"reserved 6", 6, 2, 0x8000, CTR_DROP_FIELD},
		{"first byte of padding", 16, 1, 1, CTR_DROP_FIELD},
		{"last byte of padding", 63, 1, 0x80, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_HELLO, patches);
	(void)state;
}

static void hello_ack_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_HELLO_ACK, body);
	struct wire_hello_ack m;

	assert_int_equal(wire_get_hello_ack((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.status, WIRE_OK);
	assert_int_equal(m.cookie, 0x8877665544332211u);
	assert_int_equal(m.node_id, 7);
	assert_int_equal(m.node_boot, 0xb007);
	assert_int_equal(m.port_base, 7400);
	assert_int_equal(m.workers, 2);
	assert_int_equal(m.version, 1);
	assert_int_equal(m.mtu, 9000);
	assert_int_equal(m.payload_max, PAYLOAD_MAX);
	assert_int_equal(m.heartbeat_ms, 1000);
	assert_int_equal(m.topology_version, 42);
	(void)state;
}

static void bad_hello_ack_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"status unknown", 0, 2, WIRE_STATUS_COUNT, CTR_DROP_FIELD},
		{"status of two bytes", 0, 2, 0x100, CTR_DROP_FIELD},
		{"version 0", 2, 1, 0, CTR_DROP_FIELD},
		{"no workers", 3, 1, 0, CTR_DROP_FIELD},
		{"workers 16", 3, 1, 16, 0},
		{"workers 17", 3, 1, 17, CTR_DROP_FIELD},
		{"port 0", 4, 2, 0, CTR_DROP_FIELD},
		{"ports 65534..65535", 4, 2, 65534, 0},
		{"ports beyond 65535", 4, 2, 65535, CTR_DROP_FIELD},
		{"mtu 0", 6, 2, 0, CTR_DROP_FIELD},
		{"mtu 575", 6, 2, 575, CTR_DROP_FIELD},
		{"mtu 9001", 6, 2, 9001, CTR_DROP_FIELD},
		{"node 0", 16, 8, 0, CTR_DROP_FIELD},
		{"boot 0", 24, 8, 0, CTR_DROP_FIELD},
		{"payload too large", 40, 4, PAYLOAD_MAX + 1, CTR_DROP_FIELD},
		{"heartbeat 0", 44, 4, 0, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_HELLO_ACK, patches);
	(void)state;
}

static void hello_ack_that_refuses_may_tell_nothing_else(void **state)
{
	const struct wire_hello_ack m = {.status = WIRE_NEED_HELLO, .cookie = 5};
	uint8_t body[SAMPLE_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	struct wire_hello_ack got;

	assert_true(wire_put_hello_ack(&out, &m));
	assert_int_equal(wire_get_hello_ack((struct wire_view){body, out.len}, &got), 0);
	assert_int_equal(got.status, WIRE_NEED_HELLO);
	assert_int_equal(got.cookie, 5);
	(void)state;
}

static void heartbeats_survive_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	uint32_t len = sample_body(S_HEARTBEAT, body);
	struct wire_heartbeat m;
	struct wire_heartbeat_ack ack;

	assert_int_equal(wire_get_heartbeat((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.stamp, 0x0102030405060708u);
	assert_int_equal(m.sessions, 77);
	len = sample_body(S_HEARTBEAT_ACK, body);
	assert_int_equal(wire_get_heartbeat_ack((struct wire_view){body, len}, &ack), 0);
	assert_int_equal(ack.stamp, 0x0102030405060708u);
	assert_int_equal(ack.topology_version, 42);
	assert_int_equal(ack.next_expected, 9);
	assert_int_equal(ack.sessions, 76);
	assert_int_equal(ack.status, WIRE_UNKNOWN_GATEWAY);
	(void)state;
}

static void bad_heartbeat_fields_are_refused(void **state)
{
	static const struct patch heartbeat[] = {
		{"padding", 12, 1, 1, CTR_DROP_FIELD},
		{"padding", 31, 1, 1, CTR_DROP_FIELD},
	};
	static const struct patch ack[] = {
		{"status", 28, 2, WIRE_STATUS_COUNT, CTR_DROP_FIELD},
		{"reserved", 30, 2, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_HEARTBEAT, heartbeat);
	CHECK_PATCHES(S_HEARTBEAT_ACK, ack);
	(void)state;
}

static void announce_entries_come_back_in_order(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_ANNOUNCE, body);
	struct wire_announce m;
	struct wire_session s;

	assert_int_equal(wire_get_announce((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.stream_seq, 5);
	assert_int_equal(m.count, 3);
	assert_true(wire_announce_next(&m.entries, &s));
	assert_int_equal(s.op, WIRE_SESSION_OPEN);
	assert_int_equal(s.slot, 0);
	assert_int_equal(s.gen, 1);
	assert_true(id_equal(s.uid, id_view_of("alice", 5)));
	assert_true(wire_announce_next(&m.entries, &s));
	assert_int_equal(s.op, WIRE_SESSION_CLOSE);
	assert_int_equal(s.slot, 0xffffff);
	assert_int_equal(s.gen, 0xfffffe);
	assert_true(id_equal(s.uid, id_view_of("b", 1)));
	assert_true(wire_announce_next(&m.entries, &s));
	assert_true(id_equal(s.uid, id_view_of("\0\xff\"", 3)));
	assert_false(wire_announce_next(&m.entries, &s));
	(void)state;
}

static void bad_announce_fields_are_refused(void **state)
{
	// Entries stand at 16 (uid 5), 29 (uid 1), 38 (uid 3).
	static const struct patch patches[] = {
		{"stream sequence 0", 0, 8, 0, CTR_DROP_FIELD},
		{"count 0", 8, 2, 0, CTR_DROP_FIELD},
		{"count one less", 8, 2, 2, CTR_DROP_LENGTH},
		{"count one more", 8, 2, 4, CTR_DROP_SHORT},
		{"count at its end", 8, 2, 65535, CTR_DROP_SHORT},
		{"reserved 10", 10, 2, 1, CTR_DROP_FIELD},
		{"reserved 12", 12, 4, 1, CTR_DROP_FIELD},
		{"op 0", 16, 1, 0, CTR_DROP_FIELD},
		{"op 3", 16, 1, 3, CTR_DROP_FIELD},
		{"op 255 of the last", 38, 1, 255, CTR_DROP_FIELD},
		{"uid empty", 39, 1, 0, CTR_DROP_FIELD},
		{"uid one longer", 39, 1, 4, CTR_DROP_SHORT},
		{"uid one shorter", 39, 1, 2, CTR_DROP_LENGTH},
		{"uid 255", 39, 1, 255, CTR_DROP_SHORT},
	};

	CHECK_PATCHES(S_ANNOUNCE, patches);
	(void)state;
}

static void full_announce_keeps_what_fits(void **state)
{
	uint8_t body[200];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	struct wire_session s = {WIRE_SESSION_OPEN, 1, 1, id_view_of("0123456789", 10)};
	struct wire_announce m;
	uint32_t n = 0;

	assert_true(wire_announce_begin(&out, 1));
	while (wire_announce_add(&out, &s))
		n++;
	assert_int_equal(n, (200 - 16) / 18);
	assert_true(out.ok);
	s.uid.len = 1;  // a shorter one still fits
	assert_true(wire_announce_add(&out, &s) == (200 - 16 - n * 18 >= 9));
	assert_int_equal(wire_get_announce((struct wire_view){body, out.len}, &m), 0);
	assert_true(m.count >= n);
	(void)state;
}

static void announce_ack_survives_the_round_trip(void **state)
{
	uint8_t body[SAMPLE_MAX];
	const uint32_t len = sample_body(S_ANNOUNCE_ACK, body);
	struct wire_announce_ack m;

	assert_int_equal(wire_get_announce_ack((struct wire_view){body, len}, &m), 0);
	assert_int_equal(m.stream_seq, 5);
	assert_int_equal(m.next_expected, 6);
	assert_int_equal(m.status, WIRE_OK);
	assert_int_equal(m.rejected, 3);
	assert_int_equal(m.rejects.len, 8);
	assert_int_equal(wire_position(m.rejects, 2), 2);
	assert_int_equal(wire_position(m.rejects, 3), WIRE_STALE);
	(void)state;
}

static void bad_announce_ack_fields_are_refused(void **state)
{
	static const struct patch patches[] = {
		{"status", 16, 2, WIRE_STATUS_COUNT, CTR_DROP_FIELD},
		{"fewer rejected than listed", 18, 2, 1, CTR_DROP_FIELD},
		{"listed more", 20, 2, 3, CTR_DROP_SHORT},
		{"listed less", 20, 2, 1, CTR_DROP_LENGTH},
		{"reserved", 22, 2, 1, CTR_DROP_FIELD},
	};

	CHECK_PATCHES(S_ANNOUNCE_ACK, patches);
	(void)state;
}

static void builders_refuse_what_parsers_refuse(void **state)
{
	uint8_t body[SAMPLE_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};

	assert_false(wire_put_hello(&out, &(struct wire_hello){.role = 3, .mtu = 1500}));
	assert_false(out.ok);
	assert_int_equal(out.len, 0);
	out.ok = true;
	assert_false(wire_put_hello_ack(&out, &(struct wire_hello_ack){.status = WIRE_OK}));
	out.ok = true;
	assert_false(wire_put_heartbeat_ack(&out, &(struct wire_heartbeat_ack){.status = 99}));
	out.ok = true;
	assert_false(wire_put_announce_ack(&out, &(struct wire_announce_ack){.status = 99}));
	out.ok = true;
	assert_false(wire_announce_begin(&out, 0));
	// Failed for good: what would fit is refused too.
	assert_false(wire_put_heartbeat(&out, &(struct wire_heartbeat){.stamp = 1}));
	assert_int_equal(out.len, 0);
	(void)state;
}

static void lengths_are_exact(void **state)
{
	static const enum sample_id ids[] = {
		S_HELLO, S_HELLO_ACK, S_HEARTBEAT, S_HEARTBEAT_ACK, S_ANNOUNCE, S_ANNOUNCE_ACK};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		check_truncated_and_overlong(ids[i]);
		check_bit_flips(ids[i]);
		check_builder_fails_without_room(ids[i]);
	}
	(void)state;
}

static void no_answer_is_larger_than_its_question(void **state)
{
	uint8_t body[SAMPLE_MAX];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_session s = {WIRE_SESSION_OPEN, 1, 1, id_view_of("u", 1)};
	uint32_t question;

	assert_true(sample_body(S_HELLO_ACK, body) <= sample_body(S_HELLO, body));
	assert_true(sample_body(S_HEARTBEAT_ACK, body) <= sample_body(S_HEARTBEAT, body));
	assert_true(wire_announce_begin(&out, 1) && wire_announce_add(&out, &s));
	question = out.len;
	out.len = 0;
	assert_true(wire_put_announce_ack(
		&out, &(struct wire_announce_ack){.status = WIRE_UNKNOWN_GATEWAY}));
	assert_true(out.len <= question);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_survives_the_round_trip),
		cmocka_unit_test(bad_hello_fields_are_refused),
		cmocka_unit_test(hello_ack_survives_the_round_trip),
		cmocka_unit_test(bad_hello_ack_fields_are_refused),
		cmocka_unit_test(hello_ack_that_refuses_may_tell_nothing_else),
		cmocka_unit_test(heartbeats_survive_the_round_trip),
		cmocka_unit_test(bad_heartbeat_fields_are_refused),
		cmocka_unit_test(announce_entries_come_back_in_order),
		cmocka_unit_test(bad_announce_fields_are_refused),
		cmocka_unit_test(full_announce_keeps_what_fits),
		cmocka_unit_test(announce_ack_survives_the_round_trip),
		cmocka_unit_test(bad_announce_ack_fields_are_refused),
		cmocka_unit_test(builders_refuse_what_parsers_refuse),
		cmocka_unit_test(lengths_are_exact),
		cmocka_unit_test(no_answer_is_larger_than_its_question),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
