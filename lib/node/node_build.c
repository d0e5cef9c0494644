/* SPDX-License-Identifier: BSD-3-Clause */
// Which builds are asked for, which are at work, and how a step is shared among them. Control core.
#include "node_control_pvt.h"

#include <errno.h>
#include <stdlib.h>

#define WAITING_LOOKED_AT 64u  // of those asked for, in one step

int node_build_create(struct node *node)
{
	struct node_build *b = &node->control->build;

	b->mark = calloc((size_t)node->params.uids / 64 + 1, sizeof(*b->mark));
	b->page = malloc(BUILD_PAGE_BYTES);
	return b->mark == NULL || b->page == NULL ? -ENOMEM : 0;
}

void node_build_destroy(struct node *node)
{
	struct node_build *b = &node->control->build;

	for (uint32_t i = 0; i < BUILD_JOBS_MAX; i++)
		if (b->job[i].phase != BUILD_FREE)
			node_job_clear(node, &b->job[i], 0);
	free(b->mark);
	free(b->page);
	free(b->scratch);
	free(b->name);
}

// --- asked for ----------------------------------------------------------------------------------------

static void wait_push(struct node *node, uint32_t index)
{
	struct node_build *b = &node->control->build;
	struct node_channel *nc = &node->control->channel[index];

	nc->waiting = true;
	nc->wait_prev = b->wait_tail;
	nc->wait_next = 0;
	if (b->wait_tail != 0)
		node->control->channel[b->wait_tail].wait_next = index;
	else
		b->wait_head = index;
	b->wait_tail = index;
	b->waiting++;
}

static void wait_remove(struct node *node, uint32_t index)
{
	struct node_build *b = &node->control->build;
	struct node_channel *nc = &node->control->channel[index];

	if (nc->wait_prev != 0)
		node->control->channel[nc->wait_prev].wait_next = nc->wait_next;
	else
		b->wait_head = nc->wait_next;
	if (nc->wait_next != 0)
		node->control->channel[nc->wait_next].wait_prev = nc->wait_prev;
	else
		b->wait_tail = nc->wait_prev;
	nc->waiting = false;
	b->waiting--;
}

static void building(struct channel *channel, bool on)
{
	if (on)
		atomic_fetch_or_explicit(&channel->flags, CHANNEL_F_BUILDING, memory_order_relaxed);
	else
		atomic_fetch_and_explicit(
			&channel->flags, ~(uint32_t)CHANNEL_F_BUILDING, memory_order_relaxed);
}

void node_build_want(struct node *node, struct channel *channel)
{
	struct node_channel *nc;

	if ((atomic_load_explicit(&channel->flags, memory_order_relaxed) & CHANNEL_F_REMOVED) != 0)
		return;
	nc = node_channel_of(node, channel);
	if (nc->waiting || nc->job != 0)
		return;
	if (node_tag_current(node, channel)) {
		node_wake(node, channel->worker);
		return;
	}
	building(channel, true);
	wait_push(node, channel->index);
}

static void job_free(struct node *node, struct node_job *job, uint64_t now_ns) CONTROL_ONLY;
static void job_free(struct node *node, struct node_job *job, uint64_t now_ns)
{
	node_channel_of(node, job->channel)->job = 0;
	node_job_clear(node, job, now_ns);
	node->control->build.jobs--;
}

void node_build_forget(struct node *node, struct channel *channel)
{
	struct node_channel *nc = node_channel_of(node, channel);

	if (nc->waiting)
		wait_remove(node, channel->index);
	if (nc->job != 0)
		job_free(node, &node->control->build.job[nc->job - 1], 0);
}

void node_build_restart_all(struct node *node)
{
	struct node_build *b = &node->control->build;

	for (uint32_t i = 0; i < BUILD_JOBS_MAX; i++)
		if (b->job[i].phase != BUILD_FREE)
			b->job[i].restart = true;
}

// --- at work ------------------------------------------------------------------------------------------

