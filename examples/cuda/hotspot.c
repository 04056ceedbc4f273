// Heat on a chip: several time steps in one call.
#include "gpu.h"

#include <math.h>

GPU_IMAGE("hotspot.ptx");

static const float k = 0.25f, r = 0.5f, z = 0.01f;

// One step on the CPU, operation for operation as on the GPU: the results are
// the same bits.
static void advance(const float *now, const float *power, float *then, long n) {
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) {
            const float *cell = now + i * n + j;
            float north = i > 0 ? cell[-n] : *cell, south = i < n - 1 ? cell[n] : *cell;
            float west = j > 0 ? cell[-1] : *cell, east = j < n - 1 ? cell[1] : *cell;
            float sum = power[i * n + j];
            sum = fmaf(north + south - 2.0f * *cell, r, sum);
            sum = fmaf(east + west - 2.0f * *cell, r, sum);
            sum = fmaf(80.0f - *cell, z, sum);
            then[i * n + j] = fmaf(k, sum, *cell);
        }
}

int main(int argc, char **argv) {
    long steps = 4;
    gpu.size = 512;
    gpu.repeat = 1;
    struct gpu_option own[] = {
        {"steps", "time steps of a call, 1 to 7", GPU_NUMBER, &steps, false},
        {0},
    };
    gpu_options(argc, argv, "simulates heat on a square grid", "rows", "kernel calls", own);
    if (steps < 1 || steps > 7)
        gpu_misuse("--steps must be from 1 to 7");
    if (gpu.size > 1 << 16)
        gpu_misuse("--size must be at most %d", 1 << 16);
    int n = (int)gpu.size, inside = (int)steps;
    long cells = (long)n * n;
    size_t bytes = (size_t)cells * sizeof(float);
    float *temperature = host_alloc(bytes), *power = host_alloc(bytes), *last = host_alloc(bytes), *result = host_alloc(bytes);
    for (long i = 0; i < cells; i++) {
        temperature[i] = 60 + (float)random_below(4096) / 128;
        power[i] = (float)random_below(1024) / 256;
    }

    gpu_open(gpu_image);
    CUfunction hotspot = gpu_kernel("hotspot");
    gpu_begin();
    CUdeviceptr from = gpu_put(temperature, bytes), heating = gpu_put(power, bytes), to = gpu_alloc(bytes);
    long blocks = groups(n, 16 - 2 * steps);
    for (long c = 0; c < gpu.repeat; c++) {
        LAUNCH(hotspot, blocks, blocks, 16, 16, &from, &heating, &to, &n, &inside, (void *)&k, (void *)&r, (void *)&z);
        CUdeviceptr old = from;
        from = to;
        to = old;
    }
    gpu_get(result, from, bytes);
    gpu_end();

    for (long s = 0; s < gpu.repeat * steps; s++) {
        advance(temperature, power, last, n);
        float *old = temperature;
        temperature = last;
        last = old;
    }
    for (long i = 0; i < cells; i++)
        if (result[i] != temperature[i])
            gpu_wrong("cell %ld, %ld is %.9g, not %.9g", i / n, i % n, result[i], temperature[i]);
    return gpu_close("%ld steps of %d x %d cells", gpu.repeat * steps, n, n);
}
