/* SPDX-License-Identifier: BSD-3-Clause */
// The simulated meta process: lib/store over an in-memory backend, lib/cons of one node, and a feed whose
// frames travel encoded, with delay, in order. Its process memory dies in a crash; the store survives.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_time.h"
#include "cons_local.h"
#include "sim.h"

#define FEED_MAX 4096u
#define BATCH_BYTES 4096u
#define COMMITS_MAX 256u  // of one turn
#define CHUNK_UIDS 12u
// A token is a mutation + 1, and in its upper half 0 or the number of its chunk.
#define TOKEN_CHUNK(token) ((uint32_t)((token) >> 32))
#define TOKEN_MUTATION(token) ((uint32_t)(token)-1)

struct feed_item {
	uint64_t due_ns;
	uint32_t len;
	uint8_t *bytes;
};

struct sim_meta {
	struct store_map *map;
	uint64_t generation_seen;
	// dies in a crash
	struct cons_local *cons;
	uint64_t down_until_ns;
	bool subscribed;
	uint64_t fed;  // last commit put into the feed
	uint32_t subscriber_life;
	struct feed_item feed[FEED_MAX];
	uint32_t head, tail;
	uint32_t unique;
	bool failing;  // the store gave up: the process ends
};

static const struct store_limits limits = {
	.journal_commits = 64,
	.dedup_commits = 512,
	.stages = 4,
	.stage_commits = SIM_STAGE_COMMITS,
	.fold_rows = 16,
};

static void feed_clear(struct sim_meta *m)
{
	while (m->head != m->tail)
		free(m->feed[m->head++ % FEED_MAX].bytes);
	m->subscribed = false;
}

static void feed_put(struct sim *s, const struct store_feed_frame *frame)
{
	static uint8_t buffer[STORE_FEED_FRAME_MAX];
	struct sim_meta *m = s->meta;
	struct feed_item *item = &m->feed[m->tail % FEED_MAX];
	const int len = store_feed_encode(frame, buffer, sizeof(buffer));

	if (len < 0 || m->tail - m->head == FEED_MAX) {
		feed_clear(m);  // lagging: told to start again
		return;
	}
	item->due_ns = s->now_ns + 20 * NS_PER_US +
		       sim_random(s) % ((s->p.slow_feed ? 20 : 2) * NS_PER_MS);
	if (m->tail != m->head && m->feed[(m->tail - 1) % FEED_MAX].due_ns > item->due_ns)
		item->due_ns = m->feed[(m->tail - 1) % FEED_MAX].due_ns;
	item->len = (uint32_t)len;
	item->bytes = malloc((size_t)len);
	if (item->bytes == NULL)
		abort();
	memcpy(item->bytes, buffer, (size_t)len);
	m->tail++;
}

static void committed(
	struct sim *s, uint64_t token, uint64_t index, const struct store_result *result)
{
	const uint32_t mutation = TOKEN_MUTATION(token);

	if (TOKEN_CHUNK(token) != 0) {
		sim_check_chunk(s, mutation, index, result);
		return;
	}
	sim_check_applied(s, mutation, index, result);
	s->mutation[mutation].commit = result->commit;
}

// One transaction for the whole batch. A backend that fails takes all of it back, and the process with it.
static int on_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	static struct store_result results[COMMITS_MAX];
	struct sim *s = ctx;
	struct store_map *map = s->meta->map;
	struct store_tx tx;
	int n = 1;

	if (count > COMMITS_MAX) {
		sim_fail(s, "%u commits in one turn", count);
		return -EIO;
	}
	store_map_begin(map, &tx);
	if (s->p.store_faults && !s->quiet && sim_chance(s, 100))
		store_map_fail(map, 1 + sim_below(s, 40), -EIO);
	for (uint32_t i = 0; i < count && n == 1; i++)
		n = store_apply(&tx, &limits, commits[i].index, commits[i].data, commits[i].len,
			&results[i], 1, NULL, NULL);
	if (n == 1 && store_compact(&tx, &limits, 64) < 0)
		n = -EIO;
	if (store_map_failed(map) && n == 1)
		sim_fail(s, "the store went on over a fault of its backend");
	if (n != 1) {
		store_map_abort(map, &tx);
		if (!store_map_failed(map))
			sim_fail(s, "store_apply: %d", n);
		s->meta->failing = true;
	} else {
		store_map_commit(map, &tx);
	}
	store_map_fail(map, 0, 0);
	for (uint32_t i = 0; i < count && n == 1; i++)
		committed(s, commits[i].token, commits[i].index, &results[i]);
	return n == 1 ? (int)count : -EIO;
}

