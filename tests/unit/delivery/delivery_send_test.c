/* SPDX-License-Identifier: BSD-3-Clause */
// First sends: what goes on the wire, windows, backlogs, and pushes that cannot be taken.
#include <string.h>

#include "delivery_fixture.h"

static struct fix fix;
static struct fix_sent sent;

WORKER_ONLY static int setup(void **state)
{
	fix_init(&fix);
	return 0;
}

WORKER_ONLY static struct delivery_stats stats_of(void)
{
	struct delivery_stats stats;

	delivery_stats(fix.d, &stats);
	return stats;
}

WORKER_ONLY static void limits_out_of_range_are_refused(void **state)
{
	static const struct delivery_io io;
	struct delivery_limits l = fix.limits;

	l.inflight = 15;
	assert_null(delivery_create(&l, &io));
	l.inflight = (1u << 20) + 1;
	assert_null(delivery_create(&l, &io));
	l = fix.limits;
	l.inflight_large = 3;
	assert_null(delivery_create(&l, &io));
	l.inflight_large = l.inflight;
	assert_null(delivery_create(&l, &io));
	l = fix.limits;
	l.attempts = 0;
	assert_null(delivery_create(&l, &io));
	l = fix.limits;
	l.window = 0;
	assert_null(delivery_create(&l, &io));
	l = fix.limits;
	l.gateways = GATEWAYS_MAX;
	assert_null(delivery_create(&l, &io));
	l = fix.limits;
	l.retry_max_ns = l.push_timeout_ns - 1;
	assert_null(delivery_create(&l, &io));
}

WORKER_ONLY static void push_is_sealed_addressed_and_numbered(void **state)
{
	fix_start(&fix);
	fix_push_one(&fix, 2, 5, 3, WIRE_ACK_GATEWAY);
	fix_push_one(&fix, 3, 6, 1, WIRE_ACK_GATEWAY);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.gateway, 2);
	assert_int_equal(sent.need_ack, 1);
	assert_int_equal(sent.attempt, 0);
	assert_int_equal(sent.routes, 3);
	assert_int_equal(sent.message[2], 5);
	assert_int_equal(sent.slot[2], 42);
	assert_int_not_equal(sent.gen, 0);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.gateway, 3);
	assert_int_equal(fix_count(&fix, CTR_PUSH), 2);
	assert_int_equal(fix.ends, 0);
	assert_int_equal(stats_of().inflight, 2);
	fix_stop(&fix);
}

WORKER_ONLY static void push_of_ack_none_keeps_nothing(void **state)
{
	fix_start(&fix);
	fix_push_one(&fix, 1, 5, 3, WIRE_ACK_NONE);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.need_ack, 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_SENT], 3);
	assert_int_equal(fix_count(&fix, CTR_ROUTE_SENT), 3);
	assert_int_equal(stats_of().inflight, 0);
	assert_int_equal(fake_port_outside(&fix.port), 0);
	assert_int_equal(delivery_next_ns(fix.d), UINT64_MAX);
	fix_stop(&fix);
}

WORKER_ONLY static void segmented_push_is_one_push(void **state)
{
	struct delivery_span span = {.message = 9,
		.count = 400,
		.ack = WIRE_ACK_GATEWAY,
		.attempt = 1,
		.deadline_ns = fix.now + NS_PER_S};
	uint32_t slots[400];

	for (uint32_t k = 0; k < 400; k++)
		slots[k] = 1000 + k;
	fix_start(&fix);
	fix_push(&fix, 1, &span, 1, slots, 40);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.frames, 40);
	assert_int_equal(sent.routes, 400);
	assert_int_equal(sent.slot[399], 1399);
	assert_int_equal(sent.need_ack, 1);
	assert_int_equal(fix_count(&fix, CTR_PUSH), 1);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACCEPTED], 400);
	assert_int_equal(fake_port_outside(&fix.port), 0);
	fix_stop(&fix);
}

