// nvcc: -lnvrtc -lcuda -lnvJitLink
// Compiles kernels while it runs, with NVRTC; loads them as PTX, as a cubin, and linked from
// two pieces with cuLink* and with nvJitLink. Its context is made by cuCtxCreate.
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "check.h"

static std::string compile(const char *source, std::vector<const char *> options, bool cubin) {
    nvrtcProgram p;
    NEED(nvrtcCreateProgram(&p, source, "kernel.cu", 0, nullptr, nullptr));
    if (nvrtcCompileProgram(p, (int)options.size(), options.data()) != NVRTC_SUCCESS) {
        size_t n;
        nvrtcGetProgramLogSize(p, &n);
        std::string log(n, ' ');
        nvrtcGetProgramLog(p, &log[0]);
        fprintf(stderr, "%s\n", log.c_str());
        exit(1);
    }
    size_t n;
    NEED(cubin ? nvrtcGetCUBINSize(p, &n) : nvrtcGetPTXSize(p, &n));
    std::string out(n, 0);
    NEED(cubin ? nvrtcGetCUBIN(p, &out[0]) : nvrtcGetPTX(p, &out[0]));
    NEED(nvrtcDestroyProgram(&p));
    return out;
}

static void run(const void *image, const char *how) {
    CUmodule module;
    CUfunction f;
    NEED(cuModuleLoadData(&module, image));
    NEED(cuModuleGetFunction(&f, module, "twice"));
    const int n = 1000;
    std::vector<int> v(n), got(n);
    for (int i = 0; i < n; i++) v[i] = i;
    CUdeviceptr d;
    NEED(cuMemAlloc(&d, n * 4));
    NEED(cuMemcpyHtoD(d, v.data(), n * 4));
    int count = n;
    void *args[] = {&d, &count};
    NEED(cuLaunchKernel(f, (n + 127) / 128, 1, 1, 128, 1, 1, 0, 0, args, nullptr));
    NEED(cuMemcpyDtoH(got.data(), d, n * 4));
    for (int i = 0; i < n; i++) TRUE(got[i] == 2 * i + 1);
    NEED(cuMemFree(d));
    NEED(cuModuleUnload(module));
    printf("%s: right\n", how);
}

int main() {
    setbuf(stdout, nullptr);
    NEED(cuInit(0));
    CUdevice device;
    CUcontext context;
    int major, minor;
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    NEED(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    NEED(cuCtxCreate(&context, nullptr, 0, device));
    std::string arch = std::to_string(10 * major + minor), sm = "--gpu-architecture=sm_" + arch, compute = "--gpu-architecture=compute_" + arch;
    const char *whole = "extern \"C\" __global__ void twice(int *p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] = 2 * p[i] + 1; }";
    const char *caller = "__device__ int f(int); extern \"C\" __global__ void twice(int *p, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] = f(p[i]); }";
    const char *callee = "__device__ int f(int x) { return 2 * x + 1; }";
    run(compile(whole, {compute.c_str()}, false).c_str(), "PTX");
    run(compile(whole, {sm.c_str()}, true).data(), "cubin");

    std::string a = compile(caller, {compute.c_str(), "--relocatable-device-code=true"}, false), b = compile(callee, {compute.c_str(), "--relocatable-device-code=true"}, false);
    CUlinkState link;
    void *image;
    size_t size;
    NEED(cuLinkCreate(0, nullptr, nullptr, &link));
    NEED(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)a.c_str(), a.size(), "a", 0, nullptr, nullptr));
    NEED(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)b.c_str(), b.size(), "b", 0, nullptr, nullptr));
    NEED(cuLinkComplete(link, &image, &size));
    run(image, "cuLink");
    NEED(cuLinkDestroy(link));

    nvJitLinkHandle jit;
    std::string option = "-arch=sm_" + arch;
    const char *options[] = {option.c_str()};
    NEED(nvJitLinkCreate(&jit, 1, options));
    NEED(nvJitLinkAddData(jit, NVJITLINK_INPUT_PTX, a.c_str(), a.size(), "a"));
    NEED(nvJitLinkAddData(jit, NVJITLINK_INPUT_PTX, b.c_str(), b.size(), "b"));
    NEED(nvJitLinkComplete(jit));
    NEED(nvJitLinkGetLinkedCubinSize(jit, &size));
    std::vector<char> cubin(size);
    NEED(nvJitLinkGetLinkedCubin(jit, cubin.data()));
    run(cubin.data(), "nvJitLink");
    NEED(nvJitLinkDestroy(&jit));
    NEED(cuCtxDestroy(context));
    printf("rtc: right\n");
    return 0;
}
