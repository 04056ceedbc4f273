// nvcc: -std=c++17 -Xcompiler -pthread
// Functions of the host in streams, events and what they say before and after, and eight
// threads, each with a stream of its own.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

__global__ void add(int *v, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] += what;
}

struct Trace {
    int *pinned;
    std::string order;
    cudaStream_t stream;
};

static void after(cudaStream_t s, cudaError_t status, void *data) {
    Trace *t = (Trace *)data;
    bool well = s == t->stream && status == cudaSuccess;
    t->order += well ? "c" + std::to_string(t->pinned[0]) : "?";
}

static void host(void *data) {
    Trace *t = (Trace *)data;
    t->order += "h" + std::to_string(t->pinned[0]);
    t->pinned[1] += 100; // the copy behind it sees this
}

static void order() {
    const int n = 1000;
    Trace t;
    int *d;
    CHECK(cudaStreamCreate(&t.stream));
    CHECK(cudaMallocHost((void **)&t.pinned, n * sizeof(int)));
    CHECK(cudaMalloc((void **)&d, n * sizeof(int)));
    CHECK(cudaMemset(d, 0, n * sizeof(int)));
    memset(t.pinned, 0, n * sizeof(int));
    for (int k = 0; k < 4; k++) {
        add<<<4, 256, 0, t.stream>>>(d, n, 1);
        CHECK(cudaMemcpyAsync(t.pinned, d, n * sizeof(int), cudaMemcpyDeviceToHost, t.stream));
        if (k % 2) CHECK(cudaLaunchHostFunc(t.stream, host, &t));
        else CHECK(cudaStreamAddCallback(t.stream, after, &t, 0));
        CHECK(cudaMemcpyAsync(d, t.pinned, n * sizeof(int), cudaMemcpyHostToDevice, t.stream));
    }
    CHECK(cudaStreamSynchronize(t.stream));
    if (t.order != "c1h2c3h4") fprintf(stderr, "the order is %s\n", t.order.c_str());
    TRUE(t.order == "c1h2c3h4");
    CHECK(cudaMemcpy(t.pinned, d, n * sizeof(int), cudaMemcpyDeviceToHost));
    TRUE(t.pinned[0] == 4 && t.pinned[1] == 204 && t.pinned[999] == 4);
    CHECK(cudaFreeHost(t.pinned));
    CHECK(cudaFree(d));
    CHECK(cudaStreamDestroy(t.stream));
    printf("callbacks: order right\n");
}

static std::atomic<bool> gate(false), late(false);

static void hold(void *) { // until the gate is open, or 30 s
    auto start = std::chrono::steady_clock::now();
    while (!gate && !late) {
        if (std::chrono::steady_clock::now() - start > std::chrono::seconds(30)) late = true;
        std::this_thread::yield();
    }
}

static void events() {
    cudaStream_t s, other;
    cudaEvent_t a, b, silent, across;
    int *d, got;
    CHECK(cudaMalloc((void **)&d, 256 * sizeof(int)));
    CHECK(cudaMemset(d, 0, 256 * sizeof(int)));
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreateWithFlags(&b, cudaEventBlockingSync));
    CHECK(cudaEventCreateWithFlags(&silent, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&across, cudaEventDisableTiming));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaEventQuery(a)); // never recorded: nothing to wait for
    CHECK(cudaStreamWaitEvent(other, across, 0));
    CHECK(cudaEventRecord(a, s));
    CHECK(cudaLaunchHostFunc(s, hold, nullptr));
    add<<<1, 256, 0, s>>>(d, 256, 5);
    CHECK(cudaEventRecordWithFlags(b, s, cudaEventRecordDefault));
    CHECK(cudaEventRecord(silent, s));
    CHECK(cudaStreamWaitEvent(other, b, 0));
    add<<<1, 256, 0, other>>>(d, 256, 10);
    CHECK(cudaEventRecord(across, other));
    float ms;
    CHECK(cudaEventSynchronize(a));
    TRUE(cudaEventQuery(b) == cudaErrorNotReady && cudaEventQuery(across) == cudaErrorNotReady);
    TRUE(cudaStreamQuery(s) == cudaErrorNotReady && cudaStreamQuery(other) == cudaErrorNotReady);
    TRUE(cudaEventElapsedTime(&ms, a, b) == cudaErrorNotReady);
    gate = true;
    CHECK(cudaEventSynchronize(b));
    CHECK(cudaEventElapsedTime(&ms, a, b));
    TRUE(ms > 0 && ms < 60000);
    CHECK(cudaStreamSynchronize(other));
    CHECK(cudaEventQuery(across));
    TRUE(cudaEventElapsedTime(&ms, a, silent) == cudaErrorInvalidResourceHandle);
    TRUE(!late);
    cudaGetLastError();
    CHECK(cudaMemcpy(&got, d, sizeof got, cudaMemcpyDeviceToHost));
    TRUE(got == 15);
    for (cudaEvent_t e : {a, b, silent, across}) CHECK(cudaEventDestroy(e));
    CHECK(cudaStreamDestroy(s));
    CHECK(cudaStreamDestroy(other));
    CHECK(cudaFree(d));
    printf("callbacks: events right\n");
}

static void count(void *p) { ++*(std::atomic<int> *)p; }

static void worker(int which, std::atomic<int> *called, std::atomic<int> *wrong) {
    const int n = 10000, rounds = 40;
    int *d;
    std::vector<int> got(n);
    cudaStream_t s;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&d, n * sizeof(int)));
    CHECK(cudaMemsetAsync(d, 0, n * sizeof(int), s));
    for (int r = 0; r < rounds; r++) {
        add<<<(n + 255) / 256, 256, 0, s>>>(d, n, which);
        if (r % 10 == 0) CHECK(cudaLaunchHostFunc(s, count, called));
        if (r % 7 == 0) CHECK(cudaStreamSynchronize(s));
    }
    if (which == 3) { // an error of one thread is not another's
        add<<<1, 5000, 0, s>>>(d, n, 1);
        if (cudaGetLastError() == cudaSuccess) ++*wrong;
    }
    CHECK(cudaMemcpyAsync(got.data(), d, n * sizeof(int), cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    for (int v : got) *wrong += v != which * rounds;
    if (cudaGetLastError() != cudaSuccess) ++*wrong;
    CHECK(cudaFree(d));
    CHECK(cudaStreamDestroy(s));
}

int main() {
    setbuf(stdout, nullptr);
    order();
    events();
    std::vector<std::thread> threads;
    std::atomic<int> called(0), wrong(0);
    for (int k = 0; k < 8; k++) threads.emplace_back(worker, k, &called, &wrong);
    for (auto &t : threads) t.join();
    TRUE(called == 32 && wrong == 0);
    printf("callbacks: right, by 8 threads too\n");
    return 0;
}
