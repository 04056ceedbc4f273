#ifndef __NVCC__
#include "device.h"
#endif

// A sweep of Jacobi's method over an n x n grid in rows whose border is fixed: each inner cell
// becomes the mean of its neighbours. change gets the largest change of each block. Block (16, 16),
// grid (ceil(n / 16), ceil(n / 16)).
extern "C" __global__ void sweep(const float *now, float *then, float *change, int n) {
  __shared__ float most[256];
  int col = (int)(blockIdx.x * 16 + threadIdx.x), row = (int)(blockIdx.y * 16 + threadIdx.y), t = (int)(threadIdx.y * 16 + threadIdx.x);
  float by = 0;
  if (row < n && col < n) {
    long long at = (long long)row * n + col;
    float old = now[at], next = old;
    if (row > 0 && row < n - 1 && col > 0 && col < n - 1)
      next = 0.25f * ((now[at - n] + now[at + n]) + (now[at - 1] + now[at + 1]));
    then[at] = next;
    by = next > old ? next - old : old - next;
  }
  most[t] = by;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half && most[t + half] > most[t])
      most[t] = most[t + half];
    __syncthreads();
  }
  if (t == 0)
    change[blockIdx.y * gridDim.x + blockIdx.x] = most[0];
}
