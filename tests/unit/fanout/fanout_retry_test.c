/* SPDX-License-Identifier: BSD-3-Clause */
#include "fanout_pvt.h"
#include "fanout_world.h"

static struct world w;

static void start(uint32_t members) WORKER_ONLY CONTROL_ONLY;
static void start(uint32_t members)
{
	world_start(&w);
	for (uint32_t g = 1; g <= 2; g++)
		world_gateway(&w, g, 1500);
	world_online(&w, "u", members, 2);
	world_tag(&w, world_channel(&w, "room"), "u", members);
}

// The gateway calls the first `n` positions of every push since `first` retryable.
static void answer_retryable(uint32_t first, uint16_t n) WORKER_ONLY;
static void answer_retryable(uint32_t first, uint16_t n)
{
	uint16_t position[FRAME_ROUTES_MAX];
	uint32_t last = 0;

	for (uint16_t i = 0; i < n; i++)
		position[i] = i;
	for (uint32_t i = first; i < w.arrived_count; i++) {
		const struct arrived a = w.arrived[i];
		const struct wire_push_ack ack = {
			.push_id = a.push_id,
			.push_gen = a.push_gen,
			.accepted = (uint16_t)(a.routes - n),
			.retryable = n,
			.positions = {.p = (const uint8_t *)position, .len = 2u * n},
		};

		if (a.datagram == last)
			continue;
		last = a.datagram;
		delivery_on_ack(w.delivery, a.gateway, &ack, w.now_ns);
	}
}

static void pass(uint64_t ns) WORKER_ONLY;
static void pass(uint64_t ns)
{
	const uint64_t end = w.now_ns + ns;

	for (; w.now_ns < end; w.now_ns += MS)
		world_turn(&w);
}

// Turns until `count` routes arrived in all; not before a push is resent for want of an answer.
static void until(uint32_t count) WORKER_ONLY;
static void until(uint32_t count)
{
	for (uint32_t i = 0; i < 500 && w.arrived_count < count; i++) {
		w.now_ns += MS;
		world_turn(&w);
	}
	assert_int_equal(w.arrived_count, count);
}

static void retryable_routes_come_again_late_and_narrowed(void **state) WORKER_ONLY CONTROL_ONLY;
static void retryable_routes_come_again_late_and_narrowed(void **state)
{
	world_defaults(&w);
	start(20);
	world_publish(&w, "room", 1, WIRE_ACK_GATEWAY, 100);
	world_turn(&w);
	assert_int_equal(w.arrived_count, 20);
	answer_retryable(0, 3);
	until(26);
	for (uint32_t i = 20; i < 26; i++) {
		const struct arrived *a = &w.arrived[i];

		assert_true(a->flags & WIRE_RECORD_LATE);
		assert_int_equal(a->message_id, 1);
		assert_int_equal(a->seq, 1);
		assert_int_equal(a->stamp, 2001);
		assert_int_equal(a->payload_len, 100);
		assert_int_equal(a->routes, 3);  // those of a gateway in one record
	}
	assert_int_equal(world_count(&w, CTR_ROUTES), 20);
	assert_int_equal(world_count(&w, CTR_ROUTE_RETRIED), 6);
	world_ack(&w, 20);
	assert_int_equal(world_count(&w, CTR_ROUTE_ACCEPTED), 20);
	world_check_sums(&w);
	world_end(&w);
}

static void retries_of_a_large_payload_come_in_few_frames(void **state) WORKER_ONLY CONTROL_ONLY;
static void retries_of_a_large_payload_come_in_few_frames(void **state)
{
	world_defaults(&w);
	start(1000);
	world_publish(&w, "room", 1, WIRE_ACK_GATEWAY, 20000);
	world_turns(&w, 3);
	assert_int_equal(w.arrived_count, 1000);
	answer_retryable(0, 300);
	until(1600);
	assert_int_equal(w.datagrams, 4);
	for (uint32_t i = 1000; i < 1600; i++) {
		assert_int_equal(w.arrived[i].payload_len, 20000);
		assert_true(w.arrived[i].flags & WIRE_RECORD_LATE);
	}
	world_ack(&w, 1000);
	world_check_sums(&w);
	world_end(&w);
}

