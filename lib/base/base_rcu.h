/* SPDX-License-Identifier: BSD-3-Clause */
// Read-copy-update for polling threads; the one door to liburcu (QSBR). Readers are workers: a
// pointer read under RCU lives to the end of the poll turn. The one writer is the control core, which
// collects what it replaced in a retire list and frees it after a grace period.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

// Reader side. Context: worker thread. A registered reader is online until it says otherwise; it must
// be offline while it sleeps or blocks, or no grace period ends.
void rcu_reader_register(void);
void rcu_reader_unregister(void);
void rcu_reader_quiescent(void);  // once per poll turn, no RCU pointer held
void rcu_reader_offline(void);
void rcu_reader_online(void);

// Publish and read one pointer. `slot` is an _Atomic pointer with one writer.
#define rcu_publish(slot, ptr) atomic_store_explicit((slot), (ptr), memory_order_release)
#define rcu_read(slot) atomic_load_explicit((slot), memory_order_acquire)

// Things replaced but perhaps still read. Context: control core. Bounded: when full, rcu_retire frees
// after a grace period on the spot.
struct rcu_retired {
	void (*free_fn)(void *owner, void *ptr);
	void *owner;
	void *ptr;
};
#define RCU_RETIRE_MAX 1024u
struct rcu_retire {
	uint32_t count;
	struct rcu_retired item[RCU_RETIRE_MAX];
};

void rcu_retire_init(struct rcu_retire *list);

// Hands `ptr` over for freeing by free_fn(owner, ptr) after every reader passed a quiescent point.
// Owns: ptr is the list's from here on.
void rcu_retire(
	struct rcu_retire *list, void (*free_fn)(void *owner, void *ptr), void *owner, void *ptr);

// Waits for one grace period and frees everything in the list; nothing to do when empty. Blocks for at
// most the longest poll turn of an online reader. Returns: number freed.
uint32_t rcu_reclaim(struct rcu_retire *list);
