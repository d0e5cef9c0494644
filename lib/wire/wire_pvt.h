/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of lib/wire: how builders and parsers touch bytes. Each message's fixed part is a packed struct
// beside its builder and parser, copied whole in both directions, so that both read one layout.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "wire.h"

#define WIRE_PACKED __attribute__((packed))
#define WIRE_U24_MAX 0xffffffu  // session slots and generations

// Takes `bytes` at the end of `out`. Returns: where they go; NULL when they do not fit: nothing is taken
// and `out` is failed for good.
static inline uint8_t *wire_reserve(struct wire_buf *out, uint32_t bytes)
{
	uint8_t *at;

	if (!out->ok || out->len > out->cap || bytes > out->cap - out->len) {
		out->ok = false;
		return NULL;
	}
	at = out->p + out->len;
	out->len += bytes;
	return at;
}

// Refuses a body that its own parser would refuse: a builder's caller gave a field out of range.
static inline bool wire_refuse(struct wire_buf *out)
{
	out->ok = false;
	return false;
}

// Copies bytes that may be absent (a length of 0 with a NULL pointer). Returns: where the next go.
static inline uint8_t *wire_copy(uint8_t *at, const void *from, uint32_t bytes)
{
	if (bytes != 0)
		memcpy(at, from, bytes);
	return at + bytes;
}

// Does the body hold `want` bytes behind its fixed part, and no more? Returns: 0 or the drop counter.
static inline int wire_rest(struct wire_view body, uint32_t fixed, uint32_t want)
{
	const uint32_t rest = body.len - fixed;

	return rest < want ? CTR_DROP_SHORT : rest > want ? CTR_DROP_LENGTH : 0;
}

static inline bool wire_all_zero(const uint8_t *p, uint32_t bytes)
{
	uint64_t any = 0, word;
	uint32_t i = 0;

	for (; i + 8 <= bytes; i += 8) {
		memcpy(&word, p + i, 8);
		any |= word;
	}
	for (; i < bytes; i++)
		any |= p[i];
	return any == 0;
}
