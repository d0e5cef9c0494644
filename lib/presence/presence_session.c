/* SPDX-License-Identifier: BSD-3-Clause */
// Sessions: the slots of each gateway incarnation and the routes they give a UID. Written by the control
// core.
//
// A UID's routes are its word alone, or, when there are several, an immutable block of all of them. The
// block is published before the word names it (ROUTE_MORE) and stays for a grace period after the word
// stopped naming it, so that whatever word a reader holds, it finds every session that stayed open.
#include "presence_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// --- slots ------------------------------------------------------------------------------------------

static void free_any(void *owner, void *ptr)
{
	(void)owner;
	free(ptr);
}

// Makes room for block number `block`. Returns: the directory, NULL when there is no memory.
static struct slot_dir *dir_grow(struct presence *p, uint32_t gateway, uint32_t block)
{
	struct gateway_control *c = &p->control[gateway];
	struct slot_dir *old = atomic_load_explicit(&c->dir, memory_order_relaxed);
	struct slot_dir *dir;
	uint32_t blocks = old == NULL ? 4 : old->blocks;

	if (old != NULL && block < old->blocks)
		return old;
	while (blocks <= block)
		blocks *= 2;
	dir = calloc(1, sizeof(*dir) + (size_t)blocks * sizeof(dir->block[0]));
	if (dir == NULL)
		return NULL;
	dir->blocks = blocks;
	for (uint32_t i = 0; old != NULL && i < old->blocks; i++)
		atomic_store_explicit(&dir->block[i],
			atomic_load_explicit(&old->block[i], memory_order_relaxed),
			memory_order_relaxed);
	rcu_publish(&c->dir, dir);
	if (old != NULL)
		rcu_retire(p->retire, free_any, p, old);
	return dir;
}

static _Atomic uint64_t *slot_find(const struct presence *p, uint32_t gateway, uint32_t slot)
{
	struct slot_dir *dir = atomic_load_explicit(&p->control[gateway].dir, memory_order_relaxed);
	struct slot_block *b;

	if (dir == NULL || slot / SLOT_BLOCK >= dir->blocks)
		return NULL;
	b = atomic_load_explicit(&dir->block[slot / SLOT_BLOCK], memory_order_relaxed);
	return b == NULL ? NULL : &b->slot[slot % SLOT_BLOCK];
}

static _Atomic uint64_t *slot_make(struct presence *p, uint32_t gateway, uint32_t slot)
{
	_Atomic uint64_t *cell = slot_find(p, gateway, slot);
	struct slot_block *b;
	struct slot_dir *dir;

	if (cell != NULL)
		return cell;
	if (p->blocks >= p->blocks_max)
		return NULL;
	dir = dir_grow(p, gateway, slot / SLOT_BLOCK);
	if (dir == NULL)
		return NULL;
	b = aligned_alloc(64, sizeof(*b));
	if (b == NULL)
		return NULL;
	memset(b, 0, sizeof(*b));
	p->blocks++;
	rcu_publish(&dir->block[slot / SLOT_BLOCK], b);
	return &b->slot[slot % SLOT_BLOCK];
}

// Frees the slots of an incarnation no worker can reach any more.
void presence_slots_free(struct presence *p, uint32_t gateway)
{
	struct slot_dir *dir = atomic_load_explicit(&p->control[gateway].dir, memory_order_relaxed);

	if (dir == NULL)
		return;
	for (uint32_t i = 0; i < dir->blocks; i++) {
		struct slot_block *b = atomic_load_explicit(&dir->block[i], memory_order_relaxed);

		p->blocks -= b != NULL;
		free(b);
	}
	free(dir);
	atomic_store_explicit(&p->control[gateway].dir, NULL, memory_order_relaxed);
}

// --- routes of a UID --------------------------------------------------------------------------------

static void more_free(void *owner, void *ptr)
{
	struct presence *p = owner;

	p->blocks_more--;
	free(ptr);
}

