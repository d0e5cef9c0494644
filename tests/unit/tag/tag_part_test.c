/* SPDX-License-Identifier: BSD-3-Clause */
#include "tag_parts_fixture.h"

#include <errno.h>

CONTROL_ONLY static void members_are_split_by_the_owner_of_their_slot(void **state)
{
	struct fixture *f = parts_fixture(1000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 500, 5);
	const struct tag *const local = tag_parts_local(p);
	uint32_t count = 0;

	(void)state;
	for (uint64_t node = 1; node <= NODES; node++) {
		check_shape(part_of(p, node));
		count += part_of(p, node)->count;
	}
	assert_int_equal(count, 500);
	assert_int_equal(tag_parts_members(p), 500);
	for (uint32_t n = 0; n < 500; n++)
		assert_true(parts_have(f, p, n));
	assert_int_equal(local->fence.version, 1);
	assert_int_equal(local->smv, 5);
	assert_int_equal(local->targets->count, 2);
	assert_int_equal(local->targets->target[0].node, 2);
	assert_int_equal(local->targets->target[0].members, tag_parts_body(p, 2)->count);
	assert_int_equal(local->targets->target[1].node, 3);
	assert_int_equal(tag_topology(local)->count, 10);
	for (uint32_t i = 0; i < tag_topology(tag_parts_body(p, 2))->count; i++)
		assert_int_equal(tag_topology(tag_parts_body(p, 2))->slot[i].leader, 2);
	tag_parts_retire(f->space, p);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	assert_int_equal(tag_space_bytes(f->space), 0);
	fixture_free(f);
}

CONTROL_ONLY static void an_edit_touches_the_body_concerned_alone(void **state)
{
	struct fixture *f = parts_fixture(1000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 300, 1);
	const struct tag *const two = tag_parts_body(p, 2), *const three = tag_parts_body(p, 3);
	const struct tag_fence was = tag_parts_local(p)->fence;
	uint32_t n = 300;

	(void)state;
	while (owner(f, n) != 3)
		n++;
	assert_int_equal(parts_edit(f, &p, &n, 1, NULL, 0), 0);
	assert_ptr_equal(tag_parts_body(p, 2), two);
	assert_ptr_not_equal(tag_parts_body(p, 3), three);
	assert_int_equal(tag_parts_body(p, 3)->count, three->count + 1);
	assert_memory_equal(tag_parts_local(p)->fence.key, was.key, 16);
	assert_int_equal(tag_parts_local(p)->fence.version, 2);
	assert_int_equal(tag_parts_local(p)->smv, 2);
	assert_int_equal(tag_parts_local(p)->targets->target[1].members, three->count + 1);
	assert_int_equal(tag_parts_members(p), 301);
	assert_true(parts_have(f, p, n));
	tag_parts_retire(f->space, p);
	fixture_free(f);
}

CONTROL_ONLY static void a_slot_that_loses_its_last_member_leaves_the_reference(void **state)
{
	struct fixture *f = parts_fixture(1000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 1, 1);
	uint32_t other = 1;
	const uint32_t zero = 0;

	(void)state;
	while (topology_slot_of(&f->topology, uid_of(f, other)) ==
		topology_slot_of(&f->topology, uid_of(f, 0)))
		other++;
	assert_int_equal(tag_topology(tag_parts_local(p))->count, 1);
	assert_int_equal(parts_edit(f, &p, &other, 1, NULL, 0), 0);
	assert_int_equal(tag_topology(tag_parts_local(p))->count, 2);
	assert_int_equal(parts_edit(f, &p, &other, 1, &other, 1), 0);  // stays: the add wins
	assert_int_equal(tag_topology(tag_parts_local(p))->count, 2);
	assert_int_equal(parts_edit(f, &p, NULL, 0, &zero, 1), 0);
	assert_int_equal(tag_topology(tag_parts_local(p))->count, 1);
	assert_int_equal(tag_topology(tag_parts_local(p))->slot[0].slot,
		topology_slot_of(&f->topology, uid_of(f, other)));
	assert_int_equal(parts_edit(f, &p, NULL, 0, &other, 1), 0);
	assert_int_equal(tag_topology(tag_parts_local(p))->count, 0);
	assert_null(tag_parts_local(p)->targets);
	assert_int_equal(tag_parts_members(p), 0);
	tag_parts_retire(f->space, p);
	fixture_free(f);
}

