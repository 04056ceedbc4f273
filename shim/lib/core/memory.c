// Device memory: the library chooses addresses, the worker provides the memory behind them. Layer: work. Of a client's addresses, the first sixteenth is for small allocations, the rest of
// the first quarter for large ones, and what follows for addresses that programs reserve (virtual.c).
// An address is taken from the tree before the worker hears of it, and given back after the worker
// has heard of its end, so two allocations never share one.
#include "core.h"

#include <stdlib.h>

#define SMALL ((size_t)1 << 20)
#define SMALL_STEP 512
#define LARGE_STEP ((uint64_t)2 << 20)

struct memory {
	pthread_mutex_t lock; // protects all of it
	struct ranges allocations, variables, reservations;
	uint64_t allocated; // bytes
};

static size_t part;

static struct memory *memory_of(struct client *c) { return client_part(c, part); }

static void begin(void *memory) { pthread_mutex_init(&((struct memory *)memory)->lock, NULL); }

__attribute__((constructor)) static void take_a_part(void) { part = client_register(sizeof(struct memory), begin); }

static uint64_t charged(uint64_t size) { return (size + SMALL_STEP - 1) / SMALL_STEP * SMALL_STEP; }

static uint64_t reserved_from(struct client *c) { return c->granted.base + c->granted.size / 4; }

// How many bytes stay free around an allocation if the worker checks the accesses of kernels: the
// more the larger it is, since an index that is wrong is often wrong by a row or by all of it.
uint64_t memory_guard(const struct client *c, uint64_t size) {
	const uint64_t most = 64 << 10;
	uint64_t guard = __atomic_load_n(&c->shared->guard, __ATOMIC_RELAXED);
	if (guard == 0)
		return 0;
	guard = size > guard ? size : guard;
	return guard < most ? guard : most;
}

static uint64_t choose(struct client *c, size_t size, CUcontext context, bool pages) {
	uint64_t middle = c->granted.base + c->granted.size / 16, end = reserved_from(c), at = 0, guard = memory_guard(c, size);
	if (size < SMALL && !pages)
		at = ranges_take_apart(&memory_of(c)->allocations, c->granted.base, middle, size, guard, SMALL_STEP, context);
	// Large allocations do not adjoin, so that the end of one is not taken for the beginning of the
	// next (mapping). That may double the addresses that they take: so it ends when all of the memory
	// might no longer fit.
	uint64_t spare = end - middle > c->granted.memory ? end - middle - c->granted.memory : 0;
	if (at == 0 && memory_of(c)->allocated <= spare && size <= spare - memory_of(c)->allocated)
		at = ranges_take_apart(&memory_of(c)->allocations, middle, end, size, guard > 0 ? guard : 1, LARGE_STEP, context);
	if (at == 0)
		at = ranges_take(&memory_of(c)->allocations, middle, end, size, LARGE_STEP, context);
	return at;
}

uint64_t memory_choose(struct client *c, size_t size, CUcontext context) { return choose(c, size, context, true); }

void memory_charge(struct client *c, uint64_t size) { memory_of(c)->allocated += charged(size); }

void memory_forget(struct client *c, uint64_t at) {
	struct range *range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range == NULL || range->at != at)
		return;
	memory_of(c)->allocated -= charged(range->size);
	ranges_remove(&memory_of(c)->allocations, range);
}

static CUresult allocate_as(struct target *t, size_t size, bool pages, CUdeviceptr *address) {
	struct client *c = t->client;
	CUresult result = client_status(c);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&memory_of(c)->lock);
	uint64_t at = size <= c->granted.memory ? choose(c, size, t->context, pages) : 0, id = 0;
	if (at != 0) {
		id = ranges_find(&memory_of(c)->allocations, at, 1)->id;
		memory_of(c)->allocated += charged(size);
	}
	pthread_mutex_unlock(&memory_of(c)->lock);
	struct wire_mem_alloc message = {at, size}; // with address 0 the worker refuses, and says why in a notice
	result = CALL(c, MEM_ALLOC, mem_alloc, &message, NO_DATA, NULL);
	if (at == 0)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		*address = at;
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range != NULL && range->id == id) { // a reset may have freed it, and another thread taken the address
		memory_of(c)->allocated -= charged(size);
		ranges_remove(&memory_of(c)->allocations, range);
	}
	pthread_mutex_unlock(&memory_of(c)->lock);
	return result;
}

