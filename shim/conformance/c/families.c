// Cases of the families of functions that cases.c and graphs.c leave out, each a use from
// its beginning to its end: arrays, textures, surfaces, pools, memory that is mapped at
// reserved addresses, managed memory, memory of the host that kernels reach, libraries,
// modules, streams and events. What is printed does not depend on the GPU.
//
//   families [NAME...]   all that were recorded, or those named
//   families --list      their names
//   families --rest      cases that were not recorded: calls that crash NVIDIA's driver, and what came behind them
#include <cuda.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "kernels.h"

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

// look: out[y * 16 + x] = the element of a texture of two dimensions. lookup: out[i] = element i of a
// texture of linear memory. level: out[0] = a level of a mipmap. raise: adds 1 to each
// element of a surface. twice: doubles a managed variable.
static const char more_kernels[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .attribute(.managed) .align 4 .u32 shared_by_both = 21;\n"
	".visible .entry look(.param .u64 texture, .param .u64 out)\n{\n"
	"\t.reg .u32 %x, %y, %n, %r<4>;\n\t.reg .f32 %f<2>;\n\t.reg .u64 %t, %o, %w;\n"
	"\tmov.u32 %x, %tid.x;\n\tmov.u32 %y, %ctaid.x;\n\tcvt.rn.f32.u32 %f0, %x;\n\tcvt.rn.f32.u32 %f1, %y;\n\tadd.f32 %f0, %f0, 0f3F000000;\n\tadd.f32 %f1, %f1, 0f3F000000;\n"
	"\tld.param.u64 %t, [texture];\n\tld.param.u64 %o, [out];\n\ttex.2d.v4.u32.f32 {%r0, %r1, %r2, %r3}, [%t, {%f0, %f1}];\n"
	"\tmad.lo.u32 %n, %y, 16, %x;\n\tmul.wide.u32 %w, %n, 4;\n\tadd.u64 %o, %o, %w;\n\tst.global.u32 [%o], %r0;\n\tret;\n}\n"
	".visible .entry lookup(.param .u64 texture, .param .u64 out)\n{\n"
	"\t.reg .u32 %x, %r<4>;\n\t.reg .u64 %t, %o, %w;\n"
	"\tmov.u32 %x, %tid.x;\n\tld.param.u64 %t, [texture];\n\tld.param.u64 %o, [out];\n\ttex.1d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%t, {%x}];\n"
	"\tmul.wide.u32 %w, %x, 4;\n\tadd.u64 %o, %o, %w;\n\tst.global.u32 [%o], %r0;\n\tret;\n}\n"
	".visible .entry level(.param .u64 texture, .param .u64 out, .param .f32 lod)\n{\n"
	"\t.reg .u32 %r<4>;\n\t.reg .f32 %h, %l;\n\t.reg .u64 %t, %o;\n"
	"\tld.param.u64 %t, [texture];\n\tld.param.u64 %o, [out];\n\tld.param.f32 %l, [lod];\n\tmov.f32 %h, 0f3F000000;\n"
	"\ttex.level.2d.v4.u32.f32 {%r0, %r1, %r2, %r3}, [%t, {%h, %h}], %l;\n\tst.global.u32 [%o], %r0;\n\tret;\n}\n"
	".visible .entry raise(.param .u64 surface)\n{\n"
	"\t.reg .u32 %x, %y, %r;\n\t.reg .u64 %s;\n"
	"\tld.param.u64 %s, [surface];\n\tmov.u32 %x, %tid.x;\n\tshl.b32 %x, %x, 2;\n\tmov.u32 %y, %ctaid.x;\n"
	"\tsuld.b.2d.b32.trap {%r}, [%s, {%x, %y}];\n\tadd.u32 %r, %r, 1;\n\tsust.b.2d.b32.trap [%s, {%x, %y}], {%r};\n\tret;\n}\n"
	".visible .entry twice()\n{\n"
	"\t.reg .u32 %v;\n\tld.global.u32 %v, [shared_by_both];\n\tadd.u32 %v, %v, %v;\n\tst.global.u32 [shared_by_both], %v;\n\tret;\n}\n";

static const char *name_of(CUresult r) {
	const char *name = NULL;
	if (cuGetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
		return "?";
	return strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
}

static CUresult tell(CUresult r) {
	printf(" = %s\n", name_of(r));
	fflush(stdout);
	return r;
}

#define T(call) (printf("%s", #call), fflush(stdout), tell(call))
#define SHOW(format, ...) printf("  " format "\n", __VA_ARGS__)
#define LENGTH(a) (sizeof(a) / sizeof *(a))

static uint64_t hash(const void *data, size_t size) {
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < size; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3;
	return h;
}

enum { WIDTH = 16, HEIGHT = 8, DEPTH = 4 };

static CUcontext context;
static CUmodule module, others;
static CUfunction fill, bump, look, lookup, level, raises, twice;
static CUdeviceptr memory, out;
static CUstream s, s2;
static CUevent e, e2;
static uint32_t values[DEPTH][HEIGHT][WIDTH], back[DEPTH][HEIGHT][WIDTH];

static void begin(void) {
	if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS || cuModuleLoadData(&module, kernels) != CUDA_SUCCESS || cuModuleLoadData(&others, more_kernels) != CUDA_SUCCESS)
		printf("no context or module\n");
	cuModuleGetFunction(&fill, module, "fill");
	cuModuleGetFunction(&bump, module, "bump");
	cuModuleGetFunction(&look, others, "look");
	cuModuleGetFunction(&lookup, others, "lookup");
	cuModuleGetFunction(&level, others, "level");
	cuModuleGetFunction(&raises, others, "raise");
	cuModuleGetFunction(&twice, others, "twice");
	cuMemAlloc(&memory, 65536);
	cuMemAlloc(&out, 65536);
	cuMemsetD8(memory, 1, 65536);
	cuMemsetD8(out, 2, 65536);
	cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	cuStreamCreate(&s2, CU_STREAM_DEFAULT);
	cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
	cuEventCreate(&e2, CU_EVENT_DEFAULT);
	for (size_t i = 0; i < sizeof values / 4; i++)
		((uint32_t *)values)[i] = (uint32_t)(i * 2654435761u);
	cuCtxSynchronize();
}

static CUresult fill_on(CUstream stream, CUdeviceptr at, uint32_t count, uint32_t value) {
	return cuLaunchKernel(fill, (count + 63) / 64, 1, 1, 64, 1, 1, 0, stream, (void *[]){&at, &count, &value}, NULL);
}

static CUresult bump_on(CUstream stream, CUdeviceptr at) { return cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&at}, NULL); }

