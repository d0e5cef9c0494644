/* SPDX-License-Identifier: BSD-3-Clause */
// Life of tags: creation as the newest version of a line, retirement, freeing. Owned by the control core.
#include "tag_pvt.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct tag_space *tag_space_create(uint64_t bytes_max, uint32_t steps_max,
	struct presence *presence, struct rcu_retire *retire)
{
	struct tag_space *space = calloc(1, sizeof(*space));

	if (space == NULL)
		return NULL;
	space->bytes_max = bytes_max;
	space->steps_max = steps_max;
	space->presence = presence;
	space->retire = retire;
	return space;
}

void tag_space_seed(struct tag_space *space, uint64_t seed)
{
	space->seeded = true;
	space->seed = seed;
}

uint64_t tag_space_bytes(const struct tag_space *space)
{
	return space->bytes;
}

uint32_t *space_scratch(struct tag_space *space, uint32_t count)
{
	uint32_t *grown;

	if (count <= space->scratch_cap)
		return space->scratch;
	grown = realloc(space->scratch, (size_t)count * sizeof(*grown));
	if (grown == NULL)
		return NULL;
	space->scratch = grown;
	space->scratch_cap = count;
	return grown;
}

// splitmix64
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static bool mint_key(struct tag_space *space, uint8_t key[16])
{
	if (space->seeded) {
		const uint64_t word[2] = {next_random(&space->seed), next_random(&space->seed)};

		memcpy(key, word, 16);
		return true;
	}
	return getrandom(key, 16, 0) == 16;
}

// --- chunks and tags --------------------------------------------------------------------------------

struct tag_chunk *chunk_make(const uint32_t *uid, uint32_t count)
{
	struct tag_chunk *chunk = malloc(chunk_bytes(count));

	if (chunk == NULL)
		return NULL;
	chunk->refs = 0;
	chunk->count = count;
	if (uid != NULL)
		memcpy(chunk->uid, uid, (size_t)count * sizeof(*uid));
	return chunk;
}

void chunk_unref(struct tag_space *space, struct tag_chunk *chunk)
{
	if (--chunk->refs != 0)
		return;
	space->bytes -= chunk_bytes(chunk->count);
	free(chunk);
}

static struct tag_line *line_make(struct tag_space *space)
{
	struct tag_line *line = calloc(1, sizeof(*line));

	if (line == NULL)
		return NULL;
	line->next = space->lines;
	if (line->next != NULL)
		line->next->prev = line;
	space->lines = line;
	return line;
}

static void line_free(struct tag_space *space, struct tag_line *line)
{
	if (line->prev != NULL)
		line->prev->next = line->next;
	else
		space->lines = line->next;
	if (line->next != NULL)
		line->next->prev = line->prev;
	free(line);
}

static size_t topology_bytes(const struct topology_ref *ref)
{
	return offsetof(struct topology_ref, slot) + ref->count * sizeof(ref->slot[0]);
}

// Whole cache lines, so that a small tag with its members takes as few as it can.
static size_t tag_bytes_of(uint32_t chunks, uint32_t members)
{
	const size_t inlined = members <= TAG_INLINE_UIDS ? members * sizeof(uint32_t) : 0;

	return (sizeof(struct tag) + chunks * sizeof(struct tag_chunk *) + inlined + 63) &
	       ~(size_t)63;
}

static struct tag_record *record_make(struct tag_space *space, uint32_t chunks, uint32_t members,
	const struct topology_ref *topology)
{
	const size_t tag_bytes = tag_bytes_of(chunks, members);
	struct tag_record *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return NULL;
	r->tag = aligned_alloc(64, tag_bytes);
	if (r->tag != NULL)
		memset(r->tag, 0, tag_bytes);
	r->topology = malloc(topology_bytes(topology));
	if (r->tag == NULL || r->topology == NULL) {
		free(r->tag);
		free(r->topology);
		free(r);
		return NULL;
	}
	memcpy(r->topology, topology, topology_bytes(topology));
	r->space = space;
	r->bytes = sizeof(*r) + tag_bytes + topology_bytes(topology);
	r->tag->control = r;
	return r;
}

