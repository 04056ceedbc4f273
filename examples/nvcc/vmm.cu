// nvcc: -std=c++17 -lcuda
// Virtual memory of the driver API: a vector that grows in place,
// and one that a child process gets as a file descriptor over a socket.
#include <cuda.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"

__global__ void fill(int *v, size_t n, int what) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x) v[i] = what + (int)i;
}

static CUmemAllocationProp properties() {
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = 0;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return p;
}

static size_t granularity() {
    CUmemAllocationProp p = properties();
    size_t least, best;
    NEED(cuMemGetAllocationGranularity(&least, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    NEED(cuMemGetAllocationGranularity(&best, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    TRUE(least > 0 && best % least == 0);
    return best;
}

static void allow(CUdeviceptr at, size_t size, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    CUmemAccessDesc d;
    memset(&d, 0, sizeof d);
    d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    d.location.id = 0;
    d.flags = flags;
    NEED(cuMemSetAccess(at, size, &d, 1));
}

// Its address never changes: memory is mapped behind what is there.
struct Vector {
    CUdeviceptr at = 0;
    size_t room = 0, mapped = 0, unit = granularity();
    std::vector<size_t> pieces;
    explicit Vector(size_t most) {
        room = (most + unit - 1) / unit * unit;
        NEED(cuMemAddressReserve(&at, room, 0, 0, 0));
    }
    void grow(size_t bytes) {
        if (bytes <= mapped) return;
        size_t size = (bytes - mapped + unit - 1) / unit * unit;
        TRUE(mapped + size <= room);
        CUmemAllocationProp p = properties();
        CUmemGenericAllocationHandle h;
        NEED(cuMemCreate(&h, size, &p, 0));
        NEED(cuMemMap(at + mapped, size, 0, h, 0));
        NEED(cuMemRelease(h)); // the mapping holds it
        allow(at + mapped, size);
        mapped += size;
        pieces.push_back(size);
    }
    ~Vector() {
        size_t from = 0;
        for (size_t size : pieces) {
            NEED(cuMemUnmap(at + from, size));
            from += size;
        }
        NEED(cuMemAddressFree(at, room));
    }
};

static void growing() {
    Vector v(256 << 20);
    size_t done = 0; // integers
    for (size_t want = 1000; want * 4 <= 128 << 20; want *= 3) {
        v.grow(want * 4);
        fill<<<64, 256>>>((int *)v.at + done, want - done, (int)done);
        CHECK(cudaGetLastError());
        done = want;
    }
    std::vector<int> got(done);
    NEED(cuMemcpyDtoH(got.data(), v.at, done * 4));
    for (size_t i = 0; i < done; i++) TRUE(got[i] == (int)i);
    TRUE(v.pieces.size() > 2);
    printf("vmm: a vector that grows right, in %d pieces\n", (int)v.pieces.size());
}

static void sendDescriptor(int socket, int fd) {
    char byte = 1, control[CMSG_SPACE(sizeof fd)] = {};
    iovec part = {&byte, 1};
    msghdr m = {};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    TRUE(sendmsg(socket, &m, 0) == 1);
}

static int receiveDescriptor(int socket) {
    int fd;
    char byte, control[CMSG_SPACE(sizeof fd)] = {};
    iovec part = {&byte, 1};
    msghdr m = {};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    TRUE(recvmsg(socket, &m, 0) == 1);
    cmsghdr *c = CMSG_FIRSTHDR(&m);
    TRUE(c && c->cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static int child(int socket) {
    size_t size = granularity();
    int fd = receiveDescriptor(socket);
    CUmemGenericAllocationHandle h;
    CUdeviceptr at;
    NEED(cuMemImportFromShareableHandle(&h, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    NEED(cuMemAddressReserve(&at, size, 0, 0, 0));
    NEED(cuMemMap(at, size, 0, h, 0));
    NEED(cuMemRelease(h));
    allow(at, size);
    int seen;
    NEED(cuMemcpyDtoH(&seen, at + 40, sizeof seen));
    TRUE(seen == 110);
    fill<<<64, 256>>>((int *)at, size / 4, 200);
    CHECK(cudaDeviceSynchronize());
    NEED(cuMemUnmap(at, size));
    NEED(cuMemAddressFree(at, size));
    return 0;
}

static void shared() {
    int ends[2], fd, status;
    size_t size = granularity();
    CUmemAllocationProp p = properties();
    CUmemGenericAllocationHandle h;
    CUdeviceptr at;
    NEED(cuMemCreate(&h, size, &p, 0));
    NEED(cuMemAddressReserve(&at, size, 0, 0, 0));
    NEED(cuMemMap(at, size, 0, h, 0));
    allow(at, size);
    fill<<<64, 256>>>((int *)at, size / 4, 100);
    CHECK(cudaDeviceSynchronize());
    NEED(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    std::string end = std::to_string(ends[1]);
    pid_t pid = fork();
    TRUE(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "vmm", end.c_str(), (char *)nullptr);
        _exit(127);
    }
    close(ends[1]);
    sendDescriptor(ends[0], fd);
    close(fd);
    TRUE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::vector<int> got(size / 4);
    NEED(cuMemcpyDtoH(got.data(), at, size));
    for (size_t i = 0; i < got.size(); i++) TRUE(got[i] == (int)i + 200);
    NEED(cuMemUnmap(at, size));
    NEED(cuMemRelease(h));
    NEED(cuMemAddressFree(at, size));
    close(ends[0]);
    printf("vmm: shared with a child right\n");
}

int main(int argc, char **argv) {
    setbuf(stdout, nullptr);
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr)); // the primary context is current
    int has = 0;
    NEED(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    TRUE(has);
    if (argc == 2) return child(atoi(argv[1]));
    growing();
    CHECK(cudaDeviceSynchronize());
    shared();
    printf("vmm: right\n");
    return 0;
}
