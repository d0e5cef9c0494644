/* SPDX-License-Identifier: BSD-3-Clause */
// `tagcastctl meta inspect|verify|recover FOLDER`: a data folder, or a copy of one, that no process uses.
#include "tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raft_cons.h"
#include "store_crc.h"
#include "store_follow.h"
#include "store_read.h"
#include "store_snapshot.h"

#define MAP_BYTES (UINT64_C(1) << 40)  // address space; what is mapped is as large as the file

static const char *refusal_name(enum raft_cons_refusal refusal)
{
	static const char *const names[] = {
		[RAFT_REFUSED_NOT] = "ok",
		[RAFT_REFUSED_LIBRARY] = "library",
		[RAFT_REFUSED_FOREIGN] = "foreign",
		[RAFT_REFUSED_NEWER] = "newer",
		[RAFT_REFUSED_AMNESIA] = "amnesia",
		[RAFT_REFUSED_DAMAGED] = "damaged",
		[RAFT_REFUSED_ADDRESS] = "address",
		[RAFT_REFUSED_SPACE] = "no room",
		[RAFT_REFUSED_LOCKED] = "in use",
		[RAFT_REFUSED_FAULT] = "fault",
	};

	return (size_t)refusal < sizeof(names) / sizeof(names[0]) && names[refusal] != NULL
		       ? names[refusal]
		       : "unknown";
}

static int refused(const char *folder, enum raft_cons_refusal refusal, const char *why)
{
	tool_error("%s: %s: %s", folder, refusal_name(refusal), why);
	switch (refusal) {
	case RAFT_REFUSED_LOCKED:
		return TOOL_AGAIN;
	case RAFT_REFUSED_FAULT:
	case RAFT_REFUSED_SPACE:
		return TOOL_IO;
	default:
		return TOOL_DATA;
	}
}

static void set(json_t *fields, const char *name, uint64_t value)
{
	json_object_set_new(fields, name, json_integer((json_int_t)value));
}

static json_t *files_json(const struct raft_cons_files *files)
{
	json_t *fields = json_object(), *rows = json_array();

	set(fields, "cluster", files->cluster_id);
	set(fields, "node", files->node_id);
	set(fields, "term", files->term);
	set(fields, "vote", files->vote);
	set(fields, "log_first", files->first_index);
	set(fields, "log_last", files->last_index);
	set(fields, "snapshot", files->snapshot_index);
	set(fields, "configuration", files->configuration_index);
	for (uint32_t i = 0; i < files->members; i++)
		json_array_append_new(
			rows, json_pack("[I,s,s]", (json_int_t)files->member[i].id,
				      cons_role_name((enum cons_role)files->member[i].role),
				      files->member[i].address));
	return json_pack("{s:b,s:o,s:[s,s,s],s:o}", "ok", 1, "fields", fields, "columns", "node",
		"role", "address", "rows", rows);
}

static void print_files(const struct tool *tool, const struct raft_cons_files *files)
{
	json_t *answer = files_json(files);

	tool_print(tool, answer, true);
	json_decref(answer);
}

static void raft_folder(const char *folder, char *out, size_t size)
{
	snprintf(out, size, "%s/raft", folder);
}

// Returns: TOOL_OK with `dir` and `files`, or the exit code, the reason said.
static int inspect(const char *folder, char *dir, size_t size, struct raft_cons_files *files)
{
	enum raft_cons_refusal refusal;
	const char *why = "";

	raft_folder(folder, dir, size);
	refusal = raft_cons_inspect(dir, files, &why);
	return refusal == RAFT_REFUSED_NOT ? TOOL_OK : refused(folder, refusal, why);
}

int tool_inspect_folder(const struct tool *tool, const char *folder)
{
	struct raft_cons_files files;
	char dir[1024];
	const int rc = inspect(folder, dir, sizeof(dir), &files);

	if (rc == TOOL_OK)
		print_files(tool, &files);
	return rc;
}

// --- verify -------------------------------------------------------------------------------------------------

// Checks one snapshot file of the log. Returns: 0; -errno with `why`.
static int check_snapshot(const char *path, struct store_snapshot_info *info, const char **why)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *bytes;
	int rc;

	*why = "cannot be read";
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0 || st.st_size == 0) {
		close(fd);
		*why = "is empty";
		return -EUCLEAN;
	}
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return -errno;
	rc = store_snapshot_check(bytes, (uint64_t)st.st_size, info, why);
	munmap(bytes, (size_t)st.st_size);
	return rc;
}

// All snapshots in the log's folder: each must be whole. Returns: number, or -1 after saying what is wrong.
static int check_snapshots(const char *dir, uint64_t cluster_id)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	int count = 0;

	while (d != NULL && count >= 0 && (e = readdir(d)) != NULL) {
		const size_t len = strlen(e->d_name);
		struct store_snapshot_info info;
		const char *why = "";
		char path[1300];

		if (strncmp(e->d_name, "snapshot-", 9) != 0 ||
			(len > 5 && strcmp(e->d_name + len - 5, ".meta") == 0))
			continue;
		snprintf(path, sizeof(path), "%s/%.255s", dir, e->d_name);
		if (check_snapshot(path, &info, &why) != 0) {
			tool_error("%s: %s", path, why);
			count = -1;
		} else if (info.cluster_id != cluster_id) {
			tool_error(
				"%s: of cluster %llu", path, (unsigned long long)info.cluster_id);
			count = -1;
		} else {
			count++;
		}
	}
	if (d != NULL)
		closedir(d);
	return count;
}

