// The exports: every function of NVIDIA's library, since tools look up many names and some give up
// if one is missing. Each export traces the call and passes its arguments unseen to the body,
// do_NAME. That works because all functions of the library take at most six numbers or pointers,
// which calls pass in registers. An export without a body returns NVML_ERROR_NOT_SUPPORTED, which
// tools show as N/A.
#include "nvml.h"

#include <stdatomic.h>
#include <stdbool.h>

#define PARAMETERS long a, long b, long c, long d, long e, long f
#define ARGUMENTS a, b, c, d, e, f

#define NO_BODY (-1) // not an nvmlReturn_t

// Traces the result of a call. A function without a body is traced only at its first call.
static long answered(const char *name, long result, atomic_flag *told) {
	bool lacks = (int)result == NO_BODY;
	if (lacks)
		result = nvml_uses > 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
	if (!lacks || nvml_trace >= 2)
		traced(name, (nvmlReturn_t)result);
	else if (nvml_trace == 1 && !atomic_flag_test_and_set(told))
		complain("muster: %s is not supported", name);
	return result;
}

#define NAME(name) \
	long do_##name(PARAMETERS); \
	__attribute__((weak)) long do_##name(PARAMETERS) { return (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, NO_BODY; } \
	EXPORT long name(PARAMETERS); \
	EXPORT long name(PARAMETERS) { \
		static atomic_flag told = ATOMIC_FLAG_INIT; \
		if (nvml_trace >= 2) \
			complain("muster: %s", #name); \
		return answered(#name, do_##name(ARGUMENTS), &told); \
	}

#define TEXT(name) \
	long do_##name(PARAMETERS); \
	EXPORT long name(PARAMETERS); \
	EXPORT long name(PARAMETERS) { return do_##name(ARGUMENTS); }

#include "names.h"
