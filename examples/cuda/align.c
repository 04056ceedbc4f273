// Alignments of pairs of sequences by the processes of a job (Needleman-Wunsch): in each
// round the first process hands out pairs, and collects the matrices of scores.
#include "team.h"

#include <stdlib.h>
#include <string.h>

GPU_IMAGE("nw.ptx");

enum { TILE = 16, PENALTY = 4 };

static int n, width;
static size_t cells;

static int most(int a, int b) { return a > b ? a : b; }

static void check(const char *down, const char *across, const int *scores) {
    int *want = host_alloc(cells * sizeof *want);
    for (int i = 0; i < width; i++)
        for (int j = 0; j < width; j++) {
            int *cell = want + i * width + j;
            if (i == 0 || j == 0)
                *cell = -(i + j) * PENALTY;
            else
                *cell = most(cell[-width - 1] + (down[i - 1] == across[j - 1] ? 5 : -3), most(cell[-1], cell[-width]) - PENALTY);
            if (scores[i * width + j] != *cell)
                gpu_wrong("score %d, %d is %d, not %d", i, j, scores[i * width + j], *cell);
        }
    free(want);
}

int main(int argc, char **argv) {
    long pairs = 8;
    gpu.size = 64;
    gpu.repeat = 4;
    struct gpu_option own[] = {{"pairs", "pairs of sequences in a round, at least one for each process", GPU_NUMBER, &pairs, false}, TEAM_OPTIONS, {0}};
    gpu_options(argc, argv, "aligns pairs of sequences with the processes of a job", "letters of a sequence, a multiple of 16", "rounds", own);
    if (gpu.size % TILE || gpu.size > 1 << 12 || pairs < 1 || pairs > 1 << 16)
        gpu_misuse("--size must be a multiple of %d up to %d, and --pairs from 1 to 65536", TILE, 1 << 12);
    n = (int)gpu.size, width = n + 1, cells = (size_t)width * (size_t)width;
    int penalty = PENALTY, tiles = n / TILE;
    team_meet();
    if (pairs % team_count)
        gpu_misuse("--pairs must be a multiple of the %d processes", team_count);
    gpu_open(gpu_image);
    CUfunction edges = gpu_kernel("edges"), diagonal = gpu_kernel("diagonal");
    size_t each = (size_t)(pairs / team_count), letters = 2 * (size_t)n;
    char *in = host_alloc(letters * (size_t)pairs), *mine = host_alloc(letters * each);
    int *out = host_alloc(cells * sizeof *out * (size_t)pairs), *scores = host_alloc(cells * sizeof *scores * each);
    CUdeviceptr sequences = gpu_alloc(letters * each), matrices = gpu_alloc(cells * sizeof *scores * each);
    for (long r = 0; r < gpu.repeat; r++) {
        if (team_rank == 0)
            for (size_t i = 0; i < letters * (size_t)pairs; i++)
                in[i] = "ACGT"[random_below(4)];
        team_scatter(in, mine, letters * each);
        gpu_begin();
        gpu_set(sequences, mine, letters * each);
        for (size_t i = 0; i < each; i++) {
            CUdeviceptr score = matrices + i * cells * sizeof *scores, rows = sequences + i * letters, columns = rows + (size_t)n;
            LAUNCH(edges, groups(width, 256), 1, 256, 1, &score, &width, &penalty);
            for (int d = 0; d < 2 * tiles - 1; d++) {
                int first = most(0, d - tiles + 1), last = d < tiles ? d : tiles - 1;
                LAUNCH(diagonal, last - first + 1, 1, TILE, 1, &score, &rows, &columns, &width, &penalty, &d, &first);
            }
        }
        gpu_get(scores, matrices, cells * sizeof *scores * each);
        gpu_end();
        team_gather(scores, out, cells * sizeof *scores * each);
        for (size_t i = 0; team_rank == 0 && i < (size_t)pairs; i++)
            check(in + i * letters, in + i * letters + n, out + i * cells);
    }
    return gpu_close("%ld x %ld alignments of %d letters", gpu.repeat, pairs, n);
}
