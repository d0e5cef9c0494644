/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_test_common.h"

#include <errno.h>
#include <stdlib.h>

#include "fake_node.h"

static bool all_done(struct world *w)
{
	return client_core_publish_pending(w->core) == 0;
}

static uint32_t payload_sum(uint64_t message_id, uint32_t bytes)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < bytes; i++)
		sum = sum * 131 + world_byte(message_id, i);
	return sum;
}

static void a_publish_ends_with_the_outcome_of_the_node(void **state)
{
	struct world *w = world_create(1, false, true);
	uint64_t request;

	(void)state;
	request = world_publish(w, "room", 5, 100);
	assert_int_equal(client_core_publish_pending(w->core), 1);
	assert_true(world_until(w, all_done, 1000));
	assert_int_equal(w->outcomes, 1);
	assert_int_equal(w->outcome[0].status, TAGCAST_OK);
	assert_int_equal(w->outcome[0].message_id, 5);
	assert_int_equal(w->outcome[0].request, request);
	assert_int_equal(w->outcome[0].acked, 7);
	assert_ptr_equal(w->outcome[0].user, w);
	assert_int_equal(w->last_payload_sum, payload_sum(5, 100));
	world_destroy(w);
}

static void a_channel_goes_to_the_port_of_its_worker(void **state)
{
	struct world *w = world_create(1, false, true);
	uint32_t used[WORLD_WORKERS] = {0};

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	for (uint32_t i = 1; i <= 50; i++) {
		struct channel_key key;
		char name[16];

		snprintf(name, sizeof(name), "c%u", i);
		assert_int_equal(channel_key_set(&key, 2, name, (uint8_t)strlen(name)), 0);
		world_publish(w, name, i, 10);
		assert_true(world_until(w, all_done, 1000));
		assert_int_equal(w->last_publish_worker, channel_key_worker(&key, WORLD_WORKERS));
		used[w->last_publish_worker]++;
	}
	for (uint32_t i = 0; i < WORLD_WORKERS; i++)
		assert_true(used[i] > 0);
	world_destroy(w);
}

static void invalid_publishes_are_refused_at_once(void **state)
{
	struct world *w = world_create(1, true, true);
	char bytes[300] = {0};
	const struct tagcast_publish good = {
		.channel_type = 2,
		.channel = {.bytes = "c", .len = 1},
		.message_id = 1,
		.payload = bytes,
		.payload_len = 10,
	};
	struct tagcast_publish p;
	uint64_t request;

	(void)state;
#define REFUSED(rc, change) \
	do { \
		p = good; \
		change; \
		assert_int_equal(client_core_publish(w->core, &p, w->now_ns, &request), rc); \
	} while (0)
	REFUSED(-EINVAL, p.channel_type = 0);
	REFUSED(-EINVAL, p.channel_type = 13);
	REFUSED(-EINVAL, p.channel.len = 0);
	REFUSED(-EINVAL, (p.channel.bytes = bytes, p.channel.len = 256));
	REFUSED(-EINVAL, p.message_id = 0);
	REFUSED(-EINVAL, p.payload = NULL);
	REFUSED(-EINVAL, p.ack = (enum tagcast_ack)3);
	REFUSED(-EINVAL, (p.from_uid.bytes = bytes, p.from_uid.len = 256));
	REFUSED(-EINVAL, (p.sender_session = 1, p.session = 1));
	REFUSED(-EMSGSIZE, p.payload_len = 61441);
#undef REFUSED
	assert_int_equal(client_core_publish_pending(w->core), 0);
	world_destroy(w);
}

static void more_than_the_window_is_refused_and_the_window_reopens(void **state)
{
	struct world *w = world_create(1, false, true);
	const struct tagcast_publish p = {
		.channel_type = 2, .channel = {.bytes = "c", .len = 1}, .message_id = 1000};
	uint64_t request;

	(void)state;
	for (uint64_t i = 1; i <= 64; i++)
		world_publish(w, "c", i, 1);
	assert_int_equal(client_core_publish(w->core, &p, w->now_ns, &request), -ENOBUFS);
	assert_true(world_until(w, all_done, 1000));
	assert_int_equal(client_core_publish(w->core, &p, w->now_ns, &request), 0);
	world_destroy(w);
}

