// Graphs that are launched by one message. Layer: graph. The library sends the messages of
// a launch once, as the steps of a definition; later launches name it. The worker does the steps,
// or has the device run them as a graph of its own.
//
// This works for plans of one device that need nothing of the program while they run: kernels,
// copies and fills within the device. All others are posted node by node (plan_post).
#include "graph_plan.h"

#include <stdlib.h>

#define LAUNCH_STREAM UINT32_MAX       // wire.LaunchStream
#define MOST_STEPS ((size_t)16 << 20)  // wire.MaxSteps: bytes of all graphs of a client
#define PIECE ((size_t)32 << 10)       // of a definition, in one message

struct steps {
	uint8_t *bytes;
	size_t size, room, count;
};

static uint8_t *add_step(struct steps *s, enum wire_op op, size_t body) {
	const uint32_t head[2] = {(uint32_t)op, (uint32_t)body};
	size_t wanted = s->size + sizeof head + body;
	if (wanted > MOST_STEPS)
		return NULL;
	if (wanted > s->room) {
		size_t more = 2 * wanted;
		uint8_t *grown = realloc(s->bytes, more);
		if (grown == NULL)
			return NULL;
		s->bytes = grown;
		s->room = more;
	}
	uint8_t *at = s->bytes + s->size;
	memcpy(at, head, sizeof head);
	s->size = wanted;
	s->count++;
	return at + sizeof head;
}

// STEP adds a message; false if there is no room for it.
#define STEP(steps, OP, name, message) \
	__extension__({ \
		const struct wire_##name *m_ = (message); \
		uint8_t *at_ = add_step(steps, WIRE_##OP, wire_##name##_size(m_)); \
		if (at_ != NULL) \
			wire_##name##_put(at_, m_); \
		at_ != NULL; \
	})

static uint32_t stream_of(const struct plan *p, uint32_t lane) { return lane == 0 ? LAUNCH_STREAM : p->lanes[lane].stream->object.number; }

static bool add_record(struct steps *s, uint32_t stream, CUevent event) {
	struct wire_event_record message = {event->object.number, stream};
	return STEP(s, EVENT_RECORD, event_record, &message);
}

static bool add_wait(struct steps *s, uint32_t stream, CUevent event) {
	struct wire_stream_wait message = {stream, event->object.number};
	return STEP(s, STREAM_WAIT, stream_wait, &message);
}

static bool add_waits(struct steps *s, const struct plan *p, uint32_t stream, uint32_t first, uint32_t count) {
	bool fits = true;
	for (uint32_t i = 0; i < count && fits; i++)
		fits = add_wait(s, stream, p->tasks[p->waits[first + i]].event);
	return fits;
}

static bool add_copy(struct steps *s, uint32_t stream, const struct copy_plan *c) {
	if (c->how == COPY_NOTHING)
		return true;
	if (c->how != COPY_WITHIN)
		return false;
	if (c->height * c->depth == 1) {
		struct wire_copy_within message = {c->to.at, c->from.at, c->width, stream};
		return STEP(s, COPY_WITHIN, copy_within, &message);
	}
	bool fits = true;
	for (size_t z = 0; z < c->depth && fits; z++) {
		struct wire_copy_within_2d message = {c->to.at + z * c->to.slice, c->to.pitch, c->from.at + z * c->from.slice, c->from.pitch, c->width, c->height, stream};
		fits = STEP(s, COPY_WITHIN_2D, copy_within_2d, &message);
	}
	return fits;
}

static bool add_fill(struct steps *s, uint32_t stream, struct client *client, const CUDA_MEMSET_NODE_PARAMS *p) {
	if (memory_owner(client, p->dst, 1) == NULL)
		return false;
	const size_t pitch = p->height > 1 ? p->pitch : p->width * p->elementSize;
	struct wire_fill message = {p->dst, pitch, p->value, p->elementSize, p->width, p->height, stream};
	return STEP(s, FILL, fill, &message);
}

static bool add_node(struct steps *s, uint32_t stream, struct client *client, const struct task *task) {
	CUgraphNode n = task->node;
	if (n == NULL || n->disabled)
		return true;
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: {
		struct wire_launch message = launch_message(stream, n->kernel.function, &n->kernel.launch, n->kernel.bytes);
		return STEP(s, LAUNCH, launch, &message);
	}
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return add_copy(s, stream, task->copy);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return add_fill(s, stream, client, &n->fill.params);
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return true;
	default:
		return false;
	}
}

// The same as plan_post, as steps; false if the plan cannot be launched by one message.
static bool add_plan(struct steps *s, const struct plan *p, struct client *client) {
	for (size_t l = 0; l < p->lane_count; l++)
		if (p->lanes[l].client != client)
			return false;
	bool fits = p->begin == NULL || add_record(s, LAUNCH_STREAM, p->begin);
	for (uint32_t l = 1; l < p->lane_count && fits; l++)
		fits = !p->lanes[l].begins || add_wait(s, stream_of(p, l), p->begin);
	for (size_t i = 0; i < p->count && fits; i++) {
		const struct task *task = &p->tasks[i];
		uint32_t stream = stream_of(p, task->lane);
		fits = (task->client == NULL || task->client == client) && add_waits(s, p, stream, task->first_wait, task->waits) && add_node(s, stream, client, task) &&
		       (!task->recorded || add_record(s, stream, task->event));
	}
	return fits && add_waits(s, p, LAUNCH_STREAM, p->first_join, p->joins);
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

static void define(struct whole *w, const struct plan *p, struct client *c) {
	struct steps s = {0};
	w->tried = true;
	bool fits = add_plan(&s, p, c) && s.count > 1;
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
		return plan_post(p, t);
	CUresult result = prepare(p, t, &stacks);
	if (result != CUDA_SUCCESS)
		return result;
	if (!w->tried || w->stacks != stacks) {
		w->stacks = stacks;
		define(w, p, t->client);
	}
	if (!w->usable)
		return plan_post(p, t);
	struct wire_graph_launch message = {w->number, t->stream};
	bool held = false;
	result = managed_begin(t->client, t->stream, &held);
	if (result == CUDA_SUCCESS)
		result = POST(t->client, GRAPH_LAUNCH, graph_launch, &message, NO_DATA);
	managed_end(t->client, held);
	return result;
}
