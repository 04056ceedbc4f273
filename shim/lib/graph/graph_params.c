// The parameters of graph nodes: checked and copied when a node is made or changed. Layer: graph.
#include "graph.h"

#include <stdlib.h>

static bool is_type(CUgraphNode n, CUgraphNodeType type) { return object_is(n, KIND_NODE) && n->type == type; }

// --- kernels -----------------------------------------------------------------------------

// The function that a node's parameters mean: a kernel's is that of the context.
static CUresult named_function(const CUDA_KERNEL_NODE_PARAMS *p, CUfunction *function) {
	CUfunction handle = p->func != NULL ? p->func : (CUfunction)p->kern;
	if (handle == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!object_is(handle, KIND_KERNEL) || p->ctx == NULL || p->ctx == context_current())
		return function_of(handle, function);
	CUresult result = do_cuCtxPushCurrent_v2(p->ctx);
	if (result != CUDA_SUCCESS)
		return result;
	result = function_of(handle, function);
	do_cuCtxPopCurrent_v2(NULL);
	return result;
}

CUresult kernel_set(struct kernel_node *k, const CUDA_KERNEL_NODE_PARAMS *p) {
	CUfunction f;
	if (p == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = named_function(p, &f);
	if (result != CUDA_SUCCESS)
		return result;
	const struct launch l = {{p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes, k->launch.cooperative, {k->launch.cluster[0], k->launch.cluster[1], k->launch.cluster[2]}};
	result = launch_check(f, &l);
	if (result != CUDA_SUCCESS)
		return result;
	uint8_t *bytes = malloc(f->param_size + 1);
	if (bytes == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = launch_gather(f, p->kernelParams, p->extra, bytes);
	if (result == CUDA_SUCCESS)
		result = kernel_set_bytes(k, f, f->object.context, &l, bytes);
	free(bytes);
	return result;
}

static CUDA_KERNEL_NODE_PARAMS widened(const CUDA_KERNEL_NODE_PARAMS_v1 *p) {
	return (CUDA_KERNEL_NODE_PARAMS){p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra, NULL, NULL};
}

// Keeps a new node if it could be filled in.
static CUresult finish(CUresult result, CUgraphNode n, CUgraphNode *node) {
	if (result == CUDA_SUCCESS)
		*node = n;
	else
		node_release(n);
	return result;
}

static CUresult add_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, const CUDA_KERNEL_NODE_PARAMS *params) {
	CUgraphNode n;
	if (node == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_KERNEL, dependencies, edges, count, &n);
	return result == CUDA_SUCCESS ? finish(kernel_set(&n->kernel, params), n, node) : result;
}

CUresult do_cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_KERNEL_NODE_PARAMS *params) {
	return add_kernel(node, graph, dependencies, NULL, count, params);
}

CUresult with_cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
	const CUDA_KERNEL_NODE_PARAMS wide = widened(params);
	return add_kernel(node, graph, dependencies, NULL, count, &wide);
}

// CUDA's runtime makes nodes with functions that it got for kernels of libraries, and finds
// out by kern whose they are.
CUresult do_cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_KERNEL) || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	const struct kernel_node *k = &node->kernel;
	const struct launch *l = &k->launch;
	*params = (CUDA_KERNEL_NODE_PARAMS){
		.func = k->function,
		.gridDimX = l->grid[0],
		.gridDimY = l->grid[1],
		.gridDimZ = l->grid[2],
		.blockDimX = l->block[0],
		.blockDimY = l->block[1],
		.blockDimZ = l->block[2],
		.sharedMemBytes = l->shared,
		.kernelParams = k->pointers,
		.kern = kernel_is_there(k) ? kernel_behind(k->function) : NULL,
		.ctx = k->context,
	};
	return CUDA_SUCCESS;
}

