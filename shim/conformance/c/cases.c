// Cases written by hand: what CUDA programs rely on. Each runs in a process of its
// own, since some end with a fault, and prints what was asked and what came of
// it. Lines that begin with ~ hold for one model of GPU only.
//
//   cases [NAME...]   all, or those named
//   cases --list      their names
#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels.h"

#if CUDA_VERSION >= 13000
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
#endif

static const char *name_of(CUresult r) {
	const char *name = NULL;
	if (cuGetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
		return "?";
	return strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
}

static CUresult tell(CUresult r) {
	printf(" = %s\n", name_of(r));
	return r;
}

#define T(call) (printf("%s", #call), fflush(stdout), tell(call))
#define SHOW(format, ...) printf("  " format "\n", __VA_ARGS__)

static uint64_t hash(const void *data, size_t size) {
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < size; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
	return h;
}

static CUcontext context, other;
static CUmodule module;
static CUdeviceptr memory, more;
static _Alignas(4096) uint8_t host[1 << 16], host2[1 << 16];

static void open_context(void) {
	if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
		printf("no context\n");
}

static void open_all(void) {
	open_context();
	if (cuModuleLoadData(&module, kernels) != CUDA_SUCCESS || cuMemAlloc(&memory, 65536) != CUDA_SUCCESS || cuMemAlloc(&more, 65536) != CUDA_SUCCESS)
		printf("no memory or module\n");
	cuMemsetD8(memory, 1, 65536);
	cuMemsetD8(more, 2, 65536);
	cuCtxSynchronize();
	for (size_t i = 0; i < sizeof host; i++)
		host[i] = (uint8_t)(i * 7 + i / 256);
}

static CUfunction function(const char *name) {
	CUfunction f = NULL;
	CUresult r = cuModuleGetFunction(&f, module, name);
	if (r != CUDA_SUCCESS)
		printf("no function %s: %s\n", name, name_of(r));
	return f;
}

static CUcontext now(void) {
	CUcontext c = (CUcontext)1;
	cuCtxGetCurrent(&c);
	return c;
}

static const char *which(CUcontext c) { return c == NULL ? "none" : c == context ? "first" : c == other ? "second" : "unknown"; }

static void on_thread(void *(*run)(void *)) {
	pthread_t t;
	pthread_create(&t, NULL, run, NULL);
	pthread_join(t, NULL);
}

// --- contexts --------------------------------------------------------------------------------

static void *in_thread_contexts(void *nothing) {
	CUcontext c = (CUcontext)1;
	CUdeviceptr at;
	SHOW("a new thread has %s", which(now()));
	T(cuMemAlloc(&at, 4));
	T(cuCtxPushCurrent(context));
	T(cuCtxPushCurrent(other));
	T(cuCtxPushCurrent(context));
	SHOW("%s", which(now()));
	T(cuCtxSetCurrent(other));
	T(cuCtxPopCurrent(&c));
	SHOW("%s, then %s", which(c), which(now()));
	T(cuCtxSetCurrent(NULL));
	SHOW("%s", which(now()));
	T(cuCtxPopCurrent(&c));
	SHOW("%s, then %s", which(c), which(now()));
	T(cuCtxPopCurrent(&c));
	T(cuCtxSetCurrent(NULL));
	T(cuCtxSetCurrent(context));
	return nothing;
}

static void *in_thread_destroyed(void *nothing) {
	CUdevice d = 77;
	CUdeviceptr at;
	CUcontext c = NULL;
	unsigned flags;
	T(cuCtxSetCurrent(other));
	T(cuCtxDestroy(other));
	SHOW("%s", which(now()));
	T(cuCtxGetDevice(&d));
	T(cuCtxGetFlags(&flags));
	T(cuMemAlloc(&at, 4));
	T(cuCtxSynchronize());
	T(cuCtxPopCurrent(&c));
	return nothing;
}

static void *in_thread_stale(void *nothing) {
	CUdevice d = 77;
	CUdeviceptr at;
	CUcontext c = NULL;
	CUstream s;
	size_t n;
	T(cuCtxSetCurrent(other));
	on_thread(in_thread_destroyed);
	SHOW("after another thread destroyed it: %s", which(now()));
	T(cuCtxGetDevice(&d));
	T(cuMemAlloc(&at, 4));
	T(cuStreamCreate(&s, 0));
	T(cuMemGetInfo(&n, &n));
	T(cuCtxSynchronize());
	T(cuStreamSynchronize(NULL));
	T(cuModuleLoadData(&module, kernels));
	T(cuCtxPushCurrent(context));
	T(cuCtxPopCurrent(&c));
	T(cuCtxPopCurrent(&c));
	SHOW("%s", which(now()));
	return nothing;
}

static void contexts(void) {
	unsigned v = 77, flags = 77;
	open_context();
	SHOW("%s", which(now()));
	T(cuCtxCreate_v2(&other, CU_CTX_SCHED_YIELD, 0));
	SHOW("%s", which(now()));
	T(cuCtxGetFlags(&flags));
	SHOW("%#x", flags);
	T(cuCtxGetApiVersion(other, &v));
	SHOW("%u", v);
	T(cuCtxGetApiVersion(NULL, &v));
	on_thread(in_thread_contexts);
	SHOW("%s", which(now()));
	on_thread(in_thread_stale);
	SHOW("%s", which(now()));
}

static void destroy_current(void) {
	CUcontext c;
	open_context();
	T(cuCtxCreate_v2(&other, 0, 0));
	T(cuCtxDestroy(context));
	SHOW("%s", which(now()));
	T(cuCtxDestroy(other));
	SHOW("%s", which(now()));
	T(cuCtxPopCurrent(&c));
}

static void deep_stack(void) {
	open_context();
	CUresult r = CUDA_SUCCESS;
	int n = 0;
	while (n < 60 && (r = cuCtxPushCurrent(context)) == CUDA_SUCCESS)
		n++;
	SHOW("%d times, then %s", n, name_of(r));
}

static void primary(void) {
	unsigned flags = 77;
	int active = 77;
	CUcontext c = NULL, again = NULL;
	CUdeviceptr at = 0;
	CUstream s;
	T(cuInit(0));
	T(cuDevicePrimaryCtxGetState(0, &flags, &active));
	SHOW("%#x %d", flags, active);
	T(cuDevicePrimaryCtxRelease(0));
	T(cuDevicePrimaryCtxReset(0));
	T(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
	T(cuDevicePrimaryCtxGetState(0, &flags, &active));
	SHOW("%#x %d", flags, active);
	T(cuDevicePrimaryCtxRetain(&c, 0));
	SHOW("current %d", now() != NULL);
	T(cuCtxSetCurrent(c));
	T(cuCtxGetFlags(&flags));
	SHOW("%#x", flags);
	T(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN));
	T(cuDevicePrimaryCtxGetState(0, &flags, &active));
	SHOW("%#x %d", flags, active);
	T(cuCtxGetFlags(&flags));
	SHOW("%#x", flags);
	T(cuDevicePrimaryCtxRetain(&again, 0));
	SHOW("same %d", c == again);
	T(cuMemAlloc(&at, 100));
	T(cuDevicePrimaryCtxRelease(0));
	T(cuMemFree(at));
	T(cuMemAlloc(&at, 100));
	T(cuDevicePrimaryCtxRelease(0));
	SHOW("current is %s", now() == c ? "it" : now() == NULL ? "none" : "other");
	T(cuMemAlloc(&at, 100));
	T(cuStreamCreate(&s, 0));
	T(cuCtxSynchronize());
	T(cuDevicePrimaryCtxRelease(0));
	T(cuDevicePrimaryCtxGetState(0, &flags, &active));
	SHOW("%#x %d", flags, active);
	T(cuDevicePrimaryCtxRetain(&again, 0));
	SHOW("same %d", c == again);
	T(cuMemAlloc(&at, 100));
	T(cuDevicePrimaryCtxReset(0));
	T(cuDevicePrimaryCtxGetState(0, &flags, &active));
	SHOW("%#x %d", flags, active);
	T(cuMemAlloc(&at, 100));
	T(cuDevicePrimaryCtxRelease(0));
	T(cuCtxDestroy(c));
}

static void nothing_yet(void) {
	int n = 77;
	CUdevice d;
	CUcontext c;
	CUdeviceptr at;
	size_t size;
	CUlibrary l;
	const char *text;
	void *f;
	CUdriverProcAddressQueryResult status;
	T(cuDriverGetVersion(&n));
	T(cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
	T(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
	T(cuGetProcAddress("cuMemAlloc", &f, 12000, 0, &status));
	T(cuDeviceGetCount(&n));
	T(cuDeviceGet(&d, 0));
	T(cuDeviceGetCount(NULL));
	T(cuCtxGetCurrent(&c));
	T(cuCtxSetCurrent(NULL));
	T(cuCtxPopCurrent(&c));
	T(cuMemAlloc(&at, 4));
	T(cuMemFree(0));
	T(cuMemGetInfo(&size, &size));
	T(cuDevicePrimaryCtxRetain(&c, 0));
	T(cuLibraryLoadData(&l, kernels, NULL, NULL, 0, NULL, NULL, 0));
	T(cuPointerGetAttribute(&n, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1234));
	T(cuStreamSynchronize(NULL));
	T(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuProfilerStart());
	T(cuInit(1));
	T(cuInit(0));
	T(cuInit(0));
}

static void no_context(void) {
	CUdeviceptr at = 0;
	size_t size;
	CUstream s;
	CUevent e;
	void *p;
	unsigned u;
	CUdevice d;
	T(cuInit(0));
	T(cuMemAlloc(&at, 4));
	T(cuMemAlloc(NULL, 0));
	T(cuMemFree(0));
	T(cuMemFree(0x1234));
	T(cuMemGetInfo(&size, &size));
	T(cuMemGetAddressRange(&at, &size, 0x1234));
	T(cuMemAllocHost(&p, 100));
	T(cuMemFreeHost(host));
	T(cuMemFreeHost(NULL));
	T(cuMemHostRegister(host, 4096, 0));
	T(cuMemHostUnregister(host));
	T(cuMemHostGetFlags(&u, host));
	T(cuMemcpyHtoD(0x1234, host, 4));
	T(cuMemcpy((CUdeviceptr)(uintptr_t)host2, (CUdeviceptr)(uintptr_t)host, 4));
	T(cuMemcpyHtoD(0x1234, host, 0));
	T(cuMemsetD8(0x1234, 0, 4));
	T(cuStreamCreate(&s, 0));
	T(cuStreamSynchronize(NULL));
	T(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	T(cuStreamQuery(NULL));
	T(cuEventCreate(&e, 0));
	T(cuCtxGetDevice(&d));
	T(cuCtxGetFlags(&u));
	T(cuCtxSynchronize());
	T(cuCtxGetLimit(&size, CU_LIMIT_STACK_SIZE));
	T(cuCtxGetStreamPriorityRange(NULL, NULL));
	T(cuModuleLoadData(&module, kernels));
	T(cuModuleLoadData(&module, NULL));
	T(cuModuleUnload(NULL));
	T(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuPointerGetAttribute(&u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host));
	T(cuLaunchHostFunc(NULL, NULL, NULL));
}

// --- addresses ---------------------------------------------------------------------------------

static void all_attributes(const char *what, CUdeviceptr at) {
	// Without those that say what a virtual device cannot do (tokens, sharing,
	// access by other devices) and the numbers of buffers.
	static const int some[] = {0, 1, 2, 3, 4, 8, 9, 11, 12, 13, 99};
	printf("%s\n", what);
	for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
		if (some[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && (strstr(what, "pinned") != NULL || strcmp(what, "registered") == 0))
			continue; // kernels do not reach it
		uint64_t v = 0x7777777777777777;
		CUresult r = cuPointerGetAttribute(&v, (CUpointer_attribute)some[i], at);
		printf("  %d %s", some[i], name_of(r));
		if (v == 0x7777777777777777)
			printf(" kept\n");
		else if (some[i] == 1)
			printf(" %s\n", which((CUcontext)(uintptr_t)v));
		else if (some[i] == 3 || some[i] == 4 || some[i] == 11)
			printf(" %s%lld\n", v == 0 ? "zero " : "", v == 0 ? 0LL : (long long)(v - at));
		else if (some[i] == 12)
			printf(" %lld\n", (long long)v);
		else
			printf(" %d\n", (int)(uint32_t)v);
	}
}

static void pointers(void) {
	void *pinned = NULL;
	size_t size = 77;
	CUdeviceptr base = 77, global = 0;
	open_all();
	T(cuMemHostAlloc(&pinned, 10000, CU_MEMHOSTALLOC_PORTABLE));
	T(cuMemHostRegister(host, 8192, 0));
	T(cuModuleGetGlobal(&global, &size, module, "counter"));
	all_attributes("device", memory);
	all_attributes("inside", memory + 100);
	all_attributes("pinned", (uintptr_t)pinned);
	all_attributes("inside pinned", (uintptr_t)pinned + 9999);
	all_attributes("registered", (uintptr_t)host + 5);
	all_attributes("pageable", (uintptr_t)host2);
	all_attributes("nothing", 0);
	all_attributes("nowhere", 0x1234);
	T(cuMemGetAddressRange(&base, &size, memory + 65535));
	SHOW("%d %zu", base == memory, size);
	T(cuMemGetAddressRange(&base, NULL, memory));
	T(cuMemGetAddressRange(NULL, &size, memory));
	T(cuMemGetAddressRange(NULL, NULL, memory));
	T(cuMemGetAddressRange(&base, &size, (uintptr_t)pinned + 1));
	SHOW("%d %zu", base == (uintptr_t)pinned, size);
	T(cuMemGetAddressRange(&base, &size, (uintptr_t)host2));
	T(cuMemGetAddressRange(&base, &size, 0));
	T(cuMemGetAddressRange(&base, &size, global + 1));
	SHOW("%d %zu", base == global, size);
	T(cuMemFree(global));
	T(cuMemFree((uintptr_t)pinned));
	T(cuMemFreeHost((void *)(uintptr_t)memory));
	T(cuMemFreeHost(host));
	T(cuMemHostUnregister(pinned));
	T(cuMemHostRegister(pinned, 10000, 0));
	T(cuMemHostRegister(host, 8192, 0));
	T(cuMemHostRegister(host + 4096, 8192, 0));
	T(cuMemHostRegister(host + 100, 10, 0));
	T(cuMemHostUnregister(host + 1));
	T(cuMemHostUnregister(host));
	T(cuMemHostUnregister(host));
	T(cuMemHostRegister(host + 100, 10, 0));
	T(cuMemHostUnregister(host + 100));
	T(cuMemFreeHost(pinned));
	T(cuMemFreeHost(pinned));
	T(cuMemFree(memory));
	T(cuMemFree(memory));
	all_attributes("freed", memory);
}

// --- copies ------------------------------------------------------------------------------------

static void unified(void) {
	void *pinned = NULL;
	enum { SIZE = 20000 };
	open_all();
	T(cuMemHostAlloc(&pinned, SIZE, 0));
	T(cuMemHostRegister(host2, sizeof host2, 0));
	memset(pinned, 9, SIZE);
	static uint8_t pageable[SIZE], check[SIZE];
	struct { const char *name; CUdeviceptr at; } sides[] = {{"device", memory}, {"pinned", (uintptr_t)pinned}, {"registered", (uintptr_t)host2}, {"pageable", (uintptr_t)pageable}, {"device 2", more}};
	for (unsigned round = 0; round < 50; round++) {
		unsigned from = round % 5, to = round / 5 % 5;
		bool async = round >= 25;
		if (from == to)
			continue;
		cuMemcpyHtoD(sides[from].at, host + round, SIZE);
		memset(check, (int)round, SIZE);
		if (cuMemcpy(sides[from].at, (uintptr_t)check, SIZE) != CUDA_SUCCESS)
			printf("cannot fill %s\n", sides[from].name);
		CUresult r = async ? cuMemcpyAsync(sides[to].at + 1, sides[from].at, SIZE - 1, CU_STREAM_PER_THREAD) : cuMemcpy(sides[to].at + 1, sides[from].at, SIZE - 1);
		cuStreamSynchronize(CU_STREAM_PER_THREAD);
		memset(check, 255, SIZE);
		cuMemcpy((uintptr_t)check, sides[to].at + 1, SIZE - 1);
		printf("%s to %s%s = %s %016llx\n", sides[from].name, sides[to].name, async ? " async" : "", name_of(r), (unsigned long long)hash(check, SIZE - 1));
	}
	T(cuMemcpyHtoD((uintptr_t)pinned, host, 100));
	T(cuMemcpyHtoD((uintptr_t)pageable, host, 100));
	T(cuMemcpyDtoH(check, (uintptr_t)pinned, 100));
	T(cuMemcpyDtoH(check, (uintptr_t)pageable, 100));
	T(cuMemcpyHtoD(memory, (void *)(uintptr_t)more, 100));
	T(cuMemcpyDtoH((void *)(uintptr_t)more, memory, 100));
	T(cuMemcpyDtoD(memory, (uintptr_t)pinned, 100));
	T(cuMemcpyDtoD(memory, (uintptr_t)pageable, 100));
	T(cuMemcpyDtoD(memory, memory, 100));
	T(cuMemcpyDtoD(memory, memory + 50, 100));
	T(cuMemcpyDtoD(memory, 0x1234, 100));
	T(cuMemcpy(0, memory, 4));
	T(cuMemcpy(memory, 0, 4));
	T(cuMemcpy(memory, more, 0));
	T(cuMemcpy(0, 0, 0));
	T(cuMemcpyHtoD(memory + 65530, host, 7));
	T(cuMemcpyHtoD(memory + 65536, host, 0));
	T(cuMemcpyDtoH(host, memory + 65530, 7));
	T(cuMemsetD8(memory + 65530, 0, 7));
	T(cuMemsetD8((uintptr_t)pinned, 3, 100));
	SHOW("%d", ((uint8_t *)pinned)[99]);
	T(cuMemsetD8((uintptr_t)pageable, 3, 100));
	T(cuCtxSynchronize());
}

static void rectangles(void) {
	void *pinned = NULL;
	open_all();
	cuMemHostAlloc(&pinned, 65536, 0);
	memcpy(pinned, host, 65536);
	CUdeviceptr sides[] = {memory, (uintptr_t)pinned, (uintptr_t)host2, more};
	static const char *const names[] = {"device", "pinned", "pageable", "device 2"};
	static uint8_t check[8192];
	for (int from = 0; from < 4; from++)
		for (int to = 0; to < 4; to++)
			for (int type = 0; type < 2; type++) {
				if (from == to)
					continue;
				bool from_device = from % 3 == 0, to_device = to % 3 == 0;
				CUDA_MEMCPY2D c = {.srcXInBytes = 3, .srcY = 1, .srcPitch = 200, .dstXInBytes = 5, .dstY = 2, .dstPitch = 300, .WidthInBytes = 101, .Height = 9};
				c.srcMemoryType = type == 1 ? CU_MEMORYTYPE_UNIFIED : from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
				c.dstMemoryType = type == 1 ? CU_MEMORYTYPE_UNIFIED : to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
				c.srcDevice = sides[from], c.srcHost = (void *)(uintptr_t)sides[from];
				c.dstDevice = sides[to], c.dstHost = (void *)(uintptr_t)sides[to];
				memset(check, from + 1, sizeof check);
				cuMemcpy(sides[to], (uintptr_t)check, sizeof check);
				cuMemcpy(sides[from], (uintptr_t)host, sizeof check);
				CUresult r = cuMemcpy2D(&c);
				cuMemcpy((uintptr_t)check, sides[to], sizeof check);
				printf("%s to %s%s = %s %016llx\n", names[from], names[to], type == 1 ? " unified" : "", name_of(r), (unsigned long long)hash(check, sizeof check));
			}
	CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 0, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .dstPitch = 0, .WidthInBytes = 16, .Height = 4};
	T(cuMemcpy2D(&c));
	c.srcPitch = 8;
	T(cuMemcpy2D(&c));
	c.srcPitch = 16, c.dstPitch = 8;
	T(cuMemcpy2D(&c));
	c.dstPitch = 16, c.Height = 0;
	T(cuMemcpy2D(&c));
	c.Height = 4, c.WidthInBytes = 0;
	T(cuMemcpy2D(&c));
	c.WidthInBytes = 16, c.dstDevice = 0;
	T(cuMemcpy2D(&c));
	c.dstDevice = memory, c.srcHost = NULL;
	T(cuMemcpy2D(&c));
	c.srcHost = host, c.dstXInBytes = 1;
	T(cuMemcpy2D(&c));
	c.dstXInBytes = 0, c.dstPitch = (size_t)1 << 40;
	T(cuMemcpy2D(&c));
	T(cuMemcpy2DUnaligned(&c));
	c.dstPitch = 512, c.Height = 10000;
	T(cuMemcpy2D(&c));
	c.Height = 1, c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	T(cuMemcpy2D(&c));
}

static void fills(void) {
	static uint8_t check[65536];
	open_all();
	T(cuMemsetD2D8(memory, 100, 0xab, 33, 7));
	T(cuMemsetD2D16(memory + 1000, 100, 0xabcd, 33, 7));
	T(cuMemsetD2D32(memory + 2000, 100, 0xabcdef01, 20, 7));
	T(cuMemsetD2D8Async(memory + 3000, 64, 0xab, 64, 7, CU_STREAM_PER_THREAD));
	T(cuMemsetD2D8(memory + 4000, 10, 0xab, 20, 1));
	T(cuMemsetD2D8(memory + 4000, 10, 0xab, 20, 3));
	T(cuMemsetD2D8(memory + 4000, 0, 0xab, 20, 1));
	T(cuMemsetD2D8(memory + 4000, 0, 0xab, 20, 3));
	T(cuMemsetD2D16(memory + 4000, 33, 0xab, 8, 3));
	T(cuMemsetD2D16(memory + 4000, 33, 0xab, 8, 1));
	T(cuMemsetD2D32(memory + 4000, 34, 0xab, 8, 3));
	T(cuMemsetD2D32(memory + 4002, 36, 0xab, 8, 3));
	T(cuMemsetD16(memory + 4001, 0xab, 8));
	T(cuMemsetD32(memory + 4002, 0xab, 8));
	T(cuMemsetD2D8(memory, 1024, 1, 1024, 65));
	T(cuMemsetD2D8(memory, 1024, 1, 1025, 64));
	T(cuMemsetD2D8(memory, 8, 1, 0, 64));
	T(cuMemsetD2D8(memory, 8, 1, 4, 0));
	T(cuMemsetD8(0, 1, 1));
	T(cuMemsetD8(0, 1, 0));
	T(cuCtxSynchronize());
	T(cuMemcpyDtoH(check, memory, sizeof check));
	SHOW("%016llx", (unsigned long long)hash(check, sizeof check));
}

static void pitches(void) {
	open_context();
	static const size_t widths[] = {1, 4, 31, 32, 33, 255, 256, 257, 511, 512, 513, 1000, 1024, 1025, 4096, 5000, 100000};
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
		for (unsigned element = 4; element <= 16; element *= 2) {
			CUdeviceptr at;
			size_t pitch = 77;
			CUresult r = cuMemAllocPitch(&at, &pitch, widths[i], 3, element);
			printf("%zu %u = %s %zu\n", widths[i], element, name_of(r), pitch);
		}
	CUdeviceptr at;
	size_t pitch = 77, size = 0;
	T(cuMemAllocPitch(&at, &pitch, 4, 4, 2));
	T(cuMemAllocPitch(&at, &pitch, 4, 4, 0));
	T(cuMemAllocPitch(&at, &pitch, 0, 4, 4));
	T(cuMemAllocPitch(&at, &pitch, 4, 0, 4));
	T(cuMemAllocPitch(&at, &pitch, (size_t)1 << 40, 4, 4));
	T(cuMemAllocPitch(&at, &pitch, 4, (size_t)1 << 40, 4));
	T(cuMemAllocPitch(&at, &pitch, 100, 5, 4));
	T(cuMemGetAddressRange(NULL, &size, at));
	SHOW("%zu", size);
	T(cuMemAlloc(&at, (size_t)1 << 44));
	T(cuMemAlloc(&at, (size_t)-1));
	T(cuMemHostAlloc((void **)&at, (size_t)1 << 60, 0));
	T(cuMemHostAlloc((void **)&at, 0, 0));
	T(cuMemAlloc(&at, 100));
	T(cuMemGetAddressRange(NULL, &size, at));
	SHOW("%zu", size);
}

// --- modules ---------------------------------------------------------------------------------

static const char *const wrong = ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry f()\n{\n\tnonsense.u32 %r;\n}\n";

static void jit(void) {
	char info[4096] = "x", error[4096] = "x";
	CUjit_option names[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE, CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_TARGET_FROM_CUCONTEXT, CU_JIT_GENERATE_LINE_INFO};
	void *values[] = {info, (void *)(uintptr_t)sizeof info, error, (void *)(uintptr_t)sizeof error, (void *)(uintptr_t)1, (void *)(uintptr_t)64, (void *)(uintptr_t)3, NULL, (void *)(uintptr_t)1};
	CUmodule m = NULL;
	open_context();
	T(cuModuleLoadDataEx(&m, kernels, 9, names, values));
	SHOW("error log %zu, starts with %d", (size_t)(uintptr_t)values[3], error[0]);
	values[1] = values[3] = (void *)(uintptr_t)sizeof info;
	strcpy(error, "x");
	T(cuModuleLoadDataEx(&m, wrong, 9, names, values));
	SHOW("error log %d, has a line %d", (size_t)(uintptr_t)values[3] > 0 && strlen(error) > 0, strstr(error, "error") != NULL || strstr(error, "fatal") != NULL);
	values[3] = (void *)(uintptr_t)10;
	strcpy(error, "xxxxxxxxxxxxxxxxxxxxxxx");
	T(cuModuleLoadDataEx(&m, wrong, 4, names, values));
	SHOW("length %zu, of size %zu", strlen(error), (size_t)(uintptr_t)values[3]);
	T(cuModuleLoadDataEx(&m, kernels, 0, NULL, NULL));
	T(cuModuleLoadData(&m, ""));
	T(cuModuleLoadData(&m, "nonsense"));
	T(cuModuleLoadData(&m, ".version 99.9\n.target sm_70\n.address_size 64\n"));
	T(cuModuleLoadData(&m, ".version 6.4\n.target sm_70\n.address_size 64\n"));
	T(cuModuleLoad(&m, "/nonexistent"));
	T(cuModuleLoad(&m, "/dev/null"));
	T(cuModuleLoadFatBinary(&m, kernels));
	unsigned options[] = {99};
	T(cuModuleLoadDataEx(&m, kernels, 1, (CUjit_option *)options, values));
}

static void link_cases(void) {
	CUlinkState s = NULL, t = NULL;
	void *image = NULL;
	size_t size = 0;
	CUmodule m = NULL;
	CUfunction f = NULL;
	open_all();
	T(cuLinkCreate(0, NULL, NULL, &s));
	T(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)kernels, sizeof kernels, "k", 0, NULL, NULL));
	T(cuLinkComplete(s, &image, &size));
	SHOW("%d %d", image != NULL, size > 0);
	T(cuModuleLoadData(&m, image));
	T(cuLinkDestroy(s));
	T(cuModuleGetFunction(&f, m, "bump"));
	void *params[] = {&memory};
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	uint32_t v = 0;
	T(cuMemcpyDtoH(&v, memory, 4));
	SHOW("%u", v);
	T(cuLinkCreate(0, NULL, NULL, NULL));
	T(cuLinkCreate(0, NULL, NULL, &t));
	T(cuLinkAddData(t, CU_JIT_INPUT_PTX, NULL, 10, "k", 0, NULL, NULL));
	T(cuLinkAddFile(t, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL));
	T(cuLinkDestroy(t));
}

static void functions(void) {
	static const char *const names[] = {"nothing", "fill", "mixed", "rotate", "limited", "bump"};
	open_all();
	for (int k = 0; k < 6; k++) {
		CUfunction f = function(names[k]);
		for (int a = -1; a <= 17; a++) {
			int v = 77;
			if (a == CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES || a == CU_FUNC_ATTRIBUTE_NUM_REGS || a == CU_FUNC_ATTRIBUTE_BINARY_VERSION || a == 16)
				continue;
			CUresult r = cuFuncGetAttribute(&v, (CUfunction_attribute)a, f);
			printf("%s %d = %s %d\n", names[k], a, name_of(r), v);
		}
		int v = 77;
		cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f);
		printf("~ %s binary version %d\n", names[k], v);
		cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
		printf("~ %s registers %d\n", names[k], v);
		for (size_t i = 0; i < 6; i++) {
			size_t offset = 77, size = 77;
			CUresult r = cuFuncGetParamInfo(f, i, &offset, &size);
			printf("%s parameter %zu = %s %zu %zu\n", names[k], i, name_of(r), offset, size);
		}
	}
	CUfunction f = function("rotate");
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 49152));
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 49153));
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1));
}

