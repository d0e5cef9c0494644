/* SPDX-License-Identifier: BSD-3-Clause */
// Nodes and their lifecycle, hash slots, slots, runtime rows: bytes, rules, deltas, reading.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store_bench.h"
#include "store_cluster.h"

static struct store_bench b;
static uint8_t body[STORE_BODY_MAX];

static int setup(void **state)
{
	(void)state;
	store_bench_open(&b);
	return 0;
}
static int teardown(void **state)
{
	(void)state;
	store_bench_close(&b);
	return 0;
}

// --- shorthand ------------------------------------------------------------------------------------------

static struct store_node node_of(uint64_t id, const char *address)
{
	struct store_node n = {.id = id, .state = STORE_NODE_JOINING};

	n.address_len = (uint8_t)strlen(address);
	memcpy(n.address, address, n.address_len);
	return n;
}

static int join(uint64_t id, const char *address)
{
	const struct store_node n = node_of(id, address);
	struct store_command cmd;

	assert_int_equal(store_command_node(&cmd, &n, body), 0);
	return store_bench_apply(&b, &cmd).code;
}

static int step_at(uint64_t id, enum store_node_state to, uint64_t if_revision)
{
	struct store_command cmd;

	store_command_node_state(&cmd, id, to, if_revision);
	return store_bench_apply(&b, &cmd).code;
}

static int step(uint64_t id, enum store_node_state to)
{
	return step_at(id, to, 0);
}

static void active(uint64_t id)
{
	assert_int_equal(join(id, "10.0.0.1:1"), STORE_R_OK);
	assert_int_equal(step(id, STORE_NODE_ACTIVE), STORE_R_OK);
}

static struct store_node read_node(uint64_t id)
{
	struct store_node n;
	struct store_tx tx;

	store_map_read(b.map, &tx);
	assert_int_equal(store_read_node(&tx, id, &n), 0);
	return n;
}

static struct store_slot slot_of(
	uint32_t slot, uint64_t leader, uint64_t term, uint64_t epoch, uint64_t balance)
{
	return (struct store_slot){.slot = slot,
		.leader = leader,
		.term = term,
		.config_epoch = epoch,
		.balance_version = balance,
		.peer_count = 2,
		.peer = {1, 2}};
}

static int set_slot(const struct store_slot *s)
{
	struct store_command cmd;

	assert_int_equal(store_command_slot(&cmd, s, body), 0);
	return store_bench_apply(&b, &cmd).code;
}

static int set_hash_slots(uint32_t count, uint16_t slot, uint64_t if_version)
{
	struct store_hash_slots t = {.count = count};
	struct store_command cmd;

	for (uint32_t i = 0; i < count; i++)
		t.slot_of[i] = slot;
	assert_int_equal(store_command_hash_slots(&cmd, &t, if_version, body), 0);
	return store_bench_apply(&b, &cmd).code;
}

static struct store_runtime runtime_of(
	const char *channel, uint64_t leader, uint64_t epoch, uint64_t leader_epoch, uint64_t route)
{
	struct store_runtime r = {.leader = leader,
		.channel_epoch = epoch,
		.leader_epoch = leader_epoch,
		.route_generation = route,
		.min_isr = 1,
		.status = 1,
		.replica_count = 2,
		.replica = {1, 2},
		.isr_count = 1,
		.isr = {1}};

	channel_key_set(&r.channel, CHANNEL_GROUP, channel, (uint8_t)strlen(channel));
	return r;
}

static int set_runtime(const struct store_runtime *r)
{
	struct store_command cmd;

	assert_int_equal(store_command_runtime(&cmd, r, body), 0);
	return store_bench_apply(&b, &cmd).code;
}

// --- nodes ----------------------------------------------------------------------------------------------

