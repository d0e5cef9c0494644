/* SPDX-License-Identifier: BSD-3-Clause */
// Checks a store against itself. First the rows of each table by themselves, while what may be referred to is
// collected; then the references. Thread: owner of the read transaction.
#include "store_verify.h"

#include <stdlib.h>

#include "store_cluster_pvt.h"
#include "store_read.h"
#include "store_snapshot_pvt.h"

struct prefixes {
	uint8_t (*p)[ROW_PREFIX];
	uint64_t count, cap;
};

struct verify {
	struct store_tx *tx;
	struct store_inspection *out;
	struct store_fault *fault;
	struct store_state state;
	struct prefixes live;  // generations that may have rows
	struct prefixes numbers;  // of channels, with zeros behind
	uint64_t smv_sum, dedup_orders;
};

static int wrong(struct verify *v, enum store_table t, struct store_bytes key, const char *what)
{
	v->fault->what = what;
	v->fault->table = (uint8_t)t;
	v->fault->key_len = key.len < sizeof(v->fault->key) ? key.len : sizeof(v->fault->key);
	if (v->fault->key_len != 0)
		memcpy(v->fault->key, key.p, v->fault->key_len);
	return -EUCLEAN;
}

static int prefix_add(struct prefixes *set, const uint8_t p[ROW_PREFIX])
{
	if (set->count == set->cap) {
		const uint64_t cap = set->cap == 0 ? 1024 : 2 * set->cap;
		void *more = realloc(set->p, cap * ROW_PREFIX);

		if (more == NULL)
			return -ENOMEM;
		set->p = more;
		set->cap = cap;
	}
	memcpy(set->p[set->count++], p, ROW_PREFIX);
	return 0;
}

static int prefix_order(const void *a, const void *b)
{
	return memcmp(a, b, ROW_PREFIX);
}

// Sorts. Returns: false when one is there twice.
static bool prefix_sort(struct prefixes *set)
{
	if (set->count != 0)
		qsort(set->p, set->count, ROW_PREFIX, prefix_order);
	for (uint64_t i = 1; i < set->count; i++)
		if (prefix_order(set->p[i - 1], set->p[i]) == 0)
			return false;
	return true;
}

static bool prefix_has(const struct prefixes *set, const uint8_t *p)
{
	return set->count != 0 && bsearch(p, set->p, set->count, ROW_PREFIX, prefix_order) != NULL;
}

// --- channels -------------------------------------------------------------------------------------------

static const char *list_fault(const struct store_chan *c, uint8_t l)
{
	const struct store_rowset *set = &c->list[l];

	if (set->layers == 0 && set->count != 0)
		return "a list without generations has members";
	if (c->removed && set->layers != 0)
		return "a removed channel has rows";
	for (uint32_t i = 0; i < set->layers; i++)
		if (set->layer[i].generation == 0 || set->layer[i].generation >= c->next_generation)
			return "a generation is none that was given out";
	return NULL;
}

static const char *chan_fault(const struct verify *v, const struct store_chan *c)
{
	const char *what = NULL;

	if (c->number == 0 || c->number >= v->state.next_number)
		return "a channel's number was never given out";
	if (c->smv > v->state.commit)
		return "a channel's version is above the commit number";
	if (!c->removed && c->smv == 0)
		return "a channel without a mutation is there";
	if (c->removed && c->smv == 0 && c->stage_id == 0)
		return "a channel that nothing brought in";
	for (uint8_t l = 0; what == NULL && l < STORE_LISTS; l++)
		what = list_fault(c, l);
	return what;
}

static int chan_collect(struct verify *v, const struct store_chan *c)
{
	struct row_key key;
	int rc = 0;

	for (uint8_t l = 0; rc == 0 && l < STORE_LISTS; l++) {
		const struct store_rowset *set = &c->list[l];

		for (uint32_t i = 0; rc == 0 && i < set->layers; i++) {
			row_prefix(&key, c->number, l, set->layer[i].generation);
			rc = prefix_add(&v->live, key.bytes);
		}
		v->out->list_rows[l] += set->count;
		v->out->lists_layered += set->layers > 1;
	}
	row_prefix(&key, c->number, 0, 0);
	return rc != 0 ? rc : prefix_add(&v->numbers, key.bytes);
}

