// What the parts of Muster's libcuda.so.1 know of each other.
//
// A client is a virtual device that the process uses: its connection, its ring of
// messages and its memory. Contexts, streams and so on are objects of this
// process; the worker at the other end knows their numbers only.
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

// --- timeline.c: where the time went -------------------------------------------

enum { WATCH_PRINT = 1, WATCH_TIMELINE = 2 };
extern int shim_watch; // of these: what is done with every call; 0 for most programs

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
// Around a wait: when it began, for watch_ended. 0 while nobody records it.
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

// How long somebody has waited for a node.
struct patience {
	bool begun;
	long since; // in seconds
};

bool node_may_come_back(const char *socket);
// Waits a moment for a node that may come back; false if none will, or after 10 s in
// all. errno stays.
bool node_wait(const char *socket, struct patience *p);

// --- notices.c: reasons, for the user -------------------------------------------

// Prints what the workers have to say about a result; returns the result. The
// caller holds no lock.
CUresult notices_print(CUresult result);
// Prints what the worker has said while a call waits for long: for what it waits.
void notices_while_waiting(struct client *c);
// The same for a reason that is known here. Prints nothing if the user wants it so.
void notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

// --- object.c: what handles stand for -----------------------------------------

// Objects are never given back to malloc, so that a handle that is used too
// late finds a changed kind and no foreign memory.
enum kind { KIND_NONE, KIND_CONTEXT, KIND_STREAM, KIND_EVENT, KIND_MODULE, KIND_FUNCTION, KIND_LIBRARY, KIND_KERNEL, KIND_LINK, KIND_ALLOCATION, KIND_POOL, KIND_GRAPH, KIND_NODE, KIND_EXEC, KIND_USER_OBJECT, KIND_ARRAY, KIND_MIPMAP, KIND_TEXTURE, KIND_GREEN, KIND_RESOURCES, KIND_COUNT };

struct object {
	_Atomic uint32_t kind;
	uint32_t number; // the worker's name for it
	uint32_t process; // counts forks: what the parent had is nothing in a child
	CUcontext context;
	struct object *next, *previous; // of the same owner
};

void *object_new(enum kind kind, size_t size);
void object_free(void *object);
bool object_is(const void *object, enum kind kind);
void object_link(struct object **list, void *object);
void object_unlink(struct object **list, void *object);
void object_forget_all(void); // in a child: locks may be held by nobody, and lists may be half changed

extern pthread_mutex_t shim_lock; // lists of objects, contexts and devices

// --- ranges.c: which addresses are taken ---------------------------------------

struct range {
	uint64_t at, size;
	CUcontext context;
	uint64_t id;    // never used twice
	uint32_t flags; // of host memory
	struct allocation *mapped; // what the program has put there (virtual.c), or NULL
	CUmemoryPool pool;         // that it was taken from, or NULL
};

#define RANGE_MAPPED (UINT32_C(1) << 31) // of the flags: kernels reach it
#define RANGE_IMPORTED (UINT32_C(1) << 29) // of device memory: another program's
#define RANGE_GAP (UINT32_C(1) << 28)      // no memory of the program's, but nothing is put there
#define RANGE_SYNC (UINT32_C(1) << 30)   // of device memory: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS

struct ranges {
	struct range_node *root;
};

// The range that has all of [at, at + size), or NULL.
struct range *ranges_find(const struct ranges *r, uint64_t at, uint64_t size);
// The first range that begins at an address or behind it, or NULL.
struct range *ranges_from(const struct ranges *r, uint64_t at);
// Takes the lowest size bytes between low and high; 0 if there are none. Who takes
// between the same low and high must always give the same align.
uint64_t ranges_take(struct ranges *r, uint64_t low, uint64_t high, uint64_t size, uint64_t align, CUcontext context);
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
enum { KNOWN_ANSWERS = 4096, KNOWN_BYTES = 512 }; // answers.c: how many, and of how many bytes each, the question as well

struct client {
	int device, socket;
	struct wire_ring *ring;
	uint8_t *arena;
	uint64_t ring_size, staging_size, bounce_size, arena_bytes; // read once: the other end may write there
	uint64_t base, size; // device addresses
	bool reserved;       // the program has nothing else there
	bool arena_shared;   // the worker has the data arena at the same address
	uint64_t memory;     // limit
	_Atomic uint32_t numbers;
	_Atomic int lost; // what every call answers once the worker is gone
	int contexts;     // that use it; under the attach_lock of its device

