/* SPDX-License-Identifier: BSD-3-Clause */
// See control_world.h.
#include "control_world.h"

#include <errno.h>
#include <string.h>

struct node_params world_params = {
	.id = 1,
	.boot = 11,
	.cluster_id = 7,
	.addr = {.ip = 0x7f000001, .port = 5000},
	.mtu = 1500,
	.workers = 2,
	.cookie_secret = "0123456789abcdef",
	.channels = 64,
	.uids = 20000,
	.gateways = 8,
	.ring_items = 16,
	.tag_bytes = 8 << 20,
	.tag_steps = 8,
	.build_members_per_step = 1000,
	.heartbeat_ns = SECOND,
	.fanout = {.payload_bytes = PAYLOAD_MAX},
};

// --- source -------------------------------------------------------------------------------------------

static int source_position(void *source, struct store_position *position)
{
	struct world *w = source;
	struct store_tx tx;
	int rc;

	if (w->position_rc != 0)
		return w->position_rc;
	store_map_read(w->map, &tx);
	rc = store_read_position(&tx, position);
	position->generation = WORLD_GENERATION + w->generation_shift;
	return rc;
}

static int source_next_channel(
	void *source, const struct channel_key *cursor, struct store_channel *channel)
{
	struct world *w = source;
	struct store_tx tx;

	if (w->channel_rc != 0)
		return w->channel_rc;
	store_map_read(w->map, &tx);
	return store_read_next_channel(&tx, cursor, channel);
}

static int source_page(void *source, const struct channel_key *key, enum store_list list,
	struct id_view after, uint32_t max, uint8_t *uids, uint32_t cap, struct store_page *page)
{
	struct world *w = source;
	struct store_tx tx;
	int rc;

	if (w->on_page != NULL)
		w->on_page(w);
	w->pages++;
	if (w->page_rc != 0)
		return w->page_rc;
	store_map_read(w->map, &tx);
	rc = store_read_page(&tx, key, list, after, max, uids, cap, page);
	page->generation = WORLD_GENERATION + w->generation_shift;
	if (rc == 0 && w->page_garble)
		uids[0] = 0;
	return rc;
}

static int source_reopen(void *source)
{
	((struct world *)source)->reopens++;
	return 0;
}

static const struct node_source_ops source_ops = {
	.position = source_position,
	.next_channel = source_next_channel,
	.page = source_page,
	.reopen = source_reopen,
};

// --- world --------------------------------------------------------------------------------------------

static void wake(void *ctx, uint32_t who)
{
	((struct world *)ctx)->wakes[who]++;
}

static void store_start(struct world *w)
{
	struct store_tx tx;
	const char *why;

	w->limits = (struct store_limits){
		.journal_commits = 1000, .dedup_commits = 100, .stages = 4, .stage_commits = 1000};
	w->map = store_map_create();
	store_map_begin(w->map, &tx);
	assert_int_equal(store_open(&tx, 7, &why), 0);
	store_map_commit(w->map, &tx);
}

static void node_start(struct world *w)
{
	const struct node_params *p = &world_params;
	struct node_params whole = *p;
	const char *why = NULL;
	struct node *n;
	const struct presence_limits limits = {.uids = p->uids,
		.gateways = p->gateways,
		.sessions_per_gateway = 1024,
		.uid_quarantine_ns = SECOND};

	if (p->dgram != NULL) {
		whole.source_ops = &source_ops;
		whole.source = w;
		whole.wake = wake;
		whole.wake_ctx = w;
		assert_int_equal(node_create(&whole, &w->node, &why), 0);
		return;
	}
	n = aligned_alloc(64, (sizeof(*n) + 63) / 64 * 64);
	memset(n, 0, sizeof(*n));
	w->node = n;
	n->params = *p;
	n->params.source_ops = &source_ops;
	n->params.source = w;
	n->params.wake = wake;
	n->params.wake_ctx = w;
	rcu_retire_init(&n->retire);
	n->control_counters = aligned_alloc(64, sizeof(struct counters));
	memset((void *)n->control_counters, 0, sizeof(struct counters));
	n->topology = calloc(1, sizeof(*n->topology));
	assert_int_equal(topology_init(n->topology, 256, 10, p->id), 0);
	n->presence = presence_create(&limits, &n->retire);
	n->channels = channel_table_create(p->channels, p->workers, &n->retire);
	n->tags = tag_space_create(p->tag_bytes, p->tag_steps, n->presence, &n->retire);
	for (uint32_t i = 0; i < p->workers; i++) {
		assert_int_equal(wq_spsc_init(&n->worker[i].to_control, p->ring_items,
					 (uint32_t)sizeof(struct node_request) +
						 (NODE_MSG_BYTES_MAX + 7) / 8 * 8),
			0);
		assert_int_equal(wq_spsc_init(&n->worker[i].from_control, p->ring_items,
					 sizeof(struct node_reply)),
			0);
	}
	assert_int_equal(node_control_create(n), 0);
}

