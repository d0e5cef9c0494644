/* SPDX-License-Identifier: BSD-3-Clause */
// tagcast-metad: the meta process. One libuv loop does everything: requests in, the group's log, one
// transaction a turn, deltas and answers out. Crash-only: a fault ends it, a restart goes on from the log.
//
// One turn, after the loop has polled: time-outs, fill batches, consensus (which commits), feed, what was applied,
// and when nothing else is to be done a bounded piece of compaction. Nothing in it is long: what could be
// goes to the pool or ends at a budget of CPU time, and the meter tells when that fails.
#include "metad.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base_log.h"
#include "base_privilege.h"
#include "base_time.h"

#define STOP_WAIT_NS (3 * NS_PER_S)  // for what was admitted before a stop
#define COMPACT_PAUSE_NS (10 * NS_PER_MS)  // between pieces of compaction when idle
#define READER_CHECK_NS (60 * NS_PER_S)
#define WATCH_NS NS_PER_S  // long readers of the store
#define SWEEP_NS (2 * NS_PER_S)  // stages that lost their mutation

// --- the turn -----------------------------------------------------------------------------------------------

// What was answered is on disk; what was not is unknown to its caller, as after any crash.
static void fault(const char *what, int rc)
{
	LOG(LOG_ERROR, "meta", "META_FAULT", "%s: %s; ending", what, strerror(-rc));
	_exit(rc == -ENOSPC || rc == -EDQUOT ? META_EXIT_SPACE
		: rc == -EUCLEAN             ? META_EXIT_DAMAGED
					     : EX_IOERR);
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

// A stop: what was admitted is finished, then leadership is handed over, then the loop ends.
static void check_stop(struct metad *metad, uint64_t now_ns) META_ONLY;
static void check_stop(struct metad *metad, uint64_t now_ns)
{
	struct meta_queue_info info;
	const bool late = now_ns >= metad->stop_ns;

	meta_queue_info(metad->queue, &info);
	if (!late && (info.pending > 0 || meta_pool_pending(metad->pool) > 0))
		return;
	if (metad->group != METAD_MEMBER || late) {
		uv_stop(&metad->loop);
		return;
	}
	if (!metad->stop_asked) {
		metad->stop_asked = true;
		raft_cons_stop(metad->raft);
	}
	if (raft_cons_stopped(metad->raft))
		uv_stop(&metad->loop);
}

// Stages of an earlier life of this node, or of a mutation given up, have nobody to close them.
static int sweep_stages(struct metad *metad) META_ONLY;
static int sweep_stages(struct metad *metad)
{
	struct channel_key key;
	struct store_tx tx;
	uint64_t id = metad_stage_base(metad->options.node_id);
	const uint64_t last = id + METAD_STAGE_IDS - 1;
	int rc = meta_state_read(&metad->state, &tx);

	if (rc != 0)
		return rc;
	while ((rc = store_read_stage(&tx, id, &id, &key)) == 0 && id <= last) {
		if (!meta_queue_owns_stage(metad->queue, id)) {
			LOG(LOG_INFO, "meta", "META_STAGE",
				"dropping a large change left half sent");
			rc = meta_queue_abort_stage(metad->queue, id, &key);
		}
		if (rc != 0 || id++ == last)
			break;
	}
	meta_state_read_end(&metad->state, &tx);
	return rc == -ENOENT ? 0 : rc;
}

// Housekeeping by the clock. Returns: when there is some again.
static uint64_t chores(struct metad *metad, uint64_t now_ns) META_ONLY;
static uint64_t chores(struct metad *metad, uint64_t now_ns)
{
	static uint64_t readers_ns, watch_ns;
	struct store_lmdb_info info;
	uint64_t next_ns;

	if (now_ns >= readers_ns) {
		(void)store_lmdb_info(metad->state.db, &info);
		readers_ns = now_ns + READER_CHECK_NS;
	}
	if (now_ns >= watch_ns) {
		(void)store_lmdb_watch(metad->state.db, now_ns);
		watch_ns = now_ns + WATCH_NS;
	}
	if (now_ns >= metad->sweep_ns && metad_group_ready(metad)) {
		const int rc = sweep_stages(metad);

		if (rc != 0)
			fault("reading the stages", rc);
		metad->sweep_ns = now_ns + SWEEP_NS;
	}
	next_ns = readers_ns < watch_ns ? readers_ns : watch_ns;
	return next_ns;
}

// The consensus: commits are applied in here. Returns: more to do at once?
static bool turn_group(struct metad *metad, uint64_t now_ns) META_ONLY;
static bool turn_group(struct metad *metad, uint64_t now_ns)
{
	uint8_t more = 0;
	int rc;

	if (metad->group != METAD_MEMBER && metad->group != METAD_JOINING)
		return false;
	if (metad->group == METAD_MEMBER)
		meta_queue_fill(metad->queue);
	meta_turn_mark(&metad->meter, TURN_QUEUE);
	rc = metad->cons_ops->turn(metad->raft, now_ns, &more);
	meta_turn_mark(&metad->meter, TURN_CONSENSUS);
	if (rc != 0)
		fault("consensus or store", rc);
	metad_group_turn(metad, now_ns);
	return more != 0;
}

static bool turn_feed(struct metad *metad) META_ONLY;
static bool turn_feed(struct metad *metad)
{
	const int rc = meta_feed_pump(metad->feed, time_now_ns());

	meta_turn_mark(&metad->meter, TURN_FEED);
	if (rc < 0)
		fault("reading the journal", rc);
	return rc > 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void turn(struct metad *metad) META_ONLY;
static void turn(struct metad *metad)
{
	static uint64_t compact_ns;
	uint64_t now_ns = time_now_ns(), next_ns;
	bool busy;
	int rc;

	meta_turn_mark(&metad->meter, TURN_CONSENSUS);
	metad->state.now_ns = now_ns;
	update_applied(metad);
	meta_queue_tick(metad->queue, now_ns);
	busy = turn_group(metad, now_ns);
	busy = turn_feed(metad) || busy;
	busy = (metad->group == METAD_MEMBER && meta_queue_runnable(metad->queue)) || busy;
	now_ns = time_now_ns();
	if (!busy && metad->state.compact && metad->state.restore == NULL && now_ns >= compact_ns) {
		rc = meta_state_compact(&metad->state);
		meta_turn_mark(&metad->meter, TURN_COMPACT);
		if (rc != 0)
			fault("compaction", rc);
		now_ns = time_now_ns();
		compact_ns = now_ns + COMPACT_PAUSE_NS;
	}
	next_ns = chores(metad, now_ns);
	metad_call_tick(metad, now_ns);
	next_ns = least(next_ns, metad_call_next_ns(metad));
	if (metad->group == METAD_MEMBER)
		next_ns = least(next_ns, meta_queue_next_ns(metad->queue));
	next_ns = least(next_ns, meta_feed_tick(metad->feed, now_ns));
	if (metad->state.compact)
		next_ns = least(next_ns, compact_ns);
	if (metad->stopping) {
		check_stop(metad, now_ns);
		next_ns = least(next_ns, metad->stop_ns);
	}
	arm(metad, busy, next_ns, now_ns);
}

// The loop's clock of work alone: it stands while the loop waits.
static uint64_t work_ns(const struct metad *metad)
{
	return uv_hrtime() - uv_metrics_idle_time((uv_loop_t *)&metad->loop);
}

static void on_prepare(uv_prepare_t *prepare) META_ONLY;
static void on_prepare(uv_prepare_t *prepare)
{
	struct metad *metad = prepare->data;
	const uint64_t cpu_ns = metad->meter.cpu_begin_ns;

	if (meta_turn_end(&metad->meter, work_ns(metad)))
		LOG(LOG_WARN, "meta", "META_TURN",
			"a turn of the loop took %llu ms of CPU, most of it %s",
			(unsigned long long)((metad->meter.cpu_begin_ns - cpu_ns) / NS_PER_MS),
			meta_turn_part_name((enum meta_turn_part)metad->meter.last_part));
}

static void on_check(uv_check_t *check) META_ONLY;
static void on_check(uv_check_t *check)
{
	turn(check->data);
}

static void on_ctl(uv_poll_t *poll, int status, int events) META_ONLY;
static void on_ctl(uv_poll_t *poll, int status, int events)
{
	struct metad *metad = poll->data;

	(void)status;
	(void)events;
	meta_turn_mark(&metad->meter, TURN_CONSENSUS);
	ctl_server_process(metad->ctl);
	meta_turn_mark(&metad->meter, TURN_REQUESTS);
}

static void on_feed(uv_poll_t *poll, int status, int events) META_ONLY;
static void on_feed(uv_poll_t *poll, int status, int events)
{
	struct metad *metad = poll->data;

	(void)status;
	(void)events;
	meta_turn_mark(&metad->meter, TURN_CONSENSUS);
	meta_feed_process(metad->feed, time_now_ns());
	update_applied(metad);
	meta_turn_mark(&metad->meter, TURN_FEED);
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

static int start_folder(struct metad *metad)
{
	const char *dir = metad->options.data_dir;

	if (mkdir(dir, 0700) == 0 || errno == EEXIST)
		return 0;
	LOG(LOG_ERROR, "meta", "META_FOLDER", "%s: %s", dir, strerror(errno));
	return errno == EACCES || errno == EPERM ? EX_NOPERM
	       : errno == ENOSPC                 ? META_EXIT_SPACE
						 : EX_CANTCREAT;
}

static void end_nothing(struct metad *metad)
{
	(void)metad;
}

static void on_generation(void *ctx) META_ONLY;
static void on_generation(void *ctx)
{
	struct metad *metad = ctx;

	if (metad->feed != NULL)
		meta_feed_generation(metad->feed, time_now_ns());
}

static int start_state(struct metad *metad)
{
	const struct metad_options *o = &metad->options;
	char dir[CONF_PATH_MAX + 8];
	const char *why = "";
	int rc;

	metad->state.limits = (struct store_limits){
		.journal_commits = o->journal_commits,
		.dedup_commits = o->dedup_commits,
		.stages = o->stages,
		.stage_commits = o->stage_commits,
		.fold_rows = META_INLINE_UIDS,
	};
	metad->state.meter = &metad->meter;
	metad->state.pool = metad->pool;
	metad->state.on_result = metad_call_done;
	metad->state.on_generation = on_generation;
	metad->state.ctx = metad;
	snprintf(dir, sizeof(dir), "%s/store", o->data_dir);
	rc = meta_state_open(&metad->state, dir, o->map_bytes, o->cluster_id, &why);
	if (rc != 0)
		LOG(LOG_ERROR, "store", "STORE_OPEN", "cannot open the store: %s", why);
	return rc;
}

static void end_state(struct metad *metad)
{
	(void)meta_state_close(&metad->state);
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
		.answer_wait_ns = o->answer_wait_ns,
		.stage_id_first = metad_stage_base(o->node_id),
		.cons = metad->cons_ops,
		.cons_ctx = metad->raft,
		.done = metad_mutation_done,
		.ctx = metad,
	};

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return EX_OSERR;
	// Each life has its own ids of the node's range: a late entry of an earlier one opens no stage of ours.
	params.stage_id_last = params.stage_id_first + METAD_STAGE_IDS - 1;
	params.stage_id_first += random[0] % METAD_STAGE_IDS;
	metad->dedup_unique = random[1];
	if (meta_queue_create(&params, &metad->queue) != 0)
		return EX_OSERR;
	metad->state.queue = metad->queue;
	return 0;
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
	if (rc == 0)
		ctl_server_elsewhere(metad->ctl, &metad_elsewhere);
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

static int start_loop(struct metad *metad)
{
	uv_loop_t *loop = &metad->loop;

	if (uv_loop_init(loop) != 0 || uv_loop_configure(loop, UV_METRICS_IDLE_TIME) != 0 ||
		uv_prepare_init(loop, &metad->prepare) != 0 ||
		uv_check_init(loop, &metad->check) != 0 || uv_idle_init(loop, &metad->idle) != 0 ||
		uv_timer_init(loop, &metad->timer) != 0 ||
		uv_signal_init(loop, &metad->sigterm) != 0 ||
		uv_signal_init(loop, &metad->sigint) != 0 ||
		uv_signal_init(loop, &metad->sighup) != 0)
		return EX_OSERR;
	metad->prepare.data = metad->check.data = metad;
	metad->sigterm.data = metad->sigint.data = metad->sighup.data = metad;
	return meta_pool_create(loop, &metad->pool) == 0 ? 0 : EX_OSERR;
}

static void end_loop(struct metad *metad) META_ONLY;
static void end_loop(struct metad *metad)
{
	meta_pool_stop(metad->pool);
}

static int start_events(struct metad *metad) META_ONLY;
static int start_events(struct metad *metad)
{
	uv_loop_t *loop = &metad->loop;

	if (uv_poll_init(loop, &metad->ctl_poll, ctl_server_fd(metad->ctl)) != 0 ||
		uv_poll_init(loop, &metad->feed_poll, meta_feed_fd(metad->feed)) != 0)
		return EX_OSERR;
	metad->ctl_poll.data = metad->feed_poll.data = metad;
	if (uv_poll_start(&metad->ctl_poll, UV_READABLE, on_ctl) != 0 ||
		uv_poll_start(&metad->feed_poll, UV_READABLE, on_feed) != 0 ||
		uv_prepare_start(&metad->prepare, on_prepare) != 0 ||
		uv_check_start(&metad->check, on_check) != 0 ||
		uv_timer_start(&metad->timer, on_timer, 0, 0) != 0 ||
		uv_signal_start(&metad->sigterm, on_stop, SIGTERM) != 0 ||
		uv_signal_start(&metad->sigint, on_stop, SIGINT) != 0 ||
		uv_signal_start(&metad->sighup, on_hup, SIGHUP) != 0)
		return EX_OSERR;
	return 0;
}

// Nothing it does needs any privilege: files and sockets of its own user. Before there are other threads.
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

static const struct part {
	const char *name;
	int (*start)(struct metad *metad);  // 0 or an exit code
	void (*end)(struct metad *metad);
} parts[] = {
	{"data folder", start_folder, end_nothing},
	{"privileges", give_up_privileges, end_nothing},
	{"loop", start_loop, end_loop},
	{"store", start_state, end_state},
	{"consensus", metad_group_open, metad_group_close},
	{"queue", start_queue, end_queue},
	{"control socket", start_ctl, end_ctl},
	{"feed", start_feed, end_feed},
	{"events", start_events, end_nothing},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static void set_log_level(const char *name)
{
	log_set_level(strcmp(name, "error") == 0   ? LOG_ERROR
		      : strcmp(name, "warn") == 0  ? LOG_WARN
		      : strcmp(name, "debug") == 0 ? LOG_DEBUG
						   : LOG_INFO);
}

// Ends the parts in reverse. The group's own handles stay open: a started one ends with the process.
static noreturn void metad_end(struct metad *metad, size_t started, int code) META_ONLY;
static noreturn void metad_end(struct metad *metad, size_t started, int code)
{
	if (started > 0 && metad->pool != NULL)
		meta_pool_stop(metad->pool);
	while (started > 0)
		parts[--started].end(metad);
	_exit(code);
}

static void say_refusal(const char *part, int code)
{
	const char *advice = meta_exit_advice(code);

	LOG(LOG_ERROR, "meta", "META_START", "cannot start: %s%s%s", part,
		advice != NULL ? "; " : "", advice != NULL ? advice : "");
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
			say_refusal(parts[started].name, rc);
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
	metad_end(&metad, started, rc);
}
