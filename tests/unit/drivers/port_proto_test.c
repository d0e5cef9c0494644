/* SPDX-License-Identifier: BSD-3-Clause */
// Frames in, verdicts and answers out. Frames are made here from first principles, with a checksum of
// the plain kind, and then spoilt one field at a time.
// One file because every test spoils the same few frames.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "port_proto.h"

#define OUR_IP 0x0a000001u  // 10.0.0.1
#define PEER_IP 0x0a000002u
#define ALL_ONES 0x0a0000ffu  // the link's broadcast address
static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1};
static const uint8_t peer_mac[6] = {2, 0, 0, 0, 0, 2};
static const uint8_t broadcast[6] = {255, 255, 255, 255, 255, 255};

static struct port_proto proto_make(uint16_t vlan)
{
	struct port_proto p = {.vlan = vlan,
		.ip = OUR_IP,
		.netmask = 0xffffff00u,
		.gateway = 0x0a0000feu,
		.udp_base = 7000,
		.udp_count = 4,
		.verify_udp = true};

	memcpy(p.mac, our_mac, 6);
	return p;
}

struct frame {
	uint32_t len;
	uint8_t b[2048];
};

static void w16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void w32(uint8_t *p, uint32_t v)
{
	w16(p, v >> 16);
	w16(p + 2, v);
}

