/* SPDX-License-Identifier: BSD-3-Clause */
// Names of UIDs: pages of equal cells, a page goes back to the common pool when its last cell is free.
// Owned by the control core.
#include "presence_pvt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int names_init(struct names *names, uint32_t pages_max)
{
	memset(names, 0, sizeof(*names));
	names->page = calloc(pages_max, sizeof(*names->page));
	if (names->page == NULL)
		return -ENOMEM;
	names->pages_max = pages_max;
	names->unused = NAME_NONE;
	for (uint32_t i = 0; i < NAME_CLASSES; i++)
		names->room[i] = NAME_NONE;
	return 0;
}

void names_fini(struct names *names)
{
	for (uint32_t i = 0; i < names->pages; i++)
		free(names->page[i].bytes);
	free(names->page);
	names->page = NULL;
}

static void room_add(struct names *names, uint32_t n)
{
	struct name_page *page = &names->page[n];
	uint32_t *head = &names->room[page->units - 1];

	page->prev = NAME_NONE;
	page->next = *head;
	if (*head != NAME_NONE)
		names->page[*head].prev = n;
	*head = n;
}

static void room_remove(struct names *names, uint32_t n)
{
	struct name_page *page = &names->page[n];

	if (page->prev != NAME_NONE)
		names->page[page->prev].next = page->next;
	else
		names->room[page->units - 1] = page->next;
	if (page->next != NAME_NONE)
		names->page[page->next].prev = page->prev;
}

// A page for cells of `units`, linked as one with room. Returns: its number or NAME_NONE.
static uint32_t page_take(struct names *names, uint8_t units)
{
	uint32_t n = names->unused;
	struct name_page *page;

	if (n == NAME_NONE && names->pages == names->pages_max)
		return NAME_NONE;
	if (n == NAME_NONE)
		n = names->pages;
	page = &names->page[n];
	page->bytes = malloc(NAME_PAGE_BYTES);
	if (page->bytes == NULL)
		return NAME_NONE;
	if (n == names->pages)
		names->pages++;
	else
		names->unused = page->next;
	names->bytes += NAME_PAGE_BYTES;
	page->units = units;
	page->used = 0;
	page->fresh = 0;
	page->free = 0;
	room_add(names, n);
	return n;
}

uint32_t names_put(struct names *names, struct id_view name)
{
	const uint8_t units = (uint8_t)((name.len + NAME_UNIT_BYTES - 1) / NAME_UNIT_BYTES);
	const uint32_t cells = NAME_PAGE_UNITS / units;
	uint32_t n = names->room[units - 1];
	struct name_page *page;
	uint32_t cell;
	uint8_t *p;

	if (n == NAME_NONE)
		n = page_take(names, units);
	if (n == NAME_NONE)
		return NAME_NONE;
	page = &names->page[n];
	if (page->free != 0) {
		cell = page->free - 1u;
		p = page->bytes + (size_t)cell * units * NAME_UNIT_BYTES;
		memcpy(&page->free, p, sizeof(page->free));
	} else {
		cell = page->fresh++;
		p = page->bytes + (size_t)cell * units * NAME_UNIT_BYTES;
	}
	memcpy(p, name.bytes, name.len);
	if (++page->used == cells)
		room_remove(names, n);
	return n * NAME_PAGE_UNITS + cell * units;
}

void names_free(struct names *names, uint32_t where)
{
	const uint32_t n = where / NAME_PAGE_UNITS;
	struct name_page *page = &names->page[n];
	const uint32_t cell = where % NAME_PAGE_UNITS / page->units;
	const uint32_t cells = NAME_PAGE_UNITS / page->units;

	if (page->used == cells)
		room_add(names, n);
	if (--page->used == 0) {
		room_remove(names, n);
		free(page->bytes);
		page->bytes = NULL;
		page->units = 0;
		page->next = names->unused;
		names->unused = n;
		names->bytes -= NAME_PAGE_BYTES;
		return;
	}
	memcpy(page->bytes + (size_t)cell * page->units * NAME_UNIT_BYTES, &page->free,
		sizeof(page->free));
	page->free = (uint16_t)(cell + 1);
}
