/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_test_common.h"

#include <errno.h>
#include <stdlib.h>

#include "fake_node.h"

static struct world *gateway(uint64_t seed, uint32_t *handle, uint32_t count)
{
	struct world *w = world_create(seed, true, true);

	for (uint32_t i = 0; i < count; i++) {
		char uid[16];

		snprintf(uid, sizeof(uid), "u%u", i);
		handle[i] = world_open(w, uid);
	}
	assert_true(world_until(w, world_announced, 2000));
	return w;
}

static uint32_t push_one(struct world *w, uint32_t worker, uint64_t message_id, uint8_t flags,
	const struct world_route *route, uint32_t routes, uint32_t payload)
{
	const struct world_record r = {.channel = "room",
		.message_id = message_id,
		.seq = message_id,
		.flags = flags,
		.payload_bytes = payload,
		.route = route,
		.routes = routes};

	return world_push(w, worker, &r, 1, true);
}

static void a_route_is_delivered_to_its_session(void **state)
{
	uint32_t handle[3];
	struct world *w = gateway(1, handle, 3);
	const struct world_route route[] = {world_route(w, handle[2]), world_route(w, handle[0])};
	uint32_t p;

	(void)state;
	p = push_one(w, 2, 5, WIRE_RECORD_LATE, route, 2, 100);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 2);
	assert_int_equal(w->delivery[0].session, handle[2]);
	assert_int_equal(w->delivery[1].session, handle[0]);
	assert_ptr_equal(w->delivery[0].user, w);
	assert_int_equal(w->delivery[0].late, 1);
	assert_string_equal(w->delivery[0].channel, "room");
	assert_int_equal(w->push[p].accepted, 2);
	assert_int_equal(w->push[p].acks, 1);
	world_destroy(w);
}

static void several_records_share_one_push_and_one_answer(void **state)
{
	uint32_t handle[4];
	struct world *w = gateway(1, handle, 4);
	const struct world_route a[] = {world_route(w, handle[0]), world_route(w, handle[1])};
	const struct world_route b[] = {world_route(w, handle[1]), {.slot = 999, .gen = 1}};
	const struct world_record r[] = {
		{.channel = "a",
			.message_id = 1,
			.seq = 1,
			.payload_bytes = 10,
			.route = a,
			.routes = 2},
		{.channel = "b",
			.message_id = 1,
			.seq = 1,
			.payload_bytes = 0,
			.route = b,
			.routes = 2},
	};
	uint32_t p;

	(void)state;
	p = world_push(w, 1, r, 2, true);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 3);  // the same id in two channels is two messages
	assert_int_equal(w->push[p].accepted, 3);
	assert_int_equal(w->push[p].dropped, 1);
	assert_int_equal(w->push[p].position[0], 3);
	world_destroy(w);
}

static void a_repeated_push_is_acknowledged_without_another_delivery(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	const struct world_route route = world_route(w, handle[0]);
	struct tagcast_stats stats;
	uint32_t p;

	(void)state;
	p = push_one(w, 0, 5, 0, &route, 1, 10);
	world_run(w, 10);
	world_push_again(w, p);
	world_push_again(w, p);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 1);
	assert_int_equal(w->push[p].acks, 3);
	assert_int_equal(w->push[p].accepted, 1);
	client_core_stats(w->core, &stats);
	assert_int_equal(stats.suppressed, 2);
	world_destroy(w);
}

// The node knows the sender's session by its registration; a new one makes it look like any other.
static void what_a_session_sent_itself_is_acknowledged_and_not_delivered(void **state)
{
	uint32_t handle[2];
	struct world *w = gateway(1, handle, 2);
	const struct world_route route[] = {world_route(w, handle[0]), world_route(w, handle[1])};
	const struct tagcast_publish own = {.channel_type = 2,
		.channel = {.bytes = "room", .len = 4},
		.message_id = 5,
		.ack = TAGCAST_ACK_CLIENT,
		.sender_session = 1,
		.session = handle[0]};
	uint64_t request;
	uint32_t p;

	(void)state;
	assert_int_equal(client_core_publish(w->core, &own, w->now_ns, &request), 0);
	p = push_one(w, 0, 5, WIRE_RECORD_RECEIPT, route, 2, 10);
	world_run(w, 30);
	assert_int_equal(w->deliveries, 1);
	assert_int_equal(w->push[p].accepted, 2);
	assert_int_equal(w->push[p].receipt[0] & 1, 1);
	push_one(w, 0, 6, 0, route, 2, 10);
	world_run(w, 30);
	assert_int_equal(w->deliveries, 3);
	world_destroy(w);
}

