// Messages to the worker through shared memory, and waiting for its answers. Layer: transport.
//
// Three flows share the memory, each with one writer and one reader of every word (wire.h marks
// them):
//   messages  the library writes at tail under the ring's lock and publishes tail with release order;
//             the worker advances head when it has read a message.
//   staging   data for messages. A message's release says how far the staging ring is free once
//             the worker has read it. So messages must be sent in the order of their pieces, which
//             is why the lock of staging is held from stage_begin until the message is sent.
//   answers   a call owns a slot from slot_take until take_answer. The worker writes the answer and
//             then sets the state to WIRE_DONE with release order.
// A side that goes to sleep says so in a word (client_waits, worker_waits, WIRE_SLEEPING), then
// looks once more, then sleeps on that word. The other side publishes, then reads the word. Both
// pairs are sequentially consistent, so at least one of them sees the other and no wake-up is
// lost.
#include "../basis/spin.h"
#include "transport.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// How often a waiting thread polls before it sleeps. The number doubles after a sleep shorter than
// A_MOMENT (100 us times patience), which polling would have avoided, and halves after a longer one.
// Every LEAST_SPINS polls the thread yields, since the worker may need this processor. With
// FEW_CORES or more processors a thread polls up to FACTOR times longer, some 800 us: NVIDIA's
// library polls until the end, and a thread that sleeps wakes late.
enum { LEAST_SPINS = SPINS, MOST_SPINS = 1024, A_MOMENT = 100 * 1000, FEW_CORES = 4, FACTOR = 16 };

static _Atomic int spins = LEAST_SPINS;

// By how much polling is extended: 1 with few processors, otherwise FACTOR.
static int patience(void) {
	static _Atomic int known;
	int factor = atomic_load_explicit(&known, memory_order_relaxed);
	if (factor == 0) {
		factor = sysconf(_SC_NPROCESSORS_ONLN) < FEW_CORES ? 1 : FACTOR;
		atomic_store_explicit(&known, factor, memory_order_relaxed);
	}
	return factor;
}

static void slept_since(int64_t start) {
	int n = atomic_load_explicit(&spins, memory_order_relaxed), most = MOST_SPINS * patience();
	if (nanoseconds() - start < A_MOMENT * patience())
		n = 2 * n < most ? 2 * n : most;
	else
		n = n / 2 > LEAST_SPINS ? n / 2 : LEAST_SPINS;
	atomic_store_explicit(&spins, n, memory_order_relaxed);
}

static inline void pause_briefly(int i) {
	if (i % LEAST_SPINS == 0) {
		sched_yield();
		return;
	}
	breathe();
}

