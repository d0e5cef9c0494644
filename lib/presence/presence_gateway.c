/* SPDX-License-Identifier: BSD-3-Clause */
// Gateway incarnations: registration, expiry, end, and the sweep of what an ended one leaves behind.
// Control core.
//
// An entry is free again when three things are over: its routes are swept, a grace period has passed
// since no worker could find it anew, and its end was taken note of.
#include "presence_pvt.h"

#include <errno.h>
#include <string.h>

#define SCAN_PER_STEP 64u  // closed slots looked at for the price of one step

static uint64_t id_only_hash(uint64_t gateway)
{
	return id_hash(id_view_of(&gateway, sizeof(gateway)));
}

uint32_t presence_gateway_find(const struct presence *p, uint64_t gateway, uint64_t boot)
{
	struct presence_view view;

	presence_view(p, &view);
	return presence_gateway_of(&view, gateway, boot);
}

static uint32_t find_id(const struct presence *p, uint64_t gateway)
{
	struct index_cursor cur;
	uint32_t i;

	index_first(&p->gateway_ids, id_only_hash(gateway), &cur);
	while ((i = index_next(&p->gateway_ids, &cur)) != 0)
		if (p->gateway[i].gateway == gateway)
			return i;
	return 0;
}

// --- lists of entries -------------------------------------------------------------------------------

static void live_unlink(struct presence *p, uint32_t i)
{
	struct gateway_control *c = &p->control[i];

	if (c->prev != 0)
		p->control[c->prev].next = c->next;
	else
		p->live_head = c->next;
	if (c->next != 0)
		p->control[c->next].prev = c->prev;
	else
		p->live_tail = c->prev;
}

static void live_append(struct presence *p, uint32_t i)
{
	struct gateway_control *c = &p->control[i];

	c->prev = p->live_tail;
	c->next = 0;
	if (p->live_tail != 0)
		p->control[p->live_tail].next = i;
	else
		p->live_head = i;
	p->live_tail = i;
}

static void fifo_append(struct presence *p, uint32_t *head, uint32_t *tail, uint32_t i)
{
	p->control[i].next = 0;
	if (*head == 0)
		*head = i;
	else
		p->control[*tail].next = i;
	*tail = i;
}

// --- up and down ------------------------------------------------------------------------------------

static void move_to(struct presence_gateway *g, struct net_addr addr)
{
	uint64_t word;

	_Static_assert(sizeof(addr) == sizeof(word), "an address is one store");
	memcpy(&word, &addr, sizeof(word));
	__atomic_store_n((uint64_t *)&g->addr, word, __ATOMIC_RELEASE);
}

// Takes an entry and fills it in; nobody can find it yet. Returns: index, 0 when the table is full.
static uint32_t entry_take(struct presence *p)
{
	uint32_t i = p->free_head;

	if (i != 0)
		p->free_head = p->control[i].next;
	else if (p->gateway_top <= p->limits.gateways)
		i = p->gateway_top++;
	return i;
}

static int entry_give_back(struct presence *p, uint32_t i)
{
	p->control[i].state = GATEWAY_FREE;
	fifo_append(p, &p->free_head, &p->free_tail, i);
	return -ENOSPC;
}

uint64_t presence_gateway_live(const struct presence *p, uint64_t gateway, struct net_addr *addr)
{
	const uint32_t i = find_id(p, gateway);

	*addr = (struct net_addr){0};
	if (i == 0)
		return 0;
	*addr = p->gateway[i].addr;
	return (uint64_t)atomic_load_explicit(&p->gateway[i].use, memory_order_relaxed) << 32 | i;
}

int presence_gateway_up(struct presence *p, uint64_t gateway, uint64_t boot, struct net_addr addr,
	uint16_t mtu, uint64_t now_ns)
{
	uint32_t i = presence_gateway_find(p, gateway, boot);
	struct presence_gateway *g;

	if (i != 0) {
		g = &p->gateway[i];
		if (!net_addr_equal(g->addr, addr))
			move_to(g, addr);
		presence_gateway_heard(p, i, now_ns);
		return (int)i;
	}
	i = find_id(p, gateway);
	if (i != 0)
		presence_gateway_down(p, i, now_ns);
	i = entry_take(p);
	if (i == 0)
		return -ENOSPC;
	g = &p->gateway[i];
	g->gateway = gateway;
	g->boot = boot;
	g->mtu = mtu;
	move_to(g, addr);
	p->control[i] = (struct gateway_control){
		.presence = p,
		.next_expected = 1,
		.heard_ns = now_ns,
		.state = GATEWAY_LIVE,
	};
	if (index_insert(&p->gateway_ids, id_only_hash(gateway), i) != 0)
		return entry_give_back(p, i);
	atomic_fetch_add_explicit(&g->use, 1, memory_order_relaxed);
	atomic_store_explicit(&g->alive, true, memory_order_release);
	if (index_insert(&p->gateway_index, presence_gateway_hash(gateway, boot), i) != 0) {
		atomic_store_explicit(&g->alive, false, memory_order_release);
		index_remove(&p->gateway_ids, id_only_hash(gateway), i);
		return entry_give_back(p, i);
	}
	live_append(p, i);
	p->gateways++;
	return (int)i;
}

static void grace_over(void *owner, void *ptr)
{
	struct gateway_control *c = ptr;

	(void)owner;
	c->grace_over = true;
}

