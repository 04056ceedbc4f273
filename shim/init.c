// The life of the library: before cuInit, while calls are answered, and while the
// process ends; what happens in a child of fork; and the trace. Layer: entry (shim.h).
#include "shim.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) const char muster_shim_version[] = "muster 1";

_Atomic int shim_state = SHIM_NEW;
int shim_trace;

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

// Writes to standard error. That may be a pipe without a reader, so SIGPIPE is blocked and, if this
// write raised it, consumed: a message of the library must not kill the program.
static void write_line(const char *line, size_t size) {
	sigset_t pipe, before, pending;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	ssize_t n;
	while ((n = write(STDERR_FILENO, line, size)) < 0 && errno == EINTR) {
	}
	if (n < 0 && errno == EPIPE && sigismember(&pending, SIGPIPE) == 0)
		sigtimedwait(&pipe, NULL, &(struct timespec){0});
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// Removes control characters from a line: those below space, DEL, and the C1 ones, which UTF-8
// writes as c2 80 to c2 9f. The text may come from a node on another machine and goes to the user's
// terminal, which must not take it for commands.
static size_t printable(char *line, size_t size) {
	size_t kept = 0;
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)line[i], next = i + 1 < size ? (unsigned char)line[i + 1] : 0;
		if (c == 0xc2 && next >= 0x80 && next <= 0x9f) {
			i++;
			continue;
		}
		if (c == '\n' || c == '\t')
			c = ' ';
		if (c >= 0x20 && c != 0x7f)
			line[kept++] = (char)c;
	}
	return kept;
}

void complain(const char *format, ...) {
	static const char more[] = "...";
	char line[1200];
	va_list list;
	va_start(list, format);
	int n = vsnprintf(line, sizeof line - 1, format, list);
	va_end(list);
	if (n < 0)
		return;
	if ((size_t)n > sizeof line - 2) {
		n = sizeof line - 2;
		memcpy(line + n - (sizeof more - 1), more, sizeof more - 1);
	}
	n = (int)printable(line, (size_t)n);
	line[n++] = '\n';
	write_line(line, (size_t)n); // one write, so that lines of several processes do not mix
}

void trace_call(const char *name) { complain("muster: %s", name); }

void trace_result(const char *name, CUresult result) {
	const char *text = NULL;
	if (shim_trace < 2 && result != CUDA_ERROR_NOT_SUPPORTED)
		return;
	do_cuGetErrorName(result, &text);
	if (shim_trace >= 2)
		complain("muster: %s answers %s", name, text != NULL ? text : "an unknown error");
	else
		complain("muster: %s is not supported for what it was asked", name);
}

CUresult trace_missing(const char *name, const char *why, atomic_flag *told) {
	if (shim_trace >= 1 && !atomic_flag_test_and_set(told))
		complain("muster: %s is not supported: %s", name, why);
	return atomic_load(&shim_state) == SHIM_ENDED ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_SUPPORTED;
}

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
}

// The handler of forks is installed when the library is loaded, not by cuInit: the process may fork
// while another thread is in cuInit.
__attribute__((constructor)) static void load(void) {
	const char *level = getenv("MUSTER_TRACE");
	if (level != NULL)
		shim_trace = atoi(level);
	if (shim_trace >= 2)
		shim_watch |= WATCH_PRINT;
	timeline_start();
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
