#define _GNU_SOURCE
#include "model.h"
#include "../../c/internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { most_elements = 512, most_objects = 16, most_nodes = 16, stack_bytes = 1 << 18 };

static struct element {
	ucontext_t context;
	double clock;   // its time
	bool waits;     // for an event after the one that it has seen
	long events;
	bool ended, died;
	int node, signals;
	int heard[most_elements]; // of the signals of others
	bool heard_end[most_elements];
} elements[most_elements];

static struct object {
	char name[32];
	char *memory;
	size_t size;
} objects[most_objects];

int (*model_program)(void);
static double speeds[most_nodes];
static int count, greatest, created, status, node_count;
static long events; // signals and ends
static struct element *self;
static ucontext_t scheduler;
static uint64_t state;
static char last_error[512];

double model_random(void)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (double)(state >> 11) / (double)(1ull << 53);
}

int model_clock(clockid_t clock, struct timespec *is)
{
	(void)clock;
	double whole = floor(self->clock);
	*is = (struct timespec){(time_t)whole, (long)((self->clock - whole) * 1e9)};
	return 0;
}

void model_work(double amount)
{
	double tail = pow(1 - model_random(), -1 / 0.7); // its mean would be infinite
	self->clock += 1e-4 + amount / speeds[self->node] * fmin(tail, 1e6);
}

// Lets the others come to this element's time.
static void yield(void) { swapcontext(&self->context, &scheduler); }

static void happened(void)
{
	for (int i = 0; i < count; i++) // they hear of it now
		if (elements[i].waits && elements[i].clock < self->clock)
			elements[i].clock = self->clock;
	events++;
}

static void ends(bool died)
{
	yield();
	self->ended = true;
	self->died = died;
	happened();
	yield();
	abort();
}

void model_die(void)
{
	ends(true);
	abort();
}

static void live(void)
{
	int code = model_program();
	if (self == elements) {
		status = code;
		setcontext(&scheduler);
	}
	ends(false);
}

static void start(int node)
{
	struct element *e = &elements[count++];
	char *stack = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		abort();
	e->node = node;
	e->clock = self ? self->clock : 0;
	getcontext(&e->context);
	e->context.uc_stack = (stack_t){.ss_sp = stack, .ss_size = stack_bytes};
	makecontext(&e->context, live, 0);
}

static int run(long seed, int nodes)
{
	state = (uint64_t)seed * 0x9e3779b97f4a7c15u + 0x1234567;
	node_count = nodes;
	for (int i = 0; i < 8 + nodes; i++) // the first numbers are alike
		speeds[i % nodes] = pow(10, 3 * model_random());
	start(0);
	while (status < 0) {
		struct element *next = NULL;
		for (int i = 0; i < count; i++) {
			struct element *e = &elements[i];
			if (!e->ended && !(e->waits && e->events == events) && (!next || e->clock < next->clock))
				next = e;
		}
		if (!next) {
			fprintf(stderr, "nobody can go on\n");
			return 3;
		}
		self = next;
		swapcontext(&scheduler, &self->context);
	}
	return status;
}

int model_runs(long first, long end, int nodes)
{
	int wrong = 0;
	for (long seed = first; seed < end; seed++) {
		fflush(NULL);
		pid_t child = fork();
		if (child == 0) {
			if (!freopen("/dev/null", "w", stdout))
				exit(4);
			status = -1;
			_exit(run(seed, nodes));
		}
		int is;
		if (waitpid(child, &is, 0) != child || is != 0) {
			printf("seed %ld: status 0x%x\n", seed, (unsigned)is);
			wrong++;
		}
	}
	return wrong;
}

// --- ivm.h -----------------------------------------------------------------------

int ivm_fail(int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(last_error, sizeof last_error, format, args);
	va_end(args);
	return code;
}

const char *ivmLastError(void) { return last_error; }
int ivmEnter(void) { return IVM_OK; }
int ivmExit(void) { return IVM_OK; }
int ivmGetMyId(int *id) { return *id = (int)(self - elements), IVM_OK; }
int ivmGetMyDevType(int *type) { return *type = IVM_CPU, IVM_OK; }
int ivmGetMyNode(int *node) { return *node = self->node, IVM_OK; }
int ivmGetMyDev(ivm_device *d) { return *d = (ivm_device){self->node, IVM_CPU}, IVM_OK; }
int ivmCreateDev(int node, int type, ivm_device *d) { return *d = (ivm_device){node, type}, IVM_OK; }
int ivmSetMaxPesId(int most) { return greatest = most, IVM_OK; }
int ivmCreated(void) { return created; }
void *ivmHost(const void *memory) { return (void *)memory; }