	// ring.c
	pthread_mutex_t send_lock;
	uint64_t tail, opened;
	uint32_t seq;
	uint64_t slot_end[WIRE_SLOTS + 1]; // where the message in each slot ends; of whoever has the slot
	uint64_t done_all;                 // ring_done: up to where everything is known to be done,
	struct {
		uint64_t stream, end;      // and all of a stream's; of some streams
	} done[DONE_STREAMS];
	pthread_mutex_t staging_lock; // taken before send_lock
	uint64_t staged;
	pthread_mutex_t slot_lock;
	pthread_cond_t slot_freed;
	uint16_t free_slots[WIRE_SLOTS];
	unsigned free_slot_count;
	pthread_mutex_t bounce_lock;
	pthread_cond_t bounce_freed;
	uint64_t *free_bounces; // offsets in the arena
	unsigned free_bounce_count;

	// memory.c
	pthread_mutex_t memory_lock; // taken before send_lock
	struct ranges allocations, variables, pinned, reservations;
	uint64_t allocated;

	// stream.c: what copies_note says
	_Atomic int side_streams;       // that do not wait for the legacy stream, ever made
	_Atomic uint32_t copied_event;  // 0: there is none
	_Atomic uint64_t copies;

	_Atomic size_t graph_bytes; // graph_whole.c: of definitions

	// managed.c; under its lock
	uint32_t managed_stream;   // for its copies; 0: there is none
	uint64_t managed_launched; // how often kernels were given managed memory
	uint64_t managed_work;     // the same, with copies
	bool managed_busy;         // some of that may not have ended
	_Atomic int deferred;      // a result that the next call which waits tells

	// printed.c
	pthread_mutex_t print_lock; // taken before those of ring.c

	// notices.c
	pthread_mutex_t notice_lock;
	_Atomic uint32_t notices_read;
	atomic_flag pinned_told;

	// answers.c
	pthread_mutex_t known_lock;
	struct known **known; // KNOWN_ANSWERS of them

	// timeline.c
	_Atomic bool recorded; // what its worker does

	// host.c
	pthread_mutex_t host_lock;
	struct host_call *host_calls, *host_last; // oldest first
	uint64_t host_cookies, host_failed; // the last of each: given, and of those that failed
	CUresult host_status;               // why they failed
	_Atomic int host_pending; // that have not returned
	_Atomic bool host_thread;
};

CUresult client_connect(void);                       // for cuInit
CUresult client_for(int device, struct client **out); // attaches at first use
struct client *client_at(int device);                // NULL before that
void client_forget_all(void);                        // in a child
bool client_gone(struct client *c);                  // looks at the other end
void client_drop(struct client *c);                  // one that is gone, when nothing is in it
void print_pending(struct client *c);                // printed.c: what kernels have printed

// --- ring.c: messages ---------------------------------------------------------

CUresult ring_open(struct client *c, enum wire_op op, size_t body, const struct wire_header *head, uint8_t **at);
void ring_close(struct client *c);

// What a stream, or ALL_STREAMS, was sent up to a message is done. The end of a message is where
// the ring goes on behind it: slot_end of its slot. What is known needs not be asked again.
#define ALL_STREAMS UINT64_MAX
void ring_done(struct client *c, uint64_t end, uint64_t stream);
bool ring_is_done(struct client *c, uint64_t end, uint64_t stream);
bool ring_idle(struct client *c, uint64_t stream); // up to the last message
bool ring_try(struct client *c, enum wire_op op);

struct answer {
	uint32_t size;
	uint8_t payload[240];
};

CUresult slot_take(struct client *c, uint16_t *slot);
void slot_give(struct client *c, uint16_t slot);
CUresult slot_wait(struct client *c, uint16_t slot, struct answer *answer);
CUresult slot_wait_briefly(struct client *c, uint16_t slot, struct answer *answer); // CUDA_ERROR_NOT_READY after a while
CUresult client_status(struct client *c);
CUresult client_deferred(struct client *c, CUresult result); // of a call that waits: or what another could not tell

