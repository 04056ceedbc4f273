// Conditional nodes: graphs that run if, while, or as chosen by a word that kernels set. Layer: graph.
//
// A condition is a word of the client's device memory, and its handle is the address. So it is
// moved, rebuilt and saved like all memory. Kernels set it with cudaGraphSetConditional, which PTX
// declares as an external function. Before the library sends PTX text, it replaces that declaration
// by a definition that stores the word. Machine code is already linked with NVIDIA's function,
// which knows other handles; a graph with a kernel of such an image that gets a handle is refused.
//
// A conditional node is a host function of the library in its lane. When the lane reaches it, the
// host thread reads the word, runs a body on streams of its own, waits, and for a while-node reads
// again. The client keeps its device while it runs, as with all host functions.
#include "graph.h"

#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects the list and the counts; a leaf (README.md)
static struct condition *conditions;

static bool lives(const struct condition *c) { return object_is(c->context, KIND_CONTEXT) && c->context->id == c->context_id; }

// --- conditions ---------------------------------------------------------------------------

void condition_retain(struct condition *c, int nodes) {
	pthread_mutex_lock(&lock);
	c->names++;
	c->nodes += nodes;
	pthread_mutex_unlock(&lock);
}

void condition_release(struct condition *c, int nodes) {
	pthread_mutex_lock(&lock);
	c->nodes -= nodes;
	if (--c->names > 0) {
		pthread_mutex_unlock(&lock);
		return;
	}
	struct condition **at = &conditions;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	pthread_mutex_unlock(&lock);
	if (lives(c) && atomic_load(&shim_state) == SHIM_READY)
		memory_free(c->client, c->word);
	free(c);
}

struct condition *condition_at(uint64_t handle) {
	pthread_mutex_lock(&lock);
	struct condition *c = conditions;
	while (c != NULL && !(c->word == handle && lives(c)))
		c = c->next;
	pthread_mutex_unlock(&lock);
	return c;
}

CUresult with_cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context, unsigned int initial, unsigned int flags) {
	if (!object_is(graph, KIND_GRAPH) || (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct target t = {.context = context};
	CUresult result = context != NULL ? context_usable(context) : context_need(&t.context);
	if (result == CUDA_SUCCESS)
		result = context_client(t.context, &t.client);
	if (result != CUDA_SUCCESS)
		return result;
	struct condition *c = calloc(1, sizeof *c);
	if (c == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = memory_allocate(&t, sizeof(uint32_t), &c->word);
	if (result != CUDA_SUCCESS) {
		free(c);
		return result;
	}
	*c = (struct condition){NULL, c->word, t.client, t.context, t.context->id, graph->id, initial, flags != 0, 1, 0};
	pthread_mutex_lock(&lock);
	c->next = conditions;
	conditions = c;
	pthread_mutex_unlock(&lock);
	*handle = c->word;
	return CUDA_SUCCESS;
}

void conditions_forget_graph(uint64_t graph) {
	for (;;) {
		pthread_mutex_lock(&lock);
		struct condition *c = conditions;
		while (c != NULL && c->graph != graph)
			c = c->next;
		if (c != NULL)
			c->graph = 0;
		pthread_mutex_unlock(&lock);
		if (c == NULL)
			return;
		condition_release(c, 0);
	}
}

void conditions_forget_all(void) {
	pthread_mutex_init(&lock, NULL);
	conditions = NULL;
}

// Whether a graph has a condition that no node uses.
bool condition_is_unused(CUgraph graph) {
	pthread_mutex_lock(&lock);
	struct condition *c = conditions;
	while (c != NULL && !(c->graph == graph->id && c->nodes == 0))
		c = c->next;
	pthread_mutex_unlock(&lock);
	return c != NULL;
}

// --- what a graph may have ----------------------------------------------------------------------

// Whether a kernel gets a condition's handle as a parameter, and its module cannot set it.
static bool cannot_set(CUgraphNode n) {
	const struct kernel_node *k = &n->kernel;
	if (k->function->module->sets_conditions)
		return false;
	for (uint32_t i = 0; i + 8 <= k->function->param_size; i += 8) {
		uint64_t word;
		memcpy(&word, k->bytes + i, sizeof word);
		if (word != 0 && condition_at(word) != NULL)
			return true;
	}
	return false;
}

CUresult condition_check_kernel(CUgraphNode n) {
	static atomic_flag told = ATOMIC_FLAG_INIT;
	pthread_mutex_lock(&lock);
	bool any = conditions != NULL;
	pthread_mutex_unlock(&lock);
	return any && cannot_set(n) ? trace_missing("cuGraphInstantiate", "a kernel gets the handle of a condition, and its module is no PTX text that declares cudaGraphSetConditional: machine code sets conditions of NVIDIA's driver only", &told)
	                            : CUDA_SUCCESS;
}

bool condition_takes(CUgraphNodeType type) {
	return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EMPTY || type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

// Sets the conditions of a graph, and of the graphs inside, to their initial values.
CUresult conditions_assign(CUgraph graph, const struct target *t) {
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++) {
		CUgraphNode n = graph->nodes[i];
		if (n->type == CU_GRAPH_NODE_TYPE_GRAPH)
			result = conditions_assign(n->child, t);
		if (n->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		const struct condition *c = n->conditional.condition;
		if (c->assigned) {
			struct wire_fill message = {c->word, 4, c->initial, 4, 1, 1, t->stream};
			result = c->client == t->client ? POST(t->client, FILL, fill, &message, NO_DATA) : CUDA_ERROR_NOT_SUPPORTED;
		}
		for (unsigned k = 0; k < n->conditional.size && result == CUDA_SUCCESS; k++)
			result = conditions_assign(n->conditional.bodies[k], t);
	}
	return result;
}
