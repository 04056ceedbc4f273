#include "gpu.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct gpu_settings gpu = {.seed = 1};

static const char *program = "";
static double started, phase_began, gpu_seconds;
static CUdevice device;
static CUmodule module;
static CUdeviceptr held;
static uint64_t random_state;
static int gate = -1;
static size_t copied;
long gpu_calls;

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Says something in one piece, so that lines of several processes do not mix.
static void say(const char *format, va_list args) {
    char line[1024];
    size_t n = (size_t)snprintf(line, sizeof line - 1, "%s: ", program);
    n += (size_t)vsnprintf(line + n, sizeof line - 1 - n, format, args);
    n = n < sizeof line - 2 ? n : sizeof line - 2;
    line[n] = '\n';
    fwrite(line, 1, n + 1, stderr);
}

void gpu_misuse(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    exit(2);
}

void gpu_wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    exit(1);
}

void gpu_check(CUresult result, const char *call, const char *file, int line) {
    if (result == CUDA_SUCCESS)
        return;
    const char *name = NULL, *text = NULL;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    gpu_wrong("%s:%d: %s: %s: %s", file, line, call, name ? name : "an error without a name", text ? text : "");
}

static const char *const placeholders[] = {"N", "X", "WORD", ""};

static void help(const char *about, const struct gpu_option *const lists[2]) {
    printf("%s: %s\n\n", program, about);
    for (int l = 0; l < 2; l++)
        for (const struct gpu_option *o = lists[l]; o && o->name; o++) {
            int width = printf("  --%s %s", o->name, placeholders[o->kind]);
            printf("%*s%s", width < 20 ? 20 - width : 1, "", o->help);
            if (o->kind == GPU_NUMBER)
                printf(" (%ld)", *(long *)o->value);
            if (o->kind == GPU_REAL)
                printf(" (%g)", *(double *)o->value);
            if (o->kind == GPU_WORD && *(const char **)o->value)
                printf(" (%s)", *(const char **)o->value);
            putchar('\n');
        }
    printf("\nNumbers may end in k, M or G, which stand for 1024, its square and its cube.\n");
}

// A number with an optional k, M or G.
static long number(const struct gpu_option *o, const char *text) {
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10), factor = 1;
    switch (*end) {
    case 'G':
        factor *= 1024;
        __attribute__((fallthrough));
    case 'M':
        factor *= 1024;
        __attribute__((fallthrough));
    case 'k':
        factor *= 1024;
        end++;
    }
    if (end == text || *end || errno || n > LONG_MAX / factor || n < LONG_MIN / factor)
        gpu_misuse("--%s is %s, not a number", o->name, text);
    if (n < 0 && !o->signs)
        gpu_misuse("--%s is %s: it cannot be below 0", o->name, text);
    return n * factor;
}

static void set(const struct gpu_option *o, const char *text) {
    char *end;
    switch (o->kind) {
    case GPU_NUMBER:
        *(long *)o->value = number(o, text);
        break;
    case GPU_REAL:
        *(double *)o->value = strtod(text, &end);
        // The odd form refuses what is not a number, too.
        if (end == text || *end || (!o->signs && !(*(double *)o->value >= 0)) || !(*(double *)o->value < 1e9))
            gpu_misuse("--%s is %s, not a number that can be used", o->name, text);
        break;
    case GPU_WORD:
        *(const char **)o->value = text;
        break;
    case GPU_FLAG:
        *(bool *)o->value = true;
        break;
    }
}

void gpu_options(int argc, char **argv, const char *about, const char *size,
                 const char *repeat, const struct gpu_option *own) {
    started = now();
    program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    struct gpu_option shared[9], *next = shared;
    if (size)
        *next++ = (struct gpu_option){"size", size, GPU_NUMBER, &gpu.size, false};
    if (repeat)
        *next++ = (struct gpu_option){"repeat", repeat, GPU_NUMBER, &gpu.repeat, false};
    *next++ = (struct gpu_option){"seed", "where the random numbers start", GPU_NUMBER, &gpu.seed, false};
    *next++ = (struct gpu_option){"memory", "bytes of GPU memory to hold besides", GPU_NUMBER, &gpu.memory, false};
    *next++ = (struct gpu_option){"device", "the device to use", GPU_NUMBER, &gpu.device, false};
    *next++ = (struct gpu_option){"gate", "a Unix socket to wait at before the GPU is used, as @NAME or a path", GPU_WORD, &gpu.gate, false};
    *next++ = (struct gpu_option){"quiet", "print nothing when all is right", GPU_FLAG, &gpu.quiet, false};
    *next = (struct gpu_option){0};
    const struct gpu_option *const lists[2] = {own, shared};

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            help(about, lists);
            exit(0);
        }
        const struct gpu_option *found = NULL;
        for (int l = 0; l < 2; l++)
            for (const struct gpu_option *o = lists[l]; o && o->name; o++)
                if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, o->name))
                    found = o;
        if (!found)
            gpu_misuse("there is no option %s: --help shows them", argv[i]);
        if (found->kind == GPU_FLAG)
            set(found, NULL);
        else if (++i < argc)
            set(found, argv[i]);
        else
            gpu_misuse("--%s needs a value", found->name);
    }
    if (size && (gpu.size < 1 || gpu.size > INT_MAX))
        gpu_misuse("--size must be from 1 to %d", INT_MAX);
    if (repeat && (gpu.repeat < 1 || gpu.repeat > INT_MAX))
        gpu_misuse("--repeat must be from 1 to %d", INT_MAX);
    if (gpu.memory % 4)
        gpu_misuse("--memory must be a multiple of 4");
    if (gpu.device > INT_MAX)
        gpu_misuse("--device is too large");
    random_state = (uint64_t)gpu.seed;
}

