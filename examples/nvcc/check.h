// What the programs share: a call that fails ends the program and says where. The names in the
// macros end in _ so that no argument means one of them.
#pragma once
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                    \
    do {                                                                                               \
        cudaError_t check_ = (call);                                                                   \
        if (check_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_)); \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

// For libraries, whose results are 0 where all is well.
#define NEED(call)                                                                       \
    do {                                                                                 \
        int need_ = (int)(call);                                                         \
        if (need_ != 0) {                                                                \
            fprintf(stderr, "%s:%d: %s answers %d\n", __FILE__, __LINE__, #call, need_); \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

#define TRUE(condition)                                                             \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)