// A grace period after the word stopped naming the block: nobody holds such a word any more.
static void more_unlink(void *owner, void *ptr)
{
	struct presence *p = owner;
	struct presence_more *m = ptr;

	if (atomic_load_explicit(&p->more[m->uid], memory_order_relaxed) == m)
		rcu_publish(&p->more[m->uid], NULL);
	m->next = p->dead;
	p->dead = m;
}

// Hands unlinked blocks over for freeing. Apart from more_unlink, which runs inside a reclamation.
void presence_more_retire(struct presence *p)
{
	struct presence_more *m;

	while ((m = p->dead) != NULL) {
		p->dead = m->next;
		rcu_retire(p->retire, more_free, p, m);
	}
}

// Gives up a block the pointer of its UID no longer names. A leaving one is on its way already.
static void more_discard(struct presence *p, struct presence_more *m)
{
	if (m != NULL && !m->leaving)
		rcu_retire(p->retire, more_free, p, m);
}

static bool route_open(const struct presence *p, uint64_t route)
{
	const uint32_t gateway = route_gateway(route);
	const _Atomic uint64_t *cell;
	uint64_t word;

	if (p->control[gateway].state != GATEWAY_LIVE)
		return false;
	cell = slot_find(p, gateway, route_slot(route));
	if (cell == NULL)
		return false;
	word = atomic_load_explicit(cell, memory_order_relaxed);
	return (word & SLOT_OPEN) != 0 && slot_gen(word) == route_gen(route);
}

// The open sessions among the routes of a UID. Returns: number.
static uint32_t routes_collect(
	const struct presence *p, uint32_t uid, uint64_t route[SESSIONS_PER_UID_MAX])
{
	const uint64_t word = atomic_load_explicit(&p->route[uid], memory_order_relaxed);
	const struct presence_more *m;
	uint32_t n = 0;

	if ((word & ROUTE_MORE) == 0) {
		if (word != 0 && route_open(p, word))
			route[n++] = word;
		return n;
	}
	m = atomic_load_explicit(&p->more[uid], memory_order_relaxed);
	for (uint32_t i = 0; i < m->count; i++)
		if (route_open(p, m->route[i]))
			route[n++] = m->route[i];
	return n;
}

static void word_store(struct presence *p, uint32_t uid, uint64_t word)
{
	const uint64_t old = atomic_load_explicit(&p->route[uid], memory_order_relaxed);

	p->uids_online += (word != 0) - (old != 0);
	atomic_store_explicit(&p->route[uid], word, memory_order_release);
}

// Makes `route` the routes of a UID. Returns: 0; -ENOSPC: no memory, routes are as before.
static int routes_set(struct presence *p, uint32_t uid, const uint64_t *route, uint32_t n)
{
	struct presence_more *old = atomic_load_explicit(&p->more[uid], memory_order_relaxed);
	struct presence_more *m;

	if (n == 0) {
		word_store(p, uid, 0);
		rcu_publish(&p->more[uid], NULL);
		more_discard(p, old);
		return 0;
	}
	if (n == 1) {
		word_store(p, uid, route_session(route[0]));
		if (old != NULL && !old->leaving) {
			old->leaving = true;
			rcu_retire(p->retire, more_unlink, p, old);
		}
		return 0;
	}
	m = malloc(sizeof(*m));
	if (m == NULL)
		return -ENOSPC;
	*m = (struct presence_more){.count = n, .uid = uid};
	memcpy(m->route, route, n * sizeof(*route));
	p->blocks_more++;
	rcu_publish(&p->more[uid], m);
	word_store(p, uid, route_session(route[0]) | ROUTE_MORE);
	more_discard(p, old);
	return 0;
}

// --- sessions ---------------------------------------------------------------------------------------

