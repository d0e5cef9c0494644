/* SPDX-License-Identifier: BSD-3-Clause */
// Generations of the store: folders DIR/<N> of which DIR/current names the one in use, a new one built
// beside it while it goes on being used, then swapped in. One process owns DIR.
//
// Without sync the newest commits may be lost, and pages torn, when the machine (not only the process)
// stops: such a generation is trusted only when the machine has not been started anew since, or when it
// was closed cleanly. Otherwise, and when it does not open, it is given up: the store starts empty and its
// owner rebuilds it from a snapshot and the log. DIR/<N>/boot keeps which it is.
//
//   store_gen_open(&params, &gen, &why)           start; store_gen_db(gen) is the store
//   store_gen_load_begin(gen, bytes, len, &load)  a snapshot arrived
//   while ((rc = store_gen_load_step(load)) == 0) in a pool thread
//   store_gen_finish(gen, load, &old)             loop: store_gen_db(gen) is the new store
//   store_gen_drop(old)                           in a pool thread, again later on -EBUSY
//   store_gen_close(gen)                          stop
#pragma once

#include "store_lmdb.h"

struct store_gen_params {
	const char *dir;  // created 0700 when absent; the folder above it exists
	uint64_t map_bytes;
	uint64_t cluster_id;
	bool sync;  // every commit is durable: nothing is ever given up
	const char *boot_id;  // NULL: that of the running kernel
};

struct store_gen;

// Opens the current generation for writing, or makes one. Context: the owner's thread, blocks.
// Returns: 0; -errno with `why` valid until the thread's next open: -EBUSY: another process owns it;
// -EPROTO: of another cluster, or newer; -EUCLEAN: damaged (with sync only); others as store_lmdb_open.
int store_gen_open(const struct store_gen_params *params, struct store_gen **gen, const char **why);
// Makes all durable, says so in `boot`, closes. No walker may be open. Returns: 0, or the first -errno
// (the generation will be given up or read as it is by the next open; everything is freed).
int store_gen_close(struct store_gen *gen);
// Closes as a crash would: nothing is made durable.
void store_gen_abandon(struct store_gen *gen);

// The store in use; another one after store_gen_finish.
struct store_lmdb *store_gen_db(struct store_gen *gen);

enum store_gen_origin {
	STORE_GEN_FOUND,  // opened as it was
	STORE_GEN_NEW,  // there was none
	STORE_GEN_BOOT,  // given up: the machine was started anew and it was not closed cleanly
	STORE_GEN_DAMAGED,  // given up: it did not open
	STORE_GEN_LOADED,  // built from a snapshot in this life
};
const char *store_gen_origin_name(enum store_gen_origin origin);
struct store_gen_info {
	uint64_t number;  // N
	uint8_t origin;  // enum store_gen_origin
};
void store_gen_info(const struct store_gen *gen, struct store_gen_info *info);

// --- a new generation -----------------------------------------------------------------------------------

struct store_gen_load;
struct store_gen_old;

// Prepares the loading of a snapshot into a new generation; touches no disk. `bytes` stay as they are until
// the load is finished or cancelled. One at a time. Context: the owner's thread.
// Returns: 0; -EBUSY: another is going on; -ENOMEM; -EPROTO: of another cluster or version; -EUCLEAN;
// with `why`.
int store_gen_load_begin(struct store_gen *gen, const uint8_t *bytes, uint64_t len,
	struct store_gen_load **load, const char **why);
// A bounded piece: some ten thousand rows, or the syncs at the end, the last of which makes the new
// generation the current one on disk. Context: any one thread at a time; blocks.
// Returns: 0 more to do; 1 done; -errno: store_gen_load_why says why, only cancel may follow.
int store_gen_load_step(struct store_gen_load *load);
const char *store_gen_load_why(const struct store_gen_load *load);
// Rows loaded so far; while another thread steps, a number of a moment ago.
uint64_t store_gen_load_rows(const struct store_gen_load *load);
// Swaps the loaded generation in; frees `load`. Returns the former one. No transaction of the owner's may
// be open; walkers of the former store may. Context: the owner's thread; never blocks.
void store_gen_finish(
	struct store_gen *gen, struct store_gen_load *load, struct store_gen_old **old);
// Gives the load up and removes its files, unless the last step made it the current one: then -EBUSY, and
// finish must follow. Context: the owner's thread while no step runs; blocks.
int store_gen_load_cancel(struct store_gen *gen, struct store_gen_load *load);

// Closes a former generation and removes its folder. What other processes still map of it stays readable to
// them until they let go. Context: any one thread; blocks. Returns: 0; -EBUSY: a walker is not closed yet.
int store_gen_drop(struct store_gen_old *old);
