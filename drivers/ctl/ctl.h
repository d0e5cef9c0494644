/* SPDX-License-Identifier: BSD-3-Clause */
// The control socket: one JSON object per line in, one per line out, over a unix stream socket. The one
// door to jansson. Server side without threads: descriptors are given to the owner's poll loop.
//
// Request:  {"cmd": "channel.add", "id": <any scalar, echoed>, ...arguments}
// Answer:   {"ok": true, ...} or {"ok": false, "error": "<code>", "message": "<text>", "where": "line:col"}
//
// A client may send many requests without waiting. Answers of one connection come in the order of its
// requests; over CTL_PIPELINE_MAX unanswered ones, or CTL_OUTPUT_BYTES_HIGH unread bytes, the server
// stops reading from that client until it caught up.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base_id.h"

#define CTL_LINE_BYTES_MAX (64u * 1024u * 1024u)  // a million UIDs of 60 bytes in one request
#define CTL_INPUT_BYTES_MAX (192u * 1024u * 1024u)  // incomplete lines of all clients together
#define CTL_OUTPUT_BYTES_HIGH \
	(1024u * 1024u)  // unread answers of one client before its input waits
#define CTL_VALUES_MAX \
	2100000u  // values in one line: a million UIDs written as objects, and the rest
#define CTL_DEPTH_MAX 16u
#define CTL_CLIENTS_MAX 64u
#define CTL_PIPELINE_MAX 1024u  // unanswered requests of one client
#define CTL_LARGE_BYTES (64u * 1024u)  // a line over this may be parsed by another thread
#define CTL_ERROR_BYTES 256u
#define CTL_WHERE_BYTES 32u

// A listening unix stream socket at `path`, mode 0660, non-blocking. A socket left by a dead process is
// replaced; one that is served, or a file of another kind, is -EADDRINUSE. Also for other protocols.
// Returns: a descriptor, or -errno.
int ctl_listen(const char *path);

struct ctl_server;
struct ctl_request;  // one request being answered; may outlive the handler and the client

// A row of the command table. The handler answers now or later, once, with ctl_reply or ctl_fail.
// `args` is the whole request object, valid during the call.
struct ctl_command {
	const char *name;
	void (*handle)(void *ctx, struct ctl_request *request, const json_t *args);
};

// Listens at `path` as ctl_listen does.
// Owns: nothing of the arguments; `commands` must outlive the server.
// Returns: 0 or -errno.
int ctl_server_open(const char *path, const struct ctl_command *commands, uint32_t count, void *ctx,
	struct ctl_server **server);
// Closes every client. Requests not yet answered stay valid: each must still be answered or failed.
void ctl_server_close(struct ctl_server *server);

// Descriptor to poll for reading (an epoll descriptor that covers all clients).
int ctl_server_fd(const struct ctl_server *server);
// Handles what is ready, bounded per call; never blocks. Returns: events handled.
int ctl_server_process(struct ctl_server *server);
uint32_t ctl_server_clients(const struct ctl_server *server);

// Large lines parsed by another thread. `start` has ctl_job_run(job) called by that thread and then
// ctl_job_done(job) by the server's, also after the server was closed; false: it cannot, the line is
// parsed at once. `take` (may be NULL; the other thread) takes what is bulky out of a request and leaves
// something small in its place; `drop` frees what no handler asked for. ctx: the server's.
struct ctl_job;
struct ctl_elsewhere {
	bool (*start)(void *ctx, struct ctl_job *job);
	void *(*take)(json_t *args);
	void (*drop)(void *taken);
};
// `elsewhere` must outlive the server. NULL (as after open): all lines are parsed at once.
void ctl_server_elsewhere(struct ctl_server *server, const struct ctl_elsewhere *elsewhere);
void ctl_job_run(struct ctl_job *job);
void ctl_job_done(struct ctl_job *job);
// What `take` took out of this request. Context: its handler, during the call. Owns: the caller's from
// here. Returns: NULL: nothing was.
void *ctl_request_taken(struct ctl_request *request);

// Owns: `result` (may be NULL) is taken over. The answer is lost when the client left; that is no error.
void ctl_reply(struct ctl_request *request, json_t *result);
void ctl_fail(struct ctl_request *request, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

// Parses one request line. Strict: duplicate keys, trailing text, depth over CTL_DEPTH_MAX, more than
// CTL_VALUES_MAX values, bad UTF-8 and NUL are refused with a reason.
// `error`: CTL_ERROR_BYTES, `where`: CTL_WHERE_BYTES ("line:col").
// Returns: the object (caller's) or NULL.
json_t *ctl_parse(const char *line, size_t len, char *error, char *where);

// --- client side, blocking with a deadline; for tagcastctl and tests --------------------------------------

// Returns: a descriptor, or -errno (-ECONNREFUSED, -ENOENT: nobody there; -ETIMEDOUT).
int ctl_connect(const char *path, int timeout_ms);
// One request, one answer; no other request may be open on `fd`.
// Returns: the answer object (caller's), or NULL with errno.
json_t *ctl_call(int fd, const json_t *request, int timeout_ms);

// Many requests in flight on one connection. Takes over `fd`.
struct ctl_pipe;
struct ctl_pipe *ctl_pipe_create(int fd);
void ctl_pipe_destroy(struct ctl_pipe *pipe);
// Small requests are kept and leave together, at the latest when an answer is waited for.
// Returns: 0 or -errno. Answers that arrive meanwhile are kept.
int ctl_pipe_send(struct ctl_pipe *pipe, const json_t *request, int timeout_ms);
int ctl_pipe_flush(struct ctl_pipe *pipe, int timeout_ms);
// The next answer, in order of the requests. timeout_ms 0: only what is here.
// Returns: the answer object (caller's), or NULL with errno (ETIMEDOUT, ECONNRESET, EBADMSG).
json_t *ctl_pipe_receive(struct ctl_pipe *pipe, int timeout_ms);

// --- ids in JSON ------------------------------------------------------------------------------------------

// An id is a JSON string (its bytes are the UTF-8), or {"hex": "..."} when the bytes are no UTF-8 or hold
// a NUL. Both forms are read; the writer uses the string wherever it can.
json_t *ctl_id_json(struct id_view id);
// Reads either form into `out`. Returns: length 1..255, or -EINVAL with a static text in `why`.
int ctl_id_read(const json_t *value, uint8_t out[ID_LEN_MAX], const char **why);
// Hex digits of both cases. Returns: bytes written, or -EINVAL (odd, no digits, over `cap`).
int ctl_hex_read(const char *text, size_t len, uint8_t *out, size_t cap);
