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

// Does all of it again on the CPU, and compares where the bodies are in the end.
static inline void nbody_check(const float4 *result) {
    size_t bytes = (size_t)gpu.size * sizeof(float4);
    float4 *position = host_alloc(bytes), *moved = host_alloc(bytes), *velocity = host_alloc(bytes);
    nbody_fill(position, velocity);
    for (long step = 0; step < gpu.repeat; step++) {
        for (long i = 0; i < gpu.size; i++) {
            float4 own = position[i], *v = &velocity[i];
            float ax = 0, ay = 0, az = 0;
            for (long j = 0; j < gpu.size; j++) {
                float dx = position[j].x - own.x, dy = position[j].y - own.y, dz = position[j].z - own.z;
                float square = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f)));
                float pull = position[j].w / (square * sqrtf(square));
                ax = fmaf(dx, pull, ax);
                ay = fmaf(dy, pull, ay);
                az = fmaf(dz, pull, az);
            }
            *v = (float4){fmaf(ax, TIME_STEP, v->x), fmaf(ay, TIME_STEP, v->y), fmaf(az, TIME_STEP, v->z), 0};
            moved[i] = (float4){fmaf(v->x, TIME_STEP, own.x), fmaf(v->y, TIME_STEP, own.y), fmaf(v->z, TIME_STEP, own.z), own.w};
        }
        float4 *before = position;
        position = moved;
        moved = before;
    }
    for (long i = 0; i < gpu.size; i++)
        if (memcmp(&result[i], &position[i], sizeof *result))
            gpu_wrong("body %ld is at %g, %g, %g, not %g, %g, %g", i, result[i].x, result[i].y, result[i].z, position[i].x, position[i].y, position[i].z);
}

#endif
