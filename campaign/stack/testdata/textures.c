// A program with arrays, textures and surfaces that does what it reads:
//
//   make     arrays, with a texture of each kind and a surface; says the handles
//   read     reads all textures with kernels, and compares with what they must be
//   step     adds 1 to each element of the surface, with a kernel
//   show     says what all elements of the surface are, from a copy
//   errors   what must be refused
//   drop     ends everything that make made
#include "kernels.h"

#include <math.h>

// sample: out[i] = texture at (x + i * dx, y), of one of four geometries.
// step: adds 1 to a surface of 32-bit elements.
static const char kernels[] =
    ".version 6.5\n.target sm_70\n.address_size 64\n"
    ".visible .entry sample(.param .u64 texture, .param .u64 out, .param .u32 geometry, .param .f32 x, .param .f32 dx, .param .f32 y, .param .u32 z) {\n"
    "  .reg .pred %q<4>; .reg .b32 %r<8>; .reg .f32 %f<12>; .reg .b64 %d<6>;\n"
    "  mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %f0, %r0;\n"
    "  ld.param.f32 %f1, [x]; ld.param.f32 %f2, [dx]; fma.rn.f32 %f3, %f0, %f2, %f1; ld.param.f32 %f4, [y];\n"
    "  ld.param.u64 %d0, [texture]; ld.param.u32 %r1, [geometry]; ld.param.u32 %r2, [z]; cvt.rn.f32.u32 %f5, %r2; add.f32 %f5, %f5, 0f3F000000;\n"
    "  setp.eq.u32 %q0, %r1, 1; setp.eq.u32 %q1, %r1, 2; setp.eq.u32 %q2, %r1, 3; setp.eq.u32 %q3, %r1, 4;\n"
    "  cvt.rzi.s32.f32 %r3, %f3;\n"
    "  @%q0 tex.1d.v4.f32.s32 {%f6, %f7, %f8, %f9}, [%d0, {%r3}];\n"
    "  @%q1 tex.2d.v4.f32.f32 {%f6, %f7, %f8, %f9}, [%d0, {%f3, %f4}];\n"
    "  @%q2 tex.3d.v4.f32.f32 {%f6, %f7, %f8, %f9}, [%d0, {%f3, %f4, %f5, %f5}];\n"
    "  @%q3 tex.a2d.v4.f32.f32 {%f6, %f7, %f8, %f9}, [%d0, {%r2, %f3, %f4, %f4}];\n"
    "  ld.param.u64 %d1, [out]; mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; st.global.f32 [%d3], %f6;\n"
    "  ret;\n}\n"
    ".visible .entry step(.param .u64 surface) {\n"
    "  .reg .b32 %r<4>; .reg .b64 %d<1>;\n"
    "  ld.param.u64 %d0, [surface]; mov.u32 %r0, %tid.x; shl.b32 %r0, %r0, 2; mov.u32 %r1, %ctaid.x;\n"
    "  suld.b.2d.b32.trap {%r2}, [%d0, {%r0, %r1}]; add.u32 %r2, %r2, 1; sust.b.2d.b32.trap [%d0, {%r0, %r1}], {%r2};\n"
    "  ret;\n}\n"
    ".visible .entry level(.param .u64 texture, .param .u64 out, .param .f32 lod) {\n"
    "  .reg .f32 %f<8>; .reg .b64 %d<2>;\n"
    "  ld.param.u64 %d0, [texture]; ld.param.u64 %d1, [out]; ld.param.f32 %f0, [lod]; mov.f32 %f1, 0f3F000000;\n"
    "  tex.level.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%d0, {%f1, %f1}], %f0; st.global.f32 [%d1], %f2; ret;\n}\n";

enum { W = 32, H = 8, D = 4 };

static CUfunction sample, step, level;
static CUarray flat, solid, layers, written;
static CUmipmappedArray mipmap;
static CUtexObject smooth, deep, layered, linear, pitched, levels;
static CUsurfObject surface;
static CUdeviceptr memory, out;

