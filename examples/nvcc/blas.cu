// nvcc: -lcublas -lcublasLt
// Matrix products by cuBLAS and cuBLASLt, in several precisions, beside the host's.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>

#include <cmath>
#include <vector>

#include "check.h"

template <class T> T *onto(const std::vector<T> &v) {
    T *p;
    CHECK(cudaMalloc(&p, v.size() * sizeof(T)));
    CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> std::vector<T> back(const T *p, size_t n) {
    std::vector<T> v(n);
    CHECK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

int main() {
    const int n = 192;
    std::vector<float> a(n * n), b(n * n), want(n * n), zero(n * n);
    std::vector<double> ad(n * n), bd(n * n), zd(n * n);
    std::vector<half> ah(n * n), bh(n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = i * 7 % 13 - 6, b[i] = i * 5 % 11 - 5;
        ad[i] = a[i], bd[i] = b[i], ah[i] = __float2half(a[i]), bh[i] = __float2half(b[i]);
    }
    for (int c = 0; c < n; c++)
        for (int r = 0; r < n; r++) {
            float s = 0;
            for (int k = 0; k < n; k++) s += a[k * n + r] * b[c * n + k];
            want[c * n + r] = s;
        }
    cublasHandle_t handle;
    NEED(cublasCreate(&handle));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    NEED(cublasSetStream(handle, stream));
    float *da = onto(a), *db = onto(b), *dc = onto(zero), one = 1, none = 0;
    NEED(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, da, n, db, n, &none, dc, n));
    CHECK(cudaStreamSynchronize(stream));
    TRUE(back(dc, n * n) == want);

    double *dad = onto(ad), *dbd = onto(bd), *dcd = onto(zd), oned = 1, noned = 0;
    NEED(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &oned, dad, n, dbd, n, &noned, dcd, n));
    CHECK(cudaStreamSynchronize(stream));
    auto got = back(dcd, n * n);
    for (int i = 0; i < n * n; i++) TRUE(got[i] == want[i]);

    half *dah = onto(ah), *dbh = onto(bh);
    NEED(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, dah, CUDA_R_16F, n, dbh, CUDA_R_16F, n, &none, dc, CUDA_R_32F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    CHECK(cudaStreamSynchronize(stream));
    TRUE(back(dc, n * n) == want);

    float dot;
    NEED(cublasSdot(handle, n, da, 1, db, 1, &dot));
    float expect = 0;
    for (int i = 0; i < n; i++) expect += a[i] * b[i];
    TRUE(fabsf(dot - expect) < 1e-3);
    NEED(cublasDestroy(handle));

    cublasLtHandle_t lt;
    NEED(cublasLtCreate(&lt));
    cublasLtMatmulDesc_t what;
    NEED(cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasLtMatrixLayout_t in, out;
    NEED(cublasLtMatrixLayoutCreate(&in, CUDA_R_16F, n, n, n));
    NEED(cublasLtMatrixLayoutCreate(&out, CUDA_R_32F, n, n, n));
    CHECK(cudaMemset(dc, 0, n * n * sizeof *dc));
    cublasLtMatmulPreference_t wish;
    size_t room = 32 << 20;
    void *workspace;
    CHECK(cudaMalloc(&workspace, room));
    NEED(cublasLtMatmulPreferenceCreate(&wish));
    NEED(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
    cublasLtMatmulHeuristicResult_t way[1];
    int ways;
    NEED(cublasLtMatmulAlgoGetHeuristic(lt, what, in, in, out, out, wish, 1, way, &ways));
    TRUE(ways == 1);
    NEED(cublasLtMatmul(lt, what, &one, dah, in, dbh, in, &none, dc, out, dc, out, &way[0].algo, workspace, room, stream));
    CHECK(cudaStreamSynchronize(stream));
    TRUE(back(dc, n * n) == want);
    NEED(cublasLtDestroy(lt));
    printf("blas: right\n");
    return 0;
}
