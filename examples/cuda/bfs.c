// Breadth-first search in a random graph, two kernel calls a level; the CPU looks
// after each level whether there is another.
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

GPU_IMAGE("bfs.ptx");

// Levels of all nodes from a source on the CPU, -1 for those out of reach.
static int *levels_of(const int *start, const int *edges, int nodes, int source) {
    int *level = host_alloc((size_t)nodes * sizeof *level), *queue = host_alloc((size_t)nodes * sizeof *queue);
    memset(level, -1, (size_t)nodes * sizeof *level);
    int head = 0, tail = 0;
    level[source] = 0;
    queue[tail++] = source;
    while (head < tail) {
        int v = queue[head++];
        for (int e = start[v]; e < start[v + 1]; e++)
            if (level[edges[e]] < 0) {
                level[edges[e]] = level[v] + 1;
                queue[tail++] = edges[e];
            }
    }
    free(queue);
    return level;
}

int main(int argc, char **argv) {
    enum { LEAST_EDGES = 2, MOST_EDGES = 10 };
    gpu.size = 256 << 10;
    gpu.repeat = 1;
    gpu_options(argc, argv, "searches a random graph", "nodes", "searches, each from another node", NULL);
    if (gpu.size > INT32_MAX / MOST_EDGES)
        gpu_misuse("--size must be at most %d", INT32_MAX / MOST_EDGES);
    int nodes = (int)gpu.size, calls = 0;
    int *start = host_alloc(((size_t)nodes + 1) * sizeof *start);
    start[0] = 0;
    for (int v = 0; v < nodes; v++)
        start[v + 1] = start[v] + LEAST_EDGES + (int)random_below(MOST_EDGES - LEAST_EDGES + 1);
    int *edges = host_alloc((size_t)start[nodes] * sizeof *edges);
    for (int e = 0; e < start[nodes]; e++)
        edges[e] = (int)random_below((uint32_t)nodes);
    size_t bytes = (size_t)nodes * sizeof(int);
    int *levels = host_alloc(bytes);

    gpu_open(gpu_image);
    CUfunction expand = gpu_kernel("expand"), commit = gpu_kernel("commit");
    gpu_begin();
    CUdeviceptr starts = gpu_put(start, bytes + sizeof *start), ends = gpu_put(edges, (size_t)start[nodes] * sizeof *edges);
    CUdeviceptr frontier = gpu_alloc((size_t)nodes), marked = gpu_alloc((size_t)nodes);
    CUdeviceptr level = gpu_alloc(bytes), more = gpu_alloc(sizeof(int));
    gpu_end();
    for (long r = 0; r < gpu.repeat; r++) {
        int source = (int)random_below((uint32_t)nodes);
        gpu_begin();
        CHECK(cuMemsetD8(frontier, 0, (size_t)nodes));
        CHECK(cuMemsetD8(marked, 0, (size_t)nodes));
        CHECK(cuMemsetD32(level, 0xffffffff, (size_t)nodes));
        CHECK(cuMemsetD8(frontier + (size_t)source, 1, 1));
        CHECK(cuMemsetD32(level + (size_t)source * sizeof(int), 0, 1));
        for (int now = 1, another = 1; another; now++) {
            CHECK(cuMemsetD32(more, 0, 1));
            LAUNCH(expand, groups(nodes, 256), 1, 256, 1, &starts, &ends, &frontier, &marked, &level, &nodes);
            LAUNCH(commit, groups(nodes, 256), 1, 256, 1, &frontier, &marked, &level, &more, &now, &nodes);
            gpu_get(&another, more, sizeof another);
            calls += 2;
        }
        gpu_get(levels, level, bytes);
        gpu_end();

        int *want = levels_of(start, edges, nodes, source);
        for (int v = 0; v < nodes; v++)
            if (levels[v] != want[v])
                gpu_wrong("node %d of search %ld is on level %d, not %d", v, r, levels[v], want[v]);
        free(want);
    }
    return gpu_close("%ld searches of %d nodes in %d calls", gpu.repeat, nodes, calls);
}
