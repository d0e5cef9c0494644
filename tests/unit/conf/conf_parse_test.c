/* SPDX-License-Identifier: BSD-3-Clause */
// Files: good ones, and every file of broken/, whose first line says what must be reported.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base_time.h"
#include "conf/conf_test_paths.h"
#include "conf_pvt.h"

static const char small[] = "node:\n  id: 7\nport:\n  device: net_tap0\n  address: 192.0.2.1/24\n"
			    "auth:\n  mode: off\n";

static void smallest_file_gives_defaults(void **state)
{
	char error[CONF_ERROR_MAX];
	struct conf conf, want;

	assert_int_equal(conf_parse("f", small, sizeof(small) - 1, &conf, error), 0);
	assert_string_equal(error, "");
	conf_defaults(&want);
	want.node.id = 7;
	strcpy(want.port.device, "net_tap0");
	want.port.ip = 0xc0000201;
	want.port.prefix_len = 24;
	want.auth.mode = CONF_AUTH_OFF;
	assert_memory_equal(&conf, &want, sizeof(conf));
	(void)state;
}

static void all_kinds_of_values_arrive(void **state)
{
	static const char text[] =
		"---\n"
		"node: {id: 1, cluster_id: 2, run_dir: '/run/x', log_level: debug}\n"
		"eal:  # all of it left out\n"
		"port:\n"
		"  device: \"net_af_packet0,iface=e0\"\n"
		"  address: 10.1.2.3/16\n"
		"  gateway: 10.1.0.1\n"
		"  neighbours:\n"
		"    - ip: 10.1.2.9\n"
		"      mac: 02:00:00:00:00:09\n"
		"    - {mac: \"02:00:00:00:00:0A\", ip: 10.1.2.10}\n"
		"workers: {count: 2, idle: busy}\n"
		"auth:\n"
		"  mode: on\n"
		"  send_key: 9\n"
		"  keys: [{id: 8, file: /k8}, {file: /k9, id: 9}]\n"
		"limits: {payload: 32KiB, window_age: 1h}\n"
		"tags: {ttl: 90s}\n"
		"...\n";
	char error[CONF_ERROR_MAX];
	struct conf conf;

	if (conf_parse("f", text, sizeof(text) - 1, &conf, error) != 0)
		fail_msg("%s", error);
	assert_int_equal(conf.node.cluster_id, 2);
	assert_string_equal(conf.node.run_dir, "/run/x");
	assert_string_equal(conf.node.log_level, "debug");
	assert_string_equal(conf.port.device, "net_af_packet0,iface=e0");
	assert_int_equal(conf.port.gateway_ip, 0x0a010001);
	assert_int_equal(conf.port.neighbour_count, 2);
	assert_int_equal(conf.port.neighbours[1].ip, 0x0a01020a);
	assert_memory_equal(conf.port.neighbours[1].mac, "\x02\x00\x00\x00\x00\x0a", 6);
	assert_int_equal(conf.workers.count, 2);
	assert_int_equal(conf.workers.idle, CONF_IDLE_BUSY);
	assert_int_equal(conf.auth.mode, CONF_AUTH_ON);
	assert_int_equal(conf.auth.key_count, 2);
	assert_int_equal(conf.auth.key_id[1], 9);
	assert_string_equal(conf.auth.key_file[1], "/k9");
	assert_int_equal(conf.auth.send_key, 1);
	assert_int_equal(conf.limits.payload_bytes, 32768);
	assert_int_equal(conf.delivery.tag_ttl_ns, 90 * NS_PER_S);
	(void)state;
}

static int is_yaml(const struct dirent *entry)
{
	const size_t len = strlen(entry->d_name);

	return len > 5 && strcmp(entry->d_name + len - 5, ".yaml") == 0;
}

// First line of each: "# line:column: key: problem", the beginning of what must be said.
static void broken_files_are_refused_where_they_break(void **state)
{
	struct dirent **names = NULL;
	const int count = scandir(CONF_TEST_BROKEN, &names, is_yaml, alphasort);

	assert_true(count >= 100);
	for (int i = 0; i < count; i++) {
		char path[512], first[512] = "", want[1024], error[CONF_ERROR_MAX] = "";
		struct conf conf;
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", CONF_TEST_BROKEN, names[i]->d_name);
		f = fopen(path, "rb");
		assert_non_null(f);
		assert_non_null(fgets(first, sizeof(first), f));
		fclose(f);
		first[strcspn(first, "\n")] = '\0';
		assert_int_equal(strncmp(first, "# ", 2), 0);
		snprintf(want, sizeof(want), "%.200s:%s", path, first + 2);
		if (conf_load(path, &conf, error) == 0)
			fail_msg("%s was accepted", names[i]->d_name);
		if (strncmp(error, want, strlen(want)) != 0)
			fail_msg("%s\n  must say %s\n  but says %s", names[i]->d_name, want, error);
		assert_null(strchr(error, '\n'));
		free(names[i]);
	}
	free(names);
	(void)state;
}

