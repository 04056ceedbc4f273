// nvcc: -rdc=true -lcudadevrt
// run: 1048576 100
// Sorts on the device, by kernels that launch kernels. What was launched last may be long
// in running when the first has ended: who takes that for the end reads an unsorted array.
//
//   quicksort [ELEMENTS [TIMES]]
#include <algorithm>
#include <vector>

#include "check.h"

const int small = 32, deepest = 24;

__device__ unsigned refused; // launches that the device did not take

__device__ void insertion(unsigned *data, int left, int right) {
    for (int i = left + 1; i <= right; i++) {
        unsigned v = data[i];
        int k = i - 1;
        for (; k >= left && data[k] > v; k--) data[k + 1] = data[k];
        data[k + 1] = v;
    }
}

// Without recursion, for what is deep already.
__device__ void heap(unsigned *data, int n) {
    for (int start = n / 2 - 1, end = n; end > 1;) {
        int root;
        if (start >= 0) {
            root = start--;
        } else {
            end--;
            unsigned t = data[end];
            data[end] = data[0];
            data[0] = t;
            root = 0;
        }
        for (int child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && data[child] < data[child + 1]) child++;
            if (data[root] >= data[child]) break;
            unsigned t = data[root];
            data[root] = data[child];
            data[child] = t;
        }
    }
}

__global__ void sort(unsigned *data, int left, int right, int depth) {
    if (right - left < small) {
        insertion(data, left, right);
        return;
    }
    if (depth >= deepest) {
        heap(data + left, right - left + 1);
        return;
    }
    unsigned pivot = data[left + (right - left) / 2];
    int i = left, k = right;
    while (i <= k) {
        while (data[i] < pivot) i++;
        while (data[k] > pivot) k--;
        if (i <= k) {
            unsigned t = data[i];
            data[i++] = data[k];
            data[k--] = t;
        }
    }
    for (int half = 0; half < 2; half++) {
        int from = half ? i : left, to = half ? right : k;
        if (from >= to) continue;
        if (to - from < 1024) { // enough for one thread
            heap(data + from, to - from + 1);
            continue;
        }
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        sort<<<1, 1, 0, stream>>>(data, from, to, depth + 1);
        if (cudaGetLastError() != cudaSuccess) {
            atomicAdd(&refused, 1);
            heap(data + from, to - from + 1);
        }
        cudaStreamDestroy(stream);
    }
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1 << 20, times = argc > 2 ? atoi(argv[2]) : 1, wrong = 0;
    std::vector<unsigned> data(n), want;
    unsigned x = 12345;
    for (auto &v : data) v = x = x * 1664525 + 1013904223;
    want = data;
    std::sort(want.begin(), want.end());
    unsigned *on;
    CHECK(cudaMalloc(&on, n * sizeof *on));
    for (int t = 0; t < times; t++) {
        std::vector<unsigned> got(n);
        CHECK(cudaMemcpy(on, data.data(), n * sizeof *on, cudaMemcpyHostToDevice));
        sort<<<1, 1>>>(on, 0, n - 1, 0);
        CHECK(cudaGetLastError());
        if (t % 2 == 0) CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(got.data(), on, n * sizeof *on, cudaMemcpyDeviceToHost));
        if (got != want) {
            int at = 0;
            while (got[at] == want[at]) at++;
            fprintf(stderr, "time %d: wrong from element %d on\n", t, at);
            wrong++;
        }
    }
    unsigned none;
    CHECK(cudaMemcpyFromSymbol(&none, refused, sizeof none));
    printf("quicksort: %d elements, %d of %d times wrong, %u launches refused on the device\n", n, wrong, times, none);
    CHECK(cudaFree(on));
    return wrong != 0;
}
