/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base_time.h"
#include "ctl.h"

struct fixture {
	char dir[64], path[96];
	struct ctl_server *server;
	struct ctl_request *later[4096];
	uint32_t later_count, echoed;
	struct ctl_job *job[4];  // lines that are being parsed elsewhere
	uint32_t jobs, taken, dropped;
};

static void handle_echo(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct fixture *f = ctx;
	json_t *result = json_object();

	f->echoed++;
	json_object_set(result, "x", json_object_get(args, "x"));
	ctl_reply(request, result);
}

static void handle_later(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct fixture *f = ctx;

	f->later[f->later_count++] = request;
}

static void handle_big(void *ctx, struct ctl_request *request, const json_t *args)
{
	char *text = malloc(200001);
	json_t *result = json_object();

	memset(text, 'b', 200000);
	text[200000] = '\0';
	((struct fixture *)ctx)->echoed++;
	json_object_set_new(result, "text", json_string(text));
	free(text);
	ctl_reply(request, result);
}

// Takes a millisecond, as one that walks through large tables.
static void handle_slow(void *ctx, struct ctl_request *request, const json_t *args)
{
	const uint64_t end = time_now_ns() + NS_PER_MS;

	while (time_now_ns() < end)
		;
	handle_echo(ctx, request, args);
}

// Asks for what was taken out of the request.
static void handle_taken(void *ctx, struct ctl_request *request, const json_t *args)
{
	char *taken = ctl_request_taken(request);

	assert_null(ctl_request_taken(request));
	assert_true(taken == NULL || json_is_null(json_object_get(args, "bulk")));
	ctl_reply(request,
		json_pack("{s:I}", "bytes", (json_int_t)(taken != NULL ? strlen(taken) : 0)));
	free(taken);
}

static bool elsewhere_start(void *ctx, struct ctl_job *job)
{
	struct fixture *f = ctx;

	f->job[f->jobs++] = job;
	return true;
}

static bool elsewhere_cannot(void *ctx, struct ctl_job *job)
{
	return false;
}

static struct fixture *now;

static void *elsewhere_take(json_t *args)
{
	json_t *bulk = json_object_get(args, "bulk");
	char *text = json_is_string(bulk) ? strdup(json_string_value(bulk)) : NULL;

	if (text != NULL)
		json_object_set_new(args, "bulk", json_null());
	now->taken += text != NULL;
	return text;
}

static void elsewhere_drop(void *taken)
{
	now->dropped++;
	free(taken);
}

static const struct ctl_elsewhere elsewhere = {elsewhere_start, elsewhere_take, elsewhere_drop};
static const struct ctl_elsewhere elsewhere_none = {
	elsewhere_cannot, elsewhere_take, elsewhere_drop};

static const struct ctl_command commands[] = {
	{"echo", handle_echo},
	{"later", handle_later},
	{"big", handle_big},
	{"slow", handle_slow},
	{"taken", handle_taken},
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/ctl_test.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/s.sock", f->dir);
	assert_int_equal(ctl_server_open(f->path, commands, 5, f, &f->server), 0);
	now = f;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	ctl_server_close(f->server);
	for (uint32_t i = 0; i < f->later_count; i++)
		if (f->later[i] != NULL)
			ctl_reply(f->later[i], NULL);
	assert_int_equal(access(f->path, F_OK), -1);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static void turn(struct fixture *f)
{
	struct pollfd poller = {.fd = ctl_server_fd(f->server), .events = POLLIN};

	while (poll(&poller, 1, 0) > 0)
		if (ctl_server_process(f->server) == 0)
			break;
}

static int client(struct fixture *f)
{
	const int fd = ctl_connect(f->path, 1000);

	assert_true(fd >= 0);
	turn(f);
	return fd;
}

static void put(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

// What has arrived, as a string.
static const char *get(struct fixture *f, int fd)
{
	static char text[65536];
	ssize_t len;

	turn(f);
	len = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
	text[len > 0 ? len : 0] = '\0';
	return text;
}

static void answers_a_request_and_echoes_its_id(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);

	put(fd, "{\"cmd\":\"echo\",\"id\":7,\"x\":\"y\"}\n");
	assert_string_equal(get(f, fd), "{\"ok\":true,\"id\":7,\"x\":\"y\"}\n");
	put(fd, "{\"cmd\":\"echo\",\"id\":\"q\",\"x\":1}\r\n\n");
	assert_string_equal(get(f, fd), "{\"ok\":true,\"id\":\"q\",\"x\":1}\n");
	close(fd);
}

static void socket_is_for_owner_and_group_only(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0660);
}

