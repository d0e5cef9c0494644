/* SPDX-License-Identifier: BSD-3-Clause */
// PUSH_ACK and RECEIPT: expected, repeated, old, future and malformed ones, and every outcome they give.
#include <string.h>

#include "delivery_fixture.h"

static struct fix fix;
static struct fix_sent sent;

WORKER_ONLY static int setup(void **state)
{
	fix_init(&fix);
	fix_start(&fix);
	return 0;
}

WORKER_ONLY static int teardown(void **state)
{
	fix_stop(&fix);
	return 0;
}

WORKER_ONLY static uint32_t inflight(void)
{
	struct delivery_stats stats;

	delivery_stats(fix.d, &stats);
	return stats.inflight;
}

WORKER_ONLY static struct fix_sent push(uint32_t message, uint32_t count, uint8_t ack)
{
	fix_push_one(&fix, 1, message, count, ack);
	assert_true(fix_take_sent(&fix, &sent));
	return sent;
}

WORKER_ONLY static void accepted_push_ends(void **state)
{
	push(1, 100, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ended[1], 100);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACCEPTED], 100);
	assert_int_equal(fix_count(&fix, CTR_PUSH_ACK), 1);
	assert_int_equal(inflight(), 0);
	assert_int_equal(fake_port_outside(&fix.port), 0);
	fix_tick_to(&fix, fix.now + 100 * NS_PER_MS);  // its timer finds nothing to do
	assert_int_equal(delivery_next_ns(fix.d), UINT64_MAX);
	assert_false(fix_take_sent(&fix, &sent));
}

WORKER_ONLY static void repeated_ack_is_counted_and_changes_nothing(void **state)
{
	const uint16_t first[] = {0};

	push(1, 4, WIRE_ACK_CLIENT);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	fix_ack(&fix, &sent, NULL, 0, first, 1);
	assert_int_equal(fix_count(&fix, CTR_PUSH_ACK_REPEATED), 1);
	assert_int_equal(fix.ends, 0);
	for (uint32_t p = 0; p < 4; p++)
		fix_receipt(&fix, &sent, p);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix_count(&fix, CTR_PUSH_ACK_UNKNOWN), 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 4);
}

WORKER_ONLY static void old_future_and_foreign_answers_are_unknown(void **state)
{
	const struct fix_sent good = push(1, 4, WIRE_ACK_CLIENT);
	struct fix_sent bad[8];

	for (uint32_t k = 0; k < 8; k++)
		bad[k] = good;
	bad[0].gen--;
	bad[1].gen++;
	bad[2].id++;  // a record that is free
	bad[3].id = 64;  // behind the table
	bad[4].id |= 1u << 31;  // of the other class
	bad[5].gateway = 2;  // not the one it was sent to
	bad[6].gateway = FIX_GATEWAYS + 1;
	bad[7].id = UINT32_MAX;
	for (uint32_t k = 0; k < 8; k++) {
		fix_ack(&fix, &bad[k], NULL, 0, NULL, 0);
		fix_receipt(&fix, &bad[k], 0);
		assert_int_equal(fix_count(&fix, CTR_PUSH_ACK_UNKNOWN), k + 1);
		assert_int_equal(fix_count(&fix, CTR_RECEIPT_UNKNOWN), k + 1);
	}
	assert_int_equal(fix.ends, 0);
	assert_int_equal(inflight(), 1);
}

WORKER_ONLY static void answer_to_an_ended_push_does_not_touch_the_next_one(void **state)
{
	const struct fix_sent old = push(1, 4, WIRE_ACK_GATEWAY);
	bool met = false;

	fix_ack(&fix, &old, NULL, 0, NULL, 0);
	for (uint32_t m = 2; m < 200; m++) {
		push(m, 4, WIRE_ACK_GATEWAY);
		met |= sent.id == old.id;
		fix_ack(&fix, &old, NULL, 0, NULL, 0);
		assert_int_equal(fix.ended[m], 0);
		fix_ack(&fix, &sent, NULL, 0, NULL, 0);
		assert_int_equal(fix.ended[m], 4);
	}
	assert_true(met);  // the same record, another number
}

