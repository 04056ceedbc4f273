// Reading what workers did for the program, for the timeline (watch.c). Layer: transport.
#include "transport.h"

#include <signal.h>
#include <time.h>

#define POLL_NS (10 * 1000 * 1000)

static pthread_mutex_t poll_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_cond_t poll_wake = PTHREAD_COND_INITIALIZER, poll_done = PTHREAD_COND_INITIALIZER;

static bool polling, last_wanted, last_over;

// Reads a piece of the worker's records; false if there is no more, or the worker fails to answer.
static bool read_piece(struct client *c, uint64_t offset) {
	struct wire_trace_read message = {0};
	const struct wire_header head = {.data = offset, .length = WIRE_BOUNCE};
	struct wire_trace_read_reply reply;
	int64_t before = watch_now();
	if (ASK(c, TRACE_READ, trace_read, &message, &head, &reply) != CUDA_SUCCESS)
		return false;
	int64_t after = watch_now();
	if (reply.size > WIRE_BOUNCE)
		return false;
	watch_keep_clock(c->device, before, after, reply.now);
	watch_keep(c->device, c->arena.at + offset, reply.size);
	watch_lost(reply.lost);
	return reply.more != 0;
}

static void read_client(struct client *c) {
	uint64_t offset;
	if (client_lost(c) != CUDA_SUCCESS || bounce_take(c, false, &offset) != CUDA_SUCCESS)
		return;
	while (read_piece(c, offset))
		;
	bounce_give(c, offset);
}

static void read_all(void) {
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL && atomic_load(&c->recorded))
			read_client(c);
	}
}

static void *poll_node(void *nothing) {
	pthread_mutex_lock(&poll_lock);
	while (!last_over) {
		bool last = last_wanted;
		pthread_mutex_unlock(&poll_lock);
		read_all();
		pthread_mutex_lock(&poll_lock);
		if (last) {
			last_over = true;
			pthread_cond_broadcast(&poll_done);
			break;
		}
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += POLL_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		if (!last_wanted)
			pthread_cond_timedwait(&poll_wake, &poll_lock, &until);
	}
	pthread_mutex_unlock(&poll_lock);
	return nothing;
}

// The worker starts to record with the first question. So the library asks before the client is
// published, and no work of the program is missed. Also starts the thread that polls.
void timeline_attached(struct client *c) {
	if (!watch_recording())
		return;
	read_client(c);
	atomic_store(&c->recorded, true);
	pthread_mutex_lock(&poll_lock);
	if (!polling) {
		sigset_t all, before;
		pthread_t thread;
		sigfillset(&all); // signals are for the program's own threads
		pthread_sigmask(SIG_SETMASK, &all, &before);
		if (pthread_create(&thread, NULL, poll_node, NULL) == 0) {
			pthread_detach(thread);
			polling = true;
		}
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	pthread_mutex_unlock(&poll_lock);
}

// Called at exit: has the polling thread read once more, and waits for that for a second at most.
void timeline_end(void) {
	if (!watch_recording())
		return;
	pthread_mutex_lock(&poll_lock);
	if (polling) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		last_wanted = true;
		pthread_cond_signal(&poll_wake);
		while (!last_over && pthread_cond_timedwait(&poll_done, &poll_lock, &until) == 0)
			;
	}
	pthread_mutex_unlock(&poll_lock);
	watch_finish();
}

void timeline_in_child(void) {
	pthread_mutex_init(&poll_lock, NULL);
	pthread_cond_init(&poll_wake, NULL);
	pthread_cond_init(&poll_done, NULL);
	polling = last_wanted = last_over = false;
}
