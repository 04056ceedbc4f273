// Matrix products with phases on the CPU between them: the kernels leave the GPU
// free for others in between, while the matrices stay in its memory.
#include "gpu.h"

GPU_IMAGE("mm.ptx");

static float *random_matrix(long n) {
    float *m = host_alloc((size_t)(n * n) * sizeof(float));
    for (long i = 0; i < n * n; i++)
        m[i] = (float)random_below(5) - 2;
    return m;
}

// Checks that c = times a b, by c x = times (a (b x)) for a random x without
// zeros: the work of a product would take far longer than the GPU takes. One
// wrong element always shows, any set of them with all but certainty. All is in
// integers, so nothing is rounded.
static void check(const float *a, const float *b, const float *c, long n, long times) {
    int64_t *x = host_alloc((size_t)n * sizeof *x), *bx = host_alloc((size_t)n * sizeof *bx);
    for (long i = 0; i < n; i++)
        x[i] = 1 + (int64_t)random_below(1 << 20);
    for (long i = 0; i < n; i++) {
        bx[i] = 0;
        for (long j = 0; j < n; j++)
            bx[i] += (int64_t)b[i * n + j] * x[j];
    }
    for (long i = 0; i < n; i++) {
        int64_t want = 0, have = 0;
        for (long j = 0; j < n; j++) {
            want += (int64_t)a[i * n + j] * bx[j];
            have += (int64_t)c[i * n + j] * x[j];
        }
        if (have == times * want)
            continue;
        for (long j = 0; j < n; j++) {
            float sum = 0;
            for (long k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            if (c[i * n + j] != (float)times * sum)
                gpu_wrong("element %ld, %ld is %g, not %g", i, j, c[i * n + j], (float)times * sum);
        }
    }
}

int main(int argc, char **argv) {
    double fraction = 0, milliseconds = 0;
    bool sleeping = false;
    gpu.size = 160;
    gpu.repeat = 200;
    struct gpu_option own[] = {
        {"cpu", "length of a CPU phase as a part of the GPU phase before it", GPU_REAL, &fraction, false},
        {"cpu-ms", "more of each CPU phase, in milliseconds", GPU_REAL, &milliseconds, false},
        {"cpu-sleep", "sleep in CPU phases, as if another core computed", GPU_FLAG, &sleeping, false},
        {0},
    };
    gpu_options(argc, argv, "adds up products of two square matrices", "rows, a multiple of 16", "products", own);
    int n = (int)gpu.size;
    if (n % 16)
        gpu_misuse("--size must be a multiple of 16");
    // An element of a product is at most 4 n, and the sum of all must be exact.
    if (gpu.size > (1 << 22) / gpu.repeat)
        gpu_misuse("--size times --repeat must be at most %d, so that sums are exact", 1 << 22);

    float *a = random_matrix(n), *b = random_matrix(n);
    size_t bytes = (size_t)n * (size_t)n * sizeof(float);
    gpu_open(gpu_image);
    CUfunction multiply_add = gpu_kernel("multiply_add");
    gpu_begin();
    CUdeviceptr left = gpu_put(a, bytes), right = gpu_put(b, bytes), sum = gpu_alloc(bytes);
    CHECK(cuMemsetD32(sum, 0, bytes / 4));
    gpu_end();
    for (long r = 0; r < gpu.repeat; r++) {
        gpu_begin();
        LAUNCH(multiply_add, n / 16, n / 16, 16, 16, &left, &right, &sum, &n);
        double took = gpu_end();
        if (fraction > 0 || milliseconds > 0)
            cpu_phase(fraction * took + milliseconds / 1000, sleeping);
    }
    float *c = host_alloc(bytes);
    gpu_begin();
    gpu_get(c, sum, bytes);
    gpu_end();
    check(a, b, c, n, gpu.repeat);
    return gpu_close("%ld products of %d x %d", gpu.repeat, n, n);
}
