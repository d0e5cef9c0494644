/* SPDX-License-Identifier: BSD-3-Clause */
// Cold build of a tag: the control steps of a node from the request to the published tag, over the store on
// LMDB by way of drivers/source: pages, interning of every UID, sort, chunks. Beside it the pages alone,
// and a build whose UIDs are known already. Argument: members.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_time.h"
#include "bench.h"
#include "node_control_pvt.h"
#include "source_store.h"
#include "store_lmdb.h"

#define CHUNK 4000u
#define MAP_BYTES (UINT64_C(1) << 30)
#define NS_PER_MEMBER 200.0  // 5 million members a second
#define STEPS_MAX 100000u

static char dir[] = "/tmp/micro_build.XXXXXX";
static struct source_store *source;

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "build: %s failed\n", what);
	exit(1);
}

static struct channel_key key_of(const char *name)
{
	struct channel_key key;

	channel_key_set(&key, CHANNEL_GROUP, name, (uint8_t)strlen(name));
	return key;
}

// --- the store, written by a process of its own -------------------------------------------------------

static void apply(struct store_lmdb *db, const struct store_command *cmd)
{
	static const struct store_limits limits = {
		.journal_commits = 100, .dedup_commits = 100, .stages = 4, .stage_commits = 1000};
	static uint8_t data[ENTRY_BYTES_MAX];
	static uint64_t index;
	const int len = store_command_encode(cmd, data, sizeof(data));
	struct store_result result;
	struct store_tx tx;

	must(len > 0 && store_lmdb_begin(db, &tx) == 0, "begin");
	must(store_apply(&tx, &limits, ++index, data, (uint32_t)len, &result, 1, NULL, NULL) == 1,
		"apply");
	must(result.code == STORE_R_OK && store_lmdb_commit(db, &tx) == 0, "commit");
}

static void load(struct store_lmdb *db, const char *channel, uint32_t members, uint64_t stage)
{
	static uint8_t uids[CHUNK * 16];
	struct store_command cmd = {.op = STORE_STAGE,
		.staged_op = STORE_ADD,
		.stage_id = stage,
		.channel = key_of(channel),
		.uids = uids};

	for (uint32_t i = 0; i < members;) {
		cmd.uid_count = 0;
		cmd.uids_bytes = 0;
		for (; cmd.uid_count < CHUNK && i < members; i++, cmd.uid_count++) {
			uint8_t *p = uids + cmd.uids_bytes;

			p[0] = (uint8_t)snprintf((char *)p + 1, 15, "user%08u", i);
			cmd.uids_bytes += 1u + p[0];
		}
		apply(db, &cmd);
	}
	cmd.op = STORE_CLOSE;
	cmd.uid_count = members;
	cmd.uids_bytes = 0;
	apply(db, &cmd);
}

static void write_store(uint32_t members)
{
	struct store_lmdb *db;
	struct store_tx tx;
	const char *why;
	int status;
	const pid_t pid = fork();

	must(pid >= 0, "fork");
	if (pid != 0) {
		must(waitpid(pid, &status, 0) == pid && status == 0, "writing the store");
		return;
	}
	must(store_lmdb_open(dir, MAP_BYTES, true, false, &db, &why) == 0, "open");
	must(store_lmdb_begin(db, &tx) == 0 && store_open(&tx, 7, &why) == 0 &&
			store_lmdb_commit(db, &tx) == 0,
		"format");
	load(db, "cold", members, 1);
	load(db, "warm", members, 2);
	store_lmdb_close(db);
	_exit(0);
}

// --- the node -----------------------------------------------------------------------------------------

static const struct dgram_ops no_port;

static struct node *start(uint32_t members) CONTROL_ONLY;
static struct node *start(uint32_t members)
{
	static int queue;
	const struct node_params params = {
		.id = 1,
		.boot = 1,
		.cluster_id = 7,
		.addr = {.ip = 0x7f000001, .port = 7400},
		.mtu = 1500,
		.workers = 1,
		.channels = 16,
		.uids = 2 * members + 16,
		.gateways = 1,
		.senders = 1,
		.frames = 1,
		.window = 64,
		.window_age_ns = NS_PER_S,
		.ring_items = 64,
		.tag_bytes = UINT64_C(1) << 30,
		.tag_steps = 8,
		.build_members_per_step = 4096,
		.heartbeat_ns = NS_PER_S,
		.fanout = {.messages = 16,
			.parked = 8,
			.parked_per_channel = 8,
			.quantum_members = 256,
			.turn_members = 4096,
			.payload_bytes = PAYLOAD_MAX,
			.deadline_ns = NS_PER_S,
			.deadline_max_ns = NS_PER_S},
		.delivery = {.inflight = 64,
			.inflight_large = 8,
			.window = 16,
			.backlog = 16,
			.attempts = 4,
			.resend_percent = 100,
			.push_timeout_ns = 100 * NS_PER_MS,
			.retry_max_ns = NS_PER_S,
			.receipt_timeout_ns = NS_PER_S},
		.dgram = &no_port,
		.queue = {&queue},
		.source_ops = &source_store_ops,
		.source = source,
	};
	struct store_feed_frame welcome = {.type = STORE_FEED_WELCOME, .resync = true};
	struct store_position position;
	uint64_t now = NS_PER_S;
	const char *why = "";
	struct node *node;

