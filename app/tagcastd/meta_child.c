/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the child process and the back-off. Run by the control thread. A child is named by its pidfd, so
// a signal never reaches a stranger that got the same number.
#include "meta_child.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"
#include "meta_exit.h"

#define BACKOFF_MIN_NS (100 * NS_PER_MS)
#define BACKOFF_SLOW_NS (1 * NS_PER_S)  // at least, for what a restart does not mend
#define BACKOFF_MAX_NS (30 * NS_PER_S)
#define STABLE_NS (60 * NS_PER_S)  // a child that lived this long resets the back-off
#define ARGS_MAX 64u
#define TEXT_BYTES 4096u

struct meta_child {
	char text[TEXT_BYTES];  // the arguments, one after the other
	size_t text_len;
	char *args[ARGS_MAX];
	uint32_t arg_count;
	char program[TEXT_BYTES];
	int epoll_fd;
	int pidfd;  // -1: not running
	uint64_t started_ns;
	uint64_t backoff_ns;
	bool stopping;
	bool killed;
	uint64_t kill_ns;
	struct meta_child_info info;
};

static int add_text(struct meta_child *child, const char *text)
{
	const size_t len = strlen(text) + 1;

	if (child->arg_count + 1 >= ARGS_MAX || child->text_len + len > TEXT_BYTES)
		return -ENAMETOOLONG;
	child->args[child->arg_count++] = memcpy(child->text + child->text_len, text, len);
	child->text_len += len;
	return 0;
}

static int add_option(struct meta_child *child, const char *name, const char *value)
{
	const int rc = add_text(child, name);

	return rc != 0 ? rc : add_text(child, value);
}

static int add_number(struct meta_child *child, const char *name, uint64_t value)
{
	char text[32];

	if (value == 0)
		return 0;
	snprintf(text, sizeof(text), "%" PRIu64, value);
	return add_option(child, name, text);
}

// A bare name is looked for beside the running program first.
static int find_program(struct meta_child *child, const char *program)
{
	char *slash;
	ssize_t len;

	if (strlen(program) >= sizeof(child->program))
		return -ENAMETOOLONG;
	strcpy(child->program, program);
	if (strchr(program, '/') != NULL)
		return 0;
	len = readlink("/proc/self/exe", child->program, sizeof(child->program) - 1);
	if (len > 0) {
		child->program[len] = '\0';
		slash = strrchr(child->program, '/');
		if (slash != NULL && (size_t)(slash - child->program) + 2 + strlen(program) <=
					     sizeof(child->program)) {
			strcpy(slash + 1, program);
			if (access(child->program, X_OK) == 0)
				return 0;
		}
	}
	strcpy(child->program, program);
	return 0;
}

static int add_group(struct meta_child *child, const struct meta_child_params *params)
{
	int rc = 0;

	if (params->raft_address != NULL && params->raft_address[0] != '\0')
		rc = add_option(child, "--raft-address", params->raft_address);
	if (rc == 0 && params->raft_bind != NULL && params->raft_bind[0] != '\0')
		rc = add_option(child, "--raft-bind", params->raft_bind);
	if (rc == 0 && params->raft_key_file != NULL && params->raft_key_file[0] != '\0')
		rc = add_option(child, "--raft-key-file", params->raft_key_file);
	if (rc == 0 && params->raft_auth_off)
		rc = add_option(child, "--raft-auth", "off");
	rc = rc != 0 ? rc : add_number(child, "--election-ms", params->election_ns / NS_PER_MS);
	rc = rc != 0 ? rc : add_number(child, "--heartbeat-ms", params->heartbeat_ns / NS_PER_MS);
	rc = rc != 0 ? rc : add_number(child, "--snapshot-entries", params->snapshot_entries);
	rc = rc != 0 ? rc : add_number(child, "--snapshot-trailing", params->snapshot_trailing);
	rc = rc != 0 ? rc : add_number(child, "--snapshot-log", params->snapshot_log_bytes);
	return rc;
}