static void a_node_walks_its_lifecycle_and_no_other_way(void **state)
{
	// [from][to]: the answer to a step, from 0 = not there
	static const uint8_t want[5][5] = {
		{0, 2, 2, 2, 2},
		{0, 1, 0, 7, 0},
		{0, 7, 1, 0, 7},
		{0, 7, 0, 1, 0},
		{0, 7, 7, 7, 1},
	};

	(void)state;
	for (uint8_t from = 0; from <= STORE_NODE_REMOVED; from++) {
		for (uint8_t to = STORE_NODE_JOINING; to <= STORE_NODE_REMOVED; to++) {
			const uint64_t id = 100u + from * 10u + to;

			if (from != 0)
				assert_int_equal(join(id, "h:1"), STORE_R_OK);
			if (from >= STORE_NODE_ACTIVE)
				step(id, STORE_NODE_ACTIVE);
			if (from >= STORE_NODE_LEAVING)
				step(id, STORE_NODE_LEAVING);
			if (from == STORE_NODE_REMOVED)
				step(id, STORE_NODE_REMOVED);
			if (from != 0)
				assert_int_equal(read_node(id).state, from);
			assert_int_equal(step(id, to), want[from][to]);
			if (from != 0)
				assert_int_equal(read_node(id).state,
					want[from][to] == STORE_R_OK ? to : from);
		}
	}
}

static void a_removed_id_is_never_taken_again(void **state)
{
	struct store_node n;
	struct store_tx tx;

	(void)state;
	active(5);
	step(5, STORE_NODE_LEAVING);
	assert_int_equal(step(5, STORE_NODE_REMOVED), STORE_R_OK);
	assert_int_equal(join(5, "10.0.0.1:1"), STORE_R_REFUSED);
	assert_int_equal(join(5, "10.0.0.9:1"), STORE_R_REFUSED);
	assert_int_equal(read_node(5).state, STORE_NODE_REMOVED);
	store_map_read(b.map, &tx);
	assert_int_equal(store_read_node(&tx, 6, &n), -ENOENT);
}

static void joining_again_changes_the_address_and_nothing_else(void **state)
{
	(void)state;
	active(1);
	assert_int_equal(join(1, "10.0.0.1:1"), STORE_R_NO_CHANGE);
	assert_int_equal(join(1, "10.0.0.2:22"), STORE_R_OK);
	assert_int_equal(read_node(1).state, STORE_NODE_ACTIVE);
	assert_memory_equal(read_node(1).address, "10.0.0.2:22", 11);
	assert_int_equal(read_node(1).revision, b.result.commit);
}

static void a_step_for_another_revision_is_stale(void **state)
{
	(void)state;
	active(1);

	const uint64_t at = read_node(1).revision;

	assert_int_equal(step_at(1, STORE_NODE_LEAVING, at - 1), STORE_R_STALE);
	assert_int_equal(step_at(1, STORE_NODE_LEAVING, at), STORE_R_OK);
	// A drain called off and begun again is another one.
	assert_int_equal(step(1, STORE_NODE_ACTIVE), STORE_R_OK);
	assert_int_equal(step(1, STORE_NODE_LEAVING), STORE_R_OK);
	assert_int_equal(step_at(1, STORE_NODE_REMOVED, at + 1), STORE_R_STALE);
	assert_int_equal(step_at(1, STORE_NODE_REMOVED, read_node(1).revision), STORE_R_OK);
	// The same again says that it is so.
	assert_int_equal(step_at(1, STORE_NODE_REMOVED, at), STORE_R_NO_CHANGE);
}

