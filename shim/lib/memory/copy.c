// Copies and fills. Layer: memory.
#include "memory.h"

#include <stdlib.h>

// --- copies of one dimension -----------------------------------------------------------

// Finds the client whose memory contains the bytes. If it is another device's, waits for the stream
// and redirects the work to the default stream of that device.
static CUresult route(struct target *t, CUdeviceptr at, size_t size, bool *elsewhere) {
	struct client *c = memory_owner(t->client, at, size);
	if (c == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*elsewhere = c != t->client;
	if (!*elsewhere)
		return CUDA_SUCCESS;
	CUresult result = target_wait(t);
	t->client = c;
	t->stream = 0;
	return result;
}

static CUresult device_to_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
static CUresult unified(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool wait);

// Records a copy of one dimension; the caller says which sides are device memory.
static CUresult capture_plain(const struct target *t, CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size) {
	CUDA_MEMCPY3D copy = {.WidthInBytes = size, .Height = 1, .Depth = 1};
	copy.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	copy.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	if (from_device)
		copy.srcDevice = from;
	else
		copy.srcHost = (const void *)(uintptr_t)from;
	if (to_device)
		copy.dstDevice = to;
	else
		copy.dstHost = (void *)(uintptr_t)to;
	return recorder->copy(t, &copy);
}

static bool is_device(struct client *preferred, CUdeviceptr at) { return memory_owner(preferred, at, 1) != NULL; }

// Whether an address lies in the addresses of some device. A quick test without a lock, which most
// host addresses fail.
static bool may_be_device(const void *at) {
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL && (uint64_t)(uintptr_t)at - c->granted.base < c->granted.size)
			return true;
	}
	return managed_has((CUdeviceptr)(uintptr_t)at);
}

