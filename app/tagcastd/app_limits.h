/* SPDX-License-Identifier: BSD-3-Clause */
// The limits of a node as a configuration sets them, and the memory they come to. Pure; any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "node.h"

// Fills what follows from the configuration alone; the rest is 0.
void app_node_limits(const struct conf *conf, struct node_params *params);

struct app_memory {
	uint64_t bytes;  // of all rows
	uint32_t rows;
	struct node_memory row[NODE_MEMORY_ROWS + 2];  // largest first
};
void app_memory(const struct conf *conf, struct app_memory *memory);
// "900MiB when every limit is reached: limits.uids 400MiB, ..." with the largest three.
void app_memory_text(const struct app_memory *memory, char *out, size_t size);

// Whether a machine with so much memory can hold it. Returns: 0; -E2BIG with the option that has the
// largest share, and `problem`.
int app_memory_check(const struct conf *conf, uint64_t machine_bytes, const char **key,
	char *problem, size_t size);
