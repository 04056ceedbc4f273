// Himeno with elements: each keeps some planes of a grid on its GPU, and in each iteration needs one more on either side, which
// its neighbours have.
//
//     muster run --nodes b,c -- ./ivm-himeno --gpus 3,4,2 --way monitor
//
// The planes at the ends of an element's go through a shared object with a slot for each, twice, since a neighbour may
// still read what was written in the iteration before. When the planes are divided anew, all write theirs
// back to the grid, and map other ones.
#include "divide.h"
#include "himeno.h"

#include <stdio.h>

static float *grid, *edges;
static CUdeviceptr other; // memory for as many planes as grid has
static long mine_from = -1, mine_to = -1;
static int part;

// Where in edges a part's first or last plane is after an iteration.
static size_t slot(long iteration, long of, int last) { return (size_t)((iteration % 2 * division.most + of) * 2 + last) * himeno_plane(); }

static size_t edge_bytes(void) { return slot(1, division.most, 0); }

static void root(void) {
    MUST(ivmMalloc("grid", &grid, (size_t)gpu.size * himeno_plane()));
    MUST(ivmMalloc("edges", &edges, edge_bytes()));
    himeno_fill(grid);
    divide_root(NULL);
    divide_report();
    himeno_check(grid);
    printf("himeno: %ld iterations on a grid of %ld x %ld x %ld right\n", gpu.repeat, width, width, gpu.size);
}

// Copies a plane that a neighbour computed to where this element reads it.
static void fetch(long iteration, long of, int last, long plane) {
    float *from = (float *)((char *)edges + slot(iteration - 1, of, last));
    MUST(ivmSyncGet(from, himeno_plane()));
    CHECK(cuMemcpyDtoD((CUdeviceptr)grid + (size_t)plane * himeno_plane(), (CUdeviceptr)from, himeno_plane()));
}

// Items are the planes between the first and the last of the grid: the element has one more on either side.
static void compute(long iteration, long from, long to) {
    long planes = to - from + 2;
    if (from != mine_from || to != mine_to) {
        if (mine_from >= 0) {
            MUST(ivmUnmap(grid));
            CHECK(cuMemFree(other));
        }
        MUST(ivmMapSubset("grid", &grid, (size_t)from * himeno_plane(), (size_t)planes * himeno_plane()));
        MUST(ivmSyncGet(grid, (size_t)planes * himeno_plane()));
        other = gpu_alloc((size_t)planes * himeno_plane());
        mine_from = from, mine_to = to;
    } else {
        if (from > 0)
            fetch(iteration, part - 1, 1, 0);
        if (to < division.items)
            fetch(iteration, part + 1, 0, planes - 1);
    }
    himeno_launch(gpu_kernel("jacobi"), (CUdeviceptr)grid, other, planes);
}

static void put(long iteration, long from, long to) {
    for (int last = 0; last < 2; last++) {
        long plane = last ? to - from : 1;
        float *into = (float *)((char *)edges + slot(iteration, part, last));
        CHECK(cuMemcpyDtoD((CUdeviceptr)into, (CUdeviceptr)grid + (size_t)plane * himeno_plane(), himeno_plane()));
        MUST(ivmSyncPut(into, himeno_plane()));
    }
}

// The planes that this element computes; those on either side are its neighbours'.
static void give(void) {
    MUST(ivmSyncPut((char *)grid + himeno_plane(), (size_t)(mine_to - mine_from) * himeno_plane()));
}

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {HIMENO_OPTIONS, DIVISION_OPTIONS, {0}};
    ivm_device devices[256];
    int id;
    division.way = "monitor";
    himeno_options(argc, argv, own);
    division.items = gpu.size - 2;
    division.iterations = gpu.repeat;
    division.keeps = true;
    if (division.most == 0)
        division.most = 4L * divide_devices(devices, 256);
    MUST(ivmEnter());
    MUST(ivmGetMyId(&id));
    part = id - 1;
    if (id == 0) {
        root();
    } else {
        if (!divide_open(gpu_image))
            gpu_misuse("--cpus: this program has elements on GPUs only");
        MUST(ivmMap("edges", &edges, edge_bytes()));
        divide_child(compute, put, give);
    }
    MUST(ivmExit());
    return 0;
}
