// nvcc: -std=c++17 -lcuda
// What programs ask of devices, kernels, streams and pointers, and how errors stay: properties
// and attributes that must agree, occupancy, caches, priorities, values that streams wait for,
// and a device that is reset.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "check.h"

__device__ int variable = 17;

__global__ void __launch_bounds__(128) bounded(int *v) {
    __shared__ int room[1024];
    room[threadIdx.x] = v[threadIdx.x];
    __syncthreads();
    v[threadIdx.x] = room[127 - threadIdx.x] + variable;
}

__global__ void big(int *out, int n) {
    extern __shared__ int room[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *out = room[n - 1];
    variable++;
}

static int attribute(cudaDeviceAttr which) {
    int v = -1;
    CHECK(cudaDeviceGetAttribute(&v, which, 0));
    return v;
}

static void device() {
    int count, driver, runtime, current;
    cudaDeviceProp p;
    CHECK(cudaGetDeviceCount(&count));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaGetDevice(&current));
    CHECK(cudaGetDeviceProperties(&p, 0));
    TRUE(count >= 1 && current == 0 && driver >= 12000 && runtime >= 13000);
    printf("%s, %d.%d, driver %d, runtime %d\n", p.name, p.major, p.minor, driver, runtime);
    printf("%zu MiB, %d multiprocessors, L2 %d KiB, bus %d bits, %d copy engines\n", p.totalGlobalMem >> 20, p.multiProcessorCount, p.l2CacheSize >> 10, p.memoryBusWidth, p.asyncEngineCount);
    printf("shared %zu, %zu, %zu, %zu; registers %d, %d; constants %zu; pitch %zu\n", p.sharedMemPerBlock, p.sharedMemPerBlockOptin, p.sharedMemPerMultiprocessor, p.reservedSharedMemPerBlock, p.regsPerBlock, p.regsPerMultiprocessor, p.totalConstMem, p.memPitch);
    printf("threads %d, %d; block (%d,%d,%d); grid (%d,%d,%d); blocks %d\n", p.maxThreadsPerBlock, p.maxThreadsPerMultiProcessor, p.maxThreadsDim[0], p.maxThreadsDim[1], p.maxThreadsDim[2], p.maxGridSize[0], p.maxGridSize[1], p.maxGridSize[2], p.maxBlocksPerMultiProcessor);
    printf("textures %d, %dx%d, %dx%dx%d, layers %d, %d; alignment %zu, %zu, %zu\n", p.maxTexture1D, p.maxTexture2D[0], p.maxTexture2D[1], p.maxTexture3D[0], p.maxTexture3D[1], p.maxTexture3D[2], p.maxTexture1DLayered[1], p.maxTexture2DLayered[2], p.textureAlignment, p.texturePitchAlignment, p.surfaceAlignment);
    printf("managed %d, concurrent %d, pageable %d, tables %d, native atomics %d, host pointers %d, direct %d\n", p.managedMemory, p.concurrentManagedAccess, p.pageableMemoryAccess, p.pageableMemoryAccessUsesHostPageTables, p.hostNativeAtomicSupported, p.canUseHostPointerForRegisteredMem, p.directManagedMemAccessFromHost);
    printf("kernels %d, cooperative %d, ecc %d, tcc %d, integrated %d, map %d, unified %d, preempt %d, priorities %d, board %d\n", p.concurrentKernels, p.cooperativeLaunch, p.ECCEnabled, p.tccDriver, p.integrated, p.canMapHostMemory, p.unifiedAddressing, p.computePreemptionSupported, p.streamPrioritiesSupported, p.isMultiGpuBoard);
    printf("clock %d kHz, memory %d kHz, mode %d, timeout %d, single to double %d\n", attribute(cudaDevAttrClockRate), attribute(cudaDevAttrMemoryClockRate), attribute(cudaDevAttrComputeMode), attribute(cudaDevAttrKernelExecTimeout), attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio));
    TRUE(p.warpSize == 32 && attribute(cudaDevAttrWarpSize) == 32);
    TRUE(p.major == attribute(cudaDevAttrComputeCapabilityMajor) && p.minor == attribute(cudaDevAttrComputeCapabilityMinor));
    TRUE(p.multiProcessorCount == attribute(cudaDevAttrMultiProcessorCount) && p.l2CacheSize == attribute(cudaDevAttrL2CacheSize));
    TRUE((int)p.sharedMemPerBlock == attribute(cudaDevAttrMaxSharedMemoryPerBlock) && (int)p.sharedMemPerBlockOptin == attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
    TRUE(p.maxThreadsPerBlock == attribute(cudaDevAttrMaxThreadsPerBlock) && p.maxGridSize[0] == attribute(cudaDevAttrMaxGridDimX));
    TRUE(p.pciBusID == attribute(cudaDevAttrPciBusId) && p.persistingL2CacheMaxSize == attribute(cudaDevAttrMaxPersistingL2CacheSize));
    TRUE(p.unifiedAddressing == 1 && p.canMapHostMemory == 1 && attribute(cudaDevAttrMemoryPoolsSupported) == 1);
    size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total));
    TRUE(free > 0 && free <= total && total <= p.totalGlobalMem);
    char name[32];
    int found = -1;
    CHECK(cudaDeviceGetPCIBusId(name, sizeof name, 0));
    CHECK(cudaDeviceGetByPCIBusId(&found, name));
    TRUE(found == 0);
    TRUE(cudaDeviceGetByPCIBusId(&found, "0000:ff:1e.0") != cudaSuccess);
    cudaGetLastError();
    for (int k = 1; k < count; k++) {
        int can, rank;
        CHECK(cudaDeviceCanAccessPeer(&can, 0, k));
        CHECK(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, 0, k));
    }
    printf("attributes: the device right\n");
}