// Sleeps while the word has this value, for 100 ms at most: the worker that should wake the thread
// may be gone, and callers look for that after each sleep.
static void futex_wait(uint32_t *word, uint32_t value) {
	struct timespec limit = {.tv_nsec = 100 * 1000 * 1000};
	syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

static void futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

bool ring_prepare(struct client *c, uint64_t size) {
	c->ring.size = size;
	pthread_mutex_init(&c->ring.lock, NULL);
	pthread_mutex_init(&c->slots.lock, NULL);
	pthread_cond_init(&c->slots.freed, NULL);
	for (unsigned i = 0; i < WIRE_SLOTS; i++)
		c->slots.free[c->slots.free_count++] = (uint16_t)(WIRE_SLOTS - i);
	pthread_mutex_init(&c->staging.lock, NULL);
	pthread_mutex_init(&c->bounces.lock, NULL);
	pthread_cond_init(&c->bounces.freed, NULL);
	c->bounces.taken = calloc(c->arena.bounce / WIRE_BOUNCE, sizeof *c->bounces.taken);
	return c->bounces.taken != NULL;
}

static bool has_room(uint64_t *word, uint64_t used, uint64_t size) {
	return used - __atomic_load_n(word, __ATOMIC_ACQUIRE) <= size;
}

// Waits until at most size bytes lie between the worker's position and used: then the bytes up to
// used may be written. The caller holds the ring's lock or that of staging.
static CUresult wait_room(struct client *c, uint64_t *word, uint64_t used, uint64_t size) {
	for (int i = atomic_load_explicit(&spins, memory_order_relaxed); i > 0 && !has_room(word, used, size); i--)
		pause_briefly(i);
	if (has_room(word, used, size))
		return CUDA_SUCCESS;
	int64_t start = nanoseconds(), watched = watch_wait();
	while (!has_room(word, used, size)) {
		__atomic_store_n(&c->shared->client_waits, 1, __ATOMIC_SEQ_CST);
		if (has_room(word, used, size))
			break;
		futex_wait(&c->shared->client_waits, 1);
		notices_while_waiting(c);
		if (!has_room(word, used, size) && client_gone(c))
			return client_lost(c);
	}
	slept_since(start);
	watch_ended(watched, word == &c->shared->head ? WAIT_RING : WAIT_STAGING);
	return CUDA_SUCCESS;
}

// Lets the worker see the message at the tail. The fence orders the new tail before the look at
// worker_waits; see the head of this file.
static void publish(struct client *c, uint64_t size) {
	c->ring.tail += size;
	__atomic_store_n(&c->shared->tail, c->ring.tail, __ATOMIC_RELEASE);
	atomic_thread_fence(memory_order_seq_cst);
	if (__atomic_load_n(&c->shared->worker_waits, __ATOMIC_RELAXED) != 0 && __atomic_exchange_n(&c->shared->worker_waits, 0, __ATOMIC_SEQ_CST) != 0)
		futex_wake(&c->shared->worker_waits);
}

// Makes room for a message, writes its header and returns where the body goes. Messages do not
// wrap: if the rest of the ring is too short, a pad message fills it. The caller holds the ring's lock.
static CUresult open_locked(struct client *c, enum wire_op op, uint64_t size, const struct wire_header *head, uint8_t **at) {
	uint64_t padded = (size + 7) & ~UINT64_C(7), ring_size = c->ring.size;
	uint8_t *messages = (uint8_t *)c->shared + WIRE_RING_AT;
	uint64_t offset = c->ring.tail & (ring_size - 1);
	CUresult result;
	if (offset + size > ring_size) {
		uint64_t rest = ring_size - offset;
		result = wait_room(c, &c->shared->head, c->ring.tail + rest, ring_size);
		if (result != CUDA_SUCCESS)
			return result;
		uint32_t pad[2] = {(uint32_t)rest, WIRE_PAD};
		memcpy(messages + offset, pad, sizeof pad);
		publish(c, rest);
		offset = 0;
	}
	result = wait_room(c, &c->shared->head, c->ring.tail + padded, ring_size);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_header header = {
		.size = (uint32_t)size,
		.op = (uint16_t)op,
		.slot = head->slot,
		.seq = c->ring.seq++,
		.data = head->data,
		.length = head->length,
		.release = head->release,
	};
	memcpy(messages + offset, &header, WIRE_HEADER);
	c->ring.opened = padded;
	if (watching())
		watch_sent(c->device, header.seq);
	if (head->slot != 0)
		c->ring.slot_end[head->slot] = c->ring.tail + padded;
	*at = messages + offset + WIRE_HEADER;
	return CUDA_SUCCESS;
}

// Begins a message. On success the ring's lock is held until ring_close, so the caller must only write
// the body meanwhile. After a fault only messages with wire_after_fault are sent.
CUresult ring_open(struct client *c, enum wire_op op, size_t body, const struct wire_header *head, uint8_t **at) {
	CUresult result = client_status(c);
	if (result != CUDA_SUCCESS && (client_lost(c) != CUDA_SUCCESS || !wire_after_fault(op)))
		return result;
	if (body > WIRE_MAX_MESSAGE - WIRE_HEADER)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&c->ring.lock);
	result = open_locked(c, op, WIRE_HEADER + body, head, at);
	if (result != CUDA_SUCCESS)
		pthread_mutex_unlock(&c->ring.lock);
	return result;
}

// Sends a message without a body if that needs no waiting, for the end of the process: another
// thread may have stopped for good with the lock held. Room for WIRE_MAX_MESSAGE covers the pad.
bool ring_try(struct client *c, enum wire_op op) {
	if (client_gone(c) || pthread_mutex_trylock(&c->ring.lock) != 0)
		return false;
	uint8_t *at;
	bool room = has_room(&c->shared->head, c->ring.tail + WIRE_MAX_MESSAGE, c->ring.size) && open_locked(c, op, WIRE_HEADER, NO_DATA, &at) == CUDA_SUCCESS;
	if (room)
		publish(c, c->ring.opened);
	pthread_mutex_unlock(&c->ring.lock);
	return room;
}

