// Reasons that a CUresult cannot express, as lines on standard error for the user. Layer: transport. A worker writes its notices to the ring's memory before it publishes the result, so
// the library finds them without a message.
#include "transport.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static bool has_notices(struct client *c) {
	return __atomic_load_n(&c->shared->notices_written, __ATOMIC_ACQUIRE) != atomic_load_explicit(&c->notices.read, memory_order_relaxed);
}

static void print_lines(const char *text, size_t size) {
	for (const char *end; size > 0 && (end = memchr(text, '\n', size)) != NULL;) {
		notice("%.*s", (int)(end - text), text);
		size -= (size_t)(end + 1 - text);
		text = end + 1;
	}
}

// The caller holds the lock.
static void print_new_locked(struct client *c) {
	char text[WIRE_NOTICES];
	uint32_t from = atomic_load(&c->notices.read), to = __atomic_load_n(&c->shared->notices_written, __ATOMIC_ACQUIRE);
	size_t size = to - from <= WIRE_NOTICES ? to - from : 0;
	for (size_t i = 0; i < size; i++)
		text[i] = c->shared->notices[(from + i) % WIRE_NOTICES];
	print_lines(text, size);
	atomic_store(&c->notices.read, to);
	__atomic_store_n(&c->shared->notices_read, to, __ATOMIC_RELEASE);
}

// Prints what the worker has written since the last time. Its byte count is not trusted. The
// notices count as read only when they are printed, and the lock is held meanwhile: another thread's
// failing call waits for it, so the program cannot exit on that failure before the reason is out.
static void print_new(struct client *c) {
	pthread_mutex_lock(&c->notices.lock);
	print_new_locked(c);
	pthread_mutex_unlock(&c->notices.lock);
}

void notices_at_exit(struct client *c) {
	if (!has_notices(c) || pthread_mutex_trylock(&c->notices.lock) != 0)
		return;
	print_new_locked(c);
	pthread_mutex_unlock(&c->notices.lock);
}

void notices_while_waiting(struct client *c) {
	if (has_notices(c))
		print_new(c);
}

// --- why a client works no longer -------------------------------------------------------

CUresult client_status(struct client *c) {
	int lost = atomic_load_explicit(&c->notices.lost, memory_order_relaxed);
	if (lost != 0)
		return (CUresult)lost;
	return (CUresult)__atomic_load_n(&c->shared->status, __ATOMIC_ACQUIRE);
}

CUresult client_deferred(struct client *c, CUresult result) {
	return result == CUDA_SUCCESS && atomic_load_explicit(&c->notices.deferred, memory_order_relaxed) != 0 ? (CUresult)atomic_exchange(&c->notices.deferred, 0) : result;
}

// Keeps an error of earlier asynchronous work that the present call cannot return. A lost client or a
// fault is no such error: every call returns that.
void client_defer(struct client *c, CUresult result) {
	int none = CUDA_SUCCESS;
	if (client_status(c) == CUDA_SUCCESS)
		atomic_compare_exchange_strong(&c->notices.deferred, &none, (int)result);
}

bool client_gone(struct client *c) {
	if (atomic_load(&c->notices.lost) != 0)
		return true;
	char reason[sizeof c->shared->reason] = "the connection to the daemon is lost, and what the program had on its device: " START_AGAIN;
	if (__atomic_load_n(&c->shared->closed, __ATOMIC_ACQUIRE) != 0) {
		memcpy(reason, c->shared->reason, sizeof reason);
		reason[sizeof reason - 1] = 0;
	} else {
		// The worker that succeeds a killed one may send ATTACHED a second time. That is
		// read and dropped, since the end of the connection can only be seen behind it.
		char told[256];
		ssize_t n = recv(c->socket, told, sizeof told, MSG_DONTWAIT);
		if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)))
			return false;
	}
	uint32_t status = __atomic_load_n(&c->shared->status, __ATOMIC_RELAXED);
	// lost is set only after the reason is printed, and under the lock: no call of any thread
	// fails before the user can see why, since the program may exit at the first failure.
	pthread_mutex_lock(&c->notices.lock);
	if (atomic_load(&c->notices.lost) == 0) {
		complain("muster: %s", reason[0] != 0 ? reason : "the daemon ended the program's use of its device");
		atomic_store(&c->notices.lost, status != 0 ? (int)status : CUDA_ERROR_DEVICE_UNAVAILABLE);
	}
	pthread_mutex_unlock(&c->notices.lock);
	return true;
}

void notices_prepare(struct client *c) { pthread_mutex_init(&c->notices.lock, NULL); }
