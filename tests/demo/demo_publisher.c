/* SPDX-License-Identifier: BSD-3-Clause */
// The demo's publisher: many publishes in flight, an answer line for each outcome. It has sessions of its
// own, so that senders can be spared their echo.
//   demo_publisher NODE_IP PORT CLIENT_ID DELIVERY_LOG [KEY_FILE KEY_ID]
// Commands, beside those of demo_gateway:
//   pub <message id> <none|gateway|client> <type> <channel> <payload bytes> [from uid]
//   window N          publishes in flight at most; input waits while it is full
// Answer to pub: out <message id> <status> <members> <routes> <ns sent> <ns outcome> <duplicate>
#include <stdlib.h>
#include <string.h>

#include "demo_common.h"

#define SENDERS_MAX 256u

struct publisher {
	struct demo demo;  // first
	uint32_t window;
	uint32_t senders;
	struct {
		const char *uid;
		uint32_t session;
	} sender[SENDERS_MAX];
};

static void on_outcome(void *ctx, const struct tagcast_outcome *o)
{
	const uint64_t now = demo_now_ns();
	uint64_t *sent = o->user;

	(void)ctx;
	printf("out %llu %s %u %u %llu %llu %d\n", (unsigned long long)o->message_id,
		tagcast_status_name(o->status), o->members, o->routes, (unsigned long long)*sent,
		(unsigned long long)now, o->duplicate);
	free(sent);
}

static void on_session(struct demo *demo, const char *uid, uint32_t session)
{
	struct publisher *p = (struct publisher *)demo;

	if (p->senders == SENDERS_MAX)
		return;
	p->sender[p->senders].uid = uid;
	p->sender[p->senders++].session = session;
}

static bool full(const struct demo *demo)
{
	const struct publisher *p = (const struct publisher *)demo;

	return tagcast_publish_pending(demo->client) >= p->window;
}

static int ack_of(const char *text)
{
	static const char *const names[] = {"none", "gateway", "client"};

	for (int i = 0; i < 3; i++) {
		if (strcmp(text, names[i]) == 0)
			return i;
	}
	return -1;
}

static void set_sender(const struct publisher *p, struct tagcast_publish *m, const char *uid)
{
	m->from_uid = (struct tagcast_id){.bytes = uid, .len = strlen(uid)};
	for (uint32_t i = 0; i < p->senders; i++) {
		if (strcmp(p->sender[i].uid, uid) == 0) {
			m->sender_session = 1;
			m->session = p->sender[i].session;
		}
	}
}

static void command_pub(struct publisher *p, char *line)
{
	static uint8_t payload[61440];
	char ack[16], channel[256], from[256];
	struct tagcast_publish m = {0};
	unsigned long long id;
	uint64_t request, *sent;
	unsigned bytes;
	int rc;

	rc = sscanf(line, "pub %llu %15s %u %255s %u %255s", &id, ack, &m.channel_type, channel,
		&bytes, from);
	if (rc < 5 || ack_of(ack) < 0 || bytes > sizeof(payload)) {
		printf("error not understood: %s\n", line);
		return;
	}
	sent = malloc(sizeof(*sent));
	if (sent == NULL)
		abort();
	m.message_id = id;
	m.ack = (enum tagcast_ack)ack_of(ack);
	m.channel = (struct tagcast_id){.bytes = channel, .len = strlen(channel)};
	demo_payload(id, payload, bytes);
	m.payload = payload;
	m.payload_len = bytes;
	m.user = sent;
	if (rc == 6)
		set_sender(p, &m, from);
	*sent = m.stamp = demo_now_ns();
	rc = tagcast_publish(p->demo.client, &m, &request);
	if (rc != 0) {
		printf("error publish %llu: %s\n", id, strerror(-rc));
		free(sent);
	}
}

static bool command(struct demo *demo, char *line)
{
	struct publisher *p = (struct publisher *)demo;

	if (strncmp(line, "pub ", 4) == 0) {
		command_pub(p, line);
	} else if (strncmp(line, "window ", 7) == 0) {
		p->window = (uint32_t)atoi(line + 7);
		puts("ok");
	} else {
		return false;
	}
	return true;
}

static void stats(const struct demo *demo)
{
	printf(" inflight=%u", tagcast_publish_pending(demo->client));
}

int main(int argc, char **argv)
{
	static struct publisher p = {.window = 16};
	int rc;

	p.demo.command = command;
	p.demo.on_session = on_session;
	p.demo.full = full;
	p.demo.stats = stats;
	rc = demo_open(&p.demo, argc, argv, on_outcome);
	return rc != 0 ? rc : demo_run(&p.demo);
}
