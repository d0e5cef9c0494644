/* SPDX-License-Identifier: BSD-3-Clause */
// Fuzz target of lib/conf. An input is the text of a file. A refused one must give one line that begins
// with a place inside the text; an accepted one must print to a text that parses to the same struct.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf.h"

#define REQUIRE(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

static void check_error(const char *error, const char *text, size_t size)
{
	unsigned line, column, lines = 2;

	REQUIRE(strlen(error) < CONF_ERROR_MAX && strchr(error, '\n') == NULL);
	REQUIRE(sscanf(error, "f:%u:%u: ", &line, &column) == 2);
	for (size_t i = 0; i < size; i++)
		lines += text[i] == '\n' || text[i] == '\r';
	REQUIRE(line >= 1 && line <= lines && column >= 1 && column <= size + 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char printed[256 * 1024];
	char error[CONF_ERROR_MAX];
	struct conf conf, again;
	FILE *out;

	if (conf_parse("f", (const char *)data, size, &conf, error) != 0) {
		check_error(error, (const char *)data, size);
		return 0;
	}
	out = fmemopen(printed, sizeof(printed), "w");
	REQUIRE(out != NULL);
	conf_print(&conf, out);
	REQUIRE(fclose(out) == 0);
	REQUIRE(conf_parse("g", printed, strlen(printed), &again, error) == 0);
	REQUIRE(memcmp(&again, &conf, sizeof(conf)) == 0);
	return 0;
}
