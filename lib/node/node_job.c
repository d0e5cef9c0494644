/* SPDX-License-Identifier: BSD-3-Clause */
// One tag build: pages of members and of the deny list from the source, then the deltas since the first
// page, then the tag. Control core.
//
// Each page is a transaction of its own, so the pages are of different commits. Every delta of the channel
// after the first page's commit is kept and, once the feed has passed the last page's commit, applied to
// the sets in order. For each UID the last such delta decides, and without one its row was the same in
// every commit: the result is the set at the feed's commit, whatever came between the pages.
#include "node_control_pvt.h"

#include <errno.h>
#include <stdlib.h>

void node_job_begin(struct node_job *job, struct channel *channel)
{
	*job = (struct node_job){.channel = channel, .phase = BUILD_MEMBERS};
}

// Forgets what was read.
static void reset(struct node *node, struct node_job *job, uint64_t now_ns) CONTROL_ONLY;
static void reset(struct node *node, struct node_job *job, uint64_t now_ns)
{
	node_uids_drop(node, &job->member, now_ns);
	node_uids_drop(node, &job->deny, now_ns);
	while (job->delta != NULL) {
		struct node_delta *next = job->delta->next;

		free(job->delta);
		job->delta = next;
	}
	job->delta_last = NULL;
	job->delta_bytes = 0;
	job->began = false;
	job->restart = false;
	job->after_len = 0;
	job->phase = BUILD_MEMBERS;
	memset(job->slots, 0, sizeof(job->slots));
}

void node_job_clear(struct node *node, struct node_job *job, uint64_t now_ns)
{
	reset(node, job, now_ns);
	job->phase = BUILD_FREE;
	job->channel = NULL;
}

void node_job_delta(struct node_job *job, const struct store_delta *d)
{
	struct node_delta *kept;

	// The first page, when it comes, is at least of this commit; and pages that were have it.
	if (!job->began || d->commit <= job->first_commit ||
		(d->list != STORE_MEMBERS && d->list != STORE_DENY) ||
		d->kind == STORE_DELTA_CHANNEL)
		return;
	kept = job->delta_bytes + d->uids_bytes > BUILD_DELTA_BYTES_MAX ||
			       d->kind == STORE_DELTA_BULK
		       ? NULL
		       : malloc(sizeof(*kept) + d->uids_bytes);
	if (kept == NULL) {
		job->restart = true;
		return;
	}
	*kept = (struct node_delta){
		.commit = d->commit,
		.kind = d->kind,
		.list = d->list,
		.bytes = d->uids_bytes,
	};
	memcpy(kept->uids, d->uids, d->uids_bytes);
	if (job->delta == NULL)
		job->delta = kept;
	else
		job->delta_last->next = kept;
	job->delta_last = kept;
	job->delta_bytes += d->uids_bytes;
}

// --- pages --------------------------------------------------------------------------------------------

static void slot_mark(const struct node *node, struct node_job *job, struct id_view uid)
{
	const uint32_t slot = topology_slot_of(node->topology, uid);

	job->slots[slot / 64] |= UINT64_C(1) << slot % 64;
}

// Names of a page into build.name. Returns: number, or -EIO when the page is not well formed.
static int page_names(struct node *node, const struct store_page *page) CONTROL_ONLY;
static int page_names(struct node *node, const struct store_page *page)
{
	struct node_build *b = &node->control->build;
	const uint8_t *p = b->page, *const end = b->page + page->bytes_used;
	struct id_view uid;
	uint32_t n = 0;

	if (page->bytes_used > BUILD_PAGE_BYTES || page->count > BUILD_PAGE_MEMBERS ||
		!node_scratch(node, BUILD_PAGE_MEMBERS))
		return -EIO;
	for (; n < page->count && store_uids_next(&p, end, &uid); n++) {
		if (uid.len == 0 || p > end)
			return -EIO;
		b->name[n] = uid;
	}
	return n == page->count && p == end ? (int)n : -EIO;
}

