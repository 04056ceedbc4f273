// Host memory that kernels reach, at the same address as in the program. Layer: work.
//
// Pinned memory lies in the data arena, which program and worker map at the same address; the
// worker is told of a range when a kernel may need it. Registered memory is the program's own: when
// a kernel may need it, its pages are replaced by pages of the data arena, at the same address, and
// they become private again when the program unregisters the memory.
#include "core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((uint64_t)4096)

// Registered memory whose pages are those of the data arena.
struct moved {
	struct moved *next;
	struct client *client;
	CUcontext context;
	uint64_t at, from, size; // at: the registered address; from, size: the pages around it
	uint64_t arena;          // where these pages are in the data arena, as an address
	uint64_t device;         // the address by which kernels reach from
};

// Held while pages are replaced, and while the worker is told; protects the list. The signal handler
// waits for it (pinned_wait), so the holder must not write to pages that are being replaced.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct moved *all;
static _Atomic uint64_t busy_from, busy_to; // the pages that are being replaced, or were last
static _Atomic bool ever;                   // pages were replaced at least once

static CUresult refuse(const char *why) {
	notice("%s: copy the memory instead, or use memory of cuMemHostAlloc on the device's own node", why);
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult tell_worker(struct client *c, uint64_t at, uint64_t arena, uint64_t size) {
	struct wire_host_map message = {at, arena - (uint64_t)(uintptr_t)c->arena.at, size};
	return CALL(c, HOST_MAP, host_map, &message, NO_DATA, NULL);
}

// --- pinned memory ----------------------------------------------------------------------

static CUresult reach_pinned(struct client *c, const struct range *range) {
	if ((range->flags & RANGE_MAPPED) != 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock); // so that only one thread tells the worker
	CUresult result = CUDA_SUCCESS;
	if (pinned_unmapped(c, range)) {
		result = tell_worker(c, range->at, range->at, (range->size + PAGE - 1) / PAGE * PAGE);
		if (result == CUDA_SUCCESS)
			pinned_mapped(c, range);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

// --- registered memory --------------------------------------------------------------------

// Whether pages can be replaced: all of them must be private memory, and none may be a stack or hold
// the thread-local variables of this thread, which this code writes to meanwhile.
static bool replaceable(uint64_t from, uint64_t to) {
	char line[512];
	uint64_t here = (uint64_t)(uintptr_t)line, own = (uint64_t)(uintptr_t)&errno;
	if (own >= from && own < to)
		return false;
	FILE *maps = fopen("/proc/self/maps", "re");
	bool right = maps != NULL;
	uint64_t at = from;
	while (right && at < to && fgets(line, sizeof line, maps) != NULL) {
		uint64_t begin, end;
		char rights[5];
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) != 3 || end <= at)
			continue;
		right = begin <= at && strcmp(rights, "rw-p") == 0 && (here < begin || here >= end) && strstr(line, "[stack]") == NULL;
		at = end;
	}
	if (maps != NULL)
		fclose(maps);
	return right && at >= to;
}

// Protects pages against writing while they are copied. A thread that writes to them faults and
// waits in the signal handler. busy_to is 0 while busy_from changes, so that the handler never sees
// a mixed range.
static void begin_moving(uint64_t from, uint64_t size) {
	atomic_store(&busy_to, 0);
	atomic_store(&busy_from, from);
	atomic_store(&busy_to, from + size);
	atomic_store(&ever, true);
	faults_handle();
	mprotect((void *)from, size, PROT_READ);
}

bool pinned_moving(void) { return atomic_load(&ever); }

// For the signal handler: whether a failed access is to be repeated because its page was being
// replaced. It waits for the replacement by taking the lock. An access that fails 1000 times in a row
// has another reason.
static bool pinned_wait(uint64_t at) {
	static __thread uint64_t last;
	static __thread int times;
	if (at < atomic_load(&busy_from) || at >= atomic_load(&busy_to)) // do not lock: the holder may be waiting for this thread
		return false;
	times = at == last ? times + 1 : 0;
	last = at;
	if (times > 1000)
		return false;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	return true;
}

// Puts pages of the arena in the place of the program's. The caller holds this file's lock. mremap with an old size of 0 maps the arena's pages a second time, at m->from.
static CUresult move_pages(struct client *c, struct moved *m, CUcontext context) {
	m->arena = pinned_allocate(c, context, m->size, 0);
	if (m->arena == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	begin_moving(m->from, m->size);
	memcpy((void *)m->arena, (void *)m->from, m->size);
	void *there = mremap((void *)m->arena, 0, m->size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)m->from);
	if (there == MAP_FAILED) {
		mprotect((void *)m->from, m->size, PROT_READ | PROT_WRITE);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	madvise(there, m->size, MADV_DOFORK); // a child inherits the pages and copies them (moved_forget_all)
	return CUDA_SUCCESS;
}

// Replaces pages of the arena by private ones with the same contents: in a child, or when the
// program unregisters the memory.
static bool own_pages(const struct moved *m) {
	void *own = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (own == MAP_FAILED)
		return false;
	memcpy(own, (void *)m->from, m->size);
	return mremap(own, m->size, m->size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)m->from) != MAP_FAILED;
}

// Undoes move_pages, when the device's work has ended. The caller holds the lock.
static void move_back(struct moved *m) {
	struct client *c = m->client;
	struct wire_synchronise message = {0};
	CALL(c, SYNCHRONISE, synchronise, &message, NO_DATA, NULL); // kernels may still use the pages
	struct wire_host_unmap unmap = {m->device};
	POST(c, HOST_UNMAP, host_unmap, &unmap, NO_DATA);
	begin_moving(m->from, m->size);
	bool own = own_pages(m);
	if (!own)
		mprotect((void *)m->from, m->size, PROT_READ | PROT_WRITE);
	if (own)
		pinned_give(c, m->arena);
}

void moved_end(uint64_t at) {
	if (!atomic_load(&ever))
		return;
	pthread_mutex_lock(&lock);
	for (struct moved **link = &all; *link != NULL; link = &(*link)->next) {
		struct moved *m = *link;
		if (m->at != at)
			continue;
		*link = m->next;
		move_back(m);
		free(m);
		break;
	}
	pthread_mutex_unlock(&lock);
}

void moved_release(CUcontext context) {
	if (!atomic_load(&ever))
		return;
	pthread_mutex_lock(&lock);
	for (struct moved **link = &all; *link != NULL;) {
		struct moved *m = *link;
		if (m->context != context) {
			link = &m->next;
			continue;
		}
		*link = m->next;
		move_back(m);
		free(m);
	}
	pthread_mutex_unlock(&lock);
}

// In a child: pages that it shares with its parent become private.
void moved_forget_all(void) {
	pthread_mutex_init(&lock, NULL);
	for (struct moved *m = all; m != NULL; m = m->next)
		own_pages(m);
	all = NULL;
	atomic_store(&busy_to, 0);
}

// Finds, or makes, the replacement of registered memory. The caller holds the lock.
static CUresult reach_registered(struct client *c, const struct range *range, struct moved **out) {
	uint64_t from = range->at / PAGE * PAGE, to = (range->at + range->size + PAGE - 1) / PAGE * PAGE;
	for (struct moved *m = all; m != NULL; m = m->next) {
		*out = m;
		if (m->at == range->at && m->client == c)
			return CUDA_SUCCESS;
		if (from < m->from + m->size && m->from < to)
			return refuse("registered memory shares a page with other registered memory that kernels reach");
	}
	if (!replaceable(from, to))
		return refuse("registered memory is on a stack, or shared with others, so that kernels cannot reach it");
	struct moved *m = calloc(1, sizeof *m);
	if (m == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*m = (struct moved){.client = c, .context = range->context, .at = range->at, .from = from, .size = to - from, .device = from};
	CUresult result = move_pages(c, m, range->context);
	if (result != CUDA_SUCCESS) {
		free(m);
		return result;
	}
	m->next = all;
	all = m;
	*out = m;
	result = tell_worker(c, from, m->arena, m->size);
	if (result == CUDA_SUCCESS || client_status(c) != CUDA_SUCCESS)
		return result;
	m->device = m->arena; // the worker uses the program's address for something else
	return tell_worker(c, m->arena, m->arena, m->size);
}

// --- what kernels are given -----------------------------------------------------------------

// Lets kernels of a client reach host memory, and finds the address by which they do.
CUresult mapped_reach(struct client *c, uint64_t host, CUdeviceptr *device) {
	struct range range;
	struct client *owner;
	if (!pinned_range((void *)host, &range, &owner))
		return CUDA_ERROR_INVALID_VALUE;
	if (!c->arena.same_address)
		return refuse("kernels do not reach memory of the host here: the program's node is another machine, or has something else at these addresses");
	uint64_t offset;
	if (pinned_offset(c, (void *)range.at, range.size, &offset)) {
		*device = host;
		return reach_pinned(c, &range);
	}
	if (owner == NULL || (owner != c && pinned_offset(owner, (void *)range.at, range.size, &offset)))
		return refuse("kernels of one device do not reach pinned memory of another one's");
	struct moved *m;
	pthread_mutex_lock(&lock);
	CUresult result = reach_registered(c, &range, &m);
	if (result == CUDA_SUCCESS)
		*device = m->device + (host - m->from);
	pthread_mutex_unlock(&lock);
	return result;
}

// Lets a kernel reach all pinned and registered memory whose address is among its parameters. With
// unified addressing programs pass such addresses without asking for a device pointer. Every
// aligned word that looks like one is taken for one; a false match only maps memory needlessly.
void mapped_scan(struct client *c, const void *params, size_t size) {
	if (!c->arena.same_address)
		return;
	uint64_t first = pinned_begin(c), end = first + pinned_bytes(c);
	bool registered = registered_any();
	for (size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
		uint64_t word;
		CUdeviceptr device;
		struct range range;
		struct client *owner;
		memcpy(&word, (const uint8_t *)params + i, sizeof word);
		bool pinned = word >= first && word < end;
		if ((pinned || (registered && word >= PAGE)) && pinned_range((void *)word, &range, &owner))
			mapped_reach(c, word, &device);
	}
}

static bool serve_fault(uint64_t at, bool write) {
	(void)write;
	return pinned_wait(at);
}

__attribute__((constructor)) static void take_part(void) { faults_serve(FAULT_MOVED, serve_fault); }
