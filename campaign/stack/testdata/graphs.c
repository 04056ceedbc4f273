// Graphs, and what comes of them: see main.
#include "kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

// step(p, to, from, c, spin): p[to] = turned(p[to], spin) * 31 + p[from] + c, so that every order of steps
// gives another result.
static const char steps_image[] =
    ".version 6.5\n.target sm_70\n.address_size 64\n"
    ".visible .entry step(.param .u64 p, .param .u32 to, .param .u32 from, .param .u32 c, .param .u32 spin) {\n"
    "  .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d0, [p]; ld.param.u32 %r0, [to]; ld.param.u32 %r1, [from]; ld.param.u32 %r2, [c]; ld.param.u32 %r3, [spin];\n"
    "  mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1; mul.wide.u32 %d3, %r1, 4; add.u64 %d4, %d0, %d3;\n"
    "  ld.global.u32 %r4, [%d2];\n"
    "again: setp.eq.u32 %q, %r3, 0; @%q bra done;\n"
    "  mul.lo.u32 %r4, %r4, 1664525; add.u32 %r4, %r4, 1013904223; sub.u32 %r3, %r3, 1; bra again;\n"
    "done: ld.global.u32 %r5, [%d4]; mul.lo.u32 %r4, %r4, 31; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r2;\n"
    "  st.global.u32 [%d2], %r4; ret;\n}\n";

// How often anybody has asked for memory.
static _Atomic long mallocs;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern void *__libc_malloc(size_t size);
void *malloc(size_t size) {
	mallocs++;
	return __libc_malloc(size);
}
#endif

enum { CELLS = 24, NODES = 60, STREAMS = 4 };

static CUcontext context;
static CUfunction step;
static CUdeviceptr cells;

static void start(void) {
	CUdevice device;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, steps_image));
	CHECK(cuModuleGetFunction(&step, module, "step"));
	CHECK(cuMemAlloc(&cells, 4 * CELLS));
}

static uint32_t stepped(uint32_t value, uint32_t from, uint32_t c, uint32_t spin) {
	while (spin-- > 0)
		value = value * 1664525 + 1013904223;
	return value * 31 + from + c;
}

