/* SPDX-License-Identifier: BSD-3-Clause */
// Creation, housekeeping and statistics of presence. Control core.
#include "presence_pvt.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES (2u << 20)
#define NAME_SHARE_BYTES 32u  // of a UID's name, as the estimate of memory sees it

void *presence_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (bytes >= HUGE_PAGE_BYTES)
		madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

void presence_unmap(void *p, size_t bytes)
{
	if (p != NULL)
		munmap(p, bytes);
}

static size_t uids_bytes(const struct presence *p, size_t one)
{
	return ((size_t)p->limits.uids + 1) * one;
}

static bool limits_valid(const struct presence_limits *l)
{
	return l->uids >= 1 && l->uids < UID_INDEX_MAX && l->gateways >= 1 &&
	       l->gateways < GATEWAYS_MAX && l->sessions_per_gateway >= 1 &&
	       l->sessions_per_gateway <= 1u << SESSION_SLOT_BITS;
}

// Slot blocks of all gateways together: what every UID with every session needs, and some for slots that
// are used sparsely.
static uint32_t blocks_limit(const struct presence_limits *l)
{
	const uint64_t each = ((uint64_t)l->sessions_per_gateway + SLOT_BLOCK - 1) / SLOT_BLOCK;
	const uint64_t all = each * l->gateways;
	const uint64_t most =
		(uint64_t)l->uids * SESSIONS_PER_UID_MAX / SLOT_BLOCK + (uint64_t)l->gateways * 64;

	return (uint32_t)(all < most ? all : most);
}

static bool tables_create(struct presence *p)
{
	const struct presence_limits *l = &p->limits;
	const size_t entries = (size_t)l->gateways + 1;

	p->route = presence_map(uids_bytes(p, sizeof(*p->route)));
	p->more = presence_map(uids_bytes(p, sizeof(*p->more)));
	p->uid = presence_map(uids_bytes(p, sizeof(*p->uid)));
	p->gateway = aligned_alloc(64, entries * sizeof(*p->gateway));
	p->control = calloc(entries, sizeof(*p->control));
	if (p->route == NULL || p->more == NULL || p->uid == NULL || p->gateway == NULL ||
		p->control == NULL)
		return false;
	memset(p->gateway, 0, entries * sizeof(*p->gateway));
	return index_init(&p->uid_index, l->uids) == 0 &&
	       index_init(&p->gateway_index, l->gateways) == 0 &&
	       index_init(&p->gateway_ids, l->gateways) == 0 &&
	       names_init(&p->names, l->uids / 128 + 2 * NAME_CLASSES) == 0;
}

uint64_t presence_memory(const struct presence_limits *l, uint64_t *gateways)
{
	const uint64_t uids = (uint64_t)l->uids + 1;
	const uint64_t one = sizeof(uint64_t) + sizeof(struct presence_more *) +
			     sizeof(struct uid_record) + NAME_SHARE_BYTES + sizeof(uint64_t);

	*gateways = ((uint64_t)l->gateways + 1) *
			    (sizeof(struct presence_gateway) + sizeof(struct gateway_control)) +
		    2 * index_memory(l->gateways);
	return uids * one + index_memory(l->uids);
}

struct presence *presence_create(const struct presence_limits *limits, struct rcu_retire *retire)
{
	struct presence *p;

	if (!limits_valid(limits))
		return NULL;
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	p->limits = *limits;
	p->retire = retire;
	p->uid_top = 1;
	p->gateway_top = 1;
	p->blocks_max = blocks_limit(limits);
	if (!tables_create(p)) {
		presence_destroy(p);
		return NULL;
	}
	return p;
}

static void more_free_all(struct presence *p)
{
	for (uint32_t i = 1; p->blocks_more != 0 && i < p->uid_top; i++) {
		free(atomic_load_explicit(&p->more[i], memory_order_relaxed));
		atomic_store_explicit(&p->more[i], NULL, memory_order_relaxed);
	}
	while (p->dead != NULL) {
		struct presence_more *next = p->dead->next;

		free(p->dead);
		p->dead = next;
	}
}

static void destroy_parts(struct presence *p) CONTROL_ONLY;
static void destroy_parts(struct presence *p)
{
	rcu_reclaim(p->retire);
	more_free_all(p);
	for (uint32_t i = 1; i < p->gateway_top; i++)
		presence_slots_free(p, i);
}

void presence_destroy(struct presence *p)
{
	if (p == NULL)
		return;
	role_take_control();
	destroy_parts(p);
	role_drop_control();
	if (p->names.page != NULL)
		names_fini(&p->names);
	index_fini(&p->gateway_ids);
	index_fini(&p->gateway_index);
	index_fini(&p->uid_index);
	free(p->control);
	free(p->gateway);
	presence_unmap(p->uid, uids_bytes(p, sizeof(*p->uid)));
	presence_unmap((void *)p->more, uids_bytes(p, sizeof(*p->more)));
	presence_unmap((void *)p->route, uids_bytes(p, sizeof(*p->route)));
	free(p);
}

void presence_quarantine(struct presence *p, uint64_t uid_quarantine_ns)
{
	if (uid_quarantine_ns > p->limits.uid_quarantine_ns)
		p->limits.uid_quarantine_ns = uid_quarantine_ns;
}

uint32_t presence_step(struct presence *p, uint32_t steps, uint64_t now_ns)
{
	uint32_t done;

	presence_more_retire(p);
	presence_uids_turn(p, now_ns);
	done = presence_gateways_sweep(p, steps);
	if (done < steps)
		done += presence_uids_release(p, steps - done);
	return done;
}

void presence_stats(const struct presence *p, struct presence_stats *stats)
{
	const uint64_t index_bytes =
		((uint64_t)p->uid_index.mask + 1) * sizeof(struct index_bucket);

	*stats = (struct presence_stats){
		.uids = p->uids,
		.uids_quarantined = p->uids_quarantined,
		.sessions = p->sessions,
		.uids_online = p->uids_online,
		.gateways = p->gateways,
		.gateways_sweeping = p->gateways_sweeping,
		.bytes = uids_bytes(p, sizeof(*p->route) + sizeof(*p->more) + sizeof(*p->uid)) +
			 index_bytes + p->names.bytes +
			 (uint64_t)p->blocks_more * sizeof(struct presence_more) +
			 (uint64_t)p->blocks * sizeof(struct slot_block) +
			 ((uint64_t)p->limits.gateways + 1) *
				 (sizeof(*p->gateway) + sizeof(*p->control)),
	};
}
