//go:build linux && cgo

#define _GNU_SOURCE
#include "driver.h"
#include "launcher.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// The driver's types, as far as they are used here. Names are ours; layouts are CUDA's.
typedef struct {
	int type; // 1: a device
	int id;
} location;

typedef struct {
	int type;         // 1: stays in device memory
	int handle_types; // 0: not shared with other processes
	location where;
	void *windows;
	unsigned char compression, direct_access;
	unsigned short usage;
	unsigned char reserved[4];
} allocation;

typedef struct {
	location where;
	int flags; // 3: read and write
} access_rights;

typedef void (*host_function)(void *);

typedef struct {
	int id;
	int padding;
	uint32_t value[16];
} launch_attribute;

typedef struct {
	unsigned int sides[6], shared;
	void *stream;
	launch_attribute *attributes;
	unsigned int count;
} launch_config;

// Arrays and textures, with the layout of CUDA's types on 64-bit machines.
typedef struct {
	size_t width, height, depth;
	unsigned int format, channels, flags;
} array_descriptor;

typedef struct {
	size_t x, y, z, level;
	int type; // 2: memory of the device, 3: an array
	const void *host;
	uint64_t device;
	void *array, *reserved;
	size_t pitch, height;
} copy_side;

typedef struct {
	copy_side from, to;
	size_t width, height, depth;
} copy_3d;

typedef struct {
	int type; // 0: an array, 1: a mipmap, 2: linear memory, 3: pitched memory
	union {
		void *array;
		struct {
			uint64_t memory;
			unsigned int format, channels;
			size_t size;
		} linear;
		struct {
			uint64_t memory;
			unsigned int format, channels;
			size_t width, height, pitch;
		} pitched;
		int reserved[32];
	} of;
	unsigned int flags;
} resource_descriptor;

typedef struct {
	int address[3], filter;
	unsigned int flags, anisotropy;
	int mip_filter;
	uint32_t bias, min, max, border[4]; // floats
	int reserved[12];
} texture_descriptor;

typedef struct {
	int format;
	size_t width, height, depth;
	unsigned int first_level, last_level, first_layer, last_layer;
	unsigned int reserved[16];
} view_descriptor;

// Nodes of graphs.
typedef struct {
	void *function;
	unsigned int sides[6], shared;
	void **params, **extra;
	void *kernel, *context;
} kernel_node;

typedef struct {
	uint64_t to;
	size_t pitch;
	unsigned int value, element;
	size_t width, height; // width in elements
} fill_node;

typedef struct {
	int result;
	void *node, *from;
} update_result;

_Static_assert(sizeof(kernel_node) == 72 && sizeof(fill_node) == 40, "as in CUDA's headers");
_Static_assert(sizeof(array_descriptor) == 40 && sizeof(copy_side) == 88 && sizeof(copy_3d) == 200, "as in CUDA's headers");
_Static_assert(sizeof(resource_descriptor) == 144 && offsetof(resource_descriptor, flags) == 136, "as in CUDA's headers");
_Static_assert(sizeof(texture_descriptor) == 104 && sizeof(view_descriptor) == 112, "as in CUDA's headers");

