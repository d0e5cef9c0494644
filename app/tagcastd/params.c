/* SPDX-License-Identifier: BSD-3-Clause */
// From the configuration to what a node is made of. Runs once, before the threads.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "app.h"
#include "base_log.h"
#include "app_limits.h"

// Reads 64 hex digits. The file must not be readable by everybody.
static int read_key(const char *path, uint8_t key[WIRE_KEY_BYTES])
{
	char text[80];
	struct stat st;
	FILE *f = fopen(path, "re");
	size_t len;

	if (f == NULL)
		return -errno;
	if (fstat(fileno(f), &st) == 0 && (st.st_mode & 007) != 0) {
		LOG(LOG_ERROR, "auth", "E1601", "key file %s is open to everybody: chmod 600",
			path);
		fclose(f);
		return -EACCES;
	}
	len = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		len--;
	if (len != 2 * WIRE_KEY_BYTES)
		return -EINVAL;
	for (unsigned i = 0; i < WIRE_KEY_BYTES; i++) {
		unsigned byte;

		if (!isxdigit((unsigned char)text[2 * i]) ||
			!isxdigit((unsigned char)text[2 * i + 1]))
			return -EINVAL;
		sscanf(text + 2 * i, "%2x", &byte);
		key[i] = (uint8_t)byte;
	}
	return 0;
}

int app_read_keys(const struct conf *conf, struct wire_keys *keys)
{
	memset(keys, 0, sizeof(*keys));
	if (conf->auth.mode == CONF_AUTH_OFF)
		return 0;
	keys->count = conf->auth.key_count;
	keys->send = conf->auth.send_key;
	for (unsigned i = 0; i < keys->count; i++) {
		const int rc = read_key(conf->auth.key_file[i], keys->key[i]);

		if (rc != 0) {
			LOG(LOG_ERROR, "auth", "E1602", "key file %s: %s; 64 hex digits are wanted",
				conf->auth.key_file[i], strerror(-rc));
			return rc;
		}
		keys->id[i] = conf->auth.key_id[i];
	}
	return 0;
}

int app_node_params(struct app *app, struct node_params *p)
{
	const struct conf *conf = &app->conf;

	app_node_limits(conf, p);
	p->boot = app->boot;
	p->dgram = port_dgram_ops();
	p->source_ops = &source_store_ops;
	p->source = app->source;
	p->wake = app_wake;
	p->wake_ctx = app;
	wire_random(p->cookie_secret, sizeof(p->cookie_secret));
	wire_random(&p->delivery.seed, sizeof(p->delivery.seed));
	for (uint32_t w = 0; w < conf->workers.count; w++) {
		p->queue[w] = port_queue(app->port, w);
		p->counters[w] = app->counters[w];
	}
	return app_read_keys(conf, &p->keys);
}