// RFC 1071, one 16-bit word at a time.
static uint32_t plain_sum(const uint8_t *p, uint32_t len, uint32_t sum)
{
	for (uint32_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)(p[i] << 8 | p[i + 1]);
	if (len & 1)
		sum += (uint32_t)p[len - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void fix_ip(uint8_t *ip)
{
	w16(ip + 10, 0);
	w16(ip + 10, ~plain_sum(ip, (ip[0] & 15u) * 4u, 0) & 0xffff);
}

static void fix_udp(uint8_t *ip)
{
	uint8_t *udp = ip + (ip[0] & 15) * 4;
	const uint32_t len = (uint32_t)(udp[4] << 8 | udp[5]);

	w16(udp + 6, 0);
	const uint32_t sum = ~plain_sum(udp, len, plain_sum(ip + 12, 8, 17 + len)) & 0xffff;

	w16(udp + 6, sum != 0 ? sum : 0xffff);
}

// options: words of IPv4 options.
static uint8_t *make_ip(struct frame *f, int vlan, uint32_t options, uint8_t proto, uint32_t body)
{
	uint8_t *p = f->b;

	memset(f, 0, sizeof(*f));
	memcpy(p, our_mac, 6);
	memcpy(p + 6, peer_mac, 6);
	p += 12;
	if (vlan >= 0) {
		w16(p, 0x8100);
		w16(p + 2, (uint32_t)vlan);
		p += 4;
	}
	w16(p, 0x0800);
	p += 2;
	p[0] = (uint8_t)(0x45 + options);
	w16(p + 2, 20 + 4 * options + body);
	w16(p + 6, 0x4000);
	p[8] = 64;
	p[9] = proto;
	w32(p + 12, PEER_IP);
	w32(p + 16, OUR_IP);
	memset(p + 20, 1, 4 * options);  // no-operation options
	fix_ip(p);
	f->len = (uint32_t)(p - f->b) + 20 + 4 * options + body;
	return p;
}

static uint8_t *make_udp(struct frame *f, int vlan, uint32_t options, uint32_t payload)
{
	uint8_t *ip = make_ip(f, vlan, options, 17, 8 + payload);
	uint8_t *udp = ip + 20 + 4 * options;

	w16(udp, 5555);
	w16(udp + 2, 7002);
	w16(udp + 4, 8 + payload);
	for (uint32_t i = 0; i < payload; i++)
		udp[8 + i] = (uint8_t)(i * 7 + 3);
	fix_udp(ip);
	return ip;
}

static uint8_t *make_arp(struct frame *f, uint16_t op, uint32_t sender, uint32_t target)
{
	memset(f, 0, sizeof(*f));
	memcpy(f->b, op == 1 ? broadcast : our_mac, 6);
	memcpy(f->b + 6, peer_mac, 6);
	w16(f->b + 12, 0x0806);
	uint8_t *p = f->b + 14;

	w16(p, 1);
	w16(p + 2, 0x0800);
	p[4] = 6;
	p[5] = 4;
	w16(p + 6, op);
	memcpy(p + 8, peer_mac, 6);
	w32(p + 14, sender);
	w32(p + 24, target);
	f->len = 60;
	return p;
}

static enum port_verdict parse(
	const struct port_proto *proto, const struct frame *f, struct port_packet *out)
{
	const struct port_rx_meta meta = {0};
	// exactly as long as the frame, so that a sanitizer sees any byte read behind it
	uint8_t *copy = malloc(f->len > 0 ? f->len : 1);

	memcpy(copy, f->b, f->len);
	const enum port_verdict v = port_proto_parse(proto, copy, f->len, &meta, out);

	free(copy);
	return v;
}

static void expect_drop(const struct port_proto *proto, const struct frame *f, enum counter reason)
{
	struct port_packet out;

	assert_int_equal(parse(proto, f, &out), PORT_DROP);
	assert_string_equal(counter_name(out.drop), counter_name(reason));
}

// --- datagrams --------------------------------------------------------------------------------------------

static void datagram_is_found_with_its_addresses(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	for (uint32_t payload = 0; payload <= 1472; payload += 23) {
		make_udp(&f, -1, 0, payload);
		assert_int_equal(parse(&proto, &f, &out), PORT_DATAGRAM);
		assert_int_equal(out.payload_off, 42);
		assert_int_equal(out.payload_len, payload);
		assert_int_equal(out.local_port, 7002);
		assert_int_equal(out.peer.ip, PEER_IP);
		assert_int_equal(out.peer.port, 5555);
	}
}

static void ethernet_padding_is_not_payload(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	make_udp(&f, -1, 0, 3);
	f.len = 60;
	assert_int_equal(parse(&proto, &f, &out), PORT_DATAGRAM);
	assert_int_equal(out.payload_len, 3);
}

static void options_are_skipped(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	make_udp(&f, -1, 10, 100);
	assert_int_equal(parse(&proto, &f, &out), PORT_DATAGRAM);
	assert_int_equal(out.payload_off, 82);
}

static void first_and_last_port_are_ours_and_their_neighbours_are_not(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	for (uint32_t port = 6999; port <= 7004; port++) {
		uint8_t *ip = make_udp(&f, -1, 0, 10);

		w16(ip + 22, port);
		fix_udp(ip);
		if (port >= 7000 && port < 7004)
			assert_int_equal(parse(&proto, &f, &out), PORT_DATAGRAM);
		else
			expect_drop(&proto, &f, CTR_DROP_PORT);
	}
}

static void every_cut_of_a_datagram_is_a_drop(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	make_udp(&f, -1, 0, 40);
	for (uint32_t len = 0, full = f.len; len < full; len++) {
		f.len = len;
		assert_int_equal(parse(&proto, &f, &out), PORT_DROP);
		assert_int_equal(out.drop, len < 14 ? CTR_DROP_L2 : CTR_DROP_IP);
	}
}

static void every_flipped_header_bit_is_noticed(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f, g;

	make_udp(&f, -1, 0, 40);
	for (uint32_t bit = 14 * 8; bit < f.len * 8; bit++) {
		g = f;
		g.b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(parse(&proto, &g, &out), PORT_DROP);
	}
}

// --- drops ------------------------------------------------------------------------------------------------

struct spoil {
	const char *what;
	uint32_t off;  // from the IPv4 header
	uint32_t bytes;
	uint32_t value;
	bool fix_ip, fix_udp;
	enum counter reason;
};

static void malformed_ipv4_is_dropped_with_its_reason(void **state)
{
	static const struct spoil table[] = {
		{"version 6", 0, 1, 0x65, true, false, CTR_DROP_IP},
		{"version 0", 0, 1, 0x05, true, false, CTR_DROP_IP},
		{"header of 16 bytes", 0, 1, 0x44, true, false, CTR_DROP_IP},
		{"header longer than the packet", 0, 1, 0x4f, false, false, CTR_DROP_IP},
		{"total length below the header", 2, 2, 19, true, false, CTR_DROP_IP},
		{"total length 0", 2, 2, 0, true, false, CTR_DROP_IP},
		{"total length beyond the frame", 2, 2, 20 + 8 + 21, true, false, CTR_DROP_IP},
		{"more fragments", 6, 2, 0x2000, true, false, CTR_DROP_FRAGMENT},
		{"later fragment", 6, 2, 0x0001, true, false, CTR_DROP_FRAGMENT},
		{"fragment with DF", 6, 2, 0x6000, true, false, CTR_DROP_FRAGMENT},
		{"reserved bit", 6, 2, 0x8000, true, false, CTR_DROP_FRAGMENT},
		{"TCP", 9, 1, 6, true, false, CTR_DROP_PROTO},
		{"wrong checksum", 10, 2, 0x1234, false, false, CTR_DROP_IP_CSUM},
		{"checksum 0", 10, 2, 0, false, false, CTR_DROP_IP_CSUM},
		{"from address 0", 12, 4, 0, true, true, CTR_DROP_IP},
		{"from loopback", 12, 4, 0x7f000001, true, true, CTR_DROP_IP},
		{"from ourselves", 12, 4, OUR_IP, true, true, CTR_DROP_IP},
		{"from multicast", 12, 4, 0xe0000001, true, true, CTR_DROP_IP},
		{"from the limited broadcast", 12, 4, 0xffffffff, true, true, CTR_DROP_IP},
		{"from the link's broadcast", 12, 4, ALL_ONES, true, true, CTR_DROP_IP},
		{"to another host", 16, 4, 0x0a000003, true, true, CTR_DROP_IP},
		{"to the link's broadcast", 16, 4, ALL_ONES, true, true, CTR_DROP_IP},
		{"to multicast", 16, 4, 0xe0000001, true, true, CTR_DROP_IP},
		{"UDP length 7", 24, 2, 7, true, false, CTR_DROP_UDP_LEN},
		{"UDP length 0", 24, 2, 0, true, false, CTR_DROP_UDP_LEN},
		{"UDP length beyond the packet", 24, 2, 8 + 21, true, false, CTR_DROP_UDP_LEN},
		{"wrong UDP checksum", 26, 2, 0x1234, true, false, CTR_DROP_UDP_CSUM},
		{"another source port", 20, 2, 5556, true, false, CTR_DROP_UDP_CSUM},
		{"port 0", 22, 2, 0, true, true, CTR_DROP_PORT},
	};
	const struct port_proto proto = proto_make(0);

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct spoil *s = &table[i];
		struct frame f;
		uint8_t *ip = make_udp(&f, -1, 0, 20);

		print_message("  %s\n", s->what);
		if (s->bytes == 4)
			w32(ip + s->off, s->value);
		else if (s->bytes == 2)
			w16(ip + s->off, s->value);
		else
			ip[s->off] = (uint8_t)s->value;
		if (s->fix_udp)
			fix_udp(ip);
		if (s->fix_ip)
			fix_ip(ip);
		expect_drop(&proto, &f, s->reason);
	}
}

static void udp_header_cut_by_the_total_length_is_dropped(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct frame f;
	uint8_t *ip = make_udp(&f, -1, 0, 20);

	w16(ip + 2, 27);
	fix_ip(ip);
	expect_drop(&proto, &f, CTR_DROP_UDP_LEN);
}

static void frames_of_others_are_dropped(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct frame f;

	make_udp(&f, -1, 0, 20);
	f.b[5] = 9;
	expect_drop(&proto, &f, CTR_DROP_L2);  // to another station
	make_udp(&f, -1, 0, 20);
	memcpy(f.b, broadcast, 6);
	expect_drop(&proto, &f, CTR_DROP_L2);  // our address in a link broadcast
	make_udp(&f, -1, 0, 20);
	memcpy(f.b + 6, our_mac, 6);
	expect_drop(&proto, &f, CTR_DROP_L2);  // our own, seen on its way out
	make_udp(&f, -1, 0, 20);
	w16(f.b + 12, 0x86dd);
	expect_drop(&proto, &f, CTR_DROP_L2);  // IPv6
}

static void absent_udp_checksum_is_accepted(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;
	uint8_t *ip = make_udp(&f, -1, 0, 20);

	w16(ip + 26, 0);
	assert_int_equal(parse(&proto, &f, &out), PORT_DATAGRAM);
}

static void wrong_udp_checksum_is_accepted_only_when_switched_off(void **state)
{
	struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;
	uint8_t *ip = make_udp(&f, -1, 0, 20);

	ip[28] ^= 1;
	expect_drop(&proto, &f, CTR_DROP_UDP_CSUM);
	proto.verify_udp = false;
	assert_int_equal(parse(&proto, &f, &out), PORT_DATAGRAM);
	ip[10] ^= 1;  // the IPv4 header is verified all the same
	expect_drop(&proto, &f, CTR_DROP_IP_CSUM);
}

static void checksums_the_device_found_good_are_not_summed_again(void **state)
{
	const struct port_proto proto = proto_make(0);
	const struct port_rx_meta ip_good = {.ip_good = true},
				  both = {.ip_good = true, .udp_good = true};
	struct port_packet out;
	struct frame f;
	uint8_t *ip = make_udp(&f, -1, 0, 20);

	w16(ip + 10, 1);
	ip[28] ^= 1;
	assert_int_equal(port_proto_parse(&proto, f.b, f.len, &both, &out), PORT_DATAGRAM);
	assert_int_equal(port_proto_parse(&proto, f.b, f.len, &ip_good, &out), PORT_DROP);
	assert_int_equal(out.drop, CTR_DROP_UDP_CSUM);
}

// --- VLAN -------------------------------------------------------------------------------------------------

static void tag_must_be_the_configured_one(void **state)
{
	const struct port_proto none = proto_make(0), ten = proto_make(10);
	struct port_packet out;
	struct frame f;

	make_udp(&f, 10, 0, 20);
	expect_drop(&none, &f, CTR_DROP_VLAN);
	assert_int_equal(parse(&ten, &f, &out), PORT_DATAGRAM);
	assert_int_equal(out.payload_off, 46);
	make_udp(&f, 11, 0, 20);
	expect_drop(&ten, &f, CTR_DROP_VLAN);
	make_udp(&f, -1, 0, 20);
	expect_drop(&ten, &f, CTR_DROP_VLAN);
	make_udp(&f, 10 | 5 << 13, 0, 20);  // priority bits do not matter
	assert_int_equal(parse(&ten, &f, &out), PORT_DATAGRAM);
	make_udp(&f, 5 << 13, 0, 20);  // a priority tag is no VLAN
	assert_int_equal(parse(&none, &f, &out), PORT_DATAGRAM);
	f.len = 16;
	expect_drop(&none, &f, CTR_DROP_VLAN);
	make_udp(&f, 10, 0, 20);
	w16(f.b + 16, 0x8100);  // a second tag
	expect_drop(&ten, &f, CTR_DROP_L2);
}

static void stripped_tag_counts_as_a_tag(void **state)
{
	const struct port_proto none = proto_make(0), ten = proto_make(10);
	const struct port_rx_meta meta = {.vlan_stripped = true, .vlan_tci = 10};
	struct port_packet out;
	struct frame f;

	make_udp(&f, -1, 0, 20);
	assert_int_equal(port_proto_parse(&ten, f.b, f.len, &meta, &out), PORT_DATAGRAM);
	assert_int_equal(port_proto_parse(&none, f.b, f.len, &meta, &out), PORT_DROP);
	make_udp(&f, 10, 0, 20);
	assert_int_equal(port_proto_parse(&ten, f.b, f.len, &meta, &out), PORT_DROP);
	assert_int_equal(out.drop, CTR_DROP_VLAN);
}

// --- ARP --------------------------------------------------------------------------------------------------

static void arp_request_for_us_is_answered(void **state)
{
	for (uint16_t vlan = 0; vlan <= 10; vlan += 10) {
		const struct port_proto proto = proto_make(vlan);
		const struct port_rx_meta meta = {.vlan_stripped = vlan != 0, .vlan_tci = vlan};
		struct port_packet out;
		struct frame f;
		uint8_t buffer[128] = {0}, *l3 = buffer + 32;

		make_arp(&f, 1, PEER_IP, OUR_IP);
		assert_int_equal(port_proto_parse(&proto, f.b, f.len, &meta, &out), PORT_ARP);
		assert_true(out.arp_request && out.arp_for_us && !out.arp_conflict);
		assert_int_equal(out.arp_ip, PEER_IP);
		assert_memory_equal(out.arp_mac, peer_mac, 6);

		memcpy(l3, f.b + out.l3_off, f.len - out.l3_off);
		const uint32_t len = port_proto_arp_answer(&proto, l3);
		const uint8_t *frame = l3 - port_proto_l2_len(&proto);
		uint8_t target[10];

		assert_int_equal(len, 60);
		assert_memory_equal(frame, peer_mac, 6);
		assert_memory_equal(frame + 6, our_mac, 6);
		if (vlan != 0)
			assert_memory_equal(frame + 12, "\x81\x00\x00\x0a\x08\x06", 6);
		else
			assert_memory_equal(frame + 12, "\x08\x06", 2);
		assert_memory_equal(l3, "\x00\x01\x08\x00\x06\x04\x00\x02", 8);
		assert_memory_equal(l3 + 8, our_mac, 6);
		assert_memory_equal(l3 + 14, "\x0a\x00\x00\x01", 4);
		memcpy(target, peer_mac, 6);
		w32(target + 6, PEER_IP);
		assert_memory_equal(l3 + 18, target, 10);
		for (int i = 28; i < 42; i++)  // nothing of the request leaks in the padding
			assert_int_equal(l3[i], 0);
	}
}

static void arp_request_of_ours_is_well_formed(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_proto peer = proto_make(0);
	const struct port_rx_meta meta = {0};
	struct port_packet out;
	uint8_t buffer[96], *l3 = buffer + 14;

	memset(buffer, 0xee, sizeof(buffer));
	memcpy(peer.mac, peer_mac, 6);
	peer.ip = PEER_IP;
	assert_int_equal(port_proto_arp_request(&proto, l3, PEER_IP, NULL), 60);
	assert_memory_equal(buffer, broadcast, 6);
	assert_int_equal(port_proto_parse(&peer, buffer, 60, &meta, &out), PORT_ARP);
	assert_true(out.arp_request && out.arp_for_us);
	assert_int_equal(out.arp_ip, OUR_IP);
	assert_int_equal(port_proto_arp_request(&proto, l3, PEER_IP, peer_mac), 60);
	assert_memory_equal(buffer, peer_mac, 6);
}

static void arp_of_others_is_seen_but_not_for_us(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	make_arp(&f, 1, PEER_IP, 0x0a000009);
	assert_int_equal(parse(&proto, &f, &out), PORT_ARP);
	assert_false(out.arp_for_us);
	make_arp(&f, 2, PEER_IP, OUR_IP);
	assert_int_equal(parse(&proto, &f, &out), PORT_ARP);
	assert_true(out.arp_for_us && !out.arp_request);
}

static void another_station_with_our_address_is_a_conflict(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	make_arp(&f, 1, OUR_IP, OUR_IP);
	assert_int_equal(parse(&proto, &f, &out), PORT_ARP);
	assert_true(out.arp_conflict);
}

static void address_probe_is_answered_but_teaches_nothing(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;
	struct frame f;

	make_arp(&f, 1, 0, OUR_IP);
	assert_int_equal(parse(&proto, &f, &out), PORT_ARP);
	assert_true(out.arp_for_us);
	assert_int_equal(out.arp_ip, 0);
}

static void malformed_arp_is_dropped(void **state)
{
	static const struct spoil table[] = {
		{"hardware type", 0, 2, 2},
		{"protocol type", 2, 2, 0x86dd},
		{"hardware length", 4, 1, 8},
		{"protocol length", 5, 1, 16},
		{"operation 0", 6, 2, 0},
		{"operation 3", 6, 2, 3},
		{"sender MAC of a group", 8, 1, 1},
		{"sender beyond the link", 14, 4, 0x0a000102},
		{"sender is the broadcast address", 14, 4, ALL_ONES},
		{"sender is multicast", 14, 4, 0xe0000001},
		{"sender is loopback", 14, 4, 0x7f000001},
	};
	const struct port_proto proto = proto_make(0);
	struct frame f;

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		uint8_t *p = make_arp(&f, 1, PEER_IP, OUR_IP);

		print_message("  %s\n", table[i].what);
		if (table[i].bytes == 4)
			w32(p + table[i].off, table[i].value);
		else if (table[i].bytes == 2)
			w16(p + table[i].off, table[i].value);
		else
			p[table[i].off] = (uint8_t)table[i].value;
		expect_drop(&proto, &f, CTR_DROP_ARP);
	}
	uint8_t *p = make_arp(&f, 1, PEER_IP, OUR_IP);

	memset(p + 8, 0, 6);
	expect_drop(&proto, &f, CTR_DROP_ARP);  // sender MAC 0
	make_arp(&f, 2, 0, OUR_IP);
	expect_drop(&proto, &f, CTR_DROP_ARP);  // an answer from nobody
	make_arp(&f, 1, PEER_IP, OUR_IP);
	f.len = 14 + 27;
	expect_drop(&proto, &f, CTR_DROP_ARP);
}

