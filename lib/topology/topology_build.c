/* SPDX-License-Identifier: BSD-3-Clause */
// The draft of a topology, and the snapshots made of it. Rows of channels are shared between snapshots bucket
// by bucket and copied on change. One owner thread.
#include "topology_build.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topology_pvt.h"

_Static_assert(TOPOLOGY_SLOTS_MAX == STORE_SLOTS_MAX, "slots");
_Static_assert(TOPOLOGY_PEERS_MAX == STORE_REPLICAS_MAX, "peers");
_Static_assert(TOPOLOGY_NODES_MAX == STORE_NODES_MAX, "nodes");
_Static_assert((int)TOPOLOGY_JOINING == (int)STORE_NODE_JOINING, "states");
_Static_assert((int)TOPOLOGY_ACTIVE == (int)STORE_NODE_ACTIVE, "states");
_Static_assert((int)TOPOLOGY_LEAVING == (int)STORE_NODE_LEAVING, "states");
_Static_assert((int)TOPOLOGY_REMOVED == (int)STORE_NODE_REMOVED, "states");

#define NAMED_MAX 64u

struct topology_builder {
	struct topology draft;  // node points to `node`
	struct topology_node node[TOPOLOGY_NODES_MAX];
	uint64_t slot_revision[TOPOLOGY_SLOTS_MAX];
	uint64_t table_revision;
	uint32_t channels_max;
	// Leaders of the rows of channels taken since the last snapshot; more than fit: all rows are looked at.
	uint32_t named_count;
	uint64_t named[NAMED_MAX];
	bool changed;
	const char *missing;
};

// A snapshot with its nodes behind it.
struct snapshot {
	struct topology topology;
	struct topology_node node[];
};

struct topology_builder *topology_builder_create(uint32_t channels_max)
{
	struct topology_builder *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->channels_max = channels_max;
	b->draft.node = b->node;
	b->missing = "";
	return b;
}

static void bucket_unref(struct topology_bucket *bucket)
{
	if (bucket == NULL || --bucket->refs != 0)
		return;
	for (uint32_t i = 0; i < bucket->count; i++)
		if (--bucket->row[i]->refs == 0)
			free(bucket->row[i]);
	free(bucket);
}

void topology_builder_reset(struct topology_builder *b)
{
	const uint32_t channels_max = b->channels_max;

	for (uint32_t i = 0; i < TOPOLOGY_BUCKETS; i++)
		bucket_unref(b->draft.bucket[i]);
	memset(b, 0, sizeof(*b));
	b->channels_max = channels_max;
	b->draft.node = b->node;
	b->changed = true;
	b->missing = "";
}

void topology_builder_destroy(struct topology_builder *b)
{
	if (b == NULL)
		return;
	topology_builder_reset(b);
	free(b);
}

// What changed is part of the next snapshot, and counts for its number.
static int took(struct topology_builder *b, uint64_t revision)
{
	if (revision > b->draft.revision)
		b->draft.revision = revision;
	b->changed = true;
	return 1;
}

// --- nodes ------------------------------------------------------------------------------------------------

// "a.b.c.d:port" in decimal. Returns: false when it is anything else.
static bool address_parse(const uint8_t *text, uint32_t len, uint32_t *ip, uint16_t *port)
{
	static const char after[] = {'.', '.', '.', ':', '\0'};
	uint32_t part[5], at = 0;

	for (uint32_t i = 0; i < 5; i++) {
		const uint32_t most = i == 4 ? 65535 : 255, from = at;

		part[i] = 0;
		while (at < len && text[at] >= '0' && text[at] <= '9' && at - from < 5)
			part[i] = part[i] * 10 + (uint32_t)(text[at++] - '0');
		if (at == from || part[i] > most || (text[from] == '0' && at - from > 1))
			return false;
		if (i < 4 && (at >= len || text[at++] != after[i]))
			return false;
	}
	*ip = part[0] << 24 | part[1] << 16 | part[2] << 8 | part[3];
	*port = (uint16_t)part[4];
	return at == len && *ip != 0 && *port != 0;
}

int topology_builder_node(struct topology_builder *b, const struct store_node *node)
{
	struct topology *const t = &b->draft;
	struct topology_node n = {.id = node->id, .revision = node->revision, .state = node->state};
	uint32_t at = 0;

	if (node->id == 0 || node->state < STORE_NODE_JOINING || node->state > STORE_NODE_REMOVED ||
		node->address_len > STORE_ADDRESS_MAX)
		return -EINVAL;
	if (!address_parse(node->address, node->address_len, &n.ip, &n.port)) {
		n.ip = 0;
		n.port = 0;
	}
	while (at < t->node_count && b->node[at].id < n.id)
		at++;
	if (at < t->node_count && b->node[at].id == n.id) {
		if (n.revision <= b->node[at].revision)
			return 0;
	} else {
		if (t->node_count == TOPOLOGY_NODES_MAX)
			return -ENOSPC;
		memmove(&b->node[at + 1], &b->node[at], (t->node_count - at) * sizeof(b->node[0]));
		t->node_count++;
	}
	b->node[at] = n;
	return took(b, n.revision);
}

