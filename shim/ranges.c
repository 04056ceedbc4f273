// Which addresses are taken: a table sorted by address.
#include "shim.h"

#include <stdlib.h>

// The number of ranges that begin at or before an address.
static size_t upto(const struct ranges *r, uint64_t at) {
	size_t low = 0, high = r->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (r->list[middle].at <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct range *ranges_find(const struct ranges *r, uint64_t at, uint64_t size) {
	size_t n = upto(r, at);
	if (n == 0)
		return NULL;
	struct range *range = &r->list[n - 1];
	uint64_t into = at - range->at;
	return into < range->size && size <= range->size - into ? range : NULL;
}

static bool insert(struct ranges *r, size_t i, struct range range) {
	static _Atomic uint64_t ids;
	if (r->count == r->room) {
		size_t room = r->room > 0 ? 2 * r->room : 16;
		struct range *list = realloc(r->list, room * sizeof *list);
		if (list == NULL)
			return false;
		r->list = list;
		r->room = room;
	}
	memmove(&r->list[i + 1], &r->list[i], (r->count - i) * sizeof *r->list);
	range.id = atomic_fetch_add(&ids, 1) + 1;
	r->list[i] = range;
	r->count++;
	return true;
}

uint64_t ranges_take(struct ranges *r, uint64_t low, uint64_t high, uint64_t size, uint64_t align, CUcontext context) {
	if (size == 0 || high < low || size > high - low)
		return 0;
	uint64_t at = (low + align - 1) / align * align;
	size_t i = upto(r, at);
	if (i > 0 && r->list[i - 1].at + r->list[i - 1].size > at)
		i--;
	for (; i < r->count && r->list[i].at < high; i++) {
		if (r->list[i].at >= at && r->list[i].at - at >= size)
			break;
		at = (r->list[i].at + r->list[i].size + align - 1) / align * align;
	}
	if (at > high || size > high - at)
		return 0;
	return insert(r, i, (struct range){.at = at, .size = size, .context = context}) ? at : 0;
}

bool ranges_add(struct ranges *r, struct range range) {
	size_t i = upto(r, range.at);
	if (i > 0 && r->list[i - 1].at + r->list[i - 1].size > range.at)
		return false;
	if (i < r->count && r->list[i].at - range.at < range.size)
		return false;
	return insert(r, i, range);
}

void ranges_remove(struct ranges *r, struct range *range) {
	size_t i = (size_t)(range - r->list);
	r->count--;
	memmove(range, range + 1, (r->count - i) * sizeof *range);
}
