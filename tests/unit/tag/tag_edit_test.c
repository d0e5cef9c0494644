/* SPDX-License-Identifier: BSD-3-Clause */
#include "tag_fixture.h"

CONTROL_ONLY static void an_edit_moves_the_version_by_one_and_leaves_the_old_tag_alone(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *a = build_range(f, 0, 10, 5), *b;
	const uint32_t add[] = {20, 3}, remove[] = {4, 30};

	(void)state;
	hold(f, 30);
	b = edit_names(f, a, add, 2, remove, 2);
	assert_memory_equal(a->fence.key, b->fence.key, 16);
	assert_int_equal(b->fence.version, 2);
	assert_int_equal(b->smv, 6);
	assert_int_equal(a->fence.version, 1);
	assert_int_equal(a->count, 10);
	assert_int_equal(b->count, 10);
	assert_true(tag_has(a, presence_uid_find(f->presence, uid_of(f, 4))));
	assert_false(tag_has(b, presence_uid_find(f->presence, uid_of(f, 4))));
	assert_true(tag_has(b, presence_uid_find(f->presence, uid_of(f, 20))));
	fixture_free(f);
}

CONTROL_ONLY static void a_small_edit_copies_only_the_chunk_it_hits(void **state)
{
	struct fixture *f = fixture_new(40000, 1 << 24, 8);
	struct tag *a = build_range(f, 0, 30000, 1), *b;
	const uint32_t remove = 15000;
	uint32_t shared = 0;

	(void)state;
	b = edit_names(f, a, NULL, 0, &remove, 1);
	check_shape(b);
	assert_int_equal(a->chunks, b->chunks);
	for (uint32_t i = 0; i < a->chunks; i++)
		shared += a->chunk[i] == b->chunk[i];
	assert_int_equal(shared, a->chunks - 1);
	fixture_free(f);
}

CONTROL_ONLY static void an_edit_that_changes_nothing_shares_every_chunk(void **state)
{
	struct fixture *f = fixture_new(40000, 1 << 24, 8);
	struct tag *a = build_range(f, 0, 10000, 1), *b;
	const uint32_t there = 500;

	(void)state;
	b = edit_names(f, a, &there, 1, NULL, 0);
	assert_int_equal(b->fence.version, 2);
	for (uint32_t i = 0; i < a->chunks; i++)
		assert_ptr_equal(a->chunk[i], b->chunk[i]);
	fixture_free(f);
}

CONTROL_ONLY static void denial_is_a_flag_of_members_only(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *a = build_range(f, 0, 3, 1), *b, *c;
	const uint32_t set[] = {hold(f, 1), hold(f, 50)};
	const struct tag_edit deny = {.deny_set = set, .deny_sets = 2, .smv = 2};
	const struct tag_edit allow = {.deny_clear = set, .deny_clears = 2, .smv = 3};

	(void)state;
	b = tag_edit(f->space, a, &deny);
	assert_int_equal(b->count, 3);
	assert_int_equal(b->chunk[0]->uid[1], set[0] | TAG_DENIED);
	assert_int_equal(a->chunk[0]->uid[1], set[0]);
	assert_true(tag_has(b, set[0]));
	c = tag_edit(f->space, b, &allow);
	assert_int_equal(c->chunk[0]->uid[1], set[0]);
	fixture_free(f);
}

CONTROL_ONLY static void an_added_member_may_come_denied(void **state)
{
	struct fixture *f = fixture_new(100, 1 << 20, 8);
	struct tag *a = build_range(f, 0, 3, 1), *b;
	const uint32_t add = hold(f, 9) | TAG_DENIED;
	const struct tag_edit e = {.add = &add, .adds = 1, .smv = 2};

	(void)state;
	b = tag_edit(f->space, a, &e);
	assert_int_equal(b->chunk[0]->uid[3], add);
	fixture_free(f);
}

