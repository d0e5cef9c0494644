/* SPDX-License-Identifier: BSD-3-Clause */
// Ethernet, VLAN, ARP, IPv4, ICMP echo and UDP as bytes: one parser, one builder of each answer and
// header, checksums. No packet type, device, clock or allocation: unit tests and fuzzers call it with
// plain buffers. Worker safe.
// Formats: RFC 826 (ARP), RFC 791 (IPv4), RFC 792 (ICMP), RFC 768 (UDP), RFC 1071 and 1624 (checksums),
// IEEE 802.1Q (VLAN).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base_counters.h"
#include "dgram.h"

#define PORT_ETH_LEN 14u
#define PORT_VLAN_LEN 4u
#define PORT_ARP_LEN 28u
#define PORT_IP_LEN 20u
#define PORT_UDP_LEN 8u
#define PORT_ICMP_LEN 8u
#define PORT_FRAME_MIN 60u  // Ethernet's least frame without its check sequence
#define PORT_TEMPLATE_BYTES 48u  // headers in whole 16-byte moves; written before a payload
#define PORT_TTL 64u

// Addresses of one port; constant after the port is open. Numbers in host byte order.
struct port_proto {
	uint8_t mac[6];
	uint16_t vlan;  // 0: frames carry no tag
	uint32_t ip;
	uint32_t netmask;
	uint32_t gateway;  // 0: none
	uint16_t udp_base;
	uint16_t udp_count;  // ports udp_base .. udp_base + udp_count - 1 are ours
	bool verify_udp;  // else no UDP checksum is looked at
};

// What the device already knows of a frame.
struct port_rx_meta {
	bool vlan_stripped;  // the tag was cut out and is in vlan_tci
	bool ip_good;  // IPv4 header checksum seen good
	bool udp_good;  // UDP checksum seen good
	uint16_t vlan_tci;
};

enum port_verdict {
	PORT_DATAGRAM,  // payload_off, payload_len, local_port, peer
	PORT_ARP,  // arp_*; answer when arp_request and arp_for_us
	PORT_ECHO,  // ICMP echo request to answer in place
	PORT_DROP,  // drop
};

struct port_packet {
	enum counter drop;
	uint16_t l3_off;  // where ARP or IPv4 starts
	uint16_t payload_off;  // DATAGRAM
	uint16_t payload_len;
	uint16_t local_port;
	struct net_addr peer;
	uint32_t arp_ip;  // ARP: sender
	uint8_t arp_mac[6];
	bool arp_request;
	bool arp_for_us;  // target address is ours
	bool arp_conflict;  // another station says it has our address
};

// Headers of datagrams to one address, ready but for ports, lengths and checksums.
struct port_template {
	uint32_t ip;  // destination; 0: unused
	uint32_t generation;  // of the neighbour table it was made from
	uint32_t ip_sum;  // sum of the IPv4 header, total length left out
	uint32_t pseudo_sum;  // sum of UDP's pseudo header, UDP length left out
	uint8_t bytes[PORT_TEMPLATE_BYTES];  // headers, ending at the end
};
_Static_assert(sizeof(struct port_template) == 64, "a template is one cache line");

// Looks at one frame of `len` bytes, all readable. Nothing is written but *out.
enum port_verdict port_proto_parse(const struct port_proto *proto, const uint8_t *frame,
	uint32_t len, const struct port_rx_meta *meta, struct port_packet *out);

// Bytes before IPv4 or ARP in our own frames.
static inline uint32_t port_proto_l2_len(const struct port_proto *proto)
{
	return proto->vlan != 0 ? PORT_ETH_LEN + PORT_VLAN_LEN : PORT_ETH_LEN;
}

// Each builder takes the place of the network header, writes port_proto_l2_len() bytes before it, and
// returns the frame's length from that start.
//
// Turns the ARP request at l3 into our answer. Room: 46 bytes at l3.
uint32_t port_proto_arp_answer(const struct port_proto *proto, uint8_t *l3);
// Writes a request for `ip`; to `mac` when not NULL, else broadcast. ip = own: announcement.
uint32_t port_proto_arp_request(
	const struct port_proto *proto, uint8_t *l3, uint32_t ip, const uint8_t *mac);
