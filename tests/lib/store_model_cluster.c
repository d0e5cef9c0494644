/* SPDX-License-Identifier: BSD-3-Clause */
// Rules of nodes, slots, hash slots and runtime rows in the plainest way. One thread.
#include "store_model_cluster.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// --- making commands up -----------------------------------------------------------------------------------

static uint32_t some_ids(cluster_random random, void *ctx, uint64_t base, uint64_t *ids)
{
	uint32_t n = 0;

	for (uint64_t id = base; id < base + 5; id++)
		if (random(ctx, 2) == 0)
			ids[n++] = id;
	return n;
}

static void pick_slot(const struct cluster_rows *rows, cluster_random random, void *ctx,
	uint64_t base, struct store_command *cmd, uint8_t *body)
{
	const uint32_t number = 1 + (uint32_t)random(ctx, MODEL_SLOTS);
	struct store_slot s = rows->slot[number];

	if (s.slot == 0)
		s = (struct store_slot){
			.slot = number, .term = 1, .config_epoch = 1, .balance_version = 1};
	if (random(ctx, 3) == 0) {
		s.peer_count = some_ids(random, ctx, base, s.peer);
		s.leader = 0;
	}
	if (random(ctx, 2) == 0)
		s.leader = s.peer_count == 0 || random(ctx, 4) == 0
				   ? 0
				   : s.peer[random(ctx, s.peer_count)];
	s.term += random(ctx, 2);
	s.config_epoch += random(ctx, 2);
	s.balance_version += random(ctx, 3) == 0;
	if (random(ctx, 12) == 0 && s.term > 1)
		s.term--;
	(void)store_command_slot(cmd, &s, body);
}

static void pick_runtime(const struct cluster_rows *rows, cluster_random random, void *ctx,
	uint64_t base, uint32_t number, const struct channel_key *channel,
	struct store_command *cmd, uint8_t *body)
{
	struct store_runtime r = rows->runtime[number];

	if (r.channel_epoch == 0)
		r = (struct store_runtime){.channel_epoch = 1, .leader_epoch = 1};
	r.channel = *channel;
	if (random(ctx, 3) == 0) {
		r.replica_count = some_ids(random, ctx, base, r.replica);
		r.isr_count = 0;
		r.leader = 0;
	}
	if (random(ctx, 2) == 0) {
		r.isr_count = 0;
		for (uint32_t i = 0; i < r.replica_count; i++)
			if (random(ctx, 2) == 0)
				r.isr[r.isr_count++] = r.replica[i];
	}
	if (random(ctx, 2) == 0)
		r.leader = r.replica_count == 0 || random(ctx, 4) == 0
				   ? 0
				   : r.replica[random(ctx, r.replica_count)];
	r.channel_epoch += random(ctx, 2);
	r.leader_epoch += random(ctx, 2);
	r.route_generation += random(ctx, 2);
	if (random(ctx, 12) == 0 && r.leader_epoch > 0)
		r.leader_epoch--;
	if (random(ctx, 6) == 0)
		r.lease_until_ms++;
	(void)store_command_runtime(cmd, &r, body);
}

void cluster_pick(const struct cluster_rows *rows, cluster_random random, void *ctx, uint64_t base,
	uint32_t number, const struct channel_key *channel, struct store_command *cmd,
	uint8_t *body)
{
	const uint64_t id = base + random(ctx, 5);
	struct store_node node = {.id = id, .state = STORE_NODE_JOINING, .address_len = 1};
	struct store_hash_slots table = {.count = random(ctx, 30) == 0 ? 8 : 16};
	const uint64_t which = random(ctx, 20);

	node.address[0] = (uint8_t)('a' + random(ctx, 3));
	if (which < 4) {
		(void)store_command_node(cmd, &node, body);
	} else if (which < 10) {
		const uint8_t to = random(ctx, 8) == 0 ? STORE_NODE_REMOVED
				   : random(ctx, 3) == 0
					   ? STORE_NODE_LEAVING
					   : (uint8_t)(STORE_NODE_JOINING + random(ctx, 2));

		store_command_node_state(cmd, id, to,
			random(ctx, 4) != 0 ? 0 : rows->node[id].revision + random(ctx, 2));
	} else if (which < 14) {
		pick_slot(rows, random, ctx, base, cmd, body);
	} else if (which < 15) {
		const uint16_t slot = (uint16_t)(1 + random(ctx, 3));

		for (uint32_t i = 0; i < table.count; i++)
			table.slot_of[i] = slot;
		(void)store_command_hash_slots(cmd, &table,
			random(ctx, 3) != 0 ? 0 : rows->hash_version + random(ctx, 2), body);
	} else {
		pick_runtime(rows, random, ctx, base, number, channel, cmd, body);
	}
}

