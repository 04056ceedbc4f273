// Managed memory: one address on the host and on the device, which never work on it at the same
// time. Layer: work.
//
// Its storage is ordinary device memory, so it is swapped, moved, rebuilt and saved like any
// other. At the same addresses the program has host pages, which are protected while the device
// may change them. A touch raises SIGSEGV; the handler here waits for the device and copies a
// chunk to the host. Before work of the device begins, managed_begin or managed_touch copies to
// the device what the host has written. Chunks that the host has only read are not copied back.
//
// The pages belong to a memory file that this library has mapped a second time. It fills and reads
// a chunk through that mapping while the program's pages are still protected, so the program
// never sees a chunk half copied.
#include "core.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((uint64_t)4096)
#define CHUNK ((uint64_t)2 << 20)
#define SLAB CHUNK               // small allocations share one
#define SMALL ((uint64_t)256 << 10)
#define SMALL_STEP 512

// Where the current contents of a chunk are; NOBODY: it was never used. The order matters: from
// BOTH on the host has it. Its pages allow reading in BOTH, and writing in HOST.
enum { NOBODY, DEVICE, BOTH, HOST };

struct piece { // a variable in a block of variables: only such bytes are device memory
	uint64_t at, size;
};

// Pages over one device allocation, or over variables of modules.
struct block {
	struct block *next, *previous; // in the list of blocks with chunks on the host (active)
	struct client *client;
	CUcontext context;
	uint64_t at, size;
	uint8_t *pages; // this library's second mapping of the pages at `at`
	unsigned attached; // CU_MEM_ATTACH_*
	uint32_t stream; // with CU_MEM_ATTACH_SINGLE: the stream whose kernels use it
	bool slab, variables;
	uint64_t born; // launches of its client when the block was made
	struct ranges parts; // of a slab
	size_t part_count;
	struct piece *pieces; // of variables
	size_t piece_count;
	size_t chunks, here; // here: how many of the chunks the host has
	uint8_t state[];
};

// An allocation of the program, or a variable.
struct managed {
	struct block *block;
	uint64_t at, size, id;
	CUcontext context;
	struct managed_hints hints;
};

// The signal handler takes this lock, so a thread that holds it must not touch managed memory: the
// handler would wait for its own thread. It protects everything below, and what is here of clients.
// Its place in the lock order is in README.md: before the locks of clients. (copy_in takes locks of the client
// under it while functions of the program are pending.)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ranges blocks, allocations; // their flags are indices of the tables below
static struct block **block_table;
static struct managed **allocation_table;
static uint32_t block_room, allocation_room, block_from, allocation_from;
static struct block active; // head of the list of blocks with chunks on the host
static _Atomic int any;     // how many blocks there are

static bool told_lost;

struct use { // of managed memory by a client; under the lock
	uint32_t stream;   // number of the stream for its copies; 0: not made yet
	uint64_t launched; // launches that could use managed memory
	uint64_t work;     // these, and copies that wrote to it
	bool busy;         // some of work may not have ended
};

static size_t part;

static struct use *use_of(struct client *c) { return client_part(c, part); }

__attribute__((constructor)) static void take_a_part(void) { part = client_register(sizeof(struct use), NULL); }

static void list_remove(struct block *b) {
	if (b->next == NULL)
		return;
	b->next->previous = b->previous;
	b->previous->next = b->next;
	b->next = b->previous = NULL;
}

static void list_add(struct block *b) {
	if (b->next != NULL)
		return;
	if (active.next == NULL)
		active.next = active.previous = &active;
	b->next = &active;
	b->previous = active.previous;
	b->previous->next = b;
	active.previous = b;
}

// A free index of a table, which grows if it is full; UINT32_MAX if there is no memory. All
// indices below *from are taken.
static uint32_t table_index(void ***table, uint32_t *room, uint32_t *from) {
	for (; *from < *room; ++*from)
		if ((*table)[*from] == NULL)
			return *from;
	uint32_t more = *room > 0 ? 2 * *room : 64;
	void **larger = realloc(*table, more * sizeof *larger);
	if (larger == NULL)
		return UINT32_MAX;
	memset(larger + *room, 0, (more - *room) * sizeof *larger);
	uint32_t first = *room;
	*table = larger;
	*room = more;
	return first;
}

