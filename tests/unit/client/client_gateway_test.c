/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_test_common.h"

#include <errno.h>

#include "fake_node.h"

static void sessions_opened_before_registration_are_announced_after_it(void **state)
{
	struct world *w = world_create(1, true, true);
	const uint32_t a = world_open(w, "alice");

	(void)state;
	assert_int_equal(client_core_announce_pending(w->core), 1);
	assert_true(world_until(w, world_announced, 1000));
	assert_string_equal(world_session(w, a)->uid, "alice");
	world_destroy(w);
}

static void handles_are_never_zero_and_die_with_their_session(void **state)
{
	struct world *w = world_create(1, true, true);
	const uint32_t a = world_open(w, "alice");
	uint32_t b;

	(void)state;
	assert_int_not_equal(a, 0);
	assert_int_equal(client_core_session_close(w->core, 0), -EINVAL);
	assert_int_equal(client_core_session_close(w->core, a + 1), -EINVAL);
	assert_int_equal(client_core_session_close(w->core, a), 0);
	assert_int_equal(client_core_session_close(w->core, a), -EINVAL);
	b = world_open(w, "bob");  // in the same slot
	assert_int_equal(b & 0xffffff, a & 0xffffff);
	assert_int_not_equal(a, b);
	assert_int_equal(client_core_session_close(w->core, a), -EINVAL);
	world_destroy(w);
}

static void bad_ids_and_publishers_are_refused(void **state)
{
	struct world *w = world_create(1, true, true);
	struct world *p = world_create(1, false, true);
	char uid[300] = "x";
	struct tagcast_id id = {.bytes = uid, .len = 0};
	uint32_t session;

	(void)state;
	assert_int_equal(client_core_session_open(w->core, id, NULL, &session), -EINVAL);
	id.len = 256;
	assert_int_equal(client_core_session_open(w->core, id, NULL, &session), -EINVAL);
	id.len = 255;
	assert_int_equal(client_core_session_open(w->core, id, NULL, &session), 0);
	assert_int_equal(client_core_session_open(p->core, id, NULL, &session), -EPERM);
	assert_int_equal(client_core_session_close(p->core, 1), -EPERM);
	world_destroy(w);
	world_destroy(p);
}

static void a_session_closed_before_it_was_announced_is_never_announced(void **state)
{
	struct world *w = world_create(1, true, true);
	const uint32_t a = world_open(w, "alice");

	(void)state;
	world_open(w, "bob");
	assert_int_equal(client_core_session_close(w->core, a), 0);
	assert_true(world_until(w, world_announced, 1000));
	assert_int_equal(w->announce_entries, 1);
	assert_int_equal(w->sessions, 1);
	world_destroy(w);
}

static void a_slot_used_again_is_closed_first_at_the_node(void **state)
{
	struct world *w = world_create(1, true, true);
	uint32_t a = world_open(w, "alice");

	(void)state;
	assert_true(world_until(w, world_announced, 1000));
	for (int i = 0; i < 10; i++) {
		assert_int_equal(client_core_session_close(w->core, a), 0);
		a = world_open(w, "again");
		world_run(w, 1);
	}
	assert_true(world_until(w, world_announced, 1000));
	assert_int_equal(w->sessions, 1);
	assert_string_equal(world_session(w, a)->uid, "again");
	world_destroy(w);
}

// Opens, closes and reopens under loss, duplication and reordering; at the end the node knows exactly what
// is open.
static void churn(uint64_t seed, bool keys)
{
	struct world *w = world_create(seed, true, keys);
	uint32_t handle[300] = {0};
	uint64_t x = seed;
	uint32_t open = 0;

	w->loss_percent = 20;
	w->dup_percent = 20;
	w->jitter_ns = 40 * WORLD_MS;
	for (uint32_t round = 0; round < 40; round++) {
		for (uint32_t k = 0; k < 30; k++) {
			uint32_t i;
			char uid[32];

			x = x * UINT64_C(6364136223846793005) + 1;
			i = (uint32_t)(x >> 33) % 300;
			snprintf(uid, sizeof(uid), "user%u-%u", i, round);
			if (handle[i] == 0) {
				handle[i] = world_open(w, uid);
				open++;
			} else {
				assert_int_equal(client_core_session_close(w->core, handle[i]), 0);
				handle[i] = 0;
				open--;
			}
		}
		if (round == 15 && seed % 3 == 0)
			world_forget(w);
		if (round == 25 && seed % 5 == 0)
			world_node_restart(w);
		world_run(w, 30);
	}
	w->loss_percent = 5;
	world_run(w, 15000);
	assert_true(world_until(w, world_announced, 30000));
	assert_int_equal(w->sessions, open);
	for (uint32_t i = 0; i < 300; i++) {
		char prefix[32];
		const struct world_session *s;

		if (handle[i] == 0)
			continue;
		snprintf(prefix, sizeof(prefix), "user%u-", i);
		s = world_session(w, handle[i]);
		assert_non_null(s);
		assert_memory_equal(s->uid, prefix, strlen(prefix));
	}
	world_destroy(w);
}