static void a_narrowed_push_of_the_same_message_is_suppressed_too(void **state)
{
	uint32_t handle[2];
	struct world *w = gateway(1, handle, 2);
	const struct world_route route[] = {world_route(w, handle[0]), world_route(w, handle[1])};
	uint32_t p;

	(void)state;
	push_one(w, 0, 5, 0, route, 1, 10);
	p = push_one(w, 0, 5, WIRE_RECORD_LATE, route, 2, 10);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 2);
	assert_int_equal(w->push[p].accepted, 2);
	world_destroy(w);
}

static enum tagcast_verdict scripted(
	struct world *w, const struct world_delivery *d, const struct tagcast_message *m)
{
	// First try of message 5: the second session is busy, the third is gone.
	(void)d;
	if (m->message_id != 5 || w->deliveries > 3)
		return TAGCAST_ACCEPT;
	return w->deliveries == 2   ? TAGCAST_RETRY
	       : w->deliveries == 3 ? TAGCAST_DROP
				    : TAGCAST_ACCEPT;
}

static void verdicts_become_positions_and_a_retry_is_tried_again(void **state)
{
	uint32_t handle[4];
	struct world *w = gateway(1, handle, 4);
	struct world_route route[4];
	uint32_t p;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		route[i] = world_route(w, handle[i]);
	w->verdict = scripted;
	p = push_one(w, 0, 5, 0, route, 4, 10);
	world_run(w, 10);
	assert_int_equal(w->push[p].accepted, 2);
	assert_int_equal(w->push[p].retryable, 1);
	assert_int_equal(w->push[p].dropped, 1);
	assert_int_equal(w->push[p].position[0], 1);
	assert_int_equal(w->push[p].position[1], 2);
	p = push_one(w, 0, 5, WIRE_RECORD_LATE, &route[1], 1, 10);
	world_run(w, 10);
	assert_int_equal(w->push[p].accepted, 1);
	assert_int_equal(w->delivery[w->deliveries - 1].session, handle[1]);
	assert_int_equal(w->deliveries, 5);
	world_destroy(w);
}

static void routes_of_other_generations_are_dropped(void **state)
{
	uint32_t handle[2];
	struct world *w = gateway(1, handle, 2);
	struct world_route route[3] = {
		world_route(w, handle[0]), world_route(w, handle[0]), world_route(w, handle[1])};
	struct tagcast_stats stats;
	uint32_t p;

	(void)state;
	route[0].gen++;
	route[1].gen--;
	assert_int_equal(client_core_session_close(w->core, handle[1]), 0);
	p = push_one(w, 0, 5, 0, route, 3, 10);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 0);
	assert_int_equal(w->push[p].dropped, 3);
	client_core_stats(w->core, &stats);
	assert_int_equal(stats.unknown_session, 3);
	world_destroy(w);
}