// --- slots ------------------------------------------------------------------------------------------------

int topology_builder_slot(struct topology_builder *b, const struct store_slot *slot)
{
	struct topology *const t = &b->draft;
	struct topology_peers *p;

	if (slot->slot == 0 || slot->slot > TOPOLOGY_SLOTS_MAX ||
		slot->peer_count > TOPOLOGY_PEERS_MAX)
		return -EINVAL;
	if (t->slot[slot->slot - 1].slot != 0 && slot->revision <= b->slot_revision[slot->slot - 1])
		return 0;
	t->slot[slot->slot - 1] = (struct topology_slot){
		.slot = slot->slot,
		.leader = slot->leader,
		.term = slot->term,
		.config_epoch = slot->config_epoch,
		.balance_version = slot->balance_version,
	};
	p = &t->peers[slot->slot - 1];
	memset(p, 0, sizeof(*p));
	p->count = slot->peer_count;
	memcpy(p->node, slot->peer, slot->peer_count * sizeof(p->node[0]));
	b->slot_revision[slot->slot - 1] = slot->revision;
	if (slot->slot > t->slot_count)
		t->slot_count = slot->slot;
	return took(b, slot->revision);
}

int topology_builder_hash_slots(struct topology_builder *b, const struct store_hash_slots *table)
{
	struct topology *const t = &b->draft;

	if (table->count == 0 || table->count > HASH_SLOTS_MAX || table->version == 0 ||
		(t->version != 0 && table->count != t->hash_slots))
		return -EINVAL;
	for (uint32_t i = 0; i < table->count; i++)
		if (table->slot_of[i] > TOPOLOGY_SLOTS_MAX)
			return -EINVAL;
	if (t->version != 0 &&
		(table->revision <= b->table_revision || table->version <= t->version))
		return 0;
	t->version = table->version;
	t->hash_slots = table->count;
	memcpy(t->slot_of, table->slot_of, table->count * sizeof(t->slot_of[0]));
	b->table_revision = table->revision;
	return took(b, table->revision);
}

// --- channels -----------------------------------------------------------------------------------------------

static struct topology_channel *row_make(const struct store_runtime *r, uint64_t hash)
{
	struct topology_channel *row = malloc(sizeof(*row) + r->channel.len);

	if (row == NULL)
		return NULL;
	*row = (struct topology_channel){
		.hash = hash,
		.leader = r->leader,
		.channel_epoch = r->channel_epoch,
		.leader_epoch = r->leader_epoch,
		.revision = r->revision,
		.named = r->replica_count != 0,
		.type = r->channel.type,
		.len = r->channel.len,
	};
	memcpy(row->bytes, r->channel.bytes, r->channel.len);
	return row;
}

// A bucket with `row` put in place of the one at `at` (replace), or before it.
static struct topology_bucket *bucket_with(
	const struct topology_bucket *old, uint32_t at, bool replace, struct topology_channel *row)
{
	const uint32_t was = old == NULL ? 0 : old->count;
	const uint32_t count = was + !replace;
	struct topology_bucket *made = malloc(sizeof(*made) + count * sizeof(made->row[0]));

	if (made == NULL)
		return NULL;
	made->refs = 1;
	made->count = count;
	for (uint32_t i = 0; i < at; i++)
		made->row[i] = old->row[i];
	made->row[at] = row;
	for (uint32_t i = at + 1; i < count; i++)
		made->row[i] = old->row[replace ? i : i - 1];
	for (uint32_t i = 0; i < count; i++)
		made->row[i]->refs++;
	return made;
}

static void named_add(struct topology_builder *b, uint64_t leader)
{
	if (leader == 0 || b->named_count > NAMED_MAX)
		return;
	for (uint32_t i = 0; i < b->named_count; i++)
		if (b->named[i] == leader)
			return;
	if (b->named_count < NAMED_MAX)
		b->named[b->named_count] = leader;
	b->named_count++;
}

int topology_builder_channel(struct topology_builder *b, const struct store_runtime *runtime)
{
	const uint64_t hash = channel_key_hash(&runtime->channel);
	struct topology_bucket **const place = &b->draft.bucket[bucket_of(hash)];
	struct topology_bucket *made;
	struct topology_channel *row;
	uint32_t at;
	bool there;

	if (!channel_key_valid(&runtime->channel) || runtime->channel_epoch == 0)
		return -EINVAL;
	at = bucket_find(*place, &runtime->channel, hash);
	there = *place != NULL && at < (*place)->count;
	if (there && runtime->revision <= (*place)->row[at]->revision)
		return 0;
	if (!there && b->draft.channel_count == b->channels_max)
		return -ENOSPC;
	if (!there)
		at = bucket_lower(*place, hash);
	row = row_make(runtime, hash);
	made = row == NULL ? NULL : bucket_with(*place, at, there, row);
	if (made == NULL) {
		free(row);
		return -ENOMEM;
	}
	bucket_unref(*place);
	*place = made;
	named_add(b, runtime->leader);
	b->draft.channel_count += !there;
	return took(b, runtime->revision);
}

