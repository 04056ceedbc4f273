// Graphs: nodes, dependencies, copies, and the queries of programs. Layer: calls (shim.h).
#include "graph.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t ids, marks;

uint64_t graph_mark(void) { return atomic_fetch_add(&marks, 1) + 1; }

static bool is_graph(CUgraph g) { return object_is(g, KIND_GRAPH); }
static bool is_node(CUgraphNode n) { return object_is(n, KIND_NODE); }

// --- edges -----------------------------------------------------------------------------

bool edges_add(struct edges *edges, CUgraphNode node, CUgraphEdgeData data) {
	if (edges->count == edges->room) {
		size_t room = edges->room > 0 ? 2 * edges->room : 2;
		struct edge *more = realloc(edges->list, room * sizeof *more);
		if (more == NULL)
			return false;
		edges->list = more;
		edges->room = room;
	}
	edges->list[edges->count++] = (struct edge){node, data};
	return true;
}

static void edges_remove(struct edges *edges, size_t at) {
	edges->count--;
	memmove(edges->list + at, edges->list + at + 1, (edges->count - at) * sizeof *edges->list);
}

static bool same_data(CUgraphEdgeData a, CUgraphEdgeData b) { return a.from_port == b.from_port && a.to_port == b.to_port && a.type == b.type; }

// The index of a node in a list; the list's length if it is not there.
static size_t edges_find(const struct edges *edges, CUgraphNode node) {
	size_t i = 0;
	while (i < edges->count && edges->list[i].node != node)
		i++;
	return i;
}

static bool depends(CUgraphNode from, CUgraphNode to) {
	if (from->out.count < to->in.count)
		return edges_find(&from->out, to) < from->out.count;
	return edges_find(&to->in, from) < to->in.count;
}

bool node_depend(CUgraphNode from, CUgraphNode to, CUgraphEdgeData data) {
	if (!edges_add(&from->out, to, data))
		return false;
	if (edges_add(&to->in, from, data))
		return true;
	from->out.count--;
	return false;
}

static void node_independ(CUgraphNode from, CUgraphNode to) {
	size_t out = edges_find(&from->out, to), in = edges_find(&to->in, from);
	if (out < from->out.count)
		edges_remove(&from->out, out);
	if (in < to->in.count)
		edges_remove(&to->in, in);
}

