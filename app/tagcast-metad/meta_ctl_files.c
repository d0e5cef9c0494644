/* SPDX-License-Identifier: BSD-3-Clause */
// Commands of meta.sock about whole states: backup to a file, a digest to compare nodes by, restore from a
// backup. The work is done by the pool. Run by the loop.
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base_file.h"
#include "base_log.h"
#include "base_time.h"
#include "metad.h"
#include "store_crc.h"
#include "store_snapshot.h"

#define PATH_BYTES 1024u
#define FILE_BYTES_MAX (UINT64_C(1) << 30)  // what the log takes as one snapshot

// A walk over the state by the pool: to a file, or to nowhere for its digest.
struct walk {
	struct meta_job job;
	struct metad *metad;
	struct ctl_request *request;
	void *snapshot;
	struct store_position position;
	char path[PATH_BYTES], part[PATH_BYTES + 8];  // path empty: no file
	int fd;
	int rc;
	uint64_t bytes;
	struct store_crc_body body;
};

static int walk_write(void *ctx, const uint8_t *bytes, uint64_t len)
{
	struct walk *walk = ctx;

	store_crc_body_add(&walk->body, bytes, len);
	walk->bytes += len;
	while (len > 0 && walk->fd >= 0) {
		const ssize_t put = write(walk->fd, bytes, len);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -errno;
		bytes += put;
		len -= (uint64_t)put;
	}
	return 0;
}

