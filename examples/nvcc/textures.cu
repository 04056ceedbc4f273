// Arrays, textures and surfaces of CUDA's runtime API: 1-D to 3-D, layers, cubes, mipmaps,
// linear and pitched memory, gathers, each compared with what the CPU reads. It prints the
// handles too, for those who look at how they are given.
#include "check.h"

#include <cmath>
#include <cstring>
#include <vector>

static const int W = 64, H = 32, D = 6;

static float value(int x, int y, int z) { return (float)(x + 100 * y + 10000 * z); }

enum { ONE, TWO, THREE, LAYER, CUBE, FETCH, LEVEL, GATHER };

__global__ void readAll(cudaTextureObject_t t, int kind, float4 *at, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = at[i];
    switch (kind) {
    case ONE: out[i] = tex1D<float>(t, p.x); break;
    case TWO: out[i] = tex2D<float>(t, p.x, p.y); break;
    case THREE: out[i] = tex3D<float>(t, p.x, p.y, p.z); break;
    case LAYER: out[i] = tex2DLayered<float>(t, p.x, p.y, (int)p.z); break;
    case CUBE: out[i] = texCubemap<float>(t, p.x, p.y, p.z); break;
    case FETCH: out[i] = tex1Dfetch<float>(t, (int)p.x); break;
    case LEVEL: out[i] = tex2DLod<float>(t, p.x, p.y, p.z); break;
    case GATHER: {
        float4 g = tex2Dgather<float4>(t, p.x, p.y, 0);
        out[i] = g.x + 2 * g.y + 4 * g.z + 8 * g.w;
    }
    }
}

__global__ void step(cudaSurfaceObject_t s, int width) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, old;
    if (x >= width) return;
    surf2Dread(&old, s, x * 4, y);
    surf2Dwrite(old + 1, s, x * 4, y);
}

static std::vector<float4> places;
static float4 *placesOnDevice;
static float *results;

