/* SPDX-License-Identifier: BSD-3-Clause */
// Commands on the cluster's tables. Thread: owner of the write transaction.
#include "store_cluster_pvt.h"

static int refuse(struct store_result *r, enum store_result_code code)
{
	r->code = (uint8_t)code;
	return 0;
}

// Stores a row and leaves its delta behind.
static int row_set(struct store_apply *a, uint8_t kind, const struct channel_key *channel,
	struct store_bytes key, const uint8_t *body, int len, struct store_result *r)
{
	struct store_delta delta = {.commit = ++a->state.commit,
		.kind = kind,
		.body = body,
		.body_bytes = (uint32_t)len};
	int rc = len < 0 ? -EUCLEAN : 0;

	if (channel != NULL)
		delta.channel = *channel;
	if (rc == 0)
		rc = tx_put(a->tx, STORE_T_RUNTIME, key, bytes_of(body, (uint32_t)len));
	if (rc == 0)
		rc = delta_publish(a, &delta, r);
	if (rc != 0)
		return rc;
	r->changed = 1;
	return 0;
}

static int node_set(struct store_apply *a, struct store_node *node, struct store_result *r)
{
	uint8_t k[9] = {'N'}, body[64 + STORE_ADDRESS_MAX];

	put_be(k + 1, node->id, 8);
	node->revision = a->state.commit + 1;
	return row_set(a, STORE_DELTA_NODE, NULL, bytes_of(k, sizeof(k)), body,
		store_node_encode(node, body, sizeof(body)), r);
}

// --- nodes ----------------------------------------------------------------------------------------------

// Returns: 1: there is room for one more id, 0, -errno.
static int nodes_room(struct store_tx *tx)
{
	struct store_node node = {.id = 0};
	int rc = 0;

	for (uint32_t n = 0; n < STORE_NODES_MAX; n++) {
		rc = store_read_next_node(tx, node.id, &node);
		if (rc != 0)
			return rc == -ENOENT ? 1 : rc;
	}
	return 0;
}

static int node_join(struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	struct store_node want, node;
	int rc = store_node_decode(cmd->body, cmd->body_bytes, &want);

	if (rc != 0)
		return refuse(r, STORE_R_INVALID);
	rc = store_read_node(a->tx, cmd->id, &node);
	if (rc == -ENOENT) {
		rc = nodes_room(a->tx);
		if (rc == 0)
			return refuse(r, STORE_R_LIMIT);
		return rc < 0 ? rc : node_set(a, &want, r);
	}
	if (rc != 0)
		return rc;
	if (node.state == STORE_NODE_REMOVED)
		return refuse(r, STORE_R_REFUSED);
	if (node.address_len == want.address_len &&
		memcmp(node.address, want.address, node.address_len) == 0)
		return refuse(r, STORE_R_NO_CHANGE);
	node.address_len = want.address_len;
	memcpy(node.address, want.address, sizeof(node.address));
	return node_set(a, &node, r);
}

// Does any slot name the node? Returns: 1, 0, -errno.
static int slots_name(struct store_tx *tx, uint64_t id)
{
	struct store_slot slot = {.slot = 0};
	int rc;

	while ((rc = store_read_next_slot(tx, slot.slot, &slot)) == 0)
		if (ids_have(slot.peer, slot.peer_count, id))
			return 1;
	return rc == -ENOENT ? 0 : rc;
}

static bool step_allowed(uint8_t from, uint8_t to)
{
	switch (to) {
	case STORE_NODE_ACTIVE:  // from leaving: a drain called off
		return from == STORE_NODE_JOINING || from == STORE_NODE_LEAVING;
	case STORE_NODE_LEAVING:
		return from == STORE_NODE_ACTIVE;
	case STORE_NODE_REMOVED:
		return from == STORE_NODE_LEAVING || from == STORE_NODE_JOINING;
	default:
		return false;
	}
}

