/* SPDX-License-Identifier: BSD-3-Clause */
// Memory of tables: zeroed, on cache lines, and given by the system page by page as it is used, so that a
// limit costs nothing before it is. Before and after the threads.
#pragma once

#include <stddef.h>

// Returns: NULL when there is no memory, or `count` x `bytes` is too much.
void *memory_lines(size_t count, size_t bytes);
void memory_lines_free(void *p);  // NULL: nothing
