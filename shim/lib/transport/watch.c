// Where the time went, for muster trace. Layer: transport. If MUSTER_TIMELINE names a
// folder, each process of the program writes 64-byte records to a file there. The file is mapped
// shared, so the records survive whatever happens to the process. wire/timeline reads them, and its
// package comment describes the file.
//
// The thread that makes a call writes the call's record when the call ends. A thread of the library
// asks the worker every 10 ms what it has done for the process, with an ordinary message, so this
// also works for a worker on another machine. The first half of each region keeps the oldest
// records; the second half is a ring of the newest.
//
// Writers take a place with an atomic counter, set its mark to 0, write the record, and set the mark
// with release order. A reader skips records whose mark is 0 or not the expected number.
#include "../basis/spin.h"
#include "transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int shim_watch;

#define FILES 256       // of one program: further processes write none
#define MIN_ROOM 1024   // records
#define NAME_ROOM 16384 // records for names
#define FUNCTIONS 1024  // that are counted, a power of two

enum { RECORD_CALL = 1, RECORD_NAME, RECORD_CLOCK };
enum { FROM_PROGRAM = 0xffff }; // who names something

struct record {
	_Atomic uint64_t mark; // 1 + number of earlier records; 0 while the record is being written
	int64_t begin, end;
	uint64_t bytes;
	uint32_t name;
	uint32_t row; // of a call: its thread
	uint16_t kind;
	uint16_t source; // which of the program's devices
	uint32_t first, last; // messages
	uint32_t waited_for;  // enum watch_wait
	uint32_t kernel;      // of a call: the hash of the kernel's name
	uint32_t result;      // of a call
};
_Static_assert(sizeof(struct record) == 64, "records have 64 bytes");

struct name_record { // the same, of a name
	_Atomic uint64_t mark;
	uint32_t name, part;
	char text[24];
	uint16_t kind, source;
	char more[20];
};
_Static_assert(sizeof(struct name_record) == 64 && offsetof(struct name_record, kind) == offsetof(struct record, kind), "names are records");

struct total {
	_Atomic uint64_t count, ns, bytes, waited;
};

struct head {
	char magic[8];
	uint32_t version, pid, parent, ended;
	uint64_t room, name_room; // records
	int64_t opened, opened_at; // the clock of records, and of the world
	_Atomic uint64_t calls, node, names; // records so far
	_Atomic uint64_t node_lost;
	char program[256];
	char boot[64];
};

#define HEAD_SIZE 4096
_Static_assert(sizeof(struct head) <= HEAD_SIZE, "the head is a page");

static struct head *file; // NULL: there is none
static struct total *totals;
static struct record *call_records, *node_records;
static struct name_record *name_records;

static __thread struct {
	uint64_t bytes;
	int64_t waited[WATCH_WAITS];
	uint32_t first, last, thread;
	uint16_t source;
	bool sent;
	uint32_t kernel;
} note;

int64_t watch_now(void) { return nanoseconds(); }

// --- the file --------------------------------------------------------------------------

static void read_line(const char *path, char *to, size_t size) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, to, size - 1) : -1;
	if (fd >= 0)
		close(fd);
	to[n > 0 ? n : 0] = 0;
	to[strcspn(to, "\n")] = 0;
}

static int new_file(const char *folder, unsigned *number) {
	for (*number = 0; *number < FILES; ++*number) {
		char path[4096];
		if ((size_t)snprintf(path, sizeof path, "%s/%03u", folder, *number) >= sizeof path)
			return -1;
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return -1;
}

static size_t size_of(uint64_t room) {
	return HEAD_SIZE + FUNCTIONS * sizeof(struct total) + (2 * room + NAME_ROOM) * sizeof(struct record);
}

// Allocates a file's space on disk. Otherwise a full disk would raise SIGBUS in the program when it
// writes a record. A size above the process's limit is refused before, since exceeding it
// raises SIGXFSZ.
static bool take_room(int fd, size_t size) {
	struct rlimit most;
	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && size > most.rlim_cur)
		return false;
	int result;
	while ((result = fallocate(fd, 0, 0, (off_t)size)) != 0 && errno == EINTR)
		;
	if (result == 0)
		return true;
	bool unknown = errno == EOPNOTSUPP || errno == ENOSYS; // to the file system
	return ftruncate(fd, 0) == 0 && unknown && ftruncate(fd, (off_t)size) == 0;
}

