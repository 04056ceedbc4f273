// The chunks of device memory that other programs have, too. Layer: work. ipc.c makes the shares; here they are
// kept, and end with their last allocation.
#include "core.h"

#include <stdlib.h>

#define STEP ((uint64_t)512) // small allocations begin at multiples of it

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; // protects the links of the list

static struct share *all;

static _Atomic bool ever;

struct share *share_at(struct client *c, uint64_t at) {
	pthread_mutex_lock(&list_lock);
	struct share *s = all;
	while (s != NULL && !(s->client == c && at >= s->at && at - s->at < s->size))
		s = s->next;
	pthread_mutex_unlock(&list_lock);
	return s;
}

void share_forget(struct share *s) {
	pthread_mutex_lock(&list_lock);
	struct share **link = &all;
	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
	pthread_mutex_unlock(&list_lock);
	free(s);
}

struct share *share_remember(struct share template) {
	struct share *s = malloc(sizeof *s);
	if (s == NULL)
		return NULL;
	*s = template;
	pthread_mutex_lock(&list_lock);
	s->next = all;
	all = s;
	pthread_mutex_unlock(&list_lock);
	atomic_store(&ever, true);
	return s;
}

// The chunks that a range lies in, extended until no allocation crosses their border. The caller
// holds the memory.
void shares_chunks(const struct ranges *allocations, const struct range *range, uint64_t *from, uint64_t *to) {
	*from = range->at / SHARE_CHUNK * SHARE_CHUNK;
	*to = (range->at + range->size + SHARE_CHUNK - 1) / SHARE_CHUNK * SHARE_CHUNK;
	for (bool grown = true; grown;) {
		struct range *first = ranges_find(allocations, *from, 1), *last = ranges_find(allocations, *to - 1, 1);
		grown = false;
		if (first != NULL && first->at < *from) {
			*from = first->at / SHARE_CHUNK * SHARE_CHUNK;
			grown = true;
		}
		if (last != NULL && last->at + last->size > *to) {
			*to = (last->at + last->size + SHARE_CHUNK - 1) / SHARE_CHUNK * SHARE_CHUNK;
			grown = true;
		}
	}
}

// Takes the free addresses between allocations (RANGE_GAP), so that no new allocation is put there:
// otherwise other programs could read it, or it could lie in shared memory with only a part of
// itself. The caller holds the memory.
void shares_fill_gaps(struct ranges *allocations, uint64_t from, uint64_t to) {
	for (uint64_t at = from; at < to;) {
		struct range *range = ranges_find(allocations, at, 1);
		if (range != NULL) {
			at = (range->at + range->size + STEP - 1) / STEP * STEP;
			continue;
		}
		range = ranges_from(allocations, at);
		uint64_t end = range != NULL && range->at < to ? range->at : to;
		ranges_add(allocations, (struct range){.at = at, .size = end - at, .flags = RANGE_GAP});
		at = end;
	}
}

void shares_open_gaps(struct ranges *allocations, uint64_t from, uint64_t to) {
	for (struct range *range = ranges_from(allocations, from), *next; range != NULL && range->at < to; range = next) {
		next = ranges_from(allocations, range->at + 1);
		if ((range->flags & RANGE_GAP) != 0)
			ranges_remove(allocations, range);
	}
}

// Called after an allocation has been freed: the share goes with its last allocation. The caller
// holds the memory.
void shares_freed(struct client *c, struct ranges *allocations, uint64_t at) {
	if (!atomic_load(&ever))
		return;
	struct share *s = share_at(c, at);
	if (s == NULL)
		return;
	for (struct range *range = ranges_from(allocations, s->at); range != NULL && range->at < s->at + s->size; range = ranges_from(allocations, range->at + 1))
		if ((range->flags & RANGE_GAP) == 0)
			return;
	shares_open_gaps(allocations, s->at, s->at + s->size);
	share_forget(s);
}

// This process's share with a name, of one client or (c is NULL) of any.
struct share *share_named(const uint64_t name[4], struct client *c, bool imported) {
	pthread_mutex_lock(&list_lock);
	struct share *s = all;
	while (s != NULL && !((c == NULL || s->client == c) && s->imported == imported && memcmp(s->name, name, sizeof s->name) == 0))
		s = s->next;
	pthread_mutex_unlock(&list_lock);
	return s;
}

bool shares_any(void) { return atomic_load(&ever); }

void shares_forget_all(void) {
	pthread_mutex_init(&list_lock, NULL);
	all = NULL;
}
