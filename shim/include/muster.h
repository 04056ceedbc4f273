// What Muster's libcuda.so.1 offers beyond CUDA's driver interface. A program that
// also has to run on NVIDIA's looks these names up with dlsym.
#ifndef MUSTER_H
#define MUSTER_H

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// The program is about to wait for something other than its device: others may
// use the device meanwhile. Work that was started goes on.
CUresult musterSync(void);

// Whoever uses the allocation at parent follows pointers in it to those at
// children: they are to be on the device together.
CUresult musterNested(CUdeviceptr parent, const CUdeviceptr *children, size_t n);

// Says that this library is Muster's.
extern const char muster_shim_version[];

#ifdef __cplusplus
}
#endif

#endif
