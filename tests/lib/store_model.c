/* SPDX-License-Identifier: BSD-3-Clause */
// The model: sets of small integers, one per list, and the rules of lib/store written a second time in
// the plainest way. A replica follows by deltas, reading the store only after a BULK one.
#include "store_model.h"
#include "store_model_cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANS 7u
#define LISTS 4u
#define UIDS 300u
#define KEYS 4096u
#define BATCH 5u
#define OLD 32u
#define NODE_WINDOW 400u  // commands after which the oldest node id is left alone

_Static_assert(CHANS == MODEL_CHANNELS, "both halves know the same channels");

struct mset {
	bool has[UIDS];
};
struct mchan {
	bool exists, alive;
	uint8_t flags;
	uint64_t smv;
	struct mset list[LISTS];
	uint64_t stage_id, stage_index, stage_uids;
	uint8_t stage_op, stage_list;
	struct mset staged;
};
struct mkey {
	uint8_t key[STORE_DEDUP_BYTES];
	uint64_t commit;
	struct store_result result;
};
struct mstate {
	struct mchan chan[CHANS];
	uint64_t commit, index;
	uint32_t stages;
	struct mkey key[KEYS];  // ring, oldest first
	uint32_t key_first, key_count;
	struct cluster_rows cluster;
};
struct mcmd {
	struct store_command cmd;
	uint32_t chan;
	uint16_t uid[64];
	uint8_t packed[64 * 256];
};
struct replica {
	bool alive;
	uint64_t smv, members;
	uint8_t flags;
	bool bulk[LISTS];  // to be read again
	struct mset list[LISTS];
};
struct store_model {
	struct store_model_backend backend;
	struct store_limits limits;
	uint64_t seed, random, next_stage, next_unique;
	struct mstate now, saved;
	struct mcmd batch[BATCH], old[OLD];
	uint32_t old_count;
	struct replica replica[CHANS];
	struct cluster_rows copy;
	uint64_t replica_commit;
	struct store_model_stats stats;
};

static uint64_t rnd(struct store_model *m, uint64_t below)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return (m->random >> 11) % below;
}

static int bad(const struct store_model *m, const char *what, uint64_t got, uint64_t want)
{
	fprintf(stderr, "model: seed %llu index %llu: %s: got %llu, want %llu\n",
		(unsigned long long)m->seed, (unsigned long long)m->now.index, what,
		(unsigned long long)got, (unsigned long long)want);
	return -1;
}

// Decimal, so that some ids are prefixes of others; every 40th is as long as can be.
static struct id_view uid_name(uint32_t i, uint8_t buf[ID_LEN_MAX])
{
	const uint8_t len = (uint8_t)snprintf((char *)buf, ID_LEN_MAX, "%u", i);

	if (i % 40 != 39)
		return id_view_of(buf, len);
	memset(buf + len, i & 1 ? 0xff : 0, ID_LEN_MAX - len);
	return id_view_of(buf, ID_LEN_MAX);
}

static uint32_t uid_number(struct id_view uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < uid.len && uid.bytes[i] >= '0' && uid.bytes[i] <= '9'; i++)
		n = n * 10 + (uint32_t)(uid.bytes[i] - '0');
	return n;
}

static struct channel_key chan_name(uint32_t c)
{
	static const char *const id[CHANS] = {"g", "g1", "g10", "room", "x", "y", "person@x"};
	struct channel_key key;

	channel_key_set(
		&key, c % 3 == 0 ? CHANNEL_GROUP : CHANNEL_LIVE, id[c], (uint8_t)strlen(id[c]));
	return key;
}

static uint64_t set_count(const struct mset *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < UIDS; i++)
		n += s->has[i];
	return n;
}

// --- the rules ------------------------------------------------------------------------------------------

static void revive(struct mchan *c)
{
	if (!c->alive)
		c->flags = 0;
	c->alive = true;
	c->exists = true;
}

static void end_stage(struct mstate *s, struct mchan *c)
{
	c->stage_id = 0;
	memset(&c->staged, 0, sizeof(c->staged));
	s->stages--;
	if (c->smv == 0)
		c->exists = false;
}

static void changed(struct mstate *s, struct mchan *c, uint64_t count, struct store_result *r)
{
	c->smv++;
	r->code = STORE_R_OK;
	r->commit = ++s->commit;
	r->smv = c->smv;
	r->changed = (uint32_t)count;
}