WORKER_ONLY static void answer_to_a_push_in_the_backlog_is_unknown(void **state)
{
	for (uint32_t m = 0; m < 9; m++)
		fix_push_one(&fix, 1, m, 1, WIRE_ACK_GATEWAY);
	for (uint32_t id = 0; id < 64; id++) {
		struct fix_sent guess = {.gateway = 1, .id = id, .gen = 1, .routes = 1};

		if (id < 8)
			continue;
		fix_ack(&fix, &guess, NULL, 0, NULL, 0);
	}
	assert_int_equal(fix.ends, 0);
}

WORKER_ONLY static void lists_that_do_not_add_up_are_refused(void **state)
{
	const uint16_t descending[] = {2, 1}, twice[] = {1, 1}, outside[] = {4}, one[] = {1};
	struct wire_push_ack ack = {0};

	push(1, 4, WIRE_ACK_GATEWAY);
	fix_ack(&fix, &sent, descending, 2, NULL, 0);
	fix_ack(&fix, &sent, NULL, 0, twice, 2);
	fix_ack(&fix, &sent, outside, 1, NULL, 0);
	fix_ack(&fix, &sent, one, 1, one, 1);  // in both lists
	ack.push_id = sent.id;
	ack.push_gen = sent.gen;
	ack.accepted = 3;
	delivery_on_ack(fix.d, 1, &ack, fix.now);
	ack.accepted = 5;
	delivery_on_ack(fix.d, 1, &ack, fix.now);
	ack.accepted = 3;
	ack.dropped = 1;  // without its position
	delivery_on_ack(fix.d, 1, &ack, fix.now);
	assert_int_equal(fix_count(&fix, CTR_PUSH_ACK_BAD), 7);
	assert_int_equal(fix.ends, 0);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ended[1], 4);
}

WORKER_ONLY static void each_class_ends_in_its_own_way(void **state)
{
	struct delivery_span span[3];
	const uint32_t slots[] = {1, 2, 3, 4, 5, 6};
	const uint16_t dropped[] = {1, 3, 5};

	for (uint32_t s = 0; s < 3; s++)
		span[s] = (struct delivery_span){.message = s,
			.count = 2,
			.attempt = 1,
			.ack = (uint8_t)s,
			.deadline_ns = fix.now + NS_PER_S};
	fix_push(&fix, 1, span, 3, slots, 1);
	assert_int_equal(fix.ends, 0);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.need_ack, 1);
	fix_ack(&fix, &sent, NULL, 0, dropped, 3);
	assert_int_equal(fix.ends_by[CTR_ROUTE_DROPPED], 3);
	assert_int_equal(fix.ends_by[CTR_ROUTE_SENT], 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACCEPTED], 1);
	assert_int_equal(fix.ended[2], 1);
	fix_receipt(&fix, &sent, 4);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 1);
	assert_int_equal(fix.ends, 6);
	assert_int_equal(inflight(), 0);
}

WORKER_ONLY static void clean_ack_of_mixed_records_ends_each(void **state)
{
	struct delivery_span span[2];
	const uint32_t slots[] = {1, 2, 3};

	for (uint32_t s = 0; s < 2; s++)
		span[s] = (struct delivery_span){.message = s,
			.count = (uint16_t)(s + 1),
			.attempt = 1,
			.ack = (uint8_t)s,
			.deadline_ns = fix.now + NS_PER_S};
	fix_push(&fix, 1, span, 2, slots, 1);
	assert_true(fix_take_sent(&fix, &sent));
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ended_how[0], CTR_ROUTE_SENT);
	assert_int_equal(fix.ended[1], 2);
	assert_int_equal(fix.ended_how[1], CTR_ROUTE_ACCEPTED);
	assert_int_equal(inflight(), 0);
}

WORKER_ONLY static void receipts_may_come_before_the_ack(void **state)
{
	const uint16_t both[] = {0, 1};

	push(1, 4, WIRE_ACK_CLIENT);
	fix_receipt(&fix, &sent, 0);
	fix_receipt(&fix, &sent, 1);
	fix_receipt(&fix, &sent, 1);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 2);
	// What the gateway says of them now comes too late.
	fix_ack(&fix, &sent, both, 1, both + 1, 1);
	assert_int_equal(fix.ends, 2);
	fix_receipt(&fix, &sent, 3);
	fix_receipt(&fix, &sent, 2);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 4);
	assert_int_equal(inflight(), 0);
}