WORKER_ONLY static void full_window_waits_in_order_and_goes_on_after_an_ack(void **state)
{
	struct fix_sent first;

	fix.limits.window = 2;
	fix_start(&fix);
	for (uint32_t m = 0; m < 5; m++)
		fix_push_one(&fix, 1, m, 1, WIRE_ACK_GATEWAY);
	fix_push_one(&fix, 2, 7, 1, WIRE_ACK_GATEWAY);
	assert_int_equal(stats_of().backlog, 3);
	assert_true(fix_take_sent(&fix, &first));
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.message[0], 1);
	assert_true(fix_take_sent(&fix, &sent));  // another gateway's window is its own
	assert_int_equal(sent.gateway, 2);
	assert_false(fix_take_sent(&fix, &sent));

	fix_ack(&fix, &first, NULL, 0, NULL, 0);
	assert_int_equal(delivery_next_ns(fix.d), 0);
	fix_tick_to(&fix, fix.now);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.message[0], 2);
	assert_false(fix_take_sent(&fix, &sent));
	assert_int_equal(stats_of().backlog, 2);
	fix_stop(&fix);
}

WORKER_ONLY static void nothing_overtakes_the_backlog(void **state)
{
	struct fix_sent first;

	fix.limits.window = 1;
	fix_start(&fix);
	fix_push_one(&fix, 1, 0, 1, WIRE_ACK_GATEWAY);
	fix_push_one(&fix, 1, 1, 1, WIRE_ACK_GATEWAY);
	fix_push_one(&fix, 1, 2, 2, WIRE_ACK_NONE);
	fix_push_one(&fix, 1, 3, 1, WIRE_ACK_GATEWAY);
	assert_int_equal(fix.ends, 0);
	assert_true(fix_take_sent(&fix, &first));
	fix_ack(&fix, &first, NULL, 0, NULL, 0);
	fix_push_one(&fix, 1, 4, 1, WIRE_ACK_NONE);  // the window is open, the backlog is not gone
	assert_false(fix_take_sent(&fix, &sent));
	fix_tick_to(&fix, fix.now);
	assert_true(fix_take_sent(&fix, &first));
	assert_int_equal(first.message[0], 1);
	assert_false(fix_take_sent(&fix, &sent));
	fix_ack(&fix, &first, NULL, 0, NULL, 0);
	fix_tick_to(&fix, fix.now);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.message[0], 2);
	assert_int_equal(sent.need_ack, 0);
	assert_int_equal(fix.ended_how[2], CTR_ROUTE_SENT);
	assert_true(fix_take_sent(&fix, &first));
	assert_int_equal(first.message[0], 3);
	fix_ack(&fix, &first, NULL, 0, NULL, 0);
	fix_tick_to(&fix, fix.now);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.message[0], 4);
	assert_int_equal(stats_of().inflight, 0);
	fix_stop(&fix);
}

WORKER_ONLY static void full_backlog_ends_the_newest(void **state)
{
	fix.limits.window = 1;
	fix.limits.backlog = 2;
	fix_start(&fix);
	for (uint32_t m = 0; m < 4; m++)
		fix_push_one(&fix, 1, m, 2, WIRE_ACK_CLIENT);
	assert_int_equal(fix.ended[3], 2);
	assert_int_equal(fix.ended_how[3], CTR_ROUTE_OVERFLOW);
	assert_int_equal(fix.ends, 2);
	assert_int_equal(fix_count(&fix, CTR_LIMIT_BACKLOG), 1);
	assert_int_equal(stats_of().backlog_most, 2);
	fix_stop(&fix);
}

WORKER_ONLY static void used_up_records_end_the_newest(void **state)
{
	fix.limits.inflight = 16;
	fix.limits.inflight_large = 4;
	fix.limits.window = 1000;
	fix_start(&fix);
	for (uint32_t m = 0; m < 16; m++)
		fix_push_one(&fix, 1 + m % FIX_GATEWAYS, m, 1, WIRE_ACK_GATEWAY);
	assert_int_equal(fix.ends_by[CTR_ROUTE_OVERFLOW], 4);
	assert_int_equal(stats_of().inflight, 12);
	assert_int_equal(stats_of().inflight_max, 12);
	fix_stop(&fix);
}

WORKER_ONLY static void one_gateway_leaves_records_for_the_others(void **state)
{
	fix.limits.inflight = 20;
	fix.limits.inflight_large = 4;
	fix.limits.window = 1000;
	fix_start(&fix);
	for (uint32_t m = 0; m < 30; m++)
		fix_push_one(&fix, 1, m, 1, WIRE_ACK_GATEWAY);
	assert_int_equal(stats_of().inflight, 13);
	fix_push_one(&fix, 2, 40, 1, WIRE_ACK_GATEWAY);
	assert_int_equal(stats_of().inflight, 14);
	assert_int_equal(fix.ended[40], 0);
	fix_stop(&fix);
}

