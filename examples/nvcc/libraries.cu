// nvcc: -lcufft -lcusparse -lcusolver -lcublas -lcurand
// A call or two of each library, checked by what must hold: a transform there and back, a
// sparse product, a solved system, means of random numbers, a sort and a sum.
#include <cufft.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusparse.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

#include <cmath>
#include <cub/cub.cuh>
#include <vector>

#include "check.h"

static void transform() {
    const int n = 4096, batch = 3;
    std::vector<cufftComplex> v(n * batch), got(n * batch);
    for (int i = 0; i < n * batch; i++) v[i] = {sinf(i), cosf(3 * i)};
    cufftComplex *d;
    CHECK(cudaMalloc(&d, v.size() * sizeof *d));
    CHECK(cudaMemcpy(d, v.data(), v.size() * sizeof *d, cudaMemcpyHostToDevice));
    cufftHandle plan;
    NEED(cufftPlan1d(&plan, n, CUFFT_C2C, batch));
    NEED(cufftExecC2C(plan, d, d, CUFFT_FORWARD));
    NEED(cufftExecC2C(plan, d, d, CUFFT_INVERSE));
    CHECK(cudaMemcpy(got.data(), d, v.size() * sizeof *d, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n * batch; i++) TRUE(fabsf(got[i].x / n - v[i].x) < 1e-3 && fabsf(got[i].y / n - v[i].y) < 1e-3);
    NEED(cufftDestroy(plan));
    const int odd = 3 * 5 * 7 * 11 * 2; // has other kernels than powers of two
    NEED(cufftPlan1d(&plan, odd, CUFFT_C2C, 1));
    NEED(cufftExecC2C(plan, d, d, CUFFT_FORWARD));
    CHECK(cudaDeviceSynchronize());
    NEED(cufftDestroy(plan));
    printf("cuFFT right\n");
}

static void sparse() {
    const int n = 1000; // 2 on the diagonal, -1 beside it
    std::vector<int> rows(n + 1), columns;
    std::vector<float> values, x(n), y(n);
    for (int i = 0; i < n; i++) {
        for (int k = i - 1; k <= i + 1; k++)
            if (k >= 0 && k < n) columns.push_back(k), values.push_back(k == i ? 2 : -1);
        rows[i + 1] = (int)columns.size();
        x[i] = i * i % 17;
    }
    int *dr, *dc;
    float *dv, *dx, *dy, one = 1, none = 0;
    CHECK(cudaMalloc(&dr, rows.size() * 4));
    CHECK(cudaMalloc(&dc, columns.size() * 4));
    CHECK(cudaMalloc(&dv, values.size() * 4));
    CHECK(cudaMalloc(&dx, n * 4));
    CHECK(cudaMalloc(&dy, n * 4));
    CHECK(cudaMemcpy(dr, rows.data(), rows.size() * 4, cudaMemcpyDefault));
    CHECK(cudaMemcpy(dc, columns.data(), columns.size() * 4, cudaMemcpyDefault));
    CHECK(cudaMemcpy(dv, values.data(), values.size() * 4, cudaMemcpyDefault));
    CHECK(cudaMemcpy(dx, x.data(), n * 4, cudaMemcpyDefault));
    cusparseHandle_t handle;
    NEED(cusparseCreate(&handle));
    cusparseSpMatDescr_t matrix;
    cusparseDnVecDescr_t in, out;
    NEED(cusparseCreateCsr(&matrix, n, n, columns.size(), dr, dc, dv, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    NEED(cusparseCreateDnVec(&in, n, dx, CUDA_R_32F));
    NEED(cusparseCreateDnVec(&out, n, dy, CUDA_R_32F));
    size_t size;
    NEED(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &none, out, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &size));
    void *buffer;
    CHECK(cudaMalloc(&buffer, size + 1));
    NEED(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, in, &none, out, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer));
    CHECK(cudaMemcpy(y.data(), dy, n * 4, cudaMemcpyDefault));
    for (int i = 0; i < n; i++) TRUE(y[i] == 2 * x[i] - (i > 0 ? x[i - 1] : 0) - (i < n - 1 ? x[i + 1] : 0));
    NEED(cusparseDestroy(handle));
    printf("cuSPARSE right\n");
}

static void solver() {
    const int n = 64;
    std::vector<double> a(n * n), x(n), b(n), got(n);
    for (int i = 0; i < n; i++) x[i] = i % 7 - 3;
    for (int c = 0; c < n; c++)
        for (int r = 0; r < n; r++) a[c * n + r] = (r * 31 + c * 17) % 23 + (r == c ? 200 : 0);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < n; c++) b[r] += a[c * n + r] * x[c];
    double *da, *db, *work;
    int *pivots, *info, size, failed;
    CHECK(cudaMalloc(&da, n * n * 8));
    CHECK(cudaMalloc(&db, n * 8));
    CHECK(cudaMalloc(&pivots, n * 4));
    CHECK(cudaMalloc(&info, 4));
    CHECK(cudaMemcpy(da, a.data(), n * n * 8, cudaMemcpyDefault));
    CHECK(cudaMemcpy(db, b.data(), n * 8, cudaMemcpyDefault));
    cusolverDnHandle_t handle;
    NEED(cusolverDnCreate(&handle));
    NEED(cusolverDnDgetrf_bufferSize(handle, n, n, da, n, &size));
    CHECK(cudaMalloc(&work, size * 8));
    NEED(cusolverDnDgetrf(handle, n, n, da, n, work, pivots, info));
    NEED(cusolverDnDgetrs(handle, CUBLAS_OP_N, n, 1, da, n, pivots, db, n, info));
    CHECK(cudaMemcpy(&failed, info, 4, cudaMemcpyDefault));
    CHECK(cudaMemcpy(got.data(), db, n * 8, cudaMemcpyDefault));
    TRUE(failed == 0);
    for (int i = 0; i < n; i++) TRUE(fabs(got[i] - x[i]) < 1e-9);
    NEED(cusolverDnDestroy(handle));
    printf("cuSOLVER right\n");
}

