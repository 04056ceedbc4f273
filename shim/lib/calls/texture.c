// Texture and surface objects. Layer: calls. The worker makes them and returns the handle
// that kernels use; the descriptors are kept here for the functions that return them.
#include "calls.h"

_Static_assert(sizeof(CUDA_RESOURCE_DESC) == 144, "as in CUDA's headers");
_Static_assert(sizeof(CUDA_TEXTURE_DESC) == 104, "as in CUDA's headers");
_Static_assert(sizeof(CUDA_RESOURCE_VIEW_DESC) == 112, "as in CUDA's headers");
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "as in CUDA's headers");
_Static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24, "as in CUDA's headers");
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "as in CUDA's headers");

// The flags that the worker needs. Others make no difference for the arrays of this library.
#define ARRAY_FLAGS (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER)

static uint32_t bits(float f) {
	uint32_t n;
	memcpy(&n, &f, sizeof n);
	return n;
}

static void describe_shape(struct wire_texture_create *m, const CUDA_ARRAY3D_DESCRIPTOR *shape, uint64_t at, unsigned levels) {
	m->addr = at;
	m->format = (uint32_t)shape->Format;
	m->channels = shape->NumChannels;
	m->width = shape->Width;
	m->height = shape->Height;
	m->depth = shape->Depth;
	m->array_flags = shape->Flags & ARRAY_FLAGS;
	m->levels = levels;
}