static void step_on(CUstream stream, uint32_t to, uint32_t from, uint32_t c, uint32_t spin) {
	void *args[] = {&cells, &to, &from, &c, &spin};
	CHECK(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
}

static void set_cells(void) {
	uint32_t words[CELLS];
	for (uint32_t i = 0; i < CELLS; i++)
		words[i] = i * 2654435761u;
	CHECK(cuMemcpyHtoD(cells, words, sizeof words));
	CHECK(cuCtxSynchronize());
}

static uint32_t cell(uint32_t i) {
	uint32_t v;
	CHECK(cuMemcpyDtoH(&v, cells + 4 * i, 4));
	return v;
}

// --- random graphs -------------------------------------------------------------------------------

static uint32_t state;
static uint32_t below(uint32_t n) {
	state = state * 1664525 + 1013904223;
	return (state >> 8) % n;
}

// Operations on words of the device (0 to CELLS-1), of ordinary memory, and of pinned memory.
enum { ORDINARY = CELLS, PINNED = ORDINARY + 8, WORDS = PINNED + 8 };

struct operation {
	enum { STEP, SET, COPY, CALL, CALLED } kind;
	uint32_t to, from, c, spin;
	CUgraphNode node;
	bool waits_for[NODES];
};

static struct operation operations[NODES];
static uint32_t ordinary[8], *pinned, model[WORDS];

static uint32_t *host_word(uint32_t i) { return i >= PINNED ? &pinned[i - PINNED] : &ordinary[i - ORDINARY]; }

static void call(void *data) {
	struct operation *o = data;
	*host_word(o->to) = stepped(*host_word(o->to), *host_word(o->from), o->c, 0);
}

static void do_model(const struct operation *o) {
	switch (o->kind) {
	case STEP:
		model[o->to] = stepped(model[o->to], model[o->from], o->c, o->spin);
		break;
	case SET:
		model[o->to] = o->c;
		break;
	case COPY:
		model[o->to] = model[o->from];
		break;
	default:
		model[o->to] = stepped(model[o->to], model[o->from], o->c, 0);
	}
}

// An operation waits for all before it that touch a word which one of the two writes, and
// for some others.
static void make_operations(uint32_t seed) {
	state = seed;
	for (uint32_t i = 0; i < NODES; i++) {
		struct operation *o = &operations[i];
		memset(o, 0, sizeof *o);
		o->kind = below(10) < 5 ? STEP : below(5);
		o->kind = o->kind == CALLED ? CALL : o->kind;
		o->to = below(o->kind == COPY ? WORDS : CELLS);
		o->from = below(o->kind == COPY ? WORDS : CELLS);
		if (o->kind == CALL) {
			o->to = CELLS + below(WORDS - CELLS);
			o->from = CELLS + below(WORDS - CELLS);
		}
		if (o->kind == COPY && o->to == o->from)
			o->to = (o->to + 1) % WORDS;
		o->c = below(1 << 20);
		o->spin = below(4) == 0 ? below(400) : 0;
		for (uint32_t k = 0; k < i; k++) {
			const struct operation *b = &operations[k];
			o->waits_for[k] = b->to == o->to || b->to == o->from || (b->from == o->to && b->kind != SET) || below(40) == 0;
		}
	}
}

static CUDA_MEMCPY3D copy_of(const struct operation *o) {
	CUDA_MEMCPY3D c = {.WidthInBytes = 4, .Height = 1, .Depth = 1};
	c.srcMemoryType = o->from < CELLS ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	c.dstMemoryType = o->to < CELLS ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	if (o->from < CELLS)
		c.srcDevice = cells + 4 * o->from;
	else
		c.srcHost = host_word(o->from);
	if (o->to < CELLS)
		c.dstDevice = cells + 4 * o->to;
	else
		c.dstHost = host_word(o->to);
	return c;
}

static void add_operation(CUgraph g, struct operation *o) {
	CUgraphNode nodes[NODES];
	size_t n = 0;
	for (uint32_t k = 0; k < NODES; k++)
		if (o->waits_for[k])
			nodes[n++] = operations[k].node;
	void *args[] = {&cells, &o->to, &o->from, &o->c, &o->spin};
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = args};
	CUDA_MEMSET_NODE_PARAMS fill = {.dst = cells + 4 * o->to, .value = o->c, .elementSize = 4, .width = 1, .height = 1};
	CUDA_HOST_NODE_PARAMS host = {call, o};
	CUDA_MEMCPY3D copy = copy_of(o);
	switch (o->kind) {
	case STEP:
		CHECK(cuGraphAddKernelNode(&o->node, g, nodes, n, &kernel));
		break;
	case SET:
		CHECK(cuGraphAddMemsetNode(&o->node, g, nodes, n, &fill, context));
		break;
	case COPY:
		CHECK(cuGraphAddMemcpyNode(&o->node, g, nodes, n, &copy, context));
		break;
	default:
		CHECK(cuGraphAddHostNode(&o->node, g, nodes, n, &host));
	}
}

// The same by capturing: each operation goes to some stream, which waits for events of others.
static CUgraph captured(CUstream *streams) {
	CUevent done[NODES], begin;
	CUgraph g;
	CHECK(cuEventCreate(&begin, CU_EVENT_DISABLE_TIMING));
	CHECK(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuEventRecord(begin, streams[0]));
	for (uint32_t i = 1; i < STREAMS; i++)
		CHECK(cuStreamWaitEvent(streams[i], begin, 0));
	for (uint32_t i = 0; i < NODES; i++) {
		struct operation *o = &operations[i];
		CUstream s = streams[below(STREAMS)];
		for (uint32_t k = 0; k < i; k++)
			if (o->waits_for[k])
				CHECK(cuStreamWaitEvent(s, done[k], 0));
		CUDA_MEMCPY3D copy = copy_of(o);
		switch (o->kind) {
		case STEP:
			step_on(s, o->to, o->from, o->c, o->spin);
			break;
		case SET:
			CHECK(cuMemsetD32Async(cells + 4 * o->to, o->c, 1, s));
			break;
		case COPY:
			CHECK(cuMemcpy3DAsync(&copy, s));
			break;
		default:
			CHECK(cuLaunchHostFunc(s, call, o));
		}
		CHECK(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
		CHECK(cuEventRecord(done[i], s));
	}
	for (uint32_t i = 1; i < STREAMS; i++) {
		CHECK(cuEventRecord(begin, streams[i]));
		CHECK(cuStreamWaitEvent(streams[0], begin, 0));
	}
	CHECK(cuStreamEndCapture(streams[0], &g));
	CHECK(cuEventDestroy(begin));
	for (uint32_t i = 0; i < NODES; i++)
		CHECK(cuEventDestroy(done[i]));
	return g;
}

static void compare(uint32_t seed, const char *what, int round) {
	for (uint32_t i = 0; i < WORDS; i++) {
		uint32_t got = i < CELLS ? cell(i) : *host_word(i);
		if (got != model[i]) {
			fprintf(stderr, "seed %u, %s, launch %d: word %u is %#x and not %#x\n", seed, what, round, i, got, model[i]);
			exit(1);
		}
	}
}

// Launches in turn in several streams, without waiting in between but for every third.
static void launch_and_compare(uint32_t seed, const char *what, CUgraph g, CUstream *streams) {
	CUgraphExec x;
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuGraphDestroy(g));
	for (int round = 0; round < 9; round++) {
		CHECK(cuGraphLaunch(x, streams[round / 2 % STREAMS]));
		for (uint32_t i = 0; i < NODES; i++)
			do_model(&operations[i]);
		if (round % 3 == 2) {
			CHECK(cuCtxSynchronize());
			compare(seed, what, round);
		}
	}
	CHECK(cuGraphExecDestroy(x));
}

