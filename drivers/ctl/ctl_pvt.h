/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of drivers/ctl: the server's clients and requests. One thread, the one that polls the server.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include "ctl.h"

struct ctl_client;

#define CTL_INPUT_CAP_KEPT (64u * 1024u)  // an emptied buffer over this is given back

struct ctl_job {
	struct ctl_job *next;
	struct ctl_client *client;  // NULL: it left
	struct ctl_server *server;  // NULL: closed
	const struct ctl_elsewhere *elsewhere;
	char *buffer, *line;
	size_t len;
	size_t counted;  // of the server's input_bytes
	json_t *root;
	void *taken;
	char error[CTL_ERROR_BYTES], where[CTL_WHERE_BYTES];
};

struct ctl_request {
	struct ctl_client *client;  // NULL: the client left
	struct ctl_request *next;  // later request of the same client
	json_t *id;
	void **taken;  // during the handler's call only
	char *answer;  // with newline; NULL: not answered yet
	size_t answer_len;
};

struct ctl_client {
	struct ctl_server *server;
	int fd;
	uint32_t armed;  // epoll events
	char *in;
	size_t in_len, in_cap;
	size_t in_off;  // start of the next line
	size_t scanned;  // no newline in [in_off, scanned)
	size_t line_end;  // offset of the newline of the next line, 0: no whole line here
	char *out;
	size_t out_len, out_cap, out_off;
	size_t held_bytes;  // answers waiting for an earlier one
	struct ctl_request *first, *last;
	uint32_t open;  // requests in the list
	struct ctl_job *job;  // its line that is being parsed elsewhere
	bool eof;  // no more input
	bool hung_up;  // nobody reads answers
	bool closing;  // close once everything is written
	bool dead;
};

struct ctl_server {
	int listen_fd, epoll_fd, kick_fd;
	bool kicked;
	bool in_process;
	const struct ctl_command *commands;
	uint32_t command_count;
	const struct ctl_elsewhere *elsewhere;
	struct ctl_job *jobs;
	void *ctx;
	struct ctl_client *client[CTL_CLIENTS_MAX];
	uint32_t clients;
	uint32_t turn;  // slot whose client is first in the next call
	uint64_t until_ns;  // of this call: no line is begun later
	size_t input_bytes;  // capacity of all input buffers over INPUT_CAP_KEPT
	struct sockaddr_un addr;
	dev_t dev;
	ino_t ino;
};

// Answers one parsed line (`root` NULL: it was none, `error` and `where` say why).
void ctl_run_request(struct ctl_client *client, json_t *root, const char *error, const char *where,
	void **taken);

// Hands the line of `len` bytes at `off`, which in_off is past already, to another thread.
// Returns: false: it is to be run here.
bool ctl_job_start(struct ctl_client *client, size_t off, size_t len);
void ctl_job_orphan(struct ctl_job *job, bool server_too);

// Makes ctl_server_fd readable until the next ctl_server_process.
void ctl_kick(struct ctl_server *server);

// Appends a request to its client. Returns: NULL when there is no memory; the client is dead then.
struct ctl_request *ctl_request_create(struct ctl_client *client, json_t *id);
void ctl_request_free(struct ctl_request *request);
// ctl_fail with a place in the request; `where` may be NULL.
void ctl_fail_at(
	struct ctl_request *request, const char *code, const char *message, const char *where);
// Moves answered requests at the head of the client's list to its output buffer.
void ctl_collect(struct ctl_client *client);
