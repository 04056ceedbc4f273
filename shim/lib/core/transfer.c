// Data in and out of a client's memory. Layer: work. Data go to the device inside the message if they are
// small, otherwise through staging memory, or straight from pinned memory. Data come from it through
// bounce buffers, or straight into pinned memory.
#include "core.h"

#define INLINE ((size_t)16 << 10)

#define IN_FLIGHT 8

bool pinned_has(CUdeviceptr at) {
	struct range range;
	struct client *c;
	return pinned_range((void *)(uintptr_t)at, &range, &c);
}

CUresult stream_wait(struct client *c, uint32_t stream) {
	struct target t = {.client = c, .stream = stream};
	return target_wait(&t);
}

// The library reads the source during the call, but earlier work of the stream may still write to
// it: copies to pinned memory, kernels to registered memory that they reach, and host functions to any
// memory that CUDA knows. If that is possible, waits for the stream. A synchronous call waits for host
// functions whatever they write: CUDA waits for the stream before it reads pageable memory, too. A
// host function itself must not wait for its own stream.
CUresult let_writes_end(struct client *c, uint32_t stream, const void *from, size_t size, bool synchronous) {
	uint64_t offset;
	bool functions = host_pending(c);
	bool written = pinned_offset(c, from, size, &offset) || (functions && synchronous) || ((functions || pinned_moving()) && pinned_has((CUdeviceptr)(uintptr_t)from));
	return written && !host_calling() ? stream_wait(c, stream) : CUDA_SUCCESS;
}

// On return the library has read the data, unless they are in pinned memory and wait is false. Even
// small data in pinned memory are not inlined: earlier work of the stream may write there.
CUresult copy_in(struct client *c, uint32_t stream, CUdeviceptr to, const void *from, size_t size, bool wait) {
	struct wire_header head = {0};
	CUresult result = CUDA_SUCCESS;
	if (watching())
		watch_bytes(size);
	if (pinned_offset(c, from, size, &head.data)) {
		head.length = size;
		struct wire_copy_in message = {to, stream};
		result = POST(c, COPY_IN, copy_in, &message, &head);
		if (result != CUDA_SUCCESS || !wait)
			return result;
		slot_expect(size);
		return stream_wait(c, stream);
	}
	result = let_writes_end(c, stream, from, size, wait);
	if (result != CUDA_SUCCESS)
		return result;
	if (size <= INLINE) {
		struct wire_copy_inline message = {to, stream, {from, (uint32_t)size}};
		return POST(c, COPY_INLINE, copy_inline, &message, NO_DATA);
	}
	for (size_t done = 0, limit = stage_piece(c, size); done < size && result == CUDA_SUCCESS;) {
		size_t piece = size - done < limit ? size - done : limit;
		result = stage_begin(c, (const uint8_t *)from + done, piece, &head);
		if (result != CUDA_SUCCESS)
			return result;
		struct wire_copy_in message = {to + done, stream};
		result = POST(c, COPY_IN, copy_in, &message, &head);
		stage_end(c);
		done += piece;
	}
	return result;
}

struct pending {
	uint16_t slot;
	uint64_t offset;
	unsigned buffers;
	size_t done, size;
};

// Asks for at most p->size bytes, and sets that to as many as there is room for. The caller sets
// wait only if it holds no bounce buffer: threads that wait for one while they hold others could
// deadlock.
static CUresult ask_out(struct client *c, uint32_t stream, CUdeviceptr from, struct pending *p, bool wait) {
	p->buffers = (unsigned)((p->size + WIRE_BOUNCE - 1) / WIRE_BOUNCE);
	CUresult result = bounces_take(c, wait, &p->buffers, &p->offset);
	if (result != CUDA_SUCCESS)
		return result;
	size_t room = (size_t)p->buffers * WIRE_BOUNCE;
	p->size = p->size < room ? p->size : room;
	result = slot_take(c, &p->slot);
	if (result == CUDA_SUCCESS) {
		struct wire_header head = {.slot = p->slot, .data = p->offset, .length = p->size};
		struct wire_copy_out message = {from + p->done, stream};
		result = POST(c, COPY_OUT, copy_out, &message, &head);
		if (result == CUDA_SUCCESS)
			return CUDA_SUCCESS;
		slot_give(c, p->slot);
	}
	bounces_give(c, p->offset, p->buffers);
	return result;
}

// How many bytes to ask for at once: an eighth of all, so that the program's threads copy while the
// device does, and a quarter of the bounce buffers at most.
static size_t out_piece(struct client *c, size_t size) {
	size_t most = c->arena.bounce / 4, piece = (size / 8 + WIRE_BOUNCE - 1) / WIRE_BOUNCE * WIRE_BOUNCE;
	piece = piece > most ? most : piece;
	return piece < WIRE_BOUNCE ? WIRE_BOUNCE : piece;
}

// Copies from the device with up to IN_FLIGHT requests on their way, in a ring of pending ones.
// After an error it asks for no more, but still waits for all answers, since the worker writes to
// their buffers.
static CUresult bounce_out(struct client *c, uint32_t stream, uint8_t *to, CUdeviceptr from, size_t size) {
	struct pending queue[IN_FLIGHT];
	size_t limit = out_piece(c, size);
	unsigned first = 0, count = 0;
	uint64_t end = 0;
	CUresult result = CUDA_SUCCESS;
	for (size_t asked = 0; asked < size || count > 0;) {
		if (asked < size && count < IN_FLIGHT && result == CUDA_SUCCESS) {
			struct pending *p = &queue[(first + count) % IN_FLIGHT];
			p->done = asked;
			p->size = size - asked < limit ? size - asked : limit;
			CUresult r = ask_out(c, stream, from, p, count == 0);
			if (r == CUDA_SUCCESS) {
				asked += p->size;
				count++;
				continue;
			}
			if (r != CUDA_ERROR_NOT_READY || count == 0)
				result = r;
		}
		if (count == 0)
			break;
		struct pending *p = &queue[first];
		end = slot_end(c, p->slot);
		CUresult r = slot_wait(c, p->slot, NULL);
		if (r == CUDA_SUCCESS)
			wide_copy(to + p->done, c->arena.at + p->offset, p->size);
		else if (result == CUDA_SUCCESS)
			result = r;
		bounces_give(c, p->offset, p->buffers);
		first = (first + 1) % IN_FLIGHT;
		count--;
		if (result != CUDA_SUCCESS)
			asked = size;
	}
	if (result == CUDA_SUCCESS)
		ring_done(c, end, stream);
	return result;
}

CUresult copy_out(struct client *c, uint32_t stream, void *to, CUdeviceptr from, size_t size, bool wait) {
	struct wire_header head = {.length = size};
	CUresult result;
	if (watching())
		watch_bytes(size);
	if (pinned_offset(c, to, size, &head.data)) {
		struct wire_copy_out message = {from, stream};
		if (!wait)
			return POST(c, COPY_OUT, copy_out, &message, &head);
		slot_expect(size);
		result = CALL(c, COPY_OUT, copy_out, &message, &head, NULL);
	} else {
		result = bounce_out(c, stream, to, from, size);
	}
	print_pending(c);
	return result;
}

CUresult copy_out_quietly(struct client *c, uint32_t stream, void *to, CUdeviceptr from, size_t size) { return bounce_out(c, stream, to, from, size); }
