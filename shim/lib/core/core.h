// The layer of what work needs: contexts, streams, captures, memory, and the ways of data. It has no body of any
// function of CUDA (do_NAME): those are above, and the files here do not call them.
#ifndef MUSTER_WORK_H
#define MUSTER_WORK_H

#include "../transport/transport.h"

struct launch; // calls/calls.h
struct target;

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

#define STACK_UNSET ((size_t)-1) // CUDA's 1024 for the program, the worker's choice for kernels

void contexts_start(void);
void contexts_forget_thread(void);
CUcontext context_new(int device, unsigned flags, unsigned version);
void context_forget(CUcontext context);   // one that no program has seen
void context_bury(CUcontext context);     // one that was destroyed
void context_renumber(CUcontext context); // invalidates what refers to it by its id
void context_defaults(CUcontext context); // the settings of a new context, and of a primary context after a reset
void context_hold(int device);            // no context of the device attaches until context_let_go
void context_let_go(int device);
CUcontext context_primary(int device); // NULL: there is no such device
CUcontext context_current(void); // may be NULL
CUresult context_push(CUcontext context);
bool context_pop(CUcontext *context);
CUresult context_usable(CUcontext context);
CUresult context_need(CUcontext *context); // current and usable
size_t context_stack(CUcontext context);   // bytes of stack for each thread of a kernel; 0: the worker decides
CUresult context_client(CUcontext context, struct client **client);
bool context_alone(CUcontext context);    // whether no other context uses its client; the caller of these two holds the device
void context_detach(CUcontext context);
void context_own(CUcontext context, void *object);
bool host_calling(void); // whether this thread is a client's host thread (host.c)
void host_thread_begins(void);
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
	struct captured *captured; // while it is captured; under captures_lock
	_Atomic uint64_t copies;   // the client's copies when the stream last waited for copied_event
};

