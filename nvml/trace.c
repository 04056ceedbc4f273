// Output of MUSTER_TRACE, in the format of libcuda.so.1, so that one setting shows all calls that a
// program made without success.
#include "nvml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int nvml_trace;

const char *do_nvmlErrorString(nvmlReturn_t result);

__attribute__((constructor)) static void load(void) {
	const char *level = getenv("MUSTER_TRACE");
	if (level != NULL)
		nvml_trace = atoi(level);
}

void complain(const char *format, ...) {
	char line[512];
	va_list list;
	va_start(list, format);
	int n = vsnprintf(line, sizeof line - 1, format, list);
	va_end(list);
	if (n < 0)
		return;
	if ((size_t)n > sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	// One write, so that lines of several threads do not mix. A failed write cannot be reported.
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void traced(const char *name, nvmlReturn_t result) {
	if (result == NVML_SUCCESS)
		return;
	if (nvml_trace >= 2)
		complain("muster: %s answers %s", name, do_nvmlErrorString(result));
	else if (nvml_trace == 1 && result == NVML_ERROR_NOT_SUPPORTED)
		complain("muster: %s is not supported for what it was asked", name);
}
