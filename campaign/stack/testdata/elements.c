// All of IVM's calls, on two nodes: the first element is on node 0, its children on both.
//
//	elements calls | crash | hang
#include <cuda.h>
#include <ivm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { children = 4, values = 5000 };

static void must(int result, int want, const char *what)
{
	if (result == want)
		return;
	fprintf(stderr, "elements: %s is %d, not %d: %s\n", what, result, want, ivmLastError());
	exit(1);
}
#define MUST(call) must(call, IVM_OK, #call)
#define FAILS(call, code) must(call, code, #call)

static int root(const char *scenario)
{
	ivm_device d[2];
	ivm_pe pe[children], other, more[2];
	int *v, *w, type, group, node, *again;
	FAILS(ivmMap("v", &v, 1), IVM_ERROR_NO_OBJECT);
	MUST(ivmMalloc("v", &v, values * sizeof *v));
	MUST(ivmMalloc("done", &w, sizeof *w));
	FAILS(ivmMalloc("v", &again, 4), IVM_ERROR_TAKEN);
	MUST(ivmMap("v", &again, values * sizeof *v));
	must(again != v, 0, "mapping again gives other memory");
	FAILS(ivmMap("v", &again, values * sizeof *v + 1), IVM_ERROR_INVALID);
	FAILS(ivmSyncPut(&type, 4), IVM_ERROR_INVALID);
	MUST(ivmGetMyDevType(&type));
	MUST(ivmGetMyGroupId(&group));
	MUST(ivmGetMyNode(&node));
	must(type + group + node, 0, "what the first element is");
	for (int i = 0; i < values; i++)
		v[i] = i;
	MUST(ivmSetMaxPesId(children));
	for (int i = 0; i < 2; i++) {
		MUST(ivmCreateDev(i, IVM_CPU, &d[i]));
		MUST(ivmCreatePEs(d[i], 2, &pe[2 * i]));
		must(ivmCreated(), 2, "elements that were created");
	}
	MUST(ivmCreatePEs(d[0], 2, more));
	must(ivmCreated(), 0, "elements beyond the greatest number");
	if (strcmp(scenario, "crash") == 0) {
		FAILS(ivmWait(pe[3]), IVM_ERROR_DEAD);
		printf("told: %s\n", ivmLastError());
		return 0;
	}
	for (int i = 0; i < children; i++)
		MUST(ivmWait(pe[i])); // each has put its part
	printf("all have put\n");
	fflush(stdout);
	if (strcmp(scenario, "hang") == 0) { // until a node is killed
		FAILS(ivmWait(pe[3]), IVM_ERROR_DEAD);
		printf("told: %s\n", ivmLastError());
		return 0;
	}
	for (int i = 0; i < values; i++)
		must(v[i], i < children * 1000 ? 2 * i : i, "a value");
	for (int i = 0; i < values; i++)
		v[i] = -i;
	*w = 1;
	void *memory[] = {v, w};
	size_t sizes[] = {values * sizeof *v, sizeof *w};
	MUST(ivmSyncPutGroup(memory, sizes, 2));
	MUST(ivmSignal());
	MUST(ivmWait(pe[2])); // has changed its mirror
	MUST(ivmSyncGetGroup(memory, sizes, 1));
	must(v[4500], 99, "what GetGroup has brought");
	MUST(ivmSignal());
	MUST(ivmWaitAny(&other));
	MUST(ivmKillPEs(d[0], 1, &pe[0]));
	FAILS(ivmWait(pe[0]), IVM_ERROR_DEAD);
	FAILS(ivmWait(77), IVM_ERROR_NO_ELEMENT);
	for (int i = 1; i < children; i++)
		MUST(ivmWait(pe[i])); // they have ended
	MUST(ivmFree(w));
	FAILS(ivmMap("done", &w, 1), IVM_ERROR_NO_OBJECT);
	MUST(ivmUnmap(v));
	FAILS(ivmUnmap(v), IVM_ERROR_INVALID);
	MUST(ivmDestroyDev(d[0]));
	printf("PASS\n");
	return 0;
}

static int child(int id, const char *scenario)
{
	int *part, *whole, *done, node, from = (id - 1) * 1000;
	MUST(ivmGetMyNode(&node));
	must(node, (id - 1) / 2, "the node");
	MUST(ivmMapSubset("v", &part, from * sizeof *part, 1000 * sizeof *part));
	for (int i = 0; i < 1000; i++)
		part[i] *= 2;
	if (id == children && strcmp(scenario, "crash") == 0)
		raise(SIGSEGV);
	MUST(ivmSyncPut(part, 1000 * sizeof *part));
	MUST(ivmMap("v", &whole, 0));
	MUST(ivmMap("done", &done, sizeof *done));
	must(whole[4999], 4999, "the last value");
	MUST(ivmBarrier());
	MUST(ivmSignal());
	if (strcmp(scenario, "hang") == 0)
		for (;;)
			pause();
	MUST(ivmWait(0));
	must(*done, 1, "what PutGroup has brought");
	must(whole[4999], -4999, "what PutGroup has brought");
	if (id == 3) {
		whole[4500] = 99;
		MUST(ivmSignal());
	}
	MUST(ivmWait(0));
	MUST(ivmSyncGet(whole, values * sizeof *whole));
	must(whole[4500], 99, "what was got");
	if (id == 1)
		for (;;)
			pause(); // until it is killed
	return 0;
}

int main(int argc, char **argv)
{
	int id;
	const char *scenario = argc > 1 ? argv[1] : "calls";
	FAILS(ivmSignal(), IVM_ERROR_OVER);
	MUST(ivmEnter());
	MUST(ivmGetMyId(&id));
	int status = id == 0 ? root(scenario) : child(id, scenario);
	MUST(ivmExit());
	return status;
}
