/* SPDX-License-Identifier: BSD-3-Clause */
// Options: defaults of the schema, then the configuration file, then the command line. Run once at start.
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base_time.h"
#include "metad.h"

static const char help[] =
	"Usage: tagcast-metad [OPTION...]\n"
	"The meta process of a tagcast node: keeps channels and members, and feeds the fast "
	"process.\n"
	"\n"
	"      --config FILE          read the node and meta sections of a configuration file\n"
	"      --run-dir DIR          sockets: meta.sock, feed.sock\n"
	"      --data-dir DIR         the store\n"
	"      --node-id N            1 to 2^63-1\n"
	"      --cluster-id N         1 to 2^63-1\n"
	"      --map-size BYTES       address space of the store\n"
	"      --apply-wait-ms N      wait for the fast process before a change is answered\n"
	"      --answer-wait-ms N     wait for a group without a leader before a change is given "
	"up "
	"(20000)\n"
	"      --stage-wait-ms N      wait behind a large change of the same channel (60000)\n"
	"      --journal-commits N    changes kept for subscribers\n"
	"      --dedup-commits N      changes for which repeated commands are recognised\n"
	"      --stages N             large changes at once\n"
	"      --stage-commits N      an idle large change is dropped after so many log entries\n"
	"      --feed-backlog BYTES   what a subscriber may be behind\n"
	"      --raft-address A:PORT  where other members reach this one; none: a group of its "
	"own\n"
	"      --raft-bind A:PORT     where to listen, when that is another address\n"
	"      --raft-auth on|off     members prove that they hold the key (on)\n"
	"      --raft-key-file FILE   the key: 64 hex digits, mode 0600\n"
	"      --election-ms N        without a leader's word for this long: an election\n"
	"      --heartbeat-ms N       how often a leader says that it is there\n"
	"      --snapshot-entries N   log entries between snapshots\n"
	"      --snapshot-trailing N  entries kept behind a snapshot\n"
	"      --snapshot-log BYTES   a snapshot also after so much log\n"
	"      --log-level LEVEL      error, warn, info or debug\n"
	"      --help --version\n"
	"\n"
	"Exit codes: 0 stopped, 64 usage, 70 internal, 71 no memory, 73 cannot create, 74 I/O,\n"
	"75 another one runs here, 77 no permission, 78 configuration. Ended itself: 80 to repair "
	"by a\n"
	"restart, 81 a write of the log failed, 82 libraft broke a promise, 83 the store failed, "
	"84 its\n"
	"history is not the group's. Refused to start: 90 files of another cluster or node, 91 of "
	"a\n"
	"later version, 92 acknowledged data is missing, 93 damaged, 94 Raft address in use, 95 "
	"no\n"
	"room, 96 wrong libraft.\n";

enum {
	OPT_CONFIG = 256,
	OPT_HELP,
	OPT_VERSION,
	OPT_RUN_DIR,
	OPT_DATA_DIR,
	OPT_LOG_LEVEL,
	OPT_RAFT_ADDRESS,
	OPT_RAFT_BIND,
	OPT_RAFT_AUTH,
	OPT_RAFT_KEY_FILE,
	OPT_NUMBER
};

// Options that are numbers, by their place in the table below.
enum {
	N_NODE,
	N_CLUSTER,
	N_MAP,
	N_APPLY_WAIT,
	N_STAGE_WAIT,
	N_JOURNAL,
	N_DEDUP,
	N_STAGES,
	N_STAGE_COMMITS,
	N_BACKLOG,
	N_ANSWER_WAIT,
	N_ELECTION,
	N_HEARTBEAT,
	N_SNAPSHOT_ENTRIES,
	N_SNAPSHOT_TRAILING,
	N_SNAPSHOT_LOG,
	N_COUNT
};
static const struct {
	uint64_t min, max;
} number_range[N_COUNT] = {
	[N_NODE] = {1, INT64_MAX},
	[N_CLUSTER] = {1, INT64_MAX},
	[N_MAP] = {UINT64_C(1) << 20, UINT64_C(1) << 44},
	[N_APPLY_WAIT] = {1, 300000},
	[N_STAGE_WAIT] = {1, 3600000},
	[N_JOURNAL] = {1, UINT64_C(1) << 40},
	[N_DEDUP] = {1, UINT64_C(1) << 40},
	[N_STAGES] = {1, 4096},
	[N_STAGE_COMMITS] = {1, UINT64_C(1) << 40},
	[N_BACKLOG] = {1024, UINT64_C(1) << 32},
	[N_ANSWER_WAIT] = {1, 3600000},
	[N_ELECTION] = {100, 10000},
	[N_HEARTBEAT] = {10, 2000},
	[N_SNAPSHOT_ENTRIES] = {64, 16777216},
	[N_SNAPSHOT_TRAILING] = {16, 16777216},
	[N_SNAPSHOT_LOG] = {UINT64_C(1) << 20, UINT64_C(1) << 34},
};

