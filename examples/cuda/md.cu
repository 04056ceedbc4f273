#ifndef __NVCC__
#include "device.h"
#endif

// The forces of a Lennard-Jones potential (all constants 1) on n atoms in a periodic box, from lists
// of neighbours: atom i has counts[i] of them at lists[i * width]. Positions and forces are four
// floats an atom, of which the last is not used. Block 128, grid ceil(n / 128).
extern "C" __global__ void forces(const float *at, const int *counts, const int *lists, float *force, int n, int width, float box, float cutoff2) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n)
    return;
  float x = at[4 * i], y = at[4 * i + 1], z = at[4 * i + 2], half = 0.5f * box;
  float fx = 0, fy = 0, fz = 0;
  for (int k = 0; k < counts[i]; k++) {
    int j = lists[i * width + k];
    float dx = x - at[4 * j], dy = y - at[4 * j + 1], dz = z - at[4 * j + 2];
    dx = dx > half ? dx - box : dx < -half ? dx + box : dx;
    dy = dy > half ? dy - box : dy < -half ? dy + box : dy;
    dz = dz > half ? dz - box : dz < -half ? dz + box : dz;
    float r2 = fmaf(dz, dz, fmaf(dy, dy, dx * dx));
    if (r2 < cutoff2) {
      float s = 1.0f / r2, s3 = s * s * s, pull = 24.0f * s * s3 * (2.0f * s3 - 1.0f);
      fx = fmaf(pull, dx, fx);
      fy = fmaf(pull, dy, fy);
      fz = fmaf(pull, dz, fz);
    }
  }
  force[4 * i] = fx;
  force[4 * i + 1] = fy;
  force[4 * i + 2] = fz;
  force[4 * i + 3] = 0;
}