static void random_graphs(uint32_t seed, uint32_t count) {
	CUstream streams[STREAMS];
	for (int i = 0; i < STREAMS; i++)
		CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAllocHost((void **)&pinned, 4 * 8));
	memset(pinned, 0, 4 * 8);
	set_cells();
	for (uint32_t i = 0; i < CELLS; i++)
		model[i] = i * 2654435761u;
	for (; count-- > 0; seed++) {
		CUgraph g;
		make_operations(seed);
		CHECK(cuGraphCreate(&g, 0));
		for (uint32_t i = 0; i < NODES; i++)
			add_operation(g, &operations[i]);
		launch_and_compare(seed, "made", g, streams);
		launch_and_compare(seed, "captured", captured(streams), streams);
	}
}

// --- what programs do with graphs --------------------------------------------------------------------

// Two streams beside the first; each launch changes three cells and then joins them.
static CUgraphExec forks(void) {
	CUstream a, b, c;
	CUevent fork, joins[2];
	CUgraph g;
	CUgraphExec x;
	CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&c, CU_STREAM_DEFAULT));
	CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&joins[0], CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&joins[1], CU_EVENT_DISABLE_TIMING));
	CHECK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	step_on(a, 0, 1, 7, 0);
	CHECK(cuEventRecord(fork, a));
	CHECK(cuStreamWaitEvent(b, fork, 0));
	CHECK(cuStreamWaitEvent(c, fork, 0));
	step_on(b, 1, 0, 11, 50);
	step_on(c, 2, 0, 13, 10);
	step_on(a, 3, 0, 17, 0);
	CHECK(cuEventRecord(joins[0], b));
	CHECK(cuEventRecord(joins[1], c));
	CHECK(cuStreamWaitEvent(a, joins[0], 0));
	CHECK(cuStreamWaitEvent(a, joins[1], 0));
	step_on(a, 0, 1, 1, 0);
	step_on(a, 0, 2, 2, 0);
	step_on(a, 0, 3, 3, 0);
	CHECK(cuStreamEndCapture(a, &g));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuGraphDestroy(g));
	return x;
}

static void forks_model(uint32_t *w) {
	w[0] = stepped(w[0], w[1], 7, 0);
	w[1] = stepped(w[1], w[0], 11, 50);
	w[2] = stepped(w[2], w[0], 13, 10);
	w[3] = stepped(w[3], w[0], 17, 0);
	w[0] = stepped(w[0], w[1], 1, 0);
	w[0] = stepped(w[0], w[2], 2, 0);
	w[0] = stepped(w[0], w[3], 3, 0);
}

// Launches a graph as often as the next line says, until there is none; more is given to the stream before and behind.
static void replay(void) {
	CUgraphExec x = forks();
	CUstream s;
	uint32_t w[CELLS], n;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	set_cells();
	for (uint32_t i = 0; i < CELLS; i++)
		w[i] = i * 2654435761u;
	CHECK(cuGraphUpload(x, s));
	for (int round = 1; scanf("%u", &n) == 1; round++) {
		long before = mallocs;
		for (uint32_t i = 0; i < n; i++) {
			step_on(s, 3, 0, i, 0);
			w[3] = stepped(w[3], w[0], i, 0);
			CHECK(cuGraphLaunch(x, s));
			forks_model(w);
		}
		NEED(mallocs == before); // a launch of kernels takes none
		CHECK(cuStreamSynchronize(s));
		for (uint32_t i = 0; i < 4; i++)
			NEED(cell(i) == w[i]);
		printf("round %d\n", round);
		fflush(stdout);
	}
	CHECK(cuGraphExecDestroy(x));
}

