// How fast the node runtime is, as a program sees it. Each figure is a line of
// JSON: the median of several rounds, with the least and the most.
//
//   bench calls          what calls cost
//   bench far            what a few calls cost that wait, and a step as of training: for nodes that are far away
//   bench allocations N  what allocating and freeing cost beside N / 4 and N other allocations, and launches there
//   bench copies         copies of 64 MiB beside memcpy of as many, round by round
//   bench attach N       from cuInit to the first answer of a worker, N programs one after another
//   bench crowd N        N programs at once, until each has run a kernel; then they wait for the end of stdin
//   bench swap MIB [STAYS]  two programs take turns on a device that does not hold both, where
//                        STAYS MiB of each can stay meanwhile
//   bench fills MIB      the same, and each fills its memory first
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call) \
	do { \
		CUresult r_ = (call); \
		if (r_ != CUDA_SUCCESS) { \
			fprintf(stderr, "bench: %s: error %d\n", #call, (int)r_); \
			_exit(1); \
		} \
	} while (0)

static const char kernels[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
			      ".visible .entry nothing()\n{\n\tret;\n}\n"
			      ".visible .entry touch(.param .u64 at)\n{\n"
			      "\t.reg .u64 %a;\n\tld.param.u64 %a, [at];\n\tst.global.u32 [%a], 1;\n\tret;\n}\n";

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, int n) {
	qsort(values, (size_t)n, sizeof *values, by_size);
	return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void report(const char *name, const char *unit, double *values, int n) {
	double middle = median(values, n);
	printf("{\"name\": \"%s\", \"unit\": \"%s\", \"median\": %.4g, \"least\": %.4g, \"most\": %.4g, \"rounds\": %d}\n", name, unit, middle, values[0], values[n - 1], n);
	fflush(stdout);
}

static CUmodule module;
static CUfunction nothing, touch;

static void open_context(void) {
	CUdevice device;
	CUcontext context;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
}

static void open_kernels(void) {
	CHECK(cuModuleLoadData(&module, kernels));
	CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
	CHECK(cuModuleGetFunction(&touch, module, "touch"));
}

static void launch(CUfunction f, void **params) { CHECK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL)); }

// --- calls -------------------------------------------------------------------------

enum { ROUNDS = 25 };

static CUdeviceptr word;
static CUevent event;

static void do_launch(void) { launch(nothing, NULL); }

static CUgraphExec line, fork20, line1000; // graphs of 20 kernels: one behind the other, and beside each other; of 1,000 in line

static void do_20_launches(void) {
	for (int i = 0; i < 20; i++)
		launch(nothing, NULL);
}
static void do_line(void) { CHECK(cuGraphLaunch(line, NULL)); }
static void do_fork(void) { CHECK(cuGraphLaunch(fork20, NULL)); }
static void do_line_1000(void) { CHECK(cuGraphLaunch(line1000, NULL)); }

static CUgraphExec graph_of(int count, bool forked) {
	CUgraph g;
	CUgraphExec x;
	CUgraphNode node, last = NULL;
	const CUDA_KERNEL_NODE_PARAMS p = {.func = nothing, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	CHECK(cuGraphCreate(&g, 0));
	for (int i = 0; i < count; i++, last = forked ? NULL : node)
		CHECK(cuGraphAddKernelNode(&node, g, &last, last != NULL, &p));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuGraphDestroy(g));
	return x;
}

// A graph of kernels in line that is changed before each launch: some of its kernels write to
// another word than the time before.
struct changing {
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode nodes[1000];
	int count, changes;
	CUdeviceptr at;
};

static struct changing one20, one1000, all1000;

static CUDA_KERNEL_NODE_PARAMS touching(void **params) {
	return (CUDA_KERNEL_NODE_PARAMS){.func = touch, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params};
}

static void changing_graph(struct changing *c, int count, int changes) {
	void *params[] = {&c->at};
	const CUDA_KERNEL_NODE_PARAMS p = touching(params);
	c->count = count;
	c->changes = changes;
	CHECK(cuMemAlloc(&c->at, 8));
	CHECK(cuGraphCreate(&c->graph, 0));
	for (int i = 0; i < count; i++)
		CHECK(cuGraphAddKernelNode(&c->nodes[i], c->graph, i > 0 ? &c->nodes[i - 1] : NULL, i > 0, &p));
	CHECK(cuGraphInstantiateWithFlags(&c->exec, c->graph, 0));
}

