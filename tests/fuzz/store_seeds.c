/* SPDX-License-Identifier: BSD-3-Clause */
// Writes the first corpora of the store's targets: store_seeds FOLDER-OF-COMMANDS FOLDER-OF-SNAPSHOTS
#include <stdio.h>
#include <string.h>

#include "store_bench.h"
#include "store_cluster.h"
#include "store_snapshot.h"

static const char *folder;

static int file_write(void *ctx, const uint8_t *bytes, uint64_t len)
{
	return fwrite(bytes, 1, len, ctx) == len ? 0 : -1;
}

static int put(const char *name, const uint8_t *p, int len)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "wb");
	if (f == NULL || len < 0 || file_write(f, p, (uint64_t)len) != 0)
		return 1;
	return fclose(f);
}

static int put_snapshot(struct store_bench *b, const char *name)
{
	char path[512];
	struct store_tx tx;
	int rc;

	snprintf(path, sizeof(path), "%s/%s", folder, name);

	FILE *f = fopen(path, "wb");
	const struct store_snapshot_sink sink = {file_write, f};

	if (f == NULL)
		return 1;
	store_map_read(b->map, &tx);
	rc = store_snapshot_encode(&tx, &b->limits, &sink, NULL);
	return fclose(f) | rc;
}

static uint8_t body[STORE_BODY_MAX], data[ENTRY_BYTES_MAX];

static int put_command(struct store_bench *b, const char *name, struct store_command *cmd)
{
	int rc;

	store_dedup_key(cmd->dedup, 0, b->index + 1);
	rc = put(name, data, store_command_encode(cmd, data, sizeof(data)));
	store_bench_apply(b, cmd);
	return rc | (b->result.code != STORE_R_OK);
}

static int put_commands(struct store_bench *b)
{
	const struct store_node node = {
		.id = 1, .address_len = 6, .address = {'h', 'o', 's', 't', ':', '1'}};
	const struct store_slot slot = {
		.slot = 1, .leader = 1, .term = 1, .config_epoch = 1, .peer_count = 1, .peer = {1}};
	const struct store_hash_slots table = {.count = 4, .slot_of = {1, 1, 1, 1}};
	struct store_runtime runtime = {.leader = 1,
		.channel_epoch = 1,
		.replica_count = 1,
		.replica = {1},
		.isr_count = 1,
		.isr = {1}};
	struct store_command cmd;
	int rc;

	channel_key_set(&runtime.channel, CHANNEL_GROUP, "g", 1);
	store_command_node(&cmd, &node, body);
	rc = put_command(b, "node", &cmd);
	store_command_node_state(&cmd, 1, STORE_NODE_ACTIVE, 0);
	rc |= put_command(b, "node-state", &cmd);
	store_command_slot(&cmd, &slot, body);
	rc |= put_command(b, "slot", &cmd);
	store_command_hash_slots(&cmd, &table, 0, body);
	rc |= put_command(b, "hash-slots", &cmd);
	store_command_runtime(&cmd, &runtime, body);
	return rc | put_command(b, "runtime", &cmd);
}

// The deltas that the commands left, as they lie in the journal.
static int put_deltas(struct store_bench *b)
{
	struct store_delta d;
	struct store_tx tx;
	int rc = 0;

	store_map_read(b->map, &tx);
	for (uint64_t n = 0; store_read_delta(&tx, n, &d) == 0; n++) {
		char name[32];

		snprintf(name, sizeof(name), "delta-%u", d.kind);
		rc |= put(name, data, store_delta_encode(&d, data, sizeof(data)));
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct store_bench b;
	int rc;

	if (argc != 3)
		return 2;
	store_bench_open(&b);
	folder = argv[2];
	rc = put_snapshot(&b, "empty");
	folder = argv[1];
	rc |= put_commands(&b) | put_deltas(&b);
	folder = argv[2];
	rc |= put_snapshot(&b, "cluster");
	store_bench_do(&b, STORE_ADD, "g", "a b c u1 u10 u11");
	store_bench_do(&b, STORE_REMOVE, "g", "b");
	store_bench_stage(&b, 7, STORE_ADD, "staged", "x y z");
	rc |= put_snapshot(&b, "members");
	b.limits.fold_rows = 1;
	store_bench_close_stage(&b, 7, STORE_ADD, "staged");
	store_bench_stage(&b, 8, STORE_REMOVE, "g", "a c u1");
	store_bench_close_stage(&b, 8, STORE_REMOVE, "g");
	store_bench_do(&b, STORE_RESET, "staged", "x w");
	rc |= put_snapshot(&b, "layers");
	store_bench_close(&b);
	return rc;
}
