#ifndef __NVCC__
#include "device.h"
#endif

#define LONGEST 256
#define PENALTY 4

// The scores of alignments of pairs of sequences: that of the whole of both, with 5 for equal letters, -3 for others
// and -4 for a gap. A pair is one sequence of length letters and then the other. A block of length threads does a
// pair: thread t has row t, and all go over the matrix in anti-diagonals.
extern "C" __global__ void align(const char *letters, int *scores, int length) {
  __shared__ int above[2][LONGEST];
  int t = threadIdx.x;
  const char *down = letters + (long long)blockIdx.x * 2 * length, *across = down + length;
  char letter = down[t];
  int corner = -t * PENALTY, west = -(t + 1) * PENALTY; // of the first column
  for (int step = 0; step < 2 * length - 1; step++) {
    int column = step - t;
    if (column >= 0 && column < length) {
      int north = t == 0 ? -(column + 1) * PENALTY : above[(step + 1) & 1][t - 1];
      int match = corner + (letter == across[column] ? 5 : -3);
      west = max(match, max(west, north) - PENALTY);
      corner = north;
      above[step & 1][t] = west;
    }
    __syncthreads();
  }
  if (t == length - 1)
    scores[blockIdx.x] = west;
}
