/* SPDX-License-Identifier: BSD-3-Clause */
// The feed: deltas in commit order into the channel table and the tags, and the full read of the channel
// table when the journal does not reach back. Control core.
//
// Deltas are applied while the full read goes on. A read sees at least every delta that was delivered, and
// versions only grow, so each channel keeps the newer of the two; when the read is done and channels it
// did not find are taken out, the table is that of the last delta.
#include "node_control_pvt.h"

#include <errno.h>

#include "base_log.h"

#define SCAN_CHANNELS 256u  // of one step
#define SOURCE_RETRY_NS UINT64_C(50000000)
#define REREAD_NS UINT64_C(1000000000)

// Whether a channel that is not in the table does not exist.
static void tell_complete(struct node *node)
{
	const struct node_feed *feed = &node->control->feed;

	atomic_store_explicit(&node->channels->complete,
		feed->synced && feed->known && !feed->missed, memory_order_release);
}

// The table is full. What it lacks is looked for when it has room again.
static void no_room(struct node *node)
{
	counter_add(own(node), CTR_LIMIT_CHANNELS, 1);
	node->control->feed.missed = true;
	tell_complete(node);
}

// --- hello, welcome, lost -------------------------------------------------------------------------------

void node_control_feed_hello(const struct node *node, struct store_feed_frame *hello)
{
	const struct node_feed *feed = &node->control->feed;

	*hello = (struct store_feed_frame){
		.type = STORE_FEED_HELLO,
		.proto = STORE_FEED_PROTO,
		.node = node->params.id,
		.generation = feed->known ? feed->generation : 0,
		.commit = feed->known ? feed->commit : 0,
	};
}

void node_control_feed_lost(struct node *node, uint64_t now_ns)
{
	(void)now_ns;
	node->control->feed.connected = false;
}

// Nothing known here fits any more: the next HELLO asks for everything.
static int out_of_step(struct node *node) CONTROL_ONLY;
static int out_of_step(struct node *node)
{
	struct node_feed *feed = &node->control->feed;

	feed->connected = false;
	feed->known = false;
	atomic_store_explicit(&node->channels->complete, false, memory_order_release);
	return -EPROTO;
}

// Another history: equal versions may mean other members. No tag stays, and versions start anew.
static void forget_history(struct node *node, uint64_t now_ns) CONTROL_ONLY;
static void forget_history(struct node *node, uint64_t now_ns)
{
	struct channel *channel;
	uint32_t at = 0;

	while ((channel = channel_table_next(node->channels, &at)) != NULL) {
		node_deny_drop(node, node_channel_of(node, channel), now_ns);
		if (atomic_load_explicit(&channel->tag, memory_order_relaxed) != NULL)
			node_tag_set(node, channel, NULL);
		atomic_store_explicit(&channel->smv, 0, memory_order_release);
	}
}

static int welcome(
	struct node *node, const struct store_feed_frame *frame, uint64_t now_ns) CONTROL_ONLY;
static int welcome(struct node *node, const struct store_feed_frame *frame, uint64_t now_ns)
{
	struct node_feed *feed = &node->control->feed;

	if (feed->connected)
		return out_of_step(node);
	if (!frame->resync) {
		if (!feed->known || frame->generation != feed->generation ||
			frame->commit < feed->commit)
			return out_of_step(node);
		feed->connected = true;
		return 0;
	}
	atomic_store_explicit(&node->channels->complete, false, memory_order_release);
	if (feed->generation != frame->generation)
		forget_history(node, now_ns);
	*feed = (struct node_feed){
		.connected = true,
		.known = true,
		.scanning = true,
		.generation = frame->generation,
		.commit = frame->commit,
		.scan = feed->scan + 1,
	};
	node_build_restart_all(node);
	counter_add(own(node), CTR_RESYNC, 1);
	return 0;
}

// --- deltas -------------------------------------------------------------------------------------------

static void removed(
	struct node *node, struct channel *channel, const struct store_delta *d) CONTROL_ONLY;
static void removed(struct node *node, struct channel *channel, const struct store_delta *d)
{
	// One that was made again since is known already by a later version.
	if (channel == NULL)
		node->control->feed.missed_less = true;
	else if (atomic_load_explicit(&channel->smv, memory_order_relaxed) < d->smv)
		node_channel_gone(node, channel);
}