void ring_close(struct client *c) {
	publish(c, c->ring.opened);
	pthread_mutex_unlock(&c->ring.lock);
}

void ring_close_marked(struct client *c, uint64_t stream, struct ring_mark *mark) {
	*mark = (struct ring_mark){c->ring.tail + c->ring.opened, stream};
	ring_close(c);
}

void ring_done(struct client *c, uint64_t end, uint64_t stream) {
	pthread_mutex_lock(&c->ring.lock);
	uint64_t *known = &c->ring.done_all;
	if (stream != ALL_STREAMS) { // replaces another stream in the same place of the cache
		known = &c->ring.done[stream % DONE_STREAMS].end;
		if (end > *known)
			c->ring.done[stream % DONE_STREAMS].stream = stream;
	}
	if (end > *known)
		*known = end;
	pthread_mutex_unlock(&c->ring.lock);
}

static bool done_locked(const struct client *c, uint64_t end, uint64_t stream) {
	if (c->ring.done_all >= end)
		return true;
	return stream != ALL_STREAMS && c->ring.done[stream % DONE_STREAMS].stream == stream && c->ring.done[stream % DONE_STREAMS].end >= end;
}

// What is known counts only while the client works: after a fault, or the worker's end, the caller
// must ask and get the error.
static bool tells(struct client *c) { return client_status(c) == CUDA_SUCCESS && !client_gone(c); }

bool ring_mark_done(struct client *c, const struct ring_mark *mark, struct ring_mark *now) {
	pthread_mutex_lock(&c->ring.lock);
	*now = *mark;
	bool done = done_locked(c, now->end, now->stream);
	pthread_mutex_unlock(&c->ring.lock);
	return done && tells(c);
}

bool ring_idle(struct client *c, uint64_t stream) {
	pthread_mutex_lock(&c->ring.lock);
	bool idle = c->ring.tail > 0 && done_locked(c, c->ring.tail, stream);
	pthread_mutex_unlock(&c->ring.lock);
	return idle && tells(c);
}

// --- answers --------------------------------------------------------------------

static struct wire_slot *slot_at(struct client *c, uint16_t slot) {
	return (struct wire_slot *)((uint8_t *)c->shared + WIRE_SLOTS_AT) + (slot - 1);
}

// Waits on a condition for at most 100 ms; false if the client is gone. Another thread's
// slot_give or bounce_give signals it. The caller holds the lock and looks again.
static bool wait_for_other(struct client *c, pthread_cond_t *condition, pthread_mutex_t *lock) {
	struct timespec limit;
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_nsec += 100 * 1000 * 1000;
	limit.tv_sec += limit.tv_nsec / 1000000000;
	limit.tv_nsec %= 1000000000;
	int64_t watched = watch_wait();
	pthread_cond_timedwait(condition, lock, &limit);
	watch_ended(watched, WAIT_OTHERS);
	return !client_gone(c);
}

// Sets the state, and keeps the upper bits: they are the worker's, and number the message that it
// answered last.
static void set_state(struct wire_slot *s, uint32_t state) {
	uint32_t word = __atomic_load_n(&s->state, __ATOMIC_RELAXED);
	__atomic_store_n(&s->state, (word & ~WIRE_STATE) | state, __ATOMIC_RELAXED);
}

CUresult slot_take(struct client *c, uint16_t *slot) {
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&c->slots.lock);
	while (c->slots.free_count == 0 && result == CUDA_SUCCESS)
		if (!wait_for_other(c, &c->slots.freed, &c->slots.lock))
			result = client_lost(c);
	if (result == CUDA_SUCCESS) {
		*slot = c->slots.free[--c->slots.free_count];
		set_state(slot_at(c, *slot), WIRE_PENDING);
	}
	pthread_mutex_unlock(&c->slots.lock);
	return result;
}

void slot_give(struct client *c, uint16_t slot) {
	set_state(slot_at(c, slot), WIRE_FREE);
	pthread_mutex_lock(&c->slots.lock);
	c->slots.free[c->slots.free_count++] = slot;
	pthread_cond_signal(&c->slots.freed);
	pthread_mutex_unlock(&c->slots.lock);
}