static int order[64], calls;
static void note(void *data) { order[calls++ % 64] = (int)(intptr_t)data; }

// Functions of the program are called at their places, and what a kernel did is there.
static void hosts(void) {
	CUstream s;
	CUgraph g;
	CUgraphExec x;
	uint32_t *result = calloc(1, 4), first[1] = {5}; // of malloc, and of the stack
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuLaunchHostFunc(s, note, (void *)1));
	CHECK(cuMemcpyHtoDAsync(cells, first, 4, s));
	step_on(s, 0, 0, 1, 0);
	CHECK(cuMemcpyDtoHAsync(result, cells, 4, s));
	CHECK(cuLaunchHostFunc(s, note, (void *)2));
	CHECK(cuLaunchHostFunc(s, note, (void *)3));
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t round = 1; round <= 5; round++) {
		first[0] = round;
		CHECK(cuGraphLaunch(x, s));
		CHECK(cuStreamSynchronize(s));
		NEED(*result == stepped(round, round, 1, 0));
		NEED(calls == 3 * (int)round && order[calls - 3] == 1 && order[calls - 2] == 2 && order[calls - 1] == 3);
	}
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuGraphExecDestroy(x)); // it may still run
	CHECK(cuGraphDestroy(g));
	CHECK(cuStreamSynchronize(s));
	NEED(calls == 18);
	free(result);
}

// Rows of the program's memory that do not fit into a buffer at once, in and out.
static void rows(void) {
	enum { WIDTH = 3000, HEIGHT = 900, PITCH = 3500, HOST = 3100 };
	CUdeviceptr d;
	CUgraph g;
	CUgraphNode in, out, host;
	CUgraphExec x;
	uint8_t *from = malloc(HOST * HEIGHT), *to = calloc(HEIGHT, HOST);
	for (size_t i = 0; i < HOST * HEIGHT; i++)
		from[i] = (uint8_t)(i * 7 + i / 251);
	CHECK(cuMemAlloc(&d, PITCH * HEIGHT));
	CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = HOST, .srcHeight = HEIGHT / 3, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .dstPitch = PITCH, .dstHeight = HEIGHT / 3, .WidthInBytes = WIDTH, .Height = HEIGHT / 3, .Depth = 3};
	CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = d, .srcPitch = PITCH, .srcHeight = HEIGHT / 3, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = HOST, .dstHeight = HEIGHT / 3, .WidthInBytes = WIDTH, .Height = HEIGHT / 3, .Depth = 3};
	CUDA_HOST_NODE_PARAMS n = {note, (void *)9};
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphAddHostNode(&host, g, NULL, 0, &n));
	CHECK(cuGraphAddMemcpyNode(&in, g, &host, 1, &c, context));
	CHECK(cuGraphAddMemcpyNode(&out, g, &in, 1, &back, context));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	for (int round = 0; round < 2; round++) {
		memset(to, 0, HOST * HEIGHT);
		from[0] = (uint8_t)round;
		CHECK(cuGraphLaunch(x, NULL));
		CHECK(cuCtxSynchronize());
		for (size_t y = 0; y < HEIGHT; y++)
			NEED(memcmp(to + y * HOST, from + y * HOST, WIDTH) == 0 && to[y * HOST + WIDTH] == 0);
	}
	// one long row
	CUDA_MEMCPY3D all = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = d, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .WidthInBytes = HOST * HEIGHT, .Height = 1, .Depth = 1};
	CUDA_MEMCPY3D fresh = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .WidthInBytes = HOST * HEIGHT, .Height = 1, .Depth = 1};
	CUgraph g2;
	CUgraphExec x2;
	CHECK(cuGraphCreate(&g2, 0));
	CHECK(cuGraphAddHostNode(&host, g2, NULL, 0, &n));
	CHECK(cuGraphAddMemcpyNode(&in, g2, &host, 1, &fresh, context));
	CHECK(cuGraphAddMemcpyNode(&out, g2, &in, 1, &all, context));
	CHECK(cuGraphInstantiateWithFlags(&x2, g2, 0));
	CHECK(cuGraphLaunch(x2, NULL));
	CHECK(cuGraphExecDestroy(x2));
	CHECK(cuCtxSynchronize());
	NEED(memcmp(to, from, HOST * HEIGHT) == 0);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
	CHECK(cuGraphDestroy(g2));
	CHECK(cuMemFree(d));
	free(from);
	free(to);
}

