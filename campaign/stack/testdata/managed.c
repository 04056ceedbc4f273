// A program with managed memory, and what it does with it: see main.
#include "kernels.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>

// walk(n): adds 1 to the value of each node of a list. later(): doubles var.
static const char lists[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .attribute(.managed) .align 8 .u64 var = 5;\n"
    ".visible .global .attribute(.managed) .align 4 .u32 other = 9;\n"
    ".visible .global .align 4 .u32 plain_one = 3;\n"
    ".visible .entry walk(.param .u64 n) {\n"
    "  .reg .pred %q; .reg .b64 %d<3>;\n"
    "  ld.param.u64 %d0, [n];\n"
    "next: setp.eq.u64 %q, %d0, 0; @%q bra end;\n"
    "  ld.global.u64 %d1, [%d0+8]; add.u64 %d1, %d1, 1; st.global.u64 [%d0+8], %d1;\n"
    "  ld.global.u64 %d0, [%d0]; bra next;\n"
    "end: ret;\n}\n"
    ".visible .entry later() {\n"
    "  .reg .b64 %d<2>;\n"
    "  ld.global.u64 %d0, [var]; add.u64 %d1, %d0, %d0; st.global.u64 [var], %d1; ret;\n}\n";

struct node {
	struct node *next;
	uint64_t value;
};

static CUcontext context;
static CUfunction add, walk, poke;

static void start(void) {
	CUdevice device;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuModuleGetFunction(&poke, module, "poke"));
	CHECK(cuModuleLoadData(&module, lists));
	CHECK(cuModuleGetFunction(&walk, module, "walk"));
}

static void *managed(size_t bytes) {
	CUdeviceptr p;
	CHECK(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
	return (void *)p;
}

static void add_on(void *p, unsigned n, unsigned v, CUstream stream) {
	void *args[] = {&p, &n, &v};
	CHECK(cuLaunchKernel(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, args, NULL));
}

// A list that the host and the device change in turn.
static void list(unsigned count, unsigned rounds) {
	struct node *first = NULL;
	for (unsigned i = 0; i < count; i++) {
		struct node *n = managed(sizeof *n);
		*n = (struct node){first, i};
		first = n;
	}
	for (unsigned round = 0; round < rounds; round++) {
		CHECK(cuLaunchKernel(walk, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&first}, NULL));
		unsigned i = count;
		for (struct node *n = first; n != NULL; n = n->next) {
			i--;
			NEED(n->value == i + 101 * (uint64_t)round + 1);
			n->value += 100;
		}
		NEED(i == 0);
	}
	for (struct node *n = first, *next; n != NULL; n = next) {
		next = n->next;
		CHECK(cuMemFree((CUdeviceptr)n));
	}
}

// Words that both sides change, with copies of every kind between.
static void words(unsigned count, unsigned rounds) {
	unsigned *p = managed(4ul * count), *q = managed(4ul * count), *heap = malloc(4ul * count), sum = 0;
	NEED(p[0] == 0 && p[count - 1] == 0);
	for (unsigned i = 0; i < count; i++)
		p[i] = i;
	for (unsigned round = 1; round <= rounds; round++) {
		add_on(p, count, round, NULL);
		sum += round;
		CHECK(cuMemcpy((CUdeviceptr)q, (CUdeviceptr)p, 4ul * count));
		NEED(q[0] == sum && q[count - 1] == count - 1 + sum);
		q[1] = 77;
		CHECK(cuMemcpyDtoH(heap, (CUdeviceptr)q, 4ul * count));
		NEED(heap[1] == 77 && heap[2] == 2 + sum);
		NEED(q[1] == 77); // the copy has only read it
		heap[3] = 33;
		CHECK(cuMemcpyHtoD((CUdeviceptr)q, heap, 4ul * count));
		NEED(q[3] == 33 && q[1] == 77);
		CHECK(cuMemsetD32((CUdeviceptr)q + 8, 5, 1));
		NEED(q[2] == 5 && q[3] == 33 && q[1] == 77);
		for (unsigned i = 0; i < count; i += 1000)
			NEED(p[i] == i + sum);
	}
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = p, .srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = heap, .dstPitch = 32, .WidthInBytes = 32, .Height = 10};
	p[16] = 4711;
	CHECK(cuMemcpy2D(&rows));
	NEED(heap[8] == 4711);
	CHECK(cuMemFree((CUdeviceptr)p));
	CHECK(cuMemFree((CUdeviceptr)q));
	NEED(cuMemFree((CUdeviceptr)q) == CUDA_ERROR_INVALID_VALUE);
	free(heap);
}

