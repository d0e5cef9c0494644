/* SPDX-License-Identifier: BSD-3-Clause */
// Random life of many pushes against a model: answers that are lost, late, repeated, wrong or out of order,
// gateways that die and come back, sessions that close, deadlines, buffers that run out. Every route ends
// exactly once, for a reason the model knows to be true, and is sent no more often than allowed.
//
// Message m has up to MODEL_ROUTES routes, slots m * MODEL_ROUTES and on, of one gateway. Numbers of ended
// messages are used again while old pushes that carried them are still about; `life` tells them apart, and
// travels in the records' stamp.
#include <stdlib.h>
#include <string.h>

#include "delivery_fixture.h"
#include "delivery_pvt.h"

#define MODEL_MESSAGES 250u
#define MODEL_ROUTES 256u
#define MODEL_IDS 128u  // push ids, small and large
#define MODEL_OLD 32u  // pushes remembered after their record was used again

struct message {
	uint64_t life, deadline_ns;
	uint32_t open;  // routes that have not ended; 0: the number is free
	uint32_t count;
	uint32_t gateway, incarnation;
	uint8_t ack;
	uint8_t sends[MODEL_ROUTES];
};

enum doing {
	DOING_NOTHING,
	DOING_SEND,
	DOING_ACK,
	DOING_RECEIPT,
	DOING_TICK,
	DOING_RETRY,
	DOING_END
};

struct model {
	struct fix f;
	uint64_t seed;
	struct message message[MODEL_MESSAGES];
	uint64_t lives, routes_in;
	uint32_t incarnation[FIX_GATEWAYS + 1];
	struct fix_sent push[MODEL_IDS];  // last of each id; gen 0: none
	struct fix_sent old[MODEL_OLD];
	enum doing doing;
};

static struct model m;

WORKER_ONLY static uint32_t pick(uint32_t n)
{
	return (uint32_t)(unit_random(&m.seed) >> 20) % n;
}

static bool gateway_lost(const struct message *msg)
{
	return msg->incarnation != m.incarnation[msg->gateway] ||
	       !atomic_load(&m.f.gateway[msg->gateway].alive);
}

static void check_reason(uint32_t number, const struct message *msg, enum counter how)
{
	const uint32_t attempts = m.f.limits.attempts;

	switch ((int)how) {
	case CTR_ROUTE_SENT:
		assert_int_equal(msg->ack, WIRE_ACK_NONE);
		break;
	case CTR_ROUTE_ACCEPTED:
		assert_int_equal(msg->ack, WIRE_ACK_GATEWAY);
		assert_int_equal(m.doing, DOING_ACK);
		break;
	case CTR_ROUTE_ACKED:
		assert_int_equal(msg->ack, WIRE_ACK_CLIENT);
		assert_int_equal(m.doing, DOING_RECEIPT);
		break;
	case CTR_ROUTE_DROPPED:
		assert_int_equal(m.doing, DOING_ACK);
		break;
	case CTR_ROUTE_SESSION_GONE:
		if (msg->count == 1)
			assert_true(m.f.closed[msg->gateway][number * MODEL_ROUTES]);
		break;
	case CTR_ROUTE_GATEWAY_GONE:
		assert_true(gateway_lost(msg));
		break;
	case CTR_ROUTE_RETRY_CAP:
		if (msg->count == 1)
			assert_int_equal(msg->sends[0], attempts);
		break;
	case CTR_ROUTE_DEADLINE:
		assert_true(m.f.now >= msg->deadline_ns);
		break;
	case CTR_ROUTE_OVERFLOW:
		assert_true(m.doing == DOING_SEND || m.doing == DOING_RETRY);
		break;
	case CTR_ROUTE_NO_BUFFER:
		assert_int_equal(m.doing, DOING_END);
		break;
	default:
		fail_msg("no route ends as %s", counter_name(how));
	}
}

static void watch(void *ctx, uint32_t number, enum counter how, uint32_t count)
{
	struct message *msg = &m.message[number];

	assert_true(count <= msg->open);  // never once more than it has routes
	check_reason(number, msg, how);
	msg->open -= count;
}

// --- what was sent ------------------------------------------------------------------------------------

WORKER_ONLY static uint32_t id_slot(uint32_t id)
{
	const uint32_t slot = id & LARGE_BIT ? m.f.limits.inflight + (id & ~LARGE_BIT) : id;

	assert_in_range(slot, 0, MODEL_IDS - 1);
	return slot;
}