static size_t shared_for(int threads) { return (size_t)threads * 8; }

static void occupancies(void) {
	static const char *const names[] = {"nothing", "rotate", "limited"};
	open_all();
	for (int k = 0; k < 3; k++) {
		CUfunction f = function(names[k]);
		static const int threads[] = {1, 32, 33, 64, 65, 128, 512, 1024, 1025};
		static const size_t shareds[] = {0, 1, 1024, 16384, 49152, 60000, 1 << 20};
		for (int i = 0; i < 9; i++)
			for (int j = 0; j < 7; j++) {
				int blocks = 77;
				CUresult r = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads[i], shareds[j]);
				if (k < 2 || threads[i] <= 64) // of what cannot be launched there are none, whatever CUDA says
					printf("~ %s %d %zu = %s %d\n", names[k], threads[i], shareds[j], name_of(r), blocks);
			}
		int grid = 77, block = 77;
		CUresult r = cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 0);
		printf("~ %s potential = %s %d %d\n", names[k], name_of(r), grid, block);
		r = cuOccupancyMaxPotentialBlockSize(&grid, &block, f, shared_for, 0, 300);
		printf("~ %s potential with memory = %s %d %d\n", names[k], name_of(r), grid, block);
		for (int blocks = 0; blocks < 5; blocks++) {
			size_t most = 77;
			r = cuOccupancyAvailableDynamicSMemPerBlock(&most, f, blocks, 128);
			printf("~ %s %d blocks = %s %zu\n", names[k], blocks, name_of(r), most);
		}
	}
	int v = 77;
	CUfunction f = function("fill");
	T(cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, f, 0, 0));
	T(cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, f, -1, 0));
	T(cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, f, 32, 0));
	T(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&v, f, 32, 0, 2));
	T(cuOccupancyMaxPotentialBlockSize(NULL, &v, f, NULL, 0, 0));
	T(cuOccupancyMaxPotentialBlockSize(&v, NULL, f, NULL, 0, 0));
	T(cuOccupancyMaxPotentialBlockSize(&v, &v, f, NULL, 0, -1));
}