static enum job_end take_page(
	struct node *node, struct node_job *job, uint32_t count, uint64_t now_ns) CONTROL_ONLY;
static enum job_end take_page(
	struct node *node, struct node_job *job, uint32_t count, uint64_t now_ns)
{
	struct node_build *b = &node->control->build;
	struct node_uids *list = job->phase == BUILD_DENY ? &job->deny : &job->member;
	const uint32_t held = presence_uid_hold_burst(node->presence, b->name, count, b->scratch);
	uint32_t n = 0;

	while (n < held && node_uids_add(node, list, b->scratch[n]))
		n++;
	for (uint32_t i = n; i < held; i++)
		presence_uid_drop(node->presence, b->scratch[i], now_ns);
	if (held < count)
		counter_add(own(node), CTR_LIMIT_UIDS, 1);
	if (n < count)
		return JOB_FAILED;
	for (uint32_t i = 0; list == &job->member && i < count; i++)
		slot_mark(node, job, b->name[i]);
	if (count != 0) {
		job->after_len = b->name[count - 1].len;
		memcpy(job->after, b->name[count - 1].bytes, job->after_len);
	}
	return JOB_GOES_ON;
}

// What a page says of where it was read. Returns: JOB_GOES_ON when it continues what was read before.
static enum job_end page_place(
	struct node *node, struct node_job *job, const struct store_page *page) CONTROL_ONLY;
static enum job_end page_place(
	struct node *node, struct node_job *job, const struct store_page *page)
{
	const struct node_feed *feed = &node->control->feed;

	if (page->generation != feed->generation ||
		(job->began && page->generation != job->generation)) {
		node->params.source_ops->reopen(node->params.source);
		job->restart = true;
		return JOB_GOES_ON;
	}
	if (!job->began) {
		if (page->commit < feed->commit)
			return JOB_LATER;  // a source behind the feed
		job->began = true;
		job->generation = page->generation;
		job->first_commit = page->commit;
	} else if (page->commit < job->last_commit) {
		job->restart = true;
	}
	job->last_commit = page->commit;
	return JOB_GOES_ON;
}

static enum job_end read_page(struct node *node, struct node_job *job, uint32_t max, uint32_t *used,
	uint64_t now_ns) CONTROL_ONLY;
static enum job_end read_page(
	struct node *node, struct node_job *job, uint32_t max, uint32_t *used, uint64_t now_ns)
{
	const struct node_params *p = &node->params;
	const struct channel_key key = node_channel_key(job->channel);
	struct store_page page = {0};
	const int rc = p->source_ops->page(p->source, &key,
		job->phase == BUILD_DENY ? STORE_DENY : STORE_MEMBERS,
		id_view_of(job->after, job->after_len),
		max < BUILD_PAGE_MEMBERS ? max : BUILD_PAGE_MEMBERS, node->control->build.page,
		BUILD_PAGE_BYTES, &page);
	enum job_end end;
	int count;

	*used += 1;
	if (rc == -ENOENT)
		return JOB_LATER;  // removed, and the feed has not said so yet
	if (rc != 0)
		return JOB_FAILED;
	end = page_place(node, job, &page);
	if (end != JOB_GOES_ON || job->restart)
		return end;
	count = page_names(node, &page);
	if (count < 0 || (count == 0 && !page.last))
		return JOB_FAILED;
	*used += (uint32_t)count;
	end = take_page(node, job, (uint32_t)count, now_ns);
	if (end == JOB_GOES_ON && page.last) {
		job->phase++;
		job->after_len = 0;
	}
	return end;
}

// --- replay -------------------------------------------------------------------------------------------

static void mark_set(struct node_build *b, uint32_t uid)
{
	b->mark[uid / 64] |= UINT64_C(1) << uid % 64;
}

static void mark_clear(struct node_build *b, uint32_t uid)
{
	b->mark[uid / 64] &= ~(UINT64_C(1) << uid % 64);
}

static bool marked(const struct node_build *b, uint32_t uid)
{
	return (b->mark[uid / 64] >> uid % 64 & 1) != 0;
}

