// Host memory of every kind: mapped, registered, portable, write-combined and pageable, read
// and written by kernels and by copies; a kernel and the host that talk while it runs; copies
// of rectangles and boxes, and in batches.
#include "check.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

static const int N = 1 << 18;

__global__ void add(int *to, const int *from, int n, int what) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + what;
}

static void launch(int *to, const int *from, int n, int what, cudaStream_t s = 0) {
    add<<<(n + 255) / 256, 256, 0, s>>>(to, from, n, what);
    CHECK(cudaGetLastError());
}

static void zeroCopy() {
    int *in, *out, *din, *dout;
    unsigned flags;
    CHECK(cudaHostAlloc((void **)&in, N * sizeof(int), cudaHostAllocMapped | cudaHostAllocWriteCombined));
    CHECK(cudaHostAlloc((void **)&out, N * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
    CHECK(cudaHostGetFlags(&flags, out));
    TRUE((flags & cudaHostAllocMapped) && (flags & cudaHostAllocPortable));
    CHECK(cudaHostGetDevicePointer((void **)&din, in, 0));
    CHECK(cudaHostGetDevicePointer((void **)&dout, out, 0));
    for (int i = 0; i < N; i++) in[i] = 3 * i;
    for (int round = 1; round <= 3; round++) {
        launch(dout, din, N, round);
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < N; i++) TRUE(out[i] == 3 * i + round);
    }
    launch(dout + 7, din, 1000, 5); // from the middle, and the rest stays
    CHECK(cudaDeviceSynchronize());
    TRUE(out[6] == 18 + 3 && out[7] == 5 && out[1006] == 3 * 999 + 5 && out[1007] == 3 * 1007 + 3);
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
    printf("hostmem: zero-copy right\n");
}

static void registered() {
    std::vector<int> plain(N), mapped(N);
    int *dmapped, *d;
    for (int i = 0; i < N; i++) plain[i] = i, mapped[i] = -i;
    CHECK(cudaHostRegister(plain.data(), N * sizeof(int), cudaHostRegisterDefault));
    CHECK(cudaHostRegister(mapped.data(), N * sizeof(int), cudaHostRegisterMapped | cudaHostRegisterPortable));
    TRUE(cudaHostRegister(mapped.data(), N * sizeof(int), 0) == cudaErrorHostMemoryAlreadyRegistered);
    TRUE(cudaGetLastError() == cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaHostGetDevicePointer((void **)&dmapped, mapped.data(), 0));
    CHECK(cudaMalloc((void **)&d, N * sizeof(int)));
    CHECK(cudaMemcpyAsync(d, plain.data(), N * sizeof(int), cudaMemcpyHostToDevice));
    launch(dmapped, d, N, 11);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < N; i++) TRUE(mapped[i] == i + 11);
    CHECK(cudaHostUnregister(plain.data()));
    CHECK(cudaHostUnregister(mapped.data()));
    TRUE(cudaHostUnregister(plain.data()) == cudaErrorHostMemoryNotRegistered);
    cudaGetLastError();
    CHECK(cudaMemcpy(mapped.data(), d, N * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) TRUE(mapped[i] == i);
    CHECK(cudaFree(d));
    printf("hostmem: registered right\n");
}

static const int ROUNDS = 50;

// The host writes 2k+1 into box[0], the kernel answers with 2k+2 in box[1]. Nobody waits
// longer than about 20 s of clock ticks.
__global__ void converse(volatile int *box, int *answered) {
    long long start = clock64();
    for (int k = 0; k < ROUNDS; k++) {
        while (box[0] != 2 * k + 1)
            if (clock64() - start > 30000000000ll) return;
        __threadfence_system();
        box[2 + k] = box[0] * 100;
        __threadfence_system();
        atomicExch_system((int *)&box[1], 2 * k + 2);
        *answered = k + 1;
    }
}

static void flags() {
    int *box, *answered, got;
    CHECK(cudaHostAlloc((void **)&box, (2 + ROUNDS) * sizeof(int), cudaHostAllocMapped));
    memset(box, 0, (2 + ROUNDS) * sizeof(int));
    CHECK(cudaMalloc((void **)&answered, sizeof(int)));
    CHECK(cudaMemset(answered, 0, sizeof(int)));
    converse<<<1, 1>>>(box, answered); // one address space: the host's pointer will do
    CHECK(cudaGetLastError());
    auto start = std::chrono::steady_clock::now();
    bool late = false;
    for (int k = 0; k < ROUNDS && !late; k++) {
        __atomic_store_n(&box[0], 2 * k + 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&box[1], __ATOMIC_SEQ_CST) != 2 * k + 2 && !late) {
            late = std::chrono::steady_clock::now() - start > std::chrono::seconds(20);
            std::this_thread::yield();
        }
    }
    CHECK(cudaMemcpy(&got, answered, sizeof got, cudaMemcpyDeviceToHost));
    TRUE(!late && got == ROUNDS);
    for (int k = 0; k < ROUNDS; k++) TRUE(box[2 + k] == (2 * k + 1) * 100);
    CHECK(cudaFree(answered));
    CHECK(cudaFreeHost(box));
    printf("hostmem: a kernel and the host talk\n");
}

