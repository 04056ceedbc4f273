// Rounding modes, conversions and float oddities, by inline PTX.
#ifndef __NVCC__
#include "device.h"
#endif

// Grid covering n, any 1-D block; one row of results an element, x = a[i],
// y = b[i], z = c[i].

#define F2(op, a, b) asm(op " %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b))
#define F3(op, a, b, c) asm(op " %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c))
#define F1(op, a) asm(op " %0, %1;" : "=f"(r) : "f"(a))

// out[16 i ..]: add rn, rz, rm, rp of x + y; mul rn, rz, rm, rp of x * y;
// fma rn, rz, rm, rp of x, y, z; div rz, rp of x / y; sqrt rz, rm of |x|.
extern "C" __global__ void rounding_f32(const float *a, const float *b, const float *c, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float x = a[i], y = b[i], z = c[i], *row = out + 16 * i, r;
  F2("add.rn.f32", x, y); row[0] = r;
  F2("add.rz.f32", x, y); row[1] = r;
  F2("add.rm.f32", x, y); row[2] = r;
  F2("add.rp.f32", x, y); row[3] = r;
  F2("mul.rn.f32", x, y); row[4] = r;
  F2("mul.rz.f32", x, y); row[5] = r;
  F2("mul.rm.f32", x, y); row[6] = r;
  F2("mul.rp.f32", x, y); row[7] = r;
  F3("fma.rn.f32", x, y, z); row[8] = r;
  F3("fma.rz.f32", x, y, z); row[9] = r;
  F3("fma.rm.f32", x, y, z); row[10] = r;
  F3("fma.rp.f32", x, y, z); row[11] = r;
  F2("div.rz.f32", x, y); row[12] = r;
  F2("div.rp.f32", x, y); row[13] = r;
  F1("sqrt.rz.f32", fabsf(x)); row[14] = r;
  F1("sqrt.rm.f32", fabsf(x)); row[15] = r;
}

#define D2(op, a, b) asm(op " %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b))

// out[10 i ..]: add rz, rm, rp of x + y; mul rz, rm, rp of x * y; fma rz, rm,
// rp of x, y, z; rcp.rn of x.
extern "C" __global__ void rounding_f64(const double *a, const double *b, const double *c, double *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  double x = a[i], y = b[i], z = c[i], *row = out + 10 * i, r;
  D2("add.rz.f64", x, y); row[0] = r;
  D2("add.rm.f64", x, y); row[1] = r;
  D2("add.rp.f64", x, y); row[2] = r;
  D2("mul.rz.f64", x, y); row[3] = r;
  D2("mul.rm.f64", x, y); row[4] = r;
  D2("mul.rp.f64", x, y); row[5] = r;
  asm("fma.rz.f64 %0, %1, %2, %3;" : "=d"(r) : "d"(x), "d"(y), "d"(z)); row[6] = r;
  asm("fma.rm.f64 %0, %1, %2, %3;" : "=d"(r) : "d"(x), "d"(y), "d"(z)); row[7] = r;
  asm("fma.rp.f64 %0, %1, %2, %3;" : "=d"(r) : "d"(x), "d"(y), "d"(z)); row[8] = r;
  asm("rcp.rn.f64 %0, %1;" : "=d"(r) : "d"(x)); row[9] = r;
}

#define CVT_I(op, a) asm(op " %0, %1;" : "=r"(k) : "f"(a))