CONTROL_ONLY static void an_unknown_owner_makes_no_tag(void **state)
{
	struct fixture *f = parts_fixture(100, 1 << 20, 8);
	struct tag_parts *p = NULL;
	uint32_t uid[50];

	(void)state;
	for (uint32_t n = 0; n < 50; n++)
		uid[n] = hold(f, n);
	f->topology.slot[topology_slot_of(&f->topology, uid_of(f, 30)) - 1].leader = 0;
	assert_int_equal(tag_parts_build(f->space, &f->topology, SELF, uid, 50, 1, &p), -EAGAIN);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	assert_int_equal(tag_space_bytes(f->space), 0);
	fixture_free(f);
}

CONTROL_ONLY static void over_another_topology_an_edit_is_refused_and_a_rebuild_keeps_the_key(
	void **state)
{
	struct fixture *f = parts_fixture(1000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 300, 7), *next = NULL;
	const struct tag_fence was = tag_parts_local(p)->fence;
	uint32_t uid[300];
	const uint32_t n = 400;

	(void)state;
	f->topology.slot[3].leader = 3;
	f->topology.slot[3].term++;
	assert_int_equal(parts_edit(f, &p, &n, 1, NULL, 0), -EAGAIN);
	assert_int_equal(tag_parts_gather(f->space, p, uid), 300);
	assert_int_equal(tag_parts_rebuild(f->space, p, &f->topology, uid, 300, 7, &next), 0);
	assert_memory_equal(tag_parts_local(next)->fence.key, was.key, 16);
	assert_int_equal(tag_parts_local(next)->fence.version, 2);
	tag_parts_retire(f->space, p);
	for (uint32_t i = 0; i < 300; i++)
		assert_true(parts_have(f, next, i));
	assert_int_equal(parts_edit(f, &next, &n, 1, NULL, 0), 0);
	assert_true(parts_have(f, next, n));
	tag_parts_retire(f->space, next);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	assert_int_equal(tag_space_bytes(f->space), 0);
	fixture_free(f);
}

