// Compresses finite automata with default transitions (amortized time-bandwidth DFAs): an
// automaton for each process at a time, until all are done.
#include "team.h"

#include <stdlib.h>
#include <string.h>

GPU_IMAGE("adfa.ptx");

enum { SYMBOLS = 16, CALLS = 8 };

static int states;

// What a process gets, and what it gives back, of one automaton.
struct result {
    int32_t removed;
    uint32_t defaults;  // a checksum of them
};

// A random automaton: state s is reached from one before it, so that all are. Most
// transitions go back to the few states near the first, as those of matchers of patterns do.
static void make_automaton(uint16_t *next) {
    const uint32_t all = (uint32_t)states, near = all < 40 ? all : 40;
    for (uint32_t i = 0; i < all * SYMBOLS; i++) {
        uint32_t c = i % SYMBOLS;
        next[i] = (uint16_t)(c % 8 == 0 ? random_below(all) : (c * 5 + (random_below(8) == 0)) % near);
    }
    for (int s = 1; s < states; s++)
        next[random_below((uint32_t)s) * SYMBOLS + s % SYMBOLS] = (uint16_t)s;
}

// The depth of each state, by breadth-first search. States that a later one took the last way
// to have the greatest depth.
static void find_depths(const uint16_t *next, uint16_t *depth) {
    int *queue = host_alloc((size_t)states * sizeof *queue), head = 0, tail = 0;
    for (int s = 0; s < states; s++)
        depth[s] = UINT16_MAX;
    depth[0] = 0;
    queue[tail++] = 0;
    while (head < tail) {
        int s = queue[head++];
        for (int c = 0; c < SYMBOLS; c++) {
            int t = next[s * SYMBOLS + c];
            if (depth[t] == UINT16_MAX) {
                depth[t] = (uint16_t)(depth[s] + 1);
                queue[tail++] = t;
            }
        }
    }
    free(queue);
}

static int common(const uint16_t *next, int s, int t) {
    int same = 0;
    for (int c = 0; c < SYMBOLS; c++)
        same += next[s * SYMBOLS + c] == next[t * SYMBOLS + c];
    return same;
}

// Checks every saving, and for some states that no other saves more.
static void check(const uint16_t *next, const uint16_t *depth, const int *best, const int *saved) {
    for (int s = 0; s < states; s++) {
        int t = best[s];
        if (t < -1 || t >= states || (t < 0 ? saved[s] != 0 : depth[t] >= depth[s] || saved[s] != common(next, s, t)))
            gpu_wrong("state %d cannot save %d transitions by state %d", s, saved[s], t);
        if (s % 8)
            continue;
        for (int u = 0; u < states; u++)
            if (depth[u] < depth[s] && common(next, s, u) > saved[s])
                gpu_wrong("state %d saves %d transitions by state %d, and %d by state %d", s, saved[s], t, common(next, s, u), u);
    }
    // On a random text the compressed automaton takes the same way, with no more default
    // transitions than letters.
    long defaults = 0, letters = 4096;
    for (int i = 0, s = 0; i < letters; i++) {
        int c = (int)random_below(SYMBOLS), at = s;
        for (; best[at] >= 0 && next[at * SYMBOLS + c] == next[best[at] * SYMBOLS + c]; defaults++)
            at = best[at];
        if (next[at * SYMBOLS + c] != next[s * SYMBOLS + c])
            gpu_wrong("letter %d of the text leads from state %d to %d, not to %d", i, s, next[at * SYMBOLS + c], next[s * SYMBOLS + c]);
        s = next[s * SYMBOLS + c];
    }
    if (defaults > letters)
        gpu_wrong("a text of %ld letters takes %ld default transitions", letters, defaults);
}

static struct result compress_one(CUfunction compress, const uint16_t *next) {
    uint16_t *depth = host_alloc((size_t)states * sizeof *depth);
    int *best = host_alloc((size_t)states * sizeof *best), *saved = host_alloc((size_t)states * sizeof *saved);
    find_depths(next, depth);
    for (int s = 0; s < states; s++)
        best[s] = -1, saved[s] = 0;
    gpu_begin();
    CUdeviceptr table = gpu_put(next, (size_t)states * SYMBOLS * sizeof *next), depths = gpu_put(depth, (size_t)states * sizeof *depth);
    CUdeviceptr target = gpu_put(best, (size_t)states * sizeof *best), savings = gpu_put(saved, (size_t)states * sizeof *saved);
    int symbols = SYMBOLS;
    for (int i = 0; i < CALLS; i++) {
        int first = states * i / CALLS, last = states * (i + 1) / CALLS;
        LAUNCH(compress, groups(states, 64), 1, 64, 1, &table, &depths, &states, &symbols, &first, &last, &target, &savings);
        CHECK(cuCtxSynchronize());
    }
    gpu_get(best, target, (size_t)states * sizeof *best);
    gpu_get(saved, savings, (size_t)states * sizeof *saved);
    CHECK(cuMemFree(table));
    CHECK(cuMemFree(depths));
    CHECK(cuMemFree(target));
    CHECK(cuMemFree(savings));
    gpu_end();
    check(next, depth, best, saved);
    struct result r = {0, 0};
    for (int s = 0; s < states; s++) {
        r.removed += saved[s];
        r.defaults = r.defaults * 31 + (uint32_t)best[s];
    }
    free(depth);
    free(best);
    free(saved);
    return r;
}

int main(int argc, char **argv) {
    gpu.size = 256;
    gpu.repeat = 8;
    struct gpu_option own[] = {TEAM_OPTIONS, {0}};
    gpu_options(argc, argv, "compresses finite automata with default transitions", "states of an automaton", "automata", own);
    if (gpu.size > 1 << 14)
        gpu_misuse("--size must be at most %d", 1 << 14);
    states = (int)gpu.size;
    team_meet();
    gpu_open(gpu_image);
    CUfunction compress = gpu_kernel("compress");
    size_t bytes = (size_t)states * SYMBOLS * sizeof(uint16_t);
    uint16_t *all = host_alloc(bytes * (size_t)team_count), *mine = host_alloc(bytes);
    struct result *results = host_alloc(sizeof *results * (size_t)team_count);
    long removed = 0;
    for (long done = 0; done < gpu.repeat; done += team_count) {
        int given = gpu.repeat - done < team_count ? (int)(gpu.repeat - done) : team_count;
        if (team_rank == 0)
            for (int r = 0; r < given; r++)
                make_automaton(all + (size_t)r * SYMBOLS * (size_t)states);
        team_scatter(all, mine, bytes);
        struct result r = {0, 0};
        if (team_rank < given)
            r = compress_one(compress, mine);
        team_gather(&r, results, sizeof r);
        for (int i = 0; team_rank == 0 && i < given; i++)
            removed += results[i].removed;
    }
    return gpu_close("%ld automata of %d states, %ld of %ld transitions removed", gpu.repeat, states, removed, gpu.repeat * states * SYMBOLS);
}
