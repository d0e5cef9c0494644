/* SPDX-License-Identifier: BSD-3-Clause */
// A whole node of one, two and four workers from HELLO to outcome, on a real store in memory.
#include "node_net.h"

#include <errno.h>

static struct net net;

#define CHANNELS 12u
#define MEMBERS 60u
#define ONLINE 40u

static void name_of(char name[16], uint32_t i)
{
	snprintf(name, 16, "room%u", i);
}

// Two gateways with the even and the odd sessions, a publisher, channels with the same members.
static void start(uint32_t workers, bool keys) WORKER_ONLY CONTROL_ONLY;
static void start(uint32_t workers, bool keys)
{
	net_open(&net, workers, keys);
	for (uint32_t i = 0; i < CHANNELS; i++) {
		char name[16];

		name_of(name, i);
		world_range(net.w, STORE_ADD, STORE_MEMBERS, name, "u", 0, MEMBERS);
	}
	world_ready(net.w);
	net_join(&net, &net.client[0], WIRE_ROLE_GATEWAY);
	net_join(&net, &net.client[1], WIRE_ROLE_GATEWAY);
	net_join(&net, &net.client[2], WIRE_ROLE_PUBLISHER);
	net_announce(&net, &net.client[0], "u", 0, ONLINE / 2);
	net_announce(&net, &net.client[1], "u", ONLINE / 2, ONLINE);
	net_turns(&net, 4);
	assert_int_equal(net.client[0].announced.status, WIRE_OK);
	assert_int_equal(net_count(&net, CTR_ANNOUNCE), ONLINE);
}

static void check_sums(void) CONTROL_ONLY;
static void check_sums(void)
{
	uint64_t c[CTR_COUNT], members = 0, routes = 0, publishes = 0;

	node_counters(net.node, c);
	for (int i = CTR_END_OFFLINE; i <= CTR_END_SENDER_ONLY; i++)
		members += c[i];
	for (int i = CTR_ROUTE_SENT; i <= CTR_ROUTE_NO_BUFFER; i++)
		routes += c[i];
	for (int i = CTR_PUB_OK; i <= CTR_PUB_PENDING; i++)
		publishes += c[i];
	assert_int_equal(c[CTR_MEMBERS], members);
	assert_int_equal(c[CTR_ROUTES], routes);
	assert_int_equal(c[CTR_PUBLISH], publishes);
}

static void everybody_gets_every_message_once(
	uint32_t workers, bool keys, int steer) WORKER_ONLY CONTROL_ONLY;
static void everybody_gets_every_message_once(uint32_t workers, bool keys, int steer)
{
	struct net_client *publisher = &net.client[2];

	start(workers, keys);
	net.steer = steer;
	for (uint32_t i = 0; i < CHANNELS; i++) {
		struct wire_publish m;
		char name[16];

		name_of(name, i);
		m = net_message(publisher, name, i + 1, WIRE_ACK_GATEWAY, i == 3 ? 20000 : 100);
		net_publish(&net, publisher, &m);
		net_turn(&net);
	}
	net_turns(&net, 30);
	assert_int_equal(publisher->acks, CHANNELS);
	assert_int_equal(publisher->ack.status, WIRE_OK);
	assert_int_equal(publisher->ack.members, MEMBERS);
	for (uint32_t s = 0; s < ONLINE; s++)
		assert_int_equal(net.client[s >= ONLINE / 2].got[s], CHANNELS);
	assert_int_equal(net.client[0].deliveries + net.client[1].deliveries, ONLINE * CHANNELS);
	assert_int_equal(net_count(&net, CTR_ROUTE_ACCEPTED), ONLINE * CHANNELS);
	assert_int_equal(net_count(&net, CTR_END_OFFLINE), (MEMBERS - ONLINE) * CHANNELS);
	check_sums();
	net_close(&net);
}

static void one_worker(void **state) WORKER_ONLY CONTROL_ONLY;
static void one_worker(void **state)
{
	everybody_gets_every_message_once(1, false, -1);
}

static void two_workers_with_keys(void **state) WORKER_ONLY CONTROL_ONLY;
static void two_workers_with_keys(void **state)
{
	everybody_gets_every_message_once(2, true, -1);
}

