/* SPDX-License-Identifier: BSD-3-Clause */
// `tagcastctl import FILE`: lines of TYPE <tab> CHANNEL <tab> UID into the store, one command for each run
// of lines of one channel, many commands in flight so that they share the store's synced commits.
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base_time.h"

#define OPEN_MAX_REQUESTS 512u
#define OPEN_MAX_ROWS 200000u
#define SEEN_FIRST 4096u
#define PROGRESS_NS NS_PER_S

struct open_request {
	uint64_t first_line, rows;
};

struct import {
	const struct tool *tool;
	const char *name;  // of the input, for messages
	struct ctl_pipe *pipe;
	bool reset;
	// the run being collected
	struct channel_key key;  // len 0: none
	json_t *uids;
	uint64_t first_line;
	// in flight, oldest at `head`
	struct open_request open[OPEN_MAX_REQUESTS];
	uint32_t head, open_count;
	uint64_t open_rows;
	// channels already reset: the next run of one of them is an add
	struct channel_key **seen;
	uint32_t seen_count, seen_cap;
	uint64_t rows, commands, channels, unapplied;
	uint64_t start_ns, progress_ns;
	int exit_code;
};

// --- the set of channels ----------------------------------------------------------------------------------

static struct channel_key **seen_slot(const struct import *im, const struct channel_key *key)
{
	uint32_t at = (uint32_t)channel_key_hash(key) & (im->seen_cap - 1);

	while (im->seen[at] != NULL && !channel_key_equal(im->seen[at], key))
		at = (at + 1) & (im->seen_cap - 1);
	return &im->seen[at];
}

static void seen_grow(struct import *im)
{
	struct channel_key **old = im->seen;
	const uint32_t old_cap = im->seen_cap;

	im->seen_cap = old_cap == 0 ? SEEN_FIRST : old_cap * 2;
	im->seen = calloc(im->seen_cap, sizeof(*im->seen));
	if (im->seen == NULL)
		abort();
	for (uint32_t i = 0; i < old_cap; i++)
		if (old[i] != NULL)
			*seen_slot(im, old[i]) = old[i];
	free(old);
}

// Returns: true when the channel was not known yet.
static bool seen_add(struct import *im, const struct channel_key *key)
{
	const size_t bytes = offsetof(struct channel_key, bytes) + key->len;
	struct channel_key **slot;

	if (2 * im->seen_count >= im->seen_cap)
		seen_grow(im);
	slot = seen_slot(im, key);
	if (*slot != NULL)
		return false;
	*slot = malloc(bytes);
	if (*slot == NULL)
		abort();
	memcpy(*slot, key, bytes);
	im->seen_count++;
	return true;
}

// --- requests ---------------------------------------------------------------------------------------------

static void progress(struct import *im, bool last)
{
	const uint64_t now = time_now_ns();
	const double seconds = (double)(now - im->start_ns) / 1e9;
	const bool terminal = isatty(STDERR_FILENO);

	if (!last && (!terminal || now - im->progress_ns < PROGRESS_NS))
		return;
	im->progress_ns = now;
	fprintf(stderr, "%s%llu rows, %llu channels, %.0f rows/s%s", terminal ? "\r" : "",
		(unsigned long long)im->rows, (unsigned long long)im->channels,
		seconds > 0 ? (double)im->rows / seconds : 0.0, last ? "\n" : "   ");
}

