// nvcc: -std=c++17
// Graphs: captured from streams that fork and join, built node by node, with memory of their
// own, cloned, updated as a whole and by node, and launched often.
#include "check.h"

#include <cstring>
#include <vector>

static const int N = 1 << 14;

__global__ void fill(int *v, int n, int from, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = from + by * i;
}

__global__ void add(int *to, const int *a, const int *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += a[i] + b[i];
}

static int *a, *b, *c, *out; // three on the device, and pinned memory
static cudaStream_t s, other;

static void count(void *p) { ++*(int *)p; }

static void launch(cudaGraphExec_t e, int times) {
    for (int t = 0; t < times; t++) CHECK(cudaGraphLaunch(e, s));
    CHECK(cudaStreamSynchronize(s));
}

static cudaGraph_t captured(int from, int *called) {
    cudaEvent_t fork, join;
    cudaGraph_t g, inside;
    cudaStreamCaptureStatus status;
    unsigned long long id;
    const cudaGraphNode_t *last;
    const cudaGraphEdgeData *edges;
    size_t many;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaEventRecord(fork, s));
    CHECK(cudaStreamWaitEvent(other, fork, 0));
    fill<<<N / 128, 128, 0, s>>>(a, N, from, 1);
    fill<<<N / 128, 128, 0, other>>>(b, N, 0, 2);
    CHECK(cudaMemsetAsync(c, 0, N * sizeof(int), other));
    CHECK(cudaStreamIsCapturing(other, &status));
    TRUE(status == cudaStreamCaptureStatusActive);
    CHECK(cudaEventRecord(join, other));
    CHECK(cudaStreamWaitEvent(s, join, 0));
    CHECK(cudaStreamGetCaptureInfo(s, &status, &id, &inside, &last, &edges, &many));
    TRUE(status == cudaStreamCaptureStatusActive && id != 0 && many == 2); // the kernel and the memset
    add<<<N / 128, 128, 0, s>>>(c, a, b, N);
    CHECK(cudaMemcpyAsync(out, c, N * sizeof(int), cudaMemcpyDeviceToHost, s));
    if (called) CHECK(cudaLaunchHostFunc(s, count, called));
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    return g;
}

