// Contexts: those that programs make, the primary one of each device, and which of them
// is current in a thread. Layer: work. All contexts of a device share its client.
#include "core.h"

#include <stdlib.h>

#define STACK 64

static __thread struct {
	CUcontext stack[STACK];
	int depth;
} current;

static _Atomic uint64_t context_ids;

static CUcontext primaries[MAX_DEVICES];

// Held while a context is attached to its device's client, or cleared (contexts.c). Clearing decides by
// client.contexts whether it may reset the whole client, so no other context may attach
// meanwhile. Also protects retained and active of primary contexts.
static pthread_mutex_t attach_locks[MAX_DEVICES];

struct uses { // of a client
	int contexts; // under attach_locks of its device
};

static size_t part;

static struct uses *uses_of(struct client *c) { return client_part(c, part); }

__attribute__((constructor)) static void take_a_part(void) { part = client_register(sizeof(struct uses), NULL); }

static void init_attach_locks(void) {
	for (int i = 0; i < MAX_DEVICES; i++)
		pthread_mutex_init(&attach_locks[i], NULL);
}

static struct object *contexts; // all that were not destroyed; under shim_lock

// Destroyed contexts. Threads may still have them current, so they are kept: a call gets
// CUDA_ERROR_CONTEXT_IS_DESTROYED, and the handle is never reused.
static struct object *destroyed;

// The settings of a new context, and of a primary context after a reset.
void context_defaults(CUcontext context) {
	context->limits[CU_LIMIT_STACK_SIZE] = STACK_UNSET;
	context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = (8u << 20) + (256u << 10);
	context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20;
	context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
	context->cache = CU_FUNC_CACHE_PREFER_NONE;
	context->legacy = (struct stream_attributes){0};
}

void context_renumber(CUcontext context) { context->id = atomic_fetch_add(&context_ids, 1) + 1; }

CUcontext context_new(int device, unsigned flags, unsigned version) {
	CUcontext context = object_new(KIND_CONTEXT, sizeof *context);
	if (context == NULL)
		return NULL;
	context->device = device;
	context->flags = flags;
	context->version = version;
	context_renumber(context);
	context_defaults(context);
	pthread_mutex_init(&context->local_lock, NULL);
	pthread_mutex_lock(&shim_lock);
	object_link(&contexts, context);
	pthread_mutex_unlock(&shim_lock);
	return context;
}

// Makes the primary contexts at cuInit, since the runtime asks for their handles before it retains
// them. They stay inactive until then.
void contexts_start(void) {
	init_attach_locks();
	for (int i = 0; i < device_count; i++) {
		primaries[i] = context_new(i, 0, 3020);
		if (primaries[i] != NULL)
			primaries[i]->primary = true;
	}
}

void contexts_forget_thread(void) {
	current.depth = 0;
	contexts = destroyed = NULL;
	for (int i = 0; i < device_count; i++)
		primaries[i] = NULL;
}

CUcontext context_current(void) { return current.depth > 0 ? current.stack[current.depth - 1] : NULL; }

CUresult context_push(CUcontext context) {
	if (current.depth == STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	current.stack[current.depth++] = context;
	return CUDA_SUCCESS;
}

// Takes the current context off the stack; false if there is none.
bool context_pop(CUcontext *context) {
	if (current.depth == 0)
		return false;
	current.depth--;
	if (context != NULL)
		*context = current.stack[current.depth];
	return true;
}

CUcontext context_primary(int device) { return device >= 0 && device < device_count ? primaries[device] : NULL; }

void context_hold(int device) { pthread_mutex_lock(&attach_locks[device]); }
void context_let_go(int device) { pthread_mutex_unlock(&attach_locks[device]); }

// Forgets a context that no program has seen.
void context_forget(CUcontext context) {
	pthread_mutex_lock(&shim_lock);
	object_unlink(&contexts, context);
	pthread_mutex_unlock(&shim_lock);
	object_free(context);
}

void context_bury(CUcontext context) {
	pthread_mutex_lock(&shim_lock);
	object_unlink(&contexts, context);
	object_link(&destroyed, context);
	pthread_mutex_unlock(&shim_lock);
}

static __thread bool calling;

void host_thread_begins(void) { calling = true; }

bool host_calling(void) { return calling; }

CUresult context_usable(CUcontext context) {
	if (!object_is(context, KIND_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	return context->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

size_t context_stack(CUcontext context) { return context->limits[CU_LIMIT_STACK_SIZE] == STACK_UNSET ? 0 : context->limits[CU_LIMIT_STACK_SIZE]; }

CUresult context_need(CUcontext *context) {
	*context = context_current();
	if (*context == NULL && host_calling())
		return CUDA_ERROR_NOT_PERMITTED;
	return context_usable(*context);
}

CUresult context_client(CUcontext context, struct client **client) {
	if (context == NULL) // the context of an object that another thread has just released
		return CUDA_ERROR_INVALID_HANDLE;
	*client = atomic_load_explicit(&context->client, memory_order_acquire);
	if (*client != NULL)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&attach_locks[context->device]);
	CUresult result = client_for(context->device, client);
	if (result == CUDA_SUCCESS && atomic_load(&context->client) == NULL) {
		uses_of(*client)->contexts++;
		atomic_store(&context->client, *client);
	}
	pthread_mutex_unlock(&attach_locks[context->device]);
	return result;
}

bool context_alone(CUcontext context) { return uses_of(atomic_load(&context->client))->contexts == 1; }

void context_detach(CUcontext context) {
	uses_of(atomic_load(&context->client))->contexts--;
	atomic_store(&context->client, NULL);
}

void context_own(CUcontext context, void *object) {
	pthread_mutex_lock(&shim_lock);
	((struct object *)object)->context = context;
	object_link(&context->owned, object);
	pthread_mutex_unlock(&shim_lock);
}

// Three threads may release an object at the same time: one that ends (its own streams), one that
// destroys the handle, and one that destroys the context. The one that gets true releases it.
bool context_disown(void *object) {
	struct object *o = object;
	pthread_mutex_lock(&shim_lock);
	bool mine = o->context != NULL;
	if (mine)
		object_unlink(&o->context->owned, o);
	o->context = NULL;
	pthread_mutex_unlock(&shim_lock);
	return mine;
}

// --- what others keep in a context --------------------------------------------------

// The CUDA runtime asks for its value with almost every call. Each copy of the runtime in the
// process has one key, so a linear search is fast enough.
CUresult local_get(CUcontext context, void *key, void **value) {
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&context->local_lock);
	for (size_t i = 0; i < context->local_count; i++)
		if (context->locals[i].key == key) {
			*value = context->locals[i].value;
			result = CUDA_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&context->local_lock);
	return result;
}

CUresult local_put(CUcontext context, void *key, void *value, void (*end)(CUcontext, void *, void *)) {
	struct local entry = {key, value, end};
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&context->local_lock);
	size_t i = 0;
	while (i < context->local_count && context->locals[i].key != key)
		i++;
	if (i == context->local_count) {
		struct local *locals = realloc(context->locals, (i + 1) * sizeof *locals);
		if (locals != NULL) {
			context->locals = locals;
			context->local_count++;
		} else {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (result == CUDA_SUCCESS)
		context->locals[i] = entry;
	pthread_mutex_unlock(&context->local_lock);
	return result;
}

CUresult local_delete(CUcontext context, void *key) {
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&context->local_lock);
	for (size_t i = 0; i < context->local_count; i++)
		if (context->locals[i].key == key) {
			context->locals[i] = context->locals[--context->local_count];
			result = CUDA_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&context->local_lock);
	return result;
}
