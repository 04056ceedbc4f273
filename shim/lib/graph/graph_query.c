// The calls on whole graphs: their life, their edges, and what programs ask of them. Layer: graph.
#include "graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

CUresult do_cuGraphCreate(CUgraph *graph, unsigned int flags) {
	return graph != NULL && flags == 0 ? graph_new(graph) : CUDA_ERROR_INVALID_VALUE;
}

// A child graph ends with its node, and the graph of a capture cannot be destroyed before that ends.
CUresult do_cuGraphDestroy(CUgraph graph) {
	if (!is_graph(graph) || graph->parent != NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (graph->captured)
		return CUDA_ERROR_ILLEGAL_STATE;
	graph_release(graph);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphDestroyNode(CUgraphNode node) {
	if (!is_node(node))
		return CUDA_ERROR_INVALID_VALUE;
	if (node->graph->memory_nodes > 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	node_release(node);
	return CUDA_SUCCESS;
}

CUresult with_cuGraphClone(CUgraph *clone, CUgraph original) {
	if (!is_graph(original))
		return CUDA_ERROR_INVALID_VALUE;
	return original->memory_nodes == 0 ? graph_copy(original, clone) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult with_cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone) {
	if (!is_node(original) || !is_graph(clone) || clone->origin != original->graph->id || clone == original->graph)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphNode found = graph_find_origin(clone, original->id);
	if (found == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*node = found;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
	if (!is_node(node) || type == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->type;
	return CUDA_SUCCESS;
}

static CUresult check_pair(CUgraph graph, CUgraphNode from, CUgraphNode to) {
	return is_node(from) && is_node(to) && from->graph == graph && to->graph == graph && from != to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count) {
	if (!is_graph(graph) || (count > 0 && (from == NULL || to == NULL)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = check_pair(graph, from[i], to[i]);
		if (result == CUDA_SUCCESS && (node_depends(from[i], to[i]) || (edges != NULL && !edge_makes_sense(from[i], edges[i]))))
			result = CUDA_ERROR_INVALID_VALUE;
		if (result != CUDA_SUCCESS)
			return result;
	}
	for (size_t i = 0; i < count; i++)
		if (!node_depend(from[i], to[i], edges != NULL ? edges[i] : (CUgraphEdgeData){0}))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) { return do_cuGraphAddDependencies_v2(graph, from, to, NULL, count); }

CUresult do_cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count) {
	if (!is_graph(graph) || (count > 0 && (from == NULL || to == NULL)))
		return CUDA_ERROR_INVALID_VALUE;
	if (graph->memory_nodes > 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < count; i++) {
		CUresult result = check_pair(graph, from[i], to[i]);
		size_t at = result == CUDA_SUCCESS ? edges_find(&to[i]->in, from[i]) : 0;
		if (result == CUDA_SUCCESS && (at == to[i]->in.count || !edge_is(to[i]->in.list[at].data, edges != NULL ? edges[i] : (CUgraphEdgeData){0})))
			result = CUDA_ERROR_INVALID_VALUE;
		if (result != CUDA_SUCCESS)
			return result;
	}
	for (size_t i = 0; i < count; i++)
		node_independ(from[i], to[i]);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) { return do_cuGraphRemoveDependencies_v2(graph, from, to, NULL, count); }

// Lists are copied as far as the program has room; the rest of its room is filled with NULL, and
// its count becomes the number written. If the program passes no list, the count becomes the number
// there is.
struct listing {
	CUgraphNode *first, *second;
	CUgraphEdgeData *edges;
	size_t room, count;
	bool lost; // edges have data that the caller has given no room for
};

static void list_one(struct listing *l, CUgraphNode first, CUgraphNode second, CUgraphEdgeData data) {
	size_t at = l->count++;
	l->lost |= l->first != NULL && l->edges == NULL && (data.from_port | data.to_port | data.type) != 0;
	if (at >= l->room)
		return;
	if (l->first != NULL)
		l->first[at] = first;
	if (l->second != NULL)
		l->second[at] = second;
	if (l->edges != NULL)
		l->edges[at] = data;
}

static CUresult list_end(struct listing *l, size_t *count) {
	if (l->lost)
		return CUDA_ERROR_LOSSY_QUERY;
	for (size_t i = l->count; i < l->room && l->first != NULL; i++) {
		l->first[i] = NULL;
		if (l->second != NULL)
			l->second[i] = NULL;
	}
	*count = l->first == NULL || l->count < l->room ? l->count : l->room;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
	if (!is_graph(graph) || count == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	struct listing l = {.first = nodes, .room = nodes != NULL ? *count : 0};
	for (size_t i = 0; i < graph->count; i++)
		list_one(&l, graph->nodes[i], NULL, (CUgraphEdgeData){0});
	return list_end(&l, count);
}

CUresult do_cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
	if (!is_graph(graph) || count == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	struct listing l = {.first = nodes, .room = nodes != NULL ? *count : 0};
	for (size_t i = 0; i < graph->count; i++)
		if (graph->nodes[i]->in.count == 0)
			list_one(&l, graph->nodes[i], NULL, (CUgraphEdgeData){0});
	return list_end(&l, count);
}

CUresult do_cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count) {
	if (!is_graph(graph) || count == NULL || (from == NULL) != (to == NULL) || (from == NULL && edges != NULL))
		return CUDA_ERROR_INVALID_VALUE;
	struct listing l = {.first = from, .second = to, .edges = edges, .room = from != NULL ? *count : 0};
	for (size_t i = 0; i < graph->count; i++) {
		const struct edges *out = &graph->nodes[i]->out;
		for (size_t k = 0; k < out->count; k++)
			list_one(&l, graph->nodes[i], out->list[k].node, out->list[k].data);
	}
	return list_end(&l, count);
}

CUresult do_cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) { return do_cuGraphGetEdges_v2(graph, from, to, NULL, count); }

static CUresult list_edges(const struct edges *list, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count) {
	if (count == NULL || (nodes == NULL && edges != NULL))
		return CUDA_ERROR_INVALID_VALUE;
	struct listing l = {.first = nodes, .edges = edges, .room = nodes != NULL ? *count : 0};
	for (size_t i = 0; i < list->count; i++)
		list_one(&l, list->list[i].node, NULL, list->list[i].data);
	return list_end(&l, count);
}

CUresult do_cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges, size_t *count) {
	return is_node(node) ? list_edges(&node->in, dependencies, edges, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count) { return do_cuGraphNodeGetDependencies_v2(node, dependencies, NULL, count); }

CUresult do_cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependents, CUgraphEdgeData *edges, size_t *count) {
	return is_node(node) ? list_edges(&node->out, dependents, edges, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependents, size_t *count) { return do_cuGraphNodeGetDependentNodes_v2(node, dependents, NULL, count); }

// What is said of a node: lines of its label, each as far as the flags ask for it.
static void print_kernel(FILE *f, const struct kernel_node *k, unsigned flags) {
	bool there = object_is(k->function, KIND_FUNCTION) && k->function->object.number == k->number;
	fprintf(f, "\\n%s", there ? k->function->name : "");
	if ((flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) != 0) {
		const struct launch *l = &k->launch;
		fprintf(f, "\\ngrid %u %u %u\\nblock %u %u %u\\nshared %u", l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared);
		for (uint32_t i = 0; there && i < k->function->params; i++) {
			fprintf(f, "\\nparam %u ", i);
			for (uint32_t n = k->function->layout[i][1]; n > 0; n--) // as a number is written
				fprintf(f, "%02x", k->bytes[k->function->layout[i][0] + n - 1]);
		}
	}
	if ((flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES)) != 0) {
		fprintf(f, "\\ncooperative %d", k->launch.cooperative);
		for (unsigned i = 0; i < KERNEL_ATTRIBUTES; i++)
			if ((k->attributes_set >> i & 1) != 0)
				fprintf(f, "\\nattribute %u", i);
	}
}

static void print_side(FILE *f, const char *name, CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t pitch) {
	static const char *const types[] = {"?", "host", "device", "array", "unified"};
	unsigned long long at = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : type == CU_MEMORYTYPE_ARRAY ? (uintptr_t)array : device;
	fprintf(f, "\\n%s %s 0x%llx pitch %zu", name, (unsigned)type < 5 ? types[type] : "?", at, pitch);
}

static void print_params(FILE *f, CUgraphNode n, unsigned flags) {
#define WANTED(what) ((flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | CU_GRAPH_DEBUG_DOT_FLAGS_##what)) != 0)
	if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) != 0)
		fprintf(f, "\\nnode %p", (void *)n);
	if (n->type == CU_GRAPH_NODE_TYPE_KERNEL)
		print_kernel(f, &n->kernel, flags);
	if (n->type == CU_GRAPH_NODE_TYPE_MEMCPY && WANTED(MEMCPY_NODE_PARAMS)) {
		const CUDA_MEMCPY3D *p = &n->copy.params;
		print_side(f, "from", p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcPitch);
		print_side(f, "to", p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstPitch);
		fprintf(f, "\\n%zu x %zu x %zu", p->WidthInBytes, p->Height, p->Depth);
	}
	if (n->type == CU_GRAPH_NODE_TYPE_MEMSET && WANTED(MEMSET_NODE_PARAMS)) {
		const CUDA_MEMSET_NODE_PARAMS *p = &n->fill.params;
		fprintf(f, "\\nto 0x%llx pitch %zu\\nvalue %u of %u bytes\\n%zu x %zu", (unsigned long long)p->dst, p->pitch, p->value, p->elementSize, p->width, p->height);
	}
	if (n->type == CU_GRAPH_NODE_TYPE_HOST && WANTED(HOST_NODE_PARAMS))
		fprintf(f, "\\nfunction %p\\ndata %p", (void *)(uintptr_t)n->host.fn, n->host.userData);
	if ((n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) && WANTED(EVENT_NODE_PARAMS))
		fprintf(f, "\\nevent %p", (void *)n->event);
	if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && WANTED(MEM_ALLOC_NODE_PARAMS))
		fprintf(f, "\\n%zu bytes at 0x%llx", n->memory->size, (unsigned long long)n->memory->address);
	if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE && WANTED(MEM_FREE_NODE_PARAMS))
		fprintf(f, "\\nat 0x%llx", (unsigned long long)n->memory->address);
	if (n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && WANTED(CONDITIONAL_NODE_PARAMS)) {
		static const char *const kinds[] = {"if", "while", "switch"};
		fprintf(f, "\\n%s, %u graphs", kinds[n->conditional.type], n->conditional.size);
	}
