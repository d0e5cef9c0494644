/* SPDX-License-Identifier: BSD-3-Clause */
// Damaged folders: each ends in a refusal, or in a node that has exactly what it had, and neither takes long
// (F10). The folder has metadata, closed and open log files, a snapshot and the sidecar.
#include "raft_lab.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_time.h"

static char base[128], dir[128];  // as it was; the copy at work
static struct lab_report *report;
static struct lab_state was;  // of the store

enum kind { METADATA, CLOSED, OPEN, SNAPSHOT, SNAPSHOT_META, SIDECAR };
struct file {
	char name[128];
	uint64_t first, last;
	off_t size;
};
static struct file files[32];
static uint32_t file_count;

// --- the folder ---------------------------------------------------------------------------------------------

static bool snapped(struct lab *lab)
{
	struct raft_cons_stats stats;
	struct cons_info info;

	raft_cons_stats(lab->cons, &stats);
	raft_cons_ops.info(lab->cons, &info);
	return stats.snapshots > 0 && info.snapshot_index > 0;
}

static void fill(struct lab *lab)
{
	lab->params.snapshot_entries = 60;
	lab->params.snapshot_trailing = 90;
	if (lab_start(lab) != RAFT_REFUSED_NOT)
		_exit(1);
	lab_until(lab, lab_ready, "ready");
	lab_propose(lab, 100, 200000);
	lab_until(lab, snapped, "a snapshot");
	lab_propose(lab, 41, 200000);
	raise(SIGKILL);
}

static bool of_kind(const char *name, enum kind kind, struct file *f)
{
	const size_t len = strlen(name);
	const bool meta = len > 5 && strcmp(name + len - 5, ".meta") == 0;
	unsigned long long first = 0, last = 0;
	int end = -1;
	bool is = false;

	switch (kind) {
	case METADATA:
		is = strncmp(name, "metadata", 8) == 0;
		break;
	case CLOSED:
		is = sscanf(name, "%llu-%llu%n", &first, &last, &end) == 2 && name[end] == 0;
		break;
	case OPEN:
		is = strncmp(name, "open-", 5) == 0;
		break;
	case SNAPSHOT:
	case SNAPSHOT_META:
		is = sscanf(name, "snapshot-%llu-%llu", &first, &last) == 2 &&
		     meta == (kind == SNAPSHOT_META);
		break;
	case SIDECAR:
		is = strcmp(name, "sidecar") == 0;
		break;
	}
	f->first = first;
	f->last = last;
	return is;
}

static int by_last(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	if (x->last != y->last)
		return x->last < y->last ? -1 : 1;
	return strcmp(x->name, y->name);
}

// The files of a kind in the copy, oldest first. Returns: their number.
static uint32_t find(enum kind kind)
{
	char path[300];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "%s/raft", dir);
	d = opendir(path);
	assert_non_null(d);
	file_count = 0;
	while ((e = readdir(d)) != NULL) {
		struct file *f = &files[file_count];
		struct stat st;

		if (!of_kind(e->d_name, kind, f) || file_count == 31)
			continue;
		snprintf(f->name, sizeof(f->name), "%s", e->d_name);
		assert_int_equal(fstatat(dirfd(d), f->name, &st, 0), 0);
		f->size = st.st_size;
		file_count++;
	}
	closedir(d);
	qsort(files, file_count, sizeof(files[0]), by_last);
	return file_count;
}

static void path_of(char path[400], const struct file *f)
{
	snprintf(path, 400, "%s/raft/%s", dir, f->name);
}

