/* SPDX-License-Identifier: BSD-3-Clause */
// Messages between nodes, and PRESENCE, by which an owner node and a gateway agree on what the node still has
// to be told. Conventions are those of wire.h. Layouts stand beside the builders.
//
// Every message names by what right its sender speaks of a channel (struct wire_authority): a receiver that
// knows a newer one refuses, one that knows an older one says retryable.
#pragma once

#include "wire.h"

struct wire_authority {
	uint32_t slot;  // of the channel's root, 1..
	uint64_t term;  // of the slot, never 0
	uint64_t channel_epoch, leader_epoch;  // of the channel's runtime row; 0 without one
};

// --- tasks --------------------------------------------------------------------------------------------

enum wire_task_flag {
	WIRE_TASK_SCOPED = 1 << 0,  // recipients are the UIDs that follow; no tag, fence all zero
};

struct wire_task {
	uint64_t task_id;  // of the sending worker's lane, echoed
	uint64_t message_id;  // not 0
	uint64_t seq;  // of (channel, leader incarnation, target), from 1
	uint64_t stamp;  // the publisher's, carried to receivers
	uint8_t tag_key[16];  // the fence
	uint64_t tag_version;  // never 0 but when scoped
	uint64_t target;  // node id the task is meant for
	struct wire_authority authority;
	uint32_t deadline_ms;  // from here
	uint8_t ack;  // enum wire_ack_class
	uint8_t attempt;  // 0 first
	uint8_t flags;  // enum wire_task_flag
	uint8_t channel_type;
	struct id_view channel;
	struct id_view from_uid;  // may be empty
	uint64_t sender_gateway, sender_boot;  // the sender's own session; gateway 0: none
	uint32_t sender_slot, sender_gen;
	struct wire_view payload;
	uint32_t uid_count;
	struct wire_view uids;  // scoped: u8 length, bytes, each; walk with wire_uids_next
};
#define WIRE_TASK_BYTES 140u  // fixed part, before channel, from, payload, UIDs
#define WIRE_TASK_UIDS_MAX (24u * 1024u)  // bytes of UIDs of one task; more UIDs, more tasks
bool wire_put_task(struct wire_buf *out, const struct wire_task *m);
int wire_get_task(struct wire_view body, struct wire_task *m);
bool wire_uids_next(struct wire_view *uids, struct id_view *uid);

struct wire_task_ack {
	uint64_t task_id;
	uint64_t message_id;
	uint16_t status;  // as sent: read it through wire_task_status
	uint8_t duplicate;  // 1: accepted before; the fence is the first one's
	uint32_t retry_after_ms;
	uint8_t tag_key[16];  // the fence used, or the one the leader called current
	uint64_t tag_version;
	uint64_t leader;  // not_leader: node id of whom the sender knows, with its term; 0 unknown
	uint64_t term;
	uint32_t members, routes, acked, ended;  // completed
};
bool wire_put_task_ack(struct wire_buf *out, const struct wire_task_ack *m);
int wire_get_task_ack(struct wire_view body, struct wire_task_ack *m);

// --- pulls of partitions ------------------------------------------------------------------------------

#define WIRE_PART_CHUNKS_MAX 65536u  // of one body
#define WIRE_WINDOW_MAX 64u  // chunks asked for by one TAG_GET

enum wire_tag_get_flag {
	WIRE_TAG_GET_DELTA = 1 << 0,  // what changed since (have_key, have_version) will do
	WIRE_TAG_GET_PIN = 1 << 1,  // keep the body until the pull ends: it was restarted twice
};
struct wire_tag_get {
	uint64_t request_id;  // of one attempt of a pull; never used again
	uint64_t target;  // whose partition: must be the sender's own id
	uint8_t tag_key[16];  // fence wanted, or a later version of it
	uint64_t tag_version;  // 0: whatever is current
	uint8_t have_key[16];  // fence of what the sender has
	uint64_t have_version;  // 0: nothing
	uint64_t body_version;  // of chunks already taken in this attempt; 0: none
	struct wire_authority authority;
	uint32_t first;  // chunk of bit 0
	uint64_t want;  // bit i: chunk first + i is wanted; never 0
	uint16_t room;  // bytes a TAG_PART body may have; the same for all of an attempt
	uint8_t flags;  // enum wire_tag_get_flag
	struct channel_key channel;
};
#define WIRE_ROOM_MIN 480u  // MTU_MIN less headers and tag
bool wire_put_tag_get(struct wire_buf *out, const struct wire_tag_get *m);
int wire_get_tag_get(struct wire_view body, struct wire_tag_get *m);

