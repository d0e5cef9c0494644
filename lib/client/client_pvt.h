/* SPDX-License-Identifier: BSD-3-Clause */
// The inside of a client, for lib/client only. Everything runs on the client's thread.
//
//   client_core.c     create, destroy, checks of a datagram, sending, the timers together
//   client_hello.c    HELLO, the registration and its loss, heartbeat
//   client_publish.c  publishes in flight, resends, outcomes
//   client_gateway.c  sessions and the announce stream
//   client_push.c     pushes in, verdicts, PUSH_ACK
//   client_receipt.c  receipts of clients, batched by push
//
// A registration is (our boot id, the node's boot id). When it is lost the boot id grows by one, so
// that nothing that still travels from before can touch what comes after: the announce stream starts
// again from 1 and every open session is announced again.
#pragma once

#include "base_id.h"
#include "base_time.h"
#include "client_awaiting.h"
#include "client_core.h"
#include "client_seen.h"
#include "wire.h"
#include "wire_frame.h"
#include "wire_lane.h"

#define CLIENT_NEVER UINT64_MAX

// --- link to the node (client_hello.c) ----------------------------------------------------------------

struct client_link {
	bool up;
	uint64_t boot;  // ours
	uint64_t epoch;  // of the registration: grows with every HELLO answered OK; 0: none yet
	uint64_t epochs;  // given out
	uint64_t cookie;
	uint64_t node_id, node_boot;
	uint16_t port_base, mtu;
	uint8_t workers;
	uint64_t topology_version;
	uint64_t heard_ns;  // last datagram that passed all checks
	uint64_t hello_due_ns;
	uint64_t hello_first_ns;  // of this round
	uint32_t hello_tries;
	uint64_t heartbeat_ns;
	uint64_t beat_due_ns;
	uint64_t beat_stamp;  // of the last heartbeat sent; 0: it has been answered
	uint64_t beat_confirmed;  // stream position confirmed when it was sent
	uint32_t beat_tries;
	struct wire_lane lane[WORKERS_MAX];  // ours, by destination worker
	struct wire_replay replay[WORKERS_MAX];  // the node's, by its lane
};

// --- publishes (client_publish.c) ---------------------------------------------------------------------

struct client_publish {
	uint64_t request;  // 0: free
	struct wire_publish m;  // from_uid and payload point into `bytes`
	uint8_t *bytes;
	uint32_t room;
	uint64_t due_ns;  // next send, or the deadline while it waits for the link
	uint64_t deadline_ns;
	uint64_t node_deadline_ns;  // 0: the node's default
	uint64_t sent_ns;
	uint64_t epoch;  // link epoch of the last send
	uint32_t sends;  // in all
	uint32_t unanswered;  // sends since the last answer
	uint32_t refusals;  // answers that ask to try again
	uint32_t frame_id;
	uint32_t heap_at;
	int refused;  // enum wire_status of the last answer, 0: none since the last send
	bool waiting;  // for the link
	bool echo_session;
	void *user;
	uint32_t next_free;
};

struct client_publishes {
	struct client_publish *slot;
	uint32_t *heap;  // slots by due_ns
	uint32_t max, used, free;
	uint64_t serial;
	uint32_t frame_id;
	uint64_t rehello_ns;  // last time silence made us say hello again
};

// --- sessions and announcements (client_gateway.c) ----------------------------------------------------

enum client_session_state { SESSION_FREE = 0, SESSION_OPEN = 1, SESSION_CLOSING = 2 };

struct client_session {
	void *user;
	uint8_t *uid;
	uint32_t gen;
	uint32_t next_free;
	uint8_t uid_len;
	uint8_t state;
	bool queued;  // in the dirty queue
	bool known;  // the node may know it in this registration
	bool refused;  // announced and refused; tried again later
};

#define CLIENT_SESSION_CHUNK 4096u
#define CLIENT_SESSION_CHUNKS ((1u << SESSION_SLOT_BITS) / CLIENT_SESSION_CHUNK)
#define CLIENT_ANNOUNCE_WINDOW 32u

struct client_announce_frame {
	uint8_t *body;
	uint32_t len;
	uint16_t count;
};

struct client_gateway {
	struct client_session *chunk[CLIENT_SESSION_CHUNKS];
	uint32_t slots;  // slots ever used, slot 0 is none
	uint32_t free;
	uint32_t open;
	uint32_t *dirty;  // ring of slots
	uint32_t dirty_mask, dirty_head, dirty_count;
	// The stream: frames base..next-1 are unconfirmed, base..sent-1 of them are out.
	struct client_announce_frame frame[CLIENT_ANNOUNCE_WINDOW];
	uint64_t base, sent, next;  // from 1; base 0: no stream
	uint32_t unconfirmed;  // entries in those frames
	uint64_t resend_ns;
	uint64_t back_ns;  // last time a gap answer made us go back
	uint32_t resends;
	uint64_t refused_ns;  // when refused sessions are announced again
	uint32_t differs;  // heartbeats in a row in which the node counted other sessions
};

