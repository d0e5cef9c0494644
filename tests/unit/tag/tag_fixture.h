/* SPDX-License-Identifier: BSD-3-Clause */
// A tag space over a presence with UIDs "user-<n>"; members are named by n.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tag_pvt.h"

#define SECOND UINT64_C(1000000000)

struct fixture {
	struct rcu_retire retire;
	struct presence *presence;
	struct tag_space *space;
	struct topology topology;
	struct topology_ref ref;
	uint64_t now_ns;
	char name[32];
};

static inline struct id_view uid_of(struct fixture *f, uint32_t n)
{
	return id_view_of(f->name, (uint8_t)snprintf(f->name, sizeof(f->name), "user-%u", n));
}

CONTROL_ONLY static inline struct fixture *fixture_new(
	uint32_t uids, uint64_t bytes, uint32_t steps)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct presence_limits limits = {.uids = uids,
		.gateways = 1,
		.sessions_per_gateway = 1,
		.uid_quarantine_ns = SECOND};

	rcu_retire_init(&f->retire);
	f->presence = presence_create(&limits, &f->retire);
	f->space = tag_space_create(bytes, steps, f->presence, &f->retire);
	assert_non_null(f->space);
	tag_space_seed(f->space, 1);
	topology_init(&f->topology, 256, 10, 1);
	topology_ref_begin(&f->ref, &f->topology);
	f->now_ns = SECOND;
	return f;
}

static inline void fixture_free(struct fixture *f)
{
	tag_space_destroy(f->space);
	presence_destroy(f->presence);
	free(f);
}

// Everything retired and unpinned is freed; quarantines end.
CONTROL_ONLY static inline void settle(struct fixture *f)
{
	for (uint32_t i = 0; i < 3; i++) {
		f->now_ns += SECOND;
		rcu_reclaim(&f->retire);
		while (tag_space_step(f->space, f->now_ns) != 0)
			;
		while (presence_step(f->presence, 100000, f->now_ns) != 0)
			;
	}
}

CONTROL_ONLY static inline uint32_t hold(struct fixture *f, uint32_t n)
{
	const uint32_t index = presence_uid_hold(f->presence, uid_of(f, n));

	assert_int_not_equal(index, 0);
	return index;
}

CONTROL_ONLY static inline struct tag *build_range(
	struct fixture *f, uint32_t from, uint32_t to, uint64_t smv)
{
	uint32_t *uid = malloc((to - from + 1) * sizeof(*uid));
	struct tag *tag;

	for (uint32_t i = from; i < to; i++)
		uid[i - from] = hold(f, i);
	tag = tag_build(f->space, uid, to - from, smv, &f->ref);
	free(uid);
	return tag;
}

// Edits by names; the caller's references are given back, as after a delta.
CONTROL_ONLY static inline struct tag *edit_names(struct fixture *f, struct tag *old,
	const uint32_t *add, uint32_t adds, const uint32_t *remove, uint32_t removes)
{
	uint32_t *a = malloc((adds + 1) * sizeof(*a)), *r = malloc((removes + 1) * sizeof(*r));
	struct tag_edit e = {.add = a, .adds = adds, .remove = r, .smv = old->smv + 1};
	struct tag *tag;

	for (uint32_t i = 0; i < adds; i++)
		a[i] = hold(f, add[i]);
	for (uint32_t i = 0; i < removes; i++) {
		r[e.removes] = presence_uid_find(f->presence, uid_of(f, remove[i]));
		e.removes += r[e.removes] != 0;
	}
	tag = tag_edit(f->space, old, &e);
	for (uint32_t i = 0; i < adds; i++)
		presence_uid_drop(f->presence, a[i], f->now_ns);
	free(a);
	free(r);
	return tag;
}

// Structure of a tag: order, bounds, counts.
static inline void check_shape(const struct tag *tag)
{
	uint32_t count = 0, last = 0;

	for (uint32_t c = 0; c < tag->chunks; c++) {
		assert_in_range(tag->chunk[c]->count, 1, TAG_CHUNK_UIDS);
		assert_true(tag->chunk[c]->refs > 0);
		for (uint32_t i = 0; i < tag->chunk[c]->count; i++) {
			assert_true(TAG_UID(tag->chunk[c]->uid[i]) > last);
			last = TAG_UID(tag->chunk[c]->uid[i]);
			if (tag->inlined != NULL)
				assert_int_equal(tag->inlined[count + i], tag->chunk[c]->uid[i]);
		}
		count += tag->chunk[c]->count;
	}
	assert_int_equal(count, tag->count);
	assert_int_equal(tag->inlined != NULL, count <= TAG_INLINE_UIDS);
}
