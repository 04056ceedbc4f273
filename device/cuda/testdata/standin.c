// A stand-in for NVIDIA's driver, for tests of what calls it and of what that costs: its
// memory is memory of the process, and its kernels are known by their names. A kernel
//   append (at, value)  writes value behind the others at an address, where the first word counts them
//   add (at, n, value)  adds value to each of n words at an address
//   say (n)             prints n; its text is written out as the driver does it, when some stream is synchronised
//   refused             is refused when it is launched, and a fault is one: it ends the context
//   and any other       does nothing
// STANDIN_LAUNCH and STANDIN_KERNEL are the nanoseconds that a launch keeps its caller and that a
// kernel runs. STANDIN_DEVICES is how many devices there are (1). As with the driver, all contexts of a
// process share its addresses: a reservation at an address that is taken lands elsewhere.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701 };

struct stream {
	int64_t ends; // when all that it was given has ended
};

struct function {
	char name[64];
	int params;
	size_t offsets[8], sizes[8];
};

struct module {
	unsigned count;
	struct function functions[16];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t launch_takes, kernel_takes;
static int fault;
static struct stream legacy;

// What kernels have said and nobody has synchronised for.
static struct {
	int64_t ends;
	uint32_t n;
} said[64];
static int sayings;

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int64_t number(const char *name, int64_t otherwise) {
	const char *text = getenv(name);
	return text != NULL ? atoll(text) : otherwise;
}

static struct stream *of(void *stream) { return (uintptr_t)stream <= 2 ? &legacy : stream; }

int cuGetErrorName(int code, const char **name) {
	(void)code;
	*name = "STANDIN";
	return 0;
}

int cuGetErrorString(int code, const char **text) {
	(void)code;
	*text = "an error of the stand-in";
	return 0;
}

int cuInit(unsigned flags) {
	launch_takes = number("STANDIN_LAUNCH", 0);
	kernel_takes = number("STANDIN_KERNEL", 0);
	return (int)flags;
}

int cuDriverGetVersion(int *version) {
	*version = 13000;
	return 0;
}

int cuDeviceGetCount(int *count) {
	*count = (int)number("STANDIN_DEVICES", 1);
	return 0;
}

int cuDeviceGet(int *device, int ordinal) {
	*device = ordinal;
	return 0;
}

int cuDeviceGetName(char *name, int room, int device) {
	(void)device;
	snprintf(name, (size_t)room, "stand-in");
	return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
	memset(uuid, device + 1, 16);
	return 0;
}

int cuDeviceTotalMem_v2(size_t *size, int device) {
	(void)device;
	*size = (size_t)8 << 30;
	return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	static const int known[][2] = {
		{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {9, 65536}, {10, 32}, {12, 65536}, {13, 1980000},
		{16, 132}, {39, 2048}, {41, 1}, {75, 9}, {76, 0}, {81, 233472}, {82, 65536}, {97, 232448}, {102, 1}, {106, 32}, {111, 1024}};
	(void)device;
	*value = 0;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (known[i][0] == attribute)
			*value = known[i][1];
	return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device) {
	(void)flags, (void)device;
	*context = malloc(1);
	return 0;
}

int cuCtxDestroy_v2(void *context) {
	free(context);
	return 0;
}

int cuCtxGetLimit(size_t *value, int limit) {
	(void)limit;
	*value = 1024;
	return 0;
}

// $STANDIN_HELD is how many bytes other processes hold.
int cuMemGetInfo_v2(size_t *unused, size_t *all) {
	const char *held = getenv("STANDIN_HELD");
	*all = (size_t)8 << 30;
	*unused = *all - (held != NULL ? strtoull(held, NULL, 10) : 0);
	return 0;
}

int cuMemGetAllocationGranularity(size_t *granularity, const void *of, int option) {
	(void)of, (void)option;
	*granularity = 2 << 20;
	return 0;
}

int cuMemAddressReserve(uint64_t *got, size_t size, size_t alignment, uint64_t wish, unsigned long long flags) {
	(void)alignment, (void)flags;
	void *p = mmap((void *)(uintptr_t)wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	*got = (uint64_t)(uintptr_t)p;
	return p == MAP_FAILED ? OUT_OF_MEMORY : 0;
}

int cuMemAddressFree(uint64_t at, size_t size) { return munmap((void *)(uintptr_t)at, size) != 0; }

int cuMemMap(uint64_t at, size_t size, size_t offset, unsigned long long memory, unsigned long long flags) {
	(void)offset, (void)memory, (void)flags;
	return mprotect((void *)(uintptr_t)at, size, PROT_READ | PROT_WRITE) != 0;
}

int cuMemUnmap(uint64_t at, size_t size) {
	madvise((void *)(uintptr_t)at, size, MADV_DONTNEED);
	return mprotect((void *)(uintptr_t)at, size, PROT_NONE) != 0;
}

int cuMemHostAlloc(void **host, size_t size, unsigned flags) {
	(void)flags;
	*host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return *host == MAP_FAILED ? OUT_OF_MEMORY : 0;
}

int cuMemHostGetDevicePointer_v2(uint64_t *at, void *host, unsigned flags) {
	(void)flags;
	*at = (uint64_t)(uintptr_t)host;
	return 0;
}

// Work is done when it is given, and is over when that of its stream before it is, and its own time.
static int give(void *stream, int64_t takes) {
	struct stream *s = of(stream);
	int64_t at = now();
	s->ends = (s->ends > at ? s->ends : at) + takes;
	return 0;
}

static int copy(uint64_t to, const void *from, size_t size, void *stream) {
	pthread_mutex_lock(&lock);
	int code = fault;
	if (code == 0) {
		memmove((void *)(uintptr_t)to, from, size);
		give(stream, kernel_takes);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) { return copy(to, from, size, stream); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) { return copy((uint64_t)(uintptr_t)to, (void *)(uintptr_t)from, size, stream); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) { return copy(to, (void *)(uintptr_t)from, size, stream); }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { return copy(to, from, size, NULL); }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { return copy((uint64_t)(uintptr_t)to, (void *)(uintptr_t)from, size, NULL); }

int cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream) {
	memset((void *)(uintptr_t)at, value, count);
	return give(stream, 0);
}

int cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream) {
	for (size_t i = 0; i < count; i++)
		((uint32_t *)(uintptr_t)at)[i] = value;
	return give(stream, 0);
}

// Reads the names and the parameters of kernels from their text.
int cuModuleLoadDataEx(void **made, const void *image, unsigned count, int *options, void **values) {
	(void)count, (void)options, (void)values;
	struct module *m = calloc(1, sizeof *m);
	for (const char *at = strstr(image, ".entry"); at != NULL && m->count < 16; at = strstr(at, ".entry")) {
		struct function *f = &m->functions[m->count++];
		size_t offset = 0;
		sscanf(at, ".entry %63[^( ]", f->name);
		at += strlen(".entry");
		const char *end = strchr(at, '{'), *p = at;
		while ((p = strstr(p, ".param .u")) != NULL && p < end && f->params < 8) {
			size_t size = (size_t)atoi(p + strlen(".param .u")) / 8;
			offset = (offset + size - 1) / size * size;
			f->offsets[f->params] = offset;
			f->sizes[f->params++] = size;
			offset += size;
			p++;
		}
	}
	*made = m;
	return 0;
}

int cuModuleGetFunctionCount(unsigned *count, void *module) {
	*count = ((struct module *)module)->count;
	return 0;
}

int cuModuleEnumerateFunctions(void **functions, unsigned count, void *module) {
	struct module *m = module;
	for (unsigned i = 0; i < count && i < m->count; i++)
		functions[i] = &m->functions[i];
	return 0;
}

int cuFuncGetName(const char **name, void *function) {
	*name = ((struct function *)function)->name;
	return 0;
}

int cuFuncGetAttribute(int *value, int attribute, void *function) {
	(void)function;
	*value = attribute == 0 ? 1024 : attribute == 4 ? 16 : 0;
	return 0;
}

int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
	struct function *f = function;
	if (index >= (size_t)f->params)
		return INVALID_VALUE;
	*offset = f->offsets[index];
	*size = f->sizes[index];
	return 0;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
	(void)function, (void)shared;
	*blocks = 2048 / threads;
	return 0;
}

int cuModuleGetGlobal_v2(uint64_t *at, size_t *size, void *module, const char *name) {
	(void)at, (void)size, (void)module, (void)name;
	return NOT_FOUND;
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
	(void)flags, (void)priority;
	*stream = calloc(1, sizeof(struct stream));
	return 0;
}

int cuStreamDestroy_v2(void *stream) {
	free(stream);
	return 0;
}

static int over(int64_t at) {
	pthread_mutex_lock(&lock);
	int code = fault != 0 ? fault : now() < at ? NOT_READY : 0;
	pthread_mutex_unlock(&lock);
	return code;
}

int cuStreamQuery(void *stream) { return over(of(stream)->ends); }

int cuStreamSynchronize(void *stream) {
	int code, kept = 0;
	while ((code = cuStreamQuery(stream)) == NOT_READY) {
	}
	pthread_mutex_lock(&lock);
	for (int i = 0; i < sayings; i++) {
		if (now() < said[i].ends)
			said[kept++] = said[i];
		else
			printf("i %u\n", said[i].n);
	}
	sayings = kept;
	pthread_mutex_unlock(&lock);
	return code;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
	(void)flags;
	int64_t at = *(int64_t *)event;
	if (of(stream)->ends < at)
		of(stream)->ends = at;
	return 0;
}

int cuLaunchHostFunc(void *stream, void (*f)(void *), void *argument) {
	(void)stream;
	f(argument);
	return 0;
}

// As cuLaunchHostFunc, it keeps the caller until the host has written the word.
int cuStreamWaitValue32_v2(void *stream, uint64_t at, uint32_t value, unsigned flags) {
	(void)stream;
	while (flags == 0 && (int32_t)(__atomic_load_n((uint32_t *)at, __ATOMIC_ACQUIRE) - value) < 0)
		usleep(20);
	return 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
	(void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
	struct function *f = function;
	int64_t until = now() + launch_takes;
	pthread_mutex_lock(&lock);
	int code = fault;
	if (code == 0 && strcmp(f->name, "refused") == 0)
		code = OUT_OF_RESOURCES;
	if (code == 0 && strcmp(f->name, "fault") == 0)
		fault = ILLEGAL_ADDRESS;
	if (code == 0 && strcmp(f->name, "append") == 0) {
		uint32_t *at = *(uint32_t **)params[0];
		at[++at[0]] = *(uint32_t *)params[1];
	}
	if (code == 0 && strcmp(f->name, "add") == 0)
		for (uint32_t i = 0, *at = *(uint32_t **)params[0]; i < *(uint32_t *)params[1]; i++)
			at[i] += *(uint32_t *)params[2];
	if (code == 0)
		give(stream, kernel_takes);
	if (code == 0 && strcmp(f->name, "say") == 0 && sayings < (int)(sizeof said / sizeof *said)) {
		said[sayings].ends = of(stream)->ends;
		said[sayings++].n = *(uint32_t *)params[0];
	}
	pthread_mutex_unlock(&lock);
	while (launch_takes > 0 && now() < until) {
	}
	return code;
}

int cuEventCreate(void **event, unsigned flags) {
	(void)flags;
	*event = calloc(1, sizeof(int64_t));
	return 0;
}

int cuEventDestroy_v2(void *event) {
	free(event);
	return 0;
}

int cuEventRecord(void *event, void *stream) {
	*(int64_t *)event = of(stream)->ends;
	return 0;
}

int cuEventQuery(void *event) { return over(*(int64_t *)event); }

int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
	*milliseconds = (float)(*(int64_t *)end - *(int64_t *)start) / 1e6f;
	return 0;
}

// What nobody asks of a stand-in, or need not do anything.
#define NOTHING(name) \
	int name(void) { return 0; }
NOTHING(cuLinkCreate_v2)
NOTHING(cuLinkAddData_v2)
NOTHING(cuLinkComplete)
NOTHING(cuLinkDestroy)
NOTHING(cuCtxPushCurrent_v2)
NOTHING(cuCtxPopCurrent_v2)
NOTHING(cuCtxSynchronize)
NOTHING(cuGetExportTable)
NOTHING(cuCtxSetLimit)
NOTHING(cuMemCreate)
NOTHING(cuMemRelease)
NOTHING(cuMemSetAccess)
NOTHING(cuMemExportToShareableHandle)
NOTHING(cuMemImportFromShareableHandle)
NOTHING(cuMemFreeHost)
NOTHING(cuMemHostRegister_v2)
NOTHING(cuMemHostUnregister)
NOTHING(cuMemsetD16Async)
NOTHING(cuModuleUnload)
NOTHING(cuPointerGetAttribute)
NOTHING(cuFuncLoad)
NOTHING(cuFuncSetAttribute)
NOTHING(cuOccupancyAvailableDynamicSMemPerBlock)
NOTHING(cuOccupancyMaxActiveClusters)
NOTHING(cuOccupancyMaxPotentialClusterSize)
NOTHING(cuStreamWriteValue32_v2)
NOTHING(cuStreamWriteValue64_v2)
NOTHING(cuStreamWaitValue64_v2)
NOTHING(cuLaunchKernelEx)
NOTHING(cuLaunchCooperativeKernel)
NOTHING(cuArray3DCreate_v2)
NOTHING(cuArrayDestroy)
NOTHING(cuMipmappedArrayCreate)
NOTHING(cuMipmappedArrayGetLevel)
NOTHING(cuMipmappedArrayDestroy)
NOTHING(cuMemcpy3DAsync_v2)
NOTHING(cuTexObjectCreate)
NOTHING(cuTexObjectDestroy)
NOTHING(cuSurfObjectCreate)
NOTHING(cuSurfObjectDestroy)

// Graphs: a list of nodes in the order in which they were added, which their dependencies allow. An
// instance has copies of the nodes and knows of which node each is, since only nodes of the graph that
// it was made of change it.
struct kernel_params {
	struct function *function;
	unsigned sides[6], shared;
	void **params, **extra;
	void *kernel, *context;
};

struct node {
	struct node *next, *of;
	struct function *function; // NULL: nothing but that it was added
	char params[64];
};

struct graph {
	struct node *first, **last;
};

static void keep_params(struct node *n, const struct kernel_params *p) {
	n->function = p->function;
	for (int i = 0, at = 0; i < n->function->params; at += (int)n->function->sizes[i++])
		memcpy(n->params + at, p->params[i], n->function->sizes[i]);
}

static struct node *add_to(struct graph *g) {
	struct node *n = calloc(1, sizeof *n);
	*g->last = n;
	g->last = &n->next;
	return n;
}

int cuGraphCreate(void **graph, unsigned flags) {
	(void)flags;
	struct graph *g = calloc(1, sizeof *g);
	g->last = &g->first;
	*graph = g;
	return 0;
}

int cuGraphDestroy(void *graph) {
	struct graph *g = graph;
	for (struct node *n = g->first, *next; n != NULL; n = next) {
		next = n->next;
		memset(n, 0xff, sizeof *n); // whoever uses it afterwards finds out
		free(n);
	}
	free(g);
	return 0;
}

int cuGraphExecDestroy(void *instance) { return cuGraphDestroy(instance); }

int cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after, size_t count, const struct kernel_params *p) {
	(void)after, (void)count;
	struct node *n = add_to(graph);
	keep_params(n, p);
	*node = n;
	return 0;
}

