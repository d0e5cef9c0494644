/* SPDX-License-Identifier: BSD-3-Clause */
// Edits of a tag: only chunks that change are copied, all others are shared with the version before. A
// chunk that grows too large is split, a small one is merged with a neighbour. Control core.
#include "tag_pvt.h"

#include <stdlib.h>
#include <string.h>

#include "base_fault.h"

// What an edit asks for one UID.
enum op_bit {
	OP_REMOVE = 1 << 0,
	OP_ADD = 1 << 1,
	OP_ADD_DENIED = 1 << 2,
	OP_DENY_SET = 1 << 3,
	OP_DENY_CLEAR = 1 << 4,
};
#define OP_UID(op) ((uint32_t)((op) >> 8))
#define OP_BITS(op) ((uint32_t)(op)&0xff)

// One edit at work.
struct edit_work {
	struct tag_space *space;
	const struct tag *old;
	uint64_t *op;  // uid << 8 | bits, ascending, one per UID
	uint32_t ops;
	uint32_t *merged;  // a chunk's new content
	struct tag_chunk **out;
	uint32_t outs, outs_cap;
	uint64_t fresh_bytes;
	// What really changed: four lists of up to `ops`, in op order.
	uint32_t *added, *removed, *denied, *allowed;
	uint32_t addeds, removeds, denieds, alloweds;
};

static int op_compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint32_t ops_list(uint64_t *op, const uint32_t *uid, uint32_t count, uint32_t bit)
{
	for (uint32_t i = 0; i < count; i++) {
		op[i] = (uint64_t)TAG_UID(uid[i]) << 8 | bit;
		if (bit == OP_ADD && (uid[i] & TAG_DENIED) != 0)
			op[i] |= OP_ADD_DENIED;
	}
	return count;
}

// Sorts what is asked and folds it to one op per UID.
static void ops_collect(struct edit_work *w, const struct tag_edit *e)
{
	uint32_t n = 0, m = 0;

	n += ops_list(w->op + n, e->remove, e->removes, OP_REMOVE);
	n += ops_list(w->op + n, e->add, e->adds, OP_ADD);
	n += ops_list(w->op + n, e->deny_set, e->deny_sets, OP_DENY_SET);
	n += ops_list(w->op + n, e->deny_clear, e->deny_clears, OP_DENY_CLEAR);
	if (n > 1)
		qsort(w->op, n, sizeof(*w->op), op_compare);
	for (uint32_t i = 0; i < n; i++) {
		if (m != 0 && OP_UID(w->op[m - 1]) == OP_UID(w->op[i]))
			w->op[m - 1] |= OP_BITS(w->op[i]);
		else
			w->op[m++] = w->op[i];
	}
	w->ops = m;
}

// Applies one op to an entry; 0: not a member, before or after.
static uint32_t op_apply(struct edit_work *w, uint64_t op, uint32_t entry)
{
	const uint32_t uid = OP_UID(op), bits = OP_BITS(op);
	uint32_t now = entry;

	if ((bits & OP_REMOVE) != 0 && entry != 0 && !fault_take(FAULT_REMOVED))
		now = 0;
	if ((bits & OP_ADD) != 0 && now == 0)
		now = uid | ((bits & OP_ADD_DENIED) != 0 ? TAG_DENIED : 0);
	if ((bits & OP_DENY_CLEAR) != 0 && now != 0)
		now = uid;
	if ((bits & OP_DENY_SET) != 0 && now != 0)
		now = uid | TAG_DENIED;
	if (entry == 0 && now != 0)
		w->added[w->addeds++] = now;
	else if (entry != 0 && now == 0)
		w->removed[w->removeds++] = uid;
	else if (entry < now)
		w->denied[w->denieds++] = uid;
	else if (entry > now)
		w->allowed[w->alloweds++] = uid;
	return now;
}

// --- output -----------------------------------------------------------------------------------------

static bool out_push(struct edit_work *w, struct tag_chunk *chunk)
{
	if (chunk == NULL)
		return false;
	if (w->outs == w->outs_cap) {
		const uint32_t cap = w->outs_cap * 2 + 16;
		struct tag_chunk **grown = realloc((void *)w->out, cap * sizeof(*grown));

		if (grown == NULL) {
			if (chunk->refs == 0)
				free(chunk);
			return false;
		}
		w->out = grown;
		w->outs_cap = cap;
	}
	w->out[w->outs++] = chunk;
	if (chunk->refs == 0)
		w->fresh_bytes += chunk_bytes(chunk->count);
	return true;
}

