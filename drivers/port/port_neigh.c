/* SPDX-License-Identifier: BSD-3-Clause */
// The neighbour table. neigh_lookup runs on workers, the rest on the control core.
#include "port_neigh.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

static struct neigh_entry *set_of(struct neigh_table *table, uint32_t ip)
{
	// Fibonacci hashing: the low bits of an address alone would do on a /24, not behind odd masks
	return table->entry[(uint32_t)(ip * 2654435769u) >> 22];
}
_Static_assert(NEIGH_SETS == 1u << (32 - 22), "set_of takes the top bits");

static uint64_t mac_pack(const uint8_t mac[6])
{
	uint64_t v = 0;

	for (int i = 0; i < 6; i++)
		v = v << 8 | mac[i];
	return v;
}

static void mac_unpack(uint64_t v, uint8_t mac[6])
{
	for (int i = 5; i >= 0; i--, v >>= 8)
		mac[i] = (uint8_t)v;
}

struct neigh_table *neigh_create(void)
{
	struct neigh_table *table = calloc(1, sizeof(*table));

	if (table != NULL)
		atomic_store(&table->generation, 1);
	return table;
}

void neigh_destroy(struct neigh_table *table)
{
	free(table);
}

bool neigh_lookup(struct neigh_table *table, uint32_t ip, uint8_t mac[6])
{
	struct neigh_entry *e = set_of(table, ip);

	for (uint32_t way = 0; way < NEIGH_WAYS; way++, e++) {
		if (atomic_load_explicit(&e->ip, memory_order_relaxed) != ip)
			continue;
		const uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);
		// acquire loads: neither may move behind the second look at seq
		const uint32_t seen = atomic_load_explicit(&e->ip, memory_order_acquire);
		const uint64_t v = atomic_load_explicit(&e->mac, memory_order_acquire);

		// one look is enough: a change under our hands bumps generation or additions, and the
		// caller comes back
		if ((seq & 1) != 0 || seen != ip ||
			atomic_load_explicit(&e->seq, memory_order_relaxed) != seq)
			return false;
		if (atomic_load_explicit(&e->used, memory_order_relaxed) == 0)
			atomic_store_explicit(&e->used, 1, memory_order_relaxed);
		mac_unpack(v, mac);
		return true;
	}
	return false;
}

static struct neigh_entry *find(struct neigh_table *table, uint32_t ip)
{
	struct neigh_entry *e = set_of(table, ip);

	for (uint32_t way = 0; way < NEIGH_WAYS; way++, e++)
		if (atomic_load_explicit(&e->ip, memory_order_relaxed) == ip)
			return e;
	return NULL;
}

static void write_entry(struct neigh_entry *e, uint32_t ip, uint64_t mac)
{
	const uint32_t seq = atomic_load_explicit(&e->seq, memory_order_relaxed);

	atomic_store_explicit(&e->seq, seq + 1, memory_order_relaxed);
	// release stores: whoever sees a new field sees the odd number too
	atomic_store_explicit(&e->ip, ip, memory_order_release);
	atomic_store_explicit(&e->mac, mac, memory_order_release);
	atomic_store_explicit(&e->seq, seq + 2, memory_order_release);
}

static void bump(_Atomic uint32_t *n)
{
	const uint32_t next = atomic_load_explicit(n, memory_order_relaxed) + 1;

	// 0 is the mark of an unused template
	atomic_store_explicit(n, next != 0 ? next : 1, memory_order_release);
}

// The entry that has to go for a new one, or a free one; NULL when all are fixed.
static struct neigh_entry *victim(struct neigh_table *table, uint32_t ip)
{
	struct neigh_entry *e = set_of(table, ip), *best = NULL;
	uint32_t best_used = 0;

	for (uint32_t way = 0; way < NEIGH_WAYS; way++, e++) {
		if (atomic_load_explicit(&e->ip, memory_order_relaxed) == 0)
			return e;
		if (e->fixed)
			continue;
		const uint32_t used = atomic_load_explicit(&e->used, memory_order_relaxed);

		if (best == NULL || used < best_used ||
			(used == best_used && e->confirmed_ns < best->confirmed_ns)) {
			best = e;
			best_used = used;
		}
	}
	return best;
}

static int confirm(
	struct neigh_table *table, struct neigh_entry *e, const uint8_t mac[6], uint64_t now_ns)
{
	const uint64_t v = mac_pack(mac);

	if (e->fixed)
		return 0;
	e->confirmed_ns = now_ns;
	if (atomic_load_explicit(&e->mac, memory_order_relaxed) == v)
		return 0;
	write_entry(e, atomic_load_explicit(&e->ip, memory_order_relaxed), v);
	bump(&table->generation);
	return 1;
}

int neigh_confirm(struct neigh_table *table, uint32_t ip, const uint8_t mac[6], uint64_t now_ns)
{
	struct neigh_entry *e = find(table, ip);

	return e != NULL ? confirm(table, e, mac, now_ns) : 0;
}

int neigh_set(
	struct neigh_table *table, uint32_t ip, const uint8_t mac[6], bool fixed, uint64_t now_ns)
{
	struct neigh_entry *e = find(table, ip);

	if (e != NULL && !fixed)
		return confirm(table, e, mac, now_ns);
	if (e == NULL)
		e = victim(table, ip);
	if (e == NULL)
		return -ENOSPC;
	const bool replaced = atomic_load_explicit(&e->ip, memory_order_relaxed) != 0;

	write_entry(e, ip, mac_pack(mac));
	atomic_store_explicit(&e->used, 0, memory_order_relaxed);
	e->fixed = fixed;
	e->confirmed_ns = now_ns;
	if (replaced)
		bump(&table->generation);
	else
		atomic_fetch_add_explicit(&table->count, 1, memory_order_relaxed);
	bump(&table->additions);
	return 1;
}

uint32_t neigh_sweep(
	struct neigh_table *table, uint64_t ttl_ns, uint64_t now_ns, struct neigh_refresh *refresh)
{
	uint32_t removed = 0;

	refresh->count = 0;
	if (now_ns < table->next_sweep_ns)
		return 0;
	table->next_sweep_ns = now_ns + ttl_ns / 8 + 1;
	for (uint32_t i = 0; i < NEIGH_SETS * NEIGH_WAYS; i++) {
		struct neigh_entry *e = &table->entry[i / NEIGH_WAYS][i % NEIGH_WAYS];
		const uint32_t ip = atomic_load_explicit(&e->ip, memory_order_relaxed);

		if (ip == 0 || e->fixed)
			continue;
		const uint64_t age = now_ns - e->confirmed_ns;

		if (age >= ttl_ns) {
			write_entry(e, 0, 0);
			atomic_fetch_sub_explicit(&table->count, 1, memory_order_relaxed);
			removed++;
			continue;
		}
		if (age >= ttl_ns / 2 && refresh->count < NEIGH_REFRESH_MAX &&
			atomic_load_explicit(&e->used, memory_order_relaxed) != 0) {
			refresh->item[refresh->count].ip = ip;
			mac_unpack(atomic_load_explicit(&e->mac, memory_order_relaxed),
				refresh->item[refresh->count].mac);
			refresh->count++;
		}
		atomic_store_explicit(&e->used, 0, memory_order_relaxed);
	}
	// workers make their templates anew and so mark again what they use
	if (atomic_load_explicit(&table->count, memory_order_relaxed) + removed > 0)
		bump(&table->generation);
	return removed;
}