static void node_ids_are_bounded_tombstones_included(void **state)
{
	struct store_tx tx;

	(void)state;
	// All but two of them by hand: each join counts the others.
	store_map_begin(b.map, &tx);
	for (uint64_t id = 3; id <= STORE_NODES_MAX; id++) {
		const struct store_node n = node_of(id, "h:1");
		uint8_t key[9] = {'N', 0, 0, 0, 0, 0, 0, (uint8_t)(id >> 8), (uint8_t)id};
		const int len = store_node_encode(&n, body, sizeof(body));

		assert_true(len > 0);
		assert_int_equal(
			tx.ops->put(tx.tx, STORE_T_RUNTIME, (struct store_bytes){key, sizeof(key)},
				(struct store_bytes){body, (uint32_t)len}),
			0);
	}
	store_map_commit(b.map, &tx);
	assert_int_equal(join(1, "h:1"), STORE_R_OK);
	assert_int_equal(join(2, "h:1"), STORE_R_OK);
	assert_int_equal(join(STORE_NODES_MAX + 1, "h:1"), STORE_R_LIMIT);
	assert_int_equal(step(1, STORE_NODE_REMOVED), STORE_R_OK);
	assert_int_equal(join(STORE_NODES_MAX + 1, "h:1"), STORE_R_LIMIT);
	assert_int_equal(join(2, "h:2"), STORE_R_OK);
}

// --- slots ----------------------------------------------------------------------------------------------

static void a_slot_moves_only_forward(void **state)
{
	struct store_slot s = slot_of(3, 1, 5, 5, 5);

	(void)state;
	active(1);
	active(2);
	active(3);
	assert_int_equal(set_slot(&s), STORE_R_OK);
	assert_int_equal(set_slot(&s), STORE_R_NO_CHANGE);
#define GIVES(code, change) \
	do { \
		s = slot_of(3, 1, 5, 5, 5); \
		change; \
		assert_int_equal(set_slot(&s), code); \
	} while (0)
	GIVES(STORE_R_STALE, s.term = 4);
	GIVES(STORE_R_STALE, s.config_epoch = 4);
	GIVES(STORE_R_STALE, s.balance_version = 4);
	GIVES(STORE_R_REFUSED, s.leader = 2);
	GIVES(STORE_R_REFUSED, s.peer[1] = 3);
	GIVES(STORE_R_REFUSED, s.peer_count = 1);
	GIVES(STORE_R_OK, s.leader = 0);
	GIVES(STORE_R_REFUSED, s.leader = 1);
	GIVES(STORE_R_OK, (s.leader = 2, s.term = 6));
	GIVES(STORE_R_OK,
		(s.leader = 2, s.term = 6, s.peer[1] = 3, s.peer[0] = 2, s.config_epoch = 6));
}

static void a_slot_names_no_node_that_is_not_active_anew(void **state)
{
	struct store_slot s = slot_of(1, 1, 1, 1, 1);

	(void)state;
	active(1);
	assert_int_equal(set_slot(&s), STORE_R_REFUSED);  // 2 is not there
	assert_int_equal(join(2, "h:1"), STORE_R_OK);
	assert_int_equal(set_slot(&s), STORE_R_REFUSED);  // 2 is joining
	assert_int_equal(step(2, STORE_NODE_ACTIVE), STORE_R_OK);
	assert_int_equal(set_slot(&s), STORE_R_OK);
	assert_int_equal(step(2, STORE_NODE_LEAVING), STORE_R_OK);
	s.balance_version = 2;  // still named, not newly
	assert_int_equal(set_slot(&s), STORE_R_OK);
	s.leader = 2;  // a role it did not have
	s.term = 2;
	assert_int_equal(set_slot(&s), STORE_R_REFUSED);
	assert_int_equal(step(2, STORE_NODE_REMOVED), STORE_R_REFUSED);
	s.leader = 1;
	s.peer_count = 1;
	s.config_epoch = 2;
	assert_int_equal(set_slot(&s), STORE_R_OK);
	s = slot_of(1, 1, 9, 9, 9);
	assert_int_equal(set_slot(&s), STORE_R_REFUSED);
	assert_int_equal(step(2, STORE_NODE_REMOVED), STORE_R_OK);
	assert_int_equal(set_slot(&s), STORE_R_REFUSED);
}

// --- hash slots -----------------------------------------------------------------------------------------

