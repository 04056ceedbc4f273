// Arrays. Layer: memory. An array is ordinary device memory of the client, in rows without
// gaps: so copies are ordinary copies, and arrays move with their client. The worker only hears of
// an array's shape when a texture or surface is made of it (texture.c).
#include "memory.h"

#include <stdlib.h>

#define LEVEL_STEP 512 // levels of a mipmap begin at its multiples

static size_t at_least_one(size_t n) { return n > 0 ? n : 1; }

// Formats of images and video, which are not supported, have numbers above the others.
static bool is_foreign(CUarray_format format) { return (int)format > CU_AD_FORMAT_FLOAT; }

// Whether a size is within a limit of the device. An attribute that the device does not report (0)
// is no limit.
static bool within(const int *attributes, int attribute, size_t size) { return attributes[attribute] == 0 || size <= (size_t)attributes[attribute]; }

static bool fits(const struct client *c, const CUDA_ARRAY3D_DESCRIPTOR *d) {
	const int *a = devices[c->device].attributes;
	bool layered = (d->Flags & CUDA_ARRAY3D_LAYERED) != 0;
	if ((d->Flags & CUDA_ARRAY3D_CUBEMAP) != 0)
		return within(a, layered ? 53 : 52, d->Width) && (!layered || within(a, 54, d->Depth));
	if (d->Height == 0)
		return within(a, layered ? 42 : 21, d->Width) && (!layered || within(a, 43, d->Depth));
	if (layered)
		return within(a, 27, d->Width) && within(a, 28, d->Height) && within(a, 29, d->Depth);
	if (d->Depth == 0)
		return within(a, 22, d->Width) && within(a, 23, d->Height);
	return within(a, 24, d->Width) && within(a, 25, d->Height) && within(a, 26, d->Depth);
}

