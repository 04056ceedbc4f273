// The interface between the files of Muster's libcuda.so.1.
//
// A client is a virtual device that the process uses: its connection, its ring of
// messages and its memory. Contexts, streams and so on are objects of this
// process; the worker at the other end of the ring knows only their numbers.
//
// Layers. A file calls its own layer and the layers below it.
//
//   entry      api_gen.c (generated), export.h, export_tables.c, proc.c, init.c
//   calls      one file a family of CUDA's functions: all files that are not named here.
//              The files of graphs share graph.h and graph_plan.h.
//   transport  client.c, ring.c, answers.c, notices.c, printed.c, timeline.c
//   basis      object.c, ranges.c, readable.c, names.c, wide.c, md2.c, restart.c: no client, no messages
//
// Every layer may also print: complain() and trace_*() of init.c. Functions named do_cuX are
// the bodies of the exported cuX; the calls layer uses them for each other's work, too.
//
// Lock order. A thread that holds a lock may take only locks that stand further down. Locks on
// one line are never held together unless the line says so.
//
//    1  init_lock (init.c)
//    2  CUgraphExec_st.lock (graph_exec.c); CUlib_st.load_lock (library.c); lock of virtual.c
//    3  attach_locks[device] (context.c)
//    4  attach_lock (client.c)
//    5  lock of capture.c
//    6  memory_lock of graph_memory.c; lock of mapped.c; lock of managed.c; lock of ipc.c
//    7  client.host_gate, then client.memory_lock
//    8  client.print_lock
//    9  client.staging_lock
//   10  client.send_lock (between ring_open and ring_close it is held by the caller)
//   11  leaves, under which no other lock but notice_lock is taken: client.slot_lock,
//       bounce_lock, host_lock, known_lock, shim_lock (then free_lock of object.c),
//       CUctx_st.local_lock, registered_lock (pinned.c), list_lock (ipc.c), the locks of
//       ipc_event.c and graph_condition.c, poll_lock (timeline.c), owner then lock (wide.c)
//   12  client.notice_lock: a thread that waits for the worker prints its notices
//
// copy_set and fill_set run under the lock of capture.c (5) and call context_client, which takes
// attach_locks (3) only if the context has no client: a context that is being captured has one.
//
// Signals. A thread that touches managed memory, or pages that mapped.c is replacing, enters
// the handler in managed.c, which takes the lock of mapped.c or of managed.c (6) and those
// below. So no thread may touch the program's memory while it holds one of these locks, or one
// further down that the handler needs, unless that memory cannot be managed.
//
// After fork the child has one thread. in_child (init.c) makes every lock anew with the
// *_forget_all functions, since the parent's other threads may have held any of them.
#ifndef MUSTER_SHIM_H
#define MUSTER_SHIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_gen.h"
#include "wire_gen.h"

// --- init.c: the life of the library ------------------------------------------

enum { SHIM_NEW, SHIM_READY, SHIM_ENDED };
extern _Atomic int shim_state;
extern int shim_trace; // MUSTER_TRACE

void trace_call(const char *name);
void trace_result(const char *name, CUresult result);
CUresult trace_missing(const char *name, const char *why, atomic_flag *told);
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

// --- readable.c: memory of the program -------------------------------------------

// How many of size bytes can be read: a wild pointer, or a wild size, is an error of the program and
// must not end it.
size_t readable(const void *from, size_t size);

// --- timeline.c: where the time went -------------------------------------------

enum { WATCH_PRINT = 1, WATCH_TIMELINE = 2 };
extern int shim_watch; // a set of these flags: how each call is observed; 0 for most programs

enum watch_wait { WAIT_ANSWER, WAIT_RING, WAIT_STAGING, WAIT_OTHERS, WATCH_WAITS };

int64_t watch_now(void);
int64_t watch_begin(const char *name); // 0: the call is not recorded
void watch_end(const char *name, int64_t began, int result);
void watch_waited(int64_t since, enum watch_wait what);
void watch_bytes(uint64_t bytes);
void watch_kernel(const char *name);
struct client;
void watch_sent(const struct client *c, uint32_t seq);
static inline bool watching(void) { return __builtin_expect((shim_watch & WATCH_TIMELINE) != 0, 0); }
// Callers put these two around a wait. watch_wait returns when the wait began, for
// watch_ended, or 0 while no timeline is recorded.
static inline int64_t watch_wait(void) { return watching() ? watch_now() : 0; }
static inline void watch_ended(int64_t since, enum watch_wait what) {
	if (__builtin_expect(since != 0, 0))
		watch_waited(since, what);
}
void timeline_start(void);
void timeline_attached(struct client *c);
void timeline_end(void);
void timeline_in_child(void);

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

