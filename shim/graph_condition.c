// Conditional nodes: graphs that run if, while, or as chosen by a word that kernels set. Layer: calls
// (shim.h).
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
#include "graph_plan.h"

#include <stdlib.h>

static const char set_conditional[] = "cudaGraphSetConditional";

struct condition {
	struct condition *next;
	CUdeviceptr word;
	struct client *client;
	CUcontext context;
	uint64_t context_id;
	uint64_t graph; // id of the one that it was made for
	uint32_t initial;
	bool assigned;     // each launch begins with the initial value
	int names, nodes; // references of graphs and nodes; of nodes alone
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects the list and the counts; a leaf (shim.h)
static struct condition *conditions;

static bool lives(const struct condition *c) { return object_is(c->context, KIND_CONTEXT) && c->context->id == c->context_id; }

// --- conditions ---------------------------------------------------------------------------

static void retain(struct condition *c, int nodes) {
	pthread_mutex_lock(&lock);
	c->names++;
	c->nodes += nodes;
	pthread_mutex_unlock(&lock);
}

static void release(struct condition *c, int nodes) {
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

static struct condition *condition_at(uint64_t handle) {
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
		release(c, 0);
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

// --- nodes ----------------------------------------------------------------------------------

CUresult conditional_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUDA_CONDITIONAL_NODE_PARAMS *p) {
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
	retain(c, 1);
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

void conditional_free(struct conditional_node *c) {
	for (unsigned i = 0; i < c->size; i++)
		if (c->bodies[i] != NULL)
			graph_release(c->bodies[i]);
	free(c->bodies);
	if (c->condition != NULL)
		release(c->condition, 1);
	*c = (struct conditional_node){0};
}

CUresult conditional_copy(CUgraphNode to, const struct conditional_node *from) {
	struct conditional_node c = *from;
	c.bodies = calloc(c.size, sizeof *c.bodies);
	if (c.bodies == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	retain(c.condition, 1);
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

// --- launches -----------------------------------------------------------------------------------

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
		result = plan_post(body, &t);
		CUresult waited = target_wait(&t);
		if (result == CUDA_SUCCESS)
			result = waited;
		if (result != CUDA_SUCCESS || b->node->conditional.type != CU_GRAPH_COND_TYPE_WHILE)
			return result;
	}
}

// The host function of a conditional node. No call can return its result, so an error is deferred:
// the next call that waits for the client returns it.
void conditional_run(void *data) {
	const struct branches *b = data;
	CUresult result = run(b);
	if (result != CUDA_SUCCESS)
		atomic_store(&b->node->conditional.condition->client->deferred, result);
}

// --- PTX ------------------------------------------------------------------------------------------

// Finds the declaration of cudaGraphSetConditional in PTX text; NULL if there is none. *end gets the
// position behind its semicolon.
static const char *declaration(const char *text, size_t size, const char **end) {
	const char *at = text, *name;
	while ((name = memmem(at, size - (size_t)(at - text), set_conditional, sizeof set_conditional - 1)) != NULL) {
		const char *before = name;
		while (before > text && (before[-1] == ' ' || before[-1] == '\t' || before[-1] == '\n' || before[-1] == '\r'))
			before--;
		static const char words[] = ".extern .func";
		const char *semicolon = memchr(name, ';', size - (size_t)(name - text));
		if (before - text >= (long)(sizeof words - 1) && memcmp(before - (sizeof words - 1), words, sizeof words - 1) == 0 && semicolon != NULL) {
			*end = semicolon + 1;
			return before - (sizeof words - 1);
		}
		at = name + sizeof set_conditional - 1;
	}
	return NULL;
}

bool condition_defines(const void *image, size_t size, char **text, size_t *length) {
	static const char definition[] =
		".func cudaGraphSetConditional(.param .b64 muster_handle, .param .b32 muster_value)\n{\n\t.reg .b64 %muster_h;\n\t.reg .b32 %muster_v;\n"
		"\tld.param.b64 %muster_h, [muster_handle];\n\tld.param.b32 %muster_v, [muster_value];\n\tst.volatile.global.b32 [%muster_h], %muster_v;\n\tret;\n}\n";
	const char *from = image, *end;
	if (size < 8 || memchr(from, 0, size < 64 ? size - 1 : 64) != NULL) // no text
		return false;
	const char *begin = declaration(from, size, &end);
	if (begin == NULL)
		return false;
	size_t before = (size_t)(begin - from), after = size - (size_t)(end - from);
	*length = before + sizeof definition - 1 + after;
	*text = malloc(*length + 1);
	if (*text == NULL)
		return false;
	memcpy(*text, from, before);
	memcpy(*text + before, definition, sizeof definition - 1);
	memcpy(*text + before + sizeof definition - 1, end, after);
	(*text)[*length] = 0;
	return true;
}
