/* SPDX-License-Identifier: BSD-3-Clause */
// Narrowed pushes of single routes, receipts through any push of a route, and dead incarnations.
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

// --- retryable routes ---------------------------------------------------------------------------------

WORKER_ONLY static void retryable_routes_come_back_alone_after_a_pause(void **state)
{
	const uint16_t two[] = {1, 3};
	uint64_t then;

	fix_start(&fix);
	push(1, 1, 5, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, two, 2, NULL, 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACCEPTED], 3);
	assert_int_equal(fix_retry_all(&fix), 0);
	then = fix.now;
	until_something(UINT64_MAX - 1);
	assert_in_range(fix.now - then, 37 * NS_PER_MS, 64 * NS_PER_MS);
	assert_int_equal(delivery_next_ns(fix.d), 0);
	assert_int_equal(fix_retry_all(&fix), 2);
	assert_int_equal(fix_count(&fix, CTR_ROUTE_RETRIED), 2);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.slot[0], 8 + 1);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.slot[0], 8 + 3);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ended[1], 5);
	assert_int_equal(stats_of().inflight, 0);
	assert_int_equal(fake_port_outside(&fix.port), 0);
}

WORKER_ONLY static void retry_asks_whether_the_session_lives(void **state)
{
	const uint16_t all[] = {0, 1};

	fix_start(&fix);
	push(1, 1, 2, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, all, 2, NULL, 0);
	fix.closed[1][8] = true;
	until_something(UINT64_MAX - 1);
	assert_int_equal(fix_retry_all(&fix), 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_SESSION_GONE], 1);
}

