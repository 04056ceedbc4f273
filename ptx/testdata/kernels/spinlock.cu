// Critical sections behind a spin lock among threads of one warp and of many blocks.
#ifndef __NVCC__
#include "device.h"
#endif

// Every thread, once: takes *lock (0 free, 1 held), does *counter += 1 with
// plain volatile accesses and *sum += its global index, frees the lock.
// After: *counter grew by the number of threads, *sum by the sum of their
// indexes (modulo 2^64), *lock is 0. The lock is released inside the loop, the
// form that also works without independent progress of lanes.
extern "C" __global__ void spinlock_inside(int *lock, volatile int *counter, volatile unsigned long long *sum) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *counter = *counter + 1;
      *sum = *sum + blockIdx.x * blockDim.x + threadIdx.x;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}

// The same contract, the holder leaving the loop first: it ends only if lanes
// of one warp make progress independently (sm_70 and later).
extern "C" __global__ void spinlock_outside(int *lock, volatile int *counter, volatile unsigned long long *sum) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  *counter = *counter + 1;
  *sum = *sum + blockIdx.x * blockDim.x + threadIdx.x;
  __threadfence();
  atomicExch(lock, 0);
}

// A ticket lock: order[ticket] = global index of the thread served with that
// ticket, so order is a permutation of 0 .. threads - 1; next and serving both
// end at the number of threads. All start at 0; all blocks must be resident.
extern "C" __global__ void ticket_lock(unsigned *next, volatile unsigned *serving, unsigned *order) {
  unsigned ticket = atomicAdd(next, 1u);
  bool done = false;
  while (!done) {
    if (*serving == ticket) {
      order[ticket] = blockIdx.x * blockDim.x + threadIdx.x;
      __threadfence();
      *serving = ticket + 1;
      done = true;
    }
  }
}

// A hand-over between two blocks: block 0 writes data[t] = 3 t + 1, fences and
// raises *flag; block 1 waits for it and writes out[t] = data[t] + 1.
// Grid 2, any 1-D block; *flag starts at 0; both blocks must be resident.
extern "C" __global__ void flag_handover(int *data, volatile int *flag, int *out) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    data[t] = 3 * t + 1;
    __threadfence();
    __syncthreads();
    if (t == 0)
      *flag = 1;
  } else {
    if (t == 0)
      while (*flag == 0) {
      }
    __syncthreads();
    __threadfence();
    out[t] = ((volatile int *)data)[t] + 1;
  }
}
