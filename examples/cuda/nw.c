// Needleman-Wunsch: the scores of all alignments of two sequences, by diagonals of
// tiles, each of which needs the one before.
#include "gpu.h"

GPU_IMAGE("nw.ptx");

static char *random_letters(long count) {
    char *letters = host_alloc((size_t)count);
    for (long i = 0; i < count; i++)
        letters[i] = "ACGT"[random_below(4)];
    return letters;
}

static int most(int a, int b) { return a > b ? a : b; }

int main(int argc, char **argv) {
    enum { TILE = 16, PENALTY = 4 };
    gpu.size = 2048;
    gpu.repeat = 1;
    gpu_options(argc, argv, "aligns two sequences", "letters of a sequence, a multiple of 16: a kernel call for 8 letters", "alignments", NULL);
    if (gpu.size % TILE || gpu.size > 1 << 15)
        gpu_misuse("--size must be a multiple of %d up to %d", TILE, 1 << 15);
    int n = (int)gpu.size, width = n + 1, penalty = PENALTY, tiles = n / TILE;
    long cells = (long)width * width;
    int *scores = host_alloc((size_t)cells * sizeof *scores);
    int *want = host_alloc((size_t)cells * sizeof *want);

    gpu_open(gpu_image);
    CUfunction edges = gpu_kernel("edges"), diagonal = gpu_kernel("diagonal");
    CUdeviceptr score = gpu_alloc((size_t)cells * sizeof *scores);
    for (long r = 0; r < gpu.repeat; r++) {
        char *down = random_letters(n), *across = random_letters(n);
        gpu_begin();
        CUdeviceptr rows = gpu_put(down, (size_t)n), columns = gpu_put(across, (size_t)n);
        LAUNCH(edges, groups(width, 256), 1, 256, 1, &score, &width, &penalty);
        for (int d = 0; d < 2 * tiles - 1; d++) {
            int first = most(0, d - tiles + 1), last = d < tiles ? d : tiles - 1;
            LAUNCH(diagonal, last - first + 1, 1, TILE, 1, &score, &rows, &columns, &width, &penalty, &d, &first);
        }
        gpu_get(scores, score, (size_t)cells * sizeof *scores);
        CHECK(cuMemFree(rows));
        CHECK(cuMemFree(columns));
        gpu_end();

        for (long i = 0; i < width; i++)
            for (long j = 0; j < width; j++) {
                int *cell = want + i * width + j;
                if (i == 0 || j == 0)
                    *cell = (int)-(i + j) * PENALTY;
                else
                    *cell = most(cell[-width - 1] + (down[i - 1] == across[j - 1] ? 5 : -3), most(cell[-1], cell[-width]) - PENALTY);
                if (scores[i * width + j] != *cell)
                    gpu_wrong("score %ld, %ld of alignment %ld is %d, not %d", i, j, r, scores[i * width + j], *cell);
            }
    }
    return gpu_close("%ld alignments of %d letters", gpu.repeat, n);
}