WORKER_ONLY static void take_sent(void)
{
	static struct fix_sent sent;

	while (fix_take_sent(&m.f, &sent)) {
		struct fix_sent *known = &m.push[id_slot(sent.id)];

		for (uint32_t p = 0; p < sent.routes; p++) {
			struct message *msg = &m.message[sent.message[p]];
			uint8_t *sends = &msg->sends[sent.slot[p] % MODEL_ROUTES];

			if (msg->life != sent.stamp[p] || msg->open == 0)
				continue;
			++*sends;
			// A push may carry a route that ended meanwhile; alone it may not.
			if (msg->count == 1)
				assert_in_range(*sends, 1, m.f.limits.attempts);
		}
		if (!sent.need_ack)
			continue;
		if (known->gen != 0 && known->gen != sent.gen)
			m.old[pick(MODEL_OLD)] = *known;
		*known = sent;
	}
}

// --- steps --------------------------------------------------------------------------------------------

WORKER_ONLY static uint32_t free_message(void)
{
	for (uint32_t k = 0; k < 20; k++) {
		const uint32_t number = pick(MODEL_MESSAGES);

		if (m.message[number].open == 0)
			return number;
	}
	return NONE;
}

// A new message's span; its slots go to `slots`. Returns: routes, 0 when no number is free.
WORKER_ONLY static uint32_t new_message(
	uint32_t gateway, uint32_t count, struct delivery_span *span, uint32_t *slots)
{
	const uint32_t number = free_message();
	struct message *msg;

	if (number == NONE)
		return 0;
	msg = &m.message[number];
	*msg = (struct message){
		.life = ++m.lives,
		.deadline_ns =
			m.f.now + (pick(8) == 0 ? pick(200) : 2000 + pick(20000)) * NS_PER_MS,
		.open = count,
		.count = count,
		.gateway = gateway,
		.incarnation = m.incarnation[gateway],
		.ack = (uint8_t)pick(3),
	};
	m.f.stamp[number] = msg->life;
	m.routes_in += count;
	*span = (struct delivery_span){.message = number,
		.count = (uint16_t)count,
		.ack = msg->ack,
		.attempt = 1,
		.deadline_ns = msg->deadline_ns};
	for (uint32_t k = 0; k < count; k++) {
		slots[k] = number * MODEL_ROUTES + k;
		m.f.closed[gateway][slots[k]] = false;
	}
	return count;
}

WORKER_ONLY static void step_send(void)
{
	const uint32_t gateway = 1 + pick(FIX_GATEWAYS), kind = pick(60);
	struct delivery_span span[8];
	uint32_t slots[MODEL_ROUTES], spans = 0, at = 0;
	const uint32_t want = kind == 0 ? 1 : 1 + pick(6);

	m.doing = DOING_SEND;
	for (uint32_t s = 0; s < want; s++) {
		uint32_t count = pick(3) != 0 ? 1 : 2 + pick(8);

		if (kind == 0)
			count = 60 + pick(MODEL_ROUTES - 60);
		count = new_message(gateway, count, &span[spans], slots + at);
		at += count;
		spans += count != 0;
	}
	if (spans == 0)
		return;
	fix_push(&m.f, gateway, span, spans, slots,
		kind == 0 && (at > 150 || pick(2) == 0) ? 2 + pick(3) : 1);
}

// A push to answer: mostly one that is kept, at times any that ever was.
WORKER_ONLY static struct fix_sent *some_push(void)
{
	struct fix_sent *push = NULL;

	for (uint32_t k = 0; k < 40; k++) {
		push = pick(40) == 0 ? &m.old[pick(MODEL_OLD)] : &m.push[pick(MODEL_IDS)];
		if (push->gen != 0 &&
			(k == 39 || pick(30) == 0 ||
				m.f.d->record[record_of_push_id(m.f.d, push->id)].gen == push->gen))
			return push;
	}
	return NULL;
}

WORKER_ONLY static void step_ack(void)
{
	static uint16_t retryable[FRAME_ROUTES_MAX], dropped[FRAME_ROUTES_MAX];
	const struct fix_sent *push = some_push();
	uint32_t r = 0, n = 0;
	const uint32_t mood = pick(3) != 0 ? 0 : pick(4);  // 0: all accepted

	if (push == NULL)
		return;
	m.doing = DOING_ACK;
	for (uint16_t p = 0; p < push->routes; p++) {
		const uint32_t dice = pick(10);

		if (mood == 0)
			break;
		if (dice < 2 * mood)
			retryable[r++] = p;
		else if (dice == 9)
			dropped[n++] = p;
	}
	if (pick(20) == 0 && r > 1) {
		const uint64_t ends = m.f.ends;

		retryable[0] = retryable[r - 1];
		fix_ack(&m.f, push, retryable, r, dropped, n);
		assert_int_equal(m.f.ends, ends);
		return;
	}
	fix_ack(&m.f, push, retryable, r, dropped, n);
}

