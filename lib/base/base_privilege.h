/* SPDX-License-Identifier: BSD-3-Clause */
// What a daemon may still do once it has started. Linux keeps capabilities and no_new_privs per thread: all
// threads of the process are changed, each by itself. Before the workers run; calls the system.
#pragma once

#include <stdint.h>

#define PRIVILEGE(capability) (UINT64_C(1) << (capability))

// Keeps the capabilities of `keep` as far as they are there, gives up all others for good, also for programs
// that are run from here on. Returns: 0; a negative errno; -ETIMEDOUT: a thread did not answer, all others
// have given them up.
int privilege_drop(uint64_t keep);
