// How the programs here divide their work over the GPUs, and some over the CPUs, of their nodes. The work of an iteration is a
// number of items; an element computes those from one to before another.
//
//   spawn    DS-LB, Listing 5-2a: the items are cut into portions. An element does one, and creates the
//            next element on its GPU. As many portions as GPUs is no balancing at all.
//   monitor  OM-LB, Listing 5-2b: elements stay. After each iteration the GPUs whose time is below a
//            threshold times the least get one more, and the items are divided anew, evenly.
//   guided   ours: one element a GPU takes pieces as large as its measured speed says, half of its
//            share of what is left, so that all end together. Nothing is to be tuned. Where elements
//            keep their items on the GPU from one iteration to the next, each has one piece, which is
//            made larger or smaller as they run.
//
// What is decided is the library's (ivmShare, ivmGrows, ivmGuideNext). Programs that need no more than
// that call its balancers (ivmGuidedRoot and so on): here elements also report when they began, how
// long they took and what they did, for whoever measures, and some keep their items.
#ifndef DIVIDE_H
#define DIVIDE_H

#include "gpu.h"

#include <ivm.h>

struct division {
    const char *way, *gpus, *cpus;
    long portions, most;
    double threshold;
    long items, iterations; // set by the program
    bool keeps;             // also: elements keep their items, and give them back when they are told
};
extern struct division division;

// To be put at the end of a program's own options.
#define DIVISION_OPTIONS                                                                                         \
    {"way", "spawn (DS-LB), monitor (OM-LB) or guided", GPU_WORD, &division.way, false},                          \
    {"gpus", "how many GPUs each node has, as 3,4,2", GPU_WORD, &division.gpus, false},                           \
    {"cpus", "how many elements the CPUs of each node have besides, as 16,8", GPU_WORD, &division.cpus, false},   \
    {"portions", "of an iteration with spawn; 0 for one a GPU", GPU_NUMBER, &division.portions, false},           \
    {"most", "elements with monitor; 0 for four a GPU", GPU_NUMBER, &division.most, false},                       \
    {"threshold", "with monitor: faster than so many times the least gets one more", GPU_REAL, &division.threshold, false}

// Ends the program with what IVM said.
#define MUST(call) divide_must((call), #call, __FILE__, __LINE__)
void divide_must(int result, const char *call, const char *file, int line);

// The GPUs of the nodes, and the CPUs once for each element there; at most so many. Returns how many there are.
int divide_devices(ivm_device *list, int most);

// Runs all iterations, for the first element. Before is called before each of them, and after the
// last with its number; NULL for nothing.
void divide_root(void (*before)(long iteration));

// Says that the results are there, and how the work was divided, in lines for whoever measures: "finished" and
// the time of day; "work" and the items that each node did; "iterations" and the seconds of each; "cores" and the items
// that elements on CPUs did, where there are such; "hosts" and the elements that each had; "elements"
// and how many there were; "created" and the mean seconds from the call that creates an element until it is about
// to compute (the nodes' clocks must agree); and where elements stay "deviations", of their times in each
// iteration, as parts of the mean.
void divide_report(void);

// Computes what the element is given, for all others. Compute launches kernels on items of an
// iteration and waits for them; put writes the results back. Give, of programs that keep their items,
// writes all of them back, as somebody else may have them next.
typedef void divide_step(long iteration, long from, long to);
void divide_child(divide_step *compute, divide_step *put, void (*give)(void));

// Opens the element's GPU with these kernels, which gpu_kernel finds; false if it has none, but a core.
bool divide_open(const char *image);

#endif
