// A program whose kernels reach its own memory: see main.
#include "kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

// answer(p): waits until p[0] is 1, sets p[1] to p[2] + 1. count(p): each thread adds 1 to
// p[0] at once, for all to see. follow(p): adds 1 to what *p points to.
static const char mapped_image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry answer(.param .u64 p) {\n"
    "  .reg .pred %q; .reg .b32 %r<4>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [p];\n"
    "again: ld.volatile.global.u32 %r0, [%d0]; setp.ne.u32 %q, %r0, 1; @%q bra again;\n"
    "  membar.sys; ld.volatile.global.u32 %r1, [%d0+8]; add.u32 %r2, %r1, 1;\n"
    "  st.volatile.global.u32 [%d0+4], %r2; ret;\n}\n"
    ".visible .entry count(.param .u64 p) {\n"
    "  .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [p]; atom.global.sys.add.u32 %r0, [%d0], 1; ret;\n}\n"
    ".visible .entry follow(.param .u64 p) {\n"
    "  .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [p]; ld.global.u64 %d1, [%d0]; ld.global.u32 %r0, [%d1]; add.u32 %r1, %r0, 1;\n"
    "  st.global.u32 [%d1], %r1; ret;\n}\n";

static CUcontext context;
static CUfunction add, poke, answer, count, follow;

static void start(void) {
	CUdevice device;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, CU_CTX_MAP_HOST, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuModuleGetFunction(&poke, module, "poke"));
	CHECK(cuModuleLoadData(&module, mapped_image));
	CHECK(cuModuleGetFunction(&answer, module, "answer"));
	CHECK(cuModuleGetFunction(&count, module, "count"));
	CHECK(cuModuleGetFunction(&follow, module, "follow"));
}

static void launch(CUfunction f, unsigned blocks, void *p) { CHECK(cuLaunchKernel(f, blocks, 1, 1, 64, 1, 1, 0, NULL, (void *[]){&p}, NULL)); }

static void add_to(CUdeviceptr p, unsigned n, unsigned v) { CHECK(cuLaunchKernel(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, (void *[]){&p, &n, &v}, NULL)); }

// A kernel waits for a word of the program's, and answers while it runs.
static void talk(void) {
	volatile uint32_t *p;
	CUdeviceptr device;
	unsigned flags;
	int can;
	CHECK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
	NEED(can == 1);
	CHECK(cuMemHostAlloc((void **)&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer(&device, (void *)p, 0));
	NEED(device == (CUdeviceptr)p);
	CHECK(cuMemHostGetFlags(&flags, (void *)p));
	NEED(flags == CU_MEMHOSTALLOC_DEVICEMAP);
	NEED(cuMemHostGetDevicePointer(&device, (void *)p, 1) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemHostGetDevicePointer(&device, &can, 0) == CUDA_ERROR_INVALID_VALUE);
	p[2] = 41;
	CHECK(cuLaunchKernel(answer, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&p}, NULL));
	NEED(p[1] == 0);
	__atomic_store_n(&p[0], 1, __ATOMIC_SEQ_CST);
	while (p[1] == 0) // nobody synchronises
		usleep(100);
	NEED(p[1] == 42);
	CHECK(cuCtxSynchronize());
	CHECK(cuMemFreeHost((void *)p));
}

// The host and the kernel add to one word at once.
static void atomics(void) {
	uint32_t *p;
	CHECK(cuMemHostAlloc((void **)&p, 64, 0)); // and nobody asks for its address on the device
	launch(count, 200, p);
	for (int i = 0; i < 20000; i++)
		__atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
	CHECK(cuCtxSynchronize());
	NEED(*p == 20000 + 200 * 64);
	CHECK(cuMemFreeHost(p));
	CHECK(cuMemAllocHost((void **)&p, 64));
	launch(poke, 1, p);
	CHECK(cuCtxSynchronize());
	NEED(*p == 1);
}

