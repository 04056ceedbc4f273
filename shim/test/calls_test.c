// Calls of the driver interface against the fake daemon.
//
//   calls_test WHAT
//
// Each WHAT is a test of its own process; shimtest says which there are and which
// daemon each of them needs.
#include "../include/muster.h"

#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WANT(call, expected) \
	do { \
		CUresult got_ = (call); \
		if (got_ != (expected)) { \
			fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, got_, expected); \
			_exit(1); \
		} \
	} while (0)
#define OK(call) WANT(call, CUDA_SUCCESS)
#define MUST(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			_exit(1); \
		} \
	} while (0)

static CUcontext start(void) {
	CUcontext context;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	return context;
}

static uint8_t *noise(size_t size, unsigned seed) {
	uint8_t *data = malloc(size);
	for (size_t i = 0; i < size; i++) {
		seed = seed * 1664525 + 1013904223;
		data[i] = (uint8_t)(seed >> 24);
	}
	return data;
}

// --- memory and copies ----------------------------------------------------------------

static void round_trip(CUdeviceptr device, void *from, void *to, size_t size, CUstream stream, int async) {
	memset(to, 0, size);
	if (async) {
		OK(cuMemcpyHtoDAsync(device, from, size, stream));
		OK(cuMemcpyDtoHAsync(to, device, size, stream));
		OK(cuStreamSynchronize(stream));
	} else {
		OK(cuMemcpyHtoD(device, from, size));
		OK(cuMemcpyDtoH(to, device, size));
	}
	MUST(memcmp(from, to, size) == 0);
}

static void test_copies(void) {
	start();
	const size_t most = 5u << 20;
	CUdeviceptr device, other;
	CUstream stream;
	uint8_t *from = noise(most, 1), *to = malloc(most), *pinned_from, *pinned_to;
	OK(cuMemAlloc(&device, most));
	OK(cuMemAlloc(&other, most));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocHost((void **)&pinned_from, most));
	OK(cuMemHostAlloc((void **)&pinned_to, most, CU_MEMHOSTALLOC_PORTABLE));
	memcpy(pinned_from, from, most);
	const size_t sizes[] = {1, 7, 4096, 16384, 16385, 262144, 1 << 20, (1 << 20) + 1, most};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int async = 0; async < 2; async++) {
			round_trip(device, from, to, sizes[i], stream, async);
			round_trip(device, pinned_from, pinned_to, sizes[i], stream, async);
			round_trip(device, pinned_from, to, sizes[i], stream, async);
			round_trip(device, from, pinned_to, sizes[i], stream, async);
		}
	OK(cuMemcpyDtoD(other, device, most));
	memset(to, 0, most);
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)to, other, most)); // unified
	MUST(memcmp(from, to, most) == 0);
	OK(cuMemcpy(device, (CUdeviceptr)(uintptr_t)from, most));
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)pinned_from, most));

	OK(cuMemsetD8(device, 0x5a, 100));
	OK(cuMemsetD16(device + 100, 0x1234, 50));
	OK(cuMemsetD32(device + 200, 0xdeadbeef, 25));
	WANT(cuMemsetD32(device + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyDtoH(to, device, 300));
	MUST(to[0] == 0x5a && to[99] == 0x5a && to[100] == 0x34 && to[199] == 0x12 && to[200] == 0xef && to[299] == 0xde);

	// What lies outside of an allocation is refused before anything is sent.
	WANT(cuMemcpyHtoD(device, from, most + 1), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpyDtoH(to, device + most - 1, 2), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpyDtoH(to, 0x1234, 2), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemsetD8(device + most - 1, 0, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemFree(device + 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyHtoD(device, NULL, 0));
	OK(cuMemFree(device));
	WANT(cuMemFree(device), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpyHtoD(device, from, 1), CUDA_ERROR_INVALID_VALUE);

	// The device's for the host's, and the other way round where that is pinned.
	WANT(cuMemcpyHtoD(other, (void *)(uintptr_t)device, 1), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpyDtoH((void *)(uintptr_t)device, other, 1), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpy(other, device, 1), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpy(device, other, 1), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpy((CUdeviceptr)(uintptr_t)to, device, 1), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpy(device, (CUdeviceptr)(uintptr_t)from, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyHtoD(other, (void *)(uintptr_t)(other + 100), 100));
	OK(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)pinned_to, from + 7, 100));
	OK(cuMemcpyDtoH(to, (CUdeviceptr)(uintptr_t)pinned_to, 100));
	MUST(memcmp(to, from + 7, 100) == 0);
	OK(cuMemcpyDtoD(other, (CUdeviceptr)(uintptr_t)pinned_to, 100));
	OK(cuMemsetD32((CUdeviceptr)(uintptr_t)pinned_to, 0x01020304, 2));
	MUST(pinned_to[0] == 4 && pinned_to[7] == 1);
	WANT(cuMemsetD8((CUdeviceptr)(uintptr_t)pinned_to, 1, most + 1), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemcpyDtoD(other, (CUdeviceptr)(uintptr_t)from, 100), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeHost(pinned_from));
	WANT(cuMemFreeHost(pinned_from), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemHostAlloc((void **)&pinned_from, 1u << 30, 0), CUDA_ERROR_OUT_OF_MEMORY);
	free(from);
	free(to);
}

static void fill_later(void *data) {
	nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
	memset(data, 5, 4000);
}

// What a stream writes into the host's memory is there for the copy behind it.
static void rows_behind_functions(CUdeviceptr device, size_t pitch) {
	uint8_t *pinned, registered[4000] = {0}, got[4000];
	OK(cuMemAllocHost((void **)&pinned, 4000));
	OK(cuMemHostRegister(registered, sizeof registered, 0));
	for (int i = 0; i < 3; i++) {
		uint8_t *from = i == 0 ? pinned : registered;
		memset(from, 0, 4000);
		OK(cuLaunchHostFunc(NULL, fill_later, from));
		CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = 200, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		                    .dstDevice = device, .dstPitch = pitch, .WidthInBytes = 100, .Height = 20};
		OK(i < 2 ? cuMemcpy2DAsync(&in, NULL) : cuMemcpyHtoDAsync(device + 19 * pitch, from, 100, NULL));
		OK(cuMemcpyDtoH(got, device + 19 * pitch, 100));
		MUST(got[0] == 5 && got[99] == 5);
		OK(cuMemsetD8(device, 0, 20 * pitch));
	}
	OK(cuMemHostUnregister(registered));
	OK(cuMemFreeHost(pinned));
}

static void test_rows(void) {
	start();
	const size_t width = 300, height = 5000, host_pitch = 311;
	size_t pitch;
	CUdeviceptr device, other;
	OK(cuMemAllocPitch(&device, &pitch, width, height, 4));
	OK(cuMemAlloc(&other, pitch * height));
	MUST(pitch % 512 == 0 && pitch >= width);
	uint8_t *from = noise(host_pitch * height, 2), *to = calloc(height, host_pitch);
	CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = host_pitch, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
	                    .dstDevice = device, .dstPitch = pitch, .WidthInBytes = width, .Height = height};
	OK(cuMemcpy2D(&in));
	CUDA_MEMCPY2D within = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = device, .srcPitch = pitch, .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
	                        .dstDevice = other, .dstPitch = pitch, .WidthInBytes = width, .Height = height};
	OK(cuMemcpy2DAsync(&within, NULL));
	CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = other, .srcPitch = pitch, .srcY = 1, .srcXInBytes = 2,
	                     .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = host_pitch, .WidthInBytes = width - 2, .Height = height - 1};
	OK(cuMemcpy2DUnaligned(&out));
	for (size_t y = 0; y + 1 < height; y++)
		MUST(memcmp(to + y * host_pitch, from + (y + 1) * host_pitch + 2, width - 2) == 0);
	in.Height = height + 1;
	WANT(cuMemcpy2D(&in), CUDA_ERROR_INVALID_VALUE);
	in.Height = height;
	in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	WANT(cuMemcpy2D(&in), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemsetD2D8(device, pitch, 7, width, height));
	OK(cuMemsetD2D32(device, pitch, 9, 2, height));
	CUDA_MEMCPY3D cube = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = device, .srcPitch = pitch, .srcHeight = 10,
	                      .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = width, .dstHeight = 10, .WidthInBytes = width, .Height = 10, .Depth = 3};
	OK(cuMemcpy3D(&cube));
	MUST(to[0] == 9 && to[1] == 0 && to[8] == 7 && to[29 * width] == 9 && to[29 * width + 299] == 7);
	rows_behind_functions(device, pitch);
	free(from);
	free(to);
}

