/* SPDX-License-Identifier: BSD-3-Clause */
// The guard's rules one by one, over an io that only records, and over the fixture where the library's own
// doing matters.
#include "raft_cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// --- an io that records -------------------------------------------------------------------------------------

static struct raft_guard g;
static struct raft_io inner;
static struct raft raft;
static struct raft_io_append *append_req;
static raft_io_append_cb append_cb;
static struct raft_io_snapshot_put *put_req;
static raft_io_snapshot_put_cb put_cb;
static raft_io_tick_cb inner_tick;
static raft_io_recv_cb inner_recv;
static struct raft_message sent;
static int inner_rc, promise_rc;
static uint32_t ticks, received, faults;
static enum guard_fault last_fault;
static char order[64];

static int f_append(struct raft_io *io, struct raft_io_append *req,
	const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
	(void)io;
	(void)entries;
	(void)n;
	append_req = req;
	append_cb = cb;
	return inner_rc;
}

static int f_truncate(struct raft_io *io, raft_index index)
{
	(void)io;
	(void)index;
	return inner_rc;
}

static int f_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
	const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
	(void)io;
	(void)trailing;
	(void)snapshot;
	put_req = req;
	put_cb = cb;
	return inner_rc;
}

static int f_set(struct raft_io *io, raft_term value)
{
	(void)io;
	(void)value;
	strcat(order, "library ");
	return inner_rc;
}

static int f_send(struct raft_io *io, struct raft_io_send *req, const struct raft_message *message,
	raft_io_send_cb cb)
{
	(void)io;
	(void)req;
	(void)cb;
	sent = *message;
	return 0;
}

static int f_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
	(void)io;
	(void)msecs;
	inner_tick = tick;
	inner_recv = recv;
	return 0;
}

static int promise(void *ctx, uint64_t term, uint64_t vote)
{
	(void)ctx;
	(void)term;
	(void)vote;
	strcat(order, "sidecar ");
	return promise_rc;
}

static void fault(void *ctx, enum guard_fault what, int error, const char *text)
{
	(void)ctx;
	(void)error;
	(void)text;
	faults++;
	last_fault = what;
}

static const struct guard_hooks hooks = {.promise = promise, .fault = fault};

static void tick(struct raft_io *io)
{
	(void)io;
	ticks++;
}

static void recv_message(struct raft_io *io, struct raft_message *message)
{
	(void)io;
	(void)message;
	received++;
}

static void outer_append_cb(struct raft_io_append *req, int status)
{
	(void)req;
	(void)status;
}

static void outer_put_cb(struct raft_io_snapshot_put *req, int status)
{
	(void)req;
	(void)status;
}

static int setup(void **state)
{
	(void)state;
	inner = (struct raft_io){
		.append = f_append,
		.truncate = f_truncate,
		.snapshot_put = f_put,
		.set_term = f_set,
		.set_vote = f_set,
		.send = f_send,
		.start = f_start,
	};
	raft = (struct raft){.state = RAFT_FOLLOWER, .current_term = 5};
	guard_wrap(&g, &inner, &raft, GUARD_ALL, &hooks, NULL);
	g.submitted_index = g.stored_index = 10;
	g.stored_term = 4;
	g.io.start(&g.io, 50, tick, recv_message);
	inner_rc = promise_rc = 0;
	ticks = received = faults = 0;
	order[0] = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	while (g.appends != NULL)
		append_cb(append_req, 0);
	guard_drop(&g);
	return 0;
}

static struct raft_io_append outer_req;

static void append(unsigned n, uint64_t term, unsigned short type)
{
	struct raft_entry entries[8] = {0};

	for (unsigned i = 0; i < n; i++)
		entries[i] = (struct raft_entry){.term = term, .type = type};
	assert_int_equal(g.io.append(&g.io, &outer_req, entries, n, outer_append_cb), inner_rc);
}

static void ask_for_votes(uint64_t index, uint64_t term)
{
	const struct raft_message message = {.type = RAFT_IO_REQUEST_VOTE,
		.request_vote = {.term = 6, .last_log_index = index, .last_log_term = term}};
	struct raft_io_send req;

	g.io.send(&g.io, &req, &message, NULL);
}

