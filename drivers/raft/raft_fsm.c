/* SPDX-License-Identifier: BSD-3-Clause */
// The library's state machine: entries are copied to a queue when the library applies them and offered to
// the consumer in turns of the loop; snapshots begin here and are encoded in the pool; a restore is handed
// to the consumer, who works on it in turns while entries queue up behind.
// Owns the queue and the bytes of snapshots on their way. Context: the loop, encode() in the pool.
#include "raft_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base_limits.h"
#include "base_log.h"
#include "base_time.h"

#define CHUNK_BYTES ((size_t)4 << 20)  // of a snapshot being encoded
#define ENTRY_FORMAT 1u
#define RESTORE_WORK_NS (200 * NS_PER_US)
// An install gets four times what a slow link needs, and ten seconds.
#define INSTALL_BYTES_PER_MS 12500u
#define INSTALL_MS_MIN 10000u

static struct raft_cons *of_ops(struct raft_fsm *ops)
{
	return ops->data;
}

// --- queue --------------------------------------------------------------------------------------------------

static void queue_clear(struct raft_cons *c)
{
	struct fsm *f = &c->fsm;

	while (f->first != NULL) {
		struct fsm_entry *entry = f->first;

		f->first = entry->next;
		// It is in the snapshot that replaces it, but its results are not.
		if (entry->origin.node_id == c->params.node_id && entry->origin.life == c->life)
			core_answer(c, entry->origin.token, CONS_UNKNOWN,
				"covered by a snapshot from the leader");
		free(entry);
	}
	f->last = &f->first;
	f->entries = f->bytes = 0;
}

static void count_log(struct raft_cons *c, size_t bytes)
{
	struct fsm *f = &c->fsm;

	f->log_bytes += bytes;
	if (c->params.snapshot_log_bytes != 0 && f->log_bytes >= c->params.snapshot_log_bytes)
		raft_set_snapshot_threshold(&c->raft, 1);  // the next entry asks for one
}

// Inside raft_apply's way: copies, nothing else.
static int apply(struct raft_fsm *ops, const struct raft_buffer *buf, void **result)
{
	struct raft_cons *c = of_ops(ops);
	struct fsm *f = &c->fsm;
	const uint64_t index = raft_last_applied(&c->raft) + 1;
	uint64_t header[RAFT_ENTRY_HEADER_BYTES / 8];
	struct fsm_entry *entry;
	uint32_t len;

	*result = NULL;
	if (buf->len < sizeof(header))
		core_exit(RAFT_EXIT_LIBRARY, "RAFT_ENTRY", "entry %llu has no header",
			(unsigned long long)index);
	memcpy(header, buf->base, sizeof(header));
	len = (uint32_t)(header[3] >> 32);
	if ((uint32_t)header[3] != ENTRY_FORMAT || len > buf->len - sizeof(header))
		core_exit(RAFT_EXIT_LIBRARY, "RAFT_ENTRY", "entry %llu has a form not known here",
			(unsigned long long)index);
	count_log(c, buf->len);
	if (index <= f->taken_index) {
		c->stats.replays_skipped++;
		return 0;
	}
	entry = malloc(sizeof(*entry) + len);
	if (entry == NULL)
		core_exit(RAFT_EXIT_LIBRARY, "RAFT_MEMORY", "no memory for entry %llu",
			(unsigned long long)index);
	*entry = (struct fsm_entry){.index = index, .len = len};
	entry->origin = (struct raft_origin){header[0], header[1], header[2]};
	memcpy(entry->data, (const uint8_t *)buf->base + sizeof(header), len);
	*f->last = entry;
	f->last = &entry->next;
	f->entries++;
	f->bytes += len;
	return 0;
}

static bool is_open(struct raft_cons *c, const struct fsm_entry *entry)
{
	return entry->origin.node_id == c->params.node_id && entry->origin.life == c->life &&
	       core_find(c, entry->origin.token, OPEN_PROPOSAL) != NULL;
}