static void on_result(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	struct sim *s = ctx;

	(void)why;

	if (status != CONS_OK)
		s->mutation[TOKEN_MUTATION(token)].open = false;
}

static const struct cons_events events = {
	.on_commit = on_commit,
	.on_result = on_result,
};

static int start(struct sim *s)
{
	struct store_position position;
	struct store_tx tx;

	store_map_read(s->meta->map, &tx);
	const int rc = store_read_position(&tx, &position);
	if (rc != 0) {
		sim_fail(s, "store_read_position: %d", rc);
		return rc;
	}
	s->meta->cons = cons_local_create(1, position.applied, &events, s);
	return s->meta->cons != NULL ? 0 : -ENOMEM;
}

int sim_meta_open(struct sim *s)
{
	struct store_tx tx;
	const char *why = "";
	int rc;

	s->meta = calloc(1, sizeof(*s->meta));
	if (s->meta == NULL || (s->meta->map = store_map_create()) == NULL)
		abort();
	store_map_begin(s->meta->map, &tx);
	rc = store_open(&tx, 7, &why);
	store_map_commit(s->meta->map, &tx);
	if (rc != 0) {
		sim_fail(s, "store_open: %d %s", rc, why);
		return rc;
	}
	return start(s);
}

void sim_meta_close(struct sim *s)
{
	feed_clear(s->meta);
	if (s->meta->cons != NULL)
		cons_local_destroy(s->meta->cons);
	store_map_destroy(s->meta->map);
	free(s->meta);
}

void sim_meta_crash(struct sim *s)
{
	struct sim_meta *m = s->meta;

	if (m->cons == NULL)
		return;
	sim_trace(s, "meta dies");
	cons_local_destroy(m->cons);
	m->cons = NULL;
	feed_clear(m);
	m->down_until_ns = s->now_ns + sim_random(s) % (300 * NS_PER_MS);
	// Whoever waited for an answer never gets one: the outcome stays unknown.
	for (uint32_t i = 0; i < s->mutations; i++) {
		s->mutation[i].stage_failed |= s->mutation[i].open;
		s->mutation[i].open = false;
	}
	if (s->node != NULL) {
		role_take_control();
		node_control_feed_lost(s->node, s->now_ns);
		role_drop_control();
	}
}

// Packs UIDs number `from`..`to` - 1 of a mutation's set.
static void pack(const struct sim_mutation *mu, uint32_t from, uint32_t to, uint8_t *uids,
	struct store_command *cmd)
{
	uint32_t at = 0;

	cmd->uids = uids;
	for (uint32_t uid = 0; uid < SIM_UIDS; uid++) {
		char name[16];

		if (!sim_has(&mu->set, uid) || at++ < from || at > to)
			continue;
		sim_uid_name(uid, name);
		uids[cmd->uids_bytes] = (uint8_t)strlen(name);
		memcpy(uids + cmd->uids_bytes + 1, name, strlen(name));
		cmd->uids_bytes += 1 + (uint32_t)strlen(name);
		cmd->uid_count++;
	}
}

static uint32_t uids_of(const struct sim_mutation *mu)
{
	return (uint32_t)(__builtin_popcountll(mu->set.bits[0]) +
			  __builtin_popcountll(mu->set.bits[1]));
}

static bool propose(struct sim *s, const struct store_command *cmd, uint64_t token)
{
	uint8_t batch[BATCH_BYTES];
	const int len = store_command_encode(cmd, batch, sizeof(batch));

	if (len < 0) {
		sim_fail(s, "store_command_encode: %d", len);
		return false;
	}
	return cons_local_ops.propose(s->meta->cons, batch, (uint32_t)len, token) == CONS_OK;
}