// --- ICMP -------------------------------------------------------------------------------------------------

static uint8_t *make_echo(struct frame *f, uint32_t payload)
{
	uint8_t *ip = make_ip(f, -1, 0, 1, 8 + payload), *icmp = ip + 20;

	icmp[0] = 8;
	w16(icmp + 4, 77);
	w16(icmp + 6, 1);
	for (uint32_t i = 0; i < payload; i++)
		icmp[8 + i] = (uint8_t)(i * 11);
	w16(icmp + 2, ~plain_sum(icmp, 8 + payload, 0) & 0xffff);
	return ip;
}

static void ping_is_answered_in_place(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_packet out;

	for (uint32_t payload = 0; payload <= 1472; payload += 16) {
		struct frame f, before;
		uint8_t *ip = make_echo(&f, payload);

		w16(ip + 4, payload);  // an identification, so that the checksum differs each time
		fix_ip(ip);
		before = f;
		assert_int_equal(parse(&proto, &f, &out), PORT_ECHO);
		assert_int_equal(port_proto_echo_answer(&proto, f.b, ip), 14 + 28 + payload);
		assert_memory_equal(f.b, peer_mac, 6);
		assert_memory_equal(f.b + 6, our_mac, 6);
		assert_memory_equal(ip + 12, "\x0a\x00\x00\x01\x0a\x00\x00\x02", 8);
		assert_int_equal(plain_sum(ip, 20, 0), 0xffff);
		assert_int_equal(ip[20], 0);
		assert_int_equal(plain_sum(ip + 20, 8 + payload, 0), 0xffff);
		assert_memory_equal(ip + 24, before.b + 14 + 24, 4 + payload);
	}
}

