/* SPDX-License-Identifier: BSD-3-Clause */
// What delivery keeps per gateway incarnation: the list of its sent records, the backlog behind its
// window, and the end of everything when it dies. Worker thread.
#include "delivery_pvt.h"

// --- queues of gateways -------------------------------------------------------------------------------

void gateway_enqueue_drain(struct delivery *d, uint32_t g)
{
	if (d->gateway[g].draining)
		return;
	d->gateway[g].draining = true;
	d->gateway[g].drain_next = 0;
	if (d->drain.head == 0)
		d->drain.head = (uint16_t)g;
	else
		d->gateway[d->drain.tail].drain_next = (uint16_t)g;
	d->drain.tail = (uint16_t)g;
}

void gateway_dequeue_drain(struct delivery *d)
{
	struct gateway *gw = &d->gateway[d->drain.head];

	gw->draining = false;
	d->drain.head = gw->drain_next;
}

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

// --- lists of records ---------------------------------------------------------------------------------

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

void gateway_list_add(struct delivery *d, uint32_t i)
{
	struct record *r = &d->record[i];
	struct gateway *gw = &d->gateway[r->gateway];

	r->state = RECORD_SENT;
	append(d, &gw->list_head, &gw->list_tail, i);
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
}

void gateway_answered(struct delivery *d, uint32_t g)
{
	struct gateway *gw = &d->gateway[g];

	assert(gw->unanswered > 0);
	gw->unanswered--;
	enqueue_open(d, g);
}

void gateway_list_remove(struct delivery *d, uint32_t i)
{
	const struct record *r = &d->record[i];
	struct gateway *gw = &d->gateway[r->gateway];

	if (r->epoch != gw->epoch) {
		take_out(d, &gw->list_head, &gw->list_tail, i);
		return;
	}
	gw->held[record_is_large(d, i)]--;
	if (r->state == RECORD_BACKLOG) {
		take_out(d, &gw->backlog_head, &gw->backlog_tail, i);
		gw->backlog--;
		d->backlog--;
		return;
	}
	take_out(d, &gw->list_head, &gw->list_tail, i);
	if (!(r->flags & RECORD_ACKED))
		gateway_answered(d, r->gateway);
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
	if (gw->backlog_head != NONE) {
		d->record[gw->backlog_head].prev = gw->list_tail;
		if (gw->list_tail == NONE)
			gw->list_head = gw->backlog_head;
		else
			d->record[gw->list_tail].next = gw->backlog_head;
		gw->list_tail = gw->backlog_tail;
		gw->backlog_head = gw->backlog_tail = NONE;
	}
	gateway_enqueue_drain(d, g);
}

bool gateway_current(struct delivery *d, uint32_t g)
{
	const struct presence_gateway *entry = &d->io.presence->gateway[g];
	const bool alive = atomic_load_explicit(&entry->alive, memory_order_acquire);
	const uint32_t use = atomic_load_explicit(&entry->use, memory_order_relaxed);
	struct gateway *gw = &d->gateway[g];

	if (use != gw->use || !alive) {
		gateway_end(d, g);
		gw->use = use;
	}
	return alive;
}

void delivery_gateway_down(struct delivery *d, uint32_t g)
{
	if (g != 0 && g <= d->limits.gateways)
		gateway_end(d, g);
}
