/* SPDX-License-Identifier: BSD-3-Clause */
// Request lines and ids. What is taken must print to a line that is taken again and means the same.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_id(const json_t *value)
{
	uint8_t id[ID_LEN_MAX], again[ID_LEN_MAX];
	const char *why = NULL;
	const int len = ctl_id_read(value, id, &why);
	json_t *back;

	if (len < 0) {
		assert(why != NULL);
		return;
	}
	assert(len >= 1 && len <= (int)ID_LEN_MAX);
	back = ctl_id_json(id_view_of(id, (uint8_t)len));
	assert(ctl_id_read(back, again, &why) == len && memcmp(id, again, (size_t)len) == 0);
	json_decref(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[CTL_ERROR_BYTES] = "", where[CTL_WHERE_BYTES] = "";
	// A copy of exact size, so that a read past the end is seen.
	char *line = malloc(size == 0 ? 1 : size), *text;
	json_t *root, *again, *value;
	const char *key;

	if (size != 0)
		memcpy(line, data, size);
	root = ctl_parse(line, size, error, where);
	free(line);
	if (root == NULL) {
		assert(error[0] != '\0' && strchr(where, ':') != NULL);
		return 0;
	}
	text = json_dumps(root, JSON_COMPACT);
	assert(text != NULL && strchr(text, '\n') == NULL);
	again = ctl_parse(text, strlen(text), error, where);
	assert(again != NULL);
	json_object_foreach(root, key, value) try_id(value);
	free(text);
	json_decref(again);
	json_decref(root);
	return 0;
}
