/* SPDX-License-Identifier: BSD-3-Clause */
// Authentication, cookies and the replay window.
#include "wire_samples.h"

#include "wire_auth.h"
#include "wire_lane.h"

static struct wire_keys one_key(uint8_t id, uint8_t fill)
{
	struct wire_keys keys = {.count = 1, .send = 0, .id = {id}};

	memset(keys.key[0], fill, WIRE_KEY_BYTES);
	return keys;
}

// A sealed heartbeat to the receiver with boot id `boot`.
static uint32_t sealed(const struct wire_keys *keys, uint64_t boot, uint8_t p[SAMPLE_MAX])
{
	struct wire_lane lane = {.sender = 2, .boot = 3, .lane = 1, .keys = keys};
	struct wire_buf out = {.p = p + WIRE_HEADER_BYTES,
		.cap = wire_lane_body_room(&lane, SAMPLE_MAX),
		.ok = true};

	assert_true(sample_heartbeat(&out));
	return wire_lane_seal(&lane, WIRE_HEARTBEAT, p, out.len, boot);
}

static int opened(const struct wire_keys *keys, uint64_t boot, const uint8_t *p, uint32_t len)
{
	struct wire_header h;
	struct wire_view body;

	assert_int_equal(wire_get_header(p, len, &h, &body), 0);
	return wire_open(keys, p, len, &h, boot);
}

static void sealed_datagram_opens_with_its_key(void **state)
{
	const struct wire_keys keys = one_key(5, 0xaa);
	uint8_t p[SAMPLE_MAX];
	const uint32_t len = sealed(&keys, 77, p);

	assert_int_equal(len, WIRE_HEADER_BYTES + 32 + WIRE_TAG_BYTES);
	assert_int_equal(opened(&keys, 77, p, len), 0);
	(void)state;
}

