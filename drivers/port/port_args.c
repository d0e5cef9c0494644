/* SPDX-License-Identifier: BSD-3-Clause */
// EAL's arguments, core map and device options from the configuration. Main thread.
#include "port_args.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AF_PACKET_SLOT 2048u  // the driver's default
#define AF_PACKET_SLOT_HEAD 128u  // bytes of a slot the kernel may use before the frame
#define AF_PACKET_RING_BYTES (2u * 1024u * 1024u)  // of one queue and direction

const char *port_why(const char *fmt, ...)
{
	static _Thread_local char text[384];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return text;
}

// Parses "1,3-5". Returns: 0; -EINVAL with `why`.
static int parse_cpus(const char *s, const cpu_set_t *allowed, cpu_set_t *set, const char **why)
{
	CPU_ZERO(set);
	while (*s != '\0') {
		char *end;

		if (!isdigit((unsigned char)*s))
			goto bad;
		const unsigned long first = strtoul(s, &end, 10);
		unsigned long last = first;

		if (*end == '-') {
			if (!isdigit((unsigned char)end[1]))
				goto bad;
			last = strtoul(end + 1, &end, 10);
		}
		if (last < first || last >= CPU_SETSIZE || (*end != ',' && *end != '\0') ||
			(*end == ',' && end[1] == '\0'))
			goto bad;
		for (unsigned long cpu = first; cpu <= last; cpu++) {
			if (!CPU_ISSET(cpu, allowed)) {
				*why = port_why(
					"eal.lcores: CPU %lu is not one this process may use", cpu);
				return -EINVAL;
			}
			CPU_SET(cpu, set);
		}
		s = *end == ',' ? end + 1 : end;
	}
	if (CPU_COUNT(set) > 0)
		return 0;
bad:
	*why = port_why("eal.lcores: expected \"auto\" or CPUs such as 1,2 or 1-3");
	return -EINVAL;
}

static bool append(char *out, size_t cap, size_t *at, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static bool append(char *out, size_t cap, size_t *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	const int n = vsnprintf(out + *at, cap - *at, fmt, ap);

	va_end(ap);
	if (n < 0 || (size_t)n >= cap - *at)
		return false;
	*at += (size_t)n;
	return true;
}

// "(0-3,5)"
static bool format_set(const cpu_set_t *set, char *out, size_t cap)
{
	size_t at = 0;
	bool ok = append(out, cap, &at, "(");

	for (int cpu = 0; ok && cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, set))
			continue;
		int last = cpu;

		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		ok = append(out, cap, &at, at > 1 ? ",%d" : "%d", cpu);
		if (ok && last > cpu)
			ok = append(out, cap, &at, "-%d", last);
		cpu = last;
	}
	return ok && append(out, cap, &at, ")");
}

int port_args_lcores(const char *lcores, uint32_t workers, const cpu_set_t *allowed, char *out,
	size_t cap, const char **why)
{
	const bool any = lcores[0] == '\0' || strcmp(lcores, "auto") == 0;
	char all[512], named[512];
	cpu_set_t set = *allowed;
	size_t at = 0;

	if (!any) {
		const int rc = parse_cpus(lcores, allowed, &set, why);

		if (rc != 0)
			return rc;
	}
	const bool own = !any && (uint32_t)CPU_COUNT(&set) >= workers;
	bool ok = format_set(allowed, all, sizeof(all)) && format_set(&set, named, sizeof(named)) &&
		  append(out, cap, &at, "0@%s", all);
	int cpu = -1;

	for (uint32_t w = 0; ok && w < workers; w++) {
		if (!own) {
			ok = append(out, cap, &at, ",%u@%s", w + 1, named);
			continue;
		}
		do
			cpu++;
		while (!CPU_ISSET(cpu, &set));
		ok = append(out, cap, &at, ",%u@%d", w + 1, cpu);
	}
	if (!ok) {
		*why = "eal.lcores: the core map is too long";
		return -EINVAL;
	}
	return 0;
}

static bool add(struct port_args *args, const char *arg, size_t len)
{
	if ((uint32_t)args->argc >= PORT_ARGS_MAX || args->used + len + 1 > PORT_ARGS_BYTES)
		return false;
	char *to = args->text + args->used;

	memcpy(to, arg, len);
	to[len] = '\0';
	if (args->used > 0)
		args->line[args->used - 1] = ' ';
	memcpy(args->line + args->used, to, len + 1);
	args->used += (uint32_t)len + 1;
	args->argv[args->argc++] = to;
	args->argv[args->argc] = NULL;
	return true;
}

static bool add_text(struct port_args *args, const char *arg)
{
	return add(args, arg, strlen(arg));
}

static bool add_pair(struct port_args *args, const char *name, const char *value)
{
	return add_text(args, name) && add_text(args, value);
}

static bool add_words(struct port_args *args, const char *s)
{
	bool ok = true;

	while (ok && *(s += strspn(s, " \t")) != '\0') {
		const size_t len = strcspn(s, " \t");

		ok = add(args, s, len);
		s += len;
	}
	return ok;
}

static bool add_memory(struct port_args *args, const struct conf *conf, bool pci)
{
	char megabytes[16];
	bool ok = true;

	snprintf(megabytes, sizeof(megabytes), "%u",
		(conf->eal.memory_bytes + (1u << 20) - 1) >> 20);
	if (conf->eal.memory_bytes != 0)
		ok = add_pair(args, "-m", megabytes);
	// no-huge implies EAL's legacy memory, which excludes in-memory; each leaves nothing behind
	if (!conf->eal.hugepages)
		return ok && add_text(args, "--no-huge") && add_text(args, "--no-shconf");
	// root would get physical addresses, others virtual ones; only a device can need the former
	return ok && add_text(args, "--in-memory") && (pci || add_text(args, "--iova-mode=va"));
}

