/* SPDX-License-Identifier: BSD-3-Clause */
// Generations: what is trusted after a crash, a restore beside the store in use, kills in the middle of it,
// readers in other processes that follow, and the watchdog. Children never return into cmocka: they _exit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base_time.h"
#include "store_follow.h"
#include "store_gen.h"
#include "store_snapshot.h"
#include "store_verify.h"

#define MAP_BYTES (UINT64_C(64) << 30)
#define CLUSTER 7u

static const struct store_limits limits = {
	.journal_commits = 1000, .dedup_commits = 1000, .stages = 4, .stage_commits = 1000};

static char root[64], dir[80];
static pid_t child;

static int setup(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/store_gen_test.XXXXXX");
	if (mkdtemp(root) == NULL)
		return -1;
	snprintf(dir, sizeof(dir), "%s/store", root);
	return 0;
}

static int teardown(void **state)
{
	char command[160];

	(void)state;
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		child = 0;
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command) == 0 ? 0 : -1;
}

static int child_status(void)
{
	int status = 0;

	assert_int_equal(waitpid(child, &status, 0), child);
	child = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int try_open(bool sync, const char *boot_id, struct store_gen **gen)
{
	const struct store_gen_params params = {.dir = dir,
		.map_bytes = MAP_BYTES,
		.cluster_id = CLUSTER,
		.sync = sync,
		.boot_id = boot_id};
	const char *why = NULL;
	const int rc = store_gen_open(&params, gen, &why);

	if (rc != 0)
		assert_non_null(why);
	return rc;
}

static struct store_gen *open_gen(const char *boot_id, enum store_gen_origin origin)
{
	struct store_gen_info info;
	struct store_gen *gen;

	assert_int_equal(try_open(false, boot_id, &gen), 0);
	store_gen_info(gen, &info);
	assert_int_equal(info.origin, origin);
	return gen;
}

// Applies batch `n`: adds u<n> to channel "c", so that commit, SMV and members are all n.
static int write_one(struct store_lmdb *db, uint64_t n)
{
	uint8_t uid[32], data[512];
	struct store_command cmd = {.op = STORE_ADD, .uid_count = 1, .uids = uid};
	struct store_result result;
	struct store_tx tx;
	int rc;

	channel_key_set(&cmd.channel, CHANNEL_GROUP, "c", 1);
	uid[0] = (uint8_t)snprintf((char *)uid + 1, 30, "u%08llu", (unsigned long long)n);
	cmd.uids_bytes = 1u + uid[0];

	const int len = store_command_encode(&cmd, data, sizeof(data));

	rc = store_lmdb_begin(db, &tx);
	if (rc != 0)
		return rc;
	rc = store_apply(&tx, &limits, n, data, (uint32_t)len, &result, 1, NULL, NULL);
	if (rc != 1 || result.code != STORE_R_OK) {
		store_lmdb_abort(db, &tx);
		return rc < 0 ? rc : -EPROTO;
	}
	return store_lmdb_commit(db, &tx);
}

static void write_up_to(struct store_gen *gen, uint64_t from, uint64_t to)
{
	for (uint64_t n = from; n <= to; n++)
		assert_int_equal(write_one(store_gen_db(gen), n), 0);
}

// The n of a whole state, or a negative number: a fault, or half of one.
static int64_t state_of(struct store_tx *tx, uint64_t *generation)
{
	struct store_channel channel = {0};
	struct store_position pos;
	struct channel_key key;
	int rc = store_read_position(tx, &pos);

	channel_key_set(&key, CHANNEL_GROUP, "c", 1);
	if (rc == 0) {
		rc = store_read_channel(tx, &key, &channel);
		rc = rc == -ENOENT ? 0 : rc;
	}
	*generation = pos.generation;
	if (rc != 0)
		return rc;
	if (pos.cluster_id != CLUSTER || pos.commit != pos.applied || channel.smv != pos.commit ||
		channel.members != pos.commit)
		return -EBADMSG;
	return (int64_t)pos.commit;
}

static int64_t state_in(struct store_gen *gen)
{
	struct store_tx tx;
	uint64_t generation;

	if (store_lmdb_read_begin(store_gen_db(gen), &tx) != 0)
		return -EIO;

	const int64_t n = state_of(&tx, &generation);

	store_lmdb_read_end(store_gen_db(gen), &tx);
	return n;
}

// Everything in the store of `data`, seen read-only by way of its `current`. Returns: commit, or -errno.
static int64_t verify_folder(const char *data)
{
	struct store_inspection i;
	struct store_follow *follow;
	struct store_fault fault = {.what = "cannot be opened"};
	struct store_tx tx;
	int rc = store_follow_open(data, MAP_BYTES, &follow);

	if (rc == 0)
		rc = store_follow_begin(follow, &tx);
	if (rc == 0) {
		rc = store_verify(&tx, &i, &fault);
		store_follow_end(follow, &tx);
	}
	if (rc != 0)
		fprintf(stderr, "%s: %s\n", data, fault.what);
	store_follow_close(follow);
	return rc != 0 ? rc : (int64_t)i.commit;
}

// --- what a crash leaves ----------------------------------------------------------------------------------

static void a_killed_process_loses_nothing(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);

	(void)state;
	write_up_to(gen, 1, 20);
	store_gen_abandon(gen);
	gen = open_gen("boot-a", STORE_GEN_FOUND);
	assert_int_equal(state_in(gen), 20);
	assert_int_equal(store_gen_close(gen), 0);
}

