/* SPDX-License-Identifier: BSD-3-Clause */
// A leader's parts over three nodes: slot s is led by node 1 + s % 3; node 1 is the leader.
#pragma once

#include "tag_fixture.h"

#include "tag_part_pvt.h"
#include "tag_send.h"

enum { SELF = 1, NODES = 3 };

static inline void spread(struct topology *t)
{
	topology_init(t, 256, 10, 1);
	for (uint32_t s = 1; s <= 10; s++)
		t->slot[s - 1].leader = 1 + s % NODES;
}

CONTROL_ONLY static inline struct fixture *parts_fixture(
	uint32_t uids, uint64_t bytes, uint32_t steps)
{
	struct fixture *f = fixture_new(uids, bytes, steps);

	spread(&f->topology);
	return f;
}

CONTROL_ONLY static inline uint64_t owner(struct fixture *f, uint32_t n)
{
	return topology_leader_of(&f->topology, uid_of(f, n));
}

CONTROL_ONLY static inline struct tag_parts *parts_range(
	struct fixture *f, uint32_t from, uint32_t to, uint64_t smv)
{
	uint32_t *uid = malloc((to - from + 1) * sizeof(*uid));
	struct tag_parts *p = NULL;

	for (uint32_t i = from; i < to; i++)
		uid[i - from] = hold(f, i);
	assert_int_equal(tag_parts_build(f->space, &f->topology, SELF, uid, to - from, smv, &p), 0);
	free(uid);
	return p;
}

// Edits by names, and retires the old version.
CONTROL_ONLY static inline int parts_edit(struct fixture *f, struct tag_parts **p,
	const uint32_t *add, uint32_t adds, const uint32_t *remove, uint32_t removes)
{
	uint32_t *a = malloc((adds + 1) * sizeof(*a)), *r = malloc((removes + 1) * sizeof(*r));
	struct tag_edit e = {
		.add = a, .adds = adds, .remove = r, .smv = tag_parts_local(*p)->smv + 1};
	struct tag_parts *next = NULL;
	int rc;

	for (uint32_t i = 0; i < adds; i++)
		a[i] = hold(f, add[i]);
	for (uint32_t i = 0; i < removes; i++) {
		r[e.removes] = presence_uid_find(f->presence, uid_of(f, remove[i]));
		e.removes += r[e.removes] != 0;
	}
	rc = tag_parts_edit(f->space, *p, &f->topology, &e, &next);
	for (uint32_t i = 0; i < adds; i++)
		presence_uid_drop(f->presence, a[i], f->now_ns);
	free(a);
	free(r);
	if (rc == 0) {
		tag_parts_retire(f->space, *p);
		*p = next;
	}
	return rc;
}

static inline const struct tag *part_of(const struct tag_parts *p, uint64_t node) CONTROL_ONLY;
static inline const struct tag *part_of(const struct tag_parts *p, uint64_t node)
{
	return node == SELF ? tag_parts_local(p) : tag_parts_body(p, node);
}

// Is "user-<n>" a member, of the body of its owner and of no other?
CONTROL_ONLY static inline bool parts_have(struct fixture *f, const struct tag_parts *p, uint32_t n)
{
	const uint32_t uid = presence_uid_find(f->presence, uid_of(f, n));
	const uint64_t mine = owner(f, n);
	bool has = false;

	for (uint64_t node = 1; node <= NODES && uid != 0; node++) {
		const struct tag *const tag = part_of(p, node);

		if (tag != NULL && tag_has(tag, uid)) {
			assert_int_equal(node, mine);
			has = true;
		}
	}
	return has;
}
