// Random sequences of calls of CUDA's driver interface, right ones and wrong ones,
// one line a call: what was asked, what came of it, and hashes of the data. What
// differs from machine to machine, or from run to run, is not printed.
//
//   sequence FIRST COUNT   the sequences of COUNT seeds
//
// A sequence is one of calls by two threads that take turns. Which calls depends on
// results only in so far as what could not be made cannot be used.
#include <cuda.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels.h"

#if CUDA_VERSION >= 13000
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
#endif

// --- chance and print ------------------------------------------------------------------

static uint64_t chance;

static uint64_t next(void) {
	uint64_t z = chance += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static unsigned below(unsigned n) { return (unsigned)(next() % n); }
static bool once_in(unsigned n) { return below(n) == 0; }

#define ONE_OF(...) ((const long long[]){__VA_ARGS__}[below(sizeof((const long long[]){__VA_ARGS__}) / sizeof(long long))])

static int thread; // whose turn it is

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
	va_list list;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
}

// Begins the line of a call.
#define ASK(...) (say("%d ", thread), say(__VA_ARGS__), fflush(stdout))

static const char *name_of(CUresult r) {
	const char *name = NULL;
	if (cuGetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
		return "?";
	return strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
}

static CUresult told(CUresult r) {
	say(" = %s", name_of(r));
	return r;
}

#define DO(call) told(call)
static void end(void) { say("\n"); }

#define OK CUDA_SUCCESS

static uint64_t hash(const void *data, size_t size) {
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < size; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
	return h;
}

// --- what there is ---------------------------------------------------------------------

enum { CONTEXTS = 3, MEMORIES = 6, PINNED = 3, STREAMS = 4, EVENTS = 4, MODULES = 2, FUNCTIONS = 6, LIBRARIES = 2, HOSTS = 3, ROOM = 1 << 17 };

static const char *const kernel_names[FUNCTIONS] = {"nothing", "fill", "mixed", "rotate", "limited", "bump"};


static struct {
	CUcontext contexts[CONTEXTS]; // 0 is the primary one
	bool alive[CONTEXTS], was[CONTEXTS];
	int retained;
	struct { int owner; CUdeviceptr at; size_t size; } memory[MEMORIES];
	struct { int owner; uint8_t *at; size_t size; } pinned[PINNED];
	struct { int owner; CUstream handle; unsigned flags; } streams[STREAMS];
	struct { int owner; CUevent handle; unsigned flags; } events[EVENTS];
	struct { int owner; CUmodule handle; CUfunction functions[FUNCTIONS]; } modules[MODULES];
	struct { int owner; CUlibrary handle; CUkernel kernels[FUNCTIONS]; } libraries[LIBRARIES]; // owner: 0 or none
	bool registered[HOSTS];
	int registrar[HOSTS];
	bool busy[CONTEXTS];
	int last_context, last_thread;
	CUstream last_stream;
	bool last_blocking;
} w;

static _Alignas(4096) uint8_t hosts[HOSTS][ROOM];

static int context_index(CUcontext c) {
	for (int i = 0; i < CONTEXTS; i++)
		if (w.alive[i] && w.contexts[i] == c)
			return i;
	return -1;
}

// The current context's number, or -1 if it is none that works.
static int current(void) {
	CUcontext c = NULL;
	cuCtxGetCurrent(&c);
	return c != NULL ? context_index(c) : -1;
}

static int live_context(void) {
	int n = (int)below(CONTEXTS);
	for (int i = 0; i < CONTEXTS; i++)
		if (w.alive[(n + i) % CONTEXTS])
			return (n + i) % CONTEXTS;
	return -1;
}

#define PICK(list, count, condition) \
	__extension__({ \
		int n_ = (int)below(count), found_ = -1; \
		for (int i_ = 0; i_ < (int)(count) && found_ < 0; i_++) { \
			int i = (n_ + i_) % (int)(count); \
			if (condition) \
				found_ = i; \
		} \
		found_; \
	})
#define LIVE(list, count) PICK(list, count, w.list[i].owner >= 0)
#define LIVE_OF(list, count, c) PICK(list, count, w.list[i].owner == (c))
#define FREE(list, count) PICK(list, count, w.list[i].owner < 0)

// Waits for everything that was begun; the program's own calls for that are not printed.
static void settle(void) {
	for (int i = 0; i < CONTEXTS; i++) {
		if (!w.busy[i] || !w.alive[i])
			continue;
		CUcontext popped;
		CUresult r = cuCtxPushCurrent(w.contexts[i]);
		if (r == OK) {
			r = cuCtxSynchronize();
			cuCtxPopCurrent(&popped);
		}
		if (r != OK)
			say("%d settle c%d = %s\n", thread, i, name_of(r));
	}
	memset(w.busy, 0, sizeof w.busy);
	w.last_context = -1;
}

// Waits for events as well, which take no time but some.
static void settle_all(void) {
	for (int i = 0; i < CONTEXTS; i++)
		w.busy[i] = w.alive[i];
	settle();
}

// Work in one stream after work in another is waited for, unless CUDA orders the two.
static void order(int context, CUstream stream, bool blocking) {
	bool legacy = stream == NULL || stream == CU_STREAM_LEGACY;
	bool last_legacy = w.last_stream == NULL || w.last_stream == CU_STREAM_LEGACY;
	bool same = w.last_context == context && (w.last_stream == stream || (legacy && last_legacy)) && (stream != CU_STREAM_PER_THREAD || w.last_thread == thread);
	bool ordered = w.last_context == context && ((legacy && w.last_blocking) || (last_legacy && blocking));
	if (w.last_context >= 0 && !same && !ordered)
		settle();
	w.last_context = context;
	w.last_stream = stream;
	w.last_thread = thread;
	w.last_blocking = blocking;
	if (context >= 0)
		w.busy[context] = true;
}

static void order_default(void) { order(current(), NULL, true); }

// A stream for work in the current context; its name for the line.
static CUstream some_stream(char name[16]) {
	int c = current(), s = -1;
	switch (below(6)) {
	case 0:
		strcpy(name, "legacy");
		order(c, CU_STREAM_LEGACY, true);
		return CU_STREAM_LEGACY;
	case 1:
		strcpy(name, "thread");
		order(c, CU_STREAM_PER_THREAD, true);
		return CU_STREAM_PER_THREAD;
	case 2:
	case 3:
	case 4:
		s = LIVE_OF(streams, STREAMS, c);
	}
	if (s < 0 || c < 0) {
		strcpy(name, "default");
		order(c, NULL, true);
		return NULL;
	}
	snprintf(name, 16, "s%d", s);
	order(c, w.streams[s].handle, (w.streams[s].flags & CU_STREAM_NON_BLOCKING) == 0);
	return w.streams[s].handle;
}

static void forget(int context) {
	for (int i = 0; i < MEMORIES; i++)
		if (w.memory[i].owner == context)
			w.memory[i].owner = -1;
	for (int i = 0; i < PINNED; i++)
		if (w.pinned[i].owner == context)
			w.pinned[i].owner = -1;
	for (int i = 0; i < STREAMS; i++)
		if (w.streams[i].owner == context)
			w.streams[i].owner = -1;
	for (int i = 0; i < EVENTS; i++)
		if (w.events[i].owner == context)
			w.events[i].owner = -1;
	for (int i = 0; i < MODULES; i++)
		if (w.modules[i].owner == context)
			w.modules[i].owner = -1;
	for (int i = 0; i < HOSTS; i++)
		if (w.registered[i] && w.registrar[i] == context)
			w.registered[i] = false;
	w.alive[context] = w.busy[context] = false;
	if (w.last_context == context)
		w.last_context = -1;
}

// Which memory an address of the device is in, for printing.
static void say_address(CUdeviceptr at) {
	for (int i = 0; i < MEMORIES; i++)
		if (w.memory[i].owner >= 0 && at >= w.memory[i].at && at - w.memory[i].at < w.memory[i].size) {
			say(" m%d+%llu", i, at - w.memory[i].at);
			return;
		}
	for (int i = 0; i < PINNED; i++)
		if (w.pinned[i].owner >= 0 && at >= (uintptr_t)w.pinned[i].at && at - (uintptr_t)w.pinned[i].at < w.pinned[i].size) {
			say(" p%d+%llu", i, at - (uintptr_t)w.pinned[i].at);
			return;
		}
	for (int i = 0; i < HOSTS; i++)
		if (at >= (uintptr_t)hosts[i] && at - (uintptr_t)hosts[i] < ROOM) {
			say(" h%d+%llu", i, at - (uintptr_t)hosts[i]);
			return;
		}
	say(" %s", at == 0 ? "0" : "elsewhere");
}

// --- steps: devices and names ---------------------------------------------------------------

static void device_get(void) {
	int ordinal = (int)ONE_OF(0, 0, -1, 1000);
	CUdevice d = 77;
	bool null = once_in(5);
	ASK("cuDeviceGet(%s, %d)", null ? "NULL" : "d", ordinal);
	DO(cuDeviceGet(null ? NULL : &d, ordinal));
	say(" %d", d);
	end();
}

static void device_attribute(void) {
	int a = (int)ONE_OF(1, 2, 3, 4, 5, 6, 7, 10, 41, 0, -1, 9999), v = 77, d = (int)ONE_OF(0, 0, 0, -1, 1000);
	ASK("cuDeviceGetAttribute(%d, %d)", a, d);
	DO(cuDeviceGetAttribute(&v, (CUdevice_attribute)a, d));
	say(" %d", v);
	end();
}

static void device_attribute_null(void) {
	int d = (int)ONE_OF(0, -1);
	ASK("cuDeviceGetAttribute(NULL, 1, %d)", d);
	DO(cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, d));
	end();
}

static void device_name(void) {
	char name[256];
	memset(name, 'x', sizeof name);
	int length = (int)ONE_OF(256, 4, 1), d = (int)ONE_OF(0, 0, 0, -1, 9);
	ASK("cuDeviceGetName(%d, %d)", length, d);
	CUresult r = DO(cuDeviceGetName(name, length, d));
	if (r == OK)
		say(" ended %d", memchr(name, 0, (size_t)length) != NULL);
	end();
}

static void device_memory(void) {
	size_t n = 0;
	int d = (int)ONE_OF(0, 0, -1, 9);
	bool null = once_in(4);
	ASK("cuDeviceTotalMem(%s, %d)", null ? "NULL" : "n", d);
	DO(cuDeviceTotalMem(null ? NULL : &n, d));
	say(" some %d", n > 0);
	end();
}

static void device_uuid(void) {
	CUuuid u;
	int d = (int)ONE_OF(0, -1, 9);
	bool null = once_in(4);
	ASK("cuDeviceGetUuid(%s, %d)", null ? "NULL" : "u", d);
	DO(cuDeviceGetUuid(null ? NULL : &u, d));
	end();
}

static void device_capability(void) {
	int major = 0, minor = 77, d = (int)ONE_OF(0, 0, -1, 9), null = (int)below(6);
	ASK("cuDeviceComputeCapability(%s, %s, %d)", null == 0 ? "NULL" : "major", null == 1 ? "NULL" : "minor", d);
	DO(cuDeviceComputeCapability(null == 0 ? NULL : &major, null == 1 ? NULL : &minor, d));
	end();
}

static void device_properties(void) {
	CUdevprop p = {0};
	int d = (int)ONE_OF(0, 0, -1, 9);
	bool null = once_in(4);
	ASK("cuDeviceGetProperties(%s, %d)", null ? "NULL" : "p", d);
	DO(cuDeviceGetProperties(null ? NULL : &p, d));
	say(" %d %d %d %d %d", p.maxThreadsPerBlock, p.maxThreadsDim[0], p.maxThreadsDim[2], p.maxGridSize[1], p.SIMDWidth);
	end();
}