static void a_live_server_keeps_its_name_and_a_dead_ones_is_taken(void **state)
{
	struct fixture *f = *state;
	struct ctl_server *other = NULL;
	char path[128];

	assert_int_equal(ctl_server_open(f->path, commands, 3, f, &other), -EADDRINUSE);
	snprintf(path, sizeof(path), "%s/dead.sock", f->dir);
	assert_int_equal(ctl_server_open(path, commands, 3, f, &other), 0);
	// A second name for the socket survives the orderly close as that of a killed server would.
	char stale[128];
	snprintf(stale, sizeof(stale), "%s/stale.sock", f->dir);
	assert_int_equal(link(path, stale), 0);
	ctl_server_close(other);
	assert_int_equal(access(stale, F_OK), 0);
	assert_int_equal(ctl_server_open(stale, commands, 3, f, &other), 0);
	ctl_server_close(other);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
	struct fixture *f = *state;
	struct ctl_server *other = NULL;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/file", f->dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(ctl_server_open(path, commands, 3, f, &other), -EADDRINUSE);
	assert_int_equal(unlink(path), 0);
}

static void a_path_too_long_is_refused(void **state)
{
	struct ctl_server *other = NULL;
	char path[256];

	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(ctl_server_open(path, commands, 3, *state, &other), -ENAMETOOLONG);
}

static void answers_leave_in_the_order_of_the_requests(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);

	put(fd, "{\"cmd\":\"later\",\"id\":1}\n{\"cmd\":\"echo\",\"id\":2,\"x\":0}\n"
		"{\"cmd\":\"later\",\"id\":3}\n{\"cmd\":\"nope\",\"id\":4}\n");
	assert_string_equal(get(f, fd), "");
	assert_int_equal(f->later_count, 2);
	ctl_fail(f->later[1], "busy", "not %d", 5);
	assert_string_equal(get(f, fd), "");
	ctl_reply(f->later[0], NULL);
	f->later_count = 0;
	assert_string_equal(get(f, fd),
		"{\"ok\":true,\"id\":1}\n{\"ok\":true,\"id\":2,\"x\":0}\n"
		"{\"ok\":false,\"id\":3,\"error\":\"busy\",\"message\":\"not 5\"}\n"
		"{\"ok\":false,\"id\":4,\"error\":\"unknown_command\","
		"\"message\":\"no command \\\"nope\\\" here\"}\n");
	close(fd);
}

static void garbage_is_answered_and_the_connection_lives(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);

	put(fd, "garbage\n");
	assert_non_null(strstr(get(f, fd), "\"error\":\"bad_json\""));
	put(fd, "{\"cmd\":1}\n");
	assert_non_null(strstr(get(f, fd), "\"error\":\"bad_request\""));
	put(fd, "{\"cmd\":\"echo\",\"id\":[1]}\n");
	assert_non_null(strstr(get(f, fd), "\"error\":\"invalid_id\""));
	put(fd, "\xff\xfe{}\n");
	assert_non_null(strstr(get(f, fd), "\"where\":\"1:"));
	put(fd, "{\"cmd\":\"echo\",\"x\":1}\n");
	assert_string_equal(get(f, fd), "{\"ok\":true,\"x\":1}\n");
	close(fd);
}

