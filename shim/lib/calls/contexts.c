// The calls on contexts: those that programs make, and the primary one of each device; what they remember, and
// how they end. Layer: calls.
#include "calls.h"

#include <stdlib.h>

#define LEAST_FIFO ((size_t)512 << 10)

#define LEAST_HEAP ((size_t)4 << 20)

static struct object *next_owned(CUcontext context) {
	pthread_mutex_lock(&shim_lock);
	struct object *o = context->owned;
	pthread_mutex_unlock(&shim_lock);
	return o;
}

// Ends the values that the CUDA runtime keeps in a context. Their functions may call anything, so the
// caller must hold no lock.
static void end_locals(CUcontext context) {
	pthread_mutex_lock(&context->local_lock);
	size_t count = context->local_count;
	struct local *locals = context->locals;
	context->locals = NULL;
	context->local_count = 0;
	pthread_mutex_unlock(&context->local_lock);
	for (size_t i = 0; i < count; i++)
		if (locals[i].end != NULL)
			locals[i].end(context, locals[i].key, locals[i].value);
	free(locals);
}

// Releases everything that a context has. If no other context uses the client (alone), one RESET does
// that at the worker and clears a fault; otherwise each object is released by its own message. If
// the client is lost, the next use of the device makes a new one. The caller holds the
// device (context_hold).
static CUresult clear_locked(CUcontext context) {
	context_defaults(context);
	moved_release(context);
	registered_release(context);

	struct client *c = atomic_load(&context->client);
	if (c == NULL)
		return CUDA_SUCCESS;
	bool alone = context_alone(context);
	if (!alone && pinned_any(c, context)) { // copies from and to it may be under way
		struct wire_synchronise message = {0};
		CALL(c, SYNCHRONISE, synchronise, &message, NO_DATA, NULL);
	}
	host_let_end(c);
	if (client_status(c) == CUDA_SUCCESS)
		print_pending(c);
	for (struct object *o = next_owned(context); o != NULL; o = next_owned(context)) {
		switch (atomic_load(&o->kind)) {
		case KIND_STREAM:
			stream_release((CUstream)o, !alone);
			break;
		case KIND_EVENT:
			event_release((CUevent)o, !alone);
			break;
		case KIND_ARRAY:
			array_release((CUarray)o, false); // its memory goes with that of the context
			break;
		case KIND_MIPMAP:
			mipmap_release((CUmipmappedArray)o, false);
			break;
		case KIND_TEXTURE:
			texture_release((struct texture *)o, !alone);
			break;
		default:
			module_release((CUmodule)o, !alone);
		}
	}
	CUresult result = CUDA_SUCCESS;
	if (alone) {
		host_fail(c);
		struct wire_reset message = {0};
		result = CALL(c, RESET, reset, &message, NO_DATA, NULL);
		print_pending(c);
	}
	if (alone)
		copies_forget(c);
	managed_release(c, context, alone);
	memory_release(c, context, !alone);
	pinned_release(c, context, !alone);
	context_detach(context);
	if (alone && client_lost(c) != CUDA_SUCCESS)
		client_drop(c);
	context_renumber(context); // invalidates what refers to it by its old id: threads' streams, modules of libraries, graphs
	return result;
}

static CUresult context_clear(CUcontext context) {
	end_locals(context);
	context_hold(context->device);
	CUresult result = clear_locked(context);
	context_let_go(context->device);
	return result;
}

