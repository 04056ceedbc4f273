// Writes where there is no memory: the program must be told, and nobody else.
#include <cstdio>

__global__ void wild(int *p) { *p = 1; }

int main() {
    wild<<<1, 1>>>((int *)0x10);
    cudaError_t e = cudaDeviceSynchronize();
    if (e != cudaErrorIllegalAddress) {
        fprintf(stderr, "the error is %d (%s), not %d\n", e, cudaGetErrorString(e), cudaErrorIllegalAddress);
        return 1;
    }
    void *p;
    if (cudaMalloc(&p, 16) != cudaErrorIllegalAddress) {
        fprintf(stderr, "the error did not stay\n");
        return 1;
    }
    printf("fault: told\n");
    return 0;
}
