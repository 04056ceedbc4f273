// Device memory: the library chooses addresses, the worker provides what is behind
// them. Small allocations lie in the first sixteenth of the addresses.
#include "export.h"

#include <stdlib.h>

#define SMALL ((size_t)1 << 20)
#define SMALL_STEP 512
#define LARGE_STEP ((uint64_t)2 << 20)

static uint64_t charged(uint64_t size) { return (size + SMALL_STEP - 1) / SMALL_STEP * SMALL_STEP; }

static uint64_t choose(struct client *c, size_t size, CUcontext context) {
	uint64_t middle = c->base + c->size / 16, end = c->base + c->size, at = 0;
	if (size < SMALL)
		at = ranges_take(&c->allocations, c->base, middle, size, SMALL_STEP, context);
	if (at == 0)
		at = ranges_take(&c->allocations, middle, end, size, LARGE_STEP, context);
	return at;
}

static CUresult allocate(struct target *t, size_t size, CUdeviceptr *address) {
	struct client *c = t->client;
	CUresult result = client_status(c);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&c->memory_lock);
	uint64_t at = size <= c->memory ? choose(c, size, t->context) : 0, id = 0;
	if (at != 0) {
		id = ranges_find(&c->allocations, at, 1)->id;
		c->allocated += charged(size);
	}
	pthread_mutex_unlock(&c->memory_lock);
	struct wire_mem_alloc message = {at, size}; // without an address, the worker says why
	result = CALL(c, MEM_ALLOC, mem_alloc, &message, NO_DATA, NULL);
	if (at == 0)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		*address = at;
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, 1);
	if (range != NULL && range->id == id) { // and not another's, after a reset
		c->allocated -= charged(size);
		ranges_remove(&c->allocations, range);
	}
	pthread_mutex_unlock(&c->memory_lock);
	return result;
}

CUresult memory_take(struct target *t, size_t size, CUdeviceptr *address) { return allocate(t, size, address); }

// Makes an allocation at an address, unless there is one of the same size already.
CUresult memory_claim(struct client *c, CUcontext context, uint64_t at, uint64_t size, bool *made) {
	*made = false;
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, 1);
	if (range != NULL && range->at == at && range->size == size) {
		pthread_mutex_unlock(&c->memory_lock);
		return CUDA_SUCCESS;
	}
	*made = range == NULL && at >= c->base && size <= c->size && at - c->base <= c->size - size &&
		ranges_add(&c->allocations, (struct range){.at = at, .size = size, .context = context});
	if (*made)
		c->allocated += charged(size);
	pthread_mutex_unlock(&c->memory_lock);
	if (!*made)
		return CUDA_ERROR_INVALID_VALUE;
	struct wire_mem_alloc message = {at, size};
	CUresult result = CALL(c, MEM_ALLOC, mem_alloc, &message, NO_DATA, NULL);
	if (result == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	*made = false;
	pthread_mutex_lock(&c->memory_lock);
	range = ranges_find(&c->allocations, at, 1);
	if (range != NULL && range->at == at) {
		c->allocated -= charged(size);
		ranges_remove(&c->allocations, range);
	}
	pthread_mutex_unlock(&c->memory_lock);
	return result;
}

// Lists the allocations of a client, in order. The caller frees the list.
bool memory_list(struct client *c, struct range **list, size_t *count) {
	size_t room = 0;
	*list = NULL;
	*count = 0;
	bool enough = true;
	pthread_mutex_lock(&c->memory_lock);
	for (struct range *range = ranges_from(&c->allocations, 0); range != NULL && enough; range = ranges_from(&c->allocations, range->at + 1)) {
		if (*count == room) {
			room = room > 0 ? 2 * room : 64;
			struct range *more = realloc(*list, room * sizeof *more);
			enough = more != NULL;
			if (enough)
				*list = more;
		}
		if (enough)
			(*list)[(*count)++] = *range;
	}
	pthread_mutex_unlock(&c->memory_lock);
	return enough;
}

