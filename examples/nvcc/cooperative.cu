// nvcc: -std=c++17
// Cooperative groups: grids that meet, tiles, coalesced and labelled groups, clusters with
// shared memory across blocks, and kernels that begin before the one before them has ended.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <algorithm>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

static const int N = 100000;

// A stencil, all of whose steps are one launch: each must see the step before whole.
__global__ void stencil(int *a, int *b, int n, int steps) {
    cg::grid_group grid = cg::this_grid();
    for (int s = 0; s < steps; s++) {
        for (unsigned i = grid.thread_rank(); i < n; i += grid.size()) b[i] = (a[i] * 2 + a[(i + 1) % n] + a[(i + n - 1) % n]) % 1000;
        grid.sync();
        int *t = a;
        a = b;
        b = t;
    }
}

__global__ void total(const int *v, int n, long long *partial, long long *sum) {
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    __shared__ long long warps[32];
    long long mine = 0;
    for (unsigned i = grid.thread_rank(); i < n; i += grid.size()) mine += v[i];
    auto warp = cg::tiled_partition<32>(block);
    mine = cg::reduce(warp, mine, cg::plus<long long>());
    if (warp.thread_rank() == 0) warps[warp.meta_group_rank()] = mine;
    block.sync();
    if (block.thread_rank() == 0) {
        long long all = 0;
        for (unsigned w = 0; w < warp.meta_group_size(); w++) all += warps[w];
        partial[blockIdx.x] = all;
    }
    grid.sync();
    if (grid.thread_rank() == 0)
        for (unsigned k = 0; k < gridDim.x; k++) *sum += partial[k];
}

static void grids() {
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    TRUE(prop.cooperativeLaunch);
    int perSM, n = N, steps = 20;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&perSM, stencil, 256, 0));
    int blocks = std::min(perSM * prop.multiProcessorCount, (N + 255) / 256);
    std::vector<int> v(N), w(N), got(N);
    for (int i = 0; i < N; i++) v[i] = i * 31 % 997;
    int *a, *b;
    long long *partial, *sum, answer, want = 0;
    CHECK(cudaMalloc((void **)&a, N * sizeof(int)));
    CHECK(cudaMalloc((void **)&b, N * sizeof(int)));
    CHECK(cudaMalloc((void **)&partial, blocks * sizeof(long long)));
    CHECK(cudaMalloc((void **)&sum, sizeof(long long)));
    CHECK(cudaMemset(sum, 0, sizeof(long long)));
    CHECK(cudaMemcpy(a, v.data(), N * sizeof(int), cudaMemcpyHostToDevice));
    void *args[] = {&a, &b, &n, &steps};
    CHECK(cudaLaunchCooperativeKernel((void *)stencil, dim3(blocks), dim3(256), args, 0, 0));
    CHECK(cudaMemcpy(got.data(), a, N * sizeof(int), cudaMemcpyDeviceToHost)); // after an even number of steps
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < N; i++) w[i] = (v[i] * 2 + v[(i + 1) % N] + v[(i + N - 1) % N]) % 1000;
        v.swap(w);
    }
    TRUE(got == v);
    for (int x : v) want += x;
    void *args2[] = {&a, &n, &partial, &sum};
    CHECK(cudaLaunchCooperativeKernel((void *)total, dim3(std::min(blocks, prop.multiProcessorCount)), dim3(256), args2, 0, 0));
    CHECK(cudaMemcpy(&answer, sum, sizeof answer, cudaMemcpyDeviceToHost));
    TRUE(answer == want);
    // More blocks than are there at once cannot meet.
    TRUE(cudaLaunchCooperativeKernel((void *)total, dim3(1 << 20), dim3(256), args2, 0, 0) == cudaErrorCooperativeLaunchTooLarge);
    cudaGetLastError();
    for (void *p : {(void *)a, (void *)b, (void *)partial, (void *)sum}) CHECK(cudaFree(p));
    printf("cooperative: grids right, %d blocks\n", blocks);
}

__global__ void groups(int *out) { // 64 threads, 6 results each
    cg::thread_block block = cg::this_thread_block();
    int i = block.thread_rank(), *o = out + 6 * i;
    auto tile = cg::tiled_partition<16>(block);
    o[0] = cg::reduce(tile, i, cg::plus<int>());
    o[1] = tile.shfl_xor(i, 3) * 100 + tile.meta_group_rank();
    o[2] = cg::inclusive_scan(tile, i + 1, cg::plus<int>());
    auto warp = cg::tiled_partition<32>(block);
    auto labelled = cg::labeled_partition(warp, i % 5);
    o[3] = cg::reduce(labelled, i, cg::plus<int>()) * 100 + labelled.size();
    auto halves = cg::binary_partition(warp, i % 3 == 0);
    o[4] = halves.size() * 100 + halves.thread_rank();
    o[5] = -1;
    if (i % 7 == 2) {
        cg::coalesced_group some = cg::coalesced_threads();
        o[5] = some.shfl(i, 0) + 100 * some.any(i > 40);
    }
}