static void a_push_for_another_incarnation_is_not_answered(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	uint8_t body[400];
	struct wire_buf out = {.p = body, .cap = sizeof(body), .ok = true};
	const struct wire_push m = {.push_id = 200,
		.push_gen = 1,
		.gateway_boot = 0x7700 - 1,
		.records = 1,
		.routes = 1,
		.need_ack = 1};
	const struct wire_record r = {
		.message_id = 1, .channel_type = 2, .channel = id_view_of("c", 1), .routes = 1};
	struct tagcast_stats before, after;

	(void)state;
	assert_true(wire_put_push(&out, &m) && wire_put_record(&out, &r));
	wire_put_route(
		out.p + out.len, world_route(w, handle[0]).slot, world_route(w, handle[0]).gen);
	client_core_stats(w->core, &before);
	world_send(w, 0, WIRE_PUSH, body, out.len + WIRE_ROUTE_BYTES);
	client_core_stats(w->core, &after);
	assert_int_equal(w->deliveries, 0);
	assert_int_equal(after.stale_pushes - before.stale_pushes, 1);
	assert_int_equal(after.tx_datagrams, before.tx_datagrams);
	world_destroy(w);
}

static void a_push_that_wants_no_answer_gets_none(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	const struct world_route route = world_route(w, handle[0]);
	const struct world_record r = {
		.channel = "c", .message_id = 1, .route = &route, .routes = 1};

	(void)state;
	world_push(w, 0, &r, 1, false);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 1);
	assert_int_equal(w->push[0].acks, 0);
	world_destroy(w);
}

static void malformed_pushes_are_counted(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	const struct world_route route = world_route(w, handle[0]);
	struct tagcast_stats before, after;
	uint32_t sent = 0;

	(void)state;
	push_one(w, 0, 5, 0, &route, 1, 50);
	world_run(w, 10);
	client_core_stats(w->core, &before);
	for (uint32_t len = 0; len < w->push[0].len; len++, sent++)
		world_send(w, 0, WIRE_PUSH, w->push[0].body, len);
	client_core_stats(w->core, &after);
	assert_int_equal(after.rx_bad - before.rx_bad, sent);
	assert_int_equal(w->deliveries, 1);
	world_destroy(w);
}

// It may have been overtaken by the next message of its channel.
static void what_had_to_be_sent_again_is_late(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	const struct world_route route[] = {world_route(w, handle[0])};

	(void)state;
	w->push_timeout_ns = UINT64_MAX / 2;
	for (uint32_t datagrams = 1; datagrams <= 3; datagrams++)
		for (uint32_t lost = 1; lost <= datagrams; lost++) {
			uint32_t p;

			w->deliveries = 0;
			w->lose = lost;
			p = push_one(w, 2, 100 * datagrams + lost, 0, route, 1,
				(datagrams - 1) * 1400 + 100);
			world_run(w, 10);
			assert_int_equal(w->deliveries, 0);
			world_push_again(w, p);
			world_run(w, 10);
			assert_int_equal(w->deliveries, 1);
			assert_int_equal(w->delivery[0].late, 1);
			w->deliveries = 0;
			push_one(w, 2, 1000 * datagrams + lost, 0, route, 1,
				(datagrams - 1) * 1400 + 100);
			world_run(w, 10);
			assert_int_equal(w->delivery[0].late, 0);
		}
	world_destroy(w);
}

static void a_large_push_is_put_together_and_acknowledged(void **state)
{
	uint32_t handle[300];
	struct world *w = gateway(1, handle, 300);
	struct world_route route[300];
	uint32_t p;

	(void)state;
	for (uint32_t i = 0; i < 300; i++)
		route[i] = world_route(w, handle[i]);
	p = push_one(w, 3, 5, 0, route, 300, 61440);
	world_run(w, 20);
	assert_int_equal(w->deliveries, 300);
	assert_int_equal(w->delivery[0].payload_len, 61440);
	assert_int_equal(w->push[p].accepted, 300);
	assert_int_equal(w->push[p].acks, 1);
	// Its segments again: answered from memory, once.
	world_push_again(w, p);
	world_run(w, 20);
	assert_int_equal(w->deliveries, 300);
	assert_int_equal(w->push[p].acks, 2);
	world_destroy(w);
}

static enum tagcast_verdict never_now(
	struct world *w, const struct world_delivery *d, const struct tagcast_message *m)
{
	(void)d, (void)m;
	w->deliveries = 0;
	return TAGCAST_RETRY;
}

