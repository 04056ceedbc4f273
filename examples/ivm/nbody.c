// N-body simulation with elements: at each time step every body's position is needed by all, and each
// element moves some of them.
//
//     muster run --nodes b,c -- ./ivm-nbody --gpus 3,4,2 --portions 49
//
// Positions are two objects, of this step and of the next, which change places. Only bodies that an
// element moved go to the master, and what a node has is fetched once for all its elements.
#include "divide.h"
#include "nbody.h"

#include <stdio.h>

static const char *const names[] = {"positions 0", "positions 1"};
static float4 *position, *moved, *velocity;
static size_t bytes;

static void root(void) {
    float4 *both[2];
    for (int i = 0; i < 2; i++)
        MUST(ivmMalloc(names[i], &both[i], bytes));
    MUST(ivmMalloc("velocities", &velocity, bytes));
    nbody_fill(both[0], velocity);
    divide_root(NULL);
    divide_report();
    nbody_check(both[gpu.repeat % 2]);
    printf("nbody: %ld steps of %ld bodies right\n", gpu.repeat, gpu.size);
}

static void compute(long iteration, long from, long to) {
    size_t offset = (size_t)from * sizeof(float4), some = (size_t)(to - from) * sizeof(float4);
    static long has = -1; // the step whose positions this element has
    MUST(ivmMap(names[iteration % 2], &position, bytes));
    if (has != iteration)
        MUST(ivmSyncGet(position, bytes));
    has = iteration;
    MUST(ivmMapSubset(names[(iteration + 1) % 2], &moved, offset, some));
    MUST(ivmMapSubset("velocities", &velocity, offset, some));
    MUST(ivmSyncGet(velocity, some));
    nbody_launch(gpu_kernel("step"), (CUdeviceptr)position, (CUdeviceptr)moved, (CUdeviceptr)velocity, from, to);
    CHECK(cuCtxSynchronize());
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
    static const struct gpu_option own[] = {DIVISION_OPTIONS, {0}};
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
        divide_open(gpu_image);
        divide_child(compute, put, NULL);
    }
    MUST(ivmExit());
    return 0;
}