static CUresult check_shape(const struct client *c, const CUDA_ARRAY3D_DESCRIPTOR *d) {
	const unsigned known = 0xff, refused = CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
	bool layered = (d->Flags & CUDA_ARRAY3D_LAYERED) != 0, cube = (d->Flags & CUDA_ARRAY3D_CUBEMAP) != 0;
	if (is_foreign(d->Format) || (d->Flags & refused) != 0) {
		if (shim_trace >= 1)
			complain("muster: arrays of format 0x%x with flags 0x%x are not supported", (unsigned)d->Format, d->Flags);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (element_size(d->Format, d->NumChannels) == 0 || (d->Flags & ~known) != 0 || d->Width == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (cube && (d->Width != d->Height || d->Depth == 0 || d->Depth % 6 != 0 || (!layered && d->Depth != 6)))
		return CUDA_ERROR_INVALID_VALUE;
	if ((layered && d->Depth == 0) || (!layered && d->Depth > 0 && d->Height == 0))
		return CUDA_ERROR_INVALID_VALUE;
	return fits(c, d) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static size_t half(size_t n, unsigned level) { return n == 0 ? 0 : at_least_one(n >> level); }

// The shape of a level; layers stay what they are.
static CUDA_ARRAY3D_DESCRIPTOR level_shape(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level) {
	CUDA_ARRAY3D_DESCRIPTOR shape = *d;
	shape.Width = half(d->Width, level);
	shape.Height = half(d->Height, level);
	if ((d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0)
		shape.Depth = half(d->Depth, level);
	return shape;
}

static void measure(CUarray array) {
	const CUDA_ARRAY3D_DESCRIPTOR *d = &array->shape;
	array->row = d->Width * element_size(d->Format, d->NumChannels);
	array->slice = array->row * at_least_one(d->Height);
	array->size = array->slice * at_least_one(d->Depth);
}

static CUarray array_new(const CUDA_ARRAY3D_DESCRIPTOR *shape) {
	CUarray array = object_new(KIND_ARRAY, sizeof *array);
	if (array != NULL) {
		array->shape = *shape;
		measure(array);
	}
	return array;
}

CUresult with_cuArray3DCreate_v2(struct target *t, CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
	CUresult result = check_shape(t->client, descriptor);
	if (result != CUDA_SUCCESS)
		return result;
	CUarray made = array_new(descriptor);
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr at = 0;
	result = memory_allocate(t, made->size, &at);
	if (result != CUDA_SUCCESS) {
		object_free(made);
		return result;
	}
	made->at = at;
	context_own(t->context, made);
	*array = made;
	return CUDA_SUCCESS;
}

CUresult with_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor) {
	const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = descriptor->Width, .Height = descriptor->Height, .Format = descriptor->Format, .NumChannels = descriptor->NumChannels};
	struct target t;
	CUresult result = target_current(&t);
	if (result != CUDA_SUCCESS)
		return result;
	return array != NULL ? with_cuArray3DCreate_v2(&t, array, &shape) : CUDA_ERROR_INVALID_VALUE;
}

// Frees memory that was taken for an array.
static void give_back(CUcontext context, uint64_t at, bool tell) {
	struct client *c = context != NULL ? atomic_load(&context->client) : NULL;
	if (tell && c != NULL)
		memory_free(c, at);
}

void array_release(CUarray array, bool tell) {
	CUcontext context = array->object.context;
	if (context == NULL || !context_disown(array))
		return;
	give_back(context, array->at, tell);
	object_free(array);
}

CUresult with_cuArrayDestroy(CUarray array) {
	if (array->mipmap != NULL) // it ends with the mipmap
		return CUDA_ERROR_INVALID_HANDLE;
	array_release(array, true);
	return CUDA_SUCCESS;
}

CUresult with_cuArray3DGetDescriptor_v2(CUcontext context, CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array) {
	(void)context;
	if (!object_is(array, KIND_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (descriptor == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*descriptor = array->shape;
	return CUDA_SUCCESS;
}

CUresult with_cuArrayGetDescriptor_v2(CUcontext context, CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array) {
	CUDA_ARRAY3D_DESCRIPTOR shape;
	CUresult result = with_cuArray3DGetDescriptor_v2(context, &shape, array);
	if (result != CUDA_SUCCESS)
		return result;
	if (descriptor == NULL || shape.Depth > 0)
		return CUDA_ERROR_INVALID_VALUE;
	*descriptor = (CUDA_ARRAY_DESCRIPTOR){shape.Width, shape.Height, shape.Format, shape.NumChannels};
	return CUDA_SUCCESS;
}

// --- mipmaps --------------------------------------------------------------------------

static unsigned most_levels(const CUDA_ARRAY3D_DESCRIPTOR *d) {
	size_t longest = d->Width > d->Height ? d->Width : d->Height;
	if ((d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0 && d->Depth > longest)
		longest = d->Depth;
	unsigned n = 0;
	for (; longest > 0; longest >>= 1)
		n++;
	return n;
}

static void drop_levels(CUmipmappedArray mipmap) {
	for (unsigned i = 0; i < mipmap->count; i++)
		if (mipmap->levels[i] != NULL)
			object_free(mipmap->levels[i]);
}

// Makes the levels of a mipmap, one behind the other.
static bool make_levels(CUmipmappedArray mipmap) {
	for (unsigned i = 0; i < mipmap->count; i++) {
		const CUDA_ARRAY3D_DESCRIPTOR shape = level_shape(&mipmap->shape, i);
		CUarray level = mipmap->levels[i] = array_new(&shape);
		if (level == NULL)
			return false;
		level->mipmap = mipmap;
		level->level = i;
		level->at = (mipmap->size + LEVEL_STEP - 1) / LEVEL_STEP * LEVEL_STEP;
		mipmap->size = level->at + level->size;
	}
	return true;
}

CUresult with_cuMipmappedArrayCreate(struct target *t, CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels) {
	if (levels == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = check_shape(t->client, descriptor);
	if (result != CUDA_SUCCESS)
		return result;
	CUmipmappedArray made = object_new(KIND_MIPMAP, sizeof *made);
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->shape = *descriptor;
	made->count = levels < most_levels(descriptor) ? levels : most_levels(descriptor);
	CUdeviceptr at = 0;
	result = made->count <= MAX_LEVELS && make_levels(made) ? memory_allocate(t, made->size, &at) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		drop_levels(made);
		object_free(made);
		return result;
	}
	made->at = at;
	for (unsigned i = 0; i < made->count; i++)
		made->levels[i]->at += at;
	context_own(t->context, made);
	*array = made;
	return CUDA_SUCCESS;
}

void mipmap_release(CUmipmappedArray array, bool tell) {
	CUcontext context = array->object.context;
	if (context == NULL || !context_disown(array))
		return;
	give_back(context, array->at, tell);
	drop_levels(array);
	object_free(array);
}

CUresult with_cuMipmappedArrayDestroy(CUmipmappedArray array) {
	mipmap_release(array, true);
	return CUDA_SUCCESS;
}

CUresult with_cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray array, unsigned int number) {
	if (level == NULL || number >= array->count)
		return CUDA_ERROR_INVALID_VALUE;
	*level = array->levels[number];
	return CUDA_SUCCESS;
}

// Only arrays that are mapped later have requirements.
CUresult do_cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUarray array, CUdevice device) {
	(void)device;
	if (!object_is(array, KIND_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (requirements == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = (array->size + LEVEL_STEP - 1) / LEVEL_STEP * LEVEL_STEP, .alignment = LEVEL_STEP};
	return CUDA_SUCCESS;
}

CUresult do_cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, CUmipmappedArray array, CUdevice device) {
	(void)device;
	if (!object_is(array, KIND_MIPMAP))
		return CUDA_ERROR_INVALID_HANDLE;
	if (requirements == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = (array->size + LEVEL_STEP - 1) / LEVEL_STEP * LEVEL_STEP, .alignment = LEVEL_STEP};
	return CUDA_SUCCESS;
}

// --- copies of one dimension --------------------------------------------------------------

// The address of some bytes of an array. As in the driver they are of its first row.
static CUresult place_in(CUarray array, size_t offset, size_t bytes, CUdeviceptr *at) {
	if (!object_is(array, KIND_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (offset > array->row || bytes > array->row - offset)
		return CUDA_ERROR_INVALID_VALUE;
	*at = array->at + offset;
	return CUDA_SUCCESS;
}

CUresult do_cuMemcpyHtoA_v2(CUarray destination, size_t to, const void *source, size_t bytes, CUstream stream) {
	CUdeviceptr at;
	CUresult result = place_in(destination, to, bytes, &at);
	return result == CUDA_SUCCESS ? do_cuMemcpyHtoD_v2(at, source, bytes, stream) : result;
}

CUresult do_cuMemcpyHtoAAsync_v2(CUarray destination, size_t to, const void *source, size_t bytes, CUstream stream) {
	CUdeviceptr at;
	CUresult result = place_in(destination, to, bytes, &at);
	return result == CUDA_SUCCESS ? do_cuMemcpyHtoDAsync_v2(at, source, bytes, stream) : result;
}

CUresult do_cuMemcpyAtoH_v2(void *destination, CUarray source, size_t from, size_t bytes, CUstream stream) {
	CUdeviceptr at;
	CUresult result = place_in(source, from, bytes, &at);
	return result == CUDA_SUCCESS ? do_cuMemcpyDtoH_v2(destination, at, bytes, stream) : result;
}

CUresult do_cuMemcpyAtoHAsync_v2(void *destination, CUarray source, size_t from, size_t bytes, CUstream stream) {
	CUdeviceptr at;
	CUresult result = place_in(source, from, bytes, &at);
	return result == CUDA_SUCCESS ? do_cuMemcpyDtoHAsync_v2(destination, at, bytes, stream) : result;
}

CUresult do_cuMemcpyDtoA_v2(CUarray destination, size_t to, CUdeviceptr source, size_t bytes, CUstream stream) {
	CUdeviceptr at;
	CUresult result = place_in(destination, to, bytes, &at);
	return result == CUDA_SUCCESS ? do_cuMemcpyDtoD_v2(at, source, bytes, stream) : result;
}

CUresult do_cuMemcpyAtoD_v2(CUdeviceptr destination, CUarray source, size_t from, size_t bytes, CUstream stream) {
	CUdeviceptr at;
	CUresult result = place_in(source, from, bytes, &at);
	return result == CUDA_SUCCESS ? do_cuMemcpyDtoD_v2(destination, at, bytes, stream) : result;
}

CUresult do_cuMemcpyAtoA_v2(CUarray destination, size_t to, CUarray source, size_t from, size_t bytes, CUstream stream) {
	CUdeviceptr at;
	CUresult result = place_in(source, from, bytes, &at);
	return result == CUDA_SUCCESS ? do_cuMemcpyDtoA_v2(destination, to, at, bytes, stream) : result;
}

// --- copies between contexts ------------------------------------------------------------------

// Copies through memory of the host: from one client's memory, then to the other's.
static CUresult through_host(const CUDA_MEMCPY3D *copy, CUcontext to, CUcontext from, CUstream stream) {
	struct target t;
	CUresult result = target_of(stream, &t);
	if (result == CUDA_SUCCESS)
		result = target_wait(&t);
	size_t plane, size;
	if (result != CUDA_SUCCESS)
		return result;
	if (__builtin_mul_overflow(copy->WidthInBytes, copy->Height, &plane) || __builtin_mul_overflow(plane, copy->Depth, &size))
		return CUDA_ERROR_INVALID_VALUE;
	void *buffer = malloc(at_least_one(size));
	if (buffer == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUDA_MEMCPY3D out = *copy, in = *copy;
	out.dstXInBytes = out.dstY = out.dstZ = 0;
	in.srcXInBytes = in.srcY = in.srcZ = 0;
	out.dstMemoryType = in.srcMemoryType = CU_MEMORYTYPE_HOST;
	out.dstHost = buffer;
	in.srcHost = buffer;
	out.dstPitch = in.srcPitch = copy->WidthInBytes;
	out.dstHeight = in.srcHeight = copy->Height;
	result = context_push(from);
	if (result == CUDA_SUCCESS) {
		result = do_cuMemcpy3D_v2(&out, NULL);
		context_pop(NULL);
	}
	if (result == CUDA_SUCCESS)
		result = context_push(to);
	if (result == CUDA_SUCCESS) {
		result = do_cuMemcpy3D_v2(&in, NULL);
		if (result == CUDA_SUCCESS)
			result = context_synchronise(to);
		context_pop(NULL);
	}
	free(buffer);
	return result;
}

CUresult do_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *peer, CUstream stream) {
	if (peer == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "the two differ in the meaning of two fields alone");
	CUDA_MEMCPY3D copy;
	memcpy(&copy, peer, sizeof copy);
	copy.reserved0 = copy.reserved1 = NULL;
	struct target t;
	struct client *to, *from;
	CUresult result = target_of(stream, &t);
	CUcontext to_context = peer->dstContext != NULL ? peer->dstContext : t.context, from_context = peer->srcContext != NULL ? peer->srcContext : t.context;
	if (result == CUDA_SUCCESS)
		result = context_usable(to_context);
	if (result == CUDA_SUCCESS)
		result = context_usable(from_context);
	if (result == CUDA_SUCCESS)
		result = context_client(to_context, &to);
	if (result == CUDA_SUCCESS)
		result = context_client(from_context, &from);
	if (result != CUDA_SUCCESS)
		return result;
	if (to == t.client && from == t.client)
		return do_cuMemcpy3DAsync_v2(&copy, stream);
	return through_host(&copy, to_context, from_context, stream);
}

CUresult do_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream) { return do_cuMemcpy3DPeerAsync(copy, stream); }
