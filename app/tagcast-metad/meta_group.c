/* SPDX-License-Identifier: BSD-3-Clause */
// The consensus group of this node: from options to an open log, and from an empty one to a member. Run by
// the loop; opening blocks, before it runs.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base_log.h"
#include "base_time.h"
#include "metad.h"

#define ASK_AGAIN_NS (100 * NS_PER_MS)

_Static_assert((int)META_EXIT_RESTART == (int)RAFT_EXIT_ROLLBACK &&
		       (int)META_EXIT_DISK == (int)RAFT_EXIT_DISK &&
		       (int)META_EXIT_PROMISE == (int)RAFT_EXIT_LIBRARY &&
		       (int)META_EXIT_FAULT == (int)RAFT_EXIT_STORE &&
		       (int)META_EXIT_HISTORY == (int)RAFT_EXIT_HISTORY,
	"supervisors read both");

int metad_refusal_exit(enum raft_cons_refusal refusal)
{
	switch (refusal) {
	case RAFT_REFUSED_NOT:
		return EX_OK;
	case RAFT_REFUSED_LIBRARY:
		return META_EXIT_LIBRARY;
	case RAFT_REFUSED_FOREIGN:
		return META_EXIT_FOREIGN;
	case RAFT_REFUSED_NEWER:
		return META_EXIT_NEWER;
	case RAFT_REFUSED_AMNESIA:
		return META_EXIT_AMNESIA;
	case RAFT_REFUSED_DAMAGED:
		return META_EXIT_DAMAGED;
	case RAFT_REFUSED_ADDRESS:
		return META_EXIT_ADDRESS;
	case RAFT_REFUSED_SPACE:
		return META_EXIT_SPACE;
	case RAFT_REFUSED_LOCKED:
		return EX_TEMPFAIL;
	case RAFT_REFUSED_STATE:
		return EX_SOFTWARE;
	default:
		return EX_IOERR;
	}
}

static int refused(enum raft_cons_refusal refusal, const char *why)
{
	const int code = metad_refusal_exit(refusal);

	LOG(LOG_ERROR, "raft", "RAFT_REFUSED", "%s", why);
	return code;
}

// Reads 64 hex digits from a file that only its owner reads.
static int read_key(const char *path, uint8_t key[RAFT_KEY_BYTES])
{
	char text[2 * RAFT_KEY_BYTES + 16];
	const char *problem = NULL;
	struct stat st;
	FILE *f = fopen(path, "re");
	size_t len = 0;

	if (f == NULL) {
		LOG(LOG_ERROR, "raft", "RAFT_KEY", "%s: %s", path, strerror(errno));
		return errno == EACCES ? EX_NOPERM : EX_CONFIG;
	}
	if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode))
		problem = "it is no file";
	else if ((st.st_mode & 077) != 0)
		problem = "others may read it: chmod 600";
	else
		len = fread(text, 1, sizeof(text), f);
	fclose(f);
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		len--;
	if (problem == NULL && ctl_hex_read(text, len, key, RAFT_KEY_BYTES) != RAFT_KEY_BYTES)
		problem = "64 hex digits are wanted (openssl rand -hex 32)";
	if (problem != NULL)
		LOG(LOG_ERROR, "raft", "RAFT_KEY", "key file %s: %s", path, problem);
	explicit_bzero(text, sizeof(text));
	return problem == NULL ? 0 : EX_CONFIG;
}

// A name becomes an address once, here: the group keeps literals. Returns: 0 or an exit code.
static int resolve(const char *what, const char *text, char out[CONS_ADDRESS_MAX])
{
	const char *why = "";

	out[0] = '\0';
	if (text[0] == '\0')
		return 0;
	if (raft_cons_resolve(text, out, &why) != 0) {
		LOG(LOG_ERROR, "raft", "RAFT_ADDRESS", "%s: cannot look up %s: %s", what, text,
			why);
		return META_EXIT_ADDRESS;
	}
	return 0;
}