// The address may be taken again as soon as the lock is free: the worker must hear
// of the end before.
CUresult memory_free(struct client *c, CUdeviceptr at) {
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, 1);
	if (range != NULL && range->at == at) {
		struct wire_mem_free message = {at};
		result = POST(c, MEM_FREE, mem_free, &message, NO_DATA);
		c->allocated -= charged(range->size);
		ranges_remove(&c->allocations, range);
	}
	pthread_mutex_unlock(&c->memory_lock);
	return result;
}

void memory_release(struct client *c, CUcontext context, bool tell) {
	pthread_mutex_lock(&c->memory_lock);
	for (struct range *range = ranges_from(&c->allocations, 0), *next; range != NULL; range = next) {
		next = ranges_from(&c->allocations, range->at + 1);
		if (range->context != context)
			continue;
		if (tell) {
			struct wire_mem_free message = {range->at};
			POST(c, MEM_FREE, mem_free, &message, NO_DATA);
		}
		c->allocated -= charged(range->size);
		ranges_remove(&c->allocations, range);
	}
	pthread_mutex_unlock(&c->memory_lock);
}

static uint64_t allocated_bytes(struct client *c) {
	pthread_mutex_lock(&c->memory_lock);
	uint64_t bytes = c->allocated;
	pthread_mutex_unlock(&c->memory_lock);
	return bytes;
}

// The allocation or variable that has these bytes.
static bool owned_range(struct client *c, uint64_t at, uint64_t size, struct range *out) {
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, size);
	if (range == NULL)
		range = ranges_find(&c->variables, at, size);
	if (range != NULL)
		*out = *range;
	pthread_mutex_unlock(&c->memory_lock);
	return range != NULL;
}

static struct client *owner(struct client *preferred, uint64_t at, uint64_t size, struct range *out) {
	if (preferred != NULL && owned_range(preferred, at, size, out))
		return preferred;
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL && c != preferred && owned_range(c, at, size, out))
			return c;
	}
	return NULL;
}

struct client *memory_owner(struct client *preferred, CUdeviceptr at, size_t size) {
	struct range range;
	return owner(preferred, at, size, &range);
}

static struct client *current_client(void) {
	CUcontext context = context_current();
	return object_is(context, KIND_CONTEXT) ? atomic_load(&context->client) : NULL;
}

