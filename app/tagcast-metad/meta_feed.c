/* SPDX-License-Identifier: BSD-3-Clause */
// Owns the listener, the subscribers and their buffers. Run by the loop of the meta process.
#include "meta_feed.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base_log.h"
#include "base_time.h"
#include "ctl.h"
#include "store_feed.h"

#define OUT_BYTES (STORE_FEED_FRAME_MAX + 64u * 1024u)
#define IN_BYTES 4096u
#define DELTAS_PER_LOOK 64u  // between two looks at the clock
#define READS_PER_CALL 16u  // of one subscriber: it says APPLIED now and then, no more
#define SAY_WAIT_NS NS_PER_S
#define HELLO_WAIT_NS (5 * NS_PER_S)
#define CLOSE_WAIT_NS (5 * NS_PER_S)  // for a LAGGED to be read
#define LAGGED_ROOM 16u

struct subscriber {
	int fd;
	uint32_t armed;
	bool hello;  // HELLO came, WELCOME was queued
	bool own;
	bool live;  // has caught up once: from here its backlog counts
	bool closing;
	bool held;  // HELLO came while there is no store to follow
	bool dead;
	uint64_t node;
	uint64_t position;  // last commit in the buffer or sent
	uint64_t applied;
	uint64_t taken_bytes;  // once live: state->delta_bytes as far as its position
	uint64_t deadline_ns;  // held: when WAIT is said again
	struct store_feed_frame asked;  // held: its HELLO
	uint32_t in_len, out_len, out_off;
	uint8_t in[IN_BYTES];
	uint8_t out[OUT_BYTES];
};

struct meta_feed {
	int listen_fd, epoll_fd;
	uint64_t node_id, backlog_bytes;
	struct meta_state *state;
	bool ready;  // there is a store to follow
	uint32_t turn;  // slot that is first in the next pump
	struct subscriber *subscriber[META_SUBSCRIBERS_MAX];
	struct meta_feed_info info;
	char path[128];
};

// --- sending ------------------------------------------------------------------------------------------------

static void sub_write(struct subscriber *sub)
{
	while (sub->out_off < sub->out_len && !sub->dead) {
		const ssize_t put = send(sub->fd, sub->out + sub->out_off,
			sub->out_len - sub->out_off, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (put < 0) {
			if (errno == EINTR)
				continue;
			sub->dead = errno != EAGAIN;
			break;
		}
		sub->out_off += (uint32_t)put;
	}
	if (sub->out_off == sub->out_len) {
		sub->out_off = sub->out_len = 0;
	} else if (sub->out_off > OUT_BYTES / 2) {
		memmove(sub->out, sub->out + sub->out_off, sub->out_len - sub->out_off);
		sub->out_len -= sub->out_off;
		sub->out_off = 0;
	}
}

static void sub_arm(struct meta_feed *feed, struct subscriber *sub)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = sub};

	if (sub->out_off < sub->out_len)
		event.events |= EPOLLOUT;
	if (sub->dead || event.events == sub->armed)
		return;
	sub->armed = event.events;
	if (epoll_ctl(feed->epoll_fd, EPOLL_CTL_MOD, sub->fd, &event) != 0)
		sub->dead = true;
}

// Says LAGGED behind what is in the buffer, then closes when it was read or its time is over.
static void sub_lagged(
	struct meta_feed *feed, struct subscriber *sub, const char *why, uint64_t now_ns)
{
	const struct store_feed_frame lagged = {.type = STORE_FEED_LAGGED};
	const int bytes =
		store_feed_encode(&lagged, sub->out + sub->out_len, OUT_BYTES - sub->out_len);

	LOG(LOG_WARN, "feed", "FEED_LAGGED",
		"subscriber of node %llu is given up at commit %llu: %s",
		(unsigned long long)sub->node, (unsigned long long)sub->position, why);
	feed->info.lagged++;
	if (bytes > 0)
		sub->out_len += (uint32_t)bytes;
	sub->closing = true;
	sub->deadline_ns = now_ns + CLOSE_WAIT_NS;
}

