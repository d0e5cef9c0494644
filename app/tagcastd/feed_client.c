/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the socket, its receive buffer and the back-off. Run by the control thread.
#include "feed_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"

#define BUFFER_BYTES (2u * STORE_FEED_FRAME_MAX)
#define READ_BYTES_PER_CALL (1024u * 1024u)
#define BACKOFF_MIN_NS (20 * NS_PER_MS)
#define BACKOFF_MAX_NS (1000 * NS_PER_MS)
#define STABLE_NS NS_PER_S  // a connection that lived this long resets the back-off
#define WELCOME_WAIT_NS (5 * NS_PER_S)  // an answer to HELLO

struct feed_client {
	struct sockaddr_un addr;
	const struct feed_client_events *events;
	void *ctx;
	int epoll_fd;
	int fd;  // -1: not connected
	bool welcomed;
	uint64_t since_ns;  // of this connection
	uint64_t next_try_ns;
	uint64_t backoff_ns;
	uint64_t processed_ns;  // last call
	uint64_t applied_said, applied;
	uint32_t len;
	struct feed_client_info info;
	uint8_t buffer[BUFFER_BYTES];
};

int feed_client_create(const char *path, const struct feed_client_events *events, void *ctx,
	struct feed_client **out)
{
	struct feed_client *client;

	if (strlen(path) >= sizeof(client->addr.sun_path))
		return -ENAMETOOLONG;
	client = calloc(1, sizeof(*client));
	if (client == NULL)
		return -ENOMEM;
	client->addr.sun_family = AF_UNIX;
	strcpy(client->addr.sun_path, path);
	client->events = events;
	client->ctx = ctx;
	client->fd = -1;
	client->backoff_ns = BACKOFF_MIN_NS;
	client->info.last_error = "";
	client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (client->epoll_fd < 0) {
		const int rc = -errno;

		free(client);
		return rc;
	}
	*out = client;
	return 0;
}

void feed_client_destroy(struct feed_client *client)
{
	if (client == NULL)
		return;
	if (client->fd >= 0)
		close(client->fd);
	close(client->epoll_fd);
	free(client);
}

int feed_client_fd(const struct feed_client *client)
{
	return client->epoll_fd;
}

// Ends the connection, if any, and plans the next attempt.
static void drop(struct feed_client *client, const char *why, uint64_t now_ns)
{
	const bool welcomed = client->welcomed;

	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
	client->welcomed = false;
	client->len = 0;
	if (!welcomed)
		client->info.failures++;
	if (welcomed && now_ns - client->since_ns >= STABLE_NS)
		client->backoff_ns = BACKOFF_MIN_NS;
	client->next_try_ns = now_ns + client->backoff_ns;
	client->backoff_ns *= 2;
	if (client->backoff_ns > BACKOFF_MAX_NS)
		client->backoff_ns = BACKOFF_MAX_NS;
	client->info.connected = client->info.waiting = false;
	client->info.last_error = why;
	if (welcomed) {
		LOG(LOG_WARN, "feed", "FEED_LOST", "feed from the meta process is gone: %s", why);
		client->events->lost(client->ctx, now_ns);
	}
}

