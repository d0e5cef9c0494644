/* SPDX-License-Identifier: BSD-3-Clause */
// The fast process: one context, a table of modules started in order and stopped in exact reverse.
// Threads: the main thread is the control core; each worker runs on its own lcore.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base_counters.h"
#include "conf.h"
#include "ctl.h"
#include "node.h"
#include "port.h"
#include "source_store.h"

struct wq_monitor;
struct feed_client;
struct meta_child;

struct app_worker {
	struct app *app;
	uint32_t index;
	// worker: rw, others: ro. Set before the last look at the rings, so that a wake-up is not lost.
	_Alignas(64) _Atomic bool sleeping;
	bool launched;
};

struct app {
	const char *file;  // of the configuration
	struct conf conf;  // control: rw once the workers run; they read only what never changes
	uint64_t reloads, reloads_refused;
	uint64_t boot;
	uint64_t started_ns;
	struct counters *counters[WORKERS_MAX];
	struct source_store *source;
	struct port *port;
	struct node *node;
	struct meta_child *meta;
	struct feed_client *feed;
	struct ctl_server *ctl;
	struct wq_monitor *queues;
	uint64_t queues_ns;  // next look at them
	int epoll_fd, wake_fd, signal_fd;
	_Atomic bool control_sleeping;
	_Atomic bool stop;
	struct app_worker worker[WORKERS_MAX];
};

// A module: init returns 0 or a negative errno after it has logged why.
struct app_module {
	const char *name;
	int (*init)(struct app *app);
	void (*fini)(struct app *app);
};

// params.c: what the node is made of, from the configuration.
int app_node_params(struct app *app, struct node_params *params);
// Keys of the files a configuration names. Returns: 0, or -errno after it has logged why.
int app_read_keys(const struct conf *conf, struct wire_keys *keys);
// reload.c: the log's level follows the configuration.
void app_log_level(const struct conf *conf);
// Reads the configuration again and puts what may change into force; with anything wrong nothing changes.
// `text` (CONF_ERROR_MAX bytes): what changed, or why nothing did. Returns: 0, -EINVAL.
int app_reload(struct app *app, char *text) CONTROL_ONLY;
// worker_loop.c
int app_workers_start(struct app *app);
void app_workers_stop(struct app *app);
// Ends the sleep of a worker, or of the control core (who == WORKERS_MAX). Any thread.
void app_wake(void *app, uint32_t who);
// control_loop.c
int app_control_open(struct app *app);
void app_control_close(struct app *app);
int app_control_run(struct app *app);
// show_queues.c
int app_queues_init(struct app *app);
void app_queues_fini(struct app *app);
// Looks at every queue when it is time to.
void app_queues_step(struct app *app, uint64_t now_ns) CONTROL_ONLY;
void app_show_queues(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY;
// show.c: the rows of the control socket.
extern const struct ctl_command app_commands[];
extern const uint32_t app_command_count;