static void a_client_that_leaves_early_does_no_harm(void **state)
{
	struct fixture *f = *state;
	int fd = client(f);

	put(fd, "{\"cmd\":\"ec");
	turn(f);
	close(fd);
	turn(f);
	assert_int_equal(ctl_server_clients(f->server), 0);

	fd = client(f);
	put(fd, "{\"cmd\":\"later\",\"id\":\"z\"}\n{\"cmd\":\"echo\",\"x\":1}\n");
	turn(f);
	close(fd);
	turn(f);
	assert_int_equal(ctl_server_clients(f->server), 0);
	assert_int_equal(f->later_count, 1);
	ctl_reply(f->later[0], json_object());
	f->later_count = 0;
	turn(f);
}

static void requests_sent_whole_before_leaving_are_carried_out(void **state)
{
	struct fixture *f = *state;
	const int fd = ctl_connect(f->path, 1000);

	put(fd, "{\"cmd\":\"echo\",\"x\":1}\n{\"cmd\":\"echo\",\"x\":1}\n{\"cmd\":\"echo\",\"x\":");
	close(fd);
	turn(f);
	assert_int_equal(f->echoed, 2);
	assert_int_equal(ctl_server_clients(f->server), 0);
}

static void a_half_closed_client_still_gets_its_answers(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);

	put(fd, "{\"cmd\":\"later\"}\n");
	shutdown(fd, SHUT_WR);
	turn(f);
	ctl_reply(f->later[0], NULL);
	f->later_count = 0;
	assert_string_equal(get(f, fd), "{\"ok\":true}\n");
	turn(f);
	assert_int_equal(ctl_server_clients(f->server), 0);
	close(fd);
}

static void a_slow_client_is_held_back_and_others_go_on(void **state)
{
	struct fixture *f = *state;
	const int slow = client(f), quick = client(f);
	uint32_t asked = 0, got = 0;
	static char text[1 << 20];

	for (; asked < 200; asked++)
		put(slow, "{\"cmd\":\"big\"}\n");
	turn(f);
	// 200 kB an answer: a megabyte may wait here, some more in the socket.
	assert_in_range(f->echoed, 5, 20);
	put(quick, "{\"cmd\":\"echo\",\"x\":2}\n");
	assert_string_equal(get(f, quick), "{\"ok\":true,\"x\":2}\n");
	// Once it reads, nothing was lost.
	for (int spins = 0; got < asked && spins < 100000; spins++) {
		ssize_t len = recv(slow, text, sizeof(text), MSG_DONTWAIT);

		for (ssize_t i = 0; i < len; i++)
			got += text[i] == '\n';
		turn(f);
	}
	assert_int_equal(got, asked);
	close(slow);
	close(quick);
}

