// Memory allocated and freed in the order of streams: from the device's pool, from pools of
// the program's own with their attributes and statistics, and from a pool that a child
// process shares by a file descriptor.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"

static const size_t MB = 1 << 20;

__global__ void fill(int *v, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = what + i;
}

__global__ void add(int *v, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] += what;
}

static uint64_t about(cudaMemPool_t pool, cudaMemPoolAttr which) {
    uint64_t v = 0;
    CHECK(cudaMemPoolGetAttribute(pool, which, &v));
    return v;
}

static cudaMemPoolProps properties(cudaMemAllocationHandleType shared) {
    cudaMemPoolProps p;
    memset(&p, 0, sizeof p);
    p.allocType = cudaMemAllocationTypePinned;
    p.handleTypes = shared;
    p.location.type = cudaMemLocationTypeDevice;
    p.location.id = 0;
    return p;
}

static void ofDevice() {
    const int n = 100000, rounds = 30;
    cudaMemPool_t pool, current;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    TRUE(pool == current);
    cudaStream_t s[2];
    cudaEvent_t done;
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (auto &each : s) CHECK(cudaStreamCreate(&each));
    std::vector<int> got(n);
    for (int r = 0; r < rounds; r++) {
        int *v, *extra;
        CHECK(cudaMallocAsync((void **)&v, n * sizeof(int), s[0]));
        CHECK(cudaMallocAsync((void **)&extra, (r + 1) * 4096, s[0]));
        fill<<<(n + 255) / 256, 256, 0, s[0]>>>(v, n, r);
        CHECK(cudaFreeAsync(extra, s[0]));
        CHECK(cudaEventRecord(done, s[0]));
        CHECK(cudaStreamWaitEvent(s[1], done, 0)); // used and freed by another stream
        add<<<(n + 255) / 256, 256, 0, s[1]>>>(v, n, 1000);
        CHECK(cudaMemcpyAsync(got.data(), v, n * sizeof(int), cudaMemcpyDeviceToHost, s[1]));
        CHECK(cudaFreeAsync(v, s[1]));
        CHECK(cudaStreamSynchronize(s[1]));
        for (int i = 0; i < n; i++) TRUE(got[i] == r + 1000 + i);
    }
    CHECK(cudaDeviceSynchronize());
    TRUE(about(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
    TRUE(about(pool, cudaMemPoolAttrUsedMemHigh) >= n * sizeof(int));
    int *plain; // either kind may be freed by the other's function
    CHECK(cudaMallocAsync((void **)&plain, 4096, s[0]));
    CHECK(cudaStreamSynchronize(s[0]));
    CHECK(cudaFree(plain));
    CHECK(cudaMalloc((void **)&plain, 4096));
    CHECK(cudaFreeAsync(plain, s[0]));
    CHECK(cudaStreamSynchronize(s[0]));
    for (auto &each : s) CHECK(cudaStreamDestroy(each));
    CHECK(cudaEventDestroy(done));
    printf("pools: the device's pool right\n");
}

static void ofProgram() {
    cudaMemPoolProps p = properties(cudaMemHandleTypeNone);
    cudaMemPool_t pool, standard;
    cudaStream_t s;
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaMemPoolCreate(&pool, &p));
    uint64_t keep = UINT64_MAX;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    TRUE(about(pool, cudaMemPoolAttrReleaseThreshold) == UINT64_MAX);
    for (cudaMemPoolAttr which : {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic, cudaMemPoolReuseAllowInternalDependencies}) {
        int flag = -1, off = 0;
        CHECK(cudaMemPoolGetAttribute(pool, which, &flag));
        TRUE(flag == 1);
        CHECK(cudaMemPoolSetAttribute(pool, which, &off));
        CHECK(cudaMemPoolGetAttribute(pool, which, &flag));
        TRUE(flag == 0);
    }
    void *a, *b, *again;
    CHECK(cudaMallocFromPoolAsync(&a, 64 * MB, pool, s));
    CHECK(cudaMallocFromPoolAsync(&b, 32 * MB, pool, s));
    TRUE(about(pool, cudaMemPoolAttrUsedMemCurrent) >= 96 * MB && about(pool, cudaMemPoolAttrReservedMemCurrent) >= 96 * MB);
    CHECK(cudaFreeAsync(a, s));
    CHECK(cudaStreamSynchronize(s));
    uint64_t used = about(pool, cudaMemPoolAttrUsedMemCurrent);
    TRUE(used >= 32 * MB && used < 96 * MB);
    CHECK(cudaMallocFromPoolAsync(&again, 64 * MB, pool, s)); // what is kept is used again
    TRUE(about(pool, cudaMemPoolAttrReservedMemHigh) < 160 * MB);
    CHECK(cudaFreeAsync(again, s));
    CHECK(cudaFreeAsync(b, s));
    CHECK(cudaStreamSynchronize(s));
    TRUE(about(pool, cudaMemPoolAttrUsedMemCurrent) == 0 && about(pool, cudaMemPoolAttrReservedMemCurrent) >= 96 * MB);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    TRUE(about(pool, cudaMemPoolAttrReservedMemCurrent) == 0);
    uint64_t zero = 0;
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
    TRUE(about(pool, cudaMemPoolAttrUsedMemHigh) == 0);
    // As the device's pool, for a while.
    CHECK(cudaDeviceSetMemPool(0, pool));
    CHECK(cudaMallocAsync(&a, MB, s));
    TRUE(about(pool, cudaMemPoolAttrUsedMemCurrent) >= MB);
    CHECK(cudaFreeAsync(a, s));
    CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
    CHECK(cudaDeviceSetMemPool(0, standard));
    cudaMemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = p.location;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    cudaMemAccessFlags flags;
    CHECK(cudaMemPoolGetAccess(&flags, pool, &access.location));
    TRUE(flags == cudaMemAccessFlagsProtReadWrite);
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaStreamDestroy(s));
    printf("pools: a pool of its own right\n");
}

