// The calls on pools of memory. Layer: memory.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

static _Atomic(CUmemoryPool) chosen[MAX_DEVICES];    // by cuDeviceSetMemPool; NULL: the default pool

void pools_forget_all(void) {
	for (int i = 0; i < MAX_DEVICES; i++)
		atomic_store(&chosen[i], NULL);
	pools_forget();
}

CUresult with_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
	if (properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || (properties->handleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0)
		return CUDA_ERROR_NOT_SUPPORTED; // memory of the host, or for programs of other machines
	if (properties->location.id < 0 || properties->location.id >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	CUmemoryPool p = object_new(KIND_POOL, sizeof *p);
	if (p == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->properties = *properties;
	p->device = properties->location.id;
	for (int i = 0; i < 3; i++)
		p->reuse[i] = 1;
	*pool = p;
	return CUDA_SUCCESS;
}

#define POOL_MAGIC UINT64_C(0x6c6f6f702d63756d)

// Makes a descriptor that stands for a pool: a file with the number of its device. It gives no
// access to memory: a program also needs the handle of each allocation.
CUresult with_cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags) {
	if (!pool_is_shared(pool) || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t text[2] = {POOL_MAGIC, (uint64_t)pool->device};
	int fd = memfd_create("muster-pool", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, text, sizeof text, 0) != (ssize_t)sizeof text) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	memcpy(handle, &fd, sizeof fd);
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, CUmemAllocationHandleType type, unsigned long long flags) {
	uint64_t text[2];
	if (pool == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (pread((int)(intptr_t)handle, text, sizeof text, 0) != (ssize_t)sizeof text || text[0] != POOL_MAGIC || text[1] >= (uint64_t)device_count)
		return CUDA_ERROR_INVALID_VALUE;
	const CUmemPoolProps properties = {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, {CU_MEM_LOCATION_TYPE_DEVICE, (int)text[1]}, NULL, 0, 0, {0}};
	CUresult result = with_cuMemPoolCreate(pool, &properties);
	if (result == CUDA_SUCCESS)
		(*pool)->imported = true;
	return result;
}

// Allocations from the pool stay until they are freed.
CUresult with_cuMemPoolDestroy(CUmemoryPool pool) {
	CUmemoryPool it = pool;
	atomic_compare_exchange_strong(&chosen[pool->device], &it, NULL);
	struct client *c = client_at(pool->device);
	if (c != NULL)
		memory_forget_pool(c, pool);
	object_free(pool);
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count) {
	if (!is_pool(pool) || (list == NULL && count > 0))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || list[i].location.id < 0 || list[i].location.id >= device_count)
			return CUDA_ERROR_INVALID_DEVICE;
		if (list[i].location.id == pool->device && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE; // a device reaches its own memory
		if (list[i].location.id != pool->device && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			return CUDA_ERROR_NOT_SUPPORTED; // kernels do not reach other devices
	}
	return CUDA_SUCCESS;
}

CUresult with_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
	if (!is_pool(pool) || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (pool == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = pool_default(device);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
	CUresult result = do_cuDeviceGetDefaultMemPool(pool, device);
	if (result != CUDA_SUCCESS)
		return result;
	CUmemoryPool own = atomic_load(&chosen[device]);
	if (own != NULL)
		*pool = own;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!is_pool(pool) || pool->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_store(&chosen[device], pool_is_default(pool) ? NULL : pool);
	return CUDA_SUCCESS;
}

// The device that a location names, if its memory can have pools.
static CUresult pool_device(const CUmemLocation *location, CUmemAllocationType type, CUdevice *device) {
	if (location == NULL || type <= CU_MEM_ALLOCATION_TYPE_INVALID || (unsigned)location->type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_ALLOCATION_TYPE_PINNED || (location->type != CU_MEM_LOCATION_TYPE_DEVICE && location->type != CU_MEM_LOCATION_TYPE_INVALID))
		return CUDA_ERROR_NOT_SUPPORTED; // managed memory, or memory of the host
	if (location->type == CU_MEM_LOCATION_TYPE_INVALID || location->id < 0 || location->id >= device_count)
		return CUDA_ERROR_INVALID_VALUE;
	*device = location->id;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
	CUdevice device;
	CUresult result = pool != NULL ? pool_device(location, type, &device) : CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? do_cuDeviceGetDefaultMemPool(pool, device) : result;
}

CUresult do_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
	CUdevice device;
	CUresult result = pool != NULL ? pool_device(location, type, &device) : CUDA_ERROR_INVALID_VALUE;
	return result == CUDA_SUCCESS ? do_cuDeviceGetMemPool(pool, device) : result;
}

CUresult do_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
	CUdevice device;
	CUresult result = pool_device(location, type, &device);
	return result == CUDA_SUCCESS ? do_cuDeviceSetMemPool(device, pool) : result;
}

CUresult do_cuMemPoolTrimTo(CUmemoryPool pool, size_t least) {
	if (!is_pool(pool))
		return CUDA_ERROR_INVALID_VALUE;
	pool_keep(pool, atomic_load(&pool->used), least);
	return CUDA_SUCCESS;
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
		if (*(cuuint64_t *)value != 0)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&pool->most, atomic_load(&pool->used));
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult do_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
	if (!is_pool(pool) || value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
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
		*(cuuint64_t *)value = atomic_load(&pool->kept);
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = atomic_load(&pool->used);
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = atomic_load(&pool->most);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