static void other_icmp_is_dropped(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct frame f;
	uint8_t *ip = make_echo(&f, 20);

	ip[30] ^= 1;
	expect_drop(&proto, &f, CTR_DROP_PROTO);  // wrong checksum
	ip = make_echo(&f, 20);
	ip[20] = 0;
	w16(ip + 22, 0);
	w16(ip + 22, ~plain_sum(ip + 20, 28, 0) & 0xffff);
	expect_drop(&proto, &f, CTR_DROP_PROTO);  // a reply
	ip = make_ip(&f, -1, 0, 1, 7);
	expect_drop(&proto, &f, CTR_DROP_PROTO);  // too short
}

// --- headers ----------------------------------------------------------------------------------------------

static void sums_agree_with_the_plain_one(void **state)
{
	uint8_t b[600];

	srand(7);
	for (uint32_t round = 0; round < 3000; round++) {
		const uint32_t len = (uint32_t)rand() % 512, at = (uint32_t)rand() % 64;

		for (uint32_t i = 0; i < sizeof(b); i++)
			b[i] = (uint8_t)(round % 3 == 0 ? 0xff : rand());
		assert_int_equal(
			port_be16(port_sum_fold(port_sum(b + at, len))), plain_sum(b + at, len, 0));
	}
}

static void known_checksum_vectors(void **state)
{
	// RFC 1071 section 3: the sum is ddf2
	static const uint8_t rfc[8] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
	static const uint8_t header[20] = {0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40,
		0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7};

	assert_int_equal(port_be16(port_sum_fold(port_sum(rfc, 8))), 0xddf2);
	assert_int_equal(port_sum_fold(port_sum(header, 20)), 0xffff);
	assert_int_equal(port_sum(NULL, 0), 0);
}

