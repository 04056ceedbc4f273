#ifndef __NVCC__
#include "device.h"
#endif

// One time step of bodies from to before to: all attract each other. Position is x, y, z and mass.
// Moved and velocity begin with body from. Grid covering to - from, any 1-D block.
extern "C" __global__ void step(const float4 *position, float4 *moved, float4 *velocity, int bodies, int from, int to, float time) {
  int i = from + blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= to)
    return;
  float4 own = position[i], v = velocity[i - from];
  float ax = 0, ay = 0, az = 0;
  for (int j = 0; j < bodies; j++) {
    float4 other = position[j];
    float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
    float square = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f))); // softened
    float pull = other.w / (square * sqrtf(square));
    ax = fmaf(dx, pull, ax);
    ay = fmaf(dy, pull, ay);
    az = fmaf(dz, pull, az);
  }
  v.x = fmaf(ax, time, v.x);
  v.y = fmaf(ay, time, v.y);
  v.z = fmaf(az, time, v.z);
  own.x = fmaf(v.x, time, own.x);
  own.y = fmaf(v.y, time, own.y);
  own.z = fmaf(v.z, time, own.z);
  velocity[i - from] = v;
  moved[i - from] = own;
}
