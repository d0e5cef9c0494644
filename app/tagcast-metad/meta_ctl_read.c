/* SPDX-License-Identifier: BSD-3-Clause */
// Commands of meta.sock that only look: pages of channels and members, the status. Each is one short read
// transaction. Run by the loop.
#include "metad.h"

#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

#define PAGE_DEFAULT 1000u
#define PAGE_MAX 1000u
#define TOMBSTONES_PER_PAGE 4096u  // channels looked at for one page

static json_t *channel_fields(const struct store_channel *channel)
{
	return json_pack("{s:i,s:o,s:I,s:I,s:o,s:b}", "type", (int)channel->key.type, "channel",
		ctl_id_json(channel_key_id(&channel->key)), "members", (json_int_t)channel->members,
		"smv", (json_int_t)channel->smv, "flags", flags_json(channel->flags), "removed",
		(int)channel->removed);
}

static json_t *channel_row(const struct store_channel *channel)
{
	return json_pack("[i,o,I,I,o,b]", (int)channel->key.type,
		ctl_id_json(channel_key_id(&channel->key)), (json_int_t)channel->members,
		(json_int_t)channel->smv, flags_json(channel->flags), (int)channel->removed);
}

// A cursor is [type, id]: the last channel seen.
static bool read_cursor(struct ctl_request *request, const json_t *cursor, struct channel_key *key)
{
	const json_t *type = json_array_get(cursor, 0);
	const char *why;
	uint8_t id[ID_LEN_MAX];
	int len;

	memset(key, 0, sizeof(*key));
	if (cursor == NULL || json_is_null(cursor))
		return true;
	len = ctl_id_read(json_array_get(cursor, 1), id, &why);
	if (json_array_size(cursor) != 2 || !json_is_integer(type) ||
		json_integer_value(type) < 1 || json_integer_value(type) > CHANNEL_TYPE_MAX ||
		len < 0) {
		ctl_fail(request, "invalid_cursor", "cursor is what the page before gave");
		return false;
	}
	return channel_key_set(key, (uint8_t)json_integer_value(type), id, (uint8_t)len) == 0;
}

// Fills `rows`; `key` moves along. Returns: 0: more may follow, -ENOENT: the end, other -errno.
static int list_rows(
	struct store_tx *tx, struct channel_key *key, uint64_t limit, bool removed, json_t *rows)
{
	for (uint32_t looked = 0; looked < TOMBSTONES_PER_PAGE && json_array_size(rows) < limit;
		looked++) {
		struct store_channel channel;
		const int rc = store_read_next_channel(tx, key, &channel);

		if (rc != 0)
			return rc;
		*key = channel.key;
		if (!channel.removed || removed)
			json_array_append_new(rows, channel_row(&channel));
	}
	return 0;
}

// What is here is good enough to read: a group, and new enough when that was asked for.
static bool may_read(struct metad *metad, struct ctl_request *request, metad_handler handler,
	const json_t *args) META_ONLY;
static bool may_read(
	struct metad *metad, struct ctl_request *request, metad_handler handler, const json_t *args)
{
	if (metad->group != METAD_MEMBER) {
		ctl_fail(request, "not_ready",
			"no group yet: tagcastctl meta bootstrap, or meta join --via");
		return false;
	}
	return !metad_linearizable(metad, request, handler, args);
}

void metad_channel_list(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_channel_list(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	const json_t *removed = json_object_get(args, "removed");
	struct channel_key key;
	struct store_tx tx;
	json_t *rows, *cursor;
	uint64_t limit;
	int rc;

	if (!args_known(request, args, "cursor,limit,removed,linearizable") ||
		!args_number(request, args, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit) ||
		!read_cursor(request, json_object_get(args, "cursor"), &key))
		return;
	if (removed != NULL && !json_is_boolean(removed)) {
		ctl_fail(request, "invalid_argument", "removed is true or false");
		return;
	}
	if (!may_read(metad, request, metad_channel_list, args))
		return;
	rows = json_array();
	rc = meta_state_read(&metad->state, &tx);
	if (rc == 0) {
		rc = list_rows(&tx, &key, limit, json_is_true(removed), rows);
		meta_state_read_end(&metad->state, &tx);
	}
	if (rc != 0 && rc != -ENOENT) {
		json_decref(rows);
		ctl_fail(request, "internal", "cannot read the store: %s", strerror(-rc));
		return;
	}
	cursor = rc == -ENOENT
			 ? json_null()
			 : json_pack("[i,o]", (int)key.type, ctl_id_json(channel_key_id(&key)));
	ctl_reply(request, json_pack("{s:[s,s,s,s,s,s],s:o,s:o,s:I}", "columns", "type", "channel",
				   "members", "smv", "flags", "removed", "rows", rows, "cursor",
				   cursor, "commit", (json_int_t)metad->state.position.commit));
}

static json_t *members_json(const uint8_t *uids, const struct store_page *page)
{
	const uint8_t *p = uids;
	json_t *members = json_array();
	struct id_view uid;

	while (store_uids_next(&p, uids + page->bytes_used, &uid))
		json_array_append_new(members, ctl_id_json(uid));
	return members;
}

// Reads one page. Returns: as store_read_page.
static int show_page(struct metad *metad, const struct channel_key *key, uint8_t list,
	uint32_t limit, struct id_view after, struct store_channel *channel, uint8_t *uids,
	struct store_page *page)
{
	struct store_tx tx;
	int rc = meta_state_read(&metad->state, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_channel(&tx, key, channel);
	if (rc == 0 && channel->removed)
		rc = -ENOENT;
	if (rc == 0)
		rc = store_read_page(&tx, key, list, after, limit, uids, PAGE_MAX * 256u, page);
	meta_state_read_end(&metad->state, &tx);
	return rc;
}

void metad_channel_show(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_channel_show(void *ctx, struct ctl_request *request, const json_t *args)
{
	const json_t *cursor = json_object_get(args, "cursor");
	const char *why = "";
	struct store_channel channel;
	struct store_page page;
	struct channel_key key;
	uint8_t after[ID_LEN_MAX], list, *uids;
	uint64_t limit;
	int len = 0, rc;

	if (!args_known(request, args, "type,channel,list,cursor,limit,linearizable") ||
		!args_channel(request, args, &key) || !args_list(request, args, &list) ||
		!args_number(request, args, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit))
		return;
	if (cursor != NULL && !json_is_null(cursor)) {
		len = ctl_id_read(cursor, after, &why);
		if (len < 0) {
			ctl_fail(request, "invalid_cursor", "cursor: %s", why);
			return;
		}
	}
	if (!may_read(ctx, request, metad_channel_show, args))
		return;
	uids = malloc(PAGE_MAX * 256u);
	rc = uids == NULL ? -ENOMEM
			  : show_page(ctx, &key, list, (uint32_t)limit,
				    id_view_of(after, (uint8_t)len), &channel, uids, &page);
	if (rc == -ENOENT) {
		ctl_fail(request, "not_found", "no such channel");
	} else if (rc != 0) {
		ctl_fail(request, "internal", "cannot read the store: %s", strerror(-rc));
	} else {
		ctl_reply(request,
			json_pack("{s:o,s:o,s:I,s:o}", "fields", channel_fields(&channel),
				"members", members_json(uids, &page), "commit",
				(json_int_t)page.commit, "cursor",
				page.last ? json_null()
					  : ctl_id_json(id_view_of(page.next, page.next_len))));
	}
	free(uids);
}