// Threads that touch the same memory at once after the device has had it.
enum { WORDS = 1 << 20, THREADS = 8 };
static unsigned *shared;
static pthread_barrier_t barrier;

static void *sum_up(void *number) {
	CHECK(cuCtxSetCurrent(context));
	for (unsigned round = 1; round <= 10; round++) {
		pthread_barrier_wait(&barrier);
		for (unsigned i = (unsigned)(uintptr_t)number; i < WORDS; i += THREADS) {
			NEED(shared[i] == i + 2 * round - 1);
			shared[i]++;
		}
		pthread_barrier_wait(&barrier);
		if (number == NULL && round < 10)
			add_on(shared, WORDS, 1, NULL);
	}
	return NULL;
}

static void threads(void) {
	pthread_t all[THREADS];
	shared = managed(4ul * WORDS);
	for (unsigned i = 0; i < WORDS; i++)
		shared[i] = i;
	pthread_barrier_init(&barrier, NULL, THREADS);
	add_on(shared, WORDS, 1, NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&all[i], NULL, sum_up, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
}

// The program's own handler, installed before and after the library's.
static sigjmp_buf back;
static volatile int caught;

static void on_segv(int number, siginfo_t *info, void *u) {
	(void)number, (void)u;
	caught++;
	NEED(info->si_addr == (void *)64);
	siglongjmp(back, 1);
}

static void plain(int number) {
	(void)number;
	caught++;
	siglongjmp(back, 1);
}

static void handler(void) {
	struct sigaction mine = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &mine, NULL);
	unsigned *p = managed(1 << 20);
	volatile unsigned *nowhere = (unsigned *)64;
	for (int i = 0; i < 4; i++) {
		p[i] = 1;
		add_on(p, 100, 1, NULL);
		if (sigsetjmp(back, 1) == 0)
			*nowhere = 1;
		NEED(caught == i + 1);
		NEED(p[i] == 2);
		if (i == 1) {
			signal(SIGSEGV, plain);
			add_on(p, 100, 0, NULL);
		}
	}
	sigset_t mask;
	sigprocmask(SIG_SETMASK, NULL, &mask);
	for (int i = 1; i < 32; i++)
		NEED(sigismember(&mask, i) == 0);
}

// A child has none of the memory, and what it does hurts nobody.
static void children(void) {
	unsigned *p = managed(1 << 20), *kept = managed(1 << 20);
	p[0] = 41;
	kept[0] = 7;
	add_on(p, 1, 1, NULL);
	pid_t child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		kept[0] = 8;
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	NEED(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	child = fork();
	if (child == 0) { // it may begin anew
		start();
		words(1000, 2);
		_exit(0);
	}
	waitpid(child, &status, 0);
	NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	NEED(p[0] == 42 && kept[0] == 7);
}

// Functions of the program's in a stream.
static void CUDA_CB triple(void *data) { *(unsigned *)data *= 3; }

static void functions(void) {
	unsigned *p = managed(1 << 20);
	CUstream s;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	p[0] = 1;
	for (int i = 0; i < 5; i++) {
		add_on(p, 1, 1, s);
		CHECK(cuLaunchHostFunc(s, triple, p));
		add_on(p, 1, 1, s);
	}
	NEED(p[0] == 727); // x -> 3x + 4
}

// The same in more streams than a device has queues: what a function waits for must not be in a queue
// with a stream that waits for a function.
static void streams(unsigned n) {
	unsigned *p[64];
	CUstream s[64];
	NEED(n <= 64);
	for (unsigned i = 0; i < n; i++) {
		p[i] = managed(1 << 20);
		p[i][0] = 1;
		CHECK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
	}
	for (int round = 0; round < 5; round++)
		for (unsigned i = 0; i < n; i++) {
			add_on(p[i], 1, 1, s[i]);
			CHECK(cuLaunchHostFunc(s[i], triple, p[i]));
			add_on(p[i], 1, 1, s[i]);
		}
	CHECK(cuCtxSynchronize());
	for (unsigned i = 0; i < n; i++)
		NEED(p[i][0] == 727);
}

// The program gives memory back, and copies to memory that is new, while a function of a stream is
// about to touch managed memory.
static sem_t gone_on;

static void CUDA_CB touch(void *data) {
	outlast(&gone_on);
	triple(data);
}

static void freeing(void) {
	unsigned *p = managed(1 << 20), *pinned, value;
	CUdeviceptr other, fresh;
	CUstream s, quiet;
	sem_init(&gone_on, 0, 0);
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&quiet, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemHostAlloc((void **)&pinned, 4096, 0));
	p[0] = 1;
	for (int way = 0; way < 4; way++) {
		CHECK(cuMemAlloc(&other, 4 << 20));
		CHECK(cuMemsetD32(other, 1, 1 << 20));
		add_on(p, 1, 1, s);
		CHECK(cuLaunchHostFunc(s, touch, p));
		switch (way) {
		case 0:
			CHECK(cuMemFree(other));
			break;
		case 1:
			CHECK(cuMemFreeAsync(other, quiet));
			break;
		case 2:
			CHECK(cuMemAlloc(&fresh, 4096));
			pinned[5] = 4711;
			CHECK(cuMemcpyHtoDAsync(fresh, pinned, 4096, s));
			break;
		case 3:
			CHECK(cuMemAlloc(&fresh, 4 << 20));
			CHECK(cuMemcpyDtoHAsync(pinned, fresh, 4096, s));
		}
		sem_post(&gone_on);
		CHECK(cuStreamSynchronize(s));
		sem_trywait(&gone_on);
		if (way == 2) {
			CHECK(cuMemcpyDtoH(&value, fresh + 20, 4));
			NEED(value == 4711);
		}
	}
	NEED(p[0] == 201); // x -> 3x + 3
}

