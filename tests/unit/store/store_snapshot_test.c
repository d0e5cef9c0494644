/* SPDX-License-Identifier: BSD-3-Clause */
// Snapshots: what goes in comes out, and nothing else is taken.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store_bench.h"
#include "store_crc.h"
#include "store_model.h"
#include "store_snapshot.h"

static const struct store_limits limits = {.journal_commits = 5000,
	.dedup_commits = 60,
	.stages = 3,
	.stage_commits = 60,
	.fold_rows = 8};

// --- a sink that keeps all ------------------------------------------------------------------------------

struct buffer {
	uint8_t *p;
	uint64_t len;
	uint32_t writes, fail_at;
};

static int keep(void *ctx, const uint8_t *bytes, uint64_t len)
{
	struct buffer *b = ctx;

	assert_true(len > 0 && len <= STORE_SNAPSHOT_CHUNK);
	if (++b->writes == b->fail_at)
		return -EPIPE;
	b->p = realloc(b->p, b->len + len);
	assert_non_null(b->p);
	memcpy(b->p + b->len, bytes, len);
	b->len += len;
	return 0;
}

static struct buffer encode(struct store_map *map, struct store_snapshot_info *info)
{
	struct buffer b = {0};
	const struct store_snapshot_sink sink = {keep, &b};
	struct store_tx tx;

	store_map_read(map, &tx);
	assert_int_equal(store_snapshot_encode(&tx, &limits, &sink, info), 0);
	return b;
}

// Loads with `rows` a step, each step a transaction. Returns: the map, or NULL with *rc.
static struct store_map *load(const uint8_t *p, uint64_t len, uint32_t rows, int *rc)
{
	struct store_map *map = store_map_create();
	struct store_snapshot_load l;
	struct store_tx tx;
	const char *why = NULL;

	assert_non_null(map);
	*rc = store_snapshot_load_begin(&l, p, len, &why);
	while (*rc == 0) {
		store_map_begin(map, &tx);
		*rc = store_snapshot_load_step(&l, &tx, rows, &why);
		store_map_commit(map, &tx);
	}
	if (*rc == 1) {
		store_map_begin(map, &tx);
		assert_int_equal(store_set_generation(&tx, 1), 0);
		store_map_commit(map, &tx);
		return map;
	}
	assert_non_null(why);
	store_map_destroy(map);
	return NULL;
}

static void assert_same_tables(struct store_map *a, struct store_map *b)
{
	struct store_tx x, y;

	store_map_read(a, &x);
	store_map_read(b, &y);
	for (uint32_t t = 0; t < STORE_TABLES; t++) {
		uint8_t at[512] = {0};
		struct store_bytes from = {at, 1}, k1, k2, v1, v2;

		if (t == STORE_T_JOURNAL)
			continue;
		assert_int_equal(store_map_rows(a, t), store_map_rows(b, t));
		while (x.ops->seek(x.tx, t, from, true, &k1, &v1) == 0) {
			assert_int_equal(y.ops->seek(y.tx, t, from, true, &k2, &v2), 0);
			assert_int_equal(k1.len, k2.len);
			assert_memory_equal(k1.p, k2.p, k1.len);
			assert_int_equal(v1.len, v2.len);
			assert_memory_equal(v1.p, v2.p, v1.len);
			memcpy(at, k1.p, k1.len);
			from.len = k1.len;
		}
	}
}

// --- a store with something of everything -----------------------------------------------------------------

static struct store_map *map;
static struct store_model *model;

static int setup(void **state)
{
	struct store_tx tx;
	const char *why;

	(void)state;
	map = store_map_create();
	if (map == NULL)
		return -1;

	const struct store_model_backend backend = store_model_on_map(map);

	model = store_model_create(&backend, 7);
	store_map_begin(map, &tx);
	if (store_open(&tx, 7, &why) != 0)
		return -1;
	store_map_commit(map, &tx);
	return store_model_run(model, 3000);
}

static int teardown(void **state)
{
	(void)state;
	store_model_destroy(model);
	store_map_destroy(map);
	return 0;
}

