// Matrix transpose, back and forth. Each call adds 1 to the elements, so that a
// call that is lost or done twice shows.
#include "gpu.h"

GPU_IMAGE("mt.ptx");

int main(int argc, char **argv) {
    gpu.size = 128;
    gpu.repeat = 816;
    gpu_options(argc, argv, "transposes a square matrix", "rows", "transposes", NULL);
    int n = (int)gpu.size;
    if (n > 1 << 16)
        gpu_misuse("--size must be at most %d", 1 << 16);
    size_t bytes = (size_t)n * (size_t)n * sizeof(uint32_t);
    uint32_t *before = host_alloc(bytes), *after = host_alloc(bytes);
    for (long i = 0; i < (long)n * n; i++)
        before[i] = random_bits();

    gpu_open(gpu_image);
    CUfunction transpose = gpu_kernel("transpose");
    gpu_begin();
    CUdeviceptr from = gpu_put(before, bytes), to = gpu_alloc(bytes);
    for (long r = 0; r < gpu.repeat; r++) {
        LAUNCH(transpose, groups(n, 16), groups(n, 16), 16, 16, &from, &to, &n);
        CUdeviceptr last = from;
        from = to;
        to = last;
    }
    gpu_get(after, from, bytes);
    gpu_end();

    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            uint32_t want = (gpu.repeat % 2 ? before[j * n + i] : before[i * n + j]) + (uint32_t)gpu.repeat;
            if (after[i * n + j] != want)
                gpu_wrong("element %ld, %ld is %u, not %u", i, j, after[i * n + j], want);
        }
    return gpu_close("%ld transposes of %d x %d", gpu.repeat, n, n);
}
