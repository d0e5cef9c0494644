/* SPDX-License-Identifier: BSD-3-Clause */
// The shared part of the demo's programs (demo_common.h). One thread.
#include "demo_common.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base_fault.h"

#define LOG_BUFFER_BYTES (1u << 20)
#define LINE_MAX_BYTES 4096u
#define WINDOW_DELIVERIES (1u << 20)
#define INFLIGHT_MAX 256u

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

uint64_t demo_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void demo_payload(uint64_t message_id, uint8_t *payload, size_t len)
{
	uint64_t x = message_id * UINT64_C(0x9e3779b97f4a7c15);

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		payload[i] = (uint8_t)x;
	}
}

static void check_payload(struct demo *demo, const struct tagcast_message *m)
{
	static uint8_t want[61440];

	if (m->message_id == demo->checked_id && m->payload == demo->checked_payload)
		return;
	demo->checked_id = m->message_id;
	demo->checked_payload = m->payload;
	demo_payload(m->message_id, want, m->payload_len);
	if (memcmp(want, m->payload, m->payload_len) != 0)
		demo->bad_payload++;
}

static enum tagcast_verdict on_deliver(
	void *ctx, uint32_t session, void *user, const struct tagcast_message *m)
{
	struct demo *demo = ctx;

	demo->delivered++;
	demo->late += m->late != 0;
	check_payload(demo, m);
	fprintf(demo->log, "%llu %llu %u %.*s %s %llu %d\n", (unsigned long long)demo_now_ns(),
		(unsigned long long)m->message_id, m->channel_type, (int)m->channel.len,
		(const char *)m->channel.bytes, (const char *)user, (unsigned long long)m->stamp,
		m->late);
	if (demo->receipts)
		tagcast_receipt(demo->client, session, m->channel, m->channel_type, m->message_id);
	return TAGCAST_ACCEPT;
}

static void on_state(void *ctx, int registered)
{
	struct demo *demo = ctx;

	demo->registered = registered != 0;
	printf("state %d\n", registered);
}

