// Pinned host memory: the part of the data arena behind staging and bounce buffers, which the worker
// reaches, too. Layer: work. Kernels reach it once mapped.c has told the worker. Registered
// memory is only noted here; mapped.c replaces its pages when a kernel may need them.
#include "core.h"

static pthread_mutex_t registered_lock = PTHREAD_MUTEX_INITIALIZER; // protects registered
static struct ranges registered;

static _Atomic int registered_count; // for registered_any, without the lock

struct pinned {
	pthread_mutex_t lock;
	struct ranges ranges;
	atomic_flag told;
};

static size_t part;

static struct pinned *pinned_of(struct client *c) { return client_part(c, part); }

static void begin(void *pinned) { pthread_mutex_init(&((struct pinned *)pinned)->lock, NULL); }

__attribute__((constructor)) static void take_a_part(void) { part = client_register(sizeof(struct pinned), begin); }

void pinned_forget_all(void) {
	pthread_mutex_init(&registered_lock, NULL);
	registered.root = NULL;
	atomic_store(&registered_count, 0);
}

bool registered_any(void) { return atomic_load_explicit(&registered_count, memory_order_relaxed) > 0; }

bool pinned_offset(struct client *c, const void *host, size_t size, uint64_t *offset) {
	uint64_t first = c->arena.staging + c->arena.bounce, at = (uint64_t)(uintptr_t)host - (uint64_t)(uintptr_t)c->arena.at;
	if (at < first || at >= c->arena.bytes || size > c->arena.bytes - at)
		return false;
	*offset = at;
	return true;
}

// The client whose pinned memory contains this address.
struct client *pinned_owner(const void *host, struct range *out) {
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c == NULL)
			continue;
		pthread_mutex_lock(&pinned_of(c)->lock);
		struct range *range = ranges_find(&pinned_of(c)->ranges, (uint64_t)(uintptr_t)host, 1);
		if (range != NULL)
			*out = *range;
		pthread_mutex_unlock(&pinned_of(c)->lock);
		if (range != NULL)
			return c;
	}
	return NULL;
}

bool pinned_range(const void *host, struct range *out, struct client **owner) {
	*owner = pinned_owner(host, out);
	if (*owner != NULL)
		return true;
	pthread_mutex_lock(&registered_lock);
	struct range *range = ranges_find(&registered, (uint64_t)(uintptr_t)host, 1);
	if (range != NULL)
		*out = *range;
	pthread_mutex_unlock(&registered_lock);
	if (range != NULL && object_is(out->context, KIND_CONTEXT))
		*owner = atomic_load(&out->context->client);
	return range != NULL;
}

// Tells the worker that kernels no longer reach a range of pinned memory. The caller holds the
// lock.
static void end_mapping(struct client *c, struct range *range) {
	if ((range->flags & RANGE_MAPPED) == 0)
		return;
	struct wire_host_unmap message = {range->at};
	POST(c, HOST_UNMAP, host_unmap, &message, NO_DATA);
	range->flags &= ~RANGE_MAPPED;
}

bool pinned_any(struct client *c, CUcontext context) {
	bool any = false;
	pthread_mutex_lock(&pinned_of(c)->lock);
	for (struct range *range = ranges_from(&pinned_of(c)->ranges, 0); range != NULL && !any; range = ranges_from(&pinned_of(c)->ranges, range->at + 1))
		any = range->context == context;
	pthread_mutex_unlock(&pinned_of(c)->lock);
	return any;
}

void pinned_release(struct client *c, CUcontext context, bool tell) {
	pthread_mutex_lock(&pinned_of(c)->lock);
	for (struct range *range = ranges_from(&pinned_of(c)->ranges, 0), *next; range != NULL; range = next) {
		next = ranges_from(&pinned_of(c)->ranges, range->at + 1);
		if (range->context != context)
			continue;
		if (tell)
			end_mapping(c, range);
		ranges_remove(&pinned_of(c)->ranges, range);
	}
	pthread_mutex_unlock(&pinned_of(c)->lock);
}

void registered_release(CUcontext context) {
	pthread_mutex_lock(&registered_lock);
	for (struct range *range = ranges_from(&registered, 0), *next; range != NULL; range = next) {
		next = ranges_from(&registered, range->at + 1);
		if (range->context == context) {
			ranges_remove(&registered, range);
			atomic_fetch_sub(&registered_count, 1);
		}
	}
	pthread_mutex_unlock(&registered_lock);
}

CUdeviceptr pinned_allocate(struct client *c, CUcontext context, size_t size, unsigned flags) {
	pthread_mutex_lock(&pinned_of(c)->lock);
	uint64_t at = ranges_take(&pinned_of(c)->ranges, pinned_begin(c), pinned_begin(c) + pinned_bytes(c), size, PINNED_PAGE, context);
	if (at != 0)
		ranges_find(&pinned_of(c)->ranges, at, size)->flags = flags;
	pthread_mutex_unlock(&pinned_of(c)->lock);
	return at;
}

void pinned_free(struct client *c, const struct range *range) {
	pthread_mutex_lock(&pinned_of(c)->lock);
	struct range *still = ranges_find(&pinned_of(c)->ranges, range->at, 1);
	if (still != NULL && still->id == range->id) {
		end_mapping(c, still);
		ranges_remove(&pinned_of(c)->ranges, still);
	}
	pthread_mutex_unlock(&pinned_of(c)->lock);
}

bool registered_add(struct range range) {
	pthread_mutex_lock(&registered_lock);
	bool added = ranges_add(&registered, range);
	atomic_fetch_add(&registered_count, added);
	pthread_mutex_unlock(&registered_lock);
	return added;
}

CUresult registered_end(uint64_t at) {
	pthread_mutex_lock(&registered_lock);
	struct range *range = ranges_find(&registered, at, 1);
	bool found = range != NULL && range->at == at;
	if (found) {
		ranges_remove(&registered, range);
		atomic_fetch_sub(&registered_count, 1);
	}
	bool inside = range != NULL && !found;
	pthread_mutex_unlock(&registered_lock);
	return found ? CUDA_SUCCESS : inside ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

void pinned_give(struct client *c, CUdeviceptr at) {
	pthread_mutex_lock(&pinned_of(c)->lock);
	struct range *range = ranges_find(&pinned_of(c)->ranges, at, 1);
	if (range != NULL && range->at == at)
		ranges_remove(&pinned_of(c)->ranges, range);
	pthread_mutex_unlock(&pinned_of(c)->lock);
}

bool pinned_unmapped(struct client *c, const struct range *range) {
	pthread_mutex_lock(&pinned_of(c)->lock);
	const struct range *now = ranges_find(&pinned_of(c)->ranges, range->at, 1);
	bool unmapped = now != NULL && now->id == range->id && (now->flags & RANGE_MAPPED) == 0;
	pthread_mutex_unlock(&pinned_of(c)->lock);
	return unmapped;
}

void pinned_mapped(struct client *c, const struct range *range) {
	pthread_mutex_lock(&pinned_of(c)->lock);
	struct range *now = ranges_find(&pinned_of(c)->ranges, range->at, 1);
	if (now != NULL && now->id == range->id)
		now->flags |= RANGE_MAPPED;
	pthread_mutex_unlock(&pinned_of(c)->lock);
}

bool pinned_told(struct client *c) { return atomic_flag_test_and_set(&pinned_of(c)->told); }
