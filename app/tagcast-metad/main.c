/* SPDX-License-Identifier: BSD-3-Clause */
// tagcast-metad: the meta process. One libuv loop does everything: requests in, one synced transaction a
// turn, deltas and answers out. Crash-only: a fault ends it, a restart goes on from the store.
//
// One turn, after the loop has polled: time-outs, fill batches, consensus (which commits), feed, what was applied,
// and when nothing else is to be done a bounded piece of compaction.
#include "metad.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base_log.h"
#include "base_privilege.h"
#include "base_time.h"
#include "cons_local.h"

#define STOP_WAIT_NS (3 * NS_PER_S)  // for what was admitted before a stop
#define COMPACT_PAUSE_NS (10 * NS_PER_MS)  // between pieces of compaction when idle
#define READER_CHECK_NS (60 * NS_PER_S)

static const struct cons_events cons_events = {
	.on_commit = meta_state_commit,
	.on_result = meta_state_result,
};

// --- the turn -----------------------------------------------------------------------------------------------

// What was answered is on disk; what was not is unknown to its caller, as after any crash.
static void fault(const char *what, int rc)
{
	LOG(LOG_ERROR, "meta", "META_FAULT", "%s: %s; ending", what, strerror(-rc));
	_exit(EX_IOERR);
}

static void update_applied(struct metad *metad) META_ONLY;
static void update_applied(struct metad *metad)
{
	uint64_t applied;
	const bool connected = meta_feed_applied(metad->feed, &applied);

	meta_queue_applied(metad->queue, connected, applied);
}

static void on_timer(uv_timer_t *timer)
{
	(void)timer;  // wakes the loop; the turn follows
}

static void on_idle(uv_idle_t *idle)
{
	(void)idle;  // keeps the loop from sleeping
}