static void another_boot_without_a_clean_close_gives_the_store_up(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	struct store_gen_info info;
	char path[128];

	(void)state;
	write_up_to(gen, 1, 20);
	store_gen_abandon(gen);
	gen = open_gen("boot-b", STORE_GEN_BOOT);
	assert_int_equal(state_in(gen), 0);
	store_gen_info(gen, &info);
	assert_int_equal(info.number, 2);
	snprintf(path, sizeof(path), "%s/1", dir);
	assert_int_not_equal(access(path, F_OK), 0);
	// The new one counts from here.
	write_up_to(gen, 1, 3);
	store_gen_abandon(gen);
	gen = open_gen("boot-b", STORE_GEN_FOUND);
	assert_int_equal(state_in(gen), 3);
	store_gen_abandon(gen);
}

static void another_boot_after_a_clean_close_keeps_it_once(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);

	(void)state;
	write_up_to(gen, 1, 20);
	assert_int_equal(store_gen_close(gen), 0);
	gen = open_gen("boot-b", STORE_GEN_FOUND);
	assert_int_equal(state_in(gen), 20);
	// Opened is dirty again, even if nothing was written.
	store_gen_abandon(gen);
	gen = open_gen("boot-c", STORE_GEN_BOOT);
	store_gen_abandon(gen);
}

static void a_store_that_syncs_is_never_given_up(void **state)
{
	struct store_gen *gen;

	(void)state;
	assert_int_equal(try_open(true, "boot-a", &gen), 0);
	write_up_to(gen, 1, 5);
	store_gen_abandon(gen);
	assert_int_equal(try_open(true, "boot-b", &gen), 0);
	assert_int_equal(state_in(gen), 5);
	store_gen_abandon(gen);
	// Without sync it is found as it is, and then no longer trusted after a boot: a refusal, no loss.
	gen = open_gen("boot-b", STORE_GEN_FOUND);
	store_gen_abandon(gen);
	assert_int_equal(try_open(true, "boot-c", &gen), -EUCLEAN);
	assert_int_equal(try_open(true, "boot-b", &gen), 0);
	assert_int_equal(state_in(gen), 5);
	store_gen_abandon(gen);
}

static void overwrite(const char *name, const char *text, size_t len)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_TRUNC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	close(fd);
}

static void what_does_not_say_how_it_was_closed_is_given_up(void **state)
{
	static const char *const text[] = {
		"", "clean", "clean boot-a", "cleanboot-a\n", "fine boot-a\n", "dirty boot-\n"};

	(void)state;
	for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
		struct store_gen *gen;
		struct store_gen_info info;
		char name[32];

		assert_int_equal(try_open(false, "boot-a", &gen), 0);
		store_gen_info(gen, &info);
		store_gen_abandon(gen);
		snprintf(name, sizeof(name), "%u/boot", (unsigned)info.number);
		overwrite(name, text[i], strlen(text[i]));
		gen = open_gen("boot-a", STORE_GEN_BOOT);
		store_gen_abandon(gen);
	}
}

