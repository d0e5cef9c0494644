/* SPDX-License-Identifier: BSD-3-Clause */
// The loop of a simulated world: who runs next is random, time jumps to the next thing that is due.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_rcu.h"
#include "base_time.h"
#include "sim.h"

#define WORK_NS 2000u  // of a worker's time, for a member or a datagram

static uint64_t next_of(uint64_t *random)
{
	*random ^= *random >> 12;
	*random ^= *random << 25;
	*random ^= *random >> 27;
	return *random * UINT64_C(2685821657736338717);
}

uint64_t sim_random(struct sim *s)
{
	return next_of(&s->random);
}

uint32_t sim_below(struct sim *s, uint32_t n)
{
	return n <= 1 ? 0 : (uint32_t)(sim_random(s) >> 32) % n;
}

bool sim_chance(struct sim *s, uint32_t permille)
{
	return permille != 0 && sim_below(s, 1000) < permille;
}

uint32_t sim_story_below(struct sim *s, uint32_t n)
{
	const uint32_t r = (uint32_t)(next_of(&s->story) >> 32);

	return n <= 1 ? 0 : r % n;
}

bool sim_story_chance(struct sim *s, uint32_t permille)
{
	return sim_story_below(s, 1000) < permille;
}

void sim_trace(struct sim *s, const char *fmt, ...)
{
	char line[400];
	va_list ap;

	if (!s->p.trace && !s->p.hash)
		return;
	int n = snprintf(line, sizeof(line), "%12.6f ", (double)s->now_ns / 1e9);
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	for (int i = 0; i < n && line[i] != '\0'; i++)
		s->trace_hash = (s->trace_hash ^ (uint8_t)line[i]) * UINT64_C(0x100000001b3);
	if (s->p.trace)
		puts(line);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	const int n = snprintf(s->failure, sizeof(s->failure), "at %.6f s: ", (double)s->now_ns / 1e9);
	va_start(ap, fmt);
	vsnprintf(s->failure + n, sizeof(s->failure) - (size_t)n, fmt, ap);
	va_end(ap);
	sim_trace(s, "FAILED %s", s->failure);
}

static void wake(void *ctx, uint32_t who)
{
	(void)ctx;
	(void)who;
}

// So little of everything that every limit is met; but for the idempotence window, whose end is a repeat
// taken for a new message, as it must be.
static void tiny_limits(struct node_params *p)
{
	p->channels = SIM_CHANNELS - 2;
	p->uids = SIM_UIDS - 16;
	p->gateways = 3;
	p->senders = 24;
	p->frames = 1;
	p->ring_items = 16;
	p->tag_bytes = 8192;
	p->fanout.messages = 8;
	p->fanout.parked = 4;
	p->fanout.parked_per_channel = 2;
	p->delivery.inflight = 16;
	p->delivery.inflight_large = 4;
	p->delivery.window = 2;
	p->delivery.backlog = 8;
}

