/* SPDX-License-Identifier: BSD-3-Clause */
// The estimate of a gateway's round trip and the wait made of it.
#include "rtt.h"

#include "base_time.h"
#include "unit.h"

#define FLOOR (50 * NS_PER_MS)
#define CEILING (2 * NS_PER_S)

static struct rtt rtt;
static uint64_t now;

static int setup(void **state)
{
	rtt_init(&rtt, FLOOR);
	now = 1000 * NS_PER_S;
	return 0;
}

// One sample in a round of its own.
static void sample(uint64_t ns)
{
	now += rtt_smoothed_ns(&rtt) + 1;
	rtt_sample(&rtt, ns, now, FLOOR, CEILING);
}

static void first_sample_sets_mean_and_half_of_it_as_deviation(void **state)
{
	sample(100 * NS_PER_MS);
	assert_int_equal(rtt_smoothed_ns(&rtt), 100 * NS_PER_MS);
	assert_int_equal(rtt.wait_ns, 300 * NS_PER_MS);  // SRTT + 4 x RTTVAR
}

static void second_sample_moves_by_an_eighth_and_a_quarter(void **state)
{
	sample(100 * NS_PER_MS);
	sample(180 * NS_PER_MS);
	assert_int_equal(rtt_smoothed_ns(&rtt), 110 * NS_PER_MS);
	// RTTVAR = 3/4 x 50 + 1/4 x 80
	assert_int_equal(rtt.wait_ns, 110 * NS_PER_MS + 4 * 57500 * NS_PER_US);
}

static void steady_gateway_ends_at_one_and_a_half_round_trips(void **state)
{
	for (int i = 0; i < 200; i++)
		sample(200 * NS_PER_MS);
	assert_int_equal(rtt_smoothed_ns(&rtt) / NS_PER_MS, 200);
	assert_in_range(rtt.wait_ns, 300 * NS_PER_MS, 301 * NS_PER_MS);
}

static void quick_gateway_waits_the_configured_time(void **state)
{
	for (int i = 0; i < 100; i++)
		sample(80 * NS_PER_US);
	assert_int_equal(rtt.wait_ns, FLOOR);
}

static void slowest_of_a_round_counts_and_quick_ones_do_not_wipe_it_out(void **state)
{
	uint64_t wait;

	for (int i = 0; i < 20; i++)
		sample(300 * NS_PER_MS);
	wait = rtt.wait_ns;
	for (int i = 0; i < 1000; i++)  // one burst, within one round trip
		rtt_sample(&rtt, NS_PER_MS, now + 1, FLOOR, CEILING);
	assert_int_equal(rtt.wait_ns, wait);
	rtt_sample(&rtt, 290 * NS_PER_MS, now + 2, FLOOR, CEILING);
	sample(NS_PER_MS);
	assert_in_range(rtt_smoothed_ns(&rtt), 295 * NS_PER_MS, 300 * NS_PER_MS);
}

static void sample_beyond_the_wait_counts_at_once(void **state)
{
	sample(10 * NS_PER_MS);
	assert_int_equal(rtt.wait_ns, FLOOR);
	rtt_sample(&rtt, 400 * NS_PER_MS, now, FLOOR, CEILING);
	assert_true(rtt.wait_ns > 400 * NS_PER_MS);
}

static void missed_pushes_double_the_wait_once_a_moment_up_to_the_ceiling(void **state)
{
	const uint64_t sent = now;

	now += FLOOR;
	for (int i = 0; i < 256; i++)
		rtt_missed(&rtt, sent + (uint64_t)i, now, FLOOR, CEILING);
	assert_int_equal(rtt.wait_ns, 2 * FLOOR);
	for (int i = 0; i < 70; i++) {
		now += rtt.wait_ns;
		rtt_missed(&rtt, now - rtt.wait_ns, now, FLOOR, CEILING);
	}
	assert_int_equal(rtt.wait_ns, CEILING);
}

static void measured_push_ends_the_doubling(void **state)
{
	for (int i = 0; i < 4; i++) {
		now += rtt.wait_ns;
		rtt_missed(&rtt, now - rtt.wait_ns, now, FLOOR, CEILING);
	}
	assert_int_equal(rtt.wait_ns, 16 * FLOOR);
	sample(NS_PER_MS);
	assert_int_equal(rtt.wait_ns, FLOOR);
}

static void extremes_stay_within_floor_and_ceiling(void **state)
{
	static const uint64_t samples[] = {0, 1, UINT64_MAX, 1, 0, RTT_SAMPLE_MAX_NS, UINT64_MAX};

	for (int round = 0; round < 100; round++) {
		for (unsigned i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
			sample(samples[i]);
			assert_in_range(rtt.wait_ns, FLOOR, CEILING);
			assert_in_range(rtt_smoothed_ns(&rtt), 0, RTT_SAMPLE_MAX_NS);
		}
	}
	for (int i = 0; i < 400; i++)
		sample(0);
	assert_in_range(rtt_smoothed_ns(&rtt), 0, 1);
	assert_int_equal(rtt.wait_ns, FLOOR);
	rtt_missed(&rtt, UINT64_MAX, UINT64_MAX, FLOOR, UINT64_MAX);
	assert_int_equal(rtt.wait_ns, 2 * FLOOR);
	rtt.wait_ns = UINT64_MAX;
	rtt_missed(&rtt, UINT64_MAX, UINT64_MAX, FLOOR, UINT64_MAX);
	assert_int_equal(rtt.wait_ns, UINT64_MAX);
}

static void equal_floor_and_ceiling_fix_the_wait(void **state)
{
	rtt_sample(&rtt, 700 * NS_PER_MS, now, FLOOR, FLOOR);
	assert_int_equal(rtt.wait_ns, FLOOR);
	rtt_missed(&rtt, now, now, FLOOR, FLOOR);
	assert_int_equal(rtt.wait_ns, FLOOR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(first_sample_sets_mean_and_half_of_it_as_deviation, setup),
		cmocka_unit_test_setup(second_sample_moves_by_an_eighth_and_a_quarter, setup),
		cmocka_unit_test_setup(steady_gateway_ends_at_one_and_a_half_round_trips, setup),
		cmocka_unit_test_setup(quick_gateway_waits_the_configured_time, setup),
		cmocka_unit_test_setup(
			slowest_of_a_round_counts_and_quick_ones_do_not_wipe_it_out, setup),
		cmocka_unit_test_setup(sample_beyond_the_wait_counts_at_once, setup),
		cmocka_unit_test_setup(
			missed_pushes_double_the_wait_once_a_moment_up_to_the_ceiling, setup),
		cmocka_unit_test_setup(measured_push_ends_the_doubling, setup),
		cmocka_unit_test_setup(extremes_stay_within_floor_and_ceiling, setup),
		cmocka_unit_test_setup(equal_floor_and_ceiling_fix_the_wait, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
