/* SPDX-License-Identifier: BSD-3-Clause */
// Single values: what each type takes, what it refuses and why, and how it is written again.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base_time.h"
#include "conf_pvt.h"

static const struct conf_option *option(const char *key)
{
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		char full[96];

		snprintf(full, sizeof(full), "%s.%s", conf_schema[i].section, conf_schema[i].name);
		if (strcmp(full, key) == 0)
			return &conf_schema[i];
	}
	fail_msg("no option %s", key);
	return NULL;
}

struct taken {
	const char *key, *text, *again;
};

static void values_are_taken_and_written_again(void **state)
{
	static const struct taken values[] = {
		{"node.id", "1", "1"},
		{"node.id", "9223372036854775807", "9223372036854775807"},
		{"port.vlan", "0", "0"},
		{"port.vlan", "4094", "4094"},
		{"eal.memory", "65536KiB", "64MiB"},
		{"eal.memory", "1GiB", "1GiB"},
		{"eal.memory", "67108865B", "67108865B"},
		{"eal.memory", "4095MiB", "4095MiB"},
		{"meta.map_size", "16TiB", "16TiB"},
		{"meta.map_size", "1048577KiB", "1048577KiB"},
		{"delivery.deadline", "10ms", "10ms"},
		{"delivery.deadline", "1500ms", "1500ms"},
		{"delivery.deadline", "60s", "1min"},
		{"delivery.deadline", "90min", "90min"},
		{"delivery.deadline", "3600s", "1h"},
		{"delivery.push_timeout", "1500us", "1500us"},
		{"delivery.push_timeout", "1000001ns", "1000001ns"},
		{"delivery.resend_budget", "1000%", "1000%"},
		{"eal.hugepages", "true", "true"},
		{"eal.hugepages", "false", "false"},
		{"workers.idle", "busy", "busy"},
		{"port.checksum", "off", "off"},
		{"node.log_level", "error", "error"},
		{"node.run_dir", "/", "/"},
		{"node.run_dir", "/a b", "\"/a b\""},
		{"meta.program", "/usr/bin/tagcast-metad", "/usr/bin/tagcast-metad"},
		{"meta.program", "tagcast-metad", "tagcast-metad"},
		{"eal.extra", "a \"b\" \\c", "\"a \\\"b\\\" \\\\c\""},
		{"eal.extra", "\xc3\xa4", "\"\xc3\xa4\""},
		{"eal.extra", "-a", "\"-a\""},
		{"eal.extra", "a:", "\"a:\""},
		{"eal.file_prefix", "node-1.a_B", "node-1.a_B"},
		{"eal.lcores", "auto", "auto"},
		{"eal.lcores", "0", "0"},
		{"eal.lcores", "1,3-5,1023", "1,3-5,1023"},
		{"port.device", "0000:3b:00.0", "0000:3b:00.0"},
		{"port.device", "3B:1f.7", "3B:1f.7"},
		{"port.device", "net_af_packet0,iface=e0,qpairs=1",
			"net_af_packet0,iface=e0,qpairs=1"},
		{"port.gateway", "none", "none"},
		{"meta.raft_address", "none", "none"},
		{"meta.raft_address", "192.0.2.1:7500", "192.0.2.1:7500"},
		{"meta.raft_address", "meta-1.example.net:65535", "meta-1.example.net:65535"},
		{"meta.raft_bind", "0.0.0.0:1", "0.0.0.0:1"},
		{"meta.raft_key_file", "none", "none"},
		{"meta.raft_key_file", "/etc/tagcast/raft-key", "/etc/tagcast/raft-key"},
		{"port.gateway", "192.0.2.254", "192.0.2.254"},
		{"port.address", "10.0.0.1/8", "10.0.0.1/8"},
		{"port.address", "10.0.0.0/31", "10.0.0.0/31"},
		{"port.address", "10.0.0.255/32", "10.0.0.255/32"},
		{"workers.ring", "64", "64"},
		{"workers.ring", "65536", "65536"},
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const struct conf_option *const o = option(values[i].key);
		const bool typed = o->type <= CONF_BOOL;
		char problem[CONF_PROBLEM_MAX], again[600];
		struct conf conf;

		conf_defaults(&conf);
		if (conf_set(o, values[i].text, strlen(values[i].text), typed, &conf, problem) != 0)
			fail_msg("%s: %s: %s", values[i].key, values[i].text, problem);
		conf_format(o, &conf, again, sizeof(again));
		assert_string_equal(again, values[i].again);
	}
	(void)state;
}

