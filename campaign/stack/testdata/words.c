// A program whose streams write words and wait for words, and that sets what are only
// hints: see main.
#include "kernels.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static CUcontext context;
static CUdevice device;
static CUfunction add, poke;
static CUstream first, second;

static void start(void) {
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, CU_CTX_MAP_HOST, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuModuleGetFunction(&poke, module, "poke"));
	CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
}

static uint32_t read32(CUdeviceptr at) {
	uint32_t value = 0;
	CHECK(cuMemcpyDtoHAsync(&value, at, sizeof value, second));
	CHECK(cuStreamSynchronize(second));
	return value;
}

static void add_to(CUdeviceptr p, unsigned n, unsigned v, CUstream stream) { CHECK(cuLaunchKernel(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, (void *[]){&p, &n, &v}, NULL)); }

// A stream waits for a word of the device; another one works meanwhile, and writes it at
// last. What stands behind the wait has not happened before.
static void on_device(void) {
	CUdeviceptr word, data;
	CHECK(cuMemAlloc(&word, 4096));
	CHECK(cuMemAlloc(&data, 4096));
	CHECK(cuMemsetD8(word, 0, 4096));
	CHECK(cuMemsetD8(data, 0, 4096));
	for (uint32_t round = 1; round <= 5; round++) {
		CHECK(cuStreamWaitValue32(first, word, round, CU_STREAM_WAIT_VALUE_GEQ));
		add_to(data, 100, 1, first);
		CHECK(cuStreamWriteValue64(first, word + 64, UINT64_C(7000000000) + round, 0));
		add_to(data + 1024, 100, 1, second); // another stream is not held up
		NEED(read32(data + 1024) == round);
		NEED(read32(data) == round - 1);
		NEED(cuStreamQuery(first) == CUDA_ERROR_NOT_READY);
		CHECK(cuStreamWriteValue32(second, word, round, 0));
		CHECK(cuStreamSynchronize(first));
		NEED(read32(data) == round);
		uint64_t wide;
		CHECK(cuMemcpyDtoH(&wide, word + 64, sizeof wide));
		NEED(wide == UINT64_C(7000000000) + round);
	}
	CHECK(cuStreamWaitValue32(first, word, 0x11, CU_STREAM_WAIT_VALUE_EQ)); // a kernel's write will do
	CHECK(cuStreamWaitValue64(first, word + 128, 6, CU_STREAM_WAIT_VALUE_AND));
	add_to(data, 1, 1, first);
	add_to(word, 1, 0x11 - 5, second);
	add_to(word + 128, 1, 4, second);
	CHECK(cuStreamSynchronize(first));
	NEED(read32(data) == 6);
	CHECK(cuMemFree(word));
	CHECK(cuMemFree(data));
}

