/* SPDX-License-Identifier: BSD-3-Clause */
// Bytes of commands and deltas: one builder and one strict parser each. Pure, any thread.
//
// Command, little-endian:
//   0 u32 bytes of all of it   4 u8 version   5 u8 op   6 u8 list   7 u8 staged op   8 u8 flags
//   9 u8 channel type   10 u8 channel id bytes   11 u8 zero   12 16 de-duplication key
//   28 u64 stage id   36 u32 UIDs   40 u32 bytes of UIDs   44 channel id, UIDs
// of the cluster's tables: 8 u8 node state   9, 10 zero without a channel   28 u64 node or slot
//   36 u32 zero   40 u32 bytes of body   44 channel id, u64 revision it is made for, body
// Delta:
//   0 u8 version   1 u8 kind   2 u8 list   3 u8 flags   4 u8 channel type   5 u8 channel id bytes
//   6 u16 zero   8 u64 commit   16 u64 SMV before   24 u64 SMV   32 u64 members   40 u32 UIDs
//   44 u32 bytes of UIDs   48 channel id, UIDs
#include "store_cluster_pvt.h"

#define CODEC_VERSION 1u
#define FLAGS_ALL 0x1fu

const char *store_table_name(enum store_table table)
{
	static const char *const name[STORE_TABLES] = {
		[STORE_T_META] = "meta",
		[STORE_T_CHANNEL] = "channel",
		[STORE_T_MEMBER] = "member",
		[STORE_T_JOURNAL] = "journal",
		[STORE_T_DEDUP] = "dedup",
		[STORE_T_STAGE] = "stage",
		[STORE_T_RUNTIME] = "runtime",
	};

	return (uint32_t)table < STORE_TABLES ? name[table] : "unknown";
}

const char *store_result_name(enum store_result_code code)
{
	static const char *const name[] = {
		[STORE_R_OK] = "ok",
		[STORE_R_NO_CHANGE] = "no_change",
		[STORE_R_NOT_FOUND] = "not_found",
		[STORE_R_INVALID] = "invalid",
		[STORE_R_BUSY] = "busy",
		[STORE_R_EXPIRED] = "expired",
		[STORE_R_LIMIT] = "limit",
		[STORE_R_REFUSED] = "refused",
		[STORE_R_STALE] = "stale",
	};

	return (uint32_t)code < sizeof(name) / sizeof(name[0]) ? name[code] : "unknown";
}

void store_dedup_key(uint8_t key[STORE_DEDUP_BYTES], uint64_t commit, uint64_t unique)
{
	put_le(key, commit, 8);
	put_le(key + 8, unique, 8);
}

int store_uids_check(const uint8_t *uids, uint32_t bytes, uint32_t count)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (at >= bytes || uids[at] == 0 || uids[at] >= bytes - at)
			return -EINVAL;
		at += 1u + uids[at];
	}
	return at == bytes ? 0 : -EINVAL;
}

static bool is_rows_op(uint8_t op)
{
	return op == STORE_ADD || op == STORE_REMOVE || op == STORE_RESET;
}

