// Modules and functions: the library sends images to the worker, which says what they contain. Layer: calls.
#include "calls.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// --- images -----------------------------------------------------------------------------

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u

struct wrapper { // what nvcc puts around a fatbin
	uint32_t magic, version;
	const void *data;
	const void *more;
};

struct fatbin {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size;
};

// Whether bytes are there to be read. Managed memory is, though it may be protected just now.
static bool there(const void *at, size_t size) { return readable(at, size) == size || managed_has((CUdeviceptr)(uintptr_t)at); }

// Whether size bytes at offset of an image are there, and lie below limit; advances *end behind them.
// Where the limit is unknown, what the headers say may be wrong: then nothing is read that is not there.
static bool within(const uint8_t *image, size_t limit, uint64_t offset, uint64_t size, size_t *end) {
	uint64_t last;
	if (__builtin_add_overflow(offset, size, &last) || last > limit || last > IMAGE_MOST)
		return false;
	if (limit == IMAGE_UNLIMITED && !there(image + offset, size))
		return false;
	*end = last > *end ? last : *end;
	return true;
}

// Finds the end of all parts that the headers of a cubin name; false if one lies beyond limit.
static bool elf_size(const uint8_t *image, size_t limit, size_t *end) {
	Elf64_Ehdr h;
	*end = 0;
	if (!within(image, limit, 0, sizeof h, end))
		return false;
	memcpy(&h, image, sizeof h);
	if (!within(image, limit, h.e_shoff, (uint64_t)h.e_shnum * h.e_shentsize, end) || !within(image, limit, h.e_phoff, (uint64_t)h.e_phnum * h.e_phentsize, end))
		return false;
	for (unsigned i = 0; h.e_shoff != 0 && i < h.e_shnum; i++) {
		Elf64_Shdr s;
		uint64_t at = h.e_shoff + (uint64_t)i * h.e_shentsize;
		if (!within(image, limit, at, sizeof s, end))
			return false;
		memcpy(&s, image + at, sizeof s);
		if (s.sh_type != SHT_NOBITS && !within(image, limit, s.sh_offset, s.sh_size, end))
			return false;
	}
	for (unsigned i = 0; h.e_phoff != 0 && i < h.e_phnum; i++) {
		Elf64_Phdr p;
		uint64_t at = h.e_phoff + (uint64_t)i * h.e_phentsize;
		if (!within(image, limit, at, sizeof p, end))
			return false;
		memcpy(&p, image + at, sizeof p);
		if (!within(image, limit, p.p_offset, p.p_filesz, end))
			return false;
	}
	return within(image, limit, 0, *end, end); // what is between the parts, too
}

static bool fatbin_size(const void *image, size_t limit, size_t *end) {
	struct fatbin f;
	*end = 0;
	if (!within(image, limit, 0, sizeof f, end))
		return false;
	memcpy(&f, image, sizeof f);
	return within(image, limit, f.header_size, f.size, end) && within(image, limit, 0, *end, end);
}

// The length of a text; false if it has no end.
static bool text_size(const char *text, size_t limit, size_t *size) {
	const size_t step = 64 << 10;
	if (limit != IMAGE_UNLIMITED || managed_has((CUdeviceptr)(uintptr_t)text)) {
		*size = strnlen(text, limit);
		return true;
	}
	for (*size = 0; *size < IMAGE_MOST; *size += step) {
		size_t some = readable(text + *size, step), n = strnlen(text + *size, some);
		if (n < some) {
			*size += n;
			return true;
		}
		if (some < step)
			return false;
	}
	return false;
}

// Whether the header says that an image is a cubin. As the driver does, image_bounds returns
// CUDA_ERROR_UNKNOWN for a broken cubin.
static bool is_cubin(const void *image, uint32_t magic, size_t limit) {
	Elf64_Ehdr head;
	size_t end = 0;
	if (memcmp(&magic, ELFMAG, SELFMAG) != 0 || !within(image, limit, 0, sizeof head, &end))
		return false;
	memcpy(&head, image, sizeof head); // the machine is in the same place in files of 32 bits
	return head.e_machine == 190; // EM_CUDA
}

