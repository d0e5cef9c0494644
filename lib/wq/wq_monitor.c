/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the history of samples: a ring of ticks, each with one merged sample a place. Control side.
#include "wq_monitor.h"

#include <stdlib.h>
#include <string.h>

struct tick {
	uint64_t at_ns;
	bool there[WQ_LABEL_COUNT];
	double fill[WQ_LABEL_COUNT];  // of the fullest instance
	struct wq_sample sample[WQ_LABEL_COUNT];
};

struct wq_monitor {
	uint32_t history, count, next;  // ticks kept, filled; where the next goes
	struct tick now;  // being filled
	struct tick tick[];
};

static const struct {
	const char *component, *pool, *queue, *priority;
} labels[WQ_LABEL_COUNT] = {
#define X(id, component, pool, queue, priority) {component, pool, queue, priority},
	WQ_LABELS(X)
#undef X
};

struct wq_monitor *wq_monitor_create(uint32_t history)
{
	struct wq_monitor *m;

	if (history < 2 || history > WQ_HISTORY_MAX)
		return NULL;
	m = calloc(1, sizeof(*m) + history * sizeof(m->tick[0]));
	if (m != NULL)
		m->history = history;
	return m;
}

void wq_monitor_destroy(struct wq_monitor *monitor)
{
	free(monitor);
}

static double fill_of(const struct wq_sample *s)
{
	if (s->capacity == 0)
		return s->depth > 0 ? 1 : 0;
	return (double)s->depth / s->capacity;
}

