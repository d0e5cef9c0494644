/* SPDX-License-Identifier: BSD-3-Clause */
// History of this node against that of others: (index, chain) pairs of our own, and what the others told.
// Two nodes with another chain at the same index have diverged, which nothing repairs. Pure. Context: the
// loop, or a test.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cons.h"

#define CHAIN_OWN_COUNT 4096u  // pairs kept: one a turn, so some seconds under full load
#define CHAIN_TOLD_MAX 16u  // pairs of one telling
#define CHAIN_GRACE_NS \
	UINT64_C(3000000000)  // everybody has told once more: each does so each second

struct chain_pair {
	uint64_t index, chain;
};

enum chain_match {
	CHAIN_UNKNOWN = 0,  // nothing comparable yet
	CHAIN_EQUAL,
	CHAIN_DIFFERS,
};

struct chain_peer {
	uint64_t id;
	uint8_t match;  // enum chain_match, at `at`
	uint8_t ahead_count;  // pairs we have not reached yet
	uint64_t at, own, theirs;  // of the last comparison
	struct chain_pair last;  // as last told
	struct chain_pair ahead[CHAIN_TOLD_MAX];
};

struct chain {
	uint64_t checked;  // comparisons made
	uint64_t differs_since_ns;  // 0: no peer differs
	uint32_t first, count;
	uint32_t peer_count;
	struct chain_peer peer[CONS_MEMBERS_MAX];
	struct chain_pair own[CHAIN_OWN_COUNT];  // ring, by growing index
};

void chain_init(struct chain *chain);
// This node stands at `index` now; an index below the last one (a restore) forgets the older pairs.
void chain_own(struct chain *chain, uint64_t index, uint64_t value, uint64_t now_ns);
// The last pairs of our own, newest last. Returns: their number, at most CHAIN_TOLD_MAX.
uint32_t chain_tell(const struct chain *chain, struct chain_pair *pairs);
// `id` told these, in any order.
void chain_told(struct chain *chain, uint64_t id, const struct chain_pair *pairs, uint32_t count,
	uint64_t now_ns);
// Forgets everybody who is not among the members.
void chain_keep(struct chain *chain, const uint64_t *ids, uint32_t count);
// What `id` told last. Returns: false when nothing.
bool chain_last(const struct chain *chain, uint64_t id, struct chain_pair *pair);

enum chain_verdict {
	CHAIN_FINE,
	CHAIN_WAIT,  // somebody differs; not clear yet who is wrong
	CHAIN_OTHER_WRONG,  // more agree with us than not: the others have to go
	CHAIN_SELF_WRONG,  // this node is in the minority, or it cannot tell: it must end
};
// Judges, `members` counting this node. *peer: one that differs, for the log; NULL when CHAIN_FINE.
enum chain_verdict chain_judge(const struct chain *chain, uint32_t members, uint64_t now_ns,
	const struct chain_peer **peer);
