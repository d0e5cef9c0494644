/* SPDX-License-Identifier: BSD-3-Clause */
// The folder, the library's file and the disk, as far as they can be judged without running the library:
// its version, our lock, free space and the ballast, files that must not be loaded. Context: the loop,
// at start; blocks.
#include "raft_pvt.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"

#define FILES_NAME_MAX 256
#define SPACE_LOOK_NS (10 * NS_PER_S)

// --- library ------------------------------------------------------------------------------------------------

// 0.15.0 tells its version nowhere: its file name does, and that it lacks what later ones have.
enum raft_cons_refusal files_library(struct raft_cons *c, const char **why)
{
	static const char *const later[] = {"raft_version_number",
		"raft_uv_tcp_set_connect_timeout", "raft_step", "raft_uv_set_snapshot_size_limit"};
	// Not found: linked in, and so what the build asked for.
	const void *symbol = dlsym(RTLD_DEFAULT, "raft_uv_set_auto_recovery");
	char real[PATH_MAX], *name;
	Dl_info info;

	for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
		if (dlsym(RTLD_DEFAULT, later[i]) != NULL)
			return core_refuse(c, RAFT_REFUSED_LIBRARY, why,
				"libraft is later than 0.15.0: it has %s", later[i]);
	if (symbol == NULL)
		return RAFT_REFUSED_NOT;
	if (dladdr(symbol, &info) == 0 || info.dli_fname == NULL ||
		realpath(info.dli_fname, real) == NULL)
		return core_refuse(c, RAFT_REFUSED_LIBRARY, why, "libraft's file cannot be found");
	name = strrchr(real, '/');
	name = name == NULL ? real : name + 1;
	if (strcmp(name, "libraft.so.2.0.0") != 0)
		return core_refuse(c, RAFT_REFUSED_LIBRARY, why,
			"%s is not the library this was tested with (0.15.0, libraft.so.2.0.0)",
			real);
	return RAFT_REFUSED_NOT;
}

// --- lock ---------------------------------------------------------------------------------------------------

