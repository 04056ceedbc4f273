// Atomics of every kind. Grid covering n, any 1-D block; i < n is the thread.
#ifndef __NVCC__
#include "device.h"
#endif

typedef unsigned long long u64;

// On signed cells: c[0] += v, c[1] -= v, c[2] = min, c[3] = max,
// c[4] = some v (exchange), with v = in[i]. Results are unused, so
// compilers may emit red.
extern "C" __global__ void atomic_signed(const int *in, int *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicAdd(&c[0], in[i]);
  atomicSub(&c[1], in[i]);
  atomicMin(&c[2], in[i]);
  atomicMax(&c[3], in[i]);
  atomicExch(&c[4], in[i]);
}

// On unsigned cells: c[0] += v, c[1] min, c[2] max, c[3] &= v, c[4] |= v,
// c[5] ^= v, c[6] wraps up: c >= 9 ? 0 : c + 1, c[7] wraps down:
// c == 0 || c > 9 ? 9 : c - 1.
extern "C" __global__ void atomic_unsigned(const unsigned *in, unsigned *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicAdd(&c[0], in[i]);
  atomicMin(&c[1], in[i]);
  atomicMax(&c[2], in[i]);
  atomicAnd(&c[3], in[i]);
  atomicOr(&c[4], in[i]);
  atomicXor(&c[5], in[i]);
  atomicInc(&c[6], 9);
  atomicDec(&c[7], 9);
}

// The same on 64 bits: c[0] += v, [1] min, [2] max, [3] &=, [4] |=, [5] ^=,
// [6] exchange (some v), [7] a compare-and-swap loop for c * 3 + 1 (n times),
// and s[0] min, s[1] max of the signed values.
extern "C" __global__ void atomic_wide(const u64 *in, u64 *c, long long *s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicAdd(&c[0], in[i]);
  atomicMin(&c[1], in[i]);
  atomicMax(&c[2], in[i]);
  atomicAnd(&c[3], in[i]);
  atomicOr(&c[4], in[i]);
  atomicXor(&c[5], in[i]);
  atomicExch(&c[6], in[i]);
  u64 seen = c[7], old;
  do {
    old = seen;
    seen = atomicCAS(&c[7], old, old * 3 + 1);
  } while (seen != old);
  atomicMin(&s[0], (long long)in[i]);
  atomicMax(&s[1], (long long)in[i]);
}

// *f += x and *d += (double)x, x = in[i]: exact if the values are small
// integers, else in any order. *m = the maximum of in (all >= 0) by a
// compare-and-swap loop on its bits.
extern "C" __global__ void atomic_float(const float *in, float *f, double *d, unsigned *m, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  atomicAdd(f, in[i]);
  atomicAdd(d, (double)in[i]);
  unsigned seen = *m;
  while (__uint_as_float(seen) < in[i]) {
    unsigned old = atomicCAS(m, seen, __float_as_uint(in[i]));
    if (old == seen)
      break;
    seen = old;
  }
}

// Old values: slots[i] = the old value of (*counter)++: as a set they are
// 0 .. n - 1 if *counter starts at 0. ring[i] = the old value of
// atomicInc(*wrap, 4) from 0: each of 0 .. 4 comes up n / 5 times, rounded up
// for the first n % 5. last[i] = the old value of an exchange of i + 1 into
// *baton: with what *baton holds at the end they are a permutation of
// 0 .. n if it starts at 0.
extern "C" __global__ void atomic_old_values(unsigned *counter, unsigned *wrap, unsigned *baton, unsigned *slots, unsigned *ring, unsigned *last, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  slots[i] = atomicAdd(counter, 1u);
  ring[i] = atomicInc(wrap, 4);
  last[i] = atomicExch(baton, (unsigned)i + 1);
}

// Shared memory and scopes. Per block b over its elements v = in[i] (i < n):
// out[4 b] = sum, [1] = max (from -2^31), [2] = and of all bits (from ~0),
// [3] = sum again, gathered straight in out[4 b + 3] with block scope (it must
// start at 0). *total += every v with system scope.
extern "C" __global__ void atomic_scopes(const int *in, int *out, int *total, int n) {
  __shared__ int sum, top;
  __shared__ unsigned bits;
  int i = blockIdx.x * blockDim.x + threadIdx.x, *row = out + 4 * blockIdx.x;
  if (threadIdx.x == 0) {
    sum = 0;
    top = -2147483647 - 1;
    bits = ~0u;
  }
  __syncthreads();
  if (i < n) {
    atomicAdd_block(&sum, in[i]);
    atomicMax_block(&top, in[i]);
    atomicAnd(&bits, (unsigned)in[i]);
    atomicAdd_block(&row[3], in[i]);
    atomicAdd_system(total, in[i]);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    row[0] = sum;
    row[1] = top;
    row[2] = bits;
  }
}

// Explicit PTX: red on global and shared, atom with memory order.
// c[0] += v by red.global.add.u32; c[1] max by red.relaxed.gpu; c[2] += v by
// atom.acq_rel.gpu; c[3] += per-block count of threads with i < n, gathered by
// red.shared.add.u32 and added by thread 0.
extern "C" __global__ void atomic_ptx(const unsigned *in, unsigned *c, int n) {
  __shared__ unsigned count;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0)
    count = 0;
  __syncthreads();
  if (i < n) {
    unsigned old;
    asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %0; red.global.add.u32 [g], %1; }" ::"l"(&c[0]), "r"(in[i]) : "memory");
    asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %0; red.relaxed.gpu.global.max.u32 [g], %1; }" ::"l"(&c[1]), "r"(in[i]) : "memory");
    asm volatile("{ .reg .u64 g; cvta.to.global.u64 g, %1; atom.acq_rel.gpu.global.add.u32 %0, [g], %2; }" : "=r"(old) : "l"(&c[2]), "r"(in[i]) : "memory");
    asm volatile("{ .reg .u64 s; cvta.to.shared.u64 s, %0; red.shared.add.u32 [s], 1; }" ::"l"(&count) : "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0)
    atomicAdd(&c[3], *(volatile unsigned *)&count);
}
