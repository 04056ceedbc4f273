// nvcc: -std=c++17 --extended-lambda
// Thrust and CUB beyond a sort and a sum: by key, by predicate, of zipped and computed
// sequences, on streams, in memory that host and device share; segments, histograms, blocks.
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/system/cuda/execution_policy.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <thrust/unique.h>
#include <thrust/universal_vector.h>

#include <algorithm>
#include <cub/cub.cuh>
#include <iterator>
#include <map>
#include <numeric>
#include <vector>

#include "check.h"

static std::vector<int> numbers(int n, unsigned seed, int below) {
    std::vector<int> v(n);
    for (auto &e : v) e = (int)(((seed = seed * 1664525 + 1013904223) >> 8) % below);
    return v;
}

template <class V> static bool same(const V &d, const std::vector<int> &want) {
    std::vector<int> got(d.size());
    thrust::copy(d.begin(), d.end(), got.begin());
    return got == want;
}

struct Square {
    __host__ __device__ long long operator()(int x) const { return (long long)x * x; }
};

struct Even {
    __host__ __device__ bool operator()(int x) const { return x % 2 == 0; }
};

static void algorithms() {
    const int n = 300000;
    std::vector<int> v = numbers(n, 1, 1000), w = numbers(n, 2, 1 << 20), sorted = v, sums(n), order(n), want;
    thrust::device_vector<int> d(v.begin(), v.end()), e(w.begin(), w.end()), out(n), keys = d, values = e;
    thrust::stable_sort_by_key(keys.begin(), keys.end(), values.begin());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return v[a] < v[b]; });
    std::stable_sort(sorted.begin(), sorted.end());
    for (int i : order) want.push_back(w[i]);
    TRUE(same(keys, sorted) && same(values, want));
    thrust::sort(out.begin(), out.end(), thrust::greater<int>());
    std::map<int, long long> byKey; // sums by key
    for (int i = 0; i < n; i++) byKey[v[i]] += w[i];
    thrust::device_vector<int> found(n);
    thrust::device_vector<long long> totals(n);
    auto ends = thrust::reduce_by_key(keys.begin(), keys.end(), values.begin(), found.begin(), totals.begin());
    size_t many = ends.first - found.begin();
    TRUE(many == byKey.size());
    thrust::host_vector<long long> hostTotals(totals.begin(), totals.begin() + many);
    size_t at = 0;
    for (auto &each : byKey) TRUE(hostTotals[at++] == each.second);
    thrust::exclusive_scan(d.begin(), d.end(), out.begin());
    std::partial_sum(v.begin(), v.end(), sums.begin());
    for (int i = n - 1; i > 0; i--) sums[i] = sums[i - 1];
    sums[0] = 0;
    TRUE(same(out, sums));
    long long squares = 0, dot = 0;
    for (int i = 0; i < n; i++) squares += (long long)v[i] * v[i], dot += (long long)v[i] * w[i];
    TRUE(thrust::transform_reduce(d.begin(), d.end(), Square(), 0ll, thrust::plus<long long>()) == squares);
    TRUE(thrust::inner_product(d.begin(), d.end(), e.begin(), 0ll) == dot);
    TRUE(thrust::count_if(d.begin(), d.end(), Even()) == std::count_if(v.begin(), v.end(), Even()));
    TRUE(thrust::max_element(e.begin(), e.end()) - e.begin() == std::max_element(w.begin(), w.end()) - w.begin());
    auto last = thrust::copy_if(d.begin(), d.end(), out.begin(), Even());
    std::vector<int> evens;
    std::copy_if(v.begin(), v.end(), std::back_inserter(evens), Even());
    out.resize(last - out.begin());
    TRUE(same(out, evens));
    keys.erase(thrust::unique(keys.begin(), keys.end()), keys.end());
    TRUE(keys.size() == byKey.size());
    printf("thrust: algorithms right\n");
}

static void iterators() {
    const int n = 100000;
    auto counting = thrust::make_counting_iterator(1);
    auto squares = thrust::make_transform_iterator(counting, Square());
    TRUE(thrust::reduce(thrust::device, squares, squares + n, 0ll) == (long long)n * (n + 1) * (2 * n + 1) / 6);
    thrust::device_vector<int> a(n), b(n), c(n);
    thrust::sequence(a.begin(), a.end());
    thrust::transform(a.begin(), a.end(), b.begin(), [] __host__ __device__(int x) { return 3 * x + 1; });
    auto zipped = thrust::make_zip_iterator(thrust::make_tuple(a.begin(), b.begin()));
    thrust::transform(zipped, zipped + n, c.begin(), [] __host__ __device__(const thrust::tuple<int, int> &t) { return thrust::get<0>(t) + thrust::get<1>(t); });
    std::vector<int> want(n);
    for (int i = 0; i < n; i++) want[i] = 4 * i + 1;
    TRUE(same(c, want));
    thrust::device_vector<int> map(n);
    thrust::sequence(map.begin(), map.end(), n - 1, -1);
    thrust::gather(map.begin(), map.end(), c.begin(), a.begin());
    std::reverse(want.begin(), want.end());
    TRUE(same(a, want));
    c[5] = 77; // one element, from the host
    TRUE(c[5] == 77 && c[6] == 25);
    printf("thrust: iterators right\n");
}

