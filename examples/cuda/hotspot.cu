#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// steps time steps (1 to 7) over an n x n grid in rows, with neighbours outside
// as warm as the cell itself:
//   t += k ((north + south - 2 t) r + (east + west - 2 t) r + (80 - t) z + power)
// A block loads a tile and computes a part of it that shrinks by one cell a side
// each step. Block (16, 16), grid (ceil(n / w), ceil(n / w)), w = 16 - 2 steps.
extern "C" __global__ void hotspot(const float *temperature, const float *power, float *out, int n, int steps, float k, float r, float z) {
  __shared__ float heat[2][TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y, width = TILE - 2 * steps;
  int col = (int)blockIdx.x * width - steps + tx, row = (int)blockIdx.y * width - steps + ty;
  bool inside = row >= 0 && row < n && col >= 0 && col < n;
  long long at = (long long)row * n + col;
  float t = 0, p = 0;
  if (inside) {
    t = temperature[at];
    p = power[at];
  }
  int north = row > 0 ? ty - 1 : ty, south = row < n - 1 ? ty + 1 : ty;
  int west = col > 0 ? tx - 1 : tx, east = col < n - 1 ? tx + 1 : tx;
  for (int s = 0; s < steps; s++) {
    float (*now)[TILE] = heat[s % 2];
    now[ty][tx] = t;
    __syncthreads();
    if (inside && tx > s && tx < TILE - 1 - s && ty > s && ty < TILE - 1 - s) {
      float sum = p;
      sum = fmaf(now[north][tx] + now[south][tx] - 2.0f * t, r, sum);
      sum = fmaf(now[ty][east] + now[ty][west] - 2.0f * t, r, sum);
      sum = fmaf(80.0f - t, z, sum);
      t = fmaf(k, sum, t);
    }
  }
  if (inside && tx >= steps && tx < TILE - steps && ty >= steps && ty < TILE - steps)
    out[at] = t;
}
