/* SPDX-License-Identifier: BSD-3-Clause */
// Exit codes of tagcast-metad: stable, documented in its help, read by its supervisors. Below 80 those of
// sysexits.h, whose names are used for them.
#pragma once

#include <sysexits.h>

enum meta_exit {
	// A running group ended itself (drivers/raft).
	META_EXIT_RESTART = 80,  // memory and log differ: a restart is the repair
	META_EXIT_DISK = 81,  // a write of the log failed: disk full or broken
	META_EXIT_PROMISE = 82,  // the library broke a promise
	META_EXIT_FAULT = 83,  // a fault of the store or of memory
	META_EXIT_HISTORY = 84,  // another node has another history
	// A start was refused.
	META_EXIT_FOREIGN = 90,  // files of another cluster or node
	META_EXIT_NEWER = 91,  // written by a later version
	META_EXIT_AMNESIA = 92,  // acknowledged data is missing
	META_EXIT_DAMAGED = 93,  // log, snapshot or store
	META_EXIT_ADDRESS = 94,  // the Raft address is in use, or not ours
	META_EXIT_SPACE = 95,  // no room on the disk, or in the map
	META_EXIT_LIBRARY = 96,  // not the library this was built with
};

enum meta_remedy {
	META_REMEDY_RESTART,  // a restart mends it
	META_REMEDY_TIME,  // it passes by itself, but not at once
	META_REMEDY_HELP,  // somebody has to do something first
};
static inline enum meta_remedy meta_exit_remedy(int code)
{
	switch (code) {
	case EX_USAGE:
	case EX_CONFIG:
	case EX_NOPERM:
	case META_EXIT_HISTORY:
	case META_EXIT_FOREIGN:
	case META_EXIT_NEWER:
	case META_EXIT_AMNESIA:
	case META_EXIT_DAMAGED:
	case META_EXIT_LIBRARY:
		return META_REMEDY_HELP;
	case EX_CANTCREAT:
	case EX_IOERR:
	case EX_TEMPFAIL:
	case META_EXIT_DISK:
	case META_EXIT_ADDRESS:
	case META_EXIT_SPACE:
		return META_REMEDY_TIME;
	default:
		return META_REMEDY_RESTART;
	}
}
// What to do about it, for people; NULL: nothing more to say than the reason.
const char *meta_exit_advice(int code);