static int node_state(
	struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	struct store_node node;
	int rc = store_read_node(a->tx, cmd->id, &node);

	if (rc == -ENOENT)
		return refuse(r, STORE_R_NOT_FOUND);
	if (rc != 0)
		return rc;
	if (node.state == cmd->flags)
		return refuse(r, STORE_R_NO_CHANGE);
	if (cmd->if_revision != 0 && cmd->if_revision != node.revision)
		return refuse(r, STORE_R_STALE);
	if (!step_allowed(node.state, cmd->flags))
		return refuse(r, STORE_R_REFUSED);
	rc = cmd->flags == STORE_NODE_REMOVED ? slots_name(a->tx, cmd->id) : 0;
	if (rc != 0)
		return rc < 0 ? rc : refuse(r, STORE_R_REFUSED);
	node.state = cmd->flags;
	return node_set(a, &node, r);
}

// --- rows that name nodes ---------------------------------------------------------------------------------

// Are all of `now` that are not among `before` active nodes? Returns: 1, 0, -errno.
static int newly_named_active(struct store_tx *tx, const uint64_t *before, uint32_t before_count,
	const uint64_t *now, uint32_t now_count)
{
	for (uint32_t i = 0; i < now_count; i++) {
		struct store_node node;
		int rc;

		if (now[i] == 0 || ids_have(before, before_count, now[i]))
			continue;
		rc = store_read_node(tx, now[i], &node);
		if (rc != 0)
			return rc == -ENOENT ? 0 : rc;
		if (node.state != STORE_NODE_ACTIVE)
			return 0;
	}
	return 1;
}

static bool same_ids(const uint64_t *a, uint32_t a_count, const uint64_t *b, uint32_t b_count)
{
	return a_count == b_count && memcmp(a, b, a_count * sizeof(*a)) == 0;
}

// A leader comes with a higher term or epoch; that there is none for now may be said within one.
static bool leader_needs_step(uint64_t before, uint64_t now)
{
	return now != 0 && now != before;
}

static uint8_t slot_judge(const struct store_slot *old, const struct store_slot *s)
{
	const bool peers = same_ids(old->peer, old->peer_count, s->peer, s->peer_count);

	if (s->term < old->term || s->config_epoch < old->config_epoch ||
		s->balance_version < old->balance_version)
		return STORE_R_STALE;
	if (peers && s->leader == old->leader && s->term == old->term &&
		s->config_epoch == old->config_epoch && s->balance_version == old->balance_version)
		return STORE_R_NO_CHANGE;
	if ((leader_needs_step(old->leader, s->leader) && s->term == old->term) ||
		(!peers && s->config_epoch == old->config_epoch))
		return STORE_R_REFUSED;
	return STORE_R_OK;
}

static int slot_set(struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	uint8_t k[3] = {'S'}, body[64 + 8 * STORE_REPLICAS_MAX];
	struct store_slot old, s;
	int rc = store_slot_decode(cmd->body, cmd->body_bytes, &s);

	if (rc != 0)
		return refuse(r, STORE_R_INVALID);
	rc = store_read_slot(a->tx, s.slot, &old);
	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (rc == -ENOENT)
		memset(&old, 0, sizeof(old));
	else if ((r->code = slot_judge(&old, &s)) != STORE_R_OK)
		return 0;
	rc = newly_named_active(a->tx, old.peer, old.peer_count, s.peer, s.peer_count);
	if (rc == 1)
		rc = newly_named_active(a->tx, &old.leader, 1, &s.leader, 1);
	if (rc <= 0)
		return rc < 0 ? rc : refuse(r, STORE_R_REFUSED);
	put_be(k + 1, s.slot, 2);
	s.revision = a->state.commit + 1;
	return row_set(a, STORE_DELTA_SLOT, NULL, bytes_of(k, sizeof(k)), body,
		store_slot_encode(&s, body, sizeof(body)), r);
}

