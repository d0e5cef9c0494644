/* SPDX-License-Identifier: BSD-3-Clause */
// The feed between meta and fast process: frames on a local stream socket.
// Frame: u32 bytes of what follows the length, u8 type, body. Little-endian. At most STORE_FEED_FRAME_MAX.
//
//   subscriber                         meta
//   HELLO(proto, node, generation, commit) ->
//                                      <- WELCOME(generation, commit, resync)   resync=1: journal does not
//                                         reach; read the whole store, then go on from `commit` of it
//                                      <- DELTA(store_delta) ...                in commit order, no gap
//   APPLIED(commit) ->                           the subscriber's workers all act on `commit`
//                                      <- LAGGED()                              told, then closed: resubscribe
//                                      <- WAIT()                                instead of WELCOME, each second:
//                                         there is no store to follow yet, WELCOME comes later
#pragma once

#include "store.h"

#define STORE_FEED_PROTO 1u
#define STORE_FEED_FRAME_MAX (ENTRY_BYTES_MAX + 1024u)

enum store_feed_type {
	STORE_FEED_HELLO = 1,
	STORE_FEED_WELCOME = 2,
	STORE_FEED_DELTA = 3,
	STORE_FEED_APPLIED = 4,
	STORE_FEED_LAGGED = 5,
	STORE_FEED_WAIT = 6,
};

struct store_feed_frame {
	uint8_t type;
	uint32_t proto;
	uint64_t node;
	uint64_t generation;
	uint64_t commit;
	uint8_t resync;
	struct store_delta delta;
};

// Writes one frame. Returns: bytes written, -ENOSPC, or -EINVAL (not a frame).
int store_feed_encode(const struct store_feed_frame *frame, uint8_t *out, uint32_t cap);
// Takes one frame off p; a delta points into p. Returns: bytes used; 0 when more bytes are needed; -EPROTO: not a frame, close.
int store_feed_decode(const uint8_t *p, uint32_t len, struct store_feed_frame *frame);
