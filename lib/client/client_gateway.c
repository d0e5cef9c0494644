/* SPDX-License-Identifier: BSD-3-Clause */
// Sessions of a gateway and the stream that announces them to the node. Runs on the client's thread.
//
// A session lives in a slot with a generation. A slot with news for the node stands in the dirty queue
// once, whatever happened to it, so that the queue is bounded by the slots. A slot is used again only
// when its close has entered the stream (or needed not to). Frames are numbered, kept until confirmed,
// and sent again from the first unconfirmed one (go-back-N).
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "client_pvt.h"

#define RESEND_FIRST_NS (100 * NS_PER_MS)
#define RESEND_MAX_NS (2 * NS_PER_S)
#define GO_BACK_MIN_NS (10 * NS_PER_MS)  // between two gap answers that are followed
#define REFUSED_NS (1 * NS_PER_S)  // until a refused session is announced again
#define DIFFERS_MAX 3u  // heartbeats in a row with another count at the node
#define SLOT_MAX ((1u << SESSION_SLOT_BITS) - 1)
#define GEN_MAX ((1u << SESSION_GEN_BITS) - 1)
#define HANDLE_GEN_SHIFT SESSION_SLOT_BITS  // a handle: low bits of the generation above the slot

// --- slots --------------------------------------------------------------------------------------------

static struct client_session *slot_at(const struct client_gateway *g, uint32_t slot)
{
	return &g->chunk[slot / CLIENT_SESSION_CHUNK][slot % CLIENT_SESSION_CHUNK];
}

uint32_t client_session_handle(uint32_t slot, uint32_t gen)
{
	return gen << HANDLE_GEN_SHIFT | slot;
}

struct client_session *client_session_at(
	const struct client_core *core, uint32_t slot, uint32_t gen)
{
	const struct client_gateway *g = core->gateway;
	struct client_session *s;

	if (slot == 0 || slot >= g->slots)
		return NULL;
	s = slot_at(g, slot);
	return s->state == SESSION_OPEN && s->gen == gen ? s : NULL;
}

struct client_session *client_session_of(
	const struct client_core *core, uint32_t session, uint32_t *slot)
{
	const struct client_gateway *g = core->gateway;
	const uint32_t at = session & SLOT_MAX;
	struct client_session *s;

	if (g == NULL || at == 0 || at >= g->slots)
		return NULL;
	s = slot_at(g, at);
	if (s->state != SESSION_OPEN || client_session_handle(at, s->gen) != session)
		return NULL;
	if (slot != NULL)
		*slot = at;
	return s;
}

// Room in the dirty queue for every slot there is.
static int dirty_grow(struct client_gateway *g)
{
	const uint32_t size = g->dirty == NULL ? 1024 : (g->dirty_mask + 1) * 2;
	uint32_t *dirty = calloc(size, sizeof(*dirty));

	if (dirty == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->dirty_count; i++)
		dirty[i] = g->dirty[(g->dirty_head + i) & g->dirty_mask];
	free(g->dirty);
	g->dirty = dirty;
	g->dirty_head = 0;
	g->dirty_mask = size - 1;
	return 0;
}

static void dirty_put(struct client_gateway *g, uint32_t slot)
{
	struct client_session *s = slot_at(g, slot);

	if (s->queued)
		return;
	assert(g->dirty_count <= g->dirty_mask);
	g->dirty[(g->dirty_head + g->dirty_count++) & g->dirty_mask] = slot;
	s->queued = true;
}

// Returns: a slot that is free, 0 when there is none, with *rc saying why.
static uint32_t slot_take(struct client_gateway *g, int *rc)
{
	struct client_session **chunk;
	uint32_t slot = g->free;

	if (slot != 0) {
		g->free = slot_at(g, slot)->next_free;
		return slot;
	}
	*rc = -ENOSPC;
	if (g->slots > SLOT_MAX)
		return 0;
	*rc = -ENOMEM;
	chunk = &g->chunk[g->slots / CLIENT_SESSION_CHUNK];
	if (*chunk == NULL)
		*chunk = calloc(CLIENT_SESSION_CHUNK, sizeof(**chunk));
	if (*chunk == NULL || (g->slots > g->dirty_mask && dirty_grow(g) != 0))
		return 0;
	return g->slots++;
}

