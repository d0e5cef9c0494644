/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology_build.h"

enum { HASH_SLOTS = 64, SLOTS = 4, NODES = 5, CHANNELS = 40 };

// The store's side: rows as apply keeps them, each change with the next commit number.
struct rows {
	uint64_t commit;
	struct store_node node[NODES + 1];
	struct store_slot slot[SLOTS + 1];
	struct store_hash_slots table;
	struct store_runtime runtime[CHANNELS];
};

static void set_node(struct rows *r, uint64_t id, const char *address, uint8_t state)
{
	struct store_node *const n = &r->node[id];

	*n = (struct store_node){.id = id, .revision = ++r->commit, .state = state};
	n->address_len = (uint8_t)strlen(address);
	memcpy(n->address, address, n->address_len);
}

static void set_leader(struct rows *r, uint32_t slot, uint64_t leader)
{
	struct store_slot *const s = &r->slot[slot];

	s->slot = slot;
	s->leader = leader;
	s->term++;
	s->config_epoch = 1;
	s->revision = ++r->commit;
	s->peer_count = 3;
	for (uint64_t i = 0; i < 3; i++)
		s->peer[i] = i + 1;
}

static void set_table(struct rows *r, uint32_t shift)
{
	r->table.version++;
	r->table.count = HASH_SLOTS;
	r->table.revision = ++r->commit;
	for (uint32_t i = 0; i < HASH_SLOTS; i++)
		r->table.slot_of[i] = (uint16_t)((i + shift) * SLOTS / HASH_SLOTS % SLOTS + 1);
}

static void set_channel(struct rows *r, uint32_t i, uint64_t leader, bool named)
{
	struct store_runtime *const m = &r->runtime[i];
	char id[16] = "room-00";

	id[5] = (char)('0' + i / 10);
	id[6] = (char)('0' + i % 10);
	assert_int_equal(channel_key_set(&m->channel, CHANNEL_GROUP, id, 7), 0);
	m->leader = named ? leader : 0;
	m->channel_epoch++;
	m->leader_epoch = 1;
	m->revision = ++r->commit;
	m->replica_count = m->isr_count = named ? 3 : 0;
	for (uint64_t n = 0; n < 3; n++)
		m->replica[n] = m->isr[n] = n + 1;
}

static void rows_begin(struct rows *r)
{
	memset(r, 0, sizeof(*r));
	for (uint64_t id = 1; id <= NODES; id++)
		set_node(r, id, "10.0.0.1:7400", STORE_NODE_ACTIVE);
	for (uint32_t s = 1; s <= SLOTS; s++)
		set_leader(r, s, 1 + s % 3);
	set_table(r, 0);
}

static void give_all(struct topology_builder *b, const struct rows *r)
{
	topology_builder_hash_slots(b, &r->table);
	for (uint32_t s = 1; s <= SLOTS; s++)
		topology_builder_slot(b, &r->slot[s]);
	for (uint32_t i = 0; i < CHANNELS; i++)
		if (r->runtime[i].channel_epoch != 0)
			assert_true(topology_builder_channel(b, &r->runtime[i]) >= 0);
	for (uint64_t id = 1; id <= NODES; id++)
		topology_builder_node(b, &r->node[id]);
}

static const struct topology *publish(struct topology_builder *b)
{
	const struct topology *t = NULL;

	assert_int_equal(topology_builder_publish(b, &t), 1);
	return t;
}

static void nothing_is_published_before_all_rows_fit(void **state)
{
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	const struct topology *t = NULL;
	static struct rows r;

	(void)state;
	rows_begin(&r);
	assert_int_equal(topology_builder_publish(b, &t), 0);
	assert_int_equal(topology_builder_hash_slots(b, &r.table), 1);
	assert_int_equal(topology_builder_publish(b, &t), -EAGAIN);
	assert_non_null(strstr(topology_builder_missing(b), "slot without a row"));
	for (uint32_t s = SLOTS; s > 0; s--)
		assert_int_equal(topology_builder_slot(b, &r.slot[s]), 1);
	for (uint64_t id = NODES; id > 1; id--)
		assert_int_equal(topology_builder_node(b, &r.node[id]), 1);
	assert_int_equal(topology_builder_publish(b, &t), -EAGAIN);
	assert_null(t);
	assert_int_equal(topology_builder_node(b, &r.node[1]), 1);
	t = publish(b);
	assert_string_equal(topology_builder_missing(b), "");
	assert_int_equal(t->revision, r.commit);
	assert_int_equal(t->version, 1);
	assert_int_equal(topology_builder_publish(b, &t), 0);
	topology_builder_free(b, (void *)t);
	topology_builder_destroy(b);
}