static bool is_done(const struct wire_slot *s) { return (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) & WIRE_STATE) == WIRE_DONE; }

// Copies the answer and gives the slot back. The size is the worker's word, so it is limited.
static CUresult take_answer(struct client *c, uint16_t slot, struct answer *answer) {
	struct wire_slot *s = slot_at(c, slot);
	CUresult result = (CUresult)s->result;
	if (answer != NULL) {
		uint32_t size = __atomic_load_n(&s->size, __ATOMIC_RELAXED);
		answer->size = size < sizeof answer->payload ? size : sizeof answer->payload;
		memcpy(answer->payload, s->payload, answer->size);
	}
	slot_give(c, slot);
	return result;
}

static void look_often(struct wire_slot *s) {
	for (int i = atomic_load_explicit(&spins, memory_order_relaxed); i > 0 && !is_done(s); i--)
		pause_briefly(i);
}

// How many bytes the answer that this thread waits for next tells of; 0: no copy.
static _Thread_local size_t expected;

// A large copy takes as long as its bytes need on the bus, and waking up late would add a tenth to
// that: the thread looks for as long as a slow bus takes, and LONG_COPY nanoseconds at most.
enum { SLOW_BUS = 20, LONG_COPY = 10 * 1000 * 1000 }; // SLOW_BUS: bytes in a nanosecond

void slot_expect(size_t bytes) { expected = patience() > 1 ? bytes : 0; }

static void look_until(struct wire_slot *s, int64_t end) {
	while (!is_done(s) && nanoseconds() < end)
		for (int i = LEAST_SPINS - 1; i > 0 && !is_done(s); i--)
			pause_briefly(i);
}

static void look_for_copy(struct wire_slot *s) {
	size_t long_copy = LONG_COPY, takes = expected / SLOW_BUS;
	expected = 0;
	if (takes == 0)
		return;
	look_until(s, nanoseconds() + (int64_t)(takes < long_copy ? takes : long_copy));
}

