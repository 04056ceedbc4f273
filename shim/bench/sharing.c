// How fairly programs share a GPU, as they see it themselves. Each figure is a line of JSON.
//
//   sharing turns MIB SECONDS    two programs of MIB each, always busy: how much of the time is
//                                spent in kernels, and how long a program waited at most
//   sharing latency SECONDS [US [SMALL LARGE]]
//                                requests of 20 small kernels, one each 2 ms: alone, beside a
//                                program whose kernels fill the GPU for US (100) microseconds
//                                each, and the same with the classes latency and batch
//   sharing alone SECONDS [US]   the first two of these, for a driver that knows no classes
//
// How far kernels count is found out, unless SMALL and LARGE say it: the same in all ways makes
// their times comparable. The lines "counts to" on the standard error have what was found out.
//
// It runs on NVIDIA's library and on Muster's, which reads MUSTER_CLASS. What happens is told
// on the standard error.
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *role = "sharing"; // of this process, for what it says

static void failed(void); // tells the others, and ends

#define CHECK(call) \
	do { \
		CUresult r_ = (call); \
		if (r_ != CUDA_SUCCESS) { \
			fprintf(stderr, "%s: %s: error %d\n", role, #call, (int)r_); \
			failed(); \
		} \
	} while (0)

// spin computes n times something in every thread, whose result counts, so that no compiler
// leaves it out; the first thread then adds 1 to a word.
static const char image[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
			    ".visible .entry spin(.param .u64 at, .param .u32 n)\n{\n"
			    "\t.reg .u64 %a;\n\t.reg .u32 %i, %n, %x, %t, %b;\n\t.reg .pred %p;\n"
			    "\tld.param.u64 %a, [at];\n\tld.param.u32 %n, [n];\n"
			    "\tmov.u32 %i, 0;\n\tmov.u32 %x, 1;\n\tmov.u32 %t, %tid.x;\n\tmov.u32 %b, %ctaid.x;\n"
			    "again:\n"
			    "\tmad.lo.u32 %x, %x, 1664525, %t;\n"
			    "\tadd.u32 %i, %i, 1;\n\tsetp.lt.u32 %p, %i, %n;\n\t@%p bra again;\n"
			    "\tsetp.eq.u32 %p, %x, 123456789;\n\t@%p st.global.u32 [%a+4], %x;\n"
			    "\tor.b32 %t, %t, %b;\n\tsetp.ne.u32 %p, %t, 0;\n\t@%p ret;\n"
			    "\tred.global.add.u32 [%a], 1;\n\tret;\n}\n";

static CUfunction spin;
static CUdeviceptr word;
static unsigned processors;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void until(double at) {
	double rest = at - now();
	if (rest > 0)
		nanosleep(&(struct timespec){(time_t)rest, (long)((rest - (double)(time_t)rest) * 1e9)}, NULL);
}

static void figure(const char *name, const char *unit, double value) {
	printf("{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, \"least\": %.4g, \"most\": %.4g, \"rounds\": 1}\n", name, unit, value, value, value);
	fflush(stdout);
}

static void begin(void) {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	int count = 0;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&spin, module, "spin"));
	processors = count > 0 ? (unsigned)count : 1;
}

static void launch(unsigned blocks, unsigned threads, uint32_t n) {
	void *params[] = {&word, &n};
	CHECK(cuLaunchKernel(spin, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL));
}

// Seconds that a kernel takes, launched and waited for; the least of some.
static double once(unsigned blocks, unsigned threads, uint32_t n, int tries) {
	double best = 1e9;
	for (int i = 0; i < tries; i++) {
		double start = now();
		launch(blocks, threads, n);
		CHECK(cuCtxSynchronize());
		double took = now() - start;
		if (took < best)
			best = took;
	}
	return best;
}

// Finds how far a kernel must count to take so many seconds beyond an empty one.
static uint32_t count_for(double seconds, unsigned blocks, unsigned threads) {
	double empty = once(blocks, threads, 1, 5);
	double n = 64;
	for (int i = 0; i < 12; i++) {
		double took = once(blocks, threads, (uint32_t)n, 3) - empty;
		if (took > 0.8 * seconds && took < 1.25 * seconds)
			break;
		double factor = took > 0 ? seconds / took : 8;
		n *= factor > 8 ? 8 : factor < 0.125 ? 0.125 : factor;
		if (n < 1)
			n = 1;
		if (n > 4e9)
			n = 4e9;
	}
	return (uint32_t)n;
}

// What the processes of one measurement share.
struct board {
	volatile int ready, go, stop, failed;
	volatile uint64_t kernels[2];
	volatile double inside[2], wait[2], first[2], last[2];
};
static struct board *board;

