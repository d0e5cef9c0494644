/* SPDX-License-Identifier: BSD-3-Clause */
// What the side connections share: raft_conn.c reads and writes one, raft_peer.c keeps one to each member,
// raft_forward.c speaks over them for proposals and barriers, raft_change.c for changes of members.
// Context: the loop.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "raft_chain.h"
#include "raft_member.h"
#include "raft_pvt.h"
#include "raft_side.h"
#include "raft_transport.h"

#define SIDE_OUT_MAX (2u << 20)  // bytes a connection may have unsent; above it frames are refused
#define SIDE_INBOUND_MAX (CONS_MEMBERS_MAX + 16u)  // side connections taken; joiners need room too
#define SIDE_RETRY_MIN_MS 200u
#define SIDE_RETRY_MAX_MS 2000u
#define SIDE_TELL_NS UINT64_C(1000000000)  // history is told this often
#define SIDE_HEARD_NS UINT64_C(2500000000)  // a member silent for longer does not answer
#define SIDE_STALL_NS UINT64_C(1000000000)  // a request waits so long for room at the leader
#define SIDE_WAY_NS UINT64_C(20000000)  // this node's own proposals are waited for so long
#define FORWARD_NS UINT64_C(5000000000)  // then the outcome is unknown
#define FORWARD_CHANGE_NS UINT64_C(70000000000)  // the library tries 10 rounds of 5 s to catch up
#define FORWARD_PROPOSALS_MAX 8u  // at the leader and not yet seen applied here
#define FORWARD_BARRIERS_MAX 256u
#define JOIN_NS UINT64_C(15000000000)
#define JOIN_RETRY_NS UINT64_C(300000000)
#define JOINED_COUNT 16u

// One side connection. Freed in its close callback.
struct side_conn {
	struct side_conn *next, **link;  // in peers->conns; link NULL: closing
	struct raft_peers *p;
	struct uv_tcp_s *tcp;
	struct peer *peer;  // outbound: whose it is
	uint64_t peer_id;
	uint64_t serial;
	uint8_t *in;
	uint32_t in_len, in_cap;
	bool inbound, joins;  // joins: ours, to ask for membership
	uint64_t stalled_ns;  // the frame at the front of `in` waits since; 0: none
};

// One other member of the configuration, and our way to it.
struct peer {
	struct peer *next;
	struct raft_peers *p;
	uint64_t id;
	char address[CONS_ADDRESS_MAX];
	struct net_dial *dial;
	struct side_conn *out;
	uint64_t retry_ns, heard_ns;
	uint32_t retry_ms;
	bool listed;
};

// Whom a change of members is answered to.
struct change_reply {
	uint8_t kind;  // enum reply_kind
	uint64_t token;  // REPLY_TOKEN
	uint64_t serial, request;  // of the connection and of its frame
	uint64_t join_id, join_life;  // REPLY_JOIN
};
enum reply_kind { REPLY_NONE, REPLY_TOKEN, REPLY_MEMBER, REPLY_JOIN };

// A request of ours at another node.
struct forward {
	struct forward *next;
	uint8_t type;  // SIDE_PROPOSE, SIDE_BARRIER, SIDE_MEMBER
	uint64_t request;  // as in the frame
	uint64_t token;  // PROPOSE, BARRIER
	uint64_t serial;  // of the connection it went over
	uint64_t deadline_ns;
	bool relayed;  // MEMBER: of the change machine, which waits for the result
	struct change_reply reply;  // MEMBER
};

struct joined {
	uint64_t id, life;
};

// A barrier that a follower asked this leader for.
struct led_barrier {
	struct led_barrier *next;
	uint64_t id, serial, request;
};

struct raft_peers {
	struct raft_cons *c;
	struct peer *peers;
	struct side_conn *conns;
	struct forward *forwards;
	struct led_barrier *led;
	uint32_t inbound_count;
	uint32_t unstall_next;
	uint64_t own_seen, way_ns;  // own proposals when another's was taken last; giving way since
	uint64_t serial, request;  // last used
	uint64_t now_ns;
	uint64_t tell_ns, alarm_ns;
	// The configuration the list of peers was made from.
	const void *seen_servers;
	uint64_t seen_index, seen_uncommitted;
	uint32_t seen_count;

	// Change of members going on here; raft_change.c.
	struct member_machine machine;
	struct change_reply reply;
	struct raft_change change;
	struct raft_transfer
		transfer[4];  // used in turns: the library may still send one that timed out
	uint32_t transfer_next;
	bool library_done;
	int library_status;
	struct joined joined[JOINED_COUNT];  // let in lately, for those who ask again
	uint32_t joined_next;

	// This node asks to join; raft_change.c.
	uint64_t join_token;  // 0 with join_until_ns 0: not joining
	uint64_t join_until_ns, join_retry_ns;
	char join_via[CONS_ADDRESS_MAX];
	struct net_dial *join_dial;
	struct side_conn *join_conn;
	char join_why[SIDE_TEXT_MAX];

	struct chain chain;
};

// --- raft_conn.c and raft_peer.c -------------------------------------------------------------------------------------------

// Sends one frame. Returns: false when the connection has too much unsent, or there is no memory.
bool side_send(struct side_conn *conn, const struct side_frame *frame);
// Starts reading a proven stream. Takes it over in any case. Returns: NULL when there is no memory.
struct side_conn *side_conn_new(
	struct raft_peers *p, struct uv_tcp_s *tcp, uint64_t peer_id, bool inbound);
void side_conn_close(struct side_conn *conn);
// Frames that waited for room at this leader are looked at again; once a turn.
void side_unstall(struct raft_peers *p);
struct side_conn *side_conn_find(struct raft_peers *p, uint64_t serial);
// Our connection to the leader. Returns: NULL when none is known, it is this node, or there is no way.
struct side_conn *side_leader(struct raft_peers *p);
// Whether the configuration has this id.
bool side_is_member(const struct raft_peers *p, uint64_t id);
struct peer *side_peer(struct raft_peers *p, uint64_t id);

// --- raft_forward.c and raft_change.c ----------------------------------------------------------------------

enum side_taken { SIDE_TAKEN, SIDE_STALLED, SIDE_BROKEN };
// `conn` gave this frame. `waited`: it was stalled for too long, answer now.
enum side_taken forward_on_frame(
	struct side_conn *conn, const struct side_frame *frame, bool waited);
void forward_turn(struct raft_peers *p, bool changed);
void forward_discard(struct raft_peers *p);
// The connection is gone: what went over it has no answer.
void forward_conn_gone(struct raft_peers *p, uint64_t serial);
// Sends a change to the leader. Returns: false when there is no way now.
bool forward_change(struct raft_peers *p, const struct cons_change *change, uint64_t life,
	const struct change_reply *reply, bool relayed);

// A change asked for by `reply`, here or from elsewhere; answered by change_answer later or at once.
void change_submit(struct raft_peers *p, const struct cons_change *change, uint64_t life,
	const struct change_reply *reply, bool may_forward);
void change_answer(struct raft_peers *p, const struct change_reply *reply, enum cons_status status,
	const char *why);
// The new leader answered what the machine handed over.
void change_relayed(struct raft_peers *p, enum cons_status status, const char *why);
void change_turn(struct raft_peers *p);
void join_on_result(struct raft_peers *p, enum cons_status status, const char *why);
void join_conn_gone(struct raft_peers *p);
void join_discard(struct raft_peers *p);