static void kernels() {
    cudaFuncAttributes a;
    CHECK(cudaFuncGetAttributes(&a, bounded));
    TRUE(a.sharedSizeBytes == 4096 && a.maxThreadsPerBlock == 128 && a.numRegs > 0 && a.binaryVersion >= 70);
    const char *name;
    CHECK(cudaFuncGetName(&name, (const void *)big));
    TRUE(strstr(name, "big") != nullptr);
    int least, block, blocks, *out, got;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &block, bounded, 0, 0));
    TRUE(least > 0 && block > 0 && block <= 128);
    CHECK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&least, &block, big, [](int threads) { return (size_t)threads * 16; }, 0));
    TRUE(least > 0 && block > 0 && block <= 1024);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 128, 0));
    TRUE(blocks >= 1 && blocks <= attribute(cudaDevAttrMaxBlocksPerMultiprocessor));
    size_t room;
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&room, big, 2, 256));
    TRUE(room > 0 && room <= 256 << 10);
    const int n = 24 << 10; // integers: more than a kernel has without asking
    CHECK(cudaMalloc((void **)&out, sizeof(int)));
    big<<<1, 256, n * sizeof(int)>>>(out, n);
    TRUE(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, n * (int)sizeof(int)));
    CHECK(cudaFuncSetAttribute(big, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    CHECK(cudaFuncSetCacheConfig(bounded, cudaFuncCachePreferShared));
    big<<<1, 256, n * sizeof(int)>>>(out, n);
    CHECK(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
    TRUE(got == n - 1);
    CHECK(cudaFuncGetAttributes(&a, big));
    TRUE(a.maxDynamicSharedSizeBytes == n * (int)sizeof(int));
    CHECK(cudaFree(out));
    printf("attributes: kernels right\n");
}

static void streams() {
    int low, high, got;
    unsigned flags;
    cudaStream_t a, b;
    CHECK(cudaDeviceGetStreamPriorityRange(&low, &high));
    TRUE(high <= low);
    CHECK(cudaStreamCreateWithPriority(&a, cudaStreamNonBlocking, high));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaStreamGetPriority(a, &got));
    TRUE(got == high);
    CHECK(cudaStreamGetFlags(a, &flags));
    TRUE(flags == cudaStreamNonBlocking);
    unsigned long long first, second;
    CHECK(cudaStreamGetId(a, &first));
    CHECK(cudaStreamGetId(b, &second));
    TRUE(first != second);
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    size_t set = 0, bytes = std::min(1 << 20, p.accessPolicyMaxWindowSize);
    int *v;
    CHECK(cudaMalloc((void **)&v, 1 << 20));
    CHECK(cudaMemset(v, 0, 1 << 20));
    if (p.persistingL2CacheMaxSize > 0) {
        CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, std::min(1 << 20, p.persistingL2CacheMaxSize)));
        CHECK(cudaDeviceGetLimit(&set, cudaLimitPersistingL2CacheSize));
        TRUE(set > 0);
        cudaStreamAttrValue value, back;
        memset(&value, 0, sizeof value);
        memset(&back, 0, sizeof back);
        value.accessPolicyWindow.base_ptr = v;
        value.accessPolicyWindow.num_bytes = bytes;
        value.accessPolicyWindow.hitRatio = 1.0f;
        value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
        value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
        CHECK(cudaStreamSetAttribute(a, cudaStreamAttributeAccessPolicyWindow, &value));
        CHECK(cudaStreamGetAttribute(a, cudaStreamAttributeAccessPolicyWindow, &back));
        TRUE(back.accessPolicyWindow.base_ptr == v && back.accessPolicyWindow.num_bytes == bytes);
        bounded<<<1, 128, 0, a>>>(v);
        CHECK(cudaStreamSynchronize(a));
        value.accessPolicyWindow.num_bytes = 0;
        CHECK(cudaStreamSetAttribute(a, cudaStreamAttributeAccessPolicyWindow, &value));
        CHECK(cudaCtxResetPersistingL2Cache());
    }
    cudaStreamAttrValue policy, copied;
    memset(&policy, 0, sizeof policy);
    memset(&copied, 0, sizeof copied);
    policy.syncPolicy = cudaSyncPolicyBlockingSync;
    CHECK(cudaStreamSetAttribute(a, cudaStreamAttributeSynchronizationPolicy, &policy));
    CHECK(cudaStreamCopyAttributes(b, a));
    CHECK(cudaStreamGetAttribute(b, cudaStreamAttributeSynchronizationPolicy, &copied));
    TRUE(copied.syncPolicy == cudaSyncPolicyBlockingSync);
    // One stream waits until a value is there, which the other writes.
    CHECK(cudaMemset(v, 0, 64));
    CHECK(cudaDeviceSynchronize());
    CUdeviceptr at = (CUdeviceptr)v;
    NEED(cuStreamWaitValue32(a, at, 3, CU_STREAM_WAIT_VALUE_GEQ));
    NEED(cuStreamWriteValue32(a, at + 16, 7, 0));
    NEED(cuStreamWriteValue32(b, at, 2, 0));
    CHECK(cudaStreamSynchronize(b));
    TRUE(cudaStreamQuery(a) == cudaErrorNotReady); // 2 is too little
    NEED(cuStreamWriteValue32(b, at, 3, 0));
    CHECK(cudaStreamSynchronize(a));
    CHECK(cudaStreamSynchronize(b));
    int values[5];
    CHECK(cudaMemcpy(values, v, sizeof values, cudaMemcpyDeviceToHost));
    TRUE(values[0] == 3 && values[4] == 7);
    CHECK(cudaFree(v));
    CHECK(cudaStreamDestroy(a));
    CHECK(cudaStreamDestroy(b));
    cudaGetLastError();
    printf("attributes: streams right\n");
}