static void failed(void) {
	if (board != NULL)
		board->failed = 1;
	_exit(1);
}

// Kernels of all measurements are the same: what was found out is kept.
static volatile uint32_t *known;

static void new_board(void) {
	if (known == NULL) {
		known = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (known == MAP_FAILED) {
			perror("sharing: mmap");
			exit(1);
		}
	}
	board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("sharing: mmap");
		exit(1);
	}
	memset(board, 0, sizeof *board);
}

// Waits until all are ready.
static void meet(int all) {
	__sync_fetch_and_add(&board->ready, 1);
	while (board->ready < all && !board->failed)
		usleep(1000);
	if (board->failed)
		_exit(1);
}

// Runs a part in a process of its own, with a class. It must be called before CUDA is used.
static pid_t part(const char *name, const char *class, void (*f)(int), int number) {
	fflush(stdout);
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	role = name;
	if (class != NULL)
		setenv("MUSTER_CLASS", class, 1);
	f(number);
	fflush(stdout);
	_exit(0);
}

static bool ended_well(pid_t pid) {
	int status = 0;
	bool well = waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
	if (!well) {
		board->failed = 1;
		fprintf(stderr, "sharing: a part has failed (status %#x)\n", (unsigned)status);
	}
	return well;
}

// --- turns ---------------------------------------------------------------------------

static size_t held;
static double seconds;

// A program that is always busy: kernels of a millisecond, eight launched at a time.
static void busy(int number) {
	enum { BURST = 8 };
	begin();
	CHECK(cuMemAlloc(&word, held));
	double start = now();
	CHECK(cuMemsetD8(word, 0, held));
	CHECK(cuCtxSynchronize());
	unsigned blocks = 2 * processors, threads = 128;
	uint32_t n = count_for(1e-3, blocks, threads);
	double kernel = 1e9; // of many in a row, so that what a call costs is not counted
	for (int i = 0; i < 3; i++) {
		double from = now();
		for (int k = 0; k < 2 * BURST; k++)
			launch(blocks, threads, n);
		CHECK(cuCtxSynchronize());
		double took = (now() - from) / (2 * BURST);
		if (took < kernel)
			kernel = took;
	}
	fprintf(stderr, "%s: ready after %.2f s, a kernel takes %.3f ms\n", role, now() - start, kernel * 1e3);
	CHECK(cuMemsetD32(word, 0, 1));
	CHECK(cuCtxSynchronize());
	meet(2);
	uint64_t done = 0;
	double longest = 0, inside = 0, first = now(), last = first;
	while (now() - first < seconds) {
		for (int i = 0; i < BURST; i++)
			launch(blocks, threads, n);
		CHECK(cuCtxSynchronize());
		double t = now();
		done += BURST;
		double gap = t - last - BURST * kernel;
		inside += gap > 0.05 ? BURST * kernel : t - last; // else it is noise
		if (gap > 0.25)
			fprintf(stderr, "%s: waited %.2f s, at %.2f s\n", role, gap, t - first);
		if (gap > longest)
			longest = gap;
		last = t;
	}
	uint32_t counted = 0;
	CHECK(cuMemcpyDtoH(&counted, word, sizeof counted));
	if (counted != (uint32_t)done) {
		fprintf(stderr, "%s: %llu kernels ran, and the memory says %u\n", role, (unsigned long long)done, counted);
		failed();
	}
	board->kernels[number] = done;
	board->inside[number] = inside;
	board->wait[number] = longest;
	board->first[number] = first;
	board->last[number] = last;
}

static int turns(void) {
	new_board();
	pid_t a = part("first", NULL, busy, 0), b = part("second", NULL, busy, 1);
	bool well = ended_well(a);
	well = ended_well(b) && well;
	if (!well)
		return 1;
	double span = board->last[0] > board->last[1] ? board->last[0] : board->last[1];
	span -= board->first[0] < board->first[1] ? board->first[0] : board->first[1];
	double inside[2] = {board->inside[0], board->inside[1]};
	double least = inside[0] < inside[1] ? inside[0] : inside[1];
	figure("two programs that do not fit together: time in kernels", "%", 100 * (inside[0] + inside[1]) / span);
	figure("two programs that do not fit together: longest wait", "s", board->wait[0] > board->wait[1] ? board->wait[0] : board->wait[1]);
	figure("two programs that do not fit together: the smaller share", "%", 100 * least / (inside[0] + inside[1]));
	return 0;
}

// --- latency -------------------------------------------------------------------------

static double filling = 100e-6;
static bool beside; // another program fills the GPU

