// Libraries: images that belong to no context. Layer: calls. Each context that uses a
// library gets a module of it, loaded at first use; a kernel stands for the function in the module
// of the context in which it is used.
#include "calls.h"

#include <stdlib.h>

// A library's module in a context. It exists while the context has this id, since programs cannot
// unload it by itself.
struct placed {
	CUcontext context;
	uint64_t id;
	CUmodule module;
};

struct CUlib_st {
	struct object object;
	const void *image;
	size_t size;
	void *copy;
	struct object *kernels;
	struct names by_name; // the same kernels; both under shim_lock
	pthread_mutex_t load_lock; // held while a module is loaded, so that each context gets only one
	struct placed *placed; // under shim_lock: one for each context that has a module of it
	size_t placed_count;
};

static bool is_placed(const struct placed *p) { return object_is(p->context, KIND_CONTEXT) && p->context->id == p->id; }

static CUmodule loaded_module(CUcontext context, CUlibrary library) {
	CUmodule found = NULL;
	pthread_mutex_lock(&shim_lock);
	for (size_t i = 0; i < library->placed_count && found == NULL; i++)
		if (library->placed[i].context == context && is_placed(&library->placed[i]))
			found = library->placed[i].module;
	pthread_mutex_unlock(&shim_lock);
	return found;
}

// Removes one loaded module from a library's table and returns it; NULL if there is none.
static CUmodule take_module(CUlibrary library) {
	CUmodule found = NULL;
	pthread_mutex_lock(&shim_lock);
	while (library->placed_count > 0 && found == NULL) {
		const struct placed *last = &library->placed[--library->placed_count];
		if (is_placed(last))
			found = last->module;
	}
	pthread_mutex_unlock(&shim_lock);
	return found;
}

// Notes a module of a library, in the entry of one whose context has ended if there is one.
static bool place_module(CUlibrary library, CUcontext context, CUmodule module) {
	pthread_mutex_lock(&shim_lock);
	size_t i = 0;
	while (i < library->placed_count && is_placed(&library->placed[i]))
		i++;
	struct placed *all = library->placed;
	if (i == library->placed_count)
		all = realloc(all, (i + 1) * sizeof *all);
	if (all != NULL) {
		library->placed = all;
		library->placed_count += i == library->placed_count;
		all[i] = (struct placed){context, context->id, module};
		module->library = library;
	}
	pthread_mutex_unlock(&shim_lock);
	return all != NULL;
}