// With unified addressing, the address that should be the host's may be a device's, and the other may
// be pinned host memory: then the copy is passed on to device_to_device or unified.
static CUresult host_to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream, bool wait) {
	struct target t;
	bool elsewhere;
	CUresult result = wait ? target_of(stream, &t) : target_work(stream, &t);
	if (result != CUDA_SUCCESS || size == 0)
		return result;
	if (from == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (t.captured)
		return capture_plain(&t, to, true, (CUdeviceptr)(uintptr_t)from, is_device(t.client, (CUdeviceptr)(uintptr_t)from), size);
	if (may_be_device(from))
		return is_device(t.client, (CUdeviceptr)(uintptr_t)from) ? device_to_device(to, (CUdeviceptr)(uintptr_t)from, size, stream) : CUDA_ERROR_INVALID_VALUE;
	result = route(&t, to, size, &elsewhere);
	if (result != CUDA_SUCCESS && pinned_has(to))
		return unified(to, (CUdeviceptr)(uintptr_t)from, size, stream, wait);
	if (result == CUDA_SUCCESS)
		result = managed_touch(to, size, true);
	if (result == CUDA_SUCCESS)
		result = copy_in(t.client, t.stream, to, from, size, wait);
	if (result == CUDA_SUCCESS && wait)
		result = copies_note(&t);
	return result == CUDA_SUCCESS && elsewhere ? target_wait(&t) : result;
}

static CUresult device_to_host(void *to, CUdeviceptr from, size_t size, CUstream stream, bool wait) {
	struct target t;
	bool elsewhere;
	CUresult result = wait ? target_of(stream, &t) : target_work(stream, &t);
	if (result != CUDA_SUCCESS || size == 0)
		return result;
	if (to == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (t.captured)
		return capture_plain(&t, (CUdeviceptr)(uintptr_t)to, is_device(t.client, (CUdeviceptr)(uintptr_t)to), from, true, size);
	if (may_be_device(to))
		return is_device(t.client, (CUdeviceptr)(uintptr_t)to) ? device_to_device((CUdeviceptr)(uintptr_t)to, from, size, stream) : CUDA_ERROR_INVALID_VALUE;
	result = route(&t, from, size, &elsewhere);
	if (result != CUDA_SUCCESS && pinned_has(from))
		return unified((CUdeviceptr)(uintptr_t)to, from, size, stream, wait);
	if (result == CUDA_SUCCESS)
		result = managed_touch(from, size, false);
	return result == CUDA_SUCCESS ? copy_out(t.client, t.stream, to, from, size, wait || elsewhere) : result;
}

// Copies between two devices through a buffer in the program's memory.
static CUresult across(struct client *to_client, CUdeviceptr to, struct client *from_client, CUdeviceptr from, size_t size) {
	size_t limit = size < STAGE_PIECE ? size : STAGE_PIECE;
	uint8_t *buffer = malloc(limit);
	if (buffer == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = CUDA_SUCCESS;
	for (size_t done = 0; done < size && result == CUDA_SUCCESS; done += limit) {
		size_t piece = size - done < limit ? size - done : limit;
		result = copy_out(from_client, 0, buffer, from + done, piece, true);
		if (result == CUDA_SUCCESS)
			result = copy_in(to_client, 0, to + done, buffer, piece, true);
	}
	free(buffer);
	return result == CUDA_SUCCESS ? stream_wait(to_client, 0) : result;
}

CUresult copy_across(const struct target *t, CUdeviceptr to, CUdeviceptr from, size_t size) {
	struct client *to_client = memory_owner(t->client, to, size), *from_client = memory_owner(t->client, from, size);
	if (to_client == NULL || from_client == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = target_wait(t);
	return result == CUDA_SUCCESS ? across(to_client, to, from_client, from, size) : result;
}

static CUresult managed_touch_both(CUdeviceptr to, CUdeviceptr from, size_t size) {
	CUresult result = managed_touch(from, size, false);
	return result == CUDA_SUCCESS ? managed_touch(to, size, true) : result;
}

static CUresult device_to_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
	struct target t;
	CUresult result = target_work(stream, &t);
	if (result != CUDA_SUCCESS || size == 0)
		return result;
	if (t.captured)
		return capture_plain(&t, to, true, from, true, size);
	struct client *to_client = memory_owner(t.client, to, size), *from_client = memory_owner(t.client, from, size);
	if ((to_client == NULL && pinned_has(to)) || (from_client == NULL && pinned_has(from)))
		return unified(to, from, size, stream, true);
	if (to_client == NULL || from_client == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	result = managed_touch_both(to, from, size);
	if (result != CUDA_SUCCESS)
		return result;
	if (to_client == t.client && from_client == t.client) {
		if (watching())
			watch_bytes(size);
		struct wire_copy_within message = {to, from, size, t.stream};
		return POST(t.client, COPY_WITHIN, copy_within, &message, NO_DATA);
	}
	return copy_across(&t, to, from, size);
}

// A copy whose sides may each be host or device memory.
static CUresult unified(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream, bool wait) {
	struct target t;
	CUresult result = wait ? target_of(stream, &t) : target_work(stream, &t);
	if (result != CUDA_SUCCESS || size == 0)
		return result;
	bool to_device = is_device(t.client, to), from_device = is_device(t.client, from);
	void *to_host = (void *)(uintptr_t)to;
	const void *from_host = (const void *)(uintptr_t)from;
	if (to_device && from_device)
		return device_to_device(to, from, size, stream);
	if (to_device)
		return host_to_device(to, from_host, size, stream, wait);
	if (from_device)
		return device_to_host(to_host, from, size, stream, wait);
	if (to == 0 || from == 0 || may_be_device(to_host) || may_be_device(from_host))
		return CUDA_ERROR_INVALID_VALUE;
	if (t.captured)
		return capture_plain(&t, to, false, from, false, size);
	result = target_wait(&t); // earlier work of the stream may use pinned memory on either side
	if (result == CUDA_SUCCESS)
		memmove(to_host, from_host, size);
	return result;
}

CUresult do_cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) { return unified(destination, source, bytes, stream, true); }

CUresult do_cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) { return unified(destination, source, bytes, stream, false); }

CUresult do_cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source, size_t bytes, CUstream stream) { return host_to_device(destination, source, bytes, stream, true); }

CUresult do_cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void *source, size_t bytes, CUstream stream) { return host_to_device(destination, source, bytes, stream, false); }