// The tag is published before the version. A reader compares the two, so that between the two stores it
// finds neither usable and waits.
static void apply(struct node *node, struct channel *channel, const struct store_delta *d,
	uint64_t now_ns) CONTROL_ONLY;
static void apply(
	struct node *node, struct channel *channel, const struct store_delta *d, uint64_t now_ns)
{
	struct node_channel *nc = node_channel_of(node, channel);
	struct tag *old = atomic_load_explicit(&channel->tag, memory_order_relaxed);
	struct tag *tag = NULL;

	nc->scan = node->control->feed.scan;
	if (nc->job != 0)
		node_job_delta(&node->control->build.job[nc->job - 1], d);
	if (d->smv <= atomic_load_explicit(&channel->smv, memory_order_relaxed))
		return;
	channel->info_flags = d->flags;
	channel->members = d->members > UINT32_MAX ? UINT32_MAX : (uint32_t)d->members;
	if (old != NULL && node_tag_current(node, channel) && old->smv == d->smv_before)
		tag = node_edit(node, channel, d, now_ns);
	if (tag != NULL) {
		node_tag_set(node, channel, tag);
		counter_add(own(node), CTR_TAG_EDIT, 1);
	} else {
		node_deny_drop(node, nc, now_ns);
	}
	atomic_store_explicit(&channel->smv, d->smv, memory_order_release);
}

static int delta(struct node *node, const struct store_delta *d, uint64_t now_ns) CONTROL_ONLY;
static int delta(struct node *node, const struct store_delta *d, uint64_t now_ns)
{
	struct node_feed *feed = &node->control->feed;
	struct channel *channel;

	if (!feed->connected || feed->commit == UINT64_MAX || d->commit != feed->commit + 1)
		return out_of_step(node);
	if (!store_delta_of_channel(d->kind)) {
		// Rows of the cluster's tables: they move the commit number and no channel.
		counter_add(own(node), CTR_DELTA, 1);
		feed->commit = d->commit;
		return 0;
	}
	if (!channel_key_valid(&d->channel))
		return out_of_step(node);
	channel = channel_find(node->channels, &d->channel, channel_key_hash(&d->channel));
	counter_add(own(node), CTR_DELTA, 1);
	if (d->kind == STORE_DELTA_REMOVED) {
		removed(node, channel, d);
	} else {
		if (channel == NULL)
			channel = channel_table_get(node->channels, &d->channel);
		if (channel != NULL)
			apply(node, channel, d, now_ns);
		else
			no_room(node);
	}
	feed->commit = d->commit;
	return 0;
}

int node_control_feed(struct node *node, const struct store_feed_frame *frame, uint64_t now_ns)
{
	switch (frame->type) {
	case STORE_FEED_WELCOME:
		return welcome(node, frame, now_ns);
	case STORE_FEED_DELTA:
		return delta(node, &frame->delta, now_ns);
	default:
		return out_of_step(node);
	}
}

uint64_t node_control_applied(struct node *node)
{
	return node->control->feed.applied;
}

bool node_control_ready(const struct node *node)
{
	return node->control->feed.synced && node->control->feed.connected;
}

// --- the full read ------------------------------------------------------------------------------------

static void source_failed(struct node *node, const char *what, int rc, uint64_t now_ns)
{
	node->control->feed.retry_ns = now_ns + SOURCE_RETRY_NS;
	LOG(LOG_WARN, "node", "SOURCE", "reading the store failed: %s (%d), trying again", what,
		rc);
}

// Makes sure that the source reads the generation the feed speaks of, and not behind the feed.
static bool source_ready(struct node *node, uint64_t now_ns) CONTROL_ONLY;
static bool source_ready(struct node *node, uint64_t now_ns)
{
	const struct node_params *p = &node->params;
	struct node_feed *feed = &node->control->feed;
	struct store_position position;
	int rc = p->source_ops->position(p->source, &position);

	if (rc == 0 && position.generation != feed->generation) {
		rc = p->source_ops->reopen(p->source);
		if (rc == 0)
			rc = p->source_ops->position(p->source, &position);
	}
	if (rc != 0 || position.generation != feed->generation || position.commit < feed->commit) {
		source_failed(node, "position", rc, now_ns);
		return false;
	}
	return true;
}

