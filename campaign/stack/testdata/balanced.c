// Work that is divided by the library's balancers, and puts and gets while others go on: the first
// element is on node 0, its children on the CPUs and the GPUs of all nodes.
//
//	balanced spawning | monitoring | guided | async
//	balanced storm       # guided, slowly: somebody kills elements and nodes meanwhile
#include <ivm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { items = 4000, portions = 7, iterations = 2, most = 64, many = 200 };

static void must(int result, int want, const char *what)
{
	if (result == want)
		return;
	fprintf(stderr, "balanced: %s is %d, not %d: %s\n", what, result, want, ivmLastError());
	exit(1);
}
#define MUST(call) must(call, IVM_OK, #call)
#define FAILS(call, code) must(call, code, #call)

static const char *scenario;

static int is(const char *name) { return strcmp(scenario, name) == 0; }

/* count adds one to items in the node's copy, and puts them. A storm does items again: it sets them. */
static int count(long from, long to)
{
	long *counts, *here;
	MUST(ivmMap("counts", &counts, items * sizeof *counts));
	if (from == to)
		return 0;
	if (!is("storm"))
		MUST(ivmSyncGet(counts + from, (size_t)(to - from) * sizeof *counts));
	here = ivmHost(counts + from);
	for (long i = 0; i < to - from; i++)
		here[i] = is("storm") ? 3 * (from + i) + 1 : here[i] + 1;
	if (is("storm"))
		nanosleep(&(struct timespec){.tv_nsec = (to - from) * 1000000}, NULL);
	return ivmSyncPut(counts + from, (size_t)(to - from) * sizeof *counts);
}

static int portion(int p, void *context)
{
	long from, to;
	(void)context;
	ivmShare(items, p, portions, &from, &to);
	return count(from, to);
}

static int nothing(int p, void *context) { (void)p, (void)context; return 0; }

static int part(int iteration, int p, int parts, void *context)
{
	long from, to;
	(void)iteration, (void)context;
	ivmShare(items, p, parts, &from, &to);
	return count(from, to);
}

static int piece(long from, long to, void *context) { (void)context; return count(from, to); }

static void verify(const long *counts, long want)
{
	for (long i = 0; i < items; i++)
		must((int)counts[i], (int)(is("storm") ? 3 * i + 1 : want), "what was counted");
}

/* talk is the first element's part of what a child does in exchange: it reads what was put, and
 * changes it. */
static void talk(ivm_device device)
{
	long *v;
	ivm_pe child;
	MUST(ivmMalloc("v", &v, (items + 1) * sizeof *v));
	MUST(ivmCreatePEs(device, 1, &child));
	MUST(ivmWait(child)); /* it has put */
	for (long i = 0; i < items; i++)
		must((int)v[i], (int)i, "a value that was put asynchronously");
	for (long i = 0; i < items; i++)
		v[i] = -i;
	v[items] = 1; /* signals alone do not do: a child hears those that came before it, too */
	MUST(ivmSignal());
	MUST(ivmWait(child)); /* it has got, while another thread of it waits */
	MUST(ivmSignal());
	MUST(ivmWait(child)); /* it has ended */
	MUST(ivmFree(v));
}

static void *listen(void *context)
{
	(void)context;
	MUST(ivmWait(0));
	return NULL;
}

static int exchange(void)
{
	long *v, *here;
	ivm_request r[many];
	int done = 0;
	pthread_t other;
	MUST(ivmMap("v", &v, items * sizeof *v));
	here = ivmHost(v);
	for (long i = 0; i < items; i++)
		here[i] = i;
	for (int i = 0; i < many; i++) /* more than the node does at a time */
		MUST(ivmAsyncPut(v + i * (items / many), items / many * sizeof *v, &r[i]));
	while (!done)
		MUST(ivmAsyncTest(r[many - 1], &done));
	for (int i = 0; i < many; i++)
		MUST(ivmAsyncWait(r[i]));
	FAILS(ivmAsyncWait(r[0]), IVM_ERROR_INVALID);
	FAILS(ivmAsyncTest(r[0], &done), IVM_ERROR_INVALID);
	FAILS(ivmAsyncGet(&other, 1, &r[0]), IVM_ERROR_INVALID);
	MUST(ivmSignal());
	while (here[items] == 0) {
		MUST(ivmWait(0));
		MUST(ivmSyncGet(v + items, sizeof *v));
	}
	pthread_create(&other, NULL, listen, NULL); /* this thread's calls do not wait for that one's */
	for (int i = many - 1; i >= 0; i--)
		MUST(ivmAsyncGet(v + i * (items / many), items / many * sizeof *v, &r[i]));
	for (int i = 0; i < many; i++)
		MUST(ivmAsyncWait(r[i]));
	for (long i = 0; i < items; i++)
		must((int)here[i], (int)-i, "a value that was got asynchronously");
	MUST(ivmSyncGet(v, items * sizeof *v));
	MUST(ivmSignal());
	pthread_join(other, NULL);
	return 0;
}

static void root(void)
{
	ivm_device d[most];
	int cpus, gpus;
	long *counts;
	MUST(ivmGetDevs(IVM_CPU, d, most, &cpus));
	MUST(ivmGetDevs(IVM_GPU, d + cpus, most - cpus, &gpus));
	must(gpus, cpus, "the number of GPUs: each node has one");
	int n = cpus + gpus;
	MUST(ivmMalloc("counts", &counts, items * sizeof *counts));
	printf("on %d devices\n", n);
	fflush(stdout);
	if (is("async"))
		for (int i = 0; i < n; i++)
			talk(d[i]);
	else if (is("spawning"))
		MUST(ivmSpawningRoot(d, n, portions, iterations, nothing, NULL));
	else if (is("monitoring"))
		for (int i = 0; i < iterations; i++)
			MUST(ivmMonitoringRoot(d, n, 3, 1e9, n + 2)), verify(counts, 3 * (i + 1));
	else if (is("guided"))
		for (int i = 0; i < iterations; i++)
			MUST(ivmGuidedRoot(d, n, items)), verify(counts, i + 1);
	else
		MUST(ivmGuidedRoot(d, n, items));
	if (is("spawning") || is("storm"))
		verify(counts, iterations);
	printf("PASS\n");
}

static int child(void)
{
	if (is("async"))
		return exchange();
	if (is("spawning"))
		return ivmSpawningChild(portions, nothing, portion, NULL);
	if (is("monitoring"))
		return ivmMonitoringChild(part, NULL);
	return ivmGuidedChild(piece, NULL);
}

int main(int argc, char **argv)
{
	int id;
	scenario = argc > 1 ? argv[1] : "guided";
	MUST(ivmEnter());
	MUST(ivmGetMyId(&id));
	if (id == 0)
		root();
	else
		MUST(child());
	MUST(ivmExit());
	return 0;
}
