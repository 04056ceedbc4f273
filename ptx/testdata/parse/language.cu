// What of the language the PTX reader must know and small kernels rarely
// show: initialisers, state spaces, calls, switches, scoped registers.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __noinline __attribute__((noinline))

struct Pair { double a; int b; };

__device__ int counter = 3;
__device__ float table[4] = {1.0f, -0.5f, 3.25f, 0.0f};
__device__ double pi = 3.141592653589793;
__device__ int *pointer = &counter;
#if __clang_major__ > 14 // 14 cannot write an address inside an array
__device__ float *inside = &table[2];
#else
__device__ float *inside;
#endif
__constant__ short weights[2][3] = {{1, 2, 3}, {-4, 5, -6}};
__constant__ Pair pairs[2] = {{1.5, 1}, {2.5, 2}};
extern __shared__ int dynamic[];

__device__ __noinline Pair swap(Pair p, int k) { return Pair{p.b * 2.0, (int)p.a + k}; }
__device__ __noinline int twice(int x) { return 2 * x; }
__device__ __noinline int thrice(int x) { return 3 * x; }
typedef int (*Step)(int);
__device__ Step steps[2] = {twice, thrice};
__device__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }

extern "C" __device__ int vprintf(const char *, void *);

extern "C" __global__ void __attribute__((launch_bounds(128, 2))) language(int *out, int n, Pair p, float f) {
  __shared__ float tile[32];
  int local[8];
  int i = __nvvm_read_ptx_sreg_tid_x();
  for (int k = 0; k < 8; k++) local[(k * n) & 7] = k + i;
  tile[i & 31] = f * table[i & 3];
  __syncthreads();
  Pair q = swap(p, local[n & 7]);
  int r = 0;
  switch (n) {
  case 0: r = q.b; break;
  case 1: r = counter; break;
  case 2: r = weights[i & 1][n]; break;
  case 3: r = *pointer; break;
  case 4: r = (int)pairs[i & 1].a; break;
  case 5: r = dynamic[i]; break;
  case 6: r = factorial(i); break;
  case 7: r = (int)*inside; break;
  default: r = steps[i & 1](n);
  }
  double pack = pi * q.a + tile[(i + 1) & 31];
  asm volatile("{ .reg .b32 %%temp; mov.b64 {%0, %%temp}, %1; }" : "=r"(n) : "d"(pack));
  struct { int a; } args = {r};
  vprintf("value %d\n", &args);
  __nvvm_atom_add_gen_i(out, r + n);
}
