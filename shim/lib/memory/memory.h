// The layer of the calls on memory: allocations, copies, arrays, and memory that programs share.
#ifndef MUSTER_MEMORY_H
#define MUSTER_MEMORY_H

#include "../core/core.h"
#include "api_gen.h"

// --- copy.c -------------------------------------------------------------------------

// One side of a copy of up to three dimensions: where its first byte lies, and how far
// apart its rows and planes are.
struct side {
	bool device;
	uint64_t at;
	size_t pitch, slice, size;
};

// Checks a copy and works out its two sides. A copy of no bytes passes unchecked.
CUresult copy_sides(const struct target *t, const CUDA_MEMCPY3D *copy, struct side *to, struct side *from);
// Copies between devices: waits for the stream, copies, and returns when the copy is done.
CUresult copy_across(const struct target *t, CUdeviceptr to, CUdeviceptr from, size_t size);
// The distance from the first byte of some rows behind their last; false if it overflows.
bool extent(size_t pitch, size_t width, size_t height, size_t *size);
// Checks a fill. With anywhere, its address may be in no known memory.
CUresult fill_check(const struct target *t, CUdeviceptr at, size_t pitch, uint32_t width, size_t count, size_t height, bool anywhere);
void fill_host(uint8_t *at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height);

// --- array.c ------------------------------------------------------------------------

// An array: device memory of the client, in rows without gaps. One level of a mipmap is an
// array, too.
struct CUarray_st {
	struct object object;
	CUDA_ARRAY3D_DESCRIPTOR shape; // of the level
	uint64_t at;                   // of its first byte
	size_t row, slice, size;       // bytes
	CUmipmappedArray mipmap;       // that it is a level of, or NULL
	unsigned level;
};

#define MAX_LEVELS 32

struct CUmipmappedArray_st {
	struct object object;
	CUDA_ARRAY3D_DESCRIPTOR shape;
	uint64_t at;
	size_t size;
	unsigned count;
	CUarray levels[MAX_LEVELS];
};

size_t element_size(CUarray_format format, unsigned channels); // 0 if not supported
void array_release(CUarray array, bool tell);
void mipmap_release(CUmipmappedArray array, bool tell);

// --- pools.c, virtual.c, ipc.c --------------------------------------------------------

void pools_forget_all(void); // in a child
void virtual_forget_all(void); // in a child
bool ipc_free(CUdeviceptr address, CUresult *result);
CUresult ipc_export(struct client *c, CUdeviceptr at, int *fd);
CUresult ipc_import(const struct target *t, int fd, CUdeviceptr *at, size_t *size);
bool ipc_move(const struct target *t, CUdeviceptr from, CUdeviceptr *to, CUresult *result);
void ipc_forget_all(void);

// --- graph_memory.c: memory that graphs allocate -----------------------------------------

struct graph_memory {
	struct graph_memory *next;
	struct client *client;
	CUcontext context;
	uint64_t context_id;
	CUdeviceptr address;
	size_t size;
	int nodes;   // how many nodes allocate or free it
	bool used;   // a launch has allocated it at least once: from then on it counts as used memory
	bool live;   // a launch has allocated it, and it was not freed since
	bool freed_in_graph, freed_outside;
	uint64_t graph; // id of the one that allocates it
};

// Where memory of graphs on a device is allocated: the current context if it is of that device, else
// the primary one. Attaches a client, so the caller may hold no lock below attach_locks.
CUresult graph_memory_target(int device, struct target *t);
CUresult graph_allocate(uint64_t graph, struct target *t, size_t size, struct graph_memory **out);
struct graph_memory *graph_memory_at(CUdeviceptr address); // and retains it
void graph_memory_retain(struct graph_memory *m);
void graph_memory_release(struct graph_memory *m);
// graph_memory_is_live: a launch must not allocate it again. graph_memory_live notes what a launch
// did.
bool graph_memory_is_live(struct graph_memory *m);
bool graph_memory_free_once(struct graph_memory *m); // false if it was freed before, by a node of its graph or by the program
void graph_memory_live(struct graph_memory *m, bool live);

// Frees memory of a graph for cuMemFree and cuMemFreeAsync; false if the address is not such memory.
bool graph_memory_free(CUdeviceptr address, CUresult *result);

#endif