// Only what is on this node's disk is offered: the store may survive a crash that takes the end of the log
// in memory, and must not be ahead of it. Returns: number taken, 0: nothing to offer, -errno.
static int offer(struct raft_cons *c)
{
	struct cons_commit commits[RAFT_OFFER_MAX];
	struct fsm *f = &c->fsm;
	uint32_t count = 0;
	int taken;

	for (const struct fsm_entry *e = f->first; e != NULL && count < RAFT_OFFER_MAX;
		e = e->next) {
		if (e->index > c->guard.stored_index)
			break;
		commits[count++] = (struct cons_commit){
			.index = e->index,
			.data = e->data,
			.len = e->len,
			.token = is_open(c, e) ? e->origin.token : 0,
		};
	}
	if (count == 0)
		return 0;
	c->in_library = true;
	taken = c->events->on_commit(c->ctx, commits, count);
	c->in_library = false;
	for (int i = 0; i < taken; i++) {
		struct fsm_entry *e = f->first;

		f->taken_index = e->index;
		f->entries--;
		f->bytes -= e->len;
		c->stats.commits++;
		if (commits[i].token != 0)
			core_answer(c, commits[i].token, CONS_OK, "");
		f->first = e->next;
		free(e);
	}
	if (f->first == NULL)
		f->last = &f->first;
	return taken;
}

// --- snapshots ----------------------------------------------------------------------------------------------

// The library takes the snapshot to be its own last applied entry, so the consumer has to be there.
static int drain(struct raft_cons *c)
{
	const uint64_t end_ns = time_now_ns() + RAFT_DRAIN_NS;

	while (c->fsm.first != NULL) {
		const int taken = offer(c);

		if (taken < 0)
			core_exit(RAFT_EXIT_STORE, "RAFT_STORE", "the store could not apply: %s",
				strerror(-taken));
		if (taken == 0 || time_now_ns() > end_ns)
			break;
	}
	return c->fsm.first == NULL ? 0 : RAFT_BUSY;
}

static int snapshot(struct raft_fsm *ops, struct raft_buffer *bufs[], unsigned *n_bufs)
{
	struct raft_cons *c = of_ops(ops);
	struct fsm *f = &c->fsm;
	int rc;

	*bufs = NULL;
	*n_bufs = 0;
	// A snapshot carries the configuration in use, which must not be one that may be taken back.
	if (c->raft.configuration_uncommitted_index != 0 || f->restoring || f->snapshot_open ||
		drain(c) != 0)
		return RAFT_BUSY;
	// Started anew, the library has not come again to where the store is: it would file the snapshot under
	// an index before what is in it.
	if (f->taken_index > raft_last_applied(&c->raft))
		return RAFT_BUSY;
	// An entry the library applied and that is not on this disk yet.
	if (raft_last_applied(&c->raft) > c->guard.stored_index)
		return RAFT_BUSY;
	rc = c->events->snapshot_begin(c->ctx, &f->snapshot);
	if (rc == -EBUSY)
		return RAFT_BUSY;
	if (rc != 0) {
		LOG(LOG_ERROR, "raft", "RAFT_SNAPSHOT", "a snapshot could not begin: %s",
			strerror(-rc));
		return RAFT_BUSY;
	}
	f->snapshot_open = true;
	f->snapshot_rc = 0;
	f->snapshot_bytes = 0;
	f->log_bytes = 0;
	raft_set_snapshot_threshold(&c->raft, c->params.snapshot_entries);
	return 0;
}

