/* SPDX-License-Identifier: BSD-3-Clause */
// See raft_nodes.h. The child's half first, then the test's.
#include "raft_nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"
#include "unit.h"

// --- the child ---------------------------------------------------------------------------------------------

struct child {
	struct raft_cons *cons;
	struct uv_loop_s loop;
	struct uv_poll_s poll;
	struct uv_prepare_s prepare;
	struct uv_timer_s timer;
	struct uv_idle_s idle;
	int fd;
	uint64_t applied, entries, chain;
	bool lies;
};

static void say(struct child *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct child *c, const char *format, ...)
{
	char line[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (send(c->fd, line, (size_t)n, 0) != n)
		_exit(99);
}

static int on_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	struct child *c = ctx;

	for (uint32_t i = 0; i < count; i++) {
		if (commits[i].index <= c->applied)
			continue;
		c->applied = commits[i].index;
		c->entries++;
		for (uint32_t k = 0; k < commits[i].len; k++)
			c->chain = (c->chain ^ commits[i].data[k]) * UINT64_C(1099511628211);
	}
	return (int)count;
}

static void on_result(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	struct child *c = ctx;
	const char *text;

	if (token == 1 && status == CONS_OK && raft_cons_start(c->cons, &text) != RAFT_REFUSED_NOT)
		_exit(97);
	say(c, "result %" PRIu64 " %d %s", token, status, why);
}

static int snapshot_begin(void *ctx, void **snapshot)
{
	return -EBUSY;
}

static uint64_t chain(void *ctx, uint64_t *applied)
{
	struct child *c = ctx;

	*applied = c->applied;
	return c->applied == 0 ? 0 : c->chain ^ (c->lies ? 1u : 0u);
}

static int id_removed(void *ctx, uint64_t id)
{
	return id == 66;
}

static void say_info(struct child *c)
{
	struct raft_cons_stats stats;
	struct cons_member members[CONS_MEMBERS_MAX];
	struct cons_info info;
	uint32_t connected = 0;

	raft_cons_ops.info(c->cons, &info);
	raft_cons_stats(c->cons, &stats);
	for (uint32_t i = raft_cons_ops.members(c->cons, members, CONS_MEMBERS_MAX); i > 0; i--)
		connected += members[i - 1].connected;
	say(c,
		"info leader %" PRIu64 " term %" PRIu64 " ready %u leads %u applied %" PRIu64
		" voters %u standbys %u entries %" PRIu64 " chain %" PRIu64 " refused %" PRIu64
		" checked %" PRIu64 " connected %u in %" PRIu64 " ",
		info.leader_id, info.term, info.is_ready, info.is_leader, info.applied_index,
		info.voters, info.standbys, c->entries, c->chain, stats.handshakes_refused,
		stats.chain_checked, connected, stats.connections_in);
}

static void on_command(struct uv_poll_s *poll, int error, int events)
{
	struct child *c = poll->data;
	struct cons_change change = {0};
	char line[512];
	uint64_t token = 0;
	unsigned op = 0;
	int used = 0;
	enum cons_status status;
	ssize_t n = recv(c->fd, line, sizeof(line) - 1, 0);

	if (n <= 0)
		_exit(0);
	line[n] = '\0';
	if (strcmp(line, "info") == 0) {
		say_info(c);
		return;
	}
	if (strcmp(line, "lie") == 0) {
		c->lies = true;
		say(c, "ok");
		return;
	}
	if (sscanf(line, "propose %" SCNu64 " %n", &token, &used) == 1)
		status = raft_cons_ops.propose(
			c->cons, (const uint8_t *)line + used, (uint32_t)(n - used), token);
	else if (sscanf(line, "barrier %" SCNu64, &token) == 1)
		status = raft_cons_ops.barrier(c->cons, token);
	else if (sscanf(line, "change %" SCNu64 " %u %" SCNu64 " %63s", &token, &op, &change.id,
			 change.address) >= 3) {
		change.op = (uint8_t)op;
		status = raft_cons_ops.change(c->cons, &change, token);
	} else {
		_exit(98);
	}
	if (status != CONS_OK)
		say(c, "result %" PRIu64 " %d not taken", token, status);
}

// Only keeps the loop from sleeping once.
static void on_idle(struct uv_idle_s *idle)
{
	uv_idle_stop(idle);
}