static void add_times(struct wq_times *to, const struct wq_times *from)
{
	for (uint32_t i = 0; i < WQ_HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

void wq_monitor_add(struct wq_monitor *monitor, const struct wq_sample *sample)
{
	struct tick *t = &monitor->now;
	struct wq_sample *sum = &t->sample[sample->label];
	const double fill = fill_of(sample);

	if (!t->there[sample->label]) {
		t->there[sample->label] = true;
		t->fill[sample->label] = fill;
		*sum = *sample;
		return;
	}
	if (fill > t->fill[sample->label]) {
		t->fill[sample->label] = fill;
		sum->depth = sample->depth;
		sum->capacity = sample->capacity;
	}
	sum->busy += sample->busy;
	sum->workers += sample->workers;
	sum->admitted += sample->admitted;
	sum->run += sample->run;
	sum->failed += sample->failed;
	sum->abandoned += sample->abandoned;
	for (uint32_t i = 0; i < WQ_REJECT_COUNT; i++)
		sum->rejected[i] += sample->rejected[i];
	add_times(&sum->wait, &sample->wait);
	add_times(&sum->times, &sample->times);
}

void wq_monitor_tick(struct wq_monitor *monitor, uint64_t now_ns)
{
	monitor->now.at_ns = now_ns;
	monitor->tick[monitor->next] = monitor->now;
	memset(&monitor->now, 0, sizeof(monitor->now));
	monitor->next = (monitor->next + 1) % monitor->history;
	if (monitor->count < monitor->history)
		monitor->count++;
}

// --- rows -----------------------------------------------------------------------------------------------

// The tick `back` before the last.
static const struct tick *tick_of(const struct wq_monitor *m, uint32_t back)
{
	return &m->tick[(m->next + m->history - 1 - back) % m->history];
}

static enum wq_level level_of(double score)
{
	return score >= 0.95   ? WQ_LEVEL_CRITICAL
	       : score >= 0.80 ? WQ_LEVEL_DEGRADED
	       : score >= 0.60 ? WQ_LEVEL_BUSY
			       : WQ_LEVEL_OK;
}

static const char *hint_of(const struct wq_row *row)
{
	if (row->workers > 0 && row->busy >= row->workers)
		return "inflight at worker capacity";
	if (row->depth > 0 && row->capacity == 0)
		return "depth without capacity";
	if (row->capacity > 0 && row->depth >= 0.8 * row->capacity)
		return "depth approaching capacity";
	return "";
}

// What came since; a queue that was made anew started at 0.
static uint64_t since(uint64_t now, uint64_t then)
{
	return now >= then ? now - then : now;
}

static void subtract(struct wq_times *out, const struct wq_times *now, const struct wq_times *then)
{
	for (uint32_t i = 0; i < WQ_HIST_BUCKETS; i++)
		out->bucket[i] = since(now->bucket[i], then->bucket[i]);
}

static void over_window(struct wq_row *row, const struct wq_sample *now,
	const struct wq_sample *then, double seconds)
{
	struct wq_times wait, times;
	uint64_t rejected = 0;

	row->seconds = seconds;
	row->failed = since(now->failed, then->failed);
	row->abandoned = since(now->abandoned, then->abandoned);
	for (uint32_t i = 0; i < WQ_REJECT_COUNT; i++) {
		row->rejected[i] = since(now->rejected[i], then->rejected[i]);
		rejected += row->rejected[i];
	}
	if (seconds > 0) {
		row->admitted_per_s = (double)since(now->admitted, then->admitted) / seconds;
		row->rejected_per_s = (double)rejected / seconds;
	}
	subtract(&wait, &now->wait, &then->wait);
	subtract(&times, &now->times, &then->times);
	row->wait_p50_ns = wq_times_percentile(&wait, 50);
	row->wait_p99_ns = wq_times_percentile(&wait, 99);
	row->run_p50_ns = wq_times_percentile(&times, 50);
	row->run_p99_ns = wq_times_percentile(&times, 99);
	row->timed = row->wait_p99_ns > 0;
}

static int by_score(const void *a, const void *b)
{
	const struct wq_row *x = a, *y = b;
	int rc = (y->score > x->score) - (y->score < x->score);

	rc = rc != 0 ? rc : strcmp(x->component, y->component);
	rc = rc != 0 ? rc : strcmp(x->pool, y->pool);
	rc = rc != 0 ? rc : strcmp(x->queue, y->queue);
	return rc != 0 ? rc : strcmp(x->priority, y->priority);
}

static void fill_row(
	struct wq_row *row, uint32_t label, const struct tick *last, const struct tick *first)
{
	const struct wq_sample *now = &last->sample[label], *then = &first->sample[label];
	const double workers = now->workers > 0 ? (double)now->busy / (double)now->workers : 0;

	*row = (struct wq_row){
		.component = labels[label].component,
		.pool = labels[label].pool,
		.queue = labels[label].queue,
		.priority = labels[label].priority,
		.score = last->fill[label] > workers ? last->fill[label] : workers,
		.depth = now->depth,
		.capacity = now->capacity,
		.busy = now->busy,
		.workers = now->workers,
	};
	row->level = level_of(row->score);
	row->hint = hint_of(row);
	over_window(row, now, then, (double)(last->at_ns - first->at_ns) / 1e9);
}

uint32_t wq_monitor_rows(const struct wq_monitor *monitor, uint64_t window_ns,
	struct wq_row rows[WQ_LABEL_COUNT], struct wq_summary *summary)
{
	const struct tick *last, *first;
	uint32_t n = 0, back = 0;

	*summary = (struct wq_summary){.ready = monitor->count >= 2};
	if (monitor->count == 0)
		return 0;
	last = first = tick_of(monitor, 0);
	while (++back < monitor->count && last->at_ns - tick_of(monitor, back)->at_ns <= window_ns)
		first = tick_of(monitor, back);
	for (uint32_t label = 0; label < WQ_LABEL_COUNT; label++) {
		if (!last->there[label])
			continue;
		fill_row(&rows[n], label, last, first);
		summary->count[rows[n].level]++;
		if (rows[n].level > summary->overall)
			summary->overall = rows[n].level;
		n++;
	}
	summary->total = n;
	summary->seconds = (double)(last->at_ns - first->at_ns) / 1e9;
	qsort(rows, n, sizeof(rows[0]), by_score);
	return n;
}

const char *wq_level_name(enum wq_level level)
{
	static const char *const names[] = {"ok", "busy", "degraded", "critical"};

	return names[level];
}
