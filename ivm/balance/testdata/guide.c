// What the library in C decides: the first line has items and workers; each line after it a worker
// and its seconds, or -1 as seconds for one that has died, or -2 to begin again. It
// prints the piece that the worker gets, and at last whether all is done.
#include "../../c/balance.c"

#include <stdio.h>

int main(void)
{
	long items;
	int workers, worker;
	double seconds;
	ivm_guide *g = scanf("%ld %d", &items, &workers) == 2 ? ivmGuideNew(items, workers) : NULL;
	if (!g)
		return 1;
	while (scanf("%d %lf", &worker, &seconds) == 2) {
		long from = items, to = items;
		if (seconds == -1)
			ivmGuideLose(g, worker);
		else if (seconds == -2)
			ivmGuideAgain(g);
		else
			ivmGuideNext(g, worker, seconds, &from, &to);
		printf("%ld %ld\n", from, to);
	}
	if (ivmGuideDone(g) == IVM_OK)
		puts("done");
	ivmGuideFree(g);
	return 0;
}
