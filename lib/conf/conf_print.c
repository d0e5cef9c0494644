/* SPDX-License-Identifier: BSD-3-Clause */
// A configuration as YAML, and the manual made from the schema. Any thread that may print.
#include <string.h>

#include "conf_pvt.h"

#define VALUE_MAX 600u

static void print_neighbours(const struct conf *conf, FILE *out)
{
	fprintf(out, conf->port.neighbour_count == 0 ? " []\n" : "\n");
	for (uint32_t i = 0; i < conf->port.neighbour_count; i++) {
		const struct conf_neighbour *const n = &conf->port.neighbours[i];
		char ip[16];

		conf_format_ipv4(n->ip, ip);
		fprintf(out, "    - {ip: %s, mac: \"%02x:%02x:%02x:%02x:%02x:%02x\"}\n", ip,
			n->mac[0], n->mac[1], n->mac[2], n->mac[3], n->mac[4], n->mac[5]);
	}
}

static void print_keys(const struct conf *conf, FILE *out)
{
	fprintf(out, conf->auth.key_count == 0 ? " []\n" : "\n");
	for (uint32_t i = 0; i < conf->auth.key_count; i++) {
		char file[VALUE_MAX];

		conf_format_text(conf->auth.key_file[i], file, sizeof(file));
		fprintf(out, "    - id: %u\n      file: %s\n", conf->auth.key_id[i], file);
	}
}

static void print_option(const struct conf_option *o, const struct conf *conf, FILE *out)
{
	char value[VALUE_MAX];

	fprintf(out, "  %s:", o->name);
	if (o->type == CONF_NEIGHBOURS) {
		print_neighbours(conf, out);
	} else if (o->type == CONF_KEYS) {
		print_keys(conf, out);
	} else {
		conf_format(o, conf, value, sizeof(value));
		fprintf(out, " %s\n", value);
	}
}

void conf_print(const struct conf *conf, FILE *out)
{
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];

		if (i == 0 || strcmp(o->section, conf_schema[i - 1].section) != 0)
			fprintf(out, "%s:\n", o->section);
		print_option(o, conf, out);
	}
}

static void print_comment(const char *indent, const char *text, FILE *out)
{
	while (*text != '\0') {
		const size_t n = strcspn(text, "\n");

		fprintf(out, "%s# %.*s\n", indent, (int)n, text);
		text += n + (text[n] == '\n');
	}
}

static const char *type_name(enum conf_type type)
{
	static const char *const names[] = {
		[CONF_UINT] = "integer",
		[CONF_SIZE] = "size",
		[CONF_DURATION] = "duration",
		[CONF_PERCENT] = "percent",
		[CONF_BOOL] = "boolean",
		[CONF_WORD] = "word",
		[CONF_WORD_TEXT] = "word",
		[CONF_TEXT] = "text",
		[CONF_PATH] = "path",
		[CONF_PATH_OR_NONE] = "path",
		[CONF_PROGRAM] = "path",
		[CONF_NAME] = "name",
		[CONF_CPUS] = "CPU list",
		[CONF_DEVICE] = "device",
		[CONF_IPV4] = "address",
		[CONF_HOSTPORT] = "address",
		[CONF_CIDR] = "address",
		[CONF_KEY_ID] = "integer",
		[CONF_NEIGHBOURS] = "list",
		[CONF_KEYS] = "list",
	};

	return names[type];
}

void conf_print_manual(FILE *out)
{
	struct conf conf;

	conf_defaults(&conf);
	fprintf(out, "# SPDX-License-Identifier: BSD-3-Clause\n"
		     "# The configuration of tagcastd and tagcast-metad: every option, set to its "
		     "default. An option\n"
		     "# that is left out has its default; required ones have none and stand here "
		     "with an example.\n"
		     "#\n"
		     "# Sizes and times need a unit (64MiB, 50ms), counts have none; numbers are "
		     "decimal and without\n"
		     "# leading zeros. Unknown and repeated keys, tabs, anchors, tags and further "
		     "documents are\n"
		     "# refused, with line and column. `tagcastd --check FILE` reads a file and "
		     "starts nothing.\n"
		     "# SIGHUP or `tagcastctl reload` reads it again: reloadable options take "
		     "effect, and when any\n"
		     "# other one has changed all of it is refused and the node goes on as it "
		     "was.\n");
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];
		char allowed[160], value[VALUE_MAX];

		if (i == 0 || strcmp(o->section, conf_schema[i - 1].section) != 0) {
			for (uint32_t s = 0; s < conf_sections_count; s++) {
				if (strcmp(conf_sections[s].name, o->section) != 0)
					continue;
				fprintf(out, "\n");
				print_comment("", conf_sections[s].help, out);
			}
			fprintf(out, "%s:\n", o->section);
		} else {
			fprintf(out, "\n");
		}
		conf_allowed(o, allowed, sizeof(allowed));
		conf_format(o, &conf, value, sizeof(value));
		print_comment("  ", o->help, out);
		fprintf(out, "  # Type: %s. Allowed: %s.\n", type_name(o->type), allowed);
		fprintf(out, "  # Default: %s. Reloadable: %s.\n",
			o->required ? "none, required" : value,
			o->reloadable ? "yes" : "no, read at start");
		if (o->required)
			fprintf(out, "  %s: %s\n", o->name, o->text);
		else
			print_option(o, &conf, out);
	}
}
