// What each task of a plan does, in messages: they are posted task by task, or become the steps of a
// definition, for the plans of which graph_whole.c says so. Layer: graph.
#include "graph_plan.h"

#include <stdlib.h>

static uint8_t *step_add(struct steps *s, enum wire_op op, size_t body) {
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

// SEND posts a message in a target's stream, or adds it to steps if there are any.
#define SEND(t, steps, OP, name, message) \
	__extension__({ \
		const struct wire_##name *sent_ = (message); \
		CUresult result_ = CUDA_ERROR_OUT_OF_MEMORY; \
		uint8_t *to_; \
		if ((steps) == NULL) { \
			result_ = POST((t)->client, OP, name, sent_, NO_DATA); \
		} else if ((to_ = step_add(steps, WIRE_##OP, wire_##name##_size(sent_))) != NULL) { \
			wire_##name##_put(to_, sent_); \
			result_ = CUDA_SUCCESS; \
		} \
		result_; \
	})

// Has a function of the library called when the stream gets there. If this thread is the host thread
// itself, posting the body of a conditional node, submitting would deadlock: the host thread runs one
// function at a time. Then it waits for the stream and calls the function.
static CUresult call(const struct target *t, CUhostFn function, void *data) {
	if (!host_calling())
		return host_submit(t, function, data);
	CUresult result = target_wait(t);
	if (result == CUDA_SUCCESS)
		function(data);
	return result;
}

static void stage_rows(void *data) {
	const struct piece *p = data;
	for (size_t i = 0; i < p->rows; i++) {
		uint8_t *host = p->host + i * p->pitch, *buffer = p->buffer + i * p->width;
		memcpy(p->in ? buffer : host, p->in ? host : buffer, p->width);
	}
}

static CUresult do_piece(const struct target *t, struct piece *p) {
	struct wire_header head = {.data = p->offset, .length = p->rows * p->width};
	CUresult result = p->in ? call(t, stage_rows, p) : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	if (p->in && p->rows == 1) {
		struct wire_copy_in message = {p->device, t->stream};
		return POST(t->client, COPY_IN, copy_in, &message, &head);
	}
	if (p->in) {
		struct wire_copy_in_2d message = {p->device, p->device_pitch, p->width, p->rows, t->stream};
		return POST(t->client, COPY_IN_2D, copy_in_2d, &message, &head);
	}
	if (p->rows == 1) {
		struct wire_copy_out message = {p->device, t->stream};
		result = POST(t->client, COPY_OUT, copy_out, &message, &head);
	} else {
		struct wire_copy_out_2d message = {p->device, p->device_pitch, p->width, p->rows, t->stream};
		result = POST(t->client, COPY_OUT_2D, copy_out_2d, &message, &head);
	}
	return result == CUDA_SUCCESS ? call(t, stage_rows, p) : result;
}

static void copy_on_host(void *data) {
	const struct copy_plan *c = data;
	for (size_t z = 0; z < c->depth; z++)
		for (size_t y = 0; y < c->height; y++)
			memmove((uint8_t *)(uintptr_t)c->to.at + z * c->to.slice + y * c->to.pitch, (const uint8_t *)(uintptr_t)c->from.at + z * c->from.slice + y * c->from.pitch, c->width);
}

static CUresult do_within(const struct target *t, struct steps *steps, const struct copy_plan *c) {
	CUresult result = CUDA_SUCCESS;
	if (c->height * c->depth == 1) {
		struct wire_copy_within message = {c->to.at, c->from.at, c->width, t->stream};
		return SEND(t, steps, COPY_WITHIN, copy_within, &message);
	}
	for (size_t z = 0; z < c->depth && result == CUDA_SUCCESS; z++) {
		struct wire_copy_within_2d message = {c->to.at + z * c->to.slice, c->to.pitch, c->from.at + z * c->from.slice, c->from.pitch, c->width, c->height, t->stream};
		result = SEND(t, steps, COPY_WITHIN_2D, copy_within_2d, &message);
	}
	return result;
}

// Gives the device the managed memory that a copy uses. If a host function before the copy touches it
// again, managed_returned brings it back to the device.
CUresult copy_give_device(const struct copy_plan *c) {
	CUresult result = CUDA_SUCCESS;
	if (c->from.device)
		result = managed_touch(c->from.at, c->from.size, false);
	if (result == CUDA_SUCCESS && c->to.device)
		result = managed_touch(c->to.at, c->to.size, true);
	return result;
}

static CUresult do_copy(const struct target *t, struct steps *steps, struct copy_plan *c) {
	if (steps != NULL && c->how != COPY_NOTHING && c->how != COPY_WITHIN)
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = steps == NULL ? copy_give_device(c) : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	switch (c->how) {
	case COPY_NOTHING:
		return CUDA_SUCCESS;
	case COPY_WITHIN:
		return do_within(t, steps, c);
	case COPY_PINNED:
		if (c->to.device)
			return copy_in(t->client, t->stream, c->to.at, (const void *)(uintptr_t)c->from.at, c->width, false);
		return copy_out(t->client, t->stream, (void *)(uintptr_t)c->to.at, c->from.at, c->width, false);
	case COPY_ON_HOST:
		return call(t, copy_on_host, c);
	case COPY_ACROSS:
		return copy_across(t, c->to.at, c->from.at, c->width);
	case COPY_EARLY:
		if (!host_pending(t->client))
			return copy_in(t->client, t->stream, c->to.at, (const void *)(uintptr_t)c->from.at, c->width, false);
		break;
	case COPY_STAGED:
		break;
	}
	for (size_t i = 0; i < c->piece_count && result == CUDA_SUCCESS; i++)
		result = do_piece(t, &c->pieces[i]);
	return result;
}

static void fill_on_host(void *data) {
	const CUDA_MEMSET_NODE_PARAMS *p = data;
	fill_host((uint8_t *)(uintptr_t)p->dst, p->pitch, p->value, p->elementSize, p->width, p->height);
}

// Checks a fill, and gives the device managed memory that it writes. If no client owns the memory
// it is the host's, and the caller does the fill there.
CUresult fill_give_device(const struct target *t, const CUDA_MEMSET_NODE_PARAMS *p) {
	CUresult result = fill_check(t, p->dst, p->pitch, p->elementSize, p->width, p->height, false);
	if (result != CUDA_SUCCESS || memory_owner(t->client, p->dst, 1) == NULL)
		return result;
	const size_t row = p->width * p->elementSize, pitch = p->height > 1 ? p->pitch : row; // no overflow: they were checked
	return managed_touch(p->dst, (p->height - 1) * pitch + row, true);
}

static CUresult do_fill(const struct target *t, struct steps *steps, CUDA_MEMSET_NODE_PARAMS *p) {
	CUresult result = steps == NULL ? fill_give_device(t, p) : CUDA_SUCCESS;
	if (result != CUDA_SUCCESS)
		return result;
	if (memory_owner(t->client, p->dst, 1) == NULL)
		return steps == NULL ? call(t, fill_on_host, p) : CUDA_ERROR_NOT_SUPPORTED;
	const size_t pitch = p->height > 1 ? p->pitch : p->width * p->elementSize;
	struct wire_fill message = {p->dst, pitch, p->value, p->elementSize, p->width, p->height, t->stream};
	return SEND(t, steps, FILL, fill, &message);
}

CUresult task_record(const struct target *t, CUevent event) {
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	capture_forget_event(event);
	CUresult result = event_record_on(t, event);
	if (result == CUDA_SUCCESS)
		atomic_store(&event->recorded, true);
	return result;
}

CUresult task_wait(const struct target *t, CUevent event) {
	struct client *c;
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!atomic_load(&event->recorded))
		return CUDA_SUCCESS;
	CUresult result = context_client(event->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	if (c != t->client) // an event of another device: the calling thread waits instead of the stream
		return with_cuEventSynchronize(event);
	struct wire_stream_wait message = {t->stream, event->object.number};
	return POST(t->client, STREAM_WAIT, stream_wait, &message, NO_DATA);
}

static CUresult do_kernel(const struct target *t, struct steps *steps, const struct kernel_node *k) {
	if (steps != NULL) {
		struct wire_launch message = launch_message(t->stream, k->function, &k->launch, k->bytes);
		return SEND(t, steps, LAUNCH, launch, &message);
	}
	if (!object_is(k->function, KIND_FUNCTION) || k->function->object.number != k->number)
		return CUDA_ERROR_INVALID_HANDLE;
	return launch_post(t, k->function, &k->launch, k->bytes);
}

// --- conditional nodes ---------------------------------------------------------------------

static bool plan_lives(const struct plan *p) {
	for (size_t i = 0; i < p->lane_count; i++)
		if (!lane_lives(&p->lanes[i]))
			return false;
	return true;
}

// The body that a value of the condition selects; NULL if none.
static struct plan *body_for(const struct branches *b, uint32_t value) {
	switch (b->node->conditional.type) {
	case CU_GRAPH_COND_TYPE_WHILE:
		return value != 0 ? &b->bodies[0] : NULL;
	case CU_GRAPH_COND_TYPE_IF:
		return value != 0 ? &b->bodies[0] : b->count == 2 ? &b->bodies[1] : NULL;
	default:
		return value < b->count ? &b->bodies[value] : NULL;
	}
}

static CUresult run(const struct branches *b) {
	const struct condition *c = b->node->conditional.condition;
	struct target t = {.context = b->context, .client = c->client, .stream = b->stream->object.number, .handle = b->stream};
	for (;;) {
		uint32_t value;
		CUresult result = copy_out_quietly(c->client, t.stream, &value, c->word, sizeof value);
		if (result != CUDA_SUCCESS)
			return result;
		struct plan *body = body_for(b, value);
		if (body == NULL)
			return CUDA_SUCCESS;
		if (!plan_lives(body))
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		result = plan_post(body, &t, NULL);
		CUresult waited = target_wait(&t);
		if (result == CUDA_SUCCESS)
			result = waited;
		if (result != CUDA_SUCCESS || b->node->conditional.type != CU_GRAPH_COND_TYPE_WHILE)
			return result;
	}
}

// The host function of a conditional node. No call can return its result, so an error is deferred:
// the next call that waits for the client returns it.
static void conditional_run(void *data) {
	const struct branches *b = data;
	CUresult result = run(b);
	if (result != CUDA_SUCCESS)
		client_defer(b->node->conditional.condition->client, result);
}

// Whether a node of a type needs nothing of the program while it runs.
static bool may_be_steps(CUgraphNodeType type) {
	return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_EMPTY ||
	       type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

static CUresult do_node(const struct target *t, struct steps *steps, struct task *task) {
	CUgraphNode n = task->node;
	if (n == NULL || n->disabled)
		return CUDA_SUCCESS;
	if (steps != NULL && !may_be_steps(n->type))
		return CUDA_ERROR_NOT_SUPPORTED;
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return do_kernel(t, steps, &n->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return do_copy(t, steps, task->copy);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return do_fill(t, steps, &n->fill.params);
	case CU_GRAPH_NODE_TYPE_HOST:
		return host_submit(t, n->host.fn, n->host.userData);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return words_post(t, n->words.count, n->words.list);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return task_record(t, n->event);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return task_wait(t, n->event);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return host_calling() ? call(t, conditional_run, task->branches) : host_submit_once(t, conditional_run, task->branches);
	default:
		return CUDA_SUCCESS; // memory that graphs allocate is there already
	}
}

static struct target lane_target(const struct plan *p, uint32_t lane, const struct target *first) {
	const struct lane *l = &p->lanes[lane];
	return lane == 0 ? *first : (struct target){.context = l->context, .client = l->client, .stream = l->stream->object.number, .handle = l->stream};
}

// The plan's own events, which are recorded before they are waited for.
static CUresult record(const struct target *t, struct steps *steps, CUevent event) {
	if (steps == NULL)
		return task_record(t, event);
	struct wire_event_record message = {event->object.number, t->stream};
	return SEND(t, steps, EVENT_RECORD, event_record, &message);
}

static CUresult wait_for(const struct target *t, struct steps *steps, CUevent event) {
	if (steps == NULL)
		return task_wait(t, event);
	struct wire_stream_wait message = {t->stream, event->object.number};
	return SEND(t, steps, STREAM_WAIT, stream_wait, &message);
}

static CUresult wait_for_tasks(const struct plan *p, const struct target *t, struct steps *steps, uint32_t first, uint32_t count) {
	CUresult result = CUDA_SUCCESS;
	for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = wait_for(t, steps, p->tasks[p->waits[first + i]].event);
	return result;
}

CUresult plan_post(struct plan *p, const struct target *first, struct steps *steps) {
	CUresult result = p->begin != NULL ? record(first, steps, p->begin) : CUDA_SUCCESS;
	for (uint32_t l = 1; l < p->lane_count && result == CUDA_SUCCESS; l++)
		if (p->lanes[l].begins) {
			struct target t = lane_target(p, l, first);
			result = wait_for(&t, steps, p->begin);
		}
	for (size_t i = 0; i < p->count && result == CUDA_SUCCESS; i++) {
		struct task *task = &p->tasks[i];
		struct target t = lane_target(p, task->lane, first);
		result = wait_for_tasks(p, &t, steps, task->first_wait, task->waits);
		if (result == CUDA_SUCCESS)
			result = do_node(&t, steps, task);
		if (result == CUDA_SUCCESS && task->recorded)
			result = record(&t, steps, task->event);
	}
	return result == CUDA_SUCCESS ? wait_for_tasks(p, first, steps, p->first_join, p->joins) : result;
}