// Copies a piece into staging memory; stage_end follows once the message with
// this header was sent.
CUresult stage_begin(struct client *c, const void *data, size_t size, struct wire_header *head);
void stage_end(struct client *c);
#define STAGE_PIECE ((size_t)1 << 20)
size_t stage_limit(const struct client *c);
// The same for data that the caller writes himself.
CUresult stage_room(struct client *c, size_t size, struct wire_header *head, uint8_t **at);

// What the device's driver answers to one of the questions, which device/device.go lists.
enum { ASK_TOPOLOGY = 1, ASK_TILED, ASK_IM2COL, ASK_REPLACED };
CUresult driver_ask(uint32_t what, const void *about, size_t size, void *answer, size_t room, size_t *length);

CUresult bounce_take(struct client *c, bool wait, uint64_t *offset);
void bounce_give(struct client *c, uint64_t offset);


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

// CALL_WAITS is a CALL that waits for a stream: without asking, where it is known to be idle.
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

struct local { // of a context, by key
	void *key, *value;
	void (*end)(CUcontext context, void *key, void *value);
};

// What the program has set for a stream: hints, which are only remembered.
struct stream_attributes {
	CUaccessPolicyWindow window;
	CUsynchronizationPolicy policy; // 0: none was set
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
	bool domains_set;
	int priority; // of the legacy stream; others have theirs
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

extern struct object *contexts; // that were not destroyed; under shim_lock

void contexts_start(void);
void contexts_forget_thread(void);
CUcontext context_current(void); // may be NULL
CUresult context_usable(CUcontext context);
CUresult context_need(CUcontext *context); // current and usable
size_t context_stack(CUcontext context);   // bytes of stack that a kernel's thread gets; 0: the worker's choice
CUresult context_client(CUcontext context, struct client **client);
void context_own(CUcontext context, void *object);
bool context_disown(void *object); // false if another thread was quicker

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
	struct captured *captured; // while it is captured; under the lock of captures
	_Atomic uint64_t copies;   // of its client, that its work waits for
};

struct CUevent_st {
	struct object object;
	unsigned flags;
	_Atomic bool recorded;
	uint64_t record_end, record_stream; // of the last record's message; under the client's send_lock
	struct shared_event *shared; // with other programs; NULL: nobody else has it
	_Atomic uint64_t own;        // number of the last record of this process's, if it is shared
	struct recorded *in_capture; // where it was last recorded, if that was a captured stream; under the same lock
};

// Where a stream's work goes.
struct target {
	CUcontext context;
	struct client *client;
	uint32_t stream;
	CUstream handle; // NULL: the legacy stream
	bool captured;   // the work is to be recorded
};

// For work that is never captured, and for what waits: an error in a captured stream.
CUresult target_of(CUstream stream, struct target *target);
// The same for what does not tell an invalidated capture from another.
CUresult target_uncaptured(CUstream stream, struct target *target);
// For work that is recorded in a captured stream.
CUresult target_work(CUstream stream, struct target *target);
// For questions.
CUresult target_named(CUstream stream, struct target *target);
CUresult target_current(struct target *target); // the legacy stream of the current context
// The same of a device: of the current context if it is of that device, else of the primary one.
CUresult target_on(int device, struct target *target);
CUresult target_wait(const struct target *target);
// A copy to the device that programs may think of as ended was given to a stream: later work of
// streams that do not wait for the legacy one waits for the copy.
CUresult copies_note(const struct target *target);
void copies_forget(struct client *c); // its events have gone
CUresult stream_create(CUstream *out, CUcontext context, unsigned flags, int priority);
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
// The name stays the object's, and is not there yet; false if there is no memory.
bool names_add(struct names *n, const char *name, void *object);
void names_clear(struct names *n);

// --- module.c -------------------------------------------------------------------

struct CUmod_st {
	struct object object;
	struct object *functions;
	struct names by_name; // the same
	uint64_t *variables;  // addresses that the program has asked for; under the client's memory_lock
	size_t variable_count, variable_room;
	uint32_t function_count;
	CUlibrary library; // whose image it is; NULL: programs load and unload it themselves
	bool sets_conditions; // of graphs
};

struct CUfunc_st {
	struct object object;
	CUmodule module;
	char *name;
	uint32_t params, param_size;
	uint32_t (*layout)[2]; // offset and size of each
	int max_threads, shared, local, registers, ptx, binary, constant;
	int max_dynamic, carveout;
	// Of blocks that run together: as it was compiled or set (0: the launch says), and
	// whether a launch has to say it, may have more than eight, and how it wants them placed.
	int cluster[3], cluster_needed, large_cluster, cluster_policy;
};

