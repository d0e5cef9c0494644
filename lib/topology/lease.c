/* SPDX-License-Identifier: BSD-3-Clause */
// Leases, as pure state machines of their holder and of the controller that grants them.
#include "lease.h"

#include <errno.h>
#include <string.h>

uint64_t lease_term_ns(const struct lease_config *config)
{
	const uint64_t drift = (config->lease_ns / 1000 + 1) * config->drift_permille;

	return config->lease_ns + drift + config->margin_ns;
}

// Time as it only goes: up.
static uint64_t forward(uint64_t *latest, uint64_t now_ns)
{
	if (now_ns > *latest)
		*latest = now_ns;
	return *latest;
}

// --- holder -------------------------------------------------------------------------------------------------

void lease_holder_init(struct lease_holder *h, uint64_t first_id)
{
	memset(h, 0, sizeof(*h));
	h->last_id = first_id;
}

void lease_holder_alone(struct lease_holder *h, bool alone)
{
	h->alone = alone;
}

uint64_t lease_ask(struct lease_holder *h, uint64_t now_ns)
{
	const uint64_t id = ++h->last_id;

	h->request[id % LEASE_REQUESTS].id = id;
	h->request[id % LEASE_REQUESTS].sent_ns = forward(&h->now_ns, now_ns);
	return id;
}

// A grant whose commit is applied becomes usable.
static void promote(struct lease_holder *h, uint64_t applied_commit)
{
	if (h->next_until_ns == 0 || applied_commit < h->next_commit)
		return;
	if (h->next_until_ns > h->until_ns)
		h->until_ns = h->next_until_ns;
	h->next_until_ns = 0;
	h->next_commit = 0;
}

int lease_granted(struct lease_holder *h, const struct lease_config *config,
	const struct lease_grant *grant, uint64_t applied_commit, uint64_t now_ns)
{
	const uint32_t at = (uint32_t)(grant->request_id % LEASE_REQUESTS);
	uint64_t until;

	forward(&h->now_ns, now_ns);
	if (grant->request_id == 0 || h->request[at].id != grant->request_id ||
		grant->controller_term < h->controller_term)
		return -ESTALE;
	h->controller_term = grant->controller_term;
	until = h->request[at].sent_ns + config->lease_ns;
	promote(h, applied_commit);
	// Of two that wait, the one with the later commit covers both: it is never used too early.
	if (grant->commit > h->next_commit)
		h->next_commit = grant->commit;
	if (until > h->next_until_ns)
		h->next_until_ns = until;
	promote(h, applied_commit);
	return 0;
}

bool lease_held(struct lease_holder *h, uint64_t applied_commit, uint64_t now_ns)
{
	const uint64_t now = forward(&h->now_ns, now_ns);

	promote(h, applied_commit);
	return h->alone || now < h->until_ns;
}

uint64_t lease_rest_ns(const struct lease_holder *h, uint64_t now_ns)
{
	const uint64_t now = now_ns > h->now_ns ? now_ns : h->now_ns;

	if (h->alone)
		return UINT64_MAX;
	return now < h->until_ns ? h->until_ns - now : 0;
}

void lease_holder_drop(struct lease_holder *h)
{
	h->until_ns = h->next_until_ns = h->next_commit = 0;
	h->alone = false;
	memset(h->request, 0, sizeof(h->request));
}

// --- controller ---------------------------------------------------------------------------------------------

void lease_controller_start(struct lease_controller *c, uint64_t term, uint64_t now_ns)
{
	c->term = term;
	c->count = 0;
	c->since_ns = forward(&c->now_ns, now_ns);
	memset(c->taken_ns, 0, sizeof(c->taken_ns));
	memset(c->vacated, 0, sizeof(c->vacated));
}

void lease_controller_stop(struct lease_controller *c)
{
	c->term = 0;
	c->count = 0;
}

static struct lease_node *find(struct lease_controller *c, uint64_t id, bool make)
{
	uint32_t low = 0, high = c->count;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;

		if (c->node[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < c->count && c->node[low].id == id)
		return &c->node[low];
	if (!make || c->count == TOPOLOGY_NODES_MAX)
		return NULL;
	memmove(&c->node[low + 1], &c->node[low], (c->count - low) * sizeof(c->node[0]));
	c->count++;
	c->node[low] = (struct lease_node){.id = id};
	return &c->node[low];
}

bool lease_controller_grant(struct lease_controller *c, uint64_t node, uint64_t request_id,
	uint64_t commit, uint64_t now_ns, struct lease_grant *grant)
{
	const uint64_t now = forward(&c->now_ns, now_ns);
	struct lease_node *const n = c->term == 0 ? NULL : find(c, node, true);

	if (n == NULL || n->held_back)
		return false;
	n->granted_ns = now;
	*grant = (struct lease_grant){
		.request_id = request_id,
		.controller_term = c->term,
		.commit = commit > n->commit ? commit : n->commit,
	};
	return true;
}

int lease_controller_hold_back(struct lease_controller *c, uint64_t node)
{
	struct lease_node *const n = find(c, node, true);

	if (n == NULL)
		return -ENOSPC;
	n->held_back = true;
	return 0;
}

void lease_controller_release(struct lease_controller *c, uint64_t node, uint64_t commit)
{
	struct lease_node *const n = find(c, node, false);

	if (n == NULL)
		return;
	n->held_back = false;
	if (commit > n->commit)
		n->commit = commit;
}

uint64_t lease_controller_over_ns(
	const struct lease_controller *c, const struct lease_config *config, uint64_t node)
{
	const struct lease_node *const n = find((struct lease_controller *)c, node, false);
	uint64_t from = c->since_ns;  // grants of the controller before

	if (c->term == 0)
		return UINT64_MAX;
	if (n != NULL && n->granted_ns > from)
		from = n->granted_ns;
	return from + lease_term_ns(config);
}

bool lease_controller_over(struct lease_controller *c, const struct lease_config *config,
	uint64_t node, uint64_t now_ns)
{
	return forward(&c->now_ns, now_ns) >= lease_controller_over_ns(c, config, node);
}

bool lease_controller_alive(struct lease_controller *c, const struct lease_config *config,
	uint64_t node, uint64_t now_ns)
{
	return c->term != 0 && !lease_controller_over(c, config, node, now_ns);
}

void lease_controller_seen(struct lease_controller *c, const struct topology *t, uint64_t now_ns)
{
	const uint64_t now = forward(&c->now_ns, now_ns);

	for (uint32_t s = 1; s <= TOPOLOGY_SLOTS_MAX; s++) {
		const bool led = s > t->slot_count || t->slot[s - 1].leader != 0;

		if (led)
			c->vacated[s] = false;
		if (led || c->taken_ns[s] == 0)
			c->taken_ns[s] = led ? 0 : now == 0 ? 1 : now;
	}
}

void lease_controller_vacated(struct lease_controller *c, uint32_t slot)
{
	if (slot <= TOPOLOGY_SLOTS_MAX && c->taken_ns[slot] != 0)
		c->vacated[slot] = true;
}

bool lease_controller_free(struct lease_controller *c, const struct lease_config *config,
	uint32_t slot, uint64_t now_ns)
{
	const uint64_t now = forward(&c->now_ns, now_ns);

	if (c->term == 0 || slot > TOPOLOGY_SLOTS_MAX || c->taken_ns[slot] == 0)
		return false;
	return c->vacated[slot] || now >= c->taken_ns[slot] + lease_term_ns(config);
}
