/* SPDX-License-Identifier: BSD-3-Clause */
// History: what can be compared, and who has to go when it differs.
#include "unit.h"

#include "raft_chain.h"

static struct chain chain;
static const struct chain_peer *peer;

static int setup(void **state)
{
	chain_init(&chain);
	return 0;
}

static void told(uint64_t id, uint64_t index, uint64_t value)
{
	const struct chain_pair pair = {index, value};

	chain_told(&chain, id, &pair, 1, 1000);
}

static void equal_pairs_are_fine(void **state)
{
	for (uint64_t i = 1; i <= 20000; i++)
		chain_own(&chain, i, i * 7, i);
	told(2, 20000, 140000);
	told(3, 19000, 133000);
	assert_int_equal(chain.checked, 2);
	assert_int_equal(chain_judge(&chain, 3, 0, &peer), CHAIN_FINE);
	assert_null(peer);
}

static void what_is_too_old_or_between_cannot_be_compared(void **state)
{
	for (uint64_t i = 1; i <= 2 * CHAIN_OWN_COUNT; i++)
		chain_own(&chain, i * 2, i, i);
	told(2, 2, 999);  // fell out of the ring
	told(3, 4 * CHAIN_OWN_COUNT - 1, 999);  // no end of a turn of ours
	assert_int_equal(chain.checked, 0);
	assert_int_equal(chain_judge(&chain, 3, 0, &peer), CHAIN_FINE);
}

static void what_is_ahead_is_compared_when_it_is_reached(void **state)
{
	chain_own(&chain, 10, 1, 1);
	told(2, 12, 5);
	assert_int_equal(chain_judge(&chain, 3, 0, &peer), CHAIN_FINE);
	chain_own(&chain, 12, 6, 2);
	assert_int_equal(chain_judge(&chain, 3, 0, &peer), CHAIN_WAIT);
	assert_int_equal(peer->id, 2);
	assert_int_equal(peer->at, 12);
	assert_int_equal(peer->own, 6);
	assert_int_equal(peer->theirs, 5);
}

static void what_was_passed_over_is_not_compared(void **state)
{
	chain_own(&chain, 10, 1, 1);
	told(2, 12, 5);
	chain_own(&chain, 13, 6, 2);
	chain_own(&chain, 14, 7, 2);
	assert_int_equal(chain.checked, 0);
}

static void the_minority_is_wrong(void **state)
{
	chain_own(&chain, 10, 1, 1);
	told(2, 10, 2);
	assert_int_equal(chain_judge(&chain, 3, 2000, &peer), CHAIN_WAIT);
	told(3, 10, 2);
	assert_int_equal(chain_judge(&chain, 3, 2000, &peer), CHAIN_SELF_WRONG);
	setup(NULL);
	chain_own(&chain, 10, 1, 1);
	told(2, 10, 2);
	told(3, 10, 1);
	assert_int_equal(chain_judge(&chain, 3, 2000, &peer), CHAIN_OTHER_WRONG);
	assert_int_equal(peer->id, 2);
	// However long it stays so.
	assert_int_equal(chain_judge(&chain, 3, UINT64_MAX, &peer), CHAIN_OTHER_WRONG);
}

static void who_cannot_tell_is_wrong_after_the_grace(void **state)
{
	chain_own(&chain, 10, 1, 1);
	told(2, 10, 2);
	assert_int_equal(chain_judge(&chain, 2, 1000 + CHAIN_GRACE_NS - 1, &peer), CHAIN_WAIT);
	assert_int_equal(chain_judge(&chain, 2, 1000 + CHAIN_GRACE_NS, &peer), CHAIN_SELF_WRONG);
	assert_int_equal(chain_judge(&chain, 5, 1000 + CHAIN_GRACE_NS, &peer), CHAIN_SELF_WRONG);
	told(3, 10, 1);
	assert_int_equal(chain_judge(&chain, 5, 1000 + CHAIN_GRACE_NS, &peer), CHAIN_OTHER_WRONG);
}

static void a_difference_is_not_outweighed_by_older_words(void **state)
{
	chain_own(&chain, 9, 8, 1);
	chain_own(&chain, 10, 1, 1);
	told(2, 10, 2);
	told(2, 9, 8);
	assert_int_equal(chain_judge(&chain, 3, 2000, &peer), CHAIN_WAIT);
	// A member that took the others' state anew is fine again.
	chain_own(&chain, 11, 4, 1);
	told(2, 11, 4);
	assert_int_equal(chain_judge(&chain, 3, 2000, &peer), CHAIN_FINE);
	assert_int_equal(chain.differs_since_ns, 0);
}

static void who_is_no_member_any_more_does_not_count(void **state)
{
	const uint64_t ids[] = {3};

	chain_own(&chain, 10, 1, 1);
	told(2, 10, 2);
	chain_keep(&chain, ids, 1);
	assert_int_equal(chain_judge(&chain, 2, UINT64_MAX, &peer), CHAIN_FINE);
}

static void going_back_forgets(void **state)
{
	struct chain_pair pairs[CHAIN_TOLD_MAX];

	chain_own(&chain, 10, 1, 1);
	chain_own(&chain, 11, 2, 1);
	chain_own(&chain, 5, 9, 1);
	told(2, 10, 77);
	assert_int_equal(chain.checked, 0);
	assert_int_equal(chain_tell(&chain, pairs), 1);
	assert_int_equal(pairs[0].index, 5);
}

static void the_newest_pairs_are_told(void **state)
{
	struct chain_pair pairs[CHAIN_TOLD_MAX], last;

	assert_int_equal(chain_tell(&chain, pairs), 0);
	for (uint64_t i = 1; i <= 3 * CHAIN_OWN_COUNT; i++)
		chain_own(&chain, i, i + 1, i);
	assert_int_equal(chain_tell(&chain, pairs), CHAIN_TOLD_MAX);
	assert_int_equal(pairs[CHAIN_TOLD_MAX - 1].index, 3 * CHAIN_OWN_COUNT);
	assert_int_equal(pairs[0].index, 3 * CHAIN_OWN_COUNT - CHAIN_TOLD_MAX + 1);
	chain_told(&chain, 4, pairs, CHAIN_TOLD_MAX, 1);
	assert_true(chain_last(&chain, 4, &last));
	assert_int_equal(last.index, 3 * CHAIN_OWN_COUNT);
	assert_false(chain_last(&chain, 5, &last));
}

static void more_tellers_than_members_are_not_kept(void **state)
{
	for (uint64_t id = 2; id < 1000; id++)
		told(id, 5, id);
	assert_int_equal(chain.peer_count, CONS_MEMBERS_MAX);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, setup)
	const struct CMUnitTest tests[] = {
		T(equal_pairs_are_fine),
		T(what_is_too_old_or_between_cannot_be_compared),
		T(what_is_ahead_is_compared_when_it_is_reached),
		T(what_was_passed_over_is_not_compared),
		T(the_minority_is_wrong),
		T(who_cannot_tell_is_wrong_after_the_grace),
		T(a_difference_is_not_outweighed_by_older_words),
		T(who_is_no_member_any_more_does_not_count),
		T(going_back_forgets),
		T(the_newest_pairs_are_told),
		T(more_tellers_than_members_are_not_kept),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
