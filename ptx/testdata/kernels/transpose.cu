// Matrix transposition.
#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 32
#define ROWS 8

// out (cols x rows) = transpose of in (rows x cols), row-major floats, any
// sizes. Block (32, 8), grid (ceil(cols / 32), ceil(rows / 32)). Tiles pass
// through shared memory whose rows are padded by one to avoid bank conflicts.
extern "C" __global__ void transpose_tiled(const float *in, float *out, int rows, int cols) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (x < cols && y + j < rows)
      tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += ROWS)
    if (x < rows && y + j < cols)
      out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

// The same on doubles, one thread an element; any 2-D block and covering grid.
extern "C" __global__ void transpose_naive(const double *in, double *out, int rows, int cols) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < cols && y < rows)
    out[(long long)x * rows + y] = in[(long long)y * cols + x];
}
