#ifndef __NVCC__
#include "device.h"
#endif

#define THREADS 256

// *total += sum of in[i] for i < n, modulo 2^32. Any grid of blocks of 256: each
// thread strides by the whole grid, each block adds its sum once.
extern "C" __global__ void reduce(const unsigned *in, unsigned *total, int n) {
  __shared__ unsigned sums[THREADS];
  int t = threadIdx.x;
  unsigned sum = 0;
  for (long long i = blockIdx.x * THREADS + t; i < n; i += gridDim.x * THREADS)
    sum += in[i];
  sums[t] = sum;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (t < half)
      sums[t] += sums[t + half];
    __syncthreads();
  }
  if (t == 0)
    atomicAdd(total, sums[0]);
}