static cudaMemoryType kind(const void *p, bool onDevice, bool onHost) {
    cudaPointerAttributes a;
    memset(&a, 0, sizeof a);
    CHECK(cudaPointerGetAttributes(&a, p));
    TRUE((a.devicePointer != nullptr) == onDevice && (a.hostPointer != nullptr) == onHost);
    if (onDevice) TRUE(a.device == 0);
    return a.type;
}

static void pointers() {
    int *d, *m, *h, local = 0;
    void *symbol;
    size_t size;
    std::vector<int> registered(1 << 16);
    CHECK(cudaMalloc((void **)&d, 4096));
    CHECK(cudaMallocManaged((void **)&m, 4096));
    CHECK(cudaMallocHost((void **)&h, 4096));
    CHECK(cudaHostRegister(registered.data(), registered.size() * sizeof(int), cudaHostRegisterMapped));
    CHECK(cudaGetSymbolAddress(&symbol, variable));
    CHECK(cudaGetSymbolSize(&size, variable));
    TRUE(size == sizeof(int));
    TRUE(kind(d + 100, true, false) == cudaMemoryTypeDevice);
    TRUE(kind(symbol, true, false) == cudaMemoryTypeDevice);
    TRUE(kind(m + 100, true, true) == cudaMemoryTypeManaged);
    TRUE(kind(h + 100, true, true) == cudaMemoryTypeHost);
    TRUE(kind(&registered[100], true, true) == cudaMemoryTypeHost);
    cudaPointerAttributes a;
    CHECK(cudaPointerGetAttributes(&a, &local));
    TRUE(a.type == cudaMemoryTypeUnregistered);
    CHECK(cudaHostUnregister(registered.data()));
    CHECK(cudaPointerGetAttributes(&a, registered.data()));
    TRUE(a.type == cudaMemoryTypeUnregistered);
    CHECK(cudaFree(d));
    CHECK(cudaFree(m));
    CHECK(cudaFreeHost(h));
    printf("attributes: pointers right\n");
}