static void on_turn(struct uv_prepare_s *prepare)
{
	struct child *c = prepare->data;
	uint8_t busy = 0;

	if (raft_cons_ops.turn(c->cons, time_now_ns(), &busy) != 0)
		_exit(RAFT_EXIT_STORE);
	if (busy)
		uv_idle_start(&c->idle, on_idle);
}

static void on_tick(struct uv_timer_s *timer)
{
}

static _Noreturn void child_main(
	const struct nodes *g, uint64_t id, enum node_start how, uint64_t via, int fd)
{
	static struct child c;
	static const struct cons_events events = {.on_commit = on_commit,
		.on_result = on_result,
		.snapshot_begin = snapshot_begin,
		.chain = chain,
		.id_removed = id_removed};
	struct raft_cons_params params = {.loop = &c.loop,
		.dir = g->node[id].dir,
		.node_id = id,
		.cluster_id = g->node[id].cluster_id,
		.authenticated = g->authenticated,
		.key = {g->node[id].key},
		.election_ms = 10 * g->heartbeat_ms,
		.heartbeat_ms = g->heartbeat_ms,
		.snapshot_entries = 1u << 20,
		.snapshot_trailing = 1u << 20,
		.events = &events,
		.ctx = &c};
	enum raft_cons_state state;
	enum raft_cons_refusal refusal;
	const char *why = "";

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	c.fd = fd;
	c.chain = UINT64_C(14695981039346656037);
	strcpy(params.address, g->node[id].address);
	uv_loop_init(&c.loop);
	refusal = raft_cons_open(&params, &c.cons, &state, &why);
	if (refusal == RAFT_REFUSED_NOT && how == NODE_BOOTSTRAP)
		refusal = raft_cons_bootstrap(c.cons, &why);
	if (refusal == RAFT_REFUSED_NOT && how == NODE_JOIN)
		refusal = raft_cons_join(c.cons, g->node[via].address, 1, &why);
	else if (refusal == RAFT_REFUSED_NOT)
		refusal = raft_cons_start(c.cons, &why);
	if (refusal != RAFT_REFUSED_NOT) {
		fprintf(stderr, "node %" PRIu64 " refused (%d): %s\n", id, refusal, why);
		_exit(100 + (int)refusal);
	}
	uv_poll_init(&c.loop, &c.poll, fd);
	uv_prepare_init(&c.loop, &c.prepare);
	uv_timer_init(&c.loop, &c.timer);
	uv_idle_init(&c.loop, &c.idle);
	c.poll.data = c.prepare.data = &c;
	uv_poll_start(&c.poll, UV_READABLE, on_command);
	uv_prepare_start(&c.prepare, on_turn);
	uv_timer_start(&c.timer, on_tick, 20, 20);
	uv_run(&c.loop, UV_RUN_DEFAULT);
	_exit(96);
}

// --- the test ----------------------------------------------------------------------------------------------

void nodes_open(struct nodes *g, bool authenticated)
{
	const unsigned pid = (unsigned)getpid();

	memset(g, 0, sizeof(*g));
	g->authenticated = authenticated;
	g->token = 100;
	g->heartbeat_ms = 50;
	strcpy(g->dir, "/tmp/tagcast-raft.XXXXXX");
	assert_non_null(mkdtemp(g->dir));
	for (unsigned i = 1; i <= NODES_MAX; i++) {
		g->node[i].id = i;
		g->node[i].cluster_id = NODES_CLUSTER;
		g->node[i].key = NODES_KEY;
		snprintf(g->node[i].dir, sizeof(g->node[i].dir), "%s/%u", g->dir, i);
		// An address of this test's own: loopback has 16 million.
		snprintf(g->node[i].address, sizeof(g->node[i].address), "127.%u.%u.%u:7400",
			1 + (pid >> 8) % 250, pid & 0xff, i);
	}
}

static void remove_tree(const char *path)
{
	char command[160];

	snprintf(command, sizeof(command), "rm -rf '%s'", path);
	assert_int_equal(system(command), 0);
}

void nodes_close(struct nodes *g)
{
	for (uint64_t i = 1; i <= NODES_MAX; i++)
		if (g->node[i].pid != 0)
			node_kill(g, i);
	remove_tree(g->dir);
}