static void damaged_files_are_given_up_or_refused(void **state)
{
	static char page[8192];
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);

	(void)state;
	store_gen_abandon(gen);
	overwrite("1/data.mdb", page, sizeof(page));
	gen = open_gen("boot-a", STORE_GEN_DAMAGED);
	store_gen_abandon(gen);
	overwrite("current", "2 or so", 7);
	gen = open_gen("boot-a", STORE_GEN_DAMAGED);
	store_gen_abandon(gen);
	overwrite("current", "17\n", 3);
	gen = open_gen("boot-a", STORE_GEN_BOOT);
	store_gen_abandon(gen);

	assert_int_equal(try_open(true, "boot-a", &gen), 0);
	store_gen_abandon(gen);
	overwrite("current", "", 0);
	assert_int_equal(try_open(true, "boot-a", &gen), -EUCLEAN);
}

static void one_process_owns_the_folder(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW), *second;

	(void)state;
	assert_int_equal(try_open(false, "boot-a", &second), -EBUSY);
	store_gen_abandon(gen);
}

// --- snapshots --------------------------------------------------------------------------------------------

struct bytes {
	uint8_t *p;
	uint64_t len;
};

static int keep(void *ctx, const uint8_t *p, uint64_t len)
{
	struct bytes *b = ctx;

	b->p = realloc(b->p, b->len + len);
	if (b->p == NULL)
		return -ENOMEM;
	memcpy(b->p + b->len, p, len);
	b->len += len;
	return 0;
}

// A snapshot of a store of `n`, made elsewhere.
static struct bytes snapshot_of(uint64_t n, uint64_t cluster)
{
	const char *why;
	char where[96];
	struct store_lmdb *db;
	struct bytes b = {NULL, 0};
	const struct store_snapshot_sink sink = {keep, &b};
	struct store_lmdb_walker *walker;
	struct store_tx tx;

	snprintf(where, sizeof(where), "%s/other", root);
	assert_int_equal(store_lmdb_open(where, MAP_BYTES, true, false, &db, &why), 0);
	assert_int_equal(store_lmdb_begin(db, &tx), 0);
	assert_int_equal(store_open(&tx, cluster, &why), 0);
	assert_int_equal(store_lmdb_commit(db, &tx), 0);
	for (uint64_t i = 1; i <= n; i++)
		assert_int_equal(write_one(db, i), 0);
	assert_int_equal(store_lmdb_walker_open(db, &walker), 0);
	store_lmdb_walker_tx(walker, &tx);
	assert_int_equal(store_snapshot_encode(&tx, &limits, &sink, NULL), 0);
	store_lmdb_walker_close(db, walker);
	store_lmdb_close(db);
	snprintf(where, sizeof(where), "rm -rf '%s/other'", root);
	assert_int_equal(system(where), 0);
	return b;
}

static int load_all(struct store_gen_load *load)
{
	int rc;

	while ((rc = store_gen_load_step(load)) == 0)
		;
	return rc;
}

static void a_snapshot_replaces_the_running_store(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	const struct bytes b = snapshot_of(500, CLUSTER);
	struct store_gen_load *load, *second;
	struct store_gen_old *old;
	struct store_lmdb_walker *walker;
	struct store_lmdb *before;
	struct store_gen_info info;
	struct store_tx tx;
	uint64_t generation, old_generation;
	const char *why;
	char path[128];

	(void)state;
	write_up_to(gen, 1, 20);
	before = store_gen_db(gen);
	assert_int_equal(store_lmdb_walker_open(before, &walker), 0);
	assert_int_equal(store_gen_load_begin(gen, b.p, b.len, &load, &why), 0);
	assert_int_equal(store_gen_load_begin(gen, b.p, b.len, &second, &why), -EBUSY);
	// The store in use goes on while the load does.
	assert_int_equal(store_gen_load_step(load), 0);
	write_up_to(gen, 21, 25);
	assert_int_equal(state_in(gen), 25);
	assert_int_equal(load_all(load), 1);
	assert_true(store_gen_load_rows(load) > 500);
	assert_int_equal(store_gen_load_cancel(gen, load), -EBUSY);
	store_gen_finish(gen, load, &old);
	assert_non_null(old);
	store_gen_info(gen, &info);
	assert_true(info.number == 2 && info.origin == STORE_GEN_LOADED);
	assert_int_equal(state_in(gen), 500);
	write_up_to(gen, 501, 505);

	// A walk of the former one ends in its own time.
	assert_int_equal(store_gen_drop(old), -EBUSY);
	store_lmdb_walker_tx(walker, &tx);
	assert_int_equal(state_of(&tx, &old_generation), 20);
	store_lmdb_walker_end(walker);
	assert_int_equal(store_gen_drop(old), -EBUSY);
	store_lmdb_walker_close(before, walker);
	assert_int_equal(store_gen_drop(old), 0);
	snprintf(path, sizeof(path), "%s/1", dir);
	assert_int_not_equal(access(path, F_OK), 0);

	store_gen_abandon(gen);
	gen = open_gen("boot-a", STORE_GEN_FOUND);
	assert_int_equal(state_in(gen), 505);
	assert_int_equal(store_lmdb_read_begin(store_gen_db(gen), &tx), 0);
	assert_int_equal(state_of(&tx, &generation), 505);
	store_lmdb_read_end(store_gen_db(gen), &tx);
	assert_true(generation != old_generation && generation != 0);
	store_gen_abandon(gen);
	free(b.p);
}

