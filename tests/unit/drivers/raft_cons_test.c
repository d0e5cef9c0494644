/* SPDX-License-Identifier: BSD-3-Clause */
// A group of one over the real disk: bootstrap, entries, kills, restarts, lock, snapshots, disk faults,
// address, graceful end, recovery.
#include "raft_lab.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_limits.h"
#include "raft_sidecar.h"

static char dir[128];
static struct lab_report *report;

static int setup(void **state)
{
	(void)state;
	lab_make(dir);
	memset(report, 0, sizeof(*report));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lab_remove(dir);
	return 0;
}

static void start(struct lab *lab)
{
	if (lab_start(lab) != RAFT_REFUSED_NOT) {
		fprintf(stderr, "refused: %s\n", lab->report->why);
		_exit(1);
	}
	lab_until(lab, lab_ready, "ready");
}

static void run_and_die(struct lab *lab)
{
	start(lab);
	lab_propose(lab, 1000, 100);
	raise(SIGKILL);
}

static bool quiet(struct lab *lab)
{
	struct raft_cons_stats stats;
	struct cons_info info;

	raft_cons_stats(lab->cons, &stats);
	raft_cons_ops.info(lab->cons, &info);
	return info.commit_index == info.last_index && stats.queue_entries == 0 &&
	       !info.restoring && lab_ready(lab);
}

// What the next life finds.
static void look(struct lab *lab)
{
	struct raft_cons_stats stats;
	struct cons_info info;

	start(lab);
	lab_until(lab, quiet, "quiet");
	lab_step(lab);
	raft_cons_stats(lab->cons, &stats);
	report->numbers[0] = lab->store->count;
	report->numbers[1] = lab->store->chain;
	report->numbers[2] = stats.replays_skipped;
	report->numbers[3] = stats.restores;
	raft_cons_ops.info(lab->cons, &info);
	report->numbers[4] = info.term;
}

static void f3_what_was_acknowledged_survives_a_kill(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	assert_int_equal(report->acknowledged, 1000);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 1000);
}

static void gt_each_life_of_an_only_voter_has_its_own_term(void **state)
{
	uint64_t term;

	(void)state;
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	assert_int_equal(lab_child(dir, report, look), 0);
	term = report->numbers[4];
	assert_true(term >= 2);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_true(report->numbers[4] > term);
	assert_int_equal(report->numbers[0], 1000);
}

static void f18_a_restart_offers_what_the_store_lacks_and_nothing_else(void **state)
{
	char path[256];
	struct lab_state store;
	uint64_t chain;
	int fd;

	(void)state;
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[2], 1000);
	assert_true(report->commits_seen == 0 && report->replays == 0);
	chain = report->numbers[1];
	// A store that lost everything: all of it again, once, to the same end.
	snprintf(path, sizeof(path), "%s/state", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 1000);
	assert_true(report->numbers[1] == chain && report->numbers[2] == 0);
	assert_true(report->commits_seen == 1000 && report->replays == 0);
	// The application stood at the fifth but last.
	fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &store, sizeof(store), 0), sizeof(store));
	store.applied -= 5;
	assert_int_equal(pwrite(fd, &store, sizeof(store), 0), sizeof(store));
	close(fd);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[2], 995);
	assert_int_equal(report->commits_seen, 5);
}

static void take_one_at_a_time(struct lab *lab)
{
	start(lab);
	lab->take_max = 1;
	lab_propose(lab, 200, 1000);
}

static void f16_an_answer_follows_its_own_commit(void **state)
{
	(void)state;
	// The child ends with 95 when an answer comes before the consumer has the entry.
	assert_int_equal(lab_child(dir, report, take_one_at_a_time), 0);
	assert_true(report->acknowledged == 200 && report->commits_seen == 200);
}

static void bootstrap_twice(struct lab *lab)
{
	const char *why = "";

	start(lab);
	report->numbers[0] = raft_cons_bootstrap(lab->cons, &why);
	_exit(0);
}

static void bootstrap_again(struct lab *lab)
{
	const char *why = "";

	if (lab_open(lab) != RAFT_REFUSED_NOT || lab->state != RAFT_CONS_MEMBER)
		_exit(1);
	report->numbers[1] = raft_cons_bootstrap(lab->cons, &why);
	raft_cons_discard(lab->cons);
}

static void f12_bootstrap_twice_is_refused(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, bootstrap_twice), 0);
	assert_int_equal(report->numbers[0], RAFT_REFUSED_STATE);
	assert_int_equal(lab_child(dir, report, bootstrap_again), 0);
	assert_int_equal(report->numbers[1], RAFT_REFUSED_STATE);
	assert_int_equal(lab_child(dir, report, look), 0);
}

