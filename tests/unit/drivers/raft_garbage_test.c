/* SPDX-License-Identifier: BSD-3-Clause */
// What strangers may send to the port of a group that has a key: nothing of it reaches the library, no
// node ends and no term moves. And what a holder of the key may send that is not well formed.
#include "unit.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base_time.h"
#include "raft_nodes.h"
#include "raft_side.h"
#include "raft_transport.h"

#define LARGE (64u * 1024u)

static struct nodes g;
static uint64_t seed, term;
static uint32_t half_open;  // closed by the test before the node did

static int setup(void **state)
{
	seed = 11;
	nodes_open(&g, true);
	nodes_form(&g, 2, 2);
	node_wait(&g, 2, "ready", 1);
	term = node_info(&g, 1, "term");
	return 0;
}

static int teardown(void **state)
{
	nodes_close(&g);
	return 0;
}

// Both nodes run, work, and no term came from outside. (An election of their own on a busy machine is
// none of that.)
static void expect_unshaken(void)
{
	for (uint64_t id = 1; id <= 2; id++)
		assert_in_range(node_info(&g, id, "term"), term, term + 100);
	node_propose_until_done(&g, 2, "still here");
}

static int call(void)
{
	struct sockaddr_in address;
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(net_parse(g.node[1].address, &address));
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

// Waits until the node closes. Returns: bytes it answered with before.
static uint32_t await_close(int fd)
{
	uint32_t got = 0;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		uint8_t bytes[256];
		ssize_t n;

		if (poll(&p, 1, NODES_WAIT_MS) != 1)
			fail_msg("the node holds the connection");
		n = recv(fd, bytes, sizeof(bytes), 0);
		if (n <= 0)
			break;
		got += (uint32_t)n;
	}
	close(fd);
	return got;
}

static void send_all(int fd, const void *bytes, size_t len)
{
	// The node may close in the middle.
	const ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);

	(void)sent;
}

// A message as the library itself writes it.
struct words {
	uint64_t at[512];
	uint32_t count;
};

static void add(struct words *w, uint64_t word)
{
	w->at[w->count++] = word;
}

// Its own handshake: protocol, id, length of the address, address.
static void library_hello(struct words *w, uint64_t id, uint64_t length)
{
	char address[16] = "127.0.0.1:9";

	w->count = 0;
	add(w, 1);
	add(w, id);
	add(w, length);
	memcpy(&w->at[w->count], address, sizeof(address));
	w->count += 2;
}

static void give(const struct words *w)
{
	const int fd = call();

	send_all(fd, w->at, w->count * 8);
	if (++half_open % 2 == 0) {
		close(fd);
		return;
	}
	// Nobody who has not proved itself hears more than it said.
	shutdown(fd, SHUT_WR);
	assert_true(await_close(fd) <= w->count * 8);
}

static void words_of_the_library_from_strangers_reach_nobody(void **state)
{
	const uint64_t extremes[] = {0, 1, 8, 0x7fffffff, 0xffffffff, UINT64_C(1) << 40,
		UINT64_C(1) << 60, UINT64_C(1) << 63, UINT64_MAX};
	struct words w;

	for (uint32_t i = 0; i < sizeof(extremes) / sizeof(extremes[0]); i++) {
		const uint64_t x = extremes[i];

		// The address' length.
		library_hello(&w, 2, x);
		give(&w);
		// The header's length of any message.
		for (uint64_t type = 0; type < 8; type++) {
			library_hello(&w, 2, 16);
			add(&w, type);
			add(&w, x);
			give(&w);
		}
		// A vote asked for in a term far away.
		library_hello(&w, 2, 16);
		add(&w, 3);
		add(&w, 40);
		for (int k = 0; k < 5; k++)
			add(&w, k == 0 || k == 2 ? x : 2);
		give(&w);
		// Entries: their number, and the length of the first.
		library_hello(&w, 2, 16);
		add(&w, 1);
		add(&w, 56);
		for (int k = 0; k < 4; k++)
			add(&w, term);
		add(&w, x);
		add(&w, 1);
		add(&w, x);
		give(&w);
		// A snapshot: lengths of its configuration and of its data.
		library_hello(&w, 2, 16);
		add(&w, 5);
		add(&w, 64);
		for (int k = 0; k < 4; k++)
			add(&w, term);
		add(&w, x);
		add(&w, x);
		give(&w);
		// Leadership, now.
		library_hello(&w, 1, 16);
		add(&w, 6);
		add(&w, 24);
		for (int k = 0; k < 3; k++)
			add(&w, x);
		give(&w);
	}
	expect_unshaken();
}

