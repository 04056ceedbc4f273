// The layer of graphs.
//
// A graph is a value in the program: nodes, their dependencies, and copies of their
// parameters. The worker does not know it. An instantiated graph is a copy with a plan: the messages
// that a launch posts, on the stream that it is launched in and on streams of its own (lanes),
// ordered by events. So the worker sees ordinary work, which it can move, replay, or do on another
// machine like any other.
//
// As in CUDA, the program must not change a graph in two threads at the same time, so graphs have no
// lock. Captures have one (capture.c), and each instantiated graph has one for its launches
// (graph_exec.c).
#ifndef MUSTER_GRAPH_H
#define MUSTER_GRAPH_H

#include "../calls/calls.h"

// --- graph.c ----------------------------------------------------------------------

#define KERNEL_ATTRIBUTES 20 // CUlaunchAttributeID below that are remembered

struct kernel_node {
	CUfunction function; // never the handle of a library's kernel
	uint32_t number;     // of the function when the node was made: tells a reused handle from the same function
	CUcontext context;
	struct launch launch;
	uint8_t *bytes;  // the parameters as the kernel sees them
	void **pointers; // to each of them
	CUlaunchAttributeValue *attributes;
	uint32_t attributes_set; // a bit for each
};

struct copy_node {
	CUDA_MEMCPY3D params;
	CUcontext context;
};

struct fill_node {
	CUDA_MEMSET_NODE_PARAMS params;
	CUcontext context;
};

struct words_node {
	CUcontext context;
	unsigned count;
	CUstreamBatchMemOpParams *list;
};

struct conditional_node {
	struct condition *condition;
	CUcontext context;
	CUgraphConditionalNodeType type;
	unsigned size;
	CUgraph *bodies;
};

struct CUgraphNode_st {
	struct object object;
	CUgraph graph;
	uint64_t id, origin; // id: never used twice; origin: id of the node that it is a copy of
	CUgraphNodeType type;
	struct edges in, out;
	size_t place;  // its index in the graph's list; right after graph_number
	uint64_t mark; // of the last walk that visited it (graph_mark)
	bool disabled; // in an instantiated graph
	union {
		struct kernel_node kernel;
		struct copy_node copy;
		struct fill_node fill;
		struct words_node words;
		CUDA_HOST_NODE_PARAMS host;
		CUgraph child;
		struct conditional_node conditional;
		CUevent event;
		struct graph_memory *memory; // of MEM_ALLOC and MEM_FREE
	};
};

struct CUgraph_st {
	struct object object;
	uint64_t id, origin; // as for nodes
	CUgraphNode *nodes;  // in the order in which they were made
	size_t count, room;
	CUgraphNode parent; // whose child graph it is
	bool captured;      // a capture adds to it: the program may not destroy it
	size_t memory_nodes; // how many nodes allocate or free memory
	CUgraphExec instance; // of a graph with such nodes, which may have one at a time
	struct user_reference *objects;
};

static inline bool is_graph(CUgraph g) { return object_is(g, KIND_GRAPH); }
static inline bool is_node(CUgraphNode n) { return object_is(n, KIND_NODE); }

CUresult graph_new(CUgraph *graph);
void graph_release(CUgraph graph);
// A copy whose nodes know whose copies they are.
CUresult graph_copy(CUgraph original, CUgraph *copy);
// The copy of a node, or of one of a child graph, in a copy of its graph; NULL if
// there is none.
CUgraphNode graph_find(CUgraph copy, CUgraphNode original);
void graph_number(CUgraph graph);
// Nodes such that each comes behind those it depends on; false if there is a cycle. The
// caller frees the list.
bool graph_sort(CUgraph graph, CUgraphNode **sorted);
uint64_t graph_mark(void); // a mark that no node has, for a new walk

// Makes a node that depends on others. The caller fills in its parameters, or undoes it with
// node_release.
CUresult node_new(CUgraph graph, CUgraphNodeType type, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUgraphNode *node);
void node_release(CUgraphNode node);
// The same in two steps: a node that no graph has gets its parameters, then joins a graph. node_end ends it if that fails.
CUgraphNode node_detached(CUgraphNodeType type);
CUresult node_attach(CUgraph graph, CUgraphNode node, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count);
void node_end(CUgraphNode node);
bool edges_add(struct edges *edges, CUgraphNode node, CUgraphEdgeData data);
void edges_remove(struct edges *edges, size_t at);
size_t edges_find(const struct edges *edges, CUgraphNode node); // edges->count: it is not there
bool edge_is(CUgraphEdgeData a, CUgraphEdgeData b);
bool edge_makes_sense(CUgraphNode from, CUgraphEdgeData data);
bool node_depends(CUgraphNode from, CUgraphNode to);
void node_independ(CUgraphNode from, CUgraphNode to);
CUgraphNode graph_find_origin(CUgraph copy, uint64_t origin);
bool node_depend(CUgraphNode from, CUgraphNode to, CUgraphEdgeData data);

// --- graph_params.c: what nodes do ----------------------------------------------------

CUresult kernel_set(struct kernel_node *k, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult words_set(struct words_node *w, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params);
CUresult kernel_set_bytes(struct kernel_node *k, CUfunction function, CUcontext context, const struct launch *launch, const uint8_t *bytes);
void kernel_free(struct kernel_node *k);
bool kernel_is_there(const struct kernel_node *k); // whether its module is still loaded
CUresult copy_set(struct copy_node *c, const CUDA_MEMCPY3D *params, CUcontext context);
CUresult fill_set(struct fill_node *f, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context, bool anywhere);
CUresult free_set(CUgraphNode node, uint64_t graph, CUdeviceptr address);
CUresult node_set(CUgraphNode node, const CUgraphNodeParams *params);
// What an instantiated graph may change.
bool copy_may_become(const struct copy_node *before, const struct copy_node *after);
bool fill_may_become(const struct fill_node *before, const struct fill_node *after);
// Copies the parameters of another node of the same type.
CUresult node_assign(CUgraphNode to, CUgraphNode from);

// --- graph_condition.c: conditional nodes --------------------------------------------------------

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

struct condition *condition_at(uint64_t handle); // NULL: there is none
void condition_retain(struct condition *c, int nodes);
void condition_release(struct condition *c, int nodes);
void conditions_forget_graph(uint64_t graph);
bool condition_is_unused(CUgraph graph);
// Refuses a kernel that gets a condition's handle and cannot set the condition.
CUresult condition_check_kernel(CUgraphNode n);
bool condition_takes(CUgraphNodeType type); // whether a body may have such a node
void conditions_forget_all(void); // in a child
CUresult conditions_assign(CUgraph graph, const struct target *t);

// --- user_object.c -------------------------------------------------------------------------

CUresult user_references_copy(struct user_reference *from, struct user_reference **to);
void user_references_release(struct user_reference *list);

// --- graph_exec.c ----------------------------------------------------------------------------

// The copy of the graph that was instantiated, with later changes.
CUgraph exec_graph(CUgraphExec exec);

#endif