static void refusals_that_pass_are_tried_again(void **state)
{
	static const uint16_t script[] = {
		WIRE_RETRYABLE, WIRE_BUSY, WIRE_NEED_HELLO, WIRE_RETRYABLE, WIRE_RETRYABLE};
	struct world *w = world_create(1, false, true);

	(void)state;
	memcpy(w->publish_status, script, sizeof(script));
	w->publish_statuses = 5;
	world_publish(w, "c", 1, 10);
	assert_true(world_until(w, all_done, 5000));
	assert_int_equal(w->outcomes, 1);
	assert_int_equal(w->outcome[0].status, TAGCAST_OK);
	assert_int_equal(w->publishes, 6);
	assert_true(w->hellos >= 4);
	world_destroy(w);
}

static void busy_waits_as_long_as_the_node_says(void **state)
{
	struct world *w = world_create(1, false, true);
	uint64_t start;

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	w->publish_status[0] = WIRE_BUSY;
	w->publish_statuses = 1;
	w->retry_after_ms = 700;
	start = w->now_ns;
	world_publish(w, "c", 1, 10);
	assert_true(world_until(w, all_done, 5000));
	assert_in_range(w->now_ns - start, 700 * WORLD_MS, 900 * WORLD_MS);
	assert_int_equal(w->publishes, 2);
	world_destroy(w);
}

static void refusals_that_stay_are_final(void **state)
{
	static const struct {
		uint16_t wire;
		int status;
	} final[] = {
		{WIRE_NOT_LEADER, TAGCAST_NOT_LEADER},
		{WIRE_TOO_LARGE, TAGCAST_TOO_LARGE},
		{WIRE_UNKNOWN_CHANNEL, TAGCAST_UNKNOWN_CHANNEL},
		{WIRE_BAD_REQUEST, TAGCAST_BAD_REQUEST},
		{WIRE_EXPIRED, TAGCAST_EXPIRED},
		{WIRE_LIMIT, TAGCAST_LIMIT},
		{WIRE_INCOMPLETE, TAGCAST_INCOMPLETE},
	};

	(void)state;
	for (uint32_t i = 0; i < sizeof(final) / sizeof(final[0]); i++) {
		struct world *w = world_create(1, false, true);

		w->publish_status[0] = final[i].wire;
		w->publish_statuses = 1;
		world_publish(w, "c", 1, 10);
		assert_true(world_until(w, all_done, 1000));
		assert_int_equal(w->outcome[0].status, final[i].status);
		assert_int_equal(w->publishes, 1);
		world_destroy(w);
	}
}

static void an_old_cookie_is_replaced_and_the_publish_goes_through(void **state)
{
	struct world *w = world_create(1, false, true);

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	w->cookie_salt = 99;
	world_publish(w, "c", 1, 10);
	assert_true(world_until(w, all_done, 2000));
	assert_int_equal(w->outcome[0].status, TAGCAST_OK);
	world_destroy(w);
}

static void publish_for(struct world *w, uint64_t id, uint32_t deadline_ms)
{
	const struct tagcast_publish p = {.channel_type = 2,
		.channel = {.bytes = "c", .len = 1},
		.message_id = id,
		.deadline_ms = deadline_ms};
	uint64_t request;

	assert_int_equal(client_core_publish(w->core, &p, w->now_ns, &request), 0);
}

static void silence_ends_as_timeout_at_the_deadline(void **state)
{
	struct world *w = world_create(1, false, true);
	uint64_t start;

	(void)state;
	w->mute_publish = true;
	start = w->now_ns;
	publish_for(w, 1, 2000);
	publish_for(w, 2, 0);
	world_run(w, 1999);
	assert_int_equal(w->outcomes, 0);
	world_run(w, 60000);
	assert_int_equal(w->outcomes, 2);
	assert_int_equal(w->outcome[0].message_id, 1);
	assert_int_equal(w->outcome[0].status, TAGCAST_TIMEOUT);
	assert_in_range(w->outcome[0].at_ns - start, 2000 * WORLD_MS, 3100 * WORLD_MS);
	assert_int_equal(w->outcome[1].status, TAGCAST_TIMEOUT);
	assert_in_range(w->outcome[1].at_ns - start, 30000 * WORLD_MS, 30100 * WORLD_MS);
	assert_true(w->publishes < 60);  // backed off
	world_destroy(w);
}

static void no_node_at_all_ends_as_timeout_too(void **state)
{
	struct world *w = world_create(1, false, true);

	(void)state;
	w->cut = true;
	publish_for(w, 1, 1000);
	world_run(w, 5000);
	assert_int_equal(w->outcomes, 1);
	assert_int_equal(w->outcome[0].status, TAGCAST_TIMEOUT);
	world_destroy(w);
}

