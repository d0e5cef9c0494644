/* SPDX-License-Identifier: BSD-3-Clause */
// What meta_state.c and meta_snapshot.c share.
#pragma once

#include "meta_state.h"

// Takes the generation that is in use now. Returns: 0 or -errno.
int meta_state_adopt(struct meta_state *state);