static int hash_slots_set(
	struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	struct store_hash_slots old = {.version = 0}, t;
	uint8_t body[STORE_BODY_MAX];
	int rc = store_hash_slots_decode(cmd->body, cmd->body_bytes, &t);

	if (rc != 0)
		return refuse(r, STORE_R_INVALID);
	rc = store_read_hash_slots(a->tx, &old);
	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (cmd->if_revision != 0 && cmd->if_revision != old.version)
		return refuse(r, STORE_R_STALE);
	if (rc == 0 && old.count != t.count)
		return refuse(r, STORE_R_REFUSED);
	if (rc == 0 && memcmp(old.slot_of, t.slot_of, 2 * t.count) == 0)
		return refuse(r, STORE_R_NO_CHANGE);
	t.version = old.version + 1;
	t.revision = a->state.commit + 1;
	return row_set(a, STORE_DELTA_HASH_SLOTS, NULL, bytes_of("H", 1), body,
		store_hash_slots_encode(&t, body, sizeof(body)), r);
}

static uint8_t runtime_judge(const struct store_runtime *old, const struct store_runtime *n)
{
	const bool epoch = n->channel_epoch > old->channel_epoch;
	const bool replicas =
		same_ids(old->replica, old->replica_count, n->replica, n->replica_count);
	const bool isr = same_ids(old->isr, old->isr_count, n->isr, n->isr_count);

	if (n->channel_epoch < old->channel_epoch ||
		(!epoch && n->leader_epoch < old->leader_epoch) ||
		n->route_generation < old->route_generation)
		return STORE_R_STALE;
	if (!epoch && replicas && isr && n->leader == old->leader &&
		n->leader_epoch == old->leader_epoch &&
		n->route_generation == old->route_generation && n->features == old->features &&
		n->lease_until_ms == old->lease_until_ms && n->status == old->status &&
		n->min_isr == old->min_isr)
		return STORE_R_NO_CHANGE;
	if (!epoch && (!replicas || (leader_needs_step(old->leader, n->leader) &&
					    n->leader_epoch == old->leader_epoch)))
		return STORE_R_REFUSED;
	return STORE_R_OK;
}

static int runtime_set(
	struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	uint8_t k[RUNTIME_KEY_PREFIX + 1 + ID_LEN_MAX], body[128 + 16 * STORE_REPLICAS_MAX];
	struct store_runtime old, n;
	uint32_t hash_slots;
	int rc = store_runtime_decode(cmd->body, cmd->body_bytes, &n);

	if (rc != 0)
		return refuse(r, STORE_R_INVALID);
	rc = hash_slot_count(a->tx, &hash_slots);
	if (rc != 0)  // without a table nobody knows where the row belongs
		return rc == -ENOENT ? refuse(r, STORE_R_REFUSED) : rc;
	rc = store_read_runtime(a->tx, &cmd->channel, &old);
	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (rc == -ENOENT)
		memset(&old, 0, sizeof(old));
	else if ((r->code = runtime_judge(&old, &n)) != STORE_R_OK)
		return 0;
	rc = newly_named_active(a->tx, old.replica, old.replica_count, n.replica, n.replica_count);
	if (rc == 1)
		rc = newly_named_active(a->tx, old.isr, old.isr_count, n.isr, n.isr_count);
	if (rc == 1)
		rc = newly_named_active(a->tx, &old.leader, 1, &n.leader, 1);
	if (rc <= 0)
		return rc < 0 ? rc : refuse(r, STORE_R_REFUSED);
	n.revision = a->state.commit + 1;

	const uint32_t len = runtime_key(
		id_hash_slot(channel_key_id(&cmd->channel), hash_slots), &cmd->channel, k);

	return row_set(a, STORE_DELTA_RUNTIME, &cmd->channel, bytes_of(k, len), body,
		store_runtime_encode(&n, body, sizeof(body)), r);
}

int apply_cluster(struct store_apply *a, const struct store_command *cmd, struct store_result *r)
{
	if (a->state.commit == UINT64_MAX)
		return refuse(r, STORE_R_LIMIT);
	switch ((enum store_op)cmd->op) {
	case STORE_NODE_JOIN:
		return node_join(a, cmd, r);
	case STORE_NODE_STATE:
		return node_state(a, cmd, r);
	case STORE_SLOT_SET:
		return slot_set(a, cmd, r);
	case STORE_HASH_SLOTS_SET:
		return hash_slots_set(a, cmd, r);
	case STORE_RUNTIME_SET:
		return runtime_set(a, cmd, r);
	default:
		return refuse(r, STORE_R_INVALID);
	}
}
