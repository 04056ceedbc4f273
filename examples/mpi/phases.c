// The generator's programs with MPI. Start it with mpiexec -n N phases.
#define _GNU_SOURCE
#include "generator.h"
#include "gpu.h"

#include <mpi.h>
#include <time.h>

// MPI's processes poll while they wait. On a machine with fewer cores than
// processes that takes the processor from those they wait for, and from a software
// GPU. With --patient the same collectives are started without waiting, and the
// process sleeps between looking whether they are over: the longer it has waited, the
// longer, so that it notices within a thirtieth of its wait.
static void finish(MPI_Request *request) {
    const double shortest = 50e-6, longest = 2e-3;
    double began = now();
    int done = 0;
    while (MPI_Test(request, &done, MPI_STATUS_IGNORE), !done) {
        double nap = (now() - began) / 30;
        nap = nap < shortest ? shortest : nap > longest ? longest : nap;
        nanosleep(&(struct timespec){0, (long)(nap * 1e9)}, NULL);
    }
}

#define COLLECTIVE(name, ...)                      \
    do {                                           \
        MPI_Request request;                       \
        if (!generator_patient) {                  \
            MPI_##name(__VA_ARGS__);               \
            break;                                 \
        }                                          \
        MPI_I_##name(__VA_ARGS__, &request);       \
        finish(&request);                          \
    } while (0)

#define MPI_I_Barrier MPI_Ibarrier
#define MPI_I_Bcast MPI_Ibcast
#define MPI_I_Scatter MPI_Iscatter
#define MPI_I_Gather MPI_Igather
#define MPI_I_Alltoall MPI_Ialltoall

static void barrier(void) { COLLECTIVE(Barrier, MPI_COMM_WORLD); }

static void broadcast(void *data, size_t bytes) {
    COLLECTIVE(Bcast, data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void scatter(const void *parts, void *part, size_t bytes) {
    COLLECTIVE(Scatter, parts, (int)bytes, MPI_BYTE, part, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void gather(const void *part, void *parts, size_t bytes) {
    COLLECTIVE(Gather, part, (int)bytes, MPI_BYTE, parts, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void all_to_all(const void *parts, void *received, size_t bytes) {
    COLLECTIVE(Alltoall, parts, (int)bytes, MPI_BYTE, received, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
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