static void open_and_die(struct lab *lab)
{
	start(lab);
	raise(SIGKILL);
}

static void open_twice(struct lab *lab)
{
	start(lab);
	report->numbers[0] = (uint64_t)lab_child(lab->dir, report, open_and_die);
	report->numbers[1] = report->refusal;
}

static void a_second_open_is_refused(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, open_twice), 0);
	assert_int_equal(report->numbers[0], 1);
	assert_int_equal(report->numbers[1], RAFT_REFUSED_LOCKED);
	// A kill leaves no lock behind.
	assert_int_equal(lab_child(dir, report, open_and_die), 1000 + SIGKILL);
	assert_int_equal(lab_child(dir, report, look), 0);
}

static void open_empty(struct lab *lab)
{
	if (lab_open(lab) != RAFT_REFUSED_NOT)
		_exit(1);
	report->numbers[0] = lab->state;
	raft_cons_discard(lab->cons);
	if (uv_loop_close(&lab->loop) == 0)
		_exit(2);  // the lab's own timer is still there
}

static void say_bootstrapping(struct lab *lab)
{
	const struct sidecar_record record = {
		.cluster_id = 0xc1, .node_id = 7, .term = 1, .stage = SIDECAR_BOOTSTRAPPING};
	struct raft_sidecar s;

	if (sidecar_create(&s, lab->params.dir, &record) != 0)
		_exit(1);
}

static void half_a_bootstrap_is_none(void **state)
{
	char path[300];

	(void)state;
	assert_int_equal(lab_child(dir, report, open_empty), 0);
	assert_int_equal(report->numbers[0], RAFT_CONS_EMPTY);
	// As a kill inside a bootstrap leaves it: our word that it began, and some of the library's files.
	assert_int_equal(lab_child(dir, report, open_and_die), 1000 + SIGKILL);
	snprintf(path, sizeof(path), "%s/raft/sidecar", dir);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/state", dir);
	unlink(path);
	assert_int_equal(lab_child(dir, report, say_bootstrapping), 0);
	assert_int_equal(lab_child(dir, report, open_empty), 0);
	assert_int_equal(report->numbers[0], RAFT_CONS_EMPTY);
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 1000);
}

// --- limits -------------------------------------------------------------------------------------------------

static bool one_answered(struct lab *lab)
{
	return lab->in_flight < 2;
}

static void overload(struct lab *lab)
{
	static uint8_t data[ENTRY_BYTES_MAX + 1];
	const struct cons_ops *ops = &raft_cons_ops;

	start(lab);
	report->numbers[0] = ops->propose(lab->cons, data, 10, LAB_TOKENS + 1);
	report->numbers[1] = ops->propose(lab->cons, data, ENTRY_BYTES_MAX, LAB_TOKENS + 2);
	lab->in_flight = 2;
	report->numbers[2] = ops->propose(lab->cons, data, 10, 3);
	lab_until(lab, one_answered, "an answer");
	report->numbers[3] = ops->propose(lab->cons, data, ENTRY_BYTES_MAX + 1, 4);
}

static void two_entries_are_in_flight_and_no_more(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, overload), 0);
	assert_int_equal(report->numbers[0], CONS_OK);
	assert_int_equal(report->numbers[1], CONS_OK);
	assert_int_equal(report->numbers[2], CONS_BUSY);
	assert_int_equal(report->numbers[3], CONS_TOO_LARGE);
}

static bool none_in_flight(struct lab *lab)
{
	return lab->in_flight == 0;
}

static void barriers(struct lab *lab)
{
	static uint8_t data[100];
	uint64_t taken = 0;

	start(lab);
	lab->take_max = 1;
	for (uint64_t i = 1; i <= 2; i++)
		if (raft_cons_ops.propose(lab->cons, data, 100, LAB_TOKENS + i) != CONS_OK)
			_exit(1);
	lab->in_flight = 2;
	while (raft_cons_ops.barrier(lab->cons, 1 + taken) == CONS_OK)
		taken++;
	lab->in_flight += (uint32_t)taken;
	report->numbers[0] = taken;
	lab_until(lab, none_in_flight, "barriers");
	report->numbers[1] = lab->store->count;
	report->numbers[2] = lab->last_token;
	report->numbers[3] = lab->last_status;
}

