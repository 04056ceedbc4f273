// The Himeno benchmark: Jacobi steps of a 19-point stencil.
#ifndef __NVCC__
#include "device.h"
#endif

#define BLOCK 128

// All fields are nx * ny * nz floats, index (i * ny + j) * nz + k. a is four
// such fields one after the other, b and c are three each.
// For every inner cell (1 <= i < nx-1, ...), with p(di,dj,dk) the neighbour:
//   s0 = a0 p(1,0,0) + a1 p(0,1,0) + a2 p(0,0,1)
//      + b0 (p(1,1,0) - p(1,-1,0) - p(-1,1,0) + p(-1,-1,0))
//      + b1 (p(0,1,1) - p(0,-1,1) - p(0,1,-1) + p(0,-1,-1))
//      + b2 (p(1,0,1) - p(-1,0,1) - p(1,0,-1) + p(-1,0,-1))
//      + c0 p(-1,0,0) + c1 p(0,-1,0) + c2 p(0,0,-1) + wrk1
//   ss = (s0 a3 - p) bnd;  next = fma(omega, ss, p)
// s0 starts as the product a0 p(1,0,0) and takes every later term by fma in
// this order, wrk1 by addition; differences are taken from the left; ss is
// fma(s0, a3, -p) * bnd.
// residual[block] = the block's sum of ss * ss as a tree over threads
// (s[t] += s[t + h] for t < h, h = 64 .. 1), cells that are not inner give 0.
// next is written for inner cells only.
// Block 128, grid ceil(nx * ny * nz / 128); thread g does cell g.
extern "C" __global__ void himeno_jacobi(const float *a, const float *b, const float *c, const float *p, const float *wrk1, const float *bnd, float *next, float *residual, int nx, int ny, int nz, float omega) {
  __shared__ float sum[BLOCK];
  int t = threadIdx.x, at = blockIdx.x * BLOCK + t;
  int x = ny * nz, y = nz, field = nx * x; // strides
  int i = at / x, j = at % x / y, k = at % y;
  float squared = 0;
  if (i > 0 && i < nx - 1 && j > 0 && j < ny - 1 && k > 0 && k < nz - 1) {
    const float *q = p + at;
    a += at;
    b += at;
    c += at;
    float s0 = a[0] * q[x];
    s0 = fmaf(a[field], q[y], s0);
    s0 = fmaf(a[2 * field], q[1], s0);
    s0 = fmaf(b[0], q[x + y] - q[x - y] - q[y - x] + q[-x - y], s0);
    s0 = fmaf(b[field], q[y + 1] - q[1 - y] - q[y - 1] + q[-y - 1], s0);
    s0 = fmaf(b[2 * field], q[x + 1] - q[1 - x] - q[x - 1] + q[-x - 1], s0);
    s0 = fmaf(c[0], q[-x], s0);
    s0 = fmaf(c[field], q[-y], s0);
    s0 = fmaf(c[2 * field], q[-1], s0);
    s0 += wrk1[at];
    float ss = fmaf(s0, a[3 * field], -q[0]) * bnd[at];
    next[at] = fmaf(omega, ss, q[0]);
    squared = ss * ss;
  }
  sum[t] = squared;
  __syncthreads();
  for (int h = BLOCK / 2; h > 0; h /= 2) {
    if (t < h)
      sum[t] += sum[t + h];
    __syncthreads();
  }
  if (t == 0)
    residual[blockIdx.x] = sum[0];
}
