// Linking. Layer: calls. The library keeps the inputs until cuLinkComplete and sends them
// together to the worker, which makes one image: a cubin on a real GPU, PTX on a software GPU. The
// image comes back, and the program loads it like any other. PTX is checked when it is added, since
// CUDA reports errors in it then.
#include "calls.h"

#include <stdlib.h>

struct CUlinkState_st {
	struct object object;
	struct jit jit;  // of the program, for as long as it links
	uint8_t *inputs; // as node/worker/link.go reads them: options, then inputs
	size_t size, room, options;
	char *image; // what was made of them
	size_t made;
};

static bool append(CUlinkState state, const void *data, size_t size) {
	if (size > state->room - state->size) {
		size_t room = state->room;
		while (size > room - state->size)
			if (__builtin_mul_overflow(room > 0 ? room : 4096, 2, &room))
				return false;
		uint8_t *larger = realloc(state->inputs, room);
		if (larger == NULL)
			return false;
		state->inputs = larger;
		state->room = room;
	}
	memcpy(state->inputs + state->size, data, size);
	state->size += size;
	return true;
}

static bool append_u32(CUlinkState state, uint32_t value) { return append(state, &value, sizeof value); }

static bool append_u64(CUlinkState state, uint64_t value) { return append(state, &value, sizeof value); }

// The numeric options that change the result. Others say where logs go, or for which GPU to
// compile, which is always that of the context.
static bool changes_result(CUjit_option option) {
	switch ((int)option) {
	case CU_JIT_MAX_REGISTERS:
	case CU_JIT_OPTIMIZATION_LEVEL:
	case CU_JIT_GENERATE_DEBUG_INFO:
	case CU_JIT_GENERATE_LINE_INFO:
		return true;
	}
	return false;
}

static bool append_options(CUlinkState state) {
	const struct jit *jit = &state->jit;
	uint32_t count = 0;
	for (unsigned i = 0; i < jit->count && jit->values != NULL; i++)
		count += changes_result(jit->options[i]) && count < 30;
	bool whole = append_u32(state, count);
	for (unsigned i = 0; i < jit->count && count > 0; i++)
		if (changes_result(jit->options[i])) {
			whole = whole && append_u32(state, (uint32_t)jit->options[i]) && append_u64(state, (uintptr_t)jit->values[i]);
			count--;
		}
	state->options = state->size;
	return whole;
}

