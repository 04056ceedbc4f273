// Functions of the program that a stream calls (cuLaunchHostFunc, cuStreamAddCallback). Layer: work.
//
// submit puts the function into the client's list under a new cookie and sends HOST_FUNCTION with
// it. The client's host thread (serve) asks with HOST_NEXT which cookie is due, runs that function,
// and sends HOST_DONE, which lets the stream go on. After a fault the worker answers no more; then
// the host thread fails all functions that were submitted before (end_failed).
#include "core.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct host_call {
	struct host_call *next;
	uint64_t cookie;
	CUhostFn function;
	CUstreamCallback callback;
	CUstream stream;
	void *data;
	bool once; // it gives work to streams: the worker cannot replay that (host_submit_once)
};

struct host {
	pthread_mutex_t gate; // held while a function is submitted, and between host_hold and host_go_on
	pthread_cond_t open;  // a holder has gone on
	int holders; // threads between the begin of host_hold and the end of host_go_on; gate protects it
	int round;   // how many times a holder has waited for functions in vain; gate protects it
	pthread_mutex_t lock; // protects the five below
	struct host_call *calls, *last; // oldest first
	uint64_t cookies, failed; // the newest cookie; all up to failed have failed
	CUresult status;          // why they failed
	_Atomic int pending; // calls submitted that have not returned
	_Atomic int once;    // those of them that give work to streams (host_submit_once)
	_Atomic bool thread; // the host thread runs
};

static size_t part;

static struct host *host_of(struct client *c) { return client_part(c, part); }

static void begin(void *host) {
	struct host *h = host;
	pthread_mutex_init(&h->gate, NULL);
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->open, NULL);
}

bool host_pending(struct client *c) { return atomic_load(&host_of(c)->pending) > 0; }

__attribute__((constructor)) static void take_a_part(void) { part = client_register(sizeof(struct host), begin); }

// Appends a call; the oldest is first. The caller of these two holds the lock.
static void link_call(struct client *c, struct host_call *call) {
	call->next = NULL;
	if (host_of(c)->calls == NULL)
		host_of(c)->calls = call;
	else
		host_of(c)->last->next = call;
	host_of(c)->last = call;
}

static void unlink_call(struct client *c, struct host_call *call, struct host_call *before) {
	if (before == NULL)
		host_of(c)->calls = call->next;
	else
		before->next = call->next;
	if (host_of(c)->last == call)
		host_of(c)->last = before;
}

static struct host_call *take_call(struct client *c, uint64_t cookie) {
	pthread_mutex_lock(&host_of(c)->lock);
	struct host_call *found = host_of(c)->calls, *before = NULL;
	while (found != NULL && found->cookie != cookie) { // the oldest of its stream, not always of all
		before = found;
		found = found->next;
	}
	if (found != NULL)
		unlink_call(c, found, before);
	pthread_mutex_unlock(&host_of(c)->lock);
	return found;
}

static void end_call(struct client *c, struct host_call *call) {
	if (call == NULL)
		return;
	if (call->once)
		atomic_fetch_sub(&host_of(c)->once, 1);
	free(call);
	atomic_fetch_sub(&host_of(c)->pending, 1);
}

// Marks all functions submitted so far as failed, if there was a fault or the worker is gone. A
// later reset clears the fault, so the status is kept here for end_failed.
void host_fail(struct client *c) {
	pthread_mutex_lock(&host_of(c)->lock);
	CUresult status = client_status(c);
	if (status != CUDA_SUCCESS) {
		host_of(c)->failed = host_of(c)->cookies;
		host_of(c)->status = status;
	}
	pthread_mutex_unlock(&host_of(c)->lock);
}

// Ends the failed functions in order: callbacks are called with the error, host functions are not
// called. The list is cut off under the lock, and the callbacks run without it.
static void end_failed(struct client *c) {
	pthread_mutex_lock(&host_of(c)->lock);
	CUresult status = host_of(c)->status;
	struct host_call *failed = host_of(c)->calls, *last = NULL;
	while (host_of(c)->calls != NULL && host_of(c)->calls->cookie <= host_of(c)->failed) {
		last = host_of(c)->calls;
		unlink_call(c, last, NULL);
	}
	if (last == NULL)
		failed = NULL;
	else
		last->next = NULL;
	pthread_mutex_unlock(&host_of(c)->lock);
	for (struct host_call *next; failed != NULL; failed = next) {
		next = failed->next;
		if (failed->callback != NULL && atomic_load(&shim_state) == SHIM_READY)
			failed->callback(failed->stream, status, failed->data);
		end_call(c, failed);
	}
}