static void device_bus(void) {
	char id[64] = "";
	int length = (int)ONE_OF(64, 64, 64, 13, 12, 5, 0), d = (int)ONE_OF(0, 0, 0, -1, 9);
	ASK("cuDeviceGetPCIBusId(%d, %d)", length, d);
	CUresult r = DO(cuDeviceGetPCIBusId(id, length, d));
	end();
	if (r != OK || length < 13)
		return;
	CUdevice back = 77;
	ASK("cuDeviceGetByPCIBusId(same)");
	DO(cuDeviceGetByPCIBusId(&back, id));
	say(" %d", back);
	end();
}

static void device_by_bus(void) {
	static const char *const ids[] = {"", "zz", "ffff:ff:1f.0", "1", "0000:99:00.0"};
	unsigned i = below(5);
	CUdevice d = 77;
	ASK("cuDeviceGetByPCIBusId(\"%s\")", ids[i]);
	DO(cuDeviceGetByPCIBusId(&d, ids[i]));
	say(" %d", d);
	end();
}

static void device_by_bus_null(void) {
	CUdevice d;
	bool first = once_in(2);
	ASK("cuDeviceGetByPCIBusId(%s)", first ? "NULL, id" : "d, NULL");
	DO(cuDeviceGetByPCIBusId(first ? NULL : &d, first ? "0000:01:00.0" : NULL));
	end();
}

static void error_names(void) {
	int code = once_in(3) ? (int)below(1100) : (int)ONE_OF(0, 1, 2, 3, 100, 101, 201, 218, 400, 500, 600, 700, 709, 719, 801, 999, -1);
	const char *name = "kept", *text = "kept";
	ASK("cuGetErrorName(%d)", code);
	DO(cuGetErrorName((CUresult)code, &name));
	say(" %s", name != NULL ? name : "NULL");
	end();
	ASK("cuGetErrorString(%d)", code);
	DO(cuGetErrorString((CUresult)code, &text)); // the text is for people
	end();
}

static void proc_address(void) {
	static const char *const names[] = {"cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuLaunchKernel", "cuCtxCreate", "cuMemcpyHtoD", "cuNothing", "", "cuStreamGetCtx", "cuEventElapsedTime", "cuLibraryLoadData", "cuGetProcAddress"};
	const char *name = names[below(12)];
	int version = (int)ONE_OF(0, 1000, 2000, 3020, 4000, 7000, 11040, 12000, 12040, 99000);
	unsigned long long flags = (unsigned long long)ONE_OF(0, 0, 1, 2, 3, 4);
	bool status = !once_in(4);
	void *f = (void *)1;
	CUdriverProcAddressQueryResult s = (CUdriverProcAddressQueryResult)77;
	ASK("cuGetProcAddress(\"%s\", %d, %llu, %s)", name, version, flags, status ? "status" : "NULL");
	DO(cuGetProcAddress(name, &f, version, flags, status ? &s : NULL));
	say(" %s %d", f == NULL ? "NULL" : f == (void *)1 ? "kept" : "found", (int)s);
	end();
}

static void init(void) {
	unsigned flags = (unsigned)ONE_OF(0, 0, 1, 77);
	ASK("cuInit(%u)", flags);
	DO(cuInit(flags));
	end();
}

static void driver_version_null(void) {
	ASK("cuDriverGetVersion(NULL)");
	DO(cuDriverGetVersion(NULL));
	end();
}

// --- steps: contexts --------------------------------------------------------------------------

static void primary_retain(void) {
	CUcontext c = NULL;
	int d = (int)ONE_OF(0, 0, 0, 0, -1, 9);
	ASK("cuDevicePrimaryCtxRetain(%d)", d);
	if (DO(cuDevicePrimaryCtxRetain(&c, d)) == OK) {
		say(" same %d", !w.was[0] || w.contexts[0] == c);
		w.contexts[0] = c;
		w.alive[0] = w.was[0] = true;
		w.retained++;
	}
	end();
}

static void primary_retain_null(void) {
	int d = (int)ONE_OF(0, -1);
	ASK("cuDevicePrimaryCtxRetain(NULL, %d)", d);
	DO(cuDevicePrimaryCtxRetain(NULL, d));
	end();
}

static void primary_release(void) {
	int d = (int)ONE_OF(0, 0, 0, -1, 9);
	settle();
	ASK("cuDevicePrimaryCtxRelease(%d)", d);
	if (DO(cuDevicePrimaryCtxRelease(d)) == OK && --w.retained == 0)
		forget(0);
	end();
}

static void primary_reset(void) {
	int d = (int)ONE_OF(0, 0, -1);
	settle();
	ASK("cuDevicePrimaryCtxReset(%d)", d);
	if (DO(cuDevicePrimaryCtxReset(d)) == OK) {
		forget(0);
		w.retained = 0;
	}
	end();
}

static void primary_state(void) {
	unsigned flags = 77;
	int active = 77, d = (int)ONE_OF(0, 0, 0, -1, 9), null = (int)below(8);
	ASK("cuDevicePrimaryCtxGetState(%d, %s, %s)", d, null == 0 ? "NULL" : "flags", null == 1 ? "NULL" : "active");
	DO(cuDevicePrimaryCtxGetState(d, null == 0 ? NULL : &flags, null == 1 ? NULL : &active));
	say(" %u %d", flags, active);
	end();
}

static void primary_flags(void) {
	unsigned flags = (unsigned)ONE_OF(0, 0, 1, 2, 4, 8, 16, 3, 0x80, 0x1000, 0xffffffff);
	int d = (int)ONE_OF(0, 0, 0, -1, 9);
	ASK("cuDevicePrimaryCtxSetFlags(%d, %#x)", d, flags);
	DO(cuDevicePrimaryCtxSetFlags(d, flags));
	end();
}

static void context_create(void) {
	int i = PICK(contexts, CONTEXTS, i > 0 && !w.alive[i]);
	unsigned flags = (unsigned)ONE_OF(0, 0, 0, 1, 2, 4, 8, 0x10, 3, 0x1000);
	int d = (int)ONE_OF(0, 0, 0, 0, -1, 9);
	CUcontext c = NULL;
	if (i < 0)
		return;
	ASK("cuCtxCreate(c%d, %#x, %d)", i, flags, d);
	if (DO(cuCtxCreate_v2(&c, flags, d)) == OK) {
		w.contexts[i] = c;
		w.alive[i] = w.was[i] = true;
	}
	end();
}

static void context_create_null(void) {
	ASK("cuCtxCreate(NULL, 0, 0)");
	DO(cuCtxCreate_v2(NULL, 0, 0));
	end();
}

static void context_destroy(void) {
	int i = PICK(contexts, CONTEXTS, i > 0 && w.alive[i]);
	if (i < 0)
		return;
	if (once_in(2))
		settle();
	ASK("cuCtxDestroy(c%d)", i);
	if (DO(cuCtxDestroy(w.contexts[i])) == OK)
		forget(i);
	end();
}

static void context_destroy_null(void) {
	ASK("cuCtxDestroy(NULL)");
	DO(cuCtxDestroy(NULL));
	end();
}

static void context_destroy_primary(void) {
	if (!w.alive[0])
		return;
	settle();
	ASK("cuCtxDestroy(c0)");
	DO(cuCtxDestroy(w.contexts[0]));
	end();
}

static void context_set(void) {
	int i = live_context();
	if (i < 0)
		return;
	ASK("cuCtxSetCurrent(c%d)", i);
	DO(cuCtxSetCurrent(w.contexts[i]));
	end();
}

static void context_set_null(void) {
	ASK("cuCtxSetCurrent(NULL)");
	DO(cuCtxSetCurrent(NULL));
	end();
}

static void context_push(void) {
	int i = live_context();
	if (i < 0)
		return;
	ASK("cuCtxPushCurrent(c%d)", i);
	DO(cuCtxPushCurrent(w.contexts[i]));
	end();
}

static void context_push_null(void) {
	ASK("cuCtxPushCurrent(NULL)");
	DO(cuCtxPushCurrent(NULL));
	end();
}

static void say_context(CUcontext c) {
	for (int i = 0; i < CONTEXTS; i++)
		if (w.alive[i] && w.contexts[i] == c) {
			say(" c%d", i);
			return;
		}
	for (int i = 0; i < CONTEXTS; i++)
		if (w.was[i] && w.contexts[i] == c) {
			say(" dead");
			return;
		}
	say(" %s", c == NULL ? "NULL" : c == (CUcontext)1 ? "kept" : "other");
}

static void context_pop(void) {
	CUcontext c = (CUcontext)1;
	bool null = once_in(4);
	ASK("cuCtxPopCurrent(%s)", null ? "NULL" : "c");
	DO(cuCtxPopCurrent(null ? NULL : &c));
	say_context(c);
	end();
}

static void context_get(void) {
	CUcontext c = (CUcontext)1;
	ASK("cuCtxGetCurrent()");
	DO(cuCtxGetCurrent(&c));
	say_context(c);
	end();
}

static void context_get_null(void) {
	ASK("cuCtxGetCurrent(NULL)");
	DO(cuCtxGetCurrent(NULL));
	end();
}

static void context_device(void) {
	CUdevice d = 77;
	bool null = once_in(5);
	ASK("cuCtxGetDevice(%s)", null ? "NULL" : "d");
	DO(cuCtxGetDevice(null ? NULL : &d));
	say(" %d", d);
	end();
}

static void context_flags(void) {
	unsigned flags = 77;
	bool null = once_in(5);
	ASK("cuCtxGetFlags(%s)", null ? "NULL" : "flags");
	DO(cuCtxGetFlags(null ? NULL : &flags));
	say(" %#x", flags);
	end();
}

static void context_version(void) {
	unsigned v = 77;
	int i = once_in(3) ? -1 : live_context();
	bool null = once_in(8);
	ASK("cuCtxGetApiVersion(c%d, %s)", i, null ? "NULL" : "v");
	DO(cuCtxGetApiVersion(i < 0 ? NULL : w.contexts[i], null ? NULL : &v));
	say(" %u", v);
	end();
}

static void context_limit(void) {
	int limit = (int)ONE_OF(0, 1, 2, 4, 5, 99, -1);
	size_t v = 77;
	bool null = once_in(8);
	ASK("cuCtxGetLimit(%s, %d)", null ? "NULL" : "v", limit);
	DO(cuCtxGetLimit(null ? NULL : &v, (CUlimit)limit));
	say(" %zu", v);
	end();
}

static void context_set_limit(void) {
	int limit = (int)ONE_OF(0, 0, 1, 2, 5, 99, -1);
	size_t v = (size_t)ONE_OF(1024, 2048, 1000, 1, 0, 65536);
	if (limit == 5)
		v = (size_t)ONE_OF(32, 64, 128, 0, 129);
	settle();
	ASK("cuCtxSetLimit(%d, %zu)", limit, v);
	DO(cuCtxSetLimit((CUlimit)limit, v));
	end();
}

static void context_cache(void) {
	CUfunc_cache c = (CUfunc_cache)77;
	if (once_in(2)) {
		int v = (int)ONE_OF(0, 1, 2, 3, 4, -1);
		ASK("cuCtxSetCacheConfig(%d)", v);
		DO(cuCtxSetCacheConfig((CUfunc_cache)v));
		end();
	}
	bool null = once_in(5);
	ASK("cuCtxGetCacheConfig(%s)", null ? "NULL" : "c");
	DO(cuCtxGetCacheConfig(null ? NULL : &c));
	say(" %d", (int)c);
	end();
}

