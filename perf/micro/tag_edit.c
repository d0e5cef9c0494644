/* SPDX-License-Identifier: BSD-3-Clause */
// One-member edit of a tag against a rebuild of the same tag from UID indices (sort, references, chunks):
// what copy-on-write saves.
#include <stdio.h>
#include <stdlib.h>

#include "base_time.h"
#include "bench.h"
#include "presence.h"
#include "tag.h"
#include "topology.h"

#define EDITS 500u
#define REBUILDS 4u

static const uint32_t sizes[] = {1000, 10000, 100000, 1000000};

struct bench {
	struct rcu_retire retire;
	struct presence *presence;
	struct tag_space *space;
	struct topology_ref ref;
	uint32_t *uid;  // held once here, so that builds only count references
	uint32_t *list;
	uint64_t now;
};

CONTROL_ONLY static void clean(struct bench *b)
{
	rcu_reclaim(&b->retire);
	while (tag_space_step(b->space, ++b->now) != 0)
		;
}

CONTROL_ONLY static struct tag *build(struct bench *b, uint32_t members)
{
	for (uint32_t i = 0; i < members; i++) {
		b->list[i] = b->uid[i];
		presence_uid_ref(b->presence, b->uid[i]);
	}
	return tag_build(b->space, b->list, members, 1, &b->ref);
}

CONTROL_ONLY static double rebuild_ns(struct bench *b, uint32_t members)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < REBUILDS; i++) {
		const uint64_t start = bench_ns();
		struct tag *tag = build(b, members);

		sum += bench_ns() - start;
		tag_retire(b->space, tag);
		clean(b);
	}
	return (double)sum / REBUILDS;
}

CONTROL_ONLY static double edit_ns(struct bench *b, uint32_t members)
{
	struct tag *tag = build(b, members);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < EDITS; i++) {
		const uint32_t uid = b->uid[i / 2 * 7919u % members];
		const struct tag_edit e = {
			.add = &uid,
			.adds = i % 2,
			.remove = &uid,
			.removes = i % 2 == 0,
			.smv = i,
		};
		const uint64_t start = bench_ns();
		struct tag *next = tag_edit(b->space, tag, &e);

		sum += bench_ns() - start;
		tag_retire(b->space, tag);
		tag = next;
		if (i % 64 == 0)
			clean(b);
	}
	tag_retire(b->space, tag);
	clean(b);
	return (double)sum / EDITS;
}

CONTROL_ONLY static void run(struct bench *b)
{
	static struct topology topology;
	const uint32_t most = sizes[sizeof(sizes) / sizeof(sizes[0]) - 1];
	const struct presence_limits limits = {.uids = most,
		.gateways = 1,
		.sessions_per_gateway = 1,
		.uid_quarantine_ns = NS_PER_S};

	topology_init(&topology, 256, 10, 1);
	topology_ref_begin(&b->ref, &topology);
	b->presence = presence_create(&limits, &b->retire);
	b->space = tag_space_create(UINT64_C(1) << 32, 64, b->presence, &b->retire);
	b->uid = calloc(most, sizeof(*b->uid));
	b->list = calloc(most, sizeof(*b->list));
	for (uint32_t i = 0; i < most; i++) {
		char name[32];
		const int len = snprintf(name, sizeof(name), "user-%u", i * 7919u % most);

		b->uid[i] = presence_uid_hold(b->presence, id_view_of(name, (uint8_t)len));
	}
	// Rows come in UID order, indices do not.
	for (uint32_t i = most - 1; i > 0; i--) {
		const uint32_t j =
			(uint32_t)((uint64_t)rand() * (i + 1) / ((uint64_t)RAND_MAX + 1));
		const uint32_t swap = b->uid[i];

		b->uid[i] = b->uid[j];
		b->uid[j] = swap;
	}
	bench_head("one-member change of a tag, times cheaper than a rebuild");
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		double rebuild[BENCH_ROUNDS], edit[BENCH_ROUNDS];
		char what[64];

		for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
			rebuild[r] = rebuild_ns(b, sizes[i]);
			edit[r] = edit_ns(b, sizes[i]);
		}
		snprintf(what, sizeof(what), "edit of %u members", sizes[i]);
		bench_row_as(what, edit, "rebuild", rebuild,
			sizes[i] == 100000 ? BENCH_LEAST(50) : BENCH_NONE, true);
	}
	tag_space_destroy(b->space);
	presence_destroy(b->presence);
	free(b->uid);
	free(b->list);
}

int main(void)
{
	static struct bench b;

	role_take_control();
	run(&b);
	role_drop_control();
	return 0;
}
