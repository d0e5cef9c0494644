/* SPDX-License-Identifier: BSD-3-Clause */
// Printers: what is printed parses to the same struct, and the manual in config/ is what is printed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conf/conf_test_paths.h"
#include "conf_pvt.h"

// Prints and parses again. Returns: the text, to be freed.
static void check_round_trip(const struct conf *conf)
{
	char *text = NULL, error[CONF_ERROR_MAX];
	size_t len = 0;
	FILE *const out = open_memstream(&text, &len);
	struct conf again;

	assert_non_null(out);
	conf_print(conf, out);
	fclose(out);
	memset(&again, 0xa5, sizeof(again));
	if (conf_parse("printed", text, len, &again, error) != 0)
		fail_msg("%s\n%s", error, text);
	assert_memory_equal(&again, conf, sizeof(again));
	free(text);
}

static void smallest(struct conf *conf)
{
	static const char text[] =
		"node: {id: 1}\nport: {device: net_tap0, address: 192.0.2.1/24}\n"
		"auth: {mode: off}\n";
	char error[CONF_ERROR_MAX];

	if (conf_parse("smallest", text, sizeof(text) - 1, conf, error) != 0)
		fail_msg("%s", error);
}

static void defaults_print_and_parse(void **state)
{
	struct conf conf;

	smallest(&conf);
	check_round_trip(&conf);
	(void)state;
}

static void full_configuration_prints_and_parses(void **state)
{
	struct conf conf;

	smallest(&conf);
	strcpy(conf.node.run_dir, "/run/with \"quotes\" and \\ # :");
	strcpy(conf.eal.extra, "- '~' : # \xc3\xa4 null");
	strcpy(conf.eal.file_prefix, "null");
	conf.port.neighbour_count = CONF_NEIGHBOURS_MAX;
	for (uint32_t i = 0; i < CONF_NEIGHBOURS_MAX; i++)
		conf.port.neighbours[i] = (struct conf_neighbour){
			.ip = 0xc0000202 + i, .mac = {2, 0, 0, 0, 0xfe, (uint8_t)i}};
	conf.port.gateway_ip = 0xc00002fe;
	conf.auth.mode = CONF_AUTH_ON;
	conf.auth.key_count = 2;
	conf.auth.key_id[0] = 255;
	conf.auth.key_id[1] = 1;
	strcpy(conf.auth.key_file[0], "/etc/a, b}");
	strcpy(conf.auth.key_file[1], "/etc/[c]");
	conf.auth.send_key = 1;
	conf.eal.hugepages = false;
	conf.workers.idle = CONF_IDLE_BUSY;
	conf.delivery.push_timeout_ns = 1234567;
	check_round_trip(&conf);
	(void)state;
}

// Numbers anywhere in their ranges, as far as the relations allow.
static void random_values_print_and_parse(void **state)
{
	uint64_t x = 88172645463325252u;
	uint32_t parsed = 0;

	for (uint32_t round = 0; round < 2000; round++) {
		const struct conf_option *o;
		char text[600], error[CONF_PROBLEM_MAX];
		const char *other;
		struct conf conf;
		uint64_t value;

		smallest(&conf);
		for (int k = 0; k < 3; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			o = &conf_schema[x % conf_schema_count];
			if (o->type > CONF_PERCENT || o->power_of_two)
				continue;
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			value = o->min + x % (o->max - o->min + 1);
			memcpy((uint8_t *)&conf + o->offset, &value, o->bytes);
			conf_format(o, &conf, text, sizeof(text));
		}
		if (conf_check(&conf, &other, error) != NULL)
			continue;
		check_round_trip(&conf);
		parsed++;
	}
	assert_true(parsed > 500);
	(void)state;
}

static char *read_example(const char *name, size_t *len)
{
	char path[512];
	char *const text = malloc(CONF_FILE_BYTES_MAX);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", CONF_TEST_EXAMPLES, name);
	f = fopen(path, "rb");
	if (f == NULL)
		fail_msg("%s cannot be read", path);
	*len = fread(text, 1, CONF_FILE_BYTES_MAX, f);
	fclose(f);
	return text;
}

// To write it anew: CONF_WRITE_MANUAL=1 build/tests/unit/unit_conf_print
static void committed_manual_is_the_printed_one(void **state)
{
	char *text = NULL, *committed;
	size_t len = 0, committed_len;
	FILE *out = open_memstream(&text, &len);

	conf_print_manual(out);
	fclose(out);
	if (getenv("CONF_WRITE_MANUAL") != NULL) {
		out = fopen(CONF_TEST_EXAMPLES "/tagcastd.yaml", "wb");
		assert_non_null(out);
		fwrite(text, 1, len, out);
		fclose(out);
	}
	committed = read_example("tagcastd.yaml", &committed_len);
	assert_int_equal(committed_len, len);
	assert_memory_equal(committed, text, len);
	free(committed);
	free(text);
	(void)state;
}

static void manual_explains_every_option(void **state)
{
	size_t len;
	char *const text = read_example("tagcastd.yaml", &len);

	text[len] = '\0';
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];
		char line[128], allowed[160], type[200];
		const char *section, *at, *comment;

		snprintf(line, sizeof(line), "\n%s:\n", o->section);
		section = strstr(text, line);
		assert_non_null(section);
		snprintf(line, sizeof(line), "\n  %s:", o->name);
		at = strstr(section, line);
		if (at == NULL)
			fail_msg("%s.%s is not in the manual", o->section, o->name);
		// The two lines above it.
		comment = at;
		for (int k = 0; k < 2; k++) {
			do
				comment--;
			while (*comment != '\n');
		}
		conf_allowed(o, allowed, sizeof(allowed));
		snprintf(type, sizeof(type), ". Allowed: %s.\n", allowed);
		assert_int_equal(strncmp(comment, "\n  # Type: ", 11), 0);
		assert_true(strstr(comment, type) != NULL && strstr(comment, type) < at);
		assert_true(strstr(comment, "  # Default: ") < at);
		assert_true(
			strstr(comment, o->reloadable ? "Reloadable: yes" : "Reloadable: no") < at);
	}
	free(text);
	(void)state;
}

static void manual_parses_to_the_defaults(void **state)
{
	char error[CONF_ERROR_MAX];
	struct conf conf, defaults;

	if (conf_load(CONF_TEST_EXAMPLES "/tagcastd.yaml", &conf, error) != 0)
		fail_msg("%s", error);
	conf_defaults(&defaults);
	// Required ones have no default: they stand with an example.
	defaults.node.id = conf.node.id;
	memcpy(defaults.port.device, conf.port.device, sizeof(conf.port.device));
	defaults.port.ip = conf.port.ip;
	defaults.port.prefix_len = conf.port.prefix_len;
	defaults.auth.mode = conf.auth.mode;
	assert_memory_equal(&conf, &defaults, sizeof(conf));
	(void)state;
}

static void examples_parse(void **state)
{
	static const char *const names[] = {"lab.yaml", "single-node.yaml"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[512], error[CONF_ERROR_MAX];
		struct conf conf;

		snprintf(path, sizeof(path), "%s/%s", CONF_TEST_EXAMPLES, names[i]);
		if (conf_load(path, &conf, error) != 0)
			fail_msg("%s", error);
		check_round_trip(&conf);
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_print_and_parse),
		cmocka_unit_test(full_configuration_prints_and_parses),
		cmocka_unit_test(random_values_print_and_parse),
		cmocka_unit_test(committed_manual_is_the_printed_one),
		cmocka_unit_test(manual_explains_every_option),
		cmocka_unit_test(manual_parses_to_the_defaults),
		cmocka_unit_test(examples_parse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
