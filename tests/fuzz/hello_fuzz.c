/* SPDX-License-Identifier: BSD-3-Clause */
// Fuzz target of the handshake of drivers/raft. An input is one byte that chooses a side (bit 0: dialer,
// bit 1: with a key), one that cuts the stream, and the stream. Nothing is read past its end, nothing is
// wanted after the verdict, and an acceptor sends no more than it got before the other side is proven.
#include <stdlib.h>
#include <string.h>

#include "raft_hello.h"

#define REQUIRE(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

static struct hello_self self = {.node_id = 1, .cluster_id = 7, .address = "10.0.0.1:7400"};
static struct hello_seen seen;

static void finish(struct hello *h, enum hello_step step, struct hello_out *out)
{
	if (step == HELLO_PROVEN) {
		REQUIRE(!h->dials && !self.authenticated);
		REQUIRE(strnlen(h->peer_address, HELLO_ADDRESS_BYTES) < HELLO_ADDRESS_BYTES);
		step = hello_admit(h, HELLO_OK, out);
		REQUIRE(step == HELLO_DONE && out->len == HELLO_PROOF_BYTES);
	}
	if (step == HELLO_REFUSED)
		REQUIRE(h->refusal > HELLO_OK && h->refusal < HELLO_REFUSAL_COUNT);
	// A key is not guessed.
	if (step == HELLO_DONE)
		REQUIRE(!self.authenticated && h->peer_id != 0 && h->peer_id != self.node_id);
	REQUIRE(hello_need(h) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t nonce[HELLO_NONCE_BYTES] = {1, 2, 3};
	struct hello_out out = {0};
	enum hello_step step = HELLO_MORE;
	size_t got = 0, sent = 0;
	struct hello h;

	if (size < 2)
		return 0;
	memset(&seen, 0, sizeof(seen));
	self.authenticated = (data[0] & 2) != 0;
	if (data[0] & 1)
		hello_dial(&h, &self, HELLO_SIDE, 2, nonce, &out);
	else
		hello_accept(&h, &self, &seen, nonce);
	for (size_t at = 2; at < size && step == HELLO_MORE;) {
		uint32_t n = hello_need(&h);

		REQUIRE(n > 0 && n <= HELLO_BYTES_MAX);
		if (data[1] != 0 && n > data[1])
			n = data[1];
		if (n > size - at)
			n = (uint32_t)(size - at);
		step = hello_input(&h, data + at, n, &out);
		at += n;
		got += n;
		sent += out.len;
		REQUIRE(out.len <= HELLO_BYTES_MAX && (h.dials || sent <= got));
	}
	if (step != HELLO_MORE)
		finish(&h, step, &out);
	return 0;
}