CUresult do_cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params) {
	CUDA_KERNEL_NODE_PARAMS p;
	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = do_cuGraphKernelNodeGetParams_v2(node, &p);
	if (result == CUDA_SUCCESS)
		*params = (CUDA_KERNEL_NODE_PARAMS_v1){p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
	return result;
}

CUresult do_cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params) {
	return is_type(node, CU_GRAPH_NODE_TYPE_KERNEL) ? kernel_set(&node->kernel, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult with_cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
	const CUDA_KERNEL_NODE_PARAMS wide = widened(params);
	return do_cuGraphKernelNodeSetParams_v2(node, &wide);
}

// Of the attributes, two change a launch; the others are remembered.
CUresult do_cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute, const CUkernelNodeAttrValue *value) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_KERNEL) || value == NULL || (unsigned)attribute >= KERNEL_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	struct kernel_node *k = &node->kernel;
	if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE || attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
		struct launch l = k->launch;
		if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			l.cooperative = value->cooperative != 0;
		else
			memcpy(l.cluster, &value->clusterDim, sizeof l.cluster);
		CUresult result = launch_check(k->function, &l);
		if (result != CUDA_SUCCESS)
			return result;
		k->launch = l;
	}
	if (k->attributes == NULL)
		k->attributes = calloc(KERNEL_ATTRIBUTES, sizeof *k->attributes);
	if (k->attributes == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	k->attributes[attribute] = *value;
	k->attributes_set |= UINT32_C(1) << attribute;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue *value) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_KERNEL) || value == NULL || (unsigned)attribute >= KERNEL_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	const struct kernel_node *k = &node->kernel;
	memset(value, 0, sizeof *value);
	if ((k->attributes_set >> attribute & 1) != 0)
		*value = k->attributes[attribute];
	if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		value->cooperative = k->launch.cooperative;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphKernelNodeCopyAttributes(CUgraphNode destination, CUgraphNode source) {
	if (!is_type(destination, CU_GRAPH_NODE_TYPE_KERNEL) || !is_type(source, CU_GRAPH_NODE_TYPE_KERNEL))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_SUCCESS;
	for (unsigned i = 0; i < KERNEL_ATTRIBUTES && result == CUDA_SUCCESS; i++)
		if ((source->kernel.attributes_set >> i & 1) != 0)
			result = do_cuGraphKernelNodeSetAttribute(destination, (CUkernelNodeAttrID)i, &source->kernel.attributes[i]);
	destination->kernel.launch.cooperative = source->kernel.launch.cooperative;
	return result;
}

// --- copies and fills ------------------------------------------------------------------------

// Resolves a context argument: NULL means the current one.
static CUresult find_context(CUcontext *context) { return *context != NULL ? context_usable(*context) : context_need(context); }

// Checks a copy. Between devices only copies of one dimension are supported.
static CUresult check_copy(const struct target *t, const CUDA_MEMCPY3D *p) {
	struct side to, from;
	if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = copy_sides(t, p, &to, &from);
	if (result != CUDA_SUCCESS && p->Height == 1 && p->Depth == 1 && p->srcMemoryType == CU_MEMORYTYPE_DEVICE && p->dstMemoryType == CU_MEMORYTYPE_DEVICE &&
	    memory_owner(NULL, p->srcDevice + p->srcXInBytes, p->WidthInBytes) != NULL && memory_owner(NULL, p->dstDevice + p->dstXInBytes, p->WidthInBytes) != NULL)
		return CUDA_SUCCESS;
	return result;
}

CUresult copy_set(struct copy_node *c, const CUDA_MEMCPY3D *params, CUcontext context) {
	struct target t = {0};
	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = find_context(&context);
	t.context = context;
	if (result == CUDA_SUCCESS)
		result = context_client(context, &t.client);
	if (result == CUDA_SUCCESS)
		result = check_copy(&t, params);
	if (result != CUDA_SUCCESS)
		return result;
	c->params = *params;
	c->context = context;
	return CUDA_SUCCESS;
}