static std::vector<float> readTexture(cudaTextureObject_t t, int kind) {
    int n = (int)places.size();
    CHECK(cudaMemcpy(placesOnDevice, places.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    readAll<<<(n + 127) / 128, 128>>>(t, kind, placesOnDevice, results, n);
    CHECK(cudaGetLastError());
    std::vector<float> out(n);
    CHECK(cudaMemcpy(out.data(), results, n * sizeof(float), cudaMemcpyDeviceToHost));
    return out;
}

static cudaTextureObject_t make(cudaResourceDesc r, cudaTextureFilterMode filter, bool normalised = false) {
    cudaTextureDesc t;
    memset(&t, 0, sizeof t);
    for (auto &mode : t.addressMode) mode = cudaAddressModeClamp;
    t.filterMode = filter;
    t.normalizedCoords = normalised;
    t.maxMipmapLevelClamp = 10;
    t.mipmapFilterMode = cudaFilterModeLinear;
    cudaTextureObject_t made;
    CHECK(cudaCreateTextureObject(&made, &r, &t, nullptr));
    printf("texture %llu\n", (unsigned long long)made);
    return made;
}

static cudaResourceDesc ofArray(cudaArray_t a) {
    cudaResourceDesc r;
    memset(&r, 0, sizeof r);
    r.resType = cudaResourceTypeArray;
    r.res.array.array = a;
    return r;
}

static std::vector<float> contents(int w, int h, int d) {
    std::vector<float> v;
    for (int z = 0; z < d; z++)
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++) v.push_back(value(x, y, z));
    return v;
}

static cudaArray_t array3D(int w, int h, int d, unsigned flags) {
    cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
    cudaArray_t a;
    CHECK(cudaMalloc3DArray(&a, &f, make_cudaExtent(w, h, d), flags));
    std::vector<float> v = contents(w, h ? h : 1, d ? d : 1);
    cudaMemcpy3DParms p;
    memset(&p, 0, sizeof p);
    p.srcPtr = make_cudaPitchedPtr(v.data(), w * sizeof(float), w, h ? h : 1);
    p.dstArray = a;
    p.extent = make_cudaExtent(w, h ? h : 1, d ? d : 1);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    return a;
}

static int clamp(int i, int n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

static float smooth(float x, float y) {
    float fx = x - 0.5f, fy = y - 0.5f;
    int i = (int)floorf(fx), j = (int)floorf(fy);
    float a = roundf((fx - i) * 256) / 256, b = roundf((fy - j) * 256) / 256;
    auto at = [](int x, int y) { return value(clamp(x, W), clamp(y, H), 0); };
    return (1 - a) * (1 - b) * at(i, j) + a * (1 - b) * at(i + 1, j) + (1 - a) * b * at(i, j + 1) + a * b * at(i + 1, j + 1);
}

static void expect(const char *what, const std::vector<float> &got, const std::vector<float> &want, float tolerance) {
    for (size_t i = 0; i < got.size(); i++)
        if (fabsf(got[i] - want[i]) > tolerance) {
            fprintf(stderr, "%s: at (%g, %g, %g) it reads %g, and not %g\n", what, places[i].x, places[i].y, places[i].z, got[i], want[i]);
            exit(1);
        }
}

template <typename F> static std::vector<float> wanted(F f) {
    std::vector<float> v;
    for (auto &p : places) v.push_back(f(p));
    return v;
}

// The programs' places: some within, some outside.
static void scatter(float w, float h, float d) {
    places.clear();
    unsigned seed = 12345;
    auto next = [&seed] { return (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 24); };
    for (int i = 0; i < 1000; i++) places.push_back(make_float4((next() * 1.5f - 0.25f) * w, (next() * 1.5f - 0.25f) * h, next() * d, 0));
}

static void arrays() {
    cudaArray_t flat = array3D(W, H, 0, cudaArrayTextureGather), solid = array3D(W, H, D, 0), layers = array3D(W, H, D, cudaArrayLayered), cube = array3D(H, H, 6, cudaArrayCubemap);
    cudaArray_t row = array3D(W, 0, 0, 0);
    scatter(W, H, D);
    expect("linear filter", readTexture(make(ofArray(flat), cudaFilterModeLinear), TWO), wanted([](float4 p) { return smooth(p.x, p.y); }), 0.3f);
    auto point = [](float4 p) { return value(clamp((int)floorf(p.x), W), clamp((int)floorf(p.y), H), clamp((int)p.z, D)); };
    expect("3-D", readTexture(make(ofArray(solid), cudaFilterModePoint), THREE), wanted(point), 0);
    expect("layers", readTexture(make(ofArray(layers), cudaFilterModePoint), LAYER), wanted(point), 0);
    expect("1-D", readTexture(make(ofArray(row), cudaFilterModePoint), ONE), wanted([](float4 p) { return value(clamp((int)floorf(p.x), W), 0, 0); }), 0);
    expect("gather", readTexture(make(ofArray(flat), cudaFilterModePoint), GATHER), wanted([](float4 p) {
               auto corner = [](float c) { return (int)floorf(roundf((c - 0.5f) * 256) / 256); }; // units have 8 bits behind the point
               int i = corner(p.x), j = corner(p.y);
               auto at = [](int x, int y) { return value(clamp(x, W), clamp(y, H), 0); };
               return at(i, j + 1) + 2 * at(i + 1, j + 1) + 4 * at(i + 1, j) + 8 * at(i, j);
           }), 0);
    places.clear();
    for (int f = 0; f < 6; f++) { // the middle of the first quarter of each face
        float s = -0.51f, t = -0.51f;
        float directions[6][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t}, {s, -1, -t}, {s, -t, 1}, {-s, -t, -1}};
        places.push_back(make_float4(directions[f][0], directions[f][1], directions[f][2], 0));
    }
    int face = 0;
    expect("cube", readTexture(make(ofArray(cube), cudaFilterModePoint, true), CUBE), wanted([&face](float4) {
               int i = (int)floorf((-0.51f + 1) / 2 * H);
               return value(i, i, face++);
           }), 0);
    // From array to array, and out again.
    CHECK(cudaMemcpy2DArrayToArray(flat, 0, 0, layers, 0, 0, W * sizeof(float), H, cudaMemcpyDeviceToDevice));
    std::vector<float> back(W * H);
    CHECK(cudaMemcpy2DFromArray(back.data(), W * sizeof(float), flat, 0, 0, W * sizeof(float), H, cudaMemcpyDeviceToHost));
    TRUE(back == contents(W, H, 1));
}

static void memory() {
    float *linear, *pitched;
    size_t pitch;
    std::vector<float> v = contents(W, H, 1);
    CHECK(cudaMalloc((void **)&linear, v.size() * sizeof(float)));
    CHECK(cudaMemcpy(linear, v.data(), v.size() * sizeof(float), cudaMemcpyHostToDevice));
    cudaResourceDesc r;
    memset(&r, 0, sizeof r);
    r.resType = cudaResourceTypeLinear;
    r.res.linear.devPtr = linear;
    r.res.linear.desc = cudaCreateChannelDesc<float>();
    r.res.linear.sizeInBytes = v.size() * sizeof(float);
    places.clear();
    for (int i = 0; i < W * H; i++) places.push_back(make_float4(i, 0, 0, 0));
    expect("linear memory", readTexture(make(r, cudaFilterModePoint), FETCH), v, 0);
    CHECK(cudaMallocPitch((void **)&pitched, &pitch, W * sizeof(float), H));
    CHECK(cudaMemcpy2D(pitched, pitch, v.data(), W * sizeof(float), W * sizeof(float), H, cudaMemcpyHostToDevice));
    memset(&r, 0, sizeof r);
    r.resType = cudaResourceTypePitch2D;
    r.res.pitch2D.devPtr = pitched;
    r.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    r.res.pitch2D.width = W;
    r.res.pitch2D.height = H;
    r.res.pitch2D.pitchInBytes = pitch;
    scatter(W, H, 1);
    expect("pitched memory", readTexture(make(r, cudaFilterModeLinear), TWO), wanted([](float4 p) { return smooth(p.x, p.y); }), 0.3f);
}

static void mipmaps() {
    cudaMipmappedArray_t m;
    cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocMipmappedArray(&m, &f, make_cudaExtent(W, H, 0), 3, 0));
    for (int l = 0; l < 3; l++) {
        cudaArray_t a;
        CHECK(cudaGetMipmappedArrayLevel(&a, m, l));
        std::vector<float> v((W >> l) * (H >> l), (float)(l + 1));
        CHECK(cudaMemcpy2DToArray(a, 0, 0, v.data(), (W >> l) * sizeof(float), (W >> l) * sizeof(float), H >> l, cudaMemcpyHostToDevice));
    }
    cudaResourceDesc r;
    memset(&r, 0, sizeof r);
    r.resType = cudaResourceTypeMipmappedArray;
    r.res.mipmap.mipmap = m;
    places.clear();
    for (int i = 0; i <= 20; i++) places.push_back(make_float4(0.5f, 0.5f, i / 10.0f, 0));
    expect("mipmap", readTexture(make(r, cudaFilterModePoint, true), LEVEL), wanted([](float4 p) { return 1 + p.z; }), 0.01f);
}