static void node_params(struct sim *s, struct node_params *p)
{
	*p = (struct node_params){
		.id = 1,
		.boot = 1000 + s->node_life,
		.cluster_id = 7,
		.addr = s->node_addr,
		.mtu = 1500,
		.workers = (uint16_t)s->p.workers,
		.keys = s->keys,
		.channels = 64,
		.uids = 1024,
		.gateways = 32,
		.senders = 1024,
		.frames = 8,
		.ring_items = 256,
		.window = 4096,
		.window_age_ns = 120 * NS_PER_S,
		.tag_bytes = 4u << 20,
		.tag_ttl_ns = s->p.ttl_ns,
		.tag_steps = 16,
		.build_members_per_step = 16,
		.heartbeat_ns = 500 * NS_PER_MS,
		.dgram = &sim_dgram_ops,
		.source_ops = &sim_source_ops,
		.source = s,
		.wake = wake,
	};
	p->fanout = (struct fanout_limits){
		.messages = 256,
		.parked = 128,
		.parked_per_channel = 32,
		.quantum_members = 32,
		.turn_members = 64,
		.payload_bytes = PAYLOAD_MAX,
		.buffer_reserve = 64,
		.deadline_ns = 30 * NS_PER_S,
		.deadline_max_ns = 60 * NS_PER_S,
		.mtu = 1500,
	};
	p->delivery = (struct delivery_limits){
		.inflight = 1024,
		.inflight_large = 64,
		.gateways = 32,
		.window = 32,
		.backlog = 512,
		.attempts = 40,
		.resend_percent = 100,
		.push_timeout_ns = 20 * NS_PER_MS,
		.retry_max_ns = 500 * NS_PER_MS,
		.receipt_timeout_ns = 200 * NS_PER_MS,
		.seed = (uint32_t)s->p.seed,
	};
	if (s->p.tiny)
		tiny_limits(p);
	if (s->p.starve) {
		p->fanout.quantum_members = 8;
		p->fanout.turn_members = SIM_TURN_MEMBERS;
	}
	for (uint32_t w = 0; w < s->p.workers; w++)
		p->queue[w] = s->queue[w];
	memcpy(p->cookie_secret, "simulated secret", 16);
}

int sim_node_start(struct sim *s)
{
	struct node_params params;
	const char *why = "";

	s->node_life++;
	for (uint32_t c = 0; c < SIM_CHANNELS; c++) {
		s->channel[c].tag_present = false;
		memset(s->channel[c].pushed_seq, 0, sizeof(s->channel[c].pushed_seq));
	}
	s->node_started_ns = s->now_ns;
	node_params(s, &params);
	const int rc = node_create(&params, &s->node, &why);
	if (rc != 0)
		sim_fail(s, "node_create: %d %s", rc, why);
	sim_trace(s, "node starts, life %u", s->node_life);
	return rc;
}

void sim_node_stop(struct sim *s)
{
	uint64_t sums[CTR_COUNT];

	if (s->node == NULL)
		return;
	sim_trace(s, "node stops");
	role_take_control();
	node_counters(s->node, sums);
	role_drop_control();
	for (unsigned i = 0; i < CTR_COUNT; i++)
		s->totals[i] += sums[i];
	node_destroy(s->node);
	s->node = NULL;
	sim_net_drop_queues(s);
	if (s->dgrams != 0)
		sim_fail(s, "%lld datagrams leaked", (long long)s->dgrams);
}

static uint64_t members_ended(struct sim *s)
{
	uint64_t sums[CTR_COUNT];

	role_take_control();
	node_counters(s->node, sums);
	role_drop_control();
	return sums[CTR_END_OFFLINE] + sums[CTR_END_DENIED] + sums[CTR_END_ROUTED] +
		sums[CTR_END_SENDER_ONLY];
}

// Where fairness is looked at, work takes time, and no turn may do more of it than it is allowed.
static void work_takes_time(struct sim *s, uint32_t worker, uint32_t work, uint64_t before)
{
	const uint64_t members = members_ended(s) - before;

	s->busy_ns[worker] = s->now_ns + work * WORK_NS;
	if (members > SIM_TURN_MEMBERS)
		sim_fail(s, "I13: a turn expanded %llu members of %u", (unsigned long long)members,
			SIM_TURN_MEMBERS);
}

// One round: everybody who is lucky runs once, in an order of luck.
static uint32_t round_of_turns(struct sim *s)
{
	uint32_t work = 0;

	sim_net_step(s);
	for (uint32_t i = 0; i < s->p.workers && s->node != NULL; i++) {
		const uint32_t w = sim_below(s, s->p.workers);

		if (s->busy_ns[w] > s->now_ns)
			continue;
		const uint64_t before = s->p.starve ? members_ended(s) : 0;
		role_take_worker();
		const uint32_t done = node_worker_turn(node_worker_of(s->node, w), s->now_ns);
		role_drop_worker();
		work += done;
		if (s->p.starve)
			work_takes_time(s, w, done, before);
	}
	if (s->node != NULL && sim_chance(s, 600)) {
		role_take_control();
		work += node_control_step(s->node, s->now_ns);
		role_drop_control();
		sim_check_tags(s);
		if (sim_chance(s, 100))
			sim_check_limits(s);
	}
	if (sim_chance(s, 500))
		sim_meta_step(s);
	sim_clients_step(s);
	return work;
}

