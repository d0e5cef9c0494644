/* SPDX-License-Identifier: BSD-3-Clause */
// Authentication tags (keyed BLAKE2b), address cookies (SipHash) and replay windows. The one place that
// includes libsodium. No allocation; any thread, a replay window by its owner.
#include "wire_auth.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>

_Static_assert(WIRE_KEY_BYTES >= crypto_generichash_KEYBYTES_MIN &&
		       WIRE_KEY_BYTES <= crypto_generichash_KEYBYTES_MAX,
	"a key libsodium takes");
_Static_assert(WIRE_TAG_BYTES >= crypto_generichash_BYTES_MIN, "a tag length libsodium makes");
_Static_assert(crypto_shorthash_KEYBYTES == 16 && crypto_shorthash_BYTES == 8, "cookie sizes");

int wire_auth_init(void)
{
	return sodium_init() < 0 ? -EIO : 0;
}

static void make_tag(const uint8_t key[WIRE_KEY_BYTES], const uint8_t *p, uint32_t bytes,
	uint64_t receiver_boot, uint8_t tag[WIRE_TAG_BYTES])
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, key, WIRE_KEY_BYTES, WIRE_TAG_BYTES);
	crypto_generichash_update(&state, (const uint8_t *)&receiver_boot, sizeof(receiver_boot));
	crypto_generichash_update(&state, p, bytes);
	crypto_generichash_final(&state, tag, WIRE_TAG_BYTES);
}

void wire_seal(const struct wire_keys *keys, uint8_t *p, uint32_t len, uint64_t receiver_boot)
{
	assert(keys->send < keys->count && keys->count <= WIRE_KEYS_MAX);
	assert(len >= WIRE_HEADER_BYTES + WIRE_TAG_BYTES);
	make_tag(keys->key[keys->send], p, len - WIRE_TAG_BYTES, receiver_boot,
		p + len - WIRE_TAG_BYTES);
}

int wire_open(const struct wire_keys *keys, const uint8_t *p, uint32_t len,
	const struct wire_header *header, uint64_t receiver_boot)
{
	uint8_t tag[WIRE_TAG_BYTES];
	uint32_t i = 0;

	if (keys->count == 0)
		return header->flags & WIRE_AUTH ? CTR_DROP_AUTH : 0;
	if (!(header->flags & WIRE_AUTH) || len < WIRE_HEADER_BYTES + WIRE_TAG_BYTES)
		return CTR_DROP_AUTH;
	while (i < keys->count && keys->id[i] != header->key_id)
		i++;
	if (i == keys->count)
		return CTR_DROP_KEY;
	make_tag(keys->key[i], p, len - WIRE_TAG_BYTES, receiver_boot, tag);
	return sodium_memcmp(tag, p + len - WIRE_TAG_BYTES, WIRE_TAG_BYTES) == 0 ? 0
										 : CTR_DROP_AUTH;
}

uint64_t wire_cookie(const uint8_t secret[16], struct net_addr addr, uint64_t client, uint64_t boot)
{
	uint8_t in[24], out[crypto_shorthash_BYTES];
	uint64_t cookie;

	memcpy(in, &addr.ip, 4);
	memcpy(in + 4, &addr.port, 2);
	memset(in + 6, 0, 2);
	memcpy(in + 8, &client, 8);
	memcpy(in + 16, &boot, 8);
	crypto_shorthash(out, in, sizeof(in), secret);
	memcpy(&cookie, out, sizeof(cookie));
	return cookie != 0 ? cookie : 1;
}

uint64_t wire_challenge(const uint8_t secret[16], struct net_addr addr, uint64_t client,
	uint64_t boot, uint64_t incarnation, struct net_addr at, uint64_t period)
{
	// Longer than a cookie's input, so that neither is ever the other.
	const uint64_t in[] = {(uint64_t)addr.ip << 16 | addr.port, client, boot, incarnation,
		(uint64_t)at.ip << 16 | at.port, period};
	uint8_t out[crypto_shorthash_BYTES];
	uint64_t challenge;

	crypto_shorthash(out, (const uint8_t *)in, sizeof(in), secret);
	memcpy(&challenge, out, sizeof(challenge));
	return challenge != 0 ? challenge : 1;
}

void wire_random(void *out, size_t bytes)
{
	randombytes_buf(out, bytes);
}

// Sequence s owns bit s % 1024; the bits of top - 1023 .. top are current, the rest is cleared on the way.
bool wire_replay_take(struct wire_replay *window, uint64_t seq)
{
	const uint64_t bit = UINT64_C(1) << (seq % 64);
	uint64_t *const word = &window->seen[seq % WIRE_REPLAY_BITS / 64];

	if (seq == 0)
		return false;
	if (seq > window->top) {
		if (seq - window->top >= WIRE_REPLAY_BITS) {
			memset(window->seen, 0, sizeof(window->seen));
		} else {
			for (uint64_t s = window->top + 1; s < seq; s++)
				window->seen[s % WIRE_REPLAY_BITS / 64] &=
					~(UINT64_C(1) << (s % 64));
		}
		window->top = seq;
		*word |= bit;
		return true;
	}
	if (window->top - seq >= WIRE_REPLAY_BITS || (*word & bit) != 0)
		return false;
	*word |= bit;
	return true;
}
