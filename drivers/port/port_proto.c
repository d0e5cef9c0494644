/* SPDX-License-Identifier: BSD-3-Clause */
// The parser and the builders of port_proto.h. Owns nothing; runs on workers, in tests and fuzzers.
#include "port_proto.h"

#define ETHERTYPE_IPV4 0x0800u
#define ETHERTYPE_ARP 0x0806u
#define ETHERTYPE_VLAN 0x8100u
#define IP_PROTO_ICMP 1u
#define IP_PROTO_UDP 17u
#define IP_DF 0x4000u
#define IP_FRAGMENT_MASK 0xbfffu  // more-fragments, offset and the reserved bit: all but DF
#define ARP_REQUEST 1u
#define ARP_REPLY 2u
#define ICMP_ECHO_REQUEST 8u

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, (uint16_t)(v >> 16));
	put16(p + 2, (uint16_t)v);
}

static bool mac_broadcast(const uint8_t *mac)
{
	return (mac[0] & mac[1] & mac[2] & mac[3] & mac[4] & mac[5]) == 0xff;
}

static bool mac_usable(const uint8_t *mac)
{
	return (mac[0] & 1) == 0 && (mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5]) != 0;
}

static bool on_link(const struct port_proto *proto, uint32_t ip)
{
	return ((ip ^ proto->ip) & proto->netmask) == 0;
}

// An address a single other host can have: not ours, this-network, loopback, multicast, class E, or the
// link's broadcast address.
static bool ip_usable(const struct port_proto *proto, uint32_t ip)
{
	const uint32_t top = ip >> 24;

	if (top == 0 || top == 127 || top >= 224 || ip == proto->ip)
		return false;
	// /31 and /32 have no broadcast address (RFC 3021)
	return !(on_link(proto, ip) && proto->netmask < 0xfffffffeu &&
		 (ip & ~proto->netmask) == ~proto->netmask);
}

static enum port_verdict drop(struct port_packet *out, enum counter reason)
{
	out->drop = reason;
	return PORT_DROP;
}

static enum port_verdict parse_arp(
	const struct port_proto *proto, const uint8_t *p, uint32_t len, struct port_packet *out)
{
	// hardware Ethernet, protocol IPv4, address lengths 6 and 4
	static const uint8_t kind[6] = {0, 1, 8, 0, 6, 4};

	if (len < PORT_ARP_LEN || memcmp(p, kind, sizeof(kind)) != 0)
		return drop(out, CTR_DROP_ARP);
	const uint16_t op = get16(p + 6);
	const uint32_t sender = get32(p + 14), target = get32(p + 24);

	if ((op != ARP_REQUEST && op != ARP_REPLY) || !mac_usable(p + 8))
		return drop(out, CTR_DROP_ARP);
	out->arp_request = op == ARP_REQUEST;
	out->arp_ip = sender;
	memcpy(out->arp_mac, p + 8, 6);
	if (sender == proto->ip) {
		out->arp_conflict = true;
		return PORT_ARP;
	}
	// a probe (RFC 5227) has no sender address; it is answered, and teaches nothing
	if (sender != 0 && (!ip_usable(proto, sender) ||
				   !(on_link(proto, sender) || sender == proto->gateway)))
		return drop(out, CTR_DROP_ARP);
	if (sender == 0 && op != ARP_REQUEST)
		return drop(out, CTR_DROP_ARP);
	out->arp_for_us = target == proto->ip;
	return PORT_ARP;
}

static bool udp_sum_good(const uint8_t *ip, const uint8_t *udp, uint32_t udp_len)
{
	const uint16_t len = port_be16((uint16_t)udp_len);
	const uint64_t sum =
		port_sum(ip + 12, 8) + port_be16(IP_PROTO_UDP) + len + port_sum(udp, udp_len);

	return port_sum_fold(sum) == 0xffff;
}

static enum port_verdict parse_udp(const struct port_proto *proto, const uint8_t *ip,
	uint32_t ip_header, uint32_t ip_len, const struct port_rx_meta *meta,
	struct port_packet *out)
{
	const uint8_t *udp = ip + ip_header;
	const uint32_t room = ip_len - ip_header;

	if (room < PORT_UDP_LEN)
		return drop(out, CTR_DROP_UDP_LEN);
	const uint32_t udp_len = get16(udp + 4);