static uint32_t word(CUdeviceptr at) {
	uint32_t v = 0;
	cuMemcpyDtoH(&v, at, 4);
	return v;
}

static void show_memory(CUdeviceptr at, size_t size) {
	static uint8_t room[1 << 16];
	memset(room, 0, sizeof room);
	CUresult r = cuMemcpyDtoH(room, at, size);
	SHOW("%s %016llx", name_of(r), (unsigned long long)hash(room, size));
}

// --- arrays, textures, surfaces ------------------------------------------------------------------

static CUDA_MEMCPY3D to_array(CUarray array, size_t depth) {
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = values, .srcPitch = sizeof values[0][0], .srcHeight = HEIGHT, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array,
		.WidthInBytes = sizeof values[0][0], .Height = HEIGHT, .Depth = depth};
}

static CUDA_MEMCPY3D from_array(CUarray array, size_t depth) {
	return (CUDA_MEMCPY3D){.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = back, .dstPitch = sizeof values[0][0], .dstHeight = HEIGHT, .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array,
		.WidthInBytes = sizeof values[0][0], .Height = HEIGHT, .Depth = depth};
}

static void arrays(void) {
	begin();
	CUarray flat = NULL, line = NULL, solid = NULL, layers = NULL;
	CUDA_ARRAY_DESCRIPTOR a = {WIDTH, HEIGHT, CU_AD_FORMAT_UNSIGNED_INT32, 1}, got;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = WIDTH, .Height = HEIGHT, .Depth = DEPTH, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1}, had;
	T(cuArrayCreate(&flat, &a));
	a.Height = 0;
	T(cuArrayCreate(&line, &a));
	T(cuArray3DCreate(&solid, &d));
	d.Flags = CUDA_ARRAY3D_LAYERED;
	T(cuArray3DCreate(&layers, &d));
	T(cuMemcpyHtoA(flat, 0, values, sizeof values[0]));
	T(fill_on(s, memory, 256, 9)); // from here on there is something on a device
	T(cuStreamSynchronize(s));
	T(cuMemcpyHtoA(line, 0, values, sizeof values[0][0]));
	CUDA_MEMCPY3D in = to_array(solid, DEPTH), outward = from_array(solid, DEPTH);
	T(cuMemcpy3D(&in));
	in.dstArray = layers;
	T(cuMemcpy3DAsync(&in, s));
	T(cuArrayGetDescriptor(&got, line));
	SHOW("%zu %zu %d %u", got.Width, got.Height, got.Format, got.NumChannels);
	T(cuArray3DGetDescriptor(&had, layers));
	SHOW("%zu %zu %zu %d %u %#x", had.Width, had.Height, had.Depth, had.Format, had.NumChannels, had.Flags);
	T(cuMemcpyAtoD(memory, flat, 64, 256));
	T(cuMemcpyDtoA(flat, 128, memory, 256));
	T(cuMemcpyAtoA(flat, 0, line, 0, 64));
	T(cuMemcpyAtoH(back, flat, 0, sizeof back[0]));
	SHOW("%016llx", (unsigned long long)hash(back, sizeof back[0]));
	T(cuMemcpy3D(&outward));
	SHOW("%d", memcmp(values, back, sizeof back));
	memset(back, 0, sizeof back);
	outward.srcArray = layers;
	T(cuStreamSynchronize(s));
	T(cuMemcpy3DAsync(&outward, s));
	T(cuStreamSynchronize(s));
	SHOW("%d", memcmp(values, back, sizeof back));
	T(cuArrayDestroy(flat));
}

