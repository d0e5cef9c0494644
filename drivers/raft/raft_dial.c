/* SPDX-License-Identifier: BSD-3-Clause */
// One connection from its SYN, or from being taken, to the end of its handshake; see raft_transport.h. Owns
// the connection until then. Context: the loop.
#include "raft_transport.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

// One connection in its handshake, either way. Freed when its timer, and its stream unless that was given
// away, are closed.
struct net_dial {
	struct net_dial *next,
		**link;  // in net->dials or net->accepts, oldest last; link NULL: ended
	struct raft_net *net;
	struct uv_tcp_s *tcp;
	struct uv_timer_s timer;
	struct uv_connect_s connect;
	struct hello hello;
	uint8_t in[HELLO_BYTES_MAX];
	uint32_t open_handles;
	bool inbound;
	char address[CONS_ADDRESS_MAX];  // of the other end, for the log
	net_dialed done;
	void *ctx;
};

bool net_parse(const char *literal, struct sockaddr_in *address)
{
	char host[CONS_ADDRESS_MAX];
	const char *colon = strrchr(literal, ':');
	char *end;
	long port;

	if (colon == NULL || colon == literal || (size_t)(colon - literal) >= sizeof(host) ||
		colon[1] < '0' || colon[1] > '9')
		return false;
	memcpy(host, literal, (size_t)(colon - literal));
	host[colon - literal] = '\0';
	port = strtol(colon + 1, &end, 10);
	if (*end != '\0' || port < 1 || port > 65535)
		return false;
	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	return inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

int net_set_options(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, NET_KEEPALIVE_S},
		{IPPROTO_TCP, TCP_KEEPINTVL, NET_KEEPALIVE_S},
		{IPPROTO_TCP, TCP_KEEPCNT, NET_KEEPALIVE_COUNT},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, NET_USER_TIMEOUT_MS},
		{IPPROTO_TCP, TCP_SYNCNT, NET_SYN_RETRIES},
	};

	for (uint32_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			    sizeof(int)) != 0)
			return -errno;
	return 0;
}

// --- the end of a handshake --------------------------------------------------------------------------------

void net_put(struct raft_net *net)
{
	assert(net->alive > 0);
	if (--net->alive > 0)
		return;
	if (net->close_cb != NULL) {
		raft_uv_transport_close_cb close_cb = net->close_cb;

		net->close_cb = NULL;
		close_cb(net->t);
	}
	if (net->discarded)
		free(net);
}

static void dial_put(struct net_dial *d)
{
	struct raft_net *net = d->net;

	if (--d->open_handles > 0)
		return;
	free(d);
	net_put(net);
}

static void on_timer_closed(struct uv_handle_s *handle)
{
	dial_put(handle->data);
}

static void on_tcp_closed(struct uv_handle_s *handle)
{
	struct net_dial *d = handle->data;

	raft_free(handle);
	dial_put(d);
}

// Takes the dial out of its list and closes what it holds; its stream too unless `keep`.
static void dial_end(struct net_dial *d, bool keep)
{
	assert(d->link != NULL);
	*d->link = d->next;
	if (d->next != NULL)
		d->next->link = d->link;
	d->link = NULL;
	if (d->inbound)
		d->net->accept_count--;
	if (keep) {
		uv_read_stop((struct uv_stream_s *)d->tcp);
		d->tcp->data = NULL;
		d->open_handles--;
	} else {
		uv_close((struct uv_handle_s *)d->tcp, on_tcp_closed);
	}
	uv_close((struct uv_handle_s *)&d->timer, on_timer_closed);
}

// True when the same was said lately; counts it then.
static bool hush(struct net_dial *d, enum hello_refusal refusal, uint32_t *held)
{
	struct raft_net *net = d->net;
	const uint64_t now = time_now_ns();
	struct net_quiet *quiet = NULL;

	*held = 0;
	for (uint32_t i = 0; i < NET_QUIET_COUNT; i++)
		if (net->quiet[i].until_ns != 0 && net->quiet[i].peer_id == d->hello.peer_id &&
			net->quiet[i].refusal == refusal && net->quiet[i].inbound == d->inbound)
			quiet = &net->quiet[i];
	if (quiet != NULL && now < quiet->until_ns) {
		quiet->held++;
		return true;
	}
	if (quiet == NULL) {
		quiet = &net->quiet[net->quiet_next];
		net->quiet_next = (net->quiet_next + 1) % NET_QUIET_COUNT;
		quiet->held = 0;
	}
	*held = quiet->held;
	*quiet = (struct net_quiet){.peer_id = d->hello.peer_id,
		.until_ns = now + NET_QUIET_NS,
		.refusal = (uint8_t)refusal,
		.inbound = d->inbound};
	return false;
}

