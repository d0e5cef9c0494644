/* SPDX-License-Identifier: BSD-3-Clause */
// Commands of meta.sock that change something: request in, mutation into the queue, answer when it is
// committed and the fast process acts on it. Run by the loop; sorting of large UID lists by its pool.
#include "metad.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

// Sorting of a large UID list, or parsing of a large line.
struct work {
	struct meta_job job;
	struct metad *metad;
	struct mutation *m;
	struct ctl_job *line;
};

static void parse_run(struct meta_job *job)
{
	ctl_job_run(((struct work *)job)->line);
}

static void parse_done(struct meta_job *job)
{
	struct work *work = (struct work *)job;

	ctl_job_done(work->line);
	free(work);
}

static bool parse_elsewhere(void *ctx, struct ctl_job *line) META_ONLY;
static bool parse_elsewhere(void *ctx, struct ctl_job *line)
{
	struct metad *metad = ctx;
	struct work *work = calloc(1, sizeof(*work));

	if (work == NULL)
		return false;
	work->job.run = parse_run;
	work->job.done = parse_done;
	work->line = line;
	meta_pool_submit(metad->pool, META_SHORT, &work->job);
	return true;
}

const struct ctl_elsewhere metad_elsewhere = {parse_elsewhere, args_take_uids, args_drop_uids};

static void prepare_run(struct meta_job *job)
{
	struct work *work = (struct work *)job;

	if (mutation_prepare(work->m) != 0)
		LOG(LOG_WARN, "ctl", "META_SORT",
			"no memory to sort UIDs, they are taken as they come");
}

static void prepare_done(struct meta_job *job) META_ONLY;
static void prepare_done(struct meta_job *job)
{
	struct work *work = (struct work *)job;

	meta_queue_prepared(work->metad->queue, work->m);
	free(work);
}

// Hands the mutation to the queue, and its UIDs to the pool when there are many.
static void submit(struct metad *metad, struct mutation *m, struct ctl_request *request) META_ONLY;
static void submit(struct metad *metad, struct mutation *m, struct ctl_request *request)
{
	struct work *work = NULL;

	m->owner = request;
	if (mutation_large(m)) {
		work = calloc(1, sizeof(*work));
		m->preparing = work != NULL;
	}
	if (meta_queue_submit(metad->queue, m, time_now_ns()) != 0) {
		free(work);
		mutation_free(m);
		ctl_fail(request, "busy", "too many mutations wait already, try again");
		return;
	}
	if (work == NULL)
		return;
	work->job.run = prepare_run;
	work->job.done = prepare_done;
	work->metad = metad;
	work->m = m;
	meta_pool_submit(metad->pool, META_SHORT, &work->job);
}

// What all mutations have in common. Returns: NULL after refusing.
static struct mutation *begin(struct metad *metad, struct ctl_request *request, const json_t *args,
	uint8_t op, const char *names)
{
	uint64_t wait_ms = metad->options.answer_wait_ns / NS_PER_MS;
	struct mutation *m;
	bool given;

	if (metad->stopping) {
		ctl_fail(request, "stopping", "the meta process is stopping, try again");
		return NULL;
	}
	if (metad->group != METAD_MEMBER) {
		ctl_fail(request, "not_ready",
			"no group yet: tagcastctl meta bootstrap, or meta join --via");
		return NULL;
	}
	if (!args_known(request, args, names) ||
		!args_number(request, args, "wait_ms", 1, 3600000, wait_ms, &wait_ms))
		return NULL;
	m = calloc(1, sizeof(*m));
	if (m == NULL) {
		ctl_fail(request, "busy", "no memory");
		return NULL;
	}
	m->op = op;
	m->answer_ns = time_now_ns() + wait_ms * NS_PER_MS;
	if (!args_channel(request, args, &m->key) || !args_dedup(request, args, m->dedup, &given)) {
		mutation_free(m);
		return NULL;
	}
	if (!given)
		store_dedup_key(m->dedup, metad->state.position.commit, metad->dedup_unique++);
	return m;
}

static void change_list(
	struct metad *metad, struct ctl_request *request, const json_t *args, uint8_t op) META_ONLY;
static void change_list(
	struct metad *metad, struct ctl_request *request, const json_t *args, uint8_t op)
{
	struct mutation *m =
		begin(metad, request, args, op, "type,channel,list,uids,dedup,wait_ms");

	if (m == NULL)
		return;
	if (!args_list(request, args, &m->list) || !args_uids(request, args, m)) {
		mutation_free(m);
		return;
	}
	if (op != STORE_RESET && m->uid_count == 0) {
		mutation_free(m);
		ctl_fail(request, "invalid_uids", "uids is empty");
		return;
	}
	submit(metad, m, request);
}