#define IMAGE_UNLIMITED SIZE_MAX // of an image whose headers alone say how long it is

CUresult image_bounds(const void *image, size_t limit, const void **start, size_t *size);
// If the image is refused and log is not NULL, *log is what was wrong with it; the
// caller frees it.
CUresult module_load(CUcontext context, const void *image, size_t limit, char **log, CUmodule *module);
CUresult module_function(CUmodule module, const char *name, CUfunction *function);
CUresult module_global(CUmodule module, const char *name, CUdeviceptr *address, size_t *bytes);
CUresult module_names(CUmodule module, char **names, uint32_t *functions);
void module_release(CUmodule module, bool tell);
CUresult file_read(const char *path, void **data, size_t *size);

struct jit { // options of whoever has an image compiled
	unsigned count;
	CUjit_option *options;
	void **values;
	size_t info_room, error_room; // of the logs: their values are overwritten by the answer
	struct timespec began;
};

struct jit jit_options(unsigned count, CUjit_option *options, void **values);
bool jit_options_exist(const struct jit *jit);
void **jit_value(const struct jit *jit, CUjit_option option); // NULL: it is not there
void jit_begin(struct jit *jit);                             // from now on it takes time
void jit_answer(const struct jit *jit, const char *errors);  // NULL: there are none
CUresult jit_answer_load(const struct jit *jit, CUresult result, char *log); // of what has ended; the log is given back

CUresult image_send(struct client *c, uint32_t number, const uint8_t *image, size_t size); // in pieces
char *image_log(struct client *c, uint32_t number); // what was wrong with it; NULL if the worker does not say

// library.c: a function's handle may be that of a kernel of a library.
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

// The client that has all of these bytes; preferred is asked first.
struct client *memory_owner(struct client *preferred, CUdeviceptr at, size_t size);
CUresult memory_free(struct client *c, CUdeviceptr at);
CUresult memory_copy(struct client *client, uint64_t to, uint64_t from, uint64_t size);
void memory_mark(struct client *client, uint64_t at, struct allocation *mapped);
bool memory_range(struct client *client, uint64_t at, uint64_t size, struct range *range);
uint64_t memory_reserved(struct client *client); // where addresses begin that programs reserve
// Allocates whole pages, which no other allocation shares.
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
uint64_t memory_choose(struct client *c, size_t size, CUcontext context); // these three under the memory_lock
void memory_charge(struct client *c, uint64_t size);
void memory_forget(struct client *c, uint64_t at); // without telling the worker
void virtual_forget_all(void);
void pools_forget_all(void);

// --- ipc.c, ipc_event.c -------------------------------------------------------------

void ipc_freed(struct client *c, uint64_t at); // under the memory_lock
// values.c: operations on words that streams write and wait for.
CUresult words_check(unsigned count, const CUstreamBatchMemOpParams *list);
CUresult words_post(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list);

// wide.c: memcpy, by several threads where that is faster.
void wide_copy(void *to, const void *from, size_t size);
void wide_forget_all(void);

bool pool_is_shared(CUmemoryPool pool); // whose memory other programs may have
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

void mapped_end(struct client *c, struct range *range); // under the memory_lock
void mapped_scan(struct client *c, const void *params, size_t size); // of a kernel
CUresult mapped_reach(struct client *c, uint64_t host, CUdeviceptr *device); // has kernels reach memory of the host
void moved_end(uint64_t at);
void moved_release(CUcontext context);
void moved_forget_all(void);
bool pinned_moving(void);      // pages are being replaced, or were
bool pinned_wait(uint64_t at); // until that is over, if the address is one of theirs

CUresult copy_in(struct client *c, uint32_t stream, CUdeviceptr to, const void *from, size_t size, bool wait);
CUresult copy_out(struct client *c, uint32_t stream, void *to, CUdeviceptr from, size_t size, bool wait);
// The same for handlers of signals: nothing is printed. It waits.
CUresult copy_out_quietly(struct client *c, uint32_t stream, void *to, CUdeviceptr from, size_t size);

// --- managed.c --------------------------------------------------------------------

