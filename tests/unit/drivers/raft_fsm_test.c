/* SPDX-License-Identifier: BSD-3-Clause */
// The state machine between library and consumer, called as the library calls it: what is offered when,
// what is answered when, snapshots and restores.
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_time.h"
#include "raft_pvt.h"

static struct raft_cons *c;
static char story[2048];
static uint32_t take;  // 0: all
static int begin_rc, restore_rc;
static bool restore_works;
static uint64_t encode_bytes, chain_applied;

static __attribute__((format(printf, 1, 2))) void tell(const char *format, ...)
{
	const size_t at = strlen(story);
	va_list args;

	va_start(args, format);
	vsnprintf(story + at, sizeof(story) - at, format, args);
	va_end(args);
}

static int on_commit(void *ctx, const struct cons_commit *commits, uint32_t count)
{
	const uint32_t n = take != 0 && take < count ? take : count;

	(void)ctx;
	for (uint32_t i = 0; i < n; i++)
		tell("%llu:%.*s/%llu ", (unsigned long long)commits[i].index, (int)commits[i].len,
			(const char *)commits[i].data, (unsigned long long)commits[i].token);
	return (int)n;
}

static void on_result(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	(void)ctx;
	(void)why;
	tell("%llu=%d ", (unsigned long long)token, status);
}

static int snapshot_begin(void *ctx, void **snapshot)
{
	(void)ctx;
	*snapshot = c;
	tell("begin ");
	return begin_rc;
}

static int snapshot_encode(void *snapshot, const struct cons_sink *sink)
{
	static const uint8_t some[1000] = {7};
	uint64_t left = encode_bytes;
	int rc = 0;

	(void)snapshot;
	if (left > RAFT_SNAPSHOT_BYTES_MAX)
		return sink->write(sink->ctx, some, left);  // refused before it is read
	while (left > 0 && rc == 0) {
		const uint64_t n = left < sizeof(some) ? left : sizeof(some);

		rc = sink->write(sink->ctx, some, n);
		left -= n;
	}
	return rc;
}

static void snapshot_end(void *ctx, void *snapshot)
{
	(void)ctx;
	(void)snapshot;
	tell("end ");
}

static int restore_begin(void *ctx, const uint8_t *bytes, uint64_t len)
{
	(void)ctx;
	tell("restore(%.*s) ", (int)len, (const char *)bytes);
	return 0;
}

static int restore_turn(void *ctx)
{
	const uint64_t end_ns = time_now_ns() + (restore_works ? NS_PER_MS : 0);

	(void)ctx;
	while (time_now_ns() < end_ns)
		;
	return restore_rc;
}

static uint64_t chain(void *ctx, uint64_t *applied)
{
	(void)ctx;
	*applied = chain_applied;
	return 1;
}

static const struct cons_events events = {
	.on_commit = on_commit,
	.on_result = on_result,
	.snapshot_begin = snapshot_begin,
	.snapshot_encode = snapshot_encode,
	.snapshot_end = snapshot_end,
	.restore_begin = restore_begin,
	.restore_turn = restore_turn,
	.chain = chain,
};

static int setup(void **state)
{
	(void)state;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -1;
	c->params = (struct raft_cons_params){.node_id = 7, .snapshot_entries = 100};
	c->params.applied_index = 10;
	c->events = &events;
	c->life = 77;
	c->started = true;
	c->raft.state = RAFT_FOLLOWER;
	c->raft.last_applied = 10;
	c->guard.stored_index = 1000;
	c->guard.raft = &c->raft;
	core_init(c);
	fsm_init(c);
	story[0] = 0;
	take = 0;
	begin_rc = restore_rc = 0;
	restore_works = false;
	encode_bytes = 100;
	chain_applied = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fsm_fini(c);
	core_fini(c);
	free(c);
	return 0;
}

