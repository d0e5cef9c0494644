/* SPDX-License-Identifier: BSD-3-Clause */
// Changes of members: what is refused and why, and the steps of what is not.
#include "unit.h"

#include <string.h>

#include "raft_member.h"

static struct member_machine machine;
static struct member_view view;
static struct member_step step;

// Node 1 leads; 2 and 3 vote, 4 stands by; all answer and are up to date.
static int setup(void **state)
{
	static const char *const addresses[] = {"a:1", "a:2", "a:3", "a:4"};

	machine = (struct member_machine){0};
	view = (struct member_view){
		.self_id = 1, .leader_id = 1, .leads = true, .last_index = 10000, .count = 4};
	for (uint32_t i = 0; i < 4; i++)
		view.node[i] = (struct member_node){.id = i + 1,
			.role = i < 3 ? CONS_VOTER : CONS_STANDBY,
			.answers = i > 0,
			.match_index = 10000,
			.address = addresses[i]};
	return 0;
}

static void begin(enum cons_change_op op, uint64_t id)
{
	struct cons_change change = {.op = (uint8_t)op, .id = id};

	if (op == CONS_ADD)
		strcpy(change.address, "a:9");
	member_begin(&machine, &change, &view, &step);
}

static void done(const char *error, bool unknown)
{
	member_done(&machine, error, unknown, &view, 0, &step);
}

static void expect_answer(enum cons_status status, const char *part)
{
	assert_int_equal(step.what, MEMBER_ANSWER);
	assert_int_equal(step.status, status);
	if (strstr(step.why, part) == NULL)
		fail_msg("'%s' does not say '%s'", step.why, part);
}

static void expect_refused(const char *part)
{
	expect_answer(CONS_REFUSED, part);
	assert_int_equal(machine.state, MEMBER_IDLE);
}

static void a_new_member_is_added_then_made_standby(void **state)
{
	begin(CONS_ADD, 9);
	assert_int_equal(step.what, MEMBER_ADD);
	assert_int_equal(step.id, 9);
	done(NULL, false);
	assert_int_equal(step.what, MEMBER_STANDBY);
	assert_int_equal(step.id, 9);
	done(NULL, false);
	expect_answer(CONS_OK, "");
	assert_int_equal(machine.state, MEMBER_IDLE);
}

static void ids_are_used_once(void **state)
{
	begin(CONS_ADD, 3);
	expect_refused("is a member");
	view.id_removed = true;
	begin(CONS_ADD, 9);
	expect_refused("was a member before");
	view.id_removed = false;
	begin(CONS_ADD, 0);
	expect_refused("needs an id");
}

static void addresses_are_used_once(void **state)
{
	struct cons_change change = {.op = CONS_ADD, .id = 9, .address = "a:3"};

	member_begin(&machine, &change, &view, &step);
	expect_refused("that of node 3");
	change.address[0] = '\0';
	member_begin(&machine, &change, &view, &step);
	expect_refused("address");
}

static void an_addition_cut_short_goes_on(void **state)
{
	view.node[3].role = CONS_SPARE;
	view.node[3].address = "a:9";
	begin(CONS_ADD, 4);
	assert_int_equal(step.what, MEMBER_STANDBY);
	setup(NULL);
	view.node[3].role = CONS_SPARE;
	begin(CONS_ADD, 4);
	expect_refused("is a member");
}

static void a_full_group_takes_nobody(void **state)
{
	view.count = CONS_MEMBERS_MAX;
	for (uint32_t i = 4; i < view.count; i++)
		view.node[i] = (struct member_node){
			.id = 100 + i, .role = CONS_STANDBY, .answers = true, .address = "b"};
	begin(CONS_ADD, 9);
	expect_refused("limit");
}

static void a_standby_that_caught_up_is_promoted(void **state)
{
	view.node[3].match_index = 9000;
	begin(CONS_PROMOTE, 4);
	assert_int_equal(step.what, MEMBER_VOTER);
	done(NULL, false);
	expect_answer(CONS_OK, "");
}

static void promotion_is_refused_to_who_cannot_vote_well(void **state)
{
	view.node[3].match_index = 10000 - MEMBER_BEHIND_MAX - 1;
	begin(CONS_PROMOTE, 4);
	expect_refused("4097 entries to go");
	view.node[3].match_index = 10000;
	view.node[3].answers = false;
	begin(CONS_PROMOTE, 4);
	expect_refused("does not answer");
	begin(CONS_PROMOTE, 2);
	expect_refused("voter already");
	begin(CONS_PROMOTE, 77);
	expect_refused("no member");
}

static void a_sixth_voter_is_refused(void **state)
{
	for (uint32_t i = 4; i < 6; i++)
		view.node[i] = (struct member_node){
			.id = i + 1, .role = CONS_VOTER, .answers = true, .address = "b"};
	view.count = 6;
	begin(CONS_PROMOTE, 4);
	expect_refused("limit");
}

static void nothing_changes_while_a_voter_is_silent(void **state)
{
	view.node[1].answers = false;
	begin(CONS_ADD, 9);
	expect_refused("voter 2 does not answer");
	begin(CONS_PROMOTE, 4);
	expect_refused("voter 2 does not answer");
	begin(CONS_REMOVE, 3);
	expect_refused("voter 2 does not answer");
	begin(CONS_REMOVE, 4);
	expect_refused("voter 2 does not answer");
}