static void barriers_share_entries_and_follow_what_came_before(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, barriers), 0);
	assert_true(report->numbers[0] > 100 && report->numbers[0] < 5000);
	assert_int_equal(report->numbers[1], 2);
	assert_int_equal(report->numbers[2], report->numbers[0]);
	assert_int_equal(report->numbers[3], CONS_OK);
	assert_int_equal(report->acknowledged, 2 + report->numbers[0]);
}

static void stop(struct lab *lab)
{
	static const uint8_t data[10];

	start(lab);
	lab_propose(lab, 10, 10);
	if (raft_cons_ops.propose(lab->cons, data, 10, ++lab->token) != CONS_OK)
		_exit(1);
	lab->in_flight = 1;
	raft_cons_stop(lab->cons);
	report->numbers[0] = raft_cons_ops.propose(lab->cons, data, 10, 99);
	while (!raft_cons_stopped(lab->cons))
		lab_step(lab);
	report->numbers[1] = lab->store->count;
}

static void f24_a_graceful_end_waits_for_what_is_in_flight(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(lab_child(dir, report, stop), 0);
	assert_int_equal(report->numbers[0], CONS_FAILED);
	assert_int_equal(report->numbers[1], 33);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 33);
}

// --- snapshots ----------------------------------------------------------------------------------------------

static bool snapped(struct lab *lab)
{
	struct raft_cons_stats stats;
	struct cons_info info;

	raft_cons_stats(lab->cons, &stats);
	raft_cons_ops.info(lab->cons, &info);
	return stats.snapshots > 0 && info.snapshot_index > 0;
}

static void snapshot_and_die(struct lab *lab)
{
	lab->params.snapshot_entries = 200;
	lab->params.snapshot_trailing = 50;
	start(lab);
	lab->snapshot_pad = 9 << 20;
	lab_propose(lab, 300, 100);
	lab_until(lab, snapped, "a snapshot");
	lab_propose(lab, 100, 100);
	raise(SIGKILL);
}

static void a_lost_store_comes_back_from_snapshot_and_log(void **state)
{
	uint64_t chain;
	char path[256];

	(void)state;
	assert_int_equal(lab_child(dir, report, snapshot_and_die), 1000 + SIGKILL);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 400);
	assert_int_equal(report->numbers[3], 0);
	chain = report->numbers[1];
	snprintf(path, sizeof(path), "%s/state", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 400);
	assert_int_equal(report->numbers[3], 1);
	assert_true(report->numbers[1] == chain);
	assert_true(report->commits_seen < 400);
}

static void snapshot_by_bytes(struct lab *lab)
{
	lab->params.snapshot_log_bytes = 1 << 20;
	start(lab);
	lab_propose(lab, 30, 60000);
	lab_until(lab, snapped, "a snapshot for the log's size");
}

static void a_large_log_asks_for_a_snapshot(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, snapshot_by_bytes), 0);
}

static void snapshots_that_fail(struct lab *lab)
{
	struct raft_cons_stats stats;

	lab->params.snapshot_entries = 50;
	start(lab);
	lab->snapshot_busy = true;
	lab_propose(lab, 200, 100);
	lab->snapshot_busy = false;
	lab->encode_rc = -EIO;
	lab_propose(lab, 200, 100);
	lab->encode_rc = 0;
	lab->snapshot_huge = true;
	lab_propose(lab, 200, 100);
	raft_cons_stats(lab->cons, &stats);
	report->numbers[0] = stats.snapshots;
	lab->snapshot_huge = false;
	lab_propose(lab, 200, 100);
	lab_until(lab, snapped, "a snapshot after all");
	report->numbers[1] = lab->store->count;
}

static void a_snapshot_that_fails_is_made_later(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, snapshots_that_fail), 0);
	assert_int_equal(report->numbers[0], 0);
	assert_int_equal(report->numbers[1], 800);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 800);
}

// --- disk ---------------------------------------------------------------------------------------------------

static void fill(struct lab *lab)
{
	struct rlimit limit = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};

	start(lab);
	lab_propose(lab, 10, 100);
	report->numbers[0] = report->acknowledged;
	// No file may grow from here on: the next segments cannot be made.
	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
		_exit(1);
	for (;;)
		lab_propose(lab, 1, 100000);
}

static void f9_a_write_that_fails_ends_the_process_and_the_next_life_goes_on(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, fill), RAFT_EXIT_DISK);
	assert_true(report->acknowledged >= 10);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_true(report->numbers[0] >= report->acknowledged);
}

static const char *mounted;  // a small file system of our own, in a namespace of our own

static bool ballast_there(void)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/ballast", mounted);
	return access(path, F_OK) == 0;
}

