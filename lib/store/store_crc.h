/* SPDX-License-Identifier: BSD-3-Clause */
// CRC-32C (Castagnoli, reflected 0x82f63b78, as in iSCSI, RFC 3720 appendix B.4). Pure, any thread.
#pragma once

#include <stdint.h>

// Goes on from `crc`, the value of the bytes before (0 at the start). "123456789" gives 0xe3069283.
// Uses the processor's instruction where it has one.
uint32_t store_crc32c(uint32_t crc, const void *bytes, uint64_t len);
// The same without it, for machines that lack it and for tests.
uint32_t store_crc32c_table(uint32_t crc, const void *bytes, uint64_t len);

// Of a stream that ends with its own CRC: of all before that. Over the whole every such stream gives the
// same value. Begin with zeros.
struct store_crc_body {
	uint32_t crc;
	uint32_t held_len;
	uint8_t held[4];  // the last bytes so far, which may be the end
};
void store_crc_body_add(struct store_crc_body *body, const uint8_t *bytes, uint64_t len);
