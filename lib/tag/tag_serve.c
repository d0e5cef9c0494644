/* SPDX-License-Identifier: BSD-3-Clause */
// The leader's answers to pulls: which body a request is served from, and why not. Control core.
#include "tag_send.h"

#include <stdlib.h>
#include <string.h>

#include "tag_part_pvt.h"

#define PINNED_HOLDS 8u  // a pull that was restarted twice gets its body for so many hold times

struct served {
	struct tag_send *send;  // NULL: free
	uint64_t node, request_id;
	uint64_t used_ns, hold_ns;
	struct channel_key channel;
};

struct tag_serve {
	struct tag_space *space;
	struct tag_serve_config config;
	struct served entry[];
};

struct tag_serve *tag_serve_create(struct tag_space *space, const struct tag_serve_config *config)
{
	struct tag_serve *s;

	if (config->sends == 0 || config->per_node == 0)
		return NULL;
	s = calloc(1, sizeof(*s) + config->sends * sizeof(s->entry[0]));
	if (s == NULL)
		return NULL;
	s->space = space;
	s->config = *config;
	return s;
}

static void let_go(struct served *e) CONTROL_ONLY;
static void let_go(struct served *e)
{
	tag_send_free(e->send);
	e->send = NULL;
}

void tag_serve_destroy(struct tag_serve *serve)
{
	if (serve == NULL)
		return;
	for (uint32_t i = 0; i < serve->config.sends; i++)
		if (serve->entry[i].send != NULL)
			let_go(&serve->entry[i]);
	free(serve);
}

uint32_t tag_serve_step(struct tag_serve *serve, uint64_t now_ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < serve->config.sends; i++) {
		struct served *const e = &serve->entry[i];

		if (e->send != NULL && now_ns - e->used_ns > e->hold_ns) {
			let_go(e);
			n++;
		}
	}
	return n;
}

void tag_serve_forget(struct tag_serve *serve, uint64_t node)
{
	for (uint32_t i = 0; i < serve->config.sends; i++)
		if (serve->entry[i].send != NULL && serve->entry[i].node == node)
			let_go(&serve->entry[i]);
}

static bool key_same(const uint8_t a[16], const uint8_t b[16])
{
	return memcmp(a, b, 16) == 0;
}

// Finds the attempt's own body; the one the requester has as a whole and asks on from (*base); and where
// another would go (*room: NULL: none).
static struct served *look_up(struct tag_serve *serve, uint64_t sender,
	const struct wire_tag_get *get, struct served **base, struct served **room) CONTROL_ONLY;
static struct served *look_up(struct tag_serve *serve, uint64_t sender,
	const struct wire_tag_get *get, struct served **base, struct served **room)
{
	uint32_t own = 0;

	*base = *room = NULL;
	for (uint32_t i = 0; i < serve->config.sends; i++) {
		struct served *const e = &serve->entry[i];

		if (e->send == NULL) {
			*room = *room == NULL ? e : *room;
			continue;
		}
		if (e->node != sender)
			continue;
		own++;
		if (!channel_key_equal(&e->channel, &get->channel))
			continue;
		if (e->request_id == get->request_id)
			return e;
		// A channel has one pull at a time: an older attempt's body is over, unless it is what is asked
		// on from.
		if (tag_send_base(e->send) == 0 && get->have_version != 0 &&
			tag_send_fence(e->send)->version == get->have_version &&
			key_same(tag_send_fence(e->send)->key, get->have_key)) {
			*base = e;
		} else {
			let_go(e);
			own--;
			*room = *room == NULL ? e : *room;
		}
	}
	if (own >= serve->config.per_node)
		*room = NULL;
	return NULL;
}

enum wire_status tag_serve_get(struct tag_serve *serve, const struct tag_parts *current,
	uint64_t sender, const struct wire_tag_get *get, uint64_t now_ns,
	const struct tag_send **send)
{
	struct served *base, *room, *e;
	const struct tag_fence *fence;

	if (get->target != sender)
		return WIRE_BAD_REQUEST;
	if (current == NULL)
		return WIRE_TAG_NOT_FOUND;
	fence = &current->local->fence;
	e = look_up(serve, sender, get, &base, &room);
	// Another incarnation began since: what is pinned of the one before is of no use to anybody.
	if (e != NULL && !key_same(tag_send_fence(e->send)->key, fence->key)) {
		let_go(e);
		room = e;
		e = NULL;
	}
	if (get->tag_version != 0 && !key_same(get->tag_key, fence->key))
		return WIRE_TAG_NOT_CURRENT;
	if (get->tag_version > fence->version)
		return WIRE_TAG_VERSION_MISMATCH;
	if (e == NULL) {
		struct tag_send *made = NULL;

		if (room == NULL)
			return WIRE_BUSY;
		if (get->have_version != 0 && (get->flags & WIRE_TAG_GET_DELTA) != 0) {
			struct tag_fence have = {.version = get->have_version};

			memcpy(have.key, get->have_key, sizeof(have.key));
			made = tag_send_delta(serve->space, current, sender, get->room, &have,
				base == NULL ? NULL : base->send);
		}
		if (made == NULL)
			made = tag_send_full(serve->space, current, sender, get->room);
		if (base != NULL)
			let_go(base);
		if (made == NULL)
			return WIRE_RETRYABLE;
		e = room;
		*e = (struct served){.send = made,
			.node = sender,
			.request_id = get->request_id,
			.channel = get->channel};
	}
	e->used_ns = now_ns;
	e->hold_ns =
		serve->config.hold_ns * ((get->flags & WIRE_TAG_GET_PIN) != 0 ? PINNED_HOLDS : 1);
	*send = e->send;
	return WIRE_OK;
}

bool tag_serve_refuse(struct wire_buf *out, const struct wire_tag_get *get, enum wire_status status,
	const struct tag_fence *current, uint64_t leader, const struct wire_authority *authority)
{
	struct wire_tag_part part = {
		.request_id = get->request_id,
		.status = (uint16_t)status,
		.leader = leader,
	};

	if (authority != NULL)
		part.authority = *authority;
	if (current != NULL) {
		memcpy(part.tag_key, current->key, sizeof(part.tag_key));
		part.tag_version = current->version;
	}
	return wire_put_tag_part(out, &part);
}
