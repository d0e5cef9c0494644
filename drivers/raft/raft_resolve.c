/* SPDX-License-Identifier: BSD-3-Clause */
// Names to the literals the library takes. Owns nothing. Context: the meta process before it opens a
// group; blocks as the system's resolver does.
#include "raft_pvt.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int raft_cons_resolve(const char *host_port, char literal[CONS_ADDRESS_MAX], const char **why)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(host_port, ':');
	struct addrinfo *found = NULL;
	char host[256], text[INET_ADDRSTRLEN];
	unsigned port;
	int used = 0, error;

	*why = "not of the form host:port";
	if (colon == NULL || colon == host_port || (size_t)(colon - host_port) >= sizeof(host) ||
		sscanf(colon + 1, "%5u%n", &port, &used) != 1 || colon[1 + used] != '\0' ||
		colon[1] < '0' || colon[1] > '9' || port < 1 || port > 65535)
		return -1;
	memcpy(host, host_port, (size_t)(colon - host_port));
	host[colon - host_port] = '\0';
	error = getaddrinfo(host, NULL, &hints, &found);
	if (error != 0) {
		*why = gai_strerror(error);
		return -1;
	}
	inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)found->ai_addr)->sin_addr,
		text, sizeof(text));
	freeaddrinfo(found);
	snprintf(literal, CONS_ADDRESS_MAX, "%s:%u", text, port);
	*why = "";
	return 0;
}
