/* SPDX-License-Identifier: BSD-3-Clause */
// The role objects themselves; they hold nothing and exist for the compiler's checker.
#include "base_role.h"

struct thread_role role_worker;
struct thread_role role_control;
struct thread_role role_meta;
