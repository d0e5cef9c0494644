/* SPDX-License-Identifier: BSD-3-Clause */
// Capabilities given up, in every thread and for good.
#include "base_privilege.h"

#include <linux/capability.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

#define THREADS 3

static uint64_t field(const char *path, const char *name, int base)
{
	char line[256];
	unsigned long long value = UINT64_MAX;
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			sscanf(line + strlen(name), base == 16 ? "%llx" : "%llu", &value);
	fclose(f);
	return value;
}

static void *wait_for_end(void *fd)
{
	char byte;

	// Interrupted by the signal and restarted.
	if (read(*(int *)fd, &byte, 1) != 0)
		return fd;
	return (void *)(uintptr_t)(field("/proc/thread-self/status", "CapEff:", 16) |
				   field("/proc/thread-self/status", "CapPrm:", 16));
}

// In a child: nothing comes back. Exit code: what went wrong.
static int child(uint64_t keep)
{
	const uint64_t had = field("/proc/thread-self/status", "CapPrm:", 16);
	pthread_t thread[THREADS];
	int end[2];

	if (pipe(end) != 0)
		return 1;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, wait_for_end, &end[0]) != 0)
			return 2;
	if (privilege_drop(keep) != 0)
		return 3;
	if (field("/proc/thread-self/status", "CapPrm:", 16) != (had & keep))
		return 4;
	close(end[1]);
	for (int i = 0; i < THREADS; i++) {
		void *left;

		pthread_join(thread[i], &left);
		if ((uintptr_t)left != (had & keep))
			return 5;
	}
	if (field("/proc/thread-self/status", "NoNewPrivs:", 10) != 1)
		return 6;
	// A program run from here has no more.
	if (system("read -r x </proc/self/status; while read -r name value rest; do "
		   "[ \"$name\" != CapEff: ] || [ $((0x$value & ~0x3000)) = 0 ] || exit 1; "
		   "done </proc/self/status") != 0)
		return 7;
	return privilege_drop(0) == 0 && field("/proc/thread-self/status", "CapPrm:", 16) == 0 ? 0
											       : 8;
}

static void every_thread_gives_up_all_but_what_is_kept(void **state)
{
	const uint64_t keep = PRIVILEGE(CAP_NET_RAW) | PRIVILEGE(CAP_NET_ADMIN);
	const pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(child(keep));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_thread_gives_up_all_but_what_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