// A graph in a graph in a graph, and changes far down.
static void children(void) {
	CUgraph leaf, middle, top, inner, innermost;
	CUgraphNode n, m, t, k[2];
	CUgraphExec x;
	size_t count = 1;
	uint32_t to = 5, from = 6, c = 3, spin = 0, w5 = 5 * 2654435761u, w6 = 6 * 2654435761u;
	void *args[] = {&cells, &to, &from, &c, &spin};
	CUDA_KERNEL_NODE_PARAMS p = {.func = step, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = args};
	set_cells();
	CHECK(cuGraphCreate(&leaf, 0));
	CHECK(cuGraphCreate(&middle, 0));
	CHECK(cuGraphCreate(&top, 0));
	CHECK(cuGraphAddKernelNode(&n, leaf, NULL, 0, &p));
	CHECK(cuGraphAddChildGraphNode(&m, middle, NULL, 0, leaf));
	c = 4;
	CHECK(cuGraphAddKernelNode(&k[0], middle, &m, 1, &p));
	CHECK(cuGraphAddChildGraphNode(&t, top, NULL, 0, middle));
	to = 6, from = 5;
	CHECK(cuGraphAddKernelNode(&k[1], top, &t, 1, &p));
	CHECK(cuGraphDestroy(leaf));
	CHECK(cuGraphDestroy(middle));
	CHECK(cuGraphInstantiateWithFlags(&x, top, 0));
	CHECK(cuGraphLaunch(x, NULL));
	w5 = stepped(w5, w6, 3, 0);
	w5 = stepped(w5, w6, 4, 0);
	w6 = stepped(w6, w5, 4, 0);
	NEED(cell(5) == w5 && cell(6) == w6);
	CHECK(cuGraphChildGraphNodeGetGraph(t, &inner));
	CHECK(cuGraphGetNodes(inner, &m, &count));
	CHECK(cuGraphChildGraphNodeGetGraph(m, &innermost));
	CHECK(cuGraphGetNodes(innermost, &n, &count));
	to = 5, from = 6, c = 100;
	CHECK(cuGraphExecKernelNodeSetParams(x, n, &p));
	CHECK(cuGraphLaunch(x, NULL));
	w5 = stepped(w5, w6, 100, 0);
	w5 = stepped(w5, w6, 4, 0);
	w6 = stepped(w6, w5, 4, 0);
	NEED(cell(5) == w5 && cell(6) == w6);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(top));
}

// Updates: of one kernel, and by another graph of the same shape.
static void updates(void) {
	CUstream s;
	CUgraph g = NULL, other;
	CUgraphExec x;
	CUgraphExecUpdateResultInfo info;
	uint32_t w = 0;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	set_cells();
	for (uint32_t round = 0; round < 50; round++) {
		CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
		CHECK(cuMemsetD32Async(cells, round, 1, s));
		step_on(s, 0, 1, round, round);
		CHECK(cuMemcpyDtoDAsync(cells + 4 * (2 + round % 3), cells, 4, s));
		CHECK(cuStreamEndCapture(s, &other));
		if (round == 0) {
			CHECK(cuGraphInstantiateWithFlags(&x, other, 0));
			g = other;
		} else {
			CHECK(cuGraphExecUpdate(x, other, &info));
			CHECK(cuGraphDestroy(other));
		}
		CHECK(cuGraphLaunch(x, s));
		w = stepped(round, 2654435761u, round, round);
		CHECK(cuStreamSynchronize(s));
		NEED(cell(0) == w && cell(2 + round % 3) == w);
	}
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
}