// Asks which function is due. Functions often follow each other, so the thread looks for the next one
// if the last one came soon. After a fault the worker does not answer, so the thread looks at the
// status every 100 ms and ends what has failed.
static CUresult ask_next(struct client *c, struct answer *answer, bool *soon) {
	struct wire_header head = {0};
	struct wire_host_next message = {0};
	CUresult result = slot_take(c, &head.slot);
	if (result != CUDA_SUCCESS)
		return result;
	result = POST(c, HOST_NEXT, host_next, &message, &head);
	if (result != CUDA_SUCCESS) {
		slot_give(c, head.slot);
		return result;
	}
	while ((result = slot_wait_briefly(c, head.slot, answer, soon)) == CUDA_ERROR_NOT_READY) {
		host_fail(c);
		end_failed(c);
	}
	return result;
}

static void *serve(void *argument) {
	host_thread_begins();
	struct client *c = argument;
	bool soon = false;
	while (atomic_load(&shim_state) == SHIM_READY) {
		struct answer answer;
		struct wire_host_next_reply reply;
		if (ask_next(c, &answer, &soon) != CUDA_SUCCESS)
			break;
		struct wire_reader r = {answer.payload, answer.payload + answer.size, false};
		if (!wire_host_next_reply_get(&r, &reply) || reply.cookie == 0)
			break;
		struct host_call *call = take_call(c, reply.cookie);
		if (call != NULL) {
			print_pending(c);
			if (call->function != NULL)
				call->function(call->data);
			else
				call->callback(call->stream, client_status(c), call->data);
			manager->returned(c);
		}
		struct wire_host_done done = {reply.cookie};
		CUresult told = POST(c, HOST_DONE, host_done, &done, NO_DATA);
		end_call(c, call); // not before: the library itself may still call the worker (host_let_end)
		if (told != CUDA_SUCCESS)
			break;
	}
	host_fail(c);
	end_failed(c);
	pthread_mutex_lock(&host_of(c)->lock);
	host_of(c)->thread = false;
	pthread_mutex_unlock(&host_of(c)->lock);
	return NULL;
}

