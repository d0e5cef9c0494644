/* SPDX-License-Identifier: BSD-3-Clause */
// Server side of the control socket. Owns the listener, the clients and their buffers; run by the one
// thread whose loop polls ctl_server_fd. Sockets are read, written and closed in ctl_server_process
// alone: ctl_reply only queues and rings an eventfd, so a handler may answer from anywhere in that thread
// and answers of one loop turn leave in one write per client.
#include "ctl.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define READ_BYTES_PER_CALL (1024u * 1024u)
#define LINES_PER_CALL 512u
#define ACCEPTS_PER_CALL 16u
#define INPUT_CAP_FIRST (64u * 1024u)  // one read takes what a turn can handle
#define INPUT_CAP_KEPT (64u * 1024u)  // an emptied buffer over this is given back
#define LISTEN_BACKLOG 64

struct ctl_client;

struct ctl_request {
	struct ctl_client *client;  // NULL: the client left
	struct ctl_request *next;   // later request of the same client
	json_t *id;
	char *answer;               // with newline; NULL: not answered yet
	size_t answer_len;
};

struct ctl_client {
	struct ctl_server *server;
	int fd;
	uint32_t armed;       // epoll events
	char *in;
	size_t in_len, in_cap;
	size_t in_off;        // start of the next line
	size_t scanned;       // no newline in [in_off, scanned)
	size_t line_end;      // offset of the newline of the next line, 0: no whole line here
	char *out;
	size_t out_len, out_cap, out_off;
	size_t held_bytes;    // answers waiting for an earlier one
	struct ctl_request *first, *last;
	uint32_t open;        // requests in the list
	bool eof;             // no more input
	bool hung_up;         // nobody reads answers
	bool closing;         // close once everything is written
	bool dead;
};

struct ctl_server {
	int listen_fd, epoll_fd, kick_fd;
	bool kicked;
	bool in_process;
	const struct ctl_command *commands;
	uint32_t command_count;
	void *ctx;
	struct ctl_client *client[CTL_CLIENTS_MAX];
	uint32_t clients;
	size_t input_bytes;   // capacity of all input buffers over INPUT_CAP_KEPT
	struct sockaddr_un addr;
	dev_t dev;
	ino_t ino;
};

static void kick(struct ctl_server *server)
{
	const uint64_t one = 1;

	if (server->kicked)
		return;
	server->kicked = true;
	// Cannot fail: the counter is at most 1 while `kicked` guards it.
	(void)!write(server->kick_fd, &one, sizeof(one));
}

// --- requests and answers ---------------------------------------------------------------------------------

static void request_free(struct ctl_request *request)
{
	json_decref(request->id);
	free(request->answer);
	free(request);
}

static struct ctl_request *request_create(struct ctl_client *client, json_t *id)
{
	struct ctl_request *request = calloc(1, sizeof(*request));

	if (request == NULL) {
		client->dead = true;
		return NULL;
	}
	request->client = client;
	request->id = json_incref(id);
	if (client->last != NULL)
		client->last->next = request;
	else
		client->first = request;
	client->last = request;
	client->open++;
	return request;
}

static bool out_append(struct ctl_client *client, const char *bytes, size_t len)
{
	if (client->out_len + len > client->out_cap) {
		size_t cap = client->out_cap == 0 ? 4096 : client->out_cap;
		char *grown;

		while (cap < client->out_len + len)
			cap *= 2;
		grown = realloc(client->out, cap);
		if (grown == NULL)
			return false;
		client->out = grown;
		client->out_cap = cap;
	}
	memcpy(client->out + client->out_len, bytes, len);
	client->out_len += len;
	return true;
}

// Moves answered requests at the head of the list to the output buffer.
static void client_collect(struct ctl_client *client)
{
	while (client->first != NULL && client->first->answer != NULL) {
		struct ctl_request *request = client->first;

		if (!client->hung_up && !client->dead &&
			!out_append(client, request->answer, request->answer_len))
			client->dead = true;
		client->held_bytes -= request->answer_len;
		client->first = request->next;
		if (client->first == NULL)
			client->last = NULL;
		client->open--;
		request_free(request);
	}
}