// Memory of a launch that is used by other work until it is freed there.
static void allocations(void) {
	CUstream s;
	CUgraph g, frees;
	CUgraphExec x, fx;
	CUgraphNode a, f;
	cuuint64_t used = 1;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, .bytesize = 1 << 20};
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphAddMemAllocNode(&a, g, NULL, 0, &p));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuGraphCreate(&frees, 0));
	CHECK(cuGraphAddMemFreeNode(&f, frees, NULL, 0, p.dptr));
	CHECK(cuGraphInstantiateWithFlags(&fx, frees, 0));
	NEED(cuGraphLaunch(fx, s) == CUDA_ERROR_INVALID_VALUE); // nothing is there yet
	for (int round = 0; round < 4; round++) {
		uint32_t v = 0;
		CHECK(cuGraphLaunch(x, s));
		NEED(cuGraphLaunch(x, s) == CUDA_ERROR_INVALID_VALUE);
		CHECK(cuMemsetD32Async(p.dptr, 77 + round, 1 << 18, s));
		CHECK(cuStreamSynchronize(s));
		CHECK(cuMemcpyDtoH(&v, p.dptr + (1 << 20) - 4, 4));
		NEED(v == 77u + round);
		CHECK(round % 2 == 0 ? cuGraphLaunch(fx, s) : cuMemFreeAsync(p.dptr, s));
		NEED(cuMemFree(p.dptr) == CUDA_ERROR_INVALID_VALUE);
	}
	CHECK(cuStreamSynchronize(s));
	CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	NEED(used == 1 << 20); // the graph's until that ends
	CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
	NEED(used == 1 << 20);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphExecDestroy(fx));
	CHECK(cuGraphDestroy(g));
	CHECK(cuGraphDestroy(frees));
	CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	NEED(used == 0);
	CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &used));
	NEED(used == 0);
}

static uint32_t *shared_words; // managed
static uint32_t seen_by_function;
static void change_managed(void *unused) {
	(void)unused;
	seen_by_function = shared_words[3];
	shared_words[3] = 1000;
}

static CUDA_MEMCPY3D copied(CUmemorytype to_type, void *to, CUmemorytype from_type, const void *from, size_t size) {
	return (CUDA_MEMCPY3D){.dstMemoryType = to_type, .dstHost = to, .dstDevice = (CUdeviceptr)to, .srcMemoryType = from_type, .srcHost = from, .srcDevice = (CUdeviceptr)from, .WidthInBytes = size, .Height = 1, .Depth = 1};
}

// Copies and fills of managed memory by graphs, made node by node and captured, see what the
// program wrote, and the program sees what they wrote.
static void managed(void) {
	enum { WORDS = 1024 };
	CUdeviceptr m, plain;
	CUgraph g;
	CUgraphExec x;
	CUgraphNode in, out, fill, function, back;
	CUstream s;
	uint32_t host[WORDS];
	CHECK(cuMemAllocManaged(&m, 4 * WORDS, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAlloc(&plain, 4 * WORDS));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	shared_words = (uint32_t *)m;
	CHECK(cuGraphCreate(&g, 0));
	CUDA_MEMCPY3D to_plain = copied(CU_MEMORYTYPE_DEVICE, (void *)plain, CU_MEMORYTYPE_UNIFIED, shared_words, 4 * WORDS);
	CUDA_MEMCPY3D from_plain = copied(CU_MEMORYTYPE_HOST, shared_words, CU_MEMORYTYPE_DEVICE, (void *)plain, 64);
	CUDA_MEMCPY3D to_host = copied(CU_MEMORYTYPE_HOST, host, CU_MEMORYTYPE_DEVICE, shared_words, 4 * WORDS);
	CUDA_MEMSET_NODE_PARAMS ones = {.dst = m + 64, .value = 1, .elementSize = 4, .width = 16, .height = 1};
	CUDA_HOST_NODE_PARAMS calls_us = {.fn = change_managed};
	CHECK(cuGraphAddMemcpyNode(&in, g, NULL, 0, &to_plain, context));
	CHECK(cuGraphAddMemsetNode(&fill, g, &in, 1, &ones, context));
	CHECK(cuGraphAddHostNode(&function, g, &fill, 1, &calls_us));
	CHECK(cuGraphAddMemcpyNode(&out, g, &function, 1, &to_host, context));
	CHECK(cuGraphAddMemcpyNode(&back, g, &out, 1, &from_plain, context));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < WORDS; i++)
			shared_words[i] = round * 7 + i;
		CHECK(cuGraphLaunch(x, s));
		CHECK(cuStreamSynchronize(s));
		NEED(seen_by_function == round * 7 + 3);
		NEED(host[2] == round * 7 + 2 && host[3] == 1000 && host[15] == round * 7 + 15 && host[16] == 1 && host[31] == 1 && host[32] == round * 7 + 32);
		NEED(shared_words[3] == round * 7 + 3 && shared_words[16] == 1 && shared_words[31] == 1 && shared_words[32] == round * 7 + 32);
		uint32_t word;
		CHECK(cuMemcpyDtoH(&word, plain + 4 * 20, 4));
		NEED(word == round * 7 + 20);
	}
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
	CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuMemcpyDtoDAsync(plain, m, 4 * WORDS, s));
	CHECK(cuMemsetD8Async(m, 9, 16, s));
	CHECK(cuMemcpyHtoDAsync(m + 32, shared_words, 16, s));
	CHECK(cuStreamEndCapture(s, &g));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < WORDS; i++)
			shared_words[i] = round * 5 + i;
		CHECK(cuGraphLaunch(x, s));
		CHECK(cuStreamSynchronize(s));
		NEED(shared_words[0] == 0x09090909 && shared_words[4] == round * 5 + 4 && shared_words[8] == 0x09090909 && shared_words[12] == round * 5 + 12);
	}
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
	CHECK(cuMemFree(m));
	CHECK(cuMemFree(plain));
	CHECK(cuStreamDestroy(s));
}

