/* Listing 5-1 of the paper: two elements, one on a CPU and one on a GPU, add a half of two vectors
 * each. The element on the GPU launches a kernel on memory that IVM maps.
 *
 *     muster run --nodes b -- ./vectoradd [NODE OF THE GPU]
 *
 * The puts are as the listing has them: the first names more than its own half. Only what changed
 * moves, so nothing is overwritten. */
#include <cuda.h>
#include <ivm.h>
#include <stdio.h>
#include <stdlib.h>

#define VECSIZE 5000

static int *vecA, *vecB, *vecC;
static const int vec_size = VECSIZE * sizeof(int);

static const char add[] =
	".version 6.0\n.target sm_50\n.address_size 64\n"
	".visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)\n{\n"
	"  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n"
	"  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;\n"
	"  mad.lo.s32 %r3, %r0, %r1, %r2;\n"
	"  ld.param.u32 %r4, [pn]; setp.ge.u32 %p, %r3, %r4; @%p ret;\n"
	"  ld.param.u64 %rd0, [pa]; ld.param.u64 %rd1, [pb]; ld.param.u64 %rd2, [pc];\n"
	"  mul.wide.u32 %rd3, %r3, 4;\n"
	"  add.s64 %rd4, %rd0, %rd3; add.s64 %rd5, %rd1, %rd3; add.s64 %rd6, %rd2, %rd3;\n"
	"  ld.global.u32 %r5, [%rd4]; ld.global.u32 %r6, [%rd5]; add.s32 %r7, %r5, %r6; st.global.u32 [%rd6], %r7;\n"
	"  ret;\n}\n";

static void must(int result, const char *what)
{
	if (result != 0) {
		fprintf(stderr, "vectoradd: %s: %d %s\n", what, result, ivmLastError());
		exit(1);
	}
}
#define MUST(call) must(call, #call)

static void vectorAddGPU(int start, int end)
{
	CUmodule module;
	CUfunction function;
	int *a = vecA + start, *b = vecB + start, *c = vecC + start;
	unsigned n = end - start;
	void *parameters[] = {&a, &b, &c, &n};
	MUST(cuModuleLoadData(&module, add));
	MUST(cuModuleGetFunction(&function, module, "add"));
	MUST(cuLaunchKernel(function, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL));
	MUST(cuCtxSynchronize());
}

static void vectorAdd(int start, int end)
{
	int type;
	MUST(ivmGetMyDevType(&type));
	if (type == IVM_GPU) {
		vectorAddGPU(start, end);
		return;
	}
	for (int i = start; i < end; i++)
		vecC[i] = vecA[i] + vecB[i];
}

int main(int argc, char **argv)
{
	int id, gid;
	int where = argc > 1 ? atoi(argv[1]) : 0;
	MUST(ivmEnter());
	MUST(ivmGetMyId(&id));
	MUST(ivmGetMyGroupId(&gid));
	if (id == 0) {
		ivm_device d[2];
		ivm_pe pe[2];
		MUST(ivmMalloc("VECA", &vecA, vec_size));
		MUST(ivmMalloc("VECB", &vecB, vec_size));
		MUST(ivmMalloc("VECC", &vecC, vec_size));
		for (int i = 0; i < VECSIZE; i++)
			vecA[i] = i, vecB[i] = 3 * i;
		MUST(ivmCreateDev(0, IVM_CPU, &d[0]));
		MUST(ivmCreateDev(where, IVM_GPU_0, &d[1]));
		MUST(ivmCreatePEs(d[0], 1, &pe[0]));
		MUST(ivmCreatePEs(d[1], 1, &pe[1]));
		MUST(ivmWait(pe[0]));
		MUST(ivmWait(pe[1]));
		for (int i = 0; i < VECSIZE; i++)
			if (vecC[i] != 4 * i) {
				printf("FAIL: value %d is %d\n", i, vecC[i]);
				exit(1);
			}
		printf("PASS\n");
	} else {
		int start_pos = (id - 1) * 2500, end_pos = start_pos + 2500;
		MUST(ivmMap("VECA", &vecA, 2500));
		MUST(ivmMap("VECB", &vecB, 2500));
		MUST(ivmMap("VECC", &vecC, 2500));
		vectorAdd(start_pos, end_pos);
		MUST(ivmSyncPut(&vecC[start_pos], vec_size));
		MUST(ivmSignal());
	}
	MUST(ivmExit());
	return 0;
}