static void a_loaded_snapshot_is_its_source_and_goes_on_as_it(void **state)
{
	struct store_snapshot_info info, seen;
	const char *why;
	int rc;

	(void)state;
	for (uint32_t rows = 1; rows < 100000; rows = rows * 9 + 1) {
		const struct buffer b = encode(map, &info);

		assert_int_equal(store_snapshot_check(b.p, b.len, &seen, &why), 0);
		assert_true(seen.applied == info.applied && seen.commit == info.commit);
		assert_true(seen.chain == info.chain && seen.rows == info.rows);
		assert_true(seen.bytes == b.len && info.bytes == b.len && seen.cluster_id == 7);
		assert_true(seen.limits.fold_rows == 8 && seen.limits.dedup_commits == 60);
		assert_true(seen.limits.stages == 3 && seen.limits.stage_commits == 60);

		struct store_map *copy = load(b.p, b.len, rows, &rc);

		assert_int_equal(rc, 1);
		assert_same_tables(map, copy);
		assert_int_equal(store_map_rows(copy, STORE_T_JOURNAL), 0);

		// One state, one form; and the model finds the copy to behave as the source would.
		const struct buffer again = encode(copy, NULL);

		assert_int_equal(again.len, b.len);
		assert_memory_equal(again.p, b.p, b.len);
		store_model_rebind(model, copy);
		assert_int_equal(store_model_run(model, 3000), 0);
		store_map_destroy(map);
		map = copy;
		free(b.p);
		free(again.p);
	}
}

static void an_empty_store_fits_too(void **state)
{
	struct store_map *empty = store_map_create(), *copy;
	struct store_tx tx;
	const char *why;
	int rc;

	(void)state;
	store_map_begin(empty, &tx);
	assert_int_equal(store_open(&tx, 9, &why), 0);
	store_map_commit(empty, &tx);

	const struct buffer b = encode(empty, NULL);

	copy = load(b.p, b.len, 10, &rc);
	assert_int_equal(rc, 1);
	assert_same_tables(empty, copy);
	store_map_destroy(copy);
	store_map_destroy(empty);
	free(b.p);
}

static void cut_anywhere_it_is_refused(void **state)
{
	const struct buffer b = encode(map, NULL);
	struct store_snapshot_info info;
	const char *why;

	(void)state;
	for (uint64_t len = 0; len < b.len; len++) {
		// In a buffer of its own, so that a sanitizer sees a read behind its end.
		uint8_t *cut = malloc(len + 1);

		assert_non_null(cut);
		memcpy(cut, b.p, len);
		cut = realloc(cut, len == 0 ? 1 : len);
		assert_int_equal(store_snapshot_check(cut, len, &info, &why), -EUCLEAN);
		free(cut);
	}
	free(b.p);
}

static void any_flipped_byte_is_refused(void **state)
{
	const struct buffer b = encode(map, NULL);
	struct store_snapshot_info info;
	const char *why;

	(void)state;
	for (uint64_t at = 0; at < b.len; at++) {
		for (uint32_t bit = 1; bit < 256; bit *= bit == 1 ? 8 : 16) {
			b.p[at] ^= (uint8_t)bit;
			assert_int_not_equal(store_snapshot_check(b.p, b.len, &info, &why), 0);
			b.p[at] ^= (uint8_t)bit;
		}
	}
	assert_int_equal(store_snapshot_check(b.p, b.len, &info, &why), 0);
	free(b.p);
}

static void another_version_is_told_apart(void **state)
{
	const struct buffer b = encode(map, NULL);
	struct store_snapshot_info info;
	const char *why;

	(void)state;
	b.p[8]++;
	assert_int_equal(store_snapshot_check(b.p, b.len, &info, &why), -EPROTO);
	free(b.p);
}

static void other_limits_and_clusters_do_not_fit(void **state)
{
	const struct buffer b = encode(map, NULL);
	struct store_snapshot_info info;
	const char *why;

	(void)state;
	assert_int_equal(store_snapshot_check(b.p, b.len, &info, &why), 0);
	free(b.p);
	assert_int_equal(store_snapshot_fits(&info, 7, &limits, &why), 0);
	assert_int_equal(store_snapshot_fits(&info, 8, &limits, &why), -EPROTO);
	for (uint32_t i = 0; i < 5; i++) {
		struct store_limits other = limits;

		other.dedup_commits += i == 0;
		other.stages += i == 1;
		other.stage_commits += i == 2;
		other.fold_rows += i == 3;
		other.journal_commits += i == 4;  // decides nothing
		assert_int_equal(store_snapshot_fits(&info, 7, &other, &why), i == 4 ? 0 : -EPROTO);
	}
}

static void seal(const struct buffer *b)
{
	const uint32_t crc = store_crc32c(0, b->p, b->len - 4);

	for (uint32_t i = 0; i < 4; i++)
		b->p[b->len - 4 + i] = (uint8_t)(crc >> (8 * i));
}

