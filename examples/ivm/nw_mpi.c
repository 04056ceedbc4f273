// Needleman-Wunsch with MPI: every process has as many pairs.
#define _GNU_SOURCE
#include "nw.h"
#include "ranks.h"

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {NW_OPTIONS, MPI_OPTIONS, {0}};
    mpi_begin(&argc, &argv);
    nw_options(argc, argv, own);
    long pairs = first_of(gpu.size, rank + 1) - first_of(gpu.size, rank);
    struct parts in = mpi_parts(gpu.size, nw_pair()), out = mpi_parts(gpu.size, sizeof(int));
    char *letters = host_alloc((size_t)gpu.size * nw_pair()), *mine = host_alloc((size_t)pairs * nw_pair());
    int *scores = host_alloc((size_t)gpu.size * sizeof *scores), *found = host_alloc((size_t)pairs * sizeof *found);
    if (rank == 0)
        nw_fill(letters);
    gpu_open(gpu_image);
    PATIENT(patient, Scatterv, letters, in.counts, in.starts, MPI_BYTE, mine, in.counts[rank], MPI_BYTE, 0, MPI_COMM_WORLD);
    if (pairs > 0) {
        CUdeviceptr sequences = gpu_put(mine, (size_t)pairs * nw_pair()), result = gpu_alloc((size_t)pairs * sizeof *found);
        nw_launch(gpu_kernel("align"), sequences, result, pairs);
        gpu_get(found, result, (size_t)pairs * sizeof *found);
    }
    PATIENT(patient, Gatherv, found, out.counts[rank], MPI_BYTE, scores, out.counts, out.starts, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        mpi_finished();
        nw_check(letters, scores);
    }
    gpu.quiet = gpu.quiet || rank > 0;
    int status = gpu_close("scores of %ld pairs", gpu.size);
    MPI_Finalize();
    return status;
}
