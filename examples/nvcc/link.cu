// nvcc: -std=c++17 -lnvrtc -lcuda -lnvJitLink
// Images made while the program runs: linked from several pieces, one of them a file; loaded
// as libraries and as modules, with the compiler's logs; and linked from LTO pieces.
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"

enum Form { PTX, CUBIN, LTO };

static std::string arch; // "90"

static std::string compile(const char *source, Form form) {
    std::string target = std::string("--gpu-architecture=") + (form == CUBIN ? "sm_" : "compute_") + arch;
    std::vector<const char *> options = {target.c_str(), "--relocatable-device-code=true"};
    if (form == LTO) options.push_back("-dlto");
    nvrtcProgram p;
    NEED(nvrtcCreateProgram(&p, source, "piece.cu", 0, nullptr, nullptr));
    nvrtcResult r = nvrtcCompileProgram(p, (int)options.size(), options.data());
    size_t n;
    NEED(nvrtcGetProgramLogSize(p, &n));
    std::string log(n, 0), out;
    NEED(nvrtcGetProgramLog(p, &log[0]));
    if (r != NVRTC_SUCCESS) fprintf(stderr, "%s\n", log.c_str());
    NEED(r);
    if (form == PTX) {
        NEED(nvrtcGetPTXSize(p, &n));
        out.resize(n);
        NEED(nvrtcGetPTX(p, &out[0]));
    } else if (form == CUBIN) {
        NEED(nvrtcGetCUBINSize(p, &n));
        out.resize(n);
        NEED(nvrtcGetCUBIN(p, &out[0]));
    } else {
        NEED(nvrtcGetLTOIRSize(p, &n));
        out.resize(n);
        NEED(nvrtcGetLTOIR(p, &out[0]));
    }
    NEED(nvrtcDestroyProgram(&p));
    return out;
}

static const char *entry = R"(
extern __device__ int offset;
__device__ int scale(int);
__device__ int shift(int);
extern "C" __global__ void work(int *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = shift(scale(v[i]));
}
extern "C" __global__ void other(int *v) { v[0] = offset; }
)";
static const char *scaling = "__device__ int scale(int x) { return 3 * x; }";
static const char *shifting = R"(
__device__ int offset = 7;
__device__ int shift(int x) { return x + offset; }
)";

static const int N = 1000;

// Launches work on 0..N-1; the results must be 3 i + offset.
static void run(CUfunction f, int offset) {
    std::vector<int> v(N), got(N);
    for (int i = 0; i < N; i++) v[i] = i;
    CUdeviceptr d;
    NEED(cuMemAlloc(&d, N * 4));
    NEED(cuMemcpyHtoD(d, v.data(), N * 4));
    int n = N;
    void *args[] = {&d, &n};
    NEED(cuLaunchKernel(f, (N + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, args, nullptr));
    NEED(cuMemcpyDtoH(got.data(), d, N * 4));
    for (int i = 0; i < N; i++) TRUE(got[i] == 3 * i + offset);
    NEED(cuMemFree(d));
}

static std::string linked() {
    char path[] = "/tmp/muster-link-XXXXXX";
    int fd = mkstemp(path);
    std::string a = compile(entry, PTX), b = compile(scaling, PTX), c = compile(shifting, CUBIN);
    TRUE(fd >= 0 && write(fd, c.data(), c.size()) == (ssize_t)c.size());
    close(fd);
    char info[4096] = "", errors[4096] = "";
    float time = -1;
    CUjit_option names[] = {CU_JIT_WALL_TIME, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
    void *values[] = {&time, info, (void *)(uintptr_t)sizeof info, errors, (void *)(uintptr_t)sizeof errors, (void *)1};
    CUlinkState link;
    void *image;
    size_t size;
    NEED(cuLinkCreate(6, names, values, &link));
    NEED(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)a.data(), a.size(), "entry", 0, nullptr, nullptr));
    NEED(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)b.data(), b.size(), "scaling", 0, nullptr, nullptr));
    NEED(cuLinkAddFile(link, CU_JIT_INPUT_CUBIN, path, 0, nullptr, nullptr));
    NEED(cuLinkComplete(link, &image, &size));
    std::string out((const char *)image, size);
    NEED(cuLinkDestroy(link)); // the image with it
    unlink(path);
    TRUE(errors[0] == 0);
    // A piece that is missing is an error of the link.
    NEED(cuLinkCreate(0, nullptr, nullptr, &link));
    CUresult r = cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)a.data(), a.size(), "entry", 0, nullptr, nullptr);
    if (r == CUDA_SUCCESS) r = cuLinkComplete(link, &image, &size);
    TRUE(r != CUDA_SUCCESS);
    NEED(cuLinkDestroy(link));
    printf("link: pieces right\n");
    return out;
}