CUresult image_bounds(const void *image, size_t limit, const void **start, size_t *size) {
	if (image == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t magic = 0;
	size_t head = limit < 4 ? limit : 4;
	if (limit == IMAGE_UNLIMITED && !there(image, head) && (head = readable(image, head)) == 0)
		return CUDA_ERROR_INVALID_IMAGE;
	if (strnlen(image, head) == 4) // text may be shorter, what has a magic number is not
		memcpy(&magic, image, 4);
	else if (limit == 0 || ((const char *)image)[0] == 0)
		return CUDA_ERROR_INVALID_IMAGE;
	if (magic == WRAPPER_MAGIC) {
		struct wrapper w;
		if (limit != IMAGE_UNLIMITED || !there(image, sizeof w)) // a file has no addresses
			return CUDA_ERROR_INVALID_IMAGE;
		memcpy(&w, image, sizeof w);
		image = w.data;
		if (image == NULL || !there(image, sizeof magic))
			return CUDA_ERROR_INVALID_IMAGE;
		memcpy(&magic, image, sizeof magic);
	}
	*start = image;
	bool whole = true;
	if (magic == FATBIN_MAGIC)
		whole = fatbin_size(image, limit, size);
	else if (memcmp(&magic, ELFMAG, SELFMAG) == 0)
		whole = elf_size(image, limit, size) && ((const uint8_t *)image)[EI_CLASS] == ELFCLASS64;
	else
		whole = text_size(image, limit, size);
	if (whole && *size > 0)
		return CUDA_SUCCESS;
	return is_cubin(image, magic, limit) ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_IMAGE;
}

// Opens a regular file, and only that: others may have no end, or keep the caller waiting.
static CUresult open_regular(const char *path, int *fd, size_t *size) {
	struct stat is;
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO that nobody writes to opens at once
	if (*fd < 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	const char *why = NULL;
	if (fstat(*fd, &is) != 0 || !S_ISREG(is.st_mode))
		why = "it is not a regular file";
	else if ((uint64_t)is.st_size > IMAGE_MOST)
		why = "it has more than 8 GiB";
	if (why == NULL) {
		*size = (size_t)is.st_size;
		return CUDA_SUCCESS;
	}
	notice("%s is not read: %s. Give a file with PTX, a cubin or a fat binary", path, why);
	close(*fd);
	return CUDA_ERROR_INVALID_IMAGE;
}

CUresult file_read(const char *path, void **data, size_t *size) {
	if (path == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	int fd;
	size_t all, used = 0;
	CUresult result = open_regular(path, &fd, &all);
	if (result != CUDA_SUCCESS)
		return result;
	char *buffer = malloc(all + 1);
	ssize_t n = 1;
	while (buffer != NULL && used < all && n > 0) {
		n = read(fd, buffer + used, all - used);
		used += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (buffer == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	buffer[used] = 0;
	*data = buffer;
	*size = used;
	return CUDA_SUCCESS;
}

// --- loading ------------------------------------------------------------------------------

CUresult image_send(struct client *c, uint32_t number, const uint8_t *image, size_t size) {
	CUresult result = CUDA_SUCCESS;
	for (size_t done = 0, limit = stage_limit(c); done < size && result == CUDA_SUCCESS;) {
		size_t piece = size - done < limit ? size - done : limit;
		struct wire_header head;
		result = stage_begin(c, image + done, piece, &head);
		if (result != CUDA_SUCCESS)
			return result;
		struct wire_module_data message = {number};
		result = POST(c, MODULE_DATA, module_data, &message, &head);
		stage_end(c);
		done += piece;
	}
	return result;
}

char *image_log(struct client *c, uint32_t number) {
	uint64_t offset;
	if (bounce_take(c, true, &offset) != CUDA_SUCCESS)
		return NULL;
	struct wire_module_log message = {number};
	const struct wire_header head = {.data = offset, .length = WIRE_BOUNCE};
	struct wire_module_log_reply reply;
	char *log = NULL;
	if (ASK(c, MODULE_LOG, module_log, &message, &head, &reply) == CUDA_SUCCESS && reply.size > 0 && reply.size <= WIRE_BOUNCE)
		log = strndup((const char *)c->arena.at + offset, reply.size);
	bounce_give(c, offset);
	return log;
}

// Whether the user wants all kernels of a module loaded at once; otherwise the worker loads each one
// when the program asks for it.
static bool loads_eagerly(void) {
	const char *mode = getenv("CUDA_MODULE_LOADING");
	return mode != NULL && strcmp(mode, "EAGER") == 0;
}

// Asks the worker for all kernels. Errors are ignored here: the program gets them when it asks
// itself.
static void load_functions(CUmodule module) {
	char *names;
	uint32_t count;
	CUfunction function;
	if (module_names(module, &names, &count) != CUDA_SUCCESS)
		return;
	const char *name = names;
	for (uint32_t i = 0; i < count; i++, name += strlen(name) + 1)
		module_function(module, name, &function);
	free(names);
}

CUresult module_load(CUcontext context, const void *image, size_t limit, char **log, CUmodule *out) {
	const void *start;
	size_t size;
	CUresult result = image_bounds(image, limit, &start, &size);
	if ((result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_UNKNOWN) && log != NULL)
		*log = strdup("error: the image is neither PTX text nor a whole cubin or fat binary");
	struct client *c;
	if (result == CUDA_SUCCESS)
		result = context_client(context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	print_pending(c);
	uint32_t number = client_number(c);
	char *text = NULL;
	bool conditions = condition_defines(start, size, &text, &size);
	result = image_send(c, number, conditions ? (const uint8_t *)text : start, size);
	free(text);
	if (result != CUDA_SUCCESS)
		return result;
	struct answer answer;
	struct wire_module_load message = {number};
	result = CALL(c, MODULE_LOAD, module_load, &message, NO_DATA, &answer);
	if (result != CUDA_SUCCESS) {
		if (log != NULL)
			*log = image_log(c, number);
		return result;
	}
	struct wire_module_load_reply reply;
	struct wire_reader r = {answer.payload, answer.payload + answer.size, false};
	CUmodule module = object_new(KIND_MODULE, sizeof *module);
	if (module == NULL || !wire_module_load_reply_get(&r, &reply))
		return module == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
	module->object.number = number;
	module->function_count = reply.functions;
	module->sets_conditions = conditions;
	context_own(context, module);
	*out = module;
	if (loads_eagerly())
		load_functions(module);
	return CUDA_SUCCESS;
}

// Notes that the program knows a variable's address. If
// there is no memory to note it in the module, the address stays valid after the module is unloaded.
static void note_variable(struct client *c, CUmodule module, uint64_t at, uint64_t size) {
	if (!memory_add_variable(c, module->object.context, at, size))
		return; // it is known
	pthread_mutex_lock(&shim_lock);
	if (module->variable_count == module->variable_room) {
		size_t room = module->variable_room > 0 ? 2 * module->variable_room : 4;
		uint64_t *larger = realloc(module->variables, room * sizeof *larger);
		if (larger != NULL) {
			module->variables = larger;
			module->variable_room = room;
		}
	}
	if (module->variable_count < module->variable_room)
		module->variables[module->variable_count++] = at;
	pthread_mutex_unlock(&shim_lock);
}

static void forget_variables(struct client *c, CUmodule module) {
	for (size_t i = 0; i < module->variable_count; i++) {
		memory_forget_variable(c, module->variables[i]);
		managed_forget(module->variables[i]);
	}
}

void module_release(CUmodule module, bool tell) {
	CUcontext context = module->object.context;
	if (context == NULL || !context_disown(module))
		return;
	struct client *c = atomic_load(&context->client);
	if (c != NULL) {
		forget_variables(c, module);
		if (tell) {
			struct wire_module_unload message = {module->object.number};
			host_hold(c); // the worker unloads it when no kernel runs
			POST(c, MODULE_UNLOAD, module_unload, &message, NO_DATA);
			host_go_on(c);
		}
	}
	free(module->variables);
	names_clear(&module->by_name);
	for (struct object *o = module->functions, *next; o != NULL; o = next) {
		next = o->next;
		free(((CUfunction)o)->name);
		free(((CUfunction)o)->layout);
		object_free(o);
	}
	object_free(module);
}

// --- options of those who have images compiled ---------------------------------------------

#define JIT_OPTIONS 64 // more than any version of CUDA knows

bool jit_options_exist(const struct jit *jit) {
	for (unsigned i = 0; jit->options != NULL && i < jit->count; i++)
		if ((unsigned)jit->options[i] >= JIT_OPTIONS)
			return false;
	return true;
}

void **jit_value(const struct jit *jit, CUjit_option option) {
	for (unsigned i = 0; jit->options != NULL && jit->values != NULL && i < jit->count; i++)
		if (jit->options[i] == option)
			return &jit->values[i];
	return NULL;
}

static size_t room_of(const struct jit *jit, CUjit_option buffer, CUjit_option size) {
	void **log = jit_value(jit, buffer), **value = jit_value(jit, size);
	return log != NULL && *log != NULL && value != NULL ? (size_t)(uintptr_t)*value : 0;
}

void jit_begin(struct jit *jit) { clock_gettime(CLOCK_MONOTONIC, &jit->began); }

struct jit jit_options(unsigned count, CUjit_option *options, void **values) {
	struct jit jit = {.count = count, .options = options, .values = values};
	jit_begin(&jit);
	jit.info_room = room_of(&jit, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
	jit.error_room = room_of(&jit, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
	return jit;
}

// Writes a text into the log that two options describe: its buffer and its size. Drops the newline at
// the end, and sets the size to the length with the NUL, or 0 for an empty text.
static void write_log(const struct jit *jit, CUjit_option buffer, size_t room, CUjit_option size, const char *text) {
	void **log = jit_value(jit, buffer), **value = jit_value(jit, size);
	if (value == NULL)
		return;
	size_t length = strlen(text);
	if (length > 0 && text[length - 1] == '\n')
		length--;
	if (length >= room)
		length = room > 0 ? room - 1 : 0;
	if (room > 0) {
		memcpy(*log, text, length);
		((char *)*log)[length] = 0;
	}
	*value = (void *)(uintptr_t)(length > 0 ? length + 1 : 0);
}

void jit_answer(const struct jit *jit, const char *errors) {
	write_log(jit, CU_JIT_INFO_LOG_BUFFER, jit->info_room, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
	write_log(jit, CU_JIT_ERROR_LOG_BUFFER, jit->error_room, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, errors != NULL ? errors : "");
	void **time = jit_value(jit, CU_JIT_WALL_TIME);
	if (time == NULL)
		return;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	float milliseconds = (float)(now.tv_sec - jit->began.tv_sec) * 1e3f + (float)(now.tv_nsec - jit->began.tv_nsec) / 1e6f;
	*time = NULL;
	memcpy(time, &milliseconds, sizeof milliseconds);
}

CUresult jit_answer_load(const struct jit *jit, CUresult result, char *log) {
	jit_answer(jit, result == CUDA_SUCCESS ? NULL : log != NULL ? log : "error: the node refused this image");
	free(log);
	return result;
}

CUresult with_cuModuleLoadData(CUcontext context, CUmodule *module, const void *image) {
	return module != NULL ? module_load(context, image, IMAGE_UNLIMITED, NULL, module) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values) {
	const struct jit jit = jit_options(count, options, values);
	if (!jit_options_exist(&jit))
		return CUDA_ERROR_INVALID_VALUE;
	CUcontext context;
	char *log = NULL;
	CUresult result = context_need(&context);
	if (result == CUDA_SUCCESS)
		result = module != NULL ? module_load(context, image, IMAGE_UNLIMITED, jit.error_room > 0 ? &log : NULL, module) : CUDA_ERROR_INVALID_VALUE;
	return jit_answer_load(&jit, result, log);
}

CUresult with_cuModuleLoadFatBinary(CUcontext context, CUmodule *module, const void *image) { return with_cuModuleLoadData(context, module, image); }

CUresult do_cuModuleLoad(CUmodule *module, const char *path) {
	void *image;
	size_t size;
	CUcontext context;
	CUresult result = context_need(&context);
	if (result == CUDA_SUCCESS)
		result = file_read(path, &image, &size);
	if (result != CUDA_SUCCESS)
		return result;
	result = module != NULL ? module_load(context, image, size, NULL, module) : CUDA_ERROR_INVALID_VALUE;
	free(image);
	return result;
}

CUresult with_cuModuleUnload(CUmodule module) {
	if (module->library != NULL)
		return CUDA_ERROR_NOT_PERMITTED;
	struct client *c;
	CUresult result = context_client(module->object.context, &c);
	if (result == CUDA_SUCCESS) {
		print_pending(c);
		result = client_status(c);
	}
	module_release(module, true);
	return result;
}

CUresult with_cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
	*mode = loads_eagerly() ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

// --- functions -------------------------------------------------------------------------------

static CUresult ask_function(struct client *c, CUfunction f, uint64_t offset) {
	struct wire_module_function message = {f->module->object.number, f->object.number, {f->name, (uint32_t)strlen(f->name)}};
	const struct wire_header head = {.data = offset, .length = WIRE_BOUNCE};
	struct wire_module_function_reply reply;
	CUresult result = ASK(c, MODULE_FUNCTION, module_function, &message, &head, &reply);
	if (result != CUDA_SUCCESS)
		return result;
	if (reply.params > WIRE_BOUNCE / 8)
		return CUDA_ERROR_UNKNOWN;
	f->layout = malloc((size_t)reply.params * sizeof *f->layout + 1);
	if (f->layout == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(f->layout, c->arena.at + offset, (size_t)reply.params * sizeof *f->layout);
	for (uint32_t i = 0; i < reply.params; i++)
		if (f->layout[i][0] > reply.param_size || f->layout[i][1] > reply.param_size - f->layout[i][0])
			return CUDA_ERROR_UNKNOWN;
	f->params = reply.params;
	f->param_size = reply.param_size;
	f->max_threads = reply.max_threads;
	f->shared = reply.shared;
	f->local = reply.local;
	f->registers = reply.registers;
	f->ptx = reply.ptx;
	f->binary = reply.binary;
	f->constant = reply.constant;
	f->cluster[0] = (int)reply.cluster_x;
	f->cluster[1] = (int)reply.cluster_y;
	f->cluster[2] = (int)reply.cluster_z;
	f->cluster_needed = (int)reply.cluster_needed;
	f->max_dynamic = reply.shared < 49152 ? 49152 - reply.shared : 0;
	f->carveout = -1;
	return CUDA_SUCCESS;
}

CUresult module_function(CUmodule module, const char *name, CUfunction *out) {
	pthread_mutex_lock(&shim_lock);
	*out = names_find(&module->by_name, name);
	pthread_mutex_unlock(&shim_lock);
	if (*out != NULL)
		return CUDA_SUCCESS;
	struct client *c;
	CUresult result = context_client(module->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	uint64_t offset;
	result = bounce_take(c, true, &offset);
	if (result != CUDA_SUCCESS)
		return result;
	CUfunction f = object_new(KIND_FUNCTION, sizeof *f);
	result = CUDA_ERROR_OUT_OF_MEMORY;
	if (f != NULL) {
		f->module = module;
		f->object.context = module->object.context;
		f->object.number = client_number(c);
		f->name = strdup(name);
		if (f->name != NULL)
			result = ask_function(c, f, offset);
	}
	bounce_give(c, offset);
	if (result == CUDA_SUCCESS) {
		pthread_mutex_lock(&shim_lock);
		*out = names_find(&module->by_name, name); // another thread may have added it meanwhile
		if (*out == NULL && names_add(&module->by_name, f->name, f)) {
			object_link(&module->functions, f);
			*out = f;
		} else if (*out == NULL) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
		pthread_mutex_unlock(&shim_lock);
	}
	if (f != NULL && *out != f) {
		free(f->name);
		free(f->layout);
		object_free(f);
	}
	return result;
}

CUresult with_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
	if (function == NULL || name == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return name[0] != 0 ? module_function(module, name, function) : CUDA_ERROR_INVALID_VALUE;
}

CUresult module_global(CUmodule module, const char *name, CUdeviceptr *address, size_t *bytes) {
	CUfunction function;
	if (name == NULL || name[0] == 0 || (address == NULL && bytes == NULL))
		return CUDA_ERROR_INVALID_VALUE;
	struct client *c;
	CUresult result = context_client(module->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_module_global message = {module->object.number, {name, (uint32_t)strlen(name)}};
	struct wire_module_global_reply reply;
	result = ASK(c, MODULE_GLOBAL, module_global, &message, NO_DATA, &reply);
	if (result == CUDA_ERROR_NOT_FOUND && module_function(module, name, &function) == CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	note_variable(c, module, reply.addr, reply.size);
	if (reply.managed != 0)
		result = managed_variable(c, module->object.context, reply.addr, reply.size);
	if (result != CUDA_SUCCESS)
		return result;
	if (address != NULL)
		*address = reply.addr;
	if (bytes != NULL)
		*bytes = reply.size;
	return CUDA_SUCCESS;
}

CUresult with_cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
	CUresult result = module_global(module, name, address, bytes);
	if (result != CUDA_SUCCESS && bytes != NULL)
		*bytes = 0;
	return result;
}

// Returns the names of a module's functions one after the other, each with a NUL. The caller frees
// them.
CUresult module_names(CUmodule module, char **names, uint32_t *functions) {
	struct client *c;
	uint64_t offset;
	CUresult result = context_client(module->object.context, &c);
	if (result == CUDA_SUCCESS)
		result = bounce_take(c, true, &offset);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_module_names message = {module->object.number};
	const struct wire_header head = {.data = offset, .length = WIRE_BOUNCE};
	struct wire_module_names_reply reply;
	result = ASK(c, MODULE_NAMES, module_names, &message, &head, &reply);
	if (result == CUDA_SUCCESS && reply.total > WIRE_BOUNCE)
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_SUCCESS) {
		*names = malloc(reply.total + 1);
		if (*names != NULL) {
			memcpy(*names, c->arena.at + offset, reply.total);
			(*names)[reply.total] = 0;
			*functions = 0;
			for (uint64_t i = 0; i < reply.total && *functions < reply.functions; i++)
				*functions += (*names)[i] == 0;
		} else {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	bounce_give(c, offset);
	return result;
}

CUresult with_cuModuleGetFunctionCount(unsigned int *count, CUmodule module) {
	if (count == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*count = module->function_count;
	return CUDA_SUCCESS;
}

CUresult with_cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module) {
	if (functions == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	char *names;
	uint32_t known;
	CUresult result = module_names(module, &names, &known);
	if (result != CUDA_SUCCESS)
		return result;
	const char *name = names;
	for (uint32_t i = 0; i < count && i < known && result == CUDA_SUCCESS; i++, name += strlen(name) + 1)
		result = module_function(module, name, &functions[i]);
	free(names);
	return result;
}
