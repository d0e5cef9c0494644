/* SPDX-License-Identifier: BSD-3-Clause */
// Connections over loopback, two ends in one loop, without the library: what a stream has when it is
// given away, who is not let in, and that nothing waits for ever.
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base_time.h"
#include "raft_transport.h"

struct end {
	struct raft_cons c;
	struct raft_uv_transport t;
	struct raft_uv_connect request;
	struct uv_stream_s *dialled, *accepted;
	uint64_t accepted_id;
	char accepted_address[CONS_ADDRESS_MAX];
	int dials_ended, status;
	bool closed;
};

static struct uv_loop_s loop;
static struct uv_timer_s ticker;
static struct end *a, *b;

static struct end *end_new(uint64_t id)
{
	struct end *e = calloc(1, sizeof(*e));
	const unsigned pid = (unsigned)getpid();

	assert_non_null(e);
	e->c.loop = &loop;
	e->c.started = true;
	e->c.params = (struct raft_cons_params){
		.loop = &loop, .node_id = id, .cluster_id = 7, .authenticated = true, .key = {9}};
	snprintf(e->c.params.address, CONS_ADDRESS_MAX, "127.%u.%u.%u:7401", 1 + (pid >> 8) % 250,
		pid & 0xff, (unsigned)id);
	raft_configuration_init(&e->c.raft.configuration);
	return e;
}

static void on_accepted(
	struct raft_uv_transport *t, raft_id id, const char *address, struct uv_stream_s *stream)
{
	struct end *e = t->data;

	assert_null(e->accepted);
	e->accepted = stream;
	e->accepted_id = id;
	snprintf(e->accepted_address, sizeof(e->accepted_address), "%s", address);
}

// As raft_uv_init and raft_start do.
static int end_open(struct end *e)
{
	assert_int_equal(raft_transport_open(&e->c, &e->t), 0);
	e->t.data = e;
	assert_int_equal(raft_peers_open(&e->c), 0);
	assert_int_equal(e->t.init(&e->t, e->c.params.node_id, e->c.params.address), 0);
	return e->t.listen(&e->t, on_accepted);
}

static void on_dialled(struct raft_uv_connect *request, struct uv_stream_s *stream, int status)
{
	struct end *e = request->data;

	e->dials_ended++;
	e->dialled = stream;
	e->status = status;
	assert_true((stream != NULL) == (status == 0));
}

static int dial(struct end *from, uint64_t id, const char *address)
{
	from->request.data = from;
	from->dials_ended = 0;
	from->dialled = NULL;
	return from->t.connect(&from->t, &from->request, id, address, on_dialled);
}

static void on_stream_closed(struct uv_handle_s *handle)
{
	raft_free(handle);
}

static void on_closed(struct raft_uv_transport *t)
{
	struct end *e = t->data;

	e->closed = true;
}

static void turn_until(const int *what, int value)
{
	const uint64_t deadline = time_now_ns() + 15 * NS_PER_S;

	while (*what != value) {
		if (time_now_ns() > deadline)
			fail_msg("nothing happened");
		uv_run(&loop, UV_RUN_ONCE);
	}
}

static void drop_streams(struct end *e)
{
	if (e->dialled != NULL)
		uv_close((struct uv_handle_s *)e->dialled, on_stream_closed);
	if (e->accepted != NULL)
		uv_close((struct uv_handle_s *)e->accepted, on_stream_closed);
	e->dialled = e->accepted = NULL;
}

static void end_free(struct end *e)
{
	drop_streams(e);
	if (e->c.peers != NULL)
		raft_peers_discard(&e->c);
	if (e->c.net != NULL && !e->closed)
		e->t.close(&e->t, on_closed);
	while (e->c.net != NULL && !e->closed)
		uv_run(&loop, UV_RUN_ONCE);
	raft_transport_discard(&e->c);
	if (e->c.raft.state == RAFT_FOLLOWER)
		raft_configuration_close(&e->c.raft.configuration);
	free(e);
}

