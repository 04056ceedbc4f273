// N-body simulation with MPI: every process moves as many bodies, and all tell all.
#define _GNU_SOURCE
#include "ranks.h"
#include "nbody.h"

int main(int argc, char **argv) {
    static const struct gpu_option own[] = {MPI_OPTIONS, {0}};
    mpi_begin(&argc, &argv);
    nbody_options(argc, argv, own);
    size_t bytes = (size_t)gpu.size * sizeof(float4);
    long from = first_of(gpu.size, rank), to = first_of(gpu.size, rank + 1);
    size_t some = (size_t)(to - from) * sizeof(float4);
    struct parts parts = mpi_parts(gpu.size, sizeof(float4));
    float4 *position = host_alloc(bytes), *velocity = host_alloc(bytes), *mine = host_alloc(some);
    if (rank == 0)
        nbody_fill(position, velocity);
    gpu_open(gpu_image);
    CUfunction step = gpu_kernel("step");
    PATIENT(patient, Bcast, position, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    PATIENT(patient, Scatterv, velocity, parts.counts, parts.starts, MPI_BYTE, mine, (int)some, MPI_BYTE, 0, MPI_COMM_WORLD);
    CUdeviceptr all = gpu_put(position, bytes), moved = gpu_alloc(some), speeds = gpu_put(mine, some);
    for (long i = 0; i < gpu.repeat; i++) {
        nbody_launch(step, all, moved, speeds, from, to);
        gpu_get(mine, moved, some);
        PATIENT(patient, Allgatherv, mine, (int)some, MPI_BYTE, position, parts.counts, parts.starts, MPI_BYTE, MPI_COMM_WORLD);
        gpu_set(all, position, bytes);
    }
    if (rank == 0) {
        mpi_finished();
        nbody_check(position);
    }
    gpu.quiet = gpu.quiet || rank > 0;
    int status = gpu_close("%ld steps of %ld bodies", gpu.repeat, gpu.size);
    MPI_Finalize();
    return status;
}