static void numbers_land_in_their_unit(void **state)
{
	char problem[CONF_PROBLEM_MAX];
	struct conf conf;

	conf_defaults(&conf);
	assert_int_equal(conf_set(option("delivery.deadline"), "3s", 2, true, &conf, problem), 0);
	assert_int_equal(conf.delivery.deadline_ns, 3 * NS_PER_S);
	assert_int_equal(conf_set(option("limits.payload"), "1KiB", 4, true, &conf, problem), 0);
	assert_int_equal(conf.limits.payload_bytes, 1024);
	assert_int_equal(
		conf_set(option("port.address"), "1.2.3.4/30", 10, true, &conf, problem), -22);
	assert_int_equal(
		conf_set(option("port.address"), "1.2.3.5/30", 10, true, &conf, problem), 0);
	assert_int_equal(conf.port.ip, 0x01020305);
	assert_int_equal(conf.port.prefix_len, 30);
	(void)state;
}

struct refused {
	const char *key, *text;
	bool plain;
	const char *why;
};

static void bad_values_are_refused_with_a_reason(void **state)
{
	static const struct refused values[] = {
		{"node.id", "", true, "has no value"},
		{"node.id", "~", true, "is no value"},
		{"node.id", "00", true, "leading zero"},
		{"node.id", "010", true, "leading zero"},
		{"node.id", "1 ", true, "not a decimal number"},
		{"node.id", "\xd9\xa1", true, "not a decimal number"},  // an Arabic-Indic digit
		{"node.id", "18446744073709551616", true, "out of range"},
		{"node.id", "5", false, "is quoted"},
		{"eal.hugepages", "true", false, "is quoted"},
		{"eal.hugepages", "1", true, "not true or false"},
		{"eal.hugepages", "on", true, "not true or false"},
		{"eal.memory", "MiB", true, "not a number with a unit"},
		{"eal.memory", "064MiB", true, "leading zero"},
		{"eal.memory", "64mib", true, "wrong unit"},
		{"eal.memory", "64MiBs", true, "wrong unit"},
		{"eal.memory", "64M", true, "wrong unit"},
		{"eal.memory", "-64MiB", true, "not a number with a unit"},
		{"eal.memory", "18446744073709551615TiB", true, "out of range"},
		{"delivery.deadline", "1m", true, "wrong unit"},
		{"delivery.deadline", "1S", true, "wrong unit"},
		{"delivery.deadline", "9ms", true, "out of range"},
		{"delivery.deadline", "9999999999999h", true, "out of range"},
		{"delivery.resend_budget", "0%", true, "out of range"},
		{"delivery.resend_budget", "20%%", true, "wrong unit"},
		{"workers.idle", "Busy", true, "not one of the words"},
		{"workers.idle", "", false, "not one of the words"},
		{"workers.ring", "96", true, "not a power of two"},
		{"node.log_level", "warning", true, "not one of the words"},
		{"node.run_dir", "", false, "not an absolute path"},
		{"node.run_dir", "./x", true, "not an absolute path"},
		{"meta.program", "", false, "not a program"},
		{"meta.program", "./metad", true, "not a program"},
		{"meta.program", "a/metad", true, "not a program"},
		{"port.device", "", false, "is empty"},
		{"port.device", "net_", true, "not a device"},
		{"port.device", "net_tap0 iface=x", false, "not a device"},
		{"port.device", "0000:3b:00.8", true, "not a device"},
		{"port.device", "0000-3b:00.0", true, "not a device"},
		{"port.device", "000g:3b:00.0", true, "not a device"},
		{"eal.lcores", "", false, "not a list of CPUs"},
		{"eal.lcores", ",1", true, "not a list of CPUs"},
		{"eal.lcores", "1,", true, "not a list of CPUs"},
		{"eal.lcores", "1024", true, "not a list of CPUs"},
		{"eal.lcores", "1-", true, "not a list of CPUs"},
		{"eal.lcores", "1-2-3", true, "not a list of CPUs"},
		{"eal.lcores", "01", true, "not a list of CPUs"},
		{"eal.file_prefix", ".hidden", true, "not a name"},
		{"eal.file_prefix", "a b", true, "not a name"},
		{"eal.file_prefix", "12345678901234567890123456789012", true, "too long"},
		{"eal.extra", "a\nb", false, "control characters"},
		{"eal.extra", "a\x7f", false, "control characters"},
		{"eal.extra", "a\xc2\x85", false, "control characters"},
		{"eal.extra", "a\xff", false, "control characters"},
		{"port.gateway", "0.0.0.0", true, "0.0.0.0/8"},
		{"port.gateway", "127.0.0.1", true, "loopback"},
		{"port.gateway", "255.255.255.255", true, "broadcast"},
		{"port.gateway", "1.2.3", true, "not an IPv4 address"},
		{"port.gateway", "1.2.3.4.5", true, "not an IPv4 address"},
		{"port.gateway", "1.2.3.256", true, "not an IPv4 address"},
		{"port.gateway", "1..3.4", true, "not an IPv4 address"},
		{"port.gateway", "1.2.3.", true, "not an IPv4 address"},
		{"port.gateway", "None", true, "not an IPv4 address"},
		{"meta.raft_address", "", false, "not host:port"},
		{"meta.raft_address", "1.2.3.4", true, "not host:port"},
		{"meta.raft_address", "1.2.3.256:7500", true, "not host:port"},
		{"meta.raft_address", "host:65536", true, "not host:port"},
		{"meta.raft_address", "host:07500", true, "not host:port"},
		{"meta.raft_address", "ho st:7500", false, "not host:port"},
		{"meta.raft_address", "a:b:1", true, "not host:port"},
		{"meta.raft_key_file", "key", true, "not an absolute path"},
		{"port.address", "1.2.3.4/", true, "bad prefix length"},
		{"port.address", "1.2.3.4/7", true, "bad prefix length"},
		{"port.address", "1.2.3.4/024", true, "bad prefix length"},
		{"port.address", "1.2.3.4/24/24", true, "bad prefix length"},
		{"port.address", "1.2.3.255/24", true, "not a host"},
		{"port.neighbours", "x", true, "not a list"},
		{"auth.keys", "x", true, "not a list"},
	};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		const struct refused *const v = &values[i];
		char problem[CONF_PROBLEM_MAX] = "";
		struct conf conf, before;

		conf_defaults(&conf);
		before = conf;
		if (conf_set(option(v->key), v->text, strlen(v->text), v->plain, &conf, problem) ==
			0)
			fail_msg("%s took %s", v->key, v->text);
		if (strstr(problem, v->why) == NULL || strstr(problem, "; allowed ") == NULL)
			fail_msg("%s: %s: %s", v->key, v->text, problem);
		if (strcmp(v->why, "not a host") != 0)
			assert_memory_equal(&conf, &before, sizeof(conf));
	}
	(void)state;
}