static void context_priorities(void) {
	int least = 77, greatest = 77, null = (int)below(5);
	ASK("cuCtxGetStreamPriorityRange(%s, %s)", null == 0 ? "NULL" : "least", null == 1 ? "NULL" : "greatest");
	DO(cuCtxGetStreamPriorityRange(null == 0 ? NULL : &least, null == 1 ? NULL : &greatest));
	say(" %d %d", least, greatest);
	end();
}

static void context_synchronise(void) {
	ASK("cuCtxSynchronize()");
	DO(cuCtxSynchronize());
	end();
}

// --- steps: memory --------------------------------------------------------------------------------

static void alloc(void) {
	int i = FREE(memory, MEMORIES), c = current();
	size_t size = once_in(8) ? (size_t)ONE_OF(0, 1LL << 50, -1) : (size_t)ONE_OF(4, 100, 512, 1000, 4096, 10000, 65536, 100000);
	if (i < 0)
		return;
	CUdeviceptr at = 1;
	ASK("cuMemAlloc(m%d, %zd)", i, (ssize_t)size);
	CUresult r = DO(cuMemAlloc(&at, size));
	say(" aligned %d", r == OK && at % 256 == 0);
	end();
	if (r != OK)
		return;
	w.memory[i].owner = c;
	w.memory[i].at = at;
	w.memory[i].size = size;
	order_default();
	ASK("cuMemsetD8(m%d, %d, %zu)", i, i, size);
	DO(cuMemsetD8(at, (unsigned char)i, size));
	end();
}

static void alloc_null(void) {
	ASK("cuMemAlloc(NULL, 4)");
	DO(cuMemAlloc(NULL, 4));
	end();
}

static void alloc_pitch(void) {
	int i = FREE(memory, MEMORIES), c = current();
	size_t width = (size_t)ONE_OF(1, 4, 100, 512, 513, 0), height = (size_t)ONE_OF(1, 3, 17, 0), pitch = 77;
	unsigned element = (unsigned)ONE_OF(4, 8, 16, 16, 1, 0, 32);
	if (i < 0)
		return;
	CUdeviceptr at = 1;
	ASK("cuMemAllocPitch(m%d, %zu, %zu, %u)", i, width, height, element);
	CUresult r = DO(cuMemAllocPitch(&at, &pitch, width, height, element));
	say(" %zu", pitch);
	end();
	if (r != OK)
		return;
	w.memory[i].owner = c;
	w.memory[i].at = at;
	w.memory[i].size = pitch * height;
	order_default();
	ASK("cuMemsetD2D8(m%d, %d, whole)", i, i);
	DO(cuMemsetD2D8(at, pitch, (unsigned char)i, pitch, height));
	end();
}

static void alloc_pitch_null(void) {
	CUdeviceptr at;
	size_t pitch;
	bool first = once_in(2);
	ASK("cuMemAllocPitch(%s)", first ? "NULL, pitch" : "m, NULL");
	DO(cuMemAllocPitch(first ? NULL : &at, first ? &pitch : NULL, 4, 4, 4));
	end();
}

static void free_memory(void) {
	int i = LIVE(memory, MEMORIES);
	if (i < 0)
		return;
	settle();
	CUdeviceptr at = w.memory[i].at;
	ASK("cuMemFree(m%d)", i);
	CUresult r = DO(cuMemFree(at));
	end();
	if (r != OK)
		return;
	w.memory[i].owner = -1;
	if (once_in(3)) {
		ASK("cuMemFree(m%d again)", i);
		DO(cuMemFree(at));
		end();
	}
}

static void free_wrong(void) {
	int i = LIVE(memory, MEMORIES), how = (int)below(4);
	CUdeviceptr at = how == 0 ? 0 : how == 1 ? 0x1234 : how == 2 ? (uintptr_t)hosts[0] : i >= 0 ? w.memory[i].at + 1 : 0;
	ASK("cuMemFree(%s)", how == 0 ? "0" : how == 1 ? "0x1234" : how == 2 ? "h0" : "inside");
	DO(cuMemFree(at));
	end();
}

static void memory_info(void) {
	size_t f = 1, t = 0;
	int null = (int)below(6);
	ASK("cuMemGetInfo(%s, %s)", null == 0 ? "NULL" : "free", null == 1 ? "NULL" : "total");
	CUresult r = DO(cuMemGetInfo(null == 0 ? NULL : &f, null == 1 ? NULL : &t));
	say(" %d", r == OK && null > 1 && f > 0 && f <= t);
	end();
}

static void address_range(void) {
	int i = LIVE(memory, MEMORIES), null = (int)below(6), how = (int)below(5);
	CUdeviceptr base = 1, at = i >= 0 ? w.memory[i].at : 0;
	size_t size = 77;
	if (how == 1 && i >= 0)
		at += w.memory[i].size - 1;
	if (how == 2)
		at = 0x1234;
	if (how == 3)
		at = (uintptr_t)hosts[2];
	ASK("cuMemGetAddressRange(%s, %s,", null == 0 ? "NULL" : "base", null == 1 ? "NULL" : "size");
	say_address(at);
	say(")");
	DO(cuMemGetAddressRange(null == 0 ? NULL : &base, null == 1 ? NULL : &size, at));
	if (base != 1)
		say_address(base);
	say(" %zu", size);
	end();
}

static void host_alloc(void) {
	int i = FREE(pinned, PINNED), c = current();
	size_t size = (size_t)ONE_OF(1, 100, 4096, 10000, 65536, 0);
	unsigned flags = (unsigned)ONE_OF(0, 0, 1, 4, 5, 8, 0x100);
	bool plain = once_in(2);
	void *at = (void *)1;
	if (i < 0)
		return;
	if (plain)
		ASK("cuMemAllocHost(p%d, %zu)", i, size);
	else
		ASK("cuMemHostAlloc(p%d, %zu, %#x)", i, size, flags);
	CUresult r = DO(plain ? cuMemAllocHost(&at, size) : cuMemHostAlloc(&at, size, flags));
	end();
	if (r != OK || size == 0)
		return;
	w.pinned[i].owner = c;
	w.pinned[i].at = at;
	w.pinned[i].size = size;
	for (size_t k = 0; k < size; k++)
		w.pinned[i].at[k] = (uint8_t)(k * 3 + (size_t)i);
}

static void host_alloc_null(void) {
	ASK("cuMemHostAlloc(NULL, 4, 0)");
	DO(cuMemHostAlloc(NULL, 4, 0));
	end();
}

static void host_free(void) {
	int i = LIVE(pinned, PINNED);
	if (i < 0)
		return;
	settle();
	ASK("cuMemFreeHost(p%d)", i);
	if (DO(cuMemFreeHost(w.pinned[i].at)) == OK)
		w.pinned[i].owner = -1;
	end();
}

static void host_free_wrong(void) {
	int i = LIVE(pinned, PINNED), how = (int)below(3);
	void *at = how == 0 || (how == 1 && i < 0) ? NULL : how == 1 ? w.pinned[i].at + 1 : hosts[2];
	ASK("cuMemFreeHost(");
	say_address((uintptr_t)at);
	say(")");
	DO(cuMemFreeHost(at));
	end();
}

static void host_flags(void) {
	int i = LIVE(pinned, PINNED), how = (int)below(4);
	void *at = how == 0 || i < 0 ? hosts[2] : how == 1 ? w.pinned[i].at + w.pinned[i].size - 1 : w.pinned[i].at;
	unsigned flags = 77;
	ASK("cuMemHostGetFlags(");
	say_address((uintptr_t)at);
	say(")");
	DO(cuMemHostGetFlags(&flags, at));
	end();
}

static void host_register(void) {
	int i = (int)below(2); // the last one stays as it is
	size_t size = (size_t)ONE_OF(ROOM, ROOM, ROOM, 0);
	unsigned flags = (unsigned)ONE_OF(0, 0, 1, 2, 3, 0x100);
	int c = current();
	ASK("cuMemHostRegister(h%d, %zu, %#x)", i, size, flags);
	if (DO(cuMemHostRegister(hosts[i], size, flags)) == OK && size > 0) {
		w.registered[i] = true;
		w.registrar[i] = c;
	}
	end();
}

static void host_unregister(void) {
	int i = (int)below(3);
	settle();
	ASK("cuMemHostUnregister(h%d)", i);
	if (DO(cuMemHostUnregister(hosts[i])) == OK)
		w.registered[i] = false;
	end();
}

static void pointer_attribute(void) {
	// Attributes that say the same of a GPU and of a virtual one.
	int a = (int)ONE_OF(1, 2, 2, 3, 4, 8, 9, 11, 12, 13, 0, 99), m = LIVE(memory, MEMORIES), p = LIVE(pinned, PINNED);
	union {
		uint64_t word;
		uint32_t half;
		CUcontext context;
	} v = {.word = 0x7777777777777777};
	CUdeviceptr at = 0;
	switch (below(5)) {
	case 0:
		at = (uintptr_t)hosts[2] + 5;
		break;
	case 1:
		if (p >= 0)
			at = (uintptr_t)w.pinned[p].at + w.pinned[p].size / 2;
		if (a == 3)
			a = 2; // kernels do not reach it
		break;
	default:
		if (m >= 0)
			at = w.memory[m].at + w.memory[m].size / 2;
	}
	if (at == 0 && a == 13)
		a = 2;
	ASK("cuPointerGetAttribute(%d,", a);
	say_address(at);
	say(")");
	DO(cuPointerGetAttribute(&v, (CUpointer_attribute)a, at));
	if (v.word == 0x7777777777777777)
		say(" kept");
	else if (a == 1)
		say_context(v.context);
	else if (a == 3 || a == 4 || a == 11)
		say_address(v.word);
	else if (a == 12)
		say(" %llu", (unsigned long long)v.word);
	else
		say(" %d", (int)v.half);
	end();
}

static void pointer_attributes(void) {
	int m = LIVE(memory, MEMORIES), p = LIVE(pinned, PINNED), how = (int)below(4);
	CUdeviceptr at = how == 0 ? (uintptr_t)hosts[2] : how == 1 && p >= 0 ? (uintptr_t)w.pinned[p].at : m >= 0 ? w.memory[m].at : 0;
	CUcontext context = (CUcontext)1;
	unsigned type = 77, managed = 77;
	int ordinal = 77;
	CUdeviceptr device = 77;
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
	void *values[] = {&context, &type, &ordinal, &managed, &device};
	unsigned n = p >= 0 && at == (uintptr_t)w.pinned[p].at ? 4 : 5;
	ASK("cuPointerGetAttributes(%u,", n);
	say_address(at);
	say(")");
	DO(cuPointerGetAttributes(n, names, values, at));
	say_context(context);
	say(" %u %d %u", type, ordinal, managed);
	if (device != 77)
		say_address(device);
	end();
}

static void pointer_attribute_null(void) {
	int m = LIVE(memory, MEMORIES);
	ASK("cuPointerGetAttribute(NULL, 2, m%d)", m);
	DO(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m < 0 ? 0 : w.memory[m].at));
	end();
}

// --- steps: copies ------------------------------------------------------------------------------

static void scribble(int h, size_t size) {
	settle();
	uint64_t v = next();
	for (size_t i = 0; i < size; i++) {
		v = v * 6364136223846793005u + 1442695040888963407u;
		hosts[h][i] = (uint8_t)(v >> 56);
	}
}