static float value(int x, int y, int z) { return (float)(x + 100 * y + 10000 * z); }

static float contents[D][H][W];

static CUarray array(size_t width, size_t height, size_t depth, CUarray_format format, unsigned flags) {
	CUarray made;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = width, .Height = height, .Depth = depth, .Format = format, .NumChannels = 1, .Flags = flags}, back;
	CHECK(cuArray3DCreate(&made, &d));
	CHECK(cuArray3DGetDescriptor(&back, made));
	NEED(memcmp(&d, &back, sizeof d) == 0);
	return made;
}

static void fill(CUarray a, size_t depth) {
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = contents, .srcPitch = sizeof contents[0][0], .srcHeight = H,
	                      .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = sizeof contents[0][0], .Height = H, .Depth = depth};
	CHECK(cuMemcpy3D(&copy));
}

static void put(CUarray a, const void *data, size_t width, size_t height) {
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = data, .srcPitch = 4 * width, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = 4 * width, .Height = height};
	CHECK(cuMemcpy2D(&rows));
}

static CUtexObject texture(CUarray a, CUfilter_mode filter) {
	CUtexObject made;
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = a}, back;
	CUDA_TEXTURE_DESC t = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}, .filterMode = filter};
	CHECK(cuTexObjectCreate(&made, &r, &t, NULL));
	CHECK(cuTexObjectGetResourceDesc(&back, made));
	NEED(back.resType == r.resType && back.res.array.hArray == a);
	return made;
}

static void make(void) {
	for (int z = 0; z < D; z++)
		for (int y = 0; y < H; y++)
			for (int x = 0; x < W; x++)
				contents[z][y][x] = value(x, y, z);
	CUDA_ARRAY_DESCRIPTOR plain = {W, H, CU_AD_FORMAT_FLOAT, 1}, back;
	CHECK(cuArrayCreate(&flat, &plain));
	CHECK(cuArrayGetDescriptor(&back, flat));
	NEED(back.Width == W && back.Height == H && back.Format == CU_AD_FORMAT_FLOAT && back.NumChannels == 1);
	put(flat, contents, W, H);
	solid = array(W, H, D, CU_AD_FORMAT_FLOAT, 0);
	fill(solid, D);
	layers = array(W, H, D, CU_AD_FORMAT_FLOAT, CUDA_ARRAY3D_LAYERED);
	fill(layers, D);
	written = array(W, H, 0, CU_AD_FORMAT_UNSIGNED_INT32, CUDA_ARRAY3D_SURFACE_LDST);
	CHECK(cuMemAlloc(&memory, sizeof contents));
	CHECK(cuMemAlloc(&out, 4 * W));
	CHECK(cuMemsetD32(memory, 0, sizeof contents / 4));
	// From array to array and to memory, and back: such copies are of the first row.
	CUarray other = array(W, H, 0, CU_AD_FORMAT_FLOAT, 0);
	CHECK(cuMemcpyAtoD(memory, flat, 0, 4 * W));
	CHECK(cuMemcpyDtoA(other, 0, memory, 4 * W));
	CHECK(cuMemcpyAtoA(flat, 4, other, 4, 4 * W - 4));
	float copied[W];
	CHECK(cuMemcpyAtoH(copied, flat, 0, sizeof copied));
	NEED(memcmp(copied, contents[0], sizeof copied) == 0);
	NEED(cuMemcpyAtoH(copied, flat, 4, sizeof copied) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuArrayDestroy(other));
	CHECK(cuMemcpyHtoD(memory, contents, sizeof contents));

	unsigned zeros[H][W] = {{0}};
	put(written, zeros, W, H);
	smooth = texture(flat, CU_TR_FILTER_MODE_LINEAR);
	deep = texture(solid, CU_TR_FILTER_MODE_POINT);
	layered = texture(layers, CU_TR_FILTER_MODE_POINT);
	CUDA_TEXTURE_DESC t = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP}};
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = {memory, CU_AD_FORMAT_FLOAT, 1, sizeof contents}};
	CHECK(cuTexObjectCreate(&linear, &r, &t, NULL));
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_PITCH2D, .res.pitch2D = {memory, CU_AD_FORMAT_FLOAT, 1, W, H, 4 * W}};
	CHECK(cuTexObjectCreate(&pitched, &r, &t, NULL));
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = W, .Height = H, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CHECK(cuMipmappedArrayCreate(&mipmap, &d, 3));
	for (unsigned i = 0; i < 3; i++) {
		CUarray one;
		float values[H][W];
		for (int n = 0; n < W * H; n++)
			((float *)values)[n] = (float)(i + 1);
		CHECK(cuMipmappedArrayGetLevel(&one, mipmap, i));
		put(one, values, W >> i, H >> i);
	}
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .res.mipmap.hMipmappedArray = mipmap};
	t.flags = CU_TRSF_NORMALIZED_COORDINATES;
	t.mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR;
	t.maxMipmapLevelClamp = 2;
	CHECK(cuTexObjectCreate(&levels, &r, &t, NULL));
	r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = written};
	CHECK(cuSurfObjectCreate(&surface, &r));
	printf("made %llu %llu %llu %llu %llu %llu %llu\n", smooth, deep, layered, linear, pitched, levels, surface);
}

