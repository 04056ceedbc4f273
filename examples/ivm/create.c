// How long it takes to create elements: on a CPU and on a GPU, one after the other.
//
//     muster run -- ./ivm-create [--repeat 20] [--gpus 0] [--pause 500]
//
// Each element notes when its process began, when it had entered, and when its first kernel could be launched.
// The first element prints, for each kind, the least and the median microseconds of the way to each of them,
// from the call that creates the element on. The CPU's elements are done when they have entered.
#include "divide.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

GPU_IMAGE("nbody.ptx");

enum { BEGUN, ENTERED, LOADED, HEARD, MOMENTS };
static const char *const moments[] = {"begun", "entered", "loaded", "heard"};
struct times {
    double at[MOMENTS];
};
static struct times *times;
static long pause_ms; // before each element

static double clock_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); // the same for all processes of a node
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, int kind) {
    ivm_device device;
    struct times *took = host_alloc((size_t)gpu.repeat * sizeof *took);
    MUST(ivmCreateDev(0, kind, &device));
    for (long i = 0; i < gpu.repeat; i++) {
        ivm_pe pe;
        nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
        double asked = clock_time();
        MUST(ivmCreatePEs(device, 1, &pe));
        MUST(ivmWait(pe));
        times->at[HEARD] = clock_time();
        for (int m = 0; m < MOMENTS; m++)
            took[i].at[m] = times->at[m] - asked;
        int ended = ivmWait(pe); // until it has ended, so that the next finds the device as this one did
        if (ended != IVM_OK && ended != IVM_ERROR_DEAD)
            MUST(ended);
    }
    printf("%s", name);
    for (int m = 0; m < MOMENTS; m++) {
        double *all = host_alloc((size_t)gpu.repeat * sizeof *all);
        for (long i = 0; i < gpu.repeat; i++)
            all[i] = 1e6 * took[i].at[m];
        qsort(all, (size_t)gpu.repeat, sizeof *all, ascending);
        printf(" %s %.0f %.0f", moments[m], all[0], all[gpu.repeat / 2]);
        free(all);
    }
    printf("\n");
    free(took);
}

int main(int argc, char **argv) {
    double begun = clock_time();
    static const struct gpu_option own[] = {{"gpus", "0 for elements on CPUs only", GPU_WORD, &division.gpus, false},
                                              {"pause", "milliseconds before each element", GPU_NUMBER, &pause_ms, false},
                                              {0}};
    int id;
    gpu.repeat = 20;
    gpu_options(argc, argv, "creates elements", NULL, "elements of each kind", own);
    MUST(ivmEnter());
    double entered = clock_time();
    MUST(ivmGetMyId(&id));
    if (id == 0) {
        MUST(ivmMalloc("times", &times, sizeof *times));
        measure("CPU", IVM_CPU);
        if (division.gpus[0] != '0')
            measure("GPU", IVM_GPU_N(0));
    } else {
        divide_open(gpu_image);
        double loaded = clock_time();
        MUST(ivmMap("times", &times, sizeof *times));
        struct times *here = ivmHost(times);
        *here = (struct times){{begun, entered, loaded, 0}};
        MUST(ivmSignal());
    }
    MUST(ivmExit());
    return 0;
}