// Owns: takes over `answer`.
static void request_answer(struct ctl_request *request, json_t *answer)
{
	struct ctl_client *client = request->client;
	size_t len;
	char *text;

	if (client == NULL) {
		json_decref(answer);
		request_free(request);
		return;
	}
	assert(request->answer == NULL);
	text = answer == NULL ? NULL : json_dumps(answer, JSON_COMPACT);
	json_decref(answer);
	if (text == NULL)
		text = strdup("{\"ok\":false,\"error\":\"internal\",\"message\":\"no memory\"}");
	if (text != NULL) {
		len = strlen(text);
		text[len] = '\n';  // the terminator is not needed any more
		request->answer = text;
		request->answer_len = len + 1;
		client->held_bytes += len + 1;
	} else {
		client->dead = true;
	}
	kick(client->server);
}

static json_t *answer_begin(const struct ctl_request *request, bool ok)
{
	json_t *answer = json_object();

	if (answer == NULL)
		return NULL;
	json_object_set_new(answer, "ok", json_boolean(ok));
	if (request->id != NULL)
		json_object_set(answer, "id", request->id);
	return answer;
}

void ctl_reply(struct ctl_request *request, json_t *result)
{
	json_t *answer = answer_begin(request, true);

	if (answer != NULL && result != NULL) {
		assert(json_is_object(result));
		json_object_update(answer, result);
	}
	json_decref(result);
	request_answer(request, answer);
}

static void fail_at(struct ctl_request *request, const char *code, const char *message,
	const char *where)
{
	json_t *answer = answer_begin(request, false);
	json_t *text = json_string(message);

	if (text == NULL)
		text = json_string("message is not UTF-8");
	if (answer != NULL) {
		json_object_set_new(answer, "error", json_string(code));
		json_object_set_new(answer, "message", text);
		if (where != NULL)
			json_object_set_new(answer, "where", json_string(where));
	} else {
		json_decref(text);
	}
	request_answer(request, answer);
}

