/* SPDX-License-Identifier: BSD-3-Clause */
// Derivation of channel ids, both ways. Pure functions, any thread.
#include "channel_source.h"

#include <errno.h>
#include <stdio.h>

_Static_assert(sizeof(CHANNEL_CMD_SUFFIX) - 1 == CHANNEL_CMD_SUFFIX_BYTES, "bytes of the suffix");

struct id_view channel_source_id(struct id_view id)
{
	const uint32_t rest = id.len - CHANNEL_CMD_SUFFIX_BYTES;

	if (id.len > CHANNEL_CMD_SUFFIX_BYTES &&
		memcmp(id.bytes + rest, CHANNEL_CMD_SUFFIX, CHANNEL_CMD_SUFFIX_BYTES) == 0)
		id.len = (uint8_t)rest;
	return id;
}

struct id_view channel_root_id(struct id_view id)
{
	uint8_t was;

	do {
		was = id.len;
		id = channel_source_id(id);
	} while (id.len != was);
	return id;
}

bool channel_is_derived(const struct channel_key *key)
{
	return channel_source_id(channel_key_id(key)).len != key->len;
}

void channel_source(const struct channel_key *key, struct channel_key *source)
{
	const struct id_view id = channel_source_id(channel_key_id(key));

	source->type = key->type;
	source->len = id.len;
	memmove(source->bytes, id.bytes, id.len);
}

int channel_derive(const struct channel_key *key, struct channel_key *derived)
{
	const bool again = channel_is_derived(key);

	if (!again && key->len > ID_LEN_MAX - CHANNEL_CMD_SUFFIX_BYTES)
		return -ENAMETOOLONG;
	derived->type = key->type;
	derived->len = key->len;
	memmove(derived->bytes, key->bytes, key->len);
	if (again)
		return 0;
	memcpy(derived->bytes + key->len, CHANNEL_CMD_SUFFIX, CHANNEL_CMD_SUFFIX_BYTES);
	derived->len = (uint8_t)(key->len + CHANNEL_CMD_SUFFIX_BYTES);
	return 0;
}

// --- person -------------------------------------------------------------------------------------------

// Greater by bytes, a longer one after its own beginning.
static bool greater(struct id_view a, struct id_view b)
{
	const int order = memcmp(a.bytes, b.bytes, a.len < b.len ? a.len : b.len);

	return order != 0 ? order > 0 : a.len > b.len;
}

static bool uid_sound(struct id_view uid)
{
	return uid.len != 0 && memchr(uid.bytes, '@', uid.len) == NULL;
}

int channel_person(struct id_view a, struct id_view b, struct channel_key *key)
{
	const uint32_t of_a = id_crc32(a), of_b = id_crc32(b);
	const bool swap = of_a != of_b ? of_b > of_a : greater(b, a);
	const struct id_view left = swap ? b : a, right = swap ? a : b;

	if (!uid_sound(a) || !uid_sound(b))
		return -EINVAL;
	if (left.len + 1u + right.len > ID_LEN_MAX)
		return -ENAMETOOLONG;
	key->type = CHANNEL_PERSON;
	key->len = (uint8_t)(left.len + 1u + right.len);
	memcpy(key->bytes, left.bytes, left.len);
	key->bytes[left.len] = '@';
	memcpy(key->bytes + left.len + 1, right.bytes, right.len);
	return 0;
}

int channel_person_split(struct id_view id, struct id_view *left, struct id_view *right)
{
	const uint8_t *const at = id.len == 0 ? NULL : memchr(id.bytes, '@', id.len);

	if (at == NULL)
		return -EINVAL;
	*left = id_view_of(id.bytes, (uint8_t)(at - id.bytes));
	*right = id_view_of(at + 1, (uint8_t)(id.len - left->len - 1u));
	return uid_sound(*left) && uid_sound(*right) ? 0 : -EINVAL;
}

int channel_person_normalise(struct id_view sender, struct id_view id, struct channel_key *key)
{
	struct id_view left, right;

	if (id.len != 0 && memchr(id.bytes, '@', id.len) == NULL)
		return channel_person(sender, id, key);
	if (channel_person_split(id, &left, &right) != 0)
		return -EINVAL;
	if (!id_equal(sender, left) && !id_equal(sender, right))
		return -EINVAL;
	return channel_person(left, right, key);
}

// --- request-scoped sets --------------------------------------------------------------------------------

static bool blank(uint8_t c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct id_view trimmed(struct id_view uid)
{
	while (uid.len != 0 && blank(uid.bytes[0])) {
		uid.bytes++;
		uid.len--;
	}
	while (uid.len != 0 && blank(uid.bytes[uid.len - 1]))
		uid.len--;
	return uid;
}

static uint64_t fnv1a(uint64_t hash, const uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static bool came_before(const struct id_view *uid, uint32_t i, struct id_view one)
{
	for (uint32_t j = 0; j < i; j++)
		if (id_equal(trimmed(uid[j]), one))
			return true;
	return false;
}

int channel_request(const struct id_view *uid, uint32_t count, struct channel_key *source)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	char text[24];
	bool any = false;

	for (uint32_t i = 0; i < count; i++) {
		const struct id_view one = trimmed(uid[i]);

		if (one.len == 0 || came_before(uid, i, one))
			continue;
		if (any)
			hash = fnv1a(hash, (const uint8_t *)",", 1);
		hash = fnv1a(hash, one.bytes, one.len);
		any = true;
	}
	if (!any)
		return -EINVAL;
	return channel_key_set(source, CHANNEL_TEMP, text,
		(uint8_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)hash));
}
