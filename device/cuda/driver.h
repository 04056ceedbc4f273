// What the Go files need of NVIDIA's driver. No header of CUDA's is used.
//
// Every operation makes its context current on the calling thread, does its
// work and puts the thread back as it was, all within one C function: Go may
// move a goroutine to another thread between two.
#ifndef MUSTER_CUDA_DRIVER_H
#define MUSTER_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t mcu_handle; // of the driver's: context, stream, event, module, function

// mcu_result is the answer of the driver and the function that gave it. Code 0
// is success.
typedef struct {
	int code;
	const char *call;
} mcu_result;

enum { MCU_OPENED, MCU_NO_LIBRARY, MCU_OWN_SHIM, MCU_NO_SYMBOL };

// mcu_open opens the library; text then holds what is wrong with it.
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

// The next four take context 0 for none.
mcu_result mcu_reserve(mcu_handle context, uint64_t base, size_t size, uint64_t *got);
mcu_result mcu_reserve_free(mcu_handle context, uint64_t base, size_t size);
// mcu_map maps count pieces of new memory one behind the other, all or none.
mcu_result mcu_map(mcu_handle context, int device, uint64_t address, const size_t *sizes, size_t count);
// mcu_unmap takes whole pieces away; it goes on after a failure and returns the
// first.
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

// A link of several images, with the driver's own log of what is wrong with them. What
// mcu_link_complete gives is there until mcu_link_destroy.
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
	const char *name; // the driver's, as long as the module is loaded
	int max_threads, shared, local, registers, ptx, binary, constant;
	int cluster[3], cluster_needed;
} mcu_function;

// mcu_function_info also allows the function all dynamic shared memory that a
// block of shared_block bytes has beside the static part.
mcu_result mcu_function_info(mcu_handle context, mcu_handle function, int shared_block, mcu_function *info);
// mcu_function_param answers 1 (invalid value) behind the last parameter.
mcu_result mcu_function_param(mcu_handle context, mcu_handle function, size_t index, size_t *offset, size_t *size);
mcu_result mcu_function_occupancy(mcu_handle context, mcu_handle function, int threads, size_t shared, int *blocks);

// Fills two bytes of each pair of multiprocessors: first one of all, then the other.
mcu_result mcu_topology(mcu_handle context, uint8_t *told, size_t pairs);

// A tensor, as a program describes it: in tiles, or by corners of boxes in which columns
// of channels are loaded. The program's library writes it in this form.
typedef struct {
	uint32_t type, rank;
	uint64_t address, sizes[5], strides[4]; // of the innermost dimension there is no stride
	int32_t box[5], upper[5];               // of tiles sizes; else corners, lower and upper
	uint32_t steps[5];
	uint32_t channels, pixels; // of columns
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

// mcu_function_clusters also tells how many clusters there can be if the shape has some.
mcu_result mcu_function_clusters(mcu_handle context, mcu_handle function, const mcu_shape *shape, int *clusters, int *blocks);

mcu_result mcu_stream_create(mcu_handle context, int priority, mcu_handle *stream);
mcu_result mcu_stream_destroy(mcu_handle context, mcu_handle stream);
// What kernels print: a file in the place of standard output (-1 if that fails),
// the C library's buffer emptied, and the driver made to write.
int mcu_take_stdout(void);
void mcu_flush_stdout(void);

// mcu_sift_stderr puts a pipe in the place of standard error and returns the end that is
// read, -1 if that fails; *before is the file that was there.
int mcu_sift_stderr(int *before);

// mcu_write_stderr writes all of a line to standard error; 0 if it cannot.
int mcu_write_stderr(const char *line, size_t size);
mcu_result mcu_flush_prints(mcu_handle context);

mcu_result mcu_stream_query(mcu_handle context, mcu_handle stream);
// The next two look again and again, for so many nanoseconds.
mcu_result mcu_stream_watch(mcu_handle context, mcu_handle stream, int64_t limit);
mcu_result mcu_event_watch(mcu_handle context, mcu_handle event, int64_t limit);
mcu_result mcu_stream_wait(mcu_handle context, mcu_handle stream, mcu_handle event);
// Memory that several processes have: its descriptor is the caller's to close.
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

// mcu_launch starts a kernel; parameter i lies offsets[i] bytes into params.
mcu_result mcu_launch(mcu_handle context, mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                      char *params, const uint32_t *offsets, size_t count);

// Graphs are made node by node, each behind nodes that were added before, and instantiated; an
// instance needs its graph only to be changed. One that is ended goes on with what was launched.
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
// instance was made of, which must still exist. What was launched before is as it was.
mcu_result mcu_graph_set_kernel(mcu_handle context, mcu_handle instance, mcu_handle node, mcu_handle function, const mcu_shape *shape,
                                char *params, const uint32_t *offsets, size_t count);
mcu_result mcu_graph_set_copy(mcu_handle context, mcu_handle instance, mcu_handle node, const mcu_rows *to, const mcu_rows *from);
mcu_result mcu_graph_set_fill(mcu_handle context, mcu_handle instance, mcu_handle node, const mcu_rows *to, uint32_t value, int element);
// mcu_graph_update fails if graph and instance are not of one shape.
mcu_result mcu_graph_update(mcu_handle context, mcu_handle instance, mcu_handle graph);
mcu_result mcu_graph_launch(mcu_handle context, mcu_handle instance, mcu_handle stream);
mcu_result mcu_graph_end(mcu_handle context, mcu_handle instance);

mcu_result mcu_event_create(mcu_handle context, int timing, mcu_handle *event);
mcu_result mcu_event_destroy(mcu_handle context, mcu_handle event);
mcu_result mcu_event_record(mcu_handle context, mcu_handle event, mcu_handle stream);
mcu_result mcu_event_query(mcu_handle context, mcu_handle event);
mcu_result mcu_event_elapsed(mcu_handle context, mcu_handle start, mcu_handle end, float *milliseconds);

// An array of the driver's; with levels it is a mipmap.
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
	size_t pitch, rows; // of the memory: bytes a row, rows a slice
	size_t x, y, z, width, height, depth;
} mcu_box;

// mcu_array_copy copies from memory to an array if in is set, else the other way.
mcu_result mcu_array_copy(mcu_handle context, mcu_handle stream, mcu_handle array, const mcu_box *box, int in);

// A texture or a surface; floats are given as their bits.
typedef struct {
	int surface, resource;
	mcu_handle array; // or mipmap
	uint64_t memory;  // of the other resources
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

// musterCudaCall is Go's: it runs the function that was registered as id.
extern void musterCudaCall(uint64_t id);

#endif