// --- rules ----------------------------------------------------------------------------------------------

static bool has(const uint64_t *ids, uint32_t count, uint64_t id)
{
	bool found = id == 0;

	for (uint32_t i = 0; i < count; i++)
		found |= ids[i] == id;
	return found;
}

static bool new_are_active(const struct cluster_rows *rows, const uint64_t *old, uint32_t old_count,
	const uint64_t *now, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!has(old, old_count, now[i]) && rows->node[now[i]].state != STORE_NODE_ACTIVE)
			return false;
	return true;
}

static bool same(const uint64_t *a, uint32_t a_count, const uint64_t *b, uint32_t b_count)
{
	bool equal = a_count == b_count;

	for (uint32_t i = 0; equal && i < a_count; i++)
		equal = a[i] == b[i];
	return equal;
}

static uint8_t rule_join(
	struct cluster_rows *rows, const struct store_command *cmd, uint64_t commit)
{
	struct store_node want, *node = &rows->node[cmd->id];

	(void)store_node_decode(cmd->body, cmd->body_bytes, &want);
	if (node->state == STORE_NODE_REMOVED)
		return STORE_R_REFUSED;
	if (node->state != 0 && node->address[0] == want.address[0])
		return STORE_R_NO_CHANGE;
	if (node->state != 0)
		want.state = node->state;
	*node = want;
	node->revision = commit;
	return STORE_R_OK;
}

static uint8_t rule_state(
	struct cluster_rows *rows, const struct store_command *cmd, uint64_t commit)
{
	static const char *const steps[] = {"12", "14", "23", "32", "34"};
	struct store_node *node = &rows->node[cmd->id];
	bool allowed = false;

	if (node->state == 0)
		return STORE_R_NOT_FOUND;
	if (node->state == cmd->flags)
		return STORE_R_NO_CHANGE;
	if (cmd->if_revision != 0 && cmd->if_revision != node->revision)
		return STORE_R_STALE;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		allowed |= steps[i][0] == '0' + node->state && steps[i][1] == '0' + cmd->flags;
	for (uint32_t s = 1; s <= MODEL_SLOTS && cmd->flags == STORE_NODE_REMOVED; s++)
		allowed &= !has(rows->slot[s].peer, rows->slot[s].peer_count, node->id);
	if (!allowed)
		return STORE_R_REFUSED;
	node->state = cmd->flags;
	node->revision = commit;
	return STORE_R_OK;
}

static uint8_t rule_slot(
	struct cluster_rows *rows, const struct store_command *cmd, uint64_t commit)
{
	struct store_slot n, *o = &rows->slot[cmd->id];
	bool peers;

	(void)store_slot_decode(cmd->body, cmd->body_bytes, &n);
	peers = same(o->peer, o->peer_count, n.peer, n.peer_count);
	if (n.term < o->term || n.config_epoch < o->config_epoch ||
		n.balance_version < o->balance_version)
		return STORE_R_STALE;
	if (o->slot != 0 && peers && n.leader == o->leader && n.term == o->term &&
		n.config_epoch == o->config_epoch && n.balance_version == o->balance_version)
		return STORE_R_NO_CHANGE;
	if (n.leader != 0 && n.leader != o->leader && n.term == o->term)
		return STORE_R_REFUSED;
	if (!peers && n.config_epoch == o->config_epoch)
		return STORE_R_REFUSED;
	if (!new_are_active(rows, o->peer, o->peer_count, n.peer, n.peer_count) ||
		!new_are_active(rows, &o->leader, 1, &n.leader, 1))
		return STORE_R_REFUSED;
	n.revision = commit;
	*o = n;
	return STORE_R_OK;
}

