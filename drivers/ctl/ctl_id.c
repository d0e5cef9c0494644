/* SPDX-License-Identifier: BSD-3-Clause */
// Ids between bytes and JSON. Pure, any thread.
#include "ctl.h"

#include <errno.h>
#include <string.h>

json_t *ctl_id_json(struct id_view id)
{
	static const char digits[] = "0123456789abcdef";
	char hex[2 * ID_LEN_MAX + 1];
	json_t *value = NULL;

	if (memchr(id.bytes, '\0', id.len) == NULL)
		value = json_stringn((const char *)id.bytes, id.len);
	if (value != NULL)
		return value;
	for (uint32_t i = 0; i < id.len; i++) {
		hex[2 * i] = digits[id.bytes[i] >> 4];
		hex[2 * i + 1] = digits[id.bytes[i] & 15];
	}
	hex[2 * id.len] = '\0';
	return json_pack("{s:s}", "hex", hex);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int ctl_hex_read(const char *text, size_t len, uint8_t *out, size_t cap)
{
	if (len % 2 != 0 || len / 2 > cap)
		return -EINVAL;
	for (size_t i = 0; i < len / 2; i++) {
		const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return -EINVAL;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return (int)(len / 2);
}

int ctl_id_read(const json_t *value, uint8_t out[ID_LEN_MAX], const char **why)
{
	const json_t *hex;
	size_t len;
	int bytes;

	if (json_is_string(value)) {
		len = json_string_length(value);
		if (len < 1 || len > ID_LEN_MAX) {
			*why = "an id has 1 to 255 bytes";
			return -EINVAL;
		}
		memcpy(out, json_string_value(value), len);
		return (int)len;
	}
	hex = json_object_get(value, "hex");
	if (!json_is_string(hex) || json_object_size(value) != 1) {
		*why = "an id is a string or {\"hex\": \"...\"}";
		return -EINVAL;
	}
	bytes = ctl_hex_read(json_string_value(hex), json_string_length(hex), out, ID_LEN_MAX);
	if (bytes < 1) {
		*why = "hex of an id is 1 to 255 pairs of digits";
		return -EINVAL;
	}
	return bytes;
}
