// Integer instructions. Grid covering n, any 1-D block; one row of results an element.
#ifndef __NVCC__
#include "device.h"
#endif

typedef unsigned long long u64;

#define OP2(op, out, a, b) asm(op " %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b))
#define OP3(op, out, a, b, c) asm(op " %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c))

// out[12 i ..], x = a[i], w = wide[i]: popcount x, leading zeros x (32 for
// 0), bits of x reversed, 1 + index of lowest set bit of x (0 for 0), then the
// same four for w (low 32 bits of the result; reversed: low, then high word in
// [10]), [8] bfind.u32 x (index of highest set bit, ~0 for 0),
// [9] bfind.shiftamt.s32 x (31 minus the index of the highest bit that
// differs from the sign, ~0 when none),
// [11] cnot x (1 if x is 0, else 0).
extern "C" __global__ void integer_bits(const unsigned *a, const u64 *wide, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned x = a[i], *row = out + 12 * i, r;
  u64 w = wide[i], reversed = __brevll(w);
  row[0] = __popc(x);
  row[1] = __clz(x);
  row[2] = __brev(x);
  row[3] = __ffs(x);
  row[4] = __popcll(w);
  row[5] = __clzll(w);
  row[6] = (unsigned)reversed;
  row[7] = __ffsll(w);
  asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(x)); row[8] = r;
  asm("bfind.shiftamt.s32 %0, %1;" : "=r"(r) : "r"(x)); row[9] = r;
  row[10] = (unsigned)(reversed >> 32);
  asm("cnot.b32 %0, %1;" : "=r"(r) : "r"(x)); row[11] = r;
}

// out[16 i ..], x = a[i], y = b[i], z = c[i] as 32-bit words:
// [0] byte_perm(x, y, z)      bytes of y:x picked by four nibbles (bits 0-2
//     the byte, bit 3 replicates its sign)
// [1] funnel left: high word of (y:x << (z & 31))   [2] funnel right: low word
//     of (y:x >> (z & 31))   [3], [4] the same with min(z, 32)
// [5] mul24 signed: low 32 bits of the product of the low 24 bits,
//     each sign-extended
// [6] mul24 unsigned, zero-extended   [7] mulhi signed   [8] mulhi unsigned
// [9] z + |x - y| signed   [10] z + |x - y| unsigned
// [11] dp4a signed: z + sum of products of the four signed bytes   [12] dp4a
//     unsigned
// [13] bfe.u32 of x from bit y & 255, z & 255 bits   [14] bfe.s32 the same
// [15] bfi.b32: the low 7 bits of x into y at bit z & 31
extern "C" __global__ void integer_ops(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned x = a[i], y = b[i], z = c[i], *row = out + 16 * i, r;
  row[0] = __byte_perm(x, y, z);
  row[1] = __funnelshift_l(x, y, z);
  row[2] = __funnelshift_r(x, y, z);
  row[3] = __funnelshift_lc(x, y, z);
  row[4] = __funnelshift_rc(x, y, z);
  row[5] = __mul24(x, y);
  row[6] = __umul24(x, y);
  row[7] = __mulhi(x, y);
  row[8] = __umulhi(x, y);
  row[9] = __sad(x, y, z);
  row[10] = __usad(x, y, z);
  row[11] = __dp4a((int)x, (int)y, (int)z);
  row[12] = __dp4a(x, y, z);
  OP3("bfe.u32", r, x, y, z); row[13] = r;
  OP3("bfe.s32", r, x, y, z); row[14] = r;
  asm("bfi.b32 %0, %1, %2, %3, 7;" : "=r"(r) : "r"(x), "r"(y), "r"(z & 31)); row[15] = r;
}

// out[12 i ..], x = a[i], y = b[i], z = c[i]; s means signed:
// [0] lop3 0xe8 (majority)   [1] lop3 0x96 (x ^ y ^ z)   [2] lop3 0xca (x ? y : z, by bit)
// [3] slct.s32.s32: z >= 0 (s) ? x : y   [4] shl.b32 x by y (0 from 32 on)
// [5] shr.u32 (0 from 32 on)   [6] shr.s32 (sign from 32 on)
// [7] mad.hi.s32 x y z   [8] mad24.lo.u32 x y z   [9] min s   [10] max s
// [11] the carry chain: high word of (x:y) + (z:x), by add.cc and addc
extern "C" __global__ void integer_ptx(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  unsigned x = a[i], y = b[i], z = c[i], *row = out + 12 * i, r;
  asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); row[0] = r;
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); row[1] = r;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r) : "r"(x), "r"(y), "r"(z)); row[2] = r;
  OP3("slct.s32.s32", r, x, y, z); row[3] = r;
  OP2("shl.b32", r, x, y); row[4] = r;
  OP2("shr.u32", r, x, y); row[5] = r;
  OP2("shr.s32", r, x, y); row[6] = r;
  OP3("mad.hi.s32", r, x, y, z); row[7] = r;
  OP3("mad24.lo.u32", r, x, y, z); row[8] = r;
  row[9] = min((int)x, (int)y);
  row[10] = max((int)x, (int)y);
  asm("{ .reg .u32 low; add.cc.u32 low, %2, %1; addc.u32 %0, %1, %3; }" : "=r"(r) : "r"(x), "r"(y), "r"(z)); row[11] = r;
}

// Division, 32 and 64 bits, y and w never 0, and no overflow (not -2^31 / -1):
// out32[4 i ..] = x / y signed, x % y signed, x / y unsigned, x % y unsigned;
// out64[4 i ..] = the same of v and w. In [0], [1] signed means towards zero.
extern "C" __global__ void integer_divide(const int *x, const int *y, const long long *v, const long long *w, int *out32, long long *out64, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  out32[4 * i] = x[i] / y[i];
  out32[4 * i + 1] = x[i] % y[i];
  out32[4 * i + 2] = (unsigned)x[i] / (unsigned)y[i];
  out32[4 * i + 3] = (unsigned)x[i] % (unsigned)y[i];
  out64[4 * i] = v[i] / w[i];
  out64[4 * i + 1] = v[i] % w[i];
  out64[4 * i + 2] = (u64)v[i] / (u64)w[i];
  out64[4 * i + 3] = (u64)v[i] % (u64)w[i];
}

// Wide arithmetic: out[6 i ..] = (s64)x * y, (u64)(u32)x * (u32)y,
// (s64)x * y + w (wraps), high 64 bits of w * w signed, w shifted right by
// x & 63 arithmetically, w / 10 (by a constant).
extern "C" __global__ void integer_wide(const int *x, const int *y, const long long *w, long long *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  long long *row = out + 6 * i;
  row[0] = (long long)x[i] * y[i];
  row[1] = (u64)(unsigned)x[i] * (unsigned)y[i];
  row[2] = (u64)((long long)x[i] * y[i]) + (u64)w[i];
  row[3] = __mul64hi(w[i], w[i]);
  row[4] = w[i] >> (x[i] & 63);
  row[5] = w[i] / 10;
}
