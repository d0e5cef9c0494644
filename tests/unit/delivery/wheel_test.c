/* SPDX-License-Identifier: BSD-3-Clause */
// The timer wheel: when timers fire, what a long sleep costs, what steps bound, and a model.
#include "wheel.h"

#include <string.h>

#include "base_time.h"
#include "unit.h"

#define TICK (UINT64_C(1) << WHEEL_TICK_SHIFT)
#define NODES 512u

static struct wheel wheel;
static struct wheel_node node[NODES];

static void start(uint64_t now)
{
	for (uint32_t i = 0; i < NODES; i++)
		wheel_node_init(&node[i]);
	wheel_init(&wheel, node, sizeof(node[0]), now);
}

static uint32_t pop(uint64_t now)
{
	uint32_t steps = UINT32_MAX;

	return wheel_pop(&wheel, now, &steps);
}

static void timer_fires_once_and_not_before_its_time(void **state)
{
	for (uint64_t after = 1; after < 200 * NS_PER_S; after = after * 3 + 1) {
		const uint64_t base = 123 * NS_PER_S + after;

		start(base);
		wheel_add(&wheel, 7, base + after);
		assert_int_equal(pop(base + after - 1), WHEEL_NONE);
		assert_int_equal(pop(base + after + TICK), 7);
		assert_false(wheel_armed(&node[7]));
		assert_int_equal(pop(UINT64_MAX), WHEEL_NONE);
		assert_int_equal(wheel.armed, 0);
	}
}

static void past_and_present_are_due_at_once(void **state)
{
	const uint64_t now = 50 * NS_PER_S / TICK * TICK;

	start(now);
	wheel_add(&wheel, 1, 0);
	wheel_add(&wheel, 2, now);
	assert_true(wheel_next_ns(&wheel) <= now);
	assert_int_not_equal(pop(now), WHEEL_NONE);
	assert_int_not_equal(pop(now), WHEEL_NONE);
	assert_int_equal(pop(now), WHEEL_NONE);
}

static void cancelled_timer_is_silent_and_may_be_armed_again(void **state)
{
	start(0);
	for (uint32_t i = 0; i < 5; i++)
		wheel_add(&wheel, i, 10 * NS_PER_MS);
	wheel_cancel(&wheel, 4);  // first of its slot
	wheel_cancel(&wheel, 2);  // in the middle
	wheel_cancel(&wheel, 0);  // last
	wheel_cancel(&wheel, 0);  // again: nothing
	assert_int_equal(wheel.armed, 2);
	wheel_add(&wheel, 2, 5 * NS_PER_MS);
	assert_int_equal(pop(6 * NS_PER_MS), 2);
	assert_int_equal(pop(20 * NS_PER_MS) + pop(20 * NS_PER_MS), 3 + 1);
	assert_int_equal(pop(20 * NS_PER_MS), WHEEL_NONE);
	assert_int_equal(wheel_next_ns(&wheel), UINT64_MAX);
}

static void long_sleep_takes_no_steps(void **state)
{
	uint32_t steps = 3;

	start(0);
	wheel_add(&wheel, 1, 40 * 86400 * NS_PER_S);
	assert_int_equal(wheel_pop(&wheel, 39 * 86400 * NS_PER_S, &steps), WHEEL_NONE);
	assert_in_range(steps, 2, 3);
	steps = 20;
	assert_int_equal(wheel_pop(&wheel, 41 * 86400 * NS_PER_S, &steps), 1);
	assert_true(steps >= 20 - WHEEL_LEVELS - 1);
}

static void farthest_time_is_taken(void **state)
{
	start(1);
	wheel_add(&wheel, 1, UINT64_MAX);
	wheel_add(&wheel, 2, UINT64_MAX - TICK);
	assert_true(wheel_next_ns(&wheel) > 1);
	assert_int_equal(pop(UINT64_MAX / 2), WHEEL_NONE);
	wheel_cancel(&wheel, 1);
	assert_int_equal(wheel.armed, 1);
}

static void steps_bound_the_work_and_nothing_is_lost(void **state)
{
	uint32_t fired = 0, rounds = 0;

	start(0);
	for (uint32_t i = 0; i < NODES; i++)
		wheel_add(&wheel, i, 30 * NS_PER_S + i * NS_PER_MS);
	while (fired < NODES) {
		uint32_t steps = 4;

		assert_true(wheel_next_ns(&wheel) <= 40 * NS_PER_S);
		while (wheel_pop(&wheel, 40 * NS_PER_S, &steps) != WHEEL_NONE)
			fired++;
		assert_true(rounds++ < NODES * WHEEL_LEVELS);
		// what comes in while a slot is being spread
		if (rounds == 3) {
			wheel_cancel(&wheel, 5);
			wheel_add(&wheel, 5, 31 * NS_PER_S);
		}
	}
	assert_int_equal(fired, NODES);
	assert_int_equal(wheel.armed, 0);
}

// Random adds, cancels and sleeps against an array of due times: nothing fires early, late, twice or never,
// and a sleeper that trusts wheel_next_ns misses nothing.
static void agrees_with_a_plain_array(void **state)
{
	static uint64_t due[NODES];
	uint64_t seed = 12345, now = 77 * NS_PER_S;

	memset(due, 0, sizeof(due));
	start(now);
	for (uint32_t round = 0; round < 40000; round++) {
		const uint32_t i = (uint32_t)(unit_random(&seed) % NODES);
		const uint64_t bits = unit_random(&seed) % 40;
		uint64_t next, least = UINT64_MAX;
		uint32_t fired;

		if (due[i] != 0) {
			wheel_cancel(&wheel, i);
			due[i] = 0;
		}
		if (unit_random(&seed) % 8 != 0) {
			due[i] = now + (unit_random(&seed) & ((UINT64_C(1) << bits) - 1));
			wheel_add(&wheel, i, due[i]);
		}
		for (uint32_t k = 0; k < NODES; k++) {
			if (due[k] != 0 && due[k] < least)
				least = due[k];
		}
		next = wheel_next_ns(&wheel);
		assert_true(least == UINT64_MAX ? next == UINT64_MAX : next <= least + TICK);
		if (unit_random(&seed) % 4 == 0 && next != UINT64_MAX && next > now)
			now = next;
		else
			now += unit_random(&seed) % (NS_PER_S / 2);
		while ((fired = pop(now)) != WHEEL_NONE) {
			assert_true(due[fired] != 0 && due[fired] <= now);
			due[fired] = 0;
		}
		for (uint32_t k = 0; k < NODES; k++)
			assert_true(due[k] == 0 || due[k] + TICK > now);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timer_fires_once_and_not_before_its_time),
		cmocka_unit_test(past_and_present_are_due_at_once),
		cmocka_unit_test(cancelled_timer_is_silent_and_may_be_armed_again),
		cmocka_unit_test(long_sleep_takes_no_steps),
		cmocka_unit_test(farthest_time_is_taken),
		cmocka_unit_test(steps_bound_the_work_and_nothing_is_lost),
		cmocka_unit_test(agrees_with_a_plain_array),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
