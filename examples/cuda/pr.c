// Parallel reduction: sums of integers, modulo 2^32, so that the order of the
// additions does not matter. Each call leaves a total of its own.
#include "gpu.h"

GPU_IMAGE("pr.ptx");

int main(int argc, char **argv) {
    gpu.size = 64 << 10;
    gpu.repeat = 801;
    gpu_options(argc, argv, "sums up integers", "elements", "sums", NULL);
    int n = (int)gpu.size;
    size_t bytes = (size_t)n * sizeof(uint32_t), total_bytes = (size_t)gpu.repeat * sizeof(uint32_t);
    uint32_t *numbers = host_alloc(bytes), *totals = host_alloc(total_bytes), sum = 0;
    for (int i = 0; i < n; i++)
        sum += numbers[i] = random_bits();

    gpu_open(gpu_image);
    CUfunction reduce = gpu_kernel("reduce");
    gpu_begin();
    CUdeviceptr in = gpu_put(numbers, bytes), out = gpu_alloc(total_bytes);
    CHECK(cuMemsetD32(out, 0, (size_t)gpu.repeat));
    long blocks = groups(n, 4 * 256);
    for (long r = 0; r < gpu.repeat; r++) {
        CUdeviceptr total = out + (size_t)r * sizeof(uint32_t);
        LAUNCH(reduce, blocks < 256 ? blocks : 256, 1, 256, 1, &in, &total, &n);
    }
    gpu_get(totals, out, total_bytes);
    gpu_end();

    for (long r = 0; r < gpu.repeat; r++)
        if (totals[r] != sum)
            gpu_wrong("sum %ld is %u, not %u", r, totals[r], sum);
    return gpu_close("%ld sums of %d elements", gpu.repeat, n);
}