static void retries_and_new_messages_share_a_push(void **state) WORKER_ONLY CONTROL_ONLY;
static void retries_and_new_messages_share_a_push(void **state)
{
	uint32_t sent;

	world_defaults(&w);
	start(2);
	world_publish(&w, "room", 1, WIRE_ACK_GATEWAY, 100);
	world_turn(&w);
	answer_retryable(0, 1);
	while (delivery_next_ns(w.delivery) > w.now_ns)
		w.now_ns += MS;
	delivery_tick(w.delivery, w.now_ns + MS, 512);
	w.now_ns += MS;
	world_publish(&w, "room", 2, WIRE_ACK_GATEWAY, 100);
	sent = w.port.sent_count;
	for (uint32_t i = 0; i < 300 && w.arrived_count < 6; i++) {
		world_turn(&w);
		w.now_ns += MS;
	}
	assert_int_equal(world_arrivals(&w, 1), 4);
	assert_int_equal(world_arrivals(&w, 2), 2);
	assert_true(w.port.sent_count - sent <= 4);
	world_ack(&w, 2);
	world_check_sums(&w);
	world_end(&w);
}

static void attempts_end_at_the_cap(void **state) WORKER_ONLY CONTROL_ONLY;
static void attempts_end_at_the_cap(void **state)
{
	uint32_t answered = 0;

	world_defaults(&w);
	start(4);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 100);
	for (uint32_t i = 0; i < 4000 && w.told_count == 0; i++) {
		world_turn(&w);
		answer_retryable(answered, 2);
		answered = w.arrived_count;
		w.now_ns += MS;
	}
	assert_int_equal(world_last_told(&w)->status, WIRE_INCOMPLETE);
	assert_int_equal(world_last_told(&w)->ended, 4);
	assert_int_equal(world_count(&w, CTR_ROUTE_RETRY_CAP), 4);
	assert_int_equal(w.arrived_count, 4 * w.delivery_limits.attempts);
	world_check_sums(&w);
	world_end(&w);
}

static void retries_wait_for_buffers(void **state) WORKER_ONLY CONTROL_ONLY;
static void retries_wait_for_buffers(void **state)
{
	struct dgram *taken[4096];
	uint16_t n = 0;

	world_defaults(&w);
	start(20);
	world_publish(&w, "room", 1, WIRE_ACK_GATEWAY, 100);
	world_turn(&w);
	answer_retryable(0, 10);
	w.port.ops->free(&w.port, w.fanout->spare, (uint16_t)w.fanout->spares);
	w.fanout->spares = 0;
	while (w.port.idle_count > w.limits.buffer_reserve)
		w.port.ops->alloc(&w.port, &taken[n++], 1);
	pass(300 * MS);
	assert_int_equal(w.arrived_count, 20);
	w.port.ops->free(&w.port, taken, n);
	until(40);
	assert_int_equal(world_count(&w, CTR_ROUTE_NO_BUFFER), 0);
	world_ack(&w, 20);
	world_check_sums(&w);
	world_end(&w);
}

static void large_retry_without_buffers_ends_and_leaks_nothing(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void large_retry_without_buffers_ends_and_leaks_nothing(void **state)
{
	struct dgram *taken[4096];
	uint16_t n = 0;

	world_defaults(&w);
	start(20);
	world_publish(&w, "room", 1, WIRE_ACK_CLIENT, 60000);
	world_turns(&w, 2);
	answer_retryable(0, 10);
	while (w.port.idle_count > w.limits.buffer_reserve + 8)
		w.port.ops->alloc(&w.port, &taken[n++], 1);
	pass(400 * MS);
	assert_int_equal(world_count(&w, CTR_ROUTE_NO_BUFFER), 20);
	assert_int_equal(world_last_told(&w)->status, WIRE_INCOMPLETE);
	w.port.ops->free(&w.port, taken, n);
	world_check_sums(&w);
	world_end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(retryable_routes_come_again_late_and_narrowed),
		cmocka_unit_test(retries_of_a_large_payload_come_in_few_frames),
		cmocka_unit_test(retries_and_new_messages_share_a_push),
		cmocka_unit_test(attempts_end_at_the_cap),
		cmocka_unit_test(retries_wait_for_buffers),
		cmocka_unit_test(large_retry_without_buffers_ends_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
