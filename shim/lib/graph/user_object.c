// User objects: data of the program that graphs keep alive. Layer: graph. When the last
// reference goes, the library calls the program's destructor.
#include "graph.h"

#include <stdlib.h>

struct CUuserObject_st {
	struct object object;
	_Atomic uint64_t references;
	void *data;
	CUhostFn destroy;
};

struct user_reference { // of a graph
	struct user_reference *next;
	CUuserObject object;
	uint64_t count;
};

static bool is_object(CUuserObject o) { return object_is(o, KIND_USER_OBJECT); }

// Calls the destructor at once, in this thread and perhaps under the lock of capture.c. The driver
// calls it later in another thread. Programs cannot tell the difference: a destructor may not call
// CUDA, and they may not wait for it.
static void release(CUuserObject o, uint64_t count) {
	if (atomic_fetch_sub(&o->references, count) != count)
		return;
	CUhostFn destroy = o->destroy;
	void *data = o->data;
	object_free(o);
	destroy(data);
}

CUresult with_cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy, unsigned int count, unsigned int flags) {
	if (destroy == NULL || count == 0 || count > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	CUuserObject o = object_new(KIND_USER_OBJECT, sizeof *o);
	if (o == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->references = count;
	o->data = data;
	o->destroy = destroy;
	*object = o;
	return CUDA_SUCCESS;
}

CUresult do_cuUserObjectRetain(CUuserObject object, unsigned int count) {
	if (!is_object(object) || count == 0 || count > INT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_fetch_add(&object->references, count);
	return CUDA_SUCCESS;
}

CUresult do_cuUserObjectRelease(CUuserObject object, unsigned int count) {
	if (!is_object(object) || count == 0 || count > atomic_load(&object->references))
		return CUDA_ERROR_INVALID_VALUE;
	release(object, count);
	return CUDA_SUCCESS;
}

static struct user_reference *find(struct user_reference *list, CUuserObject o) {
	while (list != NULL && list->object != o)
		list = list->next;
	return list;
}

static CUresult add(struct user_reference **list, CUuserObject o, uint64_t count) {
	struct user_reference *r = find(*list, o);
	if (r == NULL) {
		r = calloc(1, sizeof *r);
		if (r == NULL)
			return CUDA_ERROR_OUT_OF_MEMORY;
		r->object = o;
		r->next = *list;
		*list = r;
	}
	r->count += count;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
	if (!object_is(graph, KIND_GRAPH) || !is_object(object) || count == 0 || count > INT32_MAX || flags > CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags == CU_GRAPH_USER_OBJECT_MOVE && count > atomic_load(&object->references))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = add(&graph->objects, object, count);
	if (result == CUDA_SUCCESS && flags != CU_GRAPH_USER_OBJECT_MOVE)
		atomic_fetch_add(&object->references, count);
	return result;
}

CUresult do_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
	if (!object_is(graph, KIND_GRAPH) || !is_object(object) || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct user_reference **at = &graph->objects;
	while (*at != NULL && (*at)->object != object)
		at = &(*at)->next;
	struct user_reference *r = *at;
	if (r == NULL || r->count < count)
		return CUDA_ERROR_INVALID_VALUE;
	r->count -= count;
	if (r->count == 0) {
		*at = r->next;
		free(r);
	}
	release(object, count);
	return CUDA_SUCCESS;
}

// A copy of a graph takes one reference to each object.
CUresult user_references_copy(struct user_reference *from, struct user_reference **to) {
	CUresult result = CUDA_SUCCESS;
	for (; from != NULL && result == CUDA_SUCCESS; from = from->next) {
		result = add(to, from->object, 1);
		if (result == CUDA_SUCCESS)
			atomic_fetch_add(&from->object->references, 1);
	}
	return result;
}

void user_references_release(struct user_reference *list) {
	for (struct user_reference *next; list != NULL; list = next) {
		next = list->next;
		release(list->object, list->count);
		free(list);
	}
}
