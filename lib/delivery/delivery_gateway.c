/* SPDX-License-Identifier: BSD-3-Clause */
// What delivery keeps per gateway incarnation: its window, the backlog behind it, and the end of everything
// when it dies. Its records are not listed: what a death costs is one round through all records, in steps,
// and a push costs nothing. Worker thread.
#include "base_time.h"
#include "delivery_pvt.h"

// --- queues of gateways -------------------------------------------------------------------------------

static void enqueue_open(struct delivery *d, uint32_t g)
{
	struct gateway *gw = &d->gateway[g];

	if (gw->opening || gw->backlog == 0 || gw->unanswered >= d->limits.window)
		return;
	gw->opening = true;
	gw->open_next = 0;
	if (d->open.head == 0)
		d->open.head = (uint16_t)g;
	else
		d->gateway[d->open.tail].open_next = (uint16_t)g;
	d->open.tail = (uint16_t)g;
}

void gateway_dequeue_open(struct delivery *d)
{
	struct gateway *gw = &d->gateway[d->open.head];

	gw->opening = false;
	d->open.head = gw->open_next;
}

// --- windows and backlogs ---------------------------------------------------------------------------------

static void append(struct delivery *d, uint32_t *head, uint32_t *tail, uint32_t i)
{
	struct record *r = &d->record[i];

	r->next = NONE;
	r->prev = *tail;
	if (*tail == NONE)
		*head = i;
	else
		d->record[*tail].next = i;
	*tail = i;
}

static void take_out(struct delivery *d, uint32_t *head, uint32_t *tail, uint32_t i)
{
	const struct record *r = &d->record[i];

	if (r->prev == NONE)
		*head = r->next;
	else
		d->record[r->prev].next = r->next;
	if (r->next == NONE)
		*tail = r->prev;
	else
		d->record[r->next].prev = r->prev;
}

void gateway_sent_add(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];
	struct gateway *gw = &d->gateway[r->gateway];

	r->state = RECORD_SENT;
	gw->held[record_is_large(d, i)]++;
	gw->unanswered++;
}

void gateway_backlog_add(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];
	struct gateway *gw = &d->gateway[r->gateway];

	r->state = RECORD_BACKLOG;
	append(d, &gw->backlog_head, &gw->backlog_tail, i);
	gw->held[record_is_large(d, i)]++;
	gw->backlog++;
	d->backlog++;
	if (gw->backlog > atomic_load_explicit(&d->backlog_most, memory_order_relaxed))
		atomic_store_explicit(&d->backlog_most, gw->backlog, memory_order_relaxed);
}

void gateway_answered(struct delivery *d, uint32_t g)
{
	struct gateway *gw = &d->gateway[g];

	assert(gw->unanswered > 0);
	gw->unanswered--;
	enqueue_open(d, g);
}

void gateway_remove(struct delivery *d, uint32_t i)
{
	const struct record *r = &d->record[i];
	struct gateway *gw = &d->gateway[r->gateway];

	if (r->epoch != gw->epoch)
		return;  // its incarnation's counts and backlog were given up as a whole
	gw->held[record_is_large(d, i)]--;
	if (r->state == RECORD_BACKLOG) {
		take_out(d, &gw->backlog_head, &gw->backlog_tail, i);
		gw->backlog--;
		d->backlog--;
	} else if (!(r->flags & RECORD_ACKED)) {
		gateway_answered(d, r->gateway);
	}
}

// --- how long answers take ----------------------------------------------------------------------------

uint64_t gateway_wait_ns(const struct delivery *d, uint32_t g)
{
	return rtt_clamp(
		d->gateway[g].rtt.wait_ns, d->limits.push_timeout_ns, d->limits.retry_max_ns);
}

void gateway_measure(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	const struct record *r = &d->record[i];
	struct gateway *gw = &d->gateway[r->gateway];
	uint64_t us;

	rtt_sample(&gw->rtt, sent_age_ns(r->sent, now_ns), now_ns, d->limits.push_timeout_ns,
		d->limits.retry_max_ns);
	us = rtt_smoothed_ns(&gw->rtt) / NS_PER_US;
	atomic_store_explicit(&gw->shown,
		(uint64_t)gw->use << 32 | (us > UINT32_MAX ? UINT32_MAX : us),
		memory_order_relaxed);
}

void gateway_missed(struct delivery *d, uint32_t i, uint64_t now_ns)
{
	const struct record *r = &d->record[i];

	rtt_missed(&d->gateway[r->gateway].rtt, now_ns - sent_age_ns(r->sent, now_ns), now_ns,
		d->limits.push_timeout_ns, d->limits.retry_max_ns);
}

uint32_t delivery_srtt_us(const struct delivery *d, uint32_t g, uint32_t use)
{
	uint64_t shown;

	if (g == 0 || g > d->limits.gateways)
		return 0;
	shown = atomic_load_explicit(&d->gateway[g].shown, memory_order_relaxed);
	return shown >> 32 == use ? (uint32_t)shown : 0;
}

// --- incarnations -------------------------------------------------------------------------------------

void gateway_end(struct delivery *d, uint32_t g)
{
	struct gateway *gw = &d->gateway[g];

	if (gw->held[0] + gw->held[1] == 0)
		return;
	gw->epoch++;
	gw->held[0] = gw->held[1] = 0;
	gw->unanswered = 0;
	d->backlog -= gw->backlog;
	gw->backlog = 0;
	gw->backlog_head = gw->backlog_tail = NONE;
	// A full round from here: records of this incarnation may stand anywhere.
	d->drain_left = d->total;
}

bool gateway_current(struct delivery *d, uint32_t g)
{
	const struct presence_gateway *entry = &d->io.presence->gateway[g];
	const bool alive = atomic_load_explicit(&entry->alive, memory_order_acquire);
	const uint32_t use = atomic_load_explicit(&entry->use, memory_order_relaxed);
	struct gateway *gw = &d->gateway[g];

	if (use != gw->use || !alive) {
		gateway_end(d, g);
		if (use != gw->use)
			rtt_init(&gw->rtt, d->limits.push_timeout_ns);
		gw->use = use;
	}
	return alive;
}

void delivery_gateway_down(struct delivery *d, uint32_t g)
{
	if (g != 0 && g <= d->limits.gateways)
		gateway_end(d, g);
}
