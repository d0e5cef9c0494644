/* SPDX-License-Identifier: BSD-3-Clause */
// What the guard asks of the core: promises to the sidecar, the end on a fault, and whether what the
// library loaded is what this node promised, acknowledged and applied. Context: the loop.
#include "raft_pvt.h"

#include <stdio.h>
#include <string.h>

static int promise(void *ctx, uint64_t term, uint64_t vote)
{
	struct raft_cons *c = ctx;

	return sidecar_promise(&c->sidecar, term, vote);
}

static void fault(void *ctx, enum guard_fault fault, int error, const char *what)
{
	const struct raft_cons *c = ctx;

	if (fault == GUARD_DISK)
		core_exit(RAFT_EXIT_DISK, "RAFT_DISK", "%s failed: %s (%s)", what,
			core_error(error), c->guard.io.errmsg);
	if (fault == GUARD_ROLLBACK)
		core_exit(RAFT_EXIT_ROLLBACK, "RAFT_ROLLBACK", "%s: the log is read again", what);
	core_exit(RAFT_EXIT_LIBRARY, "RAFT_LIBRARY", "the library gave up: %s (%s)", what,
		core_error(error));
}

// The promise on disk against the library's metadata.
enum raft_cons_refusal cons_check_promise(
	struct raft_cons *c, const struct guard_load *load, const char **why)
{
	const struct sidecar_record *r = &c->sidecar.record;
	struct raft_io *inner = &c->inner;

	switch (sidecar_compare(&c->sidecar, *load->term, *load->vote)) {
	case SIDECAR_SAME:
		return RAFT_REFUSED_NOT;
	case SIDECAR_AHEAD:
		// It ended between our write and the library's.
		if (inner->set_term(inner, r->term) != 0 ||
			(r->vote != 0 && inner->set_vote(inner, r->vote) != 0))
			return core_refuse(c, RAFT_REFUSED_FAULT, why,
				"the metadata could not be written: %s", inner->errmsg);
		*load->term = r->term;
		*load->vote = r->vote;
		return RAFT_REFUSED_NOT;
	default:
		return core_refuse(c, RAFT_REFUSED_AMNESIA, why,
			"the metadata says term %llu, vote %llu, where %llu, %llu were promised",
			*load->term, *load->vote, (unsigned long long)r->term,
			(unsigned long long)r->vote);
	}
}

int cons_members_of(
	const struct guard_load *load, struct cons_member *members, uint32_t max, uint64_t *index)
{
	static const uint8_t role[] = {[RAFT_STANDBY] = CONS_STANDBY,
		[RAFT_VOTER] = CONS_VOTER,
		[RAFT_SPARE] = CONS_SPARE};
	const struct raft_snapshot *snapshot = load->snapshot;

	for (size_t i = load->count; i > 0; i--) {
		const struct raft_entry *entry = &load->entries[i - 1];

		*index = load->first_index + i - 1;
		if (entry->type == RAFT_CHANGE)
			return files_decode_members(entry->buf.base, entry->buf.len, members, max);
	}
	*index = 0;
	if (snapshot == NULL)
		return 0;
	*index = snapshot->configuration_index;
	if (snapshot->configuration.n > max)
		return -EBADMSG;
	for (unsigned i = 0; i < snapshot->configuration.n; i++) {
		const struct raft_server *s = &snapshot->configuration.servers[i];

		if (s->role < 0 || (size_t)s->role >= sizeof(role))
			return -EBADMSG;
		members[i] = (struct cons_member){.id = s->id, .role = role[s->role]};
		snprintf(members[i].address, sizeof(members[i].address), "%s", s->address);
	}
	return (int)snapshot->configuration.n;
}

// This node's address in the newest configuration against the configured one.
static enum raft_cons_refusal check_address(
	struct raft_cons *c, const struct guard_load *load, const char **why)
{
	struct cons_member members[CONS_MEMBERS_MAX];
	uint64_t index = 0;
	const int count = cons_members_of(load, members, CONS_MEMBERS_MAX, &index);

