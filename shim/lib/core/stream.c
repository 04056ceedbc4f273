// Streams and events, and where a stream's work goes. Layer: work.
#include "core.h"

#include <stdlib.h>

// --- which stream is meant ---------------------------------------------------------

// The per-thread default streams of this thread, one for each context in which it used one.
struct own_stream {
	struct own_stream *next;
	uint64_t context_id;
	CUcontext context;
	CUstream stream;
};

static __thread struct own_stream *own_streams;
static pthread_key_t own_key;

struct copies { // see copies_note
	_Atomic int side_streams; // how many streams were made that do not wait for the legacy stream
	_Atomic uint32_t event;   // its number; 0: not made yet
	_Atomic uint64_t count;   // how often it was recorded
};

static size_t part;

static struct copies *copies_of(struct client *c) { return client_part(c, part); }

__attribute__((constructor)) static void take_a_part(void) { part = client_register(sizeof(struct copies), NULL); }

CUresult stream_create(CUstream *out, CUcontext context, unsigned flags, int priority) {
	struct client *c;
	CUresult result = context_client(context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	CUstream stream = object_new(KIND_STREAM, sizeof *stream);
	if (stream == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	static _Atomic uint64_t ids = 2;
	if (flags == CU_STREAM_NON_BLOCKING)
		atomic_fetch_add(&copies_of(c)->side_streams, 1);
	stream->object.number = client_number(c);
	stream->flags = flags;
	stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	stream->id = atomic_fetch_add(&ids, 1) + 1;
	struct wire_stream_create message = {stream->object.number, flags, stream->priority};
	result = POST(c, STREAM_CREATE, stream_create, &message, NO_DATA);
	if (result != CUDA_SUCCESS) {
		object_free(stream);
		return result;
	}
	context_own(context, stream);
	*out = stream;
	return CUDA_SUCCESS;
}

void stream_release(CUstream stream, bool tell) {
	CUcontext context = stream->object.context;
	if (context == NULL || !context_disown(stream))
		return;
	recorder->forget_stream(stream);
	struct client *c = atomic_load(&context->client);
	if (tell && c != NULL) {
		struct wire_stream_destroy message = {stream->object.number};
		POST(c, STREAM_DESTROY, stream_destroy, &message, NO_DATA);
	}
	object_free(stream);
}

// Runs at the end of a thread. A context may have been cleared before, and its handle reused: its id
// tells.
static void end_own_streams(void *list) {
	own_streams = NULL; // later destructors of this thread may still use CUDA, with new streams
	for (struct own_stream *s = list, *next; s != NULL; s = next) {
		next = s->next;
		if (atomic_load(&shim_state) == SHIM_READY && object_is(s->context, KIND_CONTEXT) && s->context->id == s->context_id &&
		    object_is(s->stream, KIND_STREAM) && s->stream->object.context == s->context)
			stream_release(s->stream, true);
		free(s);
	}
}

__attribute__((constructor)) static void make_own_key(void) { pthread_key_create(&own_key, end_own_streams); }

void streams_forget_thread(void) {
	own_streams = NULL;
	pthread_setspecific(own_key, NULL);
}

CUresult stream_own(CUcontext context, CUstream *stream) {
	for (struct own_stream *s = own_streams; s != NULL; s = s->next)
		if (s->context_id == context->id && object_is(s->stream, KIND_STREAM) && s->stream->object.context == context) {
			*stream = s->stream;
			return CUDA_SUCCESS;
		}
	struct own_stream *s = calloc(1, sizeof *s);
	if (s == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = stream_create(&s->stream, context, CU_STREAM_DEFAULT, 0);
	if (result != CUDA_SUCCESS) {
		free(s);
		return result;
	}
	s->context = context;
	s->context_id = context->id;
	s->next = own_streams;
	own_streams = s;
	pthread_setspecific(own_key, own_streams);
	*stream = s->stream;
	return CUDA_SUCCESS;
}

CUresult target_current(struct target *target) {
	target->stream = 0;
	target->handle = NULL;
	target->captured = false;
	CUresult result = context_need(&target->context);
	return result == CUDA_SUCCESS ? context_client(target->context, &target->client) : result;
}

CUresult target_on(int device, struct target *target) {
	CUcontext context = context_current();
	if (!object_is(context, KIND_CONTEXT) || context->device != device)
		context = context_primary(device);
	*target = (struct target){.context = context};
	return context_client(context, &target->client);
}

CUresult target_named(CUstream stream, struct target *target) {
	if (stream == NULL || stream == CU_STREAM_LEGACY)
		return target_current(target);
	if (stream == CU_STREAM_PER_THREAD) {
		CUresult result = target_current(target);
		if (result == CUDA_SUCCESS)
			result = stream_own(target->context, &stream);
		if (result == CUDA_SUCCESS) {
			target->stream = stream->object.number;
			target->handle = stream;
		}
		return result;
	}
	if (!object_is(stream, KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	target->context = stream->object.context;
	target->stream = stream->object.number;
	target->handle = stream;
	target->captured = false;
	return context_client(target->context, &target->client);
}

// cuMemcpyHtoD and similar calls return when the library has read the data, as CUDA's documentation
// permits. With NVIDIA's driver the data are on the device before a later call can give work to
// another stream, and programs rely on that. So the library records an event behind such a copy in
// the legacy stream, and non-blocking streams wait for it before their next work (copies_follow).
CUresult copies_note(const struct target *t) {
	struct client *c = t->client;
	if (t->stream != 0 || atomic_load(&copies_of(c)->side_streams) == 0)
		return CUDA_SUCCESS;
	uint32_t event = atomic_load(&copies_of(c)->event);
	if (event == 0) {
		uint32_t made = client_number(c);
		struct wire_event_create message = {made, CU_EVENT_DISABLE_TIMING};
		CUresult result = POST(c, EVENT_CREATE, event_create, &message, NO_DATA);
		if (result != CUDA_SUCCESS)
			return result;
		if (atomic_compare_exchange_strong(&copies_of(c)->event, &event, made)) {
			event = made;
		} else { // another thread was quicker
			struct wire_event_destroy unused = {made};
			POST(c, EVENT_DESTROY, event_destroy, &unused, NO_DATA);
		}
	}
	struct wire_event_record message = {event, 0};
	CUresult result = POST(c, EVENT_RECORD, event_record, &message, NO_DATA);
	if (result == CUDA_SUCCESS)
		atomic_fetch_add(&copies_of(c)->count, 1);
	return result;
}

void copies_forget(struct client *c) { atomic_store(&copies_of(c)->event, 0); }

// Lets a non-blocking stream wait for copied_event, if there were copies since it last did.
static CUresult copies_follow(const struct target *t) {
	CUstream s = t->handle;
	if (s == NULL || s->flags != CU_STREAM_NON_BLOCKING || t->captured)
		return CUDA_SUCCESS;
	uint64_t copies = atomic_load(&copies_of(t->client)->count);
	uint32_t event = atomic_load(&copies_of(t->client)->event);
	if (atomic_load(&s->copies) == copies || event == 0)
		return CUDA_SUCCESS;
	struct wire_stream_wait message = {t->stream, event};
	CUresult result = POST(t->client, STREAM_WAIT, stream_wait, &message, NO_DATA);
	if (result == CUDA_SUCCESS)
		atomic_store(&s->copies, copies); // only now: another thread that sees it sends no wait of its own
	return result;
}

CUresult target_work(CUstream stream, struct target *target) {
	CUresult result = target_named(stream, target);
	if (result == CUDA_SUCCESS && atomic_load_explicit(&captures, memory_order_relaxed) > 0)
		result = capture_work(target);
	return result == CUDA_SUCCESS ? copies_follow(target) : result;
}

CUresult target_of(CUstream stream, struct target *target) {
	CUresult result = target_work(stream, target);
	return result == CUDA_SUCCESS && target->captured ? capture_refused(target, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : result;
}

CUresult target_uncaptured(CUstream stream, struct target *target) {
	CUresult result = target_of(stream, target);
	return result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

const struct manager *manager;

CUresult target_wait(const struct target *target) {
	struct wire_stream_synchronise message = {target->stream};
	CUresult result = CALL_WAITS(target->client, STREAM_SYNCHRONISE, stream_synchronise, &message, target->stream);
	print_pending(target->client);
	manager->waited();
	return client_deferred(target->client, result);
}

// Waits for all work of a context's device.
CUresult context_synchronise(CUcontext context) {
	struct client *c;
	CUresult result = context_client(context, &c);
	if (result == CUDA_SUCCESS)
		result = capture_waits(context);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_synchronise message = {0};
	result = CALL_WAITS(c, SYNCHRONISE, synchronise, &message, ALL_STREAMS);
	print_pending(c);
	manager->waited();
	return client_deferred(c, result);
}

// --- events --------------------------------------------------------------------------

CUresult event_create(CUevent *event, CUcontext context, unsigned flags) {
	struct client *c;
	CUresult result = context_client(context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	CUevent e = object_new(KIND_EVENT, sizeof *e);
	if (e == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->object.number = client_number(c);
	e->flags = flags;
	struct wire_event_create message = {e->object.number, flags};
	result = POST(c, EVENT_CREATE, event_create, &message, NO_DATA);
	if (result != CUDA_SUCCESS) {
		object_free(e);
		return result;
	}
	context_own(context, e);
	*event = e;
	return CUDA_SUCCESS;
}

// Records an event, and notes which message does it, for the calls that ask whether it has happened.
CUresult event_record_on(const struct target *target, CUevent event) {
	struct client *c = target->client;
	struct wire_event_record message = {event->object.number, target->stream};
	uint8_t *at;
	CUresult result = ring_open(c, WIRE_EVENT_RECORD, wire_event_record_size(&message), NO_DATA, &at);
	if (result != CUDA_SUCCESS)
		return result;
	wire_event_record_put(at, &message);
	ring_close_marked(c, target->stream, &event->record);
	return CUDA_SUCCESS;
}
