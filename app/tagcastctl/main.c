/* SPDX-License-Identifier: BSD-3-Clause */
// tagcastctl: the operator's tool. Talks to tagcast-metad (meta.sock: channels, import) and to tagcastd
// (control.sock: what the fast path does). One command, then exit.
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_DIR_DEFAULT "/run/tagcast"
#define TIMEOUT_DEFAULT_MS 30000

void tool_error(const char *fmt, ...)
{
	va_list ap;

	fputs("tagcastctl: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int tool_channel_type(const char *text)
{
	static const char *const names[] = {"person", "group", "customer-service", "community",
		"community-topic", "info", "data", "temp", "live", "visitors", "agent",
		"agent-group"};
	char *end;
	unsigned long number;

	for (int i = 0; i < 12; i++)
		if (strcmp(text, names[i]) == 0)
			return i + 1;
	if (text[0] < '0' || text[0] > '9')
		return -1;
	number = strtoul(text, &end, 10);
	return *end == '\0' && number >= 1 && number <= CHANNEL_TYPE_MAX ? (int)number : -1;
}

int tool_connect(const struct tool *tool, const char *socket_name, int *exit_code)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", tool->run_dir, socket_name);
	fd = ctl_connect(path, tool->timeout_ms);
	if (fd >= 0)
		return fd;
	switch (fd) {
	case -ENOENT:
	case -ECONNREFUSED:
		tool_error("%s: nobody listens there; is %s running?", path,
			strcmp(socket_name, TOOL_META) == 0 ? "tagcast-metad" : "tagcastd");
		*exit_code = TOOL_UNREACHABLE;
		break;
	case -EACCES:
	case -EPERM:
		tool_error("%s: no permission", path);
		*exit_code = TOOL_PERMISSION;
		break;
	case -ETIMEDOUT:
		tool_error("%s: timed out", path);
		*exit_code = TOOL_AGAIN;
		break;
	default:
		tool_error("%s: %s", path, strerror(-fd));
		*exit_code = TOOL_UNREACHABLE;
	}
	return -1;
}

json_t *tool_call(const struct tool *tool, int fd, json_t *request, int *exit_code)
{
	json_t *answer = ctl_call(fd, request, tool->timeout_ms);

	if (answer == NULL) {
		*exit_code = errno == ECONNRESET || errno == EPIPE ? TOOL_UNREACHABLE
			     : errno == ETIMEDOUT                  ? TOOL_AGAIN
								   : TOOL_INTERNAL;
		tool_error("no answer: %s",
			errno == ETIMEDOUT ? "timed out; the command may still be carried out"
					   : strerror(errno));
	}
	json_decref(request);
	return answer;
}

int tool_answer_exit(const json_t *answer, const char *prefix)
{
	static const struct {
		const char *code;
		int exit_code;
	} known[] = {
		{"busy", TOOL_AGAIN},
		{"unknown_outcome", TOOL_AGAIN},
		{"not_leader", TOOL_AGAIN},
		{"stopping", TOOL_AGAIN},
		{"not_ready", TOOL_AGAIN},
		{"io", TOOL_IO},
		{"not_found", TOOL_NO},
		{"already_member", TOOL_NO},
		{"refused", TOOL_NO},
		{"expired", TOOL_NO},
		{"unknown_command", TOOL_UNREACHABLE},
		{"internal", TOOL_INTERNAL},
	};
	const char *code, *message;

	if (json_is_true(json_object_get(answer, "ok")))
		return TOOL_OK;
	code = json_string_value(json_object_get(answer, "error"));
	message = json_string_value(json_object_get(answer, "message"));
	tool_error("%s%s%s: %s", prefix != NULL ? prefix : "", prefix != NULL ? ": " : "",
		code != NULL ? code : "error", message != NULL ? message : "");
	for (size_t i = 0; code != NULL && i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].code, code) == 0)
			return known[i].exit_code;
	return code != NULL ? TOOL_DATA : TOOL_INTERNAL;
}