// An op of the replay: UID index << 32 | place in the order << 1 | add.
static int op_compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#define OP_UID(op) ((uint32_t)((op) >> 32))
#define OP_ADD(op) (((op)&1) != 0)

// Ops of one list in commit order; adds hold their UID. Returns: number, or -ENOSPC with nothing held.
static int64_t ops_collect(struct node *node, struct node_job *job, uint8_t list, uint64_t *op,
	uint64_t now_ns) CONTROL_ONLY;
static int64_t ops_collect(
	struct node *node, struct node_job *job, uint8_t list, uint64_t *op, uint64_t now_ns)
{
	uint32_t n = 0;

	for (const struct node_delta *d = job->delta; d != NULL; d = d->next) {
		const uint8_t *p = d->uids, *const end = d->uids + d->bytes;
		const bool add = d->kind == STORE_DELTA_ADD;
		struct id_view name;

		while (d->list == list && store_uids_next(&p, end, &name)) {
			const uint32_t uid = add ? presence_uid_hold(node->presence, name)
						 : presence_uid_find(node->presence, name);

			if (uid != 0) {
				op[n] = (uint64_t)uid << 32 | n << 1 | add;
				n++;
			} else if (add) {
				while (n-- != 0)
					if (OP_ADD(op[n]))
						presence_uid_drop(
							node->presence, OP_UID(op[n]), now_ns);
				counter_add(own(node), CTR_LIMIT_UIDS, 1);
				return -ENOSPC;
			}
			if (add && list == STORE_MEMBERS)
				slot_mark(node, job, name);
		}
	}
	return n;
}

// Takes every UID the ops name out of the list, and puts those back whose last op is an add.
static bool ops_apply(struct node *node, struct node_uids *list, uint64_t *op, uint32_t ops,
	uint64_t now_ns) CONTROL_ONLY;
static bool ops_apply(
	struct node *node, struct node_uids *list, uint64_t *op, uint32_t ops, uint64_t now_ns)
{
	struct node_build *b = &node->control->build;
	uint32_t n = 0;
	bool room = true;

	for (uint32_t i = 0; i < ops; i++)
		mark_set(b, OP_UID(op[i]));
	for (uint32_t i = 0; i < list->count; i++) {
		if (marked(b, list->uid[i]))
			presence_uid_drop(node->presence, list->uid[i], now_ns);
		else
			list->uid[n++] = list->uid[i];
	}
	list->count = n;
	qsort(op, ops, sizeof(*op), op_compare);
	for (uint32_t i = 0; i < ops; i++) {
		const bool last = i + 1 == ops || OP_UID(op[i + 1]) != OP_UID(op[i]);

		mark_clear(b, OP_UID(op[i]));
		if (!OP_ADD(op[i]))
			continue;
		if (last && room)
			room = node_uids_add(node, list, OP_UID(op[i]));
		if (!last || !room)
			presence_uid_drop(node->presence, OP_UID(op[i]), now_ns);
	}
	return room;
}

static bool replay(struct node *node, struct node_job *job, uint8_t list_id, struct node_uids *list,
	uint64_t now_ns) CONTROL_ONLY;
static bool replay(struct node *node, struct node_job *job, uint8_t list_id, struct node_uids *list,
	uint64_t now_ns)
{
	uint64_t *op;
	int64_t ops;
	bool done;

	if (job->delta == NULL)
		return true;
	// A packed UID is two bytes at least.
	op = malloc((job->delta_bytes / 2 + 1) * sizeof(*op));
	if (op == NULL)
		return false;
	ops = ops_collect(node, job, list_id, op, now_ns);
	done = ops >= 0 && ops_apply(node, list, op, (uint32_t)ops, now_ns);
	free(op);
	return done;
}

// --- the end ------------------------------------------------------------------------------------------

