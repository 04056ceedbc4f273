// Device memory: the library chooses addresses, the worker provides the memory behind them. Layer:
// calls (shim.h). Of a client's addresses, the first sixteenth is for small allocations, the rest of
// the first quarter for large ones, and what follows for addresses that programs reserve (virtual.c).
// An address is taken from the tree before the worker hears of it, and given back after the worker
// has heard of its end, so two allocations never share one.
#include "export.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SMALL ((size_t)1 << 20)
#define SMALL_STEP 512
#define LARGE_STEP ((uint64_t)2 << 20)

static uint64_t charged(uint64_t size) { return (size + SMALL_STEP - 1) / SMALL_STEP * SMALL_STEP; }

uint64_t memory_reserved(struct client *c) { return c->base + c->size / 4; }

// How many bytes stay free around an allocation if the worker checks the accesses of kernels: the
// more the larger it is, since an index that is wrong is often wrong by a row or by all of it.
uint64_t memory_guard(const struct client *c, uint64_t size) {
	const uint64_t most = 64 << 10;
	uint64_t guard = __atomic_load_n(&c->ring->guard, __ATOMIC_RELAXED);
	if (guard == 0)
		return 0;
	guard = size > guard ? size : guard;
	return guard < most ? guard : most;
}

static uint64_t choose(struct client *c, size_t size, CUcontext context, bool pages) {
	uint64_t middle = c->base + c->size / 16, end = memory_reserved(c), at = 0, guard = memory_guard(c, size);
	if (size < SMALL && !pages)
		at = ranges_take_apart(&c->allocations, c->base, middle, size, guard, SMALL_STEP, context);
	// Large allocations do not adjoin, so that the end of one is not taken for the beginning of the
	// next (mapping). That may double the addresses that they take: so it ends when all of the memory
	// might no longer fit.
	uint64_t spare = end - middle > c->memory ? end - middle - c->memory : 0;
	if (at == 0 && c->allocated <= spare && size <= spare - c->allocated)
		at = ranges_take_apart(&c->allocations, middle, end, size, guard > 0 ? guard : 1, LARGE_STEP, context);
	if (at == 0)
		at = ranges_take(&c->allocations, middle, end, size, LARGE_STEP, context);
	return at;
}

uint64_t memory_choose(struct client *c, size_t size, CUcontext context) { return choose(c, size, context, true); }

void memory_charge(struct client *c, uint64_t size) { c->allocated += charged(size); }

void memory_forget(struct client *c, uint64_t at) {
	struct range *range = ranges_find(&c->allocations, at, 1);
	if (range == NULL || range->at != at)
		return;
	c->allocated -= charged(range->size);
	ranges_remove(&c->allocations, range);
}

static CUresult allocate_as(struct target *t, size_t size, bool pages, CUdeviceptr *address) {
	struct client *c = t->client;
	CUresult result = client_status(c);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&c->memory_lock);
	uint64_t at = size <= c->memory ? choose(c, size, t->context, pages) : 0, id = 0;
	if (at != 0) {
		id = ranges_find(&c->allocations, at, 1)->id;
		c->allocated += charged(size);
	}
	pthread_mutex_unlock(&c->memory_lock);
	struct wire_mem_alloc message = {at, size}; // with address 0 the worker refuses, and says why in a notice
	result = CALL(c, MEM_ALLOC, mem_alloc, &message, NO_DATA, NULL);
	if (at == 0)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		*address = at;
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, 1);
	if (range != NULL && range->id == id) { // a reset may have freed it, and another thread taken the address
		c->allocated -= charged(size);
		ranges_remove(&c->allocations, range);
	}
	pthread_mutex_unlock(&c->memory_lock);
	return result;
}

CUresult memory_allocate(struct target *t, size_t size, CUdeviceptr *address) { return allocate_as(t, size, false, address); }

CUresult memory_pages(struct target *t, size_t size, CUdeviceptr *address) { return allocate_as(t, size, true, address); }

// Copies within a client's memory, after all work that the client was given, and waits.
CUresult memory_copy(struct client *c, uint64_t to, uint64_t from, uint64_t size) {
	struct wire_copy_within message = {.dst = to, .src = from, .size = size};
	CUresult result = CALL(c, SYNCHRONISE, synchronise, &(struct wire_synchronise){0}, NO_DATA, NULL);
	if (result == CUDA_SUCCESS)
		result = POST(c, COPY_WITHIN, copy_within, &message, NO_DATA);
	return result == CUDA_SUCCESS ? CALL(c, SYNCHRONISE, synchronise, &(struct wire_synchronise){0}, NO_DATA, NULL) : result;
}

// Notes which allocation the program has mapped at an address, or NULL.
void memory_mark(struct client *c, uint64_t at, struct allocation *mapped) {
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, 1);
	if (range != NULL && range->at == at)
		range->mapped = mapped;
	pthread_mutex_unlock(&c->memory_lock);
}

// Makes an allocation at a given address. An existing one with the same address and size counts as
// success, with *made false.
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
		if ((range->flags & RANGE_GAP) != 0)
			continue;
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