struct CUevent_st {
	struct object object;
	unsigned flags;
	_Atomic bool recorded;
	struct ring_mark record; // the message that recorded it last; under the ring's lock
	struct shared_event *shared; // an event that other programs may open, or NULL (ipc_event.c)
	_Atomic uint64_t own;        // number of this process's last record, if it is shared
	struct recorded *in_capture; // its last record, if that was in a captured stream; under captures_lock
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
CUresult context_synchronise(CUcontext context);
CUresult stream_own(CUcontext context, CUstream *stream); // the default stream of this thread
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
void streams_forget_thread(void);

// --- captures.c ----------------------------------------------------------------------

struct edge {
	CUgraphNode node;
	CUgraphEdgeData data;
};

struct edges {
	struct edge *list;
	size_t count, room;
};

struct capture {
	struct capture *next;
	uint64_t id;
	CUstreamCaptureMode mode;
	pthread_t thread;
	CUstream origin;
	CUgraph graph;
	bool given;   // the graph belongs to the program (cuStreamBeginCaptureToGraph)
	bool invalid;
	struct captured *streams;
};

struct captured { // a stream of a capture
	struct captured *next;
	struct capture *capture;
	CUstream stream; // NULL: it was destroyed
	struct edges front; // what its next node depends on
	CUgraphNode *nodes; // the arrays that cuStreamGetCaptureInfo last returned
	CUgraphEdgeData *edges;
};

struct recorded { // the last record of an event in a capture
	uint64_t capture;
	struct edges front;
};

// One lock protects all captures, the graphs that they add to, and the fields captured of streams and
// in_capture of events. While there is no capture (captures is 0), calls do not take it.
extern pthread_mutex_t captures_lock;
extern struct capture *captures_all;
extern _Atomic int captures; // that have begun and not ended: at 0, calls do not take the lock

// For calls that CUDA forbids during a capture: invalidates each capture that forbids them to this
// thread, and returns an error if there is one.
CUresult capture_unsafe(void);
// The same for calls that wait for all of a context.
CUresult capture_waits(CUcontext context);
CUresult capture_work(struct target *t); // sets t->captured: whether the work is to be recorded
CUresult capture_event(CUevent event); // error for a query of an event last recorded in a capture; invalidates it
CUresult capture_event_time(CUevent event); // the same for elapsed times, without invalidating
CUresult capture_refused(const struct target *t, CUresult why); // invalidates the capture, if any; returns why
void capture_forget_event(CUevent event);
void capture_forget_all(void);
struct capture *capture_find(uint64_t id);
bool capture_blocks_legacy(CUcontext context); // whether a capture forbids work in the legacy stream
CUstreamCaptureMode capture_mode(CUstreamCaptureMode mode); // sets this thread's, and returns the one before

// What makes nodes of the work that a captured stream is given: graph/capture.c, which is above and registers itself.
struct recorder {
	CUresult (*kernel)(const struct target *t, CUfunction function, const struct launch *launch, const uint8_t *bytes);
	CUresult (*copy)(const struct target *t, const CUDA_MEMCPY3D *copy);
	CUresult (*fill)(const struct target *t, CUdeviceptr at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height);
	CUresult (*words)(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list);
	CUresult (*host)(const struct target *t, CUhostFn function, void *data);
	CUresult (*alloc)(const struct target *t, size_t size, CUdeviceptr *address);
	CUresult (*free)(const struct target *t, CUdeviceptr address);
	CUresult (*record)(const struct target *t, CUevent event, bool external);
	// For cuStreamWaitEvent. *done says that the caller has nothing left to do.
	CUresult (*wait)(const struct target *t, CUevent event, bool external, bool *done);
	void (*forget_stream)(CUstream stream); // that is destroyed
};
extern const struct recorder *recorder;

// --- memory.c, pinned.c, pool.c, shares.c ---------------------------------------------------

// The client whose memory contains all of these bytes; looks at preferred first.
struct client *memory_owner(struct client *preferred, CUdeviceptr at, size_t size);
struct client *memory_find(struct client *preferred, uint64_t at, uint64_t size, struct range *out); // the same, with the range
CUresult memory_allocate(struct target *t, size_t size, CUdeviceptr *address);
CUresult memory_free(struct client *c, CUdeviceptr at);
uint64_t memory_used(struct client *c);
void memory_sync(struct client *c, CUdeviceptr at, bool synchronous); // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
void memory_in_pool(struct client *c, CUdeviceptr at, CUmemoryPool pool, uint64_t bytes);
void memory_forget_pool(struct client *c, CUmemoryPool pool);
CUresult memory_copy(struct client *client, uint64_t to, uint64_t from, uint64_t size);
void memory_mark(struct client *client, uint64_t at, struct allocation *mapped);
bool memory_range(struct client *client, uint64_t at, uint64_t size, struct range *range);
// Holds a client's allocations until memory_let_go.
struct ranges *memory_hold(struct client *c);
void memory_let_go(struct client *c);
bool memory_add_variable(struct client *c, CUcontext context, uint64_t at, uint64_t size); // false if it is known
void memory_forget_variable(struct client *c, uint64_t at);
// Reserves addresses, at a wish if they are free, otherwise anywhere in multiples of step; 0 if there are none.
uint64_t memory_reserve(struct client *c, CUcontext context, uint64_t wish, uint64_t size, uint64_t alignment, uint64_t step);
bool memory_is_reserved(struct client *c, uint64_t at, uint64_t size, bool whole); // with whole, exactly these
void memory_unreserve(struct client *c, uint64_t at, uint64_t size);
// Allocates whole pages that are shared with no other allocation.
CUresult memory_pages(struct target *t, size_t size, CUdeviceptr *address);
CUresult memory_claim(struct client *c, CUcontext context, uint64_t at, uint64_t size, bool *made);
bool memory_list(struct client *c, struct range **list, size_t *count);
void memory_release(struct client *c, CUcontext context, bool tell);
// Where pinned memory begins, and how much of it there can be.
static inline uint64_t pinned_begin(const struct client *c) { return (uint64_t)(uintptr_t)c->arena.at + c->arena.staging + c->arena.bounce; }
static inline size_t pinned_bytes(const struct client *c) { return c->arena.bytes - c->arena.staging - c->arena.bounce; }
bool pinned_offset(struct client *c, const void *host, size_t size, uint64_t *offset);
bool pinned_range(const void *host, struct range *out, struct client **owner);
bool pinned_any(struct client *c, CUcontext context);
void pinned_release(struct client *c, CUcontext context, bool tell);
CUdeviceptr pinned_allocate(struct client *c, CUcontext context, size_t size, unsigned flags); // 0: there is no room
void pinned_free(struct client *c, const struct range *range);
void pinned_give(struct client *c, CUdeviceptr at); // the same, of memory that the library has taken for itself
bool pinned_told(struct client *c);                 // whether the program was told before that there is not enough
// Whether a range is still there and the worker was not told of it, and that it was.
bool pinned_unmapped(struct client *c, const struct range *range);
void pinned_mapped(struct client *c, const struct range *range);
struct client *pinned_owner(const void *host, struct range *out); // whose pinned memory contains this address
bool pinned_has(CUdeviceptr at); // whether it is pinned or registered memory
#define PINNED_PAGE 4096
bool registered_any(void);
bool registered_add(struct range range);
CUresult registered_end(uint64_t at);
void registered_release(CUcontext context);
void pinned_forget_all(void);
uint64_t memory_choose(struct client *c, size_t size, CUcontext context); // the caller of these three holds the memory
void memory_charge(struct client *c, uint64_t size);
uint64_t memory_guard(const struct client *c, uint64_t size); // bytes that stay free around an allocation of that size; 0: none
void memory_forget(struct client *c, uint64_t at); // without telling the worker

// Chunks that are shared. Shares of a client are added and removed only while its memory is held (memory_hold), so the
// holder may use them without list_lock.
struct share {
	struct share *next;
	struct client *client;
	uint64_t at, size, name[4];
	bool imported;
	uint64_t offset, id; // offset of the opened allocation; id of the range in client.allocations
	unsigned opened;     // how often the program has opened it; 0: imported for cuMemMap
};

#define SHARE_CHUNK ((uint64_t)2 << 20)

bool shares_any(void); // whether there ever was one
struct share *share_at(struct client *c, uint64_t at);
// This process's share with a name, of one client or (c is NULL) of any.
struct share *share_named(const uint64_t name[4], struct client *c, bool imported);
struct share *share_remember(struct share template);
void shares_forget_all(void); // in a child
// The caller of these four holds the memory.
void shares_chunks(const struct ranges *allocations, const struct range *range, uint64_t *from, uint64_t *to);
void shares_fill_gaps(struct ranges *allocations, uint64_t from, uint64_t to);
void shares_open_gaps(struct ranges *allocations, uint64_t from, uint64_t to);
void shares_freed(struct client *c, struct ranges *allocations, uint64_t at);

struct CUmemPoolHandle_st {
	struct object object;
	CUmemPoolProps properties;
	int device;
	uint64_t threshold;
	int reuse[3];
	bool imported; // nothing can be allocated from it
	_Atomic uint64_t used, most; // bytes
	_Atomic uint64_t kept;       // used, and what the driver would still hold for reuse
};

bool is_pool(CUmemoryPool pool);
bool pool_is_default(CUmemoryPool pool);
bool pool_is_shared(CUmemoryPool pool); // other programs may import its allocations
bool pool_is_imported(CUmemoryPool pool, int *device);
CUmemoryPool pool_default(int device);
void pool_keep(CUmemoryPool pool, uint64_t used, uint64_t most);
void pool_charge(CUmemoryPool pool, uint64_t size);
void pool_leave(const struct range *range);
void pools_forget(void); // in a child

// --- faults.c ---------------------------------------------------------------------

// Who is asked, in this order, whether a fault is his. He returns true if the access is to be repeated.
enum fault_server { FAULT_MOVED, FAULT_MANAGED, FAULT_SERVERS };
void faults_serve(enum fault_server who, bool (*serve)(uint64_t at, bool write));
void faults_handle(void);

// --- mapped.c ---------------------------------------------------------------------

void mapped_scan(struct client *c, const void *params, size_t size); // of a kernel that is to be launched
CUresult mapped_reach(struct client *c, uint64_t host, CUdeviceptr *device); // lets kernels reach memory of the host
void moved_end(uint64_t at);
void moved_release(CUcontext context);
void moved_forget_all(void);
bool pinned_moving(void);      // whether any pages were ever replaced; for the signal handler

// --- transfer.c -------------------------------------------------------------------

CUresult stream_wait(struct client *c, uint32_t stream); // target_wait for a stream by its number
CUresult let_writes_end(struct client *c, uint32_t stream, const void *from, size_t size, bool synchronous); // before the library reads from
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
bool managed_has(CUdeviceptr at);
bool managed_range(CUdeviceptr at, struct range *out, struct client **c);
bool managed_free(CUdeviceptr at, struct client **c, CUdeviceptr *below, CUresult *result);
CUresult managed_variable(struct client *c, CUcontext context, CUdeviceptr at, size_t size);
void managed_forget(CUdeviceptr at);
void managed_release(struct client *c, CUcontext context, bool last);
void managed_forget_all(void);
CUresult managed_allocate(struct target *t, uint64_t bytes, unsigned flags, CUdeviceptr *address);
CUresult managed_attach(const struct target *t, CUdeviceptr at, size_t size, unsigned flags);
void managed_fetch(CUdeviceptr from, size_t size); // brings it to the host

struct managed_hints { // that the program has given for an allocation
	bool read_mostly;
	CUmemLocation preferred, prefetched;
	uint64_t accessed_by[(MAX_DEVICES + 64) / 64]; // bit 0 is the host's
};

// The hints of the allocation that contains all of these bytes, and whose it is; NULL if there is none. Otherwise the
// lock of managed.c is held until managed_hints_end.
struct managed_hints *managed_hints(CUdeviceptr at, size_t size, struct client **c);
void managed_hints_end(void);

// What stream.c and host.c, which are below managed.c, call of it.
struct manager {
	bool (*any)(void);                  // whether there is managed memory
	void (*waited)(void);               // at the end of a call that waits
	void (*returned)(struct client *c); // after a function of the program that a stream called
};
extern const struct manager *manager;

// --- host.c -----------------------------------------------------------------------

// Has the client's host thread call a function when the stream reaches this point. host_submit_once
// is for a function that itself gives work to streams. The worker cannot replay that after a
// crash, so a program whose worker dies meanwhile cannot go on.
CUresult host_submit_once(const struct target *t, CUhostFn function, void *data);
CUresult host_submit(const struct target *target, CUhostFn function, void *data);
// The callback is also called if earlier work of the stream failed.
CUresult host_callback(const struct target *target, CUstreamCallback callback, CUstream stream, void *data);
bool host_pending(struct client *c);    // whether functions are out
uint64_t host_cookie(struct client *c); // a number that no function has
void host_stop(struct client *c);
void host_fail(struct client *c); // notes pending functions as failed; called before a reset clears the fault
void host_let_end(struct client *c); // waits for functions that may call the worker
void host_hold(struct client *c); // waits for them, before a message that waits for them, and holds others back
void host_go_on(struct client *c); // after that message

#endif
