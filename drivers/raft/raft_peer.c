/* SPDX-License-Identifier: BSD-3-Clause */
// The side connections: one dialled to every other member, any number taken from them, each read into a
// bounded buffer frame by frame. Owns the list of peers and every side connection; memory of one is freed
// in its close callback, never before. Context: the loop.
#include "raft_peer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

#define IN_FIRST_BYTES 4096u

static_assert(IN_FIRST_BYTES >= SIDE_SMALL_MAX, "small frames need no growth");

// --- one connection ----------------------------------------------------------------------------------------

struct side_write {
	struct uv_write_s request;
	uint8_t bytes[];
};

static void on_written(struct uv_write_s *request, int status)
{
	struct side_conn *conn = request->handle->data;

	free(request);
	if (status != 0 && conn->link != NULL)
		side_conn_close(conn);
}

bool side_send(struct side_conn *conn, const struct side_frame *frame)
{
	uint32_t size = side_size(frame);
	struct side_write *w;
	uv_buf_t buf;

	if (conn->link == NULL ||
		uv_stream_get_write_queue_size((struct uv_stream_s *)conn->tcp) + size >
			SIDE_OUT_MAX)
		return false;
	w = malloc(sizeof(*w) + size);
	if (w == NULL)
		return false;
	side_encode(frame, w->bytes);
	buf = uv_buf_init((char *)w->bytes, size);
	if (uv_write(&w->request, (struct uv_stream_s *)conn->tcp, &buf, 1, on_written) == 0)
		return true;
	free(w);
	return false;
}

static void on_conn_closed(struct uv_handle_s *handle)
{
	struct side_conn *conn = handle->data;

	raft_free(handle);
	free(conn->in);
	free(conn);
}

void side_conn_close(struct side_conn *conn)
{
	struct raft_peers *p = conn->p;

	assert(conn->link != NULL);
	*conn->link = conn->next;
	if (conn->next != NULL)
		conn->next->link = conn->link;
	conn->link = NULL;
	p->inbound_count -= conn->inbound;
	if (conn->peer != NULL) {
		conn->peer->out = NULL;
		conn->peer->retry_ns = p->now_ns + conn->peer->retry_ms * NS_PER_MS;
	}
	conn->peer = NULL;
	uv_close((struct uv_handle_s *)conn->tcp, on_conn_closed);
	forward_conn_gone(p, conn->serial);
	if (conn->joins)
		join_conn_gone(p);
}

struct side_conn *side_conn_find(struct raft_peers *p, uint64_t serial)
{
	for (struct side_conn *conn = p->conns; conn != NULL; conn = conn->next)
		if (conn->serial == serial)
			return conn;
	return NULL;
}

static void on_history(struct side_conn *conn, const struct side_frame *frame)
{
	struct raft_peers *p = conn->p;
	struct peer *peer = side_peer(p, conn->peer_id);

	if (peer == NULL)
		return;
	peer->heard_ns = p->now_ns;
	chain_told(&p->chain, peer->id, frame->pair, frame->pair_count, p->now_ns);
}

static void broken(struct side_conn *conn, const char *what)
{
	conn->p->c->stats.side_frames_refused++;
	LOG(LOG_WARN, "raft", "side_frame", "node %" PRIu64 ": %s, connection closed",
		conn->peer_id, what);
	side_conn_close(conn);
}

// Length of the frame at the front, 0 when its head is not there yet; -1: nonsense, connection closed.
static int front_length(struct side_conn *conn)
{
	int length;

	if (conn->in_len < SIDE_HEAD_BYTES)
		return 0;
	length = side_length(conn->in);
	if (length < 0) {
		broken(conn, "no frame of ours");
		return -1;
	}
	// Who is not a member has nothing large to say.
	if (length > (int)SIDE_SMALL_MAX && conn->inbound &&
		!side_is_member(conn->p, conn->peer_id)) {
		broken(conn, "large frame of a stranger");
		return -1;
	}
	return length;
}

