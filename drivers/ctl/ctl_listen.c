/* SPDX-License-Identifier: BSD-3-Clause */
// Unix sockets that outlive their process: told apart from those somebody still serves. Any thread.
#include "ctl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 64

// True when a server answers on the address.
static bool somebody_listens(const struct sockaddr_un *addr)
{
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool alive;

	if (fd < 0)
		return true;
	// EAGAIN: its backlog is full, so it lives.
	alive = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN;
	close(fd);
	return alive;
}

static int bind_to(int fd, const struct sockaddr_un *addr)
{
	return bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ? 0 : -errno;
}

int ctl_listen(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct stat st;
	int fd, rc;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	// The mode before bind is what the umask narrows: at no moment is the socket wider than 0660.
	(void)fchmod(fd, 0660);
	rc = bind_to(fd, &addr);
	if (rc == -EADDRINUSE && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
		!somebody_listens(&addr) && unlink(path) == 0)
		rc = bind_to(fd, &addr);
	if (rc == 0 && (chmod(path, 0660) != 0 || listen(fd, LISTEN_BACKLOG) != 0))
		rc = -errno;
	if (rc != 0) {
		close(fd);
		return rc;
	}
	return fd;
}