static void a_flood_of_open_requests_stops_at_the_pipeline_limit(void **state)
{
	static const char line[] = "{\"cmd\":\"later\"}\n";
	struct fixture *f = *state;
	const int fd = client(f);
	uint32_t asked = 0, got = 0, answered = 0;
	char text[4096];

	// Sends until the socket is full too: nobody reads it any more.
	while (asked < 3000 && send(fd, line, sizeof(line) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
		asked++;
		turn(f);
	}
	assert_in_range(asked, CTL_PIPELINE_MAX + 1, 2999);
	assert_int_equal(f->later_count, CTL_PIPELINE_MAX);
	for (int spins = 0; got < asked && spins < 100000; spins++) {
		ssize_t len;

		for (; answered < f->later_count; answered++) {
			ctl_reply(f->later[answered], NULL);
			f->later[answered] = NULL;
		}
		turn(f);
		while ((len = recv(fd, text, sizeof(text), MSG_DONTWAIT)) > 0)
			for (ssize_t i = 0; i < len; i++)
				got += text[i] == '\n';
	}
	assert_int_equal(got, asked);
	close(fd);
}

// The caller's loop has other things to do: what many clients ask at once is spread over its turns, each
// client's share of it in its turn.
static void costly_requests_of_many_clients_are_spread_over_calls(void **state)
{
	enum { CLIENTS = 8, EACH = 12 };
	struct fixture *f = *state;
	int fd[CLIENTS], calls = 0;

	for (int i = 0; i < CLIENTS; i++)
		fd[i] = client(f);
	for (int i = 0; i < CLIENTS; i++)
		for (int k = 0; k < EACH; k++)
			put(fd[i], "{\"cmd\":\"slow\"}\n");
	while (f->echoed < CLIENTS * EACH) {
		const uint32_t before = f->echoed;

		assert_true(ctl_server_process(f->server) > 0);
		assert_true(f->echoed - before <= EACH);
		calls++;
		if (f->echoed < CLIENTS * EACH)
			assert_true(poll(&(struct pollfd){.fd = ctl_server_fd(f->server),
						 .events = POLLIN},
					    1, 0) == 1);
	}
	assert_true(calls >= CLIENTS);
	for (int i = 0; i < CLIENTS; i++) {
		assert_int_equal(strlen(get(f, fd[i])), EACH * strlen("{\"ok\":true}\n"));
		close(fd[i]);
	}
	turn(f);
}

// A line of `cmd` with `bytes` bytes of "bulk", sent while the server reads.
static void put_large(struct fixture *f, int fd, const char *cmd, size_t bytes)
{
	char *text = malloc(bytes + 100);
	size_t len = (size_t)sprintf(text, "{\"cmd\":\"%s\",\"bulk\":\"", cmd), sent = 0;

	memset(text + len, 'b', bytes);
	len += bytes;
	len += (size_t)sprintf(text + len, "\"}\n");
	for (int spins = 0; sent < len && spins < 1000000; spins++) {
		const ssize_t put_bytes =
			send(fd, text + sent, len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		sent += put_bytes > 0 ? (size_t)put_bytes : 0;
		turn(f);
	}
	assert_int_equal(sent, len);
	free(text);
}

static void a_large_line_is_parsed_elsewhere_and_keeps_its_place(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f), other = client(f);

	ctl_server_elsewhere(f->server, &elsewhere);
	put_large(f, fd, "taken", 1000000);
	put(fd, "{\"cmd\":\"echo\",\"x\":1}\n");
	// Nothing behind it runs; others are served.
	assert_string_equal(get(f, fd), "");
	assert_int_equal(f->jobs, 1);
	put(other, "{\"cmd\":\"echo\",\"x\":2}\n");
	assert_string_equal(get(f, other), "{\"ok\":true,\"x\":2}\n");
	ctl_job_run(f->job[0]);
	assert_string_equal(get(f, fd), "");
	ctl_job_done(f->job[0]);
	assert_string_equal(get(f, fd), "{\"ok\":true,\"bytes\":1000000}\n{\"ok\":true,\"x\":1}\n");
	// What nobody asks for is freed; what is no JSON says where, as ever.
	put_large(f, fd, "echo", 100000);
	put_large(f, other, "echo\" x", 100000);
	assert_int_equal(f->jobs, 3);
	for (int i = 2; i > 0; i--) {
		ctl_job_run(f->job[i]);
		ctl_job_done(f->job[i]);
	}
	assert_string_equal(get(f, fd), "{\"ok\":true}\n");
	assert_non_null(strstr(get(f, other), "bad_json"));
	assert_int_equal(f->dropped, 1);
	close(fd);
	close(other);
	turn(f);
	assert_int_equal(ctl_server_clients(f->server), 0);
}

static void a_large_line_is_parsed_at_once_when_nobody_else_can(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);

	put_large(f, fd, "taken", 100000);
	assert_string_equal(get(f, fd), "{\"ok\":true,\"bytes\":0}\n");
	ctl_server_elsewhere(f->server, &elsewhere_none);
	put_large(f, fd, "taken", 100000);
	assert_string_equal(get(f, fd), "{\"ok\":true,\"bytes\":100000}\n");
	close(fd);
	turn(f);
}