CUresult do_cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
	struct target t;
	CUresult result = target_current(&t);
	if (result != CUDA_SUCCESS)
		return result;
	return address != NULL && bytes > 0 ? allocate(&t, bytes, address) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element) {
	if (address == NULL || pitch == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext context;
	CUresult usable = context_need(&context);
	if (usable != CUDA_SUCCESS)
		return usable;
	if (width == 0 || height == 0 || (element != 4 && element != 8 && element != 16)) {
		*pitch = 0;
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (width > SIZE_MAX - 511)
		return CUDA_ERROR_OUT_OF_MEMORY;
	size_t row = (width + 511) / 512 * 512, size;
	if (__builtin_mul_overflow(row, height, &size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = do_cuMemAlloc_v2(address, size);
	if (result == CUDA_SUCCESS)
		*pitch = row;
	return result;
}

CUresult do_cuMemFree_v2(CUdeviceptr address) {
	if (address == 0)
		return CUDA_SUCCESS;
	struct client *c = memory_owner(current_client(), address, 1);
	return c != NULL ? memory_free(c, address) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
	struct target t;
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = client_status(t.client);
	if (result != CUDA_SUCCESS)
		return result;
	uint64_t used = allocated_bytes(t.client);
	if (total != NULL)
		*total = t.client->memory;
	if (free_bytes != NULL)
		*free_bytes = used < t.client->memory ? t.client->memory - used : 0;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
	struct range range = {0};
	struct client *c;
	CUcontext context;
	CUresult result = context_need(&context);
	if (result != CUDA_SUCCESS)
		return result;
	bool found = owner(current_client(), address, 1, &range) != NULL || pinned_range((void *)(uintptr_t)address, &range, &c);
	if (base != NULL)
		*base = range.at;
	if (bytes != NULL)
		*bytes = range.size;
	return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult musterNested(CUdeviceptr parent, const CUdeviceptr *children, size_t n) {
	ENTER(musterNested);
	if (n > 0 && children == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	struct target t;
	CUresult result = target_current(&t);
	if (result != CUDA_SUCCESS)
		return result;
	if (memory_owner(t.client, parent, 1) != t.client)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n; i++)
		if (memory_owner(t.client, children[i], 1) != t.client)
			return CUDA_ERROR_INVALID_VALUE;
	const size_t most = 4096; // in a message
	for (size_t i = 0; i < n && result == CUDA_SUCCESS; i += most) {
		size_t count = n - i < most ? n - i : most;
		struct wire_mem_nest message = {parent, {children + i, (uint32_t)(count * sizeof *children)}};
		result = POST(t.client, MEM_NEST, mem_nest, &message, NO_DATA);
	}
	return result;
}

// --- pools: there is one for each device, and it has all of its memory ------------------

struct CUmemPoolHandle_st {
	int device;
	uint64_t threshold;
	int reuse[3];
};

static struct CUmemPoolHandle_st pools[MAX_DEVICES];

static bool is_pool(CUmemoryPool pool) { return pool >= pools && pool < pools + device_count; }

CUresult do_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (pool == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	pools[device].device = device;
	*pool = &pools[device];
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) { return do_cuDeviceGetDefaultMemPool(pool, device); }

CUresult do_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	return pool == &pools[device] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
	(void)keep;
	return is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
	if (!is_pool(pool) || value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute - 1] = *(int *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return *(cuuint64_t *)value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult do_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
	if (!is_pool(pool) || value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	struct client *c = client_at(pool->device);
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = pool->reuse[attribute - 1];
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = pool->threshold;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = c != NULL ? allocated_bytes(c) : 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult do_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
	struct target t;
	if (address == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = target_of(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (bytes == 0) {
		*address = 0;
		return CUDA_SUCCESS;
	}
	return allocate(&t, bytes, address);
}

CUresult do_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
	return is_pool(pool) ? do_cuMemAllocAsync(address, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

// Other streams may still use the memory only by a mistake of the program; this
// one is waited for.
CUresult do_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
	struct target t;
	CUresult result = target_of(stream, &t);
	if (result != CUDA_SUCCESS || address == 0)
		return result;
	if (memory_owner(t.client, address, 1) != t.client)
		return CUDA_ERROR_INVALID_VALUE;
	result = target_wait(&t);
	return result == CUDA_SUCCESS ? memory_free(t.client, address) : result;
}

CUresult do_cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
	(void)address, (void)bytes, (void)flags;
	return CUDA_ERROR_NOT_SUPPORTED;
}

// --- what an address is ------------------------------------------------------------------

// Answers for memory of a device, of the host as pinned here, or of neither.
static CUresult attribute_of(void *value, CUpointer_attribute attribute, CUdeviceptr address, bool unknown_is_null) {
	struct range range = {0};
	struct client *c = owner(current_client(), address, 1, &range);
	bool device = c != NULL;
	bool host = !device && pinned_range((void *)(uintptr_t)address, &range, &c);
	bool known = device || host;
	if (!known && !unknown_is_null)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult none = unknown_is_null ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)value = known ? range.context : NULL;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)value = device ? CU_MEMORYTYPE_DEVICE : host ? CU_MEMORYTYPE_HOST : 0;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)value = device ? address : 0;
		return device ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)value = host ? (void *)(uintptr_t)address : NULL;
		return host ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)value = range.id;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned *)value = 0;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)value = known && c != NULL ? c->device : CU_DEVICE_INVALID;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)value = range.at;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)value = range.size;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)value = known;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)value = 0;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(int *)value = device ? 3 : 0; // reading and writing
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)value = NULL;
		return known ? CUDA_SUCCESS : none;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult do_cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
	return value != NULL ? attribute_of(value, attribute, address, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr address) {
	if (attributes == NULL || values == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++) {
		CUresult result = values[i] != NULL ? attribute_of(values[i], attributes[i], address, true) : CUDA_ERROR_INVALID_VALUE;
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

CUresult do_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
	if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || memory_owner(current_client(), address, 1) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS; // copies are at least as synchronous as it asks for
}
