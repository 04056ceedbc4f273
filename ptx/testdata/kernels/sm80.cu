// What needs sm_80: bf16, packed conversions, warp reductions.
#ifndef __NVCC__
#include "device.h"
#endif

// Grid covering n, any 1-D block, unless said otherwise.

// bf16 bits, x = a[i], y = b[i], z = c[i]: out[4 i ..] = fma(x, y, z) rounded
// once to nearest even; min(x, y), max(x, y) (a NaN yields the other); -x.
extern "C" __global__ void bf16_ops(const unsigned short *a, const unsigned short *b, const unsigned short *c, unsigned short *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned short x = a[i], y = b[i], z = c[i], *row = out + 4 * i, r;
  asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(r) : "h"(x), "h"(y), "h"(z)); row[0] = r;
  asm("min.bf16 %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y)); row[1] = r;
  asm("max.bf16 %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y)); row[2] = r;
  asm("neg.bf16 %0, %1;" : "=h"(r) : "h"(x)); row[3] = r;
}

// Pairs, low half first: out[3 i ..] = fma(x, y, z) in each half; the floats
// u[i] (low) and v[i] (high) as a bf16 pair, nearest even; the same as f16 pair.
extern "C" __global__ void bf16_pairs(const unsigned *a, const unsigned *b, const unsigned *c, const float *u, const float *v, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a[i]), "r"(b[i]), "r"(c[i])); out[3 * i] = r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(v[i]), "f"(u[i])); out[3 * i + 1] = r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(v[i]), "f"(u[i])); out[3 * i + 2] = r;
}

// narrow[2 i ..] = f[i] to bf16, nearest even, then to zero; wide[i] = the
// float whose upper half is h[i] (exact).
extern "C" __global__ void bf16_convert(const float *f, const unsigned short *h, unsigned short *narrow, float *wide, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned short r;
  float w;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(f[i])); narrow[2 * i] = r;
  asm("cvt.rz.bf16.f32 %0, %1;" : "=h"(r) : "f"(f[i])); narrow[2 * i + 1] = r;
  asm("mov.b32 %0, {%1, %2};" : "=f"(w) : "h"((unsigned short)0), "h"(h[i])); wide[i] = w;
}

// Whole warps, blocks of a multiple of 32, one thread an element:
// out[6 g ..] = the warp's sum (wraps), min, max (signed), and, or, xor.
extern "C" __global__ void warp_redux(const int *in, int *out) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, v = in[g], *row = out + 6 * g, r;
  asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); row[0] = r;
  asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); row[1] = r;
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); row[2] = r;
  asm volatile("redux.sync.and.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); row[3] = r;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); row[4] = r;
  asm volatile("redux.sync.xor.b32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); row[5] = r;
}

// tanh.approx.f32 and nothing else: out[i] = tanh(in[i]) within 2^-11 relative.
extern "C" __global__ void tanh_approximate(const float *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float r;
  if (i >= n)
    return;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(in[i]));
  out[i] = r;
}