static void the_hash_slot_table_counts_its_versions(void **state)
{
	struct store_hash_slots t;
	struct store_tx tx;

	(void)state;
	assert_int_equal(set_hash_slots(256, 1, 7), STORE_R_STALE);
	assert_int_equal(set_hash_slots(256, 1, 0), STORE_R_OK);
	assert_int_equal(set_hash_slots(256, 1, 0), STORE_R_NO_CHANGE);
	assert_int_equal(set_hash_slots(256, 2, 1), STORE_R_OK);
	assert_int_equal(set_hash_slots(256, 3, 1), STORE_R_STALE);
	assert_int_equal(set_hash_slots(128, 3, 2), STORE_R_REFUSED);
	store_map_read(b.map, &tx);
	assert_int_equal(store_read_hash_slots(&tx, &t), 0);
	assert_true(t.version == 2 && t.count == 256 && t.slot_of[255] == 2 && t.revision == 2);
}

// --- runtime --------------------------------------------------------------------------------------------

static void a_runtime_row_moves_only_forward(void **state)
{
	struct store_runtime r = runtime_of("c", 1, 5, 5, 5);

	(void)state;
	active(1);
	active(2);
	active(3);
	assert_int_equal(set_runtime(&r), STORE_R_REFUSED);  // no hash slots yet
	assert_int_equal(set_hash_slots(256, 1, 0), STORE_R_OK);
	assert_int_equal(set_runtime(&r), STORE_R_OK);
	assert_int_equal(set_runtime(&r), STORE_R_NO_CHANGE);
#define RUNTIME(code, change) \
	do { \
		r = runtime_of("c", 1, 5, 5, 5); \
		change; \
		assert_int_equal(set_runtime(&r), code); \
	} while (0)
	RUNTIME(STORE_R_STALE, r.channel_epoch = 4);
	RUNTIME(STORE_R_STALE, r.leader_epoch = 4);
	RUNTIME(STORE_R_STALE, r.route_generation = 4);
	RUNTIME(STORE_R_STALE, (r.channel_epoch = 4, r.leader_epoch = 9));
	RUNTIME(STORE_R_REFUSED, r.leader = 2);
	RUNTIME(STORE_R_REFUSED, r.replica[1] = 3);
	RUNTIME(STORE_R_OK, (r.isr_count = 2, r.isr[1] = 2));
	RUNTIME(STORE_R_OK, r.status = 2);
	RUNTIME(STORE_R_OK, (r.leader = 2, r.leader_epoch = 6));
	// Another replica set begins its leaders anew.
	RUNTIME(STORE_R_OK, (r.channel_epoch = 6, r.leader_epoch = 0, r.replica[1] = 3));
	// A row without replicas keeps its epochs.
	RUNTIME(STORE_R_OK,
		(r.channel_epoch = 7, r.replica_count = 0, r.isr_count = 0, r.leader = 0));
	RUNTIME(STORE_R_STALE, r.channel_epoch = 6);
}

static void a_runtime_row_names_no_leaving_node_anew_in_any_role(void **state)
{
	struct store_runtime r = runtime_of("c", 1, 1, 1, 1);

	(void)state;
	active(1);
	active(2);
	active(3);
	set_hash_slots(256, 1, 0);
	assert_int_equal(set_runtime(&r), STORE_R_OK);
	assert_int_equal(step(2, STORE_NODE_LEAVING), STORE_R_OK);
	r.route_generation = 2;
	assert_int_equal(set_runtime(&r), STORE_R_OK);
	r.isr_count = 2;
	r.isr[1] = 2;
	assert_int_equal(set_runtime(&r), STORE_R_REFUSED);
	r.isr_count = 1;
	r.leader = 2;
	r.leader_epoch = 2;
	assert_int_equal(set_runtime(&r), STORE_R_REFUSED);
	r = runtime_of("d", 1, 1, 1, 1);
	assert_int_equal(set_runtime(&r), STORE_R_REFUSED);
	r.replica[1] = 3;
	assert_int_equal(set_runtime(&r), STORE_R_OK);
	// Back from the drain it may be named again.
	assert_int_equal(step(2, STORE_NODE_ACTIVE), STORE_R_OK);
	r = runtime_of("d", 1, 2, 1, 1);
	assert_int_equal(set_runtime(&r), STORE_R_OK);
}