// File n gets 1/(n+1) of the room, so that all files together are bounded. If the disk has too
// little, the room is halved until it fits.
static void open_file(const char *folder) {
	const char *wish = getenv("MUSTER_TIMELINE_RECORDS");
	uint64_t room = wish != NULL ? strtoull(wish, NULL, 10) : 0;
	unsigned number;
	int fd = new_file(folder, &number);
	if (fd < 0)
		return;
	room = room > 0 && room <= UINT32_MAX ? room / (number + 1) : 0;
	room = (room > MIN_ROOM ? room : MIN_ROOM) & ~UINT64_C(1);
	bool taken;
	while (!(taken = take_room(fd, size_of(room))) && room > MIN_ROOM)
		room = (room / 2 > MIN_ROOM ? room / 2 : MIN_ROOM) & ~UINT64_C(1);
	size_t size = size_of(room);
	uint8_t *at = MAP_FAILED;
	if (taken)
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return;
	madvise(at, size, MADV_DONTFORK);
	struct timespec world;
	clock_gettime(CLOCK_REALTIME, &world);
	struct head *h = (struct head *)at;
	h->version = 1;
	h->pid = (uint32_t)getpid();
	h->parent = (uint32_t)getppid();
	h->room = room;
	h->name_room = NAME_ROOM;
	h->opened = watch_now();
	h->opened_at = world.tv_sec * INT64_C(1000000000) + world.tv_nsec;
	read_line("/proc/self/comm", h->program, sizeof h->program);
	read_line("/proc/sys/kernel/random/boot_id", h->boot, sizeof h->boot);
	totals = (struct total *)(at + HEAD_SIZE);
	call_records = (struct record *)(totals + FUNCTIONS);
	node_records = call_records + room;
	name_records = (struct name_record *)(node_records + room);
	memcpy(h->magic, "mustertl", 8); // last: it marks the head as complete
	file = h;
	shim_watch |= WATCH_TIMELINE;
}

