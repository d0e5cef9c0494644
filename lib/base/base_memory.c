/* SPDX-License-Identifier: BSD-3-Clause */
// Zeroed lines over calloc, which knows what the system gave it zeroed; aligned_alloc and memset would
// touch every page.
#include "base_memory.h"

#include <stdint.h>
#include <stdlib.h>

#define LINE 64u

// The start of calloc's block is kept in front of the first line.
void *memory_lines(size_t count, size_t bytes)
{
	uint8_t *block, *first;

	if (bytes != 0 && count > (SIZE_MAX - 2 * LINE) / bytes)
		return NULL;
	block = calloc(1, count * bytes + 2 * LINE);
	if (block == NULL)
		return NULL;
	first = block + LINE;
	first += (LINE - (uintptr_t)first % LINE) % LINE;
	((void **)(void *)first)[-1] = block;
	return first;
}

void memory_lines_free(void *p)
{
	if (p != NULL)
		free(((void **)p)[-1]);
}
