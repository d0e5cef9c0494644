/* SPDX-License-Identifier: BSD-3-Clause */
// A gateway with one session for each UID given; prints what arrives and acknowledges it.
//   gateway NODE_IP PORT GATEWAY_ID UID...
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tagcast.h>

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static void on_state(void *ctx, int registered)
{
	(void)ctx;
	printf("%s\n", registered ? "registered" : "not registered");
}

// A real gateway writes to its client's connection here, and says RETRY when that would block. It gives
// the receipt when the client has answered, not at once as this example does.
static enum tagcast_verdict on_message(
	void *ctx, uint32_t session, void *user, const struct tagcast_message *m)
{
	struct tagcast **client = ctx;

	printf("to %s, channel %.*s%s: %.*s\n", (const char *)user, (int)m->channel.len,
		(const char *)m->channel.bytes, m->late ? " (late)" : "", (int)m->payload_len,
		(const char *)m->payload);
	tagcast_receipt(*client, session, m->channel, m->channel_type, m->message_id);
	return TAGCAST_ACCEPT;
}

int main(int argc, char **argv)
{
	struct tagcast *client = NULL;
	const struct tagcast_callbacks callbacks = {
		.deliver = on_message, .state = on_state, .ctx = &client};
	struct tagcast_config config = {.gateway = 1};
	int rc;

	if (argc < 5) {
		fprintf(stderr, "usage: gateway NODE_IP PORT GATEWAY_ID UID...\n");
		return 64;
	}
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	setvbuf(stdout, NULL, _IOLBF, 0);
	config.node_ip = argv[1];
	config.node_port = (uint16_t)atoi(argv[2]);
	config.client_id = strtoull(argv[3], NULL, 0);
	rc = tagcast_open(&config, &callbacks, &client);
	for (int i = 4; rc == 0 && i < argc; i++) {
		const struct tagcast_id uid = {.bytes = argv[i], .len = strlen(argv[i])};
		uint32_t session;

		rc = tagcast_session_open(client, uid, argv[i], &session);
	}
	if (rc != 0)
		fprintf(stderr, "cannot open: %s\n", strerror(-rc));
	while (rc >= 0 && !stop) {
		struct pollfd ready = {.fd = tagcast_fd(client), .events = POLLIN};

		poll(&ready, 1, -1);
		rc = tagcast_process(client);
	}
	tagcast_close(client);
	return rc < 0;
}
