// A small program, and what it is asked to do: see main.
#include "kernels.h"

#include <fcntl.h>
#include <unistd.h>

static CUcontext context;
static CUfunction add, poke;

static void start(void) {
	CUdevice device;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuModuleGetFunction(&poke, module, "poke"));
}

static void launch(CUdeviceptr p, unsigned n, unsigned v) {
	void *args[] = {&p, &n, &v};
	CHECK(cuLaunchKernel(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
}

// Adds to count words, rounds times, and looks at the sums each time.
static void sums(unsigned count, unsigned rounds) {
	CUdeviceptr p;
	unsigned *words = malloc(4ul * count);
	CHECK(cuMemAlloc(&p, 4ul * count));
	for (unsigned i = 0; i < count; i++)
		words[i] = i * 2654435761u;
	CHECK(cuMemcpyHtoD(p, words, 4ul * count));
	for (unsigned round = 1; round <= rounds; round++) {
		launch(p, count, round);
		CHECK(cuMemcpyDtoH(words, p, 4ul * count));
		for (unsigned i = 0; i < count; i++)
			if (words[i] != i * 2654435761u + round * (round + 1) / 2) {
				fprintf(stderr, "round %u: word %u is %#x\n", round, i, words[i]);
				exit(1);
			}
	}
	CHECK(cuMemFree(p));
	free(words);
}

// An address where nothing is: told at the next synchronisation, and for ever.
static void fault(void) {
	CUdeviceptr p = 0x10, q;
	void *args[] = {&p};
	unsigned word = 0;
	size_t free_bytes, total;
	CHECK(cuMemAlloc(&q, 1 << 20));
	CHECK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	for (int i = 0; i < 100; i++) {
		NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
		NEED(cuMemcpyDtoH(&word, q, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
		NEED(cuMemcpyHtoD(q, &word, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
		NEED(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) == CUDA_ERROR_ILLEGAL_ADDRESS);
		NEED(cuMemAlloc(&p, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
		NEED(cuMemGetInfo(&free_bytes, &total) == CUDA_ERROR_ILLEGAL_ADDRESS);
	}
	puts("told");
	fflush(stdout);
	getchar();
	NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	NEED(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

// A new context forgets the fault.
static void recover(void) {
	CUdeviceptr p = 0x10;
	void *args[] = {&p};
	CHECK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	cuCtxDestroy(context);
	start();
	sums(1000, 3);
}

// The program's world is as large as it was told, to the byte.
static void memory(size_t limit) {
	size_t free_bytes, total;
	CUdeviceptr all, one;
	CHECK(cuMemGetInfo(&free_bytes, &total));
	printf("%zu of %zu\n", free_bytes, total);
	NEED(total == limit && free_bytes == limit);
	NEED(cuMemAlloc(&all, limit + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemAlloc(&all, limit));
	CHECK(cuMemGetInfo(&free_bytes, &total));
	NEED(total == limit && free_bytes == 0);
	NEED(cuMemAlloc(&one, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	unsigned last;
	static unsigned ones[1 << 18]; // copied: a fill would take no memory
	for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) ones[i] = 1;
	for (size_t done = 0; done < limit; done += sizeof ones)
		CHECK(cuMemcpyHtoD(all + done, ones, limit - done < sizeof ones ? limit - done : sizeof ones));
	launch(all + limit - 4000, 1000, 7);
	CHECK(cuMemcpyDtoH(&last, all + limit - 4, 4));
	NEED(last == 8);
	CHECK(cuMemFree(all));
	CHECK(cuMemAlloc(&one, 1));
	CHECK(cuMemFree(one));
	CHECK(cuMemGetInfo(&free_bytes, &total));
	NEED(free_bytes == limit);
}

// Memory of the host that the worker is the first to write to.
static void pinned(size_t bytes) {
	const size_t piece = 1 << 20;
	CUdeviceptr p;
	char *host;
	CHECK(cuMemAlloc(&p, piece));
	CHECK(cuMemsetD32(p, 1, piece / 4));
	launch(p, 1000, 1);
	CHECK(cuMemHostAlloc((void **)&host, bytes, 0));
	for (size_t at = 0; at + piece <= bytes; at += piece)
		CHECK(cuMemcpyDtoH(host + at, p, piece));
}

// Has memory until standard input ends, and computes with it then.
static void keep(unsigned count) {
	CUdeviceptr p;
	unsigned *words = malloc(4ul * count);
	CHECK(cuMemAlloc(&p, 4ul * count));
	puts("keeping");
	fflush(stdout);
	while (getchar() != EOF)
		;
	CHECK(cuMemsetD32(p, 5, count));
	launch(p, count, 2);
	CHECK(cuMemcpyDtoH(words, p, 4ul * count));
	for (unsigned i = 0; i < count; i++)
		NEED(words[i] == 7);
	free(words);
}

// Computes in several streams at once, each with a piece of memory that it shares with none, until
// standard input ends.
static void spread(unsigned streams, unsigned count) {
	enum { piece = 2 << 20 };
	CUstream on[16];
	CUdeviceptr p[16];
	unsigned *words = malloc(4ul * count), rounds = 0;
	char byte;
	NEED(streams <= 16 && count <= piece / 4);
	for (unsigned i = 0; i < streams; i++) {
		CHECK(cuStreamCreate(&on[i], CU_STREAM_NON_BLOCKING));
		CHECK(cuMemAlloc(&p[i], piece));
		CHECK(cuMemsetD32Async(p[i], i, count, on[i]));
	}
	fcntl(0, F_SETFL, O_NONBLOCK);
	while (read(0, &byte, 1) != 0) {
		rounds++;
		for (unsigned i = 0; i < streams; i++) {
			unsigned v = i + 1;
			void *args[] = {&p[i], &count, &v};
			CHECK(cuLaunchKernel(add, (count + 127) / 128, 1, 1, 128, 1, 1, 0, on[i], args, NULL));
		}
		if (rounds % 8 == 0)
			CHECK(cuCtxSynchronize());
	}
	for (unsigned i = 0; i < streams; i++) {
		CHECK(cuMemcpyDtoHAsync(words, p[i], 4ul * count, on[i]));
		CHECK(cuStreamSynchronize(on[i]));
		for (unsigned j = 0; j < count; j++)
			if (words[j] != i + rounds * (i + 1)) {
				fprintf(stderr, "stream %u: word %u is %u after %u rounds\n", i, j, words[j], rounds);
				exit(1);
			}
	}
	free(words);
}

// Computes on several devices at once, until standard input ends.
static void several(unsigned devices, unsigned count) {
	CUcontext on[16];
	CUfunction kernel[16];
	CUdeviceptr p[16];
	unsigned *words = malloc(4ul * count), rounds = 0, v = 1;
	char byte;
	int seen;
	CHECK(cuDeviceGetCount(&seen));
	NEED(devices <= 16 && seen == (int)devices);
	for (unsigned i = 0; i < devices; i++) {
		CUmodule module;
		CHECK(cuCtxCreate(&on[i], 0, (int)i));
		CHECK(cuModuleLoadData(&module, image));
		CHECK(cuModuleGetFunction(&kernel[i], module, "add"));
		CHECK(cuMemAlloc(&p[i], 4ul * count));
		CHECK(cuMemsetD32(p[i], i, count));
	}
	fcntl(0, F_SETFL, O_NONBLOCK);
	for (; read(0, &byte, 1) != 0; rounds++) {
		for (unsigned i = 0; i < devices; i++) {
			void *args[] = {&p[i], &count, &v};
			CHECK(cuCtxSetCurrent(on[i]));
			CHECK(cuLaunchKernel(kernel[i], (count + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
		}
		for (unsigned i = 0; i < devices; i++) {
			CHECK(cuCtxSetCurrent(on[i]));
			CHECK(cuCtxSynchronize());
		}
	}
	for (unsigned i = 0; i < devices; i++) {
		CHECK(cuCtxSetCurrent(on[i]));
		CHECK(cuMemcpyDtoH(words, p[i], 4ul * count));
		for (unsigned j = 0; j < count; j++)
			NEED(words[j] == i + rounds);
	}
	free(words);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "sums";
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000;
	unsigned long m = argc > 3 ? strtoul(argv[3], NULL, 0) : 3;
	if (strcmp(what, "later") == 0) { // knows its devices, and uses one when standard input ends
		CHECK(cuInit(0));
		puts("waiting");
		fflush(stdout);
		while (getchar() != EOF)
			;
		what = "sums";
	}
	if (strcmp(what, "attached") == 0) { // has a device, and uses it when standard input ends
		CUdevice device;
		CHECK(cuInit(0));
		CHECK(cuDeviceGet(&device, 0));
		CHECK(cuCtxCreate(&context, 0, device));
		puts("attached");
		fflush(stdout);
		while (getchar() != EOF)
			;
		what = "sums";
	}
	if (strcmp(what, "several") == 0) {
		CHECK(cuInit(0));
		several((unsigned)n, (unsigned)m);
		puts("right");
		return 0;
	}
	start();
	if (strcmp(what, "sums") == 0)
		sums((unsigned)n, (unsigned)m);
	else if (strcmp(what, "fault") == 0)
		fault();
	else if (strcmp(what, "recover") == 0)
		recover();
	else if (strcmp(what, "memory") == 0)
		memory(n);
	else if (strcmp(what, "pinned") == 0)
		pinned(n);
	else if (strcmp(what, "keep") == 0)
		keep((unsigned)n);
	else if (strcmp(what, "hold") == 0) { // until standard input ends
		sums((unsigned)n, 1);
		puts("holding");
		fflush(stdout);
		while (getchar() != EOF)
			;
		sums((unsigned)n, (unsigned)m);
	} else if (strcmp(what, "until") == 0) { // standard input ends
		char byte;
		fcntl(0, F_SETFL, O_NONBLOCK);
		while (read(0, &byte, 1) != 0)
			sums((unsigned)n, (unsigned)m);
	} else if (strcmp(what, "spread") == 0) {
		spread((unsigned)n, (unsigned)m);
	} else if (strcmp(what, "endless") == 0) { // until somebody ends it
		for (;;)
			sums((unsigned)n, 3);
	} else
		return 2;
	puts("right");
	return 0;
}