static void advance(struct sim *s, uint64_t limit_ns)
{
	uint64_t next = s->now_ns + 200 * NS_PER_US;
	const uint64_t net = sim_net_next_ns(s);

	if (net < next)
		next = net;
	if (next <= s->now_ns)
		next = s->now_ns + 1000;
	if (limit_ns > s->now_ns && next > limit_ns)
		next = limit_ns;
	s->now_ns = next;
}

void sim_run_until(struct sim *s, uint64_t until_ns)
{
	while (!s->failed && s->now_ns < until_ns) {
		round_of_turns(s);
		advance(s, until_ns);
	}
}

static bool all_answered(const struct sim *s)
{
	for (uint32_t i = 0; i < s->messages; i++)
		if (s->message[i].outcomes == 0)
			return false;
	return true;
}

// Nothing the node has begun is still open.
static bool node_idle(const struct sim *s)
{
	bool idle = true;

	role_take_control();
	for (uint32_t w = 0; w < s->p.workers; w++) {
		struct node_worker_stats stats;

		node_worker_stats(s->node, w, &stats);
		idle = idle && stats.fanout.messages == 0 && stats.delivery.inflight == 0 &&
			stats.delivery.backlog == 0 && stats.delivery.retries_due == 0;
	}
	role_drop_control();
	return idle;
}

// Faults stop; everything still open must end by itself within the longest deadline.
static void quiesce(struct sim *s)
{
	const uint64_t end = s->now_ns + 100 * NS_PER_S;

	s->quiet = true;
	for (uint32_t g = 0; g < s->p.gateways; g++)
		s->gateway[g].deaf = false;
	while (!s->failed && s->now_ns < end) {
		const uint32_t work = round_of_turns(s);

		if (work == 0 && s->packet_count == 0 && all_answered(s) && node_idle(s))
			break;
		advance(s, 0);
		// Nothing moves but timers: longer strides.
		if (work == 0 && s->packet_count == 0)
			s->now_ns += 800 * NS_PER_US;
	}
	if (!all_answered(s))
		sim_fail(s, "publishes without an outcome after quiescence");
	else if (!s->failed && !node_idle(s))
		sim_fail(s, "work is still open after quiescence");
	if (!s->failed)
		sim_check_idle(s);
	// Time for a gateway to notice that it had been given up.
	sim_run_until(s, s->now_ns + 4 * NS_PER_S);
}

// After all that, in a quiet world, a message to each channel must go through at once.
static void probe(struct sim *s)
{
	const uint32_t first = s->messages;

	if (s->p.tiny || s->failed)
		return;
	for (uint32_t c = 0; c < SIM_CHANNELS; c++)
		sim_story_publish(s, c, TAGCAST_ACK_GATEWAY, 100);
	sim_run_until(s, s->now_ns + 3 * NS_PER_S);
	for (uint32_t i = first; i < s->messages && !s->failed; i++) {
		const struct sim_message *m = &s->message[i];
		const struct sim_channel *c = &s->channel[m->channel];
		const bool exists = c->state[c->states - 1].exists;

		if (m->outcomes == 0 ||
			m->status != (exists ? TAGCAST_OK : TAGCAST_UNKNOWN_CHANNEL))
			sim_fail(s, "room-%u, which %s, answers %s in a quiet world", m->channel,
				exists ? "exists" : "does not exist",
				m->outcomes == 0 ? "nothing" : tagcast_status_name(m->status));
	}
}

