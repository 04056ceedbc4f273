// The layer of clients and messages: the connection to the daemon, the ring to the worker, and what
// the library reads from a worker by itself (notices, text of kernels, the timeline).
#ifndef MUSTER_TRANSPORT_H
#define MUSTER_TRANSPORT_H

#include "../basis/basis.h"
#include "wire_gen.h"

// --- watch.c, timeline.c: where the time went -------------------------------------------

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
void watch_sent(int device, uint32_t seq);
static inline bool watching(void) { return __builtin_expect((shim_watch & WATCH_TIMELINE) != 0, 0); }
// Callers put these two around a wait. watch_wait returns when the wait began, for
// watch_ended, or 0 while no timeline is recorded.
static inline int64_t watch_wait(void) { return watching() ? watch_now() : 0; }
static inline void watch_ended(int64_t since, enum watch_wait what) {
	if (__builtin_expect(since != 0, 0))
		watch_waited(since, what);
}
void watch_start(void);
void watch_in_child(void);
bool watch_recording(void);
void watch_finish(void);
// What a node did, as its worker tells it (timeline.c).
void watch_keep(int device, const uint8_t *records, size_t size);
void watch_keep_clock(int device, int64_t before, int64_t after, uint64_t theirs);
void watch_lost(uint64_t records);
void timeline_attached(struct client *c);
void timeline_end(void);
void timeline_in_child(void);

// --- notices.c: reasons, for the user -------------------------------------------

// Prints the notices that workers have left about a result, and returns the result. The
// caller must hold no lock.
CUresult notices_print(CUresult result);
// Prints new notices of one worker while a call waits: they say what the call waits for.
void notices_prepare(struct client *c);
void notices_while_waiting(struct client *c);
// Prints what nothing has printed yet, unless another thread is just doing so. What belongs to no
// failing call (why a launch was mapped to which device) would be lost with short programs.
void notices_at_exit(struct client *c);

// --- client.c: connection and set-up --------------------------------------------

#define MAX_DEVICES 64
#define MAX_ATTRIBUTE 160

struct device {
	uint64_t memory;
	char name[128];
	uint8_t uuid[16];
	int attributes[MAX_ATTRIBUTE];
};

extern struct device devices[MAX_DEVICES];
extern int device_count, driver_version;

enum { DONE_STREAMS = 64 };

struct ring_mark { // a message in the ring
	uint64_t end, stream; // the position behind it, and the stream that it is for
};

enum { KNOWN_ANSWERS = 4096, KNOWN_BYTES = 512 }; // answers.c: entries; most bytes of a question, and of an answer

// Each part of a client belongs to the file that it names, which alone touches it.

struct ring { // ring.c: the messages
	uint64_t size;         // copied and checked: the worker can write to the original
	pthread_mutex_t lock;  // protects the sending end: what follows
	uint64_t tail, opened; // bytes published; size of the message being written, padded
	uint32_t seq;
	uint64_t slot_end[WIRE_SLOTS + 1]; // position behind the message that waits for each slot; only the owner of the slot reads it
	uint64_t done_all;                 // ring_done: all messages up to this position are known to be done,
	struct ring_mark done[DONE_STREAMS]; // and those of a stream up to its end: a cache, by stream % DONE_STREAMS
};

struct slots { // ring.c: for the answers
	pthread_mutex_t lock;
	pthread_cond_t freed;
	uint16_t free[WIRE_SLOTS];
	unsigned free_count;
};

struct staging { // ring.c: data to the worker
	pthread_mutex_t lock; // protects taken, from stage_begin to stage_end
	uint64_t taken;       // bytes so far
};

struct bounces { // ring.c: buffers for data from the worker
	pthread_mutex_t lock;
	pthread_cond_t freed;
	bool *taken; // each of them
};

struct arena { // client.c: memory of both, with the staging memory first, then the bounce buffers, then pinned memory
	uint8_t *at;
	uint64_t bytes, staging, bounce; // of all, of staging memory, of bounce buffers; copied and checked as well
	bool same_address;               // the worker has it at the same address
};

struct granted { // client.c: what the daemon has said
	uint64_t base, size; // device addresses
	bool reserved;       // the host's address space is reserved there, so host and device addresses never collide
	uint64_t memory;     // most bytes that the program may allocate
};

struct notices { // notices.c
	pthread_mutex_t lock; // protects printing of notices, and of the reason when lost is set
	_Atomic uint32_t read;
	_Atomic int lost;     // 0, or the result that every call returns because the worker is gone
	_Atomic int deferred; // an error that no call could return: the next call that waits returns it
};

struct answers { // answers.c
	pthread_mutex_t lock;
	struct known **known; // KNOWN_ANSWERS of them
};

struct client {
	int device, socket;
	struct wire_ring *shared; // with the worker: wire.h says who writes what
	_Atomic uint32_t numbers; // the next number of a stream, event, function ...; never used twice
	struct granted granted;
	struct arena arena;
	struct ring ring;
	struct slots slots;
	struct staging staging;
	struct bounces bounces;
	struct notices notices;
	struct answers answers;
	pthread_mutex_t print_lock; // printed.c: held while text is fetched and written, so that it stays in order
	_Atomic bool recorded;      // timeline.c: the worker records what it does for this client
	_Alignas(16) uint8_t parts[]; // of the layers above (client_part)
};

// A file of a layer above keeps what it has of each client in a part of its own. It registers the part's size when the
// library is loaded, and begin prepares the part, which is zero, of a new client.
size_t client_register(size_t size, void (*begin)(void *part));
static inline void *client_part(struct client *c, size_t part) { return c->parts + part; }

