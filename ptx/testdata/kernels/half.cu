// Half precision (f16), by inline PTX on 16-bit registers.
#ifndef __NVCC__
#include "device.h"
#endif

// Grid covering n, any 1-D block.

#define H2(op) asm(op " %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y))

// f16 bits in and out, x = a[i], y = b[i], z = c[i]. out[8 i ..] = x + y,
// x - y, x * y, fma(x, y, z) (each one rounding to nearest even), x + y
// saturated to 0 .. 1, -x, |x|, and x < y ? 1.0 : 0.0.
extern "C" __global__ void half_ops(const unsigned short *a, const unsigned short *b, const unsigned short *c, unsigned short *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned short x = a[i], y = b[i], z = c[i], *row = out + 8 * i, r;
  H2("add.rn.f16"); row[0] = r;
  H2("sub.rn.f16"); row[1] = r;
  H2("mul.rn.f16"); row[2] = r;
  asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(r) : "h"(x), "h"(y), "h"(z)); row[3] = r;
  H2("add.rn.sat.f16"); row[4] = r;
  asm("neg.f16 %0, %1;" : "=h"(r) : "h"(x)); row[5] = r;
  asm("abs.f16 %0, %1;" : "=h"(r) : "h"(x)); row[6] = r;
  asm("{ .reg .pred p; setp.lt.f16 p, %1, %2; selp.b16 %0, 0x3c00, 0, p; }" : "=h"(r) : "h"(x), "h"(y)); row[7] = r;
}

// Pairs (f16x2: low half first): out[4 i ..] = x + y, x * y, fma(x, y, z) and
// x - y in each half.
extern "C" __global__ void half_pairs(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned x = a[i], y = b[i], z = c[i], *row = out + 4 * i, r;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); row[0] = r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); row[1] = r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); row[2] = r;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); row[3] = r;
}

// Conversions: narrow[4 i ..] = x to f16 by rn, rz, and d to f16 by rn, and
// s32 k to f16 by rn; wide[i] = h to f32 (exact); ints[i] = h to s32, nearest
// even, saturating, NaN 0. x = f32[i], d = f64[i], k = s32[i], h = f16[i].
extern "C" __global__ void half_convert(const float *f32, const double *f64, const int *s32, const unsigned short *f16, unsigned short *narrow, float *wide, int *ints, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned short r;
  float w;
  int k;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(f32[i])); narrow[4 * i] = r;
  asm("cvt.rz.f16.f32 %0, %1;" : "=h"(r) : "f"(f32[i])); narrow[4 * i + 1] = r;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r) : "d"(f64[i])); narrow[4 * i + 2] = r;
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(r) : "r"(s32[i])); narrow[4 * i + 3] = r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(w) : "h"(f16[i])); wide[i] = w;
  asm("cvt.rni.s32.f16 %0, %1;" : "=r"(k) : "h"(f16[i])); ints[i] = k;
}
