// Captures and graphs: what calls answer, and what they do to a capture. Prints one line a
// call; "state" is that of the capture afterwards (1 active, 2 invalidated) and "end" what
// cuStreamEndCapture answers.
#include <cuda.h>
#include <stdio.h>
#include <string.h>

static CUstream s, other, blocking;
static CUdeviceptr memory, kept, at;
static CUevent event, recorded;
static CUgraph graph;

#define IN_CAPTURE(call) \
	do { \
		CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE; \
		int result = call; \
		cuStreamIsCapturing(s, &state); \
		graph = NULL; \
		printf("%s = %d state %d end %d\n", #call, result, state, cuStreamEndCapture(s, &graph)); \
	} while (0)
#define T(call) printf("%s = %d\n", #call, (int)(call))

static void begin(CUstreamCaptureMode mode) {
	cuStreamBeginCapture(s, mode);
	cuMemsetD8Async(memory, 1, 4, s);
}

static void begin_and_record(CUstreamCaptureMode mode) {
	begin(mode);
	cuEventRecord(event, s);
}

static void in_mode(CUstreamCaptureMode mode) {
	void *host;
	size_t word;
	printf("mode %d\n", mode);
	begin(mode);
	IN_CAPTURE(cuStreamSynchronize(s));
	begin(mode);
	IN_CAPTURE(cuStreamQuery(s));
	begin(mode);
	IN_CAPTURE(cuCtxSynchronize());
	begin(mode);
	IN_CAPTURE(cuStreamSynchronize(other));
	begin(mode);
	IN_CAPTURE(cuStreamSynchronize(0));
	begin(mode);
	IN_CAPTURE(cuMemsetD8_v2(memory, 1, 4));
	begin(mode);
	IN_CAPTURE(cuMemcpyDtoH_v2(&word, memory, 4));
	begin(mode);
	IN_CAPTURE(cuMemAlloc_v2(&at, 64));
	begin(mode);
	IN_CAPTURE(cuMemAllocHost_v2(&host, 64));
	begin(mode);
	IN_CAPTURE(cuEventQuery(recorded));
	begin(mode);
	IN_CAPTURE(cuEventSynchronize(recorded));
	begin(mode);
	IN_CAPTURE(cuStreamQuery(other));
	begin(mode);
	IN_CAPTURE(cuMemsetD8Async(memory, 1, 4, 0));
	begin(mode);
	IN_CAPTURE(cuStreamWaitEvent(s, recorded, 0));
	begin(mode);
	IN_CAPTURE(cuMemFree_v2(kept));
	cuMemAlloc(&kept, 64);
	begin_and_record(mode);
	IN_CAPTURE(cuEventQuery(event));
	begin_and_record(mode);
	IN_CAPTURE(cuStreamWaitEvent(other, event, 0));
	begin_and_record(mode);
	cuStreamWaitEvent(other, event, 0);
	IN_CAPTURE(cuMemsetD8Async(memory, 1, 4, other));
	begin(mode);
	IN_CAPTURE(cuMemsetD8Async(16, 1, 4, s));
}

static void captures(void) {
	size_t word;
	for (int mode = 0; mode < 3; mode++)
		in_mode(mode);
	T(cuStreamWaitEvent(other, event, 0));
	T(cuEventQuery(event));
	s = blocking;
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	IN_CAPTURE(cuMemsetD8Async(memory, 1, 4, 0));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	IN_CAPTURE(cuStreamSynchronize(0));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	IN_CAPTURE(cuMemcpyDtoH_v2(&word, memory, 4));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	IN_CAPTURE(cuEventRecord(recorded, 0));
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	IN_CAPTURE(cuStreamWaitEvent(s, event, 0));
	T(cuStreamBeginCapture_v2(0, 0));
	T(cuStreamEndCapture(s, &graph));
}

static void nodes(CUcontext c) {
	CUgraph g;
	CUgraphExec x;
	CUgraphNode a, b, n;
	cuGraphCreate(&g, 0);
	cuGraphAddEmptyNode(&a, g, 0, 0);
	cuGraphAddEmptyNode(&b, g, &a, 1);
	CUgraphNode twice[] = {a, a};
	T(cuGraphAddEmptyNode(&n, g, twice, 2));
	T(cuGraphAddDependencies_v2(g, &a, &b, 0, 1));
	T(cuGraphAddDependencies_v2(g, &a, &a, 0, 1));
	T(cuGraphAddDependencies_v2(g, &b, &a, 0, 1));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphRemoveDependencies_v2(g, &b, &a, 0, 1));
	T(cuGraphRemoveDependencies_v2(g, &b, &a, 0, 1));
	T(cuGraphInstantiateWithFlags(&x, g, 16));
	T(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
	CUDA_MEMSET_NODE_PARAMS m = {.dst = memory, .value = 1, .elementSize = 4, .width = 0, .height = 1};
	T(cuGraphAddMemsetNode(&n, g, 0, 0, &m, c));
	m.width = 4;
	m.dst = 16;
	T(cuGraphAddMemsetNode(&n, g, 0, 0, &m, c));
	m.dst = memory + 1;
	T(cuGraphAddMemsetNode(&n, g, 0, 0, &m, c));
	m.dst = memory;
	T(cuGraphAddMemsetNode(&n, g, 0, 0, &m, 0));
	CUDA_MEMCPY3D k = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory + 64, .Height = 1, .Depth = 1};
	T(cuGraphAddMemcpyNode(&n, g, 0, 0, &k, c));
	k.WidthInBytes = 4;
	k.srcDevice = 16;
	T(cuGraphAddMemcpyNode(&n, g, 0, 0, &k, c));
}

static void allocations(void) {
	CUgraph g, g2;
	CUgraphExec x, y;
	CUgraphNode a, n;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, .bytesize = 64};
	cuGraphCreate(&g, 0);
	T(cuGraphAddMemAllocNode(&a, g, 0, 0, &p));
	CUdeviceptr q = p.dptr;
	T(cuGraphClone(&g2, g));
	cuGraphCreate(&g2, 0);
	T(cuGraphAddChildGraphNode(&n, g2, 0, 0, g));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphInstantiateWithFlags(&y, g, 0));
	T(cuMemFree_v2(q));
	T(cuGraphLaunch(x, other));
	T(cuGraphLaunch(x, other));
	T(cuMemFreeAsync(q, other));
	T(cuMemFreeAsync(q, other));
	T(cuGraphLaunch(x, other));
	T(cuGraphDestroyNode(a));
	T(cuGraphAddMemFreeNode(&n, g, 0, 0, memory));
}

int main(void) {
	CUcontext c;
	cuInit(0);
	cuDevicePrimaryCtxRetain(&c, 0);
	cuCtxSetCurrent(c);
	cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
	cuStreamCreate(&blocking, CU_STREAM_DEFAULT);
	cuMemAlloc(&memory, 4096);
	cuMemAlloc(&kept, 4096);
	cuEventCreate(&event, 0);
	cuEventCreate(&recorded, 0);
	cuEventRecord(recorded, other);
	cuCtxSynchronize();
	captures();
	nodes(c);
	allocations();
	return 0;
}
