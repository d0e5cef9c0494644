/* SPDX-License-Identifier: BSD-3-Clause */
// Writes one corpus file per message type, and one of a segmented frame, into the folder given; with a second
// folder, answers and pushes as client_fuzz.c expects them into that one.
#include <stdio.h>

#include "wire_samples.h"

static void put(FILE *f, const uint8_t *p, uint32_t len)
{
	const uint8_t prefix[2] = {(uint8_t)len, (uint8_t)(len >> 8)};

	fwrite(prefix, 1, sizeof(prefix), f);
	fwrite(p, 1, len, f);
}

static FILE *create(const char *folder, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return fopen(path, "wb");
}

// Two samples cut into segments, sent out of order.
static int write_segmented(const char *folder, enum sample_id id, const char *name)
{
	uint8_t body[SAMPLE_MAX], p[SAMPLE_MAX];
	const uint32_t total = sample_body(id, body);
	const uint32_t size = total / 2 + 1;
	FILE *const f = create(folder, name);

	if (f == NULL)
		return 1;
	for (uint16_t i = 2; i-- > 0;) {
		const struct wire_segment m = {
			.frame_id = 7,
			.type = samples[id].type,
			.index = i,
			.count = 2,
			.total = total,
			.offset = i * size,
			.part = {.p = body + i * size, .len = i == 0 ? size : total - size},
		};
		struct wire_buf out = {.p = p + WIRE_HEADER_BYTES,
			.cap = SAMPLE_MAX - WIRE_HEADER_BYTES,
			.ok = true};
		struct wire_header h = {.type = WIRE_SEGMENT, .sender = 2, .boot = 3, .seq = 4};

		if (!wire_put_segment(&out, &m))
			return 1;
		h.bytes = (uint16_t)(WIRE_HEADER_BYTES + out.len);
		wire_put_header(p, &h);
		put(f, p, h.bytes);
	}
	return fclose(f);
}

// --- the client's -------------------------------------------------------------------------------------

static void put_part(FILE *f, uint8_t type, uint8_t lane, const uint8_t *body, uint32_t len)
{
	const uint8_t prefix[4] = {type, lane, (uint8_t)len, (uint8_t)(len >> 8)};

	fwrite(prefix, 1, sizeof(prefix), f);
	fwrite(body, 1, len, f);
}

// A push to the sessions the harness opened, of one record.
static uint32_t push_body(uint8_t *body, uint32_t id, uint64_t message)
{
	struct wire_buf out = {.p = body, .cap = SAMPLE_MAX, .ok = true};

	wire_put_push(&out, &(struct wire_push){.push_id = id,
				    .push_gen = 1,
				    .gateway_boot = 3,
				    .records = 1,
				    .routes = 4,
				    .need_ack = 1});
	wire_put_record(&out, &(struct wire_record){.message_id = message,
				      .seq = message,
				      .channel_type = 2,
				      .flags = WIRE_RECORD_RECEIPT,
				      .channel = id_view_of("room", 4),
				      .payload = {.p = (const uint8_t *)"hello", .len = 5},
				      .routes = 4});
	for (uint32_t slot = 0; slot < 4; slot++) {
		wire_put_route(out.p + out.len, slot, 1);
		out.len += WIRE_ROUTE_BYTES;
	}
	return out.len;
}

static int write_client(const char *folder)
{
	uint8_t body[SAMPLE_MAX];
	FILE *f = create(folder, "answers");

	if (f == NULL)
		return 1;
	fputc(1, f);
	for (enum sample_id id = 0; id < S_COUNT; id++)
		put_part(f, samples[id].type, 0, body, sample_body(id, body));
	fclose(f);
	f = create(folder, "publisher_answers");
	if (f == NULL)
		return 1;
	fputc(0, f);
	for (enum sample_id id = 0; id < S_COUNT; id++)
		put_part(f, samples[id].type, 0, body, sample_body(id, body));
	fclose(f);
	f = create(folder, "pushes");
	if (f == NULL)
		return 1;
	fputc(1, f);
	for (uint32_t i = 1; i <= 6; i++)
		put_part(f, WIRE_PUSH, (uint8_t)(i % 2), body, push_body(body, i, 1 + i / 2));
	return fclose(f);
}

int main(int argc, char **argv)
{
	uint8_t p[SAMPLE_MAX];

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: wire_seeds FOLDER [CLIENT_FOLDER]\n");
		return 64;
	}
	for (enum sample_id id = 0; id < S_COUNT; id++) {
		FILE *const f = create(argv[1], samples[id].name);

		if (f == NULL) {
			perror(argv[1]);
			return 1;
		}
		put(f, p, sample_datagram(id, p));
		fclose(f);
	}
	return write_segmented(argv[1], S_PUBLISH, "publish_in_segments") ||
	       write_segmented(argv[1], S_TASK, "task_in_segments") ||
	       write_segmented(argv[1], S_PUSH, "push_in_segments") ||
	       (argc == 3 && write_client(argv[2]));
}