static void libraries(void) {
	CUlibrary l = NULL, back = NULL;
	CUkernel k = NULL, all[8];
	CUfunction f = NULL;
	CUmodule m = NULL;
	CUdeviceptr at = 0;
	size_t size = 0, offset = 0;
	unsigned n = 0;
	int v = 77;
	const char *name = "";
	T(cuInit(0));
	T(cuLibraryLoadData(&l, kernels, NULL, NULL, 0, NULL, NULL, 0));
	T(cuLibraryGetKernel(&k, l, "fill"));
	T(cuLibraryGetKernelCount(&n, l));
	SHOW("%u", n);
	T(cuLibraryEnumerateKernels(all, 8, l));
	T(cuKernelGetName(&name, k));
	SHOW("%s", name);
	T(cuKernelGetParamInfo(k, 1, &offset, &size));
	SHOW("%zu %zu", offset, size);
	T(cuKernelGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k, 0));
	SHOW("%d", v);
	T(cuKernelGetLibrary(&back, k));
	SHOW("%d", back == l);
	T(cuKernelGetFunction(&f, k));
	T(cuLibraryGetModule(&m, l));
	T(cuLibraryGetGlobal(&at, &size, l, "counter"));
	T(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuCtxCreate_v2(&context, 0, 0));
	T(cuLibraryGetModule(&m, l));
	T(cuModuleUnload(m));
	T(cuKernelGetFunction(&f, k));
	T(cuLibraryGetGlobal(&at, &size, l, "counter"));
	SHOW("%zu", size);
	T(cuLibraryGetGlobal(&at, &size, l, "factors"));
	T(cuLibraryGetGlobal(&at, &size, l, "absent"));
	T(cuLibraryGetKernel(&k, l, "absent"));
	T(cuLibraryGetManaged(&at, &size, l, "counter"));
	T(cuMemAlloc(&memory, 4096));
	T(cuLibraryGetKernel(&k, l, "bump"));
	void *params[] = {&memory};
	T(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	T(cuKernelGetFunction(&f, k));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	T(cuMemcpyDtoH(&v, memory, 4));
	SHOW("%d", v);
	T(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, k, 0));
	T(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
	SHOW("%d", v);
	T(cuLibraryUnload(l));
	T(cuLibraryLoadData(&l, "nonsense", NULL, NULL, 0, NULL, NULL, 0));
	T(cuLibraryLoadFromFile(&l, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
}

// --- launches ----------------------------------------------------------------------------------

static void launches(void) {
	uint32_t v[8];
	open_all();
	CUfunction nothing = function("nothing"), mixed = function("mixed"), fill = function("fill"), rotate = function("rotate"), limited = function("limited"), bump = function("bump");
	uint8_t a = 200;
	uint16_t b = 60000;
	uint32_t s[3] = {1, 2, 3}, count = 4, value = 5;
	float real = 1.5f;
	void *params[] = {&memory, &a, &b, s, &real}, *one[] = {&memory}, *three[] = {&memory, &count, &value};
	T(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	T(cuMemcpyDtoH(v, memory, sizeof v));
	SHOW("%u %u %u %u %#x", v[0], v[1], v[2], v[3], v[4]);
	uint8_t buffer[64] = {0};
	memcpy(buffer, &memory, 8);
	memcpy(buffer + 8, &count, 4);
	memcpy(buffer + 12, &value, 4);
	size_t size = 16;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	void *swapped[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END};
	void *no_size[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END};
	void *empty[] = {CU_LAUNCH_PARAM_END};
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, swapped));
	T(cuMemcpyDtoH(v, memory, sizeof v));
	SHOW("%u %u %u %u %u", v[0], v[1], v[2], v[3], v[4]);
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, no_size));
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, empty));
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, three, extra));
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, three, empty));
	size = 12;
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	size = 32;
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	size = 5000;
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	T(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, one, NULL));
	size = 0;
	T(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	size = 8;
	T(cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
	T(cuLaunchKernel(nothing, 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 512, 4, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 65535, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 65536, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 0x80000000u, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 49152, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 1 << 30, NULL, NULL, NULL));
	T(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 65536, NULL, NULL, NULL));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 65537, NULL, NULL, NULL));
	T(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100));
	T(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 200, NULL, NULL, NULL));
	T(cuLaunchKernel(limited, 1, 1, 1, 64, 1, 1, 0, NULL, one, NULL));
	T(cuLaunchKernel(limited, 1, 1, 1, 65, 1, 1, 0, NULL, one, NULL));
	T(cuLaunchKernel(limited, 1, 1, 1, 32, 2, 1, 0, NULL, one, NULL));
	T(cuLaunchKernel(limited, 1, 1, 1, 1, 1, 1, 48128, NULL, one, NULL));
	T(cuLaunchKernel(limited, 1, 1, 1, 1, 1, 1, 48129, NULL, one, NULL));
	T(cuLaunchKernel(rotate, 1, 1, 1, 4, 1, 1, 16, NULL, one, NULL));
	T(cuMemcpyDtoH(v, memory, sizeof v));
	SHOW("%u %u %u %u %u", v[0], v[1], v[2], v[3], v[4]);
	T(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, NULL, one, NULL));
	T(cuMemcpyDtoH(v, memory, sizeof v));
	SHOW("%u", v[0]);
	T(cuLaunchCooperativeKernel(nothing, 1, 1, 1, 32, 1, 1, 0, NULL, NULL));
	T(cuLaunchCooperativeKernel(nothing, 1000000, 1, 1, 32, 1, 1, 0, NULL, NULL));
	CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	T(cuLaunchKernelEx(&config, bump, one, NULL));
	T(cuLaunchKernelEx(&config, NULL, one, NULL));
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};
	attribute.value.cooperative = 1;
	config.attrs = &attribute;
	config.numAttrs = 1;
	T(cuLaunchKernelEx(&config, bump, one, NULL));
	attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	attribute.value.priority = -1;
	T(cuLaunchKernelEx(&config, bump, one, NULL));
	attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	attribute.value.clusterDim.x = attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
	T(cuLaunchKernelEx(&config, bump, one, NULL));
	attribute.id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	T(cuLaunchKernelEx(&config, bump, one, NULL));
	config.numAttrs = 0;
	config.hStream = CU_STREAM_PER_THREAD;
	T(cuLaunchKernelEx(&config, bump, one, NULL));
	T(cuCtxSynchronize());
	T(cuMemcpyDtoH(v, memory, sizeof v));
	SHOW("%u", v[0]);
}