static void numbers() {
    const int n = 1 << 20;
    std::vector<float> v(n);
    float *d;
    CHECK(cudaMalloc(&d, n * 4));
    for (auto kind : {CURAND_RNG_PSEUDO_XORWOW, CURAND_RNG_PSEUDO_PHILOX4_32_10, CURAND_RNG_PSEUDO_MTGP32, CURAND_RNG_QUASI_SOBOL32}) {
        curandGenerator_t g;
        NEED(curandCreateGenerator(&g, kind));
        if (kind != CURAND_RNG_QUASI_SOBOL32) NEED(curandSetPseudoRandomGeneratorSeed(g, 7));
        NEED(curandGenerateUniform(g, d, n));
        CHECK(cudaMemcpy(v.data(), d, n * 4, cudaMemcpyDefault));
        double sum = 0;
        for (float f : v) sum += f;
        TRUE(fabs(sum / n - 0.5) < 0.01);
        NEED(curandDestroyGenerator(g));
    }
    printf("cuRAND right\n");
}

static void templates() {
    const int n = 1 << 20;
    std::vector<unsigned> v(n), got(n);
    unsigned x = 1;
    for (auto &e : v) e = x = x * 1664525 + 1013904223;
    thrust::device_vector<unsigned> d(v.begin(), v.end());
    unsigned long long want = 0;
    for (auto e : v) want += e;
    TRUE(thrust::reduce(d.begin(), d.end(), 0ull) == want);
    thrust::sort(d.begin(), d.end());
    thrust::copy(d.begin(), d.end(), got.begin());
    for (int i = 1; i < n; i++) TRUE(got[i - 1] <= got[i]);
    unsigned *from = thrust::raw_pointer_cast(d.data()), *to;
    CHECK(cudaMalloc(&to, n * 4));
    size_t size = 0;
    void *room = nullptr;
    CHECK(cub::DeviceScan::ExclusiveSum(room, size, from, to, n));
    CHECK(cudaMalloc(&room, size));
    CHECK(cub::DeviceScan::ExclusiveSum(room, size, from, to, n));
    unsigned last;
    CHECK(cudaMemcpy(&last, to + n - 1, 4, cudaMemcpyDefault));
    TRUE(last == (unsigned)(want - got[n - 1]));
    printf("Thrust and CUB right\n");
}

int main() {
    setbuf(stdout, nullptr);
    templates();
    numbers();
    transform();
    solver();
    sparse();
    printf("libraries: right\n");
    return 0;
}
