// Needleman-Wunsch with elements: scores of alignments of many pairs of sequences. Every element maps all
// pairs, as the paper's do, and a node fetches them once.
//
//     muster run --nodes b,c -- ./ivm-nw --gpus 3,4,2 --portions 36
#include "divide.h"
#include "nw.h"

#include <stdio.h>

static char *letters;
static int *scores;

static void root(void) {
    MUST(ivmMalloc("letters", &letters, (size_t)gpu.size * nw_pair()));
    MUST(ivmMalloc("scores", &scores, (size_t)gpu.size * sizeof *scores));
    nw_fill(letters);
    divide_root(NULL);
    divide_report();
    nw_check(letters, scores);
    printf("nw: scores of %ld pairs right\n", gpu.size);
}

static void compute(long iteration, long from, long to) {
    (void)iteration;
    MUST(ivmMap("letters", &letters, (size_t)gpu.size * nw_pair()));
    MUST(ivmMapSubset("scores", &scores, (size_t)from * sizeof *scores, (size_t)(to - from) * sizeof *scores));
    nw_launch(gpu_kernel("align"), (CUdeviceptr)letters + (size_t)from * nw_pair(), (CUdeviceptr)scores, to - from);
    CHECK(cuCtxSynchronize());
}

static void put(long iteration, long from, long to) {
    (void)iteration;
    MUST(ivmSyncPut(scores, (size_t)(to - from) * sizeof *scores));
    MUST(ivmUnmap(scores));
}

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {NW_OPTIONS, DIVISION_OPTIONS, {0}};
    int id;
    nw_options(argc, argv, own);
    division.items = gpu.size;
    MUST(ivmEnter());
    MUST(ivmGetMyId(&id));
    if (id == 0) {
        root();
    } else {
        if (!divide_open(gpu_image))
            gpu_misuse("--cpus: this program has elements on GPUs only");
        divide_child(compute, put, NULL);
    }
    MUST(ivmExit());
    return 0;
}