CUresult do_cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t bytes, CUstream stream) { return device_to_host(destination, source, bytes, stream, true); }

CUresult do_cuMemcpyDtoHAsync_v2(void *destination, CUdeviceptr source, size_t bytes, CUstream stream) { return device_to_host(destination, source, bytes, stream, false); }

CUresult do_cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) { return device_to_device(destination, source, bytes, stream); }

CUresult do_cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) { return device_to_device(destination, source, bytes, stream); }

CUresult do_cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source, CUcontext source_context, size_t bytes, CUstream stream) {
	struct target t;
	struct client *to, *from;
	CUresult result = context_usable(destination_context);
	if (result == CUDA_SUCCESS)
		result = context_usable(source_context);
	if (result == CUDA_SUCCESS)
		result = target_work(stream, &t);
	if (result == CUDA_SUCCESS)
		result = context_client(destination_context, &to);
	if (result == CUDA_SUCCESS)
		result = context_client(source_context, &from);
	if (result != CUDA_SUCCESS || bytes == 0)
		return result;
	if (memory_owner(to, destination, bytes) != to || memory_owner(from, source, bytes) != from)
		return CUDA_ERROR_INVALID_VALUE;
	if (t.captured)
		return capture_plain(&t, destination, true, source, true, bytes);
	result = managed_touch_both(destination, source, bytes);
	if (result != CUDA_SUCCESS)
		return result;
	if (to == from && to == t.client) {
		struct wire_copy_within message = {destination, source, bytes, t.stream};
		return POST(to, COPY_WITHIN, copy_within, &message, NO_DATA);
	}
	result = target_wait(&t);
	return result == CUDA_SUCCESS ? across(to, destination, from, source, bytes) : result;
}

CUresult do_cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source, CUcontext source_context, size_t bytes, CUstream stream) {
	return do_cuMemcpyPeerAsync(destination, destination_context, source, source_context, bytes, stream);
}

// --- copies of two and three dimensions ----------------------------------------------------

struct shape {
	size_t width, height, depth;
};

bool extent(size_t pitch, size_t width, size_t height, size_t *size) {
	return !__builtin_mul_overflow(pitch, height - 1, size) && !__builtin_add_overflow(*size, width, size);
}

static CUresult rows_in(struct target *t, struct side to, struct side from, size_t width, size_t height, bool wait) {
	const uint8_t *host = (const uint8_t *)(uintptr_t)from.at;
	size_t limit = stage_limit(t->client);
	if (width > limit || height == 1) {
		CUresult result = CUDA_SUCCESS;
		for (size_t y = 0; y < height && result == CUDA_SUCCESS; y++)
			result = copy_in(t->client, t->stream, to.at + y * to.pitch, host + y * from.pitch, width, wait);
		return result;
	}
	CUresult result = let_writes_end(t->client, t->stream, host, 1, wait);
	if (result != CUDA_SUCCESS)
		return result;
	for (size_t y = 0, rows; y < height; y += rows) {
		struct wire_header head;
		uint8_t *at;
		rows = limit / width < height - y ? limit / width : height - y;
		result = stage_room(t->client, rows * width, &head, &at);
		if (result != CUDA_SUCCESS)
			return result;
		for (size_t i = 0; i < rows; i++)
			memcpy(at + i * width, host + (y + i) * from.pitch, width);
		if (watching())
			watch_bytes(rows * width);
		struct wire_copy_in_2d message = {to.at + y * to.pitch, to.pitch, width, rows, t->stream};
		result = POST(t->client, COPY_IN_2D, copy_in_2d, &message, &head);
		stage_end(t->client);
		if (result != CUDA_SUCCESS)
			return result;
	}
	return CUDA_SUCCESS;
}