// The functions of the driver that are used. CUDA gives a function a new name (_v2) when
// its signature changes; these names have these signatures in every driver since CUDA 12.4.
#define FUNCTIONS(X) \
	X(cuGetErrorName, (int, const char **)) \
	X(cuLinkCreate_v2, (unsigned int, int *, void **, void **)) \
	X(cuLinkAddData_v2, (void *, int, void *, size_t, const char *, unsigned int, int *, void **)) \
	X(cuLinkComplete, (void *, void **, size_t *)) \
	X(cuLinkDestroy, (void *)) \
	X(cuGetErrorString, (int, const char **)) \
	X(cuInit, (unsigned int)) \
	X(cuDriverGetVersion, (int *)) \
	X(cuDeviceGetCount, (int *)) \
	X(cuDeviceGet, (int *, int)) \
	X(cuDeviceGetName, (char *, int, int)) \
	X(cuDeviceGetUuid, (unsigned char *, int)) \
	X(cuDeviceTotalMem_v2, (size_t *, int)) \
	X(cuDeviceGetAttribute, (int *, int, int)) \
	X(cuCtxCreate_v2, (void **, unsigned int, int)) \
	X(cuCtxDestroy_v2, (void *)) \
	X(cuCtxPushCurrent_v2, (void *)) \
	X(cuCtxPopCurrent_v2, (void **)) \
	X(cuCtxSynchronize, (void)) \
	X(cuGetExportTable, (const void **, const void *)) \
	X(cuStreamSynchronize, (void *)) \
	X(cuCtxGetLimit, (size_t *, int)) \
	X(cuCtxSetLimit, (int, size_t)) \
	X(cuMemGetInfo_v2, (size_t *, size_t *)) \
	X(cuMemGetAllocationGranularity, (size_t *, const allocation *, int)) \
	X(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long)) \
	X(cuMemAddressFree, (uint64_t, size_t)) \
	X(cuMemCreate, (unsigned long long *, size_t, const allocation *, unsigned long long)) \
	X(cuMemRelease, (unsigned long long)) \
	X(cuMemMap, (uint64_t, size_t, size_t, unsigned long long, unsigned long long)) \
	X(cuMemUnmap, (uint64_t, size_t)) \
	X(cuMemSetAccess, (uint64_t, size_t, const access_rights *, size_t)) \
	X(cuMemExportToShareableHandle, (void *, unsigned long long, int, unsigned long long)) \
	X(cuMemImportFromShareableHandle, (unsigned long long *, void *, int)) \
	X(cuMemHostAlloc, (void **, size_t, unsigned int)) \
	X(cuMemFreeHost, (void *)) \
	X(cuMemHostRegister_v2, (void *, size_t, unsigned int)) \
	X(cuMemHostGetDevicePointer_v2, (uint64_t *, void *, unsigned int)) \
	X(cuMemHostUnregister, (void *)) \
	X(cuMemcpyDtoH_v2, (void *, uint64_t, size_t)) \
	X(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t)) \
	X(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *)) \
	X(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *)) \
	X(cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *)) \
	X(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *)) \
	X(cuMemsetD16Async, (uint64_t, unsigned short, size_t, void *)) \
	X(cuMemsetD32Async, (uint64_t, unsigned int, size_t, void *)) \
	X(cuModuleLoadDataEx, (void **, const void *, unsigned int, int *, void **)) \
	X(cuModuleUnload, (void *)) \
	X(cuModuleGetGlobal_v2, (uint64_t *, size_t *, void *, const char *)) \
	X(cuPointerGetAttribute, (void *, int, uint64_t)) \
	X(cuModuleGetFunctionCount, (unsigned int *, void *)) \
	X(cuModuleEnumerateFunctions, (void **, unsigned int, void *)) \
	X(cuFuncGetName, (const char **, void *)) \
	X(cuFuncLoad, (void *)) \
	X(cuFuncGetAttribute, (int *, int, void *)) \
	X(cuFuncSetAttribute, (void *, int, int)) \
	X(cuFuncGetParamInfo, (void *, size_t, size_t *, size_t *)) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, void *, int, size_t)) \
	X(cuOccupancyAvailableDynamicSMemPerBlock, (size_t *, void *, int, int)) \
	X(cuOccupancyMaxActiveClusters, (int *, void *, const launch_config *)) \
	X(cuOccupancyMaxPotentialClusterSize, (int *, void *, const launch_config *)) \
	X(cuStreamCreateWithPriority, (void **, unsigned int, int)) \
	X(cuStreamDestroy_v2, (void *)) \
	X(cuStreamQuery, (void *)) \
	X(cuStreamWaitEvent, (void *, void *, unsigned int)) \
	X(cuStreamWriteValue32_v2, (void *, uint64_t, uint32_t, unsigned int)) \
	X(cuStreamWriteValue64_v2, (void *, uint64_t, uint64_t, unsigned int)) \
	X(cuStreamWaitValue32_v2, (void *, uint64_t, uint32_t, unsigned int)) \
	X(cuStreamWaitValue64_v2, (void *, uint64_t, uint64_t, unsigned int)) \
	X(cuLaunchHostFunc, (void *, host_function, void *)) \
	X(cuLaunchKernel, (void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
	                   void *, void **, void **)) \
	X(cuLaunchKernelEx, (const launch_config *, void *, void **, void **)) \
	X(cuLaunchCooperativeKernel, (void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
	                              unsigned int, void *, void **)) \
	X(cuGraphCreate, (void **, unsigned int)) \
	X(cuGraphDestroy, (void *)) \
	X(cuGraphAddKernelNode_v2, (void **, void *, void *const *, size_t, const kernel_node *)) \
	X(cuGraphKernelNodeSetAttribute, (void *, int, const uint32_t *)) \
	X(cuGraphAddMemcpyNode, (void **, void *, void *const *, size_t, const copy_3d *, void *)) \
	X(cuGraphAddMemsetNode, (void **, void *, void *const *, size_t, const fill_node *, void *)) \
	X(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) \
	X(cuGraphExecDestroy, (void *)) \
	X(cuGraphExecUpdate_v2, (void *, void *, update_result *)) \
	X(cuGraphExecKernelNodeSetParams_v2, (void *, void *, const kernel_node *)) \
	X(cuGraphExecMemcpyNodeSetParams, (void *, void *, const copy_3d *, void *)) \
	X(cuGraphExecMemsetNodeSetParams, (void *, void *, const fill_node *, void *)) \
	X(cuGraphLaunch, (void *, void *)) \
	X(cuEventCreate, (void **, unsigned int)) \
	X(cuEventDestroy_v2, (void *)) \
	X(cuEventRecord, (void *, void *)) \
	X(cuEventQuery, (void *)) \
	X(cuEventElapsedTime, (float *, void *, void *)) \
	X(cuArray3DCreate_v2, (void **, const array_descriptor *)) \
	X(cuArrayDestroy, (void *)) \
	X(cuMipmappedArrayCreate, (void **, const array_descriptor *, unsigned int)) \
	X(cuMipmappedArrayGetLevel, (void **, void *, unsigned int)) \
	X(cuMipmappedArrayDestroy, (void *)) \
	X(cuMemcpy3DAsync_v2, (const copy_3d *, void *)) \
	X(cuTexObjectCreate, (unsigned long long *, const resource_descriptor *, const texture_descriptor *, const view_descriptor *)) \
	X(cuTexObjectDestroy, (unsigned long long)) \
	X(cuSurfObjectCreate, (unsigned long long *, const resource_descriptor *)) \
	X(cuSurfObjectDestroy, (unsigned long long))

static struct {
#define X(name, arguments) int(*name) arguments;
	FUNCTIONS(X)
#undef X
} api;

static void *opened; // the driver's library

static const struct {
	const char *name;
	void *place;
} symbols[] = {
#define X(name, arguments) {#name, &api.name},
	FUNCTIONS(X)
#undef X
};

int mcu_open(const char *path, char *text, size_t room)
{
	// Programs load images with thousands of kernels and use a few, so kernels are loaded
	// lazily. function_info loads a kernel when the program asks for it, not at its first launch:
	// loading may wait for all work of the context, and so for ever if that work waits for
	// the launch.
	setenv("CUDA_MODULE_LOADING", "LAZY", 0);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		snprintf(text, room, "%s", dlerror());
		return MCU_NO_LIBRARY;
	}
	if (dlsym(library, "muster_shim_version") != NULL) {
		dlclose(library);
		return MCU_OWN_SHIM;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		void *found = dlsym(library, symbols[i].name);
		if (found == NULL) {
			snprintf(text, room, "%s", symbols[i].name);
			dlclose(library);
			return MCU_NO_SYMBOL;
		}
		memcpy(symbols[i].place, &found, sizeof found);
	}
	opened = library;
	return MCU_OPENED;
}

const char *mcu_error_name(int code)
{
	const char *name = NULL;
	return api.cuGetErrorName != NULL && api.cuGetErrorName(code, &name) == 0 && name != NULL ? name : "";
}

const char *mcu_error_text(int code)
{
	const char *text = NULL;
	return api.cuGetErrorString != NULL && api.cuGetErrorString(code, &text) == 0 && text != NULL ? text : "";
}

static mcu_result result(int code, const char *call)
{
	return (mcu_result){code, call};
}

#define RUN(function, ...) result(api.function(__VA_ARGS__), #function)

// TRY returns on failure. Use it only where this function has made no context current, since it
// does not leave.
#define TRY(function, ...) \
	do { \
		mcu_result tried = RUN(function, __VA_ARGS__); \
		if (tried.code != 0) \
			return tried; \
	} while (0)

#define ENTER(context) TRY(cuCtxPushCurrent_v2, (void *)(context))

static mcu_result leave(mcu_result r)
{
	void *popped;
	api.cuCtxPopCurrent_v2(&popped);
	return r;
}

// INSIDE makes one call of the driver in a context and returns its answer.
#define INSIDE(context, function, ...) \
	ENTER(context); \
	return leave(RUN(function, __VA_ARGS__))

