// What kernels print. Layer: transport. Text of printf goes to the program's standard
// output, text of failed assertions to its standard error. As with CUDA, calls that wait for
// kernels, launch one or load a module write it. They use C's stdio, so that the text goes where
// the program's descriptors point at that time, and in order with the program's own output.
#include "transport.h"

#include <stdio.h>

// Fetches a piece of text and writes it; false if there is no more, or the worker fails to answer.
static bool print_piece(struct client *c, uint64_t offset) {
	struct wire_print_fetch message = {0};
	const struct wire_header head = {.data = offset, .length = WIRE_BOUNCE};
	struct wire_print_fetch_reply reply;
	if (ASK(c, PRINT_FETCH, print_fetch, &message, &head, &reply) != CUDA_SUCCESS || reply.size > WIRE_BOUNCE || reply.size == 0)
		return false;
	FILE *to = reply.complaint != 0 ? stderr : stdout;
	if (to == stderr)
		fflush(stdout); // both may be the same file
	fwrite(c->arena.at + offset, 1, reply.size, to);
	return reply.more != 0;
}

void print_pending(struct client *c) {
	uint64_t offset;
	if (__atomic_load_n(&c->shared->print, __ATOMIC_ACQUIRE) == 0)
		return;
	pthread_mutex_lock(&c->print_lock); // a thread writes what it has fetched before another fetches more
	if (bounce_take(c, true, &offset) == CUDA_SUCCESS) {
		while (print_piece(c, offset))
			;
		bounce_give(c, offset);
		fflush(stdout);
	}
	pthread_mutex_unlock(&c->print_lock);
}
