// The calls on kernels of libraries. Layer: calls.
#include "calls.h"

CUresult with_cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
	return function != NULL ? function_of((CUfunction)kernel, function) : CUDA_ERROR_INVALID_VALUE;
}

CUresult with_cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
	if (library == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*library = kernel->library;
	return CUDA_SUCCESS;
}

CUresult with_cuKernelGetName(const char **name, CUkernel kernel) {
	if (!object_is(kernel, KIND_KERNEL))
		return do_cuFuncGetName(name, (CUfunction)kernel);
	*name = kernel->name;
	return CUDA_SUCCESS;
}

// The function that stands for a kernel on a device.
static CUresult on_device(CUkernel kernel, CUdevice device, CUfunction *function) {
	if (!object_is(kernel, KIND_KERNEL))
		return function_of((CUfunction)kernel, function);
	if (device < 0 || device >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	CUcontext context = context_current();
	if (!object_is(context, KIND_CONTEXT) || context->device != device || !context->active)
		context = context_primary(device);
	return kernel_function(kernel, context, function);
}

CUresult do_cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
	CUcontext context;
	CUresult result = context_need(&context);
	CUfunction function;
	if (result == CUDA_SUCCESS)
		result = on_device(kernel, context->device, &function);
	return result == CUDA_SUCCESS ? do_cuFuncGetParamInfo(function, index, offset, size) : result;
}

CUresult do_cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
	CUfunction function;
	CUresult result = on_device(kernel, device, &function);
	return result == CUDA_SUCCESS ? do_cuFuncGetAttribute(value, attribute, function) : result;
}

CUresult do_cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
	CUfunction function;
	CUresult result = on_device(kernel, device, &function);
	return result == CUDA_SUCCESS ? do_cuFuncSetAttribute(function, attribute, value) : result;
}

CUresult do_cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
	CUfunction function;
	CUresult result = on_device(kernel, device, &function);
	return result == CUDA_SUCCESS ? do_cuFuncSetCacheConfig(function, config) : result;
}
