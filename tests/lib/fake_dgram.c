/* SPDX-License-Identifier: BSD-3-Clause */
// The port without a network; see fake_dgram.h.
#include "fake_dgram.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_dgram {
	struct dgram dgram;  // first: a dgram is its fake
	struct fake_port *port;
	uint32_t refs;  // 0 idle
	uint32_t port_refs;  // of them the port's own
	uint64_t sum;  // of the bytes when it was given to the port
};

static struct fake_dgram *fake_of(const struct dgram *d)
{
	return (struct fake_dgram *)(void *)(uintptr_t)d;
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fake port: %s\n", what);
	abort();
}

static uint64_t sum_of(const struct dgram *d)
{
	uint64_t sum = UINT64_C(1469598103934665603) ^ d->len;

	for (uint32_t i = 0; i < d->len; i++)
		sum = (sum ^ d->data[i]) * UINT64_C(1099511628211);
	return sum;
}

static void unref(struct fake_dgram *f)
{
	must(f->refs > 0, "double free");
	if (--f->refs == 0)
		f->port->idle[f->port->idle_count++] = &f->dgram;
}

static uint16_t fake_alloc(void *queue, struct dgram **d, uint16_t n)
{
	struct fake_port *port = queue;

	if (port->fail_alloc > 0) {
		port->fail_alloc--;
		return 0;
	}
	if (port->idle_count < n)
		return 0;
	for (uint16_t i = 0; i < n; i++) {
		struct fake_dgram *f = fake_of(port->idle[--port->idle_count]);

		f->refs = 1;
		f->dgram.len = 0;
		f->dgram.local_port = 0;
		f->dgram.peer = (struct net_addr){0};
		memset(f->dgram.data, 0xa5, port->room < 64 ? port->room : 64);
		d[i] = &f->dgram;
	}
	port->allocs += n;
	return n;
}

static void fake_free(void *queue, struct dgram **d, uint16_t n)
{
	struct fake_port *port = queue;

	for (uint16_t i = 0; i < n; i++) {
		struct fake_dgram *f = fake_of(d[i]);

		must(f->refs > f->port_refs, "double free");
		unref(f);
	}
	port->frees += n;
}

static void fake_hold(struct dgram *d)
{
	struct fake_dgram *f = fake_of(d);

	must(f->refs > f->port_refs, "hold of a datagram the caller has not");
	f->refs++;
	f->port->holds++;
}

static bool fake_exclusive(const struct dgram *d)
{
	return fake_of(d)->refs == 1 && fake_of(d)->port_refs == 0;
}

static uint32_t fake_available(void *queue)
{
	return ((struct fake_port *)queue)->idle_count;
}

static void copy_sent(struct fake_port *port, const struct dgram *d)
{
	struct dgram *copy;

	if (port->sent_count == port->sent_room) {
		port->sent_room = port->sent_room != 0 ? 2 * port->sent_room : 64;
		port->sent = realloc(port->sent, port->sent_room * sizeof(*port->sent));
		must(port->sent != NULL, "no memory");
	}
	copy = &port->sent[port->sent_count++];
	*copy = *d;
	copy->data = malloc(d->len != 0 ? d->len : 1u);
	must(copy->data != NULL, "no memory");
	memcpy(copy->data, d->data, d->len);
}

static void complete_one(struct fake_dgram *f)
{
	must(f->sum == sum_of(&f->dgram), "a datagram was written while the port had it");
	f->port_refs--;
	unref(f);
}

static void fake_tx(void *queue, struct dgram **d, uint16_t n)
{
	struct fake_port *port = queue;

	if (port->on_tx != NULL)
		port->on_tx();
	for (uint16_t i = 0; i < n; i++) {
		struct fake_dgram *f = fake_of(d[i]);

		must(f->refs > f->port_refs, "tx of a datagram the caller has not");
		must(f->dgram.len <= f->dgram.room, "datagram longer than its room");
		port->txs++;
		port->tx_bytes += f->dgram.len;
		if (port->record_sent)
			copy_sent(port, d[i]);
		if (!port->keep_sent) {
			unref(f);
			continue;
		}
		must(f->port_refs == 0, "the port has it already");
		f->port_refs++;
		f->sum = sum_of(d[i]);
		port->held[port->held_count++] = d[i];
	}
}

