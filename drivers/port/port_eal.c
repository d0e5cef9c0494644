/* SPDX-License-Identifier: BSD-3-Clause */
// Starts and stops DPDK's environment from the configuration, and runs workers on its lcores: worker w is
// lcore w + 1, lcore 0 is the main thread. Main thread only.
#include "port_args.h"
#include "port_pvt.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_debug.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>

static struct port_args args;

// Without root EAL wants a directory of its own; the node has one.
static void offer_runtime_directory(const struct conf *conf)
{
	struct stat st;

	if (geteuid() == 0 || conf->node.run_dir[0] == '\0' || getenv("XDG_RUNTIME_DIR") != NULL ||
		stat(conf->node.run_dir, &st) != 0 || !S_ISDIR(st.st_mode))
		return;
	setenv("RUNTIME_DIRECTORY", conf->node.run_dir, 0);
}

int port_eal_start(const struct conf *conf, const char **why)
{
	cpu_set_t allowed;
	char *argv[PORT_ARGS_MAX + 1];

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
		*why = port_why("sched_getaffinity: %s", strerror(errno));
		return -EIO;
	}
	const int rc = port_args_eal(conf, &allowed, &args, why);

	if (rc != 0)
		return rc;
	// drivers over sockets (virtio_user, memif) would end the process when their peer leaves
	signal(SIGPIPE, SIG_IGN);
	offer_runtime_directory(conf);
	memcpy(argv, args.argv, sizeof(argv));  // EAL reorders what it is given
	if (rte_eal_init(args.argc, argv) < 0) {
		*why = port_why(
			"DPDK did not start (%s) with: %s", rte_strerror(rte_errno), args.line);
		return -EIO;
	}
	return 0;
}

void port_eal_stop(void)
{
	char dir[256];

	snprintf(dir, sizeof(dir), "%s", rte_eal_get_runtime_dir());
	rte_eal_cleanup();
	// EAL leaves its folder; it stays as well while a telemetry socket, which ends with the process,
	// or another node of the same name is in it
	rmdir(dir);
}

const char *port_eal_args(void)
{
	return args.line;
}

// What a worker's thread runs. EAL hands over and joins through a pipe, which orders memory but which
// neither C nor a race checker knows of; `state` says it in their terms.
// Pairing: the release stores of `state` pair with the acquire loads on the other side.
static struct launch {
	int (*fn)(void *);
	void *arg;
	_Atomic int state;
} launches[WORKERS_MAX];

static int run_launch(void *arg)
{
	struct launch *l = arg;

	(void)atomic_load_explicit(&l->state, memory_order_acquire);
	const int rc = l->fn(l->arg);

	atomic_store_explicit(&l->state, 0, memory_order_release);
	return rc;
}

int port_worker_launch(uint32_t worker, int (*fn)(void *), void *arg)
{
	struct launch *l = &launches[worker];

	l->fn = fn;
	l->arg = arg;
	atomic_store_explicit(&l->state, 1, memory_order_release);
	return rte_eal_remote_launch(run_launch, l, worker + 1);
}

void port_workers_wait(void)
{
	rte_eal_mp_wait_lcore();
	for (uint32_t w = 0; w < WORKERS_MAX; w++)
		(void)atomic_load_explicit(&launches[w].state, memory_order_acquire);
}