void presence_slot_end(struct presence *p, uint32_t gateway, _Atomic uint64_t *cell)
{
	const uint64_t word = atomic_load_explicit(cell, memory_order_relaxed);
	const uint32_t uid = slot_uid(word);
	uint64_t route[SESSIONS_PER_UID_MAX];
	uint32_t n;

	// The generation stays, so that it is not opened again.
	atomic_store_explicit(
		cell, word & ~(SLOT_OPEN | (UID_INDEX_MAX - 1)), memory_order_release);
	n = routes_collect(p, uid, route);
	// Without memory the closed route stays named and is left out with the next change.
	(void)routes_set(p, uid, route, n);
	if (p->control[gateway].state == GATEWAY_LIVE) {
		p->control[gateway].sessions--;
		p->sessions--;
	}
	presence_uid_drop(p, uid, 0);
}

static int session_add(struct presence *p, uint32_t gateway, uint32_t slot, uint32_t gen,
	uint32_t uid, _Atomic uint64_t *cell)
{
	uint64_t route[SESSIONS_PER_UID_MAX];
	const uint64_t old = atomic_load_explicit(cell, memory_order_relaxed);
	const uint32_t n = routes_collect(p, uid, route);
	int rc;

	if (n == SESSIONS_PER_UID_MAX)
		return -EMLINK;
	// A worker that finds the route finds the session open.
	atomic_store_explicit(
		cell, SLOT_USED | SLOT_OPEN | (uint64_t)gen << 30 | uid, memory_order_release);
	route[n] = route_word(gateway, slot, gen);
	rc = routes_set(p, uid, route, n + 1);
	if (rc != 0)
		atomic_store_explicit(cell, old, memory_order_release);
	return rc;
}

static bool session_args_valid(
	const struct presence *p, uint32_t gateway, uint32_t slot, uint32_t gen, struct id_view uid)
{
	return gateway != 0 && gateway < p->gateway_top &&
	       p->control[gateway].state == GATEWAY_LIVE && slot < p->limits.sessions_per_gateway &&
	       gen < 1u << SESSION_GEN_BITS && uid.len != 0;
}

int presence_session_open(struct presence *p, uint32_t gateway, uint32_t slot, uint32_t gen,
	struct id_view uid, uint64_t now_ns)
{
	_Atomic uint64_t *cell;
	uint64_t word;
	uint32_t index;
	int rc;

	if (!session_args_valid(p, gateway, slot, gen, uid))
		return -EINVAL;
	cell = slot_make(p, gateway, slot);
	if (cell == NULL)
		return -ENOSPC;
	word = atomic_load_explicit(cell, memory_order_relaxed);
	if ((word & SLOT_USED) != 0 && gen <= slot_gen(word)) {
		const bool same = gen == slot_gen(word) && (word & SLOT_OPEN) != 0 &&
				  id_equal(presence_uid_name(p, slot_uid(word)), uid);

		return same ? 0 : -EEXIST;
	}
	if ((word & SLOT_OPEN) != 0)
		presence_slot_end(p, gateway, cell);
	index = presence_uid_hold(p, uid);
	if (index == 0)
		return -ENOSPC;
	rc = session_add(p, gateway, slot, gen, index, cell);
	if (rc != 0) {
		presence_uid_drop(p, index, now_ns);
		return rc;
	}
	p->control[gateway].sessions++;
	p->sessions++;
	return 0;
}

int presence_session_close(struct presence *p, uint32_t gateway, uint32_t slot, uint32_t gen,
	struct id_view uid, uint64_t now_ns)
{
	_Atomic uint64_t *cell;
	uint64_t word;

	(void)now_ns;
	if (!session_args_valid(p, gateway, slot, gen, uid))
		return -ENOENT;
	cell = slot_find(p, gateway, slot);
	if (cell == NULL)
		return -ENOENT;
	word = atomic_load_explicit(cell, memory_order_relaxed);
	if ((word & SLOT_OPEN) == 0 || slot_gen(word) != gen ||
		!id_equal(presence_uid_name(p, slot_uid(word)), uid))
		return -ENOENT;
	presence_slot_end(p, gateway, cell);
	return 0;
}
