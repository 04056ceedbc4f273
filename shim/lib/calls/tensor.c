// Questions that only the driver of the real device can answer. Layer: calls. The worker
// passes them on. The answers stay valid when the program is moved to another device, since
// addresses never change.
#include "calls.h"

#include <string.h>

CUresult driver_ask(uint32_t what, const void *about, size_t size, void *answer, size_t room, size_t *length) {
	CUcontext context;
	struct client *c;
	uint64_t offset;
	CUresult result = context_need(&context);
	if (result == CUDA_SUCCESS)
		result = context_client(context, &c);
	struct wire_driver_ask message = {what, {about, size}};
	uint8_t question[KNOWN_BYTES];
	size_t asked = wire_driver_ask_size(&message);
	if (result == CUDA_SUCCESS && asked > sizeof question)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	wire_driver_ask_put(question, &message);
	if (answer_known(c, WIRE_DRIVER_ASK, question, asked, answer, room, length))
		return CUDA_SUCCESS;
	result = bounce_take(c, true, &offset);
	if (result != CUDA_SUCCESS)
		return result;
	const struct wire_header head = {.data = offset, .length = WIRE_BOUNCE};
	struct wire_driver_ask_reply reply;
	result = ASK(c, DRIVER_ASK, driver_ask, &message, &head, &reply);
	if (result == CUDA_SUCCESS) {
		if (reply.size <= WIRE_BOUNCE && reply.size <= room) {
			memcpy(answer, c->arena.at + offset, reply.size);
			*length = reply.size;
			answer_keep(c, WIRE_DRIVER_ASK, question, asked, answer, reply.size);
		} else {
			result = CUDA_ERROR_UNKNOWN;
		}
	}
	bounce_give(c, offset);
	return result;
}

// As device/cuda/driver.h has it.
struct tensor {
	uint32_t type, rank;
	uint64_t address, sizes[5], strides[4];
	int32_t box[5], upper[5];
	uint32_t steps[5];
	uint32_t channels, pixels;
	uint32_t interleave, swizzle, promotion, fill;
	uint32_t unused;
};

#define MAX_RANK 5

static CUresult describe(struct tensor *t, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *steps,
	CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
	if (rank == 0 || rank > MAX_RANK || sizes == NULL || steps == NULL || (strides == NULL && rank > 1))
		return CUDA_ERROR_INVALID_VALUE;
	*t = (struct tensor){
		.type = type, .rank = rank, .address = (uint64_t)(uintptr_t)address, .interleave = interleave, .swizzle = swizzle, .promotion = promotion, .fill = fill,
	};
	memcpy(t->sizes, sizes, rank * sizeof *sizes);
	if (rank > 1)
		memcpy(t->strides, strides, (rank - 1) * sizeof *strides);
	memcpy(t->steps, steps, rank * sizeof *steps);
	return CUDA_SUCCESS;
}

static CUresult encode(uint32_t what, const void *about, size_t size, CUtensorMap *map) {
	size_t length = 0;
	CUtensorMap made;
	CUresult result = driver_ask(what, about, size, &made, sizeof made, &length);
	if (result == CUDA_SUCCESS && length != sizeof made)
		result = CUDA_ERROR_UNKNOWN;
	if (result == CUDA_SUCCESS)
		*map = made;
	return result;
}

CUresult do_cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
	const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
	struct tensor t;
	if (map == NULL || box == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = describe(&t, type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill);
	if (result != CUDA_SUCCESS)
		return result;
	memcpy(t.box, box, rank * sizeof *box);
	return encode(ASK_TILED, &t, sizeof t, map);
}

CUresult do_cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower, const int *upper,
	cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
	struct tensor t;
	if (map == NULL || lower == NULL || upper == NULL || rank < 3)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = describe(&t, type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill);
	if (result != CUDA_SUCCESS)
		return result;
	memcpy(t.box, lower, (rank - 2) * sizeof *lower);
	memcpy(t.upper, upper, (rank - 2) * sizeof *upper);
	t.channels = channels;
	t.pixels = pixels;
	return encode(ASK_IM2COL, &t, sizeof t, map);
}

CUresult do_cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
	uint8_t about[sizeof *map + 8];
	if (map == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(about, map, sizeof *map);
	memcpy(about + sizeof *map, &address, 8);
	return encode(ASK_REPLACED, about, sizeof about, map);
}
