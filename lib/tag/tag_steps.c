/* SPDX-License-Identifier: BSD-3-Clause */
// Steps kept of a line: what each of its last versions changed. A step holds references on its UIDs, so
// that it can be read as long as it is kept. Control core.
#include "tag_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t step_uids(const struct tag_step *step)
{
	return step->adds + step->removes + step->deny_sets + step->deny_clears;
}

static size_t step_bytes(uint32_t uids)
{
	return sizeof(struct tag_step) + uids * sizeof(uint32_t);
}

static void oldest_drop(struct tag_space *space, struct tag_line *line) CONTROL_ONLY;
static void oldest_drop(struct tag_space *space, struct tag_line *line)
{
	struct tag_step *step = line->step[line->step_first];
	const uint32_t uids = step_uids(step);

	for (uint32_t i = 0; i < uids; i++)
		presence_uid_drop(space->presence, TAG_UID(step->uid[i]), space->now_ns);
	line->step_uids -= uids;
	line->step_first = (line->step_first + 1) % space->steps_max;
	line->step_count--;
	space->bytes -= step_bytes(uids);
	free(step);
}

void steps_clear(struct tag_space *space, struct tag_line *line, uint64_t version)
{
	while (line->step_count != 0)
		oldest_drop(space, line);
	line->last_version = version;
	if (line->step != NULL)
		space->bytes -= space->steps_max * sizeof(struct tag_step *);
	free((void *)line->step);
	line->step = NULL;
	line->step_first = 0;
}

void steps_free(struct tag_line *line)
{
	const struct tag_space *space = line->oldest == NULL ? NULL : line->oldest->space;

	// An ended line has none; with the space itself they go without a look at presence.
	for (; line->step_count != 0; line->step_count--) {
		free(line->step[line->step_first]);
		line->step_first = (line->step_first + 1) % space->steps_max;
	}
	free((void *)line->step);
	line->step = NULL;
}

static struct tag_step *step_make(const struct step_lists *l, uint64_t version)
{
	const uint32_t uids = l->adds + l->removes + l->deny_sets + l->deny_clears;
	struct tag_step *step = malloc(step_bytes(uids));
	uint32_t *at;

	if (step == NULL)
		return NULL;
	*step = (struct tag_step){.version = version,
		.adds = l->adds,
		.removes = l->removes,
		.deny_sets = l->deny_sets,
		.deny_clears = l->deny_clears};
	at = step->uid;
	for (uint32_t i = 0; i < l->adds; i++)
		*at++ = l->add[i];
	for (uint32_t i = 0; i < l->removes; i++)
		*at++ = l->remove[i];
	for (uint32_t i = 0; i < l->deny_sets; i++)
		*at++ = l->deny_set[i];
	for (uint32_t i = 0; i < l->deny_clears; i++)
		*at++ = l->deny_clear[i];
	return step;
}

void steps_add(struct tag_space *space, struct tag_line *line, uint64_t version,
	const struct step_lists *lists)
{
	const uint32_t uids = lists->adds + lists->removes + lists->deny_sets + lists->deny_clears;
	const uint64_t ring_bytes =
		line->step == NULL ? space->steps_max * sizeof(struct tag_step *) : 0;
	struct tag_step *step = NULL;

	if (space->steps_max != 0 && uids <= TAG_STEP_UIDS_MAX &&
		space->bytes + step_bytes(uids) + ring_bytes <= space->bytes_max) {
		if (line->step == NULL)
			line->step = calloc(space->steps_max, sizeof(struct tag_step *));
		if (line->step != NULL) {
			space->bytes += ring_bytes;
			step = step_make(lists, version);
		}
	}
	if (step == NULL) {
		steps_clear(space, line, version);
		return;
	}
	for (uint32_t i = 0; i < uids; i++)
		presence_uid_ref(space->presence, TAG_UID(step->uid[i]));
	while (line->step_count != 0 && (line->step_count == space->steps_max ||
						line->step_uids + uids > TAG_STEP_UIDS_MAX))
		oldest_drop(space, line);
	line->step[(line->step_first + line->step_count) % space->steps_max] = step;
	line->step_count++;
	line->step_uids += uids;
	line->last_version = version;
	space->bytes += step_bytes(uids);
}

int tag_steps_since(const struct tag_space *space, const struct tag *tag, uint64_t version)
{
	const struct tag_line *line = record_of(tag)->line;

	(void)space;
	if (version == tag->fence.version)
		return 0;
	if (version > tag->fence.version || line->newest == NULL ||
		version < line->last_version - line->step_count)
		return -ESTALE;
	return (int)(tag->fence.version - version);
}

const struct tag_step *tag_step_of(
	const struct tag_space *space, const struct tag *tag, uint64_t version)
{
	const struct tag_line *line = record_of(tag)->line;

	if (line->step_count == 0 || version > line->last_version ||
		version <= line->last_version - line->step_count)
		return NULL;
	return line->step[(line->step_first + line->step_count - 1 -
				  (uint32_t)(line->last_version - version)) %
			  space->steps_max];
}