// Joins `uid` to the last chunk put out, when the two fit well into one.
static bool joins_last(const struct edit_work *w, uint32_t count)
{
	const uint32_t last = w->outs == 0 ? 0 : w->out[w->outs - 1]->count;

	return last != 0 && last + count <= TAG_FILL_UIDS &&
	       (last < TAG_SMALL_UIDS || count < TAG_SMALL_UIDS);
}

static bool join_last(struct edit_work *w, const uint32_t *uid, uint32_t count)
{
	struct tag_chunk *last = w->out[w->outs - 1];
	struct tag_chunk *joined = chunk_make(NULL, last->count + count);

	if (joined == NULL)
		return false;
	memcpy(joined->uid, last->uid, last->count * sizeof(*uid));
	memcpy(joined->uid + last->count, uid, count * sizeof(*uid));
	w->fresh_bytes += chunk_bytes(joined->count);
	if (last->refs == 0) {
		w->fresh_bytes -= chunk_bytes(last->count);
		free(last);
	}
	w->out[w->outs - 1] = joined;
	return true;
}

// Puts out changed content, in one chunk or several.
static bool put_merged(struct edit_work *w, uint32_t count)
{
	const uint32_t pieces =
		count <= TAG_CHUNK_UIDS ? 1 : (count + TAG_FILL_UIDS - 1) / TAG_FILL_UIDS;

	if (count == 0)
		return true;
	if (joins_last(w, count))
		return join_last(w, w->merged, count);
	for (uint32_t i = 0; i < pieces; i++) {
		const uint32_t from = (uint32_t)((uint64_t)count * i / pieces);
		const uint32_t to = (uint32_t)((uint64_t)count * (i + 1) / pieces);

		if (!out_push(w, chunk_make(w->merged + from, to - from)))
			return false;
	}
	return true;
}

// Shares an unchanged chunk, unless what stands before it became small. Untouched small neighbours, as
// in a tag that is small as a whole, stay as they are.
static bool put_shared(struct edit_work *w, struct tag_chunk *chunk)
{
	if (w->outs != 0 && w->out[w->outs - 1]->refs == 0 && joins_last(w, chunk->count))
		return join_last(w, chunk->uid, chunk->count);
	return out_push(w, chunk);
}

// --- merge ------------------------------------------------------------------------------------------

static uint32_t chunk_first(const struct tag *tag, uint32_t i)
{
	return TAG_UID(tag->chunk[i]->uid[0]);
}

// The chunk at or after `from` that `uid` belongs to: the last that begins at or below it.
static uint32_t chunk_of(const struct tag *tag, uint32_t from, uint32_t uid)
{
	uint32_t low = from, high = tag->chunks;

	while (high - low > 1) {
		const uint32_t mid = low + (high - low) / 2;

		if (chunk_first(tag, mid) <= uid)
			low = mid;
		else
			high = mid;
	}
	return low;
}

// Copies entries of a chunk below `uid`, with one search and one copy. Returns: how far it got.
static uint32_t copy_below(const struct tag_chunk *chunk, uint32_t from, uint32_t uid, uint32_t *to)
{
	uint32_t low = from, high = chunk->count;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (TAG_UID(chunk->uid[mid]) < uid)
			low = mid + 1;
		else
			high = mid;
	}
	memcpy(to, chunk->uid + from, (low - from) * sizeof(*to));
	return low;
}

// Applies ops [i, end) to one chunk (NULL: none yet) and puts the result out.
static bool merge_chunk(struct edit_work *w, struct tag_chunk *chunk, uint32_t i, uint32_t end)
{
	const uint32_t changes = w->addeds + w->removeds + w->denieds + w->alloweds;
	uint32_t at = 0, n = 0;

	for (; i < end; i++) {
		const uint32_t uid = OP_UID(w->op[i]);
		uint32_t entry = 0, now;

		if (chunk != NULL) {
			const uint32_t next = copy_below(chunk, at, uid, w->merged + n);

			n += next - at;
			at = next;
			if (at < chunk->count && TAG_UID(chunk->uid[at]) == uid)
				entry = chunk->uid[at++];
		}
		now = op_apply(w, w->op[i], entry);
		if (now != 0)
			w->merged[n++] = now;
	}
	if (changes == w->addeds + w->removeds + w->denieds + w->alloweds)
		return chunk == NULL || put_shared(w, chunk);
	if (chunk != NULL) {
		memcpy(w->merged + n, chunk->uid + at, (chunk->count - at) * sizeof(*w->merged));
		n += chunk->count - at;
	}
	return put_merged(w, n);
}

