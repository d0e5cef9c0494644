/* SPDX-License-Identifier: BSD-3-Clause */
// `tagcastctl channel ...`: one mutation, or pages of a listing.
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const tool_flag_names[5] = {"large", "ban", "disband", "send_ban", "allow_stranger"};

enum shape { SHAPE_UIDS, SHAPE_LIST, SHAPE_FLAGS, SHAPE_NONE };

static const struct verb {
	const char *name, *cmd;
	enum shape shape;
} verbs[] = {
	{"add", "channel.add", SHAPE_UIDS},
	{"remove", "channel.remove", SHAPE_UIDS},
	{"reset", "channel.reset", SHAPE_UIDS},
	{"remove-all", "channel.remove_all", SHAPE_LIST},
	{"create", "channel.create", SHAPE_FLAGS},
	{"info", "channel.info", SHAPE_FLAGS},
	{"delete", "channel.delete", SHAPE_NONE},
};

static int add_uid(json_t *uids, const char *bytes, size_t len, const char *file, uint64_t line)
{
	if (len < 1 || len > ID_LEN_MAX) {
		if (file != NULL)
			tool_error("%s:%llu: a UID has 1 to 255 bytes", file,
				(unsigned long long)line);
		else
			tool_error("a UID has 1 to 255 bytes");
		return TOOL_DATA;
	}
	if (json_array_append_new(uids, ctl_id_json(id_view_of(bytes, (uint8_t)len))) != 0)
		return TOOL_INTERNAL;
	return TOOL_OK;
}

// One UID a line; empty lines are passed over.
static int read_uid_file(json_t *uids, const char *file)
{
	FILE *in = strcmp(file, "-") == 0 ? stdin : fopen(file, "r");
	uint64_t line = 0;
	char *text = NULL;
	size_t cap = 0;
	ssize_t len;
	int rc = TOOL_OK;

	if (in == NULL) {
		tool_error("%s: %s", file, strerror(errno));
		return errno == EACCES ? TOOL_PERMISSION : TOOL_IO;
	}
	while (rc == TOOL_OK && (len = getline(&text, &cap, in)) > 0) {
		line++;
		if (text[len - 1] == '\n')
			len--;
		if (len > 0 && text[len - 1] == '\r') {
			tool_error("%s:%llu: carriage return at the end of the line", file,
				(unsigned long long)line);
			rc = TOOL_DATA;
		} else if (len > 0) {
			rc = add_uid(uids, text, (size_t)len, file, line);
		}
	}
	if (rc == TOOL_OK && ferror(in)) {
		tool_error("%s: %s", file, strerror(errno));
		rc = TOOL_IO;
	}
	free(text);
	if (in != stdin)
		fclose(in);
	return rc;
}

static int add_channel(json_t *request, char **argv)
{
	const int type = tool_channel_type(argv[0]);
	const size_t len = strlen(argv[1]);

	if (type < 0) {
		tool_error("channel type \"%s\": 1 to 12, or a name such as group", argv[0]);
		return TOOL_USAGE;
	}
	if (len < 1 || len > ID_LEN_MAX) {
		tool_error("a channel id has 1 to 255 bytes");
		return TOOL_DATA;
	}
	json_object_set_new(request, "type", json_integer(type));
	json_object_set_new(request, "channel", ctl_id_json(id_view_of(argv[1], (uint8_t)len)));
	return TOOL_OK;
}

static int add_arguments(
	const struct tool *tool, const struct verb *verb, json_t *request, int argc, char **argv)
{
	int rc = TOOL_OK;

	if (verb->shape == SHAPE_UIDS) {
		json_t *uids = json_array();

		json_object_set_new(request, "uids", uids);
		for (int i = 2; i < argc && rc == TOOL_OK; i++)
			rc = add_uid(uids, argv[i], strlen(argv[i]), NULL, 0);
		if (rc == TOOL_OK && tool->file != NULL)
			rc = read_uid_file(uids, tool->file);
		if (rc == TOOL_OK && json_array_size(uids) == 0 &&
			strcmp(verb->name, "reset") != 0) {
			tool_error("no UIDs given (as arguments or by --file)");
			rc = TOOL_USAGE;
		}
	} else if (argc > 2) {
		tool_error("channel %s: too many arguments", verb->name);
		rc = TOOL_USAGE;
	}
	if (tool->list != NULL && (verb->shape == SHAPE_UIDS || verb->shape == SHAPE_LIST))
		json_object_set_new(request, "list", json_string(tool->list));
	if (verb->shape == SHAPE_FLAGS)
		for (int i = 0; i < 5; i++)
			if (tool->flag[i])
				json_object_set_new(request, tool_flag_names[i], json_true());
	if (tool->dedup != NULL)
		json_object_set_new(request, "dedup", json_string(tool->dedup));
	// The rest of the time is for the fast process to act on it.
	if (tool->timeout_given)
		json_object_set_new(
			request, "wait_ms", json_integer((json_int_t)tool->timeout_ms * 2 / 3 + 1));
	return rc;
}