// With the checksum made right again, rows, lengths and order decide alone.
static void damage_under_a_right_checksum_stays_within_the_bytes(void **state)
{
	const struct buffer b = encode(map, NULL);
	uint64_t refused = 0;

	(void)state;
	for (uint64_t at = 0; at < b.len - 4; at += at < 2000 || at + 60 > b.len ? 1 : 13) {
		static const uint8_t to[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
		const uint8_t was = b.p[at];

		for (uint32_t i = 0; i < sizeof(to); i++) {
			struct store_snapshot_info info;
			const char *why;
			int rc;

			b.p[at] = to[i];
			seal(&b);
			rc = store_snapshot_check(b.p, b.len, &info, &why);
			assert_true(rc == 0 || rc == -EUCLEAN || rc == -EPROTO);
			refused += rc != 0;
		}
		b.p[at] = was;
	}
	assert_true(refused > 1000);
	free(b.p);
}

static void rows_out_of_order_and_foreign_rows_are_refused(void **state)
{
	struct store_map *odd = store_map_create();
	struct store_snapshot_info info;
	struct store_tx tx;
	const char *why;

	(void)state;
	store_map_copy(odd, map);
	store_map_begin(odd, &tx);
	assert_int_equal(tx.ops->put(tx.tx, STORE_T_CHANNEL, (struct store_bytes){"\1x", 2},
				 (struct store_bytes){"no record", 9}),
		0);
	store_map_commit(odd, &tx);

	const struct buffer b = encode(odd, NULL);

	assert_int_equal(store_snapshot_check(b.p, b.len, &info, &why), -EUCLEAN);
	free(b.p);
	store_map_destroy(odd);

	// Members b and c of one list: the second row is one byte behind the 13 that both share, and the value
	// before. As a it is a sound row, too low; as b it is there twice.
	struct store_bench bench;

	store_bench_open(&bench);
	store_bench_do(&bench, STORE_ADD, "g", "b c");

	const struct buffer c = encode(bench.map, NULL);
	uint8_t *at = memmem(c.p, c.len, "\1\15c", 4);

	assert_non_null(at);
	for (uint8_t to = 'a'; to <= 'd'; to++) {
		at[2] = to;
		seal(&c);
		assert_int_equal(
			store_snapshot_check(c.p, c.len, &info, &why), to < 'c' ? -EUCLEAN : 0);
	}
	free(c.p);
	store_bench_close(&bench);
}

static void faults_of_sink_and_backend_come_out(void **state)
{
	struct buffer b = {.fail_at = 1};
	const struct store_snapshot_sink sink = {keep, &b};
	const struct buffer good = encode(map, NULL);
	struct store_snapshot_load l;
	struct store_tx tx;
	const char *why;

	(void)state;
	for (; b.fail_at <= good.writes; b.fail_at++) {
		b.writes = 0;
		store_map_read(map, &tx);
		assert_int_equal(store_snapshot_encode(&tx, &limits, &sink, NULL), -EPIPE);
	}
	b.fail_at = 0;
	for (uint64_t nth = 1; nth < 50; nth++) {
		store_map_read(map, &tx);
		store_map_fail(map, nth, -EIO);
		assert_int_equal(store_snapshot_encode(&tx, &limits, &sink, NULL), -EIO);

		struct store_map *to = store_map_create();

		assert_int_equal(store_snapshot_load_begin(&l, good.p, good.len, &why), 0);
		store_map_begin(to, &tx);
		store_map_fail(to, nth, -ENOSPC);
		int rc = 0;

		while (rc == 0)
			rc = store_snapshot_load_step(&l, &tx, 7, &why);
		assert_int_equal(rc, -ENOSPC);
		store_map_abort(to, &tx);
		store_map_destroy(to);
	}
	store_map_fail(map, 0, 0);
	free(good.p);
	free(b.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_loaded_snapshot_is_its_source_and_goes_on_as_it, setup, teardown),
		cmocka_unit_test(an_empty_store_fits_too),
		cmocka_unit_test_setup_teardown(cut_anywhere_it_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(any_flipped_byte_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(another_version_is_told_apart, setup, teardown),
		cmocka_unit_test_setup_teardown(
			other_limits_and_clusters_do_not_fit, setup, teardown),
		cmocka_unit_test_setup_teardown(
			damage_under_a_right_checksum_stays_within_the_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(
			rows_out_of_order_and_foreign_rows_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
			faults_of_sink_and_backend_come_out, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