static void rows_are_read_by_hash_slot_in_key_order(void **state)
{
	struct store_runtime r, got;
	struct store_tx tx;
	uint32_t found = 0;

	(void)state;
	active(1);
	active(2);
	set_hash_slots(16, 1, 0);
	for (uint32_t i = 0; i < 200; i++) {
		char name[16];

		snprintf(name, sizeof(name), "ch%u", i);
		r = runtime_of(name, 1, i + 1, 1, 1);
		assert_int_equal(set_runtime(&r), STORE_R_OK);
	}
	store_map_read(b.map, &tx);
	for (uint32_t h = 0; h < 16; h++) {
		struct channel_key cursor = {.type = 0};
		int rc;

		while ((rc = store_read_next_runtime(&tx, h, &cursor, &got)) == 0) {
			assert_int_equal(id_hash_slot(channel_key_id(&got.channel), 16), h);
			if (cursor.type != 0)
				assert_true(memcmp(cursor.bytes, got.channel.bytes,
						    cursor.len < got.channel.len
							    ? cursor.len
							    : got.channel.len) <= 0);
			cursor = got.channel;
			found++;
		}
		assert_int_equal(rc, -ENOENT);
	}
	assert_int_equal(found, 200);
	channel_key_set(&r.channel, CHANNEL_GROUP, "ch77", 4);
	assert_int_equal(store_read_runtime(&tx, &r.channel, &got), 0);
	assert_int_equal(got.channel_epoch, 78);
	channel_key_set(&r.channel, CHANNEL_LIVE, "ch77", 4);
	assert_int_equal(store_read_runtime(&tx, &r.channel, &got), -ENOENT);
	assert_int_equal(store_read_next_runtime(&tx, HASH_SLOTS_MAX, &r.channel, &got), -ENOENT);
}

static void nodes_and_slots_are_read_in_order(void **state)
{
	struct store_node n = {.id = 0};
	struct store_slot s = {.slot = 0};
	struct store_tx tx;
	uint64_t last = 0, nodes = 0, slots = 0;

	(void)state;
	active(1);
	active(2);
	active(UINT64_MAX);
	active(1 << 20);
	for (uint32_t i = 0; i < 6; i++) {
		const struct store_slot slot = slot_of(STORE_SLOTS_MAX - 51 * i, 1, 1, 1, 1);

		assert_int_equal(set_slot(&slot), STORE_R_OK);
		slots++;
	}
	store_map_read(b.map, &tx);
	while (store_read_next_node(&tx, n.id, &n) == 0) {
		assert_true(n.id > last);
		last = n.id;
		nodes++;
	}
	assert_int_equal(nodes, 4);
	while (store_read_next_slot(&tx, s.slot, &s) == 0)
		slots--;
	assert_int_equal(slots, 0);
	assert_int_equal(s.slot, STORE_SLOTS_MAX);
	assert_int_equal(store_read_slot(&tx, 2, &s), -ENOENT);
	assert_int_equal(store_read_slot(&tx, STORE_SLOTS_MAX, &s), 0);
}

// --- deltas, retries, bytes -------------------------------------------------------------------------------

