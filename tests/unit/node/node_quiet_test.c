/* SPDX-License-Identifier: BSD-3-Clause */
// A worker allocates nothing, takes no lock and makes no system call, whatever messages it carries: a whole
// node whose turns run on a watched thread (quiet.h), with the control core's work and the clients'
// between them on another. What a worker is forbidden is then planted, and must be seen.
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_rcu.h"
#include "node_net.h"
#include "quiet.h"

#define TURNS 10000u  // of the node; each is one of every worker
#define WORKERS 2u
#define CHANNELS 24u
#define MEMBERS 300u
#define ONLINE 240u
#define LARGE_EVERY 40u
#define CHANGE_EVERY 16u
#define SILENT_EVERY 500u  // turns: a gateway answers nothing for the first 120 of them

static struct net net;

struct report {
	struct quiet_counts quiet;
	uint64_t counter[CTR_COUNT];
	uint32_t turns, publishes;
};
static struct report *report;  // shared with the child

// --- the watched thread -------------------------------------------------------------------------------

static void become_worker(void *ctx)
{
	(void)ctx;
	rcu_reader_register();
	rcu_reader_offline();
}

// Grace periods of the control core must not wait for a worker that waits for it.
static void watched_turns(void *ctx)
{
	role_take_worker();
	rcu_reader_online();
	net_worker_turns(ctx);
	rcu_reader_offline();
	role_drop_worker();
}

static void run_turns(struct net *n)
{
	quiet_run(watched_turns, n);
}

// --- the traffic --------------------------------------------------------------------------------------

static const char *channel_name(uint32_t i)
{
	static char name[16];

	snprintf(name, sizeof(name), "room%u", i % CHANNELS);
	return name;
}

static void begin(bool keys) WORKER_ONLY CONTROL_ONLY;
static void begin(bool keys)
{
	net_open(&net, WORKERS, keys);
	for (uint32_t q = 0; q < WORKERS; q++) {
		net.port[q].record_sent = false;
		net.port[q].keep_sent = true;
	}
	quiet_start(become_worker, NULL);
	net.turn = run_turns;
	for (uint32_t i = 0; i < CHANNELS; i++)
		world_range(net.w, STORE_ADD, STORE_MEMBERS, channel_name(i), "u", i, MEMBERS);
	world_ready(net.w);
	for (uint32_t i = 0; i < 3; i++)
		net_join(&net, &net.client[i], i == 2 ? WIRE_ROLE_PUBLISHER : WIRE_ROLE_GATEWAY);
	net_announce(&net, &net.client[0], "u", 0, ONLINE / 2);
	net_announce(&net, &net.client[1], "u", ONLINE / 2, ONLINE);
	net_turns(&net, 4);
	assert_int_equal(net_count(&net, CTR_ANNOUNCE), ONLINE);
	net.client[0].receipts = true;  // the other one's clients never acknowledge
	net.client[0].retry_every = 7;
	net.client[1].retry_every = 11;
	net.client[1].drop_every = 13;
}

static void heartbeat(struct net_client *c)
{
	uint8_t body[64];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_heartbeat m = {.stamp = c->seq, .sessions = ONLINE / 2};

	assert_true(wire_put_heartbeat(&out, &m));
	net_send(&net, c, 0, WIRE_HEARTBEAT, body, out.len);
}

// What came before turn `t`: a few small messages of every class, now and then a large one, repeats,
// messages for another worker's channel, a change of a membership.
static void traffic(uint32_t t) CONTROL_ONLY;
static void traffic(uint32_t t)
{
	struct net_client *publisher = &net.client[2];
	const uint32_t burst = t % 8 == 0 ? 8 : t % 3;

	net.client[1].silent = t % SILENT_EVERY < 120;
	for (uint32_t i = 0; i < burst; i++) {
		const struct wire_publish m = net_message(publisher, channel_name(t + i * i),
			++report->publishes, (enum wire_ack_class)((t + i) % 3), 20 + (t * 37 + i) % 900);

		net_publish_to(&net, publisher, &m, (t + i) % WORKERS);
		if (t % 50 == 0)
			net_publish_to(&net, publisher, &m, (t + i) % WORKERS);
	}
	if (t % LARGE_EVERY == 1) {
		const struct wire_publish m = net_message(publisher, channel_name(t / LARGE_EVERY),
			++report->publishes, (enum wire_ack_class)(t / LARGE_EVERY % 3), PAYLOAD_MAX);

		net_publish(&net, publisher, &m);
	}
	if (t % CHANGE_EVERY == 3) {
		world_do(net.w, t / CHANGE_EVERY % 2 == 0 ? STORE_REMOVE : STORE_ADD, STORE_MEMBERS,
			channel_name(t / CHANGE_EVERY / 2), "u30 u31 u260");
		assert_int_equal(world_deliver(net.w, UINT32_MAX), 0);
	}
	if (t % 200 == 5)
		for (uint32_t g = 0; g < 2; g++)
			heartbeat(&net.client[g]);
	if (t % 1000 == 7)  // a datagram nobody can read
		net_raw(&net, publisher->addr, NET_BASE, (const uint8_t *)"nonsense", 8);
}

// --- planted ------------------------------------------------------------------------------------------