static void every_change_numbers_a_snapshot_and_only_the_table_moves_the_version(void **state)
{
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	const struct topology *a, *c;
	struct topology_ref ref;
	static struct rows r;

	(void)state;
	rows_begin(&r);
	give_all(b, &r);
	a = publish(b);
	topology_ref_begin(&ref, a);
	assert_int_equal(topology_ref_add(&ref, a, 2), 0);
	set_leader(&r, 1, 3);
	assert_int_equal(topology_builder_slot(b, &r.slot[1]), 1);
	c = publish(b);
	assert_int_equal(c->version, a->version);
	assert_int_equal(c->revision, a->revision + 1);
	assert_int_equal(a->slot[0].leader, 2);
	assert_int_equal(c->slot[0].leader, 3);
	assert_true(topology_ref_current(&ref, c));
	topology_builder_free(b, (void *)a);
	a = c;
	set_node(&r, 4, "10.0.0.9:7400", STORE_NODE_LEAVING);
	topology_builder_node(b, &r.node[4]);
	c = publish(b);
	assert_true(topology_ref_current(&ref, c));
	assert_int_equal(topology_node(c, 4)->ip, 0x0a000009);
	assert_int_equal(topology_node(a, 4)->ip, 0x0a000001);
	topology_builder_free(b, (void *)a);
	a = c;
	set_table(&r, 1);
	topology_builder_hash_slots(b, &r.table);
	c = publish(b);
	assert_int_equal(c->version, a->version + 1);
	assert_false(topology_ref_current(&ref, c));
	topology_builder_free(b, (void *)a);
	topology_builder_free(b, (void *)c);
	topology_builder_destroy(b);
}

static void repeated_and_late_rows_change_nothing(void **state)
{
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	const struct topology *t, *same = NULL;
	static struct rows old, r;

	(void)state;
	rows_begin(&r);
	set_channel(&r, 1, 2, true);
	old = r;
	set_leader(&r, 2, 1);
	set_table(&r, 3);
	set_node(&r, 2, "10.0.0.2:7400", STORE_NODE_LEAVING);
	set_channel(&r, 1, 3, true);
	give_all(b, &r);
	t = publish(b);
	give_all(b, &r);
	give_all(b, &old);
	assert_int_equal(topology_builder_publish(b, &same), 0);
	assert_int_equal(t->slot[1].leader, 1);
	topology_builder_free(b, (void *)t);
	topology_builder_destroy(b);
}

static void addresses_that_are_none_are_known_to_be_none(void **state)
{
	static const char *const bad[] = {"node-1:7400", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536",
		"10.0.0.256:1", "10.0.0.1:7400x", "0.0.0.0:7400", "10.0.0.1:0", "10..0.1:7",
		"10.0.0.01:7400", ":7400", "10.0.0.1:100000"};
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	static struct rows r;

	(void)state;
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct topology *t;

		rows_begin(&r);
		set_node(&r, 5, bad[i], STORE_NODE_ACTIVE);
		topology_builder_reset(b);
		give_all(b, &r);
		t = publish(b);
		if (topology_node(t, 5)->ip != 0 || topology_node(t, 5)->port != 0)
			fail_msg("%s", bad[i]);
		assert_int_equal(topology_node(t, 1)->port, 7400);
		assert_null(topology_node(t, 6));
		topology_builder_free(b, (void *)t);
	}
	topology_builder_destroy(b);
}

static struct topology_authority authority(const struct topology *t, const char *id)
{
	struct topology_authority a;
	struct channel_key key;
	int rc;

