// Collectives of MPI that may sleep while they wait.
#ifndef PATIENT_H
#define PATIENT_H

#include "gpu.h"

#include <mpi.h>
#include <time.h>

// MPI's processes poll while they wait. On a machine with fewer cores than
// processes that takes the processor from those they wait for, and from a software
// GPU. A patient process starts the same collectives without waiting, and
// sleeps between looking whether they are over: the longer it has waited, the
// longer, so that it notices within a thirtieth of its wait.
static inline void patient_finish(MPI_Request *request) {
    const double shortest = 50e-6, longest = 2e-3;
    double began = now();
    int done = 0;
    while (MPI_Test(request, &done, MPI_STATUS_IGNORE), !done) {
        double nap = (now() - began) / 30;
        nap = nap < shortest ? shortest : nap > longest ? longest : nap;
        nanosleep(&(struct timespec){0, (long)(nap * 1e9)}, NULL);
    }
}

// A collective, as PATIENT(patient, Bcast, data, ...): sleeping if patient is true.
#define PATIENT(patient, name, ...)                \
    do {                                           \
        MPI_Request request;                       \
        if (!(patient)) {                          \
            MPI_##name(__VA_ARGS__);               \
            break;                                 \
        }                                          \
        MPI_I_##name(__VA_ARGS__, &request);       \
        patient_finish(&request);                  \
    } while (0)

#define MPI_I_Barrier MPI_Ibarrier
#define MPI_I_Bcast MPI_Ibcast
#define MPI_I_Scatter MPI_Iscatter
#define MPI_I_Scatterv MPI_Iscatterv
#define MPI_I_Gather MPI_Igather
#define MPI_I_Gatherv MPI_Igatherv
#define MPI_I_Allgatherv MPI_Iallgatherv
#define MPI_I_Alltoall MPI_Ialltoall

#endif