static void arrays_rest(void) {
	begin();
	CUarray flat = NULL, kept;
	CUDA_ARRAY_DESCRIPTOR a = {WIDTH, HEIGHT, CU_AD_FORMAT_UNSIGNED_INT32, 1};
	CUarray line = NULL, solid = NULL, layers = NULL;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = WIDTH, .Height = HEIGHT, .Depth = DEPTH, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	cuArrayCreate(&flat, &a);
	a.Height = 0;
	cuArrayCreate(&line, &a);
	cuArray3DCreate(&solid, &d);
	d.Flags = CUDA_ARRAY3D_LAYERED;
	cuArray3DCreate(&layers, &d);
	T(cuMemcpyHtoA(line, 0, values, sizeof values[0][0]));
	kept = flat;
	T(cuArrayDestroy(flat));
	T(cuArrayDestroy(kept));
	T(cuMemcpyAtoH(back, line, 0, 64));
	SHOW("%016llx", (unsigned long long)hash(back, 64));
	T(cuArrayDestroy(line));
	T(cuArrayDestroy(solid));
	T(cuArrayDestroy(layers));
	show_memory(memory, 1024);
}

static const CUDA_TEXTURE_DESC whole = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}, .flags = CU_TRSF_READ_AS_INTEGER};

static CUresult look_at(CUtexObject texture) { return cuLaunchKernel(look, HEIGHT, 1, 1, WIDTH, 1, 1, 0, s, (void *[]){&texture, &out}, NULL); }

static void seen(void) {
	CUresult r = cuStreamSynchronize(s);
	memset(back, 0, sizeof back);
	cuMemcpyDtoH(back, out, sizeof back[0]);
	SHOW("%s %016llx, first %u", name_of(r), (unsigned long long)hash(back, sizeof back[0]), back[0][0][0]);
}

