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
#define TOMBSTONES_PER_PAGE 20000u  // channels looked at for one page

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

void metad_channel_list(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	const json_t *removed = json_object_get(args, "removed");
	struct channel_key key;
	struct store_tx tx;
	json_t *rows, *cursor;
	uint64_t limit;
	int rc;

	if (!args_known(request, args, "cursor,limit,removed") ||
		!args_number(request, args, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit) ||
		!read_cursor(request, json_object_get(args, "cursor"), &key))
		return;
	if (removed != NULL && !json_is_boolean(removed)) {
		ctl_fail(request, "invalid_argument", "removed is true or false");
		return;
	}
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
	ctl_reply(request,
		json_pack("{s:[s,s,s,s,s,s],s:o,s:o}", "columns", "type", "channel", "members",
			"smv", "flags", "removed", "rows", rows, "cursor", cursor));
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

	if (!args_known(request, args, "type,channel,list,cursor,limit") ||
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

static void set(json_t *fields, const char *name, uint64_t value)
{
	json_object_set_new(fields, name, json_integer((json_int_t)value));
}

void metad_status(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	json_t *f = json_object();
	struct store_lmdb_info db;
	struct meta_queue_info queue;
	struct meta_feed_info feed;
	struct cons_info cons;

	if (!args_known(request, args, "")) {
		json_decref(f);
		return;
	}
	role_take_meta();
	meta_queue_info(metad->queue, &queue);
	meta_feed_info(metad->feed, &feed);
	role_drop_meta();
	metad->cons_ops->info(metad->cons, &cons);
	memset(&db, 0, sizeof(db));
	(void)store_lmdb_info(metad->state.db, &db);
	set(f, "node", metad->options.node_id);
	set(f, "cluster", metad->options.cluster_id);
	set(f, "leader", cons.leader_id);
	set(f, "term", cons.term);
	set(f, "voters", cons.voters);
	set(f, "uptime_s", (time_now_ns() - metad->started_ns) / NS_PER_S);
	set(f, "commit", metad->state.position.commit);
	set(f, "applied", metad->state.position.applied);
	set(f, "generation", metad->state.position.generation);
	set(f, "subscribers", feed.subscribers);
	set(f, "fast_process", feed.own);
	set(f, "feed_least_sent", feed.least_sent);
	set(f, "feed_least_applied", feed.least_applied);
	set(f, "feed_resyncs", feed.resyncs);
	set(f, "feed_lagged", feed.lagged);
	set(f, "feed_protocol_errors", feed.protocol_errors);
	set(f, "mutations", queue.submitted);
	set(f, "mutations_applied", queue.applied);
	set(f, "mutations_unapplied", queue.unapplied);
	set(f, "mutations_refused", queue.refused);
	set(f, "mutations_timed_out", queue.timed_out);
	set(f, "pending", queue.pending);
	set(f, "pending_bytes", queue.pending_bytes);
	set(f, "waiting_applied", queue.apply_waiting);
	set(f, "waiting_stage", queue.gated);
	set(f, "stages_open", queue.stages_open);
	set(f, "transactions", metad->state.transactions);
	set(f, "transaction_max_us", metad->state.commit_max_ns / NS_PER_US);
	set(f, "clients", ctl_server_clients(metad->ctl));
	set(f, "map_bytes", db.map_bytes);
	set(f, "map_used_bytes", db.used_bytes);
	set(f, "readers", db.readers);
	set(f, "readers_max", db.readers_max);
	ctl_reply(request, json_pack("{s:o}", "fields", f));
}
