// Sums of floats: one partial sum a block.
#ifndef __NVCC__
#include "device.h"
#endif

#define BLOCK 256

// All three: in has n floats, out one float a block; elements past n count as
// 0. Sums are exact for small integers; else follow the order given.

// Shared-memory tree. Block 256, grid ceil(n / 256).
// s[t] = in[256 b + t]; for h = 128, 64, ..., 1: s[t] += s[t + h] for t < h;
// out[b] = s[0].
extern "C" __global__ void reduce_shared(const float *in, float *out, int n) {
  __shared__ float s[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  s[t] = i < n ? in[i] : 0;
  __syncthreads();
  for (int h = BLOCK / 2; h > 0; h /= 2) {
    if (t < h)
      s[t] += s[t + h];
    __syncthreads();
  }
  if (t == 0)
    out[blockIdx.x] = s[0];
}

// Warp shuffles. Block a multiple of 32 up to 1024, any grid.
// Thread g sums in[g], in[g + threads], ... in that order from 0. Each warp:
// for h = 16 .. 1: v[l] += v[l + h] (lanes past the end add themselves; lane 0
// is what counts). Warp 0 then does the same over the warps' sums, padded
// with 0, and writes out[b].
extern "C" __global__ void reduce_shuffle(const float *in, float *out, int n) {
  __shared__ float warps[32];
  int t = threadIdx.x;
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x)
    v += in[i];
  for (int h = 16; h > 0; h /= 2)
    v += __shfl_down_sync(0xffffffffu, v, h);
  if (t % 32 == 0)
    warps[t / 32] = v;
  __syncthreads();
  if (t >= 32)
    return;
  v = t < blockDim.x / 32 ? warps[t] : 0;
  for (int h = 16; h > 0; h /= 2)
    v += __shfl_down_sync(0xffffffffu, v, h);
  if (t == 0)
    out[blockIdx.x] = v;
}

// Tree with the old warp-synchronous tail: the last six steps run in one warp
// through volatile shared memory without a barrier, so it needs lanes in
// lock-step. Block 256, grid ceil(n / 512).
// s[t] = in[512 b + t] + in[512 b + 256 + t]; then as reduce_shared.
extern "C" __global__ void reduce_volatile(const float *in, float *out, int n) {
  __shared__ float s[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * (2 * BLOCK) + t;
  s[t] = (i < n ? in[i] : 0) + (i + BLOCK < n ? in[i + BLOCK] : 0);
  __syncthreads();
  if (t < 128)
    s[t] += s[t + 128];
  __syncthreads();
  if (t < 64)
    s[t] += s[t + 64];
  __syncthreads();
  if (t < 32) {
    volatile float *v = s;
    v[t] = v[t] + v[t + 32];
    v[t] = v[t] + v[t + 16];
    v[t] = v[t] + v[t + 8];
    v[t] = v[t] + v[t + 4];
    v[t] = v[t] + v[t + 2];
    v[t] = v[t] + v[t + 1];
  }
  if (t == 0)
    out[blockIdx.x] = s[0];
}
