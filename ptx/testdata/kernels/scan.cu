// Prefix sums of unsigned integers, modulo 2^32.
#ifndef __NVCC__
#include "device.h"
#endif

// Blelloch exclusive scan of segments of 2 * blockDim elements.
// Block a power of two up to 512, grid ceil(n / (2 * blockDim)), dynamic
// shared memory 8 * blockDim bytes. out[i] = sum of in[j] for j < i in the
// same segment (i < n); sums[b] = sum of segment b. Elements past n are 0.
extern "C" __global__ void scan_blelloch(const unsigned *in, unsigned *out, unsigned *sums, int n) {
  extern __shared__ unsigned tree[];
  int t = threadIdx.x, size = 2 * blockDim.x;
  int i = blockIdx.x * size + 2 * t;
  tree[2 * t] = i < n ? in[i] : 0;
  tree[2 * t + 1] = i + 1 < n ? in[i + 1] : 0;
  int step = 1;
  for (int d = size / 2; d > 0; d /= 2) { // up-sweep
    __syncthreads();
    if (t < d)
      tree[step * (2 * t + 2) - 1] += tree[step * (2 * t + 1) - 1];
    step *= 2;
  }
  if (t == 0) {
    sums[blockIdx.x] = tree[size - 1];
    tree[size - 1] = 0;
  }
  for (int d = 1; d < size; d *= 2) { // down-sweep
    step /= 2;
    __syncthreads();
    if (t < d) {
      int left = step * (2 * t + 1) - 1, right = step * (2 * t + 2) - 1;
      unsigned v = tree[left];
      tree[left] = tree[right];
      tree[right] += v;
    }
  }
  __syncthreads();
  if (i < n)
    out[i] = tree[2 * t];
  if (i + 1 < n)
    out[i + 1] = tree[2 * t + 1];
}

// data[i] += offsets[i / segment] for i < n. Grid covering n, any 1-D block.
// With offsets = exclusive scan of sums it completes scan_blelloch.
extern "C" __global__ void scan_offsets(unsigned *data, const unsigned *offsets, int segment, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    data[i] += offsets[i / segment];
}

// Inclusive scan within each warp by shuffles: out[i] = sum of in[j], j from
// 32 * (i / 32) to i. n a multiple of blockDim, blockDim a multiple of 32,
// grid n / blockDim.
extern "C" __global__ void scan_warp(const unsigned *in, unsigned *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  int v = in[i];
  for (int d = 1; d < 32; d *= 2) {
    int w = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d)
      v += w;
  }
  out[i] = v;
}
