// Green contexts: subsets of a device's multiprocessors for some streams of a program. Layer: calls. A virtual device is not divided here, so a green context always has all
// multiprocessors, and a request for fewer is refused with a notice. Its objects belong to the
// primary context, as with the driver.
#include "calls.h"

#include <stdlib.h>

struct CUgreenCtx_st {
	struct object object; // its context is the primary one
	uint64_t id;
};

struct CUdevResourceDesc_st {
	struct object object;
	unsigned count; // multiprocessors
};

// Multiprocessors are counted in groups of 8, if the device has that many.
#define GROUP 8u

static unsigned multiprocessors(int device) { return (unsigned)devices[device].attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]; }

static CUresult all_of(int device, CUdevResource *resource, CUdevResourceType type) {
	if (resource == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memset(resource, 0, sizeof *resource);
	resource->type = type;
	resource->sm.smCount = multiprocessors(device);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type) {
	return device >= 0 && device < device_count ? all_of(device, resource, type) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult do_cuCtxGetDevResource(CUcontext context, CUdevResource *resource, CUdevResourceType type) {
	CUresult result = context_usable(context);
	return result == CUDA_SUCCESS ? all_of(context->device, resource, type) : result;
}

CUresult do_cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type) {
	return object_is(green, KIND_GREEN) ? all_of(green->object.context->device, resource, type) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult with_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input, CUdevResource *remaining, unsigned int flags, unsigned int least) {
	if (flags > (CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE))
		return CUDA_ERROR_INVALID_VALUE;
	if (input->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	unsigned all = input->sm.smCount, group = all < GROUP ? all : GROUP, wanted = (least + group - 1) / (group > 0 ? group : 1) * group;
	if (least == 0 || least > all || (result != NULL && *groups == 0))
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	if (wanted < all) {
		notice("a green context with %u of %u multiprocessors: virtual devices are not divided: ask for all of them, or limit the program's share on the node", least, all);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	*groups = 1;
	if (result != NULL)
		result[0] = *input;
	if (result != NULL && remaining != NULL) {
		memset(remaining, 0, sizeof *remaining);
		remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
	}
	return CUDA_SUCCESS;
}

CUresult with_cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources, unsigned int count) {
	if (count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	unsigned sum = 0;
	for (unsigned i = 0; i < count; i++) {
		if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM)
			return CUDA_ERROR_INVALID_RESOURCE_TYPE;
		sum += resources[i].sm.smCount;
	}
	CUdevResourceDesc d = object_new(KIND_RESOURCES, sizeof *d); // there is no call that ends it
	if (d == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	d->count = sum;
	*description = d;
	return CUDA_SUCCESS;
}

CUresult do_cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device, unsigned int flags) {
	static _Atomic uint64_t ids;
	CUcontext primary;
	if (green == NULL || !object_is(description, KIND_RESOURCES) || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (description->count != multiprocessors(device))
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	CUgreenCtx made = object_new(KIND_GREEN, sizeof *made);
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = do_cuDevicePrimaryCtxRetain(&primary, device);
	if (result != CUDA_SUCCESS) {
		object_free(made);
		return result;
	}
	made->object.context = primary;
	made->id = atomic_fetch_add(&ids, 1) + 1;
	*green = made;
	return CUDA_SUCCESS;
}

// Streams that were made for it stay usable.
CUresult with_cuGreenCtxDestroy(CUgreenCtx green) {
	int device = green->object.context->device;
	object_free(green);
	return do_cuDevicePrimaryCtxRelease_v2(device);
}

CUresult with_cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id) {
	if (id == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*id = green->id;
	return CUDA_SUCCESS;
}

CUresult with_cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*context = green->object.context;
	return CUDA_SUCCESS;
}

CUresult with_cuGreenCtxStreamCreate(CUstream *result, CUgreenCtx green, unsigned int flags, int priority) {
	if (result == NULL || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = stream_create(result, green->object.context, flags, priority);
	if (r == CUDA_SUCCESS)
		(*result)->green = green;
	return r;
}

CUresult do_cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green) {
	struct target t;
	CUresult result = target_named(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (green == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*green = t.handle != NULL && object_is(t.handle->green, KIND_GREEN) ? t.handle->green : NULL;
	return CUDA_SUCCESS;
}

// --- events of whole contexts -------------------------------------------------------------

// The numbers of a context's streams, the legacy stream first; with green, only the streams of that
// green context. The caller frees them.
static uint32_t *streams_of(CUcontext context, CUgreenCtx green, size_t *count) {
	pthread_mutex_lock(&shim_lock);
	size_t most = 1;
	for (struct object *o = context->owned; o != NULL; o = o->next)
		most++;
	uint32_t *list = malloc(most * sizeof *list);
	*count = 0;
	if (list != NULL && green == NULL)
		list[(*count)++] = 0;
	for (struct object *o = context->owned; list != NULL && o != NULL; o = o->next)
		if (object_is(o, KIND_STREAM) && (green == NULL || ((CUstream)o)->green == green))
			list[(*count)++] = o->number;
	pthread_mutex_unlock(&shim_lock);
	return list;
}

// Records an event behind the work of all streams: in a new stream that waits for each of them.
static CUresult record_all(CUcontext context, CUgreenCtx green, CUevent event) {
	struct client *c;
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->object.context != context)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = context_client(context, &c);
	if (result == CUDA_SUCCESS)
		result = capture_waits(context);
	size_t count = 0;
	uint32_t *list = result == CUDA_SUCCESS ? streams_of(context, green, &count) : NULL;
	if (list == NULL)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	CUstream all = NULL;
	CUevent each = NULL;
	result = stream_create(&all, context, CU_STREAM_NON_BLOCKING, 0);
	if (result == CUDA_SUCCESS)
		result = event_create(&each, context, CU_EVENT_DISABLE_TIMING);
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		struct wire_event_record record = {each->object.number, list[i]};
		struct wire_stream_wait wait = {all->object.number, each->object.number};
		result = POST(c, EVENT_RECORD, event_record, &record, NO_DATA);
		if (result == CUDA_SUCCESS)
			result = POST(c, STREAM_WAIT, stream_wait, &wait, NO_DATA);
	}
	if (result == CUDA_SUCCESS)
		result = do_cuEventRecord(event, all);
	if (each != NULL)
		event_release(each, true);
	if (all != NULL)
		stream_release(all, true);
	free(list);
	return result;
}

// Makes all streams wait for an event.
static CUresult wait_all(CUcontext context, CUgreenCtx green, CUevent event) {
	struct client *c;
	if (!object_is(event, KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = context_client(context, &c);
	if (result == CUDA_SUCCESS)
		result = capture_waits(context);
	if (result != CUDA_SUCCESS || !atomic_load(&event->recorded))
		return result;
	if (event->object.context->device != context->device || (event->shared != NULL && !ipc_event_own(event)))
		return with_cuEventSynchronize(event); // the calling thread waits instead of the streams
	size_t count = 0;
	uint32_t *list = streams_of(context, green, &count);
	if (list == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		struct wire_stream_wait wait = {list[i], event->object.number};
		result = POST(c, STREAM_WAIT, stream_wait, &wait, NO_DATA);
	}
	free(list);
	return result;
}

CUresult do_cuCtxRecordEvent(CUcontext context, CUevent event) {
	CUresult result = context_usable(context);
	return result == CUDA_SUCCESS ? record_all(context, NULL, event) : result;
}

CUresult do_cuCtxWaitEvent(CUcontext context, CUevent event) {
	CUresult result = context_usable(context);
	return result == CUDA_SUCCESS ? wait_all(context, NULL, event) : result;
}

CUresult do_cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) { return object_is(green, KIND_GREEN) ? record_all(green->object.context, green, event) : CUDA_ERROR_INVALID_CONTEXT; }

CUresult do_cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) { return object_is(green, KIND_GREEN) ? wait_all(green->object.context, green, event) : CUDA_ERROR_INVALID_CONTEXT; }