static mcu_result leave_if(mcu_handle context, mcu_result r)
{
	return context != 0 ? leave(r) : r;
}

#define ENTER_IF(context) \
	do { \
		if ((context) != 0) \
			ENTER(context); \
	} while (0)

mcu_result mcu_init(void)
{
	return RUN(cuInit, 0);
}

mcu_result mcu_device_count(int *count)
{
	return RUN(cuDeviceGetCount, count);
}

mcu_result mcu_driver_version(int *version)
{
	return RUN(cuDriverGetVersion, version);
}

mcu_result mcu_device(int ordinal, int *device, char *name, int room, unsigned char uuid[16], size_t *memory)
{
	TRY(cuDeviceGet, device, ordinal);
	TRY(cuDeviceGetName, name, room, *device);
	TRY(cuDeviceGetUuid, uuid, *device);
	return RUN(cuDeviceTotalMem_v2, memory, *device);
}

mcu_result mcu_device_attribute(int device, int number, int *value)
{
	return RUN(cuDeviceGetAttribute, value, number, device);
}

static allocation of_device(int device)
{
	return (allocation){.type = 1, .where = {1, device}};
}

mcu_result mcu_granularity(int device, size_t *granularity)
{
	allocation a = of_device(device);
	return RUN(cuMemGetAllocationGranularity, granularity, &a, 0);
}

enum { BLOCKING_SYNC = 4, STACK_SIZE = 0 };

mcu_result mcu_context_create(int device, mcu_handle *context, size_t *stack)
{
	void *made = NULL;
	TRY(cuCtxCreate_v2, &made, BLOCKING_SYNC, device);
	*context = (mcu_handle)made;
	return leave(RUN(cuCtxGetLimit, stack, STACK_SIZE));
}

mcu_result mcu_context_synchronise(mcu_handle context)
{
	ENTER(context);
	return leave(result(api.cuCtxSynchronize(), "cuCtxSynchronize"));
}

mcu_result mcu_context_destroy(mcu_handle context)
{
	return RUN(cuCtxDestroy_v2, (void *)context);
}

mcu_result mcu_context_stack(mcu_handle context, size_t bytes)
{
	INSIDE(context, cuCtxSetLimit, STACK_SIZE, bytes);
}

mcu_result mcu_context_limit(mcu_handle context, int limit, size_t value)
{
	INSIDE(context, cuCtxSetLimit, limit, value);
}

mcu_result mcu_context_memory(mcu_handle context, size_t *free_bytes)
{
	size_t total;
	INSIDE(context, cuMemGetInfo_v2, free_bytes, &total);
}

mcu_result mcu_reserve(mcu_handle context, uint64_t base, size_t size, uint64_t *got)
{
	ENTER_IF(context);
	return leave_if(context, RUN(cuMemAddressReserve, got, size, 0, base, 0));
}

mcu_result mcu_reserve_free(mcu_handle context, uint64_t base, size_t size)
{
	ENTER_IF(context);
	return leave_if(context, RUN(cuMemAddressFree, base, size));
}

static mcu_result map_piece(int device, uint64_t address, size_t size)
{
	allocation a = of_device(device);
	unsigned long long memory;
	TRY(cuMemCreate, &memory, size, &a, 0);
	mcu_result r = RUN(cuMemMap, address, size, 0, memory, 0);
	api.cuMemRelease(memory); // the mapping keeps the memory alive
	return r;
}

static mcu_result unmap_pieces(uint64_t address, const size_t *sizes, size_t count)
{
	mcu_result first = {0, ""};
	for (size_t i = 0; i < count; i++) {
		mcu_result r = RUN(cuMemUnmap, address, sizes[i]);
		if (first.code == 0)
			first = r;
		address += sizes[i];
	}
	return first;
}

static mcu_result map_pieces(int device, uint64_t address, const size_t *sizes, size_t count)
{
	size_t mapped = 0;
	uint64_t end = address;
	mcu_result r = {0, ""};
	for (; mapped < count; mapped++) {
		r = map_piece(device, end, sizes[mapped]);
		if (r.code != 0)
			break;
		end += sizes[mapped];
	}
	if (r.code == 0) {
		access_rights rights = {{1, device}, 3};
		r = RUN(cuMemSetAccess, address, end - address, &rights, 1);
	}
	if (r.code != 0)
		unmap_pieces(address, sizes, mapped);
	return r;
}

mcu_result mcu_map(mcu_handle context, int device, uint64_t address, const size_t *sizes, size_t count)
{
	ENTER_IF(context);
	return leave_if(context, map_pieces(device, address, sizes, count));
}

mcu_result mcu_unmap(mcu_handle context, uint64_t address, const size_t *sizes, size_t count)
{
	ENTER_IF(context);
	return leave_if(context, unmap_pieces(address, sizes, count));
}

enum { DESCRIPTORS = 1, HOST_NUMA = 3 };

static mcu_result shared_create(int device, size_t size, int *fd)
{
	allocation a = of_device(device);
	location here = a.where;
	unsigned long long memory;
	a.handle_types = DESCRIPTORS;
	a.where = (location){HOST_NUMA, 0};
	if (api.cuMemCreate(&memory, size, &a, 0) != 0) {
		a.where = here;
		TRY(cuMemCreate, &memory, size, &a, 0);
	}
	mcu_result r = RUN(cuMemExportToShareableHandle, fd, memory, DESCRIPTORS, 0);
	api.cuMemRelease(memory); // the descriptor keeps the memory alive
	return r;
}

mcu_result mcu_shared_create(mcu_handle context, int device, size_t size, int *fd)
{
	ENTER(context);
	return leave(shared_create(device, size, fd));
}

static mcu_result shared_map(int device, uint64_t address, size_t size, int fd)
{
	unsigned long long memory;
	access_rights rights = {{1, device}, 3};
	TRY(cuMemImportFromShareableHandle, &memory, (void *)(intptr_t)fd, DESCRIPTORS);
	mcu_result r = RUN(cuMemMap, address, size, 0, memory, 0);
	api.cuMemRelease(memory);
	if (r.code != 0)
		return r;
	r = RUN(cuMemSetAccess, address, size, &rights, 1);
	if (r.code != 0)
		api.cuMemUnmap(address, size);
	return r;
}

mcu_result mcu_shared_map(mcu_handle context, int device, uint64_t address, size_t size, int fd)
{
	ENTER(context);
	return leave(shared_map(device, address, size, fd));
}

mcu_result mcu_read(mcu_handle context, void *host, uint64_t from, size_t size)
{
	INSIDE(context, cuMemcpyDtoH_v2, host, from, size);
}