static void a_refusal_that_lasts_to_the_deadline_is_the_outcome(void **state)
{
	struct world *w = world_create(1, false, true);

	(void)state;
	for (uint32_t i = 0; i < 32; i++)
		w->publish_status[i] = WIRE_BUSY;
	w->publish_statuses = 32;
	w->retry_after_ms = 3000;
	publish_for(w, 1, 1000);
	world_run(w, 5000);
	assert_int_equal(w->outcomes, 1);
	assert_int_equal(w->outcome[0].status, TAGCAST_BUSY);
	world_destroy(w);
}

static void the_node_is_told_what_is_left_of_the_deadline(void **state)
{
	struct world *w = world_create(1, false, true);

	(void)state;
	assert_true(world_until(w, world_up, 1000));
	w->publish_status[0] = WIRE_BUSY;
	w->publish_statuses = 1;
	w->retry_after_ms = 600;
	publish_for(w, 1, 1000);
	world_run(w, 100);
	assert_int_equal(w->last_publish.deadline_ms, 1000);
	assert_true(world_until(w, all_done, 2000));
	assert_in_range(w->last_publish.deadline_ms, 200, 400);
	world_destroy(w);
}

static void the_largest_payload_arrives_whole(void **state)
{
	struct world *w = world_create(1, false, true);

	(void)state;
	world_publish(w, "c", 1, 61440);
	assert_true(world_until(w, all_done, 1000));
	assert_int_equal(w->outcome[0].status, TAGCAST_OK);
	assert_int_equal(w->last_payload_sum, payload_sum(1, 61440));
	assert_int_equal(w->publishes, 1);
	world_destroy(w);
}

static void each_size_around_the_datagram_limit_arrives_whole(void **state)
{
	struct world *w = world_create(1, false, true);
	uint64_t id = 0;

	(void)state;
	for (uint32_t bytes = 1280; bytes <= 1360; bytes++) {
		world_publish(w, "c", ++id, bytes);
		assert_true(world_until(w, all_done, 1000));
		assert_int_equal(w->last_payload_sum, payload_sum(id, bytes));
	}
	assert_int_equal(w->bad, 0);
	world_destroy(w);
}

// Loss, duplication and reordering: every publish ends once and well, and is admitted once.
static void storm(uint64_t seed, bool keys)
{
	static const uint32_t sizes[] = {0, 1, 100, 1500, 5000, 20000, 61440};
	struct world *w = world_create(seed, false, keys);
	bool ended[200] = {false};
	uint64_t id = 0;

	w->loss_percent = 4;
	w->dup_percent = 10;
	w->jitter_ns = 20 * WORLD_MS;
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t k = 0; k < 5; k++) {
			char name[8];

			id++;
			snprintf(name, sizeof(name), "c%u", (unsigned)(id % 5));
			world_publish(w, name, id, sizes[(id + seed) % 7]);
		}
		if (round == 10 && seed % 2 == 0)
			world_node_restart(w);
		world_run(w, 50);
	}
	assert_true(world_until(w, all_done, 40000));
	assert_int_equal(w->outcomes, id);
	for (uint32_t i = 0; i < w->outcomes; i++) {
		assert_int_equal(w->outcome[i].status, TAGCAST_OK);
		assert_false(ended[w->outcome[i].message_id]);
		ended[w->outcome[i].message_id] = true;
	}
	assert_int_equal(w->admissions, id);
	assert_int_equal(w->bad, 0);
	world_destroy(w);
}

static void every_publish_ends_exactly_once_under_loss(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++)
		storm(seed, seed % 3 != 0);
}

static void a_restarted_node_with_keys_is_noticed_by_a_publisher(void **state)
{
	struct world *w = world_create(1, false, true);

	(void)state;
	world_publish(w, "c", 1, 10);
	assert_true(world_until(w, all_done, 1000));
	world_node_restart(w);
	world_publish(w, "c", 2, 10);
	assert_true(world_until(w, all_done, 5000));
	assert_int_equal(w->outcome[1].status, TAGCAST_OK);
	world_destroy(w);
}

