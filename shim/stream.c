// Streams and events, and where a stream's work goes. Layer: calls (shim.h).
#include "shim.h"

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
		atomic_fetch_add(&c->side_streams, 1);
	stream->object.number = atomic_fetch_add(&c->numbers, 1);
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
	capture_forget_stream(stream);
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

static CUresult own_stream(CUcontext context, CUstream *stream) {
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
		context = devices[device].primary;
	*target = (struct target){.context = context};
	return context_client(context, &target->client);
}

CUresult target_named(CUstream stream, struct target *target) {
	if (stream == NULL || stream == CU_STREAM_LEGACY)
		return target_current(target);
	if (stream == CU_STREAM_PER_THREAD) {
		CUresult result = target_current(target);
		if (result == CUDA_SUCCESS)
			result = own_stream(target->context, &stream);
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
	if (t->stream != 0 || atomic_load(&c->side_streams) == 0)
		return CUDA_SUCCESS;
	uint32_t event = atomic_load(&c->copied_event);
	if (event == 0) {
		uint32_t made = atomic_fetch_add(&c->numbers, 1);
		struct wire_event_create message = {made, CU_EVENT_DISABLE_TIMING};
		CUresult result = POST(c, EVENT_CREATE, event_create, &message, NO_DATA);
		if (result != CUDA_SUCCESS)
			return result;
		if (atomic_compare_exchange_strong(&c->copied_event, &event, made)) {
			event = made;
		} else { // another thread was quicker
			struct wire_event_destroy unused = {made};
			POST(c, EVENT_DESTROY, event_destroy, &unused, NO_DATA);
		}
	}
	struct wire_event_record message = {event, 0};
	CUresult result = POST(c, EVENT_RECORD, event_record, &message, NO_DATA);
	if (result == CUDA_SUCCESS)
		atomic_fetch_add(&c->copies, 1);
	return result;
}

void copies_forget(struct client *c) { atomic_store(&c->copied_event, 0); }

// Lets a non-blocking stream wait for copied_event, if there were copies since it last did.
static CUresult copies_follow(const struct target *t) {
	CUstream s = t->handle;
	if (s == NULL || s->flags != CU_STREAM_NON_BLOCKING || t->captured)
		return CUDA_SUCCESS;
	uint64_t copies = atomic_load(&t->client->copies);
	uint32_t event = atomic_load(&t->client->copied_event);
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

CUresult target_wait(const struct target *target) {
	struct wire_stream_synchronise message = {target->stream};
	CUresult result = CALL_WAITS(target->client, STREAM_SYNCHRONISE, stream_synchronise, &message, target->stream);
	print_pending(target->client);
	managed_watch();
	return client_deferred(target->client, result);
}

// --- streams -------------------------------------------------------------------------

CUresult with_cuStreamCreateWithPriority(CUcontext context, CUstream *result, unsigned int flags, int priority) {
	if (flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_create(result, context, flags, priority);
}

CUresult do_cuStreamCreate(CUstream *result, unsigned int flags) { return do_cuStreamCreateWithPriority(result, flags, 0); }

CUresult do_cuStreamDestroy_v2(CUstream handle) {
	if (!object_is(handle, KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	stream_release(handle, true);
	return CUDA_SUCCESS;
}

CUresult do_cuStreamQuery(CUstream stream) {
	struct target t;
	CUresult result = target_uncaptured(stream, &t);
	if (result == CUDA_SUCCESS)
		result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_stream_query message = {t.stream};
	result = CALL_WAITS(t.client, STREAM_QUERY, stream_query, &message, t.stream); // success proves as much as a wait
	if (result != CUDA_ERROR_NOT_READY)
		print_pending(t.client);
	return result;
}

CUresult do_cuStreamSynchronize(CUstream stream) {
	struct target t;
	CUresult result = target_uncaptured(stream, &t);
	if (result == CUDA_SUCCESS)
		result = capture_unsafe();
	return result == CUDA_SUCCESS ? target_wait(&t) : result;
}

CUresult do_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
	if (flags > CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	struct target t;
	CUresult result = target_work(stream, &t);
	bool done = false;
	if (result == CUDA_SUCCESS)
		result = capture_wait(&t, event, flags == CU_EVENT_WAIT_EXTERNAL, &done);
	if (result != CUDA_SUCCESS || done)
		return result;
	if (flags == CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_ILLEGAL_STATE; // allowed in captured streams only
	if (event->shared != NULL && !ipc_event_own(event))
		return ipc_event_wait(event);
	if (!atomic_load(&event->recorded))
		return CUDA_SUCCESS;
	struct client *c;
	result = context_client(event->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	if (c != t.client) // an event of another device: the calling thread waits instead of the stream
		return do_cuEventSynchronize(event);
	struct wire_stream_wait message = {t.stream, event->object.number};
	return POST(t.client, STREAM_WAIT, stream_wait, &message, NO_DATA);
}

CUresult do_cuStreamGetFlags(CUstream stream, unsigned int *flags) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (flags == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = object_is(stream, KIND_STREAM) ? stream->flags : CU_STREAM_DEFAULT;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetPriority(CUstream stream, int *priority) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (priority == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = object_is(stream, KIND_STREAM) ? stream->priority : 0;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCtx(CUstream stream, CUcontext *context) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*context = t.context;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green) {
	CUresult result = do_cuStreamGetCtx(stream, context);
	if (result == CUDA_SUCCESS && green != NULL)
		*green = object_is(stream, KIND_STREAM) && object_is(stream->green, KIND_GREEN) ? stream->green : NULL;
	return result;
}

CUresult do_cuStreamGetDevice(CUstream stream, CUdevice *device) {
	CUcontext context;
	if (device == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = do_cuStreamGetCtx(stream, &context);
	if (result == CUDA_SUCCESS)
		*device = context->device;
	return result;
}

CUresult do_cuStreamGetId(CUstream stream, unsigned long long *id) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (id == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream == CU_STREAM_PER_THREAD)
		result = own_stream(t.context, &stream);
	*id = object_is(stream, KIND_STREAM) ? stream->id : 1;
	return result;
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
	e->object.number = atomic_fetch_add(&c->numbers, 1);
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

CUresult with_cuEventCreate(struct target *t, CUevent *event, unsigned int flags) {
	if (flags > (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS))
		return CUDA_ERROR_INVALID_VALUE;
	if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUevent made;
	CUresult result = event_create(&made, t->context, flags);
	if (result == CUDA_SUCCESS && (flags & CU_EVENT_INTERPROCESS) != 0) {
		result = ipc_event_begin(made);
		if (result != CUDA_SUCCESS)
			event_release(made, true);
	}
	if (result == CUDA_SUCCESS)
		*event = made;
	return result;
}

void event_release(CUevent event, bool tell) {
	CUcontext context = event->object.context;
	if (context == NULL || !context_disown(event))
		return;
	capture_forget_event(event);
	ipc_event_end(event);
	struct client *c = atomic_load(&context->client);
	if (tell && c != NULL) {
		struct wire_event_destroy message = {event->object.number};
		POST(c, EVENT_DESTROY, event_destroy, &message, NO_DATA);
	}
	object_free(event);
}

CUresult do_cuEventDestroy_v2(CUevent event) {
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	event_release(event, true);
	return CUDA_SUCCESS;
}

// Records an event, and notes the position of the message in the ring, for event_known. Both are
// written between ring_open and ring_close, so under send_lock.
CUresult event_record_on(const struct target *target, CUevent event) {
	struct client *c = target->client;
	struct wire_event_record message = {event->object.number, target->stream};
	uint8_t *at;
	CUresult result = ring_open(c, WIRE_EVENT_RECORD, wire_event_record_size(&message), NO_DATA, &at);
	if (result != CUDA_SUCCESS)
		return result;
	wire_event_record_put(at, &message);
	event->record_end = c->tail + c->opened;
	event->record_stream = target->stream;
	ring_close(c);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream, bool external) {
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	struct target t;
	CUresult result = target_work(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (event->object.context != t.context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (t.captured)
		return capture_record(&t, event, external);
	if (external)
		return CUDA_ERROR_ILLEGAL_STATE; // allowed in captured streams only
	capture_forget_event(event);
	result = event_record_on(&t, event);
	if (result == CUDA_SUCCESS && event->shared != NULL)
		result = ipc_event_record(event, &t);
	if (result == CUDA_SUCCESS)
		atomic_store(&event->recorded, true);
	return result;
}

CUresult do_cuEventRecord(CUevent event, CUstream stream) { return record(event, stream, false); }

CUresult do_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
	return flags > CU_EVENT_RECORD_EXTERNAL ? CUDA_ERROR_INVALID_VALUE : record(event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
}

// Whether an event is known to have happened without asking the worker: its stream is known to be
// done up to the record's message. (Callers take an event that was never recorded for happened.)

static bool event_known(struct client *c, CUevent event, uint64_t *end, uint64_t *stream) {
	pthread_mutex_lock(&c->send_lock);
	*end = event->record_end;
	*stream = event->record_stream;
	pthread_mutex_unlock(&c->send_lock);
	return ring_is_done(c, *end, *stream);
}

CUresult do_cuEventQuery(CUevent event) {
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	struct client *c;
	CUresult result = context_client(event->object.context, &c);
	if (result == CUDA_SUCCESS)
		result = capture_event(event);
	if (result == CUDA_SUCCESS && event->shared != NULL && !ipc_event_own(event))
		return ipc_event_query(event);
	if (result != CUDA_SUCCESS || !atomic_load(&event->recorded))
		return result;
	struct wire_event_query message = {event->object.number};
	uint64_t end, stream;
	if (!event_known(c, event, &end, &stream)) {
		result = CALL(c, EVENT_QUERY, event_query, &message, NO_DATA, NULL);
		if (result == CUDA_SUCCESS)
			ring_done(c, end, stream);
	}
	if (result != CUDA_ERROR_NOT_READY)
		print_pending(c);
	return result;
}

CUresult do_cuEventSynchronize(CUevent event) {
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	struct client *c;
	CUresult result = context_client(event->object.context, &c);
	if (result == CUDA_SUCCESS)
		result = capture_event(event);
	if (result == CUDA_SUCCESS && event->shared != NULL && !ipc_event_own(event))
		return ipc_event_wait(event);
	if (result != CUDA_SUCCESS || !atomic_load(&event->recorded))
		return result;
	struct wire_event_synchronise message = {event->object.number};
	uint64_t end, stream;
	if (!event_known(c, event, &end, &stream)) {
		result = CALL(c, EVENT_SYNCHRONISE, event_synchronise, &message, NO_DATA, NULL);
		if (result == CUDA_SUCCESS)
			ring_done(c, end, stream);
	}
	print_pending(c);
	return result;
}

CUresult do_cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
	if (milliseconds == NULL || !object_is(start, KIND_EVENT) || !object_is(end, KIND_EVENT) || start->object.context != end->object.context ||
	    ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = capture_event_time(start);
	if (result == CUDA_SUCCESS)
		result = capture_event_time(end);
	if (result != CUDA_SUCCESS)
		return result;
	if (!atomic_load(&start->recorded) || !atomic_load(&end->recorded))
		return CUDA_ERROR_INVALID_HANDLE;
	struct client *c;
	result = context_client(start->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_event_elapsed message = {start->object.number, end->object.number};
	struct answer answer;
	result = CALL(c, EVENT_ELAPSED, event_elapsed, &message, NO_DATA, &answer);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_event_elapsed_reply reply;
	struct wire_reader r = {answer.payload, answer.payload + answer.size, false};
	if (!wire_event_elapsed_reply_get(&r, &reply))
		return CUDA_ERROR_UNKNOWN;
	*milliseconds = (float)reply.milliseconds;
	return CUDA_SUCCESS;
}

CUresult do_cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) { return do_cuEventElapsedTime(milliseconds, start, end); }