struct world *world_open(void)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_int_equal(wire_auth_init(), 0);
	w->now_ns = 100 * SECOND;
	store_start(w);
	node_start(w);
	return w;
}

static void all_gone(struct world *w) CONTROL_ONLY;
static void all_gone(struct world *w)
{
	struct node *n = w->node;
	struct channel *channel;
	struct presence_stats stats;
	uint32_t at = 0;

	while ((channel = channel_table_next(n->channels, &at)) != NULL)
		node_channel_gone(n, channel);
	presence_gateway_expire(n->presence, UINT64_MAX, w->now_ns);
	n->control->feed.known = false;
	for (uint32_t i = 0; i < 10; i++) {
		struct node_reply reply;

		for (uint32_t r = 0; r < n->params.workers; r++)
			while (world_reply(w, r, &reply))
				;
		world_step(w, 1);
		rcu_reclaim(&n->retire);
		while (tag_space_step(n->tags, w->now_ns) != 0)
			;
		while (presence_step(n->presence, 100000, w->now_ns) != 0)
			;
	}
	presence_stats(n->presence, &stats);
	assert_int_equal(stats.uids, 0);
	assert_int_equal(stats.gateways_sweeping, 0);
	assert_int_equal(n->control->build.uids, 0);
	assert_int_equal(n->control->build.jobs, 0);
	assert_int_equal(n->control->build.waiting, 0);
	assert_int_equal(tag_space_bytes(n->tags), 0);
	for (uint32_t i = 0; i <= n->params.uids / 64; i++)
		assert_int_equal(n->control->build.mark[i], 0);
}

static void free_store(struct world *w)
{
	while (w->delta != NULL) {
		struct world_delta *next = w->delta->next;

		free(w->delta);
		w->delta = next;
	}
	store_map_destroy(w->map);
	free(w);
}

void world_close(struct world *w)
{
	struct node *n = w->node;

	if (n->params.dgram != NULL) {
		node_destroy(n);
		free_store(w);
		return;
	}
	all_gone(w);
	node_control_destroy(n);
	rcu_reclaim(&n->retire);
	tag_space_destroy(n->tags);
	channel_table_destroy(n->channels);
	presence_destroy(n->presence);
	for (uint32_t i = 0; i < n->params.workers; i++) {
		wq_spsc_fini(&n->worker[i].to_control);
		wq_spsc_fini(&n->worker[i].from_control);
	}
	free(n->topology);
	free((void *)n->control_counters);
	free(n);
	free_store(w);
}

// --- mutations ----------------------------------------------------------------------------------------

static void on_delta(void *ctx, const struct store_delta *d)
{
	struct world *w = ctx;
	const struct store_feed_frame frame = {.type = STORE_FEED_DELTA, .delta = *d};
	const uint32_t cap = d->uids_bytes + 1024;
	struct world_delta *kept = malloc(sizeof(*kept) + cap);
	const int bytes = store_feed_encode(&frame, kept->frame, cap);

	assert_true(bytes > 0);
	kept->next = NULL;
	kept->commit = d->commit;
	kept->bytes = (uint32_t)bytes;
	if (w->delta == NULL)
		w->delta = kept;
	else
		w->delta_last->next = kept;
	w->delta_last = kept;
	w->deltas++;
}

static struct store_result apply(struct world *w, const struct store_command *cmd)
{
	static uint8_t entry[ENTRY_BYTES_MAX];
	const int len = store_command_encode(cmd, entry, sizeof(entry));
	struct store_result result;
	struct store_tx tx;

	assert_true(len > 0);
	store_map_begin(w->map, &tx);
	assert_int_equal(store_apply(&tx, &w->limits, ++w->log_index, entry, (uint32_t)len, &result,
				 1, on_delta, w),
		1);
	store_map_commit(w->map, &tx);
	return result;
}

static struct store_command command(uint8_t op, uint8_t list, const char *chan, const uint8_t *uids)
{
	struct store_command cmd = {.op = op, .list = list, .uids = uids};

	channel_key_set(&cmd.channel, CHANNEL_GROUP, chan, (uint8_t)strlen(chan));
	return cmd;
}