static int uid_compare(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void deny_flags(struct node *node, struct node_job *job) CONTROL_ONLY;
static void deny_flags(struct node *node, struct node_job *job)
{
	struct node_build *b = &node->control->build;

	if (job->deny.count == 0)
		return;
	for (uint32_t i = 0; i < job->deny.count; i++)
		mark_set(b, job->deny.uid[i]);
	for (uint32_t i = 0; i < job->member.count; i++)
		if (marked(b, job->member.uid[i]))
			job->member.uid[i] |= TAG_DENIED;
	for (uint32_t i = 0; i < job->deny.count; i++)
		mark_clear(b, job->deny.uid[i]);
}

// The deny list goes beside the tag, or is known to be too long for that.
static void deny_keep(struct node *node, struct node_job *job, uint64_t now_ns) CONTROL_ONLY;
static void deny_keep(struct node *node, struct node_job *job, uint64_t now_ns)
{
	struct node_channel *nc = node_channel_of(node, job->channel);

	node_deny_drop(node, nc, now_ns);
	if (job->deny.count > DENY_KEPT_MAX) {
		nc->deny_partial = true;
		return;
	}
	if (job->deny.count > 1)
		qsort(job->deny.uid, job->deny.count, sizeof(*job->deny.uid), uid_compare);
	nc->deny = job->deny;
	job->deny = (struct node_uids){0};
}

static bool topology_of(struct node *node, const struct node_job *job) CONTROL_ONLY;
static bool topology_of(struct node *node, const struct node_job *job)
{
	struct topology_ref *ref = &node->control->build.ref;

	topology_ref_begin(ref, node->topology);
	for (uint32_t s = 0; s <= TOPOLOGY_SLOTS_MAX; s++)
		if ((job->slots[s / 64] >> s % 64 & 1) != 0 &&
			topology_ref_add(ref, node->topology, s) != 0)
			return false;
	return true;
}

static enum job_end publish(struct node *node, struct node_job *job, uint64_t now_ns) CONTROL_ONLY;
static enum job_end publish(struct node *node, struct node_job *job, uint64_t now_ns)
{
	struct channel *channel = job->channel;
	const uint64_t smv = atomic_load_explicit(&channel->smv, memory_order_relaxed);
	const struct topology_ref *ref = &node->control->build.ref;
	struct tag *old = atomic_load_explicit(&channel->tag, memory_order_relaxed), *tag;

	if (!topology_of(node, job))
		return JOB_LATER;
	deny_flags(node, job);
	tag = old == NULL
		      ? tag_build(node->tags, job->member.uid, job->member.count, smv, ref)
		      : tag_rebuild(node->tags, old, job->member.uid, job->member.count, smv, ref);
	if (tag == NULL) {
		counter_add(own(node), CTR_LIMIT_TAG_MEMORY, 1);
		return JOB_FAILED;
	}
	job->member.count = 0;  // its references are the tag's
	deny_keep(node, job, now_ns);
	atomic_store_explicit(&tag->used_ns, now_ns, memory_order_relaxed);
	node_tag_set(node, channel, tag);
	counter_add(own(node), CTR_TAG_BUILD, 1);
	return JOB_DONE;
}

static enum job_end finish(
	struct node *node, struct node_job *job, uint32_t *used, uint64_t now_ns) CONTROL_ONLY;
static enum job_end finish(struct node *node, struct node_job *job, uint32_t *used, uint64_t now_ns)
{
	const struct node_feed *feed = &node->control->feed;

	if (feed->commit < job->last_commit)
		return feed->connected ? JOB_GOES_ON : JOB_LATER;
	*used += 1;
	if (!replay(node, job, STORE_MEMBERS, &job->member, now_ns) ||
		!replay(node, job, STORE_DENY, &job->deny, now_ns))
		return JOB_FAILED;
	return publish(node, job, now_ns);
}

enum job_end node_job_step(
	struct node *node, struct node_job *job, uint32_t max, uint32_t *used, uint64_t now_ns)
{
	if (job->restart) {
		if (++job->restarts > BUILD_RESTARTS_MAX)
			return JOB_FAILED;
		reset(node, job, now_ns);
	}
	if (job->phase == BUILD_FEED)
		return finish(node, job, used, now_ns);
	return read_page(node, job, max, used, now_ns);
}
