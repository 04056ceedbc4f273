// Cases of what streams, pointers and programs have besides work and memory, written by
// hand; see cases.c: attributes of streams, words in memory, pools, limits of the cache,
// shared memory and events within one program, green contexts.
//
//   others [NAME...]   all that were recorded, or those named
//   others --list      their names
//   others --rest      cases that were not recorded: calls that crash NVIDIA's driver, and what came behind them
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

static const char *name_of(CUresult r) {
	const char *name = NULL;
	if (cuGetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
		return "?";
	return strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
}

static CUresult tell(CUresult r) {
	printf(" = %s\n", name_of(r));
	fflush(stdout);
	return r;
}

#define T(call) (printf("%s", #call), fflush(stdout), tell(call))
#define SHOW(format, ...) printf("  " format "\n", __VA_ARGS__)

static CUcontext context;
static CUdeviceptr memory;
static CUstream s, s2;

static void begin(void) {
	if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, CU_CTX_MAP_HOST, 0) != CUDA_SUCCESS || cuMemAlloc(&memory, 65536) != CUDA_SUCCESS)
		printf("no context or memory\n");
	cuMemsetD8(memory, 0, 65536);
	cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING);
}

static void attributes(void) {
	CUstreamAttrValue v, got;
	memset(&got, 0, sizeof got);
	T(cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	SHOW("policy %d", got.syncPolicy);
	T(cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &got));
	SHOW("domain %d", got.memSyncDomain);
	T(cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
	SHOW("window of %zu bytes, %d, %d", got.accessPolicyWindow.num_bytes, got.accessPolicyWindow.hitProp, got.accessPolicyWindow.missProp);
	memset(&v, 0, sizeof v);
	v.accessPolicyWindow = (CUaccessPolicyWindow){(void *)memory, 4096, 0.5f, CU_ACCESS_PROPERTY_PERSISTING, CU_ACCESS_PROPERTY_STREAMING};
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	T(cuStreamGetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
	SHOW("window of %zu bytes, %g, %d, %d", got.accessPolicyWindow.num_bytes, (double)got.accessPolicyWindow.hitRatio, got.accessPolicyWindow.hitProp, got.accessPolicyWindow.missProp);
	v.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	v.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_NORMAL;
	v.accessPolicyWindow.hitRatio = 1.5f;
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	v.accessPolicyWindow.hitRatio = 1;
	v.accessPolicyWindow.num_bytes = SIZE_MAX / 2;
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
	v.syncPolicy = CU_SYNC_POLICY_YIELD;
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	v.syncPolicy = 9;
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	v.priority = -2;
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_PRIORITY, &v));
	T(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	T(cuStreamCopyAttributes(s2, s));
	T(cuStreamGetAttribute(s2, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	SHOW("policy %d", got.syncPolicy);
	T(cuStreamGetAttribute(s2, CU_STREAM_ATTRIBUTE_PRIORITY, &got));
	SHOW("priority %d", got.priority);
}

static void attributes_rest(void) {
	CUstreamAttrValue got;
	T(cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_PRIORITY, NULL));
	T(cuStreamGetAttribute(NULL, CU_STREAM_ATTRIBUTE_PRIORITY, &got));
}

static void words(void) {
	CUstreamBatchMemOpParams list[2];
	uint32_t word = 0;
	uint64_t wide = 0;
	T(cuStreamWriteValue32(s, memory, 5, 0));
	T(cuStreamWaitValue32(s, memory, 5, CU_STREAM_WAIT_VALUE_EQ));
	T(cuStreamWriteValue64(s, memory + 8, 1ull << 40, 0));
	T(cuStreamWaitValue64(s, memory + 8, 1ull << 40, CU_STREAM_WAIT_VALUE_GEQ));
	T(cuStreamWaitValue32(s, memory + 12, 0xf00, CU_STREAM_WAIT_VALUE_AND));
	T(cuStreamWaitValue32(s, memory, 0, CU_STREAM_WAIT_VALUE_NOR));
	T(cuStreamSynchronize(s));
	T(cuMemcpyDtoH(&word, memory, 4));
	T(cuMemcpyDtoH(&wide, memory + 8, 8));
	SHOW("%u, %llu", word, (unsigned long long)wide);
	T(cuStreamWaitValue32(s, memory + 1, 0, 0));
	T(cuStreamWaitValue64(s, memory + 4, 0, 0));
	T(cuStreamWaitValue32(s, memory, 0, 4));
	T(cuStreamWriteValue32(s, memory, 0, 2));
	T(cuStreamWriteValue32(s, 0, 0, 0));
	memset(list, 0, sizeof list);
	list[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	list[0].writeValue.address = memory + 16;
	list[0].writeValue.value = 8;
	list[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	list[1].waitValue.address = memory + 16;
	list[1].waitValue.value = 8;
	list[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	T(cuStreamBatchMemOp(s, 2, list, 0));
	T(cuStreamSynchronize(s));
	T(cuStreamBatchMemOp(s, 0, list, 0));
	T(cuStreamBatchMemOp(s, 257, list, 0));
	T(cuStreamBatchMemOp(s, 1, list, 1));
}

static void words_rest(void) {
	CUstreamBatchMemOpParams list[1] = {{.operation = 99}};
	T(cuStreamBatchMemOp(s, 1, NULL, 0));
	T(cuStreamBatchMemOp(s, 1, list, 0));
	uint32_t *host = NULL;
	T(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	*host = 3;
	T(cuStreamWaitValue32(s, (CUdeviceptr)host, 3, CU_STREAM_WAIT_VALUE_EQ));
	T(cuStreamWriteValue32(s, (CUdeviceptr)(host + 1), 4, 0));
	T(cuStreamSynchronize(s));
	SHOW("%u", host[1]);
}

static void pools(void) {
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, 99}, wrong = {CU_MEM_LOCATION_TYPE_INVALID, 0};
	CUmemoryPool pool, other, own;
	T(cuMemGetDefaultMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	T(cuDeviceGetDefaultMemPool(&other, 0));
	SHOW("%s", pool == other ? "the same" : "another");
	T(cuMemGetMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	T(cuMemGetDefaultMemPool(NULL, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	T(cuMemGetDefaultMemPool(&pool, NULL, CU_MEM_ALLOCATION_TYPE_PINNED));
	T(cuMemGetDefaultMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
	T(cuMemGetDefaultMemPool(&pool, &wrong, CU_MEM_ALLOCATION_TYPE_PINNED));
	T(cuMemGetDefaultMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_INVALID));
	T(cuMemPoolCreate(&own, &(CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}));
	T(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own));
	T(cuMemGetMemPool(&pool, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	SHOW("%s", pool == own ? "its own" : "another");
	for (int i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; i <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++) {
		int value = -1;
		T(cuMemPoolGetAttribute(other, (CUmemPool_attribute)i, &value));
		SHOW("%d: %d", i, value);
	}
	T(cuMemPoolDestroy(own));
}

static void hints(void) {
	unsigned flag = 1;
	int value;
	T(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
	SHOW("%u", flag);
	flag = 1;
	T(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
	flag = 0;
	T(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory + 100));
	SHOW("%u", flag);
	T(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
	T(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
	T(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 16));
	T(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
	T(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
	T(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 99));
	T(cuDeviceCanAccessPeer(NULL, 0, 0));
	T(cuDeviceCanAccessPeer(NULL, 0, 99));
	T(cuDeviceCanAccessPeer(&value, 0, 99));
	T(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, SIZE_MAX));
	T(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20));
	T(cuCtxResetPersistingL2Cache());
}

static void shared(void) {
	CUipcMemHandle handle, wrong;
	CUipcEventHandle happens;
	CUdeviceptr p, pooled;
	CUevent event, plain, other;
	unsigned capable = 9;
	memset(&wrong, 3, sizeof wrong);
	T(cuIpcGetMemHandle(&handle, memory));
	T(cuIpcGetMemHandle(&handle, memory + 100));
	T(cuIpcGetMemHandle(NULL, memory));
	T(cuIpcGetMemHandle(&handle, 64));
	T(cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	T(cuIpcOpenMemHandle(&p, handle, 0));
	T(cuIpcOpenMemHandle(&p, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	T(cuIpcCloseMemHandle(memory));
	T(cuIpcCloseMemHandle(64));
	T(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
	SHOW("%u", capable);
	T(cuMemAllocAsync(&pooled, 4096, s));
	T(cuStreamSynchronize(s));
	T(cuIpcGetMemHandle(&handle, pooled));
	T(cuEventCreate(&event, CU_EVENT_INTERPROCESS));
	T(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	T(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	T(cuIpcGetEventHandle(&happens, plain));
	T(cuIpcGetEventHandle(NULL, event));
	T(cuIpcGetEventHandle(&happens, event));
	T(cuIpcOpenEventHandle(&other, happens));
	T(cuEventQuery(event));
	T(cuEventRecord(event, s));
	T(cuEventSynchronize(event));
	T(cuEventQuery(event));
	memset(&happens, 3, sizeof happens);
	T(cuIpcOpenEventHandle(&other, happens));
	T(cuIpcOpenEventHandle(NULL, happens));
}

static void descriptors(void) {
	CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, own = shareable;
	CUmemGenericAllocationHandle a, b, c;
	size_t size = 2 << 20;
	int fd = -1;
	uint32_t word = 0;
	CUdeviceptr p, q;
	own.requestedHandleTypes = 0;
	T(cuMemCreate(&a, size, &shareable, 0));
	T(cuMemCreate(&b, size, &own, 0));
	T(cuMemExportToShareableHandle(&fd, b, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	T(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
	T(cuMemExportToShareableHandle(NULL, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	T(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	T(cuMemImportFromShareableHandle(&c, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	T(cuMemAddressReserve(&p, size, 0, 0, 0));
	T(cuMemAddressReserve(&q, size, 0, 0, 0));
	T(cuMemMap(p, size, 0, a, 0));
	T(cuMemMap(q, size, 0, c, 0));
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	T(cuMemSetAccess(p, size, &access, 1));
	T(cuMemSetAccess(q, size, &access, 1));
	T(cuMemsetD32(p, 77, 4));
	T(cuMemcpyDtoH(&word, q, 4));
	SHOW("%u", word);
	T(cuMemUnmap(p, size));
	T(cuMemUnmap(q, size));
	T(cuMemRelease(a));
	T(cuMemRelease(b));
	T(cuMemRelease(c));
	close(fd);
}

static void green(void) {
	CUdevResource all, none = {0};
	CUdevResourceDesc d;
	unsigned groups = 1;
	T(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	T(cuDeviceGetDevResource(0, NULL, CU_DEV_RESOURCE_TYPE_SM));
	T(cuDeviceGetDevResource(99, &all, CU_DEV_RESOURCE_TYPE_SM));
	T(cuDeviceGetDevResource(0, &none, CU_DEV_RESOURCE_TYPE_INVALID));
	T(cuDevSmResourceSplitByCount(NULL, NULL, &all, NULL, 0, 8));
	T(cuDevSmResourceSplitByCount(NULL, &groups, &none, NULL, 0, 8));
	T(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, 100000));
	T(cuDevResourceGenerateDesc(&d, &none, 1));
}

static void green_rest(void) {
	CUdevResource all;
	CUdevResourceDesc d;
	CUgreenCtx made;
	CUstream stream;
	cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);
	T(cuDevResourceGenerateDesc(&d, &all, 0));
	T(cuDevResourceGenerateDesc(&d, &all, 1));
	T(cuGreenCtxCreate(&made, d, 0, 0));
	T(cuGreenCtxCreate(&made, d, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	T(cuGreenCtxStreamCreate(&stream, made, CU_STREAM_DEFAULT, 0));
	T(cuGreenCtxStreamCreate(&stream, made, CU_STREAM_NON_BLOCKING, 0));
	T(cuStreamSynchronize(stream));
	T(cuStreamDestroy(stream));
	T(cuGreenCtxDestroy(made));
}

static const struct {
	const char *name;
	void (*run)(void);
	bool rest; // not recorded
} all_cases[] = {
	{"attributes", attributes, false}, {"words", words, false}, {"pools", pools, false}, {"hints", hints, false}, {"shared", shared, false}, {"descriptors", descriptors, false}, {"green", green, false},
	{"attributes_rest", attributes_rest, true}, {"words_rest", words_rest, true}, {"green_rest", green_rest, true},
};

// Each case has a process of its own: some leave a context that is good for nothing.
static void in_process(size_t i) {
	printf("== %s\n", all_cases[i].name);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		alarm(30);
		begin();
		all_cases[i].run();
		fflush(stdout);
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("\ncrashed: %s\n", strsignal(WTERMSIG(status)));
}

int main(int argc, char **argv) {
	const bool rest = argc == 2 && strcmp(argv[1], "--rest") == 0;
	if (argc > 1 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < sizeof all_cases / sizeof *all_cases; i++)
			puts(all_cases[i].name);
		return 0;
	}
	for (size_t i = 0; i < sizeof all_cases / sizeof *all_cases; i++) {
		bool wanted = all_cases[i].rest == rest && (argc < 2 || rest);
		for (int j = 1; j < argc; j++)
			wanted = wanted || strcmp(argv[j], all_cases[i].name) == 0;
		if (wanted)
			in_process(i);
	}
	return 0;
}
