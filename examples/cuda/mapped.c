// A program that computes on the CPU and on GPUs in turn, on whichever GPU it is told: somebody at a
// socket says how long each phase is, which of the GPUs that the program sees is to run the next kernel,
// and how much data it takes and gives. The program opens all GPUs, says "ready", and then does what
// it reads, a line each:
//   cpu MICROSECONDS                 sleeps, as if a core computed, and says "launch"
//   run DEVICE TURNS IN OUT          copies IN bytes to the GPU, makes TURNS turns there and says "ran"; copies OUT
//                                    bytes back and says "done"
//   end                              ends
// What comes back is checked.
#include "gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

GPU_IMAGE("mapped.ptx");

enum { LANES = 32, MOST = 64 };

struct place {
    CUcontext context;
    CUmodule module;
    CUfunction turns;
    CUdeviceptr in, out;
};

static FILE *heard, *told;

static void connect_to(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || !*path || strlen(path) >= sizeof address.sun_path)
        gpu_misuse("--gate must name a socket");
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        gpu_wrong("--gate %s: %s", path, strerror(errno));
    told = fdopen(fd, "r");
    heard = fdopen(dup(fd), "w");
    if (!told || !heard)
        gpu_wrong("--gate %s: %s", path, strerror(errno));
}

static void say(const char *word) {
    if (fprintf(heard, "%s\n", word) < 0 || fflush(heard))
        exit(1); // nobody is there any more
}

static void open_all(struct place *places, long devices, size_t bytes) {
    CHECK(cuInit(0));
    for (long d = 0; d < devices; d++) {
        CUdevice device;
        struct place *p = &places[d];
        CHECK(cuDeviceGet(&device, (int)d));
        CHECK(cuDevicePrimaryCtxRetain(&p->context, device));
        CHECK(cuCtxSetCurrent(p->context));
        CHECK(cuModuleLoadData(&p->module, gpu_image));
        CHECK(cuModuleGetFunction(&p->turns, p->module, "turns"));
        p->in = gpu_alloc(bytes);
        p->out = gpu_alloc(bytes);
    }
}

// Checks what LANES threads made of their words.
static void check(const uint32_t *in, const uint32_t *out, long words, long turns) {
    for (long i = 0; i < LANES; i++) {
        uint32_t x = in[i] ^ in[words - 1];
        for (long t = 0; t < turns; t++)
            x = x * 1664525u + 1013904223u;
        if (out[i] != x)
            gpu_wrong("word %ld after %ld turns is %#x, not %#x", i, turns, out[i], x);
    }
}

static size_t within(long bytes, size_t most) {
    size_t least = LANES * sizeof(uint32_t), wanted = bytes < (long)least ? least : (size_t)bytes & ~(size_t)3;
    return wanted > most ? most : wanted;
}

int main(int argc, char **argv) {
    long devices = 1;
    gpu.size = 8 << 20;
    struct gpu_option own[] = {
        {"devices", "how many devices to open", GPU_NUMBER, &devices, false},
        {0},
    };
    gpu_options(argc, argv, "runs kernels on whichever device it is told, by whoever listens at --gate", "bytes that a kernel takes and gives at most", NULL, own);
    if (devices < 1 || devices > MOST)
        gpu_misuse("--devices must be from 1 to %d", MOST);
    size_t most = within(gpu.size, (size_t)gpu.size);
    uint32_t *in = host_alloc(most), *out = host_alloc(most);
    struct place places[MOST];
    open_all(places, devices, most);
    for (size_t i = 0; i < most / 4; i++)
        in[i] = random_bits();
    connect_to(gpu.gate);
    say("ready");
    char line[128];
    while (fgets(line, sizeof line, told)) {
        long a, b, c, d;
        if (sscanf(line, "cpu %ld", &a) == 1) {
            cpu_phase((double)a * 1e-6, true);
            say("launch");
        } else if (sscanf(line, "run %ld %ld %ld %ld", &a, &b, &c, &d) == 4 && a >= 0 && a < devices) {
            struct place *p = &places[a];
            size_t sent = within(c, most), back = within(d, most);
            int words = (int)(sent / 4), turns = (int)b;
            in[0]++;
            CHECK(cuCtxSetCurrent(p->context));
            gpu_set(p->in, in, sent);
            LAUNCH(p->turns, 1, 1, LANES, 1, &p->in, &p->out, &words, &turns);
            CHECK(cuCtxSynchronize());
            say("ran");
            gpu_get(out, p->out, back);
            say("done");
            check(in, out, words, b);
        } else if (!strcmp(line, "end\n")) {
            break;
        } else {
            gpu_wrong("it was told %s", line);
        }
    }
    for (long d = 0; d < devices; d++)
        CHECK(cuModuleUnload(places[d].module));
    return 0;
}
