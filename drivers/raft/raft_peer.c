/* SPDX-License-Identifier: BSD-3-Clause */
// The other members as this node knows them: one connection dialled to each, kept up, and the history that
// is told over it. Owns the list of peers. Context: the loop.
#include "raft_peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

bool side_is_member(const struct raft_peers *p, uint64_t id)
{
	const struct raft_configuration *configuration = &p->c->raft.configuration;

	for (unsigned i = 0; i < configuration->n; i++)
		if (configuration->servers[i].id == id)
			return true;
	return false;
}

struct peer *side_peer(struct raft_peers *p, uint64_t id)
{
	for (struct peer *peer = p->peers; peer != NULL; peer = peer->next)
		if (peer->id == id)
			return peer;
	return NULL;
}

struct side_conn *side_leader(struct raft_peers *p)
{
	raft_id id = 0;
	const char *address = NULL;
	struct peer *peer;

	if (!p->c->started)
		return NULL;
	raft_leader(&p->c->raft, &id, &address);
	peer = id != 0 && id != p->c->params.node_id ? side_peer(p, id) : NULL;
	return peer != NULL ? peer->out : NULL;
}

static void peer_free(struct peer *peer)
{
	if (peer->dial != NULL)
		net_dial_cancel(peer->dial);
	if (peer->out != NULL)
		side_conn_close(peer->out);
	free(peer);
}

static void peer_add(struct raft_peers *p, uint64_t id, const char *address)
{
	struct peer *peer = side_peer(p, id);

	if (peer == NULL) {
		peer = calloc(1, sizeof(*peer));
		if (peer == NULL)
			return;
		*peer = (struct peer){
			.p = p, .id = id, .retry_ms = SIDE_RETRY_MIN_MS, .next = p->peers};
		p->peers = peer;
	}
	snprintf(peer->address, sizeof(peer->address), "%s", address);
	peer->listed = true;
}

// Makes the list of peers that of the configuration, when that moved.
static void sync_peers(struct raft_peers *p)
{
	const struct raft *raft = &p->c->raft;
	const struct raft_configuration *configuration = &raft->configuration;
	uint64_t ids[CONS_MEMBERS_MAX];
	uint32_t count = 0;

	if (p->seen_servers == configuration->servers && p->seen_count == configuration->n &&
		p->seen_index == raft->configuration_index &&
		p->seen_uncommitted == raft->configuration_uncommitted_index)
		return;
	p->seen_servers = configuration->servers;
	p->seen_count = configuration->n;
	p->seen_index = raft->configuration_index;
	p->seen_uncommitted = raft->configuration_uncommitted_index;
	for (struct peer *peer = p->peers; peer != NULL; peer = peer->next)
		peer->listed = false;
	for (unsigned i = 0; i < configuration->n && count < CONS_MEMBERS_MAX; i++) {
		if (configuration->servers[i].id == p->c->params.node_id)
			continue;
		ids[count++] = configuration->servers[i].id;
		peer_add(p, configuration->servers[i].id, configuration->servers[i].address);
	}
	for (struct peer **at = &p->peers; *at != NULL;) {
		struct peer *peer = *at;

		if (peer->listed) {
			at = &peer->next;
			continue;
		}
		*at = peer->next;
		peer_free(peer);
	}
	chain_keep(&p->chain, ids, count);
}

static void tell(struct side_conn *conn)
{
	struct side_frame frame = {.type = SIDE_HISTORY};

	frame.pair_count = (uint8_t)chain_tell(&conn->p->chain, frame.pair);
	side_send(conn, &frame);
}

static void on_peer_dialed(
	void *ctx, struct uv_tcp_s *stream, uint64_t peer_id, enum hello_refusal refusal, bool told)
{
	struct peer *peer = ctx;
	struct raft_peers *p = peer->p;

	peer->dial = NULL;
	if (stream != NULL) {
		peer->out = side_conn_new(p, stream, peer_id, false);
		if (peer->out != NULL) {
			peer->out->peer = peer;
			peer->retry_ms = SIDE_RETRY_MIN_MS;
			tell(peer->out);
			return;
		}
	}
	peer->retry_ns = p->now_ns + peer->retry_ms * NS_PER_MS;
	peer->retry_ms =
		peer->retry_ms * 2 < SIDE_RETRY_MAX_MS ? peer->retry_ms * 2 : SIDE_RETRY_MAX_MS;
}

