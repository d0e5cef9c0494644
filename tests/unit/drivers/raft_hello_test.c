/* SPDX-License-Identifier: BSD-3-Clause */
// The handshake: each message expected, old, repeated, early and malformed, and each reason to refuse.
#include "unit.h"

#include <string.h>

#include "raft_hello.h"

struct side {
	struct hello_self self;
	struct hello hello;
	struct hello_out out;
	enum hello_step step;
};

static struct side dialer, acceptor;
static struct hello_seen seen;
static uint64_t seed;

static void fresh(uint8_t nonce[HELLO_NONCE_BYTES])
{
	for (uint32_t i = 0; i < HELLO_NONCE_BYTES; i++)
		nonce[i] = (uint8_t)(unit_random(&seed) >> 32);
}

static int setup(void **state)
{
	const uint8_t key[HELLO_KEY_BYTES] = "one key for all of the cluster";

	seed = 1;
	memset(&seen, 0, sizeof(seen));
	memset(&dialer, 0, sizeof(dialer));
	memset(&acceptor, 0, sizeof(acceptor));
	dialer.self = (struct hello_self){
		.node_id = 1, .cluster_id = 9, .authenticated = true, .address = "10.0.0.1:7400"};
	acceptor.self = (struct hello_self){
		.node_id = 2, .cluster_id = 9, .authenticated = true, .address = "10.0.0.2:7400"};
	memcpy(dialer.self.key, key, sizeof(key));
	memcpy(acceptor.self.key, key, sizeof(key));
	return 0;
}

static void start(uint64_t peer)
{
	uint8_t nonce[HELLO_NONCE_BYTES];

	fresh(nonce);
	hello_dial(&dialer.hello, &dialer.self, HELLO_RAFT, peer, nonce, &dialer.out);
	fresh(nonce);
	hello_accept(&acceptor.hello, &acceptor.self, &seen, nonce);
	dialer.step = acceptor.step = HELLO_MORE;
	acceptor.out.len = 0;
}

// Gives `to` what `from` has to say, as a stream cut into `cut` bytes; what it sends must not be longer.
static void pass(struct side *from, struct side *to, uint32_t cut)
{
	struct hello_out sent = from->out, got = {0};
	uint32_t at = 0;

	from->out.len = 0;
	while (at < sent.len && to->step == HELLO_MORE) {
		uint32_t n = hello_need(&to->hello);

		if (n > cut)
			n = cut;
		if (n > sent.len - at)
			n = sent.len - at;
		assert_true(n > 0);
		to->step = hello_input(&to->hello, sent.bytes + at, n, &got);
		at += n;
	}
	to->out = got;
}

static void finish(void)
{
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	if (acceptor.step == HELLO_PROVEN)
		acceptor.step = hello_admit(&acceptor.hello, HELLO_OK, &acceptor.out);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
}

static void both_sides_prove_themselves(void **state)
{
	for (uint32_t cut = 1; cut <= HELLO_BYTES_MAX; cut++) {
		start(2);
		pass(&dialer, &acceptor, cut);
		assert_int_equal(acceptor.step, HELLO_MORE);
		assert_true(acceptor.out.len <= HELLO_BYTES_MAX);
		pass(&acceptor, &dialer, cut);
		assert_int_equal(dialer.step, HELLO_MORE);
		pass(&dialer, &acceptor, cut);
		assert_int_equal(acceptor.step, HELLO_PROVEN);
		acceptor.step = hello_admit(&acceptor.hello, HELLO_OK, &acceptor.out);
		assert_int_equal(acceptor.step, HELLO_DONE);
		pass(&acceptor, &dialer, cut);
		assert_int_equal(dialer.step, HELLO_DONE);
		assert_int_equal(acceptor.hello.peer_id, 1);
		assert_int_equal(acceptor.hello.kind, HELLO_RAFT);
		assert_string_equal(acceptor.hello.peer_address, "10.0.0.1:7400");
		assert_int_equal(dialer.hello.peer_id, 2);
	}
}

