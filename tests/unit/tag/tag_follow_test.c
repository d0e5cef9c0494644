/* SPDX-License-Identifier: BSD-3-Clause */
// The follower's rules, and whole pulls between a leader's and a follower's memory. FOLLOW_READS is the number
// of reads of the two-thread test (a full run takes 10000000).
#include "tag_parts_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "tag_follow.h"

#define MS UINT64_C(1000000)

static const struct wire_authority authority = {3, 9, 0, 0};
static const struct tag_pull_config config = {.window = 32,
	.retry_ns = 10 * MS,
	.retry_max_ns = 80 * MS,
	.silent_max = 10,
	.restarts_max = 8};
static const struct tag_serve_config serve_config = {
	.sends = 8, .per_node = 4, .hold_ns = 100 * MS};

// --- the rules ----------------------------------------------------------------------------------------------

static void tasks_are_served_or_fetched_by_the_rules(void **state)
{
	static const struct tag_fence none, a900 = {{1}, 900}, a899 = {{1}, 899}, a901 = {{1}, 901},
					    b3 = {{2}, 3}, b900 = {{2}, 900};
	const struct {
		struct tag_cached cached;
		struct tag_fence request;
		enum tag_lookup want;
	} rules[] = {
		{{none, false, false}, a900, TAG_LOOKUP_MISSING_REF},
		{{a900, true, true}, a900, TAG_LOOKUP_HIT},
		{{a900, false, false}, a900, TAG_LOOKUP_MISSING_TAG},
		{{a900, false, false}, a899, TAG_LOOKUP_MISSING_TAG},
		{{a900, true, true}, a899, TAG_LOOKUP_STALE_REQUEST},
		{{a900, true, true}, a901, TAG_LOOKUP_NEWER_REQUEST},
		{{a900, true, false}, a900, TAG_LOOKUP_TOPOLOGY_MISMATCH},
		{{a900, true, false}, a899, TAG_LOOKUP_TOPOLOGY_MISMATCH},
		{{a900, true, true}, b3, TAG_LOOKUP_KEY_MISMATCH},
		{{a900, true, true}, b900, TAG_LOOKUP_KEY_MISMATCH},
		{{b3, true, true}, a900, TAG_LOOKUP_KEY_MISMATCH},
	};

	for (uint32_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const enum tag_lookup got = tag_lookup_judge(&rules[i].cached, &rules[i].request);

		if (got != rules[i].want)
			fail_msg("rule %u: %s instead of %s", i, tag_lookup_name(got),
				tag_lookup_name(rules[i].want));
	}
	assert_true(tag_lookup_serves(TAG_LOOKUP_HIT));
	assert_true(tag_lookup_serves(TAG_LOOKUP_STALE_REQUEST));
	for (enum tag_lookup l = TAG_LOOKUP_MISSING_REF; l < TAG_LOOKUPS; l++)
		assert_false(tag_lookup_serves(l));
	(void)state;
}