CUresult memory_allocate(struct target *t, size_t size, CUdeviceptr *address) { return allocate_as(t, size, false, address); }

CUresult memory_pages(struct target *t, size_t size, CUdeviceptr *address) { return allocate_as(t, size, true, address); }

// Copies within a client's memory, after all work that the client was given, and waits.
CUresult memory_copy(struct client *c, uint64_t to, uint64_t from, uint64_t size) {
	struct wire_copy_within message = {.dst = to, .src = from, .size = size};
	CUresult result = CALL(c, SYNCHRONISE, synchronise, &(struct wire_synchronise){0}, NO_DATA, NULL);
	if (result == CUDA_SUCCESS)
		result = POST(c, COPY_WITHIN, copy_within, &message, NO_DATA);
	return result == CUDA_SUCCESS ? CALL(c, SYNCHRONISE, synchronise, &(struct wire_synchronise){0}, NO_DATA, NULL) : result;
}

// Notes which allocation the program has mapped at an address, or NULL.
void memory_mark(struct client *c, uint64_t at, struct allocation *mapped) {
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range != NULL && range->at == at)
		range->mapped = mapped;
	pthread_mutex_unlock(&memory_of(c)->lock);
}

// Makes an allocation at a given address. An existing one with the same address and size counts as
// success, with *made false.
CUresult memory_claim(struct client *c, CUcontext context, uint64_t at, uint64_t size, bool *made) {
	*made = false;
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range != NULL && range->at == at && range->size == size) {
		pthread_mutex_unlock(&memory_of(c)->lock);
		return CUDA_SUCCESS;
	}
	*made = range == NULL && at >= c->granted.base && size <= c->granted.size && at - c->granted.base <= c->granted.size - size &&
		ranges_add(&memory_of(c)->allocations, (struct range){.at = at, .size = size, .context = context});
	if (*made)
		memory_of(c)->allocated += charged(size);
	pthread_mutex_unlock(&memory_of(c)->lock);
	if (!*made)
		return CUDA_ERROR_INVALID_VALUE;
	struct wire_mem_alloc message = {at, size};
	CUresult result = CALL(c, MEM_ALLOC, mem_alloc, &message, NO_DATA, NULL);
	if (result == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	*made = false;
	pthread_mutex_lock(&memory_of(c)->lock);
	range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range != NULL && range->at == at) {
		memory_of(c)->allocated -= charged(size);
		ranges_remove(&memory_of(c)->allocations, range);
	}
	pthread_mutex_unlock(&memory_of(c)->lock);
	return result;
}

// Lists the allocations of a client, in order. The caller frees the list.
bool memory_list(struct client *c, struct range **list, size_t *count) {
	size_t room = 0;
	*list = NULL;
	*count = 0;
	bool enough = true;
	pthread_mutex_lock(&memory_of(c)->lock);
	for (struct range *range = ranges_from(&memory_of(c)->allocations, 0); range != NULL && enough; range = ranges_from(&memory_of(c)->allocations, range->at + 1)) {
		if ((range->flags & RANGE_GAP) != 0)
			continue;
		if (*count == room) {
			room = room > 0 ? 2 * room : 64;
			struct range *more = realloc(*list, room * sizeof *more);
			enough = more != NULL;
			if (enough)
				*list = more;
		}
		if (enough)
			(*list)[(*count)++] = *range;
	}
	pthread_mutex_unlock(&memory_of(c)->lock);
	return enough;
}

