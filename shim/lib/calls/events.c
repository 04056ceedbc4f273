// Events, and streams that wait for them. Layer: calls.
#include "calls.h"

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

CUresult with_cuEventDestroy_v2(CUevent event) {
	event_release(event, true);
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
		return recorder->record(&t, event, external);
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

CUresult with_cuEventQuery(CUevent event) {
	struct client *c;
	CUresult result = context_client(event->object.context, &c);
	if (result == CUDA_SUCCESS)
		result = capture_event(event);
	if (result == CUDA_SUCCESS && event->shared != NULL && !ipc_event_own(event))
		return ipc_event_query(event);
	if (result != CUDA_SUCCESS || !atomic_load(&event->recorded))
		return result;
	struct wire_event_query message = {event->object.number};
	struct ring_mark record;
	if (!ring_mark_done(c, &event->record, &record)) { // callers take an event that was never recorded for happened
		result = CALL(c, EVENT_QUERY, event_query, &message, NO_DATA, NULL);
		if (result == CUDA_SUCCESS)
			ring_done(c, record.end, record.stream);
	}
	if (result != CUDA_ERROR_NOT_READY)
		print_pending(c);
	return result;
}

CUresult with_cuEventSynchronize(CUevent event) {
	struct client *c;
	CUresult result = context_client(event->object.context, &c);
	if (result == CUDA_SUCCESS)
		result = capture_event(event);
	if (result == CUDA_SUCCESS && event->shared != NULL && !ipc_event_own(event))
		return ipc_event_wait(event);
	if (result != CUDA_SUCCESS || !atomic_load(&event->recorded))
		return result;
	struct wire_event_synchronise message = {event->object.number};
	struct ring_mark record;
	if (!ring_mark_done(c, &event->record, &record)) { // callers take an event that was never recorded for happened
		result = CALL(c, EVENT_SYNCHRONISE, event_synchronise, &message, NO_DATA, NULL);
		if (result == CUDA_SUCCESS)
			ring_done(c, record.end, record.stream);
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
	struct wire_event_elapsed_reply reply;
	result = ASK(c, EVENT_ELAPSED, event_elapsed, &message, NO_DATA, &reply);
	if (result != CUDA_SUCCESS)
		return result;
	*milliseconds = (float)reply.milliseconds;
	return CUDA_SUCCESS;
}

CUresult do_cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) { return do_cuEventElapsedTime(milliseconds, start, end); }

CUresult do_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
	if (flags > CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	struct target t;
	CUresult result = target_work(stream, &t);
	bool done = false;
	if (result == CUDA_SUCCESS && (t.captured || event->in_capture != NULL))
		result = recorder->wait(&t, event, flags == CU_EVENT_WAIT_EXTERNAL, &done);
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
		return with_cuEventSynchronize(event);
	struct wire_stream_wait message = {t.stream, event->object.number};
	return POST(t.client, STREAM_WAIT, stream_wait, &message, NO_DATA);
}