int port_args_eal(
	const struct conf *conf, const cpu_set_t *allowed, struct port_args *args, const char **why)
{
	struct port_device device;
	char lcores[2048], prefix[48];
	int rc = port_args_lcores(
		conf->eal.lcores, conf->workers.count, allowed, lcores, sizeof(lcores), why);

	if (rc == 0)
		rc = port_args_device(
			conf->port.device, conf->workers.count, conf->port.mtu, &device, why);
	if (rc != 0)
		return rc;
	memset(args, 0, sizeof(*args));
	if (conf->eal.file_prefix[0] != '\0')
		snprintf(prefix, sizeof(prefix), "%s", conf->eal.file_prefix);
	else
		snprintf(prefix, sizeof(prefix), "tagcast-%llu", (unsigned long long)conf->node.id);
	bool ok = add_text(args, "tagcastd") && add_pair(args, "--lcores", lcores) &&
		  add_pair(args, "--main-lcore", "0") && add_memory(args, conf, device.pci) &&
		  add_pair(args, "--file-prefix", prefix);

	// a PCI scan would take over whatever card of the machine a driver knows
	if (ok && !device.pci)
		ok = add_text(args, "--no-pci");
	else if (ok)
		ok = add_text(args, "-a") && add_text(args, conf->port.device);
	if (ok && strcmp(conf->node.log_level, "debug") != 0)
		ok = add_text(args, "--log-level=warning");
	if (!ok || !add_words(args, conf->eal.extra)) {
		*why = "eal.extra: too many or too long arguments";
		return -EINVAL;
	}
	return 0;
}

// "0000:03:00.0" or "03:00.0", perhaps followed by options.
static bool is_pci(const char *s)
{
	int used = 0;
	unsigned domain, bus, dev, fn;

	if (sscanf(s, "%x:%x:%x.%x%n", &domain, &bus, &dev, &fn, &used) == 4 ||
		sscanf(s, "%x:%x.%x%n", &bus, &dev, &fn, &used) == 3)
		return s[used] == '\0' || s[used] == ',';
	return false;
}

// Value of `key=` in comma-separated options, or NULL.
static const char *option(const char *options, const char *key)
{
	const size_t len = strlen(key);

	for (const char *s = options; s != NULL && *s != '\0';) {
		if (strncmp(s, key, len) == 0 && s[len] == '=')
			return s + len + 1;
		s = strchr(s, ',');
		if (s != NULL)
			s++;
	}
	return NULL;
}

static bool add_option(struct port_device *device, const char *key, uint32_t value)
{
	size_t at = strlen(device->options);

	if (option(device->options, key) != NULL)
		return true;
	return append(device->options, sizeof(device->options), &at, "%s%s=%u", at > 0 ? "," : "",
		key, value);
}

static int complete_af_packet(
	struct port_device *device, uint32_t workers, uint16_t mtu, const char **why)
{
	// Ethernet header and VLAN tag travel in the slot too. A slot divides its block: the driver
	// counts slots as if blocks were one piece.
	const uint32_t need = mtu + 18u + AF_PACKET_SLOT_HEAD;
	const char *given = option(device->options, "framesz");
	const uint32_t slot = given != NULL            ? (uint32_t)strtoul(given, NULL, 10)
			      : need <= AF_PACKET_SLOT ? AF_PACKET_SLOT
						       : (need + 4095u) / 4096u * 4096u;

	if (option(device->options, "iface") == NULL) {
		*why = port_why("port.device: %s needs iface=NAME", device->name);
		return -EINVAL;
	}
	if (slot < need) {
		*why = port_why("port.device: framesz %u of %s does not hold port.mtu %u", slot,
			device->name, mtu);
		return -EINVAL;
	}
	device->frame_bytes = slot;
	const uint32_t block = slot <= 4096 ? 65536u : slot;
	bool ok = add_option(device, "qpairs", workers);

	if (given == NULL && slot != AF_PACKET_SLOT)
		ok = ok && add_option(device, "framesz", slot) &&
		     add_option(device, "blocksz", block) &&
		     add_option(device, "framecnt", AF_PACKET_RING_BYTES / slot);
	if (!ok) {
		*why = "port.device: the options are too long";
		return -EINVAL;
	}
	return 0;
}

int port_args_device(
	const char *text, uint32_t workers, uint16_t mtu, struct port_device *out, const char **why)
{
	const size_t len = strcspn(text, ",");
	const char *options = text[len] == ',' ? text + len + 1 : "";

	memset(out, 0, sizeof(*out));
	if (len == 0 || len >= sizeof(out->name) || strlen(options) >= sizeof(out->options)) {
		*why = "port.device: expected a PCI address or a virtual device such as "
		       "net_af_packet0,iface=NAME";
		return -EINVAL;
	}
	memcpy(out->name, text, len);
	strcpy(out->options, options);
	out->pci = is_pci(text);
	out->af_packet =
		strncmp(text, "net_af_packet", 13) == 0 || strncmp(text, "eth_af_packet", 13) == 0;
	return out->af_packet ? complete_af_packet(out, workers, mtu, why) : 0;
}