static struct block *block_at(uint64_t at) {
	struct range *range = ranges_find(&blocks, at, 1);
	return range != NULL ? block_table[range->flags] : NULL;
}

static struct managed *allocation_at(uint64_t at) {
	struct range *range = ranges_find(&allocations, at, 1);
	return range != NULL ? allocation_table[range->flags] : NULL;
}

static uint64_t chunk_size(const struct block *b, size_t i) { return b->size - i * CHUNK < CHUNK ? b->size - i * CHUNK : CHUNK; }

static void protect(struct block *b, size_t i, int how) { mprotect((void *)(b->at + i * CHUNK), chunk_size(b, i), how); }

static void set_state(struct block *b, size_t i, uint8_t state) {
	bool was = b->state[i] >= BOTH, is = state >= BOTH;
	b->state[i] = state;
	b->here += (size_t)is - (size_t)was;
	if (b->here > 0)
		list_add(b);
	else
		list_remove(b);
}

// --- copies -----------------------------------------------------------------------------

// The stream for copies of chunks. It waits for no other stream: the caller has made sure that no
// work of the device uses the chunk. The caller may be a host function, for which a stream waits.
static CUresult own_stream(struct client *c, uint32_t *stream) {
	if (use_of(c)->stream == 0) {
		uint32_t number = client_number(c);
		struct wire_stream_create message = {number, CU_STREAM_NON_BLOCKING, ASIDE_PRIORITY};
		CUresult result = POST(c, STREAM_CREATE, stream_create, &message, NO_DATA);
		if (result != CUDA_SUCCESS)
			return result;
		use_of(c)->stream = number;
	}
	*stream = use_of(c)->stream;
	return CUDA_SUCCESS;
}

// Copies the part of a piece that lies in a chunk.
static CUresult copy_part(struct block *b, struct piece p, uint64_t from, uint64_t to, uint32_t stream, bool in) {
	uint64_t begin = p.at > from ? p.at : from, end = p.at + p.size < to ? p.at + p.size : to;
	if (begin >= end)
		return CUDA_SUCCESS;
	uint8_t *host = b->pages + (begin - b->at);
	return in ? copy_in(b->client, stream, begin, host, end - begin, false) : copy_out_quietly(b->client, stream, host, begin, end - begin);
}

static CUresult copy_chunk(struct block *b, size_t i, bool in) {
	uint32_t stream;
	CUresult result = own_stream(b->client, &stream);
	uint64_t from = b->at + i * CHUNK, to = from + chunk_size(b, i);
	if (!b->variables)
		return result == CUDA_SUCCESS ? copy_part(b, (struct piece){b->at, b->size}, from, to, stream, in) : result;
	for (size_t k = 0; k < b->piece_count && result == CUDA_SUCCESS; k++)
		result = copy_part(b, b->pieces[k], from, to, stream, in);
	return result;
}

// Waits until the copies to the device have ended, since kernels of any stream may use the data.
static CUresult let_copies_end(struct client *c) {
	struct wire_stream_synchronise message = {use_of(c)->stream};
	return CALL(c, STREAM_SYNCHRONISE, stream_synchronise, &message, NO_DATA, NULL);
}

// Gives a chunk to the device. If the device only reads (written is false), the host keeps
// reading access. The pages are protected before the copy, so that the host cannot write to
// them while they are copied.
static CUresult to_device(struct block *b, size_t i, bool written, bool *copied) {
	uint8_t state = b->state[i];
	if (state <= DEVICE) {
		if (written)
			b->state[i] = DEVICE;
		return CUDA_SUCCESS;
	}
	if (state == BOTH && !written)
		return CUDA_SUCCESS;
	protect(b, i, written ? PROT_NONE : PROT_READ);
	if (state == HOST) {
		CUresult result = copy_chunk(b, i, true);
		if (result != CUDA_SUCCESS)
			return result;
		*copied = true;
	}
	set_state(b, i, written ? DEVICE : BOTH);
	return CUDA_SUCCESS;
}

