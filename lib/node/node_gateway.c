/* SPDX-License-Identifier: BSD-3-Clause */
// Clients' requests that are not messages: HELLO, HEARTBEAT, ANNOUNCE, BYE; and the end of gateways.
// Control core; datagrams come checked and copied, answers leave by the worker they came in on.
#include "node_control_pvt.h"

#include <errno.h>

#define MISSED_MAX 3u
#define CHALLENGE_NS (UINT64_C(10) * 1000000000u)  // one is good for this long, at most twice
#define ACK_FIXED_BYTES 32u  // most an announce answer takes before its rejects
#define REJECTS_MAX ((sizeof(((struct node_reply *)0)->body) - ACK_FIXED_BYTES) / 4)

static struct wire_view body_of(const struct node_request *request)
{
	return (struct wire_view){.p = request->body, .len = request->bytes};
}

static struct wire_buf answer_begin(struct node *node)
{
	struct node_reply *r = &node->control->reply;

	return (struct wire_buf){.p = r->body, .cap = sizeof(r->body), .ok = true};
}

static void answer(struct node *node, const struct node_request *to, uint8_t type,
	const struct wire_buf *body) CONTROL_ONLY;
static void answer(
	struct node *node, const struct node_request *to, uint8_t type, const struct wire_buf *body)
{
	struct node_reply *r = &node->control->reply;

	assert(body->ok);
	r->kind = NODE_REP_DATAGRAM;
	r->type = type;
	r->bytes = (uint16_t)body->len;
	r->to = to->from;
	r->receiver_boot = to->header.boot;
	if (!node_control_reply(node, to->worker, r))
		counter_add(own(node), CTR_DROP_REPLY_FULL, 1);
}

// The live incarnation that sent a request, 0 when there is none. Without keys a sender is known by
// nothing but its address, so that must be the one that echoed the cookie.
static uint32_t sender_of(struct node *node, const struct node_request *request) CONTROL_ONLY;
static uint32_t sender_of(struct node *node, const struct node_request *request)
{
	const uint32_t g =
		presence_gateway_find(node->presence, request->header.sender, request->header.boot);
	struct presence_gateway_info info;

	if (g == 0 || node->params.keys.count != 0)
		return g;
	presence_gateway_info(node->presence, g, &info);
	return net_addr_equal(info.addr, request->from) ? g : 0;
}

// --- HELLO --------------------------------------------------------------------------------------------

static enum wire_status register_gateway(struct node *node, const struct node_request *request,
	uint16_t mtu, uint64_t now_ns) CONTROL_ONLY;
static enum wire_status register_gateway(
	struct node *node, const struct node_request *request, uint16_t mtu, uint64_t now_ns)
{
	const struct wire_header *h = &request->header;
	const bool known = presence_gateway_find(node->presence, h->sender, h->boot) != 0;

	if (presence_gateway_up(node->presence, h->sender, h->boot, request->from, mtu, now_ns) <
		0) {
		counter_add(own(node), CTR_LIMIT_GATEWAYS, 1);
		return WIRE_LIMIT;
	}
	if (!known)
		counter_add(own(node), CTR_GATEWAY_UP, 1);
	return WIRE_OK;
}

static uint32_t heartbeat_ms(const struct node_params *p)
{
	const uint64_t ms = p->heartbeat_ns / 1000000u;

	return ms == 0 ? 1 : (uint32_t)ms;
}

// What a gateway must echo now, or (`periods` 1) should have a while ago.
static uint64_t challenge(struct node *node, const struct node_request *request, uint32_t periods,
	uint64_t now_ns) CONTROL_ONLY;
static uint64_t challenge(
	struct node *node, const struct node_request *request, uint32_t periods, uint64_t now_ns)
{
	const struct wire_header *h = &request->header;
	struct net_addr at;
	const uint64_t live = presence_gateway_live(node->presence, h->sender, &at);

	return wire_challenge(node->params.cookie_secret, request->from, h->sender, h->boot, live,
		at, now_ns / CHALLENGE_NS - periods);
}