// A chunk of a large mutation, or, after the last of them, the command that shows them all.
static bool propose_part(struct sim *s, uint32_t index)
{
	struct sim_mutation *mu = &s->mutation[index];
	uint8_t uids[SIM_UIDS * 16];
	struct store_command cmd = {
		.op = STORE_STAGE,
		.list = mu->list,
		.staged_op = mu->op,
		.stage_id = index + 1,
		.channel = s->channel[mu->channel].key,
	};
	const uint32_t chunk = mu->chunks_sent;

	if (chunk < mu->chunks) {
		pack(mu, chunk * CHUNK_UIDS, (chunk + 1) * CHUNK_UIDS, uids, &cmd);
	} else {
		cmd.op = STORE_CLOSE;
		cmd.uid_count = uids_of(mu);
	}
	store_dedup_key(cmd.dedup, mu->base, mu->base_unique + chunk);
	if (chunk < mu->chunks) {
		mu->chunks_sent++;
		return propose(s, &cmd, (uint64_t)(chunk + 1) << 32 | (index + 1));
	}
	// What it shows was in nobody's view before.
	if (mu->proposed_ns == SIM_NEVER)
		mu->proposed_ns = s->now_ns;
	return propose(s, &cmd, index + 1);
}

static bool propose_whole(struct sim *s, uint32_t index)
{
	struct sim_mutation *mu = &s->mutation[index];
	uint8_t uids[SIM_UIDS * 16];
	struct store_command cmd = {
		.op = mu->op,
		.list = mu->list,
		.channel = s->channel[mu->channel].key,
	};

	pack(mu, 0, SIM_UIDS, uids, &cmd);
	store_dedup_key(cmd.dedup, mu->base, mu->base_unique);
	return propose(s, &cmd, index + 1);
}

bool sim_meta_propose(struct sim *s, uint32_t index)
{
	struct sim_mutation *mu = &s->mutation[index];
	const bool again = mu->base_unique != 0;
	struct store_position position;
	struct store_tx tx;

	if (s->meta->cons == NULL)
		return false;
	if (!again) {
		store_map_read(s->meta->map, &tx);
		store_read_position(&tx, &position);
		mu->base = position.commit;
		mu->base_unique = s->meta->unique + 1;
		s->meta->unique += mu->chunks + 1;
		mu->proposed_ns = mu->chunks != 0 ? SIM_NEVER : s->now_ns;
		mu->commit = 0;
	}
	mu->open = true;
	sim_trace(s, "mutation %u%s: op %u list %u of room-%u, %u uids, %u chunks", index,
		again ? " again" : "", mu->op, mu->list, mu->channel, uids_of(mu), mu->chunks);
	return mu->chunks != 0 ? propose_part(s, index) : propose_whole(s, index);
}

// Large mutations go on a chunk at a time, so that others come between.
static void more_chunks(struct sim *s)
{
	for (uint32_t i = 0; i < s->mutations; i++) {
		struct sim_mutation *mu = &s->mutation[i];

		if (!mu->open || mu->chunks == 0 || mu->proposed_ns != SIM_NEVER)
			continue;
		if (s->quiet || sim_chance(s, 100))
			propose_part(s, i);
	}
}

// The node (re)subscribes after it or the meta process started, or after a gap.
static void subscribe(struct sim *s)
{
	struct sim_meta *m = s->meta;
	struct store_feed_frame hello = {0}, welcome = {0};
	struct store_position position;
	struct store_delta delta;
	struct store_tx tx;

	feed_clear(m);
	role_take_control();
	node_control_feed_hello(s->node, &hello);
	role_drop_control();
	store_map_read(m->map, &tx);
	store_read_position(&tx, &position);
	welcome.type = STORE_FEED_WELCOME;
	welcome.proto = STORE_FEED_PROTO;
	welcome.node = 1;
	welcome.generation = position.generation;
	const int rc = hello.generation == position.generation && hello.commit <= position.commit
			       ? store_read_delta(&tx, hello.commit, &delta)
			       : -ESTALE;
	welcome.resync = rc == -ESTALE;
	welcome.commit = welcome.resync ? position.commit : hello.commit;
	m->fed = welcome.commit;
	m->subscribed = true;
	m->subscriber_life = s->node_life;
	sim_trace(s, "node subscribes from %llu%s", (unsigned long long)welcome.commit,
		welcome.resync ? ", resync" : "");
	feed_put(s, &welcome);
}

