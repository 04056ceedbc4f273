#ifndef __NVCC__
#include "device.h"
#endif

// Default transitions of an automaton. next has a row of symbols states for each state;
// depth is how far a state is from the first one. A state may have a default transition
// to a state of less depth: the transitions that both have in common need not be stored
// then. Thread s finds the state with which s has most in common (of several the first),
// and how much that is; -1 and 0 where there is none.
//
// So no input takes more than two steps a symbol: each default transition loses depth,
// and each other gains at most one.
//
// Grid covering count, any 1-D block. first to last are the states to try, so that a call
// can do a part of the work; best and saved are carried from call to call.
extern "C" __global__ void compress(const unsigned short *next, const unsigned short *depth, int count, int symbols, int first, int last, int *best, int *saved) {
  int s = blockIdx.x * blockDim.x + threadIdx.x;
  if (s >= count)
    return;
  const unsigned short *mine = next + (long long)s * symbols;
  int own = depth[s], found = best[s], most = saved[s];
  for (int t = first; t < last; t++) {
    if (depth[t] >= own)
      continue;
    const unsigned short *other = next + (long long)t * symbols;
    int same = 0;
    for (int c = 0; c < symbols; c++)
      same += mine[c] == other[c];
    if (same > most) {
      most = same;
      found = t;
    }
  }
  best[s] = found;
  saved[s] = most;
}