static const int SHARED = 50000;

// The child: adds 1 to each of the shared integers.
static int child(int fd, int data) {
    cudaMemPool_t pool;
    cudaMemPoolPtrExportData exported;
    TRUE(read(data, &exported, sizeof exported) == sizeof exported);
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, cudaMemHandleTypePosixFileDescriptor, 0));
    close(fd);
    cudaMemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = cudaMemLocationTypeDevice;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    CHECK(cudaMemPoolSetAccess(pool, &access, 1));
    int *v;
    CHECK(cudaMemPoolImportPointer((void **)&v, pool, &exported));
    add<<<(SHARED + 255) / 256, 256>>>(v, SHARED, 1);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFreeAsync(v, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolDestroy(pool));
    return 0;
}

static void shared() {
    int kinds = 0, fd = -1, data[2], status, *v;
    CHECK(cudaDeviceGetAttribute(&kinds, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
    if (!(kinds & cudaMemHandleTypePosixFileDescriptor)) {
        printf("pools: sharing skipped: pools have no file descriptors here\n");
        return;
    }
    cudaMemPoolProps p = properties(cudaMemHandleTypePosixFileDescriptor);
    cudaMemPool_t pool;
    cudaMemPoolPtrExportData exported;
    CHECK(cudaMemPoolCreate(&pool, &p));
    CHECK(cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(cudaMallocFromPoolAsync((void **)&v, SHARED * sizeof(int), pool, 0));
    fill<<<(SHARED + 255) / 256, 256>>>(v, SHARED, 7);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolExportPointer(&exported, v));
    TRUE(pipe(data) == 0 && write(data[1], &exported, sizeof exported) == sizeof exported);
    std::string first = std::to_string(dup(fd)), second = std::to_string(data[0]); // what dup gives outlives exec
    pid_t pid = fork();
    TRUE(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "pools", first.c_str(), second.c_str(), (char *)nullptr);
        _exit(127);
    }
    TRUE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::vector<int> got(SHARED);
    CHECK(cudaMemcpy(got.data(), v, SHARED * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < SHARED; i++) TRUE(got[i] == i + 8);
    CHECK(cudaFreeAsync(v, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemPoolDestroy(pool));
    close(fd);
    printf("pools: shared with a child right\n");
}

int main(int argc, char **argv) {
    setbuf(stdout, nullptr);
    if (argc == 3) return child(atoi(argv[1]), atoi(argv[2]));
    int has = 0;
    CHECK(cudaDeviceGetAttribute(&has, cudaDevAttrMemoryPoolsSupported, 0));
    TRUE(has);
    ofDevice();
    ofProgram();
    shared();
    printf("pools: right\n");
    return 0;
}
