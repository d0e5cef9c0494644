/* SPDX-License-Identifier: BSD-3-Clause */
// Reads a configuration: libyaml's events against the schema, strictly, with the place of everything that
// was set, so that each error names file, line, column and key. The one place that includes yaml.h.
// Any thread; one parse is one struct reader on the stack.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "conf_pvt.h"

#define KEY_MAX 96u

struct place {
	uint32_t line, column;  // from 1; 0: not there
};

struct reader {
	const char *file;
	char *error;
	struct conf *conf;
	yaml_parser_t parser;
	yaml_event_t event;  // the current one; holds nothing before the first step
	struct place option[CONF_OPTIONS_MAX];
	struct place section[CONF_SECTIONS_MAX];
};

// Writes the error line. Returns: -EINVAL, always.
static int fail_at(struct reader *r, struct place at, const char *key, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int fail_at(struct reader *r, struct place at, const char *key, const char *format, ...)
{
	va_list args;
	int n = snprintf(
		r->error, CONF_ERROR_MAX, "%.200s:%u:%u: %s: ", r->file, at.line, at.column, key);

	va_start(args, format);
	vsnprintf(r->error + n, CONF_ERROR_MAX - (size_t)n, format, args);
	va_end(args);
	return -EINVAL;
}

static struct place here(const struct reader *r)
{
	return (struct place){
		.line = (uint32_t)r->event.start_mark.line + 1,
		.column = (uint32_t)r->event.start_mark.column + 1,
	};
}

// --- events ------------------------------------------------------------------------------------------------

static int syntax_error(struct reader *r)
{
	const yaml_parser_t *const p = &r->parser;
	const struct place at = {
		.line = (uint32_t)p->problem_mark.line + 1,
		.column = (uint32_t)p->problem_mark.column + 1,
	};

	if (p->error == YAML_MEMORY_ERROR)
		return fail_at(r, at, "file", "no memory to read it");
	return fail_at(r, at, "syntax", "%s%s%s; allowed is YAML of sections and options",
		p->problem != NULL ? p->problem : "not YAML", p->context != NULL ? " " : "",
		p->context != NULL ? p->context : "");
}

// What YAML can say and a configuration may not.
static int refuse_extras(struct reader *r, const char *key)
{
	const yaml_event_t *const e = &r->event;
	const yaml_char_t *anchor = NULL, *tag = NULL;

	switch (e->type) {
	case YAML_ALIAS_EVENT:
		return fail_at(r, here(r), key, "an alias (*) is not allowed; write the value out");
	case YAML_SCALAR_EVENT:
		anchor = e->data.scalar.anchor;
		tag = e->data.scalar.tag;
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = e->data.sequence_start.anchor;
		tag = e->data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = e->data.mapping_start.anchor;
		tag = e->data.mapping_start.tag;
		break;
	case YAML_DOCUMENT_START_EVENT:
		if (e->data.document_start.version_directive != NULL ||
			e->data.document_start.tag_directives.start !=
				e->data.document_start.tag_directives.end)
			return fail_at(r, here(r), key, "a directive (%%) is not allowed");
		break;
	default:
		break;
	}
	if (anchor != NULL)
		return fail_at(
			r, here(r), key, "an anchor (&) is not allowed; write each value out");
	if (tag != NULL)
		return fail_at(
			r, here(r), key, "a tag (!) is not allowed; types follow from the key");
	return 0;
}

// Steps to the next event. `key` is what it belongs to, for messages.
static int step(struct reader *r, const char *key)
{
	yaml_event_delete(&r->event);
	memset(&r->event, 0, sizeof(r->event));
	if (!yaml_parser_parse(&r->parser, &r->event))
		return syntax_error(r);
	return refuse_extras(r, key);
}

static const char *scalar(const struct reader *r, size_t *len)
{
	*len = r->event.data.scalar.length;
	return (const char *)r->event.data.scalar.value;
}

static bool plain(const struct reader *r)
{
	return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

// A scalar on one line of its own.
static int want_scalar(struct reader *r, const char *key, const char *allowed)
{
	if (r->event.type != YAML_SCALAR_EVENT)
		return fail_at(r, here(r), key, "%s is not a single value; allowed %s",
			r->event.type == YAML_SEQUENCE_START_EVENT ? "a list" : "a mapping",
			allowed);
	if (r->event.data.scalar.style == YAML_LITERAL_SCALAR_STYLE ||
		r->event.data.scalar.style == YAML_FOLDED_SCALAR_STYLE)
		return fail_at(r, here(r), key,
			"a block of lines is not a single value; allowed %s", allowed);
	return 0;
}

// --- lists -------------------------------------------------------------------------------------------------

// The two fields of an entry of port.neighbours or auth.keys.
struct entry {
	struct conf_neighbour neighbour;
	uint8_t id;
	char file[CONF_PATH_MAX];
};

static int set_field(struct reader *r, const char *key, const char *field, struct entry *entry)
{
	size_t len;
	const char *const text = scalar(r, &len);
	char quoted[48];
	uint64_t number;

	conf_quote(text, len, quoted);
	if (strcmp(field, "ip") == 0) {
		if (conf_ipv4(text, len, &entry->neighbour.ip) != 0)
			return fail_at(r, here(r), key,
				"%s is not an IPv4 address; allowed a host address as in 192.0.2.9",
				quoted);
		if (conf_host_problem(entry->neighbour.ip) != NULL)
			return fail_at(r, here(r), key, "%s %s; allowed a host address", quoted,
				conf_host_problem(entry->neighbour.ip));
	} else if (strcmp(field, "mac") == 0) {
		static const uint8_t none[6];

		if (conf_mac(text, len, entry->neighbour.mac) != 0)
			return fail_at(r, here(r), key,
				"%s is not a link address; allowed six bytes as in "
				"02:00:00:00:00:09",
				quoted);
		if ((entry->neighbour.mac[0] & 1) != 0 ||
			memcmp(entry->neighbour.mac, none, 6) == 0)
			return fail_at(r, here(r), key,
				"%s is no address of one host; allowed unicast addresses", quoted);
	} else if (strcmp(field, "id") == 0) {
		if (!plain(r) || conf_digits(text, len, &number) != 0 || number == 0 ||
			number > 255)
			return fail_at(
				r, here(r), key, "%s is not a key id; allowed 1..255", quoted);
		entry->id = (uint8_t)number;
	} else {
		if (len == 0 || text[0] != '/' || len >= CONF_PATH_MAX ||
			!conf_text_clean(text, len))
			return fail_at(r, here(r), key,
				"%s is not a path; allowed an absolute path of up to %u bytes",
				quoted, CONF_PATH_MAX - 1);
		memset(entry->file, 0, sizeof(entry->file));
		memcpy(entry->file, text, len);
	}
	return 0;
}

// Reads {a: ..., b: ...}: both fields, each once.
static int read_entry(
	struct reader *r, const char *key, const char *const fields[2], struct entry *entry)
{
	bool have[2] = {false, false};
	const struct place start = here(r);
	char quoted[48], path[KEY_MAX];
	int rc;

	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail_at(r, here(r), key, "not an entry; allowed {%s: ..., %s: ...}",
			fields[0], fields[1]);
	while ((rc = step(r, key)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		const char *text;
		size_t len;
		uint32_t f;

		rc = want_scalar(r, key, "the name of a field");
		if (rc != 0)
			return rc;
		text = scalar(r, &len);
		for (f = 0; f < 2; f++) {
			if (strlen(fields[f]) == len && memcmp(fields[f], text, len) == 0)
				break;
		}
		if (f == 2)
			return fail_at(r, here(r), key, "unknown field %s; allowed %s, %s",
				conf_quote(text, len, quoted), fields[0], fields[1]);
		if (have[f])
			return fail_at(r, here(r), key, "field %s is given twice; allowed once",
				fields[f]);
		have[f] = true;
		snprintf(path, sizeof(path), "%.80s.%s", key, fields[f]);
		rc = step(r, path);
		if (rc == 0)
			rc = want_scalar(r, path, "one value");
		if (rc == 0)
			rc = set_field(r, path, fields[f], entry);
		if (rc != 0)
			return rc;
	}
	for (uint32_t f = 0; rc == 0 && f < 2; f++) {
		if (!have[f])
			return fail_at(r, start, key, "field %s is missing; required are %s and %s",
				fields[f], fields[0], fields[1]);
	}
	return rc;
}

static int add_neighbour(
	struct reader *r, struct place at, const char *key, const struct entry *entry)
{
	struct conf *const c = r->conf;

	for (uint32_t i = 0; i < c->port.neighbour_count; i++) {
		if (c->port.neighbours[i].ip == entry->neighbour.ip)
			return fail_at(r, at, key, "this ip is listed already; allowed once");
	}
	c->port.neighbours[c->port.neighbour_count++] = entry->neighbour;
	return 0;
}

static int add_key(struct reader *r, struct place at, const char *key, const struct entry *entry)
{
	struct conf *const c = r->conf;

	for (uint32_t i = 0; i < c->auth.key_count; i++) {
		if (c->auth.key_id[i] == entry->id)
			return fail_at(
				r, at, key, "id %u is listed already; allowed once", entry->id);
		if (strcmp(c->auth.key_file[i], entry->file) == 0)
			return fail_at(r, at, key, "file %.60s is listed already; allowed once",
				entry->file);
	}
	c->auth.key_id[c->auth.key_count] = entry->id;
	memcpy(c->auth.key_file[c->auth.key_count], entry->file, sizeof(entry->file));
	c->auth.key_count++;
	return 0;
}

static int read_list(struct reader *r, const struct conf_option *o, const char *key)
{
	static const char *const neighbour_fields[2] = {"ip", "mac"};
	static const char *const key_fields[2] = {"id", "file"};
	const bool keys = o->type == CONF_KEYS;
	const uint32_t most = keys ? CONF_KEYS_MAX : CONF_NEIGHBOURS_MAX;
	char path[KEY_MAX], allowed[160];
	uint32_t n = 0;
	int rc;

	conf_allowed(o, allowed, sizeof(allowed));
	if (r->event.type != YAML_SEQUENCE_START_EVENT)
		return fail_at(r, here(r), key, "not a list; allowed %s", allowed);
	while ((rc = step(r, key)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT) {
		const struct place at = here(r);
		struct entry entry = {.id = 0};

		snprintf(path, sizeof(path), "%.60s[%u]", key, n);
		if (n == most)
			return fail_at(r, at, path, "too many entries; allowed %s", allowed);
		rc = read_entry(r, path, keys ? key_fields : neighbour_fields, &entry);
		if (rc == 0)
			rc = keys ? add_key(r, at, path, &entry)
				  : add_neighbour(r, at, path, &entry);
		if (rc != 0)
			return rc;
		n++;
	}
	return rc;
}

// --- sections and options ----------------------------------------------------------------------------------

static int unknown_section(struct reader *r, const char *text, size_t len)
{
	uint32_t best = 0, least = UINT32_MAX;
	char quoted[48];

	for (uint32_t s = 0; s < conf_sections_count; s++) {
		const uint32_t d = conf_distance(text, len, conf_sections[s].name);

		if (d < least)
			least = d, best = s;
	}
	return fail_at(r, here(r), conf_quote(text, len, quoted), "unknown section; nearest is %s",
		conf_sections[best].name);
}

// The nearest option: first by name, those of the same section preferred.
static int unknown_option(struct reader *r, const char *section, const char *text, size_t len)
{
	uint32_t best = 0, least = UINT32_MAX;
	char quoted[48], key[KEY_MAX];

	for (uint32_t i = 0; i < conf_schema_count; i++) {
		uint32_t d = conf_distance(text, len, conf_schema[i].name);

		if (d != UINT32_MAX)
			d = 4 * d + (strcmp(conf_schema[i].section, section) != 0 ? 6 : 0);
		if (d < least)
			least = d, best = i;
	}
	conf_quote(text, len, quoted);
	snprintf(key, sizeof(key), "%s.%.*s", section, (int)strlen(quoted) - 2, quoted + 1);
	return fail_at(r, here(r), key, "unknown key; nearest is %s.%s", conf_schema[best].section,
		conf_schema[best].name);
}

static int read_option(struct reader *r, const char *section)
{
	char key[KEY_MAX], allowed[160], problem[CONF_PROBLEM_MAX];
	const struct conf_option *o = NULL;
	const char *text;
	size_t len;
	uint32_t i;
	int rc = want_scalar(r, section, "the name of an option");

	if (rc != 0)
		return rc;
	text = scalar(r, &len);
	for (i = 0; i < conf_schema_count; i++) {
		if (strcmp(conf_schema[i].section, section) == 0 &&
			strlen(conf_schema[i].name) == len &&
			memcmp(conf_schema[i].name, text, len) == 0)
			break;
	}
	if (i == conf_schema_count)
		return unknown_option(r, section, text, len);
	o = &conf_schema[i];
	snprintf(key, sizeof(key), "%s.%s", o->section, o->name);
	if (r->option[i].line != 0)
		return fail_at(r, here(r), key, "given twice, first at %u:%u; allowed once",
			r->option[i].line, r->option[i].column);
	r->option[i] = here(r);
	rc = step(r, key);
	if (rc != 0)
		return rc;
	if (o->type == CONF_NEIGHBOURS || o->type == CONF_KEYS)
		return read_list(r, o, key);
	conf_allowed(o, allowed, sizeof(allowed));
	rc = want_scalar(r, key, allowed);
	if (rc != 0)
		return rc;
	r->option[i] = here(r);  // from here on the place of the value
	text = scalar(r, &len);
	if (conf_set(o, text, len, plain(r), r->conf, problem) != 0)
		return fail_at(r, here(r), key, "%s", problem);
	return 0;
}

static int read_section(struct reader *r)
{
	const char *text, *name;
	size_t len;
	uint32_t s;
	int rc = want_scalar(r, "sections", "the name of a section");

	if (rc != 0)
		return rc;
	text = scalar(r, &len);
	for (s = 0; s < conf_sections_count; s++) {
		if (strlen(conf_sections[s].name) == len &&
			memcmp(conf_sections[s].name, text, len) == 0)
			break;
	}
	if (s == conf_sections_count)
		return unknown_section(r, text, len);
	name = conf_sections[s].name;
	if (r->section[s].line != 0)
		return fail_at(r, here(r), name,
			"section given twice, first at %u:%u; allowed once", r->section[s].line,
			r->section[s].column);
	r->section[s] = here(r);
	rc = step(r, name);
	if (rc != 0)
		return rc;
	if (r->event.type == YAML_SCALAR_EVENT && plain(r) && r->event.data.scalar.length == 0)
		return 0;  // all of its options are left out
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail_at(r, here(r), name,
			"not a section; allowed options as `name: value` below it");
	while ((rc = step(r, name)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		rc = read_option(r, name);
		if (rc != 0)
			return rc;
	}
	return rc;
}

// --- the whole ---------------------------------------------------------------------------------------------

static int read_document(struct reader *r)
{
	int rc = step(r, "document");  // STREAM-START

	if (rc == 0)
		rc = step(r, "document");
	if (rc != 0)
		return rc;
	if (r->event.type == YAML_STREAM_END_EVENT)
		return fail_at(r, (struct place){1, 1}, "file",
			"is empty; required are node, port and auth");
	rc = step(r, "document");
	if (rc != 0)
		return rc;
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return fail_at(
			r, here(r), "document", "no sections; required are node, port and auth");
	while ((rc = step(r, "sections")) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
		rc = read_section(r);
		if (rc != 0)
			return rc;
	}
	if (rc == 0)
		rc = step(r, "document");  // DOCUMENT-END
	if (rc == 0)
		rc = step(r, "document");
	if (rc == 0 && r->event.type != YAML_STREAM_END_EVENT)
		return fail_at(r, here(r), "document", "a second document; allowed is one");
	return rc;
}

static struct place place_of(const struct reader *r, const char *key)
{
	for (uint32_t i = 0; key != NULL && i < conf_schema_count; i++) {
		char full[KEY_MAX];

		snprintf(full, sizeof(full), "%s.%s", conf_schema[i].section, conf_schema[i].name);
		if (strcmp(full, key) == 0)
			return r->option[i];
	}
	return (struct place){0, 0};
}

static int check_required(struct reader *r)
{
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];
		struct place at = {1, 1};
		char key[KEY_MAX], allowed[160];

		if (!o->required || r->option[i].line != 0)
			continue;
		for (uint32_t s = 0; s < conf_sections_count; s++) {
			if (strcmp(conf_sections[s].name, o->section) == 0 &&
				r->section[s].line != 0)
				at = r->section[s];
		}
		snprintf(key, sizeof(key), "%s.%s", o->section, o->name);
		conf_allowed(o, allowed, sizeof(allowed));
		return fail_at(r, at, key, "missing, it has no default; allowed %s", allowed);
	}
	return 0;
}

// auth.send_key names an id; the struct holds the index of that key.
static int resolve_send_key(struct reader *r)
{
	struct conf *const c = r->conf;

	if (c->auth.send_key == 0)
		return 0;
	for (uint8_t i = 0; i < c->auth.key_count; i++) {
		if (c->auth.key_id[i] == c->auth.send_key) {
			c->auth.send_key = i;
			return 0;
		}
	}
	return fail_at(r, place_of(r, "auth.send_key"), "auth.send_key",
		"no key has id %u; allowed ids of auth.keys, 0", c->auth.send_key);
}

static int check_relations(struct reader *r)
{
	char problem[CONF_PROBLEM_MAX];
	const char *other = NULL;
	const char *const key = conf_check(r->conf, &other, problem);
	struct place at;

	if (key == NULL)
		return 0;
	at = place_of(r, key);
	if (at.line == 0)
		at = place_of(r, other);
	if (at.line == 0)
		at = (struct place){1, 1};
	return fail_at(r, at, key, "%s", problem);
}

static int parse(struct reader *r, const char *text, size_t len)
{
	struct place at;
	const char *problem;
	int rc;

	r->error[0] = '\0';
	conf_defaults(r->conf);
	if (len > CONF_FILE_BYTES_MAX)
		return fail_at(r, (struct place){1, 1}, "file",
			"%zu bytes are too many; allowed up to %u", len, CONF_FILE_BYTES_MAX);
	problem = conf_text_problem(text, len, &at.line, &at.column);
	if (problem != NULL)
		return fail_at(r, at, "file", "%s", problem);
	if (!yaml_parser_initialize(&r->parser))
		return fail_at(r, (struct place){1, 1}, "file", "no memory to read it");
	yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, len);
	rc = read_document(r);
	if (rc == 0)
		rc = check_required(r);
	if (rc == 0)
		rc = resolve_send_key(r);
	if (rc == 0)
		rc = check_relations(r);
	yaml_event_delete(&r->event);
	yaml_parser_delete(&r->parser);
	return rc;
}

int conf_parse(const char *file, const char *text, size_t len, struct conf *conf, char *error)
{
	struct reader r = {.file = file, .error = error, .conf = conf};

	return parse(&r, text, len);
}

void conf_place(const char *text, size_t len, const char *key, uint32_t *line, uint32_t *column)
{
	char error[CONF_ERROR_MAX];
	struct conf conf;
	struct reader r = {.file = "", .error = error, .conf = &conf};
	struct place at = {1, 1};

	if (parse(&r, text, len) == 0 && place_of(&r, key).line != 0)
		at = place_of(&r, key);
	*line = at.line;
	*column = at.column;
}
