// Stream capture: work given to captured streams becomes nodes of a graph. Layer: graph. A
// stream that waits for an event of a captured stream joins the capture, and the origin must wait
// for it in turn before the capture ends.
//
// One lock protects all captures, the graphs that they add to, and the fields captured of streams and
// in_capture of events. While there is no capture (captures is 0), calls do not take it. Graphs of
// cancelled captures are released without it: destructors of the program's user objects may call us.
#include "graph.h"

#include <stdlib.h>

static uint64_t capture_ids;

// --- the life of captures ------------------------------------------------------------------

static bool edges_assign(struct edges *to, const struct edges *from) {
	to->count = 0;
	for (size_t i = 0; i < from->count; i++)
		if (!edges_add(to, from->list[i].node, from->list[i].data))
			return false;
	return true;
}

static bool edges_join(struct edges *to, const struct edges *from) {
	for (size_t i = 0; i < from->count; i++) {
		bool there = false;
		for (size_t k = 0; k < to->count && !there; k++)
			there = to->list[k].node == from->list[i].node;
		if (!there && !edges_add(to, from->list[i].node, from->list[i].data))
			return false;
	}
	return true;
}

static struct captured *add_stream(struct capture *c, CUstream stream, const struct edges *front) {
	struct captured *s = calloc(1, sizeof *s);
	if (s == NULL)
		return NULL;
	if (front != NULL && !edges_assign(&s->front, front)) {
		free(s->front.list);
		free(s);
		return NULL;
	}
	s->capture = c;
	s->stream = stream;
	s->next = c->streams;
	c->streams = s;
	stream->captured = s;
	return s;
}

// Ends a capture. Returns its graph if nobody keeps it: the caller, who holds the lock, releases it
// after the lock.
static CUgraph end_capture(struct capture *c, bool keep_graph) {
	for (struct captured *s = c->streams, *next; s != NULL; s = next) {
		next = s->next;
		if (s->stream != NULL)
			s->stream->captured = NULL;
		free(s->front.list);
		free(s->nodes);
		free(s->edges);
		free(s);
	}
	struct capture **at = &captures_all;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->graph->captured = false;
	CUgraph unwanted = keep_graph || c->given ? NULL : c->graph;
	free(c);
	atomic_fetch_sub(&captures, 1);
	return unwanted;
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const struct edges *front) {
	struct capture *c = calloc(1, sizeof *c);
	CUresult result = c != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		c->given = graph != NULL;
		c->graph = graph;
		result = graph != NULL ? CUDA_SUCCESS : graph_new(&c->graph);
	}
	if (result == CUDA_SUCCESS && add_stream(c, stream, front) == NULL) {
		if (!c->given)
			graph_release(c->graph);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(c);
		return result;
	}
	c->id = ++capture_ids;
	c->mode = mode;
	c->thread = pthread_self();
	c->origin = stream;
	c->graph->captured = true;
	c->next = captures_all;
	captures_all = c;
	atomic_fetch_add(&captures, 1);
	return CUDA_SUCCESS;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, const struct edges *front) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (t.handle == NULL)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&captures_lock);
	result = t.handle->captured == NULL ? begin(t.handle, mode, graph, front) : CUDA_ERROR_ILLEGAL_STATE;
	pthread_mutex_unlock(&captures_lock);
	return result;
}

CUresult do_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) { return begin_capture(stream, mode, NULL, NULL); }

CUresult do_cuStreamBeginCapture(CUstream stream) { return do_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL); }