// Finds or makes the library's module of a context; log is as for module_load.
static CUresult library_module_logged(CUlibrary library, CUcontext context, char **log, CUmodule *module) {
	*module = loaded_module(context, library);
	if (*module != NULL)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&library->load_lock);
	CUresult result = CUDA_SUCCESS;
	*module = loaded_module(context, library);
	if (*module == NULL) {
		result = module_load(context, library->image, library->size, log, module);
		if (result == CUDA_SUCCESS && !place_module(library, context, *module)) {
			module_release(*module, true);
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	pthread_mutex_unlock(&library->load_lock);
	return result;
}

static CUresult library_module(CUlibrary library, CUcontext context, CUmodule *module) { return library_module_logged(library, context, NULL, module); }

// The current context, or the primary one of device 0 if there is none: CUDA allows questions about a
// library without a current context.
static CUresult some_context(CUcontext *context) {
	if (context_need(context) == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	*context = context_primary(0);
	return *context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult library_load(CUlibrary *library, const void *code, size_t limit, bool preserved) {
	const void *start;
	size_t size;
	if (library == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = image_bounds(code, limit, &start, &size);
	if (result == CUDA_ERROR_INVALID_IMAGE && limit == IMAGE_UNLIMITED) { // as with CUDA, the first use of the library fails
		start = "";
		size = 0;
	} else if (result != CUDA_SUCCESS) {
		return result;
	}
	CUlibrary l = object_new(KIND_LIBRARY, sizeof *l);
	if (l == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_init(&l->load_lock, NULL);
	l->image = start;
	l->size = size;
	if (!preserved) {
		l->copy = malloc(size + 1);
		if (l->copy == NULL) {
			object_free(l);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		memcpy(l->copy, start, size);
		((char *)l->copy)[size] = 0;
		l->image = l->copy;
	}
	*library = l;
	return CUDA_SUCCESS;
}

// As with CUDA, a bad image makes the first use of the library fail, not its loading. Its logs are
// filled now, if there is a context to compile it in.
static CUresult answer_options(CUresult result, CUlibrary *library, const struct jit *jit) {
	CUcontext context;
	CUmodule module;
	char *log = NULL;
	if (result == CUDA_SUCCESS && jit->error_room > 0 && context_need(&context) == CUDA_SUCCESS)
		library_module_logged(*library, context, &log, &module);
	jit_answer(jit, log);
	free(log);
	return result;
}

CUresult do_cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned int count, CUlibraryOption *library_options, void **library_values, unsigned int library_count) {
	(void)library_values;
	const struct jit jit = jit_options(count, options, values);
	bool preserved = false;
	for (unsigned i = 0; library_options != NULL && i < library_count; i++)
		preserved |= library_options[i] == CU_LIBRARY_BINARY_IS_PRESERVED;
	return answer_options(library_load(library, code, IMAGE_UNLIMITED, preserved), library, &jit);
}

CUresult do_cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values, unsigned int count, CUlibraryOption *library_options, void **library_values, unsigned int library_count) {
	(void)library_options, (void)library_values, (void)library_count;
	const struct jit jit = jit_options(count, options, values);
	void *image;
	size_t size;
	CUresult result = file_read(path, &image, &size);
	if (result != CUDA_SUCCESS)
		return result;
	result = answer_options(library_load(library, image, size, false), library, &jit);
	free(image);
	return result;
}

CUresult with_cuLibraryUnload(CUlibrary library) {
	for (CUmodule m; (m = take_module(library)) != NULL;)
		module_release(m, true);
	free(library->placed);
	names_clear(&library->by_name);
	for (struct object *o = library->kernels, *next; o != NULL; o = next) {
		next = o->next;
		free(((CUkernel)o)->name);
		object_free(o);
	}
	free(library->copy);
	object_free(library);
	return CUDA_SUCCESS;
}

CUresult do_cuLibraryGetModule(CUmodule *module, CUlibrary library) {
	CUcontext context;
	if (!object_is(library, KIND_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (module == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = context_need(&context);
	return result == CUDA_SUCCESS ? library_module(library, context, module) : result;
}

static CUresult kernel_of(CUlibrary library, const char *name, CUkernel *out) {
	pthread_mutex_lock(&shim_lock);
	CUkernel found = names_find(&library->by_name, name);
	if (found == NULL && (found = object_new(KIND_KERNEL, sizeof *found)) != NULL) {
		found->library = library;
		found->name = strdup(name);
		if (found->name != NULL && names_add(&library->by_name, found->name, found)) {
			object_link(&library->kernels, found);
		} else {
			free(found->name);
			object_free(found);
			found = NULL;
		}
	}
	pthread_mutex_unlock(&shim_lock);
	*out = found;
	return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult do_cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
	CUcontext context;
	CUmodule module;
	CUfunction function;
	if (!object_is(library, KIND_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (kernel == NULL || name == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = some_context(&context);
	if (result == CUDA_SUCCESS)
		result = library_module(library, context, &module);
	if (result == CUDA_SUCCESS)
		result = module_function(module, name, &function);
	return result == CUDA_SUCCESS ? kernel_of(library, name, kernel) : result;
}

CUresult do_cuLibraryGetKernelCount(unsigned int *count, CUlibrary library) {
	CUcontext context;
	CUmodule module;
	if (!object_is(library, KIND_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = some_context(&context);
	if (result == CUDA_SUCCESS)
		result = library_module(library, context, &module);
	return result == CUDA_SUCCESS ? with_cuModuleGetFunctionCount(count, module) : result;
}

CUresult do_cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library) {
	CUcontext context;
	CUmodule module;
	char *names;
	uint32_t known;
	if (!object_is(library, KIND_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (kernels == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = some_context(&context);
	if (result == CUDA_SUCCESS)
		result = library_module(library, context, &module);
	if (result == CUDA_SUCCESS)
		result = module_names(module, &names, &known);
	if (result != CUDA_SUCCESS)
		return result;
	const char *name = names;
	for (uint32_t i = 0; i < count && i < known && result == CUDA_SUCCESS; i++, name += strlen(name) + 1)
		result = kernel_of(library, name, &kernels[i]);
	free(names);
	return result;
}

CUresult do_cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
	CUmodule module;
	CUresult result = do_cuLibraryGetModule(&module, library);
	return result == CUDA_SUCCESS ? module_global(module, name, address, bytes) : result;
}

CUresult do_cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
	CUcontext context;
	CUmodule module;
	CUdeviceptr at;
	size_t size;
	if (!object_is(library, KIND_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (address == NULL && bytes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = some_context(&context); // the runtime asks before it makes one current
	if (result == CUDA_SUCCESS)
		result = library_module(library, context, &module);
	if (result == CUDA_SUCCESS)
		result = module_global(module, name, &at, &size);
	struct range range;
	struct client *c;
	if (result == CUDA_SUCCESS && !managed_range(at, &range, &c))
		result = CUDA_ERROR_NOT_FOUND; // another kind of variable
	if (result == CUDA_SUCCESS && address != NULL)
		*address = at;
	if (result == CUDA_SUCCESS && bytes != NULL)
		*bytes = size;
	return result;
}

// --- kernels -------------------------------------------------------------------------------------

CUresult kernel_function(CUkernel kernel, CUcontext context, CUfunction *function) {
	CUmodule module;
	pthread_mutex_lock(&shim_lock);
	*function = kernel->context == context->id ? kernel->function : NULL;
	pthread_mutex_unlock(&shim_lock);
	if (*function != NULL)
		return CUDA_SUCCESS;
	CUresult result = library_module(kernel->library, context, &module);
	if (result == CUDA_SUCCESS)
		result = module_function(module, kernel->name, function);
	if (result == CUDA_SUCCESS) {
		pthread_mutex_lock(&shim_lock);
		kernel->function = *function;
		kernel->context = context->id;
		pthread_mutex_unlock(&shim_lock);
	}
	return result;
}

CUresult function_of(CUfunction handle, CUfunction *function) {
	if (object_is(handle, KIND_FUNCTION)) {
		*function = handle;
		return CUDA_SUCCESS;
	}
	if (!object_is(handle, KIND_KERNEL))
		return CUDA_ERROR_INVALID_HANDLE;
	CUcontext context;
	CUresult result = context_need(&context);
	return result == CUDA_SUCCESS ? kernel_function((CUkernel)handle, context, function) : result;
}

CUkernel kernel_behind(CUfunction function) {
	CUlibrary library = function->module->library;
	CUkernel kernel;
	return library != NULL && kernel_of(library, function->name, &kernel) == CUDA_SUCCESS ? kernel : NULL;
}
