/* SPDX-License-Identifier: BSD-3-Clause */
// One line of text for a datagram, whatever is in it. Reads only what the parsers accepted. Not for
// workers: it formats. Any thread.
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "wire_node.h"

#define ITEMS_MAX 8u  // entries of a list shown; the rest is counted
#define BYTES_MAX 16u  // payload bytes shown

struct text {
	char *p;
	size_t size;
	size_t len;
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	if (t->len + 1 >= t->size)
		return;
	va_start(args, format);
	n = vsnprintf(t->p + t->len, t->size - t->len, format, args);
	va_end(args);
	if (n > 0)
		t->len += (size_t)n;
	if (t->len + 1 > t->size)
		t->len = t->size - 1;
}

// An id in quotes; what is not plain ASCII as \xhh.
static void add_id(struct text *t, const char *name, struct id_view id)
{
	add(t, " %s=\"", name);
	for (uint32_t i = 0; i < id.len; i++) {
		const uint8_t c = id.bytes[i];

		if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\')
			add(t, "%c", c);
		else
			add(t, "\\x%02x", c);
	}
	add(t, "\"");
}

static void add_bytes(struct text *t, const char *name, struct wire_view v)
{
	add(t, " %s=%" PRIu32 "[", name, v.len);
	for (uint32_t i = 0; i < v.len && i < BYTES_MAX; i++)
		add(t, "%02x", v.p[i]);
	add(t, v.len > BYTES_MAX ? "...]" : "]");
}

static int print_hello(struct text *t, struct wire_view body)
{
	static const char *const roles[] = {"", "publisher", "gateway", "node"};
	struct wire_hello m;
	const int bad = wire_get_hello(body, &m);

	if (bad == 0)
		add(t, " role=%s versions=%u-%u mtu=%u cookie=%016" PRIx64, roles[m.role],
			m.version_min, m.version_max, m.mtu, m.cookie);
	return bad;
}

static int print_hello_ack(struct text *t, struct wire_view body)
{
	struct wire_hello_ack m;
	const int bad = wire_get_hello_ack(body, &m);

	if (bad == 0)
		add(t,
			" status=%s cookie=%016" PRIx64 " node=%" PRIu64 "/%" PRIx64
			" ports=%u+%u version=%u mtu=%u payload_max=%" PRIu32
			" heartbeat_ms=%" PRIu32 " topology=%" PRIu64,
			wire_status_name(m.status), m.cookie, m.node_id, m.node_boot, m.port_base,
			m.workers, m.version, m.mtu, m.payload_max, m.heartbeat_ms,
			m.topology_version);
	return bad;
}

static int print_heartbeat(struct text *t, struct wire_view body)
{
	struct wire_heartbeat m;
	const int bad = wire_get_heartbeat(body, &m);

	if (bad == 0)
		add(t, " stamp=%" PRIu64 " sessions=%" PRIu32, m.stamp, m.sessions);
	return bad;
}

static int print_heartbeat_ack(struct text *t, struct wire_view body)
{
	struct wire_heartbeat_ack m;
	const int bad = wire_get_heartbeat_ack(body, &m);

	if (bad == 0)
		add(t,
			" status=%s stamp=%" PRIu64 " topology=%" PRIu64 " next=%" PRIu64
			" sessions=%" PRIu32,
			wire_status_name(m.status), m.stamp, m.topology_version, m.next_expected,
			m.sessions);
	return bad;
}

static int print_announce(struct text *t, struct wire_view body)
{
	struct wire_announce m;
	struct wire_session s;
	const int bad = wire_get_announce(body, &m);

	if (bad != 0)
		return bad;
	add(t, " stream_seq=%" PRIu64 " count=%u", m.stream_seq, m.count);
	for (uint32_t i = 0; wire_announce_next(&m.entries, &s); i++) {
		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		add(t, " %c%" PRIu32 ".%" PRIu32, s.op == WIRE_SESSION_OPEN ? '+' : '-', s.slot,
			s.gen);
		add_id(t, "uid", s.uid);
	}
	return 0;
}

static int print_announce_ack(struct text *t, struct wire_view body)
{
	struct wire_announce_ack m;
	const int bad = wire_get_announce_ack(body, &m);

	if (bad != 0)
		return bad;
	add(t, " status=%s stream_seq=%" PRIu64 " next=%" PRIu64 " rejected=%u",
		wire_status_name(m.status), m.stream_seq, m.next_expected, m.rejected);
	for (uint32_t i = 0; 4 * i < m.rejects.len; i++) {
		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		add(t, " %u:%s", wire_position(m.rejects, 2 * i),
			wire_status_name(wire_position(m.rejects, 2 * i + 1)));
	}
	return 0;
}