int cuGraphInstantiateWithFlags(void **instance, void *graph, unsigned long long flags) {
	cuGraphCreate(instance, (unsigned)flags);
	for (struct node *n = ((struct graph *)graph)->first; n != NULL; n = n->next) {
		struct node *copy = add_to(*instance);
		copy->of = n;
		copy->function = n->function;
		memcpy(copy->params, n->params, sizeof copy->params);
	}
	return 0;
}

int cuGraphExecKernelNodeSetParams_v2(void *instance, void *node, const struct kernel_params *p) {
	for (struct node *n = ((struct graph *)instance)->first; n != NULL; n = n->next)
		if (n->of == node) {
			keep_params(n, p);
			return 0;
		}
	return INVALID_VALUE;
}

int cuGraphExecUpdate_v2(void *instance, void *graph, void *about) {
	(void)about;
	struct node *n = ((struct graph *)instance)->first, *to = ((struct graph *)graph)->first;
	const struct node *a = n, *b = to;
	for (; a != NULL && b != NULL; a = a->next)
		b = b->next;
	if (a != b)
		return 910; // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
	for (; n != NULL; n = n->next, to = to->next) {
		n->function = to->function;
		memcpy(n->params, to->params, sizeof n->params);
	}
	return 0;
}

int cuGraphLaunch(void *instance, void *stream) {
	int code = 0;
	for (struct node *n = ((struct graph *)instance)->first; n != NULL && code == 0; n = n->next) {
		void *params[8];
		for (int i = 0, at = 0; i < n->function->params; at += (int)n->function->sizes[i++])
			params[i] = n->params + at;
		code = cuLaunchKernel(n->function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
	}
	return code;
}

NOTHING(cuGraphKernelNodeSetAttribute)
// There are no copies and fills in them.
#define REFUSED(name) \
	int name(void) { return 801; }
REFUSED(cuGraphAddMemcpyNode)
REFUSED(cuGraphAddMemsetNode)
REFUSED(cuGraphExecMemcpyNodeSetParams)
REFUSED(cuGraphExecMemsetNodeSetParams)
