/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "topology.h"

static struct id_view id(const char *s)
{
	return id_view_of(s, (uint8_t)strlen(s));
}

static void the_initial_table_is_contiguous_and_first_slots_get_more(void **state)
{
	static struct topology t;

	(void)state;
	assert_int_equal(topology_init(&t, 256, 10, 7), 0);
	for (uint32_t h = 0; h < 256; h++)
		assert_int_equal(t.slot_of[h], h < 156 ? h / 26 + 1 : (h - 156) / 25 + 7);
	assert_int_equal(t.slot_of[25], 1);
	assert_int_equal(t.slot_of[26], 2);
	assert_int_equal(t.slot_of[155], 6);
	assert_int_equal(t.slot_of[156], 7);
	assert_int_equal(t.slot_of[231], 10);
	assert_int_equal(t.slot_of[255], 10);
}

static void ids_lead_to_their_slots(void **state)
{
	static struct topology t;

	(void)state;
	assert_int_equal(topology_init(&t, 256, 10, 7), 0);
	assert_int_equal(topology_slot_of(&t, id("u1")), 118 / 26 + 1);
	assert_int_equal(topology_slot_of(&t, id("u2")), (204 - 156) / 25 + 7);
	assert_int_equal(topology_slot_of(&t, id("alice")), 71 / 26 + 1);
	assert_int_equal(topology_slot_of(&t, id("bob")), 64 / 26 + 1);
	assert_int_equal(topology_slot_of(&t, id("user1")), 85 / 26 + 1);
	assert_int_equal(topology_leader_of(&t, id("u1")), 7);
	t.slot[118 / 26].leader = 0;
	assert_int_equal(topology_leader_of(&t, id("u1")), 0);
	t.slot_of[204] = 0;
	assert_int_equal(topology_leader_of(&t, id("u2")), 0);
}

static void counts_out_of_range_are_refused(void **state)
{
	static struct topology t;

	(void)state;
	assert_int_equal(topology_init(&t, 0, 1, 1), -EINVAL);
	assert_int_equal(topology_init(&t, HASH_SLOTS_MAX + 1, 1, 1), -EINVAL);
	assert_int_equal(topology_init(&t, 256, 0, 1), -EINVAL);
	assert_int_equal(topology_init(&t, 256, 257, 1), -EINVAL);
	assert_int_equal(topology_init(&t, 4, 5, 1), -EINVAL);
	assert_int_equal(topology_init(&t, 256, 10, 0), -EINVAL);
	assert_int_equal(topology_init(&t, HASH_SLOTS_MAX, 256, 1), 0);
}

static void a_reference_holds_each_slot_once_in_order(void **state)
{
	static struct topology t;
	static struct topology_ref ref;

	(void)state;
	topology_init(&t, 256, 10, 7);
	topology_ref_begin(&ref, &t);
	assert_int_equal(topology_ref_add(&ref, &t, 9), 0);
	assert_int_equal(topology_ref_add(&ref, &t, 2), 0);
	assert_int_equal(topology_ref_add(&ref, &t, 9), 0);
	assert_int_equal(topology_ref_add(&ref, &t, 5), 0);
	assert_int_equal(ref.count, 3);
	assert_int_equal(ref.slot[0].slot, 2);
	assert_int_equal(ref.slot[1].slot, 5);
	assert_int_equal(ref.slot[2].slot, 9);
	assert_int_equal(topology_ref_add(&ref, &t, 0), -EAGAIN);
	assert_int_equal(topology_ref_add(&ref, &t, 11), -EAGAIN);
	t.slot[2].leader = 0;
	assert_int_equal(topology_ref_add(&ref, &t, 3), -EAGAIN);
}

static void each_part_of_the_shape_counts_and_unrelated_slots_do_not(void **state)
{
	static struct topology t, changed;
	static struct topology_ref ref;

	(void)state;
	topology_init(&t, 256, 10, 7);
	topology_ref_begin(&ref, &t);
	assert_int_equal(topology_ref_add(&ref, &t, 4), 0);
	assert_int_equal(topology_ref_add(&ref, &t, 6), 0);
	assert_true(topology_ref_current(&ref, &t));

	changed = t, changed.version++;
	assert_false(topology_ref_current(&ref, &changed));
	changed = t, changed.slot[5].leader = 8;
	assert_false(topology_ref_current(&ref, &changed));
	changed = t, changed.slot[5].leader = 0;
	assert_false(topology_ref_current(&ref, &changed));
	changed = t, changed.slot[5].term++;
	assert_false(topology_ref_current(&ref, &changed));
	changed = t, changed.slot[5].config_epoch++;
	assert_false(topology_ref_current(&ref, &changed));
	changed = t, changed.slot[5].balance_version++;
	assert_false(topology_ref_current(&ref, &changed));
	changed = t, changed.slot[6].leader = 8, changed.slot[6].term = 9;
	assert_true(topology_ref_current(&ref, &changed));
}

