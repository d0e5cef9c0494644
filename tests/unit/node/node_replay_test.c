/* SPDX-License-Identifier: BSD-3-Clause */
// Random interleavings of mutations, pages, deltas, feed breaks and source faults. Whenever a tag is
// usable, it has exactly the members the store had at that version; and in the end every channel gets one.
#include "control_world.h"

#include <errno.h>

enum { CHANNELS = 3, UIDS = 60, VERSIONS_MAX = 2000, SEEDS = 60, ROUNDS = 500 };

static const char *const channels[CHANNELS] = {"a", "b", "c"};
static char *history[CHANNELS][VERSIONS_MAX];  // members by version
static uint32_t seed;
static uint32_t checked;  // comparisons made

static uint32_t next_random(uint32_t below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

static const char *some_uids(uint32_t most)
{
	static char text[1024];
	size_t at = 0;

	for (uint32_t n = 1 + next_random(most); n != 0; n--)
		at += (size_t)sprintf(
			text + at, "%suser-%u", at == 0 ? "" : " ", next_random(UIDS));
	return text;
}

static void mutate(struct world *w)
{
	const uint32_t c = next_random(CHANNELS);
	const uint32_t dice = next_random(100);
	const uint8_t list = dice % 5 == 0 ? STORE_DENY : STORE_MEMBERS;
	struct store_result r;

	if (dice < 55)
		r = world_do(w, STORE_ADD, list, channels[c], some_uids(6));
	else if (dice < 92)
		r = world_do(w, STORE_REMOVE, list, channels[c], some_uids(6));
	else if (dice < 95)
		r = world_do(w, STORE_RESET, list, channels[c], some_uids(30));
	else if (dice < 97)
		r = world_do(w, STORE_CHANNEL_REMOVE, 0, channels[c], NULL);
	else
		r = world_do(w, STORE_ADD, STORE_ALLOW, channels[c], some_uids(2));
	if (r.code != STORE_R_OK)
		return;
	assert_true(r.smv < VERSIONS_MAX);
	free(history[c][r.smv]);
	history[c][r.smv] = strdup(world_stored(w, channels[c]));
}

static void mutate_sometimes(struct world *w)
{
	if (next_random(3) == 0)
		mutate(w);
}

CONTROL_ONLY static void check(struct world *w)
{
	for (uint32_t c = 0; c < CHANNELS; c++) {
		if (!world_usable(w, channels[c]))
			continue;
		assert_string_equal(world_members(w, channels[c]),
			history[c][world_channel(w, channels[c])->smv]);
		checked++;
	}
}

CONTROL_ONLY static void want_some(struct world *w)
{
	const char *chan = channels[next_random(CHANNELS)];

	if (world_channel(w, chan) != NULL)
		world_want(w, chan);
}

// Deltas not delivered are lost with the connection, or come after it is there again.
CONTROL_ONLY static void reconnect(struct world *w)
{
	const bool resync = next_random(2) == 0;

	node_control_feed_lost(w->node, w->now_ns);
	world_step(w, next_random(3));
	check(w);
	for (struct world_delta *d = w->delta, *next; resync && d != NULL; d = next) {
		next = d->next;
		free(d);
		w->delta = next;
	}
	assert_int_equal(world_welcome(w, resync), 0);
}

CONTROL_ONLY static void one_round(struct world *w)
{
	const uint32_t dice = next_random(100);

	if (dice < 30)
		mutate(w);
	else if (dice < 55)
		assert_int_equal(world_deliver(w, 1 + next_random(4)), 0);
	else if (dice < 70)
		want_some(w);
	else if (dice < 97)
		world_step(w, 1 + next_random(3));
	else if (dice < 98)
		w->page_rc = w->page_rc == 0 ? -EIO : 0;
	else if (dice < 99)
		reconnect(w);
	else
		w->now_ns += next_random(3) * SECOND;
	check(w);
}

CONTROL_ONLY static void end_well(struct world *w)
{
	w->on_page = NULL;
	w->page_rc = 0;
	assert_int_equal(world_deliver(w, UINT32_MAX), 0);
	world_step(w, 20);
	w->now_ns += 2 * SECOND;
	for (uint32_t c = 0; c < CHANNELS; c++) {
		if (world_channel(w, channels[c]) == NULL)
			continue;
		assert_non_null(world_tag(w, channels[c]));
		assert_string_equal(world_members(w, channels[c]), world_stored(w, channels[c]));
	}
	check(w);
}

CONTROL_ONLY static void a_usable_tag_has_the_members_of_its_version(void **state)
{
	(void)state;
	world_params.build_members_per_step = 7;
	world_params.tag_ttl_ns = 5 * SECOND;
	world_params.uids = 500;
	for (uint32_t run = 1; run <= SEEDS; run++) {
		struct world *w = world_open();

		seed = run;
		w->limits.journal_commits = 10;
		for (uint32_t i = 0; i < 20; i++)
			mutate(w);
		world_ready(w);
		w->on_page = mutate_sometimes;
		for (uint32_t round = 0; round < ROUNDS; round++)
			one_round(w);
		end_well(w);
		world_close(w);
		for (uint32_t c = 0; c < CHANNELS; c++)
			for (uint32_t v = 0; v < VERSIONS_MAX; v++) {
				free(history[c][v]);
				history[c][v] = NULL;
			}
	}
	// The test must have had something to look at.
	assert_true(checked > SEEDS * ROUNDS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_usable_tag_has_the_members_of_its_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
