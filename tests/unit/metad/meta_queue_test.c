/* SPDX-License-Identifier: BSD-3-Clause */
// The queue over a consensus of this file's own and a store that answers what the test says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base_time.h"
#include "meta_queue.h"

#define LARGE (2 * META_CHUNK_UIDS + 52)  // three chunks
#define WAIT_NS (10 * NS_PER_S)
#define ANSWER_NS (5 * NS_PER_S)
#define FENCE_NS (1 * NS_PER_S)

struct fixture {
	struct meta_queue *queue;
	uint64_t token[8];
	uint32_t tokens;
	enum cons_status propose_status;
	char story[16384];  // commands as they were proposed, answers as they were given
	uint64_t commit;
	uint8_t code[STORE_ABORT + 1];  // answer to the next command of this kind, once
	bool repeated_close;
	uint64_t now;
};

static void tell(struct fixture *f, const char *fmt, ...)
{
	const size_t len = strlen(f->story);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->story + len, sizeof(f->story) - len, fmt, ap);
	va_end(ap);
}

static enum cons_status propose(void *cons, const uint8_t *data, uint32_t len, uint64_t token)
{
	static const char *const names[] = {"?", "create", "update", "delete", "add", "remove",
		"reset", "stage", "close", "abort"};
	struct fixture *f = cons;
	uint32_t at = 0;

	if (f->propose_status != CONS_OK)
		return f->propose_status;
	while (at < len) {
		struct store_command cmd;
		const char *why;
		const int used = store_command_decode(data + at, len - at, &cmd, &why);

		assert_true(used > 0);
		tell(f, "%s %.*s; ", names[cmd.op], cmd.channel.len,
			(const char *)cmd.channel.bytes);
		at += (uint32_t)used;
	}
	f->token[f->tokens++] = token;
	return CONS_OK;
}

static const struct cons_ops cons = {.propose = propose};

static void done(void *ctx, struct mutation *m)
{
	static const char *const outcomes[] = {"ok", "busy", "not_leader", "unknown"};
	struct fixture *f = ctx;

	if (m->owner != NULL)
		tell(f, "= %s %s%s%s; ", (const char *)m->owner, outcomes[m->outcome],
			m->applied ? " applied" : "",
			m->outcome == MUTATION_OK && m->result.code > STORE_R_NO_CHANGE
				? store_result_name(m->result.code)
				: "");
	mutation_free(m);
}

META_ONLY static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct meta_queue_params params = {.stages = 2,
		.wait_ns = WAIT_NS,
		.apply_wait_ns = FENCE_NS,
		.answer_wait_ns = ANSWER_NS,
		.stage_id_first = 100,
		.stage_id_last = UINT64_MAX,
		.cons = &cons,
		.cons_ctx = f,
		.done = done,
		.ctx = f};

	f->now = NS_PER_S;
	assert_int_equal(meta_queue_create(&params, &f->queue), 0);
	meta_queue_tick(f->queue, f->now);
	*state = f;
	return 0;
}

META_ONLY static int teardown(void **state)
{
	struct fixture *f = *state;

	meta_queue_destroy(f->queue);
	free(f);
	return 0;
}

static struct mutation *make(const char *name, const char *channel, uint8_t op, uint32_t uids)
{
	struct mutation *m = calloc(1, sizeof(*m));

	channel_key_set(&m->key, 2, channel, (uint8_t)strlen(channel));
	m->op = op;
	m->owner = (void *)(uintptr_t)name;
	m->uids = malloc(uids * 8u + 1);
	for (uint32_t i = 0; i < uids; i++)
		m->uids_bytes += (uint32_t)sprintf((char *)m->uids + m->uids_bytes, "\x07%07u", i);
	m->uid_count = uids;
	return m;
}

META_ONLY static void submit(
	struct fixture *f, const char *name, const char *channel, uint8_t op, uint32_t uids)
{
	assert_int_equal(meta_queue_submit(f->queue, make(name, channel, op, uids), f->now), 0);
}

