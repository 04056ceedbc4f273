// See become.go: MUSTER muster-become FOLDER PROGRAM ARGUMENTS...
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { result_file = 3 };

// fail says why the process does not become the program, and ends it.
static void fail(const char *doing, const char *name)
{
	char text[1024];
	int n = snprintf(text, sizeof text, "%s %s: %s", doing, name, strerror(errno));
	if (n >= (int)sizeof text)
		n = sizeof text - 1;
	ssize_t written = write(result_file, text, n);
	_exit(written < 0 ? 126 : 127);
}

__attribute__((constructor)) static void become(int argc, char **argv, char **envp)
{
	if (argc < 5 || strcmp(argv[1], "muster-become") != 0)
		return;
	errno = EPERM;
	if (getauxval(AT_SECURE)) // whoever made this executable setuid did not mean all programs
		fail("executing", argv[3]);
	fcntl(result_file, F_SETFD, FD_CLOEXEC);
	if (argv[2][0] != 0 && chdir(argv[2]) != 0)
		fail("changing to", argv[2]);
	execve(argv[3], argv + 4, envp);
	fail("executing", argv[3]);
}
