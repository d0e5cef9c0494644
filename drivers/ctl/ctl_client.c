/* SPDX-License-Identifier: BSD-3-Clause */
// Client side of the control socket, blocking with deadlines. Used by tagcastctl and tests, never by a
// thread that has something else to do.
#include "ctl.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base_time.h"

#define ANSWER_BYTES_MAX (64u * 1024u * 1024u)
#define OUT_BYTES_FLUSH (32u * 1024u)  // small requests leave together

struct ctl_pipe {
	int fd;
	char *in;
	size_t in_len, in_cap, in_off, scanned;
	char *out;  // requests not sent yet
	size_t out_len, out_cap;
};

static uint64_t deadline_of(int timeout_ms)
{
	return time_now_ns() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * NS_PER_MS;
}

// Waits for `events`. Returns: 0, -ETIMEDOUT or another -errno.
static int wait_for(int fd, short events, uint64_t deadline)
{
	for (;;) {
		struct pollfd poller = {.fd = fd, .events = events};
		const uint64_t now = time_now_ns();
		const int wait_ms =
			now >= deadline ? 0 : (int)((deadline - now + NS_PER_MS - 1) / NS_PER_MS);
		const int rc = poll(&poller, 1, wait_ms);

		if (rc > 0)
			return 0;
		if (rc == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

int ctl_connect(const char *path, int timeout_ms)
{
	const uint64_t deadline = deadline_of(timeout_ms);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		rc = -errno;
		if (rc == -EINTR)
			continue;
		// A full backlog cannot be polled for: look again until the deadline.
		if (rc == -EAGAIN && time_now_ns() < deadline) {
			poll(NULL, 0, 2);
			continue;
		}
		close(fd);
		return rc == -EAGAIN ? -ETIMEDOUT : rc;
	}
	return fd;
}

struct ctl_pipe *ctl_pipe_create(int fd)
{
	struct ctl_pipe *pipe = calloc(1, sizeof(*pipe));

	if (pipe != NULL)
		pipe->fd = fd;
	return pipe;
}

void ctl_pipe_destroy(struct ctl_pipe *pipe)
{
	if (pipe == NULL)
		return;
	close(pipe->fd);
	free(pipe->in);
	free(pipe->out);
	free(pipe);
}

// Reads once. Returns: 0; -EAGAIN: nothing there; other -errno.
static int pipe_read(struct ctl_pipe *pipe)
{
	ssize_t got;

	if (pipe->in_off > 0 && pipe->in_len == pipe->in_cap) {
		memmove(pipe->in, pipe->in + pipe->in_off, pipe->in_len - pipe->in_off);
		pipe->in_len -= pipe->in_off;
		pipe->scanned -= pipe->in_off;
		pipe->in_off = 0;
	}
	if (pipe->in_len == pipe->in_cap) {
		const size_t cap = pipe->in_cap == 0 ? 16384 : pipe->in_cap * 2;
		char *grown;

		if (cap > ANSWER_BYTES_MAX)
			return -EMSGSIZE;
		grown = realloc(pipe->in, cap);
		if (grown == NULL)
			return -ENOMEM;
		pipe->in = grown;
		pipe->in_cap = cap;
	}
	got = recv(pipe->fd, pipe->in + pipe->in_len, pipe->in_cap - pipe->in_len, MSG_DONTWAIT);
	if (got < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	if (got == 0)
		return -ECONNRESET;
	pipe->in_len += (size_t)got;
	return 0;
}

static int pipe_flush(struct ctl_pipe *pipe, uint64_t deadline)
{
	size_t off = 0;
	int rc = 0;

	while (off < pipe->out_len && rc == 0) {
		const ssize_t put = send(pipe->fd, pipe->out + off, pipe->out_len - off,
			MSG_NOSIGNAL | MSG_DONTWAIT);

		if (put >= 0) {
			off += (size_t)put;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR) {
			rc = -errno;
			break;
		}
		// The server stops reading while answers wait: take them in, or both sides would wait.
		rc = pipe_read(pipe);
		if (rc == -EAGAIN)
			rc = wait_for(pipe->fd, POLLIN | POLLOUT, deadline);
	}
	pipe->out_len -= off;
	if (pipe->out_len > 0)
		memmove(pipe->out, pipe->out + off, pipe->out_len);
	return rc;
}

static int append(const char *bytes, size_t len, void *ctx)
{
	struct ctl_pipe *pipe = ctx;

	if (pipe->out_len + len > pipe->out_cap) {
		const size_t cap = (pipe->out_len + len) * 2 + OUT_BYTES_FLUSH;
		char *grown = realloc(pipe->out, cap);

		if (grown == NULL)
			return -1;
		pipe->out = grown;
		pipe->out_cap = cap;
	}
	memcpy(pipe->out + pipe->out_len, bytes, len);
	pipe->out_len += len;
	return 0;
}

int ctl_pipe_send(struct ctl_pipe *pipe, const json_t *request, int timeout_ms)
{
	const size_t before = pipe->out_len;

	if (json_dump_callback(request, append, pipe, JSON_COMPACT) != 0 ||
		append("\n", 1, pipe) != 0) {
		pipe->out_len = before;
		return -ENOMEM;
	}
	return pipe->out_len < OUT_BYTES_FLUSH ? 0 : pipe_flush(pipe, deadline_of(timeout_ms));
}

int ctl_pipe_flush(struct ctl_pipe *pipe, int timeout_ms)
{
	return pipe_flush(pipe, deadline_of(timeout_ms));
}

json_t *ctl_pipe_receive(struct ctl_pipe *pipe, int timeout_ms)
{
	const uint64_t deadline = deadline_of(timeout_ms);
	int rc = pipe_flush(pipe, deadline);

	// A server that refuses a request before its end answers and closes: the answer says why.
	if (rc != 0 && rc != -EPIPE && rc != -ECONNRESET) {
		errno = -rc;
		return NULL;
	}
	for (;;) {
		const char *start = pipe->in + pipe->in_off;
		const char *newline = pipe->scanned < pipe->in_len
					      ? memchr(pipe->in + pipe->scanned, '\n',
							pipe->in_len - pipe->scanned)
					      : NULL;

		if (newline != NULL) {
			json_t *answer = json_loadb(start, (size_t)(newline - start), 0, NULL);

			pipe->in_off = pipe->scanned = (size_t)(newline - pipe->in) + 1;
			if (pipe->in_off == pipe->in_len)
				pipe->in_off = pipe->in_len = pipe->scanned = 0;
			if (answer == NULL || !json_is_object(answer)) {
				json_decref(answer);
				errno = EBADMSG;
				return NULL;
			}
			return answer;
		}
		pipe->scanned = pipe->in_len;
		rc = pipe_read(pipe);
		if (rc == -EAGAIN)
			rc = wait_for(pipe->fd, POLLIN, deadline);
		if (rc != 0) {
			errno = -rc;
			return NULL;
		}
	}
}

json_t *ctl_call(int fd, const json_t *request, int timeout_ms)
{
	struct ctl_pipe pipe = {.fd = fd};
	json_t *answer = NULL;
	int rc = -ctl_pipe_send(&pipe, request, timeout_ms);

	if (rc == 0 || rc == EPIPE || rc == ECONNRESET) {
		answer = ctl_pipe_receive(&pipe, timeout_ms);
		rc = errno;
	}
	free(pipe.in);
	free(pipe.out);
	errno = rc;
	return answer;
}
