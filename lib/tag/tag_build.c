/* SPDX-License-Identifier: BSD-3-Clause */
// Tags from scratch: sort the members, fold repeats, cut into chunks. Control core.
#include "tag_pvt.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 11u
#define DIGITS 3u  // 31 bits of a UID index
#define BUCKETS (1u << DIGIT_BITS)

static uint32_t digit_of(uint32_t entry, uint32_t digit)
{
	return TAG_UID(entry) >> digit * DIGIT_BITS & (BUCKETS - 1);
}

static void insertion_sort(uint32_t *uid, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		const uint32_t entry = uid[i];
		uint32_t at = i;

		for (; at > 0 && TAG_UID(uid[at - 1]) > TAG_UID(entry); at--)
			uid[at] = uid[at - 1];
		uid[at] = entry;
	}
}

// Least significant digit first; a digit in which all entries agree is skipped.
void tag_sort(uint32_t *uid, uint32_t *other, uint32_t count)
{
	uint32_t start[DIGITS][BUCKETS];
	uint32_t *from = uid, *to = other;

	if (count <= 64) {
		insertion_sort(uid, count);
		return;
	}
	memset(start, 0, sizeof(start));
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t d = 0; d < DIGITS; d++)
			start[d][digit_of(uid[i], d)]++;
	for (uint32_t d = 0; d < DIGITS; d++) {
		uint32_t *const bucket = start[d];
		uint32_t sum = 0, *swap;

		if (bucket[digit_of(from[0], d)] == count)
			continue;
		for (uint32_t b = 0; b < BUCKETS; b++) {
			const uint32_t n = bucket[b];

			bucket[b] = sum;
			sum += n;
		}
		for (uint32_t i = 0; i < count; i++)
			to[bucket[digit_of(from[i], d)]++] = from[i];
		swap = from, from = to, to = swap;
	}
	if (from != uid)
		memcpy(uid, from, (size_t)count * sizeof(*uid));
}

static uint32_t count_unique(const uint32_t *uid, uint32_t count)
{
	uint32_t unique = count != 0;

	for (uint32_t i = 1; i < count; i++)
		unique += TAG_UID(uid[i]) != TAG_UID(uid[i - 1]);
	return unique;
}

// Folds sorted repeats in place, giving their references back. A repeat is denied if one of them is.
static void fold(struct tag_space *space, uint32_t *uid, uint32_t count) CONTROL_ONLY;
static void fold(struct tag_space *space, uint32_t *uid, uint32_t count)
{
	uint32_t n = 1;

	for (uint32_t i = 1; i < count; i++) {
		if (TAG_UID(uid[i]) != TAG_UID(uid[n - 1])) {
			uid[n++] = uid[i];
			continue;
		}
		uid[n - 1] |= uid[i] & TAG_DENIED;
		presence_uid_drop(space->presence, TAG_UID(uid[i]), space->now_ns);
	}
}

static void chunks_free(struct tag_chunk **chunk, uint32_t chunks)
{
	for (uint32_t i = 0; i < chunks; i++)
		free(chunk[i]);
	free((void *)chunk);
}

// Empty chunks for `unique` members, evenly filled. Returns: NULL when there is no memory.
static struct tag_chunk **chunks_make(uint32_t unique, uint32_t chunks, uint64_t *bytes)
{
	struct tag_chunk **chunk = calloc((size_t)chunks + 1, sizeof(*chunk));

	*bytes = 0;
	for (uint32_t i = 0; chunk != NULL && i < chunks; i++) {
		const uint32_t from = (uint32_t)((uint64_t)unique * i / chunks);
		const uint32_t to = (uint32_t)((uint64_t)unique * (i + 1) / chunks);

		chunk[i] = chunk_make(NULL, to - from);
		if (chunk[i] == NULL) {
			chunks_free(chunk, i);
			return NULL;
		}
		*bytes += chunk_bytes(to - from);
	}
	return chunk;
}

static struct tag *build(struct tag_space *space, struct tag_line *line, uint32_t *uid,
	uint32_t count, uint64_t smv, const struct topology_ref *topology) CONTROL_ONLY;
static struct tag *build(struct tag_space *space, struct tag_line *line, uint32_t *uid,
	uint32_t count, uint64_t smv, const struct topology_ref *topology)
{
	uint32_t *other = space_scratch(space, count);
	struct tag_chunk **chunk;
	uint32_t unique, chunks;
	struct tag *tag;
	uint64_t bytes;

	if (other == NULL && count != 0)
		return NULL;
	tag_sort(uid, other, count);
	unique = count_unique(uid, count);
	chunks = (unique + TAG_FILL_UIDS - 1) / TAG_FILL_UIDS;
	if (space->bytes + (uint64_t)unique * sizeof(*uid) > space->bytes_max)
		return NULL;
	chunk = chunks_make(unique, chunks, &bytes);
	if (chunk == NULL)
		return NULL;
	tag = tag_make(space, line, chunk, chunks, bytes, smv, topology);
	if (tag == NULL) {
		chunks_free(chunk, chunks);
		return NULL;
	}
	free((void *)chunk);
	if (unique != count)
		fold(space, uid, count);
	for (uint32_t i = 0, at = 0; i < chunks; at += tag->chunk[i++]->count)
		memcpy(tag->chunk[i]->uid, uid + at, tag->chunk[i]->count * sizeof(*uid));
	tag_inline(tag);
	return tag;
}

struct tag *tag_build(struct tag_space *space, uint32_t *uid, uint32_t count, uint64_t smv,
	const struct topology_ref *topology)
{
	struct tag *tag = build(space, NULL, uid, count, smv, topology);

	if (tag != NULL)
		record_of(tag)->line->last_version = 1;
	return tag;
}

struct tag *tag_rebuild(struct tag_space *space, const struct tag *old, uint32_t *uid,
	uint32_t count, uint64_t smv, const struct topology_ref *topology)
{
	struct tag_record *r = record_of(old);
	struct tag *tag;

	assert(r->line->newest == r && !r->retired);
	if (old->fence.version == UINT64_MAX)
		return tag_build(space, uid, count, smv, topology);
	tag = build(space, r->line, uid, count, smv, topology);
	if (tag == NULL)
		return NULL;
	r->let_go = true;
	steps_clear(space, r->line, tag->fence.version);
	return tag;
}

uint32_t tag_entry(const struct tag *tag, uint32_t uid)
{
	uint32_t low = 0, high = tag->chunks;

	while (high - low > 1) {
		const uint32_t mid = low + (high - low) / 2;

		if (TAG_UID(tag->chunk[mid]->uid[0]) <= uid)
			low = mid;
		else
			high = mid;
	}
	if (tag->chunks == 0)
		return 0;
	for (uint32_t from = 0, to = tag->chunk[low]->count; from < to;) {
		const uint32_t mid = from + (to - from) / 2;
		const uint32_t at = TAG_UID(tag->chunk[low]->uid[mid]);

		if (at == uid)
			return tag->chunk[low]->uid[mid];
		if (at < uid)
			from = mid + 1;
		else
			to = mid;
	}
	return 0;
}

bool tag_has(const struct tag *tag, uint32_t uid)
{
	return tag_entry(tag, uid) != 0;
}