CONTROL_ONLY static void chunks_split_when_full_and_merge_when_small(void **state)
{
	enum { N = 9000 };
	struct fixture *f = fixture_new(20000, 1 << 24, 0);
	struct tag *tag = build_range(f, 0, 3000, 1), *next;

	(void)state;
	assert_int_equal(tag->chunks, 1);
	for (uint32_t i = 3000; i < N; i++) {
		next = edit_names(f, tag, &i, 1, NULL, 0);
		tag_retire(f->space, tag);
		tag = next;
		if (i % 500 == 0)
			settle(f);
	}
	check_shape(tag);
	assert_int_equal(tag->count, N);
	assert_in_range(tag->chunks, 3, 5);
	for (uint32_t i = 0; i < N - 10; i++) {
		next = edit_names(f, tag, NULL, 0, &i, 1);
		tag_retire(f->space, tag);
		tag = next;
		if (i % 500 == 0)
			settle(f);
	}
	check_shape(tag);
	assert_int_equal(tag->count, 10);
	assert_int_equal(tag->chunks, 1);
	fixture_free(f);
}

CONTROL_ONLY static void without_budget_an_edit_changes_nothing(void **state)
{
	struct fixture *f = fixture_new(2000, 20000, 8);
	struct tag *a = build_range(f, 0, 1000, 1), *b = a;
	uint32_t n = 1000, refs = 0;

	(void)state;
	// Old versions are kept, so that memory runs out.
	while (refs < 100 && (b = edit_names(f, a, &n, 1, NULL, 0)) != NULL) {
		a = b;
		n++;
		refs++;
	}
	assert_null(b);
	assert_in_range(refs, 1, 99);
	check_shape(a);
	assert_int_equal(a->count, n);
	assert_int_equal(presence_uid_find(f->presence, uid_of(f, n)), 0);
	assert_true(tag_space_bytes(f->space) <= 20000);
	fixture_free(f);
}

// --- against a model ----------------------------------------------------------------------------------

enum { UNIVERSE = 20000, ROUNDS = 100000, PINS = 6 };

struct pinned {
	struct tag *tag;
	uint32_t count, sum, left;
};

// Sum over the names of a tag: changes when a member does, or when an index means another UID.
CONTROL_ONLY static uint32_t names_sum(struct fixture *f, const struct tag *tag)
{
	uint32_t sum = 0;

	for (uint32_t c = 0; c < tag->chunks; c++)
		for (uint32_t i = 0; i < tag->chunk[c]->count; i++) {
			const uint32_t entry = tag->chunk[c]->uid[i];
			const struct id_view name = presence_uid_name(f->presence, TAG_UID(entry));
			uint32_t h = 2166136261u;

			assert_int_not_equal(name.len, 0);
			for (uint32_t b = 0; b < name.len; b++)
				h = (h ^ name.bytes[b]) * 16777619u;
			sum += h ^ (entry & TAG_DENIED);
		}
	return sum;
}

CONTROL_ONLY static void check_model(struct fixture *f, const struct tag *tag, const uint8_t *model)
{
	uint32_t count = 0;

	check_shape(tag);
	for (uint32_t c = 0; c < tag->chunks; c++)
		for (uint32_t i = 0; i < tag->chunk[c]->count; i++) {
			const uint32_t entry = tag->chunk[c]->uid[i];
			const struct id_view name = presence_uid_name(f->presence, TAG_UID(entry));
			char text[32] = {0};

			memcpy(text, name.bytes, name.len);
			assert_int_equal(model[atoi(text + 5)], (entry & TAG_DENIED) != 0 ? 2 : 1);
		}
	for (uint32_t n = 0; n < UNIVERSE; n++)
		count += model[n] != 0;
	assert_int_equal(count, tag->count);
}

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

// One random edit of tag and model. Lists are by index; names not known to presence are not members.
CONTROL_ONLY static struct tag *random_edit(
	struct fixture *f, struct tag *tag, uint8_t *model, uint32_t *seed)
{
	static uint32_t list[4][3000], names[4][3000];
	const uint32_t size = next_random(seed) % 500 == 0 ? 2500 : 3;
	struct tag_edit e = {.add = list[0],
		.remove = list[1],
		.deny_set = list[2],
		.deny_clear = list[3],
		.smv = tag->smv + 1};
	uint32_t n[4], base = next_random(seed);
	struct tag *next;

