// Tables of rows, as programs with arrays of pointers have them: the kernel gets the
// address of a table and finds the rows by the pointers in it. The tables are used one
// after the other, and the rows of all of them may be more than a device has: Muster is
// told which rows belong to a table, and needs to have only those on the device.
#define _GNU_SOURCE
#include "gpu.h"

#include <dlfcn.h>

GPU_IMAGE("nested.ptx");

int main(int argc, char **argv) {
    gpu.size = 256 << 10;
    gpu.repeat = 3;
    long tables = 6, rows = 4;
    const struct gpu_option own[] = {
        {"tables", "how many tables (6)", GPU_NUMBER, &tables, false},
        {"rows", "rows of a table (4)", GPU_NUMBER, &rows, false},
        {0},
    };
    gpu_options(argc, argv, "follows pointers in GPU memory", "elements of a row", "times that each table is used", own);
    if (tables < 1 || tables > 1024 || rows < 1 || rows > 1024 || gpu.size > 1 << 28)
        gpu_misuse("give 1 to 1024 tables and rows, and rows of at most %d elements", 1 << 28);
    int n = (int)gpu.size;
    size_t bytes = (size_t)n * sizeof(uint32_t);
    uint32_t *row = host_alloc(bytes);
    CUdeviceptr *row_at = host_alloc((size_t)(tables * rows) * sizeof *row_at), *table_at = host_alloc((size_t)tables * sizeof *table_at);

    gpu_open(gpu_image);
    CUfunction touch = gpu_kernel("touch");
    // NVIDIA's library has no such function, and no need for it.
    CUresult (*nested)(CUdeviceptr, const CUdeviceptr *, size_t);
    *(void **)&nested = dlsym(RTLD_DEFAULT, "musterNested");
    gpu_begin();
    for (long t = 0; t < tables; t++) {
        for (long r = 0; r < rows; r++) {
            for (int i = 0; i < n; i++)
                row[i] = (uint32_t)((t * rows + r) * 1000003 + i);
            row_at[t * rows + r] = gpu_put(row, bytes);
        }
        table_at[t] = gpu_put(row_at + t * rows, (size_t)rows * sizeof *row_at);
        if (nested)
            CHECK(nested(table_at[t], row_at + t * rows, (size_t)rows));
    }
    for (long k = 0; k < gpu.repeat; k++)
        for (long t = 0; t < tables; t++)
            LAUNCH(touch, groups(n, 256), rows, 256, 1, &table_at[t], &n);
    for (long t = 0; t < tables * rows; t++) {
        gpu_get(row, row_at[t], bytes);
        for (int i = 0; i < n; i++)
            if (row[i] != (uint32_t)(t * 1000003 + i + gpu.repeat))
                gpu_wrong("element %d of row %ld is %u, not %u", i, t, row[i], (uint32_t)(t * 1000003 + i + gpu.repeat));
    }
    gpu_end();
    return gpu_close("%ld tables of %ld rows", tables, rows);
}