	if (udp_len < PORT_UDP_LEN || udp_len > room)
		return drop(out, CTR_DROP_UDP_LEN);
	const uint16_t port = get16(udp + 2);

	if ((uint16_t)(port - proto->udp_base) >= proto->udp_count)
		return drop(out, CTR_DROP_PORT);
	// a checksum of 0 means that the sender made none
	if (proto->verify_udp && !meta->udp_good && get16(udp + 6) != 0 &&
		!udp_sum_good(ip, udp, udp_len))
		return drop(out, CTR_DROP_UDP_CSUM);
	out->payload_off = (uint16_t)(out->l3_off + ip_header + PORT_UDP_LEN);
	out->payload_len = (uint16_t)(udp_len - PORT_UDP_LEN);
	out->local_port = port;
	out->peer = (struct net_addr){.ip = get32(ip + 12), .port = get16(udp)};
	return PORT_DATAGRAM;
}

static enum port_verdict parse_icmp(const uint8_t *icmp, uint32_t len, struct port_packet *out)
{
	if (len < PORT_ICMP_LEN || icmp[0] != ICMP_ECHO_REQUEST || icmp[1] != 0 ||
		port_sum_fold(port_sum(icmp, len)) != 0xffff)
		return drop(out, CTR_DROP_PROTO);
	return PORT_ECHO;
}

static enum port_verdict parse_ipv4(const struct port_proto *proto, const uint8_t *ip, uint32_t len,
	const struct port_rx_meta *meta, struct port_packet *out)
{
	if (len < PORT_IP_LEN || ip[0] >> 4 != 4)
		return drop(out, CTR_DROP_IP);
	const uint32_t header = (ip[0] & 15u) * 4u, total = get16(ip + 2);

	if (header < PORT_IP_LEN || total < header || total > len)
		return drop(out, CTR_DROP_IP);
	if (!meta->ip_good && port_sum_fold(port_sum(ip, header)) != 0xffff)
		return drop(out, CTR_DROP_IP_CSUM);
	if (get32(ip + 16) != proto->ip || !ip_usable(proto, get32(ip + 12)))
		return drop(out, CTR_DROP_IP);
	if ((get16(ip + 6) & IP_FRAGMENT_MASK) != 0)
		return drop(out, CTR_DROP_FRAGMENT);
	if (ip[9] == IP_PROTO_UDP)
		return parse_udp(proto, ip, header, total, meta, out);
	// options would have to be reversed in an answer: such a ping gets none
	if (ip[9] == IP_PROTO_ICMP && header == PORT_IP_LEN)
		return parse_icmp(ip + header, total - header, out);
	return drop(out, CTR_DROP_PROTO);
}

enum port_verdict port_proto_parse(const struct port_proto *proto, const uint8_t *frame,
	uint32_t len, const struct port_rx_meta *meta, struct port_packet *out)
{
	memset(out, 0, sizeof(*out));
	if (len < PORT_ETH_LEN || len > UINT16_MAX)
		return drop(out, CTR_DROP_L2);
	const bool to_us = memcmp(frame, proto->mac, 6) == 0;

	// a kernel that shares the interface shows us what it, or we, sent
	if ((!to_us && !mac_broadcast(frame)) || memcmp(frame + 6, proto->mac, 6) == 0)
		return drop(out, CTR_DROP_L2);
	uint32_t off = PORT_ETH_LEN;
	uint16_t type = get16(frame + 12), tci = meta->vlan_tci;
	bool tagged = meta->vlan_stripped;

	if (type == ETHERTYPE_VLAN) {
		if (tagged || len < PORT_ETH_LEN + PORT_VLAN_LEN)
			return drop(out, CTR_DROP_VLAN);
		tagged = true;
		tci = get16(frame + 14);
		type = get16(frame + 16);
		off += PORT_VLAN_LEN;
	}
	// VLAN id 0 is a priority tag: the frame belongs to no VLAN
	if ((tagged ? tci & 0xfff : 0) != proto->vlan)
		return drop(out, CTR_DROP_VLAN);
	out->l3_off = (uint16_t)off;
	if (type == ETHERTYPE_ARP)
		return parse_arp(proto, frame + off, len - off, out);
	if (type != ETHERTYPE_IPV4 || !to_us)
		return drop(out, CTR_DROP_L2);
	return parse_ipv4(proto, frame + off, len - off, meta, out);
}

