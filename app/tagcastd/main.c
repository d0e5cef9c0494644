/* SPDX-License-Identifier: BSD-3-Clause */
// tagcastd: command line, configuration check, module table.
#include <argp.h>
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#ifndef TAGCAST_NO_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

#include "app.h"
#include "base_fault.h"
#include "base_log.h"
#include "base_privilege.h"
#include "base_time.h"
#include "app_limits.h"
#include "meta_child.h"
#include "wire_auth.h"

// For names that a shared library looks for in the program: hidden ones it would not find.
#define SEEN_BY_LIBRARIES __attribute__((visibility("default")))

#ifndef TAGCAST_NO_JEMALLOC
// Read by jemalloc before main.
SEEN_BY_LIBRARIES const char *malloc_conf = "dirty_decay_ms:5000,muzzy_decay_ms:5000";
#endif

#define META_STOP_NS (5 * NS_PER_S)  // from SIGTERM to SIGKILL of the meta process

struct options {
	const char *file;
	bool check;
	bool print;
};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'c':
		o->file = arg;
		return 0;
	case 't':
		o->file = arg;
		o->check = true;
		return 0;
	case 'p':
		o->file = arg;
		o->print = true;
		return 0;
	case ARGP_KEY_END:
		if (o->file == NULL)
			argp_error(state, "a configuration file is needed: -c FILE");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

SEEN_BY_LIBRARIES const char *argp_program_version = "tagcastd " TAGCAST_VERSION;

static const struct argp_option option_table[] = {
	{"config", 'c', "FILE", 0, "Run with this configuration", 0},
	{"check", 't', "FILE", 0, "Check a configuration and exit: 0 valid, 78 not. Needs no root",
		0},
	{"print", 'p', "FILE", 0, "Print the effective configuration and exit", 0},
	{0},
};
static const struct argp argp_table = {
	.options = option_table,
	.parser = on_option,
	.doc = "The fast process of a tagcast node. It starts tagcast-metad itself unless "
	       "meta.mode is "
	       "external.",
};

