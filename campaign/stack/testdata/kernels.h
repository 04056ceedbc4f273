// What the programs here have in common: kernels, and errors that are told.
#include <cuda.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// add(p, n, v): p[i] += v for i < n. poke(p): *p = 1, wherever that is.
static const char image[] =
    ".version 6.5\n.target sm_70\n.address_size 64\n"
    ".visible .entry add(.param .u64 p, .param .u32 n, .param .u32 v) {\n"
    "  .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<4>;\n"
    "  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;\n"
    "  mad.lo.u32 %r3, %r0, %r1, %r2;\n"
    "  ld.param.u32 %r4, [n]; setp.ge.u32 %q, %r3, %r4; @%q bra end;\n"
    "  ld.param.u64 %d0, [p]; mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %d0, %d1;\n"
    "  ld.param.u32 %r5, [v]; ld.global.u32 %r6, [%d2]; add.u32 %r7, %r6, %r5; st.global.u32 [%d2], %r7;\n"
    "end: ret;\n}\n"
    ".visible .entry poke(.param .u64 p) {\n"
    "  .reg .b32 %r<1>; .reg .b64 %d<1>;\n"
    "  ld.param.u64 %d0, [p]; mov.u32 %r0, 1; st.global.u32 [%d0], %r0; ret;\n}\n";

static inline void check(CUresult result, const char *call, int line) {
	if (result == CUDA_SUCCESS)
		return;
	if (result == CUDA_ERROR_DEINITIALIZED) // another thread is ending the program
		for (;;)
			pause();
	const char *name = NULL;
	cuGetErrorName(result, &name);
	fprintf(stderr, "line %d: %s: %s\n", line, call, name != NULL ? name : "an error without a name");
	exit(1);
}

#define CHECK(call) check(call, #call, __LINE__)
#define NEED(condition)                                                          \
	do {                                                                     \
		if (!(condition)) {                                              \
			fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
			exit(1);                                                 \
		}                                                                \
	} while (0)

// A function for a stream: it returns when the program has posted the semaphore, or after a moment.
// So it returns also where the call that it is to outlast waits for it.
static inline void CUDA_CB outlast(void *semaphore) {
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 200000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (sem_timedwait(semaphore, &until) != 0 && errno == EINTR)
		;
}