static void four_workers(void **state) WORKER_ONLY CONTROL_ONLY;
static void four_workers(void **state)
{
	everybody_gets_every_message_once(4, false, -1);
}

static void everything_arrives_on_the_wrong_queue(void **state) WORKER_ONLY CONTROL_ONLY;
static void everything_arrives_on_the_wrong_queue(void **state)
{
	everybody_gets_every_message_once(4, true, 3);
}

static void publish_to_the_wrong_port_reaches_the_channels_worker(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void publish_to_the_wrong_port_reaches_the_channels_worker(void **state)
{
	struct net_client *publisher = &net.client[2];

	start(4, true);
	for (uint32_t i = 0; i < 8; i++) {
		const struct wire_publish m =
			net_message(publisher, "room0", i + 1, WIRE_ACK_GATEWAY, 50);

		net_publish_to(&net, publisher, &m, i % 4);
		net_turns(&net, 12);
		assert_int_equal(publisher->acks, i + 1);
		assert_int_equal(publisher->ack.status, WIRE_OK);
		assert_int_equal(publisher->ack.seq, i + 1);
	}
	assert_int_equal(net.client[0].deliveries, ONLINE / 2 * 8);
	assert_true(net_count(&net, CTR_HANDOFF) == 6);
	check_sums();
	net_close(&net);
}

static void large_publish_to_the_wrong_port_reaches_the_channels_worker(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void large_publish_to_the_wrong_port_reaches_the_channels_worker(void **state)
{
	static const uint32_t sizes[] = {1500, 5000, 61000};
	struct net_client *publisher = &net.client[2];

	start(2, true);
	for (uint32_t i = 0; i < 3; i++) {
		const struct wire_publish m =
			net_message(publisher, "room0", i + 1, WIRE_ACK_GATEWAY, sizes[i]);
		const uint32_t wrong = 1 - net_worker_of(&net, "room0");

		net_publish_to(&net, publisher, &m, wrong);
		net_turns(&net, 12);
		assert_int_equal(publisher->acks, i + 1);
		assert_int_equal(publisher->ack.status, WIRE_OK);
		assert_int_equal(net.client[0].deliveries, ONLINE / 2 * (i + 1));
		// Sent again, as by a publisher that missed the answer: answered, not delivered.
		publisher->frame_id--;
		net_publish_to(&net, publisher, &m, wrong);
		net_turns(&net, 12);
		assert_true(publisher->acks > i + 1);
		publisher->acks = i + 1;
		assert_int_equal(publisher->ack.status, WIRE_OK);
		assert_int_equal(publisher->ack.duplicate, 1);
		assert_int_equal(net.client[0].deliveries, ONLINE / 2 * (i + 1));
	}
	check_sums();
	net_close(&net);
}

static void removed_member_gets_nothing_after_the_change_is_applied(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void removed_member_gets_nothing_after_the_change_is_applied(void **state)
{
	struct net_client *publisher = &net.client[2];
	struct wire_publish m;

	start(2, false);
	m = net_message(publisher, "room0", 1, WIRE_ACK_GATEWAY, 50);
	net_publish(&net, publisher, &m);
	net_turns(&net, 12);
	world_do(net.w, STORE_REMOVE, STORE_MEMBERS, "room0", "u3 u5");
	assert_int_equal(world_deliver(net.w, UINT32_MAX), 0);
	m.message_id = 2;
	net_publish(&net, publisher, &m);
	net_turns(&net, 12);
	assert_int_equal(publisher->acks, 2);
	assert_int_equal(publisher->ack.members, MEMBERS - 2);
	assert_int_equal(net.client[0].got[3], 1);
	assert_int_equal(net.client[0].got[5], 1);
	assert_int_equal(net.client[0].got[4], 2);
	check_sums();
	net_close(&net);
}

static void gateway_that_leaves_ends_its_routes(void **state) WORKER_ONLY CONTROL_ONLY;
static void gateway_that_leaves_ends_its_routes(void **state)
{
	struct net_client *publisher = &net.client[2];
	struct wire_publish m;

	start(2, false);
	net.client[0].silent = true;
	m = net_message(publisher, "room0", 1, WIRE_ACK_GATEWAY, 50);
	net_publish(&net, publisher, &m);
	net_turns(&net, 12);
	assert_int_equal(net_count(&net, CTR_ROUTE_ACCEPTED), ONLINE / 2);
	net_send(&net, &net.client[0], 0, WIRE_BYE, NULL, 0);
	net_turns(&net, 12);
	assert_int_equal(net_count(&net, CTR_ROUTE_GATEWAY_GONE), ONLINE / 2);
	m.message_id = 2;
	net_publish(&net, publisher, &m);
	net_turns(&net, 12);
	assert_int_equal(net_count(&net, CTR_END_OFFLINE), MEMBERS - ONLINE + MEMBERS - ONLINE / 2);
	check_sums();
	net_close(&net);
}

static void resend_of_a_large_publish_is_answered_again(void **state) WORKER_ONLY CONTROL_ONLY;
static void resend_of_a_large_publish_is_answered_again(void **state)
{
	struct net_client *publisher = &net.client[2];
	const struct wire_publish m = net_message(publisher, "room0", 1, WIRE_ACK_GATEWAY, 9000);

	start(1, true);
	const struct wire_publish again =
		net_message(publisher, "room0", 1, WIRE_ACK_GATEWAY, m.payload.len);
	net_publish(&net, publisher, &again);
	net_turns(&net, 12);
	assert_int_equal(publisher->acks, 1);
	publisher->frame_id--;  // the same frame
	net_publish(&net, publisher, &again);
	net_turns(&net, 12);
	assert_int_equal(publisher->acks, 2);
	assert_int_equal(publisher->ack.duplicate, 1);
	net_publish(&net, publisher, &again);  // the same message in another frame
	net_turns(&net, 12);
	assert_int_equal(publisher->acks, 3);
	assert_int_equal(publisher->ack.duplicate, 1);
	assert_int_equal(net.client[0].deliveries, ONLINE / 2);
	check_sums();
	net_close(&net);
}

static void publish_and_expect(uint32_t *published) WORKER_ONLY CONTROL_ONLY;
static void publish_and_expect(uint32_t *published)
{
	struct net_client *publisher = &net.client[2];

	for (uint32_t i = 0; i < 4; i++) {
		const struct wire_publish m = net_message(
			publisher, "room0", ++*published, WIRE_ACK_GATEWAY, i == 3 ? 5000 : 50);

		net_publish(&net, publisher, &m);
		net_turns(&net, 12);
		assert_int_equal(publisher->acks, *published);
		assert_int_equal(publisher->ack.status, WIRE_OK);
	}
}

// Both sides know both keys, then send with the new one, then forget the old one.
static void keys_rotate_under_traffic_and_nothing_is_lost(void **state) WORKER_ONLY CONTROL_ONLY;
static void keys_rotate_under_traffic_and_nothing_is_lost(void **state)
{
	struct node_settings settings;
	uint32_t published = 0;

	start(2, true);
	node_settings_of(&net.node->params, &settings);
	publish_and_expect(&published);
	settings.keys.count = 2;
	settings.keys.id[1] = 9;
	memset(settings.keys.key[1], 77, sizeof(settings.keys.key[1]));
	assert_int_equal(node_control_reload(net.node, &settings), 0);
	net_turns(&net, 2);
	assert_true(node_control_reloaded(net.node));
	publish_and_expect(&published);
	net.keys = settings.keys;  // clients: both, still sending with the old one
	publish_and_expect(&published);
	settings.keys.send = 1;
	assert_int_equal(node_control_reload(net.node, &settings), 0);
	publish_and_expect(&published);
	net.keys.send = 1;
	publish_and_expect(&published);
	settings.keys.count = 1;
	settings.keys.send = 0;
	settings.keys.id[0] = 9;
	memcpy(settings.keys.key[0], settings.keys.key[1], sizeof(settings.keys.key[0]));
	assert_int_equal(node_control_reload(net.node, &settings), 0);
	publish_and_expect(&published);
	assert_int_equal(net.client[0].deliveries, ONLINE / 2 * published);
	assert_int_equal(net.client[1].deliveries, ONLINE / 2 * published);
	assert_int_equal(net_count(&net, CTR_DROP_AUTH) + net_count(&net, CTR_DROP_KEY), 0);
	assert_int_equal(net_count(&net, CTR_PUSH_RESENT), 0);
	// The old key is worth nothing any more.
	net.keys.send = 0;
	net_hello(&net, &net.client[3], WIRE_ROLE_PUBLISHER, 0);
	net_turn(&net);
	assert_int_equal(net_count(&net, CTR_DROP_KEY), 1);
	check_sums();
	net_close(&net);
}

static void new_times_are_acted_on(void **state) WORKER_ONLY CONTROL_ONLY;
static void new_times_are_acted_on(void **state)
{
	struct node_settings settings;
	struct wire_publish m;

	start(1, false);
	net.client[0].silent = net.client[1].silent = true;
	node_settings_of(&net.node->params, &settings);
	settings.push_timeout_ns = settings.retry_max_ns = SECOND;
	settings.deadline_ns = 2 * SECOND;  // before the silent gateways are given up
	assert_int_equal(node_control_reload(net.node, &settings), 0);
	net_turns(&net, 2);
	m = net_message(&net.client[2], "room0", 1, WIRE_ACK_GATEWAY, 50);
	m.deadline_ms = 0;
	net_publish(&net, &net.client[2], &m);
	net_turns(&net, 12);
	net.w->now_ns += SECOND / 2;
	net_turns(&net, 12);
	assert_int_equal(net_count(&net, CTR_PUSH_RESENT), 0);
	net.w->now_ns += SECOND;
	net_turns(&net, 12);
	assert_true(net_count(&net, CTR_PUSH_RESENT) > 0);
	assert_int_equal(net_count(&net, CTR_ROUTE_DEADLINE), 0);
	net.w->now_ns += SECOND;
	net_turns(&net, 12);
	assert_int_equal(net_count(&net, CTR_ROUTE_DEADLINE), ONLINE);
	net_close(&net);
}

static void settings_that_cannot_be_held_are_refused(void **state) WORKER_ONLY CONTROL_ONLY;
static void settings_that_cannot_be_held_are_refused(void **state)
{
	struct node_settings good, s;

	start(1, true);
	node_settings_of(&net.node->params, &good);
#define REFUSED(change) \
	do { \
		s = good; \
		change; \
		assert_int_equal(node_control_reload(net.node, &s), -EINVAL); \
	} while (0)
	REFUSED(s.keys.count = 0);  // authentication cannot be switched off
	REFUSED(s.keys.count = 3);
	REFUSED(s.keys.send = 1);
	REFUSED(s.push_timeout_ns = 0);
	REFUSED(s.retry_max_ns = s.push_timeout_ns - 1);
	REFUSED(s.receipt_timeout_ns = 0);
	REFUSED(s.deadline_ns = s.deadline_max_ns + 1);
	REFUSED(s.deadline_max_ns = net.node->params.window_age_ns + 1);
	assert_true(node_control_reloaded(net.node));
	net_close(&net);
}

// A full ring delays them; the last ones count.
static void settings_reach_every_worker_however_full_its_ring(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void settings_reach_every_worker_however_full_its_ring(void **state)
{
	struct node_settings settings;

	start(2, true);
	node_settings_of(&net.node->params, &settings);
	for (uint32_t i = 0; i < 500; i++) {
		settings.receipt_timeout_ns = (1 + i) * SECOND;
		assert_int_equal(node_control_reload(net.node, &settings), 0);
	}
	assert_false(node_control_reloaded(net.node));
	net_turns(&net, 4);
	assert_true(node_control_reloaded(net.node));
	net_turns(&net, 4);
	settings.keys.key[0][0] ^= 1;
	assert_int_equal(node_control_reload(net.node, &settings), 0);
	net_turns(&net, 1);
	for (uint32_t w = 0; w < 2; w++)
		assert_memory_equal(
			&node_worker_of(net.node, w)->keys, &settings.keys, sizeof(settings.keys));
	net_close(&net);
}

static void check_limit(const char *name, uint64_t used) CONTROL_ONLY;
static void check_limit(const char *name, uint64_t used)
{
	struct node_limit limit[16];
	const uint32_t n = node_limits(net.node, limit, 16);

	for (uint32_t i = 0; i < n; i++)
		if (strcmp(limit[i].name, name) == 0)
			assert_int_equal(limit[i].used, used);
}

static void statistics_and_limits_follow(void **state) WORKER_ONLY CONTROL_ONLY;
static void statistics_and_limits_follow(void **state)
{
	struct node_worker_stats stats;
	struct node_limit limit[16];
	struct wire_publish m;
	uint32_t n, rows = 0;

	start(1, false);
	node_worker_turn_took(node_worker_of(net.node, 0), 700);
	node_worker_turn_took(node_worker_of(net.node, 0), 300);
	node_worker_stats(net.node, 0, &stats);
	assert_int_equal(stats.turn_max_ns, 700);
	assert_true(stats.turns > 10 && stats.busy_turns > 1 && stats.busy_turns < stats.turns);
	n = node_limits(net.node, limit, 16);
	assert_true(n >= 8);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(limit[i].used <= limit[i].max);
		if (strcmp(limit[i].name, "channels") == 0)
			assert_int_equal(limit[i].used, CHANNELS);
		if (strcmp(limit[i].name, "senders") == 0)
			assert_int_equal(limit[i].used, 3);
		rows += strcmp(limit[i].name, "backlog") == 0 ||
			strcmp(limit[i].name, "parked_per_channel") == 0 ||
			strcmp(limit[i].name, "window") == 0 ||
			strcmp(limit[i].name, "payload") == 0;
	}
	assert_int_equal(rows, 4);
	check_limit("window", 0);
	check_limit("payload", 0);
	m = net_message(&net.client[2], "room0", 1, WIRE_ACK_GATEWAY, 123);
	net_publish(&net, &net.client[2], &m);
	net_turns(&net, 12);
	check_limit("window", 1);
	check_limit("payload", 123);
	check_limit("parked_per_channel", 1);
	assert_int_equal(node_limits(net.node, limit, 2), 2);
	net_close(&net);
}

static void bad_parameters_are_named(void **state) WORKER_ONLY CONTROL_ONLY;
static void bad_parameters_are_named(void **state)
{
	struct node_params params;
	struct node *node;
	const char *why;

	net_open(&net, 2, false);
	for (uint32_t i = 0; i < 8; i++) {
		params = net.node->params;
		switch (i) {
		case 0:
			params.id = 0;
			break;
		case 1:
			params.workers = 0;
			break;
		case 2:
			params.workers = 17;
			break;
		case 3:
			params.addr.port = 65535;
			break;
		case 4:
			params.mtu = 500;
			break;
		case 5:
			params.gateways = 4096;
			break;
		case 6:
			params.window = 1;
			break;
		default:
			params.queue[1] = NULL;
			break;
		}
		why = NULL;
		assert_int_equal(node_create(&params, &node, &why), -22);
		assert_non_null(why);
	}
	net_close(&net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_worker),
		cmocka_unit_test(two_workers_with_keys),
		cmocka_unit_test(four_workers),
		cmocka_unit_test(everything_arrives_on_the_wrong_queue),
		cmocka_unit_test(publish_to_the_wrong_port_reaches_the_channels_worker),
		cmocka_unit_test(large_publish_to_the_wrong_port_reaches_the_channels_worker),
		cmocka_unit_test(removed_member_gets_nothing_after_the_change_is_applied),
		cmocka_unit_test(gateway_that_leaves_ends_its_routes),
		cmocka_unit_test(resend_of_a_large_publish_is_answered_again),
		cmocka_unit_test(statistics_and_limits_follow),
		cmocka_unit_test(keys_rotate_under_traffic_and_nothing_is_lost),
		cmocka_unit_test(new_times_are_acted_on),
		cmocka_unit_test(settings_that_cannot_be_held_are_refused),
		cmocka_unit_test(settings_reach_every_worker_however_full_its_ring),
		cmocka_unit_test(bad_parameters_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