static void capture() {
    int called = 0;
    cudaGraph_t g = captured(10, &called), changed = captured(50, &called), wrong = captured(0, nullptr);
    size_t nodes, roots, edges;
    CHECK(cudaGraphGetNodes(g, nullptr, &nodes));
    CHECK(cudaGraphGetRootNodes(g, nullptr, &roots));
    CHECK(cudaGraphGetEdges(g, nullptr, nullptr, nullptr, &edges));
    TRUE(nodes == 6 && roots == 2 && edges == 5);
    cudaGraphExec_t e;
    CHECK(cudaGraphInstantiate(&e, g, 0));
    memset(out, 0, N * sizeof(int));
    CHECK(cudaGraphUpload(e, s));
    launch(e, 20);
    for (int i = 0; i < N; i++) TRUE(out[i] == 10 + 3 * i);
    TRUE(called == 20);
    cudaGraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    CHECK(cudaGraphExecUpdate(e, changed, &info));
    TRUE(info.result == cudaGraphExecUpdateSuccess);
    launch(e, 2);
    for (int i = 0; i < N; i++) TRUE(out[i] == 50 + 3 * i);
    TRUE(cudaGraphExecUpdate(e, wrong, &info) == cudaErrorGraphExecUpdateFailure);
    TRUE(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    cudaGetLastError();
    launch(e, 1); // as it was
    for (int i = 0; i < N; i++) TRUE(out[i] == 50 + 3 * i);
    TRUE(called == 23);
    CHECK(cudaGraphExecDestroy(e));
    for (cudaGraph_t each : {g, changed, wrong}) CHECK(cudaGraphDestroy(each));
    printf("graphs: captured and updated right\n");
}

static cudaGraphNode_t kernel(cudaGraph_t g, std::vector<cudaGraphNode_t> after, void *f, void **args) {
    cudaKernelNodeParams p = {};
    p.func = f;
    p.gridDim = dim3(N / 128);
    p.blockDim = dim3(128);
    p.kernelParams = args;
    cudaGraphNode_t n;
    CHECK(cudaGraphAddKernelNode(&n, g, after.data(), after.size(), &p));
    return n;
}

static void byHand() {
    cudaGraph_t g, inner;
    CHECK(cudaGraphCreate(&g, 0));
    CHECK(cudaGraphCreate(&inner, 0));
    int n = N, from = 7, by = 1, zero = 0, called = 0;
    void *fillArgs[] = {&a, &n, &from, &by}, *childArgs[] = {&b, &n, &zero, &by}, *addArgs[] = {&c, &a, &b, &n};
    cudaGraphNode_t first = kernel(g, {}, (void *)fill, fillArgs), set, child, sum, copy, host, record, wait, empty;
    kernel(inner, {}, (void *)fill, childArgs);
    CHECK(cudaGraphAddChildGraphNode(&child, g, nullptr, 0, inner));
    cudaMemsetParams m = {};
    m.dst = c;
    m.value = 1000;
    m.elementSize = 4;
    m.width = N;
    m.height = 1;
    CHECK(cudaGraphAddMemsetNode(&set, g, nullptr, 0, &m));
    cudaGraphNode_t three[] = {first, set, child};
    CHECK(cudaGraphAddEmptyNode(&empty, g, three, 3));
    sum = kernel(g, {empty}, (void *)add, addArgs);
    CHECK(cudaGraphAddMemcpyNode1D(&copy, g, nullptr, 0, out, c, N * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddDependencies(g, &sum, &copy, nullptr, 1));
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(cudaGraphAddEventRecordNode(&record, g, &copy, 1, event));
    CHECK(cudaGraphAddEventWaitNode(&wait, g, &record, 1, event));
    cudaHostNodeParams h = {};
    h.fn = count;
    h.userData = &called;
    CHECK(cudaGraphAddHostNode(&host, g, &wait, 1, &h));
    cudaGraphNodeType type;
    CHECK(cudaGraphNodeGetType(child, &type));
    TRUE(type == cudaGraphNodeTypeGraph);
    size_t before;
    CHECK(cudaGraphNodeGetDependencies(empty, nullptr, nullptr, &before));
    TRUE(before == 3);
    cudaGraphExec_t e;
    CHECK(cudaGraphInstantiate(&e, g, 0));
    launch(e, 5);
    for (int i = 0; i < N; i++) TRUE(out[i] == 1007 + 2 * i);
    CHECK(cudaEventSynchronize(event));
    TRUE(called == 5);
    printf("graphs: by hand right\n");

    // The nodes' parameters, in the executable graph alone.
    cudaKernelNodeParams p = {};
    CHECK(cudaGraphKernelNodeGetParams(first, &p));
    TRUE(p.gridDim.x == N / 128 && p.blockDim.x == 128 && *(int *)p.kernelParams[2] == 7);
    from = 20, by = 5;
    p.kernelParams = fillArgs;
    CHECK(cudaGraphExecKernelNodeSetParams(e, first, &p));
    m.value = 0;
    CHECK(cudaGraphExecMemsetNodeSetParams(e, set, &m));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(e, copy, out + N, c, N * sizeof(int), cudaMemcpyDeviceToHost));
    int others = 0;
    h.userData = &others;
    CHECK(cudaGraphExecHostNodeSetParams(e, host, &h));
    launch(e, 3);
    for (int i = 0; i < N; i++) TRUE(out[N + i] == 20 + 6 * i && out[i] == 1007 + 2 * i);
    TRUE(called == 5 && others == 3);
    CHECK(cudaGraphNodeSetEnabled(e, sum, 0)); // without the sum, what was set stays
    launch(e, 1);
    for (int i = 0; i < N; i++) TRUE(out[N + i] == 0);
    unsigned enabled;
    CHECK(cudaGraphNodeGetEnabled(e, sum, &enabled));
    TRUE(enabled == 0);
    CHECK(cudaGraphNodeSetEnabled(e, sum, 1));
    // The graph itself is as it was: its clone too.
    cudaGraph_t clone;
    cudaGraphNode_t there;
    cudaGraphExec_t e2;
    CHECK(cudaGraphClone(&clone, g));
    CHECK(cudaGraphNodeFindInClone(&there, first, clone));
    from = 1, by = 1;
    CHECK(cudaGraphKernelNodeSetParams(there, &p));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaGraphInstantiate(&e2, clone, 0));
    launch(e2, 1);
    for (int i = 0; i < N; i++) TRUE(out[i] == 1001 + 2 * i);
    launch(e, 1);
    for (int i = 0; i < N; i++) TRUE(out[N + i] == 20 + 6 * i);
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphExecDestroy(e2));
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphDestroy(inner));
    CHECK(cudaEventDestroy(event));
    printf("graphs: parameters and clones right\n");
}