static void say_refused(struct net_dial *d, enum hello_refusal refusal)
{
	uint32_t held;

	d->net->c->stats.handshakes_refused++;
	d->net->c->stats.refused[refusal]++;
	if (hush(d, refusal, &held))
		return;
	LOG(LOG_WARN, "raft", "handshake_refused",
		"%s %s, node %" PRIu64 ": %s%s (%u more since last said)",
		d->inbound ? "from" : "to", d->address, d->hello.peer_id,
		d->hello.told ? "the other side says: " : "", hello_refusal_name(refusal), held);
}

// Refused by us or by the peer, or not reached (quiet).
static void dial_refused(struct net_dial *d, enum hello_refusal refusal, bool quiet)
{
	net_dialed done = d->done;
	void *ctx = d->ctx;
	uint64_t peer = d->hello.peer_id;
	bool told = d->hello.told != 0;

	if (!quiet)
		say_refused(d, refusal);
	dial_end(d, false);
	if (done != NULL)
		done(ctx, NULL, peer, refusal, told);
}

void net_dial_cancel(struct net_dial *dial)
{
	dial->done = NULL;
	dial_end(dial, false);
}

// Who may come in: members; anybody with the key while this node has no group yet, or knows no leader (then
// its configuration may be an old one, and a vote or a log from a newer member is what repairs it).
static enum hello_refusal admit(struct net_dial *d, const char **address)
{
	struct raft_cons *c = d->net->c;
	const struct raft_configuration *configuration = &c->raft.configuration;
	struct sockaddr_in parsed;
	raft_id leader = 0;
	const char *leader_address = NULL;

	*address = d->hello.peer_address;
	if (d->hello.kind == HELLO_SIDE)
		return HELLO_OK;
	if (d->net->accept == NULL)
		return HELLO_NOT_MEMBER;
	for (unsigned i = 0; i < configuration->n; i++) {
		if (configuration->servers[i].id != d->hello.peer_id)
			continue;
		if (strcmp(configuration->servers[i].address, d->hello.peer_address) != 0)
			return HELLO_OTHER_ADDRESS;
		return HELLO_OK;
	}
	if (!net_parse(d->hello.peer_address, &parsed))
		return HELLO_OTHER_ADDRESS;
	if (configuration->n == 0)
		return HELLO_OK;
	raft_leader(&c->raft, &leader, &leader_address);
	return leader == 0 ? HELLO_OK : HELLO_NOT_MEMBER;
}

static void dial_done(struct net_dial *d)
{
	struct raft_net *net = d->net;
	struct uv_tcp_s *tcp = d->tcp;
	net_dialed done = d->done;
	void *ctx = d->ctx;
	uint64_t peer = d->hello.peer_id;
	uint8_t kind = d->hello.kind;
	char address[HELLO_ADDRESS_BYTES];

	memcpy(address, d->hello.peer_address, sizeof(address));
	dial_end(d, true);
	if (done != NULL) {
		net->c->stats.connections_out++;
		done(ctx, tcp, peer, HELLO_OK, false);
		return;
	}
	net->c->stats.connections_in++;
	if (kind == HELLO_RAFT)
		net->accept(net->t, peer, address, (struct uv_stream_s *)tcp);
	else
		raft_peers_accepted(net->c, peer, tcp);
}

// --- the handshake on a socket -----------------------------------------------------------------------------

// A message of the handshake fits any socket's buffer; one that does not has a peer that does not read.
static bool send_out(struct net_dial *d, const struct hello_out *out)
{
	uv_buf_t buf = uv_buf_init((char *)(uintptr_t)out->bytes, out->len);

	return out->len == 0 ||
	       uv_try_write((struct uv_stream_s *)d->tcp, &buf, 1) == (int)out->len;
}

static void on_alloc(struct uv_handle_s *handle, size_t suggested, uv_buf_t *buf)
{
	struct net_dial *d = handle->data;

	*buf = uv_buf_init((char *)d->in, hello_need(&d->hello));
}

static void on_read(struct uv_stream_s *stream, ssize_t n, const uv_buf_t *buf)
{
	struct net_dial *d = stream->data;
	struct hello_out out;
	enum hello_step step;

	if (n == 0)
		return;
	if (n < 0) {
		dial_refused(d, HELLO_CLOSED, !d->inbound);
		return;
	}
	step = hello_input(&d->hello, (const uint8_t *)buf->base, (uint32_t)n, &out);
	if (step == HELLO_PROVEN) {
		const char *address;

		step = hello_admit(&d->hello, admit(d, &address), &out);
	}
	if (!send_out(d, &out) && step != HELLO_REFUSED) {
		dial_refused(d, HELLO_CLOSED, false);
		return;
	}
	if (step == HELLO_REFUSED)
		dial_refused(d, (enum hello_refusal)d->hello.refusal, false);
	else if (step == HELLO_DONE)
		dial_done(d);
}

static void on_timeout(struct uv_timer_s *timer)
{
	struct net_dial *d = timer->data;

	dial_refused(d, HELLO_TIMED_OUT, !d->inbound && d->hello.state == 0);
}

