/* SPDX-License-Identifier: BSD-3-Clause */
// Deliveries that await receipts (client_awaiting.h). Runs on the client's thread.
#include "client_awaiting.h"

#include <stdlib.h>

struct entry {
	struct client_await await;
	uint32_t next;  // in its chain; 0: end
	bool used;
};

struct client_awaiting {
	struct entry *entry;  // [1..entries]
	uint32_t *head;
	uint32_t entries;
	uint32_t mask;
	uint32_t hand;  // entry used last
};

struct client_awaiting *client_awaiting_create(uint32_t entries)
{
	struct client_awaiting *a;
	uint32_t heads = 16;

	if (entries < 16 || entries > 1u << 24)
		return NULL;
	while (heads < entries)
		heads *= 2;
	a = calloc(1, sizeof(*a));
	if (a == NULL)
		return NULL;
	a->entries = entries;
	a->mask = heads - 1;
	a->entry = calloc((size_t)entries + 1, sizeof(*a->entry));
	a->head = calloc(heads, sizeof(*a->head));
	if (a->entry == NULL || a->head == NULL) {
		client_awaiting_destroy(a);
		return NULL;
	}
	return a;
}

void client_awaiting_destroy(struct client_awaiting *a)
{
	if (a == NULL)
		return;
	free(a->entry);
	free(a->head);
	free(a);
}

static uint32_t *chain(struct client_awaiting *a, uint64_t print)
{
	return &a->head[(uint32_t)(print ^ print >> 32) & a->mask];
}

// The link that names the entry of `print`, or the end of its chain.
static uint32_t *link_of(struct client_awaiting *a, uint64_t print)
{
	uint32_t *link = chain(a, print);

	while (*link != 0 && a->entry[*link].await.print != print)
		link = &a->entry[*link].next;
	return link;
}

struct client_await *client_awaiting_find(struct client_awaiting *a, uint64_t print)
{
	const uint32_t at = *link_of(a, print);

	return at != 0 ? &a->entry[at].await : NULL;
}

void client_awaiting_drop(struct client_awaiting *a, uint64_t print)
{
	uint32_t *link = link_of(a, print);
	struct entry *e;

	if (*link == 0)
		return;
	e = &a->entry[*link];
	*link = e->next;
	e->used = false;
}

void client_awaiting_put(struct client_awaiting *a, const struct client_await *await)
{
	struct client_await *old = client_awaiting_find(a, await->print);
	struct entry *e;
	uint32_t *head;

	if (old != NULL) {
		*old = *await;
		return;
	}
	a->hand = a->hand % a->entries + 1;
	e = &a->entry[a->hand];
	if (e->used)
		client_awaiting_drop(a, e->await.print);
	head = chain(a, await->print);
	*e = (struct entry){.await = *await, .next = *head, .used = true};
	*head = a->hand;
}
