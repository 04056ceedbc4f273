// Multiplies two matrices in tiles of shared memory and checks the product.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t e = (call);                                                         \
        if (e != cudaSuccess) {                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

const int tile = 16;

__global__ void product(const float *a, const float *b, float *c, int n) {
    __shared__ float as[tile][tile], bs[tile][tile];
    int row = blockIdx.y * tile + threadIdx.y, column = blockIdx.x * tile + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n / tile; t++) {
        as[threadIdx.y][threadIdx.x] = a[row * n + t * tile + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(t * tile + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < tile; k++) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 256;
    if (n <= 0 || n % tile) {
        fprintf(stderr, "the size must be a multiple of %d\n", tile);
        return 2;
    }
    size_t bytes = (size_t)n * n * sizeof(float);
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) a[i] = (i * 7 % 13) - 6, b[i] = (i * 5 % 11) - 5;
    float *da, *db, *dc;
    CHECK(cudaMalloc(&da, bytes));
    CHECK(cudaMalloc(&db, bytes));
    CHECK(cudaMalloc(&dc, bytes));
    CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaEventRecord(start));
    product<<<dim3(n / tile, n / tile), dim3(tile, tile)>>>(da, db, dc, n);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    CHECK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
    // All values are small integers, so the order of summation does not matter.
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j += 37) {
            float want = 0;
            for (int k = 0; k < n; k++) want += a[i * n + k] * b[k * n + j];
            if (c[i * n + j] != want) {
                fprintf(stderr, "element (%d,%d) is %g, not %g\n", i, j, c[i * n + j], want);
                return 1;
            }
        }
    if (!(ms >= 0)) {
        fprintf(stderr, "the kernel took %g ms\n", ms);
        return 1;
    }
    printf("matmul: %d x %d right\n", n, n);
    return 0;
}
