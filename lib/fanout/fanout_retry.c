/* SPDX-License-Identifier: BSD-3-Clause */
// Routes that delivery gives back for another try. Those of one message, gateway and attempt that come in
// a row become one record, flagged late, in the gateway's open push or in a frame of its own. Worker.
#include "fanout_pvt.h"

#include <assert.h>

// The record being collected; its bytes stand in `body` behind room for the push's fixed part.
struct group {
	struct delivery_span span;
	uint8_t *body;
	uint32_t gateway;
	uint32_t bytes;  // of the body so far
	uint32_t most;  // routes it may take
};

// Sends a group, for which there are buffers.
static void send_group(struct fanout *f, const struct group *g) WORKER_ONLY;
static void send_group(struct fanout *f, const struct group *g)
{
	struct wire_buf out = {.p = g->body, .cap = WIRE_PUSH_BYTES, .ok = true};
	const struct wire_push head = {
		.gateway_boot = f->io.presence->gateway[g->gateway].boot,
		.records = 1,
		.routes = g->span.count,
		.need_ack = g->span.ack != WIRE_ACK_NONE,
	};
	bool sent = true;

	if (g->span.count == 0)
		return;
	memcpy(g->body + WIRE_PUSH_BYTES + WIRE_RECORD_ROUTES_OFFSET, &g->span.count,
		sizeof(g->span.count));
	if (g->bytes <= fanout_body_room(f, g->gateway)) {
		sent = fanout_append_record(f, g->gateway, &g->span, g->body + WIRE_PUSH_BYTES,
			g->bytes - WIRE_PUSH_BYTES);
	} else {
		wire_put_push(&out, &head);
		sent = fanout_send_frame(f, g->gateway, &g->span, g->body, g->bytes);
	}
	if (!sent)
		delivery_end_retries(f->io.delivery, g->gateway, g->span.message,
			g->body + g->bytes - g->span.count * WIRE_ROUTE_BYTES, CTR_ROUTE_NO_BUFFER,
			g->span.count);
}

static bool same_group(const struct group *g, const struct delivery_retry *r)
{
	return g->span.count != 0 && g->span.count < g->most && g->span.message == r->message &&
	       g->span.attempt == r->attempt && g->gateway == route_gateway(r->route);
}

// Starts a group with the names and payload of the route's record, which is valid only now.
static void start_group(struct fanout *f, struct group *g, const struct delivery_retry *r)
{
	struct wire_buf out = {
		.p = g->body,
		.len = WIRE_PUSH_BYTES,
		.cap = FRAME_BYTES_MAX,
		.ok = true,
	};
	struct wire_record record = r->record;
	uint32_t room;

	record.flags |= WIRE_RECORD_LATE;
	if (r->ack == WIRE_ACK_CLIENT)
		record.flags |= WIRE_RECORD_RECEIPT;
	record.routes = 0;
	wire_put_record(&out, &record);
	assert(out.ok);
	*g = (struct group){
		.span =
			{
				.message = r->message,
				.ack = r->ack,
				.attempt = r->attempt,
				.deadline_ns = r->deadline_ns,
			},
		.body = g->body,
		.gateway = route_gateway(r->route),
		.bytes = out.len,
	};
	room = fanout_body_room(f, g->gateway);
	g->most = FRAME_ROUTES_MAX;
	if (out.len + WIRE_ROUTE_BYTES <= room) {
		g->most = (room - out.len) / WIRE_ROUTE_BYTES;
		if (g->most > FANOUT_PUSH_ROUTES)
			g->most = FANOUT_PUSH_ROUTES;
	}
}

// Datagrams the group may need in all, so that sending it cannot fail.
static uint32_t dgrams_of(const struct fanout *f, const struct group *g)
{
	const uint32_t room = fanout_body_room(f, g->gateway);
	const uint32_t most = g->bytes + g->most * WIRE_ROUTE_BYTES;

	return most <= room ? 1 : most / (room - WIRE_SEGMENT_BYTES) + 1;
}

uint32_t fanout_retry(struct fanout *f, uint32_t max)
{
	struct group group[2] = {{.body = f->scratch[0]}, {.body = f->scratch[1]}};
	struct delivery_retry retry;
	struct group *g = &group[0];
	uint32_t work = 0;

	while (work < max && fanout_dgrams_ready(f, 1) &&
		delivery_next_retry(f->io.delivery, f->now_ns, &retry)) {
		const uint64_t route = fanout_route_entry(retry.route);

		work++;
		if (!same_group(g, &retry)) {
			// The new record points into memory of delivery's and is copied before the old group
			// is sent, which may take that memory away.
			struct group *next = g == &group[0] ? &group[1] : &group[0];

			start_group(f, next, &retry);
			send_group(f, g);
			g = next;
			if (!fanout_dgrams_ready(f, dgrams_of(f, g))) {
				delivery_end_retries(f->io.delivery, g->gateway, retry.message,
					(const uint8_t *)&route, CTR_ROUTE_NO_BUFFER, 1);
				break;
			}
		}
		memcpy(g->body + g->bytes, &route, sizeof(route));
		g->bytes += WIRE_ROUTE_BYTES;
		g->span.count++;
	}
	send_group(f, g);
	return work;
}