int tool_ask(const struct tool *tool, const char *socket_name, json_t *request,
	void (*print)(const struct tool *tool, const json_t *answer))
{
	int rc = TOOL_OK;
	const int fd = tool_connect(tool, socket_name, &rc);
	json_t *answer;

	if (fd < 0) {
		json_decref(request);
		return rc;
	}
	answer = tool_call(tool, fd, request, &rc);
	if (answer != NULL) {
		rc = tool_answer_exit(answer, NULL);
		if (rc == TOOL_OK && print != NULL)
			print(tool, answer);
		else if (rc == TOOL_OK)
			tool_print(tool, answer, true);
		json_decref(answer);
	}
	close(fd);
	return rc;
}

// Ask, print. Only tables take `--limit`, `--skip` and `--all`: elsewhere they mean nothing and are left out.
static int ask(const struct tool *tool, const char *socket_name, const char *cmd, bool table)
{
	json_t *request = json_pack("{s:s}", "cmd", cmd);

	if (table && tool->limit != 0)
		json_object_set_new(request, "limit", json_integer((json_int_t)tool->limit));
	if (table && tool->skip != 0)
		json_object_set_new(request, "skip", json_integer((json_int_t)tool->skip));
	if (table && tool->all)
		json_object_set_new(request, "all", json_true());
	if (table && tool->window != 0)
		json_object_set_new(request, "window", json_integer((json_int_t)tool->window));
	return tool_ask(tool, socket_name, request, NULL);
}

static int show(const struct tool *tool, int argc, char **argv)
{
	static const char *const what[] = {
		"tags", "gateways", "drops", "limits", "queues", "workers"};
	char cmd[32];

	for (size_t i = 0; argc == 1 && i < sizeof(what) / sizeof(what[0]); i++)
		if (strcmp(argv[0], what[i]) == 0) {
			snprintf(cmd, sizeof(cmd), "show.%s", what[i]);
			return ask(tool, TOOL_CONTROL, cmd, true);
		}
	tool_error("show tags|gateways|drops|limits|queues|workers");
	return TOOL_USAGE;
}

