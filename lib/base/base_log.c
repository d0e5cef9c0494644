/* SPDX-License-Identifier: BSD-3-Clause */
// Formats and limits log lines. Sites may be hit by two threads at once; a lost count there is harmless.
#include "base_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base_time.h"

#define LINES_PER_SECOND 10u

static enum log_level level_max = LOG_INFO;
static const char *program = "tagcast";

void log_set_level(enum log_level level)
{
	level_max = level;
}

void log_set_program(const char *name)
{
	program = name;
}

void log_write(struct log_site *site, enum log_level level, const char *mod, const char *code,
	const char *fmt, ...)
{
	static const char *const level_names[] = {"error", "warn", "info", "debug"};
	char msg[600], line[900];
	struct timespec ts;
	struct tm tm;
	va_list ap;
	int len;

	if (level > level_max)
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	const unsigned long long now =
		(unsigned long long)ts.tv_sec * NS_PER_S + (unsigned long long)ts.tv_nsec;
	if (now - site->window_ns > NS_PER_S) {
		site->window_ns = now;
		site->count = 0;
	}
	if (site->count++ >= LINES_PER_SECOND) {
		site->suppressed++;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	for (char *c = msg; *c != '\0'; c++)
		if (*c == '"')
			*c = '\'';
		else if ((unsigned char)*c < 0x20)
			*c = ' ';
	gmtime_r(&ts.tv_sec, &tm);
	len = snprintf(line, sizeof(line),
		"ts=%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ level=%s prog=%s mod=%s code=%s "
		"msg=\"%s\"",
		tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
		ts.tv_nsec / 1000, level_names[level], program, mod, code, msg);
	if (site->suppressed != 0 && len > 0 && (size_t)len < sizeof(line)) {
		len += snprintf(
			line + len, sizeof(line) - (size_t)len, " suppressed=%u", site->suppressed);
		site->suppressed = 0;
	}
	if (len < 0)
		return;
	if ((size_t)len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	// A log that cannot be written must not stop the process.
	if (write(STDERR_FILENO, line, (size_t)len) < 0)
		return;
}