static uint16_t fake_rx(void *queue, struct dgram **d, uint16_t n)
{
	struct fake_port *port = queue;
	uint16_t k = 0;

	while (k < n && k < port->inbound_count) {
		d[k] = port->inbound[k];
		k++;
	}
	port->inbound_count -= k;
	if (k == 0)
		return 0;
	memmove(port->inbound, port->inbound + k, port->inbound_count * sizeof(*port->inbound));
	port->rxs += k;
	return k;
}

static const struct dgram_ops fake_ops = {
	.rx = fake_rx,
	.tx = fake_tx,
	.alloc = fake_alloc,
	.free = fake_free,
	.hold = fake_hold,
	.exclusive = fake_exclusive,
	.available = fake_available,
};

void fake_port_init(struct fake_port *port, uint32_t count, uint16_t room)
{
	*port = (struct fake_port){
		.ops = &fake_ops,
		.count = count,
		.room = room != 0 ? room : FAKE_DGRAM_ROOM,
	};
	port->all = calloc(count, sizeof(*port->all));
	port->idle = calloc(count, sizeof(*port->idle));
	port->held = calloc(count, sizeof(*port->held));
	must(port->all != NULL && port->idle != NULL && port->held != NULL, "no memory");
	for (uint32_t i = 0; i < count; i++) {
		struct fake_dgram *f = &port->all[i];

		f->port = port;
		f->dgram.data = malloc(port->room);
		must(f->dgram.data != NULL, "no memory");
		f->dgram.room = port->room;
		port->idle[port->idle_count++] = &f->dgram;
	}
}

void fake_port_complete(struct fake_port *port)
{
	while (port->held_count > 0)
		complete_one(fake_of(port->held[--port->held_count]));
}

const struct dgram *fake_port_sent(const struct fake_port *port, uint32_t i)
{
	must(i < port->sent_count, "no such datagram was sent");
	return &port->sent[i];
}

void fake_port_forget_sent(struct fake_port *port)
{
	for (uint32_t i = 0; i < port->sent_count; i++)
		free(port->sent[i].data);
	port->sent_count = 0;
}

void fake_port_inject(struct fake_port *port, struct net_addr from, uint16_t local_port,
	const void *bytes, uint16_t len)
{
	struct dgram *d;

	must(fake_alloc(port, &d, 1) == 1, "no datagram to inject");
	must(len <= d->room, "injected datagram too long");
	memcpy(d->data, bytes, len);
	d->len = len;
	d->peer = from;
	d->local_port = local_port;
	if (port->inbound_count == port->inbound_room) {
		port->inbound_room = port->inbound_room != 0 ? 2 * port->inbound_room : 64;
		port->inbound = realloc(port->inbound, port->inbound_room * sizeof(*port->inbound));
		must(port->inbound != NULL, "no memory");
	}
	port->inbound[port->inbound_count++] = d;
}

uint32_t fake_port_outside(const struct fake_port *port)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < port->count; i++)
		n += port->all[i].refs > port->all[i].port_refs;
	return n - port->inbound_count;
}

void fake_port_fini(struct fake_port *port)
{
	fake_port_complete(port);
	fake_ops.free(port, port->inbound, (uint16_t)port->inbound_count);
	port->inbound_count = 0;
	must(fake_port_outside(port) == 0, "datagrams leaked");
	must(port->idle_count == port->count, "datagrams leaked");
	fake_port_forget_sent(port);
	for (uint32_t i = 0; i < port->count; i++)
		free(port->all[i].dgram.data);
	free(port->all);
	free(port->idle);
	free(port->held);
	free(port->sent);
	free(port->inbound);
}