static const struct option table[] = {
	{"config", required_argument, NULL, OPT_CONFIG},
	{"run-dir", required_argument, NULL, OPT_RUN_DIR},
	{"data-dir", required_argument, NULL, OPT_DATA_DIR},
	{"log-level", required_argument, NULL, OPT_LOG_LEVEL},
	{"node-id", required_argument, NULL, OPT_NUMBER + N_NODE},
	{"cluster-id", required_argument, NULL, OPT_NUMBER + N_CLUSTER},
	{"map-size", required_argument, NULL, OPT_NUMBER + N_MAP},
	{"apply-wait-ms", required_argument, NULL, OPT_NUMBER + N_APPLY_WAIT},
	{"stage-wait-ms", required_argument, NULL, OPT_NUMBER + N_STAGE_WAIT},
	{"journal-commits", required_argument, NULL, OPT_NUMBER + N_JOURNAL},
	{"dedup-commits", required_argument, NULL, OPT_NUMBER + N_DEDUP},
	{"stages", required_argument, NULL, OPT_NUMBER + N_STAGES},
	{"stage-commits", required_argument, NULL, OPT_NUMBER + N_STAGE_COMMITS},
	{"feed-backlog", required_argument, NULL, OPT_NUMBER + N_BACKLOG},
	{"answer-wait-ms", required_argument, NULL, OPT_NUMBER + N_ANSWER_WAIT},
	{"raft-address", required_argument, NULL, OPT_RAFT_ADDRESS},
	{"raft-bind", required_argument, NULL, OPT_RAFT_BIND},
	{"raft-auth", required_argument, NULL, OPT_RAFT_AUTH},
	{"raft-key-file", required_argument, NULL, OPT_RAFT_KEY_FILE},
	{"election-ms", required_argument, NULL, OPT_NUMBER + N_ELECTION},
	{"heartbeat-ms", required_argument, NULL, OPT_NUMBER + N_HEARTBEAT},
	{"snapshot-entries", required_argument, NULL, OPT_NUMBER + N_SNAPSHOT_ENTRIES},
	{"snapshot-trailing", required_argument, NULL, OPT_NUMBER + N_SNAPSHOT_TRAILING},
	{"snapshot-log", required_argument, NULL, OPT_NUMBER + N_SNAPSHOT_LOG},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static void from_conf(struct metad_options *o, const struct conf *conf)
{
	memcpy(o->run_dir, conf->node.run_dir, sizeof(o->run_dir));
	memcpy(o->data_dir, conf->node.data_dir, sizeof(o->data_dir));
	memcpy(o->log_level, conf->node.log_level, sizeof(o->log_level));
	o->node_id = conf->node.id;
	o->cluster_id = conf->node.cluster_id;
	o->map_bytes = conf->meta.map_bytes;
	o->apply_wait_ns = conf->meta.apply_wait_ns;
	o->journal_commits = conf->meta.journal_commits;
	o->dedup_commits = conf->meta.dedup_commits;
	o->stages = conf->meta.stages;
	o->stage_commits = conf->meta.stage_commits;
	o->feed_backlog_bytes = conf->meta.feed_backlog_bytes;
	memcpy(o->raft_address, conf->meta.raft_address, sizeof(o->raft_address));
	memcpy(o->raft_bind, conf->meta.raft_bind, sizeof(o->raft_bind));
	memcpy(o->raft_key_file, conf->meta.raft_key_file, sizeof(o->raft_key_file));
	o->raft_auth = conf->meta.raft_auth == CONF_AUTH_ON;
	o->election_ns = conf->meta.election_ns;
	o->heartbeat_ns = conf->meta.heartbeat_ns;
	o->snapshot_entries = conf->meta.snapshot_entries;
	o->snapshot_trailing = conf->meta.snapshot_trailing;
	o->snapshot_log_bytes = conf->meta.snapshot_log_bytes;
}

static bool take_text(const char *name, char *out, size_t size)
{
	if (strlen(optarg) == 0 || strlen(optarg) >= size) {
		fprintf(stderr, "tagcast-metad: --%s: 1 to %zu bytes\n", name, size - 1);
		return false;
	}
	strcpy(out, optarg);
	return true;
}

static void set_number(struct metad_options *o, int which, uint64_t value)
{
	switch (which) {
	case N_NODE:
		o->node_id = value;
		break;
	case N_CLUSTER:
		o->cluster_id = value;
		break;
	case N_MAP:
		o->map_bytes = value;
		break;
	case N_APPLY_WAIT:
		o->apply_wait_ns = value * NS_PER_MS;
		break;
	case N_STAGE_WAIT:
		o->stage_wait_ns = value * NS_PER_MS;
		break;
	case N_ANSWER_WAIT:
		o->answer_wait_ns = value * NS_PER_MS;
		break;
	case N_JOURNAL:
		o->journal_commits = value;
		break;
	case N_DEDUP:
		o->dedup_commits = value;
		break;
	case N_STAGES:
		o->stages = (uint32_t)value;
		break;
	case N_STAGE_COMMITS:
		o->stage_commits = value;
		break;
	case N_BACKLOG:
		o->feed_backlog_bytes = value;
		break;
	case N_ELECTION:
		o->election_ns = value * NS_PER_MS;
		break;
	case N_HEARTBEAT:
		o->heartbeat_ns = value * NS_PER_MS;
		break;
	case N_SNAPSHOT_ENTRIES:
		o->snapshot_entries = (uint32_t)value;
		break;
	case N_SNAPSHOT_TRAILING:
		o->snapshot_trailing = (uint32_t)value;
		break;
	default:
		o->snapshot_log_bytes = value;
	}
}

static bool take_number(struct metad_options *o, int which, const char *name)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(optarg, &end, 10);
	if (errno != 0 || *end != '\0' || optarg[0] < '0' || optarg[0] > '9' ||
		value < number_range[which].min || value > number_range[which].max) {
		fprintf(stderr, "tagcast-metad: --%s: a number from %" PRIu64 " to %" PRIu64 "\n",
			name, number_range[which].min, number_range[which].max);
		return false;
	}
	set_number(o, which, value);
	return true;
}

