/* SPDX-License-Identifier: BSD-3-Clause */
// The limits of a node as a configuration sets them, and the memory they come to. Pure.
#include "app_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define NAMED 3u  // of the largest shares in a message

static void fanout_params(const struct conf *conf, struct fanout_limits *f)
{
	*f = (struct fanout_limits){
		.messages = conf->limits.messages,
		.parked = conf->limits.parked,
		.parked_per_channel = conf->limits.parked_per_channel,
		.quantum_members = conf->workers.quantum_members,
		.turn_members = conf->workers.quantum_members * 4,
		.payload_bytes = conf->limits.payload_bytes,
		// A share is kept back so that answers and resends go out while expansion waits.
		.buffer_reserve = conf->port.buffers / 8,
		.deadline_ns = conf->delivery.deadline_ns,
		.deadline_max_ns = conf->delivery.deadline_max_ns,
		.mtu = conf->port.mtu,
	};
}

static void delivery_params(const struct conf *conf, struct delivery_limits *d)
{
	const uint32_t all = conf->limits.inflight_pushes;
	uint32_t large = all / 16;

	if (large < 64)
		large = all < 2 * 64 ? all / 2 : 64;
	*d = (struct delivery_limits){
		.inflight = all,
		.inflight_large = large > 4096 ? 4096 : large,
		.gateways = conf->limits.gateways,
		.window = conf->delivery.push_window,
		.backlog = conf->delivery.backlog,
		.attempts = conf->delivery.attempts,
		.resend_percent = conf->delivery.resend_percent,
		.push_timeout_ns = conf->delivery.push_timeout_ns,
		.retry_max_ns = conf->delivery.retry_max_ns,
		.receipt_timeout_ns = conf->delivery.receipt_timeout_ns,
	};
}

void app_node_limits(const struct conf *conf, struct node_params *p)
{
	*p = (struct node_params){
		.id = conf->node.id,
		.cluster_id = conf->node.cluster_id,
		.addr = {.ip = conf->port.ip, .port = conf->port.udp_base},
		.mtu = conf->port.mtu,
		.workers = (uint16_t)conf->workers.count,
		.channels = conf->limits.channels,
		.uids = conf->limits.uids,
		.gateways = conf->limits.gateways,
		.senders = conf->limits.senders,
		.frames = conf->limits.frames,
		.ring_items = conf->workers.ring_items,
		.window = conf->limits.window,
		.window_age_ns = conf->limits.window_age_ns,
		.tag_bytes = conf->limits.tag_bytes,
		.tag_ttl_ns = conf->delivery.tag_ttl_ns,
		.tag_steps = conf->delivery.tag_steps,
		.build_members_per_step = conf->limits.build_members_per_step,
		.heartbeat_ns = conf->delivery.heartbeat_ns,
	};
	fanout_params(conf, &p->fanout);
	delivery_params(conf, &p->delivery);
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void app_memory(const struct conf *conf, struct app_memory *memory)
{
	struct node_params params;
	uint32_t n = NODE_MEMORY_ROWS;

	app_node_limits(conf, &params);
	node_memory(&params, memory->row);
	memory->row[n++] = (struct node_memory){"eal.memory", conf->eal.memory_bytes};
	if (conf->meta.mode == CONF_META_EMBEDDED)
		memory->row[n++] =
			(struct node_memory){"meta.feed_backlog", conf->meta.feed_backlog_bytes};
	memory->rows = n;
	memory->bytes = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i;

		memory->bytes = plus(memory->bytes, memory->row[i].bytes);
		// Largest first.
		for (; at > 0 && memory->row[at].bytes > memory->row[at - 1].bytes; at--) {
			const struct node_memory row = memory->row[at];

			memory->row[at] = memory->row[at - 1];
			memory->row[at - 1] = row;
		}
	}
}

void app_memory_text(const struct app_memory *memory, char *out, size_t size)
{
	int n = snprintf(
		out, size, "%" PRIu64 "MiB when every limit is reached:", memory->bytes / MIB);

	for (uint32_t i = 0; i < NAMED && i < memory->rows && n > 0 && (size_t)n < size; i++)
		n += snprintf(out + n, size - (size_t)n, " %s %" PRIu64 "MiB%s",
			memory->row[i].option, memory->row[i].bytes / MIB,
			i + 1 < NAMED ? "," : "");
}

int app_memory_check(const struct conf *conf, uint64_t machine_bytes, const char **key,
	char *problem, size_t size)
{
	struct app_memory memory;
	char text[256];

	app_memory(conf, &memory);
	if (memory.bytes <= machine_bytes)
		return 0;
	*key = memory.row[0].option;
	app_memory_text(&memory, text, sizeof(text));
	snprintf(problem, size, "the limits come to %s; this machine has %" PRIu64 "MiB", text,
		machine_bytes / MIB);
	return -E2BIG;
}
