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
#define BATCH_BYTES (64u * 1024u)

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
	uint64_t fed;          // last commit put into the feed
	uint32_t subscriber_life;
	struct feed_item feed[FEED_MAX];
	uint32_t head, tail;
	uint32_t unique;
};

static const struct store_limits limits = {
	.journal_commits = 64,
	.dedup_commits = 512,
	.stages = 4,
	.stage_commits = 1000,
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
	item->due_ns = s->now_ns + 20 * NS_PER_US + sim_random(s) % (2 * NS_PER_MS);
	if (m->tail != m->head && m->feed[(m->tail - 1) % FEED_MAX].due_ns > item->due_ns)
		item->due_ns = m->feed[(m->tail - 1) % FEED_MAX].due_ns;
	item->len = (uint32_t)len;
	item->bytes = malloc((size_t)len);
	if (item->bytes == NULL)
		abort();
	memcpy(item->bytes, buffer, (size_t)len);
	m->tail++;
}

static int on_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	struct sim *s = ctx;
	struct store_tx tx;
	struct store_result results[64];

	store_map_begin(s->meta->map, &tx);
	for (uint32_t i = 0; i < count; i++) {
		const int n = store_apply(&tx, &limits, commits[i].index, commits[i].data,
			commits[i].len, results, 64, NULL, NULL);

		if (n < 1) {
			sim_fail(s, "store_apply: %d", n);
			return -EIO;
		}
		const uint32_t mutation = (uint32_t)commits[i].token - 1;
		sim_check_applied(s, mutation, &results[0]);
		s->mutation[mutation].commit = results[0].commit;
	}
	store_compact(&tx, &limits, 64);
	store_map_commit(s->meta->map, &tx);
	return 0;
}

static void on_result(void *ctx, uint64_t token, enum cons_status status)
{
	struct sim *s = ctx;

	if (status != CONS_OK)
		s->mutation[token - 1].open = false;
}

static int on_restore(void *ctx, const void *source)
{
	(void)ctx;
	(void)source;
	return -ENOTSUP;
}

static const struct cons_events events = {
	.on_commit = on_commit,
	.on_result = on_result,
	.on_restore = on_restore,
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
	for (uint32_t i = 0; i < s->mutations; i++)
		s->mutation[i].open = false;
	if (s->node != NULL) {
		role_take_control();
		node_control_feed_lost(s->node, s->now_ns);
		role_drop_control();
	}
}

bool sim_meta_propose(struct sim *s, uint32_t index)
{
	struct sim_mutation *mu = &s->mutation[index];
	uint8_t uids[SIM_UIDS * 16], batch[4096];
	struct store_position position;
	struct store_tx tx;
	struct store_command cmd = {
		.op = mu->op,
		.list = mu->list,
		.channel = s->channel[mu->channel].key,
		.uids = uids,
	};

	if (s->meta->cons == NULL)
		return false;
	for (uint32_t uid = 0; uid < SIM_UIDS; uid++) {
		char name[16];

		if (!sim_has(&mu->set, uid))
			continue;
		sim_uid_name(uid, name);
		uids[cmd.uids_bytes] = (uint8_t)strlen(name);
		memcpy(uids + cmd.uids_bytes + 1, name, strlen(name));
		cmd.uids_bytes += 1 + (uint32_t)strlen(name);
		cmd.uid_count++;
	}
	store_map_read(s->meta->map, &tx);
	store_read_position(&tx, &position);
	store_dedup_key(cmd.dedup, position.commit, ++s->meta->unique);
	const int len = store_command_encode(&cmd, batch, sizeof(batch));
	if (len < 0) {
		sim_fail(s, "store_command_encode: %d", len);
		return false;
	}
	mu->open = true;
	mu->proposed_ns = s->now_ns;
	mu->commit = 0;
	sim_trace(s, "mutation %u: op %u list %u of room-%u, %u uids", index, mu->op, mu->list,
		mu->channel, cmd.uid_count);
	if (cons_local_ops.propose(s->meta->cons, batch, (uint32_t)len, index + 1) != CONS_OK)
		return false;
	return true;
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

		if (rc != (int)item.len) {
			sim_fail(s, "store_feed_decode: %d of %u", rc, item.len);
			rc = -EPROTO;
		} else {
			role_take_control();
			rc = node_control_feed(s->node, &frame, s->now_ns);
			role_drop_control();
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

	if (m->cons == NULL) {
		if (s->now_ns < m->down_until_ns && !s->quiet)
			return;
		sim_trace(s, "meta starts");
		if (start(s) != 0)
			return;
	}
	if (cons_local_ops.turn(m->cons, s->now_ns) < 0)
		sim_fail(s, "cons turn failed");
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

static int src_next_channel(void *source, const struct channel_key *cursor,
	struct store_channel *channel)
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
	if (!s->quiet && sim_chance(s, 10))
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