struct digest {
	uint64_t bytes;
	struct store_crc_body body;
};

static int digest_write(void *ctx, const uint8_t *bytes, uint64_t len)
{
	struct digest *digest = ctx;

	store_crc_body_add(&digest->body, bytes, len);
	digest->bytes += len;
	return 0;
}

// Reads every row of the store. Returns: 0; -errno.
static int walk_store(const char *folder, struct store_position *position,
	struct store_snapshot_info *info, struct digest *digest)
{
	const struct store_snapshot_sink sink = {.write = digest_write, .ctx = digest};
	const struct store_limits limits = {.stages = 1};
	struct store_follow *follow;
	struct store_tx tx;
	int rc = store_follow_open(folder, MAP_BYTES, &follow);

	if (rc != 0)
		return rc;
	rc = store_follow_begin(follow, &tx);
	if (rc == 0) {
		rc = store_read_position(&tx, position);
		if (rc == 0)
			rc = store_snapshot_encode(&tx, &limits, &sink, info);
		store_follow_end(follow, &tx);
	}
	store_follow_close(follow);
	return rc;
}

static int say_verified(const struct tool *tool, const struct raft_cons_files *files, int snapshots,
	const struct store_position *position, const struct store_snapshot_info *info)
{
	json_t *answer = files_json(files), *fields = json_object_get(answer, "fields");
	char chain[20];

	snprintf(chain, sizeof(chain), "%016llx", (unsigned long long)position->chain);
	set(fields, "snapshots", (uint64_t)snapshots);
	set(fields, "store_applied", position->applied);
	set(fields, "store_commit", position->commit);
	json_object_set_new(fields, "store_chain", json_string(chain));
	set(fields, "store_rows", info->rows);
	json_object_set_new(fields, "verdict", json_string("whole"));
	tool_print(tool, answer, true);
	json_decref(answer);
	return TOOL_OK;
}

int tool_verify_folder(const struct tool *tool, const char *folder)
{
	struct raft_cons_files files;
	struct store_position position = {.applied = 0};
	struct store_snapshot_info info = {.rows = 0};
	struct digest digest = {.bytes = 0};
	enum raft_cons_refusal refusal;
	const char *why = "";
	char dir[1024];
	int snapshots, rc;

	raft_folder(folder, dir, sizeof(dir));
	refusal = raft_cons_inspect(dir, &files, &why);
	if (refusal != RAFT_REFUSED_NOT)
		return refused(folder, refusal, why);
	snapshots = check_snapshots(dir, files.cluster_id);
	if (snapshots < 0)
		return TOOL_DATA;
	rc = walk_store(folder, &position, &info, &digest);
	if (rc == -EUCLEAN || (rc == 0 && position.cluster_id != files.cluster_id)) {
		tool_error("%s/store: %s", folder,
			rc != 0 ? "damaged: a start gives it up and builds it anew from the log"
				: "of another cluster");
		return TOOL_DATA;
	}
	// Without a store there is only the log, which is enough.
	if (rc != 0 && rc != -EAGAIN) {
		tool_error("%s/store: %s", folder, strerror(-rc));
		return TOOL_IO;
	}
	if (position.applied > files.last_index) {
		tool_error(
			"%s: the store is at log entry %llu and the log ends at %llu: acknowledged "
			"entries are missing",
			folder, (unsigned long long)position.applied,
			(unsigned long long)files.last_index);
		return TOOL_DATA;
	}
	return say_verified(tool, &files, snapshots, &position, &info);
}

// --- recover ------------------------------------------------------------------------------------------------

static const char explain[] =
	"This makes the node of this folder the only voter of its group and keeps its log. It is "
	"for a "
	"group\nwhose majority is lost for good; entries that only the lost nodes had are lost.\n"
	"  1. Stop every node that is left, for good: none may run with the old group.\n"
	"  2. Run `tagcastctl meta inspect` on the folder of each. Take the one with the highest "
	"last_term,\n"
	"     and among those the highest log_last: it has everything that was acknowledged and is "
	"left.\n"
	"  3. Run this there with --confirm, start it, and join the others with new ids and empty "
	"folders.\n";

int tool_recover_folder(const struct tool *tool, const char *folder)
{
	struct raft_cons_params params = {.election_ms = 300, .heartbeat_ms = 50};
	struct raft_cons_files files;
	enum raft_cons_refusal refusal;
	const char *why = "";
	char dir[1024];
	const int rc = inspect(folder, dir, sizeof(dir), &files);

	if (rc != TOOL_OK)
		return rc;
	if (!tool->confirm) {
		print_files(tool, &files);
		fputs(explain, stderr);
		return TOOL_USAGE;
	}
	params.dir = dir;
	params.node_id = files.node_id;
	params.cluster_id = files.cluster_id;
	// The address stays; the node corrects it at its next start.
	for (uint32_t i = 0; i < files.members; i++)
		if (files.member[i].id == files.node_id)
			memcpy(params.address, files.member[i].address, sizeof(params.address));
	refusal = raft_cons_recover(&params, &files, &why);
	if (refusal != RAFT_REFUSED_NOT)
		return refused(folder, refusal, why);
	print_files(tool, &files);
	return TOOL_OK;
}
