/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "fanout_pvt.h"
#include "fanout_world.h"

static struct world w;

#define GATEWAYS 4u
#define STORY_PUBLISHES 400u

static void start(uint32_t members) WORKER_ONLY CONTROL_ONLY;
static void start(uint32_t members)
{
	static const uint16_t mtu[GATEWAYS] = {1500, 576, 9000, 1500};

	world_start(&w);
	for (uint32_t g = 1; g <= GATEWAYS; g++)
		world_gateway(&w, g, mtu[g - 1]);
	world_online(&w, "u", members, GATEWAYS);
	world_tag(&w, world_channel(&w, "room"), "u", members);
	// A channel's first message makes its worker know it; the next ones may be small.
	world_publish(&w, "room", 1, WIRE_ACK_NONE, 10);
	world_turn(&w);
}

static void small_message_is_expanded_as_it_is_admitted(void **state) WORKER_ONLY CONTROL_ONLY;
static void small_message_is_expanded_as_it_is_admitted(void **state)
{
	const struct tag *tag;

	world_defaults(&w);
	start(10);
	tag = atomic_load(&world_channel(&w, "room")->tag);
	world_publish(&w, "room", 2, WIRE_ACK_GATEWAY, 100);
	assert_false(fanout_runnable(w.fanout));
	assert_int_equal(world_count(&w, CTR_ROUTES), 20);
	assert_int_equal(atomic_load(&tag->pins), 0);
	assert_int_equal(w.told_count, 2);
	assert_int_equal(world_last_told(&w)->seq, 2);
	assert_int_equal(world_last_told(&w)->members, 10);
	world_turn(&w);
	assert_int_equal(world_arrivals(&w, 2), 10);
	world_ack(&w, 0);
	world_check_sums(&w);
	world_end(&w);
}

static void without_buffers_a_small_message_waits_and_is_not_overtaken(
	void **state) WORKER_ONLY CONTROL_ONLY;
static void without_buffers_a_small_message_waits_and_is_not_overtaken(void **state)
{
	struct fanout_publish p[3];
	uint64_t last = 0;

	world_defaults(&w);
	start(10);
	for (uint32_t i = 0; i < 3; i++)
		p[i] = world_message(&w, "room", 2 + i, WIRE_ACK_NONE, 100);
	while (fanout_dgrams_ready(w.fanout, 1))  // what is at hand is used up
		w.port.ops->free(&w.port, (struct dgram *[]){fanout_dgram(w.fanout)}, 1);
	w.port.fail_alloc = UINT32_MAX;
	world_admit(&w, &p[0]);
	assert_true(fanout_runnable(w.fanout));
	w.port.fail_alloc = 0;
	world_admit(&w, &p[1]);
	world_admit(&w, &p[2]);
	for (uint32_t i = 0; i < 10; i++)
		world_turn(&w);
	for (uint64_t id = 2; id <= 4; id++)
		assert_int_equal(world_arrivals(&w, id), 10);
	for (uint32_t i = 0; i < w.arrived_count; i++) {
		if (w.arrived[i].gateway != 1)
			continue;
		assert_true(w.arrived[i].seq >= last);
		last = w.arrived[i].seq;
	}
	world_check_sums(&w);
	world_end(&w);
}

static void small_messages_take_half_of_a_turn_at_most(void **state) WORKER_ONLY CONTROL_ONLY;
static void small_messages_take_half_of_a_turn_at_most(void **state)
{
	world_defaults(&w);
	w.limits.turn_members = 40;
	start(8);
	for (uint64_t id = 2; id <= 3; id++) {
		world_publish(&w, "room", id, WIRE_ACK_NONE, 10);
		assert_false(fanout_runnable(w.fanout));
	}
	world_publish(&w, "room", 4, WIRE_ACK_NONE, 10);
	assert_true(fanout_runnable(w.fanout));
	world_turn(&w);
	world_publish(&w, "room", 5, WIRE_ACK_NONE, 10);
	assert_false(fanout_runnable(w.fanout));
	world_turn(&w);
	assert_int_equal(w.arrived_count, 5 * 8);
	world_check_sums(&w);
	world_end(&w);
}

static void many_members_on_one_gateway_are_one_record(void **state) WORKER_ONLY CONTROL_ONLY;
static void many_members_on_one_gateway_are_one_record(void **state)
{
	world_defaults(&w);
	world_start(&w);
	world_gateway(&w, 1, 1500);
	world_online(&w, "u", TAG_INLINE_UIDS, 1);
	world_tag(&w, world_channel(&w, "room"), "u", TAG_INLINE_UIDS);
	for (uint64_t id = 1; id <= 3; id++)
		world_publish(&w, "room", id, WIRE_ACK_NONE, 20);
	world_turn(&w);
	for (uint64_t id = 4; id <= 6; id++)
		world_publish(&w, "room", id, WIRE_ACK_NONE, 20);
	assert_false(fanout_runnable(w.fanout));
	world_turn(&w);
	for (uint64_t id = 1; id <= 6; id++)
		assert_int_equal(world_arrivals(&w, id), TAG_INLINE_UIDS);
	for (uint32_t i = 0; i < w.arrived_count; i++)
		assert_int_equal(w.arrived[i].slot, i % TAG_INLINE_UIDS);
	world_check_sums(&w);
	world_end(&w);
}

