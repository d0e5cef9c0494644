/* SPDX-License-Identifier: BSD-3-Clause */
// A configuration read again while the node runs. Control core.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app.h"
#include "app_limits.h"
#include "base_log.h"

void app_log_level(const struct conf *conf)
{
	static const char *const levels[] = {"error", "warn", "info", "debug"};

	for (unsigned i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strcmp(conf->node.log_level, levels[i]) == 0)
			log_set_level((enum log_level)i);
}

// Lists what changed. Returns: 0; -EINVAL with the line about an option that must not.
static int list_changes(const struct app *app, const struct conf *conf, char *text)
{
	char key[CONF_NAME_MAX];
	bool reloadable;
	uint32_t at = 0;
	size_t len = 0;

	text[0] = 0;
	while (conf_next_change(&app->conf, conf, &at, key, &reloadable)) {
		if (!reloadable) {
			conf_complain(app->file, key,
				"changed, and is read at start only; nothing was changed", text);
			return -EINVAL;
		}
		if (len + strlen(key) + 3 < CONF_ERROR_MAX)
			len += (size_t)snprintf(text + len, CONF_ERROR_MAX - len, "%s%s",
				len == 0 ? "" : ", ", key);
	}
	if (len == 0)
		strcpy(text, "no option changed; key files were read again");
	return 0;
}

static int apply(struct app *app, const struct conf *conf, char *text) CONTROL_ONLY
{
	struct node_settings settings;
	struct node_params params;
	struct wire_keys keys;

	if (app_read_keys(conf, &keys) != 0) {
		conf_complain(app->file, "auth.keys",
			"a key file cannot be used, see the log; nothing was changed", text);
		return -EINVAL;
	}
	app_node_limits(conf, &params);
	params.keys = keys;
	node_settings_of(&params, &settings);
	if (node_control_reload(app->node, &settings) != 0) {
		snprintf(text, CONF_ERROR_MAX, "%s: the node refused it; nothing was changed",
			app->file);
		return -EINVAL;
	}
	app->conf = *conf;
	app_log_level(conf);
	return 0;
}

int app_reload(struct app *app, char *text)
{
	struct conf conf;
	char problem[CONF_ERROR_MAX];
	int rc = conf_load(app->file, &conf, text);

	if (rc == 0)
		rc = list_changes(app, &conf, text);
	if (rc == 0 && apply(app, &conf, problem) != 0) {
		memcpy(text, problem, sizeof(problem));
		rc = -EINVAL;
	}
	if (rc == 0) {
		app->reloads++;
		LOG(LOG_INFO, "main", "I1004", "configuration reloaded: %s", text);
	} else {
		app->reloads_refused++;
		LOG(LOG_ERROR, "main", "E1004", "configuration not reloaded: %s", text);
	}
	return rc;
}
