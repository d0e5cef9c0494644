/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "tag_pull.h"

#define MS UINT64_C(1000000)

static const struct tag_pull_config config = {.window = 16,
	.retry_ns = 10 * MS,
	.retry_max_ns = 80 * MS,
	.silent_max = 5,
	.restarts_max = 4};
static const struct tag_fence fence_a = {.key = {1}, .version = 900};
static const struct tag_fence fence_b = {.key = {2}, .version = 3};
static const struct tag_fence nothing;

static struct wire_tag_part part_of(
	uint64_t request, const struct tag_fence *fence, uint32_t index, uint32_t count)
{
	struct wire_tag_part p = {.request_id = request,
		.tag_version = fence->version,
		.index = index,
		.count = count};

	memcpy(p.tag_key, fence->key, sizeof(p.tag_key));
	return p;
}

static enum tag_pull_event give(struct tag_pull *p, uint64_t request, const struct tag_fence *fence,
	uint32_t index, uint32_t count)
{
	const struct wire_tag_part part = part_of(request, fence, index, count);

	return tag_pull_part(p, &part, 0);
}

static struct wire_tag_get ask(struct tag_pull *p, uint64_t now_ns)
{
	struct wire_tag_get get = {.request_id = 0};

	assert_int_equal(tag_pull_due(p, &config, now_ns), TAG_PULL_ASK);
	tag_pull_ask(p, &config, now_ns, &get);
	assert_int_not_equal(get.want, 0);
	return get;
}

static void a_pull_asks_for_a_window_and_goes_on_as_chunks_come(void **state)
{
	struct tag_pull *p = malloc(sizeof(*p));
	struct wire_tag_get get;

	(void)state;
	tag_pull_begin(p, &config, 7, &fence_a, &nothing, 0);
	get = ask(p, 0);
	assert_int_equal(get.request_id, 7);
	assert_int_equal(get.first, 0);
	assert_int_equal(get.want, 0xffff);
	assert_int_equal(get.tag_version, 900);
	assert_int_equal(get.have_version, 0);
	assert_int_equal(get.flags, 0);
	assert_int_equal(tag_pull_due(p, &config, MS), TAG_PULL_WAIT);
	for (uint32_t i = 0; i < 7; i++) {
		assert_int_equal(give(p, 7, &fence_a, i, 40), TAG_PULL_TAKEN);
		assert_int_equal(tag_pull_due(p, &config, MS), TAG_PULL_WAIT);
	}
	assert_int_equal(give(p, 7, &fence_a, 7, 40), TAG_PULL_TAKEN);
	get = ask(p, MS);
	assert_int_equal(get.first, 16);
	assert_int_equal(get.want, 0xff);
	assert_int_equal(get.body_version, 900);
	free(p);
}

static void a_body_of_one_chunk_ends_at_once(void **state)
{
	struct tag_pull *p = malloc(sizeof(*p));

	(void)state;
	tag_pull_begin(p, &config, 7, &nothing, &nothing, 0);
	ask(p, 0);
	assert_int_equal(give(p, 7, &fence_b, 0, 1), TAG_PULL_COMPLETE);
	assert_int_equal(p->body.version, 3);
	tag_pull_end(p);
	assert_int_equal(give(p, 7, &fence_b, 0, 1), TAG_PULL_LATE);
	assert_int_equal(tag_pull_due(p, &config, 1000 * MS), TAG_PULL_WAIT);
	free(p);
}

static void repeated_and_late_chunks_count_for_nothing(void **state)
{
	struct tag_pull *p = malloc(sizeof(*p));

	(void)state;
	tag_pull_begin(p, &config, 7, &fence_a, &nothing, 0);
	ask(p, 0);
	assert_int_equal(give(p, 6, &fence_a, 0, 2), TAG_PULL_LATE);
	assert_int_equal(give(p, 8, &fence_a, 0, 2), TAG_PULL_LATE);
	assert_int_equal(give(p, 7, &fence_a, 1, 2), TAG_PULL_TAKEN);
	assert_int_equal(give(p, 7, &fence_a, 1, 2), TAG_PULL_REPEATED);
	assert_int_equal(give(p, 7, &fence_a, 0, 2), TAG_PULL_COMPLETE);
	free(p);
}

