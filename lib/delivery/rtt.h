/* SPDX-License-Identifier: BSD-3-Clause */
// How long a gateway takes to answer a push, and from that how long to wait before a push is sent again:
// RFC 6298 in fixed point. One estimator per gateway and worker; no clock, no allocation.
//
// Only pushes sent once are measured (Karn): the answer to a repeat may be that to the first send. A gateway
// slower than the wait would then never be measured, so the wait doubles when a push runs into it, and
// stays doubled until a push is measured again. Many pushes are on their way at once; of each round trip
// only the slowest counts, else a burst of quick ones would wipe out what is known about the spread.
#pragma once

#include <stdint.h>

struct rtt {
	uint64_t wait_ns;  // before the first resend: floor <= wait <= ceiling
	uint64_t doubled_ns;  // pushes sent before then have had their say in wait_ns
	uint64_t srtt8_ns;  // 8 x smoothed round trip; 0: none measured
	uint64_t rttvar4_ns;  // 4 x its mean deviation
	uint64_t round_end_ns;
	uint64_t round_max_ns;  // slowest of the round so far; 0: none
};

#define RTT_SAMPLE_MAX_NS (UINT64_C(1) << 48)  // 78 h: what is slower counts as this

static inline void rtt_init(struct rtt *r, uint64_t floor_ns)
{
	*r = (struct rtt){.wait_ns = floor_ns};
}

static inline uint64_t rtt_smoothed_ns(const struct rtt *r)
{
	return r->srtt8_ns / 8;
}

static inline uint64_t rtt_clamp(uint64_t ns, uint64_t floor_ns, uint64_t ceiling_ns)
{
	ns = ns > ceiling_ns ? ceiling_ns : ns;
	return ns < floor_ns ? floor_ns : ns;
}

// Takes one sample into the averages: gains 1/8 and 1/4.
static inline void rtt_take(struct rtt *r, uint64_t sample_ns)
{
	const uint64_t srtt = r->srtt8_ns / 8;
	const uint64_t off = sample_ns > srtt ? sample_ns - srtt : srtt - sample_ns;

	if (r->srtt8_ns == 0) {
		r->srtt8_ns = 8 * sample_ns;
		r->rttvar4_ns = 2 * sample_ns;
		return;
	}
	r->rttvar4_ns += off;
	r->rttvar4_ns -= (r->rttvar4_ns - off) / 4;
	r->srtt8_ns += sample_ns;
	r->srtt8_ns -= srtt;
}

// 4 x RTTVAR, but half of a round trip at least: a resend comes up to a quarter of the wait early (jitter).
static inline uint64_t rtt_spread_ns(const struct rtt *r)
{
	const uint64_t half = r->srtt8_ns / 16;

	return r->rttvar4_ns > half ? r->rttvar4_ns : half;
}

// A push sent once was answered after `sample_ns`.
static inline void rtt_sample(
	struct rtt *r, uint64_t sample_ns, uint64_t now_ns, uint64_t floor_ns, uint64_t ceiling_ns)
{
	if (sample_ns == 0)
		sample_ns = 1;
	if (sample_ns > RTT_SAMPLE_MAX_NS)
		sample_ns = RTT_SAMPLE_MAX_NS;
	if (sample_ns > r->round_max_ns)
		r->round_max_ns = sample_ns;
	// A sample above the wait is not kept for later: the wait was too short.
	if (now_ns < r->round_end_ns && sample_ns <= r->wait_ns)
		return;
	rtt_take(r, r->round_max_ns);
	r->round_max_ns = 0;
	r->round_end_ns = now_ns + r->srtt8_ns / 8;
	r->wait_ns = rtt_clamp(r->srtt8_ns / 8 + rtt_spread_ns(r), floor_ns, ceiling_ns);
}

// A push first sent at `sent_ns` was not answered in time. Those of one moment double the wait once.
static inline void rtt_missed(
	struct rtt *r, uint64_t sent_ns, uint64_t now_ns, uint64_t floor_ns, uint64_t ceiling_ns)
{
	if (sent_ns < r->doubled_ns)
		return;
	r->doubled_ns = now_ns;
	r->wait_ns = rtt_clamp(
		r->wait_ns > ceiling_ns / 2 ? ceiling_ns : 2 * r->wait_ns, floor_ns, ceiling_ns);
}
