/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of tagcastctl: one command, one thread, blocking calls with deadlines.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base_id.h"
#include "ctl.h"

// Exit codes, stable; also in the help.
enum tool_exit {
	TOOL_OK = 0,
	TOOL_NO = 1,  // asked, and the answer is no (not found, expired)
	TOOL_USAGE = 64,
	TOOL_DATA = 65,  // input refused
	TOOL_UNREACHABLE = 69,  // nobody listens
	TOOL_INTERNAL = 70,
	TOOL_IO = 74,
	TOOL_AGAIN = 75,  // busy, timed out, outcome unknown: repeat
	TOOL_PERMISSION = 77,
};

struct tool {
	const char *run_dir;
	const char *list;
	const char *file;
	const char *mode;
	const char *dedup;
	uint64_t limit;  // 0: none
	uint64_t skip;
	const char *via;
	uint64_t window;  // seconds; 0: as the daemon likes
	int timeout_ms;
	bool timeout_given;
	bool confirm;
	bool linearizable;
	bool json;
	bool no_header;
	bool removed;
	bool all;
	bool flag[5];  // in the order of tool_flag_names
};
extern const char *const tool_flag_names[5];

#define TOOL_META "meta.sock"
#define TOOL_CONTROL "control.sock"

void tool_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// Connects to a socket of the run directory. Returns: a descriptor, or -1 with *exit_code set and the reason said.
int tool_connect(const struct tool *tool, const char *socket_name, int *exit_code);
// Sends one request and gives the answer, whatever it is. Owns: takes over `request`.
// Returns: the answer, or NULL with *exit_code set and the reason said.
json_t *tool_call(const struct tool *tool, int fd, json_t *request, int *exit_code);
// Connects, sends one request, prints the answer (tool_print when `print` is NULL) or says what is wrong.
// Owns: takes over `request`. Returns: the exit code.
int tool_ask(const struct tool *tool, const char *socket_name, json_t *request,
	void (*print)(const struct tool *tool, const json_t *answer));
// The exit code an answer calls for; says the error, prefixed, when there is one.
int tool_answer_exit(const json_t *answer, const char *prefix);
// "2" or "group" to 2. Returns: 1..12, or -1.
int tool_channel_type(const char *text);

// Prints an answer: {"columns", "rows"} as a table, {"fields"} and the rest as "name value" lines.
void tool_print(const struct tool *tool, const json_t *answer, bool first_page);
// One id or any scalar, control characters escaped.
void tool_print_value(FILE *out, const json_t *value);

int tool_channel(struct tool *tool, int argc, char **argv);
int tool_import(struct tool *tool, int argc, char **argv);
int tool_meta(struct tool *tool, int argc, char **argv);
// A data folder that no process uses, or a copy of one.
int tool_inspect_folder(const struct tool *tool, const char *folder);
int tool_verify_folder(const struct tool *tool, const char *folder);
int tool_recover_folder(const struct tool *tool, const char *folder);
