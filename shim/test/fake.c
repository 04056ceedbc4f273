// A daemon and worker for the tests: it speaks the protocol over a real socket and
// real shared memory, and its device is its own memory. It runs in order and
// knows a few kernels by name.
//
//   fake SOCKET MODE [N]
//
// MODE: serve; refuse; garbage (N says of what kind); die and close (after N messages);
// lie (about how many notices there are); strict (functions of the program must have returned when
// memory is freed, as if they might still call the worker).
#include "../lib/transport/wire_gen.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BASE UINT64_C(0x600000000000)
#define SIZE (UINT64_C(64) << 30)
#define LIMIT (UINT64_C(8) << 30)
#define VARIABLE (BASE + SIZE)
#define RING (256u << 10)
#define STAGING (1u << 20)
#define BOUNCE (4u << 20)
#define ARENA (32u << 20)

static const char *mode;
static int count_down = -1;
static struct wire_ring *ring;
static uint8_t *arena, *memory;
static uint64_t used, sizes[65536], addresses[65536];
static size_t allocations;
static uint64_t textures; // made so far
static char image[1 << 20], printed[256];
static size_t image_size;
static uint64_t due[4096], running;
static unsigned due_first, due_count;
static uint16_t next_slot, waiting[256];
static unsigned waiting_count;

#define KERNELS 6
static const char *kernels[KERNELS] = {"add", "echo", "say", "fault", "slow", "nothing"};
static uint32_t kernel_of[1 << 20];

static void fail(const char *what) {
	fprintf(stderr, "fake: %s\n", what);
	_exit(1);
}

static uint8_t *at(uint64_t address, uint64_t size) {
	if (address < BASE || address > VARIABLE + 4096 || size > VARIABLE + 4096 - address)
		fail("an address that was never given out");
	return memory + (address - BASE);
}

static uint8_t *data_at(const struct wire_header *h) {
	if (h->data > ARENA || h->length > ARENA - h->data)
		fail("data outside of the arena");
	return arena + h->data;
}

static void reply(uint16_t slot, int32_t result, const void *payload, size_t size) {
	if (slot == 0)
		return;
	struct wire_slot *s = (struct wire_slot *)((uint8_t *)ring + WIRE_SLOTS_AT) + (slot - 1);
	s->result = result;
	s->size = (uint32_t)size;
	if (size > 0)
		memcpy(s->payload, payload, size);
	if (__atomic_exchange_n(&s->state, WIRE_DONE, __ATOMIC_SEQ_CST) == WIRE_SLEEPING)
		syscall(SYS_futex, &s->state, FUTEX_WAKE, 1000, NULL, NULL, 0);
}

static void wake_client(void) {
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->client_waits, __ATOMIC_SEQ_CST) != 0 && __atomic_exchange_n(&ring->client_waits, 0, __ATOMIC_SEQ_CST) != 0)
		syscall(SYS_futex, &ring->client_waits, FUTEX_WAKE, 1000, NULL, NULL, 0);
}

// Hands the next host function to whoever asks for one; answers those who wait for
// all of them.
static void host_functions(void) {
	if (next_slot != 0 && running == 0 && due_count > 0) {
		running = due[due_first++ % 4096];
		due_count--;
		reply(next_slot, 0, &running, sizeof running);
		next_slot = 0;
	}
	if (running == 0 && due_count == 0)
		while (waiting_count > 0)
			reply(waiting[--waiting_count], (int32_t)ring->status, NULL, 0);
}

static void notify(const char *line) {
	uint32_t at = ring->notices_written;
	for (; *line != 0; line++)
		ring->notices[at++ % WIRE_NOTICES] = *line;
	if (at - __atomic_load_n(&ring->notices_read, __ATOMIC_ACQUIRE) > WIRE_NOTICES)
		fail("notices are not read");
	__atomic_store_n(&ring->notices_written, strcmp(mode, "lie") == 0 ? at + WIRE_NOTICES : at, __ATOMIC_RELEASE);
}