// host:port, or none. As in the configuration, less strict: looking it up tells the rest.
static bool take_address(const char *name, char *out, size_t size)
{
	const char *colon = strrchr(optarg, ':');
	char *end;
	unsigned long port;

	if (strcmp(optarg, "none") == 0) {
		memset(out, 0, size);
		return true;
	}
	errno = 0;
	port = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
	if (colon == NULL || colon == optarg || errno != 0 || *end != '\0' || port < 1 ||
		port > 65535 || strlen(optarg) >= size) {
		fprintf(stderr, "tagcast-metad: --%s: address:port, or none\n", name);
		return false;
	}
	strcpy(out, optarg);
	return true;
}

static int take_config(struct metad_options *o)
{
	static struct conf conf;
	char error[CONF_ERROR_MAX];

	if (conf_load(optarg, &conf, error) != 0) {
		fprintf(stderr, "%s\n", error);
		return EX_CONFIG;
	}
	from_conf(o, &conf);
	return -1;
}

static int take_option(struct metad_options *o, int id, const char *name)
{
	static const char *const levels[] = {"error", "warn", "info", "debug"};
	bool known = false;

	switch (id) {
	case OPT_HELP:
		fputs(help, stdout);
		return EX_OK;
	case OPT_VERSION:
		puts("tagcast-metad " TAGCAST_VERSION);
		return EX_OK;
	case OPT_RUN_DIR:
		return take_text(name, o->run_dir, sizeof(o->run_dir)) ? -1 : EX_USAGE;
	case OPT_DATA_DIR:
		return take_text(name, o->data_dir, sizeof(o->data_dir)) ? -1 : EX_USAGE;
	case OPT_LOG_LEVEL:
		for (int i = 0; i < 4; i++)
			known = known || strcmp(optarg, levels[i]) == 0;
		if (!known)
			fputs("tagcast-metad: --log-level: error, warn, info or debug\n", stderr);
		return known && take_text(name, o->log_level, sizeof(o->log_level)) ? -1 : EX_USAGE;
	case OPT_RAFT_ADDRESS:
		return take_address(name, o->raft_address, sizeof(o->raft_address)) ? -1 : EX_USAGE;
	case OPT_RAFT_BIND:
		return take_address(name, o->raft_bind, sizeof(o->raft_bind)) ? -1 : EX_USAGE;
	case OPT_RAFT_KEY_FILE:
		return take_text(name, o->raft_key_file, sizeof(o->raft_key_file)) ? -1 : EX_USAGE;
	case OPT_RAFT_AUTH:
		o->raft_auth = strcmp(optarg, "on") == 0;
		if (o->raft_auth || strcmp(optarg, "off") == 0)
			return -1;
		fputs("tagcast-metad: --raft-auth: on or off\n", stderr);
		return EX_USAGE;
	default:
		if (id < OPT_NUMBER)
			return EX_USAGE;  // getopt said what
		return take_number(o, id - OPT_NUMBER, name) ? -1 : EX_USAGE;
	}
}

