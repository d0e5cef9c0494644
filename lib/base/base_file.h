/* SPDX-License-Identifier: BSD-3-Clause */
// Files that must still be there after a power cut. Any thread but a worker; blocks as a disk does.
#pragma once

// Makes what was created, renamed or removed in a folder durable. Returns: 0 or -errno.
int file_sync_folder(const char *dir);