// The program writes a word of its own memory, and reads what a stream writes there.
static void on_host(void) {
	volatile uint32_t *words;
	CUdeviceptr data;
	CHECK(cuMemHostAlloc((void **)&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(cuMemAlloc(&data, 4096));
	CHECK(cuMemsetD8(data, 0, 4096));
	memset((void *)words, 0, 4096);
	for (uint32_t round = 1; round <= 5; round++) {
		CHECK(cuStreamWaitValue32(first, (CUdeviceptr)words, round, CU_STREAM_WAIT_VALUE_EQ));
		add_to(data, 10, 1, first);
		CHECK(cuStreamWriteValue32(first, (CUdeviceptr)(words + 1), round, 0));
		NEED(read32(data) == round - 1 && words[1] == round - 1);
		__atomic_store_n(&words[0], round, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&words[1], __ATOMIC_SEQ_CST) != round) // nobody synchronises
			usleep(100);
		NEED(read32(data) == round);
	}
	CHECK(cuStreamSynchronize(first));
	CHECK(cuMemFreeHost((void *)words));
	CHECK(cuMemFree(data));
}

static void batches(void) {
	CUdeviceptr word;
	CUstreamBatchMemOpParams list[4];
	CHECK(cuMemAlloc(&word, 4096));
	CHECK(cuMemsetD8(word, 0, 4096));
	memset(list, 0, sizeof list);
	list[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	list[0].waitValue.address = word;
	list[0].waitValue.value = 3;
	list[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	list[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
	list[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	list[2].writeValue.address = word + 8;
	list[2].writeValue.value64 = UINT64_C(1) << 40 | 9;
	list[3].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
	list[3].waitValue.address = word + 8;
	list[3].waitValue.value64 = UINT64_C(1) << 40;
	list[3].waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
	CHECK(cuStreamBatchMemOp(first, 4, list, 0));
	NEED(read32(word + 8) == 0);
	CHECK(cuStreamWriteValue32(second, word, 3, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
	CHECK(cuStreamSynchronize(first));
	NEED(read32(word + 8) == 9 && read32(word + 12) == 1 << 8);

	uint32_t here = 0;
	NEED(cuStreamBatchMemOp(first, 257, list, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamBatchMemOp(first, 1, list, 1) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamBatchMemOp(first, 1, NULL, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamWaitValue32(first, word + 2, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamWaitValue64(first, word + 4, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamWaitValue32(first, word, 0, 4) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamWaitValue32(first, word, 0, CU_STREAM_WAIT_VALUE_FLUSH) == CUDA_ERROR_NOT_SUPPORTED);
	NEED(cuStreamWriteValue32(first, word, 0, 2) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamWriteValue32(first, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamWriteValue32(first, (CUdeviceptr)&here, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemFree(word));
}

static void attributes(void) {
	CUstreamAttrValue v, got;
	CUdeviceptr p;
	int most, window;
	CHECK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, device));
	CHECK(cuDeviceGetAttribute(&window, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, device));
	NEED(most > 0 && window > 0);
	CHECK(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, (size_t)most));
	size_t limit;
	CHECK(cuCtxGetLimit(&limit, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
	NEED(limit == (size_t)most);
	NEED(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, (size_t)most + 1) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuCtxResetPersistingL2Cache());

	CHECK(cuMemAlloc(&p, 1 << 20));
	memset(&v, 0, sizeof v);
	v.accessPolicyWindow = (CUaccessPolicyWindow){(void *)p, 1 << 20, 0.6f, CU_ACCESS_PROPERTY_PERSISTING, CU_ACCESS_PROPERTY_STREAMING};
	for (int i = 0; i < 3; i++) { // a stream, the legacy one, and that of this thread
		CUstream stream = (CUstream[]){first, NULL, CU_STREAM_PER_THREAD}[i];
		CHECK(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
		memset(&got, 0, sizeof got);
		CHECK(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
		NEED(memcmp(&v.accessPolicyWindow, &got.accessPolicyWindow, sizeof v.accessPolicyWindow) == 0);
		CHECK(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
		NEED((int)got.syncPolicy == -1); // none was set
	}
	v.accessPolicyWindow.num_bytes = (size_t)window + 1;
	NEED(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v) == CUDA_ERROR_INVALID_VALUE);
	v.accessPolicyWindow.num_bytes = 1;
	v.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
	NEED(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v) == CUDA_ERROR_INVALID_VALUE);
	v.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
	CHECK(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
	v.priority = -3;
	CHECK(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_PRIORITY, &v));
	v.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
	CHECK(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &v));
	CHECK(cuStreamCopyAttributes(second, first));
	int priority;
	CHECK(cuStreamGetPriority(second, &priority));
	NEED(priority == -3);
	CHECK(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_PRIORITY, &got));
	NEED(got.priority == -3);
	CHECK(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	NEED(got.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC);
	CHECK(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN, &got));
	NEED(got.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
	NEED(cuStreamSetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamGetAttribute(first, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_PRIORITY, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamGetAttribute(first, CU_STREAM_ATTRIBUTE_PRIORITY, NULL) == CUDA_ERROR_INVALID_VALUE);

	unsigned flag = 1;
	CHECK(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 8));
	NEED(flag == 0);
	flag = 1;
	CHECK(cuPointerSetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	flag = 0;
	CHECK(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + 8));
	NEED(flag == 1);
	NEED(cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuDeviceCanAccessPeer(NULL, 0, 7) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemFree(p));
}

static void pools(void) {
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device}, host = {CU_MEM_LOCATION_TYPE_HOST, 0}, nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
	CUmemoryPool by_device, by_location, own;
	CHECK(cuDeviceGetDefaultMemPool(&by_device, device));
	CHECK(cuMemGetDefaultMemPool(&by_location, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	NEED(by_device == by_location);
	int reuse = 0;
	CHECK(cuMemPoolGetAttribute(by_device, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
	NEED(reuse == 1);
	CHECK(cuMemPoolCreate(&own, &(CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here}));
	CHECK(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own));
	CHECK(cuMemGetMemPool(&by_location, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	CHECK(cuDeviceGetMemPool(&by_device, device));
	NEED(by_location == own && by_device == own);
	NEED(cuMemGetDefaultMemPool(NULL, &here, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemGetDefaultMemPool(&own, NULL, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemGetMemPool(&by_location, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemGetMemPool(&by_location, &host, CU_MEM_ALLOCATION_TYPE_PINNED) == CUDA_ERROR_NOT_SUPPORTED);
	CHECK(cuMemPoolDestroy(own));
	CHECK(cuDeviceGetMemPool(&by_device, device));
	CHECK(cuMemGetDefaultMemPool(&by_location, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
	NEED(by_device == by_location);
}

// A green context has all multiprocessors, or is refused. Events stand for all streams.
static void green(void) {
	CUdevResource all, part, rest;
	CUdevResourceDesc description;
	CUgreenCtx made, of;
	CUcontext primary, same;
	CUmodule module;
	CUfunction own;
	unsigned groups = 1;
	CHECK(cuDevicePrimaryCtxRetain(&primary, device));
	CHECK(cuCtxPushCurrent(primary));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&own, module, "add"));
	NEED(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_INVALID) == CUDA_ERROR_INVALID_RESOURCE_TYPE);
	CHECK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
	int count;
	CHECK(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	NEED(all.sm.smCount == (unsigned)count && sizeof all == 144);
	CHECK(cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, all.sm.smCount));
	NEED(groups == 1 && part.sm.smCount == all.sm.smCount);
	NEED(cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, all.sm.smCount + 1) == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	all.sm.smCount = 64; // as if it had so many
	NEED(cuDevSmResourceSplitByCount(&rest, &groups, &all, NULL, 0, 16) == CUDA_ERROR_NOT_SUPPORTED);
	CHECK(cuDevResourceGenerateDesc(&description, &part, 1));
	CHECK(cuGreenCtxCreate(&made, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
	NEED(cuGreenCtxCreate(&of, description, device, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuCtxFromGreenCtx(&same, made));
	NEED(same == primary);

	CUstream streams[2], plain;
	CUevent event;
	CUdeviceptr p;
	for (int i = 0; i < 2; i++)
		CHECK(cuGreenCtxStreamCreate(&streams[i], made, CU_STREAM_NON_BLOCKING, 0));
	CHECK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamGetGreenCtx(streams[0], &of));
	NEED(of == made);
	CHECK(cuStreamGetGreenCtx(plain, &of));
	NEED(of == NULL);
	CHECK(cuMemAlloc(&p, 4096));
	CHECK(cuMemsetD8(p, 0, 4096));
	CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	unsigned n = 1, v = 1;
	for (int i = 0; i < 2; i++) { // each is held up by a word
		CHECK(cuStreamWaitValue32(streams[i], p + 64 + 4 * (unsigned)i, 1, CU_STREAM_WAIT_VALUE_EQ));
		CHECK(cuLaunchKernel(own, 1, 1, 1, 1, 1, 1, 0, streams[i], (void *[]){&p, &n, &v}, NULL));
	}
	CHECK(cuGreenCtxRecordEvent(made, event));
	CHECK(cuStreamWriteValue32(plain, p + 64, 1, 0));
	CHECK(cuStreamSynchronize(streams[0]));
	NEED(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
	CHECK(cuCtxWaitEvent(primary, event));
	NEED(cuStreamQuery(plain) == CUDA_ERROR_NOT_READY);
	uint32_t one = 1; // no stream of this context could write it now
	CUstream free_stream;
	CHECK(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemcpyHtoDAsync(p + 68, &one, 4, free_stream));
	CHECK(cuEventSynchronize(event));
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxRecordEvent(primary, event));
	CHECK(cuEventSynchronize(event));
	uint32_t sum;
	CHECK(cuMemcpyDtoH(&sum, p, 4));
	NEED(sum == 2);
	CHECK(cuMemFree(p));
	CHECK(cuGreenCtxDestroy(made));
	NEED(cuGreenCtxDestroy(made) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(cuCtxPopCurrent(NULL));
	CHECK(cuDevicePrimaryCtxRelease(device));
}

// A stream waits in each of many rounds, for a word that is written after the line is read.
static void rounds(void) {
	CUdeviceptr word, data;
	CHECK(cuMemAlloc(&word, 4096));
	CHECK(cuMemAlloc(&data, 4096));
	CHECK(cuMemsetD8(word, 0, 4096));
	CHECK(cuMemsetD8(data, 0, 4096));
	puts("begun");
	fflush(stdout);
	for (uint32_t round = 1; getchar() != EOF; round++) {
		CHECK(cuStreamWaitValue32(first, word, round, CU_STREAM_WAIT_VALUE_GEQ));
		add_to(data, 100, 1, first);
		NEED(read32(data) == round - 1);
		CHECK(cuStreamWriteValue32(second, word, round, 0));
		CHECK(cuStreamSynchronize(first));
		NEED(read32(data) == round);
		printf("round %u\n", round);
		fflush(stdout);
	}
}

// What a copy has taken is there for streams that do not wait for the legacy one. With NVIDIA's
// driver the copy returns when the wait for the word is over.
static void copies(void) {
	CUdeviceptr from, to;
	CUstream late;
	uint32_t *word;
	CHECK(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(cuMemAlloc(&from, 4096));
	CHECK(cuMemAlloc(&to, 4096));
	for (uint32_t round = 0; round < 4; round++) {
		uint32_t value[4] = {10 + round, 20 + round, 30 + round, 40 + round};
		const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = value, .srcPitch = 4, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = from, .dstPitch = 8, .WidthInBytes = 4, .Height = 4};
		CHECK(cuMemsetD32(from, 0, 1024));
		CHECK(cuCtxSynchronize());
		__atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
		CHECK(cuStreamWaitValue32(NULL, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
		if (round % 2 == 0)
			CHECK(cuMemcpyHtoD(from, value, sizeof value));
		else
			CHECK(cuMemcpy2D(&rows));
		CHECK(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING)); // one that was not there
		CUstream s = round < 2 ? first : late;
		CHECK(cuMemcpyDtoDAsync(to, from, 64, s));
		for (int i = 0; i < 1000 && cuStreamQuery(s) == CUDA_ERROR_NOT_READY; i++)
			;
		__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
		CHECK(cuStreamSynchronize(s));
		NEED(read32(to) == value[0] && read32(to + 8) == value[round % 2 == 0 ? 2 : 1]);
		CHECK(cuStreamDestroy(late));
	}
}

// Nodes of graphs that write words and wait for words, made by hand and by a capture.
static void nodes(void) {
	CUdeviceptr at;
	CUgraph graph, taken;
	CUgraphNode node;
	CUgraphExec exec, other;
	CHECK(cuMemAlloc(&at, 64));
	CHECK(cuMemsetD8(at, 0, 64));
	CUstreamBatchMemOpParams list[3] = {
	    {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, at, {5}, CU_STREAM_WAIT_VALUE_EQ, 0}},
	    {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, at + 8, {.value64 = 1ull << 40 | 7}, 0, 0}},
	    {.memoryBarrier = {CU_STREAM_MEM_OP_BARRIER, 0}},
	};
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = {context, 3, list, 0}, got;
	CHECK(cuGraphCreate(&graph, 0));
	CHECK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
	CHECK(cuGraphBatchMemOpNodeGetParams(node, &got));
	NEED(got.count == 3 && got.ctx == context && got.paramArray != list && got.paramArray[1].writeValue.address == at + 8);
	CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	CHECK(cuGraphLaunch(exec, first));
	NEED(cuStreamQuery(first) == CUDA_ERROR_NOT_READY);
	CHECK(cuStreamWriteValue32(second, at, 5, 0));
	CHECK(cuStreamSynchronize(first));
	NEED(read32(at + 8) == 7 && read32(at + 12) == 256);
	list[1].writeValue.value64 = 9;
	CHECK(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
	CHECK(cuGraphLaunch(exec, first));
	CHECK(cuStreamSynchronize(first));
	NEED(read32(at + 8) == 9);
	params.count = 2;
	NEED(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuGraphBatchMemOpNodeSetParams(node, &params));
	params.flags = 1;
	NEED(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuStreamWriteValue32(first, at + 16, 3, 0));
	CHECK(cuStreamWaitValue32(first, at + 16, 3, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuStreamBatchMemOp(first, 3, list, 0));
	CHECK(cuStreamEndCapture(first, &taken));
	size_t count = 0;
	CHECK(cuGraphGetNodes(taken, NULL, &count));
	NEED(count == 3 && read32(at + 16) == 0);
	CHECK(cuGraphInstantiateWithFlags(&other, taken, 0));
	CHECK(cuGraphDestroy(taken));
	CHECK(cuGraphLaunch(other, first));
	CHECK(cuStreamSynchronize(first));
	NEED(read32(at + 16) == 3);
	CHECK(cuGraphExecDestroy(other));
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuGraphDestroy(graph));
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*f)(void);
	} all[] = {{"device", on_device}, {"host", on_host}, {"batches", batches}, {"attributes", attributes}, {"pools", pools}, {"copies", copies}, {"green", green}, {"nodes", nodes}, {"rounds", rounds}};
	start();
	for (size_t i = 0; argc > 1 && i < sizeof all / sizeof *all; i++)
		if (strcmp(argv[1], all[i].name) == 0)
			all[i].f();
	CHECK(cuCtxDestroy(context));
	puts("right");
	return 0;
}
