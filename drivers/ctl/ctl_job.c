/* SPDX-License-Identifier: BSD-3-Clause */
// Large request lines, parsed by another thread: reading a million UIDs takes longer than a turn of the
// server's loop may. A job owns the line; its client has no further line run meanwhile, so that answers
// keep the order of the requests.
#include "ctl_pvt.h"

#include <stdlib.h>
#include <string.h>

// Cuts the line [off, end) out of the client's input. Copies the shorter of line and rest.
static bool cut_line(struct ctl_client *client, struct ctl_job *job, size_t len, size_t off)
{
	const size_t rest = client->in_len - client->in_off;
	char *copy;

	if (rest > len) {
		copy = malloc(len + 1);
		if (copy == NULL)
			return false;
		memcpy(copy, client->in + off, len);
		job->buffer = job->line = copy;
		return true;
	}
	copy = malloc(rest > CTL_INPUT_CAP_KEPT ? rest : CTL_INPUT_CAP_KEPT);
	if (copy == NULL)
		return false;
	memcpy(copy, client->in + client->in_off, rest);
	job->buffer = client->in;
	job->line = client->in + off;
	job->counted = client->in_cap > CTL_INPUT_CAP_KEPT ? client->in_cap : 0;
	client->in = copy;
	client->in_cap = rest > CTL_INPUT_CAP_KEPT ? rest : CTL_INPUT_CAP_KEPT;
	if (client->in_cap > CTL_INPUT_CAP_KEPT)
		client->server->input_bytes += client->in_cap;
	client->in_len = rest;
	client->in_off = 0;
	client->scanned = 0;
	return true;
}

bool ctl_job_start(struct ctl_client *client, size_t off, size_t len)
{
	struct ctl_server *server = client->server;
	struct ctl_job *job;

	if (server->elsewhere == NULL || len <= CTL_LARGE_BYTES)
		return false;
	job = calloc(1, sizeof(*job));
	if (job == NULL || !cut_line(client, job, len, off)) {
		free(job);
		return false;
	}
	job->len = len;
	job->client = client;
	job->server = server;
	job->elsewhere = server->elsewhere;
	job->next = server->jobs;
	server->jobs = job;
	client->job = job;
	if (!server->elsewhere->start(server->ctx, job)) {
		ctl_job_run(job);
		ctl_job_done(job);
	}
	return true;
}

void ctl_job_run(struct ctl_job *job)
{
	job->root = ctl_parse(job->line, job->len, job->error, job->where);
	free(job->buffer);
	job->buffer = NULL;
	if (job->root != NULL && job->elsewhere->take != NULL)
		job->taken = job->elsewhere->take(job->root);
}

static void job_unlink(struct ctl_job *job)
{
	struct ctl_job **at = &job->server->jobs;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
}

void ctl_job_done(struct ctl_job *job)
{
	struct ctl_client *client = job->client;

	if (job->server != NULL) {
		job_unlink(job);
		job->server->input_bytes -= job->counted;
	}
	if (client != NULL) {
		client->job = NULL;
		ctl_run_request(client, job->root, job->error, job->where, &job->taken);
		ctl_kick(job->server);
	}
	if (job->taken != NULL)
		job->elsewhere->drop(job->taken);
	json_decref(job->root);
	free(job->buffer);
	free(job);
}

void ctl_job_orphan(struct ctl_job *job, bool server_too)
{
	if (job->client != NULL)
		job->client->job = NULL;
	job->client = NULL;
	if (server_too)
		job->server = NULL;
}

void ctl_server_elsewhere(struct ctl_server *server, const struct ctl_elsewhere *elsewhere)
{
	server->elsewhere = elsewhere;
}

void *ctl_request_taken(struct ctl_request *request)
{
	void *taken = request->taken == NULL ? NULL : *request->taken;

	if (taken != NULL)
		*request->taken = NULL;
	return taken;
}
