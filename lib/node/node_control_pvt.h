/* SPDX-License-Identifier: BSD-3-Clause */
// What is private to the control core of a node. No worker touches any of it.
#pragma once

#include "node_pvt.h"

#define BUILD_JOBS_MAX 32u  // builds at work at once; each is a share of every step
#define BUILD_PAGE_MEMBERS 512u  // of one read of the source
#define BUILD_PAGE_BYTES 65536u
#define BUILD_DELTA_BYTES_MAX (1u << 20)  // deltas kept of one build; more restart it
#define BUILD_RESTARTS_MAX 8u  // of one build, before it counts as failed
#define BUILD_ATTEMPTS_MAX 8u  // failed builds in a row, before nobody asks any more
#define BUILD_WAIT_MIN_NS (UINT64_C(10) * 1000000u)
#define BUILD_WAIT_MAX_NS (UINT64_C(1000) * 1000000u)
#define DENY_KEPT_MAX 65536u  // UIDs of a deny list kept beside a tag
#define GONE_MAX 4096u  // CHANNEL_GONE waiting for room in a ring

// UID indices, each held.
struct node_uids {
	uint32_t *uid;
	uint32_t count, cap;
};

// What the control core knows of a channel, by its index.
struct node_channel {
	uint32_t job;  // number + 1 of its build at work
	uint32_t wait_prev, wait_next;  // of the builds asked for
	uint32_t scan;  // the last full read that saw it
	uint64_t retry_ns;  // no build before
	bool waiting;
	bool deny_partial;  // the deny list is too long to be kept: an added member means a build
	uint8_t attempts;
	struct node_uids deny;  // of the current tag, ascending; empty without one
};

enum build_phase { BUILD_FREE, BUILD_MEMBERS, BUILD_DENY, BUILD_FEED };

// A delta seen while its channel is being read.
struct node_delta {
	struct node_delta *next;
	uint64_t commit;
	uint8_t kind, list;
	uint32_t bytes;
	uint8_t uids[];
};

// A build at work: pages, then the deltas since the first page, then the tag.
struct node_job {
	struct channel *channel;
	uint8_t phase;  // enum build_phase
	bool began;  // a page was read: generation and commits are set
	bool restart;
	uint8_t restarts;
	uint8_t after_len;  // where the next page goes on
	uint8_t after[ID_LEN_MAX];
	uint64_t generation, first_commit, last_commit;
	struct node_uids member, deny;
	uint64_t slots[TOPOLOGY_SLOTS_MAX / 64 + 1];  // bit: a member's slot
	struct node_delta *delta, *delta_last;
	uint32_t delta_bytes;
};

struct node_build {
	struct node_job job[BUILD_JOBS_MAX];
	uint32_t jobs, next;  // at work; whose turn it is
	uint32_t wait_head, wait_tail, waiting;
	uint64_t *mark;  // a bit per UID, all clear between uses
	uint64_t uids;  // indices in all jobs and deny lists, for the budget
	uint8_t *page;
	uint32_t *scratch;  // indices of one delta or page
	struct id_view *name;
	uint32_t scratch_cap;
	struct topology_ref ref;
};

struct node_feed {
	bool connected;
	bool known;  // generation and commit say where we are
	bool synced;  // the channel table was read in full
	bool scanning;  // else, while not synced: channels not seen are being taken out
	bool checked;  // the source has the generation being read
	bool missed;  // there are channels the table had no room for,
	bool missed_less;  // and some channel not in the table was removed since
	uint64_t generation, commit;
	uint64_t applied;  // all workers act on it
	uint64_t asked;  // what the grace period under way will make `applied`; 0: none
	uint32_t scan;
	uint32_t sweep_at;
	uint64_t retry_ns;
	uint64_t reread_ns;  // not before, for what was missed
	struct channel_key cursor;
};

struct node_gone {
	uint32_t index, use;
	uint16_t worker;
};

// The last answer to an announce frame, for its repeats.
struct node_answer {
	uint32_t use;
	uint16_t bytes;
	uint64_t stream_seq;
	uint8_t body[sizeof(((struct node_reply *)0)->body)];
};

