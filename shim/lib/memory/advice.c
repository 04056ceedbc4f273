// The calls on managed memory: its allocation, and what programs say and ask of it. Layer: memory.
#include "memory.h"

CUresult do_cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
	struct target t;
	CUresult result = target_current(&t);
	if (result == CUDA_SUCCESS)
		result = client_status(t.client);
	if (result != CUDA_SUCCESS)
		return result;
	if (address == NULL || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	if (!t.client->granted.reserved) {
		notice("managed memory needs the device's addresses in the program, and something else has them: link the program in the usual way, or use cuMemAlloc");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (bytes > t.client->granted.memory)
		return with_cuMemAlloc_v2(&t, address, bytes); // which says why not
	return managed_allocate(&t, bytes, flags, address);
}

CUresult do_cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags) {
	struct target t;
	CUresult result = target_of(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags == CU_MEM_ATTACH_SINGLE && (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD))
		return CUDA_ERROR_INVALID_VALUE;
	return managed_attach(&t, address, length, flags);
}

static bool is_host(CUmemLocation l) { return l.type == CU_MEM_LOCATION_TYPE_HOST || l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA || l.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT; }

static CUresult check_location(CUmemLocation l) {
	if (is_host(l))
		return CUDA_SUCCESS;
	if (l.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	return l.id >= 0 && l.id < device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUmemLocation location_of(CUdevice device) {
	return device == CU_DEVICE_CPU ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0} : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult do_cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream) {
	struct target t;
	CUresult result = target_of(stream, &t);
	if (result == CUDA_SUCCESS && flags != 0)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = check_location(location);
	if (result != CUDA_SUCCESS)
		return result;
	struct client *c;
	struct managed_hints *m = managed_hints(address, bytes, &c);
	if (m == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	m->prefetched = location;
	managed_hints_end();
	if (!is_host(location)) // a prefetch to another device is a hint that is ignored
		return location.id == c->device ? managed_touch(address, bytes, false) : CUDA_SUCCESS;
	if (host_calling())
		return CUDA_SUCCESS;
	result = target_wait(&t);
	if (result == CUDA_SUCCESS)
		managed_fetch(address, bytes);
	return result;
}

CUresult do_cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
	return do_cuMemPrefetchAsync_v2(address, bytes, location_of(device), 0, stream);
}

CUresult do_cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
	CUcontext context;
	CUresult result = context_need(&context);
	bool placed = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
	if (result == CUDA_SUCCESS && (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && placed)
		result = check_location(location);
	if (result != CUDA_SUCCESS)
		return result;
	unsigned who = is_host(location) ? 0 : (unsigned)location.id + 1;
	struct managed_hints *m = managed_hints(address, bytes, &(struct client *){NULL});
	if (m == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (advice == CU_MEM_ADVISE_SET_READ_MOSTLY || advice == CU_MEM_ADVISE_UNSET_READ_MOSTLY)
		m->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
	else if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
		m->preferred = location;
	else if (advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
		m->preferred = (CUmemLocation){0};
	else if (advice == CU_MEM_ADVISE_SET_ACCESSED_BY)
		m->accessed_by[who / 64] |= UINT64_C(1) << who % 64;
	else
		m->accessed_by[who / 64] &= ~(UINT64_C(1) << who % 64);
	managed_hints_end();
	return CUDA_SUCCESS;
}

CUresult do_cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) { return do_cuMemAdvise_v2(address, bytes, advice, location_of(device)); }

static int device_at(CUmemLocation l) { return l.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : is_host(l) ? CU_DEVICE_CPU : l.id; }

// Writes the devices of CU_MEM_ADVISE_SET_ACCESSED_BY, and CU_DEVICE_INVALID in the room that is
// left.
static void list_users(const struct managed_hints *m, int *list, size_t room) {
	size_t n = 0;
	for (unsigned i = 0; i <= MAX_DEVICES && n < room; i++)
		if ((m->accessed_by[i / 64] >> i % 64 & 1) != 0)
			list[n++] = i == 0 ? CU_DEVICE_CPU : (int)i - 1;
	while (n < room)
		list[n++] = CU_DEVICE_INVALID;
}

static CUresult range_attribute(void *data, size_t size, CUmem_range_attribute attribute, const struct managed_hints *m) {
	if (data == NULL || size < sizeof(int) || size % sizeof(int) != 0 || (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && size != sizeof(int)))
		return CUDA_ERROR_INVALID_VALUE;
	int *value = data;
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*value = m->read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*value = device_at(m->preferred);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		list_users(m, value, size / sizeof(int));
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*value = device_at(m->prefetched);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		*value = (int)m->preferred.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		*value = m->preferred.id;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*value = (int)m->prefetched.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		*value = m->prefetched.id;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

// The answer is collected in a local array under the lock, and copied to data without it: data may
// itself be managed memory.
CUresult do_cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address, size_t bytes) {
	int answer[MAX_DEVICES + 1];
	CUcontext context;
	CUresult result = context_need(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (data == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	size_t some = size < sizeof answer ? size : sizeof answer;
	const struct managed_hints *m = managed_hints(address, bytes, &(struct client *){NULL});
	if (m == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	result = range_attribute(answer, some, attribute, m);
	managed_hints_end();
	if (result == CUDA_SUCCESS) {
		memcpy(data, answer, some);
		for (size_t i = some / sizeof(int); i < size / sizeof(int); i++)
			((int *)data)[i] = CU_DEVICE_INVALID;
	}
	return result;
}

CUresult with_cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes, size_t count, CUdeviceptr address, size_t bytes) {
	if (count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = do_cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], address, bytes);
	return result;
}
