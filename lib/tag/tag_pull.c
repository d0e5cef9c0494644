/* SPDX-License-Identifier: BSD-3-Clause */
// The receiver's side of a pull, as a pure state machine.
#include "tag_pull.h"

#include <string.h>

#define RESTARTS_BEFORE_PIN 2u

static bool fence_same(const struct tag_fence *a, const struct tag_fence *b)
{
	return a->version == b->version && memcmp(a->key, b->key, sizeof(a->key)) == 0;
}

static void attempt_begin(struct tag_pull *p, const struct tag_pull_config *config,
	uint64_t request_id, uint64_t now_ns)
{
	p->request_id = request_id;
	memset(&p->body, 0, sizeof(p->body));
	memset(p->got, 0, (p->count + 63) / 64 * sizeof(p->got[0]));
	p->base = 0;
	p->count = p->got_count = p->low = p->next = p->again = 0;
	p->silent = 0;
	p->asked = p->again_only = false;
	p->heard_ns = now_ns;
	p->wait_ns = p->retry_ns = config->retry_ns;
}

void tag_pull_begin(struct tag_pull *p, const struct tag_pull_config *config, uint64_t request_id,
	const struct tag_fence *want, const struct tag_fence *have, uint64_t now_ns)
{
	memset(p, 0, sizeof(*p));
	p->want = *want;
	p->have = *have;
	p->delta = have->version != 0;
	p->begun_ns = now_ns;
	attempt_begin(p, config, request_id, now_ns);
}

void tag_pull_end(struct tag_pull *p)
{
	p->request_id = 0;
}

bool tag_pull_restart(struct tag_pull *p, const struct tag_pull_config *config, uint64_t request_id,
	uint64_t now_ns)
{
	if (p->restarts >= config->restarts_max) {
		tag_pull_end(p);
		return false;
	}
	p->restarts++;
	attempt_begin(p, config, request_id, now_ns);
	return true;
}

// True when the attempt may be of this body.
static bool acceptable(const struct tag_pull *p, const struct wire_tag_part *part)
{
	if (part->count == 0 || part->count > WIRE_PART_CHUNKS_MAX || part->tag_version == 0)
		return false;
	if (part->base_version != 0 &&
		(!p->delta || part->base_version != p->have.version ||
			memcmp(part->tag_key, p->have.key, sizeof(p->have.key)) != 0))
		return false;
	// Never below what was asked for, as far as the two can be ordered.
	return p->want.version == 0 ||
	       memcmp(part->tag_key, p->want.key, sizeof(p->want.key)) != 0 ||
	       part->tag_version >= p->want.version;
}

enum tag_pull_event tag_pull_part(
	struct tag_pull *p, const struct wire_tag_part *part, uint64_t now_ns)
{
	const uint32_t i = part->index;
	const uint64_t bit = UINT64_C(1) << i % 64;
	struct tag_fence fence = {.version = part->tag_version};

	if (p->request_id == 0 || part->request_id != p->request_id || part->status != WIRE_OK)
		return TAG_PULL_LATE;
	memcpy(fence.key, part->tag_key, sizeof(fence.key));
	if (p->body.version == 0) {
		if (!acceptable(p, part))
			return TAG_PULL_RESTART;
		p->body = fence;
		p->base = part->base_version;
		p->count = part->count;
		if (p->next > p->count)
			p->next = p->count;
	}
	if (!fence_same(&p->body, &fence) || p->base != part->base_version ||
		p->count != part->count || i >= p->count)
		return TAG_PULL_RESTART;
	if ((p->got[i / 64] & bit) != 0)
		return TAG_PULL_REPEATED;
	p->got[i / 64] |= bit;
	p->got_count++;
	p->again -= p->again != 0;
	if (p->next <= i)
		p->next = i + 1;
	while (p->low < p->count && (p->got[p->low / 64] >> p->low % 64 & 1) != 0)
		p->low++;
	p->heard_ns = now_ns;
	p->wait_ns = p->retry_ns;
	p->silent = 0;
	return p->got_count == p->count ? TAG_PULL_COMPLETE : TAG_PULL_TAKEN;
}

// Chunks asked for and not here.
static uint32_t under_way(const struct tag_pull *p)
{
	return p->next > p->got_count ? p->next - p->got_count : 0;
}

enum tag_pull_due tag_pull_due(
	const struct tag_pull *p, const struct tag_pull_config *config, uint64_t now_ns)
{
	if (p->request_id == 0)
		return TAG_PULL_WAIT;
	if (!p->asked)
		return TAG_PULL_ASK;
	if (now_ns - p->heard_ns >= p->wait_ns)
		return p->silent >= config->silent_max ? TAG_PULL_GIVE_UP : TAG_PULL_ASK;
	if (p->body.version == 0)
		return TAG_PULL_WAIT;
	if (p->next < p->count && under_way(p) <= config->window / 2)
		return TAG_PULL_ASK;
	// What was asked for again has all come: on to the next gap.
	return p->again_only && p->again == 0 ? TAG_PULL_ASK : TAG_PULL_WAIT;
}

uint64_t tag_pull_next_ns(const struct tag_pull *p)
{
	return p->heard_ns + p->wait_ns;
}

// Missing chunks among the 64 from `first`, below `end`.
static uint64_t missing(const struct tag_pull *p, uint32_t first, uint32_t end)
{
	uint64_t want = 0;

	for (uint32_t i = 0; i < 64 && first + i < end; i++)
		if ((p->got[(first + i) / 64] >> (first + i) % 64 & 1) == 0)
			want |= UINT64_C(1) << i;
	return want;
}

void tag_pull_ask(struct tag_pull *p, const struct tag_pull_config *config, uint64_t now_ns,
	struct wire_tag_get *get)
{
	const bool silence = p->asked && now_ns - p->heard_ns >= p->wait_ns;
	uint32_t end;

	if (p->body.version == 0) {
		get->first = 0;
		end = config->window;
		p->next = end;
	} else if (!silence && p->next < p->count && under_way(p) < config->window) {
		get->first = p->next;
		end = p->next + config->window - under_way(p);
		end = end < p->count ? end : p->count;
		p->next = end;
	} else {
		get->first = p->low;
		end = p->next > p->low ? p->next : p->low + 1;
		end = end - p->low > config->window ? p->low + config->window : end;
		p->next = end > p->next ? end : p->next;
	}
	get->want = missing(p, get->first, end);
	if (silence) {
		p->silent++;
		p->again_only = true;
		p->wait_ns = 2 * p->wait_ns < config->retry_max_ns ? 2 * p->wait_ns
								   : config->retry_max_ns;
		p->heard_ns = now_ns;
	}
	p->again = (uint32_t)__builtin_popcountll(get->want);
	p->asked = true;
	get->request_id = p->request_id;
	memcpy(get->tag_key, p->want.key, sizeof(get->tag_key));
	get->tag_version = p->want.version;
	memcpy(get->have_key, p->have.key, sizeof(get->have_key));
	get->have_version = p->have.version;
	get->body_version = p->body.version;
	get->flags = (uint8_t)((p->delta ? WIRE_TAG_GET_DELTA : 0) |
			       (p->restarts >= RESTARTS_BEFORE_PIN ? WIRE_TAG_GET_PIN : 0));
}
