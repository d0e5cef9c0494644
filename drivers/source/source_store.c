/* SPDX-License-Identifier: BSD-3-Clause */
// Tags' source over the store of the meta process, one short read transaction a call.
// Thread: control core.
#include "source_store.h"

#include <errno.h>

#include "store_follow.h"

// What the ops get as their `source`.
static struct store_follow *follow_of(void *source)
{
	return source;
}

static int position(void *source, struct store_position *out)
{
	struct store_follow *f = follow_of(source);
	struct store_tx tx;
	int rc = store_follow_begin(f, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_position(&tx, out);
	store_follow_end(f, &tx);
	return rc == -ENOENT ? -EAGAIN : rc;
}

static int next_channel(
	void *source, const struct channel_key *cursor, struct store_channel *channel)
{
	struct store_follow *f = follow_of(source);
	struct store_tx tx;
	int rc = store_follow_begin(f, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_next_channel(&tx, cursor, channel);
	store_follow_end(f, &tx);
	return rc;
}

static int page(void *source, const struct channel_key *key, enum store_list list,
	struct id_view after, uint32_t max, uint8_t *uids, uint32_t cap, struct store_page *out)
{
	struct store_follow *f = follow_of(source);
	struct store_tx tx;
	int rc = store_follow_begin(f, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_page(&tx, key, list, after, max, uids, cap, out);
	store_follow_end(f, &tx);
	return rc;
}

// The folder's files may be other ones now: map them afresh.
static int reopen(void *source)
{
	struct store_follow *f = follow_of(source);
	struct store_tx tx;

	store_follow_drop(f);

	const int rc = store_follow_begin(f, &tx);

	if (rc == 0)
		store_follow_end(f, &tx);
	return rc;
}

int source_store_open(const char *dir, uint64_t map_bytes, struct source_store **source)
{
	struct store_follow *f;
	const int rc = store_follow_open(dir, map_bytes, &f);

	*source = (struct source_store *)f;
	return rc;
}

void source_store_close(struct source_store *source)
{
	store_follow_close(follow_of(source));
}

const struct node_source_ops source_store_ops = {
	.position = position,
	.next_channel = next_channel,
	.page = page,
	.reopen = reopen,
};