static void a_refused_snapshot_leaves_the_store_as_it_was(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	const struct bytes b = snapshot_of(50, CLUSTER), foreign = snapshot_of(5, 8);
	struct store_gen_load *load;
	const char *why;
	char path[128];

	(void)state;
	write_up_to(gen, 1, 20);
	assert_int_equal(store_gen_load_begin(gen, foreign.p, foreign.len, &load, &why), -EPROTO);
	assert_int_equal(store_gen_load_begin(gen, b.p, b.len - 8, &load, &why), -EUCLEAN);
	b.p[b.len / 2] ^= 1;
	assert_int_equal(store_gen_load_begin(gen, b.p, b.len, &load, &why), 0);
	assert_int_equal(load_all(load), -EUCLEAN);
	assert_string_equal(store_gen_load_why(load), "the snapshot's checksum is wrong");
	assert_int_equal(store_gen_load_cancel(gen, load), 0);
	b.p[b.len / 2] ^= 1;
	// Given up half-way.
	assert_int_equal(store_gen_load_begin(gen, b.p, b.len, &load, &why), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(store_gen_load_step(load), 0);
	assert_int_equal(store_gen_load_cancel(gen, load), 0);
	snprintf(path, sizeof(path), "%s/2", dir);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(state_in(gen), 20);
	store_gen_abandon(gen);
	gen = open_gen("boot-a", STORE_GEN_FOUND);
	assert_int_equal(state_in(gen), 20);
	store_gen_abandon(gen);
	free(b.p);
	free(foreign.p);
}

static void a_snapshot_too_large_for_the_map_is_an_error(void **state)
{
	const struct bytes b = snapshot_of(40000, CLUSTER);
	const struct store_gen_params params = {
		.dir = dir, .map_bytes = 1u << 20, .cluster_id = CLUSTER, .boot_id = "boot-a"};
	struct store_gen_load *load;
	struct store_gen *gen;
	const char *why;

	(void)state;
	assert_int_equal(store_gen_open(&params, &gen, &why), 0);
	write_up_to(gen, 1, 5);
	assert_int_equal(store_gen_load_begin(gen, b.p, b.len, &load, &why), 0);
	assert_int_equal(load_all(load), -ENOSPC);
	assert_int_equal(store_gen_load_cancel(gen, load), 0);
	assert_int_equal(state_in(gen), 5);
	store_gen_abandon(gen);
	free(b.p);
}

struct restore {
	struct store_gen_load *load;
	int rc;
	_Atomic bool done;
};

static void *restore_thread(void *ctx)
{
	struct restore *r = ctx;

	r->rc = load_all(r->load);
	r->done = true;
	return NULL;
}

static void a_restore_in_another_thread_disturbs_no_commit(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	const struct bytes b = snapshot_of(5000, CLUSTER);
	uint64_t n = 0;

	(void)state;
	for (uint32_t round = 0; round < 3; round++) {
		struct restore r = {.done = false};
		struct store_gen_old *old;
		pthread_t thread;
		const char *why;

		assert_int_equal(store_gen_load_begin(gen, b.p, b.len, &r.load, &why), 0);
		assert_int_equal(pthread_create(&thread, NULL, restore_thread, &r), 0);
		do {
			assert_int_equal(write_one(store_gen_db(gen), ++n), 0);
			assert_int_equal(state_in(gen), n);
			assert_true(store_gen_load_rows(r.load) <= 6000);
		} while (!r.done);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(r.rc, 1);
		store_gen_finish(gen, r.load, &old);
		n = 5000;
		assert_int_equal(state_in(gen), n);
		assert_int_equal(store_gen_drop(old), 0);
	}
	store_gen_abandon(gen);
	assert_int_equal(verify_folder(root), 5000);
	free(b.p);
}

static void a_copied_folder_is_verified_read_only(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	char command[400], copy[96];

	(void)state;
	write_up_to(gen, 1, 200);
	assert_int_equal(store_gen_close(gen), 0);
	snprintf(copy, sizeof(copy), "%s/copy", root);
	snprintf(command, sizeof(command), "mkdir '%s' && cp -r '%s' '%s'", copy, dir, copy);
	assert_int_equal(system(command), 0);
	assert_int_equal(verify_folder(copy), 200);
}

// Loads a snapshot of 3000 over a store of 20, one step for each byte it gets, and says each that is done.
static int loader_process(const struct bytes *b, int go, int done)
{
	struct store_gen *gen;
	struct store_gen_load *load;
	const char *why;
	char byte;

	if (try_open(false, "boot-a", &gen) != 0 ||
		store_gen_load_begin(gen, b->p, b->len, &load, &why) != 0)
		return 2;
	while (read(go, &byte, 1) == 1) {
		const int rc = store_gen_load_step(load);

		byte = rc == 1 ? 'n' : 's';
		if (rc < 0 || write(done, &byte, 1) != 1)
			return 3;
	}
	return 4;
}

// Lets the load make `steps` steps, then kills it `spin` turns into the next. Returns: it was finished.
static bool kill_in_step(const struct bytes *b, uint32_t steps, int spin)
{
	int go[2], done[2];
	char byte = 's';

	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(done), 0);
	child = fork();
	if (child == 0)
		_exit(loader_process(b, go[0], done[1]));
	assert_true(child > 0);
	for (uint32_t i = 0; i < steps && byte == 's'; i++) {
		assert_int_equal(write(go[1], "g", 1), 1);
		assert_int_equal(read(done[0], &byte, 1), 1);
	}
	if (spin > 0 && byte == 's')
		assert_int_equal(write(go[1], "g", 1), 1);
	for (volatile int i = spin; i > 0; i--)
		;
	kill(child, SIGKILL);
	assert_int_equal(child_status(), -SIGKILL);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(done[i]);
	}
	return byte == 'n';
}

