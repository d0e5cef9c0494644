/* SPDX-License-Identifier: BSD-3-Clause */
// Server side of the control socket. Owns the listener, the clients and their buffers; run by the one
// thread whose loop polls ctl_server_fd. Sockets are read, written and closed in ctl_server_process
// alone: ctl_reply only queues and rings an eventfd, so a handler may answer from anywhere in that thread
// and answers of one loop turn leave in one write per client.
#include "ctl_pvt.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base_time.h"

#define READ_BYTES_PER_CALL (1024u * 1024u)  // of a client
#define READ_BYTES_ALL (4u * READ_BYTES_PER_CALL)  // the rest is read in the next call
#define LINES_PER_CALL 512u  // of a client
#define LINES_NS \
	(5 * NS_PER_MS)  // for the lines of all clients in one call: the loop has other things to do
#define ACCEPTS_PER_CALL 16u
#define INPUT_CAP_FIRST (64u * 1024u)  // one read takes what a turn can handle

// --- lines ------------------------------------------------------------------------------------------------

static void refuse_input(struct ctl_client *client, const char *code, const char *message)
{
	struct ctl_request *request = ctl_request_create(client, NULL);

	if (request != NULL)
		ctl_fail_at(request, code, message, NULL);
	client->closing = true;
	client->line_end = 0;
}

static bool id_valid(const json_t *id)
{
	return id == NULL || json_is_integer(id) || json_is_null(id) || json_is_boolean(id) ||
	       json_is_real(id) || (json_is_string(id) && json_string_length(id) <= 255);
}

void ctl_run_request(
	struct ctl_client *client, json_t *root, const char *error, const char *where, void **taken)
{
	struct ctl_server *server = client->server;
	json_t *id = json_object_get(root, "id");
	const char *cmd = json_string_value(json_object_get(root, "cmd"));
	struct ctl_request *request = ctl_request_create(client, id_valid(id) ? id : NULL);

	if (request == NULL)
		return;
	if (root == NULL) {
		ctl_fail_at(request, "bad_json", error, where);
		return;
	}
	if (!id_valid(id)) {
		ctl_fail_at(request, "invalid_id",
			"id is a number, or a string of at most 255 bytes", NULL);
	} else if (cmd == NULL) {
		ctl_fail_at(request, "bad_request", "cmd is missing or no string", NULL);
	} else {
		const struct ctl_command *row = NULL;

		for (uint32_t i = 0; i < server->command_count && row == NULL; i++)
			if (strcmp(server->commands[i].name, cmd) == 0)
				row = &server->commands[i];
		if (row == NULL) {
			ctl_fail(request, "unknown_command", "no command \"%.64s\" here", cmd);
			return;
		}
		request->taken = taken;
		row->handle(server->ctx, request, root);
		request->taken = NULL;  // not freed yet: the client collects its answers later
	}
}

static void run_line(struct ctl_client *client, const char *line, size_t len)
{
	char error[CTL_ERROR_BYTES], where[CTL_WHERE_BYTES];
	json_t *root = ctl_parse(line, len, error, where);

	ctl_run_request(client, root, error, where, NULL);
	json_decref(root);
}

static void find_line(struct ctl_client *client)
{
	const char *newline;

	client->line_end = 0;
	if (client->scanned >= client->in_len)
		return;
	newline = memchr(client->in + client->scanned, '\n', client->in_len - client->scanned);
	if (newline != NULL) {
		client->line_end = (size_t)(newline - client->in) + 1;  // one past, never 0
		client->scanned = client->line_end;
	} else {
		client->scanned = client->in_len;
	}
}

static bool client_blocked(const struct ctl_client *client)
{
	return client->job != NULL || client->open >= CTL_PIPELINE_MAX ||
	       client->out_len - client->out_off + client->held_bytes >= CTL_OUTPUT_BYTES_HIGH;
}

static bool client_runnable(const struct ctl_client *client)
{
	return !client->dead && !client->closing && client->line_end != 0 &&
	       !client_blocked(client);
}

static void in_release(struct ctl_client *client)
{
	if (client->in_off == client->in_len) {
		client->in_off = client->in_len = client->scanned = 0;
		if (client->in_cap > CTL_INPUT_CAP_KEPT) {
			client->server->input_bytes -= client->in_cap;
			free(client->in);
			client->in = NULL;
			client->in_cap = 0;
		}
	}
}

// Returns: lines handled.
static int client_run(struct ctl_client *client)
{
	uint32_t lines = 0;

	while (client_runnable(client) && lines < LINES_PER_CALL &&
		time_now_ns() < client->server->until_ns) {
		const size_t off = client->in_off;
		size_t len = client->line_end - 1 - off;

		if (len > 0 && client->in[off + len - 1] == '\r')
			len--;
		client->in_off = client->line_end;
		if (len > 0 && !ctl_job_start(client, off, len))
			run_line(client, client->in + off, len);
		lines++;
		ctl_collect(client);
		find_line(client);
		// A large line stands alone in its call: the loop has other things to do.
		if (len > CTL_INPUT_CAP_KEPT)
			break;
	}
	in_release(client);
	return (int)lines;
}