static void g3_votes_are_asked_for_with_what_is_stored(void **state)
{
	(void)state;
	append(3, 5, RAFT_COMMAND);
	ask_for_votes(13, 5);
	assert_int_equal(sent.request_vote.last_log_index, 10);
	assert_int_equal(sent.request_vote.last_log_term, 4);
	assert_int_equal(g.stats.clamped_votes, 1);
	append_cb(append_req, 0);
	ask_for_votes(13, 5);
	assert_int_equal(sent.request_vote.last_log_index, 13);
	assert_int_equal(sent.request_vote.last_log_term, 5);
}

static void g3_no_election_while_own_writes_are_in_flight(void **state)
{
	(void)state;
	append(1, 5, RAFT_COMMAND);
	inner_tick(&inner);
	assert_int_equal(ticks, 0);
	append_cb(append_req, 0);
	inner_tick(&inner);
	assert_int_equal(ticks, 1);
	append(1, 5, RAFT_COMMAND);
	raft.state = RAFT_CANDIDATE;
	inner_tick(&inner);
	assert_int_equal(ticks, 2);
}

static void g3_timeout_now_waits_for_the_writes(void **state)
{
	struct raft_message message = {.type = RAFT_IO_TIMEOUT_NOW, .server_address = "1.2.3.4:5"};

	(void)state;
	append(1, 5, RAFT_COMMAND);
	inner_recv(&inner, &message);
	inner_recv(&inner, &message);
	assert_int_equal(received, 0);
	append_cb(append_req, 0);
	assert_int_equal(received, 1);
	inner_recv(&inner, &message);
	assert_int_equal(received, 2);
}

static void g3_an_install_in_flight_counts_as_a_write(void **state)
{
	struct raft_io_snapshot_put req;
	const struct raft_snapshot snapshot = {.index = 50, .term = 5};

	(void)state;
	assert_int_equal(g.io.snapshot_put(&g.io, 0, &req, &snapshot, outer_put_cb), 0);
	assert_true(guard_writing(&g));
	ask_for_votes(50, 5);
	assert_int_equal(sent.request_vote.last_log_index, 0);
	put_cb(put_req, 0);
	assert_false(guard_writing(&g));
	ask_for_votes(50, 5);
	assert_int_equal(sent.request_vote.last_log_index, 50);
	// One of our own, with entries kept, changes nothing of that.
	assert_int_equal(g.io.snapshot_put(&g.io, 100, &req, &snapshot, outer_put_cb), 0);
	assert_false(guard_writing(&g));
	put_cb(put_req, 0);
	assert_int_equal(g.stored_index, 50);
}

static void what_is_cut_off_while_in_flight_is_not_stored(void **state)
{
	(void)state;
	append(4, 5, RAFT_COMMAND);  // 11..14
	assert_int_equal(g.io.truncate(&g.io, 12), 0);
	append_cb(append_req, 0);
	assert_int_equal(g.stored_index, 11);
	assert_int_equal(g.submitted_index, 11);
	append(1, 6, RAFT_COMMAND);
	append_cb(append_req, 0);
	assert_int_equal(g.stored_index, 12);
	assert_int_equal(g.stored_term, 6);
}

static void g4_a_configuration_cut_off_ends_after_the_next_write(void **state)
{
	(void)state;
	append(1, 5, RAFT_CHANGE);
	append_cb(append_req, 0);
	assert_int_equal(g.io.truncate(&g.io, 11), 0);
	assert_int_equal(faults, 0);
	append(1, 6, RAFT_COMMAND);
	assert_int_equal(faults, 0);
	append_cb(append_req, 0);
	assert_int_equal(faults, 1);
	assert_int_equal(last_fault, GUARD_ROLLBACK);
}

static void g4_entries_cut_off_behind_the_configuration_do_not_matter(void **state)
{
	(void)state;
	append(1, 5, RAFT_CHANGE);
	append_cb(append_req, 0);
	append(2, 5, RAFT_COMMAND);
	append_cb(append_req, 0);
	assert_int_equal(g.io.truncate(&g.io, 12), 0);
	append(1, 6, RAFT_COMMAND);
	append_cb(append_req, 0);
	assert_int_equal(faults, 0);
}

