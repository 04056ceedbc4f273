// The connection to the daemon: finding it, saying hello, and attaching to a
// virtual device. Layer: transport.
//
// The protocol: the library connects, sends HELLO, and receives WELCOME and one DEVICE for each
// device. At first use of a device it sends ATTACH and receives ATTACHED with two descriptors: the
// ring and the data arena. From then on all messages go through the ring; the socket only
// tells by its end that the worker is gone.
#include "transport.h"

#include "../../nodesocket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_PARTS 8

static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER; // held while a client is made
static int first_socket = -1; // made by cuInit; the first device that is used takes it

struct record {
	uint16_t op;
	struct wire_reader body;
	int fds[2], fd_count;
	uint8_t bytes[WIRE_MAX_RECORD];
};

// The result of a connection that ended while it was set up. The caller tries again, since the
// node may be restarting.
#define TRY_AGAIN ((CUresult)-1)

static int open_socket(struct patience *patience) {
	struct sockaddr_un address;
	socklen_t size;
	if (!node_address(&address, &size)) {
		complain("muster: MUSTER_SOCKET is longer than the name of a socket may be");
		return -1;
	}
	const char *path = node_path();
	int fd = node_socket(0);
	if (fd < 0)
		return -1;
	while (connect(fd, (struct sockaddr *)&address, size) < 0) {
		if (errno == EINTR)
			continue;
		if ((errno == ECONNREFUSED || errno == ENOENT) && node_wait(path, patience))
			continue;
		complain("muster: no daemon at %s (%s): start the program with `muster run -- PROGRAM`", path, strerror(errno));
		close(fd);
		return -1;
	}
	return fd;
}

static bool peer_is_trusted(int fd) {
	uid_t uid;
	if (node_is_trusted(fd, &uid))
		return true;
	if (uid != (uid_t)-1)
		complain("muster: the daemon runs as user %u: set MUSTER_UID=%u if that is right", (unsigned)uid, (unsigned)uid);
	return false;
}

static bool send_all(int fd, const uint8_t *data, size_t size) {
	while (size > 0) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		size -= (size_t)n;
	}
	return true;
}

static void take_descriptors(struct msghdr *message, struct record *r) {
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (r->fd_count < 2)
				r->fds[r->fd_count++] = fd;
			else
				close(fd);
		}
	}
}

static bool receive_all(int fd, uint8_t *data, size_t size, struct record *r) {
	while (size > 0) {
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(8 * sizeof(int))];
		} control;
		struct iovec part = {data, size};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
		ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		take_descriptors(&message, r);
		data += n;
		size -= (size_t)n;
	}
	return true;
}

