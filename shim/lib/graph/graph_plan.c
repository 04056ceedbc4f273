// Plans of instantiated graphs. Layer: graph. Child graphs are flattened into tasks. Tasks
// are put into lanes, which are streams: a task goes behind one that it depends on where possible,
// otherwise into another lane. A vector clock for each task says how many tasks of each lane are
// done before it begins, so that no task waits for what an earlier wait already implies.
#include "graph_plan.h"

#include <stdlib.h>

#define LANES 8 // on one device, at most
#define STAGING ((size_t)1 << 20)

// --- lists -----------------------------------------------------------------------------

static bool push(uint32_t **list, size_t *count, size_t *room, uint32_t value) {
	if (*count == *room) {
		size_t more = *room > 0 ? 2 * *room : 16;
		uint32_t *l = realloc(*list, more * sizeof *l);
		if (l == NULL)
			return false;
		*list = l;
		*room = more;
	}
	(*list)[(*count)++] = value;
	return true;
}

static struct task *new_task(struct plan *p, CUgraphNode node) {
	if (p->count == p->room) {
		size_t more = p->room > 0 ? 2 * p->room : 16;
		struct task *l = realloc(p->tasks, more * sizeof *l);
		if (l == NULL)
			return NULL;
		p->tasks = l;
		p->room = more;
	}
	struct task *t = &p->tasks[p->count++];
	*t = (struct task){.node = node, .first_dependency = (uint32_t)p->dependency_count};
	return t;
}

static bool depend(struct plan *p, uint32_t on) {
	if (!push(&p->dependencies, &p->dependency_count, &p->dependency_room, on))
		return false;
	p->tasks[p->count - 1].dependencies++;
	return true;
}

// --- taking child graphs apart ------------------------------------------------------------

// Adds the tasks of a graph. Nodes without dependencies depend on the task behind, unless that is
// NO_TASK. In its body ends[i] is the last task of the node at place i.
static CUresult add_graph(struct plan *p, CUgraph graph, uint32_t behind);

// Adds a child graph between two empty tasks: the first is begin, and the second depends on all
// tasks of the child that no other task of it depends on.
static CUresult add_child(struct plan *p, CUgraph child, uint32_t begin) {
	size_t first = p->count;
	CUresult result = add_graph(p, child, begin);
	if (result != CUDA_SUCCESS)
		return result;
	size_t last = p->count;
	bool *inner = calloc(last - first + 1, sizeof *inner);
	if (inner == NULL || new_task(p, NULL) == NULL) {
		free(inner);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = first; i < last; i++) // marks tasks that others of the child depend on
		for (uint32_t k = 0; k < p->tasks[i].dependencies; k++) {
			uint32_t d = p->dependencies[p->tasks[i].first_dependency + k];
			if (d >= first)
				inner[d - first] = true;
		}
	bool enough = depend(p, begin);
	for (size_t i = first; i < last && enough; i++)
		enough = inner[i - first] || depend(p, (uint32_t)i);
	free(inner);
	return enough ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_node(struct plan *p, CUgraphNode n, const uint32_t *ends, uint32_t behind) {
	if (p->count >= NO_TASK - 2 || new_task(p, n->type == CU_GRAPH_NODE_TYPE_GRAPH ? NULL : n) == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n->in.count; i++)
		if (!depend(p, ends[n->in.list[i].node->place]))
			return CUDA_ERROR_OUT_OF_MEMORY;
	if (n->in.count == 0 && behind != NO_TASK && !depend(p, behind))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return n->type == CU_GRAPH_NODE_TYPE_GRAPH ? add_child(p, n->child, (uint32_t)p->count - 1) : CUDA_SUCCESS;
}

static CUresult add_graph(struct plan *p, CUgraph graph, uint32_t behind) {
	CUgraphNode *sorted;
	if (!graph_sort(graph, &sorted))
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t *ends = malloc((graph->count + 1) * sizeof *ends);
	CUresult result = sorted != NULL && ends != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
		result = add_node(p, sorted[i], ends, behind);
		ends[sorted[i]->place] = (uint32_t)p->count - 1;
	}
	free(sorted);
	free(ends);
	return result;
}

