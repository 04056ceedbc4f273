// Graphs with conditional nodes: if, if and else, while, switch, in each other, with copies,
// made node by node and captured. Prints "right", or says what is not.
//
//   conditional            all of it, once
//   conditional replay     a graph of loops as often as it reads a number, saying "round N"
#include "kernels.h"

#include <stdint.h>

// As nvrtc writes a kernel that calls cudaGraphSetConditional. down: takes one from a word and
// goes on while something is left. choose: the condition is a word. bump: adds to a word.
static const char text[] =
    ".version 8.3\n.target sm_70\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional\n(\n\t.param .b64 cudaGraphSetConditional_param_0,\n\t.param .b32 cudaGraphSetConditional_param_1\n)\n;\n"
    ".visible .entry down(.param .u64 handle, .param .u64 word) {\n"
    "  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<3>;\n"
    "  ld.param.u64 %d0, [handle]; ld.param.u64 %d1, [word]; ld.global.u32 %r0, [%d1]; sub.u32 %r0, %r0, 1; st.global.u32 [%d1], %r0;\n"
    "  setp.ne.u32 %p, %r0, 0; selp.u32 %r1, 1, 0, %p;\n"
    "  { .param .b64 param0; st.param.b64 [param0+0], %d0; .param .b32 param1; st.param.b32 [param1+0], %r1;\n"
    "    call.uni cudaGraphSetConditional, (param0, param1); }\n"
    "  ret;\n}\n"
    ".visible .entry choose(.param .u64 handle, .param .u64 word) {\n"
    "  .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [handle]; ld.param.u64 %d1, [word]; ld.global.u32 %r0, [%d1];\n"
    "  { .param .b64 param0; st.param.b64 [param0+0], %d0; .param .b32 param1; st.param.b32 [param1+0], %r0;\n"
    "    call.uni cudaGraphSetConditional, (param0, param1); }\n"
    "  ret;\n}\n"
    ".visible .entry bump(.param .u64 word, .param .u32 by) {\n"
    "  .reg .b32 %r<2>; .reg .b64 %d<1>;\n"
    "  ld.param.u64 %d0, [word]; ld.param.u32 %r1, [by]; ld.global.u32 %r0, [%d0]; add.u32 %r0, %r0, %r1; st.global.u32 [%d0], %r0; ret;\n}\n";

static CUcontext context;
static CUfunction down, choose, bump, add;
static CUdeviceptr words; // 0: the condition's, 1: the inner condition's, 2...: what is counted
static CUstream s;

static void start(void) {
	CUdevice device;
	CUmodule module, plain;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, text));
	CHECK(cuModuleGetFunction(&down, module, "down"));
	CHECK(cuModuleGetFunction(&choose, module, "choose"));
	CHECK(cuModuleGetFunction(&bump, module, "bump"));
	CHECK(cuModuleLoadData(&plain, image));
	CHECK(cuModuleGetFunction(&add, plain, "add"));
	CHECK(cuMemAlloc(&words, 64));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
}

static void set(unsigned at, uint32_t value) { CHECK(cuMemcpyHtoD(words + 4 * at, &value, 4)); }

static uint32_t get(unsigned at) {
	uint32_t value;
	CHECK(cuMemcpyDtoH(&value, words + 4 * at, 4));
	return value;
}

static CUgraphNode kernel(CUgraph g, CUgraphNode after, CUfunction f, void *first, void *second) {
	CUgraphNode n;
	CUDA_KERNEL_NODE_PARAMS p = {.func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = (void *[]){first, second}};
	CHECK(cuGraphAddKernelNode(&n, g, &after, after != NULL, &p));
	return n;
}

static CUgraphNode set_node(CUgraph g, CUgraphNode after, CUfunction f, CUgraphConditionalHandle h, unsigned at) {
	CUdeviceptr word = words + 4 * at;
	return kernel(g, after, f, &h, &word);
}

static CUgraphNode bump_node(CUgraph g, CUgraphNode after, unsigned at, uint32_t by) {
	CUdeviceptr word = words + 4 * at;
	return kernel(g, after, bump, &word, &by);
}

static CUgraphNode conditional(CUgraph g, CUgraphNode after, CUgraphConditionalHandle h, CUgraphConditionalNodeType type, unsigned size, CUgraph *bodies) {
	CUgraphNode n;
	CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .conditional = {.handle = h, .type = type, .size = size, .ctx = context}};
	CHECK(cuGraphAddNode_v2(&n, g, &after, NULL, after != NULL, &p));
	memcpy(bodies, p.conditional.phGraph_out, size * sizeof *bodies);
	CUgraphNodeType is;
	CHECK(cuGraphNodeGetType(n, &is));
	NEED(is == CU_GRAPH_NODE_TYPE_CONDITIONAL);
	return n;
}

static CUgraphConditionalHandle handle(CUgraph g, unsigned initial, unsigned flags) {
	CUgraphConditionalHandle h = 0;
	CHECK(cuGraphConditionalHandleCreate(&h, g, context, initial, flags));
	NEED(h != 0);
	return h;
}

