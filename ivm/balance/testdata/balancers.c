// The balancers in C, in virtual time: balancers WAY FIRST END [fail]. Whatever the times, each item is
// done as often as there are iterations, or Root returns an error; with fail, elements die and leave.
#define _GNU_SOURCE
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most_items = 600, nodes = 8 };

static const char *way;
static int fails, troubled, done[most_items];
static long items;
static int portions, iterations, devices, most;
static double threshold;

static int work(long from, long to, void *context)
{
	(void)context;
	int kind = fails && model_random() < 1.0 / 12 ? 1 + (int)(model_random() * 4) : 0;
	troubled += kind > 0;
	if (kind == 1)
		model_die();
	if (kind == 2)
		return -1; /* it leaves */
	if (kind == 3)
		ivmSignal(); /* for reasons of its own */
	model_work((double)(to - from));
	for (long i = from; i < to; i++)
		done[i]++;
	if (kind == 4)
		model_die();
	return 0;
}

static int compute(int portion, void *context)
{
	long from, to;
	ivmShare(items, portion, portions, &from, &to);
	return work(from, to, context);
}

static int step(int iteration, int part, int parts, void *context)
{
	long from, to;
	(void)iteration;
	ivmShare(items, part, parts, &from, &to);
	return work(from, to, context);
}

static int root(void)
{
	ivm_device d[nodes];
	devices = 1 + (int)(model_random() * nodes);
	items = (long)(model_random() * most_items);
	iterations = 1 + (int)(model_random() * 3);
	portions = 1 + (int)(model_random() * 20);
	most = 1 + (int)(model_random() * 20);
	threshold = 1 + model_random();
	for (int i = 0; i < devices; i++)
		ivmCreateDev(i, IVM_CPU, &d[i]);
	int times = 1, code;
	switch (way[0]) {
	case 's': code = ivmSpawningRoot(d, devices, portions, times = iterations, NULL, NULL); break;
	case 'm': code = ivmMonitoringRoot(d, devices, times = iterations, threshold, most); break;
	default: code = ivmGuidedRoot(d, devices, items);
	}
	if (code != IVM_OK) { /* guided gives up when all have failed */
		if (troubled < (way[0] == 'g' ? devices : 1))
			return fprintf(stderr, "%s: %d of %d elements failed: %d: %s\n", way, troubled, devices, code, ivmLastError()), 1;
		return 0;
	}
	for (long i = 0; i < items; i++)
		if (done[i] < times || (troubled == 0 && done[i] > times))
			return fprintf(stderr, "%s: item %ld of %ld was done %d times, not %d\n", way, i, items, done[i], times), 1;
	return 0;
}

static int element(void)
{
	int id;
	ivmGetMyId(&id);
	if (id == 0)
		return root();
	switch (way[0]) {
	case 's': return ivmSpawningChild(portions, compute, NULL, NULL);
	case 'm': return ivmMonitoringChild(step, NULL);
	default: return ivmGuidedChild(work, NULL);
	}
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	way = argv[1];
	fails = argc > 4;
	model_program = element;
	return model_runs(atol(argv[2]), atol(argv[3]), nodes) > 0;
}
