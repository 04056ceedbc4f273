// Three strands of words, each with a stream of its own, that are laid over each other
// round after round: with events between the streams, copies from and to pinned memory,
// functions of the program's that the streams call, variables of the module, and memory
// that comes and goes. All that a program leaves on a device is in use here, so that
// whatever is lost, done twice or out of order shows in the next rounds.
//
// Everything is in integers. The program does the same on the CPU and compares it; the
// checksum lets others do so who know nothing but the options.
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

GPU_IMAGE("weave.ptx");

enum { STRANDS = 3 };

static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

// What comes in from outside.
static uint32_t word(uint32_t round, uint32_t strand, uint32_t i) {
    return mix((uint32_t)gpu.seed * 0x9e3779b9u + round * 0x85ebca6bu + strand * 0xc2b2ae35u + i);
}

// The same on the CPU.
static struct {
    uint32_t *strand[STRANDS], *braided[STRANDS];
    uint32_t salt[STRANDS + 1], folded;
} cpu;

static void round_on_cpu(uint32_t round, uint32_t n) {
    for (uint32_t s = 0; s < STRANDS; s++)
        for (uint32_t i = 0; i < n; i++) {
            uint32_t x = cpu.strand[s][i] ^ word(round, s, i);
            cpu.strand[s][i] = (x << 7 | x >> 25) + cpu.salt[s];
        }
    for (uint32_t s = 0; s < STRANDS; s++)
        for (uint32_t i = 0; i < n; i++)
            cpu.braided[s][i] = cpu.strand[s][i] + mix(cpu.strand[(s + 1) % STRANDS][(i + round) % n]);
    for (uint32_t s = 0; s < STRANDS; s++) {
        memcpy(cpu.strand[s], cpu.braided[s], n * sizeof(uint32_t));
        cpu.salt[s] = mix(cpu.salt[s] ^ cpu.strand[s][round % n]);
    }
}

// The first quarter of the first strand is covered before all of it is added up.
static void fold_on_cpu(uint32_t round, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        cpu.salt[STRANDS] += i < n / 4 ? round : cpu.strand[0][i];
    cpu.folded += (uint32_t)groups(n, 256);
}

// On the GPU.
static CUfunction absorb, braid, stir, fold;
static CUstream stream[STRANDS];
static CUevent absorbed[STRANDS], braided[STRANDS];
static CUdeviceptr in_at[STRANDS], strand_at[STRANDS], out_at[STRANDS];
static uint32_t *in[STRANDS], *out[STRANDS]; // pinned
static CUdeviceptr salt_at, folded_at;

// What a stream's function needs to know. It is called when the copy of the round
// before has been done, so there is one for each strand.
static struct feed { uint32_t round, strand, n; } feeds[STRANDS];

static void CUDA_CB feed(void *data) {
    struct feed *f = data;
    f->round++;
    for (uint32_t i = 0; i < f->n; i++)
        in[f->strand][i] = word(f->round, f->strand, i);
}

#define ON(kernel, s, count, threads, ...)                                                    \
    CHECK(cuLaunchKernel((kernel), (unsigned)groups(count, threads), 1, 1, threads, 1, 1, 0, \
                         stream[s], (void *[]){__VA_ARGS__}, NULL))

static void set_up(int n) {
    size_t bytes = (size_t)n * sizeof(uint32_t), size;
    absorb = gpu_kernel("absorb");
    braid = gpu_kernel("braid");
    stir = gpu_kernel("stir");
    fold = gpu_kernel("fold");
    salt_at = gpu_variable("salt", &size);
    folded_at = gpu_variable("folded", &size);
    for (int s = 0; s < STRANDS; s++) {
        CHECK(cuStreamCreate(&stream[s], CU_STREAM_NON_BLOCKING));
        CHECK(cuEventCreate(&absorbed[s], CU_EVENT_DEFAULT));
        CHECK(cuEventCreate(&braided[s], CU_EVENT_DEFAULT));
        CHECK(cuMemHostAlloc((void **)&in[s], bytes, 0));
        CHECK(cuMemHostAlloc((void **)&out[s], bytes, 0));
        in_at[s] = gpu_alloc(bytes);
        out_at[s] = gpu_alloc(bytes);
        strand_at[s] = gpu_alloc(bytes);
        CHECK(cuMemsetD32(strand_at[s], 0, (size_t)n));
        cpu.strand[s] = host_alloc(bytes);
        cpu.braided[s] = host_alloc(bytes);
        memset(cpu.strand[s], 0, bytes);
        feeds[s] = (struct feed){0, (uint32_t)s, (uint32_t)n};
    }
}

static void round_on_gpu(int round, int n) {
    size_t bytes = (size_t)n * sizeof(uint32_t);
    for (int s = 0; s < STRANDS; s++) {
        CHECK(cuLaunchHostFunc(stream[s], feed, &feeds[s]));
        CHECK(cuMemcpyHtoDAsync(in_at[s], in[s], bytes, stream[s]));
        ON(absorb, s, n, 256, &in_at[s], &strand_at[s], &n, &s);
        CHECK(cuEventRecord(absorbed[s], stream[s]));
    }
    for (int s = 0; s < STRANDS; s++) {
        int next = (s + 1) % STRANDS;
        CHECK(cuStreamWaitEvent(stream[s], absorbed[next], 0));
        ON(braid, s, n, 256, &strand_at[s], &strand_at[next], &out_at[s], &n, &round);
        CHECK(cuEventRecord(braided[s], stream[s]));
    }
    for (int s = 0; s < STRANDS; s++) {
        // Not before the strand before this one has been laid over it.
        CHECK(cuStreamWaitEvent(stream[s], braided[(s + STRANDS - 1) % STRANDS], 0));
        CHECK(cuMemcpyDtoDAsync(strand_at[s], out_at[s], bytes, stream[s]));
        ON(stir, s, 1, 1, &strand_at[s], &n, &s, &round);
    }
}

