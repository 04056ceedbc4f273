// Memory apart from addresses: pieces side by side are one array to kernels and copies,
// as PyTorch's expandable segments use them.
//
//	pieces [PIECES]    writes "ready" when all are there, and goes on when it reads a byte
#include "kernels.h"

#include <stdint.h>

enum { PIECE = 2 << 20 };

static CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc all = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void wrong_calls(CUdeviceptr base, size_t size) {
	CUmemGenericAllocationHandle h, other;
	CUdeviceptr p;
	size_t granularity = 0;
	unsigned long long flags;
	CHECK(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	NEED(granularity == PIECE);
	NEED(cuMemAddressReserve(&p, 1000, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAddressReserve(NULL, PIECE, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemCreate(&h, PIECE + 1, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemCreate(&h, 1ul << 46, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemCreate(&h, PIECE, &properties, 0));
	NEED(cuMemMap(base + size, PIECE, 0, h, 0) == CUDA_ERROR_INVALID_VALUE); // not reserved
	NEED(cuMemMap(base, 2 * PIECE, 0, h, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemUnmap(base, PIECE) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemSetAccess(base, PIECE, &all, 1) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemcpyHtoD(base, &h, 8) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemMap(base, PIECE, 0, h, 0));
	NEED(cuMemMap(base, PIECE, 0, h, 0) == CUDA_ERROR_INVALID_VALUE); // there is something
	NEED(cuMemAddressFree(base, size) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemFree(base) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemSetAccess(base, PIECE, &all, 1));
	CHECK(cuMemGetAccess(&flags, &all.location, base + 5));
	NEED(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)(base + 100)));
	NEED(other == h);
	CHECK(cuMemRelease(h));
	// What was written stays with the memory, wherever it is mapped.
	CHECK(cuMemsetD32(base, 77, PIECE / 4));
	CHECK(cuMemUnmap(base, PIECE));
	NEED(cuMemcpyHtoD(base, &h, 8) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemMap(base + PIECE, PIECE, 0, h, 0));
	uint32_t word = 0;
	CHECK(cuMemcpyDtoH(&word, base + 2 * PIECE - 4, 4));
	NEED(word == 77);
	CHECK(cuMemRelease(h));
	CHECK(cuMemcpyDtoH(&word, base + PIECE, 4)); // the mapping keeps it
	NEED(word == 77);
	CHECK(cuMemUnmap(base + PIECE, PIECE));
	NEED(cuMemRelease(h) == CUDA_ERROR_INVALID_VALUE);
}

static void use_pools(void) {
	CUmemoryPool pool, now, standard;
	CUmemPoolProps wish = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .maxSize = 4 << 20};
	CUdeviceptr p, q;
	cuuint64_t used = 77;
	CUmemAccess_flags flags;
	CHECK(cuMemPoolCreate(&pool, &wish));
	CHECK(cuMemAllocFromPoolAsync(&p, 1 << 20, pool, NULL));
	CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	NEED(used == 1 << 20);
	CHECK(cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	NEED(now == pool);
	NEED(cuMemAllocFromPoolAsync(&q, 4 << 20, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuDeviceGetDefaultMemPool(&standard, 0));
	CHECK(cuDeviceSetMemPool(0, pool));
	CHECK(cuDeviceGetMemPool(&now, 0));
	NEED(now == pool && standard != pool);
	CHECK(cuMemAllocAsync(&q, 1 << 20, NULL));
	CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	NEED(used == 2 << 20);
	CHECK(cuMemFreeAsync(q, NULL));
	CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	NEED(used == 1 << 20);
	CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used));
	NEED(used == 2 << 20);
	CHECK(cuMemPoolGetAccess(&flags, pool, &wish.location));
	NEED(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CHECK(cuMemPoolDestroy(pool));
	NEED(cuMemPoolDestroy(pool) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuDeviceGetMemPool(&now, 0));
	NEED(now == standard);
	CHECK(cuMemFree(p)); // which outlives its pool
	NEED(cuMemPoolDestroy(standard) == CUDA_ERROR_INVALID_VALUE);
}

int main(int argc, char **argv) {
	uint32_t pieces = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 4;
	size_t size = (size_t)pieces * PIECE;
	CUcontext context;
	CUmodule module;
	CUfunction add;
	CUdeviceptr base;
	CUmemGenericAllocationHandle *h = calloc(pieces, sizeof *h);
	size_t before, after, total;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuMemAddressReserve(&base, 4ul << 30, 0, 0, 0)); // more than there is memory
	wrong_calls(base, 4ul << 30);
	use_pools();
	CHECK(cuMemGetInfo(&before, &total));
	for (uint32_t i = 0; i < pieces; i++) {
		CHECK(cuMemCreate(&h[i], PIECE, &properties, 0));
		CHECK(cuMemMap(base + (size_t)i * PIECE, PIECE, 0, h[i], 0));
		CHECK(cuMemSetAccess(base + (size_t)i * PIECE, PIECE, &all, 1));
	}
	uint32_t n = (uint32_t)(size / 4), *data = malloc(size), *back = malloc(size), v = 5;
	for (uint32_t i = 0; i < n; i++)
		data[i] = i * 2654435761u;
	CHECK(cuMemcpyHtoD(base, data, size));
	CHECK(cuMemcpyDtoD(base + PIECE - 64, base + PIECE + 64, 128)); // across the end of a piece
	memmove((char *)data + PIECE - 64, (char *)data + PIECE + 64, 128);
	CHECK(cuMemsetD32(base + PIECE - 4, 9, 2));
	data[PIECE / 4 - 1] = data[PIECE / 4] = 9;
	CHECK(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&base, &n, &v}, NULL));
	CHECK(cuCtxSynchronize());
	puts("ready");
	fflush(stdout);
	getchar();
	CHECK(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&base, &n, &v}, NULL));
	CHECK(cuMemcpyDtoH(back, base, size));
	for (uint32_t i = 0; i < n; i++)
		NEED(back[i] == data[i] + 2 * v);
	for (uint32_t i = 0; i < pieces; i++)
		CHECK(cuMemRelease(h[i]));
	CHECK(cuMemUnmap(base, size));
	CHECK(cuMemAddressFree(base, 4ul << 30));
	CHECK(cuMemGetInfo(&after, &total));
	NEED(before == after);
	puts("right");
	return 0;
}
