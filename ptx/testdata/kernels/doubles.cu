// Double precision.
#ifndef __NVCC__
#include "device.h"
#endif

#define BLOCK 128

// out[b] = dot product of the block's share. Thread g: acc = fma(x[i], y[i],
// acc) from 0 for i = g, g + threads, ... < n; then a tree over the block:
// s[t] += s[t + h] for t < h, h = 64 .. 1. Block 128, any 1-D grid.
extern "C" __global__ void dot_double(const double *x, const double *y, double *out, int n) {
  __shared__ double s[BLOCK];
  int t = threadIdx.x;
  double acc = 0;
  for (int i = blockIdx.x * BLOCK + t; i < n; i += gridDim.x * BLOCK)
    acc = fma(x[i], y[i], acc);
  s[t] = acc;
  __syncthreads();
  for (int h = BLOCK / 2; h > 0; h /= 2) {
    if (t < h)
      s[t] += s[t + h];
    __syncthreads();
  }
  if (t == 0)
    out[blockIdx.x] = s[0];
}

// Kahan's compensated sum of the run of length doubles of each thread:
// sum = c = 0; for each x: y = x - c; t = sum + y; c = (t - sum) - y; sum = t.
// out[g] = sum. Any 1-D launch; no operation may be fused or reordered.
extern "C" __global__ void kahan_sum(const double *in, double *out, int length) {
  int g = blockIdx.x * blockDim.x + threadIdx.x;
  double sum = 0, c = 0;
  for (int i = 0; i < length; i++) {
    double y = in[g * length + i] - c;
    double t = sum + y;
    c = (t - sum) - y;
    sum = t;
  }
  out[g] = sum;
}

// out[2 i], out[2 i + 1] = the real roots, smaller first, of x^2 + b[i] x +
// c[i], or two NaNs (bits 0x7ff8000000000000) when there are none.
// disc = fma(b, b, -4 c); q = -0.5 (b + copysign(sqrt(disc), b)); the roots
// are q and c / q (0 when q is 0). Grid covering n, any 1-D block.
extern "C" __global__ void quadratic_roots(const double *b, const double *c, double *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  double disc = fma(b[i], b[i], -4.0 * c[i]);
  if (disc < 0) {
    unsigned long long *bits = (unsigned long long *)out;
    bits[2 * i] = bits[2 * i + 1] = 0x7ff8000000000000ull;
    return;
  }
  double root = sqrt(disc);
  double q = -0.5 * (b[i] + (b[i] < 0 ? -root : root));
  double r = q == 0 ? 0 : c[i] / q;
  out[2 * i] = q < r ? q : r;
  out[2 * i + 1] = q < r ? r : q;
}

// Conversions of x = in[i], |x| < 2^31: f32[i] = (float)x, i32[i] = (int)x
// (towards zero), i64[i] = (long long)(x * 1024), back[i] = (double)i64[i] +
// (double)f32[i], bits[i] = the bits of x. Grid covering n, any 1-D block.
extern "C" __global__ void convert_double(const double *in, float *f32, int *i32, long long *i64, double *back, long long *bits, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  double x = in[i];
  f32[i] = (float)x;
  i32[i] = (int)x;
  i64[i] = (long long)(x * 1024);
  back[i] = (double)i64[i] + (double)f32[i];
  bits[i] = __double_as_longlong(x);
}