// A copy that lives for a moment.
static void fold_on_gpu(int round, int n) {
    size_t bytes = (size_t)n * sizeof(uint32_t);
    CUdeviceptr copy = gpu_alloc(bytes);
    CHECK(cuMemcpyDtoDAsync(copy, strand_at[0], bytes, stream[0]));
    CHECK(cuMemsetD32Async(copy, (unsigned)round, (size_t)n / 4, stream[0]));
    ON(fold, 0, n, 256, &copy, &n);
    CUresult result;
    while ((result = cuStreamQuery(stream[0])) == CUDA_ERROR_NOT_READY)
        cpu_phase(0.0005, true);
    CHECK(result);
    CHECK(cuMemFree(copy));
}

static void compare(int round, int n) {
    size_t bytes = (size_t)n * sizeof(uint32_t);
    for (int s = 0; s < STRANDS; s++)
        CHECK(cuMemcpyDtoHAsync(out[s], strand_at[s], bytes, stream[s]));
    uint32_t salt[STRANDS + 1], folded;
    for (int s = 0; s < STRANDS; s++) {
        float since;
        CHECK(cuStreamSynchronize(stream[s]));
        CHECK(cuEventElapsedTime(&since, absorbed[s], braided[s]));
        if (!(since >= 0))
            gpu_wrong("round %d: strand %d was laid over the next %g ms before it was there", round, s, (double)-since);
        for (int i = 0; i < n; i++)
            if (out[s][i] != cpu.strand[s][i])
                gpu_wrong("round %d: word %d of strand %d is %#x, not %#x", round, i, s, out[s][i], cpu.strand[s][i]);
    }
    gpu_get(salt, salt_at, sizeof salt);
    gpu_get(&folded, folded_at, sizeof folded);
    for (int s = 0; s <= STRANDS; s++)
        if (salt[s] != cpu.salt[s])
            gpu_wrong("round %d: word %d of salt is %#x, not %#x", round, s, salt[s], cpu.salt[s]);
    if (folded != cpu.folded)
        gpu_wrong("round %d: %u blocks were added up, not %u", round, folded, cpu.folded);
}

// More than the program may have is refused, and nothing else happens.
static void ask_beyond(void) {
    size_t left, all;
    CUdeviceptr p;
    CHECK(cuMemGetInfo(&left, &all));
    CUresult result = cuMemAlloc(&p, all + 1);
    if (result == CUDA_SUCCESS)
        gpu_wrong("%zu bytes were given, of %zu", all + 1, all);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        CHECK(result);
}

// Ends the program with the error that it makes itself.
static void fault(int round) {
    CUdeviceptr nowhere = 16;
    CUresult result = cuLaunchKernel(gpu_kernel("poke"), 1, 1, 1, 1, 1, 1, 0, stream[0], (void *[]){&nowhere}, NULL);
    if (result == CUDA_SUCCESS)
        result = cuStreamSynchronize(stream[0]);
    if (result == CUDA_SUCCESS)
        gpu_wrong("round %d: a write to nowhere went well", round);
    if (result != CUDA_ERROR_ILLEGAL_ADDRESS)
        CHECK(result);
    printf("weave: an illegal address in round %d, as asked\n", round);
    exit(fflush(stdout) ? 1 : 3);
}

static uint32_t checksum(int n) {
    uint32_t sum = cpu.folded;
    for (int s = 0; s < STRANDS; s++)
        for (int i = 0; i < n; i++)
            sum = mix(sum ^ cpu.strand[s][i]);
    for (int s = 0; s <= STRANDS; s++)
        sum = mix(sum ^ cpu.salt[s]);
    return sum;
}

int main(int argc, char **argv) {
    long poke = 0, every = 8;
    bool beyond = false;
    gpu.size = 16 << 10;
    gpu.repeat = 40;
    const struct gpu_option own[] = {
        {"compare", "rounds between comparisons with the CPU", GPU_NUMBER, &every, false},
        {"poke", "write to an illegal address after so many rounds, and end with 3", GPU_NUMBER, &poke, false},
        {"beyond", "also ask for more memory than there is", GPU_FLAG, &beyond, false},
        {0},
    };
    gpu_options(argc, argv, "lays strands of words over each other", "words of a strand", "rounds", own);
    if (gpu.size < 4 || gpu.size > 1 << 28 || gpu.repeat > 1 << 28 || every < 1)
        gpu_misuse("give strands of 4 to %d words, at most as many rounds, and 1 or more between comparisons", 1 << 28);
    int n = (int)gpu.size;
    gpu_open(gpu_image);
    gpu_begin();
    set_up(n);
    for (int round = 1; round <= (int)gpu.repeat; round++) {
        round_on_gpu(round, n);
        round_on_cpu((uint32_t)round, (uint32_t)n);
        if (round % every && round != (int)gpu.repeat && round != (int)poke)
            continue;
        fold_on_gpu(round, n);
        fold_on_cpu((uint32_t)round, (uint32_t)n);
        compare(round, n);
        if (beyond)
            ask_beyond();
        if (round == (int)poke)
            fault(round);
    }
    gpu_end();
    return gpu_close("%ld rounds of %d x %d words, checksum %08x", gpu.repeat, STRANDS, n, checksum(n));
}
