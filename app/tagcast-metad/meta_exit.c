/* SPDX-License-Identifier: BSD-3-Clause */
// What to do about a refused start. Constant texts.
#include "meta_exit.h"

#include <stddef.h>

const char *meta_exit_advice(int code)
{
	switch (code) {
	case META_EXIT_FOREIGN:
		return "node.id, node.cluster_id and node.data_dir must be those the files were "
		       "made "
		       "with";
	case META_EXIT_NEWER:
		return "start the version that wrote them, or a later one";
	case META_EXIT_AMNESIA:
		return "this id cannot go on: tagcastctl meta remove it at another member, then "
		       "give this node a new id and an empty data folder and join it; a lone node "
		       "is "
		       "restored from a backup";
	case META_EXIT_DAMAGED:
		return "tagcastctl meta verify the data folder; with other members remove this id "
		       "and "
		       "join with a new one and an empty folder, else restore a backup";
	case META_EXIT_ADDRESS:
		return "find out who listens there (ss -ltnp), or correct meta.raft_address and "
		       "meta.raft_bind; it is tried again";
	case META_EXIT_SPACE:
		return "make room; it starts again by itself, and nothing acknowledged is lost";
	case META_EXIT_LIBRARY:
		return "install the version of libraft this was built and tested with";
	case META_EXIT_HISTORY:
		return "stop this node and keep its data folder for study; do not start it again";
	case EX_TEMPFAIL:
		return "another tagcast-metad runs on this data or run folder";
	case EX_NOPERM:
		return "the folder must belong to the user this runs as";
	default:
		return NULL;
	}
}