static void a_kill_in_a_restore_leaves_the_old_or_the_new_store_whole(void **state)
{
	const struct bytes b = snapshot_of(3000, CLUSTER);
	uint32_t seen[2] = {0, 0};

	(void)state;
	srand(7);
	for (uint32_t round = 0; round < 36; round++) {
		struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
		const int spin = round < 12 ? 0 : rand() % (rand() % 2 == 0 ? 100000 : 4000000);
		char command[160];
		bool finished;
		int64_t n;

		write_up_to(gen, 1, 20);
		store_gen_abandon(gen);
		finished = kill_in_step(&b, round % 12, spin);
		n = verify_folder(root);
		assert_true(n == 20 || n == 3000);
		gen = open_gen("boot-a", STORE_GEN_FOUND);
		n = state_in(gen);
		assert_true(finished ? n == 3000 : n == 20 || n == 3000);
		assert_int_equal(write_one(store_gen_db(gen), (uint64_t)n + 1), 0);
		store_gen_abandon(gen);
		seen[n == 3000]++;
		snprintf(command, sizeof(command), "rm -rf '%s'", dir);
		assert_int_equal(system(command), 0);
	}
	assert_true(seen[0] > 0 && seen[1] > 0);
	free(b.p);
}

// --- readers ----------------------------------------------------------------------------------------------

