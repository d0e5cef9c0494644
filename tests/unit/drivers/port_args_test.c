/* SPDX-License-Identifier: BSD-3-Clause */
// What EAL and the drivers are told for a configuration.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "port_args.h"

static cpu_set_t cpus(int first, int last)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = first; cpu <= last; cpu++)
		CPU_SET(cpu, &set);
	return set;
}

static const char *map(const char *lcores, uint32_t workers, int last_cpu)
{
	static char out[1024];
	const cpu_set_t set = cpus(0, last_cpu);
	const char *why = NULL;

	if (port_args_lcores(lcores, workers, &set, out, sizeof(out), &why) == 0)
		return out;
	assert_non_null(why);
	return "refused";
}

static void auto_lets_every_worker_float(void **state)
{
	assert_string_equal(map("auto", 1, 1), "0@(0-1),1@(0-1)");
	assert_string_equal(map("", 2, 1), "0@(0-1),1@(0-1),2@(0-1)");
	assert_string_equal(map("auto", 4, 0), "0@(0),1@(0),2@(0),3@(0),4@(0)");
}

static void named_cpus_belong_to_one_worker_each(void **state)
{
	assert_string_equal(map("1,2", 2, 3), "0@(0-3),1@1,2@2");
	assert_string_equal(map("2-3", 2, 3), "0@(0-3),1@2,2@3");
	assert_string_equal(map("1-3", 1, 3), "0@(0-3),1@1");
}

static void workers_share_too_few_cpus(void **state)
{
	assert_string_equal(map("0,1", 4, 1), "0@(0-1),1@(0-1),2@(0-1),3@(0-1),4@(0-1)");
	assert_string_equal(map("1", 2, 3), "0@(0-3),1@(1),2@(1)");
	assert_string_equal(map("0,2-3", 4, 3), "0@(0-3),1@(0,2-3),2@(0,2-3),3@(0,2-3),4@(0,2-3)");
}

static void bad_core_lists_are_refused(void **state)
{
	static const char *const bad[] = {
		"4", "1,", ",1", "x", "1-", "2-1", "-1", "1 2", "99999", "1,,2", "1@2"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_string_equal(map(bad[i], 1, 3), "refused");
}

static struct conf conf_make(const char *device)
{
	struct conf c = {
		.node.id = 7, .eal.memory_bytes = 64u << 20, .port.mtu = 1500, .workers.count = 2};

	strcpy(c.port.device, device);
	strcpy(c.eal.lcores, "auto");
	return c;
}

static void machine_without_setup_needs_no_hugepages_and_no_pci(void **state)
{
	const cpu_set_t set = cpus(0, 1);
	struct conf c = conf_make("net_af_packet0,iface=e0");
	struct port_args args;
	const char *why;

	assert_int_equal(port_args_eal(&c, &set, &args, &why), 0);
	assert_string_equal(args.line,
		"tagcastd --lcores 0@(0-1),1@(0-1),2@(0-1) --main-lcore 0 -m 64 --no-huge "
		"--no-shconf --file-prefix tagcast-7 --no-pci --log-level=warning");
	assert_string_equal(args.argv[0], "tagcastd");
	assert_null(args.argv[args.argc]);
}

static void hugepages_and_a_pci_device(void **state)
{
	const cpu_set_t set = cpus(0, 1);
	struct conf c = conf_make("0000:03:00.0,opt=1");
	struct port_args args;
	const char *why;

	c.eal.hugepages = true;
	strcpy(c.eal.file_prefix, "n1");
	strcpy(c.eal.extra, "  --iova-mode=pa\t-v ");
	strcpy(c.node.log_level, "debug");
	assert_int_equal(port_args_eal(&c, &set, &args, &why), 0);
	assert_string_equal(args.line,
		"tagcastd --lcores 0@(0-1),1@(0-1),2@(0-1) --main-lcore 0 -m 64 --in-memory "
		"--file-prefix n1 -a 0000:03:00.0,opt=1 --iova-mode=pa -v");
}

static void too_many_extra_arguments_are_refused(void **state)
{
	const cpu_set_t set = cpus(0, 1);
	struct conf c = conf_make("net_null0");
	struct port_args args;
	const char *why;

	for (int i = 0; i < 120; i++)
		strcat(c.eal.extra, "x ");
	assert_int_equal(port_args_eal(&c, &set, &args, &why), -22);
}

static void af_packet_gets_a_queue_pair_per_worker_and_slots_for_the_mtu(void **state)
{
	struct port_device d;
	const char *why;

	assert_int_equal(port_args_device("net_af_packet0,iface=e0", 2, 1500, &d, &why), 0);
	assert_string_equal(d.name, "net_af_packet0");
	assert_string_equal(d.options, "iface=e0,qpairs=2");
	assert_int_equal(d.frame_bytes, 2048);
	assert_int_equal(
		port_args_device("net_af_packet0,iface=e0,qpairs=1", 4, 9000, &d, &why), 0);
	assert_string_equal(
		d.options, "iface=e0,qpairs=1,framesz=12288,blocksz=12288,framecnt=170");
	assert_int_equal(d.frame_bytes, 12288);
	assert_int_equal(port_args_device("net_af_packet0,iface=e0,framesz=4096,blocksz=4096", 1,
				 3000, &d, &why),
		0);
	assert_int_equal(d.frame_bytes, 4096);
	assert_int_equal(
		port_args_device("net_af_packet0,iface=e0,framesz=2048", 1, 3000, &d, &why), -22);
	assert_int_equal(port_args_device("net_af_packet0", 1, 1500, &d, &why), -22);
}

static void other_devices_are_taken_as_written(void **state)
{
	struct port_device d;
	const char *why;

	assert_int_equal(port_args_device("net_memif0,role=server,id=0", 2, 1500, &d, &why), 0);
	assert_string_equal(d.options, "role=server,id=0");
	assert_false(d.pci);
	assert_int_equal(port_args_device("03:00.1", 2, 1500, &d, &why), 0);
	assert_true(d.pci);
	assert_int_equal(port_args_device("0000:03:00.1,a=b", 2, 1500, &d, &why), 0);
	assert_true(d.pci);
	assert_int_equal(port_args_device("", 2, 1500, &d, &why), -22);
	assert_int_equal(port_args_device(",x", 2, 1500, &d, &why), -22);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(auto_lets_every_worker_float),
		cmocka_unit_test(named_cpus_belong_to_one_worker_each),
		cmocka_unit_test(workers_share_too_few_cpus),
		cmocka_unit_test(bad_core_lists_are_refused),
		cmocka_unit_test(machine_without_setup_needs_no_hugepages_and_no_pci),
		cmocka_unit_test(hugepages_and_a_pci_device),
		cmocka_unit_test(too_many_extra_arguments_are_refused),
		cmocka_unit_test(af_packet_gets_a_queue_pair_per_worker_and_slots_for_the_mtu),
		cmocka_unit_test(other_devices_are_taken_as_written),
	};

	return cmocka_run_group_tests_name("port_args", tests, NULL, NULL);
}