static void each_change_leaves_one_delta_with_the_row(void **state)
{
	const struct store_runtime r = runtime_of("c", 1, 1, 1, 1);
	struct store_delta d;
	struct store_runtime got;
	struct store_hash_slots table;
	struct store_slot slot;
	struct store_node node;
	struct store_tx tx;
	uint8_t kind[] = {STORE_DELTA_NODE, STORE_DELTA_NODE, STORE_DELTA_NODE, STORE_DELTA_NODE,
		STORE_DELTA_HASH_SLOTS, STORE_DELTA_SLOT, STORE_DELTA_RUNTIME};

	(void)state;
	active(1);
	active(2);
	set_hash_slots(64, 1, 0);
	const struct store_slot s = slot_of(1, 1, 1, 1, 1);
	assert_int_equal(set_slot(&s), STORE_R_OK);
	assert_int_equal(set_runtime(&r), STORE_R_OK);
	assert_int_equal(b.deltas, 1);
	assert_int_equal(set_runtime(&r), STORE_R_NO_CHANGE);
	assert_int_equal(b.deltas, 0);
	store_map_read(b.map, &tx);
	for (uint64_t commit = 0; commit < sizeof(kind); commit++) {
		assert_int_equal(store_read_delta(&tx, commit, &d), 0);
		assert_true(d.commit == commit + 1 && d.kind == kind[commit]);
		assert_false(store_delta_of_channel(d.kind));
		switch (d.kind) {
		case STORE_DELTA_NODE:
			assert_int_equal(store_node_decode(d.body, d.body_bytes, &node), 0);
			assert_int_equal(node.revision, d.commit);
			break;
		case STORE_DELTA_SLOT:
			assert_int_equal(store_slot_decode(d.body, d.body_bytes, &slot), 0);
			assert_int_equal(slot.revision, d.commit);
			break;
		case STORE_DELTA_HASH_SLOTS:
			assert_int_equal(store_hash_slots_decode(d.body, d.body_bytes, &table), 0);
			assert_true(table.revision == d.commit && table.version == 1);
			break;
		default:
			assert_int_equal(store_runtime_decode(d.body, d.body_bytes, &got), 0);
			assert_true(channel_key_equal(&d.channel, &r.channel));
			assert_int_equal(got.revision, d.commit);
			break;
		}
	}
}

static void a_retry_with_the_same_key_is_answered_from_memory(void **state)
{
	const struct store_node n = node_of(1, "h:1");
	struct store_command cmd;
	struct store_result first;

	(void)state;
	assert_int_equal(store_command_node(&cmd, &n, body), 0);
	store_dedup_key(cmd.dedup, 0, 77);
	first = store_bench_apply(&b, &cmd);
	assert_true(first.code == STORE_R_OK && first.commit == 1);
	step(1, STORE_NODE_ACTIVE);
	assert_int_equal(store_command_node(&cmd, &n, body), 0);
	store_dedup_key(cmd.dedup, 0, 77);
	assert_int_equal(store_bench_apply(&b, &cmd).repeated, 1);
	assert_true(b.result.code == STORE_R_OK && b.result.commit == 1);
	assert_int_equal(read_node(1).state, STORE_NODE_ACTIVE);
}

static void what_breaks_a_rule_has_no_bytes(void **state)
{
	struct store_command cmd;
	struct store_slot s;
	struct store_runtime r;
	struct store_node n;

	(void)state;
#define NO_SLOT(change) \
	do { \
		s = slot_of(1, 1, 1, 1, 1); \
		change; \
		assert_int_equal(store_command_slot(&cmd, &s, body), -EINVAL); \
	} while (0)
	NO_SLOT(s.slot = 0);
	NO_SLOT(s.slot = STORE_SLOTS_MAX + 1);
	NO_SLOT(s.leader = 3);
	NO_SLOT(s.term = 0);
	NO_SLOT(s.config_epoch = 0);
	NO_SLOT(s.peer[0] = 0);
	NO_SLOT(s.peer[1] = 1);
	NO_SLOT(s.peer_count = STORE_REPLICAS_MAX + 1);
#define NO_RUNTIME(change) \
	do { \
		r = runtime_of("c", 1, 1, 1, 1); \
		change; \
		assert_int_equal(store_command_runtime(&cmd, &r, body), -EINVAL); \
	} while (0)
	NO_RUNTIME(r.leader = 3);
	NO_RUNTIME(r.isr[0] = 3);
	NO_RUNTIME(r.replica[0] = 2);
	NO_RUNTIME(r.channel_epoch = 0);
	NO_RUNTIME(r.isr_count = STORE_REPLICAS_MAX + 1);
	n = node_of(0, "h:1");
	assert_int_equal(store_command_node(&cmd, &n, body), -EINVAL);
	n = node_of(1, "");
	assert_int_equal(store_command_node(&cmd, &n, body), -EINVAL);
}