static uint8_t rule_hash(
	struct cluster_rows *rows, const struct store_command *cmd, uint64_t commit)
{
	struct store_hash_slots t;

	(void)store_hash_slots_decode(cmd->body, cmd->body_bytes, &t);
	if (cmd->if_revision != 0 && cmd->if_revision != rows->hash_version)
		return STORE_R_STALE;
	if (rows->hash_count != 0 && rows->hash_count != t.count)
		return STORE_R_REFUSED;
	if (rows->hash_count != 0 && rows->hash_slot == t.slot_of[0])
		return STORE_R_NO_CHANGE;
	rows->hash_count = t.count;
	rows->hash_slot = t.slot_of[0];
	rows->hash_version++;
	rows->hash_revision = commit;
	return STORE_R_OK;
}

static uint8_t rule_runtime(struct cluster_rows *rows, const struct store_command *cmd,
	uint32_t number, uint64_t commit)
{
	struct store_runtime n, *o = &rows->runtime[number];
	bool replicas, isr, later;

	(void)store_runtime_decode(cmd->body, cmd->body_bytes, &n);
	n.channel = cmd->channel;
	if (rows->hash_count == 0)
		return STORE_R_REFUSED;
	replicas = same(o->replica, o->replica_count, n.replica, n.replica_count);
	isr = same(o->isr, o->isr_count, n.isr, n.isr_count);
	later = n.channel_epoch > o->channel_epoch;
	if (n.channel_epoch < o->channel_epoch || n.route_generation < o->route_generation ||
		(!later && n.leader_epoch < o->leader_epoch))
		return STORE_R_STALE;
	if (!later && replicas && isr && n.leader == o->leader &&
		n.leader_epoch == o->leader_epoch && n.route_generation == o->route_generation &&
		n.lease_until_ms == o->lease_until_ms)
		return STORE_R_NO_CHANGE;
	if (!later && !replicas)
		return STORE_R_REFUSED;
	if (!later && n.leader != 0 && n.leader != o->leader && n.leader_epoch == o->leader_epoch)
		return STORE_R_REFUSED;
	if (!new_are_active(rows, o->replica, o->replica_count, n.replica, n.replica_count) ||
		!new_are_active(rows, o->isr, o->isr_count, n.isr, n.isr_count) ||
		!new_are_active(rows, &o->leader, 1, &n.leader, 1))
		return STORE_R_REFUSED;
	n.revision = commit;
	*o = n;
	return STORE_R_OK;
}

uint8_t cluster_rule(struct cluster_rows *rows, const struct store_command *cmd, uint32_t number,
	uint64_t commit)
{
	switch (cmd->op) {
	case STORE_NODE_JOIN:
		return rule_join(rows, cmd, commit);
	case STORE_NODE_STATE:
		return rule_state(rows, cmd, commit);
	case STORE_SLOT_SET:
		return rule_slot(rows, cmd, commit);
	case STORE_HASH_SLOTS_SET:
		return rule_hash(rows, cmd, commit);
	default:
		return rule_runtime(rows, cmd, number, commit);
	}
}

// --- the copy and the check -------------------------------------------------------------------------------

int cluster_follow(struct cluster_rows *rows, const struct store_delta *d, uint32_t number)
{
	struct store_hash_slots table;
	struct store_runtime runtime;
	struct store_slot slot;
	struct store_node node;

	switch (d->kind) {
	case STORE_DELTA_NODE:
		if (store_node_decode(d->body, d->body_bytes, &node) != 0 ||
			node.id >= MODEL_NODES || node.revision != d->commit)
			return -1;
		rows->node[node.id] = node;
		return 0;
	case STORE_DELTA_SLOT:
		if (store_slot_decode(d->body, d->body_bytes, &slot) != 0 ||
			slot.slot > MODEL_SLOTS || slot.revision != d->commit)
			return -1;
		rows->slot[slot.slot] = slot;
		return 0;
	case STORE_DELTA_HASH_SLOTS:
		if (store_hash_slots_decode(d->body, d->body_bytes, &table) != 0)
			return -1;
		rows->hash_count = table.count;
		rows->hash_slot = table.slot_of[0];
		rows->hash_version = table.version;
		rows->hash_revision = table.revision;
		return 0;
	case STORE_DELTA_RUNTIME:
		if (number >= MODEL_CHANNELS ||
			store_runtime_decode(d->body, d->body_bytes, &runtime) != 0 ||
			runtime.revision != d->commit)
			return -1;
		runtime.channel = d->channel;
		rows->runtime[number] = runtime;
		return 0;
	default:
		return -1;
	}
}