// --- notices.c: reasons, for the user -------------------------------------------

// Prints the notices that workers have left about a result, and returns the result. The
// caller must hold no lock.
CUresult notices_print(CUresult result);
// Prints new notices of one worker while a call waits: they say what the call waits for.
void notices_while_waiting(struct client *c);
// Prints what nothing has printed yet, unless another thread is just doing so. What belongs to no
// failing call (why a launch was mapped to which device) would be lost with short programs.
void notices_at_exit(struct client *c);
// Prints a reason that this library knows itself. Prints nothing if MUSTER_QUIET is set.
void notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

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

// --- client.c: connection and set-up --------------------------------------------

#define MAX_DEVICES 64
#define MAX_ATTRIBUTE 160

struct device {
	uint64_t memory;
	char name[128];
	uint8_t uuid[16];
	int attributes[MAX_ATTRIBUTE];
	CUcontext primary;
};

extern struct device devices[MAX_DEVICES];
extern int device_count, driver_version;

struct host_call;

enum { DONE_STREAMS = 64 };
enum { KNOWN_ANSWERS = 4096, KNOWN_BYTES = 512 }; // answers.c: entries; most bytes of a question, and of an answer

struct client {
	int device, socket;
	struct wire_ring *ring;
	uint8_t *arena;
	uint64_t ring_size, staging_size, bounce_size, arena_bytes; // copied once and checked: the worker can write to the originals
	uint64_t base, size; // device addresses
	bool reserved;       // the host's address space is reserved there, so host and device addresses never collide
	bool arena_shared;   // the worker has the data arena at the same address
	uint64_t memory;     // most bytes that the program may allocate
	_Atomic uint32_t numbers; // the next number of a stream, event, function ...; never used twice
	_Atomic int lost; // 0, or the result that every call returns because the worker is gone
	int contexts;     // that use it; under attach_locks[device]

	// ring.c
	pthread_mutex_t send_lock; // protects the sending end of the ring: up to slot_end, and done
	uint64_t tail, opened; // bytes published; size of the message being written, padded
	uint32_t seq;
	uint64_t slot_end[WIRE_SLOTS + 1]; // position behind the message that waits for each slot; only the owner of the slot reads it
	uint64_t done_all;                 // ring_done: all messages up to this position are known to be done,
	struct {
		uint64_t stream, end;      // and those of this stream up to this one: a cache, by stream % DONE_STREAMS
	} done[DONE_STREAMS];
	pthread_mutex_t staging_lock; // protects staged, from stage_begin to stage_end
	uint64_t staged; // bytes of staging memory taken so far
	pthread_mutex_t slot_lock; // protects the free slots
	pthread_cond_t slot_freed;
	uint16_t free_slots[WIRE_SLOTS];
	unsigned free_slot_count;
	pthread_mutex_t bounce_lock; // protects the free bounce buffers
	pthread_cond_t bounce_freed;
	bool *bounce_taken; // of each bounce buffer

	// memory.c
	pthread_mutex_t memory_lock; // protects the four trees and allocated
	struct ranges allocations, variables, pinned, reservations;
	uint64_t allocated;

	// stream.c: see copies_note
	_Atomic int side_streams;       // how many streams were made that do not wait for the legacy stream
	_Atomic uint32_t copied_event;  // its number; 0: not made yet
	_Atomic uint64_t copies;        // how often it was recorded

	_Atomic size_t graph_bytes; // graph_whole.c: bytes of graph definitions at the worker

	// managed.c; under its lock
	uint32_t managed_stream;   // number of the stream for its copies; 0: not made yet
	uint64_t managed_launched; // launches that could use managed memory
	uint64_t managed_work;     // these, and copies that wrote to it
	bool managed_busy;         // some of managed_work may not have ended
	_Atomic int deferred;      // an error that no call could return: the next call that waits returns it

	// printed.c
	pthread_mutex_t print_lock; // held while text is fetched and written, so that it stays in order