static void print_mutation(const struct tool *tool, const json_t *answer)
{
	const long long commit = (long long)json_integer_value(json_object_get(answer, "commit"));
	const long long smv = (long long)json_integer_value(json_object_get(answer, "smv"));
	const long long changed = (long long)json_integer_value(json_object_get(answer, "changed"));
	const long long members = (long long)json_integer_value(json_object_get(answer, "members"));

	if (tool->json) {
		tool_print(tool, answer, true);
		return;
	}
	printf("%lld changed, %lld members, version %lld, commit %lld, %s%s\n", changed, members,
		smv, commit,
		json_is_true(json_object_get(answer, "applied")) ? "applied"
								 : "committed, not yet applied",
		json_is_true(json_object_get(answer, "repeated")) ? " (repeated)" : "");
}

static int mutate(const struct tool *tool, const struct verb *verb, int argc, char **argv)
{
	json_t *request = json_pack("{s:s}", "cmd", verb->cmd);
	int rc;

	if (argc < 2) {
		tool_error("channel %s TYPE CHANNEL%s", verb->name,
			verb->shape == SHAPE_UIDS ? " UID..." : "");
		json_decref(request);
		return TOOL_USAGE;
	}
	rc = add_channel(request, argv);
	if (rc == TOOL_OK)
		rc = add_arguments(tool, verb, request, argc, argv);
	if (rc != TOOL_OK) {
		json_decref(request);
		return rc;
	}
	return tool_ask(tool, TOOL_META, request, print_mutation);
}

static void print_page(const struct tool *tool, const json_t *answer, bool first)
{
	const json_t *members = json_object_get(answer, "members");

	tool_print(tool, answer, first);
	if (tool->json || !json_is_array(members))
		return;
	if (first && !tool->no_header && json_array_size(members) > 0)
		fputs("members:\n", stdout);
	for (size_t i = 0; i < json_array_size(members); i++) {
		tool_print_value(stdout, json_array_get(members, i));
		fputc('\n', stdout);
	}
}

// Repeats `request` with the cursor of each answer until the end or the limit. Owns: takes it over.
static int pages(const struct tool *tool, json_t *request, const char *what)
{
	uint64_t left = tool->limit;
	bool first = true;
	int rc = TOOL_OK, fd = tool_connect(tool, TOOL_META, &rc);

	if (tool->linearizable)
		json_object_set_new(request, "linearizable", json_true());
	while (fd >= 0) {
		json_t *answer, *cursor;

		if (tool->limit != 0)
			json_object_set_new(request, "limit",
				json_integer((json_int_t)(left < 1000 ? left : 1000)));
		answer = tool_call(tool, fd, json_incref(request), &rc);
		if (answer == NULL)
			break;
		rc = tool_answer_exit(answer, NULL);
		if (rc == TOOL_OK)
			print_page(tool, answer, first);
		first = false;
		cursor = json_object_get(answer, "cursor");
		if (tool->limit != 0) {
			const size_t got = json_array_size(json_object_get(answer, what));

			left = got < left ? left - got : 0;
		}
		if (rc != TOOL_OK || cursor == NULL || json_is_null(cursor) ||
			(tool->limit != 0 && left == 0)) {
			json_decref(answer);
			break;
		}
		json_object_set(request, "cursor", cursor);
		json_decref(answer);
	}
	json_decref(request);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int list_channels(const struct tool *tool, int argc)
{
	json_t *request = json_pack("{s:s}", "cmd", "channel.list");

	if (argc > 0) {
		json_decref(request);
		tool_error("channel list takes no arguments");
		return TOOL_USAGE;
	}
	if (tool->removed)
		json_object_set_new(request, "removed", json_true());
	return pages(tool, request, "rows");
}

static int show_channel(const struct tool *tool, int argc, char **argv)
{
	json_t *request = json_pack("{s:s}", "cmd", "channel.show");
	int rc;

	if (argc != 2) {
		tool_error("channel show TYPE CHANNEL");
		rc = TOOL_USAGE;
	} else {
		rc = add_channel(request, argv);
	}
	if (rc != TOOL_OK) {
		json_decref(request);
		return rc;
	}
	if (tool->list != NULL)
		json_object_set_new(request, "list", json_string(tool->list));
	return pages(tool, request, "members");
}

int tool_channel(struct tool *tool, int argc, char **argv)
{
	if (argc < 1) {
		tool_error("channel add|remove|reset|remove-all|create|info|delete|list|show");
		return TOOL_USAGE;
	}
	if (strcmp(argv[0], "list") == 0)
		return list_channels(tool, argc - 1);
	if (strcmp(argv[0], "show") == 0)
		return show_channel(tool, argc - 1, argv + 1);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(argv[0], verbs[i].name) == 0)
			return mutate(tool, &verbs[i], argc - 1, argv + 1);
	tool_error("channel: no verb \"%s\"", argv[0]);
	return TOOL_USAGE;
}