int topology_builder_delta(struct topology_builder *b, const struct store_delta *delta)
{
	union {
		struct store_node node;
		struct store_slot slot;
		struct store_hash_slots table;
		struct store_runtime runtime;
	} row;

	switch ((enum store_delta_kind)delta->kind) {
	case STORE_DELTA_NODE:
		if (store_node_decode(delta->body, delta->body_bytes, &row.node) != 0)
			return -EINVAL;
		return topology_builder_node(b, &row.node);
	case STORE_DELTA_SLOT:
		if (store_slot_decode(delta->body, delta->body_bytes, &row.slot) != 0)
			return -EINVAL;
		return topology_builder_slot(b, &row.slot);
	case STORE_DELTA_HASH_SLOTS:
		if (store_hash_slots_decode(delta->body, delta->body_bytes, &row.table) != 0)
			return -EINVAL;
		return topology_builder_hash_slots(b, &row.table);
	case STORE_DELTA_RUNTIME:
		row.runtime.channel = delta->channel;
		if (store_runtime_decode(delta->body, delta->body_bytes, &row.runtime) != 0)
			return -EINVAL;
		return topology_builder_channel(b, &row.runtime);
	case STORE_DELTA_CHANNEL:
	case STORE_DELTA_REMOVED:
	case STORE_DELTA_ADD:
	case STORE_DELTA_REMOVE:
	case STORE_DELTA_BULK:
		return 0;
	}
	return -EINVAL;
}

// --- snapshots ------------------------------------------------------------------------------------------------

// Is a channel led by a node without a row? Rows of nodes stay, so what was looked at once is known.
static bool leader_missing(const struct topology_builder *b)
{
	const struct topology *const t = &b->draft;

	if (b->named_count <= NAMED_MAX) {
		for (uint32_t i = 0; i < b->named_count; i++)
			if (topology_node(t, b->named[i]) == NULL)
				return true;
		return false;
	}
	for (uint32_t i = 0; i < TOPOLOGY_BUCKETS; i++) {
		const uint32_t count = t->bucket[i] == NULL ? 0 : t->bucket[i]->count;

		for (uint32_t r = 0; r < count; r++) {
			const uint64_t leader = t->bucket[i]->row[r]->leader;

			if (leader != 0 && topology_node(t, leader) == NULL)
				return true;
		}
	}
	return false;
}

// What is missing for the rows to fit together; NULL: nothing.
static const char *missing(const struct topology_builder *b)
{
	const struct topology *const t = &b->draft;

	if (t->version == 0)
		return "no hash-slot table";
	for (uint32_t i = 0; i < t->hash_slots; i++)
		if (t->slot_of[i] != 0 &&
			(t->slot_of[i] > t->slot_count || t->slot[t->slot_of[i] - 1].slot == 0))
			return "a hash slot is assigned to a slot without a row";
	for (uint32_t i = 0; i < t->slot_count; i++) {
		if (t->slot[i].leader != 0 && topology_node(t, t->slot[i].leader) == NULL)
			return "the leader of a slot has no row";
		for (uint32_t p = 0; p < t->peers[i].count; p++)
			if (topology_node(t, t->peers[i].node[p]) == NULL)
				return "a peer of a slot has no row";
	}
	return leader_missing(b) ? "the leader of a channel has no row" : NULL;
}

// A removed node leads nothing, whatever rows say.
static void removed_lead_nothing(struct topology *t)
{
	for (uint32_t i = 0; i < t->slot_count; i++) {
		const struct topology_node *const n = topology_node(t, t->slot[i].leader);

		if (n != NULL && n->state == TOPOLOGY_REMOVED)
			t->slot[i].leader = 0;
	}
}

int topology_builder_publish(struct topology_builder *b, const struct topology **now)
{
	const size_t nodes = b->draft.node_count * sizeof(b->node[0]);
	struct snapshot *s;

	if (!b->changed)
		return 0;
	b->missing = missing(b);
	if (b->missing != NULL)
		return -EAGAIN;
	b->missing = "";
	s = malloc(sizeof(*s) + nodes);
	if (s == NULL)
		return -ENOMEM;
	s->topology = b->draft;
	memcpy(s->node, b->node, nodes);
	s->topology.node = s->node;
	removed_lead_nothing(&s->topology);
	for (uint32_t i = 0; i < TOPOLOGY_BUCKETS; i++)
		if (s->topology.bucket[i] != NULL)
			s->topology.bucket[i]->refs++;
	b->changed = false;
	b->named_count = 0;
	*now = &s->topology;
	return 1;
}

const char *topology_builder_missing(const struct topology_builder *b)
{
	return b->missing;
}

void topology_builder_free(void *builder, void *snapshot)
{
	struct topology *const t = snapshot;

	(void)builder;
	for (uint32_t i = 0; i < TOPOLOGY_BUCKETS; i++)
		bucket_unref(t->bucket[i]);
	free(t);
}