WORKER_ONLY static void route_is_sent_no_more_often_than_allowed(void **state)
{
	const uint16_t first[] = {0};
	uint32_t sends = 1;

	fix_start(&fix);
	push(1, 1, 1, WIRE_ACK_GATEWAY);
	// One resend, then retries: together as many sends as attempts.
	until_something(UINT64_MAX - 1);
	assert_true(fix_take_sent(&fix, &sent));
	sends++;
	for (;;) {
		fix_ack(&fix, &sent, first, 1, NULL, 0);
		if (fix.ends != 0)
			break;
		until_something(UINT64_MAX - 1);
		assert_int_equal(fix_retry_all(&fix), 1);
		assert_true(fix_take_sent(&fix, &sent));
		sends++;
	}
	assert_int_equal(sends, fix.limits.attempts);
	assert_int_equal(fix.ends_by[CTR_ROUTE_RETRY_CAP], 1);
	fix_tick_to(&fix, fix.now + 2 * NS_PER_S);  // the pushes before look again in their time
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void retries_of_a_segmented_push_carry_the_payload(void **state)
{
	struct delivery_span span = {.message = 9,
		.count = 400,
		.ack = WIRE_ACK_GATEWAY,
		.attempt = 1,
		.deadline_ns = fix.now + 60 * NS_PER_S};
	const uint16_t some[] = {0, 39, 40, 255, 399};
	uint32_t slots[400];

	for (uint32_t k = 0; k < 400; k++)
		slots[k] = 500 + k;
	fix_start(&fix);
	fix_push(&fix, 1, &span, 1, slots, 41);  // parts that cut through entries
	assert_true(fix_take_sent(&fix, &sent));
	fix_ack(&fix, &sent, some, 5, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_int_equal(fix_retry_all(&fix), 5);
	for (uint32_t k = 0; k < 5; k++) {
		assert_true(fix_take_sent(&fix, &sent));
		assert_int_equal(sent.slot[0], 500u + some[k]);
		fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	}
	assert_int_equal(fix.ended[9], 400);
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void retries_that_find_no_buffer_end(void **state)
{
	const uint16_t all[] = {0, 1};
	struct delivery_retry retry;
	uint8_t entries[16];

	fix_start(&fix);
	push(1, 1, 2, WIRE_ACK_CLIENT);
	fix_ack(&fix, &sent, all, 2, NULL, 0);
	until_something(UINT64_MAX - 1);
	for (uint32_t k = 0; k < 2; k++) {
		assert_true(delivery_next_retry(fix.d, fix.now, &retry));
		assert_int_equal(retry.attempt, 2);
		assert_int_equal(retry.ack, WIRE_ACK_CLIENT);
		wire_put_route(entries + 8 * k, route_slot(retry.route), route_gen(retry.route));
	}
	fix_receipt(&fix, &sent, 0);  // acknowledged while it was on its way
	delivery_end_retries(fix.d, 1, 1, entries, CTR_ROUTE_NO_BUFFER, 2);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_NO_BUFFER], 1);
	assert_int_equal(fix.ended[1], 2);
	assert_int_equal(stats_of().inflight, 0);
}

// --- receipts over several pushes ---------------------------------------------------------------------

// A push of one client route, accepted, without receipt in time, pushed again.
WORKER_ONLY static void push_twice(struct fix_sent *old, struct fix_sent *new)
{
	fix_start(&fix);
	*old = push(1, 1, 1, WIRE_ACK_CLIENT);
	fix_ack(&fix, old, NULL, 0, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_int_equal(fix_retry_all(&fix), 1);
	assert_true(fix_take_sent(&fix, new));
	assert_int_equal(new->slot[0], old->slot[0]);
}

WORKER_ONLY static void missing_receipt_brings_the_route_back(void **state)
{
	const uint64_t then = fix.now;
	struct fix_sent old, new;

	push_twice(&old, &new);
	assert_in_range(fix.now - then, NS_PER_S, NS_PER_S + NS_PER_MS);
	fix_receipt(&fix, &new, 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 1);
	assert_int_equal(stats_of().inflight, 0);
	fix_receipt(&fix, &old, 0);
	assert_int_equal(fix.ends, 1);
	assert_int_equal(fix_count(&fix, CTR_RECEIPT_UNKNOWN), 1);
}

WORKER_ONLY static void receipt_through_the_old_push_ends_the_route_once(void **state)
{
	struct fix_sent old, new;

	push_twice(&old, &new);
	fix_receipt(&fix, &old, 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 1);
	fix_receipt(&fix, &new, 0);
	fix_ack(&fix, &new, NULL, 0, NULL, 0);
	fix_receipt(&fix, &new, 0);
	fix_receipt(&fix, &old, 0);
	fix_tick_to(&fix, fix.now + 10 * NS_PER_S);
	assert_int_equal(fix.ends, 1);
	assert_int_equal(stats_of().inflight, 0);
	assert_false(fix_take_sent(&fix, &sent));
}

WORKER_ONLY static void receipt_while_the_retry_waits_ends_it(void **state)
{
	struct fix_sent old;

	fix_start(&fix);
	old = push(1, 1, 2, WIRE_ACK_CLIENT);
	fix_ack(&fix, &old, NULL, 0, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_int_equal(stats_of().retries_due, 2);
	fix_receipt(&fix, &old, 0);
	assert_int_equal(stats_of().retries_due, 1);
	assert_int_equal(fix_retry_all(&fix), 1);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.slot[0], 9);
}

WORKER_ONLY static void push_whose_only_route_was_acknowledged_on_the_way_is_not_sent(void **state)
{
	struct delivery_retry retry;
	struct delivery_span span;
	struct fix_sent old;
	uint32_t slot;

	fix_start(&fix);
	old = push(1, 1, 1, WIRE_ACK_CLIENT);
	fix_ack(&fix, &old, NULL, 0, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_true(delivery_next_retry(fix.d, fix.now, &retry));
	fix_receipt(&fix, &old, 0);
	span = (struct delivery_span){.message = 1,
		.count = 1,
		.ack = retry.ack,
		.attempt = retry.attempt,
		.deadline_ns = retry.deadline_ns};
	slot = route_slot(retry.route);
	fix_push(&fix, 1, &span, 1, &slot, 1);
	assert_false(fix_take_sent(&fix, &sent));
	assert_int_equal(fix.ends, 1);
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void third_push_is_ended_by_any_of_the_three(void **state)
{
	for (uint32_t through = 0; through < 3; through++) {
		struct fix_sent three[3];

		fix_init(&fix);
		push_twice(&three[0], &three[1]);
		fix_ack(&fix, &three[1], NULL, 0, NULL, 0);
		until_something(UINT64_MAX - 1);
		assert_int_equal(fix_retry_all(&fix), 1);
		assert_true(fix_take_sent(&fix, &three[2]));
		fix_receipt(&fix, &three[through], 0);
		assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 1);
		for (uint32_t k = 0; k < 3; k++)
			fix_receipt(&fix, &three[k], 0);
		fix_tick_to(&fix, fix.now + 5 * NS_PER_S);
		assert_int_equal(fix.ends, 1);
		assert_int_equal(stats_of().inflight, 0);
		if (through < 2)
			fix_stop(&fix);
	}
}

WORKER_ONLY static void route_without_receipt_ends_at_the_cap(void **state)
{
	uint32_t sends = 1;

	fix_start(&fix);
	push(1, 1, 1, WIRE_ACK_CLIENT);
	while (fix.ends == 0) {
		fix_ack(&fix, &sent, NULL, 0, NULL, 0);
		until_something(UINT64_MAX - 1);
		if (fix_retry_all(&fix) == 1) {
			assert_true(fix_take_sent(&fix, &sent));
			sends++;
		}
	}
	assert_int_equal(sends, fix.limits.attempts);
	assert_int_equal(fix.ends_by[CTR_ROUTE_RETRY_CAP], 1);
	fix_tick_to(&fix, fix.now + 2 * NS_PER_S);
	assert_int_equal(stats_of().inflight, 0);
}

// --- incarnations -------------------------------------------------------------------------------------

WORKER_ONLY static void dead_gateway_ends_everything_in_bounded_steps(void **state)
{
	fix_start(&fix);
	for (uint32_t m = 100; m < 140; m++) {  // so that the records to find stand far behind
		push(2, m, 1, WIRE_ACK_GATEWAY);
		fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	}
	fix.ends = 0;
	for (uint32_t m = 0; m < 12; m++)
		fix_push_one(&fix, 1, m, 2, WIRE_ACK_CLIENT);  // 8 sent, 4 waiting
	fix_push_one(&fix, 2, 20, 2, WIRE_ACK_CLIENT);
	fix_tick_to(&fix, fix.now);
	atomic_store(&fix.gateway[1].alive, false);
	delivery_gateway_down(fix.d, 1);
	assert_int_equal(delivery_next_ns(fix.d), 0);
	assert_int_equal(fix.ends, 0);
	for (uint32_t k = 1; k <= 4; k++) {
		assert_int_equal(delivery_tick(fix.d, fix.now, 3), 3);
		assert_int_equal(fix.ends_by[CTR_ROUTE_GATEWAY_GONE], 6 * k);
	}
	fix_tick_to(&fix, fix.now);
	assert_int_equal(fix.ended[20], 0);
	assert_int_equal(stats_of().inflight, 1);
	assert_int_equal(stats_of().backlog, 0);
}

WORKER_ONLY static void death_nobody_told_of_is_found_by_the_timers(void **state)
{
	fix_start(&fix);
	for (uint32_t m = 0; m < 12; m++)
		fix_push_one(&fix, 1, m, 2, WIRE_ACK_CLIENT);
	atomic_store(&fix.gateway[1].alive, false);
	fix_tick_to(&fix, fix.now + 100 * NS_PER_MS);
	assert_int_equal(fix.ends_by[CTR_ROUTE_GATEWAY_GONE], 24);
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void next_incarnation_of_an_index_starts_afresh(void **state)
{
	struct fix_sent old;

	fix_start(&fix);
	old = push(1, 1, 2, WIRE_ACK_CLIENT);
	for (uint32_t m = 2; m < 12; m++)
		fix_push_one(&fix, 1, m, 2, WIRE_ACK_CLIENT);
	while (fix_take_sent(&fix, &sent))
		;
	fix_gateway_restart(&fix, 1);
	fix_push_one(&fix, 1, 40, 2, WIRE_ACK_GATEWAY);  // has a window of its own
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.message[0], 40);
	fix_receipt(&fix, &old, 0);  // of the incarnation before, whatever it says
	assert_int_equal(fix_count(&fix, CTR_RECEIPT_UNKNOWN), 1);
	fix_tick_to(&fix, fix.now);
	assert_int_equal(fix.ends_by[CTR_ROUTE_GATEWAY_GONE], 22);
	assert_int_equal(fix.ended[40], 0);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ended_how[40], CTR_ROUTE_ACCEPTED);
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void retries_of_a_dead_gateway_end_as_gone(void **state)
{
	const uint16_t all[] = {0, 1};
	struct fix_sent old, new;

	push_twice(&old, &new);
	fix_ack(&fix, &new, NULL, 0, NULL, 0);
	push(1, 5, 2, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, all, 2, NULL, 0);
	until_something(UINT64_MAX - 1);
	atomic_store(&fix.gateway[1].alive, false);
	assert_int_equal(fix_retry_all(&fix), 0);
	fix_tick_to(&fix, fix.now);
	assert_int_equal(fix.ended[1], 1);
	assert_int_equal(fix.ended[5], 2);
	assert_int_equal(fix.ends_by[CTR_ROUTE_GATEWAY_GONE], 3);
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void gateway_that_dies_between_retry_and_push(void **state)
{
	const uint16_t all[] = {0};
	struct delivery_retry retry;
	struct delivery_span span;
	uint32_t slot;

	fix_start(&fix);
	push(1, 5, 1, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, all, 1, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_true(delivery_next_retry(fix.d, fix.now, &retry));
	atomic_store(&fix.gateway[1].alive, false);
	span = (struct delivery_span){.message = 5,
		.count = 1,
		.ack = retry.ack,
		.attempt = retry.attempt,
		.deadline_ns = retry.deadline_ns};
	slot = route_slot(retry.route);
	fix_push(&fix, 1, &span, 1, &slot, 1);
	fix_tick_to(&fix, fix.now);
	assert_int_equal(fix.ends, 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_GATEWAY_GONE], 1);
	assert_int_equal(stats_of().inflight, 0);
}

WORKER_ONLY static void retry_of_an_incarnation_is_not_pushed_to_the_next(void **state)
{
	const uint16_t all[] = {0};
	struct delivery_retry retry;
	struct delivery_span span;
	uint32_t slot;

	fix_start(&fix);
	push(1, 5, 1, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, all, 1, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_true(delivery_next_retry(fix.d, fix.now, &retry));
	fix_gateway_restart(&fix, 1);
	span = (struct delivery_span){.message = 5,
		.count = 1,
		.ack = retry.ack,
		.attempt = retry.attempt,
		.deadline_ns = retry.deadline_ns};
	slot = route_slot(retry.route);
	fix_push(&fix, 1, &span, 1, &slot, 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_GATEWAY_GONE], 1);
	assert_false(fix_take_sent(&fix, &sent));
}

WORKER_ONLY static void route_that_ended_elsewhere_is_not_handed_out(void **state)
{
	const uint16_t all[] = {0};
	struct fix_sent old, new;

	push_twice(&old, &new);
	fix_ack(&fix, &new, all, 1, NULL, 0);
	until_something(UINT64_MAX - 1);
	assert_int_equal(stats_of().retries_due, 1);
	fix_receipt(&fix, &old, 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 1);
	assert_int_equal(fix_retry_all(&fix), 0);
	assert_int_equal(fix.ends, 1);
	assert_int_equal(stats_of().retries_due, 0);
	assert_int_equal(stats_of().inflight, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(retryable_routes_come_back_alone_after_a_pause),
		TEST(retry_asks_whether_the_session_lives),
		TEST(route_is_sent_no_more_often_than_allowed),
		TEST(retries_of_a_segmented_push_carry_the_payload),
		TEST(retries_that_find_no_buffer_end),
		TEST(missing_receipt_brings_the_route_back),
		TEST(receipt_through_the_old_push_ends_the_route_once),
		TEST(receipt_while_the_retry_waits_ends_it),
		TEST(push_whose_only_route_was_acknowledged_on_the_way_is_not_sent),
		TEST(third_push_is_ended_by_any_of_the_three),
		TEST(route_without_receipt_ends_at_the_cap),
		TEST(dead_gateway_ends_everything_in_bounded_steps),
		TEST(death_nobody_told_of_is_found_by_the_timers),
		TEST(next_incarnation_of_an_index_starts_afresh),
		TEST(retries_of_a_dead_gateway_end_as_gone),
		TEST(gateway_that_dies_between_retry_and_push),
		TEST(retry_of_an_incarnation_is_not_pushed_to_the_next),
		TEST(route_that_ended_elsewhere_is_not_handed_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
