/* SPDX-License-Identifier: BSD-3-Clause */
// The suppression window of a client (client_seen.h). Runs on the client's thread.
#include "client_seen.h"

#include <stdlib.h>
#include <string.h>

struct generation {
	uint64_t *print;  // open addressing, 0: free
	uint64_t since_ns;
	uint32_t count;
};

struct client_seen {
	struct generation young, old;
	uint32_t entries;
	uint32_t mask;  // at least twice `entries`, so that a probe is short
	uint64_t half_age_ns;
};

struct client_seen *client_seen_create(uint32_t entries, uint64_t age_ns)
{
	struct client_seen *seen;
	uint32_t cells = 32;

	if (entries < 16 || entries > 1u << 24)
		return NULL;
	while (cells < 2 * entries)
		cells *= 2;
	seen = calloc(1, sizeof(*seen));
	if (seen == NULL)
		return NULL;
	seen->entries = entries;
	seen->mask = cells - 1;
	seen->half_age_ns = age_ns / 2;
	seen->young.print = calloc(cells, sizeof(uint64_t));
	seen->old.print = calloc(cells, sizeof(uint64_t));
	if (seen->young.print == NULL || seen->old.print == NULL) {
		client_seen_destroy(seen);
		return NULL;
	}
	return seen;
}

void client_seen_destroy(struct client_seen *seen)
{
	if (seen == NULL)
		return;
	free(seen->young.print);
	free(seen->old.print);
	free(seen);
}

static void clear(const struct client_seen *seen, struct generation *g)
{
	if (g->count != 0)
		memset(g->print, 0, ((size_t)seen->mask + 1) * sizeof(uint64_t));
	g->count = 0;
}

static void turn(struct client_seen *seen, uint64_t now_ns)
{
	struct generation g = seen->old;

	clear(seen, &g);
	seen->old = seen->young;
	g.since_ns = now_ns;
	seen->young = g;
}

static void age(struct client_seen *seen, uint64_t now_ns)
{
	if (now_ns - seen->young.since_ns < seen->half_age_ns)
		return;
	if (now_ns - seen->young.since_ns >= 2 * seen->half_age_ns)
		clear(seen, &seen->young);
	turn(seen, now_ns);
}

// The cell that holds `print`, or the free one where it belongs.
static uint32_t cell(const struct client_seen *seen, const struct generation *g, uint64_t print)
{
	uint32_t at = (uint32_t)(print ^ print >> 32) & seen->mask;

	while (g->print[at] != 0 && g->print[at] != print)
		at = (at + 1) & seen->mask;
	return at;
}

bool client_seen_has(struct client_seen *seen, uint64_t print, uint64_t now_ns)
{
	const uint64_t key = print != 0 ? print : 1;

	age(seen, now_ns);
	return seen->young.print[cell(seen, &seen->young, key)] == key ||
	       seen->old.print[cell(seen, &seen->old, key)] == key;
}

void client_seen_add(struct client_seen *seen, uint64_t print, uint64_t now_ns)
{
	const uint64_t key = print != 0 ? print : 1;
	uint32_t at;

	age(seen, now_ns);
	at = cell(seen, &seen->young, key);
	if (seen->young.print[at] == key)
		return;
	if (seen->young.count == seen->entries) {
		turn(seen, now_ns);
		at = cell(seen, &seen->young, key);
	}
	seen->young.print[at] = key;
	seen->young.count++;
}
