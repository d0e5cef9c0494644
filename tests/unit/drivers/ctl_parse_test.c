/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl.h"

static char error[CTL_ERROR_BYTES], where[CTL_WHERE_BYTES];

static json_t *parse(const char *text)
{
	error[0] = where[0] = '\0';
	return ctl_parse(text, strlen(text), error, where);
}

// Refused, with a reason and a place.
static void refused_bytes(const char *text, size_t len)
{
	error[0] = where[0] = '\0';
	assert_null(ctl_parse(text, len, error, where));
	assert_true(strlen(error) > 0);
	assert_non_null(strchr(where, ':'));
}

static void refused(const char *text)
{
	refused_bytes(text, strlen(text));
}

static void takes_one_object(void **state)
{
	json_t *root = parse("{\"cmd\":\"a\",\"x\":[1,{\"y\":\"\xc3\xa9\"}]}");

	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "cmd")), "a");
	json_decref(root);
}

static void refuses_duplicate_keys_at_any_depth(void **state)
{
	refused("{\"cmd\":\"a\",\"cmd\":\"b\"}");
	assert_non_null(strstr(error, "duplicate"));
	refused("{\"cmd\":\"a\",\"x\":{\"y\":1,\"y\":2}}");
}

static void refuses_trailing_text_and_other_roots(void **state)
{
	refused("{} {}");
	refused("{}x");
	refused("[]");
	refused("\"a\"");
	refused("1");
	refused("");
	refused(" ");
	refused("{");
	refused("{\"a\":}");
	refused("{\"a\":1,}");
}

static void refuses_depth_over_16_and_takes_16(void **state)
{
	char text[256] = "{\"a\":";
	json_t *root;

	for (int i = 0; i < 15; i++)
		strcat(text, "[");
	for (int i = 0; i < 15; i++)
		strcat(text, "]");
	strcat(text, "}");
	root = parse(text);
	assert_non_null(root);
	json_decref(root);

	strcpy(text, "{\"a\":");
	for (int i = 0; i < 16; i++)
		strcat(text, "[");
	for (int i = 0; i < 16; i++)
		strcat(text, "]");
	strcat(text, "}");
	refused(text);
	assert_non_null(strstr(error, "deep"));
	assert_string_equal(where, "1:21");
}

static void depth_inside_strings_does_not_count(void **state)
{
	json_t *root = parse("{\"a\":\"[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[[[[[[[[[[[[[[\"}");

	assert_non_null(root);
	json_decref(root);
}

static void a_million_brackets_are_refused_before_they_are_parsed(void **state)
{
	const size_t len = 1000000;
	char *text = malloc(len);

	memset(text, '[', len);
	refused_bytes(text, len);
	free(text);
}

static void refuses_nul_raw_and_escaped_in_names_and_values(void **state)
{
	refused_bytes("{\"a\0b\":1}", 9);
	refused_bytes("{\"a\":1}\0", 8);
	refused("{\"a\\u0000b\":1}");
	refused("{\"a\":\"x\\u0000y\"}");
}

static void refuses_bytes_that_are_not_utf8(void **state)
{
	refused("{\"a\":\"\xff\"}");
	refused("{\"a\":\"\xc3\"}");
	refused("{\"a\":\"\xed\xa0\x80\"}");  // a lone surrogate
	refused("{\"a\":\"\xc0\xaf\"}");  // overlong
	refused("{\"\xff\":1}");
	refused("{\"a\":\"\\ud800\"}");
}

static void refuses_numbers_that_do_not_fit(void **state)
{
	refused("{\"a\":99999999999999999999999}");
	refused("{\"a\":01}");
	refused("{\"a\":NaN}");
	refused("{\"a\":1e999}");
}

static void refuses_more_values_than_a_request_may_have(void **state)
{
	const size_t len = 2 * (size_t)CTL_VALUES_MAX + 32;
	char *text = malloc(len);
	size_t at = 0;

	at += (size_t)sprintf(text, "{\"a\":[0");
	for (uint32_t i = 0; i < CTL_VALUES_MAX; i++) {
		text[at++] = ',';
		text[at++] = '0';
	}
	text[at++] = ']';
	text[at++] = '}';
	refused_bytes(text, at);
	assert_non_null(strstr(error, "too many values"));
	free(text);
}

static void refuses_a_line_over_the_limit(void **state)
{
	const size_t len = (size_t)CTL_LINE_BYTES_MAX + 1;
	char *text = malloc(len);

	memset(text, ' ', len);
	text[0] = '{';
	text[1] = '}';
	refused_bytes(text, len);
	assert_non_null(strstr(error, "64 MiB"));
	free(text);
}

static void every_prefix_of_a_request_is_refused(void **state)
{
	const char *text = "{\"cmd\":\"channel.add\",\"type\":2,\"uids\":[\"a\\n\",{\"hex\":\"ff\"}"
			   "],\"x\":null}";

	for (size_t len = 0; len < strlen(text); len++) {
		// A copy of exact size, so that a read past the end is seen.
		char *copy = malloc(len + 1);

		memcpy(copy, text, len);
		refused_bytes(copy, len);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_one_object),
		cmocka_unit_test(refuses_duplicate_keys_at_any_depth),
		cmocka_unit_test(refuses_trailing_text_and_other_roots),
		cmocka_unit_test(refuses_depth_over_16_and_takes_16),
		cmocka_unit_test(depth_inside_strings_does_not_count),
		cmocka_unit_test(a_million_brackets_are_refused_before_they_are_parsed),
		cmocka_unit_test(refuses_nul_raw_and_escaped_in_names_and_values),
		cmocka_unit_test(refuses_bytes_that_are_not_utf8),
		cmocka_unit_test(refuses_numbers_that_do_not_fit),
		cmocka_unit_test(refuses_more_values_than_a_request_may_have),
		cmocka_unit_test(refuses_a_line_over_the_limit),
		cmocka_unit_test(every_prefix_of_a_request_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
