/* SPDX-License-Identifier: BSD-3-Clause */
// What every test of lib/client includes. cmocka wants these before its own header.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
