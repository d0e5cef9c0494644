/* SPDX-License-Identifier: BSD-3-Clause */
// Skip lists with an undo list. Owns all rows. One thread.
#include "store_map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS 20u

struct node {
	uint8_t *value;
	uint32_t value_len, key_len;
	uint32_t levels;
	struct node **next;  // levels of them, behind the key
	uint8_t key[];
};

struct table {
	struct node *head[LEVELS];
	uint64_t rows;
};

// What a row was before the first write of this step of the transaction.
struct undo {
	enum store_table table;
	uint8_t *key, *value;  // value NULL: absent
	uint32_t key_len, value_len;
};

struct store_map {
	struct table table[STORE_TABLES];
	struct undo *undo;
	uint32_t undo_count, undo_cap;
	void **views;  // copies handed out since the last write
	uint32_t view_count, view_cap;
	bool writing;
	uint64_t calls, fail_at, random;
	int fail_rc;
	bool failed;
};

static void *copy_of(const void *p, uint32_t len)
{
	void *c = malloc(len == 0 ? 1 : len);

	if (c == NULL)
		abort();
	if (len != 0)
		memcpy(c, p, len);
	return c;
}

static int order(const struct node *n, struct store_bytes key)
{
	const uint32_t min = n->key_len < key.len ? n->key_len : key.len;
	const int c = min == 0 ? 0 : memcmp(n->key, key.p, min);

	return c != 0 ? c : n->key_len < key.len ? -1 : n->key_len > key.len;
}

// Links of the last node below `key` at each level; returns that node at level 0 (NULL: none).
static struct node *find(struct table *t, struct store_bytes key, struct node **links[LEVELS])
{
	struct node *at = NULL;

	for (uint32_t level = LEVELS; level-- > 0;) {
		struct node **link = at == NULL ? &t->head[level] : &at->next[level];

		while (*link != NULL && order(*link, key) < 0) {
			at = *link;
			link = &at->next[level];
		}
		links[level] = link;
	}
	return at;
}

static void insert(struct store_map *m, struct table *t, struct node ***links,
	struct store_bytes key, struct store_bytes value)
{
	uint32_t levels = 1;

	m->random = m->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	for (uint64_t r = m->random >> 20; (r & 3) == 0 && levels < LEVELS; r >>= 2)
		levels++;

	const size_t links_at = (sizeof(struct node) + key.len + 7) & ~(size_t)7;
	struct node *n = malloc(links_at + levels * sizeof(struct node *));

	if (n == NULL)
		abort();
	n->next = (struct node **)(void *)((uint8_t *)n + links_at);
	n->levels = levels;
	n->key_len = key.len;
	memcpy(n->key, key.p, key.len);
	n->value = copy_of(value.p, value.len);
	n->value_len = value.len;
	for (uint32_t i = 0; i < levels; i++) {
		n->next[i] = *links[i];
		*links[i] = n;
	}
	t->rows++;
}

static void erase(struct table *t, struct node ***links, struct node *n)
{
	for (uint32_t i = 0; i < n->levels; i++)
		*links[i] = n->next[i];
	free(n->value);
	free(n);
	t->rows--;
}

static void set(struct store_map *m, enum store_table id, struct store_bytes key,
	const uint8_t *value, uint32_t value_len)
{
	struct table *t = &m->table[id];
	struct node **links[LEVELS];

	find(t, key, links);

	struct node *n = *links[0];
	const bool there = n != NULL && order(n, key) == 0;

	if (value == NULL) {
		if (there)
			erase(t, links, n);
	} else if (there) {
		uint8_t *copy = copy_of(value, value_len);

		free(n->value);
		n->value = copy;
		n->value_len = value_len;
	} else {
		insert(m, t, links, key, (struct store_bytes){value, value_len});
	}
}

static void *grow(void *items, uint32_t count, uint32_t *cap, size_t item)
{
	if (count < *cap)
		return items;
	*cap = *cap == 0 ? 64 : *cap * 2;
	items = realloc(items, *cap * item);
	if (items == NULL)
		abort();
	return items;
}

static void drop_views(struct store_map *m)
{
	for (uint32_t i = 0; i < m->view_count; i++)
		free(m->views[i]);
	m->view_count = 0;
}

static void *view(struct store_map *m, const void *p, uint32_t len)
{
	void *c;

	if (!m->writing)
		return (void *)(uintptr_t)p;
	c = copy_of(p, len);
	m->views = grow(m->views, m->view_count, &m->view_cap, sizeof(*m->views));
	m->views[m->view_count++] = c;
	return c;
}

static void give(struct store_map *m, const struct node *n, struct store_bytes *key,
	struct store_bytes *value)
{
	if (key != NULL)
		*key = (struct store_bytes){view(m, n->key, n->key_len), n->key_len};
	*value = (struct store_bytes){view(m, n->value, n->value_len), n->value_len};
}

static int call(struct store_map *m)
{
	m->calls++;
	if (m->fail_at == 0 || m->calls != m->fail_at)
		return 0;
	m->failed = true;
	return m->fail_rc;
}

static int op_get(void *tx, enum store_table t, struct store_bytes key, struct store_bytes *value)
{
	struct store_map *m = tx;
	struct node **links[LEVELS];
	const int rc = call(m);

	if (rc != 0)
		return rc;
	find(&m->table[t], key, links);
	if (*links[0] == NULL || order(*links[0], key) != 0)
		return -ENOENT;
	give(m, *links[0], NULL, value);
	return 0;
}