static void answers_replace_what_is_cached_by_the_rules(void **state)
{
	static const struct tag_fence none, a900 = {{1}, 900}, a899 = {{1}, 899}, a901 = {{1}, 901},
					    b3 = {{2}, 3};
	const struct tag_cached has = {a900, true, true}, bodiless = {a900, false, false},
				empty = {none, false, false};
	const struct {
		const struct tag_cached *cached;
		struct tag_told told;
		enum tag_answer want;
	} rules[] = {
		{&empty, {true, true, true, WIRE_OK, a900}, TAG_ANSWER_INSTALL},
		{&has, {true, true, true, WIRE_OK, a901}, TAG_ANSWER_INSTALL},
		{&has, {true, true, true, WIRE_OK, a900}, TAG_ANSWER_CONFIRM},
		{&bodiless, {true, true, true, WIRE_OK, a900}, TAG_ANSWER_INSTALL},
		{&has, {true, true, true, WIRE_OK, a899}, TAG_ANSWER_DROP},
		{&bodiless, {true, true, true, WIRE_OK, a899}, TAG_ANSWER_DROP},
		{&has, {true, true, true, WIRE_OK, b3}, TAG_ANSWER_INSTALL},
		{&has, {false, true, true, WIRE_OK, a901}, TAG_ANSWER_DROP},
		{&has, {false, true, true, WIRE_OK, b3}, TAG_ANSWER_DROP},
		{&has, {true, false, true, WIRE_OK, a901}, TAG_ANSWER_DROP},
		{&has, {true, true, false, WIRE_OK, a901}, TAG_ANSWER_RETRY},
		{&has, {true, true, false, WIRE_NOT_LEADER, none}, TAG_ANSWER_REDIRECT},
		{&has, {true, true, false, WIRE_TAG_NOT_CURRENT, b3}, TAG_ANSWER_PAST},
		{&has, {true, false, false, WIRE_TAG_NOT_CURRENT, b3}, TAG_ANSWER_RETRY},
		{&has, {true, true, false, WIRE_TAG_VERSION_MISMATCH, a899}, TAG_ANSWER_PAST},
		{&has, {true, true, false, WIRE_TAG_NOT_FOUND, none}, TAG_ANSWER_RETRY},
		{&has, {true, true, false, WIRE_RETRYABLE, none}, TAG_ANSWER_RETRY},
		{&has, {true, true, false, WIRE_BUSY, none}, TAG_ANSWER_RETRY},
		{&has, {false, true, false, WIRE_NOT_LEADER, none}, TAG_ANSWER_DROP},
	};

	for (uint32_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const enum tag_answer got = tag_answer_judge(rules[i].cached, &rules[i].told);

		if (got != rules[i].want)
			fail_msg("rule %u: %d instead of %d", i, got, rules[i].want);
	}
	(void)state;
}

// --- whole pulls --------------------------------------------------------------------------------------------

struct pair {
	struct fixture *leader, *node;  // the follower is node 2
	struct tag_parts *parts;
	struct tag_serve *serve;
	_Atomic(struct tag *) published;
	struct tag_follow follow;
	uint64_t request, now_ns;
	uint64_t gets, chunks, bytes;
	uint64_t seed;
	uint32_t loss;  // of 1000 datagrams
};

CONTROL_ONLY static struct pair *pair_new(uint32_t uids, uint32_t steps)
{
	struct pair *p = calloc(1, sizeof(*p));

	p->leader = parts_fixture(uids, UINT64_C(1) << 30, steps);
	p->node = parts_fixture(uids, UINT64_C(1) << 30, steps);
	p->serve = tag_serve_create(p->leader->space, &serve_config);
	tag_follow_init(&p->follow, p->node->space, p->node->presence, 2, &p->published);
	p->seed = 1;
	return p;
}

// Everything ends with nothing left on the follower.
CONTROL_ONLY static void pair_free(struct pair *p)
{
	tag_follow_fini(&p->follow);
	settle(p->node);
	assert_int_equal(presence_uid_count(p->node->presence), 0);
	assert_int_equal(tag_space_bytes(p->node->space), 0);
	tag_serve_destroy(p->serve);
	if (p->parts != NULL)
		tag_parts_retire(p->leader->space, p->parts);
	settle(p->leader);
	assert_int_equal(presence_uid_count(p->leader->presence), 0);
	assert_int_equal(tag_space_bytes(p->leader->space), 0);
	fixture_free(p->leader);
	fixture_free(p->node);
	free(p);
}

static bool lost(struct pair *p)
{
	p->seed = p->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (p->seed >> 33) % 1000 < p->loss;
}

// The leader's answer to one request, chunk by chunk into the follower. Returns: the last event that counts.
CONTROL_ONLY static enum tag_follow_event answer(struct pair *p, const struct wire_tag_get *get)
{
	enum tag_follow_event last = TAG_FOLLOW_NOTHING;
	const struct tag_send *send = NULL;
	const enum wire_status status = tag_serve_get(p->serve, p->parts, 2, get, p->now_ns, &send);

	for (uint32_t i = 0; i < 64; i++) {
		uint8_t bytes[1500];
		struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
		struct wire_tag_part part;
		enum tag_follow_event e;

		if (status != WIRE_OK && i == 0) {
			assert_true(tag_serve_refuse(&out, get, status,
				p->parts == NULL ? NULL : &tag_parts_local(p->parts)->fence, 0,
				NULL));
		} else if ((get->want >> i & 1) == 0 || status != WIRE_OK ||
			   !tag_send_chunk(
				   send, get->first + i, get->request_id, &authority, &out)) {
			continue;
		}
		p->chunks++;
		p->bytes += out.len;
		if (lost(p))
			continue;
		assert_int_equal(wire_get_tag_part((struct wire_view){bytes, out.len}, &part), 0);
		e = tag_follow_part(&p->follow, &part, true, &p->node->topology, p->now_ns);
		last = e != TAG_FOLLOW_NOTHING ? e : last;
		if (e != TAG_FOLLOW_MORE && e != TAG_FOLLOW_NOTHING)
			break;
	}
	return last;
}

