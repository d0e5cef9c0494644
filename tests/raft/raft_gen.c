/* SPDX-License-Identifier: BSD-3-Clause */
// Load for a meta process: IN_FLIGHT additions of UIDS UIDs of UID_BYTES each, kept open over one connection,
// for SECONDS. Prints rate (of additions) and latency as JSON. One thread.
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define IN_FLIGHT_MAX 4096u
#define SAMPLES_MAX 8000000u
#define WARM_NS UINT64_C(300000000)
#define OUT_BYTES (64u << 20)

struct gen {
	int fd;
	const char *prefix;  // of UIDs: differs between runs
	uint32_t in_flight, uids, uid_bytes, channels;
	uint64_t seconds, next, answered, bad, first_ns, begin_ns, begin_answered;
	uint64_t start_ns[IN_FLIGHT_MAX];  // by number modulo the window
	char *out;
	size_t out_len;
	char in[1u << 20];
	size_t in_len;
	uint32_t *sample_us;
	uint32_t samples;
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "raft_gen: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(struct gen *gen, const char *text, size_t len)
{
	if (gen->out_len + len > OUT_BYTES)
		fail("too much in flight");
	memcpy(gen->out + gen->out_len, text, len);
	gen->out_len += len;
}

static void put_uid(struct gen *gen, uint32_t index)
{
	char uid[300] = "\"";
	uint32_t len = 1 + (uint32_t)snprintf(
				   uid + 1, 64, "%s%" PRIu64 "-%u", gen->prefix, gen->next, index);

	while (len < 1 + gen->uid_bytes)
		uid[len++] = 'x';
	uid[len++] = '"';
	if (index + 1 < gen->uids)
		uid[len++] = ',';
	put(gen, uid, len);
}

// The slot of a request is its id: answers may come in any order.
static void ask(struct gen *gen, uint32_t slot)
{
	char head[128];

	put(gen, head,
		(size_t)snprintf(head, sizeof(head),
			"{\"cmd\":\"channel.add\",\"id\":%u,"
			"\"type\":2,\"channel\":\"g%" PRIu64 "\",\"uids\":[",
			slot, gen->next % gen->channels));
	for (uint32_t i = 0; i < gen->uids; i++)
		put_uid(gen, i);
	put(gen, "]}\n", 3);
	gen->next++;
	gen->start_ns[slot] = now();
}

static void flush(struct gen *gen)
{
	size_t sent = 0;

	while (sent < gen->out_len) {
		const ssize_t rc = write(gen->fd, gen->out + sent, gen->out_len - sent);

		if (rc < 0 && errno != EINTR)
			fail("write");
		sent += rc > 0 ? (size_t)rc : 0;
	}
	gen->out_len = 0;
}

static void answer(struct gen *gen, const char *line)
{
	const char *id = strstr(line, "\"id\":");
	const uint64_t at = now();
	uint32_t slot;

	if (id == NULL)
		fail("an answer without id");
	slot = (uint32_t)strtoul(id + 5, NULL, 10);
	if (slot >= gen->in_flight)
		fail("an answer with a wrong id");
	gen->bad += strstr(line, "\"ok\":true") == NULL;
	gen->answered++;
	if (gen->first_ns == 0)
		gen->first_ns = at;
	if (gen->begin_ns == 0 && at - gen->first_ns >= WARM_NS) {
		gen->begin_ns = at;
		gen->begin_answered = gen->answered;
	} else if (gen->begin_ns != 0 && gen->samples < SAMPLES_MAX) {
		gen->sample_us[gen->samples++] = (uint32_t)((at - gen->start_ns[slot]) / 1000);
	}
	ask(gen, slot);
}

static void take(struct gen *gen)
{
	const ssize_t rc = read(gen->fd, gen->in + gen->in_len, sizeof(gen->in) - gen->in_len);
	char *line = gen->in, *end;

	if (rc <= 0)
		fail("read");
	gen->in_len += (size_t)rc;
	while ((end = memchr(line, '\n', gen->in_len - (size_t)(line - gen->in))) != NULL) {
		*end = '\0';
		answer(gen, line);
		line = end + 1;
	}
	gen->in_len -= (size_t)(line - gen->in);
	memmove(gen->in, line, gen->in_len);
}

static int by_value(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void tell(struct gen *gen)
{
	const double seconds = (double)(now() - gen->begin_ns) / 1e9;
	const uint64_t answered = gen->answered - gen->begin_answered;

	qsort(gen->sample_us, gen->samples, sizeof(*gen->sample_us), by_value);
	printf("{\"answered\": %" PRIu64 ", \"bad\": %" PRIu64
	       ", \"seconds\": %.3f, \"rate\": %.1f, \"p50_us\": %u, \"p99_us\": %u, \"max_us\": "
	       "%u}\n",
		answered, gen->bad, seconds, (double)answered / seconds,
		gen->sample_us[gen->samples / 2], gen->sample_us[(uint64_t)gen->samples * 99 / 100],
		gen->sample_us[gen->samples - 1]);
}

int main(int argc, char **argv)
{
	static struct gen gen;
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (argc != 7 || strlen(argv[1]) >= sizeof(address.sun_path)) {
		fputs("usage: raft_gen META_SOCK PREFIX IN_FLIGHT UIDS UID_BYTES SECONDS\n",
			stderr);
		return 64;
	}
	strcpy(address.sun_path, argv[1]);
	gen.prefix = argv[2];
	gen.in_flight = (uint32_t)strtoul(argv[3], NULL, 10);
	gen.uids = (uint32_t)strtoul(argv[4], NULL, 10);
	gen.uid_bytes = (uint32_t)strtoul(argv[5], NULL, 10);
	gen.seconds = strtoul(argv[6], NULL, 10);
	gen.out = malloc(OUT_BYTES);
	gen.channels = 64;
	gen.sample_us = malloc(SAMPLES_MAX * sizeof(*gen.sample_us));
	if (gen.in_flight == 0 || gen.in_flight > IN_FLIGHT_MAX || gen.uid_bytes > 255 ||
		gen.uids == 0 || gen.uids > 1024 || gen.out == NULL || strlen(gen.prefix) > 32 ||
		gen.seconds == 0 || gen.sample_us == NULL) {
		fputs("raft_gen: argument out of range\n", stderr);
		return 64;
	}
	gen.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (gen.fd < 0 || connect(gen.fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		fail(argv[1]);
	for (uint32_t i = 0; i < gen.in_flight; i++)
		ask(&gen, i);
	while (gen.begin_ns == 0 || now() - gen.begin_ns < gen.seconds * UINT64_C(1000000000)) {
		flush(&gen);
		take(&gen);
	}
	if (gen.samples == 0)
		fail("nothing was answered");
	tell(&gen);
	return 0;
}
