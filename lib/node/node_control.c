/* SPDX-License-Identifier: BSD-3-Clause */
// The control step: requests of workers, ended gateways, the feed's full read, builds, idle tags,
// reclamation; each a bounded piece. Control core.
#include "node_control_pvt.h"

#include <errno.h>
#include <stdlib.h>

#define REQUESTS_MAX 256u  // of one worker in a step
#define PRESENCE_STEPS 512u
#define RECLAIM_NS UINT64_C(1000000)
#define RECLAIM_ITEMS 64u
#define TTL_SLICE 256u  // channels looked at for idle tags,
#define TTL_SLICE_NS UINT64_C(1000000)  // this often at most

int node_control_create(struct node *node)
{
	struct node_control *c = calloc(1, sizeof(*c));
	const struct node_params *p = &node->params;

	node->control = c;
	if (c == NULL)
		return -ENOMEM;
	c->channel = calloc((size_t)p->channels + 1, sizeof(*c->channel));
	c->answer = calloc((size_t)p->gateways + 1, sizeof(*c->answer));
	if (c->channel == NULL || c->answer == NULL)
		return -ENOMEM;
	node_settings_of(p, &c->settings);
	return node_build_create(node);
}

static void destroy_lists(struct node *node) CONTROL_ONLY;
static void destroy_lists(struct node *node)
{
	struct node_control *c = node->control;

	if (c->build.page != NULL)
		node_build_destroy(node);
	for (uint32_t i = 0; c->channel != NULL && i <= node->params.channels; i++)
		free(c->channel[i].deny.uid);
}

void node_control_destroy(struct node *node)
{
	struct node_control *c = node->control;

	if (c == NULL)
		return;
	// A grace period under way reports to this memory.
	rcu_reclaim(&node->retire);
	role_take_control();
	destroy_lists(node);
	role_drop_control();
	free(c->channel);
	free(c->answer);
	free(c);
	node->control = NULL;
}

// --- towards the workers ------------------------------------------------------------------------------

void node_wake(struct node *node, uint32_t worker)
{
	if (node->params.wake != NULL)
		node->params.wake(node->params.wake_ctx, worker);
}

bool node_control_reply(struct node *node, uint32_t worker, const struct node_reply *reply)
{
	const bool room = wq_spsc_push(&node->worker[worker].from_control, reply);

	node_wake(node, worker);
	return room;
}

// A hint: a worker finds out by itself, with its next look at what waits for the channel.
static void gone_push(struct node_control *c, const struct channel *channel)
{
	if (c->gone_count == GONE_MAX)
		return;
	c->gone[(c->gone_head + c->gone_count++) % GONE_MAX] = (struct node_gone){
		.index = channel->index,
		.use = atomic_load_explicit(&channel->use, memory_order_relaxed),
		.worker = channel->worker,
	};
}

static uint32_t gone_step(struct node *node) CONTROL_ONLY;
static uint32_t gone_step(struct node *node)
{
	struct node_control *c = node->control;
	uint32_t sent = 0;

	while (c->gone_count != 0) {
		const struct node_gone *gone = &c->gone[c->gone_head];
		const struct node_reply reply = {
			.kind = NODE_REP_CHANNEL_GONE,
			.index = gone->index,
			.use = gone->use,
		};

		if (!node_control_reply(node, gone->worker, &reply))
			break;
		c->gone_head = (c->gone_head + 1) % GONE_MAX;
		c->gone_count--;
		sent++;
	}
	return sent;
}

// --- channels -----------------------------------------------------------------------------------------

struct node_channel *node_channel_of(struct node *node, struct channel *channel)
{
	struct node_channel *nc = &node->control->channel[channel->index];

	if (channel->control == NULL) {
		*nc = (struct node_channel){0};
		channel->control = nc;
	}
	return nc;
}

struct channel_key node_channel_key(const struct channel *channel)
{
	struct channel_key key = {.type = channel->key_type, .len = channel->key_len};

	memcpy(key.bytes, channel->key_bytes, channel->key_len);
	return key;
}

void node_channel_gone(struct node *node, struct channel *channel)
{
	struct node_channel *nc = node_channel_of(node, channel);

	atomic_fetch_or_explicit(&channel->flags, CHANNEL_F_REMOVED, memory_order_release);
	node_build_forget(node, channel);
	node_deny_drop(node, nc, 0);
	node_tag_set(node, channel, NULL);
	gone_push(node->control, channel);
	channel_table_remove(node->channels, channel);
}

// --- the step -----------------------------------------------------------------------------------------

static void request_tag(struct node *node, const struct node_request *request) CONTROL_ONLY;
static void request_tag(struct node *node, const struct node_request *request)
{
	struct channel *channel;

	if (request->channel == 0 || request->channel > node->channels->limit)
		return;
	channel = &node->channels->channel[request->channel];
	if (atomic_load_explicit(&channel->use, memory_order_relaxed) == request->use)
		node_build_want(node, channel);
}