// Memory of malloc, in the middle of a heap that another thread uses meanwhile.
static volatile bool stop;

static void *use_heap(void *beside) {
	for (uint64_t n = 0; !stop; n++)
		*(volatile uint64_t *)beside = n;
	return NULL;
}

static void registered(void) {
	enum { WORDS = 5000 };
	uint32_t *block = malloc(4 * (WORDS + 64)), *p = block + 32;
	pthread_t thread;
	CUdeviceptr device;
	memset(block, 0, 4 * (WORDS + 64));
	for (unsigned i = 0; i < WORDS; i++)
		p[i] = i;
	block[31] = 77;
	p[WORDS] = 78;
	pthread_create(&thread, NULL, use_heap, block);
	for (unsigned round = 1; round <= 20; round++) {
		CHECK(cuMemHostRegister(p, 4 * WORDS, round % 2 ? CU_MEMHOSTREGISTER_DEVICEMAP : 0));
		CHECK(cuMemHostGetDevicePointer(&device, p, 0));
		add_to(device, WORDS, 1);
		CHECK(cuCtxSynchronize());
		for (unsigned i = 0; i < WORDS; i++)
			NEED(p[i] == i + round);
		NEED(block[31] == 77 && p[WORDS] == 78);
		if (round == 3) { // a child has its own
			pid_t child = fork();
			if (child == 0) {
				NEED(p[5] == 5 + round);
				p[5] = 0;
				free(malloc(100000));
				_exit(0);
			}
			int status;
			waitpid(child, &status, 0);
			NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0 && p[5] == 5 + round);
		}
		CHECK(cuMemHostUnregister(p));
	}
	stop = true;
	pthread_join(thread, NULL);
	free(block);
	uint32_t *pages = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(cuMemHostRegister(pages, 1 << 20, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer(&device, pages + 7, 0));
	launch(poke, 1, (void *)device);
	CHECK(cuCtxSynchronize());
	NEED(pages[7] == 1);
	CHECK(cuMemHostUnregister(pages));
	uint32_t *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(cuMemHostRegister(other, 4096, 0));
	NEED(cuMemHostGetDevicePointer(&device, other, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

// A pointer to memory of the host in memory of the device.
static void pointers(void) {
	uint32_t *p;
	CUdeviceptr q, device;
	CHECK(cuMemHostAlloc((void **)&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(cuMemHostGetDevicePointer(&device, p + 3, 0));
	CHECK(cuMemAlloc(&q, 8));
	CHECK(cuMemcpyHtoD(q, &device, 8));
	CHECK(cuLaunchKernel(follow, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&q}, NULL));
	CHECK(cuCtxSynchronize());
	NEED(p[3] == 1);
	CHECK(cuMemFreeHost(p));
	// After that nobody reaches it.
	CHECK(cuLaunchKernel(follow, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&q}, NULL));
	NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Copies to the device from memory that a kernel, or a function of the stream, writes before.
static sem_t gone_on;

static void *release(void *word) {
	outlast(&gone_on);
	__atomic_store_n((uint32_t *)word, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void CUDA_CB fill(void *words) {
	outlast(&gone_on);
	for (int i = 0; i < 64; i++)
		((uint32_t *)words)[i] = 42;
}

static void sources(void) {
	uint32_t *p, *q = calloc(64, 4), values[64];
	CUdeviceptr d;
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode nodes[2];
	pthread_t thread;
	sem_init(&gone_on, 0, 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(cuMemHostRegister(p, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
	CHECK(cuMemAlloc(&d, 4096));
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = answer, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = (void *[]){&p}};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = p, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .WidthInBytes = 256, .Height = 1, .Depth = 1};
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcPitch = 128, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = d, .dstPitch = 128, .WidthInBytes = 128, .Height = 2};
	for (int way = 0; way < 7; way++) {
		bool function = way > 4;
		p[0] = p[1] = q[1] = 0;
		p[2] = 41;
		CHECK(cuMemsetD32(d, 0, 64));
		CHECK(cuCtxSynchronize());
		if (!function)
			pthread_create(&thread, NULL, release, p);
		if (function)
			CHECK(cuLaunchHostFunc(NULL, fill, q));
		else if (way > 1)
			CHECK(cuLaunchKernel(answer, 1, 1, 1, 1, 1, 1, 0, NULL, kernel.kernelParams, NULL));
		switch (way) {
		case 0: // the graph is made before a kernel has reached the memory
		case 1: // and behind that
			CHECK(cuGraphCreate(&graph, 0));
			CHECK(cuGraphAddKernelNode(&nodes[0], graph, NULL, 0, &kernel));
			CHECK(cuGraphAddMemcpyNode(&nodes[1], graph, nodes, 1, &copy, context));
			CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
			CHECK(cuGraphLaunch(exec, NULL));
			break;
		case 2:
			CHECK(cuMemcpyHtoDAsync(d, p, 256, NULL));
			break;
		case 3:
			CHECK(cuMemcpyHtoD(d, p, 256));
			break;
		case 4:
			rows.srcHost = p;
			CHECK(cuMemcpy2D(&rows));
			break;
		case 5:
			CHECK(cuMemcpyHtoD(d, q, 256));
			break;
		case 6:
			rows.srcHost = q;
			CHECK(cuMemcpy2D(&rows));
		}
		sem_post(&gone_on);
		CHECK(cuCtxSynchronize());
		if (!function)
			pthread_join(thread, NULL);
		sem_trywait(&gone_on);
		CHECK(cuMemcpyDtoH(values, d, 256));
		if (values[1] != 42) {
			fprintf(stderr, "way %d: the copy has %u\n", way, values[1]);
			exit(1);
		}
	}
}

// Computes round by round as it is told.
static void rounds(void) {
	uint32_t *p;
	CHECK(cuMemHostAlloc((void **)&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	puts("begun");
	fflush(stdout);
	unsigned round = 0;
	for (int c; (c = getchar()) == '\n';) {
		add_to((CUdeviceptr)p, 1000, 1);
		CHECK(cuCtxSynchronize());
		round++;
		NEED(p[0] == round && p[999] == round);
		printf("round %u\n", round);
		fflush(stdout);
	}
}

// Nobody maps anything over a network.
static void refused(void) {
	void *p;
	CUdeviceptr device;
	CHECK(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	NEED(cuMemHostGetDevicePointer(&device, p, 0) == CUDA_ERROR_NOT_SUPPORTED);
}

// Registered memory at an address that is read, which a kernel uses as it is.
static void at(void) {
	unsigned long address;
	CUdeviceptr d;
	CHECK(cuMemAlloc(&d, 4096));
	CHECK(cuMemsetD32(d, 5, 1024));
	CHECK(cuCtxSynchronize());
	puts("ready");
	fflush(stdout);
	NEED(scanf("%lx", &address) == 1);
	uint32_t *p = mmap((void *)address, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), word;
	NEED(p == (void *)address);
	p[7] = 30;
	CHECK(cuMemHostRegister(p, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
	add_to((CUdeviceptr)p, 1024, 12);
	add_to(d, 1024, 2);
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(&word, d + 40, 4));
	NEED(p[7] == 42 && p[8] == 12 && word == 7);
	CHECK(cuMemHostUnregister(p));
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	start();
	if (strcmp(what, "talk") == 0)
		talk();
	else if (strcmp(what, "atomics") == 0)
		atomics();
	else if (strcmp(what, "registered") == 0)
		registered();
	else if (strcmp(what, "pointers") == 0)
		pointers();
	else if (strcmp(what, "sources") == 0)
		sources();
	else if (strcmp(what, "rounds") == 0)
		rounds();
	else if (strcmp(what, "at") == 0)
		at();
	else if (strcmp(what, "refused") == 0)
		refused();
	else
		return 2;
	puts("right");
	return 0;
}
