#include "generator.h"

#include "gpu.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

GPU_IMAGE("generator.ptx");

static struct {
    long iterations, phases, elements, kernels, gpu_bytes, mpi_bytes, slow_ranks;
    double gpu_ms, cpu_ms, imbalance;
    bool cpu_sleep, spread;
    const char *pattern;
} option = {
    .iterations = 5, .phases = 1, .elements = 64 << 10, .gpu_bytes = 100000, .mpi_bytes = 400000,
    .slow_ranks = 1, .gpu_ms = 50, .pattern = "barrier",
};

bool generator_patient;

static enum pattern { NONE, BARRIER, BROADCAST, SCATTER_GATHER, ALL_TO_ALL } pattern;
static const char *const patterns[] = {"none", "barrier", "bcast", "scatter-gather", "alltoall"};

static const struct gpu_option options[] = {
    {"iterations", "iterations", GPU_NUMBER, &option.iterations, false},
    {"phases", "phases of an iteration", GPU_NUMBER, &option.phases, false},
    {"gpu-ms", "milliseconds of a phase on the GPU, measured alone at the start", GPU_REAL, &option.gpu_ms, false},
    {"kernels", "kernel calls of a phase instead; 0 to measure", GPU_NUMBER, &option.kernels, false},
    {"elements", "elements that a kernel call adds", GPU_NUMBER, &option.elements, false},
    {"gpu-bytes", "bytes copied to the GPU and back in a phase", GPU_NUMBER, &option.gpu_bytes, false},
    {"cpu-ms", "milliseconds of a phase on the CPU", GPU_REAL, &option.cpu_ms, false},
    {"cpu-sleep", "sleep in CPU phases, as if another core computed", GPU_FLAG, &option.cpu_sleep, false},
    {"pattern", "none, barrier, bcast, scatter-gather or alltoall", GPU_WORD, &option.pattern, false},
    {"mpi-bytes", "bytes of a communication, in all parts together", GPU_NUMBER, &option.mpi_bytes, false},
    {"imbalance", "per cent by which the GPU phases of slow ranks are longer; shorter below 0", GPU_REAL, &option.imbalance, true},
    {"slow-ranks", "how many ranks are slow: the last ones", GPU_NUMBER, &option.slow_ranks, false},
    {"patient", "wait asleep for the other processes", GPU_FLAG, &generator_patient, false},
    {"spread", "take the devices in turn, by rank", GPU_FLAG, &option.spread, false},
};

void generator_options(int argc, char **argv, const char *about, long *processes) {
    enum { COUNT = sizeof options / sizeof *options };
    struct gpu_option own[COUNT + 2] = {{"processes", "processes", GPU_NUMBER, processes, false}};
    memcpy(own + 1, options, sizeof options);
    gpu_options(argc, argv, about, NULL, NULL, processes ? own : own + 1);
    for (pattern = NONE; strcmp(patterns[pattern], option.pattern); pattern++)
        if (pattern == ALL_TO_ALL)
            gpu_misuse("--pattern is %s, not none, barrier, bcast, scatter-gather or alltoall", option.pattern);
    if (option.elements < 1 || option.elements > INT_MAX)
        gpu_misuse("--elements must be from 1 to %d", INT_MAX);
    if (option.gpu_bytes % 4 || option.gpu_bytes / 4 > option.elements)
        gpu_misuse("--gpu-bytes must be a multiple of 4, at most 4 times --elements");
    if (option.imbalance < -100)
        gpu_misuse("--imbalance must be at least -100");
    if (option.mpi_bytes > INT_MAX || option.kernels > INT_MAX)
        gpu_misuse("--mpi-bytes and --kernels must be at most %d", INT_MAX);
}

// A part is whole words, and what all parts hold together is what was asked for
// or a little more.
static size_t part_words(int count) { return (size_t)groups(option.mpi_bytes, 4L * count); }

size_t generator_message(int count) {
    size_t bytes = part_words(count) * sizeof(uint32_t) * (size_t)count;
    return bytes > sizeof(long) ? bytes : sizeof(long);
}

// Word i of a message of a round from one rank to another. Nobody has to be told
// what to expect.
static uint32_t word(long round, int from, int to, size_t i) {
    uint64_t x = (uint64_t)round * 0x9e3779b97f4a7c15u + (uint64_t)from * 0xbf58476d1ce4e5b9u +
                 (uint64_t)to * 0x94d049bb133111ebu + i * 0xd6e8feb86659fd93u;
    return (uint32_t)(x >> 32 ^ x);
}

static void write_part(uint32_t *part, long round, int from, int to, size_t words) {
    for (size_t i = 0; i < words; i++)
        part[i] = word(round, from, to, i);
}

static void check_part(const uint32_t *part, long round, int from, int to, size_t words, int rank) {
    for (size_t i = 0; i < words; i++)
        if (part[i] != word(round, from, to, i))
            gpu_wrong("rank %d, round %ld: word %zu from rank %d is %#x, not %#x", rank, round, i, from, part[i], word(round, from, to, i));
}

// What each process has besides its peers.
struct state {
    const struct peers *peers;
    uint32_t *out, *in;      // messages
    uint32_t *sum, *step;    // the GPU's vectors as they should be
    CUdeviceptr gpu_sum, gpu_step;
    CUfunction add;
    long kernels;  // of a phase of this rank
};