static const char *const acks[] = {"none", "gateway", "client"};

static int print_publish(struct text *t, struct wire_view body)
{
	struct wire_publish m;
	const int bad = wire_get_publish(body, &m);

	if (bad != 0)
		return bad;
	add(t, " request=%" PRIu64 " message=%" PRIu64 " ack=%s redirect=%u deadline_ms=%" PRIu32,
		m.request_id, m.message_id, acks[m.ack], m.redirect, m.deadline_ms);
	add(t, " type=%u", m.channel.type);
	add_id(t, "channel", channel_key_id(&m.channel));
	add_id(t, "from", m.from_uid);
	if (m.sender_gateway != 0)
		add(t, " session=%" PRIu64 "/%" PRIx64 "/%" PRIu32 ".%" PRIu32, m.sender_gateway,
			m.sender_boot, m.sender_slot, m.sender_gen);
	if (m.forwarded)
		add(t, " forwarded");
	add(t, " stamp=%" PRIu64 " cookie=%016" PRIx64, m.stamp, m.cookie);
	add_bytes(t, "payload", m.payload);
	return 0;
}

static int print_publish_ack(struct text *t, struct wire_view body)
{
	struct wire_publish_ack m;
	const int bad = wire_get_publish_ack(body, &m);

	if (bad != 0)
		return bad;
	add(t,
		" request=%" PRIu64 " message=%" PRIu64 " status=%s seq=%" PRIu64
		" duplicate=%u unfinished=%u retry_after_ms=%" PRIu32,
		m.request_id, m.message_id, wire_status_name(m.status), m.seq, m.duplicate,
		m.unfinished, m.retry_after_ms);
	add_bytes(t, "tag_key", (struct wire_view){.p = m.tag_key, .len = sizeof(m.tag_key)});
	add(t,
		" tag_version=%" PRIu64 " members=%" PRIu32 " routes=%" PRIu32 " acked=%" PRIu32
		" ended=%" PRIu32 " leader=%u.%u.%u.%u:%u",
		m.tag_version, m.members, m.routes, m.acked, m.ended, m.leader.ip >> 24,
		m.leader.ip >> 16 & 255, m.leader.ip >> 8 & 255, m.leader.ip & 255, m.leader.port);
	return 0;
}

static void print_record(struct text *t, const struct wire_record *r)
{
	add(t, " {message=%" PRIu64 " seq=%" PRIu64 " stamp=%" PRIu64 " flags=%u type=%u",
		r->message_id, r->seq, r->stamp, r->flags, r->channel_type);
	add_id(t, "channel", r->channel);
	add_id(t, "from", r->from_uid);
	add_bytes(t, "payload", r->payload);
	add(t, " routes=%u:", r->routes);
	for (uint32_t i = 0; i < r->routes; i++) {
		uint32_t slot, gen;

		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		wire_get_route(r->route + i * WIRE_ROUTE_BYTES, &slot, &gen);
		add(t, " %" PRIu32 ".%" PRIu32, slot, gen);
	}
	add(t, "}");
}

static int print_push(struct text *t, struct wire_view body)
{
	struct wire_push m;
	struct wire_record record;
	const int bad = wire_get_push(body, &m);

	if (bad != 0)
		return bad;
	add(t,
		" push=%" PRIu32 ".%" PRIu32 " gateway_boot=%" PRIx64
		" records=%u routes=%u need_ack=%u attempt=%u",
		m.push_id, m.push_gen, m.gateway_boot, m.records, m.routes, m.need_ack, m.attempt);
	for (uint32_t i = 0; wire_push_next(&m.body, &record); i++) {
		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		print_record(t, &record);
	}
	return 0;
}

static int print_push_ack(struct text *t, struct wire_view body)
{
	struct wire_push_ack m;
	const int bad = wire_get_push_ack(body, &m);

	if (bad != 0)
		return bad;
	add(t, " push=%" PRIu32 ".%" PRIu32 " accepted=%u retryable=%u dropped=%u", m.push_id,
		m.push_gen, m.accepted, m.retryable, m.dropped);
	for (uint32_t i = 0; 2 * i < m.positions.len; i++) {
		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		add(t, " %u", wire_position(m.positions, i));
	}
	return 0;
}

static int print_receipt(struct text *t, struct wire_view body)
{
	struct wire_receipt m;
	const int bad = wire_get_receipt(body, &m);

	if (bad != 0)
		return bad;
	add(t, " push=%" PRIu32 ".%" PRIu32 " first=%u", m.push_id, m.push_gen, m.first);
	add_bytes(t, "bits", m.bits);
	return 0;
}

