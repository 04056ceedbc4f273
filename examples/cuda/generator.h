// Programs of several processes that compute in phases: each phase communicates,
// uses the GPU and uses the CPU, for as long as the options say. What the
// processes are and how they communicate is the caller's.
#ifndef GENERATOR_H
#define GENERATOR_H

#include <stdbool.h>
#include <stddef.h>

// The processes of a program as one of them sees them. All of them call the same
// functions in the same order; each returns when the data may be used again.
struct peers {
    int rank, count;
    void (*barrier)(void);
    void (*broadcast)(void *data, size_t bytes);                          // from rank 0
    void (*scatter)(const void *parts, void *part, size_t bytes);         // rank 0's parts, one each
    void (*gather)(const void *part, void *parts, size_t bytes);          // the way back
    void (*all_to_all)(const void *parts, void *received, size_t bytes);  // a part for each, a part from each
};

// Reads the options. processes is where --processes goes, NULL where it is not
// the program's to say.
void generator_options(int argc, char **argv, const char *about, long *processes);

// --patient: processes that wait for each other sleep, where they would otherwise
// poll and take the processor from those they wait for.
extern bool generator_patient;

// The most bytes that one function of peers handles in one process.
size_t generator_message(int count);

// Runs the phases and checks all data. Returns the exit status.
int generator_run(const struct peers *peers);

#endif