static void streams() {
    const int n = 200000;
    cudaStream_t s[3];
    std::vector<int> v[3];
    thrust::device_vector<int> d[3];
    for (int k = 0; k < 3; k++) {
        CHECK(cudaStreamCreateWithFlags(&s[k], cudaStreamNonBlocking));
        v[k] = numbers(n, k + 10, 1 << 24);
        d[k] = v[k];
    }
    CHECK(cudaDeviceSynchronize());
    for (int k = 0; k < 3; k++) {
        thrust::sort(thrust::cuda::par_nosync.on(s[k]), d[k].begin(), d[k].end());
        thrust::transform(thrust::cuda::par.on(s[k]), d[k].begin(), d[k].end(), d[k].begin(), [k] __host__ __device__(int x) { return x + k; });
    }
    for (int k = 0; k < 3; k++) {
        CHECK(cudaStreamSynchronize(s[k]));
        std::sort(v[k].begin(), v[k].end());
        for (auto &e : v[k]) e += k;
        TRUE(same(d[k], v[k]));
        CHECK(cudaStreamDestroy(s[k]));
    }
    thrust::universal_vector<int> u(1000);
    for (int i = 0; i < 1000; i++) u[i] = i * 37 % 1000;
    thrust::sort(thrust::device, u.begin(), u.end());
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 1000; i++) TRUE(u[i] == i);
    printf("thrust: streams and shared memory right\n");
}

template <class F> static void twice(F f) { // CUB's way: first how much room, then the work
    size_t bytes = 0;
    void *room = nullptr;
    CHECK(f(room, bytes));
    CHECK(cudaMalloc(&room, bytes + 1));
    CHECK(f(room, bytes));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(room));
}

__global__ void blocks(const int *in, int *out) { // 128 threads of 4 each, sorted and summed
    typedef cub::BlockRadixSort<int, 128, 4> Sort;
    typedef cub::BlockReduce<int, 128> Reduce;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Reduce::TempStorage reduce;
    } room;
    int mine[4], sum = 0;
    for (int k = 0; k < 4; k++) mine[k] = in[blockIdx.x * 512 + threadIdx.x * 4 + k], sum += mine[k];
    Sort(room.sort).Sort(mine);
    __syncthreads();
    int all = Reduce(room.reduce).Sum(sum);
    for (int k = 0; k < 4; k++) out[blockIdx.x * 513 + threadIdx.x * 4 + k] = mine[k];
    if (threadIdx.x == 0) out[blockIdx.x * 513 + 512] = all;
}

static void cubs() {
    const int n = 1 << 18, segment = 1 << 12, bins = 64;
    std::vector<int> v = numbers(n, 5, 1 << 20), index(n), want;
    std::iota(index.begin(), index.end(), 0);
    thrust::device_vector<int> in(v.begin(), v.end()), positions(index.begin(), index.end()), keys(n), values(n);
    int *i = thrust::raw_pointer_cast(in.data()), *p = thrust::raw_pointer_cast(positions.data()), *k = thrust::raw_pointer_cast(keys.data()), *o = thrust::raw_pointer_cast(values.data());
    twice([&](void *room, size_t &bytes) { return cub::DeviceRadixSort::SortPairs(room, bytes, i, k, p, o, n); });
    std::stable_sort(index.begin(), index.end(), [&](int a, int b) { return v[a] < v[b]; });
    TRUE(same(values, index));
    twice([&](void *room, size_t &bytes) { return cub::DeviceRadixSort::SortKeysDescending(room, bytes, i, k, n, 0, 20); });
    want = v;
    std::sort(want.rbegin(), want.rend());
    TRUE(same(keys, want));
    thrust::device_vector<int> offsets(n / segment + 1), most(n / segment), counts(bins, 0);
    thrust::sequence(offsets.begin(), offsets.end(), 0, segment);
    int *at = thrust::raw_pointer_cast(offsets.data()), *m = thrust::raw_pointer_cast(most.data()), *c = thrust::raw_pointer_cast(counts.data());
    twice([&](void *room, size_t &bytes) { return cub::DeviceSegmentedReduce::Max(room, bytes, i, m, n / segment, at, at + 1); });
    want.clear();
    for (int s = 0; s < n; s += segment) want.push_back(*std::max_element(v.begin() + s, v.begin() + s + segment));
    TRUE(same(most, want));
    twice([&](void *room, size_t &bytes) { return cub::DeviceHistogram::HistogramEven(room, bytes, i, c, bins + 1, 0, 1 << 20, n); });
    want.assign(bins, 0);
    for (int x : v) want[x >> 14]++;
    TRUE(same(counts, want));
    const int few = 8;
    thrust::device_vector<int> out(few * 513);
    blocks<<<few, 128>>>(i, thrust::raw_pointer_cast(out.data()));
    CHECK(cudaGetLastError());
    want.clear();
    for (int b = 0; b < few; b++) {
        std::vector<int> part(v.begin() + b * 512, v.begin() + b * 512 + 512);
        std::sort(part.begin(), part.end());
        want.insert(want.end(), part.begin(), part.end());
        want.push_back(std::accumulate(part.begin(), part.end(), 0));
    }
    TRUE(same(out, want));
    printf("thrust: CUB right\n");
}

int main() {
    setbuf(stdout, nullptr);
    algorithms();
    iterators();
    streams();
    cubs();
    printf("thrust: right\n");
    return 0;
}
