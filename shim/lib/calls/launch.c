// Functions and their launches. Layer: calls. A launch is sent without waiting for an
// answer, so the library itself checks everything for which CUDA refuses a launch.
#include "calls.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

// --- what a function is --------------------------------------------------------------------

static const int *attributes_of(CUfunction f) { return devices[f->object.context->device].attributes; }

static bool has_clusters(CUfunction f) { return attributes_of(f)[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] != 0; }

// Where an attribute of a function is kept, and which values a program may set, if any.
static const struct {
	size_t at;
	int least, most;
} attribute_table[CU_FUNC_ATTRIBUTE_MAX] = {
#define KEPT(field) {offsetof(struct CUfunc_st, field), 0, -1}
#define SET(field, least, most) {offsetof(struct CUfunc_st, field), least, most}
	[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = KEPT(max_threads),
	[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = KEPT(shared),
	[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES] = KEPT(constant),
	[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = KEPT(local),
	[CU_FUNC_ATTRIBUTE_NUM_REGS] = KEPT(registers),
	[CU_FUNC_ATTRIBUTE_PTX_VERSION] = KEPT(ptx),
	[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = KEPT(binary),
	[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA] = {0, 0, -1}, // always 0
	[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = SET(max_dynamic, 0, INT_MAX),
	[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = SET(carveout, -1, 100),
	[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = KEPT(cluster_needed),
	[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = SET(cluster[0], 0, INT_MAX),
	[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = SET(cluster[1], 0, INT_MAX),
	[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = SET(cluster[2], 0, INT_MAX),
	[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] = SET(large_cluster, 0, 1),
	[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE] = SET(cluster_policy, 0, 2), // a hint
#undef KEPT
#undef SET
};

static int *attribute_at(CUfunction f, CUfunction_attribute attribute) { return (int *)((char *)f + attribute_table[attribute].at); }

CUresult do_cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (value == NULL || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attribute_table[attribute].at != 0 ? *attribute_at(f, attribute) : 0;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX || value < attribute_table[attribute].least || value > attribute_table[attribute].most)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && (int64_t)value + f->shared > attributes_of(f)[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN])
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && attribute <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH && !has_clusters(f))
		return CUDA_ERROR_INVALID_VALUE;
	*attribute_at(f, attribute) = value;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; // a hint
}

CUresult do_cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
	(void)config; // devices of today have one kind of banks
	CUfunction f;
	return function_of(function, &f);
}

CUresult do_cuFuncGetModule(CUmodule *module, CUfunction function) {
	if (function == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (module == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*module = f->module;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncGetName(const char **name, CUfunction function) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (name == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*name = f->name;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
	if (function == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (offset == NULL || index >= f->params)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = f->layout[index][0];
	if (size != NULL)
		*size = f->layout[index][1];
	return CUDA_SUCCESS;
}

CUresult do_cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (state == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncLoad(CUfunction function) {
	CUfunction f;
	return function_of(function, &f);
}

// --- occupancy --------------------------------------------------------------------------------

CUresult function_occupancy(CUfunction f, unsigned threads, size_t shared, uint32_t *blocks) {
	struct client *c;
	CUresult result = context_client(f->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_function_occupancy message = {f->object.number, threads, shared};
	struct wire_function_occupancy_reply reply;
	result = ASK_ONCE(c, FUNCTION_OCCUPANCY, function_occupancy, &message, &reply);
	if (result != CUDA_SUCCESS)
		return result;
	*blocks = reply.blocks;
	return CUDA_SUCCESS;
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (blocks == NULL || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	uint32_t n = 0;
	if (shared <= (size_t)f->max_dynamic)
		result = function_occupancy(f, (unsigned)threads, shared, &n);
	if (result == CUDA_SUCCESS)
		*blocks = (int)n;
	return result;
}

CUresult do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads, size_t shared, unsigned int flags) {
	return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE ? CUDA_ERROR_INVALID_VALUE : do_cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

// Among the block sizes with the most threads on a multiprocessor, chooses the largest.
CUresult do_cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction function, CUoccupancyB2DSize shared_for, size_t shared, int limit) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (grid == NULL || threads == NULL || limit < 0)
		return CUDA_ERROR_INVALID_VALUE;
	const int *a = attributes_of(f);
	int warp = a[CU_DEVICE_ATTRIBUTE_WARP_SIZE] > 0 ? a[CU_DEVICE_ATTRIBUTE_WARP_SIZE] : 32;
	int most = f->max_threads < a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] ? f->max_threads : a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
	if (limit > 0 && limit < most)
		most = limit;
	int64_t best = 0;
	*grid = *threads = 0;
	for (int size = most; size > 0; size = (size - 1) / warp * warp) {
		uint32_t blocks;
		result = function_occupancy(f, (unsigned)size, shared_for != NULL ? shared_for(size) : shared, &blocks);
		if (result != CUDA_SUCCESS)
			return result;
		if ((int64_t)blocks * size > best) {
			best = (int64_t)blocks * size;
			*threads = size;
			*grid = (int)blocks * a[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
		}
		if (best >= a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR])
			break;
	}
	return CUDA_SUCCESS;
}

CUresult do_cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *threads, CUfunction function, CUoccupancyB2DSize shared_for, size_t shared, int limit, unsigned int flags) {
	return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE ? CUDA_ERROR_INVALID_VALUE : do_cuOccupancyMaxPotentialBlockSize(grid, threads, function, shared_for, shared, limit);
}

CUresult do_cuOccupancyAvailableDynamicSMemPerBlock(size_t *shared, CUfunction function, int blocks, int threads) {
	CUfunction f;
	CUresult result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	if (shared == NULL || blocks <= 0 || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct client *c;
	result = context_client(f->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_function_shared message = {f->object.number, (uint32_t)blocks, (uint32_t)threads};
	struct wire_function_shared_reply reply;
	result = ASK_ONCE(c, FUNCTION_SHARED, function_shared, &message, &reply);
	if (result != CUDA_SUCCESS)
		return result;
	*shared = reply.shared < (uint64_t)f->max_dynamic ? reply.shared : (size_t)f->max_dynamic;
	return CUDA_SUCCESS;
}

// --- launches -------------------------------------------------------------------------------

enum { COOPERATIVE = 1, LARGE_CLUSTER = 2 }; // flags of the message

// Reads a launch configuration. Most attributes are hints: ignoring them costs time only. An event
// that should fire when the kernel begins, or when its blocks trigger it, is recorded behind the
// kernel, which is later but correct.
static CUresult configured(const CUlaunchConfig *config, struct launch *l, CUevent *event) {
	if (config == NULL || (config->numAttrs > 0 && config->attrs == NULL))
		return CUDA_ERROR_INVALID_VALUE;
	*l = (struct launch){{config->gridDimX, config->gridDimY, config->gridDimZ}, {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, false, {0}};
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *a = &config->attrs[i];
		switch (a->id) {
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
			l->cooperative = a->value.cooperative != 0;
			break;
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
			l->cluster[0] = a->value.clusterDim.x;
			l->cluster[1] = a->value.clusterDim.y;
			l->cluster[2] = a->value.clusterDim.z;
			if (l->cluster[0] == 0 || l->cluster[1] == 0 || l->cluster[2] == 0)
				return CUDA_ERROR_INVALID_VALUE;
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
			*event = a->value.programmaticEvent.event;
			break;
		case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
			return CUDA_ERROR_NOT_SUPPORTED;
		default:
			break;
		}
	}
	return CUDA_SUCCESS;
}

// The portable cluster size, which every device with clusters can run.
enum { PORTABLE_CLUSTER = 8 };

static CUresult check_cluster(CUfunction f, const struct launch *l) {
	for (int i = 0; i < 3 && f->cluster[0] > 0; i++) {
		if (l->cluster[0] == 0)
			continue;
		if (l->cluster[i] != (unsigned)f->cluster[i])
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	}
	if (l->cluster[0] == 0)
		return f->cluster_needed && f->cluster[0] == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	uint64_t blocks = (uint64_t)l->cluster[0] * l->cluster[1] * l->cluster[2];
	if (!has_clusters(f))
		return blocks > 1 ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
	for (int i = 0; i < 3; i++)
		if (l->grid[i] % l->cluster[i] != 0)
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return blocks > PORTABLE_CLUSTER && !f->large_cluster ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

// Asks the worker how many clusters the device holds, and how large they may be.
static CUresult ask_clusters(CUfunction f, const struct launch *l, struct wire_function_clusters_reply *reply) {
	struct client *c;
	CUresult result = context_client(f->object.context, &c);
	if (result != CUDA_SUCCESS)
		return result;
	struct wire_function_clusters message = {
		.function = f->object.number,
		.grid_x = l->grid[0],
		.grid_y = l->grid[1],
		.grid_z = l->grid[2],
		.block_x = l->block[0],
		.block_y = l->block[1],
		.block_z = l->block[2],
		.shared = l->shared,
		.flags = (l->cooperative ? COOPERATIVE : 0) | (f->large_cluster ? LARGE_CLUSTER : 0),
		.cluster_x = l->cluster[0],
		.cluster_y = l->cluster[1],
		.cluster_z = l->cluster[2],
	};
	return ASK_ONCE(c, FUNCTION_CLUSTERS, function_clusters, &message, reply);
}

static CUresult clusters_of(int *out, CUfunction function, const CUlaunchConfig *config, bool size) {
	CUfunction f;
	struct launch l;
	CUevent event = NULL;
	struct wire_function_clusters_reply reply;
	CUresult result = function_of(function, &f);
	if (result == CUDA_SUCCESS && out == NULL)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = configured(config, &l, &event);
	if (result == CUDA_SUCCESS && !has_clusters(f))
		result = CUDA_ERROR_INVALID_CLUSTER_SIZE;
	for (int i = 0; result == CUDA_SUCCESS && i < 3; i++)
		if (size)
			l.cluster[i] = 0; // which asks for the size
		else if (l.cluster[i] == 0)
			l.cluster[i] = f->cluster[i] > 0 ? (unsigned)f->cluster[i] : 1;
	if (result == CUDA_SUCCESS)
		result = ask_clusters(f, &l, &reply);
	if (result == CUDA_SUCCESS)
		*out = (int)(size ? reply.blocks : reply.clusters);
	return result;
}

CUresult do_cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config) { return clusters_of(clusters, function, config, false); }

CUresult do_cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config) { return clusters_of(size, function, config, true); }

static CUresult check_shape(CUfunction f, const struct launch *l) {
	const int *a = attributes_of(f);
	uint64_t threads = 1;
	for (int i = 0; i < 3; i++) {
		if (l->grid[i] == 0 || l->block[i] == 0)
			return CUDA_ERROR_INVALID_VALUE;
		if (l->grid[i] > (unsigned)a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i] || l->block[i] > (unsigned)a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i])
			return CUDA_ERROR_INVALID_VALUE;
		threads *= l->block[i];
	}
	if (threads > (unsigned)a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > (unsigned)f->max_threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (l->shared > (unsigned)f->max_dynamic)
		return l->cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE;
	if (!l->cooperative)
		return CUDA_SUCCESS;
	uint32_t blocks;
	CUresult result = function_occupancy(f, (unsigned)threads, l->shared, &blocks);
	if (result != CUDA_SUCCESS)
		return result;
	uint64_t wanted = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
	return wanted <= (uint64_t)blocks * (unsigned)a[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult launch_check(CUfunction f, const struct launch *l) {
	CUresult result = check_shape(f, l);
	return result == CUDA_SUCCESS ? check_cluster(f, l) : result;
}

#define MAX_PARAMS (WIRE_MAX_MESSAGE - WIRE_HEADER - 64)

// Collects the parameters as the kernel sees them: from a list of their addresses, or from a buffer
// that the program has laid out itself.
CUresult launch_gather(CUfunction f, void **params, void **extra, uint8_t *at) {
	if (f->param_size > MAX_PARAMS)
		return CUDA_ERROR_INVALID_VALUE;
	if (params != NULL && f->params == 0)
		return CUDA_SUCCESS;
	if (params != NULL && extra != NULL && *extra != CU_LAUNCH_PARAM_END)
		return CUDA_ERROR_INVALID_VALUE;
	if (params != NULL) {
		memset(at, 0, f->param_size);
		for (uint32_t i = 0; i < f->params; i++) {
			if (params[i] == NULL)
				return CUDA_ERROR_INVALID_VALUE;
			memcpy(at + f->layout[i][0], params[i], f->layout[i][1]);
		}
		return CUDA_SUCCESS;
	}
	if (extra == NULL)
		return f->params == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	const void *buffer = NULL;
	size_t given = 0;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
			given = *(size_t *)extra[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (buffer == NULL ? f->params > 0 || given > 0 : given == 0 && f->params > 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (given > f->param_size)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	memset(at, 0, f->param_size); // the program may give less
	if (given > 0)
		memcpy(at, buffer, given);
	return CUDA_SUCCESS;
}

struct wire_launch launch_message(uint32_t stream, CUfunction f, const struct launch *l, const uint8_t *bytes) {
	bool clusters = has_clusters(f);
	return (struct wire_launch){
		.function = f->object.number,
		.stream = stream,
		.grid_x = l->grid[0],
		.grid_y = l->grid[1],
		.grid_z = l->grid[2],
		.block_x = l->block[0],
		.block_y = l->block[1],
		.block_z = l->block[2],
		.shared = l->shared,
		.flags = (l->cooperative ? COOPERATIVE : 0) | (f->large_cluster ? LARGE_CLUSTER : 0),
		.cluster_x = clusters ? l->cluster[0] : 0,
		.cluster_y = clusters ? l->cluster[1] : 0,
		.cluster_z = clusters ? l->cluster[2] : 0,
		.stack = context_stack(f->object.context),
		.params = {bytes, f->param_size},
	};
}

// Sends a launch. mapped_scan comes before managed_begin: it takes the lock of mapped.c, which must
// not be held together with that of managed.c.
CUresult launch_post(const struct target *t, CUfunction f, const struct launch *l, const uint8_t *bytes) {
	struct wire_launch message = launch_message(t->stream, f, l, bytes);
	bool held = false;
	if (watching())
		watch_kernel(f->name);
	mapped_scan(t->client, bytes, f->param_size);
	CUresult result = managed_begin(t->client, t->stream, &held);
	if (result == CUDA_SUCCESS)
		result = POST(t->client, LAUNCH, launch, &message, NO_DATA);
	managed_end(t->client, held);
	return result;
}

static CUresult launch(CUfunction function, const struct launch *l, CUstream stream, void **params, void **extra) {
	CUfunction f;
	struct target t;
	CUresult result = target_work(stream, &t);
	if (result == CUDA_SUCCESS)
		result = client_status(t.client);
	if (result == CUDA_SUCCESS)
		result = function_of(function, &f);
	if (result != CUDA_SUCCESS)
		return result;
	print_pending(t.client);
	if (f->object.context != t.context)
		return capture_refused(&t, CUDA_ERROR_INVALID_HANDLE);
	result = launch_check(f, l);
	if (result != CUDA_SUCCESS)
		return capture_refused(&t, result);
	uint8_t usual[4096]; // threads may have little stack
	uint8_t *bytes = f->param_size <= sizeof usual ? usual : malloc(f->param_size);
	if (bytes == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = launch_gather(f, params, extra, bytes);
	if (result != CUDA_SUCCESS)
		result = capture_refused(&t, result);
	else if (t.captured)
		result = recorder->kernel(&t, f, l, bytes);
	else
		result = launch_post(&t, f, l, bytes);
	if (bytes != usual)
		free(bytes);
	return result;
}

CUresult do_cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **params, void **extra) {
	struct launch l = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, false, {0}};
	return launch(function, &l, stream, params, extra);
}

CUresult do_cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **params) {
	struct launch l = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, true, {0}};
	return launch(function, &l, stream, params, NULL);
}

CUresult do_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra, CUstream stream) {
	struct launch l;
	CUevent event = NULL;
	CUresult result = configured(config, &l, &event);
	if (result != CUDA_SUCCESS)
		return result;
	if (config->hStream != NULL)
		stream = config->hStream;
	result = launch(function, &l, stream, params, extra);
	if (result == CUDA_SUCCESS && event != NULL)
		result = do_cuEventRecord(event, stream);
	return result;
}
