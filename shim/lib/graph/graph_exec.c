// Instantiated graphs: making, launching and changing them. Layer: graph.
//
// A launch posts the plan's messages. Launches of one graph never overlap: in one stream they are in
// order anyway, and a launch in another stream waits for the last one (follow_last). Each
// instantiated graph has a lock that is held for a launch, so two threads cannot mix their messages.
#include "graph_plan.h"

#include <stdlib.h>

struct CUgraphExec_st {
	struct object object;
	pthread_mutex_t lock;
	uint64_t flags;
	CUgraph graph; // a copy
	CUgraph source; // whose copy it is, if there may be only one instance of that
	struct plan plan;
	struct whole whole;
	bool stale;     // nodes have changed in a way that changes the plan
	bool launched;  // at least once
	bool wanders;   // was launched in more than one stream
	struct target last; // where it was launched
	uint64_t last_context_id;
	CUevent done; // recorded behind launches, once it wanders
	CUcontext done_context;
	uint64_t done_context_id;
};

static bool is_exec(CUgraphExec x) { return object_is(x, KIND_EXEC); }

CUgraph exec_graph(CUgraphExec x) { return x->graph; }

static bool context_lives(CUcontext context, uint64_t id) { return object_is(context, KIND_CONTEXT) && context->id == id; }

static bool last_stream_lives(const CUgraphExec x) {
	if (!context_lives(x->last.context, x->last_context_id))
		return false;
	return x->last.handle == NULL || (object_is(x->last.handle, KIND_STREAM) && x->last.handle->object.number == x->last.stream);
}

// Waits until the last launch has ended.
static void exec_idle(CUgraphExec x) {
	if (!x->launched || atomic_load(&shim_state) != SHIM_READY || !context_lives(x->last.context, x->last_context_id))
		return;
	if (last_stream_lives(x)) {
		target_wait(&x->last);
		return;
	}
	struct wire_synchronise message = {0};
	CALL(x->last.client, SYNCHRONISE, synchronise, &message, NO_DATA, NULL);
}

// --- instantiating -----------------------------------------------------------------------

// The graphs inside a node: bodies or a child.
static CUgraph *inner_graphs(CUgraphNode n, unsigned *count) {
	*count = n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? n->conditional.size : n->type == CU_GRAPH_NODE_TYPE_GRAPH;
	return n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? n->conditional.bodies : &n->child;
}

static CUresult check_nodes(CUgraph graph, bool body, CUgraphNode *bad);

static CUresult check_node(CUgraphNode n, bool body, CUgraphNode *bad) {
	*bad = n;
	if (n->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		if (!object_is(n->kernel.function, KIND_FUNCTION) || n->kernel.function->object.number != n->kernel.number)
			return CUDA_ERROR_INVALID_VALUE;
		return condition_check_kernel(n);
	}
	if ((n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) && !object_is(n->event, KIND_EVENT))
		return CUDA_ERROR_INVALID_VALUE;
	if (body && !condition_takes(n->type))
		return CUDA_ERROR_NOT_SUPPORTED;
	unsigned count;
	CUgraph *inner = inner_graphs(n, &count);
	CUresult result = CUDA_SUCCESS;
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = check_nodes(inner[i], body || n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL, bad);
	return result;
}

// Finds a node that no launch can do.
static CUresult check_nodes(CUgraph graph, bool body, CUgraphNode *bad) {
	for (size_t i = 0; i < graph->count; i++) {
		CUresult result = check_node(graph->nodes[i], body, bad);
		if (result != CUDA_SUCCESS)
			return result;
	}
	*bad = NULL;
	return CUDA_SUCCESS;
}

static bool has_cycle(CUgraph graph) {
	CUgraphNode *sorted;
	bool cycle = !graph_sort(graph, &sorted);
	free(sorted);
	for (size_t i = 0; i < graph->count && !cycle; i++) {
		unsigned count;
		CUgraph *inner = inner_graphs(graph->nodes[i], &count);
		for (unsigned k = 0; k < count && !cycle; k++)
			cycle = has_cycle(inner[k]);
	}
	return cycle;
}