// One turn: what is proposed commits, and is answered.
META_ONLY static void turn(struct fixture *f)
{
	meta_queue_tick(f->queue, f->now);
	meta_queue_fill(f->queue);
	for (uint32_t t = 0; t < f->tokens; t++) {
		struct meta_batch *batch = meta_queue_batch(f->queue, f->token[t]);

		for (uint32_t i = 0; i < batch->count; i++) {
			struct store_result *r = &batch->result[i];
			const uint8_t op = batch->item[i].op;

			*r = (struct store_result){.code = f->code[op]};
			f->code[op] = STORE_R_OK;
			if (r->code == STORE_R_OK && op != STORE_STAGE && op != STORE_ABORT)
				f->commit++;
			r->commit = f->commit;
			r->repeated = op == STORE_CLOSE && f->repeated_close;
		}
		meta_queue_committed(f->queue, batch, f->now);
	}
	f->tokens = 0;
}

META_ONLY static void run(struct fixture *f)
{
	do
		turn(f);
	while (meta_queue_runnable(f->queue));
}

static void expect(struct fixture *f, const char *story)
{
	assert_string_equal(f->story, story);
	f->story[0] = '\0';
}

META_ONLY static void small_ones_share_a_batch_and_keep_their_order(void **state)
{
	struct fixture *f = *state;

	submit(f, "1", "a", STORE_ADD, 1);
	submit(f, "2", "b", STORE_CHANNEL_CREATE, 0);
	submit(f, "3", "a", STORE_REMOVE, 1);
	assert_true(meta_queue_runnable(f->queue));
	run(f);
	expect(f, "add a; create b; remove a; = 1 ok; = 2 ok; = 3 ok; ");
	assert_false(meta_queue_runnable(f->queue));
}

META_ONLY static void a_large_one_is_staged_and_others_go_between(void **state)
{
	struct fixture *f = *state;

	submit(f, "big", "a", STORE_RESET, LARGE);
	submit(f, "1", "b", STORE_ADD, 1);
	run(f);
	expect(f, "stage a; add b; stage a; = 1 ok; stage a; close a; = big ok; ");
}

META_ONLY static void later_ones_of_its_channel_wait_in_order(void **state)
{
	struct fixture *f = *state;

	submit(f, "0", "a", STORE_ADD, 1);
	submit(f, "big", "a", STORE_RESET, LARGE);
	submit(f, "1", "a", STORE_ADD, 1);
	submit(f, "2", "a", STORE_RESET, LARGE);
	submit(f, "3", "a", STORE_REMOVE, 1);
	run(f);
	expect(f, "add a; stage a; stage a; = 0 ok; stage a; close a; = big ok; add a; stage a; "
		  "stage a; = 1 ok; stage a; close a; = 2 ok; remove a; = 3 ok; ");
}

META_ONLY static void a_large_one_is_prepared_before_it_runs_and_keeps_its_place(void **state)
{
	struct fixture *f = *state;
	struct mutation *big = make("big", "a", STORE_ADD, LARGE),
			*second = make("second", "a", STORE_ADD, LARGE);

	big->preparing = second->preparing = true;
	assert_int_equal(meta_queue_submit(f->queue, big, f->now), 0);
	assert_int_equal(meta_queue_submit(f->queue, second, f->now), 0);
	submit(f, "1", "a", STORE_REMOVE, 1);
	meta_queue_prepared(f->queue, second);
	run(f);
	expect(f, "");
	meta_queue_prepared(f->queue, big);
	run(f);
	expect(f, "stage a; stage a; stage a; close a; = big ok; stage a; stage a; stage a; close "
		  "a; = second ok; "
		  "remove a; "
		  "= 1 ok; ");
}