// As the driver does, accepts any address for a captured fill (anywhere); its launch fails then.
CUresult fill_set(struct fill_node *f, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context, bool anywhere) {
	struct target t = {0};
	if (p == NULL || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || p->width == 0 || p->height == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = find_context(&context);
	t.context = context;
	if (result == CUDA_SUCCESS)
		result = context_client(context, &t.client);
	if (result == CUDA_SUCCESS)
		result = fill_check(&t, p->dst, p->pitch, p->elementSize, p->width, p->height, anywhere);
	if (result != CUDA_SUCCESS)
		return result;
	f->params = *p;
	f->context = context;
	return CUDA_SUCCESS;
}

// An update may change the addresses of a copy, but neither the memory types nor the number of
// dimensions.
bool copy_may_become(const struct copy_node *before, const struct copy_node *after) {
	const CUDA_MEMCPY3D *b = &before->params, *a = &after->params;
	return before->context == after->context && a->srcMemoryType == b->srcMemoryType && a->dstMemoryType == b->dstMemoryType && (a->Height > 1) == (b->Height > 1) && (a->Depth > 1) == (b->Depth > 1);
}

bool fill_may_become(const struct fill_node *before, const struct fill_node *after) {
	return before->context == after->context && (before->params.height > 1) == (after->params.height > 1);
}

static CUresult add_copy(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, const CUDA_MEMCPY3D *params, CUcontext context) {
	CUgraphNode n;
	if (node == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_MEMCPY, dependencies, edges, count, &n);
	return result == CUDA_SUCCESS ? finish(copy_set(&n->copy, params, context), n, node) : result;
}

static CUresult add_fill(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
	CUgraphNode n;
	if (node == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_MEMSET, dependencies, edges, count, &n);
	return result == CUDA_SUCCESS ? finish(fill_set(&n->fill, params, context, false), n, node) : result;
}

CUresult do_cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_MEMCPY3D *params, CUcontext context) {
	return add_copy(node, graph, dependencies, NULL, count, params, context);
}

CUresult do_cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
	return add_fill(node, graph, dependencies, NULL, count, params, context);
}

CUresult do_cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_MEMCPY) || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*params = node->copy.params;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params) {
	return is_type(node, CU_GRAPH_NODE_TYPE_MEMCPY) ? copy_set(&node->copy, params, node->copy.context) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_MEMSET) || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*params = node->fill.params;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params) {
	return is_type(node, CU_GRAPH_NODE_TYPE_MEMSET) ? fill_set(&node->fill, params, node->fill.context, false) : CUDA_ERROR_INVALID_VALUE;
}

// --- functions of the program, events, nothing, and other graphs ---------------------------------

static CUresult add_host(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, const CUDA_HOST_NODE_PARAMS *params) {
	CUgraphNode n;
	if (node == NULL || params == NULL || params->fn == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_HOST, dependencies, edges, count, &n);
	if (result != CUDA_SUCCESS)
		return result;
	n->host = *params;
	*node = n;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_HOST_NODE_PARAMS *params) {
	return add_host(node, graph, dependencies, NULL, count, params);
}

CUresult do_cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_HOST) || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*params = node->host;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_HOST) || params == NULL || params->fn == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	node->host = *params;
	return CUDA_SUCCESS;
}

// --- words -----------------------------------------------------------------------------------------

static CUresult add_words(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
	CUgraphNode n;
	if (node == NULL || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, dependencies, edges, count, &n);
	return result == CUDA_SUCCESS ? finish(words_set(&n->words, params), n, node) : result;
}

CUresult do_cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
	return add_words(node, graph, dependencies, NULL, count, params);
}

CUresult do_cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*params = (CUDA_BATCH_MEM_OP_NODE_PARAMS){node->words.context, node->words.count, node->words.list, 0};
	return CUDA_SUCCESS;
}

CUresult do_cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
	return is_type(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) ? words_set(&node->words, params) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_event(CUgraphNode *node, CUgraph graph, CUgraphNodeType type, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUevent event) {
	CUgraphNode n;
	if (node == NULL || !object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_new(graph, type, dependencies, edges, count, &n);
	if (result != CUDA_SUCCESS)
		return result;
	n->event = event;
	*node = n;
	return CUDA_SUCCESS;
}

static CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent *event) {
	if (!is_type(node, type) || event == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*event = node->event;
	return CUDA_SUCCESS;
}

static CUresult set_event(CUgraphNode node, CUgraphNodeType type, CUevent event) {
	if (!is_type(node, type) || !object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_VALUE;
	node->event = event;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event) {
	return add_event(node, graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD, dependencies, NULL, count, event);
}
CUresult do_cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event) {
	return add_event(node, graph, CU_GRAPH_NODE_TYPE_WAIT_EVENT, dependencies, NULL, count, event);
}
CUresult do_cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event) { return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event); }
CUresult do_cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event) { return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event); }
CUresult do_cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) { return set_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event); }
CUresult do_cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) { return set_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event); }

