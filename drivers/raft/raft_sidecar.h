/* SPDX-License-Identifier: BSD-3-Clause */
// What this node is and what it promised, in a file of our own beside the library's unchecksummed
// metadata: cluster, node, number of starts, term, vote. Written and synced before the library's.
// Context: the loop; blocks for one write and sync, at elections and starts only.
//
// The file has two slots of SIDECAR_SLOT_BYTES, written in turns; the valid one with the higher sequence
// counts. Each record also holds the promise before it, so that a crash between our write and the
// library's (library still at the one before) is told from metadata that is older or gone.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIDECAR_SLOT_BYTES 512u
#define SIDECAR_FORMAT 1u

enum sidecar_stage {
	SIDECAR_BOOTSTRAPPING = 1,  // the library's first files may be half there; nothing ever ran
	SIDECAR_JOINED = 2,  // a member whose log may still be empty
	SIDECAR_MEMBER = 3,  // its log or snapshot held something once
};

struct sidecar_record {
	uint64_t cluster_id, node_id;
	uint64_t starts;
	uint64_t term, vote;  // promised
	uint64_t term_before, vote_before;  // before that
	uint32_t stage;  // enum sidecar_stage
	uint32_t loading;  // the log is being read; still 1 at a start: that ended the process
};

struct raft_sidecar {
	int fd;  // -1: no file
	uint64_t sequence;  // of the record in use
	struct sidecar_record record;
};

enum sidecar_match {
	SIDECAR_SAME,
	SIDECAR_AHEAD,  // the library missed exactly the last write: to be written forward
	SIDECAR_DIFFERS,  // older or gone metadata, or an old sidecar
};

// Opens `dir`/sidecar. Returns: 0; -ENOENT: there is none (create it); -EPROTO: a later format; -EBADMSG:
// damaged; other -errno.
int sidecar_open(struct raft_sidecar *s, const char *dir);
// Makes the file with a first record, synced with its folder. Returns: 0 or -errno.
int sidecar_create(struct raft_sidecar *s, const char *dir, const struct sidecar_record *record);
void sidecar_close(struct raft_sidecar *s);
// Writes and syncs. Returns: 0 or -errno.
int sidecar_write(struct raft_sidecar *s, const struct sidecar_record *record);
// The same in another format, which this program then refuses to read.
int sidecar_write_format(
	struct raft_sidecar *s, const struct sidecar_record *record, uint32_t format);
// A new promise; the one so far becomes the one before. Returns: 0 or -errno.
int sidecar_promise(struct raft_sidecar *s, uint64_t term, uint64_t vote);
// Holds the library's metadata against the promise.
enum sidecar_match sidecar_compare(const struct raft_sidecar *s, uint64_t term, uint64_t vote);