// One turn of the follower's side. Returns: what happened.
CONTROL_ONLY static enum tag_follow_event turn(struct pair *p)
{
	enum tag_follow_event e = TAG_FOLLOW_NOTHING;
	struct wire_tag_get get = {.target = 2, .authority = authority, .room = 1400};

	channel_key_set(&get.channel, CHANNEL_GROUP, "room", 4);
	if (p->follow.pull == NULL)
		return e;
	switch (tag_pull_due(p->follow.pull, &config, p->now_ns)) {
	case TAG_PULL_WAIT:
		return e;
	case TAG_PULL_GIVE_UP:
		tag_follow_stop(&p->follow);
		return TAG_FOLLOW_RETRY;
	case TAG_PULL_ASK:
		break;
	}
	tag_pull_ask(p->follow.pull, &config, p->now_ns, &get);
	p->gets++;
	if (!lost(p))
		e = answer(p, &get);
	if (e == TAG_FOLLOW_RESTART &&
		!tag_follow_restart(&p->follow, &config, ++p->request, p->now_ns))
		e = TAG_FOLLOW_RETRY;
	return e;
}

// Pulls until something final. Each turn takes a tenth of a millisecond.
CONTROL_ONLY static enum tag_follow_event pull(struct pair *p, const struct tag_fence *want)
{
	tag_follow_pull(&p->follow, &config, ++p->request, want, p->now_ns);
	for (uint32_t i = 0; i < 100000; i++, p->now_ns += MS / 10) {
		const enum tag_follow_event e = turn(p);

		if (e != TAG_FOLLOW_NOTHING && e != TAG_FOLLOW_MORE && e != TAG_FOLLOW_RESTART)
			return e;
	}
	return TAG_FOLLOW_NOTHING;
}

CONTROL_ONLY static void check_same(struct pair *p)
{
	const struct tag *const body = tag_parts_body(p->parts, 2), *const mine = p->follow.tag;

	assert_non_null(mine);
	assert_ptr_equal(atomic_load(&p->published), mine);
	assert_memory_equal(&mine->fence, &tag_parts_local(p->parts)->fence, sizeof(mine->fence));
	assert_int_equal(mine->smv, tag_parts_local(p->parts)->smv);
	assert_int_equal(mine->count, body == NULL ? 0 : body->count);
	check_shape(mine);
	for (uint32_t c = 0; body != NULL && c < body->chunks; c++)
		for (uint32_t i = 0; i < body->chunk[c]->count; i++) {
			const uint32_t entry = body->chunk[c]->uid[i];
			const uint32_t uid = presence_uid_find(p->node->presence,
				presence_uid_name(p->leader->presence, TAG_UID(entry)));

			assert_int_equal(tag_entry(mine, uid), uid | (entry & TAG_DENIED));
		}
}

CONTROL_ONLY static void a_pull_brings_the_own_partition_and_a_change_brings_a_delta(void **state)
{
	struct pair *p = pair_new(5000, 16);
	uint64_t whole;
	uint32_t n = 4000;

	(void)state;
	p->parts = parts_range(p->leader, 0, 3000, 1);
	assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_INSTALLED);
	check_same(p);
	whole = p->bytes;
	p->bytes = 0;
	while (owner(p->leader, n) != 2)
		n++;
	assert_int_equal(parts_edit(p->leader, &p->parts, &n, 1, &(uint32_t){5}, 1), 0);
	assert_int_equal(tag_follow_lookup(
				 &p->follow, &tag_parts_local(p->parts)->fence, &p->node->topology),
		TAG_LOOKUP_NEWER_REQUEST);
	assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_INSTALLED);
	check_same(p);
	assert_true(p->bytes < 600);
	assert_true(whole > 10000);
	pair_free(p);
}

