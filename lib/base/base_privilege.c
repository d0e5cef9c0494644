/* SPDX-License-Identifier: BSD-3-Clause */
// Drops capabilities in every thread: a signal makes each one call capset itself, as setuid does it in the C
// library. Only one call at a time; the threads of the process must not have the signal blocked.
#include "base_privilege.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DROP_SIGNAL (SIGRTMIN + 3)
#define WAIT_STEP_NS 100000
#define WAIT_STEPS 20000  // 2 s

static uint64_t wanted;
static _Atomic int result;
static _Atomic pid_t answered;  // thread that did it last

// On the calling thread. Safe in a signal handler.
static int drop_here(uint64_t keep)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	if (syscall(SYS_capget, &header, data) != 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
		const uint32_t mask = (uint32_t)(keep >> (32 * i));

		data[i].permitted &= mask;
		data[i].effective &= mask;
		data[i].inheritable = 0;
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_capset, &header, data) != 0)
		return -errno;
	return 0;
}

static void on_signal(int number)
{
	const int saved = errno;
	const int rc = drop_here(wanted);

	(void)number;
	if (rc != 0)
		atomic_store(&result, rc);
	atomic_store(&answered, (pid_t)syscall(SYS_gettid));
	errno = saved;
}

// Returns: 0, also when the thread has ended; -ETIMEDOUT.
static int drop_there(pid_t thread)
{
	const struct timespec step = {.tv_nsec = WAIT_STEP_NS};

	if (syscall(SYS_tgkill, getpid(), thread, DROP_SIGNAL) != 0)
		return errno == ESRCH ? 0 : -errno;
	for (int i = 0; i < WAIT_STEPS; i++) {
		if (atomic_load(&answered) == thread)
			return 0;
		nanosleep(&step, NULL);
		if (syscall(SYS_tgkill, getpid(), thread, 0) != 0)
			return 0;
	}
	return -ETIMEDOUT;
}

static int drop_all(void)
{
	const pid_t self = (pid_t)syscall(SYS_gettid);
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *entry;
	int rc = 0;

	if (dir == NULL)
		return -errno;
	while ((entry = readdir(dir)) != NULL) {
		const pid_t thread = (pid_t)atoi(entry->d_name);
		int bad;

		if (thread == 0 || thread == self)
			continue;
		bad = drop_there(thread);
		if (bad != 0)
			rc = bad;
	}
	closedir(dir);
	return rc;
}

int privilege_drop(uint64_t keep)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
	int rc;

	wanted = keep;
	atomic_store(&result, 0);
	if (sigaction(DROP_SIGNAL, &action, &before) != 0)
		return -errno;
	// First this one: threads it makes from here on have no more than it.
	rc = drop_here(keep);
	if (rc == 0)
		rc = drop_all();
	if (rc == 0)
		rc = atomic_load(&result);
	// One that answers late must not end the process.
	action = (struct sigaction){.sa_handler = SIG_IGN};
	sigaction(DROP_SIGNAL, rc == 0 ? &before : &action, NULL);
	return rc;
}
