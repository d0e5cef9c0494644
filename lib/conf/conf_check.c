/* SPDX-License-Identifier: BSD-3-Clause */
// Relations between options that each are in range. Pure functions.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "conf_pvt.h"

// key must not be larger than other.
struct order {
	const char *key, *other;
	uint64_t low, high;
};

static const struct conf_option *option(const char *key)
{
	const char *const dot = strchr(key, '.');

	for (uint32_t i = 0; i < conf_schema_count; i++) {
		if (strlen(conf_schema[i].section) == (size_t)(dot - key) &&
			memcmp(conf_schema[i].section, key, (size_t)(dot - key)) == 0 &&
			strcmp(conf_schema[i].name, dot + 1) == 0)
			return &conf_schema[i];
	}
	return NULL;
}

static const char *check_orders(const struct conf *conf, const char **other, char *problem)
{
	const struct order orders[] = {
		{"delivery.push_timeout", "delivery.retry_max", conf->delivery.push_timeout_ns,
			conf->delivery.retry_max_ns},
		{"delivery.deadline", "delivery.deadline_max", conf->delivery.deadline_ns,
			conf->delivery.deadline_max_ns},
		{"delivery.receipt_timeout", "delivery.deadline_max",
			conf->delivery.receipt_timeout_ns, conf->delivery.deadline_max_ns},
		{"delivery.deadline_max", "limits.window_age", conf->delivery.deadline_max_ns,
			conf->limits.window_age_ns},
		{"delivery.push_window", "limits.inflight_pushes", conf->delivery.push_window,
			conf->limits.inflight_pushes},
		{"limits.parked_per_channel", "limits.parked", conf->limits.parked_per_channel,
			conf->limits.parked},
		{"limits.parked", "limits.messages", conf->limits.parked, conf->limits.messages},
		{"limits.messages", "limits.window", conf->limits.messages, conf->limits.window},
		{"meta.snapshot_trailing", "meta.snapshot_entries", conf->meta.snapshot_trailing,
			conf->meta.snapshot_entries},
	};

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		char low[32], high[32];

		if (orders[i].low <= orders[i].high)
			continue;
		conf_format(option(orders[i].key), conf, low, sizeof(low));
		conf_format(option(orders[i].other), conf, high, sizeof(high));
		*other = orders[i].other;
		snprintf(problem, CONF_PROBLEM_MAX, "%s is more than %s; allowed up to its %s", low,
			orders[i].other, high);
		return orders[i].key;
	}
	return NULL;
}

static const char *check_addresses(const struct conf *conf, const char **other, char *problem)
{
	const uint32_t mask =
		conf->port.prefix_len == 0 ? 0 : UINT32_MAX << (32 - conf->port.prefix_len);
	char ip[16], network[16];

	*other = "port.address";
	conf_format_ipv4(conf->port.ip & mask, network);
	conf_format_ipv4(conf->port.gateway_ip, ip);
	if (conf->port.gateway_ip == conf->port.ip) {
		snprintf(problem, CONF_PROBLEM_MAX, "%s is the node's own address", ip);
		return "port.gateway";
	}
	if (conf->port.gateway_ip != 0 && ((conf->port.gateway_ip ^ conf->port.ip) & mask) != 0) {
		snprintf(problem, CONF_PROBLEM_MAX,
			"%s is not in the node's network; allowed %s/%u", ip, network,
			conf->port.prefix_len);
		return "port.gateway";
	}
	for (uint32_t i = 0; i < conf->port.neighbour_count; i++) {
		const uint32_t n = conf->port.neighbours[i].ip;

		conf_format_ipv4(n, ip);
		if (n == conf->port.ip || ((n ^ conf->port.ip) & mask) != 0) {
			snprintf(problem, CONF_PROBLEM_MAX,
				n == conf->port.ip
					? "%s is the node's own address; allowed others of %s/%u"
					: "%s is not in the node's network; allowed %s/%u",
				ip, network, conf->port.prefix_len);
			return "port.neighbours";
		}
	}
	return NULL;
}

static const char *check_auth(const struct conf *conf, const char **other, char *problem)
{
	*other = "auth.mode";
	if (conf->auth.mode == CONF_AUTH_ON && conf->auth.key_count == 0) {
		snprintf(problem, CONF_PROBLEM_MAX,
			"missing while auth.mode is on; allowed a list of 1..%u {id, file}",
			CONF_KEYS_MAX);
		return "auth.keys";
	}
	if (conf->auth.mode == CONF_AUTH_OFF && conf->auth.key_count != 0) {
		snprintf(problem, CONF_PROBLEM_MAX,
			"given while auth.mode is off; allowed only with auth.mode on");
		return "auth.keys";
	}
	return NULL;
}