// A part of a memory; one copy in eight reaches over its end.
static void part(int m, size_t *offset, size_t *size) {
	*offset = below(3) == 0 ? below((unsigned)w.memory[m].size) : 0;
	*size = w.memory[m].size - *offset;
	if (once_in(3))
		*size = below((unsigned)*size + 1);
	if (once_in(8))
		*size += w.memory[m].size - *offset + ((size_t)4 << 20);
	if (once_in(12))
		*size = 0;
}

static bool inside(int m, size_t offset, size_t size) { return offset + size <= w.memory[m].size; }

static void copy_in(void) {
	int m = LIVE(memory, MEMORIES), h = (int)below(HOSTS);
	size_t offset, size;
	if (m < 0)
		return;
	part(m, &offset, &size);
	if (inside(m, offset, size) && once_in(2))
		scribble(h, size);
	if (once_in(2)) {
		order_default();
		ASK("cuMemcpyHtoD(m%d+%zu, h%d, %zu)", m, offset, h, size);
		DO(cuMemcpyHtoD(w.memory[m].at + offset, hosts[h], size));
	} else {
		char name[16];
		CUstream s = some_stream(name);
		ASK("cuMemcpyHtoDAsync(m%d+%zu, h%d, %zu, %s)", m, offset, h, size, name);
		DO(cuMemcpyHtoDAsync(w.memory[m].at + offset, hosts[h], size, s));
	}
	end();
}

static void copy_out(void) {
	int m = LIVE(memory, MEMORIES), h = (int)below(HOSTS);
	size_t offset, size;
	if (m < 0)
		return;
	part(m, &offset, &size);
	CUresult r;
	if (once_in(2)) {
		order_default();
		ASK("cuMemcpyDtoH(h%d, m%d+%zu, %zu)", h, m, offset, size);
		r = DO(cuMemcpyDtoH(hosts[h], w.memory[m].at + offset, size));
	} else {
		char name[16];
		CUstream s = some_stream(name);
		ASK("cuMemcpyDtoHAsync(h%d, m%d+%zu, %zu, %s)", h, m, offset, size, name);
		r = DO(cuMemcpyDtoHAsync(hosts[h], w.memory[m].at + offset, size, s));
		if (r == OK)
			settle();
	}
	if (r == OK)
		say(" %016llx", (unsigned long long)hash(hosts[h], size));
	end();
}

static void copy_null(void) {
	int m = LIVE(memory, MEMORIES);
	if (m < 0)
		return;
	settle();
	if (once_in(2)) {
		ASK("cuMemcpyHtoD(m%d, NULL, 4)", m);
		DO(cuMemcpyHtoD(w.memory[m].at, NULL, 4));
	} else {
		ASK("cuMemcpyDtoH(NULL, m%d, 4)", m);
		DO(cuMemcpyDtoH(NULL, w.memory[m].at, 4));
	}
	end();
}

static void copy_nowhere(void) {
	unsigned size = (unsigned)ONE_OF(0, 4);
	bool in = once_in(2);
	CUdeviceptr at = (CUdeviceptr)ONE_OF(0, 0x1234);
	settle();
	ASK("cuMemcpy%s(%#llx, %u)", in ? "HtoD" : "DtoH", at, size);
	DO(in ? cuMemcpyHtoD(at, hosts[2], size) : cuMemcpyDtoH(hosts[2], at, size));
	end();
}

static void copy_within(void) {
	int a = LIVE(memory, MEMORIES), b = PICK(memory, MEMORIES, w.memory[i].owner >= 0 && i != a);
	size_t offset, size;
	if (a < 0 || b < 0)
		return;
	part(a, &offset, &size);
	if (inside(a, offset, size) && size > w.memory[b].size && !once_in(4))
		size = w.memory[b].size;
	if (!inside(b, 0, size) && inside(a, offset, size))
		size += (size_t)4 << 20;
	if (once_in(2)) {
		order_default();
		ASK("cuMemcpyDtoD(m%d, m%d+%zu, %zu)", b, a, offset, size);
		DO(cuMemcpyDtoD(w.memory[b].at, w.memory[a].at + offset, size));
	} else {
		char name[16];
		CUstream s = some_stream(name);
		ASK("cuMemcpyDtoDAsync(m%d, m%d+%zu, %zu, %s)", b, a, offset, size, name);
		DO(cuMemcpyDtoDAsync(w.memory[b].at, w.memory[a].at + offset, size, s));
	}
	end();
}

// One side of a copy between unified addresses: of the device, pinned or neither.
static bool some_side(CUdeviceptr *at, size_t *room) {
	int m = LIVE(memory, MEMORIES), p = LIVE(pinned, PINNED), h = (int)below(HOSTS);
	switch (below(4)) {
	case 0:
		*at = (uintptr_t)hosts[h];
		*room = ROOM;
		return true;
	case 1:
		if (p < 0)
			return false;
		*at = (uintptr_t)w.pinned[p].at;
		*room = w.pinned[p].size;
		return true;
	default:
		if (m < 0)
			return false;
		*at = w.memory[m].at;
		*room = w.memory[m].size;
		return true;
	}
}

static void copy_unified(void) {
	CUdeviceptr to, from;
	size_t to_room, from_room;
	if (!some_side(&to, &to_room) || !some_side(&from, &from_room) || to == from)
		return;
	size_t size = below((unsigned)(to_room < from_room ? to_room : from_room) + 1);
	char name[16] = "default";
	CUstream s = NULL;
	bool async = once_in(2);
	settle();
	if (async)
		s = some_stream(name);
	ASK("cuMemcpy%s(", async ? "Async" : "");
	say_address(to);
	say_address(from);
	say(" %zu %s)", size, name);
	CUresult r = DO(async ? cuMemcpyAsync(to, from, size, s) : cuMemcpy(to, from, size));
	end();
	if (r != OK)
		return;
	if (async)
		settle();
	else
		order_default();
	bool device = false;
	for (int i = 0; i < MEMORIES; i++)
		device |= w.memory[i].owner >= 0 && w.memory[i].at == to;
	if (!device)
		say("  data %016llx\n", (unsigned long long)hash((void *)(uintptr_t)to, size));
}

static void copy_rectangle(void) {
	CUDA_MEMCPY2D c = {0};
	int how = (int)below(4), m = LIVE(memory, MEMORIES), n = PICK(memory, MEMORIES, w.memory[i].owner >= 0 && i != m);
	unsigned variant = below(3);
	if (((how & 1) != 0 && m < 0) || ((how & 2) != 0 && n < 0))
		return;
	size_t width = (size_t)ONE_OF(1, 4, 33, 100), height = (size_t)ONE_OF(1, 2, 7), to_pitch = (size_t)ONE_OF(100, 128, 512), from_pitch = (size_t)ONE_OF(100, 128, 512);
	size_t to_room = (how & 1) != 0 ? w.memory[m].size : ROOM, from_room = (how & 2) != 0 ? w.memory[n].size : ROOM;
	if (once_in(10))
		width = 0;
	if (once_in(16))
		to_pitch = width / 2;
	size_t x = below(4), y = below(2);
	if ((y + height) * to_pitch > to_room || (height + 1) * from_pitch + 8 > from_room)
		return;
	c.srcXInBytes = x;
	c.srcMemoryType = (how & 2) != 0 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	c.srcHost = hosts[0];
	c.srcDevice = (how & 2) != 0 ? w.memory[n].at : 0;
	c.srcPitch = from_pitch;
	c.dstY = y;
	c.dstMemoryType = (how & 1) != 0 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	c.dstHost = hosts[1];
	c.dstDevice = (how & 1) != 0 ? w.memory[m].at : 0;
	c.dstPitch = to_pitch;
	c.WidthInBytes = width;
	c.Height = height;
	if (once_in(12))
		c.srcMemoryType = (CUmemorytype)ONE_OF(0, 9);
	static const char *const names[] = {"cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy2DAsync"};
	settle();
	char stream_name[16] = "default";
	CUstream s = NULL;
	if (variant == 2)
		s = some_stream(stream_name);
	else
		order_default();
	ASK("%s(to %s %d pitch %zu y %zu, from %s %d pitch %zu x %zu type %d, %zu x %zu, %s)", names[variant], (how & 1) != 0 ? "m" : "h", (how & 1) != 0 ? m : 1, to_pitch, y,
	    (how & 2) != 0 ? "m" : "h", (how & 2) != 0 ? n : 0, from_pitch, x, (int)c.srcMemoryType, width, height, stream_name);
	CUresult r = DO(variant == 0 ? cuMemcpy2D(&c) : variant == 1 ? cuMemcpy2DUnaligned(&c) : cuMemcpy2DAsync(&c, s));
	end();
	if (r != OK || (how & 1) != 0)
		return;
	settle();
	say("  data %016llx\n", (unsigned long long)hash(hosts[1], (y + height) * to_pitch));
}

static void copy_rectangle_null(void) {
	ASK("cuMemcpy2D(NULL)");
	DO(cuMemcpy2D(NULL));
	end();
}

static void fill(void) {
	int m = LIVE(memory, MEMORIES);
	unsigned width = (unsigned)ONE_OF(1, 2, 4), value = (unsigned)next();
	size_t offset, size;
	if (m < 0)
		return;
	part(m, &offset, &size);
	if (!once_in(4))
		offset = offset / 4 * 4;
	size_t count = size / width;
	CUdeviceptr at = w.memory[m].at + offset;
	if (once_in(2)) {
		order_default();
		ASK("cuMemsetD%u(m%d+%zu, %#x, %zu)", width * 8, m, offset, value, count);
		DO(width == 1 ? cuMemsetD8(at, (unsigned char)value, count) : width == 2 ? cuMemsetD16(at, (unsigned short)value, count) : cuMemsetD32(at, value, count));
	} else {
		char name[16];
		CUstream s = some_stream(name);
		ASK("cuMemsetD%uAsync(m%d+%zu, %#x, %zu, %s)", width * 8, m, offset, value, count, name);
		DO(width == 1 ? cuMemsetD8Async(at, (unsigned char)value, count, s) : width == 2 ? cuMemsetD16Async(at, (unsigned short)value, count, s) : cuMemsetD32Async(at, value, count, s));
	}
	end();
}

static void fill_rectangle(void) {
	int m = LIVE(memory, MEMORIES);
	unsigned width = (unsigned)ONE_OF(1, 2, 4), value = (unsigned)next();
	size_t pitch = (size_t)ONE_OF(8, 32, 100, 64, 30, 33), count = (size_t)ONE_OF(1, 2, 7, 8, 0), height = (size_t)ONE_OF(1, 2, 3, 0);
	if (m < 0 || w.memory[m].size < 400)
		return;
	CUdeviceptr at = w.memory[m].at + (once_in(5) ? 1 : 0);
	order_default();
	ASK("cuMemsetD2D%u(m%d+%llu, %zu, %#x, %zu, %zu)", width * 8, m, at - w.memory[m].at, pitch, value, count, height);
	DO(width == 1 ? cuMemsetD2D8(at, pitch, (unsigned char)value, count, height) : width == 2 ? cuMemsetD2D16(at, pitch, (unsigned short)value, count, height) : cuMemsetD2D32(at, pitch, value, count, height));
	end();
}

static void fill_nowhere(void) {
	CUdeviceptr at = (CUdeviceptr)ONE_OF(0, 0x1234);
	size_t n = (size_t)ONE_OF(0, 4);
	settle();
	ASK("cuMemsetD8(%#llx, 1, %zu)", at, n);
	DO(cuMemsetD8(at, 1, n));
	end();
}