static void found(struct node *node, const struct store_channel *sc, uint64_t now_ns) CONTROL_ONLY;
static void found(struct node *node, const struct store_channel *sc, uint64_t now_ns)
{
	struct channel *channel =
		channel_find(node->channels, &sc->key, channel_key_hash(&sc->key));
	struct node_channel *nc;

	if (sc->removed) {
		if (channel != NULL &&
			atomic_load_explicit(&channel->smv, memory_order_relaxed) < sc->smv)
			node_channel_gone(node, channel);
		return;
	}
	if (channel == NULL)
		channel = channel_table_get(node->channels, &sc->key);
	if (channel == NULL) {
		no_room(node);
		return;
	}
	nc = node_channel_of(node, channel);
	nc->scan = node->control->feed.scan;
	if (sc->smv <= atomic_load_explicit(&channel->smv, memory_order_relaxed))
		return;
	channel->info_flags = sc->flags;
	channel->members = sc->members > UINT32_MAX ? UINT32_MAX : (uint32_t)sc->members;
	node_deny_drop(node, nc, now_ns);
	atomic_store_explicit(&channel->smv, sc->smv, memory_order_release);
}

static uint32_t scan_some(struct node *node, uint64_t now_ns) CONTROL_ONLY;
static uint32_t scan_some(struct node *node, uint64_t now_ns)
{
	const struct node_params *p = &node->params;
	struct node_feed *feed = &node->control->feed;

	for (uint32_t i = 0; i < SCAN_CHANNELS; i++) {
		struct store_channel sc;
		const int rc = p->source_ops->next_channel(p->source, &feed->cursor, &sc);

		if (rc == -ENOENT) {
			// All of it must have been of one generation.
			feed->checked = false;
			if (source_ready(node, now_ns)) {
				feed->scanning = false;
				feed->sweep_at = 0;
				tell_complete(node);
			} else {
				feed->cursor = (struct channel_key){0};
			}
			return i + 1;
		}
		if (rc != 0) {
			source_failed(node, "channels", rc, now_ns);
			return i + 1;
		}
		feed->cursor = sc.key;
		found(node, &sc, now_ns);
	}
	return SCAN_CHANNELS;
}

// Takes out channels the read did not find and no delta named since.
static uint32_t sweep_some(struct node *node) CONTROL_ONLY;
static uint32_t sweep_some(struct node *node)
{
	struct node_feed *feed = &node->control->feed;

	for (uint32_t i = 0; i < SCAN_CHANNELS; i++) {
		struct channel *channel = channel_table_next(node->channels, &feed->sweep_at);

		if (channel == NULL) {
			feed->synced = true;
			tell_complete(node);
			return i + 1;
		}
		if (node_channel_of(node, channel)->scan != feed->scan)
			node_channel_gone(node, channel);
	}
	return SCAN_CHANNELS;
}

// Reads all channels again, beside a table that is in use: it finds those that had no room, if there are any
// left, and changes nothing of the others. With the table full and channels coming and going, once in REREAD_NS.
static void reread(struct node *node, uint64_t now_ns) CONTROL_ONLY;
static void reread(struct node *node, uint64_t now_ns)
{
	struct node_feed *feed = &node->control->feed;

	if (feed->scanning || now_ns < feed->reread_ns ||
		!(feed->missed_less || channel_table_has_room(node->channels)))
		return;
	feed->reread_ns = now_ns + REREAD_NS;
	feed->missed = feed->missed_less = false;
	feed->scanning = true;
	feed->checked = false;
	feed->cursor = (struct channel_key){0};
}

uint32_t node_feed_step(struct node *node, uint64_t now_ns)
{
	struct node_feed *feed = &node->control->feed;

	if (feed->synced && feed->missed)
		reread(node, now_ns);
	if (!feed->known || now_ns < feed->retry_ns || (feed->synced && !feed->scanning))
		return 0;
	if (!feed->scanning)
		return sweep_some(node);
	if (!feed->checked) {
		feed->checked = source_ready(node, now_ns);
		return 1;
	}
	return scan_some(node, now_ns);
}