static int see_channel(struct verify *v, struct store_bytes key, struct store_bytes value)
{
	const uint8_t *k = key.p;
	struct channel_key name;
	struct store_chan chan;
	const char *what;

	channel_key_set(&name, k[0], k + 1, (uint8_t)(key.len - 1));
	if (chan_decode(&name, value, &chan) != 0)
		return wrong(v, STORE_T_CHANNEL, key, "not a channel record");
	what = chan_fault(v, &chan);
	if (what != NULL)
		return wrong(v, STORE_T_CHANNEL, key, what);
	v->smv_sum += chan.smv;
	if (!chan.removed)
		v->out->channels++;
	else if (chan.smv != 0)
		v->out->tombstones++;
	else
		v->out->channels_staged++;
	v->out->members += chan.list[STORE_MEMBERS].count;
	return chan_collect(v, &chan);
}

// --- the other tables, row by row ---------------------------------------------------------------------------

static int see_journal(struct verify *v, struct store_bytes key, struct store_bytes value)
{
	struct store_inspection *o = v->out;
	struct store_channel channel;
	struct store_delta d;
	int rc;

	if (key.len != 8 || store_delta_decode(value.p, value.len, &d) != (int)value.len)
		return wrong(v, STORE_T_JOURNAL, key, "not a delta");
	if (d.commit != get_be(key.p, 8) || d.commit > v->state.commit)
		return wrong(v, STORE_T_JOURNAL, key, "a delta of another commit number");
	if (o->journal_last != 0 && d.commit != o->journal_last + 1)
		return wrong(v, STORE_T_JOURNAL, key, "the journal has a gap before this");
	if (o->journal_first == 0)
		o->journal_first = d.commit;
	o->journal_last = d.commit;
	if (!store_delta_of_channel(d.kind))
		return 0;
	rc = store_read_channel(v->tx, &d.channel, &channel);
	if (rc == -ENOENT || (rc == 0 && channel.smv < d.smv))
		return wrong(v, STORE_T_JOURNAL, key, "a delta ahead of its channel");
	return rc;
}

static int see_dedup(struct verify *v, struct store_bytes key, struct store_bytes value)
{
	const uint8_t *k = key.p, *p = value.p;
	uint8_t o[9] = {'O'};
	struct store_bytes order;
	int rc;

	if (get_le(p, 8) > v->state.commit)
		return wrong(v, STORE_T_DEDUP, key, "a key from above the commit number");
	if (k[0] == 'O') {
		v->dedup_orders++;
		return get_be(k + 1, 8) < v->state.dedup_next
			       ? 0
			       : wrong(v, STORE_T_DEDUP, key, "a sequence that was not given out");
	}
	v->out->dedup_keys++;
	put_be(o + 1, get_le(p + 8, 8), 8);
	rc = tx_get(v->tx, STORE_T_DEDUP, bytes_of(o, sizeof(o)), &order);
	if (rc == -ENOENT ||
		(rc == 0 && memcmp((const uint8_t *)order.p + 8, k + 1, STORE_DEDUP_BYTES) != 0))
		return wrong(v, STORE_T_DEDUP, key, "a key that nothing will evict");
	return rc;
}

static int see_open_stage(struct verify *v, struct store_bytes key, struct store_bytes value)
{
	struct store_stage stage;
	struct store_chan chan;
	struct row_key row;
	int rc;

	if (stage_decode(key, value, &stage) != 0 || stage.list >= STORE_LISTS)
		return wrong(v, STORE_T_STAGE, key, "not a stage");
	rc = chan_load(v->tx, &stage.channel, &chan);
	if (rc == 0 && (!chan.exists || chan.stage_id != stage.id || chan.number != stage.number))
		return wrong(v, STORE_T_STAGE, key, "a stage that its channel does not know");
	v->out->stages++;
	row_prefix(&row, stage.number, stage.list, stage.generation);
	return rc != 0 ? rc : prefix_add(&v->live, row.bytes);
}

static int see_stage(struct verify *v, struct store_bytes key, struct store_bytes value)
{
	const uint8_t *k = key.p, *p = value.p;
	struct channel_key name;
	struct store_chan chan;
	int rc;

	switch (k[0]) {
	case 'S':
		return see_open_stage(v, key, value);
	case 'G':
		v->out->generations_dead++;
		return prefix_add(&v->live, k + 1);
	default:
		channel_key_set(&name, p[0], p + 1, (uint8_t)(value.len - 1));
		rc = chan_load(v->tx, &name, &chan);
		if (rc == 0 && (!chan.exists || chan.number != get_be(k + 1, 8)))
			return wrong(v, STORE_T_STAGE, key, "a list to merge of no channel");
		return rc;
	}
}