WORKER_ONLY static void last_receipt_before_the_ack_ends_the_push_and_opens_the_window(void **state)
{
	struct fix_sent first = {0};

	for (uint32_t m = 0; m < 9; m++) {
		fix_push_one(&fix, 1, m, 1, WIRE_ACK_CLIENT);
		if (fix_take_sent(&fix, &sent) && m == 0)
			first = sent;
	}
	fix_receipt(&fix, &first, 0);
	fix_tick_to(&fix, fix.now);
	assert_true(fix_take_sent(&fix, &sent));
	assert_int_equal(sent.message[0], 8);
	fix_ack(&fix, &first, NULL, 0, NULL, 0);
	assert_int_equal(fix_count(&fix, CTR_PUSH_ACK_UNKNOWN), 1);
}

WORKER_ONLY static void receipt_bits_outside_the_push_are_refused(void **state)
{
	const uint8_t low = 1 << 4, zero_and_bit[] = {0, 1}, good = 0x0f;
	struct wire_receipt receipt = {0};

	push(1, 4, WIRE_ACK_CLIENT);
	receipt.push_id = sent.id;
	receipt.push_gen = sent.gen;
	receipt.bits = (struct wire_view){.p = &low, .len = 1};
	delivery_on_receipt(fix.d, 1, &receipt, fix.now);
	receipt.bits = (struct wire_view){.p = zero_and_bit, .len = 2};
	delivery_on_receipt(fix.d, 1, &receipt, fix.now);
	receipt.bits = (struct wire_view){.p = &good, .len = 1};
	receipt.first = 4088;
	delivery_on_receipt(fix.d, 1, &receipt, fix.now);
	receipt.first = 1;
	delivery_on_receipt(fix.d, 1, &receipt, fix.now);
	assert_int_equal(fix_count(&fix, CTR_RECEIPT_UNKNOWN), 4);
	assert_int_equal(fix.ends, 0);
	receipt.first = 0;
	delivery_on_receipt(fix.d, 1, &receipt, fix.now);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], 4);
}

WORKER_ONLY static void receipt_of_a_route_that_asked_for_none_is_ignored(void **state)
{
	push(1, 4, WIRE_ACK_GATEWAY);
	fix_receipt(&fix, &sent, 2);
	assert_int_equal(fix.ends, 0);
	fix_ack(&fix, &sent, NULL, 0, NULL, 0);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACCEPTED], 4);
}

WORKER_ONLY static void large_push_is_acknowledged_by_position(void **state)
{
	struct delivery_span span = {.message = 9,
		.count = FRAME_ROUTES_MAX,
		.ack = WIRE_ACK_CLIENT,
		.attempt = 1,
		.deadline_ns = fix.now + NS_PER_S};
	static uint32_t slots[FRAME_ROUTES_MAX];
	static uint16_t dropped[FRAME_ROUTES_MAX / 2];

	for (uint32_t k = 0; k < FRAME_ROUTES_MAX; k++)
		slots[k] = k;
	for (uint16_t k = 0; k < FRAME_ROUTES_MAX / 2; k++)
		dropped[k] = (uint16_t)(2 * k);
	fix_push(&fix, 1, &span, 1, slots, 100);
	assert_true(fix_take_sent(&fix, &sent));
	fix_ack(&fix, &sent, NULL, 0, dropped, FRAME_ROUTES_MAX / 2);
	assert_int_equal(fix.ends_by[CTR_ROUTE_DROPPED], FRAME_ROUTES_MAX / 2);
	for (uint32_t p = 0; p < FRAME_ROUTES_MAX; p++)
		fix_receipt(&fix, &sent, p);
	assert_int_equal(fix.ends_by[CTR_ROUTE_ACKED], FRAME_ROUTES_MAX / 2);
	assert_int_equal(inflight(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(accepted_push_ends),
		TEST(repeated_ack_is_counted_and_changes_nothing),
		TEST(old_future_and_foreign_answers_are_unknown),
		TEST(answer_to_an_ended_push_does_not_touch_the_next_one),
		TEST(answer_to_a_push_in_the_backlog_is_unknown),
		TEST(lists_that_do_not_add_up_are_refused),
		TEST(each_class_ends_in_its_own_way),
		TEST(clean_ack_of_mixed_records_ends_each),
		TEST(receipts_may_come_before_the_ack),
		TEST(last_receipt_before_the_ack_ends_the_push_and_opens_the_window),
		TEST(receipt_bits_outside_the_push_are_refused),
		TEST(receipt_of_a_route_that_asked_for_none_is_ignored),
		TEST(large_push_is_acknowledged_by_position),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
