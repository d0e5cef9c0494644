/* SPDX-License-Identifier: BSD-3-Clause */
// Strict parsing of one request line. Limits are checked on the bytes, before anything is allocated:
// the tree of a hostile line would be forty times its size. Pure, any thread.
#include "ctl.h"

#include <stdio.h>
#include <string.h>

// Counts nesting and values outside strings. Bad syntax is left to the parser.
// Returns: NULL, or what is wrong with `at` set.
static const char *check_shape(const char *line, size_t len, size_t *at)
{
	uint32_t depth = 0, values = 0;
	bool in_string = false;

	for (size_t i = 0; i < len; i++) {
		const char c = line[i];

		*at = i;
		if (c == '\0')
			return "NUL byte";
		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
			continue;
		}
		switch (c) {
		case '"':
			in_string = true;
			break;
		case '{':
		case '[':
			if (++depth > CTL_DEPTH_MAX)
				return "nested too deep (at most 16)";
			if (++values > CTL_VALUES_MAX)
				return "too many values in one request";
			break;
		case ',':
			if (++values > CTL_VALUES_MAX)
				return "too many values in one request";
			break;
		case '}':
		case ']':
			if (depth > 0)
				depth--;
			break;
		default:
			break;
		}
	}
	return NULL;
}

static void say_where(const char *line, size_t at, char *where)
{
	unsigned row = 1, column = 1;

	for (size_t i = 0; i < at; i++) {
		column++;
		if (line[i] == '\n') {
			row++;
			column = 1;
		}
	}
	snprintf(where, CTL_WHERE_BYTES, "%u:%u", row, column);
}

json_t *ctl_parse(const char *line, size_t len, char *error, char *where)
{
	const char *problem = NULL;
	json_error_t json_error;
	size_t at = 0;
	json_t *root;

	if (len > CTL_LINE_BYTES_MAX)
		problem = "request is longer than 64 MiB";
	else
		problem = check_shape(line, len, &at);
	if (problem != NULL) {
		snprintf(error, CTL_ERROR_BYTES, "%s", problem);
		say_where(line, at, where);
		return NULL;
	}
	root = json_loadb(line, len, JSON_REJECT_DUPLICATES, &json_error);
	if (root == NULL) {
		snprintf(error, CTL_ERROR_BYTES, "%s", json_error.text);
		snprintf(where, CTL_WHERE_BYTES, "%d:%d", json_error.line, json_error.column);
		return NULL;
	}
	if (!json_is_object(root)) {
		json_decref(root);
		snprintf(error, CTL_ERROR_BYTES, "a request is a JSON object");
		snprintf(where, CTL_WHERE_BYTES, "1:1");
		return NULL;
	}
	return root;
}
