/* SPDX-License-Identifier: BSD-3-Clause */
// Commands of meta.sock about the group: who is in it, making and joining one, changing its members. Run
// by the loop.
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base_log.h"
#include "base_time.h"
#include "metad.h"
#include "store_cluster.h"

static bool must_be_member(struct metad *metad, struct ctl_request *request)
{
	if (metad->group == METAD_MEMBER && !metad->stopping)
		return true;
	ctl_fail(request, metad->stopping ? "stopping" : "not_ready", "%s",
		metad->stopping ? "the meta process is stopping, try again"
				: "no group yet: tagcastctl meta bootstrap, or meta join --via");
	return false;
}

bool metad_must_wait(struct metad *metad, struct ctl_request *request)
{
	if (metad->stopping)
		ctl_fail(request, "stopping", "the meta process is stopping");
	else if (metad->group == METAD_MEMBER)
		ctl_fail(request, "already_member", "this node is a member of a group already");
	else if (metad->group != METAD_WAITING)
		ctl_fail(request, "busy", "a join or restore is under way");
	else
		return true;
	return false;
}

// --- looking ------------------------------------------------------------------------------------------------

static json_t *member_row(const struct cons_member *member)
{
	char chain[20];

	snprintf(chain, sizeof(chain), "%016llx", (unsigned long long)member->chain);
	return json_pack("[I,s,b,b,s,I,s]", (json_int_t)member->id,
		cons_role_name((enum cons_role)member->role), (int)member->is_leader,
		(int)member->connected, member->address[0] != '\0' ? member->address : "none",
		(json_int_t)member->applied_index, member->applied_index != 0 ? chain : "unknown");
}

void metad_members(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	struct cons_member members[CONS_MEMBERS_MAX];
	json_t *rows;
	uint32_t count;

	if (!args_known(request, args, "") || !must_be_member(metad, request))
		return;
	count = metad->cons_ops->members(metad->raft, members, CONS_MEMBERS_MAX);
	rows = json_array();
	for (uint32_t i = 0; i < count; i++)
		json_array_append_new(rows, member_row(&members[i]));
	ctl_reply(request, json_pack("{s:[s,s,s,s,s,s,s],s:o}", "columns", "node", "role", "leader",
				   "connected", "address", "applied", "chain", "rows", rows));
}

// --- a group of one, or another's ----------------------------------------------------------------------------

void metad_bootstrap(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_bootstrap(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	enum raft_cons_refusal refusal;
	const char *why = "";

	if (!args_known(request, args, "") || !metad_must_wait(metad, request))
		return;
	refusal = metad_group_bootstrap(metad, &why);
	if (refusal != RAFT_REFUSED_NOT) {
		ctl_fail(request, "refused", "%s", why);
		return;
	}
	LOG(LOG_INFO, "meta", "META_BOOTSTRAP", "a group of this node alone, cluster %llu",
		(unsigned long long)metad->options.cluster_id);
	// It leads within an election.
	(void)metad_call_begin(metad, request, CALL_READY, NULL, NULL);
}

// A join looks the address up first, in libuv's pool.
struct join_lookup {
	uv_getaddrinfo_t lookup;
	struct metad *metad;
	struct ctl_request *request;
	char via[CONF_PATH_MAX];
};

static void join_fail(struct join_lookup *join, const char *code, const char *what, const char *why)
{
	join->metad->group = METAD_WAITING;
	ctl_fail(join->request, code, "%s: %s%s", join->via, what, why);
	free(join);
}

static void join_found(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found) META_ONLY;
static void join_found(uv_getaddrinfo_t *lookup, int status, struct addrinfo *found)
{
	struct join_lookup *join = lookup->data;
	struct metad *metad = join->metad;
	char ip[NI_MAXHOST] = "", via[CONS_ADDRESS_MAX];
	enum raft_cons_refusal refusal;
	const char *why = "";
	uint64_t token;

	if (status == 0 && getnameinfo(found->ai_addr, found->ai_addrlen, ip, sizeof(ip), NULL, 0,
				   NI_NUMERICHOST) != 0)
		ip[0] = '\0';
	uv_freeaddrinfo(found);
	if (ip[0] == '\0') {
		join_fail(join, "invalid_argument",
			"no such address: ", status != 0 ? uv_strerror(status) : "unknown");
		return;
	}
	snprintf(via, sizeof(via), "%.40s%s", ip, strrchr(join->via, ':'));
	token = metad_call_begin(metad, join->request, CALL_JOIN, NULL, NULL);
	if (token == 0) {
		metad->group = METAD_WAITING;
	} else {
		refusal = raft_cons_join(metad->raft, via, token, &why);
		if (refusal != RAFT_REFUSED_NOT)
			metad_call_done(metad, token, CONS_REFUSED, why);
	}
	free(join);
}

void metad_join(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_join(void *ctx, struct ctl_request *request, const json_t *args)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct metad *metad = ctx;
	struct join_lookup *join;
	char host[CONF_PATH_MAX];
	const char *colon;

	if (!args_known(request, args, "via") || !metad_must_wait(metad, request))
		return;
	if (metad->options.raft_address[0] == '\0') {
		ctl_fail(request, "no_address",
			"this node has no meta.raft_address, so that no other can reach it");
		return;
	}
	join = calloc(1, sizeof(*join));
	if (join == NULL) {
		ctl_fail(request, "busy", "no memory");
		return;
	}
	join->metad = metad;
	join->request = request;
	join->lookup.data = join;
	if (!args_text(request, args, "via", join->via, sizeof(join->via))) {
		free(join);
		return;
	}
	colon = strrchr(join->via, ':');
	if (colon == NULL || colon == join->via || strtoul(colon + 1, NULL, 10) < 1 ||
		strtoul(colon + 1, NULL, 10) > 65535 || strlen(colon) > 6) {
		ctl_fail(request, "invalid_argument",
			"via is address:port of a member, its meta.raft_address");
		free(join);
		return;
	}
	metad->group = METAD_JOINING;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - join->via), join->via);
	if (uv_getaddrinfo(&metad->loop, &join->lookup, join_found, host, NULL, &hints) != 0)
		join_fail(join, "internal", "cannot look it up", "");
}

