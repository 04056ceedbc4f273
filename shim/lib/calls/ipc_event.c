// Events that several programs share. Layer: calls. Each event has a page that all its
// programs map. A record increments recorded there, and a host function in the stream advances done
// when the stream gets there. A wait for another program's record blocks the calling thread instead
// of the stream. It ends, since that work was given to a stream before; if the recording process
// dies, its records count as done.
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define MAGIC UINT64_C(0x4d4950434556454e)

struct page {
	uint64_t magic, nonce[2];
	_Atomic uint64_t recorded, done; // number of the last record; records up to done have happened
	_Atomic uint32_t recorder;       // process that made the last record
};

// This process's mapping of a page. users counts events, and host functions that have not been called
// yet.
struct shared_event {
	struct shared_event *next;
	struct page *page;
	int fd;
	unsigned users;
	bool ours; // made here
};

struct event_handle {
	uint64_t magic, nonce[2];
	uint32_t process, fd;
};
_Static_assert(sizeof(struct event_handle) <= CU_IPC_HANDLE_SIZE, "");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects the list and the user counts
static struct shared_event *all;

// In a child: its parent's pages are not its own.
void ipc_events_forget_all(void) {
	pthread_mutex_init(&lock, NULL);
	for (struct shared_event *s = all; s != NULL; s = s->next) {
		munmap(s->page, PAGE);
		close(s->fd);
	}
	all = NULL;
}

// Locks the byte of the file at the offset of the process's number. The kernel releases the lock when
// the process ends, so other programs can see whether it lives. It is a lock of the open file
// description: other opens and closes in this process do not release it, and children close theirs.
static bool mark_alive(int fd) {
	struct flock own = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = getpid(), .l_len = 1};
	return fcntl(fd, F_OFD_SETLK, &own) == 0;
}

static bool is_alive(int fd, uint32_t process) {
	struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = process, .l_len = 1};
	return process == (uint32_t)getpid() || fcntl(fd, F_OFD_GETLK, &other) != 0 || other.l_type != F_UNLCK;
}

static struct shared_event *keep(int fd, bool ours) {
	struct shared_event *s = calloc(1, sizeof *s);
	void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s == NULL || page == MAP_FAILED || !mark_alive(fd)) {
		if (page != MAP_FAILED)
			munmap(page, PAGE);
		free(s);
		return NULL;
	}
	*s = (struct shared_event){.page = page, .fd = fd, .users = 1, .ours = ours};
	pthread_mutex_lock(&lock);
	s->next = all;
	all = s;
	pthread_mutex_unlock(&lock);
	return s;
}

static void let_go(struct shared_event *s) {
	pthread_mutex_lock(&lock);
	bool last = --s->users == 0;
	if (last) {
		struct shared_event **link = &all;
		while (*link != s)
			link = &(*link)->next;
		*link = s->next;
		munmap(s->page, PAGE);
		close(s->fd);
		free(s);
	}
	pthread_mutex_unlock(&lock);
}

static void use(struct shared_event *s) {
	pthread_mutex_lock(&lock);
	s->users++;
	pthread_mutex_unlock(&lock);
}

