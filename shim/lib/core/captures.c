// Which streams are captured, and what is not permitted meanwhile. Layer: work. The graphs that captures make are
// made above (graph/capture.c), which registers itself as the recorder.
#include "core.h"

#include <stdlib.h>

const struct recorder *recorder;

_Atomic int captures;

pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;

struct capture *captures_all;

static __thread CUstreamCaptureMode thread_mode;

// In a child: nothing is captured.
void capture_forget_all(void) {
	pthread_mutex_init(&captures_lock, NULL);
	captures_all = NULL;
	atomic_store(&captures, 0);
}

struct capture *capture_find(uint64_t id) {
	struct capture *c = captures_all;
	while (c != NULL && c->id != id)
		c = c->next;
	return c;
}

static bool forbids(const struct capture *c) {
	if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (pthread_equal(c->thread, pthread_self()))
		return true;
	return c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_unsafe(void) {
	if (atomic_load_explicit(&captures, memory_order_relaxed) == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&captures_lock);
	for (struct capture *c = captures_all; c != NULL; c = c->next)
		if (forbids(c)) {
			c->invalid = true;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	pthread_mutex_unlock(&captures_lock);
	return result;
}

// Whether a capture has a stream of a context; with blocking, one that waits for the legacy stream.
static bool touches(const struct capture *c, CUcontext context, bool blocking) {
	for (const struct captured *s = c->streams; s != NULL; s = s->next)
		if (s->stream != NULL && s->stream->object.context == context && (!blocking || s->stream->flags != CU_STREAM_NON_BLOCKING))
			return true;
	return false;
}

static CUresult invalidate(CUcontext context, bool blocking, CUresult why) {
	CUresult result = CUDA_SUCCESS;
	for (struct capture *c = captures_all; c != NULL; c = c->next)
		if (touches(c, context, blocking)) {
			c->invalid = true;
			result = why;
		}
	return result;
}

CUresult capture_waits(CUcontext context) {
	if (atomic_load_explicit(&captures, memory_order_relaxed) == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&captures_lock);
	CUresult result = invalidate(context, false, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	pthread_mutex_unlock(&captures_lock);
	return result;
}

CUresult capture_work(struct target *t) {
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&captures_lock);
	if (t->handle == NULL)
		result = invalidate(t->context, true, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	else if (t->handle->captured != NULL && t->handle->captured->capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else
		t->captured = t->handle->captured != NULL;
	pthread_mutex_unlock(&captures_lock);
	return result;
}

CUresult capture_refused(const struct target *t, CUresult why) {
	if (!t->captured)
		return why;
	pthread_mutex_lock(&captures_lock);
	if (t->handle->captured != NULL)
		t->handle->captured->capture->invalid = true;
	pthread_mutex_unlock(&captures_lock);
	return why;
}

void capture_forget_event(CUevent event) {
	if (event->in_capture == NULL)
		return;
	pthread_mutex_lock(&captures_lock);
	struct recorded *r = event->in_capture;
	event->in_capture = NULL;
	pthread_mutex_unlock(&captures_lock);
	if (r != NULL)
		free(r->front.list);
	free(r);
}

// The error for an event that was recorded in a capture; *c is that capture, or NULL if it has ended.
static CUresult captured_event(CUevent event, struct capture **c) {
	*c = event->in_capture != NULL ? capture_find(event->in_capture->capture) : NULL;
	return *c != NULL ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

CUresult capture_event(CUevent event) {
	if (event->in_capture == NULL)
		return capture_unsafe();
	struct capture *c;
	pthread_mutex_lock(&captures_lock);
	CUresult result = captured_event(event, &c);
	if (c != NULL)
		c->invalid = true;
	pthread_mutex_unlock(&captures_lock);
	return result;
}

CUresult capture_event_time(CUevent event) {
	if (event->in_capture == NULL)
		return CUDA_SUCCESS;
	struct capture *c;
	pthread_mutex_lock(&captures_lock);
	CUresult result = captured_event(event, &c);
	pthread_mutex_unlock(&captures_lock);
	return result;
}

bool capture_blocks_legacy(CUcontext context) {
	bool blocked = false;
	pthread_mutex_lock(&captures_lock);
	for (struct capture *c = captures_all; c != NULL && !blocked; c = c->next)
		blocked = touches(c, context, true);
	pthread_mutex_unlock(&captures_lock);
	return blocked;
}

CUstreamCaptureMode capture_mode(CUstreamCaptureMode mode) {
	CUstreamCaptureMode before = thread_mode;
	thread_mode = mode;
	return before;
}