// Flags must be allowed ones, with at most one way of waiting (CU_CTX_SCHED_*).
static bool flags_make_sense(unsigned flags, unsigned allowed) {
	unsigned how = flags & CU_CTX_SCHED_MASK;
	return (flags & ~allowed) == 0 && (how & (how - 1)) == 0;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device, unsigned version) {
	if (out == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags_make_sense(flags, CU_CTX_FLAGS_MASK))
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext context = context_new(device, flags, version);
	if (context == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct client *c;
	CUresult result = context_client(context, &c);
	if (result == CUDA_SUCCESS)
		result = context_push(context);
	if (result != CUDA_SUCCESS) {
		context_clear(context);
		context_forget(context);
		return result;
	}
	context->active = true;
	*out = context;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) { return create(context, flags, device, 3020); }

CUresult do_cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags, CUdevice device) {
	if (affinity != NULL && count > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(context, flags, device, 3020);
}

CUresult do_cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device) {
	if (params != NULL && params->cigParams != NULL)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params != NULL && params->execAffinityParams != NULL && params->numExecAffinityParams > 0)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(context, flags, device, 3020);
}

CUresult do_cuCtxDestroy_v2(CUcontext context) {
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!object_is(context, KIND_CONTEXT) || context->primary || !atomic_exchange(&context->active, false))
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult result = context_clear(context);
	if (context_current() == context)
		context_pop(NULL);
	context_bury(context);
	return result;
}