static int differ(const char *what, uint64_t at)
{
	fprintf(stderr, "model: %s %llu differs\n", what, (unsigned long long)at);
	return -1;
}

// Equal as bytes; what is not there has none.
static bool equal_nodes(const struct store_node *a, const struct store_node *b)
{
	uint8_t x[256], y[256];
	const int n = store_node_encode(a, x, sizeof(x)), m = store_node_encode(b, y, sizeof(y));

	return n == m && (n < 0 || memcmp(x, y, (size_t)n) == 0);
}

static bool equal_slots(const struct store_slot *a, const struct store_slot *b)
{
	uint8_t x[256], y[256];
	const int n = store_slot_encode(a, x, sizeof(x)), m = store_slot_encode(b, y, sizeof(y));

	return n == m && (n < 0 || memcmp(x, y, (size_t)n) == 0);
}

static bool equal_runtimes(const struct store_runtime *a, const struct store_runtime *b)
{
	uint8_t x[512], y[512];
	const int n = store_runtime_encode(a, x, sizeof(x));
	const int m = store_runtime_encode(b, y, sizeof(y));

	return n == m && (n < 0 || memcmp(x, y, (size_t)n) == 0);
}

static int check_nodes(struct store_tx *tx, const struct cluster_rows *want)
{
	struct store_node got = {.id = 0};
	uint64_t there = 0;

	for (uint64_t id = 1; id < MODEL_NODES; id++)
		there += want->node[id].state != 0;
	while (store_read_next_node(tx, got.id, &got) == 0) {
		if (got.id >= MODEL_NODES || !equal_nodes(&got, &want->node[got.id]))
			return differ("node", got.id);
		there--;
	}
	return there == 0 ? 0 : differ("number of nodes", there);
}

int cluster_check(struct store_tx *tx, const struct cluster_rows *want,
	const struct cluster_rows *copy, const struct channel_key *channel)
{
	struct store_hash_slots table = {.count = 0};
	struct store_slot slot;
	int rc = store_read_hash_slots(tx, &table);

	if (rc != (want->hash_count == 0 ? -ENOENT : 0) || table.count != want->hash_count ||
		(rc == 0 && (table.version != want->hash_version ||
				    table.revision != want->hash_revision ||
				    table.slot_of[table.count - 1] != want->hash_slot)))
		return differ("hash slots of version", want->hash_version);
	if (copy->hash_version != want->hash_version || copy->hash_slot != want->hash_slot)
		return differ("copy of hash slots of version", copy->hash_version);
	for (uint64_t id = 1; id < MODEL_NODES; id++)
		if (!equal_nodes(&copy->node[id], &want->node[id]))
			return differ("copy of node", id);
	for (uint32_t s = 1; s <= MODEL_SLOTS; s++) {
		rc = store_read_slot(tx, s, &slot);
		if (rc != (want->slot[s].slot == 0 ? -ENOENT : 0) ||
			(rc == 0 && !equal_slots(&slot, &want->slot[s])) ||
			!equal_slots(&copy->slot[s], &want->slot[s]))
			return differ("slot", s);
	}
	for (uint32_t c = 0; c < MODEL_CHANNELS; c++) {
		struct store_runtime got;

		rc = store_read_runtime(tx, &channel[c], &got);
		if (rc != (want->runtime[c].channel_epoch == 0 ? -ENOENT : 0) ||
			(rc == 0 && !equal_runtimes(&got, &want->runtime[c])) ||
			!equal_runtimes(&copy->runtime[c], &want->runtime[c]))
			return differ("runtime row", c);
	}
	return check_nodes(tx, want);
}