// Reads until it sees `last`; the state may only be whole, and only move on.
static int follower_process(int ready, int64_t last)
{
	const uint64_t deadline = time_now_ns() + 60 * NS_PER_S;
	struct store_follow *follow;
	uint64_t generation = 0, generations = 0;
	int64_t seen = -1;

	if (store_follow_open(root, MAP_BYTES, &follow) != 0 || write(ready, "r", 1) != 1)
		return 2;
	while (seen < last) {
		struct store_tx tx;
		uint64_t at = 0;
		const int rc = store_follow_begin(follow, &tx);
		int64_t n;

		if (time_now_ns() > deadline)
			return 7;
		if (rc == -EAGAIN)
			continue;
		if (rc != 0)
			return 3;
		n = state_of(&tx, &at);
		store_follow_end(follow, &tx);
		if (n < seen)
			return n < 0 ? 4 : 5;
		generations += at != generation;
		generation = at;
		seen = n;
	}
	store_follow_close(follow);
	return generations > 3 ? 0 : 6;
}

static void a_reader_process_follows_from_generation_to_generation(void **state)
{
	enum { SWAPS = 12, STEP = 200 };
	struct bytes b[SWAPS];
	struct store_gen *gen;
	int ready[2];
	char byte;

	(void)state;
	for (uint32_t i = 0; i < SWAPS; i++)
		b[i] = snapshot_of(STEP * (i + 1), CLUSTER);
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0)
		_exit(follower_process(ready[1], STEP * SWAPS + 20));
	assert_true(child > 0);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	gen = open_gen("boot-a", STORE_GEN_NEW);
	for (uint32_t i = 0; i < SWAPS; i++) {
		struct store_gen_load *load;
		struct store_gen_old *old;
		const char *why;

		assert_int_equal(store_gen_load_begin(gen, b[i].p, b[i].len, &load, &why), 0);
		assert_int_equal(load_all(load), 1);
		store_gen_finish(gen, load, &old);
		write_up_to(gen, STEP * (i + 1) + 1, STEP * (i + 1) + 20);
		assert_int_equal(store_gen_drop(old), 0);
		free(b[i].p);
	}
	assert_int_equal(child_status(), 0);
	store_gen_abandon(gen);
}

