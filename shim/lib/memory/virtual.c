// Virtual memory management (cuMemAddressReserve, cuMemCreate, cuMemMap): a program reserves
// addresses, makes memory, and maps it there. Layer: memory. For the worker, memory always
// has an address: memory that the program has mapped nowhere lies at one that the library chose,
// and mapping moves it (relocate).
#include "memory.h"

#include <stdlib.h>

#define GRANULARITY ((size_t)2 << 20)

// What a CUmemGenericAllocationHandle stands for.
struct allocation {
	struct object object; // object.context owns the memory
	struct client *client;
	CUmemAllocationProp properties;
	size_t size;
	unsigned handles; // that the program has
	CUdeviceptr at;   // where its memory lies; 0: it is lost
	bool mapped;      // at an address that the program chose
	bool used;        // was mapped at some time, so it may have contents
	int access;       // CU_MEM_ACCESS_FLAGS_* that the program has set
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects all allocations; order: README.md

static struct allocation *allocation_of(CUmemGenericAllocationHandle handle) {
	struct allocation *a = (struct allocation *)(uintptr_t)handle;
	return object_is(a, KIND_ALLOCATION) ? a : NULL;
}

// --- addresses -------------------------------------------------------------------------

CUresult with_cuMemAddressReserve(struct target *t, CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
	if (size == 0 || size % GRANULARITY != 0 || (alignment & (alignment - 1)) != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct client *c = t->client;
	uint64_t at = memory_reserve(c, t->context, wish, size, alignment, GRANULARITY);
	if (at == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = at;
	return CUDA_SUCCESS;
}

// The client whose reservation contains all of these addresses; with whole, it must be exactly these.
static struct client *reserved_by(CUdeviceptr at, size_t size, bool whole) {
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL && memory_is_reserved(c, at, size, whole))
			return c;
	}
	return NULL;
}

// The first allocation that is mapped at an address or behind it, or NULL.
static struct allocation *next_mapped(struct client *c, uint64_t at) {
	const struct ranges *allocations = memory_hold(c);
	struct range *r = ranges_find(allocations, at, 1);
	if (r == NULL)
		r = ranges_from(allocations, at);
	struct allocation *a = r != NULL ? r->mapped : NULL;
	memory_let_go(c);
	return a;
}

CUresult do_cuMemAddressFree(CUdeviceptr address, size_t size) {
	pthread_mutex_lock(&lock);
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct client *c = size > 0 ? reserved_by(address, size, true) : NULL;
	struct allocation *a = c != NULL ? next_mapped(c, address) : NULL;
	if (c != NULL && (a == NULL || a->at >= address + size)) {
		memory_unreserve(c, address, size);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

// --- memory ------------------------------------------------------------------------------

static CUresult check_properties(const CUmemAllocationProp *p) {
	if (p == NULL || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.type == CU_MEM_LOCATION_TYPE_HOST || p->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if ((p->requestedHandleTypes & ~(unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if ((p->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0)
		return CUDA_ERROR_NOT_PERMITTED; // the driver's answer on machines without a fabric
	if (p->location.id < 0 || p->location.id >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

CUresult with_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option) {
	if ((unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	if (properties == NULL || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = GRANULARITY; // the driver does not check the location either
	return CUDA_SUCCESS;
}

CUresult do_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties, unsigned long long flags) {
	struct target t;
	CUresult result = handle != NULL && size > 0 && size % GRANULARITY == 0 && flags == 0 ? check_properties(properties) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = target_on(properties->location.id, &t);
	if (result != CUDA_SUCCESS)
		return result;
	struct allocation *a = object_new(KIND_ALLOCATION, sizeof *a);
	if (a == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = memory_allocate(&t, size, &a->at);
	if (result != CUDA_SUCCESS) {
		object_free(a);
		return result;
	}
	a->object.context = t.context;
	a->client = t.client;
	a->properties = *properties;
	a->size = size;
	a->handles = 1;
	*handle = (uintptr_t)a;
	return CUDA_SUCCESS;
}

CUresult with_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags) {
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return type == CU_MEM_HANDLE_TYPE_NONE ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	struct allocation *a = allocation_of(handle);
	CUresult result = a != NULL && (a->properties.requestedHandleTypes & type) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = ipc_export(a->client, a->at, shareable);
	pthread_mutex_unlock(&lock);
	return result;
}

// The memory is imported on the device of the current context, whatever device it had in the other
// program.
CUresult with_cuMemImportFromShareableHandle(struct target *t, CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type) {
	if (type == CU_MEM_HANDLE_TYPE_NONE)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct allocation *a = object_new(KIND_ALLOCATION, sizeof *a);
	if (a == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = ipc_import(t, (int)(intptr_t)shareable, &a->at, &a->size);
	if (result != CUDA_SUCCESS) {
		object_free(a);
		return result;
	}
	a->object.context = t->context;
	a->client = t->client;
	a->properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = type, .location = {CU_MEM_LOCATION_TYPE_DEVICE, t->context->device}};
	a->handles = 1;
	a->used = true;
	*handle = (uintptr_t)a;
	return CUDA_SUCCESS;
}

static bool there(struct allocation *a) {
	struct range range;
	return a->at != 0 && memory_range(a->client, a->at, a->size, &range) && range.context == a->object.context;
}

static void end_if_unused(struct allocation *a) {
	if (a->handles > 0 || a->mapped)
		return;
	if (there(a))
		memory_free(a->client, a->at);
	object_free(a);
}

CUresult do_cuMemRelease(CUmemGenericAllocationHandle handle) {
	pthread_mutex_lock(&lock);
	struct allocation *a = allocation_of(handle);
	bool known = a != NULL && a->handles > 0;
	if (known) {
		a->handles--;
		end_if_unused(a);
	}
	pthread_mutex_unlock(&lock);
	return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult with_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range range;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < device_count && result != CUDA_SUCCESS; i++) {
		struct client *c = client_at(i);
		if (c == NULL || !memory_range(c, (uintptr_t)address, 1, &range) || range.mapped == NULL)
			continue;
		range.mapped->handles++;
		*handle = (uintptr_t)range.mapped;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult do_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle) {
	pthread_mutex_lock(&lock);
	struct allocation *a = allocation_of(handle);
	if (a != NULL && properties != NULL)
		*properties = a->properties;
	pthread_mutex_unlock(&lock);
	return a != NULL && properties != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// --- memory at addresses -------------------------------------------------------------------

// Moves memory to another address (0: anywhere). If it has contents, both addresses are allocated
// at the same time and the contents are copied; otherwise the first is freed before, so that no
// more memory is needed.
static CUresult relocate(struct allocation *a, CUdeviceptr to, struct allocation *mark) {
	struct target t = {.context = a->object.context, .client = a->client};
	uint64_t from = a->at;
	bool made = false;
	CUresult moved;
	if (ipc_move(&t, from, &to, &moved)) {
		if (moved == CUDA_SUCCESS) {
			memory_free(a->client, from);
			a->at = to;
			memory_mark(a->client, to, mark);
		}
		return moved;
	}
	if (!a->used)
		memory_free(a->client, from);
	CUresult result = to != 0 ? memory_claim(a->client, t.context, to, a->size, &made) : memory_allocate(&t, a->size, &to);
	if (result == CUDA_SUCCESS && a->used) {
		result = memory_copy(a->client, to, from, a->size);
		memory_free(a->client, result == CUDA_SUCCESS ? from : to);
	}
	if (result == CUDA_SUCCESS) {
		a->at = to;
		memory_mark(a->client, to, mark);
	} else if (!a->used && memory_allocate(&t, a->size, &a->at) != CUDA_SUCCESS) {
		a->at = 0;
	}
	return result;
}

CUresult do_cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
	pthread_mutex_lock(&lock);
	struct allocation *a = allocation_of(handle);
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	if (a != NULL && offset == 0 && size == a->size && flags == 0 && address % GRANULARITY == 0) {
		struct client *c = reserved_by(address, size, false);
		struct allocation *next = c != NULL ? next_mapped(c, address) : NULL;
		bool taken = next != NULL && next->at < address + size;
		if (c != NULL && !taken && !there(a))
			result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		else if (c != NULL && !taken && (a->mapped || c != a->client))
			result = CUDA_ERROR_NOT_SUPPORTED; // the same memory at two addresses, or of two devices
		else if (c != NULL && !taken)
			result = relocate(a, address, a);
	}
	if (result == CUDA_SUCCESS) {
		a->mapped = a->used = true;
		a->access = 0;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

// Calls f for all allocations that are mapped in a range. If whole allocations do not cover the range
// exactly, returns an error before the first call.
static CUresult each_mapped(CUdeviceptr address, size_t size, CUresult (*f)(struct allocation *, void *), void *data) {
	struct client *c = size > 0 ? reserved_by(address, size, false) : NULL;
	uint64_t end = address + size, at;
	if (c == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	for (at = address; at < end;) {
		struct allocation *a = next_mapped(c, at);
		if (a == NULL || a->at != at || a->size > end - at)
			return CUDA_ERROR_INVALID_VALUE;
		at += a->size;
	}
	CUresult result = CUDA_SUCCESS;
	for (at = address; at < end && result == CUDA_SUCCESS;) {
		struct allocation *a = next_mapped(c, at);
		at += a->size;
		result = f(a, data);
	}
	return result;
}

static CUresult unmap(struct allocation *a, void *unused) {
	(void)unused;
	CUresult result = CUDA_SUCCESS;
	if (a->handles > 0)
		result = relocate(a, 0, NULL); // the program may map it elsewhere
	if (result != CUDA_SUCCESS)
		return result;
	a->mapped = false;
	end_if_unused(a);
	return CUDA_SUCCESS;
}

CUresult do_cuMemUnmap(CUdeviceptr address, size_t size) {
	pthread_mutex_lock(&lock);
	CUresult result = each_mapped(address, size, unmap, NULL);
	pthread_mutex_unlock(&lock);
	return result;
}

struct rights {
	const CUmemAccessDesc *list;
	size_t count;
};

static CUresult set_access(struct allocation *a, void *data) {
	const struct rights *r = data;
	for (size_t i = 0; i < r->count; i++)
		if (r->list[i].location.id == a->properties.location.id)
			a->access = r->list[i].flags;
	return CUDA_SUCCESS;
}

// The flags are only remembered, for cuMemGetAccess: kernels can always read and write.
CUresult do_cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count) {
	struct rights r = {list, count};
	if (list == NULL || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		if (list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (list[i].location.id < 0 || list[i].location.id >= device_count)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	pthread_mutex_lock(&lock);
	CUresult result = each_mapped(address, size, set_access, &r);
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult with_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct range range;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < device_count && result != CUDA_SUCCESS; i++) {
		struct client *c = client_at(i);
		if (c == NULL || !memory_range(c, address, 1, &range) || range.mapped == NULL)
			continue;
		*flags = location->id == i ? (unsigned long long)range.mapped->access : 0;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

void virtual_forget_all(void) { pthread_mutex_init(&lock, NULL); }