META_ONLY static void no_more_stages_at_once_than_the_store_allows(void **state)
{
	struct fixture *f = *state;
	struct meta_queue_info info;

	submit(f, "A", "a", STORE_ADD, LARGE);
	submit(f, "B", "b", STORE_ADD, LARGE);
	submit(f, "C", "c", STORE_ADD, LARGE);
	turn(f);
	meta_queue_info(f->queue, &info);
	assert_int_equal(info.stages_open, 2);
	run(f);
	assert_null(strstr(f->story, "stage c; stage a"));
	assert_non_null(strstr(f->story, "= C ok; "));
	meta_queue_info(f->queue, &info);
	assert_int_equal(info.stages_open, 0);
	assert_int_equal(info.pending, 0);
	assert_int_equal(info.pending_bytes, 0);
}

META_ONLY static void waiting_behind_a_stage_ends_at_the_deadline_without_effect(void **state)
{
	struct fixture *f = *state;
	struct mutation *big = make("big", "a", STORE_ADD, LARGE);

	big->preparing = true;
	assert_int_equal(meta_queue_submit(f->queue, big, f->now), 0);
	submit(f, "1", "a", STORE_ADD, 1);
	assert_true(meta_queue_next_ns(f->queue) == f->now + WAIT_NS);
	f->now += WAIT_NS - 1;
	run(f);
	expect(f, "");
	f->now += 1;
	run(f);
	expect(f, "= 1 busy; ");
	meta_queue_prepared(f->queue, big);
	run(f);
	expect(f, "stage a; stage a; stage a; close a; = big ok; ");
}

META_ONLY static void a_busy_channel_is_tried_again_until_the_deadline(void **state)
{
	struct fixture *f = *state;

	submit(f, "1", "a", STORE_ADD, 1);
	f->code[STORE_ADD] = STORE_R_BUSY;
	run(f);
	expect(f, "add a; ");
	f->now = meta_queue_next_ns(f->queue);
	run(f);
	expect(f, "add a; = 1 ok; ");

	submit(f, "2", "a", STORE_ADD, 1);
	f->code[STORE_ADD] = STORE_R_BUSY;
	run(f);
	f->now += WAIT_NS;
	f->code[STORE_ADD] = STORE_R_BUSY;
	run(f);
	expect(f, "add a; add a; = 2 busy; ");
}

META_ONLY static void a_refused_chunk_drops_the_stage(void **state)
{
	struct fixture *f = *state;

	submit(f, "big", "a", STORE_ADD, LARGE);
	submit(f, "1", "a", STORE_ADD, 1);
	f->code[STORE_STAGE] = STORE_R_LIMIT;
	run(f);
	assert_non_null(strstr(f->story, "abort a; = big ok"));
	assert_null(strstr(f->story, "close"));
	assert_non_null(strstr(f->story, "add a; = 1 ok; "));
}

META_ONLY static void a_stage_refused_as_busy_starts_over(void **state)
{
	struct fixture *f = *state;

	submit(f, "big", "a", STORE_ADD, LARGE);
	f->code[STORE_STAGE] = STORE_R_BUSY;
	run(f);
	expect(f, "stage a; stage a; abort a; ");
	f->now = meta_queue_next_ns(f->queue);
	run(f);
	expect(f, "stage a; stage a; stage a; close a; = big ok; ");
}

META_ONLY static void a_close_answered_from_memory_drops_the_second_stage(void **state)
{
	struct fixture *f = *state;

	f->repeated_close = true;
	submit(f, "big", "a", STORE_ADD, LARGE);
	run(f);
	expect(f, "stage a; stage a; stage a; close a; abort a; = big ok; ");
}

META_ONLY static void left_stages_are_dropped_before_anything_else(void **state)
{
	struct fixture *f = *state;
	struct channel_key key;

	channel_key_set(&key, 2, "a", 1);
	assert_int_equal(meta_queue_abort_stage(f->queue, 5, &key), 0);
	submit(f, "1", "a", STORE_ADD, 1);
	run(f);
	expect(f, "abort a; add a; = 1 ok; ");
}

