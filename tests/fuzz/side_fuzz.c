/* SPDX-License-Identifier: BSD-3-Clause */
// Fuzz target of the side frames of drivers/raft. An input is a stream of frames; each that is taken must
// encode to the bytes it came from.
#include <stdlib.h>
#include <string.h>

#include "raft_side.h"

#define REQUIRE(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[SIDE_FRAME_MAX];
	struct side_frame frame;

	while (size >= SIDE_HEAD_BYTES) {
		const int length = side_length(data);
		uint8_t *exact;

		if (length < 0)
			return 0;
		REQUIRE(length >= (int)SIDE_HEAD_BYTES && length <= (int)SIDE_FRAME_MAX);
		if ((size_t)length > size)
			return 0;
		exact = malloc((size_t)length);
		REQUIRE(exact != NULL);
		memcpy(exact, data, (size_t)length);
		if (side_decode(exact, (uint32_t)length, &frame) == 0) {
			REQUIRE(side_size(&frame) == (uint32_t)length);
			side_encode(&frame, again);
			REQUIRE(memcmp(again, exact, (size_t)length) == 0);
		}
		free(exact);
		data += length;
		size -= (size_t)length;
	}
	return 0;
}