// Pool.
static int sink_write(void *ctx, const uint8_t *bytes, uint64_t len)
{
	struct fsm *f = ctx;

	if (len > RAFT_SNAPSHOT_BYTES_MAX - f->snapshot_bytes)
		return f->snapshot_rc = -EFBIG;
	while (len > 0) {
		const size_t used = (size_t)(f->snapshot_bytes % CHUNK_BYTES);
		const uint64_t room = CHUNK_BYTES - used, n = len < room ? len : room;

		if (used == 0) {
			struct raft_buffer *more =
				raft_realloc(f->bufs, (f->n_bufs + 1) * sizeof(*more));

			if (more == NULL)
				return f->snapshot_rc = -ENOMEM;
			f->bufs = more;
			more[f->n_bufs].base = raft_malloc(CHUNK_BYTES);
			more[f->n_bufs].len = 0;
			if (more[f->n_bufs].base == NULL)
				return f->snapshot_rc = -ENOMEM;
			f->n_bufs++;
		}
		memcpy((uint8_t *)f->bufs[f->n_bufs - 1].base + used, bytes, n);
		f->bufs[f->n_bufs - 1].len = used + n;
		f->snapshot_bytes += n;
		bytes += n;
		len -= n;
	}
	return 0;
}

// Pool.
static int encode(struct raft_fsm *ops, struct raft_buffer *bufs[], unsigned *n_bufs)
{
	struct raft_cons *c = of_ops(ops);
	struct fsm *f = &c->fsm;
	const struct cons_sink sink = {.write = sink_write, .ctx = f};
	const int rc = c->events->snapshot_encode(f->snapshot, &sink);

	if (rc != 0 && f->snapshot_rc == 0)
		f->snapshot_rc = rc;
	if (f->n_bufs == 0 && f->snapshot_rc == 0)
		f->snapshot_rc = -ENODATA;
	*bufs = f->bufs;
	*n_bufs = f->n_bufs;
	return f->snapshot_rc == 0 ? 0 : RAFT_TOOBIG;
}

void fsm_snapshot_size(struct raft_cons *c, uint64_t bytes)
{
	const uint64_t ms = 4 * (bytes / INSTALL_BYTES_PER_MS);

	c->stats.snapshot_bytes = bytes;
	raft_set_install_snapshot_timeout(
		&c->raft, ms > INSTALL_MS_MIN ? (unsigned)ms : INSTALL_MS_MIN);
}

// The library is done with the bytes, whatever came of them.
static int finalize(struct raft_fsm *ops, struct raft_buffer *bufs[], unsigned *n_bufs)
{
	struct raft_cons *c = of_ops(ops);
	struct fsm *f = &c->fsm;

	if (f->snapshot_rc != 0)
		LOG(LOG_ERROR, "raft", "RAFT_SNAPSHOT",
			"a snapshot was not made (%llu bytes in, %llu allowed): %s",
			(unsigned long long)f->snapshot_bytes,
			(unsigned long long)RAFT_SNAPSHOT_BYTES_MAX, strerror(-f->snapshot_rc));
	else if (f->snapshot_bytes > RAFT_SNAPSHOT_BYTES_MAX / 2)
		LOG(LOG_WARN, "raft", "RAFT_SNAPSHOT_SIZE",
			"a snapshot has %llu bytes, over half of what is possible (%llu)",
			(unsigned long long)f->snapshot_bytes,
			(unsigned long long)RAFT_SNAPSHOT_BYTES_MAX);
	if (f->snapshot_rc == 0) {
		c->stats.snapshots++;
		fsm_snapshot_size(c, f->snapshot_bytes);
	}
	for (unsigned i = 0; i < f->n_bufs; i++)
		raft_free(f->bufs[i].base);
	raft_free(f->bufs);
	f->bufs = NULL;
	f->n_bufs = 0;
	*bufs = NULL;
	*n_bufs = 0;
	if (f->snapshot_open)
		c->events->snapshot_end(c->ctx, f->snapshot);
	f->snapshot_open = false;
	return 0;
}

// --- restore ------------------------------------------------------------------------------------------------

enum raft_cons_refusal fsm_check_snapshot(
	struct raft_cons *c, const struct raft_snapshot *snapshot, const char **why)
{
	const char *text = "";
	uint64_t index = 0;
	int rc;