// --- steps: streams and events ----------------------------------------------------------------------

static void stream_create(void) {
	int i = FREE(streams, STREAMS), c = current();
	unsigned flags = (unsigned)ONE_OF(0, 0, 1, 1, 2, 99);
	int priority = (int)ONE_OF(0, -1, -5, -99, 1, 99);
	bool plain = once_in(2);
	CUstream s = NULL;
	if (i < 0)
		return;
	if (plain)
		ASK("cuStreamCreate(s%d, %u)", i, flags);
	else
		ASK("cuStreamCreateWithPriority(s%d, %u, %d)", i, flags, priority);
	if (DO(plain ? cuStreamCreate(&s, flags) : cuStreamCreateWithPriority(&s, flags, priority)) == OK) {
		w.streams[i].owner = c;
		w.streams[i].handle = s;
		w.streams[i].flags = flags;
	}
	end();
}

static void stream_create_null(void) {
	ASK("cuStreamCreate(NULL, 0)");
	DO(cuStreamCreate(NULL, 0));
	end();
}

static void stream_destroy(void) {
	int i = LIVE(streams, STREAMS);
	if (i < 0)
		return;
	ASK("cuStreamDestroy(s%d)", i);
	if (DO(cuStreamDestroy(w.streams[i].handle)) == OK) {
		w.streams[i].owner = -1;
		if (w.last_context >= 0)
			settle();
	}
	end();
}

static void stream_destroy_default(void) {
	CUstream s = (CUstream)(uintptr_t)ONE_OF(0, 1, 2);
	ASK("cuStreamDestroy(%d)", (int)(uintptr_t)s);
	DO(cuStreamDestroy(s));
	end();
}

// Any stream of any context, or a default one.
static CUstream any_stream(char name[16]) {
	int i = LIVE(streams, STREAMS);
	unsigned how = below(6);
	if (i >= 0 && how > 2) {
		snprintf(name, 16, "s%d", i);
		return w.streams[i].handle;
	}
	how %= 3;
	strcpy(name, how == 0 ? "default" : how == 1 ? "legacy" : "thread");
	return (CUstream)(uintptr_t)how;
}

static void stream_synchronise(void) {
	char name[16];
	CUstream s = any_stream(name);
	ASK("cuStreamSynchronize(%s)", name);
	DO(cuStreamSynchronize(s));
	end();
}

static void stream_query(void) {
	char name[16];
	CUstream s = any_stream(name);
	settle_all();
	ASK("cuStreamQuery(%s)", name);
	DO(cuStreamQuery(s));
	end();
}

static void stream_questions(void) {
	char name[16];
	CUstream s = any_stream(name);
	unsigned flags = 77;
	int priority = 77;
	CUcontext c = (CUcontext)1;
	ASK("cuStreamGetFlags(%s)", name);
	DO(cuStreamGetFlags(s, &flags));
	say(" %u", flags);
	end();
	ASK("cuStreamGetPriority(%s)", name);
	DO(cuStreamGetPriority(s, &priority));
	say(" %d", priority);
	end();
	ASK("cuStreamGetCtx(%s)", name);
	DO(cuStreamGetCtx(s, &c));
	say_context(c);
	end();
}

static void stream_questions_null(void) {
	char name[16];
	CUstream s = any_stream(name);
	unsigned how = below(3);
	ASK("cuStreamGet%s(%s, NULL)", how == 0 ? "Flags" : how == 1 ? "Priority" : "Ctx", name);
	DO(how == 0 ? cuStreamGetFlags(s, NULL) : how == 1 ? cuStreamGetPriority(s, NULL) : cuStreamGetCtx(s, NULL));
	end();
}

static void event_create(void) {
	int i = FREE(events, EVENTS), c = current();
	unsigned flags = (unsigned)ONE_OF(0, 0, 1, 2, 2, 3, 4, 8, 99);
	CUevent e = NULL;
	if (i < 0)
		return;
	ASK("cuEventCreate(e%d, %u)", i, flags);
	if (DO(cuEventCreate(&e, flags)) == OK) {
		w.events[i].owner = c;
		w.events[i].handle = e;
		w.events[i].flags = flags;
	}
	end();
}

static void event_create_null(void) {
	ASK("cuEventCreate(NULL, 0)");
	DO(cuEventCreate(NULL, 0));
	end();
}

static void event_destroy(void) {
	int i = LIVE(events, EVENTS);
	if (i < 0)
		return;
	ASK("cuEventDestroy(e%d)", i);
	if (DO(cuEventDestroy(w.events[i].handle)) == OK)
		w.events[i].owner = -1;
	end();
}

static void event_null(void) {
	unsigned how = below(5);
	static const char *const names[] = {"cuEventDestroy(NULL)", "cuEventRecord(NULL, default)", "cuEventQuery(NULL)", "cuEventSynchronize(NULL)", "cuStreamWaitEvent(default, NULL, 0)"};
	ASK("%s", names[how]);
	DO(how == 0 ? cuEventDestroy(NULL) : how == 1 ? cuEventRecord(NULL, NULL) : how == 2 ? cuEventQuery(NULL) : how == 3 ? cuEventSynchronize(NULL) : cuStreamWaitEvent(NULL, NULL, 0));
	end();
}

static void event_record(void) {
	int i = LIVE(events, EVENTS);
	char name[16];
	if (i < 0)
		return;
	CUstream s = any_stream(name);
	ASK("cuEventRecord(e%d of c%d, %s)", i, w.events[i].owner, name);
	DO(cuEventRecord(w.events[i].handle, s));
	end();
}

static void event_record_flags(void) {
	int i = LIVE(events, EVENTS);
	unsigned flags = (unsigned)ONE_OF(0, 1, 2, 9);
	if (i < 0)
		return;
	ASK("cuEventRecordWithFlags(e%d, default, %u)", i, flags);
	DO(cuEventRecordWithFlags(w.events[i].handle, NULL, flags));
	end();
}

static void event_query(void) {
	int i = LIVE(events, EVENTS);
	if (i < 0)
		return;
	settle_all();
	ASK("cuEventQuery(e%d)", i);
	DO(cuEventQuery(w.events[i].handle));
	end();
}

static void event_synchronise(void) {
	int i = LIVE(events, EVENTS);
	if (i < 0)
		return;
	ASK("cuEventSynchronize(e%d)", i);
	DO(cuEventSynchronize(w.events[i].handle));
	end();
}

static void event_elapsed(void) {
	int a = LIVE(events, EVENTS), b = LIVE(events, EVENTS);
	float ms = -1;
	if (a < 0)
		return;
	settle_all();
	ASK("cuEventElapsedTime(e%d of c%d, e%d of c%d)", a, w.events[a].owner, b, w.events[b].owner);
	CUresult r = DO(cuEventElapsedTime(&ms, w.events[a].handle, w.events[b].handle));
	say(" %s", r != OK && ms != -1 ? "changed" : "");
	end();
}

static void event_elapsed_null(void) {
	int i = LIVE(events, EVENTS);
	float ms;
	unsigned how = below(3);
	if (i < 0)
		return;
	CUevent e = w.events[i].handle;
	settle();
	ASK("cuEventElapsedTime(%s)", how == 0 ? "NULL, e, e" : how == 1 ? "ms, NULL, e" : "ms, e, NULL");
	DO(cuEventElapsedTime(how == 0 ? NULL : &ms, how == 1 ? NULL : e, how == 2 ? NULL : e));
	end();
}

static void stream_wait(void) {
	int i = LIVE(events, EVENTS);
	char name[16];
	unsigned flags = (unsigned)ONE_OF(0, 0, 0, 1, 2, 9);
	if (i < 0)
		return;
	CUstream s = any_stream(name);
	ASK("cuStreamWaitEvent(%s, e%d of c%d, %u)", name, i, w.events[i].owner, flags);
	DO(cuStreamWaitEvent(s, w.events[i].handle, flags));
	end();
}

static struct {
	char order[64];
	int count;
	CUresult status;
	CUstream stream;
} heard;
static sem_t gate;

static void hear(void *letter) {
	heard.order[heard.count++] = (char)(uintptr_t)letter;
}

static void hear_stream(CUstream s, CUresult status, void *letter) {
	heard.order[heard.count++] = (char)(uintptr_t)letter;
	heard.status = status;
	heard.stream = s;
}

static void wait_gate(void *nothing) {
	(void)nothing;
	sem_wait(&gate);
}

static void callbacks(void) {
	char name[16];
	settle();
	CUstream s = some_stream(name);
	memset(&heard, 0, sizeof heard);
	int n = 1 + (int)below(6);
	for (int i = 0; i < n; i++) {
		void *letter = (void *)(uintptr_t)('a' + i);
		if (once_in(2)) {
			ASK("cuLaunchHostFunc(%s, %c)", name, 'a' + i);
			DO(cuLaunchHostFunc(s, hear, letter));
		} else {
			unsigned flags = once_in(6) ? 1 : 0;
			ASK("cuStreamAddCallback(%s, %c, %u)", name, 'a' + i, flags);
			DO(cuStreamAddCallback(s, hear_stream, letter, flags));
		}
		end();
	}
	ASK("cuStreamSynchronize(%s)", name);
	DO(cuStreamSynchronize(s));
	say(" heard %s status %d stream %d", heard.order, (int)heard.status, heard.stream == s || heard.stream == NULL);
	end();
}

static void callback_null(void) {
	bool first = once_in(2);
	ASK("%s(default, NULL)", first ? "cuLaunchHostFunc" : "cuStreamAddCallback");
	DO(first ? cuLaunchHostFunc(NULL, NULL, NULL) : cuStreamAddCallback(NULL, NULL, NULL, 0));
	end();
}

// While a function of the program holds up a stream, what is behind it has not happened.
static void held_up(void) {
	int c = current(), s = LIVE_OF(streams, STREAMS, c), other = PICK(streams, STREAMS, w.streams[i].owner == c && i != s), e = LIVE_OF(events, EVENTS, c);
	if (c < 0 || s < 0)
		return;
	settle();
	CUstream stream = w.streams[s].handle;
	ASK("cuLaunchHostFunc(s%d, gate)", s);
	CUresult r = DO(cuLaunchHostFunc(stream, wait_gate, NULL));
	end();
	if (r != OK)
		return;
	ASK("cuStreamQuery(s%d)", s);
	DO(cuStreamQuery(stream));
	end();
	if (e >= 0) {
		CUevent event = w.events[e].handle;
		float ms;
		ASK("cuEventRecord(e%d, s%d)", e, s);
		DO(cuEventRecord(event, stream));
		end();
		ASK("cuEventQuery(e%d)", e);
		DO(cuEventQuery(event));
		end();
		ASK("cuEventElapsedTime(e%d, e%d)", e, e);
		DO(cuEventElapsedTime(&ms, event, event));
		end();
		if (other >= 0) {
			ASK("cuStreamWaitEvent(s%d, e%d, 0)", other, e);
			DO(cuStreamWaitEvent(w.streams[other].handle, event, 0));
			end();
			ASK("cuStreamQuery(s%d)", other);
			DO(cuStreamQuery(w.streams[other].handle));
			end();
		}
	}
	bool destroyed = false;
	if (once_in(3)) {
		ASK("cuStreamDestroy(s%d)", s);
		destroyed = DO(cuStreamDestroy(stream)) == OK;
		end();
	}
	sem_post(&gate);
	if (e >= 0) {
		ASK("cuEventSynchronize(e%d)", e);
		DO(cuEventSynchronize(w.events[e].handle));
		end();
	}
	w.busy[c] = true;
	settle();
	if (destroyed) {
		w.streams[s].owner = -1;
		return;
	}
	ASK("cuStreamQuery(s%d)", s);
	DO(cuStreamQuery(stream));
	end();
}

