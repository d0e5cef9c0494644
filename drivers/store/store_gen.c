/* SPDX-License-Identifier: BSD-3-Clause */
// Opening and closing the current generation, and giving up what cannot be trusted.
// Thread: the owner's.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_file.h"
#include "base_log.h"
#include "store_gen_pvt.h"

const char *store_gen_origin_name(enum store_gen_origin origin)
{
	static const char *const name[] = {
		[STORE_GEN_FOUND] = "found",
		[STORE_GEN_NEW] = "new",
		[STORE_GEN_BOOT] = "given_up_after_boot",
		[STORE_GEN_DAMAGED] = "given_up_damaged",
		[STORE_GEN_LOADED] = "loaded",
	};

	return (uint32_t)origin < sizeof(name) / sizeof(name[0]) ? name[origin] : "unknown";
}

static int lock_dir(struct store_gen *g, const char **why)
{
	char path[PATH_BYTES];

	if (mkdir(g->dir, 0700) != 0 && errno != EEXIST)
		return lmdb_fail(why, -errno, g->dir, "cannot create the folder", strerror(errno));
	snprintf(path, sizeof(path), "%s/lock", g->dir);
	g->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (g->lock_fd < 0)
		return lmdb_fail(why, -errno, path, "cannot open", strerror(errno));
	if (flock(g->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return lmdb_fail(why, errno == EWOULDBLOCK ? -EBUSY : -errno, path, "cannot lock",
			errno == EWOULDBLOCK ? "another process writes this store"
					     : strerror(errno));
	return 0;
}

// The highest number of any folder there.
static uint64_t highest(const char *dir)
{
	DIR *d = opendir(dir);
	uint64_t max = 0;
	struct dirent *e;

	if (d == NULL)
		return 0;
	while ((e = readdir(d)) != NULL) {
		char *end;
		const uint64_t n = strtoull(e->d_name, &end, 10);

		if (*end == 0 && n > max)
			max = n;
	}
	closedir(d);
	return max;
}

// Removes every generation but the current one, and what is left of removing others.
static void sweep(const struct store_gen *g)
{
	DIR *d = opendir(g->dir);
	struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		char path[PATH_BYTES], *end;
		const uint64_t n = strtoull(e->d_name, &end, 10);
		int rc = 0;

		if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && *end == 0 && n != g->number)
			rc = generation_remove(g->dir, n);
		else if (strncmp(e->d_name, "dead.", 5) == 0 &&
			 snprintf(path, sizeof(path), "%s/%s", g->dir, e->d_name) <
				 (int)sizeof(path))
			rc = dir_remove(path);
		if (rc != 0)
			LOG(LOG_WARN, "store", "SWEEP", "%s/%s: cannot remove: %s", g->dir,
				e->d_name, strerror(-rc));
	}
	closedir(d);
}

// Formats a new store or checks what is there.
static int format(struct store_gen *g, bool fresh, const char *path, const char **why)
{
	const char *reason = "cannot read it";
	struct store_tx tx;
	int rc = store_lmdb_begin(g->db, &tx);

	if (rc != 0)
		return lmdb_fail(why, rc, path, "cannot begin", strerror(-rc));
	rc = store_open(&tx, g->cluster_id, &reason);
	if (rc == 0 && fresh)
		rc = generation_stamp(&tx);
	if (rc != 0) {
		store_lmdb_abort(g->db, &tx);
		return lmdb_fail(why, rc, path, "cannot open", reason);
	}
	rc = store_lmdb_commit(g->db, &tx);
	return rc == 0 ? 0 : lmdb_fail(why, rc, path, "cannot commit", strerror(-rc));
}

static int open_number(struct store_gen *g, bool fresh, const char **why)
{
	char path[PATH_BYTES];
	int rc = generation_path(g->dir, g->number, path, sizeof(path));

	if (rc != 0)
		return lmdb_fail(why, rc, g->dir, "cannot open", "the path is too long");
	if (!fresh && access(path, F_OK) != 0)
		return lmdb_fail(why, -ENOENT, path, "cannot open", "the folder is gone");
	rc = store_lmdb_open(path, g->map_bytes, true, g->sync, &g->db, why);
	if (rc != 0)
		return rc;
	rc = format(g, fresh, path, why);
	// What an earlier life wrote without sync is made durable before it counts as that.
	if (rc == 0 && (g->sync || fresh))
		rc = store_lmdb_sync(g->db);
	if (rc == 0)
		rc = boot_save(path, g->sync ? BOOT_SYNC : BOOT_DIRTY, g->boot_id);
	if (rc == 0 && fresh)
		rc = file_sync_folder(path);
	if (rc != 0 && g->db != NULL) {
		store_lmdb_close(g->db);
		g->db = NULL;
	}
	return rc;
}

