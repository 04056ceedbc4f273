#ifndef __NVCC__
#include "device.h"
#endif

// Turns of a random number generator: each of 32 threads makes n of them from its word of in and the
// last word there, of which there are so many. One block.
extern "C" __global__ void turns(const unsigned *in, unsigned *out, int words, int n) {
  unsigned x = in[threadIdx.x] ^ in[words - 1];
  for (int i = 0; i < n; i++)
    x = x * 1664525u + 1013904223u;
  out[threadIdx.x] = x;
}