static void do_changed(struct changing *c) {
	c->at ^= 4;
	void *params[] = {&c->at};
	const CUDA_KERNEL_NODE_PARAMS p = touching(params);
	CUgraphExecUpdateResultInfo info;
	for (int i = 0; i < c->changes; i++)
		CHECK(cuGraphKernelNodeSetParams(c->nodes[i], &p));
	CHECK(cuGraphExecUpdate(c->exec, c->graph, &info));
	CHECK(cuGraphLaunch(c->exec, NULL));
}

static void do_one_of_20(void) { do_changed(&one20); }
static void do_one_of_1000(void) { do_changed(&one1000); }
static void do_all_of_1000(void) { do_changed(&all1000); }

static void do_launch_wait(void) {
	launch(nothing, NULL);
	CHECK(cuCtxSynchronize());
}

static void do_wait(void) { CHECK(cuCtxSynchronize()); }

static void do_in(void) {
	uint32_t value = 1;
	CHECK(cuMemcpyHtoD(word, &value, sizeof value));
}

static void do_out(void) {
	uint32_t value;
	CHECK(cuMemcpyDtoH(&value, word, sizeof value));
}

static void do_query(void) { CHECK(cuStreamQuery(NULL)); }

static void do_record(void) { CHECK(cuEventRecord(event, NULL)); }

static void do_memory(void) {
	CUdeviceptr at;
	CHECK(cuMemAlloc(&at, 1 << 20));
	CHECK(cuMemFree(at));
}

// Microseconds of one call. What was only sent is waited for within the round if
// all is true, and behind it if not.
static void measure(const char *name, void (*call)(void), int calls, bool all) {
	double rounds[ROUNDS];
	for (int r = -2; r < ROUNDS; r++) { // the first two are to warm up
		double start = now();
		for (int i = 0; i < calls; i++)
			call();
		if (all)
			CHECK(cuCtxSynchronize());
		double seconds = now() - start;
		CHECK(cuCtxSynchronize());
		if (r >= 0)
			rounds[r] = seconds / calls * 1e6;
	}
	report(name, "us", rounds, ROUNDS);
}

// Streams of which each has had work: what waits for all of them must not take longer for it.
static void idle_streams(int count) {
	for (int i = 0; i < count; i++) {
		CUstream s;
		CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
		CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
	}
	CHECK(cuCtxSynchronize());
}

static void CUDA_CB on_host(void *unused) { (void)unused; }
static void do_function(void) { CHECK(cuLaunchHostFunc(NULL, on_host, NULL)); }

static void do_function_wait(void) {
	void *params[] = {&word};
	launch(touch, params);
	do_function();
	CHECK(cuCtxSynchronize());
}

static void functions(void) {
	measure("host function until done", do_function, 500, true);
	measure("launch, host function and synchronise", do_function_wait, 100, false);
}

static void only_functions(void) {
	open_context();
	open_kernels();
	CHECK(cuMemAlloc(&word, 4));
	functions();
}

static void calls(void) {
	open_context();
	open_kernels();
	CHECK(cuMemAlloc(&word, 4));
	CHECK(cuEventCreate(&event, 0));
	void *params[] = {&word};
	launch(touch, params);
	CHECK(cuCtxSynchronize());
	measure("launch", do_launch, 2000, false);
	measure("launch until done", do_launch, 20000, true);
	measure("launch and synchronise", do_launch_wait, 500, false);
	line = graph_of(20, false);
	fork20 = graph_of(20, true);
	line1000 = graph_of(1000, false);
	measure("20 launches", do_20_launches, 100, false);
	measure("graph of 20 kernels in line", do_line, 100, false);
	measure("graph of 20 kernels beside each other", do_fork, 100, false);
	measure("20 launches until done", do_20_launches, 500, true);
	measure("graph of 20 kernels in line until done", do_line, 500, true);
	measure("graph of 20 kernels beside each other until done", do_fork, 500, true);
	measure("graph of 1,000 kernels in line until done", do_line_1000, 10, true);
	changing_graph(&one20, 20, 1);
	changing_graph(&one1000, 1000, 1);
	changing_graph(&all1000, 1000, 1000);
	measure("graph of 20 kernels in line, one changed, until done", do_one_of_20, 100, true);
	measure("graph of 1,000 kernels in line, one changed, until done", do_one_of_1000, 5, true);
	measure("graph of 1,000 kernels in line, all changed, until done", do_all_of_1000, 5, true);
	measure("synchronise", do_wait, 1000, false);
	measure("copy 4 bytes in", do_in, 1000, false);
	measure("copy 4 bytes in until done", do_in, 10000, true);
	measure("copy 4 bytes out", do_out, 500, false);
	measure("query a stream", do_query, 1000, false);
	measure("record an event", do_record, 1000, false);
	measure("allocate and free 1 MiB", do_memory, 200, false);
	functions();
	idle_streams(64);
	measure("allocate and free 1 MiB beside 64 idle streams", do_memory, 200, false);
	measure("launch and synchronise beside 64 idle streams", do_launch_wait, 200, false);
}