static void record_free(struct tag_record *r)
{
	free(r->topology);
	free((void *)r->tag->targets);
	free(r->tag);
	free(r);
}

// Key and version of a new tag, both from one place. Returns: false when no key can be made.
static bool fence_next(
	struct tag_space *space, const struct tag_line *line, struct tag_fence *fence)
{
	if (line != NULL) {
		*fence = line->newest->tag->fence;
		fence->version++;
		return true;
	}
	fence->version = 1;
	return mint_key(space, fence->key);
}

static void line_append(struct tag_line *line, struct tag_record *r)
{
	r->line = line;
	r->older = line->latest;
	if (line->latest != NULL)
		line->latest->newer = r;
	else
		line->oldest = r;
	line->latest = r;
	line->newest = r;
}

struct tag *tag_make(struct tag_space *space, struct tag_line *line, struct tag_chunk **chunk,
	uint32_t chunks, uint64_t fresh_bytes, uint64_t smv, const struct topology_ref *topology)
{
	uint32_t members = 0;
	struct tag_record *r;
	struct tag *tag;

	for (uint32_t i = 0; i < chunks; i++)
		members += chunk[i]->count;
	r = record_make(space, chunks, members, topology);
	if (r == NULL)
		return NULL;
	tag = r->tag;
	if (space->bytes + r->bytes + fresh_bytes > space->bytes_max ||
		!fence_next(space, line, &tag->fence)) {
		record_free(r);
		return NULL;
	}
	if (line == NULL)
		line = line_make(space);
	if (line == NULL) {
		record_free(r);
		return NULL;
	}
	space->bytes += r->bytes + fresh_bytes;
	tag->smv = smv;
	tag->chunks = chunks;
	atomic_store_explicit(&tag->used_ns, space->now_ns, memory_order_relaxed);
	tag->count = members;
	for (uint32_t i = 0; i < chunks; i++) {
		tag->chunk[i] = chunk[i];
		chunk[i]->refs++;
	}
	line_append(line, r);
	return tag;
}

void tag_fence_set(struct tag_space *space, struct tag *tag, const struct tag_fence *fence)
{
	tag->fence = *fence;
	steps_clear(space, record_of(tag)->line, fence->version);
}

void tag_targets_set(struct tag_space *space, struct tag *tag, struct tag_targets *targets)
{
	const uint64_t bytes =
		sizeof(*targets) + (uint64_t)targets->count * sizeof(targets->target[0]);

	tag->targets = targets;
	record_of(tag)->bytes += bytes;
	space->bytes += bytes;
}

void tag_inline(struct tag *tag)
{
	uint32_t *to = (uint32_t *)(void *)&tag->chunk[tag->chunks];

	if (tag->count > TAG_INLINE_UIDS)
		return;
	tag->inlined = to;
	for (uint32_t i = 0; i < tag->chunks; i++) {
		memcpy(to, tag->chunk[i]->uid, tag->chunk[i]->count * sizeof(*to));
		to += tag->chunk[i]->count;
	}
}

const struct topology_ref *tag_topology(const struct tag *tag)
{
	return record_of(tag)->topology;
}

// --- retirement -------------------------------------------------------------------------------------

static void waiting_push(struct tag_space *space, struct tag_record *r)
{
	r->next = NULL;
	if (space->waiting == NULL)
		space->waiting = r;
	else
		space->waiting_last->next = r;
	space->waiting_last = r;
	space->waiting_count++;
}

static struct tag_record *waiting_pop(struct tag_space *space)
{
	struct tag_record *r = space->waiting;

	space->waiting = r->next;
	space->waiting_count--;
	return r;
}

static void grace_over(void *owner, void *ptr)
{
	waiting_push(owner, ptr);
}

void tag_retire(struct tag_space *space, struct tag *tag)
{
	struct tag_record *r = record_of(tag);

	assert(!r->retired);
	r->retired = true;
	if (r->line->newest == r) {
		r->line->newest = NULL;
		r->let_go = true;
		steps_clear(space, r->line, 0);
	}
	rcu_retire(space->retire, grace_over, space, r);
}

