/* SPDX-License-Identifier: BSD-3-Clause */
// Defaults, and a configuration from a file. Any thread that may read files.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf_pvt.h"

void conf_defaults(struct conf *conf)
{
	memset(conf, 0, sizeof(*conf));
	for (uint32_t i = 0; i < conf_schema_count; i++) {
		const struct conf_option *const o = &conf_schema[i];
		uint8_t *const at = (uint8_t *)conf + o->offset;

		if (o->required || o->type == CONF_NEIGHBOURS || o->type == CONF_KEYS)
			continue;
		if (o->type == CONF_HOSTPORT || o->type == CONF_PATH_OR_NONE)
			continue;  // their default is none, which is no text
		if (o->text != NULL)
			memcpy(at, o->text, strlen(o->text));
		else
			memcpy(at, &o->value, o->bytes);  // little-endian: the low bytes
	}
}

static int unreadable(const char *file, const char *why, char *error)
{
	snprintf(error, CONF_ERROR_MAX, "%.200s:1:1: file: cannot be read: %s", file, why);
	return -EINVAL;
}

// Reads the whole file, or CONF_FILE_BYTES_MAX + 1 bytes of it. Owns: the caller frees *text.
static int read_file(const char *file, char **text, size_t *len, char *error)
{
	const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n = 1;
	int rc = 0;

	*text = NULL;
	*len = 0;
	if (fd < 0)
		return unreadable(file, strerror(errno), error);
	*text = malloc(CONF_FILE_BYTES_MAX + 1);
	if (*text == NULL || fstat(fd, &st) != 0) {
		rc = unreadable(file, strerror(errno), error);
	} else if (!S_ISREG(st.st_mode)) {
		rc = unreadable(file, "not a regular file", error);
	} else {
		while (*len < CONF_FILE_BYTES_MAX + 1 && n > 0) {
			n = read(fd, *text + *len, CONF_FILE_BYTES_MAX + 1 - *len);
			if (n > 0)
				*len += (size_t)n;
		}
		if (n < 0)
			rc = unreadable(file, strerror(errno), error);
	}
	close(fd);
	return rc;
}

int conf_load(const char *file, struct conf *conf, char *error)
{
	size_t len;
	char *text;
	int rc;

	conf_defaults(conf);
	rc = read_file(file, &text, &len, error);
	if (rc == 0)
		rc = conf_parse(file, text, len, conf, error);
	free(text);
	return rc;
}

void conf_complain(const char *file, const char *key, const char *problem, char *error)
{
	uint32_t line = 1, column = 1;
	size_t len;
	char *text;

	if (read_file(file, &text, &len, error) == 0)
		conf_place(text, len, key, &line, &column);
	free(text);
	snprintf(error, CONF_ERROR_MAX, "%.200s:%u:%u: %s: %s", file, line, column, key, problem);
}
