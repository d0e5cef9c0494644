/* SPDX-License-Identifier: BSD-3-Clause */
// CRC-32C by instruction (x86-64 SSE 4.2, ARMv8 CRC) or by a table of nibbles. Pure, any thread.
#include "store_crc.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

// Remainders of one nibble. Small on purpose: it is the way out of machines without the instruction.
static const uint32_t nibble[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc,
	0x5125dad3, 0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
	0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t store_crc32c_table(uint32_t crc, const void *bytes, uint64_t len)
{
	const uint8_t *p = bytes;

	crc = ~crc;
	while (len-- > 0) {
		crc ^= *p++;
		crc = crc >> 4 ^ nibble[crc & 15];
		crc = crc >> 4 ^ nibble[crc & 15];
	}
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(
	uint32_t crc, const uint8_t *p, uint64_t len)
{
	uint64_t c = ~crc, word;

	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&word, p, 8);
		c = _mm_crc32_u64(c, word);
	}
	for (; len > 0; len--)
		c = _mm_crc32_u8((uint32_t)c, *p++);
	return ~(uint32_t)c;
}

uint32_t store_crc32c(uint32_t crc, const void *bytes, uint64_t len)
{
	return __builtin_cpu_supports("sse4.2") ? by_instruction(crc, bytes, len)
						: store_crc32c_table(crc, bytes, len);
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
uint32_t store_crc32c(uint32_t crc, const void *bytes, uint64_t len)
{
	const uint8_t *p = bytes;
	uint64_t word;

	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		memcpy(&word, p, 8);
		crc = __crc32cd(crc, word);
	}
	for (; len > 0; len--)
		crc = __crc32cb(crc, *p++);
	return ~crc;
}
#else
uint32_t store_crc32c(uint32_t crc, const void *bytes, uint64_t len)
{
	return store_crc32c_table(crc, bytes, len);
}
#endif

void store_crc_body_add(struct store_crc_body *body, const uint8_t *bytes, uint64_t len)
{
	while (len > 0 && len < sizeof(body->held)) {
		// A few bytes, one by one.
		if (body->held_len == sizeof(body->held)) {
			body->crc = store_crc32c(body->crc, body->held, 1);
			memmove(body->held, body->held + 1, --body->held_len);
		}
		body->held[body->held_len++] = *bytes++;
		len--;
	}
	if (len == 0)
		return;
	body->crc = store_crc32c(body->crc, body->held, body->held_len);
	body->crc = store_crc32c(body->crc, bytes, len - sizeof(body->held));
	memcpy(body->held, bytes + len - sizeof(body->held), sizeof(body->held));
	body->held_len = sizeof(body->held);
}