// Handles the frames that are whole. Context: the caller does not touch `conn` afterwards.
static void handle_input(struct side_conn *conn)
{
	struct side_frame frame;
	int length;

	for (;;) {
		enum side_taken taken = SIDE_TAKEN;
		bool waited = conn->stalled_ns != 0 &&
			      conn->p->now_ns >= conn->stalled_ns + SIDE_STALL_NS;

		length = front_length(conn);
		if (length < 0)
			return;
		if (length == 0 || conn->in_len < (uint32_t)length)
			break;
		if (side_decode(conn->in, (uint32_t)length, &frame) != 0) {
			broken(conn, "malformed frame");
			return;
		}
		if (frame.type == SIDE_HISTORY)
			on_history(conn, &frame);
		else
			taken = forward_on_frame(conn, &frame, waited);
		if (conn->link == NULL)
			return;
		if (taken == SIDE_BROKEN) {
			broken(conn, "frame that nobody asked for");
			return;
		}
		if (taken == SIDE_STALLED) {
			if (conn->stalled_ns == 0) {
				conn->stalled_ns = conn->p->now_ns;
				uv_read_stop((struct uv_stream_s *)conn->tcp);
			}
			return;
		}
		conn->stalled_ns = 0;
		conn->in_len -= (uint32_t)length;
		memmove(conn->in, conn->in + length, conn->in_len);
	}
	if ((uint32_t)length > conn->in_cap) {
		uint8_t *in = realloc(conn->in, (size_t)length);

		if (in == NULL) {
			side_conn_close(conn);
			return;
		}
		conn->in = in;
		conn->in_cap = (uint32_t)length;
	}
}

static void on_alloc(struct uv_handle_s *handle, size_t suggested, uv_buf_t *buf)
{
	struct side_conn *conn = handle->data;

	*buf = uv_buf_init((char *)conn->in + conn->in_len, conn->in_cap - conn->in_len);
}

static void on_read(struct uv_stream_s *stream, ssize_t n, const uv_buf_t *buf)
{
	struct side_conn *conn = stream->data;

	if (n < 0) {
		side_conn_close(conn);
		return;
	}
	conn->in_len += (uint32_t)n;
	handle_input(conn);
}

static void on_stray_closed(struct uv_handle_s *handle)
{
	raft_free(handle);
}

struct side_conn *side_conn_new(
	struct raft_peers *p, struct uv_tcp_s *tcp, uint64_t peer_id, bool inbound)
{
	struct side_conn *conn = calloc(1, sizeof(*conn));
	uint8_t *in = malloc(IN_FIRST_BYTES);

	if (conn == NULL || in == NULL) {
		free(conn);
		free(in);
		uv_close((struct uv_handle_s *)tcp, on_stray_closed);
		return NULL;
	}
	*conn = (struct side_conn){.p = p,
		.tcp = tcp,
		.peer_id = peer_id,
		.serial = ++p->serial,
		.in = in,
		.in_cap = IN_FIRST_BYTES,
		.inbound = inbound,
		.next = p->conns,
		.link = &p->conns};
	if (conn->next != NULL)
		conn->next->link = &conn->next;
	p->conns = conn;
	p->inbound_count += inbound;
	tcp->data = conn;
	if (uv_read_start((struct uv_stream_s *)tcp, on_alloc, on_read) == 0)
		return conn;
	side_conn_close(conn);
	return NULL;
}

void raft_peers_accepted(struct raft_cons *c, uint64_t id, struct uv_tcp_s *tcp)
{
	struct raft_peers *p = c->peers;

	// One from each: a newer one says that the older is dead.
	for (struct side_conn *conn = p->conns; conn != NULL; conn = conn->next) {
		if (!conn->inbound || conn->peer_id != id)
			continue;
		side_conn_close(conn);
		break;
	}
	if (p->inbound_count >= SIDE_INBOUND_MAX) {
		c->stats.refused[HELLO_NO_ROOM]++;
		LOG(LOG_WARN, "raft", "side_full", "no room for a connection of node %" PRIu64, id);
		uv_close((struct uv_handle_s *)tcp, on_stray_closed);
		return;
	}
	side_conn_new(p, tcp, id, true);
}

// --- peers -------------------------------------------------------------------------------------------------

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

// Requests that waited for room at this leader; each turn another connection comes first.
static void unstall(struct raft_peers *p)
{
	struct side_conn *stalled[SIDE_INBOUND_MAX];
	uint32_t count = 0;

	for (struct side_conn *conn = p->conns; conn != NULL && count < SIDE_INBOUND_MAX;
		conn = conn->next)
		if (conn->stalled_ns != 0)
			stalled[count++] = conn;
	p->unstall_next++;
	for (uint32_t i = 0; i < count; i++) {
		struct side_conn *conn = stalled[(i + p->unstall_next) % count];

		// A closed one is freed in a later turn.
		if (conn->link == NULL)
			continue;
		handle_input(conn);
		if (conn->link != NULL && conn->stalled_ns == 0 &&
			uv_read_start((struct uv_stream_s *)conn->tcp, on_alloc, on_read) != 0)
			side_conn_close(conn);
	}
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
	unstall(p);
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