// As the library: the entry of index last_applied + 1.
static void apply(const char *data, uint64_t node, uint64_t life, uint64_t token)
{
	uint64_t bytes[8] = {node, life, token, (uint64_t)strlen(data) << 32 | 1};
	struct raft_buffer buf = {.base = bytes, .len = sizeof(bytes)};
	void *result;

	memcpy(&bytes[4], data, strlen(data));
	assert_int_equal(c->fsm.ops.apply(&c->fsm.ops, &buf, &result), 0);
	c->raft.last_applied++;
}

static void other(const char *data)
{
	apply(data, 8, 1, 5);
}

static uint8_t turn(void)
{
	uint8_t busy = 0;

	assert_int_equal(fsm_turn(c, &busy), 0);
	core_turn(c, &busy);
	return busy;
}

static int snapshot(void)
{
	struct raft_buffer *bufs;
	unsigned n;

	return c->fsm.ops.snapshot(&c->fsm.ops, &bufs, &n);
}

static void restore(const char *text)
{
	struct raft_buffer buf = {.base = raft_malloc(strlen(text)), .len = strlen(text)};

	memcpy(buf.base, text, strlen(text));
	assert_int_equal(c->fsm.ops.restore(&c->fsm.ops, &buf), 0);
}

static void entries_are_offered_in_order_with_their_indexes(void **state)
{
	(void)state;
	other("a");
	other("b");
	c->raft.last_applied++;  // a barrier's index
	other("c");
	assert_string_equal(story, "");
	assert_false(turn());
	assert_string_equal(story, "11:a/0 12:b/0 14:c/0 ");
}

static void f18_what_the_store_has_is_not_offered(void **state)
{
	(void)state;
	c->raft.last_applied = 8;
	other("i");
	other("j");
	other("k");
	turn();
	assert_string_equal(story, "11:k/0 ");
	assert_int_equal(c->stats.replays_skipped, 2);
}

static void what_is_not_on_this_disk_is_not_offered(void **state)
{
	(void)state;
	c->guard.stored_index = 11;
	other("a");
	other("b");
	turn();
	assert_string_equal(story, "11:a/0 ");
	assert_int_equal(snapshot(), RAFT_BUSY);
	c->guard.stored_index = 12;
	turn();
	assert_string_equal(story, "11:a/0 12:b/0 ");
}

static void f16_an_answer_follows_the_commit_it_is_for(void **state)
{
	(void)state;
	take = 1;
	core_open_new(c, 1, OPEN_PROPOSAL);
	core_open_new(c, 2, OPEN_PROPOSAL);
	apply("a", 7, 77, 1);
	apply("b", 7, 77, 2);
	assert_true(turn());
	assert_string_equal(story, "11:a/1 1=0 ");
	assert_false(turn());
	assert_string_equal(story, "11:a/1 1=0 12:b/2 2=0 ");
}

static void a_token_is_shown_for_this_life_and_while_open(void **state)
{
	(void)state;
	core_open_new(c, 1, OPEN_PROPOSAL);
	apply("a", 7, 76, 1);  // another life
	apply("b", 8, 77, 1);  // another node
	turn();
	assert_string_equal(story, "11:a/0 12:b/0 ");
	// Answered as unknown: what comes later is like anybody's.
	core_answer(c, 1, CONS_UNKNOWN, "lost");
	apply("c", 7, 77, 1);
	turn();
	assert_string_equal(story, "11:a/0 12:b/0 13:c/0 1=4 ");
}

static void a_barrier_is_answered_when_its_index_is_reached(void **state)
{
	(void)state;
	take = 1;
	core_open_new(c, 9, OPEN_BARRIER);
	other("a");
	other("b");
	core_barrier_at(c, 9, 13);
	turn();
	turn();
	assert_string_equal(story, "11:a/0 12:b/0 ");
	c->raft.last_applied++;  // the barrier's own entry
	turn();
	assert_string_equal(story, "11:a/0 12:b/0 9=0 ");
}

static void f7_no_snapshot_while_a_configuration_is_not_committed(void **state)
{
	(void)state;
	c->raft.configuration_uncommitted_index = 9;
	assert_int_equal(snapshot(), RAFT_BUSY);
	assert_string_equal(story, "");
	c->raft.configuration_uncommitted_index = 0;
	assert_int_equal(snapshot(), 0);
	assert_string_equal(story, "begin ");
}

