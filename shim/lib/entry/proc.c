// Lookup by name: functions for cuGetProcAddress, and names and texts of errors. Layer: entry.
#include "export.h"

static const struct error_entry *find_error(CUresult error) {
	for (size_t i = 0; i < error_count; i++)
		if (error_table[i].number == (int)error)
			return &error_table[i];
	return NULL;
}

CUresult with_cuGetErrorName(CUresult error, const char **text) {
	const struct error_entry *e = find_error(error);
	*text = e != NULL ? e->name : NULL;
	return e != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult with_cuGetErrorString(CUresult error, const char **text) {
	const struct error_entry *e = find_error(error);
	*text = e != NULL ? e->text : NULL;
	return e != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The first entry of a name, or NULL.
static const struct proc_entry *find_proc(const char *name) {
	size_t low = 0, high = proc_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (strcmp(proc_table[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < proc_count && strcmp(proc_table[low].name, name) == 0 ? &proc_table[low] : NULL;
}

static CUdriverProcAddressQueryResult find(const char *symbol, void **pfn, int version, cuuint64_t flags) {
	*pfn = NULL;
	const struct proc_entry *e = find_proc(symbol);
	if (e == NULL)
		return CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	// Names whose default stream matters have two exports for their newer versions;
	// with the flag the others are out of reach.
	bool per_thread = false;
	if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0)
		for (const struct proc_entry *p = e; p < proc_table + proc_count && strcmp(p->name, symbol) == 0; p++)
			per_thread |= p->per_thread != NULL;
	for (; e < proc_table + proc_count && strcmp(e->name, symbol) == 0; e++) {
		int since = per_thread && e->since < 7000 ? 7000 : e->since;
		void *found = per_thread ? e->per_thread : e->function;
		if (found == NULL || since > version)
			continue;
		*pfn = found;
		return CU_GET_PROC_ADDRESS_SUCCESS;
	}
	return CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
}

static int newest(void) {
	int version;
	with_cuDriverGetVersion(&version);
	return version;
}

CUresult do_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags) {
	void *found;
	if (symbol == NULL || pfn == NULL || flags > 3 || version > newest())
		return CUDA_ERROR_INVALID_VALUE;
	if (find(symbol, &found, version, flags) != CU_GET_PROC_ADDRESS_SUCCESS)
		return CUDA_ERROR_NOT_FOUND;
	*pfn = found;
	return CUDA_SUCCESS;
}

CUresult with_cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
	if (flags > 3 || version > newest())
		return CUDA_ERROR_INVALID_VALUE;
	CUdriverProcAddressQueryResult result = find(symbol, pfn, version, flags);
	if (status != NULL)
		*status = result;
	return CUDA_SUCCESS; // *pfn tells
}

void trace_result(const char *name, CUresult result) {
	const char *text = NULL;
	if (shim_trace < 2 && result != CUDA_ERROR_NOT_SUPPORTED)
		return;
	with_cuGetErrorName(result, &text);
	if (shim_trace >= 2)
		complain("muster: %s answers %s", name, text != NULL ? text : "an unknown error");
	else
		complain("muster: %s is not supported for what it was asked", name);
}
