/* SPDX-License-Identifier: BSD-3-Clause */
// Answers of the control socket: status, reload and the tables of `tagcastctl show`. Reads counters relaxed and
// control-side tables; runs on the control core.
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifndef TAGCAST_NO_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

#include "app.h"
#include "base_time.h"
#include "feed_client.h"
#include "meta_child.h"
#include "presence.h"

#define ROWS_MAX 1000u  // of one answer; `limit` and `skip` page through more

static void add_u64(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)value));
}

static json_t *addr_text(struct net_addr addr)
{
	char text[32];

	snprintf(text, sizeof(text), "%u.%u.%u.%u:%u", addr.ip >> 24, addr.ip >> 16 & 255,
		addr.ip >> 8 & 255, addr.ip & 255, addr.port);
	return json_string(text);
}

static uint64_t resident_bytes(void)
{
	unsigned long long size = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f != NULL) {
		if (fscanf(f, "%llu %llu", &size, &resident) != 2)
			resident = 0;
		fclose(f);
	}
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

// jemalloc's own figures; absent in builds that leave the allocator to a sanitizer.
static void add_allocator(json_t *fields)
{
#ifndef TAGCAST_NO_JEMALLOC
	static const char *const names[] = {"allocated", "active", "resident", "retained"};
	uint64_t epoch = 1;
	size_t len = sizeof(epoch);

	mallctl("epoch", &epoch, &len, &epoch, len);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char key[64], field[64];
		size_t value = 0;

		snprintf(key, sizeof(key), "stats.%s", names[i]);
		snprintf(field, sizeof(field), "malloc_%s_bytes", names[i]);
		len = sizeof(value);
		if (mallctl(key, &value, &len, NULL, 0) == 0)
			add_u64(fields, field, value);
	}
#else
	json_object_set_new(fields, "malloc", json_string("system"));
#endif
}

static void add_presence(struct app *app, json_t *fields) CONTROL_ONLY
{
	struct presence_stats stats;

	presence_stats(node_presence(app->node), &stats);
	add_u64(fields, "uids", stats.uids);
	add_u64(fields, "uids_online", stats.uids_online);
	add_u64(fields, "sessions", stats.sessions);
	add_u64(fields, "gateways", stats.gateways);
}

static void add_workers(struct app *app, json_t *fields) CONTROL_ONLY
{
	uint64_t turn_max = 0, messages = 0, parked = 0, inflight = 0, backlog = 0;

	for (uint32_t w = 0; w < app->conf.workers.count; w++) {
		struct node_worker_stats s;

		node_worker_stats(app->node, w, &s);
		turn_max = s.turn_max_ns > turn_max ? s.turn_max_ns : turn_max;
		messages += s.fanout.messages;
		parked += s.fanout.parked;
		inflight += s.delivery.inflight;
		backlog += s.delivery.backlog;
	}
	add_u64(fields, "workers", app->conf.workers.count);
	add_u64(fields, "turn_max_us", turn_max / NS_PER_US);
	add_u64(fields, "messages_open", messages);
	add_u64(fields, "messages_parked", parked);
	add_u64(fields, "pushes_inflight", inflight);
	add_u64(fields, "pushes_backlog", backlog);
}

static void add_port(struct app *app, json_t *fields)
{
	struct port_info info;
	char mac[24];

	port_info(app->port, &info);
	snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", info.mac[0], info.mac[1],
		info.mac[2], info.mac[3], info.mac[4], info.mac[5]);
	json_object_set_new(fields, "port_device", json_string(info.device));
	json_object_set_new(fields, "port_driver", json_string(info.driver));
	json_object_set_new(fields, "port_mac", json_string(mac));
	json_object_set_new(fields, "port_link", json_string(info.link_up ? "up" : "down"));
	add_u64(fields, "port_mtu", info.mtu);
	add_u64(fields, "port_queues", info.queues);
	json_object_set_new(fields, "port_steered", json_boolean(info.steered));
	json_object_set_new(fields, "port_checksum_ip_hw", json_boolean(info.checksum_ip_hw));
	json_object_set_new(fields, "port_checksum_udp_hw", json_boolean(info.checksum_udp_hw));
	add_u64(fields, "port_neighbours", info.neighbours);
	add_u64(fields, "port_rx_missed", info.rx_missed);
	add_u64(fields, "port_rx_no_buffer", info.rx_nombuf);
	add_u64(fields, "port_rx_errors", info.rx_errors);
	add_u64(fields, "port_tx_errors", info.tx_errors);
	add_u64(fields, "buffers_free", info.buffers_free);
	add_u64(fields, "buffers", info.buffers);
}