static void other_protocols_and_noise_get_no_answer(void **state)
{
	static uint8_t noise[LARGE];
	const struct {
		const void *bytes;
		uint32_t len;
	} texts[] = {
		{"", 0},
		{"T", 1},
		{"TGRH", 4},
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11},
		{"SSH-2.0-OpenSSH_9.2\r\n", 21},
		{"\r\n\r\n", 4},
	};

	for (uint32_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const int fd = call();

		send_all(fd, texts[i].bytes, texts[i].len);
		shutdown(fd, SHUT_WR);
		assert_int_equal(await_close(fd), 0);
	}
	for (int fill = 0; fill < 3; fill++) {
		const int fd = call();

		memset(noise, fill == 0 ? 0 : 0xff, sizeof(noise));
		for (uint32_t i = 0; fill == 2 && i < LARGE; i++)
			noise[i] = (uint8_t)(unit_random(&seed) >> 33);
		send_all(fd, noise, sizeof(noise));
		assert_int_equal(await_close(fd), 0);
	}
	expect_unshaken();
}

static void random_bytes_after_a_true_head_end_there(void **state)
{
	for (int i = 0; i < 500; i++) {
		uint8_t bytes[256];
		const int fd = call();

		for (uint32_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)(unit_random(&seed) >> 33);
		memcpy(bytes, "TGRH\1\0\1\1", 8);
		bytes[7] = (uint8_t)(1 + i % 2);
		if (i % 4 == 0)
			bytes[4 + i / 4 % 4] = (uint8_t)i;
		send_all(fd, bytes, 1 + unit_random(&seed) % sizeof(bytes));
		shutdown(fd, SHUT_WR);
		assert_true(await_close(fd) <= HELLO_HEAD_BYTES);
	}
	expect_unshaken();
	assert_true(node_info(&g, 1, "refused") >= 400);
}

// Opens a proven connection of `kind` as node `id`. Returns: the socket, or -1 when it was refused.
static int prove(uint64_t id, enum hello_kind kind)
{
	struct hello_self self = {.node_id = id,
		.cluster_id = NODES_CLUSTER,
		.authenticated = true,
		.key = {NODES_KEY},
		.address = "127.0.0.1:9"};
	const uint8_t nonce[HELLO_NONCE_BYTES] = {(uint8_t)unit_random(&seed),
		(uint8_t)unit_random(&seed), (uint8_t)unit_random(&seed),
		(uint8_t)unit_random(&seed)};
	enum hello_step step = HELLO_MORE;
	struct hello_out out;
	struct hello h;
	const int fd = call();

	hello_dial(&h, &self, kind, 1, nonce, &out);
	while (step == HELLO_MORE) {
		uint8_t bytes[HELLO_BYTES_MAX];
		ssize_t n;

		send_all(fd, out.bytes, out.len);
		n = recv(fd, bytes, hello_need(&h), 0);
		if (n <= 0)
			break;
		step = hello_input(&h, bytes, (uint32_t)n, &out);
	}
	if (step == HELLO_DONE)
		return fd;
	close(fd);
	return -1;
}

static void a_holder_of_the_key_that_is_no_member_does_not_reach_the_library(void **state)
{
	assert_int_equal(prove(5, HELLO_RAFT), -1);
	// Nor one that takes a member's id from another address.
	assert_int_equal(prove(2, HELLO_RAFT), -1);
	expect_unshaken();
}