static void launch(struct wire_reader *r) {
	uint32_t f[13];
	uint64_t stack;
	wire_get(r, f, sizeof f);
	wire_get(r, &stack, sizeof stack);
	struct wire_bytes params = wire_get_bytes(r);
	if (!wire_end(r))
		fail("a damaged launch");
	struct {
		uint64_t a, b, c;
		uint32_t n;
	} add;
	switch (kernel_of[f[0]]) {
	case 0:
		memcpy(&add, params.data, 28);
		for (uint32_t i = 0; i < add.n; i++)
			((float *)at(add.c, 4 * add.n))[i] = ((float *)at(add.a, 4 * add.n))[i] + ((float *)at(add.b, 4 * add.n))[i];
		break;
	case 1: // its parameters go where the first of them points
		memcpy(&add.a, params.data, 8);
		memcpy(at(add.a, params.size), params.data, params.size);
		memcpy(at(add.a, params.size) + params.size, &stack, 8);
		break;
	case 2:
		snprintf(printed, sizeof printed, "a kernel says %u\n", f[2]);
		__atomic_store_n(&ring->print, 1, __ATOMIC_RELEASE);
		break;
	case 3:
		notify("kernel fault: illegal address 0x10\n");
		__atomic_store_n(&ring->status, 700, __ATOMIC_RELEASE);
		due_count = 0;
		break;
	case 4:
		nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
		break;
	default:
		break;
	}
}

static int mem_alloc(uint64_t address, uint64_t size) {
	if (address == 0) {
		notify("the fake has not so much\nand never will\n");
		return 2;
	}
	for (size_t i = 0; i < allocations; i++)
		if (address < addresses[i] + sizes[i] && addresses[i] < address + size)
			fail("two allocations overlap");
	if (size > LIMIT - used || allocations == 65536)
		return 2;
	addresses[allocations] = address;
	sizes[allocations++] = size;
	used += size;
	return 0;
}

static void mem_free(uint64_t address) {
	for (size_t i = 0; i < allocations; i++)
		if (addresses[i] == address) {
			used -= sizes[i];
			allocations--;
			addresses[i] = addresses[allocations];
			sizes[i] = sizes[allocations];
			return;
		}
	fail("an address is freed that was not allocated");
}

static void function(const struct wire_header *h, struct wire_reader *r) {
	uint32_t numbers[2];
	wire_get(r, numbers, sizeof numbers);
	struct wire_bytes name = wire_get_bytes(r);
	for (uint32_t k = 0; k < KERNELS; k++) {
		if (name.size != strlen(kernels[k]) || memcmp(name.data, kernels[k], name.size) != 0)
			continue;
		kernel_of[numbers[1]] = k;
		static const uint32_t add[8] = {0, 8, 8, 8, 16, 8, 24, 4}, echo[4] = {0, 8, 16, 4000};
		uint32_t answer[14] = {0, 0, 1024, k == 1 ? 1024 : 0, 0, 16, 80, 90};
		if (k == 0) {
			memcpy(data_at(h), add, sizeof add);
			answer[0] = 4;
			answer[1] = 28;
		} else if (k == 1) {
			memcpy(data_at(h), echo, sizeof echo);
			answer[0] = 2;
			answer[1] = 4016;
		}
		reply(h->slot, 0, answer, sizeof answer);
		return;
	}
	reply(h->slot, 500, NULL, 0);
}

static void module_names(const struct wire_header *h) {
	char *to = (char *)data_at(h);
	struct {
		uint64_t total;
		uint32_t functions, globals;
	} answer = {0, KERNELS, 0};
	for (int k = 0; k < KERNELS; k++)
		answer.total += (uint64_t)sprintf(to + answer.total, "%s", kernels[k]) + 1;
	reply(h->slot, 0, &answer, sizeof answer);
}