static const char *check_raft(const struct conf *conf, const char **other, char *problem)
{
	const bool key = conf->meta.raft_key_file[0] != '\0';

	*other = "meta.raft_auth";
	if (key && conf->meta.raft_auth == CONF_AUTH_OFF) {
		snprintf(problem, CONF_PROBLEM_MAX,
			"given while meta.raft_auth is off; allowed only with meta.raft_auth on");
		return "meta.raft_key_file";
	}
	*other = "meta.raft_address";
	if (!key && conf->meta.raft_auth == CONF_AUTH_ON && conf->meta.raft_address[0] != '\0') {
		snprintf(problem, CONF_PROBLEM_MAX,
			"missing while meta.raft_address is given; allowed a file with 32 bytes "
			"in hex, or meta.raft_auth off");
		return "meta.raft_key_file";
	}
	if (conf->meta.raft_bind[0] != '\0' && conf->meta.raft_address[0] == '\0') {
		snprintf(problem, CONF_PROBLEM_MAX,
			"given without meta.raft_address; allowed only together");
		return "meta.raft_bind";
	}
	if (conf->meta.heartbeat_ns > conf->meta.election_ns / 3) {
		char text[32], third[32];

		*other = "meta.election_timeout";
		conf_format(option("meta.heartbeat"), conf, text, sizeof(text));
		snprintf(third, sizeof(third), "%" PRIu64 "ms", conf->meta.election_ns / 3000000);
		snprintf(problem, CONF_PROBLEM_MAX,
			"%s is more than a third of meta.election_timeout; allowed up to %s", text,
			third);
		return "meta.heartbeat";
	}
	return NULL;
}

static bool differs(const struct conf_option *o, const struct conf *a, const struct conf *b)
{
	switch (o->type) {
	case CONF_CIDR:
		return a->port.ip != b->port.ip || a->port.prefix_len != b->port.prefix_len;
	case CONF_NEIGHBOURS:
		return a->port.neighbour_count != b->port.neighbour_count ||
		       memcmp(a->port.neighbours, b->port.neighbours, sizeof(a->port.neighbours)) !=
			       0;
	case CONF_KEYS:
		return a->auth.key_count != b->auth.key_count ||
		       memcmp(a->auth.key_id, b->auth.key_id, sizeof(a->auth.key_id)) != 0 ||
		       memcmp(a->auth.key_file, b->auth.key_file, sizeof(a->auth.key_file)) != 0;
	default:
		return memcmp((const uint8_t *)a + o->offset, (const uint8_t *)b + o->offset,
			       o->bytes) != 0;
	}
}

bool conf_next_change(
	const struct conf *a, const struct conf *b, uint32_t *at, char *key, bool *reloadable)
{
	while (*at < conf_schema_count) {
		const struct conf_option *const o = &conf_schema[(*at)++];

		if (!differs(o, a, b))
			continue;
		snprintf(key, CONF_NAME_MAX, "%s.%s", o->section, o->name);
		*reloadable = o->reloadable;
		return true;
	}
	return false;
}

const char *conf_check(const struct conf *conf, const char **other, char *problem)
{
	const uint64_t buffer = conf->port.mtu > 2048 ? conf->port.mtu : 2048;
	const uint64_t buffers = (uint64_t)conf->workers.count *
				 ((uint64_t)conf->port.rx_descriptors + conf->port.tx_descriptors);
	const char *key = check_auth(conf, other, problem);

	if (key == NULL)
		key = check_raft(conf, other, problem);
	if (key == NULL)
		key = check_addresses(conf, other, problem);
	if (key == NULL)
		key = check_orders(conf, other, problem);
	if (key != NULL)
		return key;
	if (conf->port.udp_base + conf->workers.count > 65536) {
		*other = "workers.count";
		snprintf(problem, CONF_PROBLEM_MAX,
			"%u leaves no port for each of %u workers; allowed up to %u",
			conf->port.udp_base, conf->workers.count, 65536 - conf->workers.count);
		return "port.udp_base";
	}
	if (conf->port.buffers < buffers) {
		*other = "workers.count";
		snprintf(problem, CONF_PROBLEM_MAX,
			"%u are fewer than the descriptors of %u workers; allowed from %" PRIu64,
			conf->port.buffers, conf->workers.count, buffers);
		return "port.buffers";
	}
	if (conf->port.buffers * buffer > conf->eal.memory_bytes) {
		*other = "port.buffers";
		snprintf(problem, CONF_PROBLEM_MAX,
			"%" PRIu32 "MiB do not hold %u buffers of %" PRIu64
			" bytes and more; allowed from %" PRIu64 "MiB",
			conf->eal.memory_bytes >> 20, conf->port.buffers, buffer,
			(conf->port.buffers * buffer + 0xfffff) >> 20);
		return "eal.memory";
	}
	*other = NULL;
	return NULL;
}