static uint64_t rows_op(struct mset *list, uint8_t op, const struct mset *uids)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < UIDS; i++) {
		bool want = list->has[i];

		if (op == STORE_RESET)
			want = uids->has[i];
		else if (uids->has[i])
			want = op == STORE_ADD;
		n += want != list->has[i];
		list->has[i] = want;
	}
	return n;
}

static void rule_stage(struct store_model *m, struct mchan *c, const struct mcmd *k,
	const struct mset *uids, struct store_result *r)
{
	struct mstate *s = &m->now;
	const struct store_command *cmd = &k->cmd;

	if (c->stage_id == 0) {
		for (uint32_t i = 0; i < CHANS; i++)
			if (s->chan[i].stage_id == cmd->stage_id)
				r->code = STORE_R_INVALID;
		if (r->code == 0 && !c->alive && cmd->staged_op == STORE_REMOVE)
			r->code = STORE_R_NOT_FOUND;
		if (r->code == 0 && s->stages >= m->limits.stages)
			r->code = STORE_R_BUSY;
		if (r->code != 0)
			return;
		c->exists = true;
		c->stage_id = cmd->stage_id;
		c->stage_op = cmd->staged_op;
		c->stage_list = cmd->list;
		c->stage_uids = 0;
		s->stages++;
	} else if (c->stage_op != cmd->staged_op || c->stage_list != cmd->list) {
		r->code = STORE_R_INVALID;
		return;
	}
	for (uint32_t i = 0; i < UIDS; i++) {
		const bool has = c->list[cmd->list].has[i];

		if (!uids->has[i] || c->staged.has[i])
			continue;
		if (cmd->staged_op == STORE_RESET || has != (cmd->staged_op == STORE_ADD))
			c->staged.has[i] = true;
		r->changed += has != (cmd->staged_op != STORE_REMOVE);
	}
	c->stage_uids += cmd->uid_count;
	c->stage_index = s->index;
	m->stats.staged++;
}

static void rule_close(
	struct store_model *m, struct mchan *c, const struct mcmd *k, struct store_result *r)
{
	struct mstate *s = &m->now;

	if (c->stage_id == 0) {
		r->code = STORE_R_NOT_FOUND;
		for (uint32_t i = 0; i < CHANS; i++)
			if (s->chan[i].stage_id == k->cmd.stage_id)
				r->code = STORE_R_INVALID;
		return;
	}
	if (c->stage_op != k->cmd.staged_op || c->stage_list != k->cmd.list ||
		(k->cmd.uid_count != 0 && k->cmd.uid_count != c->stage_uids)) {
		r->code = STORE_R_INVALID;
		return;
	}

	const uint64_t n = rows_op(&c->list[c->stage_list], c->stage_op, &c->staged);

	if (n == 0) {
		r->code = STORE_R_NO_CHANGE;
	} else {
		revive(c);
		changed(s, c, n, r);
		m->stats.closed++;
	}
	end_stage(s, c);
}

static void rule_info(
	struct mstate *s, struct mchan *c, const struct store_command *cmd, struct store_result *r)
{
	uint64_t n = 0;

	if (!c->alive && cmd->op != STORE_CHANNEL_CREATE) {
		r->code = STORE_R_NOT_FOUND;
	} else if (cmd->op == STORE_CHANNEL_REMOVE) {
		for (uint32_t l = 0; l < LISTS; l++)
			n += set_count(&c->list[l]);
		memset(c->list, 0, sizeof(c->list));
		c->alive = false;
		c->flags = 0;
		changed(s, c, n, r);
	} else if (c->alive && c->flags == cmd->flags) {
		r->code = STORE_R_NO_CHANGE;
	} else {
		revive(c);
		c->flags = cmd->flags;
		changed(s, c, 0, r);
	}
}