	for (uint32_t k = 0; k < 4; k++) {
		n[k] = next_random(seed) % (k < 2 ? size : 2);
		for (uint32_t i = 0, m = n[k], at; n[k] = i, i < m; i++) {
			at = (size > 100 ? base + i * 2 : next_random(seed)) % UNIVERSE;
			names[k][i] = at;
			list[k][i] = k == 0 ? hold(f, at)
					    : presence_uid_find(f->presence, uid_of(f, at));
			if (list[k][i] == 0)
				list[k][i] = 1u << 29;  // nobody
			if (k == 0 && at % 5 == 0)
				list[k][i] |= TAG_DENIED;
		}
	}
	e.adds = n[0], e.removes = n[1], e.deny_sets = n[2], e.deny_clears = n[3];
	next = tag_edit(f->space, tag, &e);
	assert_non_null(next);
	for (uint32_t i = 0; i < n[1]; i++)
		model[names[1][i]] = 0;
	for (uint32_t i = 0; i < n[0]; i++) {
		if (model[names[0][i]] == 0)
			model[names[0][i]] = names[0][i] % 5 == 0 ? 2 : 1;
		presence_uid_drop(f->presence, TAG_UID(list[0][i]), f->now_ns);
	}
	for (uint32_t i = 0; i < n[3]; i++)
		model[names[3][i]] = model[names[3][i]] != 0 ? 1 : 0;
	for (uint32_t i = 0; i < n[2]; i++)
		model[names[2][i]] = model[names[2][i]] != 0 ? 2 : 0;
	return next;
}

CONTROL_ONLY static struct tag *random_rebuild(
	struct fixture *f, struct tag *tag, const uint8_t *model)
{
	static uint32_t uid[UNIVERSE];
	uint32_t count = 0;

	for (uint32_t n = UNIVERSE; n-- > 0;)
		if (model[n] != 0)
			uid[count++] = hold(f, n) | (model[n] == 2 ? TAG_DENIED : 0);
	return tag_rebuild(f->space, tag, uid, count, tag->smv + 1, &f->ref);
}

CONTROL_ONLY static void random_edits_match_a_sorted_set(void **state)
{
	static uint8_t model[UNIVERSE];
	struct fixture *f = fixture_new(UNIVERSE + 10, 1 << 28, 16);
	struct pinned pin[PINS] = {0};
	struct tag *tag = tag_build(f->space, NULL, 0, 1, &f->ref), *next;
	uint32_t seed = 42;

	(void)state;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct pinned *p = &pin[next_random(&seed) % PINS];

		next = round % 9973 == 9972 ? random_rebuild(f, tag, model)
					    : random_edit(f, tag, model, &seed);
		assert_int_equal(next->fence.version, tag->fence.version + 1);
		if (p->tag == NULL && round % 100 == 0) {
			tag_pin(tag);
			*p = (struct pinned){
				tag, tag->count, names_sum(f, tag), next_random(&seed) % 3000};
		} else if (p->tag != NULL && (p->left -= p->left != 0) == 0) {
			assert_int_equal(p->tag->count, p->count);
			assert_int_equal(names_sum(f, p->tag), p->sum);
			tag_unpin(p->tag);
			p->tag = NULL;
		}
		tag_retire(f->space, tag);
		tag = next;
		if (round % 16 == 0)
			rcu_reclaim(&f->retire);
		tag_space_step(f->space, f->now_ns += SECOND / 50);
		presence_step(f->presence, 64, f->now_ns);
		if (round % 500 == 0)
			check_model(f, tag, model);
	}
	for (uint32_t i = 0; i < PINS; i++)
		if (pin[i].tag != NULL) {
			assert_int_equal(names_sum(f, pin[i].tag), pin[i].sum);
			tag_unpin(pin[i].tag);
		}
	check_model(f, tag, model);
	tag_retire(f->space, tag);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	assert_int_equal(tag_space_bytes(f->space), 0);
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_edit_moves_the_version_by_one_and_leaves_the_old_tag_alone),
		cmocka_unit_test(a_small_edit_copies_only_the_chunk_it_hits),
		cmocka_unit_test(an_edit_that_changes_nothing_shares_every_chunk),
		cmocka_unit_test(denial_is_a_flag_of_members_only),
		cmocka_unit_test(an_added_member_may_come_denied),
		cmocka_unit_test(chunks_split_when_full_and_merge_when_small),
		cmocka_unit_test(without_budget_an_edit_changes_nothing),
		cmocka_unit_test(random_edits_match_a_sorted_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