static void a_line_being_parsed_survives_its_client_and_the_server(void **state)
{
	struct fixture *f = *state;
	int fd = client(f);

	ctl_server_elsewhere(f->server, &elsewhere);
	put_large(f, fd, "echo", 100000);
	ctl_job_run(f->job[0]);
	// The end of the input alone is no reason to go: the answer is still to come.
	shutdown(fd, SHUT_WR);
	turn(f);
	assert_int_equal(ctl_server_clients(f->server), 1);
	ctl_job_done(f->job[0]);
	assert_string_equal(get(f, fd), "{\"ok\":true}\n");
	assert_int_equal(ctl_server_clients(f->server), 0);
	close(fd);
	fd = client(f);
	put_large(f, fd, "echo", 100000);
	ctl_server_close(f->server);
	ctl_job_run(f->job[1]);
	ctl_job_done(f->job[1]);
	assert_int_equal(f->dropped, 2);
	assert_int_equal(ctl_server_open(f->path, commands, 5, f, &f->server), 0);
	close(fd);
}

static void serves_64_clients_and_tells_the_next_to_come_back(void **state)
{
	struct fixture *f = *state;
	int fds[CTL_CLIENTS_MAX], extra;

	for (uint32_t i = 0; i < CTL_CLIENTS_MAX; i++)
		fds[i] = client(f);
	assert_int_equal(ctl_server_clients(f->server), CTL_CLIENTS_MAX);
	extra = client(f);
	assert_non_null(strstr(get(f, extra), "\"error\":\"busy\""));
	close(extra);
	for (uint32_t i = 0; i < CTL_CLIENTS_MAX; i++)
		put(fds[i], "{\"cmd\":\"echo\",\"x\":3}\n");
	for (uint32_t i = 0; i < CTL_CLIENTS_MAX; i++)
		assert_string_equal(get(f, fds[i]), "{\"ok\":true,\"x\":3}\n");
	close(fds[9]);
	turn(f);
	fds[9] = client(f);
	put(fds[9], "{\"cmd\":\"echo\",\"x\":4}\n");
	assert_string_equal(get(f, fds[9]), "{\"ok\":true,\"x\":4}\n");
	for (uint32_t i = 0; i < CTL_CLIENTS_MAX; i++)
		close(fds[i]);
	turn(f);
	assert_int_equal(ctl_server_clients(f->server), 0);
}

static void a_line_over_the_limit_is_answered_then_closed(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);
	const size_t block = 1 << 20;
	char *text = malloc(block);
	size_t sent = 0;

	memset(text, 'a', block);
	for (int spins = 0; sent <= (size_t)CTL_LINE_BYTES_MAX + 2 * block && spins < 1000000;
		spins++) {
		const ssize_t put_bytes = send(fd, text, block, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (put_bytes < 0 && errno == EPIPE)
			break;
		sent += put_bytes > 0 ? (size_t)put_bytes : 0;
		turn(f);
	}
	assert_non_null(strstr(get(f, fd), "\"error\":\"too_large\""));
	assert_int_equal(ctl_server_clients(f->server), 0);
	free(text);
	close(fd);
}

static void half_lines_of_all_clients_together_are_bounded(void **state)
{
	struct fixture *f = *state;
	const size_t block = 1 << 20, each = 60 * block;
	char *text = malloc(block);
	uint32_t refused = 0;
	int fds[6];

	memset(text, 'a', block);
	for (int i = 0; i < 6; i++) {
		size_t sent = 0;

		fds[i] = client(f);
		for (int spins = 0; sent < each && spins < 1000000; spins++) {
			const ssize_t put_bytes =
				send(fds[i], text, block, MSG_DONTWAIT | MSG_NOSIGNAL);

			if (put_bytes < 0 && errno == EPIPE)
				break;
			sent += put_bytes > 0 ? (size_t)put_bytes : 0;
			turn(f);
		}
		refused += strstr(get(f, fds[i]), "\"error\":\"busy\"") != NULL;
	}
	assert_true(refused >= 3);
	assert_int_equal(ctl_server_clients(f->server), 6 - refused);
	for (int i = 0; i < 6; i++)
		close(fds[i]);
	turn(f);
	free(text);
}