// --- changes ------------------------------------------------------------------------------------------------

static void change_members(struct metad *metad, struct ctl_request *request, const json_t *args,
	enum cons_change_op op) META_ONLY;
static void change_members(struct metad *metad, struct ctl_request *request, const json_t *args,
	enum cons_change_op op)
{
	struct cons_change change = {.op = (uint8_t)op};
	enum cons_status status;
	uint64_t token;

	if (!args_known(request, args, "node") ||
		!args_number(request, args, "node", 1, INT64_MAX, 0, &change.id) ||
		!must_be_member(metad, request))
		return;
	if (change.id == 0 && op != CONS_TRANSFER) {
		ctl_fail(request, "invalid_argument", "node is missing: the id of a member");
		return;
	}
	token = metad_call_begin(metad, request, CALL_CHANGE, NULL, NULL);
	if (token == 0)
		return;
	LOG(LOG_INFO, "meta", "META_CHANGE", "%s of node %llu asked",
		op == CONS_PROMOTE    ? "promotion"
		: op == CONS_DEMOTE   ? "demotion"
		: op == CONS_TRANSFER ? "leadership"
				      : "change",
		(unsigned long long)change.id);
	status = metad->cons_ops->change(metad->raft, &change, token);
	if (status != CONS_OK)
		metad_call_done(metad, token, status, "");
}

