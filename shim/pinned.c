// Pinned host memory: the part of the data arena behind staging and bounce buffers, which the worker
// reaches, too. Layer: calls (shim.h). Kernels reach it once mapped.c has told the worker. Registered
// memory is only noted here; mapped.c replaces its pages when a kernel may need them.
#include "shim.h"

#include <inttypes.h>

static pthread_mutex_t registered_lock = PTHREAD_MUTEX_INITIALIZER; // protects registered
static struct ranges registered;

static _Atomic int registered_count; // for registered_any, without the lock

void pinned_forget_all(void) {
	pthread_mutex_init(&registered_lock, NULL);
	registered.root = NULL;
	atomic_store(&registered_count, 0);
}

bool registered_any(void) { return atomic_load_explicit(&registered_count, memory_order_relaxed) > 0; }

bool pinned_offset(struct client *c, const void *host, size_t size, uint64_t *offset) {
	uint64_t first = c->staging_size + c->bounce_size, at = (uint64_t)(uintptr_t)host - (uint64_t)(uintptr_t)c->arena;
	if (at < first || at >= c->arena_bytes || size > c->arena_bytes - at)
		return false;
	*offset = at;
	return true;
}

CUresult do_cuMemHostAlloc(void **address, size_t bytes, unsigned int flags) {
	struct target t;
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = client_status(t.client);
	if (result != CUDA_SUCCESS)
		return result;
	if (address == NULL || flags > (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes == 0) {
		*address = NULL;
		return CUDA_SUCCESS;
	}
	result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	struct client *c = t.client;
	uint64_t arena = (uint64_t)(uintptr_t)c->arena;
	pthread_mutex_lock(&c->memory_lock);
	uint64_t at = ranges_take(&c->pinned, arena + c->staging_size + c->bounce_size, arena + c->arena_bytes, bytes, 4096, t.context);
	if (at != 0)
		ranges_find(&c->pinned, at, bytes)->flags = flags;
	pthread_mutex_unlock(&c->memory_lock);
	if (at == 0) {
		if (!atomic_flag_test_and_set(&c->pinned_told))
			notice("%zu bytes of pinned memory: a program has %" PRIu64 " MiB of it in all, and they are not free in one piece: free some, or use memory of malloc", bytes,
			       (c->arena_bytes - c->staging_size - c->bounce_size) >> 20);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address = (void *)(uintptr_t)at;
	return CUDA_SUCCESS;
}

CUresult do_cuMemAllocHost_v2(void **address, size_t bytes) { return do_cuMemHostAlloc(address, bytes, 0); }

// The client whose pinned memory contains this address.
static struct client *find_pinned(const void *host, struct range *out) {
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c == NULL)
			continue;
		pthread_mutex_lock(&c->memory_lock);
		struct range *range = ranges_find(&c->pinned, (uint64_t)(uintptr_t)host, 1);
		if (range != NULL)
			*out = *range;
		pthread_mutex_unlock(&c->memory_lock);
		if (range != NULL)
			return c;
	}
	return NULL;
}

bool pinned_range(const void *host, struct range *out, struct client **owner) {
	*owner = find_pinned(host, out);
	if (*owner != NULL)
		return true;
	pthread_mutex_lock(&registered_lock);
	struct range *range = ranges_find(&registered, (uint64_t)(uintptr_t)host, 1);
	if (range != NULL)
		*out = *range;
	pthread_mutex_unlock(&registered_lock);
	if (range != NULL && object_is(out->context, KIND_CONTEXT))
		*owner = atomic_load(&out->context->client);
	return range != NULL;
}

// Waits for the device first: copies from and to the memory may be under way.
CUresult do_cuMemFreeHost(void *address) {
	struct range range;
	if (address == NULL)
		return CUDA_SUCCESS;
	struct client *c = find_pinned(address, &range);
	if (c == NULL || range.at != (uint64_t)(uintptr_t)address)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_synchronise message = {0};
	result = CALL(c, SYNCHRONISE, synchronise, &message, NO_DATA, NULL);
	print_pending(c);
	pthread_mutex_lock(&c->memory_lock);
	struct range *still = ranges_find(&c->pinned, range.at, 1);
	if (still != NULL && still->id == range.id) {
		mapped_end(c, still);
		ranges_remove(&c->pinned, still);
	}
	pthread_mutex_unlock(&c->memory_lock);
	return result;
}

bool pinned_any(struct client *c, CUcontext context) {
	bool any = false;
	pthread_mutex_lock(&c->memory_lock);
	for (struct range *range = ranges_from(&c->pinned, 0); range != NULL && !any; range = ranges_from(&c->pinned, range->at + 1))
		any = range->context == context;
	pthread_mutex_unlock(&c->memory_lock);
	return any;
}

void pinned_release(struct client *c, CUcontext context, bool tell) {
	pthread_mutex_lock(&c->memory_lock);
	for (struct range *range = ranges_from(&c->pinned, 0), *next; range != NULL; range = next) {
		next = ranges_from(&c->pinned, range->at + 1);
		if (range->context != context)
			continue;
		if (tell)
			mapped_end(c, range);
		ranges_remove(&c->pinned, range);
	}
	pthread_mutex_unlock(&c->memory_lock);
}

void registered_release(CUcontext context) {
	moved_release(context);
	pthread_mutex_lock(&registered_lock);
	for (struct range *range = ranges_from(&registered, 0), *next; range != NULL; range = next) {
		next = ranges_from(&registered, range->at + 1);
		if (range->context == context) {
			ranges_remove(&registered, range);
			atomic_fetch_sub(&registered_count, 1);
		}
	}
	pthread_mutex_unlock(&registered_lock);
}

CUresult do_cuMemHostGetFlags(unsigned int *flags, void *address) {
	struct range range;
	struct client *c;
	CUcontext context;
	CUresult result = context_need(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags == NULL || !pinned_range(address, &range, &c))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = range.flags & ~RANGE_MAPPED;
	return CUDA_SUCCESS;
}

CUresult with_cuMemHostRegister_v2(CUcontext context, void *address, size_t bytes, unsigned int flags) {
	if (bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)address || flags > 0xf)
		return CUDA_ERROR_INVALID_VALUE;
	struct range range;
	if (find_pinned(address, &range) != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) == 0 && readable(address, bytes) < bytes) // nothing is there that a device could read
		return CUDA_ERROR_INVALID_VALUE;
	range = (struct range){.at = (uint64_t)(uintptr_t)address, .size = bytes, .context = context, .flags = flags};
	pthread_mutex_lock(&registered_lock);
	bool added = ranges_add(&registered, range);
	atomic_fetch_add(&registered_count, added);
	pthread_mutex_unlock(&registered_lock);
	return added ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult do_cuMemHostUnregister(void *address) {
	struct range pinned;
	if (find_pinned(address, &pinned) != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	moved_end((uint64_t)(uintptr_t)address);
	pthread_mutex_lock(&registered_lock);
	struct range *range = ranges_find(&registered, (uint64_t)(uintptr_t)address, 1);
	bool found = range != NULL && range->at == (uint64_t)(uintptr_t)address;
	if (found) {
		ranges_remove(&registered, range);
		atomic_fetch_sub(&registered_count, 1);
	}
	bool inside = range != NULL && !found;
	pthread_mutex_unlock(&registered_lock);
	return found ? CUDA_SUCCESS : inside ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