static void rule(struct store_model *m, const struct mcmd *k, struct store_result *r)
{
	struct mstate *s = &m->now;
	struct mchan *c = &s->chan[k->chan];
	const struct store_command *cmd = &k->cmd;
	struct mset uids = {{false}};

	if (cmd->op >= STORE_NODE_JOIN) {
		r->code = cluster_rule(&s->cluster, cmd, k->chan, s->commit + 1);
		if (r->code == STORE_R_OK) {
			r->commit = ++s->commit;
			r->changed = 1;
			m->stats.cluster++;
		} else if (r->code == STORE_R_REFUSED) {
			m->stats.refused++;
		}
		return;
	}
	for (uint32_t i = 0; i < cmd->uid_count && cmd->op != STORE_CLOSE; i++)
		uids.has[k->uid[i]] = true;
	r->smv = c->smv;
	if (c->stage_id != 0 && c->stage_id != cmd->stage_id) {
		r->code = STORE_R_BUSY;
	} else if (cmd->op <= STORE_CHANNEL_REMOVE) {
		rule_info(s, c, cmd, r);
	} else if (cmd->op == STORE_STAGE) {
		rule_stage(m, c, k, &uids, r);
	} else if (cmd->op == STORE_CLOSE) {
		rule_close(m, c, k, r);
	} else if (cmd->op == STORE_ABORT) {
		if (c->stage_id == 0)
			r->code = STORE_R_NOT_FOUND;
		else
			end_stage(s, c);
	} else if (!c->alive && (cmd->op == STORE_REMOVE || cmd->uid_count == 0)) {
		r->code = STORE_R_NOT_FOUND;
	} else {
		const uint64_t n = rows_op(&c->list[cmd->list], cmd->op, &uids);

		revive(c);
		if (n == 0)
			r->code = STORE_R_NO_CHANGE;
		else
			changed(s, c, n, r);
	}
}

static void predict(struct store_model *m, const struct mcmd *k, struct store_result *r)
{
	struct mstate *s = &m->now;
	static const uint8_t none[STORE_DEDUP_BYTES];
	const bool keyed = memcmp(k->cmd.dedup, none, sizeof(none)) != 0;
	const uint64_t before = s->commit, window = m->limits.dedup_commits;
	uint64_t base = 0;

	*r = (struct store_result){.commit = before};
	for (uint32_t i = 8; i-- > 0;)
		base = base << 8 | k->cmd.dedup[i];
	for (uint32_t i = 0; keyed && i < s->key_count; i++) {
		const struct mkey *e = &s->key[(s->key_first + i) % KEYS];

		if (memcmp(e->key, k->cmd.dedup, sizeof(e->key)) == 0 &&
			before - e->commit <= window) {
			*r = e->result;
			r->repeated = 1;
			return;
		}
	}
	if (keyed && (base > before || before - base > window)) {
		r->code = base > before ? STORE_R_INVALID : STORE_R_EXPIRED;
		return;
	}
	rule(m, k, r);
	if (keyed && r->code <= STORE_R_NOT_FOUND &&
		(s->commit != before || s->key_count / 2 < window)) {
		struct mkey *e = &s->key[(s->key_first + s->key_count++) % KEYS];

		memcpy(e->key, k->cmd.dedup, sizeof(e->key));
		e->commit = s->commit;
		e->result = *r;
	}
	for (int i = 0;
		i < 2 && s->key_count > 0 && s->commit - s->key[s->key_first].commit > window;
		i++) {
		s->key_first = (s->key_first + 1) % KEYS;
		s->key_count--;
	}
}

// --- commands -------------------------------------------------------------------------------------------

static void pick_uids(struct store_model *m, struct mcmd *k)
{
	const uint32_t count = (uint32_t)(rnd(m, 10) == 0 ? 1 + rnd(m, 64) : 1 + rnd(m, 6));

	k->cmd.uid_count = k->cmd.op == STORE_RESET && rnd(m, 6) == 0 ? 0 : count;
	for (uint32_t i = 0; i < k->cmd.uid_count; i++) {
		uint8_t buf[ID_LEN_MAX];

		k->uid[i] = (uint16_t)rnd(m, UIDS);

		const struct id_view uid = uid_name(k->uid[i], buf);

		k->packed[k->cmd.uids_bytes] = uid.len;
		memcpy(k->packed + k->cmd.uids_bytes + 1, uid.bytes, uid.len);
		k->cmd.uids_bytes += 1u + uid.len;
	}
}