static void modules(const std::string &image) {
    CUmodule m, of;
    CUfunction f;
    CUdeviceptr at;
    size_t size;
    int value = 100, count;
    NEED(cuModuleLoadData(&m, image.data()));
    NEED(cuModuleGetFunction(&f, m, "work"));
    run(f, 7);
    NEED(cuModuleGetGlobal(&at, &size, m, "offset"));
    TRUE(size == 4);
    NEED(cuMemcpyHtoD(at, &value, 4));
    run(f, 100);
    NEED(cuFuncGetModule(&of, f));
    TRUE(of == m);
    NEED(cuFuncGetAttribute(&count, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    TRUE(count >= 128);
    unsigned functions;
    NEED(cuModuleGetFunctionCount(&functions, m));
    TRUE(functions == 2);
    TRUE(cuModuleGetFunction(&f, m, "absent") == CUDA_ERROR_NOT_FOUND);
    NEED(cuModuleUnload(m));
    // The compiler's logs: of what goes well, and of what does not.
    std::string good = compile("extern \"C\" __global__ void work(int *v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] = 3 * v[i] + 1; }", PTX);
    char info[4096] = "", errors[4096] = "";
    CUjit_option names[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {info, (void *)(uintptr_t)sizeof info, errors, (void *)(uintptr_t)sizeof errors, (void *)32, (void *)2};
    NEED(cuModuleLoadDataEx(&m, good.c_str(), 6, names, values));
    NEED(cuModuleGetFunction(&f, m, "work"));
    run(f, 1);
    NEED(cuFuncGetAttribute(&count, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    TRUE(count <= 32);
    NEED(cuModuleUnload(m));
    void *again[] = {info, (void *)(uintptr_t)sizeof info, errors, (void *)(uintptr_t)sizeof errors};
    std::string bad = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry work() { nonsense; }\n";
    TRUE(cuModuleLoadDataEx(&m, bad.c_str(), 4, names, again) == CUDA_ERROR_INVALID_PTX);
    TRUE(strlen(errors) > 0);
    printf("link: modules and logs right\n");
}

static void libraries(const std::string &image) {
    CUlibrary l;
    CUkernel k, all[2];
    CUfunction f;
    CUmodule m;
    CUdeviceptr at;
    size_t size;
    unsigned count;
    int value = 55, threads;
    CUdevice device;
    NEED(cuCtxGetDevice(&device));
    NEED(cuLibraryLoadData(&l, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    NEED(cuLibraryGetKernelCount(&count, l));
    TRUE(count == 2);
    NEED(cuLibraryEnumerateKernels(all, 2, l));
    NEED(cuLibraryGetKernel(&k, l, "work"));
    TRUE(k == all[0] || k == all[1]);
    const char *name;
    NEED(cuKernelGetName(&name, k));
    TRUE(strcmp(name, "work") == 0);
    NEED(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k, device));
    TRUE(threads >= 128);
    NEED(cuKernelGetFunction(&f, k));
    run(f, 7);
    run((CUfunction)k, 7); // a kernel may be launched itself
    NEED(cuLibraryGetGlobal(&at, &size, l, "offset"));
    NEED(cuMemcpyHtoD(at, &value, 4));
    run(f, 55);
    NEED(cuLibraryGetModule(&m, l));
    NEED(cuModuleGetFunction(&f, m, "work"));
    run(f, 55);
    NEED(cuLibraryUnload(l));
    printf("link: libraries right\n");
}

static void lto() {
    nvJitLinkHandle h;
    std::string target = "-arch=sm_" + arch;
    const char *options[] = {target.c_str(), "-lto"};
    NEED(nvJitLinkCreate(&h, 2, options));
    std::string pieces[] = {compile(entry, LTO), compile(scaling, LTO), compile(shifting, LTO)};
    for (auto &p : pieces) NEED(nvJitLinkAddData(h, NVJITLINK_INPUT_LTOIR, (void *)p.data(), p.size(), "piece"));
    NEED(nvJitLinkComplete(h));
    size_t size;
    NEED(nvJitLinkGetLinkedCubinSize(h, &size));
    std::string cubin(size, 0);
    NEED(nvJitLinkGetLinkedCubin(h, &cubin[0]));
    NEED(nvJitLinkDestroy(&h));
    CUmodule m;
    CUfunction f;
    NEED(cuModuleLoadData(&m, cubin.data()));
    NEED(cuModuleGetFunction(&f, m, "work"));
    run(f, 7);
    NEED(cuModuleUnload(m));
    printf("link: LTO right\n");
}

int main() {
    setbuf(stdout, nullptr);
    CUdevice device;
    CUcontext context;
    int major, minor;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    NEED(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    arch = std::to_string(10 * major + minor);
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    std::string image = linked();
    modules(image);
    libraries(image);
    lto();
    NEED(cuDevicePrimaryCtxRelease(device));
    printf("link: right\n");
    return 0;
}
