// What the Go files need of NVIDIA's driver. No header of CUDA is used.
//
// Every operation makes its context current on the calling thread, does its
// work and restores the thread's previous context, all within one C function: Go
// may move a goroutine to another thread between two C calls.
#ifndef MUSTER_CUDA_DRIVER_H
#define MUSTER_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t mcu_handle; // of an object of the driver: context, stream, event, module, function

// mcu_result is an answer of the driver and the name of the driver's function that gave
// it. Code 0 is success.
typedef struct {
	int code;
	const char *call;
} mcu_result;

enum { MCU_OPENED, MCU_NO_LIBRARY, MCU_OWN_SHIM, MCU_NO_SYMBOL };

// mcu_open opens the library and finds its functions; if that fails, text says why.
int mcu_open(const char *path, char *text, size_t room);
const char *mcu_error_name(int code); // "" if it has none
const char *mcu_error_text(int code);

mcu_result mcu_init(void);
mcu_result mcu_device_count(int *count);
mcu_result mcu_driver_version(int *version);
mcu_result mcu_device(int ordinal, int *device, char *name, int room, unsigned char uuid[16], size_t *memory);
mcu_result mcu_device_attribute(int device, int number, int *value);
mcu_result mcu_granularity(int device, size_t *granularity);

mcu_result mcu_context_create(int device, mcu_handle *context, size_t *stack);
mcu_result mcu_context_synchronise(mcu_handle context);
mcu_result mcu_context_destroy(mcu_handle context);
mcu_result mcu_context_stack(mcu_handle context, size_t bytes);
mcu_result mcu_context_limit(mcu_handle context, int limit, size_t value);
mcu_result mcu_context_memory(mcu_handle context, size_t *free_bytes);

// The next four also work without a context, if context is 0.
mcu_result mcu_reserve(mcu_handle context, uint64_t base, size_t size, uint64_t *got);
mcu_result mcu_reserve_free(mcu_handle context, uint64_t base, size_t size);
// mcu_map maps count pieces of new memory, one after the other. If one fails, none stays mapped.
mcu_result mcu_map(mcu_handle context, int device, uint64_t address, const size_t *sizes, size_t count);
// mcu_unmap unmaps whole pieces. It continues after a failure and returns the
// first one.
mcu_result mcu_unmap(mcu_handle context, uint64_t address, const size_t *sizes, size_t count);

mcu_result mcu_read(mcu_handle context, void *host, uint64_t from, size_t size);
mcu_result mcu_write(mcu_handle context, uint64_t to, const void *host, size_t size);

mcu_result mcu_host_alloc(mcu_handle context, size_t size, void **host);
mcu_result mcu_host_free(mcu_handle context, void *host);
mcu_result mcu_is_managed(mcu_handle context, uint64_t address, unsigned int *managed);
mcu_result mcu_host_register(mcu_handle context, void *host, size_t size);
mcu_result mcu_host_map(mcu_handle context, void *host, size_t size, uint64_t *address); // the device's
mcu_result mcu_host_unregister(mcu_handle context, void *host);

mcu_result mcu_module_load(mcu_handle context, const void *image, mcu_handle *module, char *log, size_t room);
mcu_result mcu_module_unload(mcu_handle context, mcu_handle module);

// A link of several images, with the driver's error log. The image that mcu_link_complete
// returns belongs to the link and is valid until mcu_link_destroy.
enum { MCU_LINK_OPTIONS = 30 };
typedef struct mcu_link mcu_link;
mcu_result mcu_link_create(mcu_handle context, const int *options, const uint64_t *values, unsigned int count, mcu_link **link);
mcu_result mcu_link_add(mcu_handle context, mcu_link *link, int kind, void *data, size_t size, const char *name);
mcu_result mcu_link_complete(mcu_handle context, mcu_link *link, void **image, size_t *size);
const char *mcu_link_log(const mcu_link *link);
mcu_result mcu_link_destroy(mcu_handle context, mcu_link *link);

mcu_result mcu_module_global(mcu_handle context, mcu_handle module, const char *name, uint64_t *address, size_t *size);
mcu_result mcu_function_name(mcu_handle context, mcu_handle function, const char **name); // without loading it
mcu_result mcu_module_function_count(mcu_handle context, mcu_handle module, unsigned int *count);
mcu_result mcu_module_functions(mcu_handle context, mcu_handle module, mcu_handle *functions, unsigned int count);

typedef struct {
	const char *name; // owned by the driver, valid while the module is loaded
	int max_threads, shared, local, registers, ptx, binary, constant;
	int cluster[3], cluster_needed;
} mcu_function;