static int see_named(struct verify *v, struct store_bytes key, const uint64_t *ids, uint32_t count)
{
	struct store_node node;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = store_read_node(v->tx, ids[i], &node);
	return rc == -ENOENT ? wrong(v, STORE_T_RUNTIME, key, "it names a node that never was")
			     : rc;
}

static int see_channel_runtime(struct verify *v, struct store_bytes key, struct store_bytes value)
{
	const uint8_t *k = key.p;
	const struct id_view id =
		id_view_of(k + RUNTIME_KEY_PREFIX + 1, (uint8_t)(key.len - RUNTIME_KEY_PREFIX - 1));
	struct store_runtime r;
	uint32_t count;
	int rc = hash_slot_count(v->tx, &count);

	v->out->runtime_rows++;
	if (store_runtime_decode(value.p, value.len, &r) != 0 || r.revision > v->state.commit)
		return wrong(v, STORE_T_RUNTIME, key, "a revision above the commit number");
	if (rc == -ENOENT || (rc == 0 && id_hash_slot(id, count) != get_be(k + 1, 2)))
		return wrong(v, STORE_T_RUNTIME, key, "a row in the wrong hash slot");
	return rc != 0 ? rc : see_named(v, key, r.replica, r.replica_count);
}

static int see_runtime(struct verify *v, struct store_bytes key, struct store_bytes value)
{
	struct store_slot slot;
	struct store_node node;
	uint32_t count;

	switch (*(const uint8_t *)key.p) {
	case 'C':
		return see_channel_runtime(v, key, value);
	case 'N':
		if (store_node_decode(value.p, value.len, &node) != 0 ||
			node.revision > v->state.commit)
			return wrong(v, STORE_T_RUNTIME, key, "a revision above the commit number");
		v->out->nodes[0]++;
		v->out->nodes[node.state]++;
		return 0;
	case 'S':
		if (store_slot_decode(value.p, value.len, &slot) != 0 ||
			slot.revision > v->state.commit)
			return wrong(v, STORE_T_RUNTIME, key, "a revision above the commit number");
		v->out->slots++;
		return see_named(v, key, slot.peer, slot.peer_count);
	default:
		if (hash_slot_count(v->tx, &count) != 0)
			return wrong(v, STORE_T_RUNTIME, key, "not a hash-slot table");
		v->out->hash_slots = count;
		return 0;
	}
}

// A row of the oldest generation says present: what is not there has no row.
static int see_member(struct verify *v, struct store_bytes key)
{
	return prefix_has(&v->live, key.p)
		       ? 0
		       : wrong(v, STORE_T_MEMBER, key, "a row of no generation in use");
}

static int see(
	struct verify *v, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	switch (t) {
	case STORE_T_CHANNEL:
		return see_channel(v, key, value);
	case STORE_T_MEMBER:
		return see_member(v, key);
	case STORE_T_JOURNAL:
		return see_journal(v, key, value);
	case STORE_T_DEDUP:
		return see_dedup(v, key, value);
	case STORE_T_STAGE:
		return see_stage(v, key, value);
	case STORE_T_RUNTIME:
		return see_runtime(v, key, value);
	case STORE_T_META:
	case STORE_TABLES:
		break;
	}
	return 0;
}

// --- walks ----------------------------------------------------------------------------------------------

static int walk(struct verify *v, enum store_table t)
{
	uint8_t last[KEY_BYTES_MAX];
	struct store_bytes from = bytes_of("", 1), key, value;
	int rc = tx_seek(v->tx, t, from, false, &key, &value);

	while (rc == 0) {
		if (key.len == 0 || key.len > KEY_BYTES_MAX)
			return wrong(v, t, key, "a key of a length that none has");
		if (v->out->rows[t]++ != 0) {
			const uint32_t min = key.len < from.len ? key.len : from.len;
			const int order = memcmp(last, key.p, min);

			if (order > 0 || (order == 0 && from.len >= key.len))
				return wrong(v, t, key, "keys out of order");
		}
		if (t != STORE_T_JOURNAL && !row_valid(t, key, value))
			return wrong(v, t, key, "a row that is none");
		memcpy(last, key.p, key.len);
		from = key;
		rc = see(v, t, key, value);
		if (rc == 0)
			rc = tx_seek(v->tx, t, from, true, &key, &value);
		from = bytes_of(last, from.len);
		if (rc == -ENOENT)
			return 0;
	}
	return rc == -ENOENT ? 0 : rc;
}

