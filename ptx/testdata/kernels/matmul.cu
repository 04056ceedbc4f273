// Matrix product C = A B, row-major floats.
#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// A is m x k, B is k x n, C is m x n, any sizes.
// Block (16, 16), grid (ceil(n / 16), ceil(m / 16)).
// Each element is acc = fma(a, b, acc) from acc = 0 with the index over k
// rising, followed by fma(0, 0, acc) up to the next multiple of 16: exactly
// the plain triple loop with fma.
extern "C" __global__ void matmul_tiled(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float as[TILE][TILE];
  __shared__ float bs[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  float acc = 0;
  for (int base = 0; base < k; base += TILE) {
    as[ty][tx] = row < m && base + tx < k ? a[row * k + base + tx] : 0;
    bs[ty][tx] = base + ty < k && col < n ? b[(base + ty) * n + col] : 0;
    __syncthreads();
    for (int i = 0; i < TILE; i++)
      acc = fmaf(as[ty][i], bs[i][tx], acc);
    __syncthreads();
  }
  if (row < m && col < n)
    c[row * n + col] = acc;
}

// The same product and parameters without shared memory; any 2-D block, grid
// covering n columns (x) and m rows (y). Bit for bit equal to matmul_tiled for
// finite inputs (but for the sign of a zero).
extern "C" __global__ void matmul_naive(const float *a, const float *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n)
    return;
  float acc = 0;
  for (int i = 0; i < k; i++)
    acc = fmaf(a[row * k + i], b[i * n + col], acc);
  c[row * n + col] = acc;
}
