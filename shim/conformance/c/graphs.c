// Cases of graphs and of capturing streams, written by hand; see cases.c. What a call
// does to a capture is shown by the state that it leaves and by how the capture ends.
//
//   graphs [NAME...]   all that were recorded, or those named
//   graphs --list      their names
//   graphs --rest      cases that were not recorded: calls that crash NVIDIA's driver, and what came behind them
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

#include "cases.h"
#include "kernels.h"

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
#define LENGTH(a) (sizeof(a) / sizeof *(a))

static CUcontext context;
static CUmodule module;
static CUfunction fill, bump, nothing;
static CUdeviceptr memory, more;
static CUstream s, s2, plain; // plain: one that the legacy stream waits for
static CUevent e, e2;
static CUgraph g, g2;
static CUgraphExec x;
static CUgraphNode n1, n2, n3, n4;
static uint32_t *pinned;

static void begin(void) {
	if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS || cuModuleLoadData(&module, kernels) != CUDA_SUCCESS || cuMemAlloc(&memory, 65536) != CUDA_SUCCESS ||
	    cuMemAlloc(&more, 65536) != CUDA_SUCCESS)
		printf("no context, module or memory\n");
	cuModuleGetFunction(&fill, module, "fill");
	cuModuleGetFunction(&bump, module, "bump");
	cuModuleGetFunction(&nothing, module, "nothing");
	cuMemsetD8(memory, 1, 65536);
	cuMemsetD8(more, 2, 65536);
	cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING);
	cuStreamCreate(&plain, CU_STREAM_DEFAULT);
	cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
	cuEventCreate(&e2, CU_EVENT_DEFAULT);
	cuMemAllocHost((void **)&pinned, 65536);
	cuCtxSynchronize();
}

static CUresult fill_on(CUstream stream, CUdeviceptr at, uint32_t count, uint32_t value) {
	void *params[] = {&at, &count, &value};
	return cuLaunchKernel(fill, (count + 63) / 64, 1, 1, 64, 1, 1, 0, stream, params, NULL);
}

static const char *state(CUstream stream) {
	static char text[64];
	CUstreamCaptureStatus status = 9;
	CUresult r = cuStreamIsCapturing(stream, &status);
	if (r != CUDA_SUCCESS)
		snprintf(text, sizeof text, "%s", name_of(r));
	else
		snprintf(text, sizeof text, "%s", status == 0 ? "none" : status == 1 ? "active" : status == 2 ? "invalidated" : "?");
	return text;
}

static const char *type_of(CUgraphNode node) {
	static const char *const names[] = {"kernel", "memcpy", "memset", "host", "graph", "empty", "wait", "record", "signal", "semwait", "alloc", "free", "batch", "conditional"};
	CUgraphNodeType type = 99;
	if (cuGraphNodeGetType(node, &type) != CUDA_SUCCESS || (unsigned)type >= LENGTH(names))
		return "?";
	return names[type];
}

// Nodes by the numbers of their places in the graph, with their dependencies.
static void show_graph(CUgraph graph) {
	CUgraphNode nodes[64], deps[64];
	size_t count = 64, roots = 0, edges = 0;
	cuGraphGetNodes(graph, nodes, &count);
	cuGraphGetRootNodes(graph, NULL, &roots);
	cuGraphGetEdges(graph, NULL, NULL, NULL, &edges);
	SHOW("%zu nodes, %zu roots, %zu edges", count, roots, edges);
	for (size_t i = 0; i < count; i++) {
		size_t n = 64;
		printf("  %zu %s", i, type_of(nodes[i]));
		cuGraphNodeGetDependencies(nodes[i], deps, NULL, &n);
		for (size_t place = 0; place < count; place++)
			for (size_t k = 0; k < n; k++)
				if (deps[k] == nodes[place])
					printf(" <-%zu", place);
		printf("\n");
	}
}

static void end_capture(CUstream stream) {
	CUgraph graph = (CUgraph)1;
	printf("  state %s; end", state(stream));
	CUresult r = tell(cuStreamEndCapture(stream, &graph));
	SHOW("then %s, %s", state(stream), graph == NULL ? "no graph" : graph == (CUgraph)1 ? "nothing written" : "a graph");
	if (r == CUDA_SUCCESS && graph != NULL) {
		show_graph(graph);
		cuGraphDestroy(graph);
	}
}

static uint32_t word(CUdeviceptr at) {
	uint32_t v = 0;
	cuMemcpyDtoH(&v, at, 4);
	return v;
}

static void function_of_program(void *data) { ++*(int *)data; }
static void callback_of_program(CUstream stream, CUresult status, void *data) { (void)stream, (void)status, ++*(int *)data; }
static int called;

static void on_thread(void *(*run)(void *)) {
	pthread_t t;
	pthread_create(&t, NULL, run, NULL);
	pthread_join(t, NULL);
}

// --- capturing -----------------------------------------------------------------------------