// --- who does it, and how ----------------------------------------------------------------------

static CUcontext context_of(CUgraphNode n) {
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return n->kernel.context;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return n->copy.context;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return n->fill.context;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return n->words.context;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return n->conditional.context;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return object_is(n->event, KIND_EVENT) ? n->event->object.context : NULL;
	default:
		return NULL;
	}
}

static bool in_rows(const struct copy_plan *c) { return c->height * c->depth == 1; }

static bool pinned_side(struct client *client, const struct side *s, size_t width) {
	uint64_t offset;
	return pinned_offset(client, (void *)(uintptr_t)s->at, width, &offset);
}

static enum copying how_to_copy(const struct task *t, const struct copy_plan *c) {
	if (c->width == 0 || c->height == 0 || c->depth == 0)
		return COPY_NOTHING;
	if (c->to.device && c->from.device)
		return COPY_WITHIN;
	if (!c->to.device && !c->from.device)
		return COPY_ON_HOST;
	const struct side *host = c->to.device ? &c->from : &c->to;
	if (in_rows(c) && pinned_side(t->client, host, c->width))
		return COPY_PINNED;
	bool early = c->to.device && in_rows(c) && !t->after_host;
	if (early && pinned_moving()) { // kernels reach registered memory, so one before the copy may write it
		struct range range;
		struct client *owner;
		early = !pinned_range((const void *)(uintptr_t)host->at, &range, &owner);
	}
	return early ? COPY_EARLY : COPY_STAGED;
}

