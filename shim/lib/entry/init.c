// The life of the library: before cuInit, while calls are answered, and while the
// process ends; and what happens in a child of fork. Layer: entry.
#include "export.h"

#include <stdlib.h>

__attribute__((visibility("default"))) const char muster_shim_version[] = "muster 1";

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

// Runs at exit. Other threads may be in the middle of calls, so it frees nothing and takes no
// lock that they may hold for long: the worker notices when the process is gone.
static void end(void) {
	if (atomic_exchange(&shim_state, SHIM_ENDED) != SHIM_READY)
		return;
	timeline_end();
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL) {
			notices_at_exit(c);
			host_stop(c);
		}
	}
}

// Runs in a child after fork. The child has one thread, and must not use what it shares with its
// parent. All locks are made anew, and all state is forgotten; the child may call cuInit again.
static void in_child(void) {
	atomic_store(&shim_state, SHIM_NEW);
	pthread_mutex_init(&init_lock, NULL);
	object_forget_all();
	client_forget_all();
	moved_forget_all();
	pinned_forget_all();
	virtual_forget_all();
	ipc_forget_all();
	wide_forget_all();
	ipc_events_forget_all();
	pools_forget_all();
	capture_forget_all();
	conditions_forget_all();
	managed_forget_all();
	contexts_forget_thread();
	streams_forget_thread();
	timeline_in_child();
	watch_in_child();
}

// The handler of forks is installed when the library is loaded, not by cuInit: the process may fork
// while another thread is in cuInit.
__attribute__((constructor)) static void load(void) {
	const char *level = getenv("MUSTER_TRACE");
	if (level != NULL)
		shim_trace = atoi(level);
	if (shim_trace >= 2)
		shim_watch |= WATCH_PRINT;
	watch_start();
	pthread_atfork(NULL, NULL, in_child);
}

CUresult do_cuInit(unsigned int flags) {
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	static bool registered; // a child inherits the handler
	pthread_mutex_lock(&init_lock);
	CUresult result = CUDA_SUCCESS;
	switch (atomic_load(&shim_state)) {
	case SHIM_ENDED:
		result = CUDA_ERROR_DEINITIALIZED;
		break;
	case SHIM_NEW:
		result = client_connect();
		if (result != CUDA_SUCCESS)
			break;
		contexts_start();
		if (!registered) {
			// Registered as late as in NVIDIA's library. So it runs before the handlers
			// of the CUDA runtime, whose calls then get CUDA_ERROR_DEINITIALIZED.
			atexit(end);
			registered = true;
		}
		atomic_store_explicit(&shim_state, SHIM_READY, memory_order_release);
	}
	pthread_mutex_unlock(&init_lock);
	return result;
}

// Programs ask for it to learn whether the driver is too old for them; without a
// daemon the answer is what this library was made for.
CUresult with_cuDriverGetVersion(int *version) {
	*version = driver_version != 0 ? driver_version : 13000;
	return CUDA_SUCCESS;
}

CUresult do_cuProfilerStart(void) { return CUDA_SUCCESS; }
CUresult do_cuProfilerStop(void) { return CUDA_SUCCESS; }
