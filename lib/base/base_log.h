/* SPDX-License-Identifier: BSD-3-Clause */
// Log lines for the control side; workers count instead. One logfmt line per event on standard error:
// ts level mod code msg, RFC 3339 UTC with microseconds. Each (file, line) is limited to 10 lines a
// second; what was held back is counted and said with the next line.
// Context: any thread except a worker. Blocks as a write to standard error does.
#pragma once

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

struct log_site {
	unsigned long long window_ns;
	unsigned count;
	unsigned suppressed;
};

void log_set_level(enum log_level level);
void log_set_program(const char *name);  // static string, "tagcastd"
void log_write(struct log_site *site, enum log_level level, const char *mod, const char *code,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#define LOG(level, mod, code, ...) \
	do { \
		static struct log_site log_site_; \
		log_write(&log_site_, (level), (mod), (code), __VA_ARGS__); \
	} while (0)