static void a_chunk_of_another_body_ends_the_attempt(void **state)
{
	static const struct tag_fence later = {.key = {1}, .version = 901};
	struct tag_pull *p = malloc(sizeof(*p));
	struct wire_tag_part part;

	(void)state;
	tag_pull_begin(p, &config, 7, &fence_a, &nothing, 0);
	ask(p, 0);
	assert_int_equal(give(p, 7, &fence_a, 0, 3), TAG_PULL_TAKEN);
	assert_int_equal(give(p, 7, &later, 1, 3), TAG_PULL_RESTART);
	assert_true(tag_pull_restart(p, &config, 8, 0));
	assert_int_equal(ask(p, 0).flags & WIRE_TAG_GET_PIN, 0);
	assert_int_equal(give(p, 7, &fence_a, 1, 3), TAG_PULL_LATE);  // the attempt before
	assert_int_equal(give(p, 8, &later, 0, 3), TAG_PULL_TAKEN);
	assert_int_equal(give(p, 8, &fence_b, 1, 3), TAG_PULL_RESTART);
	assert_true(tag_pull_restart(p, &config, 9, 0));
	assert_int_equal(ask(p, 0).flags & WIRE_TAG_GET_PIN, WIRE_TAG_GET_PIN);
	assert_int_equal(give(p, 9, &later, 0, 3), TAG_PULL_TAKEN);
	assert_int_equal(give(p, 9, &later, 1, 4), TAG_PULL_RESTART);  // another cut
	assert_true(tag_pull_restart(p, &config, 10, 0));
	ask(p, 0);
	part = part_of(10, &later, 0, 1);
	part.base_version = 3;  // a delta nobody asked for
	assert_int_equal(tag_pull_part(p, &part, 0), TAG_PULL_RESTART);
	assert_true(tag_pull_restart(p, &config, 11, 0));
	assert_false(tag_pull_restart(p, &config, 12, 0));
	assert_int_equal(p->request_id, 0);
	free(p);
}

static void an_older_version_than_wanted_is_not_taken(void **state)
{
	static const struct tag_fence older = {.key = {1}, .version = 899};
	struct tag_pull *p = malloc(sizeof(*p));

	(void)state;
	tag_pull_begin(p, &config, 7, &fence_a, &nothing, 0);
	ask(p, 0);
	assert_int_equal(give(p, 7, &older, 0, 1), TAG_PULL_RESTART);
	assert_true(tag_pull_restart(p, &config, 8, 0));
	assert_int_equal(
		give(p, 8, &fence_b, 0, 1), TAG_PULL_COMPLETE);  // the leader decides on keys
	free(p);
}

static void a_delta_is_taken_on_what_is_there_only(void **state)
{
	static const struct tag_fence have = {.key = {1}, .version = 890};
	struct tag_pull *p = malloc(sizeof(*p));
	struct wire_tag_part part = part_of(7, &fence_a, 0, 1);
	struct wire_tag_get get;

	(void)state;
	tag_pull_begin(p, &config, 7, &fence_a, &have, 0);
	get = ask(p, 0);
	assert_int_equal(get.flags, WIRE_TAG_GET_DELTA);
	assert_int_equal(get.have_version, 890);
	part.base_version = 889;
	assert_int_equal(tag_pull_part(p, &part, 0), TAG_PULL_RESTART);
	part.base_version = 890;
	assert_int_equal(tag_pull_part(p, &part, 0), TAG_PULL_COMPLETE);
	assert_int_equal(p->base, 890);
	free(p);
}

static void silence_is_met_with_backoff_and_then_given_up(void **state)
{
	static const uint64_t waits[] = {10, 20, 40, 80, 80};
	struct tag_pull *p = malloc(sizeof(*p));
	uint64_t now = 0;

	(void)state;
	tag_pull_begin(p, &config, 7, &fence_a, &nothing, 0);
	ask(p, 0);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(tag_pull_due(p, &config, now + waits[i] * MS - 1), TAG_PULL_WAIT);
		now += waits[i] * MS;
		assert_int_equal(tag_pull_next_ns(p), now);
		assert_int_equal(ask(p, now).first, 0);
	}
	assert_int_equal(tag_pull_due(p, &config, now + 80 * MS), TAG_PULL_GIVE_UP);
	free(p);
}

