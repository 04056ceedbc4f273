// nvcc: -std=c++17
// refused: machine code sets conditions of NVIDIA's driver only
// Graphs whose conditional nodes are decided by kernels: if, if and else, while, switch, and
// a while with an if in it.
#include "check.h"

#include <initializer_list>

__global__ void decide(cudaGraphConditionalHandle h, const unsigned *value) { cudaGraphSetConditional(h, *value); }

__global__ void add(int *to, int what) { *to += what; }

// One turn of a loop: halves an even number, 3n+1 for an odd one, until it is 1.
__global__ void turn(cudaGraphConditionalHandle h, unsigned long long *n, int *turns) {
    if (*n != 1) {
        *n = *n % 2 ? 3 * *n + 1 : *n / 2;
        ++*turns;
    }
    cudaGraphSetConditional(h, *n != 1);
}

__global__ void countdown(cudaGraphConditionalHandle again, cudaGraphConditionalHandle even, int *left) {
    int n = --*left;
    cudaGraphSetConditional(again, n > 0);
    cudaGraphSetConditional(even, n % 2 == 0);
}

static cudaStream_t s;

static cudaGraphNode_t kernel(cudaGraph_t g, cudaGraphNode_t after, void *f, void **args) {
    cudaKernelNodeParams p = {};
    p.func = f;
    p.gridDim = dim3(1);
    p.blockDim = dim3(1);
    p.kernelParams = args;
    cudaGraphNode_t n;
    CHECK(cudaGraphAddKernelNode(&n, g, after ? &after : nullptr, after ? 1 : 0, &p));
    return n;
}

// Adds a conditional node and gives its bodies.
static cudaGraph_t *conditional(cudaGraph_t g, cudaGraphNode_t after, cudaGraphConditionalHandle h, cudaGraphConditionalNodeType type, unsigned bodies) {
    cudaGraphNodeParams p = {cudaGraphNodeTypeConditional};
    p.conditional.handle = h;
    p.conditional.type = type;
    p.conditional.size = bodies;
    cudaGraphNode_t n;
    CHECK(cudaGraphAddNode(&n, g, after ? &after : nullptr, nullptr, after ? 1 : 0, &p));
    return p.conditional.phGraph_out;
}

static int afterLaunch(cudaGraphExec_t e, const int *value) {
    int got;
    CHECK(cudaGraphLaunch(e, s));
    CHECK(cudaMemcpyAsync(&got, value, sizeof got, cudaMemcpyDeviceToHost, s));
    CHECK(cudaStreamSynchronize(s));
    return got;
}

static void branches(cudaGraphConditionalNodeType type, unsigned bodies, const char *what) {
    cudaGraph_t g;
    cudaGraphExec_t e;
    cudaGraphConditionalHandle h;
    unsigned *value;
    int *sum;
    CHECK(cudaMalloc((void **)&value, sizeof *value));
    CHECK(cudaMalloc((void **)&sum, sizeof *sum));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    CHECK(cudaGraphCreate(&g, 0));
    CHECK(cudaGraphConditionalHandleCreate(&h, g, 0, 0));
    void *decideArgs[] = {&h, &value};
    cudaGraphNode_t decided = kernel(g, nullptr, (void *)decide, decideArgs);
    cudaGraph_t *body = conditional(g, decided, h, type, bodies);
    for (unsigned k = 0, amount = 1; k < bodies; k++, amount *= 10) {
        int by = (int)amount;
        void *args[] = {&sum, &by};
        kernel(body[k], nullptr, (void *)add, args);
    }
    CHECK(cudaGraphInstantiate(&e, g, 0));
    int want = 0;
    for (unsigned v : {1u, 0u, 2u, 1u, 7u, 0u, 0u}) {
        if (type == cudaGraphCondTypeSwitch) want += v < bodies ? (v == 0 ? 1 : v == 1 ? 10 : 100) : 0;
        else want += v ? 1 : bodies > 1 ? 10 : 0;
        CHECK(cudaMemcpy(value, &v, sizeof v, cudaMemcpyHostToDevice));
        TRUE(afterLaunch(e, sum) == want);
    }
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaFree(value));
    CHECK(cudaFree(sum));
    printf("conditional: %s right\n", what);
}

static void loop() {
    cudaGraph_t g, body;
    cudaGraphExec_t e;
    cudaGraphConditionalHandle h;
    unsigned long long *n, start = 27;
    int *turns;
    CHECK(cudaMalloc((void **)&n, sizeof *n));
    CHECK(cudaMalloc((void **)&turns, sizeof *turns));
    CHECK(cudaGraphCreate(&g, 0));
    CHECK(cudaGraphConditionalHandleCreate(&h, g, 1, cudaGraphCondAssignDefault));
    body = conditional(g, nullptr, h, cudaGraphCondTypeWhile, 1)[0];
    // The body is captured, as samples do.
    cudaGraph_t same;
    CHECK(cudaStreamBeginCaptureToGraph(s, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    turn<<<1, 1, 0, s>>>(h, n, turns);
    CHECK(cudaStreamEndCapture(s, &same));
    CHECK(cudaGraphInstantiate(&e, g, 0));
    for (int round = 0; round < 3; round++) {
        CHECK(cudaMemcpy(n, &start, sizeof start, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(turns, 0, sizeof *turns));
        CHECK(cudaDeviceSynchronize());
        TRUE(afterLaunch(e, turns) == 111); // as is known of 27
    }
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaFree(n));
    CHECK(cudaFree(turns));
    printf("conditional: while right\n");
}

static void nested() {
    cudaGraph_t g;
    cudaGraphExec_t e;
    cudaGraphConditionalHandle again, even;
    int *left, *sum, start = 100, one = 1;
    CHECK(cudaMalloc((void **)&left, sizeof *left));
    CHECK(cudaMalloc((void **)&sum, sizeof *sum));
    CHECK(cudaMemset(sum, 0, sizeof *sum));
    CHECK(cudaMemcpy(left, &start, sizeof start, cudaMemcpyHostToDevice));
    CHECK(cudaGraphCreate(&g, 0));
    CHECK(cudaGraphConditionalHandleCreate(&again, g, 1, cudaGraphCondAssignDefault));
    cudaGraph_t body = conditional(g, nullptr, again, cudaGraphCondTypeWhile, 1)[0];
    CHECK(cudaGraphConditionalHandleCreate(&even, body, 0, 0));
    void *downArgs[] = {&again, &even, &left}, *addArgs[] = {&sum, &one};
    cudaGraphNode_t down = kernel(body, nullptr, (void *)countdown, downArgs);
    kernel(conditional(body, down, even, cudaGraphCondTypeIf, 1)[0], nullptr, (void *)add, addArgs);
    CHECK(cudaGraphInstantiate(&e, g, 0));
    CHECK(cudaDeviceSynchronize());
    TRUE(afterLaunch(e, sum) == 50);
    CHECK(cudaGraphExecDestroy(e));
    CHECK(cudaGraphDestroy(g));
    CHECK(cudaFree(left));
    CHECK(cudaFree(sum));
    printf("conditional: an if in a while right\n");
}

int main() {
    setbuf(stdout, nullptr);
    CHECK(cudaStreamCreate(&s));
    branches(cudaGraphCondTypeIf, 1, "if");
    loop();
    nested();
    branches(cudaGraphCondTypeIf, 2, "if and else");
    branches(cudaGraphCondTypeSwitch, 3, "switch");
    CHECK(cudaStreamDestroy(s));
    printf("conditional: right\n");
    return 0;
}
