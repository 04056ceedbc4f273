// Prefix sums, modulo 2^32, each in three kernels; the result of one is what the
// next starts from, so that all of them count.
#include "gpu.h"

GPU_IMAGE("sc.ptx");

int main(int argc, char **argv) {
    gpu.size = 8 << 10;
    gpu.repeat = 1100;
    gpu_options(argc, argv, "sums up all beginnings of a sequence", "elements", "scans of three kernel calls", NULL);
    int n = (int)gpu.size, segments = (int)groups(n, 256);
    size_t bytes = (size_t)n * sizeof(uint32_t);
    uint32_t *numbers = host_alloc(bytes), *sums = host_alloc(bytes);
    for (int i = 0; i < n; i++)
        numbers[i] = random_bits();

    gpu_open(gpu_image);
    CUfunction scan_segments = gpu_kernel("scan_segments");
    CUfunction scan_ends = gpu_kernel("scan_ends");
    CUfunction add_ends = gpu_kernel("add_ends");
    gpu_begin();
    CUdeviceptr data = gpu_put(numbers, bytes), ends = gpu_alloc((size_t)segments * sizeof(uint32_t));
    for (long r = 0; r < gpu.repeat; r++) {
        LAUNCH(scan_segments, segments, 1, 256, 1, &data, &data, &ends, &n);
        LAUNCH(scan_ends, 1, 1, 256, 1, &ends, &segments);
        LAUNCH(add_ends, segments, 1, 256, 1, &data, &ends, &n);
    }
    gpu_get(sums, data, bytes);
    gpu_end();

    for (long r = 0; r < gpu.repeat; r++)
        for (int i = 1; i < n; i++)
            numbers[i] += numbers[i - 1];
    for (int i = 0; i < n; i++)
        if (sums[i] != numbers[i])
            gpu_wrong("element %d is %u, not %u", i, sums[i], numbers[i]);
    return gpu_close("%ld scans of %d elements", gpu.repeat, n);
}