// Copies of one dimension reach the first row of an array only, so that what was recorded has
// arrays of zeros. The rest does the same with arrays that contain something.
static bool with_contents;
static void contain(CUarray array, const void *data, size_t width, size_t height) {
	const CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = data, .srcPitch = 4 * width, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = array, .WidthInBytes = 4 * width, .Height = height};
	if (with_contents)
		T(cuMemcpy2D(&c));
}

static void textures(void) {
	begin();
	CUarray flat = NULL;
	CUtexObject t = 0, linear = 0, pitched = 0;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY}, had;
	CUDA_TEXTURE_DESC how;
	T(cuArray3DCreate(&flat, &d));
	T(cuMemcpyHtoA(flat, 0, values, sizeof values[0]));
	contain(flat, values, WIDTH, HEIGHT);
	r.res.array.hArray = flat;
	T(cuTexObjectCreate(&t, &r, &whole, NULL));
	T(look_at(t));
	seen();
	T(cuMemcpyHtoA(flat, 0, values[1], sizeof values[0]));
	contain(flat, values[1], WIDTH, HEIGHT);
	T(look_at(t));
	seen();
	T(cuMemcpyHtoD(memory, values, sizeof values));
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = {memory, CU_AD_FORMAT_UNSIGNED_INT32, 1, sizeof values}};
	T(cuTexObjectCreate(&linear, &r, &whole, NULL));
	T(cuLaunchKernel(lookup, 1, 1, 1, WIDTH *HEIGHT, 1, 1, 0, s, (void *[]){&linear, &out}, NULL));
	seen();
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_PITCH2D, .res.pitch2D = {memory, CU_AD_FORMAT_UNSIGNED_INT32, 1, WIDTH, HEIGHT, 512}};
	T(cuTexObjectCreate(&pitched, &r, &whole, NULL));
	T(look_at(pitched));
	seen();
	T(fill_on(s, memory, 4096, 77)); // the texture's memory
	T(look_at(pitched));
	seen();
	T(cuTexObjectGetResourceDesc(&had, t));
	SHOW("%d %d", had.resType, had.res.array.hArray == flat);
	T(cuTexObjectGetTextureDesc(&how, linear));
	SHOW("%d %d %u", how.addressMode[0], how.filterMode, how.flags);
	T(cuTexObjectDestroy(pitched));
	T(look_at(t));
	seen();
	T(cuTexObjectDestroy(t));
	T(cuTexObjectDestroy(linear));
	T(cuTexObjectCreate(&t, &(CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = flat}, &whole, NULL));
	T(look_at(t));
	seen();
	T(cuTexObjectDestroy(t));
	T(cuArrayDestroy(flat));
}

static void mipmaps(void) {
	begin();
	CUmipmappedArray m = NULL;
	CUarray one = NULL;
	CUtexObject t = 0;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1}, had;
	T(cuMipmappedArrayCreate(&m, &d, 3));
	for (unsigned i = 0; i < 3; i++) {
		uint32_t many[HEIGHT * WIDTH];
		for (size_t k = 0; k < LENGTH(many); k++)
			many[k] = 100 * (i + 1);
		T(cuMipmappedArrayGetLevel(&one, m, i));
		T(cuArray3DGetDescriptor(&had, one));
		SHOW("%zu %zu %zu", had.Width, had.Height, had.Depth);
		T(cuMemcpyHtoA(one, 0, many, 4ul * (WIDTH >> i) * (HEIGHT >> i)));
		contain(one, many, WIDTH >> i, HEIGHT >> i);
		T(fill_on(s, memory, 64, i));
	}
	T(cuMipmappedArrayGetLevel(&one, m, 3));
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .res.mipmap.hMipmappedArray = m};
	CUDA_TEXTURE_DESC how = whole;
	how.flags |= CU_TRSF_NORMALIZED_COORDINATES;
	how.maxMipmapLevelClamp = 2;
	T(cuTexObjectCreate(&t, &r, &how, NULL));
	for (int i = 0; i < 3; i++) {
		float lod = (float)i;
		T(cuLaunchKernel(level, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&t, &out, &lod}, NULL));
		T(cuStreamSynchronize(s));
		SHOW("%u", word(out));
	}
	T(cuTexObjectDestroy(t));
	T(cuMipmappedArrayDestroy(m));
}

