/* SPDX-License-Identifier: BSD-3-Clause */
// The table itself: no option is named twice, stored over another, or has a default it would refuse.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "conf_pvt.h"

static void options_are_named_and_stored_once(void **state)
{
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const a = &conf_schema[i];

		assert_true(a->bytes != 0 && a->offset + a->bytes <= sizeof(struct conf));
		for (uint32_t k = 0; k < i; k++) {
			const struct conf_option *const b = &conf_schema[k];

			assert_false(strcmp(a->section, b->section) == 0 &&
				     strcmp(a->name, b->name) == 0);
			if (a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
				fail_msg("%s and %s share storage", a->name, b->name);
		}
	}
	(void)state;
}

static void sections_are_listed_once_and_options_stand_together(void **state)
{
	uint32_t changes = 0;

	for (uint32_t i = 0; i < conf_schema_count; i++) {
		uint32_t found = 0;

		for (uint32_t s = 0; s < conf_sections_count; s++)
			found += strcmp(conf_sections[s].name, conf_schema[i].section) == 0;
		assert_int_equal(found, 1);
		changes +=
			i == 0 || strcmp(conf_schema[i].section, conf_schema[i - 1].section) != 0;
	}
	assert_int_equal(changes, conf_sections_count);
	(void)state;
}

static void defaults_and_examples_are_values_themselves(void **state)
{
	struct conf conf;

	conf_defaults(&conf);
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];
		char text[600], problem[CONF_PROBLEM_MAX];
		struct conf copy = conf;

		if (o->type == CONF_NEIGHBOURS || o->type == CONF_KEYS)
			continue;
		if (o->text != NULL) {
			strcpy(text, o->text);
			assert_true(strlen(text) < o->bytes || o->type == CONF_UINT ||
				    o->type == CONF_CIDR || o->type == CONF_WORD);
		} else {
			conf_format(o, &conf, text, sizeof(text));
		}
		if (conf_set(o, text, strlen(text), text[0] != '\0', &copy, problem) != 0)
			fail_msg("%s.%s: %s", o->section, o->name, problem);
		if (!o->required)
			assert_memory_equal(&copy, &conf, sizeof(conf));
	}
	(void)state;
}

static void every_option_is_explained_within_the_width(void **state)
{
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const char *help = conf_schema[i].help;

		assert_non_null(help);
		assert_true(strlen(help) > 20);
		while (*help != '\0') {
			const size_t n = strcspn(help, "\n");

			assert_true(n > 0 && n <= 96);
			help += n + (help[n] == '\n');
		}
	}
	(void)state;
}

static void required_ones_are_those_no_default_can_know(void **state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < conf_schema_count; i++)
		n += conf_schema[i].required;
	assert_int_equal(n, 4);  // node.id, port.device, port.address, auth.mode
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_are_named_and_stored_once),
		cmocka_unit_test(sections_are_listed_once_and_options_stand_together),
		cmocka_unit_test(defaults_and_examples_are_values_themselves),
		cmocka_unit_test(every_option_is_explained_within_the_width),
		cmocka_unit_test(required_ones_are_those_no_default_can_know),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
