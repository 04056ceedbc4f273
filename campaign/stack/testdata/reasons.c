// A program to which things happen that have reasons: see main. It says itself no
// more than the results.
#include "kernels.h"

static CUcontext context;

static void start(void) {
	CUdevice device;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
}

static void say(CUresult result) {
	const char *name = NULL;
	cuGetErrorName(result, &name);
	puts(name != NULL ? name : "an error without a name");
}

// A kernel faults, again and again, each time in a new context.
static void faults(unsigned long times) {
	for (unsigned long i = 0; i < times; i++) {
		CUmodule module;
		CUfunction poke;
		CUdeviceptr p = 0x10 + 8 * i;
		void *args[] = {&p};
		if (i > 0)
			start();
		CHECK(cuModuleLoadData(&module, image));
		CHECK(cuModuleGetFunction(&poke, module, "poke"));
		CHECK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
		NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
		NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
		cuCtxDestroy(context);
	}
}

// So much memory is wanted, again and again.
static void allocate(size_t bytes, unsigned long times) {
	CUdeviceptr p;
	for (unsigned long i = 0; i + 1 < times; i++)
		NEED(cuMemAlloc(&p, bytes + i) == CUDA_ERROR_OUT_OF_MEMORY);
	say(cuMemAlloc(&p, bytes));
}

// A kernel is given so much memory.
static void touch(size_t bytes) {
	CUmodule module;
	CUfunction add;
	CUdeviceptr p;
	unsigned n = 1, v = 1;
	void *args[] = {&p, &n, &v};
	CHECK(cuMemAlloc(&p, bytes));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	say(cuCtxSynchronize());
	say(cuCtxSynchronize());
}

// An image from standard input is loaded in all ways, and the logs are shown.
static void load(void) {
	static char text[1 << 20];
	size_t size = fread(text, 1, sizeof text - 1, stdin);
	char error[4096];
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {error, (void *)sizeof error};
	CUmodule module;
	CUlibrary library;
	CUkernel kernel;
	CUlinkState link;
	say(cuModuleLoadData(&module, text));
	say(cuModuleLoadDataEx(&module, text, 2, options, values));
	printf("log: %s\n", error);
	values[1] = (void *)sizeof error;
	CHECK(cuLibraryLoadData(&library, text, options, values, 2, NULL, NULL, 0));
	printf("log: %s\n", error);
	say(cuLibraryGetKernel(&kernel, library, "k"));
	values[1] = (void *)sizeof error;
	CHECK(cuLinkCreate(2, options, values, &link));
	if (strncmp(text, ".version", 8) == 0) {
		say(cuLinkAddData(link, CU_JIT_INPUT_PTX, text, size + 1, NULL, 0, NULL, NULL));
		printf("log: %s\n", error);
	}
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
	unsigned long m = argc > 3 ? strtoul(argv[3], NULL, 0) : 1;
	if (strcmp(what, "ptx") == 0) { // the text of the kernels
		fputs(image, stdout);
		return 0;
	}
	start();
	if (strcmp(what, "faults") == 0)
		faults(n);
	else if (strcmp(what, "allocate") == 0)
		allocate(n, m);
	else if (strcmp(what, "touch") == 0)
		touch(n);
	else if (strcmp(what, "load") == 0)
		load();
	else
		return 2;
	return 0;
}
