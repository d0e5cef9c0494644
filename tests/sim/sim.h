/* SPDX-License-Identifier: BSD-3-Clause */
// The simulator: one node, its meta process, gateways and publishers, one seeded network and one clock,
// all stepped from one loop. Everything random comes from the seed, so a seed replays exactly.
//
//   sim_main.c     command line, seeds, result line
//   sim_world.c    the loop: time, who runs next, quiescence
//   sim_net.c      datagrams: loss, duplication, delay, reordering, garbage; the node's dgram_ops
//   sim_meta.c     store, consensus, feed; crash and restart of the meta process
//   sim_clients.c  gateways and publishers over client_core
//   sim_story.c    what happens next: publishes, mutations, crashes, strangers
//   sim_starve.c   one huge channel and one deaf gateway beside small channels
//   sim_check.c    the model and the invariants
//   sim_wire.c     what the node's own datagrams say: fences, repeats, order, amplification
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client_core.h"
#include "node.h"
#include "store_map.h"
#include "wire.h"

#define SIM_UIDS 96u
#define SIM_CHANNELS 6u
#define SIM_GATEWAYS 4u
#define SIM_PUBLISHERS 2u
#define SIM_STATES_MAX 512u    // versions of one channel's membership
#define SIM_MESSAGES_MAX 512u
#define SIM_SESSIONS_MAX 512u  // of one gateway, over its life
#define SIM_MUTATIONS_MAX 512u
#define SIM_UNSURE_MAX 64u
#define SIM_NEVER UINT64_MAX
#define SIM_TURN_MEMBERS 16u  // of a turn, where fairness is looked at
#define SIM_STAGE_COMMITS 24u  // log entries after which an idle stage is dropped

struct sim_set {
	uint64_t bits[2];
};
static inline bool sim_has(const struct sim_set *s, uint32_t uid)
{
	return s->bits[uid / 64] >> uid % 64 & 1;
}
static inline void sim_put(struct sim_set *s, uint32_t uid, bool on)
{
	if (on)
		s->bits[uid / 64] |= UINT64_C(1) << uid % 64;
	else
		s->bits[uid / 64] &= ~(UINT64_C(1) << uid % 64);
}

// How this seed's world is.
struct sim_params {
	uint64_t seed;
	uint32_t workers, gateways, publishers;
	uint32_t loss_permille, dup_permille, reorder_permille, garbage_permille;
	uint64_t delay_min_ns, delay_max_ns;
	uint64_t ttl_ns;
	bool auth, crashes, slow_gateway;
	bool strangers;     // datagrams of peers that nobody knows
	bool jumps;         // the clock goes on by seconds at once
	bool store_faults;  // the store's backend fails now and then
	bool tiny;          // limits of the node so small that all of them are reached
	bool starve;        // a quiet network, one huge channel, one deaf gateway
	bool perfect;       // datagrams come twice at worst, nobody closes, stops or hesitates
	uint32_t actions;
	bool trace;
	bool hash;          // keep a hash of the trace
};

// One version of a channel's membership and when it may have been in use.
struct sim_state {
	struct sim_set members, denied;
	bool exists;
	uint64_t smv;
	uint64_t begin_ns;  // its mutation was proposed
	uint64_t end_ns;    // the next mutation has returned success
};
struct sim_channel {
	struct channel_key key;
	struct sim_state *state;  // SIM_STATES_MAX
	uint32_t states;
	// what was seen of its tag, at the last look
	uint8_t tag_key[16];
	uint64_t tag_version, tag_smv;
	bool tag_present;
	uint32_t removals;  // of the channel; a re-created one starts a new sequence
	uint64_t returned_smv;  // of the newest mutation that returned success
	uint64_t stage_index;   // log index of the last chunk of an open stage; 0: none
	uint64_t pushed_seq[SIM_GATEWAYS];  // last one pushed in order
};