static void on_tick(struct uv_timer_s *timer)
{
}

static int setup(void **state)
{
	uv_loop_init(&loop);
	uv_timer_init(&loop, &ticker);
	uv_timer_start(&ticker, on_tick, 5, 5);
	a = end_new(1);
	b = end_new(2);
	return 0;
}

static int teardown(void **state)
{
	end_free(a);
	end_free(b);
	uv_close((struct uv_handle_s *)&ticker, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	return 0;
}

static int option(struct uv_stream_s *stream, int level, int name)
{
	int fd, value = -1;
	socklen_t len = sizeof(value);

	assert_int_equal(uv_fileno((struct uv_handle_s *)stream, &fd), 0);
	assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

static void expect_options(struct uv_stream_s *stream)
{
	assert_int_equal(option(stream, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option(stream, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option(stream, IPPROTO_TCP, TCP_KEEPIDLE), 1);
	assert_int_equal(option(stream, IPPROTO_TCP, TCP_KEEPINTVL), 1);
	assert_int_equal(option(stream, IPPROTO_TCP, TCP_KEEPCNT), 3);
	assert_int_equal(option(stream, IPPROTO_TCP, TCP_USER_TIMEOUT), 1500);
	assert_int_equal(option(stream, IPPROTO_TCP, TCP_SYNCNT), 1);
}

static void both_ends_of_a_stream_notice_a_dead_peer_soon(void **state)
{
	assert_int_equal(end_open(a), 0);
	assert_int_equal(end_open(b), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, 0);
	assert_non_null(b->accepted);
	assert_int_equal(b->accepted_id, 1);
	assert_string_equal(b->accepted_address, a->c.params.address);
	expect_options(a->dialled);
	expect_options(b->accepted);
	assert_int_equal(a->c.stats.connections_out, 1);
	assert_int_equal(b->c.stats.connections_in, 1);
}

static char got[64];
static int got_len;

static void on_alloc(struct uv_handle_s *handle, size_t suggested, uv_buf_t *buf)
{
	*buf = uv_buf_init(got + got_len, (unsigned)sizeof(got) - (unsigned)got_len);
}

static void on_read(struct uv_stream_s *stream, ssize_t n, const uv_buf_t *buf)
{
	if (n > 0)
		got_len += (int)n;
}

static void the_first_byte_after_the_handshake_is_the_users(void **state)
{
	uv_buf_t buf = uv_buf_init((char[]){"hello raft"}, 10);

	got_len = 0;
	assert_int_equal(end_open(a), 0);
	assert_int_equal(end_open(b), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(uv_try_write(a->dialled, &buf, 1), 10);
	assert_int_equal(uv_read_start(b->accepted, on_alloc, on_read), 0);
	turn_until(&got_len, 10);
	assert_memory_equal(got, "hello raft", 10);
}

static void expect_refused(struct end *by, enum hello_refusal refusal)
{
	assert_int_equal(end_open(a), 0);
	assert_int_equal(end_open(b), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, RAFT_NOCONNECTION);
	assert_null(b->accepted);
	assert_int_equal(by->c.stats.refused[refusal], 1);
	assert_int_equal(by->c.stats.handshakes_refused, 1);
}

static void another_cluster_is_not_let_in(void **state)
{
	a->c.params.cluster_id = 8;
	expect_refused(b, HELLO_OTHER_CLUSTER);
}

static void another_key_is_not_let_in(void **state)
{
	a->c.params.key[0] = 1;
	expect_refused(a, HELLO_OTHER_KEY);
}

static void a_node_of_another_id_is_not_taken_for_the_one_called(void **state)
{
	b->c.params.node_id = 3;
	expect_refused(b, HELLO_OTHER_NODE);
}

// b follows `leader` in a group of 2 and 3.
static void make_follower(uint64_t leader)
{
	b->c.raft.state = RAFT_FOLLOWER;
	b->c.raft.follower_state.current_leader.id = leader;
	b->c.raft.follower_state.current_leader.address = (char *)(uintptr_t) "x";
	assert_int_equal(raft_configuration_add(
				 &b->c.raft.configuration, 2, b->c.params.address, RAFT_VOTER),
		0);
	assert_int_equal(
		raft_configuration_add(&b->c.raft.configuration, 3, "127.0.0.1:3", RAFT_VOTER), 0);
}

static void who_is_no_member_is_not_let_in_while_there_is_a_leader(void **state)
{
	make_follower(3);
	expect_refused(b, HELLO_NOT_MEMBER);
}

static void without_a_leader_a_node_this_one_does_not_know_yet_is_let_in(void **state)
{
	make_follower(0);
	assert_int_equal(end_open(a), 0);
	assert_int_equal(end_open(b), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, 0);
}

static void a_member_at_another_address_is_not_let_in(void **state)
{
	make_follower(3);
	a->c.params.node_id = 3;
	expect_refused(b, HELLO_OTHER_ADDRESS);
}

static void a_port_nobody_listens_at_fails_soon(void **state)
{
	assert_int_equal(end_open(a), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	assert_int_equal(a->dials_ended, 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, RAFT_NOCONNECTION);
}

static void what_is_no_address_cannot_be_dialled(void **state)
{
	const char *const wrong[] = {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
		"127.0.0.1:65536", "localhost:7400", "[::1]:7400", "127.0.0.1:7400x", "1.2.3:5",
		"127.0.0.1:-1", "127.0.0.1: 1"};

	assert_int_equal(end_open(a), 0);
	for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(dial(a, 2, wrong[i]), RAFT_NOCONNECTION);
}

static int listen_raw(const struct end *at, int backlog)
{
	struct sockaddr_in address;
	const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	assert_true(net_parse(at->c.params.address, &address));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static int connect_raw(const struct end *to, bool wait)
{
	struct sockaddr_in address;
	const int fd = socket(AF_INET, SOCK_STREAM | (wait ? 0 : SOCK_NONBLOCK), 0);

	assert_true(net_parse(to->c.params.address, &address));
	assert_true(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || !wait);
	return fd;
}

static void a_peer_that_says_nothing_is_given_up(void **state)
{
	const int fd = listen_raw(b, 8);
	const uint64_t began = time_now_ns();

	assert_int_equal(end_open(a), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, RAFT_NOCONNECTION);
	assert_int_equal(a->c.stats.refused[HELLO_TIMED_OUT], 1);
	assert_true(time_now_ns() - began >= NET_HELLO_MS * NS_PER_MS - 50 * NS_PER_MS);
	close(fd);
}

static void a_peer_that_does_not_answer_a_connect_is_given_up(void **state)
{
	// A full queue of connections: the kernel drops what comes more.
	const int fd = listen_raw(b, 0);
	int others[4];

	for (int i = 0; i < 4; i++)
		others[i] = connect_raw(b, false);
	assert_int_equal(end_open(a), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, RAFT_NOCONNECTION);
	for (int i = 0; i < 4; i++)
		close(others[i]);
	close(fd);
}

static void silent_strangers_leave_room_for_members(void **state)
{
	int strangers[2 * NET_HALF_OPEN_MAX];

	assert_int_equal(end_open(a), 0);
	assert_int_equal(end_open(b), 0);
	for (uint32_t i = 0; i < 2 * NET_HALF_OPEN_MAX; i++) {
		strangers[i] = connect_raw(b, true);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, 0);
	assert_true(b->c.stats.refused[HELLO_NO_ROOM] >= NET_HALF_OPEN_MAX / 2);
	for (uint32_t i = 0; i < 2 * NET_HALF_OPEN_MAX; i++)
		close(strangers[i]);
}

static void an_address_in_use_and_one_not_ours_are_told_apart(void **state)
{
	const char *why;

	assert_int_equal(end_open(b), 0);
	strcpy(a->c.params.address, b->c.params.address);
	assert_int_equal(end_open(a), RAFT_IOERR);
	assert_int_equal(raft_transport_refusal(&a->c, &why), RAFT_REFUSED_ADDRESS);
	assert_non_null(strstr(why, "in use"));
	strcpy(a->c.params.address, "192.0.2.77:7400");
	assert_int_equal(a->t.listen(&a->t, on_accepted), RAFT_IOERR);
	assert_int_equal(raft_transport_refusal(&a->c, &why), RAFT_REFUSED_ADDRESS);
	assert_non_null(strstr(why, "not an address of this machine"));
	strcpy(a->c.params.address, "name:7400");
	assert_int_equal(a->t.listen(&a->t, on_accepted), RAFT_IOERR);
	assert_int_equal(raft_transport_refusal(&a->c, &why), RAFT_REFUSED_ADDRESS);
	assert_non_null(strstr(why, "not an IPv4 address"));
}

static void a_node_may_listen_elsewhere_than_it_is_known(void **state)
{
	snprintf(b->c.params.bind, CONS_ADDRESS_MAX, "127.0.%u.7:7401", (unsigned)getpid() % 250);
	assert_int_equal(end_open(a), 0);
	assert_int_equal(end_open(b), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, RAFT_NOCONNECTION);
	assert_int_equal(dial(a, 2, b->c.params.bind), 0);
	turn_until(&a->dials_ended, 1);
	assert_int_equal(a->status, 0);
}

static void a_node_without_an_address_listens_nowhere(void **state)
{
	a->c.params.address[0] = '\0';
	assert_int_equal(end_open(a), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	turn_until(&a->dials_ended, 1);
}

static void closing_cancels_dials_and_ends(void **state)
{
	const int fd = listen_raw(b, 8);

	assert_int_equal(end_open(a), 0);
	assert_int_equal(dial(a, 2, b->c.params.address), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	a->t.close(&a->t, on_closed);
	assert_int_equal(a->dials_ended, 1);
	assert_int_equal(a->status, RAFT_CANCELED);
	while (!a->closed)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(dial(a, 2, b->c.params.address), RAFT_NOCONNECTION);
	close(fd);
}

static void names_become_literals(void **state)
{
	char literal[CONS_ADDRESS_MAX];
	const char *why;

	assert_int_equal(raft_cons_resolve("localhost:7400", literal, &why), 0);
	assert_string_equal(literal, "127.0.0.1:7400");
	assert_int_equal(raft_cons_resolve("10.1.2.3:1", literal, &why), 0);
	assert_string_equal(literal, "10.1.2.3:1");
	assert_int_equal(raft_cons_resolve("10.1.2.3", literal, &why), -1);
	assert_int_equal(raft_cons_resolve(":7400", literal, &why), -1);
	assert_int_equal(raft_cons_resolve("10.1.2.3:70000", literal, &why), -1);
	assert_int_equal(raft_cons_resolve("10.1.2.3:7400x", literal, &why), -1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(both_ends_of_a_stream_notice_a_dead_peer_soon),
		T(the_first_byte_after_the_handshake_is_the_users),
		T(another_cluster_is_not_let_in),
		T(another_key_is_not_let_in),
		T(a_node_of_another_id_is_not_taken_for_the_one_called),
		T(who_is_no_member_is_not_let_in_while_there_is_a_leader),
		T(without_a_leader_a_node_this_one_does_not_know_yet_is_let_in),
		T(a_member_at_another_address_is_not_let_in),
		T(a_port_nobody_listens_at_fails_soon),
		T(what_is_no_address_cannot_be_dialled),
		T(a_peer_that_says_nothing_is_given_up),
		T(a_peer_that_does_not_answer_a_connect_is_given_up),
		T(silent_strangers_leave_room_for_members),
		T(an_address_in_use_and_one_not_ours_are_told_apart),
		T(a_node_may_listen_elsewhere_than_it_is_known),
		T(a_node_without_an_address_listens_nowhere),
		T(closing_cancels_dials_and_ends),
		T(names_become_literals),
	};
#undef T
	return cmocka_run_group_tests(tests, NULL, NULL);
}
