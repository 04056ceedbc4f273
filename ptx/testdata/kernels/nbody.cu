// Gravitational n-body, all pairs.
#ifndef __NVCC__
#include "device.h"
#endif

#define BLOCK 128

// bodies[j] = (x, y, z, mass). accel[3 i ..] = sum over all j, in order, of
//   d = p_j - p_i; q = fma(dx,dx, fma(dy,dy, fma(dz,dz, softening)));
//   u = rsqrt(q) (approximate); s = mass_j * (u * u * u); a = fma(d, s, a).
// n a multiple of 128. Block 128, grid n / 128. softening > 0.
extern "C" __global__ void nbody_accelerate(const float4 *bodies, float *accel, int n, float softening) {
  __shared__ float4 tile[BLOCK];
  int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
  float4 me = bodies[i];
  float ax = 0, ay = 0, az = 0;
  for (int base = 0; base < n; base += BLOCK) {
    tile[t] = bodies[base + t];
    __syncthreads();
    for (int j = 0; j < BLOCK; j++) {
      float4 other = tile[j];
      float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
      float u = rsqrtf(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, softening))));
      float s = other.w * (u * u * u);
      ax = fmaf(dx, s, ax);
      ay = fmaf(dy, s, ay);
      az = fmaf(dz, s, az);
    }
    __syncthreads();
  }
  accel[3 * i] = ax;
  accel[3 * i + 1] = ay;
  accel[3 * i + 2] = az;
}

// v = fma(dt, a, v); p = fma(dt, v, p), for each of x, y, z; mass stays.
// velocity and accel are three floats a body. Grid covering n, any 1-D block.
extern "C" __global__ void nbody_move(float4 *bodies, float *velocity, const float *accel, int n, float dt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float4 p = bodies[i];
  float vx = fmaf(dt, accel[3 * i], velocity[3 * i]);
  float vy = fmaf(dt, accel[3 * i + 1], velocity[3 * i + 1]);
  float vz = fmaf(dt, accel[3 * i + 2], velocity[3 * i + 2]);
  bodies[i] = make_float4(fmaf(dt, vx, p.x), fmaf(dt, vy, p.y), fmaf(dt, vz, p.z), p.w);
  velocity[3 * i] = vx;
  velocity[3 * i + 1] = vy;
  velocity[3 * i + 2] = vz;
}
