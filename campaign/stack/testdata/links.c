// A program that links kernels of several PTX texts: see main.
#include "kernels.h"

#include <fcntl.h>

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

// run(p): *p = twice(offset + own(7)); what it calls is elsewhere.
static const char caller[] = HEAD
    ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
    ".extern .global .align 4 .u32 offset;\n"
    ".func (.param .b32 r) own(.param .b32 x) { .reg .b32 %r<3>; ld.param.u32 %r0, [x]; add.u32 %r1, %r0, 1; st.param.b32 [r], %r1; ret; }\n"
    ".visible .entry run(.param .u64 p) {\n"
    "  .reg .b32 %r<6>; .reg .b64 %d<2>;\n"
    "  mov.u32 %r0, 7;\n"
    "  { .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call.uni (b), own, (a); ld.param.b32 %r1, [b]; }\n"
    "  ld.global.u32 %r2, [offset]; add.u32 %r3, %r1, %r2;\n"
    "  { .param .b32 a; st.param.b32 [a], %r3; .param .b32 b; call.uni (b), twice, (a); ld.param.b32 %r4, [b]; }\n"
    "  ld.param.u64 %d0, [p]; st.global.u32 [%d0], %r4; ret;\n}\n";

// It has an own of its own, that is another.
static const char callee[] = HEAD
    ".visible .global .align 4 .u32 offset = 100;\n"
    ".func (.param .b32 r) own(.param .b32 x) { .reg .b32 %r<3>; ld.param.u32 %r0, [x]; mul.lo.u32 %r1, %r0, 2; st.param.b32 [r], %r1; ret; }\n"
    ".visible .func (.param .b32 r) twice(.param .b32 x) {\n"
    "  .reg .b32 %r<3>; ld.param.u32 %r0, [x];\n"
    "  { .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call.uni (b), own, (a); ld.param.b32 %r1, [b]; }\n"
    "  st.param.b32 [r], %r1; ret;\n}\n";

static char errors[4096], infos[4096];

static CUlinkState begin(void) {
	static CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
	                                 CU_JIT_WALL_TIME, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_MAX_REGISTERS};
	static void *values[7];
	values[0] = errors, values[1] = (void *)sizeof errors, values[2] = infos, values[3] = (void *)sizeof infos, values[5] = (void *)3, values[6] = (void *)32;
	CUlinkState state;
	CHECK(cuLinkCreate(7, options, values, &state));
	return state;
}

static CUresult add(CUlinkState state, const char *text, const char *name) {
	return cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, name, 0, NULL, NULL);
}

static CUdeviceptr result;

// Loads an image and runs its kernel, with what is written to offset before.
static unsigned run(const void *image, unsigned offset) {
	CUmodule module;
	CUfunction f;
	CUdeviceptr at;
	size_t size;
	unsigned v;
	void *args[] = {&result};
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&f, module, "run"));
	CHECK(cuModuleGetGlobal(&at, &size, module, "offset"));
	NEED(size == 4);
	CHECK(cuMemcpyHtoD(at, &offset, 4));
	CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	CHECK(cuMemcpyDtoH(&v, result, 4));
	CHECK(cuModuleUnload(module));
	return v;
}

static void right(const char *file) {
	void *image, *again;
	size_t size, length;
	CUlinkState state = begin();
	CHECK(add(state, caller, "caller"));
	CHECK(add(state, callee, "callee"));
	CHECK(cuLinkComplete(state, &image, &size));
	NEED(errors[0] == 0 && size > 0);
	NEED(run(image, 5) == 2 * (5 + 8));
	// What was made is an input, too; files are as good as memory.
	int out = open(file, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	NEED(out >= 0 && write(out, image, size) == (ssize_t)size && close(out) == 0);
	CHECK(cuLinkDestroy(state));
	state = begin();
	CHECK(cuLinkAddFile(state, CU_JIT_INPUT_CUBIN, file, 0, NULL, NULL));
	CHECK(add(state, HEAD ".visible .entry more() { ret; }\n", "more"));
	CHECK(cuLinkComplete(state, &again, &length));
	NEED(run(again, 1) == 2 * (1 + 8));
	CHECK(cuLinkDestroy(state));
	CUmodule module;
	CHECK(cuModuleLoad(&module, file));
	CHECK(cuModuleUnload(module));
	// Many.
	state = begin();
	CHECK(add(state, callee, "callee"));
	for (int i = 0; i < 200; i++) {
		char text[200];
		snprintf(text, sizeof text, HEAD ".func own() { ret; }\n.visible .entry k%d() { call.uni own, (); ret; }\n", i);
		CHECK(add(state, text, NULL));
	}
	CHECK(add(state, caller, "caller"));
	CHECK(cuLinkComplete(state, &image, &size));
	NEED(run(image, 2) == 2 * (2 + 8));
	CHECK(cuLinkDestroy(state));
	// None.
	state = begin();
	CHECK(cuLinkComplete(state, &image, &size));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuLinkDestroy(state));
	puts("right");
}

static void say(const char *what, CUresult r) {
	const char *name = NULL;
	cuGetErrorName(r, &name);
	printf("%s: %s: %s\n", what, name != NULL ? name : "an error without a name", errors);
	errors[0] = 0;
}

static void wrong(void) {
	void *image;
	size_t size;
	CUlinkState state = begin();
	say("syntax", add(state, HEAD "nonsense", "bad.ptx"));
	say("version", add(state, ".version 99.0\n.target sm_70\n.address_size 64\n", "new.ptx"));
	say("alone", add(state, caller, "caller.ptx"));
	say("undefined", cuLinkComplete(state, &image, &size));
	say("later", add(state, callee, "callee.ptx"));
	say("defined", cuLinkComplete(state, &image, &size));
	CHECK(cuLinkDestroy(state));
	state = begin();
	CHECK(add(state, callee, "one.ptx"));
	CUresult r = add(state, callee, "two.ptx");
	say("twice", r != CUDA_SUCCESS ? r : cuLinkComplete(state, &image, &size));
	CHECK(cuLinkDestroy(state));
	state = begin();
	char object[64] = "!<arch>\n";
	r = cuLinkAddData(state, CU_JIT_INPUT_LIBRARY, object, sizeof object, "lib.a", 0, NULL, NULL);
	say("library", r != CUDA_SUCCESS ? r : cuLinkComplete(state, &image, &size));
	say("kind", cuLinkAddData(state, 77, object, sizeof object, "x", 0, NULL, NULL));
	say("garbage", cuLinkAddData(state, CU_JIT_INPUT_CUBIN, "\177ELF", 4, "x", 0, NULL, NULL));
	say("nothing", cuLinkAddData(state, CU_JIT_INPUT_PTX, NULL, 4, "x", 0, NULL, NULL));
	CHECK(cuLinkDestroy(state));
}

int main(int argc, char **argv) {
	CUdevice device;
	CUcontext context;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuMemAlloc(&result, 4));
	if (argc > 2 && strcmp(argv[1], "right") == 0)
		right(argv[2]);
	else if (argc > 1 && strcmp(argv[1], "wrong") == 0)
		wrong();
	else
		return 2;
	return 0;
}
