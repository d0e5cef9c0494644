/* SPDX-License-Identifier: BSD-3-Clause */
// What the limits of a node come to, before anything is made. Pure; any thread.
#include "node_pvt.h"

#include "node_control_pvt.h"

static uint64_t rings(const struct node_params *p)
{
	const uint64_t items = node_ring_items(p->ring_items);
	const uint64_t control = node_request_bytes(p->mtu) + sizeof(struct node_reply);

	return p->workers * items *
	       (control + (p->workers - UINT64_C(1)) * sizeof(struct node_handoff));
}

void node_memory(const struct node_params *p, struct node_memory rows[NODE_MEMORY_ROWS])
{
	const struct presence_limits limits = {.uids = p->uids, .gateways = p->gateways};
	struct delivery_limits delivery = p->delivery;
	uint64_t presence, pushes, open, channels, uids, inflight, messages;

	delivery.gateways = p->gateways;
	uids = presence_memory(&limits, &presence) + (uint64_t)p->uids / 8;
	inflight = delivery_memory(&delivery, &pushes);
	messages = fanout_memory(&p->fanout, p->channels, p->gateways, &channels, &open);
	const struct node_memory all[NODE_MEMORY_ROWS] = {
		{"limits.uids", uids},
		{"limits.channels",
			channel_table_memory(p->channels) +
				((uint64_t)p->channels + 1) * sizeof(struct node_channel) +
				p->workers * channels},
		{"limits.gateways",
			presence + ((uint64_t)p->gateways + 1) * sizeof(struct node_answer) +
				p->workers * (pushes + open)},
		{"limits.senders", p->workers * node_senders_memory(p->senders)},
		{"limits.messages", p->workers * messages},
		{"limits.inflight_pushes", p->workers * inflight},
		{"limits.frames", p->workers * wire_reassembly_memory(p->frames)},
		{"limits.window", p->workers * idem_memory(p->window)},
		{"limits.tag_memory", p->tag_bytes},
		{"workers.ring", rings(p)},
		{"workers.count",
			sizeof(struct node) + (UINT64_C(1) + p->workers) * sizeof(struct counters)},
	};

	memcpy(rows, all, sizeof(all));
}