enum raft_cons_refusal files_lock(struct raft_cons *c, const char **why)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/lock", c->dir);
	c->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (c->lock_fd < 0)
		return core_refuse(c, errno == ENOSPC ? RAFT_REFUSED_SPACE : RAFT_REFUSED_FAULT,
			why, "%s: %s", path, strerror(errno));
	if (flock(c->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return core_refuse(c,
			errno == EWOULDBLOCK ? RAFT_REFUSED_LOCKED : RAFT_REFUSED_FAULT, why,
			"%s: %s", path,
			errno == EWOULDBLOCK ? "another process has the folder" : strerror(errno));
	return RAFT_REFUSED_NOT;
}

// --- space --------------------------------------------------------------------------------------------------

static int space_of(const char *dir, uint64_t *free_bytes, uint64_t *all_bytes)
{
	struct statvfs fs;

	if (statvfs(dir, &fs) != 0)
		return -errno;
	*free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	*all_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
	return 0;
}

static void keep_ballast(struct raft_cons *c, uint64_t free_bytes)
{
	int fd;

	if (c->ballast[0] == 0 || free_bytes < 2 * RAFT_BALLAST_BYTES + RAFT_SPACE_NEED_BYTES ||
		access(c->ballast, F_OK) == 0)
		return;
	fd = open(c->ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (posix_fallocate(fd, 0, (off_t)RAFT_BALLAST_BYTES) != 0)
		unlink(c->ballast);
	close(fd);
}

static void alarm_space(struct raft_cons *c, uint64_t free_bytes, uint64_t all_bytes)
{
	const bool low = free_bytes < all_bytes / 100 * RAFT_SPACE_ALARM_PERCENT;

	if (low && !c->space_alarm)
		LOG(LOG_WARN, "raft", "RAFT_SPACE", "%llu of %llu MiB are free for %s",
			(unsigned long long)(free_bytes >> 20),
			(unsigned long long)(all_bytes >> 20), c->dir);
	c->space_alarm = low;
}

enum raft_cons_refusal files_space(struct raft_cons *c, const char **why)
{
	uint64_t free_bytes = 0, all_bytes = 0;
	int rc = space_of(c->dir, &free_bytes, &all_bytes);

	if (rc == 0 && free_bytes < RAFT_SPACE_NEED_BYTES && c->ballast[0] != 0 &&
		unlink(c->ballast) == 0) {
		LOG(LOG_WARN, "raft", "RAFT_BALLAST", "the disk is full: gave %s back", c->ballast);
		rc = space_of(c->dir, &free_bytes, &all_bytes);
	}
	if (rc != 0)
		return core_refuse(
			c, RAFT_REFUSED_FAULT, why, "free space of %s: %s", c->dir, strerror(-rc));
	if (free_bytes < RAFT_SPACE_NEED_BYTES)
		return core_refuse(c, RAFT_REFUSED_SPACE, why,
			"%llu MiB are free for %s, %llu are needed",
			(unsigned long long)(free_bytes >> 20), c->dir,
			(unsigned long long)(RAFT_SPACE_NEED_BYTES >> 20));
	alarm_space(c, free_bytes, all_bytes);
	keep_ballast(c, free_bytes);
	return RAFT_REFUSED_NOT;
}

void files_space_look(struct raft_cons *c, uint64_t now_ns)
{
	uint64_t free_bytes = 0, all_bytes = 0;

	if (now_ns < c->space_ns)
		return;
	c->space_ns = now_ns + SPACE_LOOK_NS;
	if (space_of(c->dir, &free_bytes, &all_bytes) == 0) {
		alarm_space(c, free_bytes, all_bytes);
		keep_ballast(c, free_bytes);
	}
}

// --- the library's files ------------------------------------------------------------------------------------

static bool is_of_library(const char *name)
{
	unsigned long long first, last;
	int end = -1;

	return strncmp(name, "metadata", 8) == 0 || strncmp(name, "open-", 5) == 0 ||
	       strncmp(name, "snapshot-", 9) == 0 || strncmp(name, "tmp-", 4) == 0 ||
	       (sscanf(name, "%llu-%llu%n", &first, &last, &end) == 2 && name[end] == 0);
}

static int each_of_library(
	const char *dir, int (*each)(int fd, const char *name, void *ctx), void *ctx)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	int count = 0, rc = 0;

	if (d == NULL)
		return -errno;
	while (rc == 0 && (entry = readdir(d)) != NULL)
		if (is_of_library(entry->d_name)) {
			count++;
			rc = each == NULL ? 0 : each(dirfd(d), entry->d_name, ctx);
		}
	closedir(d);
	return rc != 0 ? rc : count;
}

int files_of_library(const char *dir)
{
	return each_of_library(dir, NULL, NULL);
}

static int remove_one(int fd, const char *name, void *ctx)
{
	(void)ctx;
	return unlinkat(fd, name, 0) == 0 ? 0 : -errno;
}

int files_remove_library(const char *dir)
{
	const int rc = each_of_library(dir, remove_one, NULL);

	return rc < 0 ? rc : 0;
}

// Does the file, `len` bytes of it, end with a batch of entries? Layout (libraft, raft/uv.h): u64 format 1,
// then batches of u32 and u32 checksums, u64 count n, n times {u64 term, u8 type, 3 unused, u32 length} and
// the entries' bytes.
static bool ends_with_batch(const uint8_t *p, size_t len)
{
	size_t at = 8;

	while (at < len) {
		uint64_t count, need = 16;

		if (len - at < 16)
			return false;
		memcpy(&count, p + at + 8, sizeof(count));
		if (count == 0 || count > (len - at - 16) / 16)
			return false;
		for (uint64_t i = 0; i < count; i++) {
			uint32_t bytes;

			memcpy(&bytes, p + at + 16 + 16 * i + 12, sizeof(bytes));
			need += 16 + (uint64_t)bytes;
		}
		if (need > len - at)
			return false;
		at += need;
	}
	return at == len;
}

static bool all_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

// An open log file is made at its full size before anything is in it, and cut to what is in it before it gets
// its final name: a process may end between the two. The library falls over one that ends inside a batch.
// (Nothing but zeros, or nothing at all: it ended while the file was being made.)
static int check_open_segment(int fd)
{
	struct stat st;
	uint8_t *all;
	ssize_t n;
	int rc;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (st.st_size >= (off_t)RAFT_SEGMENT_BYTES || st.st_size == 0)
		return 0;
	all = malloc((size_t)st.st_size);
	if (all == NULL)
		return -ENOMEM;
	n = pread(fd, all, (size_t)st.st_size, 0);
	rc = n < 0 ? -errno : 0;
	if (rc == 0 && !all_zero(all, (size_t)n) && !ends_with_batch(all, (size_t)n))
		rc = -EBADMSG;
	free(all);
	return rc;
}

// Ours are never compressed. A damaged one that looks as if it were sends the library into a loop without
// end.
static int check_snapshot(int fd)
{
	uint32_t magic = 0;
	const ssize_t n = read(fd, &magic, sizeof(magic));

	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(magic) && magic == RAFT_LZ4_MAGIC ? -EBADMSG : 0;
}

static int check_one(int dir, const char *name, void *ctx)
{
	const size_t len = strlen(name);
	const bool open_segment = strncmp(name, "open-", 5) == 0;
	int fd, rc;

	if (!open_segment && (strncmp(name, "snapshot-", 9) != 0 ||
				     (len > 5 && strcmp(name + len - 5, ".meta") == 0)))
		return 0;
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = open_segment ? check_open_segment(fd) : check_snapshot(fd);
	close(fd);
	if (rc != 0)
		snprintf(ctx, FILES_NAME_MAX, "%s", name);
	return rc;
}

enum raft_cons_refusal files_check(struct raft_cons *c, const char **why)
{
	char name[FILES_NAME_MAX] = "";
	const int rc = each_of_library(c->dir, check_one, name);

	if (rc >= 0)
		return RAFT_REFUSED_NOT;
	if (rc == -EBADMSG)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why, "%s/%s is %s", c->dir, name,
			name[0] == 'o' ? "cut off" : "compressed, which ours never are");
	return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s/%s: %s", c->dir, name, strerror(-rc));
}

