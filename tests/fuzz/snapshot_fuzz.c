/* SPDX-License-Identifier: BSD-3-Clause */
// Snapshots of any bytes: no crash, no endless loop, and what is taken loads in key order. Each input is
// looked at as it is, and once more with length and checksum made right, so that rows are reached.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store_crc.h"
#include "store_snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

// A backend that keeps only the last key of each table.
struct last {
	uint8_t key[STORE_TABLES][512];
	uint32_t len[STORE_TABLES];
	uint64_t rows;
};

static int append(void *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	struct last *l = tx;
	const uint32_t min = key.len < l->len[t] ? key.len : l->len[t];
	const int order = memcmp(key.p, l->key[t], min);
	volatile uint8_t sum = 0;

	must(key.len >= 1 && key.len <= 511);
	must(l->len[t] == 0 || order > 0 || (order == 0 && key.len > l->len[t]));
	for (uint32_t i = 0; i < value.len; i++)
		sum = (uint8_t)(sum + ((const uint8_t *)value.p)[i]);
	memcpy(l->key[t], key.p, key.len);
	l->len[t] = key.len;
	l->rows++;
	return 0;
}

static void look(const uint8_t *data, uint64_t size)
{
	static const struct store_backend_ops ops = {.put = append, .append = append};
	struct store_snapshot_info info;
	struct store_snapshot_load load;
	struct last last = {.rows = 0};
	struct store_tx tx = {&ops, &last};
	const char *why = NULL;
	uint64_t steps = 0;
	int rc = store_snapshot_check(data, size, &info, &why);

	must(rc == 0 || ((rc == -EUCLEAN || rc == -EPROTO) && why != NULL));

	const int whole = rc;

	rc = store_snapshot_load_begin(&load, data, size, &why);
	while (rc == 0) {
		rc = store_snapshot_load_step(&load, &tx, 3, &why);
		must(++steps < size + 16);
	}
	must((rc == 1) == (whole == 0));
	must(whole != 0 || last.rows == info.rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *p;

	look(data, size);
	if (size < STORE_SNAPSHOT_BYTES_MIN || size % 8 != 0)
		return 0;
	p = malloc(size);
	if (p == NULL)
		return 0;
	memcpy(p, data, size);
	for (uint32_t i = 0; i < 8; i++)
		p[size - 24 + i] = (uint8_t)((uint64_t)size >> (8 * i));

	const uint32_t crc = store_crc32c(0, p, size - 4);

	for (uint32_t i = 0; i < 4; i++)
		p[size - 4 + i] = (uint8_t)(crc >> (8 * i));
	look(p, size);
	free(p);
	return 0;
}