META_ONLY static void the_answer_waits_for_the_fast_process(void **state)
{
	struct fixture *f = *state;

	meta_queue_applied(f->queue, true, 0);
	submit(f, "1", "a", STORE_ADD, 1);
	submit(f, "2", "a", STORE_ADD, 1);
	run(f);
	expect(f, "add a; add a; ");
	meta_queue_applied(f->queue, true, 1);
	expect(f, "= 1 ok applied; ");
	// It goes away: it may return within the wait.
	meta_queue_applied(f->queue, false, 0);
	f->now += FENCE_NS - 1;
	run(f);
	expect(f, "");
	f->now += 1;
	assert_true(meta_queue_next_ns(f->queue) <= f->now);
	run(f);
	expect(f, "= 2 ok; ");
	// Nobody there: no wait at all.
	submit(f, "3", "a", STORE_ADD, 1);
	run(f);
	expect(f, "add a; = 3 ok; ");
}

META_ONLY static void a_refusal_by_the_store_waits_for_nobody(void **state)
{
	struct fixture *f = *state;

	meta_queue_applied(f->queue, true, 0);
	submit(f, "1", "a", STORE_CHANNEL_REMOVE, 0);
	f->code[STORE_CHANNEL_REMOVE] = STORE_R_NOT_FOUND;
	run(f);
	assert_non_null(strstr(f->story, "= 1 ok"));
}

META_ONLY static void a_consensus_that_is_busy_gets_the_same_batch_again(void **state)
{
	struct fixture *f = *state;

	submit(f, "1", "a", STORE_ADD, 1);
	f->propose_status = CONS_BUSY;
	turn(f);
	submit(f, "2", "a", STORE_REMOVE, 1);
	turn(f);
	expect(f, "");
	// Not at once again, which would keep the loop from sleeping.
	assert_false(meta_queue_runnable(f->queue));
	assert_true(meta_queue_next_ns(f->queue) > f->now);
	f->now = meta_queue_next_ns(f->queue);
	f->propose_status = CONS_OK;
	run(f);
	expect(f, "add a; remove a; = 1 ok; = 2 ok; ");
}

// As a group without a leader for a while: nobody notices but by the wait.
META_ONLY static void without_a_leader_what_came_waits_and_keeps_its_order(void **state)
{
	struct fixture *f = *state;

	submit(f, "1", "a", STORE_ADD, 1);
	f->propose_status = CONS_NOT_LEADER;
	for (int i = 0; i < 20; i++) {
		turn(f);
		f->now = meta_queue_next_ns(f->queue);
	}
	submit(f, "2", "a", STORE_REMOVE, 1);
	expect(f, "");
	f->propose_status = CONS_OK;
	f->now = meta_queue_next_ns(f->queue);
	run(f);
	expect(f, "add a; remove a; = 1 ok; = 2 ok; ");
}

META_ONLY static void without_a_leader_the_callers_wait_ends_without_effect(void **state)
{
	struct fixture *f = *state;
	const uint64_t end = f->now + ANSWER_NS;

	submit(f, "1", "a", STORE_ADD, 1);
	f->propose_status = CONS_NOT_LEADER;
	while (f->now < end) {
		turn(f);
		expect(f, "");
		f->now = meta_queue_next_ns(f->queue);
	}
	for (int i = 0; i < 10; i++) {
		turn(f);
		f->now = meta_queue_next_ns(f->queue);
	}
	expect(f, "= 1 not_leader; ");
}

META_ONLY static void lose(struct fixture *f, enum cons_status status)
{
	for (uint32_t i = 0; i < f->tokens; i++)
		meta_queue_refused(f->queue, meta_queue_batch(f->queue, f->token[i]), status);
	f->tokens = 0;
}