// Sends MEM_FREE under the lock. As soon as that is released another thread may take the
// address, and its MEM_ALLOC must come behind in the ring.
CUresult memory_free(struct client *c, CUdeviceptr at) {
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	host_hold(c); // the worker frees the memory when no kernel runs
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range != NULL && range->at == at && (range->flags & RANGE_GAP) == 0) {
		struct wire_mem_free message = {at};
		result = POST(c, MEM_FREE, mem_free, &message, NO_DATA);
		pool_leave(range);
		memory_of(c)->allocated -= charged(range->size);
		ranges_remove(&memory_of(c)->allocations, range);
		shares_freed(c, &memory_of(c)->allocations, at);
	}
	pthread_mutex_unlock(&memory_of(c)->lock);
	host_go_on(c);
	return result;
}

void memory_release(struct client *c, CUcontext context, bool tell) {
	pthread_mutex_lock(&memory_of(c)->lock);
	for (struct range *range = ranges_from(&memory_of(c)->allocations, 0), *next; range != NULL; range = next) {
		next = ranges_from(&memory_of(c)->allocations, range->at + 1);
		if (range->context != context)
			continue;
		uint64_t at = range->at;
		if (tell) {
			struct wire_mem_free message = {at};
			POST(c, MEM_FREE, mem_free, &message, NO_DATA);
		}
		pool_leave(range);
		memory_of(c)->allocated -= charged(range->size);
		ranges_remove(&memory_of(c)->allocations, range);
		shares_freed(c, &memory_of(c)->allocations, at);
		next = ranges_from(&memory_of(c)->allocations, at + 1); // again: shares_freed may have removed gaps
	}
	for (struct range *range = ranges_from(&memory_of(c)->reservations, 0), *next; range != NULL; range = next) {
		next = ranges_from(&memory_of(c)->reservations, range->at + 1);
		if (range->context == context)
			ranges_remove(&memory_of(c)->reservations, range);
	}
	pthread_mutex_unlock(&memory_of(c)->lock);
}

uint64_t memory_used(struct client *c) {
	pthread_mutex_lock(&memory_of(c)->lock);
	uint64_t bytes = memory_of(c)->allocated;
	pthread_mutex_unlock(&memory_of(c)->lock);
	return bytes;
}

bool memory_range(struct client *c, uint64_t at, uint64_t size, struct range *out) {
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, size);
	if (range != NULL)
		*out = *range;
	pthread_mutex_unlock(&memory_of(c)->lock);
	return range != NULL;
}

// Memory that the program has mapped piece by piece without a gap counts as one range: returns the
// first piece if the pieces cover all of the bytes.
static struct range *find_mapped(struct client *c, uint64_t at, uint64_t size) {
	struct range *first = ranges_find(&memory_of(c)->allocations, at, 1), *range = first;
	while (range != NULL && range->mapped != NULL) {
		uint64_t there = range->at + range->size - at;
		if (there >= size)
			return first;
		at += there;
		size -= there;
		range = ranges_find(&memory_of(c)->allocations, at, 1);
	}
	return NULL;
}

// Copies out the allocation or variable that contains these bytes; false if there is none.
static bool owned_range(struct client *c, uint64_t at, uint64_t size, struct range *out) {
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, size);
	if (range != NULL && (range->flags & RANGE_GAP) != 0)
		range = NULL;
	if (range == NULL)
		range = ranges_find(&memory_of(c)->variables, at, size);
	if (range == NULL)
		range = find_mapped(c, at, size);
	if (range != NULL)
		*out = *range;
	pthread_mutex_unlock(&memory_of(c)->lock);
	return range != NULL;
}

struct client *memory_find(struct client *preferred, uint64_t at, uint64_t size, struct range *out) {
	if (preferred != NULL && owned_range(preferred, at, size, out))
		return preferred;
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL && c != preferred && owned_range(c, at, size, out))
			return c;
	}
	return NULL;
}