mcu_result mcu_write(mcu_handle context, uint64_t to, const void *host, size_t size)
{
	ENTER(context);
	mcu_result r = RUN(cuMemcpyHtoD_v2, to, host, size);
	if (r.code == 0) // the driver may have copied only to a buffer of its own so far
		r = result(api.cuCtxSynchronize(), "cuCtxSynchronize");
	return leave(r);
}

mcu_result mcu_host_alloc(mcu_handle context, size_t size, void **host)
{
	INSIDE(context, cuMemHostAlloc, host, size, 0);
}

mcu_result mcu_host_free(mcu_handle context, void *host)
{
	INSIDE(context, cuMemFreeHost, host);
}

mcu_result mcu_is_managed(mcu_handle context, uint64_t address, unsigned int *managed)
{
	enum { IS_MANAGED = 8 };
	*managed = 0;
	ENTER(context);
	mcu_result r = RUN(cuPointerGetAttribute, managed, IS_MANAGED, address);
	if (r.code == 1) // invalid value: the driver does not know the address, so it is not managed
		r.code = 0;
	return leave(r);
}

mcu_result mcu_host_register(mcu_handle context, void *host, size_t size)
{
	INSIDE(context, cuMemHostRegister_v2, host, size, 0);
}

mcu_result mcu_host_map(mcu_handle context, void *host, size_t size, uint64_t *address)
{
	enum { PORTABLE = 1, DEVICEMAP = 2 };
	ENTER(context);
	mcu_result r = RUN(cuMemHostRegister_v2, host, size, PORTABLE | DEVICEMAP);
	if (r.code != 0)
		return leave(r);
	r = RUN(cuMemHostGetDevicePointer_v2, address, host, 0);
	if (r.code != 0)
		api.cuMemHostUnregister(host);
	return leave(r);
}

mcu_result mcu_host_unregister(mcu_handle context, void *host)
{
	INSIDE(context, cuMemHostUnregister, host);
}

mcu_result mcu_module_load(mcu_handle context, const void *image, mcu_handle *module, char *log, size_t room)
{
	enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6 };
	int options[] = {ERROR_LOG, ERROR_LOG_SIZE};
	void *values[] = {log, (void *)(uintptr_t)room};
	void *loaded = NULL;
	ENTER(context);
	mcu_result r = RUN(cuModuleLoadDataEx, &loaded, image, 2, options, values);
	*module = (mcu_handle)loaded;
	return leave(r);
}

// The driver keeps pointers to the lists of options and to the log, and writes to them, until
// the link is destroyed. So they live here and not on the stack of mcu_link_create.
struct mcu_link {
	void *state;
	int options[MCU_LINK_OPTIONS + 2];
	void *values[MCU_LINK_OPTIONS + 2];
	char log[8192];
};

mcu_result mcu_link_create(mcu_handle context, const int *options, const uint64_t *values, unsigned int count, mcu_link **out)
{
	enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6, OUT_OF_MEMORY = 2 };
	mcu_link *link = calloc(1, sizeof *link);
	*out = link;
	if (link == NULL)
		return (mcu_result){OUT_OF_MEMORY, "calloc"};
	link->options[0] = ERROR_LOG;
	link->values[0] = link->log;
	link->options[1] = ERROR_LOG_SIZE;
	link->values[1] = (void *)(uintptr_t)(sizeof link->log - 1);
	if (count > MCU_LINK_OPTIONS)
		count = MCU_LINK_OPTIONS;
	for (unsigned int i = 0; i < count; i++) {
		link->options[i + 2] = options[i];
		link->values[i + 2] = (void *)(uintptr_t)values[i];
	}
	INSIDE(context, cuLinkCreate_v2, count + 2, link->options, link->values, &link->state);
}

mcu_result mcu_link_add(mcu_handle context, mcu_link *link, int kind, void *data, size_t size, const char *name)
{
	INSIDE(context, cuLinkAddData_v2, link->state, kind, data, size, name, 0, NULL, NULL);
}

mcu_result mcu_link_complete(mcu_handle context, mcu_link *link, void **image, size_t *size)
{
	INSIDE(context, cuLinkComplete, link->state, image, size);
}

const char *mcu_link_log(const mcu_link *link) { return link->log; }

mcu_result mcu_link_destroy(mcu_handle context, mcu_link *link)
{
	mcu_result r = {0};
	if (link != NULL && link->state != NULL) {
		ENTER(context);
		r = leave(RUN(cuLinkDestroy, link->state));
	}
	free(link);
	return r;
}

mcu_result mcu_module_unload(mcu_handle context, mcu_handle module)
{
	INSIDE(context, cuModuleUnload, (void *)module);
}

mcu_result mcu_module_global(mcu_handle context, mcu_handle module, const char *name, uint64_t *address, size_t *size)
{
	INSIDE(context, cuModuleGetGlobal_v2, address, size, (void *)module, name);
}

mcu_result mcu_module_function_count(mcu_handle context, mcu_handle module, unsigned int *count)
{
	INSIDE(context, cuModuleGetFunctionCount, count, (void *)module);
}

mcu_result mcu_module_functions(mcu_handle context, mcu_handle module, mcu_handle *functions, unsigned int count)
{
	INSIDE(context, cuModuleEnumerateFunctions, (void **)functions, count, (void *)module);
}

mcu_result mcu_function_name(mcu_handle context, mcu_handle function, const char **name)
{
	INSIDE(context, cuFuncGetName, name, (void *)function);
}

static mcu_result function_info(void *function, int shared_block, mcu_function *info)
{
	enum { MAX_THREADS, SHARED, CONSTANT, LOCAL, REGISTERS, PTX, BINARY, CACHE, MAX_DYNAMIC_SHARED, CARVEOUT, CLUSTER_NEEDED, CLUSTER_WIDTH };
	TRY(cuFuncLoad, function); // see mcu_open
	TRY(cuFuncGetName, &info->name, function);
	TRY(cuFuncGetAttribute, &info->max_threads, MAX_THREADS, function);
	TRY(cuFuncGetAttribute, &info->shared, SHARED, function);
	TRY(cuFuncGetAttribute, &info->local, LOCAL, function);
	TRY(cuFuncGetAttribute, &info->registers, REGISTERS, function);
	TRY(cuFuncGetAttribute, &info->ptx, PTX, function);
	TRY(cuFuncGetAttribute, &info->binary, BINARY, function);
	TRY(cuFuncGetAttribute, &info->constant, CONSTANT, function);
	TRY(cuFuncGetAttribute, &info->cluster_needed, CLUSTER_NEEDED, function);
	for (int i = 0; i < 3; i++)
		TRY(cuFuncGetAttribute, &info->cluster[i], CLUSTER_WIDTH + i, function);
	if (info->shared >= shared_block)
		return result(0, "");
	return RUN(cuFuncSetAttribute, function, MAX_DYNAMIC_SHARED, shared_block - info->shared);
}

