/* SPDX-License-Identifier: BSD-3-Clause */
// The replicated state as one stream of bytes, and back. What every node agrees on is in it; the journal is
// left out (subscribers of another generation read the store again) and so is the generation.
//
// Stream, little-endian, a multiple of 8 bytes:
//   0 "TCSNAP\r\n"   8 u32 version   12 u32 format of the store   16 u64 cluster id   24 u64 applied
//   32 u64 commit   40 u64 chain   48 u64 dedup_commits   56 u64 stage_commits   64 u32 stages
//   68 u32 fold_rows   72 u64 zero
//   80 for each table but the journal, in the order of enum store_table: u8 table + 1, rows, u8 0
//   then u8 0, zeros up to a multiple of 8
//   last 32: u64 rows   u64 bytes of all of it   "TCSNEND\n"   u32 zero   u32 CRC-32C of all before
// Row, in key order: length of the suffix (never 0), length of what it shares with the key before, as long
// as can be, the suffix, 0 when the value is that of the row before, else 1 + length and the value.
// Numbers of rows are LEB128.
//
// How a consensus engine's snapshot calls map onto this (cons_events):
//   snapshot_begin   store_lmdb_walker_open(db, &walker), in the turn of the last commit
//   snapshot_encode  store_lmdb_walker_tx(walker, &tx); store_snapshot_encode(&tx, &limits, &sink, NULL);
//                    store_lmdb_walker_end(walker)
//   snapshot_end     store_lmdb_walker_close(walker)
//   snapshot_check   store_snapshot_check(bytes, len, &info, &why), then store_snapshot_fits
//   restore_begin    store_gen_load_begin(gen, bytes, len, &load), queue a pool job that calls
//                    store_gen_load_step(load) until it is not 0
//   restore_turn     after the job: store_gen_finish(gen, load, &old); the pool calls store_gen_drop(old)
#pragma once

#include "store.h"

#define STORE_SNAPSHOT_CHUNK (1u << 20)  // bytes the sink gets at once, at most
#define STORE_SNAPSHOT_BYTES_MIN 128u

// Where the bytes go. Returns: 0 or -errno, which ends the encoding.
struct store_snapshot_sink {
	int (*write)(void *ctx, const uint8_t *bytes, uint64_t len);
	void *ctx;
};

struct store_snapshot_info {
	uint64_t cluster_id, applied, commit, chain;
	struct store_limits limits;  // those that decide results; journal_commits is 0
	uint64_t rows, bytes;
};

// Writes what `tx` sees. `limits`: those the state was made with. `info` may be NULL.
// Context: any thread; allocates STORE_SNAPSHOT_CHUNK; the transaction is read in one walk.
// Returns: 0; -ENOMEM; -EUCLEAN: the store is damaged; what the sink or the backend answered.
int store_snapshot_encode(struct store_tx *tx, const struct store_limits *limits,
	const struct store_snapshot_sink *sink, struct store_snapshot_info *info);

// May this store take that snapshot: of its cluster, and made under the limits it runs with? Returns: 0;
// -EPROTO with a text in `why`.
int store_snapshot_fits(const struct store_snapshot_info *info, uint64_t cluster_id,
	const struct store_limits *limits, const char **why);

// The rows of a stream, one after the other; part of the two structs below.
struct store_snapshot_rows {
	const uint8_t *p, *end;
	uint8_t table;  // enum store_table
	bool began, ended;
	uint64_t rows;
	uint32_t key_len;
	uint8_t key[512];
	struct store_bytes value;
};

// Looks at a whole stream in steps of bounded work: header, CRC, then every row. Reads nothing outside
// of the bytes, whatever they are, and ends after a number of steps that their length bounds.
struct store_snapshot_check {
	const uint8_t *bytes;
	uint64_t len, crc_at;
	uint32_t crc;
	uint8_t seen;  // rows of META
	struct store_snapshot_info info;
	struct store_snapshot_rows rows;
};
// Returns: 0; -EPROTO: a newer version; -EUCLEAN: no snapshot; with `why`.
int store_snapshot_check_begin(
	struct store_snapshot_check *check, const uint8_t *bytes, uint64_t len, const char **why);
// Looks at about `budget` bytes more. Returns: 1 all is well; 0: more to do; -EUCLEAN with `why`.
int store_snapshot_check_step(
	struct store_snapshot_check *check, uint32_t budget, const char **why);
// All of it at once. Returns: 0 with `info`, or as above.
int store_snapshot_check(
	const uint8_t *bytes, uint64_t len, struct store_snapshot_info *info, const char **why);

// Fills empty tables from a stream, after checking it. `bytes` stay the caller's and as they are.
struct store_snapshot_load {
	struct store_snapshot_check check;
	bool checked;
	struct store_snapshot_rows rows;
};
int store_snapshot_load_begin(
	struct store_snapshot_load *load, const uint8_t *bytes, uint64_t len, const char **why);
// Writes about `rows` rows (or checks as many). Each call may have a transaction of its own, committed in
// order; nothing may use the store before the last. Afterwards the generation is 0: store_set_generation.
// Returns: 1 done; 0: more to do; -EUCLEAN with `why`; -EEXIST: a table was not empty; other -errno: of the
// backend.
int store_snapshot_load_step(
	struct store_snapshot_load *load, struct store_tx *tx, uint32_t rows, const char **why);
