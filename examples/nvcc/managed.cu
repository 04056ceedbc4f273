// nvcc: -std=c++17
// Memory that host and device share: managed blocks and variables, hints and prefetches,
// memory bound to a stream, and a list and a tree whose pointers hold on both sides.
#include "check.h"

#include <cstring>
#include <new>
#include <vector>

__managed__ int total;
__device__ __managed__ double table[256];

__global__ void accumulate(const int *v, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&total, v[i]);
    if (i < 256) table[i] = table[i] * 2 + 1;
}

__global__ void step(int *v, size_t n) {
    size_t stride = gridDim.x * (size_t)blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) v[i] += 1;
}

static void variables() {
    const int n = 10000;
    int *v;
    CHECK(cudaMallocManaged((void **)&v, n * sizeof(int)));
    for (int i = 0; i < n; i++) v[i] = i % 7;
    for (int i = 0; i < 256; i++) table[i] = i;
    int want = 0;
    for (int round = 1; round <= 3; round++) {
        accumulate<<<(n + 255) / 256, 256>>>(v, n);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < n; i++) want += v[i];
        TRUE(total == want);
        v[round] += 100; // the host writes between kernels
        total += 5, want += 5;
    }
    for (int i = 0; i < 256; i++) TRUE(table[i] == 8 * i + 7);
    int symbol;
    CHECK(cudaMemcpyFromSymbol(&symbol, total, sizeof symbol));
    TRUE(symbol == want);
    CHECK(cudaFree(v));
    printf("managed: variables right\n");
}

struct Node {
    int value;
    Node *next, *left, *right;
};

__global__ void walk(Node *head, long long *sum) {
    for (Node *n = head; n; n = n->next) *sum += n->value, n->value *= 2;
}

__global__ void append(Node *tail, Node *spare) {
    spare->value = 1000;
    spare->next = nullptr;
    tail->next = spare;
}

__global__ void search(Node *root, const int *keys, int *depth, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int d = 0;
    for (Node *at = root; at; d++) {
        if (at->value == keys[i]) break;
        at = keys[i] < at->value ? at->left : at->right;
    }
    depth[i] = d;
}

struct Managed { // objects made with new, as the samples do
    static void *operator new(size_t n) {
        void *p;
        CHECK(cudaMallocManaged(&p, n));
        return p;
    }
    static void operator delete(void *p) { CHECK(cudaFree(p)); }
};

struct Text : Managed {
    int length;
    char *data;
};

__global__ void shout(Text *t) {
    int i = threadIdx.x;
    if (i < t->length && t->data[i] >= 'a' && t->data[i] <= 'z') t->data[i] -= 32;
}

static Node *place(Node *root, Node *n) {
    if (!root) return n;
    if (n->value < root->value) root->left = place(root->left, n);
    else root->right = place(root->right, n);
    return root;
}

static void structures() {
    const int n = 500;
    Node *nodes[n + 1];
    long long *sum;
    CHECK(cudaMallocManaged((void **)&sum, sizeof *sum));
    for (int i = 0; i <= n; i++) {
        CHECK(cudaMallocManaged((void **)&nodes[i], sizeof(Node)));
        memset(nodes[i], 0, sizeof(Node));
        nodes[i]->value = i;
        if (i > 0 && i < n) nodes[i - 1]->next = nodes[i];
    }
    *sum = 0;
    walk<<<1, 1>>>(nodes[0], sum);
    append<<<1, 1>>>(nodes[n - 1], nodes[n]);
    CHECK(cudaDeviceSynchronize());
    TRUE(*sum == n * (n - 1) / 2);
    int count = 0;
    for (Node *at = nodes[0]; at; at = at->next, count++) TRUE(at->value == (count < n ? 2 * count : 1000));
    TRUE(count == n + 1);
    Node *root = nullptr;
    int *keys, *depth;
    CHECK(cudaMallocManaged((void **)&keys, n * sizeof(int)));
    CHECK(cudaMallocManaged((void **)&depth, n * sizeof(int)));
    for (int i = 0; i < n; i++) {
        nodes[i]->value = keys[i] = i * 7919 % n; // n and 7919 have no common factor
        root = place(root, nodes[i]);
    }
    search<<<(n + 127) / 128, 128>>>(root, keys, depth, n);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) {
        int d = 0;
        for (Node *at = root; at->value != keys[i]; d++) at = keys[i] < at->value ? at->left : at->right;
        TRUE(depth[i] == d);
    }
    Text *t = new Text;
    t->length = 12;
    CHECK(cudaMallocManaged((void **)&t->data, 13));
    strcpy(t->data, "small -> big");
    shout<<<1, 32>>>(t);
    CHECK(cudaDeviceSynchronize());
    TRUE(strcmp(t->data, "SMALL -> BIG") == 0);
    CHECK(cudaFree(t->data));
    delete t;
    for (Node *each : nodes) CHECK(cudaFree(each));
    CHECK(cudaFree(keys));
    CHECK(cudaFree(depth));
    CHECK(cudaFree(sum));
    printf("managed: structures right\n");
}

