/* SPDX-License-Identifier: BSD-3-Clause */
// The handshake as a state machine over bytes; see raft_hello.h. Owns nothing. Context: the loop.
#include "raft_hello.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define MAGIC UINT32_C(0x48524754)  // "TGRH"
#define CHALLENGE_TAG (HELLO_CHALLENGE_BYTES - HELLO_TAG_BYTES)

static_assert(HELLO_HEAD_BYTES + 3 * 8 + HELLO_NONCE_BYTES + HELLO_ADDRESS_BYTES == HELLO_BYTES_MAX,
	"HELLO: head, cluster, from, to, nonce, address");
static_assert(
	HELLO_HEAD_BYTES + 2 * 8 + HELLO_NONCE_BYTES + HELLO_TAG_BYTES == HELLO_CHALLENGE_BYTES,
	"CHALLENGE: head, from, to, nonce, tag");
static_assert(HELLO_HEAD_BYTES + HELLO_TAG_BYTES == HELLO_PROOF_BYTES, "PROOF: head, tag");
static_assert(HELLO_CHALLENGE_BYTES <= HELLO_BYTES_MAX, "no answer longer than the question");
static_assert(HELLO_TAG_BYTES == crypto_auth_hmacsha256_BYTES, "the tag is HMAC-SHA256");
static_assert(HELLO_KEY_BYTES == crypto_auth_hmacsha256_KEYBYTES, "key of HMAC-SHA256");

enum type { TYPE_HELLO = 1, TYPE_CHALLENGE, TYPE_PROOF, TYPE_WELCOME, TYPE_REFUSED };
enum state { STATE_HELLO, STATE_CHALLENGE, STATE_PROOF, STATE_WELCOME, STATE_ADMIT, STATE_END };
enum label { LABEL_ACCEPT, LABEL_DIAL, LABEL_WELCOME };

// Offsets in HELLO and CHALLENGE.
enum { AT_CLUSTER = 8, AT_FROM = 16, AT_TO = 24, AT_NONCE = 32, AT_ADDRESS = 64 };
enum { AT_C_FROM = 8, AT_C_TO = 16, AT_C_NONCE = 24 };

const char *hello_refusal_name(enum hello_refusal refusal)
{
	static const char *const names[] = {
#define X(id, name) name,
		HELLO_REFUSALS(X)
#undef X
	};
	return (unsigned)refusal < HELLO_REFUSAL_COUNT ? names[refusal] : "unknown";
}

static void put(uint8_t *p, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *p, uint32_t bytes)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < bytes; i++)
		value |= (uint64_t)p[i] << (8 * i);
	return value;
}

static void put_head(uint8_t *p, enum type type, uint8_t argument)
{
	put(p, MAGIC, 4);
	put(p + 4, HELLO_VERSION, 2);
	p[6] = (uint8_t)type;
	p[7] = argument;
}

static void make_tag(const struct hello *h, enum label label, uint8_t tag[HELLO_TAG_BYTES])
{
	static const char labels[][16] = {"tagcast accept", "tagcast dial", "tagcast welcome"};
	crypto_auth_hmacsha256_state state;

	if (!h->self->authenticated) {
		memset(tag, 0, HELLO_TAG_BYTES);
		return;
	}
	crypto_auth_hmacsha256_init(&state, h->self->key, HELLO_KEY_BYTES);
	crypto_auth_hmacsha256_update(
		&state, (const uint8_t *)labels[label], sizeof(labels[label]));
	crypto_auth_hmacsha256_update(&state, h->hello, HELLO_BYTES_MAX);
	crypto_auth_hmacsha256_update(&state, h->challenge, CHALLENGE_TAG);
	crypto_auth_hmacsha256_final(&state, tag);
	sodium_memzero(&state, sizeof(state));
}

static bool tag_fits(const struct hello *h, enum label label, const uint8_t tag[HELLO_TAG_BYTES])
{
	uint8_t own[HELLO_TAG_BYTES];

	make_tag(h, label, own);
	return sodium_memcmp(own, tag, HELLO_TAG_BYTES) == 0;
}

// Ends with a refusal of ours; the peer hears it, unless it does not speak this at all.
static enum hello_step refuse(struct hello *h, enum hello_refusal refusal, struct hello_out *out)
{
	h->state = STATE_END;
	h->refusal = (uint8_t)refusal;
	if (!h->dials && refusal != HELLO_MALFORMED) {
		put_head(out->bytes, TYPE_REFUSED, (uint8_t)refusal);
		out->len = HELLO_HEAD_BYTES;
	}
	return HELLO_REFUSED;
}

static bool was_seen(const struct hello_seen *seen, const uint8_t *nonce)
{
	for (uint32_t i = 0; i < HELLO_SEEN_COUNT; i++)
		if (memcmp(seen->nonce[i], nonce, sizeof(seen->nonce[i])) == 0)
			return true;
	return false;
}

