/* SPDX-License-Identifier: BSD-3-Clause */
// A folder that nobody runs: what is in it, and making its node the only member. Owns a loop of its own
// for the time of a call. Context: any thread, blocks.
#include "raft_pvt.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_S 60u  // for a log of several GB

struct offline {
	struct raft_cons c;  // the parts that files and checks need
	struct uv_loop_s loop;
	bool looping, initialised, closed;
};

static void closed(struct raft_io *io)
{
	struct offline *o = io->data;

	o->closed = true;
}

static void end(struct offline *o)
{
	if (o->initialised) {
		o->c.inner.data = o;
		o->c.inner.close(&o->c.inner, closed);
		while (!o->closed)
			uv_run(&o->loop, UV_RUN_ONCE);
		raft_uv_close(&o->c.inner);
		raft_uv_tcp_close(&o->c.transport);
	}
	if (o->looping) {
		uv_run(&o->loop, UV_RUN_DEFAULT);
		uv_loop_close(&o->loop);
	}
	sidecar_close(&o->c.sidecar);
	if (o->c.lock_fd >= 0)
		close(o->c.lock_fd);
}

static enum raft_cons_refusal begin_library(struct offline *o, const char **why)
{
	struct raft_cons *c = &o->c;
	enum raft_cons_refusal refusal = files_check(c, why);
	int rc;

	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	if (uv_loop_init(&o->loop) != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "no loop");
	o->looping = true;
	rc = raft_uv_tcp_init(&c->transport, &o->loop);
	if (rc == 0)
		rc = raft_uv_init(&c->inner, &o->loop, c->dir, &c->transport);
	if (rc == 0) {
		raft_uv_set_auto_recovery(&c->inner, false);
		raft_uv_set_segment_size(&c->inner, RAFT_SEGMENT_BYTES);
		rc = c->inner.init(&c->inner, c->sidecar.record.node_id, RAFT_NO_ADDRESS);
		o->initialised = rc == 0;
	}
	if (rc != 0)
		return core_refuse(c,
			rc == RAFT_CORRUPT ? RAFT_REFUSED_DAMAGED : RAFT_REFUSED_FAULT, why,
			"%s: %s (%s)", c->dir, core_error(rc), c->inner.errmsg);
	return RAFT_REFUSED_NOT;
}

static enum raft_cons_refusal begin(struct offline *o, const char *dir, const char **why)
{
	struct raft_cons *c = &o->c;
	enum raft_cons_refusal refusal;
	int rc;

	*o = (struct offline){.c = {.lock_fd = -1, .sidecar.fd = -1}};
	snprintf(c->dir, sizeof(c->dir), "%s", dir);
	if (access(c->dir, F_OK) != 0)
		return core_refuse(c, RAFT_REFUSED_STATE, why, "%s: %s", c->dir, strerror(errno));
	refusal = files_library(c, why);
	if (refusal == RAFT_REFUSED_NOT)
		refusal = files_lock(c, why);
	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	rc = sidecar_open(&c->sidecar, c->dir);
	if (rc != 0)
		return core_refuse(c,
			rc == -ENOENT    ? RAFT_REFUSED_STATE
			: rc == -EPROTO  ? RAFT_REFUSED_NEWER
			: rc == -EBADMSG ? RAFT_REFUSED_DAMAGED
					 : RAFT_REFUSED_FAULT,
			why, "%s/sidecar: %s", c->dir,
			rc == -ENOENT ? "there is none: no group here" : strerror(-rc));
	if (c->sidecar.record.stage == SIDECAR_BOOTSTRAPPING)
		return core_refuse(c, RAFT_REFUSED_STATE, why,
			"%s: a bootstrap did not end, there is no group", c->dir);
	return begin_library(o, why);
}

// Reads everything once.
static enum raft_cons_refusal read_files(
	struct offline *o, struct raft_cons_files *files, const char **why)
{
	struct raft_cons *c = &o->c;
	enum raft_cons_refusal refusal;
	struct raft_entry *entries = NULL;
	struct guard_load load = {0};
	raft_index first = 0;
	raft_term term = 0;
	raft_id vote = 0;
	int n;

