/* SPDX-License-Identifier: BSD-3-Clause */
// Pages, the channel walk and the journal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_bench.h"

static struct store_bench b;

static int setup(void **state)
{
	(void)state;
	store_bench_open(&b);
	return 0;
}
static int teardown(void **state)
{
	(void)state;
	store_bench_close(&b);
	return 0;
}

static int page_of(const char *chan, const char *after, uint32_t max, uint8_t *uids, uint32_t cap,
	struct store_page *page)
{
	const struct store_command name = store_bench_command(STORE_ADD, chan, NULL);
	struct store_tx tx;

	store_map_read(b.map, &tx);
	return store_read_page(&tx, &name.channel, STORE_MEMBERS,
		id_view_of(after, (uint8_t)strlen(after)), max, uids, cap, page);
}

static void pages_go_in_byte_order_and_resume_anywhere(void **state)
{
	uint8_t uids[300];
	struct store_page page;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "b aa a ab B");
	assert_string_equal(store_bench_list(&b, "g", STORE_MEMBERS), "B a aa ab b");
	assert_int_equal(page_of("g", "", 2, uids, sizeof(uids), &page), 0);
	assert_true(page.count == 2 && !page.last && page.bytes_used == 4);
	assert_memory_equal(uids, "\1B\1a", 4);
	assert_true(page.next_len == 1 && page.next[0] == 'a');
	assert_true(page.commit == 1 && page.smv == 1 && page.generation == 1);
	// From a UID that is no member.
	assert_int_equal(page_of("g", "aaa", 9, uids, sizeof(uids), &page), 0);
	assert_true(page.count == 2 && page.last);
	assert_memory_equal(uids, "\2ab\1b", 5);
	assert_int_equal(page_of("g", "b", 9, uids, sizeof(uids), &page), 0);
	assert_true(page.count == 0 && page.last);
}

static void a_page_stops_before_its_bytes_run_out(void **state)
{
	char uid[256];
	uint8_t uids[600];
	struct store_page page;

	(void)state;
	memset(uid, 'x', 255);
	uid[255] = 0;
	for (char c = 'a'; c < 'd'; c++) {
		uid[0] = c;
		store_bench_do(&b, STORE_ADD, "g", uid);
	}
	assert_int_equal(page_of("g", "", 9, uids, 600, &page), 0);
	assert_true(page.count == 2 && page.bytes_used == 512 && !page.last);
	assert_int_equal(page_of("g", "", 9, uids, 256, &page), 0);
	assert_int_equal(page.count, 1);
	assert_int_equal(page_of("g", "", 9, uids, 255, &page), -EINVAL);
	assert_int_equal(page_of("g", "", 0, uids, 600, &page), -EINVAL);
}

static void a_page_of_no_channel_says_so_with_its_position(void **state)
{
	uint8_t uids[300];
	struct store_page page;

	(void)state;
	store_bench_do(&b, STORE_ADD, "g", "a");
	store_bench_do(&b, STORE_CHANNEL_REMOVE, "g", NULL);
	assert_int_equal(page_of("none", "", 9, uids, sizeof(uids), &page), -ENOENT);
	assert_true(page.count == 0 && page.last && page.smv == 0 && page.commit == 2);
	assert_int_equal(page_of("g", "", 9, uids, sizeof(uids), &page), -ENOENT);
	assert_true(page.last && page.smv == 2);
}

