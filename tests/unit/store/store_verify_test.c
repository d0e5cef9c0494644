/* SPDX-License-Identifier: BSD-3-Clause */
// The look at a whole store: a sound one passes in every state the model reaches, and each planted fault is
// found and named.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "store_bench.h"
#include "store_cluster.h"
#include "store_model.h"
#include "store_verify.h"

static struct store_bench b;
static uint8_t body[STORE_BODY_MAX];

static void apply(struct store_command *cmd)
{
	store_dedup_key(cmd->dedup, 0, b.index + 1);
	store_bench_apply(&b, cmd);
	assert_int_equal(b.result.code, STORE_R_OK);
}

static int setup(void **state)
{
	const struct store_node node = {.id = 1, .address_len = 1, .address = "h"};
	const struct store_slot slot = {
		.slot = 1, .leader = 1, .term = 1, .config_epoch = 1, .peer_count = 1, .peer = {1}};
	const struct store_hash_slots table = {.count = 4, .slot_of = {1, 1, 1, 1}};
	struct store_runtime runtime = {.leader = 1,
		.channel_epoch = 1,
		.replica_count = 1,
		.replica = {1},
		.isr_count = 1,
		.isr = {1}};
	struct store_command cmd;

	(void)state;
	store_bench_open(&b);
	b.limits.fold_rows = 1;
	store_bench_do(&b, STORE_ADD, "g", "a b c d");
	store_bench_do(&b, STORE_ADD, "h", "x");
	store_bench_stage(&b, 1, STORE_ADD, "g", "e f g");
	store_bench_close_stage(&b, 1, STORE_ADD, "g");
	store_bench_do(&b, STORE_CHANNEL_REMOVE, "h", NULL);
	store_bench_stage(&b, 2, STORE_REMOVE, "g", "a e");
	store_bench_stage(&b, 3, STORE_ADD, "new", "n");
	store_command_node(&cmd, &node, body);
	apply(&cmd);
	store_command_node_state(&cmd, 1, STORE_NODE_ACTIVE, 0);
	apply(&cmd);
	store_command_slot(&cmd, &slot, body);
	apply(&cmd);
	store_command_hash_slots(&cmd, &table, 0, body);
	apply(&cmd);
	channel_key_set(&runtime.channel, CHANNEL_GROUP, "g", 1);
	store_command_runtime(&cmd, &runtime, body);
	apply(&cmd);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	store_bench_close(&b);
	return 0;
}

static int look(struct store_inspection *out, struct store_fault *fault)
{
	struct store_tx tx;

	store_map_read(b.map, &tx);
	return store_verify(&tx, out, fault);
}

static void what_is_there_is_counted(void **state)
{
	struct store_inspection i;
	struct store_fault fault;

	(void)state;
	assert_int_equal(look(&i, &fault), 0);
	assert_true(i.cluster_id == 7 && i.commit == 9 && i.applied == b.index);
	assert_true(i.channels == 1 && i.tombstones == 1 && i.channels_staged == 1);
	assert_true(i.members == 7 && i.list_rows[0] == 7 && i.list_rows[1] == 0);
	assert_true(i.lists_layered == 1 && i.generations_dead == 1 && i.stages == 2);
	assert_true(i.journal_first == 1 && i.journal_last == 9 && i.dedup_keys == 5);
	assert_true(i.nodes[0] == 1 && i.nodes[STORE_NODE_ACTIVE] == 1 && i.slots == 1);
	assert_true(i.hash_slots == 4 && i.runtime_rows == 1);
	assert_true(i.rows[STORE_T_META] == 2 && i.rows[STORE_T_CHANNEL] == 3);
	assert_true(i.rows[STORE_T_MEMBER] == 4 + 3 + 1 + 2 + 1);
}

static void an_unformatted_store_is_none(void **state)
{
	struct store_map *empty = store_map_create();
	struct store_inspection i;
	struct store_fault fault;
	struct store_tx tx;

	(void)state;
	store_map_read(empty, &tx);
	assert_int_equal(store_verify(&tx, &i, &fault), -ENOENT);
	store_map_destroy(empty);
}

// --- planted faults ---------------------------------------------------------------------------------------

struct row {
	uint8_t key[512], value[1024];
	uint32_t key_len, value_len;
};

// The nth row of a table whose key starts with `prefix`.
static struct row row_at(enum store_table t, const char *prefix, uint32_t prefix_len, uint32_t nth)
{
	struct store_bytes key, value;
	struct store_tx tx;
	struct row r = {.key_len = 1};
	bool after = false;

	store_map_read(b.map, &tx);
	do {
		assert_int_equal(tx.ops->seek(tx.tx, t, (struct store_bytes){r.key, r.key_len},
					 after, &key, &value),
			0);
		memcpy(r.key, key.p, key.len);
		memcpy(r.value, value.p, value.len);
		r.key_len = key.len;
		r.value_len = value.len;
		after = true;
	} while (r.key_len < prefix_len || memcmp(r.key, prefix, prefix_len) != 0 || nth-- > 0);
	return r;
}

static void put(enum store_table t, const struct row *r)
{
	struct store_tx tx;

	store_map_begin(b.map, &tx);
	assert_int_equal(tx.ops->put(tx.tx, t, (struct store_bytes){r->key, r->key_len},
				 (struct store_bytes){r->value, r->value_len}),
		0);
	store_map_commit(b.map, &tx);
}

static void del(enum store_table t, const struct row *r)
{
	struct store_tx tx;

	store_map_begin(b.map, &tx);
	assert_int_equal(tx.ops->del(tx.tx, t, (struct store_bytes){r->key, r->key_len}), 0);
	store_map_commit(b.map, &tx);
}