static void errors() {
    void *p;
    bounded<<<1, 2048>>>(nullptr);
    TRUE(cudaPeekAtLastError() == cudaErrorInvalidValue || cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
    cudaError_t was = cudaPeekAtLastError();
    CHECK(cudaDeviceSynchronize()); // what goes well does not clear it
    TRUE(cudaGetLastError() == was && cudaGetLastError() == cudaSuccess);
    TRUE(cudaMalloc(&p, (size_t)1 << 50) == cudaErrorMemoryAllocation);
    TRUE(cudaSetDevice(99) == cudaErrorInvalidDevice);
    TRUE(cudaGetLastError() == cudaErrorInvalidDevice); // the last one
    TRUE(cudaMemcpy(nullptr, nullptr, 16, cudaMemcpyDeviceToDevice) != cudaSuccess);
    cudaGetLastError();
    TRUE(strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
    TRUE(strcmp(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument") == 0);
    printf("attributes: errors right\n");
}

static void reset() {
    int *v, got, was;
    CHECK(cudaMemcpyFromSymbol(&was, variable, sizeof was));
    TRUE(was != 17); // kernels counted
    CHECK(cudaMalloc((void **)&v, 1 << 20));
    CHECK(cudaDeviceReset());
    CHECK(cudaMemcpyFromSymbol(&got, variable, sizeof got));
    TRUE(got == 17); // loaded anew
    CHECK(cudaMalloc((void **)&v, 128 * sizeof(int)));
    CHECK(cudaMemset(v, 0, 128 * sizeof(int)));
    bounded<<<1, 128>>>(v);
    CHECK(cudaMemcpy(&got, v + 5, sizeof got, cudaMemcpyDeviceToHost));
    TRUE(got == 17);
    CHECK(cudaFree(v));
    printf("attributes: reset right\n");
}

int main() {
    setbuf(stdout, nullptr);
    device();
    kernels();
    streams();
    pointers();
    errors();
    reset();
    printf("attributes: right\n");
    return 0;
}
