/* SPDX-License-Identifier: BSD-3-Clause */
// Codec of side frames; see raft_side.h. Owns nothing. Context: the loop.
#include "raft_side.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

// Parts of a payload, in the order they stand in.
enum part {
	PART_END,
	PART_REQUEST,
	PART_LIFE,
	PART_OP,
	PART_ID,
	PART_STATUS,
	PART_INDEX,
	PART_PAIRS,
	PART_ADDRESS,
	PART_TEXT,
	PART_DATA,
};

static const uint8_t parts[SIDE_TYPE_END][6] = {
	[SIDE_HISTORY] = {PART_PAIRS},
	[SIDE_PROPOSE] = {PART_REQUEST, PART_LIFE, PART_DATA},
	[SIDE_PROPOSED] = {PART_REQUEST, PART_STATUS},
	[SIDE_BARRIER] = {PART_REQUEST},
	[SIDE_BARRIER_OK] = {PART_REQUEST, PART_STATUS, PART_INDEX},
	[SIDE_MEMBER] = {PART_REQUEST, PART_LIFE, PART_OP, PART_ID, PART_ADDRESS},
	[SIDE_MEMBER_RESULT] = {PART_REQUEST, PART_STATUS, PART_TEXT},
	[SIDE_JOIN] = {PART_LIFE, PART_ID, PART_ADDRESS},
	[SIDE_JOIN_RESULT] = {PART_STATUS, PART_TEXT},
};

static_assert(SIDE_HEAD_BYTES + 1 + 16 * CHAIN_TOLD_MAX <= SIDE_SMALL_MAX, "HISTORY is small");
static_assert(SIDE_HEAD_BYTES + 25 + 1 + CONS_ADDRESS_MAX <= SIDE_SMALL_MAX, "MEMBER is small");
static_assert(SIDE_HEAD_BYTES + 9 + 1 + SIDE_TEXT_MAX <= SIDE_SMALL_MAX, "MEMBER_RESULT is small");

static uint64_t get(const uint8_t *p, uint32_t bytes)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < bytes; i++)
		value |= (uint64_t)p[i] << (8 * i);
	return value;
}

static uint8_t *put(uint8_t *p, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(value >> (8 * i));
	return p + bytes;
}

int side_length(const uint8_t head[SIDE_HEAD_BYTES])
{
	uint64_t payload = get(head, 4);
	uint8_t type = head[4];

	if (type == 0 || type >= SIDE_TYPE_END || get(head + 5, 3) != 0)
		return -EBADMSG;
	if (payload > (type == SIDE_PROPOSE ? SIDE_PAYLOAD_MAX : SIDE_SMALL_MAX - SIDE_HEAD_BYTES))
		return -EBADMSG;
	return (int)(SIDE_HEAD_BYTES + payload);
}

// What is left to read of a payload.
struct reader {
	const uint8_t *p;
	uint32_t left;
	bool bad;
};

static uint64_t take(struct reader *r, uint32_t bytes)
{
	uint64_t value;

	if (r->left < bytes) {
		r->bad = true;
		return 0;
	}
	value = get(r->p, bytes);
	r->p += bytes;
	r->left -= bytes;
	return value;
}

// A string of 1..cap-1 bytes (`empty`: or none) without a zero byte.
static void take_text(struct reader *r, char *out, uint32_t cap, bool empty)
{
	uint32_t len = (uint32_t)take(r, 1);

	if (r->bad || len > r->left || len >= cap || (len == 0 && !empty) ||
		memchr(r->p, 0, len) != NULL) {
		r->bad = true;
		return;
	}
	memcpy(out, r->p, len);
	out[len] = '\0';
	r->p += len;
	r->left -= len;
}

static void take_pairs(struct reader *r, struct side_frame *frame)
{
	frame->pair_count = (uint8_t)take(r, 1);
	if (frame->pair_count > CHAIN_TOLD_MAX) {
		r->bad = true;
		return;
	}
	for (uint32_t i = 0; i < frame->pair_count; i++) {
		frame->pair[i].index = take(r, 8);
		frame->pair[i].chain = take(r, 8);
	}
}

