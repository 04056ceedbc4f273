// Which memory of the program can be read, without a fault where it cannot. Layer: basis.
#include "basis.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE ((uintptr_t)4096)

// Reads a byte of each page by way of the kernel, which returns an error instead of a signal. It is a
// system call of its own, as sanitizers look at the memory in their version of process_vm_readv.
size_t readable(const void *from, size_t size) {
	enum { BATCH = 256 };
	struct iovec pages[BATCH];
	char bytes[BATCH];
	uintptr_t at = (uintptr_t)from, end = size < UINTPTR_MAX - at ? at + size : UINTPTR_MAX;
	int before = errno;
	while (at < end) {
		size_t n = 0;
		uintptr_t next = at;
		for (; n < BATCH && next < end && next >= at; n++) {
			pages[n] = (struct iovec){(void *)next, 1};
			next = (next / PAGE + 1) * PAGE;
		}
		struct iovec into = {bytes, n};
		ssize_t done = syscall(SYS_process_vm_readv, (long)getpid(), &into, 1ul, pages, n, 0ul);
		if (done < 0 && errno != EFAULT) { // a kernel or container without it: nothing can be said
			at = end;
			break;
		}
		if (done != (ssize_t)n) {
			at = (uintptr_t)pages[done > 0 ? done : 0].iov_base;
			break;
		}
		at = next >= at ? next : end;
	}
	errno = before;
	return (at < end ? at : end) - (uintptr_t)from;
}