// The four elements around a place, weighted.
static float between(float x, float y) {
	float fx = x - 0.5f, fy = y - 0.5f;
	int i = (int)floorf(fx), j = (int)floorf(fy);
	float a = fx - (float)i, b = fy - (float)j, sum = 0;
	for (int k = 0; k < 4; k++) {
		int tx = i + (k & 1), ty = j + (k >> 1);
		tx = tx < 0 ? 0 : tx >= W ? W - 1 : tx;
		ty = ty < 0 ? 0 : ty >= H ? H - 1 : ty;
		sum += (k & 1 ? a : 1 - a) * (k >> 1 ? b : 1 - b) * value(tx, ty, 0);
	}
	return sum;
}

static void expect(CUtexObject t, unsigned geometry, float x, float dx, float y, unsigned z, float (*want)(float x, float y, unsigned z)) {
	float got[W];
	void *args[] = {&t, &out, &geometry, &x, &dx, &y, &z};
	CHECK(cuLaunchKernel(sample, 1, 1, 1, W, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoH(got, out, sizeof got));
	for (int i = 0; i < W; i++) {
		float w = want(x + (float)i * dx, y, z);
		if (fabsf(got[i] - w) > 1e-3f) {
			printf("texture %llu, geometry %u, element %d is %f and not %f\n", t, geometry, i, got[i], w);
			exit(1);
		}
	}
}

static float want_smooth(float x, float y, unsigned z) { return (void)z, between(x, y); }
static float want_point(float x, float y, unsigned z) { return value((int)x >= W ? W - 1 : (int)x, (int)y, (int)z); }
static float want_linear(float x, float y, unsigned z) {
	(void)y, (void)z;
	int n = (int)x;
	return n < D * H * W ? ((float *)contents)[n] : 0;
}

static void read_all(void) {
	expect(smooth, 2, -1, 1.25f, 3.25f, 0, want_smooth);
	expect(deep, 3, 0.5f, 1.25f, 5.5f, 2, want_point);
	expect(layered, 4, 0.5f, 1, 2.5f, 3, want_point);
	expect(pitched, 2, 0.5f, 1, 7.5f, 0, want_point);
	expect(linear, 1, D * H * W - 16, 1, 0, 0, want_linear);
	float lod = 0.5f, got;
	void *args[] = {&levels, &out, &lod};
	CHECK(cuLaunchKernel(level, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoH(&got, out, sizeof got));
	NEED(got == 1.5f);
	puts("all is right");
}

static void show(void) {
	unsigned got[H][W];
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = written, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = got, .dstPitch = 4 * W, .WidthInBytes = 4 * W, .Height = H};
	CHECK(cuMemcpy2D(&rows));
	for (int i = 0; i < W * H; i++)
		NEED(((unsigned *)got)[i] == got[0][0]);
	printf("value %u\n", got[0][0]);
}

static void errors(void) {
	CUarray a;
	CUsurfObject s;
	CUtexObject t;
	CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 0, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	NEED(cuArray3DCreate(&a, &d) == CUDA_ERROR_INVALID_VALUE);
	d.Width = 4;
	d.NumChannels = 3;
	NEED(cuArray3DCreate(&a, &d) == CUDA_ERROR_INVALID_VALUE);
	d.NumChannels = 1;
	d.Depth = 4;
	NEED(cuArray3DCreate(&a, &d) == CUDA_ERROR_INVALID_VALUE); // no height
	d.Flags = CUDA_ARRAY3D_CUBEMAP;
	d.Height = 4;
	NEED(cuArray3DCreate(&a, &d) == CUDA_ERROR_INVALID_VALUE); // four faces
	d.Flags = 0;
	d.Depth = 0;
	CHECK(cuArray3DCreate(&a, &d));
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = a};
	CUDA_TEXTURE_DESC how = {.filterMode = 7};
	NEED(cuSurfObjectCreate(&s, &r) == CUDA_ERROR_INVALID_VALUE); // not made for that
	NEED(cuTexObjectCreate(&t, &r, &how, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuTexObjectCreate(&t, &r, NULL, NULL) == CUDA_ERROR_INVALID_VALUE);
	char bytes[128];
	NEED(cuMemcpyAtoH(bytes, a, 0, 65) == CUDA_ERROR_INVALID_VALUE);
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = a, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = bytes, .WidthInBytes = 16, .Height = 5};
	NEED(cuMemcpy2D(&rows) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuArrayDestroy(a));
	NEED(cuArrayDestroy(a) == CUDA_ERROR_INVALID_HANDLE);
	NEED(cuMemcpyAtoH(bytes, a, 0, 1) == CUDA_ERROR_INVALID_HANDLE);
	NEED(cuTexObjectDestroy(12345678) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuTexObjectDestroy(surface) == CUDA_ERROR_INVALID_VALUE);
	puts("refused");
}

