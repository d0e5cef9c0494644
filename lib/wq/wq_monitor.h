/* SPDX-License-Identifier: BSD-3-Clause */
// How loaded every hop between threads is: samples of all queues taken each tick, kept for a while, and told as
// one row a place. Control side, one thread.
//
// score = max(depth / capacity, busy / workers); depth without a capacity is 1; without workers the second is 0.
// critical from 0.95, degraded from 0.80, busy from 0.60. Times and refusals do not enter the score.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "wq_stats.h"

#define WQ_HISTORY_MAX 600u  // ticks

enum wq_level { WQ_LEVEL_OK, WQ_LEVEL_BUSY, WQ_LEVEL_DEGRADED, WQ_LEVEL_CRITICAL, WQ_LEVEL_COUNT };

struct wq_row {
	const char *component, *pool, *queue, *priority;
	enum wq_level level;
	double score;
	uint32_t depth, capacity, busy, workers;
	// over the window
	double seconds;  // what of the window is known
	double admitted_per_s, rejected_per_s;
	uint64_t rejected[WQ_REJECT_COUNT], failed, abandoned;
	bool timed;  // the times below mean something
	uint64_t wait_p50_ns, wait_p99_ns, run_p50_ns, run_p99_ns;
	const char *hint;  // "" when there is nothing to say
};

struct wq_summary {
	enum wq_level overall;
	uint32_t total, count[WQ_LEVEL_COUNT];
	bool ready;  // two ticks or more: rates mean something
	double seconds;
};

struct wq_monitor;

// `history`: ticks kept, 2..WQ_HISTORY_MAX. Returns: NULL when there is no memory or it is out of range.
struct wq_monitor *wq_monitor_create(uint32_t history);
void wq_monitor_destroy(struct wq_monitor *monitor);

// Between two ticks: one call for each queue. Instances of one place become one row: depth and capacity are of the
// fullest, the rest is summed.
void wq_monitor_add(struct wq_monitor *monitor, const struct wq_sample *sample);
// Ends a round of samples.
void wq_monitor_tick(struct wq_monitor *monitor, uint64_t now_ns);

// Rows of the last tick, highest score first, then by names; rates and times over the ticks of the last
// `window_ns`. `rows`: WQ_LABEL_COUNT. Returns: number of rows.
uint32_t wq_monitor_rows(const struct wq_monitor *monitor, uint64_t window_ns,
	struct wq_row rows[WQ_LABEL_COUNT], struct wq_summary *summary);

const char *wq_level_name(enum wq_level level);
