/* SPDX-License-Identifier: BSD-3-Clause */
// From the configuration to what a node is made of. Runs once, before the threads.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "app.h"
#include "base_log.h"

// Reads 64 hex digits. The file must not be readable by everybody.
static int read_key(const char *path, uint8_t key[WIRE_KEY_BYTES])
{
	char text[80];
	struct stat st;
	FILE *f = fopen(path, "re");
	size_t len;

	if (f == NULL)
		return -errno;
	if (fstat(fileno(f), &st) == 0 && (st.st_mode & 007) != 0) {
		LOG(LOG_ERROR, "auth", "E1601", "key file %s is open to everybody: chmod 600",
			path);
		fclose(f);
		return -EACCES;
	}
	len = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		len--;
	if (len != 2 * WIRE_KEY_BYTES)
		return -EINVAL;
	for (unsigned i = 0; i < WIRE_KEY_BYTES; i++) {
		unsigned byte;

		if (!isxdigit((unsigned char)text[2 * i]) ||
			!isxdigit((unsigned char)text[2 * i + 1]))
			return -EINVAL;
		sscanf(text + 2 * i, "%2x", &byte);
		key[i] = (uint8_t)byte;
	}
	return 0;
}

static int read_keys(const struct conf *conf, struct wire_keys *keys)
{
	memset(keys, 0, sizeof(*keys));
	if (conf->auth.mode == CONF_AUTH_OFF)
		return 0;
	keys->count = conf->auth.key_count;
	keys->send = conf->auth.send_key;
	for (unsigned i = 0; i < keys->count; i++) {
		const int rc = read_key(conf->auth.key_file[i], keys->key[i]);

		if (rc != 0) {
			LOG(LOG_ERROR, "auth", "E1602", "key file %s: %s; 64 hex digits are wanted",
				conf->auth.key_file[i], strerror(-rc));
			return rc;
		}
		keys->id[i] = conf->auth.key_id[i];
	}
	return 0;
}

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
	const uint32_t large = conf->limits.inflight_pushes / 16;

	*d = (struct delivery_limits){
		.inflight = conf->limits.inflight_pushes,
		.inflight_large = large < 64     ? 64
				  : large > 4096 ? 4096
						 : large,
		.gateways = conf->limits.gateways,
		.window = conf->delivery.push_window,
		.backlog = conf->delivery.backlog,
		.attempts = conf->delivery.attempts,
		.resend_percent = conf->delivery.resend_percent,
		.push_timeout_ns = conf->delivery.push_timeout_ns,
		.retry_max_ns = conf->delivery.retry_max_ns,
		.receipt_timeout_ns = conf->delivery.receipt_timeout_ns,
	};
	wire_random(&d->seed, sizeof(d->seed));
}

int app_node_params(struct app *app, struct node_params *p)
{
	const struct conf *conf = &app->conf;

	*p = (struct node_params){
		.id = conf->node.id,
		.boot = app->boot,
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
		.dgram = port_dgram_ops(),
		.source_ops = &source_store_ops,
		.source = app->source,
		.wake = app_wake,
		.wake_ctx = app,
	};
	wire_random(p->cookie_secret, sizeof(p->cookie_secret));
	fanout_params(conf, &p->fanout);
	delivery_params(conf, &p->delivery);
	for (uint32_t w = 0; w < conf->workers.count; w++) {
		p->queue[w] = port_queue(app->port, w);
		p->counters[w] = app->counters[w];
	}
	return read_keys(conf, &p->keys);
}
