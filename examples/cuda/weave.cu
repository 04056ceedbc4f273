#ifndef __NVCC__
#include "device.h"
#endif

// Variables of the module, which the kernels change: one word for each strand,
// and how many words were folded.
extern "C" {
__device__ unsigned salt[4];
__device__ unsigned folded;
}

static __device__ unsigned mix(unsigned x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

// What came in goes into the strand. Blocks of 256 covering n.
extern "C" __global__ void absorb(const unsigned *in, unsigned *strand, int n, int s) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= n)
    return;
  unsigned x = strand[i] ^ in[i];
  strand[i] = (x << 7 | x >> 25) + salt[s];
}

// A strand with the next one laid over it. Blocks of 256 covering n.
extern "C" __global__ void braid(const unsigned *strand, const unsigned *next, unsigned *out, int n, int round) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n)
    out[i] = strand[i] + mix(next[(i + round) % n]);
}

// One thread.
extern "C" __global__ void stir(const unsigned *strand, int n, int s, int round) {
  salt[s] = mix(salt[s] ^ strand[round % n]);
}

// Adds all words to the last word of salt. Blocks of 256 covering n.
extern "C" __global__ void fold(const unsigned *words, int n) {
  __shared__ unsigned sums[256];
  int i = blockIdx.x * 256 + threadIdx.x, t = threadIdx.x;
  sums[t] = i < n ? words[i] : 0;
  __syncthreads();
  for (int d = 128; d > 0; d /= 2) {
    if (t < d)
      sums[t] += sums[t + d];
    __syncthreads();
  }
  if (t > 0)
    return;
  atomicAdd(&salt[3], sums[0]);
  atomicAdd(&folded, 1u);
}

// Writes where nothing is.
extern "C" __global__ void poke(unsigned *nowhere) { *nowhere = 1; }