static void headers_we_write_are_headers_we_accept(void **state)
{
	for (uint16_t vlan = 0; vlan <= 10; vlan += 10) {
		const struct port_proto proto = proto_make(vlan);
		struct port_proto peer = proto_make(vlan);
		const struct port_rx_meta meta = {0};
		struct port_template t;

		memcpy(peer.mac, peer_mac, 6);
		peer.ip = PEER_IP;
		port_proto_template(&proto, PEER_IP, peer_mac, 5, &t);
		assert_int_equal(t.ip, PEER_IP);
		assert_int_equal(t.generation, 5);
		for (uint16_t len = 0; len <= 1472; len++) {
			uint8_t buffer[64 + 1472];
			struct port_packet out;
			struct dgram d = {.data = buffer + 64,
				.len = len,
				.local_port = 7003,
				.peer = {.ip = PEER_IP, .port = 7001}};

			for (uint32_t i = 0; i < len; i++)
				d.data[i] = (uint8_t)(i ^ len);
			port_proto_headers(&t, &d, PORT_SUM_MADE);
			const uint32_t headers = port_proto_l2_len(&proto) + 28;
			uint8_t *frame = d.data - headers;

			assert_int_equal(port_proto_parse(&peer, frame, headers + len, &meta, &out),
				PORT_DATAGRAM);
			assert_int_equal(out.payload_len, len);
			assert_int_equal(out.local_port, 7001);
			assert_int_equal(out.peer.ip, OUR_IP);
			assert_int_equal(out.peer.port, 7003);
			assert_int_equal(plain_sum(frame + headers - 28, 20, 0), 0xffff);
			assert_int_equal(plain_sum(d.data - 8, 8u + len,
						 plain_sum(d.data - 16, 8, 17u + 8u + len)),
				0xffff);
			assert_true(d.data[-2] != 0 || d.data[-1] != 0);
			assert_memory_equal(d.data - 22, "\x40\x00", 2);  // DF
		}
	}
}