	assert_int_equal(channel_key_set(&key, CHANNEL_GROUP, id, (uint8_t)strlen(id)), 0);
	rc = topology_authority(t, &key, channel_key_hash(&key), &a);
	assert_int_equal(rc, a.node == 0 ? -EAGAIN : 0);
	return a;
}

static void a_runtime_row_names_the_leader_of_its_channel_alone(void **state)
{
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	struct topology_authority slot, named, derived;
	const struct topology *t;
	static struct rows r;

	(void)state;
	rows_begin(&r);
	give_all(b, &r);
	t = publish(b);
	slot = authority(t, "room-07");
	derived = authority(t, "room-07____cmd");
	assert_int_equal(derived.slot, slot.slot);
	assert_int_equal(derived.node, slot.node);
	assert_int_equal(slot.channel_epoch, 0);
	topology_builder_free(b, (void *)t);

	set_channel(&r, 7, slot.node % 3 + 1, true);
	topology_builder_channel(b, &r.runtime[7]);
	t = publish(b);
	named = authority(t, "room-07");
	assert_int_equal(named.node, slot.node % 3 + 1);
	assert_int_equal(named.term, slot.term);
	assert_int_equal(named.channel_epoch, 1);
	derived = authority(t, "room-07____cmd");
	assert_int_equal(derived.node, slot.node);
	assert_int_equal(authority(t, "room-08").channel_epoch, 0);
	assert_int_equal(topology_authority_compare(&slot, &named), TOPOLOGY_OLDER);
	assert_int_equal(topology_authority_compare(&named, &slot), TOPOLOGY_NEWER);
	assert_int_equal(topology_authority_compare(&named, &named), TOPOLOGY_SAME);
	topology_builder_free(b, (void *)t);

	set_channel(&r, 7, 0, true);  // replicas, but no leader: unknown, not the slot's
	topology_builder_channel(b, &r.runtime[7]);
	t = publish(b);
	assert_int_equal(authority(t, "room-07").node, 0);
	topology_builder_free(b, (void *)t);

	set_channel(&r, 7, 0, false);  // a tombstone names nobody
	topology_builder_channel(b, &r.runtime[7]);
	t = publish(b);
	assert_int_equal(authority(t, "room-07").node, slot.node);
	assert_int_equal(authority(t, "room-07").channel_epoch, 3);
	slot = authority(t, "room-07");
	assert_int_equal(topology_authority_compare(&named, &slot), TOPOLOGY_OLDER);
	topology_builder_free(b, (void *)t);
	topology_builder_destroy(b);
}

static void authorities_compare_part_by_part(void **state)
{
	const struct topology_authority known = {2, 3, 10, 5, 7};
	struct topology_authority told = known;

	(void)state;
	told.term = 9;
	assert_int_equal(topology_authority_compare(&told, &known), TOPOLOGY_OLDER);
	told.channel_epoch = 6;  // newer in one, older in the other: its maker is past
	assert_int_equal(topology_authority_compare(&told, &known), TOPOLOGY_OLDER);
	told = known, told.term = 11;
	assert_int_equal(topology_authority_compare(&told, &known), TOPOLOGY_NEWER);
	told = known, told.channel_epoch = 6, told.leader_epoch = 1;
	assert_int_equal(topology_authority_compare(&told, &known), TOPOLOGY_NEWER);
	told = known, told.leader_epoch = 6;
	assert_int_equal(topology_authority_compare(&told, &known), TOPOLOGY_OLDER);
	told = known, told.node = 3;
	assert_int_equal(topology_authority_compare(&told, &known), TOPOLOGY_UNLIKE);
	told = known, told.slot = 4;
	assert_int_equal(topology_authority_compare(&told, &known), TOPOLOGY_UNLIKE);
	told = known, told.node = 0;
	assert_int_equal(topology_authority_compare(&told, &told), TOPOLOGY_UNLIKE);
}

