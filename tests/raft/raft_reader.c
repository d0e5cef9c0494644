/* SPDX-License-Identifier: BSD-3-Clause */
// A reader of a node's store that does not let go until its input ends: `raft_reader DATA_DIR`. One thread.
#include <stdio.h>
#include <string.h>

#include "store_follow.h"

int main(int argc, char **argv)
{
	struct store_follow *follow;
	struct store_tx tx;
	int rc;

	if (argc != 2) {
		fputs("usage: raft_reader DATA_DIR\n", stderr);
		return 64;
	}
	rc = store_follow_open(argv[1], UINT64_C(4) << 30, &follow);
	if (rc == 0)
		rc = store_follow_begin(follow, &tx);
	if (rc != 0) {
		fprintf(stderr, "raft_reader: %s: %s\n", argv[1], strerror(-rc));
		return 1;
	}
	puts("reading");
	fflush(stdout);
	while (getchar() != EOF)
		;
	store_follow_end(follow, &tx);
	store_follow_close(follow);
	return 0;
}