// True when this push must know the route: it is open, and its incarnation as far as delivery has seen.
WORKER_ONLY static bool must_end(const struct fix_sent *push, uint32_t p)
{
	const struct message *msg = &m.message[push->message[p]];

	return msg->open == 1 && msg->count == 1 && msg->life == push->stamp[p] &&
	       msg->ack == WIRE_ACK_CLIENT && !gateway_lost(msg);
}

WORKER_ONLY static void step_receipt(void)
{
	const struct fix_sent *push = some_push();
	bool must;
	uint32_t p;

	if (push == NULL)
		return;
	m.doing = DOING_RECEIPT;
	p = pick(push->routes);
	must = must_end(push, p);
	fix_receipt(&m.f, push, p);
	// Whichever push of the route this was, the oldest or the newest.
	if (must)
		assert_int_equal(m.message[push->message[p]].open, 0);
}

WORKER_ONLY static void step_time(void)
{
	m.doing = DOING_TICK;
	if (pick(3) == 0) {
		const uint64_t next = delivery_next_ns(m.f.d);

		if (next != UINT64_MAX && next > m.f.now)
			m.f.now = next;
	} else {
		m.f.now += pick(pick(20) == 0 ? 3000 : 40) * NS_PER_MS;
	}
	for (uint32_t k = 0; k < 1 + pick(20); k++)
		delivery_tick(m.f.d, m.f.now, 1 + pick(64));
}

WORKER_ONLY static void end_one(const struct delivery_retry *retry)
{
	uint8_t entry[WIRE_ROUTE_BYTES];

	m.doing = DOING_END;
	wire_put_route(entry, route_slot(retry->route), route_gen(retry->route));
	delivery_end_retries(
		m.f.d, route_gateway(retry->route), retry->message, entry, CTR_ROUTE_NO_BUFFER, 1);
}

// Takes some retries and pushes those of one gateway together, at times with a new message among them.
WORKER_ONLY static void step_retry(void)
{
	struct {
		struct delivery_span span[24];
		uint32_t slots[64], spans, routes;
	} open[FIX_GATEWAYS + 1] = {0};
	uint32_t left = 1 + pick(30);
	struct delivery_retry retry;

	m.doing = DOING_RETRY;
	while (left-- > 0 && delivery_next_retry(m.f.d, m.f.now, &retry)) {
		const uint32_t g = route_gateway(retry.route), n = open[g].spans;

		assert_int_equal(retry.record.stamp, m.message[retry.message].life);
		assert_true(m.message[retry.message].open != 0);
		assert_in_range(retry.attempt, 2, m.f.limits.attempts);
		assert_false(m.f.closed[g][route_slot(retry.route)]);
		if (n == 20 || pick(20) == 0) {
			end_one(&retry);
			m.doing = DOING_RETRY;
			continue;
		}
		open[g].span[n] = (struct delivery_span){.message = retry.message,
			.count = 1,
			.ack = retry.ack,
			.attempt = retry.attempt,
			.deadline_ns = retry.deadline_ns};
		open[g].slots[open[g].routes++] = route_slot(retry.route);
		open[g].spans++;
	}
	// What may happen before the turn ends.
	if (pick(4) == 0)
		step_receipt();
	m.doing = DOING_RETRY;
	for (uint32_t g = 1; g <= FIX_GATEWAYS; g++) {
		uint32_t count;

		if (open[g].spans == 0)
			continue;
		if (pick(4) == 0) {
			count = new_message(g, 1 + pick(6), &open[g].span[open[g].spans],
				open[g].slots + open[g].routes);
			open[g].spans += count != 0;
		}
		fix_push(&m.f, g, open[g].span, open[g].spans, open[g].slots, 1);
	}
}

WORKER_ONLY static void step_gateway(void)
{
	const uint32_t g = 1 + pick(FIX_GATEWAYS);

	m.doing = DOING_TICK;
	if (!atomic_load(&m.f.gateway[g].alive)) {
		m.incarnation[g]++;
		fix_gateway_restart(&m.f, g);
		return;
	}
	if (pick(8) != 0)
		return;
	if (pick(4) == 0) {  // replaced between two looks
		m.incarnation[g]++;
		fix_gateway_restart(&m.f, g);
		return;
	}
	atomic_store(&m.f.gateway[g].alive, false);
	if (pick(2) == 0)
		delivery_gateway_down(m.f.d, g);
}

WORKER_ONLY static void step_close(void)
{
	const uint32_t number = pick(MODEL_MESSAGES);
	const struct message *msg = &m.message[number];

	if (msg->open != 0)
		m.f.closed[msg->gateway][number * MODEL_ROUTES + pick(msg->count)] = true;
}

