/* SPDX-License-Identifier: BSD-3-Clause */
// What is measured of a queue: counters, a histogram of times, and the closed set of names. Written by
// whoever works on the queue, read relaxed by anybody.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

// Every place where work crosses threads, as the monitor names it: component, pool, queue, priority. No
// other label exists; instances of one place (one a worker) are one row.
#define WQ_LABELS(X) \
	X(WQ_L_HANDOFF, "node", "workers", "handoff", "high") \
	X(WQ_L_TO_CONTROL, "node", "control", "requests", "normal") \
	X(WQ_L_FROM_CONTROL, "node", "workers", "replies", "normal") \
	X(WQ_L_PORT_EVENTS, "port", "control", "events", "normal") \
	X(WQ_L_PORT_COMMANDS, "port", "workers", "commands", "normal") \
	X(WQ_L_PORT_FRAMES, "port", "workers", "frames", "high") \
	X(WQ_L_TEST, "test", "test", "test", "normal")

enum wq_label {
#define X(id, component, pool, queue, priority) id,
	WQ_LABELS(X)
#undef X
		WQ_LABEL_COUNT
};

// Why an item was not admitted.
enum wq_reject {
	WQ_REJECT_FULL,
	WQ_REJECT_CLOSED,
	WQ_REJECT_CANCELED,
	WQ_REJECT_TIMEOUT,
	WQ_REJECT_COUNT
};

// Times in two buckets an octave, from below 16 ns to above an hour.
#define WQ_HIST_BUCKETS 80u
#define WQ_HIST_FIRST_BITS 4u  // bucket 0 ends at 2^4 ns
struct wq_hist {
	_Atomic uint64_t bucket[WQ_HIST_BUCKETS];
};
// The same, read.
struct wq_times {
	uint64_t bucket[WQ_HIST_BUCKETS];
};

static inline uint32_t wq_hist_bucket(uint64_t ns)
{
	uint32_t bits, at;

	if (ns < UINT64_C(1) << WQ_HIST_FIRST_BITS)
		return 0;
	bits = 63u - (uint32_t)__builtin_clzll(ns);
	at = 1 + 2 * (bits - WQ_HIST_FIRST_BITS) + (uint32_t)(ns >> (bits - 1) & 1);
	return at < WQ_HIST_BUCKETS ? at : WQ_HIST_BUCKETS - 1;
}

static inline void wq_hist_add(struct wq_hist *hist, uint64_t ns)
{
	atomic_fetch_add_explicit(&hist->bucket[wq_hist_bucket(ns)], 1, memory_order_relaxed);
}

void wq_hist_read(const struct wq_hist *hist, struct wq_times *times);
// The time that `percent` of the entries do not exceed, rounded up to its bucket's end; 0 without entries.
uint64_t wq_times_percentile(const struct wq_times *times, uint32_t percent);

// One queue, or the instances of one place together, at one moment.
struct wq_sample {
	enum wq_label label;
	uint32_t depth, capacity;  // of the fullest instance
	uint32_t busy, workers;  // of all instances; workers 0: polled between other work
	uint64_t admitted, run, failed, abandoned;
	uint64_t rejected[WQ_REJECT_COUNT];
	struct wq_times wait, times;  // in the queue, in the handler; of the items that are timed
};
