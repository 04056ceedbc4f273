// Large copies within the program's memory by several threads, since one thread copies slower
// than the device does. Layer: basis. The first large copy starts the helper threads, if the
// program has processors for them; they sleep most of the time.
//
// One copy at a time uses the helpers: its thread holds owner, fills in job, sets open_job and
// increments jobs. Helpers count themselves into inside before they look at open_job. The owner
// clears open_job and then waits until inside is 0, so no helper touches a job after wide_copy
// has returned. Other threads that find owner taken copy by themselves.
#include "basis.h"
#include "spin.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#define LEAST ((size_t)512 << 10) // bytes of a copy that is worth waking others
#define PIECE ((size_t)128 << 10)
#define MOST 7
#define SPIN_TIME 150000 // nanoseconds that a thread looks for the next copy before it sleeps: waking it takes nearly as long

static struct {
	uint8_t *to;
	const uint8_t *from;
	size_t size;
	_Atomic size_t next; // first byte that no thread has taken
} job;

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; // held by the thread whose copy the helpers do
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // for sleeping
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static _Atomic unsigned jobs;    // copies so far: a change tells helpers that there is a new one
static _Atomic int inside;       // threads that may touch the job
static _Atomic bool open_job;    // there are bytes to copy
static unsigned sleepers;        // under the lock
static int helpers = -1;         // under owner; -1: not made yet

static void work(void) {
	for (;;) {
		size_t at = atomic_fetch_add(&job.next, PIECE);
		if (at >= job.size)
			return;
		memcpy(job.to + at, job.from + at, job.size - at < PIECE ? job.size - at : PIECE);
	}
}

// Looks for another copy than the one that was seen last. Helpers that find one take no lock: they
// would wait for each other.
static bool comes(unsigned seen) {
	for (int64_t end = nanoseconds() + SPIN_TIME; nanoseconds() < end;)
		for (int i = 0; i < SPINS; i++) {
			if (atomic_load_explicit(&jobs, memory_order_relaxed) != seen)
				return true;
			breathe();
		}
	return false;
}

static void *help(void *unused) {
	(void)unused;
	for (unsigned seen = 0;;) {
		if (!comes(seen)) {
			pthread_mutex_lock(&lock);
			sleepers++;
			while (atomic_load(&jobs) == seen)
				pthread_cond_wait(&woken, &lock);
			sleepers--;
			pthread_mutex_unlock(&lock);
		}
		seen = atomic_load(&jobs);
		atomic_fetch_add(&inside, 1);
		if (atomic_load(&open_job))
			work();
		atomic_fetch_sub(&inside, 1);
	}
	return NULL;
}

// How many threads may help: MUSTER_COPY_THREADS, or half of the processors, less the one that
// copies anyway.
static int wanted(void) {
	const char *said = getenv("MUSTER_COPY_THREADS");
	cpu_set_t set;
	int n = 0;
	if (said != NULL)
		n = atoi(said);
	else if (sched_getaffinity(0, sizeof set, &set) == 0)
		n = CPU_COUNT(&set) / 2 - 1;
	return n < 0 ? 0 : n > MOST ? MOST : n;
}

// Starts the helpers with all signals blocked but those that a copy can raise. They have the default
// stack size, since the handlers may be the program's and expect the stack of its own threads.
static void make_helpers(void) {
	sigset_t all, before;
	pthread_attr_t attributes;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	int n = wanted();
	for (helpers = 0; helpers < n; helpers++) {
		pthread_t thread;
		if (pthread_create(&thread, &attributes, help, NULL) != 0)
			break; // the copy goes on with those that were started
	}
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void wide_copy(void *to, const void *from, size_t size) {
	if (size < LEAST || pthread_mutex_trylock(&owner) != 0) {
		memcpy(to, from, size);
		return;
	}
	if (helpers < 0)
		make_helpers();
	if (helpers == 0) {
		pthread_mutex_unlock(&owner);
		memcpy(to, from, size);
		return;
	}
	job.to = to;
	job.from = from;
	job.size = size;
	atomic_store(&job.next, 0);
	atomic_store(&open_job, true);
	pthread_mutex_lock(&lock);
	atomic_fetch_add(&jobs, 1);
	if (sleepers > 0)
		pthread_cond_broadcast(&woken);
	pthread_mutex_unlock(&lock);
	work();
	atomic_store(&open_job, false);
	while (atomic_load(&inside) > 0) // the last pieces
		breathe();
	pthread_mutex_unlock(&owner);
}

// In a child, which has none of its parent's threads.
void wide_forget_all(void) {
	pthread_mutex_init(&owner, NULL);
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&woken, NULL);
	atomic_store(&inside, 0);
	atomic_store(&open_job, false);
	sleepers = 0;
	helpers = -1;
}
