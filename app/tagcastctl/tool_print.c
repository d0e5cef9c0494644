/* SPDX-License-Identifier: BSD-3-Clause */
// Answers as text for people. What comes from a client's names may hold anything: control characters
// never reach the terminal.
#include "tool.h"

#include <stdlib.h>
#include <string.h>

// One value as text. Owns: the caller frees.
static char *value_text(const json_t *value)
{
	const json_t *hex = json_object_get(value, "hex");
	char *text = NULL, *dump;
	size_t size;
	FILE *out;

	out = open_memstream(&text, &size);
	if (out == NULL)
		return NULL;
	if (json_is_string(value)) {
		const char *s = json_string_value(value);

		for (size_t i = 0; i < json_string_length(value); i++)
			if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
				fprintf(out, "\\x%02x", (unsigned char)s[i]);
			else
				fputc(s[i], out);
	} else if (json_is_string(hex) && json_object_size(value) == 1) {
		fprintf(out, "hex:%s", json_string_value(hex));
	} else if (json_is_null(value) || value == NULL) {
		fputc('-', out);
	} else if (json_is_boolean(value)) {
		fputs(json_is_true(value) ? "yes" : "no", out);
	} else {
		dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
		fputs(dump != NULL ? dump : "?", out);
		free(dump);
	}
	fclose(out);
	return text;
}

void tool_print_value(FILE *out, const json_t *value)
{
	char *text = value_text(value);

	fputs(text != NULL ? text : "?", out);
	free(text);
}

// Columns on the screen: bytes that do not continue a UTF-8 sequence.
static int width_of(const char *text)
{
	int width = 0;

	for (; *text != '\0'; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

static void print_cell(const char *text, int width, bool right, bool last)
{
	const int pad = width - width_of(text);

	if (right)
		printf("%*s%s", pad, "", text);
	else
		printf("%s%*s", text, last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", stdout);
}

static void print_table(const json_t *columns, const json_t *rows, bool header)
{
	const size_t width_count = json_array_size(columns);
	const size_t row_count = json_array_size(rows);
	char **cell = calloc(width_count * (row_count + 1) + 1, sizeof(*cell));
	int *width = calloc(width_count + 1, sizeof(*width));
	bool *right = calloc(width_count + 1, sizeof(*right));

	if (cell == NULL || width == NULL || right == NULL)
		abort();
	for (size_t c = 0; c < width_count; c++) {
		cell[c] = value_text(json_array_get(columns, c));
		width[c] = header ? width_of(cell[c]) : 0;
		right[c] = row_count > 0;
		for (size_t r = 0; r < row_count; r++) {
			const json_t *value = json_array_get(json_array_get(rows, r), c);
			char *text = value_text(value);

			if (text == NULL)
				abort();
			cell[(r + 1) * width_count + c] = text;
			if (width_of(text) > width[c])
				width[c] = width_of(text);
			right[c] = right[c] && (json_is_number(value) || json_is_null(value));
		}
	}
	for (size_t r = header ? 0 : 1; r <= row_count; r++)
		for (size_t c = 0; c < width_count; c++)
			print_cell(cell[r * width_count + c], width[c], right[c],
				c + 1 == width_count);
	for (size_t i = 0; i < width_count * (row_count + 1); i++)
		free(cell[i]);
	free(cell);
	free(width);
	free(right);
}

static void print_fields(const json_t *fields)
{
	const char *key;
	json_t *value;
	int width = 0;

	json_object_foreach((json_t *)fields, key, value) if (width_of(key) > width) width =
		width_of(key);
	json_object_foreach((json_t *)fields, key, value)
	{
		printf("%s%*s  ", key, width - width_of(key), "");
		tool_print_value(stdout, value);
		fputc('\n', stdout);
	}
}

void tool_print(const struct tool *tool, const json_t *answer, bool first_page)
{
	const json_t *fields = json_object_get(answer, "fields");
	const json_t *columns = json_object_get(answer, "columns");
	const json_t *rows = json_object_get(answer, "rows");

	if (tool->json) {
		json_dumpf(answer, stdout, JSON_COMPACT);
		fputc('\n', stdout);
		return;
	}
	if (json_is_object(fields) && first_page)
		print_fields(fields);
	if (json_is_array(columns) && json_is_array(rows))
		print_table(columns, rows, first_page && !tool->no_header);
	if (fields == NULL && columns == NULL) {
		json_t *rest = json_copy((json_t *)answer);

		json_object_del(rest, "ok");
		json_object_del(rest, "id");
		print_fields(rest);
		json_decref(rest);
	}
}