void ctl_fail(struct ctl_request *request, const char *code, const char *fmt, ...)
{
	char message[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	fail_at(request, code, message, NULL);
}

// --- lines ------------------------------------------------------------------------------------------------

static void refuse_input(struct ctl_client *client, const char *code, const char *message)
{
	struct ctl_request *request = request_create(client, NULL);

	if (request != NULL)
		fail_at(request, code, message, NULL);
	client->closing = true;
	client->line_end = 0;
}

static bool id_valid(const json_t *id)
{
	return id == NULL || json_is_integer(id) || json_is_null(id) || json_is_boolean(id) ||
		json_is_real(id) || (json_is_string(id) && json_string_length(id) <= 255);
}

static void run_line(struct ctl_client *client, const char *line, size_t len)
{
	struct ctl_server *server = client->server;
	char error[CTL_ERROR_BYTES], where[CTL_WHERE_BYTES];
	json_t *root = ctl_parse(line, len, error, where);
	json_t *id = json_object_get(root, "id");
	const char *cmd = json_string_value(json_object_get(root, "cmd"));
	struct ctl_request *request = request_create(client, id_valid(id) ? id : NULL);

	if (request == NULL) {
		json_decref(root);
		return;
	}
	if (root == NULL) {
		fail_at(request, "bad_json", error, where);
		return;
	}
	if (!id_valid(id)) {
		fail_at(request, "invalid_id", "id is a number, or a string of at most 255 bytes", NULL);
	} else if (cmd == NULL) {
		fail_at(request, "bad_request", "cmd is missing or no string", NULL);
	} else {
		const struct ctl_command *row = NULL;

		for (uint32_t i = 0; i < server->command_count && row == NULL; i++)
			if (strcmp(server->commands[i].name, cmd) == 0)
				row = &server->commands[i];
		if (row != NULL)
			row->handle(server->ctx, request, root);
		else
			ctl_fail(request, "unknown_command", "no command \"%.64s\" here", cmd);
	}
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
	return client->open >= CTL_PIPELINE_MAX ||
		client->out_len - client->out_off + client->held_bytes >= CTL_OUTPUT_BYTES_HIGH;
}

static bool client_runnable(const struct ctl_client *client)
{
	return !client->dead && !client->closing && client->line_end != 0 && !client_blocked(client);
}

static void in_release(struct ctl_client *client)
{
	if (client->in_off == client->in_len) {
		client->in_off = client->in_len = client->scanned = 0;
		if (client->in_cap > INPUT_CAP_KEPT) {
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

	while (client_runnable(client) && lines < LINES_PER_CALL) {
		const char *line = client->in + client->in_off;
		size_t len = client->line_end - 1 - client->in_off;

		if (len > 0 && line[len - 1] == '\r')
			len--;
		client->in_off = client->line_end;
		if (len > 0)
			run_line(client, line, len);
		lines++;
		client_collect(client);
		find_line(client);
		// A large line stands alone in its call: the loop has other things to do.
		if (len > INPUT_CAP_KEPT)
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
	const size_t counted = client->in_cap > INPUT_CAP_KEPT ? client->in_cap : 0;
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
	if (cap > INPUT_CAP_KEPT && server->input_bytes - counted + cap > CTL_INPUT_BYTES_MAX) {
		refuse_input(client, "busy", "too much input from all clients together, try again");
		return false;
	}
	grown = realloc(client->in, cap);
	if (grown == NULL) {
		client->dead = true;
		return false;
	}
	server->input_bytes -= counted;
	if (cap > INPUT_CAP_KEPT)
		server->input_bytes += cap;
	client->in = grown;
	client->in_cap = cap;
	return true;
}

static void client_read(struct ctl_client *client)
{
	size_t total = 0;

	// With a line at hand only what the buffer holds anyway: lines are run before more is read.
	while (total < READ_BYTES_PER_CALL && !client->closing && !client->dead &&
		(client->line_end == 0 || client->in_len < client->in_cap)) {
		ssize_t got;

		if (client->in_len == client->in_cap && !in_grow(client))
			return;
		got = recv(client->fd, client->in + client->in_len, client->in_cap - client->in_len, 0);
		if (got == 0) {
			client->eof = true;
			return;
		}
		if (got < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				client->dead = true;
			return;
		}
		client->in_len += (size_t)got;
		total += (size_t)got;
		if (client->line_end == 0)
			find_line(client);
	}
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
		if (client->out_cap > INPUT_CAP_KEPT) {
			free(client->out);
			client->out = NULL;
			client->out_cap = 0;
		}
	} else if (client->out_off > client->out_cap / 2) {
		memmove(client->out, client->out + client->out_off, client->out_len - client->out_off);
		client->out_len -= client->out_off;
		client->out_off = 0;
	}
}

static bool client_finished(const struct ctl_client *client)
{
	const bool drained = client->open == 0 && client->out_len == 0;

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

	for (struct ctl_request *request = client->first; request != NULL; request = next) {
		next = request->next;
		request->client = NULL;
		request->next = NULL;
		if (request->answer != NULL)
			request_free(request);
	}
	if (client->in_cap > INPUT_CAP_KEPT)
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
	int work = ready > 0 ? ready : 0;
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
			if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
				client_read(client);
		}
	}
	for (uint32_t slot = 0; slot < CTL_CLIENTS_MAX; slot++) {
		struct ctl_client *client = server->client[slot];

		if (client == NULL)
			continue;
		work += client_run(client);
		client_collect(client);
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
		kick(server);
	return work;
}

// --- open and close ---------------------------------------------------------------------------------------

// True when a server answers on the address.
static bool somebody_listens(const struct sockaddr_un *addr)
{
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool alive;

	if (fd < 0)
		return true;
	// EAGAIN: its backlog is full, so it lives.
	alive = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN;
	close(fd);
	return alive;
}

static int listen_open(struct ctl_server *server, const char *path)
{
	struct sockaddr_un *addr = &server->addr;
	struct stat st;
	int fd, rc;

	if (strlen(path) >= sizeof(addr->sun_path))
		return -ENAMETOOLONG;
	addr->sun_family = AF_UNIX;
	strcpy(addr->sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	// The mode before bind is what the umask narrows: at no moment is the socket wider than 0660.
	(void)fchmod(fd, 0660);
	rc = bind(fd, (struct sockaddr *)addr, sizeof(*addr)) == 0 ? 0 : -errno;
	if (rc == -EADDRINUSE && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
		!somebody_listens(addr)) {
		if (unlink(path) == 0)
			rc = bind(fd, (struct sockaddr *)addr, sizeof(*addr)) == 0 ? 0 : -errno;
	}
	if (rc == 0 && (chmod(path, 0660) != 0 || lstat(path, &st) != 0 || listen(fd, LISTEN_BACKLOG) != 0))
		rc = -errno;
	if (rc != 0) {
		close(fd);
		return rc;
	}
	server->dev = st.st_dev;
	server->ino = st.st_ino;
	server->listen_fd = fd;
	return 0;
}

int ctl_server_open(const char *path, const struct ctl_command *commands, uint32_t count, void *ctx,
	struct ctl_server **out)
{
	struct ctl_server *server = calloc(1, sizeof(*server));
	struct epoll_event event = {.events = EPOLLIN};
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
	rc = listen_open(server, path);
	if (rc != 0)
		goto fail;
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