	if (snapshot->n_bufs != 1)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why, "the snapshot is in %u pieces",
			snapshot->n_bufs);
	rc = c->events->snapshot_check(
		c->ctx, snapshot->bufs[0].base, snapshot->bufs[0].len, &index, &text);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why, "the snapshot at %llu: %s",
			snapshot->index, text);
	if (index > snapshot->index)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why,
			"the snapshot says it is at %llu and is filed at %llu",
			(unsigned long long)index, snapshot->index);
	c->fsm.restore_next_index = index;
	return RAFT_REFUSED_NOT;
}

// The library owns nothing of `buf` after this.
static int restore(struct raft_fsm *ops, struct raft_buffer *buf)
{
	struct raft_cons *c = of_ops(ops);
	struct fsm *f = &c->fsm;

	if (!c->started && f->restore_next_index <= f->taken_index) {
		raft_free(buf->base);  // at start, and the store is further: checked, not needed
		return 0;
	}
	if (c->started) {
		// From the leader: everything here is older.
		queue_clear(c);
		f->log_bytes = 0;
		f->restore_next_index = c->raft.log.snapshot.last_index;
	}
	raft_free(f->restore_next.base);
	f->restore_next = *buf;
	f->restoring = true;
	return 0;
}

static int restore_turn(struct raft_cons *c, uint8_t *busy)
{
	struct fsm *f = &c->fsm;
	uint64_t begin_ns;
	int rc;

	if (f->restore.base == NULL) {
		f->restore = f->restore_next;
		f->restore_index = f->restore_next_index;
		f->restore_next = (struct raft_buffer){0};
		LOG(LOG_INFO, "raft", "RAFT_RESTORE", "restoring a snapshot of %zu bytes",
			f->restore.len);
		rc = c->events->restore_begin(c->ctx, f->restore.base, f->restore.len);
		if (rc != 0)
			return rc;
	}
	begin_ns = time_now_ns();
	rc = c->events->restore_turn(c->ctx);
	if (rc < 0)
		return rc;
	if (rc == 0) {
		// Work of its own wants the next turn at once; work that runs elsewhere is asked after with
		// the library's next tick.
		*busy = time_now_ns() - begin_ns > RESTORE_WORK_NS;
		return 0;
	}
	raft_free(f->restore.base);
	f->restore = (struct raft_buffer){0};
	f->restoring = f->restore_next.base != NULL;
	f->taken_index = f->restore_index;
	if (c->events->chain != NULL)
		(void)c->events->chain(c->ctx, &f->taken_index);
	c->stats.restores++;
	if (f->restoring)
		*busy = 1;
	return 0;
}

// --- turn ---------------------------------------------------------------------------------------------------

bool fsm_reached(const struct raft_cons *c, uint64_t index)
{
	const struct fsm *f = &c->fsm;

	return !f->restoring && c->raft.last_applied >= index &&
	       (f->first == NULL || f->first->index > index);
}

int fsm_turn(struct raft_cons *c, uint8_t *busy)
{
	struct fsm *f = &c->fsm;
	int rc;

	if (f->restoring)
		return restore_turn(c, busy);
	if (f->first == NULL)
		return 0;
	rc = offer(c);
	if (rc < 0)
		return rc;
	if (f->first != NULL && f->first->index <= c->guard.stored_index)
		*busy = 1;
	return 0;
}

void fsm_init(struct raft_cons *c)
{
	struct fsm *f = &c->fsm;

	*f = (struct fsm){.taken_index = c->params.applied_index};
	f->last = &f->first;
	f->ops = (struct raft_fsm){
		.version = 3,
		.data = c,
		.apply = apply,
		.snapshot = snapshot,
		.restore = restore,
		.snapshot_finalize = finalize,
		.snapshot_async = encode,
	};
}

void fsm_fini(struct raft_cons *c)
{
	struct fsm *f = &c->fsm;

	queue_clear(c);
	raft_free(f->restore.base);
	raft_free(f->restore_next.base);
	f->restore = f->restore_next = (struct raft_buffer){0};
}
