/* SPDX-License-Identifier: BSD-3-Clause */
// The sidecar: what was promised is read back or refused, whatever happens to the file.
#include "raft_lab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "raft_sidecar.h"

static char dir[128];
static struct raft_sidecar s;
static const struct sidecar_record first = {
	.cluster_id = 1, .node_id = 2, .term = 3, .stage = SIDECAR_MEMBER};

static int setup(void **state)
{
	(void)state;
	lab_make(dir);
	assert_int_equal(sidecar_open(&s, dir), -ENOENT);
	assert_int_equal(sidecar_create(&s, dir, &first), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sidecar_close(&s);
	lab_remove(dir);
	return 0;
}

static void reopen(int expected)
{
	sidecar_close(&s);
	assert_int_equal(sidecar_open(&s, dir), expected);
}

static int file(void)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/sidecar", dir);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	return fd;
}

static void flip(int fd, off_t at)
{
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void the_last_promise_is_read_back(void **state)
{
	(void)state;
	for (uint64_t term = 4; term < 40; term++) {
		assert_int_equal(sidecar_promise(&s, term, 0), 0);
		assert_int_equal(sidecar_promise(&s, term, term % 5), 0);
		reopen(0);
		assert_true(s.record.term == term && s.record.vote == term % 5);
		assert_true(s.record.term_before == term && s.record.vote_before == 0);
		assert_true(s.record.cluster_id == 1 && s.record.node_id == 2);
	}
}

static void one_missed_write_is_told_from_lost_metadata(void **state)
{
	(void)state;
	assert_int_equal(sidecar_promise(&s, 4, 0), 0);
	assert_int_equal(sidecar_promise(&s, 4, 9), 0);
	assert_int_equal(sidecar_compare(&s, 4, 9), SIDECAR_SAME);
	assert_int_equal(sidecar_compare(&s, 4, 0), SIDECAR_AHEAD);
	assert_int_equal(sidecar_compare(&s, 3, 0), SIDECAR_DIFFERS);
	assert_int_equal(sidecar_compare(&s, 0, 0), SIDECAR_DIFFERS);
	assert_int_equal(sidecar_compare(&s, 4, 8), SIDECAR_DIFFERS);
	assert_int_equal(sidecar_compare(&s, 5, 9), SIDECAR_DIFFERS);
	assert_int_equal(sidecar_compare(&s, 5, 0), SIDECAR_DIFFERS);
}

// The promise of a damaged file is either the last one, or one the library's metadata does not agree with.
static void f10_every_flipped_byte_is_harmless_or_seen(void **state)
{
	uint32_t last = 0, before = 0;

	(void)state;
	assert_int_equal(sidecar_promise(&s, 7, 0), 0);
	assert_int_equal(sidecar_promise(&s, 7, 9), 0);
	for (off_t at = 0; at < 2 * (off_t)SIDECAR_SLOT_BYTES; at++) {
		const int fd = file();

		flip(fd, at);
		reopen(0);
		if (s.record.term == 7 && s.record.vote == 9) {
			last++;
		} else {
			before++;
			assert_int_equal(sidecar_compare(&s, 7, 9), SIDECAR_DIFFERS);
		}
		flip(fd, at);
		close(fd);
	}
	assert_int_equal(last, SIDECAR_SLOT_BYTES);
	assert_int_equal(before, SIDECAR_SLOT_BYTES);
}

static void f10_both_slots_damaged_is_refused(void **state)
{
	const int fd = file();

	(void)state;
	flip(fd, 100);
	flip(fd, (off_t)SIDECAR_SLOT_BYTES + 100);
	close(fd);
	reopen(-EBADMSG);
}

static void f10_every_truncation_is_refused(void **state)
{
	const int fd = file();

	(void)state;
	for (off_t len = 2 * (off_t)SIDECAR_SLOT_BYTES - 1; len >= 0; len -= 31) {
		assert_int_equal(ftruncate(fd, len), 0);
		reopen(-EBADMSG);
	}
	close(fd);
}

static void f10_an_older_file_disagrees_with_the_metadata(void **state)
{
	char copy[128];

	(void)state;
	assert_int_equal(sidecar_promise(&s, 7, 9), 0);
	lab_copy(dir, copy);
	assert_int_equal(sidecar_promise(&s, 8, 0), 0);
	assert_int_equal(sidecar_promise(&s, 8, 3), 0);
	sidecar_close(&s);
	assert_int_equal(sidecar_open(&s, copy), 0);
	assert_int_equal(sidecar_compare(&s, 8, 3), SIDECAR_DIFFERS);
	assert_int_equal(sidecar_compare(&s, 8, 0), SIDECAR_DIFFERS);
	lab_remove(copy);
}

static void a_later_format_is_named_so(void **state)
{
	// A record of a format this program does not know, otherwise whole.
	(void)state;
	sidecar_close(&s);
	s.fd = file();
	assert_int_equal(sidecar_write_format(&s, &first, SIDECAR_FORMAT + 1), 0);
	assert_int_equal(sidecar_write_format(&s, &first, SIDECAR_FORMAT + 1), 0);
	reopen(-EPROTO);
}

static void a_full_disk_is_an_error(void **state)
{
	struct raft_sidecar full = {.fd = open("/dev/full", O_RDWR)};

	(void)state;
	if (full.fd < 0)
		skip();
	assert_int_equal(sidecar_promise(&full, 9, 9), -ENOSPC);
	assert_int_equal(full.record.term, 0);
	close(full.fd);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_last_promise_is_read_back),
		T(one_missed_write_is_told_from_lost_metadata),
		T(f10_every_flipped_byte_is_harmless_or_seen),
		T(f10_both_slots_damaged_is_refused),
		T(f10_every_truncation_is_refused),
		T(f10_an_older_file_disagrees_with_the_metadata),
		T(a_later_format_is_named_so),
		T(a_full_disk_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
