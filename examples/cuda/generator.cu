#ifndef __NVCC__
#include "device.h"
#endif

// sum[i] += step[i] for i < n, modulo 2^32. Blocks of any size covering n.
extern "C" __global__ void add(unsigned *sum, const unsigned *step, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    sum[i] += step[i];
}
