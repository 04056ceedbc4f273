// Himeno with MPI: every process has as many planes, and exchanges those at the ends with its neighbours.
#define _GNU_SOURCE
#include "himeno.h"
#include "ranks.h"

// Sends a plane to a neighbour, and receives one; a neighbour that is not there is MPI_PROC_NULL.
static void exchange(void *out, int to, void *in, int from) {
    int bytes = (int)himeno_plane();
    MPI_Request both[2];
    MPI_Irecv(in, bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, &both[0]);
    MPI_Isend(out, bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, &both[1]);
    for (int i = 0; i < 2; i++)
        patient ? patient_finish(&both[i]) : (void)MPI_Wait(&both[i], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {HIMENO_OPTIONS, MPI_OPTIONS, {0}};
    mpi_begin(&argc, &argv);
    himeno_options(argc, argv, own);
    size_t plane = himeno_plane();
    long items = gpu.size - 2, from = first_of(items, rank), to = first_of(items, rank + 1), planes = to - from + 2;
    if (to == from)
        gpu_misuse("there are %ld planes to compute, fewer than processes", items);
    struct parts parts = mpi_parts(items, plane);
    int *counts = host_alloc((size_t)ranks * sizeof *counts); // with one more on either side
    for (int r = 0; r < ranks; r++)
        counts[r] = parts.counts[r] + 2 * (int)plane;
    float *grid = host_alloc((size_t)gpu.size * plane);
    char *mine = host_alloc((size_t)planes * plane);
    if (rank == 0)
        himeno_fill(grid);
    gpu_open(gpu_image);
    CUfunction jacobi = gpu_kernel("jacobi");
    PATIENT(patient, Scatterv, grid, counts, parts.starts, MPI_BYTE, mine, counts[rank], MPI_BYTE, 0, MPI_COMM_WORLD);
    CUdeviceptr p = gpu_put(mine, (size_t)planes * plane), q = gpu_alloc((size_t)planes * plane);
    int below = rank > 0 ? rank - 1 : MPI_PROC_NULL, above = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    char *first = mine + plane, *last = mine + (size_t)(planes - 2) * plane, *end = mine + (size_t)(planes - 1) * plane;
    for (long i = 0; i < gpu.repeat; i++) {
        himeno_launch(jacobi, p, q, planes);
        gpu_get(first, p + plane, plane);
        gpu_get(last, p + (size_t)(planes - 2) * plane, plane);
        exchange(first, below, end, above);
        exchange(last, above, mine, below);
        gpu_set(p, mine, plane);
        gpu_set(p + (size_t)(planes - 1) * plane, end, plane);
    }
    gpu_get(mine, p, (size_t)planes * plane);
    PATIENT(patient, Gatherv, mine + plane, parts.counts[rank], MPI_BYTE, (char *)grid + plane, parts.counts, parts.starts, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        mpi_finished();
        himeno_check(grid);
    }
    gpu.quiet = gpu.quiet || rank > 0;
    int status = gpu_close("%ld iterations on a grid of %ld x %ld x %ld", gpu.repeat, width, width, gpu.size);
    MPI_Finalize();
    return status;
}