enum plant { PLANT_NONE, PLANT_SYSCALL, PLANT_ALLOC, PLANT_FREE, PLANT_LOCK };

static enum plant plant;
static struct dgram_ops planted_ops;
static void *volatile block;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// The port as before, but once every so often it does what no worker may.
static void planted_tx(void *queue, struct dgram **d, uint16_t n)
{
	static uint32_t calls;

	if (calls++ % 100 == 50) {
		if (plant == PLANT_SYSCALL)
			syscall(SYS_getpid);
		if (plant == PLANT_ALLOC)
			block = malloc(10);
		if (plant == PLANT_FREE)
			free(block);
		if (plant == PLANT_FREE)
			block = NULL;
		if (plant == PLANT_LOCK && pthread_mutex_lock(&mutex) == 0)
			pthread_mutex_unlock(&mutex);
	}
	net.port[0].ops->tx(queue, d, n);
}

// --- the tests ----------------------------------------------------------------------------------------

static void child(bool keys, uint32_t turns) WORKER_ONLY CONTROL_ONLY;
static void child(bool keys, uint32_t turns)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
	block = malloc(10);
	begin(keys);
	if (plant != PLANT_NONE) {
		planted_ops = *net.port[0].ops;
		planted_ops.tx = planted_tx;
		net.node->params.dgram = &planted_ops;
	}
	for (uint32_t t = 0; t < turns; t++) {
		traffic(t);
		net_turn(&net);
	}
	report->turns = turns;
	node_counters(net.node, report->counter);
	quiet_counts(&report->quiet);
	_exit(0);
}

// Runs `turns` in a child process and takes its report.
static void watch(enum plant what, bool keys, uint32_t turns) WORKER_ONLY CONTROL_ONLY;
static void watch(enum plant what, bool keys, uint32_t turns)
{
	int status;
	pid_t pid;

	memset(report, 0, sizeof(*report));
	plant = what;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(keys, turns);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(report->turns, turns);
}

static void every_path_was_taken(void)
{
	const uint64_t *c = report->counter;
	static const enum counter path[] = {CTR_PUB_OK, CTR_PUB_DUPLICATE, CTR_PUB_INCOMPLETE, CTR_HANDOFF,
		CTR_ROUTE_SENT, CTR_ROUTE_ACCEPTED, CTR_ROUTE_ACKED, CTR_ROUTE_DROPPED, CTR_ROUTE_RETRIED,
		CTR_ROUTE_RETRY_CAP, CTR_PUSH_RESENT, CTR_PUSH_ACK, CTR_RECEIPT, CTR_TAG_HIT, CTR_PARKED,
		CTR_TAG_EDIT, CTR_TAG_BUILD, CTR_HEARTBEAT, CTR_DROP_SHORT, CTR_END_OFFLINE};

	for (size_t i = 0; i < sizeof(path) / sizeof(path[0]); i++)
		if (c[path[i]] == 0)
			fail_msg("%s is 0", counter_name(path[i]));
	assert_true(c[CTR_PUBLISH] > report->turns / 2);
}

static void carries_every_kind_of_message_without_alloc_lock_or_syscall(void **state)
	WORKER_ONLY CONTROL_ONLY;
static void carries_every_kind_of_message_without_alloc_lock_or_syscall(void **state)
{
	for (uint32_t keys = 0; keys < 2; keys++) {
		watch(PLANT_NONE, keys == 1, TURNS);
		every_path_was_taken();
		assert_int_equal(report->quiet.syscall, -1);
		for (uint32_t i = 0; i < QUIET_COUNT; i++)
			assert_int_equal(report->quiet.n[i], 0);
	}
}

static void planted_syscall_is_seen(void **state) WORKER_ONLY CONTROL_ONLY;
static void planted_syscall_is_seen(void **state)
{
	watch(PLANT_SYSCALL, false, 500);
	if (!quiet_counts_syscalls())
		return;
	assert_true(report->quiet.n[QUIET_SYSCALL] > 0);
	assert_int_equal(report->quiet.syscall, SYS_getpid);
	assert_int_equal(report->quiet.n[QUIET_ALLOC], 0);
}

static void planted_allocation_is_seen(void **state) WORKER_ONLY CONTROL_ONLY;
static void planted_allocation_is_seen(void **state)
{
	watch(PLANT_ALLOC, false, 500);
	assert_true(report->quiet.n[QUIET_ALLOC] > 0);
	watch(PLANT_FREE, false, 500);
	assert_int_equal(report->quiet.n[QUIET_ALLOC], 0);
	assert_true(report->quiet.n[QUIET_FREE] > 0);
}

static void planted_lock_is_seen(void **state) WORKER_ONLY CONTROL_ONLY;
static void planted_lock_is_seen(void **state)
{
	watch(PLANT_LOCK, false, 500);
	assert_true(report->quiet.n[QUIET_LOCK] > 0);
	assert_int_equal(report->quiet.n[QUIET_ALLOC], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(carries_every_kind_of_message_without_alloc_lock_or_syscall),
		cmocka_unit_test(planted_syscall_is_seen),
		cmocka_unit_test(planted_allocation_is_seen),
		cmocka_unit_test(planted_lock_is_seen),
	};

	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
