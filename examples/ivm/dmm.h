// The matrices, for the program with elements and the one with MPI.
#ifndef DMM_H
#define DMM_H

#include "input.h"

GPU_IMAGE("dmm.ptx");

static inline void dmm_options(int argc, char **argv, const char *repeat, const struct gpu_option *own) {
    gpu.size = 256;
    gpu_options(argc, argv, "multiplies two square matrices", "rows of a matrix", repeat, own);
    if (gpu.size > 1 << 14)
        gpu_misuse("--size is at most %d", 1 << 14);
}

// Small whole numbers: sums are exact in any order.
static inline float dmm_value(uint64_t place) { return (float)(input_word(place) % 8); }

static inline void dmm_fill(float *a, float *b) {
    uint64_t n = (uint64_t)gpu.size * (uint64_t)gpu.size;
    for (uint64_t i = 0; i < n; i++) {
        a[i] = dmm_value(i);
        b[i] = dmm_value(n + i);
    }
}

// A part of the result: rows and columns. Results are kept tile by tile, so that each is in one piece:
// strips of rows, one after the other, and in a strip the tiles from left to right.
struct tile {
    long row, rows, column, columns;
};

static inline struct tile dmm_tile(long row_of, long rows_in, long column_of, long columns_in) {
    long n = gpu.size, row = n * row_of / rows_in, column = n * column_of / columns_in;
    return (struct tile){row, n * (row_of + 1) / rows_in - row, column, n * (column_of + 1) / columns_in - column};
}

static inline size_t dmm_offset(struct tile t) { return (size_t)(t.row * gpu.size + t.rows * t.column) * sizeof(float); }
static inline size_t dmm_bytes(struct tile t) { return (size_t)(t.rows * t.columns) * sizeof(float); }

static inline void dmm_launch(CUfunction kernel, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, struct tile t) {
    int n = (int)gpu.size, rows = (int)t.rows, columns = (int)t.columns;
    LAUNCH(kernel, groups(columns, 8), groups(rows, 8), 8, 8, &a, &b, &c, &n, &rows, &columns);
}

// The product of a row and a column. Sums of several parts are the same, as all of them are exact.
__attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default")))
static float dmm_product(const float *restrict left, const float *restrict right, long n) {
    enum { LANES = 64 };
    float lanes[LANES] = {0}, sum = 0;
    long k = 0;
    for (; k + LANES <= n; k += LANES)
        for (long l = 0; l < LANES; l++)
            lanes[l] += left[k + l] * right[k + l];
    for (; k < n; k++)
        sum += left[k] * right[k];
    for (long l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

// One tile on a core: from rows of a and columns of b.
static inline void dmm_multiply(const float *a, const float *b, float *c, struct tile t) {
    for (long r = 0; r < t.rows; r++)
        for (long k = 0; k < t.columns; k++)
            c[r * t.columns + k] = dmm_product(a + r * gpu.size, b + k * gpu.size, gpu.size);
}

// Checks every so many results: all of them if every is 1.
static inline void dmm_check(const float *a, const float *b, const float *c, long strips, long in_a_strip, long every) {
    uint64_t seen = 0;
    for (long i = 0; i < strips; i++)
        for (long j = 0; j < in_a_strip; j++) {
            struct tile t = dmm_tile(i, strips, j, in_a_strip);
            const float *part = c + dmm_offset(t) / sizeof(float);
            for (long r = 0; r < t.rows; r++)
                for (long k = 0; k < t.columns; k++) {
                    if (seen++ % (uint64_t)every != 0)
                        continue;
                    const float *left = a + (t.row + r) * gpu.size, *right = b + (t.column + k) * gpu.size;
                    float want = 0;
                    for (long l = 0; l < gpu.size; l++)
                        want += left[l] * right[l];
                    if (part[r * t.columns + k] != want)
                        gpu_wrong("row %ld, column %ld is %g, not %g", t.row + r, t.column + k, part[r * t.columns + k], want);
                }
        }
}

#endif