static void an_answer_larger_than_a_datagram_calls_drops_accepted_but_never_retries(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	static struct world_route route[2000];
	uint32_t p;

	(void)state;
	for (uint32_t i = 0; i < 2000; i++)
		route[i] = (struct world_route){.slot = 4000, .gen = i};
	p = push_one(w, 0, 5, 0, route, 2000, 10);
	world_run(w, 20);
	assert_int_equal(w->push[p].accepted + w->push[p].dropped, 2000);
	assert_true(w->push[p].dropped > 600);
	for (uint32_t i = 0; i < 2000; i++)
		route[i] = world_route(w, handle[0]);
	w->verdict = never_now;
	p = push_one(w, 0, 6, 0, route, 2000, 10);
	world_run(w, 20);
	assert_int_equal(w->push[p].acks, 0);
	w->push[p].acked = true;
	world_destroy(w);
}

static void window_size_bounds_what_is_remembered(void **state)
{
	struct world *w = world_create(1, true, true);
	uint32_t a;
	struct world_route route;

	(void)state;
	a = world_open(w, "alice");
	assert_true(world_until(w, world_announced, 1000));
	route = world_route(w, a);
	push_one(w, 0, 1, 0, &route, 1, 1);
	world_run(w, 10);
	// After the age it is a new message again.
	world_run(w, 130000);
	world_push_again(w, 0);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 2);
	world_destroy(w);
}

// --- receipts -----------------------------------------------------------------------------------------

static int receipt(struct world *w, uint32_t session, uint64_t message_id)
{
	const struct tagcast_id room = {.bytes = "room", .len = 4};

	return client_core_receipt(w->core, session, room, 2, message_id);
}

static void receipts_of_one_call_make_one_bitmap_for_each_push(void **state)
{
	uint32_t handle[40];
	struct world *w = gateway(1, handle, 40);
	struct world_route route[40];
	uint32_t p, q;

	(void)state;
	for (uint32_t i = 0; i < 40; i++)
		route[i] = world_route(w, handle[i]);
	p = push_one(w, 1, 5, WIRE_RECORD_RECEIPT, route, 40, 10);
	q = push_one(w, 3, 6, WIRE_RECORD_RECEIPT, route, 40, 10);
	world_run(w, 10);
	for (uint32_t i = 0; i < 40; i += 3)
		assert_int_equal(receipt(w, handle[i], 5), 0);
	assert_int_equal(receipt(w, handle[39], 6), 0);
	world_run(w, 10);
	assert_int_equal(w->push[p].receipts, 1);
	assert_int_equal(w->push[q].receipts, 1);
	for (uint32_t i = 0; i < 40; i++) {
		assert_int_equal(w->push[p].receipt[i / 8] >> (i % 8) & 1, i % 3 == 0);
		assert_int_equal(w->push[q].receipt[i / 8] >> (i % 8) & 1, i == 39);
	}
	world_destroy(w);
}

static void receipts_nobody_awaits_are_refused(void **state)
{
	uint32_t handle[2];
	struct world *w = gateway(1, handle, 2);
	struct world *publisher = world_create(1, false, true);
	const struct world_route route = world_route(w, handle[0]);

	(void)state;
	push_one(w, 1, 5, 0, &route, 1, 10);  // ack=gateway: no receipt wanted
	push_one(w, 1, 6, WIRE_RECORD_RECEIPT, &route, 1, 10);
	world_run(w, 10);
	assert_int_equal(receipt(w, handle[0], 5), -ENOENT);
	assert_int_equal(receipt(w, handle[1], 6), -ENOENT);
	assert_int_equal(receipt(w, handle[0], 7), -ENOENT);
	assert_int_equal(receipt(w, 12345, 6), -EINVAL);
	assert_int_equal(receipt(publisher, 1, 6), -EPERM);
	assert_int_equal(client_core_session_close(w->core, handle[0]), 0);
	assert_int_equal(receipt(w, handle[0], 6), -EINVAL);
	world_destroy(w);
	world_destroy(publisher);
}