CONTROL_ONLY static void an_empty_partition_is_cached_too(void **state)
{
	struct pair *p = pair_new(100, 16);
	struct tag_fence fence;

	(void)state;
	p->parts = parts_range(p->leader, 0, 0, 1);
	fence = tag_parts_local(p->parts)->fence;
	assert_int_equal(pull(p, &fence), TAG_FOLLOW_INSTALLED);
	check_same(p);
	assert_int_equal(tag_follow_lookup(&p->follow, &fence, &p->node->topology), TAG_LOOKUP_HIT);
	assert_ptr_equal(tag_follow_read(&p->published, &fence), p->follow.tag);
	pair_free(p);
}

CONTROL_ONLY static void a_held_answer_never_replaces_what_came_after_it(void **state)
{
	struct pair *p = pair_new(500, 16);
	struct wire_tag_get get = {.target = 2, .authority = authority, .room = 1400};
	const struct tag_send *send;
	struct wire_tag_part late;
	uint8_t held[1500];
	struct wire_buf out = {.p = held, .cap = sizeof(held), .ok = true};
	struct tag_fence now;
	const uint32_t n = 400;

	(void)state;
	channel_key_set(&get.channel, CHANNEL_GROUP, "room", 4);
	p->parts = parts_range(p->leader, 0, 60, 1);
	assert_int_equal(tag_follow_pull(&p->follow, &config, ++p->request,
				 &tag_parts_local(p->parts)->fence, 0),
		0);
	tag_pull_ask(p->follow.pull, &config, 0, &get);
	assert_int_equal(tag_serve_get(p->serve, p->parts, 2, &get, 0, &send), WIRE_OK);
	assert_true(tag_send_chunk(send, 0, get.request_id, &authority, &out));  // and is held
	tag_follow_stop(&p->follow);
	assert_int_equal(parts_edit(p->leader, &p->parts, &n, 1, NULL, 0), 0);
	now = tag_parts_local(p->parts)->fence;
	assert_int_equal(pull(p, &now), TAG_FOLLOW_INSTALLED);
	assert_int_equal(wire_get_tag_part((struct wire_view){held, out.len}, &late), 0);
	assert_int_equal(tag_follow_part(&p->follow, &late, true, &p->node->topology, 0),
		TAG_FOLLOW_NOTHING);
	// Nor during a later pull, nor when its request id were that of the one under way.
	assert_int_equal(tag_follow_pull(&p->follow, &config, ++p->request, &now, p->now_ns), 0);
	assert_int_equal(tag_follow_part(&p->follow, &late, true, &p->node->topology, 0),
		TAG_FOLLOW_NOTHING);
	late.request_id = p->request;
	assert_int_equal(tag_follow_part(&p->follow, &late, true, &p->node->topology, 0),
		TAG_FOLLOW_RESTART);
	assert_int_equal(p->follow.fence.version, now.version);
	check_same(p);
	pair_free(p);
}

CONTROL_ONLY static void who_does_not_lead_is_not_heard(void **state)
{
	struct pair *p = pair_new(500, 16);
	struct wire_tag_part part = {
		.status = WIRE_OK, .tag_version = 5, .table_version = 1, .count = 1};

	(void)state;
	p->parts = parts_range(p->leader, 0, 60, 1);
	assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_INSTALLED);
	tag_follow_pull(&p->follow, &config, ++p->request, &p->follow.fence, 0);
	part.request_id = p->request;
	assert_int_equal(tag_follow_part(&p->follow, &part, false, &p->node->topology, 0),
		TAG_FOLLOW_NOTHING);
	assert_non_null(p->follow.pull);
	part.status = WIRE_TAG_NOT_CURRENT;
	part.count = 0;
	assert_int_equal(
		tag_follow_part(&p->follow, &part, false, &p->node->topology, 0), TAG_FOLLOW_RETRY);
	check_same(p);
	pair_free(p);
}