static void capture_states(void) {
	begin();
	cuuint64_t id = 77;
	CUstreamCaptureStatus status;
	CUgraph graph = (CUgraph)1;
	const CUgraphNode *deps = NULL;
	size_t count = 99;
	T(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
	T(cuStreamBeginCapture(s, 3));
	T(cuStreamEndCapture(s, &graph));
	T(cuStreamEndCapture(s, NULL));
	T(cuStreamEndCapture(NULL, &graph));
	T(cuStreamGetCaptureInfo(s, &status, &id, &graph, &deps, NULL, &count));
	SHOW("%d", status);
	T(cuStreamGetCaptureInfo(s, NULL, &id, &graph, &deps, NULL, &count));
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW("%s", state(s));
	SHOW("legacy %s", state(NULL));
	T(cuStreamGetCaptureInfo(s, &status, &id, &graph, &deps, NULL, &count));
	SHOW("%d, id %d, graph %d, %zu", status, id != 77, graph != NULL, count);
	T(cuStreamGetCaptureInfo(s2, &status, &id, &graph, &deps, NULL, &count));
	SHOW("%d", status);
	T(cuStreamEndCapture(s2, &graph));
	T(cuStreamEndCapture(s, NULL));
	SHOW("%s", state(s));
	end_capture(s);
	T(cuStreamBeginCapture(plain, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	SHOW("legacy %s", state(NULL));
	SHOW("named legacy %s", state(CU_STREAM_LEGACY));
	T(cuStreamGetCaptureInfo(NULL, &status, &id, &graph, &deps, NULL, &count));
	end_capture(plain);
	T(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	T(fill_on(CU_STREAM_PER_THREAD, memory, 16, 1));
	end_capture(CU_STREAM_PER_THREAD);
}

static void capture_line(void) {
	begin();
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(fill_on(s, memory, 16, 1));
	T(cuMemsetD32Async(memory, 5, 4, s));
	T(cuMemsetD2D8Async(memory, 16, 5, 4, 2, s));
	T(cuMemsetD32Async(memory, 5, 0, s));
	T(cuMemcpyDtoDAsync(more, memory, 64, s));
	T(cuMemcpyDtoDAsync(more, memory, 0, s));
	T(cuMemcpyHtoDAsync(memory, pinned, 64, s));
	T(cuMemcpyDtoHAsync(pinned, memory, 64, s));
	T(cuMemcpyAsync(more, memory, 64, s));
	T(cuLaunchHostFunc(s, function_of_program, &called));
	T(cuEventRecord(e, s));
	T(cuEventRecordWithFlags(e2, s, CU_EVENT_RECORD_EXTERNAL));
	T(cuStreamWaitEvent(s, e2, CU_EVENT_WAIT_EXTERNAL));
	T(cuMemcpyDtoDAsync(more, 0x1234, 64, s));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuLaunchKernel(fill, 0, 1, 1, 64, 1, 1, 0, s, NULL, NULL));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuMemsetD32Async(0x1234, 5, 4, s));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	end_capture(s);
	SHOW("called %d", called);
}

static void *touches(void *p) {
	((volatile char *)p)[0] = 1;
	return p;
}

// What is not permitted: each in a capture of its own.
#define FORBIDDEN(mode, stream, call) \
	do { \
		cuStreamBeginCapture(stream, mode); \
		fill_on(stream, memory, 4, 1); \
		T(call); \
		end_capture(stream); \
	} while (0)

static void forbid(CUstreamCaptureMode mode, CUstream stream) {
	CUdeviceptr at = 0, keep = 0;
	void *host = NULL, *kept = NULL;
	CUmodule m;
	CUevent fresh;
	CUstream made;
	CUfunction f;
	float ms;
	int v;
	size_t a, b;
	uint32_t value = 3;
	cuMemAlloc(&keep, 4096);
	cuMemAllocHost(&kept, 4096);
	cuEventRecord(e2, s2);
	cuCtxSynchronize();
	SHOW("mode %d, %s", mode, stream == plain ? "blocking" : "not blocking");
	FORBIDDEN(mode, stream, cuStreamSynchronize(stream));
	FORBIDDEN(mode, stream, cuStreamQuery(stream));
	FORBIDDEN(mode, stream, cuCtxSynchronize());
	FORBIDDEN(mode, stream, cuStreamSynchronize(s2));
	FORBIDDEN(mode, stream, cuStreamQuery(s2));
	FORBIDDEN(mode, stream, cuStreamSynchronize(NULL));
	FORBIDDEN(mode, stream, cuStreamQuery(NULL));
	FORBIDDEN(mode, stream, fill_on(NULL, more, 4, 1));
	FORBIDDEN(mode, stream, fill_on(s2, more, 4, 1));
	FORBIDDEN(mode, stream, cuMemcpyHtoD(more, &value, 4));
	FORBIDDEN(mode, stream, cuMemcpyDtoH(&value, more, 4));
	FORBIDDEN(mode, stream, cuMemcpyDtoD(more, memory, 4));
	FORBIDDEN(mode, stream, cuMemsetD8(more, 1, 4));
	FORBIDDEN(mode, stream, cuMemcpyDtoDAsync(more, memory, 4, NULL));
	FORBIDDEN(mode, stream, cuMemAlloc(&at, 4096));
	FORBIDDEN(mode, stream, cuMemFree(keep));
	FORBIDDEN(mode, stream, cuMemHostAlloc(&host, 4096, 0));
	FORBIDDEN(mode, stream, cuMemFreeHost(kept));
	FORBIDDEN(mode, stream, cuMemGetInfo(&a, &b));
	FORBIDDEN(mode, stream, cuModuleLoadData(&m, kernels));
	FORBIDDEN(mode, stream, cuModuleGetFunction(&f, module, "rotate"));
	FORBIDDEN(mode, stream, cuEventCreate(&fresh, 0));
	FORBIDDEN(mode, stream, cuEventDestroy(fresh));
	FORBIDDEN(mode, stream, cuStreamCreate(&made, 0));
	FORBIDDEN(mode, stream, cuStreamDestroy(made));
	FORBIDDEN(mode, stream, cuEventQuery(e2));
	FORBIDDEN(mode, stream, cuEventSynchronize(e2));
	FORBIDDEN(mode, stream, cuEventElapsedTime(&ms, e2, e2));
	FORBIDDEN(mode, stream, cuEventRecord(e2, NULL));
	FORBIDDEN(mode, stream, cuStreamWaitEvent(NULL, e2, 0));
	FORBIDDEN(mode, stream, cuStreamAddCallback(stream, callback_of_program, &called, 0));
	FORBIDDEN(mode, stream, cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, fill));
	FORBIDDEN(mode, stream, cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, fill, 64, 0));
	FORBIDDEN(mode, stream, cuMemAllocAsync(&at, 4096, s2));
	FORBIDDEN(mode, stream, cuMemFreeAsync(at, s2));
	FORBIDDEN(mode, stream, cuStreamGetPriority(stream, &v));
	FORBIDDEN(mode, stream, cuMemHostRegister(touches(malloc(8192)), 8192, 0));
	FORBIDDEN(mode, stream, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
}

static void forbidden_global(void) {
	begin();
	forbid(CU_STREAM_CAPTURE_MODE_GLOBAL, s);
}
static void forbidden_local(void) {
	begin();
	forbid(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, s);
}
static void forbidden_relaxed(void) {
	begin();
	forbid(CU_STREAM_CAPTURE_MODE_RELAXED, s);
}
static void forbidden_blocking(void) {
	begin();
	forbid(CU_STREAM_CAPTURE_MODE_RELAXED, plain);
}

static void *other_thread(void *unused) {
	CUdeviceptr at;
	CUgraph graph = NULL;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	(void)unused;
	cuCtxSetCurrent(context);
	T(cuEventQuery(e2));
	SHOW("%s", state(s));
	T(cuMemAlloc(&at, 4096));
	SHOW("%s", state(s));
	T(cuStreamEndCapture(s, &graph));
	T(cuThreadExchangeStreamCaptureMode(&mode));
	T(cuMemAlloc(&at, 4096));
	SHOW("%s", state(s));
	T(fill_on(s, memory, 4, 1));
	SHOW("%s", state(s));
	return NULL;
}

static void threads_global(void) {
	begin();
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	on_thread(other_thread);
	end_capture(s);
}
static void threads_local(void) {
	begin();
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	on_thread(other_thread);
	end_capture(s);
}
static void *ends(void *unused) {
	cuCtxSetCurrent(context);
	end_capture(s);
	return unused;
}
static void threads_relaxed(void) {
	begin();
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	T(fill_on(s, memory, 4, 1));
	on_thread(ends);
}

static void exchange(void) {
	begin();
	CUstreamCaptureMode mode = 7;
	T(cuThreadExchangeStreamCaptureMode(&mode));
}

static void exchange_rest(void) {
	begin();
	CUdeviceptr at;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	T(cuThreadExchangeStreamCaptureMode(NULL));
	T(cuThreadExchangeStreamCaptureMode(&mode));
	SHOW("%d", mode);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuMemAlloc(&at, 4096));
	SHOW("%s", state(s));
	mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	T(cuThreadExchangeStreamCaptureMode(&mode));
	SHOW("%d", mode);
	T(cuMemAlloc(&at, 4096));
	end_capture(s);
}

static void forks(void) {
	begin();
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	T(fill_on(s, memory, 4, 1));
	T(cuEventRecord(e, s));
	T(cuStreamWaitEvent(s2, e, 0));
	SHOW("%s", state(s2));
	T(cuStreamEndCapture(s2, &g));
	T(fill_on(s2, memory, 4, 1));
	T(fill_on(s, more, 4, 1));
	T(cuEventRecord(e2, s2));
	T(cuStreamWaitEvent(s, e2, 0));
	T(fill_on(s, more, 4, 1));
	end_capture(s);
	SHOW("%s", state(s2));
	T(cuEventQuery(e));
	T(cuEventSynchronize(e));
	T(cuStreamWaitEvent(s, e, 0));
	SHOW("%s", state(s));
	T(cuEventRecord(e, s));
	T(cuEventQuery(e) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : CUDA_SUCCESS);

	// a fork without work, not joined
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	T(cuStreamWaitEvent(s2, e, 0));
	end_capture(s);
	SHOW("%s", state(s2));
	// a fork with work, not joined
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	cuStreamWaitEvent(s2, e, 0);
	fill_on(s2, memory, 4, 1);
	end_capture(s);
	SHOW("%s", state(s2));
	// joined, then more work
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	cuStreamWaitEvent(s2, e, 0);
	fill_on(s2, memory, 4, 1);
	cuEventRecord(e2, s2);
	cuStreamWaitEvent(s, e2, 0);
	fill_on(s2, memory, 4, 1);
	end_capture(s);
	// joined at the end, without anything behind
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuEventRecord(e, s);
	cuStreamWaitEvent(s2, e, 0);
	fill_on(s2, memory, 4, 1);
	fill_on(s2, memory, 4, 1);
	cuEventRecord(e2, s2);
	cuStreamWaitEvent(s, e2, 0);
	end_capture(s);
	// the forked stream is destroyed
	CUstream gone;
	cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING);
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	cuStreamWaitEvent(gone, e, 0);
	fill_on(gone, memory, 4, 1);
	T(cuStreamDestroy(gone));
	end_capture(s);
	// the origin is destroyed
	cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING);
	cuStreamBeginCapture(gone, CU_STREAM_CAPTURE_MODE_GLOBAL);
	T(cuStreamDestroy(gone));
	T(cuMemAlloc(&memory, 4));
}

