/* SPDX-License-Identifier: BSD-3-Clause */
// The sidecar file: see raft_sidecar.h. Context: the loop; blocks for its write and sync.
#include "raft_sidecar.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base_file.h"

#define SLOTS 2u
#define MAGIC UINT64_C(0x3152414345444953)  // "SIDECAR1"

// A slot as it stands in the file, little-endian (the only hosts there are), the rest of it zero.
struct slot {
	uint64_t magic;
	uint32_t format, stage;
	uint64_t sequence;
	uint64_t cluster_id, node_id, starts;
	uint64_t term, vote, term_before, vote_before;
	uint32_t loading, zero_32;
	uint8_t zero[SIDECAR_SLOT_BYTES - 88 - 32];
	uint8_t sum[32];  // of all before it
};
_Static_assert(sizeof(struct slot) == SIDECAR_SLOT_BYTES, "a slot fills its place");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "slots are written as they stand");

static void sum_of(const struct slot *slot, uint8_t sum[32])
{
	crypto_generichash(sum, 32, (const uint8_t *)slot, offsetof(struct slot, sum), NULL, 0);
}

static bool valid(const struct slot *slot)
{
	uint8_t sum[32];

	sum_of(slot, sum);
	return slot->magic == MAGIC && memcmp(sum, slot->sum, sizeof(sum)) == 0;
}

static void path_of(char *path, size_t size, const char *dir)
{
	snprintf(path, size, "%s/sidecar", dir);
}

int sidecar_open(struct raft_sidecar *s, const char *dir)
{
	const struct slot *best = NULL;
	struct slot slot[SLOTS];
	char path[600];
	ssize_t n;

	*s = (struct raft_sidecar){.fd = -1};
	path_of(path, sizeof(path), dir);
	s->fd = open(path, O_RDWR | O_CLOEXEC);
	if (s->fd < 0)
		return -errno;
	n = pread(s->fd, slot, sizeof(slot), 0);
	if (n != (ssize_t)sizeof(slot)) {
		const int rc = n < 0 ? -errno : -EBADMSG;

		sidecar_close(s);
		return rc;
	}
	// One slot may be torn: the other is what was promised then. That the newer one was lost and not
	// torn shows in the library's metadata, which then is ahead.
	for (uint32_t i = 0; i < SLOTS; i++)
		if (valid(&slot[i]) && (best == NULL || slot[i].sequence > best->sequence))
			best = &slot[i];
	if (best == NULL || best->format != SIDECAR_FORMAT) {
		sidecar_close(s);
		return best == NULL ? -EBADMSG : -EPROTO;
	}
	s->sequence = best->sequence;
	s->record = (struct sidecar_record){
		.cluster_id = best->cluster_id,
		.node_id = best->node_id,
		.starts = best->starts,
		.term = best->term,
		.vote = best->vote,
		.term_before = best->term_before,
		.vote_before = best->vote_before,
		.stage = best->stage,
		.loading = best->loading,
	};
	return 0;
}

int sidecar_write_format(
	struct raft_sidecar *s, const struct sidecar_record *record, uint32_t format)
{
	const uint64_t sequence = s->sequence + 1;
	struct slot slot = {
		.magic = MAGIC,
		.format = format,
		.stage = record->stage,
		.loading = record->loading,
		.sequence = sequence,
		.cluster_id = record->cluster_id,
		.node_id = record->node_id,
		.starts = record->starts,
		.term = record->term,
		.vote = record->vote,
		.term_before = record->term_before,
		.vote_before = record->vote_before,
	};
	ssize_t n;

	sum_of(&slot, slot.sum);
	n = pwrite(s->fd, &slot, sizeof(slot), (off_t)(sequence % SLOTS * sizeof(slot)));
	if (n != (ssize_t)sizeof(slot))
		return n < 0 ? -errno : -EIO;
	if (fdatasync(s->fd) != 0)
		return -errno;
	s->sequence = sequence;
	s->record = *record;
	return 0;
}

int sidecar_write(struct raft_sidecar *s, const struct sidecar_record *record)
{
	return sidecar_write_format(s, record, SIDECAR_FORMAT);
}

int sidecar_create(struct raft_sidecar *s, const char *dir, const struct sidecar_record *record)
{
	char path[600], fresh[610];
	int rc;

	path_of(path, sizeof(path), dir);
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	*s = (struct raft_sidecar){.fd = -1};
	s->fd = open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return -errno;
	rc = sidecar_write(s, record);
	if (rc == 0)
		rc = sidecar_write(s, record);  // both slots
	if (rc == 0 && rename(fresh, path) != 0)
		rc = -errno;
	if (rc == 0)
		rc = file_sync_folder(dir);
	if (rc != 0) {
		unlink(fresh);
		sidecar_close(s);
	}
	return rc;
}

void sidecar_close(struct raft_sidecar *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

int sidecar_promise(struct raft_sidecar *s, uint64_t term, uint64_t vote)
{
	struct sidecar_record record = s->record;

	record.term_before = record.term;
	record.vote_before = record.vote;
	record.term = term;
	record.vote = vote;
	return sidecar_write(s, &record);
}

enum sidecar_match sidecar_compare(const struct raft_sidecar *s, uint64_t term, uint64_t vote)
{
	const struct sidecar_record *r = &s->record;

	if (term == r->term && vote == r->vote)
		return SIDECAR_SAME;
	if (term == r->term_before && vote == r->vote_before)
		return SIDECAR_AHEAD;
	return SIDECAR_DIFFERS;
}