static void pick_stage(struct store_model *m, struct mcmd *k)
{
	const struct mchan *c = &m->now.chan[k->chan];

	k->cmd.stage_id = c->stage_id;
	k->cmd.staged_op = c->stage_op;
	k->cmd.list = c->stage_list;
	if (c->stage_id == 0 || rnd(m, 40) == 0) {
		k->cmd.stage_id = rnd(m, 20) == 0 ? 1 + rnd(m, 50) : ++m->next_stage;
		k->cmd.staged_op = (uint8_t)(STORE_ADD + rnd(m, 3));
		k->cmd.list = rnd(m, 3) == 0 ? (uint8_t)rnd(m, LISTS) : 0;
	}
	if (k->cmd.op == STORE_CLOSE && rnd(m, 2) == 0)
		k->cmd.uid_count = (uint32_t)(rnd(m, 8) == 0 ? 1 + rnd(m, 9) : c->stage_uids);
	if (k->cmd.op == STORE_ABORT)
		k->cmd.staged_op = 0;
}

static void pick_dedup(struct store_model *m, struct mcmd *k)
{
	if (rnd(m, 3) == 0) {
		const uint64_t back =
			rnd(m, 10) == 0 ? rnd(m, 2 * m->limits.dedup_commits) : rnd(m, 4);
		const uint64_t commit = m->now.commit;

		store_dedup_key(k->cmd.dedup,
			rnd(m, 50) == 0 ? commit + 2
			: back > commit ? 0
					: commit - back,
			++m->next_unique);
	}
}

static uint64_t random_of(void *ctx, uint64_t below)
{
	return rnd(ctx, below);
}

static void pick(struct store_model *m, struct mcmd *k)
{
	// STAGE twice as often, so that stages hold several chunks; REMOVE of channels seldom.
	static const uint8_t op[] = {STORE_CHANNEL_CREATE, STORE_CHANNEL_UPDATE, STORE_ADD,
		STORE_ADD, STORE_ADD, STORE_REMOVE, STORE_REMOVE, STORE_ADD, STORE_REMOVE,
		STORE_STAGE, STORE_STAGE, STORE_STAGE, STORE_STAGE, STORE_CLOSE, STORE_CLOSE};
	const uint64_t seldom = rnd(m, 60);

	memset(&k->cmd, 0, sizeof(k->cmd));
	k->chan = (uint32_t)rnd(m, CHANS);
	k->cmd.channel = chan_name(k->chan);
	k->cmd.op = op[rnd(m, sizeof(op))];
	if (rnd(m, 6) == 0) {
		const struct channel_key name = chan_name(k->chan);
		const uint64_t base = 1 + m->stats.commands / NODE_WINDOW % (MODEL_NODES - 8);

		cluster_pick(
			&m->now.cluster, random_of, m, base, k->chan, &name, &k->cmd, k->packed);
		pick_dedup(m, k);
		return;
	}
	if (seldom < 3)
		k->cmd.op = seldom == 0   ? STORE_CHANNEL_REMOVE
			    : seldom == 1 ? STORE_ABORT
					  : STORE_RESET;
	k->cmd.uids = k->packed;
	if (k->cmd.op <= STORE_CHANNEL_UPDATE)
		k->cmd.flags = (uint8_t)rnd(m, 32);
	else if (k->cmd.op >= STORE_STAGE)
		pick_stage(m, k);
	else if (k->cmd.op != STORE_CHANNEL_REMOVE)
		k->cmd.list = rnd(m, 3) == 0 ? (uint8_t)rnd(m, LISTS) : 0;
	if (k->cmd.op >= STORE_ADD && k->cmd.op <= STORE_STAGE)
		pick_uids(m, k);
	pick_dedup(m, k);
}

static void next_command(struct store_model *m, struct mcmd *k)
{
	static const uint8_t none[STORE_DEDUP_BYTES];

	if (m->old_count > 0 && rnd(m, 8) == 0) {
		*k = m->old[rnd(m, m->old_count < OLD ? m->old_count : OLD)];
		k->cmd.uids = k->packed;
		return;
	}
	pick(m, k);
	if (memcmp(k->cmd.dedup, none, sizeof(none)) != 0)
		m->old[m->old_count++ % OLD] = *k;
}

// --- running --------------------------------------------------------------------------------------------

struct seen {
	struct store_model *model;
	uint64_t commit;
	int fault;
};

static uint32_t chan_number(const struct channel_key *key)
{
	for (uint32_t c = 0; c < CHANS; c++) {
		const struct channel_key name = chan_name(c);

		if (channel_key_equal(&name, key))
			return c;
	}
	return CHANS;
}

static void on_delta(void *ctx, const struct store_delta *d)
{
	struct seen *s = ctx;

	if (d->commit != s->commit + 1)
		s->fault = bad(s->model, "delta commit", d->commit, s->commit + 1);
	s->commit = d->commit;
}

