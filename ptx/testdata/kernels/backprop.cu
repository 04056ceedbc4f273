// Back propagation for one fully connected layer with sigmoids.
#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// weights is inputs x hidden, row-major: weights[i * hidden + j] joins input i
// to unit j. inputs and hidden are multiples of 16.

// partial[k * hidden + j] = sum over the 16 inputs i of tile k of
// weights[i][j] * in[i], each product rounded, summed as a tree:
// p[y] += p[y + h] for y < h, h = 8, 4, 2, 1.
// Block (16, 16), grid (hidden / 16, inputs / 16).
extern "C" __global__ void layer_partial(const float *in, const float *weights, float *partial, int hidden) {
  __shared__ float inputs[TILE];
  __shared__ float products[TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int j = blockIdx.x * TILE + tx, i = blockIdx.y * TILE + ty;
  if (tx == 0)
    inputs[ty] = in[i];
  __syncthreads();
  products[ty][tx] = weights[i * hidden + j] * inputs[ty];
  __syncthreads();
  for (int h = TILE / 2; h > 0; h /= 2) {
    if (ty < h)
      products[ty][tx] += products[ty + h][tx];
    __syncthreads();
  }
  if (ty == 0)
    partial[blockIdx.y * hidden + j] = products[0][tx];
}

// out[j] = 1 / (1 + exp(-x)), x = bias[j] + partial[0][j] + partial[1][j] + ...
// over tiles rows, exp approximate. Grid covering hidden, any 1-D block.
extern "C" __global__ void layer_squash(const float *partial, const float *bias, float *out, int hidden, int tiles) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= hidden)
    return;
  float x = bias[j];
  for (int k = 0; k < tiles; k++)
    x += partial[k * hidden + j];
  out[j] = 1.0f / (1.0f + __expf(-x));
}

// delta[j] = out[j] (1 - out[j]) (target[j] - out[j]), products from the left;
// *error += |delta[j]| over all j, atomically, in any order.
// Grid covering hidden, any 1-D block.
extern "C" __global__ void layer_delta(const float *out, const float *target, float *delta, float *error, int hidden) {
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j >= hidden)
    return;
  float o = out[j];
  float d = o * (1.0f - o) * (target[j] - o);
  delta[j] = d;
  atomicAdd(error, fabsf(d));
}

// step = fma(rate * delta[j], in[i], momentum * last[i][j]);
// weights[i][j] += step; last[i][j] = step.
// Block (16, 16), grid (hidden / 16, inputs / 16).
extern "C" __global__ void adjust_weights(float *weights, float *last, const float *in, const float *delta, int hidden, float rate, float momentum) {
  int j = blockIdx.x * TILE + threadIdx.x, i = blockIdx.y * TILE + threadIdx.y;
  int at = i * hidden + j;
  float step = fmaf(rate * delta[j], in[i], momentum * last[at]);
  weights[at] += step;
  last[at] = step;
}
