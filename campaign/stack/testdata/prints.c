// A program whose kernels print, or have assertions that do not hold: see main.
#include "kernels.h"

#include <fcntl.h>
#include <sys/mman.h>

// say(n) prints "kernel n"; doubt(limit) asserts in each thread that its number is below
// the limit, as nvcc compiles it.
static const char printing[] =
    ".version 6.5\n.target sm_70\n.address_size 64\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
    ".global .align 1 .b8 format[11] = {107, 101, 114, 110, 101, 108, 32, 37, 117, 10, 0};\n"                          // kernel %u
    ".global .align 1 .b8 message[13] = {103, 116, 105, 100, 32, 60, 32, 108, 105, 109, 105, 116, 0};\n"               // gtid < limit
    ".global .align 1 .b8 file[9] = {100, 111, 117, 98, 116, 46, 99, 117, 0};\n"                                       // doubt.cu
    ".global .align 1 .b8 function[12] = {118, 111, 105, 100, 32, 100, 111, 117, 98, 116, 40, 0};\n"                   // void doubt(
    ".visible .entry say(.param .u32 n) {\n"
    "  .local .align 8 .b8 stack[8]; .reg .b32 %r<3>; .reg .b64 %d<4>;\n"
    "  ld.param.u32 %r0, [n]; mov.u64 %d0, stack; st.local.u32 [%d0], %r0; cvta.local.u64 %d1, %d0;\n"
    "  mov.u64 %d2, format; cvta.global.u64 %d3, %d2;\n"
    "  { .param .b64 p0; st.param.b64 [p0], %d3; .param .b64 p1; st.param.b64 [p1], %d1; .param .b32 back;\n"
    "    call.uni (back), vprintf, (p0, p1); ld.param.b32 %r1, [back]; }\n"
    "  ret;\n}\n"
    ".visible .entry doubt(.param .u32 limit) {\n"
    "  .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<8>;\n"
    "  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r0, %r1, %r2;\n"
    "  ld.param.u32 %r4, [limit]; setp.lt.u32 %q, %r3, %r4; @%q bra fine;\n"
    "  mov.u64 %d0, message; cvta.global.u64 %d1, %d0; mov.u64 %d2, file; cvta.global.u64 %d3, %d2;\n"
    "  mov.u64 %d4, function; cvta.global.u64 %d5, %d4; mov.u32 %r5, 42; mov.u64 %d6, 1;\n"
    "  { .param .b64 p0; st.param.b64 [p0], %d1; .param .b64 p1; st.param.b64 [p1], %d3; .param .b32 p2; st.param.b32 [p2], %r5;\n"
    "    .param .b64 p3; st.param.b64 [p3], %d5; .param .b64 p4; st.param.b64 [p4], %d6;\n"
    "    call.uni __assertfail, (p0, p1, p2, p3, p4); }\n"
    "fine: ret;\n}\n";

static CUcontext context;
static CUmodule module;

static CUfunction kernel(const char *name) {
	CUfunction f;
	CHECK(cuModuleGetFunction(&f, module, name));
	return f;
}

static void start(void) {
	CUdevice device;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, printing));
}

static void say(unsigned n) {
	void *args[] = {&n};
	CHECK(cuLaunchKernel(kernel("say"), 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
}

// Two blocks of 32 threads, of which the last four are wrong.
static void doubt(void) {
	unsigned limit = 60;
	void *args[] = {&limit};
	CHECK(cuLaunchKernel(kernel("doubt"), 2, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
}

static void fails(void) {
	CUdeviceptr p;
	say(1);
	CHECK(cuCtxSynchronize());
	doubt();
	NEED(cuCtxSynchronize() == CUDA_ERROR_ASSERT);
	NEED(cuCtxSynchronize() == CUDA_ERROR_ASSERT);
	NEED(cuMemAlloc(&p, 4) == CUDA_ERROR_ASSERT);
	cuCtxDestroy(context);
	start(); // the next one is as good as new
	say(2);
	CHECK(cuCtxSynchronize());
}

// A call that waits for nothing is the first to fail; its user knows why by then.
static void fails_anywhere(void) {
	CUdeviceptr p;
	CUresult result;
	doubt();
	do
		result = cuMemAlloc(&p, 4);
	while (result == CUDA_SUCCESS && (result = cuMemFree(p)) == CUDA_SUCCESS);
	NEED(result == CUDA_ERROR_ASSERT);
	fputs("then that\n", stderr);
}

// Standard output is another file from one kernel to the next; what the program prints
// itself is in order with it.
static void redirect(const char *first, const char *second) {
	int ends[2];
	say(1);
	printf("program 1\n");
	CHECK(cuCtxSynchronize());
	printf("program 2\n");
	fflush(stdout);
	int before = dup(1), to = open(first, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	NEED(to >= 0 && dup2(to, 1) == 1);
	say(3);
	CHECK(cuCtxSynchronize());
	printf("program 3\n");
	fflush(stdout);
	NEED(pipe(ends) == 0 && dup2(ends[1], 1) == 1);
	say(4);
	CHECK(cuStreamSynchronize(NULL));
	char text[64] = {0};
	NEED(read(ends[0], text, sizeof text - 1) > 0 && strcmp(text, "kernel 4\n") == 0);
	NEED(dup2(before, 1) == 1);
	say(5);
	CHECK(cuCtxSynchronize());
	NEED(freopen(second, "w", stdout) != NULL);
	say(6);
	CHECK(cuCtxSynchronize());
	printf("program 6\n");
}

// A launch, too, writes what kernels have printed before it.
static void launches(void) {
	int file = memfd_create("out", 0);
	NEED(file >= 0 && dup2(file, 1) == 1);
	char text[10] = {0};
	while (pread(file, text, sizeof text - 1, 0) == 0)
		say(7);
	NEED(strcmp(text, "kernel 7\n") == 0);
}

// A function in a stream, behind a kernel that prints, while memory is freed.
static void CUDA_CB speak(void *text) { fputs(text, stdout); }

static void freeing(void) {
	static sem_t gone_on;
	CUdeviceptr other;
	sem_init(&gone_on, 0, 0);
	CHECK(cuMemAlloc(&other, 4 << 20));
	say(1);
	CHECK(cuCtxSynchronize());
	CHECK(cuLaunchHostFunc(NULL, outlast, &gone_on));
	say(2);
	CHECK(cuLaunchHostFunc(NULL, speak, "program 2\n"));
	CHECK(cuMemFree(other));
	sem_post(&gone_on);
	CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	start();
	if (strcmp(what, "fails") == 0)
		fails();
	else if (strcmp(what, "anywhere") == 0)
		fails_anywhere();
	else if (strcmp(what, "redirect") == 0 && argc > 3)
		redirect(argv[2], argv[3]);
	else if (strcmp(what, "launches") == 0)
		launches();
	else if (strcmp(what, "freeing") == 0)
		freeing();
	else
		return 2;
	return 0;
}
