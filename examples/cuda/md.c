// Molecular dynamics: the GPU computes the forces between atoms, the CPU moves the atoms. So positions
// go to the GPU and forces come back in every step, and every few steps new lists of neighbours go
// there: a program that uses the network often.
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

GPU_IMAGE("md.ptx");

enum { WIDTH = 96 };  // neighbours of an atom at most
static const float spacing = 1.2f, cutoff = 2.5f, skin = 0.3f, step = 0.002f;

// system is all that the CPU knows of the atoms.
struct system {
    int n;
    float box;
    float *at, *speed, *force;
    int *counts, *lists;
};

static float nearest(float d, float box) {
    float half = 0.5f * box;
    return d > half ? d - box : d < -half ? d + box : d;
}

static struct system atoms(int side) {
    struct system s = {.n = side * side * side, .box = (float)side * spacing};
    size_t bytes = 4 * (size_t)s.n * sizeof(float);
    s.at = host_alloc(bytes), s.speed = host_alloc(bytes), s.force = host_alloc(bytes);
    s.counts = host_alloc((size_t)s.n * sizeof(int)), s.lists = host_alloc((size_t)s.n * WIDTH * sizeof(int));
    memset(s.lists, 0, (size_t)s.n * WIDTH * sizeof(int));
    for (int i = 0; i < s.n; i++) {
        int place[3] = {i % side, i / side % side, i / side / side};
        for (int d = 0; d < 3; d++) {
            s.at[4 * i + d] = spacing * (float)place[d] + (float)random_below(128) / 1024;
            s.speed[4 * i + d] = (float)random_below(256) / 256 - 0.5f;
        }
        s.at[4 * i + 3] = s.speed[4 * i + 3] = 0;
    }
    return s;
}

// Lists the atoms that may come near enough until the next lists are made.
static void list_neighbours(struct system *s) {
    float reach = cutoff + skin;
    for (int i = 0; i < s->n; i++) {
        s->counts[i] = 0;
        for (int j = 0; j < s->n; j++) {
            float dx = nearest(s->at[4 * i] - s->at[4 * j], s->box), dy = nearest(s->at[4 * i + 1] - s->at[4 * j + 1], s->box),
                  dz = nearest(s->at[4 * i + 2] - s->at[4 * j + 2], s->box);
            if (i == j || dx * dx + dy * dy + dz * dz >= reach * reach)
                continue;
            if (s->counts[i] == WIDTH)
                gpu_wrong("atom %d has more than %d neighbours", i, WIDTH);
            s->lists[i * WIDTH + s->counts[i]++] = j;
        }
    }
}

// The forces, operation for operation as on the GPU: the results are the same bits.
static void forces(struct system *s) {
    for (int i = 0; i < s->n; i++) {
        float f[3] = {0};
        for (int k = 0; k < s->counts[i]; k++) {
            int j = s->lists[i * WIDTH + k];
            float d[3];
            for (int a = 0; a < 3; a++)
                d[a] = nearest(s->at[4 * i + a] - s->at[4 * j + a], s->box);
            float r2 = fmaf(d[2], d[2], fmaf(d[1], d[1], d[0] * d[0]));
            if (r2 >= cutoff * cutoff)
                continue;
            float v = 1.0f / r2, v3 = v * v * v, pull = 24.0f * v * v3 * (2.0f * v3 - 1.0f);
            for (int a = 0; a < 3; a++)
                f[a] = fmaf(pull, d[a], f[a]);
        }
        for (int a = 0; a < 3; a++)
            s->force[4 * i + a] = f[a];
        s->force[4 * i + 3] = 0;
    }
}

// Moves the atoms by what the forces give them in a step.
static void move(struct system *s) {
    for (int i = 0; i < 4 * s->n; i++) {
        s->speed[i] += step * s->force[i];
        s->at[i] += step * s->speed[i];
        if (i % 4 < 3)
            s->at[i] = s->at[i] < 0 ? s->at[i] + s->box : s->at[i] >= s->box ? s->at[i] - s->box : s->at[i];
    }
}

int main(int argc, char **argv) {
    long rebuild = 5;
    gpu.size = 8;
    gpu.repeat = 40;
    struct gpu_option own[] = {
        {"rebuild", "steps between two lists of neighbours", GPU_NUMBER, &rebuild, false},
        {0},
    };
    gpu_options(argc, argv, "moves atoms with a Lennard-Jones potential", "atoms along a side of the box, 5 to 32", "steps", own);
    if (gpu.size < 5 || gpu.size > 32)
        gpu_misuse("--size must be from 5 to 32");
    if (rebuild < 1)
        gpu_misuse("--rebuild must be at least 1");
    struct system s = atoms((int)gpu.size), twin = s;
    size_t vectors = 4 * (size_t)s.n * sizeof(float), counts = (size_t)s.n * sizeof(int), lists = WIDTH * counts;
    twin.at = host_alloc(vectors), twin.speed = host_alloc(vectors), twin.force = host_alloc(vectors);
    memcpy(twin.at, s.at, vectors), memcpy(twin.speed, s.speed, vectors);

    gpu_open(gpu_image);
    CUfunction kernel = gpu_kernel("forces");
    int n = s.n, width = WIDTH;
    float cutoff2 = cutoff * cutoff;
    double began = now();
    gpu_begin();
    CUdeviceptr at = gpu_alloc(vectors), force = gpu_alloc(vectors), many = gpu_alloc(counts), who = gpu_alloc(lists);
    for (long t = 0; t < gpu.repeat; t++) {
        if (t % rebuild == 0) {
            list_neighbours(&s);
            gpu_set(many, s.counts, counts);
            gpu_set(who, s.lists, lists);
        }
        gpu_set(at, s.at, vectors);
        LAUNCH(kernel, groups(n, 128), 1, 128, 1, &at, &many, &who, &force, &n, &width, &s.box, &cutoff2);
        gpu_get(s.force, force, vectors);
        move(&s);
    }
    gpu_end();
    printf("took %.6f s\n", now() - began);

    for (long t = 0; t < gpu.repeat; t++) {
        if (t % rebuild == 0)
            list_neighbours(&twin);
        forces(&twin);
        move(&twin);
    }
    for (int i = 0; i < 4 * n; i++)
        if (s.at[i] != twin.at[i])
            gpu_wrong("coordinate %d of atom %d is %.9g, not %.9g", i % 4, i / 4, s.at[i], twin.at[i]);
    return gpu_close("%ld steps of %d atoms", gpu.repeat, n);
}