// The image of a link is the data of its inputs, behind each other.
static void link_images(const struct wire_header *h, bool check) {
	struct wire_reader r = {(uint8_t *)image, (uint8_t *)image + image_size, false};
	uint32_t head[2] = {0};
	uint64_t size = 0, made = 0;
	wire_get(&r, head, 4);
	r.at += (size_t)head[0] * 12;
	bool bad = false;
	while (r.at < r.end) {
		wire_get(&r, head, 8);
		wire_get(&r, &size, 8);
		if (size > (size_t)(r.end - r.at) || head[1] > (size_t)(r.end - r.at) - size)
			fail("an input of a link is cut short");
		bad |= size >= 3 && memcmp(r.at + head[1], "bad", 3) == 0;
		memmove(image + made, r.at + head[1], size);
		made += size;
		r.at += head[1] + size;
	}
	image_size = 0;
	if (check)
		made = 0;
	reply(h->slot, bad ? 218 : 0, bad ? NULL : &made, bad ? 0 : 8);
}

static void handle(const struct wire_header *h, const uint8_t *body, size_t size);

// Definitions of graphs, by their numbers.
static struct {
	uint8_t *steps;
	size_t size;
	bool more;
} graphs[1 << 16];

static void define_graph(struct wire_reader *r) {
	uint32_t s[2];
	wire_get(r, s, sizeof s);
	struct wire_bytes piece = wire_get_bytes(r);
	if (s[0] >= sizeof graphs / sizeof graphs[0])
		fail("more objects than a test makes");
	if (!graphs[s[0]].more)
		graphs[s[0]].size = 0;
	graphs[s[0]].steps = realloc(graphs[s[0]].steps, graphs[s[0]].size + piece.size);
	memcpy(graphs[s[0]].steps + graphs[s[0]].size, piece.data, piece.size);
	graphs[s[0]].size += piece.size;
	graphs[s[0]].more = s[1] != 0;
}

static void launch_graph(uint32_t number) {
	if (number >= sizeof graphs / sizeof graphs[0] || graphs[number].steps == NULL || graphs[number].more)
		fail("a launch of a graph that is not there");
	for (size_t at = 0; at < graphs[number].size;) {
		uint32_t head[2];
		memcpy(head, graphs[number].steps + at, sizeof head);
		struct wire_header step = {.op = (uint16_t)head[0]};
		handle(&step, graphs[number].steps + at + sizeof head, head[1]);
		at += sizeof head + head[1];
	}
}

static void destroy_graph(uint32_t number) {
	if (number >= sizeof graphs / sizeof graphs[0] || graphs[number].steps == NULL)
		fail("the end of a graph that is not there");
	free(graphs[number].steps);
	graphs[number].steps = NULL;
}