static void surfaces(void) {
	begin();
	CUarray flat = NULL;
	CUsurfObject surface = 0;
	CUtexObject t = 0;
	CUDA_RESOURCE_DESC had;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
	T(cuArray3DCreate(&flat, &d));
	T(cuMemcpyHtoA(flat, 0, values, sizeof values[0]));
	contain(flat, values, WIDTH, HEIGHT);
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = flat};
	T(cuSurfObjectCreate(&surface, &r));
	T(cuTexObjectCreate(&t, &r, &whole, NULL));
	for (int i = 0; i < 3; i++) {
		T(cuLaunchKernel(raises, HEIGHT, 1, 1, WIDTH, 1, 1, 0, s, (void *[]){&surface}, NULL));
		T(look_at(t));
		seen();
	}
	T(cuSurfObjectGetResourceDesc(&had, surface));
	SHOW("%d %d", had.resType, had.res.array.hArray == flat);
	T(cuMemcpyAtoH(back, flat, 0, sizeof back[0]));
	SHOW("%016llx", (unsigned long long)hash(back, sizeof back[0]));
	T(cuSurfObjectDestroy(surface));
	T(look_at(t));
	seen();
	T(cuTexObjectDestroy(t));
	T(cuArrayDestroy(flat));
}

static void textures_rest(void) {
	with_contents = true;
	textures();
}
static void mipmaps_rest(void) {
	with_contents = true;
	mipmaps();
}
static void surfaces_rest(void) {
	with_contents = true;
	surfaces();
}

// --- pools, reserved addresses ----------------------------------------------------------------------