// Receives a record. If it is a refusal, prints the reason and returns the refusal's result.
static CUresult receive(int fd, struct record *r, uint16_t op) {
	struct wire_frame frame;
	r->fd_count = 0;
	if (!receive_all(fd, (uint8_t *)&frame, sizeof frame, r))
		return TRY_AGAIN;
	if (frame.size > WIRE_MAX_RECORD || frame.zero != 0 || !receive_all(fd, r->bytes, frame.size, r)) {
		complain("muster: what the daemon sent is damaged");
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
	r->op = frame.op;
	r->body = (struct wire_reader){r->bytes, r->bytes + frame.size, false};
	struct wire_refused refused;
	if (frame.op == WIRE_REFUSED && wire_refused_get(&r->body, &refused)) {
		if (refused.result == CUDA_ERROR_NOT_READY)
			return TRY_AGAIN;
		complain("muster: %.*s", (int)refused.reason.size, (const char *)refused.reason.data);
		return refused.result > 0 ? (CUresult)refused.result : CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
	if (frame.op != op) {
		complain("muster: the daemon answered with message %u where %u was due: its version may differ from the library's", frame.op, op);
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	return CUDA_SUCCESS;
}

static CUresult damaged(const char *what) {
	complain("muster: %s from the daemon is damaged: its version may differ from the library's", what);
	return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
}

static CUresult read_device(struct record *r, struct device *d) {
	struct wire_device m;
	if (!wire_device_get(&r->body, &m) || m.attributes.size % 8 != 0)
		return damaged("the description of a device");
	memset(d, 0, sizeof *d);
	d->memory = m.memory;
	memcpy(d->name, m.name.data, m.name.size < sizeof d->name ? m.name.size : sizeof d->name - 1);
	memcpy(d->uuid, m.uuid.data, m.uuid.size < 16 ? m.uuid.size : 16);
	for (uint32_t i = 0; i < m.attributes.size; i += 8) {
		uint32_t number;
		int32_t value;
		memcpy(&number, (const uint8_t *)m.attributes.data + i, 4);
		memcpy(&value, (const uint8_t *)m.attributes.data + i + 4, 4);
		if (number < MAX_ATTRIBUTE)
			d->attributes[number] = value;
	}
	return CUDA_SUCCESS;
}

// Reads how much memory the program may have; 0 if MUSTER_MEMORY is not set.
static bool read_limit(uint64_t *bytes) {
	const char *text = getenv("MUSTER_MEMORY");
	*bytes = 0;
	if (text == NULL || text[0] == 0)
		return true;
	char *end = NULL;
	errno = 0;
	if (text[0] >= '0' && text[0] <= '9') // neither spaces nor signs
		*bytes = strtoull(text, &end, 10);
	if (*bytes > 0 && errno == 0 && *end == 0)
		return true;
	complain("muster: MUSTER_MEMORY is %.100s, which is no number of bytes: unset it, or give a whole number above 0", text);
	return false;
}

// Reads a whole number from 1 to most from the environment; 0 if the user set none.
static bool read_whole(const char *name, unsigned most, uint32_t *number) {
	const char *text = setting(name);
	*number = 0;
	if (text == NULL || text[0] == 0)
		return true;
	char *end = NULL;
	unsigned long long value = 0;
	if (text[0] >= '0' && text[0] <= '9') // neither spaces nor signs
		value = strtoull(text, &end, 10);
	if (value >= 1 && value <= most && *end == 0) {
		*number = (uint32_t)value;
		return true;
	}
	complain("muster: %s is %.100s: unset it, or give a whole number from 1 to %u", name, text, most);
	return false;
}

static bool say_hello(int fd) {
	char program[64] = "";
	snprintf(program, sizeof program, "%s", program_invocation_short_name);
	const char *token = setting("MUSTER_TOKEN");
	uint64_t memory;
	size_t token_size = token != NULL ? strlen(token) : 0;
	if (token_size > 4096) {
		complain("muster: MUSTER_TOKEN is longer than a token may be");
		return false;
	}
	if (!read_limit(&memory))
		return false;
	// Its weight among the programs of its user; and the percentage of the multiprocessors that
	// it may use.
	uint32_t weight, share;
	if (!read_whole("MUSTER_WEIGHT", 1000, &weight) || !read_whole("MUSTER_SHARE", 100, &share))
		return false;
	// How many devices it sees; and how many decisions of the mapper are explained.
	uint32_t gpus, explain;
	if (!read_whole("MUSTER_GPUS", 16, &gpus) || !read_whole("MUSTER_EXPLAIN", 1000, &explain))
		return false;
	const char *mapping = setting("MUSTER_MAPPING");
	size_t mapping_size = mapping != NULL ? strlen(mapping) : 0;
	if (mapping_size > 1000) // the daemon says what it may be
		mapping_size = 1000;
	const char *class = setting("MUSTER_CLASS");
	size_t class_size = class != NULL ? strlen(class) : 0;
	if (class_size > 100) // the daemon says what it may be
		class_size = 100;
	struct wire_hello hello = {
		.magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.schema = WIRE_SCHEMA,
		.pid = (uint32_t)getpid(),
		.memory = memory,
		.program = {program, (uint32_t)strlen(program)},
		.token = {token, (uint32_t)token_size},
		.weight = weight,
		.class = {class, (uint32_t)class_size},
		.share = share,
		.mapping = {mapping, (uint32_t)mapping_size},
		.gpus = gpus,
		.explain = explain,
	};
	uint8_t bytes[sizeof(struct wire_frame) + 8192];
	struct wire_frame frame = {.size = (uint32_t)wire_hello_size(&hello), .op = WIRE_HELLO};
	memcpy(bytes, &frame, sizeof frame);
	wire_hello_put(bytes + sizeof frame, &hello);
	// A failure is ignored: the daemon may have sent a reason before it closed the connection,
	// and the caller's receive reads it.
	send_all(fd, bytes, sizeof frame + frame.size);
	return true;
}

// Connects and reads the descriptions of devices. Only the first connection stores them: what
// the program has learned at cuInit must not change.
static CUresult try_connection(int *out, bool first, struct patience *patience) {
	int fd = open_socket(patience);
	if (fd < 0)
		return CUDA_ERROR_NO_DEVICE;
	struct record *r = malloc(sizeof *r);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == NULL)
		goto fail;
	result = CUDA_ERROR_NO_DEVICE;
	if (!peer_is_trusted(fd) || !say_hello(fd))
		goto fail;
	result = receive(fd, r, WIRE_WELCOME);
	if (result != CUDA_SUCCESS)
		goto fail;
	struct wire_welcome welcome;
	if (!wire_welcome_get(&r->body, &welcome) || welcome.version != WIRE_VERSION || welcome.devices > MAX_DEVICES) {
		result = damaged("the greeting");
		goto fail;
	}
	if (welcome.devices == 0) {
		result = CUDA_ERROR_NO_DEVICE;
		goto fail;
	}
	for (uint32_t i = 0; i < welcome.devices; i++) {
		struct device later;
		result = receive(fd, r, WIRE_DEVICE);
		if (result == CUDA_SUCCESS)
			result = read_device(r, first ? &devices[i] : &later);
		if (result != CUDA_SUCCESS)
			goto fail;
	}
	if (first) {
		device_count = (int)welcome.devices;
		driver_version = (int)welcome.driver;
	}
	free(r);
	*out = fd;
	return CUDA_SUCCESS;
fail:
	free(r);
	close(fd);
	return result;
}

// Returns whether the caller should try again. If the result was TRY_AGAIN and the node does not
// come back, prints so and replaces the result.
static bool tries_again(CUresult *result, struct patience *patience) {
	if (*result != TRY_AGAIN)
		return false;
	if (node_wait(node_path(), patience))
		return true;
	complain("muster: the daemon closed the connection: " START_AGAIN);
	*result = CUDA_ERROR_DEVICE_UNAVAILABLE;
	return false;
}

CUresult client_connect(void) {
	struct patience patience = {0};
	CUresult result;
	do
		result = try_connection(&first_socket, true, &patience);
	while (tries_again(&result, &patience));
	return result;
}

// Maps a descriptor, at the wished address if that is free, otherwise anywhere. Children do not
// inherit the mapping.
static CUresult map_shared(int fd, uint64_t wish, void **at, size_t *size) {
	struct stat info;
	if (fstat(fd, &info) < 0 || info.st_size <= 0)
		return damaged("the shared memory");
	*size = (size_t)info.st_size;
	void *mapped = MAP_FAILED;
	if (wish != 0 && wish % 4096 == 0)
		mapped = mmap((void *)wish, *size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	if (mapped == MAP_FAILED)
		mapped = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED) {
		complain("muster: %zu bytes of shared memory cannot be mapped (%s): raise the program's limit of address space (ulimit -v)", *size, strerror(errno));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	madvise(mapped, *size, MADV_DONTFORK);
	*at = mapped;
	return CUDA_SUCCESS;
}

// The worker writes the head of the ring, so it is checked before any of its numbers is used, and
// on a copy, so that the worker cannot change it afterwards.
static bool geometry_is_sound(const struct wire_ring *r, size_t ring_bytes, size_t arena_bytes) {
	return r->magic == WIRE_MAGIC && r->version == WIRE_VERSION && r->schema == WIRE_SCHEMA &&
	       r->slots == WIRE_SLOTS && r->ring_size >= 2 * WIRE_MAX_MESSAGE && (r->ring_size & (r->ring_size - 1)) == 0 &&
	       r->ring_size <= ring_bytes - WIRE_RING_AT && r->arena_size <= arena_bytes &&
	       r->staging_size >= WIRE_MAX_MESSAGE && r->staging_size <= r->arena_size &&
	       r->bounce_size >= WIRE_BOUNCE && r->bounce_size <= r->arena_size - r->staging_size && r->bounce_size % WIRE_BOUNCE == 0;
}

static CUresult map_memory(struct client *c, const int fds[2], uint64_t *ring_size) {
	size_t ring_bytes = 0, arena_bytes = 0;
	void *ring = NULL, *arena = NULL;
	struct wire_ring head = {0};
	CUresult result = map_shared(fds[0], 0, &ring, &ring_bytes);
	if (result == CUDA_SUCCESS && ring_bytes >= WIRE_RING_AT)
		memcpy(&head, ring, sizeof head);
	if (result == CUDA_SUCCESS)
		result = map_shared(fds[1], head.arena_at, &arena, &arena_bytes);
	if (result == CUDA_SUCCESS && !geometry_is_sound(&head, ring_bytes, arena_bytes))
		result = damaged("the shared memory");
	if (result != CUDA_SUCCESS) {
		if (ring != NULL)
			munmap(ring, ring_bytes);
		if (arena != NULL)
			munmap(arena, arena_bytes);
		return result;
	}
	c->shared = ring;
	c->arena.at = arena;
	c->arena.same_address = head.arena_at != 0 && head.arena_at == (uint64_t)(uintptr_t)arena;
	*ring_size = head.ring_size;
	c->arena.staging = head.staging_size;
	c->arena.bounce = head.bounce_size;
	c->arena.bytes = head.arena_size;
	return CUDA_SUCCESS;
}

// Reserves the device's addresses in the host's address space, so that no host memory can have an
// address of the device. False if something of the program is there already. A child
// inherits what its parent reserved, so the table survives a fork.
static bool reserve(uint64_t base, uint64_t size) {
#ifdef __SANITIZE_THREAD__ // the sanitizer uses these addresses itself
	return (void)base, (void)size, false;
#else
	static struct {
		uint64_t base, size;
	} ours[MAX_DEVICES]; // under attach_lock
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (ours[i].size > 0 && base >= ours[i].base && base - ours[i].base < ours[i].size)
			return size <= ours[i].size - (base - ours[i].base);
		if (ours[i].size > 0)
			continue;
		void *at = mmap((void *)base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (at != MAP_FAILED && (uint64_t)(uintptr_t)at != base) { // an old kernel ignores MAP_FIXED_NOREPLACE
			munmap(at, size);
			at = MAP_FAILED;
		}
		if (at != MAP_FAILED) {
			ours[i].base = base;
			ours[i].size = size;
		}
		return at != MAP_FAILED;
	}
	return false;
#endif
}

static size_t parts_size;
static struct {
	size_t at;
	void (*begin)(void *part);
} parts[MAX_PARTS];
static unsigned part_count;

size_t client_register(size_t size, void (*begin)(void *part)) {
	if (part_count == MAX_PARTS)
		abort(); // a part more than there is room for: raise MAX_PARTS
	size_t at = parts_size;
	parts[part_count].at = at;
	parts[part_count++].begin = begin;
	parts_size += (size + 15) & ~(size_t)15;
	return at;
}

static CUresult prepare(struct client *c, uint64_t ring_size) {
	atomic_init(&c->numbers, 1);
	pthread_mutex_init(&c->print_lock, NULL);
	notices_prepare(c);
	if (!ring_prepare(c, ring_size) || !answers_prepare(c))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; i < part_count; i++)
		if (parts[i].begin != NULL)
			parts[i].begin(client_part(c, parts[i].at));
	c->granted.reserved = reserve(c->granted.base, c->granted.size);
	return CUDA_SUCCESS;
}

static CUresult attach(struct client *c, struct record *r) {
	uint8_t bytes[sizeof(struct wire_frame) + 64];
	struct wire_attach message = {.device = (uint32_t)c->device, .place = (uint32_t)c->device};
	struct wire_frame frame = {.size = (uint32_t)wire_attach_size(&message), .op = WIRE_ATTACH};
	memcpy(bytes, &frame, sizeof frame);
	wire_attach_put(bytes + sizeof frame, &message);
	if (!send_all(c->socket, bytes, sizeof frame + frame.size))
		return TRY_AGAIN;
	CUresult result = receive(c->socket, r, WIRE_ATTACHED);
	struct wire_attached attached;
	uint64_t ring_size = 0;
	if (result == CUDA_SUCCESS && (!wire_attached_get(&r->body, &attached) || r->fd_count != 2 || attached.arena_base == 0 || attached.arena_size > UINT64_MAX - attached.arena_base))
		result = damaged("the device");
	if (result == CUDA_SUCCESS) {
		c->granted.base = attached.arena_base;
		c->granted.size = attached.arena_size;
		c->granted.memory = attached.memory;
		result = map_memory(c, r->fds, &ring_size);
	}
	if (result == CUDA_SUCCESS)
		result = prepare(c, ring_size);
	for (int i = 0; i < r->fd_count; i++)
		close(r->fds[i]);
	return result;
}

// Whether the daemon has closed an idle connection, as it may do to make room for other
// programs.
static bool hung_up(int fd) {
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static CUresult try_client(struct client *c, struct record *r, struct patience *patience) {
	c->socket = first_socket;
	first_socket = -1;
	if (c->socket >= 0 && hung_up(c->socket)) {
		close(c->socket);
		c->socket = -1;
	}
	CUresult result = c->socket >= 0 ? CUDA_SUCCESS : try_connection(&c->socket, false, patience);
	if (result == CUDA_SUCCESS) {
		result = attach(c, r);
		if (result != CUDA_SUCCESS)
			close(c->socket);
	}
	return result;
}

static CUresult open_client(int device, struct client **out) {
	struct client *c = aligned_alloc(_Alignof(struct client), sizeof *c + parts_size);
	struct record *r = malloc(sizeof *r);
	struct patience patience = {0};
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (c != NULL && r != NULL) {
		memset(c, 0, sizeof *c + parts_size);
		c->device = device;
		do
			result = try_client(c, r, &patience);
		while (tries_again(&result, &patience));
	}
	free(r);
	if (result == CUDA_SUCCESS)
		*out = c;
	else
		free(c);
	return result;
}

// A program that ignores a refusal may cause an attempt with every call. Within this time it gets
// the last refusal again, and the daemon is not asked.
#define ASK_AGAIN_AFTER 1 // second

static struct {
	CUresult result;
	struct timespec at;
} refusals[MAX_DEVICES]; // under attach_lock

static bool refused_lately(int device, CUresult *result) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	*result = refusals[device].result;
	return *result != CUDA_SUCCESS && now.tv_sec - refusals[device].at.tv_sec <= ASK_AGAIN_AFTER;
}

CUresult client_for(int device, struct client **out) {
	*out = client_at(device);
	if (*out != NULL)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&attach_lock);
	CUresult result = CUDA_SUCCESS;
	*out = client_at(device);
	if (*out == NULL && !refused_lately(device, &result)) {
		result = open_client(device, out);
		if (result == CUDA_SUCCESS && watching())
			timeline_attached(*out);
		if (result == CUDA_SUCCESS)
			client_publish(*out);
		refusals[device].result = result;
		clock_gettime(CLOCK_MONOTONIC_COARSE, &refusals[device].at);
	}
	pthread_mutex_unlock(&attach_lock);
	return result;
}

void client_forget_all(void) {
	pthread_mutex_init(&attach_lock, NULL);
	memset(refusals, 0, sizeof refusals);
	if (first_socket >= 0)
		close(first_socket);
	first_socket = -1;
	for (int i = 0; i < MAX_DEVICES; i++) {
		struct client *c = client_at(i);
		if (c != NULL && client_withdraw(c))
			close(c->socket);
	}
}

// Forgets a client whose worker is gone, so that the next use of the device makes a new one.
// Other threads may still have the pointer, so the struct is not freed. The pages of its arena
// are released, since none of the program's data is in them any more.
void client_drop(struct client *c) {
	if (!client_withdraw(c))
		return;
	close(c->socket);
	madvise(c->arena.at, c->arena.bytes, MADV_REMOVE);
}

CUresult notices_print(CUresult result) {
	if (result == CUDA_ERROR_NOT_READY) // no failure: programs poll with such calls
		return result;
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c != NULL)
			notices_while_waiting(c);
		if (c != NULL && result == CUDA_ERROR_ASSERT) // the first call that reports a failed assertion prints its text
			print_pending(c);
	}
	return result;
}
