// Looking for something again and again, before a thread sleeps. Layer: basis.
#ifndef MUSTER_SPIN_H
#define MUSTER_SPIN_H

#include <stdint.h>
#include <time.h>

enum { SPINS = 64 }; // looks between two of the clock, or before the thread yields

static inline void breathe(void) {
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static inline int64_t nanoseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

#endif