static void events_in_captures(void) {
	begin();
	cuEventRecord(e2, s2);
	cuStreamSynchronize(s2);
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	T(cuStreamWaitEvent(s, e2, 0));
	end_capture(s);
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	T(cuStreamWaitEvent(s, e, 0)); // never recorded
	end_capture(s);
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	T(cuEventQuery(e));
	end_capture(s);
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	T(cuEventSynchronize(e));
	end_capture(s);
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e2, s);
	float ms;
	T(cuEventElapsedTime(&ms, e2, e2));
	end_capture(s);
	T(cuEventElapsedTime(&ms, e2, e2));
	// two captures
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	T(cuStreamBeginCapture(s2, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	fill_on(s, memory, 4, 1);
	fill_on(s2, memory, 4, 1);
	cuEventRecord(e, s);
	T(cuStreamWaitEvent(s2, e, 0));
	SHOW("%s", state(s));
	end_capture(s2);
	end_capture(s);
	// an event of a capture that ended, in another
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	end_capture(s);
	cuStreamBeginCapture(s2, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	T(cuStreamWaitEvent(s2, e, 0));
	end_capture(s2);
	// the legacy stream waits for what is captured
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	cuEventRecord(e, s);
	T(cuStreamWaitEvent(NULL, e, 0));
	end_capture(s);
	// the forked stream has been given work before
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	fill_on(s, memory, 4, 1);
	cuEventRecord(e, s);
	T(fill_on(s2, memory, 4, 1));
	T(cuStreamWaitEvent(s2, e, 0));
	T(cuEventRecord(e2, s2));
	T(cuStreamWaitEvent(s, e2, 0));
	end_capture(s);
	// external ones
	T(cuEventRecordWithFlags(e2, s, CU_EVENT_RECORD_EXTERNAL));
	T(cuStreamWaitEvent(s, e2, CU_EVENT_WAIT_EXTERNAL));
	T(cuEventRecordWithFlags(e2, s, 2));
	T(cuStreamWaitEvent(s, e2, 2));
	// invalidated, and what calls answer then
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuStreamSynchronize(s);
	T(fill_on(s, memory, 4, 1));
	T(cuMemsetD8Async(memory, 1, 4, s));
	T(cuEventRecord(e, s));
	T(cuStreamWaitEvent(s, e2, 0));
	T(cuStreamSynchronize(s));
	T(cuStreamQuery(s));
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CUstreamCaptureStatus status = 9;
	cuuint64_t id = 0;
	T(cuStreamGetCaptureInfo(s, &status, &id, NULL, NULL, NULL, NULL));
	SHOW("%d", status);
	CUdeviceptr at;
	T(cuMemAlloc(&at, 64));
	end_capture(s);
}

static void dependencies_of_captures(void) {
	begin();
	CUstreamCaptureStatus status;
	cuuint64_t id;
	CUgraph graph;
	const CUgraphNode *deps;
	size_t count;
	T(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	fill_on(s, memory, 4, 1);
	cuStreamGetCaptureInfo(s, &status, &id, &graph, &deps, NULL, &count);
	n1 = deps[0];
	SHOW("%zu %s", count, type_of(n1));
	T(cuGraphAddEmptyNode(&n2, graph, &n1, 1));
	T(cuGraphAddEmptyNode(&n3, graph, NULL, 0));
	T(cuStreamUpdateCaptureDependencies(s, &n2, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	cuStreamGetCaptureInfo(s, &status, &id, &graph, &deps, NULL, &count);
	SHOW("%zu", count);
	fill_on(s, memory, 4, 1);
	T(cuStreamUpdateCaptureDependencies(s, &n3, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	T(cuStreamUpdateCaptureDependencies(s, &n3, NULL, 1, 7));
	fill_on(s, memory, 4, 1);
	T(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	fill_on(s, memory, 4, 1);
	cuGraphCreate(&g, 0);
	cuGraphAddEmptyNode(&n4, g, NULL, 0);
	T(cuStreamUpdateCaptureDependencies(s, &n4, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	T(cuGraphDestroy(graph));
	end_capture(s);
	// into a graph of the program's
	cuGraphCreate(&g2, 0);
	cuGraphAddEmptyNode(&n1, g2, NULL, 0);
	T(cuStreamBeginCaptureToGraph(s, g2, &n4, NULL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	SHOW("%s", state(s));
	T(cuStreamBeginCaptureToGraph(s, g2, &n1, NULL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	T(fill_on(s, memory, 4, 1));
	graph = NULL;
	T(cuStreamEndCapture(s, &graph));
	SHOW("the same %d", graph == g2);
	show_graph(g2);
	T(cuStreamBeginCaptureToGraph(s, g2, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	T(fill_on(s, memory, 4, 1));
	T(cuStreamSynchronize(s));
	graph = (CUgraph)1;
	T(cuStreamEndCapture(s, &graph));
}

// --- graphs ------------------------------------------------------------------------------------

static CUDA_KERNEL_NODE_PARAMS kernel_params(CUdeviceptr *at, uint32_t *count, uint32_t *value, void **list) {
	list[0] = at, list[1] = count, list[2] = value;
	return (CUDA_KERNEL_NODE_PARAMS){.func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1, .kernelParams = list};
}

static void structure(void) {
	begin();
	CUgraphNode nodes[8], from[8], to[8];
	size_t count;
	T(cuGraphCreate(NULL, 0));
	T(cuGraphCreate(&g, 1));
	T(cuGraphCreate(&g, 0));
	T(cuGraphAddEmptyNode(&n1, g, NULL, 0));
	T(cuGraphAddEmptyNode(&n2, g, &n1, 1));
	T(cuGraphAddEmptyNode(&n3, g, &n1, 1));
	T(cuGraphAddEmptyNode(NULL, g, &n1, 1));
	T(cuGraphAddEmptyNode(&n4, NULL, NULL, 0));
	T(cuGraphAddEmptyNode(&n4, g, NULL, 1));
	CUgraphNode twice[] = {n1, n1};
	T(cuGraphAddEmptyNode(&n4, g, twice, 2));
	show_graph(g);
	CUgraphNode both[] = {n2, n3};
	T(cuGraphAddEmptyNode(&n4, g, both, 2));
	T(cuGraphAddDependencies(g, &n1, &n2, NULL, 1));
	T(cuGraphAddDependencies(g, &n1, &n1, NULL, 1));
	T(cuGraphAddDependencies(g, &n1, &n4, NULL, 1));
	T(cuGraphAddDependencies(g, NULL, NULL, NULL, 0));
	T(cuGraphRemoveDependencies(g, &n1, &n4, NULL, 1));
	T(cuGraphRemoveDependencies(g, &n1, &n4, NULL, 1));
	T(cuGraphAddDependencies(g, &n4, &n1, NULL, 1)); // a cycle
	show_graph(g);
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphRemoveDependencies(g, &n4, &n1, NULL, 1));
	T(cuGraphInstantiateWithFlags(&x, g, 16));
	T(cuGraphInstantiateWithFlags(NULL, g, 0));
	T(cuGraphInstantiateWithFlags(&x, NULL, 0));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	cuuint64_t flags = 9;
	T(cuGraphExecGetFlags(x, &flags));
	SHOW("%d", (int)flags);
	T(cuGraphExecGetFlags(x, NULL));
	T(cuGraphLaunch(x, s));
	T(cuGraphLaunch(NULL, s));
	T(cuGraphUpload(x, s));
	T(cuGraphGetNodes(g, NULL, NULL));
	count = 2;
	T(cuGraphGetNodes(g, nodes, &count));
	SHOW("%zu", count);
	count = 8;
	nodes[7] = (CUgraphNode)1;
	T(cuGraphGetNodes(g, nodes, &count));
	SHOW("%zu %d", count, nodes[7] == NULL);
	count = 8;
	T(cuGraphGetEdges(g, from, to, NULL, &count));
	SHOW("%zu", count);
	count = 8;
	T(cuGraphGetEdges(g, from, NULL, NULL, &count));
	count = 8;
	T(cuGraphNodeGetDependentNodes(n1, nodes, NULL, &count));
	SHOW("%zu %d", count, nodes[0] == n2 && nodes[1] == n3);
	T(cuGraphClone(&g2, g));
	T(cuGraphNodeFindInClone(&nodes[0], n2, g2));
	T(cuGraphNodeFindInClone(&nodes[0], n2, g));
	T(cuGraphDestroyNode(n2));
	show_graph(g);
	show_graph(g2);
	T(cuGraphNodeFindInClone(&nodes[0], n3, g2));
	T(cuGraphAddChildGraphNode(&n2, g2, NULL, 0, g));
}

static void structure_rest(void) {
	begin();
	cuGraphCreate(&g, 0);
	cuGraphAddEmptyNode(&n1, g, NULL, 0);
	cuGraphAddEmptyNode(&n3, g, &n1, 1);
	cuGraphInstantiateWithFlags(&x, g, 0);
	cuGraphClone(&g2, g);
	T(cuGraphAddChildGraphNode(&n2, g2, NULL, 0, g));
	T(cuGraphAddChildGraphNode(&n2, g2, NULL, 0, g2));
	show_graph(g2);
	CUgraph child = NULL;
	T(cuGraphChildGraphNodeGetGraph(n2, &child));
	SHOW("%d", child != g2);
	T(cuGraphDestroy(child));
	T(cuGraphChildGraphNodeGetGraph(n3, &child));
	T(cuGraphAddDependencies(g, &n3, &n2, NULL, 1)); // of two graphs
	T(cuGraphExecDestroy(x));
	T(cuGraphDestroy(NULL));
	T(cuGraphExecDestroy(NULL));
	T(cuGraphDestroyNode(NULL));
	T(cuGraphDestroy(g));
	CUDA_GRAPH_INSTANTIATE_PARAMS ip = {.flags = 0};
	T(cuGraphInstantiateWithParams(&x, g2, &ip));
	SHOW("%d", ip.result_out);
	ip = (CUDA_GRAPH_INSTANTIATE_PARAMS){.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hUploadStream = s};
	T(cuGraphInstantiateWithParams(&x, g2, &ip));
	ip = (CUDA_GRAPH_INSTANTIATE_PARAMS){.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, .hUploadStream = s};
	T(cuGraphInstantiateWithParams(&x, g2, &ip));
	T(cuGraphInstantiateWithFlags(&x, g2, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD));
	T(cuGraphInstantiateWithFlags(&x, g2, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));
}

static void kernels_of_graphs(void) {
	begin();
	CUdeviceptr at = memory;
	uint32_t count = 4, value = 100;
	void *list[3];
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(&at, &count, &value, list), q;
	cuGraphCreate(&g, 0);
	T(cuGraphAddKernelNode(&n1, g, NULL, 0, &p));
	value = 7; // copied
	T(cuGraphKernelNodeGetParams(n1, &q));
	SHOW("%u %u %d %d %d", *(uint32_t *)q.kernelParams[1], *(uint32_t *)q.kernelParams[2], q.func == fill, q.kern == NULL, q.ctx == context);
	SHOW("extra %d, ctx %d", q.extra == NULL, q.ctx != NULL);
	p.gridDimX = 0;
	T(cuGraphAddKernelNode(&n2, g, NULL, 0, &p));
	p.gridDimX = 1;
	p.blockDimX = 5000;
	T(cuGraphAddKernelNode(&n2, g, NULL, 0, &p));
	p.blockDimX = 64;
	p.kernelParams = NULL;
	T(cuGraphAddKernelNode(&n2, g, NULL, 0, &p));
	p.kernelParams = list;
	p.func = NULL;
	T(cuGraphAddKernelNode(&n2, g, NULL, 0, &p));
	p.func = fill;
	T(cuGraphAddKernelNode(&n2, g, NULL, 0, NULL));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuGraphKernelNodeSetParams(n1, &p)); // the one that is instantiated stays
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuGraphExecKernelNodeSetParams(x, n1, &p));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	void *one[] = {&at};
	CUDA_KERNEL_NODE_PARAMS other = p;
	other.func = bump;
	other.kernelParams = one;
	T(cuGraphExecKernelNodeSetParams(x, n1, &other));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuGraphNodeSetEnabled(x, n1, 0));
	unsigned enabled = 9;
	T(cuGraphNodeGetEnabled(x, n1, &enabled));
	SHOW("%u", enabled);
	cuMemsetD32(memory, 3, 1);
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuGraphNodeSetEnabled(x, n1, 1));
	T(cuGraphLaunch(x, NULL));
	T(cuCtxSynchronize());
	SHOW("%u", word(memory));
	T(cuGraphAddEmptyNode(&n2, g, NULL, 0));
	T(cuGraphNodeSetEnabled(x, n2, 0));
	T(cuGraphExecKernelNodeSetParams(x, n2, &p));
	T(cuGraphKernelNodeGetParams(n2, &q));
	CUkernelNodeAttrValue v = {.cooperative = 1};
	T(cuGraphKernelNodeSetAttribute(n1, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	memset(&v, 0, sizeof v);
	T(cuGraphKernelNodeGetAttribute(n1, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	SHOW("%d", v.cooperative);
	v.priority = -2;
	T(cuGraphKernelNodeSetAttribute(n1, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	v.priority = 0;
	T(cuGraphKernelNodeGetAttribute(n1, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	SHOW("%d", v.priority);
	T(cuGraphAddKernelNode(&n3, g, NULL, 0, &p));
	T(cuGraphKernelNodeCopyAttributes(n3, n1));
	T(cuGraphKernelNodeGetAttribute(n3, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	SHOW("%d", v.priority);
	T(cuGraphKernelNodeGetAttribute(n2, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	T(cuGraphKernelNodeSetAttribute(n1, 99, &v));
	CUgraphNodeParams np;
	memset(&np, 0, sizeof np);
	np.type = CU_GRAPH_NODE_TYPE_KERNEL;
	np.kernel = p;
	T(cuGraphAddNode(&n4, g, &n1, NULL, 1, &np));
	SHOW("%s", type_of(n4));
	np.type = CU_GRAPH_NODE_TYPE_HOST;
	np.host = (CUDA_HOST_NODE_PARAMS){NULL, NULL};
	T(cuGraphAddNode(&n4, g, &n1, NULL, 1, &np));
	np.type = 77;
	T(cuGraphAddNode(&n4, g, &n1, NULL, 1, &np));
	np.type = CU_GRAPH_NODE_TYPE_EMPTY;
	T(cuGraphAddNode(&n4, g, &n1, NULL, 1, &np));
	memset(&np, 0, sizeof np);
	np.type = CU_GRAPH_NODE_TYPE_KERNEL;
	np.kernel = p;
	np.reserved2 = 1;
	T(cuGraphAddNode(&n4, g, &n1, NULL, 1, &np));
	np.reserved2 = 0;
	T(cuGraphNodeSetParams(n1, &np));
	T(cuGraphNodeSetParams(n4, &np));
	T(cuGraphExecNodeSetParams(x, n1, &np));
}

static void memory_of_graphs(void) {
	begin();
	CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = memory, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = more, .WidthInBytes = 64, .Height = 1, .Depth = 1}, d;
	CUDA_MEMSET_NODE_PARAMS m = {.dst = memory, .value = 0x01020304, .elementSize = 4, .width = 16, .height = 1}, m2;
	cuGraphCreate(&g, 0);
	T(cuGraphAddMemsetNode(&n1, g, NULL, 0, &m, context));
	T(cuGraphAddMemcpyNode(&n2, g, &n1, 1, &c, context));
	if (T(cuGraphAddMemcpyNode(&n3, g, &n1, 1, &c, NULL)) == CUDA_SUCCESS)
		cuGraphDestroyNode(n3);
	c.srcDevice = 0x1234;
	T(cuGraphAddMemcpyNode(&n3, g, &n1, 1, &c, context));
	c.srcDevice = memory;
	c.WidthInBytes = 0;
	T(cuGraphAddMemcpyNode(&n3, g, &n1, 1, &c, context));
	c.WidthInBytes = 64;
	c.Height = 0;
	T(cuGraphAddMemcpyNode(&n3, g, &n1, 1, &c, context));
	c.Height = 1;
	m.elementSize = 3;
	T(cuGraphAddMemsetNode(&n3, g, NULL, 0, &m, context));
	m.elementSize = 4;
	m.width = 0;
	T(cuGraphAddMemsetNode(&n3, g, NULL, 0, &m, context));
	m.width = 16;
	m.height = 0;
	T(cuGraphAddMemsetNode(&n3, g, NULL, 0, &m, context));
	m.height = 1;
	m.dst = memory + 1;
	T(cuGraphAddMemsetNode(&n3, g, NULL, 0, &m, context));
	m.dst = 0x1000;
	T(cuGraphAddMemsetNode(&n3, g, NULL, 0, &m, context));
	m.dst = memory;
	if (T(cuGraphAddMemsetNode(&n3, g, NULL, 0, &m, NULL)) == CUDA_SUCCESS)
		cuGraphDestroyNode(n3);
	T(cuGraphMemcpyNodeGetParams(n2, &d));
	SHOW("%d %d %d %zu %zu", d.srcDevice == memory, d.srcMemoryType, d.dstMemoryType, d.WidthInBytes, d.srcPitch);
	T(cuGraphMemsetNodeGetParams(n1, &m2));
	SHOW("%d %x %u %zu %zu %zu", m2.dst == memory, m2.value, m2.elementSize, m2.width, m2.height, m2.pitch);
	T(cuGraphMemsetNodeGetParams(n2, &m2));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%x %x", word(more), word(more + 60));
	m.value = 5;
	T(cuGraphExecMemsetNodeSetParams(x, n1, &m, context));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%x", word(more));
	m.height = 2;
	m.pitch = 128;
	T(cuGraphExecMemsetNodeSetParams(x, n1, &m, context));
	m.height = 1;
	m.elementSize = 1;
	T(cuGraphExecMemsetNodeSetParams(x, n1, &m, context));
	c.dstMemoryType = CU_MEMORYTYPE_HOST;
	c.dstHost = pinned;
	T(cuGraphExecMemcpyNodeSetParams(x, n2, &c, context));
	c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	c.WidthInBytes = 32;
	T(cuGraphExecMemcpyNodeSetParams(x, n2, &c, context));
	c.srcDevice = memory + 4;
	T(cuGraphExecMemcpyNodeSetParams(x, n2, &c, context));
	T(cuGraphNodeSetEnabled(x, n1, 0));
	T(cuGraphNodeSetEnabled(x, n2, 0));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	// host nodes and memory of the program's
	CUgraph h;
	uint32_t value = 41;
	CUDA_HOST_NODE_PARAMS hp = {function_of_program, &value}, hq;
	cuGraphCreate(&h, 0);
	T(cuGraphAddHostNode(&n1, h, NULL, 0, &hp));
	T(cuGraphHostNodeGetParams(n1, &hq));
	SHOW("%d", hq.fn == function_of_program && hq.userData == &value);
	c = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = &value, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory, .WidthInBytes = 4, .Height = 1, .Depth = 1};
	T(cuGraphAddMemcpyNode(&n2, h, &n1, 1, &c, context));
	CUgraphExec hx;
	T(cuGraphInstantiateWithFlags(&hx, h, 0));
	T(cuGraphNodeSetEnabled(hx, n1, 0));
	T(cuGraphLaunch(hx, s));
	T(cuGraphLaunch(hx, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", value); // when the copy reads it differs, see README.md
	hp.fn = NULL;
	T(cuGraphAddHostNode(&n3, h, NULL, 0, &hp));
	T(cuGraphAddEventRecordNode(&n3, h, NULL, 0, NULL));
	T(cuGraphAddEventRecordNode(&n3, h, NULL, 0, e));
	T(cuGraphAddEventWaitNode(&n4, h, NULL, 0, e));
	CUevent got = NULL;
	T(cuGraphEventRecordNodeGetEvent(n3, &got));
	SHOW("%d", got == e);
	T(cuGraphEventWaitNodeGetEvent(n3, &got));
	T(cuGraphEventRecordNodeSetEvent(n3, e2));
	T(cuGraphExecEventRecordNodeSetEvent(hx, n3, e2));
}

static void updates(void) {
	begin();
	CUdeviceptr at = memory;
	uint32_t count = 4, value = 100;
	void *list[3], *one[] = {&at};
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(&at, &count, &value, list), b = p;
	CUgraphExecUpdateResultInfo info;
	b.func = bump;
	b.kernelParams = one;
	cuGraphCreate(&g, 0);
	cuGraphAddKernelNode(&n1, g, NULL, 0, &p);
	cuGraphAddEmptyNode(&n2, g, &n1, 1);
	cuGraphInstantiateWithFlags(&x, g, 0);
	value = 200;
	cuGraphCreate(&g2, 0);
	cuGraphAddKernelNode(&n3, g2, NULL, 0, &p);
	cuGraphAddEmptyNode(&n4, g2, &n3, 1);
	T(cuGraphExecUpdate(x, g2, &info));
	SHOW("%d %d", info.result, info.errorNode == NULL);
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	cuGraphKernelNodeSetParams(n3, &b);
	T(cuGraphExecUpdate(x, g2, &info));
	SHOW("%d %d", info.result, info.errorNode == NULL);
	cuGraphAddEmptyNode(&n4, g2, NULL, 0);
	T(cuGraphExecUpdate(x, g2, &info));
	SHOW("%d %d %d", info.result, info.errorNode == NULL, info.errorFromNode == NULL);
	cuGraphDestroyNode(n4);
	CUgraph other;
	cuGraphCreate(&other, 0);
	cuGraphAddEmptyNode(&n3, other, NULL, 0);
	cuGraphAddEmptyNode(&n4, other, &n3, 1);
	T(cuGraphExecUpdate(x, other, &info));
	SHOW("%d %d %d", info.result, info.errorNode == n3, info.errorFromNode == NULL);
	CUgraph loose;
	cuGraphCreate(&loose, 0);
	cuGraphAddKernelNode(&n3, loose, NULL, 0, &p);
	cuGraphAddEmptyNode(&n4, loose, NULL, 0);
	T(cuGraphExecUpdate(x, loose, &info));
	SHOW("%d %d %d", info.result, info.errorNode == n4, info.errorFromNode == NULL);
	T(cuGraphExecUpdate(x, g2, NULL));
	T(cuGraphExecUpdate(NULL, g2, &info));
	// children
	CUgraph parent, kid;
	CUgraphExec px;
	value = 5;
	cuGraphCreate(&parent, 0);
	cuGraphCreate(&kid, 0);
	cuGraphAddKernelNode(&n3, kid, NULL, 0, &p);
	T(cuGraphAddChildGraphNode(&n4, parent, NULL, 0, kid));
	CUgraph inner;
	CUgraphNode node;
	size_t n = 1;
	cuGraphChildGraphNodeGetGraph(n4, &inner);
	T(cuGraphGetNodes(inner, &node, &n));
	T(cuGraphInstantiateWithFlags(&px, parent, 0));
	value = 6;
	T(cuGraphExecKernelNodeSetParams(px, node, &p));
	T(cuGraphExecKernelNodeSetParams(px, n3, &p));
	T(cuGraphLaunch(px, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	value = 8;
	cuGraphKernelNodeSetParams(n3, &p);
	T(cuGraphExecChildGraphNodeSetParams(px, n4, kid));
	T(cuGraphLaunch(px, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuGraphExecChildGraphNodeSetParams(px, n4, other));
	T(cuGraphNodeSetEnabled(px, n4, 0));
	T(cuGraphAddEmptyNode(&n2, inner, NULL, 0));
	T(cuGraphNodeFindInClone(&n2, n3, inner));
}

// --- memory that graphs allocate ----------------------------------------------------------------

static void allocations(void) {
	begin();
	CUDA_MEM_ALLOC_NODE_PARAMS a = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, .bytesize = 4096}, got;
	cuuint64_t used = 9;
	T(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	SHOW("%d", (int)used);
	T(cuDeviceGetGraphMemAttribute(0, 9, &used));
	T(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	used = 0;
	T(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
	used = 5;
	T(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
	T(cuDeviceGraphMemTrim(0));
	T(cuDeviceGraphMemTrim(99));
	cuGraphCreate(&g, 0);
	a.bytesize = 0;
	T(cuGraphAddMemAllocNode(&n1, g, NULL, 0, &a));
	a.bytesize = 4096;
	a.poolProps.location.id = 99;
	T(cuGraphAddMemAllocNode(&n1, g, NULL, 0, &a));
	a.poolProps.location.id = 0;
	T(cuGraphAddMemAllocNode(&n1, g, NULL, 0, &a));
	SHOW("%d", a.dptr != 0);
	T(cuGraphMemAllocNodeGetParams(n1, &got));
	SHOW("%d %zu", got.dptr == a.dptr, got.bytesize);
	CUDA_MEMSET_NODE_PARAMS m = {.dst = a.dptr, .value = 7, .elementSize = 4, .width = 16, .height = 1};
	T(cuGraphAddMemsetNode(&n2, g, &n1, 1, &m, context));
	CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a.dptr, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = more, .WidthInBytes = 64, .Height = 1, .Depth = 1};
	T(cuGraphAddMemcpyNode(&n3, g, &n2, 1, &c, context));
	T(cuGraphAddMemFreeNode(&n4, g, &n3, 1, memory));
	T(cuMemFree(a.dptr));
	T(cuGraphClone(&g2, g));
	cuGraphCreate(&g2, 0);
	CUgraphNode child;
	T(cuGraphAddChildGraphNode(&child, g2, NULL, 0, g));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	CUgraphExec x2;
	T(cuGraphInstantiateWithFlags(&x2, g, 0));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(more));
	T(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	SHOW("%d", used > 0);
	T(cuGraphLaunch(x, s)); // what it allocated is not free
	T(cuMemsetD8(a.dptr, 1, 4096));
	T(cuMemFreeAsync(a.dptr, s));
	T(cuMemFreeAsync(a.dptr, s));
	T(cuGraphLaunch(x, s));
	T(cuMemFree(a.dptr));
	T(cuMemFree(a.dptr));
	T(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	SHOW("%d", used > 0);
	T(cuGraphDestroyNode(n3));
	T(cuGraphRemoveDependencies(g, &n2, &n3, NULL, 1));
	T(cuGraphNodeSetEnabled(x, n1, 0));
	T(cuGraphExecDestroy(x));
	// freed in the graph, as well
	T(cuGraphAddMemFreeNode(&n4, g, &n3, 1, a.dptr));
	CUdeviceptr freed = 0;
	T(cuGraphMemFreeNodeGetParams(n4, &freed));
	SHOW("%d", freed == a.dptr);
	CUgraphNode again;
	T(cuGraphAddMemFreeNode(&again, g, &n3, 1, a.dptr));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphLaunch(x, s));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	T(cuMemFree(a.dptr));
	CUgraphExecUpdateResultInfo info;
	T(cuGraphExecUpdate(x, g, &info));
	T(cuGraphExecDestroy(x));
	T(cuGraphDestroy(g));
	// freed by the next launch
	cuGraphCreate(&g, 0);
	cuGraphAddMemAllocNode(&n1, g, NULL, 0, &a);
	T(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	T(cuGraphLaunch(x, s));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	T(cuGraphExecDestroy(x));
	T(cuGraphDestroy(g));
	T(cuMemsetD8(a.dptr, 1, 4096));
	T(cuMemFree(a.dptr));
	// captured
	CUdeviceptr in = 0;
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuMemAllocAsync(&in, 4096, s));
	T(cuMemsetD8Async(in, 9, 4096, s));
	T(cuMemcpyDtoDAsync(more, in, 64, s));
	T(cuMemFreeAsync(in, s));
	T(cuMemFreeAsync(in, s));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuMemFreeAsync(memory, s));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuMemAllocAsync(&in, 4096, s));
	T(cuMemsetD8Async(in, 9, 4096, s));
	T(cuMemcpyDtoDAsync(more, in, 64, s));
	T(cuMemFreeAsync(in, s));
	T(cuStreamEndCapture(s, &g));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphLaunch(x, s));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%x", word(more));
}

// --- the rest --------------------------------------------------------------------------------------

static void user_objects(void) {
	begin();
	CUuserObject o;
	T(cuUserObjectCreate(&o, &called, function_of_program, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	T(cuUserObjectCreate(&o, &called, function_of_program, 1, 0));
	T(cuUserObjectCreate(&o, &called, NULL, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	T(cuUserObjectCreate(NULL, &called, function_of_program, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	T(cuUserObjectCreate(&o, &called, function_of_program, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	T(cuUserObjectRetain(o, 0));
	T(cuUserObjectRetain(o, 2));
	T(cuUserObjectRelease(o, 2));
	cuGraphCreate(&g, 0);
	T(cuGraphRetainUserObject(g, o, 1, 2));
	T(cuGraphRetainUserObject(g, o, 0, 0));
	T(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
}

static void user_objects_rest(void) {
	begin();
	CUuserObject o, o2;
	cuUserObjectCreate(&o, &called, function_of_program, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	cuGraphCreate(&g, 0);
	cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE);
	T(cuGraphReleaseUserObject(g, o, 2));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphDestroy(g));
	SHOW("called %d", called);
	T(cuGraphExecDestroy(x));
	usleep(300000); // the driver may call it later
	SHOW("called %d", called);
	T(cuUserObjectCreate(&o2, &called, function_of_program, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	cuGraphCreate(&g, 0);
	T(cuGraphRetainUserObject(g, o2, 1, 0));
	T(cuUserObjectRelease(o2, 2));
	T(cuGraphReleaseUserObject(g, o2, 1));
	usleep(300000);
	SHOW("called %d", called);
}

static void after_destroying(void) {
	begin();
	CUdeviceptr at = memory;
	uint32_t count = 4, value = 100;
	void *list[3];
	CUDA_KERNEL_NODE_PARAMS p = kernel_params(&at, &count, &value, list);
	cuGraphCreate(&g, 0);
	T(cuGraphAddKernelNode(&n1, g, NULL, 0, &p));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphDestroy(g));
	T(cuGraphLaunch(x, s));
	T(cuGraphLaunch(x, s2));
	T(cuGraphLaunch(x, plain));
	T(cuGraphLaunch(x, CU_STREAM_PER_THREAD));
	T(cuGraphExecDestroy(x)); // while it may run
	T(cuCtxSynchronize());
	SHOW("%u", word(memory));
	// a launch in a capture is a node
	cuGraphCreate(&g, 0);
	cuGraphAddKernelNode(&n1, g, NULL, 0, &p);
	cuGraphInstantiateWithFlags(&x, g, 0);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuGraphLaunch(x, s));
	T(cuGraphUpload(x, s));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuGraphLaunch(x, s2));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	end_capture(s);
	T(cuGraphDebugDotPrint(g, "/nonexistent/x", 0));
	T(cuGraphDebugDotPrint(g, "/dev/null", 0));
	T(cuGraphDebugDotPrint(g, NULL, 0));
}

// --- arguments that are wrong ------------------------------------------------------------------

static CUDA_MEMCPY3D copy_params(CUdeviceptr to, CUdeviceptr from, size_t size) {
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .WidthInBytes = size, .Height = 1, .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS fill_params(CUdeviceptr at, unsigned value, unsigned size, size_t width, size_t height) {
	return (CUDA_MEMSET_NODE_PARAMS){.dst = at, .pitch = height > 1 ? 1024 : 0, .value = value, .elementSize = size, .width = width, .height = height};
}

// One node of each kind that a graph may have anywhere.
static CUgraphNode of_kernel, of_copy, of_fill, of_host, of_child, of_empty, of_record, of_wait;
static void one_of_each(void) {
	CUdeviceptr at = memory;
	uint32_t count = 4, value = 1;
	void *list[3];
	CUDA_KERNEL_NODE_PARAMS k = kernel_params(&at, &count, &value, list);
	CUDA_MEMCPY3D c = copy_params(more, memory, 64);
	CUDA_MEMSET_NODE_PARAMS f = fill_params(more, 5, 4, 4, 1);
	CUDA_HOST_NODE_PARAMS h = {.fn = function_of_program, .userData = &called};
	CUgraph empty;
	cuGraphCreate(&g, 0);
	cuGraphCreate(&empty, 0);
	cuGraphAddKernelNode(&of_kernel, g, NULL, 0, &k);
	cuGraphAddMemcpyNode(&of_copy, g, &of_kernel, 1, &c, context);
	cuGraphAddMemsetNode(&of_fill, g, &of_copy, 1, &f, context);
	cuGraphAddHostNode(&of_host, g, &of_fill, 1, &h);
	cuGraphAddChildGraphNode(&of_child, g, &of_host, 1, empty);
	cuGraphAddEmptyNode(&of_empty, g, &of_child, 1);
	cuGraphAddEventRecordNode(&of_record, g, &of_empty, 1, e2);
	cuGraphAddEventWaitNode(&of_wait, g, &of_record, 1, e2);
	cuGraphDestroy(empty);
}

static void arguments_of_nodes(void) {
	begin();
	one_of_each();
	CUDA_KERNEL_NODE_PARAMS k;
	CUDA_MEMCPY3D c;
	CUDA_MEMSET_NODE_PARAMS f;
	CUDA_HOST_NODE_PARAMS h;
	CUgraph child;
	CUevent event;
	T(cuGraphKernelNodeGetParams(of_copy, &k));
	T(cuGraphKernelNodeGetParams(of_kernel, NULL));
	T(cuGraphKernelNodeGetParams(NULL, &k));
	T(cuGraphMemcpyNodeGetParams(of_fill, &c));
	T(cuGraphMemcpyNodeGetParams(of_copy, NULL));
	T(cuGraphMemsetNodeGetParams(of_copy, &f));
	T(cuGraphMemsetNodeGetParams(of_fill, NULL));
	T(cuGraphHostNodeGetParams(of_empty, &h));
	T(cuGraphHostNodeGetParams(of_host, NULL));
	T(cuGraphChildGraphNodeGetGraph(of_host, &child));
	T(cuGraphChildGraphNodeGetGraph(of_child, NULL));
	T(cuGraphEventRecordNodeGetEvent(of_wait, &event));
	T(cuGraphEventRecordNodeGetEvent(of_record, NULL));
	T(cuGraphEventWaitNodeGetEvent(of_record, &event));
	T(cuGraphEventRecordNodeSetEvent(of_record, NULL));
	T(cuGraphEventWaitNodeSetEvent(of_wait, NULL));
	T(cuGraphKernelNodeGetParams(of_kernel, &k));
	T(cuGraphKernelNodeSetParams(of_copy, &k));
	T(cuGraphKernelNodeSetParams(of_kernel, NULL));
	k.sharedMemBytes = 1 << 30;
	T(cuGraphKernelNodeSetParams(of_kernel, &k));
	T(cuGraphMemcpyNodeGetParams(of_copy, &c));
	T(cuGraphMemcpyNodeSetParams(of_copy, NULL));
	c.WidthInBytes = 0;
	T(cuGraphMemcpyNodeSetParams(of_copy, &c));
	c.WidthInBytes = 1 << 20;
	T(cuGraphMemcpyNodeSetParams(of_copy, &c));
	c = copy_params(more, 0x1234, 64);
	T(cuGraphMemcpyNodeSetParams(of_copy, &c));
	T(cuGraphMemsetNodeGetParams(of_fill, &f));
	f.elementSize = 3;
	T(cuGraphMemsetNodeSetParams(of_fill, &f));
	f = fill_params(more + 1, 5, 4, 4, 1);
	T(cuGraphMemsetNodeSetParams(of_fill, &f));
	f = fill_params(more, 5, 4, 0, 1);
	T(cuGraphMemsetNodeSetParams(of_fill, &f));
	f = fill_params(more, 5, 4, 1 << 20, 1);
	T(cuGraphMemsetNodeSetParams(of_fill, &f));
	h = (CUDA_HOST_NODE_PARAMS){0};
	T(cuGraphHostNodeSetParams(of_host, &h));
	T(cuGraphHostNodeSetParams(of_host, NULL));
	CUgraphNodeType type;
	T(cuGraphNodeGetType(of_host, NULL));
	T(cuGraphNodeGetType(NULL, &type));
	CUgraphNode n;
	T(cuGraphAddHostNode(&n, g, NULL, 0, &h));
	T(cuGraphAddHostNode(&n, g, NULL, 0, NULL));
	T(cuGraphAddMemcpyNode(&n, g, NULL, 0, NULL, context));
	T(cuGraphAddMemsetNode(&n, g, NULL, 0, NULL, context));
	T(cuGraphAddChildGraphNode(&n, g, NULL, 0, NULL));
	T(cuGraphAddEventRecordNode(&n, g, NULL, 0, NULL));
	T(cuGraphAddEventWaitNode(&n, g, NULL, 0, NULL));
	T(cuGraphAddMemFreeNode(&n, g, NULL, 0, memory));
	T(cuGraphAddMemFreeNode(&n, g, NULL, 0, 0));
	CUgraphNodeParams any = {.type = 77};
	T(cuGraphAddNode(&n, g, NULL, NULL, 0, &any));
	T(cuGraphAddNode(&n, g, NULL, NULL, 0, NULL));
	any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY, .reserved2 = 1};
	T(cuGraphAddNode(&n, g, NULL, NULL, 0, &any));
	any = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_EMPTY};
	T(cuGraphNodeSetParams(of_kernel, &any));
	show_graph(g);
}

static void attributes_of_kernels(void) {
	begin();
	one_of_each();
	CUgraphNode other;
	CUkernelNodeAttrValue v = {0};
	CUDA_KERNEL_NODE_PARAMS k;
	cuGraphKernelNodeGetParams(of_kernel, &k);
	cuGraphAddKernelNode(&other, g, NULL, 0, &k);
	T(cuGraphKernelNodeGetAttribute(of_kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	SHOW("%d", v.cooperative);
	v.cooperative = 1;
	T(cuGraphKernelNodeSetAttribute(of_kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	v = (CUkernelNodeAttrValue){.priority = -2};
	T(cuGraphKernelNodeSetAttribute(of_kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
}

static void attributes_of_kernels_rest(void) {
	begin();
	one_of_each();
	CUgraphNode other;
	CUkernelNodeAttrValue v = {.cooperative = 1};
	CUDA_KERNEL_NODE_PARAMS k;
	cuGraphKernelNodeGetParams(of_kernel, &k);
	cuGraphAddKernelNode(&other, g, NULL, 0, &k);
	cuGraphKernelNodeSetAttribute(of_kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v);
	v = (CUkernelNodeAttrValue){.priority = -2};
	cuGraphKernelNodeSetAttribute(of_kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v);
	T(cuGraphKernelNodeSetAttribute(of_kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL));
	T(cuGraphKernelNodeSetAttribute(of_copy, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	T(cuGraphKernelNodeGetAttribute(of_kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL));
	T(cuGraphKernelNodeGetAttribute(of_kernel, 99, &v));
	T(cuGraphKernelNodeSetAttribute(of_kernel, 99, &v));
	T(cuGraphKernelNodeCopyAttributes(other, of_kernel));
	T(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
	SHOW("%d", v.cooperative);
	T(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
	SHOW("%d", v.priority);
	T(cuGraphKernelNodeCopyAttributes(other, of_copy));
	T(cuGraphKernelNodeCopyAttributes(of_copy, other));
	T(cuGraphKernelNodeCopyAttributes(NULL, other));
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
}

static void arguments_of_execs(void) {
	begin();
	one_of_each();
	CUgraphNode stranger;
	CUDA_KERNEL_NODE_PARAMS k;
	CUDA_MEMCPY3D c;
	CUDA_MEMSET_NODE_PARAMS f;
	CUDA_HOST_NODE_PARAMS h;
	unsigned on = 7;
	cuGraphKernelNodeGetParams(of_kernel, &k);
	cuGraphMemcpyNodeGetParams(of_copy, &c);
	cuGraphMemsetNodeGetParams(of_fill, &f);
	cuGraphHostNodeGetParams(of_host, &h);
	cuGraphCreate(&g2, 0);
	cuGraphAddKernelNode(&stranger, g2, NULL, 0, &k);
	T(cuGraphInstantiateWithFlags(&x, g, 0));
	T(cuGraphExecKernelNodeSetParams(x, stranger, &k));
	T(cuGraphExecKernelNodeSetParams(x, of_copy, &k));
	T(cuGraphExecKernelNodeSetParams(x, of_kernel, NULL));
	T(cuGraphExecKernelNodeSetParams(NULL, of_kernel, &k));
	T(cuGraphExecKernelNodeSetParams(x, NULL, &k));
	T(cuGraphExecMemcpyNodeSetParams(x, of_fill, &c, context));
	T(cuGraphExecMemcpyNodeSetParams(x, of_copy, &c, NULL));
	c.dstMemoryType = CU_MEMORYTYPE_HOST;
	c.dstHost = pinned;
	T(cuGraphExecMemcpyNodeSetParams(x, of_copy, &c, context)); // to another kind of memory
	c = copy_params(more, memory, 16);
	c.Height = 2, c.srcPitch = c.dstPitch = 64;
	T(cuGraphExecMemcpyNodeSetParams(x, of_copy, &c, context)); // of two dimensions
	T(cuGraphExecMemsetNodeSetParams(x, of_copy, &f, context));
	T(cuGraphExecMemsetNodeSetParams(x, of_fill, &f, NULL));
	f = fill_params(more, 5, 4, 4, 2);
	T(cuGraphExecMemsetNodeSetParams(x, of_fill, &f, context));
	f = fill_params(more, 6, 1, 4, 1);
	T(cuGraphExecMemsetNodeSetParams(x, of_fill, &f, context));
	T(cuGraphExecHostNodeSetParams(x, of_fill, &h));
	T(cuGraphExecHostNodeSetParams(x, of_host, NULL));
	T(cuGraphExecEventRecordNodeSetEvent(x, of_wait, e));
	T(cuGraphExecEventRecordNodeSetEvent(x, of_record, NULL));
	T(cuGraphExecEventWaitNodeSetEvent(x, of_wait, NULL));
	T(cuGraphExecChildGraphNodeSetParams(x, of_child, NULL));
	T(cuGraphExecChildGraphNodeSetParams(x, of_child, g2)); // another shape
	T(cuGraphNodeSetEnabled(x, of_host, 0));
	T(cuGraphNodeSetEnabled(x, of_empty, 0));
	T(cuGraphNodeSetEnabled(x, of_record, 0));
	T(cuGraphNodeSetEnabled(x, of_child, 0));
	T(cuGraphNodeSetEnabled(x, stranger, 0));
	T(cuGraphNodeSetEnabled(NULL, of_kernel, 0));
	T(cuGraphNodeSetEnabled(x, of_kernel, 2));
	T(cuGraphNodeGetEnabled(x, of_kernel, &on));
	SHOW("%u", on);
	T(cuGraphNodeSetEnabled(x, of_kernel, 0));
	T(cuGraphNodeGetEnabled(x, of_kernel, &on));
	SHOW("%u", on);
	T(cuGraphNodeGetEnabled(x, of_kernel, NULL));
	T(cuGraphNodeGetEnabled(x, of_host, &on));
	T(cuGraphExecKernelNodeSetParams(x, of_kernel, &k));
	T(cuGraphNodeGetEnabled(x, of_kernel, &on));
	SHOW("%u", on);
	cuMemsetD32(memory, 0, 4);
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u %u, called %d", word(memory), word(more), called);
	T(cuGraphExecNodeSetParams(x, of_kernel, NULL));
	T(cuGraphExecNodeSetParams(x, of_kernel, &(CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMSET}));
	T(cuGraphUpload(NULL, s));
	T(cuGraphLaunch(x, (CUstream)NULL));
	T(cuCtxSynchronize());
}

#define UPDATED(what) \
	do { \
		CUgraphExecUpdateResultInfo info = {99, (CUgraphNode)1, (CUgraphNode)1}; \
		printf("%s", what); \
		tell(cuGraphExecUpdate(x, g2, &info)); \
		SHOW("%d, node %s, from %s", info.result, named(info.errorNode), named(info.errorFromNode)); \
		cuGraphDestroy(g2); \
	} while (0)

static CUgraphNode made[4];
static const char *named(CUgraphNode n) { return n == NULL ? "none" : n == made[0] ? "first" : n == made[1] ? "second" : n == made[2] ? "third" : n == made[3] ? "fourth" : "another"; }

// An instantiated line of a kernel, a copy, a fill and a kernel again, and graphs that are a
// little different.
static void differences(void) {
	begin();
	CUdeviceptr at = memory;
	uint32_t count = 4, value = 1;
	void *list[3], *one[] = {&at};
	CUDA_KERNEL_NODE_PARAMS k = kernel_params(&at, &count, &value, list), b = k;
	CUDA_MEMCPY3D c = copy_params(more, memory, 64);
	CUDA_MEMSET_NODE_PARAMS f = fill_params(more, 5, 4, 4, 1);
	CUkernelNodeAttrValue v = {.cooperative = 1};
	CUcontext other;
	CUmodule module2;
	CUfunction fill2;
	b.func = bump, b.kernelParams = one;
#define LINE(kernel1, copy, set, kernel2) \
	(cuGraphCreate(&g2, 0), cuGraphAddKernelNode(&made[0], g2, NULL, 0, &kernel1), cuGraphAddMemcpyNode(&made[1], g2, &made[0], 1, &copy, context), \
	 cuGraphAddMemsetNode(&made[2], g2, &made[1], 1, &set, context), cuGraphAddKernelNode(&made[3], g2, &made[2], 1, &kernel2))
	LINE(k, c, f, k);
	T(cuGraphInstantiateWithFlags(&x, g2, 0));
	UPDATED("the same");
	LINE(k, c, f, b);
	UPDATED("another function");
	LINE(k, c, f, k);
	cuGraphRemoveDependencies(g2, &made[2], &made[3], NULL, 1);
	UPDATED("a dependency less");
	LINE(k, c, f, k);
	cuGraphAddDependencies(g2, &made[0], &made[3], NULL, 1);
	UPDATED("a dependency more");
	LINE(k, c, f, k);
	cuGraphRemoveDependencies(g2, &made[2], &made[3], NULL, 1);
	cuGraphAddDependencies(g2, &made[1], &made[3], NULL, 1);
	UPDATED("another dependency");
	LINE(k, c, f, k);
	cuGraphDestroyNode(made[3]);
	UPDATED("a node less");
	LINE(k, c, f, k);
	cuGraphAddEmptyNode(&made[3], g2, &made[3], 1);
	UPDATED("a node more");
	cuGraphCreate(&g2, 0);
	cuGraphAddKernelNode(&made[0], g2, NULL, 0, &k);
	cuGraphAddMemsetNode(&made[1], g2, &made[0], 1, &f, context);
	cuGraphAddMemcpyNode(&made[2], g2, &made[1], 1, &c, context);
	cuGraphAddKernelNode(&made[3], g2, &made[2], 1, &k);
	UPDATED("other types");
	LINE(k, c, f, k);
	cuGraphKernelNodeSetAttribute(made[3], CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v);
	UPDATED("a cooperative kernel");
	c.WidthInBytes = 128;
	LINE(k, c, f, k);
	UPDATED("a longer copy");
	c.Height = 2, c.srcPitch = c.dstPitch = 256;
	LINE(k, c, f, k);
	UPDATED("a copy of two dimensions");
	c = copy_params(more, memory, 64);
	c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = pinned;
	LINE(k, c, f, k);
	UPDATED("a copy to the host");
	c = copy_params(more, memory, 64);
	f = fill_params(more, 7, 1, 8, 1);
	LINE(k, c, f, k);
	UPDATED("a fill with other elements");
	f = fill_params(more, 7, 4, 4, 2);
	LINE(k, c, f, k);
	UPDATED("a fill of two dimensions");
	f = fill_params(more, 5, 4, 4, 1);
	cuCtxCreate_v2(&other, 0, 0);
	cuModuleLoadData(&module2, kernels);
	cuModuleGetFunction(&fill2, module2, "fill");
	cuCtxSetCurrent(context);
	b = k, b.func = fill2;
	LINE(b, c, f, k);
	UPDATED("a kernel of another context");
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	SHOW("%u %u", word(memory), word(more));
}

// --- other contexts, and what has ended ---------------------------------------------------------------

static void other_contexts(void) {
	begin();
	CUcontext other;
	CUstream theirs;
	CUevent their_event;
	CUdeviceptr at;
	CUgraph graph = NULL;
	one_of_each();
	T(cuCtxCreate_v2(&other, 0, 0));
	T(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
	T(cuEventCreate(&their_event, CU_EVENT_DISABLE_TIMING));
	T(cuMemAlloc(&at, 4096));
	T(cuGraphInstantiateWithFlags(&x, g, 0)); // nodes are of the first one
	T(cuGraphLaunch(x, s));
	T(cuGraphLaunch(x, theirs));
	T(cuGraphLaunch(x, NULL));
	T(cuCtxSynchronize());
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	T(fill_on(s, memory, 4, 1));
	T(cuEventRecord(their_event, s));
	T(cuStreamWaitEvent(theirs, their_event, 0));
	end_capture(s);
	T(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	T(cuEventRecord(e, s));
	T(cuStreamWaitEvent(theirs, e, 0));
	SHOW("%s", state(theirs));
	T(cuStreamWaitEvent(s, their_event, 0));
	end_capture(s);
	CUDA_MEMCPY3D c = copy_params(at, memory, 64);
	CUDA_MEMSET_NODE_PARAMS f = fill_params(at, 1, 4, 4, 1);
	T(cuGraphCreate(&graph, 0));
	T(cuGraphAddMemcpyNode(&n1, graph, NULL, 0, &c, other));
	T(cuGraphAddMemsetNode(&n2, graph, NULL, 0, &f, context));
	T(cuGraphAddEventRecordNode(&n3, graph, NULL, 0, their_event));
	T(cuGraphInstantiateWithFlags(&x, graph, 0));
	T(cuGraphLaunch(x, s));
	T(cuStreamSynchronize(s));
	T(cuCtxSetCurrent(NULL));
	T(cuGraphCreate(&graph, 0));
	T(cuGraphAddEmptyNode(&n1, graph, NULL, 0));
	T(cuGraphAddMemsetNode(&n2, graph, NULL, 0, &f, NULL));
	T(cuGraphInstantiateWithFlags(&x, graph, 0));
	T(cuGraphLaunch(x, s));
	T(cuGraphLaunch(x, NULL));
	T(cuGraphExecDestroy(x));
	T(cuGraphDestroy(graph));
}

// Handles that have ended are undefined in CUDA: where the driver crashes, or reads memory that
// it has given back, they are among the rest.
#define ENDED(name, call) \
	static void name(void) { \
		CUgraphNodeType type = 0; \
		size_t count = 0; \
		begin(); \
		one_of_each(); \
		cuGraphInstantiateWithFlags(&x, g, 0); \
		(void)type, (void)count; \
		call; \
	}
ENDED(graph_twice, cuGraphDestroy(g); T(cuGraphDestroy(g)))
ENDED(graph_late, cuGraphDestroy(g); T(cuGraphGetNodes(g, NULL, &count)))
ENDED(node_twice, cuGraphDestroyNode(of_wait); T(cuGraphDestroyNode(of_wait)))
ENDED(node_late, cuGraphDestroyNode(of_wait); T(cuGraphNodeGetType(of_wait, &type)))
ENDED(node_of_ended_graph, cuGraphDestroy(g); T(cuGraphNodeGetType(of_kernel, &type)))
ENDED(exec_twice, cuGraphExecDestroy(x); T(cuGraphExecDestroy(x)))
ENDED(exec_late, cuGraphExecDestroy(x); T(cuGraphLaunch(x, s)))
ENDED(launch_in_ended_stream, cuStreamDestroy(s2); T(cuGraphLaunch(x, s2)))
ENDED(event_ended, cuEventDestroy(e2); T(cuGraphInstantiateWithFlags(&x, g, 0)))
ENDED(event_ended_later, cuEventDestroy(e2); T(cuGraphLaunch(x, s)); T(cuStreamSynchronize(s)))
ENDED(module_ended, cuModuleUnload(module); T(cuGraphInstantiateWithFlags(&x, g, 0)))
ENDED(memory_ended, cuMemFree(more); T(cuGraphInstantiateWithFlags(&x, g, 0)))
ENDED(stream_ended_in_capture, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL); fill_on(s, memory, 4, 1); T(cuStreamDestroy(s)); T(cuMemAlloc(&memory, 64)))

// --- captures with wrong arguments ----------------------------------------------------------------

static void arguments_of_captures(void) {
	begin();
	CUgraphNode stranger;
	cuGraphCreate(&g, 0);
	cuGraphCreate(&g2, 0);
	cuGraphAddEmptyNode(&n1, g, NULL, 0);
	cuGraphAddEmptyNode(&stranger, g2, NULL, 0);
	T(cuStreamBeginCaptureToGraph(s, NULL, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuStreamBeginCaptureToGraph(s, g, &stranger, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuStreamBeginCaptureToGraph(s, g, NULL, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuStreamBeginCaptureToGraph(s, g, &n1, NULL, 1, 7));
	T(cuStreamBeginCaptureToGraph(NULL, g, &n1, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	T(cuStreamBeginCaptureToGraph(s, g, &n1, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

static void arguments_of_captures_rest(void) {
	begin();
	CUgraph graph = NULL;
	CUgraphNode stranger;
	CUstreamCaptureMode mode = 9;
	CUstreamCaptureStatus status;
	cuGraphCreate(&g, 0);
	cuGraphCreate(&g2, 0);
	cuGraphAddEmptyNode(&n1, g, NULL, 0);
	cuGraphAddEmptyNode(&stranger, g2, NULL, 0);
	cuStreamBeginCaptureToGraph(s, g, &n1, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL);
	T(cuStreamBeginCaptureToGraph(s2, g, &n1, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
	SHOW("%s", state(s2));
	T(cuGraphDestroy(g));
	T(cuStreamUpdateCaptureDependencies(s, &stranger, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	SHOW("%s", state(s));
	T(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	T(cuStreamUpdateCaptureDependencies(s, &n1, NULL, 1, 5));
	T(cuStreamUpdateCaptureDependencies(plain, &n1, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	T(cuStreamIsCapturing(s, NULL));
	T(cuStreamGetCaptureInfo(s, NULL, NULL, NULL, NULL, NULL, NULL));
	T(cuStreamGetCaptureInfo(s, &status, NULL, NULL, NULL, NULL, NULL));
	SHOW("%d", status);
	T(cuThreadExchangeStreamCaptureMode(NULL));
	T(cuThreadExchangeStreamCaptureMode(&mode));
	T(fill_on(s, memory, 4, 1));
	T(cuStreamEndCapture(s, &graph));
	SHOW("%d", graph == g);
	show_graph(g);
	T(cuStreamEndCapture(s, &graph));
}

static const struct test_case cases[] = {
	CASE(capture_states), CASE(capture_line), CASE(forbidden_global), CASE(forbidden_local), CASE(forbidden_relaxed), CASE(forbidden_blocking), CASE(threads_global), CASE(threads_local),
	CASE(threads_relaxed), CASE(exchange), CASE(forks), CASE(events_in_captures), CASE(dependencies_of_captures), CASE(structure), CASE(kernels_of_graphs), CASE(memory_of_graphs), CASE(updates),
	CASE(allocations), CASE(user_objects), CASE(after_destroying), CASE(arguments_of_nodes), CASE(attributes_of_kernels), CASE(arguments_of_execs), CASE(differences), CASE(other_contexts),
	CASE(arguments_of_captures), CASE(graph_twice), CASE(graph_late), CASE(exec_twice), CASE(exec_late), 
	CASE(stream_ended_in_capture),
	REST(exchange_rest), REST(structure_rest), REST(user_objects_rest), REST(attributes_of_kernels_rest), REST(arguments_of_captures_rest), REST(node_twice), REST(node_late), REST(node_of_ended_graph),
	REST(launch_in_ended_stream), REST(event_ended), REST(event_ended_later), REST(module_ended), REST(memory_ended),
};

int main(int argc, char **argv) { return run_cases(cases, LENGTH(cases), argc, argv); }