static void every_command_reads_back_and_no_prefix_does(void **state)
{
	const struct store_node n = node_of(7, "host:1");
	const struct store_slot s = slot_of(9, 1, 2, 3, 4);
	const struct store_runtime r = runtime_of("c", 1, 2, 3, 4);
	const struct store_hash_slots t = {.count = 5, .slot_of = {1, 2, 3, 4, 0}};
	static uint8_t data[ENTRY_BYTES_MAX], again[ENTRY_BYTES_MAX];

	(void)state;
	for (uint8_t op = STORE_NODE_JOIN; op <= STORE_RUNTIME_SET; op++) {
		struct store_command cmd, got;
		const char *why;
		int len;

		switch (op) {
		case STORE_NODE_JOIN:
			assert_int_equal(store_command_node(&cmd, &n, body), 0);
			break;
		case STORE_NODE_STATE:
			store_command_node_state(&cmd, 7, STORE_NODE_LEAVING, 99);
			break;
		case STORE_SLOT_SET:
			assert_int_equal(store_command_slot(&cmd, &s, body), 0);
			break;
		case STORE_HASH_SLOTS_SET:
			assert_int_equal(store_command_hash_slots(&cmd, &t, 3, body), 0);
			break;
		default:
			assert_int_equal(store_command_runtime(&cmd, &r, body), 0);
			break;
		}
		store_dedup_key(cmd.dedup, 5, op);
		len = store_command_encode(&cmd, data, sizeof(data));
		assert_true(len > 0);
		assert_int_equal(store_command_decode(data, (uint32_t)len, &got, &why), len);
		assert_true(got.id == cmd.id && got.if_revision == cmd.if_revision);
		assert_true(got.flags == cmd.flags && got.body_bytes == cmd.body_bytes);
		assert_int_equal(store_command_encode(&got, again, sizeof(again)), len);
		assert_memory_equal(again, data, len);
		for (uint32_t i = 0; i < (uint32_t)len; i++)
			assert_int_equal(store_command_decode(data, i, &got, &why), -EINVAL);
		if (op == STORE_NODE_STATE)
			continue;
		// A body that says another thing than the head, or one byte more of it.
		cmd.id++;
		assert_int_equal(store_command_encode(&cmd, data, sizeof(data)), -EINVAL);
		cmd.id--;
		cmd.body_bytes++;
		assert_int_equal(store_command_encode(&cmd, data, sizeof(data)), -EINVAL);
		cmd.body_bytes--;
		cmd.uid_count = 1;
		assert_int_equal(store_command_encode(&cmd, data, sizeof(data)), -EINVAL);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_node_walks_its_lifecycle_and_no_other_way),
		TEST(a_removed_id_is_never_taken_again),
		TEST(joining_again_changes_the_address_and_nothing_else),
		TEST(a_step_for_another_revision_is_stale),
		TEST(node_ids_are_bounded_tombstones_included),
		TEST(a_slot_moves_only_forward),
		TEST(a_slot_names_no_node_that_is_not_active_anew),
		TEST(the_hash_slot_table_counts_its_versions),
		TEST(a_runtime_row_moves_only_forward),
		TEST(a_runtime_row_names_no_leaving_node_anew_in_any_role),
		TEST(rows_are_read_by_hash_slot_in_key_order),
		TEST(nodes_and_slots_are_read_in_order),
		TEST(each_change_leaves_one_delta_with_the_row),
		TEST(a_retry_with_the_same_key_is_answered_from_memory),
		TEST(what_breaks_a_rule_has_no_bytes),
		TEST(every_command_reads_back_and_no_prefix_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
