// Copies by several threads are copies: of any size, by several at once, and in a child.
#include "../lib/basis/basis.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST ((size_t)2 << 20) // of which most sizes are worth several threads

static void copy_all(unsigned seed) {
	uint8_t *from = malloc(MOST), *to = malloc(MOST + 1);
	if (from == NULL || to == NULL)
		exit(1);
	for (int round = 0; round < 6; round++) {
		size_t size = round == 0 ? MOST : (seed = seed * 1664525 + 1013904223) % MOST;
		for (size_t i = 0; i < size; i++)
			from[i] = (uint8_t)(i * 7 + seed + (i >> 9));
		to[size] = 0x5a;
		wide_copy(to, from, size);
		if (memcmp(to, from, size) != 0 || to[size] != 0x5a) {
			fprintf(stderr, "%zu bytes went wrong\n", size);
			exit(1);
		}
	}
	free(from);
	free(to);
}

static void *several(void *seed) {
	copy_all((unsigned)(uintptr_t)seed);
	return NULL;
}

static pthread_t first;
static _Atomic int elsewhere; // faults of other threads than the first

// A program's handler takes as much stack as it likes.
static void mend(int number, siginfo_t *info, void *context) {
	(void)number, (void)context;
	volatile char much[400 << 10];
	for (size_t i = sizeof much; i > 0; i -= 1024)
		much[i - 1] = 1;
	mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)4095), 4096, PROT_READ);
	atomic_fetch_add(&elsewhere, !pthread_equal(pthread_self(), first));
}

// The program mends accesses that fail, whichever thread copies.
static int copy_mended(void) {
	struct sigaction action = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
	uint8_t *from = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *to = malloc(MOST), *copy = malloc(MOST);
	first = pthread_self();
	sigaction(SIGSEGV, &action, NULL);
	for (size_t i = 0; i < MOST; i++)
		copy[i] = from[i] = (uint8_t)(i * 7 + (i >> 9));
	for (int round = 0; round < 1000 && atomic_load(&elsewhere) == 0; round++) {
		mprotect(from, MOST, PROT_NONE);
		wide_copy(to, from, MOST);
		if (memcmp(to, copy, MOST) != 0)
			return 1;
	}
	return 0;
}

int main(int argc, char **argv) {
	setenv("MUSTER_COPY_THREADS", "3", 1);
	pthread_atfork(NULL, NULL, wide_forget_all);
	if (argc > 1 && strcmp(argv[1], "faults") == 0)
		return copy_mended();
	pthread_t threads[3];
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, several, (void *)(i + 1));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	if (argc > 1 && strcmp(argv[1], "fork") != 0)
		return 0;
	pid_t child = fork();
	copy_all(9);
	if (child == 0)
		_exit(0);
	int status;
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