static CUresult give_block(struct block *b, bool written, bool *copied) {
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < b->chunks && result == CUDA_SUCCESS; i++)
		result = to_device(b, i, written, copied);
	return result;
}

static bool may_use(const struct block *b, uint32_t stream) {
	return b->attached == CU_MEM_ATTACH_GLOBAL || (b->attached == CU_MEM_ATTACH_SINGLE && b->stream == stream);
}

// Gives the device all chunks that kernels of a stream may use. Returns with the lock held if
// there is managed memory at all; see README.md.
CUresult managed_begin(struct client *c, uint32_t stream, bool *held) {
	*held = atomic_load(&any) > 0;
	if (!*held)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	bool copied = false;
	CUresult result = CUDA_SUCCESS;
	faults_handle();
	for (struct block *b = active.next, *next; b != NULL && b != &active && result == CUDA_SUCCESS; b = next) {
		next = b->next;
		if (b->client == c && may_use(b, stream))
			result = give_block(b, true, &copied);
	}
	if (result == CUDA_SUCCESS && copied)
		result = let_copies_end(c);
	return result;
}

void managed_end(struct client *c, bool held) {
	if (!held)
		return;
	use_of(c)->launched++;
	use_of(c)->work++;
	use_of(c)->busy = true;
	pthread_mutex_unlock(&lock);
}

