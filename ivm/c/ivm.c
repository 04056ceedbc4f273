/* The element's part of IVM in C. The protocol is that of package muster/ivm/proto: see there.
 *
 * One connection, one lock: a call sends its frame and waits for the reply. An element on a GPU has
 * a device buffer of each object that it maps, which is a mirror of the node's copy as that is of
 * the master: put compares the buffer with a twin and writes the bytes that differ to the node's
 * copy, get copies that into the buffer. CUDA is found at run time, so that elements on CPUs need
 * none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivm.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { page = 4096, max_tail = 2 << 20, version = 1, with_file = 1 };

enum op {
	op_reply, op_enter, op_exit, op_create, op_kill, op_set_max, op_wait, op_wait_any, op_signal, op_barrier,
	op_malloc, op_free, op_map, op_put, op_get, op_put_group, op_get_group,
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
	char *twin;            /* what the device buffer was known to contain; NULL on a CPU */
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
static uint64_t my_id, my_group, my_kind, my_gpu, my_node, last_tag;
static struct mapping *mappings;

static __thread char last_error[512];
static __thread int last_created;

static int fail(int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(last_error, sizeof last_error, format, args);
	va_end(args);
	return code;
}

EXPORT const char *ivmLastError(void) { return last_error; }

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

static int broken(void)
{
	if (connection >= 0)
		close(connection);
	connection = -1;
	return fail(IVM_ERROR_OVER, "the node has ended the connection: the program is over, or its node is");
}

/* call sends a frame and waits for the reply, whose tail, if it is wanted, the caller frees. */
static int call(struct frame *f, const void *tail, int *file, char **answer)
{
	if (connection < 0)
		return fail(IVM_ERROR_OVER, "the element has not entered, or the program is over");
	f->tag = ++last_tag;
	if (!write_all(f, sizeof *f) || (f->length > 0 && !write_all(tail, f->length)))
		return broken();
	int got = -1;
	if (!read_all(f, sizeof *f, &got) || f->op != op_reply || f->tag != last_tag || f->length > max_tail)
		return broken();
	char *text = malloc(f->length + 1);
	if (!text || !read_all(text, f->length, NULL)) {
		free(text);
		return broken();
	}
	text[f->length] = 0;
	int code = f->args[0];
	if (code != 0)
		fail(code, "%s", text);
	if (answer && code == 0)
		*answer = text;
	else
		free(text);
	if (file && code == 0)
		*file = got;
	else if (got >= 0)
		close(got);
	return code;
}

