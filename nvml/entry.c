// Every function that NVIDIA's library has can be found here, since tools look up
// many names and some give up where one is missing. A function of that name does the
// tracing and passes its arguments to the body, do_NAME, whatever those are: all of
// the library's functions take up to six numbers or pointers, which calls pass in
// registers. Those without a body elsewhere answer that they are not supported, which
// tools show as N/A.
#include "nvml.h"

#include <stdatomic.h>
#include <stdbool.h>

#define PARAMETERS long a, long b, long c, long d, long e, long f
#define ARGUMENTS a, b, c, d, e, f

#define NO_BODY (-1) // no result of the library's

// A function without a body is named once, however often it is called.
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
