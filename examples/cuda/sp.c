// Scalar products of many pairs of vectors in one call.
#include "gpu.h"

GPU_IMAGE("sp.ptx");

int main(int argc, char **argv) {
    long pairs = 512;
    gpu.size = 16 << 10;
    gpu.repeat = 1;
    struct gpu_option own[] = {
        {"pairs", "pairs of vectors", GPU_NUMBER, &pairs, false},
        {0},
    };
    gpu_options(argc, argv, "multiplies pairs of vectors", "elements of a vector", "kernel calls, each of all products", own);
    // Sums of products from -9 to 9 stay integers that a float holds.
    if (gpu.size > (1 << 24) / 9)
        gpu_misuse("--size must be at most %d, so that sums are exact", (1 << 24) / 9);
    if (pairs < 1 || pairs > 1 << 20)
        gpu_misuse("--pairs must be from 1 to %d", 1 << 20);
    int n = (int)gpu.size;
    size_t count = (size_t)pairs * (size_t)n, bytes = count * sizeof(float);
    size_t result_bytes = (size_t)pairs * (size_t)gpu.repeat * sizeof(float);
    float *a = host_alloc(bytes), *b = host_alloc(bytes), *products = host_alloc(result_bytes);
    for (size_t i = 0; i < count; i++) {
        a[i] = (float)random_below(7) - 3;
        b[i] = (float)random_below(7) - 3;
    }

    gpu_open(gpu_image);
    CUfunction scalar_product = gpu_kernel("scalar_product");
    gpu_begin();
    CUdeviceptr left = gpu_put(a, bytes), right = gpu_put(b, bytes);
    CUdeviceptr out = gpu_alloc(result_bytes);
    for (long r = 0; r < gpu.repeat; r++) {
        CUdeviceptr results = out + (size_t)(r * pairs) * sizeof(float);
        LAUNCH(scalar_product, pairs, 1, 256, 1, &left, &right, &results, &n);
    }
    gpu_get(products, out, result_bytes);
    gpu_end();

    for (long p = 0; p < pairs; p++) {
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += (double)a[p * n + i] * (double)b[p * n + i];
        for (long r = 0; r < gpu.repeat; r++)
            if ((double)products[r * pairs + p] != sum)
                gpu_wrong("product %ld of call %ld is %g, not %g", p, r, products[r * pairs + p], sum);
    }
    return gpu_close("%ld products of %d elements", pairs * gpu.repeat, n);
}
