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

int conf_load(const char *file, struct conf *conf, char *error)
{
	const int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	size_t len = 0;
	ssize_t n = 1;
	char *text;
	int rc;

	conf_defaults(conf);
	if (fd < 0)
		return unreadable(file, strerror(errno), error);
	text = malloc(CONF_FILE_BYTES_MAX + 1);
	if (text == NULL || fstat(fd, &st) != 0) {
		rc = unreadable(file, strerror(errno), error);
	} else if (!S_ISREG(st.st_mode)) {
		rc = unreadable(file, "not a regular file", error);
	} else {
		while (len < CONF_FILE_BYTES_MAX + 1 && n > 0) {
			n = read(fd, text + len, CONF_FILE_BYTES_MAX + 1 - len);
			if (n > 0)
				len += (size_t)n;
		}
		rc = n < 0 ? unreadable(file, strerror(errno), error)
			   : conf_parse(file, text, len, conf, error);
	}
	free(text);
	close(fd);
	return rc;
}
