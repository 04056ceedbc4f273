// Breadth-first search, level by level.
#ifndef __NVCC__
#include "device.h"
#endif

// The graph is in compressed rows: edges[start[v]] .. edges[start[v+1]-1] are
// the neighbours of v. cost[v] is the level of v, -1 when not reached.

// One level with flags (bytes, 0 or 1), two kernels. Grid covering nodes, any
// 1-D block. First: every frontier node leaves the frontier and proposes
// cost + 1 to its neighbours not yet visited (same value from everybody, so
// the race is harmless).
extern "C" __global__ void bfs_expand(const int *start, const int *edges, unsigned char *frontier, unsigned char *next, const unsigned char *visited, int *cost, int nodes) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= nodes || !frontier[v])
    return;
  frontier[v] = 0;
  for (int e = start[v]; e < start[v + 1]; e++) {
    int w = edges[e];
    if (!visited[w]) {
      cost[w] = cost[v] + 1;
      next[w] = 1;
    }
  }
}

// Second: next becomes frontier and visited, next is cleared, and *more is set
// to 1 when there was any.
extern "C" __global__ void bfs_commit(unsigned char *frontier, unsigned char *next, unsigned char *visited, int *more, int nodes) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= nodes || !next[v])
    return;
  frontier[v] = 1;
  visited[v] = 1;
  next[v] = 0;
  *more = 1;
}

// One level with queues: queue holds count nodes of the level; each neighbour
// w with cost -1 gets level + 1 by compare-and-swap, and the winner appends w
// to out at (*tail)++. The order within out is free, its set is not.
// Grid covering count, any 1-D block.
extern "C" __global__ void bfs_queue(const int *start, const int *edges, const int *queue, int count, int *out, int *tail, int *cost, int level) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  int v = queue[i];
  for (int e = start[v]; e < start[v + 1]; e++) {
    int w = edges[e];
    if (atomicCAS(&cost[w], -1, level + 1) == -1)
      out[atomicAdd(tail, 1)] = w;
  }
}