static void the_silent_voter_itself_may_leave(void **state)
{
	view.node[1].answers = false;
	begin(CONS_REMOVE, 2);
	assert_int_equal(step.what, MEMBER_REMOVE);
	setup(NULL);
	view.node[1].answers = false;
	begin(CONS_DEMOTE, 2);
	assert_int_equal(step.what, MEMBER_STANDBY);
}

static void a_silent_standby_hinders_nothing(void **state)
{
	view.node[3].answers = false;
	begin(CONS_DEMOTE, 2);
	assert_int_equal(step.what, MEMBER_STANDBY);
	done(NULL, false);
	expect_answer(CONS_OK, "");
	begin(CONS_REMOVE, 4);
	assert_int_equal(step.what, MEMBER_REMOVE);
}

static void the_last_voter_stays(void **state)
{
	view.node[1].role = view.node[2].role = CONS_STANDBY;
	begin(CONS_REMOVE, 1);
	expect_refused("last voter");
	begin(CONS_DEMOTE, 1);
	expect_refused("last voter");
	begin(CONS_TRANSFER, 0);
	expect_refused("no other voter");
}

static void a_leader_hands_over_before_it_leaves(void **state)
{
	begin(CONS_REMOVE, 1);
	assert_int_equal(step.what, MEMBER_TRANSFER);
	assert_int_equal(step.id, 0);
	view.leads = false;
	view.leader_id = 0;
	done(NULL, false);
	assert_int_equal(step.what, MEMBER_WAIT);
	member_turn(&machine, &view, 1, &step);
	assert_int_equal(step.what, MEMBER_WAIT);
	view.leader_id = 3;
	member_turn(&machine, &view, 2, &step);
	assert_int_equal(step.what, MEMBER_FORWARD);
	member_turn(&machine, &view, 3, &step);
	assert_int_equal(step.what, MEMBER_WAIT);
	member_handed(&machine, CONS_OK, "", &step);
	expect_answer(CONS_OK, "");
}

static void a_hand_over_that_nobody_takes_is_refused(void **state)
{
	begin(CONS_DEMOTE, 1);
	done(NULL, false);
	assert_int_equal(step.what, MEMBER_WAIT);
	member_turn(&machine, &view, MEMBER_TRANSFER_NS, &step);
	expect_refused("leadership stayed");
}

static void leadership_is_transferred_to_whom_was_asked(void **state)
{
	begin(CONS_TRANSFER, 3);
	assert_int_equal(step.what, MEMBER_TRANSFER);
	assert_int_equal(step.id, 3);
	view.leader_id = 3;
	done(NULL, false);
	expect_answer(CONS_OK, "");
	begin(CONS_TRANSFER, 3);
	view.leader_id = 2;
	done(NULL, false);
	expect_refused("node 2 leads now");
	view.leader_id = 1;
	begin(CONS_TRANSFER, 1);
	expect_answer(CONS_OK, "");
	begin(CONS_TRANSFER, 4);
	expect_refused("no voter");
	view.node[2].answers = false;
	begin(CONS_TRANSFER, 3);
	expect_refused("does not answer");
}

static void one_change_at_a_time(void **state)
{
	begin(CONS_ADD, 9);
	begin(CONS_REMOVE, 3);
	expect_answer(CONS_REFUSED, "another change");
	// The first goes on.
	assert_int_equal(machine.state, MEMBER_ASKED);
	done(NULL, false);
	assert_int_equal(step.what, MEMBER_STANDBY);
	setup(NULL);
	view.library_busy = true;
	begin(CONS_REMOVE, 3);
	expect_refused("another change");
}

static void who_does_not_lead_says_so(void **state)
{
	view.leads = false;
	begin(CONS_ADD, 9);
	expect_answer(CONS_NOT_LEADER, "does not lead");
}

static void errors_of_the_library_end_a_change(void **state)
{
	begin(CONS_ADD, 9);
	done("some error", false);
	expect_refused("some error");
	begin(CONS_ADD, 9);
	done("leadership lost", true);
	expect_answer(CONS_UNKNOWN, "leadership");
	assert_int_equal(machine.state, MEMBER_IDLE);
	// Nothing is under way: nothing is answered twice.
	done(NULL, false);
	assert_int_equal(step.what, MEMBER_WAIT);
	member_handed(&machine, CONS_OK, "", &step);
	assert_int_equal(step.what, MEMBER_WAIT);
}

static void unknown_changes_are_refused(void **state)
{
	begin((enum cons_change_op)0, 2);
	expect_refused("unknown change");
	begin((enum cons_change_op)6, 2);
	expect_refused("unknown change");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		T(a_new_member_is_added_then_made_standby),
		T(ids_are_used_once),
		T(addresses_are_used_once),
		T(an_addition_cut_short_goes_on),
		T(a_full_group_takes_nobody),
		T(a_standby_that_caught_up_is_promoted),
		T(promotion_is_refused_to_who_cannot_vote_well),
		T(a_sixth_voter_is_refused),
		T(nothing_changes_while_a_voter_is_silent),
		T(the_silent_voter_itself_may_leave),
		T(a_silent_standby_hinders_nothing),
		T(the_last_voter_stays),
		T(a_leader_hands_over_before_it_leaves),
		T(a_hand_over_that_nobody_takes_is_refused),
		T(leadership_is_transferred_to_whom_was_asked),
		T(one_change_at_a_time),
		T(who_does_not_lead_says_so),
		T(errors_of_the_library_end_a_change),
		T(unknown_changes_are_refused),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
