// nvcc: -std=c++17 --default-stream per-thread -Xcompiler -pthread
// The default stream is each thread's own.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

__global__ void add(int *v, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] += what;
}

static std::atomic<int> wrong(0);

static void work(int which, int *d, int *pinned, int n) {
    for (int r = 0; r < 25; r++) {
        CHECK(cudaMemcpyAsync(d, pinned, n * sizeof(int), cudaMemcpyHostToDevice));
        add<<<(n + 255) / 256, 256>>>(d, n, which);
        add<<<(n + 255) / 256, 256, 0, cudaStreamPerThread>>>(d, n, 1); // the same stream
        CHECK(cudaMemcpyAsync(pinned, d, n * sizeof(int), cudaMemcpyDeviceToHost, 0));
    }
    CHECK(cudaStreamSynchronize(0));
    for (int i = 0; i < n; i++) wrong += pinned[i] != i + 25 * (which + 1);
}

int main() {
    setbuf(stdout, nullptr);
    const int threads = 8, n = 10000;
    int *d[threads], *pinned[threads], *held, got = 0;
    CHECK(cudaMalloc((void **)&held, sizeof(int)));
    CHECK(cudaMemset(held, 0, sizeof(int)));
    for (int k = 0; k < threads; k++) {
        CHECK(cudaMalloc((void **)&d[k], n * sizeof(int)));
        CHECK(cudaMallocHost((void **)&pinned[k], n * sizeof(int)));
        for (int i = 0; i < n; i++) pinned[k][i] = i;
    }
    add<<<1, 1>>>(held, 1, 42);
    std::vector<std::thread> all;
    for (int k = 0; k < threads; k++) all.emplace_back(work, k, d[k], pinned[k], n);
    for (auto &t : all) t.join();
    TRUE(wrong == 0);
    printf("ptds: %d threads right\n", threads);
    CHECK(cudaMemcpy(&got, held, sizeof got, cudaMemcpyDeviceToHost));
    TRUE(got == 42);
    // The old default stream waits for the streams of the threads, and they for it.
    add<<<1, 1>>>(held, 1, 1);
    add<<<1, 1, 0, cudaStreamLegacy>>>(held, 1, 1);
    add<<<1, 1>>>(held, 1, 1);
    CHECK(cudaMemcpyAsync(&got, held, sizeof got, cudaMemcpyDeviceToHost, cudaStreamLegacy));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    TRUE(got == 45);
    printf("ptds: right\n");
    return 0;
}