static void slot_release(struct client_gateway *g, uint32_t slot)
{
	struct client_session *s = slot_at(g, slot);

	free(s->uid);
	s->uid = NULL;
	s->user = NULL;
	s->state = SESSION_FREE;
	s->known = false;
	s->refused = false;
	if (s->gen == GEN_MAX)
		return;  // all generations used: never again
	s->next_free = g->free;
	g->free = slot;
}

int client_gateway_init(struct client_core *core)
{
	struct client_gateway *g = calloc(1, sizeof(*g));

	if (g == NULL)
		return -ENOMEM;
	core->gateway = g;
	g->slots = 1;
	g->refused_ns = CLIENT_NEVER;
	for (uint32_t i = 0; i < CLIENT_ANNOUNCE_WINDOW; i++) {
		g->frame[i].body = malloc(MTU_MAX);
		if (g->frame[i].body == NULL)
			return -ENOMEM;
	}
	return dirty_grow(g);
}

void client_gateway_fini(struct client_core *core)
{
	struct client_gateway *g = core->gateway;

	if (g == NULL)
		return;
	for (uint32_t slot = 1; slot < g->slots; slot++)
		free(slot_at(g, slot)->uid);
	for (uint32_t i = 0; i < CLIENT_SESSION_CHUNKS; i++)
		free(g->chunk[i]);
	for (uint32_t i = 0; i < CLIENT_ANNOUNCE_WINDOW; i++)
		free(g->frame[i].body);
	free(g->dirty);
	free(g);
	core->gateway = NULL;
}

int client_core_session_open(
	struct client_core *core, struct tagcast_id uid, void *user, uint32_t *session)
{
	struct client_gateway *g = core->gateway;
	struct client_session *s;
	uint8_t *bytes;
	uint32_t slot;
	int rc = 0;

	if (g == NULL)
		return -EPERM;
	if (uid.bytes == NULL || uid.len < 1 || uid.len > ID_LEN_MAX)
		return -EINVAL;
	bytes = malloc(uid.len);
	if (bytes == NULL)
		return -ENOMEM;
	slot = slot_take(g, &rc);
	if (slot == 0) {
		free(bytes);
		return rc;
	}
	memcpy(bytes, uid.bytes, uid.len);
	s = slot_at(g, slot);
	s->uid = bytes;
	s->uid_len = (uint8_t)uid.len;
	s->user = user;
	s->state = SESSION_OPEN;
	s->gen++;
	g->open++;
	dirty_put(g, slot);
	*session = client_session_handle(slot, s->gen);
	return 0;
}

int client_core_session_close(struct client_core *core, uint32_t session)
{
	struct client_gateway *g = core->gateway;
	struct client_session *s;
	uint32_t slot;

	if (g == NULL)
		return -EPERM;
	s = client_session_of(core, session, &slot);
	if (s == NULL)
		return -EINVAL;
	g->open--;
	if (!s->known) {
		slot_release(g, slot);
		return 0;
	}
	s->state = SESSION_CLOSING;
	s->refused = false;
	dirty_put(g, slot);
	return 0;
}

uint32_t client_core_announce_pending(const struct client_core *core)
{
	return core->gateway == NULL ? 0 : core->gateway->dirty_count + core->gateway->unconfirmed;
}

// --- the stream ---------------------------------------------------------------------------------------

void client_gateway_stop(struct client_core *core)
{
	struct client_gateway *g = core->gateway;

	g->base = g->sent = g->next = 0;
	g->unconfirmed = 0;
}

void client_gateway_restart(struct client_core *core)
{
	struct client_gateway *g = core->gateway;

	g->base = g->sent = g->next = 1;
	g->unconfirmed = 0;
	g->resends = 0;
	g->refused_ns = CLIENT_NEVER;
	for (uint32_t slot = 1; slot < g->slots; slot++) {
		struct client_session *s = slot_at(g, slot);

		s->known = false;
		s->refused = false;
		if (s->state == SESSION_CLOSING)
			slot_release(g, slot);  // the node never heard of it
		else if (s->state == SESSION_OPEN)
			dirty_put(g, slot);
	}
}