// Handles requests of all workers. Returns: number; *drained: no ring has any left.
static uint32_t requests(struct node *node, bool *drained, uint64_t now_ns) CONTROL_ONLY;
static uint32_t requests(struct node *node, bool *drained, uint64_t now_ns)
{
	uint32_t total = 0;

	*drained = true;
	for (uint32_t w = 0; w < node->params.workers; w++) {
		struct wq_spsc *ring = &node->worker[w].to_control;
		const struct node_request *request;
		uint32_t n = 0;

		for (; n < REQUESTS_MAX && (request = wq_spsc_peek(ring)) != NULL; n++) {
			if (request->kind == NODE_REQ_DATAGRAM)
				node_gateway_datagram(node, request, now_ns);
			else if (request->kind == NODE_REQ_TAG)
				request_tag(node, request);
			wq_spsc_drop(ring);
		}
		*drained &= n < REQUESTS_MAX;
		total += n;
	}
	return total;
}

// Takes off tags nobody used for the time to live. Memory only: a message finds a new one built (I10).
static uint32_t idle_tags(struct node *node, uint64_t now_ns) CONTROL_ONLY;
static uint32_t idle_tags(struct node *node, uint64_t now_ns)
{
	struct node_control *c = node->control;
	uint32_t expired = 0;

	if (c->settings.tag_ttl_ns == 0 || now_ns - c->ttl_ns < TTL_SLICE_NS)
		return 0;
	c->ttl_ns = now_ns;
	for (uint32_t i = 0; i < TTL_SLICE; i++) {
		struct channel *channel = channel_table_next(node->channels, &c->ttl_at);
		struct tag *tag;
		uint64_t used_ns;

		if (channel == NULL) {
			c->ttl_at = 0;
			break;
		}
		tag = atomic_load_explicit(&channel->tag, memory_order_relaxed);
		if (tag == NULL)
			continue;
		used_ns = atomic_load_explicit(&tag->used_ns, memory_order_relaxed);
		if (used_ns >= now_ns || now_ns - used_ns < c->settings.tag_ttl_ns)
			continue;
		node_deny_drop(node, node_channel_of(node, channel), now_ns);
		node_tag_set(node, channel, NULL);
		counter_add(own(node), CTR_TAG_EXPIRED, 1);
		expired++;
	}
	return expired;
}

static void applied_now(void *owner, void *ptr)
{
	struct node_feed *feed = &((struct node *)owner)->control->feed;

	(void)ptr;
	// Asked for before the feed began anew: means nothing any more.
	if (feed->asked == 0)
		return;
	feed->applied = feed->asked;
	feed->asked = 0;
}

// What was changed up to here is acted on by every worker once a grace period has passed: each has ended
// the turn it was in, and its next one sees the change. Sleeping workers do not hold it up.
static uint32_t reclaim(struct node *node, uint64_t now_ns) CONTROL_ONLY;
static uint32_t reclaim(struct node *node, uint64_t now_ns)
{
	struct node_control *c = node->control;
	struct node_feed *feed = &c->feed;

	if (feed->synced && feed->asked == 0 && feed->applied != feed->commit) {
		feed->asked = feed->commit;
		rcu_retire(&node->retire, applied_now, node, NULL);
	}
	if (node->retire.count == 0 || (feed->asked == 0 && node->retire.count < RECLAIM_ITEMS &&
					       now_ns - c->reclaimed_ns < RECLAIM_NS))
		return 0;
	c->reclaimed_ns = now_ns;
	return rcu_reclaim(&node->retire);
}

uint32_t node_control_step(struct node *node, uint64_t now_ns)
{
	bool drained;
	uint32_t work = requests(node, &drained, now_ns);

	// After a pause the heartbeats that waited are heard before anybody is missed.
	work += node_gateway_step(node, drained, now_ns);
	work += gone_step(node);
	work += node_settings_step(node);
	work += node_feed_step(node, now_ns);
	work += node_build_step(node, now_ns);
	work += idle_tags(node, now_ns);
	work += tag_space_step(node->tags, now_ns);
	work += presence_step(node->presence, PRESENCE_STEPS, now_ns);
	work += reclaim(node, now_ns);
	return work;
}

// --- status -------------------------------------------------------------------------------------------

bool node_next_tag(struct node *node, uint32_t *at, uint64_t now_ns, struct node_tag_info *info)
{
	struct channel *channel;

	while ((channel = channel_table_next(node->channels, at)) != NULL) {
		const struct tag *tag = atomic_load_explicit(&channel->tag, memory_order_relaxed);
		uint64_t used_ns;

		if (tag == NULL)
			continue;
		used_ns = atomic_load_explicit(&tag->used_ns, memory_order_relaxed);
		*info = (struct node_tag_info){
			.channel = node_channel_key(channel),
			.fence = tag->fence,
			.smv = tag->smv,
			.members = tag->count,
			.chunks = tag->chunks,
			.pins = atomic_load_explicit(&tag->pins, memory_order_relaxed),
			.idle_ns = used_ns < now_ns ? now_ns - used_ns : 0,
		};
		return true;
	}
	return false;
}
