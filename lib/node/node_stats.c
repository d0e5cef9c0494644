/* SPDX-License-Identifier: BSD-3-Clause */
// What ctl and metrics show of a node. Control core; workers' values are read relaxed.
#include "node_pvt.h"
#include "wq_monitor.h"

void node_counters(const struct node *node, uint64_t out[CTR_COUNT])
{
	for (int id = 0; id < CTR_COUNT; id++) {
		out[id] = counter_get(node->control_counters, (enum counter)id);
		for (uint32_t w = 0; w < node->params.workers; w++)
			out[id] += counter_get(node->worker[w].counters, (enum counter)id);
	}
}

static uint32_t deepest(const struct node *node, const struct node_worker *w)
{
	const uint32_t out = wq_spsc_depth(&w->to_control);
	uint32_t max = wq_spsc_depth(&w->from_control);

	max = out > max ? out : max;
	for (uint32_t from = 0; from < node->params.workers; from++) {
		const uint32_t depth = wq_spsc_depth(&w->from_worker[from]);

		if (depth > max)
			max = depth;
	}
	return max;
}

void node_worker_stats(const struct node *node, uint32_t worker, struct node_worker_stats *stats)
{
	const struct node_worker *w = &node->worker[worker];

	*stats = (struct node_worker_stats){
		.turns = atomic_load_explicit(&w->turns, memory_order_relaxed),
		.busy_turns = atomic_load_explicit(&w->busy_turns, memory_order_relaxed),
		.turn_max_ns = atomic_load_explicit(&w->turn_max_ns, memory_order_relaxed),
		.ring_depth_max = deepest(node, w),
	};
	fanout_stats(w->fanout, &stats->fanout);
	delivery_stats(w->delivery, &stats->delivery);
}

static void most(uint64_t *most, uint64_t value)
{
	if (value > *most)
		*most = value;
}

uint32_t node_limits(const struct node *node, struct node_limit *limits, uint32_t max)
{
	const struct node_params *p = &node->params;
	uint64_t messages = 0, parked = 0, inflight = 0, senders = 0, frames = 0;
	uint64_t ring = 0, window = 0, early = 0, hits[CTR_COUNT];
	uint64_t channel_most = 0, payload_most = 0, backlog_most = 0;
	struct presence_stats presence;
	uint32_t n = 0;

	node_counters(node, hits);
	presence_stats(node->presence, &presence);
	for (uint32_t w = 0; w < p->workers; w++) {
		struct node_worker_stats stats;
		struct idem_stats idem;

		node_worker_stats(node, w, &stats);
		idem_stats(node->worker[w].idem, &idem);
		window += idem.used;
		early += idem.early;
		most(&channel_most, stats.fanout.parked_channel_most);
		most(&payload_most, stats.fanout.payload_most);
		most(&backlog_most, stats.delivery.backlog_most);
		messages += stats.fanout.messages;
		parked += stats.fanout.parked;
		inflight += stats.delivery.inflight;
		senders += node_senders_count(node->worker[w].senders);
		frames += atomic_load_explicit(
			&node->worker[w].frames_incomplete, memory_order_relaxed);
		most(&ring, stats.ring_depth_max);
	}
	const struct node_limit all[] = {
		{"channels", "channels", "new channels are refused",
			channel_table_count(node->channels), p->channels, hits[CTR_LIMIT_CHANNELS]},
		{"uids", "uids", "announces and tag builds are refused", presence.uids, p->uids,
			hits[CTR_LIMIT_UIDS]},
		{"gateways", "incarnations", "HELLO of a further gateway is refused",
			presence.gateways, p->gateways, hits[CTR_LIMIT_GATEWAYS]},
		{"tag_memory", "bytes", "tag builds are refused", tag_space_bytes(node->tags),
			p->tag_bytes, hits[CTR_LIMIT_TAG_MEMORY]},
		{"messages", "messages", "publishes are answered busy", messages,
			(uint64_t)p->fanout.messages * p->workers, hits[CTR_PUB_BUSY]},
		{"parked", "messages", "publishes are answered busy", parked,
			(uint64_t)p->fanout.parked * p->workers, hits[CTR_PUB_BUSY]},
		{"parked_per_channel", "messages of the fullest channel so far",
			"publishes are answered busy", channel_most, p->fanout.parked_per_channel,
			hits[CTR_LIMIT_PARKED_CHANNEL]},
		{"payload", "bytes of the largest so far", "publishes are answered too_large",
			payload_most, p->fanout.payload_bytes, hits[CTR_PUB_TOO_LARGE]},
		{"window", "message ids of the younger half", "the oldest half is forgotten early",
			window, (uint64_t)p->window * p->workers, early},
		{"backlog", "pushes of the fullest gateway so far", "routes end as overflow",
			backlog_most, p->delivery.backlog, hits[CTR_LIMIT_BACKLOG]},
		{"inflight_pushes", "pushes", "routes end as overflow", inflight,
			(uint64_t)p->delivery.inflight * p->workers, hits[CTR_ROUTE_OVERFLOW]},
		{"senders", "senders", "datagrams of further senders are dropped", senders,
			(uint64_t)p->senders * p->workers, hits[CTR_DROP_SENDERS_FULL]},
		{"frames", "incomplete frames", "segments of further frames are dropped", frames,
			(uint64_t)p->frames * p->workers, hits[CTR_DROP_REASSEMBLY_FULL]},
		{"ring", "items of the fullest",
			"requests, answers and handed datagrams are dropped", ring,
			(uint64_t)node->worker[0].from_control.mask + 1,
			hits[CTR_DROP_HANDOFF_FULL] + hits[CTR_DROP_CONTROL_FULL] +
				hits[CTR_DROP_REPLY_FULL]},
	};

	for (; n < max && n < sizeof(all) / sizeof(all[0]); n++)
		limits[n] = all[n];
	return n;
}

static void add_ring(struct wq_monitor *monitor, const struct wq_spsc *ring, enum wq_label label)
{
	struct wq_sample sample;

	wq_spsc_stats(ring, label, &sample);
	wq_monitor_add(monitor, &sample);
}

void node_queues(const struct node *node, struct wq_monitor *monitor)
{
	for (uint32_t w = 0; w < node->params.workers; w++) {
		const struct node_worker *worker = &node->worker[w];

		add_ring(monitor, &worker->to_control, WQ_L_TO_CONTROL);
		add_ring(monitor, &worker->from_control, WQ_L_FROM_CONTROL);
		for (uint32_t from = 0; from < node->params.workers; from++)
			if (from != w)
				add_ring(monitor, &worker->from_worker[from], WQ_L_HANDOFF);
	}
}

uint32_t node_gateway_srtt_us(const struct node *node, uint32_t gateway)
{
	uint32_t slowest = 0;

	for (uint32_t w = 0; w < node->params.workers; w++) {
		const struct node_worker *worker = &node->worker[w];
		const uint32_t use = atomic_load_explicit(
			&worker->presence.gateway[gateway].use, memory_order_relaxed);
		const uint32_t us = delivery_srtt_us(worker->delivery, gateway, use);

		slowest = us > slowest ? us : slowest;
	}
	return slowest;
}

struct presence *node_presence(struct node *node)
{
	return node->presence;
}