mcu_result mcu_function_info(mcu_handle context, mcu_handle function, int shared_block, mcu_function *info)
{
	ENTER(context);
	return leave(function_info((void *)function, shared_block, info));
}

mcu_result mcu_function_param(mcu_handle context, mcu_handle function, size_t index, size_t *offset, size_t *size)
{
	INSIDE(context, cuFuncGetParamInfo, (void *)function, index, offset, size);
}

mcu_result mcu_function_occupancy(mcu_handle context, mcu_handle function, int threads, size_t shared, int *blocks)
{
	INSIDE(context, cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, (void *)function, threads, shared);
}

mcu_result mcu_stream_create(mcu_handle context, int priority, mcu_handle *stream)
{
	enum { NON_BLOCKING = 1 };
	INSIDE(context, cuStreamCreateWithPriority, (void **)stream, NON_BLOCKING, priority);
}

mcu_result mcu_stream_destroy(mcu_handle context, mcu_handle stream)
{
	INSIDE(context, cuStreamDestroy_v2, (void *)stream);
}

int mcu_take_stdout(void)
{
	int fd = memfd_create("prints", MFD_CLOEXEC);
	if (fd < 0)
		return -1;
	fcntl(fd, F_SETFL, O_APPEND);
	fflush(stdout);
	if (dup2(fd, 1) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

void mcu_flush_stdout(void) { fflush(stdout); }

// The end that is written to does not block: a process that crashes must not wait for its
// own reader, which no longer runs then.
int mcu_sift_stderr(int *before)
{
	int ends[2];
	*before = fcntl(2, F_DUPFD_CLOEXEC, 3);
	if (*before < 0)
		return -1;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		close(*before);
		return -1;
	}
	fcntl(ends[1], F_SETPIPE_SZ, 1 << 20); // may be refused, which does no harm
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	fflush(stderr);
	int moved = dup2(ends[1], 2);
	close(ends[1]);
	if (moved < 0) {
		close(*before);
		close(ends[0]);
		return -1;
	}
	return ends[0];
}

int mcu_write_stderr(const char *line, size_t size)
{
	fflush(stderr);
	while (size > 0) {
		ssize_t n = write(2, line, size);
		if (n > 0) {
			line += n;
			size -= (size_t)n;
		} else if (errno == EAGAIN) {
			poll(&(struct pollfd){.fd = 2, .events = POLLOUT}, 1, -1);
		} else if (errno != EINTR) {
			return 0;
		}
	}
	return 1;
}

// Synchronising any stream makes the driver write what was printed so far. The per-thread
// default stream (2) never has work here, so this does not wait.
mcu_result mcu_flush_prints(mcu_handle context)
{
	INSIDE(context, cuStreamSynchronize, (void *)2);
}

mcu_result mcu_stream_query(mcu_handle context, mcu_handle stream)
{
	INSIDE(context, cuStreamQuery, (void *)stream);
}

// watch polls until the answer is not NOT_READY, or limit nanoseconds have passed.
static mcu_result watch(int (*query)(void *), void *of, const char *call, int64_t limit)
{
	enum { NOT_READY = 600 };
	struct timespec began, now;
	int code = query(of);
	if (code != NOT_READY)
		return result(code, call);
	clock_gettime(CLOCK_MONOTONIC, &began);
	do {
		code = query(of);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (code == NOT_READY && (now.tv_sec - began.tv_sec) * INT64_C(1000000000) + now.tv_nsec - began.tv_nsec < limit);
	if (code == NOT_READY)
		sched_yield(); // other threads may need this processor
	return result(code, call);
}

mcu_result mcu_stream_watch(mcu_handle context, mcu_handle stream, int64_t limit)
{
	ENTER(context);
	return leave(watch(api.cuStreamQuery, (void *)stream, "cuStreamQuery", limit));
}

mcu_result mcu_event_watch(mcu_handle context, mcu_handle event, int64_t limit)
{
	ENTER(context);
	return leave(watch(api.cuEventQuery, (void *)event, "cuEventQuery", limit));
}

mcu_result mcu_stream_wait(mcu_handle context, mcu_handle stream, mcu_handle event)
{
	INSIDE(context, cuStreamWaitEvent, (void *)stream, (void *)event, 0);
}

mcu_result mcu_write_word(mcu_handle context, mcu_handle stream, uint64_t at, int width, uint64_t value)
{
	if (width == 4) {
		INSIDE(context, cuStreamWriteValue32_v2, (void *)stream, at, (uint32_t)value, 0);
	}
	INSIDE(context, cuStreamWriteValue64_v2, (void *)stream, at, value, 0);
}

mcu_result mcu_wait_word(mcu_handle context, mcu_handle stream, uint64_t at, int width, uint64_t value, unsigned int compare)
{
	if (width == 4) {
		INSIDE(context, cuStreamWaitValue32_v2, (void *)stream, at, (uint32_t)value, compare);
	}
	INSIDE(context, cuStreamWaitValue64_v2, (void *)stream, at, value, compare);
}

static void call_go(void *id)
{
	musterCudaCall((uintptr_t)id);
}

mcu_result mcu_stream_call(mcu_handle context, mcu_handle stream, uint64_t id)
{
	INSIDE(context, cuLaunchHostFunc, (void *)stream, call_go, (void *)(uintptr_t)id);
}

mcu_result mcu_copy_in(mcu_handle context, mcu_handle stream, uint64_t to, const void *host, size_t size)
{
	INSIDE(context, cuMemcpyHtoDAsync_v2, to, host, size, (void *)stream);
}

mcu_result mcu_copy_out(mcu_handle context, mcu_handle stream, void *host, uint64_t from, size_t size)
{
	INSIDE(context, cuMemcpyDtoHAsync_v2, host, from, size, (void *)stream);
}

mcu_result mcu_copy(mcu_handle context, mcu_handle stream, uint64_t to, uint64_t from, size_t size)
{
	INSIDE(context, cuMemcpyDtoDAsync_v2, to, from, size, (void *)stream);
}

mcu_result mcu_fill(mcu_handle context, mcu_handle stream, uint64_t to, uint32_t value, int width, size_t count)
{
	ENTER(context);
	switch (width) {
	case 1:
		return leave(RUN(cuMemsetD8Async, to, (unsigned char)value, count, (void *)stream));
	case 2:
		return leave(RUN(cuMemsetD16Async, to, (unsigned short)value, count, (void *)stream));
	default:
		return leave(RUN(cuMemsetD32Async, to, value, count, (void *)stream));
	}
}

// The driver tells NVIDIA's libraries through an undocumented table of functions how
// multiprocessors are grouped. The size of the table is checked: it is the same in all drivers
// seen that have it.
static mcu_result topology(uint8_t *told, size_t pairs)
{
	enum { NOT_SUPPORTED = 801, SIZE = 17 * sizeof(void *), TELL = 4, FORGET = 13 };
	static const unsigned char id[16] = {0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
	const void *table = NULL;
	mcu_result r = RUN(cuGetExportTable, &table, id);
	if (r.code != 0)
		return result(NOT_SUPPORTED, r.call);
	size_t size;
	memcpy(&size, table, sizeof size);
	if (size != SIZE)
		return result(NOT_SUPPORTED, r.call);
	int (*tell)(uint8_t **, uint8_t **), (*forget)(uint8_t *, uint8_t *);
	memcpy(&tell, (const char *)table + TELL * sizeof(void *), sizeof tell);
	memcpy(&forget, (const char *)table + FORGET * sizeof(void *), sizeof forget);
	uint8_t *first = NULL, *second = NULL;
	r = result(tell(&first, &second), "cuGetExportTable's topology");
	if (r.code != 0)
		return r;
	memcpy(told, first, pairs);
	memcpy(told + pairs, second, pairs);
	forget(first, second);
	return r;
}

mcu_result mcu_topology(mcu_handle context, uint8_t *told, size_t pairs)
{
	ENTER(context);
	return leave(topology(told, pairs));
}

typedef struct {
	_Alignas(64) uint8_t bytes[MCU_TENSOR_MAP];
} tensor_map;

// find looks up a function that not every driver has; NULL if this one has not.
static void *find(const char *name)
{
	return dlsym(opened, name);
}

static mcu_result make_tensor_map(const mcu_tensor *t, int im2col, tensor_map *map)
{
	enum { INVALID_VALUE = 1, NOT_SUPPORTED = 801 };
	if (t->rank > 5)
		return result(INVALID_VALUE, "cuTensorMapEncode");
	if (im2col) {
		int (*encode)(tensor_map *, int, uint32_t, uint64_t, const uint64_t *, const uint64_t *, const int32_t *, const int32_t *, uint32_t, uint32_t, const uint32_t *, int, int, int, int);
		void *found = find("cuTensorMapEncodeIm2col");
		if (found == NULL)
			return result(NOT_SUPPORTED, "cuTensorMapEncodeIm2col");
		memcpy(&encode, &found, sizeof encode);
		return result(encode(map, (int)t->type, t->rank, t->address, t->sizes, t->strides, t->box, t->upper, t->channels, t->pixels, t->steps, (int)t->interleave, (int)t->swizzle,
		                     (int)t->promotion, (int)t->fill),
		              "cuTensorMapEncodeIm2col");
	}
	int (*encode)(tensor_map *, int, uint32_t, uint64_t, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int);
	void *found = find("cuTensorMapEncodeTiled");
	if (found == NULL)
		return result(NOT_SUPPORTED, "cuTensorMapEncodeTiled");
	memcpy(&encode, &found, sizeof encode);
	return result(encode(map, (int)t->type, t->rank, t->address, t->sizes, t->strides, (const uint32_t *)t->box, t->steps, (int)t->interleave, (int)t->swizzle, (int)t->promotion, (int)t->fill),
	              "cuTensorMapEncodeTiled");
}

mcu_result mcu_tensor_map(mcu_handle context, const mcu_tensor *tensor, int im2col, uint8_t map[MCU_TENSOR_MAP])
{
	tensor_map made = {{0}};
	ENTER(context);
	mcu_result r = leave(make_tensor_map(tensor, im2col, &made));
	memcpy(map, made.bytes, sizeof made.bytes);
	return r;
}

mcu_result mcu_tensor_replace(mcu_handle context, uint8_t map[MCU_TENSOR_MAP], uint64_t address)
{
	enum { NOT_SUPPORTED = 801 };
	int (*replace)(tensor_map *, uint64_t);
	void *found = find("cuTensorMapReplaceAddress");
	if (found == NULL)
		return result(NOT_SUPPORTED, "cuTensorMapReplaceAddress");
	memcpy(&replace, &found, sizeof replace);
	tensor_map made;
	memcpy(made.bytes, map, sizeof made.bytes);
	ENTER(context);
	mcu_result r = leave(result(replace(&made, address), "cuTensorMapReplaceAddress"));
	memcpy(map, made.bytes, sizeof made.bytes);
	return r;
}

mcu_result mcu_function_shared(mcu_handle context, mcu_handle function, int blocks, int threads, size_t *shared)
{
	INSIDE(context, cuOccupancyAvailableDynamicSMemPerBlock, shared, (void *)function, blocks, threads);
}

// describe returns the driver's description of a launch. attributes must have room for three.
static launch_config describe(const mcu_shape *shape, void *stream, launch_attribute *attributes)
{
	enum { COOPERATIVE = 2, CLUSTER = 4 };
	const uint32_t *s = shape->sides;
	launch_config c = {{s[0], s[1], s[2], s[3], s[4], s[5]}, shape->shared, stream, attributes, 0};
	if (shape->cooperative)
		attributes[c.count++] = (launch_attribute){.id = COOPERATIVE, .value = {1}};
	if (shape->cluster[0] != 0)
		attributes[c.count++] = (launch_attribute){.id = CLUSTER, .value = {shape->cluster[0], shape->cluster[1], shape->cluster[2]}};
	return c;
}

// allow opts in to clusters larger than the size that every device supports, if the launch wants
// that.
static mcu_result allow(void *function, const mcu_shape *shape)
{
	enum { NON_PORTABLE = 14 };
	if (!shape->large_cluster)
		return result(0, "");
	return RUN(cuFuncSetAttribute, function, NON_PORTABLE, 1);
}

static mcu_result function_clusters(void *function, const mcu_shape *shape, int *clusters, int *blocks)
{
	launch_attribute attributes[3];
	launch_config c = describe(shape, NULL, attributes);
	mcu_result r = allow(function, shape);
	if (r.code != 0)
		return r;
	if (shape->cluster[0] == 0)
		return RUN(cuOccupancyMaxPotentialClusterSize, blocks, function, &c);
	return RUN(cuOccupancyMaxActiveClusters, clusters, function, &c);
}

mcu_result mcu_function_clusters(mcu_handle context, mcu_handle function, const mcu_shape *shape, int *clusters, int *blocks)
{
	ENTER(context);
	return leave(function_clusters((void *)function, shape, clusters, blocks));
}

static mcu_result launch(void *stream, void *f, const mcu_shape *shape, void **params)
{
	const uint32_t *s = shape->sides;
	unsigned int shared = shape->shared;
	if (shape->cluster[0] != 0) {
		launch_attribute attributes[3];
		launch_config c = describe(shape, stream, attributes);
		mcu_result r = allow(f, shape);
		return r.code != 0 ? r : RUN(cuLaunchKernelEx, &c, f, params, NULL);
	}
	if (shape->cooperative)
		return RUN(cuLaunchCooperativeKernel, f, s[0], s[1], s[2], s[3], s[4], s[5], shared, stream, params);
	return RUN(cuLaunchKernel, f, s[0], s[1], s[2], s[3], s[4], s[5], shared, stream, params, NULL);
}

mcu_result mcu_enter(mcu_handle context)
{
	return RUN(cuCtxPushCurrent_v2, (void *)context);
}

void mcu_leave(void)
{
	leave(result(0, ""));
}

mcu_result mcu_launch_here(mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                           char *params, const uint32_t *offsets, size_t count)
{
	enum { OUT_OF_MEMORY = 2 };
	void *few[32];
	void **places = few;
	if (count > sizeof few / sizeof few[0]) {
		places = calloc(count, sizeof *places);
		if (places == NULL)
			return result(OUT_OF_MEMORY, "calloc");
	}
	for (size_t i = 0; i < count; i++)
		places[i] = params + offsets[i];
	mcu_result r = launch((void *)stream, (void *)function, shape, count > 0 ? places : NULL);
	if (places != few)
		free(places);
	return r;
}

mcu_result mcu_launch(mcu_handle context, mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                      char *params, const uint32_t *offsets, size_t count)
{
	ENTER(context);
	return leave(mcu_launch_here(stream, function, shape, params, offsets, count));
}

mcu_result mcu_graph_create(mcu_handle *graph)
{
	return RUN(cuGraphCreate, (void **)graph, 0);
}

mcu_result mcu_graph_destroy(mcu_handle graph)
{
	return RUN(cuGraphDestroy, (void *)graph);
}

static kernel_node kernel_of(void *function, const mcu_shape *shape, void **params)
{
	const uint32_t *s = shape->sides;
	return (kernel_node){.function = function, .sides = {s[0], s[1], s[2], s[3], s[4], s[5]}, .shared = shape->shared, .params = params};
}

static copy_3d copy_of(const mcu_rows *to, const mcu_rows *from)
{
	enum { DEVICE = 2 };
	return (copy_3d){
		.from = {.type = DEVICE, .device = from->at, .pitch = from->pitch, .height = from->height},
		.to = {.type = DEVICE, .device = to->at, .pitch = to->pitch, .height = to->height},
		.width = to->width, .height = to->height, .depth = 1,
	};
}

static fill_node fill_of(const mcu_rows *to, uint32_t value, int element)
{
	return (fill_node){to->at, to->pitch, value, (unsigned int)element, to->width / (size_t)element, to->height};
}

static mcu_result graph_kernel(void *graph, const mcu_handle *after, size_t afters, void *function, const mcu_shape *shape,
                               void **params, mcu_handle *node)
{
	const kernel_node k = kernel_of(function, shape, params);
	launch_attribute attributes[3];
	const launch_config c = describe(shape, NULL, attributes);
	mcu_result r = shape->cluster[0] != 0 ? allow(function, shape) : result(0, "");
	if (r.code == 0)
		r = RUN(cuGraphAddKernelNode_v2, (void **)node, graph, (void *const *)after, afters, &k);
	for (unsigned int i = 0; i < c.count && r.code == 0; i++)
		r = RUN(cuGraphKernelNodeSetAttribute, (void *)*node, attributes[i].id, attributes[i].value);
	return r;
}

// places_of returns a list of pointers to the parameters of a kernel; NULL if there is no memory for
// it. The caller must free it.
static void **places_of(char *params, const uint32_t *offsets, size_t count)
{
	void **places = calloc(count + 1, sizeof *places);
	for (size_t i = 0; i < count && places != NULL; i++)
		places[i] = params + offsets[i];
	return places;
}

mcu_result mcu_graph_kernel(mcu_handle context, mcu_handle graph, const mcu_handle *after, size_t afters, mcu_handle function,
                            const mcu_shape *shape, char *params, const uint32_t *offsets, size_t count, mcu_handle *node)
{
	enum { OUT_OF_MEMORY = 2 };
	void **places = places_of(params, offsets, count);
	if (places == NULL)
		return result(OUT_OF_MEMORY, "calloc");
	mcu_result r = RUN(cuCtxPushCurrent_v2, (void *)context);
	if (r.code == 0)
		r = leave(graph_kernel((void *)graph, after, afters, (void *)function, shape, count > 0 ? places : NULL, node));
	free(places);
	return r;
}

mcu_result mcu_graph_set_kernel(mcu_handle context, mcu_handle instance, mcu_handle node, mcu_handle function, const mcu_shape *shape,
                                char *params, const uint32_t *offsets, size_t count)
{
	enum { OUT_OF_MEMORY = 2 };
	void **places = places_of(params, offsets, count);
	if (places == NULL)
		return result(OUT_OF_MEMORY, "calloc");
	const kernel_node k = kernel_of((void *)function, shape, count > 0 ? places : NULL);
	mcu_result r = RUN(cuCtxPushCurrent_v2, (void *)context);
	if (r.code == 0)
		r = leave(RUN(cuGraphExecKernelNodeSetParams_v2, (void *)instance, (void *)node, &k));
	free(places);
	return r;
}

mcu_result mcu_graph_copy(mcu_handle context, mcu_handle graph, const mcu_handle *after, size_t afters, const mcu_rows *to,
                          const mcu_rows *from, mcu_handle *node)
{
	const copy_3d c = copy_of(to, from);
	INSIDE(context, cuGraphAddMemcpyNode, (void **)node, (void *)graph, (void *const *)after, afters, &c, (void *)context);
}

mcu_result mcu_graph_set_copy(mcu_handle context, mcu_handle instance, mcu_handle node, const mcu_rows *to, const mcu_rows *from)
{
	const copy_3d c = copy_of(to, from);
	INSIDE(context, cuGraphExecMemcpyNodeSetParams, (void *)instance, (void *)node, &c, (void *)context);
}

mcu_result mcu_graph_fill(mcu_handle context, mcu_handle graph, const mcu_handle *after, size_t afters, const mcu_rows *to,
                          uint32_t value, int element, mcu_handle *node)
{
	const fill_node f = fill_of(to, value, element);
	INSIDE(context, cuGraphAddMemsetNode, (void **)node, (void *)graph, (void *const *)after, afters, &f, (void *)context);
}

mcu_result mcu_graph_set_fill(mcu_handle context, mcu_handle instance, mcu_handle node, const mcu_rows *to, uint32_t value, int element)
{
	const fill_node f = fill_of(to, value, element);
	INSIDE(context, cuGraphExecMemsetNodeSetParams, (void *)instance, (void *)node, &f, (void *)context);
}

mcu_result mcu_graph_instantiate(mcu_handle context, mcu_handle graph, mcu_handle *instance)
{
	INSIDE(context, cuGraphInstantiateWithFlags, (void **)instance, (void *)graph, 0);
}

mcu_result mcu_graph_update(mcu_handle context, mcu_handle instance, mcu_handle graph)
{
	update_result about;
	INSIDE(context, cuGraphExecUpdate_v2, (void *)instance, (void *)graph, &about);
}

mcu_result mcu_graph_launch(mcu_handle context, mcu_handle instance, mcu_handle stream)
{
	INSIDE(context, cuGraphLaunch, (void *)instance, (void *)stream);
}

mcu_result mcu_graph_end(mcu_handle context, mcu_handle instance)
{
	INSIDE(context, cuGraphExecDestroy, (void *)instance);
}

mcu_result mcu_event_create(mcu_handle context, int timing, mcu_handle *event)
{
	enum { NO_TIMING = 2 };
	INSIDE(context, cuEventCreate, (void **)event, timing ? 0 : NO_TIMING);
}

mcu_result mcu_event_destroy(mcu_handle context, mcu_handle event)
{
	INSIDE(context, cuEventDestroy_v2, (void *)event);
}

mcu_result mcu_event_record(mcu_handle context, mcu_handle event, mcu_handle stream)
{
	INSIDE(context, cuEventRecord, (void *)event, (void *)stream);
}

mcu_result mcu_event_query(mcu_handle context, mcu_handle event)
{
	INSIDE(context, cuEventQuery, (void *)event);
}

mcu_result mcu_event_elapsed(mcu_handle context, mcu_handle start, mcu_handle end, float *milliseconds)
{
	INSIDE(context, cuEventElapsedTime, milliseconds, (void *)start, (void *)end);
}

mcu_result mcu_array_create(mcu_handle context, const mcu_array *shape, mcu_handle *array)
{
	array_descriptor d = {shape->width, shape->height, shape->depth, shape->format, shape->channels, shape->flags};
	void *made = NULL;
	ENTER(context);
	mcu_result r = shape->levels > 0 ? RUN(cuMipmappedArrayCreate, &made, &d, shape->levels) : RUN(cuArray3DCreate_v2, &made, &d);
	*array = (mcu_handle)made;
	return leave(r);
}

mcu_result mcu_array_level(mcu_handle context, mcu_handle mipmap, unsigned int level, mcu_handle *array)
{
	INSIDE(context, cuMipmappedArrayGetLevel, (void **)array, (void *)mipmap, level);
}

mcu_result mcu_array_destroy(mcu_handle context, mcu_handle array, int mipmap)
{
	ENTER(context);
	return leave(mipmap ? RUN(cuMipmappedArrayDestroy, (void *)array) : RUN(cuArrayDestroy, (void *)array));
}

mcu_result mcu_array_copy(mcu_handle context, mcu_handle stream, mcu_handle array, const mcu_box *box, int in)
{
	enum { DEVICE = 2, ARRAY = 3 };
	copy_side rows = {.type = DEVICE, .device = box->memory, .pitch = box->pitch, .height = box->rows};
	copy_side inside = {.x = box->x, .y = box->y, .z = box->z, .type = ARRAY, .array = (void *)array};
	copy_3d c = {in ? rows : inside, in ? inside : rows, box->width, box->height, box->depth};
	INSIDE(context, cuMemcpy3DAsync_v2, &c, (void *)stream);
}

static resource_descriptor resource_of(const mcu_texture *t)
{
	enum { ARRAY, MIPMAP, LINEAR, PITCHED };
	resource_descriptor r = {.type = t->resource};
	switch (t->resource) {
	case LINEAR:
		r.of.linear.memory = t->memory;
		r.of.linear.format = t->format;
		r.of.linear.channels = t->channels;
		r.of.linear.size = t->size;
		break;
	case PITCHED:
		r.of.pitched.memory = t->memory;
		r.of.pitched.format = t->format;
		r.of.pitched.channels = t->channels;
		r.of.pitched.width = t->width;
		r.of.pitched.height = t->height;
		r.of.pitched.pitch = t->pitch;
		break;
	default:
		r.of.array = (void *)t->array;
	}
	return r;
}

static texture_descriptor sampler_of(const mcu_texture *t)
{
	return (texture_descriptor){
		.address = {t->address[0], t->address[1], t->address[2]}, .filter = t->filter, .flags = t->flags, .anisotropy = t->anisotropy,
		.mip_filter = t->mip_filter, .bias = t->bias, .min = t->min, .max = t->max,
		.border = {t->border[0], t->border[1], t->border[2], t->border[3]},
	};
}

static mcu_result texture_create(const mcu_texture *t, unsigned long long *handle)
{
	resource_descriptor r = resource_of(t);
	if (t->surface)
		return RUN(cuSurfObjectCreate, handle, &r);
	texture_descriptor s = sampler_of(t);
	view_descriptor v = {
		.format = t->view_format, .width = t->view_width, .height = t->view_height, .depth = t->view_depth,
		.first_level = t->first_level, .last_level = t->last_level, .first_layer = t->first_layer, .last_layer = t->last_layer,
	};
	return RUN(cuTexObjectCreate, handle, &r, &s, t->has_view ? &v : NULL);
}

mcu_result mcu_texture_create(mcu_handle context, const mcu_texture *texture, uint64_t *handle)
{
	unsigned long long made = 0;
	ENTER(context);
	mcu_result r = texture_create(texture, &made);
	*handle = made;
	return leave(r);
}

mcu_result mcu_texture_destroy(mcu_handle context, uint64_t handle, int surface)
{
	ENTER(context);
	return leave(surface ? RUN(cuSurfObjectDestroy, handle) : RUN(cuTexObjectDestroy, handle));
}
