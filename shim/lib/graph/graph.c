// Graphs: nodes, dependencies, copies, and the queries of programs. Layer: graph.
#include "graph.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t ids, marks;

uint64_t graph_mark(void) { return atomic_fetch_add(&marks, 1) + 1; }

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

void edges_remove(struct edges *edges, size_t at) {
	edges->count--;
	memmove(edges->list + at, edges->list + at + 1, (edges->count - at) * sizeof *edges->list);
}

bool edge_is(CUgraphEdgeData a, CUgraphEdgeData b) { return a.from_port == b.from_port && a.to_port == b.to_port && a.type == b.type; }

// The index of a node in a list; the list's length if it is not there.
size_t edges_find(const struct edges *edges, CUgraphNode node) {
	size_t i = 0;
	while (i < edges->count && edges->list[i].node != node)
		i++;
	return i;
}

bool node_depends(CUgraphNode from, CUgraphNode to) {
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

void node_independ(CUgraphNode from, CUgraphNode to) {
	size_t out = edges_find(&from->out, to), in = edges_find(&to->in, from);
	if (out < from->out.count)
		edges_remove(&from->out, out);
	if (in < to->in.count)
		edges_remove(&to->in, in);
}

// Programmatic edges between kernels allow the second to begin before the first has ended. Here it
// always begins afterwards, which is correct.
bool edge_makes_sense(CUgraphNode from, CUgraphEdgeData d) {
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
		if (edges != NULL && !edge_makes_sense(d, edges[i]))
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

CUgraphNode node_detached(CUgraphNodeType type) {
	CUgraphNode n = object_new(KIND_NODE, sizeof *n);
	if (n != NULL)
		n->type = type;
	return n;
}

static bool node_join(CUgraph graph, CUgraphNode n) {
	n->id = n->origin = atomic_fetch_add(&ids, 1) + 1;
	n->graph = graph;
	return graph_append(graph, n);
}

static void node_unlink(CUgraphNode n) {
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
}

CUresult node_attach(CUgraph graph, CUgraphNode n, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count) {
	CUresult result = check_dependencies(graph, dependencies, edges, count);
	if (result != CUDA_SUCCESS)
		return result;
	bool enough = node_join(graph, n);
	for (size_t i = 0; i < count && enough; i++)
		if (!node_depend(dependencies[i], n, edges != NULL ? edges[i] : (CUgraphEdgeData){0})) {
			node_unlink(n);
			enough = false;
		}
	if (!enough)
		n->graph = NULL;
	return enough ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult node_new(CUgraph graph, CUgraphNodeType type, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUgraphNode *node) {
	if (node == NULL || !is_graph(graph))
		return CUDA_ERROR_INVALID_VALUE;
	CUgraphNode n = node_detached(type);
	CUresult result = n != NULL ? node_attach(graph, n, dependencies, edges, count) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		*node = n;
	else if (n != NULL)
		node_end(n);
	return result;
}

// --- what nodes own ----------------------------------------------------------------------

void kernel_free(struct kernel_node *k) {
	free(k->bytes);
	free(k->pointers);
	free(k->attributes);
	k->bytes = NULL;
	k->pointers = NULL;
	k->attributes = NULL;
}

// Whether the module of a node's function is still loaded.
bool kernel_is_there(const struct kernel_node *k) { return object_is(k->function, KIND_FUNCTION) && k->function->object.number == k->number; }

// Attributes stay what they are.
CUresult kernel_set_bytes(struct kernel_node *k, CUfunction f, CUcontext context, const struct launch *launch, const uint8_t *bytes) {
	uint8_t *copy = malloc(f->param_size + 1);
	void **pointers = malloc((f->params + 1) * sizeof *pointers);
	if (copy == NULL || pointers == NULL) {
		free(copy);
		free(pointers);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (f->param_size > 0)
		memcpy(copy, bytes, f->param_size);
	for (uint32_t i = 0; i < f->params; i++)
		pointers[i] = copy + f->layout[i][0];
	free(k->bytes);
	free(k->pointers);
	k->function = f;
	k->number = f->object.number;
	k->context = context;
	k->launch = *launch;
	k->bytes = copy;
	k->pointers = pointers;
	return CUDA_SUCCESS;
}

static CUresult kernel_copy(struct kernel_node *to, const struct kernel_node *from) {
	CUlaunchAttributeValue *attributes = NULL;
	if (from->attributes != NULL) {
		attributes = malloc(KERNEL_ATTRIBUTES * sizeof *attributes);
		if (attributes == NULL)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(attributes, from->attributes, KERNEL_ATTRIBUTES * sizeof *attributes);
	}
	if (!kernel_is_there(from)) {
		free(attributes);
		return CUDA_ERROR_INVALID_VALUE; // its module has gone
	}
	CUresult result = kernel_set_bytes(to, from->function, from->context, &from->launch, from->bytes);
	if (result != CUDA_SUCCESS) {
		free(attributes);
		return result;
	}
	free(to->attributes);
	to->attributes = attributes;
	to->attributes_set = from->attributes_set;
	return CUDA_SUCCESS;
}

CUresult words_set(struct words_node *w, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p) {
	if (p == NULL || p->flags != 0 || (p->count > 0 && p->paramArray == NULL))
		return CUDA_ERROR_INVALID_VALUE;
	if (!object_is(p->ctx, KIND_CONTEXT))
		return p->ctx == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	CUresult result = words_check(p->count, p->paramArray);
	if (result != CUDA_SUCCESS)
		return result;
	CUstreamBatchMemOpParams *list = malloc((p->count + 1) * sizeof *list);
	if (list == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (p->count > 0)
		memcpy(list, p->paramArray, p->count * sizeof *list);
	free(w->list);
	*w = (struct words_node){p->ctx, p->count, list};
	return CUDA_SUCCESS;
}

static void conditional_free(struct conditional_node *c) {
	for (unsigned i = 0; i < c->size; i++)
		if (c->bodies[i] != NULL)
			graph_release(c->bodies[i]);
	free(c->bodies);
	if (c->condition != NULL)
		condition_release(c->condition, 1);
	*c = (struct conditional_node){0};
}

static CUresult conditional_copy(CUgraphNode to, const struct conditional_node *from) {
	struct conditional_node c = *from;
	c.bodies = calloc(c.size, sizeof *c.bodies);
	if (c.bodies == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	condition_retain(c.condition, 1);
	CUresult result = CUDA_SUCCESS;
	for (unsigned i = 0; i < c.size && result == CUDA_SUCCESS; i++) {
		result = graph_copy(from->bodies[i], &c.bodies[i]);
		if (result == CUDA_SUCCESS)
			c.bodies[i]->parent = to;
	}
	conditional_free(&to->conditional);
	if (result == CUDA_SUCCESS)
		to->conditional = c;
	else
		conditional_free(&c);
	return result;
}

// Copies the parameters of another node of the same type.
CUresult node_assign(CUgraphNode to, CUgraphNode from) {
	CUgraph copy;
	CUresult result;
	switch (from->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_copy(&to->kernel, &from->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		to->copy = from->copy;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		to->fill = from->fill;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_HOST:
		to->host = from->host;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return words_set(&to->words, &(CUDA_BATCH_MEM_OP_NODE_PARAMS){from->words.context, from->words.count, from->words.list, 0});
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		to->event = from->event;
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		if (to->memory == NULL) {
			to->memory = from->memory;
			graph_memory_retain(to->memory);
			to->graph->memory_nodes++;
		}
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return conditional_copy(to, &from->conditional);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		result = graph_copy(from->child, &copy);
		if (result != CUDA_SUCCESS)
			return result;
		if (to->child != NULL)
			graph_release(to->child);
		to->child = copy;
		copy->parent = to;
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
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
			if (n->graph != NULL)
				n->graph->memory_nodes--;
		}
		break;
	default:
		break;
	}
}

void node_end(CUgraphNode n) {
	node_empty(n);
	free(n->in.list);
	free(n->out.list);
	object_free(n);
}

void node_release(CUgraphNode n) {
	node_unlink(n);
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
	CUgraphNode n = node_detached(from->type);
	if (n == NULL || !node_join(into, n)) {
		if (n != NULL)
			object_free(n);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
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
CUgraphNode graph_find_origin(CUgraph copy, uint64_t origin) {
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
		return graph_find_origin(copy, original->id);
	if (of->parent == NULL)
		return NULL;
	CUgraphNode parent = graph_find(copy, of->parent);
	if (parent == NULL)
		return NULL;
	bool conditional = parent->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
	CUgraph *inner = conditional ? parent->conditional.bodies : &parent->child;
	for (unsigned i = 0; i < (conditional ? parent->conditional.size : 1); i++)
		if (inner[i]->origin == of->id)
			return graph_find_origin(inner[i], original->id);
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

// --- dependencies ------------------------------------------------------------------------

// --- lists -------------------------------------------------------------------------------

// --- a drawing for Graphviz ----------------------------------------------------------------
