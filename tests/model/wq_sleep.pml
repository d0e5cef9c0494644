/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleepers and wakers of lib/wq: workers without work (wq_idle), submitters that wait for room
 * (wq_submit_wait), and those who wake them. Sleeps have no time limit here, so that a wake-up that is lost is a
 * state without a next step, which the check finds as an invalid end.
 *
 * The ring is as in wq.pml, reduced to its positions: `tail` and `head` move first, `ready` and `freed` follow when
 * the item is copied. What is claimed and not copied is looked at again (a nap in the code).
 * FAULT: 1 the waker's flag is not cleared after the word was read, 2 a waiter reads the word after its try
 * and does not look again,
 * 3 a waiter that gives up keeps the wake-up it was given.
 */
#ifndef FAULT
#define FAULT 0
#endif

byte tail = 0, ready = 0, head = 0, freed = 0;
byte sleepers = 0, waiters = 0;
byte items_word = 0, room_word = 0;
bool wake_pending = false;
byte submitted = 0, given_up = 0;
bool closed = false;

/* A futex: sleeps unless the word is another by now; `woken` sleepers may go on. */
byte asleep_items = 0, woken_items = 0, asleep_room = 0, woken_room = 0;

inline sleep_on(word, seen, asleep, woken) {
	atomic {
		if
		:: word != seen -> skip
		:: else ->
			asleep++;
			woken > 0 -> woken--; asleep--
		fi
	}
}

inline wake_one(word, asleep, woken) {
	word++;
	atomic {
		if
		:: asleep > woken -> woken++
		:: else
		fi
	}
}

inline wake_worker() {
	atomic {
		if
		:: wake_pending -> mine = false
		:: else -> wake_pending = true; mine = true
		fi
	};
	if
	:: mine -> wake_one(items_word, asleep_items, woken_items)
	:: else
	fi
}

proctype submitter(byte count) {
	byte n = count, seen;
	bool mine, in;

	do
	:: n == 0 -> break
	:: n > 0 ->
		waiters++;
		in = false;
		do
		:: true -> break	/* canceled, or out of time */
		:: true ->
			if
			:: FAULT != 2 -> seen = room_word
			:: else
			fi;
			atomic {
				if
				:: tail - freed < CAP -> tail++; in = true; break
				:: else
				fi
			};
			if
			:: FAULT == 2 -> seen = room_word
			:: else
			fi;
			if
			:: tail - head < CAP && FAULT != 2 -> skip	/* taken, not freed: a nap */
			:: else -> sleep_on(room_word, seen, asleep_room, woken_room)
			fi
		od;
		waiters--;
		if
		:: !in ->
			given_up++;
			if
			:: FAULT != 3 -> wake_one(room_word, asleep_room, woken_room)
			:: else
			fi
		:: in ->
			ready++;
			if
			:: sleepers != 0 -> wake_worker()
			:: else
			fi
		fi;
		n--
	od;
	/* the last one shuts the queue, which wakes all */
	atomic { submitted++; n = submitted };
	if
	:: n == SUBMITTERS ->
		closed = true;
		items_word++;
		woken_items = asleep_items
	:: else
	fi
}

proctype worker() {
	byte seen;
	bool mine;

	do
	:: true ->
		/* wq_poll */
		atomic {
			if
			:: head < ready -> head++; mine = true
			:: else -> mine = false
			fi
		};
		if
		:: mine ->
			freed++;
			if
			:: waiters != 0 -> wake_one(room_word, asleep_room, woken_room)
			:: else
			fi;
			/* wq_share */
			if
			:: sleepers != 0 && tail != head -> wake_worker()
			:: else
			fi
		:: else ->
			/* wq_idle */
			sleepers++;
			seen = items_word;
			if
			:: FAULT != 1 -> wake_pending = false
			:: else
			fi;
			if
			:: tail != head -> skip	/* taken in and not copied: a nap */
			:: tail == head && closed -> break
			:: tail == head && !closed ->
				sleep_on(items_word, seen, asleep_items, woken_items)
			fi;
			sleepers--;
			wake_pending = false
		fi
	od;
	sleepers--;
	wake_pending = false
}

init {
	byte i = 0;

	atomic {
		do
		:: i == SUBMITTERS -> break
		:: i < SUBMITTERS -> run submitter(ITEMS); i++
		od;
		i = 0;
		do
		:: i == WORKERS -> break
		:: i < WORKERS -> run worker(); i++
		od
	};
	_nr_pr == 1;
	assert(head + given_up == SUBMITTERS * ITEMS)
}