static int compare(
	struct store_model *m, const struct store_result *got, const struct store_result *want)
{
	if (got->code != want->code)
		return bad(m, "code", got->code, want->code);
	if (got->repeated != want->repeated)
		return bad(m, "repeated", got->repeated, want->repeated);
	if (got->commit != want->commit)
		return bad(m, "commit", got->commit, want->commit);
	if (got->smv != want->smv)
		return bad(m, "smv", got->smv, want->smv);
	if (got->changed != want->changed)
		return bad(m, "changed", got->changed, want->changed);
	m->stats.commands++;
	m->stats.changed += got->code == STORE_R_OK && got->changed > 0 && !got->repeated;
	m->stats.repeated += got->repeated;
	m->stats.busy += got->code == STORE_R_BUSY;
	m->stats.expired += got->code == STORE_R_EXPIRED;
	return 0;
}

static void expire(struct store_model *m)
{
	struct mstate *s = &m->now;

	for (uint32_t c = 0; c < CHANS; c++)
		if (s->chan[c].stage_id != 0 &&
			s->index - s->chan[c].stage_index > m->limits.stage_commits) {
			end_stage(s, &s->chan[c]);
			m->stats.dropped++;
		}
}

static int one_batch(struct store_model *m, struct store_tx *tx)
{
	static uint8_t data[ENTRY_BYTES_MAX];
	struct store_result want[BATCH], got[BATCH];
	const uint32_t count = (uint32_t)(1 + rnd(m, BATCH));
	struct seen seen = {m, m->now.commit, 0};
	uint32_t len = 0;

	m->now.index += 1 + (rnd(m, 10) == 0 ? rnd(m, 5) : 0);
	expire(m);
	for (uint32_t i = 0; i < count; i++) {
		next_command(m, &m->batch[i]);

		const int n =
			store_command_encode(&m->batch[i].cmd, data + len, sizeof(data) - len);

		if (n < 0)
			return bad(m, "encode", (uint64_t)-n, 0);
		len += (uint32_t)n;
		predict(m, &m->batch[i], &want[i]);
	}

	int rc = store_apply(tx, &m->limits, m->now.index, data, len, got, BATCH, on_delta, &seen);

	if (rc != (int)count)
		return bad(m, "results", (uint64_t)rc, count);
	if (seen.fault != 0 || seen.commit != m->now.commit)
		return bad(m, "deltas up to", seen.commit, m->now.commit);
	for (uint32_t i = 0; i < count; i++)
		if (compare(m, &got[i], &want[i]) != 0)
			return -1;
	if (rnd(m, 50) != 0)
		return 0;
	rc = store_apply(tx, &m->limits, m->now.index, data, len, got, BATCH, on_delta, &seen);
	if (rc != (int)count || got[0].repeated != 1 || seen.commit != m->now.commit)
		return bad(m, "replay", (uint64_t)rc, count);
	return 0;
}

static int one_tx(struct store_model *m)
{
	const struct store_model_backend *b = &m->backend;
	const bool abort_it = rnd(m, 40) == 0;
	struct store_tx tx;
	int rc = b->begin(b->ctx, &tx);

	if (rc != 0)
		return bad(m, "begin", (uint64_t)-rc, 0);
	if (abort_it)
		m->saved = m->now;
	for (uint64_t i = 1 + rnd(m, 8); rc == 0 && i > 0; i--)
		rc = one_batch(m, &tx);
	if (rc == 0 && rnd(m, 4) == 0 &&
		store_compact(&tx, &m->limits, (uint32_t)(1 + rnd(m, 60))) < 0)
		rc = bad(m, "compact", 1, 0);
	if (rc != 0 || abort_it) {
		b->abort(b->ctx, &tx);
		if (rc == 0) {
			m->now = m->saved;
			m->stats.aborted_tx++;
		}
		return rc;
	}
	rc = b->commit(b->ctx, &tx);
	return rc == 0 ? 0 : bad(m, "commit", (uint64_t)-rc, 0);
}

// --- checking -------------------------------------------------------------------------------------------

// Reads a list by pages of random size. Returns: 0, -ENOENT, -1.
static int read_list(
	struct store_model *m, struct store_tx *tx, uint32_t c, uint8_t list, struct mset *out)
{
	static uint8_t uids[8192];
	const struct channel_key key = chan_name(c);
	struct store_page page = {0};
	uint8_t last_buf[ID_LEN_MAX];
	struct id_view last = id_view_of(last_buf, 0);

