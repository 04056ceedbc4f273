// nvcc: -std=c++17 -lcublas -lcusparse -lcusolver -lcufft -lcurand
// More of the libraries: batches and triangles of cuBLAS, sparse products with matrices,
// factors and eigenvalues, transforms of two and three dimensions and of reals, and random
// numbers, made by the library and in kernels.
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cufft.h>
#include <curand.h>
#include <curand_kernel.h>
#include <cusolverDn.h>
#include <cusparse.h>

#include <cmath>
#include <vector>

#include "check.h"

template <class T> T *onto(const std::vector<T> &v) {
    T *p;
    CHECK(cudaMalloc((void **)&p, v.size() * sizeof(T)));
    CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> std::vector<T> back(const T *p, size_t n) {
    std::vector<T> v(n);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

static void batches() {
    const int n = 32, batch = 10, size = n * n;
    std::vector<float> a(size * batch), b(size * batch), want(size * batch), zero(size * batch);
    for (int i = 0; i < size * batch; i++) a[i] = i * 7 % 13 - 6, b[i] = i * 5 % 11 - 5;
    for (int m = 0; m < batch; m++)
        for (int c = 0; c < n; c++)
            for (int r = 0; r < n; r++)
                for (int k = 0; k < n; k++) want[m * size + c * n + r] += a[m * size + k * n + r] * b[m * size + c * n + k];
    float *da = onto(a), *db = onto(b), *dc = onto(zero), one = 1, none = 0;
    cublasHandle_t h;
    NEED(cublasCreate(&h));
    NEED(cublasSgemmStridedBatched(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, da, n, size, db, n, size, &none, dc, n, size, batch));
    TRUE(back(dc, size * batch) == want);
    std::vector<const float *> pa, pb;
    std::vector<float *> pc;
    for (int m = 0; m < batch; m++) pa.push_back(da + m * size), pb.push_back(db + m * size), pc.push_back(dc + (batch - 1 - m) * size);
    const float **dpa = onto(pa), **dpb = onto(pb);
    float **dpc = onto(pc);
    NEED(cublasSgemmBatched(h, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, dpa, n, dpb, n, &none, dpc, n, batch));
    std::vector<float> got = back(dc, size * batch);
    for (int m = 0; m < batch; m++)
        for (int i = 0; i < size; i++) TRUE(got[(batch - 1 - m) * size + i] == want[m * size + i]);
    // A triangle: L X = B, with B = L times what is known.
    std::vector<double> l(size), x(size), y(size);
    for (int c = 0; c < n; c++)
        for (int r = 0; r < n; r++) l[c * n + r] = r == c ? 4 : r > c ? (r + c) % 3 - 1 : 99, x[c * n + r] = (r * 5 + c) % 7 - 3;
    for (int c = 0; c < n; c++)
        for (int r = 0; r < n; r++)
            for (int k = 0; k <= r; k++) y[c * n + r] += l[k * n + r] * x[c * n + k];
    double *dl = onto(l), *dy = onto(y), oned = 1;
    NEED(cublasDtrsm(h, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, n, &oned, dl, n, dy, n));
    std::vector<double> solved = back(dy, size);
    for (int i = 0; i < size; i++) TRUE(fabs(solved[i] - x[i]) < 1e-6);
    // Vectors, with the result on the device.
    float *result;
    int *index;
    CHECK(cudaMalloc((void **)&result, sizeof(float)));
    CHECK(cudaMalloc((void **)&index, sizeof(int)));
    NEED(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_DEVICE));
    NEED(cublasSasum(h, size, da, 1, result));
    NEED(cublasIsamax(h, size, da, 1, index));
    float sum = 0;
    for (int i = 0; i < size; i++) sum += fabsf(a[i]);
    TRUE(back(result, 1)[0] == sum);
    TRUE(fabsf(a[back(index, 1)[0] - 1]) == 6);
    NEED(cublasSetPointerMode(h, CUBLAS_POINTER_MODE_HOST));
    std::vector<signed char> ia(64 * 64), ib(64 * 64);
    std::vector<int> iwant(64 * 64);
    for (int i = 0; i < 64 * 64; i++) ia[i] = i * 7 % 13 - 6, ib[i] = i * 5 % 11 - 5;
    for (int c = 0; c < 64; c++)
        for (int r = 0; r < 64; r++)
            for (int k = 0; k < 64; k++) iwant[c * 64 + r] += ia[r * 64 + k] * ib[c * 64 + k];
    signed char *dia = onto(ia), *dib = onto(ib);
    int *dic = onto(std::vector<int>(64 * 64)), ione = 1, izero = 0;
    NEED(cublasGemmEx(h, CUBLAS_OP_T, CUBLAS_OP_N, 64, 64, 64, &ione, dia, CUDA_R_8I, 64, dib, CUDA_R_8I, 64, &izero, dic, CUDA_R_32I, 64, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT));
    TRUE(back(dic, 64 * 64) == iwant);
    NEED(cublasDestroy(h));
    printf("libs2: cuBLAS right\n");
}

static void sparse() {
    const int n = 500, columns = 8; // each row has the elements i, 3 i and 7 i
    std::vector<int> rows(n + 1), index;
    std::vector<float> values, dense(n * columns), want(n * columns);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++)
            if (k == i || k == 3 * i % n || k == 7 * i % n) index.push_back(k), values.push_back((i + k) % 5 + 1);
        rows[i + 1] = (int)index.size();
    }
    for (int i = 0; i < n * columns; i++) dense[i] = i % 9 - 4;
    for (int c = 0; c < columns; c++)
        for (int i = 0; i < n; i++)
            for (int e = rows[i]; e < rows[i + 1]; e++) want[c * n + i] += values[e] * dense[c * n + index[e]];
    int *dr = onto(rows), *di = onto(index);
    float *dv = onto(values), *dd = onto(dense), *out = onto(std::vector<float>(n * columns)), one = 1, none = 0;
    cusparseHandle_t h;
    cusparseSpMatDescr_t m;
    cusparseDnMatDescr_t b, c;
    size_t size;
    void *room;
    NEED(cusparseCreate(&h));
    NEED(cusparseCreateCsr(&m, n, n, values.size(), dr, di, dv, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    NEED(cusparseCreateDnMat(&b, n, columns, n, dd, CUDA_R_32F, CUSPARSE_ORDER_COL));
    NEED(cusparseCreateDnMat(&c, n, columns, n, out, CUDA_R_32F, CUSPARSE_ORDER_COL));
    NEED(cusparseSpMM_bufferSize(h, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, m, b, &none, c, CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, &size));
    CHECK(cudaMalloc(&room, size + 1));
    NEED(cusparseSpMM(h, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, m, b, &none, c, CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, room));
    TRUE(back(out, n * columns) == want);
    CHECK(cudaFree(room));
    // To dense and compressed again.
    float *whole = onto(std::vector<float>(n * n));
    cusparseDnMatDescr_t w;
    NEED(cusparseCreateDnMat(&w, n, n, n, whole, CUDA_R_32F, CUSPARSE_ORDER_ROW));
    NEED(cusparseSparseToDense_bufferSize(h, m, w, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, &size));
    CHECK(cudaMalloc(&room, size + 1));
    NEED(cusparseSparseToDense(h, m, w, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, room));
    std::vector<float> full = back(whole, n * n);
    size_t found = 0;
    for (float f : full) found += f != 0;
    TRUE(found == values.size() && full[0] == values[0]);
    CHECK(cudaFree(room));
    for (auto d : {b, c, w}) NEED(cusparseDestroyDnMat(d));
    NEED(cusparseDestroySpMat(m));
    NEED(cusparseDestroy(h));
    printf("libs2: cuSPARSE right\n");
}

static void solver() {
    const int n = 48;
    std::vector<double> a(n * n), values(n);
    for (int c = 0; c < n; c++) // symmetric, and positive: eigenvalues 2 - 2 cos
        for (int r = 0; r < n; r++) a[c * n + r] = r == c ? 2 : abs(r - c) == 1 ? -1 : 0;
    for (int k = 0; k < n; k++) values[k] = 2 - 2 * cos((k + 1) * M_PI / (n + 1));
    cusolverDnHandle_t h;
    int size, *info = onto(std::vector<int>(1));
    double *work, *d = onto(a), *w = onto(std::vector<double>(n));
    NEED(cusolverDnCreate(&h));
    NEED(cusolverDnDsyevd_bufferSize(h, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, d, n, w, &size));
    CHECK(cudaMalloc((void **)&work, size * sizeof(double)));
    NEED(cusolverDnDsyevd(h, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, d, n, w, work, size, info));
    TRUE(back(info, 1)[0] == 0);
    std::vector<double> got = back(w, n);
    for (int k = 0; k < n; k++) TRUE(fabs(got[k] - values[k]) < 1e-10);
    CHECK(cudaFree(work));
    d = onto(a); // Cholesky: L times its transpose is what it was
    NEED(cusolverDnDpotrf_bufferSize(h, CUBLAS_FILL_MODE_LOWER, n, d, n, &size));
    CHECK(cudaMalloc((void **)&work, size * sizeof(double)));
    NEED(cusolverDnDpotrf(h, CUBLAS_FILL_MODE_LOWER, n, d, n, work, size, info));
    TRUE(back(info, 1)[0] == 0);
    std::vector<double> l = back(d, n * n);
    for (int r = 0; r < n; r++)
        for (int c = 0; c <= r; c++) {
            double s = 0;
            for (int k = 0; k <= c; k++) s += l[k * n + r] * l[k * n + c];
            TRUE(fabs(s - a[c * n + r]) < 1e-10);
        }
    CHECK(cudaFree(work));
    d = onto(a); // singular values are the eigenvalues, the largest first
    double *u = onto(std::vector<double>(n * n)), *vt = onto(std::vector<double>(n * n));
    NEED(cusolverDnDgesvd_bufferSize(h, n, n, &size));
    CHECK(cudaMalloc((void **)&work, size * sizeof(double)));
    NEED(cusolverDnDgesvd(h, 'A', 'A', n, n, d, n, w, u, n, vt, n, work, size, nullptr, info));
    TRUE(back(info, 1)[0] == 0);
    got = back(w, n);
    for (int k = 0; k < n; k++) TRUE(fabs(got[k] - values[n - 1 - k]) < 1e-10);
    NEED(cusolverDnDestroy(h));
    printf("libs2: cuSOLVER right\n");
}

static void transforms() {
    const int X = 16, Y = 12, Z = 10, n = X * Y * Z;
    std::vector<cufftComplex> v(n);
    for (int i = 0; i < n; i++) { // one wave in each direction: all lies in one place
        int x = i / (Y * Z), y = i / Z % Y, z = i % Z;
        double t = 2 * M_PI * (3.0 * x / X + 5.0 * y / Y + 2.0 * z / Z);
        v[i] = {(float)cos(t), (float)sin(t)};
    }
    cufftComplex *d = onto(v);
    cufftHandle p;
    NEED(cufftPlan3d(&p, X, Y, Z, CUFFT_C2C));
    NEED(cufftExecC2C(p, d, d, CUFFT_FORWARD));
    std::vector<cufftComplex> got = back(d, n);
    for (int i = 0; i < n; i++) TRUE(fabsf(got[i].x - (i == (3 * Y + 5) * Z + 2 ? n : 0)) < 0.05f && fabsf(got[i].y) < 0.05f);
    NEED(cufftDestroy(p));
    std::vector<float> reals(X * Y);
    for (int i = 0; i < X * Y; i++) reals[i] = (float)(i * 31 % 17);
    float *r = onto(reals);
    cufftComplex *half = onto(std::vector<cufftComplex>(X * (Y / 2 + 1)));
    cufftHandle there, again;
    cudaStream_t s;
    CHECK(cudaStreamCreate(&s));
    NEED(cufftPlan2d(&there, X, Y, CUFFT_R2C));
    NEED(cufftPlan2d(&again, X, Y, CUFFT_C2R));
    NEED(cufftSetStream(there, s));
    NEED(cufftSetStream(again, s));
    NEED(cufftExecR2C(there, r, half));
    std::vector<cufftComplex> spectrum = back(half, X * (Y / 2 + 1));
    double sum = 0;
    for (float f : reals) sum += f;
    TRUE(fabs(spectrum[0].x - sum) < 0.01);
    NEED(cufftExecC2R(again, half, r));
    std::vector<float> same = back(r, X * Y);
    for (int i = 0; i < X * Y; i++) TRUE(fabsf(same[i] / (X * Y) - reals[i]) < 1e-3f);
    NEED(cufftDestroy(there));
    NEED(cufftDestroy(again));
    int sizes[] = {64}; // many, one element of each after the other
    std::vector<cufftDoubleComplex> many(64 * 5);
    for (int i = 0; i < 64; i++)
        for (int b = 0; b < 5; b++) many[i * 5 + b] = {i == 0 ? b + 1.0 : 0.0, 0.0};
    cufftDoubleComplex *dm = onto(many);
    NEED(cufftPlanMany(&p, 1, sizes, sizes, 5, 1, sizes, 5, 1, CUFFT_Z2Z, 5));
    NEED(cufftExecZ2Z(p, dm, dm, CUFFT_FORWARD));
    std::vector<cufftDoubleComplex> flat = back(dm, 64 * 5);
    for (int i = 0; i < 64 * 5; i++) TRUE(fabs(flat[i].x - (i % 5 + 1)) < 1e-9 && fabs(flat[i].y) < 1e-9);
    NEED(cufftDestroy(p));
    CHECK(cudaStreamDestroy(s));
    printf("libs2: cuFFT right\n");
}

__global__ void inside(unsigned long long *hits, curandStatePhilox4_32_10_t *states, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t s;
    curand_init(1234, i, 0, &s);
    unsigned mine = 0;
    for (int k = 0; k < rounds; k++) {
        float4 r = curand_uniform4(&s);
        mine += r.x * r.x + r.y * r.y <= 1;
        mine += r.z * r.z + r.w * r.w <= 1;
    }
    states[i] = s;
    atomicAdd(hits, (unsigned long long)mine);
}

__global__ void normals(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    curandState s;
    curand_init(99, i, 0, &s);
    if (i < n) out[i] = curand_normal(&s);
}

static void mean(const std::vector<float> &v, double &m, double &deviation) {
    double sum = 0, squares = 0;
    for (float f : v) sum += f, squares += (double)f * f;
    m = sum / v.size();
    deviation = sqrt(squares / v.size() - m * m);
}

static void randoms() {
    const int n = 1 << 18, threads = 1 << 14, rounds = 32;
    double m, deviation;
    unsigned long long *hits = onto(std::vector<unsigned long long>(1));
    curandStatePhilox4_32_10_t *states;
    CHECK(cudaMalloc((void **)&states, threads * sizeof *states));
    inside<<<threads / 128, 128>>>(hits, states, rounds);
    CHECK(cudaGetLastError());
    TRUE(fabs(4.0 * back(hits, 1)[0] / (2.0 * threads * rounds) - M_PI) < 0.02);
    float *d = onto(std::vector<float>(n));
    normals<<<n / 256, 256>>>(d, n);
    CHECK(cudaGetLastError());
    mean(back(d, n), m, deviation);
    TRUE(fabs(m) < 0.02 && fabs(deviation - 1) < 0.02);
    curandGenerator_t g, onHost;
    NEED(curandCreateGenerator(&g, CURAND_RNG_PSEUDO_MRG32K3A));
    NEED(curandCreateGeneratorHost(&onHost, CURAND_RNG_PSEUDO_MRG32K3A));
    std::vector<float> host(n), first;
    for (int round = 0; round < 2; round++) { // the same numbers from the same seed
        NEED(curandSetPseudoRandomGeneratorSeed(g, 42));
        NEED(curandSetGeneratorOffset(g, 0));
        NEED(curandGenerateUniform(g, d, n));
        std::vector<float> got = back(d, n);
        TRUE(round == 0 || got == first);
        first = got;
    }
    NEED(curandSetPseudoRandomGeneratorSeed(onHost, 42));
    NEED(curandGenerateUniform(onHost, host.data(), n));
    mean(host, m, deviation);
    TRUE(fabs(m - 0.5) < 0.01);
    NEED(curandGenerateNormal(g, d, n, 10, 2));
    mean(back(d, n), m, deviation);
    TRUE(fabs(m - 10) < 0.05 && fabs(deviation - 2) < 0.05);
    unsigned *counts = onto(std::vector<unsigned>(n));
    NEED(curandGeneratePoisson(g, counts, n, 4.0));
    double sum = 0;
    for (unsigned c : back(counts, n)) sum += c;
    TRUE(fabs(sum / n - 4) < 0.05);
    NEED(curandDestroyGenerator(g));
    NEED(curandDestroyGenerator(onHost));
    printf("libs2: cuRAND right\n");
}

int main() {
    setbuf(stdout, nullptr);
    batches();
    sparse();
    solver();
    transforms();
    randoms();
    printf("libs2: right\n");
    return 0;
}
