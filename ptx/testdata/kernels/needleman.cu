// Needleman-Wunsch alignment scores, one tile anti-diagonal a launch.
#ifndef __NVCC__
#include "device.h"
#endif

#define TILE 16

// score and similarity are width x width, row-major, width = 16 * tiles + 1.
// Row 0 and column 0 of score are filled in before. For every other cell
//   score[i][j] = max(score[i-1][j-1] + similarity[i][j],
//                     score[i][j-1] - penalty, score[i-1][j] - penalty).
// A launch computes the 16 x 16 tiles (row first + b, column diagonal - row)
// for blocks b. Block 16 threads. For diagonal = 0 .. 2 tiles - 2:
// first = max(0, diagonal - tiles + 1), grid = min(diagonal, tiles - 1) - first + 1.
// Within a tile the 16 threads run a wavefront over 31 anti-diagonals.
extern "C" __global__ void needleman_diagonal(int *score, const int *similarity, int width, int penalty, int diagonal, int first) {
  __shared__ int cells[TILE + 1][TILE + 1];
  __shared__ int gain[TILE][TILE];
  int t = threadIdx.x;
  int tileRow = first + blockIdx.x, tileCol = diagonal - tileRow;
  int corner = tileRow * TILE * width + tileCol * TILE; // the cell before the tile's first
  for (int i = 0; i < TILE; i++)
    gain[i][t] = similarity[corner + (i + 1) * width + t + 1];
  if (t == 0)
    cells[0][0] = score[corner];
  cells[0][t + 1] = score[corner + t + 1];
  cells[t + 1][0] = score[corner + (t + 1) * width];
  __syncthreads();
  for (int d = 0; d < 2 * TILE - 1; d++) {
    int i = d - t; // thread t owns column t
    if (i >= 0 && i < TILE) {
      int across = cells[i][t] + gain[i][t];
      int gap = max(cells[i + 1][t], cells[i][t + 1]) - penalty;
      cells[i + 1][t + 1] = max(across, gap);
    }
    __syncthreads();
  }
  for (int i = 0; i < TILE; i++)
    score[corner + (i + 1) * width + t + 1] = cells[i + 1][t + 1];
}
