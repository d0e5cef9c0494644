/* SPDX-License-Identifier: BSD-3-Clause */
// One side connection: frames out of a bounded queue, frames in through a bounded buffer. Owns every side
// connection; memory of one is freed in its close callback, never before. Context: the loop.
#include "raft_peer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

#define IN_FIRST_BYTES 4096u

static_assert(IN_FIRST_BYTES >= SIDE_SMALL_MAX, "small frames need no growth");

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

// Requests that waited for room at this leader; each turn another connection comes first.
void side_unstall(struct raft_peers *p)
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