static void a_plain_store_is_followed_until_there_are_generations(void **state)
{
	struct store_follow *follow;
	struct store_lmdb *db;
	struct store_gen *gen;
	struct store_tx tx;
	const char *why;
	uint64_t generation;

	(void)state;
	// The writer's part in a child: one folder is open once in a process.
	child = fork();
	if (child == 0) {
		if (store_lmdb_open(root, MAP_BYTES, true, false, &db, &why) != 0 ||
			store_lmdb_begin(db, &tx) != 0 || store_open(&tx, CLUSTER, &why) != 0 ||
			store_lmdb_commit(db, &tx) != 0 || write_one(db, 1) != 0)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(store_follow_open(root, MAP_BYTES, &follow), 0);
	assert_int_equal(child_status(), 0);
	assert_int_equal(store_follow_begin(follow, &tx), 0);
	assert_int_equal(state_of(&tx, &generation), 1);
	store_follow_end(follow, &tx);
	child = fork();
	if (child == 0) {
		gen = NULL;
		if (try_open(false, "boot-a", &gen) != 0 || write_one(store_gen_db(gen), 1) != 0 ||
			write_one(store_gen_db(gen), 2) != 0)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(child_status(), 0);
	assert_int_equal(store_follow_begin(follow, &tx), 0);
	assert_int_equal(state_of(&tx, &generation), 2);
	store_follow_end(follow, &tx);
	store_follow_close(follow);
}

struct walk {
	struct store_lmdb_walker *walker;
	struct bytes out;
	int rc;
};

static void *encode_thread(void *ctx)
{
	struct walk *w = ctx;
	const struct store_snapshot_sink sink = {keep, &w->out};
	struct store_tx tx;

	store_lmdb_walker_tx(w->walker, &tx);
	w->rc = store_snapshot_encode(&tx, &limits, &sink, NULL);
	store_lmdb_walker_end(w->walker);
	return NULL;
}

static void a_snapshot_encoded_elsewhere_is_of_the_moment_it_was_begun(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	struct store_snapshot_info info;
	const char *why;

	(void)state;
	for (uint64_t n = 1; n <= 2000; n += 200) {
		struct walk w = {0};
		pthread_t thread;

		write_up_to(gen, n, n + 99);
		assert_int_equal(store_lmdb_walker_open(store_gen_db(gen), &w.walker), 0);
		assert_int_equal(pthread_create(&thread, NULL, encode_thread, &w), 0);
		write_up_to(gen, n + 100, n + 199);
		assert_int_equal(pthread_join(thread, NULL), 0);
		store_lmdb_walker_close(store_gen_db(gen), w.walker);
		assert_int_equal(w.rc, 0);
		assert_int_equal(store_snapshot_check(w.out.p, w.out.len, &info, &why), 0);
		assert_true(info.applied == n + 99 && info.commit == n + 99);
		free(w.out.p);
	}
	store_gen_abandon(gen);
}

// --- the watchdog -----------------------------------------------------------------------------------------

static void wait_ns(uint64_t ns)
{
	const uint64_t until = time_now_ns() + ns;

	while (time_now_ns() < until)
		usleep(1000);
}

static void a_long_read_is_counted(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	struct store_lmdb *db = store_gen_db(gen);
	struct store_lmdb_info info;
	struct store_tx tx;

	(void)state;
	assert_int_equal(store_lmdb_read_begin(db, &tx), 0);
	wait_ns(STORE_READ_MAX_NS + NS_PER_MS);
	store_lmdb_read_end(db, &tx);
	assert_int_equal(store_lmdb_info(db, &info), 0);
	assert_int_equal(info.long_reads, 1);
	assert_true(info.longest_read_ns > STORE_READ_MAX_NS);
	store_gen_abandon(gen);
}

static void a_walk_is_long_only_after_its_own_limit(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	struct store_lmdb *db = store_gen_db(gen);
	struct store_lmdb_walker *walker;
	struct store_lmdb_info info;
	const uint64_t now = time_now_ns();

	(void)state;
	assert_int_equal(store_lmdb_walker_open(db, &walker), 0);
	assert_int_equal(store_lmdb_watch(db, now + STORE_WALK_MAX_NS / 2), 0);
	assert_int_equal(store_lmdb_watch(db, now + STORE_WALK_MAX_NS + NS_PER_S), 1);
	assert_int_equal(store_lmdb_watch(db, now + STORE_WALK_MAX_NS + 2 * NS_PER_S), 1);
	assert_int_equal(store_lmdb_info(db, &info), 0);
	assert_int_equal(info.long_walks, 1);
	assert_int_equal(info.long_reads, 0);
	store_lmdb_walker_end(walker);
	assert_int_equal(store_lmdb_watch(db, now + STORE_WALK_MAX_NS + 3 * NS_PER_S), 0);
	store_lmdb_walker_close(db, walker);
	store_gen_abandon(gen);
}

// Says "r" with a read open, ends it at a byte, says "e".
static int holder_process(int in, int out)
{
	struct store_follow *follow;
	struct store_tx tx;
	char byte;

	if (store_follow_open(root, MAP_BYTES, &follow) != 0 ||
		store_follow_begin(follow, &tx) != 0 || write(out, "r", 1) != 1 ||
		read(in, &byte, 1) != 1)
		return 1;
	store_follow_end(follow, &tx);
	if (write(out, "e", 1) != 1)
		return 2;
	return read(in, &byte, 1) == 0 ? 0 : 3;
}

static void the_long_read_of_another_process_is_found(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	struct store_lmdb_info info;
	struct store_lmdb *db;
	uint64_t now = NS_PER_S;
	int to[2], from[2];
	char byte;

	(void)state;
	store_gen_abandon(gen);
	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	child = fork();
	if (child == 0) {
		close(to[1]);
		_exit(holder_process(to[0], from[1]));
	}
	close(to[0]);
	close(from[1]);
	assert_int_equal(read(from[0], &byte, 1), 1);
	gen = open_gen("boot-a", STORE_GEN_FOUND);
	db = store_gen_db(gen);
	// At the first look it may have just begun, and one of the newest commit harms nobody.
	assert_int_equal(store_lmdb_watch(db, now), 0);
	write_up_to(gen, 1, 3);
	assert_int_equal(store_lmdb_watch(db, now + STORE_READ_MAX_NS / 2), 0);
	assert_int_equal(store_lmdb_watch(db, now += STORE_READ_MAX_NS), 0);
	assert_int_equal(store_lmdb_watch(db, now += STORE_READ_MAX_NS), 1);
	assert_int_equal(store_lmdb_watch(db, now += STORE_READ_MAX_NS), 1);
	assert_int_equal(store_lmdb_info(db, &info), 0);
	assert_int_equal(info.long_reads_other, 1);
	assert_int_equal(write(to[1], "g", 1), 1);
	assert_int_equal(read(from[0], &byte, 1), 1);
	assert_int_equal(store_lmdb_watch(db, now += STORE_READ_MAX_NS), 0);
	close(to[1]);
	close(from[0]);
	assert_int_equal(child_status(), 0);
	store_gen_abandon(gen);
}

// Adds and removes the same members over and over: the live data stays the same.
static void churn(struct store_lmdb *db, uint64_t *index, uint32_t rounds)
{
	static uint8_t uids[500 * 10], data[ENTRY_BYTES_MAX];
	struct store_command cmd = {.uid_count = 500, .uids = uids};

	channel_key_set(&cmd.channel, CHANNEL_GROUP, "churn", 5);
	for (uint32_t i = 0; i < cmd.uid_count; i++) {
		uids[cmd.uids_bytes] = 8;
		snprintf((char *)uids + cmd.uids_bytes + 1, 9, "m%07u", i % 10000000);
		cmd.uids_bytes += 9;
	}
	for (uint32_t r = 0; r < 2 * rounds; r++) {
		struct store_tx tx;

		cmd.op = r % 2 == 0 ? STORE_ADD : STORE_REMOVE;

		const int len = store_command_encode(&cmd, data, sizeof(data));

		assert_int_equal(store_lmdb_begin(db, &tx), 0);
		assert_int_equal(store_apply(&tx, &limits, ++*index, data, (uint32_t)len, NULL, 0,
					 NULL, NULL),
			0);
		assert_int_equal(store_lmdb_commit(db, &tx), 0);
	}
}

static void pages_as_transactions_of_their_own_keep_the_file_small(void **state)
{
	struct store_gen *gen = open_gen("boot-a", STORE_GEN_NEW);
	struct store_lmdb *db = store_gen_db(gen);
	struct store_lmdb_walker *walker;
	struct store_lmdb_info warm, paged, held;
	uint64_t index = 0;

	(void)state;
	// The journal is full by then, so that what is live stays the same.
	churn(db, &index, 520);
	assert_int_equal(store_lmdb_info(db, &warm), 0);
	for (uint32_t i = 0; i < 100; i++) {
		struct store_tx tx;
		uint64_t generation;

		assert_int_equal(store_lmdb_read_begin(db, &tx), 0);
		(void)state_of(&tx, &generation);
		churn(db, &index, 1);
		store_lmdb_read_end(db, &tx);
	}
	assert_int_equal(store_lmdb_info(db, &paged), 0);
	assert_true(paged.used_bytes <= 2 * warm.used_bytes);
	// And this is what the rule is for.
	assert_int_equal(store_lmdb_walker_open(db, &walker), 0);
	churn(db, &index, 400);
	store_lmdb_walker_close(db, walker);
	assert_int_equal(store_lmdb_info(db, &held), 0);
	assert_true(held.used_bytes > paged.used_bytes);
	store_gen_abandon(gen);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_killed_process_loses_nothing),
		TEST(another_boot_without_a_clean_close_gives_the_store_up),
		TEST(another_boot_after_a_clean_close_keeps_it_once),
		TEST(a_store_that_syncs_is_never_given_up),
		TEST(what_does_not_say_how_it_was_closed_is_given_up),
		TEST(damaged_files_are_given_up_or_refused),
		TEST(one_process_owns_the_folder),
		TEST(a_snapshot_replaces_the_running_store),
		TEST(a_refused_snapshot_leaves_the_store_as_it_was),
		TEST(a_snapshot_too_large_for_the_map_is_an_error),
		TEST(a_restore_in_another_thread_disturbs_no_commit),
		TEST(a_copied_folder_is_verified_read_only),
		TEST(a_kill_in_a_restore_leaves_the_old_or_the_new_store_whole),
		TEST(a_reader_process_follows_from_generation_to_generation),
		TEST(a_plain_store_is_followed_until_there_are_generations),
		TEST(a_snapshot_encoded_elsewhere_is_of_the_moment_it_was_begun),
		TEST(a_long_read_is_counted),
		TEST(a_walk_is_long_only_after_its_own_limit),
		TEST(the_long_read_of_another_process_is_found),
		TEST(pages_as_transactions_of_their_own_keep_the_file_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