// --- far ---------------------------------------------------------------------------

enum { STEP_KERNELS = 300, STEP_BYTES = 64 << 10 };

static CUdeviceptr batch;

static void do_step(void) {
	static uint8_t data[STEP_BYTES];
	CHECK(cuMemcpyHtoD(batch, data, sizeof data));
	for (int i = 0; i < STEP_KERNELS; i++)
		launch(nothing, NULL);
	do_out();
}

static void far(void) {
	open_context();
	open_kernels();
	CHECK(cuMemAlloc(&word, 4));
	CHECK(cuMemAlloc(&batch, STEP_BYTES));
	void *params[] = {&word};
	launch(touch, params);
	CHECK(cuCtxSynchronize());
	measure("far: launch", do_launch, 1000, false);
	measure("far: launch and synchronise", do_launch_wait, 5, false);
	measure("far: copy 4 bytes out", do_out, 5, false);
	measure("far: step: 64 KiB in, 300 kernels, 4 bytes out", do_step, 5, false);
}

// --- allocations --------------------------------------------------------------------

enum { ALLOCATION_ROUNDS = 3, NEAR = 50 };

// Which of n comes i-th, in an order that looks like none: n and the step have no common
// factor if n is not a multiple of it.
static int shuffled(int i, int n) { return (int)((uint64_t)i * 7919 % (uint64_t)n); }

static int in_order(int i, int n) { return (void)n, i; }

static void allocate_all(CUdeviceptr *at, int first, int step, int n) {
	for (int i = first; i < n; i += step)
		CHECK(cuMemAlloc(&at[i], 256));
}

// Freeing is only sent: the worker is waited for.
static double free_all(const CUdeviceptr *at, int n, int (*order)(int, int)) {
	double start = now();
	for (int i = 0; i < n; i++)
		CHECK(cuMemFree(at[order(i, n)]));
	CHECK(cuCtxSynchronize());
	return (now() - start) / n * 1e6;
}

// Each kernel finds memory that was not there for the last one.
static double launch_beside(void) {
	CUdeviceptr news[NEAR];
	double start = now();
	for (int i = 0; i < NEAR; i++) {
		CHECK(cuMemAlloc(&news[i], 2 << 20));
		void *params[] = {&news[i]};
		launch(touch, params);
	}
	CHECK(cuCtxSynchronize());
	double seconds = now() - start;
	for (int i = 0; i < NEAR; i++)
		CHECK(cuMemFree(news[i]));
	return seconds / NEAR * 1e6;
}

static void allocations_of(int n) {
	static const char *names[] = {"allocate", "allocate and launch", "free, first to last", "allocate between others", "free, in any order"};
	enum { FIGURES = sizeof names / sizeof *names };
	double rounds[FIGURES][ALLOCATION_ROUNDS];
	CUdeviceptr *at = calloc((size_t)n, sizeof *at);
	if (at == NULL)
		exit(1);
	for (int r = 0; r < ALLOCATION_ROUNDS; r++) {
		double start = now();
		allocate_all(at, 0, 1, n);
		rounds[0][r] = (now() - start) / n * 1e6;
		rounds[1][r] = launch_beside();
		rounds[2][r] = free_all(at, n, in_order);
		allocate_all(at, 0, 1, n);
		for (int i = 0; i < n; i += 2)
			CHECK(cuMemFree(at[i]));
		CHECK(cuCtxSynchronize());
		start = now();
		allocate_all(at, 0, 2, n);
		rounds[3][r] = (now() - start) / (n - n / 2) * 1e6;
		rounds[4][r] = free_all(at, n, shuffled);
	}
	for (int f = 0; f < FIGURES; f++) {
		char name[64];
		snprintf(name, sizeof name, "%s, %d", names[f], n);
		report(name, "us", rounds[f], ALLOCATION_ROUNDS);
	}
	free(at);
}

