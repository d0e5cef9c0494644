/* SPDX-License-Identifier: BSD-3-Clause */
// `tagcastctl meta ...`: the group behind the store, over meta.sock of one of its nodes. What works on a
// folder without any process is in tool_offline.c.
#include "tool.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG_TIMEOUT_MS 3600000  // of what takes as long as it takes, unless --timeout says another

enum meta_arg { ARG_NONE, ARG_NODE, ARG_NODE_OR_NONE, ARG_FILE, ARG_VIA };

static const struct meta_verb {
	const char *name, *cmd;
	enum meta_arg arg;
	bool is_long;
} verbs[] = {
	{"status", "meta.status", ARG_NONE, false},
	{"members", "meta.members", ARG_NONE, false},
	{"bootstrap", "meta.bootstrap", ARG_NONE, false},
	{"join", "meta.join", ARG_VIA, true},
	{"promote", "meta.promote", ARG_NODE, false},
	{"demote", "meta.demote", ARG_NODE, false},
	{"remove", "meta.remove", ARG_NODE, false},
	{"transfer", "meta.transfer", ARG_NODE_OR_NONE, false},
	{"backup", "meta.backup", ARG_FILE, true},
	{"restore", "meta.restore", ARG_FILE, true},
	{"verify", "meta.verify", ARG_NONE, true},
};

// The path as the meta process sees it. Returns: false after saying what is wrong.
static bool add_path(json_t *request, const char *file)
{
	char path[PATH_MAX], folder[PATH_MAX];

	if (file[0] == '/') {
		snprintf(path, sizeof(path), "%s", file);
	} else if (getcwd(folder, sizeof(folder)) == NULL ||
		   snprintf(path, sizeof(path), "%s/%s", folder, file) >= (int)sizeof(path)) {
		tool_error("%s: an absolute path is needed here", file);
		return false;
	}
	return json_object_set_new(request, "path", json_string(path)) == 0;
}

// Returns: false after saying what is wrong.
static bool add_argument(const struct tool *tool, const struct meta_verb *verb, json_t *request,
	int argc, char **argv)
{
	char *end;
	unsigned long long node;

	switch (verb->arg) {
	case ARG_NONE:
		return argc == 0;
	case ARG_VIA:
		if (argc != 0 || tool->via == NULL)
			return false;
		return json_object_set_new(request, "via", json_string(tool->via)) == 0;
	case ARG_FILE:
		return argc == 1 && add_path(request, argv[0]);
	default:
		if (argc == 0)
			return verb->arg == ARG_NODE_OR_NONE;
		node = strtoull(argv[0], &end, 10);
		if (argc != 1 || *end != '\0' || argv[0][0] < '1' || argv[0][0] > '9')
			return false;
		return json_object_set_new(request, "node", json_integer((json_int_t)node)) == 0;
	}
}

static int ask_meta(struct tool *tool, const struct meta_verb *verb, json_t *request)
{
	if (verb->is_long && !tool->timeout_given)
		tool->timeout_ms = LONG_TIMEOUT_MS;
	return tool_ask(tool, TOOL_META, request, NULL);
}

static const char usage[] = "meta status | members | bootstrap | join --via ADDRESS:PORT | promote "
			    "NODE | demote NODE | "
			    "remove NODE | transfer [NODE] | backup FILE | restore FILE | verify "
			    "[FOLDER] | inspect FOLDER "
			    "| recover FOLDER";

int tool_meta(struct tool *tool, int argc, char **argv)
{
	json_t *request;

	if (argc == 2 && strcmp(argv[0], "verify") == 0)
		return tool_verify_folder(tool, argv[1]);
	if (argc == 2 && strcmp(argv[0], "inspect") == 0)
		return tool_inspect_folder(tool, argv[1]);
	if (argc == 2 && strcmp(argv[0], "recover") == 0)
		return tool_recover_folder(tool, argv[1]);
	for (size_t i = 0; argc >= 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(argv[0], verbs[i].name) != 0)
			continue;
		request = json_pack("{s:s}", "cmd", verbs[i].cmd);
		if (add_argument(tool, &verbs[i], request, argc - 1, argv + 1))
			return ask_meta(tool, &verbs[i], request);
		json_decref(request);
		break;
	}
	tool_error("%s", usage);
	return TOOL_USAGE;
}
