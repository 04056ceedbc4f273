// Device memory that several programs share. Layer: memory. The worker of the program that
// shares an allocation turns the chunks that it lies in into shared memory, at the same address;
// workers of other programs import it by its name. A handle contains that name, which cannot be
// guessed.
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define STEP ((uint64_t)512) // small allocations begin at multiples of it
#define MAGIC UINT32_C(0x4d495043)

// What a handle holds.
struct memory_handle {
	uint64_t name[4];
	uint64_t offset, size; // of the allocation in the shared memory
	uint32_t chunks;       // of the shared memory
	uint32_t magic;
};
_Static_assert(sizeof(struct memory_handle) <= CU_IPC_HANDLE_SIZE, "");

// The order of both is in README.md: lock, then the memory, then list_lock.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;      // held from the look for a share until it is made, with the worker's answer in between

// In a child: the parent's shares are not the child's.
void ipc_forget_all(void) {
	pthread_mutex_init(&lock, NULL);
	shares_forget_all();
}

// --- giving memory away ------------------------------------------------------------------

// Finds or makes the share of an allocation. The caller holds neither lock nor memory. The
// memory is let go while the worker answers; the gaps keep the chunks as they are meanwhile.
static CUresult share_out(struct client *c, const struct range *range, struct share *out) {
	pthread_mutex_lock(&lock);
	struct ranges *allocations = memory_hold(c);
	struct share *s = share_at(c, range->at);
	uint64_t from = 0, to = 0;
	if (s == NULL) {
		shares_chunks(allocations, range, &from, &to);
		shares_fill_gaps(allocations, from, to);
	} else {
		*out = *s;
	}
	memory_let_go(c);
	CUresult result = CUDA_SUCCESS;
	if (s == NULL) {
		struct wire_mem_share message = {from, to - from};
		struct wire_mem_share_reply reply;
		result = ASK(c, MEM_SHARE, mem_share, &message, NO_DATA, &reply);
		if (result == CUDA_SUCCESS)
			*out = (struct share){.client = c, .at = from, .size = to - from, .name = {reply.a, reply.b, reply.c, reply.d}};
	}
	memory_hold(c);
	if (s == NULL && result == CUDA_SUCCESS && share_remember(*out) == NULL)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (s == NULL && result != CUDA_SUCCESS)
		shares_open_gaps(allocations, from, to);
	memory_let_go(c);
	pthread_mutex_unlock(&lock);
	return result;
}

static CUresult make_handle(struct client *c, const struct range *range, void *handle) {
	struct share s;
	CUresult result = share_out(c, range, &s);
	if (result != CUDA_SUCCESS)
		return result;
	struct memory_handle h = {{s.name[0], s.name[1], s.name[2], s.name[3]}, range->at - s.at, range->size, (uint32_t)(s.size / SHARE_CHUNK), MAGIC};
	if (s.imported) { // passes on what another program has shared
		h.offset = s.offset;
		h.size = s.size - s.offset;
	}
	memset(handle, 0, CU_IPC_HANDLE_SIZE);
	memcpy(handle, &h, sizeof h);
	return CUDA_SUCCESS;
}

CUresult do_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
	struct target t;
	struct range range;
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	if (handle == NULL || managed_has(address))
		return CUDA_ERROR_INVALID_VALUE;
	struct client *c = memory_owner(t.client, address, 1);
	if (c == NULL || !memory_range(c, address, 1, &range) || range.mapped != NULL || range.pool != NULL)
		return CUDA_ERROR_INVALID_VALUE; // a variable, or memory that the driver does not share in this way
	return make_handle(c, &range, handle);
}

// --- having memory of others ------------------------------------------------------------

static bool read_handle(const void *handle, struct memory_handle *h) {
	memcpy(h, handle, sizeof *h);
	uint64_t size = (uint64_t)h->chunks * SHARE_CHUNK;
	return h->magic == MAGIC && h->chunks > 0 && h->offset < size && h->size > 0 && h->size <= size - h->offset;
}

// Imports shared memory at an address; 0: anywhere. The caller holds neither lock nor memory.
// The address is taken and the share listed before the worker is asked, and both are undone if it
// refuses.
static CUresult import(const struct target *t, const struct memory_handle *h, CUdeviceptr *address, unsigned opened) {
	struct client *c = t->client;
	uint64_t size = (uint64_t)h->chunks * SHARE_CHUNK, at = *address;
	pthread_mutex_lock(&lock);
	struct ranges *allocations = memory_hold(c);
	if (at == 0)
		at = memory_choose(c, size, t->context);
	else if (!ranges_add(allocations, (struct range){.at = at, .size = size, .context = t->context}))
		at = 0;
	if (at != 0) {
		struct range *range = ranges_find(allocations, at, 1);
		range->flags |= RANGE_IMPORTED;
		memory_charge(c, size);
		struct share s = {.client = c, .at = at, .size = size, .name = {h->name[0], h->name[1], h->name[2], h->name[3]}, .imported = true, .offset = h->offset, .id = range->id, .opened = opened};
		if (share_remember(s) == NULL) {
			memory_forget(c, at);
			at = 0;
		}
	}
	memory_let_go(c);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (at != 0) {
		struct wire_mem_import message = {at, size, h->name[0], h->name[1], h->name[2], h->name[3]};
		result = CALL(c, MEM_IMPORT, mem_import, &message, NO_DATA, NULL);
	}
	if (at != 0 && result != CUDA_SUCCESS) {
		memory_hold(c);
		if (share_at(c, at) != NULL) {
			memory_forget(c, at);
			shares_freed(c, allocations, at);
		}
		memory_let_go(c);
	}
	pthread_mutex_unlock(&lock);
	*address = at;
	return result;
}

