/* SPDX-License-Identifier: BSD-3-Clause */
// Fuzz target of the port's protocols. An input is three bytes of switches and a frame. The frame is parsed
// from a block of exactly its length; what the parser asks to be answered is answered in a block with no
// more room than the port has; a datagram found is sent back through a template and must be found again.
#include <stdlib.h>
#include <string.h>

#include "port_proto.h"

#define REQUIRE(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

#define HEADROOM 128u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t peer_mac[6] = {2, 0, 0, 0, 0, 2};

// A frame in a buffer as the device would have put it there.
static uint8_t *with_headroom(const uint8_t *frame, uint32_t len, uint8_t **block)
{
	// behind the frame a buffer has room up to the smallest frame at least
	const uint32_t room = len < PORT_FRAME_MIN + 4 ? PORT_FRAME_MIN + 4 : len;

	*block = malloc(HEADROOM + room);
	REQUIRE(*block != NULL);
	memset(*block, 0, HEADROOM + room);
	memcpy(*block + HEADROOM, frame, len);
	return *block + HEADROOM;
}

static void answer(const struct port_proto *proto, const uint8_t *frame, uint32_t len,
	const struct port_packet *packet, enum port_verdict verdict)
{
	uint8_t *block, *copy = with_headroom(frame, len, &block), *l3 = copy + packet->l3_off;
	const uint32_t l2 = port_proto_l2_len(proto);
	uint32_t out;

	if (verdict == PORT_ECHO) {
		out = port_proto_echo_answer(proto, copy, l3);
		REQUIRE(out - l2 <= len - packet->l3_off);  // no longer than what was asked
		REQUIRE(port_sum_fold(port_sum(l3, PORT_IP_LEN)) == 0xffff);
		REQUIRE(port_sum_fold(port_sum(l3 + PORT_IP_LEN, out - l2 - PORT_IP_LEN)) ==
			0xffff);
	} else {
		out = port_proto_arp_answer(proto, l3);
		REQUIRE(out >= PORT_FRAME_MIN && out <= PORT_FRAME_MIN + 4);
	}
	REQUIRE(memcmp(l3 - l2 + 6, proto->mac, 6) == 0);
	free(block);
}

static void send_back(const struct port_proto *proto, const uint8_t *frame, uint32_t len,
	const struct port_packet *packet)
{
	uint8_t *block, *copy = with_headroom(frame, len, &block);
	const uint32_t headers = port_proto_l2_len(proto) + PORT_IP_LEN + PORT_UDP_LEN;
	const struct port_rx_meta meta = {0};
	struct dgram d = {.data = copy + packet->payload_off,
		.len = packet->payload_len,
		.local_port = packet->local_port,
		.peer = packet->peer};
	struct port_proto peer = *proto;
	struct port_template t;
	struct port_packet again;

	REQUIRE(packet->payload_off + packet->payload_len <= len);
	memcpy(peer.mac, peer_mac, 6);
	peer.ip = packet->peer.ip;
	peer.udp_base = packet->peer.port;
	peer.udp_count = 1;
	peer.netmask = 0;
	port_proto_template(proto, packet->peer.ip, peer_mac, 1, &t);
	port_proto_headers(&t, &d, PORT_SUM_MADE);
	const enum port_verdict v =
		port_proto_parse(&peer, d.data - headers, headers + d.len, &meta, &again);

	// but for the broadcast address of a mask of 0
	REQUIRE(v == PORT_DATAGRAM);
	REQUIRE(again.payload_len == d.len && again.peer.ip == proto->ip &&
		again.peer.port == d.local_port);
	free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct port_proto proto = {.mac = {2, 0, 0, 0, 0, 1},
		.ip = 0x0a000001u,
		.netmask = 0xffffff00u,
		.gateway = 0x0a0000feu,
		.udp_base = 7000,
		.udp_count = 4};
	struct port_packet packet;

	if (size < 3 || size > 9100)
		return 0;
	const struct port_rx_meta meta = {.vlan_stripped = (data[0] & 1) != 0,
		.ip_good = (data[0] & 2) != 0,
		.udp_good = (data[0] & 4) != 0,
		.vlan_tci = (uint16_t)(data[1] << 8 | data[2])};

	proto.vlan = (data[0] & 8) != 0 ? 10 : 0;
	proto.verify_udp = (data[0] & 16) != 0;
	const uint32_t len = (uint32_t)size - 3;
	uint8_t *frame = malloc(len > 0 ? len : 1);

	REQUIRE(frame != NULL);
	memcpy(frame, data + 3, len);
	const enum port_verdict verdict = port_proto_parse(&proto, frame, len, &meta, &packet);

	if (verdict == PORT_DATAGRAM)
		send_back(&proto, frame, len, &packet);
	else if (verdict == PORT_ECHO ||
		 (verdict == PORT_ARP && packet.arp_request && packet.arp_for_us))
		answer(&proto, frame, len, &packet, verdict);
	else if (verdict == PORT_DROP)
		REQUIRE(packet.drop >= CTR_DROP_L2 && packet.drop < CTR_COUNT);
	free(frame);
	return 0;
}