// --- receipts (client_receipt.c) ----------------------------------------------------------------------

#define CLIENT_RECEIPT_BATCH 4096u

struct client_receipt {
	uint32_t push_id, push_gen;
	uint16_t position;
	uint8_t worker;
};

struct client_receipts {
	struct client_receipt batch[CLIENT_RECEIPT_BATCH];
	uint32_t count;
};

// Acknowledgements of segmented pushes, for their repeated segments.
#define CLIENT_ACK_MEMORY 256u

struct client_ack_memory {
	uint8_t *body;
	uint32_t len;
	uint32_t push_id, push_gen;
	uint64_t boot;
	uint8_t worker;
};

struct client_core {
	struct client_core_config config;
	struct client_core_io io;
	struct tagcast_callbacks callbacks;
	uint64_t now_ns;
	uint64_t random;
	struct client_link link;
	struct client_publishes publishes;
	struct client_gateway *gateway;  // NULL: a publisher only; so the rest down to `acks`
	struct client_seen *seen;
	struct client_awaiting *awaiting;
	struct wire_reassembly *frames;
	struct client_receipts *receipts;
	struct client_ack_memory *acks;
	uint32_t acks_at;
	struct tagcast_stats stats;
	uint16_t retryable[FRAME_ROUTES_MAX], dropped[FRAME_ROUTES_MAX];
	uint8_t tx[MTU_MAX];  // the datagram being built
	uint8_t frame[FRAME_BYTES_MAX];  // the body of a large publish being built
};

// client_core.c
// A body to be sent to the node is built in place: begin, wire_put_x, client_send. Worker: 0..workers-1.
struct wire_buf client_send_begin(struct client_core *core, uint32_t worker);
void client_send(struct client_core *core, uint32_t worker, uint8_t type, uint32_t body);
// Uniform in 0..below-1.
uint64_t client_random(struct client_core *core, uint64_t below);

// client_hello.c
void client_link_init(struct client_core *core);
void client_link_poll(struct client_core *core);
uint64_t client_link_next_ns(const struct client_core *core);
// The node does not answer, or asks for HELLO: say it again, the registration may still hold.
void client_link_again(struct client_core *core);
// The registration is gone: a new boot id, hello, announce all.
void client_link_lost(struct client_core *core);
void client_on_hello_ack(
	struct client_core *core, const struct wire_header *header, struct wire_view body);
void client_on_heartbeat_ack(struct client_core *core, struct wire_view body);

// client_publish.c
int client_publishes_init(struct client_core *core);
void client_publishes_fini(struct client_core *core);
void client_publishes_poll(struct client_core *core);
uint64_t client_publishes_next_ns(const struct client_core *core);
void client_publishes_link_up(struct client_core *core);
void client_on_publish_ack(struct client_core *core, struct wire_view body);

// client_gateway.c
int client_gateway_init(struct client_core *core);
void client_gateway_fini(struct client_core *core);
void client_gateway_poll(struct client_core *core);
uint64_t client_gateway_next_ns(const struct client_core *core);
// The registration is lost: nothing is in flight any more.
void client_gateway_stop(struct client_core *core);
// Starts the stream of a new registration: everything open is announced.
void client_gateway_restart(struct client_core *core);
// The topology changed: everything open is announced again in the stream that runs.
void client_gateway_repeat(struct client_core *core);
// What the node says it expects next. False: it has forgotten what it had confirmed before.
bool client_gateway_expected(struct client_core *core, uint64_t confirmed, uint64_t expected);
// The node's count of our sessions: a lasting difference (a refusal whose answer was lost) is repaired by
// announcing everything again.
void client_gateway_compare(struct client_core *core, uint32_t sessions);
void client_on_announce_ack(struct client_core *core, struct wire_view body);
// The open session `session` names, with its slot; NULL when there is none.
struct client_session *client_session_of(
	const struct client_core *core, uint32_t session, uint32_t *slot);
// The session in a slot, open with this generation; NULL when there is none.
struct client_session *client_session_at(
	const struct client_core *core, uint32_t slot, uint32_t gen);
uint32_t client_session_handle(uint32_t slot, uint32_t gen);

// client_push.c
// `attempt`: of the frame the push came in; one in a datagram says it itself.
void client_on_push(struct client_core *core, uint32_t worker, struct wire_view body,
	bool segmented, uint8_t attempt);
void client_on_segment(struct client_core *core, const struct wire_header *header, uint32_t worker,
	struct wire_view body);
uint64_t client_delivery_print(
	uint64_t channel_hash, uint64_t message_id, uint32_t slot, uint32_t gen);

// client_receipt.c
void client_receipt_add(struct client_core *core, const struct client_await *await);
void client_receipts_flush(struct client_core *core);
