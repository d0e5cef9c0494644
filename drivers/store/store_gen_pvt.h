/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of the generations: small files, folders, and what opening and loading share.
#pragma once

#include "store_gen.h"
#include "store_lmdb_pvt.h"

#define BOOT_ID_MAX 64u
#define GEN_NONE UINT64_C(0)

struct store_gen {
	char dir[PATH_BYTES / 2];
	char boot_id[BOOT_ID_MAX];
	uint64_t map_bytes, cluster_id;
	bool sync;
	int lock_fd;
	uint64_t number;
	uint8_t origin;
	bool loading;
	struct store_lmdb *db;
};

enum boot_state {
	BOOT_UNKNOWN,
	BOOT_DIRTY,  // written without sync by a process of this boot
	BOOT_CLEAN,  // closed after everything was made durable
	BOOT_SYNC,  // every commit is durable
};

// Writes DIR/NAME by way of a temporary file and rename, all of it durable. Returns: 0 or -errno.
int file_replace(const char *dir, const char *name, const char *text);
// Reads a small file. Returns: bytes, text ends with a 0; -errno.
int file_read(const char *dir, const char *name, char *text, uint32_t cap);
// Removes a folder and the files in it. Absent: 0.
int dir_remove(const char *dir);
// Takes a folder DIR/<number> out of sight, then removes it.
int generation_remove(const char *dir, uint64_t number);
int generation_path(const char *dir, uint64_t number, char *path, uint32_t cap);

int boot_id_read(char *id, uint32_t cap);
// What DIR/boot says, and for which boot.
enum boot_state boot_load(const char *dir, char *boot_id, uint32_t cap);
int boot_save(const char *dir, enum boot_state state, const char *boot_id);

// Reads DIR/current. Returns: 0 with the number; -ENOENT; -EUCLEAN: it holds no number; -errno.
int current_load(const char *dir, uint64_t *number);
int current_save(const char *dir, uint64_t number);

// Gives an open store a generation number that was never used. Returns: 0 or -errno.
int generation_stamp(struct store_tx *tx);
