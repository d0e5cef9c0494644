/* SPDX-License-Identifier: BSD-3-Clause */
// The shell of a client: one UDP socket, one timer, one epoll descriptor over both, and the clock. All
// decisions are in client_core. Runs on the caller's thread, never blocks.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base_limits.h"
#include "base_time.h"
#include "client_core.h"
#include "tagcast.h"
#include "wire.h"

#define BATCH 64u
#define RX_BATCHES_MAX 16u  // of one process call, so that the caller's loop gets its turn
#define SOCKET_BUFFER_BYTES (8 * 1024 * 1024)

struct batch {
	struct mmsghdr msg[BATCH];
	struct iovec iov[BATCH];
	struct sockaddr_in addr[BATCH];
	uint8_t *bytes;  // BATCH datagrams of MTU_MAX
	uint32_t count;
};

struct tagcast {
	struct client_core *core;
	int socket, timer, epoll;
	uint64_t armed_ns;  // when the timer fires, UINT64_MAX: not armed
	bool inside;  // in a process call: sends are batched until its end
	struct batch rx, tx;
};

static const struct {
	int status;
	const char *name;
} names[] = {
	{TAGCAST_OK, "ok"},
	{TAGCAST_RETRYABLE, "retryable"},
	{TAGCAST_NOT_LEADER, "not_leader"},
	{TAGCAST_BUSY, "busy"},
	{TAGCAST_TOO_LARGE, "too_large"},
	{TAGCAST_UNKNOWN_CHANNEL, "unknown_channel"},
	{TAGCAST_BAD_REQUEST, "bad_request"},
	{TAGCAST_EXPIRED, "expired"},
	{TAGCAST_LIMIT, "limit"},
	{TAGCAST_INCOMPLETE, "incomplete"},
	{TAGCAST_TIMEOUT, "timeout"},
};
_Static_assert((int)TAGCAST_OK == (int)WIRE_OK && (int)TAGCAST_RETRYABLE == (int)WIRE_RETRYABLE &&
		       (int)TAGCAST_NOT_LEADER == (int)WIRE_NOT_LEADER &&
		       (int)TAGCAST_BUSY == (int)WIRE_BUSY &&
		       (int)TAGCAST_TOO_LARGE == (int)WIRE_TOO_LARGE &&
		       (int)TAGCAST_UNKNOWN_CHANNEL == (int)WIRE_UNKNOWN_CHANNEL &&
		       (int)TAGCAST_BAD_REQUEST == (int)WIRE_BAD_REQUEST &&
		       (int)TAGCAST_EXPIRED == (int)WIRE_EXPIRED &&
		       (int)TAGCAST_LIMIT == (int)WIRE_LIMIT &&
		       (int)TAGCAST_INCOMPLETE == (int)WIRE_INCOMPLETE,
	"the public statuses are those of the wire");
_Static_assert((int)TAGCAST_ACK_NONE == (int)WIRE_ACK_NONE &&
		       (int)TAGCAST_ACK_GATEWAY == (int)WIRE_ACK_GATEWAY &&
		       (int)TAGCAST_ACK_CLIENT == (int)WIRE_ACK_CLIENT,
	"the public ack classes are those of the wire");

const char *tagcast_status_name(int status)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].status == status)
			return names[i].name;
	}
	return "unknown";
}

// --- batches ------------------------------------------------------------------------------------------

static int batch_init(struct batch *b)
{
	b->bytes = malloc((size_t)BATCH * MTU_MAX);
	if (b->bytes == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < BATCH; i++) {
		b->iov[i] = (struct iovec){
			.iov_base = b->bytes + (size_t)i * MTU_MAX, .iov_len = MTU_MAX};
		b->msg[i].msg_hdr = (struct msghdr){
			.msg_name = &b->addr[i],
			.msg_namelen = sizeof(b->addr[i]),
			.msg_iov = &b->iov[i],
			.msg_iovlen = 1,
		};
	}
	return 0;
}

// A datagram the system does not take now is dropped: all that matters is sent again.
static void tx_flush(struct tagcast *c)
{
	uint32_t sent = 0;

	while (sent < c->tx.count) {
		const int n =
			sendmmsg(c->socket, &c->tx.msg[sent], c->tx.count - sent, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		sent += n > 0 ? (uint32_t)n : 1;
	}
	c->tx.count = 0;
}

static void on_send(void *ctx, struct net_addr to, const uint8_t *bytes, uint16_t len)
{
	struct tagcast *c = ctx;
	const uint32_t i = c->tx.count;

	memcpy(c->tx.iov[i].iov_base, bytes, len);
	c->tx.iov[i].iov_len = len;
	c->tx.addr[i] = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(to.port),
		.sin_addr.s_addr = htonl(to.ip),
	};
	c->tx.count++;
	if (c->tx.count == BATCH)
		tx_flush(c);
}

