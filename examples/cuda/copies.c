// Copies of growing sizes, to the GPU and back, each timed until it is done: the bandwidth and the
// latency of the way to a GPU, near or far.
#include "gpu.h"

#include <stdio.h>

GPU_IMAGE("va.ptx");

// Words that depend on their place and on the round, so that a copy that is lost or late shows.
static void fill(uint32_t *words, long count, uint32_t round) {
    for (long i = 0; i < count; i++)
        words[i] = ((uint32_t)i + 1) * 2654435761u + round;
}

int main(int argc, char **argv) {
    long least = 4096;
    gpu.size = 4 << 20;
    gpu.repeat = 3;
    struct gpu_option own[] = {
        {"least", "bytes of the smallest copies, of which the others are 4, 16, 64 times", GPU_NUMBER, &least, false},
        {0},
    };
    gpu_options(argc, argv, "times copies to the GPU and back", "bytes of the largest copies", "copies of each size, after one that does not count", own);
    if (least < 4 || least % 4 || least > gpu.size)
        gpu_misuse("--least must be a multiple of 4 from 4 to --size");
    uint32_t *out = host_alloc((size_t)gpu.size), *back = host_alloc((size_t)gpu.size);
    gpu_open(gpu_image);
    CUdeviceptr there = gpu_alloc((size_t)gpu.size);
    uint32_t round = (uint32_t)gpu.seed;
    long copies = 0;
    for (long bytes = least; bytes <= gpu.size; bytes *= 4)
        for (long r = 0; r <= gpu.repeat; r++) {
            fill(out, bytes / 4, ++round);
            gpu_begin();
            gpu_set(there, out, (size_t)bytes);
            double in = gpu_end(), began = now();
            gpu_get(back, there, (size_t)bytes);
            double from = now() - began;
            for (long i = 0; i < bytes / 4; i++)
                if (back[i] != out[i])
                    gpu_wrong("word %ld of a copy of %ld bytes is %#x, not %#x", i, bytes, back[i], out[i]);
            copies += 2;
            if (r > 0 && printf("copy %ld %.9f %.9f\n", bytes, in, from) < 0)
                gpu_wrong("nothing can be written");
        }
    return gpu_close("%ld copies", copies);
}
