/* SPDX-License-Identifier: BSD-3-Clause */
// Arguments of requests, checked to the last byte before anything is done. Run by the loop.
#include "metad.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	uint8_t flag;
} flag_names[] = {
	{"large", STORE_FLAG_LARGE},
	{"ban", STORE_FLAG_BAN},
	{"disband", STORE_FLAG_DISBAND},
	{"send_ban", STORE_FLAG_SEND_BAN},
	{"allow_stranger", STORE_FLAG_ALLOW_STRANGER},
};

static bool name_in(const char *name, const char *names)
{
	const size_t len = strlen(name);

	for (const char *p = names; *p != '\0';) {
		const char *end = strchrnul(p, ',');

		if ((size_t)(end - p) == len && memcmp(p, name, len) == 0)
			return true;
		p = *end == ',' ? end + 1 : end;
	}
	return false;
}

bool args_known(struct ctl_request *request, const json_t *args, const char *names)
{
	const char *key;
	json_t *value;

	json_object_foreach(
		(json_t *)args, key, value) if (!name_in(key, "cmd,id") && !name_in(key, names))
	{
		ctl_fail(request, "unknown_argument", "no argument \"%.64s\" here; there are: %s",
			key, names[0] != '\0' ? names : "none");
		return false;
	}
	return true;
}

bool args_channel(struct ctl_request *request, const json_t *args, struct channel_key *key)
{
	const json_t *type = json_object_get(args, "type");
	const char *why = "missing";
	uint8_t id[ID_LEN_MAX];
	int len;

	if (!json_is_integer(type) || json_integer_value(type) < 1 ||
		json_integer_value(type) > CHANNEL_TYPE_MAX) {
		ctl_fail(
			request, "invalid_type", "type is a number from 1 to %u", CHANNEL_TYPE_MAX);
		return false;
	}
	len = ctl_id_read(json_object_get(args, "channel"), id, &why);
	if (len < 0) {
		ctl_fail(request, "invalid_channel", "channel: %s", why);
		return false;
	}
	return channel_key_set(key, (uint8_t)json_integer_value(type), id, (uint8_t)len) == 0;
}

bool args_list(struct ctl_request *request, const json_t *args, uint8_t *list)
{
	static const char *const names[] = {"members", "deny", "allow", "temp"};
	const json_t *value = json_object_get(args, "list");

	*list = STORE_MEMBERS;
	if (value == NULL)
		return true;
	for (uint8_t i = 0; i < 4 && json_is_string(value); i++)
		if (strcmp(json_string_value(value), names[i]) == 0) {
			*list = i;
			return true;
		}
	ctl_fail(request, "invalid_list", "list is members, deny, allow or temp");
	return false;
}

bool args_flags(struct ctl_request *request, const json_t *args, uint8_t *flags)
{
	*flags = 0;
	for (size_t i = 0; i < sizeof(flag_names) / sizeof(flag_names[0]); i++) {
		const json_t *value = json_object_get(args, flag_names[i].name);

		if (value != NULL && !json_is_boolean(value)) {
			ctl_fail(
				request, "invalid_flag", "%s is true or false", flag_names[i].name);
			return false;
		}
		if (json_is_true(value))
			*flags |= flag_names[i].flag;
	}
	return true;
}

json_t *flags_json(uint8_t flags)
{
	json_t *names = json_array();

	for (size_t i = 0; i < sizeof(flag_names) / sizeof(flag_names[0]); i++)
		if (flags & flag_names[i].flag)
			json_array_append_new(names, json_string(flag_names[i].name));
	return names;
}

// UIDs of one request, packed; or why they are none.
struct packed {
	uint8_t *uids;
	uint32_t count, bytes;
	const char *code;  // NULL: all is well
	char message[96];
};

