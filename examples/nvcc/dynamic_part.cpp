// The second piece of dynamic.cu, compiled by nvcc by itself and linked on the device.
__device__ int calls;

__device__ int collatz(long long n) {
    int steps = 0;
    atomicAdd(&calls, 1);
    for (; n != 1; steps++) n = n % 2 ? 3 * n + 1 : n / 2;
    return steps;
}

__global__ void longest(int *best, int from, int to) {
    int i = from + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < to) atomicMax(best, collatz(i));
}