// Rules of a command's fields, the same for both directions. Returns: NULL when they hold.
static const char *command_fault(const struct store_command *cmd)
{
	const bool staged =
		cmd->op == STORE_STAGE || cmd->op == STORE_CLOSE || cmd->op == STORE_ABORT;
	const bool info = cmd->op == STORE_CHANNEL_CREATE || cmd->op == STORE_CHANNEL_UPDATE;

	if (op_is_cluster(cmd->op))
		return cluster_command_fault(cmd);
	if (cmd->op < STORE_CHANNEL_CREATE || cmd->op > STORE_ABORT)
		return "unknown op";
	if (cmd->if_revision != 0)
		return "revision not allowed";
	if (!channel_key_valid(&cmd->channel))
		return "channel type or id out of range";
	if (cmd->list >= STORE_LISTS || (cmd->op <= STORE_CHANNEL_REMOVE && cmd->list != 0))
		return "list out of range";
	if ((cmd->flags & ~FLAGS_ALL) != 0 || (!info && cmd->flags != 0))
		return "flags out of range";
	if (staged != (cmd->stage_id != 0))
		return "stage id missing or not allowed";
	if (cmd->op == STORE_STAGE || cmd->op == STORE_CLOSE) {
		if (!is_rows_op(cmd->staged_op))
			return "staged op out of range";
	} else if (cmd->staged_op != 0) {
		return "staged op not allowed";
	}
	if (cmd->op == STORE_CLOSE) {
		if (cmd->uids_bytes != 0)
			return "uids not allowed";
		return cmd->uid_count > MUTATION_UIDS_MAX ? "too many uids" : NULL;
	}
	if (cmd->op != STORE_STAGE && !is_rows_op(cmd->op))
		return cmd->uid_count != 0 || cmd->uids_bytes != 0 ? "uids not allowed" : NULL;
	if (cmd->uid_count == 0 && cmd->op != STORE_RESET)
		return "uids missing";
	if (cmd->uid_count > STORE_UIDS_INLINE_MAX)
		return "too many uids";
	return store_uids_check(cmd->uids, cmd->uids_bytes, cmd->uid_count) != 0 ? "malformed uids"
										 : NULL;
}

// Bytes before the UIDs or the body.
static uint32_t command_head(uint8_t op, uint8_t channel_len)
{
	return COMMAND_HEADER + channel_len + (op_is_cluster(op) ? 8 : 0);
}

int store_command_encode(const struct store_command *cmd, uint8_t *out, uint32_t cap)
{
	if (cmd->uids_bytes > ENTRY_BYTES_MAX || command_fault(cmd) != NULL)
		return -EINVAL;

	const uint32_t head = command_head(cmd->op, cmd->channel.len);
	const uint32_t total = head + cmd->uids_bytes;

	if (total > ENTRY_BYTES_MAX)
		return -EINVAL;
	if (total > cap)
		return -ENOSPC;
	put_le(out, total, 4);
	out[4] = CODEC_VERSION;
	out[5] = cmd->op;
	out[6] = cmd->list;
	out[7] = cmd->staged_op;
	out[8] = cmd->flags;
	out[9] = cmd->channel.type;
	out[10] = cmd->channel.len;
	out[11] = 0;
	memcpy(out + 12, cmd->dedup, STORE_DEDUP_BYTES);
	put_le(out + 28, cmd->stage_id, 8);
	put_le(out + 36, cmd->uid_count, 4);
	put_le(out + 40, cmd->uids_bytes, 4);
	memcpy(out + COMMAND_HEADER, cmd->channel.bytes, cmd->channel.len);
	if (op_is_cluster(cmd->op))
		put_le(out + head - 8, cmd->if_revision, 8);
	if (cmd->uids_bytes != 0)
		memcpy(out + head, cmd->uids, cmd->uids_bytes);
	return (int)total;
}

uint32_t command_frame(const uint8_t *p, uint32_t len)
{
	if (len < COMMAND_HEADER)
		return 0;

	const uint32_t total = (uint32_t)get_le(p, 4);

	return total < COMMAND_HEADER || total > len || total > ENTRY_BYTES_MAX ? 0 : total;
}

int store_command_decode(
	const uint8_t *p, uint32_t len, struct store_command *cmd, const char **why)
{
	const uint32_t total = command_frame(p, len);

	memset(cmd, 0, offsetof(struct store_command, channel));
	cmd->channel.type = 0;
	cmd->channel.len = 0;
	*why = "truncated command";
	if (total == 0)
		return -EINVAL;
	*why = "unknown version";
	if (p[4] != CODEC_VERSION || p[11] != 0)
		return -EINVAL;

	const uint32_t head = command_head(p[5], p[10]);

	cmd->op = p[5];
	cmd->list = p[6];
	cmd->staged_op = p[7];
	cmd->flags = p[8];
	memcpy(cmd->dedup, p + 12, STORE_DEDUP_BYTES);
	cmd->stage_id = get_le(p + 28, 8);
	cmd->uid_count = (uint32_t)get_le(p + 36, 4);
	cmd->uids_bytes = (uint32_t)get_le(p + 40, 4);
	*why = "lengths do not add up";
	if (cmd->uids_bytes > ENTRY_BYTES_MAX || total != head + cmd->uids_bytes)
		return -EINVAL;
	if (op_is_cluster(cmd->op))
		cmd->if_revision = get_le(p + head - 8, 8);
	cmd->channel.type = p[9];
	cmd->channel.len = p[10];
	memcpy(cmd->channel.bytes, p + COMMAND_HEADER, p[10]);
	cmd->uids = p + head;
	*why = command_fault(cmd);
	return *why == NULL ? (int)total : -EINVAL;
}

