/* SPDX-License-Identifier: BSD-3-Clause */
// Makes and wires the objects of a node; owns all of them. Before and after the threads.
#include "node_pvt.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS 10u  // of the one-node topology
#define FRAME_TIMEOUT_NS \
	(UINT64_C(2) * 1000000000u)  // incomplete frames: beyond any resend of a client
#define RING_ITEMS_MAX (1u << 20)
#define SENDER_SHARE_MIN 16u

static const char *problem(const struct node_params *p)
{
	if (p->id == 0 || p->boot == 0)
		return "node id and boot id must not be 0";
	if (p->workers == 0 || p->workers > WORKERS_MAX)
		return "workers must be 1..16";
	if (p->addr.port == 0 || (uint32_t)p->addr.port + p->workers > 65536)
		return "the workers' UDP ports must lie in 1..65535";
	if (p->mtu < MTU_MIN || p->mtu > MTU_MAX)
		return "mtu must be 576..9000";
	if (p->channels == 0 || p->uids == 0 || p->gateways == 0 || p->senders == 0 ||
		p->frames == 0)
		return "a table limit is 0";
	if (p->gateways >= GATEWAYS_MAX)
		return "gateways must be below 4096";
	if (p->ring_items < 2 || p->ring_items > RING_ITEMS_MAX)
		return "ring items must be 2..1048576";
	if (p->window < p->fanout.messages)
		return "the idempotence window must hold every unfinished message";
	if (p->window_age_ns < p->fanout.deadline_max_ns)
		return "the idempotence window must outlive the longest deadline";
	if (p->dgram == NULL || p->source_ops == NULL)
		return "no port or no source";
	for (uint32_t w = 0; w < p->workers; w++)
		if (p->queue[w] == NULL)
			return "a worker has no queue";
	return NULL;
}

static void *zeroed(size_t bytes)
{
	const size_t rounded = (bytes + 63) & ~(size_t)63;
	void *p = aligned_alloc(64, rounded);

	if (p != NULL)
		memset(p, 0, rounded);
	return p;
}

// --- workers ------------------------------------------------------------------------------------------

static int create_rings(struct node_worker *w)
{
	const struct node_params *p = &w->node->params;
	const uint32_t items = node_ring_items(p->ring_items);
	int bad = wq_spsc_init(&w->to_control, items, node_request_bytes(p->mtu));

	if (bad == 0)
		bad = wq_spsc_init(&w->from_control, items, sizeof(struct node_reply));
	for (uint32_t from = 0; bad == 0 && from < p->workers; from++)
		if (from != w->index)
			bad = wq_spsc_init(
				&w->from_worker[from], items, sizeof(struct node_handoff));
	return bad;
}

static void frame_done(void *worker, uint32_t frame)
{
	const struct node_worker *w = worker;

	wire_reassembly_release(w->frames, frame);
}

static void route_ended(
	void *worker, uint32_t message, enum counter how, uint32_t count) WORKER_ONLY;
static void route_ended(void *worker, uint32_t message, enum counter how, uint32_t count)
{
	const struct node_worker *w = worker;

	fanout_on_end(w->fanout, message, how, count);
}

static void spans_ended(void *worker, const struct delivery_span *span, uint32_t spans,
	enum counter how) WORKER_ONLY;
static void spans_ended(
	void *worker, const struct delivery_span *span, uint32_t spans, enum counter how)
{
	const struct node_worker *w = worker;

	fanout_on_spans(w->fanout, span, spans, how);
}

static int create_delivery(struct node_worker *w)
{
	const struct node_params *p = &w->node->params;
	struct delivery_limits limits = p->delivery;
	const struct delivery_io io = {
		.dgram = &w->node->worker_ops,
		.queue = w,
		.lane = &w->lane,
		.presence = &w->presence,
		.counters = w->counters,
		.on_end = route_ended,
		.on_spans = spans_ended,
		.ctx = w,
	};

	limits.gateways = p->gateways;
	limits.seed += w->index;
	w->delivery = delivery_create(&limits, &io);
	return w->delivery == NULL ? -ENOMEM : 0;
}

static int create_fanout(struct node_worker *w)
{
	const struct node_params *p = &w->node->params;
	struct fanout_limits limits = p->fanout;
	const struct fanout_io io = {
		.dgram = &w->node->worker_ops,
		.queue = w,
		.channels = w->node->channels,
		.presence = &w->presence,
		.delivery = w->delivery,
		.idem = w->idem,
		.lane = &w->lane,
		.counters = w->counters,
		.local_port = w->port,
		.ctx = w,
		.want_tag = node_tx_want_tag,
		.outcome = node_tx_outcome,
		.frame_done = frame_done,
	};

	limits.mtu = p->mtu;
	w->fanout = fanout_create(&limits, &io);
	return w->fanout == NULL ? -ENOMEM : 0;
}

// Of the table of senders, for one IP address. With keys nobody makes senders up.
static uint32_t sender_share(const struct node_params *p)
{
	uint32_t share = p->senders / 8;

	if (p->keys.count != 0)
		return p->senders;
	if (share < SENDER_SHARE_MIN)
		share = SENDER_SHARE_MIN;
	if (share > p->senders / 2)
		share = p->senders / 2;
	return share != 0 ? share : 1;
}