// Around the message that launches kernels of a stream: they find what the host has
// written, and no thread brings it to the host before they are known of.
CUresult managed_begin(struct client *c, uint32_t stream, bool *held);
void managed_end(struct client *c, bool held);
// Before a message that reads or writes device memory which may be managed.
CUresult managed_touch(CUdeviceptr at, size_t size, bool written);
CUresult managed_give_all(struct client *c, bool written);
void managed_returned(struct client *c); // a function of the program's, for a stream
void managed_watch(void);
void managed_handle_faults(void);
bool managed_has(CUdeviceptr at);
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

// Checks a copy and finds out how its sides lie. Of a copy of nothing, nothing is checked.
CUresult copy_sides(const struct target *t, const CUDA_MEMCPY3D *copy, struct side *to, struct side *from);
// Copies between devices: at once, behind what the stream has been given.
CUresult copy_across(const struct target *t, CUdeviceptr to, CUdeviceptr from, size_t size);
// The bytes from the first to the last of some rows; false if that is no number.
bool extent(size_t pitch, size_t width, size_t height, size_t *size);
// Whether a fill makes sense; anywhere: whatever lies at its address.
CUresult fill_check(const struct target *t, CUdeviceptr at, size_t pitch, uint32_t width, size_t count, size_t height, bool anywhere);
void fill_host(uint8_t *at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height);

// --- array.c, texture.c -----------------------------------------------------------

// An array: memory of the client's, in rows without gaps. One level of a mipmap is an
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

// The same for a function that gives streams work, which is done once: a program whose
// worker dies in between cannot go on.
CUresult host_submit_once(const struct target *t, CUhostFn function, void *data);
CUresult host_submit(const struct target *target, CUhostFn function, void *data);
// The callback is called if work before it failed, too.
CUresult host_callback(const struct target *target, CUstreamCallback callback, void *data);
uint64_t host_cookie(struct client *c); // a number that no function has
void host_stop(struct client *c);
void host_fail(struct client *c); // before a fault is cleared
bool host_calling(void); // whether this thread runs a function of the program for a stream

// --- capture.c ----------------------------------------------------------------------

extern _Atomic int captures; // that have begun and not ended: most calls look no further

// What a call answers that threads must not make while others, or they themselves,
// capture; such a capture is then invalid.
CUresult capture_unsafe(void);
// The same for calls that wait for all of a context.
CUresult capture_waits(CUcontext context);
CUresult capture_work(struct target *t); // finds out whether work is recorded
CUresult capture_kernel(const struct target *t, CUfunction function, const struct launch *launch, const uint8_t *bytes);
CUresult capture_copy(const struct target *t, const CUDA_MEMCPY3D *copy);
CUresult capture_fill(const struct target *t, CUdeviceptr at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height);
CUresult capture_words(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list);
CUresult capture_host(const struct target *t, CUhostFn function, void *data);
CUresult capture_alloc(const struct target *t, size_t size, CUdeviceptr *address);
CUresult capture_free(const struct target *t, CUdeviceptr address);
CUresult capture_record(const struct target *t, CUevent event, bool external);
// A stream waits for an event; *done says that nothing is left to be done.
CUresult capture_wait(const struct target *t, CUevent event, bool external, bool *done);
CUresult capture_event(CUevent event); // what its state is while it was last recorded in a capture
CUresult capture_event_time(CUevent event); // the same for its time: the capture stays what it is
CUresult capture_refused(const struct target *t, CUresult why); // of work that is wrong
void capture_forget_event(CUevent event);
void capture_forget_stream(CUstream stream);
void capture_forget_all(void);

// --- graph_condition.c ------------------------------------------------------------------

// PTX text that lets kernels set conditions of graphs, made of an image that wants it; false if it is
// none. The caller frees the text.
bool condition_defines(const void *image, size_t size, char **text, size_t *length);
void conditions_forget_all(void); // in a child

// --- graph_memory.c -------------------------------------------------------------------

// What cuMemFree and cuMemFreeAsync do with memory of graphs; false if it is none.
bool graph_memory_free(CUdeviceptr address, CUresult *result);
CUresult memory_allocate(struct target *t, size_t size, CUdeviceptr *address);

// --- md2.c, proc.c ----------------------------------------------------------------

void md2(const void *data, size_t size, uint8_t digest[16]);
void hmac_md2(const uint8_t *key, size_t key_size, const void *data, size_t size, uint8_t digest[16]);

struct proc_entry {
	const char *name;
	int since;
	void *function, *per_thread; // for programs whose default stream is one of each thread
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