static CUresult plan_copy(struct task *t) {
	const CUDA_MEMCPY3D *m = &t->node->copy.params;
	struct copy_plan *c = calloc(1, sizeof *c);
	if (c == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->copy = c;
	c->width = m->WidthInBytes;
	c->height = m->Height;
	c->depth = m->Depth;
	struct target target = {.client = t->client, .context = t->context};
	CUresult result = copy_sides(&target, m, &c->to, &c->from);
	if (result == CUDA_SUCCESS) {
		c->how = how_to_copy(t, c);
		return CUDA_SUCCESS;
	}
	if (!in_rows(c) || m->srcMemoryType != CU_MEMORYTYPE_DEVICE || m->dstMemoryType != CU_MEMORYTYPE_DEVICE || memory_owner(NULL, m->srcDevice + m->srcXInBytes, c->width) == NULL ||
	    memory_owner(NULL, m->dstDevice + m->dstXInBytes, c->width) == NULL)
		return result;
	c->how = COPY_ACROSS;
	c->to = (struct side){.device = true, .at = m->dstDevice + m->dstXInBytes, .size = c->width};
	c->from = (struct side){.device = true, .at = m->srcDevice + m->srcXInBytes, .size = c->width};
	return CUDA_SUCCESS;
}

// Makes the plans of the bodies. They must run on the device that has the condition.
static CUresult plan_branches(struct task *t) {
	const struct conditional_node *n = &t->node->conditional;
	struct branches *b = t->branches = calloc(1, sizeof *b);
	if (b == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*b = (struct branches){.node = t->node, .context = t->context, .bodies = calloc(n->size, sizeof *b->bodies)};
	if (b->bodies == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = CUDA_SUCCESS;
	for (; b->count < n->size && result == CUDA_SUCCESS; b->count++)
		result = plan_make(n->bodies[b->count], &b->bodies[b->count]);
	for (unsigned i = 0; i < b->count && result == CUDA_SUCCESS; i++)
		for (size_t l = 0; l < b->bodies[i].lane_count; l++)
			if (b->bodies[i].lanes[l].client != NULL && b->bodies[i].lanes[l].client != t->client)
				result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

// Bodies run while the graph's stream waits for the function that runs them.
static CUresult prepare_branches(struct branches *b) {
	CUresult result = b->stream == NULL ? stream_create(&b->stream, b->context, CU_STREAM_NON_BLOCKING, ASIDE_PRIORITY) : CUDA_SUCCESS;
	for (unsigned i = 0; i < b->count && result == CUDA_SUCCESS; i++) {
		b->bodies[i].body = true;
		result = plan_prepare(&b->bodies[i], b->context);
	}
	return result;
}

static void free_branches(struct branches *b, bool lives) {
	if (b == NULL)
		return;
	for (unsigned i = 0; i < b->count; i++)
		plan_free(&b->bodies[i]);
	if (b->stream != NULL && lives)
		stream_release(b->stream, true);
	free(b->bodies);
	free(b);
}

static bool writes_host(const struct task *t) {
	if (t->node == NULL)
		return false;
	if (t->branches != NULL)
		return true; // copies of its bodies may
	if (t->node->type == CU_GRAPH_NODE_TYPE_HOST)
		return true;
	return t->copy != NULL ? !t->copy->to.device && t->copy->how != COPY_ACROSS : t->node->type == CU_GRAPH_NODE_TYPE_MEMSET && memory_owner(NULL, t->node->fill.params.dst, 1) == NULL;
}

static CUresult plan_task(struct plan *p, struct task *t) {
	for (uint32_t k = 0; k < t->dependencies && !t->after_host; k++) {
		const struct task *d = &p->tasks[p->dependencies[t->first_dependency + k]];
		t->after_host = d->after_host || writes_host(d);
	}
	t->context = t->node != NULL ? context_of(t->node) : NULL;
	if (t->context == NULL)
		return CUDA_SUCCESS;
	CUresult result = context_client(t->context, &t->client);
	if (result == CUDA_SUCCESS && t->node->type == CU_GRAPH_NODE_TYPE_MEMSET) {
		struct client *owner = memory_owner(t->client, t->node->fill.params.dst, 1);
		t->client = owner != NULL ? owner : t->client;
	}
	if (result == CUDA_SUCCESS && t->node->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		result = plan_copy(t);
	if (result == CUDA_SUCCESS && t->node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		result = plan_branches(t);
	return result;
}

// --- lanes ----------------------------------------------------------------------------------

// Vector clocks, while lanes are chosen: for each lane, how many of its tasks are done. after:
// behind each task; of_lane: behind the last task of each lane; now: of the task that is being
// placed.
struct clocks {
	size_t lanes; // room
	uint32_t *after, *of_lane, *now;
};

static void clock_join(uint32_t *to, const uint32_t *from, size_t lanes) {
	for (size_t i = 0; i < lanes; i++)
		to[i] = to[i] > from[i] ? to[i] : from[i];
}

static size_t count_clients(const struct plan *p) {
	struct client *seen[MAX_DEVICES];
	size_t n = 0;
	for (size_t i = 0; i < p->count; i++) {
		size_t k = 0;
		while (k < n && seen[k] != p->tasks[i].client)
			k++;
		if (k == n && p->tasks[i].client != NULL && n < MAX_DEVICES)
			seen[n++] = p->tasks[i].client;
	}
	return n > 0 ? n : 1;
}

static bool fits(const struct lane *l, const struct task *t) { return t->client == NULL || l->client == NULL || l->client == t->client; }

// Chooses, in this order: a lane whose last task this one depends on; a lane whose tasks are all done
// before this one anyway; a new lane, up to LANES on a device; the shortest lane.
static uint32_t choose_lane(struct plan *p, const struct task *t, const struct clocks *c) {
	for (uint32_t k = 0; k < t->dependencies; k++) {
		const struct task *d = &p->tasks[p->dependencies[t->first_dependency + k]];
		if (p->lanes[d->lane].length == d->position + 1 && fits(&p->lanes[d->lane], t))
			return d->lane;
	}
	uint32_t mine = 0, shortest = NO_TASK;
	for (uint32_t l = 0; l < p->lane_count; l++) {
		if (!fits(&p->lanes[l], t))
			continue;
		if (c->now[l] == p->lanes[l].length)
			return l;
		mine++;
		if (shortest == NO_TASK || p->lanes[l].length < p->lanes[shortest].length)
			shortest = l;
	}
	if (p->lane_count < c->lanes && mine < LANES)
		return (uint32_t)p->lane_count++;
	return shortest;
}

// Adds a wait for a task, unless the clock shows that it is done already.
static bool wait_for(struct plan *p, struct clocks *c, uint32_t task) {
	struct task *d = &p->tasks[task];
	if (c->now[d->lane] > d->position)
		return true;
	d->recorded = true;
	clock_join(c->now, c->after + (size_t)task * c->lanes, c->lanes);
	return push(&p->waits, &p->wait_count, &p->wait_room, task);
}

static bool place_task(struct plan *p, uint32_t i, struct clocks *c) {
	struct task *t = &p->tasks[i];
	memset(c->now, 0, c->lanes * sizeof *c->now);
	for (uint32_t k = 0; k < t->dependencies; k++)
		clock_join(c->now, c->after + (size_t)p->dependencies[t->first_dependency + k] * c->lanes, c->lanes);
	t->lane = choose_lane(p, t, c);
	struct lane *l = &p->lanes[t->lane];
	t->position = l->length;
	if (l->client == NULL && t->client != NULL) {
		l->client = t->client;
		l->context = t->context;
	}
	memcpy(c->now, c->of_lane + t->lane * c->lanes, c->lanes * sizeof *c->now);
	t->first_wait = (uint32_t)p->wait_count;
	for (uint32_t k = t->dependencies; k > 0; k--) // the last first: waiting for it may imply the others
		if (!wait_for(p, c, p->dependencies[t->first_dependency + k - 1]))
			return false;
	t->waits = (uint32_t)(p->wait_count - t->first_wait);
	if (l->length == 0 && t->lane != 0 && t->waits == 0)
		l->begins = true;
	l->last = i;
	c->now[t->lane] = ++l->length;
	memcpy(c->after + (size_t)i * c->lanes, c->now, c->lanes * sizeof *c->now);
	memcpy(c->of_lane + t->lane * c->lanes, c->now, c->lanes * sizeof *c->now);
	return true;
}

static bool join_lanes(struct plan *p, struct clocks *c) {
	p->first_join = (uint32_t)p->wait_count;
	memcpy(c->now, c->of_lane, c->lanes * sizeof *c->now);
	for (uint32_t l = 1; l < p->lane_count; l++)
		if (!wait_for(p, c, p->lanes[l].last))
			return false;
	p->joins = (uint32_t)(p->wait_count - p->first_join);
	return true;
}

static CUresult plan_lanes(struct plan *p) {
	struct clocks c = {.lanes = LANES * count_clients(p)};
	c.after = malloc((p->count + 1) * c.lanes * sizeof *c.after);
	c.of_lane = calloc(c.lanes * c.lanes, sizeof *c.of_lane);
	c.now = malloc(c.lanes * sizeof *c.now);
	p->lanes = calloc(c.lanes, sizeof *p->lanes);
	p->lane_count = 1;
	bool enough = c.after != NULL && c.of_lane != NULL && c.now != NULL && p->lanes != NULL;
	for (size_t i = 0; i < p->count && enough; i++)
		enough = place_task(p, (uint32_t)i, &c);
	enough = enough && join_lanes(p, &c);
	free(c.after);
	free(c.of_lane);
	free(c.now);
	return enough ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// --- staged copies ----------------------------------------------------------------------------

static bool is_staged(const struct task *t) { return t->copy != NULL && (t->copy->how == COPY_STAGED || t->copy->how == COPY_EARLY); }

static void add_piece(struct copy_plan *c, const struct lane *l, size_t row, size_t rows, size_t z, size_t x, size_t width) {
	const struct side *host = c->to.device ? &c->from : &c->to, *device = c->to.device ? &c->to : &c->from;
	c->pieces[c->piece_count++] = (struct piece){
		.host = (uint8_t *)(uintptr_t)host->at + z * host->slice + row * host->pitch + x,
		.buffer = c->to.device ? l->in : l->out,
		.pitch = host->pitch,
		.width = width,
		.rows = rows,
		.in = c->to.device,
		.device = device->at + z * device->slice + row * device->pitch + x,
		.device_pitch = device->pitch,
		.offset = (uint64_t)((c->to.device ? l->in : l->out) - l->client->arena.at),
	};
}

// Cuts a copy into pieces that fit into the buffer: some rows, or a part of one row that is longer.
static CUresult cut_pieces(struct copy_plan *c, const struct lane *l) {
	size_t rows = l->staging / c->width, columns = rows > 0 ? 1 : (c->width + l->staging - 1) / l->staging, each = rows > 0 ? (c->height + rows - 1) / rows : c->height * columns, all;
	if (__builtin_mul_overflow(each, c->depth, &all))
		return CUDA_ERROR_OUT_OF_MEMORY;
	c->pieces = calloc(all, sizeof *c->pieces);
	if (c->pieces == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t z = 0; z < c->depth; z++)
		for (size_t y = 0; y < c->height; y += rows > 0 ? rows : 1) {
			if (rows > 0) {
				add_piece(c, l, y, rows < c->height - y ? rows : c->height - y, z, 0, c->width);
				continue;
			}
			for (size_t x = 0; x < c->width; x += l->staging)
				add_piece(c, l, y, 1, z, x, l->staging < c->width - x ? l->staging : c->width - x);
		}
	return CUDA_SUCCESS;
}

// Takes pinned memory for the two buffers of a lane, in one range: the size that is wanted, or half
// of it, and so on, down to 4 KiB.
static CUresult take_buffers(struct lane *l) {
	struct client *c = l->client;
	uint64_t at = 0;
	for (;; l->staging /= 2) {
		at = pinned_allocate(c, l->context, 2 * l->staging, 0);
		if (at != 0 || l->staging < 4096)
			break;
	}
	if (at == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->in = (uint8_t *)(uintptr_t)at;
	l->out = l->in + l->staging;
	return CUDA_SUCCESS;
}

static void give_buffers(struct lane *l) {
	pinned_give(l->client, (CUdeviceptr)(uintptr_t)l->in);
	l->in = l->out = NULL;
}

static CUresult prepare_staging(struct plan *p) {
	for (size_t i = 0; i < p->count; i++)
		if (is_staged(&p->tasks[i])) {
			const struct copy_plan *c = p->tasks[i].copy;
			struct lane *l = &p->lanes[p->tasks[i].lane];
			size_t size;
			if (__builtin_mul_overflow(c->width, c->height, &size) || __builtin_mul_overflow(size, c->depth, &size) || size > STAGING)
				size = STAGING;
			l->staging = l->staging > size ? l->staging : size;
		}
	CUresult result = CUDA_SUCCESS;
	for (size_t l = 0; l < p->lane_count && result == CUDA_SUCCESS; l++)
		if (p->lanes[l].staging > 0 && p->lanes[l].in == NULL)
			result = take_buffers(&p->lanes[l]);
	for (size_t i = 0; i < p->count && result == CUDA_SUCCESS; i++)
		if (is_staged(&p->tasks[i]) && p->tasks[i].copy->pieces == NULL)
			result = cut_pieces(p->tasks[i].copy, &p->lanes[p->tasks[i].lane]);
	return result;
}

// --- plans --------------------------------------------------------------------------------------

CUresult plan_make(CUgraph graph, struct plan *p) {
	*p = (struct plan){0};
	CUresult result = add_graph(p, graph, NO_TASK);
	for (size_t i = 0; i < p->count && result == CUDA_SUCCESS; i++) {
		result = plan_task(p, &p->tasks[i]);
		if (p->context == NULL)
			p->context = p->tasks[i].context;
		p->conditional |= p->tasks[i].branches != NULL;
		p->host_side |= is_staged(&p->tasks[i]) || (p->tasks[i].copy != NULL && p->tasks[i].copy->how == COPY_ON_HOST) || writes_host(&p->tasks[i]);
	}
	if (result == CUDA_SUCCESS)
		result = plan_lanes(p);
	if (result == CUDA_SUCCESS && p->lanes[0].context != NULL)
		p->context = p->lanes[0].context;
	if (result != CUDA_SUCCESS)
		plan_free(p);
	return result;
}

CUresult plan_prepare(struct plan *p, CUcontext context) {
	if (p->ready)
		return CUDA_SUCCESS;
	if (p->context == NULL)
		p->context = context;
	CUresult result = CUDA_SUCCESS;
	bool begins = false;
	for (size_t i = 0; i < p->lane_count && result == CUDA_SUCCESS; i++) {
		struct lane *l = &p->lanes[i];
		if (l->context == NULL)
			l->context = p->context;
		l->context_id = l->context->id;
		result = context_client(l->context, &l->client);
		begins |= l->begins;
		if (i > 0 && result == CUDA_SUCCESS && l->stream == NULL)
			result = stream_create(&l->stream, l->context, CU_STREAM_NON_BLOCKING, p->body ? ASIDE_PRIORITY : 0);
	}
	for (size_t i = 0; i < p->count && result == CUDA_SUCCESS; i++)
		if (p->tasks[i].recorded && p->tasks[i].event == NULL)
			result = event_create(&p->tasks[i].event, p->lanes[p->tasks[i].lane].context, CU_EVENT_DISABLE_TIMING);
	for (size_t i = 0; i < p->count && result == CUDA_SUCCESS; i++)
		if (p->tasks[i].branches != NULL)
			result = prepare_branches(p->tasks[i].branches);
	if (begins && result == CUDA_SUCCESS && p->begin == NULL)
		result = event_create(&p->begin, p->context, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = prepare_staging(p);
	p->ready = result == CUDA_SUCCESS;
	return result;
}

bool lane_lives(const struct lane *l) {
	return l->context != NULL && atomic_load(&shim_state) == SHIM_READY && object_is(l->context, KIND_CONTEXT) && l->context->id == l->context_id && atomic_load(&l->context->client) != NULL;
}

bool plan_adopt(struct plan *p, struct plan *later) {
	if (p->host_side || later->host_side || p->count != later->count || p->lane_count != later->lane_count)
		return false;
	for (size_t i = 0; i < p->lane_count; i++)
		if (p->lanes[i].client != later->lanes[i].client && later->lanes[i].client != NULL)
			return false;
	for (size_t i = 0; i < p->count; i++)
		if (p->tasks[i].node != later->tasks[i].node || p->tasks[i].lane != later->tasks[i].lane || p->tasks[i].recorded != later->tasks[i].recorded)
			return false;
	for (size_t i = 0; i < p->count; i++) {
		struct copy_plan *copy = p->tasks[i].copy;
		p->tasks[i].copy = later->tasks[i].copy;
		later->tasks[i].copy = copy;
	}
	plan_free(later);
	return true;
}

void plan_free(struct plan *p) {
	for (size_t i = 0; i < p->count; i++) {
		struct task *t = &p->tasks[i];
		if (t->event != NULL && lane_lives(&p->lanes[t->lane]))
			event_release(t->event, true);
		if (t->copy != NULL)
			free(t->copy->pieces);
		free(t->copy);
		free_branches(t->branches, p->lanes != NULL && lane_lives(&p->lanes[t->lane]));
	}
	if (p->begin != NULL && lane_lives(&p->lanes[0]))
		event_release(p->begin, true);
	for (size_t i = 0; i < p->lane_count; i++) {
		struct lane *l = &p->lanes[i];
		bool lives = lane_lives(l);
		if (l->stream != NULL && lives)
			stream_release(l->stream, true);
		if (l->in != NULL && lives)
			give_buffers(l);
	}
	free(p->tasks);
	free(p->dependencies);
	free(p->waits);
	free(p->lanes);
	*p = (struct plan){0};
}