// Gives the device the chunks that the caller is about to read or write there by a copy or fill.
CUresult managed_touch(CUdeviceptr at, size_t size, bool written) {
	if (atomic_load(&any) == 0 || size == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	struct block *b = block_at(at);
	bool copied = false;
	CUresult result = CUDA_SUCCESS;
	if (b != NULL) {
		faults_handle();
		uint64_t end = at + size < b->at + b->size ? at + size : b->at + b->size;
		for (size_t i = (at - b->at) / CHUNK; i < b->chunks && b->at + i * CHUNK < end && result == CUDA_SUCCESS; i++)
			result = to_device(b, i, written, &copied);
		if (result == CUDA_SUCCESS && copied)
			result = let_copies_end(b->client);
		use_of(b->client)->busy = use_of(b->client)->busy || written;
		use_of(b->client)->work += written;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

// Gives the device all chunks of a client, for callers that read its device memory as a whole and
// must see what the host has written.
CUresult managed_give_all(struct client *c, bool written) {
	if (atomic_load(&any) == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	bool copied = false;
	CUresult result = CUDA_SUCCESS;
	for (struct block *b = active.next, *next; b != NULL && b != &active && result == CUDA_SUCCESS; b = next) {
		next = b->next;
		if (b->client == c)
			result = give_block(b, written, &copied);
	}
	if (result == CUDA_SUCCESS && copied)
		result = let_copies_end(c);
	pthread_mutex_unlock(&lock);
	return result;
}

static bool managed_any(void) { return atomic_load(&any) > 0; }

bool managed_has(CUdeviceptr at) {
	if (atomic_load(&any) == 0)
		return false;
	pthread_mutex_lock(&lock);
	bool has = block_at(at) != NULL;
	pthread_mutex_unlock(&lock);
	return has;
}

// --- faults -----------------------------------------------------------------------------

// Waits until the kernels that may change a block have ended. The caller must not hold the lock: the
// kernels may wait for a host function, which may touch managed memory and enter the handler itself.
static CUresult wait_for_device(struct client *c, unsigned attached, uint32_t stream) {
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	if (attached != CU_MEM_ATTACH_GLOBAL) {
		struct wire_stream_synchronise message = {stream};
		result = CALL(c, STREAM_SYNCHRONISE, stream_synchronise, &message, NO_DATA, NULL);
	}
	if (result == CUDA_ERROR_INVALID_HANDLE) { // of all, or the stream is gone
		struct wire_synchronise message = {0};
		result = CALL(c, SYNCHRONISE, synchronise, &message, NO_DATA, NULL);
	}
	if (result != CUDA_SUCCESS && client_status(c) == CUDA_SUCCESS) {
		client_defer(c, result); // a handler cannot return it to the program
		return CUDA_SUCCESS;
	}
	return result;
}

// Whether kernels may have used a block since it was made.
static bool was_used(const struct block *b) { return use_of(b->client)->launched != b->born && b->attached != CU_MEM_ATTACH_HOST; }

static bool is_busy(const struct block *b) {
	return b->attached == CU_MEM_ATTACH_GLOBAL ? use_of(b->client)->busy : b->stream != 0;
}

// Says once that contents were lost with the device; every call returns an error from then on. The
// program goes on with what the host pages last had.
static void tell_lost(void) {
	if (!told_lost)
		complain("muster: managed memory that was on the device is lost: the program reads what it had before");
	told_lost = true;
}

// Makes a chunk usable for the host: copies it if the device has it, then opens the pages. The
// caller holds the lock, and has waited for the device.
static void bring(struct block *b, size_t i, bool written) {
	if (b->state[i] == DEVICE || (b->state[i] == NOBODY && was_used(b))) {
		if (copy_chunk(b, i, false) != CUDA_SUCCESS) {
			tell_lost();
			written = true;
		}
	} else if (b->state[i] == NOBODY) {
		written = true; // the pages are zero, and the device's memory need not be
	}
	if (b->state[i] == HOST)
		written = true;
	protect(b, i, written ? PROT_READ | PROT_WRITE : PROT_READ);
	set_state(b, i, written ? HOST : BOTH);
}

// Serves a fault. True if the address is managed memory: then the access can be repeated. The lock is
// given up while the thread waits for the device, so everything is looked up again afterwards:
// the block may have been freed, and another thread may have launched more kernels
// (work has changed), in which case it waits again.
static bool serve(uint64_t at, bool written) {
	bool waited = host_calling(); // work before a host function in its stream has ended already
	pthread_mutex_lock(&lock);
	for (;;) {
		struct block *b = block_at(at);
		if (b == NULL) {
			pthread_mutex_unlock(&lock);
			return false;
		}
		size_t i = (at - b->at) / CHUNK;
		bool there = b->state[i] >= BOTH || (b->state[i] == NOBODY && !was_used(b));
		if (there || waited || !is_busy(b)) {
			bring(b, i, written);
			pthread_mutex_unlock(&lock);
			return true;
		}
		struct client *c = b->client;
		unsigned attached = b->attached;
		uint32_t stream = b->stream;
		uint64_t work = use_of(c)->work;
		pthread_mutex_unlock(&lock);
		CUresult result = wait_for_device(c, attached, stream);
		pthread_mutex_lock(&lock);
		waited = true;
		if (result == CUDA_SUCCESS && attached == CU_MEM_ATTACH_GLOBAL && use_of(c)->work == work)
			use_of(c)->busy = false;
		else if (result == CUDA_SUCCESS && attached == CU_MEM_ATTACH_GLOBAL)
			waited = false; // another thread has launched more
	}
}

// Called at the end of calls that wait: the program may touch its managed memory next, so the handler
// must be installed.
static void managed_watch(void) {
	if (atomic_load(&any) == 0)
		return;
	pthread_mutex_lock(&lock);
	faults_handle();
	pthread_mutex_unlock(&lock);
}

// --- allocations ---------------------------------------------------------------------------

// Maps a memory file twice: where the program sees it, and where this library uses it.
static uint8_t *map_pages(uint64_t at, uint64_t size, bool reserved) {
	int fd = memfd_create("muster-managed", MFD_CLOEXEC);
	if (fd < 0)
		return NULL;
	void *pages = MAP_FAILED, *seen = MAP_FAILED;
	if (ftruncate(fd, (off_t)size) == 0)
		pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (pages != MAP_FAILED)
		seen = mmap((void *)at, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE | (reserved ? MAP_FIXED : MAP_FIXED_NOREPLACE), fd, 0);
	close(fd);
	if (seen != MAP_FAILED && (uint64_t)(uintptr_t)seen != at) { // an old kernel ignores MAP_FIXED_NOREPLACE
		munmap(seen, size);
		seen = MAP_FAILED;
	}
	if (seen == MAP_FAILED) {
		if (pages != MAP_FAILED)
			munmap(pages, size);
		return NULL;
	}
	madvise(seen, size, MADV_DONTFORK); // a child would share it with its parent
	madvise(pages, size, MADV_DONTFORK);
	return pages;
}

// Replaces pages by a reservation without access, so that no other host memory gets these addresses.
static void keep_out(uint64_t at, uint64_t size) { mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0); }

static struct block *block_new(struct client *c, CUcontext context, uint64_t at, uint64_t size, bool variables) {
	size_t chunks = (size + CHUNK - 1) / CHUNK;
	struct block *b = calloc(1, sizeof *b + chunks);
	uint32_t index = table_index((void ***)&block_table, &block_room, &block_from);
	if (b == NULL || index == UINT32_MAX) {
		free(b);
		return NULL;
	}
	*b = (struct block){.client = c, .context = context, .at = at, .size = size, .attached = CU_MEM_ATTACH_GLOBAL, .chunks = chunks, .variables = variables, .born = use_of(c)->launched};
	b->pages = map_pages(at, size, !variables);
	if (b->pages == NULL || !ranges_add(&blocks, (struct range){.at = at, .size = (size + PAGE - 1) / PAGE * PAGE, .context = context, .flags = index})) {
		if (b->pages != NULL) {
			munmap(b->pages, size);
			keep_out(at, size);
		}
		free(b);
		return NULL;
	}
	block_table[index] = b;
	atomic_fetch_add(&any, 1);
	faults_handle();
	return b;
}

static void block_end(struct block *b) {
	struct range *range = ranges_find(&blocks, b->at, 1);
	list_remove(b);
	block_table[range->flags] = NULL;
	block_from = range->flags < block_from ? range->flags : block_from;
	ranges_remove(&blocks, range);
	keep_out(b->at, b->size);
	munmap(b->pages, b->size);
	atomic_fetch_sub(&any, 1);
	free(b->pieces);
	free(b);
}

static struct managed *allocation_new(struct block *b, CUcontext context, uint64_t at, uint64_t size) {
	struct managed *m = calloc(1, sizeof *m);
	uint32_t index = table_index((void ***)&allocation_table, &allocation_room, &allocation_from);
	if (m == NULL || index == UINT32_MAX || !ranges_add(&allocations, (struct range){.at = at, .size = size, .context = context, .flags = index})) {
		free(m);
		return NULL;
	}
	*m = (struct managed){.block = b, .at = at, .size = size, .context = context, .id = ranges_find(&allocations, at, 1)->id};
	allocation_table[index] = m;
	return m;
}

static void allocation_end(struct managed *m) {
	struct range *range = ranges_find(&allocations, m->at, 1);
	allocation_table[range->flags] = NULL;
	allocation_from = range->flags < allocation_from ? range->flags : allocation_from;
	ranges_remove(&allocations, range);
	free(m);
}

// Finds a slab with room for a small allocation, and takes its place.
static struct block *slab_with_room(struct client *c, CUcontext context, uint64_t size, uint64_t *at) {
	for (uint32_t i = 0; i < block_room; i++) {
		struct block *b = block_table[i];
		if (b == NULL || !b->slab || b->client != c || b->context != context)
			continue;
		*at = ranges_take(&b->parts, b->at, b->at + b->size, size, SMALL_STEP, context);
		if (*at != 0)
			return b;
	}
	return NULL;
}

// Makes a block. On success the lock is held. The device memory is allocated without it, since that
// may take long and other threads may fault on their managed memory meanwhile.
static CUresult new_block(struct target *t, uint64_t size, struct block **out) {
	CUdeviceptr at;
	CUresult result = memory_pages(t, size, &at);
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	*out = block_new(t->client, t->context, at, size, false);
	if (*out != NULL)
		return CUDA_SUCCESS; // and the lock is held
	pthread_mutex_unlock(&lock);
	memory_free(t->client, at);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult managed_allocate(struct target *t, uint64_t bytes, unsigned flags, CUdeviceptr *address) {
	// Where accesses are checked, each has a block of its own, of its own size: the worker knows blocks alone.
	bool checked = memory_guard(t->client, bytes) > 0, small = bytes < SMALL && flags == CU_MEM_ATTACH_GLOBAL && !checked;
	struct block *b = NULL;
	uint64_t at = 0;
	pthread_mutex_lock(&lock);
	if (small)
		b = slab_with_room(t->client, t->context, bytes, &at);
	if (b == NULL) {
		pthread_mutex_unlock(&lock);
		CUresult result = new_block(t, small ? SLAB : checked ? bytes : (bytes + PAGE - 1) / PAGE * PAGE, &b);
		if (result != CUDA_SUCCESS)
			return result;
		b->slab = small;
		b->attached = flags;
		at = small ? ranges_take(&b->parts, b->at, b->at + b->size, bytes, SMALL_STEP, t->context) : b->at;
	}
	bool made = at != 0 && allocation_new(b, t->context, at, bytes) != NULL;
	if (made)
		b->part_count++;
	pthread_mutex_unlock(&lock);
	*address = at;
	return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Frees an allocation; false if the address is not managed. If *below is not 0 the caller frees that
// device memory, without this file's lock.
bool managed_free(CUdeviceptr at, struct client **c, CUdeviceptr *below, CUresult *result) {
	if (atomic_load(&any) == 0)
		return false;
	*below = 0;
	*result = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	struct block *b = block_at(at);
	struct managed *m = allocation_at(at);
	bool found = b != NULL && !b->variables;
	if (found && (m == NULL || m->at != at)) {
		*result = CUDA_ERROR_INVALID_VALUE;
	} else if (found) {
		*c = b->client;
		if (b->slab)
			ranges_remove(&b->parts, ranges_find(&b->parts, at, 1));
		allocation_end(m);
		if (--b->part_count == 0) {
			*below = b->at;
			block_end(b);
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

// Releases the pages of a context that ends; memory_release frees its device memory. If it is the
// last context of its client, the reset has destroyed its stream, too.
void managed_release(struct client *c, CUcontext context, bool last) {
	if (last)
		use_of(c)->stream = 0;
	if (atomic_load(&any) == 0)
		return;
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < allocation_room; i++)
		if (allocation_table[i] != NULL && allocation_table[i]->block->client == c && allocation_table[i]->context == context)
			allocation_end(allocation_table[i]);
	for (uint32_t i = 0; i < block_room; i++)
		if (block_table[i] != NULL && block_table[i]->client == c && block_table[i]->context == context)
			block_end(block_table[i]);
	pthread_mutex_unlock(&lock);
}

// In a child: the pages are not inherited (MADV_DONTFORK). Their addresses stay reserved.
void managed_forget_all(void) {
	pthread_mutex_init(&lock, NULL);
	for (uint32_t i = 0; i < block_room; i++)
		if (block_table[i] != NULL)
			keep_out(block_table[i]->at, block_table[i]->size);
	block_table = NULL;
	allocation_table = NULL;
	block_room = allocation_room = block_from = allocation_from = 0;
	blocks.root = allocations.root = NULL;
	active.next = active.previous = NULL;
	atomic_store(&any, 0);
}

// --- variables of modules --------------------------------------------------------------------

// Lets the host reach a variable of a module at its device address. A block of variables covers
// whole pages, of which only the pieces are copied.
CUresult managed_variable(struct client *c, CUcontext context, CUdeviceptr at, size_t size) {
	uint64_t from = at / PAGE * PAGE, to = (at + size + PAGE - 1) / PAGE * PAGE;
	pthread_mutex_lock(&lock);
	struct block *b = block_at(from);
	CUresult result = CUDA_SUCCESS;
	if (b == NULL)
		b = block_new(c, context, from, to - from, true);
	bool fits = b != NULL && b->variables && b->client == c && b->at <= from && to <= b->at + b->size;
	bool known = false, copied = false;
	for (size_t i = 0; fits && i < b->piece_count; i++)
		known = known || b->pieces[i].at == at;
	if (fits && !known) {
		result = give_block(b, true, &copied);
		struct piece *more = realloc(b->pieces, (b->piece_count + 1) * sizeof *more);
		if (more != NULL) {
			b->pieces = more;
			b->pieces[b->piece_count++] = (struct piece){at, size};
			memset(b->state, DEVICE, b->chunks);
			if (allocation_new(b, context, at, size) == NULL)
				result = CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
		use_of(b->client)->busy = true;
	}
	pthread_mutex_unlock(&lock);
	if (!fits)
		notice("a managed variable at %#llx: something else of the program's is there: start the program again, or use cuMemAllocManaged", (unsigned long long)at);
	return fits ? result : CUDA_ERROR_NOT_SUPPORTED;
}

// Forgets a variable whose module is unloaded.
void managed_forget(CUdeviceptr at) {
	if (atomic_load(&any) == 0)
		return;
	pthread_mutex_lock(&lock);
	struct block *b = block_at(at);
	struct managed *m = allocation_at(at);
	if (b != NULL && b->variables && m != NULL && m->at == at) {
		allocation_end(m);
		for (size_t i = 0; i < b->piece_count; i++)
			if (b->pieces[i].at == at)
				b->pieces[i] = b->pieces[--b->piece_count];
		if (b->piece_count == 0) {
			uint64_t from = b->at, size = b->size;
			block_end(b);
			munmap((void *)from, size);
		}
	}
	pthread_mutex_unlock(&lock);
}

// --- what the program says and asks of it ------------------------------------------------------

bool managed_range(CUdeviceptr at, struct range *out, struct client **c) {
	if (atomic_load(&any) == 0)
		return false;
	pthread_mutex_lock(&lock);
	struct managed *m = allocation_at(at);
	if (m != NULL) {
		*out = (struct range){.at = m->at, .size = m->size, .context = m->context, .id = m->id};
		*c = m->block->client;
	}
	pthread_mutex_unlock(&lock);
	return m != NULL;
}

// Called when a host function has returned. It may have written managed memory, and work behind it
// in the stream, which was launched earlier, may use it: so all chunks of the host go to the device
// before HOST_DONE lets the stream go on.
static void managed_returned(struct client *c) {
	if (atomic_load(&any) == 0)
		return;
	pthread_mutex_lock(&lock);
	bool copied = false;
	for (struct block *b = active.next, *next; b != NULL && b != &active; b = next) {
		next = b->next;
		if (b->client == c && b->attached != CU_MEM_ATTACH_HOST && give_block(b, true, &copied) != CUDA_SUCCESS)
			break;
	}
	if (copied)
		let_copies_end(c);
	managed_end(c, true);
}

// Attaches an allocation to all streams, to the host, or to one stream (flags: CU_MEM_ATTACH_*).
CUresult managed_attach(const struct target *t, CUdeviceptr at, size_t size, unsigned flags) {
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct managed *m = allocation_at(at);
	if (m != NULL && m->at == at && (size == 0 || size == m->size)) {
		struct block *b = m->block;
		result = CUDA_SUCCESS;
		if (!b->slab && !b->variables) { // only a block with one allocation can be attached by itself
			bool copied = false;
			if (flags != CU_MEM_ATTACH_HOST && b->client == t->client)
				result = give_block(b, false, &copied);
			if (result == CUDA_SUCCESS && copied)
				result = let_copies_end(b->client);
			b->attached = flags;
			b->stream = t->stream;
		}
	}
	pthread_mutex_unlock(&lock);
	return result;
}

struct managed_hints *managed_hints(CUdeviceptr at, size_t size, struct client **c) {
	pthread_mutex_lock(&lock);
	struct managed *m = size > 0 ? allocation_at(at) : NULL;
	if (m == NULL || size > m->size - (at - m->at)) {
		pthread_mutex_unlock(&lock);
		return NULL;
	}
	*c = m->block->client;
	return &m->hints;
}

void managed_hints_end(void) { pthread_mutex_unlock(&lock); }

void managed_fetch(CUdeviceptr from, size_t size) {
	for (uint64_t at = from; at < from + size; at = (at / CHUNK + 1) * CHUNK)
		serve(at, false);
}

static bool serve_fault(uint64_t at, bool write) { return atomic_load(&any) > 0 && serve(at, write); }

__attribute__((constructor)) static void take_part(void) {
	faults_serve(FAULT_MANAGED, serve_fault);
	static const struct manager ours = {managed_any, managed_watch, managed_returned};
	manager = &ours;
}