static inline uint32_t client_number(struct client *c) { return atomic_fetch_add(&c->numbers, 1); }
static inline CUresult client_lost(struct client *c) { return (CUresult)atomic_load(&c->notices.lost); }

// What the user can do when the daemon has ended without a word.
#define START_AGAIN "if muster ps finds no node, start one with muster node (or systemctl start muster), then start the program again"

CUresult client_connect(void);                       // for cuInit
CUresult client_for(int device, struct client **out); // attaches at first use
void client_publish(struct client *c);
bool client_withdraw(struct client *c); // false if another thread has done it
struct client *client_at(int device);                // NULL while the process is not attached
void client_forget_all(void);                        // in a child
bool client_gone(struct client *c);                  // looks whether the worker has closed the ring or the socket
void client_drop(struct client *c);                  // forgets a client that is lost and that no context uses
void print_pending(struct client *c);                // printed.c: writes what kernels have printed

// --- ring.c: messages ---------------------------------------------------------

bool ring_prepare(struct client *c, uint64_t size);
CUresult ring_open(struct client *c, enum wire_op op, size_t body, const struct wire_header *head, uint8_t **at);
void ring_close(struct client *c);
void ring_close_marked(struct client *c, uint64_t stream, struct ring_mark *mark); // the same, and says which message it was
// Whether a message, which *mark names under the ring's lock, is known to be done; and that mark.
bool ring_mark_done(struct client *c, const struct ring_mark *mark, struct ring_mark *now);

// ring_done notes that all messages to a stream (or to ALL_STREAMS) up to a position of the ring
// are done; a message ends at slot_end of its slot. A call that would wait for no more than that
// need not ask the worker. ring_mark_done and ring_idle also check that the client has not failed.
#define ALL_STREAMS UINT64_MAX
void ring_done(struct client *c, uint64_t end, uint64_t stream);
bool ring_idle(struct client *c, uint64_t stream); // up to the last message
bool ring_try(struct client *c, enum wire_op op);  // sends a message without a body, or returns false rather than wait

struct answer {
	uint32_t size;
	uint8_t payload[240];
};

CUresult slot_take(struct client *c, uint16_t *slot);
static inline uint64_t slot_end(const struct client *c, uint16_t slot) { return c->ring.slot_end[slot]; } // before slot_wait, which gives the slot back
void slot_give(struct client *c, uint16_t slot);
// Says before a wait of this thread that what it waits for ends with a copy of so many bytes.
void slot_expect(size_t bytes);
CUresult slot_wait(struct client *c, uint16_t slot, struct answer *answer);
CUresult slot_wait_briefly(struct client *c, uint16_t slot, struct answer *answer, bool *soon); // soon: whether the last answer came, and then whether this one came, soon. CUDA_ERROR_NOT_READY after 100 ms, and the caller keeps the slot
CUresult client_status(struct client *c); // the error that ended the client, or the fault that it has not cleared
void client_defer(struct client *c, CUresult result); // keeps an error for the next call that waits
CUresult client_deferred(struct client *c, CUresult result); // the result of a call that waits, or else the deferred error

// Copies a piece of at most stage_limit bytes, or stage_piece of a larger copy, into staging memory, and fills in the header of the
// message that tells of it. On success the lock of staging is held until stage_end, which the
// caller calls when it has sent the message.
CUresult stage_begin(struct client *c, const void *data, size_t size, struct wire_header *head);
void stage_end(struct client *c);
#define STAGE_PIECE ((size_t)1 << 20)
size_t stage_limit(const struct client *c);
size_t stage_piece(const struct client *c, size_t size);
// The same for data that the caller writes to *at itself.
CUresult stage_room(struct client *c, size_t size, struct wire_header *head, uint8_t **at);

CUresult bounce_take(struct client *c, bool wait, uint64_t *offset);
void bounce_give(struct client *c, uint64_t offset);
// The same for buffers that lie side by side: as many as *count if they are free, but at least one.
CUresult bounces_take(struct client *c, bool wait, unsigned *count, uint64_t *offset);
void bounces_give(struct client *c, uint64_t offset, unsigned count);

// --- answers.c: answers that are always the same ---------------------------------

bool answers_prepare(struct client *c);
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
				uint64_t end_ = slot_end(client, h_.slot); \
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

// ASK is a CALL whose answer has fields, which it reads; a reply that cannot be read is CUDA_ERROR_UNKNOWN. ASK_ONCE is
// the same for CALL_ONCE.
#define READ_REPLY(name, asked, answer, reply) \
	__extension__({ \
		CUresult read_ = (asked); \
		struct wire_reader r_ = {(answer)->payload, (answer)->payload + (answer)->size, false}; \
		if (read_ == CUDA_SUCCESS && !wire_##name##_reply_get(&r_, reply)) \
			read_ = CUDA_ERROR_UNKNOWN; \
		read_; \
	})

#define ASK(client, OP, name, message, head, reply) \
	__extension__({ \
		struct answer got_; \
		got_.size = 0; \
		READ_REPLY(name, CALL(client, OP, name, message, head, &got_), &got_, reply); \
	})

#define ASK_ONCE(client, OP, name, message, reply) \
	__extension__({ \
		struct answer got_; \
		got_.size = 0; \
		READ_REPLY(name, CALL_ONCE(client, OP, name, message, &got_), &got_, reply); \
	})

#define NO_DATA (&(const struct wire_header){0})

#endif
