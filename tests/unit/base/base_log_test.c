/* SPDX-License-Identifier: BSD-3-Clause */
// Log lines: one line whatever is in the message, limited per site, suppressed ones counted.
#include "base_log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "unit.h"

static char text[65536];

// Runs `fn` with standard error in a pipe and leaves what was written in `text`.
static void capture(void (*fn)(void))
{
	int fds[2];
	const int saved = dup(STDERR_FILENO);

	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	fn();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	const ssize_t n = read(fds[0], text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	close(fds[0]);
}

static unsigned lines(void)
{
	unsigned n = 0;

	for (const char *c = text; *c != '\0'; c++)
		n += *c == '\n';
	return n;
}

static void write_hostile(void)
{
	LOG(LOG_WARN, "test", "T1", "a \"quoted\"\nline %d", 7);
}

static void write_many(void)
{
	for (int i = 0; i < 500; i++)
		LOG(LOG_WARN, "test", "T2", "line %d", i);
}

static void write_debug(void)
{
	LOG(LOG_DEBUG, "test", "T3", "hidden");
}

static void a_message_stays_on_one_line(void **state)
{
	capture(write_hostile);
	assert_int_equal(lines(), 1);
	assert_non_null(strstr(text, "level=warn"));
	assert_non_null(strstr(text, "code=T1 msg=\"a 'quoted' line 7\""));
}

static void a_site_is_limited(void **state)
{
	capture(write_many);
	assert_in_range(lines(), 1, 20);
}

static void lower_levels_are_silent(void **state)
{
	capture(write_debug);
	assert_int_equal(lines(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_stays_on_one_line),
		cmocka_unit_test(a_site_is_limited),
		cmocka_unit_test(lower_levels_are_silent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