// mcu_function_info loads the function and describes it. It also opts in to all dynamic
// shared memory: shared_block bytes of a block, less the static part.
mcu_result mcu_function_info(mcu_handle context, mcu_handle function, int shared_block, mcu_function *info);
// mcu_function_param answers 1 (invalid value) for an index after the last parameter.
mcu_result mcu_function_param(mcu_handle context, mcu_handle function, size_t index, size_t *offset, size_t *size);
mcu_result mcu_function_occupancy(mcu_handle context, mcu_handle function, int threads, size_t shared, int *blocks);

// mcu_topology writes two bytes for each pair of multiprocessors: the first bytes of all pairs,
// then the second ones.
mcu_result mcu_topology(mcu_handle context, uint8_t *told, size_t pairs);

// A tensor, as a program describes it for tiled or im2col copies. The library in the program
// (shim) sends it in this form.
typedef struct {
	uint32_t type, rank;
	uint64_t address, sizes[5], strides[4]; // the innermost dimension has no stride
	int32_t box[5], upper[5];               // tiled: box has the tile's size; im2col: lower and upper corners
	uint32_t steps[5];
	uint32_t channels, pixels; // per column of im2col
	uint32_t interleave, swizzle, promotion, fill;
	uint32_t unused;
} mcu_tensor;

enum { MCU_TENSOR_MAP = 128 }; // bytes of a descriptor

mcu_result mcu_tensor_map(mcu_handle context, const mcu_tensor *tensor, int im2col, uint8_t map[MCU_TENSOR_MAP]);
mcu_result mcu_tensor_replace(mcu_handle context, uint8_t map[MCU_TENSOR_MAP], uint64_t address);

mcu_result mcu_function_shared(mcu_handle context, mcu_handle function, int blocks, int threads, size_t *shared);

// How a kernel is launched: sides of the grid, then of the block; cluster[0] is 0 for none.
typedef struct {
	uint32_t sides[6], cluster[3];
	unsigned int shared;
	int cooperative, large_cluster;
} mcu_shape;

// mcu_function_clusters returns, for a shape with a cluster size, how many clusters can be resident;
// for one without, the largest cluster size in blocks.
mcu_result mcu_function_clusters(mcu_handle context, mcu_handle function, const mcu_shape *shape, int *clusters, int *blocks);

mcu_result mcu_stream_create(mcu_handle context, int priority, mcu_handle *stream);
mcu_result mcu_stream_destroy(mcu_handle context, mcu_handle stream);
// What kernels print: mcu_take_stdout replaces standard output by a file in memory and
// returns its descriptor (-1 if that fails), mcu_flush_stdout flushes the C library's buffer,
// and mcu_flush_prints makes the driver write.
int mcu_take_stdout(void);
void mcu_flush_stdout(void);

// mcu_sift_stderr replaces standard error by a pipe and returns the end to read from, or -1 if
// that fails; *before is a descriptor of the original file.
int mcu_sift_stderr(int *before);

// mcu_write_stderr writes all of a line to standard error; 0 if it cannot.
int mcu_write_stderr(const char *line, size_t size);
mcu_result mcu_flush_prints(mcu_handle context);

mcu_result mcu_stream_query(mcu_handle context, mcu_handle stream);
// The next two poll for up to limit nanoseconds.
mcu_result mcu_stream_watch(mcu_handle context, mcu_handle stream, int64_t limit);
mcu_result mcu_event_watch(mcu_handle context, mcu_handle event, int64_t limit);
mcu_result mcu_stream_wait(mcu_handle context, mcu_handle stream, mcu_handle event);
// Memory that several processes share. The caller must close the descriptor.
mcu_result mcu_shared_create(mcu_handle context, int device, size_t size, int *fd);
mcu_result mcu_shared_map(mcu_handle context, int device, uint64_t address, size_t size, int fd);
// Words of 4 or 8 bytes; compare is that of cuStreamWaitValue.
mcu_result mcu_write_word(mcu_handle context, mcu_handle stream, uint64_t at, int width, uint64_t value);
mcu_result mcu_wait_word(mcu_handle context, mcu_handle stream, uint64_t at, int width, uint64_t value, unsigned int compare);
mcu_result mcu_stream_call(mcu_handle context, mcu_handle stream, uint64_t id);

mcu_result mcu_copy_in(mcu_handle context, mcu_handle stream, uint64_t to, const void *host, size_t size);
mcu_result mcu_copy_out(mcu_handle context, mcu_handle stream, void *host, uint64_t from, size_t size);
mcu_result mcu_copy(mcu_handle context, mcu_handle stream, uint64_t to, uint64_t from, size_t size);
mcu_result mcu_fill(mcu_handle context, mcu_handle stream, uint64_t to, uint32_t value, int width, size_t count);