static int print_segment(struct text *t, struct wire_view body)
{
	struct wire_segment m;
	const int bad = wire_get_segment(body, &m);

	if (bad != 0)
		return bad;
	add(t, " frame=%" PRIu32 " of=%s part=%u/%u offset=%" PRIu32 " total=%" PRIu32, m.frame_id,
		wire_type_name(m.type), m.index, m.count, m.offset, m.total);
	add_bytes(t, "bytes", m.part);
	return 0;
}

// --- between nodes ------------------------------------------------------------------------------------

static void add_fence(struct text *t, const char *name, const uint8_t key[16], uint64_t version)
{
	add(t, " %s=", name);
	for (uint32_t i = 0; i < 16; i++)
		add(t, "%02x", key[i]);
	add(t, ".%" PRIu64, version);
}

static void add_authority(struct text *t, const struct wire_authority *a)
{
	add(t, " slot=%" PRIu32 " term=%" PRIu64, a->slot, a->term);
	if (a->channel_epoch != 0)
		add(t, " epochs=%" PRIu64 ".%" PRIu64, a->channel_epoch, a->leader_epoch);
}

// A status as sent, also one that is not known.
static void add_status(struct text *t, uint16_t status)
{
	if (status < WIRE_STATUS_COUNT)
		add(t, " status=%s", wire_status_name((enum wire_status)status));
	else
		add(t, " status=%u", status);
}

static int print_task(struct text *t, struct wire_view body)
{
	struct wire_task m;
	const int bad = wire_get_task(body, &m);
	struct id_view uid;

	if (bad != 0)
		return bad;
	add(t,
		" task=%" PRIu64 " message=%" PRIu64 " seq=%" PRIu64 " target=%" PRIu64
		" attempt=%u ack=%s deadline_ms=%" PRIu32,
		m.task_id, m.message_id, m.seq, m.target, m.attempt, acks[m.ack], m.deadline_ms);
	if ((m.flags & WIRE_TASK_SCOPED) == 0)
		add_fence(t, "fence", m.tag_key, m.tag_version);
	add_authority(t, &m.authority);
	add(t, " type=%u", m.channel_type);
	add_id(t, "channel", m.channel);
	add_id(t, "from", m.from_uid);
	if (m.sender_gateway != 0)
		add(t, " session=%" PRIu64 "/%" PRIx64 "/%" PRIu32 ".%" PRIu32, m.sender_gateway,
			m.sender_boot, m.sender_slot, m.sender_gen);
	add(t, " stamp=%" PRIu64, m.stamp);
	add_bytes(t, "payload", m.payload);
	if (m.uid_count != 0)
		add(t, " uids=%" PRIu32, m.uid_count);
	for (uint32_t i = 0; wire_uids_next(&m.uids, &uid); i++) {
		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		add_id(t, "uid", uid);
	}
	return 0;
}

static int print_task_ack(struct text *t, struct wire_view body)
{
	struct wire_task_ack m;
	const int bad = wire_get_task_ack(body, &m);

	if (bad != 0)
		return bad;
	add(t, " task=%" PRIu64 " message=%" PRIu64, m.task_id, m.message_id);
	add_status(t, m.status);
	add_fence(t, "fence", m.tag_key, m.tag_version);
	add(t,
		" duplicate=%u retry_after_ms=%" PRIu32 " leader=%" PRIu64 " term=%" PRIu64
		" members=%" PRIu32 " routes=%" PRIu32 " acked=%" PRIu32 " ended=%" PRIu32,
		m.duplicate, m.retry_after_ms, m.leader, m.term, m.members, m.routes, m.acked,
		m.ended);
	return 0;
}

static int print_tag_get(struct text *t, struct wire_view body)
{
	struct wire_tag_get m;
	const int bad = wire_get_tag_get(body, &m);

	if (bad != 0)
		return bad;
	add(t, " request=%" PRIu64 " target=%" PRIu64, m.request_id, m.target);
	add_fence(t, "fence", m.tag_key, m.tag_version);
	if (m.have_version != 0)
		add_fence(t, "have", m.have_key, m.have_version);
	add_authority(t, &m.authority);
	add(t, " first=%" PRIu32 " want=%" PRIx64 " body=%" PRIu64 " room=%u flags=%u type=%u",
		m.first, m.want, m.body_version, m.room, m.flags, m.channel.type);
	add_id(t, "channel", channel_key_id(&m.channel));
	return 0;
}

