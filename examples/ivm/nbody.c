// N-body simulation with elements: at each time step every body's position is needed by all, and each
// element moves some of them.
//
//     muster run --nodes b,c -- ./ivm-nbody --gpus 3,4,2 --portions 49
//     muster run -- ./ivm-nbody --gpus 1 --cpus 16 --way guided
//
// Positions are two objects, of this step and of the next, which change places. Only bodies that an
// element moved go to the master, and what a node has is fetched once for all its elements.
#include "divide.h"
#include "nbody.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {"positions 0", "positions 1"};
static float4 *position, *moved, *velocity;
static size_t bytes;

static float4 *both[2], *velocities, *last_velocities;
static long some; // bodies that are checked; 0: all

// Keeps what the last step begins with.
static void remember(long iteration) {
    if (some > 0 && iteration == gpu.repeat - 1)
        memcpy(last_velocities, velocities, bytes);
}

static void root(void) {
    for (int i = 0; i < 2; i++)
        MUST(ivmMalloc(names[i], &both[i], bytes));
    MUST(ivmMalloc("velocities", &velocities, bytes));
    last_velocities = host_alloc(bytes);
    nbody_fill(both[0], velocities);
    divide_root(remember);
    divide_report();
    if (some > 0)
        nbody_check_some(both[(gpu.repeat + 1) % 2], last_velocities, both[gpu.repeat % 2], some);
    else
        nbody_check(both[gpu.repeat % 2]);
    printf("nbody: %ld steps of %ld bodies right\n", gpu.repeat, gpu.size);
}

// Maps what an element needs of a step.
static void map(long iteration, long from, long to) {
    size_t offset = (size_t)from * sizeof(float4), some = (size_t)(to - from) * sizeof(float4);
    static long has = -1; // the step whose positions this element has
    MUST(ivmMap(names[iteration % 2], &position, bytes));
    if (has != iteration)
        MUST(ivmSyncGet(position, bytes));
    has = iteration;
    MUST(ivmMapSubset(names[(iteration + 1) % 2], &moved, offset, some));
    MUST(ivmMapSubset("velocities", &velocity, offset, some));
    MUST(ivmSyncGet(velocity, some));
}

static void compute(long iteration, long from, long to) {
    map(iteration, from, to);
    nbody_launch(gpu_kernel("step"), (CUdeviceptr)position, (CUdeviceptr)moved, (CUdeviceptr)velocity, from, to);
    CHECK(cuCtxSynchronize());
}

static void compute_on_core(long iteration, long from, long to) {
    map(iteration, from, to);
    nbody_move(position, moved, velocity, from, to);
}

static void put(long iteration, long from, long to) {
    size_t some = (size_t)(to - from) * sizeof(float4);
    (void)iteration;
    MUST(ivmSyncPut(moved, some));
    MUST(ivmSyncPut(velocity, some));
    MUST(ivmUnmap(moved));
    MUST(ivmUnmap(velocity));
}

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {{"check", "bodies that are checked; 0 for all", GPU_NUMBER, &some, false}, DIVISION_OPTIONS, {0}};
    int id;
    nbody_options(argc, argv, own);
    division.items = gpu.size;
    division.iterations = gpu.repeat;
    bytes = (size_t)gpu.size * sizeof(float4);
    MUST(ivmEnter());
    MUST(ivmGetMyId(&id));
    if (id == 0) {
        root();
    } else {
        divide_child(divide_open(gpu_image) ? compute : compute_on_core, put, NULL);
    }
    MUST(ivmExit());
    return 0;
}
