// Runs cases, each in a process of its own: some leave a context that is good for nothing.
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct test_case {
	const char *name;
	void (*run)(void);
	bool rest; // not recorded: what comes behind a call that crashes the driver, and the call
};

#define CASE(name) {#name, name, false}
#define REST(name) {#name, name, true}

// The recorded ones; with --rest the others, with --list the names of all, else those named.
static int run_cases(const struct test_case *cases, size_t count, int argc, char **argv) {
	bool list = argc == 2 && strcmp(argv[1], "--list") == 0, rest = argc == 2 && strcmp(argv[1], "--rest") == 0;
	for (size_t i = 0; i < count; i++) {
		if (list)
			puts(cases[i].name);
		bool wanted = cases[i].rest == rest && (argc == 1 || rest);
		for (int k = 1; k < argc; k++)
			wanted |= strcmp(argv[k], cases[i].name) == 0;
		if (!wanted)
			continue;
		printf("== %s\n", cases[i].name);
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(30);
			cases[i].run();
			fflush(stdout);
			_exit(0);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		if (WIFSIGNALED(status))
			printf("\ncrashed: %s\n", strsignal(WTERMSIG(status)));
	}
	return 0;
}
