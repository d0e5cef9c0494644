/* SPDX-License-Identifier: BSD-3-Clause */
// What the encoder and the reader of snapshots share, and the check of a single row.
#pragma once

#include "store_pvt.h"
#include "store_snapshot.h"

#define SNAPSHOT_MAGIC "TCSNAP\r\n"
#define SNAPSHOT_END "TCSNEND\n"
#define SNAPSHOT_VERSION 1u
#define SNAPSHOT_HEADER 80u
#define SNAPSHOT_TRAILER 32u
#define VALUE_BYTES_MAX 65536u
#define ROW_BYTES_MAX (16u + KEY_BYTES_MAX + VALUE_BYTES_MAX)

// Any row that lib/store writes, and little else: lengths, kinds and what decodes. Reads nothing outside.
bool row_valid(enum store_table t, struct store_bytes key, struct store_bytes value);