static void fill_up(struct lab *lab)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/ballast", lab->dir);
	lab->params.ballast = path;
	start(lab);
	for (;;)
		lab_propose(lab, 1, 250000);
}

static void start_and_see(struct lab *lab)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/ballast", lab->dir);
	lab->params.ballast = path;
	if (lab_start(lab) != RAFT_REFUSED_NOT)
		_exit(0);
	lab_until(lab, quiet, "quiet");
	lab_propose(lab, 10, 1000);
}

static void mount_and_fill(struct lab *lab)
{
	struct lab_report *r = lab->report;

	mounted = strdup(lab->dir);
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		mount("none", mounted, "tmpfs", 0, "size=230m") != 0)
		_exit(77);
	r->numbers[0] = (uint64_t)lab_child(mounted, r, fill_up);
	r->numbers[1] = ballast_there();
	// The next life gives the ballast back, and goes on with that.
	r->numbers[2] = (uint64_t)lab_child(mounted, r, fill_up);
	r->numbers[3] = ballast_there();
	// Then there is no more to give.
	r->numbers[4] = (uint64_t)lab_child(mounted, r, start_and_see);
	r->numbers[5] = r->refusal;
	if (mount("none", mounted, "tmpfs", MS_REMOUNT, "size=600m") != 0)
		_exit(78);
	r->numbers[6] = (uint64_t)lab_child(mounted, r, start_and_see);
	r->numbers[7] = ballast_there();
}

static void f9_a_full_disk_gives_its_ballast_back_once(void **state)
{
	const int code = lab_child(dir, report, mount_and_fill);

	(void)state;
	if (code == 77)
		skip();
	assert_int_equal(code, 0);
	assert_int_equal(report->numbers[0], RAFT_EXIT_DISK);
	assert_int_equal(report->numbers[1], 1);
	assert_int_equal(report->numbers[2], RAFT_EXIT_DISK);
	assert_int_equal(report->numbers[3], 0);
	assert_int_equal(report->numbers[4], 0);
	assert_int_equal(report->numbers[5], RAFT_REFUSED_SPACE);
	assert_int_equal(report->numbers[6], 0);
	assert_int_equal(report->refusal, RAFT_REFUSED_NOT);
	assert_int_equal(report->numbers[7], 1);
}

// --- library -----------------------------------------------------------------------------------------------

static const char *program;

static void run_with_another_library(struct lab *lab)
{
	char dirs[300], copy[400], command[900];

	snprintf(dirs, sizeof(dirs), "%s/lib", lab->dir);
	snprintf(copy, sizeof(copy), "%s/libraft.so.2", dirs);
	snprintf(command, sizeof(command),
		"cp \"$(ldd %s | sed -n 's/.*libraft.so.2 => \\([^ ]*\\).*/\\1/p')\" %s", program,
		copy);
	if (mkdir(dirs, 0700) != 0 || system(command) != 0)
		_exit(2);
	setenv("LD_LIBRARY_PATH", dirs, 1);
	execl(program, program, "open", lab->dir, NULL);
	_exit(3);
}

static void a_library_of_another_name_is_refused(void **state)
{
	(void)state;
	assert_int_equal(
		lab_child(dir, report, run_with_another_library), 100 + RAFT_REFUSED_LIBRARY);
}

static void open_only(struct lab *lab)
{
	_exit(100 + (int)lab_open(lab));
}

// --- address, inspect, recover ------------------------------------------------------------------------------

static void look_at_address(struct lab *lab)
{
	struct cons_member members[2];

	close(lab_listen(lab->params.address));  // free again
	start(lab);
	lab_propose(lab, 5, 10);
	report->numbers[0] = raft_cons_ops.members(lab->cons, members, 2);
	report->numbers[1] = strcmp(members[0].address, lab->params.address) == 0;
	report->numbers[2] = lab->store->count;
}

static void a_group_of_one_takes_a_new_address(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	for (uint64_t i = 1; i <= 2; i++) {
		assert_int_equal(lab_child(dir, report, look_at_address), 0);
		assert_true(report->numbers[0] == 1 && report->numbers[1] == 1);
		assert_int_equal(report->numbers[2], 1000 + 5 * i);
	}
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 1010);
}

static void listen_twice(struct lab *lab)
{
	// Somebody listens there already.
	const int fd = lab_listen(lab->params.address);

	report->numbers[0] = lab_start(lab);
	close(fd);
}

static void an_address_in_use_is_refused(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, listen_twice), 0);
	assert_int_equal(report->numbers[0], RAFT_REFUSED_ADDRESS);
}

