// Sets of events. The node reports none, so a device has no types of them, and whoever
// waits does so for the time that he gave. nvidia-smi makes a set before anything else
// and gives up if it cannot.
#include "bodies.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

struct nvmlEventSet_st {
	char unused;
};

nvmlReturn_t do_nvmlEventSetCreate(nvmlEventSet_t *set) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (set == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*set = calloc(1, sizeof **set);
	return *set != NULL ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t do_nvmlEventSetFree(nvmlEventSet_t set) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (set == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	free(set);
	return NVML_SUCCESS;
}

nvmlReturn_t do_nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
	unsigned int none;
	nvmlReturn_t result = constant(device, types != NULL ? &none : NULL, 0);
	if (result == NVML_SUCCESS)
		*types = 0;
	return result;
}

nvmlReturn_t do_nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
	unsigned int none;
	nvmlReturn_t result = constant(device, set != NULL ? &none : NULL, 0);
	return result == NVML_SUCCESS && types != 0 ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t do_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms);

nvmlReturn_t do_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (set == NULL || data == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	struct timespec left = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
	nanosleep(&left, NULL); // a signal ends the wait, as in NVIDIA's library
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t do_nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) { return do_nvmlEventSetWait_v2(set, data, timeout_ms); }