static void a_removed_node_leads_nothing(void **state)
{
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	const struct topology *t;
	static struct rows r;

	(void)state;
	rows_begin(&r);
	set_channel(&r, 0, 2, true);
	set_node(&r, 2, "10.0.0.1:7400", STORE_NODE_REMOVED);
	give_all(b, &r);
	t = publish(b);
	for (uint32_t s = 1; s <= SLOTS; s++)
		assert_int_equal(topology_slot_known(t, s) == NULL, 1 + s % 3 == 2);
	assert_int_equal(topology_slots_led(t, 2), 0);
	assert_int_equal(authority(t, "room-00").node, 0);
	topology_builder_free(b, (void *)t);
	topology_builder_destroy(b);
}

// --- against a model ----------------------------------------------------------------------------------------

enum { ROUNDS = 400, LOG = 64 };

static int give_one(struct topology_builder *b, const struct rows *r, uint64_t *seed)
{
	uint8_t body[STORE_BODY_MAX];
	struct store_delta d = {.commit = r->commit, .body = body};
	int len = 0;

	switch (unit_random(seed) % 4) {
	case 0:
		d.kind = STORE_DELTA_NODE;
		len = store_node_encode(
			&r->node[1 + unit_random(seed) % NODES], body, sizeof(body));
		break;
	case 1:
		d.kind = STORE_DELTA_SLOT;
		len = store_slot_encode(
			&r->slot[1 + unit_random(seed) % SLOTS], body, sizeof(body));
		break;
	case 2:
		d.kind = STORE_DELTA_HASH_SLOTS;
		len = store_hash_slots_encode(&r->table, body, sizeof(body));
		break;
	default: {
		const struct store_runtime *const m = &r->runtime[unit_random(seed) % CHANNELS];

		if (m->channel_epoch == 0)
			return 0;
		d.kind = STORE_DELTA_RUNTIME;
		d.channel = m->channel;
		len = store_runtime_encode(m, body, sizeof(body));
	}
	}
	assert_true(len > 0);
	d.body_bytes = (uint32_t)len;
	return topology_builder_delta(b, &d);
}

static void change_one(struct rows *r, uint64_t *seed)
{
	switch (unit_random(seed) % 4) {
	case 0:
		set_node(r, 1 + unit_random(seed) % NODES, "10.1.2.3:99", STORE_NODE_LEAVING);
		break;
	case 1:
		set_leader(r, 1 + (uint32_t)(unit_random(seed) % SLOTS), unit_random(seed) % 4);
		break;
	case 2:
		set_table(r, (uint32_t)(unit_random(seed) % HASH_SLOTS));
		break;
	default:
		set_channel(r, (uint32_t)(unit_random(seed) % CHANNELS), unit_random(seed) % 4,
			unit_random(seed) % 3 != 0);
	}
}

static void check_rows(const struct topology *t, const struct rows *r)
{
	assert_int_equal(t->revision, r->commit);
	assert_int_equal(t->version, r->table.version);
	for (uint32_t i = 0; i < HASH_SLOTS; i++)
		assert_int_equal(t->slot_of[i], r->table.slot_of[i]);
	for (uint32_t s = 1; s <= SLOTS; s++) {
		assert_int_equal(t->slot[s - 1].leader, r->slot[s].leader);
		assert_int_equal(t->slot[s - 1].term, r->slot[s].term);
	}
	for (uint64_t id = 1; id <= NODES; id++) {
		assert_int_equal(topology_node(t, id)->revision, r->node[id].revision);
		assert_int_equal(topology_node(t, id)->state, r->node[id].state);
	}
	for (uint32_t i = 0; i < CHANNELS; i++) {
		const struct store_runtime *const m = &r->runtime[i];
		struct topology_authority a;

		if (m->channel_epoch == 0)
			continue;
		topology_authority(t, &m->channel, channel_key_hash(&m->channel), &a);
		assert_int_equal(a.channel_epoch, m->channel_epoch);
		if (a.term != 0 && r->slot[a.slot].leader != 0)
			assert_int_equal(
				a.node, m->replica_count != 0 ? m->leader : r->slot[a.slot].leader);
	}
}