static void take_part(struct reader *r, enum part part, struct side_frame *frame)
{
	switch (part) {
	case PART_REQUEST:
		frame->request = take(r, 8);
		break;
	case PART_LIFE:
		frame->life = take(r, 8);
		break;
	case PART_OP:
		frame->op = (uint8_t)take(r, 1);
		r->bad |= frame->op < CONS_ADD || frame->op > CONS_TRANSFER;
		break;
	case PART_ID:
		frame->id = take(r, 8);
		break;
	case PART_STATUS:
		frame->status = (uint8_t)take(r, 1);
		r->bad |= frame->status > CONS_REFUSED;
		break;
	case PART_INDEX:
		frame->index = take(r, 8);
		break;
	case PART_PAIRS:
		take_pairs(r, frame);
		break;
	case PART_ADDRESS:
		take_text(r, frame->address, sizeof(frame->address), frame->type == SIDE_MEMBER);
		break;
	case PART_TEXT:
		take_text(r, frame->text, sizeof(frame->text), true);
		break;
	case PART_DATA:
		frame->data = r->p;
		frame->len = r->left;
		r->left = 0;
		break;
	default:
		break;
	}
}

int side_decode(const uint8_t *bytes, uint32_t len, struct side_frame *frame)
{
	struct reader r = {.p = bytes + SIDE_HEAD_BYTES, .left = len - SIDE_HEAD_BYTES};

	memset(frame, 0, sizeof(*frame));
	if (len < SIDE_HEAD_BYTES || side_length(bytes) != (int)len)
		return -EBADMSG;
	frame->type = bytes[4];
	for (const uint8_t *part = parts[frame->type]; *part != PART_END; part++)
		take_part(&r, (enum part) * part, frame);
	return r.bad || r.left != 0 ? -EBADMSG : 0;
}

static uint32_t part_size(enum part part, const struct side_frame *frame)
{
	switch (part) {
	case PART_OP:
	case PART_STATUS:
		return 1;
	case PART_PAIRS:
		return 1 + 16u * frame->pair_count;
	case PART_ADDRESS:
		return 1 + (uint32_t)strnlen(frame->address, sizeof(frame->address) - 1);
	case PART_TEXT:
		return 1 + (uint32_t)strnlen(frame->text, sizeof(frame->text) - 1);
	case PART_DATA:
		return frame->len;
	default:
		return 8;
	}
}

uint32_t side_size(const struct side_frame *frame)
{
	uint32_t size = SIDE_HEAD_BYTES;

	for (const uint8_t *part = parts[frame->type]; *part != PART_END; part++)
		size += part_size((enum part) * part, frame);
	return size;
}

static uint8_t *put_text(uint8_t *p, const char *text, uint32_t cap)
{
	uint32_t len = (uint32_t)strnlen(text, cap - 1);

	p = put(p, len, 1);
	memcpy(p, text, len);
	return p + len;
}

static uint8_t *put_part(uint8_t *p, enum part part, const struct side_frame *frame)
{
	switch (part) {
	case PART_REQUEST:
		return put(p, frame->request, 8);
	case PART_LIFE:
		return put(p, frame->life, 8);
	case PART_OP:
		return put(p, frame->op, 1);
	case PART_ID:
		return put(p, frame->id, 8);
	case PART_STATUS:
		return put(p, frame->status, 1);
	case PART_INDEX:
		return put(p, frame->index, 8);
	case PART_PAIRS:
		p = put(p, frame->pair_count, 1);
		for (uint32_t i = 0; i < frame->pair_count; i++) {
			p = put(p, frame->pair[i].index, 8);
			p = put(p, frame->pair[i].chain, 8);
		}
		return p;
	case PART_ADDRESS:
		return put_text(p, frame->address, sizeof(frame->address));
	case PART_TEXT:
		return put_text(p, frame->text, sizeof(frame->text));
	case PART_DATA:
		if (frame->len > 0)
			memcpy(p, frame->data, frame->len);
		return p + frame->len;
	default:
		return p;
	}
}

void side_encode(const struct side_frame *frame, uint8_t *out)
{
	uint8_t *p = out + SIDE_HEAD_BYTES;

	assert(frame->type > 0 && frame->type < SIDE_TYPE_END &&
		frame->pair_count <= CHAIN_TOLD_MAX);
	put(out, side_size(frame) - SIDE_HEAD_BYTES, 4);
	put(out + 4, frame->type, 4);
	for (const uint8_t *part = parts[frame->type]; *part != PART_END; part++)
		p = put_part(p, (enum part) * part, frame);
}