	// notices.c
	pthread_mutex_t notice_lock; // protects printing of notices, and of the reason when lost is set
	_Atomic uint32_t notices_read;
	atomic_flag pinned_told;

	// answers.c
	pthread_mutex_t known_lock;
	struct known **known; // KNOWN_ANSWERS of them

	// timeline.c
	_Atomic bool recorded; // the worker records what it does for this client

	// host.c
	pthread_mutex_t host_gate; // held while a function is submitted, and between host_hold and host_go_on
	pthread_cond_t host_open; // a holder has gone on
	int host_holders; // threads between the begin of host_hold and the end of host_go_on; host_gate protects it
	int host_round; // how many times a holder has waited for functions in vain; host_gate protects it
	pthread_mutex_t host_lock; // protects the five below
	struct host_call *host_calls, *host_last; // oldest first
	uint64_t host_cookies, host_failed; // the newest cookie; all up to host_failed have failed
	CUresult host_status;               // why they failed
	_Atomic int host_pending; // calls submitted that have not returned
	_Atomic int host_once;    // those of them that give work to streams (host_submit_once)
	_Atomic bool host_thread; // the thread of host.c runs
};

CUresult client_connect(void);                       // for cuInit
CUresult client_for(int device, struct client **out); // attaches at first use
struct client *client_at(int device);                // NULL while the process is not attached
void client_forget_all(void);                        // in a child
bool client_gone(struct client *c);                  // looks whether the worker has closed the ring or the socket
void client_drop(struct client *c);                  // forgets a client that is lost and that no context uses
void print_pending(struct client *c);                // printed.c: writes what kernels have printed

// --- ring.c: messages ---------------------------------------------------------

CUresult ring_open(struct client *c, enum wire_op op, size_t body, const struct wire_header *head, uint8_t **at);
void ring_close(struct client *c);

// ring_done notes that all messages to a stream (or to ALL_STREAMS) up to a position of the ring
// are done; a message ends at slot_end of its slot. A call that would wait for no more than that
// need not ask the worker. ring_is_done and ring_idle also check that the client has not failed.
#define ALL_STREAMS UINT64_MAX
void ring_done(struct client *c, uint64_t end, uint64_t stream);
bool ring_is_done(struct client *c, uint64_t end, uint64_t stream);
bool ring_idle(struct client *c, uint64_t stream); // ring_is_done up to the last message
bool ring_try(struct client *c, enum wire_op op);  // sends a message without a body, or returns false rather than wait

struct answer {
	uint32_t size;
	uint8_t payload[240];
};

CUresult slot_take(struct client *c, uint16_t *slot);
void slot_give(struct client *c, uint16_t slot);
// Says before a wait of this thread that what it waits for ends with a copy of so many bytes.
void slot_expect(size_t bytes);
CUresult slot_wait(struct client *c, uint16_t slot, struct answer *answer);
CUresult slot_wait_briefly(struct client *c, uint16_t slot, struct answer *answer, bool *soon); // soon: whether the last answer came, and then whether this one came, soon. CUDA_ERROR_NOT_READY after 100 ms, and the caller keeps the slot
CUresult client_status(struct client *c); // the error that ended the client, or the fault that it has not cleared
void client_defer(struct client *c, CUresult result); // keeps an error for the next call that waits
CUresult client_deferred(struct client *c, CUresult result); // the result of a call that waits, or else the deferred error

// Copies a piece of at most stage_limit bytes, or stage_piece of a larger copy, into staging memory, and fills in the header of the
// message that tells of it. On success the staging_lock is held until stage_end, which the
// caller calls when it has sent the message.
CUresult stage_begin(struct client *c, const void *data, size_t size, struct wire_header *head);
void stage_end(struct client *c);
#define STAGE_PIECE ((size_t)1 << 20)
size_t stage_limit(const struct client *c);
size_t stage_piece(const struct client *c, size_t size);
// The same for data that the caller writes to *at itself.
CUresult stage_room(struct client *c, size_t size, struct wire_header *head, uint8_t **at);

// tensor.c: asks the driver of the real device one of these questions, which device/device.go
// lists.
enum { ASK_TOPOLOGY = 1, ASK_TILED, ASK_IM2COL, ASK_REPLACED };
CUresult driver_ask(uint32_t what, const void *about, size_t size, void *answer, size_t room, size_t *length);