static int create_worker(struct node *node, uint16_t index)
{
	const struct node_params *p = &node->params;
	struct node_worker *w = &node->worker[index];
	int bad;

	w->node = node;
	w->index = index;
	w->queue = p->queue[index];
	w->port = (uint16_t)(p->addr.port + index);
	w->keys = p->keys;
	w->lane = (struct wire_lane){
		.sender = p->id,
		.boot = p->boot,
		.lane = (uint8_t)index,
		.keys = &w->keys,
	};
	presence_view(node->presence, &w->presence);
	w->counters =
		p->counters[index] != NULL ? p->counters[index] : zeroed(sizeof(*w->counters));
	w->senders = node_senders_create(p->senders, sender_share(p));
	w->frames = wire_reassembly_create(p->frames, FRAME_TIMEOUT_NS);
	w->idem = idem_create(p->window, p->window_age_ns);
	if (w->counters == NULL || w->senders == NULL || w->frames == NULL || w->idem == NULL)
		return -ENOMEM;
	wire_reassembly_share(w->frames, p->frames >= 4 ? p->frames / 4 : 1);
	bad = create_rings(w);
	if (bad == 0)
		bad = create_delivery(w);
	return bad == 0 ? create_fanout(w) : bad;
}

static void free_queued(struct node_worker *w)
{
	const struct dgram_ops *ops = w->node->params.dgram;

	for (uint32_t from = 0; from < w->node->params.workers; from++) {
		const struct node_handoff *item;

		if (w->from_worker[from].items == NULL)
			continue;
		while ((item = wq_spsc_peek(&w->from_worker[from])) != NULL) {
			struct dgram *d = item->dgram;

			ops->free(w->queue, &d, 1);
			wq_spsc_drop(&w->from_worker[from]);
		}
	}
	for (uint32_t i = 0; i < w->burst_count; i++)
		if (w->burst[i].body.dgram != NULL)
			ops->free(w->queue, &w->burst[i].body.dgram, 1);
	for (uint32_t i = 0; i < w->spares; i++)
		ops->free(w->queue, &w->spare[i], 1);
	for (uint32_t i = 0; i < w->out_count; i++)
		ops->free(w->queue, &w->out[i], 1);
}

static void destroy_worker(struct node_worker *w)
{
	if (w->node == NULL)
		return;
	free_queued(w);
	fanout_destroy(w->fanout);
	if (w->delivery != NULL)
		delivery_destroy(w->delivery);
	if (w->idem != NULL)
		idem_destroy(w->idem);
	wire_reassembly_destroy(w->frames);
	node_senders_destroy(w->senders);
	wq_spsc_fini(&w->to_control);
	wq_spsc_fini(&w->from_control);
	for (uint32_t from = 0; from < WORKERS_MAX; from++)
		wq_spsc_fini(&w->from_worker[from]);
	if (w->counters != w->node->params.counters[w->index])
		free(w->counters);
}

// --- the node -----------------------------------------------------------------------------------------

static int create_tables(struct node *node)
{
	const struct node_params *p = &node->params;
	struct node_settings settings;

	node_settings_of(p, &settings);
	const struct presence_limits limits = {
		.uids = p->uids,
		.gateways = p->gateways,
		.sessions_per_gateway = 1u << SESSION_SLOT_BITS,
		.uid_quarantine_ns = node_quarantine_ns(&settings),
	};

	rcu_retire_init(&node->retire);
	node->topology = zeroed(sizeof(*node->topology));
	node->control_counters = zeroed(sizeof(*node->control_counters));
	if (node->topology == NULL || node->control_counters == NULL)
		return -ENOMEM;
	if (topology_init(node->topology, HASH_SLOTS_DEFAULT, SLOTS, p->id) != 0)
		return -EINVAL;
	node->presence = presence_create(&limits, &node->retire);
	node->channels = channel_table_create(p->channels, p->workers, &node->retire);
	if (node->presence == NULL || node->channels == NULL)
		return -ENOMEM;
	node->tags = tag_space_create(p->tag_bytes, p->tag_steps, node->presence, &node->retire);
	return node->tags == NULL ? -ENOMEM : 0;
}

int node_create(const struct node_params *params, struct node **node, const char **why)
{
	struct node *n;
	int bad;

	*why = problem(params);
	if (*why != NULL)
		return -EINVAL;
	*why = "not enough memory for the limits asked for";
	n = zeroed(sizeof(*n));
	if (n == NULL)
		return -ENOMEM;
	n->params = *params;
	node_tx_ops(params->dgram, &n->worker_ops);
	bad = create_tables(n);
	for (uint16_t w = 0; bad == 0 && w < params->workers; w++)
		bad = create_worker(n, w);
	if (bad == 0)
		bad = node_control_create(n);
	if (bad != 0) {
		node_destroy(n);
		return bad;
	}
	*node = n;
	return 0;
}

void node_destroy(struct node *node)
{
	if (node == NULL)
		return;
	node_control_destroy(node);
	for (uint32_t w = 0; w < WORKERS_MAX; w++)
		destroy_worker(&node->worker[w]);
	rcu_reclaim(&node->retire);
	if (node->tags != NULL)
		tag_space_destroy(node->tags);
	if (node->channels != NULL)
		channel_table_destroy(node->channels);
	if (node->presence != NULL)
		presence_destroy(node->presence);
	free(node->topology);
	free(node->control_counters);
	free(node);
}

struct node_worker *node_worker_of(struct node *node, uint32_t worker)
{
	return &node->worker[worker];
}
