// The objects behind handles. Layer: basis.
#include "basis.h"

#include <stdlib.h>

pthread_mutex_t shim_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *free_objects[KIND_COUNT];
static uint32_t process;

void *object_new(enum kind kind, size_t size) {
	pthread_mutex_lock(&free_lock);
	struct object *o = free_objects[kind];
	if (o != NULL)
		free_objects[kind] = o->next;
	pthread_mutex_unlock(&free_lock);
	if (o == NULL)
		o = malloc(size);
	if (o == NULL)
		return NULL;
	memset(o, 0, size);
	o->process = process;
	atomic_store(&o->kind, kind);
	return o;
}

void object_free(void *object) {
	struct object *o = object;
	enum kind kind = atomic_exchange(&o->kind, KIND_NONE);
	pthread_mutex_lock(&free_lock);
	o->next = free_objects[kind];
	free_objects[kind] = o;
	pthread_mutex_unlock(&free_lock);
}

bool object_is(const void *object, enum kind kind) {
	uintptr_t at = (uintptr_t)object;
	if (at < 4096 || at % _Alignof(struct object) != 0)
		return false;
	const struct object *o = object;
	return atomic_load_explicit(&o->kind, memory_order_relaxed) == kind && o->process == process;
}

void object_link(struct object **list, void *object) {
	struct object *o = object;
	o->previous = NULL;
	o->next = *list;
	if (*list != NULL)
		(*list)->previous = o;
	*list = o;
}

void object_unlink(struct object **list, void *object) {
	struct object *o = object;
	if (o->previous != NULL)
		o->previous->next = o->next;
	else
		*list = o->next;
	if (o->next != NULL)
		o->next->previous = o->previous;
}

void object_forget_all(void) {
	pthread_mutex_init(&shim_lock, NULL);
	pthread_mutex_init(&free_lock, NULL);
	memset(free_objects, 0, sizeof free_objects);
	process++;
}
