//go:build linux && cgo

// A thread that makes launches while the giver reads and prepares the next: each launch keeps the
// thread in the driver for several microseconds.
//
// given and done are the two ends of a ring of launches with one writer each: only the giver raises
// given, after it has filled the slot; only the thread raises done, after it has stored the answer.
// A slot is free for the giver again when given - done < MCU_LAUNCHES.
//
// Sleeping uses two words, asleep (the thread) and waits (the others). A sleeper first sets its word
// to 1, then checks its condition, then sleeps on the word while it is 1. A waker first changes what
// the condition depends on, then checks the word. So one of them sees the other's write and no
// wake-up is lost, as long as neither's store is reordered with its load. So all four accesses are
// sequentially consistent. That a store is does not suffice: on a weakly ordered machine such as
// aarch64 a relaxed load may still be done before it. On x86 such a load costs no more than any.
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
	// How many nanoseconds the thread polls for launches before it sleeps. A wake-up takes about as
	// long, so polling longer would cost more than it saves.
	PATIENCE = 100 * 1000,
	LOOKS = 64, // polls between two readings of the clock
};

// One launch. The driver's answer stays until the slot is used again.
struct launch {
	mcu_handle stream, function;
	size_t count;
	uint32_t offsets[MCU_LAUNCH_COUNT];
	mcu_shape shape;
	mcu_result answer;
	_Alignas(16) char params[MCU_LAUNCH_PARAMS];
};

struct mcu_launcher {
	// Written by the giver: launches given. Each group has its own cache line, so that giver and
	// thread do not slow each other down.
	_Alignas(64) _Atomic uint64_t given;
	_Atomic uint32_t ends; // no more launches will be given
	// Written by the thread: launches made, and how many of them the driver refused.
	_Alignas(64) _Atomic uint64_t done;
	_Atomic uint64_t refused;
	_Atomic uint32_t looks; // it is polling, not asleep
	// Words to sleep on.
	_Alignas(64) _Atomic uint32_t asleep; // 1: the thread sleeps
	_Atomic uint32_t waits;               // 1: threads sleep in mcu_launcher_wait
	_Atomic uint64_t target;              // value of done at which to wake them

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
	if (atomic_load(word) != 0 && atomic_exchange(word, 0) != 0)
		syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// another waits for a launch; 0 if no more will be given.
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
	// Go's runtime wants to handle signals on its own threads, so this one blocks all.
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
		// Poll only while few launches are left; a longer wait should not occupy a core.
		if (target - atomic_load(&l->done) <= HALF / 4 && (looks % LOOKS != LOOKS - 1 || nanoseconds() < until))
			continue;
		// Several threads may wait and overwrite each other's target. So each checks its own
		// condition when it is woken, and wakes the others, which do the same.
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