static void overlapped() {
    const int streams = 4, part = N / streams;
    cudaStream_t s[streams];
    int *pinned, *d;
    std::vector<int> pageable(N);
    CHECK(cudaMallocHost((void **)&pinned, N * sizeof(int)));
    CHECK(cudaMalloc((void **)&d, N * sizeof(int)));
    for (int i = 0; i < N; i++) pinned[i] = i, pageable[i] = 5 * i;
    for (auto &each : s) CHECK(cudaStreamCreate(&each));
    for (int k = 0; k < streams; k++) {
        int *h = pinned + k * part, *on = d + k * part;
        CHECK(cudaMemcpyAsync(on, h, part * sizeof(int), cudaMemcpyHostToDevice, s[k]));
        launch(on, on, part, k, s[k]);
        CHECK(cudaMemcpyAsync(h, on, part * sizeof(int), cudaMemcpyDeviceToHost, s[k]));
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < N; i++) TRUE(pinned[i] == i + i / part);
    // Pageable memory may be written again as soon as the call is back.
    CHECK(cudaMemcpyAsync(d, pageable.data(), N * sizeof(int), cudaMemcpyHostToDevice, s[0]));
    memset(pageable.data(), 0, N * sizeof(int));
    launch(d, d, N, 1, s[0]);
    CHECK(cudaMemcpyAsync(pageable.data(), d, N * sizeof(int), cudaMemcpyDeviceToHost, s[0]));
    CHECK(cudaStreamSynchronize(s[0]));
    for (int i = 0; i < N; i++) TRUE(pageable[i] == 5 * i + 1);
    for (auto &each : s) CHECK(cudaStreamDestroy(each));
    CHECK(cudaFree(d));
    CHECK(cudaFreeHost(pinned));
    printf("hostmem: overlapped copies right\n");
}