// --- steps: modules and launches -----------------------------------------------------------------------

static void module_functions(int i) {
	for (int k = 0; k < FUNCTIONS; k++) {
		CUresult r = cuModuleGetFunction(&w.modules[i].functions[k], w.modules[i].handle, kernel_names[k]);
		if (r != OK) {
			say("  no function %s: %s\n", kernel_names[k], name_of(r));
			w.modules[i].functions[k] = NULL;
		}
	}
}

static void module_load(void) {
	int i = FREE(modules, MODULES), c = current();
	CUmodule m = NULL;
	char info[512] = "x", error[512] = "x";
	if (i < 0)
		return;
	bool plain = once_in(2);
	CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_OPTIMIZATION_LEVEL};
	void *values[] = {info, (void *)(uintptr_t)sizeof info, error, (void *)(uintptr_t)sizeof error, (void *)(uintptr_t)4};
	ASK("cuModuleLoadData%s(M%d)", plain ? "" : "Ex", i);
	CUresult r = DO(plain ? cuModuleLoadData(&m, kernels) : cuModuleLoadDataEx(&m, kernels, 5, options, values));
	if (!plain && r == OK)
		say(" error log %zu", (size_t)(uintptr_t)values[3]);
	end();
	if (r != OK)
		return;
	w.modules[i].owner = c;
	w.modules[i].handle = m;
	module_functions(i);
}

static void module_load_wrong(void) {
	static const char *const images[] = {"", "nonsense", ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry f() { nonsense; }\n", ".version 99.0\n.target sm_70\n.address_size 64\n"};
	unsigned how = below(4);
	CUmodule m = (CUmodule)1;
	ASK("cuModuleLoadData(wrong %u)", how);
	DO(cuModuleLoadData(&m, images[how]));
	end();
}

static void module_load_null(void) {
	CUmodule m;
	bool first = once_in(2);
	ASK("cuModuleLoadData(%s)", first ? "NULL, image" : "m, NULL");
	DO(cuModuleLoadData(first ? NULL : &m, first ? kernels : NULL));
	end();
}

static void module_load_file(void) {
	CUmodule m;
	ASK("cuModuleLoad(nothing)");
	DO(cuModuleLoad(&m, "/nonexistent/nothing.ptx"));
	end();
}

static void module_unload(void) {
	int i = LIVE(modules, MODULES);
	if (i < 0)
		return;
	settle();
	ASK("cuModuleUnload(M%d)", i);
	if (DO(cuModuleUnload(w.modules[i].handle)) == OK)
		w.modules[i].owner = -1;
	end();
}

static void module_null(void) {
	CUfunction f;
	CUdeviceptr at;
	size_t size;
	unsigned how = below(3);
	ASK("cuModule%s(NULL)", how == 0 ? "Unload" : how == 1 ? "GetFunction" : "GetGlobal");
	DO(how == 0 ? cuModuleUnload(NULL) : how == 1 ? cuModuleGetFunction(&f, NULL, "fill") : cuModuleGetGlobal(&at, &size, NULL, "counter"));
	end();
}

static void module_function(void) {
	int i = LIVE(modules, MODULES);
	static const char *const names[] = {"fill", "rotate", "absent", "", "counter"};
	const char *name = names[below(5)];
	CUfunction f = (CUfunction)1;
	if (i < 0)
		return;
	ASK("cuModuleGetFunction(M%d, \"%s\")", i, name);
	DO(cuModuleGetFunction(&f, w.modules[i].handle, name));
	bool known = false;
	for (int k = 0; k < FUNCTIONS; k++)
		known |= w.modules[i].functions[k] == f;
	say(" %s", known ? "same" : f == (CUfunction)1 ? "kept" : f == NULL ? "NULL" : "other");
	end();
}

static void module_function_null(void) {
	int i = LIVE(modules, MODULES);
	CUfunction f;
	if (i < 0)
		return;
	bool first = once_in(2);
	ASK("cuModuleGetFunction(%s)", first ? "NULL, M, fill" : "f, M, NULL");
	DO(cuModuleGetFunction(first ? NULL : &f, w.modules[i].handle, first ? "fill" : NULL));
	end();
}

static void module_global(void) {
	int i = LIVE(modules, MODULES), null = (int)below(8);
	static const char *const names[] = {"counter", "counter", "factors", "absent", "", "fill"};
	const char *name = names[below(6)];
	CUdeviceptr at = 0;
	size_t size = 77;
	uint32_t v[4] = {0};
	if (i < 0)
		return;
	ASK("cuModuleGetGlobal(%s, %s, M%d, \"%s\")", null == 0 ? "NULL" : "at", null == 1 ? "NULL" : "size", i, name);
	CUresult r = DO(cuModuleGetGlobal(null == 0 ? NULL : &at, null == 1 ? NULL : &size, w.modules[i].handle, name));
	say(" %zu", size);
	end();
	if (r != OK || null < 2)
		return;
	order_default();
	ASK("cuMemcpyDtoH(%s of M%d)", name, i);
	DO(cuMemcpyDtoH(v, at, sizeof v));
	say(" %u %u %u %u", v[0], v[1], v[2], v[3]);
	end();
	if (once_in(2)) {
		v[0] = below(100);
		ASK("cuMemcpyHtoD(%s of M%d, %u)", name, i, v[0]);
		DO(cuMemcpyHtoD(at, v, 4));
		end();
	}
}

static void function_attribute(void) {
	int i = LIVE(modules, MODULES), k = (int)below(FUNCTIONS), a = (int)ONE_OF(0, 1, 3, 5, 7, 8, 9, 10, 11, 14, 15, 99, -1), v = 77;
	if (i < 0 || w.modules[i].functions[k] == NULL)
		return;
	ASK("cuFuncGetAttribute(%d, %s)", a, kernel_names[k]);
	DO(cuFuncGetAttribute(&v, (CUfunction_attribute)a, w.modules[i].functions[k]));
	say(" %d", v);
	end();
}

static void function_set_attribute(void) {
	int i = LIVE(modules, MODULES), k = (int)below(FUNCTIONS), a = (int)ONE_OF(8, 8, 8, 9, 0, 1, 5, 99), v = (int)ONE_OF(0, 50, 100, 101, -1, -2, 1024, 49152, 65536, 1 << 30);
	if (a == 9)
		v = (int)ONE_OF(-1, 0, 50, 100); // others crash NVIDIA's driver
	if (i < 0 || w.modules[i].functions[k] == NULL)
		return;
	ASK("cuFuncSetAttribute(%s, %d, %d)", kernel_names[k], a, v);
	DO(cuFuncSetAttribute(w.modules[i].functions[k], (CUfunction_attribute)a, v));
	end();
}

static void function_questions(void) {
	int i = LIVE(modules, MODULES), k = (int)below(FUNCTIONS);
	if (i < 0 || w.modules[i].functions[k] == NULL)
		return;
	CUfunction f = w.modules[i].functions[k];
	CUmodule m = NULL;
	const char *name = "kept";
	size_t offset = 77, size = 77, index = (size_t)ONE_OF(0, 1, 2, 3, 4, 5, 99);
	switch (below(4)) {
	case 0:
		ASK("cuFuncGetModule(%s)", kernel_names[k]);
		DO(cuFuncGetModule(&m, f));
		say(" same %d", m == w.modules[i].handle);
		break;
	case 1:
		ASK("cuFuncGetName(%s)", kernel_names[k]);
		DO(cuFuncGetName(&name, f));
		say(" %s", name);
		break;
	case 2:
		ASK("cuFuncGetParamInfo(%s, %zu)", kernel_names[k], index);
		DO(cuFuncGetParamInfo(f, index, &offset, &size));
		say(" %zu %zu", offset, size);
		break;
	default:
		size = (size_t)ONE_OF(0, 1, 2, 3, 7);
		ASK("cuFuncSetCacheConfig(%s, %zu)", kernel_names[k], size);
		DO(cuFuncSetCacheConfig(f, (CUfunc_cache)size));
	}
	end();
}

static void function_null(void) {
	int v = 0;
	CUmodule m;
	size_t n;
	unsigned how = below(6);
	static const char *const names[] = {"cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncGetModule", "cuFuncGetParamInfo", "cuFuncSetCacheConfig", "cuOccupancyMaxActiveBlocksPerMultiprocessor"};
	ASK("%s(NULL)", names[how]);
	DO(how == 0   ? cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, NULL)
	   : how == 1 ? cuFuncSetAttribute(NULL, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0)
	   : how == 2 ? cuFuncGetModule(&m, NULL)
	   : how == 3 ? cuFuncGetParamInfo(NULL, 0, &n, NULL)
	   : how == 4 ? cuFuncSetCacheConfig(NULL, CU_FUNC_CACHE_PREFER_NONE)
		      : cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, NULL, 32, 0));
	end();
}

static void function_null_value(void) {
	int i = LIVE(modules, MODULES), v = 0;
	if (i < 0 || w.modules[i].functions[1] == NULL)
		return;
	CUfunction f = w.modules[i].functions[1];
	size_t n;
	unsigned how = below(5);
	static const char *const names[] = {"cuFuncGetAttribute(NULL)", "cuFuncGetModule(NULL)", "cuFuncGetParamInfo(NULL, size)", "cuFuncGetParamInfo(offset, NULL)", "cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL)"};
	ASK("%s", names[how]);
	DO(how == 0   ? cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f)
	   : how == 1 ? cuFuncGetModule(NULL, f)
	   : how == 2 ? cuFuncGetParamInfo(f, 0, NULL, &n)
	   : how == 3 ? cuFuncGetParamInfo(f, 0, &n, NULL)
		      : cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, f, 32, 0));
	(void)v;
	end();
}

static void occupancy(void) {
	int i = LIVE(modules, MODULES), k = (int)below(FUNCTIONS), threads = (int)ONE_OF(1, 32, 64, 65, 1024, 1025, 0, -1), blocks = 77, grid = 77, block = 77;
	size_t shared = (size_t)ONE_OF(0, 0, 1024, 49152, 1 << 30);
	unsigned flags = (unsigned)ONE_OF(0, 1, 2, 9);
	if (i < 0 || w.modules[i].functions[k] == NULL)
		return;
	CUfunction f = w.modules[i].functions[k];
	switch (below(3)) {
	case 0:
		ASK("cuOccupancyMaxActiveBlocksPerMultiprocessor(%s, %d, %zu)", kernel_names[k], threads, shared);
		DO(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, shared));
		say(" %s", blocks == 77 ? "kept" : blocks > 0 ? "some" : "none");
		break;
	case 1:
		ASK("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(%s, %d, 0, %u)", kernel_names[k], threads, flags);
		DO(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, threads, 0, flags));
		say(" %s", blocks == 77 ? "kept" : blocks > 0 ? "some" : "none");
		break;
	default:
		ASK("cuOccupancyMaxPotentialBlockSize(%s, limit %d)", kernel_names[k], threads);
		DO(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, threads));
		say(" %s %d", grid == 77 ? "kept" : grid > 0 ? "some" : "none", block <= 1024);
	}
	end();
}

