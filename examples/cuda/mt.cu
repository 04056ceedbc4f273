#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// out = the transpose of in, n x n in rows, plus 1 in every element.
// Block (16, 16), grid (ceil(n / 16), ceil(n / 16)). A column of padding keeps
// threads of a warp on different banks of shared memory.
extern "C" __global__ void transpose(const unsigned *in, unsigned *out, int n) {
  __shared__ unsigned tile[TILE][TILE + 1];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  if (row < n && col < n)
    tile[ty][tx] = in[(long long)row * n + col];
  __syncthreads();
  row = blockIdx.x * TILE + ty;
  col = blockIdx.y * TILE + tx;
  if (row < n && col < n)
    out[(long long)row * n + col] = tile[tx][ty] + 1;
}
