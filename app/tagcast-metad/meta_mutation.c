/* SPDX-License-Identifier: BSD-3-Clause */
// One mutation by itself: its UIDs in store order. Any thread, one at a time per mutation.
#include "meta_queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool mutation_large(const struct mutation *m)
{
	return m->uid_count > META_INLINE_UIDS || m->uids_bytes > META_INLINE_BYTES;
}

void mutation_free(struct mutation *m)
{
	if (m == NULL)
		return;
	free(m->uids);
	free(m);
}

// Packed UIDs by their bytes, a prefix first: the order of the store's keys.
static int compare(const void *a, const void *b)
{
	const uint8_t *x = *(const uint8_t *const *)a, *y = *(const uint8_t *const *)b;
	const int rc = memcmp(x + 1, y + 1, x[0] < y[0] ? x[0] : y[0]);

	return rc != 0 ? rc : (int)x[0] - (int)y[0];
}

int mutation_prepare(struct mutation *m)
{
	const uint8_t **order = malloc((m->uid_count + (size_t)1) * sizeof(*order));
	uint8_t *sorted = malloc(m->uids_bytes + (size_t)1);
	const uint8_t *p = m->uids;
	uint32_t bytes = 0, count = 0;

	if (order == NULL || sorted == NULL) {
		free(order);
		free(sorted);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < m->uid_count; i++) {
		order[i] = p;
		p += 1 + p[0];
	}
	qsort(order, m->uid_count, sizeof(*order), compare);
	for (uint32_t i = 0; i < m->uid_count; i++) {
		const uint32_t len = 1u + order[i][0];

		if (i > 0 && compare(&order[i - 1], &order[i]) == 0)
			continue;
		memcpy(sorted + bytes, order[i], len);
		bytes += len;
		count++;
	}
	free(order);
	free(m->uids);
	m->uids = sorted;
	m->uids_bytes = bytes;
	m->uid_count = count;
	return 0;
}