static void a_lost_receipt_is_given_again_when_the_route_is_pushed_again(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	const struct world_route route = world_route(w, handle[0]);
	uint32_t p;

	(void)state;
	push_one(w, 1, 5, WIRE_RECORD_RECEIPT, &route, 1, 10);
	world_run(w, 10);
	w->cut = true;
	assert_int_equal(receipt(w, handle[0], 5), 0);
	world_run(w, 10);
	w->cut = false;
	assert_int_equal(w->push[0].receipts, 0);
	p = push_one(w, 1, 5, WIRE_RECORD_RECEIPT | WIRE_RECORD_LATE, &route, 1, 10);
	world_run(w, 10);
	assert_int_equal(w->deliveries, 1);
	assert_int_equal(w->push[p].accepted, 1);
	assert_int_equal(w->push[p].receipts, 1);
	assert_int_equal(w->push[p].receipt[0], 1);
	world_destroy(w);
}

static void a_receipt_after_a_second_push_names_the_second(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	const struct world_route route = world_route(w, handle[0]);
	uint32_t p, q;

	(void)state;
	p = push_one(w, 1, 5, WIRE_RECORD_RECEIPT, &route, 1, 10);
	world_run(w, 10);
	q = push_one(w, 1, 5, WIRE_RECORD_RECEIPT | WIRE_RECORD_LATE, &route, 1, 10);
	world_run(w, 10);
	assert_int_equal(receipt(w, handle[0], 5), 0);
	world_run(w, 10);
	assert_int_equal(w->push[p].receipts, 0);
	assert_int_equal(w->push[q].receipts, 1);
	world_destroy(w);
}

static enum tagcast_verdict acknowledge(
	struct world *w, const struct world_delivery *d, const struct tagcast_message *m)
{
	assert_int_equal(client_core_receipt(
				 w->core, d->session, m->channel, m->channel_type, m->message_id),
		0);
	return TAGCAST_ACCEPT;
}

static void a_receipt_may_be_given_inside_the_delivery(void **state)
{
	uint32_t handle[1];
	struct world *w = gateway(1, handle, 1);
	const struct world_route route = world_route(w, handle[0]);

	(void)state;
	w->verdict = acknowledge;
	push_one(w, 1, 5, WIRE_RECORD_RECEIPT, &route, 1, 10);
	world_run(w, 10);
	assert_int_equal(w->push[0].receipts, 1);
	world_destroy(w);
}

static enum tagcast_verdict hang_up(
	struct world *w, const struct world_delivery *d, const struct tagcast_message *m)
{
	(void)m;
	assert_int_equal(client_core_session_close(w->core, d->session), 0);
	world_open(w, "next");
	return TAGCAST_ACCEPT;
}

static void a_session_may_be_closed_and_its_slot_reused_inside_the_delivery(void **state)
{
	uint32_t handle[20];
	struct world *w = gateway(1, handle, 20);
	struct world_route route[20];

	(void)state;
	for (uint32_t i = 0; i < 20; i++)
		route[i] = world_route(w, handle[i]);
	w->verdict = hang_up;
	push_one(w, 1, 5, WIRE_RECORD_RECEIPT, route, 20, 10);
	world_run(w, 100);
	assert_int_equal(w->deliveries, 20);
	assert_true(world_until(w, world_announced, 1000));
	assert_int_equal(w->sessions, 20);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(receipt(w, handle[i], 5), -EINVAL);
	world_destroy(w);
}

// --- storm --------------------------------------------------------------------------------------------

#define MESSAGES 40u
#define SESSIONS 40u

static uint8_t got[MESSAGES + 1][SESSIONS];
static uint32_t storm_handle[SESSIONS];

// Every seventh try cannot be written now.
static enum tagcast_verdict now_and_then(
	struct world *w, const struct world_delivery *d, const struct tagcast_message *m)
{
	static uint32_t tries;

	w->deliveries = 0;  // counted here instead
	if (++tries % 7 == 0)
		return TAGCAST_RETRY;
	for (uint32_t k = 0; k < SESSIONS; k++) {
		if (d->session == storm_handle[k])
			got[m->message_id][k]++;
	}
	return TAGCAST_ACCEPT;
}

