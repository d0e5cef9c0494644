/* SPDX-License-Identifier: BSD-3-Clause */
#include "tag_parts_fixture.h"

#include <errno.h>

static const struct wire_authority authority = {3, 9, 0, 0};
static const struct tag_serve_config config = {.sends = 4, .per_node = 2, .hold_ns = SECOND};
enum { ROOM = 600 };

// What a body tells: number of members, denied ones, ones gone, and slots.
struct told {
	uint32_t member, denied, gone, slots;
};

CONTROL_ONLY static struct told told_by(const struct tag_send *send)
{
	struct told t = {0};

	for (uint32_t i = 0; i < tag_send_chunks(send); i++) {
		uint8_t bytes[ROOM];
		struct wire_buf out = {.p = bytes, .cap = ROOM, .ok = true};
		struct wire_tag_part part;
		struct wire_part_entry e;

		assert_true(tag_send_chunk(send, i, 7, &authority, &out));
		assert_int_equal(wire_get_tag_part((struct wire_view){bytes, out.len}, &part), 0);
		assert_int_equal(part.index, i);
		assert_int_equal(part.count, tag_send_chunks(send));
		assert_int_equal(part.request_id, 7);
		assert_memory_equal(part.tag_key, tag_send_fence(send)->key, 16);
		assert_int_equal(part.tag_version, tag_send_fence(send)->version);
		while (wire_part_next(&part.body, &e)) {
			t.member += e.op == WIRE_PART_MEMBER;
			t.denied += e.op == WIRE_PART_DENIED;
			t.gone += e.op == WIRE_PART_GONE;
			t.slots += e.op == WIRE_PART_SLOT;
		}
	}
	assert_false(tag_send_chunk(send, tag_send_chunks(send), 7, &authority,
		&(struct wire_buf){.p = (uint8_t[ROOM]){0}, .cap = ROOM, .ok = true}));
	return t;
}

