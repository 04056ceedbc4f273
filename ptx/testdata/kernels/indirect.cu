// Indirect calls: tables of function pointers.
#ifndef __NVCC__
#include "device.h"
#endif

typedef int (*Operation)(int, int);

static __device__ __noinline__ int op_add(int a, int b) { return a + b; }
static __device__ __noinline__ int op_sub(int a, int b) { return a - b; }
static __device__ __noinline__ int op_mul(int a, int b) { return a * b; }
static __device__ __noinline__ int op_xor(int a, int b) { return a ^ b; }

__device__ Operation operations[4] = {op_add, op_sub, op_mul, op_xor};

// out[i] = operation code[i] & 3 of (a[i], b[i]), modulo 2^32: 0 add,
// 1 subtract, 2 multiply, 3 exclusive or. Grid covering n, any 1-D block;
// lanes of one warp call different functions.
extern "C" __global__ void indirect_table(const int *code, const int *a, const int *b, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = operations[code[i] & 3](a[i], b[i]);
}

// handles[0 .. 3] = the four functions' addresses, for indirect_pointer.
// One thread.
extern "C" __global__ void indirect_handles(unsigned long long *handles) {
  for (int i = 0; i < 4; i++)
    handles[i] = (unsigned long long)operations[i];
}

// out[i] = handle applied to (a[i], i), the same function for all lanes.
// handle is one of indirect_handles' values. Grid covering n, any 1-D block.
extern "C" __global__ void indirect_pointer(unsigned long long handle, const int *a, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = ((Operation)handle)(a[i], i);
}

struct Shape {
  __device__ virtual float area() const = 0;
};
struct Square : Shape {
  float side;
  __device__ Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Rectangle : Shape {
  float width, height;
  __device__ Rectangle(float w, float h) : width(w), height(h) {}
  __device__ float area() const override { return width * height; }
};

static __device__ __noinline__ float area_of(const Shape *s) { return s->area(); }

// Virtual calls: for even i, out[i] = size[i] * size[i], for odd i
// out[i] = size[i] * 0.5f. Grid covering n, any 1-D block.
extern "C" __global__ void indirect_virtual(const float *size, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  Square square(size[i]);
  Rectangle rectangle(size[i], 0.5f);
  out[i] = area_of(i % 2 == 0 ? (const Shape *)&square : (const Shape *)&rectangle);
}
