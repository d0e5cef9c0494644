/* SPDX-License-Identifier: BSD-3-Clause */
// Percentiles of a histogram. Anybody.
#include "wq_stats.h"

void wq_hist_read(const struct wq_hist *hist, struct wq_times *times)
{
	for (uint32_t i = 0; i < WQ_HIST_BUCKETS; i++)
		times->bucket[i] = atomic_load_explicit(&hist->bucket[i], memory_order_relaxed);
}

// First time beyond bucket `at`.
static uint64_t bucket_end(uint32_t at)
{
	const uint32_t octave = WQ_HIST_FIRST_BITS + (at - 1) / 2;

	if (at == 0)
		return UINT64_C(1) << WQ_HIST_FIRST_BITS;
	return (at - 1) % 2 == 0 ? UINT64_C(3) << (octave - 1) : UINT64_C(2) << octave;
}

uint64_t wq_times_percentile(const struct wq_times *times, uint32_t percent)
{
	uint64_t total = 0, below = 0;

	for (uint32_t i = 0; i < WQ_HIST_BUCKETS; i++)
		total += times->bucket[i];
	if (total == 0)
		return 0;
	// The rank that `percent` of the entries reach, at least the first.
	const uint64_t rank = (total * percent + 99) / 100;

	for (uint32_t i = 0; i < WQ_HIST_BUCKETS; i++) {
		below += times->bucket[i];
		if (below >= rank && below > 0)
			return bucket_end(i);
	}
	return bucket_end(WQ_HIST_BUCKETS - 1);
}
