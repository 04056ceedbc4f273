//go:build linux && cgo

// A thread that gives the driver launches while whoever reads them reads the next: each keeps
// the driver's thread busy for several microseconds.
#define _GNU_SOURCE
#include "launcher.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	HALF = MCU_LAUNCHES / 2,
	// How long the thread looks for more before it sleeps. A wake-up takes as long, and it is
	// worth its core that long at most.
	PATIENCE = 100 * 1000,
	LOOKS = 64, // between two looks at the clock
};

// One launch. The driver's answer stays until the giver has read it.
struct launch {
	mcu_handle stream, function;
	size_t count;
	uint32_t offsets[MCU_LAUNCH_COUNT];
	mcu_shape shape;
	mcu_result answer;
	_Alignas(16) char params[MCU_LAUNCH_PARAMS];
};

struct mcu_launcher {
	// The giver's: how many launches were given.
	_Alignas(64) _Atomic uint64_t given;
	_Atomic uint32_t ends; // no more come
	// The thread's: how many the driver has, and how many of them it refused.
	_Alignas(64) _Atomic uint64_t done;
	_Atomic uint64_t refused;
	_Atomic uint32_t looks; // it looks for more
	// Words to sleep on.
	_Alignas(64) _Atomic uint32_t asleep; // 1: the thread is
	_Atomic uint32_t waits;               // 1: others are, until so many are done
	_Atomic uint64_t target;

	_Alignas(64) mcu_handle context;
	pthread_t thread;
	struct launch launches[MCU_LAUNCHES];
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static int64_t nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sleep_on(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
	if (atomic_load_explicit(word, memory_order_relaxed) != 0 && atomic_exchange(word, 0) != 0)
		syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// Waits for a launch; false if none comes any more.
static int another(mcu_launcher *l, uint64_t done)
{
	int64_t until = 0;
	for (int looks = 0;; looks++) {
		if (atomic_load_explicit(&l->given, memory_order_acquire) != done)
			return 1;
		if (atomic_load(&l->ends))
			return 0;
		pause_briefly();
		if (looks % LOOKS != LOOKS - 1)
			continue;
		int64_t now = nanoseconds();
		if (until == 0)
			until = now + PATIENCE;
		if (now < until)
			continue;
		atomic_store(&l->looks, 0);
		atomic_store(&l->asleep, 1);
		while (atomic_load(&l->asleep) && atomic_load(&l->given) == done && !atomic_load(&l->ends))
			sleep_on(&l->asleep);
		atomic_store(&l->asleep, 0);
		atomic_store(&l->looks, 1);
		until = 0;
	}
}

static void *work(void *given)
{
	mcu_launcher *l = given;
	mcu_result entered = mcu_enter(l->context);
	atomic_store(&l->looks, 1);
	for (uint64_t done = 0; another(l, done);) {
		struct launch *one = &l->launches[done % MCU_LAUNCHES];
		one->answer = entered;
		if (entered.code == 0)
			one->answer = mcu_launch_here(one->stream, one->function, &one->shape, one->params, one->offsets, one->count);
		if (one->answer.code != 0)
			atomic_fetch_add(&l->refused, 1);
		done++;
		atomic_store(&l->done, done);
		if (atomic_load(&l->waits) && done >= atomic_load(&l->target))
			wake(&l->waits);
	}
	if (entered.code == 0)
		mcu_leave();
	return NULL;
}

mcu_launcher *mcu_launcher_create(mcu_handle context)
{
	mcu_launcher *l = aligned_alloc(64, (sizeof *l + 63) / 64 * 64);
	if (l == NULL)
		return NULL;
	memset(l, 0, offsetof(mcu_launcher, launches));
	l->context = context;
	// Signals are for threads of Go's.
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&l->thread, NULL, work, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		free(l);
		return NULL;
	}
	return l;
}

void mcu_launcher_destroy(mcu_launcher *l)
{
	atomic_store(&l->ends, 1);
	wake(&l->asleep);
	pthread_join(l->thread, NULL);
	free(l);
}

int mcu_launcher_awake(const mcu_launcher *l) { return atomic_load_explicit(&l->looks, memory_order_relaxed) != 0; }

void mcu_launcher_rouse(mcu_launcher *l) { wake(&l->asleep); }

int mcu_launcher_give(mcu_launcher *l, mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                      const char *params, size_t size, const uint32_t *offsets, size_t count)
{
	uint64_t given = atomic_load_explicit(&l->given, memory_order_relaxed);
	if (given - atomic_load_explicit(&l->done, memory_order_acquire) >= MCU_LAUNCHES)
		mcu_launcher_wait(l, HALF);
	if (atomic_load(&l->refused) != 0)
		return 0;
	struct launch *one = &l->launches[given % MCU_LAUNCHES];
	one->stream = stream;
	one->function = function;
	memcpy(one->offsets, offsets, count * sizeof *offsets);
	one->count = count;
	one->shape = *shape;
	memcpy(one->params, params, size);
	atomic_store(&l->given, given + 1);
	wake(&l->asleep);
	return 1;
}

void mcu_launcher_wait(mcu_launcher *l, uint64_t left)
{
	uint64_t given = atomic_load(&l->given), target = given > left ? given - left : 0;
	int64_t until = nanoseconds() + PATIENCE;
	for (int looks = 0; atomic_load(&l->done) < target; looks++) {
		pause_briefly();
		// Where there is much to wait for, the core is better used by others.
		if (target - atomic_load(&l->done) <= HALF / 4 && (looks % LOOKS != LOOKS - 1 || nanoseconds() < until))
			continue;
		// Whoever else waits may write another target over this one: so each looks again when
		// it is woken, and wakes the others.
		atomic_store(&l->target, target);
		atomic_store(&l->waits, 1);
		while (atomic_load(&l->waits) && atomic_load(&l->done) < target)
			sleep_on(&l->waits);
		wake(&l->waits);
	}
}

const uint64_t *mcu_launcher_done(const mcu_launcher *l) { return (const uint64_t *)&l->done; }

uint64_t mcu_launcher_refused(mcu_launcher *l) { return atomic_exchange(&l->refused, 0); }

mcu_result mcu_launcher_answer(const mcu_launcher *l, uint64_t number)
{
	return l->launches[number % MCU_LAUNCHES].answer;
}