static void arm(struct metad *metad, bool busy, uint64_t next_ns, uint64_t now_ns)
{
	const uint64_t wait_ms =
		next_ns <= now_ns ? 0 : (next_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;

	if (busy)
		uv_idle_start(&metad->idle, on_idle);
	else
		uv_idle_stop(&metad->idle);
	uv_timer_start(&metad->timer, on_timer, wait_ms, 0);
}

static void check_stop(struct metad *metad, uint64_t now_ns) META_ONLY;
static void check_stop(struct metad *metad, uint64_t now_ns)
{
	struct meta_queue_info info;

	meta_queue_info(metad->queue, &info);
	if ((info.pending == 0 || now_ns >= metad->stop_ns) && metad->preparing == 0)
		uv_stop(&metad->loop);
}

static void turn(struct metad *metad) META_ONLY;
static void turn(struct metad *metad)
{
	static uint64_t compact_ns, readers_ns;
	uint64_t now_ns = time_now_ns(), next_ns, feed_ns;
	struct store_lmdb_info info;
	uint8_t more = 0;
	bool busy;
	int rc;

	metad->state.now_ns = now_ns;
	update_applied(metad);
	meta_queue_tick(metad->queue, now_ns);
	meta_queue_fill(metad->queue);
	rc = metad->cons_ops->turn(metad->cons, now_ns, &more);
	if (rc != 0)
		fault("consensus or store", rc);
	now_ns = time_now_ns();
	rc = meta_feed_pump(metad->feed, now_ns);
	if (rc < 0)
		fault("reading the journal", rc);
	busy = rc > 0 || more != 0 || meta_queue_runnable(metad->queue);
	if (!busy && metad->state.compact && now_ns >= compact_ns) {
		rc = meta_state_compact(&metad->state);
		if (rc != 0)
			fault("compaction", rc);
		now_ns = time_now_ns();
		compact_ns = now_ns + COMPACT_PAUSE_NS;
	}
	if (now_ns >= readers_ns) {
		(void)store_lmdb_info(metad->state.db, &info);
		readers_ns = now_ns + READER_CHECK_NS;
	}
	next_ns = meta_queue_next_ns(metad->queue);
	feed_ns = meta_feed_tick(metad->feed, now_ns);
	next_ns = feed_ns < next_ns ? feed_ns : next_ns;
	next_ns = readers_ns < next_ns ? readers_ns : next_ns;
	if (metad->state.compact && compact_ns < next_ns)
		next_ns = compact_ns;
	if (metad->stopping) {
		next_ns = metad->stop_ns < next_ns ? metad->stop_ns : next_ns;
		check_stop(metad, now_ns);
	}
	arm(metad, busy, next_ns, now_ns);
}

static void on_check(uv_check_t *check) META_ONLY;
static void on_check(uv_check_t *check)
{
	turn(check->data);
}

static void on_ctl(uv_poll_t *poll, int status, int events)
{
	struct metad *metad = poll->data;

	(void)status;
	(void)events;
	ctl_server_process(metad->ctl);
}

static void on_feed(uv_poll_t *poll, int status, int events) META_ONLY;
static void on_feed(uv_poll_t *poll, int status, int events)
{
	struct metad *metad = poll->data;

	(void)status;
	(void)events;
	meta_feed_process(metad->feed, time_now_ns());
	update_applied(metad);
}

static void on_stop(uv_signal_t *handle, int signum)
{
	struct metad *metad = handle->data;

	if (metad->stopping) {
		uv_stop(&metad->loop);  // a second one: at once
		return;
	}
	LOG(LOG_INFO, "meta", "META_STOP", "signal %d, stopping", signum);
	metad->stopping = true;
	metad->stop_ns = time_now_ns() + STOP_WAIT_NS;
}

static void on_hup(uv_signal_t *handle, int signum)
{
	(void)handle;
	(void)signum;
	LOG(LOG_INFO, "meta", "META_RELOAD", "nothing here can change without a restart");
}

// --- start and end, one row a part --------------------------------------------------------------------------

static int start_state(struct metad *metad)
{
	const struct metad_options *o = &metad->options;
	const char *why = "";
	int rc;

	metad->state.limits = (struct store_limits){
		.journal_commits = o->journal_commits,
		.dedup_commits = o->dedup_commits,
		.stages = o->stages,
		.stage_commits = o->stage_commits,
	};
	rc = meta_state_open(&metad->state, o->data_dir, o->map_bytes, o->cluster_id, &why);
	if (rc != 0)
		LOG(LOG_ERROR, "store", "STORE_OPEN", "cannot open the store: %s", why);
	return rc;
}

static void end_state(struct metad *metad)
{
	meta_state_close(&metad->state);
}

static int start_cons(struct metad *metad)
{
	metad->cons_ops = &cons_local_ops;
	metad->cons = cons_local_create(
		metad->options.node_id, metad->state.position.applied, &cons_events, &metad->state);
	return metad->cons == NULL ? EX_OSERR : 0;
}

static void end_cons(struct metad *metad)
{
	cons_local_destroy(metad->cons);
}

// Stages of an earlier life have nobody to close them.
static int abort_stages(struct metad *metad) META_ONLY;
static int abort_stages(struct metad *metad)
{
	struct channel_key key;
	struct store_tx tx;
	uint64_t id = 0;
	int rc = meta_state_read(&metad->state, &tx);

	if (rc != 0)
		return rc;
	for (;;) {
		rc = store_read_stage(&tx, id, &id, &key);
		if (rc == 0) {
			LOG(LOG_INFO, "meta", "META_STAGE",
				"dropping a large change left half sent");
			rc = meta_queue_abort_stage(metad->queue, id, &key);
		}
		if (rc != 0 || id++ == UINT64_MAX)
			break;
	}
	meta_state_read_end(&metad->state, &tx);
	return rc == -ENOENT ? 0 : rc;
}

static int start_queue(struct metad *metad) META_ONLY;
static int start_queue(struct metad *metad)
{
	const struct metad_options *o = &metad->options;
	uint64_t random[2];
	struct meta_queue_params params = {
		.stages = o->stages,
		.wait_ns = o->stage_wait_ns,
		.apply_wait_ns = o->apply_wait_ns,
		.cons = metad->cons_ops,
		.cons_ctx = metad->cons,
		.done = metad_mutation_done,
		.ctx = metad,
	};

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return EX_OSERR;
	params.stage_id_first = random[0] >> 1;
	metad->dedup_unique = random[1];
	if (meta_queue_create(&params, &metad->queue) != 0)
		return EX_OSERR;
	metad->state.queue = metad->queue;
	return abort_stages(metad) == 0 ? 0 : EX_IOERR;
}

static void end_queue(struct metad *metad)
{
	meta_queue_destroy(metad->queue);
}

static int socket_fault(const char *path, int rc)
{
	LOG(LOG_ERROR, "meta", "META_SOCKET", "%s: %s", path,
		rc == -EADDRINUSE ? "another process serves it, or it is no socket"
				  : strerror(-rc));
	return rc == -EADDRINUSE               ? EX_TEMPFAIL
	       : rc == -EACCES || rc == -EPERM ? EX_NOPERM
	       : rc == -ENAMETOOLONG           ? EX_CONFIG
					       : EX_CANTCREAT;
}

static int start_ctl(struct metad *metad)
{
	char path[CONF_PATH_MAX + 16];
	int rc;

	if (mkdir(metad->options.run_dir, 0750) != 0 && errno != EEXIST)
		return socket_fault(metad->options.run_dir, -errno);
	snprintf(path, sizeof(path), "%s/meta.sock", metad->options.run_dir);
	rc = ctl_server_open(path, metad_commands, metad_command_count, metad, &metad->ctl);
	return rc == 0 ? 0 : socket_fault(path, rc);
}

static void end_ctl(struct metad *metad)
{
	ctl_server_process(metad->ctl);  // answers on their way
	ctl_server_close(metad->ctl);
}

static int start_feed(struct metad *metad)
{
	char path[CONF_PATH_MAX + 16];
	int rc;

	snprintf(path, sizeof(path), "%s/feed.sock", metad->options.run_dir);
	rc = meta_feed_open(path, metad->options.node_id, metad->options.feed_backlog_bytes,
		&metad->state, &metad->feed);
	return rc == 0 ? 0 : socket_fault(path, rc);
}

static void end_feed(struct metad *metad)
{
	meta_feed_close(metad->feed);
}

// Nothing it does needs any privilege: files and sockets of its own user.
static int give_up_privileges(struct metad *metad)
{
	const int rc = privilege_drop(0);

	(void)metad;
	if (rc == -ETIMEDOUT)
		LOG(LOG_WARN, "meta", "META_PRIVILEGES", "a thread has kept its privileges");
	else if (rc != 0)
		LOG(LOG_ERROR, "meta", "META_PRIVILEGES", "privileges cannot be given up: %s",
			strerror(-rc));
	return rc == 0 || rc == -ETIMEDOUT ? 0 : EX_OSERR;
}

static int start_loop(struct metad *metad)
{
	uv_loop_t *loop = &metad->loop;

	if (uv_loop_init(loop) != 0)
		return EX_OSERR;
	if (uv_poll_init(loop, &metad->ctl_poll, ctl_server_fd(metad->ctl)) != 0 ||
		uv_poll_init(loop, &metad->feed_poll, meta_feed_fd(metad->feed)) != 0 ||
		uv_check_init(loop, &metad->check) != 0 || uv_idle_init(loop, &metad->idle) != 0 ||
		uv_timer_init(loop, &metad->timer) != 0 ||
		uv_signal_init(loop, &metad->sigterm) != 0 ||
		uv_signal_init(loop, &metad->sigint) != 0 ||
		uv_signal_init(loop, &metad->sighup) != 0)
		return EX_OSERR;
	metad->ctl_poll.data = metad->feed_poll.data = metad->check.data = metad;
	metad->sigterm.data = metad->sigint.data = metad->sighup.data = metad;
	if (uv_poll_start(&metad->ctl_poll, UV_READABLE, on_ctl) != 0 ||
		uv_poll_start(&metad->feed_poll, UV_READABLE, on_feed) != 0 ||
		uv_check_start(&metad->check, on_check) != 0 ||
		uv_timer_start(&metad->timer, on_timer, 0, 0) != 0 ||
		uv_signal_start(&metad->sigterm, on_stop, SIGTERM) != 0 ||
		uv_signal_start(&metad->sigint, on_stop, SIGINT) != 0 ||
		uv_signal_start(&metad->sighup, on_hup, SIGHUP) != 0)
		return EX_OSERR;
	return 0;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void end_loop(struct metad *metad)
{
	uv_walk(&metad->loop, close_handle, NULL);
	uv_run(&metad->loop, UV_RUN_DEFAULT);  // closes handles and waits for the pool
	uv_loop_close(&metad->loop);
}

static const struct part {
	const char *name;
	int (*start)(struct metad *metad);  // 0 or an exit code
	void (*end)(struct metad *metad);
} parts[] = {
	{"store", start_state, end_state},
	{"privileges", give_up_privileges, NULL},
	{"consensus", start_cons, end_cons},
	{"queue", start_queue, end_queue},
	{"control socket", start_ctl, end_ctl},
	{"feed", start_feed, end_feed},
	{"loop", start_loop, end_loop},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static void set_log_level(const char *name)
{
	log_set_level(strcmp(name, "error") == 0   ? LOG_ERROR
		      : strcmp(name, "warn") == 0  ? LOG_WARN
		      : strcmp(name, "debug") == 0 ? LOG_DEBUG
						   : LOG_INFO);
}

int main(int argc, char **argv)
{
	static struct metad metad;
	size_t started = 0;
	int rc = metad_options_read(&metad.options, argc, argv);

	if (rc >= 0)
		return rc;
	log_set_program("tagcast-metad");
	set_log_level(metad.options.log_level);
	signal(SIGPIPE, SIG_IGN);
	role_take_meta();
	metad.started_ns = time_now_ns();
	for (rc = 0; rc == 0 && started < PARTS; started += rc == 0) {
		rc = parts[started].start(&metad);
		if (rc != 0)
			LOG(LOG_ERROR, "meta", "META_START", "cannot start: %s",
				parts[started].name);
	}
	if (rc == 0) {
		LOG(LOG_INFO, "meta", "META_READY", "node %llu of cluster %llu at commit %llu",
			(unsigned long long)metad.options.node_id,
			(unsigned long long)metad.options.cluster_id,
			(unsigned long long)metad.state.position.commit);
		uv_run(&metad.loop, UV_RUN_DEFAULT);
		LOG(LOG_INFO, "meta", "META_END", "stopped at commit %llu",
			(unsigned long long)metad.state.position.commit);
	}
	while (started > 0)
		if (parts[--started].end != NULL)
			parts[started].end(&metad);
	role_drop_meta();
	return rc;
}