static void leave_pool(const struct range *range);

// Sends MEM_FREE under the memory_lock. As soon as that is released another thread may take the
// address, and its MEM_ALLOC must come behind in the ring.
CUresult memory_free(struct client *c, CUdeviceptr at) {
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	host_hold(c); // the worker frees the memory when no kernel runs
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, 1);
	if (range != NULL && range->at == at && (range->flags & RANGE_GAP) == 0) {
		struct wire_mem_free message = {at};
		result = POST(c, MEM_FREE, mem_free, &message, NO_DATA);
		leave_pool(range);
		c->allocated -= charged(range->size);
		ranges_remove(&c->allocations, range);
		ipc_freed(c, at);
	}
	pthread_mutex_unlock(&c->memory_lock);
	host_go_on(c);
	return result;
}

void memory_release(struct client *c, CUcontext context, bool tell) {
	pthread_mutex_lock(&c->memory_lock);
	for (struct range *range = ranges_from(&c->allocations, 0), *next; range != NULL; range = next) {
		next = ranges_from(&c->allocations, range->at + 1);
		if (range->context != context)
			continue;
		uint64_t at = range->at;
		if (tell) {
			struct wire_mem_free message = {at};
			POST(c, MEM_FREE, mem_free, &message, NO_DATA);
		}
		leave_pool(range);
		c->allocated -= charged(range->size);
		ranges_remove(&c->allocations, range);
		ipc_freed(c, at);
		next = ranges_from(&c->allocations, at + 1); // again: ipc_freed may have removed gaps
	}
	for (struct range *range = ranges_from(&c->reservations, 0), *next; range != NULL; range = next) {
		next = ranges_from(&c->reservations, range->at + 1);
		if (range->context == context)
			ranges_remove(&c->reservations, range);
	}
	pthread_mutex_unlock(&c->memory_lock);
}

static uint64_t allocated_bytes(struct client *c) {
	pthread_mutex_lock(&c->memory_lock);
	uint64_t bytes = c->allocated;
	pthread_mutex_unlock(&c->memory_lock);
	return bytes;
}

bool memory_range(struct client *c, uint64_t at, uint64_t size, struct range *out) {
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, size);
	if (range != NULL)
		*out = *range;
	pthread_mutex_unlock(&c->memory_lock);
	return range != NULL;
}

// Memory that the program has mapped piece by piece without a gap counts as one range: returns the
// first piece if the pieces cover all of the bytes.
static struct range *find_mapped(struct client *c, uint64_t at, uint64_t size) {
	struct range *first = ranges_find(&c->allocations, at, 1), *range = first;
	while (range != NULL && range->mapped != NULL) {
		uint64_t there = range->at + range->size - at;
		if (there >= size)
			return first;
		at += there;
		size -= there;
		range = ranges_find(&c->allocations, at, 1);
	}
	return NULL;
}

// Copies out the allocation or variable that contains these bytes; false if there is none.
static bool owned_range(struct client *c, uint64_t at, uint64_t size, struct range *out) {
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, at, size);
	if (range != NULL && (range->flags & RANGE_GAP) != 0)
		range = NULL;
	if (range == NULL)
		range = ranges_find(&c->variables, at, size);
	if (range == NULL)
		range = find_mapped(c, at, size);
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

CUresult with_cuMemAlloc_v2(struct target *t, CUdeviceptr *address, size_t bytes) {
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_unsafe();
	return result == CUDA_SUCCESS ? memory_allocate(t, bytes, address) : result;
}

