// Every function that NVIDIA's library has can be found here, since tools look up
// many names and some give up where one is missing. Those without a body elsewhere
// answer that they are not supported, which tools show as N/A.
#include "nvml.h"

#define NAME(name) \
	EXPORT __attribute__((weak)) nvmlReturn_t name(void); \
	EXPORT __attribute__((weak)) nvmlReturn_t name(void) { return nvml_uses > 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED; }

#include "names.h"