static void dial_peers(struct raft_peers *p)
{
	for (struct peer *peer = p->peers; peer != NULL; peer = peer->next) {
		if (peer->out != NULL || peer->dial != NULL || p->now_ns < peer->retry_ns)
			continue;
		peer->dial = net_dial(
			p->c->net, HELLO_SIDE, peer->id, peer->address, on_peer_dialed, peer);
		peer->retry_ns = p->now_ns + peer->retry_ms * NS_PER_MS;
	}
}

static void judge(struct raft_peers *p)
{
	const struct chain_peer *peer;
	enum chain_verdict verdict =
		chain_judge(&p->chain, (uint32_t)p->c->raft.configuration.n, p->now_ns, &peer);

	if (verdict == CHAIN_SELF_WRONG)
		core_exit(RAFT_EXIT_HISTORY, "history_differs",
			"HISTORY DIFFERS: at index %" PRIu64 " node %" PRIu64
			" has chain %016" PRIx64 ", this node %016" PRIx64
			"; this node is not with the majority and ends. Do not start "
			"it again: remove its id, add a new one with an empty folder",
			peer->at, peer->id, peer->theirs, peer->own);
	if (peer == NULL || p->now_ns < p->alarm_ns)
		return;
	p->alarm_ns = p->now_ns + SIDE_TELL_NS;
	LOG(LOG_ERROR, "raft", "history_differs",
		"HISTORY DIFFERS: at index %" PRIu64 " node %" PRIu64 " has chain %016" PRIx64
		", this node %016" PRIx64 "; %s",
		peer->at, peer->id, peer->theirs, peer->own,
		verdict == CHAIN_WAIT ? "asking the others"
				      : "that node is wrong and must be removed");
}

static void history_turn(struct raft_peers *p)
{
	uint64_t index = 0, value = core_chain(p->c, &index);

	if (value != 0)
		chain_own(&p->chain, index, value, p->now_ns);
	p->c->stats.chain_checked = p->chain.checked;
	if (p->chain.differs_since_ns != 0)
		judge(p);
	if (p->now_ns < p->tell_ns)
		return;
	p->tell_ns = p->now_ns + SIDE_TELL_NS;
	for (struct peer *peer = p->peers; peer != NULL; peer = peer->next)
		if (peer->out != NULL)
			tell(peer->out);
}

void raft_peers_turn(struct raft_cons *c, uint64_t now_ns, bool changed, uint8_t *busy)
{
	struct raft_peers *p = c->peers;

	p->now_ns = now_ns;
	change_turn(p);
	if (!c->started)
		return;
	sync_peers(p);
	dial_peers(p);
	side_unstall(p);
	forward_turn(p, changed);
	history_turn(p);
}

void raft_peers_members(struct raft_cons *c, struct cons_member *members, uint32_t count)
{
	struct raft_peers *p = c->peers;
	struct chain_pair pair;

	for (uint32_t i = 0; i < count; i++) {
		const struct peer *peer = side_peer(p, members[i].id);

		if (members[i].id == c->params.node_id) {
			members[i].connected = 1;
			members[i].chain = core_chain(c, &members[i].applied_index);
			continue;
		}
		members[i].connected = peer != NULL && peer->out != NULL && peer->heard_ns != 0 &&
				       p->now_ns < peer->heard_ns + SIDE_HEARD_NS;
		if (!chain_last(&p->chain, members[i].id, &pair))
			continue;
		members[i].applied_index = pair.index;
		members[i].chain = pair.chain;
	}
}

bool raft_peers_ready(const struct raft_cons *c)
{
	return side_leader(c->peers) != NULL;
}

int raft_peers_open(struct raft_cons *c)
{
	struct raft_peers *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return -ENOMEM;
	p->c = c;
	chain_init(&p->chain);
	c->peers = p;
	return 0;
}

int raft_peers_start(struct raft_cons *c)
{
	c->peers->seen_servers = NULL;
	c->peers->seen_count = 0;
	sync_peers(c->peers);
	return 0;
}

void raft_peers_discard(struct raft_cons *c)
{
	struct raft_peers *p = c->peers;

	if (p == NULL)
		return;
	join_discard(p);
	while (p->peers != NULL) {
		struct peer *peer = p->peers;

		p->peers = peer->next;
		peer_free(peer);
	}
	while (p->conns != NULL)
		side_conn_close(p->conns);
	forward_discard(p);
	c->peers = NULL;
	free(p);
}