// Returns: datagrams handled.
static int rx_drain(struct tagcast *c)
{
	int total = 0;

	for (uint32_t round = 0; round < RX_BATCHES_MAX; round++) {
		uint64_t now_ns;
		int n;

		for (uint32_t i = 0; i < BATCH; i++)
			c->rx.msg[i].msg_hdr.msg_namelen = sizeof(c->rx.addr[i]);
		n = recvmmsg(c->socket, c->rx.msg, BATCH, MSG_DONTWAIT, NULL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return total != 0 || errno == EAGAIN || errno == ECONNREFUSED ? total
										      : -errno;
		now_ns = time_now_ns();
		for (int i = 0; i < n; i++) {
			const struct net_addr from = {
				.ip = ntohl(c->rx.addr[i].sin_addr.s_addr),
				.port = ntohs(c->rx.addr[i].sin_port),
			};

			client_core_rx(
				c->core, c->rx.iov[i].iov_base, c->rx.msg[i].msg_len, from, now_ns);
		}
		total += n;
		if ((uint32_t)n < BATCH)
			break;
	}
	return total;
}

// --- timer --------------------------------------------------------------------------------------------

static void timer_arm(struct tagcast *c)
{
	const uint64_t next_ns = client_core_next_ns(c->core);
	// 0 would disarm; a time that has passed fires at once.
	const uint64_t at_ns = next_ns == 0 ? 1 : next_ns;
	struct itimerspec spec = {0};

	if (at_ns == c->armed_ns)
		return;
	if (at_ns != UINT64_MAX) {
		spec.it_value.tv_sec = (time_t)(at_ns / NS_PER_S);
		spec.it_value.tv_nsec = (long)(at_ns % NS_PER_S);
	}
	if (timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
		c->armed_ns = at_ns;
}

// After a call from outside a process call: what it sent goes out, what it made due is waited for.
static void settle(struct tagcast *c)
{
	if (c->inside)
		return;
	tx_flush(c);
	timer_arm(c);
}

int tagcast_set_keys(struct tagcast *client, uint8_t key_id, const uint8_t *key, uint8_t other_id,
	const uint8_t *other)
{
	struct wire_keys keys = {.count = 1, .id = {key_id, other_id}};

	if (key == NULL)
		return -EINVAL;
	memcpy(keys.key[0], key, WIRE_KEY_BYTES);
	if (other != NULL) {
		keys.count = 2;
		memcpy(keys.key[1], other, WIRE_KEY_BYTES);
	}
	return client_core_set_keys(client->core, &keys);
}

int tagcast_fd(const struct tagcast *client)
{
	return client->epoll;
}

int tagcast_process(struct tagcast *client)
{
	uint64_t fired;
	int events, rc;

	client->inside = true;
	rc = (int)read(client->timer, &fired, sizeof(fired));
	events = rc > 0 ? 1 : 0;
	if (rc > 0)
		client->armed_ns = UINT64_MAX;
	rc = rx_drain(client);
	client_core_poll(client->core, time_now_ns());
	client->inside = false;
	settle(client);
	return rc < 0 ? rc : events + rc;
}

// --- open and close -----------------------------------------------------------------------------------

static int address(const char *text, uint32_t *ip)
{
	struct in_addr addr;

	if (text == NULL || inet_pton(AF_INET, text, &addr) != 1)
		return -EINVAL;
	*ip = ntohl(addr.s_addr);
	return 0;
}

static int core_config(const struct tagcast_config *config, struct client_core_config *out)
{
	if (address(config->node_ip, &out->node.ip) != 0 || config->node_port == 0 ||
		(config->gateway && config->client_id == 0))
		return -EINVAL;
	out->node.port = config->node_port;
	out->client_id = config->client_id;
	while (out->client_id == 0)
		wire_random(&out->client_id, sizeof(out->client_id));
	// Below 2^63, so that counting up from here never wraps.
	while (out->boot == 0) {
		wire_random(&out->boot, sizeof(out->boot));
		out->boot >>= 1;
	}
	wire_random(&out->seed, sizeof(out->seed));
	out->gateway = config->gateway != 0;
	out->mtu = config->mtu != 0 ? config->mtu : 1500;
	out->window = config->window_messages != 0 ? config->window_messages : 262144;
	out->window_ns = (config->window_ms != 0 ? config->window_ms : 60000) * NS_PER_MS;
	out->publish_max = config->publish_inflight_max != 0 ? config->publish_inflight_max : 1024;
	out->receipts = out->window;
	out->frames = 64;
	if (config->key != NULL) {
		out->keys.count = 1;
		out->keys.id[0] = config->key_id;
		memcpy(out->keys.key[0], config->key, WIRE_KEY_BYTES);
	}
	return 0;
}

static void buffer_size(int fd, int force, int option, int bytes)
{
	// The forced form needs privilege and has no ceiling; the other takes what the system allows.
	if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof(bytes)) != 0)
		(void)setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof(bytes));
}

