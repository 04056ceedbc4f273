// How a library in a program finds its node's socket, and which peer it trusts: shared by
// libcuda.so.1 and libnvidia-ml.so.1. Nothing here sends or waits.
#ifndef MUSTER_NODESOCKET_H
#define MUSTER_NODESOCKET_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// A setting from the environment, or NULL if it is not set. A setuid program ignores the
// environment, which its user controls.
static inline const char *setting(const char *name) {
	const char *value = secure_getenv(name);
	return value != NULL && value[0] != 0 ? value : NULL;
}

static inline const char *node_path(void) {
	const char *path = setting("MUSTER_SOCKET");
	return path != NULL ? path : "@muster";
}

// The address of the node's socket; false if its name is too long for one.
static inline bool node_address(struct sockaddr_un *address, socklen_t *size) {
	const char *path = node_path();
	size_t length = strlen(path);
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (length >= sizeof address->sun_path)
		return false;
	memcpy(address->sun_path, path, length);
	*size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (path[0] == '@')
		address->sun_path[0] = 0;
	else
		++*size;
	return true;
}

// Makes a socket whose number is not 0, 1 or 2: a program that has closed its standard descriptors
// may still write to them.
static inline int node_socket(int flags) {
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return higher;
}

// Whether the peer of a socket is trusted: it must be root, the same user, or the user in
// MUSTER_UID, since any user can listen on a socket's name that no node has. *uid gets the peer's
// user, or -1 if unknown.
static inline bool node_is_trusted(int fd, uid_t *uid) {
	struct ucred peer;
	socklen_t size = sizeof peer;
	*uid = (uid_t)-1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return false;
	*uid = peer.uid;
	const char *other = setting("MUSTER_UID");
	return peer.uid == 0 || peer.uid == geteuid() || (other != NULL && strtoul(other, NULL, 10) == peer.uid);
}

#endif