// Signals are read from a descriptor by the control core; blocked before any other thread exists.
static int init_signals(struct app *app)
{
	sigset_t set;

	(void)app;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	return -pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void start_log(const struct app *app)
{
	log_set_program("tagcastd");
	app_log_level(&app->conf);
}

static int make_folder(const char *path)
{
	if (mkdir(path, 0750) != 0 && errno != EEXIST) {
		LOG(LOG_ERROR, "main", "E1001", "cannot create folder %s: %s", path,
			strerror(errno));
		return -errno;
	}
	return 0;
}

static int init_folders(struct app *app)
{
	const int rc = make_folder(app->conf.node.run_dir);

	return rc != 0 ? rc : make_folder(app->conf.node.data_dir);
}

static int init_identity(struct app *app)
{
	if (wire_auth_init() != 0) {
		LOG(LOG_ERROR, "main", "E1002", "the cryptography library does not start");
		return -EIO;
	}
	uint64_t seed;

	wire_random(&app->boot, sizeof(app->boot));
	app->boot |= 1;
	wire_random(&seed, sizeof(seed));
	id_hash_seed(seed);
	for (uint32_t w = 0; w < app->conf.workers.count; w++) {
		app->counters[w] = aligned_alloc(64, sizeof(struct counters));
		if (app->counters[w] == NULL)
			return -ENOMEM;
		memset(app->counters[w], 0, sizeof(struct counters));
	}
	return 0;
}

static void fini_identity(struct app *app)
{
	for (uint32_t w = 0; w < WORKERS_MAX; w++)
		free(app->counters[w]);
}

static int init_eal(struct app *app)
{
	const char *why = "";
	const int rc = port_eal_start(&app->conf, &why);

	if (rc != 0)
		LOG(LOG_ERROR, "port", "E1101", "EAL does not start: %s (arguments: %s)", why,
			port_eal_args());
	else
		LOG(LOG_INFO, "port", "I1101", "EAL started: %s", port_eal_args());
	return rc;
}

static void fini_eal(struct app *app)
{
	(void)app;
	port_eal_stop();
}

static int init_port(struct app *app)
{
	const char *why = "";
	const int rc = port_open(&app->conf, app->counters, &app->port, &why);

	if (rc != 0)
		LOG(LOG_ERROR, "port", "E1102", "port %s does not open: %s", app->conf.port.device,
			why);
	return rc;
}

static void fini_port(struct app *app)
{
	port_close(app->port);
}

static int init_source(struct app *app)
{
	const int rc =
		source_store_open(app->conf.node.data_dir, app->conf.meta.map_bytes, &app->source);

	if (rc != 0)
		LOG(LOG_ERROR, "source", "E1201", "cannot use the store in %s: %s",
			app->conf.node.data_dir, strerror(-rc));
	return rc;
}

static void fini_source(struct app *app)
{
	source_store_close(app->source);
}

static int init_node(struct app *app)
{
	struct node_params params;
	const char *why = "";
	int rc = app_node_params(app, &params);

	if (rc != 0)
		return rc;  // it said why
	rc = node_create(&params, &app->node, &why);
	if (rc != 0)
		LOG(LOG_ERROR, "node", "E1301", "the node cannot be made: %s", why);
	return rc;
}

static void fini_node(struct app *app)
{
	node_destroy(app->node);
}

// Purging happens on jemalloc's own threads, never on a worker. They hear no signal: made only now, they have
// no more privileges than what is left.
static void start_purging(void)
{
#ifndef TAGCAST_NO_JEMALLOC
	bool on = true;

	if (mallctl("background_thread", NULL, NULL, &on, sizeof(on)) != 0)
		LOG(LOG_WARN, "main", "W1006", "no threads to give memory back");
#endif
}

// The devices are open and what needed root is done. Kept is what a port may need while it runs and to close:
// raw sockets, links and flow rules, pinned memory.
static int init_privileges(struct app *app)
{
	const int rc = privilege_drop(
		PRIVILEGE(CAP_NET_RAW) | PRIVILEGE(CAP_NET_ADMIN) | PRIVILEGE(CAP_IPC_LOCK));

	(void)app;
	if (rc == -ETIMEDOUT)
		LOG(LOG_WARN, "main", "W1005", "a thread has kept its privileges");
	else if (rc != 0)
		LOG(LOG_ERROR, "main", "E1005", "privileges cannot be given up: %s", strerror(-rc));
	start_purging();
	return rc == -ETIMEDOUT ? 0 : rc;
}

static int init_meta(struct app *app)
{
	const struct conf *conf = &app->conf;
	const struct meta_child_params params = {
		.program = conf->meta.program[0] != 0 ? conf->meta.program : "tagcast-metad",
		.run_dir = conf->node.run_dir,
		.data_dir = conf->node.data_dir,
		.log_level = conf->node.log_level,
		.node_id = conf->node.id,
		.cluster_id = conf->node.cluster_id,
		.map_bytes = conf->meta.map_bytes,
		.apply_wait_ns = conf->meta.apply_wait_ns,
		.journal_commits = conf->meta.journal_commits,
		.dedup_commits = conf->meta.dedup_commits,
		.stages = conf->meta.stages,
		.stage_commits = conf->meta.stage_commits,
		.feed_backlog_bytes = conf->meta.feed_backlog_bytes,
		.raft_address = conf->meta.raft_address,
		.raft_bind = conf->meta.raft_bind,
		.raft_key_file = conf->meta.raft_key_file,
		.raft_auth_off = conf->meta.raft_auth == CONF_AUTH_OFF,
		.election_ns = conf->meta.election_ns,
		.heartbeat_ns = conf->meta.heartbeat_ns,
		.snapshot_entries = conf->meta.snapshot_entries,
		.snapshot_trailing = conf->meta.snapshot_trailing,
		.snapshot_log_bytes = conf->meta.snapshot_log_bytes,
	};
	int rc;

	if (conf->meta.mode == CONF_META_EXTERNAL)
		return 0;
	rc = meta_child_create(&params, &app->meta);
	if (rc != 0)
		LOG(LOG_ERROR, "meta", "E1401", "cannot run %s: %s", conf->meta.program,
			strerror(-rc));
	return rc;
}

// Gives the child time to finish its transaction, then ends it.
static void fini_meta(struct app *app)
{
	struct meta_child_info info = {.running = true};

	if (app->meta == NULL)
		return;
	role_take_control();
	meta_child_stop(app->meta, time_now_ns() + META_STOP_NS);
	while (info.running) {
		struct pollfd fd = {.fd = meta_child_fd(app->meta), .events = POLLIN};

		poll(&fd, 1, 50);
		meta_child_process(app->meta, time_now_ns());
		meta_child_info(app->meta, &info);
	}
	role_drop_control();
	meta_child_destroy(app->meta);
	app->meta = NULL;
}

// Started from first to last, stopped from last to first, also when a start fails half way.
static const struct app_module modules[] = {
	{"signals", init_signals, NULL},
	{"folders", init_folders, NULL},
	{"identity", init_identity, fini_identity},
	{"eal", init_eal, fini_eal},
	{"port", init_port, fini_port},
	{"source", init_source, fini_source},
	{"node", init_node, fini_node},
	{"queues", app_queues_init, app_queues_fini},
	{"privileges", init_privileges, NULL},
	{"meta", init_meta, fini_meta},
	{"control", app_control_open, app_control_close},
	{"workers", app_workers_start, app_workers_stop},
};
#define MODULES (sizeof(modules) / sizeof(modules[0]))

static int run(struct app *app)
{
	size_t started = 0;
	int rc = 0;

	for (; started < MODULES; started++) {
		rc = modules[started].init(app);
		if (rc != 0) {
			LOG(LOG_ERROR, "main", "E1000", "module %s did not start: %s",
				modules[started].name, strerror(-rc));
			break;
		}
	}
	if (rc == 0)
		rc = app_control_run(app);
	while (started-- > 0)
		if (modules[started].fini != NULL)
			modules[started].fini(app);
	return rc;
}

// Faults of a test build are armed from the environment; a release build has no such code.
static void arm_faults(void)
{
#ifdef TAGCAST_TEST_HOOKS
	const char *name = getenv("TAGCAST_FAULT");

	if (name != NULL && fault_arm(name, 1) != 0)
		LOG(LOG_ERROR, "main", "E1003", "no such fault: %s", name);
#endif
}

// What this machine, or the group of processes this one is in, may use.
static uint64_t machine_bytes(void)
{
	uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	FILE *f = fopen("/sys/fs/cgroup/memory.max", "re");
	unsigned long long max;

	if (f == NULL)
		return bytes;
	if (fscanf(f, "%llu", &max) == 1 && max < bytes)
		bytes = max;
	fclose(f);
	return bytes;
}

// A configuration for another machine is valid all the same: only its start is refused. Returns: false when it is.
static bool memory_fits(const struct app *app, const struct options *o)
{
	struct app_memory memory;
	char text[CONF_ERROR_MAX], error[CONF_ERROR_MAX];
	const char *key;

	app_memory(&app->conf, &memory);
	app_memory_text(&memory, text, sizeof(text));
	if (o->check)
		printf("%s: memory: %s\n", o->file, text);
	else
		LOG(LOG_INFO, "main", "I1003", "memory: %s", text);
	if (app_memory_check(&app->conf, machine_bytes(), &key, text, sizeof(text)) == 0)
		return true;
	conf_complain(o->file, key, text, error);
	fprintf(stderr, "%s%s\n", o->check ? "warning: " : "", error);
	return o->check;
}

int main(int argc, char **argv)
{
	static struct app app;
	struct options options = {0};
	char error[CONF_ERROR_MAX];

	argp_parse(&argp_table, argc, argv, 0, NULL, &options);
	if (conf_load(options.file, &app.conf, error) != 0) {
		fprintf(stderr, "%s\n", error);
		return EX_CONFIG;
	}
	if (options.print) {
		conf_print(&app.conf, stdout);
		return 0;
	}
	if (!options.check)
		start_log(&app);
	if (!memory_fits(&app, &options))
		return EX_CONFIG;
	if (options.check) {
		printf("%s: valid\n", options.file);
		return 0;
	}
	app.file = options.file;
	app.epoll_fd = app.wake_fd = app.signal_fd = -1;
	app.started_ns = time_now_ns();
	arm_faults();
	const int rc = run(&app);

	if (rc == 0)
		return 0;
	return rc == -EINVAL ? EX_CONFIG : rc == -EACCES || rc == -EPERM ? EX_NOPERM : EX_SOFTWARE;
}
