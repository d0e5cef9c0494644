/* SPDX-License-Identifier: BSD-3-Clause */
// Publishes one message and prints what became of it.
//   publisher NODE_IP PORT CHANNEL TEXT
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tagcast.h>

static int failed = -1;

static void on_outcome(void *ctx, const struct tagcast_outcome *outcome)
{
	(void)ctx;
	printf("message %llu: %s, %u members, %u sessions\n",
		(unsigned long long)outcome->message_id, tagcast_status_name(outcome->status),
		outcome->members, outcome->routes);
	failed = outcome->status != TAGCAST_OK;
}

int main(int argc, char **argv)
{
	const struct tagcast_callbacks callbacks = {.outcome = on_outcome};
	struct tagcast_config config = {0};
	struct tagcast_publish message = {0};
	struct tagcast *client;
	uint64_t request;
	int rc;

	if (argc != 5) {
		fprintf(stderr, "usage: publisher NODE_IP PORT CHANNEL TEXT\n");
		return 64;
	}
	config.node_ip = argv[1];
	config.node_port = (uint16_t)atoi(argv[2]);
	rc = tagcast_open(&config, &callbacks, &client);
	if (rc != 0) {
		fprintf(stderr, "cannot open: %s\n", strerror(-rc));
		return 1;
	}
	// The id is the idempotence key: the same message sent again under it is delivered once.
	message.message_id = (uint64_t)time(NULL) << 16 | 1;
	message.channel_type = 2;
	message.channel = (struct tagcast_id){.bytes = argv[3], .len = strlen(argv[3])};
	message.payload = argv[4];
	message.payload_len = strlen(argv[4]);
	message.ack = TAGCAST_ACK_GATEWAY;
	message.deadline_ms = 5000;
	rc = tagcast_publish(client, &message, &request);
	if (rc != 0)
		fprintf(stderr, "cannot publish: %s\n", strerror(-rc));
	while (rc == 0 && failed < 0) {
		struct pollfd ready = {.fd = tagcast_fd(client), .events = POLLIN};

		poll(&ready, 1, -1);
		if (tagcast_process(client) < 0)
			break;
	}
	tagcast_close(client);
	return failed != 0;
}
