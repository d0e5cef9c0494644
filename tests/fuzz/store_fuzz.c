/* SPDX-License-Identifier: BSD-3-Clause */
// Commands and deltas of any bytes: no crash, and what decodes encodes to the same bytes again.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void touch(const uint8_t *uids, uint32_t bytes, uint32_t count)
{
	const uint8_t *p = uids;
	struct id_view uid;
	uint32_t n = 0;
	volatile uint8_t sum = 0;

	while (store_uids_next(&p, uids + bytes, &uid)) {
		must(uid.len >= 1);
		for (uint32_t i = 0; i < uid.len; i++)
			sum = (uint8_t)(sum + uid.bytes[i]);
		n++;
	}
	must(n == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[ENTRY_BYTES_MAX + 1024];
	struct store_command cmd;
	struct store_delta delta;
	const char *why;

	if (size > sizeof(again))
		return 0;

	const int used = store_command_decode(data, (uint32_t)size, &cmd, &why);

	must(used > 0 || why != NULL);
	if (used > 0) {
		if (cmd.op != STORE_CLOSE && cmd.op < STORE_NODE_JOIN)
			touch(cmd.uids, cmd.uids_bytes, cmd.uid_count);
		must(store_command_encode(&cmd, again, sizeof(again)) == used);
		must(memcmp(again, data, (size_t)used) == 0);
	}

	const int length = store_delta_decode(data, (uint32_t)size, &delta);

	if (length > 0) {
		if (store_delta_of_channel(delta.kind))
			touch(delta.uids, delta.uids_bytes, delta.uid_count);
		must(store_delta_encode(&delta, again, sizeof(again)) == length);
		must(memcmp(again, data, (size_t)length) == 0);
	}
	return 0;
}
