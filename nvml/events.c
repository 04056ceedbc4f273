// Event sets. The node reports no events, so devices support no event types, and a wait always runs
// into its timeout. nvidia-smi makes a set before anything else and gives up if it cannot.
#include "bodies.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

// A set is empty, so its handle is only a number. A bit in taken says whether it exists, so that a
// handle that was freed, or never made, is recognised.
#define SETS 4096
static _Atomic uint64_t taken[SETS / 64];

static bool is_set(nvmlEventSet_t set, uint64_t *bit, _Atomic uint64_t **word) {
	uintptr_t number = (uintptr_t)set / 16 - 1;
	if ((uintptr_t)set % 16 != 0 || number >= SETS)
		return false;
	*bit = UINT64_C(1) << number % 64;
	*word = &taken[number / 64];
	return true;
}

static bool lives(nvmlEventSet_t set) {
	uint64_t bit;
	_Atomic uint64_t *word;
	return is_set(set, &bit, &word) && (atomic_load(word) & bit) != 0;
}

nvmlReturn_t do_nvmlEventSetCreate(nvmlEventSet_t *set) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (set == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (uintptr_t i = 0; i < SETS; i++)
		if ((atomic_fetch_or(&taken[i / 64], UINT64_C(1) << i % 64) >> i % 64 & 1) == 0) {
			*set = (nvmlEventSet_t)((i + 1) * 16);
			return NVML_SUCCESS;
		}
	return NVML_ERROR_MEMORY;
}

nvmlReturn_t do_nvmlEventSetFree(nvmlEventSet_t set) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	uint64_t bit;
	_Atomic uint64_t *word;
	if (!is_set(set, &bit, &word) || (atomic_fetch_and(word, ~bit) & bit) == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
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
	nvmlReturn_t result = constant(device, lives(set) ? &none : NULL, 0);
	return result == NVML_SUCCESS && types != 0 ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t do_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms);

nvmlReturn_t do_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (!lives(set) || data == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	struct timespec left = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
	nanosleep(&left, NULL); // a signal ends the wait, as in NVIDIA's library
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t do_nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) { return do_nvmlEventSetWait_v2(set, data, timeout_ms); }
