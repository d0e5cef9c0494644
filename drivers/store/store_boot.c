/* SPDX-License-Identifier: BSD-3-Clause */
// Small durable files and folders of the generations. Thread: the caller's; blocks.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_file.h"
#include "store_gen_pvt.h"

static int path_of(char *path, uint32_t cap, const char *dir, const char *name)
{
	return snprintf(path, cap, "%s/%s", dir, name) >= (int)cap ? -ENAMETOOLONG : 0;
}

static int write_all(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	const ssize_t len = (ssize_t)strlen(text);
	int rc = 0;

	if (fd < 0)
		return -errno;
	errno = ENOSPC;  // what a short write means
	if (write(fd, text, (size_t)len) != len || fsync(fd) != 0)
		rc = -errno;
	if (close(fd) != 0 && rc == 0)
		rc = -errno;
	return rc;
}

int file_replace(const char *dir, const char *name, const char *text)
{
	char path[PATH_BYTES], new_path[PATH_BYTES + 8];
	int rc = path_of(path, sizeof(path), dir, name);

	if (rc != 0)
		return rc;
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	rc = write_all(new_path, text);
	if (rc == 0 && rename(new_path, path) != 0)
		rc = -errno;
	if (rc != 0) {
		unlink(new_path);
		return rc;
	}
	return file_sync_folder(dir);
}

int file_read(const char *dir, const char *name, char *text, uint32_t cap)
{
	char path[PATH_BYTES];
	const int rc = path_of(path, sizeof(path), dir, name);
	ssize_t len;
	int fd;

	text[0] = 0;
	if (rc != 0)
		return rc;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	len = read(fd, text, cap - 1);
	if (len < 0)
		len = -errno;
	else
		text[len] = 0;
	close(fd);
	return (int)len;
}

int dir_remove(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int rc = 0;

	if (d == NULL)
		return errno == ENOENT ? 0 : -errno;
	while (rc == 0 && (e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(d), e->d_name, 0) != 0)
			rc = -errno;
	}
	closedir(d);
	if (rc == 0 && rmdir(dir) != 0)
		rc = -errno;
	return rc;
}

int generation_path(const char *dir, uint64_t number, char *path, uint32_t cap)
{
	return snprintf(path, cap, "%s/%" PRIu64, dir, number) >= (int)cap ? -ENAMETOOLONG : 0;
}

// Out of sight first: a reader that opens it meanwhile finds all of its files or none.
int generation_remove(const char *dir, uint64_t number)
{
	char path[PATH_BYTES], dead[PATH_BYTES];

	if (generation_path(dir, number, path, sizeof(path)) != 0 ||
		snprintf(dead, sizeof(dead), "%s/dead.%" PRIu64, dir, number) >= (int)sizeof(dead))
		return -ENAMETOOLONG;
	if (rename(path, dead) != 0)
		return errno == ENOENT ? 0 : -errno;
	return dir_remove(dead);
}

// --- boot -----------------------------------------------------------------------------------------------

static const char *const state_word[] = {
	[BOOT_UNKNOWN] = "", [BOOT_DIRTY] = "dirty", [BOOT_CLEAN] = "clean", [BOOT_SYNC] = "sync"};

int boot_id_read(char *id, uint32_t cap)
{
	const int len = file_read("/proc/sys/kernel/random", "boot_id", id, cap);

	if (len <= 0)
		return len < 0 ? len : -EIO;
	id[strcspn(id, "\n")] = 0;
	return 0;
}

enum boot_state boot_load(const char *dir, char *boot_id, uint32_t cap)
{
	char text[16 + BOOT_ID_MAX], *space;
	const int len = file_read(dir, "boot", text, sizeof(text));

	boot_id[0] = 0;
	// Whole only with its newline.
	if (len <= 0 || text[len - 1] != '\n' || (space = strchr(text, ' ')) == NULL)
		return BOOT_UNKNOWN;
	text[len - 1] = 0;
	*space = 0;
	if (strlen(space + 1) >= cap)
		return BOOT_UNKNOWN;
	strcpy(boot_id, space + 1);
	for (uint32_t s = BOOT_DIRTY; s <= BOOT_SYNC; s++)
		if (strcmp(text, state_word[s]) == 0)
			return s;
	return BOOT_UNKNOWN;
}

int boot_save(const char *dir, enum boot_state state, const char *boot_id)
{
	char text[16 + BOOT_ID_MAX];

	snprintf(text, sizeof(text), "%s %s\n", state_word[state], boot_id);
	return file_replace(dir, "boot", text);
}

// --- current --------------------------------------------------------------------------------------------

int current_load(const char *dir, uint64_t *number)
{
	char text[32], *end;
	const int len = file_read(dir, "current", text, sizeof(text));

	*number = GEN_NONE;
	if (len < 0)
		return len;
	errno = 0;
	*number = strtoull(text, &end, 10);
	if (text[0] < '1' || text[0] > '9' || errno != 0 || strcmp(end, "\n") != 0) {
		*number = GEN_NONE;
		return -EUCLEAN;
	}
	return 0;
}

int current_save(const char *dir, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64 "\n", number);
	return file_replace(dir, "current", text);
}

int generation_stamp(struct store_tx *tx)
{
	uint64_t random = 0;

	while (random == 0)
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
	return store_set_generation(tx, random >> 1 | 1);
}
