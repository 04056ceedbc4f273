// Vector addition: one call over long vectors.
#include "gpu.h"

GPU_IMAGE("va.ptx");

int main(int argc, char **argv) {
    gpu.size = 8 << 20;
    gpu.repeat = 1;
    gpu_options(argc, argv, "adds two vectors", "elements", "additions, each of the last sum and the second vector", NULL);
    int n = (int)gpu.size;
    size_t bytes = (size_t)n * sizeof(float);
    float *a = host_alloc(bytes), *b = host_alloc(bytes), *c = host_alloc(bytes);
    for (int i = 0; i < n; i++) {
        a[i] = (float)random_below(1 << 20) / 64;
        b[i] = (float)random_below(1 << 20) / 64;
    }

    gpu_open(gpu_image);
    CUfunction add = gpu_kernel("add");
    gpu_begin();
    CUdeviceptr from = gpu_put(a, bytes), other = gpu_put(b, bytes), to = gpu_alloc(bytes);
    for (long r = 0; r < gpu.repeat; r++) {
        LAUNCH(add, groups(n, 256), 1, 256, 1, &from, &other, &to, &n);
        from = to; // one thread reads and writes an element, so in place is fine
    }
    gpu_get(c, to, bytes);
    gpu_end();

    for (int i = 0; i < n; i++) {
        float sum = a[i];
        for (long r = 0; r < gpu.repeat; r++)
            sum += b[i];
        if (c[i] != sum)
            gpu_wrong("element %d is %g, not %g", i, c[i], sum);
    }
    return gpu_close("%ld additions of %d elements", gpu.repeat, n);
}
