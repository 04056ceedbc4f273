// The kernels of ptx/testdata/kernels that are measured, in OpenCL: the same
// parameters, geometry, work and order of operations as the CUDA ones.
#pragma OPENCL FP_CONTRACT OFF

__kernel void vecadd(__global const float *a, __global const float *b, __global float *c, int n) {
  int i = get_global_id(0);
  if (i < n)
    c[i] = a[i] + b[i];
}

#define TILE 16

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
matmul_tiled(__global const float *a, __global const float *b, __global float *c, int m, int n, int k) {
  __local float as[TILE][TILE];
  __local float bs[TILE][TILE];
  int tx = get_local_id(0), ty = get_local_id(1);
  int row = get_group_id(1) * TILE + ty, col = get_group_id(0) * TILE + tx;
  float acc = 0;
  for (int base = 0; base < k; base += TILE) {
    as[ty][tx] = row < m && base + tx < k ? a[row * k + base + tx] : 0;
    bs[ty][tx] = base + ty < k && col < n ? b[(base + ty) * n + col] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < TILE; i++)
      acc = fma(as[ty][i], bs[i][tx], acc);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (row < m && col < n)
    c[row * n + col] = acc;
}

#define BODIES 128

__kernel __attribute__((reqd_work_group_size(BODIES, 1, 1))) void
nbody_accelerate(__global const float4 *bodies, __global float *accel, int n, float softening) {
  __local float4 tile[BODIES];
  int t = get_local_id(0), i = get_group_id(0) * BODIES + t;
  float4 me = bodies[i];
  float ax = 0, ay = 0, az = 0;
  for (int base = 0; base < n; base += BODIES) {
    tile[t] = bodies[base + t];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < BODIES; j++) {
      float4 other = tile[j];
      float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
      float u = native_rsqrt(fma(dx, dx, fma(dy, dy, fma(dz, dz, softening))));
      float s = other.w * (u * u * u);
      ax = fma(dx, s, ax);
      ay = fma(dy, s, ay);
      az = fma(dz, s, az);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  accel[3 * i] = ax;
  accel[3 * i + 1] = ay;
  accel[3 * i + 2] = az;
}

__kernel __attribute__((reqd_work_group_size(TILE, 1, 1))) void
needleman_diagonal(__global int *score, __global const int *similarity, int width, int penalty, int diagonal, int first) {
  __local int cells[TILE + 1][TILE + 1];
  __local int gain[TILE][TILE];
  int t = get_local_id(0);
  int tileRow = first + get_group_id(0), tileCol = diagonal - tileRow;
  int corner = tileRow * TILE * width + tileCol * TILE;
  for (int i = 0; i < TILE; i++)
    gain[i][t] = similarity[corner + (i + 1) * width + t + 1];
  if (t == 0)
    cells[0][0] = score[corner];
  cells[0][t + 1] = score[corner + t + 1];
  cells[t + 1][0] = score[corner + (t + 1) * width];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int d = 0; d < 2 * TILE - 1; d++) {
    int i = d - t;
    if (i >= 0 && i < TILE) {
      int across = cells[i][t] + gain[i][t];
      int gap = max(cells[i + 1][t], cells[i][t + 1]) - penalty;
      cells[i + 1][t + 1] = max(across, gap);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < TILE; i++)
    score[corner + (i + 1) * width + t + 1] = cells[i + 1][t + 1];
}

#define BLOCK 256

__kernel __attribute__((reqd_work_group_size(BLOCK, 1, 1))) void
reduce_shared(__global const float *in, __global float *out, int n) {
  __local float s[BLOCK];
  int t = get_local_id(0), i = get_group_id(0) * BLOCK + t;
  s[t] = i < n ? in[i] : 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int h = BLOCK / 2; h > 0; h /= 2) {
    if (t < h)
      s[t] += s[t + h];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (t == 0)
    out[get_group_id(0)] = s[0];
}