CONTROL_ONLY static void refusals_end_the_pull_and_leave_what_is_cached(void **state)
{
	static const struct {
		uint16_t status;
		enum tag_follow_event event;
	} rows[] = {
		{WIRE_NOT_LEADER, TAG_FOLLOW_REDIRECT},
		{WIRE_TAG_NOT_CURRENT, TAG_FOLLOW_PAST},
		{WIRE_TAG_VERSION_MISMATCH, TAG_FOLLOW_PAST},
		{WIRE_TAG_NOT_FOUND, TAG_FOLLOW_RETRY},
		{WIRE_BUSY, TAG_FOLLOW_RETRY},
		{777, TAG_FOLLOW_RETRY},
	};
	struct pair *p = pair_new(500, 16);

	(void)state;
	p->parts = parts_range(p->leader, 0, 60, 1);
	assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_INSTALLED);
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct wire_tag_part part = {
			.request_id = ++p->request, .status = rows[i].status};

		assert_int_equal(tag_follow_pull(&p->follow, &config, p->request,
					 &(struct tag_fence){{9}, 9}, 0),
			0);
		assert_int_equal(tag_follow_part(&p->follow, &part, true, &p->node->topology, 0),
			rows[i].event);
		assert_null(p->follow.pull);
		check_same(p);
	}
	pair_free(p);
}

CONTROL_ONLY static void another_topology_unpublishes_and_the_next_pull_counts_again(void **state)
{
	struct pair *p = pair_new(500, 16);
	struct tag_parts *next = NULL;
	struct tag_fence fence;
	uint32_t uid[200];

	(void)state;
	p->parts = parts_range(p->leader, 0, 200, 1);
	fence = tag_parts_local(p->parts)->fence;
	assert_int_equal(pull(p, &fence), TAG_FOLLOW_INSTALLED);
	p->node->topology.slot[0].term++;  // slot 1 is node 2's
	assert_false(tag_follow_topology(&p->follow, &p->node->topology));
	assert_null(tag_follow_read(&p->published, &fence));
	assert_int_equal(tag_follow_lookup(&p->follow, &fence, &p->node->topology),
		TAG_LOOKUP_TOPOLOGY_MISMATCH);
	assert_int_equal(pull(p, &fence), TAG_FOLLOW_RETRY);  // the leader is behind
	p->leader->topology = p->node->topology;
	assert_int_equal(tag_parts_gather(p->leader->space, p->parts, uid), 200);
	assert_int_equal(tag_parts_rebuild(p->leader->space, p->parts, &p->leader->topology, uid,
				 200, 1, &next),
		0);
	tag_parts_retire(p->leader->space, p->parts);
	p->parts = next;
	assert_int_equal(pull(p, &fence), TAG_FOLLOW_INSTALLED);
	check_same(p);
	// A slot of another node does not matter here.
	p->node->topology.slot[1].term++;
	assert_true(tag_follow_topology(&p->follow, &p->node->topology));
	pair_free(p);
}

CONTROL_ONLY static void an_idle_partition_goes_and_its_fence_stays(void **state)
{
	struct pair *p = pair_new(500, 16);
	struct tag_fence fence;

	(void)state;
	p->parts = parts_range(p->leader, 0, 100, 1);
	fence = tag_parts_local(p->parts)->fence;
	assert_int_equal(pull(p, &fence), TAG_FOLLOW_INSTALLED);
	atomic_store(&p->follow.tag->used_ns, 50);
	assert_false(tag_follow_expire(&p->follow, 50));
	assert_true(tag_follow_expire(&p->follow, 51));
	assert_null(atomic_load(&p->published));
	assert_int_equal(
		tag_follow_lookup(&p->follow, &fence, &p->node->topology), TAG_LOOKUP_MISSING_TAG);
	assert_int_equal(pull(p, &fence), TAG_FOLLOW_INSTALLED);
	check_same(p);
	pair_free(p);
}

CONTROL_ONLY static void members_of_others_are_refused(void **state)
{
	struct pair *p = pair_new(500, 16);

	(void)state;
	p->parts = parts_range(p->leader, 0, 200, 1);
	// The follower knows its slots by another table: what comes is not all its own.
	for (uint32_t i = 0; i < 256; i++)
		p->node->topology.slot_of[i] = (uint16_t)((i + 128) % 10 + 1);
	assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_RETRY);
	assert_null(p->follow.tag);
	pair_free(p);
}

