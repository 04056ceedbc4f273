// nvcc: -std=c++17 -rdc=true -lcudadevrt
// refused: a graph that kernels launch
// Graphs that kernels launch: at once (fire and forget), after the graph that launches (tail),
// and a graph that launches itself again until it has had enough.
#include "check.h"

#include <initializer_list>

__global__ void add(int *v, int what) { atomicAdd(v, what); }

__global__ void dispatch(cudaGraphExec_t *graphs, const int *which, int n, int *refused) {
    for (int i = 0; i < n; i++)
        if (cudaGraphLaunch(graphs[which[i]], cudaStreamGraphFireAndForget) != cudaSuccess) ++*refused;
}

__global__ void afterwards(cudaGraphExec_t next, int *v, int *seen, int *refused) {
    *v = 5; // the tail must find it so, and what comes after this kernel in the graph too
    if (cudaGraphLaunch(next, cudaStreamGraphTailLaunch) != cudaSuccess) ++*refused;
    *seen = 0;
}

__global__ void copyTo(int *to, const int *from) { *to = *from; }

__global__ void again(int *count, int most, int *refused) {
    if (++*count < most)
        if (cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch) != cudaSuccess) ++*refused;
}

static cudaStream_t s;

static int read(const int *p) {
    int v;
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaMemcpy(&v, p, sizeof v, cudaMemcpyDeviceToHost));
    return v;
}

static cudaGraphExec_t finish(unsigned flags) {
    cudaGraph_t g;
    cudaGraphExec_t e;
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaGraphInstantiate(&e, g, flags));
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) CHECK(cudaGraphUpload(e, s));
    CHECK(cudaStreamSynchronize(s));
    CHECK(cudaGraphDestroy(g));
    return e;
}

static void begin() { CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal)); }

int main() {
    setbuf(stdout, nullptr);
    CHECK(cudaStreamCreate(&s));
    int *v; // the sum, what the tail saw, the rounds, refused launches
    CHECK(cudaMalloc((void **)&v, 4 * sizeof(int)));
    CHECK(cudaMemset(v, 0, 4 * sizeof(int)));

    // A table of graphs, of which the device chooses.
    cudaGraphExec_t table[3], *onDevice;
    for (int k = 0, by = 1; k < 3; k++, by *= 10) {
        begin();
        add<<<1, 1, 0, s>>>(v, by);
        add<<<1, 1, 0, s>>>(v, by);
        table[k] = finish(cudaGraphInstantiateFlagDeviceLaunch);
    }
    int order[] = {2, 0, 1}, *orderOnDevice; // each once: one graph is launched anew only after its end
    CHECK(cudaMalloc((void **)&onDevice, sizeof table));
    CHECK(cudaMalloc((void **)&orderOnDevice, sizeof order));
    CHECK(cudaMemcpy(onDevice, table, sizeof table, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(orderOnDevice, order, sizeof order, cudaMemcpyHostToDevice));
    begin();
    dispatch<<<1, 1, 0, s>>>(onDevice, orderOnDevice, 3, v + 3);
    cudaGraphExec_t dispatcher = finish(0);
    CHECK(cudaGraphLaunch(dispatcher, s));
    TRUE(read(v) == 222);
    CHECK(cudaGraphLaunch(dispatcher, s));
    CHECK(cudaGraphLaunch(dispatcher, s));
    TRUE(read(v) == 666);
    CHECK(cudaGraphLaunch(table[1], s)); // the host may launch it too
    TRUE(read(v) == 686);
    printf("devicegraph: fire and forget right\n");

    begin();
    copyTo<<<1, 1, 0, s>>>(v + 1, v);
    cudaGraphExec_t tail = finish(cudaGraphInstantiateFlagDeviceLaunch);
    begin();
    afterwards<<<1, 1, 0, s>>>(tail, v, v + 1, v + 3);
    add<<<1, 1, 0, s>>>(v, 100);
    cudaGraphExec_t head = finish(0);
    CHECK(cudaGraphLaunch(head, s));
    TRUE(read(v + 1) == 105); // after all of the graph, not after the kernel
    printf("devicegraph: tail launch right\n");

    begin();
    again<<<1, 1, 0, s>>>(v + 2, 50, v + 3);
    cudaGraphExec_t self = finish(cudaGraphInstantiateFlagDeviceLaunch);
    CHECK(cudaGraphLaunch(self, s));
    TRUE(read(v + 2) == 50);
    CHECK(cudaMemset(v + 2, 0, sizeof(int)));
    CHECK(cudaGraphLaunch(self, s));
    TRUE(read(v + 2) == 50);
    printf("devicegraph: launching itself right\n");

    TRUE(read(v + 3) == 0);
    for (cudaGraphExec_t e : {table[0], table[1], table[2], dispatcher, tail, head, self}) CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaStreamDestroy(s));
    printf("devicegraph: right\n");
    return 0;
}