static void drop(void) {
	CUtexObject all[] = {smooth, deep, layered, linear, pitched, levels};
	for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
		CHECK(cuTexObjectDestroy(all[i]));
	CHECK(cuSurfObjectDestroy(surface));
	CHECK(cuArrayDestroy(flat));
	CHECK(cuArrayDestroy(solid));
	CHECK(cuArrayDestroy(layers));
	CHECK(cuArrayDestroy(written));
	CHECK(cuMipmappedArrayDestroy(mipmap));
	CHECK(cuMemFree(memory));
	CHECK(cuMemFree(out));
	size_t free_bytes, total;
	CHECK(cuMemGetInfo(&free_bytes, &total));
	NEED(free_bytes == total);
	puts("dropped");
}

static void obey(const char *what) {
	if (strcmp(what, "make") == 0)
		make();
	else if (strcmp(what, "read") == 0)
		read_all();
	else if (strcmp(what, "step") == 0) {
		void *args[] = {&surface};
		CHECK(cuLaunchKernel(step, H, 1, 1, W, 1, 1, 0, NULL, args, NULL));
		puts("stepped");
	} else if (strcmp(what, "show") == 0)
		show();
	else if (strcmp(what, "errors") == 0)
		errors();
	else if (strcmp(what, "drop") == 0)
		drop();
}

int main(void) {
	CUcontext context;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, kernels));
	CHECK(cuModuleGetFunction(&sample, module, "sample"));
	CHECK(cuModuleGetFunction(&step, module, "step"));
	CHECK(cuModuleGetFunction(&level, module, "level"));
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	char line[256], what[64];
	while (fgets(line, sizeof line, stdin) != NULL)
		if (sscanf(line, "%63s", what) == 1)
			obey(what);
	puts("right");
	return 0;
}