static void allocations(int n) {
	open_context();
	open_kernels();
	allocations_of((n + 3) / 4);
	allocations_of(n);
}

// --- copies ------------------------------------------------------------------------

#define SIZE ((size_t)64 << 20)
enum { COPIES = 15 };

struct copy {
	const char *name;
	void *host;
	bool in;
	double rounds[COPIES], ratios[COPIES];
};

static void *fresh(void) {
	void *at = malloc(SIZE);
	if (at == NULL)
		_exit(1);
	memset(at, 1, SIZE);
	return at;
}

// warm: how many rounds are not counted. Memory is pinned as it is used, in the first GiB.
static void copies(int warm) {
	open_context();
	open_kernels();
	CUdeviceptr device;
	void *from = fresh(), *to = fresh(), *pinned;
	CHECK(cuMemAlloc(&device, SIZE));
	CHECK(cuMemHostAlloc(&pinned, SIZE, 0));
	memset(pinned, 1, SIZE);
	void *params[] = {&device};
	launch(touch, params);
	CHECK(cuCtxSynchronize());
	struct copy kinds[] = {{.name = "in, pageable", .host = from, .in = true}, {.name = "out, pageable", .host = to}, {.name = "in, pinned", .host = pinned, .in = true}, {.name = "out, pinned", .host = pinned}};
	enum { KINDS = sizeof kinds / sizeof *kinds };
	double plain[COPIES * KINDS];
	for (int r = -warm; r < COPIES; r++)
		for (int k = 0; k < KINDS; k++) {
			struct copy *c = &kinds[k];
			double start = now();
			memcpy(to, from, SIZE);
			double beside = (double)SIZE / (now() - start) / 1e9;
			start = now();
			if (c->in) {
				CHECK(cuMemcpyHtoD(device, c->host, SIZE));
				CHECK(cuCtxSynchronize());
			} else {
				CHECK(cuMemcpyDtoH(c->host, device, SIZE));
			}
			double speed = (double)SIZE / (now() - start) / 1e9;
			if (r < 0)
				continue;
			plain[r * KINDS + k] = beside;
			c->rounds[r] = speed;
			c->ratios[r] = speed / beside;
		}
	report("memcpy", "GB/s", plain, COPIES * KINDS);
	for (int k = 0; k < KINDS; k++) {
		char name[64];
		snprintf(name, sizeof name, "copy %s", kinds[k].name);
		report(name, "GB/s", kinds[k].rounds, COPIES);
		snprintf(name, sizeof name, "copy %s, of memcpy", kinds[k].name);
		report(name, "1", kinds[k].ratios, COPIES);
	}
}

// --- programs beside each other ------------------------------------------------------

// Starts a program that writes a number to a pipe when it is done with its part, and
// goes on until a pipe ends, if there is one.
static void program(int results, const int goes_on[2], double (*part)(void)) {
	pid_t child = fork();
	if (child < 0) {
		perror("bench: fork");
		exit(1);
	}
	if (child > 0)
		return;
	if (goes_on != NULL)
		close(goes_on[1]);
	double value = part();
	if (write(results, &value, sizeof value) != sizeof value)
		_exit(1);
	char byte;
	if (goes_on != NULL && read(goes_on[0], &byte, 1) != 0)
		_exit(1);
	_exit(0);
}

static double result_of(int results) {
	double value;
	if (read(results, &value, sizeof value) != sizeof value) {
		fprintf(stderr, "bench: a program has failed\n");
		exit(1);
	}
	return value;
}

static void new_pipe(int ends[2]) {
	if (pipe(ends) < 0) {
		perror("bench: pipe");
		exit(1);
	}
}

static double attach_part(void) {
	double start = now();
	open_context();
	CHECK(cuCtxSynchronize());
	return (now() - start) * 1e3;
}