static void *arrays_of_a_thread(void *context) {
	OK(cuCtxSetCurrent(context));
	for (int i = 0; i < 100; i++) {
		CUarray array;
		CUtexObject texture;
		CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2};
		OK(cuArray3DCreate(&array, &d));
		CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array}, back;
		CUDA_TEXTURE_DESC t = {.flags = CU_TRSF_NORMALIZED_COORDINATES};
		OK(cuTexObjectCreate(&texture, &r, &t, NULL));
		OK(cuTexObjectGetResourceDesc(&back, texture));
		MUST(back.res.array.hArray == array);
		OK(cuTexObjectDestroy(texture));
		WANT(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
		OK(cuArrayDestroy(array));
	}
	return NULL;
}

static void test_arrays(void) {
	CUcontext context = start();
	// A box of an array in three dimensions, and all of it.
	enum { W = 20, H = 7, D = 5 };
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = W, .Height = H, .Depth = D, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1}, shape;
	CUarray array, level;
	OK(cuArray3DCreate(&array, &d));
	uint8_t *from = noise(W * H * D, 7), to[W * H * D], box[3 * 2 * 2];
	const CUDA_MEMCPY3D fill_array = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = W, .srcHeight = H, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array, .WidthInBytes = W, .Height = H, .Depth = D};
	const CUDA_MEMCPY3D read_array = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = W, .dstHeight = H, .WidthInBytes = W, .Height = H, .Depth = D};
	OK(cuMemcpy3D(&fill_array));
	CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .srcXInBytes = 4, .srcY = 3, .srcZ = 2, .dstMemoryType = CU_MEMORYTYPE_HOST,
	                     .dstHost = box, .dstPitch = 3, .dstHeight = 2, .WidthInBytes = 3, .Height = 2, .Depth = 2};
	OK(cuMemcpy3D(&out));
	for (int z = 0; z < 2; z++)
		for (int y = 0; y < 2; y++)
			MUST(memcmp(box + 6 * z + 3 * y, from + ((z + 2) * H + y + 3) * W + 4, 3) == 0);
	CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = box, .srcPitch = 3, .srcHeight = 2, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
	                           .dstArray = array, .dstContext = context, .srcContext = context, .WidthInBytes = 3, .Height = 2, .Depth = 2};
	OK(cuMemcpy3DPeer(&peer));
	OK(cuMemcpy3D(&read_array));
	MUST(memcmp(to, box, 3) == 0 && memcmp(to + W * H, box + 6, 3) == 0 && memcmp(to + 3, from + 3, W - 3) == 0);
	out.srcXInBytes = W - 2;
	WANT(cuMemcpy3D(&out), CUDA_ERROR_INVALID_VALUE);
	out.srcXInBytes = 0;
	out.srcZ = D - 1;
	WANT(cuMemcpy3D(&out), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyAtoH(to, array, 1, W - 1));
	WANT(cuMemcpyAtoH(to, array, 1, W), CUDA_ERROR_INVALID_VALUE); // more than the first row

	CUmipmappedArray mipmap;
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	OK(cuMipmappedArrayCreate(&mipmap, &d, 100)); // as many levels as there can be
	OK(cuMipmappedArrayGetLevel(&level, mipmap, 4));
	OK(cuArray3DGetDescriptor(&shape, level));
	MUST(shape.Width == 1 && shape.Height == 1 && shape.Depth == 1);
	WANT(cuMipmappedArrayGetLevel(&level, mipmap, 5), CUDA_ERROR_INVALID_VALUE);
	WANT(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
	OK(cuArrayGetMemoryRequirements(&need, level, 0));
	OK(cuMipmappedArrayDestroy(mipmap));
	WANT(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
	WANT(cuArray3DGetDescriptor(&shape, level), CUDA_ERROR_INVALID_HANDLE);

	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		MUST(pthread_create(&threads[i], NULL, arrays_of_a_thread, context) == 0);
	for (int i = 0; i < 4; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	// What is left goes with the context.
	OK(cuMipmappedArrayCreate(&mipmap, &d, 2));
	OK(cuDevicePrimaryCtxReset(0));
	WANT(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
	free(from);
}

static void test_addresses(void) {
	CUcontext context = start();
	size_t available, total;
	OK(cuMemGetInfo(&available, &total));
	MUST(available == total);
	CUdeviceptr a, b, c, large, base;
	size_t size;
	OK(cuMemAlloc(&a, 1));
	OK(cuMemAlloc(&b, 513));
	OK(cuMemAlloc(&c, 1));
	MUST(a % 512 == 0 && b == a + 512 && c == b + 1024);
	OK(cuMemFree(b));
	OK(cuMemAlloc(&b, 1024));
	MUST(b == a + 512); // lowest first
	OK(cuMemAlloc(&large, 3u << 20));
	MUST(large % (2u << 20) == 0);
	OK(cuMemGetAddressRange(&base, &size, large + 5));
	MUST(base == large && size == 3u << 20);
	WANT(cuMemGetAddressRange(&base, &size, 77), CUDA_ERROR_NOT_FOUND);
	OK(cuMemGetInfo(&available, &total));
	MUST(total - available == (3u << 20) + 512 + 1024 + 512);
	WANT(cuMemAlloc(&base, 0), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemAlloc(&base, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	WANT(cuMemAlloc(&base, total), CUDA_ERROR_OUT_OF_MEMORY); // the daemon says so
	OK(cuMemAlloc(&base, 4096));
	unsigned type;
	int ordinal;
	CUcontext owner;
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
	void *values[] = {&type, &ordinal, &owner};
	OK(cuPointerGetAttributes(3, which, values, large + 100));
	MUST(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && owner == context);
	OK(cuPointerGetAttributes(3, which, values, (CUdeviceptr)(uintptr_t)&type));
	MUST(type == 0 && ordinal == CU_DEVICE_INVALID && owner == NULL);
	WANT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 99), CUDA_ERROR_INVALID_VALUE);
	char registered[100];
	OK(cuMemHostRegister(registered, 100, 0));
	WANT(cuMemHostRegister(registered + 50, 100, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)(registered + 9)));
	MUST(type == CU_MEMORYTYPE_HOST);
	OK(cuMemHostUnregister(registered));
	WANT(cuMemHostUnregister(registered), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	const CUdeviceptr children[] = {a, b};
	OK(musterNested(large, children, 2));
	WANT(musterNested(large + (9u << 20), children, 2), CUDA_ERROR_INVALID_VALUE);
	OK(musterSync());
}

// --- code ---------------------------------------------------------------------------------

static void test_launches(void) {
	start();
	CUmodule module;
	CUfunction add, echo, again, missing;
	WANT(cuModuleLoadData(&module, "bad"), CUDA_ERROR_INVALID_PTX);
	WANT(cuModuleLoadData(&module, ""), CUDA_ERROR_INVALID_IMAGE);
	OK(cuModuleLoadData(&module, ".version 8.0"));
	OK(cuModuleGetFunction(&add, module, "add"));
	OK(cuModuleGetFunction(&again, module, "add"));
	MUST(add == again);
	WANT(cuModuleGetFunction(&missing, module, "subtract"), CUDA_ERROR_NOT_FOUND);
	WANT(cuModuleGetFunction(&missing, (CUmodule)add, "add"), CUDA_ERROR_INVALID_HANDLE);

	enum { n = 1000 };
	float x[n], y[n], z[n];
	CUdeviceptr a, b, c;
	for (int i = 0; i < n; i++)
		x[i] = (float)i, y[i] = (float)(2 * i);
	OK(cuMemAlloc(&a, sizeof x));
	OK(cuMemAlloc(&b, sizeof x));
	OK(cuMemAlloc(&c, sizeof x));
	OK(cuMemcpyHtoD(a, x, sizeof x));
	OK(cuMemcpyHtoD(b, y, sizeof x));
	int count = n;
	void *params[] = {&a, &b, &c, &count};
	OK(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
	OK(cuMemcpyDtoH(z, c, sizeof z));
	for (int i = 0; i < n; i++)
		MUST(z[i] == (float)(3 * i));

	// Laid out by the program itself.
	struct {
		CUdeviceptr a, b, c;
		int n;
	} packed = {a, a, c, n};
	size_t size = 28;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	OK(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, NULL, NULL, extra));
	OK(cuMemcpyDtoH(z, c, sizeof z));
	MUST(z[999] == 1998);
	size = 29;
	WANT(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	WANT(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	WANT(cuLaunchKernel(add, 0, 1, 1, 256, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	WANT(cuLaunchKernel(add, 1, 70000, 1, 256, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	WANT(cuLaunchKernel(add, 1, 1, 1, 1024, 2, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	WANT(cuLaunchKernel(add, 1, 1, 1, 1, 1, 65, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	WANT(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 50000, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	WANT(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200000), CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
	OK(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 50000, NULL, params, NULL));
	WANT(cuLaunchKernel((CUfunction)module, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);

	// 4 multiprocessors with 2048 threads each.
	OK(cuLaunchCooperativeKernel(add, 8, 1, 1, 1024, 1, 1, 0, NULL, params));
	WANT(cuLaunchCooperativeKernel(add, 9, 1, 1, 1024, 1, 1, 0, NULL, params), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	int grid, threads;
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &threads, add, NULL, 0, 0));
	MUST(grid == 8 && threads == 1024);

	// A large parameter, a gap before it, and the size of the stack.
	OK(cuModuleGetFunction(&echo, module, "echo"));
	CUdeviceptr target;
	uint8_t *text = noise(4000, 3), got[4024];
	OK(cuMemAlloc(&target, sizeof got));
	void *echo_params[] = {&target, text};
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
	OK(cuLaunchKernel(echo, 1, 1, 1, 1, 1, 1, 0, NULL, echo_params, NULL));
	OK(cuMemcpyDtoH(got, target, sizeof got));
	MUST(memcmp(got, &target, 8) == 0 && memcmp(got + 16, text, 4000) == 0 && memcmp(got + 4016, &(uint64_t){2048}, 8) == 0);
	for (int i = 8; i < 16; i++)
		MUST(got[i] == 0);
	free(text);
	size_t offset, length;
	OK(cuFuncGetParamInfo(echo, 1, &offset, &length));
	MUST(offset == 16 && length == 4000);
	WANT(cuFuncGetParamInfo(echo, 2, &offset, &length), CUDA_ERROR_INVALID_VALUE);

	CUdeviceptr variable;
	OK(cuModuleGetGlobal(&variable, &length, module, "v"));
	OK(cuMemcpyHtoD(variable, x, length));
	WANT(cuMemcpyHtoD(variable, x, length + 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuModuleUnload(module));
	WANT(cuMemcpyHtoD(variable, x, length), CUDA_ERROR_INVALID_VALUE);
	WANT(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
	WANT(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);

	// What its headers say is not in the file.
	char path[32];
	int file = memfd_create("image", MFD_CLOEXEC);
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	Elf64_Ehdr cut = {.e_ident = ELFMAG, .e_shoff = 1 << 20, .e_shnum = 4, .e_shentsize = sizeof(Elf64_Shdr)};
	cut.e_ident[EI_CLASS] = ELFCLASS64;
	MUST(file >= 0 && write(file, &cut, sizeof cut) == sizeof cut);
	CUlibrary library;
	CUlinkState link;
	void *cubin;
	WANT(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
	WANT(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_INVALID_IMAGE);
	MUST(ftruncate(file, 20) == 0);
	WANT(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
	MUST(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0 && write(file, "text", 4) == 4);
	OK(cuModuleLoad(&module, path));
	close(file);
	OK(cuLinkCreate(0, NULL, NULL, &link));
	WANT(cuLinkAddData(link, CU_JIT_INPUT_CUBIN, &cut, sizeof cut, NULL, 0, NULL, NULL), CUDA_ERROR_INVALID_IMAGE);
	OK(cuLinkDestroy(link));

	OK(cuLinkCreate(0, NULL, NULL, &link));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, "text", 5, NULL, 0, NULL, NULL));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, " and more", 9, "a name", 0, NULL, NULL));
	OK(cuLinkAddData(link, CU_JIT_INPUT_LIBRARY, "\0\1\2", 3, "lib", 0, NULL, NULL));
	WANT(cuLinkAddData(link, CU_JIT_INPUT_NVVM, "text", 5, NULL, 0, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
	WANT(cuLinkAddData(link, CU_JIT_INPUT_NVVM + 1, "text", 5, NULL, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuLinkComplete(link, &cubin, &size));
	MUST(size == 16 && memcmp(cubin, "text and more\0\1\2", 17) == 0);
	OK(cuLinkComplete(link, &cubin, NULL));
	OK(cuLinkDestroy(link));
	OK(cuLinkCreate(0, NULL, NULL, &link));
	static char large[600 << 10];
	memset(large, 'x', sizeof large - 1);
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, large, sizeof large, NULL, 0, NULL, NULL));
	OK(cuLinkDestroy(link));
}

// Logs of compilers are filled, as far as there is room.
static void test_logs(void) {
	char error[100], info[100];
	CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[4];
	CUmodule module;
	CUlibrary library;
	CUkernel kernel;
	CUlinkState link;
	static const char *const log = "error: line 1: bad\nerror: it stays bad";
#define FRESH(room) (memset(error, 'x', sizeof error), memset(info, 'x', sizeof info), values[0] = info, values[1] = (void *)sizeof info, values[2] = error, values[3] = (void *)(uintptr_t)(room))
#define LOGGED(text) MUST(strcmp(error, text) == 0 && values[3] == (void *)(strlen(text) > 0 ? strlen(text) + 1 : 0) && info[0] == 0 && values[1] == NULL)
	start();
	FRESH(sizeof error);
	WANT(cuModuleLoadDataEx(&module, "bad", 4, options, values), CUDA_ERROR_INVALID_PTX);
	LOGGED(log);
	FRESH(7);
	WANT(cuModuleLoadDataEx(&module, "bad", 4, options, values), CUDA_ERROR_INVALID_PTX);
	LOGGED("error:");
	MUST(error[7] == 'x');
	FRESH(0);
	WANT(cuModuleLoadDataEx(&module, "bad", 4, options, values), CUDA_ERROR_INVALID_PTX);
	MUST(error[0] == 'x' && values[3] == NULL);
	WANT(cuModuleLoadDataEx(&module, "bad", 2, options + 2, values + 2), CUDA_ERROR_INVALID_PTX);
	FRESH(sizeof error);
	WANT(cuModuleLoadDataEx(&module, "", 4, options, values), CUDA_ERROR_INVALID_IMAGE);
	MUST(strncmp(error, "error: the image is neither", 27) == 0);
	FRESH(sizeof error);
	OK(cuModuleLoadDataEx(&module, "good", 4, options, values));
	LOGGED("");

	FRESH(sizeof error);
	OK(cuLinkCreate(4, options, values, &link));
	LOGGED("");
	WANT(cuLinkAddData(link, CU_JIT_INPUT_PTX, "bad", 4, NULL, 4, options, (void *[]){info, (void *)1, error, (void *)1}), CUDA_ERROR_INVALID_VALUE);
	WANT(cuLinkAddData(link, CU_JIT_INPUT_PTX, "bad", 4, NULL, 0, NULL, NULL), CUDA_ERROR_INVALID_PTX);
	LOGGED(log);
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, "good", 5, NULL, 0, NULL, NULL));
	LOGGED("");
	OK(cuLinkDestroy(link));

	FRESH(sizeof error);
	OK(cuLibraryLoadData(&library, "bad", options, values, 4, NULL, NULL, 0)); // CUDA tells the user of it
	LOGGED(log);
	WANT(cuLibraryGetKernel(&kernel, library, "add"), CUDA_ERROR_INVALID_PTX);
	OK(cuLibraryUnload(library));
	FRESH(sizeof error);
	OK(cuLibraryLoadData(&library, "", options, values, 4, NULL, NULL, 0));
	WANT(cuLibraryGetKernel(&kernel, library, "add"), CUDA_ERROR_INVALID_IMAGE);
	OK(cuLibraryUnload(library));
}

static void say(const char *text) {
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(1);
}

// The call that fails prints why, once, whatever is said on standard error meanwhile.
static void test_notices(void) {
	CUcontext context = start();
	CUmodule module;
	CUfunction fault;
	CUdeviceptr memory;
	void *pinned;
	WANT(cuMemAlloc(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	say("1\n");
	WANT(cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < 60; i++) { // more than the memory of notices holds
		OK(cuModuleLoadData(&module, "good"));
		OK(cuModuleGetFunction(&fault, module, "fault"));
		OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		WANT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
		say("2\n");
		WANT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
		OK(cuDevicePrimaryCtxReset(0));
		OK(cuDevicePrimaryCtxRetain(&context, 0));
	}
	WANT(cuMemHostAlloc(&pinned, (size_t)1 << 40, 0), CUDA_ERROR_OUT_OF_MEMORY);
	WANT(cuMemHostAlloc(&pinned, (size_t)1 << 40, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

// A program whose standard error nobody reads goes on.
static void test_unread(void) {
	int ends[2];
	CUdeviceptr memory;
	MUST(pipe(ends) == 0 && close(ends[0]) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	start();
	WANT(cuMemAlloc(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc(&memory, 16));
	puts("right");
}

static void test_libraries(void) {
	OK(cuInit(0));
	CUlibrary library;
	CUkernel kernel, all[16];
	CUfunction function;
	unsigned count;
	const char *name;
	struct { // a fatbin in what nvcc puts around it
		uint32_t magic, version;
		const void *data, *more;
	} wrapper = {0x466243b1, 1, NULL, NULL};
	struct {
		uint32_t magic;
		uint16_t version, header;
		uint64_t size;
		char body[64];
	} fatbin = {0xba55ed50, 1, 16, 64, "body"};
	wrapper.data = &fatbin;
	OK(cuLibraryLoadData(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernelCount(&count, library));
	MUST(count == 6);
	OK(cuLibraryEnumerateKernels(all, 6, library));
	OK(cuLibraryGetKernel(&kernel, library, "say"));
	MUST(kernel == all[2]);
	OK(cuKernelGetName(&name, kernel));
	MUST(strcmp(name, "say") == 0);
	start();
	OK(cuKernelGetFunction(&function, kernel));
	OK(cuLaunchKernel(function, 7, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	OK(cuCtxSynchronize()); // prints
	CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
	CUlaunchConfig config = {.gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .attrs = &cooperative, .numAttrs = 1};
	OK(cuLaunchKernelEx(&config, (CUfunction)kernel, NULL, NULL));
	OK(cuCtxSynchronize()); // prints
	CUcontext other; // which is not current when the library goes
	CUmodule module;
	OK(cuCtxCreate(&other, 0, 0));
	OK(cuLibraryGetModule(&module, library));
	OK(cuModuleGetFunction(&function, module, "say"));
	OK(cuCtxPopCurrent(NULL));
	OK(cuLibraryUnload(library));
	WANT(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
	WANT(cuModuleGetFunction(&function, module, "say"), CUDA_ERROR_INVALID_HANDLE);
}

// --- streams, events, contexts ----------------------------------------------------------------

static void count_call(void *data) { ++*(_Atomic int *)data; }

static void count_callback(CUstream stream, CUresult status, void *data) {
	(void)stream;
	if (status == CUDA_SUCCESS)
		++*(_Atomic int *)data;
}

static void test_streams(void) {
	CUcontext context = start(), found;
	CUstream stream;
	CUevent begin, end, plain;
	float milliseconds;
	_Atomic int calls = 0;
	unsigned flags;
	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -9));
	int priority;
	OK(cuStreamGetPriority(stream, &priority));
	OK(cuStreamGetFlags(stream, &flags));
	OK(cuStreamGetCtx(stream, &found));
	MUST(priority == -5 && flags == CU_STREAM_NON_BLOCKING && found == context);
	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	OK(cuEventQuery(begin)); // never recorded: happened
	WANT(cuEventElapsedTime(&milliseconds, begin, end), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventRecord(begin, stream));
	for (int i = 0; i < 100; i++) {
		OK(cuLaunchHostFunc(stream, count_call, &calls));
		OK(cuStreamAddCallback(stream, count_callback, &calls, 0));
	}
	OK(cuEventRecord(end, stream));
	OK(cuEventRecord(plain, stream));
	OK(cuStreamWaitEvent(NULL, end, 0));
	OK(cuStreamSynchronize(stream));
	MUST(calls == 200);
	OK(cuEventElapsedTime(&milliseconds, begin, end));
	MUST(milliseconds == 1.5f);
	WANT(cuEventElapsedTime(&milliseconds, begin, plain), CUDA_ERROR_INVALID_HANDLE);
	OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	OK(cuStreamSynchronize(CU_STREAM_LEGACY));
	OK(cuStreamDestroy(stream));
	WANT(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
	WANT(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventDestroy(begin));
	WANT(cuEventRecord(begin, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void wait_for_gate(void *data) {
	while (*(_Atomic int *)data == 0)
		sched_yield();
}

static void count_fault(CUstream stream, CUresult status, void *data) {
	(void)stream;
	if (status == CUDA_ERROR_ILLEGAL_ADDRESS)
		++*(_Atomic int *)data;
}

static void test_contexts(void) {
	CUcontext first, second, popped, current;
	CUdevice device;
	unsigned flags;
	int active;
	CUdeviceptr memory;
	WANT(cuCtxGetCurrent(&first), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuInit(0));
	WANT(cuMemAlloc(&memory, 1), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	MUST(!active);
	OK(cuCtxCreate(&first, CU_CTX_SCHED_YIELD, 0));
	OK(cuCtxCreate(&second, 0, 1));
	OK(cuCtxGetDevice(&device));
	MUST(device == 1);
	OK(cuMemAlloc(&memory, 1 << 20)); // a second connection
	OK(cuMemsetD8(memory, 42, 1 << 20));
	OK(cuCtxPopCurrent(&popped));
	MUST(popped == second);
	OK(cuCtxGetCurrent(&current));
	MUST(current == first);
	CUdeviceptr near;
	uint8_t byte = 0;
	OK(cuMemAlloc(&near, 1 << 20));
	OK(cuMemcpyPeer(near, first, memory, second, 1 << 20));
	OK(cuMemcpyDtoH(&byte, near + 12345, 1));
	MUST(byte == 42);
	OK(cuCtxDestroy(second));
	OK(cuCtxPushCurrent(second));
	WANT(cuMemAlloc(&near, 4), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	WANT(cuMemcpyPeer(near, first, memory, second, 1 << 20), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	WANT(cuCtxDestroy(second), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxPopCurrent(&current));
	MUST(current == second);
	OK(cuCtxDestroy(first)); // frees what is in it
	OK(cuCtxGetCurrent(&current));
	MUST(current == NULL);

	// A fault stays until the primary context is reset.
	start();
	CUmodule module;
	CUfunction fault;
	CUdeviceptr kept;
	static uint8_t large[256 << 10];
	OK(cuModuleLoadData(&module, "text"));
	OK(cuModuleGetFunction(&fault, module, "fault"));
	OK(cuMemAlloc(&memory, 1));
	OK(cuMemAlloc(&kept, sizeof large));
	_Atomic int gate = 0, calls = 0, told = 0;
	OK(cuLaunchHostFunc(NULL, wait_for_gate, &gate));
	OK(cuStreamAddCallback(NULL, count_fault, &told, 0));
	OK(cuLaunchHostFunc(NULL, count_call, &calls));
	OK(cuStreamAddCallback(NULL, count_fault, &told, 0));
	OK(cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	while (cuMemAlloc(&near, 1) == CUDA_SUCCESS) {
	}
	gate = 1;
	WANT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	for (int i = 0; i < 500 && told < 2; i++) // callbacks behind the fault hear of it
		nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
	MUST(told == 2 && calls == 0);
	WANT(cuMemFree(memory), CUDA_ERROR_ILLEGAL_ADDRESS);
	WANT(cuMemAlloc(&memory, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
	for (int i = 0; i < 20; i++) // more than staging memory holds
		WANT(cuMemcpyHtoD(kept, large, sizeof large), CUDA_ERROR_ILLEGAL_ADDRESS);
	OK(cuDevicePrimaryCtxReset(0));
	WANT(cuMemAlloc(&memory, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	start();
	OK(cuMemAlloc(&memory, sizeof large));
	OK(cuMemcpyHtoD(memory, large, sizeof large));
	OK(cuDevicePrimaryCtxRelease(0)); // once for each start: a reset does not count
	OK(cuDevicePrimaryCtxRelease(0));
	WANT(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

// Attributes of functions, and launches with attributes of their own, on a device that has
// no clusters.
static void test_attributes(void) {
	start();
	CUmodule module;
	CUfunction echo;
	CUevent event;
	int value = 77;
	size_t shared = 0;
	OK(cuModuleLoadData(&module, "text"));
	OK(cuModuleGetFunction(&echo, module, "echo"));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, echo));
	MUST(value == 0);
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, echo));
	MUST(value == 0);
	OK(cuFuncSetAttribute(echo, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, echo));
	MUST(value == 1);
	OK(cuFuncSetAttribute(echo, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 1));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, echo));
	MUST(value == 1);
	WANT(cuFuncSetAttribute(echo, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 2), CUDA_ERROR_INVALID_VALUE);
	WANT(cuFuncSetAttribute(echo, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuOccupancyAvailableDynamicSMemPerBlock(&shared, echo, 2, 64));
	MUST(shared == 32768);

	CUdeviceptr out;
	uint8_t bytes[4000] = {0};
	OK(cuMemAlloc(&out, sizeof bytes));
	void *params[] = {&out, bytes};
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	CUlaunchAttribute attributes[3] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY}, {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION}, {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};
	attributes[2].value.clusterDim.x = attributes[2].value.clusterDim.y = attributes[2].value.clusterDim.z = 1;
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, attributes, 3};
	OK(cuLaunchKernelEx(&config, echo, params, NULL)); // hints, and a cluster of one
	attributes[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
	attributes[0].value.programmaticEvent.event = event;
	OK(cuLaunchKernelEx(&config, echo, params, NULL));
	OK(cuEventSynchronize(event));
	config.gridDimX = attributes[2].value.clusterDim.x = 2;
	WANT(cuLaunchKernelEx(&config, echo, params, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	WANT(cuOccupancyMaxActiveClusters(&value, echo, &config), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	WANT(cuOccupancyMaxPotentialClusterSize(NULL, echo, &config), CUDA_ERROR_INVALID_VALUE);
	attributes[2].value.clusterDim.x = 0;
	WANT(cuLaunchKernelEx(&config, echo, params, NULL), CUDA_ERROR_INVALID_VALUE);
	attributes[2].id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
	WANT(cuLaunchKernelEx(&config, echo, params, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static void test_limits(void) {
	static const char *const wrong[] = {"0", "-1", " 5", "1G", "1.5", "99999999999999999999999"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		setenv("MUSTER_MEMORY", wrong[i], 1);
		WANT(cuInit(0), CUDA_ERROR_NO_DEVICE);
	}
	setenv("MUSTER_MEMORY", "1073741824", 1);
	OK(cuInit(0));
}

static void test_names(void) {
	void *found, *second;
	CUdriverProcAddressQueryResult status;
	const char *text;
	int value;
	OK(cuGetProcAddress("cuMemAlloc", &found, 12000, 0, &status));
	MUST(found == (void *)cuMemAlloc_v2 && status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cuGetProcAddress("cuMemcpyHtoD", &second, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	MUST(second == (void *)cuMemcpyHtoD_v2_ptds);
	OK(cuGetProcAddress("cuCtxSynchronize", &found, 12080, 0, &status));
	OK(cuGetProcAddress("cuCtxSynchronize", &second, 13000, 0, &status));
	MUST(found == (void *)cuCtxSynchronize && second == (void *)cuCtxSynchronize_v2);
	OK(cuGetProcAddress("cuLaunchKernel", &found, 3000, 0, &status));
	MUST(found == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	OK(cuGetProcAddress("cuNothing", &found, 13000, 0, &status));
	MUST(found == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	OK(cuGetProcAddress("cuNothing", &found, 13000, 0, NULL));
	MUST(found == NULL);
	OK(cuGetProcAddress("cuGraphAddExternalSemaphoresWaitNode", &found, 13000, 0, &status));
	WANT(((CUresult(*)(void *, void *))found)(NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
	OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
	MUST(strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
	WANT(cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	OK(cuInit(0));
	OK(cuDriverGetVersion(&value));
	MUST(value == 13000);
	OK(cuDeviceGetCount(&value));
	MUST(value == 2);
	char name[64], bus[16];
	OK(cuDeviceGetName(name, sizeof name, 1));
	OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
	MUST(strcmp(name, "Fake GPU") == 0 && strcmp(bus, "0000:03:07.0") == 0);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
	MUST(value == 0); // the device may have it, the library has not
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
	MUST(value == 32);
	WANT(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2), CUDA_ERROR_INVALID_DEVICE);
}

// --- many at once, children, and bad ends ----------------------------------------------------------

static void *worker(void *argument) {
	unsigned seed = (unsigned)(uintptr_t)argument;
	CUcontext context;
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	CUstream stream;
	CUevent event;
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	for (int round = 0; round < 30; round++) {
		seed = seed * 1664525 + 1013904223;
		size_t size = (seed >> 8) % (round % 10 == 0 ? 3u << 20 : 60000) + 1;
		uint8_t *from = noise(size, seed), *to = malloc(size);
		CUdeviceptr memory;
		OK(cuMemAlloc(&memory, size));
		OK(cuMemcpyHtoDAsync(memory, from, size, stream));
		OK(cuEventRecord(event, stream));
		OK(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
		OK(cuMemcpyDtoHAsync(to, memory, size, stream));
		OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
		MUST(memcmp(from, to, size) == 0);
		OK(cuMemFree(memory));
		free(from);
		free(to);
	}
	OK(cuEventDestroy(event));
	OK(cuStreamDestroy(stream));
	OK(cuDevicePrimaryCtxRelease(0));
	return NULL;
}

static void test_threads(void) {
	start();
	pthread_t threads[8];
	for (uintptr_t i = 0; i < 8; i++)
		MUST(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) == 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
}

static _Atomic int submitting;

static void set(void *data) { *(_Atomic int *)data = 1; }

static void *submit_often(void *argument) {
	OK(cuCtxSetCurrent(argument));
	for (int i = 0; i < 3000; i++) {
		_Atomic int returned = 0;
		OK(cuLaunchHostFunc(NULL, set, &returned));
		while (returned == 0)
			sched_yield();
	}
	submitting--;
	return NULL;
}

static _Atomic int let_go, was_called;

static void until_let_go(void *data) {
	(void)data;
	while (let_go == 0)
		sched_yield();
}

static void *submit_and_let_go(void *argument) {
	OK(cuCtxSetCurrent(argument));
	usleep(50 * 1000); // so that the other thread usually is in cuMemFree
	OK(cuLaunchHostFunc(NULL, set, &was_called));
	let_go = 1;
	return NULL;
}

// Functions that may touch managed memory, which takes a message to the worker, have returned when
// memory is freed: the worker frees it when they have, and handles no message of theirs before. A
// function may wait for a thread that submits another one.
static void test_functions(void) {
	start();
	CUcontext context;
	CUdeviceptr managed, memory;
	OK(cuCtxGetCurrent(&context));
	OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	pthread_t threads[2];
	OK(cuMemAlloc(&memory, 4096));
	OK(cuLaunchHostFunc(NULL, until_let_go, NULL));
	MUST(pthread_create(&threads[0], NULL, submit_and_let_go, context) == 0);
	OK(cuMemFree(memory));
	pthread_join(threads[0], NULL);
	OK(cuCtxSynchronize());
	MUST(was_called == 1);
	submitting = 2;
	for (int i = 0; i < 2; i++)
		MUST(pthread_create(&threads[i], NULL, submit_often, context) == 0);
	while (submitting > 0) {
		OK(cuMemAlloc(&memory, 4096));
		OK(cuMemFree(memory));
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	OK(cuCtxSynchronize());
}

static void test_fork(void) {
	start();
	CUdeviceptr memory, other;
	CUcontext context;
	OK(cuMemAlloc(&memory, 4096));
	OK(cuMemsetD8(memory, 1, 4096));
	for (int anew = 0; anew < 2; anew++) {
		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			WANT(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
			WANT(cuMemFree(memory), CUDA_ERROR_NOT_INITIALIZED);
			if (anew) {
				OK(cuInit(0));
				WANT(cuMemAlloc(&other, 4096), CUDA_ERROR_INVALID_CONTEXT);
				start();
				OK(cuMemAlloc(&other, 4096));
				OK(cuMemsetD8(other, 2, 4096));
				OK(cuCtxSynchronize());
			}
			exit(0);
		}
		int status;
		MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	uint8_t bytes[4096];
	OK(cuMemcpyDtoH(bytes, memory, 4096));
	MUST(bytes[0] == 1 && bytes[4095] == 1);
}

static void *forever(void *argument) {
	static _Atomic int calls;
	CUcontext context;
	CUdeviceptr memory;
	uint8_t *data = noise(1 << 20, (unsigned)(uintptr_t)argument);
	cuDevicePrimaryCtxRetain(&context, 0);
	cuCtxSetCurrent(context);
	while (cuMemAlloc(&memory, 1 << 20) == CUDA_SUCCESS && cuMemcpyHtoD(memory, data, 1 << 20) == CUDA_SUCCESS &&
	       cuMemcpyDtoH(data, memory, 1 << 20) == CUDA_SUCCESS && cuLaunchHostFunc(NULL, count_call, &calls) == CUDA_SUCCESS)
		cuMemFree(memory);
	pause();
	return NULL;
}

static void at_exit(void) {
	int count;
	WANT(cuDeviceGetCount(&count), CUDA_ERROR_DEINITIALIZED);
	WANT(cuInit(0), CUDA_ERROR_DEINITIALIZED);
}

// The process ends while other threads are in the middle of calls.
static void test_exit(void) {
	atexit(at_exit); // before cuInit, so that it runs after the library's
	start();
	pthread_t thread;
	for (uintptr_t i = 0; i < 4; i++)
		MUST(pthread_create(&thread, NULL, forever, (void *)i) == 0);
	nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
	exit(0);
}

// Whatever happens to the other end, calls return, and go on failing.
static void test_lost(void) {
	CUcontext context;
	CUdeviceptr memory;
	uint8_t *data = malloc(1 << 21);
	memset(data, 1, 1 << 21);
	CUresult result = cuInit(0);
	if (result == CUDA_SUCCESS)
		result = cuCtxCreate(&context, 0, 0);
	for (int i = 0; i < 10000 && result == CUDA_SUCCESS; i++) {
		result = cuMemAlloc(&memory, 1 << 21);
		if (result == CUDA_SUCCESS)
			result = cuMemcpyHtoDAsync(memory, data, 1 << 21, NULL);
		if (result == CUDA_SUCCESS)
			result = cuMemcpyDtoH(data, memory, 1 << 21);
		if (result == CUDA_SUCCESS)
			result = cuMemFree(memory);
	}
	CUresult next = cuMemAlloc(&memory, 1);
	MUST(next != CUDA_SUCCESS);
	free(data);
	printf("%d\n", result);
}

// --- graphs ---------------------------------------------------------------------------------

static CUDA_MEMSET_NODE_PARAMS words(CUdeviceptr at, unsigned value) { return (CUDA_MEMSET_NODE_PARAMS){.dst = at, .value = value, .elementSize = 4, .width = 16, .height = 1}; }

// Nodes of two devices, launched in streams of each and of the other.
static void graph_of_two_devices(void) {
	CUcontext contexts[2];
	CUdeviceptr at[2];
	CUstream streams[2];
	CUgraph g;
	CUgraphNode first, copy, last;
	CUgraphExec x;
	for (int i = 0; i < 2; i++) {
		OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
		OK(cuCtxSetCurrent(contexts[i]));
		OK(cuMemAlloc(&at[i], i == 0 ? 4096 : 65536)); // the fake's devices have the same addresses
		OK(cuMemAlloc(&at[i], 4096));
		OK(cuStreamCreate(&streams[i], 0));
	}
	OK(cuGraphCreate(&g, 0));
	CUDA_MEMSET_NODE_PARAMS fill = words(at[0], 7);
	CUDA_MEMCPY3D across = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = at[0], .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at[1], .WidthInBytes = 64, .Height = 1, .Depth = 1};
	OK(cuGraphAddMemsetNode(&first, g, NULL, 0, &fill, contexts[0]));
	OK(cuGraphAddMemcpyNode(&copy, g, &first, 1, &across, contexts[0]));
	fill = words(at[1] + 4, 9);
	fill.width = 1;
	OK(cuGraphAddMemsetNode(&last, g, &copy, 1, &fill, contexts[1]));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	for (int round = 0; round < 4; round++) {
		uint32_t got[16] = {0};
		OK(cuMemsetD32(at[0], 0, 16));
		OK(cuMemsetD32(at[1], 0, 16));
		OK(cuGraphLaunch(x, streams[round % 2]));
		OK(cuStreamSynchronize(streams[round % 2]));
		OK(cuMemcpyDtoH(got, at[1], sizeof got));
		MUST(got[0] == 7 && got[1] == 9 && got[2] == 7 && got[15] == 7);
	}
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));
}

// Many threads capture, each for itself, and update what they launch.
static void *capture_often(void *context) {
	CUstream s, s2;
	CUevent e, e2;
	CUdeviceptr at;
	CUgraphExec x = NULL;
	OK(cuCtxSetCurrent(context));
	OK(cuMemAlloc(&at, 4096));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&e2, CU_EVENT_DISABLE_TIMING));
	for (unsigned round = 0; round < 100; round++) {
		CUgraph g;
		CUgraphExecUpdateResultInfo info;
		OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuMemsetD32Async(at, round, 16, s));
		OK(cuEventRecord(e, s));
		OK(cuStreamWaitEvent(s2, e, 0));
		OK(cuMemcpyDtoDAsync(at + 64, at, 64, s2));
		OK(cuMemcpyDtoDAsync(at + 128, at, 64, s));
		OK(cuEventRecord(e2, s2));
		OK(cuStreamWaitEvent(s, e2, 0));
		OK(cuStreamEndCapture(s, &g));
		if (x == NULL)
			OK(cuGraphInstantiateWithFlags(&x, g, 0));
		else
			OK(cuGraphExecUpdate(x, g, &info));
		OK(cuGraphDestroy(g));
		OK(cuGraphLaunch(x, round % 3 == 0 ? s2 : s));
		OK(cuStreamSynchronize(s));
		OK(cuStreamSynchronize(s2));
		uint32_t got[48];
		OK(cuMemcpyDtoH(got, at, sizeof got));
		MUST(got[0] == round && got[16] == round && got[47] == round);
	}
	OK(cuGraphExecDestroy(x));
	OK(cuStreamDestroy(s));
	OK(cuStreamDestroy(s2));
	OK(cuEventDestroy(e));
	OK(cuEventDestroy(e2));
	OK(cuMemFree(at));
	return NULL;
}

// What is refused says so; handles that are none are not followed.
static void graphs_refused(void) {
	CUgraph g;
	CUgraphNode n;
	CUgraphExec x;
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	OK(cuGraphCreate(&g, 0));
	WANT(cuGraphAddNode(&n, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE); // no condition
	p.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	WANT(cuGraphAddNode(&n, g, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE); // no context
	p.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
	WANT(cuGraphAddNode(&n, g, NULL, NULL, 0, &p), CUDA_ERROR_NOT_SUPPORTED);
	WANT(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
	WANT(cuGraphLaunch((CUgraphExec)g, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuGraphDestroy(g));
	WANT(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
	WANT(cuGraphAddEmptyNode(&n, g, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

// A node tells the kernel of a library beside its function, however it was made: CUDA's runtime
// makes nodes with functions, and knows kernels.
static void kernels_behind_nodes(void) {
	CUlibrary library;
	CUkernel kernel;
	CUfunction of_library, of_module;
	CUmodule module;
	CUgraph g, captured;
	CUgraphNode n, copy;
	CUstream s;
	size_t one = 1;
	OK(cuLibraryLoadData(&library, "good", NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "say"));
	OK(cuKernelGetFunction(&of_library, kernel));
	OK(cuModuleLoadData(&module, "good"));
	OK(cuModuleGetFunction(&of_module, module, "say"));
	OK(cuGraphCreate(&g, 0));
	CUDA_KERNEL_NODE_PARAMS p = {.func = of_library, .gridDimX = 7, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1}, got;
	OK(cuGraphAddKernelNode(&n, g, NULL, 0, &p));
	OK(cuGraphKernelNodeGetParams(n, &got));
	MUST(got.func == of_library && got.kern == kernel && got.gridDimX == 7);
	OK(cuGraphKernelNodeSetParams(n, &got));
	CUgraph clone;
	OK(cuGraphClone(&clone, g));
	OK(cuGraphNodeFindInClone(&copy, n, clone));
	OK(cuGraphKernelNodeGetParams(copy, &got));
	MUST(got.func == of_library && got.kern == kernel);
	p.func = NULL;
	p.kern = kernel;
	OK(cuGraphKernelNodeSetParams(n, &p));
	OK(cuGraphKernelNodeGetParams(n, &got));
	MUST(got.func == of_library && got.kern == kernel);
	p.func = of_module;
	p.kern = NULL;
	OK(cuGraphKernelNodeSetParams(n, &p));
	OK(cuGraphKernelNodeGetParams(n, &got));
	MUST(got.func == of_module && got.kern == NULL);
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 2; i++) {
		OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuLaunchKernel(i == 0 ? of_library : (CUfunction)kernel, 7, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
		OK(cuStreamEndCapture(s, &captured));
		OK(cuGraphGetNodes(captured, &n, &one));
		OK(cuGraphKernelNodeGetParams(n, &got));
		MUST(got.func == of_library && got.kern == kernel);
		OK(cuGraphDestroy(captured));
	}
	OK(cuLibraryUnload(library));
	OK(cuGraphKernelNodeGetParams(copy, &got)); // of what has gone
	MUST(got.kern == NULL);
	OK(cuGraphDestroy(clone));
	OK(cuGraphDestroy(g));
	OK(cuStreamDestroy(s));
	OK(cuModuleUnload(module));
}

static void test_graphs(void) {
	CUcontext context = start();
	pthread_t threads[4];
	graphs_refused();
	kernels_behind_nodes();
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, capture_often, context);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	graph_of_two_devices();
	// what was begun and never ended goes with its context
	CUstream s;
	CUdeviceptr at;
	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&s, 0));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&at, 4096, s));
	OK(cuMemsetD8Async(at, 1, 4096, s));
	OK(cuDevicePrimaryCtxReset(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	OK(cuMemAlloc(&at, 16));
}

// --- images and host memory that are not what they say ---------------------------------------

enum { ROOM = 3 * 4096 };

// Memory of ROOM bytes behind which there is none, nor before it.
static uint8_t *lonely(void) {
	uint8_t *all = mmap(NULL, ROOM + 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(all != MAP_FAILED && mprotect(all + 4096, ROOM, PROT_READ | PROT_WRITE) == 0);
	return all + 4096;
}

static uint64_t dice;

static uint64_t roll(uint64_t n) {
	dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
	return dice % n;
}

static volatile uint64_t mutant; // the seed of the one that is being loaded

static void died(int signal) {
	char text[64];
	int n = snprintf(text, sizeof text, "mutant of seed %llu: signal %d\n", (unsigned long long)mutant, signal);
	_exit(write(2, text, (size_t)n) == n ? 1 : 3);
}

struct fat {
	uint32_t magic;
	uint16_t version, header;
	uint64_t size;
};

struct wrapped {
	uint32_t magic, version;
	const void *data, *more;
};

// Writes an image of one of three kinds to the end of the room, and returns where it begins.
static uint8_t *make_image(uint8_t *room, uint64_t kind, size_t body) {
	const struct fat fat = {0xba55ed50, 1, sizeof fat, body};
	uint8_t *at = room + ROOM - body - sizeof fat;
	if (kind == 2) {
		Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64}, .e_machine = 190, .e_shoff = sizeof head, .e_shnum = 2, .e_shentsize = sizeof(Elf64_Shdr)};
		Elf64_Shdr sections[2] = {{0}, {.sh_type = SHT_PROGBITS, .sh_offset = sizeof head + sizeof sections, .sh_size = body}};
		at = room + ROOM - body - sizeof sections - sizeof head;
		memcpy(at, &head, sizeof head);
		memcpy(at + sizeof head, sections, sizeof sections);
		return at;
	}
	memcpy(at, &fat, sizeof fat);
	if (kind == 1) {
		const struct wrapped w = {0x466243b1, 1, at, NULL};
		memcpy(at -= 64, &w, sizeof w);
	}
	return at;
}

// A wild number in an image is an error: nothing is read beyond the image.
static void test_images(void) {
	start();
	CUmodule module;
	uint8_t *room = lonely();
	const struct sigaction action = {.sa_handler = died};
	MUST(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
	for (uint64_t kind = 0; kind < 3; kind++) { // the sound ones
		memset(room, 'x', ROOM);
		OK(cuModuleLoadData(&module, make_image(room, kind, 100)));
		OK(cuModuleUnload(module));
	}
	struct fat fat = {0xba55ed50, 1, sizeof fat, 101};
	memcpy(room + ROOM - sizeof fat - 100, &fat, sizeof fat); // a byte too many
	WANT(cuModuleLoadData(&module, room + ROOM - sizeof fat - 100), CUDA_ERROR_INVALID_IMAGE);
	fat.size = 1ull << 45;
	memcpy(room, &fat, sizeof fat);
	WANT(cuModuleLoadData(&module, room), CUDA_ERROR_INVALID_IMAGE);
	WANT(cuModuleLoadData(&module, room + ROOM), CUDA_ERROR_INVALID_IMAGE); // nothing is there
	memset(room, 'x', ROOM);
	WANT(cuModuleLoadData(&module, room), CUDA_ERROR_INVALID_IMAGE); // a text without an end
	WANT(cuModuleLoadData(&module, room + ROOM - 2), CUDA_ERROR_INVALID_IMAGE);
	room[ROOM - 1] = 0;
	OK(cuModuleLoadData(&module, room));
	OK(cuModuleUnload(module));
	for (uint64_t seed = 1; seed <= 4000; seed++) {
		mutant = seed;
		dice = seed * 0x9e3779b97f4a7c15;
		memset(room, 'x', ROOM);
		uint8_t *image = make_image(room, roll(3), roll(5000));
		size_t most = (size_t)(room + ROOM - image);
		for (uint64_t n = 1 + roll(3); n > 0; n--) {
			uint8_t *at = image + roll(most < 160 ? most : 160);
			uint64_t width = 1ull << roll(4), value = roll(2) ? ~roll(1 << 20) : dice >> roll(64);
			memcpy(at, &value, width < (uint64_t)(room + ROOM - at) ? width : 1);
		}
		CUresult result = cuModuleLoadData(&module, image);
		if (result == CUDA_SUCCESS)
			OK(cuModuleUnload(module));
		else if (result != CUDA_ERROR_INVALID_IMAGE && result != CUDA_ERROR_UNKNOWN)
			fprintf(stderr, "mutant of seed %llu: %d\n", (unsigned long long)seed, result), _exit(1);
	}
}

// Files that have no end, or on which nobody writes, are not read.
static void test_files(void) {
	start();
	CUmodule module;
	CUlibrary library;
	char folder[] = "/tmp/muster-files-XXXXXX", path[64];
	alarm(200); // if it waits
	WANT(cuModuleLoad(&module, "/dev/zero"), CUDA_ERROR_INVALID_IMAGE);
	WANT(cuLibraryLoadFromFile(&library, "/dev/zero", NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_INVALID_IMAGE);
	MUST(mkdtemp(folder) != NULL);
	WANT(cuModuleLoad(&module, folder), CUDA_ERROR_INVALID_IMAGE);
	snprintf(path, sizeof path, "%s/file", folder);
	WANT(cuModuleLoad(&module, path), CUDA_ERROR_FILE_NOT_FOUND);
	MUST(mkfifo(path, 0600) == 0);
	WANT(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
	MUST(unlink(path) == 0);
	FILE *file = fopen(path, "w");
	MUST(file != NULL && ftruncate(fileno(file), (off_t)1 << 40) == 0);
	WANT(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
	MUST(ftruncate(fileno(file), 0) == 0);
	WANT(cuModuleLoad(&module, path), CUDA_ERROR_INVALID_IMAGE);
	MUST(fputs(".version 8.0", file) > 0 && fclose(file) == 0);
	OK(cuModuleLoad(&module, path));
	MUST(unlink(path) == 0 && rmdir(folder) == 0);
}

// Host memory that is not there cannot be registered.
static void test_registered(void) {
	start();
	uint8_t *room = lonely();
	WANT(cuMemHostRegister(room + ROOM, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemHostRegister(room, ROOM + 1, 0), CUDA_ERROR_INVALID_VALUE);
	WANT(cuMemHostRegister(room - 1, ROOM, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(munmap(room + 4096, 4096) == 0);
	WANT(cuMemHostRegister(room, ROOM, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemHostRegister(room, 4096, 0));
	OK(cuMemHostUnregister(room));
	OK(cuMemHostRegister(room + 100, 3996, 0));
}

CUresult cuMulticastCreate(void); // cuda.h has no functions without a body

// What is refused is told with the reason, once.
static void test_refused(void) {
	start();
	MUST(cuMulticastCreate() == CUDA_ERROR_NOT_SUPPORTED);
	MUST(cuMulticastCreate() == CUDA_ERROR_NOT_SUPPORTED);
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"copies", test_copies}, {"rows", test_rows}, {"arrays", test_arrays}, {"addresses", test_addresses}, {"launches", test_launches}, {"libraries", test_libraries}, {"logs", test_logs}, {"notices", test_notices}, {"unread", test_unread},
		{"streams", test_streams}, {"contexts", test_contexts}, {"attributes", test_attributes}, {"limits", test_limits}, {"names", test_names}, {"threads", test_threads}, {"functions", test_functions}, {"fork", test_fork},
		{"exit", test_exit}, {"lost", test_lost}, {"graphs", test_graphs}, {"refused", test_refused},
		{"images", test_images}, {"files", test_files}, {"registered", test_registered},
	};
	for (int k = 1; argc > 2 && k < argc; k++) { // each in a process of its own
		pid_t child = fork();
		if (child == 0) {
			argv[1] = argv[k], argc = 2;
			break;
		}
		int status;
		if (waitpid(child, &status, 0) != child || status != 0) {
			fprintf(stderr, "%s failed\n", argv[k]);
			return 1;
		}
	}
	if (argc > 2)
		return 0;
	for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof *tests; i++)
		if (strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			return 0;
		}
	fprintf(stderr, "which test?\n");
	return 2;
}
