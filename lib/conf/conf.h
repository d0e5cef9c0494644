/* SPDX-License-Identifier: BSD-3-Clause */
// Configuration: YAML text in, one validated immutable struct out. Strict: every problem names
// file:line:column, the key, what is allowed and, for a misspelt key, the nearest valid one.
// One table (conf_schema.c) holds every option with unit, range, default, reloadable or not; the parser,
// the printer and the check of config/tagcastd.yaml all read it. The one door to libyaml. Any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base_limits.h"

#define CONF_NAME_MAX 128u
#define CONF_PATH_MAX 100u  // bytes; a unix socket path has 107
#define CONF_FILE_BYTES_MAX (1024u * 1024u)
#define CONF_ERROR_MAX 512u
#define CONF_NEIGHBOURS_MAX 64u
#define CONF_KEYS_MAX 2u

enum conf_auth { CONF_AUTH_OFF, CONF_AUTH_ON };
enum conf_idle { CONF_IDLE_ADAPTIVE, CONF_IDLE_BUSY };
enum conf_checksum { CONF_CHECKSUM_ON, CONF_CHECKSUM_OFF };
enum conf_meta { CONF_META_EMBEDDED, CONF_META_EXTERNAL };

struct conf_neighbour {
	uint32_t ip;
	uint8_t mac[6];
};

struct conf {
	struct {
		uint64_t id;  // node.id, 1..2^63-1, required
		uint64_t cluster_id;  // node.cluster_id, 1..2^63-1
		char run_dir[CONF_PATH_MAX];  // node.run_dir: sockets
		char data_dir[CONF_PATH_MAX];  // node.data_dir: the store
		char log_level[8];  // node.log_level: error, warn, info, debug
	} node;
	struct {
		char lcores
			[CONF_NAME_MAX];  // eal.lcores: CPUs of the workers, "auto" or as in 1,3-5
		uint32_t memory_bytes;  // eal.memory
		bool hugepages;  // eal.hugepages
		char file_prefix[32];  // eal.file_prefix; empty: made from node.id
		char extra[256];  // eal.extra: appended as written
	} eal;
	struct {
		char device[CONF_NAME_MAX];  // port.device: PCI address or vdev with arguments
		uint32_t ip;  // port.address a.b.c.d/len
		uint8_t prefix_len;
		uint32_t gateway_ip;  // port.gateway: next hop, 0 none
		uint16_t vlan;  // port.vlan: 0 none, 1..4094
		uint16_t mtu;  // port.mtu
		uint16_t udp_base;  // port.udp_base: worker w listens on base + w
		uint32_t rx_descriptors, tx_descriptors;
		uint32_t buffers;  // port.buffers: datagram buffers of the node
		uint8_t checksum;  // port.checksum
		uint8_t neighbour_count;  // port.neighbours: static entries
		struct conf_neighbour neighbours[CONF_NEIGHBOURS_MAX];
		uint64_t neighbour_ttl_ns;
	} port;
	struct {
		uint32_t count;  // workers.count 1..16
		uint8_t idle;  // workers.idle
		uint32_t
			quantum_members;  // workers.quantum: members of one channel expanded per turn
		uint32_t ring_items;  // workers.ring: hand-off ring of each pair
	} workers;
	struct {
		uint8_t mode;  // auth.mode, required
		uint8_t key_count;
		uint8_t key_id[CONF_KEYS_MAX];
		char key_file[CONF_KEYS_MAX][CONF_PATH_MAX];  // 32 bytes in hex, mode 0600
		uint8_t send_key;  // index; auth.send_key names its id
	} auth;
	struct {
		uint8_t mode;  // meta.mode
		char program
			[CONF_PATH_MAX];  // meta.program, for embedded; a bare name: beside tagcastd, then in PATH
		uint64_t map_bytes;  // meta.map_size: address space of the store
		uint64_t
			apply_wait_ns;  // meta.apply_wait: how long a mutation waits for the fast process
		uint64_t journal_commits, dedup_commits;
		uint32_t stages;
		uint64_t
			stage_commits;  // meta.stage_commits: an idle stage is dropped after so many
		uint32_t feed_backlog_bytes;  // meta.feed_backlog
		char raft_address[CONF_PATH_MAX];  // meta.raft_address host:port; empty: none
		char raft_bind[CONF_PATH_MAX];  // meta.raft_bind; empty: raft_address
		uint8_t raft_auth;  // meta.raft_auth: enum conf_auth
		char raft_key_file[CONF_PATH_MAX];  // 32 bytes in hex, mode 0600; empty: none
		uint64_t election_ns, heartbeat_ns;  // meta.election_timeout, meta.heartbeat
		uint32_t snapshot_entries, snapshot_trailing;
		uint64_t snapshot_log_bytes;  // meta.snapshot_log
	} meta;
	struct {
		uint32_t channels;  // limits.channels
		uint32_t uids;  // limits.uids
		uint32_t gateways;  // limits.gateways
		uint32_t senders;  // limits.senders: replay windows per worker
		uint32_t payload_bytes;  // limits.payload
		uint32_t messages;  // limits.messages: admitted and unfinished, per worker
		uint32_t parked_per_channel;  // limits.parked_per_channel
		uint32_t parked;  // limits.parked: per worker
		uint32_t inflight_pushes;  // limits.inflight_pushes: per worker
		uint32_t frames;  // limits.frames: incomplete large frames per worker
		uint32_t window;  // limits.window: idempotence entries per worker
		uint64_t window_age_ns;  // limits.window_age
		uint64_t tag_bytes;  // limits.tag_memory
		uint32_t build_members_per_step;  // limits.build_members_per_step
	} limits;
	struct {
		uint64_t heartbeat_ns;  // delivery.heartbeat
		uint64_t
			push_timeout_ns;  // delivery.push_timeout: first resend of an unanswered push
		uint64_t retry_max_ns;  // delivery.retry_max: upper end of the back-off
		uint32_t attempts;  // delivery.attempts: sends of one route at most
		uint64_t
			receipt_timeout_ns;  // delivery.receipt_timeout: re-push of an unacknowledged route
		uint64_t deadline_ns;  // delivery.deadline: default of a message
		uint64_t deadline_max_ns;
		uint32_t
			push_window;  // delivery.push_window: unanswered pushes per gateway and worker
		uint32_t backlog;  // delivery.backlog: pushes waiting for the window, hard limit
		uint32_t
			resend_percent;  // delivery.resend_budget: resends as a share of data pushes
		uint64_t tag_ttl_ns;  // tags.ttl
		uint32_t tag_steps;  // tags.steps: deltas kept per tag
	} delivery;
};