CUresult do_cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count) {
	return node_new(graph, CU_GRAPH_NODE_TYPE_EMPTY, dependencies, NULL, count, node);
}

// The node gets a copy of the child graph.
static CUresult add_child(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUgraph child) {
	CUgraphNode n;
	CUgraph copy;
	if (node == NULL || !object_is(child, KIND_GRAPH) || !object_is(graph, KIND_GRAPH))
		return CUDA_ERROR_INVALID_VALUE;
	if (child->memory_nodes > 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = graph_copy(child, &copy);
	if (result != CUDA_SUCCESS)
		return result;
	result = node_new(graph, CU_GRAPH_NODE_TYPE_GRAPH, dependencies, edges, count, &n);
	if (result != CUDA_SUCCESS) {
		graph_release(copy);
		return result;
	}
	n->child = copy;
	copy->parent = n;
	*node = n;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraph child) {
	return add_child(node, graph, dependencies, NULL, count, child);
}

CUresult do_cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_GRAPH) || graph == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = node->child;
	return CUDA_SUCCESS;
}

// --- memory ------------------------------------------------------------------------------------

static CUresult add_alloc(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *p) {
	CUgraphNode n;
	if (node == NULL || p == NULL || p->bytesize == 0 || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    p->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
		return CUDA_ERROR_INVALID_VALUE;
	if (object_is(graph, KIND_GRAPH) && graph->parent != NULL)
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, dependencies, edges, count, &n);
	if (result != CUDA_SUCCESS)
		return result;
	struct target t;
	result = graph_memory_target(p->poolProps.location.id, &t);
	if (result == CUDA_SUCCESS)
		result = graph_allocate(graph->id, &t, p->bytesize, &n->memory);
	if (result == CUDA_SUCCESS) {
		graph->memory_nodes++;
		p->dptr = n->memory->address;
	}
	return finish(result, n, node);
}

CUresult free_set(CUgraphNode n, uint64_t graph, CUdeviceptr address) {
	struct graph_memory *m = graph_memory_at(address);
	if (m == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (m->graph == graph && !graph_memory_free_once(m)) {
		graph_memory_release(m);
		return CUDA_ERROR_INVALID_VALUE;
	}
	n->memory = m;
	return CUDA_SUCCESS;
}

static CUresult add_free(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUdeviceptr address) {
	CUgraphNode n;
	if (node == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, dependencies, edges, count, &n);
	if (result != CUDA_SUCCESS)
		return result;
	result = free_set(n, graph->id, address);
	graph->memory_nodes += result == CUDA_SUCCESS;
	return finish(result, n, node);
}

CUresult do_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
	return add_alloc(node, graph, dependencies, NULL, count, params);
}

CUresult do_cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUdeviceptr address) {
	return add_free(node, graph, dependencies, NULL, count, address);
}

CUresult do_cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC) || params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*params = (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, node->memory->client->device}},
		.bytesize = node->memory->size,
		.dptr = node->memory->address,
	};
	return CUDA_SUCCESS;
}