// Copies deltas into the buffer while there is room and time. Returns: 0 or -errno.
static int sub_fill(struct meta_feed *feed, struct subscriber *sub, struct store_tx *tx,
	uint64_t now_ns, uint64_t until_ns)
{
	for (uint32_t i = 1; i % DELTAS_PER_LOOK != 0 || meta_cpu_ns() < until_ns; i++) {
		struct store_feed_frame frame = {.type = STORE_FEED_DELTA};
		const int rc = store_read_delta(tx, sub->position, &frame.delta);
		int bytes;

		if (rc == -ENOENT) {
			sub->live = true;
			sub->taken_bytes = feed->state->delta_bytes;
			return 0;
		}
		if (rc == -ESTALE) {
			sub_lagged(feed, sub, "the journal no longer reaches it", now_ns);
			return 0;
		}
		if (rc != 0)
			return rc;
		bytes = store_feed_encode(
			&frame, sub->out + sub->out_len, OUT_BYTES - LAGGED_ROOM - sub->out_len);
		if (bytes < 0)
			return 0;  // full: goes on when the socket took some
		sub->out_len += (uint32_t)bytes;
		sub->position = frame.delta.commit;
		sub->taken_bytes += meta_state_delta_bytes(&frame.delta);
		feed->info.deltas++;
	}
	return 0;
}

// Returns: 1 when there is more to send at once, 0, -errno.
static int pump_one(
	struct meta_feed *feed, struct subscriber *sub, uint64_t now_ns, uint64_t until_ns)
{
	struct store_tx tx;
	int rc;

	if (!sub->hello || sub->closing || sub->dead)
		return 0;
	if (sub->position < feed->state->position.commit || !sub->live) {
		rc = meta_state_read(feed->state, &tx);
		if (rc != 0)
			return rc;
		rc = sub_fill(feed, sub, &tx, now_ns, until_ns);
		meta_state_read_end(feed->state, &tx);
		if (rc < 0)
			return rc;
	}
	sub_write(sub);
	if (sub->closing || sub->position >= feed->state->position.commit)
		return 0;
	if (sub->live && feed->state->delta_bytes - sub->taken_bytes > feed->backlog_bytes) {
		sub_lagged(feed, sub, "it does not read fast enough", now_ns);
		return 0;
	}
	// The socket took everything: there is room for the rest. Else EPOLLOUT goes on.
	return sub->out_len == 0;
}

int meta_feed_pump(struct meta_feed *feed, uint64_t now_ns)
{
	const uint64_t until_ns = meta_cpu_ns() + META_PIECE_CPU_NS;
	const uint32_t first = feed->turn++;
	bool more = false;

	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++) {
		struct subscriber *sub = feed->subscriber[(first + i) % META_SUBSCRIBERS_MAX];
		int rc;

		if (sub == NULL)
			continue;
		// Out of time: the next pump begins with it.
		if (meta_cpu_ns() >= until_ns) {
			feed->turn = first + i;
			return true;
		}
		rc = pump_one(feed, sub, now_ns, until_ns);
		if (rc < 0)
			return rc;
		more = more || rc > 0;
		sub_arm(feed, sub);
	}
	return more;
}

// --- receiving ----------------------------------------------------------------------------------------------

static int welcome(
	struct meta_feed *feed, struct subscriber *sub, const struct store_feed_frame *hello)
{
	const struct store_position *position = &feed->state->position;
	struct store_feed_frame frame = {
		.type = STORE_FEED_WELCOME,
		.generation = position->generation,
		.commit = hello->commit,
	};
	struct store_delta delta;
	struct store_tx tx;
	int rc = meta_state_read(feed->state, &tx);

	if (rc != 0)
		return rc;
	rc = store_read_delta(&tx, hello->commit, &delta);
	meta_state_read_end(feed->state, &tx);
	if (rc != 0 && rc != -ENOENT && rc != -ESTALE)
		return rc;
	if (hello->generation != position->generation || hello->commit > position->commit ||
		rc == -ESTALE) {
		frame.resync = 1;
		frame.commit = position->commit;
		feed->info.resyncs++;
	}
	sub->hello = true;
	sub->node = hello->node;
	sub->own = hello->node == feed->node_id;
	sub->position = frame.commit;
	sub->deadline_ns = UINT64_MAX;
	rc = store_feed_encode(&frame, sub->out + sub->out_len, OUT_BYTES - sub->out_len);
	if (rc < 0)
		return rc;
	sub->out_len += (uint32_t)rc;
	LOG(LOG_INFO, "feed", "FEED_SUBSCRIBE", "subscriber of node %llu from commit %llu%s",
		(unsigned long long)sub->node, (unsigned long long)frame.commit,
		frame.resync ? ", reads the whole store" : "");
	return 0;
}