// The store says `what` of table t; then it is as it was before.
static void found(struct store_map *sound, enum store_table t, const char *what)
{
	struct store_inspection i;
	struct store_fault fault;

	assert_int_equal(look(&i, &fault), -EUCLEAN);
	assert_string_equal(fault.what, what);
	assert_string_equal(store_table_name(fault.table), store_table_name(t));
	store_map_copy(b.map, sound);
}

static void a_damaged_channel_is_found(void **state)
{
	struct store_map *sound = store_map_create();
	const struct row g = row_at(STORE_T_CHANNEL, "\2g", 2, 0);
	struct row r;

	(void)state;
	store_map_copy(sound, b.map);
#define CHANNEL(at, to, table, what) \
	do { \
		r = g; \
		r.value[at] = to; \
		put(STORE_T_CHANNEL, &r); \
		found(sound, table, what); \
	} while (0)
	CHANNEL(0, 9, STORE_T_CHANNEL, "a row that is none");
	CHANNEL(8, 99, STORE_T_CHANNEL, "a channel's number was never given out");
	CHANNEL(8, 2, STORE_T_STAGE, "a list to merge of no channel");
	CHANNEL(16, 99, STORE_T_CHANNEL, "a channel's version is above the commit number");
	CHANNEL(16, 0, STORE_T_CHANNEL, "a channel without a mutation is there");
	CHANNEL(16, 9, STORE_T_CHANNEL, "more mutations than commit numbers");
	CHANNEL(2, 1, STORE_T_CHANNEL, "a removed channel has rows");
	CHANNEL(32, 6, STORE_T_CHANNEL, "a list's rows are not as many as it says");
	CHANNEL(32 + 9, 99, STORE_T_CHANNEL, "a generation is none that was given out");
	CHANNEL(32 + 9, 2, STORE_T_MEMBER, "a generation is used twice");
	store_map_destroy(sound);
}
#undef CHANNEL

static void lost_and_foreign_rows_are_found(void **state)
{
	struct store_map *sound = store_map_create();
	struct row r;

	(void)state;
	store_map_copy(sound, b.map);
	r = row_at(STORE_T_MEMBER, "", 0, 0);
	del(STORE_T_MEMBER, &r);
	found(sound, STORE_T_CHANNEL, "a list's rows are not as many as it says");
	r = row_at(STORE_T_MEMBER, "", 0, 0);
	r.key[7] = 77;
	put(STORE_T_MEMBER, &r);
	found(sound, STORE_T_MEMBER, "a row of no generation in use");
	r = row_at(STORE_T_STAGE, "S", 1, 0);
	del(STORE_T_STAGE, &r);
	found(sound, STORE_T_MEMBER, "a row of no generation in use");
	r = row_at(STORE_T_STAGE, "S", 1, 0);
	r.key[8] = 50;
	put(STORE_T_STAGE, &r);
	found(sound, STORE_T_STAGE, "a stage that its channel does not know");
	r = row_at(STORE_T_STAGE, "L", 1, 0);
	del(STORE_T_STAGE, &r);
	found(sound, STORE_T_CHANNEL, "generations that nothing will merge");
	r = row_at(STORE_T_JOURNAL, "", 0, 3);
	del(STORE_T_JOURNAL, &r);
	found(sound, STORE_T_JOURNAL, "the journal has a gap before this");
	r = row_at(STORE_T_JOURNAL, "", 0, 8);
	del(STORE_T_JOURNAL, &r);
	found(sound, STORE_T_JOURNAL, "the journal ends before the commit number");
	r = row_at(STORE_T_DEDUP, "O", 1, 0);
	del(STORE_T_DEDUP, &r);
	found(sound, STORE_T_DEDUP, "a key that nothing will evict");
	r = row_at(STORE_T_DEDUP, "O", 1, 0);
	r.key[8] = 200;
	put(STORE_T_DEDUP, &r);
	found(sound, STORE_T_DEDUP, "a sequence that was not given out");
	r = row_at(STORE_T_RUNTIME, "N", 1, 0);
	del(STORE_T_RUNTIME, &r);
	found(sound, STORE_T_RUNTIME, "it names a node that never was");
	r = row_at(STORE_T_RUNTIME, "C", 1, 0);
	r.key[2] ^= 1;
	put(STORE_T_RUNTIME, &r);
	found(sound, STORE_T_RUNTIME, "a row in the wrong hash slot");
	store_map_destroy(sound);
}

// --- the model's states -------------------------------------------------------------------------------------

static void every_state_of_a_random_run_is_sound(void **state)
{
	struct store_map *map = store_map_create();
	const struct store_model_backend backend = store_model_on_map(map);
	struct store_model *model = store_model_create(&backend, 31);
	struct store_inspection i;
	struct store_fault fault;
	struct store_tx tx;
	const char *why;
	uint64_t staged = 0, layered = 0, dead = 0;

	(void)state;
	store_map_begin(map, &tx);
	assert_int_equal(store_open(&tx, 7, &why), 0);
	store_map_commit(map, &tx);
	for (uint32_t round = 0; round < 150; round++) {
		assert_int_equal(store_model_run(model, 200), 0);
		store_map_read(map, &tx);
		if (store_verify(&tx, &i, &fault) != 0)
			assert_string_equal(fault.what, "");
		staged += i.stages;
		layered += i.lists_layered;
		dead += i.generations_dead;
	}
	assert_true(staged > 10 && layered > 10 && dead > 10);
	store_model_destroy(model);
	store_map_destroy(map);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_is_there_is_counted),
		cmocka_unit_test(an_unformatted_store_is_none),
		TEST(a_damaged_channel_is_found),
		TEST(lost_and_foreign_rows_are_found),
		cmocka_unit_test(every_state_of_a_random_run_is_sound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