WORKER_ONLY static void many_spans_are_kept_and_used_up_spans_end_the_newest(void **state)
{
	struct delivery_span span[DELIVERY_SPANS_MAX];
	uint32_t slots[DELIVERY_SPANS_MAX];
	uint32_t kept = 0;

	fix.limits.inflight = 64;
	fix.limits.inflight_large = 4;
	fix.limits.window = 1000;
	fix_start(&fix);
	// 64 * 2 blocks of 10 spans; a push of 24 takes 3 of them beside its own first.
	for (uint32_t m = 0; m < 60; m++) {
		for (uint32_t s = 0; s < DELIVERY_SPANS_MAX; s++) {
			slots[s] = s;
			span[s] = (struct delivery_span){.message = m,
				.count = 1,
				.attempt = 1,
				.ack = WIRE_ACK_GATEWAY,
				.deadline_ns = fix.now + NS_PER_S};
		}
		fix_push(&fix, 1 + m % FIX_GATEWAYS, span, 24, slots, 1);
		kept += fix.ended[m] == 0;
	}
	assert_int_equal(kept, 64 * 2 / 3);
	assert_int_equal(fix.ends_by[CTR_ROUTE_OVERFLOW], 24 * (60 - kept));
	while (fix_take_sent(&fix, &sent))
		fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ends, 24 * 60);
	fix_push(&fix, 1, span, 24, slots, 1);
	assert_int_equal(stats_of().inflight, 1);
	fix_stop(&fix);
}

WORKER_ONLY static void dead_gateway_ends_the_push_at_once(void **state)
{
	fix_start(&fix);
	atomic_store(&fix.gateway[1].alive, false);
	fix_push_one(&fix, 1, 5, 3, WIRE_ACK_NONE);
	fix_push_one(&fix, 1, 6, 3, WIRE_ACK_GATEWAY);
	assert_int_equal(fix.ends_by[CTR_ROUTE_GATEWAY_GONE], 6);
	assert_false(fix_take_sent(&fix, &sent));
	fix_stop(&fix);
}

WORKER_ONLY static void routes_that_could_not_be_pushed_are_counted(void **state)
{
	fix_start(&fix);
	delivery_end(fix.d, 12, CTR_ROUTE_NO_BUFFER, 9);
	assert_int_equal(fix.ended[12], 9);
	assert_int_equal(fix_count(&fix, CTR_ROUTE_NO_BUFFER), 9);
	fix_stop(&fix);
}

WORKER_ONLY static void destroy_frees_what_is_held(void **state)
{
	fix.limits.window = 1;
	fix_start(&fix);
	fix_push_one(&fix, 1, 1, 3, WIRE_ACK_CLIENT);
	fix_push_one(&fix, 1, 2, 3, WIRE_ACK_CLIENT);
	assert_int_equal(fake_port_outside(&fix.port), 2);
	fix_stop(&fix);
	assert_int_equal(fix.ends, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(limits_out_of_range_are_refused, setup),
		cmocka_unit_test_setup(push_is_sealed_addressed_and_numbered, setup),
		cmocka_unit_test_setup(push_of_ack_none_keeps_nothing, setup),
		cmocka_unit_test_setup(segmented_push_is_one_push, setup),
		cmocka_unit_test_setup(full_window_waits_in_order_and_goes_on_after_an_ack, setup),
		cmocka_unit_test_setup(nothing_overtakes_the_backlog, setup),
		cmocka_unit_test_setup(full_backlog_ends_the_newest, setup),
		cmocka_unit_test_setup(used_up_records_end_the_newest, setup),
		cmocka_unit_test_setup(one_gateway_leaves_records_for_the_others, setup),
		cmocka_unit_test_setup(many_spans_are_kept_and_used_up_spans_end_the_newest, setup),
		cmocka_unit_test_setup(dead_gateway_ends_the_push_at_once, setup),
		cmocka_unit_test_setup(routes_that_could_not_be_pushed_are_counted, setup),
		cmocka_unit_test_setup(destroy_frees_what_is_held, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