// A hundred thousand removals lie before the one member that is left.
static void a_page_over_many_removals_is_short_and_bounded(void **state)
{
	uint8_t uids[300], next[ID_LEN_MAX];
	struct store_page page = {0};
	uint32_t pages = 0, found = 0;

	(void)state;
	store_bench_large(&b, 1, STORE_ADD, "g", "m", 0, 100001);
	store_bench_large(&b, 2, STORE_REMOVE, "g", "m", 0, 100000);
	do {
		const struct store_command name = store_bench_command(STORE_ADD, "g", NULL);
		const uint64_t before = store_map_calls(b.map);
		const uint8_t len = page.next_len;
		struct store_tx tx;

		memcpy(next, page.next, len);
		store_map_read(b.map, &tx);
		assert_int_equal(store_read_page(&tx, &name.channel, STORE_MEMBERS,
					 id_view_of(next, len), 10, uids, sizeof(uids), &page),
			0);
		assert_true(store_map_calls(b.map) - before < STORE_PAGE_SKIP_MAX + 50);
		found += page.count;
		pages++;
	} while (!page.last && pages < 100);
	assert_true(page.last && pages > 2 && found == 1);
	assert_memory_equal(uids, "\10m0100000", 9);
}

// Members that stay are in the pages exactly once, whatever is added, removed and merged meanwhile.
static void pages_under_change_miss_nobody_who_stays(void **state)
{
	static uint8_t seen[3000];
	uint8_t uids[300], next[ID_LEN_MAX];
	struct store_page page = {0};
	uint32_t turn = 0;

	(void)state;
	memset(seen, 0, sizeof(seen));
	b.limits.fold_rows = 10;
	store_bench_large(&b, 1, STORE_ADD, "g", "m", 0, 3000);
	store_bench_large(&b, 2, STORE_ADD, "g", "n", 0, 3000);
	do {
		const uint8_t len = page.next_len, *p = uids;
		struct id_view uid;
		char name[16];

		memcpy(next, page.next, len);
		next[len] = 0;
		assert_int_equal(
			page_of("g", (const char *)next, 20, uids, sizeof(uids), &page), 0);
		while (store_uids_next(&p, uids + page.bytes_used, &uid)) {
			memcpy(name, uid.bytes, uid.len);
			name[uid.len] = 0;
			if (name[0] == 'm')
				seen[atoi(name + 1)]++;
		}
		turn++;
		snprintf(name, sizeof(name), "n%07u", turn % 3000);
		store_bench_do(&b, turn % 2 == 0 ? STORE_ADD : STORE_REMOVE, "g", name);
		if (turn % 5 == 0)
			store_bench_large(
				&b, 100 + turn, STORE_REMOVE, "g", "n", turn * 5 % 2900, 40);
		store_bench_compact(&b, 30);
	} while (!page.last);
	for (uint32_t i = 0; i < 3000; i++)
		assert_int_equal(seen[i], 1);
	assert_true(turn > 100);
}

static void the_walk_meets_every_channel_once_tombstones_too(void **state)
{
	struct store_channel c;
	struct channel_key at = {0};
	struct store_command cmd;
	struct store_tx tx;
	char text[64] = "";

	(void)state;
	store_bench_do(&b, STORE_ADD, "b", "u");
	store_bench_do(&b, STORE_ADD, "ab", "u v");
	cmd = store_bench_command(STORE_CHANNEL_CREATE, "z", NULL);
	cmd.channel.type = CHANNEL_PERSON;
	store_bench_apply(&b, &cmd);
	store_bench_do(&b, STORE_ADD, "a", "u");
	store_bench_do(&b, STORE_CHANNEL_REMOVE, "a", NULL);
	store_map_read(b.map, &tx);
	while (store_read_next_channel(&tx, &at, &c) == 0) {
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%u:%.*s:%u%s ",
			c.key.type, c.key.len, (const char *)c.key.bytes, (unsigned)c.members,
			c.removed ? "x" : "");
		at = c.key;
	}
	assert_string_equal(text, "1:z:0 2:a:0x 2:ab:2 2:b:1 ");
}

static int delta_after(uint64_t commit, struct store_delta *d)
{
	struct store_tx tx;

	store_map_read(b.map, &tx);
	return store_read_delta(&tx, commit, d);
}

