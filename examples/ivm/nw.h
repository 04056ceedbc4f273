// The pairs of sequences, for the program with elements and the one with MPI.
#ifndef NW_H
#define NW_H

#include "input.h"

#include <stdlib.h>

GPU_IMAGE("nw.ptx");

static long letters_each = 32;

#define NW_OPTIONS {"letters", "of a sequence", GPU_NUMBER, &letters_each, false}

static inline void nw_options(int argc, char **argv, const struct gpu_option *own) {
    gpu.size = 480;
    gpu_options(argc, argv, "aligns pairs of sequences", "pairs", NULL, own);
    if (letters_each < 1 || letters_each > 256 || gpu.size > 1 << 20)
        gpu_misuse("--letters is from 1 to 256, and --size at most %d", 1 << 20);
}

static inline size_t nw_pair(void) { return 2 * (size_t)letters_each; }

static inline void nw_fill(char *letters) {
    for (size_t i = 0; i < (size_t)gpu.size * nw_pair(); i++)
        letters[i] = "ACGT"[input_word(i) % 4];
}

static inline void nw_launch(CUfunction align, CUdeviceptr letters, CUdeviceptr scores, long pairs) {
    int length = (int)letters_each;
    LAUNCH(align, pairs, 1, (unsigned)length, 1, &letters, &scores, &length);
}

static inline int nw_most(int a, int b) { return a > b ? a : b; }

static inline void nw_check(const char *letters, const int *scores) {
    int n = (int)letters_each, *row = host_alloc((size_t)(n + 1) * sizeof *row);
    for (long p = 0; p < gpu.size; p++) {
        const char *down = letters + (size_t)p * nw_pair(), *across = down + n;
        for (int j = 0; j <= n; j++)
            row[j] = -4 * j;
        for (int i = 1; i <= n; i++) {
            int corner = row[0];
            row[0] = -4 * i;
            for (int j = 1; j <= n; j++) {
                int is = nw_most(corner + (down[i - 1] == across[j - 1] ? 5 : -3), nw_most(row[j], row[j - 1]) - 4);
                corner = row[j];
                row[j] = is;
            }
        }
        if (scores[p] != row[n])
            gpu_wrong("the score of pair %ld is %d, not %d", p, scores[p], row[n]);
    }
    free(row);
}

#endif