// --- the same story both ways ------------------------------------------------------------------------

struct outcome {
	uint64_t count[CTR_COUNT];
	struct arrived *arrived;
	uint32_t arrivals;
};

static int by_name(const void *a, const void *b)
{
	const struct arrived *x = a, *y = b;

	if (x->message_id != y->message_id)
		return x->message_id < y->message_id ? -1 : 1;
	if (x->gateway != y->gateway)
		return x->gateway < y->gateway ? -1 : 1;
	return (x->slot > y->slot) - (x->slot < y->slot);
}

// Members without a session, with two, on a dead gateway, the sender among them; payloads of any size.
static void tell(uint32_t quantum, struct outcome *out) WORKER_ONLY CONTROL_ONLY;
static void tell(uint32_t quantum, struct outcome *out)
{
	static const char *const name[] = {"a", "longer-name", "c", "d"};

	srand(5);
	world_defaults(&w);
	w.limits.quantum_members = quantum;
	start(40);
	world_session(&w, 3, 500, 1, "u3");
	world_session(&w, 2, 501, 1, "v1");
	world_session(&w, 4, 502, 1, "v2");
	for (uint32_t c = 0; c < 4; c++)
		world_tag(&w, world_channel(&w, name[c]), c == 3 ? "v" : "u",
			2 + (uint32_t)rand() % 38);
	for (uint32_t id = 10; id < 10 + STORY_PUBLISHES; id++) {
		struct fanout_publish p = world_message(&w, name[(uint32_t)rand() % 4], id,
			(enum wire_ack_class)(rand() % 3), (uint32_t)rand() % 1300 >> rand() % 6);

		if (rand() % 6 == 0) {
			p.m.sender_gateway = w.view.gateway[1].gateway;
			p.m.sender_boot = w.view.gateway[1].boot;
			p.m.sender_slot = 4 * ((uint32_t)rand() % 9);
			p.m.sender_gen = 1;
		}
		if (id == 10 + STORY_PUBLISHES / 2) {
			world_turns(&w, 50);  // what was admitted before is expanded before
			presence_gateway_down(w.presence, 4, w.now_ns);
		}
		world_admit(&w, &p);
		if (rand() % 5 == 0)
			world_turn(&w);
	}
	for (uint32_t i = 0; i < 2000; i++)
		world_turn(&w);
	for (uint32_t i = 0; i < CTR_COUNT; i++)
		out->count[i] = world_count(&w, (enum counter)i);
	out->arrivals = w.arrived_count;
	out->arrived = malloc(w.arrived_count * sizeof(*out->arrived));
	assert_non_null(out->arrived);
	memcpy(out->arrived, w.arrived, w.arrived_count * sizeof(*out->arrived));
	qsort(out->arrived, out->arrivals, sizeof(*out->arrived), by_name);
	world_ack(&w, 0);
	world_end(&w);
}

static void small_and_queued_messages_come_to_the_same(void **state) WORKER_ONLY CONTROL_ONLY;
static void small_and_queued_messages_come_to_the_same(void **state)
{
	static const enum counter same[] = {CTR_PUBLISH, CTR_PUB_OK, CTR_TAG_HIT, CTR_MEMBERS,
		CTR_END_OFFLINE, CTR_END_DENIED, CTR_END_ROUTED, CTR_END_SENDER_ONLY, CTR_ROUTES,
		CTR_ROUTE_ECHO};
	struct outcome small = {0}, queued = {0};

	tell(1000, &small);
	tell(1, &queued);
	for (uint32_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		assert_int_equal(small.count[same[i]], queued.count[same[i]]);
	assert_true(small.count[CTR_ROUTE_ECHO] != 0 && small.count[CTR_END_OFFLINE] != 0);
	assert_int_equal(small.arrivals, queued.arrivals);
	for (uint32_t i = 0; i < small.arrivals; i++) {
		const struct arrived *a = &small.arrived[i], *b = &queued.arrived[i];

		assert_int_equal(by_name(a, b), 0);
		assert_int_equal(a->gen, b->gen);
		assert_int_equal(a->seq, b->seq);
		assert_int_equal(a->stamp, b->stamp);
		assert_int_equal(a->flags, b->flags);
		assert_int_equal(a->payload_len, b->payload_len);
		assert_int_equal(a->payload_first, b->payload_first);
	}
	free(small.arrived);
	free(queued.arrived);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_message_is_expanded_as_it_is_admitted),
		cmocka_unit_test(without_buffers_a_small_message_waits_and_is_not_overtaken),
		cmocka_unit_test(small_messages_take_half_of_a_turn_at_most),
		cmocka_unit_test(many_members_on_one_gateway_are_one_record),
		cmocka_unit_test(small_and_queued_messages_come_to_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
