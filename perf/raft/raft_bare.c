/* SPDX-License-Identifier: BSD-3-Clause */
// The primitive that the meta process' rates are compared with: a loop over libraft and libuv and nothing
// else, without guard, store or requests. One process a voter on loopback; the one that leads keeps
// IN_FLIGHT calls of raft_apply open, each of CALL_ENTRIES entries, and prints what came of it as JSON.
// One thread, its loop.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include <raft.h>
#include <raft/uv.h>

#define CALLS_MAX 64u
#define CALL_ENTRIES_MAX 1024u
#define SAMPLES_MAX 4000000u
#define WARM_NS UINT64_C(300000000)

struct call {
	struct raft_apply req;
	struct bare *bare;
	uint64_t start_ns;
};

struct bare {
	struct uv_loop_s loop;
	struct raft_uv_transport transport;
	struct raft_io io;
	struct raft_fsm fsm;
	struct raft raft;
	uv_timer_t timer;
	struct call call[CALLS_MAX];
	uint32_t entry_bytes, call_entries, in_flight;
	uint64_t seconds, first_ns, begin_ns, applied, applied_begin;
	bool going;
	uint32_t *sample_us;
	uint32_t samples;
};

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "raft_bare: %s: %s\n", what, why);
	_exit(1);
}

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
	struct bare *bare = fsm->data;

	(void)buf;
	*result = NULL;
	bare->applied++;
	return 0;
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *count)
{
	(void)fsm;
	*count = 1;
	*bufs = raft_malloc(sizeof(**bufs));
	(*bufs)[0].len = 8;
	(*bufs)[0].base = raft_calloc(1, 8);
	return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
	(void)fsm;
	raft_free(buf->base);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void tell(struct bare *bare, uint64_t now_ns)
{
	const double seconds = (double)(now_ns - bare->begin_ns) / 1e9;

	qsort(bare->sample_us, bare->samples, sizeof(*bare->sample_us), by_value);
	printf("{\"entries\": %" PRIu64 ", \"seconds\": %.3f, \"rate\": %.1f, \"p50_us\": %u, "
	       "\"p99_us\": %u}\n",
		bare->applied - bare->applied_begin, seconds,
		(double)(bare->applied - bare->applied_begin) / seconds,
		bare->sample_us[bare->samples / 2],
		bare->sample_us[(uint64_t)bare->samples * 99 / 100]);
	fflush(stdout);
	_exit(0);
}

static void submit(struct call *call);

static void on_applied(struct raft_apply *req, int status, void *result)
{
	struct call *call = req->data;
	struct bare *bare = call->bare;
	const uint64_t now_ns = uv_hrtime();

	(void)result;
	if (status != 0)
		fail("raft_apply", "lost leadership");
	if (bare->first_ns == 0)
		bare->first_ns = now_ns;
	if (bare->begin_ns == 0 && now_ns - bare->first_ns >= WARM_NS) {
		bare->begin_ns = now_ns;
		bare->applied_begin = bare->applied;
	} else if (bare->begin_ns != 0) {
		if (bare->samples < SAMPLES_MAX)
			bare->sample_us[bare->samples++] =
				(uint32_t)((now_ns - call->start_ns) / 1000);
		if (now_ns - bare->begin_ns >= bare->seconds * UINT64_C(1000000000))
			tell(bare, now_ns);
	}
	submit(call);
}

static void submit(struct call *call)
{
	struct bare *bare = call->bare;
	struct raft_buffer bufs[CALL_ENTRIES_MAX];
	int rc;

	for (uint32_t i = 0; i < bare->call_entries; i++) {
		bufs[i].len = bare->entry_bytes;
		bufs[i].base = raft_malloc(bare->entry_bytes);
		memset(bufs[i].base, 'x', bare->entry_bytes);
	}
	call->req.data = call;
	call->start_ns = uv_hrtime();
	rc = raft_apply(&bare->raft, &call->req, bufs, bare->call_entries, on_applied);
	if (rc != 0)
		fail("raft_apply", raft_strerror(rc));
}

static void on_timer(uv_timer_t *timer)
{
	struct bare *bare = timer->data;

	if (bare->going || raft_state(&bare->raft) != RAFT_LEADER)
		return;
	bare->going = true;
	for (uint32_t i = 0; i < bare->in_flight; i++) {
		bare->call[i].bare = bare;
		submit(&bare->call[i]);
	}
}

static void begin(struct bare *bare, const char *dir, unsigned id, unsigned voters, unsigned port)
{
	struct raft_configuration conf;
	char address[64];
	int rc;

	uv_loop_init(&bare->loop);
	if (raft_uv_tcp_init(&bare->transport, &bare->loop) != 0 ||
		raft_uv_init(&bare->io, &bare->loop, dir, &bare->transport) != 0)
		fail("raft_uv_init", dir);
	bare->io.version = 2;
	bare->fsm = (struct raft_fsm){
		.version = 1,
		.data = bare,
		.apply = fsm_apply,
		.snapshot = fsm_snapshot,
		.restore = fsm_restore,
	};
	snprintf(address, sizeof(address), "127.0.0.1:%u", port + id);
	if (raft_init(&bare->raft, &bare->io, &bare->fsm, id, address) != 0)
		fail("raft_init", raft_errmsg(&bare->raft));
	raft_set_election_timeout(&bare->raft, 300);
	raft_set_heartbeat_timeout(&bare->raft, 50);
	raft_set_snapshot_threshold(&bare->raft, 1u << 20);
	raft_set_snapshot_trailing(&bare->raft, 1u << 16);
	raft_set_pre_vote(&bare->raft, true);
	raft_configuration_init(&conf);
	for (unsigned i = 1; i <= voters; i++) {
		snprintf(address, sizeof(address), "127.0.0.1:%u", port + i);
		if (raft_configuration_add(&conf, i, address, RAFT_VOTER) != 0)
			fail("raft_configuration_add", address);
	}
	rc = raft_bootstrap(&bare->raft, &conf);
	if (rc != 0 || raft_start(&bare->raft) != 0)
		fail("raft_start", raft_errmsg(&bare->raft));
	raft_configuration_close(&conf);
	uv_timer_init(&bare->loop, &bare->timer);
	bare->timer.data = bare;
	uv_timer_start(&bare->timer, on_timer, 10, 10);
}

int main(int argc, char **argv)
{
	static struct bare bare;

	if (argc != 9) {
		fputs("usage: raft_bare DIR ID VOTERS PORT ENTRY_BYTES CALL_ENTRIES IN_FLIGHT "
		      "SECONDS\n",
			stderr);
		return 64;
	}
	bare.entry_bytes = (uint32_t)strtoul(argv[5], NULL, 10);
	bare.call_entries = (uint32_t)strtoul(argv[6], NULL, 10);
	bare.in_flight = (uint32_t)strtoul(argv[7], NULL, 10);
	bare.seconds = strtoul(argv[8], NULL, 10);
	bare.sample_us = malloc(SAMPLES_MAX * sizeof(*bare.sample_us));
	if (bare.entry_bytes == 0 || bare.entry_bytes % 8 != 0 || bare.call_entries == 0 ||
		bare.call_entries > CALL_ENTRIES_MAX || bare.in_flight == 0 ||
		bare.in_flight > CALLS_MAX || bare.seconds == 0 || bare.sample_us == NULL)
		fail("arguments", "out of range");
	signal(SIGPIPE, SIG_IGN);
	mkdir(argv[1], 0700);
	begin(&bare, argv[1], (unsigned)strtoul(argv[2], NULL, 10),
		(unsigned)strtoul(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10));
	uv_run(&bare.loop, UV_RUN_DEFAULT);
	return 1;
}
