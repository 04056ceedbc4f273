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

// The allocation at parent contains pointers to the allocations at children. A kernel that uses the
// parent follows them, so all must be on the device together.
CUresult musterNested(CUdeviceptr parent, const CUdeviceptr *children, size_t n);

// Writes the device memory of the current context's device, all allocations with what
// they contain, to a file on the disk, in place of an older one of that name. A program
// that is started anew gets it back with musterRestore: the same allocations, at the
// same addresses, with the same contents. What else it needs to go on, and where its
// data lie, it keeps itself, as it does its host memory.
//
// The files are in the folder that $MUSTER_CHECKPOINTS names, or in
// ~/.local/state/muster/checkpoints. A name has letters, digits, '.', '_' and '-', and
// does not begin with '.'; each process of a program needs one of its own.
//
// Work that was started ends first. Other threads must leave the device alone meanwhile.
// The results: CUDA_ERROR_INVALID_VALUE for a name that is none,
// CUDA_ERROR_OPERATING_SYSTEM where the file cannot be written or read, or is damaged
// (the reason is printed); those of other calls. After an error the older file is there.
CUresult musterCheckpoint(const char *name);

// Reads what musterCheckpoint wrote, or a file of `muster checkpoint` under such a name.
// Allocations that are there already, with the same address and size, are filled; all
// others are made. CUDA_ERROR_FILE_NOT_FOUND: there is nothing of that name, as at the
// first start. CUDA_ERROR_INVALID_VALUE: addresses are taken; call it before allocating
// anything else. After an error that came before the contents were written, all is as
// before.
CUresult musterRestore(const char *name);

// Says that this library is Muster's.
extern const char muster_shim_version[];

#ifdef __cplusplus
}
#endif

#endif
