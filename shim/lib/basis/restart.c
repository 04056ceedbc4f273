// Waiting for a node that is being restarted: running programs continue, and programs that
// connect meanwhile wait for it. Layer: basis.
#include "basis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 10, DEAD_TIME = 120, LOOK_EVERY = 50 * 1000 * 1000 }; // seconds, seconds, nanoseconds

// The name of the folder where the node of this socket keeps its state; node/statefolder
// computes the same. False if the socket's path is relative, or the name too long.
static bool state_key(const char *socket, char *key, size_t size) {
	if (socket[0] != '@' && socket[0] != '/')
		return false;
	size_t used = 0;
	for (const unsigned char *c = (const unsigned char *)socket; *c != 0; c++) {
		bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '@' || *c == '_' || *c == '-';
		if (size - used < 4)
			return false;
		if (*c == '/')
			key[used++] = '+';
		else if (plain)
			key[used++] = (char)*c;
		else
			used += (size_t)snprintf(key + used, size - used, "%%%02X", *c);
	}
	key[used] = 0;
	return true;
}

// Whether the folder exists and a daemon has touched it lately; node/statefolder decides the same.
static bool is_fresh_folder(const char *parent, const char *key) {
	char path[1024];
	struct stat info;
	if (snprintf(path, sizeof path, "%s/%s", parent, key) >= (int)sizeof path)
		return false;
	return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && time(NULL) - info.st_mtim.tv_sec < DEAD_TIME;
}

// Whether the node's state folder exists and is fresh. A node that was killed, or hands over to its
// successor, leaves the folder behind; one that has shut down removes it. A running node has one,
// too, and touches it every few seconds. So a folder that nobody has touched for a while is that of a
// node which was killed and not started again: waiting for it would be in vain.
bool node_may_come_back(const char *socket) {
	char key[256], parent[512];
	if (!state_key(socket, key, sizeof key))
		return false;
	if (is_fresh_folder("/run/muster", key))
		return true;
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	if (runtime != NULL && runtime[0] == '/' && snprintf(parent, sizeof parent, "%s/muster", runtime) < (int)sizeof parent && is_fresh_folder(parent, key))
		return true;
	snprintf(parent, sizeof parent, "/tmp/muster-%u", (unsigned)getuid());
	return is_fresh_folder(parent, key);
}

bool node_wait(const char *socket, struct patience *p) {
	struct timespec now, pause = {.tv_nsec = LOOK_EVERY};
	int before = errno;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!p->begun) {
		p->begun = true;
		p->since = now.tv_sec;
	}
	bool waits = now.tv_sec - p->since < PATIENCE && node_may_come_back(socket);
	if (waits)
		nanosleep(&pause, NULL);
	errno = before;
	return waits;
}
