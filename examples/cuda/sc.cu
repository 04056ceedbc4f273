#ifndef __NVCC__
#include "device.h"
#endif

#define THREADS 256

// The inclusive sum of what the threads of a block give, in shared memory.
static __device__ unsigned block_scan(unsigned v, unsigned *sums) {
  int t = threadIdx.x;
  sums[t] = v;
  __syncthreads();
  for (int d = 1; d < THREADS; d *= 2) {
    unsigned before = t >= d ? sums[t - d] : 0;
    __syncthreads();
    sums[t] += before;
    __syncthreads();
  }
  return sums[t];
}

// Prefix sums modulo 2^32 within segments of 256: out[i] = sum of in[j], j <= i,
// and ends[b] = the sum of all of segment b. Blocks of 256 covering n.
extern "C" __global__ void scan_segments(const unsigned *in, unsigned *out, unsigned *ends, int n) {
  __shared__ unsigned sums[THREADS];
  long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  unsigned sum = block_scan(i < n ? in[i] : 0, sums);
  if (i < n)
    out[i] = sum;
  if (threadIdx.x == THREADS - 1)
    ends[blockIdx.x] = sum;
}

// Prefix sums of the segments' ends, in place. One block of 256.
extern "C" __global__ void scan_ends(unsigned *ends, int count) {
  __shared__ unsigned sums[THREADS];
  unsigned before = 0;
  for (int base = 0; base < count; base += THREADS) {
    int i = base + threadIdx.x;
    unsigned sum = before + block_scan(i < count ? ends[i] : 0, sums);
    if (i < count)
      ends[i] = sum;
    before += sums[THREADS - 1];
    __syncthreads();
  }
}

// Adds what lies before each segment. Blocks of 256 covering n.
extern "C" __global__ void add_ends(unsigned *out, const unsigned *ends, int n) {
  long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i < n && blockIdx.x > 0)
    out[i] += ends[blockIdx.x - 1];
}