// Drops up to *budget references of the members of a tag. Returns: true when all are dropped.
static bool members_drop(struct tag_record *r, uint32_t *budget, uint64_t now_ns) CONTROL_ONLY;
static bool members_drop(struct tag_record *r, uint32_t *budget, uint64_t now_ns)
{
	const struct tag *tag = r->tag;

	while (r->released_chunk < tag->chunks) {
		const struct tag_chunk *chunk = tag->chunk[r->released_chunk];

		for (; r->released_uid < chunk->count; r->released_uid++, --*budget) {
			if (*budget == 0)
				return false;
			presence_uid_drop(
				r->space->presence, TAG_UID(chunk->uid[r->released_uid]), now_ns);
		}
		r->released_chunk++;
		r->released_uid = 0;
	}
	return true;
}

// Lets the drops of a version go, or moves them to the next older one that lives.
static void drops_pass(struct tag_record *r, uint32_t *budget, uint64_t now_ns) CONTROL_ONLY;
static void drops_pass(struct tag_record *r, uint32_t *budget, uint64_t now_ns)
{
	struct tag_record *older = r->older;

	if (r->drops == NULL)
		return;
	if (older != NULL) {
		if (older->drops == NULL)
			older->drops = r->drops;
		else
			older->drops_last->next = r->drops;
		older->drops_last = r->drops_last;
		r->drops = NULL;
		return;
	}
	while (r->drops != NULL) {
		struct tag_drops *d = r->drops;

		for (uint32_t i = 0; i < d->count; i++)
			presence_uid_drop(r->space->presence, d->uid[i], now_ns);
		*budget -= d->count < *budget ? d->count : *budget;
		r->space->bytes -= sizeof(*d) + d->count * sizeof(d->uid[0]);
		r->drops = d->next;
		free(d);
	}
}

static void record_end(struct tag_space *space, struct tag_record *r)
{
	struct tag_line *line = r->line;
	struct tag *tag = r->tag;

	for (uint32_t i = 0; i < tag->chunks; i++)
		chunk_unref(space, tag->chunk[i]);
	if (r->older != NULL)
		r->older->newer = r->newer;
	else
		line->oldest = r->newer;
	if (r->newer != NULL)
		r->newer->older = r->older;
	else
		line->latest = r->older;
	space->bytes -= r->bytes;
	record_free(r);
	if (line->oldest == NULL) {
		steps_free(line);
		line_free(space, line);
	}
}

uint32_t tag_space_step(struct tag_space *space, uint64_t now_ns)
{
	uint32_t budget = TAG_FREE_UIDS, freed = 0;

	space->now_ns = now_ns;
	// Each waiting one is looked at once at most; what cannot go yet goes to the end.
	for (uint32_t n = space->waiting_count < 64 ? space->waiting_count : 64; n != 0; n--) {
		struct tag_record *r = waiting_pop(space);

		if (atomic_load_explicit(&r->tag->pins, memory_order_acquire) != 0 ||
			(r->let_go && r->older != NULL)) {
			waiting_push(space, r);
			continue;
		}
		if (budget == 0 || (r->let_go && !members_drop(r, &budget, now_ns))) {
			waiting_push(space, r);
			return freed + 1;
		}
		drops_pass(r, &budget, now_ns);
		record_end(space, r);
		freed++;
	}
	return freed;
}

void tag_space_destroy(struct tag_space *space)
{
	if (space == NULL)
		return;
	rcu_reclaim(space->retire);
	while (space->lines != NULL) {
		struct tag_line *line = space->lines;
		struct tag_record *r = line->oldest, *newer;

		steps_free(line);
		for (; r != NULL; r = newer) {
			newer = r->newer;
			for (uint32_t i = 0; i < r->tag->chunks; i++)
				chunk_unref(space, r->tag->chunk[i]);
			while (r->drops != NULL) {
				struct tag_drops *d = r->drops;

				r->drops = d->next;
				free(d);
			}
			record_free(r);
		}
		line_free(space, line);
	}
	free(space->scratch);
	free(space);
}
