/* SPDX-License-Identifier: BSD-3-Clause */
// Settings that change while the node runs: the control core keeps the last ones and gives each worker a copy
// through its ring; a worker owns the copy it acts on. Control core; node_settings_take: worker.
#include "node_control_pvt.h"

#include <errno.h>

#define QUARANTINE_MARGIN_NS (UINT64_C(5) * 1000000000u)

_Static_assert(sizeof(struct node_settings) <= sizeof(((struct node_reply *)0)->body),
	"settings fit an item of the ring");

void node_settings_of(const struct node_params *p, struct node_settings *settings)
{
	*settings = (struct node_settings){
		.keys = p->keys,
		.push_timeout_ns = p->delivery.push_timeout_ns,
		.retry_max_ns = p->delivery.retry_max_ns,
		.receipt_timeout_ns = p->delivery.receipt_timeout_ns,
		.deadline_ns = p->fanout.deadline_ns,
		.deadline_max_ns = p->fanout.deadline_max_ns,
		.tag_ttl_ns = p->tag_ttl_ns,
	};
}

uint64_t node_quarantine_ns(const struct node_settings *s)
{
	return s->deadline_max_ns + s->retry_max_ns + QUARANTINE_MARGIN_NS;
}

static bool keys_valid(const struct wire_keys *keys, bool wanted)
{
	if (!wanted)
		return keys->count == 0;
	return keys->count >= 1 && keys->count <= WIRE_KEYS_MAX && keys->send < keys->count;
}

int node_control_reload(struct node *node, const struct node_settings *s)
{
	struct node_control *c = node->control;

	if (!keys_valid(&s->keys, node->params.keys.count != 0) || s->push_timeout_ns == 0 ||
		s->retry_max_ns < s->push_timeout_ns || s->receipt_timeout_ns == 0 ||
		s->deadline_ns == 0 || s->deadline_ns > s->deadline_max_ns ||
		s->deadline_max_ns > node->params.window_age_ns)
		return -EINVAL;
	// Before any message has more time to live.
	presence_quarantine(node->presence, node_quarantine_ns(s));
	c->settings = *s;
	c->settings_due = (1u << node->params.workers) - 1;
	node_settings_step(node);
	return 0;
}

bool node_control_reloaded(const struct node *node)
{
	return node->control->settings_due == 0;
}

uint32_t node_settings_step(struct node *node)
{
	struct node_control *c = node->control;
	struct node_reply reply = {.kind = NODE_REP_SETTINGS, .bytes = sizeof(c->settings)};
	uint32_t sent = 0;

	if (c->settings_due == 0)
		return 0;
	memcpy(reply.body, &c->settings, sizeof(c->settings));
	for (uint32_t w = 0; w < node->params.workers; w++) {
		if (!(c->settings_due & 1u << w) || !node_control_reply(node, w, &reply))
			continue;
		c->settings_due &= ~(1u << w);
		sent++;
	}
	return sent;
}

void node_settings_take(struct node_worker *w, const struct node_settings *s)
{
	w->keys = s->keys;
	delivery_times(w->delivery, s->push_timeout_ns, s->retry_max_ns, s->receipt_timeout_ns);
	fanout_deadlines(w->fanout, s->deadline_ns, s->deadline_max_ns);
}
