/* SPDX-License-Identifier: BSD-3-Clause */
// I13: a channel with everybody in it, published to faster than its turns go, and a gateway that never
// answers. Messages of a small channel to other gateways must come through as if they were alone.
#include <string.h>

#include "base_time.h"
#include "sim.h"

#define HUGE 0u
#define SMALL 1u
#define ROUNDS 10u
#define HUGE_PER_ROUND 30u
#define BOUND_NS (2 * NS_PER_MS)  // the huge ones of a round take three times this at least

static void reset_to(struct sim *s, uint32_t channel, const struct sim_set *set)
{
	const uint32_t index = s->mutations++;

	s->mutation[index] = (struct sim_mutation){.channel = channel, .op = STORE_RESET, .set = *set};
	if (!sim_meta_propose(s, index)) {
		sim_fail(s, "a mutation of the quiet world was not taken");
		return;
	}
	for (uint32_t i = 0; i < 200 && s->mutation[index].open; i++)
		sim_run_until(s, s->now_ns + NS_PER_MS);
	if (s->mutation[index].open)
		sim_fail(s, "a mutation of the quiet world does not return");
}

void sim_starve(struct sim *s)
{
	struct sim_message *small[ROUNDS];
	struct sim_set all = {.bits = {UINT64_MAX, UINT64_MAX >> (128 - SIM_UIDS)}}, one = {{1, 0}};

	s->gateway[0].deaf = false;  // long enough to register
	for (uint32_t uid = 0; uid < SIM_UIDS; uid++)
		for (uint32_t k = 0; k < 2; k++)
			sim_story_open(s, uid == 0 ? 1 : (uid + k) % s->p.gateways, uid);
	sim_run_until(s, s->now_ns + NS_PER_S);
	s->gateway[0].deaf = true;
	reset_to(s, HUGE, &all);
	reset_to(s, SMALL, &one);
	// Both channels have their tags from here on.
	sim_story_publish(s, HUGE, TAGCAST_ACK_GATEWAY, 100);
	sim_story_publish(s, SMALL, TAGCAST_ACK_GATEWAY, 100);
	sim_run_until(s, s->now_ns + 300 * NS_PER_MS);
	for (uint32_t i = 0; i < ROUNDS && !s->failed; i++) {
		for (uint32_t k = 0; k < HUGE_PER_ROUND; k++)
			sim_story_publish(s, HUGE, (enum tagcast_ack)(k % 3), 300);
		small[i] = sim_story_publish(s, SMALL, TAGCAST_ACK_GATEWAY, 100);
		sim_run_until(s, s->now_ns + 40 * NS_PER_MS);
	}
	sim_run_until(s, s->now_ns + BOUND_NS);
	for (uint32_t i = 0; i < ROUNDS && !s->failed; i++) {
		const struct sim_message *m = small[i];

		if (m != NULL && m->echo_session == UINT32_MAX &&
			(m->first_got_ns == 0 || m->first_got_ns - m->sent_ns > BOUND_NS))
			sim_fail(s, "I13: small message %llu beside a huge channel took %llu us",
				(unsigned long long)m->id,
				(unsigned long long)((m->first_got_ns == 0 ? s->now_ns
									   : m->first_got_ns) -
					m->sent_ns) / 1000);
	}
}