void node_start(struct nodes *g, uint64_t id, enum node_start how, uint64_t via)
{
	struct node *node = &g->node[id];
	int pair[2];

	assert_int_equal(node->pid, 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	fflush(NULL);
	node->pid = fork();
	assert_true(node->pid >= 0);
	if (node->pid == 0) {
		close(pair[0]);
		for (uint64_t i = 1; i <= NODES_MAX; i++)
			if (i != id && g->node[i].pid != 0)
				close(g->node[i].fd);
		child_main(g, id, how, via, pair[1]);
	}
	close(pair[1]);
	node->fd = pair[0];
}

static void reap(struct node *node)
{
	int status;

	assert_int_equal(waitpid(node->pid, &status, 0), node->pid);
	node->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	close(node->fd);
	node->pid = 0;
}

void node_kill(struct nodes *g, uint64_t id)
{
	kill(g->node[id].pid, SIGKILL);
	reap(&g->node[id]);
}

static int wait_readable(int fd, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	const uint64_t now = time_now_ns();

	return now >= deadline_ns ? 0 : poll(&p, 1, (int)((deadline_ns - now) / NS_PER_MS) + 1);
}

int node_wait_end(struct nodes *g, uint64_t id)
{
	const uint64_t deadline = time_now_ns() + NODES_WAIT_MS * NS_PER_MS;
	struct node *node = &g->node[id];

	for (;;) {
		if (wait_readable(node->fd, deadline) <= 0)
			fail_msg("node %" PRIu64 " did not end", id);
		if (recv(node->fd, g->line, sizeof(g->line), 0) <= 0)
			break;
	}
	reap(node);
	return node->exit_code;
}

void node_wipe(struct nodes *g, uint64_t id)
{
	remove_tree(g->node[id].dir);
}

// Reads lines of the node until one begins with `prefix`.
static void await_line(struct nodes *g, uint64_t id, const char *prefix)
{
	const uint64_t deadline = time_now_ns() + NODES_WAIT_MS * NS_PER_MS;
	struct node *node = &g->node[id];
	ssize_t n;

	do {
		if (wait_readable(node->fd, deadline) <= 0)
			fail_msg("node %" PRIu64 " does not say '%s'", id, prefix);
		n = recv(node->fd, g->line, sizeof(g->line) - 1, 0);
		if (n <= 0) {
			reap(node);
			fail_msg("node %" PRIu64 " ended with %d", id, node->exit_code);
		}
		g->line[n] = '\0';
	} while (strncmp(g->line, prefix, strlen(prefix)) != 0);
}

static void command(struct nodes *g, uint64_t id, const char *line)
{
	assert_int_equal(send(g->node[id].fd, line, strlen(line), MSG_NOSIGNAL), (int)strlen(line));
}

uint64_t node_info(struct nodes *g, uint64_t id, const char *what)
{
	char word[32];
	const char *at;

	command(g, id, "info");
	await_line(g, id, "info ");
	snprintf(word, sizeof(word), " %s ", what);
	at = strstr(g->line, word);
	assert_non_null(at);
	return strtoull(at + strlen(word), NULL, 10);
}

static void wait_info(struct nodes *g, uint64_t id, const char *what, uint64_t value, bool least)
{
	const uint64_t deadline = time_now_ns() + NODES_WAIT_MS * NS_PER_MS;

	for (;;) {
		const uint64_t now = node_info(g, id, what);

		if (now == value || (least && now > value))
			return;
		if (time_now_ns() > deadline)
			fail_msg("node %" PRIu64 ": %s stays %" PRIu64 ", not %" PRIu64 ": %s", id,
				what, now, value, g->line);
		poll(NULL, 0, 10);
	}
}

void node_wait(struct nodes *g, uint64_t id, const char *what, uint64_t value)
{
	wait_info(g, id, what, value, false);
}

void node_wait_least(struct nodes *g, uint64_t id, const char *what, uint64_t value)
{
	wait_info(g, id, what, value, true);
}

uint64_t nodes_leader(struct nodes *g)
{
	const uint64_t deadline = time_now_ns() + NODES_WAIT_MS * NS_PER_MS;

	while (time_now_ns() < deadline) {
		for (uint64_t i = 1; i <= NODES_MAX; i++)
			if (g->node[i].pid != 0 && node_info(g, i, "leads") == 1 &&
				node_info(g, i, "ready") == 1)
				return i;
		poll(NULL, 0, 10);
	}
	fail_msg("no leader");
	return 0;
}

static enum cons_status result_of(struct nodes *g, uint64_t id, uint64_t token)
{
	char prefix[48];

	snprintf(prefix, sizeof(prefix), "result %" PRIu64 " ", token);
	await_line(g, id, prefix);
	return (enum cons_status)atoi(g->line + strlen(prefix));
}

uint64_t nodes_await_any(struct nodes *g)
{
	struct pollfd p[NODES_MAX];
	uint32_t first;

	for (uint32_t i = 0; i < NODES_MAX; i++)
		p[i] = (struct pollfd){
			.fd = g->node[i + 1].pid != 0 ? g->node[i + 1].fd : -1, .events = POLLIN};
	if (poll(p, NODES_MAX, NODES_WAIT_MS) <= 0)
		fail_msg("no node says anything");
	// Another one first each time.
	first = (uint32_t)g->token % NODES_MAX;
	for (uint32_t i = 0; i < NODES_MAX; i++)
		if (p[(first + i) % NODES_MAX].revents != 0)
			return (first + i) % NODES_MAX + 1;
	return 0;
}

void node_propose_begin(struct nodes *g, uint64_t id, const char *text)
{
	char line[512];

	snprintf(line, sizeof(line), "propose %" PRIu64 " %s", ++g->token, text);
	command(g, id, line);
}

enum cons_status node_any_result(struct nodes *g, uint64_t id)
{
	const char *at;

	await_line(g, id, "result ");
	at = strchr(g->line + strlen("result "), ' ');
	assert_non_null(at);
	return (enum cons_status)atoi(at);
}

enum cons_status node_propose(struct nodes *g, uint64_t id, const char *text)
{
	node_propose_begin(g, id, text);
	return result_of(g, id, g->token);
}

void node_propose_until_done(struct nodes *g, uint64_t id, const char *text)
{
	const uint64_t deadline = time_now_ns() + NODES_WAIT_MS * NS_PER_MS;
	enum cons_status status;

	do {
		status = node_propose(g, id, text);
		if (time_now_ns() > deadline)
			fail_msg("node %" PRIu64 " takes nothing: %s", id, g->line);
		poll(NULL, 0, 10);
	} while (status == CONS_NOT_LEADER || status == CONS_BUSY || status == CONS_UNKNOWN);
	assert_int_equal(status, CONS_OK);
}

enum cons_status node_barrier(struct nodes *g, uint64_t id)
{
	char line[64];

	snprintf(line, sizeof(line), "barrier %" PRIu64, ++g->token);
	command(g, id, line);
	return result_of(g, id, g->token);
}

void node_barrier_until_done(struct nodes *g, uint64_t id)
{
	const uint64_t deadline = time_now_ns() + NODES_WAIT_MS * NS_PER_MS;

	while (node_barrier(g, id) != CONS_OK) {
		if (time_now_ns() > deadline)
			fail_msg("node %" PRIu64 " passes no barrier: %s", id, g->line);
		poll(NULL, 0, 10);
	}
}

enum cons_status node_change(
	struct nodes *g, uint64_t id, enum cons_change_op op, uint64_t target, const char *address)
{
	char line[160];

	snprintf(line, sizeof(line), "change %" PRIu64 " %d %" PRIu64 " %s", ++g->token, op, target,
		address);
	command(g, id, line);
	return result_of(g, id, g->token);
}

enum cons_status node_join_result(struct nodes *g, uint64_t id)
{
	return result_of(g, id, 1);
}

void node_lie(struct nodes *g, uint64_t id)
{
	command(g, id, "lie");
	await_line(g, id, "ok");
}

static void promote(struct nodes *g, uint64_t id)
{
	const uint64_t deadline = time_now_ns() + NODES_WAIT_MS * NS_PER_MS;
	enum cons_status status;

	// Leadership may be moving on a busy machine.
	while ((status = node_change(g, id, CONS_PROMOTE, id, "")) == CONS_NOT_LEADER)
		if (time_now_ns() > deadline)
			break;
	if (status != CONS_OK)
		fail_msg("promotion of %" PRIu64 ": %s", id, g->line);
}

void nodes_form(struct nodes *g, uint64_t count, uint64_t voters)
{
	node_start(g, 1, NODE_BOOTSTRAP, 0);
	node_wait(g, 1, "ready", 1);
	for (uint64_t i = 2; i <= count; i++) {
		node_start(g, i, NODE_JOIN, 1);
		if (node_join_result(g, i) != CONS_OK)
			fail_msg("join of %" PRIu64 ": %s", i, g->line);
		node_wait(g, i, "ready", 1);
		node_wait(g, 1, "connected", i);
		if (i <= voters)
			promote(g, i);
	}
}