static void inspect(struct lab *lab)
{
	struct raft_cons_files files;
	const char *why = "";

	report->refusal = raft_cons_inspect(lab->params.dir, &files, &why);
	snprintf(report->why, sizeof(report->why), "%s", why);
	report->numbers[0] = files.last_index;
	report->numbers[1] = files.members;
	report->numbers[2] = files.member[0].id;
	report->numbers[3] = files.term;
	report->numbers[4] = files.node_id;
	report->numbers[5] = files.configuration_index;
}

static void inspect_while_running(struct lab *lab)
{
	struct raft_cons_files files;
	const char *why = "";

	start(lab);
	report->numbers[0] = raft_cons_inspect(lab->params.dir, &files, &why);
}

static void recover(struct lab *lab)
{
	struct raft_cons_files files;
	const char *why = "";

	snprintf(lab->params.address, sizeof(lab->params.address), "127.0.0.1:2");
	report->refusal = raft_cons_recover(&lab->params, &files, &why);
	snprintf(report->why, sizeof(report->why), "%s", why);
	report->numbers[0] = files.last_index;
	report->numbers[1] = files.configuration_index;
	report->numbers[2] = strcmp(files.member[0].address, "127.0.0.1:2") == 0;
}

static void a_folder_is_inspected_and_recovered_while_nobody_runs_it(void **state)
{
	uint64_t last;

	(void)state;
	assert_int_equal(lab_child(dir, report, inspect), 0);
	assert_int_equal(report->refusal, RAFT_REFUSED_STATE);
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	assert_int_equal(lab_child(dir, report, inspect_while_running), 0);
	assert_int_equal(report->numbers[0], RAFT_REFUSED_LOCKED);
	assert_int_equal(lab_child(dir, report, inspect), 0);
	assert_int_equal(report->refusal, RAFT_REFUSED_NOT);
	assert_true(report->numbers[0] > 1000 && report->numbers[1] == 1);
	assert_true(report->numbers[2] == 7 && report->numbers[4] == 7);
	assert_true(report->numbers[3] >= 1 && report->numbers[5] == 1);
	last = report->numbers[0];
	assert_int_equal(lab_child(dir, report, recover), 0);
	assert_int_equal(report->refusal, RAFT_REFUSED_NOT);
	assert_int_equal(report->numbers[0], last + 1);
	assert_int_equal(report->numbers[1], last + 1);
	assert_int_equal(report->numbers[2], 1);
	assert_int_equal(lab_child(dir, report, look), 0);
	assert_int_equal(report->numbers[0], 1000);
}

static void other_node(struct lab *lab)
{
	lab->params.node_id = 8;
	report->numbers[0] = lab_open(lab);
	lab->params.node_id = 7;
	lab->params.cluster_id = 0xc2;
	report->numbers[1] = lab_open(lab);
}

static void files_of_another_node_or_cluster_are_refused(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	assert_int_equal(lab_child(dir, report, other_node), 0);
	assert_int_equal(report->numbers[0], RAFT_REFUSED_FOREIGN);
	assert_int_equal(report->numbers[1], RAFT_REFUSED_FOREIGN);
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(f3_what_was_acknowledged_survives_a_kill),
		T(gt_each_life_of_an_only_voter_has_its_own_term),
		T(f18_a_restart_offers_what_the_store_lacks_and_nothing_else),
		T(f16_an_answer_follows_its_own_commit),
		T(f12_bootstrap_twice_is_refused),
		T(a_second_open_is_refused),
		T(half_a_bootstrap_is_none),
		T(two_entries_are_in_flight_and_no_more),
		T(barriers_share_entries_and_follow_what_came_before),
		T(f24_a_graceful_end_waits_for_what_is_in_flight),
		T(a_lost_store_comes_back_from_snapshot_and_log),
		T(a_large_log_asks_for_a_snapshot),
		T(a_snapshot_that_fails_is_made_later),
		T(f9_a_write_that_fails_ends_the_process_and_the_next_life_goes_on),
		T(f9_a_full_disk_gives_its_ballast_back_once),
		T(a_library_of_another_name_is_refused),
		T(a_group_of_one_takes_a_new_address),
		T(an_address_in_use_is_refused),
		T(a_folder_is_inspected_and_recovered_while_nobody_runs_it),
		T(files_of_another_node_or_cluster_are_refused),
	};

	report = lab_report_new();
	program = argv[0];
	if (argc == 3 && strcmp(argv[1], "open") == 0)
		return lab_child(argv[2], report, open_only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
