// A program with a kernel that does not end. It prints what waiting for the kernel returns.
#include "kernels.h"

static const char spinning[] =
    ".version 6.5\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 word) {\n"
    "  .reg .pred %p; .reg .b32 %r; .reg .b64 %d;\n"
    "  ld.param.u64 %d, [word];\n"
    "again: ld.volatile.global.u32 %r, [%d]; setp.eq.u32 %p, %r, 0; @%p bra again;\n"
    "  ret;\n}\n";

int main(void) {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction spin;
	CUdeviceptr word;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, spinning));
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	CHECK(cuMemAlloc(&word, 4));
	CHECK(cuMemsetD32(word, 0, 1));
	void *args[] = {&word};
	CHECK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	printf("%d\n", cuCtxSynchronize());
	return 0;
}