	if (count < 0)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why,
			"the configuration at %llu cannot be read", (unsigned long long)index);
	for (int i = 0; i < count; i++) {
		if (members[i].id != c->params.node_id ||
			strcmp(members[i].address, c->raft.address) == 0)
			continue;
		if (count > 1)
			return core_refuse(c, RAFT_REFUSED_ADDRESS, why,
				"the group knows this node at %s, its configuration says %s: "
				"remove it and join it anew, or keep the address",
				members[i].address, c->raft.address);
		c->address_rewrite = true;
		return core_refuse(c, RAFT_REFUSED_ADDRESS, why, "the address is to be rewritten");
	}
	return RAFT_REFUSED_NOT;
}

// An only voter is leader as soon as it starts, in a term of its own (GT).
static enum raft_cons_refusal take_own_term(
	struct raft_cons *c, const struct guard_load *load, const char **why)
{
	struct cons_member members[CONS_MEMBERS_MAX];
	const uint64_t term = *load->term + 1;
	uint64_t index = 0;
	const int count = cons_members_of(load, members, CONS_MEMBERS_MAX, &index);
	int voters = 0, self = 0, rc;

	for (int i = 0; i < count; i++) {
		voters += members[i].role == CONS_VOTER;
		self += members[i].role == CONS_VOTER && members[i].id == c->params.node_id;
	}
	if (voters != 1 || self != 1)
		return RAFT_REFUSED_NOT;
	rc = sidecar_promise(&c->sidecar, term, 0);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "the sidecar: %s", strerror(-rc));
	if (c->inner.set_term(&c->inner, term) != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why,
			"the metadata could not be written: %s", c->inner.errmsg);
	*load->term = term;
	*load->vote = 0;
	return RAFT_REFUSED_NOT;
}

static enum raft_cons_refusal check_load(
	struct raft_cons *c, const struct guard_load *load, const char **why)
{
	const uint64_t last = load->first_index + load->count - 1;
	const bool empty = load->count == 0 && load->snapshot == NULL;
	struct sidecar_record record = c->sidecar.record;
	enum raft_cons_refusal refusal = cons_check_promise(c, load, why);
	int rc;

	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	if (empty && record.stage == SIDECAR_MEMBER)
		return core_refuse(c, RAFT_REFUSED_AMNESIA, why, "the log is empty");
	if (load->snapshot == NULL && load->count > 0 &&
		(load->first_index != 1 || load->entries[0].type != RAFT_CHANGE))
		return core_refuse(
			c, RAFT_REFUSED_DAMAGED, why, "the log has no beginning and no snapshot");
	if (c->params.applied_index > last)
		return core_refuse(c, RAFT_REFUSED_AMNESIA, why,
			"the log ends at %llu, entry %llu was applied", (unsigned long long)last,
			(unsigned long long)c->params.applied_index);
	if (load->snapshot != NULL) {
		refusal = fsm_check_snapshot(c, load->snapshot, why);
		if (refusal != RAFT_REFUSED_NOT)
			return refusal;
		fsm_snapshot_size(c, load->snapshot->bufs[0].len);
	}
	refusal = check_address(c, load, why);
	if (refusal == RAFT_REFUSED_NOT)
		refusal = take_own_term(c, load, why);
	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	record = c->sidecar.record;
	// From here on the library has the promise: older metadata is no crash in between any more.
	record.term = record.term_before = *load->term;
	record.vote = record.vote_before = *load->vote;
	record.starts++;
	record.loading = 0;
	if (!empty)
		record.stage = SIDECAR_MEMBER;
	rc = sidecar_write(&c->sidecar, &record);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "the sidecar: %s", strerror(-rc));
	return RAFT_REFUSED_NOT;
}

static int loaded(void *ctx, const struct guard_load *load)
{
	struct raft_cons *c = ctx;
	const char *why = "";

	c->refusal = check_load(c, load, &why);
	return c->refusal == RAFT_REFUSED_NOT ? 0 : RAFT_CORRUPT;
}

static bool refuse(void *ctx, const struct raft_message *message)
{
	const struct raft_install_snapshot *args = &message->install_snapshot;
	uint32_t magic = 0;

	(void)ctx;
	if (message->type != RAFT_IO_INSTALL_SNAPSHOT)
		return false;
	if (args->data.len >= sizeof(magic))
		memcpy(&magic, args->data.base, sizeof(magic));
	return args->data.len < sizeof(magic) || args->data.len > RAFT_SNAPSHOT_BYTES_MAX ||
	       magic == RAFT_LZ4_MAGIC;
}

const struct guard_hooks cons_hooks = {
	.promise = promise,
	.loaded = loaded,
	.refuse = refuse,
	.fault = fault,
};
