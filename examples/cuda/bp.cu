#ifndef __NVCC__
#include "device.h"
#endif

#define HIDDEN 16

// weights[16 i + j] joins input i with hidden unit j; inputs are a multiple of 16.
// Blocks of (16, 16), one for 16 inputs.

// partial[16 b + j] = sum of input i times its weight over the inputs of block b,
// each product rounded, added up as a tree: i += i + 8, 4, 2, 1.
extern "C" __global__ void forward(const float *input, const float *weights, float *partial) {
  __shared__ float products[HIDDEN][HIDDEN];
  int j = threadIdx.x, k = threadIdx.y, i = blockIdx.x * 16 + k;
  products[k][j] = input[i] * weights[i * HIDDEN + j];
  __syncthreads();
  for (int half = 8; half > 0; half /= 2) {
    if (k < half)
      products[k][j] += products[k + half][j];
    __syncthreads();
  }
  if (k == 0)
    partial[blockIdx.x * HIDDEN + j] = products[0][j];
}

// Moves each weight by its part of the error, and a part of its last step on.
extern "C" __global__ void adjust(const float *input, const float *delta, float *weights, float *steps) {
  int j = threadIdx.x, i = blockIdx.x * 16 + threadIdx.y, at = i * HIDDEN + j;
  float step = fmaf(0.3f * delta[j], input[i], 0.3f * steps[at]);
  weights[at] += step;
  steps[at] = step;
}