static void a_snapshot_waits_for_the_queue(void **state)
{
	struct raft_buffer *bufs = NULL;
	unsigned n = 0;

	(void)state;
	other("a");
	other("b");
	assert_int_equal(snapshot(), 0);
	assert_string_equal(story, "11:a/0 12:b/0 begin ");
	// One at a time.
	assert_int_equal(snapshot(), RAFT_BUSY);
	assert_int_equal(c->fsm.ops.snapshot_async(&c->fsm.ops, &bufs, &n), 0);
	assert_int_equal(c->fsm.ops.snapshot_finalize(&c->fsm.ops, &bufs, &n), 0);
	assert_string_equal(story, "11:a/0 12:b/0 begin end ");
	begin_rc = -EBUSY;
	assert_int_equal(snapshot(), RAFT_BUSY);
	begin_rc = -EIO;
	assert_int_equal(snapshot(), RAFT_BUSY);
}

// Started anew, the library applies again what the store has.
static void no_snapshot_before_the_library_is_where_the_store_is(void **state)
{
	(void)state;
	c->raft.last_applied = 8;
	other("i");
	assert_int_equal(snapshot(), RAFT_BUSY);
	other("j");
	assert_int_equal(snapshot(), 0);
}

static void no_proposal_from_inside_a_commit(void **state)
{
	const struct raft_origin origin = {7, 77, 1};

	(void)state;
	c->raft.state = RAFT_LEADER;
	c->raft.current_term = c->guard.ready_term = 3;
	c->in_library = true;
	assert_int_equal(core_lead_propose(c, &origin, (const uint8_t *)"a", 1), CONS_BUSY);
}

static void a_snapshot_is_encoded_in_chunks_up_to_its_limit(void **state)
{
	struct raft_buffer *bufs = NULL;
	uint64_t sum = 0;
	unsigned n = 0;

	(void)state;
	encode_bytes = 9000001;
	assert_int_equal(snapshot(), 0);
	assert_int_equal(c->fsm.ops.snapshot_async(&c->fsm.ops, &bufs, &n), 0);
	assert_int_equal(n, 3);
	for (unsigned i = 0; i < n; i++)
		sum += bufs[i].len;
	assert_int_equal(sum, encode_bytes);
	assert_int_equal(((uint8_t *)bufs[2].base)[bufs[2].len - 1], 7);
	c->fsm.ops.snapshot_finalize(&c->fsm.ops, &bufs, &n);
	assert_int_equal(c->stats.snapshots, 1);
	encode_bytes = RAFT_SNAPSHOT_BYTES_MAX + 1;
	assert_int_equal(snapshot(), 0);
	assert_int_not_equal(c->fsm.ops.snapshot_async(&c->fsm.ops, &bufs, &n), 0);
	c->fsm.ops.snapshot_finalize(&c->fsm.ops, &bufs, &n);
	assert_int_equal(c->stats.snapshots, 1);
	assert_string_equal(story, "begin end begin end ");
}

static void a_restore_replaces_what_waits_and_holds_what_comes(void **state)
{
	(void)state;
	core_open_new(c, 1, OPEN_PROPOSAL);
	other("a");
	apply("b", 7, 77, 1);
	restore("S");
	c->raft.last_applied = 50;
	other("z");
	chain_applied = 49;
	assert_int_equal(snapshot(), RAFT_BUSY);
	restore_works = true;
	assert_true(turn());
	// What was in the queue is in the snapshot; its results are not.
	assert_string_equal(story, "restore(S) 1=4 ");
	// Nothing to do here while others work.
	restore_works = false;
	assert_false(turn());
	assert_string_equal(story, "restore(S) 1=4 ");
	restore_rc = 1;
	turn();
	assert_int_equal(c->fsm.taken_index, 49);
	turn();
	assert_string_equal(story, "restore(S) 1=4 51:z/0 ");
}

