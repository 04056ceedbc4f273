// Checkpoints of device memory, against the fake daemon.
//
//   checkpoint_test WHAT
//
// save: allocates, and writes the checkpoint "run". restore: another process gets it
// back. again: all in one process. files: restores f0, f1 ... whatever they hold, until
// there is none, and prints the results.
#include "../include/muster.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WANT(call, expected) \
	do { \
		CUresult got_ = (call); \
		if (got_ != (expected)) { \
			fprintf(stderr, "%s:%d: %s is %d, not %d\n", __FILE__, __LINE__, #call, got_, expected); \
			_exit(1); \
		} \
	} while (0)
#define OK(call) WANT(call, CUDA_SUCCESS)
#define MUST(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			_exit(1); \
		} \
	} while (0)

enum { COUNT = 4, LARGE = (5 << 20) + 3 };
static const size_t sizes[COUNT] = {100, LARGE, 1 << 20, 70000};

static void start(void) {
	CUcontext context;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
}

// What allocation i contains: the third is zero, the second has a hole.
static uint8_t expected(int i, size_t at) {
	if (i == 2 || (i == 1 && at > (1 << 20) && at < (4 << 20)))
		return 0;
	return (uint8_t)(at * 7 + at / 1000 + (size_t)i + 1);
}

static void write_all(const CUdeviceptr *memory) {
	uint8_t *data = malloc(LARGE);
	for (int i = 0; i < COUNT; i++) {
		for (size_t k = 0; k < sizes[i]; k++)
			data[k] = expected(i, k);
		OK(cuMemcpyHtoD(memory[i], data, sizes[i]));
	}
	free(data);
}

static void check_all(const CUdeviceptr *memory) {
	uint8_t *data = malloc(LARGE);
	for (int i = 0; i < COUNT; i++) {
		OK(cuMemcpyDtoH(data, memory[i], sizes[i]));
		for (size_t k = 0; k < sizes[i]; k++)
			if (data[k] != expected(i, k)) {
				fprintf(stderr, "byte %zu of allocation %d is %d, not %d\n", k, i, data[k], expected(i, k));
				_exit(1);
			}
	}
	free(data);
}

static void allocate(CUdeviceptr *memory) {
	for (int i = 0; i < COUNT; i++)
		OK(cuMemAlloc(&memory[i], sizes[i]));
}

// A program's own file has where its data lie.
static void keep(const CUdeviceptr *memory) {
	for (int i = 0; i < COUNT; i++)
		printf("%llu\n", memory[i]);
}

static void test_save(void) {
	CUdeviceptr memory[COUNT];
	start();
	WANT(musterRestore("run"), CUDA_ERROR_FILE_NOT_FOUND);
	allocate(memory);
	write_all(memory);
	OK(musterCheckpoint("run"));
	keep(memory);
}

static void test_restore(void) {
	CUdeviceptr memory[COUNT], other;
	start();
	for (int i = 0; i < COUNT; i++)
		MUST(scanf("%llu", &memory[i]) == 1);
	OK(musterRestore("run"));
	check_all(memory);
	for (int i = 0; i < COUNT; i++) {
		CUdeviceptr base;
		size_t size;
		OK(cuMemGetAddressRange(&base, &size, memory[i] + sizes[i] / 2));
		MUST(base == memory[i] && size == sizes[i]);
	}
	OK(cuMemAlloc(&other, 1 << 20)); // where nothing is
	OK(cuMemsetD8(other, 5, 1 << 20));
	check_all(memory);
	for (int i = 0; i < COUNT; i++)
		OK(cuMemFree(memory[i]));
	OK(cuMemFree(other));
}

static void test_again(void) {
	CUdeviceptr memory[COUNT], other, larger;
	start();
	WANT(musterCheckpoint(NULL), CUDA_ERROR_INVALID_VALUE);
	WANT(musterCheckpoint(""), CUDA_ERROR_INVALID_VALUE);
	WANT(musterCheckpoint("../run"), CUDA_ERROR_INVALID_VALUE);
	WANT(musterCheckpoint(".run"), CUDA_ERROR_INVALID_VALUE);
	WANT(musterRestore("a/b"), CUDA_ERROR_INVALID_VALUE);
	WANT(musterRestore("none"), CUDA_ERROR_FILE_NOT_FOUND);
	OK(musterCheckpoint("empty"));
	OK(musterRestore("empty"));
	allocate(memory);
	write_all(memory);
	OK(musterCheckpoint("run"));
	OK(musterCheckpoint("run")); // in place of the first
	for (int i = 0; i < COUNT; i++) // what is there is filled
		OK(cuMemsetD8(memory[i], 0xee, sizes[i]));
	OK(musterRestore("run"));
	check_all(memory);
	OK(cuMemFree(memory[1])); // what is not is made
	OK(cuMemFree(memory[3]));
	OK(musterRestore("run"));
	check_all(memory);
	// Where something else is, nothing is changed.
	OK(cuMemFree(memory[1]));
	OK(cuMemFree(memory[3]));
	OK(cuMemAlloc(&other, 4 << 20));
	MUST(other == memory[1]);
	OK(cuMemsetD8(memory[0], 0x11, sizes[0]));
	WANT(musterRestore("run"), CUDA_ERROR_INVALID_VALUE);
	uint8_t byte;
	OK(cuMemcpyDtoH(&byte, memory[0], 1));
	MUST(byte == 0x11);
	OK(cuMemAlloc(&larger, sizes[3])); // the addresses were given back
	MUST(larger == memory[3]);
	OK(cuMemFree(larger));
	OK(cuMemFree(other));
	OK(musterRestore("run"));
	check_all(memory);
}

static void test_files(void) {
	start();
	for (int i = 0;; i++) {
		char name[32];
		snprintf(name, sizeof name, "f%d", i);
		CUresult result = musterRestore(name);
		if (result == CUDA_ERROR_FILE_NOT_FOUND)
			break;
		printf("%d\n", result);
		OK(cuDevicePrimaryCtxReset(0)); // gives all memory back
		start();
	}
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {{"save", test_save}, {"restore", test_restore}, {"again", test_again}, {"files", test_files}};
	for (size_t i = 0; argc == 2 && i < sizeof tests / sizeof *tests; i++)
		if (strcmp(argv[1], tests[i].name) == 0) {
			tests[i].run();
			return 0;
		}
	fprintf(stderr, "which test?\n");
	return 2;
}