static int print_tag_part(struct text *t, struct wire_view body)
{
	static const char *const ops[] = {"", "member", "denied", "gone"};
	struct wire_tag_part m;
	struct wire_part_entry e;
	const int bad = wire_get_tag_part(body, &m);

	if (bad != 0)
		return bad;
	add(t, " request=%" PRIu64, m.request_id);
	add_status(t, m.status);
	add_fence(t, "fence", m.tag_key, m.tag_version);
	add_authority(t, &m.authority);
	add(t,
		" base=%" PRIu64 " smv=%" PRIu64 " table=%" PRIu64 " leader=%" PRIu64
		" part=%" PRIu32 "/%" PRIu32 " members=%" PRIu32 " entries=%u",
		m.base_version, m.smv, m.table_version, m.leader, m.index, m.count, m.members,
		m.entries);
	for (uint32_t i = 0; wire_part_next(&m.body, &e); i++) {
		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		if (e.op == WIRE_PART_SLOT)
			add(t, " slot[%" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 "]", e.slot,
				e.term, e.config_epoch, e.balance_version);
		else
			add_id(t, ops[e.op], e.uid);
	}
	return 0;
}

static int print_hint(struct text *t, struct wire_view body)
{
	static const char *const ops[] = {"", "dirty", "invalidate", "fence"};
	struct wire_hint m;
	const int bad = wire_get_hint(body, &m);

	if (bad != 0)
		return bad;
	add(t, " hint=%" PRIu64 " op=%s", m.hint_id, ops[m.op]);
	if (m.answer) {
		add_status(t, m.status);
		add(t, " leader=%" PRIu64, m.leader);
	}
	add(t, " commit=%" PRIu64 " smv=%" PRIu64, m.commit, m.smv);
	add_authority(t, &m.authority);
	add(t, " type=%u", m.channel.type);
	add_id(t, "channel", channel_key_id(&m.channel));
	return 0;
}

static int print_presence(struct text *t, struct wire_view body)
{
	static const char *const states[] = {"", "not_ready", "ready", "complete"};
	struct wire_presence m;
	struct wire_presence_range r;
	const int bad = wire_get_presence(body, &m);

	if (bad != 0)
		return bad;
	add(t,
		" revision=%" PRIu64 " table=%" PRIu64 " hash_slots=%" PRIu32 " stream_seq=%" PRIu64
		" count=%u",
		m.revision, m.table_version, m.hash_slots, m.stream_seq, m.count);
	for (uint32_t i = 0; wire_presence_next(&m.ranges, &r); i++) {
		if (i == ITEMS_MAX) {
			add(t, " ...");
			break;
		}
		add(t, " %u-%u:%s slot=%" PRIu32 " term=%" PRIu64, r.first, r.last, states[r.state],
			r.slot, r.term);
	}
	return 0;
}

static int print_bye(struct text *t, struct wire_view body)
{
	(void)t;
	return body.len == 0 ? 0 : CTR_DROP_LENGTH;
}

int wire_print(const uint8_t *p, uint32_t len, char *text, size_t size)
{
	static int (*const printers[])(struct text *, struct wire_view) = {
		[WIRE_HELLO] = print_hello,
		[WIRE_HELLO_ACK] = print_hello_ack,
		[WIRE_HEARTBEAT] = print_heartbeat,
		[WIRE_HEARTBEAT_ACK] = print_heartbeat_ack,
		[WIRE_ANNOUNCE] = print_announce,
		[WIRE_ANNOUNCE_ACK] = print_announce_ack,
		[WIRE_BYE] = print_bye,
		[WIRE_PUBLISH] = print_publish,
		[WIRE_PUBLISH_ACK] = print_publish_ack,
		[WIRE_TASK] = print_task,
		[WIRE_TASK_ACK] = print_task_ack,
		[WIRE_TAG_GET] = print_tag_get,
		[WIRE_TAG_PART] = print_tag_part,
		[WIRE_HINT] = print_hint,
		[WIRE_PRESENCE] = print_presence,
		[WIRE_PUSH] = print_push,
		[WIRE_PUSH_ACK] = print_push_ack,
		[WIRE_RECEIPT] = print_receipt,
		[WIRE_SEGMENT] = print_segment,
	};
	struct text t = {.p = text, .size = size, .len = 0};
	struct wire_header h;
	struct wire_view body;
	int bad;

	if (size == 0)
		return 0;
	text[0] = '\0';
	bad = wire_get_header(p, len, &h, &body);
	if (bad != 0) {
		add(&t, "? bytes=%" PRIu32 " %s", len, counter_name((enum counter)bad));
		return (int)t.len;
	}
	add(&t, "%s sender=%" PRIu64 "/%" PRIx64 " lane=%u seq=%" PRIu64 " bytes=%u",
		wire_type_name(h.type), h.sender, h.boot, h.lane, h.seq, h.bytes);
	if (h.flags & WIRE_AUTH)
		add(&t, " key=%u", h.key_id);
	bad = printers[h.type](&t, body);
	if (bad != 0)
		add(&t, " %s", counter_name((enum counter)bad));
	return (int)t.len;
}
