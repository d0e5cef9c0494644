/* SPDX-License-Identifier: BSD-3-Clause */
// Bytes of nodes, slots, the hash-slot table and runtime rows; commands made of them. Pure, any thread.
//
// Little-endian, each with version 1 in byte 0:
//   node       1 u8 state   2 u8 address bytes   3 u8 zero   4 u64 id   12 u64 revision   20 address
//   slot       1 u8 peers   2 u16 slot   4 u64 leader, term, config epoch, balance version, revision
//              44 u64 peer ...
//   hash slots 1 u8 zero   2 u16 zero   4 u32 count   8 u64 version   16 u64 revision   24 u16 slot ...
//   runtime    1 u8 status   2 u8 minimum ISR   3 u8 replicas   4 u8 ISR   5 u8 zero[3]
//              8 u64 leader, channel epoch, leader epoch, route generation, features, lease, revision
//              64 u64 replica ..., u64 ISR ...
#include "store_cluster_pvt.h"

#define BODY_VERSION 1u
#define NODE_HEADER 20u
#define SLOT_HEADER 44u
#define HASH_HEADER 24u
#define RUNTIME_HEADER 64u

const char *store_node_state_name(enum store_node_state state)
{
	static const char *const name[] = {
		[STORE_NODE_JOINING] = "joining",
		[STORE_NODE_ACTIVE] = "active",
		[STORE_NODE_LEAVING] = "leaving",
		[STORE_NODE_REMOVED] = "removed",
	};

	return (uint32_t)state >= STORE_NODE_JOINING && (uint32_t)state <= STORE_NODE_REMOVED
		       ? name[state]
		       : "unknown";
}

bool ids_have(const uint64_t *ids, uint32_t count, uint64_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static bool ids_valid(const uint64_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count && i < STORE_REPLICAS_MAX; i++)
		if (ids[i] == 0 || (i > 0 && ids[i] <= ids[i - 1]))
			return false;
	return count <= STORE_REPLICAS_MAX;
}

static void put_ids(uint8_t *p, const uint64_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		put_le(p + 8 * i, ids[i], 8);
}

static void get_ids(const uint8_t *p, uint64_t *ids, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		ids[i] = get_le(p + 8 * i, 8);
}

// --- node -----------------------------------------------------------------------------------------------

static bool node_valid(const struct store_node *n)
{
	return n->id != 0 && n->state >= STORE_NODE_JOINING && n->state <= STORE_NODE_REMOVED &&
	       n->address_len != 0 && n->address_len <= STORE_ADDRESS_MAX;
}

int store_node_encode(const struct store_node *n, uint8_t *out, uint32_t cap)
{
	if (!node_valid(n))
		return -EINVAL;
	if (cap < NODE_HEADER + n->address_len)
		return -ENOSPC;
	out[0] = BODY_VERSION;
	out[1] = n->state;
	out[2] = n->address_len;
	out[3] = 0;
	put_le(out + 4, n->id, 8);
	put_le(out + 12, n->revision, 8);
	memcpy(out + NODE_HEADER, n->address, n->address_len);
	return (int)(NODE_HEADER + n->address_len);
}

int store_node_decode(const uint8_t *p, uint32_t len, struct store_node *n)
{
	memset(n, 0, sizeof(*n));
	if (len < NODE_HEADER || p[0] != BODY_VERSION || p[3] != 0 || p[2] > STORE_ADDRESS_MAX ||
		len != NODE_HEADER + p[2])
		return -EINVAL;
	n->state = p[1];
	n->address_len = p[2];
	n->id = get_le(p + 4, 8);
	n->revision = get_le(p + 12, 8);
	memcpy(n->address, p + NODE_HEADER, p[2]);
	return node_valid(n) ? 0 : -EINVAL;
}

// --- slot -----------------------------------------------------------------------------------------------

static bool slot_valid(const struct store_slot *s)
{
	return s->slot >= 1 && s->slot <= STORE_SLOTS_MAX && s->term != 0 && s->config_epoch != 0 &&
	       ids_valid(s->peer, s->peer_count) &&
	       (s->leader == 0 || ids_have(s->peer, s->peer_count, s->leader));
}