static void g6_each_failed_write_is_a_fault_of_the_disk(void **state)
{
	const struct raft_snapshot snapshot = {.index = 50, .term = 5};
	struct raft_io_snapshot_put req;

	(void)state;
	append(1, 5, RAFT_COMMAND);
	append_cb(append_req, RAFT_NOSPACE);
	assert_int_equal(faults, 1);
	inner_rc = RAFT_IOERR;
	append(1, 5, RAFT_COMMAND);
	assert_int_equal(faults, 2);
	g.io.truncate(&g.io, 5);
	assert_int_equal(faults, 3);
	g.io.set_term(&g.io, 7);
	assert_int_equal(faults, 4);
	g.io.set_vote(&g.io, 1);
	assert_int_equal(faults, 5);
	g.io.snapshot_put(&g.io, 1, &req, &snapshot, outer_put_cb);
	assert_int_equal(faults, 6);
	inner_rc = 0;
	g.io.snapshot_put(&g.io, 1, &req, &snapshot, outer_put_cb);
	put_cb(put_req, RAFT_NOSPACE);
	assert_int_equal(faults, 7);
	assert_int_equal(last_fault, GUARD_DISK);
}

static void g6_what_is_cancelled_is_no_fault(void **state)
{
	(void)state;
	append(1, 5, RAFT_COMMAND);
	append_cb(append_req, RAFT_CANCELED);
	assert_int_equal(faults, 0);
	assert_int_equal(g.stored_index, 10);
}

static void g9_the_sidecar_is_written_first(void **state)
{
	(void)state;
	assert_int_equal(g.io.set_term(&g.io, 7), 0);
	assert_int_equal(g.io.set_vote(&g.io, 2), 0);
	assert_string_equal(order, "sidecar library sidecar library ");
}

static void g9_a_promise_that_could_not_be_written_is_not_made(void **state)
{
	(void)state;
	promise_rc = -5;
	g.io.set_vote(&g.io, 2);
	assert_string_equal(order, "sidecar ");
	assert_int_equal(faults, 1);
}

static void a_library_that_gave_up_is_a_fault(void **state)
{
	(void)state;
	raft.state = RAFT_UNAVAILABLE;
	inner_tick(&inner);
	assert_int_equal(faults, 1);
	assert_int_equal(last_fault, GUARD_LIBRARY);
}

static void a_leaders_commit_is_believed_up_to_its_message(void **state)
{
	struct raft_message message = {
		.type = RAFT_IO_APPEND_ENTRIES, .append_entries = {.term = 5, .leader_commit = 99}};

	(void)state;
	inner_recv(&inner, &message);
	assert_int_equal(message.append_entries.leader_commit, 0);
	assert_int_equal(received, 1);
}

static void answer(uint64_t term, uint64_t rejected, uint64_t last)
{
	const struct raft_message message = {.type = RAFT_IO_APPEND_ENTRIES_RESULT,
		.append_entries_result = {
			.term = term, .rejected = rejected, .last_log_index = last}};
	struct raft_io_send req;

	g.io.send(&g.io, &req, &message, NULL);
}

static void an_answer_goes_no_further_than_what_this_leader_showed(void **state)
{
	struct raft_message message = {
		.type = RAFT_IO_APPEND_ENTRIES, .append_entries = {.term = 5}};

	(void)state;
	raft.log.snapshot.last_index = 6;
	raft.log.snapshot.last_term = 4;
	message.append_entries.prev_log_index = 6;
	message.append_entries.prev_log_term = 4;
	inner_recv(&inner, &message);
	answer(5, 0, 10);
	assert_int_equal(sent.append_entries_result.last_log_index, 6);
	// Another place, another term there: the library rejects it, nothing new is known.
	message.append_entries.prev_log_term = 3;
	message.append_entries.prev_log_index = 9;
	inner_recv(&inner, &message);
	answer(5, 0, 10);
	assert_int_equal(sent.append_entries_result.last_log_index, 6);
	// A rejection's hint stays as it is, and a new term starts from nothing.
	answer(5, 9, 10);
	assert_int_equal(sent.append_entries_result.last_log_index, 10);
	answer(6, 0, 10);
	assert_int_equal(sent.append_entries_result.last_log_index, 0);
}

