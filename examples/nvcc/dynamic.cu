// nvcc: -std=c++17 -rdc=true -lcudadevrt -x cu examples/nvcc/dynamic_part.cpp
// What kernels do by themselves: launch kernels (recursively, in the tail stream, fire and
// forget), allocate and free, print, look at clocks and sleep. Two files are linked.
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "check.h"

__device__ int collatz(long long n); // in dynamic_part.cpp, as the next two are
extern __device__ int calls;
__global__ void longest(int *best, int from, int to);

__device__ int failures;

__device__ void noteError() {
    if (cudaGetLastError() != cudaSuccess) atomicAdd(&failures, 1);
}

// Each kernel launches two, each for half of the range.
__global__ void halves(int *v, int from, int to) {
    if (threadIdx.x != 0) return;
    if (to - from <= 16) {
        for (int i = from; i < to; i++) v[i] += i;
        return;
    }
    int middle = (from + to) / 2;
    halves<<<1, 32>>>(v, from, middle);
    noteError();
    halves<<<1, 32, 0, cudaStreamFireAndForget>>>(v, middle, to);
    noteError();
}

__global__ void add(int *v, int what) { atomicAdd(v, what); }

__global__ void times(int *v, int what) { *v *= what; }

// The tail runs when the children have ended, whatever was launched first.
__global__ void tail(int *v) {
    times<<<1, 1, 0, cudaStreamTailLaunch>>>(v, 10);
    noteError();
    add<<<1, 100>>>(v, 1);
    noteError();
    add<<<1, 100, 0, cudaStreamFireAndForget>>>(v, 1);
    noteError();
}

__global__ void repeat(int *v, int left) { // one after the other, in the tail
    *v = *v * 2 + left % 2;
    if (left > 1) repeat<<<1, 1, 0, cudaStreamTailLaunch>>>(v, left - 1);
    noteError();
}

static int read(const int *p) {
    int v;
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&v, p, sizeof v, cudaMemcpyDeviceToHost));
    return v;
}

static void launches() {
    const int n = 2048;
    int *v, failed;
    std::vector<int> got(n);
    CHECK(cudaMalloc((void **)&v, n * sizeof(int)));
    CHECK(cudaMemset(v, 0, n * sizeof(int)));
    halves<<<1, 32>>>(v, 0, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(got.data(), v, n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) TRUE(got[i] == i);
    tail<<<1, 1>>>(v);
    TRUE(read(v) == 2000);
    CHECK(cudaMemset(v, 0, sizeof(int)));
    repeat<<<1, 1>>>(v, 20);
    TRUE(read(v) == 0x55555); // 20 bits, a one for each odd turn
    CHECK(cudaMemcpyFromSymbol(&failed, failures, sizeof failed));
    TRUE(failed == 0);
    CHECK(cudaFree(v));
    printf("dynamic: launches right\n");
}

static void linked() {
    int *best, called;
    CHECK(cudaMalloc((void **)&best, sizeof(int)));
    CHECK(cudaMemset(best, 0, sizeof(int)));
    longest<<<40, 256>>>(best, 1, 10000);
    TRUE(read(best) == 261); // 6171 has the longest way below 10000
    CHECK(cudaMemcpyFromSymbol(&called, calls, sizeof called));
    TRUE(called == 9999);
    CHECK(cudaFree(best));
    printf("dynamic: two pieces linked right\n");
}

__device__ int *kept[4096];

__global__ void allocate(int each, int *none) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    kept[i] = (int *)malloc(each * sizeof(int));
    if (!kept[i]) {
        atomicAdd(none, 1);
        return;
    }
    for (int k = 0; k < each; k++) kept[i][k] = i * k;
}

__global__ void release(int each, unsigned long long *sum) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (!kept[i]) return;
    unsigned long long mine = 0;
    for (int k = 0; k < each; k++) mine += kept[i][k];
    atomicAdd(sum, mine);
    free(kept[i]);
    int *a = new int[8]; // the same heap
    if (a) a[7] = i, delete[] a;
}

static void heap() {
    size_t limit;
    int *none;
    unsigned long long *sum, got, want = 0;
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    TRUE(limit >= 32 << 20); // as main set it, before the first kernel
    CHECK(cudaMalloc((void **)&none, sizeof(int)));
    CHECK(cudaMalloc((void **)&sum, sizeof *sum));
    for (int round = 0; round < 3; round++) {
        CHECK(cudaMemset(none, 0, sizeof(int)));
        CHECK(cudaMemset(sum, 0, sizeof *sum));
        allocate<<<32, 128>>>(1000, none); // 16 MB
        TRUE(read(none) == 0);
        release<<<32, 128>>>(1000, sum);
        CHECK(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost));
        want = 4095ull * 4096 / 2 * (999 * 1000 / 2);
        TRUE(got == want);
    }
    CHECK(cudaFree(none));
    CHECK(cudaFree(sum));
    printf("dynamic: the device's heap right\n");
}

__global__ void say(int n, double d, const char *s) {
    for (int i = 0; i < n; i++) printf("line %d of %3d|%-6.2f|%05x|%c|%lld|%%|%s\n", i, n, d * i, 255 * i, 'a' + i, -5000000000ll * i, s);
    printf("%s and no end", "text");
}

__device__ char text[8] = "device";

static void printed() {
    int ends[2], saved = dup(1);
    void *symbol;
    CHECK(cudaGetSymbolAddress(&symbol, text));
    TRUE(pipe(ends) == 0);
    fflush(stdout);
    dup2(ends[1], 1);
    say<<<1, 1>>>(5, 1.5, (const char *)symbol);
    cudaError_t e = cudaDeviceSynchronize();
    fflush(stdout);
    dup2(saved, 1);
    close(ends[1]);
    close(saved);
    CHECK(e);
    std::string got, want;
    char part[1024];
    for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) got.append(part, n);
    close(ends[0]);
    for (int i = 0; i < 5; i++) {
        snprintf(part, sizeof part, "line %d of %3d|%-6.2f|%05x|%c|%lld|%%|%s\n", i, 5, 1.5 * i, 255 * i, 'a' + i, -5000000000ll * i, "device");
        want += part;
    }
    want += "text and no end";
    if (got != want) fprintf(stderr, "it printed <%s>, and not <%s>\n", got.c_str(), want.c_str());
    TRUE(got == want);
    printf("dynamic: printf right\n");
}

__global__ void clocks(unsigned long long *out) {
    unsigned long long before, after;
    long long ticks = clock64();
    clock_t few = clock();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(before));
    for (int i = 0; i < 1000; i++) __nanosleep(1000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(after));
    out[0] = clock64() - ticks;
    out[1] = after - before;
    out[2] = clock() != few;
}

int main() {
    setbuf(stdout, nullptr);
    CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 20));
    CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20));
    heap();
    launches();
    linked();
    printed();
    unsigned long long *out, got[3];
    CHECK(cudaMalloc((void **)&out, sizeof got));
    clocks<<<1, 1>>>(out);
    CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
    TRUE(got[0] > 0 && got[1] > 0 && got[2] == 1);
    printf("dynamic: right\n");
    return 0;
}