static void one_byte_at_a_time_is_a_request_too(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);
	const char *text = "{\"cmd\":\"echo\",\"x\":5}\n";

	for (size_t i = 0; i < strlen(text); i++) {
		assert_string_equal(get(f, fd), "");
		assert_int_equal(send(fd, text + i, 1, 0), 1);
	}
	assert_string_equal(get(f, fd), "{\"ok\":true,\"x\":5}\n");
	close(fd);
}

static void a_call_without_an_answer_ends_at_its_deadline(void **state)
{
	struct fixture *f = *state;
	const int fd = client(f);
	json_t *request = json_pack("{s:s}", "cmd", "later");

	errno = 0;
	assert_null(ctl_call(fd, request, 20));
	assert_int_equal(errno, ETIMEDOUT);
	json_decref(request);
	close(fd);
	turn(f);
}

static void connecting_to_nobody_says_so(void **state)
{
	struct fixture *f = *state;
	char path[128];

	snprintf(path, sizeof(path), "%s/none", f->dir);
	assert_int_equal(ctl_connect(path, 10), -ENOENT);
}

static void a_pipe_gives_answers_in_order(void **state)
{
	struct fixture *f = *state;
	struct ctl_pipe *pipe = ctl_pipe_create(client(f));

	for (int i = 0; i < 50; i++) {
		json_t *request = json_pack("{s:s,s:i}", "cmd", "echo", "x", i);

		assert_int_equal(ctl_pipe_send(pipe, request, 1000), 0);
		json_decref(request);
	}
	assert_int_equal(ctl_pipe_flush(pipe, 1000), 0);
	turn(f);
	for (int i = 0; i < 50; i++) {
		json_t *answer = ctl_pipe_receive(pipe, 1000);

		assert_int_equal(json_integer_value(json_object_get(answer, "x")), i);
		json_decref(answer);
	}
	errno = 0;
	assert_null(ctl_pipe_receive(pipe, 0));
	assert_int_equal(errno, ETIMEDOUT);
	ctl_pipe_destroy(pipe);
	turn(f);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(answers_a_request_and_echoes_its_id),
		T(socket_is_for_owner_and_group_only),
		T(a_live_server_keeps_its_name_and_a_dead_ones_is_taken),
		T(a_file_that_is_no_socket_is_left_alone),
		T(a_path_too_long_is_refused),
		T(answers_leave_in_the_order_of_the_requests),
		T(garbage_is_answered_and_the_connection_lives),
		T(a_client_that_leaves_early_does_no_harm),
		T(requests_sent_whole_before_leaving_are_carried_out),
		T(a_half_closed_client_still_gets_its_answers),
		T(a_slow_client_is_held_back_and_others_go_on),
		T(a_flood_of_open_requests_stops_at_the_pipeline_limit),
		T(costly_requests_of_many_clients_are_spread_over_calls),
		T(a_large_line_is_parsed_elsewhere_and_keeps_its_place),
		T(a_large_line_is_parsed_at_once_when_nobody_else_can),
		T(a_line_being_parsed_survives_its_client_and_the_server),
		T(serves_64_clients_and_tells_the_next_to_come_back),
		T(a_line_over_the_limit_is_answered_then_closed),
		T(half_lines_of_all_clients_together_are_bounded),
		T(one_byte_at_a_time_is_a_request_too),
		T(a_call_without_an_answer_ends_at_its_deadline),
		T(connecting_to_nobody_says_so),
		T(a_pipe_gives_answers_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