static void an_answer_goes_no_further_than_what_is_stored(void **state)
{
	struct raft_message message = {
		.type = RAFT_IO_APPEND_ENTRIES, .append_entries = {.term = 6}};
	struct raft_io_append *first;
	struct raft_entry entry = {.term = 6};

	(void)state;
	raft.current_term = 6;
	raft.log.snapshot.last_index = 7;
	raft.log.snapshot.last_term = 4;
	append(3, 5, RAFT_COMMAND);  // 11..13, on their way to the disk
	first = append_req;
	// The next leader has others from 8 on.
	message.append_entries.prev_log_index = 7;
	message.append_entries.prev_log_term = 4;
	message.append_entries.entries = &entry;
	message.append_entries.n_entries = 1;
	inner_recv(&inner, &message);
	assert_int_equal(g.io.truncate(&g.io, 8), 0);
	append(3, 6, RAFT_COMMAND);  // 8..10
	g.match_index = 10;
	append_cb(first, 0);
	// The library takes the end of the first write for word that 8 to 10 are stored.
	answer(6, 0, 10);
	assert_int_equal(sent.append_entries_result.last_log_index, 7);
	append_cb(append_req, 0);
	answer(6, 0, 10);
	assert_int_equal(sent.append_entries_result.last_log_index, 10);
}

// --- over the fixture ---------------------------------------------------------------------------------------

static void step_down(struct cluster *c, uint32_t i)
{
	cluster_isolate(c, i);
	for (uint32_t n = 0; n < 200 && raft_state(raft_fixture_get(&c->f, i)) == RAFT_LEADER; n++)
		cluster_run(c, 100);
}

static struct raft_change change;

static void changed(struct raft_change *req, int status)
{
	(void)req;
	(void)status;
}

// An isolated leader starts a change of members, others lead and take it back. `snapshot`: the
// configuration before is in a snapshot only.
static void change_and_take_back(struct cluster *c, bool snapshot)
{
	struct raft *r = raft_fixture_get(&c->f, 0);

	cluster_stand(c, 0);
	assert_true(cluster_leads(c, 0, 20000));
	cluster_calm(c);
	cluster_run(c, 1000);
	for (uint64_t i = 1; i <= 20; i++)
		assert_int_equal(cluster_apply(c, 0, i), 0);
	cluster_run(c, 1000);
	assert_true(!snapshot || r->log.offset >= r->configuration_index);
	cluster_isolate(c, 0);
	assert_int_equal(raft_assign(r, &change, 3, RAFT_STANDBY, changed), 0);
	step_down(c, 0);
	assert_true(r->configuration_uncommitted_index != 0);
	cluster_stand(c, 1);
	assert_true(cluster_leads(c, 1, 20000));
	cluster_calm(c);
	assert_int_equal(cluster_apply(c, 1, 99), 0);
	cluster_run(c, 1000);
	cluster_join(c, 0, 1);
	cluster_join(c, 0, 2);
	cluster_run(c, 3000);
}

static int in_child(uint32_t rules, bool snapshot)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct cluster *c = calloc(1, sizeof(*c));

		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		if (c == NULL)
			_exit(1);
		c->snapshots = snapshot;
		c->exit_on_fault = true;
		cluster_init(c, 3, rules);
		change_and_take_back(c, snapshot);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void g4_a_change_taken_back_ends_the_process(void **state)
{
	(void)state;
	assert_int_equal(in_child(GUARD_ALL, false), CLUSTER_EXIT_FAULT + GUARD_ROLLBACK);
}

static void g4_also_behind_a_snapshot_where_the_library_falls_over(void **state)
{
	const int bare = in_child(0, true);

	(void)state;
	// A signal, or the sanitizer's report of it.
	assert_true(bare != 0 && bare != CLUSTER_EXIT_FAULT + GUARD_ROLLBACK);
	assert_int_equal(in_child(GUARD_ALL, true), CLUSTER_EXIT_FAULT + GUARD_ROLLBACK);
}

