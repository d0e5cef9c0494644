/* SPDX-License-Identifier: BSD-3-Clause */
// One value: from the text of a scalar into struct conf, and back. Strict: a number is digits and exactly
// one of its units. Pure functions.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base_time.h"
#include "conf_pvt.h"

struct unit {
	const char *name;
	uint64_t factor;
};
static const struct unit sizes[] = {
	{"TiB", UINT64_C(1) << 40},
	{"GiB", UINT64_C(1) << 30},
	{"MiB", UINT64_C(1) << 20},
	{"KiB", UINT64_C(1) << 10},
	{"B", 1},
	{NULL, 0},
};
static const struct unit durations[] = {
	{"h", 3600 * NS_PER_S},
	{"min", 60 * NS_PER_S},
	{"s", NS_PER_S},
	{"ms", NS_PER_MS},
	{"us", NS_PER_US},
	{"ns", 1},
	{NULL, 0},
};
static const struct unit percents[] = {{"%", 1}, {NULL, 0}};

static const struct unit *units_of(enum conf_type type)
{
	switch (type) {
	case CONF_SIZE:
		return sizes;
	case CONF_DURATION:
		return durations;
	case CONF_PERCENT:
		return percents;
	default:
		return NULL;
	}
}

// --- texts into numbers ------------------------------------------------------------------------------------

int conf_digits(const char *text, size_t len, uint64_t *value)
{
	uint64_t v = 0;

	if (len == 0 || (text[0] == '0' && len > 1))
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
	}
	for (size_t i = 0; i < len; i++) {
		if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
			__builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v))
			return -ERANGE;
	}
	*value = v;
	return 0;
}