static void every_number_takes_its_bounds_and_nothing_beyond(void **state)
{
	char problem[CONF_PROBLEM_MAX], text[64];
	struct conf conf;

	conf_defaults(&conf);
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];
		const char *const unit = o->type == CONF_SIZE       ? "B"
					 : o->type == CONF_DURATION ? "ns"
					 : o->type == CONF_PERCENT  ? "%"
								    : "";

		if (o->type > CONF_PERCENT)
			continue;
		for (int k = 0; k < 4; k++) {
			const uint64_t value = k == 0   ? o->min
					       : k == 1 ? o->max
					       : k == 2 ? o->min - 1
							: o->max + 1;
			int got;

			if (k == 2 && o->min == 0)
				continue;
			snprintf(text, sizeof(text), "%llu%s", (unsigned long long)value, unit);
			got = conf_set(o, text, strlen(text), true, &conf, problem);
			if ((got == 0) != (k < 2))
				fail_msg("%s.%s: %s", o->section, o->name, text);
		}
	}
	(void)state;
}

static void link_addresses_are_six_bytes(void **state)
{
	static const char *const bad[] = {"", "02:00:00:00:00", "02:00:00:00:00:001",
		"02-00-00-00-00-01", "0g:00:00:00:00:01", "02:00:00:00:00:0 "};
	uint8_t mac[6];

	assert_int_equal(conf_mac("02:aB:00:fF:10:01", 17, mac), 0);
	assert_memory_equal(mac, "\x02\xab\x00\xff\x10\x01", 6);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_not_equal(conf_mac(bad[i], strlen(bad[i]), mac), 0);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_taken_and_written_again),
		cmocka_unit_test(numbers_land_in_their_unit),
		cmocka_unit_test(bad_values_are_refused_with_a_reason),
		cmocka_unit_test(every_number_takes_its_bounds_and_nothing_beyond),
		cmocka_unit_test(link_addresses_are_six_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