// The leader of a group of two is removed; the other is the only voter.
static uint64_t lead_alone(uint32_t rules, uint64_t *term)
{
	struct cluster *c = calloc(1, sizeof(*c));
	struct raft_fixture *f;
	uint64_t both;

	assert_non_null(c);
	f = &c->f;
	cluster_init(c, 2, rules);
	cluster_stand(c, 0);
	assert_true(cluster_leads(c, 0, 20000));
	cluster_run(c, 1000);
	*term = raft_fixture_get(f, 0)->current_term;
	assert_int_equal(raft_remove(raft_fixture_get(f, 0), &change, 1, changed), 0);
	cluster_run(c, 1000);
	assert_int_not_equal(raft_state(raft_fixture_get(f, 0)), RAFT_LEADER);
	cluster_stand(c, 1);
	assert_true(cluster_leads(c, 1, 20000));
	cluster_run(c, 1000);
	both = cluster_two_leaders(c);
	assert_true(rules == 0 || guard_ready(&c->node[1].guard));
	cluster_fini(c);
	free(c);
	return both;
}

static void gt_an_only_voter_leads_in_a_term_of_its_own(void **state)
{
	uint64_t term;

	(void)state;
	// The library alone: one term, two leaders.
	assert_true(lead_alone(0, &term) == term && term != 0);
	assert_int_equal(lead_alone(GUARD_ALL & ~GUARD_TERMS, &term), term);
	assert_int_equal(lead_alone(GUARD_ALL, &term), 0);
}

static void g1_a_leader_is_ready_when_its_barrier_is_applied(void **state)
{
	struct cluster *c = calloc(1, sizeof(*c));

	(void)state;
	assert_non_null(c);
	cluster_init(c, 3, GUARD_ALL);
	cluster_stand(c, 0);
	assert_true(cluster_leads(c, 0, 20000));
	assert_false(guard_ready(&c->node[0].guard));
	cluster_run(c, 500);
	assert_true(guard_ready(&c->node[0].guard));
	assert_int_equal(c->node[0].guard.stats.barriers, 1);
	assert_false(guard_ready(&c->node[1].guard));
	cluster_fini(c);
	free(c);
}

static void g6_a_failed_write_in_the_library_is_a_fault(void **state)
{
	struct cluster *c = calloc(1, sizeof(*c));

	(void)state;
	assert_non_null(c);
	cluster_init(c, 1, GUARD_ALL);
	cluster_run(c, 500);
	assert_true(guard_ready(&c->node[0].guard));
	raft_fixture_io_fault(&c->f, 0, 0, 1);
	(void)cluster_apply(c, 0, 1);
	cluster_run(c, 500);
	assert_true(c->node[0].faulted);
	assert_int_equal(c->node[0].fault, GUARD_DISK);
	cluster_fini(c);
	free(c);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(g3_votes_are_asked_for_with_what_is_stored),
		T(g3_no_election_while_own_writes_are_in_flight),
		T(g3_timeout_now_waits_for_the_writes),
		T(g3_an_install_in_flight_counts_as_a_write),
		T(what_is_cut_off_while_in_flight_is_not_stored),
		T(g4_a_configuration_cut_off_ends_after_the_next_write),
		T(g4_entries_cut_off_behind_the_configuration_do_not_matter),
		T(g6_each_failed_write_is_a_fault_of_the_disk),
		T(g6_what_is_cancelled_is_no_fault),
		T(g9_the_sidecar_is_written_first),
		T(g9_a_promise_that_could_not_be_written_is_not_made),
		T(a_library_that_gave_up_is_a_fault),
		T(a_leaders_commit_is_believed_up_to_its_message),
		T(an_answer_goes_no_further_than_what_this_leader_showed),
		T(an_answer_goes_no_further_than_what_is_stored),
		cmocka_unit_test(g4_a_change_taken_back_ends_the_process),
		cmocka_unit_test(g4_also_behind_a_snapshot_where_the_library_falls_over),
		cmocka_unit_test(gt_an_only_voter_leads_in_a_term_of_its_own),
		cmocka_unit_test(g1_a_leader_is_ready_when_its_barrier_is_applied),
		cmocka_unit_test(g6_a_failed_write_in_the_library_is_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