static bool fresh(struct node *node, const struct node_request *request, uint64_t echo,
	uint64_t now_ns) CONTROL_ONLY;
static bool fresh(
	struct node *node, const struct node_request *request, uint64_t echo, uint64_t now_ns)
{
	return echo == challenge(node, request, 0, now_ns) ||
	       echo == challenge(node, request, 1, now_ns);
}

// A publisher echoes the cookie of its address, which it goes on to use; to a gateway, whose HELLO ends the
// incarnation before, it is given once it has echoed a challenge.
static void hello(
	struct node *node, const struct node_request *request, uint64_t now_ns) CONTROL_ONLY;
static void hello(struct node *node, const struct node_request *request, uint64_t now_ns)
{
	const struct node_params *p = &node->params;
	uint64_t cookie = wire_cookie(
		p->cookie_secret, request->from, request->header.sender, request->header.boot);
	enum wire_status status = WIRE_OK;
	struct wire_buf out = answer_begin(node);
	struct wire_hello m;
	const int bad = wire_get_hello(body_of(request), &m);

	if (bad != 0) {
		counter_add(own(node), (enum counter)bad, 1);
		return;
	}
	if (m.version_min > WIRE_VERSION || m.version_max < WIRE_VERSION)
		status = WIRE_UNSUPPORTED;
	else if (m.role != WIRE_ROLE_GATEWAY)
		status = m.cookie == cookie ? WIRE_OK : WIRE_NEED_HELLO;
	else if (fresh(node, request, m.cookie, now_ns))
		status = register_gateway(node, request, m.mtu, now_ns);
	else
		status = WIRE_NEED_HELLO;
	if (status == WIRE_NEED_HELLO && m.role == WIRE_ROLE_GATEWAY)
		cookie = challenge(node, request, 0, now_ns);
	wire_put_hello_ack(&out, &(struct wire_hello_ack){
					 .status = (uint16_t)status,
					 .cookie = cookie,
					 .node_id = p->id,
					 .node_boot = p->boot,
					 .port_base = p->addr.port,
					 .workers = (uint8_t)p->workers,
					 .version = WIRE_VERSION,
					 .mtu = p->mtu,
					 .payload_max = p->fanout.payload_bytes,
					 .heartbeat_ms = heartbeat_ms(p),
					 .topology_version = node->topology->version,
				 });
	counter_add(own(node), CTR_HELLO, 1);
	answer(node, request, WIRE_HELLO_ACK, &out);
}

// --- HEARTBEAT ----------------------------------------------------------------------------------------

static void heartbeat(
	struct node *node, const struct node_request *request, uint64_t now_ns) CONTROL_ONLY;
static void heartbeat(struct node *node, const struct node_request *request, uint64_t now_ns)
{
	const uint32_t g = sender_of(node, request);
	struct wire_buf out = answer_begin(node);
	struct presence_gateway_info info = {0};
	struct wire_heartbeat m;
	const int bad = wire_get_heartbeat(body_of(request), &m);

	if (bad != 0) {
		counter_add(own(node), (enum counter)bad, 1);
		return;
	}
	if (g != 0) {
		presence_gateway_heard(node->presence, g, now_ns);
		presence_gateway_info(node->presence, g, &info);
	}
	wire_put_heartbeat_ack(&out, &(struct wire_heartbeat_ack){
					     .stamp = m.stamp,
					     .topology_version = node->topology->version,
					     .next_expected = info.next_expected,
					     .sessions = info.sessions,
					     .status = g != 0 ? WIRE_OK : WIRE_UNKNOWN_GATEWAY,
				     });
	counter_add(own(node), CTR_HEARTBEAT, 1);
	answer(node, request, WIRE_HEARTBEAT_ACK, &out);
}

// --- ANNOUNCE -----------------------------------------------------------------------------------------

static enum wire_status open_session(
	struct node *node, uint32_t g, const struct wire_session *s, uint64_t now_ns) CONTROL_ONLY;
