#ifndef __NVCC__
#include "device.h"
#endif

#define THREADS 256

// out[p] = sum over i < n of a[p n + i] b[p n + i]: one block a pair p.
extern "C" __global__ void scalar_product(const float *a, const float *b, float *out, int n) {
  __shared__ float sums[THREADS];
  int t = threadIdx.x;
  a += (long long)blockIdx.x * n;
  b += (long long)blockIdx.x * n;
  float sum = 0;
  for (int i = t; i < n; i += THREADS)
    sum = fmaf(a[i], b[i], sum);
  sums[t] = sum;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (t < half)
      sums[t] += sums[t + half];
    __syncthreads();
  }
  if (t == 0)
    out[blockIdx.x] = sums[0];
}