// Until there is a store to follow: WAIT now and each second, WELCOME later.
static void hold(struct subscriber *sub, const struct store_feed_frame *hello)
{
	sub->held = true;
	sub->asked = *hello;
	sub->deadline_ns = 0;
}

static void say_wait(struct subscriber *sub, uint64_t now_ns)
{
	const struct store_feed_frame wait = {.type = STORE_FEED_WAIT};
	int bytes;

	sub->deadline_ns = now_ns + SAY_WAIT_NS;
	if (sub->out_len > 0)
		return;  // it does not even read these
	bytes = store_feed_encode(&wait, sub->out, OUT_BYTES);
	if (bytes > 0)
		sub->out_len = (uint32_t)bytes;
	sub_write(sub);
}

void meta_feed_ready(struct meta_feed *feed)
{
	feed->ready = true;
	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++) {
		struct subscriber *sub = feed->subscriber[i];

		if (sub == NULL || !sub->held)
			continue;
		sub->held = false;
		if (welcome(feed, sub, &sub->asked) != 0)
			sub->dead = true;
	}
}

void meta_feed_generation(struct meta_feed *feed, uint64_t now_ns)
{
	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++) {
		struct subscriber *sub = feed->subscriber[i];

		if (sub != NULL && sub->hello && !sub->closing)
			sub_lagged(feed, sub, "another store is in use", now_ns);
	}
}

// Returns: false when the subscriber breaks the rules.
static bool take_frame(
	struct meta_feed *feed, struct subscriber *sub, const struct store_feed_frame *frame)
{
	if (frame->type == STORE_FEED_HELLO && !sub->hello && !sub->held &&
		frame->proto == STORE_FEED_PROTO) {
		if (!feed->ready)
			hold(sub, frame);
		else if (welcome(feed, sub, frame) != 0)
			sub->dead = true;
		return true;
	}
	if (frame->type == STORE_FEED_APPLIED && sub->hello &&
		frame->commit <= feed->state->position.commit) {
		if (frame->commit > sub->applied)
			sub->applied = frame->commit;
		return true;
	}
	return false;
}

static void sub_read(struct meta_feed *feed, struct subscriber *sub)
{
	for (uint32_t reads = 0; reads < READS_PER_CALL; reads++) {
		const ssize_t got =
			recv(sub->fd, sub->in + sub->in_len, IN_BYTES - sub->in_len, MSG_DONTWAIT);
		uint32_t at = 0;
		int used = 0;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			sub->dead = true;
			return;
		}
		sub->in_len += (uint32_t)got;
		while (!sub->dead) {
			struct store_feed_frame frame;

			used = store_feed_decode(sub->in + at, sub->in_len - at, &frame);
			if (used <= 0)
				break;
			at += (uint32_t)used;
			if (!take_frame(feed, sub, &frame)) {
				used = -EPROTO;
				break;
			}
		}
		sub->in_len -= at;
		memmove(sub->in, sub->in + at, sub->in_len);
		// A frame that never fits is a delta, which goes the other way only.
		if (used < 0 || sub->in_len == IN_BYTES) {
			LOG(LOG_WARN, "feed", "FEED_PROTOCOL",
				"subscriber sent what is no frame of it");
			feed->info.protocol_errors++;
			sub->dead = true;
		}
		if (sub->dead)
			return;
	}
}

// --- connections --------------------------------------------------------------------------------------------

static void sub_free(struct meta_feed *feed, uint32_t slot)
{
	close(feed->subscriber[slot]->fd);
	free(feed->subscriber[slot]);
	feed->subscriber[slot] = NULL;
}

static void accept_one(struct meta_feed *feed, int fd, uint64_t now_ns)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct subscriber *sub = NULL;
	uint32_t slot = 0;

	while (slot < META_SUBSCRIBERS_MAX && feed->subscriber[slot] != NULL)
		slot++;
	if (slot < META_SUBSCRIBERS_MAX)
		sub = malloc(sizeof(*sub));
	if (sub == NULL) {
		LOG(LOG_WARN, "feed", "FEED_FULL", "no room for another subscriber");
		close(fd);
		return;
	}
	memset(sub, 0, offsetof(struct subscriber, in));
	sub->fd = fd;
	sub->armed = EPOLLIN;
	sub->deadline_ns = now_ns + HELLO_WAIT_NS;
	event.data.ptr = sub;
	if (epoll_ctl(feed->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		close(fd);
		free(sub);
		return;
	}
	feed->subscriber[slot] = sub;
	feed->info.accepted++;
}