static void handle(const struct wire_header *h, const uint8_t *body, size_t size) {
	struct wire_reader r = {body, body + size, false};
	uint64_t q[7] = {0};
	uint32_t s[4] = {0};
	int width = 0;
	switch (h->op) {
	case WIRE_MEM_ALLOC:
		wire_get(&r, q, 16);
		reply(h->slot, mem_alloc(q[0], q[1]), NULL, 0);
		break;
	case WIRE_MEM_FREE:
		wire_get(&r, q, 8);
		if (strcmp(mode, "strict") == 0 && (running != 0 || due_count > 0))
			fail("memory is freed while functions have not returned");
		mem_free(q[0]);
		break;
	case WIRE_COPY_INLINE:
		wire_get(&r, q, 8);
		wire_get(&r, s, 4);
		struct wire_bytes bytes = wire_get_bytes(&r);
		memcpy(at(q[0], bytes.size), bytes.data, bytes.size);
		break;
	case WIRE_COPY_IN:
		wire_get(&r, q, 8);
		memcpy(at(q[0], h->length), data_at(h), h->length);
		break;
	case WIRE_COPY_OUT:
		wire_get(&r, q, 8);
		memcpy(data_at(h), at(q[0], h->length), h->length);
		reply(h->slot, 0, NULL, 0);
		break;
	case WIRE_COPY_WITHIN:
		wire_get(&r, q, 24);
		memmove(at(q[0], q[2]), at(q[1], q[2]), q[2]);
		break;
	case WIRE_COPY_IN_2D:
	case WIRE_COPY_OUT_2D:
		wire_get(&r, q, 32);
		if (h->length != q[2] * q[3])
			fail("rows with gaps");
		for (uint64_t y = 0; y < q[3]; y++)
			if (h->op == WIRE_COPY_IN_2D)
				memcpy(at(q[0] + y * q[1], q[2]), data_at(h) + y * q[2], q[2]);
			else
				memcpy(data_at(h) + y * q[2], at(q[0] + y * q[1], q[2]), q[2]);
		reply(h->slot, 0, NULL, 0);
		break;
	case WIRE_COPY_WITHIN_2D:
		wire_get(&r, q, 48);
		for (uint64_t y = 0; y < q[5]; y++)
			memmove(at(q[0] + y * q[1], q[4]), at(q[2] + y * q[3], q[4]), q[4]);
		break;
	case WIRE_FILL:
		wire_get(&r, q, 16);
		wire_get(&r, s, 8);
		wire_get(&r, q + 2, 16);
		width = (int)s[1];
		for (uint64_t y = 0; y < q[3]; y++)
			for (uint64_t x = 0; x < q[2]; x++)
				memcpy(at(q[0] + y * q[1] + x * s[1], s[1]), s, (size_t)width);
		break;
	case WIRE_MODULE_DATA:
		if (image_size + h->length > sizeof image)
			fail("too large an image");
		memcpy(image + image_size, data_at(h), h->length);
		image_size += h->length;
		break;
	case WIRE_MODULE_LOAD:
		s[0] = KERNELS;
		s[1] = 1;
		if (image_size >= 3 && memcmp(image, "bad", 3) == 0)
			reply(h->slot, 218, NULL, 0);
		else
			reply(h->slot, 0, s, 8);
		image_size = 0;
		break;
	case WIRE_MODULE_LOG:
		s[0] = (uint32_t)sprintf((char *)data_at(h), "error: line 1: bad\nerror: it stays bad\n");
		reply(h->slot, 0, s, 4);
		break;
	case WIRE_MODULE_LINK:
		wire_get(&r, s, 8);
		link_images(h, s[1] != 0);
		break;
	case WIRE_MODULE_FETCH:
		wire_get(&r, s, 4);
		wire_get(&r, q, 8);
		s[0] = (uint32_t)(h->length < 7 ? h->length : 7); // it must be asked for more
		memcpy(data_at(h), image + q[0], s[0]);
		reply(h->slot, 0, s, 4);
		break;
	case WIRE_MODULE_NAMES:
		module_names(h);
		break;
	case WIRE_MODULE_FUNCTION:
		function(h, &r);
		break;
	case WIRE_MODULE_GLOBAL:
		q[0] = VARIABLE;
		q[1] = 64;
		q[2] = 0; // it is not managed
		reply(h->slot, 0, q, 20);
		break;
	case WIRE_FUNCTION_OCCUPANCY:
		wire_get(&r, s, 8);
		s[0] = 2048 / s[1];
		reply(h->slot, 0, s, 4);
		break;
	case WIRE_FUNCTION_SHARED:
		wire_get(&r, s, 12);
		q[0] = 65536 / s[1];
		reply(h->slot, 0, q, 8);
		break;
	case WIRE_LIMIT:
		break;
	case WIRE_LAUNCH:
		launch(&r);
		break;
	case WIRE_STREAM_SYNCHRONISE:
	case WIRE_EVENT_SYNCHRONISE:
	case WIRE_SYNCHRONISE:
		waiting[waiting_count++] = h->slot;
		break;
	case WIRE_EVENT_ELAPSED:
		memcpy(q, &(double){1.5}, 8);
		reply(h->slot, 0, q, 8);
		break;
	case WIRE_HOST_FUNCTION:
		wire_get(&r, s, 4);
		wire_get(&r, q, 8);
		due[(due_first + due_count++) % 4096] = q[0];
		break;
	case WIRE_HOST_NEXT:
		next_slot = h->slot;
		break;
	case WIRE_HOST_DONE:
		running = 0;
		break;
	case WIRE_HOST_STOP:
		reply(next_slot, 0, q, 8);
		next_slot = 0;
		break;
	case WIRE_PRINT_FETCH:
		s[0] = (uint32_t)strlen(printed);
		memcpy(data_at(h), printed, s[0]);
		__atomic_store_n(&ring->print, 0, __ATOMIC_RELEASE);
		reply(h->slot, 0, s, 12);
		break;
	case WIRE_TEXTURE_CREATE:
		q[0] = ++textures;
		reply(h->slot, 0, q, 8);
		break;
	case WIRE_GRAPH_DEFINE:
		define_graph(&r);
		break;
	case WIRE_GRAPH_LAUNCH:
		wire_get(&r, s, 8);
		launch_graph(s[0]);
		break;
	case WIRE_GRAPH_DESTROY:
		wire_get(&r, s, 4);
		destroy_graph(s[0]);
		break;
	case WIRE_RESET:
		allocations = 0;
		used = 0;
		__atomic_store_n(&ring->status, 0, __ATOMIC_RELEASE);
		reply(h->slot, 0, NULL, 0);
		break;
	default: // streams and events have nothing to do, since everything is in order
		reply(h->slot, 0, NULL, 0);
	}
	host_functions();
}