static void add_meta(struct app *app, json_t *fields) CONTROL_ONLY
{
	struct feed_client_info feed;

	feed_client_info(app->feed, &feed);
	json_object_set_new(fields, "meta",
		json_string(feed.connected ? "connected"
			    : feed.waiting ? "no group"
					   : "away"));
	add_u64(fields, "feed_frames", feed.frames);
	add_u64(fields, "feed_connects", feed.connects);
	add_u64(fields, "feed_failures", feed.failures);
	add_u64(fields, "feed_lagged", feed.lagged);
	json_object_set_new(fields, "feed_last_error", json_string(feed.last_error));
	if (app->meta != NULL) {
		struct meta_child_info info;

		meta_child_info(app->meta, &info);
		add_u64(fields, "meta_pid", (uint64_t)info.pid);
		add_u64(fields, "meta_starts", info.starts);
		add_u64(fields, "meta_exits", info.exits);
		if (info.last_code >= 0)
			add_u64(fields, "meta_last_exit", (uint64_t)info.last_code);
	}
	add_u64(fields, "applied", node_control_applied(app->node));
}

static void status(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY
{
	struct app *app = ctx;
	json_t *fields = json_object();
	uint64_t sums[CTR_COUNT];
	char boot[32];

	(void)args;
	node_counters(app->node, sums);
	snprintf(boot, sizeof(boot), "%016llx", (unsigned long long)app->boot);
	json_object_set_new(
		fields, "state", json_string(node_control_ready(app->node) ? "ready" : "starting"));
	add_u64(fields, "node_id", app->conf.node.id);
	json_object_set_new(fields, "boot", json_string(boot));
	add_u64(fields, "uptime_s", (time_now_ns() - app->started_ns) / NS_PER_S);
	add_meta(app, fields);
	add_presence(app, fields);
	add_workers(app, fields);
	add_port(app, fields);
	add_u64(fields, "publishes", sums[CTR_PUBLISH]);
	add_u64(fields, "routes", sums[CTR_ROUTES]);
	add_u64(fields, "pushes", sums[CTR_PUSH]);
	add_u64(fields, "pushes_resent", sums[CTR_PUSH_RESENT]);
	add_u64(fields, "reloads", app->reloads);
	add_u64(fields, "reloads_refused", app->reloads_refused);
	add_u64(fields, "resident_bytes", resident_bytes());
	add_allocator(fields);
	ctl_reply(request, json_pack("{s:o}", "fields", fields));
}

static void reload(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY
{
	char text[CONF_ERROR_MAX];

	(void)args;
	if (app_reload(ctx, text) == 0)
		ctl_reply(request, json_pack("{s:{s:s}}", "fields", "reloaded", text));
	else
		ctl_fail(request, "invalid_config", "%s", text);
}

static json_t *columns_of(const char *const *names, unsigned count)
{
	json_t *columns = json_array();

	for (unsigned i = 0; i < count; i++)
		json_array_append_new(columns, json_string(names[i]));
	return columns;
}

static void reply_table(struct ctl_request *request, json_t *columns, json_t *rows)
{
	ctl_reply(request, json_pack("{s:o,s:o}", "columns", columns, "rows", rows));
}

// Page arguments: skip (default 0), limit (default and at most ROWS_MAX).
static void page_of(const json_t *args, uint64_t *skip, uint64_t *limit)
{
	const json_t *s = json_object_get(args, "skip");
	const json_t *l = json_object_get(args, "limit");

	*skip = json_is_integer(s) && json_integer_value(s) > 0 ? (uint64_t)json_integer_value(s)
								: 0;
	*limit = ROWS_MAX;
	if (json_is_integer(l) && json_integer_value(l) > 0 && json_integer_value(l) < ROWS_MAX)
		*limit = (uint64_t)json_integer_value(l);
}

static void show_tags(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY
{
	static const char *const names[] = {
		"type", "channel", "key", "version", "smv", "members", "chunks", "pins", "idle_ms"};
	struct app *app = ctx;
	struct node_tag_info info;
	json_t *rows = json_array();
	uint64_t skip, limit, n = 0;
	uint32_t at = 0;
	const uint64_t now = time_now_ns();

	page_of(args, &skip, &limit);
	while (node_next_tag(app->node, &at, now, &info)) {
		char key[33];

		if (n++ < skip)
			continue;
		if (json_array_size(rows) == limit)
			break;
		for (unsigned i = 0; i < 16; i++)
			snprintf(key + 2 * i, 3, "%02x", info.fence.key[i]);
		json_array_append_new(
			rows, json_pack("[i,o,s,I,I,i,i,i,I]", info.channel.type,
				      ctl_id_json(channel_key_id(&info.channel)), key,
				      (json_int_t)info.fence.version, (json_int_t)info.smv,
				      (int)info.members, (int)info.chunks, (int)info.pins,
				      (json_int_t)(info.idle_ns / NS_PER_MS)));
	}
	reply_table(request, columns_of(names, 9), rows);
}

static void show_gateways(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY
{
	static const char *const names[] = {"index", "gateway", "boot", "address", "state",
		"sessions", "announced", "heard_ms", "srtt_us"};
	struct app *app = ctx;
	json_t *rows = json_array();
	const uint64_t now = time_now_ns();
	uint64_t skip, limit, n = 0;

	page_of(args, &skip, &limit);
	for (uint32_t i = 1; i <= app->conf.limits.gateways; i++) {
		struct presence_gateway_info info;
		char boot[24];

		if (!presence_gateway_info(node_presence(app->node), i, &info) || n++ < skip)
			continue;
		if (json_array_size(rows) == limit)
			break;
		snprintf(boot, sizeof(boot), "%016llx", (unsigned long long)info.boot);
		json_array_append_new(
			rows, json_pack("[i,I,s,o,s,i,I,I,I]", (int)i, (json_int_t)info.gateway,
				      boot, addr_text(info.addr), info.alive ? "up" : "down",
				      (int)info.sessions, (json_int_t)(info.next_expected - 1),
				      (json_int_t)((now - info.heard_ns) / NS_PER_MS),
				      (json_int_t)node_gateway_srtt_us(app->node, i)));
	}
	reply_table(request, columns_of(names, 9), rows);
}

// All counters; with "all" false (the default) only those that are not 0.
static void show_drops(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY
{
	static const char *const names[] = {"counter", "value", "meaning"};
	struct app *app = ctx;
	uint64_t sums[CTR_COUNT];
	json_t *rows = json_array();
	const bool all = json_is_true(json_object_get(args, "all"));

	node_counters(app->node, sums);
	for (unsigned i = 0; i < CTR_COUNT; i++)
		if (all || sums[i] != 0)
			json_array_append_new(
				rows, json_pack("[s,I,s]", counter_name((enum counter)i),
					      (json_int_t)sums[i], counter_help((enum counter)i)));
	reply_table(request, columns_of(names, 3), rows);
}

static void show_limits(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY
{
	static const char *const names[] = {"limit", "used", "max", "unit", "hits", "when_reached"};
	struct app *app = ctx;
	struct node_limit limits[64];
	const uint32_t n = node_limits(app->node, limits, 64);
	json_t *rows = json_array();
	uint64_t sums[CTR_COUNT];
	struct port_info port;

	(void)args;
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(
			rows, json_pack("[s,I,I,s,I,s]", limits[i].name, (json_int_t)limits[i].used,
				      (json_int_t)limits[i].max, limits[i].unit,
				      (json_int_t)limits[i].hits, limits[i].when_reached));
	node_counters(app->node, sums);
	port_info(app->port, &port);
	json_array_append_new(rows,
		json_pack("[s,I,I,s,I,s]", "buffers",
			(json_int_t)(port.buffers - port.buffers_free), (json_int_t)port.buffers,
			"datagrams", (json_int_t)sums[CTR_DROP_NO_BUFFER],
			"datagrams are dropped, routes end as route_no_buffer"));
	reply_table(request, columns_of(names, 6), rows);
}

static void show_workers(void *ctx, struct ctl_request *request, const json_t *args) CONTROL_ONLY
{
	static const char *const names[] = {"worker", "turns", "busy_turns", "turn_max_us",
		"ring_depth", "messages", "parked", "runnable", "inflight", "backlog",
		"retries_due"};
	struct app *app = ctx;
	json_t *rows = json_array();

	(void)args;
	for (uint32_t w = 0; w < app->conf.workers.count; w++) {
		struct node_worker_stats s;

		node_worker_stats(app->node, w, &s);
		json_array_append_new(rows,
			json_pack("[i,I,I,I,i,i,i,i,i,i,i]", (int)w, (json_int_t)s.turns,
				(json_int_t)s.busy_turns, (json_int_t)(s.turn_max_ns / NS_PER_US),
				(int)s.ring_depth_max, (int)s.fanout.messages, (int)s.fanout.parked,
				(int)s.fanout.runnable, (int)s.delivery.inflight,
				(int)s.delivery.backlog, (int)s.delivery.retries_due));
	}
	reply_table(request, columns_of(names, 11), rows);
}

const struct ctl_command app_commands[] = {
	{"status", status},
	{"reload", reload},
	{"show.tags", show_tags},
	{"show.gateways", show_gateways},
	{"show.drops", show_drops},
	{"show.limits", show_limits},
	{"show.queues", app_show_queues},
	{"show.workers", show_workers},
};
const uint32_t app_command_count = sizeof(app_commands) / sizeof(app_commands[0]);
