// The bodies, for the program with elements and the one with MPI.
#ifndef NBODY_H
#define NBODY_H

#include "input.h"

#include <math.h>
#include <string.h>

GPU_IMAGE("nbody.ptx");

typedef struct { float x, y, z, w; } float4;

#define TIME_STEP 0.001f

static inline void nbody_options(int argc, char **argv, const struct gpu_option *own) {
    gpu.size = 1024;
    gpu.repeat = 2;
    gpu_options(argc, argv, "moves bodies that attract each other", "bodies", "time steps", own);
    if (gpu.size > 1 << 20)
        gpu_misuse("--size is at most %d", 1 << 20);
}

static inline void nbody_fill(float4 *position, float4 *velocity) {
    for (long i = 0; i < gpu.size; i++) {
        uint64_t at = 4 * (uint64_t)i;
        position[i] = (float4){input_fraction(at), input_fraction(at + 1), input_fraction(at + 2), input_fraction(at + 3)};
        velocity[i] = (float4){0, 0, 0, 0};
    }
}

// Moves some bodies on the GPU; moved and velocity begin with the first of them.
static inline void nbody_launch(CUfunction step, CUdeviceptr position, CUdeviceptr moved, CUdeviceptr velocity, long from, long to) {
    int bodies = (int)gpu.size, first = (int)from, end = (int)to;
    float time = TIME_STEP;
    LAUNCH(step, groups(to - from, 64), 1, 64, 1, &position, &moved, &velocity, &bodies, &first, &end, &time);
}

// Moves bodies from to before to on a core; moved and velocity begin with the first of them. Several are moved at a time, as
// the lanes of vector instructions; each meets the others in the order in which the GPU has them, so that results are
// the same to the last bit.
__attribute__((optimize("O3", "no-math-errno", "no-trapping-math"), target_clones("avx512f", "fma", "default")))
static void nbody_move(const float4 *restrict position, float4 *restrict moved, float4 *restrict velocity, long from, long to) {
    enum { LANES = 16 };
    for (long i = from; i < to; i += LANES) {
        float x[LANES], y[LANES], z[LANES], ax[LANES] = {0}, ay[LANES] = {0}, az[LANES] = {0};
        for (long l = 0; l < LANES; l++) {
            float4 own = position[i + l < to ? i + l : to - 1];
            x[l] = own.x, y[l] = own.y, z[l] = own.z;
        }
        for (long j = 0; j < gpu.size; j++) {
            float4 other = position[j];
            for (long l = 0; l < LANES; l++) {
                float dx = other.x - x[l], dy = other.y - y[l], dz = other.z - z[l];
                float square = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)));
                float pull = other.w / (square * sqrtf(square));
                ax[l] = fmaf(dx, pull, ax[l]);
                ay[l] = fmaf(dy, pull, ay[l]);
                az[l] = fmaf(dz, pull, az[l]);
            }
        }
        for (long l = 0; l < LANES && i + l < to; l++) {
            float4 own = position[i + l], *v = &velocity[i + l - from];
            *v = (float4){fmaf(ax[l], TIME_STEP, v->x), fmaf(ay[l], TIME_STEP, v->y), fmaf(az[l], TIME_STEP, v->z), 0};
            moved[i + l - from] = (float4){fmaf(v->x, TIME_STEP, own.x), fmaf(v->y, TIME_STEP, own.y), fmaf(v->z, TIME_STEP, own.z), own.w};
        }
    }
}

// Compares where bodies are with where they must be.
static inline void nbody_compare(const float4 *result, const float4 *want, long from, long to) {
    for (long i = from; i < to; i++, want++)
        if (memcmp(&result[i], want, sizeof *want))
            gpu_wrong("body %ld is at %g, %g, %g, not %g, %g, %g", i, result[i].x, result[i].y, result[i].z, want->x, want->y, want->z);
}

// Does all of it again on the CPU, and compares where the bodies are in the end.
static inline void nbody_check(const float4 *result) {
    size_t bytes = (size_t)gpu.size * sizeof(float4);
    float4 *position = host_alloc(bytes), *moved = host_alloc(bytes), *velocity = host_alloc(bytes);
    nbody_fill(position, velocity);
    for (long step = 0; step < gpu.repeat; step++) {
        nbody_move(position, moved, velocity, 0, gpu.size);
        float4 *before = position;
        position = moved;
        moved = before;
    }
    nbody_compare(result, position, 0, gpu.size);
}

// Does the last step of some bodies again: every so many. Before are the positions and velocities that it began with.
static inline void nbody_check_some(const float4 *before, float4 *velocity, const float4 *result, long count) {
    for (long n = 0; n < count; n++) {
        float4 moved;
        long i = gpu.size * n / count;
        nbody_move(before, &moved, &velocity[i], i, i + 1);
        nbody_compare(result, &moved, i, i + 1);
    }
}

#endif
