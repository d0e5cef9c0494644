/* SPDX-License-Identifier: BSD-3-Clause */
// Owns nothing. Thread: the caller's, never a worker.
#include "base_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int file_sync_folder(const char *dir)
{
	const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return -errno;
	rc = fsync(fd) != 0 ? -errno : 0;
	close(fd);
	return rc;
}
