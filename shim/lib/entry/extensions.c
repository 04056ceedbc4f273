// The functions that Muster has beyond CUDA (muster.h), but for checkpoints. Layer: entry.
#include "export.h"

EXPORT CUresult musterSync(void) {
	ENTER(musterSync);
	struct target t;
	CUresult result = target_current(&t);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_sync_point message = {0};
	return POST(t.client, SYNC_POINT, sync_point, &message, NO_DATA);
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
