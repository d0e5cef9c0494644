/* SPDX-License-Identifier: BSD-3-Clause */
// Publishes in segments: who may have how many incomplete frames, and what becomes of a complete one. Worker.
//
// Frames are the scarcest thing a stranger can ask for. Each owner has a quarter of them at most: a sender
// when it is authenticated, else an IP address that echoed a cookie; all who did not are one owner. The
// cookie stands in the first segment, so that a sender proves itself with it before its frame is complete.
#include "node_pvt.h"

// --- a frame of another worker ------------------------------------------------------------------------

// One part of a frame as a datagram of its own, checked already.
static bool hand_part(struct node_worker *w, uint32_t to, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *part) WORKER_ONLY;
static bool hand_part(struct node_worker *w, uint32_t to, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *part)
{
	struct dgram *d = node_tx_take(w);
	struct wire_header plain = *header;
	struct wire_buf out;

	if (d == NULL)
		return false;
	out = (struct wire_buf){
		.p = d->data + WIRE_HEADER_BYTES, .cap = d->room - WIRE_HEADER_BYTES, .ok = true};
	wire_put_segment(&out, part);
	assert(out.ok);
	d->len = (uint16_t)(WIRE_HEADER_BYTES + out.len);
	plain.flags = 0;
	plain.key_id = 0;
	plain.bytes = d->len;
	wire_put_header(d->data, &plain);
	d->peer = from;
	node_tx_hand_over(w, to, d, true);
	return true;
}

// Parts as large as a datagram of this node takes. What finds no room is lost, as in the network: the
// publisher sends the frame again.
static void hand_over(struct node_worker *w, uint32_t to, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *segment,
	struct wire_view body) WORKER_ONLY;
static void hand_over(struct node_worker *w, uint32_t to, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *segment, struct wire_view body)
{
	const uint32_t most = (uint32_t)w->node->params.mtu - WIRE_UDP_OVERHEAD -
			      WIRE_HEADER_BYTES - WIRE_SEGMENT_BYTES;
	const uint32_t size = body.len > most ? most : (body.len + 1) / 2;
	struct wire_segment part = {
		.frame_id = segment->frame_id,
		.type = segment->type,
		.count = (uint16_t)((body.len + size - 1) / size),
		.total = body.len,
	};

	for (uint32_t at = 0; at < body.len; at += size, part.index++) {
		const uint32_t left = body.len - at;

		part.offset = at;
		part.part = (struct wire_view){.p = body.p + at, .len = left < size ? left : size};
		if (!hand_part(w, to, from, header, &part))
			return;
	}
}

// --- complete and repeated frames ---------------------------------------------------------------------

// A publish put together from segments. The frame's memory is this worker's: for a channel of another worker
// it is cut into segments again. `sender` is NULL when another worker checked it and did so.
static void publish_frame(struct node_worker *w, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *segment, struct wire_view body,
	uint32_t handle, struct node_sender *sender) WORKER_ONLY;
static void publish_frame(struct node_worker *w, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *segment, struct wire_view body,
	uint32_t handle, struct node_sender *sender)
{
	struct fanout_publish *p = &w->burst[w->burst_count];
	const int bad = wire_get_publish(body, &p->m);
	const uint32_t owner =
		bad != 0 ? 0 : channel_key_worker(&p->m.channel, w->node->params.workers);

	p->from = from;
	p->publisher_boot = header->boot;
	p->body = (struct fanout_body){.frame = handle};
	if (bad != 0) {
		counter_add(w->counters, (enum counter)bad, 1);
	} else if (sender != NULL && !node_rx_proven(w, sender, header, from, p->m.cookie)) {
		node_rx_refuse(w, p, CTR_PUB_NEED_HELLO, WIRE_NEED_HELLO);
	} else if (owner != w->index) {
		hand_over(w, owner, from, header, segment, body);
		wire_reassembly_forget(w->frames, handle);
		return;
	} else {
		if (++w->burst_count == BURST)
			node_rx_admit(w);
		return;
	}
	wire_reassembly_release(w->frames, handle);
}

// A segment of a frame that was complete before: its publisher missed the outcome. One part is answered.
static void repeat_frame(struct node_worker *w, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *segment,
	struct node_sender *sender) WORKER_ONLY;
static void repeat_frame(struct node_worker *w, struct net_addr from,
	const struct wire_header *header, const struct wire_segment *segment,
	struct node_sender *sender)
{
	struct fanout_publish *p = &w->burst[w->burst_count];

	if (segment->index != 0 || wire_get_publish_part(segment->part, &p->m) != 0)
		return;
	if (sender != NULL && !node_rx_proven(w, sender, header, from, p->m.cookie))
		return;
	p->from = from;
	p->publisher_boot = header->boot;
	fanout_repeat(w->fanout, p);
}

// --- segments -----------------------------------------------------------------------------------------

#define OWNER_UNPROVEN UINT64_C(0)
#define OWNER_ADDRESS (UINT64_C(1) << 32)

static uint64_t owner_of(struct node_worker *w, const struct dgram *d,
	const struct wire_header *header, const struct wire_segment *m,
	struct node_sender *sender) WORKER_ONLY;
static uint64_t owner_of(struct node_worker *w, const struct dgram *d,
	const struct wire_header *header, const struct wire_segment *m, struct node_sender *sender)
{
	struct wire_publish publish;

	if (w->keys.count != 0)
		return header->sender;
	if (sender == NULL || (sender->addr.port != 0 && net_addr_equal(sender->addr, d->peer)))
		return OWNER_ADDRESS | d->peer.ip;
	if (m->index == 0 && wire_get_publish_part(m->part, &publish) == 0 &&
		node_rx_proven(w, sender, header, d->peer, publish.cookie))
		return OWNER_ADDRESS | d->peer.ip;
	return OWNER_UNPROVEN;
}

int node_rx_segment(struct node_worker *w, const struct dgram *d, const struct wire_header *header,
	struct wire_view body, struct node_sender *sender)
{
	struct wire_segment m;
	struct wire_view frame;
	uint32_t handle;
	uint64_t owner;
	const int bad = wire_get_segment(body, &m);

	if (bad != 0)
		return bad;
	if (m.type != WIRE_PUBLISH)
		return CTR_DROP_TYPE;
	owner = owner_of(w, d, header, &m, sender);
	switch (wire_reassembly_add_owned(
		w->frames, owner, header, &m, w->now_ns, &frame, &handle)) {
	case WIRE_PART_MORE:
		return 0;
	case WIRE_PART_COMPLETE:
		publish_frame(w, d->peer, header, &m, frame, handle, sender);
		return 0;
	case WIRE_PART_REPEATED:
		repeat_frame(w, d->peer, header, &m, sender);
		return 0;
	case WIRE_PART_BAD:
		return CTR_DROP_SEGMENT;
	case WIRE_PART_SHARE:
		return CTR_DROP_REASSEMBLY_SHARE;
	default:
		return CTR_DROP_REASSEMBLY_FULL;
	}
}