// Whether a kernel may be launched so; the driver is to say it.
static void launch_with(CUfunction f, int k, int m, const char *of, bool extended) {
	CUdeviceptr at = w.memory[m].at;
	unsigned room = (unsigned)(w.memory[m].size / 4), threads, shared = 0;
	unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
	unsigned count = room, value = below(1000);
	uint8_t a = (uint8_t)next();
	uint16_t b = (uint16_t)next();
	uint32_t s[3] = {(uint32_t)next(), (uint32_t)next(), (uint32_t)next()};
	float real = (float)below(1000);
	void *none = NULL, *params_fill[] = {&at, &count, &value}, *params_mixed[] = {&at, &a, &b, s, &real}, *params_one[] = {&at};
	void **params = &none;
	if (room < 8)
		return;
	threads = 1 + below(k == 4 ? 64 : 256);
	if (threads > room)
		threads = room;
	switch (k) {
	case 1:
		grid[0] = (room + threads - 1) / threads;
		params = params_fill;
		break;
	case 2:
		threads = 1;
		params = params_mixed;
		break;
	case 3:
		shared = threads * 4;
		params = params_one;
		break;
	case 4:
		params = params_one;
		break;
	case 5:
		threads = 1;
		params = params_one;
		break;
	}
	block[0] = threads;
	const char *wrong = "";
	uint8_t buffer[32] = {0};
	size_t size = sizeof buffer;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	void **extras = NULL;
	memcpy(buffer, &at, 8);
	if (k == 1) {
		memcpy(buffer + 8, &count, 4);
		memcpy(buffer + 12, &value, 4);
		size = 16;
	} else if (k == 2) {
		buffer[8] = a;
		memcpy(buffer + 10, &b, 2);
		memcpy(buffer + 16, s, 12);
		memcpy(buffer + 28, &real, 4);
	} else {
		size = k == 0 ? 0 : 8;
	}
	switch (below(24)) {
	case 0:
		grid[below(3)] = 0;
		wrong = " no grid";
		break;
	case 1:
		block[below(3)] = 0;
		wrong = " no block";
		break;
	case 2:
		block[0] = 1025;
		wrong = " large block";
		break;
	case 3:
		block[2] = 65;
		wrong = " deep block";
		break;
	case 4:
		grid[1] = 65536;
		wrong = " large grid";
		break;
	case 5:
		shared = 1 << 20;
		wrong = " large shared";
		break;
	case 6:
		if (k != 4)
			break;
		block[0] = 65;
		wrong = " over maxntid";
		break;
	case 7:
	case 8:
	case 9:
	case 10:
		extras = extra;
		params = NULL;
		wrong = " extra";
		break;
	case 11:
		extras = extra;
		params = NULL;
		size += 8;
		wrong = " long extra";
		break;
	case 12:
		extras = extra;
		wrong = " both";
		break;
	}
	char name[16];
	CUstream stream = some_stream(name);
	bool cooperative = !extended && extras == NULL && once_in(8) && grid[0] <= 16; // small GPUs have room for that
	if (extended) {
		CUlaunchConfig config = {.gridDimX = grid[0], .gridDimY = grid[1], .gridDimZ = grid[2], .blockDimX = block[0], .blockDimY = block[1], .blockDimZ = block[2], .sharedMemBytes = shared, .hStream = stream};
		ASK("cuLaunchKernelEx(%s%s, m%d, %u %u, %s%s)", of, kernel_names[k], m, grid[0], block[0], name, wrong);
		DO(cuLaunchKernelEx(&config, f, params, extras));
	} else if (cooperative) {
		ASK("cuLaunchCooperativeKernel(%s%s, m%d, %u %u, %s%s)", of, kernel_names[k], m, grid[0], block[0], name, wrong);
		DO(cuLaunchCooperativeKernel(f, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream, params));
	} else {
		ASK("cuLaunchKernel(%s%s, m%d, %u %u, %s%s)", of, kernel_names[k], m, grid[0], block[0], name, wrong);
		DO(cuLaunchKernel(f, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream, params, extras));
	}
	end();
}

static void launch(void) {
	int c = current(), i = LIVE_OF(modules, MODULES, c), k = (int)below(FUNCTIONS), m = LIVE_OF(memory, MEMORIES, c);
	if (c < 0 || i < 0 || m < 0 || w.modules[i].functions[k] == NULL)
		return;
	launch_with(w.modules[i].functions[k], k, m, "", once_in(4));
}