int store_slot_encode(const struct store_slot *s, uint8_t *out, uint32_t cap)
{
	if (!slot_valid(s))
		return -EINVAL;
	if (cap < SLOT_HEADER + 8 * s->peer_count)
		return -ENOSPC;
	out[0] = BODY_VERSION;
	out[1] = (uint8_t)s->peer_count;
	put_le(out + 2, s->slot, 2);
	put_le(out + 4, s->leader, 8);
	put_le(out + 12, s->term, 8);
	put_le(out + 20, s->config_epoch, 8);
	put_le(out + 28, s->balance_version, 8);
	put_le(out + 36, s->revision, 8);
	put_ids(out + SLOT_HEADER, s->peer, s->peer_count);
	return (int)(SLOT_HEADER + 8 * s->peer_count);
}

int store_slot_decode(const uint8_t *p, uint32_t len, struct store_slot *s)
{
	memset(s, 0, sizeof(*s));
	if (len < SLOT_HEADER || p[0] != BODY_VERSION || p[1] > STORE_REPLICAS_MAX ||
		len != SLOT_HEADER + 8u * p[1])
		return -EINVAL;
	s->peer_count = p[1];
	s->slot = (uint32_t)get_le(p + 2, 2);
	s->leader = get_le(p + 4, 8);
	s->term = get_le(p + 12, 8);
	s->config_epoch = get_le(p + 20, 8);
	s->balance_version = get_le(p + 28, 8);
	s->revision = get_le(p + 36, 8);
	get_ids(p + SLOT_HEADER, s->peer, s->peer_count);
	return slot_valid(s) ? 0 : -EINVAL;
}

// --- hash slots -----------------------------------------------------------------------------------------

static bool hash_slots_valid(const struct store_hash_slots *t)
{
	if (t->count == 0 || t->count > HASH_SLOTS_MAX)
		return false;
	for (uint32_t i = 0; i < t->count; i++)
		if (t->slot_of[i] > STORE_SLOTS_MAX)
			return false;
	return true;
}

int store_hash_slots_encode(const struct store_hash_slots *t, uint8_t *out, uint32_t cap)
{
	if (!hash_slots_valid(t))
		return -EINVAL;
	if (cap < HASH_HEADER + 2 * t->count)
		return -ENOSPC;
	put_le(out, BODY_VERSION, 4);
	put_le(out + 4, t->count, 4);
	put_le(out + 8, t->version, 8);
	put_le(out + 16, t->revision, 8);
	for (uint32_t i = 0; i < t->count; i++)
		put_le(out + HASH_HEADER + 2 * i, t->slot_of[i], 2);
	return (int)(HASH_HEADER + 2 * t->count);
}

int store_hash_slots_decode(const uint8_t *p, uint32_t len, struct store_hash_slots *t)
{
	t->count = 0;
	if (len < HASH_HEADER || get_le(p, 4) != BODY_VERSION || get_le(p + 4, 4) > HASH_SLOTS_MAX)
		return -EINVAL;
	t->count = (uint32_t)get_le(p + 4, 4);
	t->version = get_le(p + 8, 8);
	t->revision = get_le(p + 16, 8);
	if (len != HASH_HEADER + 2 * t->count)
		return -EINVAL;
	for (uint32_t i = 0; i < t->count; i++)
		t->slot_of[i] = (uint16_t)get_le(p + HASH_HEADER + 2 * i, 2);
	return hash_slots_valid(t) ? 0 : -EINVAL;
}

// --- runtime --------------------------------------------------------------------------------------------

static bool runtime_valid(const struct store_runtime *r)
{
	if (!ids_valid(r->replica, r->replica_count) || !ids_valid(r->isr, r->isr_count) ||
		r->channel_epoch == 0)
		return false;
	for (uint32_t i = 0; i < r->isr_count; i++)
		if (!ids_have(r->replica, r->replica_count, r->isr[i]))
			return false;
	return r->leader == 0 || ids_have(r->replica, r->replica_count, r->leader);
}

