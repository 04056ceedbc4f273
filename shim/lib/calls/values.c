// Words that streams write and wait for (cuStreamWriteValue, cuStreamWaitValue): in device memory, or
// in host memory that kernels reach. Layer: calls.
#include "calls.h"

#define MOST_OPERATIONS 256 // in a batch, as in CUDA

// Checks the address of a word, and finds the address by which the worker reaches it.
static CUresult locate(const struct target *t, CUdeviceptr address, uint32_t width, CUdeviceptr *at) {
	struct range range;
	struct client *c;
	if (address == 0 || address % width != 0)
		return CUDA_ERROR_INVALID_VALUE;
	*at = address;
	if (managed_has(address))
		return CUDA_ERROR_NOT_SUPPORTED; // host and device would have to see it at the same time
	c = memory_owner(t->client, address, width);
	if (c != NULL)
		return c == t->client ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED; // kernels do not reach other devices
	if (!pinned_range((void *)(uintptr_t)address, &range, &c) || width > range.size - (address - range.at))
		return CUDA_ERROR_INVALID_VALUE;
	return mapped_reach(t->client, address, at);
}

static CUresult wait_for(const struct target *t, CUdeviceptr address, uint64_t value, uint32_t width, unsigned flags) {
	CUdeviceptr at;
	if ((flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) > CU_STREAM_WAIT_VALUE_NOR)
		return CUDA_ERROR_INVALID_VALUE;
	if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0)
		return CUDA_ERROR_NOT_SUPPORTED; // as CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES says
	CUresult result = locate(t, address, width, &at);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_stream_await message = {.stream = t->stream, .addr = at, .value = value, .width = width, .compare = flags, .cookie = host_cookie(t->client)};
	return POST(t->client, STREAM_AWAIT, stream_await, &message, NO_DATA);
}

static CUresult write_to(const struct target *t, CUdeviceptr address, uint64_t value, uint32_t width, unsigned flags) {
	CUdeviceptr at;
	if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = locate(t, address, width, &at);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_stream_write message = {.stream = t->stream, .addr = at, .value = value, .width = width};
	return POST(t->client, STREAM_WRITE, stream_write, &message, NO_DATA);
}

// Posts one operation of a batch. The work of a stream is in order, so a barrier needs no message.
static CUresult perform(const struct target *t, const CUstreamBatchMemOpParams *p) {
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return wait_for(t, p->waitValue.address, p->waitValue.value, 4, p->waitValue.flags);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return wait_for(t, p->waitValue.address, p->waitValue.value64, 8, p->waitValue.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return write_to(t, p->writeValue.address, p->writeValue.value, 4, p->writeValue.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return write_to(t, p->writeValue.address, p->writeValue.value64, 8, p->writeValue.flags);
	case CU_STREAM_MEM_OP_BARRIER:
		return p->memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult words_check(unsigned count, const CUstreamBatchMemOpParams *list) {
	if (count > MOST_OPERATIONS)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		if (list[i].operation < CU_STREAM_MEM_OP_WAIT_VALUE_32 || list[i].operation > CU_STREAM_MEM_OP_BARRIER)
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult words_post(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list) {
	CUresult result = CUDA_SUCCESS;
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = perform(t, &list[i]);
	return result;
}

// Posts the operations, or records them if the stream is captured.
static CUresult batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *list) {
	struct target t;
	CUresult result = target_work(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	return t.captured ? recorder->words(&t, count, list) : words_post(&t, count, list);
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, uint32_t width, unsigned flags) {
	CUstreamBatchMemOpParams p = {.waitValue = {.operation = width == 4 ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_64, .address = address, .value64 = value, .flags = flags}};
	return batch(stream, 1, &p);
}

static CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, uint32_t width, unsigned flags) {
	CUstreamBatchMemOpParams p = {.writeValue = {.operation = width == 4 ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = address, .value64 = value, .flags = flags}};
	return batch(stream, 1, &p);
}

CUresult do_cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) { return wait_value(stream, address, value, 4, flags); }
CUresult do_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) { return wait_value(stream, address, value, 4, flags); }
CUresult do_cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) { return wait_value(stream, address, value, 8, flags); }
CUresult do_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) { return wait_value(stream, address, value, 8, flags); }
CUresult do_cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) { return write_value(stream, address, value, 4, flags); }
CUresult do_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) { return write_value(stream, address, value, 4, flags); }
CUresult do_cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) { return write_value(stream, address, value, 8, flags); }
CUresult do_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) { return write_value(stream, address, value, 8, flags); }

CUresult do_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags) {
	struct target t;
	CUresult result = target_work(stream, &t);
	if (result != CUDA_SUCCESS)
		return result;
	if (list == NULL || count > MOST_OPERATIONS || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return t.captured ? recorder->words(&t, count, list) : words_post(&t, count, list);
}

CUresult do_cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list, unsigned int flags) { return do_cuStreamBatchMemOp_v2(stream, count, list, flags); }