// As the node does: routes answered retryable come again in a narrowed push.
static bool push_retryable(struct world *w, uint64_t *message)
{
	const uint32_t pushes = w->pushes;
	bool any = false;

	for (uint32_t i = 0; i < pushes; i++) {
		struct world_push *p = &w->push[i];
		struct world_route narrowed[SESSIONS];
		const uint32_t count = p->retryable;

		assert_true(p->acked);
		for (uint32_t k = 0; k < count; k++) {
			const uint8_t *at = p->body + p->len - (p->routes - p->position[k]) * 8;

			wire_get_route(at, &narrowed[k].slot, &narrowed[k].gen);
		}
		if (count == 0)
			continue;
		p->retryable = 0;
		any = true;
		message[w->pushes] = message[i];
		push_one(w, p->worker, message[i], WIRE_RECORD_LATE, narrowed, count, 100);
	}
	return any;
}

static void every_route_is_delivered_exactly_once_under_loss(void **state)
{
	static const uint32_t sizes[] = {0, 200, 900, 3000, 20000};

	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct world *w = gateway(seed, storm_handle, SESSIONS);
		struct world_route route[SESSIONS];
		uint64_t message[WORLD_PUSHES];

		memset(got, 0, sizeof(got));
		for (uint32_t i = 0; i < SESSIONS; i++)
			route[i] = world_route(w, storm_handle[i]);
		w->verdict = now_and_then;
		w->loss_percent = 5;
		w->dup_percent = 15;
		w->jitter_ns = 30 * WORLD_MS;
		for (uint64_t id = 1; id <= MESSAGES; id++) {
			message[w->pushes] = id;
			push_one(w, (uint32_t)(id % WORLD_WORKERS), id, 0, route, SESSIONS,
				sizes[id % 5]);
			world_run(w, 20);
		}
		do {
			world_run(w, 10000);
		} while (push_retryable(w, message));
		for (uint64_t id = 1; id <= MESSAGES; id++) {
			for (uint32_t k = 0; k < SESSIONS; k++)
				assert_int_equal(got[id][k], 1);
		}
		assert_int_equal(w->bad, 0);
		world_destroy(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_route_is_delivered_to_its_session),
		cmocka_unit_test(several_records_share_one_push_and_one_answer),
		cmocka_unit_test(a_repeated_push_is_acknowledged_without_another_delivery),
		cmocka_unit_test(what_a_session_sent_itself_is_acknowledged_and_not_delivered),
		cmocka_unit_test(a_narrowed_push_of_the_same_message_is_suppressed_too),
		cmocka_unit_test(verdicts_become_positions_and_a_retry_is_tried_again),
		cmocka_unit_test(routes_of_other_generations_are_dropped),
		cmocka_unit_test(a_push_for_another_incarnation_is_not_answered),
		cmocka_unit_test(a_push_that_wants_no_answer_gets_none),
		cmocka_unit_test(malformed_pushes_are_counted),
		cmocka_unit_test(what_had_to_be_sent_again_is_late),
		cmocka_unit_test(a_large_push_is_put_together_and_acknowledged),
		cmocka_unit_test(
			an_answer_larger_than_a_datagram_calls_drops_accepted_but_never_retries),
		cmocka_unit_test(window_size_bounds_what_is_remembered),
		cmocka_unit_test(receipts_of_one_call_make_one_bitmap_for_each_push),
		cmocka_unit_test(receipts_nobody_awaits_are_refused),
		cmocka_unit_test(a_lost_receipt_is_given_again_when_the_route_is_pushed_again),
		cmocka_unit_test(a_receipt_after_a_second_push_names_the_second),
		cmocka_unit_test(a_receipt_may_be_given_inside_the_delivery),
		cmocka_unit_test(a_session_may_be_closed_and_its_slot_reused_inside_the_delivery),
		cmocka_unit_test(every_route_is_delivered_exactly_once_under_loss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
