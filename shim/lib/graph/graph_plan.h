// The plan of an instantiated graph: which lane does each task, and which tasks it waits for.
#ifndef MUSTER_GRAPH_PLAN_H
#define MUSTER_GRAPH_PLAN_H

#include "graph.h"

#define NO_TASK UINT32_MAX
#define MOST_STEPS ((size_t)16 << 20)  // wire.MaxSteps: bytes of all graphs of a client

// How a copy is done.
enum copying {
	COPY_NOTHING,
	COPY_WITHIN,  // by one message a plane
	COPY_PINNED,  // to or from memory that the worker reaches
	COPY_STAGED,  // a host function of the library copies pieces between the program's memory and the lane's buffer
	COPY_EARLY,   // the launch reads the program's memory, unless a host function may still write there
	COPY_ON_HOST, // a host function of the library does all of it
	COPY_ACROSS,  // between devices
};

// A piece of a staged copy: rows of the program's memory, and where they are in the buffer.
struct piece {
	uint8_t *host, *buffer;
	size_t pitch, width, rows;
	bool in; // to the device
	CUdeviceptr device;
	size_t device_pitch;
	uint64_t offset; // of the buffer in the arena
};

struct copy_plan {
	enum copying how;
	struct side to, from;
	size_t width, height, depth;
	struct piece *pieces;
	size_t piece_count;
};

// The bodies of a conditional node, and where they run.
struct branches {
	CUgraphNode node;
	CUcontext context;
	CUstream stream;
	struct plan *bodies;
	unsigned count;
};

// A node, or the beginning or the end of a child graph: then node is NULL.
struct task {
	CUgraphNode node;
	struct client *client; // NULL: it can be in any lane
	CUcontext context;
	uint32_t first_dependency, dependencies; // in plan.dependencies
	uint32_t first_wait, waits;              // in plan.waits
	uint32_t lane, position;
	bool after_host; // an earlier task may write the program's memory
	bool recorded;   // a task in another lane waits for it, so its event is recorded
	CUevent event;
	struct copy_plan *copy;
	struct branches *branches;
};

struct lane {
	struct client *client;
	CUcontext context;
	uint64_t context_id;
	CUstream stream; // NULL for the first, which is the stream that the graph is launched in
	uint32_t length, last;
	bool begins;    // its first task waits for the beginning of the launch
	// Buffers of staged copies: one in, one out. If both were one, a relay to another machine
	// could overwrite it, since the relay does not know when it is in use in which direction.
	size_t staging;
	uint8_t *in, *out;
};

struct plan {
	struct task *tasks;
	size_t count, room;
	uint32_t *dependencies, *waits; // numbers of tasks
	size_t dependency_count, dependency_room, wait_count, wait_room;
	struct lane *lanes;
	size_t lane_count;
	uint32_t joins, first_join; // in waits: the tasks that the first lane waits for at the end
	bool host_side;             // host functions of the library use the plan's memory while it runs
	bool conditional;           // some of them post the bodies of conditional nodes
	bool body;                  // of a conditional node: see prepare_branches
	CUcontext context;          // of the first lane, or NULL
	CUevent begin;
	bool ready; // has its streams, events and buffers
};

// A definition while it is made: messages, one behind the other.
struct steps {
	uint8_t *bytes;
	size_t size, room, count;
};

// The worker's definition of a plan that is launched by one message.
struct whole {
	struct client *client; // NULL: nothing
	uint32_t number;
	size_t bytes; // of the definition
	bool tried;   // a definition was tried since the plan last changed
	bool usable;
	uint64_t stacks; // hash of the kernels' stack sizes when it was defined
};

// Makes a plan of a graph without a cycle.
CUresult plan_make(CUgraph graph, struct plan *plan);
// Makes streams, events and buffers, before the first launch.
CUresult plan_prepare(struct plan *plan, CUcontext context);
// If a later plan differs in nothing but its copies, moves these into the plan, frees the later one
// and returns true: the streams and events stay.
bool plan_adopt(struct plan *plan, struct plan *later);
// Records an event, or waits for one, in a stream of a launch; graph_post.c.
CUresult task_record(const struct target *t, CUevent event);
CUresult task_wait(const struct target *t, CUevent event);
// Posts all messages of a plan, or adds them to the steps of a definition: then an error says that the plan
// cannot be launched by one message; graph_post.c.
CUresult plan_post(struct plan *plan, const struct target *first, struct steps *steps);
// Launches a plan by one message if possible, otherwise with plan_post; graph_whole.c.
bool whole_may_be(const struct plan *plan);
CUresult whole_post(struct whole *whole, struct plan *plan, const struct target *first);
void whole_forget(struct whole *whole);
// Gives the device managed memory that a copy or a fill uses; graph_post.c.
CUresult copy_give_device(const struct copy_plan *copy);
CUresult fill_give_device(const struct target *t, const CUDA_MEMSET_NODE_PARAMS *fill);
// Whether the context of a lane still exists, and with it the lane's stream and events.
bool lane_lives(const struct lane *lane);
void plan_free(struct plan *plan);

#endif