CONTROL_ONLY static void a_pull_of_33k_ends_at_1_percent_loss(void **state)
{
	struct pair *p = pair_new(110000, 64);

	(void)state;
	p->loss = 10;
	p->parts = parts_range(p->leader, 0, 100000, 1);
	assert_true(tag_parts_body(p->parts, 2)->count > 25000);
	assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_INSTALLED);
	check_same(p);
	assert_true(p->now_ns < 2 * SECOND);
	pair_free(p);
}

// 1,000 changes a second while 33k are pulled, with steps kept of far fewer: it ends, and so does the delta.
CONTROL_ONLY static void a_pull_of_33k_ends_under_1000_changes_a_second(void **state)
{
	struct pair *p = pair_new(110000, 8);
	enum tag_follow_event e = TAG_FOLLOW_NOTHING;
	uint32_t changes = 0, installs = 0;
	struct tag_fence want;

	(void)state;
	p->loss = 10;
	p->parts = parts_range(p->leader, 0, 100000, 1);
	want = tag_parts_local(p->parts)->fence;
	tag_follow_pull(&p->follow, &config, ++p->request, &want, p->now_ns);
	for (uint32_t i = 0; i < 50000 && installs < 3; i++, p->now_ns += MS / 10) {
		if (i % 10 == 0) {
			const uint32_t add = 100000 + changes % 5000, remove = changes * 7 % 100000;

			changes++;
			assert_int_equal(parts_edit(p->leader, &p->parts, &add, 1, &remove, 1), 0);
			settle(p->leader);
		}
		tag_serve_step(p->serve, p->now_ns);
		e = turn(p);
		assert_true(e != TAG_FOLLOW_LIMIT && e != TAG_FOLLOW_PAST);
		if (e != TAG_FOLLOW_INSTALLED)
			continue;
		// The rest comes at once, on top.
		installs++;
		want = tag_parts_local(p->parts)->fence;
		tag_follow_pull(&p->follow, &config, ++p->request, &want, p->now_ns);
	}
	assert_int_equal(installs, 3);
	assert_true(p->now_ns < 3 * SECOND);
	tag_follow_stop(&p->follow);
	assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_INSTALLED);
	check_same(p);
	pair_free(p);
}

CONTROL_ONLY static void random_changes_losses_and_incarnations_end_equal(void **state)
{
	struct pair *p = pair_new(3000, 4);
	uint32_t seed = 5;

	(void)state;
	p->loss = 100;
	p->parts = parts_range(p->leader, 0, 1000, 1);
	for (uint32_t round = 0; round < 300; round++) {
		struct tag_fence fence;

		for (uint32_t n = round % 9; n > 0; n--) {
			uint32_t list[2];

			for (uint32_t k = 0; k < 2; k++) {
				seed = seed * 1664525 + 1013904223;
				list[k] = (seed >> 8) % 2500;
			}
			assert_int_equal(
				parts_edit(p->leader, &p->parts, &list[0], 1, &list[1], 1), 0);
		}
		if (round % 40 == 39) {
			tag_parts_retire(p->leader->space, p->parts);
			p->parts = parts_range(p->leader, round, round + 700, round);
		}
		fence = tag_parts_local(p->parts)->fence;
		assert_int_equal(pull(p, &fence), TAG_FOLLOW_INSTALLED);
		check_same(p);
		settle(p->leader);
		settle(p->node);
		tag_serve_step(p->serve, p->now_ns += SECOND);
	}
	pair_free(p);
}

// --- halves of a fence move together ------------------------------------------------------------------------

enum { READERS = 2 };

struct race {
	_Atomic(struct tag *) *published;
	struct tag_fence a, b;
	uint64_t reads;
	_Atomic uint64_t mixed, seen_a, seen_b;
	_Atomic uint32_t ready, ended;
};

