/* SPDX-License-Identifier: BSD-3-Clause */
// Tags' source over the store of the meta process, one short read transaction a call.
// Thread: control core.
#include "source_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store_lmdb.h"

struct source_store {
	struct store_lmdb *db;  // NULL until the store exists
	uint64_t map_bytes;
	char dir[];
};

// Begins a read. -EAGAIN: the meta process has not made the store yet.
static int begin(struct source_store *s, struct store_tx *tx)
{
	const char *why;

	if (s->db == NULL) {
		const int rc = store_lmdb_open(s->dir, s->map_bytes, false, true, &s->db, &why);

		if (rc != 0)
			return rc == -ENOENT ? -EAGAIN : rc;
	}
	return store_lmdb_read_begin(s->db, tx);
}

static int position(void *source, struct store_position *out)
{
	struct source_store *s = source;
	struct store_tx tx;
	int rc = begin(s, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_position(&tx, out);
	store_lmdb_read_end(s->db, &tx);
	return rc == -ENOENT ? -EAGAIN : rc;
}

static int next_channel(
	void *source, const struct channel_key *cursor, struct store_channel *channel)
{
	struct source_store *s = source;
	struct store_tx tx;
	int rc = begin(s, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_next_channel(&tx, cursor, channel);
	store_lmdb_read_end(s->db, &tx);
	return rc;
}

static int page(void *source, const struct channel_key *key, enum store_list list,
	struct id_view after, uint32_t max, uint8_t *uids, uint32_t cap, struct store_page *out)
{
	struct source_store *s = source;
	struct store_tx tx;
	int rc = begin(s, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_page(&tx, key, list, after, max, uids, cap, out);
	store_lmdb_read_end(s->db, &tx);
	return rc;
}

// The folder's files may be other ones now: map them afresh.
static int reopen(void *source)
{
	struct source_store *s = source;
	struct store_tx tx;

	store_lmdb_close(s->db);
	s->db = NULL;

	const int rc = begin(s, &tx);

	if (rc == 0)
		store_lmdb_read_end(s->db, &tx);
	return rc;
}

int source_store_open(const char *dir, uint64_t map_bytes, struct source_store **source)
{
	const size_t len = strlen(dir) + 1;
	struct source_store *s = calloc(1, sizeof(*s) + len);

	*source = s;
	if (s == NULL)
		return -ENOMEM;
	s->map_bytes = map_bytes;
	memcpy(s->dir, dir, len);
	return 0;
}

void source_store_close(struct source_store *source)
{
	if (source == NULL)
		return;
	store_lmdb_close(source->db);
	free(source);
}

const struct node_source_ops source_store_ops = {
	.position = position,
	.next_channel = next_channel,
	.page = page,
	.reopen = reopen,
};