static void partitions() {
    int *d;
    std::vector<int> got(64 * 6);
    CHECK(cudaMalloc((void **)&d, got.size() * sizeof(int)));
    groups<<<1, 64>>>(d);
    CHECK(cudaMemcpy(got.data(), d, got.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) {
        int tile = i / 16 * 16, warp = i / 32 * 32, sum = 0, scan = 0, same = 0, sames = 0, half = 0, rank = 0;
        for (int k = tile; k < tile + 16; k++) sum += k, scan += k <= i ? k + 1 : 0;
        for (int k = warp; k < warp + 32; k++) {
            if (k % 5 == i % 5) same += k, sames++;
            if ((k % 3 == 0) == (i % 3 == 0)) half++, rank += k < i;
        }
        const int *o = &got[6 * i];
        TRUE(o[0] == sum && o[1] == (i ^ 3) * 100 + i / 16 && o[2] == scan);
        TRUE(o[3] == same * 100 + sames && o[4] == half * 100 + rank);
        TRUE(i % 7 == 2 || o[5] == -1);
        if (i % 7 == 2) TRUE(o[5] >= 0 && o[5] % 100 % 7 == 2);
    }
    CHECK(cudaFree(d));
    printf("cooperative: partitions right\n");
}

const int bins = 256, cluster = 4;

// The bins lie in the shared memory of all blocks of a cluster.
__global__ void histogram(const unsigned *v, int n, unsigned *out) {
    extern __shared__ unsigned mine[];
    cg::cluster_group c = cg::this_cluster();
    const int each = bins / c.num_blocks();
    for (int i = threadIdx.x; i < each; i += blockDim.x) mine[i] = 0;
    c.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int bin = v[i] % bins;
        atomicAdd(c.map_shared_rank(mine, bin / each) + bin % each, 1);
    }
    c.sync();
    for (int i = threadIdx.x; i < each; i += blockDim.x) atomicAdd(&out[c.block_rank() * each + i], mine[i]);
}

__global__ void __cluster_dims__(2, 1, 1) neighbours(int *out) {
    __shared__ int value;
    cg::cluster_group c = cg::this_cluster();
    if (threadIdx.x == 0) value = blockIdx.x * 10;
    c.sync();
    if (threadIdx.x == 0) out[blockIdx.x] = *c.map_shared_rank(&value, c.block_rank() ^ 1);
    c.sync();
}

static void clusters() {
    std::vector<unsigned> v(N), want(bins), got(bins);
    unsigned x = 99, *d, *out;
    for (auto &e : v) e = (x = x * 1664525 + 1013904223) >> 12, want[e % bins]++;
    CHECK(cudaMalloc((void **)&d, N * sizeof *d));
    CHECK(cudaMalloc((void **)&out, bins * sizeof *out));
    CHECK(cudaMemset(out, 0, bins * sizeof *out));
    CHECK(cudaMemcpy(d, v.data(), N * sizeof *d, cudaMemcpyHostToDevice));
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = cluster;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.gridDim = dim3(8 * cluster);
    config.blockDim = dim3(128);
    config.dynamicSmemBytes = bins / cluster * sizeof(unsigned);
    config.attrs = attribute;
    config.numAttrs = 1;
    int active = 0, largest = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&active, histogram, &config));
    CHECK(cudaOccupancyMaxPotentialClusterSize(&largest, histogram, &config));
    TRUE(active > 0 && largest >= 8);
    CHECK(cudaLaunchKernelEx(&config, histogram, (const unsigned *)d, N, out));
    CHECK(cudaMemcpy(got.data(), out, bins * sizeof *out, cudaMemcpyDeviceToHost));
    TRUE(got == want);
    std::vector<int> pairs(8);
    neighbours<<<8, 32>>>((int *)out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(pairs.data(), out, 8 * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) TRUE(pairs[i] == (i ^ 1) * 10);
    CHECK(cudaFree(d));
    CHECK(cudaFree(out));
    printf("cooperative: clusters right, up to %d blocks each\n", largest);
}

__global__ void first(int *v, int n) {
    cudaTriggerProgrammaticLaunchCompletion(); // the next may begin
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = v[i] * 3 + 1;
}

__global__ void second(int *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    cudaGridDependencySynchronize(); // all of the first is written now
    if (i < n) v[i] += v[n];
}

static void dependent() {
    const int n = 1 << 16;
    int *v, one = 1;
    cudaStream_t s;
    std::vector<int> got(n), want(n, 0);
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaMalloc((void **)&v, (n + 1) * sizeof(int)));
    CHECK(cudaMemset(v, 0, n * sizeof(int)));
    CHECK(cudaMemcpy(v + n, &one, sizeof one, cudaMemcpyHostToDevice));
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(n / 256);
    config.blockDim = dim3(256);
    config.stream = s;
    config.attrs = attribute;
    config.numAttrs = 1;
    for (int round = 0; round < 10; round++) {
        first<<<n / 256, 256, 0, s>>>(v, n);
        CHECK(cudaLaunchKernelEx(&config, second, v, (int)n));
        for (auto &w : want) w = w * 3 + 2;
    }
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemcpy(got.data(), v, n * sizeof(int), cudaMemcpyDeviceToHost));
    TRUE(got == want);
    CHECK(cudaFree(v));
    CHECK(cudaStreamDestroy(s));
    printf("cooperative: programmatic dependent launches right\n");
}

int main() {
    setbuf(stdout, nullptr);
    grids();
    partitions();
    clusters();
    dependent();
    printf("cooperative: right\n");
    return 0;
}
