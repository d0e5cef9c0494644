/* SPDX-License-Identifier: BSD-3-Clause */
// The handshake that opens every connection between meta processes, before anybody else reads a byte of
// it. Pure: bytes in, bytes and a verdict out; no socket, clock or random source. Context: the loop, or a
// test.
//
//   dialer                                            acceptor
//   HELLO     kind, cluster, from, to, nonce, address ->
//             <- CHALLENGE  kind, from, to, nonce, tag over both messages
//   PROOF     tag over both messages ->
//             <- WELCOME    tag over both messages, or REFUSED reason
//
// Each message opens with 8 bytes: magic, version u16, type u8, kind or reason u8; all little-endian. A tag
// is HMAC-SHA256 with the cluster's key over a label of its own (accept, dial, welcome), the whole HELLO
// and the CHALLENGE up to its tag: both nonces, both ids and the address. Without a key every tag is zero.
// Nothing sent to a peer that has not proved itself is longer than what it sent.
//
// It proves that the other side holds the cluster's key, now. Which node it is, is its word: all hold the
// same key. What follows on the stream is clear text without tags: who can write into a stream on its way
// is not kept out by this.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define HELLO_VERSION 1u
#define HELLO_NONCE_BYTES 32u
#define HELLO_TAG_BYTES 32u
#define HELLO_KEY_BYTES 32u
#define HELLO_ADDRESS_BYTES 64u
#define HELLO_HEAD_BYTES 8u
#define HELLO_BYTES_MAX 128u  // the longest message: HELLO
#define HELLO_CHALLENGE_BYTES 88u
#define HELLO_PROOF_BYTES 40u  // WELCOME too
#define HELLO_SEEN_COUNT 512u  // nonces of dialers remembered

enum hello_kind {
	HELLO_RAFT = 1,  // given to the library
	HELLO_SIDE = 2,  // frames of raft_side.h
};

// X(enumerator, "name"): why a connection was refused; the number travels in REFUSED.
#define HELLO_REFUSALS(X) \
	X(HELLO_OK, "none") \
	X(HELLO_MALFORMED, "malformed") \
	X(HELLO_OTHER_VERSION, "other protocol version") \
	X(HELLO_OTHER_CLUSTER, "other cluster id") \
	X(HELLO_OTHER_NODE, "another node than the one called") \
	X(HELLO_REFLECTED, "own node id or nonce came back") \
	X(HELLO_OTHER_KEY, "other cluster key") \
	X(HELLO_REPLAYED, "replayed") \
	X(HELLO_NOT_MEMBER, "not a member of the group") \
	X(HELLO_OTHER_ADDRESS, "another address than the group's for this id") \
	X(HELLO_NO_ROOM, "too many connections") \
	X(HELLO_TIMED_OUT, "timed out") \
	X(HELLO_CLOSED, "closed in the middle")

enum hello_refusal {
#define X(id, name) id,
	HELLO_REFUSALS(X)
#undef X
		HELLO_REFUSAL_COUNT
};
const char *hello_refusal_name(enum hello_refusal refusal);

// Who speaks.
struct hello_self {
	uint64_t node_id, cluster_id;
	bool authenticated;
	uint8_t key[HELLO_KEY_BYTES];
	char address[HELLO_ADDRESS_BYTES];  // literal, where others reach this node; "" for none
};

// Nonces of dialers that were let in lately: one of them again is a replay.
struct hello_seen {
	uint32_t next;
	uint8_t nonce[HELLO_SEEN_COUNT][16];
};

enum hello_step {
	HELLO_MORE,  // send `out`, then read what hello_need() says
	HELLO_PROVEN,  // acceptor: the peer is who it says; call hello_admit
	HELLO_DONE,  // send `out`; the stream is the user's from the next byte on
	HELLO_REFUSED,  // send `out`, then close; h->refusal says why
};

struct hello_out {
	uint32_t len;
	uint8_t bytes[HELLO_BYTES_MAX];
};

struct hello {
	const struct hello_self *self;
	struct hello_seen *seen;
	uint8_t dials;
	uint8_t state;
	uint8_t kind;  // enum hello_kind
	uint8_t refusal;  // enum hello_refusal
	uint8_t told;  // the peer refused, not we
	uint32_t in_len;
	uint64_t peer_id;  // dialer: 0 until known, when it was dialled by address alone
	char peer_address[HELLO_ADDRESS_BYTES];  // acceptor: what the dialer says
	uint8_t in[HELLO_BYTES_MAX];
	uint8_t hello[HELLO_BYTES_MAX];  // the transcript
	uint8_t challenge[HELLO_CHALLENGE_BYTES];
};

// Opens as the dialer of `peer_id` (0: whoever answers); `out` is the first message. `self` and `seen`
// must outlive `h`; `nonce` must be random and fresh.
void hello_dial(struct hello *h, const struct hello_self *self, enum hello_kind kind,
	uint64_t peer_id, const uint8_t nonce[HELLO_NONCE_BYTES], struct hello_out *out);
// Waits as the acceptor.
void hello_accept(struct hello *h, const struct hello_self *self, struct hello_seen *seen,
	const uint8_t nonce[HELLO_NONCE_BYTES]);
// Bytes that may be read now, 1..HELLO_BYTES_MAX: never beyond the end of the handshake. 0: none.
uint32_t hello_need(const struct hello *h);
// Takes `len` <= hello_need() bytes. Sets `out` (may be empty).
enum hello_step hello_input(
	struct hello *h, const uint8_t *bytes, uint32_t len, struct hello_out *out);
// Acceptor, after HELLO_PROVEN: lets the peer in (HELLO_OK) or not. Returns: HELLO_DONE or HELLO_REFUSED.
enum hello_step hello_admit(struct hello *h, enum hello_refusal refusal, struct hello_out *out);