static void feed_more(struct sim *s)
{
	struct sim_meta *m = s->meta;
	struct store_feed_frame frame = {.type = STORE_FEED_DELTA};
	struct store_tx tx;

	store_map_read(m->map, &tx);
	while (m->subscribed && m->tail - m->head < FEED_MAX - 1 &&
		store_read_delta(&tx, m->fed, &frame.delta) == 0) {
		m->fed = frame.delta.commit;
		feed_put(s, &frame);
	}
}

static void feed_deliver(struct sim *s)
{
	struct sim_meta *m = s->meta;

	while (m->head != m->tail && m->feed[m->head % FEED_MAX].due_ns <= s->now_ns) {
		struct feed_item item = m->feed[m->head++ % FEED_MAX];
		struct store_feed_frame frame;
		int rc = store_feed_decode(item.bytes, item.len, &frame);

		// A frame that gets lost must be missed when the next one comes.
		if (s->p.crashes && !s->quiet && m->head != m->tail && sim_chance(s, 200)) {
			sim_trace(s, "the feed loses a frame");
			free(item.bytes);
			continue;
		}
		if (rc != (int)item.len) {
			sim_fail(s, "store_feed_decode: %d of %u", rc, item.len);
			rc = -EPROTO;
		} else {
			role_take_control();
			rc = node_control_feed(s->node, &frame, s->now_ns);
			role_drop_control();
			sim_check_tags(s);
		}
		free(item.bytes);
		if (rc != 0) {
			sim_trace(s, "node gives the feed up: %d", rc);
			feed_clear(m);
		}
	}
}

void sim_meta_step(struct sim *s)
{
	struct sim_meta *m = s->meta;
	uint8_t busy = 0;

	if (m->cons == NULL) {
		if (s->now_ns < m->down_until_ns && !s->quiet)
			return;
		sim_trace(s, "meta starts");
		if (start(s) != 0)
			return;
	}
	more_chunks(s);
	if (cons_local_ops.turn(m->cons, s->now_ns, &busy) < 0 && !m->failing)
		sim_fail(s, "cons turn failed");
	if (m->failing) {
		m->failing = false;
		sim_meta_crash(s);
		return;
	}
	if (s->node == NULL) {
		feed_clear(m);
		return;
	}
	if (!m->subscribed || m->subscriber_life != s->node_life)
		subscribe(s);
	feed_more(s);
	feed_deliver(s);
	role_take_control();
	const uint64_t applied = node_control_applied(s->node);
	role_drop_control();
	for (uint32_t i = 0; i < s->mutations; i++) {
		if (!s->mutation[i].open || s->mutation[i].commit == 0 ||
			s->mutation[i].commit > applied)
			continue;
		s->mutation[i].open = false;
		sim_check_returned(s, i);
	}
}

static int src_position(void *source, struct store_position *position)
{
	struct sim *s = source;
	struct store_tx tx;

	store_map_read(s->meta->map, &tx);
	return store_read_position(&tx, position);
}

static int src_next_channel(
	void *source, const struct channel_key *cursor, struct store_channel *channel)
{
	struct sim *s = source;
	struct store_tx tx;

	store_map_read(s->meta->map, &tx);
	return store_read_next_channel(&tx, cursor, channel);
}

static int src_page(void *source, const struct channel_key *key, enum store_list list,
	struct id_view after, uint32_t max, uint8_t *uids, uint32_t cap, struct store_page *page)
{
	struct sim *s = source;
	struct store_tx tx;

	// A disk that fails now and then.
	if (!s->quiet && !s->p.starve && sim_chance(s, s->p.perfect ? 150 : 10))
		return -EIO;
	store_map_read(s->meta->map, &tx);
	return store_read_page(&tx, key, list, after, max, uids, cap, page);
}

static int src_reopen(void *source)
{
	(void)source;
	return 0;
}

const struct node_source_ops sim_source_ops = {
	.position = src_position,
	.next_channel = src_next_channel,
	.page = src_page,
	.reopen = src_reopen,
};