META_ONLY static void an_unknown_outcome_is_asked_for_again_with_the_same_key(void **state)
{
	struct fixture *f = *state;
	struct mutation *m = make("1", "a", STORE_ADD, 1);

	store_dedup_key(m->dedup, 3, 7);
	assert_int_equal(meta_queue_submit(f->queue, m, f->now), 0);
	meta_queue_fill(f->queue);
	expect(f, "add a; ");
	lose(f, CONS_UNKNOWN);
	submit(f, "2", "a", STORE_REMOVE, 1);
	f->now = meta_queue_next_ns(f->queue);
	run(f);
	// In front of what came later.
	expect(f, "add a; remove a; = 1 ok; = 2 ok; ");
}

META_ONLY static void what_came_back_goes_first_and_in_its_order(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 300; i++)  // more than a batch
		submit(f,
			i == 0     ? "first"
			: i == 299 ? "last"
				   : NULL,
			"a",
			i == 0     ? STORE_ADD
			: i == 299 ? STORE_REMOVE
				   : STORE_RESET,
			1);
	meta_queue_fill(f->queue);
	assert_int_equal(f->tokens, 2);
	f->story[0] = '\0';
	submit(f, "new", "a", STORE_CHANNEL_CREATE, 0);
	// The second one is told first; while the first is open nothing is sent.
	meta_queue_refused(f->queue, meta_queue_batch(f->queue, f->token[1]), CONS_UNKNOWN);
	f->now += NS_PER_S;
	meta_queue_tick(f->queue, f->now);
	assert_int_equal(meta_queue_fill(f->queue), 0);
	f->tokens = 1;
	lose(f, CONS_NOT_LEADER);
	f->now = meta_queue_next_ns(f->queue);
	run(f);
	assert_memory_equal(f->story, "add a; reset a; ", 16);
	assert_non_null(strstr(f->story, "reset a; remove a; create a; "));
	assert_non_null(strstr(f->story, "= last ok; = new ok; "));
}

META_ONLY static void what_may_have_been_applied_is_never_told_as_not_applied(void **state)
{
	struct fixture *f = *state;

	submit(f, "1", "a", STORE_ADD, 1);
	meta_queue_fill(f->queue);
	lose(f, CONS_UNKNOWN);
	f->propose_status = CONS_NOT_LEADER;
	for (int i = 0; i < 2000 && strstr(f->story, "=") == NULL; i++) {
		f->now = meta_queue_next_ns(f->queue);
		turn(f);
	}
	expect(f, "add a; = 1 unknown; ");
}

META_ONLY static void a_lost_chunk_begins_its_stage_anew(void **state)
{
	struct fixture *f = *state;
	struct meta_queue_info info;

	submit(f, "big", "a", STORE_ADD, LARGE);
	submit(f, "1", "a", STORE_ADD, 1);
	meta_queue_fill(f->queue);
	expect(f, "stage a; stage a; ");
	lose(f, CONS_UNKNOWN);
	f->now = meta_queue_next_ns(f->queue);
	run(f);
	expect(f, "abort a; stage a; stage a; stage a; close a; = big ok; add a; = 1 ok; ");
	assert_false(meta_queue_owns_stage(f->queue, 100));
	meta_queue_info(f->queue, &info);
	assert_int_equal(info.stages_open, 0);
	assert_int_equal(info.pending, 0);
}

META_ONLY static void a_large_one_whose_wait_ends_leaves_no_stage(void **state)
{
	struct fixture *f = *state;

	submit(f, "big", "a", STORE_ADD, LARGE);
	meta_queue_fill(f->queue);
	lose(f, CONS_NOT_LEADER);
	f->story[0] = '\0';
	f->propose_status = CONS_NOT_LEADER;
	for (int i = 0; i < 2000 && strstr(f->story, "=") == NULL; i++) {
		f->now = meta_queue_next_ns(f->queue);
		turn(f);
	}
	expect(f, "= big not_leader; ");
	f->propose_status = CONS_OK;
	f->now = meta_queue_next_ns(f->queue);
	run(f);
	// What was being sent when the wait ended, and what it left.
	assert_non_null(strstr(f->story, "abort a; "));
	assert_null(strstr(f->story, "close"));
}