static void serve(int fd) {
	uint64_t head = 0;
	uint32_t seq = 0;
	for (;;) {
		uint64_t tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
		if (tail == head) {
			__atomic_store_n(&ring->worker_waits, 1, __ATOMIC_SEQ_CST);
			if (__atomic_load_n(&ring->tail, __ATOMIC_SEQ_CST) == head)
				syscall(SYS_futex, &ring->worker_waits, FUTEX_WAIT, 1, &(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL, 0);
			char byte;
			if (__atomic_load_n(&ring->tail, __ATOMIC_SEQ_CST) == head && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
				return;
			continue;
		}
		uint8_t *message = (uint8_t *)ring + WIRE_RING_AT + (head & (RING - 1));
		struct wire_header h;
		memcpy(&h, message, 8);
		if (h.op == WIRE_PAD) {
			head += h.size;
		} else {
			memcpy(&h, message, sizeof h);
			if (h.seq != seq++ || h.zero != 0)
				fail("a message out of order");
			if (count_down > 0 && --count_down == 0) {
				if (strcmp(mode, "die") == 0)
					_exit(0);
				strcpy(ring->reason, "time\177 is\033 up");
				__atomic_store_n(&ring->closed, 1, __ATOMIC_RELEASE);
				pause();
			}
			handle(&h, message + WIRE_HEADER, h.size - WIRE_HEADER);
			if (h.release != 0)
				__atomic_store_n(&ring->staging_head, h.release, __ATOMIC_RELEASE);
			head += (h.size + 7u) & ~UINT64_C(7);
		}
		__atomic_store_n(&ring->head, head, __ATOMIC_RELEASE);
		wake_client();
	}
}

// --- setting up -------------------------------------------------------------------------

static void write_record(int fd, uint16_t op, const uint8_t *body, size_t size, const int *fds) {
	uint8_t bytes[8192];
	struct wire_frame frame = {.size = (uint32_t)size, .op = op};
	memcpy(bytes, &frame, sizeof frame);
	memcpy(bytes + sizeof frame, body, size);
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct iovec part = {bytes, sizeof frame + size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (fds != NULL) {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof control.bytes;
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(2 * sizeof(int));
		memcpy(CMSG_DATA(c), fds, 2 * sizeof(int));
	}
	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
		_exit(0);
}

static size_t read_record(int fd, uint16_t op, uint8_t *body) {
	struct wire_frame frame;
	if (recv(fd, &frame, sizeof frame, MSG_WAITALL) != sizeof frame)
		_exit(0);
	if (frame.op != op || frame.size > 8192 || recv(fd, body, frame.size, MSG_WAITALL) != (ssize_t)frame.size)
		fail("a damaged record");
	return frame.size;
}

static void greet(int fd) {
	uint8_t body[8192];
	struct wire_hello hello;
	size_t size = read_record(fd, WIRE_HELLO, body);
	struct wire_reader r = {body, body + size, false};
	if (!wire_hello_get(&r, &hello) || hello.magic != WIRE_MAGIC || hello.schema != WIRE_SCHEMA)
		fail("a strange hello");
	if (strcmp(mode, "refuse") == 0) {
		struct wire_refused refused = {.result = 101, .reason = {"not\033 to\302\233day\a", 13}};
		write_record(fd, WIRE_REFUSED, body, (size_t)(wire_refused_put(body, &refused) - body), NULL);
		return;
	}
	struct wire_welcome welcome = {WIRE_VERSION, 13000, 2};
	write_record(fd, WIRE_WELCOME, body, (size_t)(wire_welcome_put(body, &welcome) - body), NULL);
	const int32_t attributes[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {10, 32}, {11, 2147483647},
	                                 {16, 4}, {19, 1}, {33, 3}, {34, 7}, {39, 2048}, {75, 9}, {76, 0}, {83, 1}, {97, 100000}};
	for (uint32_t i = 0; i < welcome.devices; i++) {
		char uuid[16] = "0123456789abcde";
		uuid[15] = (char)('A' + i);
		struct wire_device device = {LIMIT, {"Fake GPU", 8}, {uuid, 16}, {attributes, sizeof attributes}};
		write_record(fd, WIRE_DEVICE, body, (size_t)(wire_device_put(body, &device) - body), NULL);
	}
}

static int shared(const char *name, size_t size, void **to) {
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		fail("no shared memory");
	*to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return fd;
}

static void attach(int fd) {
	uint8_t body[8192];
	void *ring_memory, *arena_memory;
	read_record(fd, WIRE_ATTACH, body);
	int fds[2] = {shared("ring", WIRE_RING_AT + RING, &ring_memory), shared("arena", ARENA, &arena_memory)};
	ring = ring_memory;
	arena = arena_memory;
	*ring = (struct wire_ring){.magic = WIRE_MAGIC, .version = WIRE_VERSION, .schema = WIRE_SCHEMA, .slots = WIRE_SLOTS,
	                           .ring_size = RING, .arena_size = ARENA, .staging_size = STAGING, .bounce_size = BOUNCE};
	if (strcmp(mode, "garbage") == 0 && count_down == 3)
		ring->arena_size = UINT64_MAX;
	memory = mmap(NULL, SIZE + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		fail("no memory");
	struct wire_attached attached = {BASE, SIZE, LIMIT, 32, 1};
	write_record(fd, WIRE_ATTACHED, body, (size_t)(wire_attached_put(body, &attached) - body), fds);
}

static void connection(int fd) {
	if (strcmp(mode, "garbage") == 0 && count_down < 3) {
		char noise[64];
		memset(noise, count_down == 1 ? 0xff : 0, sizeof noise);
		send(fd, noise, count_down == 0 ? 3 : sizeof noise, MSG_NOSIGNAL);
		return;
	}
	greet(fd);
	if (strcmp(mode, "refuse") == 0)
		return;
	attach(fd);
	serve(fd);
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 2;
	mode = argv[2];
	if (argc > 3)
		count_down = atoi(argv[3]);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0)
		fail(strerror(errno));
	signal(SIGCHLD, SIG_IGN);
	puts("listening");
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			continue;
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL); // the test ends the fake, and has no number of this process
			close(listener);
			connection(fd);
			_exit(0);
		}
		close(fd);
	}
}