static void communicate(struct state *s, long round) {
    const struct peers *p = s->peers;
    size_t words = part_words(p->count), bytes = words * sizeof(uint32_t);
    switch (pattern) {
    case NONE:
        break;
    case BARRIER:
        p->barrier();
        break;
    case BROADCAST:
        write_part(s->in, p->rank == 0 ? round : -1, 0, 0, words * (size_t)p->count);
        p->broadcast(s->in, bytes * (size_t)p->count);
        check_part(s->in, round, 0, 0, words * (size_t)p->count, p->rank);
        break;
    case SCATTER_GATHER:
        for (int to = 0; p->rank == 0 && to < p->count; to++)
            write_part(s->out + (size_t)to * words, round, 0, to, words);
        p->scatter(s->out, s->in, bytes);
        check_part(s->in, round, 0, p->rank, words, p->rank);
        break;
    case ALL_TO_ALL:
        for (int to = 0; to < p->count; to++)
            write_part(s->out + (size_t)to * words, round, p->rank, to, words);
        p->all_to_all(s->out, s->in, bytes);
        for (int from = 0; from < p->count; from++)
            check_part(s->in + (size_t)from * words, round, from, p->rank, words, p->rank);
        break;
    }
}

// The second half of scatter-gather, after the computing.
static void collect(struct state *s, long round) {
    const struct peers *p = s->peers;
    if (pattern != SCATTER_GATHER)
        return;
    size_t words = part_words(p->count);
    write_part(s->out, round, p->rank, 0, words);
    p->gather(s->out, s->in, words * sizeof(uint32_t));
    for (int from = 0; p->rank == 0 && from < p->count; from++)
        check_part(s->in + (size_t)from * words, round, from, 0, words, 0);
}

static void launch(struct state *s, long kernels) {
    int n = (int)option.elements;
    for (long k = 0; k < kernels; k++)
        LAUNCH(s->add, groups(n, 256), 1, 256, 1, &s->gpu_sum, &s->gpu_step, &n);
    for (int i = 0; i < n; i++)
        s->sum[i] += (uint32_t)kernels * s->step[i];
}

static void check_sum(struct state *s, const uint32_t *have, long count) {
    for (long i = 0; i < count; i++)
        if (have[i] != s->sum[i])
            gpu_wrong("rank %d: element %ld is %u, not %u", s->peers->rank, i, have[i], s->sum[i]);
}

// New numbers for the first elements, the additions, and the result back.
static void gpu_phase(struct state *s, uint32_t *scratch) {
    size_t bytes = (size_t)option.gpu_bytes;
    for (size_t i = 0; i < bytes / 4; i++)
        s->step[i] = random_bits();
    gpu_begin();
    if (bytes)
        gpu_set(s->gpu_step, s->step, bytes);
    launch(s, s->kernels);
    if (bytes)
        gpu_get(scratch, s->gpu_sum, bytes);
    gpu_end();
    check_sum(s, scratch, option.gpu_bytes / 4);
}

// How many kernel calls fill a phase. Rank 0 finds it out while the others wait.
static long calibrate(struct state *s) {
    long kernels = option.kernels;
    if (kernels == 0 && s->peers->rank == 0 && option.gpu_ms > 0) {
        double took = 0;
        launch(s, 1); // the first is not like the others
        CHECK(cuCtxSynchronize());
        long tried = 1;
        for (;; tried *= 2) {
            double began = now();
            launch(s, tried);
            CHECK(cuCtxSynchronize());
            took = now() - began;
            if (took > 0.05 || tried >= 1 << 20)
                break;
        }
        kernels = (long)(option.gpu_ms / 1000 / took * (double)tried + 0.5);
        if (kernels < 1)
            kernels = 1;
    }
    s->peers->broadcast(&kernels, sizeof kernels);
    return kernels;
}

int generator_run(const struct peers *p) {
    if (option.spread) {
        int devices;
        CHECK(cuInit(0));
        CHECK(cuDeviceGetCount(&devices));
        gpu.device = devices > 0 ? p->rank % devices : 0;
    }
    gpu.quiet = gpu.quiet || p->rank != 0;
    size_t vector = (size_t)option.elements * sizeof(uint32_t);
    uint32_t *scratch = host_alloc(vector);
    struct state s = {
        .peers = p,
        .out = host_alloc(generator_message(p->count)), .in = host_alloc(generator_message(p->count)),
        .sum = host_alloc(vector), .step = host_alloc(vector),
    };
    for (long i = 0; i < option.elements; i++) {
        s.sum[i] = random_bits() + (uint32_t)p->rank;
        s.step[i] = random_bits();
    }
    gpu_open(gpu_image);
    s.add = gpu_kernel("add");
    s.gpu_sum = gpu_put(s.sum, vector);
    s.gpu_step = gpu_put(s.step, vector);
    s.kernels = calibrate(&s);
    if (p->rank >= p->count - option.slow_ranks)
        s.kernels = (long)((double)s.kernels * (1 + option.imbalance / 100) + 0.5);

    for (long round = 0; round < option.iterations * option.phases; round++) {
        communicate(&s, round);
        gpu_phase(&s, scratch);
        if (option.cpu_ms > 0)
            cpu_phase(option.cpu_ms / 1000, option.cpu_sleep);
        collect(&s, round);
    }
    gpu_get(scratch, s.gpu_sum, vector);
    check_sum(&s, scratch, option.elements);
    p->barrier(); // so that the time is everybody's
    return gpu_close("%d processes, %ld iterations of %ld phases of %ld kernel calls", p->count, option.iterations, option.phases, s.kernels);
}
