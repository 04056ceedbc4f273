// Graphs that are launched by one message. Layer: graph. The library sends the messages of
// a launch once, as the steps of a definition; later launches name it. The worker does the steps,
// or has the device run them as a graph of its own.
//
// This works for plans of one device that need nothing of the program while they run: kernels,
// copies and fills within the device. All others are posted node by node (plan_post).
#include "graph_plan.h"

#include <stdlib.h>

#define LAUNCH_STREAM UINT32_MAX       // wire.LaunchStream
#define PIECE ((size_t)32 << 10)       // of a definition, in one message

static bool is_of(const struct plan *p, const struct client *client) {
	for (size_t l = 0; l < p->lane_count; l++)
		if (p->lanes[l].client != client)
			return false;
	for (size_t i = 0; i < p->count; i++)
		if (p->tasks[i].client != NULL && p->tasks[i].client != client)
			return false;
	return true;
}

static CUresult send_steps(struct client *c, uint32_t number, const struct steps *s) {
	CUresult result = CUDA_SUCCESS;
	for (size_t at = 0; at < s->size && result == CUDA_SUCCESS; at += PIECE) {
		size_t size = s->size - at < PIECE ? s->size - at : PIECE;
		struct wire_graph_define message = {number, at + size < s->size, {s->bytes + at, size}};
		result = POST(c, GRAPH_DEFINE, graph_define, &message, NO_DATA);
	}
	return result;
}

struct definitions { // of graphs, at a client's worker
	_Atomic size_t bytes;
};

static size_t part;

static struct definitions *definitions_of(struct client *c) { return client_part(c, part); }

__attribute__((constructor)) static void take_a_part(void) { part = client_register(sizeof(struct definitions), NULL); }

// Takes bytes from the client's budget for definitions, so that the worker never holds more than
// MOST_STEPS.
static bool take_bytes(struct client *c, size_t bytes) {
	if (atomic_fetch_add(&definitions_of(c)->bytes, bytes) + bytes <= MOST_STEPS)
		return true;
	atomic_fetch_sub(&definitions_of(c)->bytes, bytes);
	return false;
}

static void define(struct whole *w, struct plan *p, const struct target *t) {
	struct client *c = t->client;
	struct steps s = {0};
	struct target launched = *t;
	launched.stream = LAUNCH_STREAM;
	w->tried = true;
	bool fits = is_of(p, c) && plan_post(p, &launched, &s) == CUDA_SUCCESS && s.count > 1;
	if (!fits || !take_bytes(c, s.size)) {
		free(s.bytes);
		whole_forget(w);
		return;
	}
	if (w->client != c) // the plan has become another device's
		whole_forget(w);
	size_t before = w->bytes;
	if (w->client == NULL)
		w->number = client_number(c);
	w->client = c;
	w->bytes = s.size;
	w->usable = send_steps(c, w->number, &s) == CUDA_SUCCESS;
	atomic_fetch_sub(&definitions_of(c)->bytes, before);
	free(s.bytes);
}

void whole_forget(struct whole *w) {
	struct client *c = w->client;
	if (c != NULL) {
		struct wire_graph_destroy message = {w->number};
		if (atomic_load(&shim_state) == SHIM_READY && client_lost(c) == CUDA_SUCCESS)
			POST(c, GRAPH_DESTROY, graph_destroy, &message, NO_DATA);
		atomic_fetch_sub(&definitions_of(c)->bytes, w->bytes);
	}
	w->client = NULL;
	w->bytes = 0;
	w->usable = false;
}

// Does for each launch what plan_post does besides sending: checks that the functions still exist,
// and gives the device the host and managed memory that nodes use. The stack size of kernels is
// part of the definition, so *stacks gets a hash of all: a change means defining again.
static CUresult prepare(const struct plan *p, const struct target *t, uint64_t *stacks) {
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < p->count && result == CUDA_SUCCESS; i++) {
		CUgraphNode n = p->tasks[i].node;
		if (n == NULL || n->disabled)
			continue;
		if (n->type == CU_GRAPH_NODE_TYPE_KERNEL) {
			CUfunction f = n->kernel.function;
			if (!object_is(f, KIND_FUNCTION) || f->object.number != n->kernel.number)
				return CUDA_ERROR_INVALID_HANDLE;
			*stacks = *stacks * 31 + context_stack(f->object.context) + f->large_cluster;
			mapped_scan(t->client, n->kernel.bytes, f->param_size);
		} else if (n->type == CU_GRAPH_NODE_TYPE_MEMCPY && p->tasks[i].copy->how == COPY_WITHIN) {
			result = copy_give_device(p->tasks[i].copy);
		} else if (n->type == CU_GRAPH_NODE_TYPE_MEMSET && memory_owner(t->client, n->fill.params.dst, 1) != NULL) {
			result = fill_give_device(t, &n->fill.params);
		}
	}
	return result;
}

bool whole_may_be(const struct plan *p) {
	return !watching() && !host_calling() && !p->host_side && !p->conditional; // a trace shows each kernel by itself
}

CUresult whole_post(struct whole *w, struct plan *p, const struct target *t) {
	uint64_t stacks = 0;
	if (w->tried && !w->usable)
		return plan_post(p, t, NULL);
	CUresult result = prepare(p, t, &stacks);
	if (result != CUDA_SUCCESS)
		return result;
	if (!w->tried || w->stacks != stacks) {
		w->stacks = stacks;
		define(w, p, t);
	}
	if (!w->usable)
		return plan_post(p, t, NULL);
	struct wire_graph_launch message = {w->number, t->stream};
	bool held = false;
	result = managed_begin(t->client, t->stream, &held);
	if (result == CUDA_SUCCESS)
		result = POST(t->client, GRAPH_LAUNCH, graph_launch, &message, NO_DATA);
	managed_end(t->client, held);
	return result;
}
