// nvcc: -std=c++17
// Tensor cores in three precisions, copies into shared memory that go on beside the kernel
// (cp.async by barrier and pipeline, bulk copies and tensor maps of compute capability 9.0),
// and what the threads of a warp tell each other.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_fp16.h>
#include <mma.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;
namespace wmma = nvcuda::wmma;

template <class T> T *onto(const std::vector<T> &v) {
    T *p;
    CHECK(cudaMalloc((void **)&p, v.size() * sizeof(T)));
    CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> std::vector<T> back(const T *p, size_t n) {
    std::vector<T> v(n);
    CHECK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

const int M = 64; // all matrices are M by M, row by row

// A warp for each tile of 16 by 16.
template <class In, class Fragment, class Out, int K> __global__ void product(const In *a, const In *b, Out *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, K, Fragment, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, K, Fragment, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, K, Out> fc;
    wmma::fill_fragment(fc, (Out)0);
    int row = blockIdx.y * 16, column = blockIdx.x * 16;
    for (int k = 0; k < M; k += K) {
        wmma::load_matrix_sync(fa, a + row * M + k, M);
        wmma::load_matrix_sync(fb, b + k * M + column, M);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(c + row * M + column, fc, M, wmma::mem_row_major);
}

template <class In, class Fragment, class Out, int K> static void check(const char *what, In (*make)(int)) {
    std::vector<In> a(M * M), b(M * M);
    std::vector<int> want(M * M), x(M * M), y(M * M);
    for (int i = 0; i < M * M; i++) {
        x[i] = i * 7 % 13 - 6, y[i] = i * 5 % 11 - 5; // small: exact in all of them
        a[i] = make(x[i]), b[i] = make(y[i]);
    }
    for (int r = 0; r < M; r++)
        for (int c = 0; c < M; c++)
            for (int k = 0; k < M; k++) want[r * M + c] += x[r * M + k] * y[k * M + c];
    In *da = onto(a), *db = onto(b);
    Out *dc = onto(std::vector<Out>(M * M));
    product<In, Fragment, Out, K><<<dim3(M / 16, M / 16), 32>>>(da, db, dc);
    CHECK(cudaGetLastError());
    std::vector<Out> got = back(dc, M * M);
    for (int i = 0; i < M * M; i++) TRUE(got[i] == (Out)want[i]);
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    printf("tensor: product in %s right\n", what);
}

__global__ void staged(const int *in, int *out, int rounds) { // 128 threads
    __shared__ __align__(16) int room[2][128 * 4];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&ready, block.size());
    block.sync();
    int sum = 0;
    for (int r = 0; r < rounds; r++) { // by barrier
        cuda::memcpy_async(block, room[0], in + r * 512, cuda::aligned_size_t<16>(sizeof room[0]), ready);
        ready.arrive_and_wait();
        sum += room[0][511 - threadIdx.x];
        block.sync();
    }
    auto pipe = cuda::make_pipeline(); // by pipeline: the next is fetched while this is used
    pipe.producer_acquire();
    cuda::memcpy_async(&room[0][threadIdx.x * 4], in + threadIdx.x * 4, cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
    for (int r = 0; r < rounds; r++) {
        if (r + 1 < rounds) {
            pipe.producer_acquire();
            cuda::memcpy_async(&room[(r + 1) % 2][threadIdx.x * 4], in + (r + 1) * 512 + threadIdx.x * 4, cuda::aligned_size_t<16>(16), pipe);
            pipe.producer_commit();
            cuda::pipeline_consumer_wait_prior<1>(pipe);
        } else {
            cuda::pipeline_consumer_wait_prior<0>(pipe);
        }
        block.sync();
        sum += 1000 * room[r % 2][127 - threadIdx.x];
        block.sync();
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}

static void asynchronous() {
    const int rounds = 6;
    std::vector<int> in(512 * rounds);
    for (int i = 0; i < 512 * rounds; i++) in[i] = i % 37;
    int *din = onto(in), *dout = onto(std::vector<int>(128));
    staged<<<1, 128>>>(din, dout, rounds);
    CHECK(cudaGetLastError());
    std::vector<int> got = back(dout, 128);
    for (int t = 0; t < 128; t++) {
        int want = 0;
        for (int r = 0; r < rounds; r++) want += in[r * 512 + 511 - t] + 1000 * in[r * 512 + 127 - t];
        TRUE(got[t] == want);
    }
    CHECK(cudaFree(din));
    CHECK(cudaFree(dout));
    printf("tensor: asynchronous copies right\n");
}

const int tile = 32;

__device__ unsigned place(const void *shared) { return (unsigned)__cvta_generic_to_shared(shared); }

__device__ void begin(uint64_t *bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(bar)), "r"(bytes) : "memory");
}

__device__ void await(uint64_t *bar, unsigned phase) {
    unsigned done = 0;
    while (!done)
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(place(bar)), "r"(phase) : "memory");
}

// Loads a tile by tensor map and a row by a bulk copy, adds them, and stores the tile's rows.
__global__ void bulk(const __grid_constant__ CUtensorMap map, const int *row, int *out) {
    __shared__ __align__(128) int square[tile * tile];
    __shared__ __align__(128) int line[tile];
    __shared__ __align__(8) uint64_t bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place(&bar)), "r"(1) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        begin(&bar, sizeof square);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(place(square)), "l"((uint64_t)&map), "r"((int)(blockIdx.x * tile)), "r"((int)(blockIdx.y * tile)), "r"(place(&bar)) : "memory");
    }
    await(&bar, 0);
    __syncthreads();
    if (threadIdx.x == 0) {
        begin(&bar, sizeof line);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place(line)), "l"((uint64_t)__cvta_generic_to_global(row + blockIdx.x * tile)), "r"((unsigned)sizeof line), "r"(place(&bar)) : "memory");
    }
    await(&bar, 1);
    for (int i = threadIdx.x; i < tile * tile; i += blockDim.x) square[i] += line[i % tile];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        int *to = out + (blockIdx.y * gridDim.x + blockIdx.x) * tile * tile;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"((uint64_t)__cvta_generic_to_global(to)), "r"(place(square)), "r"((unsigned)sizeof square) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