static void flip(const struct file *f, off_t at)
{
	char path[400];
	uint8_t byte = 0;
	int fd;

	path_of(path, f);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= 0xfe;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void cut(const struct file *f, off_t size)
{
	char path[400];

	path_of(path, f);
	assert_int_equal(truncate(path, size), 0);
}

static void gone(const struct file *f)
{
	char path[400];

	path_of(path, f);
	assert_int_equal(unlink(path), 0);
}

static void copy(void)
{
	lab_remove(dir);
	lab_copy(base, dir);
	memset(report, 0, sizeof(*report));
}

// --- the next life ------------------------------------------------------------------------------------------

static bool quiet(struct lab *lab)
{
	struct raft_cons_stats stats;
	struct cons_info info;

	raft_cons_stats(lab->cons, &stats);
	raft_cons_ops.info(lab->cons, &info);
	return info.commit_index == info.last_index && stats.queue_entries == 0 &&
	       !info.restoring && lab_ready(lab);
}

static void live(struct lab *lab)
{
	if (lab_start(lab) != RAFT_REFUSED_NOT)
		_exit(0);
	lab_until(lab, quiet, "quiet");
	lab_step(lab);
	report->numbers[0] = lab->store->count;
	report->numbers[1] = lab->store->chain;
	// It goes on.
	lab_propose(lab, 3, 100);
}

static const char *const word[] = {"ran", "library", "foreign", "newer", "amnesia", "damaged",
	"address", "space", "locked", "state", "fault"};

// Refused, or equal; within 10 s.
static void check(const char *what)
{
	const uint64_t begin_ns = time_now_ns();
	const int code = lab_child(dir, report, live);

	printf("  %-48s %s %s\n", what, code != 0 ? "?" : word[report->refusal], report->why);
	assert_int_equal(code, 0);
	assert_true(time_now_ns() - begin_ns < 10 * NS_PER_S);
	if (report->refusal == RAFT_REFUSED_NOT) {
		assert_true(report->numbers[0] == was.count && report->numbers[1] == was.chain);
		assert_int_equal(report->acknowledged, 3);
	}
}

static void refused(const char *what)
{
	check(what);
	assert_int_not_equal(report->refusal, RAFT_REFUSED_NOT);
}

static void equal(const char *what)
{
	check(what);
	assert_int_equal(report->refusal, RAFT_REFUSED_NOT);
}

// --- cases --------------------------------------------------------------------------------------------------

static void f10_nothing_damaged_goes_on(void **state)
{
	(void)state;
	copy();
	assert_true(find(METADATA) >= 1 && find(CLOSED) >= 2 && find(OPEN) >= 1);
	assert_true(find(SNAPSHOT) >= 1 && find(SNAPSHOT_META) >= 1 && find(SIDECAR) == 1);
	equal("nothing");
}

static void f10_metadata(void **state)
{
	(void)state;
	copy();
	for (uint32_t i = find(METADATA); i > 0; i--)
		cut(&files[i - 1], 0);
	refused("metadata: all empty");
	copy();
	for (uint32_t i = find(METADATA); i > 0; i--)
		gone(&files[i - 1]);
	refused("metadata: all gone");
	// Format, version, term, vote: 8 bytes each.
	for (off_t at = 0; at < 32; at += 8)
		for (uint32_t i = 0; i < 2; i++) {
			copy();
			if (i >= find(METADATA))
				continue;
			flip(&files[i], at);
			check("metadata: a byte flipped");
			copy();
			find(METADATA);
			cut(&files[i], at);
			check("metadata: cut");
		}
	// The term in every file.
	copy();
	for (uint32_t i = find(METADATA); i > 0; i--)
		flip(&files[i - 1], 16);
	refused("metadata: another term");
	copy();
	for (uint32_t i = find(METADATA); i > 0; i--)
		flip(&files[i - 1], 24);
	refused("metadata: another vote");
}

static void f10_closed_log_files(void **state)
{
	static const off_t part[] = {0, 8, 24, 40, 5000, 1000000};

	(void)state;
	for (size_t p = 0; p < sizeof(part) / sizeof(part[0]); p++) {
		copy();
		find(CLOSED);
		flip(&files[file_count - 1], part[p]);
		check("log: a byte of the last closed file flipped");
	}
	copy();
	find(CLOSED);
	flip(&files[file_count / 2], 1000000);
	check("log: a byte of a closed file flipped");
	for (uint32_t n = 0; n < 16; n++) {
		copy();
		find(CLOSED);
		cut(&files[file_count - 1], files[file_count - 1].size * n / 16);
		refused("log: a closed file cut");
	}
	copy();
	find(CLOSED);
	gone(&files[file_count - 1]);
	check("log: the last closed file gone");
	copy();
	find(CLOSED);
	gone(&files[file_count / 2]);
	check("log: a closed file gone");
	copy();
	for (uint32_t i = find(CLOSED); i > 0; i--)
		gone(&files[i - 1]);
	check("log: all closed files gone");
}

static void f10_open_log_files(void **state)
{
	static const off_t part[] = {0, 8, 16, 24, 1000, 500000};

	(void)state;
	for (size_t p = 0; p < sizeof(part) / sizeof(part[0]); p++) {
		copy();
		find(OPEN);
		flip(&files[0], part[p]);
		check("log: a byte of the open file flipped");
	}
	copy();
	find(OPEN);
	cut(&files[0], 0);
	refused("log: the open file empty");
	for (off_t size = 1; size < 8 << 20; size = size * 2 + 7) {
		copy();
		find(OPEN);
		cut(&files[0], size);
		refused("log: the open file cut");
	}
	copy();
	for (uint32_t i = find(OPEN); i > 0; i--)
		gone(&files[i - 1]);
	refused("log: the open files gone");
	copy();
	for (uint32_t i = find(OPEN); i > 0; i--)
		gone(&files[i - 1]);
	for (uint32_t i = find(CLOSED); i > 0; i--)
		gone(&files[i - 1]);
	refused("log: all gone");
}

static void f10_snapshots(void **state)
{
	static const uint8_t lz4[] = {0x04, 0x22, 0x4d, 0x18};
	char path[400];
	int fd;

	(void)state;
	for (off_t at = 0; at < 56; at += 6) {
		copy();
		find(SNAPSHOT);
		flip(&files[file_count - 1], at);
		refused("snapshot: a byte flipped");
	}
	copy();
	find(SNAPSHOT);
	cut(&files[file_count - 1], files[file_count - 1].size - 7);
	refused("snapshot: cut");
	copy();
	find(SNAPSHOT);
	cut(&files[file_count - 1], 0);
	check("snapshot: empty");
	copy();
	find(SNAPSHOT);
	path_of(path, &files[file_count - 1]);
	fd = open(path, O_RDWR);
	assert_int_equal(pwrite(fd, lz4, sizeof(lz4), 0), sizeof(lz4));
	close(fd);
	refused("snapshot: looks compressed");
	for (off_t at = 0; at < 48; at += 5) {
		copy();
		find(SNAPSHOT_META);
		flip(&files[file_count - 1], at);
		check("snapshot: a byte of its description flipped");
	}
	copy();
	find(SNAPSHOT_META);
	cut(&files[file_count - 1], 10);
	check("snapshot: description cut");
	copy();
	find(SNAPSHOT_META);
	gone(&files[file_count - 1]);
	check("snapshot: description gone");
	copy();
	find(SNAPSHOT);
	gone(&files[file_count - 1]);
	check("snapshot: gone");
	copy();
	for (uint32_t i = find(SNAPSHOT); i > 0; i--)
		gone(&files[i - 1]);
	for (uint32_t i = find(SNAPSHOT_META); i > 0; i--)
		gone(&files[i - 1]);
	check("snapshot: all gone");
}

static void f10_sidecar(void **state)
{
	struct file old;

	(void)state;
	copy();
	find(SIDECAR);
	gone(&files[0]);
	refused("sidecar: gone");
	copy();
	find(SIDECAR);
	cut(&files[0], 700);
	refused("sidecar: cut");
	copy();
	find(SIDECAR);
	flip(&files[0], 50);
	flip(&files[0], 512 + 50);
	refused("sidecar: both halves flipped");
	copy();
	find(SIDECAR);
	old = files[0];
	flip(&old, 50);
	check("sidecar: one half flipped");
	copy();
	flip(&old, 512 + 50);
	check("sidecar: the other half flipped");
}

// The library's, of its log files.
static uint32_t checksum(const void *bytes, size_t len)
{
	uint32_t sum = 0;

	for (const uint8_t *p = bytes; len > 0; p++, len--) {
		sum ^= (uint32_t)*p << 24;
		for (int i = 0; i < 8; i++)
			sum = sum << 1 ^ ((sum & 0x80000000) != 0 ? UINT32_C(0x04c11db7) : 0);
	}
	return sum;
}

struct batch {
	uint32_t sum_header, sum_data;
	uint64_t count, term;
	uint8_t type, zero[3];
	uint32_t len;
};

static off_t batches_end(int fd)
{
	struct batch batch;
	off_t at = 8;

	for (;;) {
		assert_int_equal(pread(fd, &batch, sizeof(batch), at), sizeof(batch));
		if (batch.count == 0)
			return at;
		assert_int_equal(batch.count, 1);
		assert_int_equal(batch.sum_header, checksum(&batch.count, 24));
		at += (off_t)(sizeof(batch) + batch.len);
	}
}

// The library cuts a log file to what is in it before it gives it its final name.
static void a_kill_between_cutting_and_naming_a_log_file_is_no_damage(void **state)
{
	char path[400];
	off_t end;
	int fd;

	(void)state;
	copy();
	find(OPEN);
	path_of(path, &files[0]);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	end = batches_end(fd);
	assert_int_equal(ftruncate(fd, end), 0);
	equal("log: the open file cut to its end");
	copy();
	cut(&files[0], end - 1);
	refused("log: the open file cut one byte before");
	close(fd);
}

// A batch whose header is whole and says more than the file holds, in a file of full size: nothing but the
// library's own reading finds it, and that ends the process. The start after that says why.
static void f10_a_log_that_ends_the_process_is_refused_by_the_next_start(void **state)
{
	struct batch batch = {0};
	char path[400];
	off_t at;
	int fd;

	(void)state;
	copy();
	find(OPEN);
	path_of(path, &files[0]);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	at = batches_end(fd);
	batch.count = 1;
	batch.term = 1;
	batch.type = 1;
	batch.len = 64 << 20;
	batch.sum_header = checksum(&batch.count, 24);
	assert_int_equal(pwrite(fd, &batch, sizeof(batch), at), sizeof(batch));
	close(fd);
	assert_int_not_equal(lab_child(dir, report, live), 0);
	refused("log: an entry longer than its file");
	refused("log: the same once more");
}

static int group_setup(void **state)
{
	char path[300];
	int fd;

	(void)state;
	lab_make(base);
	lab_make(dir);
	assert_int_equal(lab_child(base, report, fill), 1000 + SIGKILL);
	snprintf(path, sizeof(path), "%s/state", base);
	fd = open(path, O_RDONLY);
	assert_int_equal(pread(fd, &was, sizeof(was), 0), sizeof(was));
	close(fd);
	return was.count == 141 ? 0 : -1;
}

static int group_teardown(void **state)
{
	(void)state;
	lab_remove(base);
	lab_remove(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(f10_nothing_damaged_goes_on),
		cmocka_unit_test(f10_metadata),
		cmocka_unit_test(f10_closed_log_files),
		cmocka_unit_test(f10_open_log_files),
		cmocka_unit_test(f10_snapshots),
		cmocka_unit_test(f10_sidecar),
		cmocka_unit_test(a_kill_between_cutting_and_naming_a_log_file_is_no_damage),
		cmocka_unit_test(f10_a_log_that_ends_the_process_is_refused_by_the_next_start),
	};

	report = lab_report_new();
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