// A fence that was published, by the node of one life.
struct sim_fence {
	uint8_t key[16];
	uint64_t version, smv;
	uint32_t channel, members, life;
};

struct sim_mutation {
	bool open;       // somebody waits for its return
	bool returned;
	bool applied;    // its result stands in `result`
	bool stage_failed;
	uint8_t op, list;
	uint32_t channel;
	struct sim_set set;
	uint64_t proposed_ns, commit;
	uint32_t state;  // index made, 0 when nothing changed
	uint32_t chunks, chunks_sent;  // of a large one; 0: in one command
	uint32_t base_unique;
	uint64_t base;                 // of its de-duplication keys
	struct store_result result;
};

struct sim_session {
	uint32_t uid, handle;
	uint64_t opened_ns, confirmed_ns, closed_ns;
	uint64_t got[SIM_MESSAGES_MAX / 64];
	uint64_t last_seq[SIM_CHANNELS];
};
struct sim_gateway {
	struct client_core *core;
	struct net_addr addr;
	uint64_t boot, started_ns;
	uint32_t life;
	bool deaf;  // takes nothing: a failing gateway
	// Times in which the node may rightly have given this gateway up: from the heartbeats that were
	// lost to the registration that mended it.
	struct {
		uint64_t from_ns, to_ns;
	} unsure[SIM_UNSURE_MAX];
	uint32_t unsures;
	struct sim_session *session;  // SIM_SESSIONS_MAX
	uint32_t sessions;
};
struct sim_publisher {
	struct client_core *core;
	struct net_addr addr;
};
struct sim_message {
	uint64_t id;
	uint32_t first;  // the message this one repeats; itself otherwise
	bool repeated;   // published again
	uint32_t channel, publisher;
	enum tagcast_ack ack;
	uint32_t payload, echo_gateway, echo_session;  // echo_session UINT32_MAX: none
	uint64_t sent_ns, outcome_ns;
	int status;
	uint32_t outcomes;
	uint32_t node_life;  // when it was sent
	uint64_t smv_at_send;
	uint64_t first_got_ns;
	// the first answer the node gave, in the life it gave it in
	struct wire_publish_ack answer;
	uint32_t answer_life;
};

struct sim;
struct sim_packet;

struct sim {
	struct sim_params p;
	uint64_t random, story;  // of the world and of what happens in it
	uint64_t trace_hash;
	uint64_t now_ns;
	bool failed;
	char failure[400];
	// network
	struct sim_packet *packets;
	uint32_t packet_count, packet_max;
	uint64_t packet_seq;
	int64_t dgrams, dgrams_max;  // alive in the node's hands; most there may be
	uint64_t stranger_in, stranger_out;  // bytes
	uint64_t repeats;                    // datagrams that came to the node a second time
	uint64_t busy_ns[WORKERS_MAX];       // until when a worker's turn takes
	struct net_addr node_addr;
	bool quiet;      // no faults any more
	struct sim_queue *queue[WORKERS_MAX];
	// node
	struct node *node;
	uint32_t node_life;
	uint64_t node_started_ns;
	struct wire_keys keys;
	uint64_t totals[CTR_COUNT];
	// meta
	struct sim_meta *meta;
	struct sim_mutation *mutation;  // SIM_MUTATIONS_MAX
	uint32_t mutations;
	// clients
	struct sim_gateway gateway[SIM_GATEWAYS];
	struct sim_publisher publisher[SIM_PUBLISHERS];
	struct sim_channel channel[SIM_CHANNELS];
	struct sim_message *message;  // SIM_MESSAGES_MAX
	uint32_t messages;
	uint64_t delivered, suppressed;
	// what was seen of the node
	struct sim_fence *fence;
	uint32_t fences, fence_max;
	uint64_t *pushed;  // set of what was pushed first, SIM_PUSHED
	uint32_t pushed_count;
};
#define SIM_PUSHED (1u << 19)
#define SIM_STRANGER_IP 0x0a000300u