// Programmatic edges between kernels allow the second to begin before the first has ended. Here it
// always begins afterwards, which is correct.
static bool data_makes_sense(CUgraphNode from, CUgraphEdgeData d) {
	static const unsigned char none[sizeof d.reserved];
	if (memcmp(d.reserved, none, sizeof none) != 0 || d.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC || d.to_port != 0)
		return false;
	if (d.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
		return from->type == CU_GRAPH_NODE_TYPE_KERNEL && (d.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC || d.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
	return d.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
}

// --- nodes -----------------------------------------------------------------------------

static CUresult check_dependencies(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count) {
	if (count > 0 && dependencies == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t mark = graph_mark();
	for (size_t i = 0; i < count; i++) {
		CUgraphNode d = dependencies[i];
		if (!is_node(d) || d->graph != graph || d->mark == mark)
			return CUDA_ERROR_INVALID_VALUE;
		d->mark = mark;
		if (edges != NULL && !data_makes_sense(d, edges[i]))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static bool graph_append(CUgraph graph, CUgraphNode node) {
	if (graph->count == graph->room) {
		size_t room = graph->room > 0 ? 2 * graph->room : 8;
		CUgraphNode *more = realloc(graph->nodes, room * sizeof *more);
		if (more == NULL)
			return false;
		graph->nodes = more;
		graph->room = room;
	}
	node->place = graph->count;
	graph->nodes[graph->count++] = node;
	return true;
}

static CUgraphNode node_make(CUgraph graph, CUgraphNodeType type) {
	CUgraphNode n = object_new(KIND_NODE, sizeof *n);
	if (n == NULL)
		return NULL;
	n->graph = graph;
	n->id = n->origin = atomic_fetch_add(&ids, 1) + 1;
	n->type = type;
	if (graph_append(graph, n))
		return n;
	object_free(n);
	return NULL;
}

CUresult node_new(CUgraph graph, CUgraphNodeType type, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUgraphNode *node) {
	if (node == NULL || !is_graph(graph))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = check_dependencies(graph, dependencies, edges, count);
	if (result != CUDA_SUCCESS)
		return result;
	CUgraphNode n = node_make(graph, type);
	if (n == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++)
		if (!node_depend(dependencies[i], n, edges != NULL ? edges[i] : (CUgraphEdgeData){0})) {
			node_release(n);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	*node = n;
	return CUDA_SUCCESS;
}

// Frees the parameters of a node.
static void node_empty(CUgraphNode n) {
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		kernel_free(&n->kernel);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (n->child != NULL)
			graph_release(n->child);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		free(n->words.list);
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		conditional_free(&n->conditional);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		if (n->memory != NULL) {
			graph_memory_release(n->memory);
			n->graph->memory_nodes--;
		}
		break;
	default:
		break;
	}
}

static void node_end(CUgraphNode n) {
	node_empty(n);
	free(n->in.list);
	free(n->out.list);
	object_free(n);
}

void node_release(CUgraphNode n) {
	CUgraph graph = n->graph;
	for (size_t i = 0; i < n->in.count; i++) {
		struct edges *out = &n->in.list[i].node->out;
		size_t at = edges_find(out, n);
		if (at < out->count)
			edges_remove(out, at);
	}
	for (size_t i = 0; i < n->out.count; i++) {
		struct edges *in = &n->out.list[i].node->in;
		size_t at = edges_find(in, n);
		if (at < in->count)
			edges_remove(in, at);
	}
	size_t at = n->place;
	if (at >= graph->count || graph->nodes[at] != n) { // nodes before it were removed
		graph_number(graph);
		at = n->place;
	}
	graph->count--;
	memmove(graph->nodes + at, graph->nodes + at + 1, (graph->count - at) * sizeof *graph->nodes);
	node_end(n);
}

// --- graphs ----------------------------------------------------------------------------

CUresult graph_new(CUgraph *graph) {
	CUgraph g = object_new(KIND_GRAPH, sizeof *g);
	if (g == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->id = g->origin = atomic_fetch_add(&ids, 1) + 1;
	*graph = g;
	return CUDA_SUCCESS;
}

void graph_release(CUgraph g) {
	for (size_t i = 0; i < g->count; i++)
		node_end(g->nodes[i]);
	free(g->nodes);
	conditions_forget_graph(g->id);
	user_references_release(g->objects);
	object_free(g);
}

void graph_number(CUgraph graph) {
	for (size_t i = 0; i < graph->count; i++)
		graph->nodes[i]->place = i;
}

static CUresult node_copy(CUgraph into, CUgraphNode from) {
	CUgraphNode n = node_make(into, from->type);
	if (n == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	n->origin = from->id;
	n->disabled = from->disabled;
	return node_assign(n, from);
}

CUresult graph_copy(CUgraph original, CUgraph *copy) {
	CUgraph g;
	CUresult result = graph_new(&g);
	if (result != CUDA_SUCCESS)
		return result;
	g->origin = original->id;
	graph_number(original);
	for (size_t i = 0; i < original->count && result == CUDA_SUCCESS; i++)
		result = node_copy(g, original->nodes[i]);
	for (size_t i = 0; i < original->count && result == CUDA_SUCCESS; i++) {
		const struct edges *in = &original->nodes[i]->in;
		for (size_t k = 0; k < in->count && result == CUDA_SUCCESS; k++)
			if (!node_depend(g->nodes[in->list[k].node->place], g->nodes[i], in->list[k].data))
				result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result == CUDA_SUCCESS)
		result = user_references_copy(original->objects, &g->objects);
	if (result != CUDA_SUCCESS) {
		graph_release(g);
		return result;
	}
	*copy = g;
	return CUDA_SUCCESS;
}

// Binary search: nodes are copied in the order of their originals, so origins ascend.
static CUgraphNode find_origin(CUgraph copy, uint64_t origin) {
	size_t low = 0, high = copy->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (copy->nodes[middle]->origin < origin)
			low = middle + 1;
		else
			high = middle;
	}
	return low < copy->count && copy->nodes[low]->origin == origin ? copy->nodes[low] : NULL;
}

CUgraphNode graph_find(CUgraph copy, CUgraphNode original) {
	CUgraph of = original->graph;
	if (copy->origin == of->id)
		return find_origin(copy, original->id);
	if (of->parent == NULL)
		return NULL;
	CUgraphNode parent = graph_find(copy, of->parent);
	if (parent == NULL)
		return NULL;
	bool conditional = parent->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
	CUgraph *inner = conditional ? parent->conditional.bodies : &parent->child;
	for (unsigned i = 0; i < (conditional ? parent->conditional.size : 1); i++)
		if (inner[i]->origin == of->id)
			return find_origin(inner[i], original->id);
	return NULL;
}

bool graph_sort(CUgraph graph, CUgraphNode **sorted) {
	size_t *missing = calloc(graph->count + 1, sizeof *missing), first = 0, last = 0;
	CUgraphNode *list = malloc((graph->count + 1) * sizeof *list);
	if (missing == NULL || list == NULL) {
		free(missing);
		free(list);
		*sorted = NULL;
		return true; // out of memory: the caller finds *sorted NULL
	}
	graph_number(graph);
	for (size_t i = 0; i < graph->count; i++) {
		missing[i] = graph->nodes[i]->in.count;
		if (missing[i] == 0)
			list[last++] = graph->nodes[i];
	}
	for (; first < last; first++)
		for (size_t k = 0; k < list[first]->out.count; k++) {
			CUgraphNode next = list[first]->out.list[k].node;
			if (--missing[next->place] == 0)
				list[last++] = next;
		}
	free(missing);
	*sorted = list;
	if (last == graph->count)
		return true;
	free(list);
	*sorted = NULL;
	return false;
}

// --- what programs do with graphs --------------------------------------------------------

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
	CUgraphNode found = find_origin(clone, original->id);
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

// --- dependencies ------------------------------------------------------------------------

static CUresult check_pair(CUgraph graph, CUgraphNode from, CUgraphNode to) {
	return is_node(from) && is_node(to) && from->graph == graph && to->graph == graph && from != to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count) {
	if (!is_graph(graph) || (count > 0 && (from == NULL || to == NULL)))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = check_pair(graph, from[i], to[i]);
		if (result == CUDA_SUCCESS && (depends(from[i], to[i]) || (edges != NULL && !data_makes_sense(from[i], edges[i]))))
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
		if (result == CUDA_SUCCESS && (at == to[i]->in.count || !same_data(to[i]->in.list[at].data, edges != NULL ? edges[i] : (CUgraphEdgeData){0})))
			result = CUDA_ERROR_INVALID_VALUE;
		if (result != CUDA_SUCCESS)
			return result;
	}
	for (size_t i = 0; i < count; i++)
		node_independ(from[i], to[i]);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) { return do_cuGraphRemoveDependencies_v2(graph, from, to, NULL, count); }

// --- lists -------------------------------------------------------------------------------

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

// --- a drawing for Graphviz ----------------------------------------------------------------

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