static void *reader(void *arg)
{
	struct race *const r = arg;
	uint64_t a = 0, b = 0, mixed = 0;

	rcu_reader_register();
	atomic_fetch_add(&r->ready, 1);
	// So many reads, and until it saw both: on a busy machine the writer may have to be waited for.
	for (uint64_t i = 0; i < r->reads || a == 0 || b == 0; i++) {
		struct tag *const for_a = tag_follow_read(r->published, &r->a);
		struct tag *const for_b = tag_follow_read(r->published, &r->b);

		if (for_a != NULL) {
			a++;
			mixed += memcmp(&for_a->fence, &r->a, sizeof(r->a)) != 0 ||
				 for_a->smv != 900;
		}
		if (for_b != NULL) {
			b++;
			mixed += memcmp(&for_b->fence, &r->b, sizeof(r->b)) != 0 || for_b->smv != 3;
		}
		rcu_reader_quiescent();
		if (i % 1024 == 1023)
			sched_yield();
	}
	rcu_reader_unregister();
	atomic_fetch_add(&r->mixed, mixed);
	atomic_fetch_add(&r->seen_a, a);
	atomic_fetch_add(&r->seen_b, b);
	atomic_fetch_add(&r->ended, 1);
	return NULL;
}

// A leader's tag at a chosen version: as if it had been edited so often.
CONTROL_ONLY static void age(struct pair *p, struct tag_parts *parts, uint64_t version)
{
	struct tag_fence fence = tag_parts_local(parts)->fence;

	fence.version = version;
	tag_fence_set(p->leader->space, tag_parts_local(parts), &fence);
}

CONTROL_ONLY static void readers_never_see_halves_of_two_fences(void **state)
{
	const char *const text = getenv("FOLLOW_READS");
	struct pair *p = pair_new(500, 16);
	struct tag_parts *const parts[2] = {
		parts_range(p->leader, 0, 50, 900), parts_range(p->leader, 0, 40, 3)};
	struct race race = {.published = &p->published};
	pthread_t thread[READERS];
	uint64_t installs = 0;

	(void)state;
	race.reads = (text == NULL ? 200000 : strtoull(text, NULL, 10)) / READERS;
	age(p, parts[0], 900);
	age(p, parts[1], 3);
	race.a = tag_parts_local(parts[0])->fence;
	race.b = tag_parts_local(parts[1])->fence;
	for (uint32_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, reader, &race), 0);
	while (atomic_load(&race.ready) < READERS)
		sched_yield();
	while (atomic_load(&race.ended) < READERS) {
		p->parts = parts[installs % 2];
		assert_int_equal(pull(p, &tag_parts_local(p->parts)->fence), TAG_FOLLOW_INSTALLED);
		installs++;
		tag_serve_forget(p->serve, 2);
		if (installs % 63 == 0) {  // odd: readers run while it waits, and see either
			rcu_reclaim(&p->node->retire);
			tag_space_step(p->node->space, p->node->now_ns += SECOND);
			presence_step(p->node->presence, 1000, p->node->now_ns);
		}
	}
	for (uint32_t i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	print_message("%llu installs, %llu reads of one fence, %llu of the other\n",
		(unsigned long long)installs, (unsigned long long)atomic_load(&race.seen_a),
		(unsigned long long)atomic_load(&race.seen_b));
	assert_int_equal(atomic_load(&race.mixed), 0);
	assert_true(atomic_load(&race.seen_a) != 0 && atomic_load(&race.seen_b) != 0);
	tag_parts_retire(p->leader->space, parts[0]);
	p->parts = parts[1];
	pair_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tasks_are_served_or_fetched_by_the_rules),
		cmocka_unit_test(answers_replace_what_is_cached_by_the_rules),
		cmocka_unit_test(a_pull_brings_the_own_partition_and_a_change_brings_a_delta),
		cmocka_unit_test(an_empty_partition_is_cached_too),
		cmocka_unit_test(a_held_answer_never_replaces_what_came_after_it),
		cmocka_unit_test(who_does_not_lead_is_not_heard),
		cmocka_unit_test(refusals_end_the_pull_and_leave_what_is_cached),
		cmocka_unit_test(another_topology_unpublishes_and_the_next_pull_counts_again),
		cmocka_unit_test(an_idle_partition_goes_and_its_fence_stays),
		cmocka_unit_test(members_of_others_are_refused),
		cmocka_unit_test(a_pull_of_33k_ends_at_1_percent_loss),
		cmocka_unit_test(a_pull_of_33k_ends_under_1000_changes_a_second),
		cmocka_unit_test(random_changes_losses_and_incarnations_end_equal),
		cmocka_unit_test(readers_never_see_halves_of_two_fences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
