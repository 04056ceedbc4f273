// The calls on device memory: allocations, and what an address is. Layer: memory.
#include "memory.h"

static struct client *current_client(void) {
	CUcontext context = context_current();
	return object_is(context, KIND_CONTEXT) ? atomic_load(&context->client) : NULL;
}

CUresult with_cuMemAlloc_v2(struct target *t, CUdeviceptr *address, size_t bytes) {
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_unsafe();
	return result == CUDA_SUCCESS ? memory_allocate(t, bytes, address) : result;
}

CUresult with_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element) {
	struct target t;
	CUresult usable = context_need(&t.context);
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
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = with_cuMemAlloc_v2(&t, address, size);
	if (result == CUDA_SUCCESS)
		*pitch = row;
	return result;
}

CUresult do_cuMemFree_v2(CUdeviceptr address) {
	if (address == 0)
		return CUDA_SUCCESS;
	CUresult result = capture_unsafe();
	if (result != CUDA_SUCCESS || graph_memory_free(address, &result))
		return result;
	struct client *c = current_client();
	CUdeviceptr below;
	if (c != NULL)
		host_let_end(c); // they may touch this memory
	if (managed_free(address, &c, &below, &result))
		return result == CUDA_SUCCESS && below != 0 ? memory_free(c, below) : result;
	struct range range;
	c = memory_find(current_client(), address, 1, &range);
	return c != NULL && range.mapped == NULL && (range.flags & RANGE_IMPORTED) == 0 ? memory_free(c, address) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
	struct target t;
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = client_status(t.client);
	if (result != CUDA_SUCCESS)
		return result;
	uint64_t used = memory_used(t.client);
	if (total != NULL)
		*total = t.client->granted.memory;
	if (free_bytes != NULL)
		*free_bytes = used < t.client->granted.memory ? t.client->granted.memory - used : 0;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
	struct range range = {0};
	struct client *c;
	CUcontext context;
	CUresult result = context_need(&context);
	if (result != CUDA_SUCCESS)
		return result;
	bool found = managed_range(address, &range, &c) || memory_find(current_client(), address, 1, &range) != NULL || pinned_range((void *)(uintptr_t)address, &range, &c);
	if (base != NULL)
		*base = range.at;
	if (bytes != NULL)
		*bytes = range.size;
	return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// Allocates from a pool; NULL means the device's current pool.
static CUresult allocate_from(struct target *t, size_t bytes, CUdeviceptr *address, CUmemoryPool pool) {
	CUresult result = pool == NULL ? do_cuDeviceGetMemPool(&pool, t->client->device) : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	if (pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (pool->device != t->client->device)
		return CUDA_ERROR_NOT_SUPPORTED; // kernels do not reach other devices
	if (pool->properties.maxSize != 0 && atomic_load(&pool->used) + bytes > pool->properties.maxSize)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = memory_allocate(t, bytes, address);
	if (result != CUDA_SUCCESS)
		return result;
	memory_in_pool(t->client, *address, pool, bytes);
	return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
	struct target t;
	if (address == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = target_work(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (bytes == 0) {
		*address = 0;
		return CUDA_SUCCESS;
	}
	if (t.captured)
		return recorder->alloc(&t, bytes, address);
	result = capture_unsafe();
	return result == CUDA_SUCCESS ? allocate_from(&t, bytes, address, pool) : result;
}

CUresult do_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) { return alloc_async(address, bytes, NULL, stream); }

CUresult do_cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
	return is_pool(pool) ? alloc_async(address, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

// Waits for the stream, and frees at once. Work of other streams that still uses the memory is the
// program's mistake.
CUresult do_cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
	struct target t;
	CUresult result = target_work(stream, &t);
	if (result == CUDA_SUCCESS && !t.captured)
		result = capture_unsafe();
	if (result != CUDA_SUCCESS || address == 0)
		return result;
	if (t.captured)
		return recorder->free(&t, address);
	if (graph_memory_free(address, &result))
		return result;
	if (memory_owner(t.client, address, 1) != t.client)
		return CUDA_ERROR_INVALID_VALUE;
	result = target_wait(&t);
	if (result == CUDA_SUCCESS && ipc_free(address, &result))
		return result;
	return result == CUDA_SUCCESS ? do_cuMemFree_v2(address) : result;
}

// Answers for device memory, for pinned or registered host memory, and for unknown addresses.
static CUresult attribute_of(void *value, CUpointer_attribute attribute, CUdeviceptr address, bool unknown_is_null) {
	struct range range = {0};
	struct client *c = NULL;
	bool managed = managed_range(address, &range, &c);
	if (!managed)
		c = memory_find(current_client(), address, 1, &range);
	bool device = c != NULL;
	bool host = !device && pinned_range((void *)(uintptr_t)address, &range, &c);
	bool known = device || host;
	if (!known && !unknown_is_null)
		return CUDA_ERROR_INVALID_VALUE;
	bool there = known;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)value = known ? range.context : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)value = device ? CU_MEMORYTYPE_DEVICE : host ? CU_MEMORYTYPE_HOST : 0;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)value = device || (host && c != NULL && c->arena.same_address) ? address : 0;
		there = *(CUdeviceptr *)value != 0;
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)value = host || managed ? (void *)(uintptr_t)address : NULL;
		there = host || managed;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)value = range.id;
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)value = managed;
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)value = device && !managed && range.mapped == NULL && range.pool == NULL;
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned *)value = 0;
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned *)value = device && (range.flags & RANGE_SYNC) != 0;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)value = known && c != NULL ? c->device : CU_DEVICE_INVALID;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)value = range.at;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)value = range.size;
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)value = known;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)value = 0;
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(int *)value = device ? 3 : 0; // reading and writing
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)value = range.pool;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return there || unknown_is_null ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
	return value != NULL ? attribute_of(value, attribute, address, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult with_cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr address) {
	for (unsigned i = 0; i < count; i++) {
		CUresult result = values[i] != NULL ? attribute_of(values[i], attributes[i], address, true) : CUDA_ERROR_INVALID_VALUE;
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

// Copies are at least as synchronous as CU_POINTER_ATTRIBUTE_SYNC_MEMOPS asks for, so the attribute
// is only remembered.
CUresult with_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
	if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	struct client *c = memory_owner(current_client(), address, 1);
	if (c == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	bool synchronous = *(const unsigned *)value != 0; // read without the lock: it may be managed memory
	memory_sync(c, address, synchronous);
	return CUDA_SUCCESS;
}
