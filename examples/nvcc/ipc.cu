// Memory and events that child processes open by the handles their parent sends. The children
// are this program again, with an argument.
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "check.h"

static const int N = 1 << 18, CHILDREN = 3;

struct Handles {
    cudaIpcMemHandle_t memory, part;
    cudaIpcEventHandle_t ready, done;
};

__global__ void fill(int *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = i;
}

// Each child has every third element.
__global__ void add(int *v, int n, int which) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i % CHILDREN == which) v[i] += 1000000 * (which + 1);
}

static int child(int which) {
    Handles h;
    TRUE(read(0, &h, sizeof h) == sizeof h);
    cudaEvent_t ready, done;
    int *v, *same, *part, first;
    CHECK(cudaIpcOpenMemHandle((void **)&v, h.memory, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenMemHandle((void **)&same, h.memory, cudaIpcMemLazyEnablePeerAccess));
    TRUE(v == same); // opened twice, mapped once
    CHECK(cudaIpcOpenMemHandle((void **)&part, h.part, cudaIpcMemLazyEnablePeerAccess));
    CHECK(cudaIpcOpenEventHandle(&ready, h.ready));
    CHECK(cudaIpcOpenEventHandle(&done, h.done));
    cudaStream_t s;
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaStreamWaitEvent(s, ready, 0));
    add<<<(N + 255) / 256, 256, 0, s>>>(v, N, which);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(&first, part, sizeof first, cudaMemcpyDeviceToHost, s));
    if (which == 0) CHECK(cudaEventRecord(done, s));
    CHECK(cudaStreamSynchronize(s));
    TRUE(first == 4242);
    CHECK(cudaIpcCloseMemHandle(v));
    CHECK(cudaIpcCloseMemHandle(same));
    CHECK(cudaIpcCloseMemHandle(part));
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaEventDestroy(done));
    return 0;
}

int main(int argc, char **argv) {
    setbuf(stdout, nullptr);
    if (argc == 2) return child(atoi(argv[1]));
    int *v, *second, value = 4242;
    Handles h;
    cudaEvent_t ready, done;
    CHECK(cudaMalloc((void **)&v, N * sizeof(int)));
    CHECK(cudaMalloc((void **)&second, 4 << 20));
    CHECK(cudaMemcpy(second, &value, sizeof value, cudaMemcpyHostToDevice));
    CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaIpcGetMemHandle(&h.memory, v));
    CHECK(cudaIpcGetMemHandle(&h.part, second));
    CHECK(cudaIpcGetEventHandle(&h.ready, ready));
    CHECK(cudaIpcGetEventHandle(&h.done, done));
    fill<<<(N + 255) / 256, 256>>>(v, N);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(ready, 0));
    pid_t pids[CHILDREN];
    for (int k = 0; k < CHILDREN; k++) {
        int ends[2];
        TRUE(pipe(ends) == 0);
        std::string which = std::to_string(k);
        pids[k] = fork();
        TRUE(pids[k] >= 0);
        if (pids[k] == 0) {
            dup2(ends[0], 0);
            close(ends[1]);
            execl("/proc/self/exe", "ipc", which.c_str(), (char *)nullptr);
            _exit(127);
        }
        close(ends[0]);
        TRUE(write(ends[1], &h, sizeof h) == sizeof h);
        close(ends[1]);
    }
    for (int k = 0; k < CHILDREN; k++) {
        int status;
        TRUE(waitpid(pids[k], &status, 0) == pids[k]);
        TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(cudaEventSynchronize(done)); // the first child recorded it
    CHECK(cudaStreamWaitEvent(0, done, 0));
    std::vector<int> got(N);
    CHECK(cudaMemcpy(got.data(), v, N * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) TRUE(got[i] == i + 1000000 * (i % CHILDREN + 1));
    // A handle is for other processes.
    int *mine;
    TRUE(cudaIpcOpenMemHandle((void **)&mine, h.memory, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
    cudaGetLastError();
    CHECK(cudaFree(v));
    CHECK(cudaFree(second));
    CHECK(cudaEventDestroy(ready));
    CHECK(cudaEventDestroy(done));
    printf("ipc: right, with %d children\n", CHILDREN);
    return 0;
}