static CUresult rows_out(struct target *t, struct side to, struct side from, size_t width, size_t height) {
	uint8_t *host = (uint8_t *)(uintptr_t)to.at;
	CUresult result = CUDA_SUCCESS;
	if (width > WIRE_BOUNCE || height == 1) {
		for (size_t y = 0; y < height && result == CUDA_SUCCESS; y++)
			result = copy_out(t->client, t->stream, host + y * to.pitch, from.at + y * from.pitch, width, true);
		return result;
	}
	uint64_t offset;
	result = bounce_take(t->client, true, &offset);
	if (result != CUDA_SUCCESS)
		return result;
	for (size_t y = 0, rows; y < height && result == CUDA_SUCCESS; y += rows) {
		rows = WIRE_BOUNCE / width < height - y ? WIRE_BOUNCE / width : height - y;
		const struct wire_header head = {.data = offset, .length = rows * width};
		if (watching())
			watch_bytes(rows * width);
		struct wire_copy_out_2d message = {from.at + y * from.pitch, from.pitch, width, rows, t->stream};
		result = CALL(t->client, COPY_OUT_2D, copy_out_2d, &message, &head, NULL);
		for (size_t i = 0; i < rows && result == CUDA_SUCCESS; i++)
			memcpy(host + (y + i) * to.pitch, t->client->arena.at + offset + i * width, width);
	}
	bounce_give(t->client, offset);
	print_pending(t->client);
	return result;
}

static CUresult copy_rows(struct target *t, struct side to, struct side from, size_t width, size_t height, bool wait) {
	if (to.device && from.device) {
		if (watching())
			watch_bytes(width * height);
		struct wire_copy_within_2d message = {to.at, to.pitch, from.at, from.pitch, width, height, t->stream};
		return POST(t->client, COPY_WITHIN_2D, copy_within_2d, &message, NO_DATA);
	}
	if (to.device)
		return rows_in(t, to, from, width, height, wait);
	if (from.device)
		return rows_out(t, to, from, width, height);
	for (size_t y = 0; y < height; y++)
		memmove((uint8_t *)(uintptr_t)to.at + y * to.pitch, (const uint8_t *)(uintptr_t)from.at + y * from.pitch, width);
	return CUDA_SUCCESS;
}

size_t element_size(CUarray_format format, unsigned channels) {
	size_t each = 0;
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		each = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		each = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		each = 4;
		break;
	}
	return channels == 1 || channels == 2 || channels == 4 ? each * channels : 0;
}

// Works out a side that is an array: its pitches are fixed.
static CUresult array_side(const struct target *t, struct side *s, CUarray array, size_t x, size_t y, size_t z, struct shape shape) {
	if (!object_is(array, KIND_ARRAY))
		return array == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	size_t rows = array->slice / array->row, slices = array->size / array->slice;
	size_t element = element_size(array->shape.Format, array->shape.NumChannels);
	if (x > array->row || shape.width > array->row - x || y > rows || shape.height > rows - y || z > slices || shape.depth > slices - z)
		return CUDA_ERROR_INVALID_VALUE;
	if (x % element != 0 || shape.width % element != 0 || memory_owner(t->client, array->at, array->size) != t->client)
		return CUDA_ERROR_INVALID_VALUE;
	*s = (struct side){.device = true, .at = array->at + x + y * array->row + z * array->slice, .pitch = array->row, .slice = array->slice};
	return CUDA_SUCCESS;
}