void client_gateway_repeat(struct client_core *core)
{
	struct client_gateway *g = core->gateway;

	for (uint32_t slot = 1; slot < g->slots; slot++) {
		if (slot_at(g, slot)->state == SESSION_OPEN)
			dirty_put(g, slot);
	}
}

// Puts the next entries of the dirty queue into a frame. Returns: false when there was none.
static bool frame_build(struct client_core *core, uint32_t cap)
{
	struct client_gateway *g = core->gateway;
	struct client_announce_frame *f = &g->frame[g->next % CLIENT_ANNOUNCE_WINDOW];
	struct wire_buf out = {.p = f->body, .cap = cap, .ok = true};

	f->count = 0;
	if (!wire_announce_begin(&out, g->next))
		return false;
	while (g->dirty_count != 0) {
		const uint32_t slot = g->dirty[g->dirty_head];
		struct client_session *s = slot_at(g, slot);
		const struct wire_session entry = {
			.op = s->state == SESSION_OPEN ? WIRE_SESSION_OPEN : WIRE_SESSION_CLOSE,
			.slot = slot,
			.gen = s->gen,
			.uid = id_view_of(s->uid, s->uid_len),
		};

		if (s->state != SESSION_FREE && !wire_announce_add(&out, &entry))
			break;
		g->dirty_head = (g->dirty_head + 1) & g->dirty_mask;
		g->dirty_count--;
		s->queued = false;
		if (s->state == SESSION_FREE)
			continue;  // opened and closed before it was announced
		f->count++;
		core->stats.announces++;
		if (s->state == SESSION_OPEN)
			s->known = true;
		else
			slot_release(g, slot);
	}
	f->len = out.len;
	if (f->count == 0)
		return false;
	g->unconfirmed += f->count;
	g->next++;
	return true;
}

static void frame_send(struct client_core *core, const struct client_announce_frame *f)
{
	struct wire_buf out = client_send_begin(core, 0);

	if (f->len > out.cap)
		return;  // cannot be: frames are built for the smallest MTU of the registration
	memcpy(out.p, f->body, f->len);
	client_send(core, 0, WIRE_ANNOUNCE, f->len);
}

static void resend_timer(struct client_core *core)
{
	struct client_gateway *g = core->gateway;
	uint64_t wait = RESEND_FIRST_NS << (g->resends < 5 ? g->resends : 5);

	if (wait > RESEND_MAX_NS)
		wait = RESEND_MAX_NS;
	g->resend_ns = core->now_ns + wait + client_random(core, wait / 4);
}

static void refused_again(struct client_core *core)
{
	struct client_gateway *g = core->gateway;

	g->refused_ns = CLIENT_NEVER;
	for (uint32_t slot = 1; slot < g->slots; slot++) {
		struct client_session *s = slot_at(g, slot);

		if (s->refused && s->state == SESSION_OPEN)
			dirty_put(g, slot);
		s->refused = false;
	}
}

void client_gateway_poll(struct client_core *core)
{
	struct client_gateway *g = core->gateway;

	if (!core->link.up || g->base == 0)
		return;
	if (core->now_ns >= g->refused_ns)
		refused_again(core);
	if (g->base != g->sent && core->now_ns >= g->resend_ns) {
		core->stats.announce_resends += g->sent - g->base;
		g->sent = g->base;
		g->resends++;
	}
	if (g->sent == g->base)
		resend_timer(core);
	while (g->next - g->base < CLIENT_ANNOUNCE_WINDOW && g->dirty_count != 0) {
		if (!frame_build(core, client_send_begin(core, 0).cap))
			break;
	}
	for (; g->sent != g->next; g->sent++)
		frame_send(core, &g->frame[g->sent % CLIENT_ANNOUNCE_WINDOW]);
}

uint64_t client_gateway_next_ns(const struct client_core *core)
{
	const struct client_gateway *g = core->gateway;
	uint64_t next = CLIENT_NEVER;

	if (!core->link.up || g->base == 0)
		return next;
	if (g->refused_ns < next)
		next = g->refused_ns;
	if (g->sent != g->base && g->resend_ns < next)
		next = g->resend_ns;
	if ((g->sent != g->next ||
		    (g->dirty_count != 0 && g->next - g->base < CLIENT_ANNOUNCE_WINDOW)) &&
		core->now_ns < next)
		next = core->now_ns;
	return next;
}