static const char help[] =
	"Usage: tagcastctl [OPTION...] COMMAND\n"
	"\n"
	"Channels and members (TYPE is 1..12 or a name: person, group, live, ...):\n"
	"  channel add TYPE CHANNEL UID...      add to a list\n"
	"  channel remove TYPE CHANNEL UID...   remove from a list\n"
	"  channel reset TYPE CHANNEL UID...    the list becomes exactly these\n"
	"  channel remove-all TYPE CHANNEL      empty a list\n"
	"  channel create TYPE CHANNEL          create, or set the flags of an existing one\n"
	"  channel info TYPE CHANNEL            set the flags: those named are on, others off\n"
	"  channel delete TYPE CHANNEL          remove the channel\n"
	"  channel list                         all channels (--removed: tombstones too)\n"
	"  channel show TYPE CHANNEL            one channel and its members\n"
	"  import FILE                          lines of TYPE <tab> CHANNEL <tab> UID, - is "
	"standard input\n"
	"\n"
	"The group behind the store:\n"
	"  meta status                          state of group, store and feed\n"
	"  meta members                         who is in the group\n"
	"  meta bootstrap                       once in a cluster's life: a group of this node "
	"alone\n"
	"  meta join --via ADDRESS:PORT         into the group of the member with that "
	"raft_address, "
	"as standby\n"
	"  meta promote NODE                    a standby becomes a voter\n"
	"  meta demote NODE                     a voter becomes a standby\n"
	"  meta remove NODE                     out of the group; its id is never used again\n"
	"  meta transfer [NODE]                 leadership to that voter, or to the one furthest\n"
	"  meta backup FILE                     the whole store into a file on the node\n"
	"  meta restore FILE                    on a node without a group: one of it alone, from a "
	"backup\n"
	"  meta verify                          reads everything; equal digests at equal entries\n"
	"  meta verify FOLDER                   a stopped node's data folder, or a copy: is it "
	"whole\n"
	"  meta inspect FOLDER                  what its log says\n"
	"  meta recover FOLDER [--confirm]      majority lost for good: this node goes on alone\n"
	"\n"
	"Fast path:\n"
	"  status                               state of the node\n"
	"  show tags|gateways|drops|limits      tables of the node\n"
	"  show queues                          load of every queue between threads, hottest "
	"first\n"
	"  show workers                         turns and backlogs of the workers\n"
	"  reload                               read the configuration again\n"
	"\n"
	"Options:\n"
	"      --run-dir DIR      where the sockets are (" RUN_DIR_DEFAULT ")\n"
	"      --json             print answers as JSON, one object a line\n"
	"      --timeout MS       wait for an answer, milliseconds (30000)\n"
	"      --no-header        no header line above tables\n"
	"      --list LIST        members (default), deny, allow or temp\n"
	"      --file FILE        read UIDs from a file, one a line; - is standard input\n"
	"      --dedup KEY        32 hex digits: a repeated command with this key is applied once; "
	"the\n"
	"                         first 16 are a commit number of the store, the rest is free\n"
	"      --mode MODE        import: reset (default) replaces each list, add adds to it\n"
	"      --limit N          list and show at most N\n"
	"      --skip N           show tags, gateways: leave out the first N\n"
	"      --linearizable     list, show: with everything that was acknowledged before, "
	"anywhere\n"
	"      --via ADDRESS:PORT meta join: a member\n"
	"      --confirm          meta recover: do it\n"
	"      --all              show drops: those that are 0 too\n"
	"      --window SECONDS   show queues: rates and times over so long (10)\n"
	"      --removed          list removed channels too\n"
	"      --large --ban --disband --send-ban --allow-stranger   flags for create and info\n"
	"      --help --version\n"
	"\n"
	"Exit codes: 0 done, 1 answered no, 64 usage, 65 bad input, 69 nobody there, 70 internal, "
	"74 I/O,\n"
	"75 try again, 77 no permission.\n";

enum option_id {
	OPT_RUN_DIR = 256,
	OPT_JSON,
	OPT_TIMEOUT,
	OPT_NO_HEADER,
	OPT_LIST,
	OPT_FILE,
	OPT_DEDUP,
	OPT_MODE,
	OPT_LIMIT,
	OPT_SKIP,
	OPT_ALL,
	OPT_REMOVED,
	OPT_VIA,
	OPT_CONFIRM,
	OPT_LINEARIZABLE,
	OPT_WINDOW,
	OPT_HELP,
	OPT_VERSION,
	OPT_FLAG
};

static const struct option options[] = {
	{"run-dir", required_argument, NULL, OPT_RUN_DIR},
	{"json", no_argument, NULL, OPT_JSON},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"no-header", no_argument, NULL, OPT_NO_HEADER},
	{"list", required_argument, NULL, OPT_LIST},
	{"file", required_argument, NULL, OPT_FILE},
	{"dedup", required_argument, NULL, OPT_DEDUP},
	{"mode", required_argument, NULL, OPT_MODE},
	{"limit", required_argument, NULL, OPT_LIMIT},
	{"skip", required_argument, NULL, OPT_SKIP},
	{"all", no_argument, NULL, OPT_ALL},
	{"removed", no_argument, NULL, OPT_REMOVED},
	{"via", required_argument, NULL, OPT_VIA},
	{"confirm", no_argument, NULL, OPT_CONFIRM},
	{"linearizable", no_argument, NULL, OPT_LINEARIZABLE},
	{"window", required_argument, NULL, OPT_WINDOW},
	{"large", no_argument, NULL, OPT_FLAG},
	{"ban", no_argument, NULL, OPT_FLAG + 1},
	{"disband", no_argument, NULL, OPT_FLAG + 2},
	{"send-ban", no_argument, NULL, OPT_FLAG + 3},
	{"allow-stranger", no_argument, NULL, OPT_FLAG + 4},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