CUresult ipc_event_begin(CUevent event) {
	uint64_t nonce[2];
	if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
		return CUDA_ERROR_OPERATING_SYSTEM;
	int fd = memfd_create("muster-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (ftruncate(fd, PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		event->shared = keep(fd, true);
	if (event->shared == NULL) {
		close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	struct page *p = event->shared->page;
	p->nonce[0] = nonce[0];
	p->nonce[1] = nonce[1];
	p->magic = MAGIC;
	return CUDA_SUCCESS;
}

void ipc_event_end(CUevent event) {
	if (event->shared != NULL)
		let_go(event->shared);
	event->shared = NULL;
}

static void reach(struct page *p, uint64_t number) {
	uint64_t done = atomic_load(&p->done);
	while (done < number && !atomic_compare_exchange_weak(&p->done, &done, number)) {
	}
}

// --- recording ---------------------------------------------------------------------------

struct record {
	struct shared_event *event;
	uint64_t number;
};

// The host function of a record: the stream has got there, or has failed. Both count as done, so that
// other programs do not wait forever.
static void happened(CUstream stream, CUresult status, void *data) {
	(void)stream, (void)status;
	struct record *r = data;
	reach(r->event->page, r->number);
	let_go(r->event);
	free(r);
}

CUresult ipc_event_record(CUevent event, const struct target *t) {
	struct shared_event *s = event->shared;
	struct record *r = malloc(sizeof *r);
	if (r == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	use(s);
	atomic_store(&s->page->recorder, (uint32_t)getpid());
	*r = (struct record){s, atomic_fetch_add(&s->page->recorded, 1) + 1};
	atomic_store(&event->own, r->number);
	CUresult result = host_callback(t, happened, NULL, r);
	if (result != CUDA_SUCCESS)
		happened(NULL, result, r);
	return result;
}

// --- waiting --------------------------------------------------------------------------------

// Whether the last record is this process's own: its worker knows of it.
bool ipc_event_own(CUevent event) {
	uint64_t last = atomic_load(&event->shared->page->recorded);
	return last == 0 || last == atomic_load(&event->own);
}

static bool is_done(struct shared_event *s, uint64_t number) {
	if (atomic_load(&s->page->done) >= number)
		return true;
	if (is_alive(s->fd, atomic_load(&s->page->recorder)))
		return false;
	reach(s->page, number); // the recording program has died, and its work with it
	return true;
}

CUresult ipc_event_query(CUevent event) { return is_done(event->shared, atomic_load(&event->shared->page->recorded)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }

CUresult ipc_event_wait(CUevent event) {
	struct shared_event *s = event->shared;
	use(s);
	uint64_t number = atomic_load(&s->page->recorded);
	for (unsigned pause = 20; !is_done(s, number); pause = pause < 1000 ? 2 * pause : pause)
		usleep(pause);
	let_go(s);
	return CUDA_SUCCESS;
}

// --- handles ---------------------------------------------------------------------------------

CUresult with_cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
	if (handle == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (event->shared == NULL || !event->shared->ours)
		return CUDA_ERROR_INVALID_HANDLE;
	const struct page *p = event->shared->page;
	struct event_handle h = {MAGIC, {p->nonce[0], p->nonce[1]}, (uint32_t)getpid(), (uint32_t)event->shared->fd};
	memset(handle, 0, sizeof *handle);
	memcpy(handle, &h, sizeof h);
	return CUDA_SUCCESS;
}

// Opens the page of another process through /proc; the kernel permits that for processes of the same
// user. The file must be sealed against shrinking: a shorter file would raise SIGBUS here.
static int open_page(const struct event_handle *h) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%u/fd/%u", h->process, h->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat info;
	struct page p;
	int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;
	if (fd >= 0 && seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() && info.st_size == PAGE &&
	    pread(fd, &p, sizeof p, 0) == (ssize_t)sizeof p && p.magic == MAGIC && memcmp(p.nonce, h->nonce, sizeof p.nonce) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

// This process's mapping of the event, with one more user; NULL if it has none yet.
static struct shared_event *known(const struct event_handle *h) {
	pthread_mutex_lock(&lock);
	struct shared_event *s = all;
	while (s != NULL && memcmp(s->page->nonce, h->nonce, sizeof h->nonce) != 0)
		s = s->next;
	if (s != NULL)
		s->users++;
	pthread_mutex_unlock(&lock);
	return s;
}

CUresult do_cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
	struct target t;
	struct event_handle h;
	CUresult result = target_current(&t);
	if (result != CUDA_SUCCESS)
		return result;
	memcpy(&h, &handle, sizeof h);
	if (event == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (h.magic != MAGIC)
		return CUDA_ERROR_MAP_FAILED;
	struct shared_event *s = known(&h);
	if (s != NULL && s->ours) {
		let_go(s);
		return CUDA_ERROR_INVALID_CONTEXT; // a program does not open what it has given away
	}
	if (s == NULL) {
		int fd = open_page(&h);
		if (fd < 0)
			return CUDA_ERROR_MAP_FAILED;
		s = keep(fd, false);
		if (s == NULL) {
			close(fd);
			return CUDA_ERROR_OPERATING_SYSTEM;
		}
	}
	result = event_create(event, t.context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
	if (result == CUDA_SUCCESS)
		(*event)->shared = s;
	else
		let_go(s);
	return result;
}
