/* SPDX-License-Identifier: BSD-3-Clause */
// `tagcastctl show queues`: looks at every queue between threads once a second and answers with the load of each
// place. Owns the monitor; control core.
#include <errno.h>
#include <time.h>

#include "app.h"
#include "base_time.h"
#include "wq_monitor.h"

#define LOOK_NS NS_PER_S  // between two looks
#define HISTORY 121u  // looks kept
#define WINDOW_DEFAULT_S 10
#define WINDOW_MIN_S 2
#define WINDOW_MAX_S ((int)HISTORY - 1)

int app_queues_init(struct app *app)
{
	app->queues = wq_monitor_create(HISTORY);
	return app->queues == NULL ? -ENOMEM : 0;
}

void app_queues_fini(struct app *app)
{
	wq_monitor_destroy(app->queues);
	app->queues = NULL;
}

void app_queues_step(struct app *app, uint64_t now_ns)
{
	if (now_ns < app->queues_ns)
		return;
	app->queues_ns = now_ns + LOOK_NS;
	node_queues(app->node, app->queues);
	port_queues(app->port, app->queues);
	wq_monitor_tick(app->queues, now_ns);
}

static json_t *name_of(const struct wq_row *row)
{
	return json_sprintf("%s/%s/%s", row->component, row->pool, row->queue);
}

static json_t *ms_of(const struct wq_row *row, uint64_t ns)
{
	return row->timed ? json_real((double)ns / (double)NS_PER_MS) : json_null();
}

static json_t *summary_of(const struct wq_summary *summary, const struct wq_row *hottest)
{
	json_t *fields = json_object();
	const time_t now = time(NULL);
	struct tm tm;
	char text[32] = "";

	if (gmtime_r(&now, &tm) != NULL)
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	json_object_set_new(fields, "generated_at", json_string(text));
	json_object_set_new(fields, "window_seconds", json_real(summary->seconds));
	json_object_set_new(fields, "ready", json_boolean(summary->ready));
	json_object_set_new(fields, "overall_level", json_string(wq_level_name(summary->overall)));
	json_object_set_new(fields, "total", json_integer(summary->total));
	for (int level = 0; level < WQ_LEVEL_COUNT; level++)
		json_object_set_new(fields, wq_level_name((enum wq_level)level),
			json_integer(summary->count[level]));
	json_object_set_new(fields, "hottest", summary->total > 0 ? name_of(hottest) : json_null());
	return fields;
}

static json_t *row_of(const struct wq_row *row)
{
	return json_pack("[s,s,s,s,s,f,I,I,I,I,o,o,o,o,f,f,I,I,I,I,s]", row->component, row->pool,
		row->queue, row->priority, wq_level_name(row->level), row->score,
		(json_int_t)row->depth, (json_int_t)row->capacity, (json_int_t)row->busy,
		(json_int_t)row->workers, ms_of(row, row->wait_p50_ns),
		ms_of(row, row->wait_p99_ns), ms_of(row, row->run_p50_ns),
		ms_of(row, row->run_p99_ns), row->admitted_per_s, row->rejected_per_s,
		(json_int_t)row->rejected[WQ_REJECT_FULL],
		(json_int_t)row->rejected[WQ_REJECT_CLOSED],
		(json_int_t)row->rejected[WQ_REJECT_CANCELED],
		(json_int_t)row->rejected[WQ_REJECT_TIMEOUT], row->hint);
}

void app_show_queues(void *ctx, struct ctl_request *request, const json_t *args)
{
	static const char *const names[] = {"component", "pool", "queue", "priority", "level",
		"score", "depth", "capacity", "inflight", "workers", "wait_p50_ms", "wait_p99_ms",
		"task_p50_ms", "task_p99_ms", "admitted_per_sec", "admission_error_per_sec", "full",
		"closed", "canceled", "timeout", "hint"};
	const json_t *window = json_object_get(args, "window");
	const struct app *app = ctx;
	struct wq_row rows[WQ_LABEL_COUNT];
	struct wq_summary summary;
	json_int_t seconds = WINDOW_DEFAULT_S;
	json_t *columns, *table;
	uint32_t n;

	if (window != NULL) {
		seconds = json_integer_value(window);
		if (!json_is_integer(window) || seconds < WINDOW_MIN_S || seconds > WINDOW_MAX_S) {
			ctl_fail(request, "invalid_window", "window: %d to %d seconds",
				WINDOW_MIN_S, WINDOW_MAX_S);
			return;
		}
	}
	// Looks are a little more than a second apart.
	n = wq_monitor_rows(
		app->queues, (uint64_t)seconds * NS_PER_S + NS_PER_S / 2, rows, &summary);
	columns = json_array();
	table = json_array();
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		json_array_append_new(columns, json_string(names[i]));
	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(table, row_of(&rows[i]));
	ctl_reply(request, json_pack("{s:o,s:o,s:o}", "fields", summary_of(&summary, rows),
				   "columns", columns, "rows", table));
}