// sim_world.c. Returns: 0 when every invariant held; else 1 with sim->failure set.
// *hash: of the trace, when asked for.
int sim_run(const struct sim_params *params, char *failure, size_t failure_bytes, uint64_t *hash);
uint64_t sim_random(struct sim *s);
uint32_t sim_below(struct sim *s, uint32_t n);            // 0..n-1
bool sim_chance(struct sim *s, uint32_t permille);
// The same for the story, which is independent of what the world does with it.
uint32_t sim_story_below(struct sim *s, uint32_t n);
bool sim_story_chance(struct sim *s, uint32_t permille);
void sim_run_until(struct sim *s, uint64_t until_ns);
void sim_trace(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int sim_node_start(struct sim *s);
void sim_node_stop(struct sim *s);

// sim_net.c
void sim_net_send(struct sim *s, struct net_addr from, struct net_addr to, const uint8_t *bytes,
	uint16_t len);
uint64_t sim_net_next_ns(const struct sim *s);
void sim_net_step(struct sim *s);  // hands over what is due
void sim_net_open(struct sim *s);
void sim_net_close(struct sim *s);
void sim_net_drop_queues(struct sim *s);  // the node died
// A datagram to the node, past loss and delay.
void sim_net_inject(struct sim *s, struct net_addr from, struct net_addr to, const uint8_t *bytes,
	uint16_t len);
extern const struct dgram_ops sim_dgram_ops;

// sim_meta.c
int sim_meta_open(struct sim *s);
void sim_meta_close(struct sim *s);
void sim_meta_step(struct sim *s);
void sim_meta_crash(struct sim *s);
// Proposes a mutation, or again one whose outcome is not known. Returns: false: there is no meta process.
bool sim_meta_propose(struct sim *s, uint32_t mutation);
extern const struct node_source_ops sim_source_ops;

// sim_clients.c
int sim_clients_open(struct sim *s);
void sim_clients_close(struct sim *s);
void sim_clients_step(struct sim *s);
uint64_t sim_clients_next_ns(const struct sim *s);
void sim_client_rx(struct sim *s, struct net_addr to, const uint8_t *bytes, uint16_t len,
	struct net_addr from);
int sim_gateway_restart(struct sim *s, uint32_t g);
void sim_gateway_unsure(struct sim *s, uint32_t g, uint64_t from_ns, uint64_t to_ns);
void sim_uid_name(uint32_t uid, char name[16]);

// sim_story.c
void sim_story_act(struct sim *s);
struct sim_session *sim_story_open(struct sim *s, uint32_t g, uint32_t uid);
struct sim_message *sim_story_publish(struct sim *s, uint32_t channel, enum tagcast_ack ack,
	uint32_t payload);
// A datagram of a peer that nobody knows.
void sim_story_stranger(struct sim *s);
// What a message carries.
void sim_story_payload(uint64_t id, uint8_t *payload, uint32_t bytes);

// sim_starve.c
void sim_starve(struct sim *s);

// sim_wire.c
void sim_wire_out(struct sim *s, struct net_addr to, const uint8_t *bytes, uint16_t len);
const struct sim_fence *sim_wire_fence(const struct sim *s, uint32_t channel, const uint8_t *key,
	uint64_t version);

// sim_check.c
void sim_check_applied(struct sim *s, uint32_t mutation, uint64_t index,
	const struct store_result *result);
void sim_check_chunk(struct sim *s, uint32_t mutation, uint64_t index,
	const struct store_result *result);
void sim_check_returned(struct sim *s, uint32_t mutation);
void sim_check_deliver(struct sim *s, uint32_t g, struct sim_session *session,
	const struct tagcast_message *m);
void sim_check_tags(struct sim *s);
void sim_check_limits(struct sim *s);
void sim_check_idle(struct sim *s);
void sim_check_outcome(struct sim *s, const struct sim_message *m,
	const struct tagcast_outcome *outcome);
void sim_check_end(struct sim *s);
