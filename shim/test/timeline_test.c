// A traced program runs on where there is no room for records: on a full file system, where
// files may not grow, and when its folder has gone by the time that it forks.
#include "../lib/transport/transport.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

static void calls(void) {
	for (int i = 0; i < 100000; i++) {
		int64_t began = watch_begin("cuTest");
		if (began != 0)
			watch_end("cuTest", began, 0);
	}
}

static void trace_to(const char *folder) {
	setenv("MUSTER_TIMELINE", folder, 1);
	setenv("MUSTER_TIMELINE_RECORDS", "200000", 1);
	watch_start();
}

static int full(const char *folder) {
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", folder, "tmpfs", 0, "size=2m") != 0)
		return 77; // nobody may here
	trace_to(folder);
	calls();
	return (shim_watch & WATCH_TIMELINE) != 0 ? 0 : 1; // there is room for some records
}

static int limited(const char *folder) {
	const struct rlimit little = {1 << 16, 1 << 16};
	if (setrlimit(RLIMIT_FSIZE, &little) != 0)
		return 1;
	trace_to(folder);
	calls();
	return 0;
}

// A signal's handler may fork during a call.
static int forked(const char *folder) {
	trace_to(folder);
	int64_t began = watch_begin("cuTest");
	setenv("MUSTER_TIMELINE", "/nonexistent", 1);
	watch_in_child();
	watch_end("cuTest", began, 0);
	return 0;
}

int main(int count, char **arguments) {
	if (count != 3)
		return 2;
	if (strcmp(arguments[1], "full") == 0)
		return full(arguments[2]);
	return strcmp(arguments[1], "limited") == 0 ? limited(arguments[2]) : forked(arguments[2]);
}
