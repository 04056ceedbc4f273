// Dense matrix product with elements: the result is cut into tiles, and an element maps only the rows and
// columns that its tile needs.
//
//     muster run --nodes b,c -- ./ivm-dmm --gpus 3,4,2 --portions 49
//
// What elements of a node have mapped is there for the next ones. With --whole each maps all of both
// matrices instead, to compare. With guided they do so, too: their tiles are anywhere.
#include "divide.h"
#include "dmm.h"

#include <math.h>
#include <stdio.h>

static float *a, *b, *c;
static long tiles; // in a row
static bool whole;
static long every = 1; // so many results one is checked
static size_t bytes;

static void root(void) {
    MUST(ivmMalloc("A", &a, bytes));
    MUST(ivmMalloc("B", &b, bytes));
    MUST(ivmMalloc("C", &c, bytes));
    dmm_fill(a, b);
    divide_root(NULL);
    divide_report();
    dmm_check(a, b, c, tiles, tiles, every);
    printf("dmm: a product of %ld x %ld right\n", gpu.size, gpu.size);
}

static struct tile numbered(long number) { return dmm_tile(number / tiles, tiles, number % tiles, tiles); }

// Rows of a matrix that is kept in rows, or columns of one that is kept in columns.
static float *lines(const char *name, float **matrix, long first, long count) {
    size_t line = (size_t)gpu.size * sizeof(float);
    if (!whole) {
        MUST(ivmMapSubset(name, matrix, (size_t)first * line, (size_t)count * line));
        return *matrix;
    }
    MUST(ivmMap(name, matrix, bytes));
    return *matrix + first * gpu.size;
}

// The results of tiles one after the other are in one piece if they are of one strip.
static long strip_end(long from, long to) {
    long end = (from / tiles + 1) * tiles;
    return end < to ? end : to;
}

static void on_gpu(const float *left, const float *right, float *result, struct tile is) {
    dmm_launch(gpu_kernel("tile"), (CUdeviceptr)left, (CUdeviceptr)right, (CUdeviceptr)result, is);
}

static void multiply(long from, long to, void (*one)(const float *, const float *, float *, struct tile)) {
    for (long next = from; next < to; next = strip_end(next, to)) {
        struct tile first = numbered(next), last = numbered(strip_end(next, to) - 1);
        size_t begin = dmm_offset(first);
        MUST(ivmMapSubset("C", &c, begin, dmm_offset(last) + dmm_bytes(last) - begin));
        for (long t = next; t < strip_end(next, to); t++) {
            struct tile is = numbered(t);
            float *left = lines("A", &a, is.row, is.rows), *right = lines("B", &b, is.column, is.columns);
            one(left, right, c + (dmm_offset(is) - begin) / sizeof *c, is);
        }
    }
}

static void compute(long iteration, long from, long to) {
    (void)iteration;
    multiply(from, to, on_gpu);
    CHECK(cuCtxSynchronize());
}

static void compute_on_core(long iteration, long from, long to) {
    (void)iteration;
    multiply(from, to, dmm_multiply);
}

static void put(long iteration, long from, long to) {
    (void)iteration;
    for (long next = from; next < to; next = strip_end(next, to)) {
        struct tile first = numbered(next), last = numbered(strip_end(next, to) - 1);
        size_t begin = dmm_offset(first), some = dmm_offset(last) + dmm_bytes(last) - begin;
        MUST(ivmMapSubset("C", &c, begin, some)); // it is mapped
        MUST(ivmSyncPut(c, some));
        MUST(ivmUnmap(c));
    }
}

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {
        {"tiles", "in a row with guided and monitor; with spawn --portions is their square", GPU_NUMBER, &tiles, false},
        {"whole", "map all of both matrices", GPU_FLAG, &whole, false},
        {"every", "so many results one is checked", GPU_NUMBER, &every, false},
        DIVISION_OPTIONS,
        {0},
    };
    ivm_device devices[256];
    int id;
    tiles = 24;
    gpu.repeat = 1;
    dmm_options(argc, argv, "times that the product is computed", own);
    if (division.way[0] == 's') {
        long count = division.portions ? division.portions : divide_devices(devices, 256);
        tiles = lround(sqrt((double)count));
        if (tiles * tiles != count)
            gpu_misuse("%ld portions are no square: give --portions 4, 9, 16 and so on, or --way guided", count);
    } else {
        whole = true;
    }
    if (every < 1)
        gpu_misuse("--every must be 1 or more");
    if (tiles < 1 || tiles > gpu.size)
        gpu_misuse("--tiles must be from 1 to --size");
    division.items = tiles * tiles;
    division.iterations = gpu.repeat;
    bytes = (size_t)(gpu.size * gpu.size) * sizeof(float);
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
