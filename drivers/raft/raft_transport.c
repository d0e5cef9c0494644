/* SPDX-License-Identifier: BSD-3-Clause */
// Listening and connecting for the library: its own TCP, and nothing at all for a node without address.
// Context: the loop.
#include "raft_pvt.h"

#include <stdlib.h>

struct raft_net {
	struct raft_uv_transport *t;
	int (*listen)(struct raft_uv_transport *t, raft_uv_accept_cb cb);
};

static int listen_nowhere(struct raft_uv_transport *t, raft_uv_accept_cb cb)
{
	(void)t;
	(void)cb;
	return 0;
}

int raft_transport_open(struct raft_cons *c, struct raft_uv_transport *t)
{
	struct raft_net *net = calloc(1, sizeof(*net));
	int rc;

	if (net == NULL)
		return RAFT_NOMEM;
	rc = raft_uv_tcp_init(t, c->loop);
	if (rc == 0 && c->params.bind[0] != 0)
		rc = raft_uv_tcp_set_bind_address(t, c->params.bind);
	if (rc != 0) {
		free(net);
		return rc;
	}
	net->t = t;
	net->listen = t->listen;
	if (c->params.address[0] == 0)
		t->listen = listen_nowhere;
	c->net = net;
	return 0;
}

void raft_transport_discard(struct raft_cons *c)
{
	if (c->net == NULL)
		return;
	raft_uv_tcp_close(c->net->t);
	free(c->net);
	c->net = NULL;
}