// floats[4 i ..] = x rounded to an integer, kept as float: nearest even, to
// zero, down, up. ints[8 i ..] = x to s32 nearest even, to zero, down, up;
// x to u32 to zero (negatives give 0); x to u8 nearest even, saturating at
// 0 and 255; then the low and high words of x to s64 to zero. All saturate; NaN
// gives 0, but -2^63 in s64. back[4 i ..] = k32[i] to float rn, rz, rm, rp.
extern "C" __global__ void rounding_convert(const float *a, const int *k32, float *floats, int *ints, float *back, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float x = a[i], r;
  int k;
  long long w;
  F1("cvt.rni.f32.f32", x); floats[4 * i] = r;
  F1("cvt.rzi.f32.f32", x); floats[4 * i + 1] = r;
  F1("cvt.rmi.f32.f32", x); floats[4 * i + 2] = r;
  F1("cvt.rpi.f32.f32", x); floats[4 * i + 3] = r;
  CVT_I("cvt.rni.s32.f32", x); ints[8 * i] = k;
  CVT_I("cvt.rzi.s32.f32", x); ints[8 * i + 1] = k;
  CVT_I("cvt.rmi.s32.f32", x); ints[8 * i + 2] = k;
  CVT_I("cvt.rpi.s32.f32", x); ints[8 * i + 3] = k;
  CVT_I("cvt.rzi.u32.f32", x); ints[8 * i + 4] = k;
  CVT_I("cvt.rni.u8.f32", x); ints[8 * i + 5] = k;
  asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(w) : "f"(x));
  ints[8 * i + 6] = (int)w;
  ints[8 * i + 7] = (int)(w >> 32);
  asm("cvt.rn.f32.s32 %0, %1;" : "=f"(r) : "r"(k32[i])); back[4 * i] = r;
  asm("cvt.rz.f32.s32 %0, %1;" : "=f"(r) : "r"(k32[i])); back[4 * i + 1] = r;
  asm("cvt.rm.f32.s32 %0, %1;" : "=f"(r) : "r"(k32[i])); back[4 * i + 2] = r;
  asm("cvt.rp.f32.s32 %0, %1;" : "=f"(r) : "r"(k32[i])); back[4 * i + 3] = r;
}

// Flush to zero and saturation: out[8 i ..] = add.ftz x + y; mul.ftz x * y;
// fma.rn.ftz x, y, z; add.sat x + y (clamped to 0 .. 1, NaN gives 0);
// mul.sat x * y; min.f32, max.f32 of x, y (a NaN yields the other operand);
// copysign: magnitude of y, sign of x. With ftz, subnormal inputs
// and results become zeros of the same sign.
extern "C" __global__ void float_modes(const float *a, const float *b, const float *c, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float x = a[i], y = b[i], z = c[i], *row = out + 8 * i, r;
  F2("add.rn.ftz.f32", x, y); row[0] = r;
  F2("mul.rn.ftz.f32", x, y); row[1] = r;
  F3("fma.rn.ftz.f32", x, y, z); row[2] = r;
  F2("add.sat.f32", x, y); row[3] = r;
  F2("mul.sat.f32", x, y); row[4] = r;
  row[5] = fminf(x, y);
  row[6] = fmaxf(x, y);
  F2("copysign.f32", x, y); row[7] = r;
}

// Approximate functions, to be compared within the ISA's bounds, x > 0:
// out[8 i ..] = ex2(y), lg2(x), sin(y), cos(y), rcp(x), rsqrt(x), sqrt(x),
// x / y by div.approx.
extern "C" __global__ void float_approximate(const float *a, const float *b, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float x = a[i], y = b[i], *row = out + 8 * i, r;
  F1("ex2.approx.f32", y); row[0] = r;
  F1("lg2.approx.f32", x); row[1] = r;
  row[2] = __sinf(y);
  row[3] = __cosf(y);
  F1("rcp.approx.f32", x); row[4] = r;
  row[5] = rsqrtf(x);
  F1("sqrt.approx.f32", x); row[6] = r;
  F2("div.approx.f32", x, y); row[7] = r;
}

// Comparisons with NaNs: out[i] has bit 0 x < y, 1 x <= y, 2 x == y, 3 x != y
// (true for NaN), 4 not (x >= y) (true for NaN), 5 x != x, 6 either is NaN,
// 7 x is finite, 8 x is subnormal, 9 x is infinite.
extern "C" __global__ void float_compare(const float *a, const float *b, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float x = a[i], y = b[i];
  unsigned bits = (x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3 | !(x >= y) << 4 | (x != x) << 5, r;
  asm("{ .reg .pred p; setp.nan.f32 p, %1, %2; selp.u32 %0, 64, 0, p; }" : "=r"(r) : "f"(x), "f"(y)); bits |= r;
  asm("{ .reg .pred p; testp.finite.f32 p, %1; selp.u32 %0, 128, 0, p; }" : "=r"(r) : "f"(x)); bits |= r;
  asm("{ .reg .pred p; testp.subnormal.f32 p, %1; selp.u32 %0, 256, 0, p; }" : "=r"(r) : "f"(x)); bits |= r;
  asm("{ .reg .pred p; testp.infinite.f32 p, %1; selp.u32 %0, 512, 0, p; }" : "=r"(r) : "f"(x)); bits |= r;
  out[i] = bits;
}