static void channel_add(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
static void channel_add(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_list(ctx, request, args, STORE_ADD);
}

static void channel_remove(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
static void channel_remove(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_list(ctx, request, args, STORE_REMOVE);
}

static void channel_reset(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
static void channel_reset(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_list(ctx, request, args, STORE_RESET);
}

static void channel_remove_all(
	void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
static void channel_remove_all(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct mutation *m =
		begin(ctx, request, args, STORE_RESET, "type,channel,list,dedup,wait_ms");

	if (m == NULL)
		return;
	if (!args_list(request, args, &m->list)) {
		mutation_free(m);
		return;
	}
	submit(ctx, m, request);
}

static void change_flags(
	struct metad *metad, struct ctl_request *request, const json_t *args, uint8_t op) META_ONLY;
static void change_flags(
	struct metad *metad, struct ctl_request *request, const json_t *args, uint8_t op)
{
	struct mutation *m = begin(metad, request, args, op,
		"type,channel,large,ban,disband,send_ban,allow_stranger,dedup,wait_ms");

	if (m == NULL)
		return;
	if (!args_flags(request, args, &m->flags)) {
		mutation_free(m);
		return;
	}
	submit(metad, m, request);
}

static void channel_create(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
static void channel_create(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_flags(ctx, request, args, STORE_CHANNEL_CREATE);
}

static void channel_info(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
static void channel_info(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_flags(ctx, request, args, STORE_CHANNEL_UPDATE);
}

static void channel_delete(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
static void channel_delete(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct mutation *m =
		begin(ctx, request, args, STORE_CHANNEL_REMOVE, "type,channel,dedup,wait_ms");

	if (m != NULL)
		submit(ctx, m, request);
}

static void answer_result(struct ctl_request *request, const struct mutation *m)
{
	switch (m->result.code) {
	case STORE_R_OK:
	case STORE_R_NO_CHANGE:
		ctl_reply(request,
			json_pack("{s:I,s:I,s:I,s:I,s:b,s:b}", "commit",
				(json_int_t)m->result.commit, "smv", (json_int_t)m->result.smv,
				"changed", (json_int_t)m->result.changed, "members",
				(json_int_t)m->members, "applied", (int)m->applied, "repeated",
				(int)m->result.repeated));
		break;
	case STORE_R_NOT_FOUND:
		ctl_fail(request, "not_found", "no such channel");
		break;
	case STORE_R_EXPIRED:
		ctl_fail(request, "expired",
			"the dedup key is older than what is remembered: whether it "
			"was applied is no longer known, and it is not applied now");
		break;
	case STORE_R_LIMIT:
		ctl_fail(request, "limit", "over a limit of the store (%u UIDs in one command)",
			MUTATION_UIDS_MAX);
		break;
	default:
		ctl_fail(request, "invalid",
			"refused by the store (%s); is the commit number of the dedup "
			"key from this store?",
			store_result_name(m->result.code));
	}
}

static uint64_t get_u64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 7; i >= 0; i--)
		v = v << 8 | p[i];
	return v;
}

static void answer_unknown(struct ctl_request *request, const struct mutation *m)
{
	ctl_fail(request, "unknown_outcome",
		"it may have been applied or not; repeated with dedup %016" PRIx64 "%016" PRIx64
		" it is applied once at most",
		get_u64(m->dedup), get_u64(m->dedup + 8));
}

void metad_mutation_done(void *ctx, struct mutation *m)
{
	struct ctl_request *request = m->owner;

	(void)ctx;
	if (m->on_done != NULL) {
		m->on_done(m->owner, m);
	} else if (request != NULL) {
		switch (m->outcome) {
		case MUTATION_OK:
			answer_result(request, m);
			break;
		case MUTATION_BUSY:
			ctl_fail(request, "busy",
				"not applied: the channel has a large change open, or the group "
				"takes no more, try again");
			break;
		case MUTATION_NOT_LEADER:
			ctl_fail(request, "not_leader",
				"not applied: no leader is known; a majority of the voters must "
				"run and reach each other");
			break;
		default:
			answer_unknown(request, m);
		}
	}
	mutation_free(m);
}

const struct ctl_command metad_commands[] = {
	{"channel.add", channel_add},
	{"channel.remove", channel_remove},
	{"channel.reset", channel_reset},
	{"channel.remove_all", channel_remove_all},
	{"channel.create", channel_create},
	{"channel.info", channel_info},
	{"channel.delete", channel_delete},
	{"channel.list", metad_channel_list},
	{"channel.show", metad_channel_show},
	{"meta.status", metad_status},
	{"meta.members", metad_members},
	{"meta.bootstrap", metad_bootstrap},
	{"meta.join", metad_join},
	{"meta.promote", metad_promote},
	{"meta.demote", metad_demote},
	{"meta.remove", metad_remove},
	{"meta.transfer", metad_transfer},
	{"meta.backup", metad_backup},
	{"meta.verify", metad_verify},
	{"meta.restore", metad_restore},
};
const uint32_t metad_command_count = sizeof(metad_commands) / sizeof(metad_commands[0]);
