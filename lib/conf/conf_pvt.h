/* SPDX-License-Identifier: BSD-3-Clause */
// Inside of lib/conf: the schema table and what reads it. Any thread; nothing is shared.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf.h"

enum conf_type {
	CONF_UINT,  // decimal digits
	CONF_SIZE,  // digits and one of B, KiB, MiB, GiB, TiB
	CONF_DURATION,  // digits and one of ns, us, ms, s, min, h
	CONF_PERCENT,  // digits and %
	CONF_BOOL,  // true, false
	CONF_WORD,  // one of `words`, stored as its index in 8 bits
	CONF_WORD_TEXT,  // one of `words`, stored as text
	CONF_TEXT,  // text without control characters
	CONF_PATH,  // absolute path
	CONF_PATH_OR_NONE,  // absolute path, or none, stored as no text
	CONF_PROGRAM,  // absolute path, or the bare name of a program
	CONF_NAME,  // letters, digits, '-', '_', '.'
	CONF_CPUS,  // auto, or CPU numbers as in 1,3-5
	CONF_DEVICE,  // PCI address or DPDK virtual device
	CONF_IPV4,  // address or none
	CONF_HOSTPORT,  // host:port, host an IPv4 address or a name; or none, stored as no text
	CONF_CIDR,  // address/prefix length; `bytes` unused, fills port.ip and port.prefix_len
	CONF_KEY_ID,  // id of one of auth.keys, or 0
	CONF_NEIGHBOURS,  // list of {ip, mac}
	CONF_KEYS,  // list of {id, file}
};

struct conf_option {
	const char *section, *name;
	enum conf_type type;
	uint16_t offset, bytes;  // in struct conf
	uint64_t min, max, value;  // numbers: range and default; texts: max length
	const char *text;  // texts, words: default. Required ones: the example of the manual
	const char *const *words;  // ends with NULL
	bool required, reloadable, power_of_two;
	const char *help;  // lines of the manual
};
extern const struct conf_option conf_schema[];
extern const uint32_t conf_schema_count;
#define CONF_OPTIONS_MAX 96u

struct conf_section {
	const char *name;
	const char *help;
};
extern const struct conf_section conf_sections[];
extern const uint32_t conf_sections_count;
#define CONF_SECTIONS_MAX 16u

#define CONF_PROBLEM_MAX 320u

// Text of a value: as YAML, with its unit. Lists are not values here.
void conf_format(const struct conf_option *o, const struct conf *conf, char *out, size_t size);
// "1..16" or "off, on" or what the type asks for.
void conf_allowed(const struct conf_option *o, char *out, size_t size);

// Sets an option from the text of a scalar (`plain`: written without quotes).
// Returns: 0; -EINVAL with `problem` (CONF_PROBLEM_MAX).
int conf_set(const struct conf_option *o, const char *text, size_t len, bool plain,
	struct conf *conf, char *problem);
// Digits only, no leading zero, no overflow. Returns: 0, -EINVAL, -ERANGE.
int conf_digits(const char *text, size_t len, uint64_t *value);
int conf_ipv4(const char *text, size_t len, uint32_t *ip);
int conf_mac(const char *text, size_t len, uint8_t mac[6]);
// An address a host can have. Returns: NULL or what is wrong.
const char *conf_host_problem(uint32_t ip);
// Text as a YAML scalar, quoted where it must be.
void conf_format_text(const char *text, char *out, size_t size);
void conf_format_ipv4(uint32_t ip, char out[16]);

// Where in a valid text an option is set; 1:1 when it is not.
void conf_place(const char *text, size_t len, const char *key, uint32_t *line, uint32_t *column);

// Quotes up to 40 bytes of a value for a message; what does not print becomes '?'.
const char *conf_quote(const char *text, size_t len, char out[48]);

// Where in a text its first byte is that no configuration may have. line and column from 1.
// Returns: NULL when there is none, or what it is.
const char *conf_text_problem(const char *text, size_t len, uint32_t *line, uint32_t *column);
// The same characters inside one value, where line breaks are refused too.
bool conf_text_clean(const char *text, size_t len);

// Letters to change, add or drop to make `a` of `b`.
uint32_t conf_distance(const char *a, size_t a_len, const char *b);

// Relations between options. Returns: NULL, or the key at fault with `other` (may be NULL), the other key
// that takes part, and `problem`.
const char *conf_check(const struct conf *conf, const char **other, char *problem);