static void remember(struct hello_seen *seen, const uint8_t *nonce)
{
	memcpy(seen->nonce[seen->next], nonce, sizeof(seen->nonce[0]));
	seen->next = (seen->next + 1) % HELLO_SEEN_COUNT;
}

void hello_dial(struct hello *h, const struct hello_self *self, enum hello_kind kind,
	uint64_t peer_id, const uint8_t nonce[HELLO_NONCE_BYTES], struct hello_out *out)
{
	memset(h, 0, sizeof(*h));
	h->self = self;
	h->dials = 1;
	h->kind = (uint8_t)kind;
	h->peer_id = peer_id;
	h->state = STATE_CHALLENGE;
	put_head(h->hello, TYPE_HELLO, h->kind);
	put(h->hello + AT_CLUSTER, self->cluster_id, 8);
	put(h->hello + AT_FROM, self->node_id, 8);
	put(h->hello + AT_TO, peer_id, 8);
	memcpy(h->hello + AT_NONCE, nonce, HELLO_NONCE_BYTES);
	memcpy(h->hello + AT_ADDRESS, self->address,
		strnlen(self->address, HELLO_ADDRESS_BYTES - 1));
	memcpy(out->bytes, h->hello, HELLO_BYTES_MAX);
	out->len = HELLO_BYTES_MAX;
}

void hello_accept(struct hello *h, const struct hello_self *self, struct hello_seen *seen,
	const uint8_t nonce[HELLO_NONCE_BYTES])
{
	memset(h, 0, sizeof(*h));
	h->self = self;
	h->seen = seen;
	h->state = STATE_HELLO;
	memcpy(h->challenge + AT_C_NONCE, nonce, HELLO_NONCE_BYTES);
}

// Whole length of the message whose head is in h->in; 0: it is not expected now.
static uint32_t length(const struct hello *h)
{
	static const uint32_t lengths[] = {[TYPE_HELLO] = HELLO_BYTES_MAX,
		[TYPE_CHALLENGE] = HELLO_CHALLENGE_BYTES,
		[TYPE_PROOF] = HELLO_PROOF_BYTES,
		[TYPE_WELCOME] = HELLO_PROOF_BYTES,
		[TYPE_REFUSED] = HELLO_HEAD_BYTES};
	static const uint8_t expected[] = {[STATE_HELLO] = TYPE_HELLO,
		[STATE_CHALLENGE] = TYPE_CHALLENGE,
		[STATE_PROOF] = TYPE_PROOF,
		[STATE_WELCOME] = TYPE_WELCOME};
	uint8_t type = h->in[6];

	if (type == TYPE_REFUSED)
		return h->dials ? HELLO_HEAD_BYTES : 0;
	return type == expected[h->state] ? lengths[type] : 0;
}

uint32_t hello_need(const struct hello *h)
{
	if (h->state >= STATE_ADMIT)
		return 0;
	if (h->in_len < HELLO_HEAD_BYTES)
		return HELLO_HEAD_BYTES - h->in_len;
	return length(h) - h->in_len;
}

static enum hello_step on_hello(struct hello *h, struct hello_out *out)
{
	const char *address = (const char *)h->in + AT_ADDRESS;

	memcpy(h->hello, h->in, HELLO_BYTES_MAX);
	h->peer_id = get(h->in + AT_FROM, 8);
	if ((h->kind != HELLO_RAFT && h->kind != HELLO_SIDE) || h->peer_id == 0 ||
		strnlen(address, HELLO_ADDRESS_BYTES) == HELLO_ADDRESS_BYTES)
		return refuse(h, HELLO_MALFORMED, out);
	memcpy(h->peer_address, address, HELLO_ADDRESS_BYTES);
	if (get(h->in + AT_CLUSTER, 8) != h->self->cluster_id)
		return refuse(h, HELLO_OTHER_CLUSTER, out);
	if (h->peer_id == h->self->node_id)
		return refuse(h, HELLO_REFLECTED, out);
	if (get(h->in + AT_TO, 8) != 0 && get(h->in + AT_TO, 8) != h->self->node_id)
		return refuse(h, HELLO_OTHER_NODE, out);
	if (was_seen(h->seen, h->in + AT_NONCE))
		return refuse(h, HELLO_REPLAYED, out);
	put_head(h->challenge, TYPE_CHALLENGE, h->kind);
	put(h->challenge + AT_C_FROM, h->self->node_id, 8);
	put(h->challenge + AT_C_TO, h->peer_id, 8);
	make_tag(h, LABEL_ACCEPT, h->challenge + CHALLENGE_TAG);
	memcpy(out->bytes, h->challenge, HELLO_CHALLENGE_BYTES);
	out->len = HELLO_CHALLENGE_BYTES;
	h->state = STATE_PROOF;
	return HELLO_MORE;
}

