/* SPDX-License-Identifier: BSD-3-Clause */
// Resends of unanswered pushes, their budget, give-ups at the cap and at the deadline.
#include <string.h>

#include "delivery_fixture.h"

static struct fix fix;
static struct fix_sent sent;

WORKER_ONLY static int setup(void **state)
{
	fix_init(&fix);
	return 0;
}

WORKER_ONLY static int teardown(void **state)
{
	fix_stop(&fix);
	return 0;
}

WORKER_ONLY static struct delivery_stats stats_of(void)
{
	struct delivery_stats stats;

	delivery_stats(fix.d, &stats);
	return stats;
}

WORKER_ONLY static struct fix_sent push(
	uint32_t gateway, uint32_t message, uint32_t count, uint8_t ack)
{
	fix_push_one(&fix, gateway, message, count, ack);
	assert_true(fix_take_sent(&fix, &sent));
	return sent;
}

// Sleeps and ticks as a worker would until a retry is due, a push is sent or nothing waits any more.
WORKER_ONLY static void until_something(uint64_t limit)
{
	const uint64_t ends = fix.ends, sends = fix.port.txs;

	while (fix.ends == ends && fix.port.txs == sends && stats_of().retries_due == 0) {
		const uint64_t next = delivery_next_ns(fix.d);

		assert_true(next <= limit);
		fix_tick_to(&fix, next > fix.now ? next : fix.now);
	}
}

// --- resends ------------------------------------------------------------------------------------------

WORKER_ONLY static void unanswered_push_is_resent_with_growing_intervals_then_given_up(void **state)
{
	uint64_t interval = 50 * NS_PER_MS, last;
	struct fix_sent first;

	fix.limits.attempts = 6;
	fix_start(&fix);
	last = fix.now;
	first = push(1, 1, 3, WIRE_ACK_GATEWAY);
	for (uint8_t k = 1; k < 6; k++) {
		until_something(UINT64_MAX - 1);
		assert_true(fix_take_sent(&fix, &sent));  // sealed anew, next sequence
		assert_int_equal(sent.id, first.id);
		assert_int_equal(sent.gen, first.gen);
		assert_int_equal(sent.attempt, k);
		assert_in_range(fix.now - last, interval * 3 / 4, interval * 5 / 4 + NS_PER_MS);
		last = fix.now;
		interval = interval * 2 > fix.limits.retry_max_ns ? fix.limits.retry_max_ns
								  : interval * 2;
	}
	assert_int_equal(fix_count(&fix, CTR_PUSH_RESENT), 5);
	until_something(UINT64_MAX - 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_RETRY_CAP], 3);
	assert_int_equal(stats_of().inflight, 0);
	assert_int_equal(delivery_next_ns(fix.d), UINT64_MAX);
}

WORKER_ONLY static void answered_push_is_not_resent(void **state)
{
	fix_start(&fix);
	push(1, 1, 3, WIRE_ACK_CLIENT);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	fix_tick_to(&fix, fix.now + 900 * NS_PER_MS);
	assert_false(fix_take_sent(&fix, &sent));
	assert_int_equal(fix_count(&fix, CTR_PUSH_RESENT), 0);
}

WORKER_ONLY static void timer_left_by_an_answered_push_does_not_shorten_the_next(void **state)
{
	uint64_t then;

	fix.limits.inflight = 16;
	fix.limits.inflight_large = 4;
	fix_start(&fix);
	for (uint32_t m = 0; m < 12; m++) {  // every record once
		push(1, m, 1, WIRE_ACK_GATEWAY);
		fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	}
	fix_tick_to(&fix, fix.now + 30 * NS_PER_MS);
	then = fix.now;
	push(1, 20, 1, WIRE_ACK_GATEWAY);
	until_something(UINT64_MAX - 1);
	assert_true(fix_take_sent(&fix, &sent));
	assert_in_range(fix.now - then, 37 * NS_PER_MS, 64 * NS_PER_MS);
}

WORKER_ONLY static void nothing_is_rewritten_while_the_port_has_it(void **state)
{
	fix_start(&fix);
	fix.port.keep_sent = true;
	push(1, 1, 3, WIRE_ACK_GATEWAY);
	fix_tick_to(&fix, fix.now + 300 * NS_PER_MS);
	assert_false(fix_take_sent(&fix, &sent));
	fake_port_complete(&fix.port);
	fix_tick_to(&fix, fix.now + 10 * NS_PER_MS);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.attempt, 1);
}

