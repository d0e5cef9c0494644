/* SPDX-License-Identifier: BSD-3-Clause */
// Every counter of the fast process, one line each: a drop reason, an outcome, an event. Each worker and
// the control core own one block; the owner adds, anybody reads relaxed and sums. A datagram, a
// recipient and a message each end in exactly one counter of its kind.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

// X(enumerator, "name", "help"). Names are what ctl, metrics and tests show.
#define COUNTERS(X) \
	/* datagrams */ \
	X(CTR_RX, "rx_datagrams", "datagrams received by a worker") \
	X(CTR_RX_BYTES, "rx_bytes", "UDP payload bytes received") \
	X(CTR_TX, "tx_datagrams", "datagrams handed to the port") \
	X(CTR_TX_BYTES, "tx_bytes", "UDP payload bytes handed to the port") \
	/* drops of datagrams: wire */ \
	X(CTR_DROP_SHORT, "drop_short", "datagram shorter than its header or body says") \
	X(CTR_DROP_LENGTH, "drop_length", \
		"length field differs from the UDP length, or trailing bytes") \
	X(CTR_DROP_MAGIC, "drop_magic", "not our magic number") \
	X(CTR_DROP_VERSION, "drop_version", "unknown wire version") \
	X(CTR_DROP_TYPE, "drop_type", "unknown or misplaced message type") \
	X(CTR_DROP_FLAGS, "drop_flags", "unknown flag or non-zero reserved field") \
	X(CTR_DROP_FIELD, "drop_field", "a field outside its range") \
	X(CTR_DROP_REFLECTED, "drop_reflected", "datagram that carries this node's own id") \
	X(CTR_DROP_AUTH, "drop_auth", "missing or wrong authentication tag") \
	X(CTR_DROP_KEY, "drop_key", "unknown key id") \
	X(CTR_DROP_REPLAY, "drop_replay", "sequence already seen or too old") \
	X(CTR_DROP_SENDERS_FULL, "drop_senders_full", \
		"no room for another sender's replay window") \
	X(CTR_STATUS_UNKNOWN, "status_unknown", \
		"answers of peers with a status not known here, taken as retryable") \
	X(CTR_SENDER_SHARE, "sender_share", \
		"proven senders that must prove themselves anew: their address had its share") \
	X(CTR_DROP_SEGMENT, "drop_segment", "segment that overlaps, disagrees or is out of range") \
	X(CTR_DROP_REASSEMBLY_FULL, "drop_reassembly_full", \
		"no room for another incomplete frame") \
	X(CTR_DROP_REASSEMBLY_SHARE, "drop_reassembly_share", \
		"a sender, or all that proved nothing, had their share of incomplete frames") \
	X(CTR_DROP_REASSEMBLY_TIMEOUT, "drop_reassembly_timeout", "incomplete frames given up") \
	/* drops of frames: port */ \
	X(CTR_DROP_L2, "drop_l2", "frame for another MAC, own source MAC, or unknown ethertype") \
	X(CTR_DROP_VLAN, "drop_vlan", "wrong or missing VLAN tag") \
	X(CTR_DROP_IP, "drop_ip", "bad IPv4 header, version, length or address") \
	X(CTR_DROP_FRAGMENT, "drop_fragment", "IP fragments") \
	X(CTR_DROP_IP_CSUM, "drop_ip_csum", "bad IPv4 header checksum") \
	X(CTR_DROP_UDP_LEN, "drop_udp_len", "UDP length below 8 or beyond the packet") \
	X(CTR_DROP_UDP_CSUM, "drop_udp_csum", "bad UDP checksum") \
	X(CTR_DROP_PORT, "drop_port", "UDP port outside the node's range") \
	X(CTR_DROP_ARP, "drop_arp", "malformed ARP, or a sender that cannot be on this link") \
	X(CTR_DROP_PROTO, "drop_proto", \
		"IPv4 packets that are neither UDP nor a sound ICMP echo request") \
	X(CTR_ARP, "arp_frames", "ARP frames handled") \
	X(CTR_ECHO, "echo_answers", "ICMP echo requests answered") \
	X(CTR_DROP_TX_NO_NEIGH, "drop_tx_no_neigh", "no link address for the next hop") \
	X(CTR_DROP_TX_FULL, "drop_tx_full", "port refused the datagram after bounded retries") \
	X(CTR_DROP_NO_BUFFER, "drop_no_buffer", "no free datagram buffer") \
	/* hand-off */ \
	X(CTR_HANDOFF, "handoff", "datagrams handed to another worker") \
	X(CTR_DROP_HANDOFF_FULL, "drop_handoff_full", "ring to another worker full") \
	X(CTR_DROP_CONTROL_FULL, "drop_control_full", "ring to the control core full") \
	X(CTR_DROP_REPLY_FULL, "drop_reply_full", "ring from the control core full") \
	/* publishes: each ends in exactly one of the pub_ results below */ \
	X(CTR_PUBLISH, "publishes", "PUBLISH frames taken by the channel's worker") \
	X(CTR_PUB_OK, "pub_ok", "publishes that ended ok") \
	X(CTR_PUB_DUPLICATE, "pub_duplicate", "publishes answered from the idempotence window") \
	X(CTR_PUB_UNKNOWN_CHANNEL, "pub_unknown_channel", \
		"publishes to a channel that does not exist") \
	X(CTR_PUB_BUSY, "pub_busy", "publishes refused: a limit was reached") \
	X(CTR_PUB_TOO_LARGE, "pub_too_large", "publishes refused: payload over the limit") \
	X(CTR_PUB_RETRYABLE, "pub_retryable", "publishes refused: node cannot decide now") \
	X(CTR_PUB_EXPIRED, "pub_expired", \
		"publishes whose deadline passed before they were resolved") \
	X(CTR_PUB_NEED_HELLO, "pub_need_hello", \
		"publishes from an address that has not echoed a nonce") \
	X(CTR_PUB_BAD, "pub_bad", "publishes with an invalid field") \
	X(CTR_PUB_INCOMPLETE, "pub_incomplete", \
		"publishes ended without every acknowledgement asked for") \
	X(CTR_PUB_PENDING, "pub_pending", "repeats of a publish whose outcome is still to come") \
	X(CTR_PARKED, "parked", "publishes that waited for a tag") \
	X(CTR_TAG_HIT, "tag_hit", "publishes resolved by the current tag at once") \
	X(CTR_TAG_STALE, "tag_stale", "lookups that found a tag older than the channel") \
	X(CTR_TAG_MISSING, "tag_missing", "lookups that found no tag") \
	/* recipients: every member of every admitted message ends in exactly one */ \
	X(CTR_MEMBERS, "members", "members of admitted messages") \
	X(CTR_END_OFFLINE, "end_offline", "members without a route") \
	X(CTR_END_DENIED, "end_denied", "members on the deny list") \
	X(CTR_END_ROUTED, "end_routed", "members with at least one route pushed") \
	X(CTR_END_SENDER_ONLY, "end_sender_only", \
		"members whose only session was the sender's own") \
	/* routes: every route pushed ends in exactly one */ \
	X(CTR_ROUTES, "routes", "routes pushed for the first time") \
	X(CTR_ROUTE_ECHO, "route_echo", "sender's own sessions suppressed") \
	X(CTR_ROUTE_SENT, "route_sent", "routes of ack class none, ended by being sent") \
	X(CTR_ROUTE_ACCEPTED, "route_accepted", "routes ended by the gateway's acceptance") \
	X(CTR_ROUTE_ACKED, "route_acked", "routes ended by the client's receipt") \
	X(CTR_ROUTE_DROPPED, "route_dropped", "routes the gateway refused for good") \
	X(CTR_ROUTE_SESSION_GONE, "route_session_gone", "routes ended: the session closed") \
	X(CTR_ROUTE_GATEWAY_GONE, "route_gateway_gone", \
		"routes ended: the gateway left or restarted") \
	X(CTR_ROUTE_RETRY_CAP, "route_retry_cap", "routes ended: attempts exhausted") \
	X(CTR_ROUTE_DEADLINE, "route_deadline", "routes ended: deadline passed") \
	X(CTR_ROUTE_OVERFLOW, "route_overflow", "routes ended: the gateway's backlog was full") \
	X(CTR_ROUTE_NO_BUFFER, "route_no_buffer", "routes ended: no datagram buffer") \
	/* pushes */ \
	X(CTR_PUSH, "pushes", "push frames sent for the first time") \
	X(CTR_PUSH_RESENT, "pushes_resent", "push frames sent again") \
	X(CTR_ROUTE_RETRIED, "routes_retried", \
		"routes pushed again after a retryable answer or a missing receipt") \
	X(CTR_PUSH_ACK, "push_acks", "push acknowledgements matched") \
	X(CTR_PUSH_ACK_UNKNOWN, "push_ack_unknown", "acknowledgements of unknown or ended pushes") \
	X(CTR_PUSH_ACK_REPEATED, "push_ack_repeated", \
		"acknowledgements of pushes already acknowledged") \
	X(CTR_PUSH_ACK_BAD, "push_ack_bad", \
		"acknowledgements whose counts or positions are wrong") \
	X(CTR_RECEIPT, "receipts", "receipts matched") \
	X(CTR_RECEIPT_UNKNOWN, "receipt_unknown", "receipts of unknown or ended pushes") \
	X(CTR_RESEND_BUDGET, "resend_budget", "resends put off by the resend budget") \
	/* control */ \
	X(CTR_HELLO, "hellos", "HELLO frames answered") \
	X(CTR_HEARTBEAT, "heartbeats", "gateway heartbeats") \
	X(CTR_GATEWAY_UP, "gateways_up", "gateway incarnations registered") \
	X(CTR_GATEWAY_DOWN, "gateways_down", "gateway incarnations ended") \
	X(CTR_ANNOUNCE, "announces", "session announcements applied") \
	X(CTR_WITHDRAW, "withdraws", "session withdrawals applied") \
	X(CTR_ANNOUNCE_GAP, "announce_gap", "announce frames refused: out of sequence") \
	X(CTR_ANNOUNCE_UNKNOWN, "announce_unknown", "announce frames of unregistered gateways") \
	X(CTR_ANNOUNCE_LIMIT, "announce_limit", "announcements refused: a limit was reached") \
	X(CTR_TAG_BUILD, "tag_builds", "tags built from the store") \
	X(CTR_TAG_BUILD_FAILED, "tag_build_failed", "tag builds that failed") \
	X(CTR_TAG_EDIT, "tag_edits", "tags edited in place of a build") \
	X(CTR_TAG_EXPIRED, "tag_expired", "tags removed after their idle time") \
	X(CTR_DELTA, "deltas", "membership deltas applied") \
	X(CTR_RESYNC, "resyncs", "full rebuilds of the channel table") \
	X(CTR_LIMIT_UIDS, "limit_uids", "UIDs refused: the UID table is full") \
	X(CTR_LIMIT_CHANNELS, "limit_channels", "channels refused: the channel table is full") \
	X(CTR_LIMIT_PARKED_CHANNEL, "limit_parked_per_channel", \
		"publishes refused: their channel has its share of parked messages") \
	X(CTR_LIMIT_BACKLOG, "limit_backlog", "pushes refused: their gateway's backlog is full") \
	X(CTR_LIMIT_TAG_MEMORY, "limit_tag_memory", "tag builds refused: tag memory is used up") \
	X(CTR_LIMIT_GATEWAYS, "limit_gateways", \
		"HELLO of gateways refused: the gateway table is full")

enum counter {
#define X(id, name, help) id,
	COUNTERS(X)
#undef X
		CTR_COUNT
};

// One thread's counters; only its owner adds.
struct counters {
	_Alignas(64) _Atomic uint64_t v[CTR_COUNT];
};

// Adds to an own counter. Context: the owner of `c`; a plain load and store, no locked instruction.
static inline void counter_add(struct counters *c, enum counter id, uint64_t n)
{
	atomic_store_explicit(&c->v[id], atomic_load_explicit(&c->v[id], memory_order_relaxed) + n,
		memory_order_relaxed);
}

static inline uint64_t counter_get(const struct counters *c, enum counter id)
{
	return atomic_load_explicit(&c->v[id], memory_order_relaxed);
}

const char *counter_name(enum counter id);
const char *counter_help(enum counter id);