// Returns: false after saying what is wrong.
static bool take_number(const char *name, const char *text, uint64_t max, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (errno != 0 || *end != '\0' || text[0] < '0' || text[0] > '9' || *value < 1 ||
		*value > max) {
		tool_error("--%s: a number from 1 to %llu", name, (unsigned long long)max);
		return false;
	}
	return true;
}

// Returns: -1 to go on, or an exit code.
static int take_option(struct tool *tool, int id)
{
	uint64_t value;

	switch (id) {
	case OPT_RUN_DIR:
		tool->run_dir = optarg;
		break;
	case OPT_JSON:
		tool->json = true;
		break;
	case OPT_TIMEOUT:
		if (!take_number("timeout", optarg, 3600000, &value))
			return TOOL_USAGE;
		tool->timeout_ms = (int)value;
		tool->timeout_given = true;
		break;
	case OPT_NO_HEADER:
		tool->no_header = true;
		break;
	case OPT_LIST:
		tool->list = optarg;
		break;
	case OPT_FILE:
		tool->file = optarg;
		break;
	case OPT_DEDUP:
		tool->dedup = optarg;
		break;
	case OPT_MODE:
		tool->mode = optarg;
		break;
	case OPT_LIMIT:
		if (!take_number("limit", optarg, UINT64_C(1) << 53, &tool->limit))
			return TOOL_USAGE;
		break;
	case OPT_SKIP:
		if (!take_number("skip", optarg, UINT64_C(1) << 53, &tool->skip))
			return TOOL_USAGE;
		break;
	case OPT_ALL:
		tool->all = true;
		break;
	case OPT_REMOVED:
		tool->removed = true;
		break;
	case OPT_VIA:
		tool->via = optarg;
		break;
	case OPT_CONFIRM:
		tool->confirm = true;
		break;
	case OPT_LINEARIZABLE:
		tool->linearizable = true;
		break;
	case OPT_WINDOW:
		if (!take_number("window", optarg, 120, &tool->window))
			return TOOL_USAGE;
		break;
	case OPT_HELP:
		fputs(help, stdout);
		return TOOL_OK;
	case OPT_VERSION:
		puts("tagcastctl " TAGCAST_VERSION);
		return TOOL_OK;
	default:
		if (id < OPT_FLAG || id >= OPT_FLAG + 5)
			return TOOL_USAGE;  // getopt said what
		tool->flag[id - OPT_FLAG] = true;
	}
	return -1;
}

static int dispatch(struct tool *tool, int argc, char **argv)
{
	if (argc >= 1 && strcmp(argv[0], "channel") == 0)
		return tool_channel(tool, argc - 1, argv + 1);
	if (argc >= 1 && strcmp(argv[0], "import") == 0)
		return tool_import(tool, argc - 1, argv + 1);
	if (argc >= 1 && strcmp(argv[0], "show") == 0)
		return show(tool, argc - 1, argv + 1);
	if (argc == 1 && strcmp(argv[0], "status") == 0)
		return ask(tool, TOOL_CONTROL, "status", false);
	if (argc == 1 && strcmp(argv[0], "reload") == 0)
		return ask(tool, TOOL_CONTROL, "reload", false);
	if (argc >= 1 && strcmp(argv[0], "meta") == 0)
		return tool_meta(tool, argc - 1, argv + 1);
	if (argc == 0)
		fputs(help, stderr);
	else
		tool_error("no command \"%s\"; see --help", argv[0]);
	return TOOL_USAGE;
}

int main(int argc, char **argv)
{
	struct tool tool = {.run_dir = RUN_DIR_DEFAULT, .timeout_ms = TIMEOUT_DEFAULT_MS};
	int id, rc;

	while ((id = getopt_long(argc, argv, "", options, NULL)) != -1) {
		rc = take_option(&tool, id);
		if (rc >= 0)
			return rc;
	}
	rc = dispatch(&tool, argc - optind, argv + optind);
	if (fflush(stdout) != 0 && rc == TOOL_OK)
		rc = TOOL_IO;
	return rc;
}