static void launch_null(void) {
	ASK("cuLaunchKernel(NULL)");
	DO(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	end();
}

static void launch_no_params(void) {
	int c = current(), i = LIVE_OF(modules, MODULES, c);
	if (c < 0 || i < 0 || w.modules[i].functions[1] == NULL)
		return;
	settle();
	ASK("cuLaunchKernel(fill, no parameters)");
	DO(cuLaunchKernel(w.modules[i].functions[1], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	end();
}

// A function in a context that is not its own.
static void launch_elsewhere(void) {
	int c = current(), i = PICK(modules, MODULES, w.modules[i].owner >= 0 && w.modules[i].owner != c);
	if (i < 0 || w.modules[i].functions[0] == NULL)
		return;
	settle();
	ASK("cuLaunchKernel(nothing of c%d, default stream of c%d)", w.modules[i].owner, c);
	DO(cuLaunchKernel(w.modules[i].functions[0], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	end();
	for (int k = 0; k < CONTEXTS; k++)
		w.busy[k] = w.alive[k];
}

// A function and a stream of different contexts, whichever is current.
static void launch_stream_elsewhere(void) {
	int i = LIVE(modules, MODULES), s = LIVE(streams, STREAMS);
	if (i < 0 || s < 0 || w.modules[i].functions[0] == NULL)
		return;
	settle();
	ASK("cuLaunchKernel(nothing of c%d, s%d of c%d, current c%d)", w.modules[i].owner, s, w.streams[s].owner, current());
	DO(cuLaunchKernel(w.modules[i].functions[0], 1, 1, 1, 1, 1, 1, 0, w.streams[s].handle, NULL, NULL));
	end();
	for (int k = 0; k < CONTEXTS; k++)
		w.busy[k] = w.alive[k];
}

// Work on a stream of another context than the current one.
static void stream_elsewhere(void) {
	int c = current(), s = PICK(streams, STREAMS, w.streams[i].owner >= 0 && w.streams[i].owner != c), m = s < 0 ? -1 : LIVE_OF(memory, MEMORIES, w.streams[s].owner);
	if (m < 0)
		return;
	settle();
	size_t n = w.memory[m].size < 100 ? w.memory[m].size : 100;
	switch (below(3)) {
	case 0:
		ASK("cuMemcpyHtoDAsync(m%d, h2, %zu, s%d of c%d, current c%d)", m, n, s, w.streams[s].owner, c);
		DO(cuMemcpyHtoDAsync(w.memory[m].at, hosts[2], n, w.streams[s].handle));
		break;
	case 1:
		ASK("cuMemsetD8Async(m%d, 7, %zu, s%d of c%d, current c%d)", m, n, s, w.streams[s].owner, c);
		DO(cuMemsetD8Async(w.memory[m].at, 7, n, w.streams[s].handle));
		break;
	default:
		ASK("cuLaunchHostFunc(s%d of c%d, current c%d)", s, w.streams[s].owner, c);
		DO(cuLaunchHostFunc(w.streams[s].handle, hear, (void *)'x'));
	}
	end();
	w.busy[w.streams[s].owner] = true;
	settle();
}

static void link_one(void) {
	CUlinkState state = NULL;
	void *cubin = NULL;
	size_t size = 0;
	CUmodule m = NULL;
	ASK("cuLinkCreate()");
	CUresult r = DO(cuLinkCreate(0, NULL, NULL, &state));
	end();
	if (r != OK)
		return;
	ASK("cuLinkAddData()");
	r = DO(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)kernels, sizeof kernels, "kernels", 0, NULL, NULL));
	end();
	ASK("cuLinkComplete()");
	r = DO(cuLinkComplete(state, &cubin, &size));
	say(" %d %d", cubin != NULL, size > 0);
	end();
	if (r == OK) {
		ASK("cuModuleLoadData(linked)");
		r = DO(cuModuleLoadData(&m, cubin));
		end();
	}
	ASK("cuLinkDestroy()");
	DO(cuLinkDestroy(state));
	end();
	if (m != NULL) {
		ASK("cuModuleUnload(linked)");
		DO(cuModuleUnload(m));
		end();
	}
}

static void library_load(void) {
	int i = FREE(libraries, LIBRARIES);
	CUlibrary l = NULL;
	if (i < 0)
		return;
	ASK("cuLibraryLoadData(L%d)", i);
	CUresult r = DO(cuLibraryLoadData(&l, kernels, NULL, NULL, 0, NULL, NULL, 0));
	end();
	if (r != OK)
		return;
	w.libraries[i].owner = 0;
	w.libraries[i].handle = l;
	for (int k = 0; k < FUNCTIONS; k++) {
		w.libraries[i].kernels[k] = NULL;
		r = cuLibraryGetKernel(&w.libraries[i].kernels[k], l, kernel_names[k]);
		if (r != OK)
			say("  no kernel %s: %s\n", kernel_names[k], name_of(r));
	}
}

static void library_load_null(void) {
	CUlibrary l;
	bool first = once_in(2);
	ASK("cuLibraryLoadData(%s)", first ? "NULL, image" : "l, NULL");
	DO(cuLibraryLoadData(first ? NULL : &l, first ? kernels : NULL, NULL, NULL, 0, NULL, NULL, 0));
	end();
}

static void library_unload(void) {
	int i = LIVE(libraries, LIBRARIES);
	if (i < 0)
		return;
	settle();
	ASK("cuLibraryUnload(L%d)", i);
	if (DO(cuLibraryUnload(w.libraries[i].handle)) == OK)
		w.libraries[i].owner = -1;
	end();
}

static void library_questions(void) {
	int i = LIVE(libraries, LIBRARIES), k = (int)below(FUNCTIONS), v = 77, a = (int)ONE_OF(0, 1, 3, 8, 9, 99), d = (int)ONE_OF(0, 0, 0, 9);
	if (i < 0)
		return;
	CUlibrary l = w.libraries[i].handle, back = NULL;
	CUkernel kernel = w.libraries[i].kernels[k], found = (CUkernel)1, all[FUNCTIONS + 1];
	CUmodule m = NULL;
	CUfunction f = NULL;
	unsigned count = 77;
	CUdeviceptr at = 0;
	size_t size = 77, offset = 77;
	const char *name = "kept";
	static const char *const wanted[] = {"fill", "absent", "", "counter"};
	unsigned n = below(4);
	switch (below(10)) {
	case 0:
		ASK("cuLibraryGetKernel(L%d, \"%s\")", i, wanted[n]);
		DO(cuLibraryGetKernel(&found, l, wanted[n]));
		say(" %s", found == w.libraries[i].kernels[1] ? "same" : found == (CUkernel)1 ? "kept" : "other");
		break;
	case 1:
		ASK("cuLibraryGetModule(L%d)", i);
		DO(cuLibraryGetModule(&m, l));
		break;
	case 2:
		ASK("cuLibraryGetKernelCount(L%d)", i);
		DO(cuLibraryGetKernelCount(&count, l));
		say(" %u", count);
		break;
	case 3:
		ASK("cuLibraryEnumerateKernels(L%d)", i);
		DO(cuLibraryEnumerateKernels(all, FUNCTIONS, l));
		break;
	case 4:
		ASK("cuLibraryGetGlobal(L%d, \"%s\")", i, wanted[n]);
		DO(cuLibraryGetGlobal(&at, &size, l, wanted[n]));
		say(" %zu", size);
		break;
	case 5:
		ASK("cuKernelGetFunction(%s)", kernel_names[k]);
		DO(cuKernelGetFunction(&f, kernel));
		break;
	case 6:
		ASK("cuKernelGetName(%s)", kernel_names[k]);
		DO(cuKernelGetName(&name, kernel));
		say(" %s", name);
		break;
	case 7:
		ASK("cuKernelGetAttribute(%d, %s, %d)", a, kernel_names[k], d);
		DO(cuKernelGetAttribute(&v, (CUfunction_attribute)a, kernel, d));
		say(" %d", v);
		break;
	case 8:
		ASK("cuKernelGetParamInfo(%s, %u)", kernel_names[k], n);
		DO(cuKernelGetParamInfo(kernel, n, &offset, &size));
		say(" %zu %zu", offset, size);
		break;
	default:
		ASK("cuKernelGetLibrary(%s)", kernel_names[k]);
		DO(cuKernelGetLibrary(&back, kernel));
		say(" same %d", back == l);
	}
	end();
}

static void library_null(void) {
	CUkernel k;
	CUmodule m;
	unsigned how = below(3);
	ASK("cuLibrary%s(NULL)", how == 0 ? "Unload" : how == 1 ? "GetKernel" : "GetModule");
	DO(how == 0 ? cuLibraryUnload(NULL) : how == 1 ? cuLibraryGetKernel(&k, NULL, "fill") : cuLibraryGetModule(&m, NULL));
	end();
}

static void kernel_null(void) {
	CUfunction f;
	int v;
	bool first = once_in(2);
	ASK("cuKernelGet%s(NULL)", first ? "Function" : "Attribute");
	DO(first ? cuKernelGetFunction(&f, NULL) : cuKernelGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, NULL, 0));
	end();
}

static void library_launch(void) {
	int c = current(), i = LIVE(libraries, LIBRARIES), k = (int)below(FUNCTIONS), m = LIVE_OF(memory, MEMORIES, c);
	if (c < 0 || i < 0 || m < 0 || w.libraries[i].kernels[k] == NULL)
		return;
	launch_with((CUfunction)w.libraries[i].kernels[k], k, m, "library's ", once_in(2));
}

// --- the sequence ---------------------------------------------------------------------------------------

#define STEP(weight, name) {#name, name, weight}
static const struct step {
	const char *name;
	void (*run)(void);
	unsigned weight;
} steps[] = {
	STEP(1, device_get), STEP(1, device_attribute), STEP(1, device_attribute_null), STEP(1, device_name), STEP(1, device_memory), STEP(1, device_uuid), STEP(1, device_capability),
	STEP(1, device_properties), STEP(1, device_bus), STEP(1, device_by_bus), STEP(1, device_by_bus_null), STEP(2, error_names), STEP(3, proc_address),
	STEP(1, init), STEP(1, driver_version_null), STEP(2, primary_retain), STEP(1, primary_retain_null), STEP(1, primary_release), STEP(1, primary_reset),
	STEP(2, primary_state), STEP(2, primary_flags), STEP(2, context_create), STEP(1, context_create_null), STEP(1, context_destroy), STEP(1, context_destroy_null),
	STEP(1, context_destroy_primary), STEP(8, context_set), STEP(2, context_set_null), STEP(4, context_push), STEP(1, context_push_null), STEP(5, context_pop), STEP(4, context_get),
	STEP(1, context_get_null), STEP(2, context_device), STEP(2, context_flags), STEP(2, context_version), STEP(2, context_limit), STEP(2, context_set_limit), STEP(2, context_cache),
	STEP(2, context_priorities), STEP(3, context_synchronise), STEP(16, alloc), STEP(1, alloc_null), STEP(4, alloc_pitch), STEP(1, alloc_pitch_null), STEP(5, free_memory),
	STEP(2, free_wrong), STEP(1, memory_info), STEP(4, address_range), STEP(6, host_alloc), STEP(1, host_alloc_null), STEP(2, host_free), STEP(1, host_free_wrong), STEP(2, host_flags),
	STEP(3, host_register), STEP(3, host_unregister), STEP(8, pointer_attribute), STEP(4, pointer_attributes), STEP(1, pointer_attribute_null), STEP(10, copy_in), STEP(14, copy_out),
	STEP(1, copy_null), STEP(1, copy_nowhere), STEP(8, copy_within), STEP(14, copy_unified), STEP(12, copy_rectangle), STEP(1, copy_rectangle_null), STEP(10, fill),
	STEP(5, fill_rectangle), STEP(1, fill_nowhere), STEP(6, stream_create), STEP(1, stream_create_null), STEP(3, stream_destroy), STEP(1, stream_destroy_default),
	STEP(4, stream_synchronise), STEP(4, stream_query), STEP(4, stream_questions), STEP(1, stream_questions_null), STEP(6, event_create), STEP(1, event_create_null),
	STEP(2, event_destroy), STEP(2, event_null), STEP(8, event_record), STEP(1, event_record_flags), STEP(4, event_query), STEP(4, event_synchronise), STEP(6, event_elapsed),
	STEP(1, event_elapsed_null), STEP(6, stream_wait), STEP(4, callbacks), STEP(1, callback_null), STEP(5, held_up), STEP(6, module_load), STEP(1, module_load_wrong),
	STEP(1, module_load_null), STEP(1, module_load_file), STEP(1, module_unload), STEP(1, module_null), STEP(2, module_function), STEP(1, module_function_null), STEP(3, module_global),
	STEP(4, function_attribute), STEP(3, function_set_attribute), STEP(4, function_questions), STEP(1, function_null), STEP(1, function_null_value), STEP(3, occupancy), STEP(20, launch),
	STEP(1, launch_null), STEP(1, launch_no_params), STEP(2, launch_elsewhere), STEP(2, launch_stream_elsewhere), STEP(3, stream_elsewhere), STEP(1, link_one), STEP(4, library_load),
	STEP(1, library_load_null), STEP(1, library_unload), STEP(6, library_questions), STEP(1, library_null), STEP(1, kernel_null), STEP(6, library_launch),
};
enum { LONG = 1000 }; // from here on, sequences are longer
enum { STEPS = sizeof steps / sizeof *steps };

static struct shared { // with the parent, which tells what a child died of
	int seed, step;
} *shared;

// Two threads take turns.
static struct turn {
	sem_t go, done;
	void (*run)(void);
	pthread_t thread;
} turns[2];

static void *take_turns(void *argument) {
	struct turn *t = argument;
	for (;;) {
		sem_wait(&t->go);
		if (t->run == NULL)
			return NULL;
		t->run();
		sem_post(&t->done);
	}
}

static void on(int i, void (*run)(void)) {
	thread = i;
	turns[i].run = run;
	sem_post(&turns[i].go);
	if (run != NULL)
		sem_wait(&turns[i].done);
	else
		pthread_join(turns[i].thread, NULL);
}

static void begin(void) {
	cuDevicePrimaryCtxSetFlags(0, 0);
	if (cuDevicePrimaryCtxRetain(&w.contexts[0], 0) != OK || cuCtxSetCurrent(w.contexts[0]) != OK)
		say("no primary context\n");
	w.alive[0] = w.was[0] = true;
	w.retained = 1;
}

// A thread without a context that works gets one, most times.
static void recover(void) {
	if (current() >= 0 || once_in(6))
		return;
	if (live_context() < 0)
		primary_retain();
	context_set();
}

// What is in memory at last.
static void read_all(void) {
	settle_all();
	for (int i = 0; i < MEMORIES; i++) {
		CUcontext popped;
		if (w.memory[i].owner < 0 || w.memory[i].size > ROOM)
			continue;
		CUresult r = cuCtxPushCurrent(w.contexts[w.memory[i].owner]);
		if (r == OK) {
			r = cuMemcpyDtoH(hosts[2], w.memory[i].at, w.memory[i].size);
			cuCtxPopCurrent(&popped);
		}
		say("m%d %s %016llx\n", i, name_of(r), (unsigned long long)hash(hosts[2], w.memory[i].size));
	}
}

static void tidy(void) {
	for (int i = 0; i < LIBRARIES; i++)
		if (w.libraries[i].owner >= 0)
			cuLibraryUnload(w.libraries[i].handle);
	for (int i = 0; i < HOSTS; i++)
		if (w.registered[i])
			cuMemHostUnregister(hosts[i]);
	for (int i = 1; i < CONTEXTS; i++)
		if (w.alive[i])
			cuCtxDestroy(w.contexts[i]);
	cuDevicePrimaryCtxReset(0);
	for (; w.retained > 0; w.retained--)
		cuDevicePrimaryCtxRelease(0);
}

static void start_threads(void) {
	for (int i = 0; i < 2; i++) {
		sem_init(&turns[i].go, 0, 0);
		sem_init(&turns[i].done, 0, 0);
		pthread_create(&turns[i].thread, NULL, take_turns, &turns[i]);
	}
}

static void fresh(int seed) {
	memset(&w, 0, sizeof w);
	for (int i = 0; i < MEMORIES; i++)
		w.memory[i].owner = -1;
	for (int i = 0; i < PINNED; i++)
		w.pinned[i].owner = -1;
	for (int i = 0; i < STREAMS; i++)
		w.streams[i].owner = -1;
	for (int i = 0; i < EVENTS; i++)
		w.events[i].owner = -1;
	for (int i = 0; i < MODULES; i++)
		w.modules[i].owner = -1;
	for (int i = 0; i < LIBRARIES; i++)
		w.libraries[i].owner = -1;
	w.last_context = -1;
	chance = (uint64_t)seed * 0x2545f4914f6cdd1d + 1;
	for (int h = 0; h < HOSTS; h++)
		for (size_t i = 0; i < ROOM; i++)
			hosts[h][i] = (uint8_t)(i * 7 + i / 256 + (size_t)h);
}

static void sequence(int seed) {
	fresh(seed);
	printf("seed %d\n", seed);
	start_threads();
	on(0, begin);
	unsigned total = 0;
	for (int i = 0; i < STEPS; i++)
		total += steps[i].weight;
	int length = 80 + (int)below(160);
	if (seed >= LONG)
		length *= 5;
	for (int n = 0; n < length; n++) {
		unsigned at = below(total);
		int i = 0;
		while (at >= steps[i].weight)
			at -= steps[i++].weight;
		shared->step = i;
		int who = once_in(4);
		thread = who;
		on(who, recover);
		on(who, steps[i].run);
	}
	shared->step = -1;
	on(0, read_all);
	on(0, tidy);
	on(0, NULL);
	on(1, NULL);
	printf("end\n");
	fflush(stdout);
}

static int child(int first, int end_at) {
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(60);
		sem_init(&gate, 0, 0);
		if (cuInit(0) != OK) {
			fprintf(stderr, "sequence: cuInit failed\n");
			_exit(1);
		}
		for (int i = first; i < end_at; i++) {
			shared->seed = i;
			sequence(i);
		}
		fflush(stdout);
		_exit(0);
	}
	int status = 1;
	waitpid(pid, &status, 0);
	return status;
}

int main(int argc, char **argv) {
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc != 3) {
		fprintf(stderr, "usage: sequence FIRST COUNT\n");
		return 2;
	}
	int first = atoi(argv[1]), last = first + atoi(argv[2]);
	while (first < last) {
		int status = child(first, last);
		if (status == 0)
			break;
		printf("\ncrashed: %s in %s\n", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit", shared->step >= 0 ? steps[shared->step].name : "the end");
		fflush(stdout);
		if (WIFEXITED(status))
			return 1;
		first = shared->seed + 1;
	}
	return 0;
}