CUresult bounce_take(struct client *c, bool wait, uint64_t *offset);
void bounce_give(struct client *c, uint64_t offset);
// The same for buffers that lie side by side: as many as *count if they are free, but at least one.
CUresult bounces_take(struct client *c, bool wait, unsigned *count, uint64_t *offset);
void bounces_give(struct client *c, uint64_t offset, unsigned count);

// --- answers.c: answers that are always the same ---------------------------------

bool answer_known(struct client *c, enum wire_op op, const void *question, size_t size, void *answer, size_t room, size_t *length);
void answer_keep(struct client *c, enum wire_op op, const void *question, size_t size, const void *answer, size_t length);

// POST sends a message that has no answer, CALL one that has; both are a CUresult. CALL_ONCE
// is a CALL whose answer is always the same for the same message.
#define POST(client, OP, name, message, head) \
	__extension__({ \
		const struct wire_##name *m_ = (message); \
		uint8_t *at_; \
		CUresult r_ = ring_open(client, WIRE_##OP, wire_##name##_size(m_), head, &at_); \
		if (r_ == CUDA_SUCCESS) { \
			wire_##name##_put(at_, m_); \
			ring_close(client); \
		} \
		r_; \
	})

#define CALL(client, OP, name, message, head, answer) \
	__extension__({ \
		struct wire_header h_ = *(head); \
		CUresult result_ = slot_take(client, &h_.slot); \
		if (result_ == CUDA_SUCCESS) { \
			result_ = POST(client, OP, name, message, &h_); \
			if (result_ == CUDA_SUCCESS) \
				result_ = slot_wait(client, h_.slot, answer); \
			else \
				slot_give(client, h_.slot); \
		} \
		result_; \
	})

// CALL_WAITS is a CALL that waits for a stream. It asks nothing where the stream is known to be
// idle, and notes with ring_done what its success proves. slot_end is read before slot_wait,
// which gives the slot back.
#define CALL_WAITS(client, OP, name, message, stream) \
	__extension__({ \
		struct wire_header h_ = *NO_DATA; \
		CUresult result_ = CUDA_SUCCESS; \
		if (!ring_idle(client, stream)) { \
			result_ = slot_take(client, &h_.slot); \
			if (result_ == CUDA_SUCCESS) { \
				result_ = POST(client, OP, name, message, &h_); \
				uint64_t end_ = (client)->slot_end[h_.slot]; \
				if (result_ == CUDA_SUCCESS) \
					result_ = slot_wait(client, h_.slot, NULL); \
				else \
					slot_give(client, h_.slot); \
				if (result_ == CUDA_SUCCESS) \
					ring_done(client, end_, stream); \
			} \
		} \
		result_; \
	})

#define CALL_ONCE(client, OP, name, message, into) \
	__extension__({ \
		uint8_t question_[KNOWN_BYTES]; \
		struct answer *a_ = (into); \
		size_t length_ = 0, asked_ = wire_##name##_size(message); \
		CUresult once_ = CUDA_SUCCESS; \
		wire_##name##_put(question_, message); \
		if (answer_known(client, WIRE_##OP, question_, asked_, a_->payload, sizeof a_->payload, &length_)) { \
			a_->size = (uint32_t)length_; \
		} else { \
			once_ = CALL(client, OP, name, message, NO_DATA, a_); \
			if (once_ == CUDA_SUCCESS) \
				answer_keep(client, WIRE_##OP, question_, asked_, a_->payload, a_->size); \
		} \
		once_; \
	})

#define NO_DATA (&(const struct wire_header){0})

// --- context.c ------------------------------------------------------------------

struct local { // a value that the CUDA runtime keeps in a context, by key
	void *key, *value;
	void (*end)(CUcontext context, void *key, void *value);
};

// The hints that the program has set for a stream. This library only remembers them.
struct stream_attributes {
	CUaccessPolicyWindow window;
	CUsynchronizationPolicy policy; // 0: none was set
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
	bool domains_set;
	int priority; // of the legacy stream; other streams have CUstream_st.priority
};

struct CUctx_st {
	struct object object;
	int device;
	bool primary;
	_Atomic bool active;
	int retained;
	unsigned flags, version;
	uint64_t id;
	_Atomic(struct client *) client;
	struct object *owned; // streams, events, modules
	size_t limits[CU_LIMIT_MAX];
	CUfunc_cache cache;
	CUsharedconfig banks;
	struct stream_attributes legacy; // of the legacy stream; under shim_lock
	pthread_mutex_t local_lock;
	struct local *locals;
	size_t local_count;
};

extern struct object *contexts; // all that were not destroyed; under shim_lock

void contexts_start(void);
void contexts_forget_thread(void);
CUcontext context_current(void); // may be NULL
CUresult context_usable(CUcontext context);
CUresult context_need(CUcontext *context); // current and usable
size_t context_stack(CUcontext context);   // bytes of stack for each thread of a kernel; 0: the worker decides
CUresult context_client(CUcontext context, struct client **client);
void context_own(CUcontext context, void *object);
bool context_disown(void *object); // false if another thread has disowned it already: that thread releases it

CUresult local_put(CUcontext context, void *key, void *value, void (*end)(CUcontext, void *, void *));
CUresult local_get(CUcontext context, void *key, void **value);
CUresult local_delete(CUcontext context, void *key);

// --- stream.c -------------------------------------------------------------------

struct CUstream_st {
	struct object object;
	unsigned flags;
	int priority;
	uint64_t id;
	struct stream_attributes attributes; // under shim_lock
	CUgreenCtx green;                    // that it was made for, or NULL
	struct captured *captured; // while it is captured; under the lock of capture.c
	_Atomic uint64_t copies;   // the client's copies when the stream last waited for copied_event
};

struct CUevent_st {
	struct object object;
	unsigned flags;
	_Atomic bool recorded;
	uint64_t record_end, record_stream; // of the message that recorded it last; under the client's send_lock
	struct shared_event *shared; // an event that other programs may open, or NULL (ipc_event.c)
	_Atomic uint64_t own;        // number of this process's last record, if it is shared
	struct recorded *in_capture; // its last record, if that was in a captured stream; under the lock of capture.c
};

// Where a stream's work goes.
struct target {
	CUcontext context;
	struct client *client;
	uint32_t stream;
	CUstream handle; // NULL: the legacy stream
	bool captured;   // the work is to be recorded
};

// Each call finds its target with one of these. target_of is for work that cannot be captured
// and for calls that wait: it returns an error for a captured stream, and invalidates the capture.
CUresult target_of(CUstream stream, struct target *target);
// target_of, with the same error for a capture that is invalid already as for one that is not.
CUresult target_uncaptured(CUstream stream, struct target *target);
// For work that a captured stream records: the caller looks at target->captured.
CUresult target_work(CUstream stream, struct target *target);
// For calls that only ask about a stream.
CUresult target_named(CUstream stream, struct target *target);
CUresult target_current(struct target *target); // the legacy stream of the current context
// The legacy stream of a device: in the current context if that is the device's, otherwise in the
// primary one.
CUresult target_on(int device, struct target *target);
CUresult target_wait(const struct target *target);
// Called after a copy to the device that programs take for ended when the call returns: work that
// streams of kind CU_STREAM_NON_BLOCKING are given later waits for the copy.
CUresult copies_note(const struct target *target);
void copies_forget(struct client *c); // after a reset, which destroyed the client's events
CUresult stream_create(CUstream *out, CUcontext context, unsigned flags, int priority);
// The priority of streams whose work a host function may wait for. NVIDIA's driver puts streams into few
// queues of the device, and one that waits for a function keeps all in its queue waiting. It should put
// streams of different priorities into different queues, and most programs use the lowest, so these have
// the highest.
enum { ASIDE_PRIORITY = -5 };
void stream_release(CUstream stream, bool tell);
CUresult event_create(CUevent *out, CUcontext context, unsigned flags);
CUresult event_record_on(const struct target *target, CUevent event); // in a stream that is not captured
void event_release(CUevent event, bool tell);
void streams_forget_thread(void);

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

// --- module.c -------------------------------------------------------------------

struct CUmod_st {
	struct object object;
	struct object *functions;
	struct names by_name; // the same functions; both under shim_lock
	uint64_t *variables;  // addresses that the program has asked for; under the client's memory_lock
	size_t variable_count, variable_room;
	uint32_t function_count;
	CUlibrary library; // the library that it was loaded for; NULL: the program loaded it and unloads it
	bool sets_conditions; // its kernels can set conditions of graphs (graph_condition.c)
};

struct CUfunc_st {
	struct object object;
	CUmodule module;
	char *name;
	uint32_t params, param_size;
	uint32_t (*layout)[2]; // offset and size of each
	int max_threads, shared, local, registers, ptx, binary, constant;
	int max_dynamic, carveout;
	// Thread block clusters: the size that was compiled in or set (0: each launch gives it),
	// whether launches must give it, whether more than 8 blocks are allowed, and a scheduling
	// hint.
	int cluster[3], cluster_needed, large_cluster, cluster_policy;
};

#define IMAGE_UNLIMITED SIZE_MAX // limit of an image whose length only its headers tell
#define IMAGE_MOST ((size_t)8 << 30) // bytes of an image

CUresult image_bounds(const void *image, size_t limit, const void **start, size_t *size);
// If the image is refused and log is not NULL, *log gets the reason, which the caller frees.
CUresult module_load(CUcontext context, const void *image, size_t limit, char **log, CUmodule *module);
CUresult module_function(CUmodule module, const char *name, CUfunction *function);
CUresult module_global(CUmodule module, const char *name, CUdeviceptr *address, size_t *bytes);
CUresult module_names(CUmodule module, char **names, uint32_t *functions);
void module_release(CUmodule module, bool tell);
CUresult file_read(const char *path, void **data, size_t *size);

struct jit { // the options of a call that has an image compiled
	unsigned count;
	CUjit_option *options;
	void **values;
	size_t info_room, error_room; // bytes of the log buffers, read early: the answer overwrites these values
	struct timespec began;
};

struct jit jit_options(unsigned count, CUjit_option *options, void **values);
bool jit_options_exist(const struct jit *jit);
void **jit_value(const struct jit *jit, CUjit_option option); // NULL: the program did not give it
void jit_begin(struct jit *jit);                             // starts the clock for CU_JIT_WALL_TIME
void jit_answer(const struct jit *jit, const char *errors);  // fills logs and times; NULL: no errors
CUresult jit_answer_load(const struct jit *jit, CUresult result, char *log); // jit_answer for the result of a load; frees the log

CUresult image_send(struct client *c, uint32_t number, const uint8_t *image, size_t size); // in pieces
char *image_log(struct client *c, uint32_t number); // why the worker refused it, to be freed; NULL if it does not say

// library.c: programs may pass the handle of a library's kernel where a function is wanted.
CUresult function_of(CUfunction handle, CUfunction *function);
// The kernel that a function of a library stands for; NULL for functions of modules.
CUkernel kernel_behind(CUfunction function);

CUresult function_occupancy(CUfunction function, unsigned threads, size_t shared, uint32_t *blocks);

// --- launch.c -------------------------------------------------------------------

struct launch {
	unsigned grid[3], block[3], shared;
	bool cooperative;
	unsigned cluster[3]; // 0: as the function has it
};

CUresult launch_check(CUfunction function, const struct launch *launch);
// Parameters as the kernel sees them: function->param_size bytes.
CUresult launch_gather(CUfunction function, void **params, void **extra, uint8_t *at);
CUresult launch_post(const struct target *target, CUfunction function, const struct launch *launch, const uint8_t *bytes);
struct wire_launch launch_message(uint32_t stream, CUfunction function, const struct launch *launch, const uint8_t *bytes);

// --- memory.c, copy.c, pinned.c ---------------------------------------------------

// The client whose memory contains all of these bytes; looks at preferred first.
struct client *memory_owner(struct client *preferred, CUdeviceptr at, size_t size);
CUresult memory_free(struct client *c, CUdeviceptr at);
CUresult memory_copy(struct client *client, uint64_t to, uint64_t from, uint64_t size);
void memory_mark(struct client *client, uint64_t at, struct allocation *mapped);
bool memory_range(struct client *client, uint64_t at, uint64_t size, struct range *range);
uint64_t memory_reserved(struct client *client); // where addresses begin that programs reserve
// Allocates whole pages that are shared with no other allocation.
CUresult memory_pages(struct target *t, size_t size, CUdeviceptr *address);
CUresult memory_claim(struct client *c, CUcontext context, uint64_t at, uint64_t size, bool *made);
bool memory_list(struct client *c, struct range **list, size_t *count);
void memory_release(struct client *c, CUcontext context, bool tell);
bool pinned_offset(struct client *c, const void *host, size_t size, uint64_t *offset);
bool pinned_range(const void *host, struct range *out, struct client **owner);
bool pinned_any(struct client *c, CUcontext context);
void pinned_release(struct client *c, CUcontext context, bool tell);
bool registered_any(void);
void registered_release(CUcontext context);
void pinned_forget_all(void);
uint64_t memory_choose(struct client *c, size_t size, CUcontext context); // the caller of these three holds the memory_lock
void memory_charge(struct client *c, uint64_t size);
uint64_t memory_guard(const struct client *c, uint64_t size); // bytes that stay free around an allocation of that size; 0: none
void memory_forget(struct client *c, uint64_t at); // without telling the worker
void virtual_forget_all(void);
void pools_forget_all(void);

// --- ipc.c, ipc_event.c -------------------------------------------------------------

void ipc_freed(struct client *c, uint64_t at); // the caller holds the memory_lock
// values.c: operations on words that streams write and wait for.
CUresult words_check(unsigned count, const CUstreamBatchMemOpParams *list);
CUresult words_post(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list);

// wide.c: memcpy, by several threads where that is faster.
void wide_copy(void *to, const void *from, size_t size);
void wide_forget_all(void);

bool pool_is_shared(CUmemoryPool pool); // other programs may import its allocations
bool pool_is_imported(CUmemoryPool pool, int *device);
bool ipc_free(CUdeviceptr address, CUresult *result);
CUresult ipc_export(struct client *c, CUdeviceptr at, int *fd);
CUresult ipc_import(const struct target *t, int fd, CUdeviceptr *at, size_t *size);
bool ipc_move(const struct target *t, CUdeviceptr from, CUdeviceptr *to, CUresult *result);
void ipc_forget_all(void);
CUresult ipc_event_begin(CUevent event);
void ipc_event_end(CUevent event);
CUresult ipc_event_record(CUevent event, const struct target *t);
bool ipc_event_own(CUevent event);
CUresult ipc_event_query(CUevent event);
CUresult ipc_event_wait(CUevent event);
void ipc_events_forget_all(void);

// --- mapped.c ---------------------------------------------------------------------

void mapped_end(struct client *c, struct range *range); // the caller holds the memory_lock
void mapped_scan(struct client *c, const void *params, size_t size); // of a kernel that is to be launched
CUresult mapped_reach(struct client *c, uint64_t host, CUdeviceptr *device); // lets kernels reach memory of the host
void moved_end(uint64_t at);
void moved_release(CUcontext context);
void moved_forget_all(void);
bool pinned_moving(void);      // whether any pages were ever replaced; for the signal handler
bool pinned_wait(uint64_t at); // waits until the pages at this address are replaced; false if they are not being replaced

CUresult copy_in(struct client *c, uint32_t stream, CUdeviceptr to, const void *from, size_t size, bool wait);
CUresult copy_out(struct client *c, uint32_t stream, void *to, CUdeviceptr from, size_t size, bool wait);
// The same for the signal handler of managed.c: always waits, and prints nothing, since stdio is
// not safe there.
CUresult copy_out_quietly(struct client *c, uint32_t stream, void *to, CUdeviceptr from, size_t size);

// --- managed.c --------------------------------------------------------------------

// A caller puts these two around the message that launches kernels in a stream. managed_begin
// copies to the device what the host has written, and keeps the lock of managed.c (*held) until
// managed_end. So no other thread can bring a chunk back to the host before the launch is counted.
CUresult managed_begin(struct client *c, uint32_t stream, bool *held);
void managed_end(struct client *c, bool held);
// Called before a message that reads or writes device memory which may be managed.
CUresult managed_touch(CUdeviceptr at, size_t size, bool written);
CUresult managed_give_all(struct client *c, bool written);
void managed_returned(struct client *c); // after a function of the program that a stream called has returned
void managed_watch(void);
void managed_handle_faults(void);
bool managed_has(CUdeviceptr at);
bool managed_any(void); // whether there is managed memory at all
bool managed_range(CUdeviceptr at, struct range *out, struct client **c);
bool managed_free(CUdeviceptr at, struct client **c, CUdeviceptr *below, CUresult *result);
CUresult managed_variable(struct client *c, CUcontext context, CUdeviceptr at, size_t size);
void managed_forget(CUdeviceptr at);
void managed_release(struct client *c, CUcontext context, bool last);
void managed_forget_all(void);

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

// --- array.c, texture.c -----------------------------------------------------------

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

struct texture {
	struct object object;
	uint64_t handle;
	bool surface;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	bool viewed;
};

void texture_release(struct texture *texture, bool tell);


// --- host.c -----------------------------------------------------------------------

// Has the client's host thread call a function when the stream reaches this point. host_submit_once
// is for a function that itself gives work to streams. The worker cannot replay that after a
// crash, so a program whose worker dies meanwhile cannot go on.
CUresult host_submit_once(const struct target *t, CUhostFn function, void *data);
CUresult host_submit(const struct target *target, CUhostFn function, void *data);
// The callback is also called if earlier work of the stream failed.
CUresult host_callback(const struct target *target, CUstreamCallback callback, void *data);
uint64_t host_cookie(struct client *c); // a number that no function has
void host_stop(struct client *c);
void host_fail(struct client *c); // notes pending functions as failed; called before a reset clears the fault
bool host_calling(void); // whether this thread is a client's host thread
void host_let_end(struct client *c); // waits for functions that may call the worker
void host_hold(struct client *c); // waits for them, before a message that waits for them, and holds others back
void host_go_on(struct client *c); // after that message

// --- capture.c ----------------------------------------------------------------------

extern _Atomic int captures; // that have begun and not ended: at 0, calls do not take the lock

// For calls that CUDA forbids during a capture: invalidates each capture that forbids them to this
// thread, and returns an error if there is one.
CUresult capture_unsafe(void);
// The same for calls that wait for all of a context.
CUresult capture_waits(CUcontext context);
CUresult capture_work(struct target *t); // sets t->captured: whether the work is to be recorded
CUresult capture_kernel(const struct target *t, CUfunction function, const struct launch *launch, const uint8_t *bytes);
CUresult capture_copy(const struct target *t, const CUDA_MEMCPY3D *copy);
CUresult capture_fill(const struct target *t, CUdeviceptr at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height);
CUresult capture_words(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list);
CUresult capture_host(const struct target *t, CUhostFn function, void *data);
CUresult capture_alloc(const struct target *t, size_t size, CUdeviceptr *address);
CUresult capture_free(const struct target *t, CUdeviceptr address);
CUresult capture_record(const struct target *t, CUevent event, bool external);
// For cuStreamWaitEvent. *done says that the caller has nothing left to do.
CUresult capture_wait(const struct target *t, CUevent event, bool external, bool *done);
CUresult capture_event(CUevent event); // error for a query of an event last recorded in a capture; invalidates it
CUresult capture_event_time(CUevent event); // the same for elapsed times, without invalidating
CUresult capture_refused(const struct target *t, CUresult why); // invalidates the capture, if any; returns why
void capture_forget_event(CUevent event);
void capture_forget_stream(CUstream stream);
void capture_forget_all(void);

// --- graph_condition.c ------------------------------------------------------------------

// Makes PTX text whose kernels can set conditions of graphs, if the image is PTX that declares
// cudaGraphSetConditional; false otherwise. The caller frees the text.
bool condition_defines(const void *image, size_t size, char **text, size_t *length);
void conditions_forget_all(void); // in a child

// --- graph_memory.c -------------------------------------------------------------------

// Frees memory of a graph for cuMemFree and cuMemFreeAsync; false if the address is not such memory.
bool graph_memory_free(CUdeviceptr address, CUresult *result);
CUresult memory_allocate(struct target *t, size_t size, CUdeviceptr *address);

// --- md2.c, proc.c ----------------------------------------------------------------

void md2(const void *data, size_t size, uint8_t digest[16]);
void hmac_md2(const uint8_t *key, size_t key_size, const void *data, size_t size, uint8_t digest[16]);

struct proc_entry {
	const char *name;
	int since;
	void *function, *per_thread; // per_thread: the variant whose default stream is the thread's own
};
extern const struct proc_entry proc_table[]; // by name, newest first
extern const size_t proc_count;

struct error_entry {
	int number;
	const char *name, *text;
};
extern const struct error_entry error_table[]; // by number
extern const size_t error_count;

#endif