// Members of one list, counted through its generations.
static int count_list(struct verify *v, const struct channel_key *key, uint8_t l, uint64_t *count)
{
	static const uint32_t max = 4096;
	uint8_t *uids = malloc(max * 64);
	struct store_page page = {.count = 0};
	int rc = uids == NULL ? -ENOMEM : 0;

	*count = 0;
	while (rc == 0 && !page.last) {
		uint8_t next[ID_LEN_MAX];
		const struct id_view after = id_view_of(next, page.next_len);

		memcpy(next, page.next, page.next_len);
		rc = store_read_page(v->tx, key, l, after, max, uids, max * 64, &page);
		*count += page.count;
	}
	free(uids);
	return rc;
}

static int check_lists(struct verify *v)
{
	struct store_channel at = {.key = {.type = 0}};
	struct store_chan chan;
	int rc;

	while ((rc = store_read_next_channel(v->tx, &at.key, &at)) == 0) {
		uint8_t k[1 + ID_LEN_MAX], q[10] = {'L'};
		const struct store_bytes key = bytes_of(k, chan_key_bytes(&at.key, k));

		rc = chan_load(v->tx, &at.key, &chan);
		put_be(q + 1, chan.number, 8);
		for (uint8_t l = 0; rc == 0 && l < STORE_LISTS; l++) {
			struct store_bytes value;
			uint64_t count;

			if (chan.list[l].layers == 0)
				continue;
			rc = count_list(v, &at.key, l, &count);
			if (rc == 0 && count != chan.list[l].count)
				return wrong(v, STORE_T_CHANNEL, key,
					"a list's rows are not as many as it says");
			q[9] = l;
			if (rc == 0 && chan.list[l].layers > 1 &&
				tx_get(v->tx, STORE_T_STAGE, bytes_of(q, sizeof(q)), &value) != 0)
				return wrong(v, STORE_T_CHANNEL, key,
					"generations that nothing will merge");
		}
		if (rc != 0)
			return rc;
	}
	return rc == -ENOENT ? 0 : rc;
}

static int check_sums(struct verify *v)
{
	const struct store_bytes none = {NULL, 0};

	if (v->out->rows[STORE_T_META] != 2)
		return wrong(v, STORE_T_META, none, "rows that belong to nothing");
	if (v->smv_sum > v->state.commit)
		return wrong(v, STORE_T_CHANNEL, none, "more mutations than commit numbers");
	if (v->out->stages != v->state.stages)
		return wrong(v, STORE_T_STAGE, none, "the number of open stages is wrong");
	if (v->dedup_orders != v->state.dedup_count)
		return wrong(v, STORE_T_DEDUP, none, "the number of keys is wrong");
	if (v->out->journal_last != 0 && v->out->journal_last != v->state.commit)
		return wrong(v, STORE_T_JOURNAL, none, "the journal ends before the commit number");
	return 0;
}

static int verify(struct verify *v)
{
	static const enum store_table order[] = {STORE_T_META, STORE_T_CHANNEL, STORE_T_STAGE,
		STORE_T_JOURNAL, STORE_T_DEDUP, STORE_T_RUNTIME, STORE_T_MEMBER};
	const struct store_bytes none = {NULL, 0};
	uint32_t format;
	int rc = format_load(v->tx, &format, &v->out->cluster_id);

	if (rc == 0)
		rc = state_load(v->tx, &v->state);
	if (rc != 0)
		return rc == -EUCLEAN ? wrong(v, STORE_T_META, none, "not a store") : rc;
	v->out->applied = v->state.applied;
	v->out->commit = v->state.commit;
	v->out->chain = v->state.chain;
	v->out->generation = v->state.generation;
	for (uint32_t i = 0; rc == 0 && i < STORE_TABLES; i++) {
		if (order[i] == STORE_T_MEMBER && !prefix_sort(&v->live))
			return wrong(v, STORE_T_MEMBER, none, "a generation is used twice");
		rc = walk(v, order[i]);
	}
	if (rc == 0 && !prefix_sort(&v->numbers))
		return wrong(v, STORE_T_CHANNEL, none, "a channel's number is used twice");
	if (rc == 0)
		rc = check_lists(v);
	return rc != 0 ? rc : check_sums(v);
}

int store_verify(struct store_tx *tx, struct store_inspection *out, struct store_fault *fault)
{
	struct verify v = {.tx = tx, .out = out, .fault = fault};
	int rc;

	memset(out, 0, sizeof(*out));
	memset(fault, 0, sizeof(*fault));
	fault->what = "";
	rc = verify(&v);
	if (rc == -EUCLEAN && fault->what[0] == 0)
		fault->what = "a record that cannot be read";
	free(v.live.p);
	free(v.numbers.p);
	return rc;
}