// A level of a mipmap is described by the whole mipmap: a device may store it as one object.
static CUresult describe_array(struct wire_texture_create *m, CUarray array) {
	if (!object_is(array, KIND_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (array->mipmap == NULL)
		describe_shape(m, &array->shape, array->at, 1);
	else
		describe_shape(m, &array->mipmap->shape, array->mipmap->at, array->mipmap->count);
	m->level = array->level;
	return CUDA_SUCCESS;
}

static CUresult describe_mipmap(struct wire_texture_create *m, CUmipmappedArray mipmap) {
	if (!object_is(mipmap, KIND_MIPMAP))
		return CUDA_ERROR_INVALID_HANDLE;
	describe_shape(m, &mipmap->shape, mipmap->at, mipmap->count);
	return CUDA_SUCCESS;
}

static CUresult describe_linear(struct wire_texture_create *m, const struct target *t, const CUDA_RESOURCE_DESC *r) {
	const int *a = devices[t->client->device].attributes;
	size_t element = element_size(r->res.linear.format, r->res.linear.numChannels);
	size_t alignment = (size_t)a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
	if (element == 0 || r->res.linear.sizeInBytes < element || (alignment > 0 && r->res.linear.devPtr % alignment != 0))
		return CUDA_ERROR_INVALID_VALUE;
	if (a[69] > 0 && r->res.linear.sizeInBytes / element > (size_t)a[69])
		return CUDA_ERROR_INVALID_VALUE;
	m->addr = r->res.linear.devPtr;
	m->format = (uint32_t)r->res.linear.format;
	m->channels = r->res.linear.numChannels;
	m->size = r->res.linear.sizeInBytes;
	return memory_owner(t->client, m->addr, m->size) == t->client ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult describe_pitched(struct wire_texture_create *m, const struct target *t, const CUDA_RESOURCE_DESC *r) {
	const int *a = devices[t->client->device].attributes;
	size_t element = element_size(r->res.pitch2D.format, r->res.pitch2D.numChannels), pitch = r->res.pitch2D.pitchInBytes, row, size;
	size_t alignment = (size_t)a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT], step = (size_t)a[CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT];
	size_t width = r->res.pitch2D.width, height = r->res.pitch2D.height;
	if (element == 0 || width == 0 || height == 0 || __builtin_mul_overflow(width, element, &row) || pitch < row || __builtin_mul_overflow(pitch, height - 1, &size))
		return CUDA_ERROR_INVALID_VALUE;
	if ((alignment > 0 && r->res.pitch2D.devPtr % alignment != 0) || (step > 0 && pitch % step != 0))
		return CUDA_ERROR_INVALID_VALUE;
	if ((a[70] > 0 && width > (size_t)a[70]) || (a[71] > 0 && height > (size_t)a[71]) || (a[72] > 0 && pitch > (size_t)a[72]))
		return CUDA_ERROR_INVALID_VALUE;
	m->addr = r->res.pitch2D.devPtr;
	m->format = (uint32_t)r->res.pitch2D.format;
	m->channels = r->res.pitch2D.numChannels;
	m->width = width;
	m->height = height;
	m->pitch = pitch;
	return memory_owner(t->client, m->addr, size + row) == t->client ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult describe_resource(struct wire_texture_create *m, const struct target *t, const CUDA_RESOURCE_DESC *r) {
	m->resource = (uint32_t)r->resType;
	if (r->flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	switch (r->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return describe_array(m, r->res.array.hArray);
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return describe_mipmap(m, r->res.mipmap.hMipmappedArray);
	case CU_RESOURCE_TYPE_LINEAR:
		return describe_linear(m, t, r);
	case CU_RESOURCE_TYPE_PITCH2D:
		return describe_pitched(m, t, r);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static bool is_integer(const struct wire_texture_create *m) {
	if (m->format == CU_AD_FORMAT_FLOAT || m->format == CU_AD_FORMAT_HALF)
		return false;
	return (m->flags & CU_TRSF_READ_AS_INTEGER) != 0 || m->format == CU_AD_FORMAT_UNSIGNED_INT32 || m->format == CU_AD_FORMAT_SIGNED_INT32;
}

static CUresult describe_sampler(struct wire_texture_create *m, const CUDA_TEXTURE_DESC *d) {
	const unsigned known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
	for (int i = 0; i < 3; i++)
		if ((unsigned)d->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER)
			return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned)d->filterMode > CU_TR_FILTER_MODE_LINEAR || (unsigned)d->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR || (d->flags & ~known) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	m->address_x = (uint32_t)d->addressMode[0];
	m->address_y = (uint32_t)d->addressMode[1];
	m->address_z = (uint32_t)d->addressMode[2];
	m->filter = (uint32_t)d->filterMode;
	m->flags = d->flags;
	m->anisotropy = d->maxAnisotropy;
	m->mip_filter = (uint32_t)d->mipmapFilterMode;
	m->bias = bits(d->mipmapLevelBias);
	m->min_level = bits(d->minMipmapLevelClamp);
	m->max_level = bits(d->maxMipmapLevelClamp);
	m->border_r = bits(d->borderColor[0]);
	m->border_g = bits(d->borderColor[1]);
	m->border_b = bits(d->borderColor[2]);
	m->border_a = bits(d->borderColor[3]);
	bool sampled = m->resource != CU_RESOURCE_TYPE_LINEAR; // a linear resource has no filter
	if (sampled && is_integer(m) && m->filter == CU_TR_FILTER_MODE_LINEAR)
		return CUDA_ERROR_INVALID_VALUE;
	if (m->resource == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY && (m->flags & CU_TRSF_NORMALIZED_COORDINATES) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult describe_view(struct wire_texture_create *m, const CUDA_RESOURCE_VIEW_DESC *v) {
	if (v == NULL)
		return CUDA_SUCCESS;
	if (m->resource != CU_RESOURCE_TYPE_ARRAY && m->resource != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	if (v->format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
		return CUDA_ERROR_INVALID_VALUE;
	m->has_view = 1;
	m->view_format = (uint32_t)v->format;
	m->view_width = v->width;
	m->view_height = v->height;
	m->view_depth = v->depth;
	m->first_level = v->firstMipmapLevel;
	m->last_level = v->lastMipmapLevel;
	m->first_layer = v->firstLayer;
	m->last_layer = v->lastLayer;
	return CUDA_SUCCESS;
}

// --- objects -------------------------------------------------------------------------------

// Has the worker make an object, and keeps what it was made of.
static CUresult create(const struct target *t, const struct wire_texture_create *message, struct texture *made) {
	struct wire_texture_create_reply reply;
	CUresult result = ASK(t->client, TEXTURE_CREATE, texture_create, message, NO_DATA, &reply);
	if (result != CUDA_SUCCESS)
		return result;
	if (reply.handle == 0)
		return CUDA_ERROR_UNKNOWN;
	made->handle = reply.handle;
	made->surface = message->surface != 0;
	return CUDA_SUCCESS;
}

CUresult with_cuTexObjectCreate(struct target *t, CUtexObject *object, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view) {
	struct wire_texture_create message = {0};
	CUresult result = describe_resource(&message, t, resource);
	if (result == CUDA_SUCCESS)
		result = describe_sampler(&message, texture);
	if (result == CUDA_SUCCESS)
		result = describe_view(&message, view);
	if (result != CUDA_SUCCESS)
		return result;
	struct texture *made = object_new(KIND_TEXTURE, sizeof *made);
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = create(t, &message, made);
	if (result != CUDA_SUCCESS) {
		object_free(made);
		return result;
	}
	made->resource = *resource;
	made->texture = *texture;
	made->viewed = view != NULL;
	if (view != NULL)
		made->view = *view;
	context_own(t->context, made);
	*object = made->handle;
	return CUDA_SUCCESS;
}

CUresult with_cuSurfObjectCreate(struct target *t, CUsurfObject *object, const CUDA_RESOURCE_DESC *resource) {
	if (resource->resType != CU_RESOURCE_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	struct wire_texture_create message = {.surface = 1};
	CUresult result = describe_resource(&message, t, resource);
	if (result == CUDA_SUCCESS && (message.array_flags & CUDA_ARRAY3D_SURFACE_LDST) == 0)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	struct texture *made = object_new(KIND_TEXTURE, sizeof *made);
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = create(t, &message, made);
	if (result != CUDA_SUCCESS) {
		object_free(made);
		return result;
	}
	made->resource = *resource;
	context_own(t->context, made);
	*object = made->handle;
	return CUDA_SUCCESS;
}

// The object of a handle in the current context; NULL if there is none.
static struct texture *find(uint64_t handle, bool surface) {
	CUcontext context = context_current();
	struct texture *found = NULL;
	if (!object_is(context, KIND_CONTEXT) || handle == 0)
		return NULL;
	pthread_mutex_lock(&shim_lock);
	for (struct object *o = context->owned; o != NULL && found == NULL; o = o->next) {
		struct texture *t = (struct texture *)o;
		if (atomic_load(&o->kind) == KIND_TEXTURE && t->handle == handle && t->surface == surface)
			found = t;
	}
	pthread_mutex_unlock(&shim_lock);
	return found;
}

void texture_release(struct texture *texture, bool tell) {
	CUcontext context = texture->object.context;
	if (context == NULL || !context_disown(texture))
		return;
	struct client *c = atomic_load(&context->client);
	if (tell && c != NULL) {
		struct wire_texture_destroy message = {texture->handle, texture->surface};
		host_hold(c); // the worker destroys it when no kernel runs
		POST(c, TEXTURE_DESTROY, texture_destroy, &message, NO_DATA);
		host_go_on(c);
	}
	object_free(texture);
}

static CUresult destroy(uint64_t handle, bool surface) {
	CUcontext context;
	CUresult result = context_need(&context);
	if (result != CUDA_SUCCESS)
		return result;
	struct texture *texture = find(handle, surface);
	if (texture == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	texture_release(texture, true);
	return CUDA_SUCCESS;
}

CUresult do_cuTexObjectDestroy(CUtexObject object) { return destroy(object, false); }
CUresult do_cuSurfObjectDestroy(CUsurfObject object) { return destroy(object, true); }

static CUresult resource_of(CUDA_RESOURCE_DESC *resource, uint64_t handle, bool surface) {
	struct texture *texture = find(handle, surface);
	if (resource == NULL || texture == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*resource = texture->resource;
	return CUDA_SUCCESS;
}

CUresult do_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject object) { return resource_of(resource, object, false); }
CUresult do_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject object) { return resource_of(resource, object, true); }

CUresult do_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *texture, CUtexObject object) {
	struct texture *found = find(object, false);
	if (texture == NULL || found == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*texture = found->texture;
	return CUDA_SUCCESS;
}

CUresult do_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject object) {
	struct texture *found = find(object, false);
	if (view == NULL || found == NULL || !found->viewed)
		return CUDA_ERROR_INVALID_VALUE;
	*view = found->view;
	return CUDA_SUCCESS;
}