static uint8_t packed[ENTRY_BYTES_MAX];

static void pack(struct store_command *cmd, const char *uid, size_t len)
{
	packed[cmd->uids_bytes] = (uint8_t)len;
	memcpy(packed + cmd->uids_bytes + 1, uid, len);
	cmd->uids_bytes += 1u + (uint32_t)len;
	cmd->uid_count++;
}

struct store_result world_do(
	struct world *w, uint8_t op, uint8_t list, const char *chan, const char *uids)
{
	struct store_command cmd = command(op, list, chan, packed);

	while (uids != NULL && *uids != 0) {
		const size_t len = strcspn(uids, " ");

		pack(&cmd, uids, len);
		uids += len + (uids[len] == ' ');
	}
	return apply(w, &cmd);
}

static void pack_range(struct store_command *cmd, const char *prefix, uint32_t from, uint32_t to)
{
	char name[64];

	for (uint32_t n = from; n < to; n++)
		pack(cmd, name, (size_t)snprintf(name, sizeof(name), "%s%u", prefix, n));
}

struct store_result world_range(struct world *w, uint8_t op, uint8_t list, const char *chan,
	const char *prefix, uint32_t from, uint32_t to)
{
	struct store_command cmd = command(op, list, chan, packed);

	pack_range(&cmd, prefix, from, to);
	return apply(w, &cmd);
}

void world_bulk(struct world *w, uint8_t list, const char *chan, const char *prefix, uint32_t from,
	uint32_t to)
{
	struct store_command cmd = command(STORE_RESET, list, chan, packed);

	pack_range(&cmd, prefix, from, to);
	assert_int_equal(apply(w, &cmd).code, STORE_R_OK);
}

// --- feed and steps -----------------------------------------------------------------------------------

int world_welcome(struct world *w, bool resync)
{
	struct store_feed_frame frame = {.type = STORE_FEED_WELCOME,
		.generation = WORLD_GENERATION + w->generation_shift,
		.resync = resync};
	struct store_feed_frame hello;
	struct store_position position;

	node_control_feed_hello(w->node, &hello);
	source_position(w, &position);
	// Deltas go on from the commit of the WELCOME, or without a resync from where the node was.
	frame.commit = w->delta != NULL ? w->delta->commit - 1 : position.commit;
	if (!resync && hello.commit > frame.commit)
		frame.commit = hello.commit;
	return node_control_feed(w->node, &frame, w->now_ns);
}

int world_deliver(struct world *w, uint32_t max)
{
	int rc = 0;

	for (; max != 0 && w->delta != NULL && rc == 0; max--) {
		struct world_delta *d = w->delta;
		struct store_feed_frame frame;

		assert_int_equal(store_feed_decode(d->frame, d->bytes, &frame), d->bytes);
		rc = node_control_feed(w->node, &frame, w->now_ns);
		w->delta = d->next;
		free(d);
	}
	return rc;
}

void world_step(struct world *w, uint32_t steps)
{
	while (steps-- != 0) {
		w->now_ns += MS;
		node_control_step(w->node, w->now_ns);
	}
}

void world_ready(struct world *w)
{
	assert_int_equal(world_welcome(w, true), 0);
	for (uint32_t i = 0; i < 1000 && !node_control_ready(w->node); i++)
		world_step(w, 1);
	assert_true(node_control_ready(w->node));
	assert_int_equal(world_deliver(w, UINT32_MAX), 0);
}

struct channel *world_channel(struct world *w, const char *chan)
{
	struct channel_key key;

	channel_key_set(&key, CHANNEL_GROUP, chan, (uint8_t)strlen(chan));
	return channel_find(w->node->channels, &key, channel_key_hash(&key));
}

void world_want(struct world *w, const char *chan)
{
	struct channel *channel = world_channel(w, chan);
	struct wq_spsc *ring;
	struct node_request *request;

	assert_non_null(channel);
	ring = &w->node->worker[channel->worker].to_control;
	request = wq_spsc_reserve(ring);
	assert_non_null(request);
	*request = (struct node_request){.kind = NODE_REQ_TAG,
		.worker = (uint8_t)channel->worker,
		.channel = channel->index,
		.use = channel->use};
	wq_spsc_commit(ring);
}

bool world_usable(struct world *w, const char *chan)
{
	const struct channel *channel = world_channel(w, chan);
	const struct tag *tag = channel == NULL ? NULL : channel->tag;

	return tag != NULL && tag->smv == channel->smv;
}