// --- sockets ----------------------------------------------------------------------------------------------

// Makes room for more input. Returns: false after refusing.
static bool in_grow(struct ctl_client *client)
{
	struct ctl_server *server = client->server;
	size_t cap = client->in_cap == 0 ? INPUT_CAP_FIRST : client->in_cap * 2;
	const size_t counted = client->in_cap > CTL_INPUT_CAP_KEPT ? client->in_cap : 0;
	char *grown;

	if (client->in_off > 0) {
		memmove(client->in, client->in + client->in_off, client->in_len - client->in_off);
		client->in_len -= client->in_off;
		client->scanned -= client->in_off;
		client->in_off = 0;
		if (client->in_len < client->in_cap)
			return true;
	}
	if (client->in_len > CTL_LINE_BYTES_MAX) {
		refuse_input(client, "too_large", "a request line has at most 64 MiB");
		return false;
	}
	if (cap > CTL_LINE_BYTES_MAX + 4096)
		cap = CTL_LINE_BYTES_MAX + 4096;
	if (cap > CTL_INPUT_CAP_KEPT && server->input_bytes - counted + cap > CTL_INPUT_BYTES_MAX) {
		refuse_input(client, "busy", "too much input from all clients together, try again");
		return false;
	}
	grown = realloc(client->in, cap);
	if (grown == NULL) {
		client->dead = true;
		return false;
	}
	server->input_bytes -= counted;
	if (cap > CTL_INPUT_CAP_KEPT)
		server->input_bytes += cap;
	client->in = grown;
	client->in_cap = cap;
	return true;
}

// Returns: bytes read.
static size_t client_read(struct ctl_client *client)
{
	size_t total = 0;

	// With a line at hand only what the buffer holds anyway: lines are run before more is read.
	while (total < READ_BYTES_PER_CALL && !client->closing && !client->dead &&
		(client->line_end == 0 || client->in_len < client->in_cap)) {
		ssize_t got;

		if (client->in_len == client->in_cap && !in_grow(client))
			return total;
		got = recv(client->fd, client->in + client->in_len, client->in_cap - client->in_len,
			0);
		if (got == 0) {
			client->eof = true;
			return total;
		}
		if (got < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				client->dead = true;
			return total;
		}
		client->in_len += (size_t)got;
		total += (size_t)got;
		if (client->line_end == 0)
			find_line(client);
	}
	return total;
}

static void client_write(struct ctl_client *client)
{
	while (client->out_off < client->out_len) {
		const ssize_t put = send(client->fd, client->out + client->out_off,
			client->out_len - client->out_off, MSG_NOSIGNAL);

		if (put < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				client->hung_up = true;
			break;
		}
		client->out_off += (size_t)put;
	}
	if (client->out_off == client->out_len || client->hung_up) {
		client->out_off = client->out_len = 0;
		if (client->out_cap > CTL_INPUT_CAP_KEPT) {
			free(client->out);
			client->out = NULL;
			client->out_cap = 0;
		}
	} else if (client->out_off > client->out_cap / 2) {
		memmove(client->out, client->out + client->out_off,
			client->out_len - client->out_off);
		client->out_len -= client->out_off;
		client->out_off = 0;
	}
}

static bool client_finished(const struct ctl_client *client)
{
	const bool drained = client->open == 0 && client->out_len == 0 && client->job == NULL;

	if (client->dead)
		return true;
	if (client->closing)
		return client->hung_up || drained;
	if (client->eof && client->line_end == 0)
		return client->hung_up || drained;
	return client->hung_up && client_blocked(client);
}

static void client_close(struct ctl_server *server, uint32_t slot)
{
	struct ctl_client *client = server->client[slot];
	struct ctl_request *next;

	if (client->job != NULL)
		ctl_job_orphan(client->job, false);
	for (struct ctl_request *request = client->first; request != NULL; request = next) {
		next = request->next;
		request->client = NULL;
		request->next = NULL;
		if (request->answer != NULL)
			ctl_request_free(request);
	}
	if (client->in_cap > CTL_INPUT_CAP_KEPT)
		server->input_bytes -= client->in_cap;
	close(client->fd);
	free(client->in);
	free(client->out);
	free(client);
	server->client[slot] = NULL;
	server->clients--;
}

static void client_arm(struct ctl_client *client)
{
	struct epoll_event event = {.data.ptr = client};

	if (!client->eof && !client->closing && client->line_end == 0 && !client_blocked(client))
		event.events |= EPOLLIN;
	if (client->out_off < client->out_len)
		event.events |= EPOLLOUT;
	if (event.events == client->armed)
		return;
	client->armed = event.events;
	if (epoll_ctl(client->server->epoll_fd, EPOLL_CTL_MOD, client->fd, &event) != 0)
		client->dead = true;
}

