// Jacobi's method for Laplace's equation on a square: the grid is copied to the GPU once, and from
// then on only the largest change comes back, now and then. A program that hardly uses the network.
#include "gpu.h"

#include <stdio.h>

GPU_IMAGE("jacobi.ptx");

// One sweep on the CPU, operation for operation as on the GPU: the results are the same bits.
static float sweep(const float *now, float *then, long n) {
    float most = 0;
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            const float *cell = now + i * n + j;
            float next = *cell;
            if (i > 0 && i < n - 1 && j > 0 && j < n - 1)
                next = 0.25f * ((cell[-n] + cell[n]) + (cell[-1] + cell[1]));
            then[i * n + j] = next;
            float by = next > *cell ? next - *cell : *cell - next;
            most = by > most ? by : most;
        }
    return most;
}

int main(int argc, char **argv) {
    long look = 10;
    gpu.size = 128;
    gpu.repeat = 100;
    struct gpu_option own[] = {
        {"look", "sweeps between two looks at the largest change", GPU_NUMBER, &look, false},
        {0},
    };
    gpu_options(argc, argv, "solves Laplace's equation on a square grid", "rows", "sweeps", own);
    if (look < 1)
        gpu_misuse("--look must be at least 1");
    if (gpu.size > 1 << 14)
        gpu_misuse("--size must be at most %d", 1 << 14);
    int n = (int)gpu.size;
    long cells = (long)n * n, side = groups(n, 16), blocks = side * side;
    size_t bytes = (size_t)cells * sizeof(float);
    float *grid = host_alloc(bytes), *next = host_alloc(bytes), *result = host_alloc(bytes);
    float *change = host_alloc((size_t)blocks * sizeof(float)), *seen = host_alloc((size_t)groups(gpu.repeat, look) * sizeof(float));
    for (long i = 0; i < cells; i++)
        grid[i] = (float)random_below(4096) / 64;

    gpu_open(gpu_image);
    CUfunction kernel = gpu_kernel("sweep");
    gpu_begin();
    CUdeviceptr from = gpu_put(grid, bytes), to = gpu_alloc(bytes), changes = gpu_alloc((size_t)blocks * sizeof(float));
    long looks = 0;
    for (long s = 1; s <= gpu.repeat; s++) {
        LAUNCH(kernel, side, side, 16, 16, &from, &to, &changes, &n);
        CUdeviceptr old = from;
        from = to;
        to = old;
        if (s % look)
            continue;
        gpu_get(change, changes, (size_t)blocks * sizeof(float));
        seen[looks] = 0;
        for (long b = 0; b < blocks; b++)
            if (change[b] > seen[looks])
                seen[looks] = change[b];
        looks++;
    }
    gpu_get(result, from, bytes);
    printf("took %.6f s\n", gpu_end());

    for (long s = 1; s <= gpu.repeat; s++) {
        float most = sweep(grid, next, n);
        if (s % look == 0 && most != seen[s / look - 1])
            gpu_wrong("the largest change of sweep %ld is %.9g, not %.9g", s, seen[s / look - 1], most);
        float *old = grid;
        grid = next;
        next = old;
    }
    for (long i = 0; i < cells; i++)
        if (result[i] != grid[i])
            gpu_wrong("cell %ld, %ld is %.9g, not %.9g", i / n, i % n, result[i], grid[i]);
    return gpu_close("%ld sweeps of %d x %d cells", gpu.repeat, n, n);
}