CONTROL_ONLY static void a_body_is_told_whole_and_stays_as_it_was_pinned(void **state)
{
	struct fixture *f = parts_fixture(2000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 900, 1);
	const uint32_t members = tag_parts_body(p, 2)->count;
	struct tag_send *s = tag_send_full(f->space, p, 2, ROOM);
	struct told t = told_by(s);
	uint32_t remove[900];

	(void)state;
	assert_int_equal(t.member, members);
	assert_int_equal(t.slots, tag_topology(tag_parts_body(p, 2))->count);
	assert_true(tag_send_chunks(s) > 3);
	for (uint32_t n = 0; n < 900; n++)
		remove[n] = n;
	assert_int_equal(parts_edit(f, &p, NULL, 0, remove, 900), 0);
	settle(f);
	t = told_by(s);
	assert_int_equal(t.member, members);
	assert_int_equal(tag_send_fence(s)->version, 1);
	tag_send_free(s);
	tag_parts_retire(f->space, p);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

CONTROL_ONLY static void no_members_are_an_empty_body_of_one_chunk(void **state)
{
	struct fixture *f = parts_fixture(100, 1 << 20, 8);
	struct tag_parts *p = parts_range(f, 0, 0, 1);
	struct tag_send *s = tag_send_full(f->space, p, 2, ROOM);
	struct told t = told_by(s);

	(void)state;
	assert_int_equal(tag_send_chunks(s), 1);
	assert_int_equal(t.member + t.slots, 0);
	tag_send_free(s);
	tag_parts_retire(f->space, p);
	fixture_free(f);
}

CONTROL_ONLY static void a_delta_tells_each_uid_once_as_it_stands(void **state)
{
	struct fixture *f = parts_fixture(2000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 900, 1);
	const struct tag_fence base = tag_parts_local(p)->fence;
	uint32_t two[4], n = 1000, k = 0;
	struct tag_send *s;
	struct told t;

	(void)state;
	for (; k < 4; n++)
		if (owner(f, n) == 2)
			two[k++] = n;
	assert_int_equal(parts_edit(f, &p, two, 3, NULL, 0), 0);  // + 0 1 2
	assert_int_equal(parts_edit(f, &p, &two[3], 1, two, 1), 0);  // + 3 - 0
	assert_int_equal(parts_edit(f, &p, two, 1, &two[1], 1), 0);  // + 0 - 1
	s = tag_send_delta(f->space, p, 2, ROOM, &base, NULL);
	assert_non_null(s);
	t = told_by(s);
	assert_int_equal(t.member, 3);
	assert_int_equal(t.gone, 1);
	assert_int_equal(tag_send_base(s), 1);
	assert_int_equal(tag_send_chunks(s), 1);
	tag_send_free(s);
	// Of a body that did not change: nothing but its new fence.
	s = tag_send_delta(f->space, p, 3, ROOM, &base, NULL);
	assert_non_null(s);
	t = told_by(s);
	assert_int_equal(t.member + t.gone, 0);
	assert_int_equal(tag_send_fence(s)->version, 4);
	tag_send_free(s);
	tag_parts_retire(f->space, p);
	fixture_free(f);
}

CONTROL_ONLY static void where_steps_are_gone_a_pinned_body_gives_the_difference(void **state)
{
	struct fixture *f = parts_fixture(4000, 1 << 24, 2);
	struct tag_parts *p = parts_range(f, 0, 900, 1);
	const struct tag_fence base = tag_parts_local(p)->fence;
	struct tag_send *from = tag_send_full(f->space, p, 2, ROOM), *s;
	uint32_t added = 0, removed = 0;
	struct told t;

	(void)state;
	for (uint32_t n = 0; n < 100; n++) {
		const uint32_t add = 1000 + n, remove = n;

		assert_int_equal(parts_edit(f, &p, &add, 1, &remove, 1), 0);
		added += owner(f, add) == 2;
		removed += owner(f, remove) == 2;
	}
	assert_null(tag_send_delta(f->space, p, 2, ROOM, &base, NULL));
	s = tag_send_delta(f->space, p, 2, ROOM, &base, from);
	assert_non_null(s);
	t = told_by(s);
	assert_int_equal(t.member, added);
	assert_int_equal(t.gone, removed);
	tag_send_free(s);
	tag_send_free(from);
	tag_parts_retire(f->space, p);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

static struct wire_tag_get get_of(uint64_t request, uint64_t target, const struct tag_fence *want)
{
	struct wire_tag_get g = {.request_id = request,
		.target = target,
		.tag_version = want->version,
		.authority = authority,
		.want = 1,
		.room = ROOM};

	memcpy(g.tag_key, want->key, sizeof(g.tag_key));
	channel_key_set(&g.channel, CHANNEL_GROUP, "room", 4);
	return g;
}

CONTROL_ONLY static void requests_get_the_status_the_fence_asks_for(void **state)
{
	struct fixture *f = parts_fixture(2000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 100, 1);
	struct tag_serve *serve = tag_serve_create(f->space, &config);
	struct tag_fence fence = tag_parts_local(p)->fence;
	struct wire_tag_get g = get_of(1, 2, &fence);
	const struct tag_send *send = NULL;

	(void)state;
	assert_int_equal(tag_serve_get(serve, p, 3, &g, 0, &send), WIRE_BAD_REQUEST);
	assert_int_equal(tag_serve_get(serve, NULL, 2, &g, 0, &send), WIRE_TAG_NOT_FOUND);
	assert_int_equal(tag_serve_get(serve, p, 2, &g, 0, &send), WIRE_OK);
	fence.version = 2;
	g = get_of(2, 2, &fence);
	assert_int_equal(tag_serve_get(serve, p, 2, &g, 0, &send), WIRE_TAG_VERSION_MISMATCH);
	fence.key[0] ^= 1;
	fence.version = 1;
	g = get_of(3, 2, &fence);
	assert_int_equal(tag_serve_get(serve, p, 2, &g, 0, &send), WIRE_TAG_NOT_CURRENT);
	fence.version = 0;  // whatever is current
	g = get_of(4, 2, &fence);
	assert_int_equal(tag_serve_get(serve, p, 2, &g, 0, &send), WIRE_OK);
	tag_serve_destroy(serve);
	tag_parts_retire(f->space, p);
	fixture_free(f);
}

CONTROL_ONLY static void an_attempt_is_served_from_one_body_whatever_changes(void **state)
{
	struct fixture *f = parts_fixture(2000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 900, 1);
	struct tag_serve *serve = tag_serve_create(f->space, &config);
	const struct tag_fence fence = tag_parts_local(p)->fence;
	struct wire_tag_get g = get_of(1, 2, &fence);
	const struct tag_send *first = NULL, *again = NULL;
	const uint32_t n = 1500;

	(void)state;
	assert_int_equal(tag_serve_get(serve, p, 2, &g, 0, &first), WIRE_OK);
	assert_int_equal(parts_edit(f, &p, &n, 1, NULL, 0), 0);
	assert_int_equal(tag_serve_get(serve, p, 2, &g, SECOND, &again), WIRE_OK);
	assert_ptr_equal(again, first);
	assert_int_equal(tag_send_fence(again)->version, 1);
	// The next attempt gets what is current; a body nobody asks for goes.
	g.request_id = 2;
	assert_int_equal(tag_serve_get(serve, p, 2, &g, SECOND, &again), WIRE_OK);
	assert_int_equal(tag_send_fence(again)->version, 2);
	assert_int_equal(tag_serve_step(serve, 2 * SECOND), 0);
	assert_int_equal(tag_serve_step(serve, 2 * SECOND + 1), 1);
	g.request_id = 3;
	g.flags = WIRE_TAG_GET_PIN;
	assert_int_equal(tag_serve_get(serve, p, 2, &g, 0, &again), WIRE_OK);
	assert_int_equal(tag_serve_step(serve, 5 * SECOND), 0);
	assert_int_equal(tag_serve_step(serve, 9 * SECOND), 1);
	tag_serve_destroy(serve);
	tag_parts_retire(f->space, p);
	fixture_free(f);
}

CONTROL_ONLY static void a_node_has_its_share_and_the_table_its_limit(void **state)
{
	struct fixture *f = parts_fixture(2000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 100, 1);
	struct tag_serve *serve = tag_serve_create(f->space, &config);
	const struct tag_fence fence = tag_parts_local(p)->fence;
	const struct tag_send *send = NULL;

	(void)state;
	for (uint32_t node = 2; node <= 4; node++)
		for (uint32_t c = 0; c < 3; c++) {
			struct wire_tag_get g = get_of(node * 10 + c, node, &fence);

			g.channel.bytes[0] = (uint8_t)('a' + c);
			assert_int_equal(tag_serve_get(serve, p, node, &g, 0, &send),
				c < 2 && node < 4 ? WIRE_OK : WIRE_BUSY);
		}
	tag_serve_forget(serve, 2);
	for (uint32_t c = 0; c < 3; c++) {
		struct wire_tag_get g = get_of(50 + c, 4, &fence);

		g.channel.bytes[0] = (uint8_t)('a' + c);
		assert_int_equal(
			tag_serve_get(serve, p, 4, &g, 0, &send), c < 2 ? WIRE_OK : WIRE_BUSY);
	}
	tag_serve_destroy(serve);
	tag_parts_retire(f->space, p);
	settle(f);
	assert_int_equal(presence_uid_count(f->presence), 0);
	fixture_free(f);
}

CONTROL_ONLY static void a_new_incarnation_ends_what_was_pinned_of_the_old(void **state)
{
	struct fixture *f = parts_fixture(2000, 1 << 22, 8);
	struct tag_parts *p = parts_range(f, 0, 100, 1), *q = parts_range(f, 0, 50, 2);
	struct tag_serve *serve = tag_serve_create(f->space, &config);
	const struct tag_fence any = {.version = 0};
	struct wire_tag_get g = get_of(1, 2, &any);
	const struct tag_send *send = NULL;

	(void)state;
	assert_int_equal(tag_serve_get(serve, p, 2, &g, 0, &send), WIRE_OK);
	assert_memory_equal(tag_send_fence(send)->key, tag_parts_local(p)->fence.key, 16);
	assert_int_equal(tag_serve_get(serve, q, 2, &g, 0, &send), WIRE_OK);
	assert_memory_equal(tag_send_fence(send)->key, tag_parts_local(q)->fence.key, 16);
	tag_serve_destroy(serve);
	tag_parts_retire(f->space, p);
	tag_parts_retire(f->space, q);
	fixture_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_body_is_told_whole_and_stays_as_it_was_pinned),
		cmocka_unit_test(no_members_are_an_empty_body_of_one_chunk),
		cmocka_unit_test(a_delta_tells_each_uid_once_as_it_stands),
		cmocka_unit_test(where_steps_are_gone_a_pinned_body_gives_the_difference),
		cmocka_unit_test(requests_get_the_status_the_fence_asks_for),
		cmocka_unit_test(an_attempt_is_served_from_one_body_whatever_changes),
		cmocka_unit_test(a_node_has_its_share_and_the_table_its_limit),
		cmocka_unit_test(a_new_incarnation_ends_what_was_pinned_of_the_old),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