// Takes the next place of a region: places of the first half are used once, those of the second in a
// ring.
static struct record *next_place(struct record *region, _Atomic uint64_t *count, uint64_t *mark) {
	uint64_t n = atomic_fetch_add_explicit(count, 1, memory_order_relaxed), half = file->room / 2;
	*mark = n + 1;
	struct record *r = region + (n < half ? n : half + (n - half) % half);
	atomic_store_explicit(&r->mark, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	return r;
}

static void put_name(const struct name_record *r) {
	uint64_t n = atomic_fetch_add_explicit(&file->names, 1, memory_order_relaxed);
	if (n >= file->name_room)
		return;
	struct name_record *to = &name_records[n];
	memcpy((uint8_t *)to + sizeof to->mark, (const uint8_t *)r + sizeof r->mark, sizeof *to - sizeof to->mark);
	atomic_store_explicit(&to->mark, n + 1, memory_order_release);
}

// --- names of functions, by the addresses of their texts -------------------------------

static _Atomic(const char *) known[FUNCTIONS];
static _Atomic uint32_t known_count;

static void tell_name(uint32_t name, const char *text) {
	size_t left = strnlen(text, 1024);
	for (uint32_t part = 0; left > 0; part++) {
		struct name_record r = {.name = name, .part = part, .kind = RECORD_NAME, .source = FROM_PROGRAM};
		size_t n = left < sizeof r.text ? left : sizeof r.text;
		memcpy(r.text, text, n);
		text += n;
		left -= n;
		n = left < sizeof r.more ? left : sizeof r.more;
		memcpy(r.more, text, n);
		text += n;
		left -= n;
		put_name(&r);
	}
}

// The number of a name: 1 + its place in a hash table keyed by the address of the text; 0 if the
// table is full. Threads insert without a lock, by compare-and-swap.
static uint32_t name_of(const char *text) {
	uint64_t hash = (uint64_t)(uintptr_t)text * UINT64_C(0x9e3779b97f4a7c15);
	for (uint32_t i = 0, at = (uint32_t)(hash >> 54); i < FUNCTIONS; i++, at = (at + 1) % FUNCTIONS) {
		const char *there = atomic_load_explicit(&known[at], memory_order_acquire);
		if (there == text)
			return at + 1;
		if (there != NULL)
			continue;
		if (atomic_load(&known_count) >= FUNCTIONS - FUNCTIONS / 8)
			return 0;
		if (atomic_compare_exchange_strong(&known[at], &there, text)) {
			atomic_fetch_add(&known_count, 1);
			tell_name(at + 1, text);
			return at + 1;
		}
		if (there == text)
			return at + 1;
	}
	return 0;
}

// --- calls -----------------------------------------------------------------------------

int64_t watch_begin(const char *name) {
	if ((shim_watch & WATCH_PRINT) != 0)
		trace_call(name);
	if ((shim_watch & WATCH_TIMELINE) == 0)
		return 0;
	uint32_t thread = note.thread;
	memset(&note, 0, sizeof note);
	note.thread = thread != 0 ? thread : (uint32_t)syscall(SYS_gettid);
	return watch_now();
}

void watch_end(const char *name, int64_t began, int result) {
	int64_t now = watch_now();
	if (file == NULL) // a signal handler has forked during the call, and this is the child
		return;
	uint32_t number = name_of(name), most = 0;
	uint64_t waited = 0;
	for (uint32_t i = 0; i < WATCH_WAITS; i++) {
		waited += (uint64_t)note.waited[i];
		if (note.waited[i] > note.waited[most])
			most = i;
	}
	struct total *t = &totals[number == 0 ? FUNCTIONS - 1 : number - 1];
	atomic_fetch_add_explicit(&t->count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&t->ns, (uint64_t)(now - began), memory_order_relaxed);
	atomic_fetch_add_explicit(&t->bytes, note.bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&t->waited, waited, memory_order_relaxed);
	uint64_t mark;
	struct record *r = next_place(call_records, &file->calls, &mark);
	r->begin = began;
	r->end = now;
	r->bytes = note.bytes;
	r->name = number;
	r->row = note.thread;
	r->kind = RECORD_CALL;
	r->source = note.sent ? note.source : FROM_PROGRAM;
	r->first = note.first;
	r->last = note.last;
	// Microseconds in the upper 29 bits, up to nine minutes; the kind of the longest wait in the
	// lowest 3.
	uint64_t us = waited / 1000 < (UINT32_MAX >> 3) ? waited / 1000 : UINT32_MAX >> 3;
	r->waited_for = (uint32_t)us << 3 | (waited > 0 ? most + 1 : 0);
	r->kernel = note.kernel;
	r->result = (uint32_t)result;
	atomic_store_explicit(&r->mark, mark, memory_order_release);
}

void watch_waited(int64_t since, enum watch_wait what) { note.waited[what] += watch_now() - since; }

void watch_bytes(uint64_t bytes) { note.bytes += bytes; }

// Notes the FNV-1a hash of the kernel's name, as in wire/timeline; the node's records have the name
// itself.
void watch_kernel(const char *name) {
	uint32_t hash = UINT32_C(2166136261);
	for (; *name != 0; name++)
		hash = (hash ^ (uint8_t)*name) * UINT32_C(16777619);
	note.kernel = hash;
}

void watch_sent(int device, uint32_t seq) {
	if (!note.sent)
		note.first = seq;
	note.sent = true;
	note.last = seq;
	note.source = (uint16_t)device;
}

// --- what the node did (timeline.c) -------------------------------------------------------

void watch_keep(int device, const uint8_t *records, size_t size) {
	for (size_t i = 0; i + sizeof(struct record) <= size; i += sizeof(struct record)) {
		struct name_record name;
		memcpy(&name, records + i, sizeof name);
		name.source = (uint16_t)device;
		if (name.kind == RECORD_NAME) {
			put_name(&name);
			continue;
		}
		uint64_t mark;
		struct record *r = next_place(node_records, &file->node, &mark);
		memcpy((uint8_t *)r + sizeof r->mark, (uint8_t *)&name + sizeof name.mark, sizeof *r - sizeof r->mark);
		atomic_store_explicit(&r->mark, mark, memory_order_release);
	}
}

static int64_t best[MAX_DEVICES], when[MAX_DEVICES]; // of watch_keep_clock

// Notes how the node's clock compares to ours: the node read its clock between our before and
// after. The shorter that interval, the better the estimate.
void watch_keep_clock(int device, int64_t before, int64_t after, uint64_t theirs) {
	int64_t took = after - before;
	if (best[device] != 0 && took > best[device] && after - when[device] < INT64_C(1000000000))
		return; // within a second, only a better estimate is worth a record
	best[device] = took;
	when[device] = after;
	uint64_t mark;
	struct record *r = next_place(node_records, &file->node, &mark);
	*r = (struct record){.begin = before, .end = after, .bytes = theirs, .kind = RECORD_CLOCK, .source = (uint16_t)device};
	atomic_store_explicit(&r->mark, mark, memory_order_release);
}

void watch_start(void) {
	const char *folder = secure_getenv("MUSTER_TIMELINE");
	if (folder != NULL && folder[0] == '/')
		open_file(folder);
}

// In a child: the parent's file is not mapped (MADV_DONTFORK), and the child opens its own.
void watch_in_child(void) {
	if (file == NULL)
		return;
	file = NULL;
	shim_watch &= ~WATCH_TIMELINE;
	memset(&note, 0, sizeof note);
	memset(best, 0, sizeof best);
	for (int i = 0; i < FUNCTIONS; i++)
		atomic_store(&known[i], NULL);
	atomic_store(&known_count, 0);
	watch_start();
}

void watch_lost(uint64_t records) { atomic_store_explicit(&file->node_lost, records, memory_order_relaxed); }

bool watch_recording(void) { return file != NULL; }

void watch_finish(void) { file->ended = 1; }