static void the_journal_gives_each_commit_in_turn(void **state)
{
	struct store_delta d;

	(void)state;
	assert_int_equal(delta_after(0, &d), -ENOENT);
	assert_int_equal(delta_after(1, &d), -ESTALE);  // ahead of this store
	store_bench_do(&b, STORE_ADD, "g", "a");
	store_bench_do(&b, STORE_ADD, "g", "a");
	store_bench_do(&b, STORE_REMOVE, "g", "a");
	assert_int_equal(delta_after(0, &d), 0);
	assert_true(
		d.commit == 1 && d.kind == STORE_DELTA_ADD && d.uid_count == 1 && d.members == 1);
	assert_int_equal(delta_after(1, &d), 0);
	assert_true(
		d.commit == 2 && d.kind == STORE_DELTA_REMOVE && d.smv_before == 1 && d.smv == 2);
	assert_int_equal(delta_after(2, &d), -ENOENT);
	assert_int_equal(delta_after(3, &d), -ESTALE);
}

static void the_journal_keeps_its_length_and_says_when_it_does_not_reach(void **state)
{
	struct store_delta d;

	(void)state;
	b.limits.journal_commits = 10;
	for (uint32_t i = 0; i < 50; i++)
		store_bench_do(&b, i % 2 == 0 ? STORE_ADD : STORE_REMOVE, "g", "a");
	assert_int_equal(store_map_rows(b.map, STORE_T_JOURNAL), 10);
	assert_int_equal(delta_after(39, &d), -ESTALE);
	assert_int_equal(delta_after(40, &d), 0);
	assert_int_equal(d.commit, 41);
	// A lower limit is caught up with by compaction.
	b.limits.journal_commits = 3;
	assert_true(store_bench_compact(&b, 100) >= 7);
	assert_int_equal(store_map_rows(b.map, STORE_T_JOURNAL), 3);
	assert_int_equal(store_bench_compact(&b, 100), 0);
	assert_int_equal(delta_after(46, &d), -ESTALE);
	assert_int_equal(delta_after(47, &d), 0);
}

static void a_failing_backend_call_fails_the_read(void **state)
{
	const struct store_command name = store_bench_command(STORE_ADD, "g", NULL);
	const struct channel_key start = {0};
	struct store_position pos;
	struct store_channel c;
	struct store_delta d;
	struct store_page page;
	uint8_t uids[300];
	struct store_tx tx;

	(void)state;
	b.limits.fold_rows = 1;
	store_bench_do(&b, STORE_ADD, "g", "a b");
	store_bench_stage(&b, 1, STORE_ADD, "g", "c d");
	store_bench_close_stage(&b, 1, STORE_ADD, "g");
	store_map_read(b.map, &tx);
#define EACH_CALL_FAILS(read) \
	for (uint64_t nth = 1;; nth++) { \
		store_map_fail(b.map, nth, -EIO); \
		const int rc = (read); \
		if (!store_map_failed(b.map)) { \
			assert_int_equal(rc, 0); \
			break; \
		} \
		assert_int_equal(rc, -EIO); \
	}
	EACH_CALL_FAILS(store_read_position(&tx, &pos));
	EACH_CALL_FAILS(store_read_channel(&tx, &name.channel, &c));
	EACH_CALL_FAILS(store_read_next_channel(&tx, &start, &c));
	EACH_CALL_FAILS(store_read_delta(&tx, 0, &d));
	EACH_CALL_FAILS(store_read_page(&tx, &name.channel, STORE_MEMBERS, id_view_of(uids, 0), 9,
		uids, sizeof(uids), &page));
	assert_int_equal(page.count, 4);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(pages_go_in_byte_order_and_resume_anywhere),
		T(a_page_stops_before_its_bytes_run_out),
		T(a_page_of_no_channel_says_so_with_its_position),
		T(a_page_over_many_removals_is_short_and_bounded),
		T(pages_under_change_miss_nobody_who_stays),
		T(a_failing_backend_call_fails_the_read),
		T(the_walk_meets_every_channel_once_tombstones_too),
		T(the_journal_gives_each_commit_in_turn),
		T(the_journal_keeps_its_length_and_says_when_it_does_not_reach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