// Fills `conf` with the defaults of the schema (required keys stay 0). All bytes not named are 0, so that
// two of these compare with memcmp.
void conf_defaults(struct conf *conf);

// Parses `text` (len bytes). `file` is used in messages only.
// Returns: 0; -EINVAL with `error` (CONF_ERROR_MAX bytes) set to one line "file:line:column: key: problem".
int conf_parse(const char *file, const char *text, size_t len, struct conf *conf, char *error);

// Reads and parses a file. Returns: as above; every failure to read is -EINVAL with a line too.
int conf_load(const char *file, struct conf *conf, char *error);

// One line "file:line:column: key: problem" about an option of a file that was loaded, for what only the
// caller can judge. `error`: CONF_ERROR_MAX bytes.
void conf_complain(const char *file, const char *key, const char *problem, char *error);

// Walks the options that differ, from *at = 0. Returns: false at the end; else `key` (CONF_NAME_MAX bytes) and
// whether it may change while the program runs.
bool conf_next_change(
	const struct conf *a, const struct conf *b, uint32_t *at, char *key, bool *reloadable);

// Prints the effective configuration as YAML that conf_parse takes again.
void conf_print(const struct conf *conf, FILE *out);

// Prints the manual: every option with meaning, type, range, default, reloadable or not, set to its default
// (required ones to an example). config/tagcastd.yaml is this text.
void conf_print_manual(FILE *out);
