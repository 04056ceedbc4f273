// Asks this program's node for its state, as `muster ps` does: one connection, one line, one
// answer. No connection stays open, so forks and restarts of the node need no handling. The node may
// be slow, dead or malicious: its answer is bounded in time and size, and every field is checked.
#include "node.h"

#include "../shim/nodesocket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// The time for the whole exchange, and the most bytes of an answer.
#define PATIENCE_MS 3000
#define MAX_ANSWER (1 << 20)

static int64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// Waits until the socket is ready or end has come. A signal does not extend the wait.
static bool ready(int fd, short events, int64_t end) {
	for (;;) {
		int64_t left = end - now_ms();
		struct pollfd p = {.fd = fd, .events = events};
		int n = left > 0 ? poll(&p, 1, (int)left) : 0;
		if (n > 0)
			return true;
		if (n == 0 || errno != EINTR)
			return false;
	}
}

static int open_socket(void) {
	struct sockaddr_un address;
	socklen_t size;
	int fd = node_address(&address, &size) ? node_socket(SOCK_NONBLOCK) : -1;
	if (fd < 0)
		return -1;
	// If the node's queue is full this fails with EAGAIN at once: the library does not wait for
	// such a busy node.
	if (connect(fd, (struct sockaddr *)&address, size) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool send_all(int fd, const char *text, int64_t end) {
	size_t left = strlen(text);
	while (left > 0) {
		ssize_t n = send(fd, text, left, MSG_NOSIGNAL);
		if (n < 0 && (errno == EINTR || (errno == EAGAIN && ready(fd, POLLOUT, end))))
			continue;
		if (n <= 0)
			return false;
		text += n;
		left -= (size_t)n;
	}
	return true;
}

// Reads to the end of the answer.
static bool receive_all(int fd, char *text, size_t room, int64_t end) {
	size_t have = 0;
	while (have < room - 1) {
		ssize_t n = recv(fd, text + have, room - 1 - have, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && ready(fd, POLLIN, end))
			continue;
		if (n < 0)
			return false;
		if (n == 0) {
			text[have] = 0;
			return memchr(text, 0, have) == NULL;
		}
		have += (size_t)n;
	}
	return false;
}

bool picture_take(struct picture *p) {
	int64_t end = now_ms() + PATIENCE_MS;
	const char *memory = setting("MUSTER_MEMORY");
	char request[96];
	snprintf(request, sizeof request, "{\"request\":\"monitor\",\"memory\":%llu}\n", memory != NULL ? strtoull(memory, NULL, 10) : 0);
	int fd = open_socket();
	if (fd < 0)
		return false;
	uid_t uid;
	char *text = malloc(MAX_ANSWER);
	bool ok = text != NULL && node_is_trusted(fd, &uid) && send_all(fd, request, end) && receive_all(fd, text, MAX_ANSWER, end) && picture_read(p, text);
	free(text);
	close(fd);
	return ok;
}

// Takes the next field of a line, up to the next tab.
static char *field(char **line) {
	char *start = *line;
	if (start == NULL)
		return NULL;
	char *tab = strchr(start, '\t');
	*line = tab != NULL ? tab + 1 : NULL;
	if (tab != NULL)
		*tab = 0;
	return start;
}

static bool number(char **line, uint64_t most, uint64_t *value) {
	char *text = field(line), *end;
	if (text == NULL || text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno == 0 && *end == 0 && *value <= most;
}

static bool small(char **line, unsigned int most, unsigned int *value) {
	uint64_t wide;
	if (!number(line, most, &wide))
		return false;
	*value = (unsigned int)wide;
	return true;
}

static bool hex(char **line, uint8_t *bytes, size_t count) {
	char *text = field(line);
	if (text == NULL || strlen(text) != 2 * count)
		return false;
	for (size_t i = 0; i < count; i++) {
		unsigned int value;
		if (strspn(text + 2 * i, "0123456789abcdef") < 2 || sscanf(text + 2 * i, "%2x", &value) != 1)
			return false;
		bytes[i] = (uint8_t)value;
	}
	return true;
}

// Copies the rest of the line, cut off at the end of the room.
static bool rest(char *line, char *into, size_t room) {
	if (line == NULL)
		return false;
	size_t length = strnlen(line, room - 1);
	memcpy(into, line, length);
	into[length] = 0;
	return true;
}

static bool read_gpu(struct picture *p, char *line) {
	struct gpu *g = &p->gpu[p->gpus];
	unsigned int place;
	if (p->gpus == MAX_DEVICES || !small(&line, MAX_DEVICES, &place) || place != p->gpus)
		return false;
	const unsigned int any = UINT32_MAX;
	if (!number(&line, UINT64_MAX, &g->memory) || !hex(&line, g->uuid, sizeof g->uuid) || !small(&line, any, &g->major) || !small(&line, any, &g->minor) ||
		!small(&line, any, &g->clock) || !small(&line, any, &g->memory_clock) || !small(&line, any, &g->bus_width) || !small(&line, any, &g->ecc) ||
		!small(&line, 255, &g->bus) || !rest(line, g->name, sizeof g->name))
		return false;
	p->gpus++;
	return true;
}

static bool read_process(struct picture *p, char *line) {
	struct process *q = &p->process[p->processes];
	unsigned int busy;
	if (p->processes == MAX_PROCESSES || !small(&line, UINT32_MAX, &q->gpu) || !small(&line, INT32_MAX, &q->pid) || !number(&line, UINT64_MAX, &q->memory) ||
		!number(&line, UINT64_MAX, &q->busy_ns) || !small(&line, 1, &busy) || !rest(line, q->program, sizeof q->program))
		return false;
	q->busy = busy != 0;
	if (q->gpu < p->gpus) // a client may still be on a device that the node no longer shows
		p->processes++;
	return true;
}

static bool read_node(struct picture *p, char *line) { return small(&line, 1000000, &p->cuda) && number(&line, UINT64_MAX, &p->now_ns); }

bool picture_read(struct picture *p, char *text) {
	memset(p, 0, offsetof(struct picture, gpu));
	bool first = true, told = false;
	for (char *line = text, *next; *line != 0; line = next) {
		char *end = strchr(line, '\n');
		if (end == NULL)
			return false;
		*end = 0;
		next = end + 1;
		if (strcmp(line, "end") == 0)
			return !first && told && *next == 0 && p->gpus > 0;
		char *kind = field(&line);
		bool ok;
		unsigned int version;
		if (first)
			ok = strcmp(kind, "muster-monitor") == 0 && small(&line, 1, &version) && version == 1;
		else if (strcmp(kind, "node") == 0)
			ok = told = read_node(p, line);
		else if (strcmp(kind, "device") == 0)
			ok = read_gpu(p, line);
		else
			ok = strcmp(kind, "process") == 0 && read_process(p, line);
		if (!ok)
			return false;
		first = false;
	}
	return false;
}