int conf_ipv4(const char *text, size_t len, uint32_t *ip)
{
	uint32_t address = 0, parts = 0;
	size_t at = 0;

	while (parts < 4) {
		const char *const dot = memchr(text + at, '.', len - at);
		const size_t end = parts == 3 || dot == NULL ? len : (size_t)(dot - text);
		uint64_t part;

		if (conf_digits(text + at, end - at, &part) != 0 || part > 255)
			return -EINVAL;
		address = address << 8 | (uint32_t)part;
		parts++;
		if (parts == 4) {
			*ip = address;
			return 0;
		}
		if (end == len)
			return -EINVAL;
		at = end + 1;
	}
	return -EINVAL;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int conf_mac(const char *text, size_t len, uint8_t mac[6])
{
	if (len != 17)
		return -EINVAL;
	for (uint32_t i = 0; i < 6; i++) {
		const int high = hex(text[3 * i]), low = hex(text[3 * i + 1]);

		if (high < 0 || low < 0 || (i < 5 && text[3 * i + 2] != ':'))
			return -EINVAL;
		mac[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

const char *conf_host_problem(uint32_t ip)
{
	if (ip >> 24 == 0)
		return "is in 0.0.0.0/8";
	if (ip >> 24 == 127)
		return "is a loopback address";
	if (ip >> 28 >= 14)
		return "is a multicast, reserved or broadcast address";
	return NULL;
}

// --- checks of texts ---------------------------------------------------------------------------------------

static bool name_ok(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		const char c = text[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '_' || c == '-' || (c == '.' && i > 0)))
			return false;
	}
	return true;
}

// "auto", or numbers and ranges below 1024 with commas between.
static bool cpus_ok(const char *text, size_t len)
{
	size_t at = 0;

	if (len == 4 && memcmp(text, "auto", 4) == 0)
		return true;
	while (at < len) {
		const char *const comma = memchr(text + at, ',', len - at);
		const size_t end = comma != NULL ? (size_t)(comma - text) : len;
		const char *const dash = memchr(text + at, '-', end - at);
		const size_t first_end = dash != NULL ? (size_t)(dash - text) : end;
		uint64_t first, last;

		if (conf_digits(text + at, first_end - at, &first) != 0)
			return false;
		last = first;
		if (dash != NULL && conf_digits(dash + 1, end - first_end - 1, &last) != 0)
			return false;
		if (last < first || last >= 1024 || end + 1 == len)
			return false;
		at = end + 1;
	}
	return len != 0;
}

// "0000:3b:00.0", "3b:00.0", or a virtual device such as net_af_packet0,iface=veth1.
static bool device_ok(const char *text, size_t len)
{
	static const char full[] = "xxxx:xx:xx.x";
	const char *const shape = len == 7 ? full + 5 : full;

	if (len > 4 && memcmp(text, "net_", 4) == 0) {
		for (size_t i = 0; i < len; i++) {
			if (text[i] <= ' ' || text[i] == 0x7f)
				return false;
		}
		return true;
	}
	if (len != 7 && len != 12)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (shape[i] == 'x' ? hex(text[i]) < 0 : text[i] != shape[i])
			return false;
	}
	return text[len - 1] >= '0' && text[len - 1] <= '7';
}

// An IPv4 address or a host name, and a port.
static bool hostport_ok(const char *text, size_t len)
{
	const char *const colon = memchr(text, ':', len);
	const size_t host = colon != NULL ? (size_t)(colon - text) : len;
	bool digits = true;
	uint64_t port;
	uint32_t ip;

	if (colon == NULL || host == 0 || conf_digits(colon + 1, len - host - 1, &port) != 0 ||
		port < 1 || port > 65535)
		return false;
	for (size_t i = 0; i < host; i++) {
		const char c = text[i];
		const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		digits = digits && ((c >= '0' && c <= '9') || c == '.');
		if (!letter && !(c >= '0' && c <= '9') && c != '-' && c != '.')
			return false;
	}
	return !digits || conf_ipv4(text, host, &ip) == 0;
}

// --- into struct conf --------------------------------------------------------------------------------------

static void store(const struct conf_option *o, struct conf *conf, uint64_t value)
{
	uint8_t *const at = (uint8_t *)conf + o->offset;

	memcpy(at, &value, o->bytes);  // little-endian: the low bytes
}

static uint64_t load(const struct conf_option *o, const struct conf *conf)
{
	uint64_t value = 0;

	memcpy(&value, (const uint8_t *)conf + o->offset, o->bytes);
	return value;
}

// Ends a message with what is allowed.
static int refuse(
	const struct conf_option *o, const char *text, size_t len, const char *what, char *problem)
{
	char quoted[48], allowed[160];

	conf_allowed(o, allowed, sizeof(allowed));
	snprintf(problem, CONF_PROBLEM_MAX, "%s %s; allowed %s", conf_quote(text, len, quoted),
		what, allowed);
	return -EINVAL;
}

static int set_number(
	const struct conf_option *o, const char *text, size_t len, struct conf *conf, char *problem)
{
	const struct unit *const units = units_of(o->type);
	size_t digits = 0;
	uint64_t factor = 1, value = 0;
	int rc;

	while (digits < len && text[digits] >= '0' && text[digits] <= '9')
		digits++;
	if (units != NULL) {
		const struct unit *u = units;

		if (digits == 0)
			return refuse(o, text, len, "is not a number with a unit", problem);
		if (digits == len)
			return refuse(o, text, len, "has no unit", problem);
		while (u->name != NULL &&
			(strlen(u->name) != len - digits ||
				memcmp(u->name, text + digits, len - digits) != 0))
			u++;
		if (u->name == NULL)
			return refuse(o, text, len, "has a wrong unit", problem);
		factor = u->factor;
	} else if (digits != len) {
		return refuse(o, text, len, "is not a decimal number", problem);
	}
	rc = conf_digits(text, digits, &value);
	if (rc == -EINVAL)
		return refuse(o, text, len,
			digits > 1 && text[0] == '0' ? "has a leading zero"
						     : "is not a decimal number",
			problem);
	if (rc == -ERANGE || __builtin_mul_overflow(value, factor, &value) || value < o->min ||
		value > o->max)
		return refuse(o, text, len, "is out of range", problem);
	if (o->power_of_two && (value & (value - 1)) != 0)
		return refuse(o, text, len, "is not a power of two", problem);
	store(o, conf, value);
	return 0;
}

static int set_word(
	const struct conf_option *o, const char *text, size_t len, struct conf *conf, char *problem)
{
	char *const at = (char *)conf + o->offset;

	for (uint32_t i = 0; o->words[i] != NULL; i++) {
		if (strlen(o->words[i]) != len || memcmp(o->words[i], text, len) != 0)
			continue;
		if (o->type == CONF_WORD) {
			store(o, conf, i);
		} else {
			memset(at, 0, o->bytes);
			memcpy(at, text, len);
		}
		return 0;
	}
	return refuse(o, text, len, "is not one of the words", problem);
}

static int set_text(
	const struct conf_option *o, const char *text, size_t len, struct conf *conf, char *problem)
{
	char *const at = (char *)conf + o->offset;

	if (len >= o->bytes)
		return refuse(o, text, len, "is too long", problem);
	if (!conf_text_clean(text, len))
		return refuse(o, text, len, "contains control characters", problem);
	if (o->required && len == 0)
		return refuse(o, text, len, "is empty", problem);
	if (o->type == CONF_PATH && (len == 0 || text[0] != '/'))
		return refuse(o, text, len, "is not an absolute path", problem);
	if ((o->type == CONF_PATH_OR_NONE || o->type == CONF_HOSTPORT) && len == 4 &&
		memcmp(text, "none", 4) == 0)
		len = 0;
	else if (o->type == CONF_PATH_OR_NONE && (len == 0 || text[0] != '/'))
		return refuse(o, text, len, "is not an absolute path", problem);
	else if (o->type == CONF_HOSTPORT && !hostport_ok(text, len))
		return refuse(o, text, len, "is not host:port", problem);
	if (o->type == CONF_PROGRAM && (len == 0 || (text[0] != '/' && !name_ok(text, len))))
		return refuse(o, text, len, "is not a program", problem);
	if (o->type == CONF_NAME && !name_ok(text, len))
		return refuse(o, text, len, "is not a name", problem);
	if (o->type == CONF_CPUS && !cpus_ok(text, len))
		return refuse(o, text, len, "is not a list of CPUs", problem);
	if (o->type == CONF_DEVICE && !device_ok(text, len))
		return refuse(o, text, len, "is not a device", problem);
	memset(at, 0, o->bytes);
	memcpy(at, text, len);
	return 0;
}

static int set_ipv4(
	const struct conf_option *o, const char *text, size_t len, struct conf *conf, char *problem)
{
	const char *const slash = o->type == CONF_CIDR ? memchr(text, '/', len) : NULL;
	const size_t ip_len = slash != NULL ? (size_t)(slash - text) : len;
	const char *bad;
	uint64_t prefix = 0;
	uint32_t ip, host;

	if (o->type == CONF_IPV4 && len == 4 && memcmp(text, "none", 4) == 0) {
		store(o, conf, 0);
		return 0;
	}
	if (conf_ipv4(text, ip_len, &ip) != 0)
		return refuse(o, text, len, "is not an IPv4 address", problem);
	bad = conf_host_problem(ip);
	if (bad != NULL)
		return refuse(o, text, len, bad, problem);
	if (o->type == CONF_CIDR) {
		if (slash == NULL)
			return refuse(o, text, len, "has no prefix length", problem);
		if (conf_digits(slash + 1, len - ip_len - 1, &prefix) != 0 || prefix < o->min ||
			prefix > o->max)
			return refuse(o, text, len, "has a bad prefix length", problem);
		host = prefix < 31 ? UINT32_MAX >> prefix : 0;
		if (host != 0 && ((ip & host) == 0 || (ip & host) == host))
			return refuse(o, text, len, "names a network, not a host", problem);
		conf->port.prefix_len = (uint8_t)prefix;
	}
	store(o, conf, ip);
	return 0;
}

int conf_set(const struct conf_option *o, const char *text, size_t len, bool plain,
	struct conf *conf, char *problem)
{
	const bool typed = o->type <= CONF_BOOL || o->type == CONF_KEY_ID;

	if (plain && len == 0)
		return refuse(o, text, len, "has no value", problem);
	if (plain && ((len == 1 && text[0] == '~') || (len == 4 && memcmp(text, "null", 4) == 0)))
		return refuse(o, text, len, "is no value", problem);
	if (typed && !plain)
		return refuse(o, text, len, "is quoted", problem);
	switch (o->type) {
	case CONF_UINT:
	case CONF_SIZE:
	case CONF_DURATION:
	case CONF_PERCENT:
	case CONF_KEY_ID:
		return set_number(o, text, len, conf, problem);
	case CONF_BOOL:
		if (len == 4 && memcmp(text, "true", 4) == 0)
			store(o, conf, 1);
		else if (len == 5 && memcmp(text, "false", 5) == 0)
			store(o, conf, 0);
		else
			return refuse(o, text, len, "is not true or false", problem);
		return 0;
	case CONF_WORD:
	case CONF_WORD_TEXT:
		return set_word(o, text, len, conf, problem);
	case CONF_IPV4:
	case CONF_CIDR:
		return set_ipv4(o, text, len, conf, problem);
	case CONF_NEIGHBOURS:
	case CONF_KEYS:
		return refuse(o, text, len, "is not a list", problem);
	default:
		return set_text(o, text, len, conf, problem);
	}
}

// --- and back ----------------------------------------------------------------------------------------------

static void format_number(enum conf_type type, uint64_t value, char *out, size_t size)
{
	const struct unit *u = units_of(type);

	if (u == NULL) {
		snprintf(out, size, "%" PRIu64, value);
		return;
	}
	// The largest unit that loses nothing; 0 in the smallest.
	while (u[1].name != NULL && (value == 0 || value % u->factor != 0))
		u++;
	snprintf(out, size, "%" PRIu64 "%s", value / u->factor, u->name);
}

void conf_format_ipv4(uint32_t ip, char out[16])
{
	snprintf(out, 16, "%u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

void conf_allowed(const struct conf_option *o, char *out, size_t size)
{
	char low[32], high[32];
	int n = 0;

	switch (o->type) {
	case CONF_BOOL:
		snprintf(out, size, "true, false");
		return;
	case CONF_WORD:
	case CONF_WORD_TEXT:
		out[0] = '\0';
		for (uint32_t i = 0; o->words[i] != NULL && (size_t)n < size; i++)
			n += snprintf(
				out + n, size - (size_t)n, "%s%s", i != 0 ? ", " : "", o->words[i]);
		return;
	case CONF_TEXT:
		snprintf(out, size, "text of up to %u bytes", o->bytes - 1u);
		return;
	case CONF_PATH:
		snprintf(out, size, "an absolute path of up to %u bytes", o->bytes - 1u);
		return;
	case CONF_PATH_OR_NONE:
		snprintf(out, size, "an absolute path of up to %u bytes, none", o->bytes - 1u);
		return;
	case CONF_HOSTPORT:
		snprintf(out, size, "address:port or name:port of up to %u bytes, none",
			o->bytes - 1u);
		return;
	case CONF_PROGRAM:
		snprintf(out, size, "an absolute path of up to %u bytes, or a program's name",
			o->bytes - 1u);
		return;
	case CONF_NAME:
		snprintf(out, size, "up to %u letters, digits, _, - and .", o->bytes - 1u);
		return;
	case CONF_CPUS:
		snprintf(out, size, "auto, or CPUs below 1024 as in 2 or 1,3-5");
		return;
	case CONF_DEVICE:
		snprintf(out, size, "a PCI address (0000:3b:00.0), a DPDK device (net_tap0,...)");
		return;
	case CONF_IPV4:
		snprintf(out, size, "an IPv4 host address, none");
		return;
	case CONF_CIDR:
		snprintf(out, size, "IPv4 host address/length, length %" PRIu64 "..%" PRIu64,
			o->min, o->max);
		return;
	case CONF_NEIGHBOURS:
		snprintf(out, size, "a list of up to %u {ip, mac}", CONF_NEIGHBOURS_MAX);
		return;
	case CONF_KEYS:
		snprintf(out, size, "a list of up to %u {id, file}", CONF_KEYS_MAX);
		return;
	default:
		break;
	}
	format_number(o->type, o->min, low, sizeof(low));
	format_number(o->type, o->max, high, sizeof(high));
	n = snprintf(out, size, "%s..%s%s", low, high, o->power_of_two ? ", a power of two" : "");
	if (o->type == CONF_SIZE)
		snprintf(out + n, size - (size_t)n, " in B, KiB, MiB, GiB or TiB");
	else if (o->type == CONF_DURATION)
		snprintf(out + n, size - (size_t)n, " in ns, us, ms, s, min or h");
}

// True when YAML takes the text for itself without quotes.
static bool needs_no_quotes(const char *text)
{
	static const char safe[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-=,:";
	const size_t len = strlen(text);

	return len != 0 && strspn(text, safe) == len && strchr("._-=,:", text[0]) == NULL &&
	       text[len - 1] != ':' && strcmp(text, "null") != 0;
}

void conf_format_text(const char *text, char *out, size_t size)
{
	const bool quotes = !needs_no_quotes(text);
	size_t at = 0;

	if (quotes)
		out[at++] = '"';
	for (; *text != '\0' && at + 3 < size; text++) {
		if (*text == '"' || *text == '\\')
			out[at++] = '\\';
		out[at++] = *text;
	}
	if (quotes)
		out[at++] = '"';
	out[at] = '\0';
}

void conf_format(const struct conf_option *o, const struct conf *conf, char *out, size_t size)
{
	const char *const text = (const char *)conf + o->offset;
	char ip[16];

	switch (o->type) {
	case CONF_UINT:
	case CONF_SIZE:
	case CONF_DURATION:
	case CONF_PERCENT:
		format_number(o->type, load(o, conf), out, size);
		return;
	case CONF_BOOL:
		snprintf(out, size, "%s", load(o, conf) ? "true" : "false");
		return;
	case CONF_WORD:
		snprintf(out, size, "%s", o->words[load(o, conf)]);
		return;
	case CONF_WORD_TEXT:
		snprintf(out, size, "%s", text);
		return;
	case CONF_IPV4:
	case CONF_CIDR:
		conf_format_ipv4((uint32_t)load(o, conf), ip);
		if (o->type == CONF_CIDR)
			snprintf(out, size, "%s/%u", ip, conf->port.prefix_len);
		else
			snprintf(out, size, "%s", load(o, conf) != 0 ? ip : "none");
		return;
	case CONF_KEY_ID:
		snprintf(out, size, "%u",
			conf->auth.key_count != 0 ? conf->auth.key_id[conf->auth.send_key] : 0u);
		return;
	case CONF_NEIGHBOURS:
	case CONF_KEYS:
		snprintf(out, size, "[]");
		return;
	case CONF_HOSTPORT:
	case CONF_PATH_OR_NONE:
		conf_format_text(text[0] != '\0' ? text : "none", out, size);
		return;
	default:
		conf_format_text(text, out, size);
	}
}
