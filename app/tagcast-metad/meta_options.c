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
	"      --stage-wait-ms N      wait behind a large change of the same channel (60000)\n"
	"      --journal-commits N    changes kept for subscribers\n"
	"      --dedup-commits N      changes for which repeated commands are recognised\n"
	"      --stages N             large changes at once\n"
	"      --stage-commits N      an idle large change is dropped after so many log entries\n"
	"      --feed-backlog BYTES   what a subscriber may be behind\n"
	"      --log-level LEVEL      error, warn, info or debug\n"
	"      --help --version\n"
	"\n"
	"Exit codes: 0 stopped, 64 usage, 70 internal, 71 no memory, 73 cannot create, 74 I/O or "
	"disk full,\n"
	"75 another one runs here, 77 no permission, 78 configuration.\n";

enum {
	OPT_CONFIG = 256,
	OPT_HELP,
	OPT_VERSION,
	OPT_RUN_DIR,
	OPT_DATA_DIR,
	OPT_LOG_LEVEL,
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
	default:
		o->feed_backlog_bytes = value;
	}
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
	default:
		if (id < OPT_NUMBER)
			return EX_USAGE;  // getopt said what
		return take_number(o, id - OPT_NUMBER, name) ? -1 : EX_USAGE;
	}
}

int metad_options_read(struct metad_options *o, int argc, char **argv)
{
	static struct conf defaults;
	int id, index = 0, rc;

	conf_defaults(&defaults);
	from_conf(o, &defaults);
	o->stage_wait_ns = 60 * NS_PER_S;
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
	return -1;
}
