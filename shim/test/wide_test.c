// Copies by several threads are copies: of any size, by several at once, and in a child.
#include "../shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST ((size_t)5 << 20)

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

int main(int argc, char **argv) {
	setenv("MUSTER_COPY_THREADS", "3", 1);
	pthread_atfork(NULL, NULL, wide_forget_all);
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