static void checksum_that_comes_out_as_0_is_sent_as_all_ones(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_template t;
	uint8_t buffer[80] = {0};
	struct dgram d = {.data = buffer + 64,
		.len = 2,
		.local_port = 7000,
		.peer = {.ip = PEER_IP, .port = 7001}};

	port_proto_template(&proto, PEER_IP, peer_mac, 1, &t);
	port_proto_headers(&t, &d, PORT_SUM_MADE);
	memcpy(d.data, d.data - 2, 2);  // data that brings the sum to ffff
	port_proto_headers(&t, &d, PORT_SUM_MADE);
	assert_memory_equal(d.data - 2, "\xff\xff", 2);
}

static void offloaded_checksum_holds_the_pseudo_header(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_template t;
	uint8_t buffer[128] = {0};
	struct dgram d = {.data = buffer + 64,
		.len = 20,
		.local_port = 7000,
		.peer = {.ip = PEER_IP, .port = 7001}};

	port_proto_template(&proto, PEER_IP, peer_mac, 1, &t);
	port_proto_headers(&t, &d, PORT_SUM_OFFLOAD);
	assert_int_equal(d.data[-2] << 8 | d.data[-1], plain_sum(d.data - 16, 8, 17 + 28));
}

static void checksum_switched_off_is_sent_as_none_and_accepted(void **state)
{
	const struct port_proto proto = proto_make(0);
	struct port_proto peer = proto_make(0);
	const struct port_rx_meta meta = {0};
	struct port_packet out;
	struct port_template t;
	uint8_t buffer[128] = {0};
	struct dgram d = {.data = buffer + 64,
		.len = 20,
		.local_port = 7000,
		.peer = {.ip = PEER_IP, .port = 7001}};

	memcpy(peer.mac, peer_mac, 6);
	peer.ip = PEER_IP;
	port_proto_template(&proto, PEER_IP, peer_mac, 1, &t);
	port_proto_headers(&t, &d, PORT_SUM_NONE);
	assert_memory_equal(d.data - 2, "\0\0", 2);
	assert_int_equal(port_proto_parse(&peer, d.data - 42, 62, &meta, &out), PORT_DATAGRAM);
}