// Closes what is dead, or said its last word.
static void sweep(struct meta_feed *feed)
{
	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++) {
		struct subscriber *sub = feed->subscriber[i];

		if (sub == NULL)
			continue;
		sub_arm(feed, sub);
		if (sub->dead || (sub->closing && sub->out_len == 0))
			sub_free(feed, i);
	}
}

void meta_feed_process(struct meta_feed *feed, uint64_t now_ns)
{
	struct epoll_event events[META_SUBSCRIBERS_MAX + 1];
	const int ready = epoll_wait(feed->epoll_fd, events, META_SUBSCRIBERS_MAX + 1, 0);

	for (int i = 0; i < ready; i++) {
		struct subscriber *sub = events[i].data.ptr;

		if (sub == NULL) {
			const int fd =
				accept4(feed->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

			if (fd >= 0)
				accept_one(feed, fd, now_ns);
			continue;
		}
		if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			sub_read(feed, sub);
		sub_write(sub);
	}
	sweep(feed);
}

uint64_t meta_feed_tick(struct meta_feed *feed, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++) {
		struct subscriber *sub = feed->subscriber[i];

		if (sub == NULL)
			continue;
		if (sub->held && now_ns >= sub->deadline_ns)
			say_wait(sub, now_ns);
		if ((!sub->hello || sub->closing) && now_ns >= sub->deadline_ns)
			sub->dead = true;
		else if ((!sub->hello || sub->closing) && sub->deadline_ns < next_ns)
			next_ns = sub->deadline_ns;
	}
	sweep(feed);
	return next_ns;
}

bool meta_feed_applied(const struct meta_feed *feed, uint64_t *applied)
{
	bool connected = false;

	*applied = 0;
	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++) {
		const struct subscriber *sub = feed->subscriber[i];

		if (sub == NULL || !sub->hello || !sub->own || sub->closing || sub->dead)
			continue;
		if (!connected || sub->applied < *applied)
			*applied = sub->applied;
		connected = true;
	}
	return connected;
}

void meta_feed_info(const struct meta_feed *feed, struct meta_feed_info *info)
{
	*info = feed->info;
	info->subscribers = info->own = 0;
	info->least_sent = info->least_applied = 0;
	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++) {
		const struct subscriber *sub = feed->subscriber[i];

		if (sub == NULL || !sub->hello)
			continue;
		if (info->subscribers == 0 || sub->position < info->least_sent)
			info->least_sent = sub->position;
		if (info->subscribers == 0 || sub->applied < info->least_applied)
			info->least_applied = sub->applied;
		info->subscribers++;
		info->own += sub->own;
	}
}

int meta_feed_open(const char *path, uint64_t node_id, uint64_t backlog_bytes,
	struct meta_state *state, struct meta_feed **out)
{
	struct meta_feed *feed = calloc(1, sizeof(*feed));
	struct epoll_event event = {.events = EPOLLIN};
	int rc = 0;

	if (feed == NULL)
		return -ENOMEM;
	feed->node_id = node_id;
	feed->backlog_bytes = backlog_bytes;
	feed->state = state;
	feed->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	feed->listen_fd = ctl_listen(path);
	if (feed->listen_fd < 0)
		rc = feed->listen_fd;
	else if (feed->epoll_fd < 0 ||
		 epoll_ctl(feed->epoll_fd, EPOLL_CTL_ADD, feed->listen_fd, &event) != 0)
		rc = -errno;
	if (feed->listen_fd >= 0)
		strcpy(feed->path, path);
	if (rc != 0) {
		meta_feed_close(feed);
		return rc;
	}
	*out = feed;
	return 0;
}

void meta_feed_close(struct meta_feed *feed)
{
	if (feed == NULL)
		return;
	for (uint32_t i = 0; i < META_SUBSCRIBERS_MAX; i++)
		if (feed->subscriber[i] != NULL)
			sub_free(feed, i);
	if (feed->listen_fd >= 0) {
		unlink(feed->path);
		close(feed->listen_fd);
	}
	if (feed->epoll_fd >= 0)
		close(feed->epoll_fd);
	free(feed);
}

int meta_feed_fd(const struct meta_feed *feed)
{
	return feed->epoll_fd;
}