static void pools(void) {
	begin();
	CUmemoryPool own = NULL, given = NULL, now = NULL;
	CUdeviceptr a = 0, b = 0, c = 0;
	cuuint64_t keep = 1 << 20, used = 77;
	int reuse = 7;
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	T(cuDeviceGetDefaultMemPool(&given, 0));
	T(cuMemPoolCreate(&own, &props));
	T(cuMemPoolSetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	T(cuMemAllocFromPoolAsync(&a, 4096, own, s));
	T(fill_on(s, a, 1024, 5));
	T(cuMemAllocAsync(&b, 8192, s));
	T(cuMemcpyDtoDAsync(b, a, 4096, s));
	T(cuMemsetD32Async(b + 4096, 6, 1024, s));
	T(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	SHOW("%llu", (unsigned long long)used);
	T(cuDeviceSetMemPool(0, own));
	T(cuDeviceGetMemPool(&now, 0));
	SHOW("%d", now == own);
	T(cuMemAllocAsync(&c, 4096, s));
	T(fill_on(s, c, 1024, 11));
	T(cuStreamSynchronize(s));
	show_memory(a, 4096);
	show_memory(b, 8192);
	show_memory(c, 4096);
	T(cuMemFreeAsync(a, s));
	T(cuMemFreeAsync(b, s));
	T(cuStreamSynchronize(s));
	T(cuMemPoolTrimTo(own, 0));
	T(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	T(cuMemPoolGetAttribute(own, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &reuse));
	SHOW("%llu %d", (unsigned long long)keep, reuse);
	T(cuDeviceSetMemPool(0, given));
	show_memory(c, 4096);
	T(cuMemFree(c));
	T(cuMemPoolDestroy(own));
	T(cuMemAllocAsync(&a, 4096, s));
	T(fill_on(s, a, 1024, 8));
	T(cuMemFreeAsync(a, s));
	T(cuStreamSynchronize(s));
}

static void addresses(void) {
	begin();
	enum { SIZE = 2 << 20 };
	CUdeviceptr at = 0, elsewhere = 0;
	CUmemGenericAllocationHandle one = 0, two = 0, same = 0;
	CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, had;
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	unsigned long long flags = 77;
	size_t unit = 0;
	T(cuMemGetAllocationGranularity(&unit, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	SHOW("%zu", unit);
	T(cuMemAddressReserve(&at, 4 * SIZE, 0, 0, 0));
	T(cuMemAddressReserve(&elsewhere, 2 * SIZE, 0, 0, 0));
	T(cuMemCreate(&one, SIZE, &props, 0));
	T(cuMemCreate(&two, SIZE, &props, 0));
	T(cuMemMap(at, SIZE, 0, one, 0));
	T(cuMemMap(at + SIZE, SIZE, 0, two, 0));
	T(cuMemSetAccess(at, 2 * SIZE, &access, 1));
	T(cuMemsetD8(at, 3, 2 * SIZE));
	T(fill_on(s, at + SIZE - 2048, 1024, 70)); // across both
	T(cuStreamSynchronize(s));
	show_memory(at + SIZE - 4096, 8192);
	T(cuMemUnmap(at, SIZE));
	T(cuMemMap(elsewhere, SIZE, 0, one, 0));
	T(cuMemSetAccess(elsewhere, SIZE, &access, 1));
	show_memory(elsewhere + SIZE - 4096, 4096);
	T(fill_on(s, elsewhere, 1024, 71));
	T(cuStreamSynchronize(s));
	show_memory(elsewhere, 8192);
	T(cuMemRetainAllocationHandle(&same, (void *)elsewhere));
	SHOW("%d", same == one);
	T(cuMemGetAllocationPropertiesFromHandle(&had, one));
	SHOW("%d %d %d", had.type, had.location.type, had.location.id);
	T(cuMemGetAccess(&flags, &access.location, elsewhere));
	SHOW("%llu", flags);
	T(cuMemRelease(same));
	T(cuMemRelease(one));
	T(cuMemRelease(two));
	show_memory(at + SIZE, 4096);
	T(cuMemUnmap(elsewhere, SIZE));
	T(cuMemUnmap(at + SIZE, SIZE));
	T(cuMemAddressFree(elsewhere, 2 * SIZE));
	T(cuMemAddressFree(at, 4 * SIZE));
}

// --- memory of both sides -----------------------------------------------------------------------------

static void managed(void) {
	begin();
	CUdeviceptr p = 0, q = 0, v = 0;
	size_t size = 0;
	T(cuMemAllocManaged(&p, 3 << 20, CU_MEM_ATTACH_GLOBAL));
	T(cuMemAllocManaged(&q, 4096, CU_MEM_ATTACH_GLOBAL));
	uint32_t *host = (uint32_t *)(uintptr_t)p, *small = (uint32_t *)(uintptr_t)q;
	for (uint32_t i = 0; i < 1024; i++)
		small[i] = i;
	host[0] = 1, host[600000] = 2;
	T(fill_on(s, p, 1024, 500));
	T(bump_on(s, q));
	T(cuStreamSynchronize(s));
	SHOW("%u %u %u, %u %u", host[0], host[1023], host[600000], small[0], small[1]);
	small[7] = 70;
	T(cuMemcpyDtoD(p + 4096, q, 4096));
	SHOW("%u %u", host[1024], host[1031]);
	T(cuMemsetD32Async(q, 33, 16, s));
	T(cuStreamSynchronize(s));
	SHOW("%u %u", small[15], small[16]);
	T(cuMemcpyHtoD(q, values, 64));
	SHOW("%016llx", (unsigned long long)hash(small, 4096));
	T(cuMemcpyDtoH(back, p, 1024));
	SHOW("%016llx", (unsigned long long)hash(back, 1024));
	T(cuModuleGetGlobal(&v, &size, others, "shared_by_both"));
	SHOW("%zu, %u", size, *(uint32_t *)(uintptr_t)v);
	for (int i = 0; i < 2; i++) {
		T(cuLaunchKernel(twice, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
		T(cuStreamSynchronize(s));
		SHOW("%u", *(uint32_t *)(uintptr_t)v);
		++*(uint32_t *)(uintptr_t)v;
	}
	T(cuMemPrefetchAsync_v2(p, 3 << 20, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, 0, s));
	T(fill_on(s, p + (1 << 20), 1024, 900));
	T(cuMemPrefetchAsync_v2(p, 3 << 20, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}, 0, s));
	T(cuStreamSynchronize(s));
	SHOW("%016llx", (unsigned long long)hash(host, 3 << 20));
	T(cuMemFree(q));
	T(cuMemFree(p));
}

static void mapped(void) {
	begin();
	uint32_t *host = NULL, *own;
	CUdeviceptr p = 0, q = 0;
	T(cuMemHostAlloc((void **)&host, 65536, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(host, 0, 65536);
	T(cuMemHostGetDevicePointer(&p, host, 0));
	T(fill_on(s, p, 1024, 40));
	T(cuStreamSynchronize(s));
	SHOW("%u %u %u", host[0], host[1023], host[1024]);
	host[5] = 1000;
	T(cuMemcpyHtoD(memory, host, 4096));
	T(bump_on(s, p + 8192));
	T(cuStreamSynchronize(s));
	SHOW("%u", host[2048]);
	show_memory(memory, 4096);
	own = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (uint32_t i = 0; i < 16384; i++)
		own[i] = i;
	T(cuMemHostRegister(own, 65536, CU_MEMHOSTREGISTER_DEVICEMAP));
	T(cuMemHostGetDevicePointer(&q, own, 0));
	T(fill_on(s, q + 4096, 1024, 60));
	T(cuStreamSynchronize(s));
	SHOW("%u %u %u", own[1023], own[1024], own[2048]);
	T(cuMemcpyDtoHAsync(own, memory, 4096, s));
	T(cuStreamSynchronize(s));
	SHOW("%016llx", (unsigned long long)hash(own, 65536));
	T(cuMemHostUnregister(own));
	SHOW("%u %u", own[1024], own[16383]);
	T(cuMemFreeHost(host));
	T(fill_on(s, memory, 16, 1));
	T(cuStreamSynchronize(s));
	show_memory(memory, 4096);
}

// --- libraries, modules, streams, events -------------------------------------------------------------

static void libraries(void) {
	begin();
	CUlibrary l = NULL, of = NULL;
	CUkernel k = NULL, all[16];
	CUfunction f = NULL;
	CUmodule m = NULL;
	CUdeviceptr v = 0;
	size_t size = 0, offset = 0;
	unsigned count = 0;
	const char *name = NULL;
	T(cuLibraryLoadData(&l, kernels, NULL, NULL, 0, NULL, NULL, 0));
	T(cuLibraryGetKernel(&k, l, "bump"));
	T(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&memory}, NULL));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuKernelGetFunction(&f, k));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&memory}, NULL));
	T(cuStreamSynchronize(s));
	T(cuLibraryGetGlobal(&v, &size, l, "counter"));
	SHOW("%zu %u", size, word(v));
	T(cuMemsetD32(v, 1000, 1));
	T(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&memory}, NULL));
	T(cuStreamSynchronize(s));
	SHOW("%u %u", word(memory), word(v));
	T(cuLibraryGetModule(&m, l));
	T(cuModuleGetFunction(&f, m, "fill"));
	T(cuLibraryGetKernelCount(&count, l));
	SHOW("%u", count);
	T(cuLibraryEnumerateKernels(all, count, l));
	T(cuKernelGetName(&name, k));
	SHOW("%s", name);
	T(cuKernelGetLibrary(&of, k));
	SHOW("%d", of == l);
	T(cuKernelGetParamInfo(k, 0, &offset, &size));
	SHOW("%zu %zu", offset, size);
	T(bump_on(s, memory)); // the module's: another variable
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuLibraryUnload(l));
	T(bump_on(s, memory));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
}

