// Bitonic sort of unsigned integers.
#ifndef __NVCC__
#include "device.h"
#endif

#define SEGMENT 512

// Sorts each segment of 512 in shared memory: even segments rising, odd ones
// falling, so that the result is bitonic in runs of 1024.
// Block 256, grid n / 512, n a multiple of 512.
extern "C" __global__ void bitonic_segments(unsigned *data) {
  __shared__ unsigned s[SEGMENT];
  unsigned t = threadIdx.x, base = blockIdx.x * SEGMENT;
  s[t] = data[base + t];
  s[t + SEGMENT / 2] = data[base + t + SEGMENT / 2];
  for (unsigned size = 2; size <= SEGMENT; size *= 2) {
    for (unsigned stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      unsigned i = 2 * t - (t & (stride - 1)), j = i + stride;
      bool rising = ((base + i) & size) == 0;
      unsigned a = s[i], b = s[j];
      if ((a > b) == rising) {
        s[i] = b;
        s[j] = a;
      }
    }
  }
  __syncthreads();
  data[base + t] = s[t];
  data[base + t + SEGMENT / 2] = s[t + SEGMENT / 2];
}

// One compare-exchange step on global memory: for each i with (i & stride) ==
// 0 and j = i | stride, swap data[i], data[j] when data[i] > data[j] and
// (i & size) == 0, or data[i] < data[j] and (i & size) != 0.
// stride and size are powers of two, stride < size; n a power of two; one
// thread an element, grid n / blockDim. Running it for size = 2, 4 .. n and
// stride = size/2 .. 1 sorts; after bitonic_segments size starts at 1024.
extern "C" __global__ void bitonic_step(unsigned *data, unsigned stride, unsigned size) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, j = i ^ stride;
  if (j < i)
    return;
  unsigned a = data[i], b = data[j];
  bool falling = (i & size) != 0;
  if (falling ? a < b : a > b) {
    data[i] = b;
    data[j] = a;
  }
}