	memset(out, 0, sizeof(*out));
	do {
		uint8_t next[ID_LEN_MAX];
		const uint8_t next_len = page.next_len;
		const uint32_t cap = (uint32_t)(256 + rnd(m, sizeof(uids) - 256));

		memcpy(next, page.next, next_len);

		const int rc = store_read_page(tx, &key, list, id_view_of(next, next_len),
			(uint32_t)(1 + rnd(m, 100)), uids, cap, &page);

		if (rc == -ENOENT)
			return page.count == 0 && page.last ? rc : bad(m, "page", page.count, 0);
		if (rc != 0)
			return bad(m, "page", (uint64_t)-rc, 0);
		if (page.bytes_used > cap || page.commit != m->now.commit ||
			page.smv != m->now.chan[c].smv)
			return bad(m, "page smv", page.smv, m->now.chan[c].smv);

		const uint8_t *p = uids;
		struct id_view uid;

		while (store_uids_next(&p, uids + page.bytes_used, &uid)) {
			const uint8_t min = uid.len < last.len ? uid.len : last.len;
			const int order = memcmp(last.bytes, uid.bytes, min);

			if (last.len != 0 && (order > 0 || (order == 0 && last.len >= uid.len)))
				return bad(m, "page order", uid_number(uid), uid_number(last));
			memcpy(last_buf, uid.bytes, uid.len);
			last.len = uid.len;
			out->has[uid_number(uid)] = true;
		}
	} while (!page.last);
	return 0;
}

static int follow_one(struct store_model *m, const struct store_delta *d)
{
	const uint32_t c = chan_number(&d->channel);
	struct replica *r = &m->replica[c];
	const uint8_t *p = d->uids;
	struct id_view uid;

	if (d->smv_before != r->smv || d->smv != r->smv + 1)
		return bad(m, "delta smv before", d->smv_before, r->smv);
	r->smv = d->smv;
	r->members = d->members;
	r->flags = d->flags;
	r->alive = d->kind != STORE_DELTA_REMOVED;
	if (!r->alive) {
		memset(r->list, 0, sizeof(r->list));
		memset(r->bulk, 0, sizeof(r->bulk));
	}
	if (d->kind == STORE_DELTA_BULK) {
		r->bulk[d->list] = true;
		m->stats.bulk++;
	}
	while (store_uids_next(&p, d->uids + d->uids_bytes, &uid)) {
		bool *has = &r->list[d->list].has[uid_number(uid)];

		if (!r->bulk[d->list] && *has == (d->kind == STORE_DELTA_ADD))
			return bad(m, "delta lists an unchanged uid", uid_number(uid), 0);
		*has = d->kind == STORE_DELTA_ADD;
		m->stats.listed++;
	}
	return 0;
}

static int follow(struct store_model *m, struct store_tx *tx)
{
	struct store_delta d;
	int rc;

	while ((rc = store_read_delta(tx, m->replica_commit, &d)) == 0) {
		if (d.commit != ++m->replica_commit)
			return bad(m, "journal commit", d.commit, m->replica_commit);
		if (!store_delta_of_channel(d.kind)) {
			if (cluster_follow(&m->copy, &d, chan_number(&d.channel)) != 0)
				return bad(m, "delta of the cluster", d.kind, d.commit);
			continue;
		}
		if (chan_number(&d.channel) == CHANS)
			return bad(m, "journal channel", d.commit, m->replica_commit);
		if (follow_one(m, &d) != 0)
			return -1;
	}
	if (rc != -ENOENT || m->replica_commit != m->now.commit)
		return bad(m, "journal end", m->replica_commit, m->now.commit);
	return 0;
}

