// Graphs of small kernels, fills and copies: whether they compute what they should, and how long a
// launch takes. Build it with nvcc -O2, and run it on the driver itself and through muster run.
// Usage: graphs [ROUNDS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define OK(call) \
	do { \
		cudaError_t failed = (call); \
		if (failed != cudaSuccess) { \
			printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(failed)); \
			exit(1); \
		} \
	} while (0)

enum kind { IN_LINE, MIXED, FORKED };
static const char *const names[] = {"in line", "mixed", "forked"};

typedef std::vector<unsigned> words;

static const int N = 4096;
static unsigned *a, *b, *c; // on the device
static words ha(N), hb(N), hc(N); // what they should be
static cudaStream_t stream;

__global__ void step(unsigned *x, const unsigned *y, unsigned k, int n) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		x[i] = x[i] * 3 + y[i] + k;
}

static void host_step(words &x, const words &y, unsigned k) {
	for (int i = 0; i < N; i++)
		x[i] = x[i] * 3 + y[i] + k;
}

// What the graph does, on the host. A fill has bytes.
static void expect(int count, kind k, unsigned base) {
	for (int i = 0; i < count; i++) {
		if (k == MIXED && i % 10 == 3)
			hb.assign(N, (i & 255) * 0x01010101u);
		else if (k == MIXED && i % 10 == 7)
			hb = ha;
		else if (k == FORKED && i % 2 == 1)
			host_step(hc, words(hc), base + i);
		else
			host_step(ha, hb, base + i);
	}
}

static cudaGraphExec_t capture(int count, kind k, unsigned base, cudaGraph_t *graph) {
	cudaStream_t side;
	cudaEvent_t begun, ended;
	OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
	OK(cudaEventCreate(&begun));
	OK(cudaEventCreate(&ended));
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	if (k == FORKED) {
		OK(cudaEventRecord(begun, stream));
		OK(cudaStreamWaitEvent(side, begun));
	}
	for (int i = 0; i < count; i++) {
		if (k == MIXED && i % 10 == 3)
			OK(cudaMemsetAsync(b, i & 255, N * 4, stream));
		else if (k == MIXED && i % 10 == 7)
			OK(cudaMemcpyAsync(b, a, N * 4, cudaMemcpyDeviceToDevice, stream));
		else if (k == FORKED && i % 2 == 1)
			step<<<N / 256, 256, 0, side>>>(c, c, base + i, N);
		else
			step<<<N / 256, 256, 0, stream>>>(a, b, base + i, N);
	}
	if (k == FORKED) {
		OK(cudaEventRecord(ended, side));
		OK(cudaStreamWaitEvent(stream, ended));
	}
	cudaGraphExec_t exec;
	OK(cudaStreamEndCapture(stream, graph));
	OK(cudaGraphInstantiate(&exec, *graph, 0));
	return exec;
}

static void same(const char *when, const words &want, const unsigned *at) {
	words got(N);
	OK(cudaMemcpy(got.data(), at, N * 4, cudaMemcpyDeviceToHost));
	if (got != want) {
		printf("%s: wrong\n", when);
		exit(1);
	}
}

static void compare(const char *when) {
	same(when, ha, a);
	same(when, hb, b);
	same(when, hc, c);
}

static double now() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Microseconds of a launch before which one kernel of the graph, the first, got another parameter.
static double one_changed(cudaGraphExec_t x, cudaGraph_t graph, int count, int rounds) {
	cudaGraphNode_t root;
	size_t roots = 1;
	cudaKernelNodeParams params;
	OK(cudaGraphGetRootNodes(graph, &root, &roots));
	OK(cudaGraphKernelNodeGetParams(root, &params));
	unsigned value;
	int n = N;
	void *list[] = {&a, &b, &value, &n};
	params.kernelParams = list;
	double begun = now();
	for (int i = 0; i < rounds; i++) {
		value = 5 + i;
		OK(cudaGraphExecKernelNodeSetParams(x, root, &params));
		OK(cudaGraphLaunch(x, stream));
	}
	OK(cudaStreamSynchronize(stream));
	double took = now() - begun;
	for (int i = 0; i < rounds; i++) {
		host_step(ha, hb, 5 + i);
		for (int k = 1; k < count; k++)
			host_step(ha, hb, 1 + k);
	}
	compare("one kernel changed");
	return took / rounds;
}

static void measure(int count, kind k, int rounds) {
	cudaGraph_t graph, other;
	cudaGraphExecUpdateResultInfo info;
	cudaGraphExec_t x = capture(count, k, 1, &graph), y = capture(count, k, 1000, &other);
	for (int i = 0; i < 5; i++) {
		OK(cudaGraphLaunch(x, stream));
		expect(count, k, 1);
	}
	compare("the first launches");

	double begun = now();
	for (int i = 0; i < rounds; i++) {
		OK(cudaGraphLaunch(x, stream));
		OK(cudaStreamSynchronize(stream));
	}
	double waited = now() - begun;
	begun = now();
	for (int i = 0; i < rounds; i++)
		OK(cudaGraphLaunch(x, stream));
	OK(cudaStreamSynchronize(stream));
	double in_a_row = now() - begun;
	for (int i = 0; i < 2 * rounds; i++)
		expect(count, k, 1);
	compare("launched often");

	begun = now();
	for (int i = 0; i < rounds; i++) {
		OK(cudaGraphExecUpdate(x, i % 2 == 0 ? other : graph, &info));
		OK(cudaGraphLaunch(x, stream));
	}
	OK(cudaStreamSynchronize(stream));
	double updated = now() - begun;
	for (int i = 0; i < rounds; i++)
		expect(count, k, i % 2 == 0 ? 1000 : 1);
	compare("updated");

	OK(cudaGraphExecUpdate(x, graph, &info));
	double one = k == IN_LINE ? one_changed(x, graph, count, rounds) : 0;
	OK(cudaGraphLaunch(y, stream));
	OK(cudaGraphExecDestroy(y)); // while it runs
	expect(count, k, 1000);
	compare("destroyed");
	void *more;
	OK(cudaMalloc(&more, 64 << 20));
	OK(cudaFree(more));
	OK(cudaGraphExecUpdate(x, graph, &info));
	OK(cudaGraphLaunch(x, stream));
	expect(count, k, 1);
	compare("after other memory went");
	printf("%d %s: waited for %.1f us, in a row %.1f us, updated %.1f us", count, names[k], waited / rounds, in_a_row / rounds, updated / rounds);
	printf(k == IN_LINE ? ", one kernel changed %.1f us\n" : "\n", one);
	OK(cudaGraphExecDestroy(x));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphDestroy(other));
}

int main(int argc, char **argv) {
	int rounds = argc > 1 ? atoi(argv[1]) : 200;
	OK(cudaMalloc(&a, N * 4));
	OK(cudaMalloc(&b, N * 4));
	OK(cudaMalloc(&c, N * 4));
	OK(cudaStreamCreate(&stream));
	for (int i = 0; i < N; i++) {
		ha[i] = i;
		hb[i] = 7 * i;
		hc[i] = i ^ 0x55;
	}
	OK(cudaMemcpy(a, ha.data(), N * 4, cudaMemcpyHostToDevice));
	OK(cudaMemcpy(b, hb.data(), N * 4, cudaMemcpyHostToDevice));
	OK(cudaMemcpy(c, hc.data(), N * 4, cudaMemcpyHostToDevice));
	const int counts[] = {20, 200, 1000};
	for (int count : counts)
		for (int k = IN_LINE; k <= FORKED; k++)
			measure(count, (kind)k, rounds);
	printf("right\n");
}
