// A program that describes tensors to its GPU. A kernel copies a box of one to shared memory and
// stores it into another. A second one copies a column of pixels of images (im2col mode).
#include "kernels.h"

#include <stdalign.h>

enum { WIDTH = 40, HEIGHT = 12, SIDE = 16 };
enum { CHANNELS = 4, ACROSS = 5, DOWN = 3, IMAGES = 2, PIXELS = 16 };

static const char copies[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".visible .entry carry(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .u32 x, .param .u32 y) {\n"
    "  .shared .align 1024 .b8 cells[1024]; .shared .align 8 .b64 arrived;\n"
    "  .reg .pred %q; .reg .b32 %r<4>; .reg .b64 %d<4>;\n"
    "  mov.b64 %d0, from; cvta.param.u64 %d0, %d0; mov.b64 %d1, to; cvta.param.u64 %d1, %d1;\n"
    "  ld.param.u32 %r0, [x]; ld.param.u32 %r1, [y]; mov.u32 %r2, cells; mov.u32 %r3, arrived;\n"
    "  prefetch.tensormap [%d0];\n"
    "  mbarrier.init.shared::cta.b64 [%r3], 1; fence.proxy.async;\n"
    "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 1024;\n"
    "  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0, {%r0, %r1}], [%r3];\n"
    "wait: mbarrier.try_wait.parity.shared::cta.b64 %q, [%r3], 0; @!%q bra wait;\n"
    "  cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {%r0, %r1}], [%r2];\n"
    "  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;\n}\n"
    ".visible .entry column(.param .align 64 .b8 from[128], .param .u64 to, .param .u32 x, .param .u32 y) {\n"
    "  .shared .align 1024 .b8 cells[256]; .shared .align 8 .b64 arrived;\n"
    "  .reg .pred %q; .reg .b16 %h; .reg .b32 %r<4>; .reg .b64 %d<4>;\n"
    "  mov.b64 %d0, from; cvta.param.u64 %d0, %d0; ld.param.u64 %d1, [to]; mov.u16 %h, 1;\n"
    "  ld.param.u32 %r0, [x]; ld.param.u32 %r1, [y]; mov.u32 %r2, cells; mov.u32 %r3, arrived;\n"
    "  mbarrier.init.shared::cta.b64 [%r3], 1; fence.proxy.async;\n"
    "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 256;\n"
    "  cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r2], [%d0, {0, %r0, %r1, 0}], [%r3], {%h, %h};\n"
    "wait: mbarrier.try_wait.parity.shared::cta.b64 %q, [%r3], 0; @!%q bra wait;\n"
    "  cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 256;\n"
    "  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;\n}\n";

static CUresult describe(CUtensorMap *map, CUdeviceptr at, unsigned swizzle, unsigned interleave, unsigned rank) {
	const cuuint64_t sizes[] = {WIDTH, HEIGHT, 1}, strides[] = {4 * WIDTH, 4 * WIDTH * HEIGHT};
	const cuuint32_t box[] = {SIDE, SIDE, 1}, steps[] = {1, 1, 1};
	return cuTensorMapEncodeTiled(map, 2, rank, (void *)at, sizes, strides, box, steps, interleave, swizzle, 0, 0);
}

// The bounding box is that of a filter of three by three over images with a border of one pixel.
static CUresult describe_columns(CUtensorMap *map, CUdeviceptr at, unsigned pixels) {
	const cuuint64_t sizes[] = {CHANNELS, ACROSS, DOWN, IMAGES}, strides[] = {4 * CHANNELS, 4 * CHANNELS * ACROSS, 4 * CHANNELS * ACROSS * DOWN};
	const cuuint32_t steps[] = {1, 1, 1, 1};
	const int lower[] = {-1, -1}, upper[] = {-1, -1};
	return cuTensorMapEncodeIm2col(map, 2, 4, (void *)at, sizes, strides, lower, upper, CHANNELS, pixels, steps, 0, 0, 0, 0);
}

// The filter's middle, which the offsets of the instruction choose, goes over every pixel in turn.
static int columns(CUmodule module, CUdeviceptr in, CUdeviceptr out, const unsigned *values) {
	CUfunction column;
	alignas(64) CUtensorMap images;
	unsigned result[PIXELS * CHANNELS];
	const int x = 2, y = 0; // of the filter's corner: its middle begins at pixel (3, 1)
	CHECK(cuModuleGetFunction(&column, module, "column"));
	CHECK(describe_columns(&images, in, PIXELS));
	CHECK(cuLaunchKernel(column, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&images, &out, (void *)&x, (void *)&y}, NULL));
	CHECK(cuMemcpyDtoH(result, out, sizeof result));
	for (unsigned i = 0; i < PIXELS * CHANNELS; i++) {
		unsigned want = values[i + ((y + 1) * ACROSS + x + 1) * CHANNELS];
		if (result[i] != want) {
			printf("channel %u of pixel %u is %u, not %u\n", i % CHANNELS, i / CHANNELS, result[i], want);
			return 0;
		}
	}
	return 1;
}

int main(void) {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction carry;
	CUdeviceptr in, out;
	alignas(64) CUtensorMap from, to, moved;
	unsigned values[WIDTH * HEIGHT], result[WIDTH * HEIGHT], x = 32, y = 4;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, copies));
	CHECK(cuModuleGetFunction(&carry, module, "carry"));
	CHECK(cuMemAlloc(&in, sizeof values));
	CHECK(cuMemAlloc(&out, sizeof values));
	for (unsigned i = 0; i < WIDTH * HEIGHT; i++)
		values[i] = i + 1;
	CHECK(cuMemcpyHtoD(in, values, sizeof values));
	CHECK(cuMemsetD8(out, 0, sizeof values));
	CHECK(describe(&from, in, 2, 0, 2));
	CHECK(describe(&to, out, 2, 0, 2));
	CHECK(describe(&moved, in, 2, 0, 2));
	CHECK(cuTensorMapReplaceAddress(&moved, (void *)out));
	printf("with another address the map is the other one: %d\n", memcmp(&moved, &to, sizeof to) == 0);
	CHECK(cuLaunchKernel(carry, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&from, &moved, &x, &y}, NULL));
	CHECK(cuMemcpyDtoH(result, out, sizeof result));
	for (unsigned i = 0; i < WIDTH * HEIGHT; i++) {
		unsigned want = i % WIDTH >= x && i / WIDTH >= y ? values[i] : 0;
		if (result[i] != want) {
			printf("element %u is %u, not %u\n", i, result[i], want);
			return 1;
		}
	}
	printf("the box over the border: right\n");
	if (!columns(module, in, out, values))
		return 1;
	printf("the column over two images: right\n");
	printf("a column without pixels: %d\n", describe_columns(&to, in, 0));
	printf("rows too long for the swizzle: %d\n", describe(&to, out, 1, 0, 2));
	printf("interleaved: %d\n", describe(&to, out, 0, 1, 3));
	return 0;
}