CUresult do_cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *state) {
	const struct jit jit = jit_options(count, options, values);
	if (!jit_options_exist(&jit))
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext context;
	CUresult result = context_need(&context);
	if (result != CUDA_SUCCESS)
		return result;
	if (state == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUlinkState s = object_new(KIND_LINK, sizeof *s);
	if (s == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->object.context = context;
	s->jit = jit;
	if (options == NULL)
		s->jit.count = 0;
	if (!append_options(s)) {
		free(s->inputs);
		object_free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	jit_answer(&jit, NULL);
	*state = s;
	return CUDA_SUCCESS;
}

// Has the worker link the options and inputs, or only check them; *number is its name for the result.
static CUresult ask_link(CUlinkState state, const uint8_t *inputs, size_t size, bool check, uint32_t *number, uint64_t *made) {
	struct client *c;
	char *log = NULL;
	CUresult result = context_usable(state->object.context);
	if (result == CUDA_SUCCESS)
		result = context_client(state->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	jit_begin(&state->jit);
	*number = client_number(c);
	result = image_send(c, *number, inputs, size);
	struct wire_module_link message = {*number, check};
	struct wire_module_link_reply reply;
	if (result == CUDA_SUCCESS)
		result = ASK(c, MODULE_LINK, module_link, &message, NO_DATA, &reply);
	if (result == CUDA_SUCCESS)
		*made = reply.size;
	else if (state->jit.error_room > 0)
		log = image_log(c, *number);
	return jit_answer_load(&state->jit, result, log);
}

// Has the worker check the last input, which begins at an offset, by itself.
static CUresult try_input(CUlinkState state, size_t from) {
	size_t size = state->options + (state->size - from);
	uint8_t *alone = malloc(size);
	uint32_t number;
	uint64_t made;
	if (alone == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(alone, state->inputs, state->options);
	memcpy(alone + state->options, state->inputs + from, state->size - from);
	CUresult result = ask_link(state, alone, size, true, &number, &made);
	free(alone);
	return result;
}

CUresult do_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name, unsigned int count, CUjit_option *options, void **values) {
	const struct jit jit = jit_options(count, options, values);
	if (!object_is(state, KIND_LINK))
		return CUDA_ERROR_INVALID_HANDLE;
	if (data == NULL || size == 0 || (unsigned)type > CU_JIT_INPUT_NVVM || jit.info_room > 0 || jit.error_room > 0) // logs are of all inputs together
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_JIT_INPUT_NVVM)
		return CUDA_ERROR_NOT_SUPPORTED;
	const void *start = data;
	size_t whole = size;
	CUresult result = CUDA_SUCCESS;
	if (type <= CU_JIT_INPUT_FATBINARY)
		result = image_bounds(data, size, &start, &whole); // the size that programs give may be too large
	if (result != CUDA_SUCCESS)
		return result;
	size_t from = state->size, length = name != NULL ? strlen(name) : 0;
	if (length > UINT32_MAX || !append_u32(state, (uint32_t)type) || !append_u32(state, (uint32_t)length) || !append_u64(state, whole) ||
	    !append(state, length > 0 ? name : "", length) || !append(state, start, whole))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS && type == CU_JIT_INPUT_PTX)
		result = try_input(state, from);
	if (result != CUDA_SUCCESS)
		state->size = from;
	return result;
}

CUresult do_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int count, CUjit_option *options, void **values) {
	void *data;
	size_t size;
	CUresult result = file_read(path, &data, &size);
	if (result != CUDA_SUCCESS)
		return result;
	result = do_cuLinkAddData_v2(state, type, data, size, path, count, options, values);
	free(data);
	return result;
}

// Fetches the image that the worker has made, and appends a NUL.
static CUresult fetch(CUlinkState state, uint32_t number, uint64_t size) {
	struct client *c;
	uint64_t offset;
	CUresult result = context_client(state->object.context, &c);
	if (result == CUDA_SUCCESS)
		result = bounce_take(c, true, &offset);
	if (result != CUDA_SUCCESS)
		return result;
	state->image = size < SIZE_MAX ? malloc(size + 1) : NULL;
	if (state->image == NULL)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (uint64_t done = 0; done < size && result == CUDA_SUCCESS;) {
		struct wire_module_fetch message = {number, done};
		const struct wire_header head = {.data = offset, .length = size - done < WIRE_BOUNCE ? size - done : WIRE_BOUNCE};
		struct wire_module_fetch_reply reply;
		result = ASK(c, MODULE_FETCH, module_fetch, &message, &head, &reply);
		if (result != CUDA_SUCCESS)
			break;
		if (reply.size == 0 || reply.size > head.length)
			result = CUDA_ERROR_UNKNOWN;
		else
			memcpy(state->image + done, c->arena.at + offset, reply.size);
		done += reply.size;
	}
	bounce_give(c, offset);
	struct wire_module_unload message = {number};
	POST(c, MODULE_UNLOAD, module_unload, &message, NO_DATA);
	if (result == CUDA_SUCCESS) {
		state->image[size] = 0;
		state->made = size;
	} else {
		free(state->image);
		state->image = NULL;
	}
	return result;
}

CUresult do_cuLinkComplete(CUlinkState state, void **cubin, size_t *size) {
	uint32_t number;
	uint64_t made;
	if (!object_is(state, KIND_LINK))
		return CUDA_ERROR_INVALID_HANDLE;
	if (cubin == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (state->image == NULL) {
		CUresult result = ask_link(state, state->inputs, state->size, false, &number, &made);
		if (result == CUDA_SUCCESS)
			result = fetch(state, number, made);
		if (result != CUDA_SUCCESS)
			return result;
	}
	*cubin = state->image;
	if (size != NULL)
		*size = state->made;
	return CUDA_SUCCESS;
}

CUresult with_cuLinkDestroy(CUlinkState state) {
	free(state->image);
	free(state->inputs);
	object_free(state);
	return CUDA_SUCCESS;
}