static int socket_open(struct tagcast *c, const struct tagcast_config *config)
{
	const int bytes =
		config->socket_buffer_bytes > 0 ? config->socket_buffer_bytes : SOCKET_BUFFER_BYTES;
	const int whole = IP_PMTUDISC_DO;
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(config->bind_port)};
	uint32_t ip = 0;

	if (config->bind_ip != NULL && address(config->bind_ip, &ip) != 0)
		return -EINVAL;
	addr.sin_addr.s_addr = htonl(ip);
	c->socket = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->socket < 0)
		return -errno;
	buffer_size(c->socket, SO_RCVBUFFORCE, SO_RCVBUF, bytes);
	buffer_size(c->socket, SO_SNDBUFFORCE, SO_SNDBUF, bytes);
	(void)setsockopt(c->socket, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole));
	if (bind(c->socket, (const struct sockaddr *)&addr, sizeof(addr)) != 0)
		return -errno;
	return 0;
}

static int watch(const struct tagcast *c, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int descriptors_open(struct tagcast *c, const struct tagcast_config *config)
{
	int rc = socket_open(c, config);

	if (rc != 0)
		return rc;
	c->timer = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (c->timer < 0)
		return -errno;
	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (c->epoll < 0)
		return -errno;
	rc = watch(c, c->socket);
	return rc != 0 ? rc : watch(c, c->timer);
}

static void release(struct tagcast *c)
{
	client_core_destroy(c->core);
	if (c->epoll >= 0)
		close(c->epoll);
	if (c->timer >= 0)
		close(c->timer);
	if (c->socket >= 0)
		close(c->socket);
	free(c->rx.bytes);
	free(c->tx.bytes);
	free(c);
}

int tagcast_open(const struct tagcast_config *config, const struct tagcast_callbacks *callbacks,
	struct tagcast **client)
{
	struct client_core_io io = {.send = on_send};
	struct client_core_config cc = {0};
	struct tagcast *c;
	int rc;

	if (config == NULL || callbacks == NULL || client == NULL)
		return -EINVAL;
	rc = wire_auth_init();
	if (rc == 0)
		rc = core_config(config, &cc);
	if (rc != 0)
		return rc;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	c->socket = c->timer = c->epoll = -1;
	c->armed_ns = UINT64_MAX;
	io.ctx = c;
	rc = batch_init(&c->rx);
	if (rc == 0)
		rc = batch_init(&c->tx);
	if (rc == 0)
		rc = client_core_create(&cc, &io, callbacks, time_now_ns(), &c->core);
	if (rc == 0)
		rc = descriptors_open(c, config);
	if (rc != 0) {
		release(c);
		return rc;
	}
	client_core_poll(c->core, time_now_ns());
	settle(c);
	*client = c;
	return 0;
}

void tagcast_close(struct tagcast *client)
{
	if (client == NULL)
		return;
	client_core_bye(client->core);
	tx_flush(client);
	release(client);
}

// --- the core's calls ---------------------------------------------------------------------------------

int tagcast_publish(
	struct tagcast *client, const struct tagcast_publish *publish, uint64_t *request)
{
	const int rc = client_core_publish(client->core, publish, time_now_ns(), request);

	settle(client);
	return rc;
}

uint32_t tagcast_publish_pending(const struct tagcast *client)
{
	return client_core_publish_pending(client->core);
}

int tagcast_session_open(
	struct tagcast *client, struct tagcast_id uid, void *user, uint32_t *session)
{
	const int rc = client_core_session_open(client->core, uid, user, session);

	settle(client);
	return rc;
}

int tagcast_session_close(struct tagcast *client, uint32_t session)
{
	const int rc = client_core_session_close(client->core, session);

	settle(client);
	return rc;
}

int tagcast_receipt(struct tagcast *client, uint32_t session, struct tagcast_id channel,
	unsigned channel_type, uint64_t message_id)
{
	const int rc =
		client_core_receipt(client->core, session, channel, channel_type, message_id);

	settle(client);
	return rc;
}

uint32_t tagcast_announce_pending(const struct tagcast *client)
{
	return client_core_announce_pending(client->core);
}

void tagcast_stats(const struct tagcast *client, struct tagcast_stats *stats)
{
	client_core_stats(client->core, stats);
}
