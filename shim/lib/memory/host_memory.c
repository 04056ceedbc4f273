// The calls on memory of the host that the library has allocated, or that the program has registered. Layer: memory.
#include "memory.h"

#include <inttypes.h>

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
	uint64_t at = pinned_allocate(c, t.context, bytes, flags);
	if (at == 0) {
		if (!pinned_told(c))
			notice("%zu bytes of pinned memory: a program has %" PRIu64 " MiB of it in all, and they are not free in one piece: free some, or use memory of malloc", bytes,
			       (uint64_t)pinned_bytes(c) >> 20);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address = (void *)(uintptr_t)at;
	return CUDA_SUCCESS;
}

CUresult do_cuMemAllocHost_v2(void **address, size_t bytes) { return do_cuMemHostAlloc(address, bytes, 0); }

// Waits for the device first: copies from and to the memory may be under way.
CUresult do_cuMemFreeHost(void *address) {
	struct range range;
	if (address == NULL)
		return CUDA_SUCCESS;
	struct client *c = pinned_owner(address, &range);
	if (c == NULL || range.at != (uint64_t)(uintptr_t)address)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_synchronise message = {0};
	result = CALL(c, SYNCHRONISE, synchronise, &message, NO_DATA, NULL);
	print_pending(c);
	pinned_free(c, &range);
	return result;
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
	if (pinned_owner(address, &range) != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) == 0 && readable(address, bytes) < bytes) // nothing is there that a device could read
		return CUDA_ERROR_INVALID_VALUE;
	range = (struct range){.at = (uint64_t)(uintptr_t)address, .size = bytes, .context = context, .flags = flags};
	return registered_add(range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult do_cuMemHostUnregister(void *address) {
	struct range pinned;
	if (pinned_owner(address, &pinned) != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	moved_end((uint64_t)(uintptr_t)address);
	return registered_end((uint64_t)(uintptr_t)address);
}

CUresult do_cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned int flags) {
	struct target t;
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = client_status(t.client);
	if (result != CUDA_SUCCESS)
		return result;
	if (address == NULL || host == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return mapped_reach(t.client, (uint64_t)(uintptr_t)host, address);
}