META_ONLY static void many_answers_are_spread_over_turns(void **state)
{
	struct fixture *f = *state;
	struct meta_queue_info info;
	uint32_t before = 0;

	meta_queue_applied(f->queue, true, 0);
	for (int i = 0; i < 2000; i++)
		submit(f, NULL, "a", STORE_ADD, 1);
	while (meta_queue_runnable(f->queue)) {
		run(f);
		f->story[0] = '\0';
	}
	meta_queue_info(f->queue, &info);
	assert_int_equal(before = info.apply_waiting, 2000);
	for (int turns = 0; before > 0; turns++) {
		assert_true(turns < 10);
		meta_queue_applied(f->queue, true, f->commit);
		meta_queue_info(f->queue, &info);
		assert_true(info.apply_waiting < before && before - info.apply_waiting <= 512);
		before = info.apply_waiting;
		assert_int_equal(meta_queue_runnable(f->queue), before > 0);
	}
}

META_ONLY static void bytes_that_wait_are_bounded(void **state)
{
	struct fixture *f = *state;
	struct mutation *last = NULL;
	uint32_t taken = 0;

	for (; last == NULL && taken < 100; taken++) {
		struct mutation *m = make("x", "a", STORE_ADD, 1000000);

		if (meta_queue_submit(f->queue, m, f->now) != 0)
			last = m;
	}
	assert_non_null(last);
	assert_int_equal(taken - 1, META_PENDING_BYTES_MAX / 8000000);
	mutation_free(last);
}

META_ONLY static void preparing_sorts_and_leaves_repeats_out(void **state)
{
	static const uint8_t in[] = {
		2, 'b', 'b', 1, 'b', 1, 'a', 2, 'b', 'b', 1, 0xff, 1, 'a', 1, 0};
	static const uint8_t want[] = {1, 0, 1, 'a', 1, 'b', 2, 'b', 'b', 1, 0xff};
	struct mutation *m = calloc(1, sizeof(*m));

	m->uids = malloc(sizeof(in));
	memcpy(m->uids, in, sizeof(in));
	m->uids_bytes = sizeof(in);
	m->uid_count = 7;
	assert_int_equal(mutation_prepare(m), 0);
	assert_int_equal(m->uid_count, 5);
	assert_int_equal(m->uids_bytes, sizeof(want));
	assert_memory_equal(m->uids, want, sizeof(want));
	mutation_free(m);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(small_ones_share_a_batch_and_keep_their_order),
		T(a_large_one_is_staged_and_others_go_between),
		T(later_ones_of_its_channel_wait_in_order),
		T(a_large_one_is_prepared_before_it_runs_and_keeps_its_place),
		T(no_more_stages_at_once_than_the_store_allows),
		T(waiting_behind_a_stage_ends_at_the_deadline_without_effect),
		T(a_busy_channel_is_tried_again_until_the_deadline),
		T(a_refused_chunk_drops_the_stage),
		T(a_stage_refused_as_busy_starts_over),
		T(a_close_answered_from_memory_drops_the_second_stage),
		T(left_stages_are_dropped_before_anything_else),
		T(the_answer_waits_for_the_fast_process),
		T(a_refusal_by_the_store_waits_for_nobody),
		T(a_consensus_that_is_busy_gets_the_same_batch_again),
		T(without_a_leader_what_came_waits_and_keeps_its_order),
		T(without_a_leader_the_callers_wait_ends_without_effect),
		T(an_unknown_outcome_is_asked_for_again_with_the_same_key),
		T(what_came_back_goes_first_and_in_its_order),
		T(what_may_have_been_applied_is_never_told_as_not_applied),
		T(a_lost_chunk_begins_its_stage_anew),
		T(a_large_one_whose_wait_ends_leaves_no_stage),
		T(many_answers_are_spread_over_turns),
		T(bytes_that_wait_are_bounded),
		T(preparing_sorts_and_leaves_repeats_out),
	};
	int failed;

	role_take_meta();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	role_drop_meta();
	return failed;
}
