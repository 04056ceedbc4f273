// The generator's programs with plain processes that share memory: nothing but
// Linux is needed. examples/mpi has the same with MPI.
#include "generator.h"
#include "gpu.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// What all processes see: a barrier, and a board with a row for each to write a
// message to.
static pthread_barrier_t *meeting;
static char *board;
static size_t row;
static struct peers peers;

static void *shared_memory(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        gpu_wrong("no shared memory of %zu bytes", bytes);
    return p;
}

static void barrier(void) { pthread_barrier_wait(meeting); }

// Each of these writes to the board, waits for the others to have written, reads,
// and waits for them to have read.
static void broadcast(void *data, size_t bytes) {
    if (peers.rank == 0)
        memcpy(board, data, bytes);
    barrier();
    memcpy(data, board, bytes);
    barrier();
}

static void scatter(const void *parts, void *part, size_t bytes) {
    if (peers.rank == 0)
        memcpy(board, parts, bytes * (size_t)peers.count);
    barrier();
    memcpy(part, board + (size_t)peers.rank * bytes, bytes);
    barrier();
}

static void gather(const void *part, void *parts, size_t bytes) {
    memcpy(board + (size_t)peers.rank * bytes, part, bytes);
    barrier();
    if (peers.rank == 0)
        memcpy(parts, board, bytes * (size_t)peers.count);
    barrier();
}

static void all_to_all(const void *parts, void *received, size_t bytes) {
    memcpy(board + (size_t)peers.rank * row, parts, bytes * (size_t)peers.count);
    barrier();
    for (int from = 0; from < peers.count; from++)
        memcpy((char *)received + (size_t)from * bytes, board + (size_t)from * row + (size_t)peers.rank * bytes, bytes);
    barrier();
}

int main(int argc, char **argv) {
    enum { MOST = 256 };
    long processes = 4;
    generator_options(argc, argv, "computes in phases with several processes", &processes);
    if (processes < 1 || processes > MOST)
        gpu_misuse("--processes must be from 1 to %d", MOST);
    peers = (struct peers){0, (int)processes, barrier, broadcast, scatter, gather, all_to_all};
    row = generator_message(peers.count);
    meeting = shared_memory(sizeof *meeting);
    board = shared_memory(row * (size_t)processes);
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(meeting, &attributes, (unsigned)processes);

    // The GPU is opened by the children: what a process opened does not outlive
    // its fork.
    pid_t children[MOST];
    for (; peers.rank < peers.count; peers.rank++) {
        pid_t child = fork();
        if (child < 0)
            gpu_wrong("cannot start process %d", peers.rank);
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); // nobody else would end it at the barrier
            return generator_run(&peers);
        }
        children[peers.rank] = child;
    }
    // One that fails would leave the others waiting at the barrier for ever.
    int failed = 0, status;
    for (long left = processes; left > 0; left--) {
        pid_t ended = wait(&status);
        for (long i = 0; i < processes; i++)
            if (children[i] == ended)
                children[i] = 0;
        if (status == 0 || failed)
            continue;
        failed = 1;
        for (long i = 0; i < processes; i++)
            if (children[i] > 0)
                kill(children[i], SIGKILL);
    }
    return failed;
}