WORKER_ONLY static void resends_keep_to_their_budget(void **state)
{
	fix.limits.window = 1000;
	fix.limits.backlog = 1000;
	fix.limits.inflight = 600;
	fix.limits.resend_percent = 0;
	fix.limits.attempts = 255;
	fix_start(&fix);
	for (uint32_t m = 0; m < 400; m++)
		fix_push_one(&fix, 1 + m % FIX_GATEWAYS, m, 1, WIRE_ACK_GATEWAY);
	fix.port.record_sent = false;
	// One second's floor at once, then 64 a second.
	fix_tick_to(&fix, fix.now + 100 * NS_PER_MS);
	assert_in_range(fix_count(&fix, CTR_PUSH_RESENT), 60, 72);
	assert_true(fix_count(&fix, CTR_RESEND_BUDGET) > 0);
	for (uint32_t k = 0; k < 100; k++)
		fix_tick_to(&fix, fix.now + 50 * NS_PER_MS);
	assert_in_range(fix_count(&fix, CTR_PUSH_RESENT), 350, 64 + 64 * 5 + 20);
}

WORKER_ONLY static void budget_grows_with_the_pushes(void **state)
{
	fix.limits.window = 1000;
	fix.limits.inflight = 600;
	fix.limits.resend_percent = 50;
	fix.limits.attempts = 2;
	fix_start(&fix);
	fix.port.record_sent = false;
	for (uint32_t m = 0; m < 400; m++)
		fix_push_one(&fix, 1 + m % FIX_GATEWAYS, m, 1, WIRE_ACK_GATEWAY);
	// The first that runs out of time doubles the wait of the others.
	fix_tick_to(&fix, fix.now + 70 * NS_PER_MS);
	assert_in_range(fix_count(&fix, CTR_PUSH_RESENT), 1, FIX_GATEWAYS);
	fix_tick_to(&fix, fix.now + 60 * NS_PER_MS);
	assert_in_range(fix_count(&fix, CTR_PUSH_RESENT), 64 + 190, 64 + 210);
}

WORKER_ONLY static void segmented_push_is_resent_whole(void **state)
{
	struct delivery_span span = {.message = 9,
		.count = 300,
		.ack = WIRE_ACK_GATEWAY,
		.attempt = 1,
		.deadline_ns = fix.now + 60 * NS_PER_S};
	struct fix_sent first;
	uint32_t slots[300];

	for (uint32_t k = 0; k < 300; k++)
		slots[k] = k;
	fix_start(&fix);
	fix_push(&fix, 1, &span, 1, slots, 37);
	assert_true(fix_take_sent(&fix, &first));
	until_something(UINT64_MAX - 1);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.frames, 37);
	assert_int_equal(sent.id, first.id);
	assert_int_equal(sent.attempt, 0);  // a receiver that holds a part must get the same again
	assert_int_equal(first.segment_attempt, 0);
	assert_int_equal(sent.segment_attempt, 1);  // each segment says it
	assert_int_equal(fix_count(&fix, CTR_PUSH_RESENT), 1);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ended[9], 300);
}

// --- deadlines ----------------------------------------------------------------------------------------

WORKER_ONLY static void deadline_of_one_record_leaves_the_others(void **state)
{
	struct delivery_span span[2];
	const uint32_t slots[] = {1, 2, 3};

	fix_start(&fix);
	for (uint32_t s = 0; s < 2; s++)
		span[s] = (struct delivery_span){.message = s,
			.count = (uint16_t)(s + 1),
			.attempt = 1,
			.ack = WIRE_ACK_GATEWAY,
			.deadline_ns = fix.now + (s + 1) * 20 * NS_PER_MS};
	fix_push(&fix, 1, span, 2, slots, 1);
	assert_true(fix_take_sent(&fix, &sent));
	fix_tick_to(&fix, fix.now + 21 * NS_PER_MS);
	assert_int_equal(fix.ended[0], 1);
	assert_int_equal(fix.ended[1], 0);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ended[0], 1);
	assert_int_equal(fix.ended[1], 2);
	assert_int_equal(fix.ended_how[1], CTR_ROUTE_ACCEPTED);
}

