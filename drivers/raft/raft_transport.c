/* SPDX-License-Identifier: BSD-3-Clause */
// The library's transport: listening, its dials, closing; see raft_transport.h. Owns the listening socket.
// Context: the loop.
#include "raft_transport.h"

#include <assert.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"

static_assert(RAFT_REFUSALS == HELLO_REFUSAL_COUNT, "a counter for each reason");

const char *raft_cons_handshake_name(uint32_t reason)
{
	return hello_refusal_name((enum hello_refusal)reason);
}

static void on_connection(struct uv_stream_s *listener, int status)
{
	if (status != 0)
		LOG(LOG_WARN, "raft", "accept", "a connection could not be taken: %s",
			uv_strerror(status));
	else
		net_accept(listener->data, listener);
}

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
	net_put(net);
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
	int status = RAFT_NOCONNECTION;

	if (stream != NULL)
		status = 0;
	else if (refusal == HELLO_OK)
		status = RAFT_CANCELED;
	request->cb(request, (struct uv_stream_s *)stream, status);
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

static void on_close(struct raft_uv_transport *t, raft_uv_transport_close_cb cb)
{
	struct raft_net *net = t->impl;

	net->closing = true;
	net->close_cb = cb;
	net->alive++;
	close_listener(net);
	net_end_dials(net);
	net_put(net);
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
	net_end_dials(net);
	net_put(net);
}

enum raft_cons_refusal raft_transport_refusal(const struct raft_cons *c, const char **why)
{
	*why = c->net->why;
	return c->net->refusal;
}