// Opens a handle: imports its memory, or counts one more user if the client has it already.
static CUresult open_handle(const struct target *t, const struct memory_handle *h, CUdeviceptr *address) {
	pthread_mutex_lock(&lock);
	memory_hold(t->client);
	bool own = share_named(h->name, NULL, false) != NULL;
	struct share *s = share_named(h->name, t->client, true);
	bool again = s != NULL && s->opened > 0;
	if (again) { // it is there already, and counted
		s->opened++;
		*address = s->at + h->offset;
	}
	memory_let_go(t->client);
	pthread_mutex_unlock(&lock);
	if (own)
		return CUDA_ERROR_INVALID_CONTEXT; // a program does not open what it has given away
	if (again)
		return CUDA_SUCCESS;
	CUdeviceptr at = 0;
	CUresult result = import(t, h, &at, 1);
	if (result == CUDA_SUCCESS)
		*address = at + h->offset;
	return result;
}

CUresult do_cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) {
	struct target t;
	struct memory_handle h;
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	if (address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !read_handle(&handle, &h))
		return CUDA_ERROR_INVALID_VALUE;
	return open_handle(&t, &h, address);
}

CUresult do_cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) { return do_cuIpcOpenMemHandle_v2(address, handle, flags); }

CUresult do_cuIpcCloseMemHandle(CUdeviceptr address) {
	CUcontext context;
	CUresult result = context_need(&context);
	if (result == CUDA_SUCCESS)
		result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	result = CUDA_ERROR_INVALID_VALUE;
	struct client *c = memory_owner(NULL, address, 1);
	if (c == NULL)
		return result;
	bool last = false;
	uint64_t at = 0;
	pthread_mutex_lock(&lock);
	memory_hold(c);
	struct share *s = share_at(c, address);
	if (s != NULL && s->imported && s->opened > 0) {
		at = s->at;
		last = --s->opened == 0;
		result = CUDA_SUCCESS;
	}
	memory_let_go(c);
	pthread_mutex_unlock(&lock);
	return last ? memory_free(c, at) : result;
}

// --- memory of pools ----------------------------------------------------------------------

// Exports one allocation of a pool; other programs import each by its own handle.
CUresult do_cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
	struct target t;
	struct range range;
	CUresult result = target_current(&t);
	if (result != CUDA_SUCCESS)
		return result;
	struct client *c = data != NULL ? memory_owner(t.client, address, 1) : NULL;
	if (c == NULL || !memory_range(c, address, 1, &range) || range.at != address || range.pool == NULL || !pool_is_shared(range.pool))
		return CUDA_ERROR_INVALID_VALUE;
	result = target_wait(&t); // it may just have been allocated
	return result == CUDA_SUCCESS ? make_handle(c, &range, data) : result;
}

// The CUDA runtime calls this before it has made a context current, so the pool says which device.
CUresult do_cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
	struct target t;
	struct memory_handle h;
	int device;
	if (address == NULL || data == NULL || !pool_is_imported(pool, &device) || !read_handle(data, &h))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_unsafe();
	if (result == CUDA_SUCCESS)
		result = target_on(device, &t);
	return result == CUDA_SUCCESS ? open_handle(&t, &h, address) : result;
}

// Frees an allocation that was imported from a pool: programs free it as if it were their own.
// False if the address is not such memory.
bool ipc_free(CUdeviceptr address, CUresult *result) {
	if (!shares_any())
		return false;
	struct client *c = memory_owner(NULL, address, 1);
	if (c == NULL)
		return false;
	memory_hold(c);
	struct share *s = share_at(c, address);
	bool found = s != NULL && s->imported && s->opened > 0 && address % STEP == 0; // several may lie in the same chunks
	memory_let_go(c);
	if (found)
		*result = do_cuIpcCloseMemHandle(address);
	return found;
}

// --- memory of cuMemCreate, by descriptor -----------------------------------------------

// Makes a descriptor that stands for an allocation: a file that contains its handle.
CUresult ipc_export(struct client *c, CUdeviceptr at, int *fd) {
	struct range range;
	char handle[CU_IPC_HANDLE_SIZE];
	if (!memory_range(c, at, 1, &range))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = make_handle(c, &range, handle);
	if (result != CUDA_SUCCESS)
		return result;
	*fd = memfd_create("muster-handle", MFD_CLOEXEC);
	if (*fd < 0 || pwrite(*fd, handle, sizeof handle, 0) != (ssize_t)sizeof handle)
		return CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
}

// Imports the memory that a descriptor stands for, at an address that the library chooses.
CUresult ipc_import(const struct target *t, int fd, CUdeviceptr *at, size_t *size) {
	char handle[CU_IPC_HANDLE_SIZE];
	struct memory_handle h;
	if (pread(fd, handle, sizeof handle, 0) != (ssize_t)sizeof handle || !read_handle(handle, &h) || h.offset != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*at = 0;
	*size = (size_t)h.chunks * SHARE_CHUNK;
	return import(t, &h, at, 0);
}

// Imports shared memory a second time at *to (0: anywhere); the caller then frees the first address.
// False if the memory at from is not shared.
bool ipc_move(const struct target *t, CUdeviceptr from, CUdeviceptr *to, CUresult *result) {
	memory_hold(t->client);
	struct share *s = share_at(t->client, from), found = {0};
	if (s != NULL)
		found = *s;
	memory_let_go(t->client);
	if (s == NULL)
		return false;
	struct memory_handle h = {{found.name[0], found.name[1], found.name[2], found.name[3]}, 0, found.size, (uint32_t)(found.size / SHARE_CHUNK), MAGIC};
	*result = import(t, &h, to, 0);
	return true;
}
