/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the map of the bench. One thread.
#include "store_bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t packed[ENTRY_BYTES_MAX];

void store_bench_open(struct store_bench *b)
{
	struct store_tx tx;
	const char *why;

	memset(b, 0, sizeof(*b));
	b->limits = (struct store_limits){
		.journal_commits = 1000, .dedup_commits = 100, .stages = 4, .stage_commits = 100};
	b->map = store_map_create();
	if (b->map == NULL)
		abort();
	store_map_begin(b->map, &tx);
	if (store_open(&tx, 7, &why) != 0)
		abort();
	store_map_commit(b->map, &tx);
}

void store_bench_close(struct store_bench *b)
{
	store_map_destroy(b->map);
}

static void pack(struct store_command *cmd, const char *uid, size_t len)
{
	if (len > ID_LEN_MAX || cmd->uids_bytes + len + 1 > sizeof(packed))
		abort();
	packed[cmd->uids_bytes] = (uint8_t)len;
	memcpy(packed + cmd->uids_bytes + 1, uid, len);
	cmd->uids_bytes += 1u + (uint32_t)len;
	cmd->uid_count++;
}

struct store_command store_bench_command(uint8_t op, const char *chan, const char *uids)
{
	struct store_command cmd = {.op = op, .uids = packed};

	channel_key_set(&cmd.channel, CHANNEL_GROUP, chan, (uint8_t)strlen(chan));
	while (uids != NULL && *uids != 0) {
		const size_t len = strcspn(uids, " ");

		if (len > 0)
			pack(&cmd, uids, len);
		uids += len + (uids[len] == ' ');
	}
	return cmd;
}

static void on_delta(void *ctx, const struct store_delta *d)
{
	struct store_bench *b = ctx;
	const uint8_t *p = d->uids;
	struct id_view uid;
	size_t at = 0;

	b->deltas++;
	b->delta = *d;
	b->delta.uids = NULL;
	b->delta_uids[0] = 0;
	while (store_uids_next(&p, d->uids + d->uids_bytes, &uid) &&
		at + uid.len + 2u < sizeof(b->delta_uids)) {
		at += (size_t)snprintf(b->delta_uids + at, sizeof(b->delta_uids) - at, "%s%.*s",
			at == 0 ? "" : " ", uid.len, (const char *)uid.bytes);
	}
}

struct store_result store_bench_apply(struct store_bench *b, const struct store_command *cmd)
{
	static uint8_t data[ENTRY_BYTES_MAX];
	const int len = store_command_encode(cmd, data, sizeof(data));
	struct store_tx tx;

	memset(&b->result, 0, sizeof(b->result));
	b->deltas = 0;
	b->rc = len;
	if (len < 0)
		return b->result;
	store_map_begin(b->map, &tx);
	b->rc = store_apply(
		&tx, &b->limits, b->index + 1, data, (uint32_t)len, &b->result, 1, on_delta, b);
	if (b->rc < 0) {
		store_map_abort(b->map, &tx);
	} else {
		store_map_commit(b->map, &tx);
		b->index++;
	}
	return b->result;
}

struct store_result store_bench_do(
	struct store_bench *b, uint8_t op, const char *chan, const char *uids)
{
	const struct store_command cmd = store_bench_command(op, chan, uids);

	return store_bench_apply(b, &cmd);
}

struct store_result store_bench_stage(struct store_bench *b, uint64_t stage_id, uint8_t staged_op,
	const char *chan, const char *uids)
{
	struct store_command cmd = store_bench_command(STORE_STAGE, chan, uids);

	cmd.stage_id = stage_id;
	cmd.staged_op = staged_op;
	return store_bench_apply(b, &cmd);
}

struct store_result store_bench_close_stage(
	struct store_bench *b, uint64_t stage_id, uint8_t staged_op, const char *chan)
{
	struct store_command cmd = store_bench_command(STORE_CLOSE, chan, NULL);

	cmd.stage_id = stage_id;
	cmd.staged_op = staged_op;
	return store_bench_apply(b, &cmd);
}

struct store_result store_bench_large(struct store_bench *b, uint64_t stage_id, uint8_t staged_op,
	const char *chan, const char *prefix, uint32_t first, uint32_t count)
{
	const uint32_t end = first + count;

	while (first < end) {
		struct store_command cmd = store_bench_command(STORE_STAGE, chan, NULL);

		cmd.stage_id = stage_id;
		cmd.staged_op = staged_op;
		for (; cmd.uid_count < 4000 && first < end; first++) {
			char uid[32];
			const int len = snprintf(uid, sizeof(uid), "%s%07u", prefix, first);

			pack(&cmd, uid, (size_t)len);
		}
		store_bench_apply(b, &cmd);
		if (b->rc < 0 || b->result.code != STORE_R_OK)
			return b->result;
	}
	return store_bench_close_stage(b, stage_id, staged_op, chan);
}

int store_bench_compact(struct store_bench *b, uint32_t steps)
{
	struct store_tx tx;

	store_map_begin(b->map, &tx);

	const int rc = store_compact(&tx, &b->limits, steps);

	if (rc < 0)
		store_map_abort(b->map, &tx);
	else
		store_map_commit(b->map, &tx);
	return rc;
}

const char *store_bench_list(struct store_bench *b, const char *chan, enum store_list list)
{
	static char text[65536];
	static uint8_t uids[32768];
	const struct store_command name = store_bench_command(STORE_ADD, chan, NULL);
	struct store_page page = {0};
	struct store_tx tx;
	size_t at = 0;

	text[0] = 0;
	store_map_read(b->map, &tx);
	do {
		uint8_t next[ID_LEN_MAX];
		const uint8_t next_len = page.next_len;
		const uint8_t *p = uids;
		struct id_view uid;

		memcpy(next, page.next, next_len);

		const int rc = store_read_page(&tx, &name.channel, list, id_view_of(next, next_len),
			1000, uids, sizeof(uids), &page);

		if (rc != 0)
			return rc == -ENOENT ? "-" : "fault";
		while (store_uids_next(&p, uids + page.bytes_used, &uid) &&
			at + uid.len + 2u < sizeof(text))
			at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%.*s",
				at == 0 ? "" : " ", uid.len, (const char *)uid.bytes);
	} while (!page.last);
	return text;
}

struct store_channel store_bench_channel(struct store_bench *b, const char *chan)
{
	const struct store_command name = store_bench_command(STORE_ADD, chan, NULL);
	struct store_channel channel;
	struct store_tx tx;

	memset(&channel, 0, sizeof(channel));
	store_map_read(b->map, &tx);
	if (store_read_channel(&tx, &name.channel, &channel) != 0)
		memset(&channel, 0, sizeof(channel));
	return channel;
}

struct store_position store_bench_position(struct store_bench *b)
{
	struct store_position pos;
	struct store_tx tx;

	memset(&pos, 0, sizeof(pos));
	store_map_read(b->map, &tx);
	if (store_read_position(&tx, &pos) != 0)
		abort();
	return pos;
}
