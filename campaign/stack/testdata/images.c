// Loads modules until so many bytes of images are loaded or memory is out, says how
// many that were, and keeps them until standard input ends. Then it unloads them and
// computes.
//
//   images BYTES
#include "kernels.h"

enum { EACH = 4 << 20, MOST = 1024 };

// An image of EACH bytes, most of which are a remark, and none like another.
static char *large_image(unsigned number) {
	char *text = malloc(EACH + 1);
	size_t at = (size_t)snprintf(text, EACH, "%s// %u ", image, number);
	memset(text + at, 'x', EACH - 1 - at);
	text[EACH - 1] = '\n';
	text[EACH] = 0;
	return text;
}

static unsigned load(CUmodule *modules, size_t bytes) {
	unsigned n = 0;
	for (; n < bytes / EACH; n++) {
		NEED(n < MOST);
		char *text = large_image(n);
		CUresult result = cuModuleLoadData(&modules[n], text);
		free(text);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) {
			printf("out of memory after %zu bytes\n", (size_t)n * EACH);
			return n;
		}
		CHECK(result);
	}
	printf("all %zu bytes are loaded\n", (size_t)n * EACH);
	return n;
}

int main(int argc, char **argv) {
	static CUmodule modules[MOST];
	CUdevice device;
	CUcontext context;
	CUdeviceptr p;
	CUfunction add;
	unsigned word = 0, n = 1000, v = 7;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	unsigned loaded = load(modules, argc > 1 ? strtoul(argv[1], NULL, 0) : EACH);
	fflush(stdout);
	while (getchar() != EOF)
		;
	while (loaded > 1)
		CHECK(cuModuleUnload(modules[--loaded]));
	CHECK(cuMemAlloc(&p, 4ul * n));
	CHECK(cuMemsetD32(p, 1, n));
	CHECK(cuModuleGetFunction(&add, modules[0], "add"));
	void *args[] = {&p, &n, &v};
	CHECK(cuLaunchKernel(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoH(&word, p, 4));
	NEED(word == 8);
	puts("right");
	return 0;
}