static void run(CUgraphExec x) {
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuStreamSynchronize(s));
}

static void branches(void) {
	CUgraph g, bodies[3];
	CUgraphExec x;
	for (unsigned size = 1; size <= 2; size++) {
		CHECK(cuGraphCreate(&g, 0));
		CUgraphConditionalHandle h = handle(g, 0, 0);
		CUgraphNode n = conditional(g, set_node(g, NULL, choose, h, 0), h, CU_GRAPH_COND_TYPE_IF, size, bodies);
		bump_node(bodies[0], bump_node(bodies[0], NULL, 2, 1), 2, 10);
		if (size == 2)
			bump_node(bodies[1], NULL, 3, 1);
		bump_node(g, n, 4, 1);
		CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
		CHECK(cuGraphDestroy(g));
		CHECK(cuMemsetD32(words, 0, 16));
		for (uint32_t i = 0; i < 4; i++) {
			set(0, i % 2 * 7);
			run(x);
		}
		NEED(get(2) == 22 && get(3) == (size == 2 ? 2 : 0) && get(4) == 4);
		CHECK(cuGraphExecDestroy(x));
	}
	CHECK(cuGraphCreate(&g, 0));
	CUgraphConditionalHandle h = handle(g, 0, 0);
	conditional(g, set_node(g, NULL, choose, h, 0), h, CU_GRAPH_COND_TYPE_SWITCH, 3, bodies);
	for (unsigned i = 0; i < 3; i++)
		bump_node(bodies[i], NULL, 2 + i, 1 + i);
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuMemsetD32(words, 0, 16));
	for (uint32_t i = 0; i < 5; i++) {
		set(0, i % 4);
		run(x);
	}
	NEED(get(2) == 2 && get(3) == 2 && get(4) == 3);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
}

// A loop of `outer` rounds, in each of which one of `inner` rounds runs; word 2 counts the inner
// ones, word 3 the outer ones. Words 0 and 1 are set by copies in the graph.
static uint32_t rounds[2] = {3, 4};
static CUgraph loops(void) {
	CUgraph g, body, inside;
	CHECK(cuGraphCreate(&g, 0));
	CUgraphConditionalHandle h = handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), inner = handle(g, 0, 0);
	CUDA_MEMCPY3D first = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = &rounds[0], .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = words, .WidthInBytes = 4, .Height = 1, .Depth = 1};
	CUDA_MEMCPY3D second = first;
	second.srcHost = &rounds[1];
	second.dstDevice = words + 4;
	CUgraphNode begin, copied;
	CHECK(cuGraphAddMemcpyNode(&begin, g, NULL, 0, &first, context));
	conditional(g, begin, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	CHECK(cuGraphAddMemcpyNode(&copied, body, NULL, 0, &second, context)); // of ordinary memory
	CUgraphNode n = conditional(body, set_node(body, copied, choose, inner, 1), inner, CU_GRAPH_COND_TYPE_WHILE, 1, &inside);
	bump_node(inside, NULL, 2, 1);
	set_node(inside, bump_node(inside, NULL, 5, 1), down, inner, 1);
	set_node(body, bump_node(body, n, 3, 1), down, h, 0);
	return g;
}

static void nested(void) {
	CUgraphExec x;
	CUgraph g = loops(), clone;
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuMemsetD32(words, 0, 16));
	run(x);
	NEED(get(2) == 12 && get(3) == 3 && get(5) == 12);
	rounds[0] = 2;
	rounds[1] = 5;
	CHECK(cuGraphLaunch(x, s)); // and nobody waits in between
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuGraphLaunch(x, NULL));
	CHECK(cuCtxSynchronize());
	NEED(get(2) == 42 && get(3) == 9);
	CUgraphExecUpdateResultInfo info;
	CHECK(cuGraphExecUpdate(x, g, &info));
	run(x);
	NEED(get(2) == 52 && get(3) == 11);
	CHECK(cuGraphClone(&clone, g));
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
	CHECK(cuGraphInstantiateWithFlags(&x, clone, 0));
	run(x);
	NEED(get(2) == 62 && get(3) == 13);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(clone));
	rounds[0] = 3;
	rounds[1] = 4;
}

