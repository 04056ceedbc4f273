// The grid, for the program with elements and the one with MPI.
#ifndef HIMENO_H
#define HIMENO_H

#include "input.h"

#include <stdlib.h>
#include <string.h>

GPU_IMAGE("himeno.ptx");

struct coefficients {
    float a[4], b[3], c[3], omega;
};
static const struct coefficients coefficients = {{1, 1, 1, 1.0f / 6}, {0.125f, 0.25f, 0.0625f}, {1, 1, 1}, 0.8f};

static long width = 17; // of a plane, both ways

#define HIMENO_OPTIONS {"width", "of a plane, in points", GPU_NUMBER, &width, false}

static inline void himeno_options(int argc, char **argv, const struct gpu_option *own) {
    gpu.size = 64;
    gpu.repeat = 8;
    gpu_options(argc, argv, "solves Poisson's equation on a grid", "planes of the grid", "iterations", own);
    if (width < 3 || width > 1024 || gpu.size < 3 || gpu.size > 1 << 14)
        gpu_misuse("--width is from 3 to 1024, and --size from 3 to %d", 1 << 14);
}

static inline size_t himeno_plane(void) { return (size_t)(width * width) * sizeof(float); }

static inline void himeno_fill(float *p) {
    for (long i = 0; i < gpu.size * width * width; i++)
        p[i] = input_fraction((uint64_t)i);
}

// Computes the planes between the first and the last of some, and writes them back to where they were; q is
// memory for as many.
static inline void himeno_launch(CUfunction jacobi, CUdeviceptr p, CUdeviceptr q, long planes) {
    int columns = (int)width, rows = (int)width, all = (int)planes;
    gpu_calls++;
    CHECK(cuMemcpyDtoDAsync(q, p, (size_t)planes * himeno_plane(), NULL)); // edges stay as they are
    CHECK(cuLaunchKernel(jacobi, (unsigned)groups(width, 8), (unsigned)groups(width, 8), (unsigned)(planes - 2), 8, 8, 1, 0, NULL,
                         (void *[]){&p, &q, &columns, &rows, &all, (void *)&coefficients}, NULL));
    CHECK(cuMemcpyDtoDAsync(p + himeno_plane(), q + himeno_plane(), (size_t)(planes - 2) * himeno_plane(), NULL));
    CHECK(cuCtxSynchronize());
}

static inline void himeno_check(const float *result) {
    size_t bytes = (size_t)gpu.size * himeno_plane();
    float *p = host_alloc(bytes), *q = host_alloc(bytes);
    const struct coefficients *k = &coefficients;
    long row = width, plane = width * width;
    himeno_fill(p);
    memcpy(q, p, bytes);
    for (long i = 0; i < gpu.repeat; i++) {
        for (long z = 1; z < gpu.size - 1; z++)
            for (long y = 1; y < width - 1; y++)
                for (long x = 1; x < width - 1; x++) {
                    const float *at = p + z * plane + y * row + x;
                    float s = k->a[0] * at[plane] + k->a[1] * at[row] + k->a[2] * at[1];
                    s = s + k->b[0] * (at[plane + row] - at[plane - row] - at[-plane + row] + at[-plane - row]);
                    s = s + k->b[1] * (at[row + 1] - at[-row + 1] - at[row - 1] + at[-row - 1]);
                    s = s + k->b[2] * (at[plane + 1] - at[-plane + 1] - at[plane - 1] + at[-plane - 1]);
                    s = s + k->c[0] * at[-plane] + k->c[1] * at[-row] + k->c[2] * at[-1];
                    q[at - p] = at[0] + k->omega * (s * k->a[3] - at[0]);
                }
        float *before = p;
        p = q;
        q = before;
    }
    for (long i = 0; i < gpu.size * plane; i++)
        if (memcmp(&result[i], &p[i], sizeof *p))
            gpu_wrong("point %ld of plane %ld is %g, not %g", i % plane, i / plane, result[i], p[i]);
    free(p);
    free(q);
}

#endif
