/* SPDX-License-Identifier: BSD-3-Clause */
// Listening, dialling, time-outs and handshakes; see raft_transport.h. Owns the listening socket and every
// connection until its handshake is done. Context: the loop.
#include "raft_transport.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"

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

struct raft_net {
	struct raft_cons *c;
	struct raft_uv_transport *t;
	struct hello_self self;
	struct hello_seen seen;
	struct uv_tcp_s *listener;
	raft_uv_accept_cb accept;
	raft_uv_transport_close_cb close_cb;
	struct net_dial *dials, *accepts;
	uint32_t accept_count;
	uint32_t alive;  // dials not freed yet, and the listener
	bool closing, discarded;
	enum raft_cons_refusal refusal;  // why listen failed
	char why[160];
};

static_assert(RAFT_REFUSALS == HELLO_REFUSAL_COUNT, "a counter for each reason");

const char *raft_cons_refusal_name(uint32_t reason)
{
	return hello_refusal_name((enum hello_refusal)reason);
}

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

static void put_alive(struct raft_net *net)
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
	put_alive(net);
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

// Refused by us or by the peer, or not reached (quiet).
static void dial_refused(struct net_dial *d, enum hello_refusal refusal, bool quiet)
{
	struct raft_cons *c = d->net->c;
	net_dialed done = d->done;
	void *ctx = d->ctx;
	uint64_t peer = d->hello.peer_id;
	bool told = d->hello.told != 0;

	if (!quiet) {
		c->stats.handshakes_refused++;
		c->stats.refused[refusal]++;
		LOG(LOG_WARN, "raft", "handshake_refused", "%s %s, node %llu: %s%s",
			d->inbound ? "from" : "to", d->address, (unsigned long long)peer,
			told ? "the other side says: " : "", hello_refusal_name(refusal));
	}
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

static void on_connection(struct uv_stream_s *listener, int status)
{
	struct raft_net *net = listener->data;
	uint8_t nonce[HELLO_NONCE_BYTES];
	struct net_dial *d;

	if (status != 0) {
		LOG(LOG_WARN, "raft", "accept", "a connection could not be taken: %s",
			uv_strerror(status));
		return;
	}
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

// --- the library's side ------------------------------------------------------------------------------------

static int on_init(struct raft_uv_transport *t, raft_id id, const char *address)
{
	return 0;
}

static int refuse_listen(struct raft_net *net, const char *address, int error)
{
	net->refusal = error == UV_EADDRINUSE || error == UV_EADDRNOTAVAIL || error == UV_EINVAL ||
				       error == UV_EACCES
			       ? RAFT_REFUSED_ADDRESS
			       : RAFT_REFUSED_FAULT;
	if (error == UV_EADDRINUSE)
		snprintf(net->why, sizeof(net->why), "%s is in use by another process", address);
	else if (error == UV_EADDRNOTAVAIL)
		snprintf(net->why, sizeof(net->why), "%s is not an address of this machine",
			address);
	else if (error == UV_EINVAL)
		snprintf(net->why, sizeof(net->why), "%s is not an IPv4 address with a port",
			address);
	else
		snprintf(net->why, sizeof(net->why), "%s: %s", address, uv_strerror(error));
	snprintf(net->t->errmsg, sizeof(net->t->errmsg), "%s", net->why);
	return RAFT_IOERR;
}

static void on_listener_closed(struct uv_handle_s *handle)
{
	struct raft_net *net = handle->data;

	free(handle);
	put_alive(net);
}

static void close_listener(struct raft_net *net)
{
	if (net->listener == NULL)
		return;
	uv_close((struct uv_handle_s *)net->listener, on_listener_closed);
	net->listener = NULL;
}

static int on_listen(struct raft_uv_transport *t, raft_uv_accept_cb accept)
{
	struct raft_net *net = t->impl;
	const struct raft_cons_params *params = &net->c->params;
	const char *address = params->bind[0] != '\0' ? params->bind : params->address;
	struct sockaddr_in at;
	int error;

	net->accept = accept;
	net->refusal = RAFT_REFUSED_NOT;
	if (params->address[0] == '\0')
		return 0;
	if (!net_parse(address, &at))
		return refuse_listen(net, address, UV_EINVAL);
	net->listener = calloc(1, sizeof(*net->listener));
	if (net->listener == NULL)
		return RAFT_NOMEM;
	error = uv_tcp_init(net->c->loop, net->listener);
	if (error != 0) {
		free(net->listener);
		net->listener = NULL;
		return refuse_listen(net, address, error);
	}
	net->listener->data = net;
	net->alive++;
	error = uv_tcp_bind(net->listener, (const struct sockaddr *)&at, 0);
	if (error == 0)
		error = uv_listen((struct uv_stream_s *)net->listener, NET_BACKLOG, on_connection);
	if (error == 0)
		return 0;
	close_listener(net);
	return refuse_listen(net, address, error);
}

static void on_library_dialed(
	void *ctx, struct uv_tcp_s *stream, uint64_t peer_id, enum hello_refusal refusal, bool told)
{
	struct raft_uv_connect *request = ctx;

	request->cb(request, (struct uv_stream_s *)stream, stream != NULL ? 0 : RAFT_NOCONNECTION);
}

static int on_dial(struct raft_uv_transport *t, struct raft_uv_connect *request, raft_id id,
	const char *address, raft_uv_connect_cb cb)
{
	struct raft_net *net = t->impl;

	request->cb = cb;
	if (net_dial(net, HELLO_RAFT, id, address, on_library_dialed, request) == NULL)
		return RAFT_NOCONNECTION;
	return 0;
}

// Ends every handshake; the library hears that its dials are cancelled.
static void end_dials(struct raft_net *net)
{
	while (net->accepts != NULL)
		dial_end(net->accepts, false);
	while (net->dials != NULL) {
		struct net_dial *d = net->dials;
		struct raft_uv_connect *request = d->done == on_library_dialed ? d->ctx : NULL;
		net_dialed done = d->done;
		void *ctx = d->ctx;

		dial_end(d, false);
		if (request != NULL)
			request->cb(request, NULL, RAFT_CANCELED);
		else if (done != NULL)
			done(ctx, NULL, 0, HELLO_CLOSED, false);
	}
}

static void on_close(struct raft_uv_transport *t, raft_uv_transport_close_cb cb)
{
	struct raft_net *net = t->impl;

	net->closing = true;
	net->close_cb = cb;
	net->alive++;
	close_listener(net);
	end_dials(net);
	put_alive(net);
}

int raft_transport_open(struct raft_cons *c, struct raft_uv_transport *t)
{
	struct raft_net *net;

	if (sodium_init() < 0)
		return RAFT_IOERR;
	net = calloc(1, sizeof(*net));
	if (net == NULL)
		return RAFT_NOMEM;
	net->c = c;
	net->t = t;
	net->self = (struct hello_self){.node_id = c->params.node_id,
		.cluster_id = c->params.cluster_id,
		.authenticated = c->params.authenticated};
	memcpy(net->self.key, c->params.key, sizeof(net->self.key));
	memcpy(net->self.address, c->params.address, sizeof(net->self.address) - 1);
	*t = (struct raft_uv_transport){.impl = net,
		.init = on_init,
		.listen = on_listen,
		.connect = on_dial,
		.close = on_close};
	c->net = net;
	return 0;
}

void raft_transport_discard(struct raft_cons *c)
{
	struct raft_net *net = c->net;

	if (net == NULL)
		return;
	c->net = NULL;
	net->closing = true;
	net->discarded = true;
	net->alive++;
	close_listener(net);
	end_dials(net);
	put_alive(net);
}

enum raft_cons_refusal raft_transport_refusal(const struct raft_cons *c, const char **why)
{
	*why = c->net->why;
	return c->net->refusal;
}