static void a_restore_during_a_restore_comes_after_it(void **state)
{
	(void)state;
	restore("S");
	turn();
	restore("T");
	restore("U");
	turn();
	assert_string_equal(story, "restore(S) ");
	restore_rc = 1;
	assert_true(turn());
	assert_true(c->fsm.restoring);
	turn();
	assert_false(c->fsm.restoring);
	assert_string_equal(story, "restore(S) restore(U) ");
}

static void a_failed_restore_or_commit_is_passed_on(void **state)
{
	uint8_t busy = 0;

	(void)state;
	restore("S");
	restore_rc = -EIO;
	assert_int_equal(fsm_turn(c, &busy), -EIO);
}

static void an_entry_of_no_known_form_ends_the_process(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		uint64_t bytes[4] = {1, 2, 3, UINT64_C(1) << 32 | 9};
		struct raft_buffer buf = {.base = bytes, .len = sizeof(bytes)};
		void *result;

		c->fsm.ops.apply(&c->fsm.ops, &buf, &result);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == RAFT_EXIT_LIBRARY);
}

static void each_error_has_a_text(void **state)
{
	(void)state;
	for (int i = 1; i <= RAFT_TOOMANY; i++)
		assert_string_not_equal(core_error(i), "unknown error");
	assert_string_equal(core_error(99), "unknown error");
	assert_string_equal(core_error(-1), "unknown error");
	assert_string_equal(core_error(RAFT_NOSPACE), "the disk is full");
}

static void a_configuration_is_decoded_or_refused(void **state)
{
	struct raft_configuration conf;
	struct cons_member members[2];
	struct raft_buffer buf;

	(void)state;
	raft_configuration_init(&conf);
	assert_int_equal(raft_configuration_add(&conf, 3, "10.0.0.3:7000", RAFT_VOTER), 0);
	assert_int_equal(raft_configuration_add(&conf, 4, "10.0.0.4:7000", RAFT_STANDBY), 0);
	assert_int_equal(raft_configuration_encode(&conf, &buf), 0);
	raft_configuration_close(&conf);
	assert_int_equal(files_decode_members(buf.base, buf.len, members, 2), 2);
	assert_true(members[0].id == 3 && members[0].role == CONS_VOTER);
	assert_true(members[1].id == 4 && members[1].role == CONS_STANDBY);
	assert_string_equal(members[1].address, "10.0.0.4:7000");
	assert_int_equal(files_decode_members(buf.base, buf.len, members, 1), -EBADMSG);
	for (size_t len = 0; len < 9 + 2 * (8 + 14 + 1); len++) {
		uint8_t *exact = malloc(len == 0 ? 1 : len);

		assert_non_null(exact);
		memcpy(exact, buf.base, len);
		assert_int_equal(files_decode_members(exact, len, members, 2), -EBADMSG);
		free(exact);
	}
	((uint8_t *)buf.base)[0] = 2;
	assert_int_equal(files_decode_members(buf.base, buf.len, members, 2), -EBADMSG);
	raft_free(buf.base);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(entries_are_offered_in_order_with_their_indexes),
		T(f18_what_the_store_has_is_not_offered),
		T(what_is_not_on_this_disk_is_not_offered),
		T(f16_an_answer_follows_the_commit_it_is_for),
		T(a_token_is_shown_for_this_life_and_while_open),
		T(a_barrier_is_answered_when_its_index_is_reached),
		T(f7_no_snapshot_while_a_configuration_is_not_committed),
		T(a_snapshot_waits_for_the_queue),
		T(no_snapshot_before_the_library_is_where_the_store_is),
		T(no_proposal_from_inside_a_commit),
		T(a_snapshot_is_encoded_in_chunks_up_to_its_limit),
		T(a_restore_replaces_what_waits_and_holds_what_comes),
		T(a_restore_during_a_restore_comes_after_it),
		T(a_failed_restore_or_commit_is_passed_on),
		T(an_entry_of_no_known_form_ends_the_process),
		T(each_error_has_a_text),
		T(a_configuration_is_decoded_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