struct tag *world_tag(struct world *w, const char *chan)
{
	world_want(w, chan);
	for (uint32_t i = 0; i < 1000 && !world_usable(w, chan); i++)
		world_step(w, 1);
	return world_usable(w, chan) ? world_channel(w, chan)->tag : NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

const char *world_members(struct world *w, const char *chan)
{
	static char text[1 << 20], store[1 << 20];
	static char *name[1 << 16];
	const struct channel *channel = world_channel(w, chan);
	const struct tag *tag = channel == NULL ? NULL : channel->tag;
	uint32_t n = 0;
	size_t at = 0;

	if (tag == NULL)
		return "-";
	for (uint32_t c = 0; c < tag->chunks; c++)
		for (uint32_t i = 0; i < tag->chunk[c]->count; i++) {
			const uint32_t entry = tag->chunk[c]->uid[i];
			const struct id_view uid =
				presence_uid_name(w->node->presence, TAG_UID(entry));

			name[n++] = store + at;
			store[at++] = (entry & TAG_DENIED) != 0 ? '!' : ' ';
			memcpy(store + at, uid.bytes, uid.len);
			at += uid.len;
			store[at++] = 0;
		}
	qsort((void *)name, n, sizeof(*name), by_name);
	text[0] = 0;
	at = 0;
	for (uint32_t i = 0; i < n; i++)
		at += (size_t)sprintf(
			text + at, "%s%s", i == 0 ? "" : " ", name[i] + (name[i][0] == ' '));
	return text;
}

// Packed UIDs of one list, in byte order. Returns: bytes.
static uint32_t stored_list(struct world *w, const struct channel_key *key, enum store_list list,
	uint8_t *out, uint32_t cap)
{
	struct id_view after = {0};
	struct store_page page;
	struct store_tx tx;
	uint32_t len = 0;

	store_map_read(w->map, &tx);
	do {
		const uint8_t *p = out + len;

		if (store_read_page(&tx, key, list, after, 100, out + len, cap - len, &page) != 0)
			return 0;
		len += page.bytes_used;
		while (store_uids_next(&p, out + len, &after))
			;
	} while (!page.last);
	return len;
}

const char *world_stored(struct world *w, const char *chan)
{
	static uint8_t members[1 << 18], deny[1 << 18];
	static char text[1 << 20];
	struct channel_key key;
	const uint8_t *m = members, *m_end, *d_end;
	struct id_view uid;
	size_t at = 0;

	channel_key_set(&key, CHANNEL_GROUP, chan, (uint8_t)strlen(chan));
	m_end = members + stored_list(w, &key, STORE_MEMBERS, members, sizeof(members));
	d_end = deny + stored_list(w, &key, STORE_DENY, deny, sizeof(deny));
	text[0] = 0;
	while (store_uids_next(&m, m_end, &uid)) {
		const uint8_t *d = deny;
		struct id_view other;
		bool denied = false;

		while (store_uids_next(&d, d_end, &other))
			denied |= id_equal(uid, other);
		at += (size_t)sprintf(text + at, "%s%s%.*s", at == 0 ? "" : " ", denied ? "!" : "",
			uid.len, (const char *)uid.bytes);
	}
	return text;
}

uint64_t world_count(const struct world *w, enum counter id)
{
	return counter_get(w->node->control_counters, id);
}

// --- rings --------------------------------------------------------------------------------------------

void world_request(struct world *w, uint32_t worker, uint64_t sender, uint64_t boot, uint8_t type,
	const struct wire_buf *body)
{
	struct node_request *request = wq_spsc_reserve(&w->node->worker[worker].to_control);
	const uint32_t len = body == NULL ? 0 : body->len;

	assert_non_null(request);
	assert_true(body == NULL || body->ok);
	*request = (struct node_request){
		.kind = NODE_REQ_DATAGRAM,
		.worker = (uint8_t)worker,
		.bytes = (uint16_t)len,
		.from = {.ip = 0x7f000001, .port = (uint16_t)(7000 + sender)},
		.header = {.type = type, .sender = sender, .boot = boot},
	};
	if (len != 0)
		memcpy(request->body, body->p, len);
	wq_spsc_commit(&w->node->worker[worker].to_control);
}

bool world_reply(struct world *w, uint32_t worker, struct node_reply *reply)
{
	const struct node_reply *at = wq_spsc_peek(&w->node->worker[worker].from_control);

	if (at == NULL)
		return false;
	*reply = *at;
	wq_spsc_drop(&w->node->worker[worker].from_control);
	return true;
}
