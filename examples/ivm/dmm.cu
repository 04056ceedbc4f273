#ifndef __NVCC__
#include "device.h"
#endif

// One tile of a product: rows of a, and columns of b, which is kept by columns; both have n values each.
// The tile is in rows. Grid covering columns x rows, any block.
extern "C" __global__ void tile(const float *a, const float *b, float *c, int n, int rows, int columns) {
  int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= rows || column >= columns)
    return;
  const float *left = a + (long long)row * n, *right = b + (long long)column * n;
  float sum = 0;
  for (int k = 0; k < n; k++)
    sum = fmaf(left[k], right[k], sum);
  c[(long long)row * columns + column] = sum;
}