int store_runtime_encode(const struct store_runtime *r, uint8_t *out, uint32_t cap)
{
	uint8_t *ids = out + RUNTIME_HEADER;

	if (!runtime_valid(r))
		return -EINVAL;
	if (cap < RUNTIME_HEADER + 8 * (r->replica_count + r->isr_count))
		return -ENOSPC;
	memset(out, 0, 8);
	out[0] = BODY_VERSION;
	out[1] = r->status;
	out[2] = r->min_isr;
	out[3] = (uint8_t)r->replica_count;
	out[4] = (uint8_t)r->isr_count;
	put_le(out + 8, r->leader, 8);
	put_le(out + 16, r->channel_epoch, 8);
	put_le(out + 24, r->leader_epoch, 8);
	put_le(out + 32, r->route_generation, 8);
	put_le(out + 40, r->features, 8);
	put_le(out + 48, r->lease_until_ms, 8);
	put_le(out + 56, r->revision, 8);
	put_ids(ids, r->replica, r->replica_count);
	put_ids(ids + 8 * r->replica_count, r->isr, r->isr_count);
	return (int)(RUNTIME_HEADER + 8 * (r->replica_count + r->isr_count));
}

int store_runtime_decode(const uint8_t *p, uint32_t len, struct store_runtime *r)
{
	memset(&r->leader, 0, sizeof(*r) - offsetof(struct store_runtime, leader));
	if (len < RUNTIME_HEADER || p[0] != BODY_VERSION || (p[5] | p[6] | p[7]) != 0 ||
		p[3] > STORE_REPLICAS_MAX || p[4] > STORE_REPLICAS_MAX ||
		len != RUNTIME_HEADER + 8u * (p[3] + p[4]))
		return -EINVAL;
	r->status = p[1];
	r->min_isr = p[2];
	r->replica_count = p[3];
	r->isr_count = p[4];
	r->leader = get_le(p + 8, 8);
	r->channel_epoch = get_le(p + 16, 8);
	r->leader_epoch = get_le(p + 24, 8);
	r->route_generation = get_le(p + 32, 8);
	r->features = get_le(p + 40, 8);
	r->lease_until_ms = get_le(p + 48, 8);
	r->revision = get_le(p + 56, 8);
	get_ids(p + RUNTIME_HEADER, r->replica, r->replica_count);
	get_ids(p + RUNTIME_HEADER + 8 * r->replica_count, r->isr, r->isr_count);
	return runtime_valid(r) ? 0 : -EINVAL;
}

// --- commands -------------------------------------------------------------------------------------------

static int command(struct store_command *cmd, uint8_t op, uint64_t id, const uint8_t *body, int len)
{
	*cmd = (struct store_command){.op = op, .id = id};
	if (len < 0)
		return -EINVAL;
	cmd->body = body;
	cmd->body_bytes = (uint32_t)len;
	return 0;
}

int store_command_node(struct store_command *cmd, const struct store_node *node, uint8_t *body)
{
	struct store_node n = *node;

	n.state = STORE_NODE_JOINING;
	n.revision = 0;
	return command(
		cmd, STORE_NODE_JOIN, n.id, body, store_node_encode(&n, body, STORE_BODY_MAX));
}

void store_command_node_state(
	struct store_command *cmd, uint64_t id, enum store_node_state state, uint64_t if_revision)
{
	*cmd = (struct store_command){.op = STORE_NODE_STATE, .id = id, .flags = (uint8_t)state};
	cmd->if_revision = if_revision;
}

int store_command_slot(struct store_command *cmd, const struct store_slot *slot, uint8_t *body)
{
	struct store_slot s = *slot;

	s.revision = 0;
	return command(
		cmd, STORE_SLOT_SET, s.slot, body, store_slot_encode(&s, body, STORE_BODY_MAX));
}