static int by_size(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

// The program that fills the GPU, until it is told to stop.
static void filler(int number) {
	enum { BURST = 32 };
	begin();
	CHECK(cuMemAlloc(&word, 4096));
	unsigned blocks = 8 * processors, threads = 256;
	if (known[1] == 0)
		known[1] = count_for(filling, blocks, threads);
	uint32_t n = known[1];
	fprintf(stderr, "%s: counts to %u for %.0f us\n", role, n, once(blocks, threads, n, 5) * 1e6);
	meet(beside ? 2 : 1);
	double first = now(), end = first + seconds;
	uint64_t done = 0;
	while (beside ? !board->stop : now() < end) {
		for (int i = 0; i < BURST; i++)
			launch(blocks, threads, n);
		CHECK(cuCtxSynchronize());
		done += BURST;
	}
	board->kernels[number] = done;
	board->first[number] = first;
	board->last[number] = now();
}

// The program that answers requests.
static void server(int number) {
	enum { KERNELS = 20, MOST = 1 << 20 };
	(void)number;
	begin();
	CHECK(cuMemAlloc(&word, 4096));
	if (known[0] == 0)
		known[0] = count_for(5e-6, 8, 128);
	uint32_t n = known[0];
	fprintf(stderr, "%s: counts to %u\n", role, n);
	static double took[MOST];
	int count = 0;
	meet(beside ? 2 : 1);
	double start = now();
	for (double at = start + 0.2; at < start + seconds && count < MOST; at += 2e-3) {
		until(at);
		double from = now();
		if (from > at + 2e-3) // late: requests do not wait for each other
			at = from;
		for (int i = 0; i < KERNELS; i++)
			launch(8, 128, n);
		CHECK(cuCtxSynchronize());
		took[count++] = now() - from;
	}
	board->stop = 1;
	if (count == 0)
		_exit(1);
	qsort(took, (size_t)count, sizeof *took, by_size);
	board->wait[0] = took[count / 2];
	board->wait[1] = took[count - 1 - count / 100];
	fprintf(stderr, "%s: %d requests, p50 %.0f us, p90 %.0f us, p99 %.0f us, the longest", role, count, took[count / 2] * 1e6, took[count - 1 - count / 10] * 1e6, took[count - 1 - count / 100] * 1e6);
	for (int i = count > 12 ? count - 12 : 0; i < count; i++)
		fprintf(stderr, " %.0f", took[i] * 1e6);
	fprintf(stderr, " us\n");
}

static double rate(void) { return (double)board->kernels[1] / (board->last[1] - board->first[1]); }

// A server, alone or beside a filler; returns how many kernels a second that ran.
static bool serve(const char *how, const char *of_server, const char *of_filler, double *kernels) {
	char name[128];
	beside = kernels != NULL;
	new_board();
	pid_t other = beside ? part("filler", of_filler, filler, 1) : 0;
	pid_t server_pid = part("server", of_server, server, 0);
	bool well = ended_well(server_pid);
	board->stop = 1;
	if (beside)
		well = ended_well(other) && well;
	if (!well)
		return false;
	snprintf(name, sizeof name, "20 small kernels each 2 ms, %s: p50", how);
	figure(name, "us", board->wait[0] * 1e6);
	snprintf(name, sizeof name, "20 small kernels each 2 ms, %s: p99", how);
	figure(name, "us", board->wait[1] * 1e6);
	if (kernels != NULL)
		*kernels = rate();
	return true;
}

static int latency(bool classes) {
	double alone, shared, batch;
	beside = false;
	new_board();
	if (!ended_well(part("filler", NULL, filler, 1)))
		return 1;
	alone = rate();
	if (!serve("alone", NULL, NULL, NULL) || !serve("beside another", NULL, NULL, &shared))
		return 1;
	figure("the other beside it: speed kept", "%", 100 * shared / alone);
	if (!classes)
		return 0;
	if (!serve("alone, class latency", "latency", NULL, NULL) || !serve("beside, classes", "latency", "batch", &batch))
		return 1;
	figure("the other beside it, classes: speed kept", "%", 100 * batch / alone);
	return 0;
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	double x = argc > 2 ? atof(argv[2]) : 0, y = argc > 3 ? atof(argv[3]) : 0;
	if (strcmp(what, "turns") == 0 && x >= 1 && y > 0) {
		held = (size_t)x << 20;
		seconds = y;
		return turns();
	}
	seconds = x;
	if (y > 0)
		filling = y * 1e-6;
	if (argc > 5) {
		new_board();
		known[0] = (uint32_t)atoi(argv[4]);
		known[1] = (uint32_t)atoi(argv[5]);
	}
	if (strcmp(what, "latency") == 0 && x > 0)
		return latency(true);
	if (strcmp(what, "alone") == 0 && x > 0)
		return latency(false);
	fprintf(stderr, "sharing: say turns MIB SECONDS, latency SECONDS [US] or alone SECONDS [US]\n");
	return 2;
}