static void empty_and_huge_texts_are_refused(void **state)
{
	char error[CONF_ERROR_MAX];
	struct conf conf;
	char *huge;

	assert_int_equal(conf_parse("f", "", 0, &conf, error), -22);
	assert_string_equal(error, "f:1:1: file: is empty; required are node, port and auth");
	assert_int_equal(conf_parse("f", "\n\n", 2, &conf, error), -22);
	huge = malloc(CONF_FILE_BYTES_MAX + 1);
	assert_non_null(huge);
	memset(huge, '\n', CONF_FILE_BYTES_MAX + 1);
	memcpy(huge, small, sizeof(small) - 1);
	assert_int_equal(conf_parse("f", huge, CONF_FILE_BYTES_MAX, &conf, error), 0);
	assert_int_equal(conf_parse("f", huge, CONF_FILE_BYTES_MAX + 1, &conf, error), -22);
	assert_string_equal(
		error, "f:1:1: file: 1048577 bytes are too many; allowed up to 1048576");
	// Depth is bounded by the schema, not by the stack.
	memset(huge, '[', CONF_FILE_BYTES_MAX);
	assert_int_equal(conf_parse("f", huge, CONF_FILE_BYTES_MAX, &conf, error), -22);
	memset(huge, '-', CONF_FILE_BYTES_MAX);
	for (uint32_t i = 1; i < CONF_FILE_BYTES_MAX; i += 2)
		huge[i] = ' ';
	assert_int_equal(conf_parse("f", huge, CONF_FILE_BYTES_MAX, &conf, error), -22);
	free(huge);
	(void)state;
}

static void unreadable_files_are_named(void **state)
{
	static const struct {
		const char *path, *want;
	} files[] = {
		{"/nonexistent/x.yaml",
			"/nonexistent/x.yaml:1:1: file: cannot be read: No such file"},
		{"/", "/:1:1: file: cannot be read: not a regular file"},
		{"/dev/zero", "/dev/zero:1:1: file: cannot be read: not a regular file"},
	};
	char error[CONF_ERROR_MAX], path[] = "/tmp/conf_parse_test_XXXXXX";
	struct conf conf;
	int fd;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		assert_int_equal(conf_load(files[i].path, &conf, error), -22);
		if (strncmp(error, files[i].want, strlen(files[i].want)) != 0)
			fail_msg("%s", error);
	}
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 1024 * 1024 * 1024), 0);  // sparse: not read to its end
	assert_int_equal(conf_load(path, &conf, error), -22);
	assert_non_null(strstr(error, "are too many"));
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(conf_load(path, &conf, error), -22);
	assert_non_null(strstr(error, ":1:1: file: is empty"));
	unlink(path);
	if (mkfifo(path, 0600) == 0) {
		assert_int_equal(conf_load(path, &conf, error), -22);
		unlink(path);
	}
	close(fd);
	(void)state;
}

static void long_file_names_leave_room_for_the_problem(void **state)
{
	char name[2000], error[CONF_ERROR_MAX];
	struct conf conf;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(conf_parse(name, "x: 1", 4, &conf, error), -22);
	assert_true(strlen(error) < CONF_ERROR_MAX);
	assert_non_null(strstr(error, "unknown section"));
	(void)state;
}

static char *manual(size_t *len)
{
	char *text = malloc(CONF_FILE_BYTES_MAX);
	FILE *const out = text != NULL ? fmemopen(text, CONF_FILE_BYTES_MAX, "w") : NULL;

	assert_non_null(out);
	conf_print_manual(out);
	fclose(out);
	*len = strlen(text);
	return text;
}

// A copy of exactly `len` bytes, so that the sanitizer sees one byte read too far.
static int parse_exact(const char *text, size_t len, char *error)
{
	char *const copy = malloc(len != 0 ? len : 1);
	struct conf conf;
	int got;

	assert_non_null(copy);
	memcpy(copy, text, len);
	got = conf_parse("f", copy, len, &conf, error);
	free(copy);
	return got;
}

