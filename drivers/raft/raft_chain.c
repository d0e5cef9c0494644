/* SPDX-License-Identifier: BSD-3-Clause */
// History of this node against that of others; see raft_chain.h. Context: the loop.
#include "raft_chain.h"

#include <string.h>

void chain_init(struct chain *chain)
{
	memset(chain, 0, sizeof(*chain));
}

static const struct chain_pair *pair_at(const struct chain *chain, uint32_t i)
{
	return &chain->own[(chain->first + i) % CHAIN_OWN_COUNT];
}

// Returns: our pair of exactly this index, or NULL.
static const struct chain_pair *find(const struct chain *chain, uint64_t index)
{
	uint32_t low = 0, high = chain->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (pair_at(chain, middle)->index < index)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == chain->count || pair_at(chain, low)->index != index)
		return NULL;
	return pair_at(chain, low);
}

static void note_since(struct chain *chain, uint64_t now_ns)
{
	for (uint32_t i = 0; i < chain->peer_count; i++) {
		if (chain->peer[i].match != CHAIN_DIFFERS)
			continue;
		if (chain->differs_since_ns == 0)
			chain->differs_since_ns = now_ns != 0 ? now_ns : 1;
		return;
	}
	chain->differs_since_ns = 0;
}

static void compare(struct chain *chain, struct chain_peer *peer, const struct chain_pair *own,
	const struct chain_pair *theirs)
{
	chain->checked++;
	// What differed once at some index stays different: histories only grow.
	if (peer->match == CHAIN_DIFFERS && own->chain == theirs->chain && own->index <= peer->at)
		return;
	peer->match = own->chain == theirs->chain ? CHAIN_EQUAL : CHAIN_DIFFERS;
	peer->at = own->index;
	peer->own = own->chain;
	peer->theirs = theirs->chain;
}

// Compares what the peer told of indexes that we reach only now; drops what we went past.
static void catch_up(struct chain *chain, struct chain_peer *peer)
{
	const struct chain_pair *top = pair_at(chain, chain->count - 1);
	uint32_t left = 0;

	for (uint32_t i = 0; i < peer->ahead_count; i++) {
		if (peer->ahead[i].index == top->index)
			compare(chain, peer, top, &peer->ahead[i]);
		else if (peer->ahead[i].index > top->index)
			peer->ahead[left++] = peer->ahead[i];
	}
	peer->ahead_count = (uint8_t)left;
}

void chain_own(struct chain *chain, uint64_t index, uint64_t value, uint64_t now_ns)
{
	if (index == 0)
		return;
	if (chain->count > 0) {
		const struct chain_pair *top = pair_at(chain, chain->count - 1);

		if (top->index == index && top->chain == value)
			return;
		if (top->index >= index)
			chain->count = 0;
	}
	if (chain->count == CHAIN_OWN_COUNT) {
		chain->first = (chain->first + 1) % CHAIN_OWN_COUNT;
		chain->count--;
	}
	chain->own[(chain->first + chain->count) % CHAIN_OWN_COUNT] =
		(struct chain_pair){.index = index, .chain = value};
	chain->count++;
	for (uint32_t i = 0; i < chain->peer_count; i++)
		if (chain->peer[i].ahead_count > 0)
			catch_up(chain, &chain->peer[i]);
	note_since(chain, now_ns);
}

uint32_t chain_tell(const struct chain *chain, struct chain_pair *pairs)
{
	uint32_t count = chain->count < CHAIN_TOLD_MAX ? chain->count : CHAIN_TOLD_MAX;

	for (uint32_t i = 0; i < count; i++)
		pairs[i] = *pair_at(chain, chain->count - count + i);
	return count;
}

static struct chain_peer *peer_of(struct chain *chain, uint64_t id)
{
	for (uint32_t i = 0; i < chain->peer_count; i++)
		if (chain->peer[i].id == id)
			return &chain->peer[i];
	if (chain->peer_count == CONS_MEMBERS_MAX)
		return NULL;
	chain->peer[chain->peer_count] = (struct chain_peer){.id = id};
	return &chain->peer[chain->peer_count++];
}

void chain_told(struct chain *chain, uint64_t id, const struct chain_pair *pairs, uint32_t count,
	uint64_t now_ns)
{
	struct chain_peer *peer = peer_of(chain, id);
	uint64_t top = chain->count > 0 ? pair_at(chain, chain->count - 1)->index : 0;
	uint32_t ahead = 0;

	if (peer == NULL || count == 0)
		return;
	for (uint32_t i = 0; i < count; i++) {
		const struct chain_pair *own = find(chain, pairs[i].index);

		if (i == 0 || pairs[i].index >= peer->last.index)
			peer->last = pairs[i];
		if (own != NULL)
			compare(chain, peer, own, &pairs[i]);
		else if (pairs[i].index > top && ahead < CHAIN_TOLD_MAX)
			peer->ahead[ahead++] = pairs[i];
	}
	peer->ahead_count = (uint8_t)ahead;
	note_since(chain, now_ns);
}

void chain_keep(struct chain *chain, const uint64_t *ids, uint32_t count)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < chain->peer_count; i++) {
		bool kept = false;

		for (uint32_t k = 0; k < count && !kept; k++)
			kept = ids[k] == chain->peer[i].id;
		if (kept)
			chain->peer[left++] = chain->peer[i];
	}
	chain->peer_count = left;
	note_since(chain, chain->differs_since_ns);
}

bool chain_last(const struct chain *chain, uint64_t id, struct chain_pair *pair)
{
	for (uint32_t i = 0; i < chain->peer_count; i++) {
		if (chain->peer[i].id != id)
			continue;
		*pair = chain->peer[i].last;
		return true;
	}
	return false;
}

enum chain_verdict chain_judge(const struct chain *chain, uint32_t members, uint64_t now_ns,
	const struct chain_peer **peer)
{
	uint32_t equal = 1, differ = 0;

	*peer = NULL;
	for (uint32_t i = 0; i < chain->peer_count; i++) {
		if (chain->peer[i].match == CHAIN_EQUAL)
			equal++;
		if (chain->peer[i].match != CHAIN_DIFFERS)
			continue;
		differ++;
		*peer = &chain->peer[i];
	}
	if (differ == 0)
		return CHAIN_FINE;
	if (equal > members / 2)
		return CHAIN_OTHER_WRONG;
	if (differ > members / 2)
		return CHAIN_SELF_WRONG;
	if (now_ns < chain->differs_since_ns + CHAIN_GRACE_NS)
		return CHAIN_WAIT;
	return equal > differ ? CHAIN_OTHER_WRONG : CHAIN_SELF_WRONG;
}