	must(node_create(&params, &node, &why) == 0, why);
	must(source_store_ops.position(source, &position) == 0, "position");
	welcome.generation = position.generation;
	welcome.commit = position.commit;
	must(node_control_feed(node, &welcome, now) == 0, "welcome");
	for (uint32_t i = 0; i < STEPS_MAX && !node_control_ready(node); i++)
		node_control_step(node, now += NS_PER_MS);
	must(node_control_ready(node), "the channel table");
	return node;
}

// ns per member of the steps from the request to the tag.
static double build(struct node *node, const char *name, uint32_t members) CONTROL_ONLY;
static double build(struct node *node, const char *name, uint32_t members)
{
	const struct channel_key key = key_of(name);
	struct channel *channel = channel_find(node->channels, &key, channel_key_hash(&key));
	uint64_t now = 100 * NS_PER_S, start;
	const struct tag *tag;

	must(channel != NULL, "finding the channel");
	start = bench_ns();
	node_build_want(node, channel);
	while ((tag = atomic_load(&channel->tag)) == NULL && now < 200 * NS_PER_S)
		node_control_step(node, now += NS_PER_MS);
	start = bench_ns() - start;
	must(tag != NULL && tag->count == members, "the build");
	return (double)start / members;
}

static double pages(uint32_t members)
{
	static uint8_t uids[BUILD_PAGE_BYTES];
	const struct channel_key key = key_of("cold");
	const uint64_t start = bench_ns();
	struct store_page page = {0};
	uint32_t got = 0;

	do {
		const struct store_page at = page;

		must(source_store_ops.page(source, &key, STORE_MEMBERS,
			     id_view_of(at.next, at.next_len), BUILD_PAGE_MEMBERS, uids,
			     sizeof(uids), &page) == 0,
			"a page");
		got += page.count;
	} while (!page.last);
	must(got == members, "reading all pages");
	return (double)(bench_ns() - start) / members;
}

static void clean_up(void)
{
	static const char *const file[] = {"data.mdb", "lock.mdb", "writer.lock"};
	char path[128];

	for (size_t i = 0; i < sizeof(file) / sizeof(file[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, file[i]);
		unlink(path);
	}
	rmdir(dir);
}

int main(int argc, char **argv)
{
	const uint32_t members = argc > 1 ? (uint32_t)atoi(argv[1]) : 100000;
	double cold[BENCH_ROUNDS], warm[BENCH_ROUNDS], page[BENCH_ROUNDS], goal[BENCH_ROUNDS];
	char title[64];

	must(members > 0 && members <= 1000000 && mkdtemp(dir) != NULL, "mkdtemp");
	write_store(members);
	atexit(clean_up);
	must(source_store_open(dir, MAP_BYTES, &source) == 0, "opening the source");
	role_take_control();
	for (uint32_t r = 0; r < BENCH_ROUNDS; r++) {
		struct node *node = start(members);

		page[r] = pages(members);
		cold[r] = build(node, "cold", members);
		warm[r] = build(node, "warm", members);
		goal[r] = NS_PER_MEMBER;
		node_destroy(node);
	}
	role_drop_control();
	source_store_close(source);
	snprintf(title, sizeof(title), "build of a tag of %u members, per member", members);
	bench_head(title);
	bench_row("pages of the source alone", page, NULL, NULL, BENCH_NONE);
	bench_row("cold build: no UID known", cold, "5 M members/s", goal, BENCH_MOST(1.0));
	bench_row("  the same", cold, "pages alone", page, BENCH_NONE);
	bench_row("warm build: every UID known", warm, "pages alone", page, BENCH_NONE);
	return 0;
}