// Turns the echo request at l3 (a packet the parser called PORT_ECHO) into the reply. `frame` is where
// the request's Ethernet header starts.
uint32_t port_proto_echo_answer(const struct port_proto *proto, const uint8_t *frame, uint8_t *l3);

// Who a datagram to `ip` is handed to on the link. Returns: its address; 0 when there is no way.
uint32_t port_proto_next_hop(const struct port_proto *proto, uint32_t ip);

void port_proto_template(const struct port_proto *proto, uint32_t ip, const uint8_t mac[6],
	uint32_t generation, struct port_template *t);

// --- checksums --------------------------------------------------------------------------------------------

// Folds a sum of 16-bit words to 16 bits.
static inline uint16_t port_sum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffffu) + (sum >> 32);
	sum = (sum & 0xffffffffu) + (sum >> 32);
	sum = (sum & 0xffffu) + (sum >> 16);
	sum = (sum & 0xffffu) + (sum >> 16);
	return (uint16_t)sum;
}

// Sum of `len` bytes as 16-bit words in memory order, an odd last byte padded with zero; to be folded.
// Sums 32-bit words in 64-bit lanes, which folds to the same 16 bits (RFC 1071 section 2).
static inline uint64_t port_sum(const uint8_t *p, uint32_t len)
{
	typedef uint64_t lanes __attribute__((vector_size(32)));
	uint64_t sum = 0;

	if (len >= 64) {
		lanes even = {0}, odd = {0};

		while (len >= 32) {
			lanes v;

			memcpy(&v, p, sizeof(v));
			even += v & 0xffffffffu;
			odd += v >> 32;
			p += 32;
			len -= 32;
		}
		even += odd;
		sum = even[0] + even[1] + even[2] + even[3];
	}
	while (len >= 4) {
		uint32_t v;

		memcpy(&v, p, sizeof(v));
		sum += v;
		p += 4;
		len -= 4;
	}
	if (len > 0) {
		uint8_t tail[4] = {0};

		memcpy(tail, p, len);
		uint32_t v;

		memcpy(&v, tail, sizeof(v));
		sum += v;
	}
	return sum;
}

static inline uint16_t port_be16(uint16_t v)
{
	return __builtin_bswap16(v);
}

// What becomes of the UDP checksum of a datagram sent.
enum port_udp_sum {
	PORT_SUM_MADE,  // here
	PORT_SUM_OFFLOAD,  // by the device, which finds the sum of the pseudo header in the field
	PORT_SUM_NONE,  // 0: none
};

// Writes headers before d->data from a template. Context: at least PORT_TEMPLATE_BYTES before d->data.
static inline void port_proto_headers(
	const struct port_template *t, const struct dgram *d, enum port_udp_sum how)
{
	uint8_t *end = d->data;
	const uint16_t udp_len = port_be16((uint16_t)(d->len + PORT_UDP_LEN));
	const uint16_t ip_len = port_be16((uint16_t)(d->len + PORT_UDP_LEN + PORT_IP_LEN));
	uint16_t udp[4] = {port_be16(d->local_port), port_be16(d->peer.port), udp_len, 0};

	memcpy(end - PORT_TEMPLATE_BYTES, t->bytes, PORT_TEMPLATE_BYTES);
	const uint16_t ip_sum = (uint16_t)~port_sum_fold((uint64_t)t->ip_sum + ip_len);

	memcpy(end - PORT_UDP_LEN - PORT_IP_LEN + 2, &ip_len, 2);
	memcpy(end - PORT_UDP_LEN - PORT_IP_LEN + 10, &ip_sum, 2);
	if (how == PORT_SUM_OFFLOAD) {
		udp[3] = port_sum_fold((uint64_t)t->pseudo_sum + udp_len);
	} else if (how == PORT_SUM_MADE) {
		const uint16_t sum =
			(uint16_t)~port_sum_fold(port_sum(d->data, d->len) + t->pseudo_sum +
						 udp_len + udp[0] + udp[1] + udp_len);

		udp[3] = sum != 0 ? sum : 0xffff;  // 0 would say "none" (RFC 768)
	}
	memcpy(end - PORT_UDP_LEN, udp, PORT_UDP_LEN);
}