CUresult with_cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element) {
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
	c = owner(current_client(), address, 1, &range);
	return c != NULL && range.mapped == NULL && (range.flags & RANGE_IMPORTED) == 0 ? memory_free(c, address) : CUDA_ERROR_INVALID_VALUE;
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
	bool found = managed_range(address, &range, &c) || owner(current_client(), address, 1, &range) != NULL || pinned_range((void *)(uintptr_t)address, &range, &c);
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

// --- pools: names for a device's memory, with accounts and settings of their own ---------

struct CUmemPoolHandle_st {
	struct object object;
	CUmemPoolProps properties;
	int device;
	uint64_t threshold;
	int reuse[3];
	bool imported; // nothing can be allocated from it
	_Atomic uint64_t used, most; // bytes
	_Atomic uint64_t kept;       // used, and what the driver would still hold for reuse
};

static struct CUmemPoolHandle_st pools[MAX_DEVICES]; // the default pool of each device
static _Atomic(CUmemoryPool) chosen[MAX_DEVICES];    // by cuDeviceSetMemPool; NULL: the default pool

// Default pools begin with the settings that CUDA gives new pools.
__attribute__((constructor)) static void prepare_pools(void) {
	for (int i = 0; i < MAX_DEVICES; i++) {
		pools[i].device = i;
		for (int j = 0; j < 3; j++)
			pools[i].reuse[j] = 1;
	}
}

static bool is_default(CUmemoryPool pool) { return pool >= pools && pool < pools + device_count; }
static bool is_pool(CUmemoryPool pool) { return is_default(pool) || object_is(pool, KIND_POOL); }

void pools_forget_all(void) {
	for (int i = 0; i < MAX_DEVICES; i++) {
		atomic_store(&chosen[i], NULL);
		atomic_store(&pools[i].used, 0), atomic_store(&pools[i].kept, 0);
	}
}

// Pools keep no freed memory here. They only count what the driver's pools would hold, so that
// programs that read the attributes see the effect of what they set.
static void keep(CUmemoryPool pool, uint64_t used, uint64_t most) {
	uint64_t kept = atomic_load(&pool->kept), now;
	do {
		now = kept < most ? kept : most;
		if (now < used)
			now = used;
	} while (!atomic_compare_exchange_weak(&pool->kept, &kept, now));
}

static void charge_pool(CUmemoryPool pool, uint64_t size) {
	uint64_t now = atomic_fetch_add(&pool->used, size) + size, most = atomic_load(&pool->most);
	keep(pool, now, UINT64_MAX);
	while (now > most && !atomic_compare_exchange_weak(&pool->most, &most, now)) {
	}
}

static void leave_pool(const struct range *range) {
	if (range->pool != NULL && is_pool(range->pool))
		keep(range->pool, atomic_fetch_sub(&range->pool->used, range->size) - range->size, range->pool->threshold);
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

bool pool_is_shared(CUmemoryPool pool) { return object_is(pool, KIND_POOL) && pool->properties.handleTypes != 0 && !pool->imported; }
bool pool_is_imported(CUmemoryPool pool, int *device) {
	if (!object_is(pool, KIND_POOL) || !pool->imported)
		return false;
	*device = pool->device;
	return true;
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
	CUresult result = do_cuMemPoolCreate(pool, &properties);
	if (result == CUDA_SUCCESS)
		(*pool)->imported = true;
	return result;
}

// Allocations from the pool stay until they are freed.
CUresult do_cuMemPoolDestroy(CUmemoryPool pool) {
	if (!object_is(pool, KIND_POOL))
		return CUDA_ERROR_INVALID_VALUE;
	CUmemoryPool it = pool;
	atomic_compare_exchange_strong(&chosen[pool->device], &it, NULL);
	struct client *c = client_at(pool->device);
	if (c != NULL) {
		pthread_mutex_lock(&c->memory_lock);
		for (struct range *range = ranges_from(&c->allocations, 0); range != NULL; range = ranges_from(&c->allocations, range->at + 1))
			if (range->pool == pool)
				range->pool = NULL;
		pthread_mutex_unlock(&c->memory_lock);
	}
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
	*pool = &pools[device];
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
	atomic_store(&chosen[device], is_default(pool) ? NULL : pool);
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
	keep(pool, atomic_load(&pool->used), least);
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
	pthread_mutex_lock(&t->client->memory_lock);
	struct range *range = ranges_find(&t->client->allocations, *address, 1);
	if (range != NULL && range->at == *address) {
		range->pool = pool;
		charge_pool(pool, bytes);
	}
	pthread_mutex_unlock(&t->client->memory_lock);
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
		return capture_alloc(&t, bytes, address);
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
		return capture_free(&t, address);
	if (graph_memory_free(address, &result))
		return result;
	if (memory_owner(t.client, address, 1) != t.client)
		return CUDA_ERROR_INVALID_VALUE;
	result = target_wait(&t);
	if (result == CUDA_SUCCESS && ipc_free(address, &result))
		return result;
	return result == CUDA_SUCCESS ? do_cuMemFree_v2(address) : result;
}

// --- what an address is ------------------------------------------------------------------

// Answers for device memory, for pinned or registered host memory, and for unknown addresses.
static CUresult attribute_of(void *value, CUpointer_attribute attribute, CUdeviceptr address, bool unknown_is_null) {
	struct range range = {0};
	struct client *c = NULL;
	bool managed = managed_range(address, &range, &c);
	if (!managed)
		c = owner(current_client(), address, 1, &range);
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
		*(CUdeviceptr *)value = device || (host && c != NULL && c->arena_shared) ? address : 0;
		return *(CUdeviceptr *)value != 0 ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)value = host || managed ? (void *)(uintptr_t)address : NULL;
		return host || managed ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)value = range.id;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)value = managed;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)value = device && !managed && range.mapped == NULL && range.pool == NULL;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned *)value = 0;
		return known ? CUDA_SUCCESS : none;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned *)value = device && (range.flags & RANGE_SYNC) != 0;
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
		*(CUmemoryPool *)value = range.pool;
		return known ? CUDA_SUCCESS : none;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
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
	pthread_mutex_lock(&c->memory_lock);
	struct range *range = ranges_find(&c->allocations, address, 1);
	if (range == NULL)
		range = ranges_find(&c->variables, address, 1);
	if (range != NULL && synchronous)
		range->flags |= RANGE_SYNC;
	else if (range != NULL)
		range->flags &= ~RANGE_SYNC;
	pthread_mutex_unlock(&c->memory_lock);
	return CUDA_SUCCESS;
}