static void nothing_beyond_the_handshake_is_wanted(void **state)
{
	start(2);
	finish();
	assert_int_equal(hello_need(&dialer.hello), 0);
	assert_int_equal(hello_need(&acceptor.hello), 0);
}

static void whoever_answers_is_learnt_when_dialled_by_address(void **state)
{
	start(0);
	finish();
	assert_int_equal(dialer.step, HELLO_DONE);
	assert_int_equal(dialer.hello.peer_id, 2);
}

static void without_a_key_the_same_is_said(void **state)
{
	dialer.self.authenticated = acceptor.self.authenticated = false;
	start(2);
	finish();
	assert_int_equal(dialer.step, HELLO_DONE);
	assert_int_equal(acceptor.step, HELLO_DONE);
}

static void key_on_one_side_only_is_refused(void **state)
{
	acceptor.self.authenticated = false;
	start(2);
	finish();
	assert_int_equal(dialer.hello.refusal, HELLO_OTHER_KEY);
	acceptor.self.authenticated = true;
	dialer.self.authenticated = false;
	start(2);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.hello.refusal, HELLO_OTHER_KEY);
}

static void another_key_is_refused_by_both(void **state)
{
	uint8_t tag[HELLO_PROOF_BYTES];

	acceptor.self.key[31] ^= 1;
	start(2);
	finish();
	assert_int_equal(dialer.step, HELLO_REFUSED);
	assert_int_equal(dialer.hello.refusal, HELLO_OTHER_KEY);
	assert_int_equal(dialer.out.len, 0);
	// A dialer that goes on in spite of it does not get in.
	memset(tag, 0x55, sizeof(tag));
	memcpy(tag, "TGRH\1\0\3\1", 8);
	memcpy(dialer.out.bytes, tag, sizeof(tag));
	dialer.out.len = sizeof(tag);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	assert_int_equal(acceptor.hello.refusal, HELLO_OTHER_KEY);
	assert_int_equal(acceptor.out.len, HELLO_HEAD_BYTES);
}

static void expect_refused(enum hello_refusal refusal)
{
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	assert_int_equal(acceptor.step, HELLO_REFUSED);
	assert_int_equal(acceptor.hello.refusal, refusal);
	assert_int_equal(hello_need(&acceptor.hello), 0);
	assert_int_equal(acceptor.out.len, refusal == HELLO_MALFORMED ? 0 : HELLO_HEAD_BYTES);
	if (acceptor.out.len == 0)
		return;
	// The dialer hears why.
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.step, HELLO_REFUSED);
	assert_int_equal(dialer.hello.refusal, refusal);
	assert_int_equal(dialer.hello.told, 1);
}

static void another_cluster_is_refused_by_name(void **state)
{
	dialer.self.cluster_id = 8;
	start(2);
	expect_refused(HELLO_OTHER_CLUSTER);
}

static void a_call_for_another_node_is_refused_by_name(void **state)
{
	start(3);
	expect_refused(HELLO_OTHER_NODE);
}

static void own_id_is_refused_as_reflection(void **state)
{
	dialer.self.node_id = 2;
	start(2);
	expect_refused(HELLO_REFLECTED);
}

static void a_refusal_at_admission_is_heard(void **state)
{
	start(2);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	assert_int_equal(acceptor.step, HELLO_PROVEN);
	assert_int_equal(
		hello_admit(&acceptor.hello, HELLO_NOT_MEMBER, &acceptor.out), HELLO_REFUSED);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.hello.refusal, HELLO_NOT_MEMBER);
	assert_int_equal(dialer.hello.told, 1);
}