static void an_unknown_leader_equals_nothing_not_even_itself(void **state)
{
	static struct topology t;
	static struct topology_ref ref;

	(void)state;
	topology_init(&t, 256, 10, 7);
	topology_ref_begin(&ref, &t);
	assert_int_equal(topology_ref_add(&ref, &t, 4), 0);
	ref.slot[0].leader = 0;
	t.slot[3].leader = 0;
	assert_false(topology_ref_current(&ref, &t));
}

static void config_epoch_0_is_an_absent_assignment(void **state)
{
	static struct topology t;
	static struct topology_ref ref;

	(void)state;
	topology_init(&t, 256, 10, 7);
	topology_ref_begin(&ref, &t);
	assert_int_equal(topology_ref_add(&ref, &t, 4), 0);
	t.slot[3].config_epoch = ref.slot[0].config_epoch = 0;
	assert_false(topology_ref_current(&ref, &t));
	assert_int_equal(topology_ref_add(&ref, &t, 5), 0);
	t.slot[4].term = 0;
	assert_null(topology_slot_known(&t, 5));
}

static void references_are_equal_only_as_a_whole(void **state)
{
	static struct topology t;
	static struct topology_ref a, b;

	(void)state;
	topology_init(&t, 256, 10, 7);
	topology_ref_begin(&a, &t);
	assert_int_equal(topology_ref_add(&a, &t, 4), 0);
	assert_int_equal(topology_ref_add(&a, &t, 6), 0);
	b = a;
	assert_true(topology_ref_equal(&a, &b));
	b.count = 1;  // a part of the set is not the set
	assert_false(topology_ref_equal(&a, &b));
	assert_false(topology_ref_equal(&b, &a));
	b = a, b.slot[1].slot = 7;
	assert_false(topology_ref_equal(&a, &b));
	b = a, b.version++;
	assert_false(topology_ref_equal(&a, &b));
	b = a, b.slot[0].leader = 8;
	assert_false(topology_ref_equal(&a, &b));
	b = a, b.slot[0].term++;
	assert_false(topology_ref_equal(&a, &b));
	b = a, b.slot[0].config_epoch++;
	assert_false(topology_ref_equal(&a, &b));
	b = a, b.slot[0].balance_version++;
	assert_false(topology_ref_equal(&a, &b));
	b = a, a.slot[1].leader = b.slot[1].leader = 0;
	assert_false(topology_ref_equal(&a, &b));
	a.count = b.count = 0;
	assert_true(topology_ref_equal(&a, &b));
	a.version = b.version = 0;
	assert_false(topology_ref_equal(&a, &b));
}

static void told_assignments_come_in_order_and_known(void **state)
{
	struct topology_slot s = {.slot = 3, .leader = 1, .term = 1, .config_epoch = 1};
	static struct topology_ref ref;

	(void)state;
	ref.version = 1;
	assert_int_equal(topology_ref_push(&ref, &s), 0);
	assert_int_equal(topology_ref_push(&ref, &s), -EINVAL);
	s.slot = 2;
	assert_int_equal(topology_ref_push(&ref, &s), -EINVAL);
	s.slot = TOPOLOGY_SLOTS_MAX + 1;
	assert_int_equal(topology_ref_push(&ref, &s), -EINVAL);
	s.slot = 4, s.leader = 0;
	assert_int_equal(topology_ref_push(&ref, &s), -EINVAL);
	s.leader = 1;
	assert_int_equal(topology_ref_push(&ref, &s), 0);
	assert_int_equal(ref.count, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_initial_table_is_contiguous_and_first_slots_get_more),
		cmocka_unit_test(ids_lead_to_their_slots),
		cmocka_unit_test(counts_out_of_range_are_refused),
		cmocka_unit_test(a_reference_holds_each_slot_once_in_order),
		cmocka_unit_test(each_part_of_the_shape_counts_and_unrelated_slots_do_not),
		cmocka_unit_test(an_unknown_leader_equals_nothing_not_even_itself),
		cmocka_unit_test(config_epoch_0_is_an_absent_assignment),
		cmocka_unit_test(references_are_equal_only_as_a_whole),
		cmocka_unit_test(told_assignments_come_in_order_and_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