#undef WANTED
}

static void print_edges(FILE *f, CUgraph graph, unsigned cluster, unsigned flags) {
	for (size_t i = 0; i < graph->count; i++)
		for (size_t k = 0; k < graph->nodes[i]->out.count; k++) {
			const struct edge *e = &graph->nodes[i]->out.list[k];
			fprintf(f, "\"graph_%u_node_%zu\" -> \"graph_%u_node_%zu\"", cluster, i, cluster, e->node->place);
			if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO) != 0 && (e->data.type | e->data.from_port) != 0)
				fprintf(f, "[label=\"type %u from port %u\"]", e->data.type, e->data.from_port);
			fprintf(f, ";\n");
		}
}

static void print_nodes(FILE *f, CUgraph graph, unsigned cluster, unsigned *clusters, unsigned flags) {
	static const char *const names[] = {"KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT_EVENT", "EVENT_RECORD", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT", "MEM_ALLOC", "MEM_FREE", "BATCH_MEM_OP", "CONDITIONAL"};
	fprintf(f, "subgraph cluster_%u {\nlabel=\"graph_%u\" graph[style=\"dashed\"];\n", cluster, cluster);
	graph_number(graph);
	for (size_t i = 0; i < graph->count; i++) {
		fprintf(f, "\"graph_%u_node_%zu\"[label=\"%zu\\n%s", cluster, i, i, names[graph->nodes[i]->type]);
		print_params(f, graph->nodes[i], flags);
		fprintf(f, "\"];\n");
	}
	print_edges(f, graph, cluster, flags);
	for (size_t i = 0; i < graph->count; i++) {
		CUgraphNode n = graph->nodes[i];
		if (n->type == CU_GRAPH_NODE_TYPE_GRAPH)
			print_nodes(f, n->child, ++*clusters, clusters, flags);
		for (unsigned k = 0; n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && k < n->conditional.size; k++)
			print_nodes(f, n->conditional.bodies[k], ++*clusters, clusters, flags);
	}
	fprintf(f, "}\n");
}

CUresult do_cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags) {
	if (!is_graph(graph) || path == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	FILE *f = fopen(path, "we");
	if (f == NULL)
		return CUDA_ERROR_OPERATING_SYSTEM;
	unsigned clusters = 1;
	fprintf(f, "digraph dot {\n");
	print_nodes(f, graph, 1, &clusters, flags);
	fprintf(f, "}\n");
	return fclose(f) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
