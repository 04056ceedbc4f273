#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// score is width x width in rows. Its first row and column are gaps only.
// Grid covering width, any 1-D block.
extern "C" __global__ void edges(int *score, int width, int penalty) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width)
    return;
  score[i] = -i * penalty;
  score[(long long)i * width] = -i * penalty;
}

// One anti-diagonal of tiles of 16 x 16; tile rows first, first + 1 and so on,
// one a block of 16 threads. For every cell after the first row and column
//   score = max(north-west + match, west - penalty, north - penalty)
// where match is 5 for equal letters and -3 for others.
extern "C" __global__ void diagonal(int *score, const char *down, const char *across, int width, int penalty, int number, int first) {
  __shared__ int cells[TILE + 1][TILE + 1];
  int t = threadIdx.x;
  int row = (first + blockIdx.x) * TILE, col = (number - first - blockIdx.x) * TILE; // before the tile's first
  int *corner = score + (long long)row * width + col;
  if (t == 0)
    cells[0][0] = corner[0];
  cells[0][t + 1] = corner[t + 1];
  cells[t + 1][0] = corner[(long long)(t + 1) * width];
  char letter = across[col + t]; // thread t has column t
  __syncthreads();
  for (int step = 0; step < 2 * TILE - 1; step++) {
    int i = step - t;
    if (i >= 0 && i < TILE) {
      int match = cells[i][t] + (down[row + i] == letter ? 5 : -3);
      int gap = max(cells[i + 1][t], cells[i][t + 1]) - penalty;
      cells[i + 1][t + 1] = max(match, gap);
    }
    __syncthreads();
  }
  for (int i = 1; i <= TILE; i++)
    corner[(long long)i * width + t + 1] = cells[i][t + 1];
}
