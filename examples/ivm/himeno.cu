#ifndef __NVCC__
#include "device.h"
#endif

struct coefficients {
  float a[4], b[3], c[3], omega;
};

// One step of the Himeno benchmark: Poisson's equation in general coordinates by Jacobi's method, with its stencil of 19
// points. The coefficients, which the benchmark keeps in arrays, are the same everywhere. P has planes of rows x columns; the
// first and last plane, row and column are read alone, and others computed into q. Grid covering columns x rows x planes.
// With nvcc: -fmad=false, as the CPU computes the same.
extern "C" __global__ void jacobi(const float *p, float *q, int columns, int rows, int planes, coefficients k) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z + 1;
  if (x < 1 || y < 1 || x >= columns - 1 || y >= rows - 1 || z >= planes - 1)
    return;
  int row = columns, plane = columns * rows;
  const float *at = p + (long long)z * plane + y * row + x;
  float s = k.a[0] * at[plane] + k.a[1] * at[row] + k.a[2] * at[1];
  s = s + k.b[0] * (at[plane + row] - at[plane - row] - at[-plane + row] + at[-plane - row]);
  s = s + k.b[1] * (at[row + 1] - at[-row + 1] - at[row - 1] + at[-row - 1]);
  s = s + k.b[2] * (at[plane + 1] - at[-plane + 1] - at[plane - 1] + at[-plane - 1]);
  s = s + k.c[0] * at[-plane] + k.c[1] * at[-row] + k.c[2] * at[-1];
  q[at - p] = at[0] + k.omega * (s * k.a[3] - at[0]);
}