// What memory is attached to, and what the program says and asks of it.
static void attributes(void) {
	CUdeviceptr p, q;
	CUstream s;
	unsigned type, yes;
	int device, users[3];
	void *host;
	CHECK(cuStreamCreate(&s, 0));
	CHECK(cuDeviceGetAttribute(&device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
	NEED(device == 1);
	CHECK(cuDeviceGetAttribute(&device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
	NEED(device == 0);
	NEED(cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAllocManaged(&p, 4, CU_MEM_ATTACH_SINGLE) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAllocManaged(&p, 1ul << 45, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemAllocManaged(&p, 10000, CU_MEM_ATTACH_HOST));
	CHECK(cuMemAlloc(&q, 10000));
	CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5));
	CHECK(cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 5));
	CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p + 5));
	NEED(type == CU_MEMORYTYPE_DEVICE && yes == 1 && host == (void *)(p + 5));
	CHECK(cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, q));
	NEED(yes == 0);
	CUdeviceptr base;
	size_t size;
	CHECK(cuMemGetAddressRange(&base, &size, p + 9999));
	NEED(base == p && size == 10000);
	unsigned *words = (unsigned *)p;
	words[0] = 1;
	NEED(cuStreamAttachMemAsync(NULL, p, 0, CU_MEM_ATTACH_SINGLE) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamAttachMemAsync(s, p, 4, CU_MEM_ATTACH_SINGLE) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamAttachMemAsync(s, q, 0, CU_MEM_ATTACH_SINGLE) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuStreamAttachMemAsync(s, p, 0, 7) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuStreamAttachMemAsync(s, p, 0, CU_MEM_ATTACH_SINGLE));
	add_on(words, 1, 1, s);
	NEED(words[0] == 2);
	add_on(words, 1, 1, s);
	CHECK(cuStreamAttachMemAsync(s, p, 0, CU_MEM_ATTACH_HOST));
	CHECK(cuStreamSynchronize(s));
	NEED(words[0] == 3);
	CHECK(cuStreamAttachMemAsync(NULL, p, 10000, CU_MEM_ATTACH_GLOBAL));
	add_on(words, 1, 1, NULL);
	NEED(words[0] == 4);

	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, there = {CU_MEM_LOCATION_TYPE_HOST, 0}, nowhere = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
	words[0] = 10;
	CHECK(cuMemPrefetchAsync(p, 10000, here, 0, s));
	add_on(words, 1, 1, NULL);
	CHECK(cuMemPrefetchAsync(p, 10000, there, 0, NULL));
	NEED(words[0] == 11);
	NEED(cuMemPrefetchAsync(p, 10001, here, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemPrefetchAsync(p, 0, here, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemPrefetchAsync(q, 1, here, 0, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemPrefetchAsync(p, 1, nowhere, 0, NULL) == CUDA_ERROR_INVALID_DEVICE);
	CHECK(cuMemAdvise(p, 10000, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
	CHECK(cuMemAdvise(p, 10000, CU_MEM_ADVISE_SET_ACCESSED_BY, there));
	CHECK(cuMemAdvise(p, 10000, CU_MEM_ADVISE_SET_ACCESSED_BY, here));
	NEED(cuMemAdvise(q, 10000, CU_MEM_ADVISE_SET_READ_MOSTLY, here) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemRangeGetAttribute(&device, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 10000));
	NEED(device == 1);
	CHECK(cuMemRangeGetAttribute(&device, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 10000));
	NEED(device == -2);
	CHECK(cuMemRangeGetAttribute(&device, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 10000));
	NEED(device == -1);
	void *data[] = {&device, users};
	size_t sizes[] = {4, sizeof users};
	CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
	CHECK(cuMemRangeGetAttributes(data, sizes, which, 2, p, 10000));
	NEED(device == 1 && users[0] == -1 && users[1] == 0 && users[2] == -2);
	CHECK(cuMemFree(p));
	NEED(cuPointerGetAttribute(&yes, CU_POINTER_ATTRIBUTE_IS_MANAGED, p) == CUDA_ERROR_INVALID_VALUE);
}

// Variables of a module.
static void variables(void) {
	CUlibrary library;
	CUkernel later;
	CUdeviceptr p, q;
	size_t size;
	CHECK(cuLibraryLoadData(&library, lists, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(cuLibraryGetManaged(&p, &size, library, "var"));
	NEED(size == 8);
	CHECK(cuLibraryGetManaged(&q, &size, library, "other"));
	CHECK(cuLibraryGetKernel(&later, library, "later"));
	uint64_t *var = (uint64_t *)p;
	unsigned *other = (unsigned *)q;
	NEED(*var == 5 && *other == 9);
	*var = 21;
	CHECK(cuLaunchKernel((CUfunction)later, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	NEED(*var == 42 && *other == 9);
	CHECK(cuMemcpyDtoH(&size, p, 8));
	NEED(size == 42);
	NEED(cuLibraryGetManaged(&p, &size, library, "nothing") == CUDA_ERROR_NOT_FOUND);
	NEED(cuLibraryGetManaged(&p, &size, library, "plain_one") == CUDA_ERROR_NOT_FOUND);
	CHECK(cuLibraryUnload(library));
	CUmodule module;
	CHECK(cuModuleLoadData(&module, lists));
	CHECK(cuModuleGetGlobal(&p, &size, module, "var"));
	NEED(*(uint64_t *)p == 5);
	CHECK(cuModuleUnload(module));
}

// Computes round by round as it is told, so that others may change what is below.
static void rounds(unsigned count) {
	unsigned *p = managed(4ul * count), round = 0;
	puts("begun");
	fflush(stdout);
	for (int c; (c = getchar()) == '\n';) {
		for (unsigned i = 0; i < count; i += 512)
			p[i] += 1;
		add_on(p, count, 1, NULL);
		round++;
		if (round % 2 == 0)
			for (unsigned i = 0; i < count; i++)
				NEED(p[i] == (i % 512 == 0 ? 2 * round : round));
		printf("round %u\n", round);
		fflush(stdout);
	}
}

// A fault of a kernel: calls say so, and the program does not die of its memory.
static void fault(void) {
	unsigned *p = managed(1 << 20);
	CUdeviceptr nowhere = 16;
	p[0] = 5;
	add_on(p, 1, 1, NULL);
	CHECK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&nowhere}, NULL));
	NEED(p[0] == 5 || p[0] == 6);
	NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	cuCtxDestroy(context);
	start();
	words(1000, 2);
}

// The runtime asks for variables before there is a context.
static void early(void) {
	CUlibrary library;
	CUdeviceptr p;
	size_t size;
	CUcontext primary;
	CHECK(cuCtxSetCurrent(NULL));
	CHECK(cuLibraryLoadData(&library, lists, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(cuLibraryGetManaged(&p, &size, library, "var"));
	NEED(size == 8);
	CHECK(cuDevicePrimaryCtxRetain(&primary, 0));
	CHECK(cuCtxSetCurrent(primary));
	NEED(*(uint64_t *)p == 5);
	CUkernel later;
	CHECK(cuLibraryGetKernel(&later, library, "later"));
	CHECK(cuLaunchKernel((CUfunction)later, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	NEED(*(uint64_t *)p == 10);
	CHECK(cuDevicePrimaryCtxRelease(0));
}

// Batches of copies and prefetches.
static void batches(void) {
	enum { N = 6, SIZE = 5000 };
	CUstream s;
	CUdeviceptr in, managed, to[N], from[N];
	size_t sizes[N], first[] = {0, 3};
	static char host[2][N * SIZE];
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&in, N * SIZE));
	CHECK(cuMemAllocManaged(&managed, N * SIZE, CU_MEM_ATTACH_GLOBAL));
	CUmemcpyAttributes how[] = {{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM}, {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}};
	for (int i = 0; i < N * SIZE; i++)
		host[0][i] = (char)(i * 7 >> 2);
	for (int i = 0; i < N; i++)
		to[i] = in + i * SIZE, from[i] = (CUdeviceptr)(uintptr_t)host[0] + i * SIZE, sizes[i] = SIZE;
	CHECK(cuMemcpyBatchAsync(to, from, sizes, N, how, first, 2, s));
	for (int i = 0; i < N; i++)
		from[i] = to[i], to[i] = managed + i * SIZE;
	CHECK(cuMemcpyBatchAsync(to, from, sizes, N, how, first, 1, s));
	CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_HOST, 0}, {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CHECK(cuMemPrefetchBatchAsync(to, sizes, N, places, first, 2, 0, s));
	CUDA_MEMCPY3D_BATCH_OP boxes[2] = {0};
	for (int i = 0; i < 2; i++) { // all of it, in two halves of rows
		boxes[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
		boxes[i].src.type = boxes[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
		boxes[i].src.op.ptr.ptr = managed + i * (SIZE / 2);
		boxes[i].dst.op.ptr.ptr = (CUdeviceptr)(uintptr_t)host[1] + i * (SIZE / 2);
		boxes[i].src.op.ptr.rowLength = boxes[i].dst.op.ptr.rowLength = SIZE;
		boxes[i].extent.width = SIZE / 2, boxes[i].extent.height = N, boxes[i].extent.depth = 1;
	}
	CHECK(cuMemcpy3DBatchAsync(2, boxes, 0, s));
	CHECK(cuStreamSynchronize(s));
	NEED(memcmp(host[0], host[1], N * SIZE) == 0 && memcmp(host[0], (void *)managed, N * SIZE) == 0);
	CHECK(cuMemDiscardBatchAsync(to, sizes, N, 0, s));
	CHECK(cuMemDiscardAndPrefetchBatchAsync(to, sizes, N, places, first, 1, 0, s));
	sizes[4] = 0;
	NEED(cuMemcpyBatchAsync(to, from, sizes, N, how, first, 2, s) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemcpyBatchAsync(to, from, sizes, 4, how, first, 1, NULL) == CUDA_ERROR_INVALID_VALUE);
	first[0] = 1;
	NEED(cuMemcpyBatchAsync(to, from, sizes, 4, how, first, 2, s) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuStreamSynchronize(s));
}

// What pools say that they hold.
static void pools(void) {
	CUmemoryPool pool;
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr a, b;
	cuuint64_t threshold = 3 << 20, held;
	CHECK(cuMemPoolCreate(&pool, &properties));
	CHECK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	CHECK(cuMemAllocFromPoolAsync(&a, 4 << 20, pool, NULL));
	CHECK(cuMemAllocFromPoolAsync(&b, 1 << 20, pool, NULL));
	CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held));
	NEED(held >= 5 << 20);
	CHECK(cuMemFreeAsync(a, NULL));
	CHECK(cuStreamSynchronize(NULL));
	CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held));
	NEED(held == threshold);
	CHECK(cuMemPoolTrimTo(pool, 0));
	CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held));
	NEED(held >= 1 << 20 && held < 2 << 20);
	CHECK(cuMemFreeAsync(b, NULL));
	CHECK(cuMemPoolDestroy(pool));
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	unsigned n = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 0;
	start();
	if (strcmp(what, "list") == 0)
		list(n, 3);
	else if (strcmp(what, "words") == 0)
		words(n, 3);
	else if (strcmp(what, "threads") == 0)
		threads();
	else if (strcmp(what, "handler") == 0)
		handler();
	else if (strcmp(what, "children") == 0)
		children();
	else if (strcmp(what, "functions") == 0)
		functions();
	else if (strcmp(what, "streams") == 0)
		streams(n);
	else if (strcmp(what, "freeing") == 0)
		freeing();
	else if (strcmp(what, "attributes") == 0)
		attributes();
	else if (strcmp(what, "variables") == 0)
		variables();
	else if (strcmp(what, "early") == 0)
		early();
	else if (strcmp(what, "batches") == 0)
		batches();
	else if (strcmp(what, "pools") == 0)
		pools();
	else if (strcmp(what, "rounds") == 0)
		rounds(n);
	else if (strcmp(what, "fault") == 0)
		fault();
	else
		return 2;
	puts("right");
	return 0;
}
