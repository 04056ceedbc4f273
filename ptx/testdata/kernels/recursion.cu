// Recursive device functions: real calls and a real stack.
#ifndef __NVCC__
#include "device.h"
#endif

// Ackermann's function.
static __device__ __noinline__ int ackermann(int m, int n) {
  if (m == 0)
    return n + 1;
  if (n == 0)
    return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}

// out[i] = A(m[i], n[i]) for i < count; keep m <= 2, n <= 8 (depth below 30).
// Grid covering count, any 1-D block.
extern "C" __global__ void recursion_ackermann(const int *m, const int *n, int *out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = ackermann(m[i], n[i]);
}

static __device__ __noinline__ unsigned fibonacci(unsigned n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

// out[i] = Fibonacci(i % 16), F(0) = 0, F(1) = 1. Grid covering count, any
// 1-D block: neighbouring lanes recurse to different depths.
extern "C" __global__ void recursion_fibonacci(unsigned *out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = fibonacci(i % 16);
}

// Hofstadter's female and male sequences call each other.
static __device__ __noinline__ int male(int n);
static __device__ __noinline__ int female(int n) { return n == 0 ? 1 : n - male(female(n - 1)); }
static __device__ __noinline__ int male(int n) { return n == 0 ? 0 : n - female(male(n - 1)); }

// out[2 i] = F(i % 12), out[2 i + 1] = M(i % 12), where F(0) = 1, M(0) = 0,
// F(n) = n - M(F(n-1)), M(n) = n - F(M(n-1)). Grid covering count, any 1-D block.
extern "C" __global__ void recursion_mutual(int *out, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  out[2 * i] = female(i % 12);
  out[2 * i + 1] = male(i % 12);
}

static __device__ __noinline__ void quicksort(int *a, int low, int high) {
  if (low >= high)
    return;
  int pivot = a[(low + high) / 2], i = low, j = high;
  while (i <= j) {
    while (a[i] < pivot)
      i++;
    while (a[j] > pivot)
      j--;
    if (i <= j) {
      int v = a[i];
      a[i++] = a[j];
      a[j--] = v;
    }
  }
  quicksort(a, low, j);
  quicksort(a, i, high);
}

// Each thread sorts its own run of length ints rising, in place:
// data[g * length ..]. length <= 32. Any 1-D launch with threads * length
// elements.
extern "C" __global__ void recursion_quicksort(int *data, int length) {
  int g = blockIdx.x * blockDim.x + threadIdx.x;
  quicksort(data + g * length, 0, length - 1);
}

// A struct by value in and out of a recursive function.
struct Range {
  int low, high;
  long long sum;
};

static __device__ __noinline__ Range halve(Range r, const int *a) {
  if (r.high - r.low == 1) {
    r.sum = a[r.low];
    return r;
  }
  int middle = (r.low + r.high) / 2;
  Range left = halve(Range{r.low, middle, 0}, a);
  Range right = halve(Range{middle, r.high, 0}, a);
  return Range{left.low, right.high, left.sum + right.sum};
}

// out[g] = sum of data[g * length .. g * length + length - 1] as 64-bit.
// length >= 1. Any 1-D launch.
extern "C" __global__ void recursion_struct(const int *data, long long *out, int length) {
  int g = blockIdx.x * blockDim.x + threadIdx.x;
  out[g] = halve(Range{0, length, 0}, data + g * length).sum;
}
