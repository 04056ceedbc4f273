// The functions that the files of the library share.
#ifndef MUSTER_NVML_BODIES_H
#define MUSTER_NVML_BODIES_H

#include "node.h"
#include "nvml.h"

#include <stddef.h>

nvmlReturn_t do_nvmlInitWithFlags(unsigned int flags);
nvmlReturn_t do_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
nvmlReturn_t do_nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device);
nvmlReturn_t do_nvmlDeviceGetCount_v2(unsigned int *count);
nvmlReturn_t do_nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
nvmlReturn_t do_nvmlSystemGetCudaDriverVersion(int *version);

// place_of returns the index of a device, or -1 if there is no such device.
int place_of(nvmlDevice_t device);

// process_name finds the name of a program; the caller holds the lock of nvml.c.
bool process_name(unsigned int pid, char *text, size_t room);

// constant answers a question about a device with a number that is always the same.
nvmlReturn_t constant(nvmlDevice_t device, unsigned int *into, unsigned int value);

// A taker writes one program as entry n of the caller's array; percent is the share of the time in
// which its kernels ran. Takers are called under the lock of nvml.c.
typedef void taker(void *into, unsigned int n, const struct process *p, unsigned int percent);

// list passes the programs on a device to take. *count is the caller's room, and becomes the number
// of programs; if that is larger, the result is NVML_ERROR_INSUFFICIENT_SIZE.
nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *into, taker *take);

#endif
