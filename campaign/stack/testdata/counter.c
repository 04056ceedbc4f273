// A program that does what it reads: words of device memory that are counted up.
//
//   alloc N        N words, all 0; says where
//   use ADDRESS N  N words that are there already
//   add V          adds V to each, with a kernel
//   show           says what they all are
//   fault          a kernel goes astray; says how that ends
//   sync           says what waiting for the device ends with
//   anew           a new context, with its modules, in the place of the old one
//   save NAME      musterCheckpoint
//   load NAME      musterRestore
#include "kernels.h"
#include "muster.h"

static CUfunction add, poke;
static CUdeviceptr words;
static unsigned count;

static void launch(CUfunction f, CUdeviceptr p, unsigned n, unsigned v) {
	void *args[] = {&p, &n, &v};
	cuLaunchKernel(f, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL);
}

static void show(void) {
	unsigned *copy = malloc(4ul * count);
	CUresult result = cuMemcpyDtoH(copy, words, 4ul * count);
	for (unsigned i = 1; i < count && result == CUDA_SUCCESS; i++)
		if (copy[i] != copy[0]) {
			printf("word %u is %u and the first is %u\n", i, copy[i], copy[0]);
			exit(1);
		}
	if (result == CUDA_SUCCESS)
		printf("value %u\n", copy[0]);
	else
		printf("result %d\n", result);
	free(copy);
}

static CUcontext context;

static CUresult begin(void) {
	CUmodule module;
	CUresult result = cuCtxCreate(&context, 0, 0);
	if (result == CUDA_SUCCESS)
		result = cuModuleLoadData(&module, image);
	if (result == CUDA_SUCCESS)
		result = cuModuleGetFunction(&add, module, "add");
	if (result == CUDA_SUCCESS)
		result = cuModuleGetFunction(&poke, module, "poke");
	return result;
}

static void obey(const char *what, const char *argument, unsigned n) {
	unsigned v = (unsigned)strtoul(argument, NULL, 0);
	if (strcmp(what, "alloc") == 0) {
		count = v;
		CHECK(cuMemAlloc(&words, 4ul * count));
		CHECK(cuMemsetD32(words, 0, count));
		printf("at 0x%llx\n", words);
	} else if (strcmp(what, "use") == 0) {
		words = strtoull(argument, NULL, 0);
		count = n;
		puts("used");
	} else if (strcmp(what, "add") == 0) {
		launch(add, words, count, v);
		puts("added");
	} else if (strcmp(what, "show") == 0) {
		show();
	} else if (strcmp(what, "fault") == 0) {
		launch(poke, 0x10, 1, 1);
		printf("result %d\n", cuCtxSynchronize());
	} else if (strcmp(what, "sync") == 0) {
		printf("result %d\n", cuCtxSynchronize());
	} else if (strcmp(what, "anew") == 0) {
		cuCtxDestroy(context);
		printf("result %d\n", begin());
	} else if (strcmp(what, "save") == 0) {
		printf("saved %d\n", musterCheckpoint(argument));
	} else if (strcmp(what, "load") == 0) {
		printf("loaded %d\n", musterRestore(argument));
	} else {
		printf("what is %s?\n", what);
	}
}

int main(void) {
	CHECK(cuInit(0));
	CHECK(begin());
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	char line[256], what[64], argument[128];
	while (fgets(line, sizeof line, stdin) != NULL) {
		unsigned n = 0;
		argument[0] = 0;
		if (sscanf(line, "%63s %127s %u", what, argument, &n) >= 1)
			obey(what, argument, n);
	}
	puts("right");
	return 0;
}