CONTROL_ONLY static void repeats_are_folded_wherever_they_go(void **state)
{
	struct fixture *f = parts_fixture(1000, 1 << 22, 8);
	struct tag_parts *p = NULL;
	uint32_t uid[90], add[6];

	(void)state;
	for (uint32_t n = 0; n < 90; n++)
		uid[n] = hold(f, n % 30);
	assert_int_equal(tag_parts_build(f->space, &f->topology, SELF, uid, 90, 1, &p), 0);
	assert_int_equal(tag_parts_members(p), 30);
	for (uint32_t i = 0; i < 6; i++)
		add[i] = 40 + i / 2;
	assert_int_equal(parts_edit(f, &p, add, 6, NULL, 0), 0);
	assert_int_equal(tag_parts_members(p), 33);
	tag_parts_retire(f->space, p);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

// Whatever allocation or budget ends an edit: the version before stays whole, and can be rebuilt.
CONTROL_ONLY static void without_budget_the_version_before_stays_and_can_be_rebuilt(void **state)
{
	uint32_t failed = 0;

	(void)state;
	for (uint64_t budget = 4000; budget < 16000; budget += 100) {
		struct fixture *f = parts_fixture(3000, budget, 4);
		struct tag_parts *p = NULL, *next = NULL;
		uint32_t uid[600], add[300];
		int rc;

		for (uint32_t n = 0; n < 600; n++)
			uid[n] = hold(f, n);
		rc = tag_parts_build(f->space, &f->topology, SELF, uid, 600, 1, &p);
		if (rc == 0) {
			for (uint32_t i = 0; i < 300; i++)
				add[i] = 1000 + i;
			rc = parts_edit(f, &p, add, 300, NULL, 0);
			failed += rc != 0;
			if (rc != 0) {
				assert_int_equal(rc, -ENOMEM);
				for (uint32_t n = 0; n < 600; n++)
					assert_true(parts_have(f, p, n));
				assert_int_equal(tag_parts_members(p), 600);
				settle(f);
				assert_int_equal(tag_parts_gather(f->space, p, uid), 600);
				if (tag_parts_rebuild(
					    f->space, p, &f->topology, uid, 600, 2, &next) == 0) {
					tag_parts_retire(f->space, p);
					p = next;
				}
				assert_int_equal(tag_parts_members(p), 600);
			}
			tag_parts_retire(f->space, p);
		}
		settle(f);
		assert_int_equal(presence_uid_count(f->presence), 0);
		assert_int_equal(tag_space_bytes(f->space), 0);
		fixture_free(f);
	}
	assert_int_not_equal(failed, 0);
}

// --- against a model ----------------------------------------------------------------------------------

enum { UNIVERSE = 3000, ROUNDS = 3000 };

CONTROL_ONLY static void random_edits_match_a_set(void **state)
{
	static bool model[UNIVERSE];
	struct fixture *f = parts_fixture(UNIVERSE + 10, 1 << 26, 8);
	struct tag_parts *p = parts_range(f, 0, 0, 1);
	uint32_t seed = 11;

	(void)state;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t list[2][40], n[2], members = 0, slots = 0;
		static uint32_t in_slot[11];

		for (uint32_t k = 0; k < 2; k++) {
			seed = seed * 1664525 + 1013904223;
			n[k] = (seed >> 8) % (round % 50 == 0 ? 40 : 4);
			for (uint32_t i = 0; i < n[k]; i++) {
				seed = seed * 1664525 + 1013904223;
				list[k][i] = (seed >> 8) % UNIVERSE;
			}
		}
		assert_int_equal(parts_edit(f, &p, list[0], n[0], list[1], n[1]), 0);
		for (uint32_t i = 0; i < n[1]; i++)
			model[list[1][i]] = false;
		for (uint32_t i = 0; i < n[0]; i++)
			model[list[0][i]] = true;
		assert_int_equal(tag_parts_local(p)->fence.version, round + 2);
		if (round % 16 == 0)
			settle(f);
		if (round % 100 != 0)
			continue;
		memset(in_slot, 0, sizeof(in_slot));
		for (uint32_t i = 0; i < UNIVERSE; i++) {
			assert_int_equal(parts_have(f, p, i), model[i]);
			members += model[i];
			if (model[i])
				in_slot[topology_slot_of(&f->topology, uid_of(f, i))]++;
		}
		for (uint32_t s = 1; s <= 10; s++) {
			slots += in_slot[s] != 0;
			assert_int_equal(p->slot_members[s], in_slot[s]);
		}
		assert_int_equal(tag_parts_members(p), members);
		assert_int_equal(tag_topology(tag_parts_local(p))->count, slots);
	}
	tag_parts_retire(f->space, p);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	assert_int_equal(tag_space_bytes(f->space), 0);
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_are_split_by_the_owner_of_their_slot),
		cmocka_unit_test(an_edit_touches_the_body_concerned_alone),
		cmocka_unit_test(a_slot_that_loses_its_last_member_leaves_the_reference),
		cmocka_unit_test(an_unknown_owner_makes_no_tag),
		cmocka_unit_test(
			over_another_topology_an_edit_is_refused_and_a_rebuild_keeps_the_key),
		cmocka_unit_test(repeats_are_folded_wherever_they_go),
		cmocka_unit_test(without_budget_the_version_before_stays_and_can_be_rebuilt),
		cmocka_unit_test(random_edits_match_a_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