static void surfaces() {
    cudaArray_t a;
    cudaChannelFormatDesc f = cudaCreateChannelDesc<int>();
    CHECK(cudaMallocArray(&a, &f, W, H, cudaArraySurfaceLoadStore));
    std::vector<int> v(W * H), back(W * H);
    for (int i = 0; i < W * H; i++) v[i] = i;
    CHECK(cudaMemcpy2DToArray(a, 0, 0, v.data(), W * sizeof(int), W * sizeof(int), H, cudaMemcpyHostToDevice));
    cudaResourceDesc r = ofArray(a);
    cudaSurfaceObject_t s;
    CHECK(cudaCreateSurfaceObject(&s, &r));
    printf("surface %llu\n", (unsigned long long)s);
    for (int i = 0; i < 5; i++) step<<<dim3(1, H), W>>>(s, W);
    CHECK(cudaMemcpy2DFromArray(back.data(), W * sizeof(int), a, 0, 0, W * sizeof(int), H, cudaMemcpyDeviceToHost));
    for (int i = 0; i < W * H; i++) TRUE(back[i] == i + 5);
    // A part is written between kernels, and the rest stays.
    std::vector<int> zeros(8, 0);
    CHECK(cudaMemcpy2DToArray(a, 4 * sizeof(int), 2, zeros.data(), 4 * sizeof(int), 4 * sizeof(int), 2, cudaMemcpyHostToDevice));
    step<<<dim3(1, H), W>>>(s, W);
    CHECK(cudaMemcpy2DFromArray(back.data(), W * sizeof(int), a, 0, 0, W * sizeof(int), H, cudaMemcpyDeviceToHost));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) TRUE(back[y * W + x] == (x >= 4 && x < 8 && y >= 2 && y < 4 ? 1 : y * W + x + 6));
    CHECK(cudaDestroySurfaceObject(s));
    CHECK(cudaFreeArray(a));
}

int main() {
    CHECK(cudaMalloc((void **)&placesOnDevice, W * H * sizeof(float4)));
    CHECK(cudaMalloc((void **)&results, W * H * sizeof(float)));
    arrays();
    memory();
    mipmaps();
    surfaces();
    printf("right\n");
    return 0;
}