static int build_args(struct meta_child *child, const struct meta_child_params *params)
{
	const uint64_t wait_ms = (params->apply_wait_ns + NS_PER_MS - 1) / NS_PER_MS;
	int rc = find_program(child, params->program);

	rc = rc != 0 ? rc : add_text(child, child->program);
	rc = rc != 0 ? rc : add_option(child, "--run-dir", params->run_dir);
	rc = rc != 0 ? rc : add_option(child, "--data-dir", params->data_dir);
	rc = rc != 0 ? rc : add_number(child, "--node-id", params->node_id);
	rc = rc != 0 ? rc : add_number(child, "--cluster-id", params->cluster_id);
	rc = rc != 0 ? rc : add_number(child, "--map-size", params->map_bytes);
	rc = rc != 0 ? rc : add_number(child, "--apply-wait-ms", wait_ms);
	rc = rc != 0 ? rc : add_number(child, "--journal-commits", params->journal_commits);
	rc = rc != 0 ? rc : add_number(child, "--dedup-commits", params->dedup_commits);
	rc = rc != 0 ? rc : add_number(child, "--stages", params->stages);
	rc = rc != 0 ? rc : add_number(child, "--stage-commits", params->stage_commits);
	rc = rc != 0 ? rc : add_number(child, "--feed-backlog", params->feed_backlog_bytes);
	rc = rc != 0 ? rc : add_group(child, params);
	if (rc == 0 && params->log_level != NULL)
		rc = add_option(child, "--log-level", params->log_level);
	return rc;
}

int meta_child_create(const struct meta_child_params *params, struct meta_child **out)
{
	struct meta_child *child = calloc(1, sizeof(*child));
	int rc;

	if (child == NULL)
		return -ENOMEM;
	child->pidfd = -1;
	child->backoff_ns = BACKOFF_MIN_NS;
	child->info.last_status = child->info.last_code = -1;
	child->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	rc = child->epoll_fd < 0 ? -errno : build_args(child, params);
	if (rc != 0) {
		if (child->epoll_fd >= 0)
			close(child->epoll_fd);
		free(child);
		return rc;
	}
	*out = child;
	return 0;
}

// In the child, between fork and exec: async-signal-safe calls only.
static void become_metad(struct meta_child *child, pid_t parent)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t none;

	// A wedged child would hold the store's lock against the next start: it dies at once. Nothing
	// acknowledged is lost by that.
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
		_exit(71);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			sigaction(sig, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	// Descriptors of the port and of huge pages are not ours to keep.
	close_range(3, ~0u, 0);
	execvp(child->program, child->args);
	_exit(errno == ENOENT ? 127 : 126);
}

static void plan_restart(struct meta_child *child, uint64_t now_ns)
{
	child->info.next_start_ns = now_ns + child->backoff_ns;
	child->backoff_ns *= 2;
	if (child->backoff_ns > BACKOFF_MAX_NS)
		child->backoff_ns = BACKOFF_MAX_NS;
}

static void start(struct meta_child *child, uint64_t now_ns)
{
	struct epoll_event event = {.events = EPOLLIN};
	const pid_t parent = getpid();
	const pid_t pid = fork();

	if (pid == 0)
		become_metad(child, parent);
	if (pid < 0) {
		LOG(LOG_ERROR, "meta", "META_FORK", "cannot start the meta process: %s",
			strerror(errno));
		plan_restart(child, now_ns);
		return;
	}
	child->info.starts++;
	child->pidfd = pidfd_open(pid, 0);
	if (child->pidfd < 0 ||
		epoll_ctl(child->epoll_fd, EPOLL_CTL_ADD, child->pidfd, &event) != 0) {
		// Not watchable, so not to be kept. Its number cannot have been reused: nobody waited yet.
		LOG(LOG_ERROR, "meta", "META_PIDFD", "cannot watch the meta process: %s",
			strerror(errno));
		kill(pid, SIGKILL);
		waitpid(pid, &child->info.last_status, 0);
		if (child->pidfd >= 0)
			close(child->pidfd);
		child->pidfd = -1;
		plan_restart(child, now_ns);
		return;
	}
	child->info.running = true;
	child->info.pid = pid;
	child->started_ns = now_ns;
	child->killed = false;
	LOG(LOG_INFO, "meta", "META_START", "meta process %s started, pid %d", child->program,
		(int)pid);
}

