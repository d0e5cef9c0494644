/* SPDX-License-Identifier: BSD-3-Clause */
// A group that begins with a snapshot: the library's two snapshot files are written before there is a log,
// which then has nothing below them. Thread: writing any, the rest the loop.
#include "raft_pvt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base_file.h"

#define DIR_BYTES 512u
#define RESTORE_TERM 1u  // that of a bootstrap
#define META_HEADER \
	32u  // u64 format 1, checksum of what follows, index and length of the configuration
#define FIRST_SEGMENT \
	"0000000000000001-0000000000000001"  // of a bootstrap: its configuration alone
#define PART_DATA "restore.data"
#define PART_META "restore.meta"
#define RESTORE_STAMP 1u  // the files' time stamp; there are no others to be told from

static void put_u64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

// The library's checksum: polynomial 0x04c11db7, most significant bit first, nothing inverted.
static uint32_t checksum(const uint8_t *p, size_t len)
{
	uint32_t crc = 0;

	for (size_t i = 0; i < len; i++) {
		crc ^= (uint32_t)p[i] << 24;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc & 0x80000000u) != 0 ? crc << 1 ^ 0x04c11db7u : crc << 1;
	}
	return crc;
}

// Writes a whole file and its bytes to disk. Returns: 0 or -errno.
static int write_file(const char *dir, const char *name, const uint8_t *bytes, uint64_t len)
{
	char path[DIR_BYTES + 64];
	int fd, rc = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	while (len > 0 && rc == 0) {
		const ssize_t put = write(fd, bytes, len);

		if (put < 0) {
			rc = errno == EINTR ? 0 : -errno;
			continue;
		}
		bytes += put;
		len -= (uint64_t)put;
	}
	if (rc == 0 && fsync(fd) != 0)
		rc = -errno;
	close(fd);
	if (rc != 0)
		unlink(path);
	return rc;
}

int raft_cons_restore_write(
	const struct raft_cons *c, const uint8_t *bytes, uint64_t len, uint64_t index)
{
	uint8_t meta[META_HEADER + 24 + CONS_ADDRESS_MAX] = {0}, *conf = meta + META_HEADER;
	const char *at = c->params.address[0] != 0 ? c->params.address : RAFT_NO_ADDRESS;
	const size_t address = strlen(at) + 1;
	const size_t conf_len = (9 + 8 + address + 1 + 7) / 8 * 8;
	int rc;

	if (len > RAFT_SNAPSHOT_BYTES_MAX)
		return -EFBIG;
	// The configuration as the library writes it: one voter.
	conf[0] = 1;
	put_u64(conf + 1, 1);
	put_u64(conf + 9, c->params.node_id);
	memcpy(conf + 17, at, address);
	conf[17 + address] = RAFT_VOTER;
	put_u64(meta, 1);
	put_u64(meta + 16, index);
	put_u64(meta + 24, conf_len);
	put_u64(meta + 8, checksum(meta + 16, 16 + conf_len));
	rc = write_file(c->dir, PART_DATA, bytes, len);
	return rc != 0 ? rc : write_file(c->dir, PART_META, meta, META_HEADER + conf_len);
}

static int put_in_place(const char *dir, const char *part, const char *name)
{
	char from[DIR_BYTES + 64], to[DIR_BYTES + 128];

	snprintf(from, sizeof(from), "%s/%s", dir, part);
	snprintf(to, sizeof(to), "%s/%s", dir, name);
	return rename(from, to) != 0 ? -errno : 0;
}

// In this order: what an end in between leaves is refused at the next start, never taken for a new group.
enum raft_cons_refusal raft_cons_restore(struct raft_cons *c, uint64_t index, const char **why)
{
	char name[64], meta[72], path[DIR_BYTES + 64];
	enum raft_cons_refusal refusal;
	int rc;

	if (c->state != RAFT_CONS_EMPTY)
		return core_refuse(c, RAFT_REFUSED_STATE, why, "%s holds a group already", c->dir);
	snprintf(name, sizeof(name), "snapshot-%u-%llu-%u", RESTORE_TERM, (unsigned long long)index,
		RESTORE_STAMP);
	snprintf(meta, sizeof(meta), "%s.meta", name);
	rc = put_in_place(c->dir, PART_DATA, name);
	if (rc == 0)
		rc = put_in_place(c->dir, PART_META, meta);
	if (rc == 0)
		rc = file_sync_folder(c->dir);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s: %s", c->dir, strerror(-rc));
	refusal = raft_cons_bootstrap(c, why);
	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	snprintf(path, sizeof(path), "%s/%s", c->dir, FIRST_SEGMENT);
	rc = unlink(path) != 0 ? -errno : file_sync_folder(c->dir);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s: %s", path, strerror(-rc));
	return RAFT_REFUSED_NOT;
}