static void job_start(struct node *node, uint32_t index) CONTROL_ONLY;
static void job_start(struct node *node, uint32_t index)
{
	struct node_build *b = &node->control->build;
	uint32_t i = 0;

	while (b->job[i].phase != BUILD_FREE)
		i++;
	wait_remove(node, index);
	node_job_begin(&b->job[i], &node->channels->channel[index]);
	node->control->channel[index].job = i + 1;
	b->jobs++;
}

// Starts what may start; what has to wait goes to the end of the line.
static void start_some(struct node *node, uint64_t now_ns) CONTROL_ONLY;
static void start_some(struct node *node, uint64_t now_ns)
{
	struct node_build *b = &node->control->build;
	uint32_t looks = b->waiting < WAITING_LOOKED_AT ? b->waiting : WAITING_LOOKED_AT;

	for (; looks != 0 && b->jobs < BUILD_JOBS_MAX; looks--) {
		const uint32_t index = b->wait_head;

		if (node->control->channel[index].retry_ns <= now_ns) {
			job_start(node, index);
			continue;
		}
		wait_remove(node, index);
		wait_push(node, index);
	}
}

// Ends a build for now. Tried again by itself a few times, then when somebody asks.
static void put_off(struct node *node, struct channel *channel, uint64_t now_ns) CONTROL_ONLY;
static void put_off(struct node *node, struct channel *channel, uint64_t now_ns)
{
	struct node_channel *nc = node_channel_of(node, channel);
	uint64_t wait_ns = BUILD_WAIT_MIN_NS << nc->attempts;

	if (wait_ns > BUILD_WAIT_MAX_NS)
		wait_ns = BUILD_WAIT_MAX_NS;
	nc->retry_ns = now_ns + wait_ns;
	if (nc->attempts < BUILD_ATTEMPTS_MAX) {
		nc->attempts++;
		wait_push(node, channel->index);
	} else {
		building(channel, false);
	}
}

static void job_end(
	struct node *node, struct node_job *job, enum job_end how, uint64_t now_ns) CONTROL_ONLY;
static void job_end(struct node *node, struct node_job *job, enum job_end how, uint64_t now_ns)
{
	struct channel *channel = job->channel;
	struct node_channel *nc = node_channel_of(node, channel);

	job_free(node, job, now_ns);
	if (how == JOB_DONE) {
		nc->attempts = 0;
		nc->retry_ns = 0;
		building(channel, false);
		node_wake(node, channel->worker);
		return;
	}
	if (how == JOB_FAILED)
		counter_add(own(node), CTR_TAG_BUILD_FAILED, 1);
	put_off(node, channel, now_ns);
}

// One turn of every job that is at work. Returns: members handled.
static uint32_t round_of_jobs(
	struct node *node, uint32_t share, uint32_t left, uint64_t now_ns) CONTROL_ONLY;
static uint32_t round_of_jobs(struct node *node, uint32_t share, uint32_t left, uint64_t now_ns)
{
	struct node_build *b = &node->control->build;
	uint32_t used = 0;

	for (uint32_t i = 0; i < BUILD_JOBS_MAX && used < left; i++) {
		struct node_job *job = &b->job[b->next++ % BUILD_JOBS_MAX];
		enum job_end how;

		if (job->phase == BUILD_FREE)
			continue;
		how = node_job_step(
			node, job, share < left - used ? share : left - used, &used, now_ns);
		if (how != JOB_GOES_ON)
			job_end(node, job, how, now_ns);
	}
	return used;
}

uint32_t node_build_step(struct node *node, uint64_t now_ns)
{
	struct node_build *b = &node->control->build;
	const uint32_t budget = node->params.build_members_per_step;
	uint32_t used = 0, more = 1;

	// Before the channel table is complete nobody knows what a tag would be compared with.
	if (!node->control->feed.synced)
		return 0;
	while (used < budget && more != 0) {
		start_some(node, now_ns);
		more = b->jobs == 0
			       ? 0
			       : round_of_jobs(node, budget / b->jobs + 1, budget - used, now_ns);
		used += more;
	}
	return used;
}
