// A program whose blocks read each other's shared memory, in clusters of the size that the launch
// chooses, and of one that the kernel was compiled for.
#include "kernels.h"

// Each block leaves its number in its shared memory; each thread writes the number that the next
// block of its cluster has left.
#define BODY                                                                                       \
	"  .shared .align 4 .b32 mine; .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<4>;\n"            \
	"  ld.param.u64 %d0, [out]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, mine; st.shared.u32 [%r1], %r0;\n" \
	"  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n"           \
	"  mov.u32 %r2, %cluster_ctarank; add.u32 %r2, %r2, 1; mov.u32 %r3, %cluster_nctarank; rem.u32 %r2, %r2, %r3;\n" \
	"  mapa.shared::cluster.u32 %r4, %r1, %r2; ld.shared::cluster.u32 %r5, [%r4];\n"              \
	"  mov.u32 %r6, %tid.x; mad.lo.u32 %r6, %r0, 32, %r6; mad.wide.u32 %d1, %r6, 4, %d0; st.global.u32 [%d1], %r5;\n" \
	"  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; ret;\n}\n"

static const char neighbours[] =
    ".version 8.1\n.target sm_90\n.address_size 64\n"
    ".visible .entry chosen(.param .u64 out) {\n" BODY
    ".visible .entry required(.param .u64 out) .reqnctapercluster 2 {\n" BODY;

enum { BLOCKS = 8, THREADS = 32 };

static CUdeviceptr out;

static CUlaunchConfig config(CUlaunchAttribute *attribute, unsigned blocks) {
	*attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	attribute->value.clusterDim.x = blocks;
	attribute->value.clusterDim.y = attribute->value.clusterDim.z = 1;
	return (CUlaunchConfig){.gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1, .blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1, .attrs = attribute, .numAttrs = blocks > 0};
}

// All blocks have read what the next block of their cluster left.
static void read_neighbour(const char *what, unsigned cluster) {
	unsigned result[BLOCKS * THREADS];
	CHECK(cuMemcpyDtoH(result, out, sizeof result));
	for (unsigned i = 0; i < BLOCKS * THREADS; i++) {
		unsigned block = i / THREADS, want = block / cluster * cluster + (block + 1) % cluster;
		if (result[i] != want) {
			printf("%s: thread %u read %u, not %u\n", what, i, result[i], want);
			exit(1);
		}
	}
	printf("%s: right\n", what);
}

int main(void) {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction chosen, required;
	CUlaunchAttribute attribute;
	void *args[] = {&out};
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	int can;
	CHECK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, neighbours));
	CHECK(cuModuleGetFunction(&chosen, module, "chosen"));
	CHECK(cuModuleGetFunction(&required, module, "required"));
	CHECK(cuMemAlloc(&out, 4 * BLOCKS * THREADS));
	printf("clusters can be launched: %d\n", can);

	CUlaunchConfig c = config(&attribute, 4);
	CHECK(cuLaunchKernelEx(&c, chosen, args, NULL));
	read_neighbour("clusters of four", 4);
	CHECK(cuLaunchKernel(chosen, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, args, NULL));
	read_neighbour("no clusters", 1);
	CHECK(cuLaunchKernel(required, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, args, NULL));
	read_neighbour("clusters as compiled", 2);

	int size, many;
	CHECK(cuFuncGetAttribute(&size, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, required));
	printf("compiled for %d\n", size);
	c = config(&attribute, 0);
	CHECK(cuOccupancyMaxPotentialClusterSize(&size, chosen, &c));
	c = config(&attribute, 2);
	CHECK(cuOccupancyMaxActiveClusters(&many, chosen, &c));
	printf("at most %d blocks; at a time %s\n", size, many > 0 ? "some" : "none");
	c = config(&attribute, 3);
	printf("three do not divide eight: %d\n", cuLaunchKernelEx(&c, chosen, args, NULL));
	c = config(&attribute, 16);
	c.gridDimX = 16;
	printf("sixteen are not portable: %d\n", cuLaunchKernelEx(&c, chosen, args, NULL));
	c = config(&attribute, 4);
	printf("other than compiled for: %d\n", cuLaunchKernelEx(&c, required, args, NULL));
	return 0;
}