static bool delta_valid(const struct store_delta *d)
{
	const bool listed = d->kind == STORE_DELTA_ADD || d->kind == STORE_DELTA_REMOVE;

	if (delta_is_cluster(d->kind))
		return d->uids_bytes <= ENTRY_BYTES_MAX && cluster_delta_valid(d);
	if (d->kind < STORE_DELTA_CHANNEL || d->kind > STORE_DELTA_BULK || d->list >= STORE_LISTS)
		return false;
	if (!channel_key_valid(&d->channel) || (d->flags & ~FLAGS_ALL) != 0)
		return false;
	if (d->commit == 0 || d->smv <= d->smv_before || d->uids_bytes > ENTRY_BYTES_MAX)
		return false;
	if (listed != (d->uid_count != 0))
		return false;
	return store_uids_check(d->uids, d->uids_bytes, d->uid_count) == 0;
}

int store_delta_encode(const struct store_delta *delta, uint8_t *out, uint32_t cap)
{
	const uint32_t total = DELTA_HEADER + delta->channel.len + delta->uids_bytes;

	if (delta->uids_bytes > ENTRY_BYTES_MAX || total > cap)
		return -ENOSPC;
	out[0] = CODEC_VERSION;
	out[1] = delta->kind;
	out[2] = delta->list;
	out[3] = delta->flags;
	out[4] = delta->channel.type;
	out[5] = delta->channel.len;
	put_le(out + 6, 0, 2);
	put_le(out + 8, delta->commit, 8);
	put_le(out + 16, delta->smv_before, 8);
	put_le(out + 24, delta->smv, 8);
	put_le(out + 32, delta->members, 8);
	put_le(out + 40, delta->uid_count, 4);
	put_le(out + 44, delta->uids_bytes, 4);
	memcpy(out + DELTA_HEADER, delta->channel.bytes, delta->channel.len);
	if (delta->uids_bytes != 0)  // may be in place already
		memmove(out + DELTA_HEADER + delta->channel.len, delta->uids, delta->uids_bytes);
	return (int)total;
}

int store_delta_decode(const uint8_t *p, uint32_t len, struct store_delta *delta)
{
	memset(delta, 0, offsetof(struct store_delta, channel));
	if (len < DELTA_HEADER || p[0] != CODEC_VERSION || p[6] != 0 || p[7] != 0)
		return -EINVAL;
	delta->kind = p[1];
	delta->list = p[2];
	delta->flags = p[3];
	delta->channel.type = p[4];
	delta->channel.len = p[5];
	delta->commit = get_le(p + 8, 8);
	delta->smv_before = get_le(p + 16, 8);
	delta->smv = get_le(p + 24, 8);
	delta->members = get_le(p + 32, 8);
	delta->uid_count = (uint32_t)get_le(p + 40, 4);
	delta->uids_bytes = (uint32_t)get_le(p + 44, 4);
	if (delta->uids_bytes > ENTRY_BYTES_MAX)
		return -EINVAL;

	const uint32_t total = DELTA_HEADER + p[5] + delta->uids_bytes;

	if (total > len)
		return -EINVAL;
	memcpy(delta->channel.bytes, p + DELTA_HEADER, p[5]);
	delta->uids = p + DELTA_HEADER + p[5];
	return delta_valid(delta) ? (int)total : -EINVAL;
}