static bool read_key(const char *file, uint8_t key[32])
{
	char text[65] = "";
	FILE *in = fopen(file, "r");
	bool ok = in != NULL && fread(text, 1, 64, in) == 64;

	for (int i = 0; ok && i < 64; i++)
		ok = isxdigit((unsigned char)text[i]) != 0;
	for (int i = 0; ok && i < 32; i++) {
		const char byte[3] = {text[2 * i], text[2 * i + 1], 0};

		key[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	if (in != NULL)
		fclose(in);
	return ok;
}

// A planted fault of the client library; those of the node are armed there.
static void arm_fault(void)
{
#ifdef TAGCAST_TEST_HOOKS
	const char *name = getenv("TAGCAST_FAULT");

	if (name != NULL && strcmp(name, "dup1") == 0)
		fault_arm(name, 1);
#endif
}

int demo_open(struct demo *demo, int argc, char **argv,
	void (*outcome)(void *ctx, const struct tagcast_outcome *outcome))
{
	const struct tagcast_callbacks callbacks = {
		.outcome = outcome, .deliver = on_deliver, .state = on_state, .ctx = demo};
	struct tagcast_config config = {.gateway = 1,
		.window_messages = WINDOW_DELIVERIES,
		.publish_inflight_max = INFLIGHT_MAX};
	uint8_t key[32];
	int rc;

	if (argc != 5 && argc != 7) {
		fprintf(stderr, "usage: %s NODE_IP PORT CLIENT_ID DELIVERY_LOG [KEY_FILE KEY_ID]\n",
			argv[0]);
		return 64;
	}
	config.node_ip = argv[1];
	config.node_port = (uint16_t)atoi(argv[2]);
	config.client_id = strtoull(argv[3], NULL, 0);
	if (argc == 7) {
		if (!read_key(argv[5], key)) {
			fprintf(stderr, "%s: no key of 64 hex digits\n", argv[5]);
			return 65;
		}
		config.key = key;
		config.key_id = (uint8_t)atoi(argv[6]);
	}
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	arm_fault();
	setvbuf(stdout, NULL, _IOLBF, 0);
	demo->log = fopen(argv[4], "w");
	if (demo->log == NULL) {
		fprintf(stderr, "%s: %s\n", argv[4], strerror(errno));
		return 74;
	}
	setvbuf(demo->log, NULL, _IOFBF, LOG_BUFFER_BYTES);
	rc = tagcast_open(&config, &callbacks, &demo->client);
	if (rc != 0) {
		fprintf(stderr, "cannot open: %s\n", strerror(-rc));
		return 70;
	}
	return 0;
}

// --- commands -----------------------------------------------------------------------------------------

// Opens a session for each line of a file; the answer comes when the node knows all of them.
static void command_open(struct demo *demo, const char *file)
{
	char line[300];
	FILE *in = fopen(file, "r");

	if (in == NULL) {
		printf("error %s: %s\n", file, strerror(errno));
		return;
	}
	while (fgets(line, sizeof(line), in) != NULL) {
		struct tagcast_id uid = {.bytes = line, .len = strcspn(line, "\n")};
		uint32_t session;
		char *name;
		int rc;

		line[uid.len] = 0;
		if (uid.len == 0)
			continue;
		name = strdup(line);
		rc = name != NULL ? tagcast_session_open(demo->client, uid, name, &session)
				  : -ENOMEM;
		if (rc != 0) {
			printf("error %s: %s\n", line, strerror(-rc));
			break;
		}
		demo->sessions++;
		if (demo->on_session != NULL)
			demo->on_session(demo, name, session);
	}
	fclose(in);
	demo->waiting = true;
}

static void print_stats(const struct demo *demo)
{
	struct tagcast_stats s;

	tagcast_stats(demo->client, &s);
	printf("stats sessions=%u delivered=%llu suppressed=%llu late=%llu unknown_session=%llu "
	       "stale_pushes=%llu pushes=%llu records=%llu rx=%llu tx=%llu rx_bad=%llu hellos=%llu "
	       "publish_resends=%llu announce_resends=%llu bad_payload=%llu",
		demo->sessions, (unsigned long long)demo->delivered,
		(unsigned long long)s.suppressed, (unsigned long long)demo->late,
		(unsigned long long)s.unknown_session, (unsigned long long)s.stale_pushes,
		(unsigned long long)s.pushes, (unsigned long long)s.records,
		(unsigned long long)s.rx_datagrams, (unsigned long long)s.tx_datagrams,
		(unsigned long long)s.rx_bad, (unsigned long long)s.hellos,
		(unsigned long long)s.publish_resends, (unsigned long long)s.announce_resends,
		(unsigned long long)demo->bad_payload);
	if (demo->stats != NULL)
		demo->stats(demo);
	putchar('\n');
}

// keys FILE ID [FILE ID]
static void command_keys(struct demo *demo, char *line)
{
	uint8_t key[2][32];
	char file[2][256];
	unsigned id[2] = {0, 0};
	const int n = sscanf(line, "keys %255s %u %255s %u", file[0], &id[0], file[1], &id[1]);
	int rc = n == 2 || n == 4 ? 0 : -EINVAL;

	for (int i = 0; rc == 0 && i < n / 2; i++)
		rc = read_key(file[i], key[i]) ? 0 : -EIO;
	if (rc == 0)
		rc = tagcast_set_keys(demo->client, (uint8_t)id[0], key[0], (uint8_t)id[1],
			n == 4 ? key[1] : NULL);
	if (rc == 0)
		puts("ok");
	else
		printf("error %s: %s\n", line, strerror(-rc));
}

static void command(struct demo *demo, char *line)
{
	if (strncmp(line, "open ", 5) == 0) {
		command_open(demo, line + 5);
	} else if (strcmp(line, "receipts on") == 0 || strcmp(line, "receipts off") == 0) {
		demo->receipts = line[10] == 'n';
		puts("ok");
	} else if (strncmp(line, "keys ", 5) == 0) {
		command_keys(demo, line);
	} else if (strcmp(line, "stats") == 0) {
		print_stats(demo);
	} else if (strcmp(line, "flush") == 0) {
		fflush(demo->log);
		printf("flushed %llu\n", (unsigned long long)demo->delivered);
	} else if (strcmp(line, "quit") == 0) {
		demo->quit = true;
	} else if (line[0] != 0 && (demo->command == NULL || !demo->command(demo, line))) {
		printf("error unknown command: %s\n", line);
	}
}

struct input {
	char text[LINE_MAX_BYTES];
	size_t len;
	bool ended;
};

static bool take_line(struct demo *demo, struct input *in)
{
	char *end = memchr(in->text, '\n', in->len);
	size_t used;

	if (end == NULL || (demo->full != NULL && demo->full(demo)))
		return false;
	*end = 0;
	used = (size_t)(end + 1 - in->text);
	command(demo, in->text);
	in->len -= used;
	memmove(in->text, in->text + used, in->len);
	return true;
}

static void read_input(struct input *in)
{
	const ssize_t n = read(STDIN_FILENO, in->text + in->len, sizeof(in->text) - in->len);

	if (n > 0)
		in->len += (size_t)n;
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		in->ended = true;
}

int demo_run(struct demo *demo)
{
	struct input in = {.len = 0};
	int rc = 0;

	fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
	while (!demo->quit && !stop && rc >= 0) {
		struct pollfd fds[2] = {{.fd = tagcast_fd(demo->client), .events = POLLIN},
			{.fd = in.len < sizeof(in.text) && !in.ended ? STDIN_FILENO : -1,
				.events = POLLIN}};

		poll(fds, 2, -1);
		if (fds[1].revents != 0)
			read_input(&in);
		rc = tagcast_process(demo->client);
		while (!demo->quit && take_line(demo, &in))
			;
		if (demo->waiting && demo->registered &&
			tagcast_announce_pending(demo->client) == 0) {
			demo->waiting = false;
			printf("opened %u\n", demo->sessions);
		}
		if (in.ended && memchr(in.text, '\n', in.len) == NULL)
			demo->quit = true;
	}
	tagcast_close(demo->client);
	if (fclose(demo->log) != 0 || rc < 0)
		return 74;
	puts("bye");
	return 0;
}
