/* SPDX-License-Identifier: BSD-3-Clause */
// What the demo's two programs share: a client with sessions, a log of deliveries, commands on standard
// input one a line, answers on standard output one a line. One thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <tagcast.h>

struct demo {
	struct tagcast *client;
	FILE *log;  // deliveries
	uint32_t sessions;
	bool registered;
	bool waiting;  // an "open" is answered when all is announced
	bool receipts;  // acknowledge messages that ask for it
	bool quit;
	uint64_t delivered, late, bad_payload;
	// the message checked last, so that one payload is not checked for each of its receivers
	uint64_t checked_id;
	const void *checked_payload;
	// Where the clients' names are kept and, for the publisher, which session a name has.
	void (*on_session)(struct demo *demo, const char *uid, uint32_t session);
	// A command the common part does not know. Returns: false when nobody knows it.
	bool (*command)(struct demo *demo, char *line);
	// True when no command may be taken now.
	bool (*full)(const struct demo *demo);
	void (*stats)(const struct demo *demo);
};

// Arguments: NODE_IP PORT CLIENT_ID DELIVERY_LOG [KEY_FILE KEY_ID]. Returns: an exit code, 0 to go on.
int demo_open(struct demo *demo, int argc, char **argv,
	void (*outcome)(void *ctx, const struct tagcast_outcome *outcome));
// Runs until "quit" or end of input. Returns: an exit code.
int demo_run(struct demo *demo);

uint64_t demo_now_ns(void);
// The bytes of a payload follow from the message id.
void demo_payload(uint64_t message_id, uint8_t *payload, size_t len);
