// What the library in C decides: the first line has items and workers; each line after it a worker
// and its seconds, or -1 as seconds for one that has died. It prints the piece that the worker gets.
#include "../../c/balance.c"

#include <stdio.h>

int main(void)
{
	struct guide g = {0};
	int worker;
	double seconds;
	if (scanf("%ld %d", &g.items, &g.count) != 2 || !(g.workers = calloc((size_t)g.count, sizeof *g.workers)))
		return 1;
	while (scanf("%d %lf", &worker, &seconds) == 2) {
		long from = g.items, to = g.items;
		if (seconds < 0)
			g.workers[worker] = (struct worker){.dead = true};
		else
			next(&g, worker, seconds, &from, &to);
		printf("%ld %ld\n", from, to);
	}
	free(g.workers);
	return 0;
}
