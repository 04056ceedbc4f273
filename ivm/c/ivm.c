/* The element's part of IVM in C. The protocol is that of package muster/ivm/proto: see there.
 *
 * One connection for all threads: a call sends its frame and waits for the reply with the same tag.
 * Of the threads that wait, one reads, and hands the others theirs. Locks are taken in this order:
 * lock (what is mapped, and the GPU), sending, talk (who waits). None is held while a reply is read,
 * and lock is not held during a call.
 *
 * An element on a GPU has a device buffer of each object that it maps, which is a mirror of the node's copy as that is of
 * the master: put compares the buffer with a twin and writes the bytes that differ to the node's
 * copy, get copies that into the buffer. CUDA is found at run time, so that elements on CPUs need
 * none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivm.h"
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { page = 4096, max_tail = 2 << 20, version = 1, with_file = 1 };

enum op {
	op_reply, op_enter, op_exit, op_create, op_kill, op_set_max, op_wait, op_wait_any, op_signal, op_barrier,
	op_malloc, op_free, op_map, op_put, op_get, op_put_group, op_get_group, op_nodes, op_devices,
};

struct frame {
	uint32_t op, length;
	uint64_t tag, args[6];
};

/* mapping is an object, or a part of it, that this element has mapped. */
struct mapping {
	struct mapping *next;
	char *name;
	uint64_t number, size; /* of the object */
	uint64_t offset, length; /* of what is mapped */
	char *host;            /* the whole object, and a page that says whether it is gone */
	char *memory;          /* what the program has: in host, or on the device */
	char *twin;            /* the contents that the device buffer is known to have had; NULL on a CPU */
};

/* The driver's functions, for elements on a GPU. */
static struct {
	int (*init)(unsigned);
	int (*device)(int *, int);
	int (*retain)(void **, int);
	int (*push)(void *);
	int (*pop)(void **);
	int (*alloc)(uint64_t *, size_t);
	int (*release)(uint64_t);
	int (*in)(uint64_t, const void *, size_t);
	int (*out)(void *, uint64_t, size_t);
	void *context;
} cuda;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static uint64_t my_id, my_group, my_kind, my_gpu, my_node;
static struct mapping *mappings;

static __thread char last_error[512];
static __thread int last_created;

int ivm_fail(int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(last_error, sizeof last_error, format, args);
	va_end(args);
	return code;
}

EXPORT const char *ivmLastError(void) { return last_error; }

/* --- the timeline --------------------------------------------------------------- */

/* What the element asks for, for muster trace: wire/timeline/elements.go has the format. NULL if there
 * is no timeline, or its folder is on another machine. */
static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;
static FILE *noted;
static long may_note;

