// What the programs with MPI share: even parts, and collectives over them. They are what the programs
// with elements are compared with, so they do the same work with the same kernels.
#ifndef RANKS_H
#define RANKS_H

#include "gpu.h"
#include "patient.h"

#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;
static bool patient;

#define MPI_OPTIONS {"patient", "sleep while waiting for other processes, where there are fewer cores than processes", GPU_FLAG, &patient, false}

static inline void mpi_begin(int *argc, char ***argv) {
    MPI_Init(argc, argv); // errors end the program
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

// The first item of a process's even part.
static inline long first_of(long items, int of) { return items * of / ranks; }

// The bytes of each process's part and where they begin, for collectives with unequal parts.
struct parts {
    int *counts, *starts;
};

static inline struct parts mpi_parts(long items, size_t size) {
    struct parts p = {host_alloc((size_t)ranks * sizeof(int)), host_alloc((size_t)ranks * sizeof(int))};
    for (int r = 0; r < ranks; r++) {
        p.starts[r] = (int)((size_t)first_of(items, r) * size);
        p.counts[r] = (int)((size_t)(first_of(items, r + 1) - first_of(items, r)) * size);
    }
    return p;
}

// Says that the results are there, with the time of day, for whoever measures.
static inline void mpi_finished(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    printf("finished %ld.%09ld\n", (long)t.tv_sec, t.tv_nsec);
}

#endif
