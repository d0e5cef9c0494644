/* SPDX-License-Identifier: BSD-3-Clause */
// One-node consensus: order, one commit a turn, barriers, bounds, faults.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base_limits.h"
#include "cons_local.h"

static struct cons_local *cons;
static char story[4096];
static int commit_rc;
static uint64_t propose_on_result;
static uint32_t take;  // commits taken at once; 0: all

static __attribute__((format(printf, 1, 2))) void tell(const char *format, ...)
{
	const size_t at = strlen(story);
	va_list args;

	va_start(args, format);
	vsnprintf(story + at, sizeof(story) - at, format, args);
	va_end(args);
}

static int on_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	(void)ctx;
	tell("[");
	for (uint32_t i = 0; i < count; i++)
		tell("%llu:%c/%llu ", (unsigned long long)commits[i].index, commits[i].data[0],
			(unsigned long long)commits[i].token);
	tell("] ");
	return commit_rc != 0 ? commit_rc : take != 0 && take < count ? (int)take : (int)count;
}

static void on_result(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	(void)ctx;
	(void)why;
	tell("%llu=%u ", (unsigned long long)token, status);
	if (propose_on_result != 0) {
		const uint64_t next = propose_on_result;

		propose_on_result = 0;
		cons_local_ops.propose(cons, (const uint8_t *)"n", 1, next);
	}
}

static const struct cons_events events = {.on_commit = on_commit, .on_result = on_result};

static int turn(void)
{
	uint8_t busy = 0;

	return cons_local_ops.turn(cons, 0, &busy);
}

static int setup(void **state)
{
	(void)state;
	story[0] = 0;
	commit_rc = 0;
	take = 0;
	propose_on_result = 0;
	cons = cons_local_create(42, 10, &events, NULL);
	return cons == NULL ? -1 : 0;
}
static int teardown(void **state)
{
	(void)state;
	cons_local_destroy(cons);
	return 0;
}

static enum cons_status propose(const char *data, uint64_t token)
{
	return cons_local_ops.propose(cons, (const uint8_t *)data, (uint32_t)strlen(data), token);
}

static void a_turn_commits_in_order_what_was_proposed_before_it(void **state)
{
	(void)state;
	assert_int_equal(propose("a", 1), CONS_OK);
	assert_int_equal(propose("b", 2), CONS_OK);
	assert_string_equal(story, "");
	assert_int_equal(turn(), 0);
	assert_string_equal(story, "[11:a/1 12:b/2 ] 1=0 2=0 ");
	assert_int_equal(turn(), 0);
	assert_int_equal(propose("c", 3), CONS_OK);
	assert_int_equal(turn(), 0);
	assert_string_equal(story, "[11:a/1 12:b/2 ] 1=0 2=0 [13:c/3 ] 3=0 ");
}

static void the_bytes_are_copied(void **state)
{
	char data[2] = "a";

	(void)state;
	propose(data, 1);
	data[0] = 'z';
	turn();
	assert_string_equal(story, "[11:a/1 ] 1=0 ");
}

static void a_barrier_is_answered_after_what_came_before_it(void **state)
{
	(void)state;
	propose("a", 1);
	assert_int_equal(cons_local_ops.barrier(cons, 2), CONS_OK);
	propose("b", 3);
	turn();
	assert_string_equal(story, "[11:a/1 12:b/3 ] 1=0 2=0 3=0 ");
	story[0] = 0;
	cons_local_ops.barrier(cons, 4);
	turn();
	assert_string_equal(story, "4=0 ");
}

static void an_answer_may_propose_for_the_next_turn(void **state)
{
	(void)state;
	propose_on_result = 9;
	propose("a", 1);
	turn();
	assert_string_equal(story, "[11:a/1 ] 1=0 ");
	turn();
	assert_string_equal(story, "[11:a/1 ] 1=0 [12:n/9 ] 9=0 ");
}

static void a_fault_of_the_store_answers_nobody_and_stays(void **state)
{
	struct cons_info info;

	(void)state;
	commit_rc = -EIO;
	propose("a", 1);
	assert_int_equal(turn(), -EIO);
	assert_string_equal(story, "[11:a/1 ] ");
	assert_int_equal(propose("b", 2), CONS_FAILED);
	assert_int_equal(cons_local_ops.barrier(cons, 3), CONS_FAILED);
	assert_int_equal(turn(), -EIO);
	cons_local_ops.info(cons, &info);
	assert_int_equal(info.applied_index, 10);
}

static void what_does_not_fit_is_refused(void **state)
{
	static uint8_t big[ENTRY_BYTES_MAX + 1];
	uint64_t taken = 0;

	(void)state;
	assert_int_equal(cons_local_ops.propose(cons, big, sizeof(big), 1), CONS_TOO_LARGE);
	while (cons_local_ops.propose(cons, big, ENTRY_BYTES_MAX, 2) == CONS_OK)
		taken++;
	assert_true(taken >= 2 && taken * ENTRY_BYTES_MAX <= 16u << 20);
	assert_int_equal(propose("a", 3), CONS_BUSY);
	turn();
	for (taken = 0; propose("a", 4) == CONS_OK; taken++)
		;
	assert_true(taken >= 64 && taken <= 4096);
	assert_int_equal(cons_local_ops.barrier(cons, 5), CONS_BUSY);
	turn();
	assert_int_equal(propose("a", 6), CONS_OK);
}

static void what_a_consumer_leaves_is_offered_again_before_the_answer(void **state)
{
	(void)state;
	take = 1;
	propose("a", 1);
	propose("b", 2);
	turn();
	assert_string_equal(story, "[11:a/1 12:b/2 ] [12:b/2 ] 1=0 2=0 ");
}

static void a_change_of_members_is_refused(void **state)
{
	const struct cons_change change = {.op = CONS_ADD, .id = 2};
	struct cons_member members[2];

	(void)state;
	assert_int_equal(cons_local_ops.change(cons, &change, 7), CONS_OK);
	assert_string_equal(story, "7=6 ");
	assert_int_equal(cons_local_ops.members(cons, members, 2), 1);
	assert_true(members[0].id == 42 && members[0].is_leader);
	assert_string_equal(cons_role_name(members[0].role), "voter");
	assert_string_equal(cons_role_name(3), "unknown");
}

static void it_is_its_own_leader(void **state)
{
	struct cons_info info;

	(void)state;
	propose("a", 1);
	turn();
	cons_local_ops.info(cons, &info);
	assert_true(
		info.node_id == 42 && info.leader_id == 42 && info.is_leader && info.voters == 1);
	assert_true(info.applied_index == 11 && info.commit_index == 11);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(a_turn_commits_in_order_what_was_proposed_before_it),
		T(the_bytes_are_copied),
		T(a_barrier_is_answered_after_what_came_before_it),
		T(an_answer_may_propose_for_the_next_turn),
		T(a_fault_of_the_store_answers_nobody_and_stays),
		T(what_does_not_fit_is_refused),
		T(what_a_consumer_leaves_is_offered_again_before_the_answer),
		T(a_change_of_members_is_refused),
		T(it_is_its_own_leader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