static void confirm(struct client_core *core, uint64_t expected)
{
	struct client_gateway *g = core->gateway;

	if (expected <= g->base || expected > g->next)
		return;
	for (; g->base != expected; g->base++)
		g->unconfirmed -= g->frame[g->base % CLIENT_ANNOUNCE_WINDOW].count;
	if (g->sent < g->base)
		g->sent = g->base;
	g->resends = 0;
	resend_timer(core);
}

bool client_gateway_expected(struct client_core *core, uint64_t confirmed, uint64_t expected)
{
	if (expected < confirmed || expected > core->gateway->next)
		return false;
	confirm(core, expected);
	return true;
}

void client_gateway_compare(struct client_core *core, uint32_t sessions)
{
	struct client_gateway *g = core->gateway;

	if (client_core_announce_pending(core) != 0 || g->refused_ns != CLIENT_NEVER ||
		sessions == g->open) {
		g->differs = 0;
		return;
	}
	if (++g->differs < DIFFERS_MAX)
		return;
	g->differs = 0;
	client_gateway_repeat(core);
}

// True when the answer refuses the entry at `position` for a reason that may pass. A list that is cut may
// mean any entry.
static bool refuses(const struct wire_announce_ack *m, uint16_t position)
{
	const uint32_t listed = m->rejects.len / (2 * sizeof(uint16_t));

	for (uint32_t i = 0; i < listed; i++) {
		uint16_t reject[2];

		memcpy(reject, m->rejects.p + i * sizeof(reject), sizeof(reject));
		if (reject[0] == position)
			return reject[1] == WIRE_LIMIT || reject[1] == WIRE_TOO_MANY_SESSIONS ||
			       reject[1] == WIRE_RETRYABLE;
	}
	return m->rejected > listed;
}

// Marks the sessions a frame's answer refuses: they are announced again after a while, as limits pass.
static void note_rejects(struct client_core *core, const struct client_announce_frame *f,
	const struct wire_announce_ack *m)
{
	struct wire_announce announce;
	struct wire_session entry;

	if (m->rejected == 0 ||
		wire_get_announce((struct wire_view){.p = f->body, .len = f->len}, &announce) != 0)
		return;
	for (uint16_t i = 0; wire_announce_next(&announce.entries, &entry); i++) {
		struct client_session *s;

		if (entry.op != WIRE_SESSION_OPEN || !refuses(m, i))
			continue;
		s = client_session_at(core, entry.slot, entry.gen);
		if (s == NULL)
			continue;
		s->refused = true;
		if (core->gateway->refused_ns == CLIENT_NEVER)
			core->gateway->refused_ns = core->now_ns + REFUSED_NS;
	}
}

void client_on_announce_ack(struct client_core *core, struct wire_view body)
{
	struct client_gateway *g = core->gateway;
	struct wire_announce_ack m;

	if (wire_get_announce_ack(body, &m) != 0) {
		core->stats.rx_bad++;
		return;
	}
	// Frames stay in the ring after they are confirmed: refusals count whatever order answers come in.
	if (!core->link.up || g->base == 0 || m.stream_seq >= g->next ||
		m.stream_seq + CLIENT_ANNOUNCE_WINDOW < g->next)
		return;
	switch (m.status) {
	case WIRE_OK:
		note_rejects(core, &g->frame[m.stream_seq % CLIENT_ANNOUNCE_WINDOW], &m);
		confirm(core, m.next_expected);
		return;
	case WIRE_OUT_OF_ORDER:
		confirm(core, m.next_expected);
		if (m.next_expected == g->base && g->sent != g->base &&
			core->now_ns - g->back_ns >= GO_BACK_MIN_NS) {
			core->stats.announce_resends += g->sent - g->base;
			g->back_ns = core->now_ns;
			g->sent = g->base;
		}
		return;
	case WIRE_UNKNOWN_GATEWAY:
		if (m.stream_seq >= g->base)
			client_link_lost(core);
		return;
	default:
		return;
	}
}