int ivmCreatePEs(ivm_device device, int n, ivm_pe *made)
{
	for (created = 0; created < n && (greatest == 0 || count <= greatest); created++) {
		if (count == most_elements || device.node >= node_count)
			return ivm_fail(IVM_ERROR_INVALID, "the model has no place for an element");
		made[created] = (ivm_pe)count;
		start(device.node);
	}
	return IVM_OK;
}

int ivmKillPEs(ivm_device device, int n, const ivm_pe *killed)
{
	(void)device;
	for (int i = 0; i < n; i++) {
		struct element *e = &elements[killed[i]];
		if (e->ended)
			continue;
		e->ended = e->died = true;
		happened();
	}
	return IVM_OK;
}

int ivmSignal(void)
{
	yield();
	self->signals++;
	happened();
	return IVM_OK;
}

// hear is what a wait for an element finds: -1 nothing, else its result.
static int hear(int id, bool any, bool latest)
{
	struct element *on = &elements[id];
	if (on->signals > self->heard[id]) {
		self->heard[id] = latest ? on->signals : self->heard[id] + 1;
		return IVM_OK;
	}
	if (!on->ended || (any && self->heard_end[id]))
		return -1;
	self->heard_end[id] = true;
	return on->died ? ivm_fail(IVM_ERROR_DEAD, "element %d died", id) : IVM_OK;
}

static int wait_for(int first, int end, bool any, bool latest, ivm_pe *found)
{
	for (;;) {
		int living = 0;
		for (int id = first; id < (any ? count : end); id++) {
			if (&elements[id] == self)
				continue;
			int code = hear(id, any, latest);
			if (code >= 0)
				return *found = (ivm_pe)id, code;
			living += !elements[id].ended;
		}
		if (living == 0)
			return ivm_fail(IVM_ERROR_NO_ELEMENT, "no other element is left");
		self->waits = true;
		self->events = events;
		yield();
		self->waits = false;
	}
}

int ivmWaitAny(ivm_pe *found) { return wait_for(0, 0, true, false, found); }
int ivmWait(ivm_pe id) { return wait_for((int)id, (int)id + 1, false, false, &(ivm_pe){0}); }
int ivmWaitLatest(ivm_pe id) { return wait_for((int)id, (int)id + 1, false, true, &(ivm_pe){0}); }

static struct object *find(const char *name)
{
	for (int i = 0; i < most_objects; i++)
		if (strcmp(objects[i].name, name) == 0)
			return &objects[i];
	return NULL;
}

int ivmMalloc(const char *name, void *pointer, size_t size)
{
	struct object *o = find("");
	if (find(name) || !o)
		return ivm_fail(IVM_ERROR_TAKEN, "%s is there", name);
	snprintf(o->name, sizeof o->name, "%s", name);
	o->memory = *(char **)pointer = calloc(1, size);
	o->size = size;
	return IVM_OK;
}

int ivmMapSubset(const char *name, void *pointer, size_t offset, size_t size)
{
	struct object *o = find(name);
	if (!o || offset + size > o->size)
		return ivm_fail(IVM_ERROR_NO_OBJECT, "%s is not there", name);
	*(char **)pointer = o->memory + offset;
	return IVM_OK;
}

int ivmMap(const char *name, void *pointer, size_t size) { return ivmMapSubset(name, pointer, 0, size); }
int ivmUnmap(void *memory) { return (void)memory, IVM_OK; }

int ivmFree(void *memory)
{
	for (int i = 0; i < most_objects; i++)
		if (objects[i].name[0] && objects[i].memory == memory)
			objects[i].name[0] = 0;
	return IVM_OK;
}

// The memory of all is one. What a program gets besides plans and reports is what it works on.
int ivmSyncGet(void *memory, size_t size)
{
	for (int i = 0; i < most_objects; i++) {
		struct object *o = &objects[i];
		bool own = strncmp(o->name, "balance.", 8) == 0 || strncmp(o->name, "division.", 9) == 0;
		if (o->name[0] && !own && (char *)memory >= o->memory && (char *)memory < o->memory + o->size)
			model_work((double)size);
	}
	return IVM_OK;
}

int ivmSyncPut(void *memory, size_t size) { return (void)memory, (void)size, IVM_OK; }
int ivmSyncPutGroup(void *const *memory, const size_t *sizes, int n) { return (void)memory, (void)sizes, (void)n, IVM_OK; }