static int fill_params(struct metad *metad, struct raft_cons_params *params)
{
	const struct metad_options *o = &metad->options;
	int rc;

	params->loop = &metad->loop;
	params->node_id = o->node_id;
	params->cluster_id = o->cluster_id;
	params->authenticated = o->raft_auth && o->raft_address[0] != '\0';
	params->election_ms = (uint32_t)(o->election_ns / NS_PER_MS);
	params->heartbeat_ms = (uint32_t)(o->heartbeat_ns / NS_PER_MS);
	params->snapshot_entries = o->snapshot_entries;
	params->snapshot_trailing = o->snapshot_trailing;
	params->snapshot_log_bytes = o->snapshot_log_bytes;
	params->applied_index = metad->state.position.applied;
	params->events = &meta_state_events;
	params->ctx = &metad->state;
	rc = resolve("meta.raft_address", o->raft_address, params->address);
	if (rc == 0)
		rc = resolve("meta.raft_bind", o->raft_bind, params->bind);
	if (rc == 0 && params->authenticated)
		rc = read_key(o->raft_key_file, params->key);
	return rc;
}

static enum raft_cons_refusal run(struct metad *metad, const char **why) META_ONLY;
static enum raft_cons_refusal run(struct metad *metad, const char **why)
{
	const enum raft_cons_refusal refusal = raft_cons_start(metad->raft, why);

	metad->state.running = true;
	if (refusal == RAFT_REFUSED_NOT)
		metad->group = METAD_MEMBER;
	return refusal;
}

int metad_group_open(struct metad *metad)
{
	static char dir[CONF_PATH_MAX + 8], ballast[CONF_PATH_MAX + 16];
	struct raft_cons_params params = {.dir = dir, .ballast = ballast};
	enum raft_cons_refusal refusal;
	enum raft_cons_state state;
	const char *why = "";
	int rc = fill_params(metad, &params);

	if (rc != 0)
		return rc;
	snprintf(dir, sizeof(dir), "%s/raft", metad->options.data_dir);
	snprintf(ballast, sizeof(ballast), "%s/ballast", metad->options.data_dir);
	metad->cons_ops = &raft_cons_ops;
	refusal = raft_cons_open(&params, &metad->raft, &state, &why);
	explicit_bzero(params.key, sizeof(params.key));
	if (refusal != RAFT_REFUSED_NOT)
		return refused(refusal, why);
	if (state == RAFT_CONS_EMPTY && metad->state.position.applied > 0)
		return refused(RAFT_REFUSED_AMNESIA,
			"the store holds data of a group and there is no log: it was removed or is "
			"another folder's");
	if (state == RAFT_CONS_EMPTY) {
		LOG(LOG_INFO, "meta", "META_WAITING",
			"no group yet: tagcastctl meta bootstrap makes one of this node, "
			"tagcastctl meta "
			"join takes it into another");
		return 0;
	}
	refusal = run(metad, &why);
	return refusal == RAFT_REFUSED_NOT ? 0 : refused(refusal, why);
}

void metad_group_close(struct metad *metad)
{
	// The group itself ends with the process.
	metad_call_drop(metad);
}

enum raft_cons_refusal metad_group_bootstrap(struct metad *metad, const char **why)
{
	const enum raft_cons_refusal refusal = raft_cons_bootstrap(metad->raft, why);

	return refusal != RAFT_REFUSED_NOT ? refusal : run(metad, why);
}

enum raft_cons_refusal metad_group_restore(struct metad *metad, uint64_t index, const char **why)
{
	const enum raft_cons_refusal refusal = raft_cons_restore(metad->raft, index, why);

	return refusal != RAFT_REFUSED_NOT ? refusal : run(metad, why);
}

enum raft_cons_refusal metad_group_joined(struct metad *metad, const char **why)
{
	return run(metad, why);
}

bool metad_group_ready(const struct metad *metad)
{
	struct cons_info info;

	if (metad->group != METAD_MEMBER)
		return false;
	metad->cons_ops->info(metad->raft, &info);
	return info.is_ready != 0;
}

// The feed may follow the store once it holds something, or is known to be the newest there is.
void metad_group_turn(struct metad *metad, uint64_t now_ns)
{
	enum cons_status status;

	if (metad->was_ready || metad->group != METAD_MEMBER)
		return;
	if (metad->state.position.applied != 0) {
		metad_group_known(metad);
		return;
	}
	// An empty store is served once a barrier says that the group's is empty too.
	if (metad->asked || now_ns < metad->ask_ns || !metad_group_ready(metad))
		return;
	metad->ask_ns = now_ns + ASK_AGAIN_NS;
	metad->asked = true;
	status = metad->cons_ops->barrier(metad->raft, METAD_KNOWN_TOKEN);
	metad->asked = status == CONS_OK;
}

void metad_group_known(struct metad *metad)
{
	metad->was_ready = true;
	meta_feed_ready(metad->feed);
}