static void tag_covers_every_bit_and_the_receiver(void **state)
{
	const struct wire_keys keys = one_key(5, 0xaa);
	uint8_t p[SAMPLE_MAX];
	const uint32_t len = sealed(&keys, 77, p);
	struct wire_header h;
	struct wire_view body;

	assert_int_equal(opened(&keys, 78, p, len), CTR_DROP_AUTH);
	assert_int_equal(opened(&keys, 0, p, len), CTR_DROP_AUTH);
	assert_int_equal(wire_get_header(p, len, &h, &body), 0);
	for (uint32_t bit = 0; bit < 8 * len; bit++) {
		p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(wire_open(&keys, p, len, &h, 77), CTR_DROP_AUTH);
		p[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	(void)state;
}

static void wrong_and_unknown_keys_are_told_apart(void **state)
{
	const struct wire_keys keys = one_key(5, 0xaa);
	const struct wire_keys wrong = one_key(5, 0xab);
	const struct wire_keys unknown = one_key(6, 0xaa);
	uint8_t p[SAMPLE_MAX];
	const uint32_t len = sealed(&keys, 77, p);

	assert_int_equal(opened(&wrong, 77, p, len), CTR_DROP_AUTH);
	assert_int_equal(opened(&unknown, 77, p, len), CTR_DROP_KEY);
	(void)state;
}

static void both_sides_must_agree_on_authentication(void **state)
{
	const struct wire_keys keys = one_key(5, 0xaa);
	const struct wire_keys off = {.count = 0};
	uint8_t p[SAMPLE_MAX];
	uint32_t len = sealed(&keys, 77, p);

	assert_int_equal(opened(&off, 77, p, len), CTR_DROP_AUTH);
	len = sealed(&off, 77, p);
	assert_int_equal(len, WIRE_HEADER_BYTES + 32);
	assert_int_equal(opened(&off, 77, p, len), 0);
	assert_int_equal(opened(&keys, 77, p, len), CTR_DROP_AUTH);
	(void)state;
}

static void keys_rotate_without_a_gap(void **state)
{
	const struct wire_keys old = one_key(1, 0x11);
	struct wire_keys both = {.count = 2, .send = 0, .id = {1, 2}};
	const struct wire_keys fresh = one_key(2, 0x22);
	uint8_t p[SAMPLE_MAX];
	uint32_t len;

	memset(both.key[0], 0x11, WIRE_KEY_BYTES);
	memset(both.key[1], 0x22, WIRE_KEY_BYTES);
	len = sealed(&both, 7, p);  // still sends with the old one
	assert_int_equal(opened(&old, 7, p, len), 0);
	both.send = 1;
	len = sealed(&both, 7, p);
	assert_int_equal(opened(&both, 7, p, len), 0);
	assert_int_equal(opened(&fresh, 7, p, len), 0);
	assert_int_equal(opened(&old, 7, p, len), CTR_DROP_KEY);
	len = sealed(&old, 7, p);
	assert_int_equal(opened(&both, 7, p, len), 0);
	(void)state;
}

static void resend_takes_a_new_sequence_and_tag(void **state)
{
	const struct wire_keys keys = one_key(5, 0xaa);
	struct wire_lane lane = {.sender = 2, .boot = 3, .lane = 1, .keys = &keys};
	uint8_t p[SAMPLE_MAX] = {0}, first[WIRE_TAG_BYTES];
	uint16_t len = wire_lane_seal(&lane, WIRE_BYE, p, 0, 7);

	memcpy(first, p + len - WIRE_TAG_BYTES, WIRE_TAG_BYTES);
	assert_int_equal(lane.seq, 1);
	len = wire_lane_seal(&lane, WIRE_BYE, p, 0, 7);
	assert_int_equal(lane.seq, 2);
	assert_memory_not_equal(first, p + len - WIRE_TAG_BYTES, WIRE_TAG_BYTES);
	assert_int_equal(opened(&keys, 7, p, len), 0);
	(void)state;
}

static void cookie_depends_on_everything_it_proves(void **state)
{
	uint8_t secret[16] = {1}, other[16] = {2};
	const struct net_addr a = {.ip = 0x0a000001, .port = 99};
	const uint64_t c = wire_cookie(secret, a, 1, 2);

	assert_int_not_equal(c, 0);
	assert_int_equal(c, wire_cookie(secret, a, 1, 2));
	assert_int_not_equal(c, wire_cookie(other, a, 1, 2));
	assert_int_not_equal(
		c, wire_cookie(secret, (struct net_addr){.ip = 0x0a000002, .port = 99}, 1, 2));
	assert_int_not_equal(
		c, wire_cookie(secret, (struct net_addr){.ip = 0x0a000001, .port = 98}, 1, 2));
	assert_int_not_equal(c, wire_cookie(secret, a, 2, 2));
	assert_int_not_equal(c, wire_cookie(secret, a, 1, 3));
	const struct net_addr b = {.ip = 7, .port = 8};
	const uint64_t h = wire_challenge(secret, a, 1, 2, 3, b, 4);

	assert_int_equal(h, wire_challenge(secret, a, 1, 2, 3, b, 4));
	assert_int_not_equal(h, c);
	assert_int_not_equal(h, wire_challenge(other, a, 1, 2, 3, b, 4));
	assert_int_not_equal(h, wire_challenge(secret, b, 1, 2, 3, b, 4));
	assert_int_not_equal(h, wire_challenge(secret, a, 9, 2, 3, b, 4));
	assert_int_not_equal(h, wire_challenge(secret, a, 1, 9, 3, b, 4));
	assert_int_not_equal(h, wire_challenge(secret, a, 1, 2, 9, b, 4));
	assert_int_not_equal(h, wire_challenge(secret, a, 1, 2, 3, a, 4));
	assert_int_not_equal(h, wire_challenge(secret, a, 1, 2, 3, b, 9));
	(void)state;
}

static void random_bytes_differ(void **state)
{
	uint8_t a[16], b[16];

	wire_random(a, sizeof(a));
	wire_random(b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	(void)state;
}

struct step {
	uint64_t seq;
	bool taken;
};

static void run_steps(const struct step *steps, size_t count)
{
	struct wire_replay window = {0};

	for (size_t i = 0; i < count; i++) {
		if (wire_replay_take(&window, steps[i].seq) != steps[i].taken)
			fail_msg("step %zu, sequence %llu", i, (unsigned long long)steps[i].seq);
	}
}

static void replay_window_takes_each_sequence_once(void **state)
{
	static const struct step steps[] = {
		{0, false},
		{1, true},
		{1, false},
		{3, true},
		{2, true},
		{2, false},
		{3, false},
		{1024, true},
		{1, false},
		{4, true},
		{1025, true},
		{1, false},
		{5, true},
		{1026, true},
		{2, false},
		{3000, true},
		{1977, true},
		{1976, false},
		{1977, false},
		{1026, false},
		{2999, true},
		{4023, true},
		{3000, false},
		{3001, true},
		{5047, true},
		{4023, false},
		{0, false},
	};

	run_steps(steps, sizeof(steps) / sizeof(steps[0]));
	(void)state;
}

static void replay_window_starts_anywhere_and_never_wraps(void **state)
{
	static const struct step steps[] = {
		{UINT64_MAX - 1, true},
		{UINT64_MAX - 1, false},
		{UINT64_MAX - 1024, true},
		{UINT64_MAX, true},
		{UINT64_MAX - 1024, false},
		{UINT64_MAX - 1025, false},
		{UINT64_MAX, false},
		{0, false},
		{1, false},
	};

	run_steps(steps, sizeof(steps) / sizeof(steps[0]));
	(void)state;
}

// Against the plain meaning: a sequence is taken when it is new and within 1024 of the highest.
static void replay_window_agrees_with_a_list_of_all(void **state)
{
	enum { SPACE = 8192 };
	static bool seen[SPACE];
	struct wire_replay window = {0};
	uint64_t top = 0, x = 12345;

	for (uint32_t i = 0; i < 40000; i++) {
		uint64_t seq;
		bool want;

		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		seq = top + (x >> 33) % 1500;
		seq = seq > 1200 ? seq - 1200 : 0;
		if (seq >= SPACE)
			break;
		want = seq != 0 && !seen[seq] && (seq > top || top - seq < WIRE_REPLAY_BITS);
		assert_int_equal(wire_replay_take(&window, seq), want);
		if (want)
			seen[seq] = true;
		if (want && seq > top)
			top = seq;
	}
	assert_true(top > 2000);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sealed_datagram_opens_with_its_key),
		cmocka_unit_test(tag_covers_every_bit_and_the_receiver),
		cmocka_unit_test(wrong_and_unknown_keys_are_told_apart),
		cmocka_unit_test(both_sides_must_agree_on_authentication),
		cmocka_unit_test(keys_rotate_without_a_gap),
		cmocka_unit_test(resend_takes_a_new_sequence_and_tag),
		cmocka_unit_test(cookie_depends_on_everything_it_proves),
		cmocka_unit_test(random_bytes_differ),
		cmocka_unit_test(replay_window_takes_each_sequence_once),
		cmocka_unit_test(replay_window_starts_anywhere_and_never_wraps),
		cmocka_unit_test(replay_window_agrees_with_a_list_of_all),
	};

	if (wire_auth_init() != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