static void attach(int n) {
	double *all = calloc((size_t)n, sizeof *all);
	for (int i = 0; i < n; i++) {
		int results[2];
		new_pipe(results);
		program(results[1], NULL, attach_part);
		close(results[1]);
		all[i] = result_of(results[0]);
		close(results[0]);
		wait(NULL);
		// So that the node is not still busy with the one before.
		nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
	}
	report("attach", "ms", all, n);
	free(all);
}

static double crowd_part(void) {
	open_context();
	open_kernels();
	launch(nothing, NULL);
	CHECK(cuCtxSynchronize());
	return now();
}

static void crowd(int n) {
	int results[2], goes_on[2];
	new_pipe(results);
	new_pipe(goes_on);
	double start = now(), last = 0;
	for (int i = 0; i < n; i++)
		program(results[1], goes_on, crowd_part);
	close(results[1]);
	for (int i = 0; i < n; i++) {
		double at = result_of(results[0]);
		last = at > last ? at : last;
	}
	double seconds = last - start;
	report("all have run a kernel", "s", &seconds, 1);
	while (getchar() != EOF) {
	}
	close(goes_on[0]);
	close(goes_on[1]);
	while (wait(NULL) > 0) {
	}
}

// Two programs hold more than the device together. Each runs a kernel when the
// other one's has ended: every turn moves one out and the other in.
static size_t held;
static int my_turn, other_turn, fills;

enum { TURNS = 12 };

static double swap_part(void) {
	open_context();
	open_kernels();
	CUdeviceptr at;
	CHECK(cuMemAlloc(&at, held));
	void *params[] = {&at};
	CHECK(cuMemsetD32(at, 7, held / 4));
	double turns[TURNS];
	for (int i = -2; i < TURNS; i++) {
		char byte = 0;
		if (read(my_turn, &byte, 1) != 1)
			_exit(1);
		double start = now();
		if (fills)
			CHECK(cuMemsetD32Async(at, (unsigned)i, held / 4, NULL));
		launch(touch, params);
		CHECK(cuCtxSynchronize());
		if (i >= 0)
			turns[i] = now() - start;
		int last = i;
		if (fills)
			CHECK(cuMemcpyDtoH(&last, at + held - 4, 4));
		if (last != i)
			_exit(1);
		if (write(other_turn, &byte, 1) != 1)
			_exit(1);
	}
	return median(turns, TURNS);
}

static void swap(size_t bytes, size_t stays) {
	int results[2], turns[2][2];
	held = bytes;
	new_pipe(results);
	new_pipe(turns[0]);
	new_pipe(turns[1]);
	for (int i = 0; i < 2; i++) {
		my_turn = turns[i][0];
		other_turn = turns[1 - i][1];
		program(results[1], NULL, swap_part);
	}
	char byte = 0;
	if (write(turns[0][1], &byte, 1) != 1)
		exit(1);
	double both[2] = {result_of(results[0]), result_of(results[0])};
	while (wait(NULL) > 0) {
	}
	for (int i = 0; i < 2; i++)
		both[i] *= 1e3;
	report(fills ? "turn of two programs that fill their memory" : "turn of two programs", "ms", both, 2);
	if (fills)
		return;
	double speeds[2];
	for (int i = 0; i < 2; i++)
		speeds[i] = 2 * (double)(bytes - stays) / both[i] / 1e6;
	report("swap, out and in", "GB/s", speeds, 2);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 0;
	if (strcmp(what, "calls") == 0)
		calls();
	else if (strcmp(what, "allocations") == 0 && n > 0 && n % 7919 != 0)
		allocations(n);
	else if (strcmp(what, "functions") == 0)
		only_functions();
	else if (strcmp(what, "far") == 0)
		far();
	else if (strcmp(what, "copies") == 0)
		copies(n > 0 ? n : 2);
	else if (strcmp(what, "attach") == 0 && n > 0)
		attach(n);
	else if (strcmp(what, "crowd") == 0 && n > 0)
		crowd(n);
	else if ((strcmp(what, "swap") == 0 || (fills = strcmp(what, "fills") == 0)) && n > 0)
		swap((size_t)n << 20, (size_t)(argc > 3 ? atoi(argv[3]) : 0) << 20);
	else {
		fprintf(stderr, "bench: say calls, functions, far, allocations N, copies [WARM], attach N, crowd N, swap MIB [STAYS] or fills MIB\n");
		return 2;
	}
	return 0;
}