static void next_hop_is_the_host_the_gateway_or_nobody(void **state)
{
	struct port_proto proto = proto_make(0);

	assert_int_equal(port_proto_next_hop(&proto, PEER_IP), PEER_IP);
	assert_int_equal(port_proto_next_hop(&proto, 0x0b000001), 0x0a0000fe);
	assert_int_equal(port_proto_next_hop(&proto, OUR_IP), 0);
	assert_int_equal(port_proto_next_hop(&proto, ALL_ONES), 0);
	assert_int_equal(port_proto_next_hop(&proto, 0xe0000005), 0);
	assert_int_equal(port_proto_next_hop(&proto, 0xffffffff), 0);
	assert_int_equal(port_proto_next_hop(&proto, 0x7f000001), 0);
	assert_int_equal(port_proto_next_hop(&proto, 0), 0);
	proto.gateway = 0;
	assert_int_equal(port_proto_next_hop(&proto, 0x0b000001), 0);
	proto.netmask = 0xfffffffe;  // a point-to-point link: both addresses are hosts
	proto.ip = 0x0a000002;
	assert_int_equal(port_proto_next_hop(&proto, 0x0a000003), 0x0a000003);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(datagram_is_found_with_its_addresses),
		cmocka_unit_test(ethernet_padding_is_not_payload),
		cmocka_unit_test(options_are_skipped),
		cmocka_unit_test(first_and_last_port_are_ours_and_their_neighbours_are_not),
		cmocka_unit_test(every_cut_of_a_datagram_is_a_drop),
		cmocka_unit_test(every_flipped_header_bit_is_noticed),
		cmocka_unit_test(malformed_ipv4_is_dropped_with_its_reason),
		cmocka_unit_test(udp_header_cut_by_the_total_length_is_dropped),
		cmocka_unit_test(frames_of_others_are_dropped),
		cmocka_unit_test(absent_udp_checksum_is_accepted),
		cmocka_unit_test(wrong_udp_checksum_is_accepted_only_when_switched_off),
		cmocka_unit_test(checksums_the_device_found_good_are_not_summed_again),
		cmocka_unit_test(tag_must_be_the_configured_one),
		cmocka_unit_test(stripped_tag_counts_as_a_tag),
		cmocka_unit_test(arp_request_for_us_is_answered),
		cmocka_unit_test(arp_request_of_ours_is_well_formed),
		cmocka_unit_test(arp_of_others_is_seen_but_not_for_us),
		cmocka_unit_test(another_station_with_our_address_is_a_conflict),
		cmocka_unit_test(address_probe_is_answered_but_teaches_nothing),
		cmocka_unit_test(malformed_arp_is_dropped),
		cmocka_unit_test(ping_is_answered_in_place),
		cmocka_unit_test(other_icmp_is_dropped),
		cmocka_unit_test(sums_agree_with_the_plain_one),
		cmocka_unit_test(known_checksum_vectors),
		cmocka_unit_test(headers_we_write_are_headers_we_accept),
		cmocka_unit_test(checksum_that_comes_out_as_0_is_sent_as_all_ones),
		cmocka_unit_test(offloaded_checksum_holds_the_pseudo_header),
		cmocka_unit_test(checksum_switched_off_is_sent_as_none_and_accepted),
		cmocka_unit_test(next_hop_is_the_host_the_gateway_or_nobody),
	};

	return cmocka_run_group_tests_name("port_proto", tests, NULL, NULL);
}
