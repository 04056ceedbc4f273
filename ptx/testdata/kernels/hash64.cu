// 64-bit hashes and random numbers, all modulo 2^64.
#ifndef __NVCC__
#include "device.h"
#endif

typedef unsigned long long u64;

// FNV-1a over each record: h = 14695981039346656037; for each byte:
// h = (h ^ byte) * 1099511628211. out[i] for record i of length bytes at
// data[i * length]. Grid covering n, any 1-D block.
extern "C" __global__ void hash_fnv1a(const unsigned char *data, u64 *out, int length, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  u64 h = 14695981039346656037ull;
  for (int k = 0; k < length; k++)
    h = (h ^ data[(long long)i * length + k]) * 1099511628211ull;
  out[i] = h;
}

// splitmix64's finaliser of in[i]: z += 0x9e3779b97f4a7c15; z = (z ^ z >> 30)
// * 0xbf58476d1ce4e5b9; z = (z ^ z >> 27) * 0x94d049bb133111eb; z ^ z >> 31.
// Grid covering n, any 1-D block.
extern "C" __global__ void hash_mix(const u64 *in, u64 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  u64 z = in[i] + 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  out[i] = z ^ z >> 31;
}

// xorshift64*: steps times x ^= x >> 12; x ^= x << 25; x ^= x >> 27.
// state[i] is x, updated in place; out[i] = x * 0x2545f4914f6cdd1d.
// Grid covering n, any 1-D block.
extern "C" __global__ void hash_xorshift(u64 *state, u64 *out, int steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  u64 x = state[i];
  for (int s = 0; s < steps; s++) {
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
  }
  state[i] = x;
  out[i] = x * 0x2545f4914f6cdd1dull;
}

// 128-bit multiply and fold: out[i] = low ^ high of a[i] * b[i], rotated left
// by a[i] & 63, then divided by (b[i] >> 40 | 1), quotient ^ remainder.
// Grid covering n, any 1-D block.
extern "C" __global__ void hash_fold(const u64 *a, const u64 *b, u64 *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  u64 h = a[i] * b[i] ^ __umul64hi(a[i], b[i]);
  unsigned r = a[i] & 63;
  h = h << r | h >> (64 - r & 63);
  u64 d = b[i] >> 40 | 1;
  out[i] = h / d ^ h % d;
}
