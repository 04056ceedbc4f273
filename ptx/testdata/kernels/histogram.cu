// Histograms of bytes into 256 unsigned counters.
#ifndef __NVCC__
#include "device.h"
#endif

#define BINS 256

// counts[data[i]] += 1 for i < n, straight in global memory. counts is not
// cleared first. Any 1-D grid and block (grid-stride).
extern "C" __global__ void histogram_global(const unsigned char *data, unsigned *counts, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&counts[data[i]], 1u);
}

// The same result by a private histogram a block in shared memory. data is n4
// words of four bytes.
extern "C" __global__ void histogram_shared(const unsigned *data, unsigned *counts, int n4) {
  __shared__ unsigned local[BINS];
  for (int b = threadIdx.x; b < BINS; b += blockDim.x)
    local[b] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += gridDim.x * blockDim.x) {
    unsigned w = data[i];
    atomicAdd(&local[w & 255], 1u);
    atomicAdd(&local[w >> 8 & 255], 1u);
    atomicAdd(&local[w >> 16 & 255], 1u);
    atomicAdd(&local[w >> 24], 1u);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < BINS; b += blockDim.x)
    if (local[b])
      atomicAdd(&counts[b], local[b]);
}
