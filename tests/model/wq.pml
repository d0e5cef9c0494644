/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Submit, take, close and abandon of lib/wq, one atomic step each, checked over every interleaving.
 * Sizes and variants by -D: SUBMITTERS, ITEMS (of each), WORKERS, CAP, ONE_SUBMITTER, ONE_WORKER.
 * Steps are sequentially consistent: locked instructions are in the code where this order matters, and a side
 * without them has the closer pass a barrier in every thread (wq_ops.fence_all) between the flag it sets and
 * the flag it reads. A handler may stand still until the closer is through.
 *
 * What holds: an admitted item is run once or abandoned once; a refused one is neither; items of a submitter are
 * taken in its order; the ring never holds more than CAP; a close that says 0 leaves nothing in the ring and no
 * handler running; nothing is admitted after a close has returned; nobody gets stuck.
 *
 * FAULT plants an error that the check must find (tests/model/run): 1 a worker says TAKING only after the head
 * moved, 2 the number is stored before the item, 3 the closed bit is not looked at when the tail moves, 4 a
 * closer does not wait for a submitter in the middle.
 */
#ifndef FAULT
#define FAULT 0
#endif
#define TOTAL (SUBMITTERS * ITEMS)
#define IDLE 0
#define TAKING 1
#define RUNNING 2
#define NONE 255

byte tail = 0, head = 0;      /* closed is one word with tail */
bool closed = false, sealed = false, canceled = false, shut = false, submitting = false;
byte number[CAP];
byte data[CAP];
byte state[WORKERS];
byte admitted[TOTAL], done[TOTAL];
byte next_of[SUBMITTERS];     /* lowest item of a submitter that may be taken next */
bool ended = false;           /* wq_close has returned */
byte result = NONE;           /* 0, or 1: deadline */

inline take_in_order(id) {
	assert(id != NONE);
	assert(id >= next_of[id / ITEMS]);
	next_of[id / ITEMS] = id + 1
}

inline finish(id) {
	assert(admitted[id] == 1 && done[id] == 0);
	done[id] = 1
}

proctype submitter(byte me) {
	byte k = 0, t, id;
	bool c;

	do
	:: k == ITEMS -> break
	:: k < ITEMS ->
		id = me * ITEMS + k;
#ifdef ONE_SUBMITTER
		submitting = true;
		if
		:: shut -> submitting = false; goto refused
		:: else
		fi;
		t = tail;
		if
		:: number[t % CAP] != t -> submitting = false; goto refused	/* full */
		:: else
		fi;
		d_step { assert(!ended); tail = t + 1; admitted[id] = 1 };
#else
again:		skip;
		d_step { t = tail; c = closed };
		if
		:: c -> goto refused
		:: else
		fi;
		if
		:: number[t % CAP] != t ->
			if
			:: tail != t -> goto again
			:: tail == t -> goto refused	/* full */
			fi
		:: else
		fi;
		atomic {
			if
			:: tail == t && (!closed || FAULT == 3) ->
				assert(!ended);
				tail = t + 1;
				admitted[id] = 1
			:: else -> goto again
			fi
		};
#endif
		assert(tail - head <= CAP);
		if
		:: FAULT == 2 -> number[t % CAP] = t + 1
		:: else
		fi;
		data[t % CAP] = id;
		number[t % CAP] = t + 1;
#ifdef ONE_SUBMITTER
		submitting = false;
#endif
refused:	k++
	od
}

proctype worker(byte me) {
	byte h, id;

	do
	:: canceled -> break
	:: sealed && !submitting && tail == head -> break
	/* A look costs nothing when there is nothing: wait for something. */
	:: number[head % CAP] == head + 1 ->
#ifdef ONE_WORKER
		h = head;
		state[me] = TAKING;
		if
		:: canceled -> state[me] = IDLE; break
		:: else
		fi;
		assert(number[h % CAP] == h + 1);
		d_step { take_in_order(data[h % CAP]); head = h + 1 };
#else
again:		h = head;
		if
		:: number[h % CAP] != h + 1 -> state[me] = IDLE; goto next
		:: else
		fi;
		if
		:: FAULT != 1 -> state[me] = TAKING
		:: else
		fi;
		if
		:: canceled -> state[me] = IDLE; break
		:: else
		fi;
		atomic {
			if
			:: head == h -> take_in_order(data[h % CAP]); head = h + 1
			:: else -> goto again
			fi
		};
#endif
		id = data[h % CAP];
		d_step { data[h % CAP] = NONE; number[h % CAP] = h + CAP };
		state[me] = RUNNING;
		finish(id);
		state[me] = IDLE;
next:		skip
	od
}

proctype closer() {
	byte h, w, last;

#ifdef ONE_SUBMITTER
	shut = true;
#else
	closed = true;
#endif
	sealed = true;
	do
	:: true ->	/* the deadline may be at any moment */
		result = 1;
		break
	:: FAULT == 4 || !submitting ->
		last = tail;
		if
		:: head != last -> goto not_yet
		:: else
		fi;
		w = 0;
		do
		:: w == WORKERS -> result = 0; break
		:: w < WORKERS && state[w] == IDLE -> w++
		:: w < WORKERS && state[w] != IDLE -> goto not_yet
		od;
		break;
not_yet:	skip
	od;
	if
	:: result == 1 ->
		canceled = true;
#ifdef ONE_WORKER
		state[0] != TAKING;	/* waits */
#endif
		do
		:: !submitting && tail == head -> break
		:: number[head % CAP] == head + 1 ->
			h = head;
			atomic {
				if
				:: head == h && number[h % CAP] == h + 1 ->
					take_in_order(data[h % CAP]);
					head = h + 1;
				:: else -> goto over
				fi
			};
			finish(data[h % CAP]);
			d_step { data[h % CAP] = NONE; number[h % CAP] = h + CAP };
over:			skip
		od
	:: else ->
		/* everything was run, and no handler is left in the middle */
		w = 0;
		do
		:: w == WORKERS -> break
		:: w < WORKERS -> assert(state[w] != RUNNING && state[w] != TAKING || head == tail); w++
		od;
		w = 0;
		do
		:: w == TOTAL -> break
		:: w < TOTAL -> assert(admitted[w] == done[w]); w++
		od
	fi;
	ended = true
}

init {
	byte i = 0;

	atomic {
		do
		:: i == CAP -> break
		:: i < CAP -> number[i] = i; data[i] = NONE; i++
		od;
		i = 0;
		do
		:: i == SUBMITTERS -> break
		:: i < SUBMITTERS -> next_of[i] = i * ITEMS; run submitter(i); i++
		od;
		i = 0;
		do
		:: i == WORKERS -> break
		:: i < WORKERS -> run worker(i); i++
		od;
		run closer()
	};
	/* when all have ended */
	_nr_pr == 1;
	i = 0;
	do
	:: i == TOTAL -> break
	:: i < TOTAL -> assert(admitted[i] == done[i]); i++
	od;
	assert(tail == head)
}