struct node_control {
	struct node_channel *channel;
	struct node_feed feed;
	struct node_build build;
	struct node_answer *answer;  // by gateway index
	uint32_t told;  // workers that know of the oldest ended gateway, a bit each
	struct node_gone gone[GONE_MAX];
	uint32_t gone_head, gone_count;
	uint64_t reclaimed_ns;
	uint32_t ttl_at;
	uint64_t ttl_ns;  // of the last slice
	struct node_reply reply;  // being put together
	struct node_settings settings;
	uint32_t settings_due;  // workers that have not been given them, a bit each
};

static inline struct counters *own(const struct node *node)
{
	return node->control_counters;
}

// --- node_control.c -----------------------------------------------------------------------------------

struct node_channel *node_channel_of(struct node *node, struct channel *channel) CONTROL_ONLY;
// Ends a channel: no worker finds it after its turn.
void node_channel_gone(struct node *node, struct channel *channel) CONTROL_ONLY;
void node_wake(struct node *node, uint32_t worker) CONTROL_ONLY;
struct channel_key node_channel_key(const struct channel *channel);

// --- node_settings.c ----------------------------------------------------------------------------------

// Gives settings to workers whose rings had no room. Returns: work done.
uint32_t node_settings_step(struct node *node) CONTROL_ONLY;

// --- node_gateway.c -----------------------------------------------------------------------------------

// Tells workers of ended gateways; ends silent ones when `expire`. Returns: work done.
uint32_t node_gateway_step(struct node *node, bool expire, uint64_t now_ns) CONTROL_ONLY;

// --- node_feed.c --------------------------------------------------------------------------------------

// A piece of a full read of the channel table. Returns: work done.
uint32_t node_feed_step(struct node *node, uint64_t now_ns) CONTROL_ONLY;

// --- node_edit.c --------------------------------------------------------------------------------------

// Makes a tag the channel's, retiring the one before; NULL takes it off. The channel's version is the
// caller's business.
void node_tag_set(struct node *node, struct channel *channel, struct tag *tag) CONTROL_ONLY;
bool node_tag_current(const struct node *node, const struct channel *channel) CONTROL_ONLY;
// The channel's tag after a delta, when it can be edited. Returns: NULL: it is stale from here on.
struct tag *node_edit(struct node *node, struct channel *channel, const struct store_delta *delta,
	uint64_t now_ns) CONTROL_ONLY;
void node_deny_drop(struct node *node, struct node_channel *nc, uint64_t now_ns) CONTROL_ONLY;

// Lists of held indices. Adding takes over the reference. Returns: false: no memory or budget.
bool node_uids_add(struct node *node, struct node_uids *list, uint32_t uid) CONTROL_ONLY;
// Drops all references and the memory.
void node_uids_drop(struct node *node, struct node_uids *list, uint64_t now_ns) CONTROL_ONLY;
// Room for `count` names and indices in build.name and build.scratch.
bool node_scratch(struct node *node, uint32_t count) CONTROL_ONLY;

// --- node_job.c: one build ----------------------------------------------------------------------------

enum job_end { JOB_GOES_ON, JOB_DONE, JOB_FAILED, JOB_LATER };
void node_job_begin(struct node_job *job, struct channel *channel);
void node_job_clear(struct node *node, struct node_job *job, uint64_t now_ns) CONTROL_ONLY;
// Reads a page of up to `max` members, or ends the job. `*used` grows by the members handled.
enum job_end node_job_step(struct node *node, struct node_job *job, uint32_t max, uint32_t *used,
	uint64_t now_ns) CONTROL_ONLY;
void node_job_delta(struct node_job *job, const struct store_delta *delta) CONTROL_ONLY;

// --- node_build.c: which builds are at work ---------------------------------------------------------

int node_build_create(struct node *node);
void node_build_destroy(struct node *node) CONTROL_ONLY;
void node_build_forget(struct node *node, struct channel *channel) CONTROL_ONLY;
// The feed broke off or its history changed: what was read so far cannot be completed.
void node_build_restart_all(struct node *node) CONTROL_ONLY;
