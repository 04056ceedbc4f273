// Independent kernels on four streams with an event between neighbours now and then: what a mapper may
// spread over several GPUs (docs/mapping.md). Integers, checked against the CPU; with an argument,
// that many rounds.
#include "check.h"

#include <vector>

enum { STRANDS = 4, WORDS = 1 << 18 };

// Reads its own strand and, where there is one, a neighbour's; writes its own.
__global__ void turn(unsigned *own, const unsigned *other, int n, unsigned turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = own[i] + (other ? other[i] : 0);
    for (unsigned k = 0; k < turns; k++) x = x * 1664525u + 1013904223u;
    own[i] = x;
}

static unsigned turned(unsigned x, unsigned turns) {
    for (unsigned k = 0; k < turns; k++) x = x * 1664525u + 1013904223u;
    return x;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 24;
    const unsigned turns = 2000;
    unsigned *device[STRANDS];
    cudaStream_t stream[STRANDS];
    cudaEvent_t ready[STRANDS];
    std::vector<unsigned> start(WORDS), words(WORDS);
    for (int s = 0; s < STRANDS; s++) {
        CHECK(cudaMalloc(&device[s], WORDS * sizeof(unsigned)));
        CHECK(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&ready[s], cudaEventDisableTiming));
        for (int i = 0; i < WORDS; i++) start[i] = i * 7 + s;
        CHECK(cudaMemcpy(device[s], start.data(), WORDS * sizeof(unsigned), cudaMemcpyHostToDevice));
    }
    for (int r = 0; r < rounds; r++) {
        for (int s = 0; s < STRANDS; s++) {
            const unsigned *other = nullptr;
            if (r % 6 == 5 && s > 0) { // its neighbour has finished this round
                CHECK(cudaStreamWaitEvent(stream[s], ready[s - 1], 0));
                other = device[s - 1];
            }
            if (r % 6 == 0 && r > 0 && s < STRANDS - 1) // and is not overwritten while it is read
                CHECK(cudaStreamWaitEvent(stream[s], ready[s + 1], 0));
            turn<<<(WORDS + 255) / 256, 256, 0, stream[s]>>>(device[s], other, WORDS, turns);
            CHECK(cudaGetLastError());
            CHECK(cudaEventRecord(ready[s], stream[s]));
        }
    }
    CHECK(cudaDeviceSynchronize());
    for (int s = 0; s < STRANDS; s++) {
        CHECK(cudaMemcpy(words.data(), device[s], WORDS * sizeof(unsigned), cudaMemcpyDeviceToHost));
        for (int i = 0; i < WORDS; i += 4099) {
            unsigned x[STRANDS];
            for (int k = 0; k < STRANDS; k++) x[k] = i * 7 + k;
            for (int r = 0; r < rounds; r++)
                for (int k = 0; k < STRANDS; k++) x[k] = turned(x[k] + (r % 6 == 5 && k > 0 ? x[k - 1] : 0), turns);
            if (words[i] != x[s]) {
                fprintf(stderr, "strand %d, word %d: %u, should be %u\n", s, i, words[i], x[s]);
                return 1;
            }
        }
    }
    printf("ok\n");
}
