/* SPDX-License-Identifier: BSD-3-Clause */
// Bytes and characters: what a configuration file may not contain, quoting for messages, edit distance.
// Pure functions.
#include <string.h>

#include "conf_pvt.h"

// Decodes one character of UTF-8 (RFC 3629: shortest form, no surrogates, up to U+10FFFF).
// Returns: its bytes, or 0 when they are not UTF-8.
static uint32_t decode(const uint8_t *p, size_t len, uint32_t *character)
{
	static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t n, c;

	if (p[0] < 0x80) {
		*character = p[0];
		return 1;
	}
	if (p[0] >= 0xf0 && p[0] < 0xf5)
		n = 4, c = p[0] & 7u;
	else if (p[0] >= 0xe0 && p[0] < 0xf0)
		n = 3, c = p[0] & 15u;
	else if (p[0] >= 0xc2 && p[0] < 0xe0)
		n = 2, c = p[0] & 31u;
	else
		return 0;
	if (n > len)
		return 0;
	for (uint32_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 63u);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*character = c;
	return n;
}

// Characters refused wherever they stand. YAML takes some of them for line breaks, none is of use.
static const char *refused(uint32_t c)
{
	if (c == 0)
		return "NUL byte; allowed is text";
	if (c == '\t')
		return "tab character; indent with spaces";
	if (c == 0xfeff)
		return "byte order mark; allowed is UTF-8 without one";
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return "control character; allowed is printable text";
	if (c == 0x2028 || c == 0x2029)
		return "Unicode line separator; allowed are plain line breaks";
	if ((c >= 0xfffe && c <= 0xffff) || (c >= 0xfff0 && c < 0xfffd))
		return "character that is none; allowed is printable text";
	return NULL;
}

const char *conf_text_problem(const char *text, size_t len, uint32_t *line, uint32_t *column)
{
	const uint8_t *const p = (const uint8_t *)text;

	*line = *column = 1;
	for (size_t at = 0; at < len;) {
		uint32_t c = 0;
		const uint32_t n = decode(p + at, len - at, &c);
		const char *problem;

		if (n == 0)
			return "bytes that are not UTF-8; allowed is UTF-8 text";
		if (c == '\n' || c == '\r') {
			if (c == '\n' || at + 1 >= len || p[at + 1] != '\n') {
				(*line)++;
				*column = 1;
			}
			at++;
			continue;
		}
		problem = refused(c);
		if (problem != NULL)
			return problem;
		at += n;
		(*column)++;
	}
	return NULL;
}

bool conf_text_clean(const char *text, size_t len)
{
	uint32_t line, column;

	return conf_text_problem(text, len, &line, &column) == NULL && line == 1;
}

const char *conf_quote(const char *text, size_t len, char out[48])
{
	const size_t most = 40;
	size_t at = 0;

	out[at++] = '"';
	for (size_t i = 0; i < len && i < most; i++)
		out[at++] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
	if (len > most)
		out[at++] = '.', out[at++] = '.', out[at++] = '.';
	out[at++] = '"';
	out[at] = '\0';
	return out;
}

#define DISTANCE_MAX 64u

uint32_t conf_distance(const char *a, size_t a_len, const char *b)
{
	uint32_t row[DISTANCE_MAX + 1];
	const size_t b_len = strlen(b);

	if (a_len > DISTANCE_MAX || b_len > DISTANCE_MAX)
		return UINT32_MAX;
	for (uint32_t k = 0; k <= b_len; k++)
		row[k] = k;
	for (uint32_t i = 1; i <= a_len; i++) {
		uint32_t diagonal = row[0];

		row[0] = i;
		for (uint32_t k = 1; k <= b_len; k++) {
			const uint32_t above = row[k];
			uint32_t best = diagonal + (a[i - 1] != b[k - 1]);

			if (above + 1 < best)
				best = above + 1;
			if (row[k - 1] + 1 < best)
				best = row[k - 1] + 1;
			row[k] = best;
			diagonal = above;
		}
	}
	return row[b_len];
}