// The body is captured, and the whole is captured work of a stream.
static void captured(void) {
	CUgraph g, body, outer;
	CUgraphExec x;
	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CUstreamCaptureStatus status;
	const CUgraphNode *dependencies;
	size_t count;
	CHECK(cuMemsetD32Async(words, 4, 1, s));
	CHECK(cuStreamGetCaptureInfo(s, &status, NULL, &outer, &dependencies, NULL, &count));
	CUgraphConditionalHandle h = handle(outer, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUgraphNode n = conditional(outer, count > 0 ? dependencies[0] : NULL, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	CHECK(cuStreamUpdateCaptureDependencies(s, &n, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	CUstream side;
	CUdeviceptr word = words + 8;
	CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCaptureToGraph(side, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, side, (void *[]){&word, &(uint32_t){5}}, NULL));
	CHECK(cuLaunchKernel(down, 1, 1, 1, 1, 1, 1, 0, side, (void *[]){&h, &words}, NULL));
	CHECK(cuStreamEndCapture(side, &body));
	CHECK(cuMemcpyDtoDAsync(words + 12, words + 8, 4, s));
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuMemsetD32(words, 0, 16));
	run(x);
	NEED(get(2) == 20 && get(3) == 20);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
	CHECK(cuStreamDestroy(side));
}

static void refusals(void) {
	CUgraph g, body;
	CUgraphExec x;
	CUgraphNode n;
	CUgraphConditionalHandle h = 0;
	CHECK(cuGraphCreate(&g, 0));
	NEED(cuGraphConditionalHandleCreate(NULL, g, context, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuGraphConditionalHandleCreate(&h, NULL, context, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuGraphConditionalHandleCreate(&h, g, context, 0, 2) == CUDA_ERROR_INVALID_VALUE);
	h = handle(g, 0, 0);
	CUDA_GRAPH_INSTANTIATE_PARAMS about = {0};
	NEED(cuGraphInstantiateWithParams(&x, g, &about) == CUDA_ERROR_INVALID_VALUE && about.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
	const CUDA_CONDITIONAL_NODE_PARAMS wrong[] = {
		{.handle = h, .type = CU_GRAPH_COND_TYPE_IF, .size = 0},    {.handle = h, .type = CU_GRAPH_COND_TYPE_IF, .size = 3}, {.handle = h, .type = CU_GRAPH_COND_TYPE_WHILE, .size = 2},
		{.handle = h, .type = CU_GRAPH_COND_TYPE_SWITCH, .size = 0}, {.handle = 12, .type = CU_GRAPH_COND_TYPE_IF, .size = 1}, {.handle = h, .type = 3, .size = 1},
	};
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .conditional = wrong[i]};
		NEED(cuGraphAddNode_v2(&n, g, NULL, NULL, 0, &p) == CUDA_ERROR_INVALID_VALUE);
	}
	n = conditional(g, NULL, h, CU_GRAPH_COND_TYPE_IF, 1, &body);
	NEED(cuGraphDestroy(body) == CUDA_ERROR_INVALID_VALUE);
	CUDA_HOST_NODE_PARAMS host = {.fn = free, .userData = NULL};
	CUgraphNode inside;
	CHECK(cuGraphAddHostNode(&inside, body, NULL, 0, &host));
	NEED(cuGraphInstantiateWithParams(&x, g, &about) == CUDA_ERROR_NOT_SUPPORTED && about.result_out == CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED && about.hErrNode_out == inside);
	CHECK(cuGraphDestroyNode(inside));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	NEED(cuGraphNodeSetEnabled(x, n, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuGraphExecDestroy(x));
	// a kernel of a module that does not know how to set it
	CUDA_KERNEL_NODE_PARAMS p = {.func = add, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = (void *[]){&h, &(uint32_t){1}, &(uint32_t){1}}};
	CHECK(cuGraphAddKernelNode(&inside, g, NULL, 0, &p));
	NEED(cuGraphInstantiateWithFlags(&x, g, 0) == CUDA_ERROR_NOT_SUPPORTED);
	CHECK(cuGraphDestroy(g));
}

static void replay(void) {
	CUgraphExec x;
	CUgraph g = loops();
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuMemsetD32(words, 0, 16));
	CHECK(cuCtxSynchronize()); // s does not wait for the legacy stream
	unsigned launches, all = 0, round = 0;
	while (scanf("%u", &launches) == 1) {
		for (unsigned i = 0; i < launches; i++)
			CHECK(cuGraphLaunch(x, s));
		CHECK(cuStreamSynchronize(s));
		all += launches;
		NEED(get(2) == 12 * all && get(3) == 3 * all && get(5) == 12 * all);
		printf("round %u\n", ++round);
		fflush(stdout);
	}
}

// The program frees memory while a graph with a condition is running.
static void freeing(void) {
	static sem_t gone_on;
	CUgraph g, body;
	CUgraphExec x;
	CUgraphNode n;
	CUdeviceptr other;
	sem_init(&gone_on, 0, 0);
	CHECK(cuMemAlloc(&other, 4 << 20));
	CHECK(cuMemsetD32(other, 1, 1 << 20));
	CHECK(cuGraphCreate(&g, 0));
	CUgraphConditionalHandle h = handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUDA_HOST_NODE_PARAMS p = {.fn = outlast, .userData = &gone_on};
	CHECK(cuGraphAddHostNode(&n, g, NULL, 0, &p));
	conditional(g, n, h, CU_GRAPH_COND_TYPE_IF, 1, &body);
	bump_node(body, NULL, 2, 1);
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuMemsetD32(words, 0, 16));
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuMemFree(other));
	sem_post(&gone_on);
	CHECK(cuStreamSynchronize(s));
	NEED(get(2) == 1);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
}

int main(int argc, char **argv) {
	start();
	if (argc > 1 && strcmp(argv[1], "replay") == 0) {
		replay();
	} else {
		branches();
		nested();
		captured();
		freeing();
		refusals();
		branches();
	}
	puts("right");
	return 0;
}