static int write_row(struct store_map *m, enum store_table t, struct store_bytes key,
	const uint8_t *value, uint32_t value_len)
{
	struct node **links[LEVELS];
	const int rc = call(m);

	assert(m->writing);
	assert(key.len >= 1 && key.len <= 511);
	if (rc != 0)
		return rc;
	find(&m->table[t], key, links);

	const struct node *n = *links[0] != NULL && order(*links[0], key) == 0 ? *links[0] : NULL;

	if (value == NULL && n == NULL)
		return -ENOENT;
	m->undo = grow(m->undo, m->undo_count, &m->undo_cap, sizeof(*m->undo));
	m->undo[m->undo_count++] = (struct undo){
		.table = t,
		.key = copy_of(key.p, key.len),
		.key_len = key.len,
		.value = n == NULL ? NULL : copy_of(n->value, n->value_len),
		.value_len = n == NULL ? 0 : n->value_len,
	};
	set(m, t, key, value, value_len);
	drop_views(m);
	return 0;
}

static int op_put(void *tx, enum store_table t, struct store_bytes key, struct store_bytes value)
{
	return write_row(tx, t, key, value.p, value.len);
}

static int op_del(void *tx, enum store_table t, struct store_bytes key)
{
	return write_row(tx, t, key, NULL, 0);
}

static int op_seek(void *tx, enum store_table t, struct store_bytes from, bool after,
	struct store_bytes *key, struct store_bytes *value)
{
	struct store_map *m = tx;
	struct node **links[LEVELS];
	const int rc = call(m);

	if (rc != 0)
		return rc;
	find(&m->table[t], from, links);

	const struct node *n = *links[0];

	if (n != NULL && after && order(n, from) == 0)
		n = n->next[0];
	if (n == NULL)
		return -ENOENT;
	give(m, n, key, value);
	return 0;
}

static int op_seek_below(void *tx, enum store_table t, struct store_bytes before,
	struct store_bytes *key, struct store_bytes *value)
{
	struct store_map *m = tx;
	struct node **links[LEVELS];
	const int rc = call(m);

	if (rc != 0)
		return rc;

	const struct node *n = find(&m->table[t], before, links);

	if (n == NULL)
		return -ENOENT;
	give(m, n, key, value);
	return 0;
}

static const struct store_backend_ops map_ops = {
	.get = op_get,
	.put = op_put,
	.del = op_del,
	.seek = op_seek,
	.seek_below = op_seek_below,
};

static void end(struct store_map *m, bool undo)
{
	assert(m->writing);
	while (m->undo_count > 0) {
		struct undo *u = &m->undo[--m->undo_count];

		if (undo)
			set(m, u->table, (struct store_bytes){u->key, u->key_len}, u->value,
				u->value_len);
		free(u->key);
		free(u->value);
	}
	drop_views(m);
	m->writing = false;
}

void store_map_begin(struct store_map *m, struct store_tx *tx)
{
	assert(!m->writing);
	m->writing = true;
	*tx = (struct store_tx){&map_ops, m};
}

void store_map_commit(struct store_map *m, struct store_tx *tx)
{
	end(m, false);
	tx->tx = NULL;
}

void store_map_abort(struct store_map *m, struct store_tx *tx)
{
	end(m, true);
	tx->tx = NULL;
}

void store_map_read(struct store_map *m, struct store_tx *tx)
{
	assert(!m->writing);
	*tx = (struct store_tx){&map_ops, m};
}

void store_map_fail(struct store_map *m, uint64_t nth, int rc)
{
	m->fail_at = nth == 0 ? 0 : m->calls + nth;
	m->fail_rc = rc;
	m->failed = false;
}

bool store_map_failed(const struct store_map *m)
{
	return m->failed;
}

uint64_t store_map_calls(const struct store_map *m)
{
	return m->calls;
}

uint64_t store_map_rows(const struct store_map *m, enum store_table table)
{
	return m->table[table].rows;
}

static void clear(struct store_map *m)
{
	for (uint32_t t = 0; t < STORE_TABLES; t++) {
		for (struct node *n = m->table[t].head[0], *next; n != NULL; n = next) {
			next = n->next[0];
			free(n->value);
			free(n);
		}
		memset(&m->table[t], 0, sizeof(m->table[t]));
	}
}

void store_map_copy(struct store_map *to, const struct store_map *from)
{
	assert(!to->writing && !from->writing);
	clear(to);
	for (uint32_t t = 0; t < STORE_TABLES; t++)
		for (const struct node *n = from->table[t].head[0]; n != NULL; n = n->next[0])
			set(to, t, (struct store_bytes){n->key, n->key_len}, n->value,
				n->value_len);
}

static uint64_t fold(uint64_t h, const void *p, uint32_t len)
{
	const uint8_t *b = p;

	for (uint32_t i = 0; i < len; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return (h ^ len) * UINT64_C(0x100000001b3);
}

uint64_t store_map_digest(const struct store_map *m)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (uint32_t t = 0; t < STORE_TABLES; t++)
		for (const struct node *n = m->table[t].head[0]; n != NULL; n = n->next[0])
			h = fold(fold(h, n->key, n->key_len), n->value, n->value_len);
	return h;
}

struct store_map *store_map_create(void)
{
	struct store_map *m = calloc(1, sizeof(*m));

	if (m != NULL)
		m->random = 1;
	return m;
}

void store_map_destroy(struct store_map *m)
{
	if (m == NULL)
		return;
	if (m->writing)
		end(m, false);
	clear(m);
	free(m->undo);
	free(m->views);
	free(m);
}
