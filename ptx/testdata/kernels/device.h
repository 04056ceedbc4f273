// device.h: what nvcc declares by itself, for clang without the CUDA SDK.
// Included only when __NVCC__ is not defined; declares only what the kernels
// here use, and nothing whose result differs from nvcc's.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
#define DEVICE static __device__ __forceinline__

// Special registers. A property lets `threadIdx.x` read %tid.x directly.
#define DEVICE_AXIS(axis, builtin)                    \
  __declspec(property(get = get_##axis)) unsigned axis; \
  __device__ __forceinline__ unsigned get_##axis() const { return builtin; }
#define DEVICE_INDEX(name, reg)                               \
  struct name##_t {                                           \
    DEVICE_AXIS(x, __nvvm_read_ptx_sreg_##reg##_x())          \
    DEVICE_AXIS(y, __nvvm_read_ptx_sreg_##reg##_y())          \
    DEVICE_AXIS(z, __nvvm_read_ptx_sreg_##reg##_z())          \
  };                                                          \
  extern const __device__ name##_t name;
DEVICE_INDEX(threadIdx, tid)
DEVICE_INDEX(blockIdx, ctaid)
DEVICE_INDEX(blockDim, ntid)
DEVICE_INDEX(gridDim, nctaid)

// Vector types, with the alignment that makes .v2 and .v4 accesses legal.
struct __attribute__((aligned(8))) float2 { float x, y; };
struct float3 { float x, y, z; };
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
struct __attribute__((aligned(16))) int4 { int x, y, z, w; };
struct __attribute__((aligned(16))) double2 { double x, y; };
DEVICE float3 make_float3(float x, float y, float z) { return {x, y, z}; }
DEVICE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Floating point.
DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE float fabsf(float a) { return __builtin_fabsf(a); }
DEVICE float fminf(float a, float b) { return __nvvm_fmin_f(a, b); }
DEVICE float fmaxf(float a, float b) { return __nvvm_fmax_f(a, b); }
DEVICE float sqrtf(float a) { return __nvvm_sqrt_rn_f(a); }
DEVICE double sqrt(double a) { return __nvvm_sqrt_rn_d(a); }
DEVICE float rsqrtf(float a) { return __nvvm_rsqrt_approx_f(a); }
DEVICE float __expf(float a) { return __nvvm_ex2_approx_f(a * 1.44269504f); }
DEVICE float __logf(float a) { return __nvvm_lg2_approx_f(a) * 0.693147181f; }
DEVICE float __sinf(float a) { return __nvvm_sin_approx_f(a); }
DEVICE float __cosf(float a) { return __nvvm_cos_approx_f(a); }
DEVICE unsigned __float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
DEVICE float __uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }
DEVICE long long __double_as_longlong(double a) { return __builtin_bit_cast(long long, a); }

// Integers.
DEVICE int min(int a, int b) { return a < b ? a : b; }
DEVICE int max(int a, int b) { return a > b ? a : b; }
DEVICE unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
DEVICE unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
DEVICE int __popc(unsigned a) { return __builtin_popcount(a); }
DEVICE int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
DEVICE int __clz(int a) { return a ? __builtin_clz(a) : 32; }
DEVICE int __clzll(long long a) { return a ? __builtin_clzll(a) : 64; }
DEVICE int __ffs(int a) { return __builtin_ffs(a); }
DEVICE int __ffsll(long long a) { return __builtin_ffsll(a); }
DEVICE unsigned __brev(unsigned a) { return __builtin_bitreverse32(a); }
DEVICE unsigned long long __brevll(unsigned long long a) { return __builtin_bitreverse64(a); }
DEVICE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) { return __nvvm_prmt(a, b, s); }
DEVICE int __mulhi(int a, int b) { return __nvvm_mulhi_i(a, b); }
DEVICE unsigned __umulhi(unsigned a, unsigned b) { return __nvvm_mulhi_ui(a, b); }
DEVICE long long __mul64hi(long long a, long long b) { return __nvvm_mulhi_ll(a, b); }
DEVICE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return __nvvm_mulhi_ull(a, b); }
DEVICE int __mul24(int a, int b) { int d; asm("mul24.lo.s32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE unsigned __umul24(unsigned a, unsigned b) { unsigned d; asm("mul24.lo.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
DEVICE unsigned __sad(int a, int b, unsigned c) { unsigned d; asm("sad.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
DEVICE unsigned __usad(unsigned a, unsigned b, unsigned c) { unsigned d; asm("sad.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
DEVICE unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { unsigned d; asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(lo), "r"(hi), "r"(s)); return d; }
DEVICE unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { unsigned d; asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(lo), "r"(hi), "r"(s)); return d; }
DEVICE unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned s) { unsigned d; asm("shf.l.clamp.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(lo), "r"(hi), "r"(s)); return d; }
DEVICE unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned s) { unsigned d; asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(lo), "r"(hi), "r"(s)); return d; }
DEVICE int __dp4a(int a, int b, int c) { int d; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
DEVICE unsigned __dp4a(unsigned a, unsigned b, unsigned c) { unsigned d; asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }

// Barriers and fences. __syncthreads is a clang builtin already.
DEVICE void __syncwarp(unsigned mask = 0xffffffffu) { __nvvm_bar_warp_sync(mask); }
DEVICE int __syncthreads_count(int p) { return __nvvm_bar0_popc(p); }
DEVICE int __syncthreads_and(int p) { return __nvvm_bar0_and(p); }
DEVICE int __syncthreads_or(int p) { return __nvvm_bar0_or(p); }
DEVICE void __threadfence_block() { __nvvm_membar_cta(); }
DEVICE void __threadfence() { __nvvm_membar_gl(); }
DEVICE void __threadfence_system() { __nvvm_membar_sys(); }

// Warp-wide operations over whole warps of 32 lanes.
DEVICE int __shfl_sync(unsigned m, int v, int lane, int width = 32) { return __nvvm_shfl_sync_idx_i32(m, v, lane, ((32 - width) << 8) | 31); }
DEVICE int __shfl_up_sync(unsigned m, int v, unsigned d, int width = 32) { return __nvvm_shfl_sync_up_i32(m, v, d, (32 - width) << 8); }
DEVICE int __shfl_down_sync(unsigned m, int v, unsigned d, int width = 32) { return __nvvm_shfl_sync_down_i32(m, v, d, ((32 - width) << 8) | 31); }
DEVICE int __shfl_xor_sync(unsigned m, int v, int x, int width = 32) { return __nvvm_shfl_sync_bfly_i32(m, v, x, ((32 - width) << 8) | 31); }
DEVICE float __shfl_down_sync(unsigned m, float v, unsigned d, int width = 32) { return __nvvm_shfl_sync_down_f32(m, v, d, ((32 - width) << 8) | 31); }
DEVICE float __shfl_xor_sync(unsigned m, float v, int x, int width = 32) { return __nvvm_shfl_sync_bfly_f32(m, v, x, ((32 - width) << 8) | 31); }
DEVICE int __all_sync(unsigned m, int p) { return __nvvm_vote_all_sync(m, p); }
DEVICE int __any_sync(unsigned m, int p) { return __nvvm_vote_any_sync(m, p); }
DEVICE unsigned __ballot_sync(unsigned m, int p) { return __nvvm_vote_ballot_sync(m, p); }
DEVICE unsigned __match_any_sync(unsigned m, unsigned v) { return __nvvm_match_any_sync_i32(m, v); }
DEVICE unsigned __match_all_sync(unsigned m, unsigned v, int *p) { return __nvvm_match_all_sync_i32p(m, v, p); }
DEVICE unsigned __activemask() { unsigned m; asm volatile("activemask.b32 %0;" : "=r"(m)); return m; }

// Atomics; each returns the old value.
DEVICE int atomicAdd(int *p, int v) { return __nvvm_atom_add_gen_i(p, v); }
DEVICE unsigned atomicAdd(unsigned *p, unsigned v) { return __nvvm_atom_add_gen_i((int *)p, v); }
DEVICE unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) { return __nvvm_atom_add_gen_ll((long long *)p, v); }
DEVICE float atomicAdd(float *p, float v) { return __nvvm_atom_add_gen_f(p, v); }
DEVICE double atomicAdd(double *p, double v) { return __nvvm_atom_add_gen_d(p, v); }
DEVICE int atomicSub(int *p, int v) { return __nvvm_atom_add_gen_i(p, -v); }
DEVICE int atomicMin(int *p, int v) { return __nvvm_atom_min_gen_i(p, v); }
DEVICE unsigned atomicMin(unsigned *p, unsigned v) { return __nvvm_atom_min_gen_ui(p, v); }
DEVICE long long atomicMin(long long *p, long long v) { return __nvvm_atom_min_gen_ll(p, v); }
DEVICE unsigned long long atomicMin(unsigned long long *p, unsigned long long v) { return __nvvm_atom_min_gen_ull(p, v); }
DEVICE int atomicMax(int *p, int v) { return __nvvm_atom_max_gen_i(p, v); }
DEVICE unsigned atomicMax(unsigned *p, unsigned v) { return __nvvm_atom_max_gen_ui(p, v); }
DEVICE long long atomicMax(long long *p, long long v) { return __nvvm_atom_max_gen_ll(p, v); }
DEVICE unsigned long long atomicMax(unsigned long long *p, unsigned long long v) { return __nvvm_atom_max_gen_ull(p, v); }
DEVICE unsigned atomicAnd(unsigned *p, unsigned v) { return __nvvm_atom_and_gen_i((int *)p, v); }
DEVICE unsigned atomicOr(unsigned *p, unsigned v) { return __nvvm_atom_or_gen_i((int *)p, v); }
DEVICE unsigned atomicXor(unsigned *p, unsigned v) { return __nvvm_atom_xor_gen_i((int *)p, v); }
DEVICE unsigned long long atomicAnd(unsigned long long *p, unsigned long long v) { return __nvvm_atom_and_gen_ll((long long *)p, v); }
DEVICE unsigned long long atomicOr(unsigned long long *p, unsigned long long v) { return __nvvm_atom_or_gen_ll((long long *)p, v); }
DEVICE unsigned long long atomicXor(unsigned long long *p, unsigned long long v) { return __nvvm_atom_xor_gen_ll((long long *)p, v); }
DEVICE unsigned atomicInc(unsigned *p, unsigned v) { return __nvvm_atom_inc_gen_ui(p, v); }
DEVICE unsigned atomicDec(unsigned *p, unsigned v) { return __nvvm_atom_dec_gen_ui(p, v); }
DEVICE int atomicExch(int *p, int v) { return __nvvm_atom_xchg_gen_i(p, v); }
DEVICE unsigned atomicExch(unsigned *p, unsigned v) { return __nvvm_atom_xchg_gen_i((int *)p, v); }
DEVICE unsigned long long atomicExch(unsigned long long *p, unsigned long long v) { return __nvvm_atom_xchg_gen_ll((long long *)p, v); }
DEVICE int atomicCAS(int *p, int c, int v) { return __nvvm_atom_cas_gen_i(p, c, v); }
DEVICE unsigned atomicCAS(unsigned *p, unsigned c, unsigned v) { return __nvvm_atom_cas_gen_i((int *)p, c, v); }
DEVICE unsigned long long atomicCAS(unsigned long long *p, unsigned long long c, unsigned long long v) { return __nvvm_atom_cas_gen_ll((long long *)p, c, v); }
DEVICE int atomicAdd_block(int *p, int v) { return __nvvm_atom_cta_add_gen_i(p, v); }
DEVICE int atomicMax_block(int *p, int v) { return __nvvm_atom_cta_max_gen_i(p, v); }
DEVICE int atomicAdd_system(int *p, int v) { return __nvvm_atom_sys_add_gen_i(p, v); }

extern "C" __device__ int printf(const char *format, ...);

// What a vtable holds for a pure virtual function; nvcc brings its own.
extern "C" __device__ inline void __cxa_pure_virtual() { asm volatile("trap;"); }
