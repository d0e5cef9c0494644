/* SPDX-License-Identifier: BSD-3-Clause */
// Authentication of datagrams, address cookies and replay windows. The one door to libsodium.
// Key set: at most two keys valid at once, so that keys rotate without a gap.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dgram.h"
#include "wire.h"

#define WIRE_KEY_BYTES 32u
#define WIRE_KEYS_MAX 2u

struct wire_keys {
	uint8_t count;  // 0: authentication is off
	uint8_t send;  // index of the key to send with
	uint8_t id[WIRE_KEYS_MAX];
	uint8_t key[WIRE_KEYS_MAX][WIRE_KEY_BYTES];
};

// Must be called once before any other function here. Returns: 0, -EIO.
int wire_auth_init(void);

// Writes the 16-byte tag at p[len - 16]: keyed BLAKE2b over the receiver's boot id and p[0..len - 16).
void wire_seal(const struct wire_keys *keys, uint8_t *p, uint32_t len, uint64_t receiver_boot);

// Checks flag, key id and tag. With keys->count 0 a datagram that carries WIRE_AUTH is refused too.
// Returns: 0, CTR_DROP_AUTH, CTR_DROP_KEY.
int wire_open(const struct wire_keys *keys, const uint8_t *p, uint32_t len,
	const struct wire_header *header, uint64_t receiver_boot);

// Cookie that proves an address: SipHash of (secret, address, client id, client boot); never 0.
uint64_t wire_cookie(
	const uint8_t secret[16], struct net_addr addr, uint64_t client, uint64_t boot);

// What a gateway must echo to register: besides its address it proves that its HELLO was made after
// `incarnation`, the gateway of that id registered then at `at` (0: none), and about `now`. A recorded
// HELLO names another incarnation. Never 0, never a wire_cookie.
uint64_t wire_challenge(const uint8_t secret[16], struct net_addr addr, uint64_t client,
	uint64_t boot, uint64_t incarnation, struct net_addr at, uint64_t period);

void wire_random(void *out, size_t bytes);

// Replay window of one (sender, boot, lane): remembers the last 1024 sequences.
#define WIRE_REPLAY_BITS 1024u
struct wire_replay {
	uint64_t top;  // highest sequence seen; 0 none
	uint64_t seen[WIRE_REPLAY_BITS / 64];
};
// Takes a sequence once. Returns: false when it is 0, was seen, or lies below the window.
bool wire_replay_take(struct wire_replay *window, uint64_t seq);