static void exec_free(CUgraphExec x) {
	whole_forget(&x->whole);
	plan_free(&x->plan);
	if (x->done != NULL && context_lives(x->done_context, x->done_context_id) && atomic_load(&shim_state) == SHIM_READY)
		event_release(x->done, true);
	if (x->source != NULL && object_is(x->source, KIND_GRAPH) && x->source->id == x->graph->origin && x->source->instance == x)
		x->source->instance = NULL;
	if (x->graph != NULL)
		graph_release(x->graph);
	pthread_mutex_destroy(&x->lock);
	object_free(x);
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags, CUDA_GRAPH_INSTANTIATE_PARAMS *about) {
	about->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
	about->hErrNode_out = NULL;
	if (exec == NULL || !object_is(graph, KIND_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	const uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	if ((flags & ~known) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
		static atomic_flag told = ATOMIC_FLAG_INIT;
		about->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
		return trace_missing("cuGraphInstantiate", "a graph that kernels launch", &told);
	}
	if (graph->memory_nodes > 0 && graph->instance != NULL)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (has_cycle(graph)) {
		about->result_out = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
		return CUDA_ERROR_INVALID_VALUE;
	}
	CUresult result = check_nodes(graph, false, &about->hErrNode_out);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		about->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
	if (result == CUDA_SUCCESS && condition_is_unused(graph)) {
		about->result_out = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
		result = CUDA_ERROR_INVALID_VALUE;
	}
	if (result == CUDA_SUCCESS)
		result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	CUgraphExec x = object_new(KIND_EXEC, sizeof *x);
	if (x == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_init(&x->lock, NULL);
	x->flags = flags;
	result = graph_copy(graph, &x->graph);
	if (result == CUDA_SUCCESS)
		result = plan_make(x->graph, &x->plan);
	if (result != CUDA_SUCCESS) {
		exec_free(x);
		return result;
	}
	if (graph->memory_nodes > 0) {
		x->source = graph;
		graph->instance = x;
	}
	about->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	*exec = x;
	return CUDA_SUCCESS;
}

// Uploading by a call without a stream is refused.
CUresult do_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
	CUDA_GRAPH_INSTANTIATE_PARAMS about;
	return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0 ? instantiate(exec, graph, flags, &about) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size) {
	CUDA_GRAPH_INSTANTIATE_PARAMS about;
	CUresult result = instantiate(exec, graph, 0, &about);
	if (error_node != NULL)
		*error_node = about.hErrNode_out;
	if (log != NULL && size > 0)
		log[0] = 0;
	return result;
}

CUresult do_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size) { return do_cuGraphInstantiate_v2(exec, graph, error_node, log, size); }

CUresult do_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params, CUstream stream) {
	(void)stream; // an upload takes none
	return params != NULL ? instantiate(exec, graph, params->flags, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphExecDestroy(CUgraphExec exec) {
	if (!is_exec(exec))
		return CUDA_ERROR_INVALID_VALUE;
	if (exec->plan.host_side) // host functions still use the plan
		exec_idle(exec);
	exec_free(exec);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags) {
	if (!is_exec(exec) || flags == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = exec->flags;
	return CUDA_SUCCESS;
}

// --- launches ------------------------------------------------------------------------------------

// Memory that a launch allocates must not be live, and memory of other graphs that it frees must be.
static CUresult check_memory(CUgraphExec x) {
	for (size_t i = 0; i < x->graph->count; i++) {
		CUgraphNode n = x->graph->nodes[i];
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && graph_memory_is_live(n->memory) && (x->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0)
			return CUDA_ERROR_INVALID_VALUE;
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->memory->graph != x->graph->origin && !graph_memory_is_live(n->memory))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

// Notes what a launch has allocated and freed, in the order of the plan: the same launch may do both.
static void note_memory(CUgraphExec x) {
	for (size_t i = 0; i < x->plan.count; i++) {
		CUgraphNode n = x->plan.tasks[i].node;
		if (n != NULL && (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || n->type == CU_GRAPH_NODE_TYPE_MEM_FREE))
			graph_memory_live(n->memory, n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	}
}

static CUresult make_done(CUgraphExec x, CUcontext context) {
	if (x->done != NULL && context_lives(x->done_context, x->done_context_id))
		return CUDA_SUCCESS;
	CUresult result = event_create(&x->done, context, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS) {
		x->done_context = context;
		x->done_context_id = context->id;
	}
	return result;
}

// Orders a launch behind the last one.
static CUresult follow_last(CUgraphExec x, const struct target *t) {
	if (!x->launched || !context_lives(x->last.context, x->last_context_id))
		return CUDA_SUCCESS;
	bool same = x->last.client == t->client && x->last.stream == t->stream && x->last.context == t->context;
	if (same && last_stream_lives(x))
		return CUDA_SUCCESS;
	if (x->wanders)
		return task_wait(t, x->done);
	if (!last_stream_lives(x)) {
		exec_idle(x);
		return CUDA_SUCCESS;
	}
	x->wanders = true;
	CUresult result = make_done(x, x->last.context);
	if (result == CUDA_SUCCESS)
		result = task_record(&x->last, x->done);
	return result == CUDA_SUCCESS ? task_wait(t, x->done) : result;
}

static CUresult note_last(CUgraphExec x, const struct target *t) {
	x->launched = true;
	x->last = *t;
	x->last_context_id = t->context->id;
	if (!x->wanders)
		return CUDA_SUCCESS;
	struct client *c;
	if (x->done_context != t->context && (context_client(x->done_context, &c) != CUDA_SUCCESS || c != t->client)) { // an event is of one device
		event_release(x->done, true);
		x->done = NULL;
	}
	CUresult result = make_done(x, t->context);
	return result == CUDA_SUCCESS ? task_record(t, x->done) : result;
}

static CUresult renew_plan(CUgraphExec x) {
	if (!x->stale)
		return CUDA_SUCCESS;
	struct plan fresh;
	CUresult result = plan_make(x->graph, &fresh);
	if (result != CUDA_SUCCESS)
		return result;
	x->stale = x->whole.tried = false;
	if (plan_adopt(&x->plan, &fresh))
		return CUDA_SUCCESS;
	if (x->plan.host_side)
		exec_idle(x); // host functions of the last launch use its buffers
	plan_free(&x->plan);
	x->plan = fresh;
	return CUDA_SUCCESS;
}

// Launches a graph in a stream of another device than that of its first lane: waits for that
// stream, runs the graph in a stream of its own device, and waits for its end.
static CUresult launch_elsewhere(CUgraphExec x, const struct target *t) {
	struct target own = {.context = x->plan.context};
	CUstream stream;
	CUresult result = target_wait(t);
	if (result == CUDA_SUCCESS)
		result = context_client(own.context, &own.client);
	if (result == CUDA_SUCCESS)
		result = stream_create(&stream, own.context, CU_STREAM_NON_BLOCKING, 0);
	if (result != CUDA_SUCCESS)
		return result;
	own.handle = stream;
	own.stream = stream->object.number;
	exec_idle(x);
	result = x->plan.conditional ? conditions_assign(x->graph, &own) : CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		result = plan_post(&x->plan, &own, NULL);
	CUresult waited = target_wait(&own);
	stream_release(stream, true);
	x->launched = false; // it has ended
	return result == CUDA_SUCCESS ? waited : result;
}

static CUresult launch_locked(CUgraphExec x, const struct target *t) {
	CUresult result = client_status(t->client);
	if (result == CUDA_SUCCESS)
		result = renew_plan(x);
	if (result == CUDA_SUCCESS && x->graph->memory_nodes > 0)
		result = check_memory(x);
	if (result == CUDA_SUCCESS)
		result = plan_prepare(&x->plan, t->context);
	for (size_t i = 0; i < x->plan.lane_count && result == CUDA_SUCCESS; i++)
		if (!lane_lives(&x->plan.lanes[i]))
			result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (result != CUDA_SUCCESS)
		return result;
	if (x->plan.lanes[0].client != t->client) {
		result = launch_elsewhere(x, t);
	} else {
		result = follow_last(x, t);
		if (result == CUDA_SUCCESS && x->plan.conditional)
			result = conditions_assign(x->graph, t);
		if (result == CUDA_SUCCESS)
			result = whole_may_be(&x->plan) ? whole_post(&x->whole, &x->plan, t) : plan_post(&x->plan, t, NULL);
		if (result == CUDA_SUCCESS)
			result = note_last(x, t);
	}
	if (result == CUDA_SUCCESS && x->graph->memory_nodes > 0)
		note_memory(x);
	return result;
}

CUresult do_cuGraphLaunch(CUgraphExec exec, CUstream stream) {
	struct target t;
	if (!is_exec(exec))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = target_uncaptured(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&exec->lock);
	result = launch_locked(exec, &t);
	pthread_mutex_unlock(&exec->lock);
	return result;
}

CUresult do_cuGraphUpload(CUgraphExec exec, CUstream stream) {
	struct target t;
	if (!is_exec(exec))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = target_uncaptured(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&exec->lock);
	result = renew_plan(exec);
	if (result == CUDA_SUCCESS)
		result = plan_prepare(&exec->plan, t.context);
	pthread_mutex_unlock(&exec->lock);
	return result;
}

// --- changes ----------------------------------------------------------------------------------------

// The node of an instantiated graph that is the copy of a given node.
static CUgraphNode own_node(CUgraphExec x, CUgraphNode node, CUgraphNodeType type) {
	if (!is_exec(x) || !object_is(node, KIND_NODE) || node->type != type)
		return NULL;
	return graph_find(x->graph, node);
}

// Called before a change of something that host functions of the library read while a launch runs.
static void before_change(CUgraphExec x) {
	x->whole.tried = false;
	if (x->plan.host_side)
		exec_idle(x);
}

// Called before a change of what nodes do. That is read when a node is posted: during the launch, or
// later only for bodies of conditional nodes.
static void before_other_change(CUgraphExec x) {
	x->whole.tried = false;
	if (x->plan.conditional)
		exec_idle(x);
}

CUresult do_cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
	CUgraphNode n = own_node(exec, node, CU_GRAPH_NODE_TYPE_KERNEL);
	if (n == NULL || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext before = n->kernel.context;
	struct kernel_node changed = {.launch = {.cooperative = n->kernel.launch.cooperative}};
	CUresult result = kernel_set(&changed, params);
	if (result == CUDA_SUCCESS && changed.context != before)
		result = CUDA_ERROR_INVALID_VALUE;
	before_other_change(exec);
	if (result == CUDA_SUCCESS)
		result = kernel_set_bytes(&n->kernel, changed.function, changed.context, &changed.launch, changed.bytes);
	kernel_free(&changed);
	return result;
}

CUresult do_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
	if (p == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_KERNEL_NODE_PARAMS wide = {p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra, NULL, NULL};
	return do_cuGraphExecKernelNodeSetParams_v2(exec, node, &wide);
}

CUresult do_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context) {
	CUgraphNode n = own_node(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY);
	struct copy_node changed;
	if (n == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = copy_set(&changed, params, context);
	if (result == CUDA_SUCCESS && !copy_may_become(&n->copy, &changed))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	before_change(exec);
	n->copy = changed;
	exec->stale = true;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
	CUgraphNode n = own_node(exec, node, CU_GRAPH_NODE_TYPE_MEMSET);
	struct fill_node changed;
	if (n == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = fill_set(&changed, params, context, false);
	if (result == CUDA_SUCCESS && !fill_may_become(&n->fill, &changed))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	before_change(exec);
	n->fill = changed;
	exec->stale = true;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params) {
	CUgraphNode n = own_node(exec, node, CU_GRAPH_NODE_TYPE_HOST);
	return n != NULL ? do_cuGraphHostNodeSetParams(n, params) : CUDA_ERROR_INVALID_VALUE;
}

// What is done may change, and not how much.
CUresult do_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
	CUgraphNode n = own_node(exec, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	if (n == NULL || params == NULL || params->count != n->words.count)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->ctx != n->words.context)
		exec->stale = true;
	return words_set(&n->words, params);
}

static CUresult set_event(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, CUevent event) {
	CUgraphNode n = own_node(exec, node, type);
	if (n == NULL || !object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD && n->event->object.context != event->object.context)
		exec->stale = true;
	n->event = event;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) { return set_event(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event); }
CUresult do_cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) { return set_event(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event); }

CUresult do_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p) {
	if (p == NULL || !object_is(node, KIND_NODE) || p->type != node->type)
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext current = context_current();
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return do_cuGraphExecKernelNodeSetParams_v2(exec, node, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return do_cuGraphExecMemcpyNodeSetParams(exec, node, &p->memcpy.copyParams, p->memcpy.copyCtx != NULL ? p->memcpy.copyCtx : current);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return do_cuGraphExecMemsetNodeSetParams(exec, node, (const CUDA_MEMSET_NODE_PARAMS *)&p->memset, p->memset.ctx != NULL ? p->memset.ctx : current);
	case CU_GRAPH_NODE_TYPE_HOST:
		return do_cuGraphExecHostNodeSetParams(exec, node, &p->host);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return do_cuGraphExecBatchMemOpNodeSetParams(exec, node, &p->memOp);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return do_cuGraphExecChildGraphNodeSetParams(exec, node, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return do_cuGraphExecEventWaitNodeSetEvent(exec, node, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return do_cuGraphExecEventRecordNodeSetEvent(exec, node, p->eventRecord.event);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static bool may_be_disabled(CUgraphNode n) { return n->type == CU_GRAPH_NODE_TYPE_KERNEL || n->type == CU_GRAPH_NODE_TYPE_MEMCPY || n->type == CU_GRAPH_NODE_TYPE_MEMSET; }

CUresult do_cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
	CUgraphNode n = object_is(node, KIND_NODE) ? own_node(exec, node, node->type) : NULL;
	if (n == NULL || !may_be_disabled(n))
		return CUDA_ERROR_INVALID_VALUE;
	before_other_change(exec);
	n->disabled = enabled == 0;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled) {
	CUgraphNode n = object_is(node, KIND_NODE) ? own_node(exec, node, node->type) : NULL;
	if (n == NULL || !may_be_disabled(n) || enabled == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*enabled = !n->disabled;
	return CUDA_SUCCESS;
}

// --- updates: another graph of the same shape ------------------------------------------------------

// Nodes are paired by the order of their making.
static bool same_dependencies(CUgraphNode mine, CUgraphNode other) {
	if (mine->in.count != other->in.count)
		return false;
	for (size_t i = 0; i < other->in.count; i++) {
		size_t place = other->in.list[i].node->place;
		bool found = mine->in.list[i].node->place == place; // almost always in the same order
		for (size_t k = 0; k < mine->in.count && !found; k++)
			found = mine->in.list[k].node->place == place;
		if (!found)
			return false;
	}
	return true;
}

static CUgraphExecUpdateResult compare_node(CUgraphNode mine, CUgraphNode other, CUgraphExecUpdateResultInfo *info);

// As the driver does, the last node that differs is the one that is named. An empty node is
// not, and neither is where an edge comes from.
static CUgraphExecUpdateResult compare(CUgraph mine, CUgraph other, CUgraphExecUpdateResultInfo *info) {
	if (mine->count != other->count) {
		info->errorNode = NULL;
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	}
	graph_number(mine);
	graph_number(other);
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	for (size_t i = mine->count; i-- > 0 && result == CU_GRAPH_EXEC_UPDATE_SUCCESS;) {
		info->errorNode = other->nodes[i];
		if (!same_dependencies(mine->nodes[i], other->nodes[i])) {
			if (other->nodes[i]->type == CU_GRAPH_NODE_TYPE_EMPTY)
				info->errorNode = NULL;
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		}
		result = compare_node(mine->nodes[i], other->nodes[i], info);
	}
	return result;
}

static CUgraphExecUpdateResult compare_inner(CUgraphNode mine, CUgraphNode other, CUgraphExecUpdateResultInfo *info) {
	unsigned count;
	CUgraph *inner = inner_graphs(mine, &count), *others = inner_graphs(other, &count);
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	for (unsigned i = 0; i < count && result == CU_GRAPH_EXEC_UPDATE_SUCCESS; i++)
		result = compare(inner[i], others[i], info);
	return result;
}

static CUgraphExecUpdateResult compare_node(CUgraphNode mine, CUgraphNode other, CUgraphExecUpdateResultInfo *info) {
	if (mine->type != other->type)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	switch (mine->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		if (mine->kernel.context != other->kernel.context)
			return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
		return mine->kernel.launch.cooperative == other->kernel.launch.cooperative ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return copy_may_become(&mine->copy, &other->copy) ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return fill_may_become(&mine->fill, &other->fill) ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return mine->words.context == other->words.context && mine->words.count == other->words.count ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return mine->memory == other->memory ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		if (mine->conditional.condition != other->conditional.condition || mine->conditional.type != other->conditional.type || mine->conditional.size != other->conditional.size)
			return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
		return compare_inner(mine, other, info);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return compare_inner(mine, other, info);
	default:
		return CU_GRAPH_EXEC_UPDATE_SUCCESS;
	}
}

// Nodes of the other graph are from now on those that this one is changed by.
static CUresult take_over(CUgraph mine, CUgraph other) {
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < mine->count && result == CUDA_SUCCESS; i++) {
		CUgraphNode to = mine->nodes[i], from = other->nodes[i];
		unsigned count;
		CUgraph *inner = inner_graphs(to, &count), *others = inner_graphs(from, &count);
		if (count == 0)
			result = node_assign(to, from);
		for (unsigned k = 0; k < count && result == CUDA_SUCCESS; k++)
			result = take_over(inner[k], others[k]);
	}
	return result;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
	*info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
	if (!is_exec(exec) || !object_is(graph, KIND_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	info->result = compare(exec->graph, graph, info);
	if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	info->errorNode = NULL;
	before_change(exec);
	exec->stale = true;
	return take_over(exec->graph, graph);
}

CUresult do_cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
	CUgraphExecUpdateResultInfo unwanted;
	return update(exec, graph, info != NULL ? info : &unwanted);
}

CUresult do_cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result) {
	CUgraphExecUpdateResultInfo info;
	if (result == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = update(exec, graph, &info);
	*result = info.result;
	if (error_node != NULL)
		*error_node = info.errorNode;
	return r;
}

CUresult do_cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
	CUgraphNode n = own_node(exec, node, CU_GRAPH_NODE_TYPE_GRAPH);
	CUgraphExecUpdateResultInfo info;
	if (n == NULL || !object_is(child, KIND_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	if (compare(n->child, child, &info) != CU_GRAPH_EXEC_UPDATE_SUCCESS)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	before_change(exec);
	exec->stale = true;
	return take_over(n->child, child);
}