static int64_t clock_of(clockid_t which)
{
	struct timespec t;
	clock_gettime(which, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void open_notes(void)
{
	const char *folder = secure_getenv("MUSTER_TIMELINE"), *limit = secure_getenv("MUSTER_TIMELINE_RECORDS");
	char path[PATH_MAX], boot[64] = "";
	if (!folder || !*folder || !limit || (may_note = atol(limit)) < 1 || noted)
		return;
	int n = snprintf(path, sizeof path, "%s/elements-%d-%llu", folder, (int)getpid(), (unsigned long long)my_id);
	int file = n < 0 || (size_t)n >= sizeof path ? -1 : open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (file < 0 || !(noted = fdopen(file, "w"))) {
		if (file >= 0)
			close(file);
		return;
	}
	int known = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t length = known < 0 ? 0 : read(known, boot, sizeof boot - 1);
	if (known >= 0)
		close(known);
	boot[length < 0 ? 0 : length] = 0;
	boot[strcspn(boot, "\n")] = 0;
	setvbuf(noted, NULL, _IOLBF, 4096);
	fprintf(noted, "muster-elements\t1\t%d\t%llu\t%llu\t%lld\t%lld\t%lld\t%s\t%s\n", (int)getpid(), (unsigned long long)my_id, (unsigned long long)my_node,
		my_kind == IVM_GPU ? (long long)my_gpu : -1LL, (long long)clock_of(CLOCK_MONOTONIC), (long long)clock_of(CLOCK_REALTIME), boot, program_invocation_short_name);
}

/* note writes a call: what was asked and, with a name, of what; what was answered; when it began. */
static void note(const struct frame *asked, const char *name, const struct frame *answer, int64_t begun)
{
	if (!noted)
		return;
	bool named = asked->op == op_malloc || asked->op == op_map || asked->op == op_free;
	char text[256];
	size_t n = !named || !name ? 0 : asked->length < sizeof text ? asked->length : sizeof text - 1;
	for (size_t i = 0; i < n; i++)
		text[i] = (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
	text[n] = 0;
	pthread_mutex_lock(&noting);
	if (may_note > 0) {
		may_note--;
		fprintf(noted, "%u\t%d\t%lld\t%lld\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu\t%s\n", asked->op, (int)syscall(SYS_gettid), (long long)begun, (long long)clock_of(CLOCK_MONOTONIC),
			(unsigned long long)answer->args[0], (unsigned long long)asked->args[0], (unsigned long long)asked->args[1], (unsigned long long)asked->args[2],
			(unsigned long long)answer->args[1], (unsigned long long)answer->args[3], text);
	}
	pthread_mutex_unlock(&noting);
}

/* --- the connection ------------------------------------------------------------- */

static bool write_all(const void *bytes, size_t n)
{
	for (const char *at = bytes; n > 0;) {
		ssize_t w = send(connection, at, n, MSG_NOSIGNAL);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return false;
		at += w;
		n -= w;
	}
	return true;
}

/* read_all reads n bytes, and the descriptor that may come with them. */
static bool read_all(void *bytes, size_t n, int *file)
{
	for (char *at = bytes; n > 0;) {
		char control[CMSG_SPACE(sizeof(int))];
		struct iovec part = {at, n};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		ssize_t r = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return false;
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			int got;
			memcpy(&got, CMSG_DATA(c), sizeof got);
			if (file && *file < 0)
				*file = got;
			else
				close(got);
		}
		at += r;
		n -= r;
	}
	return true;
}

/* request is one that was sent, and its reply when that is there. */
struct request {
	struct request *next;  /* without a reply */
	struct request *later; /* asynchronous, and the program has not waited for it */
	uint64_t tag;
	bool done, lost;       /* lost: the connection ended first */
	struct frame reply;
	char *text;            /* the reply's tail, with a zero behind it */
	int file;              /* that came with it, or -1 */
	void *memory;          /* of an asynchronous get of an element on a GPU: what goes to the device then */
	size_t size;
	struct frame asked;    /* asynchronous ones, for the timeline */
	int64_t begun;
};

/* Asynchronous requests without a reply, at most: as many as the daemon serves at a time. */
enum { max_unanswered = 64 };

static pthread_mutex_t sending = PTHREAD_MUTEX_INITIALIZER, talk = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static struct request *waiting, *started;
static uint64_t last_tag;
static bool reading, over = true;

/* broken fails all waiting requests: the daemon no longer answers. The descriptor stays until the element
 * exits: another thread may be reading it. The caller holds talk. */
static void broken(void)
{
	if (connection >= 0)
		shutdown(connection, SHUT_RDWR);
	over = true;
	for (; waiting; waiting = waiting->next)
		waiting->done = waiting->lost = true;
	pthread_cond_broadcast(&arrived);
}

static int is_over(void)
{
	return ivm_fail(IVM_ERROR_OVER, connection < 0 ? "the element has not entered, or has exited" : "the node has ended the connection: the program is over, or its node is");
}

/* deliver gives a reply to the request with its tag. The caller holds talk. */
static void deliver(const struct frame *f, char *text, int file)
{
	for (struct request **at = &waiting; *at; at = &(*at)->next) {
		struct request *r = *at;
		if (r->tag != f->tag)
			continue;
		*at = r->next;
		r->reply = *f, r->text = text, r->file = file, r->done = true;
		return;
	}
	free(text);
	if (file >= 0)
		close(file);
}

/* read_one reads a reply and delivers it. The caller holds talk, which is released during the read. */
static void read_one(void)
{
	struct frame f;
	char *text = NULL;
	int file = -1;
	reading = true;
	pthread_mutex_unlock(&talk);
	bool good = read_all(&f, sizeof f, &file) && f.op == op_reply && f.length <= max_tail && (text = malloc(f.length + 1)) && read_all(text, f.length, NULL);
	pthread_mutex_lock(&talk);
	reading = false;
	if (good) {
		text[f.length] = 0;
		deliver(&f, text, file);
	} else {
		free(text);
		if (file >= 0)
			close(file);
		broken();
	}
	pthread_cond_broadcast(&arrived);
}

/* read_or_wait reads a reply if no other thread is reading, and otherwise waits until that one has delivered
 * one. The caller holds talk. */
static void read_or_wait(void)
{
	if (reading)
		pthread_cond_wait(&arrived, &talk);
	else
		read_one();
}

/* submit sends a request. It is waited for, or not if it fails. */
static int submit(struct request *r, struct frame *f, const void *tail)
{
	pthread_mutex_lock(&sending);
	pthread_mutex_lock(&talk);
	if (over) {
		pthread_mutex_unlock(&talk);
		pthread_mutex_unlock(&sending);
		return is_over();
	}
	r->file = -1;
	r->tag = f->tag = ++last_tag;
	r->next = waiting;
	waiting = r;
	pthread_mutex_unlock(&talk);
	bool sent = write_all(f, sizeof *f) && (f->length == 0 || write_all(tail, f->length));
	pthread_mutex_unlock(&sending);
	if (!sent) { /* all waiting requests fail */
		pthread_mutex_lock(&talk);
		broken();
		pthread_mutex_unlock(&talk);
	}
	return IVM_OK;
}

/* call sends a frame and waits for the reply, whose tail, if it is wanted, the caller frees. */
static int call(struct frame *f, const void *tail, int *file, char **answer)
{
	struct request r = {0};
	const struct frame asked = *f;
	int64_t begun = noted ? clock_of(CLOCK_MONOTONIC) : 0;
	int code = submit(&r, f, tail);
	if (code != IVM_OK)
		return code;
	pthread_mutex_lock(&talk);
	while (!r.done)
		read_or_wait();
	pthread_mutex_unlock(&talk);
	if (r.lost)
		return is_over();
	*f = r.reply;
	note(&asked, tail, f, begun);
	if ((code = f->args[0]) != 0)
		ivm_fail(code, "%s", r.text);
	if (answer && code == 0)
		*answer = r.text;
	else
		free(r.text);
	if (file && code == 0)
		*file = r.file;
	else if (r.file >= 0)
		close(r.file);
	return code;
}

/* ask is call for those who want no more than to know that it was done. */
static int ask(enum op op, uint64_t a, uint64_t b, uint64_t c, const void *tail, size_t length)
{
	struct frame f = {.op = op, .length = length, .args = {a, b, c}};
	return call(&f, tail, NULL, NULL);
}

/* --- entering ------------------------------------------------------------------- */

/* whole_file reads a file of /proc. */
static char *whole_file(const char *path, size_t *n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t room = 1 << 16;
	char *text = fd < 0 ? NULL : malloc(room);
	*n = 0;
	while (text) {
		if (*n == room) {
			char *more = realloc(text, room *= 2);
			if (!more)
				break;
			text = more;
		}
		ssize_t r = read(fd, text + *n, room - *n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			close(fd);
			return text;
		}
		*n += r;
	}
	if (fd >= 0)
		close(fd);
	free(text);
	return NULL;
}

/* hang_up ends the connection of an element that has not entered, or exits. */
static int hang_up(void)
{
	pthread_mutex_lock(&talk);
	if (connection >= 0)
		close(connection);
	connection = -1;
	over = true;
	pthread_mutex_unlock(&talk);
	return ivm_fail(IVM_ERROR_OVER, "the node has ended the connection: the program is over, or its node is");
}

static int connect_to(const char *socket_name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = strlen(socket_name);
	if (n >= sizeof address.sun_path)
		return ivm_fail(IVM_ERROR_INVALID, "the socket's name is too long: %s", socket_name);
	memcpy(address.sun_path, socket_name, n);
	socklen_t length = offsetof(struct sockaddr_un, sun_path) + n + 1;
	if (socket_name[0] == '@') {
		address.sun_path[0] = 0;
		length--;
	}
	connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connection < 0 || connect(connection, (struct sockaddr *)&address, length) != 0) {
		int code = ivm_fail(IVM_ERROR_REFUSED, "no node answers at %s (start one with muster node): %s", socket_name, strerror(errno));
		if (connection >= 0)
			close(connection);
		connection = -1;
		return code;
	}
	const char greeting[] = "{\"request\":\"ivm\"}\n", welcome[] = "{}\n";
	char said[sizeof welcome] = "";
	if (!write_all(greeting, sizeof greeting - 1) || !read_all(said, sizeof welcome - 1, NULL) || strcmp(said, welcome) != 0) {
		hang_up();
		return ivm_fail(IVM_ERROR_REFUSED, "the node at %s takes no elements: is it of the same version?", socket_name);
	}
	return IVM_OK;
}

/* launch says how the program is started: see proto.Launch. The caller frees it. */
static char *launch(size_t *n)
{
	char path[PATH_MAX], folder[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	if (length < 0 || !getcwd(folder, sizeof folder))
		return NULL;
	path[length] = 0;
	size_t args, room = 0;
	char *line = whole_file("/proc/self/cmdline", &args), *text = NULL;
	int count = 0;
	for (size_t i = 0; line && i < args; i++)
		count += line[i] == 0;
	FILE *out = open_memstream(&text, &room);
	if (line && out) {
		extern char **environ;
		const char *nodes = getenv("MUSTER_IVM_NODES");
		fprintf(out, "%s%c%s%c%s%c%d%c", nodes ? nodes : "", 0, path, 0, folder, 0, count, 0);
		fwrite(line, 1, args, out);
		for (char **e = environ; *e; e++)
			fprintf(out, "%s%c", *e, 0);
	}
	if (out && fclose(out) == 0)
		*n = room;
	free(line);
	return text;
}

/* send_launch sends the first frame of a program, with the descriptors of its output. */
static bool send_launch(struct frame *f, const char *tail)
{
	int output[2] = {1, 2};
	char control[CMSG_SPACE(sizeof output)];
	memset(control, 0, sizeof control);
	struct iovec part = {f, sizeof *f};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof output);
	memcpy(CMSG_DATA(c), output, sizeof output);
	return sendmsg(connection, &message, MSG_NOSIGNAL) == sizeof *f && write_all(tail, f->length);
}

static int open_gpu(void);

static int enter(void)
{
	const char *socket_name = getenv("MUSTER_SOCKET"), *mine = getenv("MUSTER_IVM");
	struct frame f = {.op = op_enter, .args = {0, version}};
	if (connection >= 0)
		return ivm_fail(IVM_ERROR_INVALID, "the element has entered already");
	int code = connect_to(socket_name && *socket_name ? socket_name : "@muster");
	if (code != IVM_OK)
		return code;
	if (mine && *mine) {
		unsigned long long program, id;
		int key = 0;
		if (sscanf(mine, "%llu:%llu:%n", &program, &id, &key) != 2 || key == 0) {
			hang_up();
			return ivm_fail(IVM_ERROR_INVALID, "MUSTER_IVM is %s: start the program with muster run", mine);
		}
		f.args[0] = program;
		f.args[2] = id;
		f.length = strlen(mine + key);
		if (!write_all(&f, sizeof f) || !write_all(mine + key, f.length))
			return hang_up();
	} else {
		size_t n = 0;
		char *tail = launch(&n);
		f.length = n;
		bool sent = tail && n <= max_tail && send_launch(&f, tail);
		free(tail);
		if (!sent)
			return hang_up();
	}
	char text[512] = "";
	if (!read_all(&f, sizeof f, NULL) || f.length >= sizeof text || !read_all(text, f.length, NULL))
		return hang_up();
	if (f.args[0] != 0) {
		hang_up();
		return ivm_fail(f.args[0], "%s", text);
	}
	over = false;
	my_id = f.args[1], my_group = f.args[2], my_kind = f.args[3], my_gpu = f.args[4], my_node = f.args[5];
	open_notes();
	return my_kind == IVM_GPU ? open_gpu() : IVM_OK;
}

EXPORT int ivmEnter(void)
{
	pthread_mutex_lock(&lock);
	int code = enter();
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int ivmExit(void)
{
	int code = ask(op_exit, 0, 0, 0, NULL, 0);
	pthread_mutex_lock(&lock);
	char why[sizeof last_error];
	memcpy(why, last_error, sizeof why); /* hanging up is no error then */
	hang_up();
	memcpy(last_error, why, sizeof why);
	pthread_mutex_unlock(&lock);
	return code;
}

/* --- devices and elements ------------------------------------------------------- */

EXPORT int ivmCreateDev(int node, int type, ivm_device *device)
{
	if (!device || (type != IVM_CPU && type != IVM_GPU && type < IVM_GPU_0))
		return ivm_fail(IVM_ERROR_INVALID, "there is no type %d of devices", type);
	*device = (ivm_device){node, type};
	return IVM_OK;
}

EXPORT int ivmDestroyDev(ivm_device device)
{
	(void)device; /* it is a value */
	return IVM_OK;
}

EXPORT int ivmCreated(void) { return last_created; }

EXPORT int ivmCreatePEs(ivm_device device, int count, ivm_pe *elements)
{
	int64_t number = device.type >= IVM_GPU_0 ? device.type - IVM_GPU_0 : -1;
	struct frame f = {.op = op_create, .args = {(uint64_t)(int64_t)device.node, device.type != IVM_CPU, (uint64_t)number, (uint64_t)(int64_t)count}};
	char *made = NULL;
	last_created = 0;
	if (count < 1)
		return ivm_fail(IVM_ERROR_INVALID, "%d elements cannot be created", count);
	int code = call(&f, NULL, NULL, &made);
	if (code == IVM_OK) {
		last_created = f.length / sizeof(ivm_pe);
		if (elements)
			memcpy(elements, made, f.length);
	}
	free(made);
	return code;
}

EXPORT int ivmKillPEs(ivm_device device, int count, const ivm_pe *elements)
{
	(void)device; /* their numbers say where they are */
	if (count < 1 || !elements)
		return ivm_fail(IVM_ERROR_INVALID, "no element is named");
	return ask(op_kill, 0, 0, 0, elements, count * sizeof *elements);
}

static int entered(void) { return connection >= 0 ? IVM_OK : is_over(); }

EXPORT int ivmGetMyId(int *id) { *id = my_id; return entered(); }
EXPORT int ivmGetMyGroupId(int *group) { *group = my_group; return entered(); }
EXPORT int ivmGetMyDevType(int *type) { *type = my_kind; return entered(); }
EXPORT int ivmGetMyNode(int *node) { *node = my_node; return entered(); }

EXPORT int ivmGetMyDev(ivm_device *device)
{
	*device = (ivm_device){my_node, my_kind == IVM_GPU ? IVM_GPU_N((int)my_gpu) : IVM_CPU};
	return entered();
}

EXPORT int ivmGetDevs(int type, ivm_device *devices, int most, int *count)
{
	struct frame f = {.op = op_devices};
	char *numbers = NULL; /* cores and GPUs of each node */
	if ((type != IVM_CPU && type != IVM_GPU) || !count || (most > 0 && !devices))
		return ivm_fail(IVM_ERROR_INVALID, "devices of type %d, or where they go, make no sense", type);
	int code = call(&f, NULL, NULL, &numbers);
	*count = 0;
	for (size_t node = 0; code == IVM_OK && node < f.length / 16; node++) {
		uint64_t there[2];
		memcpy(there, numbers + 16 * node, sizeof there);
		for (uint64_t i = 0; i < (type == IVM_CPU ? 1 : there[1]); i++, ++*count)
			if (*count < most)
				devices[*count] = (ivm_device){node, type == IVM_CPU ? IVM_CPU : IVM_GPU_N((int)i)};
	}
	free(numbers);
	return code;
}

EXPORT int ivmSetMaxPesId(int most) { return most < 0 ? ivm_fail(IVM_ERROR_INVALID, "no element has number %d", most) : ask(op_set_max, most, 0, 0, NULL, 0); }
EXPORT int ivmWait(ivm_pe element) { return ask(op_wait, element, 0, 0, NULL, 0); }
EXPORT int ivmWaitLatest(ivm_pe element) { return ask(op_wait, element, 1, 0, NULL, 0); }
EXPORT int ivmSignal(void) { return ask(op_signal, 0, 0, 0, NULL, 0); }
EXPORT int ivmBarrier(void) { return ask(op_barrier, 0, 0, 0, NULL, 0); }

EXPORT int ivmWaitAny(ivm_pe *element)
{
	struct frame f = {.op = op_wait_any};
	int code = call(&f, NULL, NULL, NULL);
	if (element && (code == IVM_OK || code == IVM_ERROR_DEAD))
		*element = f.args[1];
	return code;
}

/* --- GPUs ----------------------------------------------------------------------- */

static int cuda_failed(int result, const char *what) { return ivm_fail(IVM_ERROR_CUDA, "%s failed on the element's GPU: CUDA error %d", what, result); }

static int open_gpu(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		return ivm_fail(IVM_ERROR_CUDA, "an element on a GPU needs libcuda.so.1 (muster run sets where it is): %s", dlerror());
	struct {
		const char *name;
		void *to;
	} functions[] = {
		{"cuInit", &cuda.init}, {"cuDeviceGet", &cuda.device}, {"cuDevicePrimaryCtxRetain", &cuda.retain},
		{"cuCtxPushCurrent_v2", &cuda.push}, {"cuCtxPopCurrent_v2", &cuda.pop}, {"cuMemAlloc_v2", &cuda.alloc},
		{"cuMemFree_v2", &cuda.release}, {"cuMemcpyHtoD_v2", &cuda.in}, {"cuMemcpyDtoH_v2", &cuda.out},
	};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *f = dlsym(library, functions[i].name);
		if (!f)
			return ivm_fail(IVM_ERROR_CUDA, "libcuda.so.1 has no %s", functions[i].name);
		memcpy(functions[i].to, &f, sizeof f);
	}
	int device, result = cuda.init(0);
	if (result == 0)
		result = cuda.device(&device, my_gpu);
	if (result == 0)
		result = cuda.retain(&cuda.context, device);
	if (result == 0) /* it stays: kernels of the program run there */
		result = cuda.push(cuda.context);
	return result == 0 ? IVM_OK : cuda_failed(result, "opening the device");
}

/* to_device copies bytes of the node's copy to the device buffer. */
static int to_device(struct mapping *m, uint64_t from, uint64_t n)
{
	const char *host = m->host + m->offset + from;
	void *before;
	memcpy(m->twin + from, host, n); /* others may go on writing: both get the same */
	int result = cuda.push(cuda.context);
	if (result == 0)
		result = cuda.in((uint64_t)(uintptr_t)m->memory + from, m->twin + from, n);
	if (result == 0)
		result = cuda.pop(&before);
	return result == 0 ? IVM_OK : cuda_failed(result, "copying to the device");
}

/* merge stores the bytes that have changed in twin and host, and no others: other elements may write
 * those. Processors with masked stores do many at a time. */
static inline __attribute__((always_inline)) void merge_bytes(const char *restrict now, char *restrict twin, char *restrict host, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (now[i] != twin[i])
			host[i] = twin[i] = now[i];
}

#if defined __x86_64__ && defined __GNUC__ && !defined __clang__
__attribute__((target("avx512bw"), optimize("O3"))) static void merge_wide(const char *restrict now, char *restrict twin, char *restrict host, size_t n)
{
	merge_bytes(now, twin, host, n);
}

static void merge(const char *now, char *twin, char *host, size_t n)
{
	if (__builtin_cpu_supports("avx512bw"))
		merge_wide(now, twin, host, n);
	else
		merge_bytes(now, twin, host, n);
}
#else
static void merge(const char *now, char *twin, char *host, size_t n) { merge_bytes(now, twin, host, n); }
#endif

/* from_device writes the bytes of the device buffer that have changed to the node's copy. */
static int from_device(struct mapping *m, uint64_t from, uint64_t n)
{
	enum { piece = 1 << 20 };
	char *host = m->host + m->offset, *now = malloc(n < piece ? n : piece);
	void *before;
	if (!now)
		return ivm_fail(IVM_ERROR_NO_MEMORY, "there is no memory to compare the device's with");
	int result = cuda.push(cuda.context);
	for (uint64_t end = from + n; result == 0 && from < end;) {
		uint64_t part = end - from < piece ? end - from : piece;
		result = cuda.out(now, (uint64_t)(uintptr_t)m->memory + from, part);
		for (uint64_t i = 0; result == 0 && i < part; i += 4096) {
			size_t some = part - i < 4096 ? part - i : 4096;
			if (memcmp(now + i, m->twin + from + i, some) != 0)
				merge(now + i, m->twin + from + i, host + from + i, some);
		}
		from += part;
	}
	if (result == 0)
		result = cuda.pop(&before);
	free(now);
	return result == 0 ? IVM_OK : cuda_failed(result, "copying from the device");
}

/* --- memory --------------------------------------------------------------------- */

static uint64_t whole_pages(uint64_t n) { return (n + page - 1) / page * page; }

static bool is_gone(const struct mapping *m)
{
	return __atomic_load_n((const uint32_t *)(m->host + whole_pages(m->size)), __ATOMIC_ACQUIRE) != 0;
}

/* find is the mapping that has an address; *offset is where in the object. */
static struct mapping *find(const void *memory, uint64_t *offset)
{
	for (struct mapping *m = mappings; m; m = m->next) {
		uintptr_t at = (uintptr_t)memory - (uintptr_t)m->memory;
		if (at < m->length) {
			if (offset)
				*offset = m->offset + at;
			return m;
		}
	}
	return NULL;
}

/* known is a mapping of these bytes of an object that is still there. */
static struct mapping *known(const char *name, uint64_t offset, uint64_t length)
{
	for (struct mapping *m = mappings; m; m = m->next)
		if (strcmp(m->name, name) == 0 && m->offset == offset && (m->length == length || (length == 0 && m->length == m->size)) && !is_gone(m))
			return m;
	return NULL;
}

static void forget(struct mapping *m)
{
	for (struct mapping **at = &mappings; *at; at = &(*at)->next)
		if (*at == m) {
			*at = m->next;
			break;
		}
	void *before;
	if (m->twin && cuda.push(cuda.context) == 0) {
		cuda.release((uint64_t)(uintptr_t)m->memory);
		cuda.pop(&before);
	}
	if (m->host)
		munmap(m->host, whole_pages(m->size) + page);
	free(m->twin);
	free(m->name);
	free(m);
}

/* take makes a mapping of the memory that came with a reply. */
static int take(const char *name, const struct frame *f, int file, uint64_t offset, uint64_t length, struct mapping **made)
{
	struct mapping *m = calloc(1, sizeof *m);
	if (!m || file < 0) {
		free(m);
		return ivm_fail(IVM_ERROR_REFUSED, "the node sent no memory for object %s", name);
	}
	m->number = f->args[1], m->size = f->args[2];
	m->offset = offset;
	m->length = length == 0 || length > m->size - offset ? m->size - offset : length;
	m->name = strdup(name);
	m->host = mmap(NULL, whole_pages(m->size) + page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (!m->name || m->host == MAP_FAILED) {
		m->host = NULL;
		forget(m);
		return ivm_fail(IVM_ERROR_NO_MEMORY, "mapping object %s: %s", name, strerror(errno));
	}
	m->memory = m->host + offset;
	int code = IVM_OK;
	if (my_kind == IVM_GPU) {
		uint64_t buffer = 0;
		void *before;
		m->twin = malloc(m->length);
		int result = cuda.push(cuda.context);
		if (result == 0)
			result = cuda.alloc(&buffer, m->length);
		if (result == 0)
			result = cuda.pop(&before);
		m->memory = (char *)(uintptr_t)buffer;
		code = !m->twin ? ivm_fail(IVM_ERROR_NO_MEMORY, "there is no memory for a twin") : result != 0 ? cuda_failed(result, "allocating memory") : to_device(m, 0, m->length);
	}
	if (code != IVM_OK) {
		forget(m);
		return code;
	}
	m->next = mappings;
	mappings = *made = m;
	return IVM_OK;
}

/* obtain maps an object, or allocates it. */
static int obtain(enum op op, const char *name, void *pointer, uint64_t offset, uint64_t length)
{
	if (!name || !pointer)
		return ivm_fail(IVM_ERROR_INVALID, "an object's name, or where its address goes, is missing");
	pthread_mutex_lock(&lock);
	struct mapping *m = op == op_map ? known(name, offset, length) : NULL;
	int code = IVM_OK, file = -1;
	if (!m) {
		struct frame f = {.op = op, .length = strlen(name), .args = {op == op_map ? offset : length, length}};
		pthread_mutex_unlock(&lock);
		code = call(&f, name, &file, NULL);
		pthread_mutex_lock(&lock);
		if (code == IVM_OK && op == op_map && (m = known(name, offset, length)))
			close(file); /* another thread has mapped it meanwhile */
		else if (code == IVM_OK)
			code = take(name, &f, file, offset, length, &m);
	}
	if (code == IVM_OK)
		memcpy(pointer, &m->memory, sizeof m->memory);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int ivmMalloc(const char *name, void *pointer, size_t size) { return obtain(op_malloc, name, pointer, 0, size); }

EXPORT int ivmMap(const char *name, void *pointer, size_t size)
{
	void *memory = NULL;
	int code = obtain(op_map, name, &memory, 0, 0);
	if (code != IVM_OK)
		return code;
	pthread_mutex_lock(&lock);
	uint64_t there = find(memory, NULL)->size;
	pthread_mutex_unlock(&lock);
	if (there < size)
		return ivm_fail(IVM_ERROR_INVALID, "object %s has %llu bytes, less than %zu", name, (unsigned long long)there, size);
	memcpy(pointer, &memory, sizeof memory);
	return IVM_OK;
}

EXPORT int ivmMapSubset(const char *name, void *pointer, size_t offset, size_t size)
{
	if (size == 0)
		return ivm_fail(IVM_ERROR_INVALID, "no bytes of object %s are named", name);
	return obtain(op_map, name, pointer, offset, size);
}

static int not_mapped(const void *memory) { return ivm_fail(IVM_ERROR_INVALID, "no object is mapped at %p", memory); }

EXPORT int ivmUnmap(void *memory)
{
	pthread_mutex_lock(&lock);
	struct mapping *m = find(memory, NULL);
	if (m)
		forget(m);
	pthread_mutex_unlock(&lock);
	return m ? IVM_OK : not_mapped(memory);
}

EXPORT int ivmFree(void *memory)
{
	pthread_mutex_lock(&lock);
	struct mapping *m = find(memory, NULL);
	char *name = m ? strdup(m->name) : NULL;
	pthread_mutex_unlock(&lock);
	if (!name)
		return not_mapped(memory);
	int code = ask(op_free, 0, 0, 0, name, strlen(name));
	free(name);
	return code == IVM_OK ? ivmUnmap(memory) : code;
}

EXPORT void *ivmHost(const void *memory)
{
	uint64_t offset;
	pthread_mutex_lock(&lock);
	struct mapping *m = find(memory, &offset);
	pthread_mutex_unlock(&lock);
	return m ? m->host + offset : NULL;
}

/* begin_exchange makes the frame of a put or get of bytes. Those beyond the object are left out:
 * Listing 5-1 names some. What kernels changed is in the node's copy then. */
static int begin_exchange(enum op op, void *memory, size_t *size, struct frame *f, bool *on_gpu)
{
	uint64_t offset;
	pthread_mutex_lock(&lock);
	struct mapping *m = find(memory, &offset);
	int code = m ? IVM_OK : not_mapped(memory);
	if (m && *size > m->offset + m->length - offset)
		*size = m->offset + m->length - offset;
	if (m && m->twin && op == op_put)
		code = from_device(m, offset - m->offset, *size);
	if (m) {
		*f = (struct frame){.op = op, .args = {m->number, offset, *size}};
		*on_gpu = m->twin;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* end_get brings what an element on a GPU got to the device, if it is still mapped. */
static int end_get(void *memory, size_t size)
{
	uint64_t offset;
	pthread_mutex_lock(&lock);
	struct mapping *m = find(memory, &offset);
	int code = m && m->twin ? to_device(m, offset - m->offset, size) : IVM_OK;
	pthread_mutex_unlock(&lock);
	return code;
}

static int synchronise(enum op op, void *memory, size_t size, bool all)
{
	struct frame f;
	bool on_gpu;
	int code = begin_exchange(op, memory, &size, &f, &on_gpu);
	f.args[3] = all;
	if (code == IVM_OK)
		code = call(&f, NULL, NULL, NULL);
	return code == IVM_OK && on_gpu && op == op_get ? end_get(memory, size) : code;
}

EXPORT int ivmSyncPut(void *memory, size_t size) { return synchronise(op_put, memory, size, false); }
EXPORT int ivmSyncOverwrite(void *memory, size_t size) { return synchronise(op_put, memory, size, true); }
EXPORT int ivmSyncGet(void *memory, size_t size) { return synchronise(op_get, memory, size, false); }

/* --- asynchronous forms --------------------------------------------------------- */

/* unanswered counts the asynchronous requests that have no reply. The caller holds talk. */
static int unanswered(void)
{
	int n = 0;
	for (struct request *r = started; r; r = r->later)
		n += !r->done;
	return n;
}

static int start(enum op op, void *memory, size_t size, ivm_request *request)
{
	struct frame f;
	bool on_gpu;
	struct request *r = request ? calloc(1, sizeof *r) : NULL;
	if (!r)
		return request ? ivm_fail(IVM_ERROR_NO_MEMORY, "there is no memory for a request") : ivm_fail(IVM_ERROR_INVALID, "it is not said where the request goes");
	int code = begin_exchange(op, memory, &size, &f, &on_gpu);
	if (code == IVM_OK && on_gpu && op == op_get)
		r->memory = memory, r->size = size;
	pthread_mutex_lock(&talk);
	while (code == IVM_OK && !over && unanswered() >= max_unanswered)
		read_or_wait();
	pthread_mutex_unlock(&talk);
	r->asked = f;
	r->begun = clock_of(CLOCK_MONOTONIC);
	if (code == IVM_OK)
		code = submit(r, &f, NULL);
	if (code != IVM_OK) {
		free(r);
		return code;
	}
	pthread_mutex_lock(&talk);
	r->later = started;
	started = r;
	pthread_mutex_unlock(&talk);
	*request = r->tag;
	return IVM_OK;
}

EXPORT int ivmAsyncPut(void *memory, size_t size, ivm_request *request) { return start(op_put, memory, size, request); }
EXPORT int ivmAsyncGet(void *memory, size_t size, ivm_request *request) { return start(op_get, memory, size, request); }

/* place is where a request is in the list; one that is not there at the end. The caller holds talk. */
static struct request **place(ivm_request request)
{
	struct request **at = &started;
	while (*at && (*at)->tag != request)
		at = &(*at)->later;
	return at;
}

EXPORT int ivmAsyncTest(ivm_request request, int *done)
{
	pthread_mutex_lock(&talk);
	struct pollfd readable = {.fd = connection, .events = POLLIN};
	while (*place(request) && !(*place(request))->done && !reading && !over && poll(&readable, 1, 0) > 0)
		read_one();
	struct request *r = *place(request);
	if (r && done)
		*done = r->done;
	pthread_mutex_unlock(&talk);
	return r ? IVM_OK : ivm_fail(IVM_ERROR_INVALID, "there is no request %llu, or it was waited for", (unsigned long long)request);
}

EXPORT int ivmAsyncWait(ivm_request request)
{
	pthread_mutex_lock(&talk);
	struct request **at = place(request), *r = *at;
	if (r)
		*at = r->later; /* nobody else waits for it */
	while (r && !r->done)
		read_or_wait();
	pthread_mutex_unlock(&talk);
	if (!r)
		return ivm_fail(IVM_ERROR_INVALID, "there is no request %llu, or it was waited for", (unsigned long long)request);
	int code = r->lost ? is_over() : (int)r->reply.args[0];
	if (!r->lost)
		note(&r->asked, NULL, &r->reply, r->begun); /* until it was waited for: when it was answered is not known */
	if (!r->lost && code != IVM_OK)
		ivm_fail(code, "%s", r->text);
	if (code == IVM_OK && r->memory)
		code = end_get(r->memory, r->size);
	if (!r->lost && r->file >= 0)
		close(r->file);
	free(r->text);
	free(r);
	return code;
}

/* --- groups --------------------------------------------------------------------- */

/* synchronise_group does one object after the other. The caller's own device buffer takes part. */
static int synchronise_group(enum op op, void *const *memory, const size_t *sizes, int count)
{
	int code = count > 0 && memory && sizes ? IVM_OK : ivm_fail(IVM_ERROR_INVALID, "no memory is named");
	for (int i = 0; code == IVM_OK && i < count; i++) {
		struct frame f;
		size_t size = sizes[i];
		bool on_gpu;
		code = begin_exchange(op_put, memory[i], &size, &f, &on_gpu);
		uint64_t range[] = {f.args[1], size};
		if (code == IVM_OK)
			code = ask(op, f.args[0], 0, 0, range, sizeof range);
	}
	return code;
}

EXPORT int ivmSyncPutGroup(void *const *memory, const size_t *sizes, int count) { return synchronise_group(op_put_group, memory, sizes, count); }
EXPORT int ivmSyncGetGroup(void *const *memory, const size_t *sizes, int count) { return synchronise_group(op_get_group, memory, sizes, count); }
