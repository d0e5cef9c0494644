/* SPDX-License-Identifier: BSD-3-Clause */
// One presence with small limits for the tests of this folder.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "presence_pvt.h"

#define SECOND UINT64_C(1000000000)

struct fixture {
	struct rcu_retire retire;
	struct presence *p;
	struct presence_view view;
	char name[32];
};

static inline struct fixture *fixture_new(uint32_t uids, uint32_t gateways, uint32_t slots)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct presence_limits limits = {
		.uids = uids,
		.gateways = gateways,
		.sessions_per_gateway = slots,
		.uid_quarantine_ns = SECOND,
	};

	rcu_retire_init(&f->retire);
	f->p = presence_create(&limits, &f->retire);
	assert_non_null(f->p);
	presence_view(f->p, &f->view);
	return f;
}

static inline void fixture_free(struct fixture *f)
{
	presence_destroy(f->p);
	free(f);
}

static inline struct id_view uid_of(struct fixture *f, uint32_t n)
{
	const int len = snprintf(f->name, sizeof(f->name), "user-%u", n);

	return id_view_of(f->name, (uint8_t)len);
}

CONTROL_ONLY static inline int gateway_up(
	struct fixture *f, uint64_t id, uint64_t boot, uint64_t now_ns)
{
	return presence_gateway_up(f->p, id, boot,
		(struct net_addr){.ip = 0x7f000001, .port = (uint16_t)(7000 + id)}, 1500, now_ns);
}

// Routes a worker would push to: those of live sessions.
static inline uint32_t routes_seen(struct fixture *f, uint32_t uid, uint64_t *route)
{
	const uint64_t word = presence_route(&f->view, uid);
	const struct presence_more *m;
	uint32_t n = 0;

	if (word == 0)
		return 0;
	m = (word & ROUTE_MORE) != 0 ? presence_more_of(&f->view, uid) : NULL;
	for (uint32_t i = 0; i < (m == NULL ? 1 : m->count); i++) {
		const uint64_t r = m == NULL ? word : m->route[i];

		if (presence_session_live(&f->view, route_gateway(r), route_slot(r), route_gen(r)))
			route[n++] = route_session(r);
	}
	return n;
}

// Lets housekeeping, grace periods and the notice of ended incarnations come to rest.
CONTROL_ONLY static inline void settle(struct fixture *f, uint64_t now_ns)
{
	uint32_t use, i, work;

	do {
		work = presence_step(f->p, 1000, now_ns) + rcu_reclaim(&f->retire);
		while ((i = presence_gateway_ended(f->p, &use)) != 0)
			presence_gateway_ended_done(f->p, i);
	} while (work != 0);
}