// Two passes over the array: how many bytes, and the bytes. Context: any thread.
static void pack(const json_t *uids, struct packed *packed)
{
	const size_t count = json_array_size(uids);
	const char *why = "";
	uint8_t uid[ID_LEN_MAX];
	size_t bytes = 0;

	if (!json_is_array(uids)) {
		packed->code = "invalid_uids";
		strcpy(packed->message, "uids is an array of ids");
		return;
	}
	if (count > MUTATION_UIDS_MAX) {
		packed->code = "too_many_uids";
		snprintf(packed->message, sizeof(packed->message),
			"%zu UIDs in one command, at most %u", count, MUTATION_UIDS_MAX);
		return;
	}
	for (int pass = 0; pass < 2; pass++) {
		uint8_t *out = packed->uids;

		for (size_t i = 0; i < count; i++) {
			const int len = ctl_id_read(json_array_get(uids, i), uid, &why);

			if (len < 0) {
				packed->code = "invalid_uid";
				snprintf(packed->message, sizeof(packed->message), "uids[%zu]: %s",
					i, why);
				return;
			}
			if (pass == 0) {
				bytes += 1 + (size_t)len;
				continue;
			}
			*out++ = (uint8_t)len;
			memcpy(out, uid, (size_t)len);
			out += len;
		}
		if (pass == 0)
			packed->uids = malloc(bytes + 1);
		if (packed->uids == NULL) {
			packed->code = "busy";
			strcpy(packed->message, "no memory for the UIDs");
			return;
		}
	}
	packed->count = (uint32_t)count;
	packed->bytes = (uint32_t)bytes;
}

void *args_take_uids(json_t *args)
{
	json_t *uids = json_object_get(args, "uids");
	struct packed *packed = uids == NULL ? NULL : calloc(1, sizeof(*packed));

	if (packed == NULL)
		return NULL;
	pack(uids, packed);
	json_object_set_new(args, "uids", json_null());
	return packed;
}

void args_drop_uids(void *taken)
{
	struct packed *packed = taken;

	free(packed->uids);
	free(packed);
}

bool args_uids(struct ctl_request *request, const json_t *args, struct mutation *m)
{
	struct packed *taken = ctl_request_taken(request), here = {.uids = NULL};
	struct packed *packed = taken != NULL ? taken : &here;

	if (taken == NULL)
		pack(json_object_get(args, "uids"), packed);
	if (packed->code != NULL) {
		ctl_fail(request, packed->code, "%s", packed->message);
		free(packed->uids);
	} else {
		m->uids = packed->uids;
		m->uid_count = packed->count;
		m->uids_bytes = packed->bytes;
	}
	free(taken);
	return m->uids != NULL;
}

bool args_dedup(struct ctl_request *request, const json_t *args, uint8_t dedup[STORE_DEDUP_BYTES],
	bool *given)
{
	const json_t *value = json_object_get(args, "dedup");
	uint8_t bytes[STORE_DEDUP_BYTES];
	uint64_t commit = 0, unique = 0;

	*given = value != NULL;
	if (value == NULL)
		return true;
	if (!json_is_string(value) ||
		ctl_hex_read(json_string_value(value), json_string_length(value), bytes,
			sizeof(bytes)) != STORE_DEDUP_BYTES) {
		ctl_fail(request, "invalid_dedup",
			"dedup is 32 hex digits: 16 of a commit number, 16 of your choice");
		return false;
	}
	for (int i = 0; i < 8; i++) {
		commit = commit << 8 | bytes[i];
		unique = unique << 8 | bytes[8 + i];
	}
	if (commit == 0 && unique == 0) {
		ctl_fail(request, "invalid_dedup", "dedup may not be all zero");
		return false;
	}
	store_dedup_key(dedup, commit, unique);
	return true;
}

bool args_number(struct ctl_request *request, const json_t *args, const char *name, uint64_t min,
	uint64_t max, uint64_t fallback, uint64_t *value)
{
	const json_t *number = json_object_get(args, name);

	*value = fallback;
	if (number == NULL)
		return true;
	if (!json_is_integer(number) || json_integer_value(number) < 0 ||
		(uint64_t)json_integer_value(number) < min ||
		(uint64_t)json_integer_value(number) > max) {
		ctl_fail(request, "invalid_argument", "%s is a number from %llu to %llu", name,
			(unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*value = (uint64_t)json_integer_value(number);
	return true;
}

bool args_text(
	struct ctl_request *request, const json_t *args, const char *name, char *out, size_t size)
{
	const json_t *text = json_object_get(args, name);

	if (!json_is_string(text) || json_string_length(text) == 0 ||
		json_string_length(text) >= size) {
		ctl_fail(request, "invalid_argument", "%s is a text of 1 to %zu bytes", name,
			size - 1);
		return false;
	}
	strcpy(out, json_string_value(text));
	return true;
}
