// The layer of the calls that give devices work: contexts, streams, events, code, launches.
#ifndef MUSTER_CALLS_H
#define MUSTER_CALLS_H

#include "../memory/memory.h"

// --- module.c -------------------------------------------------------------------

struct CUmod_st {
	struct object object;
	struct object *functions;
	struct names by_name; // the same functions; both under shim_lock
	uint64_t *variables;  // addresses that the program has asked for; under shim_lock
	size_t variable_count, variable_room;
	uint32_t function_count;
	CUlibrary library; // the library that it was loaded for; NULL: the program loaded it and unloads it
	bool sets_conditions; // its kernels can set conditions of graphs (graph_condition.c)
};

struct CUfunc_st {
	struct object object;
	CUmodule module;
	char *name;
	uint32_t params, param_size;
	uint32_t (*layout)[2]; // offset and size of each
	int max_threads, shared, local, registers, ptx, binary, constant;
	int max_dynamic, carveout;
	// Thread block clusters: the size that was compiled in or set (0: each launch gives it),
	// whether launches must give it, whether more than 8 blocks are allowed, and a scheduling
	// hint.
	int cluster[3], cluster_needed, large_cluster, cluster_policy;
};

#define IMAGE_UNLIMITED SIZE_MAX // limit of an image whose length only its headers tell
#define IMAGE_MOST ((size_t)8 << 30) // bytes of an image

CUresult image_bounds(const void *image, size_t limit, const void **start, size_t *size);
// If the image is refused and log is not NULL, *log gets the reason, which the caller frees.
CUresult module_load(CUcontext context, const void *image, size_t limit, char **log, CUmodule *module);
CUresult module_function(CUmodule module, const char *name, CUfunction *function);
CUresult module_global(CUmodule module, const char *name, CUdeviceptr *address, size_t *bytes);
CUresult module_names(CUmodule module, char **names, uint32_t *functions);
void module_release(CUmodule module, bool tell);
CUresult file_read(const char *path, void **data, size_t *size);

struct jit { // the options of a call that has an image compiled
	unsigned count;
	CUjit_option *options;
	void **values;
	size_t info_room, error_room; // bytes of the log buffers, read early: the answer overwrites these values
	struct timespec began;
};

struct jit jit_options(unsigned count, CUjit_option *options, void **values);
bool jit_options_exist(const struct jit *jit);
void **jit_value(const struct jit *jit, CUjit_option option); // NULL: the program did not give it
void jit_begin(struct jit *jit);                             // starts the clock for CU_JIT_WALL_TIME
void jit_answer(const struct jit *jit, const char *errors);  // fills logs and times; NULL: no errors
CUresult jit_answer_load(const struct jit *jit, CUresult result, char *log); // jit_answer for the result of a load; frees the log

CUresult image_send(struct client *c, uint32_t number, const uint8_t *image, size_t size); // in pieces
char *image_log(struct client *c, uint32_t number); // why the worker refused it, to be freed; NULL if it does not say

struct CUkern_st {
	struct object object;
	CUlibrary library;
	char *name;
	// A cache: the function in the context where the kernel was used last. It is valid while
	// that context has this id. Under shim_lock.
	CUfunction function;
	uint64_t context;
};

CUresult kernel_function(CUkernel kernel, CUcontext context, CUfunction *function);

// library.c: programs may pass the handle of a library's kernel where a function is wanted.
CUresult function_of(CUfunction handle, CUfunction *function);
// The kernel that a function of a library stands for; NULL for functions of modules.
CUkernel kernel_behind(CUfunction function);

CUresult function_occupancy(CUfunction function, unsigned threads, size_t shared, uint32_t *blocks);

// --- launch.c -------------------------------------------------------------------

struct launch {
	unsigned grid[3], block[3], shared;
	bool cooperative;
	unsigned cluster[3]; // 0: as the function has it
};

CUresult launch_check(CUfunction function, const struct launch *launch);
// Parameters as the kernel sees them: function->param_size bytes.
CUresult launch_gather(CUfunction function, void **params, void **extra, uint8_t *at);
CUresult launch_post(const struct target *target, CUfunction function, const struct launch *launch, const uint8_t *bytes);
struct wire_launch launch_message(uint32_t stream, CUfunction function, const struct launch *launch, const uint8_t *bytes);

// --- events.c, ipc_event.c -------------------------------------------------------------

void event_release(CUevent event, bool tell);
CUresult ipc_event_begin(CUevent event);
void ipc_event_end(CUevent event);
CUresult ipc_event_record(CUevent event, const struct target *t);
bool ipc_event_own(CUevent event);
CUresult ipc_event_query(CUevent event);
CUresult ipc_event_wait(CUevent event);
void ipc_events_forget_all(void);

// values.c: operations on words that streams write and wait for.
CUresult words_check(unsigned count, const CUstreamBatchMemOpParams *list);
CUresult words_post(const struct target *t, unsigned count, const CUstreamBatchMemOpParams *list);

// --- condition_text.c ----------------------------------------------------------------

// Makes PTX text whose kernels can set conditions of graphs, if the image is PTX that declares
// cudaGraphSetConditional; false otherwise. The caller frees the text.
bool condition_defines(const void *image, size_t size, char **text, size_t *length);

// --- texture.c -----------------------------------------------------------

struct texture {
	struct object object;
	uint64_t handle;
	bool surface;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	bool viewed;
};

void texture_release(struct texture *texture, bool tell);

// tensor.c: asks the driver of the real device one of these questions, which device/device.go
// lists.
enum { ASK_TOPOLOGY = 1, ASK_TILED, ASK_IM2COL, ASK_REPLACED };
CUresult driver_ask(uint32_t what, const void *about, size_t size, void *answer, size_t room, size_t *length);

#endif