static void malformed_frames_close_their_connection_only(void **state)
{
	const uint32_t extremes[] = {0, 1, 7, 504, 505, 262160, 262161, 0x7fffffff, UINT32_MAX};

	for (uint32_t i = 0; i < 9; i++) {
		for (uint32_t type = 0; type <= SIDE_TYPE_END; type++) {
			uint8_t bytes[64] = {0};
			const int fd = prove(5, HELLO_SIDE);

			assert_int_not_equal(fd, -1);
			memcpy(bytes, &extremes[i], 4);
			bytes[4] = (uint8_t)type;
			send_all(fd, bytes, sizeof(bytes));
			shutdown(fd, SHUT_WR);
			await_close(fd);
		}
	}
	for (int i = 0; i < 200; i++) {
		uint8_t bytes[128];
		const int fd = prove(5 + (uint64_t)i % 3, HELLO_SIDE);
		const uint32_t payload = sizeof(bytes) - SIDE_HEAD_BYTES;

		assert_int_not_equal(fd, -1);
		for (uint32_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)(unit_random(&seed) >> 33);
		memcpy(bytes, &payload, 4);
		bytes[4] = (uint8_t)(1 + i % (SIDE_TYPE_END - 1));
		memset(bytes + 5, 0, 3);
		send_all(fd, bytes, sizeof(bytes));
		shutdown(fd, SHUT_WR);
		await_close(fd);
	}
	expect_unshaken();
}

static void a_stranger_with_the_key_may_ask_to_join_and_nothing_else(void **state)
{
	const struct side_frame frames[] = {
		{.type = SIDE_PROPOSE,
			.request = 1,
			.life = 1,
			.data = (const uint8_t *)"x",
			.len = 1},
		{.type = SIDE_BARRIER, .request = 2},
		{.type = SIDE_MEMBER, .request = 3, .op = CONS_REMOVE, .id = 2},
	};
	const uint64_t entries = node_info(&g, 1, "entries");

	for (uint32_t i = 0; i < 3; i++) {
		const int fd = prove(5, HELLO_SIDE);
		uint8_t bytes[SIDE_SMALL_MAX];
		struct side_frame answer;
		ssize_t n;

		side_encode(&frames[i], bytes);
		send_all(fd, bytes, side_size(&frames[i]));
		n = recv(fd, bytes, SIDE_HEAD_BYTES, MSG_WAITALL);
		assert_int_equal(n, SIDE_HEAD_BYTES);
		n = recv(fd, bytes + SIDE_HEAD_BYTES, (size_t)side_length(bytes) - SIDE_HEAD_BYTES,
			MSG_WAITALL);
		assert_int_equal(side_decode(bytes, SIDE_HEAD_BYTES + (uint32_t)n, &answer), 0);
		assert_int_not_equal(answer.status, CONS_OK);
		close(fd);
	}
	assert_int_equal(node_info(&g, 1, "entries"), entries);
	assert_int_equal(node_info(&g, 1, "voters"), 2);
	// And for itself only.
	{
		const struct side_frame join = {
			.type = SIDE_JOIN, .life = 1, .id = 6, .address = "127.0.0.1:9"};
		const int fd = prove(5, HELLO_SIDE);
		uint8_t bytes[SIDE_SMALL_MAX];

		side_encode(&join, bytes);
		send_all(fd, bytes, side_size(&join));
		assert_int_equal(await_close(fd), 0);
	}
	expect_unshaken();
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(words_of_the_library_from_strangers_reach_nobody),
		T(other_protocols_and_noise_get_no_answer),
		T(random_bytes_after_a_true_head_end_there),
		T(a_holder_of_the_key_that_is_no_member_does_not_reach_the_library),
		T(malformed_frames_close_their_connection_only),
		T(a_stranger_with_the_key_may_ask_to_join_and_nothing_else),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