// --- configurations -----------------------------------------------------------------------------------------

// The library's encoding: u8 format 1, u64 count, for each member u64 id, address with its end, u8 role.
int files_decode_members(const void *base, size_t len, struct cons_member *members, uint32_t max)
{
	static const uint8_t role[] = {[RAFT_STANDBY] = CONS_STANDBY,
		[RAFT_VOTER] = CONS_VOTER,
		[RAFT_SPARE] = CONS_SPARE};
	const uint8_t *p = base, *end = p + len;
	uint64_t count;

	if (len < 9 || p[0] != 1)
		return -EBADMSG;
	memcpy(&count, p + 1, sizeof(count));
	p += 9;
	if (count > max)
		return -EBADMSG;
	for (uint64_t i = 0; i < count; i++) {
		struct cons_member *m = &members[i];
		const uint8_t *zero =
			(size_t)(end - p) < 8 ? NULL : memchr(p + 8, 0, (size_t)(end - p - 8));

		*m = (struct cons_member){0};
		if (zero == NULL || end - zero < 2 || zero[1] >= sizeof(role) ||
			(size_t)(zero - p - 8) >= sizeof(m->address))
			return -EBADMSG;
		memcpy(&m->id, p, sizeof(m->id));
		memcpy(m->address, p + 8, (size_t)(zero - p - 8));
		m->role = role[zero[1]];
		p = zero + 2;
	}
	return (int)count;
}