// A chunk of a partition at (tag_key, tag_version), or of what changed from base_version to it. Each UID
// is told once in a body, so chunks may be taken in any order; slots come first.
enum wire_part_op {
	WIRE_PART_MEMBER = 1,  // is a member
	WIRE_PART_DENIED = 2,  // is a member on the deny list
	WIRE_PART_GONE = 3,  // is none; in a delta only
	WIRE_PART_SLOT = 4,  // assignment of a slot that has UIDs of this partition
};
struct wire_tag_part {
	uint64_t request_id;
	uint16_t status;  // as sent: read it through wire_pull_status
	uint8_t tag_key[16];  // with any status: the current fence, as far as known
	uint64_t tag_version;
	uint64_t base_version;  // 0: whole partition
	uint64_t smv;
	uint64_t table_version;  // of the hash-slot table the tag was built on
	uint64_t leader;  // not_leader: node id of whom the sender knows; 0 unknown
	struct wire_authority authority;  // not_leader: may be all zero
	uint32_t index, count;  // 0 unless ok
	uint32_t members;  // of the whole partition
	uint32_t retry_after_ms;
	uint16_t entries;
	struct wire_view body;  // walk with wire_part_next
};
struct wire_part_entry {
	uint8_t op;
	struct id_view uid;
	uint32_t slot;
	uint64_t term, config_epoch, balance_version;
};
#define WIRE_TAG_PART_BYTES 112u  // fixed part, before the entries
#define WIRE_PART_SLOT_BYTES 28u
bool wire_put_tag_part(struct wire_buf *out, const struct wire_tag_part *m);  // entries as given
int wire_get_tag_part(struct wire_view body, struct wire_tag_part *m);  // validates all entries
bool wire_part_next(struct wire_view *body, struct wire_part_entry *entry);
// Bytes of an entry, and the entry itself; false when it does not fit (`out` stays good).
uint32_t wire_part_entry_bytes(const struct wire_part_entry *entry);
bool wire_part_add(struct wire_buf *out, const struct wire_part_entry *entry);

// --- hints --------------------------------------------------------------------------------------------

enum wire_hint_op {
	WIRE_HINT_DIRTY = 1,  // a mutation is about to be proposed
	WIRE_HINT_INVALIDATE = 2,  // it is committed: `commit`, `smv`
	WIRE_HINT_FENCE = 3,  // answer ok once `commit` is applied on all workers of the leader
};
struct wire_hint {
	uint64_t hint_id;  // echoed
	uint8_t op;
	uint8_t answer;  // 1: this is the answer
	uint16_t status;  // of an answer: read it through wire_hint_status; 0 in a question
	uint64_t commit;  // of an answer: what is applied
	uint64_t smv;
	uint64_t leader;  // of an answer not_leader; 0 unknown
	struct wire_authority authority;
	struct channel_key channel;
};
bool wire_put_hint(struct wire_buf *out, const struct wire_hint *m);
int wire_get_hint(struct wire_view body, struct wire_hint *m);

// --- presence -----------------------------------------------------------------------------------------

enum wire_presence_state {
	WIRE_PRESENCE_NOT_READY = 1,  // node: announce your sessions of these hash slots to me
	WIRE_PRESENCE_READY = 2,  // node: I have them all
	WIRE_PRESENCE_COMPLETE = 3,  // gateway: all are in announce frames up to stream_seq
};
struct wire_presence {
	uint64_t revision;  // of the topology the sender goes by
	uint64_t table_version;
	uint64_t stream_seq;  // gateway: last frame that counts; node: 0
	uint32_t hash_slots;  // in all, so that a gateway needs to know nothing else of the table
	uint16_t count;  // from 1
	struct wire_view ranges;
};
struct wire_presence_range {
	uint16_t first, last;  // hash slots, both included
	uint32_t slot;
	uint64_t term;  // what is said counts for this term only
	uint8_t state;
};
#define WIRE_PRESENCE_RANGE_BYTES 24u
// Built in place like announce frames.
bool wire_presence_begin(struct wire_buf *out, const struct wire_presence *m);
bool wire_presence_add(struct wire_buf *out, const struct wire_presence_range *range);
int wire_get_presence(struct wire_view body, struct wire_presence *m);
bool wire_presence_next(struct wire_view *ranges, struct wire_presence_range *range);

// --- statuses -----------------------------------------------------------------------------------------

// What an answer of each kind means. A status that is none of the kind's own, of a newer peer or a broken
// one, is retryable; *unknown says so, to be counted (CTR_STATUS_UNKNOWN).
// task: accepted completed retryable tag_mismatch not_leader busy too_large not_ready
// pull: ok not_leader tag_not_current tag_version_mismatch tag_not_found retryable busy
// hint: ok not_leader retryable busy
enum wire_status wire_task_status(uint16_t status, bool *unknown);
enum wire_status wire_pull_status(uint16_t status, bool *unknown);
enum wire_status wire_hint_status(uint16_t status, bool *unknown);