// Rows of one state given in any order, repeated, mixed with those of states before, end as that state.
static void any_order_of_rows_ends_as_the_last_state(void **state)
{
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	static struct rows log[LOG];
	const struct topology *t = NULL, *next;
	uint64_t seed = 7, revision = 0;

	(void)state;
	rows_begin(&log[0]);
	for (uint32_t round = 1; round < ROUNDS; round++) {
		struct rows *const now = &log[round % LOG];

		*now = log[(round - 1) % LOG];
		for (uint32_t n = (uint32_t)(unit_random(&seed) % 5); n > 0; n--)
			change_one(now, &seed);
		for (uint32_t n = 0; n < 20; n++)
			assert_true(
				give_one(b, &log[unit_random(&seed) % (round < LOG ? round : LOG)],
					&seed) >= 0);
		give_all(b, now);
		for (uint32_t n = 0; n < 5; n++)
			assert_int_equal(give_one(b, now, &seed), 0);
		if (now->commit == revision) {
			assert_int_equal(topology_builder_publish(b, &next), 0);
			continue;
		}
		next = publish(b);
		check_rows(next, now);
		if (t != NULL)
			topology_builder_free(b, (void *)t);
		t = next;
		revision = t->revision;
	}
	topology_builder_free(b, (void *)t);
	topology_builder_destroy(b);
}

static void a_snapshot_stays_as_it_was_and_outlives_its_builders_rows(void **state)
{
	struct topology_builder *const b = topology_builder_create(CHANNELS);
	static struct rows r, was;
	const struct topology *t, *later;
	uint64_t seed = 3;

	(void)state;
	rows_begin(&r);
	for (uint32_t i = 0; i < CHANNELS; i++)
		set_channel(&r, i, 1 + i % 3, true);
	give_all(b, &r);
	was = r;
	t = publish(b);
	for (uint32_t i = 0; i < 50; i++)
		change_one(&r, &seed);
	give_all(b, &r);
	later = publish(b);
	check_rows(t, &was);
	check_rows(later, &r);
	topology_builder_reset(b);
	check_rows(t, &was);
	topology_builder_free(b, (void *)t);
	topology_builder_free(b, (void *)later);
	topology_builder_destroy(b);
}

static void limits_and_unsound_rows_are_refused(void **state)
{
	struct topology_builder *const b = topology_builder_create(2);
	struct store_delta d = {
		.kind = STORE_DELTA_SLOT, .body = (const uint8_t *)"x", .body_bytes = 1};
	struct store_hash_slots table = {.version = 9, .revision = 999, .count = HASH_SLOTS / 2};
	static struct rows r;

	(void)state;
	rows_begin(&r);
	for (uint32_t i = 0; i < 3; i++) {
		set_channel(&r, i, 1, true);
		assert_int_equal(topology_builder_channel(b, &r.runtime[i]), i < 2 ? 1 : -ENOSPC);
	}
	set_channel(&r, 0, 2, true);
	assert_int_equal(topology_builder_channel(b, &r.runtime[0]), 1);
	assert_int_equal(topology_builder_delta(b, &d), -EINVAL);
	d.kind = 77;
	assert_int_equal(topology_builder_delta(b, &d), -EINVAL);
	d.kind = STORE_DELTA_ADD;
	assert_int_equal(topology_builder_delta(b, &d), 0);
	assert_int_equal(topology_builder_hash_slots(b, &r.table), 1);
	assert_int_equal(topology_builder_hash_slots(b, &table), -EINVAL);
	r.slot[1].slot = 0;
	assert_int_equal(topology_builder_slot(b, &r.slot[1]), -EINVAL);
	topology_builder_destroy(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_published_before_all_rows_fit),
		cmocka_unit_test(
			every_change_numbers_a_snapshot_and_only_the_table_moves_the_version),
		cmocka_unit_test(repeated_and_late_rows_change_nothing),
		cmocka_unit_test(addresses_that_are_none_are_known_to_be_none),
		cmocka_unit_test(a_runtime_row_names_the_leader_of_its_channel_alone),
		cmocka_unit_test(authorities_compare_part_by_part),
		cmocka_unit_test(a_removed_node_leads_nothing),
		cmocka_unit_test(any_order_of_rows_ends_as_the_last_state),
		cmocka_unit_test(a_snapshot_stays_as_it_was_and_outlives_its_builders_rows),
		cmocka_unit_test(limits_and_unsound_rows_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
