#ifndef __NVCC__
#include "device.h"
#endif

// The neighbours of node v are edges[start[v]] .. edges[start[v + 1] - 1]; level[v]
// is -1 until v is reached. Grids cover the nodes, any 1-D block.

// Nodes of the frontier leave it and mark their neighbours that were not reached.
extern "C" __global__ void expand(const int *start, const int *edges, unsigned char *frontier, unsigned char *marked, const int *level, int nodes) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= nodes || !frontier[v])
    return;
  frontier[v] = 0;
  for (int e = start[v]; e < start[v + 1]; e++)
    if (level[edges[e]] < 0)
      marked[edges[e]] = 1; // everybody writes the same, so the race does no harm
}

// Marked nodes become the frontier; *more tells that there are any.
extern "C" __global__ void commit(unsigned char *frontier, unsigned char *marked, int *level, int *more, int now, int nodes) {
  int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= nodes || !marked[v])
    return;
  marked[v] = 0;
  frontier[v] = 1;
  level[v] = now;
  *more = 1;
}