void metad_promote(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_promote(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_members(ctx, request, args, CONS_PROMOTE);
}

void metad_demote(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_demote(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_members(ctx, request, args, CONS_DEMOTE);
}

// --- removal ------------------------------------------------------------------------------------------------
// First the id becomes a tombstone in the replicated store, so that it can never come back without what it
// acknowledged; then the group lets it go. A removal that fails in between is repeated.

struct removal {
	struct metad *metad;
	struct ctl_request *request;
	struct cons_change change;
};

static int propose_node(struct removal *removal, uint8_t op) META_ONLY;

static void remove_member(struct removal *removal) META_ONLY;
static void remove_member(struct removal *removal)
{
	struct metad *metad = removal->metad;
	const uint64_t token = metad_call_begin(metad, removal->request, CALL_CHANGE, NULL, NULL);

	if (token != 0) {
		const enum cons_status status =
			metad->cons_ops->change(metad->raft, &removal->change, token);

		if (status != CONS_OK)
			metad_call_done(metad, token, status, "");
	}
	free(removal);
}

static void removal_fail(struct removal *removal, const char *code, const char *why)
{
	ctl_fail(removal->request, code, "node %llu: %s", (unsigned long long)removal->change.id,
		why);
	free(removal);
}

static void node_done(void *owner, const struct mutation *m) META_ONLY;
static void node_done(void *owner, const struct mutation *m)
{
	struct removal *removal = owner;
	const bool applied = m->outcome == MUTATION_OK &&
			     (m->result.code == STORE_R_OK || m->result.code == STORE_R_NO_CHANGE);

	if (m->outcome != MUTATION_OK) {
		removal_fail(removal,
			m->outcome == MUTATION_UNKNOWN      ? "unknown_outcome"
			: m->outcome == MUTATION_NOT_LEADER ? "not_leader"
							    : "busy",
			"nothing was removed yet, repeat it");
	} else if (!applied) {
		removal_fail(removal, "refused",
			"the cluster still needs it: it is active, or a slot names it; drain it "
			"first");
	} else if (m->op == STORE_NODE_JOIN) {
		if (propose_node(removal, STORE_NODE_STATE) != 0)
			removal_fail(removal, "busy", "too much waits already, try again");
	} else {
		remove_member(removal);
	}
}

static int propose_node(struct removal *removal, uint8_t op)
{
	struct store_node node = {.id = removal->change.id};
	struct store_command cmd;
	struct mutation *m = calloc(1, sizeof(*m));
	int rc;

	if (m == NULL)
		return -ENOMEM;
	m->op = op;
	m->stage_id = removal->change.id;
	m->owner = removal;
	m->on_done = node_done;
	if (op == STORE_NODE_STATE) {
		m->flags = STORE_NODE_REMOVED;
	} else {
		node.address_len = (uint8_t)strlen(removal->change.address);
		memcpy(node.address, removal->change.address, node.address_len);
		m->uids = malloc(STORE_BODY_MAX);
		if (m->uids == NULL || store_command_node(&cmd, &node, m->uids) != 0) {
			mutation_free(m);
			return -ENOMEM;
		}
		m->uids_bytes = cmd.body_bytes;
	}
	rc = meta_queue_submit(removal->metad->queue, m, time_now_ns());
	if (rc != 0)
		mutation_free(m);
	return rc;
}

// Finds the member. Returns: false after refusing.
static bool removable(struct removal *removal)
{
	struct metad *metad = removal->metad;
	struct cons_member members[CONS_MEMBERS_MAX], *found = NULL;
	const uint32_t count = metad->cons_ops->members(metad->raft, members, CONS_MEMBERS_MAX);
	uint32_t voters = 0;

	for (uint32_t i = 0; i < count; i++) {
		voters += members[i].role == CONS_VOTER;
		if (members[i].id == removal->change.id)
			found = &members[i];
	}
	if (found == NULL) {
		ctl_fail(removal->request, "not_found", "node %llu is no member; see meta members",
			(unsigned long long)removal->change.id);
		return false;
	}
	if (found->role == CONS_VOTER && voters == 1) {
		ctl_fail(removal->request, "refused",
			"node %llu is the only voter: promote another one first",
			(unsigned long long)removal->change.id);
		return false;
	}
	memcpy(removal->change.address, found->address, sizeof(found->address));
	return true;
}

static bool known_to_store(struct metad *metad, uint64_t id)
{
	struct store_node node;
	struct store_tx tx;
	int rc = meta_state_read(&metad->state, &tx);

	if (rc != 0)
		return false;
	rc = store_read_node(&tx, id, &node);
	meta_state_read_end(&metad->state, &tx);
	return rc == 0;
}

void metad_remove(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_remove(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	struct removal *removal;
	uint64_t id;

	if (!args_known(request, args, "node") ||
		!args_number(request, args, "node", 1, INT64_MAX, 0, &id) ||
		!must_be_member(metad, request))
		return;
	if (id == 0) {
		ctl_fail(request, "invalid_argument", "node is missing: the id of a member");
		return;
	}
	removal = calloc(1, sizeof(*removal));
	if (removal == NULL) {
		ctl_fail(request, "busy", "no memory");
		return;
	}
	removal->metad = metad;
	removal->request = request;
	removal->change.op = CONS_REMOVE;
	removal->change.id = id;
	if (!removable(removal)) {
		free(removal);
		return;
	}
	LOG(LOG_INFO, "meta", "META_CHANGE", "removal of node %llu asked", (unsigned long long)id);
	if (propose_node(removal, known_to_store(metad, id) ? STORE_NODE_STATE : STORE_NODE_JOIN) !=
		0)
		removal_fail(removal, "busy", "too much waits already, try again");
}

void metad_transfer(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_transfer(void *ctx, struct ctl_request *request, const json_t *args)
{
	change_members(ctx, request, args, CONS_TRANSFER);
}