static cudaMemLocation at(cudaMemLocationType type, int id) {
    cudaMemLocation l;
    memset(&l, 0, sizeof l);
    l.type = type;
    l.id = id;
    return l;
}

static void hints() {
    const size_t n = 32 << 20; // 128 MiB
    cudaMemLocation device = at(cudaMemLocationTypeDevice, 0), host = at(cudaMemLocationTypeHost, 0);
    int *v, answer;
    cudaStream_t s;
    CHECK(cudaStreamCreate(&s));
    CHECK(cudaMallocManaged((void **)&v, n * sizeof(int)));
    CHECK(cudaMemAdvise(v, n * sizeof(int), cudaMemAdviseSetPreferredLocation, device));
    CHECK(cudaMemAdvise(v, n * sizeof(int), cudaMemAdviseSetAccessedBy, host));
    for (size_t i = 0; i < n; i++) v[i] = (int)i;
    CHECK(cudaMemPrefetchAsync(v, n * sizeof(int), device, 0, s));
    step<<<1024, 256, 0, s>>>(v, n);
    CHECK(cudaMemPrefetchAsync(v, n * sizeof(int), host, 0, s));
    CHECK(cudaStreamSynchronize(s));
    for (size_t i = 0; i < n; i += 97) TRUE(v[i] == (int)i + 1);
    CHECK(cudaMemRangeGetAttribute(&answer, sizeof answer, cudaMemRangeAttributePreferredLocation, v, n * sizeof(int)));
    TRUE(answer == 0);
    CHECK(cudaMemRangeGetAttribute(&answer, sizeof answer, cudaMemRangeAttributeReadMostly, v, n * sizeof(int)));
    TRUE(answer == 0);
    CHECK(cudaMemAdvise(v, n * sizeof(int), cudaMemAdviseSetReadMostly, device));
    CHECK(cudaMemRangeGetAttribute(&answer, sizeof answer, cudaMemRangeAttributeReadMostly, v, n * sizeof(int)));
    TRUE(answer == 1);
    for (int round = 0; round < 4; round++) { // a little by the host, all by the device
        v[round * 1000000]++;
        step<<<1024, 256, 0, s>>>(v, n);
        CHECK(cudaStreamSynchronize(s));
    }
    TRUE(v[0] == 0 + 1 + 4 + 1 && v[1] == 1 + 1 + 4 && v[3000000] == 3000000 + 1 + 4 + 1);
    std::vector<int> copy(1000);
    CHECK(cudaMemset(v, 0, 500 * sizeof(int)));
    CHECK(cudaMemcpy(copy.data(), v, 1000 * sizeof(int), cudaMemcpyDefault));
    TRUE(copy[499] == 0 && copy[500] == 505);
    CHECK(cudaFree(v));
    CHECK(cudaStreamDestroy(s));
    printf("managed: hints right\n");
}

static void attached() {
    const int streams = 3, n = 1 << 16;
    cudaStream_t s[streams];
    int *v[streams];
    for (int k = 0; k < streams; k++) {
        CHECK(cudaStreamCreate(&s[k]));
        CHECK(cudaMallocManaged((void **)&v[k], n * sizeof(int), cudaMemAttachHost));
        for (int i = 0; i < n; i++) v[k][i] = i * k;
        CHECK(cudaStreamAttachMemAsync(s[k], v[k], 0, cudaMemAttachSingle));
    }
    for (int k = 0; k < streams; k++)
        for (int round = 0; round < 3; round++) step<<<64, 256, 0, s[k]>>>(v[k], n);
    for (int k = 0; k < streams; k++) {
        CHECK(cudaStreamSynchronize(s[k]));
        for (int i = 0; i < n; i++) TRUE(v[k][i] == i * k + 3);
        CHECK(cudaStreamAttachMemAsync(s[k], v[k], 0, cudaMemAttachGlobal));
        CHECK(cudaStreamSynchronize(s[k]));
    }
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < streams; k++) {
        CHECK(cudaFree(v[k]));
        CHECK(cudaStreamDestroy(s[k]));
    }
    printf("managed: attached to streams right\n");
}

int main() {
    setbuf(stdout, nullptr);
    variables();
    structures();
    hints();
    attached();
    printf("managed: right\n");
    return 0;
}