CUresult with_cuCtxGetCurrent(CUcontext *context) {
	*context = context_current();
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetCurrent(CUcontext context) {
	if (context != NULL && !object_is(context, KIND_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	context_pop(NULL);
	return context != NULL ? context_push(context) : CUDA_SUCCESS;
}

CUresult do_cuCtxPushCurrent_v2(CUcontext context) {
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!object_is(context, KIND_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	return context_push(context);
}

CUresult do_cuCtxPopCurrent_v2(CUcontext *context) {
	return context_pop(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
	CUcontext primary = context_primary(device);
	if (primary == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	context_hold(device);
	primary->retained++;
	primary->active = true;
	context_let_go(device);
	*context = primary;
	return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	CUcontext primary = context_primary(device);
	if (primary == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	context_hold(device);
	int left = primary->retained > 0 ? --primary->retained : -1; // a reset does not change the count
	if (left == 0) {
		primary->active = false;
		primary->flags = 0;
	}
	context_let_go(device);
	if (left != 0)
		return left < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
	end_locals(primary);
	CUresult result = CUDA_SUCCESS;
	context_hold(device);
	if (primary->retained == 0) // no other thread has retained it while the lock was free
		result = clear_locked(primary);
	context_let_go(device);
	return result;
}

CUresult do_cuDevicePrimaryCtxReset_v2(CUdevice device) {
	CUcontext primary = context_primary(device);
	if (primary == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	context_hold(device);
	primary->active = false;
	primary->flags = 0;
	context_let_go(device);
	return context_clear(primary);
}

CUresult do_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
	CUcontext primary = context_primary(device);
	if (flags == NULL || active == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (primary == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = primary->flags;
	*active = primary->active;
	return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
	CUcontext primary = context_primary(device);
	if (primary == NULL)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags_make_sense(flags, CU_CTX_FLAGS_MASK & ~CU_CTX_MAP_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	primary->flags = flags;
	return CUDA_SUCCESS;
}

// Current runtimes still ask for the variants from before CUDA 11.0. Those differ only for threads
// that have the context current, which makes no difference here.
CUresult do_cuDevicePrimaryCtxRelease(CUdevice device) { return do_cuDevicePrimaryCtxRelease_v2(device); }

CUresult do_cuDevicePrimaryCtxReset(CUdevice device) { return do_cuDevicePrimaryCtxReset_v2(device); }

CUresult do_cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) { return do_cuDevicePrimaryCtxSetFlags_v2(device, flags); }

CUresult do_cuCtxGetDevice(CUdevice *device) {
	CUcontext context = context_current();
	if (device == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!object_is(context, KIND_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = context->device;
	return CUDA_SUCCESS;
}

// Resolves a context argument: NULL means the current one.
static CUresult named(CUcontext *context) {
	if (*context == NULL)
		*context = context_current();
	return object_is(*context, KIND_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
	CUresult result = named(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (device == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*device = context->device;
	return CUDA_SUCCESS;
}

CUresult with_cuCtxGetFlags(CUcontext context, unsigned int *flags) {
	*flags = context->primary ? context->flags | CU_CTX_MAP_HOST : context->flags;
	return CUDA_SUCCESS;
}

CUresult with_cuCtxSetFlags(CUcontext context, unsigned int flags) {
	if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	context->flags = flags;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetId(CUcontext context, unsigned long long *id) {
	CUresult result = named(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (id == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*id = context->id;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetApiVersion(CUcontext context, unsigned int *version) {
	CUresult result = named(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (version == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*version = context->version;
	return CUDA_SUCCESS;
}

CUresult with_cuCtxGetLimit(CUcontext context, size_t *value, CUlimit limit) {
	if ((unsigned)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*value = context->limits[limit];
	if (*value == STACK_UNSET)
		*value = 1024;
	else if (limit == CU_LIMIT_SHMEM_SIZE)
		*value = (size_t)devices[context->device].attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN];
	return CUDA_SUCCESS;
}

CUresult with_cuCtxSetLimit(CUcontext context, CUlimit limit, size_t value) {
	switch (limit) {
	case CU_LIMIT_STACK_SIZE:
		if (value > 512 * 1024)
			return CUDA_ERROR_INVALID_VALUE;
		value = (value + 15) & ~(size_t)15;
		break;
	case CU_LIMIT_PRINTF_FIFO_SIZE:
		value = value < LEAST_FIFO ? LEAST_FIFO : value;
		break;
	case CU_LIMIT_MALLOC_HEAP_SIZE:
		value = value < LEAST_HEAP ? LEAST_HEAP : value;
		break;
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
		if (value > 128)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
		if (value > (size_t)devices[context->device].attributes[CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE])
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
	case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	case CU_LIMIT_SHMEM_SIZE:
	case CU_LIMIT_CIG_ENABLED:
		return CUDA_ERROR_NOT_PERMITTED;
	default:
		if ((unsigned)limit >= CU_LIMIT_MAX)
			return CUDA_ERROR_INVALID_VALUE;
	}
	CUresult result = capture_unsafe();
	if (result != CUDA_SUCCESS)
		return result;
	context->limits[limit] = value;
	if (limit == CU_LIMIT_STACK_SIZE)
		return CUDA_SUCCESS; // launches say it
	struct client *c;
	result = context_client(context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_limit message = {(uint32_t)limit, value};
	return POST(c, LIMIT, limit, &message, NO_DATA);
}

CUresult with_cuCtxSetCacheConfig(CUcontext context, CUfunc_cache config) {
	if ((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	context->cache = config;
	return CUDA_SUCCESS;
}

CUresult with_cuCtxGetCacheConfig(CUcontext context, CUfunc_cache *config) {
	*config = context->cache;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetSharedMemConfig(CUsharedconfig config) {
	CUcontext context;
	CUresult result = context_need(&context);
	if (result == CUDA_SUCCESS)
		context->banks = config;
	return result;
}

CUresult with_cuCtxGetSharedMemConfig(CUcontext context, CUsharedconfig *config) {
	(void)context;
	*config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxResetPersistingL2Cache(void) {
	CUcontext context;
	return context_need(&context);
}

CUresult with_cuCtxGetStreamPriorityRange(CUcontext context, int *least, int *greatest) {
	(void)context;
	if (least != NULL)
		*least = 0;
	if (greatest != NULL)
		*greatest = -5;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSynchronize(void) {
	CUcontext context;
	CUresult result = context_need(&context);
	return result == CUDA_SUCCESS ? context_synchronise(context) : result;
}

CUresult do_cuCtxSynchronize_v2(CUcontext context) {
	if (context == NULL)
		return do_cuCtxSynchronize();
	CUresult result = context_usable(context);
	return result == CUDA_SUCCESS ? context_synchronise(context) : result;
}
