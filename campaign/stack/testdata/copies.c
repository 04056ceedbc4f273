// Copies of all kinds, in any order, among kernels and fills: memory of malloc and pinned memory,
// waited for and not. Everything that comes back is compared with what the host computes.
//
//	copies SEED MIB ROUNDS    writes "round N" after each 20 of them, and "right" at the end
#include "kernels.h"

#include <stdint.h>

static uint64_t state;

static uint64_t next(void) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

// Any number of bytes up to most: half as often as small as those that are twice as large.
static size_t any_size(size_t most) {
	size_t limit = most >> next() % 16;
	return 1 + next() % (limit > 0 ? limit : 1);
}

static void scribble(uint8_t *at, size_t size) {
	uint64_t word = next();
	for (size_t i = 0; i + 8 <= size; i += 8, word += 0x9e3779b97f4a7c15)
		memcpy(at + i, &word, 8);
	for (size_t i = size & ~(size_t)7; i < size; i++)
		at[i] = (uint8_t)next();
}

static CUdeviceptr memory;
static CUfunction add;
static uint8_t *model, *plain, *pinned; // what the device has; what the program copies from and to
static size_t total;
static CUstream stream;

static void compare(const uint8_t *got, size_t at, size_t size, int what) {
	if (memcmp(got, model + at, size) == 0)
		return;
	size_t first = 0;
	while (got[first] == model[at + first])
		first++;
	fprintf(stderr, "copy of kind %d: %zu bytes at %zu: byte %zu is %d and should be %d\n", what, size, at, first, got[first], model[at + first]);
	exit(1);
}

static void add_kernel(size_t at, size_t size) {
	CUdeviceptr p = memory + (at & ~(size_t)3);
	uint32_t n = (uint32_t)(size / 4), by = (uint32_t)next();
	if (n == 0)
		return;
	void *params[] = {&p, &n, &by};
	CHECK(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL));
	uint8_t *words = model + (at & ~(size_t)3);
	for (size_t i = 0; i < n; i++) {
		uint32_t word;
		memcpy(&word, words + 4 * i, 4);
		word += by;
		memcpy(words + 4 * i, &word, 4);
	}
}

static void in(uint8_t *from, size_t at, size_t size, int what) {
	scribble(from, size);
	memcpy(model + at, from, size);
	if (what % 2 == 0) {
		CHECK(cuMemcpyHtoD(memory + at, from, size));
	} else {
		CHECK(cuMemcpyHtoDAsync(memory + at, from, size, stream));
		if (from == pinned) // the program may write to it again when the copy has ended
			CHECK(cuStreamSynchronize(stream));
	}
	memset(from, 0xdb, size);
}

static void out(uint8_t *to, size_t at, size_t size, int what) {
	if (what % 2 == 0) {
		CHECK(cuMemcpyDtoH(to, memory + at, size));
	} else {
		CHECK(cuMemcpyDtoHAsync(to, memory + at, size, stream));
		CHECK(cuStreamSynchronize(stream));
	}
	compare(to, at, size, what);
}

static void rows(size_t at, size_t size) {
	size_t width = 1 + next() % 5000, pitch = width + next() % 3000, height = size / pitch;
	if (height == 0)
		return;
	scribble(plain, width * height);
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = plain, .srcPitch = width, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = memory + at, .dstPitch = pitch, .WidthInBytes = width, .Height = height};
	CHECK(cuMemcpy2D(&copy));
	for (size_t y = 0; y < height; y++)
		memcpy(model + at + y * pitch, plain + y * width, width);
}

static void one(void) {
	size_t size = any_size(total), at = next() % (total - size + 1);
	int what = (int)(next() % 13);
	switch (what) {
	case 0:
	case 1:
		in(plain, at, size, what);
		break;
	case 2:
	case 3:
		in(pinned, at, size, what);
		break;
	case 4:
	case 5:
		out(plain, at, size, what);
		break;
	case 6:
	case 7:
		out(pinned, at, size, what);
		break;
	case 8: // a copy that finds its stream at work
		add_kernel(at, size);
		in(pinned, at, size, 9);
		break;
	case 9:
		add_kernel(at, size);
		break;
	case 10:
		CHECK(cuMemsetD8(memory + at, (unsigned char)size, size));
		memset(model + at, (int)(unsigned char)size, size);
		break;
	case 11: {
		size_t from = next() % (total - size + 1);
		if (from + size <= at || at + size <= from) {
			CHECK(cuMemcpyDtoD(memory + at, memory + from, size));
			memcpy(model + at, model + from, size);
		}
		break;
	}
	default:
		rows(at, size);
	}
}

int main(int argc, char **argv) {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	NEED(argc == 4);
	state = strtoull(argv[1], NULL, 0) * 2654435761u + 1;
	total = (size_t)strtoull(argv[2], NULL, 0) << 20;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuStreamCreate(&stream, 0));
	CHECK(cuMemAlloc(&memory, total));
	CHECK(cuMemHostAlloc((void **)&pinned, total, 0));
	model = calloc(1, total);
	plain = malloc(total);
	NEED(model != NULL && plain != NULL);
	CHECK(cuMemsetD8(memory, 0, total));
	for (int round = 1, rounds = atoi(argv[3]); round <= rounds; round++) {
		one();
		if (round % 20 == 0) {
			printf("round %d\n", round);
			fflush(stdout);
		}
	}
	CHECK(cuCtxSynchronize());
	CHECK(cuMemcpyDtoH(plain, memory, total));
	compare(plain, 0, total, -1);
	printf("right\n");
	return 0;
}