// The held memory is words of a sequence that is a function of their place, so
// that one lost, moved or swapped with another shows.
enum { PIECE = 1 << 20 };

static uint32_t held_word(size_t i) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)gpu.seed;
    return (uint32_t)(x >> 32 ^ x);
}

static size_t piece_words(size_t at) {
    size_t left = ((size_t)gpu.memory - at) / 4;
    return left < PIECE ? left : PIECE;
}

static void hold(void) {
    if (gpu.memory == 0)
        return;
    held = gpu_alloc((size_t)gpu.memory);
    uint32_t *words = host_alloc(PIECE * sizeof *words);
    for (size_t at = 0; at < (size_t)gpu.memory; at += PIECE * sizeof *words) {
        size_t count = piece_words(at);
        for (size_t i = 0; i < count; i++)
            words[i] = held_word(at / 4 + i);
        gpu_set(held + at, words, count * sizeof *words);
    }
    free(words);
}

static void check_held(void) {
    if (gpu.memory == 0)
        return;
    uint32_t *words = host_alloc(PIECE * sizeof *words);
    for (size_t at = 0; at < (size_t)gpu.memory; at += PIECE * sizeof *words) {
        size_t count = piece_words(at);
        gpu_get(words, held + at, count * sizeof *words);
        for (size_t i = 0; i < count; i++)
            if (words[i] != held_word(at / 4 + i))
                gpu_wrong("word %zu of the memory held is %#x, not %#x", at / 4 + i, words[i], held_word(at / 4 + i));
    }
    free(words);
    CHECK(cuMemFree(held));
}

// Says how far the program is, and waits for the byte that lets it go on.
static void wait_at_gate(const char *what) {
    char line[128], byte;
    int length = snprintf(line, sizeof line, "%s %ld %ld %zu\n", what, (long)getpid(), gpu_calls, copied);
    if (send(gate, line, (size_t)length, MSG_NOSIGNAL) != length)
        gpu_wrong("--gate %s: %s", gpu.gate, strerror(errno));
    ssize_t got;
    while ((got = read(gate, &byte, 1)) < 0 && errno == EINTR)
        ;
    if (got != 1)
        gpu_wrong("--gate %s: nobody is there to open it", gpu.gate);
}

static void enter_gate(void) {
    if (!gpu.gate)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(gpu.gate);
    if (length == 0 || length >= sizeof address.sun_path)
        gpu_misuse("--gate needs a name of 1 to %zu bytes", sizeof address.sun_path - 1);
    memcpy(address.sun_path, gpu.gate, length);
    if (*gpu.gate == '@')
        *address.sun_path = 0; // a name without a file
    gate = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (gate < 0 || connect(gate, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)))
        gpu_wrong("--gate %s: %s", gpu.gate, strerror(errno));
    wait_at_gate("ready");
}

void gpu_open(const char *image) {
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, (int)gpu.device));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, image));
    hold();
    enter_gate();
}

CUfunction gpu_kernel(const char *name) {
    CUfunction kernel;
    CHECK(cuModuleGetFunction(&kernel, module, name));
    return kernel;
}

CUdeviceptr gpu_variable(const char *name, size_t *bytes) {
    CUdeviceptr address;
    CHECK(cuModuleGetGlobal(&address, bytes, module, name));
    return address;
}

CUdeviceptr gpu_alloc(size_t bytes) {
    CUdeviceptr p;
    CHECK(cuMemAlloc(&p, bytes));
    return p;
}

CUdeviceptr gpu_put(const void *data, size_t bytes) {
    CUdeviceptr p = gpu_alloc(bytes);
    gpu_set(p, data, bytes);
    return p;
}

void gpu_set(CUdeviceptr to, const void *data, size_t bytes) {
    CHECK(cuMemcpyHtoD(to, data, bytes));
    copied += bytes;
}

void gpu_get(void *data, CUdeviceptr from, size_t bytes) {
    CHECK(cuMemcpyDtoH(data, from, bytes));
    copied += bytes;
}

void gpu_begin(void) { phase_began = now(); }

double gpu_end(void) {
    CHECK(cuCtxSynchronize());
    double seconds = now() - phase_began;
    gpu_seconds += seconds;
    return seconds;
}

void cpu_phase(double seconds, bool sleeping) {
    double end = now() + seconds;
    if (sleeping) {
        struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        while (nanosleep(&t, &t) && errno == EINTR)
            ;
        return;
    }
    static volatile float vector[4096];
    while (now() < end)
        for (int i = 0; i < 4096; i++)
            vector[i] = vector[i] + 1;
}

int gpu_close(const char *format, ...) {
    check_held();
    if (gpu.gate)
        wait_at_gate("done");
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(device));
    if (gpu.quiet)
        return 0;
    double all = now() - started;
    printf("%s: ", program);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf(" right, %.2f s (GPU %.2f s, CPU %.2f s)\n", all, gpu_seconds, all - gpu_seconds);
    return fflush(stdout) ? 1 : 0;
}

void *host_alloc(size_t bytes) {
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        gpu_wrong("no memory for %zu bytes", bytes);
    return p;
}

// splitmix64: small, and good enough for test data.
uint32_t random_bits(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

uint32_t random_below(uint32_t limit) {
    return (uint32_t)((uint64_t)random_bits() * limit >> 32);
}
