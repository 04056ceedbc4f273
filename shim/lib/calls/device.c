// Queries about devices. Layer: calls. All answers came with the daemon's greeting.
#include "calls.h"

#include <stdio.h>

static struct device *device_of(CUdevice device) { return device >= 0 && device < device_count ? &devices[device] : NULL; }

CUresult with_cuDeviceGet(CUdevice *device, int ordinal) {
	if (device_of(ordinal) == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult with_cuDeviceGetCount(int *count) {
	*count = device_count;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetName(char *name, int length, CUdevice device) {
	struct device *d = device_of(device);
	if (d == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	if (name == NULL || length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)length, "%s", d->name);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
	struct device *d = device_of(device);
	if (uuid == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (d == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, d->uuid, sizeof uuid->bytes);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) { return do_cuDeviceGetUuid(uuid, device); }

CUresult do_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
	struct device *d = device_of(device);
	if (bytes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (d == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = d->memory;
	return CUDA_SUCCESS;
}

#define LAST_ATTRIBUTE 147 // of CUDA 13.0

// What is not as the device has it: NO for what this library does not support (memory that host and device use
// at the same time, and what needs the real driver), YES for what it provides on every device.
enum { AS_IT_IS, NO, YES };
static const uint8_t answers[LAST_ATTRIBUTE + 1] = {
	[CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED] = NO,
	[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS] = NO,
	[CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS] = NO,
	[CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM] = NO,
	[92] = NO, // waiting for and writing words in a stream, in its older forms
	[93] = NO,
	[94] = NO,
	[CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH] = NO,
	[CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES] = NO,
	[CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES] = NO,
	[CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST] = NO,
	[CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED] = NO,
	[CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED] = NO,
	[CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED] = NO,
	[CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED] = NO,
	[CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED] = NO,
	[117] = NO, // flushing of writes by other devices
	[121] = NO, // arrays that are mapped later
	[CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED] = NO,
	[128] = NO, // handles for fabrics
	[CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS] = NO,
	[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = NO,
	[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = YES,
	[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = YES,
	[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = YES,
	[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = YES,
	[CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = YES,
	[CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED] = YES,
	[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = YES,
	[CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = YES,
	[CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR] = YES,
	[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = YES,
	[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED] = YES,
	[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] = YES, // as a set: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
};

CUresult do_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
	struct device *d = device_of(device);
	if (value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (d == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	if ((int)attribute <= 0 || (int)attribute > LAST_ATTRIBUTE)
		return CUDA_ERROR_INVALID_VALUE;
	*value = answers[attribute] == AS_IT_IS ? d->attributes[attribute] : answers[attribute] == YES;
	return CUDA_SUCCESS;
}

CUresult with_cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
	CUresult result = do_cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	if (result == CUDA_SUCCESS)
		result = do_cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	return result;
}

CUresult do_cuDeviceGetProperties(CUdevprop *properties, CUdevice device) {
	struct device *d = device_of(device);
	if (properties == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (d == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	const int *a = d->attributes;
	*properties = (CUdevprop){
		.maxThreadsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
		.maxThreadsDim = {a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X], a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y], a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z]},
		.maxGridSize = {a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X], a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y], a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z]},
		.sharedMemPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
		.totalConstantMemory = a[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
		.SIMDWidth = a[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
		.memPitch = a[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
		.regsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
		.clockRate = a[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
		.textureAlign = a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT],
	};
	return CUDA_SUCCESS;
}

static void bus_id(char text[32], const struct device *d) {
	snprintf(text, 32, "%04x:%02x:%02x.0", (unsigned)d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] & 0xffff,
	         (unsigned)d->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] & 0xff, (unsigned)d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] & 0xff);
}

CUresult do_cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
	struct device *d = device_of(device);
	if (d == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	char id[32];
	bus_id(id, d);
	if (text == NULL || length <= (int)strlen(id))
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(text, (size_t)length, "%s", id);
	return CUDA_SUCCESS;
}

CUresult with_cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
	unsigned domain = 0, bus, slot, function = 0;
	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
		domain = function = 0;
		if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) != 3)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (int i = 0; i < device_count; i++) {
		const int *a = devices[i].attributes;
		if (function == 0 && domain == (unsigned)a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] && bus == (unsigned)a[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] &&
		    slot == (unsigned)a[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]) {
			*device = i;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

// Kernels of one virtual device never reach memory of another.
CUresult with_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
	if (device_of(device) == NULL || device_of(peer) == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	*can = 0;
	return CUDA_SUCCESS;
}

CUresult with_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice source, CUdevice destination) {
	if (device_of(source) == NULL || device_of(destination) == NULL || source == destination)
		return CUDA_ERROR_INVALID_DEVICE;
	if (attribute < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK || attribute > CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return object_is(peer, KIND_CONTEXT) ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuCtxDisablePeerAccess(CUcontext peer) {
	return object_is(peer, KIND_CONTEXT) ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format, unsigned int channels, CUdevice device) {
	(void)format;
	if (device_of(device) == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	if (width == NULL || channels == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*width = (size_t)1 << 27;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device) {
	(void)type;
	if (device_of(device) == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	if (supported == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*supported = 0;
	return CUDA_SUCCESS;
}
