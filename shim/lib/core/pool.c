// Pools: names for a device's memory, with accounts and settings of their own. Layer: work.
#include "core.h"

static struct CUmemPoolHandle_st pools[MAX_DEVICES]; // the default pool of each device

// Default pools begin with the settings that CUDA gives new pools.
__attribute__((constructor)) static void prepare_pools(void) {
	for (int i = 0; i < MAX_DEVICES; i++) {
		pools[i].device = i;
		for (int j = 0; j < 3; j++)
			pools[i].reuse[j] = 1;
	}
}

bool pool_is_default(CUmemoryPool pool) { return pool >= pools && pool < pools + device_count; }

bool is_pool(CUmemoryPool pool) { return pool_is_default(pool) || object_is(pool, KIND_POOL); }

// Pools keep no freed memory here. They only count what the driver's pools would hold, so that
// programs that read the attributes see the effect of what they set.
void pool_keep(CUmemoryPool pool, uint64_t used, uint64_t most) {
	uint64_t kept = atomic_load(&pool->kept), now;
	do {
		now = kept < most ? kept : most;
		if (now < used)
			now = used;
	} while (!atomic_compare_exchange_weak(&pool->kept, &kept, now));
}

void pool_charge(CUmemoryPool pool, uint64_t size) {
	uint64_t now = atomic_fetch_add(&pool->used, size) + size, most = atomic_load(&pool->most);
	pool_keep(pool, now, UINT64_MAX);
	while (now > most && !atomic_compare_exchange_weak(&pool->most, &most, now)) {
	}
}

bool pool_is_shared(CUmemoryPool pool) { return object_is(pool, KIND_POOL) && pool->properties.handleTypes != 0 && !pool->imported; }

bool pool_is_imported(CUmemoryPool pool, int *device) {
	if (!object_is(pool, KIND_POOL) || !pool->imported)
		return false;
	*device = pool->device;
	return true;
}

void pool_leave(const struct range *range) {
	if (range->pool != NULL && is_pool(range->pool))
		pool_keep(range->pool, atomic_fetch_sub(&range->pool->used, range->size) - range->size, range->pool->threshold);
}

CUmemoryPool pool_default(int device) { return &pools[device]; }

void pools_forget(void) {
	for (int i = 0; i < MAX_DEVICES; i++)
		atomic_store(&pools[i].used, 0), atomic_store(&pools[i].kept, 0);
}