static void older_and_later_versions_are_refused_by_name(void **state)
{
	const uint16_t versions[] = {0, 2, 0xffff};

	for (uint32_t i = 0; i < 3; i++) {
		start(2);
		memcpy(dialer.out.bytes + 4, &versions[i], 2);
		expect_refused(HELLO_OTHER_VERSION);
		// And a challenge of such a version by the dialer.
		start(2);
		pass(&dialer, &acceptor, HELLO_BYTES_MAX);
		memcpy(acceptor.out.bytes + 4, &versions[i], 2);
		pass(&acceptor, &dialer, HELLO_BYTES_MAX);
		assert_int_equal(dialer.hello.refusal, HELLO_OTHER_VERSION);
	}
}

static void a_replayed_dial_is_refused(void **state)
{
	struct hello_out first, proof;

	start(2);
	first = dialer.out;
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	proof = dialer.out;
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	assert_int_equal(acceptor.step, HELLO_PROVEN);
	start(2);
	dialer.out = first;
	expect_refused(HELLO_REPLAYED);
	// A proof from another run fits no other nonce, even where the dial was not remembered.
	memset(&seen, 0, sizeof(seen));
	start(2);
	dialer.out = first;
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	dialer.out = proof;
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	assert_int_equal(acceptor.hello.refusal, HELLO_OTHER_KEY);
}

static void a_dial_raced_against_its_own_replay_gets_in_once(void **state)
{
	struct hello second;
	uint8_t nonce[HELLO_NONCE_BYTES];
	struct hello_out out;

	start(2);
	fresh(nonce);
	hello_accept(&second, &acceptor.self, &seen, nonce);
	assert_int_equal(
		hello_input(&second, dialer.out.bytes, HELLO_HEAD_BYTES, &out), HELLO_MORE);
	assert_int_equal(hello_input(&second, dialer.out.bytes + HELLO_HEAD_BYTES,
				 HELLO_BYTES_MAX - HELLO_HEAD_BYTES, &out),
		HELLO_MORE);
	finish();
	assert_int_equal(acceptor.step, HELLO_DONE);
	assert_memory_not_equal(out.bytes + 24, acceptor.hello.challenge + 24, HELLO_NONCE_BYTES);
}

static void what_was_said_coming_back_is_refused(void **state)
{
	struct hello_out first;

	// The dialer's own HELLO.
	start(2);
	first = dialer.out;
	acceptor.out = first;
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.step, HELLO_REFUSED);
	assert_int_equal(dialer.hello.refusal, HELLO_MALFORMED);
	// Its nonce, and its id, in a challenge.
	start(2);
	first = dialer.out;
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	memcpy(acceptor.out.bytes + 24, first.bytes + 32, HELLO_NONCE_BYTES);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.hello.refusal, HELLO_REFLECTED);
	start(0);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	acceptor.out.bytes[8] = 1;
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.hello.refusal, HELLO_REFLECTED);
	// The acceptor's own tag as the proof.
	start(2);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	memcpy(dialer.out.bytes, "TGRH\1\0\3\1", 8);
	memcpy(dialer.out.bytes + 8, acceptor.out.bytes + 56, HELLO_TAG_BYTES);
	dialer.out.len = HELLO_PROOF_BYTES;
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	assert_int_equal(acceptor.hello.refusal, HELLO_OTHER_KEY);
	// The dialer's own tag as the welcome.
	start(2);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	acceptor.out = dialer.out;
	acceptor.out.bytes[6] = 4;
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.hello.refusal, HELLO_OTHER_KEY);
}

static void an_answer_of_another_node_is_refused(void **state)
{
	start(2);
	pass(&dialer, &acceptor, HELLO_BYTES_MAX);
	acceptor.out.bytes[8] = 3;
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.hello.refusal, HELLO_OTHER_NODE);
}