static enum wire_status open_session(
	struct node *node, uint32_t g, const struct wire_session *s, uint64_t now_ns)
{
	switch (presence_session_open(node->presence, g, s->slot, s->gen, s->uid, now_ns)) {
	case 0:
		counter_add(own(node), CTR_ANNOUNCE, 1);
		return WIRE_OK;
	case -EMLINK:
		counter_add(own(node), CTR_ANNOUNCE_LIMIT, 1);
		return WIRE_TOO_MANY_SESSIONS;
	case -ENOSPC:
		counter_add(own(node), CTR_ANNOUNCE_LIMIT, 1);
		return WIRE_LIMIT;
	case -EEXIST:
		return WIRE_STALE;
	default:
		return WIRE_BAD_REQUEST;
	}
}

static enum wire_status close_session(
	struct node *node, uint32_t g, const struct wire_session *s, uint64_t now_ns) CONTROL_ONLY;
static enum wire_status close_session(
	struct node *node, uint32_t g, const struct wire_session *s, uint64_t now_ns)
{
	if (presence_session_close(node->presence, g, s->slot, s->gen, s->uid, now_ns) != 0)
		return WIRE_STALE;
	counter_add(own(node), CTR_WITHDRAW, 1);
	return WIRE_OK;
}

// Applies the entries of a frame. Returns: entries refused; the first REJECTS_MAX are listed.
static uint16_t apply_entries(struct node *node, uint32_t g, struct wire_view entries,
	uint16_t list[REJECTS_MAX][2], uint64_t now_ns) CONTROL_ONLY;
static uint16_t apply_entries(struct node *node, uint32_t g, struct wire_view entries,
	uint16_t list[REJECTS_MAX][2], uint64_t now_ns)
{
	struct wire_session s;
	uint16_t rejected = 0;

	for (uint16_t at = 0; wire_announce_next(&entries, &s); at++) {
		const enum wire_status status = s.op == WIRE_SESSION_OPEN
							? open_session(node, g, &s, now_ns)
							: close_session(node, g, &s, now_ns);

		if (status == WIRE_OK)
			continue;
		if (rejected < REJECTS_MAX) {
			list[rejected][0] = at;
			list[rejected][1] = (uint16_t)status;
		}
		rejected++;
	}
	return rejected;
}

static void put_announce_ack(struct node *node, struct wire_buf *out, uint32_t g,
	uint64_t stream_seq, enum wire_status status, uint16_t rejected,
	uint16_t list[REJECTS_MAX][2]) CONTROL_ONLY;
static void put_announce_ack(struct node *node, struct wire_buf *out, uint32_t g,
	uint64_t stream_seq, enum wire_status status, uint16_t rejected,
	uint16_t list[REJECTS_MAX][2])
{
	const uint32_t listed = rejected < REJECTS_MAX ? rejected : REJECTS_MAX;
	struct presence_gateway_info info = {0};

	if (g != 0)
		presence_gateway_info(node->presence, g, &info);
	wire_put_announce_ack(
		out, &(struct wire_announce_ack){
			     .stream_seq = stream_seq,
			     .next_expected = info.next_expected,
			     .status = (uint16_t)status,
			     .rejected = rejected,
			     .rejects = {.p = (const uint8_t *)list, .len = listed * 4},
		     });
}

// The answer to the newest frame is kept: whoever missed it must still learn what was refused.
static void keep_answer(
	struct node *node, uint32_t g, uint64_t stream_seq, const struct wire_buf *out)
{
	struct node_answer *a = &node->control->answer[g];
	struct presence_view view;

	presence_view(node->presence, &view);
	a->use = atomic_load_explicit(&view.gateway[g].use, memory_order_relaxed);
	a->stream_seq = stream_seq;
	a->bytes = (uint16_t)out->len;
	memcpy(a->body, out->p, out->len);
}

