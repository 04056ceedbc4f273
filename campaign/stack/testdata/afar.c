// Reads pinned memory as soon as it may: after a synchronise, a query, or in a function of
// its own. What was copied there must be there, however far the device is.
#include "kernels.h"

#include <stdint.h>

enum { N = 1024, ROUNDS = 400 };

static uint32_t *pinned;
static int wrong;

static void check_pinned(uint32_t value) {
	for (int i = 0; i < N; i++)
		if (pinned[i] != value) {
			wrong++;
			return;
		}
}

static void CUDA_CB look(void *data) { check_pinned((uint32_t)(uintptr_t)data); }

int main(void) {
	CUcontext context;
	CUmodule module;
	CUfunction add;
	CUdeviceptr p;
	CUstream s;
	CUevent e;
	uint32_t n = N, one = 1;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CHECK(cuMemAlloc(&p, 4 * N));
	CHECK(cuMemsetD32(p, 0, N));
	CHECK(cuMemHostAlloc((void **)&pinned, 4 * N, 0));
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		CHECK(cuLaunchKernel(add, N / 128, 1, 1, 128, 1, 1, 0, s, (void *[]){&p, &n, &one}, NULL));
		CHECK(cuMemcpyDtoHAsync(pinned, p, 4 * N, s));
		switch (round % 5) {
		case 0:
			CHECK(cuStreamSynchronize(s));
			break;
		case 1:
			CHECK(cuCtxSynchronize());
			break;
		case 2:
			CHECK(cuEventRecord(e, s));
			CHECK(cuEventSynchronize(e));
			break;
		case 3:
			while (cuStreamQuery(s) == CUDA_ERROR_NOT_READY) {
			}
			break;
		case 4:
			CHECK(cuLaunchHostFunc(s, look, (void *)(uintptr_t)round));
			CHECK(cuStreamSynchronize(s));
		}
		check_pinned(round);
	}
	printf("%d of %d wrong\n", wrong, ROUNDS);
	return wrong != 0;
}