static void the_node_ends_up_with_exactly_the_open_sessions(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++)
		churn(seed, seed % 2 == 0);
}

static void many_sessions_go_out_in_a_window_of_frames(void **state)
{
	struct world *w = world_create(1, true, true);
	char uid[200];

	(void)state;
	memset(uid, 'u', sizeof(uid));
	for (uint32_t i = 0; i < 4000; i++) {
		snprintf(uid + 180, 20, "%u", i);
		world_open(w, uid);
	}
	assert_true(world_until(w, world_announced, 2000));
	assert_int_equal(w->sessions, 4000);
	assert_int_equal(w->announce_entries, 4000);
	assert_true(w->announces > 4000 / 8);
	world_destroy(w);
}

static uint32_t lose;
static bool lose_some(struct world *w, const struct wire_header *h, bool to_client)
{
	(void)w;
	if (to_client || h->type != WIRE_ANNOUNCE || lose == 0)
		return true;
	lose--;
	return false;
}

static void a_gap_is_closed_without_waiting_for_the_timer(void **state)
{
	struct world *w = world_create(1, true, true);
	char uid[200];
	uint64_t start;

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	world_run(w, 100);
	memset(uid, 'u', sizeof(uid));
	for (uint32_t i = 0; i < 40; i++) {
		snprintf(uid + 180, 20, "%u", i);
		world_open(w, uid);
	}
	lose = 1;
	w->filter = lose_some;
	start = w->now_ns;
	assert_true(world_until(w, world_announced, 1000));
	assert_true(w->now_ns - start < 50 * WORLD_MS);
	world_destroy(w);
}

static void a_refused_session_is_announced_again_later(void **state)
{
	struct world *w = world_create(1, true, true);
	const uint32_t a = world_open(w, "alice");
	const uint32_t b = world_open(w, "bob");

	(void)state;
	w->ack_reject_once = true;
	assert_true(world_until(w, world_announced, 500));
	assert_null(world_session(w, a));
	assert_non_null(world_session(w, b));
	world_run(w, 1500);
	assert_non_null(world_session(w, a));
	assert_int_equal(w->announce_entries, 2);
	world_destroy(w);
}

static void a_refusal_that_will_not_pass_is_not_repeated(void **state)
{
	struct world *w = world_create(1, true, true);
	struct wire_announce_ack ack = {.stream_seq = 1, .next_expected = 2, .rejected = 1};
	const uint16_t stale[2] = {0, WIRE_STALE};
	uint8_t bytes[64];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};

	(void)state;
	world_open(w, "alice");
	assert_true(world_until(w, world_announced, 500));
	ack.rejects = (struct wire_view){.p = (const uint8_t *)stale, .len = 4};
	assert_true(wire_put_announce_ack(&out, &ack));
	world_send(w, 0, WIRE_ANNOUNCE_ACK, bytes, out.len);
	world_run(w, 5000);
	assert_int_equal(w->announce_entries, 1);
	world_destroy(w);
}

static bool lose_announce_acks(struct world *w, const struct wire_header *h, bool to_client)
{
	return !(to_client && h->type == WIRE_ANNOUNCE_ACK && w->announces < 2);
}

static void a_refusal_whose_answer_was_lost_is_repaired_by_the_count(void **state)
{
	struct world *w = world_create(1, true, true);
	const uint32_t a = world_open(w, "alice");

	(void)state;
	w->ack_reject_once = true;
	w->filter = lose_announce_acks;
	assert_true(world_until(w, world_announced, 5000));
	assert_null(world_session(w, a));
	world_run(w, 6000);
	assert_non_null(world_session(w, a));
	world_destroy(w);
}

static void an_unknown_gateway_answer_starts_the_stream_anew(void **state)
{
	struct world *w = world_create(1, true, true);
	const uint32_t a = world_open(w, "alice");
	uint32_t b;

	(void)state;
	assert_true(world_until(w, world_announced, 1000));
	world_forget(w);
	b = world_open(w, "bob");
	world_run(w, 500);  // sooner than the next heartbeat
	assert_non_null(world_session(w, a));
	assert_non_null(world_session(w, b));
	assert_int_equal(w->client_boot, 0x7701);
	world_destroy(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sessions_opened_before_registration_are_announced_after_it),
		cmocka_unit_test(handles_are_never_zero_and_die_with_their_session),
		cmocka_unit_test(bad_ids_and_publishers_are_refused),
		cmocka_unit_test(a_session_closed_before_it_was_announced_is_never_announced),
		cmocka_unit_test(a_slot_used_again_is_closed_first_at_the_node),
		cmocka_unit_test(the_node_ends_up_with_exactly_the_open_sessions),
		cmocka_unit_test(many_sessions_go_out_in_a_window_of_frames),
		cmocka_unit_test(a_gap_is_closed_without_waiting_for_the_timer),
		cmocka_unit_test(a_refused_session_is_announced_again_later),
		cmocka_unit_test(a_refusal_that_will_not_pass_is_not_repeated),
		cmocka_unit_test(a_refusal_whose_answer_was_lost_is_repaired_by_the_count),
		cmocka_unit_test(an_unknown_gateway_answer_starts_the_stream_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
