/* SPDX-License-Identifier: BSD-3-Clause */
// Builder and parser of feed frames. Pure; any thread.
//
//   u32 length of the rest | u8 type | body
//   HELLO   u32 proto, u64 node, u64 generation, u64 commit
//   WELCOME u64 generation, u64 commit, u8 resync (0 or 1)
//   DELTA   a delta as in the journal (store_delta_encode)
//   APPLIED u64 commit
//   LAGGED  nothing
//   WAIT    nothing
#include "store_feed.h"

#include <errno.h>
#include <string.h>

#define HEADER_BYTES 5u
#define HELLO_BYTES 28u
#define WELCOME_BYTES 17u
#define APPLIED_BYTES 8u

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void put_u64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_u32(const uint8_t *p)
{
	uint32_t v = 0;

	for (int i = 3; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

static uint64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 7; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

// Body bytes of the types of fixed size; -1 for others.
static int fixed_bytes(uint8_t type)
{
	switch (type) {
	case STORE_FEED_HELLO:
		return HELLO_BYTES;
	case STORE_FEED_WELCOME:
		return WELCOME_BYTES;
	case STORE_FEED_APPLIED:
		return APPLIED_BYTES;
	case STORE_FEED_LAGGED:
	case STORE_FEED_WAIT:
		return 0;
	default:
		return -1;
	}
}

int store_feed_encode(const struct store_feed_frame *frame, uint8_t *out, uint32_t cap)
{
	uint8_t *body = out + HEADER_BYTES;
	int bytes = fixed_bytes(frame->type);

	if (frame->type != STORE_FEED_DELTA && bytes < 0)
		return -EINVAL;
	if (cap < HEADER_BYTES || (bytes > 0 && cap - HEADER_BYTES < (uint32_t)bytes))
		return -ENOSPC;
	switch (frame->type) {
	case STORE_FEED_HELLO:
		put_u32(body, frame->proto);
		put_u64(body + 4, frame->node);
		put_u64(body + 12, frame->generation);
		put_u64(body + 20, frame->commit);
		break;
	case STORE_FEED_WELCOME:
		put_u64(body, frame->generation);
		put_u64(body + 8, frame->commit);
		body[16] = frame->resync != 0;
		break;
	case STORE_FEED_DELTA:
		bytes = store_delta_encode(&frame->delta, body, cap - HEADER_BYTES);
		if (bytes < 0)
			return bytes;
		break;
	case STORE_FEED_APPLIED:
		put_u64(body, frame->commit);
		break;
	default:
		break;
	}
	put_u32(out, 1 + (uint32_t)bytes);
	out[4] = frame->type;
	return (int)HEADER_BYTES + bytes;
}

int store_feed_decode(const uint8_t *p, uint32_t len, struct store_feed_frame *frame)
{
	const uint8_t *body = p + HEADER_BYTES;
	uint32_t bytes;

	if (len < 4)
		return 0;
	bytes = get_u32(p);
	if (bytes < 1 || bytes > STORE_FEED_FRAME_MAX - 4)
		return -EPROTO;
	// Type and size of small frames are judged before the rest arrives.
	if (len < HEADER_BYTES)
		return 0;
	bytes--;
	if (p[4] != STORE_FEED_DELTA && fixed_bytes(p[4]) != (int)bytes)
		return -EPROTO;
	if (len - HEADER_BYTES < bytes)
		return 0;
	memset(frame, 0, sizeof(*frame));
	frame->type = p[4];
	switch (frame->type) {
	case STORE_FEED_HELLO:
		frame->proto = get_u32(body);
		frame->node = get_u64(body + 4);
		frame->generation = get_u64(body + 12);
		frame->commit = get_u64(body + 20);
		break;
	case STORE_FEED_WELCOME:
		frame->generation = get_u64(body);
		frame->commit = get_u64(body + 8);
		frame->resync = body[16];
		if (frame->resync > 1)
			return -EPROTO;
		break;
	case STORE_FEED_DELTA:
		// The delta is the whole body, to the byte.
		if (store_delta_decode(body, bytes, &frame->delta) != (int)bytes)
			return -EPROTO;
		frame->commit = frame->delta.commit;
		break;
	case STORE_FEED_APPLIED:
		frame->commit = get_u64(body);
		break;
	default:
		break;
	}
	return (int)(HEADER_BYTES + bytes);
}