// Takes the oldest answer. Returns: false when it is an error, or there is none in time.
static bool take_answer(struct import *im)
{
	json_t *answer = ctl_pipe_receive(im->pipe, im->tool->timeout_ms);
	const struct open_request *open = &im->open[im->head];
	char prefix[300];

	snprintf(prefix, sizeof(prefix), "%s:%llu", im->name, (unsigned long long)open->first_line);
	if (answer == NULL) {
		tool_error("%s: no answer: %s", prefix, strerror(errno));
		im->exit_code = errno == ECONNRESET ? TOOL_UNREACHABLE : TOOL_AGAIN;
		return false;
	}
	im->exit_code = tool_answer_exit(answer, prefix);
	if (im->exit_code == TOOL_OK) {
		im->rows += open->rows;
		im->commands++;
		im->unapplied += !json_is_true(json_object_get(answer, "applied"));
	}
	json_decref(answer);
	im->open_rows -= open->rows;
	im->head = (im->head + 1) % OPEN_MAX_REQUESTS;
	im->open_count--;
	progress(im, false);
	return im->exit_code == TOOL_OK;
}

// Sends the collected run. Returns: false when the import has to end.
static bool send_run(struct import *im)
{
	const size_t rows = json_array_size(im->uids);
	struct open_request *open;
	json_t *request;
	bool fresh;
	int rc;

	if (im->key.len == 0)
		return true;
	// Down to half, so that requests leave many at a time.
	if (im->open_count == OPEN_MAX_REQUESTS ||
		(im->open_count > 0 && im->open_rows + rows > OPEN_MAX_ROWS))
		while (im->open_count > OPEN_MAX_REQUESTS / 2 ||
			(im->open_count > 0 && im->open_rows + rows > OPEN_MAX_ROWS / 2))
			if (!take_answer(im))
				return false;
	fresh = seen_add(im, &im->key);
	im->channels += fresh;
	request = json_object();
	json_object_set_new(
		request, "cmd", json_string(im->reset && fresh ? "channel.reset" : "channel.add"));
	json_object_set_new(request, "type", json_integer(im->key.type));
	json_object_set_new(request, "channel", ctl_id_json(channel_key_id(&im->key)));
	if (im->tool->list != NULL)
		json_object_set_new(request, "list", json_string(im->tool->list));
	json_object_set_new(request, "uids", im->uids);
	im->uids = json_array();
	im->key.len = 0;
	open = &im->open[(im->head + im->open_count) % OPEN_MAX_REQUESTS];
	open->first_line = im->first_line;
	open->rows = rows;
	im->open_count++;
	im->open_rows += rows;
	rc = ctl_pipe_send(im->pipe, request, im->tool->timeout_ms);
	json_decref(request);
	if (rc != 0) {
		tool_error("%s:%llu: cannot send: %s", im->name, (unsigned long long)im->first_line,
			strerror(-rc));
		im->exit_code = rc == -ETIMEDOUT ? TOOL_AGAIN : TOOL_UNREACHABLE;
		// An answer may say why the connection ended.
		while (im->open_count > 0 && take_answer(im))
			;
		return false;
	}
	return true;
}

// --- lines ------------------------------------------------------------------------------------------------

// Splits one line (without newline). Returns: NULL or what is wrong.
static const char *split(char *line, size_t len, struct channel_key *key, struct id_view *uid)
{
	char *tab1 = memchr(line, '\t', len), *tab2;
	size_t rest;
	int type;

	if (len > 0 && line[len - 1] == '\r')
		return "carriage return at the end of the line";
	if (tab1 == NULL)
		return "expected TYPE <tab> CHANNEL <tab> UID";
	*tab1 = '\0';
	type = tool_channel_type(line);
	if (type < 0)
		return "channel type: 1 to 12, or a name such as group";
	rest = len - (size_t)(tab1 + 1 - line);
	tab2 = memchr(tab1 + 1, '\t', rest);
	if (tab2 == NULL)
		return "expected TYPE <tab> CHANNEL <tab> UID";
	if (tab2 - tab1 - 1 < 1 || tab2 - tab1 - 1 > (ptrdiff_t)ID_LEN_MAX)
		return "a channel id has 1 to 255 bytes";
	channel_key_set(key, (uint8_t)type, tab1 + 1, (uint8_t)(tab2 - tab1 - 1));
	rest = len - (size_t)(tab2 + 1 - line);
	if (rest < 1 || rest > ID_LEN_MAX)
		return "a UID has 1 to 255 bytes";
	if (memchr(tab2 + 1, '\t', rest) != NULL)
		return "a third tab; UIDs with tabs cannot be imported";
	*uid = id_view_of(tab2 + 1, (uint8_t)rest);
	return NULL;
}