static int check_relations(const struct metad_options *o)
{
	const char *problem = NULL;

	if (o->raft_address[0] != '\0' && o->raft_auth && o->raft_key_file[0] == '\0')
		problem = "--raft-address needs --raft-key-file, or --raft-auth off";
	else if (o->raft_bind[0] != '\0' && o->raft_address[0] == '\0')
		problem = "--raft-bind goes with --raft-address";
	else if (o->heartbeat_ns > o->election_ns / 3)
		problem = "--heartbeat-ms is at most a third of --election-ms";
	else if (o->snapshot_trailing > o->snapshot_entries)
		problem = "--snapshot-trailing is at most --snapshot-entries";
	if (problem == NULL)
		return -1;
	fprintf(stderr, "tagcast-metad: %s\n", problem);
	return EX_USAGE;
}

int metad_options_read(struct metad_options *o, int argc, char **argv)
{
	static struct conf defaults;
	int id, index = 0, rc;

	conf_defaults(&defaults);
	from_conf(o, &defaults);
	o->stage_wait_ns = 60 * NS_PER_S;
	o->answer_wait_ns = 20 * NS_PER_S;
	// The file first, wherever it stands: the command line goes over it.
	opterr = 0;
	while ((id = getopt_long(argc, argv, "", table, NULL)) != -1)
		if (id == OPT_CONFIG && (rc = take_config(o)) >= 0)
			return rc;
	opterr = 1;
	optind = 0;
	while ((id = getopt_long(argc, argv, "", table, &index)) != -1)
		if (id != OPT_CONFIG &&
			(rc = take_option(o, id, id >= 256 ? table[index].name : "")) >= 0)
			return rc;
	if (optind < argc) {
		fprintf(stderr, "tagcast-metad: unexpected \"%s\"; see --help\n", argv[optind]);
		return EX_USAGE;
	}
	if (o->node_id == 0 || o->cluster_id == 0 || o->run_dir[0] == '\0' ||
		o->data_dir[0] == '\0') {
		fputs("tagcast-metad: needed: --node-id, --cluster-id, --run-dir, --data-dir, or "
		      "--config\n",
			stderr);
		return EX_USAGE;
	}
	return check_relations(o);
}
