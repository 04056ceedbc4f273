// Vector addition, scalar and by four, and a grid-stride saxpy.
#ifndef __NVCC__
#include "device.h"
#endif

// c[i] = a[i] + b[i] for i < n. Float arrays of n.
// Grid (ceil(n / blockDim)), any one-dimensional block.
extern "C" __global__ void vecadd(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    c[i] = a[i] + b[i];
}

// The same on n4 groups of four floats, 16-byte aligned; one thread a group.
extern "C" __global__ void vecadd4(const float4 *a, const float4 *b, float4 *c, int n4) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n4)
    return;
  float4 u = a[i], v = b[i];
  c[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w);
}

// y[i] = fma(alpha, x[i], y[i]) for i < n, one rounding.
// Any one-dimensional grid and block: each thread strides by the whole grid.
extern "C" __global__ void saxpy(int n, float alpha, const float *x, float *y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    y[i] = fmaf(alpha, x[i], y[i]);
}