static void put_l2(const struct port_proto *proto, uint8_t *l3, const uint8_t *mac, uint16_t type)
{
	uint8_t *p = l3 - port_proto_l2_len(proto);

	memmove(p, mac, 6);
	memcpy(p + 6, proto->mac, 6);
	if (proto->vlan != 0) {
		put16(p + 12, ETHERTYPE_VLAN);
		put16(p + 14, proto->vlan);
	}
	put16(l3 - 2, type);
}

static uint32_t finish_arp(const struct port_proto *proto, uint8_t *l3)
{
	memset(l3 + PORT_ARP_LEN, 0, PORT_FRAME_MIN - PORT_ETH_LEN - PORT_ARP_LEN);
	const uint32_t len = port_proto_l2_len(proto) + PORT_ARP_LEN;

	return len < PORT_FRAME_MIN ? PORT_FRAME_MIN : len;
}

uint32_t port_proto_arp_answer(const struct port_proto *proto, uint8_t *l3)
{
	put16(l3 + 6, ARP_REPLY);
	memcpy(l3 + 18, l3 + 8, 10);  // the asker becomes the target
	memcpy(l3 + 8, proto->mac, 6);
	put32(l3 + 14, proto->ip);
	put_l2(proto, l3, l3 + 18, ETHERTYPE_ARP);
	return finish_arp(proto, l3);
}

uint32_t port_proto_arp_request(
	const struct port_proto *proto, uint8_t *l3, uint32_t ip, const uint8_t *mac)
{
	static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

	put16(l3, 1);
	put16(l3 + 2, ETHERTYPE_IPV4);
	l3[4] = 6;
	l3[5] = 4;
	put16(l3 + 6, ARP_REQUEST);
	memcpy(l3 + 8, proto->mac, 6);
	put32(l3 + 14, proto->ip);
	memset(l3 + 18, 0, 6);
	put32(l3 + 24, ip);
	put_l2(proto, l3, mac != NULL ? mac : broadcast, ETHERTYPE_ARP);
	return finish_arp(proto, l3);
}

uint32_t port_proto_echo_answer(const struct port_proto *proto, const uint8_t *frame, uint8_t *l3)
{
	uint8_t *icmp = l3 + PORT_IP_LEN, mac[6];
	const uint32_t total = get16(l3 + 2);

	memcpy(mac, frame + 6, 6);
	memcpy(l3 + 16, l3 + 12, 4);
	put32(l3 + 12, proto->ip);
	l3[8] = PORT_TTL;
	put16(l3 + 10, 0);
	const uint16_t ip_sum = (uint16_t)~port_sum_fold(port_sum(l3, PORT_IP_LEN));

	memcpy(l3 + 10, &ip_sum, 2);
	// type 8 becomes 0: HC' = ~(~HC + ~m + m') (RFC 1624)
	const uint16_t was = get16(icmp + 2);
	const uint16_t sum = (uint16_t)~port_sum_fold(
		(uint64_t)(uint16_t)~was + (uint16_t) ~(ICMP_ECHO_REQUEST << 8));

	icmp[0] = 0;
	put16(icmp + 2, sum);
	put_l2(proto, l3, mac, ETHERTYPE_IPV4);
	return port_proto_l2_len(proto) + total;
}

uint32_t port_proto_next_hop(const struct port_proto *proto, uint32_t ip)
{
	if (!ip_usable(proto, ip))
		return 0;
	return on_link(proto, ip) ? ip : proto->gateway;
}

void port_proto_template(const struct port_proto *proto, uint32_t ip, const uint8_t mac[6],
	uint32_t generation, struct port_template *t)
{
	uint8_t *udp = t->bytes + PORT_TEMPLATE_BYTES - PORT_UDP_LEN, *l3 = udp - PORT_IP_LEN;

	memset(t, 0, sizeof(*t));
	put_l2(proto, l3, mac, ETHERTYPE_IPV4);
	l3[0] = 0x45;
	put16(l3 + 6, IP_DF);  // with DF the identification may be 0 (RFC 6864)
	l3[8] = PORT_TTL;
	l3[9] = IP_PROTO_UDP;
	put32(l3 + 12, proto->ip);
	put32(l3 + 16, ip);
	t->ip = ip;
	t->generation = generation;
	t->ip_sum = port_sum_fold(port_sum(l3, PORT_IP_LEN));
	t->pseudo_sum = port_sum_fold(port_sum(l3 + 12, 8) + port_be16(IP_PROTO_UDP));
}
