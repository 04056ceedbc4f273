// Memory that graphs allocate. Layer: memory. It is really allocated when the node is made
// and freed when no node refers to it and it is not live. That a launch has allocated or freed it
// is only noted (live), to give the driver's answers.
#include "memory.h"

#include <stdlib.h>

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER; // protects all here; not the clients' memory_lock, which comes after it
static struct graph_memory *memories;
static struct { uint64_t used, used_high, reserved, reserved_high; } totals[MAX_DEVICES];

static void count(struct graph_memory *m, uint64_t *total, uint64_t *high, bool more) {
	*total = more ? *total + m->size : *total - m->size;
	*high = *total > *high ? *total : *high;
}

static void count_reserved(struct graph_memory *m, bool more) { count(m, &totals[m->client->device].reserved, &totals[m->client->device].reserved_high, more); }

// Whether the context still exists in which the memory was allocated: the memory ends with it.
static bool lives(const struct graph_memory *m) { return object_is(m->context, KIND_CONTEXT) && m->context->id == m->context_id; }

CUresult graph_memory_target(int device, struct target *t) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_VALUE;
	*t = (struct target){.context = context_current()};
	if (!object_is(t->context, KIND_CONTEXT) || t->context->device != device)
		t->context = context_primary(device);
	CUresult result = context_usable(t->context);
	return result == CUDA_SUCCESS ? context_client(t->context, &t->client) : result;
}

CUresult graph_allocate(uint64_t graph, struct target *t, size_t size, struct graph_memory **out) {
	struct graph_memory *m = calloc(1, sizeof *m);
	if (m == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = memory_allocate(t, size, &m->address);
	if (result != CUDA_SUCCESS) {
		free(m);
		return result;
	}
	m->client = t->client;
	m->context = t->context;
	m->context_id = t->context->id;
	m->size = size;
	m->nodes = 1;
	m->graph = graph;
	pthread_mutex_lock(&memory_lock);
	m->next = memories;
	memories = m;
	count_reserved(m, true);
	pthread_mutex_unlock(&memory_lock);
	*out = m;
	return CUDA_SUCCESS;
}

static struct graph_memory *find(CUdeviceptr address) {
	struct graph_memory *m = memories;
	while (m != NULL && !(m->address == address && lives(m)))
		m = m->next;
	return m;
}

struct graph_memory *graph_memory_at(CUdeviceptr address) {
	pthread_mutex_lock(&memory_lock);
	struct graph_memory *m = find(address);
	if (m != NULL)
		m->nodes++;
	pthread_mutex_unlock(&memory_lock);
	return m;
}

void graph_memory_retain(struct graph_memory *m) {
	pthread_mutex_lock(&memory_lock);
	m->nodes++;
	pthread_mutex_unlock(&memory_lock);
}

// Forgets memory that no node refers to and that is not live; then the caller, which holds the lock,
// passes it to give_back without it: NULL if the memory is in use.
static struct graph_memory *end_unused(struct graph_memory *m) {
	if (m->nodes > 0 || (m->live && lives(m)))
		return NULL;
	struct graph_memory **at = &memories;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	if (m->used)
		count(m, &totals[m->client->device].used, &totals[m->client->device].used_high, false);
	count_reserved(m, false);
	return m;
}

// Frees memory that is forgotten. The functions of conditional nodes, for which memory_free may wait,
// take the lock.
static void give_back(struct graph_memory *m) {
	if (m != NULL && lives(m) && atomic_load(&shim_state) == SHIM_READY)
		memory_free(m->client, m->address);
	free(m);
}

void graph_memory_release(struct graph_memory *m) {
	pthread_mutex_lock(&memory_lock);
	m->nodes--;
	struct graph_memory *unused = end_unused(m);
	pthread_mutex_unlock(&memory_lock);
	give_back(unused);
}

// A graph may free its memory in one node only, and not if the program has freed it itself.
bool graph_memory_free_once(struct graph_memory *m) {
	pthread_mutex_lock(&memory_lock);
	bool first = !m->freed_in_graph && !m->freed_outside;
	m->freed_in_graph |= first;
	pthread_mutex_unlock(&memory_lock);
	return first;
}

bool graph_memory_is_live(struct graph_memory *m) {
	pthread_mutex_lock(&memory_lock);
	bool live = m->live;
	pthread_mutex_unlock(&memory_lock);
	return live;
}

void graph_memory_live(struct graph_memory *m, bool live) {
	pthread_mutex_lock(&memory_lock);
	if (live && !m->used)
		count(m, &totals[m->client->device].used, &totals[m->client->device].used_high, true);
	m->used |= live;
	m->live = live;
	pthread_mutex_unlock(&memory_lock);
}

// Marks memory of a graph as freed by the program. It stays allocated for the next launch; work
// that still uses it comes before that launch, since the program orders its launches.
bool graph_memory_free(CUdeviceptr address, CUresult *result) {
	if (memories == NULL)
		return false;
	pthread_mutex_lock(&memory_lock);
	struct graph_memory *m = find(address), *unused = NULL;
	if (m != NULL) {
		*result = m->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		m->freed_outside |= m->live;
		m->live = false;
		unused = end_unused(m);
	}
	pthread_mutex_unlock(&memory_lock);
	give_back(unused);
	return m != NULL;
}

// --- what programs ask ----------------------------------------------------------------------

CUresult do_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&memory_lock);
	const uint64_t values[] = {totals[device].used, totals[device].used_high, totals[device].reserved, totals[device].reserved_high};
	pthread_mutex_unlock(&memory_lock);
	if ((unsigned)attribute >= sizeof values / sizeof *values)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = values[attribute];
	return CUDA_SUCCESS;
}

// Resets a high-water mark to the present value.
CUresult do_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (value == NULL || *(cuuint64_t *)value != 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&memory_lock);
	if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		totals[device].used_high = totals[device].used;
	else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		totals[device].reserved_high = totals[device].reserved;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&memory_lock);
	return result;
}

// Nothing to trim: memory that no graph refers to has been freed already.
CUresult do_cuDeviceGraphMemTrim(CUdevice device) { return device >= 0 && device < device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE; }