static bool take_line(struct import *im, char *line, size_t len, uint64_t number)
{
	struct channel_key key;
	struct id_view uid;
	const char *problem;

	if (len == 0 || line[0] == '#')
		return true;
	problem = split(line, len, &key, &uid);
	if (problem != NULL) {
		tool_error("%s:%llu: %s", im->name, (unsigned long long)number, problem);
		im->exit_code = TOOL_DATA;
		return false;
	}
	if (im->key.len == 0 || !channel_key_equal(&im->key, &key) ||
		json_array_size(im->uids) >= MUTATION_UIDS_MAX) {
		if (!send_run(im))
			return false;
		im->key = key;
		im->first_line = number;
	}
	json_array_append_new(im->uids, ctl_id_json(uid));
	return true;
}

static void run(struct import *im, FILE *in)
{
	uint64_t number = 0;
	char *line = NULL;
	size_t cap = 0;
	ssize_t len;
	bool go_on = true;

	while (go_on && (len = getline(&line, &cap, in)) > 0) {
		number++;
		if (line[len - 1] == '\n')
			len--;
		go_on = take_line(im, line, (size_t)len, number);
	}
	if (go_on && ferror(in)) {
		tool_error("%s:%llu: %s", im->name, (unsigned long long)number, strerror(errno));
		im->exit_code = TOOL_IO;
		go_on = false;
	}
	if (go_on)
		go_on = send_run(im);
	// What was sent counts even when a line after it is bad.
	const int code = im->exit_code;
	while (im->open_count > 0 && (code == TOOL_OK || code == TOOL_DATA || code == TOOL_IO))
		if (!take_answer(im))
			break;
	if (code != TOOL_OK)
		im->exit_code = code;
	free(line);
}

int tool_import(struct tool *tool, int argc, char **argv)
{
	struct import *im;
	FILE *in;
	int rc = TOOL_OK, fd;

	if (argc != 1 || (tool->mode != NULL && strcmp(tool->mode, "add") != 0 &&
				 strcmp(tool->mode, "reset") != 0)) {
		tool_error(
			"import FILE [--mode reset|add] [--list LIST]; FILE - is standard input");
		return TOOL_USAGE;
	}
	in = strcmp(argv[0], "-") == 0 ? stdin : fopen(argv[0], "r");
	if (in == NULL) {
		tool_error("%s: %s", argv[0], strerror(errno));
		return errno == EACCES ? TOOL_PERMISSION : TOOL_IO;
	}
	fd = tool_connect(tool, TOOL_META, &rc);
	im = calloc(1, sizeof(*im));
	if (fd >= 0 && im != NULL) {
		im->tool = tool;
		im->name = in == stdin ? "<stdin>" : argv[0];
		im->reset = tool->mode == NULL || strcmp(tool->mode, "reset") == 0;
		im->pipe = ctl_pipe_create(fd);
		im->uids = json_array();
		im->start_ns = time_now_ns();
		if (im->pipe == NULL || im->uids == NULL)
			abort();
		run(im, in);
		progress(im, true);
		if (im->unapplied > 0)
			fprintf(stderr, "%llu of %llu commands: committed, not yet applied\n",
				(unsigned long long)im->unapplied,
				(unsigned long long)im->commands);
		rc = im->exit_code;
		ctl_pipe_destroy(im->pipe);
		json_decref(im->uids);
		for (uint32_t i = 0; i < im->seen_cap; i++)
			free(im->seen[i]);
		free(im->seen);
	}
	free(im);
	if (in != stdin)
		fclose(in);
	return rc;
}