static bool kept_answer(struct node *node, uint32_t g, uint64_t stream_seq, struct wire_buf *out)
{
	const struct node_answer *a = &node->control->answer[g];
	struct presence_view view;

	presence_view(node->presence, &view);
	if (a->stream_seq != stream_seq ||
		a->use != atomic_load_explicit(&view.gateway[g].use, memory_order_relaxed))
		return false;
	memcpy(out->p, a->body, a->bytes);
	out->len = a->bytes;
	return true;
}

static void announce(
	struct node *node, const struct node_request *request, uint64_t now_ns) CONTROL_ONLY;
static void announce(struct node *node, const struct node_request *request, uint64_t now_ns)
{
	const uint32_t g = sender_of(node, request);
	struct wire_buf out = answer_begin(node);
	uint16_t list[REJECTS_MAX][2], rejected = 0;
	enum wire_status status = WIRE_OK;
	struct wire_announce m;
	const int bad = wire_get_announce(body_of(request), &m);
	int take = 0;

	if (bad != 0) {
		counter_add(own(node), (enum counter)bad, 1);
		return;
	}
	if (g == 0) {
		counter_add(own(node), CTR_ANNOUNCE_UNKNOWN, 1);
		status = WIRE_UNKNOWN_GATEWAY;
	} else {
		presence_gateway_heard(node->presence, g, now_ns);
		take = presence_stream_take(node->presence, g, m.stream_seq);
	}
	if (take < 0) {
		counter_add(own(node), CTR_ANNOUNCE_GAP, 1);
		status = WIRE_OUT_OF_ORDER;
	}
	if (take > 0)
		rejected = apply_entries(node, g, m.entries, list, now_ns);
	if (g == 0 || take != 0 || !kept_answer(node, g, m.stream_seq, &out))
		put_announce_ack(node, &out, g, m.stream_seq, status, rejected, list);
	if (take > 0)
		keep_answer(node, g, m.stream_seq, &out);
	answer(node, request, WIRE_ANNOUNCE_ACK, &out);
}

// --- ends ---------------------------------------------------------------------------------------------

void node_gateway_datagram(struct node *node, const struct node_request *request, uint64_t now_ns)
{
	uint32_t g;

	switch (request->header.type) {
	case WIRE_HELLO:
		hello(node, request, now_ns);
		return;
	case WIRE_HEARTBEAT:
		heartbeat(node, request, now_ns);
		return;
	case WIRE_ANNOUNCE:
		announce(node, request, now_ns);
		return;
	case WIRE_BYE:
		g = sender_of(node, request);
		if (request->bytes != 0)
			counter_add(own(node), CTR_DROP_LENGTH, 1);
		else if (g != 0)
			presence_gateway_down(node->presence, g, now_ns);
		return;
	default:
		counter_add(own(node), CTR_DROP_TYPE, 1);
	}
}

// Tells every worker of the oldest incarnation that ended. Returns: true when all know.
static bool tell(struct node *node, uint32_t g, uint32_t use) CONTROL_ONLY;
static bool tell(struct node *node, uint32_t g, uint32_t use)
{
	struct node_control *c = node->control;
	const struct node_reply reply = {.kind = NODE_REP_GATEWAY_DOWN, .index = g, .use = use};

	for (uint32_t w = 0; w < node->params.workers; w++)
		if ((c->told & 1u << w) == 0 && node_control_reply(node, w, &reply))
			c->told |= 1u << w;
	return c->told == (1u << node->params.workers) - 1;
}

uint32_t node_gateway_step(struct node *node, bool expire, uint64_t now_ns)
{
	const uint64_t patience_ns = MISSED_MAX * node->params.heartbeat_ns;
	uint32_t work = 0, g, use;

	if (expire && now_ns > patience_ns)
		work += presence_gateway_expire(node->presence, now_ns - patience_ns, now_ns);
	// A full ring keeps the rest waiting; an index is not given out again before its end is told.
	while ((g = presence_gateway_ended(node->presence, &use)) != 0 && tell(node, g, use)) {
		node->control->told = 0;
		presence_gateway_ended_done(node->presence, g);
		counter_add(own(node), CTR_GATEWAY_DOWN, 1);
		work++;
	}
	return work;
}