	n = c->inner.load(&c->inner, &term, &vote, &load.snapshot, &first, &entries, &load.count);
	if (n != 0)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why, "%s: %s (%s)", c->dir,
			core_error(n), c->inner.errmsg);
	load.term = &term;
	load.vote = &vote;
	load.first_index = first;
	load.entries = entries;
	refusal = cons_check_promise(c, &load, why);
	if (refusal == RAFT_REFUSED_NOT && load.snapshot != NULL && c->events != NULL)
		refusal = fsm_check_snapshot(c, load.snapshot, why);
	*files = (struct raft_cons_files){
		.cluster_id = c->sidecar.record.cluster_id,
		.node_id = c->sidecar.record.node_id,
		.term = term,
		.vote = vote,
		.first_index = load.count == 0 ? 0 : load.first_index,
		.last_index = load.first_index + load.count - 1,
		.snapshot_index = load.snapshot == NULL ? 0 : load.snapshot->index,
	};
	n = cons_members_of(&load, files->member, CONS_MEMBERS_MAX, &files->configuration_index);
	guard_unload(&load);
	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	if (n < 0)
		return core_refuse(c, RAFT_REFUSED_DAMAGED, why,
			"the configuration at %llu cannot be read",
			(unsigned long long)files->configuration_index);
	files->members = (uint32_t)n;
	return RAFT_REFUSED_NOT;
}

static enum raft_cons_refusal finish(
	struct offline *o, enum raft_cons_refusal refusal, const char **why)
{
	static _Thread_local char text[sizeof(o->c.why)];

	end(o);
	memcpy(text, o->c.why, sizeof(text));
	*why = refusal == RAFT_REFUSED_NOT ? "" : text;
	return refusal;
}

enum raft_cons_refusal raft_cons_inspect(
	const char *dir, struct raft_cons_files *files, const char **why)
{
	struct offline o;
	enum raft_cons_refusal refusal = begin(&o, dir, why);

	if (refusal == RAFT_REFUSED_NOT)
		refusal = read_files(&o, files, why);
	return finish(&o, refusal, why);
}

enum raft_cons_refusal offline_probe(struct raft_cons *c, const char **why)
{
	const pid_t pid = fork();
	struct offline o;
	const char *text;
	int status = 0;

	if (pid < 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "fork: %s", strerror(errno));
	if (pid == 0) {
		struct raft_cons_files files;

		for (int sig = 1; sig < 32; sig++)
			signal(sig, SIG_DFL);
		alarm(PROBE_S);
		o = (struct offline){.c = {.lock_fd = -1, .sidecar = c->sidecar}};
		memcpy(o.c.dir, c->dir, sizeof(o.c.dir));
		if (begin_library(&o, &text) == RAFT_REFUSED_NOT)
			(void)read_files(&o, &files, &text);
		_exit(0);  // what it says comes again, from the load itself
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0)
		return RAFT_REFUSED_NOT;
	return core_refuse(c, RAFT_REFUSED_DAMAGED, why,
		"reading the log of %s ends the process (%s %d)", c->dir,
		WIFSIGNALED(status) ? "signal" : "exit",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static enum raft_cons_refusal recover(struct offline *o, const struct raft_cons_params *params,
	struct raft_cons_files *files, const char **why)
{
	struct raft_cons *c = &o->c;
	struct raft_configuration conf;
	enum raft_cons_refusal refusal = read_files(o, files, why);
	int rc;

	if (refusal != RAFT_REFUSED_NOT)
		return refusal;
	if (files->cluster_id != params->cluster_id || files->node_id != params->node_id)
		return core_refuse(c, RAFT_REFUSED_FOREIGN, why,
			"%s is of node %llu of cluster %016llx", c->dir,
			(unsigned long long)files->node_id, (unsigned long long)files->cluster_id);
	if (params->applied_index > files->last_index)
		return core_refuse(c, RAFT_REFUSED_AMNESIA, why,
			"the log ends at %llu, entry %llu was applied",
			(unsigned long long)files->last_index,
			(unsigned long long)params->applied_index);
	if (files->members == 0)
		return core_refuse(
			c, RAFT_REFUSED_STATE, why, "%s has no configuration yet", c->dir);
	raft_configuration_init(&conf);
	rc = raft_configuration_add(&conf, params->node_id,
		params->address[0] == 0 ? RAFT_NO_ADDRESS : params->address, RAFT_VOTER);
	if (rc == 0)
		rc = c->inner.recover(&c->inner, &conf);
	raft_configuration_close(&conf);
	if (rc != 0)
		return core_refuse(c, RAFT_REFUSED_FAULT, why, "%s: %s (%s)", c->dir,
			core_error(rc), c->inner.errmsg);
	return read_files(o, files, why);
}

enum raft_cons_refusal raft_cons_recover(
	const struct raft_cons_params *params, struct raft_cons_files *files, const char **why)
{
	struct offline o;
	enum raft_cons_refusal refusal = begin(&o, params->dir, why);

	o.c.events = params->events;
	o.c.ctx = params->ctx;
	if (refusal == RAFT_REFUSED_NOT)
		refusal = recover(&o, params, files, why);
	return finish(&o, refusal, why);
}