// mcu_launch submits a kernel; parameter i is at params + offsets[i].
mcu_result mcu_launch(mcu_handle context, mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                      char *params, const uint32_t *offsets, size_t count);

// A graph is made node by node; each depends on nodes that were added before. Then it is
// instantiated. An instance needs its graph only if single nodes are to be changed. mcu_graph_end
// destroys an instance; launches made before still run to their end.
typedef struct {
	uint64_t at;
	size_t pitch, width, height;
} mcu_rows;

mcu_result mcu_graph_create(mcu_handle *graph);
mcu_result mcu_graph_destroy(mcu_handle graph);
mcu_result mcu_graph_kernel(mcu_handle context, mcu_handle graph, const mcu_handle *after, size_t afters, mcu_handle function,
                            const mcu_shape *shape, char *params, const uint32_t *offsets, size_t count, mcu_handle *node);
mcu_result mcu_graph_copy(mcu_handle context, mcu_handle graph, const mcu_handle *after, size_t afters, const mcu_rows *to,
                          const mcu_rows *from, mcu_handle *node);
mcu_result mcu_graph_fill(mcu_handle context, mcu_handle graph, const mcu_handle *after, size_t afters, const mcu_rows *to,
                          uint32_t value, int element, mcu_handle *node);
mcu_result mcu_graph_instantiate(mcu_handle context, mcu_handle graph, mcu_handle *instance);
// The mcu_graph_set functions change one node of an instance. The node is one of the graph that the
// instance was made from, which must still exist. Launches made before are not affected.
mcu_result mcu_graph_set_kernel(mcu_handle context, mcu_handle instance, mcu_handle node, mcu_handle function, const mcu_shape *shape,
                                char *params, const uint32_t *offsets, size_t count);
mcu_result mcu_graph_set_copy(mcu_handle context, mcu_handle instance, mcu_handle node, const mcu_rows *to, const mcu_rows *from);
mcu_result mcu_graph_set_fill(mcu_handle context, mcu_handle instance, mcu_handle node, const mcu_rows *to, uint32_t value, int element);
// mcu_graph_update makes the instance do what graph says. It fails if the two differ in shape.
mcu_result mcu_graph_update(mcu_handle context, mcu_handle instance, mcu_handle graph);
mcu_result mcu_graph_launch(mcu_handle context, mcu_handle instance, mcu_handle stream);
mcu_result mcu_graph_end(mcu_handle context, mcu_handle instance);

mcu_result mcu_event_create(mcu_handle context, int timing, mcu_handle *event);
mcu_result mcu_event_destroy(mcu_handle context, mcu_handle event);
mcu_result mcu_event_record(mcu_handle context, mcu_handle event, mcu_handle stream);
mcu_result mcu_event_query(mcu_handle context, mcu_handle event);
mcu_result mcu_event_elapsed(mcu_handle context, mcu_handle start, mcu_handle end, float *milliseconds);

// An array of the driver; a mipmap if levels is not 0.
typedef struct {
	size_t width, height, depth;
	unsigned int format, channels, flags, levels;
} mcu_array;

mcu_result mcu_array_create(mcu_handle context, const mcu_array *shape, mcu_handle *array);
mcu_result mcu_array_level(mcu_handle context, mcu_handle mipmap, unsigned int level, mcu_handle *array);
mcu_result mcu_array_destroy(mcu_handle context, mcu_handle array, int mipmap);

// A box of an array, x and width in bytes, and where its first byte is in memory.
typedef struct {
	uint64_t memory;
	size_t pitch, rows; // of the memory: bytes per row, rows per slice
	size_t x, y, z, width, height, depth;
} mcu_box;

// mcu_array_copy copies from memory to an array if in is set, else the other way.
mcu_result mcu_array_copy(mcu_handle context, mcu_handle stream, mcu_handle array, const mcu_box *box, int in);

// A texture or a surface; floats are given as their bits.
typedef struct {
	int surface, resource;
	mcu_handle array; // or mipmap
	uint64_t memory;  // address, for the other resources
	unsigned int format, channels;
	size_t width, height, pitch, size;
	int address[3], filter, mip_filter;
	unsigned int flags, anisotropy;
	uint32_t bias, min, max, border[4];
	int has_view, view_format;
	size_t view_width, view_height, view_depth;
	unsigned int first_level, last_level, first_layer, last_layer;
} mcu_texture;

mcu_result mcu_texture_create(mcu_handle context, const mcu_texture *texture, uint64_t *handle);
mcu_result mcu_texture_destroy(mcu_handle context, uint64_t handle, int surface);

// musterCudaCall is a Go function. It runs the Go function that was registered as id.
extern void musterCudaCall(uint64_t id);

#endif
