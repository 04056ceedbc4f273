// What the library prints on standard error, and whether it is in use. Layer: basis.
#include "basis.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

_Atomic int shim_state = SHIM_NEW;

int shim_trace;

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

CUresult trace_missing(const char *name, const char *why, atomic_flag *told) {
	if (shim_trace >= 1 && !atomic_flag_test_and_set(told))
		complain("muster: %s is not supported: %s", name, why);
	return atomic_load(&shim_state) == SHIM_ENDED ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_SUPPORTED;
}

static bool quiet; // MUSTER_QUIET

__attribute__((constructor)) static void read_setting(void) {
	const char *value = getenv("MUSTER_QUIET");
	quiet = value != NULL && value[0] != 0 && strcmp(value, "0") != 0;
}

void notice(const char *format, ...) {
	char text[1100];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	if (!quiet)
		complain("muster: %s", text);
}