static CUgraph line_of_three(CUgraphNode *nodes, int last_behind) {
	CUgraph g;
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphAddEmptyNode(&nodes[0], g, NULL, 0));
	CHECK(cuGraphAddEmptyNode(&nodes[1], g, &nodes[0], 1));
	CHECK(cuGraphAddHostNode(&nodes[2], g, &nodes[last_behind], 1, &(CUDA_HOST_NODE_PARAMS){.fn = change_managed}));
	return g;
}

// What an update says of another graph: the node whose dependencies differ.
static void differences(void) {
	CUgraphNode nodes[3], others[3];
	CUgraph g = line_of_three(nodes, 1), other = line_of_three(others, 0);
	CUgraphExec x;
	CUgraphExecUpdateResultInfo info;
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	NEED(cuGraphExecUpdate(x, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	NEED(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode == others[2] && info.errorFromNode == NULL);
	CHECK(cuGraphExecUpdate(x, g, &info));
	NEED(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && info.errorNode == NULL && info.errorFromNode == NULL);
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuGraphDestroy(g));
	CHECK(cuGraphDestroy(other));
}

// A drawing says what it is asked for.
static void drawing(void) {
	CUgraph g;
	CUgraphNode k, f;
	uint32_t two = 2, three = 3, zero = 0;
	CUDA_KERNEL_NODE_PARAMS p = {.func = step, .gridDimX = 5, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = (void *[]){&cells, &two, &three, &zero, &zero}};
	CUDA_MEMSET_NODE_PARAMS set = {.dst = cells, .value = 77, .elementSize = 4, .width = 4, .height = 1};
	CHECK(cuGraphCreate(&g, 0));
	CHECK(cuGraphAddKernelNode(&k, g, NULL, 0, &p));
	CHECK(cuGraphAddMemsetNode(&f, g, &k, 1, &set, context));
	char path[] = "/tmp/muster-drawing-XXXXXX", text[4096] = "";
	int fd = mkstemp(path);
	NEED(fd >= 0);
	for (unsigned flags = 0; flags < 3; flags++) { // nothing, all, and what kernels do
		const unsigned all[] = {0, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS};
		CHECK(cuGraphDebugDotPrint(g, path, all[flags]));
		ssize_t n = pread(fd, text, sizeof text - 1, 0);
		NEED(n > 0);
		text[n] = 0;
		NEED(strstr(text, "step") != NULL && strstr(text, "MEMSET") != NULL && strstr(text, "->") != NULL);
		NEED((strstr(text, "grid 5 1 1") != NULL) == (flags > 0) && (strstr(text, "param 2 00000003") != NULL) == (flags > 0) && (strstr(text, "value 77") != NULL) == (flags == 1));
	}
	close(fd);
	unlink(path);
	CHECK(cuGraphDestroy(g));
}

static void count_call(void *unused) {
	(void)unused;
	calls++;
}

// Says how long a function of the program's took, of so many that were given at once.
static void functions(unsigned launches) {
	enum { LINE = 100 };
	CUgraph g;
	CUgraphExec x;
	CUstream s;
	CUgraphNode n, last = NULL;
	struct timespec from, to;
	CUDA_HOST_NODE_PARAMS p = {.fn = count_call};
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuGraphCreate(&g, 0));
	for (int i = 0; i < LINE; i++, last = n)
		CHECK(cuGraphAddHostNode(&n, g, &last, last != NULL, &p));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuGraphLaunch(x, s));
	CHECK(cuStreamSynchronize(s));
	calls = 0;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (unsigned i = 0; i < launches; i++)
		CHECK(cuGraphLaunch(x, s));
	CHECK(cuStreamSynchronize(s));
	clock_gettime(CLOCK_MONOTONIC, &to);
	NEED((unsigned)calls == launches * LINE);
	printf("%ld\n", ((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec) / calls);
}

