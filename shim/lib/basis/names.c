// A hash table of objects by name, with open addressing. Layer: basis. A module has
// thousands of functions, and programs look them up often. Names are never removed one by one.
#include "basis.h"

#include <stdlib.h>

static size_t hash(const char *name) {
	uint64_t h = 14695981039346656037u; // FNV-1a
	for (; *name != 0; name++)
		h = (h ^ (uint8_t)*name) * 1099511628211u;
	return (size_t)(h ^ h >> 32);
}

// The slot of a name, or the empty slot where it belongs. There always is one, since at most half
// of the slots are used.
static struct named *slot_of(struct named *slots, size_t room, const char *name) {
	size_t i = hash(name) & (room - 1);
	while (slots[i].name != NULL && strcmp(slots[i].name, name) != 0)
		i = (i + 1) & (room - 1);
	return &slots[i];
}

void *names_find(const struct names *n, const char *name) { return n->room > 0 ? slot_of(n->slots, n->room, name)->object : NULL; }

static bool grow(struct names *n) {
	size_t room = n->room > 0 ? 2 * n->room : 16;
	struct named *slots = calloc(room, sizeof *slots);
	if (slots == NULL)
		return false;
	for (size_t i = 0; i < n->room; i++)
		if (n->slots[i].name != NULL)
			*slot_of(slots, room, n->slots[i].name) = n->slots[i];
	free(n->slots);
	n->slots = slots;
	n->room = room;
	return true;
}

bool names_add(struct names *n, const char *name, void *object) {
	if (2 * (n->count + 1) > n->room && !grow(n))
		return false;
	*slot_of(n->slots, n->room, name) = (struct named){name, object};
	n->count++;
	return true;
}

void names_clear(struct names *n) {
	free(n->slots);
	*n = (struct names){0};
}
