/* SPDX-License-Identifier: BSD-3-Clause */
// Requests whose answer is the group's: changes of members, barriers, a join, and the first moment it is
// ready. Each has a token of its own range, apart from those of the queue's batches. Run by the loop.
#include <stdlib.h>
#include <string.h>

#include "base_time.h"
#include "metad.h"

#define CALL_BIT (UINT64_C(1) << 63)  // no batch of the queue ever has it
#define CALLS_MAX 4096u
#define CALL_WAIT_NS (120 * NS_PER_S)  // the engine is quicker; this is for one that never answers

struct metad_call {
	struct metad_call *next;
	uint64_t token, deadline_ns;
	enum metad_call_kind kind;
	struct ctl_request *request;
	metad_handler handler;
	json_t *args;
};

void metad_call_fail(struct ctl_request *request, enum cons_status status, const char *why)
{
	static const struct {
		const char *code, *why, *text;  // why: when the engine gives no reason
	} known[] = {
		[CONS_OK] = {"internal", "no fault", "?"},
		[CONS_NOT_LEADER] = {"not_leader", "no leader is known",
			"; a majority of the voters must run and reach each other"},
		[CONS_BUSY] = {"busy", "too much is in flight", "; try again"},
		[CONS_TOO_LARGE] = {"too_large", "over the limit of one entry", ""},
		[CONS_UNKNOWN] = {"unknown_outcome", "the leader changed meanwhile",
			"; it may have been done or not: look at the members, then repeat it"},
		[CONS_FAILED] = {"internal", "the log failed",
			"; the meta process is about to restart"},
		[CONS_REFUSED] = {"refused", "not allowed now", ""},
	};
	const size_t row = (size_t)status < sizeof(known) / sizeof(known[0]) ? (size_t)status : 0;

	ctl_fail(request, known[row].code, "%s%s",
		why != NULL && why[0] != '\0' ? why : known[row].why, known[row].text);
}

static void call_free(struct metad_call *call)
{
	json_decref(call->args);
	free(call);
}

uint64_t metad_call_begin(struct metad *metad, struct ctl_request *request,
	enum metad_call_kind kind, metad_handler handler, const json_t *args)
{
	struct metad_call *call, **at = &metad->calls;
	uint32_t count = 0;

	for (call = metad->calls; call != NULL; call = call->next)
		count++;
	call = count < CALLS_MAX ? calloc(1, sizeof(*call)) : NULL;
	if (call == NULL) {
		ctl_fail(
			request, "busy", "too many requests wait for the group already, try again");
		return 0;
	}
	call->token = CALL_BIT | ++metad->next_call;
	call->deadline_ns = time_now_ns() + CALL_WAIT_NS;
	call->kind = kind;
	call->request = request;
	call->handler = handler;
	call->args = json_incref((json_t *)args);
	while (*at != NULL)
		at = &(*at)->next;
	*at = call;
	return call->token;
}

static struct metad_call *call_take(struct metad *metad, uint64_t token)
{
	struct metad_call **at = &metad->calls, *call;

	while (*at != NULL && (*at)->token != token)
		at = &(*at)->next;
	call = *at;
	if (call != NULL)
		*at = call->next;
	return call;
}

static void finish_join(struct metad *metad, struct metad_call *call, enum cons_status status,
	const char *why) META_ONLY;
static void finish_join(
	struct metad *metad, struct metad_call *call, enum cons_status status, const char *why)
{
	if (status == CONS_OK && metad_group_joined(metad, &why) != RAFT_REFUSED_NOT)
		status = CONS_FAILED;
	if (status != CONS_OK) {
		if (metad->group == METAD_JOINING)
			metad->group = METAD_WAITING;
		metad_call_fail(call->request, status, why);
		return;
	}
	ctl_reply(call->request,
		json_pack("{s:{s:I,s:s}}", "fields", "node", (json_int_t)metad->options.node_id,
			"role", cons_role_name(CONS_STANDBY)));
}

void metad_call_done(void *ctx, uint64_t token, enum cons_status status, const char *why)
{
	struct metad *metad = ctx;
	struct metad_call *call = (token & CALL_BIT) != 0 ? call_take(metad, token) : NULL;

	if (token == METAD_KNOWN_TOKEN) {
		metad->asked = false;
		if (status == CONS_OK && !metad->was_ready)
			metad_group_known(metad);
		return;
	}
	if (call == NULL)
		return;
	if (call->kind == CALL_JOIN)
		finish_join(metad, call, status, why);
	else if (status != CONS_OK)
		metad_call_fail(call->request, status, why);
	else if (call->handler != NULL)
		call->handler(metad, call->request, call->args);
	else
		ctl_reply(call->request, NULL);
	call_free(call);
}

void metad_call_tick(struct metad *metad, uint64_t now_ns)
{
	struct metad_call **at = &metad->calls;
	const bool ready = metad_group_ready(metad);

	while (*at != NULL) {
		struct metad_call *call = *at;
		const bool here = call->kind == CALL_READY && ready;

		if (!here && now_ns < call->deadline_ns) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		if (here)
			ctl_reply(call->request, json_pack("{s:{s:I,s:s}}", "fields", "node",
							 (json_int_t)metad->options.node_id, "role",
							 cons_role_name(CONS_VOTER)));
		else
			metad_call_fail(call->request, CONS_UNKNOWN, "no answer in time");
		if (call->kind == CALL_JOIN && metad->group == METAD_JOINING)
			metad->group = METAD_WAITING;
		call_free(call);
	}
}

uint64_t metad_call_next_ns(const struct metad *metad)
{
	uint64_t next_ns = UINT64_MAX;

	for (const struct metad_call *call = metad->calls; call != NULL; call = call->next)
		if (call->deadline_ns < next_ns)
			next_ns = call->deadline_ns;
	return next_ns;
}

void metad_call_drop(struct metad *metad)
{
	struct metad_call *call;

	while ((call = metad->calls) != NULL) {
		metad->calls = call->next;
		metad_call_fail(call->request, CONS_UNKNOWN, "the meta process is stopping");
		call_free(call);
	}
}

bool metad_linearizable(
	struct metad *metad, struct ctl_request *request, metad_handler handler, const json_t *args)
{
	const json_t *want = json_object_get(args, "linearizable");
	enum cons_status status;
	json_t *again;
	uint64_t token;

	if (want == NULL || json_is_false(want))
		return false;
	if (!json_is_true(want)) {
		ctl_fail(request, "invalid_argument", "linearizable is true or false");
		return true;
	}
	// The second time it is read as it is.
	again = json_copy((json_t *)args);
	json_object_set_new(again, "linearizable", json_false());
	token = metad_call_begin(metad, request, CALL_BARRIER, handler, again);
	json_decref(again);
	if (token == 0)
		return true;
	status = metad->cons_ops->barrier(metad->raft, token);
	if (status != CONS_OK)
		metad_call_done(metad, token, status, "");
	return true;
}