// Checks one side of a copy and works out where it lies. Such copies do not reach memory of other
// devices.
static CUresult check_side(const struct target *t, struct side *s, CUmemorytype type, uint64_t device, const void *host, CUarray array, size_t x, size_t y, size_t z, size_t rows, struct shape shape) {
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		s->at = (uint64_t)(uintptr_t)host;
		s->device = managed_has(s->at);
		break;
	case CU_MEMORYTYPE_DEVICE:
		s->at = device;
		s->device = true;
		break;
	case CU_MEMORYTYPE_UNIFIED:
		s->at = device;
		s->device = is_device(t->client, device);
		break;
	case CU_MEMORYTYPE_ARRAY:
		return array_side(t, s, array, x, y, z, shape);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (s->pitch == 0)
		s->pitch = x + shape.width;
	if (s->pitch > (size_t)devices[t->client->device].attributes[CU_DEVICE_ATTRIBUTE_MAX_PITCH] && shape.height > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->at == 0 || s->pitch < shape.width || x > s->pitch - shape.width || (shape.depth > 1 && rows < shape.height))
		return CUDA_ERROR_INVALID_VALUE;
	s->slice = s->pitch * rows;
	s->at += x + y * s->pitch + z * s->slice;
	size_t plane, size;
	if (!extent(s->pitch, shape.width, shape.height, &plane) || !extent(s->slice, plane, shape.depth, &size))
		return CUDA_ERROR_INVALID_VALUE;
	if (s->device ? memory_owner(t->client, s->at, size) != t->client : may_be_device((void *)(uintptr_t)s->at))
		return CUDA_ERROR_INVALID_VALUE;
	s->size = size;
	return CUDA_SUCCESS;
}

CUresult copy_sides(const struct target *t, const CUDA_MEMCPY3D *copy, struct side *to, struct side *from) {
	struct shape shape = {copy->WidthInBytes, copy->Height, copy->Depth};
	*to = (struct side){.pitch = copy->dstPitch};
	*from = (struct side){.pitch = copy->srcPitch};
	if (shape.width == 0 || shape.height == 0 || shape.depth == 0)
		return CUDA_SUCCESS;
	CUresult result = check_side(t, from, copy->srcMemoryType, copy->srcDevice, copy->srcHost, copy->srcArray, copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcHeight, shape);
	if (result == CUDA_SUCCESS)
		result = check_side(t, to, copy->dstMemoryType, copy->dstDevice, copy->dstHost, copy->dstArray, copy->dstXInBytes, copy->dstY, copy->dstZ, copy->dstHeight, shape);
	return result;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool wait) {
	struct target t;
	struct side to, from;
	CUresult result = wait ? target_of(stream, &t) : target_work(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (copy == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	struct shape shape = {copy->WidthInBytes, copy->Height, copy->Depth};
	if (shape.width == 0 || shape.height == 0 || shape.depth == 0)
		return CUDA_SUCCESS;
	if (t.captured)
		return recorder->copy(&t, copy);
	result = copy_sides(&t, copy, &to, &from);
	if (result == CUDA_SUCCESS && from.device)
		result = managed_touch(from.at, from.size, false);
	if (result == CUDA_SUCCESS && to.device)
		result = managed_touch(to.at, to.size, true);
	if (result == CUDA_SUCCESS && !to.device && !from.device)
		result = target_wait(&t);
	for (size_t z = 0; z < shape.depth && result == CUDA_SUCCESS; z++) {
		result = copy_rows(&t, to, from, shape.width, shape.height, wait);
		to.at += to.slice;
		from.at += from.slice;
	}
	return result == CUDA_SUCCESS && wait && to.device && !from.device ? copies_note(&t) : result;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool wait) {
	if (copy == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	const CUDA_MEMCPY3D as_3d = {
		.srcXInBytes = copy->srcXInBytes,
		.srcY = copy->srcY,
		.srcMemoryType = copy->srcMemoryType,
		.srcHost = copy->srcHost,
		.srcDevice = copy->srcDevice,
		.srcArray = copy->srcArray,
		.srcPitch = copy->srcPitch,
		.dstXInBytes = copy->dstXInBytes,
		.dstY = copy->dstY,
		.dstMemoryType = copy->dstMemoryType,
		.dstHost = copy->dstHost,
		.dstDevice = copy->dstDevice,
		.dstArray = copy->dstArray,
		.dstPitch = copy->dstPitch,
		.WidthInBytes = copy->WidthInBytes,
		.Height = copy->Height,
		.Depth = 1,
	};
	return copy_3d(&as_3d, stream, wait);
}

CUresult do_cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy, CUstream stream) { return copy_2d(copy, stream, true); }
CUresult do_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy, CUstream stream) { return copy_2d(copy, stream, true); }
CUresult do_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream) { return copy_2d(copy, stream, false); }
CUresult do_cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy, CUstream stream) { return copy_3d(copy, stream, true); }
CUresult do_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) { return copy_3d(copy, stream, false); }

