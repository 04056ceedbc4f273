// State spaces and access widths: local, constant, shared, bytes, vectors, grids.
#ifndef __NVCC__
#include "device.h"
#endif

// A walk in a local array: path[k] =
// (k * 7 + i) % 32 for k < 32; from position start[i] & 31 follow
// p = path[p], four times; out[i] = p + 100 * (path[0] + path[31]).
// Grid covering n, any 1-D block.
extern "C" __global__ void local_walk(const int *start, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  int path[32];
  for (int k = 0; k < 32; k++)
    path[k] = (k * 7 + i) % 32;
  int p = start[i] & 31;
  for (int k = 0; k < 4; k++)
    p = path[p];
  out[i] = p + 100 * (path[0] + path[31]);
}

__constant__ int squares[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};
__constant__ float coefficients[4]; // zero until the host writes them
__device__ short offsets[4] = {-3, 5, -7, 11};
__device__ unsigned launches;

// out[i] = squares[in[i] & 15] + offsets[i & 3]. Thread 0 of the grid adds 1
// to the device variable launches. Grid covering n, any 1-D block.
extern "C" __global__ void constant_lookup(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = squares[in[i] & 15] + offsets[i & 3];
  if (i == 0)
    launches = launches + 1;
}

// Horner with the constant coefficients c: out[i] = fma(fma(fma(c3, x, c2),
// x, c1), x, c0). Grid covering n, any 1-D block.
extern "C" __global__ void constant_polynomial(const float *x, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = fmaf(fmaf(fmaf(coefficients[3], x[i], coefficients[2]), x[i], coefficients[1]), x[i], coefficients[0]);
}

// Bytes and halves: out8[i] = in8[i] + 1 (mod 256); out16[i] = sign-extended
// in8[i] times 3, as 16 bits; out32[i] = in16[i] (signed) >> 1, plus
// in8[i] < 128 ? 1 : 0. Grid covering n, any 1-D block.
extern "C" __global__ void narrow_types(const unsigned char *in8, const short *in16, unsigned char *out8, short *out16, int *out32, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  out8[i] = in8[i] + 1;
  out16[i] = (signed char)in8[i] * 3;
  out32[i] = (in16[i] >> 1) + (in8[i] < 128 ? 1 : 0);
}

// A dense switch: out[i] by op[i]: 0 a+b, 1 a-b, 2 a*b, 3 a&b, 4 a|b, 5 a^b,
// 6 a<<(b&31), 7 a>>(b&31) (unsigned), 8 min, 9 max (unsigned), else ~a.
// Unsigned, modulo 2^32. Grid covering n, any 1-D block.
extern "C" __global__ void switch_dense(const unsigned *op, const unsigned *a, const unsigned *b, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned x = a[i], y = b[i], r;
  switch (op[i]) {
  case 0: r = x + y; break;
  case 1: r = x - y; break;
  case 2: r = x * y; break;
  case 3: r = x & y; break;
  case 4: r = x | y; break;
  case 5: r = x ^ y; break;
  case 6: r = x << (y & 31); break;
  case 7: r = x >> (y & 31); break;
  case 8: r = min(x, y); break;
  case 9: r = max(x, y); break;
  default: r = ~x;
  }
  out[i] = r;
}

// A switch with side effects, hard to turn into selects: walks program[i],
// eight 4-bit operations from the low end, over one stack cell v = 1:
// 0 v += 1; 1 v *= 3; 2 v -= 7; 3 v ^= i; 4 v = -v; 5 out[i] += v (out starts
// as the host left it); 6 stop; 7 v <<= 2; others nothing. Then out[i] ^= v.
// Signed 32 bits, wrapping. Grid covering n, any 1-D block.
extern "C" __global__ void switch_machine(const unsigned *program, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned v = 1, p = program[i];
  for (int k = 0; k < 8; k++, p >>= 4) {
    switch (p & 15) {
    case 0: v += 1; continue;
    case 1: v *= 3; continue;
    case 2: v -= 7; continue;
    case 3: v ^= i; continue;
    case 4: v = -v; continue;
    case 5: out[i] += v; continue;
    case 6: break;
    case 7: v <<= 2; continue;
    default: continue;
    }
    break;
  }
  out[i] ^= v;
}

// Dynamic shared memory: reverses each block's run in place,
// data[b * blockDim + t] <-> data[b * blockDim + blockDim - 1 - t].
// 4 * blockDim bytes of dynamic shared memory, any 1-D launch.
extern "C" __global__ void dynamic_reverse(int *data) {
  extern __shared__ int run[];
  int t = threadIdx.x, base = blockIdx.x * blockDim.x;
  run[t] = data[base + t];
  __syncthreads();
  data[base + t] = run[blockDim.x - 1 - t];
}

// 3-D grids and blocks: every thread writes, at its rank r (block rank *
// threads a block + thread rank, x fastest), out[8 r ..] = thread x, y, z,
// block x, y, z, block volume, grid volume.
extern "C" __global__ void grid_3d(int *out) {
  int threads = blockDim.x * blockDim.y * blockDim.z, blocks = gridDim.x * gridDim.y * gridDim.z;
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int *row = out + 8 * (block * threads + thread);
  row[0] = threadIdx.x;
  row[1] = threadIdx.y;
  row[2] = threadIdx.z;
  row[3] = blockIdx.x;
  row[4] = blockIdx.y;
  row[5] = blockIdx.z;
  row[6] = threads;
  row[7] = blocks;
}

// A struct by value as a parameter, with padding: offsets 0, 4, 8, 16 (three
// floats), 28 (two shorts); 32 bytes in all.
struct Job {
  char kind;
  int count;
  double scale;
  float3 shift;
  short tail[2];
};

// out[i] = scale * i + shift.x + shift.y + shift.z + kind + tail[i & 1], in
// doubles from the left, each rounded, for i < job.count. Any 1-D grid-stride.
extern "C" __global__ void struct_parameter(Job job, double *out) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < job.count; i += gridDim.x * blockDim.x)
    out[i] = job.scale * i + job.shift.x + job.shift.y + job.shift.z + job.kind + job.tail[i & 1];
}

// One generic pointer to three spaces: out[i] = the value at i % 3 == 0 a
// global cell in[i], 1 a shared cell (in[i] + 1000 of this thread), 2 a local
// cell (in[i] + 2000); then each cell is incremented through the pointer, so
// in[i] grows by 1 where i % 3 == 0. Block <= 256, grid covering n.
extern "C" __global__ void generic_pointer(int *in, int *out, int n) {
  __shared__ int cells[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i >= n)
    return;
  volatile int mine[2] = {in[i] + 2000, 0};
  cells[t] = in[i] + 1000;
  volatile int *p = i % 3 == 0 ? in + i : i % 3 == 1 ? cells + t : mine;
  out[i] = *p;
  *p = *p + 1;
}

// Barrier with reduction, block-wide over flag = in[g] > 0:
// out[3 b] = how many, [1] = all (0 or 1), [2] = any (0 or 1).
// Block a multiple of 32, n = grid * block elements.
extern "C" __global__ void barrier_reduce(const int *in, int *out) {
  int flag = in[blockIdx.x * blockDim.x + threadIdx.x] > 0;
  int count = __syncthreads_count(flag), all = __syncthreads_and(flag), any = __syncthreads_or(flag);
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = count;
    out[3 * blockIdx.x + 1] = all != 0;
    out[3 * blockIdx.x + 2] = any != 0;
  }
}