static CUstream cancelled, other_capture;
static bool destroyed;

static void *ask(void *unused) {
	CUstreamCaptureStatus state;
	(void)unused;
	CHECK(cuStreamIsCapturing(other_capture, &state));
	NEED(state == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	return NULL;
}

// A program's destructor may wait for what another thread does with CUDA.
static void on_destroy(void *unused) {
	pthread_t thread;
	(void)unused;
	NEED(pthread_create(&thread, NULL, ask, NULL) == 0 && pthread_join(thread, NULL) == 0);
	destroyed = true;
}

// A capture whose stream is destroyed, or that fails, releases its graph and what the graph retains.
static void cancelling(void) {
	CUgraph g;
	CUuserObject o;
	CHECK(cuStreamCreate(&other_capture, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture(other_capture, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (int fail = 0; fail < 2; fail++) {
		CUstreamCaptureStatus state;
		cuuint64_t id;
		const CUgraphNode *front;
		size_t count;
		destroyed = false;
		CHECK(cuStreamCreate(&cancelled, CU_STREAM_NON_BLOCKING));
		CHECK(cuStreamBeginCapture(cancelled, CU_STREAM_CAPTURE_MODE_RELAXED));
		CHECK(cuStreamGetCaptureInfo_v2(cancelled, &state, &id, &g, &front, &count));
		CHECK(cuUserObjectCreate(&o, NULL, on_destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
		CHECK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
		if (fail == 1) {
			NEED(cuStreamSynchronize(cancelled) != CUDA_SUCCESS); // invalidates the capture
			NEED(cuStreamEndCapture(cancelled, &g) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && g == NULL);
		}
		CHECK(cuStreamDestroy(cancelled));
		NEED(destroyed);
	}
	CHECK(cuStreamEndCapture(other_capture, &g));
	CHECK(cuGraphDestroy(g));
	CHECK(cuStreamDestroy(other_capture));
}

// A graph outlives the context that it was made in, and says so.
static void contexts(void) {
	CUgraphExec x = forks();
	CUcontext old = context;
	CUevent e;
	CHECK(cuEventCreate(&e, 0));
	CHECK(cuGraphLaunch(x, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuCtxDestroy(old));
	start();
	NEED(cuGraphLaunch(x, NULL) != CUDA_SUCCESS);
	CHECK(cuGraphExecDestroy(x));
	set_cells();
	x = forks();
	CHECK(cuGraphLaunch(x, NULL));
	CHECK(cuCtxSynchronize());
	CHECK(cuGraphExecDestroy(x));
}

int main(int argc, char **argv) {
	start();
	const char *what = argc > 1 ? argv[1] : "";
	if (strcmp(what, "random") == 0)
		random_graphs((uint32_t)strtoul(argv[2], NULL, 10), (uint32_t)strtoul(argv[3], NULL, 10));
	else if (strcmp(what, "replay") == 0)
		replay();
	else if (strcmp(what, "uses") == 0) {
		static const struct {
			const char *name;
			void (*f)(void);
		} all[] = {{"hosts", hosts}, {"rows", rows}, {"children", children}, {"updates", updates}, {"allocations", allocations}, {"managed", managed}, {"differences", differences}, {"drawing", drawing}, {"cancelling", cancelling}, {"contexts", contexts}};
		for (size_t i = 0; i < sizeof all / sizeof *all; i++)
			if (argc < 3 || strcmp(argv[2], all[i].name) == 0)
				all[i].f();
	} else if (strcmp(what, "functions") == 0) {
		functions((unsigned)strtoul(argv[2], NULL, 10));
	} else {
		return 2;
	}
	puts("right");
	return 0;
}