// Makes a front of the nodes that a program names as dependencies.
static CUresult named_front(struct edges *front, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count) {
	if (count > 0 && nodes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (!object_is(nodes[i], KIND_NODE) || nodes[i]->graph != graph)
			return CUDA_ERROR_INVALID_VALUE;
		if (!edges_add(front, nodes[i], edges != NULL ? edges[i] : (CUgraphEdgeData){0}))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult do_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
	if (!object_is(graph, KIND_GRAPH) || graph->captured)
		return CUDA_ERROR_INVALID_VALUE;
	struct edges front = {0};
	CUresult result = named_front(&front, graph, dependencies, edges, count);
	if (result == CUDA_SUCCESS)
		result = begin_capture(stream, mode, graph, &front);
	free(front.list);
	return result;
}

// Marks all nodes that a front depends on, and those of the front.
static bool mark_behind(const struct edges *front, uint64_t mark) {
	struct edges left = {0};
	bool enough = edges_assign(&left, front);
	while (left.count > 0 && enough) {
		CUgraphNode n = left.list[--left.count].node;
		if (n->mark == mark)
			continue;
		n->mark = mark;
		for (size_t i = 0; i < n->in.count && enough; i++)
			enough = n->in.list[i].node->mark == mark || edges_add(&left, n->in.list[i].node, n->in.list[i].data);
	}
	free(left.list);
	return enough;
}

// Whether the origin depends on the fronts of all other streams of the capture.
static CUresult check_joined(const struct capture *c) {
	uint64_t mark = graph_mark();
	if (!mark_behind(&c->origin->captured->front, mark))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (const struct captured *s = c->streams; s != NULL; s = s->next)
		for (size_t i = 0; i < s->front.count; i++)
			if (s->front.list[i].node->mark != mark)
				return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	return CUDA_SUCCESS;
}

// Ends a capture. It ends even if the call fails, for example in the wrong thread; only a call on a
// stream that is not the origin leaves it, invalid. The caller holds the lock, and after it releases
// the unwanted graph.
static CUresult end_locked(CUstream stream, CUgraph *graph, CUgraph *unwanted) {
	if (stream == NULL || stream->captured == NULL)
		return CUDA_ERROR_ILLEGAL_STATE;
	struct capture *c = stream->captured->capture;
	if (c->origin != stream) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	CUresult result = CUDA_SUCCESS;
	if (c->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	else
		result = check_joined(c);
	bool keep = graph != NULL && result == CUDA_SUCCESS;
	if (keep)
		*graph = c->graph;
	*unwanted = end_capture(c, keep);
	return result;
}

CUresult do_cuStreamEndCapture(CUstream stream, CUgraph *graph) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	CUgraph unwanted = NULL, captured = NULL;
	pthread_mutex_lock(&captures_lock);
	result = end_locked(t.handle, graph != NULL ? &captured : NULL, &unwanted); // a program may leave the graph
	pthread_mutex_unlock(&captures_lock);
	if (unwanted != NULL)
		graph_release(unwanted);
	if (graph != NULL)
		*graph = captured;
	return result;
}

// Called when a stream is destroyed. If it is the origin, its capture is cancelled. Otherwise its
// front stays, since the origin must still join it.
static void record_forget_stream(CUstream stream) {
	CUgraph unwanted = NULL;
	pthread_mutex_lock(&captures_lock);
	struct captured *s = stream->captured;
	if (s != NULL && s->capture->origin == stream)
		unwanted = end_capture(s->capture, false);
	else if (s != NULL)
		s->stream = NULL;
	stream->captured = NULL;
	pthread_mutex_unlock(&captures_lock);
	if (unwanted != NULL)
		graph_release(unwanted);
}

// As the driver does, accepts a number that is no mode; it acts as
// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL.
CUresult with_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
	*mode = capture_mode(*mode);
	return CUDA_SUCCESS;
}

// --- recording --------------------------------------------------------------------------------

// Adds a node that depends on the stream's front. The caller holds the lock.
static CUresult attach(struct captured *s, CUgraphNode node) {
	CUgraphNode few[16] = {NULL}, *nodes = s->front.count <= 16 ? few : malloc(s->front.count * sizeof *nodes);
	CUgraphEdgeData few_edges[16] = {{0}}, *edges = s->front.count <= 16 ? few_edges : malloc(s->front.count * sizeof *edges);
	CUresult result = nodes != NULL && edges != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < s->front.count && result == CUDA_SUCCESS; i++) {
		nodes[i] = s->front.list[i].node;
		edges[i] = s->front.list[i].data;
	}
	if (result == CUDA_SUCCESS)
		result = node_attach(s->capture->graph, node, nodes, edges, s->front.count);
	if (nodes != few)
		free(nodes);
	if (edges != few_edges)
		free(edges);
	if (result != CUDA_SUCCESS)
		return result;
	s->capture->graph->memory_nodes += node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
	s->front.count = 0;
	return edges_add(&s->front, node, (CUgraphEdgeData){0}) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Whether a stream is in a capture that is valid. The caller holds the lock.
static CUresult check(const struct captured *s) { return s == NULL ? CUDA_ERROR_ILLEGAL_STATE : s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS; }

