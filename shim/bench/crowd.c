// Programs with small kernels that share a GPU.
//
//   crowd rate N SECONDS [HOW]   N programs at once: how many kernels a second all of them run, as
//                            a line of JSON
//   crowd steady SECONDS     one such program, which fails if a kernel ran twice or not at all
//   crowd fault SECONDS      one that after a time launches a kernel that writes where it must
//                            not; it fails if it is not told of that
//
// It runs on NVIDIA's library and on Muster's. What happens is told on the standard error.
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call) \
	do { \
		CUresult r_ = (call); \
		if (r_ != CUDA_SUCCESS) { \
			fprintf(stderr, "crowd: %d: %s: error %d\n", (int)getpid(), #call, (int)r_); \
			_exit(1); \
		} \
	} while (0)

// spin counts to n in every thread; the first thread then adds 1 to a word.
static const char image[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
			    ".visible .entry spin(.param .u64 at, .param .u32 n)\n{\n"
			    "\t.reg .u64 %a;\n\t.reg .u32 %i, %n, %x, %t, %b;\n\t.reg .pred %p;\n"
			    "\tld.param.u64 %a, [at];\n\tld.param.u32 %n, [n];\n"
			    "\tmov.u32 %i, 0;\n\tmov.u32 %x, 1;\n\tmov.u32 %t, %tid.x;\n\tmov.u32 %b, %ctaid.x;\n"
			    "again:\n"
			    "\tmad.lo.u32 %x, %x, 1664525, %t;\n"
			    "\tadd.u32 %i, %i, 1;\n\tsetp.lt.u32 %p, %i, %n;\n\t@%p bra again;\n"
			    "\tor.b32 %t, %t, %b;\n\tsetp.ne.u32 %p, %t, 0;\n\t@%p ret;\n"
			    "\tand.b32 %x, %x, 0;\n\tadd.u32 %x, %x, 1;\n"
			    "\tred.global.add.u32 [%a], %x;\n\tret;\n}\n";

static CUfunction spin;
static CUdeviceptr word;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void launch(CUdeviceptr at, uint32_t n) {
	void *params[] = {&at, &n};
	CHECK(cuLaunchKernel(spin, 8, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
}

static void begin(void) {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	CHECK(cuMemAlloc(&word, 4096));
	CHECK(cuMemsetD8(word, 0, 4096));
	CHECK(cuCtxSynchronize());
}

// Finds how far to count so that a kernel takes about 14 us.
static uint32_t calibrate(void) {
	uint32_t n = 64;
	for (int i = 0; i < 12; i++) {
		enum { MANY = 200 };
		launch(word, n);
		CHECK(cuCtxSynchronize());
		double from = now();
		for (int k = 0; k < MANY; k++)
			launch(word, n);
		CHECK(cuCtxSynchronize());
		double each = (now() - from) / MANY;
		if (each > 11e-6 && each < 17e-6)
			break;
		double factor = 14e-6 / each;
		n = (uint32_t)((double)n * (factor > 4 ? 4 : factor < 0.25 ? 0.25 : factor)) + 1;
		if (n < 2 || n > 1u << 20)
			break;
	}
	CHECK(cuMemsetD8(word, 0, 4096));
	CHECK(cuCtxSynchronize());
	return n;
}

// Runs kernels for a time; returns how many. All of them must have run once.
static uint64_t run(double seconds, uint32_t n) {
	enum { BURST = 64 };
	uint64_t done = 0;
	for (double end = now() + seconds; now() < end;) {
		for (int i = 0; i < BURST; i++)
			launch(word, n);
		CHECK(cuCtxSynchronize());
		done += BURST;
	}
	uint32_t counted = 0;
	CHECK(cuMemcpyDtoH(&counted, word, sizeof counted));
	if (counted != (uint32_t)done) {
		fprintf(stderr, "crowd: %d: %llu kernels were launched, and %u ran\n", (int)getpid(), (unsigned long long)done, counted);
		_exit(1);
	}
	return done;
}

struct board {
	volatile int ready, failed;
	volatile uint32_t n;
	volatile double rate[64];
};

static int rate(int programs, double seconds, const char *how) {
	struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("crowd: mmap");
		return 1;
	}
	for (int i = 0; i < programs; i++) {
		if (fork() != 0)
			continue;
		begin();
		if (i == 0)
			board->n = calibrate(); // alone: the others wait
		while (board->n == 0 && !board->failed)
			usleep(1000);
		__sync_fetch_and_add(&board->ready, 1);
		while (board->ready < programs && !board->failed)
			usleep(1000);
		if (board->failed)
			_exit(1);
		double from = now();
		uint64_t done = run(seconds, board->n);
		board->rate[i] = (double)done / (now() - from);
		_exit(0);
	}
	double sum = 0;
	int status = 0, bad = 0;
	for (int i = 0; i < programs; i++)
		if (wait(&status) < 0 || status != 0)
			bad = board->failed = 1;
	for (int i = 0; i < programs; i++) {
		fprintf(stderr, "crowd: program %d: %.0f kernels a second, counting to %u\n", i, board->rate[i], board->n);
		sum += board->rate[i];
	}
	if (bad)
		return 1;
	printf("{\"name\": \"%d programs with small kernels%s: kernels\", \"unit\": \"k/s\", \"median\": %.4g, \"least\": %.4g, \"most\": %.4g, \"rounds\": 1}\n", programs, how, sum / 1e3, sum / 1e3, sum / 1e3);
	return 0;
}

static int fault(double seconds) {
	begin();
	run(seconds, 500);
	launch(word, 500);
	launch(0x10, 500);
	CUresult r = cuCtxSynchronize();
	fprintf(stderr, "crowd: %d: after a write to where nothing is: %d\n", (int)getpid(), (int)r);
	return r != CUDA_ERROR_ILLEGAL_ADDRESS;
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	double x = argc > 2 ? atof(argv[2]) : 0, y = argc > 3 ? atof(argv[3]) : 0;
	if (strcmp(what, "rate") == 0 && x >= 1 && x <= 64 && y > 0)
		return rate((int)x, y, argc > 4 ? argv[4] : "");
	if (strcmp(what, "steady") == 0 && x > 0) {
		begin();
		fprintf(stderr, "crowd: %d: %llu kernels, all of them once\n", (int)getpid(), (unsigned long long)run(x, 500));
		return 0;
	}
	if (strcmp(what, "fault") == 0 && x > 0)
		return fault(x);
	fprintf(stderr, "crowd: say rate N SECONDS [HOW], steady SECONDS or fault SECONDS\n");
	return 2;
}
