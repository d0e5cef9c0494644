/* SPDX-License-Identifier: BSD-3-Clause */
// SEGMENT: one part of a frame that does not fit a datagram. Pure functions, any thread.
#include "wire.h"

#include "wire_pvt.h"

// clang-format off
struct WIRE_PACKED segment_bytes {
	uint32_t frame_id;  //  0 of the sender's lane
	uint8_t type;       //  4 WIRE_PUBLISH, WIRE_PUSH, WIRE_TASK
	uint8_t attempt;    //  5 0 first; sent again: how often before
	uint16_t zero6;     //  6
	uint16_t index;     //  8 < count
	uint16_t count;     // 10 2..FRAME_SEGMENTS_MAX
	uint32_t total;     // 12 <= FRAME_BYTES_MAX
	uint32_t offset;    // 16 index * the part size of the frame
};                          // then the part
// clang-format on
_Static_assert(sizeof(struct segment_bytes) == WIRE_SEGMENT_BYTES, "wire format");
_Static_assert(
	offsetof(struct segment_bytes, attempt) == WIRE_SEGMENT_ATTEMPT_OFFSET, "is patched");

// What one segment alone can show: parts of one size but for a last one that is not larger, without a
// gap, and just as many as the total needs. All parts of a frame agree when total, count and part size do.
static bool segment_valid(const struct wire_segment *m)
{
	const uint32_t part = m->part.len;
	uint32_t size;

	if (m->type != WIRE_PUBLISH && m->type != WIRE_PUSH && m->type != WIRE_TASK)
		return false;
	if (m->count < 2 || m->count > FRAME_SEGMENTS_MAX || m->index >= m->count)
		return false;
	if (m->total > FRAME_BYTES_MAX || part == 0 || part > m->total ||
		m->offset > m->total - part)
		return false;
	if (m->index + 1u == m->count) {
		size = m->offset / (m->count - 1u);
		return m->offset % (m->count - 1u) == 0 && m->offset + part == m->total &&
		       part <= size;
	}
	size = part;
	return m->offset == m->index * size && m->total > (m->count - 1u) * size &&
	       m->total <= m->count * size;
}

bool wire_put_segment(struct wire_buf *out, const struct wire_segment *m)
{
	const struct segment_bytes b = {
		.frame_id = m->frame_id,
		.type = m->type,
		.attempt = m->attempt,
		.index = m->index,
		.count = m->count,
		.total = m->total,
		.offset = m->offset,
	};
	uint8_t *at;

	if (!segment_valid(m))
		return wire_refuse(out);
	at = wire_reserve(out, (uint32_t)sizeof(b) + m->part.len);
	if (at == NULL)
		return false;
	memcpy(at, &b, sizeof(b));
	wire_copy(at + sizeof(b), m->part.p, m->part.len);
	return true;
}

int wire_get_segment(struct wire_view body, struct wire_segment *m)
{
	struct segment_bytes b;

	if (body.len < sizeof(b))
		return CTR_DROP_SHORT;
	memcpy(&b, body.p, sizeof(b));
	*m = (struct wire_segment){
		.frame_id = b.frame_id,
		.type = b.type,
		.attempt = b.attempt,
		.index = b.index,
		.count = b.count,
		.total = b.total,
		.offset = b.offset,
		.part = {.p = body.p + sizeof(b), .len = body.len - (uint32_t)sizeof(b)},
	};
	if (b.zero6 != 0 || !segment_valid(m))
		return CTR_DROP_FIELD;
	return 0;
}