static void shapes() {
    const int W = 50, H = 20, D = 6; // ints
    char *d;
    size_t pitch;
    CHECK(cudaMallocPitch((void **)&d, &pitch, W * 4, H));
    TRUE(pitch >= W * 4 && pitch % 4 == 0);
    std::vector<int> in(W * H), out(W * H, -1);
    for (int i = 0; i < W * H; i++) in[i] = i;
    CHECK(cudaMemcpy2D(d, pitch, in.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice));
    CHECK(cudaMemset2D(d + 2 * pitch + 12, pitch, 0, 8, 3)); // two columns of three rows
    CHECK(cudaMemcpy2DAsync(out.data(), W * 4, d, pitch, W * 4, H, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(0));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) TRUE(out[y * W + x] == ((x == 3 || x == 4) && y >= 2 && y < 5 ? 0 : y * W + x));
    cudaPitchedPtr box;
    CHECK(cudaMalloc3D(&box, make_cudaExtent(W * 4, H, D)));
    CHECK(cudaMemset3D(box, 0, make_cudaExtent(W * 4, H, D)));
    std::vector<int> solid(W * H * D), back(W * H * D, -1);
    for (size_t i = 0; i < solid.size(); i++) solid[i] = (int)i + 1;
    cudaMemcpy3DParms p;
    memset(&p, 0, sizeof p); // the box from (4,5,1), of 10 by 6 by 3, at (0,2,2)
    p.srcPtr = make_cudaPitchedPtr(solid.data(), W * 4, W, H);
    p.srcPos = make_cudaPos(4 * 4, 5, 1);
    p.dstPtr = box;
    p.dstPos = make_cudaPos(0, 2, 2);
    p.extent = make_cudaExtent(10 * 4, 6, 3);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    memset(&p, 0, sizeof p);
    p.srcPtr = box;
    p.dstPtr = make_cudaPitchedPtr(back.data(), W * 4, W, H);
    p.extent = make_cudaExtent(W * 4, H, D);
    p.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3DAsync(&p, 0));
    CHECK(cudaDeviceSynchronize());
    for (int z = 0; z < D; z++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                bool in = x < 10 && y >= 2 && y < 8 && z >= 2 && z < 5;
                TRUE(back[(z * H + y) * W + x] == (in ? solid[((z - 1) * H + y + 3) * W + x + 4] : 0));
            }
    int *a, *b;
    CHECK(cudaMalloc((void **)&a, W * 4));
    CHECK(cudaMalloc((void **)&b, W * 4));
    CHECK(cudaMemcpy(a, in.data(), W * 4, cudaMemcpyDefault));
    CHECK(cudaMemcpyPeer(b, 0, a, 0, W * 4));
    CHECK(cudaMemcpyPeerAsync(a, 0, b, 0, W * 2, 0));
    CHECK(cudaMemcpy(out.data(), b, W * 4, cudaMemcpyDefault));
    for (int i = 0; i < W; i++) TRUE(out[i] == i);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(d));
    CHECK(cudaFree(box.ptr));
    printf("hostmem: rectangles, boxes and peers right\n");
}

static void batch() {
    const int copies = 8, n = 1000;
    cudaStream_t s;
    CHECK(cudaStreamCreate(&s)); // batches are refused on the default stream
    int *pinned, *d;
    CHECK(cudaMallocHost((void **)&pinned, 2 * copies * n * sizeof(int)));
    CHECK(cudaMalloc((void **)&d, copies * n * sizeof(int)));
    for (int i = 0; i < copies * n; i++) pinned[i] = i, pinned[copies * n + i] = 0;
    for (int way = 0; way < 2; way++) { // onto the device in reverse order, and back as it is
        std::vector<const void *> to(copies), from(copies);
        std::vector<size_t> sizes(copies, n * sizeof(int));
        for (int k = 0; k < copies; k++) {
            to[k] = way == 0 ? d + k * n : pinned + (copies + k) * n;
            from[k] = way == 0 ? pinned + (copies - 1 - k) * n : d + k * n;
        }
        cudaMemcpyAttributes how;
        memset(&how, 0, sizeof how);
        how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        size_t first = 0;
        CHECK(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), copies, &how, &first, 1, s));
    }
    CHECK(cudaStreamSynchronize(s));
    for (int k = 0; k < copies; k++)
        for (int i = 0; i < n; i++) TRUE(pinned[(copies + k) * n + i] == (copies - 1 - k) * n + i);
    CHECK(cudaStreamDestroy(s));
    CHECK(cudaFree(d));
    CHECK(cudaFreeHost(pinned));
    printf("hostmem: batches right\n");
}

int main() {
    setbuf(stdout, nullptr);
    zeroCopy();
    registered();
    overlapped();
    shapes();
    batch();
    flags();
    printf("hostmem: right\n");
    return 0;
}