// Starts the host thread, with all signals blocked that the program's own threads should get. The
// four that a function can raise by itself stay open: touching managed memory raises SIGSEGV.
static bool start_thread(struct client *c) {
	sigset_t all, before;
	pthread_t thread;
	pthread_attr_t detached;
	sigfillset(&all);
	const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		sigdelset(&all, own[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	bool started = pthread_create(&thread, &detached, serve, c) == 0;
	pthread_attr_destroy(&detached);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

// A thread that is about to submit a function waits while others want to send a message that waits for
// functions (host_hold), but not for long: a function for which they wait may be waiting for this
// thread. Each time that functions have ended and others are out again, it waits twice as long, so
// that there is a moment when none is. A function that is running may submit others without asking:
// they wait for it.
static void gate_enter(struct client *c) {
	if (host_calling())
		return;
	pthread_mutex_lock(&host_of(c)->gate);
	if (host_of(c)->holders == 0)
		return;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	uint64_t patience = (uint64_t)until.tv_nsec + (100 * 1000 * 1000ull << host_of(c)->round);
	until.tv_sec += (time_t)(patience / (1000 * 1000 * 1000));
	until.tv_nsec = (long)(patience % (1000 * 1000 * 1000));
	while (host_of(c)->holders > 0 && pthread_cond_timedwait(&host_of(c)->open, &host_of(c)->gate, &until) == 0)
		;
}

static void gate_leave(struct client *c) {
	if (!host_calling())
		pthread_mutex_unlock(&host_of(c)->gate);
}

// The caller holds the gate.
static CUresult submit_held(const struct target *t, struct host_call template) {
	struct client *c = t->client;
	CUresult result = client_status(c);
	if (result != CUDA_SUCCESS)
		return result;
	struct host_call *call = malloc(sizeof *call);
	if (call == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*call = template;
	atomic_fetch_add(&host_of(c)->pending, 1);
	if (call->once)
		atomic_fetch_add(&host_of(c)->once, 1);
	pthread_mutex_lock(&host_of(c)->lock);
	bool running = host_of(c)->thread || (host_of(c)->thread = start_thread(c));
	uint64_t cookie = call->cookie = ++host_of(c)->cookies;
	link_call(c, call);
	pthread_mutex_unlock(&host_of(c)->lock);
	struct wire_host_function message = {t->stream, cookie, template.once ? 1 : 0};
	result = running ? POST(c, HOST_FUNCTION, host_function, &message, NO_DATA) : CUDA_ERROR_OPERATING_SYSTEM;
	if (result == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	call = take_call(c, cookie);
	if (call == NULL && template.callback != NULL) // the host thread has already called the callback with the error
		return CUDA_SUCCESS;
	end_call(c, call);
	return result;
}

static CUresult submit(const struct target *t, struct host_call template) {
	gate_enter(t->client);
	CUresult result = submit_held(t, template);
	gate_leave(t->client);
	return result;
}

// Whether functions are out that may still call the worker, other than this thread's own.
static bool may_call(struct client *c) {
	return !host_calling() && atomic_load(&host_of(c)->pending) > 0 && (manager->any() || atomic_load(&host_of(c)->once) > 0);
}

// Waits for the functions that may still call the worker: those of conditional nodes do, and any may
// touch managed memory. Callers hold no lock that such a function needs. The first call waits for all
// functions that were submitted before. The others are for the last of them, whose HOST_DONE is sent
// before it is taken off the list, and for those that other threads submit meanwhile; there are few of
// them, since a function that the worker refused stays on the list, and threads may submit without
// end.
void host_let_end(struct client *c) {
	for (int i = 0; i < 8 && may_call(c); i++) {
		struct wire_synchronise message = {0};
		CUresult result = CALL(c, SYNCHRONISE, synchronise, &message, NO_DATA, NULL);
		if (result != CUDA_SUCCESS) {
			client_defer(c, result);
			return;
		}
	}
}

// The worker handles messages in order. So before a message that it cannot finish until functions
// have returned that may still call it, theirs must be through. host_hold waits for them, and lets
// nobody submit another one before host_go_on: the caller sends the message in between. It waits
// without the gate, since a function may wait for a thread that submits another one, and tries again
// if others have come meanwhile.
void host_hold(struct client *c) {
	if (host_calling())
		return;
	pthread_mutex_lock(&host_of(c)->gate);
	host_of(c)->holders++;
	for (int i = 0; i < 8 && may_call(c); i++) {
		host_of(c)->round = i;
		pthread_mutex_unlock(&host_of(c)->gate);
		host_let_end(c);
		pthread_mutex_lock(&host_of(c)->gate);
	}
}

void host_go_on(struct client *c) {
	if (host_calling())
		return;
	host_of(c)->holders--;
	pthread_cond_broadcast(&host_of(c)->open);
	pthread_mutex_unlock(&host_of(c)->gate);
}

uint64_t host_cookie(struct client *c) {
	pthread_mutex_lock(&host_of(c)->lock);
	uint64_t cookie = ++host_of(c)->cookies;
	pthread_mutex_unlock(&host_of(c)->lock);
	return cookie;
}

CUresult host_submit(const struct target *t, CUhostFn function, void *data) { return submit(t, (struct host_call){.function = function, .data = data}); }

CUresult host_submit_once(const struct target *t, CUhostFn function, void *data) { return submit(t, (struct host_call){.function = function, .data = data, .once = true}); }

CUresult host_callback(const struct target *t, CUstreamCallback callback, CUstream stream, void *data) {
	return submit(t, (struct host_call){.callback = callback, .stream = stream, .data = data});
}

// Called at the end of the process: sends without waiting, or not at all.
void host_stop(struct client *c) {
	if (host_of(c)->thread)
		ring_try(c, WIRE_HOST_STOP);
}