// The file appears whole and durable, or not at all.
static int write_file(struct walk *walk, const struct cons_sink *sink)
{
	char folder[PATH_BYTES];
	int rc;

	walk->fd = open(walk->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (walk->fd < 0)
		return -errno;
	rc = meta_snapshot_encode(walk->snapshot, sink);
	if (rc == 0 && fsync(walk->fd) != 0)
		rc = -errno;
	close(walk->fd);
	if (rc == 0 && rename(walk->part, walk->path) != 0)
		rc = -errno;
	if (rc != 0)
		unlink(walk->part);
	strcpy(folder, walk->path);
	return rc != 0 ? rc : file_sync_folder(dirname(folder));
}

static void walk_run(struct meta_job *job)
{
	struct walk *walk = (struct walk *)job;
	const struct cons_sink sink = {.write = walk_write, .ctx = walk};

	walk->rc = walk->path[0] != '\0' ? write_file(walk, &sink)
					 : meta_snapshot_encode(walk->snapshot, &sink);
}

static json_t *walk_fields(const struct walk *walk)
{
	char chain[20], crc[12];
	json_t *fields;

	snprintf(chain, sizeof(chain), "%016llx", (unsigned long long)walk->position.chain);
	snprintf(crc, sizeof(crc), "%08x", walk->body.crc);
	fields = json_pack("{s:I,s:I,s:I,s:I,s:s,s:I,s:s}", "node",
		(json_int_t)walk->metad->options.node_id, "cluster",
		(json_int_t)walk->position.cluster_id, "applied",
		(json_int_t)walk->position.applied, "commit", (json_int_t)walk->position.commit,
		"chain", chain, "bytes", (json_int_t)walk->bytes, "crc32c", crc);
	if (walk->path[0] != '\0')
		json_object_set_new(fields, "file", json_string(walk->path));
	return fields;
}

static void walk_done(struct meta_job *job) META_ONLY;
static void walk_done(struct meta_job *job)
{
	struct walk *walk = (struct walk *)job;

	meta_snapshot_end(&walk->metad->state, walk->snapshot);
	walk->metad->backing_up = false;
	if (walk->rc == 0)
		ctl_reply(walk->request, json_pack("{s:o}", "fields", walk_fields(walk)));
	else if (walk->path[0] != '\0')
		ctl_fail(walk->request, walk->rc == -EUCLEAN ? "damaged" : "io", "%s: %s",
			walk->rc == -EEXIST ? walk->part : walk->path,
			walk->rc == -EUCLEAN  ? "the store is damaged"
			: walk->rc == -EEXIST ? "left by a backup that did not end; remove it"
					      : strerror(-walk->rc));
	else
		ctl_fail(walk->request, walk->rc == -EUCLEAN ? "damaged" : "io",
			"the store cannot be read whole: %s", strerror(-walk->rc));
	free(walk);
}

static void walk_begin(
	struct metad *metad, struct ctl_request *request, const char *path) META_ONLY;
static void walk_begin(struct metad *metad, struct ctl_request *request, const char *path)
{
	struct walk *walk;
	int rc;

	if (metad->backing_up) {
		ctl_fail(request, "busy", "a backup or verification runs already, try again");
		return;
	}
	walk = calloc(1, sizeof(*walk));
	if (walk == NULL) {
		ctl_fail(request, "busy", "no memory");
		return;
	}
	rc = meta_snapshot_begin(&metad->state, &walk->snapshot);
	if (rc != 0) {
		ctl_fail(request, "busy", "the store cannot be walked now: %s", strerror(-rc));
		free(walk);
		return;
	}
	walk->job.run = walk_run;
	walk->job.done = walk_done;
	walk->metad = metad;
	walk->request = request;
	walk->position = metad->state.position;
	walk->fd = -1;
	if (path != NULL) {
		strcpy(walk->path, path);
		snprintf(walk->part, sizeof(walk->part), "%s.part", path);
	}
	metad->backing_up = true;
	meta_pool_submit(metad->pool, META_LONG, &walk->job);
}

static bool must_have_state(struct metad *metad, struct ctl_request *request)
{
	if (metad->group == METAD_MEMBER)
		return true;
	ctl_fail(request, "not_ready", "no group yet: there is nothing to look at");
	return false;
}

static bool args_path(struct ctl_request *request, const json_t *args, char path[PATH_BYTES])
{
	if (!args_text(request, args, "path", path, PATH_BYTES))
		return false;
	if (path[0] == '/')
		return true;
	ctl_fail(request, "invalid_argument", "path is an absolute path on this node");
	return false;
}

void metad_backup(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_backup(void *ctx, struct ctl_request *request, const json_t *args)
{
	char path[PATH_BYTES];

	if (args_known(request, args, "path") && args_path(request, args, path) &&
		must_have_state(ctx, request))
		walk_begin(ctx, request, path);
}

void metad_verify(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_verify(void *ctx, struct ctl_request *request, const json_t *args)
{
	if (args_known(request, args, "") && must_have_state(ctx, request))
		walk_begin(ctx, request, NULL);
}

// --- restore ------------------------------------------------------------------------------------------------

struct restore {
	struct meta_job job;
	struct metad *metad;
	struct ctl_request *request;
	char path[PATH_BYTES];
	struct store_snapshot_info info;
	const char *why;
	const char *code;  // NULL: all is well
};

// Reads a whole file. Returns: NULL with `why`.
static uint8_t *read_file(const char *path, uint64_t *len, const char **why)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *bytes = NULL;
	uint64_t got = 0;
	struct stat st;
	ssize_t n = 1;

	*why = strerror(errno);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		*why = "it is no file";
	else if ((uint64_t)st.st_size > FILE_BYTES_MAX)
		*why = "it is larger than a snapshot may be";
	else if ((bytes = malloc((size_t)st.st_size + 1)) == NULL)
		*why = "no memory";
	while (bytes != NULL && n > 0 && got < (uint64_t)st.st_size) {
		n = read(fd, bytes + got, (uint64_t)st.st_size - got);
		got += n > 0 ? (uint64_t)n : 0;
		if (n < 0 && errno == EINTR)
			n = 1;
	}
	close(fd);
	if (bytes != NULL && got < (uint64_t)st.st_size) {
		*why = "it cannot be read";
		free(bytes);
		bytes = NULL;
	}
	*len = got;
	return bytes;
}

static void restore_run(struct meta_job *job)
{
	struct restore *restore = (struct restore *)job;
	uint64_t len;
	uint8_t *bytes = read_file(restore->path, &len, &restore->why);
	int rc;

	if (bytes == NULL) {
		restore->code = "io";
		return;
	}
	if (store_snapshot_check(bytes, len, &restore->info, &restore->why) != 0) {
		restore->code = "damaged";
	} else if (restore->info.cluster_id == restore->metad->options.cluster_id) {
		rc = raft_cons_restore_write(
			restore->metad->raft, bytes, len, restore->info.applied);
		if (rc != 0) {
			restore->code = "io";
			restore->why = strerror(-rc);
		}
	}
	free(bytes);
}

static json_t *restored_fields(const struct restore *restore)
{
	return json_pack("{s:{s:s,s:I,s:I,s:I,s:I}}", "fields", "file", restore->path, "node",
		(json_int_t)restore->metad->options.node_id, "cluster",
		(json_int_t)restore->info.cluster_id, "applied", (json_int_t)restore->info.applied,
		"commit", (json_int_t)restore->info.commit);
}

static void restore_done(struct meta_job *job) META_ONLY;
static void restore_done(struct meta_job *job)
{
	struct restore *restore = (struct restore *)job;
	struct metad *metad = restore->metad;
	const char *why = "";

	metad->group = METAD_WAITING;
	if (restore->code != NULL)
		ctl_fail(restore->request, restore->code, "%s: %s", restore->path, restore->why);
	else if (restore->info.cluster_id != metad->options.cluster_id)
		ctl_fail(restore->request, "foreign",
			"%s is of cluster %llu, this node is of cluster %llu (node.cluster_id)",
			restore->path, (unsigned long long)restore->info.cluster_id,
			(unsigned long long)metad->options.cluster_id);
	else if (metad_group_restore(metad, restore->info.applied, &why) != RAFT_REFUSED_NOT)
		ctl_fail(restore->request, "refused", "%s", why);
	else
		ctl_reply(restore->request, restored_fields(restore));
	free(restore);
}

void metad_restore(void *ctx, struct ctl_request *request, const json_t *args) META_ONLY;
void metad_restore(void *ctx, struct ctl_request *request, const json_t *args)
{
	struct metad *metad = ctx;
	struct restore *restore = calloc(1, sizeof(*restore));

	if (restore == NULL) {
		ctl_fail(request, "busy", "no memory");
		return;
	}
	if (!args_known(request, args, "path") || !args_path(request, args, restore->path) ||
		!metad_must_wait(metad, request)) {
		free(restore);
		return;
	}
	restore->job.run = restore_run;
	restore->job.done = restore_done;
	restore->metad = metad;
	restore->request = request;
	metad->group = METAD_RESTORING;
	meta_pool_submit(metad->pool, META_LONG, &restore->job);
}