static int open_new(struct store_gen *g, uint8_t origin, const char **why)
{
	int rc;

	g->number = highest(g->dir) + 1;
	g->origin = origin;
	rc = open_number(g, true, why);
	if (rc != 0)
		return rc;
	rc = current_save(g->dir, g->number);
	if (rc != 0)
		lmdb_fail(why, rc, g->dir, "cannot write `current`", strerror(-rc));
	return rc;
}

// May the generation be used as it lies there?
static bool trusted(const struct store_gen *g)
{
	char path[PATH_BYTES], boot_id[BOOT_ID_MAX];

	if (generation_path(g->dir, g->number, path, sizeof(path)) != 0)
		return false;
	switch (boot_load(path, boot_id, sizeof(boot_id))) {
	case BOOT_CLEAN:
	case BOOT_SYNC:
		return true;
	case BOOT_DIRTY:
		return strcmp(boot_id, g->boot_id) == 0;
	case BOOT_UNKNOWN:
		break;
	}
	return false;
}

static int open_current(struct store_gen *g, const char **why)
{
	int rc = current_load(g->dir, &g->number);

	if (rc == -ENOENT)
		return open_new(g, STORE_GEN_NEW, why);
	if (rc != 0 && rc != -EUCLEAN)
		return lmdb_fail(why, rc, g->dir, "cannot read `current`", strerror(-rc));
	if (rc == 0 && !trusted(g)) {
		if (g->sync)
			return lmdb_fail(why, -EUCLEAN, g->dir, "cannot open",
				"it was written without sync and not closed cleanly");
		LOG(LOG_WARN, "store", "GIVEN_UP",
			"%s/%" PRIu64 ": not closed cleanly before the machine stopped: made anew",
			g->dir, g->number);
		return open_new(g, STORE_GEN_BOOT, why);
	}
	g->origin = STORE_GEN_FOUND;
	if (rc == 0)
		rc = open_number(g, false, why);
	else
		lmdb_fail(why, rc, g->dir, "cannot open", "`current` holds no number");
	if (g->sync || (rc != -EUCLEAN && rc != -ENOENT))
		return rc;
	LOG(LOG_WARN, "store", "GIVEN_UP", "%s: made anew", *why);
	return open_new(g, STORE_GEN_DAMAGED, why);
}

int store_gen_open(const struct store_gen_params *params, struct store_gen **gen, const char **why)
{
	struct store_gen *g = calloc(1, sizeof(*g));
	int rc = 0;

	*gen = NULL;
	if (g == NULL)
		return lmdb_fail(why, -ENOMEM, params->dir, "cannot open", "no memory");
	g->lock_fd = -1;
	g->map_bytes = params->map_bytes;
	g->cluster_id = params->cluster_id;
	g->sync = params->sync;
	if (snprintf(g->dir, sizeof(g->dir), "%s", params->dir) >= (int)sizeof(g->dir))
		rc = lmdb_fail(
			why, -ENAMETOOLONG, params->dir, "cannot open", "the path is too long");
	if (params->boot_id != NULL)
		snprintf(g->boot_id, sizeof(g->boot_id), "%s", params->boot_id);
	else if (rc == 0 && (rc = boot_id_read(g->boot_id, sizeof(g->boot_id))) != 0)
		lmdb_fail(why, rc, "/proc/sys/kernel/random/boot_id", "cannot read", strerror(-rc));
	if (rc == 0)
		rc = lock_dir(g, why);
	if (rc == 0)
		rc = open_current(g, why);
	if (rc != 0) {
		store_gen_abandon(g);
		return rc;
	}
	sweep(g);
	*gen = g;
	return 0;
}

void store_gen_abandon(struct store_gen *gen)
{
	if (gen == NULL)
		return;
	store_lmdb_close(gen->db);
	if (gen->lock_fd >= 0)
		close(gen->lock_fd);
	free(gen);
}

int store_gen_close(struct store_gen *gen)
{
	char path[PATH_BYTES];
	int rc;

	if (gen == NULL)
		return 0;
	rc = store_lmdb_sync(gen->db);
	if (rc == 0)
		rc = generation_path(gen->dir, gen->number, path, sizeof(path));
	if (rc == 0 && !gen->sync)
		rc = boot_save(path, BOOT_CLEAN, gen->boot_id);
	store_gen_abandon(gen);
	return rc;
}

struct store_lmdb *store_gen_db(struct store_gen *gen)
{
	return gen->db;
}

void store_gen_info(const struct store_gen *gen, struct store_gen_info *info)
{
	info->number = gen->number;
	info->origin = gen->origin;
}
