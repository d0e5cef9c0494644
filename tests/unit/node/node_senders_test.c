/* SPDX-License-Identifier: BSD-3-Clause */
// The table of senders: who is kept, who is displaced, and that strangers keep nobody out.
#include "unit.h"

#include "base_time.h"
#include "node_pvt.h"

enum { LIMIT = 64, MANY = 4096 };

static struct node_sender *take(struct node_senders *s, uint64_t sender, uint64_t now_ns)
{
	const struct wire_header header = {.sender = sender, .boot = 1, .lane = 0, .seq = 1};
	struct node_sender *e;

	role_take_worker();
	e = node_senders_take(s, &header, now_ns);
	role_drop_worker();
	return e;
}

static struct node_senders *full_of_strangers(uint32_t limit)
{
	struct node_senders *s = node_senders_create(limit, limit);

	assert_non_null(s);
	for (uint64_t i = 0; i < 2 * limit; i++)
		take(s, 100000 + i, NS_PER_S);
	assert_int_equal(node_senders_count(s), limit);
	return s;
}

static void a_sender_is_found_again(void **state)
{
	struct node_senders *s = node_senders_create(LIMIT, LIMIT);
	struct node_sender *e = take(s, 7, NS_PER_S);

	(void)state;
	assert_non_null(e);
	assert_ptr_equal(take(s, 7, 2 * NS_PER_S), e);
	assert_int_equal(e->heard_ns, 2 * NS_PER_S);
	assert_int_equal(node_senders_count(s), 1);
	node_senders_destroy(s);
}

static void strangers_who_fill_the_table_keep_nobody_out(void **state)
{
	// Large enough that some sets of the table stay empty.
	struct node_senders *s = full_of_strangers(MANY);

	(void)state;
	for (uint64_t sender = 1; sender <= MANY / 2; sender++)
		assert_non_null(take(s, sender, NS_PER_S));
	assert_int_equal(node_senders_count(s), MANY);
	node_senders_destroy(s);
}

static void a_proven_sender_is_displaced_only_after_a_long_silence(void **state)
{
	struct node_senders *s = node_senders_create(LIMIT, LIMIT);
	uint32_t got = 0;

	(void)state;
	for (uint64_t i = 0; i < LIMIT; i++) {
		struct node_sender *e = take(s, 1 + i, NS_PER_S);

		if (e != NULL)
			e->state = NODE_SENDER_PROVEN;
	}
	for (uint64_t i = 0; i < 8 * LIMIT; i++)
		if (node_senders_count(s) == LIMIT)
			got += take(s, 100000 + i, 2 * NS_PER_S) != NULL;
		else
			take(s, 1000 + i, NS_PER_S)->state = NODE_SENDER_PROVEN;
	assert_int_equal(got, 0);
	assert_non_null(take(s, 500000, 1000 * NS_PER_S));
	node_senders_destroy(s);
}

static struct node_sender *prove(
	struct node_senders *s, uint64_t sender, uint32_t ip, uint64_t now_ns)
{
	struct node_sender *e = take(s, sender, now_ns);

	if (e == NULL)
		return NULL;
	role_take_worker();
	node_senders_prove(s, e, (struct net_addr){.ip = ip, .port = 1});
	role_drop_worker();
	return e;
}

static void one_address_has_its_share_of_proven_senders(void **state)
{
	struct node_senders *s = node_senders_create(LIMIT, LIMIT / 4);
	uint32_t proven = 0;

	(void)state;
	for (uint64_t i = 0; i < 50 * LIMIT; i++)
		assert_non_null(prove(s, 1000 + i, 9, NS_PER_S));
	for (uint64_t i = 0; i < 50 * LIMIT; i++) {
		// Another address finds room, whoever filled the table.
		const struct node_sender *e =
			prove(s, 900000 + i % 8, 100 + (uint32_t)i % 8, NS_PER_S);

		assert_non_null(e);
		assert_int_equal(e->state, NODE_SENDER_PROVEN);
	}
	for (uint64_t i = 0; i < 50 * LIMIT; i++) {
		const struct node_sender *e = take(s, 1000 + i, NS_PER_S);

		proven += e != NULL && e->state == NODE_SENDER_PROVEN;
	}
	assert_true(proven <= LIMIT / 4);
	node_senders_destroy(s);
}

static void longest_silent_of_an_address_goes_first(void **state)
{
	struct node_senders *s = node_senders_create(LIMIT, 4);
	struct node_sender *e[5];

	(void)state;
	for (uint64_t i = 0; i < 4; i++)
		e[i] = prove(s, 1 + i, 9, NS_PER_S + i);
	take(s, 1, 2 * NS_PER_S);  // heard of again: the second is the longest silent
	e[4] = prove(s, 5, 9, 3 * NS_PER_S);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(e[i]->state, i == 1 ? NODE_SENDER_UNPROVEN : NODE_SENDER_PROVEN);
	assert_int_equal(e[1]->addr.port, 0);  // must echo its cookie again
	node_senders_destroy(s);
}

static void sender_that_moves_counts_for_its_new_address(void **state)
{
	struct node_senders *s = node_senders_create(LIMIT, 1);
	struct node_sender *e = prove(s, 1, 9, NS_PER_S);

	(void)state;
	for (uint32_t i = 0; i < 1000; i++) {
		assert_ptr_equal(prove(s, 1, 10 + i % 3, NS_PER_S), e);
		assert_int_equal(e->state, NODE_SENDER_PROVEN);
		assert_int_equal(e->addr.ip, 10 + i % 3);
	}
	assert_int_equal(prove(s, 2, 9, NS_PER_S)->state, NODE_SENDER_PROVEN);
	assert_int_equal(e->state, NODE_SENDER_PROVEN);
	node_senders_destroy(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sender_is_found_again),
		cmocka_unit_test(strangers_who_fill_the_table_keep_nobody_out),
		cmocka_unit_test(a_proven_sender_is_displaced_only_after_a_long_silence),
		cmocka_unit_test(one_address_has_its_share_of_proven_senders),
		cmocka_unit_test(longest_silent_of_an_address_goes_first),
		cmocka_unit_test(sender_that_moves_counts_for_its_new_address),
	};

	id_hash_seed(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