static void late_and_foreign_outcomes_are_ignored(void **state)
{
	struct world *w = world_create(1, false, true);
	uint8_t bytes[256];
	struct wire_buf out = {.p = bytes, .cap = sizeof(bytes), .ok = true};
	struct wire_publish_ack ack = {.message_id = 1};
	uint64_t request;

	(void)state;
	request = world_publish(w, "c", 1, 10);
	assert_true(world_until(w, all_done, 1000));
	ack.request_id = request;
	assert_true(wire_put_publish_ack(&out, &ack));
	world_send(w, 0, WIRE_PUBLISH_ACK, bytes, out.len);
	assert_int_equal(w->outcomes, 1);
	// Of a request that never was, of slots beyond the table, of another message.
	w->mute_publish = true;
	request = world_publish(w, "c", 2, 10);
	for (uint32_t i = 0; i < 3; i++) {
		out.len = 0;
		ack.request_id = i == 0 ? 0 : i == 1 ? UINT64_MAX : request;
		ack.message_id = 1;
		assert_true(wire_put_publish_ack(&out, &ack));
		world_send(w, 0, WIRE_PUBLISH_ACK, bytes, out.len);
	}
	assert_int_equal(w->outcomes, 1);
	assert_int_equal(client_core_publish_pending(w->core), 1);
	world_destroy(w);
}

static void the_sender_session_names_this_registration(void **state)
{
	struct world *w = world_create(1, true, true);
	const uint32_t a = world_open(w, "alice");
	const struct tagcast_publish p = {.channel_type = 2,
		.channel = {.bytes = "c", .len = 1},
		.message_id = 9,
		.sender_session = 1,
		.session = a,
		.from_uid = {.bytes = "alice", .len = 5},
		.stamp = 1234};
	uint64_t request;

	(void)state;
	assert_true(world_until(w, world_announced, 1000));
	assert_int_equal(client_core_publish(w->core, &p, w->now_ns, &request), 0);
	assert_true(world_until(w, all_done, 1000));
	assert_int_equal(w->last_publish.sender_gateway, 77);
	assert_int_equal(w->last_publish.sender_boot, 0x7700);
	assert_int_equal(w->last_publish.sender_slot, world_route(w, a).slot);
	assert_int_equal(w->last_publish.sender_gen, world_route(w, a).gen);
	assert_int_equal(w->last_publish.from_uid.len, 5);
	assert_int_equal(w->last_publish.stamp, 1234);
	world_destroy(w);
}

static uint64_t chain_left;
static struct world *chain_world;
static void publish_next(void *ctx, const struct tagcast_outcome *o)
{
	const struct tagcast_publish p = {.channel_type = 2,
		.channel = {.bytes = "c", .len = 1},
		.message_id = o->message_id + 1};
	uint64_t request;

	(void)ctx;
	if (--chain_left != 0)
		assert_int_equal(
			client_core_publish(chain_world->core, &p, chain_world->now_ns, &request),
			0);
}

static void an_outcome_callback_may_publish(void **state)
{
	struct world *w = world_create(1, false, true);
	const struct tagcast_callbacks cb = {.outcome = publish_next};

	(void)state;
	chain_world = w;
	w->config.publish_max = 1;  // so that the slot must be free by then
	world_replace_core(w, &cb);
	chain_left = 20;
	publish_for(w, 1, 0);
	assert_true(world_until(w, all_done, 5000));
	assert_int_equal(chain_left, 0);
	assert_int_equal(w->admissions, 20);
	world_destroy(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_publish_ends_with_the_outcome_of_the_node),
		cmocka_unit_test(a_channel_goes_to_the_port_of_its_worker),
		cmocka_unit_test(invalid_publishes_are_refused_at_once),
		cmocka_unit_test(more_than_the_window_is_refused_and_the_window_reopens),
		cmocka_unit_test(refusals_that_pass_are_tried_again),
		cmocka_unit_test(busy_waits_as_long_as_the_node_says),
		cmocka_unit_test(refusals_that_stay_are_final),
		cmocka_unit_test(an_old_cookie_is_replaced_and_the_publish_goes_through),
		cmocka_unit_test(silence_ends_as_timeout_at_the_deadline),
		cmocka_unit_test(no_node_at_all_ends_as_timeout_too),
		cmocka_unit_test(a_refusal_that_lasts_to_the_deadline_is_the_outcome),
		cmocka_unit_test(the_node_is_told_what_is_left_of_the_deadline),
		cmocka_unit_test(the_largest_payload_arrives_whole),
		cmocka_unit_test(each_size_around_the_datagram_limit_arrives_whole),
		cmocka_unit_test(every_publish_ends_exactly_once_under_loss),
		cmocka_unit_test(a_restarted_node_with_keys_is_noticed_by_a_publisher),
		cmocka_unit_test(late_and_foreign_outcomes_are_ignored),
		cmocka_unit_test(the_sender_session_names_this_registration),
		cmocka_unit_test(an_outcome_callback_may_publish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
