/* SPDX-License-Identifier: BSD-3-Clause */
// Suppression window: 64-bit fingerprints of deliveries made lately. Two generations of a fixed array;
// when the young one is full or half the age old it becomes the old one, and the old one is forgotten.
// Remembers at least `entries` and at most 2 x `entries`, for at least half and at most all of `age_ns`.
// Any thread, one at a time.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client_seen;

// Returns: NULL when entries is outside 16..2^24 or there is no memory.
struct client_seen *client_seen_create(uint32_t entries, uint64_t age_ns);
void client_seen_destroy(struct client_seen *seen);

bool client_seen_has(struct client_seen *seen, uint64_t print, uint64_t now_ns);
void client_seen_add(struct client_seen *seen, uint64_t print, uint64_t now_ns);