int store_command_hash_slots(struct store_command *cmd, const struct store_hash_slots *table,
	uint64_t if_version, uint8_t *body)
{
	const int len = store_hash_slots_encode(table, body, STORE_BODY_MAX);
	const int rc = command(cmd, STORE_HASH_SLOTS_SET, 0, body, len);

	if (rc == 0)
		put_le(body + 8, 0, 8);
	if (rc == 0)
		put_le(body + 16, 0, 8);
	cmd->if_revision = if_version;
	return rc;
}

int store_command_runtime(
	struct store_command *cmd, const struct store_runtime *runtime, uint8_t *body)
{
	struct store_runtime r = *runtime;
	int rc;

	r.revision = 0;
	rc = command(
		cmd, STORE_RUNTIME_SET, 0, body, store_runtime_encode(&r, body, STORE_BODY_MAX));
	cmd->channel = r.channel;
	return rc;
}

// The body of a command is the row that it asks for, and says what its header says.
static bool body_fits(const struct store_command *cmd)
{
	struct store_hash_slots table;
	struct store_runtime runtime;
	struct store_slot slot;
	struct store_node node;

	switch ((enum store_op)cmd->op) {
	case STORE_NODE_JOIN:
		return store_node_decode(cmd->body, cmd->body_bytes, &node) == 0 &&
		       node.id == cmd->id && node.state == STORE_NODE_JOINING && node.revision == 0;
	case STORE_NODE_STATE:
		return cmd->body_bytes == 0 && cmd->id != 0;
	case STORE_SLOT_SET:
		return store_slot_decode(cmd->body, cmd->body_bytes, &slot) == 0 &&
		       slot.slot == cmd->id && slot.revision == 0;
	case STORE_HASH_SLOTS_SET:
		return store_hash_slots_decode(cmd->body, cmd->body_bytes, &table) == 0 &&
		       cmd->id == 0 && table.version == 0 && table.revision == 0;
	case STORE_RUNTIME_SET:
		return store_runtime_decode(cmd->body, cmd->body_bytes, &runtime) == 0 &&
		       cmd->id == 0 && runtime.revision == 0;
	default:
		return false;
	}
}

const char *cluster_command_fault(const struct store_command *cmd)
{
	const bool state = cmd->op == STORE_NODE_STATE;

	if ((cmd->op == STORE_RUNTIME_SET ? !channel_key_valid(&cmd->channel)
					  : cmd->channel.type != 0 || cmd->channel.len != 0))
		return "channel missing or not allowed";
	if (cmd->list != 0 || cmd->staged_op != 0)
		return "list not allowed";
	if (state ? cmd->flags < STORE_NODE_JOINING || cmd->flags > STORE_NODE_REMOVED
		  : cmd->flags != 0)
		return "node state out of range";
	if (cmd->uid_count != 0)
		return "uids not allowed";
	if (cmd->if_revision != 0 && !state && cmd->op != STORE_HASH_SLOTS_SET)
		return "revision not allowed";
	return body_fits(cmd) ? NULL : "malformed body";
}

bool cluster_delta_valid(const struct store_delta *d)
{
	struct store_hash_slots table;
	struct store_runtime runtime;
	struct store_slot slot;
	struct store_node node;

	if (d->smv != 0 || d->smv_before != 0 || d->members != 0 || d->list != 0 || d->flags != 0 ||
		d->uid_count != 0 || d->commit == 0)
		return false;
	if (d->kind == STORE_DELTA_RUNTIME ? !channel_key_valid(&d->channel)
					   : d->channel.type != 0 || d->channel.len != 0)
		return false;
	switch (d->kind) {
	case STORE_DELTA_NODE:
		return store_node_decode(d->body, d->body_bytes, &node) == 0;
	case STORE_DELTA_SLOT:
		return store_slot_decode(d->body, d->body_bytes, &slot) == 0;
	case STORE_DELTA_HASH_SLOTS:
		return store_hash_slots_decode(d->body, d->body_bytes, &table) == 0;
	case STORE_DELTA_RUNTIME:
		return store_runtime_decode(d->body, d->body_bytes, &runtime) == 0;
	default:
		return false;
	}
}