static enum hello_step on_challenge(struct hello *h, struct hello_out *out)
{
	uint64_t from = get(h->in + AT_C_FROM, 8);

	memcpy(h->challenge, h->in, HELLO_CHALLENGE_BYTES);
	if (h->in[7] != h->kind || from == 0 || get(h->in + AT_C_TO, 8) != h->self->node_id)
		return refuse(h, HELLO_MALFORMED, out);
	if (from == h->self->node_id ||
		memcmp(h->in + AT_C_NONCE, h->hello + AT_NONCE, HELLO_NONCE_BYTES) == 0)
		return refuse(h, HELLO_REFLECTED, out);
	if (h->peer_id != 0 && h->peer_id != from)
		return refuse(h, HELLO_OTHER_NODE, out);
	if (!tag_fits(h, LABEL_ACCEPT, h->in + CHALLENGE_TAG))
		return refuse(h, HELLO_OTHER_KEY, out);
	h->peer_id = from;
	put_head(out->bytes, TYPE_PROOF, h->kind);
	make_tag(h, LABEL_DIAL, out->bytes + HELLO_HEAD_BYTES);
	out->len = HELLO_PROOF_BYTES;
	h->state = STATE_WELCOME;
	return HELLO_MORE;
}

static enum hello_step on_proof(struct hello *h, struct hello_out *out)
{
	if (!tag_fits(h, LABEL_DIAL, h->in + HELLO_HEAD_BYTES))
		return refuse(h, HELLO_OTHER_KEY, out);
	if (was_seen(h->seen, h->hello + AT_NONCE))
		return refuse(h, HELLO_REPLAYED, out);
	remember(h->seen, h->hello + AT_NONCE);
	h->state = STATE_ADMIT;
	return HELLO_PROVEN;
}

static enum hello_step on_message(struct hello *h, struct hello_out *out)
{
	h->in_len = 0;
	switch (h->state) {
	case STATE_HELLO:
		return on_hello(h, out);
	case STATE_CHALLENGE:
		return on_challenge(h, out);
	case STATE_PROOF:
		return on_proof(h, out);
	default:
		if (h->in[7] != h->kind)
			return refuse(h, HELLO_MALFORMED, out);
		if (!tag_fits(h, LABEL_WELCOME, h->in + HELLO_HEAD_BYTES))
			return refuse(h, HELLO_OTHER_KEY, out);
		h->state = STATE_END;
		return HELLO_DONE;
	}
}

// The first 8 bytes are there. HELLO_MORE: go on with the message.
static enum hello_step on_head(struct hello *h, struct hello_out *out)
{
	if (get(h->in, 4) != MAGIC)
		return refuse(h, HELLO_MALFORMED, out);
	if (get(h->in + 4, 2) != HELLO_VERSION)
		return refuse(h, HELLO_OTHER_VERSION, out);
	if (length(h) == 0)
		return refuse(h, HELLO_MALFORMED, out);
	if (h->in[6] == TYPE_REFUSED) {
		h->told = 1;
		return refuse(h,
			h->in[7] > HELLO_OK && h->in[7] < HELLO_REFUSAL_COUNT
				? (enum hello_refusal)h->in[7]
				: HELLO_MALFORMED,
			out);
	}
	if (h->state == STATE_HELLO)
		h->kind = h->in[7];
	else if (h->state == STATE_PROOF && h->in[7] != h->kind)
		return refuse(h, HELLO_MALFORMED, out);
	return HELLO_MORE;
}

enum hello_step hello_input(
	struct hello *h, const uint8_t *bytes, uint32_t len, struct hello_out *out)
{
	bool had_head = h->in_len >= HELLO_HEAD_BYTES;

	assert(len <= hello_need(h));
	out->len = 0;
	memcpy(h->in + h->in_len, bytes, len);
	h->in_len += len;
	if (h->in_len < HELLO_HEAD_BYTES)
		return HELLO_MORE;
	if (!had_head && on_head(h, out) != HELLO_MORE)
		return HELLO_REFUSED;
	return h->in_len == length(h) ? on_message(h, out) : HELLO_MORE;
}

enum hello_step hello_admit(struct hello *h, enum hello_refusal refusal, struct hello_out *out)
{
	assert(h->state == STATE_ADMIT);
	out->len = 0;
	if (refusal != HELLO_OK)
		return refuse(h, refusal, out);
	put_head(out->bytes, TYPE_WELCOME, h->kind);
	make_tag(h, LABEL_WELCOME, out->bytes + HELLO_HEAD_BYTES);
	out->len = HELLO_PROOF_BYTES;
	h->state = STATE_END;
	return HELLO_DONE;
}