WORKER_ONLY static void deadline_ends_what_waits_for_a_window(void **state)
{
	fix.limits.window = 1;
	fix_start(&fix);
	push(1, 1, 3, WIRE_ACK_CLIENT);
	fix_push_one(&fix, 1, 2, 3, WIRE_ACK_CLIENT);
	fix_push_one(&fix, 1, 3, 3, WIRE_ACK_NONE);
	fix.limits.attempts = 255;
	fix_tick_to(&fix, fix.now + 61 * NS_PER_S);
	assert_int_equal(fix.ends, 9);
	assert_int_equal(
		fix.ended_how[3] == CTR_ROUTE_DEADLINE || fix.ended_how[3] == CTR_ROUTE_SENT, 1);
	assert_int_equal(stats_of().backlog, 0);
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void deadline_passed_in_the_retry_queue(void **state)
{
	const uint16_t all[] = {0, 1, 2};

	fix_start(&fix);
	push(1, 1, 3, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, all, 3, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_int_equal(stats_of().retries_due, 3);
	fix.now += 60 * NS_PER_S;
	assert_int_equal(fix_retry_all(&fix), 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_DEADLINE], 3);
	assert_int_equal(stats_of().retries_due, 0);
}

// --- slow gateways ------------------------------------------------------------------------------------

// Answers `count` pushes of gateway 1, one after the other, each `ns` after it was sent.
WORKER_ONLY static void answer_after(uint32_t first, uint32_t count, uint64_t ns)
{
	for (uint32_t m = first; m < first + count; m++) {
		const struct fix_sent mine = push(1, m, 1, WIRE_ACK_GATEWAY);

		fix_tick_to(&fix, fix.now + ns);
		fix_ack(&fix, &mine, NULL, 0, NULL, 0);
		while (fix_take_sent(&fix, &sent))
			;
	}
}

WORKER_ONLY static void gateway_slower_than_the_timeout_is_soon_not_repeated_to(void **state)
{
	uint64_t resent;

	fix_start(&fix);
	answer_after(1, 4, 150 * NS_PER_MS);
	resent = fix_count(&fix, CTR_PUSH_RESENT);
	assert_in_range(resent, 1, 8);
	answer_after(10, 50, 150 * NS_PER_MS);
	assert_int_equal(fix_count(&fix, CTR_PUSH_RESENT), resent);
	assert_in_range(delivery_srtt_us(fix.d, 1, 1), 149000, 151000);
}

WORKER_ONLY static void slow_gateway_leaves_the_others_their_timeout(void **state)
{
	uint64_t then;

	fix_start(&fix);
	answer_after(1, 20, 150 * NS_PER_MS);
	then = fix.now;
	push(2, 30, 1, WIRE_ACK_GATEWAY);
	until_something(UINT64_MAX - 1);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.gateway, 2);
	assert_in_range(fix.now - then, 37 * NS_PER_MS, 64 * NS_PER_MS);
}

WORKER_ONLY static void answers_to_repeated_pushes_are_not_measured(void **state)
{
	fix_start(&fix);
	push(1, 1, 1, WIRE_ACK_GATEWAY);
	until_something(UINT64_MAX - 1);
	assert_true(fix_take_sent(&fix, &sent));
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix_count(&fix, CTR_PUSH_ACK), 1);
	assert_int_equal(delivery_srtt_us(fix.d, 1, 1), 0);
}

WORKER_ONLY static void pushes_on_their_way_wait_as_long_as_the_answers_that_came_say(void **state)
{
	struct fix_sent first;

	fix_start(&fix);
	first = push(1, 1, 1, WIRE_ACK_GATEWAY);
	for (uint32_t m = 2; m < 8; m++)
		push(1, m, 1, WIRE_ACK_GATEWAY);
	fix.now += 36 * NS_PER_MS;  // before any resend
	fix_ack(&fix, &first, NULL, 0, NULL, 0);
	fix_tick_to(&fix, fix.now + 40 * NS_PER_MS);
	assert_int_equal(fix_count(&fix, CTR_PUSH_RESENT), 0);
	fix_tick_to(&fix, fix.now + 100 * NS_PER_MS);
	assert_true(fix_count(&fix, CTR_PUSH_RESENT) > 0);
}

WORKER_ONLY static void next_incarnation_starts_with_the_configured_timeout(void **state)
{
	uint64_t then;

	fix_start(&fix);
	answer_after(1, 20, 300 * NS_PER_MS);
	fix_gateway_restart(&fix, 1);
	assert_int_equal(delivery_srtt_us(fix.d, 1, 2), 0);
	then = fix.now;
	push(1, 30, 1, WIRE_ACK_GATEWAY);
	until_something(UINT64_MAX - 1);
	assert_true(fix_take_sent(&fix, &sent));
	assert_in_range(fix.now - then, 37 * NS_PER_MS, 64 * NS_PER_MS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unanswered_push_is_resent_with_growing_intervals_then_given_up),
		TEST(answered_push_is_not_resent),
		TEST(timer_left_by_an_answered_push_does_not_shorten_the_next),
		TEST(nothing_is_rewritten_while_the_port_has_it),
		TEST(resends_keep_to_their_budget),
		TEST(budget_grows_with_the_pushes),
		TEST(segmented_push_is_resent_whole),
		TEST(deadline_of_one_record_leaves_the_others),
		TEST(deadline_ends_what_waits_for_a_window),
		TEST(deadline_passed_in_the_retry_queue),
		TEST(gateway_slower_than_the_timeout_is_soon_not_repeated_to),
		TEST(slow_gateway_leaves_the_others_their_timeout),
		TEST(answers_to_repeated_pushes_are_not_measured),
		TEST(pushes_on_their_way_wait_as_long_as_the_answers_that_came_say),
		TEST(next_incarnation_starts_with_the_configured_timeout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