void presence_gateway_down(struct presence *p, uint32_t index, uint64_t now_ns)
{
	struct presence_gateway *g;
	struct gateway_control *c;

	(void)now_ns;
	if (index == 0 || index >= p->gateway_top || p->control[index].state != GATEWAY_LIVE)
		return;
	g = &p->gateway[index];
	c = &p->control[index];
	// Every route of this incarnation is invalid with this store.
	atomic_store_explicit(&g->alive, false, memory_order_release);
	index_remove(&p->gateway_index, presence_gateway_hash(g->gateway, g->boot), index);
	index_remove(&p->gateway_ids, id_only_hash(g->gateway), index);
	live_unlink(p, index);
	p->gateways--;
	p->gateways_sweeping++;
	p->sessions -= c->sessions;
	c->sessions = 0;
	c->state = GATEWAY_ENDED;
	fifo_append(p, &p->swept_head, &p->swept_tail, index);
	c->ended_next = 0;
	if (p->ended_head == 0)
		p->ended_head = index;
	else
		p->control[p->ended_tail].ended_next = index;
	p->ended_tail = index;
	rcu_retire(p->retire, grace_over, p, c);
}

uint32_t presence_gateway_ended(const struct presence *p, uint32_t *use)
{
	if (p->ended_head != 0)
		*use = atomic_load_explicit(&p->gateway[p->ended_head].use, memory_order_relaxed);
	return p->ended_head;
}

void presence_gateway_ended_done(struct presence *p, uint32_t index)
{
	assert(index != 0 && index == p->ended_head);
	p->ended_head = p->control[index].ended_next;
	p->control[index].told = true;
}

void presence_gateway_heard(struct presence *p, uint32_t index, uint64_t now_ns)
{
	struct gateway_control *c = &p->control[index];

	if (c->state != GATEWAY_LIVE)
		return;
	c->heard_ns = now_ns;
	live_unlink(p, index);
	live_append(p, index);
}

uint32_t presence_gateway_expire(struct presence *p, uint64_t before_ns, uint64_t now_ns)
{
	uint32_t ended = 0;

	while (p->live_head != 0 && p->control[p->live_head].heard_ns < before_ns) {
		presence_gateway_down(p, p->live_head, now_ns);
		ended++;
	}
	return ended;
}

bool presence_gateway_info(
	const struct presence *p, uint32_t index, struct presence_gateway_info *info)
{
	const struct presence_gateway *g;
	const struct gateway_control *c;

	if (index == 0 || index >= p->gateway_top || p->control[index].state == GATEWAY_FREE)
		return false;
	g = &p->gateway[index];
	c = &p->control[index];
	*info = (struct presence_gateway_info){
		.gateway = g->gateway,
		.boot = g->boot,
		.addr = g->addr,
		.sessions = c->sessions,
		.next_expected = c->next_expected,
		.heard_ns = c->heard_ns,
		.mtu = g->mtu,
		.alive = c->state == GATEWAY_LIVE,
	};
	return true;
}

int presence_stream_take(struct presence *p, uint32_t gateway, uint64_t stream_seq)
{
	struct gateway_control *c = &p->control[gateway];

	if (stream_seq == 0 || stream_seq > c->next_expected || stream_seq == UINT64_MAX)
		return -EILSEQ;
	if (stream_seq < c->next_expected)
		return 0;
	c->next_expected++;
	return 1;
}

// --- sweep ------------------------------------------------------------------------------------------

// Ends sessions of one ended incarnation. Returns: steps used; sets `swept` at the end.
static uint32_t sweep_some(struct presence *p, uint32_t index, uint32_t steps) CONTROL_ONLY;
static uint32_t sweep_some(struct presence *p, uint32_t index, uint32_t steps)
{
	struct gateway_control *c = &p->control[index];
	struct slot_dir *dir = atomic_load_explicit(&c->dir, memory_order_relaxed);
	const uint32_t slots = dir == NULL ? 0 : dir->blocks * SLOT_BLOCK;
	uint32_t done = 1, looked = 0;

	while (c->sweep < slots && done < steps) {
		struct slot_block *b = atomic_load_explicit(
			&dir->block[c->sweep / SLOT_BLOCK], memory_order_relaxed);
		_Atomic uint64_t *cell;

		if (b == NULL) {
			c->sweep += SLOT_BLOCK;
			done++;
			continue;
		}
		cell = &b->slot[c->sweep++ % SLOT_BLOCK];
		if ((atomic_load_explicit(cell, memory_order_relaxed) & SLOT_OPEN) != 0) {
			presence_slot_end(p, index, cell);
			done++;
		} else if (++looked % SCAN_PER_STEP == 0) {
			done++;
		}
	}
	c->swept = c->sweep >= slots;
	return done;
}

uint32_t presence_gateways_sweep(struct presence *p, uint32_t steps)
{
	uint32_t done = 0, before = 0, next;

	for (uint32_t i = p->swept_head; i != 0 && done < steps; i = next) {
		struct gateway_control *c = &p->control[i];

		next = c->next;
		if (!c->swept)
			done += sweep_some(p, i, steps - done);
		if (!c->swept || !c->grace_over || !c->told) {
			before = i;
			continue;
		}
		if (before != 0)
			p->control[before].next = next;
		else
			p->swept_head = next;
		if (p->swept_tail == i)
			p->swept_tail = before;
		presence_slots_free(p, i);
		c->state = GATEWAY_FREE;
		fifo_append(p, &p->free_head, &p->free_tail, i);
		p->gateways_sweeping--;
		done++;
	}
	return done;
}
