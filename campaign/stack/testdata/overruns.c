// Kernels that go beyond an allocation: for each of many allocations that lie beside another one, a kernel
// first stays within, and then does not. The line before what is found of it says what it did.
#include "kernels.h"

// Where it accesses, from the first byte behind the memory on, or from its first byte on.
enum { BEHIND, BEFORE };

static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .b8 first[256];\n.visible .global .align 4 .b8 second[256];\n"
	".file 1 \"overruns.cu\"\n"
	".visible .entry put(.param .u64 p)\n{\n"
	".reg .u32 %r<4>;\n.reg .u64 %d<4>;\n"
	"ld.param.u64 %d0, [p];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\nadd.s64 %d0, %d0, %d1;\n"
	".loc 1 7 1\nst.global.u32 [%d0], %r0;\nret;\n}\n"
	".visible .entry get(.param .u64 p)\n{\n"
	".reg .u32 %r<4>;\n.reg .u64 %d<4>;\n"
	"ld.param.u64 %d0, [p];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d1, %r0, 4;\nadd.s64 %d0, %d0, %d1;\n"
	".loc 1 11 1\nld.global.u32 %r1, [%d0];\nret;\n}\n";

static void launch(CUfunction kernel, CUdeviceptr p, unsigned threads) {
	void *args[] = {&p};
	CHECK(cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 0, NULL, args, NULL));
	cuCtxSynchronize(); // the last one faults
}

// A module of its own for each, as an instruction is reported once.
static void overrun(const char *kind, const char *kernel, CUdeviceptr a, size_t bytes, int where) {
	CUmodule module;
	CUfunction f;
	unsigned threads = bytes / 4 < 64 ? (unsigned)(bytes / 4) : 64;
	CHECK(cuModuleLoadData(&module, text));
	CHECK(cuModuleGetFunction(&f, module, kernel));
	CHECK(cuMemsetD8(a, 1, bytes));
	launch(f, a, threads);
	launch(f, a + bytes - 4 * threads, threads);
	fprintf(stderr, "case %s: %s %s %zu bytes\n", kind, kernel, where == BEHIND ? "behind" : "before", bytes);
	launch(f, where == BEHIND ? a + bytes : a - 4, where == BEHIND ? threads : 1);
}

static void device_memory(const char *kernel, size_t bytes, int where) {
	CUdeviceptr p[3];
	for (int i = 0; i < 3; i++) {
		CHECK(cuMemAlloc(&p[i], bytes));
		NEED(p[i] % 256 == 0);
	}
	overrun("device", kernel, p[1], bytes, where);
}

static void pool_memory(size_t bytes) {
	CUdeviceptr a, b;
	CHECK(cuMemAllocAsync(&a, bytes, NULL));
	CHECK(cuMemAllocAsync(&b, bytes, NULL));
	overrun("pool", "put", a, bytes, BEHIND);
}

static void pitched_memory(size_t width, size_t height) {
	CUdeviceptr a, b;
	size_t pitch;
	CHECK(cuMemAllocPitch(&a, &pitch, width, height, 4));
	CHECK(cuMemAllocPitch(&b, &pitch, width, height, 4));
	overrun("pitched", "put", a, pitch * height, BEHIND);
}

static void managed_memory(size_t bytes) {
	CUdeviceptr a, b;
	CHECK(cuMemAllocManaged(&a, bytes, CU_MEM_ATTACH_GLOBAL));
	CHECK(cuMemAllocManaged(&b, bytes, CU_MEM_ATTACH_GLOBAL));
	((volatile unsigned *)a)[bytes / 4 - 1] = 1;
	overrun("managed", "put", a, bytes, BEHIND);
	NEED(((volatile unsigned *)a)[0] == 0);
}

static void variable(const char *name, int where) {
	CUmodule module;
	CUdeviceptr a;
	size_t bytes;
	CHECK(cuModuleLoadData(&module, text));
	CHECK(cuModuleGetGlobal(&a, &bytes, module, name));
	overrun("variable", "put", a, bytes, where);
}

// How far apart three allocations lie: no farther than their step if nothing is checked.
static void distances(void) {
	static const size_t sizes[] = {4, 512, 4096, 5000, 1 << 20};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		CUdeviceptr a, b;
		CHECK(cuMemAlloc(&a, sizes[i]));
		CHECK(cuMemAlloc(&b, sizes[i]));
		printf("%zu: %lld\n", sizes[i], (long long)(b - a));
	}
}

int main(int argc, char **argv) {
	CUdevice device;
	CUcontext context;
	static const size_t odd[] = {3, 100, 127, 129, 1000, 4095, 4097, 100001};
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	if (argc > 1 && strcmp(argv[1], "distances") == 0)
		return distances(), 0;
	for (size_t n = 1; n <= 1 << 18; n *= 2)
		device_memory("put", 4 * n, BEHIND);
	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
		device_memory("put", 4 * odd[i], BEHIND);
	for (size_t n = 1; n <= 1 << 18; n *= 8) {
		device_memory("put", 4 * n, BEFORE);
		device_memory("get", 4 * n, BEHIND);
		device_memory("get", 4 * n, BEFORE);
		pool_memory(4 * n);
		managed_memory(4 * n);
		pitched_memory(4 * n, 3);
	}
	managed_memory(4 * 100);
	variable("first", BEHIND);
	variable("second", BEHIND);
	variable("second", BEFORE);
	device_memory("put", 4 << 20, BEHIND); // there is no memory behind it
	return 0;
}
