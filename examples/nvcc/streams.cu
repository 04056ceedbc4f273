// Streams, events, pinned memory, constants, variables, a host function, memset and
// printf of CUDA's runtime API, with results checked.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t e = (call);                                                         \
        if (e != cudaSuccess) {                                                         \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

__constant__ int factors[4];
__device__ unsigned launches;

__global__ void scale(int *x, int n, int which) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factors[which];
    if (i == 0) atomicAdd(&launches, 1);
}

__global__ void say(int n) { printf("the kernel says %d\n", n); }

static void arrived(void *counter) { ++*(int *)counter; }

int main() {
    const int streams = 4, n = 1 << 16;
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    if (count < 1 || prop.warpSize != 32) {
        fprintf(stderr, "%d devices, warps of %d\n", count, prop.warpSize);
        return 1;
    }
    int host[4] = {3, 5, 7, 11};
    CHECK(cudaMemcpyToSymbol(factors, host, sizeof host));

    int *pinned[streams], *device[streams], calls = 0;
    cudaStream_t s[streams];
    cudaEvent_t done[streams];
    for (int k = 0; k < streams; k++) {
        CHECK(cudaMallocHost((void **)&pinned[k], n * sizeof(int)));
        CHECK(cudaMalloc((void **)&device[k], n * sizeof(int)));
        CHECK(cudaStreamCreateWithFlags(&s[k], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&done[k], cudaEventDisableTiming));
        for (int i = 0; i < n; i++) pinned[k][i] = i + k;
    }
    for (int k = 0; k < streams; k++) {
        if (k > 0) CHECK(cudaStreamWaitEvent(s[k], done[k - 1], 0)); // one after the other: calls is not atomic
        CHECK(cudaMemcpyAsync(device[k], pinned[k], n * sizeof(int), cudaMemcpyHostToDevice, s[k]));
        scale<<<(n + 127) / 128, 128, 0, s[k]>>>(device[k], n, k);
        scale<<<(n + 127) / 128, 128, 0, s[k]>>>(device[k], n, (k + 1) % 4);
        CHECK(cudaMemcpyAsync(pinned[k], device[k], n * sizeof(int), cudaMemcpyDeviceToHost, s[k]));
        CHECK(cudaLaunchHostFunc(s[k], arrived, &calls));
        CHECK(cudaEventRecord(done[k], s[k]));
    }
    CHECK(cudaEventSynchronize(done[streams - 1]));
    if (cudaEventQuery(done[0]) != cudaSuccess || calls != streams) {
        fprintf(stderr, "%d host functions were called, not %d\n", calls, streams);
        return 1;
    }
    for (int k = 0; k < streams; k++)
        for (int i = 0; i < n; i++)
            if (pinned[k][i] != (i + k) * host[k] * host[(k + 1) % 4]) {
                fprintf(stderr, "stream %d, element %d is %d\n", k, i, pinned[k][i]);
                return 1;
            }
    unsigned seen = 0;
    CHECK(cudaMemcpyFromSymbol(&seen, launches, sizeof seen));
    if (seen != 2 * streams) {
        fprintf(stderr, "%u launches were seen, not %d\n", seen, 2 * streams);
        return 1;
    }
    CHECK(cudaMemset(device[0], 0x5a, n));
    CHECK(cudaMemcpy(pinned[0], device[0], n, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        if (((unsigned char *)pinned[0])[i] != 0x5a) {
            fprintf(stderr, "byte %d was not set\n", i);
            return 1;
        }
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 128, 0));
    if (blocks < 1) {
        fprintf(stderr, "the occupancy is %d\n", blocks);
        return 1;
    }
    say<<<1, 1>>>(42);
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < streams; k++) {
        CHECK(cudaEventDestroy(done[k]));
        CHECK(cudaStreamDestroy(s[k]));
        CHECK(cudaFree(device[k]));
        CHECK(cudaFreeHost(pinned[k]));
    }
    // A bad launch is an error, and the program goes on.
    scale<<<1, 4096>>>(nullptr, 0, 0);
    if (cudaGetLastError() != cudaErrorInvalidValue || cudaGetLastError() != cudaSuccess) {
        fprintf(stderr, "a block of 4096 threads was not refused as it should be\n");
        return 1;
    }
    CHECK(cudaDeviceReset());
    printf("streams: right\n");
    return 0;
}