static void modules(void) {
	begin();
	CUmodule again = NULL;
	CUfunction f = NULL;
	CUdeviceptr v = 0, w = 0, factors = 0;
	size_t size = 0;
	uint32_t four[4] = {1, 2, 3, 4};
	T(bump_on(s, memory));
	T(cuStreamSynchronize(s));
	T(cuModuleGetGlobal(&v, &size, module, "counter"));
	T(cuModuleGetGlobal(&factors, &size, module, "factors"));
	T(cuMemcpyHtoD(v, four, 16));
	T(cuMemcpyHtoD(factors, four, 16));
	T(bump_on(s, memory));
	T(cuStreamSynchronize(s));
	SHOW("%u, %u %u", word(memory), word(v), word(v + 12));
	T(cuModuleLoadData(&again, kernels));
	T(cuModuleGetFunction(&f, again, "bump"));
	T(cuModuleGetGlobal(&w, &size, again, "counter"));
	SHOW("%d, %u %u", v != w, word(w), word(w + 12));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&memory}, NULL));
	T(cuStreamSynchronize(s));
	SHOW("%u, %u %u", word(memory), word(v), word(w));
	T(cuModuleUnload(module));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&memory}, NULL));
	T(cuStreamSynchronize(s));
	SHOW("%u, %u", word(memory), word(w));
	T(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8192));
	T(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 8192, s, (void *[]){&memory}, NULL));
	T(cuStreamSynchronize(s));
	SHOW("%u", word(memory));
	T(cuModuleUnload(again));
}