CUresult do_cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address) {
	if (!is_type(node, CU_GRAPH_NODE_TYPE_MEM_FREE) || address == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*address = node->memory->address;
	return CUDA_SUCCESS;
}

// --- nodes of any kind ---------------------------------------------------------------------------

// Refuses, and traces the reason, which the result does not tell.
static CUresult refused(const char *what, const char *why, atomic_flag *told) {
	trace_missing(what, why, told);
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult refused_type(CUgraphNodeType type) {
	static atomic_flag semaphores = ATOMIC_FLAG_INIT;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return refused("a node of a graph for external semaphores", "these are of graphics interfaces, which share memory with a display", &semaphores);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

// Reserved fields must be zero, as the driver requires.
static bool reserved_is_zero(const CUgraphNodeParams *p) { return p->reserved0[0] == 0 && p->reserved0[1] == 0 && p->reserved0[2] == 0 && p->reserved2 == 0; }

// An empty node has no parameters.
static bool parameters_are_zero(const CUgraphNodeParams *p) {
	for (size_t i = 0; i < sizeof p->reserved1 / sizeof *p->reserved1; i++)
		if (p->reserved1[i] != 0)
			return false;
	return true;
}

static CUresult add_conditional(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUDA_CONDITIONAL_NODE_PARAMS *p) {
	struct condition *c = condition_at(p->handle);
	bool sized = p->type == CU_GRAPH_COND_TYPE_IF ? p->size == 1 || p->size == 2 : p->type == CU_GRAPH_COND_TYPE_WHILE ? p->size == 1 : p->type == CU_GRAPH_COND_TYPE_SWITCH && p->size > 0;
	if (node == NULL || c == NULL || !sized || (p->ctx != NULL && p->ctx != c->context))
		return CUDA_ERROR_INVALID_VALUE;
	CUgraph *bodies = calloc(p->size, sizeof *bodies);
	if (bodies == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUgraphNode n;
	CUresult result = node_new(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL, dependencies, edges, count, &n);
	if (result != CUDA_SUCCESS) {
		free(bodies);
		return result;
	}
	n->conditional = (struct conditional_node){c, c->context, p->type, p->size, bodies};
	condition_retain(c, 1);
	for (unsigned i = 0; i < p->size && result == CUDA_SUCCESS; i++) {
		result = graph_new(&bodies[i]);
		if (result == CUDA_SUCCESS)
			bodies[i]->parent = n;
	}
	if (result != CUDA_SUCCESS) {
		node_release(n);
		return result;
	}
	p->phGraph_out = bodies;
	*node = n;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *p) {
	if (p == NULL || !reserved_is_zero(p))
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return add_kernel(node, graph, dependencies, edges, count, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		if (p->memcpy.flags != 0 || p->memcpy.reserved != 0)
			return CUDA_ERROR_INVALID_VALUE;
		return add_copy(node, graph, dependencies, edges, count, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return add_fill(node, graph, dependencies, edges, count, (const CUDA_MEMSET_NODE_PARAMS *)&p->memset, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		return add_host(node, graph, dependencies, edges, count, &p->host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
			static atomic_flag told = ATOMIC_FLAG_INIT;
			return refused("a child graph that moves into its node", "not yet", &told);
		}
		return add_child(node, graph, dependencies, edges, count, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		if (!parameters_are_zero(p))
			return CUDA_ERROR_INVALID_VALUE;
		return node_new(graph, CU_GRAPH_NODE_TYPE_EMPTY, dependencies, edges, count, node);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return add_event(node, graph, CU_GRAPH_NODE_TYPE_WAIT_EVENT, dependencies, edges, count, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return add_event(node, graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD, dependencies, edges, count, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return add_alloc(node, graph, dependencies, edges, count, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return add_free(node, graph, dependencies, edges, count, p->free.dptr);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return add_words(node, graph, dependencies, edges, count, &p->memOp);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return add_conditional(node, graph, dependencies, edges, count, &p->conditional);
	default:
		return refused_type(p->type);
	}
}

CUresult do_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraphNodeParams *params) {
	return do_cuGraphAddNode_v2(node, graph, dependencies, NULL, count, params);
}

CUresult node_set(CUgraphNode n, const CUgraphNodeParams *p) {
	if (p == NULL || !reserved_is_zero(p) || !is_type(n, p->type))
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_set(&n->kernel, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return copy_set(&n->copy, &p->memcpy.copyParams, p->memcpy.copyCtx != NULL ? p->memcpy.copyCtx : n->copy.context);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return fill_set(&n->fill, (const CUDA_MEMSET_NODE_PARAMS *)&p->memset, p->memset.ctx != NULL ? p->memset.ctx : n->fill.context, false);
	case CU_GRAPH_NODE_TYPE_HOST:
		return do_cuGraphHostNodeSetParams(n, &p->host);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return words_set(&n->words, &p->memOp);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return set_event(n, p->type, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return set_event(n, p->type, p->eventRecord.event);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult do_cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) { return object_is(node, KIND_NODE) ? node_set(node, params) : CUDA_ERROR_INVALID_VALUE; }