static void tensorMap() {
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    if (prop.major < 9) {
        printf("tensor: tensor maps skipped: compute capability %d.%d has none\n", prop.major, prop.minor);
        return;
    }
    const int W = 96, H = 60; // the last tiles reach beyond, where zeros are read
    std::vector<int> in(W * H), row(W);
    for (int i = 0; i < W * H; i++) in[i] = i;
    for (int i = 0; i < W; i++) row[i] = -10000 * i;
    int *din = onto(in), *drow = onto(row), *dout = onto(std::vector<int>(W * 64));
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    TRUE(found == cudaDriverEntryPointSuccess && entry);
    auto encode = (decltype(&cuTensorMapEncodeTiled))entry;
    CUtensorMap map;
    cuuint64_t sizes[] = {W, H}, strides[] = {W * sizeof(int)};
    cuuint32_t box[] = {tile, tile}, steps[] = {1, 1};
    NEED(encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, din, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    bulk<<<dim3(W / tile, 2), 128>>>(map, drow, dout);
    CHECK(cudaGetLastError());
    std::vector<int> got = back(dout, W * 64);
    for (int y = 0; y < 64; y++)
        for (int x = 0; x < W; x++) {
            int at = (y / tile * (W / tile) + x / tile) * tile * tile + y % tile * tile + x % tile;
            TRUE(got[at] == (y < H ? y * W + x : 0) - 10000 * x);
        }
    CHECK(cudaFree(din));
    CHECK(cudaFree(drow));
    CHECK(cudaFree(dout));
    printf("tensor: tensor maps and bulk copies right\n");
}

__global__ void talk(unsigned *out) {
    unsigned i = threadIdx.x, all = 0xffffffffu, *o = out + 12 * i;
    int same;
    o[0] = __shfl_sync(all, i * 3, 7);
    o[1] = __shfl_up_sync(all, i, 2);
    o[2] = __shfl_down_sync(all, i, 3, 16);
    o[3] = __shfl_xor_sync(all, i, 5);
    o[4] = __ballot_sync(all, i % 3 == 0);
    o[5] = __any_sync(all, i == 31) * 2 + __all_sync(all, i < 31);
    o[6] = __match_any_sync(all, i % 4);
    o[7] = __match_all_sync(all, i / 32, &same) == all && same;
    o[8] = __reduce_add_sync(all, i);
    o[9] = __reduce_max_sync(all, (i * 7) % 32) * 100 + __reduce_min_sync(all, i + 5);
    o[10] = __reduce_xor_sync(all, i * i) ^ __reduce_or_sync(all, 1u << i);
    o[11] = __popc(__ballot_sync(all, i & 1)) + __ffs(8) + __clz(1);
}

static void warps() {
    unsigned *d = onto(std::vector<unsigned>(32 * 12));
    talk<<<1, 32>>>(d);
    CHECK(cudaGetLastError());
    std::vector<unsigned> got = back(d, 32 * 12);
    unsigned squares = 0, thirds = 0;
    for (unsigned i = 0; i < 32; i++) squares ^= i * i, thirds |= (unsigned)(i % 3 == 0) << i;
    for (unsigned i = 0; i < 32; i++) {
        const unsigned *o = &got[12 * i];
        TRUE(o[0] == 21 && o[1] == (i < 2 ? i : i - 2) && o[2] == (i % 16 + 3 < 16 ? i + 3 : i) && o[3] == (i ^ 5));
        TRUE(o[4] == thirds && o[5] == 2 && o[6] == 0x11111111u << (i % 4) && o[7] == 1);
        TRUE(o[8] == 496 && o[9] == 3105 && o[10] == (squares ^ 0xffffffffu) && o[11] == 16 + 4 + 31);
    }
    CHECK(cudaFree(d));
    printf("tensor: warps right\n");
}

int main() {
    setbuf(stdout, nullptr);
    check<half, half, float, 16>("half", [](int i) { return __float2half((float)i); });
    check<float, wmma::precision::tf32, float, 8>("tf32", [](int i) { return (float)i; });
    check<signed char, signed char, int, 16>("int8", [](int i) { return (signed char)i; });
    asynchronous();
    warps();
    tensorMap();
    printf("tensor: right\n");
    return 0;
}
