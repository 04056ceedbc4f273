// What the examples share: options, the GPU set up once, checked calls, timing,
// and random numbers that are the same everywhere.
#ifndef GPU_H
#define GPU_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Ends the program with the call, its place and CUDA's own words.
#define CHECK(call) gpu_check((call), #call, __FILE__, __LINE__)
void gpu_check(CUresult result, const char *call, const char *file, int line);

// Puts a PTX file into the program, so that the binary stands alone. The folder
// is the assembler's search path.
#define GPU_IMAGE(file)                                                     \
    __asm__(".pushsection .rodata\n"                                        \
            "gpu_image:\n.incbin \"" file "\"\n.byte 0\n"                   \
            ".popsection\n");                                               \
    extern const char gpu_image[] __attribute__((visibility("hidden")))

// The options of every example. A program sets its defaults before gpu_options.
struct gpu_settings {
    long size;    // what it counts is the program's own
    long repeat;  // likewise
    long seed;
    long memory;  // bytes held besides
    long device;
    const char *gate;  // a socket to wait at, or NULL
    bool quiet;
};
extern struct gpu_settings gpu;

// An option: --name VALUE, or --name alone for a flag.
struct gpu_option {
    const char *name, *help;
    enum { GPU_NUMBER, GPU_REAL, GPU_WORD, GPU_FLAG } kind;
    void *value;  // long, double, const char * or bool
    bool signs;   // numbers below 0 are welcome
};

// Reads the command line into gpu and into the program's own options, a list
// that a nameless one ends or NULL. Help and mistakes end the program.
void gpu_options(int argc, char **argv, const char *about, const char *size,
                 const char *repeat, const struct gpu_option *own);

// A mistake in the options: says so and ends the program with status 2.
void gpu_misuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

// A wrong result: says so and ends the program with status 1.
void gpu_wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

// Opens the device, loads the image, and takes the memory to be held. Kernels and
// variables are those of the image. With --gate it then waits until it is let through:
// who measures several programs together lets them in when all are ready. gpu_close
// says that the GPU's part of the program is over, with the kernel calls and the bytes
// copied, and waits until it is let out.
void gpu_open(const char *image);
CUfunction gpu_kernel(const char *name);
CUdeviceptr gpu_variable(const char *name, size_t *bytes);

// Memory of the GPU; gpu_set and gpu_get are the copies in and out, gpu_put is
// gpu_alloc and gpu_set.
CUdeviceptr gpu_alloc(size_t bytes);
CUdeviceptr gpu_put(const void *data, size_t bytes);
void gpu_set(CUdeviceptr to, const void *data, size_t bytes);
void gpu_get(void *data, CUdeviceptr from, size_t bytes);

// Starts a kernel over a grid of x by y blocks of w by h threads; what follows
// are the addresses of the arguments.
extern long gpu_calls;
#define LAUNCH(kernel, x, y, w, h, ...)                                           \
    gpu_calls++, CHECK(cuLaunchKernel((kernel), (unsigned)(x), (unsigned)(y), 1, (w), (h), 1, 0, NULL, \
                         (void *[]){__VA_ARGS__}, NULL))

// The time of the GPU as the program sees it: gpu_begin before the first launch
// or copy of a phase, gpu_end waits for the last and returns the phase's seconds.
void gpu_begin(void);
double gpu_end(void);

// Computes, or sleeps as if another core did, for so long.
void cpu_phase(double seconds, bool sleeping);

// Checks the memory held, closes the device, and prints the one line of a right
// run. Returns the program's exit status.
int gpu_close(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Seconds since some moment.
double now(void);

void *host_alloc(size_t bytes);

// The next random number of a sequence that starts at gpu.seed.
uint32_t random_bits(void);
uint32_t random_below(uint32_t limit);

// How many groups of so many cover count.
static inline long groups(long count, long of) { return (count + of - 1) / of; }

#endif
