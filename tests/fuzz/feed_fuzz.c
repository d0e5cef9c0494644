/* SPDX-License-Identifier: BSD-3-Clause */
// Frames of the feed. What is taken must encode to the same bytes, and a prefix of it is never a frame.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store_feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *bytes = malloc(size == 0 ? 1 : size), *out = malloc(STORE_FEED_FRAME_MAX);
	uint32_t at = 0;

	if (size != 0)
		memcpy(bytes, data, size);
	while (at < size) {
		struct store_feed_frame frame, shorter;
		const int used = store_feed_decode(bytes + at, (uint32_t)size - at, &frame);

		if (used <= 0)
			break;
		assert((uint32_t)used <= size - at);
		assert(store_feed_encode(&frame, out, STORE_FEED_FRAME_MAX) == used);
		assert(memcmp(out, bytes + at, (size_t)used) == 0);
		assert(store_feed_decode(bytes + at, (uint32_t)used - 1, &shorter) <= 0);
		if (frame.type == STORE_FEED_DELTA) {
			const uint8_t *p = frame.delta.uids;
			struct id_view uid;
			uint32_t count = 0;

			while (store_uids_next(&p, frame.delta.uids + frame.delta.uids_bytes, &uid))
				count++;
			assert(count == frame.delta.uid_count);
		}
		at += (uint32_t)used;
	}
	free(bytes);
	free(out);
	return 0;
}