static void memory() {
    cudaGraph_t g;
    CHECK(cudaGraphCreate(&g, 0));
    cudaMemAllocNodeParams m = {};
    m.poolProps.allocType = cudaMemAllocationTypePinned;
    m.poolProps.location.type = cudaMemLocationTypeDevice;
    m.poolProps.location.id = 0;
    m.bytesize = N * sizeof(int);
    cudaGraphNode_t alloc, set, copy, release;
    CHECK(cudaGraphAddMemAllocNode(&alloc, g, nullptr, 0, &m));
    int *mine = (int *)m.dptr, n = N, from = 3, by = 3;
    TRUE(mine != nullptr);
    void *args[] = {&mine, &n, &from, &by};
    set = kernel(g, {alloc}, (void *)fill, args);
    CHECK(cudaGraphAddMemcpyNode1D(&copy, g, &set, 1, out, mine, N * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddMemFreeNode(&release, g, &copy, 1, mine));
    cudaGraphExec_t e;
    CHECK(cudaGraphInstantiate(&e, g, 0));
    memset(out, 0, N * sizeof(int));
    launch(e, 10);
    for (int i = 0; i < N; i++) TRUE(out[i] == 3 + 3 * i);
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(g));
    // Captured: allocated in the graph, freed by the stream after it.
    int *left;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync((void **)&left, N * sizeof(int), s));
    fill<<<N / 128, 128, 0, s>>>(left, N, 0, 9);
    CHECK(cudaStreamEndCapture(s, &g));
    CHECK(cudaGraphInstantiate(&e, g, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    launch(e, 3);
    CHECK(cudaMemcpyAsync(out, left, N * sizeof(int), cudaMemcpyDeviceToHost, s));
    CHECK(cudaFreeAsync(left, s));
    CHECK(cudaStreamSynchronize(s));
    for (int i = 0; i < N; i++) TRUE(out[i] == 9 * i);
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaDeviceGraphMemTrim(0));
    unsigned long long used = 1;
    CHECK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
    TRUE(used == 0);
    printf("graphs: memory of their own right\n");
}

int main() {
    setbuf(stdout, nullptr);
    for (int **p : {&a, &b, &c}) CHECK(cudaMalloc((void **)p, N * sizeof(int)));
    CHECK(cudaMallocHost((void **)&out, 2 * N * sizeof(int)));
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    capture();
    byHand();
    memory();
    // What may not be captured ends the capture.
    cudaGraph_t g = nullptr;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    TRUE(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
    TRUE(cudaStreamEndCapture(s, &g) == cudaErrorStreamCaptureInvalidated && g == nullptr);
    cudaGetLastError();
    CHECK(cudaStreamSynchronize(s));
    printf("graphs: right\n");
    return 0;
}
