// The macros of api_gen.c, and the tables in it. Layer: entry. An exported function notes that it was called
// (trace, timeline), checks that the library is initialised, and calls its body do_NAME. If that
// fails it prints the reason.
#ifndef MUSTER_EXPORT_H
#define MUSTER_EXPORT_H

#include "../graph/graph.h"

void trace_result(const char *name, CUresult result);

struct proc_entry {
	const char *name;
	int since;
	void *function, *per_thread; // per_thread: the variant whose default stream is the thread's own
};
extern const struct proc_entry proc_table[]; // by name, newest first
extern const size_t proc_count;

struct error_entry {
	int number;
	const char *name, *text;
};
extern const struct error_entry error_table[]; // by number
extern const size_t error_count;

#define EXPORT __attribute__((visibility("default")))

#define ENTER_ANYTIME(name) \
	int64_t began __attribute__((unused)) = 0; \
	do { \
		if (__builtin_expect(shim_watch != 0, 0)) \
			began = watch_begin(#name); \
	} while (0)

#define ENTER(name) \
	ENTER_ANYTIME(name); \
	do { \
		int state = atomic_load_explicit(&shim_state, memory_order_acquire); \
		if (__builtin_expect(state != SHIM_READY, 0)) \
			return state == SHIM_ENDED ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED; \
	} while (0)

#define leave(result) leave_named(__func__, began, result)

static inline CUresult leave_named(const char *name, int64_t began, CUresult result) {
	if (__builtin_expect(began != 0, 0))
		watch_end(name, began, (int)result);
	if (__builtin_expect(result == CUDA_SUCCESS, 1))
		return result;
	if (__builtin_expect(shim_trace >= 1, 0))
		trace_result(name, result);
	return notices_print(result);
}

#define MISSING(name, why) \
	EXPORT CUresult name(void) { \
		static atomic_flag told = ATOMIC_FLAG_INIT; \
		return trace_missing(#name, why, &told); \
	}

#endif