// --- fills ------------------------------------------------------------------------------------

void fill_host(uint8_t *at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height) {
	for (size_t y = 0; y < height; y++)
		for (size_t x = 0; x < count; x++)
			memcpy(at + y * pitch + x * width, &value, width); // the low bytes come first
}

CUresult fill_check(const struct target *t, CUdeviceptr at, size_t pitch, uint32_t width, size_t count, size_t height, bool anywhere) {
	size_t row, size;
	if (at % width != 0 || __builtin_mul_overflow(count, width, &row) || (height > 1 && (pitch < row || pitch % width != 0)) || !extent(pitch, row, height, &size))
		return CUDA_ERROR_INVALID_VALUE;
	struct range range;
	struct client *owner;
	if (anywhere || memory_owner(t->client, at, size) != NULL)
		return CUDA_SUCCESS;
	return pinned_range((void *)(uintptr_t)at, &range, &owner) && size <= range.size - (at - range.at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fill(CUdeviceptr at, size_t pitch, uint32_t value, uint32_t width, size_t count, size_t height, CUstream stream) {
	struct target t;
	bool elsewhere;
	CUresult result = target_work(stream, &t);
	if (result != CUDA_SUCCESS || count == 0 || height == 0)
		return result;
	if (t.captured)
		return recorder->fill(&t, at, pitch, value, width, count, height);
	size_t row, size;
	if (at % width != 0 || __builtin_mul_overflow(count, width, &row) || (height > 1 && (pitch < row || pitch % width != 0)) || !extent(pitch, row, height, &size))
		return CUDA_ERROR_INVALID_VALUE;
	result = route(&t, at, size, &elsewhere);
	struct range range;
	struct client *owner;
	if (result != CUDA_SUCCESS && pinned_range((void *)(uintptr_t)at, &range, &owner)) {
		if (size > range.size - (at - range.at))
			return CUDA_ERROR_INVALID_VALUE;
		result = target_wait(&t);
		if (result == CUDA_SUCCESS)
			fill_host((uint8_t *)(uintptr_t)at, pitch, value, width, count, height);
		return result;
	}
	if (result == CUDA_SUCCESS)
		result = managed_touch(at, size, true);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_fill message = {at, height > 1 ? pitch : row, value, width, count, height, t.stream};
	if (watching())
		watch_bytes(size);
	result = POST(t.client, FILL, fill, &message, NO_DATA);
	return result == CUDA_SUCCESS && elsewhere ? target_wait(&t) : result;
}

CUresult do_cuMemsetD8_v2(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) { return fill(address, 0, value, 1, count, 1, stream); }
CUresult do_cuMemsetD16_v2(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) { return fill(address, 0, value, 2, count, 1, stream); }
CUresult do_cuMemsetD32_v2(CUdeviceptr address, unsigned int value, size_t count, CUstream stream) { return fill(address, 0, value, 4, count, 1, stream); }
CUresult do_cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) { return fill(address, 0, value, 1, count, 1, stream); }
CUresult do_cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) { return fill(address, 0, value, 2, count, 1, stream); }
CUresult do_cuMemsetD32Async(CUdeviceptr address, unsigned int value, size_t count, CUstream stream) { return fill(address, 0, value, 4, count, 1, stream); }

CUresult do_cuMemsetD2D8_v2(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream) { return fill(address, pitch, value, 1, width, height, stream); }
CUresult do_cuMemsetD2D16_v2(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream) { return fill(address, pitch, value, 2, width, height, stream); }
CUresult do_cuMemsetD2D32_v2(CUdeviceptr address, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream) { return fill(address, pitch, value, 4, width, height, stream); }
CUresult do_cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream) { return fill(address, pitch, value, 1, width, height, stream); }
CUresult do_cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream) { return fill(address, pitch, value, 2, width, height, stream); }
CUresult do_cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream) { return fill(address, pitch, value, 4, width, height, stream); }
