/* SPDX-License-Identifier: BSD-3-Clause */
// Characters, quoting, edit distance.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "conf_pvt.h"

struct place_of {
	const char *text;
	size_t len;
	const char *problem;  // NULL: none
	uint32_t line, column;
};
#define TEXT(s) s, sizeof(s) - 1

static void first_bad_character_is_placed(void **state)
{
	static const struct place_of texts[] = {
		{TEXT(""), NULL, 0, 0},
		{TEXT("a: 1\r\nb: 2\n"), NULL, 0, 0},
		{TEXT("# \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n"), NULL, 0, 0},
		{TEXT("a\0b"), "NUL", 1, 2},
		{TEXT("a\n\tb"), "tab", 2, 1},
		{TEXT("a\r\n\r\nbb\tb"), "tab", 3, 3},
		{TEXT("a\rbb\t"), "tab", 2, 3},
		{TEXT("\xc3\xa4\xc3\xa4\t"), "tab", 1, 3},  // columns are characters, not bytes
		{TEXT("a\x1b[0m"), "control", 1, 2},
		{TEXT("a\x7f"), "control", 1, 2},
		{TEXT("a\xc2\x85"), "control", 1, 2},
		{TEXT("a\xe2\x80\xa8"), "line separator", 1, 2},
		{TEXT("\xef\xbb\xbf"
		      "a"),
			"byte order mark", 1, 1},
		{TEXT("a\xef\xbf\xbf"), "none", 1, 2},
		{TEXT("a\x80"), "not UTF-8", 1, 2},  // stray continuation
		{TEXT("a\xc0\xaf"), "not UTF-8", 1, 2},  // not the shortest form
		{TEXT("a\xe0\x9f\xbf"), "not UTF-8", 1, 2},
		{TEXT("a\xf0\x8f\xbf\xbf"), "not UTF-8", 1, 2},
		{TEXT("a\xed\xa0\x80"), "not UTF-8", 1, 2},  // surrogate
		{TEXT("a\xf4\x90\x80\x80"), "not UTF-8", 1, 2},
		{TEXT("a\xf8\x88\x80\x80\x80"), "not UTF-8", 1, 2},
		{TEXT("a\xe2\x82"), "not UTF-8", 1, 2},  // cut short
		{TEXT("a\xe2\x82z"), "not UTF-8", 1, 2},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint32_t line, column;
		const char *const got =
			conf_text_problem(texts[i].text, texts[i].len, &line, &column);

		if ((got == NULL) != (texts[i].problem == NULL) ||
			(got != NULL &&
				(strstr(got, texts[i].problem) == NULL || line != texts[i].line ||
					column != texts[i].column)))
			fail_msg("text %zu: %u:%u %s", i, line, column, got ? got : "no problem");
	}
	(void)state;
}

static void values_have_no_line_breaks(void **state)
{
	assert_true(conf_text_clean("", 0));
	assert_true(conf_text_clean("a b", 3));
	assert_false(conf_text_clean("a\nb", 3));
	assert_false(conf_text_clean("a\r", 2));
	assert_false(conf_text_clean("\t", 1));
	(void)state;
}

static void quotes_are_short_and_printable(void **state)
{
	char out[48];

	assert_string_equal(conf_quote("abc", 3, out), "\"abc\"");
	assert_string_equal(conf_quote("a\nb\0\xff", 5, out), "\"a?b??\"");
	assert_string_equal(conf_quote("1234567890123456789012345678901234567890", 40, out),
		"\"1234567890123456789012345678901234567890\"");
	assert_string_equal(conf_quote("12345678901234567890123456789012345678901", 41, out),
		"\"1234567890123456789012345678901234567890...\"");
	(void)state;
}

static void distance_counts_edits(void **state)
{
	static char longer[200];

	assert_int_equal(conf_distance("", 0, ""), 0);
	assert_int_equal(conf_distance("mtu", 3, "mtu"), 0);
	assert_int_equal(conf_distance("mut", 3, "mtu"), 2);
	assert_int_equal(conf_distance("", 0, "abc"), 3);
	assert_int_equal(conf_distance("abc", 3, ""), 3);
	assert_int_equal(conf_distance("kitten", 6, "sitting"), 3);
	assert_int_equal(conf_distance("heartbeats", 10, "heartbeat"), 1);
	memset(longer, 'x', sizeof(longer) - 1);
	assert_int_equal(conf_distance(longer, sizeof(longer) - 1, "mtu"), UINT32_MAX);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_bad_character_is_placed),
		cmocka_unit_test(values_have_no_line_breaks),
		cmocka_unit_test(quotes_are_short_and_printable),
		cmocka_unit_test(distance_counts_edits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
