/* SPDX-License-Identifier: BSD-3-Clause */
// The control core's loop: node steps, the feed, the control socket, the meta child, signals. Owns the
// epoll set. Runs on the main thread.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "app.h"
#include "base_log.h"
#include "base_time.h"
#include "feed_client.h"
#include "meta_child.h"

#define STEP_SLEEP_MS 2  // an idle control core looks at its rings this often

static int add_fd(struct app *app, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(app->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0 ? 0 : -errno;
}

static int open_signals(struct app *app)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	app->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return app->signal_fd >= 0 ? add_fd(app, app->signal_fd) : -errno;
}

static void on_hello(void *ctx, struct store_feed_frame *hello) CONTROL_ONLY
{
	const struct app *app = ctx;

	node_control_feed_hello(app->node, hello);
}

static int on_frame(void *ctx, const struct store_feed_frame *frame, uint64_t now_ns) CONTROL_ONLY
{
	struct app *app = ctx;

	return node_control_feed(app->node, frame, now_ns);
}

static void on_lost(void *ctx, uint64_t now_ns) CONTROL_ONLY
{
	struct app *app = ctx;

	LOG(LOG_WARN, "feed", "W1801", "the meta process is away; delivery goes on, changes wait");
	node_control_feed_lost(app->node, now_ns);
}

static const struct feed_client_events feed_events = {
	.hello = on_hello,
	.frame = on_frame,
	.lost = on_lost,
};

int app_control_open(struct app *app)
{
	char path[CONF_PATH_MAX + 32];
	int rc;

	app->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	app->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (app->epoll_fd < 0 || app->wake_fd < 0)
		return -errno;
	rc = add_fd(app, app->wake_fd);
	if (rc == 0)
		rc = open_signals(app);
	if (rc != 0)
		goto fail;
	snprintf(path, sizeof(path), "%s/control.sock", app->conf.node.run_dir);
	rc = ctl_server_open(path, app_commands, app_command_count, app, &app->ctl);
	if (rc != 0) {
		LOG(LOG_ERROR, "ctl", "E1701", "control socket %s: %s", path, strerror(-rc));
		goto fail;
	}
	rc = add_fd(app, ctl_server_fd(app->ctl));
	if (rc != 0)
		goto fail;
	snprintf(path, sizeof(path), "%s/feed.sock", app->conf.node.run_dir);
	rc = feed_client_create(path, &feed_events, app, &app->feed);
	if (rc == 0)
		rc = add_fd(app, feed_client_fd(app->feed));
	if (rc == 0 && app->meta != NULL)
		rc = add_fd(app, meta_child_fd(app->meta));
	if (rc == 0)
		return 0;
fail:
	app_control_close(app);
	return rc;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void app_control_close(struct app *app)
{
	if (app->feed != NULL)
		feed_client_destroy(app->feed);
	if (app->ctl != NULL)
		ctl_server_close(app->ctl);
	app->feed = NULL;
	app->ctl = NULL;
	close_fd(&app->signal_fd);
	close_fd(&app->wake_fd);
	close_fd(&app->epoll_fd);
}

static void take_signals(struct app *app) CONTROL_ONLY
{
	struct signalfd_siginfo info;
	char text[CONF_ERROR_MAX];

	while (read(app->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGHUP) {
			app_reload(app, text);
			continue;
		}
		LOG(LOG_INFO, "main", "I1001", "signal %u: stopping", info.ssi_signo);
		atomic_store(&app->stop, true);
	}
}

// Sleeps for at most `ms`, or until a descriptor or a worker has something. `control_sleeping` is set
// before the last look at the rings, as in worker_loop.c.
static void wait_events(struct app *app, int ms) CONTROL_ONLY
{
	struct epoll_event events[8];
	uint64_t value;
	const int n = epoll_wait(app->epoll_fd, events, 8, ms);

	for (int i = 0; i < n; i++) {
		if (events[i].data.fd == app->wake_fd &&
			read(app->wake_fd, &value, sizeof(value)) < 0)
			continue;
		if (events[i].data.fd == app->signal_fd)
			take_signals(app);
	}
}

static uint32_t step(struct app *app, uint64_t now) CONTROL_ONLY
{
	uint32_t work = node_control_step(app->node, now);

	work += feed_client_process(app->feed, now);
	feed_client_applied(app->feed, node_control_applied(app->node));
	work += (uint32_t)ctl_server_process(app->ctl);
	work += port_control_step(app->port, now);
	app_queues_step(app, now);
	if (app->meta != NULL)
		work += meta_child_process(app->meta, now);
	return work;
}

int app_control_run(struct app *app)
{
	bool ready = false;

	role_take_control();
	LOG(LOG_INFO, "main", "I1000", "node %llu boot %llx: %u workers on %s",
		(unsigned long long)app->conf.node.id, (unsigned long long)app->boot,
		app->conf.workers.count, app->conf.port.device);
	while (!atomic_load_explicit(&app->stop, memory_order_relaxed)) {
		uint32_t work = step(app, time_now_ns());

		if (work == 0) {
			atomic_store_explicit(&app->control_sleeping, true, memory_order_relaxed);
			atomic_thread_fence(memory_order_seq_cst);
			work = step(app, time_now_ns());
		}
		wait_events(app, work == 0 ? STEP_SLEEP_MS : 0);
		atomic_store_explicit(&app->control_sleeping, false, memory_order_relaxed);
		if (!ready && node_control_ready(app->node)) {
			ready = true;
			LOG(LOG_INFO, "main", "I1002",
				"ready: the channel table follows the store");
		}
	}
	role_drop_control();
	return 0;
}
