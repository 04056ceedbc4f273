// Dense matrix product with MPI: every process has as many columns of the result, and needs all of the
// first matrix.
#define _GNU_SOURCE
#include "dmm.h"
#include "ranks.h"

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {MPI_OPTIONS, {0}};
    mpi_begin(&argc, &argv);
    dmm_options(argc, argv, NULL, own);
    size_t line = (size_t)gpu.size * sizeof(float), bytes = (size_t)gpu.size * line;
    struct tile mine = dmm_tile(0, 1, rank, ranks);
    struct parts parts = mpi_parts(gpu.size, line);
    float *a = host_alloc(bytes), *b = host_alloc(bytes), *c = host_alloc(bytes), *columns = host_alloc((size_t)mine.columns * line);
    if (rank == 0)
        dmm_fill(a, b);
    gpu_open(gpu_image);
    PATIENT(patient, Bcast, a, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    PATIENT(patient, Scatterv, b, parts.counts, parts.starts, MPI_BYTE, columns, parts.counts[rank], MPI_BYTE, 0, MPI_COMM_WORLD);
    CUdeviceptr left = gpu_put(a, bytes), right = gpu_put(columns, (size_t)mine.columns * line), product = gpu_alloc(dmm_bytes(mine));
    dmm_launch(gpu_kernel("tile"), left, right, product, mine);
    gpu_get(columns, product, dmm_bytes(mine));
    PATIENT(patient, Gatherv, columns, parts.counts[rank], MPI_BYTE, c, parts.counts, parts.starts, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        mpi_finished();
        dmm_check(a, b, c, 1, ranks, 1);
    }
    gpu.quiet = gpu.quiet || rank > 0;
    int status = gpu_close("a product of %ld x %ld", gpu.size, gpu.size);
    MPI_Finalize();
    return status;
}
