// Heat on a chip: a five-point stencil with shared tiles and borders.
#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// One time step of one cell; the order of operations is part of the contract.
static __device__ float advance(float c, float north, float south, float west, float east, float power, float k, float rx, float ry, float rz, float ambient) {
  float sum = power;
  sum = fmaf(north + south - 2.0f * c, ry, sum);
  sum = fmaf(east + west - 2.0f * c, rx, sum);
  sum = fmaf(ambient - c, rz, sum);
  return fmaf(k, sum, c);
}

// One step over a rows x cols row-major grid. Neighbours outside are the cell
// itself. out = advance(...) as above ("north" is row - 1, "west" col - 1).
// Block (16, 16), grid (ceil(cols / 16), ceil(rows / 16)).
extern "C" __global__ void hotspot_step(const float *temp, const float *power, float *out, int rows, int cols, float k, float rx, float ry, float rz, float ambient) {
  __shared__ float tile[TILE + 2][TILE + 2];
  int tx = threadIdx.x, ty = threadIdx.y;
  int col = blockIdx.x * TILE + tx, row = blockIdx.y * TILE + ty;
  int r = min(row, rows - 1), c = min(col, cols - 1);
  tile[ty + 1][tx + 1] = temp[r * cols + c];
  if (ty == 0)
    tile[0][tx + 1] = temp[max(row - 1, 0) * cols + c];
  if (ty == TILE - 1)
    tile[TILE + 1][tx + 1] = temp[min(row + 1, rows - 1) * cols + c];
  if (tx == 0)
    tile[ty + 1][0] = temp[r * cols + max(col - 1, 0)];
  if (tx == TILE - 1)
    tile[ty + 1][TILE + 1] = temp[r * cols + min(col + 1, cols - 1)];
  __syncthreads();
  if (row < rows && col < cols)
    out[row * cols + col] = advance(tile[ty + 1][tx + 1], tile[ty][tx + 1], tile[ty + 2][tx + 1], tile[ty + 1][tx], tile[ty + 1][tx + 2], power[row * cols + col], k, rx, ry, rz, ambient);
}

// steps time steps (1 to 7) in one launch: each block computes a tile that
// shrinks by one cell a side each step. Equal, bit for bit, to steps launches
// of hotspot_step. Block (16, 16), grid (ceil(cols / w), ceil(rows / w)) with
// w = 16 - 2 * steps.
extern "C" __global__ void hotspot_pyramid(const float *temp, const float *power, float *out, int rows, int cols, int steps, float k, float rx, float ry, float rz, float ambient) {
  __shared__ float now[TILE][TILE];
  __shared__ float then[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y, width = TILE - 2 * steps;
  int col = (int)blockIdx.x * width - steps + tx, row = (int)blockIdx.y * width - steps + ty;
  bool inside = row >= 0 && row < rows && col >= 0 && col < cols;
  float p = 0;
  if (inside) {
    now[ty][tx] = temp[row * cols + col];
    p = power[row * cols + col];
  }
  int north = row > 0 ? ty - 1 : ty, south = row < rows - 1 ? ty + 1 : ty;
  int west = col > 0 ? tx - 1 : tx, east = col < cols - 1 ? tx + 1 : tx;
  for (int s = 1; s <= steps; s++) {
    bool mine = inside && tx >= s && tx < TILE - s && ty >= s && ty < TILE - s;
    __syncthreads();
    if (mine)
      then[ty][tx] = advance(now[ty][tx], now[north][tx], now[south][tx], now[ty][west], now[ty][east], p, k, rx, ry, rz, ambient);
    __syncthreads();
    if (mine)
      now[ty][tx] = then[ty][tx];
  }
  if (inside && tx >= steps && tx < TILE - steps && ty >= steps && ty < TILE - steps)
    out[row * cols + col] = now[ty][tx];
}
