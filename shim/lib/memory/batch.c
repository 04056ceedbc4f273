// Batches: many copies or prefetches in one call. Layer: memory; it sends nothing itself but
// makes the single calls one after the other. The driver promises no order within a batch, so
// that order is correct.
#include "memory.h"

// The driver refuses batches on the legacy stream.
static bool takes_batches(CUstream stream) { return stream != NULL && stream != CU_STREAM_LEGACY; }

// Setting i holds from entry from[i] up to from[i + 1]; the first must hold from entry 0.
static bool settings_in_order(const size_t *from, size_t settings, size_t count) {
	if (from == NULL || settings == 0 || settings > count || from[0] != 0)
		return false;
	for (size_t i = 1; i < settings; i++)
		if (from[i] <= from[i - 1] || from[i] >= count)
			return false;
	return true;
}

// A source that must be read during the call is copied synchronously.
static CUresult copy_one(CUdeviceptr to, CUdeviceptr from, size_t size, CUmemcpySrcAccessOrder order, CUstream stream) {
	if (to == 0 || from == 0 || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? do_cuMemcpy(to, from, size, stream) : do_cuMemcpyAsync(to, from, size, stream);
}

static bool is_order(CUmemcpySrcAccessOrder order) { return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY; }

CUresult do_cuMemcpyBatchAsync(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *sizes, size_t count, CUmemcpyAttributes *attributes, size_t *from, size_t attributes_count, size_t *failed, CUstream stream) {
	if (failed != NULL)
		*failed = SIZE_MAX;
	if (destinations == NULL || sources == NULL || sizes == NULL || count == 0 || attributes == NULL || !settings_in_order(from, attributes_count, count) || !takes_batches(stream))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < attributes_count; i++)
		if (!is_order(attributes[i].srcAccessOrder))
			return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0, setting = 0; i < count; i++) {
		if (setting + 1 < attributes_count && i == from[setting + 1])
			setting++;
		CUresult result = copy_one(destinations[i], sources[i], sizes[i], attributes[setting].srcAccessOrder, stream);
		if (result != CUDA_SUCCESS) {
			if (failed != NULL)
				*failed = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult do_cuMemcpyBatchAsync_v2(CUdeviceptr *destinations, CUdeviceptr *sources, size_t *sizes, size_t count, CUmemcpyAttributes *attributes, size_t *from, size_t attributes_count, CUstream stream) {
	return do_cuMemcpyBatchAsync(destinations, sources, sizes, count, attributes, from, attributes_count, NULL, stream);
}

// --- boxes ---------------------------------------------------------------------------

// How large an element is: an array's, or a byte.
static CUresult element_of(const CUmemcpy3DOperand *o, size_t *size) {
	if (o->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
		return CUDA_SUCCESS;
	CUDA_ARRAY3D_DESCRIPTOR d;
	CUcontext context;
	CUresult result = o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? context_need(&context) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = with_cuArray3DGetDescriptor_v2(context, &d, o->op.array.array);
	if (result == CUDA_SUCCESS)
		*size = element_size(d.Format, d.NumChannels);
	return result;
}

static CUresult copy_box(const CUDA_MEMCPY3D_BATCH_OP *o, CUstream stream) {
	size_t size = 1;
	CUresult result = is_order(o->srcAccessOrder) ? element_of(&o->src, &size) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = element_of(&o->dst, &size);
	if (result != CUDA_SUCCESS)
		return result;
	CUDA_MEMCPY3D c = {.WidthInBytes = o->extent.width * size, .Height = o->extent.height, .Depth = o->extent.depth};
	if (o->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c.srcArray = o->src.op.array.array;
		c.srcXInBytes = o->src.op.array.offset.x * size, c.srcY = o->src.op.array.offset.y, c.srcZ = o->src.op.array.offset.z;
	} else {
		c.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
		c.srcDevice = o->src.op.ptr.ptr;
		c.srcPitch = (o->src.op.ptr.rowLength != 0 ? o->src.op.ptr.rowLength : o->extent.width) * size;
		c.srcHeight = o->src.op.ptr.layerHeight != 0 ? o->src.op.ptr.layerHeight : o->extent.height;
	}
	if (o->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c.dstArray = o->dst.op.array.array;
		c.dstXInBytes = o->dst.op.array.offset.x * size, c.dstY = o->dst.op.array.offset.y, c.dstZ = o->dst.op.array.offset.z;
	} else {
		c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
		c.dstDevice = o->dst.op.ptr.ptr;
		c.dstPitch = (o->dst.op.ptr.rowLength != 0 ? o->dst.op.ptr.rowLength : o->extent.width) * size;
		c.dstHeight = o->dst.op.ptr.layerHeight != 0 ? o->dst.op.ptr.layerHeight : o->extent.height;
	}
	return o->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? do_cuMemcpy3D_v2(&c, stream) : do_cuMemcpy3DAsync_v2(&c, stream);
}

CUresult do_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed, unsigned long long flags, CUstream stream) {
	if (failed != NULL)
		*failed = SIZE_MAX;
	if (count == 0 || list == NULL || flags != 0 || !takes_batches(stream))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = copy_box(&list[i], stream);
		if (result != CUDA_SUCCESS) {
			if (failed != NULL)
				*failed = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

CUresult do_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags, CUstream stream) { return do_cuMemcpy3DBatchAsync(count, list, NULL, flags, stream); }

// --- managed memory ------------------------------------------------------------------

CUresult with_cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations, size_t *from, size_t locations_count, unsigned long long flags, CUstream stream) {
	if (count == 0 || locations == NULL || flags != 0 || !settings_in_order(from, locations_count, count) || !takes_batches(stream))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0, setting = 0; i < count && result == CUDA_SUCCESS; i++) {
		if (setting + 1 < locations_count && i == from[setting + 1])
			setting++;
		result = do_cuMemPrefetchAsync_v2(addresses[i], sizes[i], locations[setting], 0, stream);
	}
	return result;
}

// The program may not rely on the contents of discarded memory, so keeping them is correct.
CUresult do_cuMemDiscardBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags, CUstream stream) {
	struct target t;
	if (addresses == NULL || sizes == NULL || count == 0 || flags != 0 || !takes_batches(stream))
		return CUDA_ERROR_INVALID_VALUE;
	return target_of(stream, &t);
}

CUresult with_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations, size_t *from, size_t locations_count, unsigned long long flags, CUstream stream) {
	return with_cuMemPrefetchBatchAsync(addresses, sizes, count, locations, from, locations_count, flags, stream);
}