static void accept_one(struct ctl_server *server, int fd)
{
	static const char busy[] =
		"{\"ok\":false,\"error\":\"busy\",\"message\":\"too many clients, try again\"}\n";
	struct epoll_event event = {.events = EPOLLIN};
	struct ctl_client *client = NULL;
	uint32_t slot = 0;

	while (slot < CTL_CLIENTS_MAX && server->client[slot] != NULL)
		slot++;
	if (slot == CTL_CLIENTS_MAX) {
		(void)!send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL);
		close(fd);
		return;
	}
	client = calloc(1, sizeof(*client));
	if (client == NULL) {
		close(fd);
		return;
	}
	client->server = server;
	client->fd = fd;
	client->armed = EPOLLIN;
	event.data.ptr = client;
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		close(fd);
		free(client);
		return;
	}
	server->client[slot] = client;
	server->clients++;
}

static void accept_some(struct ctl_server *server)
{
	for (uint32_t i = 0; i < ACCEPTS_PER_CALL; i++) {
		const int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		accept_one(server, fd);
	}
}

int ctl_server_process(struct ctl_server *server)
{
	struct epoll_event events[CTL_CLIENTS_MAX + 2];
	const int ready = epoll_wait(server->epoll_fd, events, CTL_CLIENTS_MAX + 2, 0);
	const uint32_t first = server->turn;
	int work = ready > 0 ? ready : 0;
	size_t total = 0;
	bool more = false;

	server->in_process = true;
	for (int i = 0; i < ready; i++) {
		struct ctl_client *client = events[i].data.ptr;

		if (events[i].data.ptr == &server->listen_fd) {
			accept_some(server);
		} else if (events[i].data.ptr == &server->kick_fd) {
			uint64_t count;

			(void)!read(server->kick_fd, &count, sizeof(count));
			server->kicked = false;
		} else {
			if (events[i].events & (EPOLLHUP | EPOLLERR))
				client->hung_up = true;
			if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR) &&
				total < READ_BYTES_ALL)
				total += client_read(client);
		}
	}
	server->until_ns = time_now_ns() + LINES_NS;
	for (uint32_t i = 0; i < CTL_CLIENTS_MAX; i++) {
		const uint32_t slot = (first + i) % CTL_CLIENTS_MAX;
		struct ctl_client *client = server->client[slot];

		if (client == NULL)
			continue;
		// Whoever finds the time used up is first in the next call.
		if (server->turn == first && client_runnable(client) &&
			time_now_ns() >= server->until_ns)
			server->turn = slot;
		work += client_run(client);
		ctl_collect(client);
		client_write(client);
		if (!client_finished(client))
			client_arm(client);
		if (client_finished(client))
			client_close(server, slot);
		else
			more = more || client_runnable(client);
	}
	server->in_process = false;
	if (more)
		ctl_kick(server);
	return work;
}

// --- open and close ---------------------------------------------------------------------------------------

int ctl_server_open(const char *path, const struct ctl_command *commands, uint32_t count, void *ctx,
	struct ctl_server **out)
{
	struct ctl_server *server = calloc(1, sizeof(*server));
	struct epoll_event event = {.events = EPOLLIN};
	struct stat st;
	int rc;

	if (server == NULL)
		return -ENOMEM;
	server->listen_fd = server->epoll_fd = server->kick_fd = -1;
	server->commands = commands;
	server->command_count = count;
	server->ctx = ctx;
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (server->epoll_fd < 0 || server->kick_fd < 0) {
		rc = -errno;
		goto fail;
	}
	rc = ctl_listen(path);
	if (rc < 0)
		goto fail;
	server->listen_fd = rc;
	strcpy(server->addr.sun_path, path);
	if (lstat(path, &st) != 0) {
		rc = -errno;
		goto fail;
	}
	server->dev = st.st_dev;
	server->ino = st.st_ino;
	event.data.ptr = &server->listen_fd;
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &event) != 0) {
		rc = -errno;
		goto fail;
	}
	event.data.ptr = &server->kick_fd;
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->kick_fd, &event) != 0) {
		rc = -errno;
		goto fail;
	}
	*out = server;
	return 0;

fail:
	ctl_server_close(server);
	return rc;
}

void ctl_server_close(struct ctl_server *server)
{
	struct stat st;

	if (server == NULL)
		return;
	assert(!server->in_process);
	for (uint32_t slot = 0; slot < CTL_CLIENTS_MAX; slot++)
		if (server->client[slot] != NULL)
			client_close(server, slot);
	while (server->jobs != NULL) {
		struct ctl_job *job = server->jobs;

		server->jobs = job->next;
		ctl_job_orphan(job, true);
	}
	if (server->listen_fd >= 0) {
		// A successor may have taken the name.
		if (lstat(server->addr.sun_path, &st) == 0 && st.st_dev == server->dev &&
			st.st_ino == server->ino)
			unlink(server->addr.sun_path);
		close(server->listen_fd);
	}
	if (server->kick_fd >= 0)
		close(server->kick_fd);
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	free(server);
}

int ctl_server_fd(const struct ctl_server *server)
{
	return server->epoll_fd;
}

uint32_t ctl_server_clients(const struct ctl_server *server)
{
	return server->clients;
}
