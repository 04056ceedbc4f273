#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// C += A B for n x n matrices in rows, n a multiple of 16.
// Block (16, 16), grid (n / 16, n / 16).
extern "C" __global__ void multiply_add(const float *a, const float *b, float *c, int n) {
  __shared__ float as[TILE][TILE];
  __shared__ float bs[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  long long row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  float sum = c[row * n + col];
  for (int base = 0; base < n; base += TILE) {
    as[ty][tx] = a[row * n + base + tx];
    bs[ty][tx] = b[(long long)(base + ty) * n + col];
    __syncthreads();
    for (int i = 0; i < TILE; i++)
      sum = fmaf(as[ty][i], bs[i][tx], sum);
    __syncthreads();
  }
  c[row * n + col] = sum;
}
