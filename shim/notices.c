// Reasons that a CUresult cannot express, as lines on standard error for the user. Layer: transport
// (shim.h). A worker writes its notices to the ring's memory before it publishes the result, so
// the library finds them without a message.
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

static bool has_notices(struct client *c) {
	return __atomic_load_n(&c->ring->notices_written, __ATOMIC_ACQUIRE) != atomic_load_explicit(&c->notices_read, memory_order_relaxed);
}

static void print_lines(const char *text, size_t size) {
	for (const char *end; size > 0 && (end = memchr(text, '\n', size)) != NULL;) {
		notice("%.*s", (int)(end - text), text);
		size -= (size_t)(end + 1 - text);
		text = end + 1;
	}
}

// The caller holds notice_lock.
static void print_new_locked(struct client *c) {
	char text[WIRE_NOTICES];
	uint32_t from = atomic_load(&c->notices_read), to = __atomic_load_n(&c->ring->notices_written, __ATOMIC_ACQUIRE);
	size_t size = to - from <= WIRE_NOTICES ? to - from : 0;
	for (size_t i = 0; i < size; i++)
		text[i] = c->ring->notices[(from + i) % WIRE_NOTICES];
	print_lines(text, size);
	atomic_store(&c->notices_read, to);
	__atomic_store_n(&c->ring->notices_read, to, __ATOMIC_RELEASE);
}

// Prints what the worker has written since the last time. Its byte count is not trusted. The
// notices count as read only when they are printed, and the lock is held meanwhile: another thread's
// failing call waits for it, so the program cannot exit on that failure before the reason is out.
static void print_new(struct client *c) {
	pthread_mutex_lock(&c->notice_lock);
	print_new_locked(c);
	pthread_mutex_unlock(&c->notice_lock);
}

void notices_at_exit(struct client *c) {
	if (!has_notices(c) || pthread_mutex_trylock(&c->notice_lock) != 0)
		return;
	print_new_locked(c);
	pthread_mutex_unlock(&c->notice_lock);
}

void notices_while_waiting(struct client *c) {
	if (has_notices(c))
		print_new(c);
}

CUresult notices_print(CUresult result) {
	if (result == CUDA_ERROR_NOT_READY) // no failure: programs poll with such calls
		return result;
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL && has_notices(c))
			print_new(c);
		if (c != NULL && result == CUDA_ERROR_ASSERT) // the first call that reports a failed assertion prints its text
			print_pending(c);
	}
	return result;
}