struct client *memory_owner(struct client *preferred, CUdeviceptr at, size_t size) {
	struct range range;
	return memory_find(preferred, at, size, &range);
}

void memory_in_pool(struct client *c, CUdeviceptr at, CUmemoryPool pool, uint64_t bytes) {
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range != NULL && range->at == at) {
		range->pool = pool;
		pool_charge(pool, bytes);
	}
	pthread_mutex_unlock(&memory_of(c)->lock);
}

void memory_forget_pool(struct client *c, CUmemoryPool pool) {
	pthread_mutex_lock(&memory_of(c)->lock);
	for (struct range *range = ranges_from(&memory_of(c)->allocations, 0); range != NULL; range = ranges_from(&memory_of(c)->allocations, range->at + 1))
		if (range->pool == pool)
			range->pool = NULL;
	pthread_mutex_unlock(&memory_of(c)->lock);
}

void memory_sync(struct client *c, CUdeviceptr at, bool synchronous) {
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_find(&memory_of(c)->allocations, at, 1);
	if (range == NULL)
		range = ranges_find(&memory_of(c)->variables, at, 1);
	if (range != NULL && synchronous)
		range->flags |= RANGE_SYNC;
	else if (range != NULL)
		range->flags &= ~RANGE_SYNC;
	pthread_mutex_unlock(&memory_of(c)->lock);
}

struct ranges *memory_hold(struct client *c) {
	pthread_mutex_lock(&memory_of(c)->lock);
	return &memory_of(c)->allocations;
}

void memory_let_go(struct client *c) { pthread_mutex_unlock(&memory_of(c)->lock); }

// --- variables of modules ------------------------------------------------------------------

bool memory_add_variable(struct client *c, CUcontext context, uint64_t at, uint64_t size) {
	pthread_mutex_lock(&memory_of(c)->lock);
	bool added = ranges_add(&memory_of(c)->variables, (struct range){.at = at, .size = size, .context = context});
	pthread_mutex_unlock(&memory_of(c)->lock);
	return added;
}

void memory_forget_variable(struct client *c, uint64_t at) {
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *range = ranges_from(&memory_of(c)->variables, at);
	if (range != NULL && range->at == at)
		ranges_remove(&memory_of(c)->variables, range);
	pthread_mutex_unlock(&memory_of(c)->lock);
}

// --- addresses that programs reserve ---------------------------------------------------------

uint64_t memory_reserve(struct client *c, CUcontext context, uint64_t wish, uint64_t size, uint64_t alignment, uint64_t step) {
	uint64_t low = reserved_from(c), high = c->granted.base + c->granted.size;
	struct ranges *taken = &memory_of(c)->reservations;
	pthread_mutex_lock(&memory_of(c)->lock);
	bool granted = wish >= low && wish % step == 0 && wish < high && size <= high - wish &&
		(alignment == 0 || wish % alignment == 0) && ranges_add(taken, (struct range){.at = wish, .size = size, .context = context});
	uint64_t at = granted ? wish : ranges_take(taken, low, high, size, alignment > step ? alignment : step, context);
	pthread_mutex_unlock(&memory_of(c)->lock);
	return at;
}

bool memory_is_reserved(struct client *c, uint64_t at, uint64_t size, bool whole) {
	pthread_mutex_lock(&memory_of(c)->lock);
	struct range *r = ranges_find(&memory_of(c)->reservations, at, size);
	bool found = r != NULL && (!whole || (r->at == at && r->size == size));
	pthread_mutex_unlock(&memory_of(c)->lock);
	return found;
}

void memory_unreserve(struct client *c, uint64_t at, uint64_t size) {
	struct ranges *taken = &memory_of(c)->reservations;
	pthread_mutex_lock(&memory_of(c)->lock);
	ranges_remove(taken, ranges_find(taken, at, size));
	pthread_mutex_unlock(&memory_of(c)->lock);
}