static int called;
static void call(void *data) { called += *(int *)data; }

static void streams(void) {
	begin();
	CUstream third = NULL;
	int ten = 10, priority = 77;
	unsigned flags = 77;
	float ms = -1;
	T(fill_on(s, memory, 1024, 1));
	T(cuEventRecord(e, s));
	T(cuStreamWaitEvent(s2, e, 0));
	T(cuMemcpyDtoDAsync(out, memory, 4096, s2));
	T(cuLaunchHostFunc(s2, call, &ten));
	T(cuEventRecord(e2, s2));
	T(cuEventSynchronize(e2));
	SHOW("%d", called);
	T(cuEventQuery(e));
	T(cuEventQuery(e2));
	T(cuStreamQuery(s));
	T(cuStreamQuery(s2));
	show_memory(out, 4096);
	T(cuStreamCreateWithPriority(&third, CU_STREAM_NON_BLOCKING, -1));
	T(cuStreamGetFlags(third, &flags));
	T(cuStreamGetPriority(third, &priority));
	SHOW("%u %d", flags, priority);
	T(cuStreamWaitEvent(third, e2, 0));
	T(fill_on(third, memory, 512, 2));
	T(cuEventRecord(e, third));
	T(cuStreamDestroy(third));
	T(cuStreamWaitEvent(s, e, 0));
	T(cuMemcpyDtoDAsync(out, memory, 4096, s));
	T(cuStreamSynchronize(s));
	show_memory(out, 4096);
	T(cuEventRecord(e2, NULL));
	T(cuEventSynchronize(e2));
	T(cuEventElapsedTime(&ms, e2, e2));
	SHOW("%g", ms);
	T(cuEventElapsedTime(&ms, e, e2)); // one has no time
	T(cuEventDestroy(e));
	T(cuEventDestroy(e2));
	T(cuStreamDestroy(s2));
	T(fill_on(s, out, 16, 3));
	T(cuStreamSynchronize(s));
	show_memory(out, 4096);
}

static const struct test_case cases[] = {
	CASE(arrays), CASE(textures), CASE(mipmaps), CASE(surfaces), CASE(pools), CASE(addresses), CASE(managed), CASE(mapped), CASE(libraries), CASE(modules), CASE(streams),
	REST(arrays_rest), REST(textures_rest), REST(mipmaps_rest), REST(surfaces_rest),
};

int main(int argc, char **argv) { return run_cases(cases, LENGTH(cases), argc, argv); }