// --- streams, events and functions of the program ----------------------------------------------------

static sem_t gate;
static char heard[64];
static int heard_count;
static CUresult heard_status, heard_call, heard_query;
static CUstream heard_stream;

static void hear(void *letter) { heard[heard_count++] = (char)(uintptr_t)letter; }

static void hear_stream(CUstream s, CUresult status, void *letter) {
	heard[heard_count++] = (char)(uintptr_t)letter;
	heard_status = status;
	heard_stream = s;
}

static void wait_gate(void *nothing) {
	(void)nothing;
	sem_wait(&gate);
}

static void call_inside(void *nothing) {
	CUdeviceptr at;
	(void)nothing;
	heard_call = cuMemAlloc(&at, 4);
	heard_query = cuStreamQuery(NULL);
}

static void callbacks(void) {
	CUstream s = NULL;
	open_all();
	T(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	T(cuLaunchHostFunc(s, wait_gate, NULL));
	for (int i = 0; i < 8; i++) {
		void *letter = (void *)(uintptr_t)('a' + i);
		if (i % 2 == 0)
			cuStreamAddCallback(s, hear_stream, letter, 0);
		else
			cuLaunchHostFunc(s, hear, letter);
	}
	SHOW("%d heard", heard_count);
	sem_post(&gate);
	T(cuStreamSynchronize(s));
	SHOW("%s, status %s, its stream %d", heard, name_of(heard_status), heard_stream == s);
	T(cuStreamAddCallback(NULL, hear_stream, (void *)'z', 0));
	T(cuStreamSynchronize(NULL));
	SHOW("%s, default stream %d", heard, heard_stream == NULL);
	T(cuStreamAddCallback(NULL, hear_stream, NULL, 1));
	T(cuStreamAddCallback(NULL, NULL, NULL, 0));
	T(cuLaunchHostFunc(NULL, NULL, NULL));
}

// CUDA forbids calls in functions of the program.
static void call_in_callback(void) {
	open_all();
	T(cuLaunchHostFunc(NULL, call_inside, NULL));
	T(cuStreamSynchronize(NULL));
	SHOW("inside %s, %s", name_of(heard_call), name_of(heard_query));
}

static void callback_after_fault(void) {
	open_all();
	CUdeviceptr bad = 0x7000000000ull;
	void *params[] = {&bad};
	T(cuLaunchKernel(function("bump"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CUresult r = cuStreamAddCallback(NULL, hear_stream, (void *)'a', 0);
	printf("added %d\n", r == CUDA_SUCCESS || r == CUDA_ERROR_ILLEGAL_ADDRESS);
	T(cuCtxSynchronize());
}

static void events(void) {
	CUevent e, f, untimed;
	CUstream s, t;
	float ms = -1;
	open_all();
	T(cuEventCreate(&e, CU_EVENT_DEFAULT));
	T(cuEventCreate(&f, CU_EVENT_BLOCKING_SYNC));
	T(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	T(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	T(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	T(cuEventQuery(e));
	T(cuEventSynchronize(e));
	T(cuStreamWaitEvent(s, e, 0));
	T(cuEventElapsedTime(&ms, e, f));
	T(cuEventRecord(e, s));
	T(cuEventElapsedTime(&ms, e, f));
	T(cuEventRecord(untimed, s));
	T(cuEventElapsedTime(&ms, e, untimed));
	T(cuEventElapsedTime(&ms, untimed, untimed));
	T(cuLaunchHostFunc(s, wait_gate, NULL));
	T(cuEventRecord(f, s));
	T(cuStreamWaitEvent(t, f, 0));
	T(cuEventQuery(f));
	T(cuStreamQuery(s));
	T(cuStreamQuery(t));
	T(cuEventElapsedTime(&ms, e, f));
	T(cuEventQuery(e));
	sem_post(&gate);
	T(cuStreamSynchronize(t));
	T(cuEventQuery(f));
	T(cuStreamQuery(s));
	T(cuEventElapsedTime(&ms, e, f));
	SHOW("%d", ms >= 0);
	T(cuEventElapsedTime(&ms, f, e));
	SHOW("%d", ms <= 0);
	T(cuEventRecord(e, NULL));
	T(cuEventRecord(e, CU_STREAM_PER_THREAD));
	T(cuEventSynchronize(e));
	T(cuEventDestroy(e));
	T(cuEventCreate(&e, CU_EVENT_INTERPROCESS));
	T(cuEventCreate(&e, 16));
	T(cuLaunchHostFunc(s, wait_gate, NULL));
	T(cuEventRecord(f, s));
	T(cuEventDestroy(f));
	T(cuStreamDestroy(s));
	sem_post(&gate);
	T(cuCtxSynchronize());
}

static void across_contexts(void) {
	CUevent e;
	CUstream s, t;
	CUdeviceptr theirs = 0;
	CUfunction f = NULL;
	CUmodule m = NULL;
	CUcontext c;
	uint32_t v = 0;
	open_all();
	f = function("bump");
	void *params[] = {&memory};
	T(cuEventCreate(&e, 0));
	T(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	T(cuCtxCreate_v2(&other, 0, 0));
	T(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	T(cuMemAlloc(&theirs, 4096));
	T(cuModuleLoadData(&m, kernels));
	T(cuEventRecord(e, s));
	T(cuEventRecord(e, t));
	T(cuEventRecord(e, NULL));
	T(cuLaunchHostFunc(s, wait_gate, NULL));
	T(cuEventRecord(e, s));
	T(cuStreamWaitEvent(t, e, 0));
	T(cuStreamQuery(t));
	T(cuEventQuery(e));
	sem_post(&gate);
	T(cuStreamSynchronize(t));
	T(cuEventSynchronize(e));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, t, params, NULL));
	T(cuStreamSynchronize(s));
	T(cuMemcpyDtoD(theirs, memory, 100));
	T(cuMemcpyDtoH(&v, memory, 4));
	SHOW("%u", v);
	T(cuMemcpyDtoHAsync(&v, memory, 4, s));
	T(cuMemcpyDtoHAsync(&v, theirs, 4, s));
	T(cuStreamSynchronize(s));
	T(cuMemFree(memory));
	T(cuModuleUnload(module));
	T(cuStreamDestroy(s));
	T(cuEventDestroy(e));
	T(cuCtxPopCurrent(&c));
	T(cuMemcpyDtoH(&v, theirs, 4));
	T(cuMemFree(theirs));
}

static void *per_thread(void *result) {
	CUstream s = CU_STREAM_PER_THREAD;
	CUcontext c = NULL;
	(void)result;
	T(cuCtxSetCurrent(context));
	T(cuStreamQuery(s));
	T(cuMemsetD8Async(memory, 5, 100, s));
	T(cuStreamSynchronize(s));
	T(cuStreamGetCtx(s, &c));
	SHOW("%s", which(c));
	return NULL;
}

static void streams(void) {
	CUstream s;
	unsigned flags = 77;
	int priority = 77, least = 77, greatest = 77;
	unsigned long long a = 0, b = 0;
	open_all();
	T(cuCtxGetStreamPriorityRange(&least, &greatest));
	SHOW("%d %d", least, greatest);
	for (int p = -7; p <= 2; p++) {
		cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, p);
		cuStreamGetPriority(s, &priority);
		SHOW("%d becomes %d", p, priority);
	}
	T(cuStreamGetFlags(s, &flags));
	SHOW("%u", flags);
	T(cuStreamGetFlags(NULL, &flags));
	SHOW("%u", flags);
	T(cuStreamGetFlags(CU_STREAM_LEGACY, &flags));
	SHOW("%u", flags);
	T(cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
	SHOW("%u", flags);
	T(cuStreamGetPriority(CU_STREAM_PER_THREAD, &priority));
	T(cuStreamGetId(s, &a));
	T(cuStreamGetId(NULL, &b));
	SHOW("%d", a != b);
	T(cuStreamDestroy(NULL));
	T(cuStreamDestroy(CU_STREAM_LEGACY));
	T(cuStreamDestroy(CU_STREAM_PER_THREAD));
	T(cuStreamCreate(&s, 2));
	T(cuStreamWaitEvent(NULL, NULL, 0));
	on_thread(per_thread);
	// The default stream waits for the others and they for it.
	T(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	T(cuLaunchHostFunc(s, wait_gate, NULL));
	T(cuLaunchHostFunc(NULL, hear, (void *)'d'));
	T(cuStreamQuery(NULL));
	SHOW("%d heard", heard_count);
	sem_post(&gate);
	T(cuStreamSynchronize(NULL));
	SHOW("%d heard", heard_count);
	T(cuStreamQuery(s));
}

// --- devices and errors -----------------------------------------------------------------------------

static void device(void) {
	char id[64] = "", name[256] = "";
	CUdevice d = 77;
	CUdevprop p = {0};
	size_t total = 0;
	CUuuid u, v;
	T(cuInit(0));
	T(cuDeviceGetPCIBusId(id, sizeof id, 0));
	SHOW("length %zu", strlen(id));
	T(cuDeviceGetByPCIBusId(&d, id));
	SHOW("%d", d);
	T(cuDeviceGetByPCIBusId(&d, id + 5));
	T(cuDeviceGetPCIBusId(id, 13, 0));
	T(cuDeviceGetPCIBusId(id, 12, 0));
	T(cuDeviceGetPCIBusId(id, 0, 0));
	T(cuDeviceGetProperties(&p, 0));
	int a[12];
	static const CUdevice_attribute which_ones[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	for (int i = 0; i < 12; i++)
		cuDeviceGetAttribute(&a[i], which_ones[i], 0);
	SHOW("as the attributes: %d %d %d %d %d %d %d %d %d", p.maxThreadsPerBlock == a[0], p.maxThreadsDim[0] == a[1], p.maxThreadsDim[2] == a[3], p.maxGridSize[0] == a[4], p.sharedMemPerBlock == a[7], p.totalConstantMemory == a[8], p.SIMDWidth == a[9], p.memPitch == a[10], p.regsPerBlock == a[11]);
	T(cuDeviceGetName(name, sizeof name, 0));
	printf("~ %s\n", name);
	T(cuDeviceGetName(name, 3, 0));
	SHOW("length %zu", strlen(name));
	T(cuDeviceTotalMem(&total, 0));
	T(cuDeviceGetUuid(&u, 0));
	T(cuDeviceGetUuid_v2(&v, 0));
	SHOW("%d", memcmp(&u, &v, sizeof u) == 0);
}

static void attributes(void) {
	// Not those that the library withholds (device.c says which and why), not those
	// of textures and newer ones, of which there are none, and not those of the
	// machine (the bus, clocks, memory's size and so on).
	static const int left_out[] = {13, 17, 19, 20, 32, 33, 34, 36, 50, 83, 84, 85, 86, 88, 89, 91, 92, 93, 94, 96, 98, 100, 101, 102, 103, 107, 108, 109, 110, 112, 114, 116, 117, 119, 120, 121, 122, 123, 124, 125, 127, 128, 129, 132};
	T(cuInit(0));
	for (int i = -1; i <= 160; i++) {
		bool skip = false;
		for (size_t k = 0; k < sizeof left_out / sizeof *left_out; k++)
			skip |= left_out[k] == i;
		skip |= (i >= 21 && i <= 30) || (i >= 42 && i <= 74) || i == 77 || i == 118 || i == 126 || (i >= 130 && i <= 147);
		if (skip)
			continue;
		int v = 77;
		CUresult r = cuDeviceGetAttribute(&v, (CUdevice_attribute)i, 0);
		printf("~ %d = %s %d\n", i, name_of(r), v);
	}
}

static void errors(void) {
	for (int i = -1; i <= 1001; i++) {
		const char *name = "kept", *text = "kept";
		CUresult r = cuGetErrorName((CUresult)i, &name), s = cuGetErrorString((CUresult)i, &text);
		if (r == CUDA_SUCCESS || s == CUDA_SUCCESS || i < 0)
			printf("%d %s %s\n", i, name_of(r), name != NULL ? name : "NULL"); // the text is for people
	}
}

static void limits(void) {
	open_context();
	for (int i = -1; i < 7; i++) {
		size_t v = 77;
		CUresult r = cuCtxGetLimit(&v, (CUlimit)i);
		if (i == 3 || i >= 6)
			printf("limit %d = %s\n", i, name_of(r));
		else
			printf("limit %d = %s %zu\n", i, name_of(r), v);
	}
	static const struct { int limit; size_t value; } some[] = {{0, 0}, {0, 1}, {0, 1000}, {0, 1024}, {0, 2000}, {0, 65536}, {1, 0}, {1, 1000}, {1, 1 << 20}, {2, 0}, {2, 1 << 20}, {4, 100}, {5, 0}, {5, 33}, {5, 128}, {5, 129}, {99, 1}};
	for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
		size_t v = 77;
		CUresult r = cuCtxSetLimit((CUlimit)some[i].limit, some[i].value);
		cuCtxGetLimit(&v, (CUlimit)some[i].limit);
		printf("set %d %zu = %s %zu\n", some[i].limit, some[i].value, name_of(r), v);
	}
	for (int i = -1; i < 6; i++) {
		CUfunc_cache c = (CUfunc_cache)77;
		CUresult r = cuCtxSetCacheConfig((CUfunc_cache)i);
		cuCtxGetCacheConfig(&c);
		printf("cache %d = %s %d\n", i, name_of(r), (int)c);
	}
}

static void flags_of_contexts(void) {
	cuInit(0);
	for (unsigned i = 0; i < 0x20; i++) {
		CUcontext c = NULL;
		unsigned flags = 777;
		CUresult r = cuCtxCreate_v2(&c, i, 0);
		if (r == CUDA_SUCCESS) {
			cuCtxGetFlags(&flags);
			cuCtxDestroy(c);
		}
		printf("create %#x = %s %#x\n", i, name_of(r), flags);
		r = cuDevicePrimaryCtxSetFlags(0, i);
		int active;
		cuDevicePrimaryCtxGetState(0, &flags, &active);
		printf("primary %#x = %s %#x\n", i, name_of(r), flags);
	}
}

// --- faults: each ends with one ------------------------------------------------------------------------

static void after_fault(void) {
	CUdeviceptr at;
	CUstream s;
	CUevent e;
	CUcontext c = NULL;
	uint32_t v;
	size_t n;
	CUdevice d;
	T(cuCtxSynchronize());
	T(cuCtxSynchronize());
	T(cuStreamQuery(NULL));
	T(cuStreamSynchronize(NULL));
	T(cuMemcpyDtoH(&v, memory, 4));
	T(cuMemAlloc(&at, 4));
	T(cuMemGetInfo(&n, &n));
	T(cuStreamCreate(&s, 0));
	T(cuEventCreate(&e, 0));
	T(cuMemsetD8(memory, 0, 4));
	T(cuLaunchKernel(function("nothing"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuMemFree(more));
	T(cuCtxGetDevice(&d));
	T(cuCtxGetCurrent(&c));
	T(cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
	T(cuModuleUnload(module));
}

static void fault_address(void) {
	open_all();
	CUdeviceptr bad = 0x7000000000ull;
	void *params[] = {&bad};
	T(cuLaunchKernel(function("bump"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	after_fault();
}

static void fault_misaligned(void) {
	open_all();
	CUdeviceptr bad = memory + 1;
	void *params[] = {&bad};
	T(cuLaunchKernel(function("bump"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	T(cuCtxSynchronize());
}

static void fault_trap(void) {
	CUmodule m;
	CUfunction f;
	open_all();
	T(cuModuleLoadData(&m, ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry trap_now()\n{\n\ttrap;\n\tret;\n}\n"));
	T(cuModuleGetFunction(&f, m, "trap_now"));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	T(cuCtxSynchronize());
}

static void forked(void) {
	open_context();
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int n = 77;
		CUdeviceptr at;
		T(cuDeviceGetCount(&n));
		T(cuMemAlloc(&at, 4));
		T(cuCtxSynchronize());
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	CUdeviceptr at;
	T(cuMemAlloc(&at, 4));
}

// --- handles that are wrong, as far as NVIDIA's driver does not crash -----------------------------------------------------

#define WRONG_HANDLE(name, call) \
	static void name(void) { \
		CUstream s; \
		CUevent e; \
		int v = 0; \
		size_t n = 0; \
		CUfunction f = NULL; \
		CUdeviceptr at = 0; \
		CUcontext c = NULL; \
		open_all(); \
		cuStreamCreate(&s, 0); \
		cuEventCreate(&e, 0); \
		(void)v, (void)n, (void)f, (void)at, (void)c; \
		call; \
	}

WRONG_HANDLE(stream_as_module, T(cuModuleGetFunction(&f, (CUmodule)s, "fill")))
WRONG_HANDLE(module_twice, cuModuleUnload(module); T(cuModuleUnload(module)))
WRONG_HANDLE(context_twice, cuCtxDestroy(context); T(cuCtxDestroy(context)))
WRONG_HANDLE(context_late, cuCtxDestroy(context); T(cuCtxSetCurrent(context)))
WRONG_HANDLE(context_late_push, cuCtxDestroy(context); T(cuCtxPushCurrent(context)))
WRONG_HANDLE(function_late, f = function("nothing"); cuModuleUnload(module); T(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f)))

#define CASE(name) {#name, name}
static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(contexts), CASE(destroy_current), CASE(deep_stack), CASE(primary), CASE(nothing_yet), CASE(no_context), CASE(pointers), CASE(unified), CASE(rectangles), CASE(fills), CASE(pitches),
	CASE(jit), CASE(link_cases), CASE(functions), CASE(occupancies), CASE(libraries), CASE(launches), CASE(callbacks), CASE(call_in_callback), CASE(callback_after_fault), CASE(events),
	CASE(across_contexts), CASE(streams), CASE(device), CASE(attributes), CASE(errors), CASE(limits), CASE(flags_of_contexts), CASE(fault_address), CASE(fault_misaligned), CASE(fault_trap),
	CASE(forked), CASE(stream_as_module),
	CASE(module_twice), CASE(context_twice), CASE(context_late), CASE(context_late_push),
	CASE(function_late),
};

int main(int argc, char **argv) {
	bool list = argc == 2 && strcmp(argv[1], "--list") == 0;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (list)
			puts(cases[i].name);
		bool wanted = argc == 1;
		for (int k = 1; k < argc; k++)
			wanted |= strcmp(argv[k], cases[i].name) == 0;
		if (!wanted)
			continue;
		printf("== %s\n", cases[i].name);
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(30);
			sem_init(&gate, 0, 0);
			cases[i].run();
			fflush(stdout);
			_exit(0);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		if (WIFSIGNALED(status))
			printf("\ncrashed: %s\n", strsignal(WTERMSIG(status)));
	}
	return 0;
}
