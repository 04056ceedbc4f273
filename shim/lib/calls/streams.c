// The calls on streams: their life, what they are, their attributes, and functions of the program that they call.
// Layer: calls.
#include "calls.h"

CUresult with_cuStreamCreateWithPriority(CUcontext context, CUstream *result, unsigned int flags, int priority) {
	if (flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_create(result, context, flags, priority);
}

CUresult with_cuStreamCreate(CUcontext context, CUstream *result, unsigned int flags) { return with_cuStreamCreateWithPriority(context, result, flags, 0); }

CUresult with_cuStreamDestroy_v2(CUstream handle) {
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
		result = stream_own(t.context, &stream);
	*id = object_is(stream, KIND_STREAM) ? stream->id : 1;
	return result;
}

CUresult do_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
	struct target t;
	if (function == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = target_work(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	return t.captured ? recorder->host(&t, function, data) : host_submit(&t, function, data);
}

CUresult do_cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags) {
	if (callback == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct target t;
	CUresult result = target_of(stream, &t);
	return result == CUDA_SUCCESS ? host_callback(&t, callback, stream, data) : result;
}

// --- attributes: hints of the program, which are checked, remembered and returned -----------

// The attributes of a stream; those of the legacy stream are in its context. The caller holds
// shim_lock.
static struct stream_attributes *set_for(const struct target *t) { return t->handle != NULL ? &t->handle->attributes : &t->context->legacy; }

static CUresult check_window(const struct target *t, const CUaccessPolicyWindow *w) {
	const int *a = devices[t->context->device].attributes;
	if (w->num_bytes > (size_t)a[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE])
		return CUDA_ERROR_INVALID_VALUE;
	if (!(w->hitRatio >= 0 && w->hitRatio <= 1)) // nor is it a number
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned)w->hitProp > CU_ACCESS_PROPERTY_PERSISTING || (unsigned)w->missProp > CU_ACCESS_PROPERTY_STREAMING)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult check(const struct target *t, CUstreamAttrID attribute, const CUstreamAttrValue *value) {
	const int domains = devices[t->context->device].attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT];
	switch (attribute) {
	case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return check_window(t, &value->accessPolicyWindow);
	case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return value->syncPolicy >= CU_SYNC_POLICY_AUTO && value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_STREAM_ATTRIBUTE_PRIORITY:
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return value->memSyncDomainMap.default_ < (domains > 0 ? domains : 1) && value->memSyncDomainMap.remote < (domains > 0 ? domains : 1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return (unsigned)value->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static void set_priority(const struct target *t, int priority) {
	priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	if (t->handle != NULL)
		t->handle->priority = priority;
	else
		t->context->legacy.priority = priority;
}

CUresult do_cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	result = value != NULL ? check(&t, attribute, value) : CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&shim_lock);
	struct stream_attributes *a = set_for(&t);
	switch (attribute) {
	case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		a->window = value->accessPolicyWindow;
		break;
	case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		a->policy = value->syncPolicy;
		break;
	case CU_STREAM_ATTRIBUTE_PRIORITY:
		set_priority(&t, value->priority);
		break;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		a->domains = value->memSyncDomainMap;
		a->domains_set = true;
		break;
	default:
		a->domain = value->memSyncDomain;
	}
	pthread_mutex_unlock(&shim_lock);
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&shim_lock);
	const struct stream_attributes a = *set_for(&t);
	int priority = t.handle != NULL ? t.handle->priority : a.priority;
	pthread_mutex_unlock(&shim_lock);
	switch (attribute) {
	case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = a.window;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value->syncPolicy = a.policy != 0 ? a.policy : (CUsynchronizationPolicy)-1 /* the context's */;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_PRIORITY:
		value->priority = priority;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value->memSyncDomainMap = a.domains_set ? a.domains : (CUlaunchMemSyncDomainMap){0, devices[t.context->device].attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT] > 1};
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = a.domain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

// The driver requires that both streams belong to the same context.
CUresult do_cuStreamCopyAttributes(CUstream destination, CUstream stream) {
	struct target to, from;
	CUresult result = target_named(destination, &to);
	if (result == CUDA_SUCCESS)
		result = target_named(stream, &from);
	if (result != CUDA_SUCCESS)
		return result;
	if (to.context != from.context)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&shim_lock);
	int priority = from.handle != NULL ? from.handle->priority : from.context->legacy.priority;
	*set_for(&to) = *set_for(&from);
	set_priority(&to, priority);
	pthread_mutex_unlock(&shim_lock);
	return CUDA_SUCCESS;
}
