// Products of pairs of matrices by the processes of a job: in each round the first process
// hands out pairs, and collects the products.
#include "team.h"

#include <stdlib.h>

GPU_IMAGE("mm.ptx");

static int n;

static void check(const float *a, const float *b, const float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;  // of small integers: exact
            for (int k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            if (c[i * n + j] != sum)
                gpu_wrong("element %d, %d is %g, not %g", i, j, c[i * n + j], sum);
        }
}

int main(int argc, char **argv) {
    long pairs = 8;
    gpu.size = 32;
    gpu.repeat = 2;
    struct gpu_option own[] = {{"pairs", "pairs of matrices in a round, at least one for each process", GPU_NUMBER, &pairs, false}, TEAM_OPTIONS, {0}};
    gpu_options(argc, argv, "multiplies pairs of matrices with the processes of a job", "rows, a multiple of 16", "rounds", own);
    if (gpu.size % 16 || gpu.size > 1024 || pairs < 1 || pairs > 1 << 16)
        gpu_misuse("--size must be a multiple of 16 up to 1024, and --pairs from 1 to 65536");
    n = (int)gpu.size;
    team_meet();
    if (pairs % team_count)
        gpu_misuse("--pairs must be a multiple of the %d processes", team_count);
    gpu_open(gpu_image);
    CUfunction multiply_add = gpu_kernel("multiply_add");
    size_t cells = (size_t)n * (size_t)n, bytes = cells * sizeof(float), each = (size_t)(pairs / team_count);
    float *in = host_alloc(2 * bytes * (size_t)pairs), *out = host_alloc(bytes * (size_t)pairs);
    float *mine = host_alloc(2 * bytes * each), *products = host_alloc(bytes * each);
    CUdeviceptr left = gpu_alloc(bytes * each), right = gpu_alloc(bytes * each), product = gpu_alloc(bytes * each);
    for (long r = 0; r < gpu.repeat; r++) {
        if (team_rank == 0)
            for (size_t i = 0; i < 2 * cells * (size_t)pairs; i++)
                in[i] = (float)random_below(5) - 2;
        team_scatter(in, mine, 2 * bytes * each);
        gpu_begin();
        gpu_set(left, mine, bytes * each);
        gpu_set(right, mine + cells * each, bytes * each);
        CHECK(cuMemsetD32(product, 0, cells * each));
        for (size_t i = 0; i < each; i++) {
            CUdeviceptr a = left + i * bytes, b = right + i * bytes, c = product + i * bytes;
            LAUNCH(multiply_add, n / 16, n / 16, 16, 16, &a, &b, &c, &n);
        }
        gpu_get(products, product, bytes * each);
        gpu_end();
        team_gather(products, out, bytes * each);
        if (team_rank > 0)
            continue;
        for (size_t p = 0; p < (size_t)team_count; p++)
            for (size_t i = 0; i < each; i++) {
                const float *a = in + p * 2 * cells * each + i * cells;
                check(a, a + cells * each, out + (p * each + i) * cells);
            }
    }
    return gpu_close("%ld x %ld products of %d x %d", gpu.repeat, pairs, n, n);
}