// Every byte of every message counts: none may be changed on the way.
static void no_bit_may_be_changed(void **state)
{
	for (uint32_t message = 0; message < 4; message++) {
		for (uint32_t at = 0; at < HELLO_BYTES_MAX; at++) {
			struct side *from = message % 2 == 0 ? &dialer : &acceptor;
			struct side *to = message % 2 == 0 ? &acceptor : &dialer;

			start(2);
			for (uint32_t i = 0; i < message; i++) {
				pass(i % 2 == 0 ? &dialer : &acceptor,
					i % 2 == 0 ? &acceptor : &dialer, HELLO_BYTES_MAX);
				if (acceptor.step == HELLO_PROVEN)
					acceptor.step = hello_admit(
						&acceptor.hello, HELLO_OK, &acceptor.out);
			}
			if (at >= from->out.len)
				break;
			from->out.bytes[at] ^= 0x10;
			pass(from, to, HELLO_BYTES_MAX);
			if (to->step == HELLO_MORE)
				pass(to, from, HELLO_BYTES_MAX);
			if (from->step == HELLO_MORE)
				pass(from, to, HELLO_BYTES_MAX);
			assert_int_not_equal(acceptor.step, HELLO_PROVEN);
			if (message == 3)
				assert_int_equal(dialer.step, HELLO_REFUSED);
		}
	}
}

static void messages_out_of_order_are_malformed(void **state)
{
	for (uint8_t type = 0; type < 8; type++) {
		start(2);
		dialer.out.bytes[6] = type;
		if (type == 1)
			continue;
		pass(&dialer, &acceptor, HELLO_BYTES_MAX);
		assert_int_equal(acceptor.step, HELLO_REFUSED);
		assert_int_equal(acceptor.hello.refusal, HELLO_MALFORMED);
		assert_int_equal(acceptor.out.len, 0);
	}
}

static void malformed_dials_get_no_answer(void **state)
{
	start(2);
	memcpy(dialer.out.bytes, "GET /", 5);
	expect_refused(HELLO_MALFORMED);
	start(2);
	memset(dialer.out.bytes + 16, 0, 8);  // from nobody
	expect_refused(HELLO_MALFORMED);
	start(2);
	dialer.out.bytes[7] = 3;  // no kind
	expect_refused(HELLO_MALFORMED);
	start(2);
	memset(dialer.out.bytes + 64, 'a', HELLO_ADDRESS_BYTES);  // address without end
	expect_refused(HELLO_MALFORMED);
}

static void every_refusal_has_a_name(void **state)
{
	for (int i = 0; i < HELLO_REFUSAL_COUNT; i++)
		assert_string_not_equal(hello_refusal_name((enum hello_refusal)i), "unknown");
	assert_string_equal(hello_refusal_name(HELLO_REFUSAL_COUNT), "unknown");
	// A reason of a later version is no name of ours.
	start(2);
	memcpy(acceptor.out.bytes, "TGRH\1\0\5\377", 8);
	acceptor.out.len = 8;
	pass(&acceptor, &dialer, HELLO_BYTES_MAX);
	assert_int_equal(dialer.hello.refusal, HELLO_MALFORMED);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		T(both_sides_prove_themselves),
		T(nothing_beyond_the_handshake_is_wanted),
		T(whoever_answers_is_learnt_when_dialled_by_address),
		T(without_a_key_the_same_is_said),
		T(key_on_one_side_only_is_refused),
		T(another_key_is_refused_by_both),
		T(another_cluster_is_refused_by_name),
		T(a_call_for_another_node_is_refused_by_name),
		T(own_id_is_refused_as_reflection),
		T(a_refusal_at_admission_is_heard),
		T(older_and_later_versions_are_refused_by_name),
		T(a_replayed_dial_is_refused),
		T(a_dial_raced_against_its_own_replay_gets_in_once),
		T(what_was_said_coming_back_is_refused),
		T(an_answer_of_another_node_is_refused),
		T(no_bit_may_be_changed),
		T(messages_out_of_order_are_malformed),
		T(malformed_dials_get_no_answer),
		T(every_refusal_has_a_name),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