// Sleeps until the answer is there, for 100 ms at most. The exchange fails if the worker has
// answered in between; then word is WIRE_DONE and the thread does not sleep.
static void doze(struct wire_slot *s) {
	uint32_t word = __atomic_load_n(&s->state, __ATOMIC_SEQ_CST), asleep = word | WIRE_SLEEPING;
	if ((word & WIRE_STATE) == WIRE_PENDING)
		__atomic_compare_exchange_n(&s->state, &word, asleep, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	if ((word & WIRE_STATE) != WIRE_DONE)
		futex_wait(&s->state, asleep);
}

// Sleeps until the answer is there; false if the client is gone and none will come.
static bool sleep_for_answer(struct client *c, struct wire_slot *s) {
	int64_t start = nanoseconds();
	while (!is_done(s)) {
		doze(s);
		if (!is_done(s))
			notices_while_waiting(c);
		if (!is_done(s) && client_gone(c))
			return false;
	}
	notices_while_waiting(c); // a program that never waits for long sees them too
	slept_since(start);
	return true;
}

CUresult slot_wait(struct client *c, uint16_t slot, struct answer *answer) {
	struct wire_slot *s = slot_at(c, slot);
	int64_t watched = watch_wait();
	look_often(s);
	look_for_copy(s);
	// If the client is gone the slot stays taken: the worker might still write to it.
	bool answered = is_done(s) || sleep_for_answer(c, s);
	watch_ended(watched, WAIT_ANSWER);
	if (!answered)
		return client_lost(c);
	return take_answer(c, slot, answer);
}

// SOON is for how long, in nanoseconds, a thread looks for an answer if the last one came as soon.
enum { SOON = 300 * 1000 };

CUresult slot_wait_briefly(struct client *c, uint16_t slot, struct answer *answer, bool *soon) {
	struct wire_slot *s = slot_at(c, slot);
	int64_t start = nanoseconds();
	look_often(s);
	if (*soon && patience() > 1)
		look_until(s, start + SOON);
	if (!is_done(s))
		doze(s);
	*soon = is_done(s) && nanoseconds() < start + SOON;
	if (is_done(s))
		return take_answer(c, slot, answer);
	return client_gone(c) ? client_lost(c) : CUDA_ERROR_NOT_READY;
}

// --- data ------------------------------------------------------------------------

// A quarter of the staging memory at most, so that the worker reads one piece while the library
// writes the next.
size_t stage_limit(const struct client *c) { return c->arena.staging / 4 < STAGE_PIECE ? c->arena.staging / 4 : STAGE_PIECE; }

// An eighth of the copy, so that the device is at work early, but no less than it takes to keep it
// busy meanwhile, and at most a quarter of the staging memory: several threads write a piece, and
// wait for each other at its end.
size_t stage_piece(const struct client *c, size_t size) {
	size_t least = stage_limit(c), most = c->arena.staging / 4, piece = (size / 8 + 4095) & ~(size_t)4095;
	return piece < least ? least : piece > most ? most : piece;
}

CUresult stage_room(struct client *c, size_t size, struct wire_header *head, uint8_t **at) {
	pthread_mutex_lock(&c->staging.lock);
	// Staging memory is only released by a message that was sent. After a fault messages are
	// refused, and without this check the memory would run out.
	CUresult result = client_status(c);
	if (result != CUDA_SUCCESS) {
		pthread_mutex_unlock(&c->staging.lock);
		return result;
	}
	uint64_t offset = c->staging.taken % c->arena.staging;
	if (offset + size > c->arena.staging) {
		c->staging.taken += c->arena.staging - offset;
		offset = 0;
	}
	result = wait_room(c, &c->shared->staging_head, c->staging.taken + size, c->arena.staging);
	if (result != CUDA_SUCCESS) {
		pthread_mutex_unlock(&c->staging.lock);
		return result;
	}
	c->staging.taken += size;
	*head = (struct wire_header){.data = offset, .length = size, .release = c->staging.taken};
	*at = c->arena.at + offset;
	return CUDA_SUCCESS;
}

CUresult stage_begin(struct client *c, const void *data, size_t size, struct wire_header *head) {
	uint8_t *at;
	CUresult result = stage_room(c, size, head, &at);
	if (result == CUDA_SUCCESS)
		wide_copy(at, data, size);
	return result;
}

// Called when the message was sent: messages must be in the order of their pieces, because a
// release frees all staging memory before it.
void stage_end(struct client *c) { pthread_mutex_unlock(&c->staging.lock); }

// The longest row of free bounce buffers, up to wanted of them; 0 if none is free. The caller holds
// the lock.
static unsigned free_bounces(struct client *c, unsigned wanted, unsigned *first) {
	unsigned best = 0, row = 0, all = (unsigned)(c->arena.bounce / WIRE_BOUNCE);
	for (unsigned i = 0; i < all && best < wanted; i++) {
		row = c->bounces.taken[i] ? 0 : row + 1;
		if (row > best) {
			best = row;
			*first = i + 1 - row;
		}
	}
	return best;
}

CUresult bounces_take(struct client *c, bool wait, unsigned *count, uint64_t *offset) {
	CUresult result = CUDA_SUCCESS;
	unsigned first = 0, found;
	pthread_mutex_lock(&c->bounces.lock);
	while ((found = free_bounces(c, *count, &first)) == 0 && result == CUDA_SUCCESS) {
		if (!wait)
			result = CUDA_ERROR_NOT_READY;
		else if (!wait_for_other(c, &c->bounces.freed, &c->bounces.lock))
			result = client_lost(c);
	}
	if (result == CUDA_SUCCESS) {
		*count = found;
		*offset = c->arena.staging + (uint64_t)first * WIRE_BOUNCE;
		memset(c->bounces.taken + first, true, found);
	}
	pthread_mutex_unlock(&c->bounces.lock);
	return result;
}

void bounces_give(struct client *c, uint64_t offset, unsigned count) {
	pthread_mutex_lock(&c->bounces.lock);
	memset(c->bounces.taken + (offset - c->arena.staging) / WIRE_BOUNCE, false, count);
	pthread_cond_broadcast(&c->bounces.freed);
	pthread_mutex_unlock(&c->bounces.lock);
}

CUresult bounce_take(struct client *c, bool wait, uint64_t *offset) {
	unsigned one = 1;
	return bounces_take(c, wait, &one, offset);
}

void bounce_give(struct client *c, uint64_t offset) { bounces_give(c, offset, 1); }