static void every_truncation_parses_or_says_why(void **state)
{
	size_t len;
	char *const text = manual(&len);
	char error[CONF_ERROR_MAX];

	for (size_t n = 0; n < len; n += n < 400 ? 1 : 37) {
		if (parse_exact(text, n, error) != 0)
			assert_int_equal(strncmp(error, "f:", 2), 0);
	}
	free(text);
	(void)state;
}

static void flipped_bits_parse_or_say_why(void **state)
{
	char text[sizeof(small)], error[CONF_ERROR_MAX];

	memcpy(text, small, sizeof(small));
	for (size_t bit = 0; bit < 8 * (sizeof(small) - 1); bit++) {
		text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
		if (parse_exact(text, sizeof(small) - 1, error) != 0)
			assert_int_equal(strncmp(error, "f:", 2), 0);
		text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
	}
	(void)state;
}

static void every_option_left_out_alone_keeps_its_default(void **state)
{
	size_t len;
	char *const text = manual(&len);
	struct conf whole;
	char error[CONF_ERROR_MAX];

	assert_int_equal(conf_parse("f", text, len, &whole, error), 0);
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		char line[128];
		char *section, *at;
		struct conf conf;
		int got;

		snprintf(line, sizeof(line), "\n%s:\n", conf_schema[i].section);
		section = strstr(text, line);
		snprintf(line, sizeof(line), "\n  %s:", conf_schema[i].name);
		at = strstr(section, line) + 1;
		*at = '#';
		got = conf_parse("f", text, len, &conf, error);
		assert_int_equal(got != 0, conf_schema[i].required);
		if (got == 0)
			assert_memory_equal(&conf, &whole, sizeof(conf));
		else
			assert_non_null(strstr(error, conf_schema[i].name));
		*at = ' ';
	}
	free(text);
	(void)state;
}

static void place_of_an_option_is_where_its_value_stands(void **state)
{
	uint32_t line, column;

	conf_place(small, sizeof(small) - 1, "port.address", &line, &column);
	assert_int_equal(line, 5);
	assert_int_equal(column, 12);
	conf_place(small, sizeof(small) - 1, "limits.uids", &line, &column);  // left out
	assert_int_equal(line, 1);
	assert_int_equal(column, 1);
	(void)state;
}

static void complaint_names_file_and_place(void **state)
{
	const char *const file = CONF_TEST_EXAMPLES "/single-node.yaml";
	char error[CONF_ERROR_MAX];

	conf_complain(file, "limits.uids", "too many", error);
	assert_int_equal(strncmp(error, file, strlen(file)), 0);
	assert_non_null(strstr(error, ": limits.uids: too many"));
	conf_complain("/nowhere", "limits.uids", "too many", error);
	assert_string_equal(error, "/nowhere:1:1: limits.uids: too many");
	(void)state;
}

static void every_difference_is_found_once(void **state)
{
	struct conf a, b;
	char error[CONF_ERROR_MAX], key[CONF_NAME_MAX];
	bool reloadable;
	uint32_t at = 0;

	assert_int_equal(conf_parse("f", small, sizeof(small) - 1, &a, error), 0);
	b = a;
	assert_false(conf_next_change(&a, &b, &at, key, &reloadable));
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];
		char want[CONF_NAME_MAX];

		b = a;
		if (o->type == CONF_NEIGHBOURS)
			b.port.neighbour_count++;
		else if (o->type == CONF_KEYS)
			b.auth.key_file[1][3] ^= 1;
		else if (o->type == CONF_CIDR)
			b.port.prefix_len ^= 1;
		else
			*((uint8_t *)&b + o->offset) ^= 1;
		at = 0;
		snprintf(want, sizeof(want), "%s.%s", o->section, o->name);
		assert_true(conf_next_change(&a, &b, &at, key, &reloadable));
		assert_string_equal(key, want);
		assert_int_equal(reloadable, o->reloadable);
		assert_false(conf_next_change(&a, &b, &at, key, &reloadable));
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(smallest_file_gives_defaults),
		cmocka_unit_test(all_kinds_of_values_arrive),
		cmocka_unit_test(broken_files_are_refused_where_they_break),
		cmocka_unit_test(empty_and_huge_texts_are_refused),
		cmocka_unit_test(unreadable_files_are_named),
		cmocka_unit_test(long_file_names_leave_room_for_the_problem),
		cmocka_unit_test(every_truncation_parses_or_says_why),
		cmocka_unit_test(flipped_bits_parse_or_say_why),
		cmocka_unit_test(every_option_left_out_alone_keeps_its_default),
		cmocka_unit_test(place_of_an_option_is_where_its_value_stands),
		cmocka_unit_test(complaint_names_file_and_place),
		cmocka_unit_test(every_difference_is_found_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
