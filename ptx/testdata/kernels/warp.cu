// Votes, matches, shuffles and masks of warps of 32.
#ifndef __NVCC__
#include "device.h"
#endif

#define ALL 0xffffffffu

// Whole warps throughout: 1-D blocks of a multiple of 32, exactly one thread
// an element. l is the lane, g the global index, warp the 32 values around.

// out[4 g ..] = ballot(in > 0), any(in > 10), all(in > -10) (0 or 1 each),
// and the number of lanes below l with in > 0.
extern "C" __global__ void warp_vote(const int *in, unsigned *out) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, l = threadIdx.x % 32;
  unsigned positive = __ballot_sync(ALL, in[g] > 0);
  out[4 * g] = positive;
  out[4 * g + 1] = __any_sync(ALL, in[g] > 10) != 0;
  out[4 * g + 2] = __all_sync(ALL, in[g] > -10) != 0;
  out[4 * g + 3] = __popc(positive & ((1u << l) - 1));
}

// out[3 g ..] = mask of lanes with the same in[g]; mask of all lanes if all
// are equal, else 0; 1 if all are equal, else 0.
extern "C" __global__ void warp_match(const unsigned *in, unsigned *out) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, same;
  out[3 * g] = __match_any_sync(ALL, in[g]);
  out[3 * g + 1] = __match_all_sync(ALL, in[g], &same);
  out[3 * g + 2] = same != 0;
}

// out[8 g ..], with v the warp's values:
// [0] v[(in[g] & 31)]      index, lane by lane
// [1] v[l - 3], own if l < 3      up
// [2] v[l + 5], own if l + 5 > 31      down
// [3] v[l ^ 9]      butterfly
// [4] within groups of 8: v[group + (in[g] & 7)]
// [5] within groups of 8: up by 1, own at a group's first lane
// [6] within groups of 16: down by 2, own where it would leave the group
// [7] within groups of 4: v[l ^ 2]
extern "C" __global__ void warp_shuffle(const int *in, int *out) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, v = in[g];
  out[8 * g] = __shfl_sync(ALL, v, v & 31);
  out[8 * g + 1] = __shfl_up_sync(ALL, v, 3);
  out[8 * g + 2] = __shfl_down_sync(ALL, v, 5);
  out[8 * g + 3] = __shfl_xor_sync(ALL, v, 9);
  out[8 * g + 4] = __shfl_sync(ALL, v, v & 7, 8);
  out[8 * g + 5] = __shfl_up_sync(ALL, v, 1, 8);
  out[8 * g + 6] = __shfl_down_sync(ALL, v, 2, 16);
  out[8 * g + 7] = __shfl_xor_sync(ALL, v, 2, 4);
}

// shfl.sync with its predicate: down by 7 over the whole warp;
// out[2 g] = v[l + 7] or own, out[2 g + 1] = 1 if l + 7 <= 31, else 0.
extern "C" __global__ void warp_shuffle_predicate(const int *in, int *out) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, v, inside;
  asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, 7, 31, -1; selp.s32 %1, 1, 0, p; }"
               : "=r"(v), "=r"(inside) : "r"(in[g]));
  out[2 * g] = v;
  out[2 * g + 1] = inside;
}

// Divergence with masks: lanes with in[g] odd take the first branch, even the
// second; each side sums its own lanes' values with a ballot-made mask.
// out[2 g] = the mask of lanes on my side, out[2 g + 1] = their sum.
extern "C" __global__ void warp_divergent(const int *in, int *out) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, v = in[g];
  unsigned odd = __ballot_sync(ALL, v & 1), mine;
  int sum = 0;
  if (v & 1) {
    mine = odd;
    for (int l = 0; l < 32; l++)
      if (mine >> l & 1)
        sum += __shfl_sync(mine, v, l);
  } else {
    mine = ~odd;
    for (unsigned rest = mine; rest; rest &= rest - 1)
      sum += __shfl_sync(mine, v, __ffs(rest) - 1);
  }
  __syncwarp();
  out[2 * g] = mine;
  out[2 * g + 1] = sum;
}

// Stream compaction by ballot: the positive elements of each warp, in order,
// to out[32 w ..]; counts[w] = how many; w the global warp. The rest of out is
// not written.
extern "C" __global__ void warp_compact(const int *in, int *out, int *counts) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, l = threadIdx.x % 32, w = g / 32;
  unsigned keep = __ballot_sync(ALL, in[g] > 0);
  if (in[g] > 0)
    out[32 * w + __popc(keep & ((1u << l) - 1))] = in[g];
  if (l == 0)
    counts[w] = __popc(keep);
}

// Warp-aggregated counting: lanes with in[g] > 0 find who is active with them
// and the first adds for all. *counter grows by the number of positive
// elements whatever the grouping; seen[g] = 1 if the lane saw itself in its
// active mask (always), 0 for the others.
extern "C" __global__ void warp_aggregate(const int *in, int *counter, int *seen) {
  int g = blockIdx.x * blockDim.x + threadIdx.x, l = threadIdx.x % 32;
  seen[g] = 0;
  if (in[g] > 0) {
    unsigned active = __activemask();
    if (l == __ffs(active) - 1)
      atomicAdd(counter, __popc(active));
    seen[g] = active >> l & 1;
  }
}

// Special registers: out[6 g ..] = laneid, lanemask_eq, _lt, _le, _gt, _ge.
extern "C" __global__ void warp_registers(unsigned *out) {
  unsigned *row = out + 6 * (blockIdx.x * blockDim.x + threadIdx.x), r;
  asm("mov.u32 %0, %%laneid;" : "=r"(r)); row[0] = r;
  asm("mov.u32 %0, %%lanemask_eq;" : "=r"(r)); row[1] = r;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(r)); row[2] = r;
  asm("mov.u32 %0, %%lanemask_le;" : "=r"(r)); row[3] = r;
  asm("mov.u32 %0, %%lanemask_gt;" : "=r"(r)); row[4] = r;
  asm("mov.u32 %0, %%lanemask_ge;" : "=r"(r)); row[5] = r;
}