// A node is recorded in three steps: begin_node makes one that no graph has, the caller gives it its parameters, and
// finish_node adds it to the capture's graph. So what the parameters need (a client, memory of the worker, checks), and
// the end of a node that is not added, happen without the lock of captures, which is below theirs.
static CUresult begin_node(const struct target *t, CUgraphNodeType type, CUgraphNode *node, uint64_t *graph) {
	pthread_mutex_lock(&captures_lock);
	const struct captured *s = t->handle->captured;
	CUresult result = check(s);
	if (result == CUDA_SUCCESS)
		*graph = s->capture->graph->id;
	pthread_mutex_unlock(&captures_lock);
	if (result != CUDA_SUCCESS)
		return result;
	*node = node_detached(type);
	return *node != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// As with the driver, CUDA_ERROR_INVALID_VALUE (a copy or free of unknown memory) leaves the capture valid; other errors
// invalidate it.
static CUresult finish_node(const struct target *t, CUgraphNode node, CUresult made) {
	pthread_mutex_lock(&captures_lock);
	struct captured *s = t->handle->captured;
	CUresult result = check(s);
	if (result == CUDA_SUCCESS) {
		result = made == CUDA_SUCCESS ? attach(s, node) : made;
		if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
			s->capture->invalid = true;
	}
	bool added = node->graph != NULL;
	pthread_mutex_unlock(&captures_lock);
	if (!added)
		node_end(node);
	return result;
}

static CUresult record_kernel(const struct target *t, CUfunction function, const struct launch *launch, const uint8_t *bytes) {
	CUgraphNode n;
	uint64_t graph;
	CUresult result = begin_node(t, CU_GRAPH_NODE_TYPE_KERNEL, &n, &graph);
	return result == CUDA_SUCCESS ? finish_node(t, n, kernel_set_bytes(&n->kernel, function, t->context, launch, bytes)) : result;
}

static CUresult record_copy(const struct target *t, const CUDA_MEMCPY3D *copy) {
	CUgraphNode n;
	uint64_t graph;
	CUresult result = begin_node(t, CU_GRAPH_NODE_TYPE_MEMCPY, &n, &graph);
	return result == CUDA_SUCCESS ? finish_node(t, n, copy_set(&n->copy, copy, t->context)) : result;
}

static CUresult record_fill(const struct target *t, CUdeviceptr at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height) {
	CUgraphNode n;
	uint64_t graph;
	const CUDA_MEMSET_NODE_PARAMS params = {at, pitch, value, width, count, height};
	CUresult result = begin_node(t, CU_GRAPH_NODE_TYPE_MEMSET, &n, &graph);
	return result == CUDA_SUCCESS ? finish_node(t, n, fill_set(&n->fill, &params, t->context, true)) : result;
}

static CUresult record_words(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list) {
	CUgraphNode n;
	uint64_t graph;
	CUresult result = begin_node(t, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &n, &graph);
	const CUDA_BATCH_MEM_OP_NODE_PARAMS params = {t->context, count, (CUstreamBatchMemOpParams *)list, 0};
	return result == CUDA_SUCCESS ? finish_node(t, n, words_set(&n->words, &params)) : result;
}

static CUresult record_host(const struct target *t, CUhostFn function, void *data) {
	CUgraphNode n;
	uint64_t graph;
	CUresult result = begin_node(t, CU_GRAPH_NODE_TYPE_HOST, &n, &graph);
	if (result != CUDA_SUCCESS)
		return result;
	n->host = (CUDA_HOST_NODE_PARAMS){function, data};
	return finish_node(t, n, CUDA_SUCCESS);
}

static CUresult record_alloc(const struct target *t, size_t size, CUdeviceptr *address) {
	CUgraphNode n;
	uint64_t graph;
	struct target owner;
	CUresult result = graph_memory_target(t->context->device, &owner);
	if (result == CUDA_SUCCESS)
		result = begin_node(t, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &n, &graph);
	if (result != CUDA_SUCCESS)
		return result;
	result = graph_allocate(graph, &owner, size, &n->memory);
	if (result == CUDA_SUCCESS)
		*address = n->memory->address;
	return finish_node(t, n, result);
}

static CUresult record_free(const struct target *t, CUdeviceptr address) {
	CUgraphNode n;
	uint64_t graph;
	CUresult result = begin_node(t, CU_GRAPH_NODE_TYPE_MEM_FREE, &n, &graph);
	return result == CUDA_SUCCESS ? finish_node(t, n, free_set(n, graph, address)) : result;
}

// --- events ----------------------------------------------------------------------------------------

static CUresult event_node(const struct target *t, CUgraphNodeType type, CUevent event) {
	CUgraphNode n;
	uint64_t graph;
	CUresult result = begin_node(t, type, &n, &graph);
	if (result != CUDA_SUCCESS)
		return result;
	n->event = event;
	return finish_node(t, n, CUDA_SUCCESS);
}

static CUresult record_event(const struct target *t, CUevent event, bool external) {
	if (external)
		return event_node(t, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
	struct recorded *r = calloc(1, sizeof *r);
	if (r == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture_forget_event(event);
	pthread_mutex_lock(&captures_lock);
	struct captured *s = t->handle->captured;
	CUresult result = check(s);
	if (result == CUDA_SUCCESS && !edges_assign(&r->front, &s->front))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		r->capture = s->capture->id;
		event->in_capture = r;
	}
	pthread_mutex_unlock(&captures_lock);
	if (result != CUDA_SUCCESS) {
		free(r->front.list);
		free(r);
	}
	return result;
}

// A stream waits for an event of a capture: the stream joins the capture. The caller holds the lock.
static CUresult join_capture(const struct target *t, const struct recorded *r) {
	struct capture *c = capture_find(r->capture);
	struct captured *s = t->handle != NULL ? t->handle->captured : NULL;
	if (c == NULL) { // it has ended
		if (s != NULL)
			s->capture->invalid = true;
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (t->handle == NULL) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (s != NULL && s->capture != c) {
		s->capture->invalid = c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	bool enough = s != NULL ? edges_join(&s->front, &r->front) : add_stream(c, t->handle, &r->front) != NULL;
	return enough ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult record_wait(const struct target *t, CUevent event, bool external, bool *done) {
	*done = t->captured;
	if (t->captured && external)
		return event_node(t, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
	if (!t->captured && event->in_capture == NULL)
		return CUDA_SUCCESS;
	if (event->in_capture == NULL) // recorded outside of the capture, which a graph cannot wait for; or never recorded
		return atomic_load(&event->recorded) ? capture_refused(t, CUDA_ERROR_STREAM_CAPTURE_ISOLATION) : CUDA_SUCCESS;
	*done = true;
	pthread_mutex_lock(&captures_lock);
	CUresult result = event->in_capture != NULL ? join_capture(t, event->in_capture) : CUDA_SUCCESS;
	pthread_mutex_unlock(&captures_lock);
	return result;
}

static const struct recorder ours = {
	.kernel = record_kernel,
	.copy = record_copy,
	.fill = record_fill,
	.words = record_words,
	.host = record_host,
	.alloc = record_alloc,
	.free = record_free,
	.record = record_event,
	.wait = record_wait,
	.forget_stream = record_forget_stream,
};

__attribute__((constructor)) static void take_part(void) { recorder = &ours; }

// --- what programs ask, and change ---------------------------------------------------------------------

// Returns the nodes and edges of a front, in arrays that stay valid until the next call for the
// stream.
static CUresult publish_front(struct captured *s, const CUgraphNode **nodes, const CUgraphEdgeData **edges) {
	CUgraphNode *n = realloc(s->nodes, (s->front.count + 1) * sizeof *n);
	if (n != NULL)
		s->nodes = n;
	CUgraphEdgeData *e = realloc(s->edges, (s->front.count + 1) * sizeof *e);
	if (e != NULL)
		s->edges = e;
	if (n == NULL || e == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	bool lost = false;
	for (size_t i = 0; i < s->front.count; i++) {
		n[i] = s->front.list[i].node;
		e[i] = s->front.list[i].data;
		lost |= (e[i].from_port | e[i].to_port | e[i].type) != 0;
	}
	if (lost && nodes != NULL && edges == NULL)
		return CUDA_ERROR_LOSSY_QUERY;
	if (nodes != NULL)
		*nodes = n;
	if (edges != NULL)
		*edges = e;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count) {
	struct target t;
	if (status == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (atomic_load(&captures) == 0)
		return CUDA_SUCCESS;
	if (t.handle == NULL)
		return capture_blocks_legacy(t.context) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
	pthread_mutex_lock(&captures_lock);
	struct captured *s = t.handle->captured;
	if (s != NULL) {
		*status = s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
		if (id != NULL)
			*id = s->capture->id;
		if (graph != NULL)
			*graph = s->capture->graph;
		if (count != NULL)
			*count = s->front.count;
		if (dependencies != NULL || edges != NULL)
			result = publish_front(s, dependencies, edges);
	}
	pthread_mutex_unlock(&captures_lock);
	return result;
}

CUresult do_cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
	return do_cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

CUresult do_cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) { return do_cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL); }

// Frameworks ask this of every stream, also without a current context.
CUresult with_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
	if (stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD && !object_is(stream, KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return atomic_load(&captures) > 0 ? do_cuStreamGetCaptureInfo_v3(stream, status, NULL, NULL, NULL, NULL, NULL) : CUDA_SUCCESS;
}

CUresult do_cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, unsigned int flags) {
	struct target t;
	struct edges front = {0};
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&captures_lock);
	struct captured *s = t.handle != NULL ? t.handle->captured : NULL;
	if (s == NULL)
		result = CUDA_ERROR_ILLEGAL_STATE;
	else if (s->capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else
		result = named_front(&front, s->capture->graph, dependencies, edges, count);
	if (result == CUDA_SUCCESS && !(flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? edges_assign(&s->front, &front) : edges_join(&s->front, &front)))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&captures_lock);
	free(front.list);
	return result;
}

CUresult do_cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags) {
	return do_cuStreamUpdateCaptureDependencies_v2(stream, dependencies, NULL, count, flags);
}