static void open_keys(struct sim *s)
{
	memset(&s->keys, 0, sizeof(s->keys));
	if (!s->p.auth)
		return;
	s->keys.count = 1;
	s->keys.id[0] = 3;
	memset(s->keys.key[0], 0x5a, WIRE_KEY_BYTES);
}

static int world_open(struct sim *s, const struct sim_params *params)
{
	s->p = *params;
	s->random = params->seed * UINT64_C(0x2545f4914f6cdd1d) | 1;
	s->story = params->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	for (int i = 0; i < 8; i++) {
		next_of(&s->random);
		next_of(&s->story);
	}
	// Held for retries, in rings, spare; and what a burst brings.
	s->dgrams_max = s->p.tiny ? 400 : 20000;
	s->now_ns = NS_PER_S;
	s->node_addr = (struct net_addr){.ip = 0x0a000001, .port = 7000};
	s->message = calloc(SIM_MESSAGES_MAX, sizeof(*s->message));
	s->mutation = calloc(SIM_MUTATIONS_MAX, sizeof(*s->mutation));
	s->pushed = calloc(SIM_PUSHED, sizeof(*s->pushed));
	if (s->message == NULL || s->mutation == NULL || s->pushed == NULL)
		abort();
	for (uint32_t c = 0; c < SIM_CHANNELS; c++) {
		char name[16];
		const int len = snprintf(name, sizeof(name), "room-%u", c);

		channel_key_set(&s->channel[c].key, CHANNEL_GROUP, name, (uint8_t)len);
		s->channel[c].state = calloc(SIM_STATES_MAX, sizeof(struct sim_state));
		if (s->channel[c].state == NULL)
			abort();
		s->channel[c].states = 1;  // state 0: does not exist
		s->channel[c].state[0].end_ns = SIM_NEVER;
	}
	id_hash_seed(params->seed);
	open_keys(s);
	sim_net_open(s);
	if (sim_meta_open(s) != 0 || sim_clients_open(s) != 0)
		return 1;
	return sim_node_start(s);
}

static void world_close(struct sim *s)
{
	sim_meta_close(s);
	sim_net_close(s);
	for (uint32_t c = 0; c < SIM_CHANNELS; c++)
		free(s->channel[c].state);
	free(s->message);
	free(s->mutation);
	free(s->fence);
	free(s->pushed);
}

int sim_run(const struct sim_params *params, char *failure, size_t failure_bytes, uint64_t *hash)
{
	struct sim *s = calloc(1, sizeof(*s));

	if (s == NULL)
		abort();
	rcu_reader_register();
	if (wire_auth_init() != 0 || world_open(s, params) != 0)
		sim_fail(s, "the world does not start");
	if (params->slow_gateway)
		s->gateway[0].deaf = true;
	sim_run_until(s, s->now_ns + NS_PER_S);
	if (params->starve && !s->failed)
		sim_starve(s);
	for (uint32_t i = 0; i < params->actions && !s->failed; i++) {
		sim_story_act(s);
		sim_run_until(s, s->now_ns + sim_story_below(s, 20000) * NS_PER_US);
	}
	if (!s->failed)
		quiesce(s);
	probe(s);
	sim_node_stop(s);
	if (!s->failed)
		sim_check_end(s);
	const int rc = s->failed;
	snprintf(failure, failure_bytes, "%s", s->failure);
	for (unsigned i = 0; params->trace && i < CTR_COUNT; i++)
		if (s->totals[i] != 0)
			printf("%-28s %llu\n", counter_name((enum counter)i),
				(unsigned long long)s->totals[i]);
	*hash = s->trace_hash;
	sim_clients_close(s);
	if (params->trace)
		printf("seed %llu: %s; %u messages, %u mutations, %llu delivered, %llu suppressed\n",
			(unsigned long long)params->seed, rc == 0 ? "ok" : s->failure, s->messages,
			s->mutations, (unsigned long long)s->delivered,
			(unsigned long long)s->suppressed);
	world_close(s);
	rcu_reader_unregister();
	free(s);
	return rc;
}
