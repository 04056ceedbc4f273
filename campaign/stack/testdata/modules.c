// A program with many modules, and one with many kernels: it tells how long each kind of
// call took, in nanoseconds.
#include "kernels.h"

#include <time.h>

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t began;

static void phase(const char *name) {
	if (name != NULL)
		printf("%s %llu\n", name, (unsigned long long)(now() - began));
	began = now();
}

int main(int argc, char **argv) {
	CUdevice device;
	CUcontext context;
	unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 1;
	if (n == 0)
		n = 1;
	CUmodule *modules = calloc(n, sizeof *modules);
	CUlibrary *libraries = calloc(n, sizeof *libraries);
	CUkernel *kernels = calloc(n, sizeof *kernels);
	CUdeviceptr *variables = calloc(n, sizeof *variables);
	CUfunction f;
	char text[400], name[32];
	size_t size;
	NEED(modules != NULL && libraries != NULL && kernels != NULL && variables != NULL);
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	if (argc > 1 && strcmp(argv[1], "mode") == 0) {
		CUmoduleLoadingMode mode;
		CHECK(cuModuleGetLoadingMode(&mode));
		CHECK(cuModuleLoadData(&modules[0], image));
		CHECK(cuModuleGetFunction(&f, modules[0], "add"));
		printf("mode %d\n", (int)mode);
		return 0;
	}
	phase(NULL);
	for (unsigned i = 0; i < n; i++) {
		// Few have variables: each of these has 2 MiB of a software GPU's addresses.
		char variable[64] = "";
		if (i % 10 == 0)
			snprintf(variable, sizeof variable, ".visible .global .u32 v%u = %u;\n", i, i);
		snprintf(text, sizeof text, ".version 7.0\n.target sm_70\n.address_size 64\n%s.visible .entry k%u() { ret; }\n", variable, i);
		CHECK(cuModuleLoadData(&modules[i], text));
	}
	phase("load");
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof name, "k%u", i);
		CHECK(cuModuleGetFunction(&f, modules[i], name));
	}
	phase("function");
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CHECK(cuCtxSynchronize());
	phase("place");
	for (unsigned i = 0; i < n; i += 10) {
		snprintf(name, sizeof name, "v%u", i);
		CHECK(cuModuleGetGlobal(&variables[i], &size, modules[i], name));
	}
	phase("variable");
	for (unsigned i = 0; i < n; i += 10) {
		unsigned v = ~i;
		CHECK(cuMemcpyDtoH(&v, variables[i], 4));
		NEED(v == i);
	}
	phase("copy");
	for (unsigned i = 0; i < n; i++)
		CHECK(cuModuleUnload(modules[i]));
	CHECK(cuCtxSynchronize());
	phase("unload");

	char *large = malloc(100 + 64 * (size_t)n), *end = large;
	NEED(large != NULL);
	end += sprintf(end, ".version 7.0\n.target sm_70\n.address_size 64\n");
	for (unsigned i = 0; i < n; i++)
		end += sprintf(end, ".visible .entry k%u() { ret; }\n", i);
	CHECK(cuLibraryLoadData(&libraries[0], large, NULL, NULL, 0, NULL, NULL, 0));
	phase("large");
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof name, "k%u", i);
		CHECK(cuLibraryGetKernel(&kernels[i], libraries[0], name));
	}
	phase("kernel");
	for (unsigned i = 0; i < n; i++)
		CHECK(cuLaunchKernel((CUfunction)kernels[i], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CHECK(cuCtxSynchronize());
	phase("launch");
	CHECK(cuLibraryUnload(libraries[0]));
	phase(NULL);
	for (unsigned i = 0; i < n; i++) {
		CHECK(cuLibraryLoadData(&libraries[i], ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n", NULL, NULL, 0, NULL, NULL, 0));
		CHECK(cuLibraryGetKernel(&kernels[i], libraries[i], "k"));
	}
	phase("libraries");
	for (unsigned i = 0; i < n; i++)
		CHECK(cuLaunchKernel((CUfunction)kernels[i], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CHECK(cuCtxSynchronize());
	phase("their-launch");
	for (unsigned i = 0; i < n; i++)
		CHECK(cuLibraryUnload(libraries[i]));
	phase("their-unload");
	return 0;
}
