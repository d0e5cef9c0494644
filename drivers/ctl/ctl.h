/* SPDX-License-Identifier: BSD-3-Clause */
// The control socket: one JSON object per line in, one per line out, over a unix stream socket. The one
// door to jansson. Server side without threads: descriptors are given to the owner's poll loop.
//
// Request:  {"cmd": "channel.add", ...arguments}
// Answer:   {"ok": true, ...} or {"ok": false, "error": "<code>", "message": "<text>", "where": "line:col"}
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define CTL_LINE_BYTES_MAX (64u * 1024u * 1024u)
#define CTL_CLIENTS_MAX 64u

struct ctl_server;
struct ctl_request;  // one request being answered; may outlive the handler

// A row of the command table. The handler answers now or later, once, with ctl_reply or ctl_fail.
struct ctl_command {
	const char *name;
	void (*handle)(void *ctx, struct ctl_request *request, const json_t *args);
};

// Binds `path` with mode 0660 (a stale socket of a dead server is replaced, a live one is -EADDRINUSE).
// Returns: 0 or -errno.
int ctl_server_open(const char *path, const struct ctl_command *commands, uint32_t count, void *ctx,
	struct ctl_server **server);
void ctl_server_close(struct ctl_server *server);

// Descriptors to poll for reading (an epoll descriptor inside covers all clients).
int ctl_server_fd(const struct ctl_server *server);
// Handles what is ready, bounded per call; never blocks. Returns: events handled.
int ctl_server_process(struct ctl_server *server);

// Owns: `result` (may be NULL) is taken over. The answer is lost when the client left; that is no error.
void ctl_reply(struct ctl_request *request, json_t *result);
void ctl_fail(struct ctl_request *request, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

// Parses one request line. Strict: duplicate keys, trailing text, depth over 16 and NUL in names are
// refused with a reason. Returns: the object or NULL with `error` (256 bytes) and `where` ("line:col").
json_t *ctl_parse(const char *line, size_t len, char *error, char *where);

// Client side, blocking with a deadline; for tagcastctl and tests.
int ctl_connect(const char *path, int timeout_ms);
// Returns: the answer object, or NULL with errno.
json_t *ctl_call(int fd, const json_t *request, int timeout_ms);