static int send_frame(struct feed_client *client, const struct store_feed_frame *frame)
{
	uint8_t bytes[64];
	const int len = store_feed_encode(frame, bytes, sizeof(bytes));
	ssize_t put;

	if (len < 0)
		return len;
	put = send(client->fd, bytes, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (put < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	return put == len ? 0 : -EPIPE;
}

static void try_connect(struct feed_client *client, uint64_t now_ns)
{
	struct store_feed_frame hello = {.type = STORE_FEED_HELLO};
	struct epoll_event event = {.events = EPOLLIN};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	client->fd = fd;
	client->since_ns = now_ns;
	// What was applied of another history means nothing to this one: the owner says it anew.
	client->applied_said = client->applied = 0;
	if (fd < 0 || epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		drop(client, "no descriptor", now_ns);
		return;
	}
	if (connect(fd, (struct sockaddr *)&client->addr, sizeof(client->addr)) != 0) {
		drop(client,
			errno == ENOENT || errno == ECONNREFUSED ? "meta process is not there"
								 : "cannot connect",
			now_ns);
		return;
	}
	client->events->hello(client->ctx, &hello);
	hello.type = STORE_FEED_HELLO;
	hello.proto = STORE_FEED_PROTO;
	if (send_frame(client, &hello) != 0)
		drop(client, "cannot send HELLO", now_ns);
}

// Returns: 0; 1 when the connection is to be dropped with `why`.
static int take_frame(struct feed_client *client, const struct store_feed_frame *frame,
	uint64_t now_ns, const char **why)
{
	client->info.frames++;
	switch (frame->type) {
	case STORE_FEED_WELCOME:
		if (client->welcomed) {
			*why = "a second WELCOME";
			return 1;
		}
		client->welcomed = true;
		client->info.connected = true;
		client->info.waiting = false;
		client->info.connects++;
		LOG(LOG_INFO, "feed", "FEED_UP", "feed from commit %llu of generation %llu%s",
			(unsigned long long)frame->commit, (unsigned long long)frame->generation,
			frame->resync ? ", the whole store is read again" : "");
		break;
	case STORE_FEED_DELTA:
		if (!client->welcomed) {
			*why = "DELTA before WELCOME";
			return 1;
		}
		break;
	case STORE_FEED_WAIT:
		if (client->welcomed) {
			*why = "WAIT after WELCOME";
			return 1;
		}
		client->info.waiting = true;
		client->since_ns = now_ns;  // it is there and will say WELCOME
		return 0;
	case STORE_FEED_LAGGED:
		client->info.lagged++;
		*why = "too far behind";
		return 1;
	default:
		*why = "unexpected frame";
		return 1;
	}
	if (client->events->frame(client->ctx, frame, now_ns) != 0) {
		*why = "a frame did not fit what is known here";
		return 1;
	}
	return 0;
}

// Hands out the whole frames in the buffer. Returns: their number; drops the connection when one is bad.
static uint32_t take_frames(struct feed_client *client, uint64_t now_ns)
{
	const char *why = NULL;
	uint32_t at = 0, taken = 0;

	for (;;) {
		struct store_feed_frame frame;
		const int used = store_feed_decode(client->buffer + at, client->len - at, &frame);

		if (used == 0)
			break;
		if (used < 0) {
			why = "bytes that are no frame";
			break;
		}
		at += (uint32_t)used;
		taken++;
		if (take_frame(client, &frame, now_ns, &why) != 0)
			break;
	}
	if (why != NULL) {
		drop(client, why, now_ns);
		return taken;
	}
	client->len -= at;
	if (at > 0)
		memmove(client->buffer, client->buffer + at, client->len);
	return taken;
}

uint32_t feed_client_process(struct feed_client *client, uint64_t now_ns)
{
	uint32_t taken = 0, total = 0;

	client->processed_ns = now_ns;
	if (client->fd < 0) {
		if (now_ns < client->next_try_ns)
			return 0;
		try_connect(client, now_ns);
	}
	while (client->fd >= 0) {
		const ssize_t got = recv(client->fd, client->buffer + client->len,
			BUFFER_BYTES - client->len, MSG_DONTWAIT);

		if (got == 0) {
			drop(client, "closed by the meta process", now_ns);
			break;
		}
		if (got < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				drop(client, "connection broke", now_ns);
			break;
		}
		client->len += (uint32_t)got;
		client->info.bytes += (uint64_t)got;
		total += (uint32_t)got;
		taken += take_frames(client, now_ns);
		if (total >= READ_BYTES_PER_CALL)
			break;
	}
	if (client->fd >= 0 && !client->welcomed && now_ns - client->since_ns > WELCOME_WAIT_NS)
		drop(client, "no answer to HELLO", now_ns);
	if (client->fd >= 0 && client->welcomed && client->applied > client->applied_said)
		feed_client_applied(client, client->applied);
	return taken;
}

uint64_t feed_client_next_ns(const struct feed_client *client)
{
	if (client->fd < 0)
		return client->next_try_ns;
	if (!client->welcomed)
		return client->since_ns + WELCOME_WAIT_NS + 1;
	// APPLIED could not be sent: the other side is slow to read, look again soon.
	if (client->applied > client->applied_said)
		return client->processed_ns + NS_PER_MS;
	return UINT64_MAX;
}

void feed_client_applied(struct feed_client *client, uint64_t commit)
{
	struct store_feed_frame frame = {.type = STORE_FEED_APPLIED, .commit = commit};

	client->applied = commit;
	if (client->fd < 0 || !client->welcomed || commit <= client->applied_said)
		return;
	if (send_frame(client, &frame) == 0)
		client->applied_said = commit;
	// A broken connection is seen by the next read.
}

void feed_client_info(const struct feed_client *client, struct feed_client_info *info)
{
	*info = client->info;
}