static bool merge_all(struct edit_work *w)
{
	const struct tag *old = w->old;
	uint32_t c = 0, i = 0;

	if (old->chunks == 0)
		return merge_chunk(w, NULL, 0, w->ops);
	while (i < w->ops) {
		const uint32_t hit = chunk_of(old, c, OP_UID(w->op[i]));
		const bool last = hit + 1 == old->chunks;
		uint32_t end = i + 1;

		for (; c < hit; c++)
			if (!put_shared(w, old->chunk[c]))
				return false;
		while (end < w->ops && (last || OP_UID(w->op[end]) < chunk_first(old, hit + 1)))
			end++;
		if (!merge_chunk(w, old->chunk[hit], i, end))
			return false;
		c = hit + 1;
		i = end;
	}
	for (; c < old->chunks; c++)
		if (!put_shared(w, old->chunk[c]))
			return false;
	return true;
}

// --- the edit ---------------------------------------------------------------------------------------

static struct tag_drops *drops_make(const struct edit_work *w)
{
	struct tag_drops *d = malloc(sizeof(*d) + w->removeds * sizeof(d->uid[0]));

	if (d == NULL)
		return NULL;
	d->next = NULL;
	d->count = w->removeds;
	memcpy(d->uid, w->removed, w->removeds * sizeof(d->uid[0]));
	return d;
}

static void drops_attach(struct tag_record *r, struct tag_drops *d)
{
	r->space->bytes += sizeof(*d) + d->count * sizeof(d->uid[0]);
	if (r->drops == NULL)
		r->drops = d;
	else
		r->drops_last->next = d;
	r->drops_last = d;
}

static bool work_begin(struct edit_work *w, const struct tag_edit *e)
{
	const size_t ops = (size_t)e->adds + e->removes + e->deny_sets + e->deny_clears;
	uint32_t *s;

	if (ops > UINT32_MAX / 16)
		return false;
	s = space_scratch(w->space, (uint32_t)(ops * 7 + 2 * TAG_CHUNK_UIDS));
	if (s == NULL)
		return false;
	w->op = (uint64_t *)s;
	w->added = s + 2 * ops;
	w->removed = s + 3 * ops;
	w->denied = s + 4 * ops;
	w->allowed = s + 5 * ops;
	w->merged = s + 6 * ops;
	w->outs_cap = w->old->chunks + 4;
	w->out = malloc(w->outs_cap * sizeof(struct tag_chunk *));
	return w->out != NULL;
}

static void work_abandon(struct edit_work *w)
{
	for (uint32_t i = 0; i < w->outs; i++)
		if (w->out[i]->refs == 0)
			free(w->out[i]);
}

static struct tag *commit(struct edit_work *w, const struct tag_edit *e) CONTROL_ONLY;
static struct tag *commit(struct edit_work *w, const struct tag_edit *e)
{
	struct tag_record *r = record_of(w->old);
	struct tag_drops *drops = NULL;
	struct tag *tag;

	if (w->removeds != 0 && (drops = drops_make(w)) == NULL)
		return NULL;
	tag = tag_make(w->space, r->line, w->out, w->outs, w->fresh_bytes, e->smv,
		e->topology != NULL ? e->topology : r->topology);
	if (tag == NULL) {
		free(drops);
		return NULL;
	}
	atomic_store_explicit(&tag->used_ns,
		atomic_load_explicit(&w->old->used_ns, memory_order_relaxed), memory_order_relaxed);
	for (uint32_t i = 0; i < w->addeds; i++)
		presence_uid_ref(w->space->presence, TAG_UID(w->added[i]));
	if (drops != NULL)
		drops_attach(r, drops);
	steps_add(w->space, r->line, tag->fence.version,
		&(struct step_lists){w->added, w->removed, w->denied, w->allowed, w->addeds,
			w->removeds, w->denieds, w->alloweds});
	tag_inline(tag);
	return tag;
}

struct tag *tag_edit(struct tag_space *space, const struct tag *old, const struct tag_edit *edit)
{
	struct edit_work w = {.space = space, .old = old};
	struct tag *tag = NULL;

	assert(record_of(old)->line->newest == record_of(old) && !record_of(old)->retired);
	if (old->fence.version == UINT64_MAX)
		return NULL;
	if (work_begin(&w, edit)) {
		ops_collect(&w, edit);
		if (merge_all(&w))
			tag = commit(&w, edit);
	}
	if (tag == NULL)
		work_abandon(&w);
	free((void *)w.out);
	return tag;
}
