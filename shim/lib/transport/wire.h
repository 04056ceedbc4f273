// The encoding of the protocol's messages, and the layout of the memory that a program and its worker
// share. wire/wire.go and wire/ring.go have the same for Go; tests of wire/ compare the two. Who may
// write which word is marked at struct wire_ring; how the two sides wait for each other is in ring.c.
#ifndef MUSTER_WIRE_H
#define MUSTER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WIRE_MAGIC 0x5453554du // "MUST"
#define WIRE_VERSION 9u

// The header of each record on the socket.
struct wire_frame {
	uint32_t size; // of the body
	uint16_t op;
	uint16_t zero;
};

#define WIRE_MAX_RECORD 65536u

// The header of each message on the ring. Messages begin at multiples of 8 and do not wrap: a
// WIRE_PAD message fills the end of the ring.
struct wire_header {
	uint32_t size;    // header and body, without what fills it up to a multiple of 8
	uint16_t op;      // enum wire_op
	uint16_t slot;    // 1 + the number of the reply slot; 0 for none
	uint32_t seq;     // counts messages; the first is 0
	uint32_t zero;
	uint64_t data;    // offset in the data arena, for messages with `in` or `out`
	uint64_t length;  // bytes there
	uint64_t release; // for `in`: staging up to this position is free once the bytes were read
};

#define WIRE_HEADER 40u
#define WIRE_PAD 0xffffu
#define WIRE_MAX_MESSAGE 65536u

// A reply slot. The client sets state to PENDING, sends, and waits for DONE; it
// sets SLEEPING before it sleeps on the word, so that the worker wakes it.
struct wire_slot {
	uint32_t state;
	int32_t result; // a CUresult
	uint32_t size;
	uint32_t zero;
	uint8_t payload[240];
};

// The state of a slot is in the two lowest bits of its word. The upper bits are the worker's: 1 + the
// number of the message that it answered last in this slot.
enum { WIRE_FREE = 0, WIRE_PENDING = 1, WIRE_DONE = 2, WIRE_SLEEPING = 3 };
#define WIRE_STATE 3u

#define WIRE_SLOTS 256u

#define WIRE_NOTICES 2048u

// The ring's memory: this head, the slots at WIRE_SLOTS_AT, messages at
// WIRE_RING_AT. Each side writes only what is marked as its own.
struct wire_ring {
	uint32_t magic;
	uint32_t version;
	uint32_t schema;
	uint32_t slots;
	uint64_t ring_size; // bytes for messages, a power of two
	uint64_t arena_size;
	uint64_t staging_size; // the arena begins with the ring of staging memory,
	uint64_t bounce_size;  // then come buffers for data on their way back; the rest is pinned memory
	uint8_t fill0[64 - 48];
	// offset 64, the client's: bytes written so far
	uint64_t tail;
	uint32_t client_waits; // 1: the client sleeps on this word until there is room (ring or staging)
	uint32_t notices_read; // bytes of notices read so far
	uint8_t fill1[64 - 16];
	// offset 128, the worker's: bytes read so far
	uint64_t head;
	uint64_t staging_head; // staging that is free again
	uint32_t worker_waits; // 1: the worker sleeps on this word until there is a message
	uint8_t fill2[64 - 20];
	// offset 192, the worker's
	uint32_t status; // a CUresult that stays: every later call fails with it
	uint32_t closed; // 1: the worker has ended the client; reason says why
	uint32_t print;  // 1: kernels have printed something
	uint32_t notices_written; // bytes of notices written so far
	uint64_t arena_at; // the worker's address of the data arena: the client maps it there, too, if it can; 0: anywhere
	uint32_t guard;    // bytes, at least, that stay free around each allocation of device memory; 0: none
	uint8_t fill3[64 - 28];
	char reason[1024]; // NUL-terminated
	uint8_t fill4[2048 - 1280];
	char notices[WIRE_NOTICES]; // a ring of lines for the user: wire/notices.go
};

#define WIRE_SLOTS_AT 4096u
#define WIRE_RING_AT (WIRE_SLOTS_AT + WIRE_SLOTS * 256u)
#define WIRE_BOUNCE 1048576u // size of one buffer for data on their way back

struct wire_bytes {
	const void *data;
	uint32_t size;
};

// The machines that Muster runs on are little-endian.
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the protocol is little-endian"
#endif

static inline uint8_t *wire_put(uint8_t *p, const void *value, size_t size) {
	memcpy(p, value, size);
	return p + size;
}

static inline uint8_t *wire_put_bytes(uint8_t *p, struct wire_bytes b) {
	p = wire_put(p, &b.size, 4);
	if (b.size > 0)
		memcpy(p, b.data, b.size);
	return p + b.size;
}

// A reader that runs out of bytes sets bad and returns zeros, so that callers need to check only
// once, at the end.
struct wire_reader {
	const uint8_t *at, *end;
	bool bad;
};

static inline void wire_get(struct wire_reader *r, void *value, size_t size) {
	if ((size_t)(r->end - r->at) < size) {
		r->bad = true;
		memset(value, 0, size);
		return;
	}
	memcpy(value, r->at, size);
	r->at += size;
}

static inline struct wire_bytes wire_get_bytes(struct wire_reader *r) {
	struct wire_bytes b = {0};
	wire_get(r, &b.size, 4);
	if ((size_t)(r->end - r->at) < b.size) {
		r->bad = true;
		b.size = 0;
	}
	b.data = r->at;
	r->at += b.size;
	return b;
}

static inline bool wire_end(struct wire_reader *r) { return !r->bad && r->at == r->end; }

#endif
