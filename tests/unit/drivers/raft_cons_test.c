/* SPDX-License-Identifier: BSD-3-Clause */
// A group of one over the real disk: bootstrap, entries, kill, restart, lock, snapshots, graceful end.
#include "raft_lab.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void run_and_die(struct lab *lab)
{
	if (lab_start(lab) != RAFT_REFUSED_NOT)
		_exit(1);
	lab_until(lab, lab_ready, "ready");
	lab_propose(lab, 1000, 100);
	raise(SIGKILL);
}

static void count_again(struct lab *lab)
{
	struct cons_info info;

	if (lab_start(lab) != RAFT_REFUSED_NOT)
		_exit(1);
	lab_until(lab, lab_ready, "ready");
	raft_cons_ops.info(lab->cons, &info);
	report->numbers[0] = lab->store->count;
	report->numbers[1] = info.applied_index;
	report->numbers[2] = info.term;
	report->numbers[3] = lab->store->chain;
}

static void what_was_acknowledged_survives_a_kill(void **state)
{
	(void)state;
	assert_int_equal(lab_child(dir, report, run_and_die), 1000 + SIGKILL);
	assert_int_equal(report->acknowledged, 1000);
	assert_int_equal(lab_child(dir, report, count_again), 0);
	assert_int_equal(report->numbers[0], 1000);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(what_was_acknowledged_survives_a_kill),
	};

	report = lab_report_new();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