static struct net_dial *dial_new(struct raft_net *net, bool inbound, const char *address)
{
	struct net_dial *d = calloc(1, sizeof(*d));
	struct net_dial **list = inbound ? &net->accepts : &net->dials;

	if (d == NULL)
		return NULL;
	d->tcp = raft_calloc(1, sizeof(*d->tcp));
	if (d->tcp == NULL ||
		uv_tcp_init_ex(net->c->loop, d->tcp, inbound ? AF_UNSPEC : AF_INET) != 0) {
		raft_free(d->tcp);
		free(d);
		return NULL;
	}
	d->net = net;
	d->inbound = inbound;
	d->tcp->data = d;
	snprintf(d->address, sizeof(d->address), "%s", address);
	uv_timer_init(net->c->loop, &d->timer);
	d->timer.data = d;
	d->open_handles = 2;
	net->alive++;
	d->next = *list;
	d->link = list;
	if (d->next != NULL)
		d->next->link = &d->next;
	*list = d;
	if (inbound)
		net->accept_count++;
	return d;
}

static int set_options(struct uv_tcp_s *tcp)
{
	int fd;
	int error = uv_fileno((struct uv_handle_s *)tcp, &fd);

	return error != 0 ? error : net_set_options(fd);
}

static void on_connect(struct uv_connect_s *request, int status)
{
	struct net_dial *d = request->data;
	uint8_t nonce[HELLO_NONCE_BYTES];
	uint64_t peer = d->hello.peer_id;
	struct hello_out out;

	if (d->link == NULL)
		return;
	if (status != 0) {
		dial_refused(d, HELLO_CLOSED, true);
		return;
	}
	randombytes_buf(nonce, sizeof(nonce));
	hello_dial(&d->hello, &d->net->self, (enum hello_kind)d->hello.kind, peer, nonce, &out);
	uv_timer_start(&d->timer, on_timeout, NET_HELLO_MS, 0);
	if (!send_out(d, &out) ||
		uv_read_start((struct uv_stream_s *)d->tcp, on_alloc, on_read) != 0)
		dial_refused(d, HELLO_CLOSED, true);
}

struct net_dial *net_dial(struct raft_net *net, enum hello_kind kind, uint64_t peer_id,
	const char *address, net_dialed done, void *ctx)
{
	struct sockaddr_in to;
	struct net_dial *d;

	if (net->closing || !net_parse(address, &to))
		return NULL;
	d = dial_new(net, false, address);
	if (d == NULL)
		return NULL;
	d->hello.kind = (uint8_t)kind;
	d->hello.peer_id = peer_id;
	d->connect.data = d;
	if (set_options(d->tcp) != 0 || uv_tcp_connect(&d->connect, d->tcp,
						(const struct sockaddr *)&to, on_connect) != 0) {
		dial_end(d, false);
		return NULL;
	}
	d->done = done;
	d->ctx = ctx;
	uv_timer_start(&d->timer, on_timeout, NET_CONNECT_MS, 0);
	return d;
}

static void name_peer(struct net_dial *d)
{
	struct sockaddr_in from;
	int len = sizeof(from);
	char host[INET_ADDRSTRLEN] = "?";

	if (uv_tcp_getpeername(d->tcp, (struct sockaddr *)&from, &len) != 0)
		return;
	inet_ntop(AF_INET, &from.sin_addr, host, sizeof(host));
	snprintf(d->address, sizeof(d->address), "%s:%u", host, ntohs(from.sin_port));
}

void net_accept(struct raft_net *net, struct uv_stream_s *listener)
{
	uint8_t nonce[HELLO_NONCE_BYTES];
	struct net_dial *d;

	if (net->accept_count == NET_HALF_OPEN_MAX) {
		struct net_dial *oldest = net->accepts;

		while (oldest->next != NULL)
			oldest = oldest->next;
		dial_refused(oldest, HELLO_NO_ROOM, false);
	}
	d = dial_new(net, true, "?");
	if (d == NULL)
		return;
	randombytes_buf(nonce, sizeof(nonce));
	hello_accept(&d->hello, &net->self, &net->seen, nonce);
	if (uv_accept(listener, (struct uv_stream_s *)d->tcp) != 0 || set_options(d->tcp) != 0 ||
		uv_read_start((struct uv_stream_s *)d->tcp, on_alloc, on_read) != 0) {
		dial_end(d, false);
		return;
	}
	name_peer(d);
	uv_timer_start(&d->timer, on_timeout, NET_HELLO_MS, 0);
}

void net_end_dials(struct raft_net *net)
{
	while (net->accepts != NULL)
		dial_end(net->accepts, false);
	while (net->dials != NULL) {
		struct net_dial *d = net->dials;
		net_dialed done = d->done;
		void *ctx = d->ctx;

		dial_end(d, false);
		if (done != NULL)
			done(ctx, NULL, 0, HELLO_OK, false);
	}
}
