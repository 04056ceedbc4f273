// The generator's programs with MPI. Start it with mpiexec -n N phases.
#include "generator.h"
#include "gpu.h"
#include "patient.h"

static void barrier(void) { PATIENT(generator_patient, Barrier, MPI_COMM_WORLD); }

static void broadcast(void *data, size_t bytes) {
    PATIENT(generator_patient, Bcast, data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void scatter(const void *parts, void *part, size_t bytes) {
    PATIENT(generator_patient, Scatter, parts, (int)bytes, MPI_BYTE, part, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void gather(const void *part, void *parts, size_t bytes) {
    PATIENT(generator_patient, Gather, part, (int)bytes, MPI_BYTE, parts, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void all_to_all(const void *parts, void *received, size_t bytes) {
    PATIENT(generator_patient, Alltoall, parts, (int)bytes, MPI_BYTE, received, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    struct peers peers = {0, 0, barrier, broadcast, scatter, gather, all_to_all};
    MPI_Init(&argc, &argv); // errors end the program
    MPI_Comm_rank(MPI_COMM_WORLD, &peers.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peers.count);
    generator_options(argc, argv, "computes in phases with the processes of mpiexec", NULL);
    int status = generator_run(&peers);
    MPI_Finalize();
    return status;
}