WORKER_ONLY static void step(void)
{
	const uint32_t dice = pick(1000);

	if (dice < 120)
		step_send();
	else if (dice < 400)
		step_ack();
	else if (dice < 640)
		step_receipt();
	else if (dice < 780)
		step_time();
	else if (dice < 940)
		step_retry();
	else if (dice < 970)
		step_close();
	else if (dice < 985)
		step_gateway();
	else if (dice < 995)
		m.f.port.keep_sent = !m.f.port.keep_sent;
	else
		fake_port_complete(&m.f.port);
	take_sent();
}

// --- what must always hold ----------------------------------------------------------------------------

// Every open route is at home in exactly one record.
WORKER_ONLY static void check_homes(void)
{
	uint32_t open = 0, homes = 0, inflight = 0;

	for (uint32_t k = 0; k < MODEL_MESSAGES; k++)
		open += m.message[k].open;
	for (uint32_t i = 0; i < m.f.d->total; i++) {
		const struct record *r = &m.f.d->record[i];
		uint32_t alive = 0, active = 0, retry = 0;
		struct bits bits;

		inflight += r->state != RECORD_FREE;
		if (r->state == RECORD_FREE || r->state == RECORD_DETACHED)
			continue;
		record_bits(m.f.d, i, &bits);
		for (uint32_t p = 0; p < r->routes; p++) {
			const uint64_t bit = UINT64_C(1) << (p % 64);
			const bool is = r->flags & RECORD_FRESH || bits.alive[p / 64] & bit;

			alive += is;
			active += r->flags & RECORD_FRESH || bits.active[p / 64] & bit;
			retry += r->retry_count != 0 && bits.retry[p / 64] & bit;
			homes += is && (!(r->flags & RECORD_REFS) || bits.ref[p] == NONE);
		}
		assert_int_equal(alive, r->alive_count);
		assert_int_equal(active, r->active_count);
		assert_int_equal(retry, r->retry_count);
		assert_true(alive != 0);
	}
	assert_int_equal(homes, open);
	assert_int_equal(inflight, m.f.d->inflight);
	assert_int_equal(m.routes_in, m.f.ends + open);
}

WORKER_ONLY static void settle_all(void)
{
	uint64_t counted = 0;
	struct delivery_stats stats;

	for (uint32_t k = 0; k < 3000; k++) {
		m.doing = DOING_TICK;
		fake_port_complete(&m.f.port);
		m.f.now += 20 * NS_PER_MS;
		fix_tick_to(&m.f, m.f.now);
		take_sent();
	}
	check_homes();
	for (uint32_t k = 0; k < MODEL_MESSAGES; k++)
		assert_int_equal(m.message[k].open, 0);
	delivery_stats(m.f.d, &stats);
	assert_int_equal(stats.inflight, 0);
	assert_int_equal(stats.backlog, 0);
	assert_int_equal(stats.retries_due, 0);
	assert_int_equal(delivery_next_ns(m.f.d), UINT64_MAX);
	assert_int_equal(m.f.ends, m.routes_in);
	for (uint32_t c = CTR_ROUTE_SENT; c <= CTR_ROUTE_NO_BUFFER; c++)
		counted += fix_count(&m.f, c);
	assert_int_equal(counted, m.routes_in);
}

WORKER_ONLY static void run(uint64_t seed, uint32_t steps)
{
	memset(&m, 0, sizeof(m));
	m.seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	fix_init(&m.f);
	m.f.limits.window = 4;
	m.f.limits.backlog = 5;
	m.f.limits.resend_percent = 200;
	m.f.limits.seed = (uint32_t)seed;
	fix_start(&m.f);
	m.f.watch = watch;
	for (uint32_t k = 0; k < steps; k++) {
		step();
		if (k % 8 == 0)
			check_homes();
	}
	settle_all();
	// The run was worth something: every kind of end, every kind of answer.
	for (uint32_t c = CTR_ROUTE_SENT; c <= CTR_ROUTE_NO_BUFFER; c++)
		assert_true(fix_count(&m.f, c) > 0);
	for (uint32_t c = CTR_PUSH; c <= CTR_RECEIPT_UNKNOWN; c++)
		assert_true(fix_count(&m.f, c) > 0);
	fix_stop(&m.f);
}

WORKER_ONLY static void every_route_ends_exactly_once(void **state)
{
	const char *seed = getenv("MODEL_SEED");

	for (uint64_t s = seed != NULL ? strtoull(seed, NULL, 0) : 1, k = 0;
		k < (seed != NULL ? 1 : 5); k++, s++) {
		print_message("seed %llu\n", (unsigned long long)s);
		run(s, 60000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_route_ends_exactly_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