static void note_end(struct meta_child *child, int status, uint64_t now_ns)
{
	close(child->pidfd);
	child->pidfd = -1;
	child->info.running = false;
	child->info.pid = 0;
	child->info.exits++;
	child->info.last_status = status;
	if (child->stopping) {
		child->info.next_start_ns = UINT64_MAX;
		return;
	}
	if (now_ns - child->started_ns >= STABLE_NS)
		child->backoff_ns = BACKOFF_MIN_NS;
	child->info.last_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	// A crash, or what a restart repairs, is soon over; the rest needs time or somebody's help.
	if (WIFEXITED(status) && meta_exit_remedy(WEXITSTATUS(status)) != META_REMEDY_RESTART &&
		child->backoff_ns < BACKOFF_SLOW_NS)
		child->backoff_ns = BACKOFF_SLOW_NS;
	plan_restart(child, now_ns);
	LOG(LOG_ERROR, "meta", "META_EXIT",
		"meta process ended (%s %d)%s, next start in %" PRIu64 " ms",
		WIFSIGNALED(status) ? "signal" : "exit code",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
		WIFEXITED(status) && meta_exit_remedy(WEXITSTATUS(status)) == META_REMEDY_HELP
			? ", it cannot go on without help: see its last lines"
			: "",
		(child->info.next_start_ns - now_ns) / NS_PER_MS);
}

bool meta_child_process(struct meta_child *child, uint64_t now_ns)
{
	bool did = false;

	if (child->pidfd >= 0) {
		int status;
		// WNOHANG on our own child: no other child of the process is touched.
		const pid_t pid = waitpid(child->info.pid, &status, WNOHANG);

		if (pid == child->info.pid) {
			note_end(child, status, now_ns);
			did = true;
		} else if (pid < 0 && errno == ECHILD) {
			note_end(child, -1, now_ns);
			did = true;
		} else if (child->stopping && !child->killed && now_ns >= child->kill_ns) {
			pidfd_send_signal(child->pidfd, SIGKILL, NULL, 0);
			child->killed = did = true;
		}
	}
	if (child->pidfd < 0 && !child->stopping && now_ns >= child->info.next_start_ns) {
		start(child, now_ns);
		did = true;
	}
	return did;
}

uint64_t meta_child_next_ns(const struct meta_child *child)
{
	if (child->pidfd < 0)
		return child->stopping ? UINT64_MAX : child->info.next_start_ns;
	return child->stopping && !child->killed ? child->kill_ns : UINT64_MAX;
}

void meta_child_stop(struct meta_child *child, uint64_t deadline_ns)
{
	child->stopping = true;
	child->kill_ns = deadline_ns;
	if (child->pidfd >= 0)
		pidfd_send_signal(child->pidfd, SIGTERM, NULL, 0);
	else
		child->info.next_start_ns = UINT64_MAX;
}

void meta_child_info(const struct meta_child *child, struct meta_child_info *info)
{
	*info = child->info;
}

int meta_child_fd(const struct meta_child *child)
{
	return child->epoll_fd;
}

void meta_child_destroy(struct meta_child *child)
{
	if (child == NULL)
		return;
	if (child->pidfd >= 0) {
		pidfd_send_signal(child->pidfd, SIGKILL, NULL, 0);
		waitpid(child->info.pid, NULL, 0);
		close(child->pidfd);
	}
	close(child->epoll_fd);
	free(child);
}