static int check_channel(struct store_model *m, struct store_tx *tx, uint32_t c)
{
	const struct mchan *want = &m->now.chan[c];
	const struct channel_key key = chan_name(c);
	struct replica *r = &m->replica[c];
	struct store_channel got;
	const int rc = store_read_channel(tx, &key, &got);

	if (rc != (want->exists ? 0 : -ENOENT))
		return bad(m, "channel found", (uint64_t)-rc, want->exists);
	if (rc == 0 &&
		(got.smv != want->smv || got.removed == want->alive || got.flags != want->flags))
		return bad(m, "channel smv", got.smv, want->smv);
	if (rc == 0 && got.members != set_count(&want->list[0]))
		return bad(m, "members", got.members, set_count(&want->list[0]));
	if (r->alive != want->alive || r->smv != want->smv || r->flags != want->flags ||
		r->members != set_count(&want->list[0]))
		return bad(m, "replica smv", r->smv, want->smv);
	for (uint8_t l = 0; l < LISTS; l++) {
		struct mset rows;
		const int found = read_list(m, tx, c, l, &rows);

		if (found != (want->alive ? 0 : -ENOENT))
			return found == -1 ? -1
					   : bad(m, "list found", (uint64_t)-found, want->alive);
		if (memcmp(&rows, &want->list[l], sizeof(rows)) != 0)
			return bad(m, "list differs", set_count(&rows), set_count(&want->list[l]));
		if (r->bulk[l])
			r->list[l] = rows;
		r->bulk[l] = false;
		if (memcmp(&r->list[l], &want->list[l], sizeof(rows)) != 0)
			return bad(m, "replica differs", set_count(&r->list[l]), l);
	}
	return 0;
}

static int check_walk(struct store_model *m, struct store_tx *tx)
{
	struct channel_key at = {0};
	struct store_channel got;
	uint32_t want = 0, n = 0;
	int rc;

	for (uint32_t c = 0; c < CHANS; c++)
		want += m->now.chan[c].exists;
	while ((rc = store_read_next_channel(tx, &at, &got)) == 0) {
		if (at.type > got.key.type || chan_number(&got.key) == CHANS)
			return bad(m, "walk order", got.key.type, at.type);
		at = got.key;
		n++;
	}
	return rc == -ENOENT && n == want ? 0 : bad(m, "walk", n, want);
}

static int check_cluster(struct store_model *m, struct store_tx *tx)
{
	struct channel_key name[CHANS];

	for (uint32_t c = 0; c < CHANS; c++)
		name[c] = chan_name(c);
	return cluster_check(tx, &m->now.cluster, &m->copy, name) == 0
		       ? 0
		       : bad(m, "cluster tables", 1, 0);
}

int store_model_check(struct store_model *m)
{
	const struct store_model_backend *b = &m->backend;
	struct store_position pos;
	struct store_bytes key, v;
	struct store_tx tx;
	int rc = b->read_begin(b->ctx, &tx);

	if (rc != 0)
		return bad(m, "read_begin", (uint64_t)-rc, 0);
	rc = store_read_position(&tx, &pos);
	if (rc != 0 || pos.applied != m->now.index || pos.commit != m->now.commit)
		rc = bad(m, "position", pos.commit, m->now.commit);
	if (rc == 0)
		rc = follow(m, &tx);
	for (uint32_t c = 0; rc == 0 && c < CHANS; c++)
		rc = check_channel(m, &tx, c);
	if (rc == 0)
		rc = check_walk(m, &tx);
	if (rc == 0)
		rc = check_cluster(m, &tx);
	if (rc == 0 && tx.ops->seek(tx.tx, STORE_T_STAGE, (struct store_bytes){"L", 1}, false, &key,
			       &v) == 0)
		m->stats.layered += *(const uint8_t *)key.p == 'L';
	b->read_end(b->ctx, &tx);
	return rc;
}

int store_model_run(struct store_model *m, uint64_t commands)
{
	const uint64_t until = m->stats.commands + commands;
	int rc = 0;

	while (rc == 0 && m->stats.commands < until) {
		rc = one_tx(m);
		// Well within journal_commits, so that the replica never falls off the journal.
		if (rc == 0 && rnd(m, 10) == 0)
			rc = store_model_check(m);
	}
	return rc == 0 ? store_model_check(m) : rc;
}

void store_model_stats(const struct store_model *m, struct store_model_stats *stats)
{
	*stats = m->stats;
}

struct store_model *store_model_create(const struct store_model_backend *backend, uint64_t seed)
{
	struct store_model *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->backend = *backend;
	m->seed = seed;
	m->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	m->next_stage = 1000;
	m->limits = (struct store_limits){.journal_commits = 5000,
		.dedup_commits = 60,
		.stages = 3,
		.stage_commits = 60,
		.fold_rows = 8};
	return m;
}

void store_model_rebind(struct store_model *m, void *ctx)
{
	m->backend.ctx = ctx;
}

void store_model_destroy(struct store_model *m)
{
	free(m);
}
