/* SPDX-License-Identifier: BSD-3-Clause */
// What every unit test includes: cmocka in its required order, and a seeded random source so that a
// failing run can be repeated.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

// xorshift64*: small, seeded, good enough to mix test input.
static inline uint64_t unit_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}
