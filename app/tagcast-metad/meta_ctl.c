/* SPDX-License-Identifier: BSD-3-Clause */
// Commands of meta.sock that change something: request in, mutation into the queue, answer when it is
// committed and the fast process acts on it. Run by the loop; sorting of large UID lists by its pool.
#include "metad.h"

#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"

struct prepare_work {
	uv_work_t work;
	struct metad *metad;
	struct mutation *m;
};

static void prepare_run(uv_work_t *work)
{
	struct prepare_work *prepare = work->data;

	if (mutation_prepare(prepare->m) != 0)
		LOG(LOG_WARN, "ctl", "META_SORT",
			"no memory to sort UIDs, they are taken as they come");
}

static void prepare_after(uv_work_t *work, int status) META_ONLY;
static void prepare_after(uv_work_t *work, int status)
{
	struct prepare_work *prepare = work->data;

	(void)status;
	prepare->metad->preparing--;
	meta_queue_prepared(prepare->metad->queue, prepare->m);
	free(prepare);
}

// Hands the mutation to the queue, and its UIDs to the pool when there are many.
static void submit(struct metad *metad, struct mutation *m, struct ctl_request *request) META_ONLY;
static void submit(struct metad *metad, struct mutation *m, struct ctl_request *request)
{
	struct prepare_work *prepare = NULL;

	m->owner = request;
	if (mutation_large(m)) {
		prepare = calloc(1, sizeof(*prepare));
		m->preparing = prepare != NULL;
	}
	if (meta_queue_submit(metad->queue, m, time_now_ns()) != 0) {
		free(prepare);
		mutation_free(m);
		ctl_fail(request, "busy", "too many mutations wait already, try again");
		return;
	}
	if (prepare == NULL)
		return;
	prepare->work.data = prepare;
	prepare->metad = metad;
	prepare->m = m;
	metad->preparing++;
	if (uv_queue_work(&metad->loop, &prepare->work, prepare_run, prepare_after) != 0)
		prepare_after(&prepare->work, 0);
}

// What all mutations have in common. Returns: NULL after refusing.
static struct mutation *begin(struct metad *metad, struct ctl_request *request, const json_t *args,
	uint8_t op, const char *names)
{
	struct mutation *m;
	bool given;

	if (metad->stopping) {
		ctl_fail(request, "stopping", "the meta process is stopping, try again");
		return NULL;
	}
	if (!args_known(request, args, names))
		return NULL;
	m = calloc(1, sizeof(*m));
	if (m == NULL) {
		ctl_fail(request, "busy", "no memory");
		return NULL;
	}
	m->op = op;
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
	struct mutation *m = begin(metad, request, args, op, "type,channel,list,uids,dedup");

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
	struct mutation *m = begin(ctx, request, args, STORE_RESET, "type,channel,list,dedup");

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
		"type,channel,large,ban,disband,send_ban,allow_stranger,dedup");

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
	struct mutation *m = begin(ctx, request, args, STORE_CHANNEL_REMOVE, "type,channel,dedup");

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

void metad_mutation_done(void *ctx, struct mutation *m)
{
	struct ctl_request *request = m->owner;

	(void)ctx;
	if (request != NULL) {
		switch (m->outcome) {
		case MUTATION_OK:
			answer_result(request, m);
			break;
		case MUTATION_BUSY:
			ctl_fail(request, "busy",
				"not applied: the channel has a large change open, try again");
			break;
		case MUTATION_NOT_LEADER:
			ctl_fail(request, "not_leader", "not applied: another node leads");
			break;
		default:
			ctl_fail(request, "unknown_outcome",
				"it may have been applied or not; repeat it with "
				"the same dedup key");
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
};
const uint32_t metad_command_count = sizeof(metad_commands) / sizeof(metad_commands[0]);
