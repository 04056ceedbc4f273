// The lowest layer of the library: it knows neither clients nor messages.
#ifndef MUSTER_BASIS_H
#define MUSTER_BASIS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CUDA_BARE_NAMES
#include "../../include/cuda.h"

// --- say.c: what the library prints, and whether it is in use ---------------------

enum { SHIM_NEW, SHIM_READY, SHIM_ENDED };
extern _Atomic int shim_state;
extern int shim_trace; // MUSTER_TRACE

void trace_call(const char *name);
CUresult trace_missing(const char *name, const char *why, atomic_flag *told);
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Prints a reason that this library knows itself. Prints nothing if MUSTER_QUIET is set.
void notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

// --- readable.c: memory of the program -------------------------------------------

// How many of size bytes can be read: a wild pointer, or a wild size, is an error of the program and
// must not end it.
size_t readable(const void *from, size_t size);

// --- restart.c: nodes that are started again -------------------------------------

// How long a caller has waited for a node.
struct patience {
	bool begun;
	long since; // in seconds
};

bool node_may_come_back(const char *socket);
// Sleeps 50 ms if the node may come back and the caller has waited for less than 10 s in
// all; false otherwise. Preserves errno.
bool node_wait(const char *socket, struct patience *p);

// --- object.c: what handles stand for -----------------------------------------

// Objects are never returned to malloc: object_free keeps them for the next object_new of the
// same kind. So a stale handle points to an object of a changed kind, never to other memory.
enum kind { KIND_NONE, KIND_CONTEXT, KIND_STREAM, KIND_EVENT, KIND_MODULE, KIND_FUNCTION, KIND_LIBRARY, KIND_KERNEL, KIND_LINK, KIND_ALLOCATION, KIND_POOL, KIND_GRAPH, KIND_NODE, KIND_EXEC, KIND_USER_OBJECT, KIND_ARRAY, KIND_MIPMAP, KIND_TEXTURE, KIND_GREEN, KIND_RESOURCES, KIND_COUNT };

struct object {
	_Atomic uint32_t kind;
	uint32_t number; // the worker's name for it
	uint32_t process; // number of forks at its making: handles of the parent are invalid in a child
	CUcontext context;
	struct object *next, *previous; // in the list of its owner; under shim_lock
};

void *object_new(enum kind kind, size_t size);
void object_free(void *object);
bool object_is(const void *object, enum kind kind);
void object_link(struct object **list, void *object);
void object_unlink(struct object **list, void *object);
void object_forget_all(void); // in a child: the parent's threads may have left locks taken and lists half changed

extern pthread_mutex_t shim_lock; // protects the lists of objects and contexts, and what says "under shim_lock"

// --- ranges.c: which addresses are taken ---------------------------------------

struct range {
	uint64_t at, size;
	CUcontext context;
	uint64_t id;    // never used twice
	uint32_t flags; // RANGE_*; of host memory also the program's flags; in managed.c an index
	struct allocation *mapped; // the memory that the program has mapped there (virtual.c), or NULL
	CUmemoryPool pool;         // that it was allocated from, or NULL
};

#define RANGE_MAPPED (UINT32_C(1) << 31) // host memory that kernels reach
#define RANGE_IMPORTED (UINT32_C(1) << 29) // device memory that another program has shared
#define RANGE_GAP (UINT32_C(1) << 28)      // not allocated, but kept free: see fill_gaps in ipc.c
#define RANGE_SYNC (UINT32_C(1) << 30)   // device memory with CU_POINTER_ATTRIBUTE_SYNC_MEMOPS

struct ranges {
	struct range_node *root;
};

// The range that contains all of [at, at + size), or NULL. Ranges have no lock of their own:
// callers hold the lock of the structure that the tree is part of, and use the result under it.
struct range *ranges_find(const struct ranges *r, uint64_t at, uint64_t size);
// The first range that begins at an address or behind it, or NULL.
struct range *ranges_from(const struct ranges *r, uint64_t at);
// Takes the lowest free size bytes between low and high and returns their address, or 0 if
// there are none. All callers with the same low and high must pass the same align: the tree
// keeps gaps between aligned ends.
uint64_t ranges_take(struct ranges *r, uint64_t low, uint64_t high, uint64_t size, uint64_t align, CUcontext context);
// The same, with so many free bytes, at least, between the range and the next one.
uint64_t ranges_take_apart(struct ranges *r, uint64_t low, uint64_t high, uint64_t size, uint64_t behind, uint64_t align, CUcontext context);

bool ranges_add(struct ranges *r, struct range range); // false if it overlaps
void ranges_remove(struct ranges *r, struct range *range);

// --- names.c: objects by name -----------------------------------------------------

struct named {
	const char *name;
	void *object;
};

struct names { // an empty one is all zero
	struct named *slots;
	size_t count, room;
};

void *names_find(const struct names *n, const char *name); // NULL: there is none
// Adds a name that is not in the table. The table keeps the pointer: name must live as long as the
// object. False if there is no memory.
bool names_add(struct names *n, const char *name, void *object);
void names_clear(struct names *n);

// --- wide.c, md2.c ----------------------------------------------------------------

// wide.c: memcpy, by several threads where that is faster.
void wide_copy(void *to, const void *from, size_t size);
void wide_forget_all(void);

void md2(const void *data, size_t size, uint8_t digest[16]);
void hmac_md2(const uint8_t *key, size_t key_size, const void *data, size_t size, uint8_t digest[16]);

#endif