static void gaps_are_asked_for_again_one_after_the_other(void **state)
{
	enum { COUNT = 300 };
	static bool lost[COUNT];
	struct tag_pull *p = malloc(sizeof(*p));
	uint32_t rounds = 0;
	uint64_t now = 0;

	(void)state;
	tag_pull_begin(p, &config, 7, &fence_a, &nothing, 0);
	// Each tenth chunk is lost the first time.
	for (; p->got_count < COUNT && rounds < 200; rounds++) {
		struct wire_tag_get get = {.request_id = 0};

		if (tag_pull_due(p, &config, now) == TAG_PULL_WAIT)
			now = tag_pull_next_ns(p);
		assert_int_equal(tag_pull_due(p, &config, now), TAG_PULL_ASK);
		tag_pull_ask(p, &config, now, &get);
		for (uint32_t i = 0; i < 64; i++) {
			const uint32_t index = get.first + i;
			const struct wire_tag_part part = part_of(7, &fence_a, index, COUNT);

			if ((get.want >> i & 1) == 0 || index >= COUNT)
				continue;
			if (index % 10 == 3 && !lost[index])
				lost[index] = true;
			else
				tag_pull_part(p, &part, now);
		}
	}
	assert_int_equal(p->got_count, COUNT);
	assert_in_range(now, 1, 400 * MS);
	free(p);
}

// Any loss, repetition and order: in the end each chunk was taken once, and never more than a window is asked.
static void every_chunk_is_taken_once_over_any_network(void **state)
{
	enum { HOLD = 64 };
	struct tag_pull *p = malloc(sizeof(*p));

	(void)state;
	for (uint64_t run = 1; run <= 200; run++) {
		const uint32_t count = 1 + (uint32_t)(run * 37 % 600);
		static uint8_t taken[600];
		uint32_t held[HOLD], holds = 0;
		uint64_t seed = run, now = 0;
		bool done = false;

		memset(taken, 0, sizeof(taken));
		tag_pull_begin(p, &config, run, &fence_a, &nothing, now);
		for (uint32_t step = 0; step < 20000 && !done; step++) {
			struct wire_tag_get get = {.request_id = 0};

			now += MS / 4;
			if (tag_pull_due(p, &config, now) == TAG_PULL_ASK) {
				tag_pull_ask(p, &config, now, &get);
				assert_in_range(__builtin_popcountll(get.want), 1, config.window);
			}
			for (uint32_t i = 0; i < 64; i++)
				if ((get.want >> i & 1) != 0 && get.first + i < count &&
					unit_random(&seed) % 8 != 0 && holds < HOLD)
					held[holds++] = get.first + i;
			for (uint32_t n = (uint32_t)(unit_random(&seed) % 8); n > 0 && holds > 0;
				n--) {
				const uint32_t at = (uint32_t)(unit_random(&seed) % holds);
				const struct wire_tag_part part =
					part_of(run, &fence_a, held[at], count);
				const enum tag_pull_event e = tag_pull_part(p, &part, now);

				if (e == TAG_PULL_TAKEN || e == TAG_PULL_COMPLETE)
					taken[held[at]]++;
				done = done || e == TAG_PULL_COMPLETE;
				if (unit_random(&seed) % 4 != 0)
					held[at] = held[--holds];
			}
		}
		assert_true(done);
		for (uint32_t i = 0; i < count; i++)
			assert_int_equal(taken[i], 1);
	}
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pull_asks_for_a_window_and_goes_on_as_chunks_come),
		cmocka_unit_test(a_body_of_one_chunk_ends_at_once),
		cmocka_unit_test(repeated_and_late_chunks_count_for_nothing),
		cmocka_unit_test(a_chunk_of_another_body_ends_the_attempt),
		cmocka_unit_test(an_older_version_than_wanted_is_not_taken),
		cmocka_unit_test(a_delta_is_taken_on_what_is_there_only),
		cmocka_unit_test(silence_is_met_with_backoff_and_then_given_up),
		cmocka_unit_test(gaps_are_asked_for_again_one_after_the_other),
		cmocka_unit_test(every_chunk_is_taken_once_over_any_network),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
