// Device printf and trap.
#ifdef __NVCC__
#include <stdio.h>
#else
#include "device.h"
#endif

// Each thread with global index g < n prints one line:
//   "thread G: N VALUE.3 TEXT%\n" with %d g, %lld in[g] * 10^10, %.3f in[g] / 8,
//   %s "even" or "odd" by in[g], and a literal percent sign.
// out[g] = what printf returned, the number of arguments (4). Order between
// threads is free. Grid covering n, any 1-D block.
extern "C" __global__ void print_lines(const int *in, int *out, int n) {
  int g = blockIdx.x * blockDim.x + threadIdx.x;
  if (g < n)
    out[g] = printf("thread %d: %lld %.3f %s%%\n", g, in[g] * 10000000000ll, in[g] / 8.0, in[g] % 2 ? "odd" : "even");
}

// One thread of the grid prints a line without arguments: "ready\n".
extern "C" __global__ void print_plain() {
  if (blockIdx.x == 0 && threadIdx.x == 0)
    printf("ready\n");
}

// Traps (the launch fails) if any in[g] is negative; else out[g] = in[g] + 1.
// Grid covering n, any 1-D block.
extern "C" __global__ void trap_negative(const int *in, int *out, int n) {
  int g = blockIdx.x * blockDim.x + threadIdx.x;
  if (g >= n)
    return;
  if (in[g] < 0)
    asm volatile("trap;");
  out[g] = in[g] + 1;
}