/* ask is call for those who want no more than to know that it was done. */
static int ask(enum op op, uint64_t a, uint64_t b, uint64_t c, const void *tail, size_t length)
{
	struct frame f = {.op = op, .length = length, .args = {a, b, c}};
	pthread_mutex_lock(&lock);
	int code = call(&f, tail, NULL, NULL);
	pthread_mutex_unlock(&lock);
	return code;
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

static int connect_to(const char *socket_name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = strlen(socket_name);
	if (n >= sizeof address.sun_path)
		return fail(IVM_ERROR_INVALID, "the socket's name is too long: %s", socket_name);
	memcpy(address.sun_path, socket_name, n);
	socklen_t length = offsetof(struct sockaddr_un, sun_path) + n + 1;
	if (socket_name[0] == '@') {
		address.sun_path[0] = 0;
		length--;
	}
	connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connection < 0 || connect(connection, (struct sockaddr *)&address, length) != 0) {
		int code = fail(IVM_ERROR_REFUSED, "no node answers at %s (start one with muster node): %s", socket_name, strerror(errno));
		if (connection >= 0)
			close(connection);
		connection = -1;
		return code;
	}
	const char greeting[] = "{\"request\":\"ivm\"}\n", welcome[] = "{}\n";
	char said[sizeof welcome] = "";
	if (!write_all(greeting, sizeof greeting - 1) || !read_all(said, sizeof welcome - 1, NULL) || strcmp(said, welcome) != 0) {
		broken();
		return fail(IVM_ERROR_REFUSED, "the node at %s takes no elements: is it of the same version?", socket_name);
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
		return fail(IVM_ERROR_INVALID, "the element has entered already");
	int code = connect_to(socket_name && *socket_name ? socket_name : "@muster");
	if (code != IVM_OK)
		return code;
	if (mine && *mine) {
		unsigned long long program, id;
		int key = 0;
		if (sscanf(mine, "%llu:%llu:%n", &program, &id, &key) != 2 || key == 0) {
			broken();
			return fail(IVM_ERROR_INVALID, "MUSTER_IVM is %s: start the program with muster run", mine);
		}
		f.args[0] = program;
		f.args[2] = id;
		f.length = strlen(mine + key);
		if (!write_all(&f, sizeof f) || !write_all(mine + key, f.length))
			return broken();
	} else {
		size_t n = 0;
		char *tail = launch(&n);
		f.length = n;
		bool sent = tail && n <= max_tail && send_launch(&f, tail);
		free(tail);
		if (!sent)
			return broken();
	}
	char text[512] = "";
	if (!read_all(&f, sizeof f, NULL) || f.length >= sizeof text || !read_all(text, f.length, NULL))
		return broken();
	if (f.args[0] != 0) {
		broken();
		return fail(f.args[0], "%s", text);
	}
	my_id = f.args[1], my_group = f.args[2], my_kind = f.args[3], my_gpu = f.args[4], my_node = f.args[5];
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
	struct frame f = {.op = op_exit};
	pthread_mutex_lock(&lock);
	int code = call(&f, NULL, NULL, NULL);
	if (connection >= 0)
		close(connection);
	connection = -1;
	pthread_mutex_unlock(&lock);
	return code;
}

/* --- devices and elements ------------------------------------------------------- */

EXPORT int ivmCreateDev(int node, int type, ivm_device *device)
{
	if (!device || (type != IVM_CPU && type != IVM_GPU && type < IVM_GPU_0))
		return fail(IVM_ERROR_INVALID, "there is no type %d of devices", type);
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
		return fail(IVM_ERROR_INVALID, "%d elements cannot be created", count);
	pthread_mutex_lock(&lock);
	int code = call(&f, NULL, NULL, &made);
	pthread_mutex_unlock(&lock);
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
		return fail(IVM_ERROR_INVALID, "no element is named");
	return ask(op_kill, 0, 0, 0, elements, count * sizeof *elements);
}

static int entered(void) { return connection >= 0 ? IVM_OK : fail(IVM_ERROR_OVER, "the element has not entered, or the program is over"); }

EXPORT int ivmGetMyId(int *id) { *id = my_id; return entered(); }
EXPORT int ivmGetMyGroupId(int *group) { *group = my_group; return entered(); }
EXPORT int ivmGetMyDevType(int *type) { *type = my_kind; return entered(); }
EXPORT int ivmGetMyNode(int *node) { *node = my_node; return entered(); }

EXPORT int ivmSetMaxPesId(int most) { return most < 0 ? fail(IVM_ERROR_INVALID, "no element has number %d", most) : ask(op_set_max, most, 0, 0, NULL, 0); }
EXPORT int ivmWait(ivm_pe element) { return ask(op_wait, element, 0, 0, NULL, 0); }
EXPORT int ivmSignal(void) { return ask(op_signal, 0, 0, 0, NULL, 0); }
EXPORT int ivmBarrier(void) { return ask(op_barrier, 0, 0, 0, NULL, 0); }

EXPORT int ivmWaitAny(ivm_pe *element)
{
	struct frame f = {.op = op_wait_any};
	pthread_mutex_lock(&lock);
	int code = call(&f, NULL, NULL, NULL);
	pthread_mutex_unlock(&lock);
	if (element && (code == IVM_OK || code == IVM_ERROR_DEAD))
		*element = f.args[1];
	return code;
}

/* --- GPUs ----------------------------------------------------------------------- */

static int cuda_failed(int result, const char *what) { return fail(IVM_ERROR_CUDA, "%s failed on the element's GPU: CUDA error %d", what, result); }

static int open_gpu(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		return fail(IVM_ERROR_CUDA, "an element on a GPU needs libcuda.so.1 (muster run sets where it is): %s", dlerror());
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
			return fail(IVM_ERROR_CUDA, "libcuda.so.1 has no %s", functions[i].name);
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

/* from_device writes the bytes of the device buffer that have changed to the node's copy. */
static int from_device(struct mapping *m, uint64_t from, uint64_t n)
{
	enum { piece = 1 << 20 };
	char *host = m->host + m->offset, *now = malloc(n < piece ? n : piece);
	void *before;
	if (!now)
		return fail(IVM_ERROR_NO_MEMORY, "there is no memory to compare the device's with");
	int result = cuda.push(cuda.context);
	for (uint64_t end = from + n; result == 0 && from < end;) {
		uint64_t part = end - from < piece ? end - from : piece;
		result = cuda.out(now, (uint64_t)(uintptr_t)m->memory + from, part);
		for (uint64_t i = 0; result == 0 && i < part;) {
			if (part - i >= 64 && memcmp(now + i, m->twin + from + i, 64) == 0) {
				i += 64;
				continue;
			}
			if (now[i] != m->twin[from + i])
				host[from + i] = m->twin[from + i] = now[i];
			i++;
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
		return fail(IVM_ERROR_REFUSED, "the node sent no memory for object %s", name);
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
		return fail(IVM_ERROR_NO_MEMORY, "mapping object %s: %s", name, strerror(errno));
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
		code = !m->twin ? fail(IVM_ERROR_NO_MEMORY, "there is no memory for a twin") : result != 0 ? cuda_failed(result, "allocating memory") : to_device(m, 0, m->length);
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
		return fail(IVM_ERROR_INVALID, "an object's name, or where its address goes, is missing");
	pthread_mutex_lock(&lock);
	struct mapping *m = op == op_map ? known(name, offset, length) : NULL;
	int code = IVM_OK, file = -1;
	if (!m) {
		struct frame f = {.op = op, .length = strlen(name), .args = {op == op_map ? offset : length, length}};
		code = call(&f, name, &file, NULL);
		if (code == IVM_OK)
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
		return fail(IVM_ERROR_INVALID, "object %s has %llu bytes, less than %zu", name, (unsigned long long)there, size);
	memcpy(pointer, &memory, sizeof memory);
	return IVM_OK;
}

EXPORT int ivmMapSubset(const char *name, void *pointer, size_t offset, size_t size)
{
	if (size == 0)
		return fail(IVM_ERROR_INVALID, "no bytes of object %s are named", name);
	return obtain(op_map, name, pointer, offset, size);
}

static int not_mapped(const void *memory) { return fail(IVM_ERROR_INVALID, "no object is mapped at %p", memory); }

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
	int code = IVM_OK;
	if (m) {
		struct frame f = {.op = op_free, .length = strlen(m->name)};
		code = call(&f, m->name, NULL, NULL);
		if (code == IVM_OK)
			forget(m);
	}
	pthread_mutex_unlock(&lock);
	return m ? code : not_mapped(memory);
}

EXPORT void *ivmHost(const void *memory)
{
	uint64_t offset;
	pthread_mutex_lock(&lock);
	struct mapping *m = find(memory, &offset);
	pthread_mutex_unlock(&lock);
	return m ? m->host + offset : NULL;
}

/* synchronise puts or gets bytes. Those beyond the object are left out: Listing 5-1 names some. */
static int synchronise(enum op op, void *memory, size_t size)
{
	uint64_t offset;
	pthread_mutex_lock(&lock);
	struct mapping *m = find(memory, &offset);
	int code = m ? IVM_OK : not_mapped(memory);
	if (m && size > m->offset + m->length - offset)
		size = m->offset + m->length - offset;
	if (code == IVM_OK && m->twin && op == op_put)
		code = from_device(m, offset - m->offset, size);
	if (code == IVM_OK) {
		struct frame f = {.op = op, .args = {m->number, offset, size}};
		code = call(&f, NULL, NULL, NULL);
	}
	if (code == IVM_OK && m->twin && op == op_get)
		code = to_device(m, offset - m->offset, size);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int ivmSyncPut(void *memory, size_t size) { return synchronise(op_put, memory, size); }
EXPORT int ivmSyncGet(void *memory, size_t size) { return synchronise(op_get, memory, size); }

/* synchronise_group does one object after the other. The caller's own device buffer takes part. */
static int synchronise_group(enum op op, void *const *memory, const size_t *sizes, int count)
{
	int code = count > 0 && memory && sizes ? IVM_OK : fail(IVM_ERROR_INVALID, "no memory is named");
	pthread_mutex_lock(&lock);
	for (int i = 0; code == IVM_OK && i < count; i++) {
		uint64_t range[2];
		struct mapping *m = find(memory[i], &range[0]);
		if (!m) {
			code = not_mapped(memory[i]);
			break;
		}
		uint64_t most = m->offset + m->length - range[0];
		range[1] = sizes[i] < most ? sizes[i] : most;
		if (m->twin)
			code = from_device(m, range[0] - m->offset, range[1]);
		struct frame f = {.op = op, .length = sizeof range, .args = {m->number}};
		if (code == IVM_OK)
			code = call(&f, range, NULL, NULL);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int ivmSyncPutGroup(void *const *memory, const size_t *sizes, int count) { return synchronise_group(op_put_group, memory, sizes, count); }
EXPORT int ivmSyncGetGroup(void *const *memory, const size_t *sizes, int count) { return synchronise_group(op_get_group, memory, sizes, count); }
